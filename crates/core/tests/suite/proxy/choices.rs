//! Candidates with a question to the user.

use super::rig::*;
use strowger_core::proxy::{Candidate, FailurePlan, Plan, Remedy, TryNext};

const ONE: &str = "10.2.2.1:5061";
const TWO: &str = "10.2.2.2:5062";
const THREE: &str = "10.2.2.3:5063";
const MAILBOX: &str = "10.3.3.3:5060";

fn place(address: &str, q: u16, asks: &'static str) -> Try {
    Try { asks, ..contact(address, q) }
}

/// Sends a request to three of them in turn. Returns the request to the first.
fn begin(rig: &mut Rig) -> Sent {
    let places = [place(ONE, 3, "one"), place(TWO, 2, "two"), place(THREE, 1, "three")];
    only(rig.request(&alice("INVITE", "sip:bob@example.org", ""), udp(ALICE), &places))
}

fn to_alice(sent: &[Sent]) -> Vec<u16> {
    sent.iter().filter(|s| s.to() == ALICE).map(|s| s.status()).collect()
}

fn invites(sent: &[Sent]) -> Vec<Sent> {
    sent.iter().filter(|s| s.method() == "INVITE").cloned().collect()
}

/// Returns the questions to the user.
fn questions(rig: &Rig) -> Vec<&str> {
    let heard = rig.heard.values().flatten().map(String::as_str);
    heard.filter_map(|heard| heard.strip_prefix("choosing ")).collect()
}

#[test]
fn the_user_is_asked_about_each_but_the_first() {
    let mut rig = Rig::new();
    let one = begin(&mut rig);
    assert_eq!((one.to().as_str(), questions(&rig).len()), (ONE, 0));
    assert_eq!(words(&rig.answer(&one, 503, "")), ["ACK"], "nothing goes on before it says so");
    let two = only(rig.decide(&Decision::CarryOut));
    assert_eq!(two.to(), TWO);
    rig.answer(&two, 503, "");
    let three = only(rig.decide(&Decision::CarryOut));
    assert_eq!((three.to().as_str(), &questions(&rig)[..]), (THREE, &["two after one", "three after two"][..]));
    assert_eq!(to_alice(&rig.answer(&three, 200, "Contact: <sip:bob@10.2.2.3>\n")), [200]);
    rig.end();
}

#[test]
fn one_that_is_passed_over_leaves_its_turn_to_the_next() {
    let mut rig = Rig::new();
    let one = begin(&mut rig);
    rig.answer(&one, 486, "");
    assert!(rig.decide(&Decision::Pass).is_empty());
    let three = only(rig.decide(&Decision::CarryOut));
    assert_eq!((three.to().as_str(), &questions(&rig)[..]), (THREE, &["two after one", "three after one"][..]));
    assert_eq!(to_alice(&rig.answer(&three, 603, "")), [603]);
    rig.end();
    // None of the others is tried: the response of the first goes upstream.
    let mut rig = Rig::new();
    let one = begin(&mut rig);
    rig.answer(&one, 486, "");
    rig.decide(&Decision::Pass);
    assert_eq!(to_alice(&rig.decide(&Decision::Pass)), [486]);
    rig.end();
}

#[test]
fn candidates_of_a_failure_plan_follow_its_question() {
    let targets: &'static _ = Box::leak(Box::new([at(MAILBOX)]));
    let to = Candidate { targets, q: 1000, asks: b"box", ..Candidate::default() };
    let failure = |asks: &'static [u8], to| FailurePlan {
        statuses: &[(486, 486)],
        remedy: Remedy::Try(Box::leak(Box::new([to]))),
        ring_timeout: None,
        answer_timeout: None,
        try_next: TryNext::Any,
        asks,
    };
    let mut rig = Rig::new();
    let plans = [failure(b"mailbox", to.clone()), failure(b"", Candidate { asks: b"", ..to })];
    rig.plan = Plan { on_failure: Box::leak(plans.into()), ..Plan::default() };
    let places = [place(ONE, 3, "one")];
    let phone = only(rig.request(&alice("INVITE", "sip:bob@example.org", ""), udp(ALICE), &places));
    rig.answer(&phone, 486, "");
    assert!(rig.decide(&Decision::CarryOut).is_empty());
    assert_eq!(questions(&rig), ["box after one"]);
    // The next failure plan is still for the response of the phone.
    let mailbox = only(invites(&rig.decide(&Decision::Pass)));
    assert_eq!(mailbox.to(), MAILBOX);
    assert_eq!(to_alice(&rig.answer(&mailbox, 200, "Contact: <sip:m@10.3.3.3>\n")), [200]);
    rig.end();
}

#[test]
fn a_silent_candidate_leads_to_one_question() {
    let mut rig = Rig::new();
    rig.plan = Plan { answer_timeout: Some(1_000), ..Plan::default() };
    let one = begin(&mut rig);
    rig.pass(1_100);
    assert_eq!(questions(&rig), ["two after one"]);
    // The callee rings later and is cancelled; the user is not consulted for that.
    rig.answer(&one, 180, "");
    rig.answer(&one, 487, "");
    assert_eq!(questions(&rig).len(), 1);
    let two = only(invites(&rig.decide(&Decision::CarryOut)));
    assert_eq!(two.to(), TWO);
    assert_eq!(to_alice(&rig.answer(&two, 603, "")), [603]);
    rig.end();
}

#[test]
fn a_caller_that_cancels_while_the_user_is_asked_gets_487() {
    let mut rig = Rig::new();
    let text = alice("INVITE", "sip:bob@example.org", "");
    let places = [place(ONE, 3, "one"), place(TWO, 2, "two")];
    let one = only(rig.request(&text, udp(ALICE), &places));
    rig.answer(&one, 503, "");
    let cancel = text.replace("INVITE sip", "CANCEL sip").replace("1 INVITE", "1 CANCEL");
    assert_eq!(to_alice(&rig.request(&cancel, udp(ALICE), &[])), [200, 487]);
    assert!(rig.decide(&Decision::CarryOut).is_empty());
    rig.end();
}

#[test]
fn after_a_move_the_user_is_asked_about_the_same_candidate() {
    let mut rig = Rig::new();
    let one = begin(&mut rig);
    rig.answer(&one, 503, "");
    rig.decide(&Decision::Pass);
    rig.asked = None;
    rig.moved(9);
    rig.pass(0);
    assert_eq!(questions(&rig), ["two after one", "three after one", "three after one"]);
    assert_eq!(only(rig.decide(&Decision::CarryOut)).to(), THREE);
    rig.end();
}
