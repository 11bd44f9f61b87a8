//! Calls that survive a restart.

use super::{SOON, Stage, send};
use strowger_tests::dialog::{contact, invite};
use strowger_tests::limits::limit_files;
use strowger_tests::meter::Shows::{Above, At, By, More};
use strowger_tests::server::Setup;
use strowger_tests::text::{Request, respond, status};
use strowger_tests::wire::Transport::Udp;
use strowger_tests::wire::Wire;

pub(super) const SCENES: &[(&str, fn())] = &[("kept calls", kept), ("kept calls on a full disk", full_disk)];

/// A relay that stores its calls; no message is retransmitted in this test.
fn relay(lines: &str) -> Setup {
    let kept =
        "timers.t1 = \"4s\"\ndialogs.track = true\ndialogs.folder = \"calls\"\nauth.secret = \"a secret of letters\"";
    Setup::on(&[Udp]).relay().with(kept).with(lines)
}

/// Sets up a call that the phone of this user answers; returns both phones, the INVITE and its answer.
fn answered(stage: &Stage, user: &str) -> (Wire, Wire, Request, Vec<u8>) {
    let [mut alice, mut bob] = [(); 2].map(|()| stage.server.connect(Udp));
    let call = invite(&format!("sip:bob@{}", bob.local()), &alice);
    send(&mut alice, &call);
    let got = bob.request("INVITE", SOON).expect("the INVITE arrives");
    bob.send(&respond(&got, 200, "bob", &[contact(user, &bob)])).expect("loopback takes it");
    let answer = alice.final_response(SOON).expect("it is answered");
    assert_eq!(status(&answer), Some(200));
    send(&mut alice, &call.ack(&answer));
    bob.request("ACK", SOON).expect("the ACK arrives");
    (alice, bob, call, answer)
}

fn kept() {
    let mut stage = Stage::start(relay(""));
    let (mut alice, mut bob, call, answer) = answered(&stage, "bob");
    stage.shows(&[
        ("calls_tracked", At(1)),
        ("call_setup_seconds_count", By(1)),
        ("kept_calls_pending", At(0)),
        ("kept_calls", At(1)),
        ("kept_calls_bytes", Above(200.0)),
        ("kept_calls_written_total", By(1)),
    ]);
    send(&mut alice, &call.within("BYE", &answer));
    let bye = bob.request("BYE", SOON).expect("the BYE arrives");
    bob.send(&respond(&bye, 200, "", &[])).expect("loopback takes it");
    stage.shows(&[("kept_calls", At(0)), ("kept_calls_written_total", By(1)), ("calls_tracked", At(0))]);
    stage.end();
}

fn full_disk() {
    // The default action of SIGXFSZ would end the process.
    let ignores = ["sh", "-c", "trap '' XFSZ; exec \"$0\" \"$@\""];
    let mut stage = Stage::start(relay("log.level = \"warn\"").under(&ignores));
    limit_files(&mut stage.server, 3 << 10);
    // Each call takes 1,700 bytes or more on disk: only the first has room, however the calls are grouped.
    let long = "x".repeat(1_500);
    let mut calls = vec![answered(&stage, &long)];
    stage.shows(&[
        ("kept_calls", At(1)),
        ("kept_calls_bytes", Above(1_600.0)),
        ("kept_calls_written_total", By(1)),
        ("calls_tracked", At(1)),
        ("call_setup_seconds_count", By(1)),
    ]);
    calls.extend((0..5).map(|_| answered(&stage, &long)));
    stage.shows(&[
        ("kept_calls_down", At(1)),
        ("kept_calls_failures_total", More),
        ("kept_calls_pending", Above(0.0)),
        ("call_setup_seconds_count", By(5)),
    ]);
    limit_files(&mut stage.server, libc::RLIM_INFINITY);
    stage.shows(&[
        ("kept_calls_down", At(0)),
        ("kept_calls_pending", At(0)),
        ("kept_calls", At(6)),
        ("kept_calls_written_total", More),
    ]);
    drop(calls);
    stage.end();
}
