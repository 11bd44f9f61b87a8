//! Bounds that no configuration sets: a peer beyond them is refused, counted or forgotten.

use crate::site::*;
use std::time::Duration;
use strowger_core::Transport;
use strowger_server::bounds::EngineBounds;

const OPEN: &str = "proxy.relay_for = \"everyone\"\n";

/// Returns the statuses of all responses that arrive now.
fn statuses(phone: &Phone) -> Vec<u16> {
    std::iter::from_fn(|| phone.within(Duration::from_millis(100))).map(|got| got.status()).collect()
}

/// Sends requests to this number of names. Each request is of a call of its own.
fn names(phone: &Phone, count: usize) {
    for n in 0..count {
        phone.send(&phone.text(&phone.call("MESSAGE", &format!("sip:x@name{n}.example.net"))));
    }
}

/// Checks that half of the room is reserved for requests that have proved a password or belong to a call.
#[test]
fn look_ups_beyond_the_bound_are_refused() {
    let site = start_within(OPEN, &[], EngineBounds { lookups: 16, ..EngineBounds::default() });
    site.set_lookup_time(Duration::from_secs(20));
    let phone = site.foreign_phone();
    names(&phone, 20);
    assert_eq!(statuses(&phone), [503; 12]);
}

#[test]
fn a_source_has_its_share_of_the_look_ups() {
    let site = start_within(OPEN, &[], EngineBounds { lookups_per_source: 4, ..EngineBounds::default() });
    site.set_lookup_time(Duration::from_secs(20));
    let (phone, other) = (site.foreign_phone(), phone_at(&site, "127.0.0.99:0"));
    assert!(site.has_room(phone.address));
    names(&phone, 9);
    assert_eq!(statuses(&phone), [503; 5]);
    names(&other, 1);
    assert!(statuses(&other).is_empty());
    // A connection of the other source is read as usual.
    assert!(!site.has_room(phone.address) && site.has_room(other.address));
}

#[test]
fn messages_that_wait_for_look_ups_have_so_much_memory() {
    let site = start_within(OPEN, &[], EngineBounds { lookup_memory: 1 << 20, ..EngineBounds::default() });
    site.set_lookup_time(Duration::from_secs(20));
    let phone = Phone::new(site.connect(Transport::Tcp), "sip:mallory@example.net");
    for _ in 0..40 {
        let lines = format!("X: {}\n", "x".repeat(60_000));
        let call = Call { lines, ..phone.call("MESSAGE", "sip:x@name.example.net") };
        phone.send(&phone.text(&call).replace("SIP/2.0/UDP", "SIP/2.0/TCP"));
    }
    assert_eq!(statuses(&phone), [503; 23]);
    assert!(!site.has_room(phone.address));
}

#[test]
fn so_many_messages_of_a_call_wait_behind_another() {
    let site = start_within(OPEN, &[], EngineBounds { held_messages: 1, ..EngineBounds::default() });
    site.set_lookup_time(Duration::from_secs(20));
    let phone = site.foreign_phone();
    let first = phone.call("MESSAGE", "sip:x@name.example.net");
    for cseq in 1..5 {
        phone.send(&phone.text(&Call { cseq, ..first.clone() }));
    }
    site.settle();
    assert_eq!(site.counts().held_dropped, 2);
}

/// Checks that callers without a password leave half of the room to other callers.
#[test]
fn so_many_calls_are_logged_at_a_time() {
    let site = start_within("", &["alice", "bob"], EngineBounds { logged_calls: 4, ..EngineBounds::default() });
    let (alice, bob, stranger) = (site.phone("alice"), site.phone("bob"), site.foreign_phone());
    bob.register();
    for _ in 0..3 {
        stranger.send(&stranger.text(&stranger.call("INVITE", "sip:bob@example.org")));
        assert_eq!(bob.next().method(), "INVITE");
    }
    assert_eq!((site.counts().calls_logged, site.counts().calls_unlogged), (2, 1));
    let call = alice.calls(&bob);
    assert_eq!((site.counts().calls_logged, site.counts().calls_unlogged), (3, 1));
    assert_eq!(site.log().matches("call begun").count(), 3, "{}", site.log());
    alice.continues_and_ends(&bob, &call);
    site.log_with("call ended");
}

#[test]
fn a_logged_call_without_an_end_is_forgotten() {
    let bounds = EngineBounds { logged_time: Duration::from_secs(60), ..EngineBounds::default() };
    let site = start_within("", &["alice", "bob"], bounds);
    let (alice, bob) = (site.phone("alice"), site.phone("bob"));
    bob.register();
    let call = alice.calls(&bob);
    site.wait(Duration::from_secs(62));
    assert_eq!((site.counts().calls_logged, site.counts().calls_forgotten), (0, 1));
    alice.continues_and_ends(&bob, &call);
    assert!(!site.log().contains("call ended"), "{}", site.log());
}

/// RFC 3261 section 21.5.4.
#[test]
fn a_next_hop_is_set_aside_no_longer_than_the_bound() {
    let bounds = EngineBounds { retry_after: Duration::from_secs(2), ..EngineBounds::default() };
    let site = start_within(OPEN, &[], bounds);
    let [first, second] = [(); 2].map(|()| site.foreign_phone());
    site.set_name("pool.example.net", &[(Transport::Udp, first.address), (Transport::Udp, second.address)]);
    let caller = site.foreign_phone();
    let sends = || caller.send(&caller.text(&caller.call("MESSAGE", "sip:x@pool.example.net")));
    let answers = |phone: &Phone, status: u16, lines: &str| {
        let got = phone.next();
        assert_eq!(got.method(), "MESSAGE");
        phone.respond(&got, status, lines);
    };
    sends();
    answers(&first, 503, "Retry-After: 3600\n");
    answers(&second, 200, "");
    assert_eq!(caller.answer().status(), 200);
    sends();
    answers(&second, 200, "");
    assert_eq!(caller.answer().status(), 200);
    site.wait(Duration::from_secs(2));
    sends();
    answers(&first, 200, "");
    assert_eq!(caller.answer().status(), 200);
}
