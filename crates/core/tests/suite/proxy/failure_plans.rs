//! Plans for failures: other targets, another answer, the end of ringing.

use super::rig::*;
use strowger_core::Target;
use strowger_core::proxy::{Candidate, FailurePlan, Plan, ProxySettings, Remedy, TryNext};

const ONE: &str = "10.2.2.1:5061";
const TWO: &str = "10.2.2.2:5062";
const MAILBOX: &str = "10.3.3.3:5060";
const BUSY: &[(u16, u16)] = &[(486, 486), (408, 408)];

/// Returns a candidate for the mailbox, for as long as the test runs.
fn mailbox() -> Remedy<'static> {
    let targets: &'static [Target] = Box::leak(Box::new([at(MAILBOX)]));
    let uri = Some(&b"sip:mailbox@10.3.3.3"[..]);
    let add = b"Diversion: <sip:bob@example.org>\r\n";
    Remedy::Try(Box::leak(Box::new([Candidate { uri, targets, q: 1000, add, ..Candidate::default() }])))
}

fn plan(statuses: &'static [(u16, u16)], remedy: Remedy<'static>) -> FailurePlan<'static> {
    FailurePlan { statuses, remedy, ring_timeout: None, answer_timeout: None, try_next: TryNext::Any, asks: b"" }
}

/// Returns a plan with a question of these bytes.
fn asking(statuses: &'static [(u16, u16)], asks: &'static [u8]) -> FailurePlan<'static> {
    FailurePlan { asks, ..plan(statuses, mailbox()) }
}

