//! Small requests that keep the flows of phones behind NAT open (RFC 5626 section 4.4).

use crate::site::*;
use std::time::Duration;
use strowger_core::Transport;

/// Registers a phone behind NAT: its Contact names a private address other than the source of its packets.
fn register_behind_nat(phone: &Phone, user: &str) {
    let call = phone.register_call("Expires: 600\n");
    let challenge = phone.ask(&call);
    let text = phone.text(&phone.authorized(&call, &challenge, user, user));
    phone.send(&text.replacen(&format!("<sip:phone@{}>", phone.address), "<sip:phone@192.168.7.7:5060>", 1));
    let got = phone.answer();
    assert_eq!(got.status(), 200, "{}", got.0);
}

/// Returns the pings that have arrived at this phone, including retransmissions.
fn pings_at(phone: &Phone) -> Vec<Got> {
    std::iter::from_fn(|| phone.ping_within(Duration::ZERO)).collect()
}

/// Advances the clock while the phones answer their pings. Returns the number of pings at each phone.
fn answer_pings(site: &Site, phones: &[Phone], time: Duration) -> Vec<usize> {
    let (step, mut heard) = (Duration::from_millis(250), vec![0; phones.len()]);
    for _ in 0..time.as_millis() / step.as_millis() {
        site.wait(step);
        for (phone, heard) in phones.iter().zip(&mut heard) {
            let pings = pings_at(phone);
            pings.iter().for_each(|ping| phone.respond(ping, 200, ""));
            *heard += pings.len();
        }
    }
    heard
}

#[test]
fn every_phone_behind_nat_is_pinged_once_an_interval() {
    let users: Vec<String> = (0..30).map(|n| format!("user{n}")).collect();
    let names: Vec<&str> = users.iter().map(String::as_str).collect();
    let site = start("nat.ping_interval = \"2s\"", &names);
    let phones: Vec<Phone> = names.iter().map(|name| site.phone(name)).collect();
    for (phone, name) in phones.iter().zip(&names) {
        register_behind_nat(phone, name);
    }
    // The round that began during the registrations, and the next one.
    let one = Duration::from_secs(2);
    let heard = answer_pings(&site, &phones, 2 * one);
    assert!(heard.iter().all(|heard| *heard > 0), "a ping in time: {heard:?}");
    // No more often than configured: pings use the batteries of phones.
    let before = site.counts().pings;
    let heard = answer_pings(&site, &phones, 10 * one);
    assert_eq!(site.counts().pings - before, 10 * 30);
    assert_eq!(heard.iter().sum::<usize>(), 10 * 30, "an answered ping is not repeated");
    assert_eq!(site.counts().pings_unanswered, 0);
}

/// Checks Timer E (RFC 3261 section 17.1.2.2).
#[test]
fn a_lost_ping_is_sent_again() {
    let site = start("nat.ping_interval = \"1h\"", &["bob"]);
    let bob = site.phone("bob");
    register_behind_nat(&bob, "bob");
    let ms = Duration::from_millis;
    let lost = bob.ping_within(ms(2_000)).expect("a ping");
    for pause in [500, 1_000] {
        assert!(!bob.is_pinged_within(ms(pause - 1)), "before {pause} ms");
        let again = bob.ping_within(ms(2)).unwrap_or_else(|| panic!("not after {pause} ms"));
        assert_eq!(again.0, lost.0);
    }
    assert_eq!(site.counts().pings_pending, 1);
    bob.respond(&lost, 486, "");
    assert!(!bob.is_pinged_within(Duration::from_secs(60)), "any final response shows that it lives");
    let counts = site.counts();
    assert_eq!((counts.pings, counts.pings_pending, counts.pings_unanswered, counts.retransmissions), (1, 0, 0, 2));
    assert_eq!((counts.client_transactions, counts.kept_bytes), (0, 0));
}

#[test]
fn a_phone_that_answers_no_ping_stays_registered() {
    let site = start("nat.ping_interval = \"10s\"", &["alice", "bob"]);
    let (alice, bob) = (site.phone("alice"), site.phone("bob"));
    alice.register();
    register_behind_nat(&bob, "bob");
    // The first ping leaves after a second. Its repetitions take the place of the pings of three rounds, until Timer F.
    site.wait(Duration::from_secs(32));
    let pings = pings_at(&bob);
    assert!(pings.len() == 10 && pings.iter().all(|ping| ping.0 == pings[0].0), "{pings:?}");
    assert_eq!((site.counts().pings, site.counts().pings_pending), (1, 1));
    site.wait(Duration::from_secs(5));
    let counts = site.counts();
    assert_eq!((counts.pings, counts.pings_pending, counts.pings_unanswered, counts.timeouts), (1, 0, 1, 0));
    pings_at(&bob);
    let next = bob.ping_within(Duration::from_secs(8)).expect("the next round");
    assert_ne!(next.one("Call-ID"), pings[0].one("Call-ID"));
    bob.respond(&next, 200, "");
    alice.calls(&bob);
}

/// Checks that nothing is retransmitted over a reliable transport (RFC 3261 section 17.1.2.2), and that the ping ends
/// with its connection, over which no response can arrive afterwards (section 18.4).
#[test]
fn a_ping_ends_with_its_connection() {
    let site = start("nat.ping_interval = \"1h\"", &["bob"]);
    let bob = Phone::new(site.connect(Transport::Tcp), "sip:bob@example.org");
    bob.register();
    assert!(bob.is_pinged_within(Duration::from_secs(2)));
    assert!(!bob.is_pinged_within(Duration::from_secs(20)));
    assert_eq!((site.counts().pings_pending, site.counts().client_transactions), (1, 1));
    drop(bob);
    site.settle();
    let counts = site.counts();
    assert_eq!((counts.pings_pending, counts.client_transactions, counts.pings_unanswered), (0, 0, 0));
}

/// Checks that a ping beyond the bound still keeps its flow open, but is not retransmitted.
#[test]
fn pending_pings_are_bounded() {
    let users = ["alice", "bob", "carol"];
    let site = start("nat.ping_interval = \"1s\"\nlimits.transactions = 16", &users);
    let phones = users.map(|user| site.phone(user));
    phones.iter().zip(users).for_each(|(phone, user)| register_behind_nat(phone, user));
    site.wait(Duration::from_millis(1_200));
    let counts = site.counts();
    assert_eq!((counts.pings, counts.pings_pending, counts.pings_unrepeated), (3, 2, 1));
    site.wait(Duration::from_millis(500));
    let mut heard = phones.map(|phone| pings_at(&phone).len());
    heard.sort_unstable();
    assert_eq!(heard, [1, 2, 2]);
}

#[test]
fn no_other_phone_is_pinged() {
    let site = start("nat.ping_interval = \"1s\"", &["bob"]);
    let bob = site.phone("bob");
    bob.register();
    assert!(!bob.is_pinged_within(Duration::from_secs(60)), "its Contact says where it is");
    assert_eq!(site.counts().pings, 0);
}
