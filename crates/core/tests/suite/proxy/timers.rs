//! Timers of a proxy: retransmissions, time-outs, Timer C (sections 16.6 step 11, 16.8, 17).

use super::rig::*;
use strowger_core::Transport;

#[test]
fn an_invite_is_sent_until_something_comes_and_then_answered_408() {
    let mut rig = Rig::new();
    let sent = only(rig.request(&alice("INVITE", "sip:bob@10.2.2.2", ""), udp(ALICE), &to(BOB)));
    let all = rig.pass(32_500);
    let again: Vec<u64> = all.iter().filter(|(_, s)| s.to() == BOB).map(|(at, _)| *at).collect();
    assert_eq!(again, [500, 1_500, 3_500, 7_500, 15_500, 31_500]);
    assert!(all.iter().filter(|(_, s)| s.to() == BOB).all(|(_, s)| s.0 == sent.0));
    let (at, up) = all.iter().find(|(_, s)| s.to() == ALICE).expect("a final response");
    assert!((32_000..=32_100).contains(at), "{at}");
    assert_eq!(up.start(), "SIP/2.0 408 Request Timeout");
    assert_eq!(up.all("Via"), ["SIP/2.0/UDP 10.1.1.1:5060;branch=z9hG4bKaINVITE"]);
    assert!(up.one("To").contains(";tag=") && up.one("From") == "<sip:alice@example.org>;tag=alice");
    assert_eq!((up.one("CSeq"), up.one("Call-ID")), ("1 INVITE", "call@10.1.1.1"));
    rig.end();
}

#[test]
fn a_408_within_a_dialog_keeps_its_tag() {
    let mut rig = Rig::new();
    let text = alice("INVITE", "sip:bob@10.2.2.2", "")
        .replace("To: <sip:bob@example.org>", "To: <sip:bob@example.org>;tag=bob");
    rig.request(&text, udp(ALICE), &to(BOB));
    let all = rig.pass(32_500);
    let (_, up) = all.iter().find(|(_, s)| s.to() == ALICE).expect("a final response");
    assert_eq!(up.one("To"), "<sip:bob@example.org>;tag=bob");
    rig.end();
}

#[test]
fn no_408_answers_a_request_that_is_no_invite() {
    // RFC 4320 section 4.2: its sender gave up at the same moment.
    let mut rig = Rig::new();
    rig.request(&alice("MESSAGE", "sip:bob@10.2.2.2", ""), udp(ALICE), &to(BOB));
    let all = rig.pass(40_000);
    assert!(all.iter().all(|(_, s)| s.to() == BOB || s.status() == 100), "{all:#?}");
    assert_eq!((rig.tx.counts().servers, rig.proxy.contexts()), (0, 0));
    rig.end();
    // A 408 of a later element is dropped too.
    let mut rig = Rig::new();
    let sent = only(rig.request(&alice("MESSAGE", "sip:bob@10.2.2.2", ""), udp(ALICE), &to(BOB)));
    assert!(rig.answer(&sent, 408, "").is_empty());
    rig.end();
    let mut rig = Rig::new();
    let contacts = ["10.2.2.1:5060", "10.2.2.2:5060"].map(|a| contact(a, 1000));
    let sent = rig.request(&alice("MESSAGE", "sip:bob@example.org", ""), udp(ALICE), &contacts);
    rig.answer(&sent[0], 408, "");
    assert!(rig.answer(&sent[1], 408, "").is_empty());
    rig.end();
}

#[test]
fn timer_c_cancels_what_rings_for_ever() {
    let mut rig = Rig::new();
    let sent = only(rig.request(&alice("INVITE", "sip:bob@10.2.2.2", ""), udp(ALICE), &to(BOB)));
    rig.answer(&sent, 100, "");
    rig.answer(&sent, 180, "");
    assert!(rig.pass(179_000).is_empty());
    // Each response but 100 restarts it (section 16.7 step 2).
    rig.answer(&sent, 183, "");
    assert!(rig.pass(179_000).is_empty());
    let (at, cancel) = rig.pass(10_000).remove(0);
    assert_eq!((cancel.method(), cancel.branch()), ("CANCEL", sent.branch()));
    assert!(at > 1_000, "later than three minutes");
    // The caller has cancelled nothing.
    assert_eq!(words(&rig.answer(&sent, 487, "")), ["ACK", "408"]);
    rig.end();
}

#[test]
fn timer_c_is_not_held_off_by_100() {
    let mut rig = Rig::new();
    let sent = only(rig.request(&alice("INVITE", "sip:bob@10.2.2.2", ""), udp(ALICE), &to(BOB)));
    rig.answer(&sent, 180, "");
    assert!(rig.pass(100_000).is_empty());
    rig.answer(&sent, 100, "");
    let cancelled = rig.pass(90_000);
    assert!(cancelled.iter().any(|(_, s)| s.method() == "CANCEL"));
    // A phone that does not even answer the CANCEL is given up.
    let up = rig.pass(40_000);
    assert!(cancelled.iter().chain(&up).any(|(_, s)| s.to() == ALICE && s.status() == 408));
    rig.end();
}

