//! Plan of one request: time-outs, statuses that lead on, header edits, and its user's decision after a failure.

use super::rig::*;
use strowger_core::proxy::{Plan, ProxySettings, TryNext};
use strowger_message::Name;

const ONE: &str = "10.2.2.1:5061";
const TWO: &str = "10.2.2.2:5062";
const MAILBOX: &str = "10.3.3.3:5060";

fn rig(plan: Plan<'static>) -> Rig {
    let mut rig = Rig::new();
    rig.plan = plan;
    rig
}

fn asking() -> Rig {
    rig(Plan { asks: true, ..Plan::default() })
}

fn invite(rig: &mut Rig, contacts: &[Try]) -> Vec<Sent> {
    rig.request(&alice("INVITE", "sip:bob@example.org", ""), udp(ALICE), contacts)
}

fn heard(rig: &Rig) -> Vec<&str> {
    rig.heard.get(&1).map_or(Vec::new(), |heard| heard.iter().map(String::as_str).collect())
}

fn to_alice(sent: &[Sent]) -> Vec<u16> {
    sent.iter().filter(|s| s.to() == ALICE).map(|s| s.status()).collect()
}

fn later(sent: Vec<(u64, Sent)>) -> Vec<Sent> {
    sent.into_iter().map(|(_, sent)| sent).collect()
}

#[test]
fn a_call_that_fails_goes_to_the_mailbox() {
    let mut rig = asking();
    let phone = only(invite(&mut rig, &[contact(ONE, 1000)]));
    rig.answer(&phone, 180, "");
    assert_eq!(words(&rig.answer(&phone, 486, "")), ["ACK"], "nothing goes upstream yet");
    assert_eq!(heard(&rig), ["rang 180", "refused 486 by 10.2.2.1:5061", "failing 486"]);
    let mailbox = only(rig.decide(&Decision::More(&[contact(MAILBOX, 1000)])));
    assert_eq!((mailbox.to().as_str(), mailbox.uri()), (MAILBOX, "sip:bob@10.3.3.3:5060"));
    assert_eq!(to_alice(&rig.answer(&mailbox, 200, "Contact: <sip:m@10.3.3.3>\n")), [200]);
    rig.end();
    assert_eq!(heard(&rig)[3..], ["answered 200", "ended"]);
}

#[test]
fn a_second_failure_asks_again() {
    let mut rig = asking();
    let phone = only(invite(&mut rig, &[contact(ONE, 1000)]));
    rig.answer(&phone, 404, "");
    let next = only(rig.decide(&Decision::More(&[contact(TWO, 1000)])));
    rig.answer(&next, 486, "");
    assert_eq!(heard(&rig).last(), Some(&"failing 486"), "the better of both");
    assert_eq!(to_alice(&rig.decide(&Decision::Pass)), [486]);
    rig.end();
    assert_eq!(heard(&rig).iter().filter(|what| what.starts_with("exhausted")).count(), 1);
}

#[test]
fn the_user_answers_in_place_of_the_targets() {
    let mut rig = asking();
    let phone = only(invite(&mut rig, &[contact(ONE, 1000)]));
    rig.answer(&phone, 500, "");
    let answer = rig.decide(&Decision::Answer(480));
    assert_eq!(to_alice(&answer), [480]);
    rig.end();
    assert_eq!(heard(&rig), ["refused 500 by 10.2.2.1:5061", "failing 500", "exhausted 480", "ended"]);
}

#[test]
fn more_targets_that_are_none_pass_the_failure() {
    let mut rig = asking();
    let phone = only(invite(&mut rig, &[contact(ONE, 1000)]));
    rig.answer(&phone, 486, "");
    assert_eq!(to_alice(&rig.decide(&Decision::More(&[]))), [486]);
    rig.end();
}

