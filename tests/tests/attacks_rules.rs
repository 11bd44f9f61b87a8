//! Callers that try to bypass the rules: by Routes of their own, or by a call in the name of another.

use crate::rules::{LIMIT, start};
use strowger_tests::call::{exchange, register};
use strowger_tests::dialog::{invite, set_up};
use strowger_tests::port::free_address;
use strowger_tests::text::{Request, fields, request_uri, respond, status, unique};
use strowger_tests::wire::Transport::Udp;

#[test]
fn no_route_of_a_caller_leads_past_a_rule_or_a_failure() {
    let at = [(); 2].map(|()| free_address());
    let server = start(&format!(
        r#"
        [[failure]]
        name = "second"
        statuses = ["5xx"]
        to = ["sip:{}"]
        [[rule]]
        name = "numbers"
        when = "number matches '^[0-9]+$'"
        to = ["sip:{}"]
        on_failure = ["second"]
        "#,
        at[1], at[0]
    ));
    let own = server.address(Udp);
    let mut gateways = at.map(|at| server.connect_from(Udp, at));
    let mut wire = server.connect(Udp);
    let elsewhere = server.connect(Udp);
    let trap = elsewhere.local();
    for routes in [
        vec![format!("<sip:{trap};lr>")],
        vec![format!("<sip:{own};lr>, <sip:{trap};lr>")],
        vec![format!("<sip:{own};lr>"), format!("<sip:{trap};lr>")],
        vec![format!("<sip:{trap};lr>, <sip:{own};lr>")],
        // A strict router (RFC 3261 section 16.6 step 6).
        vec![format!("<sip:{trap}>")],
        vec![format!("<sip:{own};lr>, <sip:{trap}>")],
    ] {
        let mut call = invite("sip:4930@example.org", &wire);
        call.headers.extend(routes.iter().map(|route| format!("Route: {route}")));
        wire.send(&call.bytes()).expect("loopback");
        for (gateway, answer) in gateways.iter_mut().zip([503, 486]) {
            let got = gateway.request("INVITE", LIMIT).unwrap_or_else(|| panic!("{routes:?}: {}", server.log()));
            assert_eq!((fields(&got, "Route"), request_uri(&got)), (Vec::new(), "sip:4930@example.org".to_owned()));
            gateway.send(&respond(&got, answer, "g", &[])).expect("loopback");
        }
        let answer = wire.final_response(LIMIT).expect("an answer");
        assert_eq!(status(&answer), Some(486), "{routes:?}");
        wire.send(&call.ack(&answer).bytes()).expect("loopback");
    }
    assert!(!elsewhere.has_come());
}

/// A counted or accounted call is identified by its Call-ID and tag: a second call with both would be in no count and
/// in no row.
#[test]
fn no_second_call_of_one_call_id_and_tag_escapes_limits_and_accounts() {
    for lines in [
        "call_limit = [{ name = \"line\", most = 1, per = \"from.uri\", status = 486 }]\nrule = [{ name = \"calls\", call_limits = [\"line\"] }]",
        "accounting.cdr = true\naccounting.to = \"csv\"\naccounting.path = \"rows\"\naccounting.spool = \"rows.spool\"",
    ] {
        let server = start(lines);
        let [mut caller, mut bob, mut carol] = [(); 3].map(|()| server.connect(Udp));
        register(&mut bob, "bob");
        register(&mut carol, "carol");
        let call = invite("sip:bob@example.org", &caller);
        let _end = set_up(&mut caller, &mut bob, &call, true);
        for cseq in [call.cseq, call.cseq + 1] {
            let to = "sip:carol@example.org";
            let second =
                Request { uri: to.into(), to: format!("<{to}>"), branch: unique("z9hG4bK"), cseq, ..call.clone() };
            let answer = exchange(&mut caller, &second);
            assert_eq!(status(&answer), Some(482), "{lines} {cseq}: {}", server.log());
            caller.send(&second.ack(&answer).bytes()).expect("loopback");
        }
        server.log_with("another call of this Call-ID and tag stands");
        assert!(!carol.has_come());
    }
}
