//! Calls: their transactions, kept state, and log.

use std::time::{Duration, Instant};

use super::{SOON, Stage, ask, code, send};
use strowger_tests::call::register;
use strowger_tests::dialog::{End, contact, invite, set_up};
use strowger_tests::meter::Shows::{Above, At, By, More};
use strowger_tests::server::Setup;
use strowger_tests::text::{Request, respond, status, unique};
use strowger_tests::wire::Transport::{Tcp, Udp};
use strowger_tests::wire::Wire;

pub(super) const SCENES: &[(&str, fn())] = &[
    ("a call", call),
    ("calls in the log", call_log),
    ("tracked calls", tracked_calls),
    ("a call with too many answers", many_answers),
    ("repetitions", repetitions),
    ("a silent callee", silent_callee),
    ("large messages", large_messages),
    ("too many transactions", too_many),
    ("a call of an earlier process", earlier_calls),
    ("a BYE beyond the bound of transactions", reserve),
    ("keep-alive requests", pings),
    ("keep-alive requests without a response", unanswered_pings),
];

/// Settings by which transactions of 64 times `t1` end after 640 ms.
const QUICK: &str = "timers.t1 = \"10ms\"";
/// Settings without retransmissions in this test.
const SLOW: &str = "timers.t1 = \"4s\"";

fn relay(lines: &str) -> Stage {
    Stage::start(Setup::on(&[Udp]).relay().with(lines))
}

/// Opens a phone at an address that no registrar knows.
fn callee(stage: &Stage) -> (Wire, String) {
    let wire = stage.server.connect(Udp);
    let uri = format!("sip:bob@{}", wire.local());
    (wire, uri)
}

fn call() {
    // Streams have no retransmissions, however slow the test is.
    let setup =
        Setup::on(&[Tcp]).open_registrar().in_memory().with("timers.t1 = \"50ms\"\nnat.ping_interval = \"never\"");
    let mut stage = Stage::start(setup);
    let [mut alice, mut bob] = [(); 2].map(|()| stage.server.connect(Tcp));
    register(&mut bob, "bob");
    stage.shows(&[
        ("registrations_total", By(1)),
        ("server_transactions", At(0)),
        ("kept_bytes", At(0)),
        ("charged_bytes", At(0)),
    ]);
    let request = invite("sip:bob@example.org", &alice);
    send(&mut alice, &request);
    let got = bob.request("INVITE", SOON).expect("the INVITE arrives");
    let lines = [contact("bob", &bob)];
    bob.send(&respond(&got, 180, "bob", &lines)).expect("loopback takes it");
    assert_eq!(alice.answer(SOON).as_deref().and_then(status), Some(180));
    stage.shows(&[
        ("requests_total", By(1)),
        ("responses_total{direction=\"received\"}", By(1)),
        ("requests_forwarded_total", By(1)),
        ("server_transactions", At(1)),
        ("client_transactions", At(1)),
        ("requests_unanswered", At(1)),
        ("kept_bytes", Above(300.0)),
        ("charged_bytes", Above(300.0)),
        ("calls_logged", At(1)),
        ("call_setup_seconds_count", By(1)),
        ("retransmissions_total", By(0)),
    ]);
    bob.send(&respond(&got, 200, "bob", &lines)).expect("loopback takes it");
    let answer = alice.final_response(SOON).expect("it is answered");
    send(&mut alice, &request.ack(&answer));
    bob.request("ACK", SOON).expect("the ACK arrives");
    stage.shows(&[
        ("requests_total", By(1)),
        ("responses_total{direction=\"received\"}", By(1)),
        ("requests_forwarded_total", By(0)),
        ("requests_unanswered", At(0)),
        ("charged_bytes", At(0)),
        ("calls_logged", At(1)),
        ("call_setup_seconds_count", By(0)),
    ]);
    let bye = request.within("BYE", &answer);
    send(&mut alice, &bye);
    let got = bob.request("BYE", SOON).expect("the BYE arrives");
    bob.send(&respond(&got, 200, "bob", &[])).expect("loopback takes it");
    assert_eq!(alice.final_response(SOON).as_deref().and_then(status), Some(200));
    stage.shows(&[
        ("requests_total", By(1)),
        ("responses_total{direction=\"received\"}", By(1)),
        ("requests_forwarded_total", By(1)),
        ("calls_logged", At(0)),
        ("stream_messages_in_total", By(2)),
        ("stream_messages_out_total", By(2)),
    ]);
    stage.shows(&[
        ("server_transactions", At(0)),
        ("client_transactions", At(0)),
        ("kept_bytes", At(0)),
        ("transaction_timeouts_total", By(0)),
        ("retransmissions_total", By(0)),
    ]);
    stage.end();
}

