//! Moves of open calls to another shard.

use super::rig::*;
use crate::written::Process;
use crate::written::file::recorded;
use std::num::NonZeroU32;
use strowger_core::proxy::{ContextRecord, ProxySettings};
use strowger_core::record;
use strowger_core::transaction::TransactionRecord;
use strowger_core::{Now, PeerName, Target, Transport};
use strowger_message::Name;

/// Moves everything of one rig into another, of a process that began a minute later and has calls of its own.
fn moved(mut old: Rig) -> Rig {
    let mut new = Rig::seeded(ProxySettings::default(), 9);
    new.now = Now { mono: old.now.mono.saturating_sub(60_000), ..old.now };
    new.next = old.next + 100;
    for n in 0..3 {
        let text = alice("INVITE", "sip:dave@10.4.4.4", "")
            .replace("call@", &format!("{n}@"))
            .replace("bKa", &format!("bKd{n}"));
        only(new.request(&text, udp("10.1.1.9:5060"), &to("10.4.4.4:5060")));
    }
    let contexts = old.proxy.export(old.now, |_| true);
    let transactions = old.tx.export(old.now, |_| true);
    assert_eq!((old.proxy.contexts(), old.proxy.unanswered(), old.tx.counts().keys), (0, 0, 0));
    new.take_in(contexts, transactions);
    new.take_over(&mut old);
    old.end();
    new
}

fn to_alice(sent: &[Sent]) -> Vec<u16> {
    sent.iter().filter(|s| s.to() == ALICE).map(|s| s.status()).collect()
}

#[test]
fn a_call_that_rings() {
    let mut rig = Rig::new();
    let text = alice("INVITE", "sip:bob@10.2.2.2", "");
    let sent = only(rig.request(&text, udp(ALICE), &to(BOB)));
    let ringing = only(rig.answer(&sent, 180, ""));
    let mut rig = moved(rig);
    assert_eq!(only(rig.request(&text, udp(ALICE), &to(BOB))).0, ringing.0);
    assert_eq!(to_alice(&rig.answer(&sent, 183, "")), [183]);
    assert_eq!(to_alice(&rig.answer(&sent, 200, "Contact: <sip:bob@10.2.2.2>\n")), [200]);
    let mut rig = moved(rig);
    assert_eq!(to_alice(&rig.answer(&sent, 200, "Contact: <sip:bob@10.2.2.2>\n")), [200]);
    rig.end();
}

#[test]
fn a_fork_of_which_one_has_failed() {
    let mut rig = Rig::new();
    let contacts = [contact("10.2.2.1:5061", 900), contact("10.2.2.2:5062", 900), contact("10.2.2.3:5063", 100)];
    let sent = rig.request(&alice("INVITE", "sip:bob@example.org", ""), udp(ALICE), &contacts);
    rig.answer(&sent[1], 180, "");
    rig.answer(&sent[0], 486, "");
    let mut rig = moved(rig);
    // A copy of the failure is still acknowledged, and the end of the group still starts the next one.
    assert_eq!(words(&rig.answer(&sent[0], 486, "")), ["ACK"]);
    let next = rig.answer(&sent[1], 404, "");
    assert_eq!(words(&next), ["ACK", "INVITE"]);
    let mut rig = moved(rig);
    assert_eq!(to_alice(&rig.answer(&next[1], 404, "")), [486]);
    rig.end();
}

#[test]
fn a_fork_that_is_accepted() {
    let mut rig = Rig::new();
    let contacts = ["10.2.2.1:5061", "10.2.2.2:5062"].map(|a| contact(a, 1000));
    let sent = rig.request(&alice("INVITE", "sip:bob@example.org", ""), udp(ALICE), &contacts);
    rig.answer(&sent[0], 180, "");
    rig.answer(&sent[1], 180, "");
    let mut rig = moved(rig);
    let out = rig.answer(&sent[1], 200, "Contact: <sip:b@10.2.2.2>\n");
    assert_eq!(words(&out), ["200", "CANCEL"]);
    assert_eq!(out[1].branch(), sent[0].branch());
    let mut rig = moved(rig);
    assert_eq!(words(&rig.answer(&sent[0], 487, "")), ["ACK"]);
    rig.end();
}