#[test]
fn a_user_that_does_not_decide_passes_the_failure() {
    let mut rig = asking();
    let phone = only(invite(&mut rig, &[contact(ONE, 1000)]));
    rig.answer(&phone, 486, "");
    let sent = rig.pass(40_000);
    assert_eq!((sent[0].0, sent[0].1.status()), (32_000, 486));
    rig.end();
    // A late decision has no effect.
    let sent = rig.decide(&Decision::Pass);
    assert!(sent.is_empty());
}

#[test]
fn a_caller_that_cancels_meanwhile_gets_487() {
    let mut rig = asking();
    let text = alice("INVITE", "sip:bob@example.org", "");
    let phone = only(rig.request(&text, udp(ALICE), &[contact(ONE, 1000)]));
    rig.answer(&phone, 486, "");
    let cancel = text.replace("INVITE sip", "CANCEL sip").replace("1 INVITE", "1 CANCEL");
    assert_eq!(to_alice(&rig.request(&cancel, udp(ALICE), &[])), [200, 487]);
    assert!(rig.decide(&Decision::More(&[contact(TWO, 1000)])).is_empty());
    rig.end();
}

#[test]
fn after_a_move_the_user_is_asked_again() {
    let mut rig = asking();
    let phone = only(invite(&mut rig, &[contact(ONE, 1000)]));
    rig.answer(&phone, 486, "");
    rig.asked = None;
    rig.moved(9);
    rig.pass(0);
    assert_eq!(heard(&rig)[1..], ["failing 486", "failing 486"]);
    assert_eq!(to_alice(&rig.decide(&Decision::Pass)), [486]);
    rig.end();
}

#[test]
fn a_phone_that_rings_long_enough_leads_to_the_question() {
    let mut rig = rig(Plan { asks: true, ring_timeout: 5_000, ..Plan::default() });
    let phone = only(invite(&mut rig, &[contact(ONE, 1000)]));
    rig.answer(&phone, 180, "");
    let cancel = rig.pass(5_000);
    assert_eq!((cancel[0].0, cancel[0].1.method()), (5_000, "CANCEL"));
    rig.answer(&phone, 487, "");
    // The caller has cancelled nothing: it would get a time-out.
    assert_eq!(heard(&rig)[1..], ["timed out at 10.2.2.1:5061", "failing 408"]);
    let mailbox = only(rig.decide(&Decision::More(&[contact(MAILBOX, 1000)])));
    assert_eq!(to_alice(&rig.answer(&mailbox, 200, "Contact: <sip:m@10.3.3.3>\n")), [200]);
    rig.end();
}

#[test]
fn a_phone_that_registers_meanwhile_rings_too() {
    let mut rig = asking();
    let first = only(invite(&mut rig, &[contact(ONE, 1000)]));
    let server = rig.last.expect("it came");
    rig.answer(&first, 180, "");
    let second = only(rig.add(server, &[contact(TWO, 1000)]));
    assert_eq!(second.to(), TWO);
    let sent = rig.answer(&second, 200, "Contact: <sip:b@10.2.2.2:5062>\n");
    assert_eq!(words(&sent), ["200", "CANCEL"]);
    rig.answer(&first, 487, "");
    // Too late.
    assert!(rig.add(server, &[contact(MAILBOX, 1000)]).is_empty());
    rig.end();
}

#[test]
fn added_candidates_precede_waiting_ones() {
    let mut rig = asking();
    let first = only(invite(&mut rig, &[contact(ONE, 1000), contact(MAILBOX, 100)]));
    let server = rig.last.expect("it came");
    let second = only(rig.add(server, &[contact(TWO, 1000)]));
    rig.answer(&first, 486, "");
    let sent = rig.answer(&second, 486, "");
    let mailbox = sent.iter().find(|s| s.method() == "INVITE").expect("the last group");
    assert_eq!(mailbox.to(), MAILBOX);
    rig.answer(mailbox, 486, "");
    assert_eq!(heard(&rig).last(), Some(&"failing 486"));
    rig.decide(&Decision::Pass);
    rig.end();
}