fn call_log() {
    let mut stage = relay(SLOW);
    let (mut bob, uri) = callee(&stage);
    let mut alice = stage.server.connect(Udp);
    let request = invite(&uri, &alice);
    let (mut end, _) = set_up(&mut alice, &mut bob, &request, true);
    stage.shows(&[
        ("calls_logged", At(1)),
        ("calls_unlogged_total", By(0)),
        ("calls_forgotten_total", By(0)),
        ("call_setup_seconds_count", By(1)),
    ]);
    send(&mut alice, &end.request("BYE"));
    stage.shows(&[("calls_logged", At(0))]);
    stage.end();
}

/// A call that the caller ends, and one that the server ends.
fn tracked_calls() {
    let mut stage = relay(&format!("{SLOW}\ndialogs.track = true\ndialogs.lifetime = \"3s\""));
    for is_ended in [true, false] {
        let (mut bob, uri) = callee(&stage);
        let mut alice = stage.server.connect(Udp);
        let request = invite(&uri, &alice);
        send(&mut alice, &request);
        let got = bob.request("INVITE", SOON).expect("the INVITE arrives");
        let lines = [contact("bob", &bob)];
        bob.send(&respond(&got, 180, "bob", &lines)).expect("loopback takes it");
        assert_eq!(alice.answer(SOON).as_deref().and_then(status), Some(180));
        stage.shows(&[
            ("calls_tracked", At(1)),
            ("dialogs_early", At(1)),
            ("dialogs_confirmed", At(0)),
            ("call_setup_seconds_count", By(1)),
        ]);
        bob.send(&respond(&got, 200, "bob", &lines)).expect("loopback takes it");
        let answer = alice.final_response(SOON).expect("it is answered");
        send(&mut alice, &request.ack(&answer));
        bob.request("ACK", SOON).expect("the ACK arrives");
        stage.shows(&[("calls_tracked", At(1)), ("dialogs_early", At(0)), ("dialogs_confirmed", At(1))]);
        let ends = |wire: &mut Wire| {
            let bye = wire.request("BYE", SOON).expect("the BYE arrives");
            wire.send(&respond(&bye, 200, "", &[])).expect("loopback takes it");
        };
        if is_ended {
            send(&mut alice, &request.within("BYE", &answer));
        } else {
            ends(&mut alice);
        }
        ends(&mut bob);
        let byes = if is_ended { 0 } else { 2 };
        stage.shows(&[("calls_tracked", At(0)), ("dialogs_confirmed", At(0)), ("byes_sent_total", By(byes))]);
    }
    stage.end();
}

/// A callee that answers with several tags in turn.
fn many_answers() {
    let mut stage = relay(&format!("{SLOW}\ndialogs.track = true\ndialogs.lifetime = \"3s\""));
    let (mut bob, uri) = callee(&stage);
    let mut alice = stage.server.connect(Udp);
    let request = invite(&uri, &alice);
    send(&mut alice, &request);
    let got = bob.request("INVITE", SOON).expect("the INVITE arrives");
    for answer in 0..66 {
        let tag = format!("bob{answer}");
        bob.send(&respond(&got, 200, &tag, &[contact("bob", &bob)])).expect("loopback takes it");
        if answer < 64 {
            assert_eq!(alice.final_response(SOON).as_deref().and_then(status), Some(200));
        }
    }
    stage.shows(&[
        ("answers_dropped_total", By(2)),
        ("dialogs_confirmed", At(64)),
        ("call_setup_seconds_count", By(1)),
    ]);
    for wire in [&mut alice, &mut bob] {
        for _ in 0..64 {
            let bye = wire.request("BYE", SOON).expect("the server ends each dialog");
            wire.send(&respond(&bye, 200, "", &[])).expect("loopback takes it");
        }
    }
    stage.shows(&[("calls_tracked", At(0)), ("dialogs_confirmed", At(0)), ("byes_sent_total", More)]);
    stage.end();
}