#[test]
fn a_cancel_and_the_group_that_rang_long_enough() {
    let mut rig = Rig::new();
    let text = alice("INVITE", "sip:bob@example.org", "");
    let contacts = [contact("10.2.2.1:5061", 900), contact("10.2.2.2:5062", 100)];
    let sent = only(rig.request(&text, udp(ALICE), &contacts));
    rig.answer(&sent, 180, "");
    rig.pass(10_000);
    let mut rig = moved(rig);
    let then = rig.pass(16_000);
    assert!(then.iter().any(|(_, s)| s.method() == "CANCEL" && s.branch() == sent.branch()));
    let next = rig.answer(&sent, 487, "");
    let second = next.into_iter().find(|s| s.method() == "INVITE").expect("the second contact");
    rig.answer(&second, 180, "");
    let mut rig = moved(rig);
    let cancel = text.replace("INVITE sip", "CANCEL sip").replace("1 INVITE", "1 CANCEL");
    assert_eq!(words(&rig.request(&cancel, udp(ALICE), &[])), ["200", "CANCEL"]);
    assert_eq!(to_alice(&rig.answer(&second, 487, "")), [487]);
    rig.end();
}

#[test]
fn a_context_whose_server_transaction_has_ended_sends_nothing_upstream() {
    let mut rig = Rig::new();
    let contacts = ["10.2.2.1:5061", "10.2.2.2:5062"].map(|a| contact(a, 1000));
    let sent = rig.request(&alice("INVITE", "sip:bob@example.org", ""), udp(ALICE), &contacts);
    rig.answer(&sent[1], 180, "");
    rig.answer(&sent[0], 200, "Contact: <sip:b@10.2.2.1>\n");
    // Bob's second phone answers neither the INVITE nor its CANCEL; the caller's transaction ends (timer L).
    rig.pass(31_900);
    rig.answer(&sent[1], 180, "");
    rig.pass(150);
    let mut rig = moved(rig);
    for s in rig.answer(&sent[1], 200, "Contact: <sip:b@10.2.2.2>\n") {
        assert_eq!(s.to(), ALICE, "{s:?}");
    }
    rig.end();
}

/// Returns the records of a call: Bob's first phone is silent, and his second one, on TLS by name, waits.
fn waiting() -> (Rig, Vec<ContextRecord>, Vec<TransactionRecord>) {
    let mut rig = Rig::new();
    let name = Some(PeerName(NonZeroU32::MIN));
    let desk = Target { name, ..Target::new(Transport::Tls, TLS, "10.2.2.9:5061".parse().unwrap()) };
    let flows = vec![(desk, "sips:bob@10.2.2.9".to_owned(), String::new())];
    let second = Try { at: vec![desk], flows, q: 100, remove: vec![Name::Subject], ..Try::default() };
    let text = alice("INVITE", "sip:bob@example.org", "Subject: lunch\n");
    rig.request(&text, udp(ALICE), &[contact("10.2.2.1:5061", 900), second]);
    let (contexts, transactions) = (rig.proxy.export(rig.now, |_| true), rig.tx.export(rig.now, |_| true));
    (rig, contexts, transactions)
}

#[test]
fn a_record_of_this_version_is_taken_up() {
    let (mut rig, contexts, transactions) = waiting();
    let bytes = recorded("tests/suite/proxy", (contexts, transactions));
    let read = || record::read(&bytes, &Process(0)).expect("the form has changed: raise its version");
    let (contexts, transactions): (Vec<ContextRecord>, Vec<TransactionRecord>) = read();
    rig.take_in(contexts, transactions);
    assert_eq!(record::write(read(), &Process(0)), bytes);
    let (_, sent) = rig.pass(500).remove(0);
    assert_eq!((sent.to().as_str(), sent.one("Subject")), ("10.2.2.1:5061", "lunch"));
    let next = rig.answer(&sent, 486, "").pop().expect("the second phone");
    assert_eq!((next.uri(), next.target.address.port(), next.all("Subject")), ("sips:bob@10.2.2.9", 5061, vec![""; 0]));
    assert_eq!(to_alice(&rig.answer(&next, 200, "Contact: <sips:bob@10.2.2.9>\n")), [200]);
    rig.end();
}

#[test]
fn listeners_and_peers_go_by_name_to_another_process() {
    let (_, contexts, transactions) = waiting();
    let bytes = record::write((contexts, transactions), &Process(0));
    let there: (Vec<ContextRecord>, Vec<TransactionRecord>) = record::read(&bytes, &Process(70)).unwrap();
    let text = format!("{there:?}");
    for (part, times) in [("ListenerId(70)", 4), ("ListenerId(72)", 2), ("PeerName(71)", 2), ("ListenerId(", 6)] {
        assert_eq!(text.matches(part).count(), times, "{part}: {text}");
    }
    assert_eq!(record::write(there, &Process(70)), bytes);
}
