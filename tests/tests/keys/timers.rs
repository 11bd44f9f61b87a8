//! Timers of RFC 3261, observed from outside.

use std::time::{Duration, Instant};

use strowger_tests::call::{exchange, register};
use strowger_tests::text::{self, respond};
use strowger_tests::wire::Transport::Udp;

use super::{SOON, open, request, rings_bob, send};

/// Retransmissions of an unanswered request: after `t1`, doubled up to `t2`; an INVITE ends after 64 times `t1`. By
/// default the eighth copy comes after 31 seconds, with the default `t2` after six.
#[test]
fn copies_and_ends_follow_the_estimate_of_the_round_trip() {
    let server = open("timers.t1 = \"20ms\"\ntimers.t2 = \"40ms\"");
    let (mut caller, mut bob) = (server.connect(Udp), server.connect(Udp));
    register(&mut bob, "bob");
    let message = request(&caller, "MESSAGE", "sip:bob@example.org");
    let begun = Instant::now();
    send(&mut caller, &message);
    for n in 0..12 {
        assert!(bob.request("MESSAGE", SOON).is_some(), "copy {n}");
    }
    // The server counts whole milliseconds.
    assert!(begun.elapsed() >= Duration::from_millis(20 + 10 * 40 - 2), "{:?}", begun.elapsed());
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    let invite = request(&caller, "INVITE", "sip:bob@example.org");
    let begun = Instant::now();
    send(&mut caller, &invite);
    let late = caller.final_response(2 * SOON).expect("an answer");
    assert_eq!(text::status(&late), Some(408));
    assert!(begun.elapsed() >= Duration::from_millis(64 * 20), "{:?}", begun.elapsed());
}

#[test]
fn what_rings_too_long_is_cancelled() {
    let server = open("timers.timer_c = \"1s\"");
    let (mut caller, mut bob, got) = rings_bob(&server);
    assert!(bob.request("CANCEL", SOON).is_some());
    // The caller has not cancelled.
    bob.send(&respond(&got, 487, "bob", &[])).expect("loopback takes it");
    assert_eq!(caller.final_response(SOON).as_deref().and_then(text::status), Some(408));
}

/// An answered transaction stays for `t4`, in case the answer is retransmitted.
#[test]
fn what_was_answered_is_remembered_while_a_copy_may_be_on_its_way() {
    for (t4, remembered) in [("10ms", false), ("1m", true)] {
        let mut server = open(&format!("timers.t4 = \"{t4}\"\ntimers.t1 = \"10ms\"\nlog.statistics = \"1s\""));
        let (mut caller, mut bob) = (server.connect(Udp), server.connect(Udp));
        register(&mut bob, "bob");
        let message = request(&caller, "MESSAGE", "sip:bob@example.org");
        send(&mut caller, &message);
        let got = bob.request("MESSAGE", SOON).expect("it arrives");
        bob.send(&respond(&got, 200, "bob", &[])).expect("loopback takes it");
        assert!(caller.final_response(SOON).is_some());
        // Longer than both transactions with the short setting.
        std::thread::sleep(Duration::from_millis(900));
        let own = format!("sip:{}", server.address(Udp));
        let options = request(&caller, "OPTIONS", &own);
        exchange(&mut caller, &options);
        server.stop();
        let log = server.log();
        let end = log.lines().find(|line| line.contains("statistics at the end") && line.contains("of=\"server\""));
        let end = end.unwrap_or_else(|| panic!("{log}"));
        assert_eq!(end.contains("client_transactions=1"), remembered, "t4 = {t4}: {end}");
    }
}