/// A retransmitted request gets the earlier answer again.
fn repetitions() {
    let mut stage = relay(SLOW);
    let (mut bob, uri) = callee(&stage);
    let mut alice = stage.server.connect(Udp);
    let request = Request::new("MESSAGE", &uri, "udp", alice.local());
    send(&mut alice, &request);
    let got = bob.request("MESSAGE", SOON).expect("the MESSAGE arrives");
    bob.send(&respond(&got, 200, "bob", &[])).expect("loopback takes it");
    assert_eq!(alice.final_response(SOON).as_deref().and_then(status), Some(200));
    for _ in 0..2 {
        send(&mut alice, &request);
        assert_eq!(alice.final_response(SOON).as_deref().and_then(status), Some(200));
    }
    stage.shows(&[("retransmissions_total", By(2)), ("requests_total", By(3)), ("requests_forwarded_total", By(1))]);
    stage.end();
}

fn silent_callee() {
    let mut stage = Stage::start(Setup::on(&[Udp, Tcp]).relay().with(QUICK).with("dns.set_aside = \"0s\""));
    let (mut bob, uri) = callee(&stage);
    // The failure is sent to her once.
    let mut alice = stage.server.connect(Tcp);
    let request = Request::new("INVITE", &uri, "tcp", alice.local());
    let answer = ask(&mut alice, &request);
    assert_eq!(status(&answer), Some(408));
    send(&mut alice, &request.ack(&answer));
    let mut copies = 0;
    while bob.receive(Duration::from_millis(1)).is_some() {
        copies += 1;
    }
    assert!(copies > 1, "{copies}");
    stage.shows(&[
        ("transaction_timeouts_total", By(1)),
        ("retransmissions_total", By(copies - 1)),
        ("client_transactions", At(0)),
        ("requests_unanswered", At(0)),
    ]);
    stage.end();
}

fn large_messages() {
    let mut stage = relay(SLOW);
    let (mut bob, uri) = callee(&stage);
    let mut alice = stage.server.connect(Udp);
    for (size, abridged) in [(100, 0), (60_000, 1)] {
        let request =
            Request { body: vec![b'x'; size], ..Request::new("MESSAGE", &format!("{uri};x=y"), "udp", alice.local()) };
        send(&mut alice, &request);
        let got = bob.request("MESSAGE", SOON).expect("the MESSAGE arrives");
        bob.send(&respond(&got, 200, "bob", &[])).expect("loopback takes it");
        assert_eq!(alice.final_response(SOON).as_deref().and_then(status), Some(200));
        stage.shows(&[("messages_kept_abridged_total", By(abridged))]);
    }
    stage.end();
}

fn too_many() {
    let mut stage = relay(&format!("{SLOW}\nlimits.transactions = 16"));
    let (_bob, uri) = callee(&stage);
    let mut alice = stage.server.connect(Udp);
    // Each has two transactions, visible at once: not only when their first timer is due.
    let seen = (1..=8).map(|calls| {
        let request = Request::new("INVITE", &uri, "udp", alice.local());
        send(&mut alice, &request);
        let sent = Instant::now();
        stage.shows(&[
            ("server_transactions", At(calls)),
            ("client_transactions", At(calls)),
            ("requests_unanswered", At(calls)),
            ("requests_overloaded_total", By(0)),
        ]);
        sent.elapsed()
    });
    let fastest = seen.min();
    assert!(fastest < Some(Duration::from_millis(500)), "{fastest:?}");
    let late = Request::new("OPTIONS", &uri, "udp", alice.local());
    assert_eq!(code(&mut alice, &late), 503);
    stage.shows(&[("requests_overloaded_total", By(1)), ("requests_unanswered", At(8))]);
    stage.end();
}