#[test]
fn added_candidates_are_bounded() {
    let settings = ProxySettings { max_branches: 8, ..ProxySettings::default() };
    let mut rig = Rig::with(settings);
    rig.plan.asks = true;
    let mut phones = invite(&mut rig, &[contact(ONE, 1000)]);
    let mut tried = 1;
    while let Some(phone) = phones.iter().find(|s| s.method() == "INVITE").cloned() {
        rig.answer(&phone, 486, "");
        phones = rig.decide(&Decision::More(&[contact(TWO, 1000)]));
        tried += usize::from(phones.iter().any(|s| s.method() == "INVITE"));
        assert!(tried <= 8, "a request has an end");
    }
    assert_eq!(tried, 5, "one of four, and the four that were kept for the user");
    rig.end();
}

#[test]
fn a_silent_target_is_given_up_for_the_next() {
    let mut rig = rig(Plan { answer_timeout: Some(2_000), ..Plan::default() });
    let first = only(invite(&mut rig, &[contact(ONE, 1000), contact(TWO, 500)]));
    let sent = later(rig.pass(2_000));
    let second = sent.iter().find(|s| s.to() == TWO).expect("the next has its turn").clone();
    assert_eq!(heard(&rig), ["timed out at 10.2.2.1:5061"]);
    // The second target responds in time, so it may ring.
    rig.answer(&second, 100, "");
    assert!(rig.pass(10_000).iter().all(|(_, s)| s.to() == ONE));
    // The abandoned phone rings later and is cancelled.
    let late = rig.answer(&first, 180, "");
    assert!(late.iter().any(|s| s.method() == "CANCEL" && s.to() == ONE), "{late:?}");
    rig.answer(&first, 487, "");
    assert_eq!(to_alice(&rig.answer(&second, 200, "Contact: <sip:b@10.2.2.2:5062>\n")), [200]);
    rig.end();
}

#[test]
fn nothing_is_due_for_a_request_that_was_answered_in_time() {
    let due = |plan: Plan<'static>| {
        let mut rig = rig(plan);
        let bob = only(invite(&mut rig, &[contact(ONE, 1000)]));
        rig.answer(&bob, 180, "");
        let rings = rig.proxy.deadline();
        rig.answer(&bob, 200, "Contact: <sip:b@10.2.2.1:5061>\n");
        let talks = rig.proxy.deadline();
        rig.end();
        (rings, talks)
    };
    let (without, talks) = due(Plan::default());
    let bounded = Plan { answer_timeout: Some(200), ring_timeout: 300, ring_ends: true, ..Plan::default() };
    let (rings, after) = due(bounded);
    assert!(rings < without, "ringing has an end: {rings:?}");
    assert_eq!(after, talks);
}

#[test]
fn a_silent_target_without_a_next_is_a_time_out() {
    for method in ["INVITE", "MESSAGE"] {
        let mut rig = rig(Plan { answer_timeout: Some(2_000), ..Plan::default() });
        let sent = rig.request(&alice(method, "sip:bob@example.org", ""), udp(ALICE), &[contact(ONE, 1000)]);
        assert_eq!(sent.len(), 1);
        let up = to_alice(&later(rig.pass(2_000)));
        // No client waits for the 408 of another request than INVITE (RFC 4320).
        assert_eq!(up, if method == "INVITE" { vec![408] } else { vec![] });
        rig.end();
    }
}

#[test]
fn gateways_are_changed_after_some_failures_alone() {
    for (status, is_next) in [(503, true), (500, true), (408, false), (486, false), (404, false)] {
        let mut rig = rig(Plan { try_next: TryNext::On(&[500, 503]), ..Plan::default() });
        let first = only(invite(&mut rig, &[contact(ONE, 1000), contact(TWO, 500)]));
        let sent = rig.answer(&first, status, "");
        let next = sent.iter().find(|s| s.method() == "INVITE").cloned();
        assert_eq!(next.is_some(), is_next, "{status}");
        match next {
            Some(next) => assert_eq!(to_alice(&rig.answer(&next, 200, "Contact: <sip:b@10.2.2.2>\n")), [200]),
            None => assert_eq!(to_alice(&sent), [status]),
        }
        rig.end();
    }
}