fn rig(plans: &[FailurePlan<'static>]) -> Rig {
    rig_of(Plan { on_failure: Box::leak(plans.into()), ..Plan::default() })
}

fn rig_of(plan: Plan<'static>) -> Rig {
    let mut rig = Rig::new();
    rig.plan = plan;
    rig
}

fn invite(rig: &mut Rig, contacts: &[Try]) -> Vec<Sent> {
    rig.request(&alice("INVITE", "sip:bob@example.org", ""), udp(ALICE), contacts)
}

fn to_alice(sent: &[Sent]) -> Vec<u16> {
    sent.iter().filter(|s| s.to() == ALICE).map(|s| s.status()).collect()
}

fn invites(sent: &[Sent]) -> Vec<Sent> {
    sent.iter().filter(|s| s.method() == "INVITE").cloned().collect()
}

#[test]
fn a_busy_phone_leads_to_the_mailbox() {
    let mut rig = rig(&[plan(BUSY, mailbox())]);
    let phone = only(invite(&mut rig, &[contact(ONE, 1000)]));
    let sent = rig.answer(&phone, 486, "");
    assert_eq!(to_alice(&sent), <[u16; 0]>::default(), "nothing goes upstream");
    let mailbox = only(invites(&sent));
    assert_eq!((mailbox.to().as_str(), mailbox.uri()), (MAILBOX, "sip:mailbox@10.3.3.3"));
    assert_eq!(mailbox.all("Diversion"), ["<sip:bob@example.org>"]);
    assert_eq!(to_alice(&rig.answer(&mailbox, 200, "Contact: <sip:m@10.3.3.3>\n")), [200]);
    rig.end();
}

#[test]
fn a_plan_is_for_its_failures_and_used_once() {
    let mut rig = rig(&[plan(BUSY, mailbox())]);
    let phone = only(invite(&mut rig, &[contact(ONE, 1000)]));
    assert_eq!(to_alice(&rig.answer(&phone, 404, "")), [404]);
    rig.end();
    let mut rig = self::rig(&[plan(&[(300, 699)], mailbox())]);
    let phone = only(invite(&mut rig, &[contact(ONE, 1000)]));
    let mailbox = only(invites(&rig.answer(&phone, 486, "")));
    assert_eq!(to_alice(&rig.answer(&mailbox, 500, "")), [486], "the better of both");
    rig.end();
}

#[test]
fn a_plan_answers_in_place_of_a_failure() {
    let redirects = plan(&[(300, 399)], Remedy::Answer(404));
    let mut rig = rig(&[plan(BUSY, mailbox()), redirects]);
    let phone = only(invite(&mut rig, &[contact(ONE, 1000)]));
    assert_eq!(to_alice(&rig.answer(&phone, 302, "Contact: <sip:c@10.9.9.9>\n")), [404]);
    rig.end();
    // The plan applies, too, if the target of another plan has failed with a 3xx.
    let mut rig = self::rig(&[plan(BUSY, mailbox()), redirects]);
    let phone = only(invite(&mut rig, &[contact(ONE, 1000)]));
    let mailbox = only(invites(&rig.answer(&phone, 486, "")));
    let up = to_alice(&rig.answer(&mailbox, 302, "Contact: <sip:c@10.9.9.9>\n"));
    assert_eq!(up, [404], "a redirection is better than a failure (RFC 3261 section 16.7)");
    rig.end();
}

#[test]
fn a_plan_comes_after_every_group_and_after_6xx() {
    let mut rig = rig(&[plan(&[(600, 699), (486, 486)], mailbox())]);
    let first = only(invite(&mut rig, &[contact(ONE, 1000), contact(TWO, 500)]));
    let second = only(invites(&rig.answer(&first, 486, "")));
    assert_eq!(second.to(), TWO);
    assert_eq!(only(invites(&rig.answer(&second, 486, ""))).to(), MAILBOX);
    rig.end();
    let mut rig = self::rig(&[plan(&[(600, 699)], mailbox())]);
    let first = only(invite(&mut rig, &[contact(ONE, 1000), contact(TWO, 500)]));
    assert_eq!(only(invites(&rig.answer(&first, 603, ""))).to(), MAILBOX, "the second group has no turn");
    rig.end();
}

#[test]
fn no_plan_is_for_a_caller_that_has_cancelled() {
    let mut rig = rig(&[plan(&[(300, 699)], mailbox())]);
    let text = alice("INVITE", "sip:bob@example.org", "");
    let phone = only(rig.request(&text, udp(ALICE), &[contact(ONE, 1000)]));
    rig.answer(&phone, 180, "");
    let cancel = text.replace("INVITE sip", "CANCEL sip").replace("1 INVITE", "1 CANCEL");
    rig.request(&cancel, udp(ALICE), &[]);
    let sent = rig.answer(&phone, 487, "");
    assert_eq!((to_alice(&sent), invites(&sent).len()), (vec![487], 0));
    rig.end();
}

#[test]
fn ringing_ends_with_408_or_a_plan_for_that() {
    let mut rig = rig_of(Plan { ring_ends: true, ring_timeout: 5_000, ..Plan::default() });
    let phone = only(invite(&mut rig, &[contact(ONE, 1000)]));
    rig.answer(&phone, 180, "");
    let cancel = rig.pass(5_000);
    assert_eq!((cancel[0].0, cancel[0].1.method()), (5_000, "CANCEL"));
    assert_eq!(to_alice(&rig.answer(&phone, 487, "")), [408]);
    rig.end();
    // Without a plan, a call rings on.
    let mut rig = rig_of(Plan { ring_timeout: 5_000, ..Plan::default() });
    let phone = only(invite(&mut rig, &[contact(ONE, 1000)]));
    rig.answer(&phone, 180, "");
    assert!(rig.pass(60_000).is_empty());
    rig.answer(&phone, 200, "Contact: <sip:b@10.2.2.1>\n");
    rig.end();
    let plans = Box::leak(Box::new([plan(BUSY, mailbox())]));
    let mut rig = rig_of(Plan { ring_timeout: 5_000, ring_ends: true, on_failure: plans, ..Plan::default() });
    let phone = only(invite(&mut rig, &[contact(ONE, 1000)]));
    rig.answer(&phone, 180, "");
    rig.pass(5_000);
    assert_eq!(only(invites(&rig.answer(&phone, 487, ""))).to(), MAILBOX);
    rig.end();
}

#[test]
fn plans_move_with_their_call() {
    let mut rig = rig(&[plan(BUSY, mailbox())]);
    let phone = only(invite(&mut rig, &[contact(ONE, 1000)]));
    rig.answer(&phone, 180, "");
    rig.moved(9);
    let mailbox = only(invites(&rig.answer(&phone, 486, "")));
    assert_eq!(to_alice(&rig.answer(&mailbox, 200, "Contact: <sip:m@10.3.3.3>\n")), [200]);
    rig.end();
}

#[test]
fn plans_have_the_half_of_the_branches() {
    let mut rig = Rig::with(ProxySettings { max_branches: 4, ..ProxySettings::default() });
    let plans = [plan(&[(300, 699)], mailbox()); 9];
    rig.plan = Plan { on_failure: Box::leak(Box::new(plans)), ..Plan::default() };
    let mut sent = invite(&mut rig, &[contact(ONE, 1000)]);
    let mut tried = 0;
    while let Some(next) = invites(&sent).pop() {
        tried += 1;
        sent = rig.answer(&next, 486, "");
    }
    assert_eq!((tried, to_alice(&sent)), (3, vec![486]), "one of two, and the two of the plans");
    rig.end();
}

/// Returns the notices of the request.
fn heard(rig: &Rig) -> Vec<&str> {
    rig.heard.get(&1).map_or(Vec::new(), |heard| heard.iter().map(String::as_str).collect())
}

#[test]
fn the_user_is_asked_whether_a_plan_is_carried_out() {
    let mut rig = rig(&[asking(BUSY, b"mailbox")]);
    let phone = only(invite(&mut rig, &[contact(ONE, 1000)]));
    assert_eq!(words(&rig.answer(&phone, 486, "")), ["ACK"], "nothing goes on before it says so");
    assert_eq!(heard(&rig).last(), Some(&"failing 486: mailbox"));
    let mailbox = only(rig.decide(&Decision::CarryOut));
    assert_eq!((mailbox.to().as_str(), mailbox.uri()), (MAILBOX, "sip:mailbox@10.3.3.3"));
    assert_eq!(to_alice(&rig.answer(&mailbox, 200, "Contact: <sip:m@10.3.3.3>\n")), [200]);
    rig.end();
}

#[test]
fn a_plan_that_is_passed_over_leaves_its_turn_to_the_next_for_this_failure() {
    let plans = [asking(BUSY, b"one"), plan(&[(404, 404)], Remedy::Answer(480)), asking(&[(300, 699)], b"two")];
    let mut rig = rig(&plans);
    let phone = only(invite(&mut rig, &[contact(ONE, 1000)]));
    rig.answer(&phone, 486, "");
    assert!(rig.decide(&Decision::Pass).is_empty());
    assert_eq!(heard(&rig)[1..], ["failing 486: one", "failing 486: two"]);
    let mailbox = only(rig.decide(&Decision::CarryOut));
    // The mailbox fails too: this is another failure, and the user is consulted about the first plan again.
    assert_eq!(words(&rig.answer(&mailbox, 503, "")), ["ACK"]);
    assert_eq!(heard(&rig).last(), Some(&"failing 486: one"));
    assert_eq!(to_alice(&rig.decide(&Decision::Pass)), [486], "no other is for it");
    rig.end();
}

#[test]
fn a_caller_that_cancels_while_the_user_is_asked_gets_487() {
    let mut rig = rig(&[asking(BUSY, b"mailbox")]);
    let text = alice("INVITE", "sip:bob@example.org", "");
    let phone = only(rig.request(&text, udp(ALICE), &[contact(ONE, 1000)]));
    rig.answer(&phone, 486, "");
    let cancel = text.replace("INVITE sip", "CANCEL sip").replace("1 INVITE", "1 CANCEL");
    assert_eq!(to_alice(&rig.request(&cancel, udp(ALICE), &[])), [200, 487]);
    assert!(rig.decide(&Decision::CarryOut).is_empty());
    rig.end();
}

#[test]
fn after_a_move_the_user_is_asked_about_the_same_plan() {
    let mut rig = rig(&[asking(BUSY, b"one"), asking(BUSY, b"two")]);
    let phone = only(invite(&mut rig, &[contact(ONE, 1000)]));
    rig.answer(&phone, 486, "");
    rig.decide(&Decision::Pass);
    rig.asked = None;
    rig.moved(9);
    rig.pass(0);
    assert_eq!(heard(&rig)[1..], ["failing 486: one", "failing 486: two", "failing 486: two"]);
    assert_eq!(only(rig.decide(&Decision::CarryOut)).to(), MAILBOX);
    rig.end();
}
