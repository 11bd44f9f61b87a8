//! Failed targets, which a user tries later than others: only by responses of their own, and only for watched candidates.

use super::rig::*;
use strowger_core::Target;
use strowger_core::proxy::{Plan, TargetFailure};

const ONE: &str = "10.3.3.1:5060";
const TWO: &str = "10.3.3.2:5060";

fn two(watched: bool) -> Vec<Try> {
    vec![Try { at: vec![at(ONE), at(TWO)], q: 1000, watched, ..Try::default() }]
}

/// Returns a rig, and the request to the first of two targets.
fn sent(method: &str, plan: Plan<'static>, watched: bool) -> (Rig, Sent) {
    let mut rig = Rig::new();
    rig.plan = plan;
    let first = only(rig.request(&alice(method, "sip:bob@example.net", ""), udp(ALICE), &two(watched)));
    (rig, first)
}

fn failed(rig: &mut Rig) -> Vec<(Target, TargetFailure)> {
    rig.proxy.failed_targets().drain(..).map(|failed| (failed.target, failed.failure)).collect()
}

#[test]
fn a_target_that_says_nothing_fails_when_its_transaction_ends() {
    for method in ["INVITE", "MESSAGE"] {
        let (mut rig, _) = sent(method, Plan::default(), true);
        rig.pass(31_000);
        assert_eq!(failed(&mut rig), [], "{method}");
        rig.pass(2_000);
        assert_eq!(failed(&mut rig), [(at(ONE), TargetFailure::Silent)], "{method}");
        rig.end();
        assert_eq!(failed(&mut rig), [(at(TWO), TargetFailure::Silent)], "{method}");
    }
}

#[test]
fn one_that_has_said_100_has_not_failed() {
    let (mut rig, first) = sent("MESSAGE", Plan::default(), true);
    rig.answer(&first, 100, "");
    // Timer F still ends its transaction.
    rig.pass(33_000);
    assert_eq!(failed(&mut rig), []);
}

#[test]
fn a_target_fails_that_is_silent_for_longer_than_a_plan_lets_it_be() {
    for plan in [
        Plan { answer_timeout: Some(300), ..Plan::default() },
        Plan { ring_timeout: 300, asks: true, ..Plan::default() },
    ] {
        let (mut rig, _) = sent("INVITE", plan, true);
        rig.pass(290);
        assert_eq!(failed(&mut rig), []);
        rig.pass(20);
        assert_eq!(failed(&mut rig), [(at(ONE), TargetFailure::Silent)]);
    }
    // A ringing target does not fail.
    let (mut rig, first) = sent("INVITE", Plan { answer_timeout: Some(300), ..Plan::default() }, true);
    rig.answer(&first, 180, "");
    rig.pass(1_000);
    assert_eq!(failed(&mut rig), []);
}

#[test]
fn a_target_fails_to_which_nothing_can_be_sent() {
    let (mut rig, first) = sent("INVITE", Plan::default(), true);
    rig.fail(&first);
    assert_eq!(failed(&mut rig), [(at(ONE), TargetFailure::Unsent)]);
    // In another process the request is not watched: its table of next hops does not know it.
    rig.moved(9);
    rig.pass(33_000);
    assert_eq!(failed(&mut rig), []);
}

/// RFC 3261 section 21.5.4.
#[test]
fn a_target_fails_that_says_how_long_it_is_unavailable() {
    let (mut rig, first) = sent("INVITE", Plan::default(), true);
    let second = rig.answer(&first, 503, "Retry-After: 120 (busy)\n").pop().expect("the second is tried");
    assert_eq!(failed(&mut rig), [(at(ONE), TargetFailure::Unavailable { seconds: 120 })]);
    // A 503 without Retry-After is the failure of this request alone, as a 500 is.
    rig.answer(&second, 503, "");
    assert_eq!(failed(&mut rig), []);
    for (status, lines) in [(486, "Retry-After: 5\n"), (503, "Retry-After: soon\n")] {
        let (mut rig, first) = sent("INVITE", Plan::default(), true);
        rig.answer(&first, status, lines);
        assert_eq!(failed(&mut rig), [], "{status} {lines}");
    }
}

/// Checks that elements after the target, which know the branch, cannot take another target out of use.
#[test]
fn a_response_of_another_host_fails_no_target() {
    let (mut rig, first) = sent("INVITE", Plan::default(), true);
    let words = words(&rig.response(&respond(&first, 503, "Retry-After: 120\n"), udp("10.66.66.66:5060")));
    assert_eq!(words, ["ACK", "INVITE"], "for this request it is the answer");
    assert_eq!(failed(&mut rig), []);
}

#[test]
fn failures_of_unwatched_candidates_are_not_reported() {
    let (mut rig, first) = sent("INVITE", Plan::default(), false);
    rig.fail(&first);
    rig.end();
    assert_eq!(failed(&mut rig), []);
}
