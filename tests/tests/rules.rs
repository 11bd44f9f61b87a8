//! Rules of the configuration: their effect on requests, as peers see it.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use strowger_tests::account::challenged;
use strowger_tests::call::{exchange, register};
use strowger_tests::control::done;
use strowger_tests::dialog::{arrives, invite, set_up};
use strowger_tests::port::free_address;
use strowger_tests::server::Setup;
use strowger_tests::site::Site;
use strowger_tests::text::{Request, field, request_uri, respond, status};
use strowger_tests::wire::Transport::Udp;
use strowger_tests::wire::Wire;

pub(crate) const LIMIT: Duration = Duration::from_secs(10);

/// Starts a server with these rules, and users of example.org who need no password.
pub(crate) fn start(rules: &str) -> Site {
    Setup::on(&[Udp]).open_registrar().with(rules).site()
}

fn options(uri: &str, wire: &Wire) -> Request {
    Request::new("OPTIONS", uri, "udp", wire.local())
}

fn reason(answer: &[u8]) -> String {
    let text = String::from_utf8_lossy(answer);
    text.lines().next().unwrap_or_default().splitn(3, ' ').nth(2).unwrap_or_default().to_owned()
}

#[test]
fn rules_answer_in_their_order() {
    let server = start(
        r#"
        [[set]]
        name = "blocked"
        entries = ["mallory", "eve"]
        [[rule]]
        name = "no-user"
        when = "request.local and not exists request.user"
        answer = 484
        [[rule]]
        name = "blocked"
        when = "from.user in blocked or header.User-Agent matches '^scan'"
        answer = 403
        reason = "Not You"
        [[rule]]
        name = "quiet"
        when = "request.user == 'quiet'"
        stop = true
        [[rule]]
        name = "all-others"
        when = "request.user in ['quiet', 'loud']"
        answer = 486
        "#,
    );
    let mut wire = server.connect(Udp);
    let mut ask = |uri: &str, from: &str, agent: &str| {
        let mut request = options(uri, &wire).with(format!("User-Agent: {agent}"));
        request.from = format!("<sip:{from}@example.net>;tag=1");
        let answer = exchange(&mut wire, &request);
        (status(&answer), reason(&answer))
    };
    let of = |status: u16, reason: &str| (Some(status), reason.to_owned());
    assert_eq!(ask("sip:loud@example.org", "eve", "phone"), of(403, "Not You"));
    assert_eq!(ask("sip:loud@example.org", "alice", "scanner"), of(403, "Not You"));
    assert_eq!(ask("sip:loud@example.org", "alice", "phone"), of(486, "Busy Here"));
    // Requests that no rule answers, or that an earlier rule stopped at, are handled as without rules.
    assert_eq!(ask("sip:quiet@example.org", "alice", "phone").0, Some(480));
    assert_eq!(ask("sip:absent@example.org", "alice", "phone").0, Some(480));
    let log = server.log_with("reason=\"all-others\"");
    assert!(log.contains("request refused status=403 reason=\"blocked\""), "{log}");
}

#[test]
fn rules_lead_to_places_with_fail_over() {
    let at = [(); 3].map(|()| free_address());
    let server = start(&format!(
        r#"
        [[rule]]
        name = "numbers"
        when = "number matches '^[0-9]+$'"
        to = ["sip:{}", "sip:{}", "sip:desk@{}"]
        try_next = [503, 486]
        add_headers = ["P-Hint: outbound"]
        remove_headers = ["User-Agent", "Subject"]
        "#,
        at[0], at[1], at[2]
    ));
    let mut gateways = at.map(|at| server.connect_from(Udp, at));
    let mut wire = server.connect(Udp);
    let call = invite("sip:4930@example.org", &wire).with("User-Agent: phone").with("Subject: lunch");
    wire.send(&call.bytes()).expect("loopback");
    for (n, (gateway, answer)) in gateways.iter_mut().zip([503, 486, 404]).enumerate() {
        let got = gateway.request("INVITE", LIMIT).unwrap_or_else(|| panic!("gateway {n} is tried"));
        let uri = if n < 2 { "sip:4930@example.org".to_owned() } else { format!("sip:desk@{}", at[2]) };
        assert_eq!(request_uri(&got), uri);
        let lines = ["P-Hint", "User-Agent", "Subject"].map(|name| field(&got, name));
        assert_eq!(lines, [Some("outbound".to_owned()), None, None]);
        gateway.send(&respond(&got, answer, "g", &[])).expect("loopback");
    }
    let answer = wire.final_response(LIMIT).expect("an answer");
    assert_eq!(status(&answer), Some(486), "the best of them");
    wire.send(&call.ack(&answer).bytes()).expect("loopback");
    // Another failure status ends the search.
    let call = invite("sip:4930@example.org", &wire);
    wire.send(&call.bytes()).expect("loopback");
    let got = gateways[0].request("INVITE", LIMIT).expect("the first is tried");
    gateways[0].send(&respond(&got, 404, "g", &[])).expect("loopback");
    assert_eq!(wire.final_response(LIMIT).as_deref().and_then(status), Some(404));
}