#[test]
fn gateways_whose_time_is_up_do_not_end_the_search() {
    // One that rang too long.
    let some = TryNext::On(&[500, 503]);
    let mut rig = rig(Plan { ring_timeout: 30_000, ring_ends: true, try_next: some, ..Plan::default() });
    let first = only(invite(&mut rig, &[contact(ONE, 1000), contact(TWO, 500)]));
    rig.answer(&first, 180, "");
    assert!(later(rig.pass(30_000)).iter().any(|s| s.method() == "CANCEL" && s.to() == ONE));
    let sent = rig.answer(&first, 487, "");
    let second = sent.iter().find(|s| s.method() == "INVITE").unwrap_or_else(|| panic!("none of {sent:?}")).clone();
    assert_eq!(to_alice(&rig.answer(&second, 200, "Contact: <sip:b@10.2.2.2:5062>\n")), [200]);
    rig.end();
    // One that was silent, and responds while the next is tried.
    for late in [487, 486, 503] {
        let mut rig = self::rig(Plan { answer_timeout: Some(2_000), try_next: some, ..Plan::default() });
        let three = [contact(ONE, 1000), contact(TWO, 500), contact("10.2.2.3:5063", 100)];
        let first = only(invite(&mut rig, &three));
        let second = later(rig.pass(2_000)).into_iter().find(|s| s.to() == TWO).expect("the next has its turn");
        rig.answer(&second, 100, "");
        let sent = rig.answer(&first, late, "");
        assert!(sent.iter().all(|s| s.method() != "INVITE"), "{late}: {sent:?}");
        let third = only(rig.answer(&second, 503, "").into_iter().filter(|s| s.method() == "INVITE").collect());
        assert_eq!(to_alice(&rig.answer(&third, 200, "Contact: <sip:b@10.2.2.3:5063>\n")), [200]);
        rig.end();
    }
}

#[test]
fn a_gateway_that_cannot_be_reached_is_changed_in_any_case() {
    let mut rig = rig(Plan { try_next: TryNext::On(&[500]), ..Plan::default() });
    let first = only(invite(&mut rig, &[contact(ONE, 1000), contact(TWO, 500)]));
    let next = rig.fail(&first);
    assert!(next.iter().any(|s| s.to() == TWO));
    rig.end();
}

#[test]
fn each_candidate_has_its_own_header_fields() {
    let mut rig = Rig::new();
    let first = Try { add: "P-Preferred-Trunk: west\r\n".into(), remove: vec![Name::Subject], ..contact(ONE, 1000) };
    let protected = vec![Name::Via, Name::CallId, Name::From, Name::Contact, Name::ContentLength];
    let second = Try { remove: protected, ..contact(TWO, 1000) };
    let text = alice("INVITE", "sip:bob@example.org", "Subject: a\nSubject: b\n");
    let sent = rig.request(&text, udp(ALICE), &[first, second]);
    assert_eq!((sent[0].all("P-Preferred-Trunk"), sent[0].all("Subject").len()), (vec!["west"], 0));
    assert_eq!((sent[1].all("P-Preferred-Trunk").len(), sent[1].all("Subject")), (0, vec!["a", "b"]));
    assert!(["Via", "Call-ID", "From", "Contact", "Content-Length"].iter().all(|name| !sent[1].all(name).is_empty()));
    // A single target takes another path through the code.
    let mut rig = Rig::new();
    let alone = Try { add: "X-Trunk: west\r\n".into(), remove: vec![Name::Subject], ..contact(ONE, 1000) };
    let sent = only(rig.request(&text, udp(ALICE), &[alone]));
    assert_eq!((sent.all("X-Trunk"), sent.all("Subject").len()), (vec!["west"], 0));
}
