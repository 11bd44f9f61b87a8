//! Gateways of rules, limits of calls, and messages by method and status code.

use std::time::Duration;

use super::{SOON, Stage, ask, code, send};
use strowger_tests::dialog::{contact, invite, set_up};
use strowger_tests::meter::Shows::{At, By, More};
use strowger_tests::port;
use strowger_tests::server::Setup;
use strowger_tests::text::{Request, respond, status};
use strowger_tests::wire::Transport::Udp;
use strowger_tests::wire::Wire;

pub(super) const SCENES: &[(&str, fn())] =
    &[("calls at a gateway", calls), ("a gateway that is gone", gone), ("methods and codes", methods_and_codes)];

/// Starts a server whose rule routes all calls to a gateway; returns the name of the gateway too.
fn start(lines: &str) -> (Stage, Wire, String) {
    let address = port::free_address();
    let rule = format!(
        "call_limit = [{{ name = \"lines\", most = 2 }}]\n\
         rule = [{{ name = \"out\", to = [\"sip:{address}\"], call_limits = [\"lines\"] }}]"
    );
    let stage = Stage::start(Setup::on(&[Udp]).relay().with(lines).with(&rule));
    let gateway = Wire::connect_from(Udp, address, stage.server.address(Udp), None).expect("the port is free");
    (stage, gateway, address.to_string())
}

/// One call is answered and ends, another is refused.
fn calls() {
    let (mut stage, mut gateway, name) = start("timers.t1 = \"4s\"");
    let of = |metric: &str| format!("{metric}{{gateway=\"{name}\"}}");
    let with = |code: &str| format!("gateway_calls_total{{gateway=\"{name}\",code=\"{code}\"}}");
    stage.shows(&[
        (&with("none"), By(0)),
        ("call_limit_bound{limit=\"lines\"}", At(2)),
        ("call_limit_calls{limit=\"lines\"}", At(0)),
        (&of("gateway_addresses_aside"), At(0)),
        ("build_info", At(1)),
    ]);
    let mut alice = stage.server.connect(Udp);
    let call = invite("sip:+49301@example.org", &alice);
    let (mut end, _) = set_up(&mut alice, &mut gateway, &call, true);
    stage.shows(&[
        (&with("200"), By(1)),
        ("calls_total{code=\"200\"}", By(1)),
        ("call_limit_calls{limit=\"lines\"}", At(1)),
        ("call_limit_highest{limit=\"lines\"}", At(1)),
        ("calls_ended_total", By(0)),
        ("call_setup_seconds_count", By(1)),
    ]);
    // The call lasts a while, as durations are counted in milliseconds.
    std::thread::sleep(Duration::from_millis(50));
    send(&mut alice, &end.request("BYE"));
    let bye = gateway.request("BYE", SOON).expect("the BYE arrives");
    gateway.send(&respond(&bye, 200, "", &[])).expect("loopback takes it");
    stage.shows(&[
        ("calls_ended_total", By(1)),
        ("call_seconds_total", More),
        ("call_limit_calls{limit=\"lines\"}", At(0)),
        ("call_limit_highest{limit=\"lines\"}", At(0)),
    ]);
    // A challenge (407) is no outcome of a call.
    for (code, counted) in [(486, 1), (407, 0), (499, 1)] {
        let mut alice = stage.server.connect(Udp);
        let call = invite("sip:+49301@example.org", &alice);
        send(&mut alice, &call);
        let got = gateway.request("INVITE", SOON).expect("the INVITE arrives");
        gateway.send(&respond(&got, code, "gw", &[])).expect("loopback takes it");
        let answer = alice.final_response(SOON).expect("it is answered");
        assert_eq!(status(&answer), Some(code));
        send(&mut alice, &call.ack(&answer));
        gateway.request("ACK", SOON).expect("the ACK arrives");
        let code = if code == 499 { "other".to_owned() } else { code.to_string() };
        stage.shows(&[(&with(&code), By(counted)), (&format!("calls_total{{code=\"{code}\"}}"), By(counted))]);
    }
    stage.end();
}

/// The gateway sends no response, and is set aside.
fn gone() {
    let (mut stage, gateway, name) = start("timers.t1 = \"10ms\"\ndns.set_aside = \"1s\"\ncontrol.socket = \"orders\"");
    let mut alice = stage.server.connect(Udp);
    let request = invite("sip:+49301@example.org", &alice);
    let answer = ask(&mut alice, &request);
    assert_eq!(status(&answer), Some(408));
    send(&mut alice, &request.ack(&answer));
    stage.shows(&[
        (&format!("gateway_calls_total{{gateway=\"{name}\",code=\"none\"}}"), By(1)),
        (&format!("gateway_addresses_aside{{gateway=\"{name}\"}}"), At(1)),
        ("targets_aside", At(1)),
        ("calls_total{code=\"408\"}", By(1)),
        ("target_failures_total", By(1)),
        ("transaction_timeouts_total", By(1)),
        ("retransmissions_total", More),
    ]);
    let shown = strowger_tests::control::done(&stage.server, &["status"]);
    assert!(shown.contains(&format!("udp:{name} set aside: no response")), "{shown}");
    drop(gateway);
    assert!(stage.meter.sees("targets_aside", At(0), Duration::from_secs(30)));
    stage.end();
}

fn methods_and_codes() {
    let mut stage = Stage::start(Setup::on(&[Udp]).open_registrar());
    let mut phone = stage.server.connect(Udp);
    let uri = format!("sip:{}", stage.server.address(Udp));
    for (method, answer, shown) in [("OPTIONS", 200, "OPTIONS"), ("UNHEARDOF", 501, "other")] {
        let request = Request::new(method, &uri, "udp", phone.local());
        assert_eq!(code(&mut phone, &request), answer);
        stage.shows(&[
            (&format!("requests_total{{method=\"{shown}\"}}"), By(1)),
            (&format!("responses_total{{direction=\"sent\",code=\"{answer}\"}}"), By(1)),
            ("responses_total{direction=\"received\"}", By(0)),
            ("requests_refused_total", By(u64::from(answer == 501))),
        ]);
    }
    // A call to an unregistered user counts as an outcome at the server itself.
    let call = invite("sip:nobody@example.org", &phone).with(contact("second", &phone));
    assert_eq!(code(&mut phone, &call), 480);
    stage.shows(&[("calls_total{code=\"480\"}", By(1)), ("requests_not_found_total", By(1))]);
    stage.end();
}
