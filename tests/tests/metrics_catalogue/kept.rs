//! Calls that are kept over a restart.

use super::{SOON, Stage, send};
use strowger_tests::dialog::{contact, invite};
use strowger_tests::limits::limit_files;
use strowger_tests::meter::Shows::{Above, At, By, More};
use strowger_tests::server::Setup;
use strowger_tests::text::{Request, respond, status};
use strowger_tests::wire::Transport::Udp;
use strowger_tests::wire::Wire;

pub(super) const SCENES: &[(&str, fn())] = &[("kept calls", kept), ("kept calls on a full disk", full_disk)];

/// A relay that keeps calls; nothing is sent again in this test.
fn relay(lines: &str) -> Setup {
    let kept =
        "timers.t1 = \"4s\"\ndialogs.track = true\ndialogs.folder = \"calls\"\nauth.secret = \"a secret of letters\"";
    Setup::on(&[Udp]).relay().with(kept).with(lines)
}

/// A call that is answered by a phone with this user part; its INVITE and its answer.
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
    // So long that a change is seen before it is written.
    let mut stage = Stage::start(relay("dialogs.group_interval = \"3s\""));
    let (mut alice, mut bob, call, answer) = answered(&stage, "bob");
    stage.shows(&[
        ("kept_calls_pending", At(1)),
        ("kept_calls", At(0)),
        ("calls_tracked", At(1)),
        ("call_setup_seconds_count", By(1)),
    ]);
    stage.shows(&[
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
    // The signal of a file at its limit would end the process.
    let ignores = ["sh", "-c", "trap '' XFSZ; exec \"$0\" \"$@\""];
    let quiet = "dialogs.group_interval = \"1ms\"\nlog.level = \"warn\"";
    let mut stage = Stage::start(relay(quiet).under(&ignores));
    limit_files(&mut stage.server, 3 << 10);
    // Of each some 1,700 bytes or more are kept: only the first has room, however they come into groups.
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
