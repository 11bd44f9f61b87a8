//! Phones that are switched off: their hosts report it by ICMP, and no caller waits for timer B (RFC 3261 sections 16.9 and 18.4).

use crate::site::*;
use std::time::{Duration, Instant};

/// Registers this phone with this preference, and drops its socket.
fn register_and_leave(phone: Phone, q: &str) {
    register_with(&phone, q);
}

fn register_with(phone: &Phone, q: &str) {
    let call = phone.register_call("Expires: 600\n");
    let call = phone.authorized(&call, &phone.ask(&call), "bob", "bob");
    let contact = format!("Contact: <sip:phone@{}>", phone.address);
    phone.send(&phone.text(&call).replace(&contact, &format!("{contact};q={q}")));
    assert_eq!(phone.answer().status(), 200);
}

#[test]
fn a_caller_hears_at_once_that_nobody_is_there() {
    for shards in [1, 3] {
        let site = Site::start(&format!("server.shards = {shards}"), &["alice", "bob"]);
        let alice = site.phone("alice");
        register_and_leave(site.phone("bob"), "1.0");
        for method in ["INVITE", "MESSAGE", "INVITE", "MESSAGE"] {
            let call = alice.call(method, "sip:bob@example.org");
            let begun = Instant::now();
            let got = alice.ask_as(&call, "alice");
            assert_eq!(got.status(), 480, "{}", got.0);
            assert!(begun.elapsed().as_secs() < 4, "{:?}", begun.elapsed());
        }
    }
}

#[test]
fn the_next_phone_rings_at_once() {
    let site = Site::start("", &["alice", "bob"]);
    let (alice, second) = (site.phone("alice"), site.phone("bob"));
    register_with(&second, "0.3");
    register_and_leave(site.phone("bob"), "0.9");
    let call = alice.call("INVITE", "sip:bob@example.org");
    let call = alice.authorized(&call, &alice.ask(&call), "alice", "alice");
    alice.send(&alice.text(&call));
    // The caller gets its answer within five seconds; a silent phone would get 20 seconds.
    let invite = second.next();
    assert_eq!(invite.method(), "INVITE", "{}", invite.0);
    second.respond(&invite, 200, "");
    assert_eq!(alice.answer().status(), 200);
}

#[test]
fn who_does_not_believe_icmp_waits_for_the_timer() {
    // Timer B is 64 times 10 ms.
    let site = Site::start("server.icmp_errors = false\ntimers.t1 = \"10ms\"", &["alice", "bob"]);
    let alice = site.phone("alice");
    register_and_leave(site.phone("bob"), "1.0");
    let call = alice.call("INVITE", "sip:bob@example.org");
    let call = alice.authorized(&call, &alice.ask(&call), "alice", "alice");
    let begun = Instant::now();
    assert_eq!(alice.ask(&call).status(), 408);
    assert!(begun.elapsed() >= Duration::from_millis(640), "{:?}", begun.elapsed());
    assert_eq!(site.server().handle().total().unreachable, 0);
}