/// Finds the gateway that receives a request; returns its index, and the request.
pub(crate) fn taker(gateways: &mut [Wire], method: &str) -> (usize, Vec<u8>) {
    for _ in 0..LIMIT.as_millis() / 20 {
        for (n, gateway) in gateways.iter_mut().enumerate() {
            if let Some(got) = gateway.request(method, Duration::from_millis(20)) {
                return (n, got);
            }
        }
    }
    panic!("no gateway gets a {method}");
}

#[test]
fn groups_of_gateways_are_tried_in_order_in_turn_and_by_call() {
    let at = [(); 3].map(|()| free_address());
    let group = |name: &str, pick: &str| {
        format!(
            "[[gateway_group]]\nname = \"{name}\"\nto = [\"sip:{}\", \"sip:{}\", \"sip:{}\"]\npick = \"{pick}\"\n\
             [[rule]]\nname = \"{name}\"\nwhen = \"request.user == '{name}'\"\nto = [\"{name}\"]\ntry_next = [503]\n",
            at[0], at[1], at[2]
        )
    };
    let groups = [group("first", "in_order"), group("next", "in_turn"), group("same", "by_call")];
    let server = start(&groups.concat());
    let mut gateways = at.map(|at| server.connect_from(Udp, at));
    let mut wire = server.connect(Udp);
    // If a gateway has failed, the next gateway follows.
    let call = invite("sip:first@example.org", &wire);
    wire.send(&call.bytes()).expect("loopback");
    for (n, answer) in [(0, 503), (1, 503), (2, 486)] {
        let (at, got) = taker(&mut gateways, "INVITE");
        assert_eq!(at, n);
        gateways[at].send(&respond(&got, answer, "g", &[])).expect("loopback");
    }
    let answer = wire.final_response(LIMIT).expect("an answer");
    assert_eq!(status(&answer), Some(486));
    wire.send(&call.ack(&answer).bytes()).expect("loopback");
    // Calls of different threads take turns; all requests of one call go to one gateway.
    let mut takes = |request: &Request| {
        wire.send(&request.bytes()).expect("loopback");
        let (at, got) = taker(&mut gateways, "OPTIONS");
        gateways[at].send(&respond(&got, 200, "g", &[])).expect("loopback");
        assert_eq!(wire.final_response(LIMIT).as_deref().and_then(status), Some(200));
        at
    };
    let local = server.connect(Udp).local();
    let asked = |user: &str| Request::new("OPTIONS", &format!("sip:{user}@example.org"), "udp", local);
    let turns: Vec<usize> = (0..12).map(|_| takes(&asked("next"))).collect();
    assert_eq!(turns, [0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2]);
    let mut met = [0; 3];
    for _ in 0..12 {
        let first = asked("same");
        let at = takes(&first);
        met[at] += 1;
        let again = Request { call_id: first.call_id.clone(), ..asked("same") };
        assert_eq!(takes(&again), at);
    }
    assert!(met.iter().filter(|count| **count > 0).count() > 1, "{met:?}");
}

#[test]
fn rules_set_what_the_configuration_sets_for_all() {
    let server = start(
        r#"
        dialogs.track = false
        [[rule]]
        name = "tracked"
        when = "request.user == 'bob'"
        track = true
        [[rule]]
        name = "off-the-path"
        when = "request.user == 'carol'"
        record_route = false
        "#,
    );
    let [mut caller, mut callee] = [(); 2].map(|()| server.connect(Udp));
    register(&mut callee, "bob");
    register(&mut callee, "carol");
    let call = invite("sip:bob@example.org", &caller);
    let (mut end, _) = set_up(&mut caller, &mut callee, &call, true);
    let callees: Vec<_> = server.rig().calls().into_iter().map(|call| call.callee).collect();
    assert_eq!(callees, [b"sip:bob@example.org"]);
    arrives(&mut caller, &mut callee, &end.request("BYE"), &[]);
    assert!(server.rig().calls().is_empty());
    let call = invite("sip:carol@example.org", &caller);
    caller.send(&call.bytes()).expect("loopback");
    let got = callee.request("INVITE", LIMIT).expect("it arrives");
    assert_eq!(field(&got, "Record-Route"), None);
    callee.send(&respond(&got, 486, "c", &[])).expect("loopback");
    let answer = caller.final_response(LIMIT).expect("an answer");
    caller.send(&call.ack(&answer).bytes()).expect("loopback");
}