/// A re-INVITE of a call that the earlier process tracked without storing it.
fn earlier_calls() {
    let mut stage = relay(&format!("{SLOW}\ndialogs.track = true\nauth.secret = \"{}\"", "0123456789abcdef".repeat(4)));
    let (mut bob, uri) = callee(&stage);
    let mut alice = stage.server.connect(Udp);
    let call = invite(&uri, &alice);
    let (mut caller, _) = set_up(&mut alice, &mut bob, &call, true);
    let again = |alice: &mut Wire, bob: &mut Wire, caller: &mut End| {
        let request = caller.request("INVITE").with(contact("caller", alice));
        send(alice, &request);
        let got = bob.request("INVITE", SOON).expect("the INVITE arrives");
        bob.send(&respond(&got, 488, "bob", &[])).expect("loopback takes it");
        let answer = alice.final_response(SOON).expect("it is refused");
        assert_eq!(status(&answer), Some(488));
        send(alice, &request.ack(&answer));
    };
    again(&mut alice, &mut bob, &mut caller);
    stage.shows(&[
        ("invites_in_earlier_calls_total", By(0)),
        ("calls_tracked", At(1)),
        ("call_setup_seconds_count", By(1)),
    ]);
    // The signed route token carries a second later than the start of the process.
    std::thread::sleep(Duration::from_millis(1_100));
    stage.server.stop();
    stage.restart();
    again(&mut alice, &mut bob, &mut caller);
    stage.shows(&[("invites_in_earlier_calls_total", By(1)), ("calls_tracked", At(0))]);
    stage.end();
}

fn reserve() {
    let mut stage = relay(&format!("{SLOW}\nlimits.transactions = 16"));
    let (mut bob, uri) = callee(&stage);
    let mut alice = stage.server.connect(Udp);
    let call = invite(&uri, &alice);
    let (mut caller, _) = set_up(&mut alice, &mut bob, &call, true);
    for _ in 0..7 {
        let mut stranger = stage.server.connect(Udp);
        let request = Request::new("INVITE", &uri, "udp", stranger.local());
        send(&mut stranger, &request);
        bob.request("INVITE", SOON).expect("the INVITE arrives");
    }
    let late = Request::new("OPTIONS", &uri, "udp", alice.local());
    assert_eq!(code(&mut alice, &late), 503);
    stage.shows(&[
        ("requests_overloaded_total", By(1)),
        ("requests_reserved_total", By(0)),
        ("call_setup_seconds_count", By(1)),
    ]);
    send(&mut alice, &caller.request("BYE"));
    let got = bob.request("BYE", SOON).expect("the BYE arrives");
    bob.send(&respond(&got, 200, "bob", &[])).expect("loopback takes it");
    assert_eq!(alice.final_response(SOON).as_deref().and_then(status), Some(200));
    stage.shows(&[("requests_overloaded_total", By(0)), ("requests_reserved_total", By(1))]);
    stage.end();
}

fn pings() {
    let setup = Setup::on(&[Tcp]).open_registrar().in_memory().with("nat.ping_interval = \"20s\"");
    let mut stage = Stage::start(setup);
    let mut phone = stage.server.connect(Tcp);
    let contact = format!("sip:bob@{};transport=tcp", phone.local());
    let request = Request::register("bob", "example.org", &contact, "tcp", phone.local());
    assert_eq!(code(&mut phone, &request), 200);
    stage.shows(&[("pings_sent_total", By(0))]);
    let ping = phone.request("OPTIONS", SOON).expect("a ping");
    stage.shows(&[
        ("pings_sent_total", By(1)),
        ("pings_pending", At(1)),
        ("client_transactions", At(1)),
        ("stream_messages_out_total", More),
    ]);
    phone.send(&respond(&ping, 200, &unique("t"), &[])).expect("the server reads");
    stage.shows(&[("pings_pending", At(0)), ("responses_total{direction=\"received\"}", By(1))]);
    let mut end = Request::register("bob", "example.org", &contact, "tcp", phone.local());
    end.headers = vec!["Contact: *".into(), "Expires: 0".into()];
    assert_eq!(code(&mut phone, &end), 200);
    stage.shows(&[("bindings", At(0))]);
    stage.end();
}

fn unanswered_pings() {
    // Two may be pending. They end after 3.2 s, and the three leave within two seconds.
    let lines = "timers.t1 = \"50ms\"\nnat.ping_interval = \"1h\"\nlimits.transactions = 16";
    let mut stage = Stage::start(Setup::on(&[Tcp]).open_registrar().in_memory().with(lines));
    let mut phones = ["alice", "bob", "carol"].map(|user| {
        let mut phone = stage.server.connect(Tcp);
        register(&mut phone, user);
        phone
    });
    for phone in &mut phones {
        phone.request("OPTIONS", SOON).expect("a ping");
    }
    stage.shows(&[
        ("pings_sent_total", By(3)),
        ("pings_unrepeated_total", By(1)),
        ("pings_unanswered_total", By(2)),
        ("pings_pending", At(0)),
    ]);
    drop(phones);
    stage.shows(&[("connections{transport=\"tcp\"}", At(0))]);
    stage.end();
}
