//! Small requests that keep the flows of phones behind NAT open (RFC 5626 section 4.4).

use crate::site::*;
use std::time::{Duration, Instant};

/// Registers a phone behind NAT: its Contact names a private address other than the source of its packets.
fn register_behind_nat(phone: &Phone, user: &str) {
    let call = phone.register_call("Expires: 600\n");
    let challenge = phone.ask(&call);
    let text = phone.text(&phone.authorized(&call, &challenge, user, user));
    phone.send(&text.replacen(&format!("<sip:phone@{}>", phone.address), "<sip:phone@192.168.7.7:5060>", 1));
    let got = phone.answer();
    assert_eq!(got.status(), 200, "{}", got.0);
}

#[test]
fn every_phone_behind_nat_is_pinged_once_an_interval() {
    let users: Vec<String> = (0..30).map(|n| format!("user{n}")).collect();
    let names: Vec<&str> = users.iter().map(String::as_str).collect();
    let site = Site::start("nat.ping_interval = \"2s\"", &names);
    let began = Instant::now();
    let phones: Vec<Phone> = names.iter().map(|name| site.phone(name)).collect();
    for (phone, name) in phones.iter().zip(&names) {
        register_behind_nat(phone, name);
    }
    // The current round began during the registrations: wait for the next one, and a second for a busy machine.
    let one = Duration::from_secs(2);
    let registered = Instant::now();
    for phone in &phones {
        phone.pinged_before(registered + 3 * one).expect("a ping in time");
    }
    for phone in &phones {
        phone.pinged_before(registered + 5 * one).expect("another ping in time");
    }
    // No more often than configured: pings use the batteries of phones.
    let pings = site.server().counts().pings;
    let rounds = began.elapsed().as_secs() / one.as_secs() + 1;
    assert!(pings <= 30 * rounds, "{pings} pings in {rounds} rounds at most");
}

#[test]
fn nobody_else_is_pinged() {
    let site = Site::start("nat.ping_interval = \"1s\"", &["bob"]);
    let bob = site.phone("bob");
    bob.register();
    assert!(bob.pinged_before(Instant::now() + Duration::from_millis(2_500)).is_none(), "its Contact says where it is");
    assert_eq!(site.server().counts().pings, 0);
}
