//! Small requests that keep the flows of phones behind NAT open (RFC 5626 section 4.4).

use crate::site::*;
use std::time::Duration;

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
    let site = start("nat.ping_interval = \"2s\"", &names);
    let phones: Vec<Phone> = names.iter().map(|name| site.phone(name)).collect();
    for (phone, name) in phones.iter().zip(&names) {
        register_behind_nat(phone, name);
    }
    // The round that began during the registrations, and the next one.
    let one = Duration::from_secs(2);
    site.wait(2 * one);
    assert!(phones.iter().all(|phone| phone.is_pinged_within(Duration::ZERO)), "a ping in time");
    // No more often than configured: pings use the batteries of phones.
    let before = site.counts().pings;
    site.wait(10 * one);
    assert_eq!(site.counts().pings - before, 10 * 30);
}

#[test]
fn no_other_phone_is_pinged() {
    let site = start("nat.ping_interval = \"1s\"", &["bob"]);
    let bob = site.phone("bob");
    bob.register();
    assert!(!bob.is_pinged_within(Duration::from_secs(60)), "its Contact says where it is");
    assert_eq!(site.counts().pings, 0);
}