#[test]
fn each_group_of_contacts_has_a_timer_c_of_its_own() {
    let mut rig = Rig::new();
    let contacts: Vec<Try> = (0..12).map(|n| contact(&format!("10.2.2.{n}:5060"), 1000 - n)).collect();
    let mut ringing = only(rig.request(&alice("INVITE", "sip:bob@example.org", ""), udp(ALICE), &contacts));
    rig.answer(&ringing, 180, "");
    for n in 1..12 {
        let then = rig.pass(25_000);
        let cancel = &then.iter().find(|(_, s)| s.method() == "CANCEL").unwrap_or_else(|| panic!("the {n}th")).1;
        assert_eq!(cancel.branch(), ringing.branch());
        rig.answer(cancel, 200, "");
        let next = rig.answer(&ringing, 487, "");
        ringing = next.into_iter().find(|s| s.method() == "INVITE").unwrap_or_else(|| panic!("the {n}th did not ring"));
        // The target sends a 100 and no other provisional response.
        rig.answer(&ringing, 100, "");
    }
    rig.answer(&ringing, 200, "Contact: <sip:b@10.2.2.11>\n");
    rig.end();
}

#[test]
fn each_branch_has_a_timer_c_of_its_own_to_the_millisecond() {
    for begun in [0, 1, 999] {
        let mut rig = Rig::new();
        rig.pass(begun);
        let contacts = ["10.2.2.1:5060", "10.2.2.2:5060"].map(|a| contact(a, 1000));
        let sent = rig.request(&alice("INVITE", "sip:bob@example.org", ""), udp(ALICE), &contacts);
        rig.answer(&sent[0], 180, "");
        rig.answer(&sent[1], 180, "");
        // A response of one of them restarts its own timer only.
        assert!(rig.pass(100_000).is_empty());
        rig.answer(&sent[0], 183, "");
        let (at, cancel) = rig.pass(81_000).remove(0);
        assert_eq!((at, cancel.method(), cancel.branch()), (81_000, "CANCEL", sent[1].branch()));
        rig.answer(&cancel, 200, "");
        rig.answer(&sent[1], 487, "");
        assert!(rig.pass(99_999).is_empty());
        rig.answer(&sent[0], 200, "Contact: <sip:b@10.2.2.1>\n");
        rig.end();
    }
}

#[test]
fn a_request_that_takes_long_is_answered_100() {
    for (reliable, from) in [(false, udp(ALICE)), (true, by(TCP, Transport::Tcp, ALICE))] {
        let mut rig = Rig::new();
        let sent = only(rig.request(&alice("MESSAGE", "sip:bob@10.2.2.2", ""), from, &to(BOB)));
        let all = rig.pass(10_000);
        let up: Vec<_> = all.iter().filter(|(_, s)| s.to() == ALICE).collect();
        let [(3_500, trying)] = up[..] else { panic!("{reliable}: {up:#?}") };
        assert_eq!((trying.status(), trying.all("Via").len()), (100, 1));
        assert!(!trying.one("To").contains("tag="));
        assert_eq!(words(&rig.answer(&sent, 200, "")), ["200"]);
        rig.end();
    }
}

#[test]
fn a_group_of_contacts_rings_as_long_as_it_is_given() {
    for (begun, fork_timeout) in [(0, 20_000), (730, 20_000), (999, 1_500)] {
        let mut rig = Rig::new();
        rig.plan.ring_timeout = fork_timeout;
        rig.pass(begun);
        let contacts = [contact("10.2.2.1:5060", 900), contact("10.2.2.2:5060", 500), contact("10.2.2.3:5060", 100)];
        let first = only(rig.request(&alice("INVITE", "sip:bob@example.org", ""), udp(ALICE), &contacts));
        rig.answer(&first, 180, "");
        let in_time = fork_timeout..=fork_timeout;
        let (at, cancel) = rig.pass(fork_timeout + 5_000).remove(0);
        assert!(cancel.method() == "CANCEL" && in_time.contains(&at), "begun {begun}: {at}");
        rig.answer(&cancel, 200, "");
        let second = rig.answer(&first, 487, "").pop().expect("the next one rings");
        assert_eq!((second.method(), second.to()), ("INVITE", "10.2.2.2:5060".into()));
        // This one gives no response, and cannot be cancelled.
        let then = rig.pass(fork_timeout + 5_000);
        let (at, third) = then.iter().find(|(_, s)| s.to() == "10.2.2.3:5060").expect("the last one rings");
        assert!(third.method() == "INVITE" && in_time.contains(at), "begun {begun}: {at}");
        rig.answer(third, 200, "Contact: <sip:b@10.2.2.3>\n");
        rig.end();
    }
}

#[test]
fn a_phone_that_rang_long_enough_is_not_tried_at_its_next_address() {
    let mut rig = Rig::new();
    let two = Try { at: vec![at("10.2.2.1:5060"), at("10.2.2.1:5070")], ..contact("10.2.2.1:5060", 900) };
    let contacts = [two, contact("10.2.2.2:5060", 100)];
    let first = only(rig.request(&alice("INVITE", "sip:bob@example.org", ""), udp(ALICE), &contacts));
    rig.answer(&first, 180, "");
    rig.pass(20_100);
    let sent = rig.answer(&first, 503, "");
    let next: Vec<String> = sent.iter().filter(|s| s.method() == "INVITE").map(Sent::to).collect();
    assert_eq!(next, ["10.2.2.2:5060"]);
    rig.end();
}