#[test]
fn rules_bound_how_long_a_place_rings_and_is_silent() {
    let at = [(); 3].map(|()| free_address());
    let server = start(&format!(
        r#"
        [[rule]]
        name = "patience"
        ring_timeout = "1s"
        answer_timeout = "200ms"
        [[rule]]
        name = "all"
        to = ["sip:{}", "sip:{}", "sip:{}"]
        "#,
        at[0], at[1], at[2]
    ));
    let [mut silent, mut rings, mut last] = at.map(|at| server.connect_from(Udp, at));
    let mut wire = server.connect(Udp);
    let since = wire.clock();
    let call = invite("sip:bob@example.org", &wire);
    wire.send(&call.bytes()).expect("loopback");
    silent.request("INVITE", LIMIT).expect("the first is tried");
    let got = rings.request("INVITE", LIMIT).expect("it is silent, and the second is tried");
    assert_eq!((wire.clock() - since).as_millis(), 200);
    rings.send(&respond(&got, 180, "r", &[])).expect("loopback");
    let cancel = rings.request("CANCEL", LIMIT).expect("it rings for too long");
    assert_eq!((wire.clock() - since).as_millis(), 1_200);
    rings.send(&respond(&cancel, 200, "r", &[])).expect("loopback");
    rings.send(&respond(&got, 487, "r", &[])).expect("loopback");
    let got = last.request("INVITE", LIMIT).expect("the third is tried");
    last.send(&respond(&got, 486, "l", &[])).expect("loopback");
    assert!(wire.final_response(LIMIT).is_some());
}

/// A reload reads the set file; a wrong file leaves the old set in place.
#[test]
fn sets_are_read_from_files_and_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("prefixes.csv");
    let write = |text: &str| std::fs::write(&file, text).expect("it can be written");
    write("prefix,carrier\n49,west\n4930,closed\n");
    let server = Setup::on(&[Udp])
        .open_registrar()
        .with(&format!(
            r#"
        [[set]]
        name = "carriers"
        kind = "prefixes"
        file = {:?}
        key = "prefix"
        value = "carrier"
        [[rule]]
        name = "closed"
        when = "carriers[number] == 'closed'"
        answer = 503
        [[rule]]
        name = "unknown"
        when = "exists number and number not in carriers"
        answer = 604
        "#,
            file.display().to_string()
        ))
        .start();
    let mut wire = server.connect(Udp);
    let mut ask = |number: &str| {
        let request = options(&format!("sip:{number}@example.org"), &wire);
        status(&exchange(&mut wire, &request))
    };
    assert_eq!([ask("49301"), ask("4940"), ask("33")], [Some(503), Some(480), Some(604)]);
    write("prefix,carrier\n49,west\n49,east\n");
    let refused = strowger_tests::control::run(&server, &["reload"]);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned() + &String::from_utf8_lossy(&refused.stdout);
    assert!(refused.status.code() == Some(1) && text.contains("prefixes.csv:3"), "{text}");
    assert_eq!(ask("49301"), Some(503));
    write("prefix,carrier\n49,west\n33,closed\n");
    done(&server, &["reload"]);
    assert_eq!([ask("49301"), ask("33")], [Some(480), Some(503)]);
}

/// Peers of a trusted network need no password, but other peers do.
#[test]
fn trusted_sources_need_no_password() {
    let server = Setup::on(&[Udp])
        .with("domains = [\"example.org\"]")
        .with("[[source]]\nname = \"carrier\"\nnetworks = [\"127.0.0.8/32\"]\ntrusted = true")
        .with("[[rule]]\nname = \"from-outside\"\nwhen = \"source.group == 'carrier' and not request.local\"\nanswer = 403")
        .site();
    server.add_user("bob@example.org", "bob");
    let from = |last: u8| {
        let at = SocketAddr::new(Ipv4Addr::new(127, 0, 0, last).into(), 0);
        server.connect_from(Udp, at)
    };
    let (mut carrier, mut other) = (from(8), from(9));
    let ask = |wire: &mut Wire, uri: &str| {
        let mut request = options(uri, wire);
        request.from = "<sip:alice@example.org>;tag=1".into();
        status(&exchange(wire, &request))
    };
    assert_eq!(ask(&mut other, "sip:bob@example.org"), Some(407));
    assert_eq!(ask(&mut carrier, "sip:bob@example.org"), Some(480));
    assert_eq!(ask(&mut carrier, "sip:bob@example.net"), Some(403));
}

/// In a rule, `user` is the user who has authenticated.
#[test]
fn rules_know_who_has_shown_a_password() {
    let server = Setup::on(&[Udp])
        .with("domains = [\"example.org\"]")
        .with("[[rule]]\nname = \"others\"\nwhen = \"method == 'OPTIONS' and authenticated and user != 'alice'\"\nanswer = 403")
        .site();
    for user in ["alice", "bob"] {
        server.add_user(&format!("{user}@example.org"), user);
    }
    let mut wire = server.connect(Udp);
    for (user, expected) in [("alice", 480), ("bob", 403)] {
        let mut request = options("sip:bob@example.org", &wire);
        request.from = format!("<sip:{user}@example.org>;tag=1");
        let request = challenged(&mut wire, &request, user, user);
        assert_eq!(status(&exchange(&mut wire, &request)), Some(expected), "{user}");
    }
}
