//! Sources that fail too often, and scanners.

use crate::site::*;
use std::net::SocketAddr;
use std::time::Duration;
use strowger_core::Transport;
use strowger_server::bounds::EngineBounds;

fn wrong(phone: &Phone) -> Got {
    let call = phone.register_call("");
    let challenge = phone.ask(&call);
    phone.ask(&phone.authorized(&call, &challenge, "bob", "wrong"))
}

#[test]
fn who_fails_too_often_is_not_heard() {
    let site = start("ban.exempt = []\nban.failures = 3\nban.duration = \"2s\"", &["bob"]);
    let bob = site.phone("bob");
    for _ in 0..3 {
        assert_eq!(wrong(&bob).status(), 401);
    }
    bob.send(&bob.text(&bob.call("OPTIONS", "sip:example.org")));
    bob.hears_nothing();
    assert!(site.counts().banned > 0);
    // The ban has ended.
    site.wait(Duration::from_secs(2));
    assert_eq!(bob.ask(&bob.call("OPTIONS", "sip:example.org")).status(), 200);
    bob.register();
}

/// Checks that beyond this number of sources the oldest source is forgotten, with its failures.
#[test]
fn so_many_sources_are_watched() {
    let bounds = EngineBounds { ban_sources: 64, ..EngineBounds::default() };
    let site = start_within("ban.exempt = []\nban.failures = 2\nban.account_failures = 10000", &["bob"], bounds);
    let from = |n: u16| {
        let [third, last] = n.to_be_bytes();
        let line = site.connect_from(Transport::Udp, SocketAddr::from(([127, 1, third, last], 0)));
        Phone::new(line, "sip:bob@example.org")
    };
    let first: Vec<Phone> = (1..=8).map(from).collect();
    for phone in &first {
        assert_eq!(wrong(phone).status(), 401);
    }
    (257..900).for_each(|n| assert_eq!(wrong(&from(n)).status(), 401, "{n}"));
    let is_forgotten = |phone: &&Phone| {
        wrong(phone);
        phone.send(&phone.text(&phone.call("OPTIONS", "sip:example.org")));
        phone.within(Duration::from_millis(100)).is_some()
    };
    // Each of 64 parts has its own oldest source.
    let forgotten = first.iter().filter(is_forgotten).count();
    assert!(forgotten >= 6, "{forgotten} of 8");
}

#[test]
fn by_udp_only_a_nonce_of_ours_counts() {
    let site = start("ban.exempt = []\nban.failures = 2", &["bob"]);
    let bob = site.phone("bob");
    for _ in 0..6 {
        // A peer that forges its source has never seen a challenge.
        let mut call = bob.register_call("");
        call.lines = "Authorization: Digest username=\"bob\", realm=\"example.org\", nonce=\"forged\", uri=\"sip:example.org\", \
                      response=\"00000000000000000000000000000000\", algorithm=MD5\n"
            .into();
        assert_eq!(bob.ask(&call).status(), 401);
    }
    bob.register();
}

#[test]
fn switched_off() {
    let site = start("ban.enabled = false\nban.exempt = []\nban.failures = 1", &["bob"]);
    let bob = site.phone("bob");
    for _ in 0..4 {
        assert_eq!(wrong(&bob).status(), 401);
    }
    bob.register();
}

#[test]
fn those_exempt_may_fail() {
    let site = start("ban.failures = 1", &["bob"]);
    let bob = site.phone("bob");
    for _ in 0..4 {
        assert_eq!(wrong(&bob).status(), 401);
    }
    bob.register();
}

#[test]
fn scanners_hear_nothing() {
    let site = start("ban.exempt = []", &[]);
    let phone = site.foreign_phone();
    let mut call = phone.call("OPTIONS", "sip:example.org");
    call.lines = "User-Agent: Friendly-Scanner/1.0\n".into();
    phone.send(&phone.text(&call));
    phone.hears_nothing();
    // The source may be forged: over UDP the server bans no source for this.
    assert_eq!(phone.ask(&phone.call("OPTIONS", "sip:example.org")).status(), 200);
    assert_eq!(site.counts().banned, 1);
}

/// Sends these bytes over a connection, followed by OPTIONS. Returns the data received within `limit`.
fn over_tcp(site: &Site, text: &str, limit: Duration) -> Option<String> {
    let phone = Phone::new(site.connect(Transport::Tcp), "sip:mallory@example.net");
    phone.send(&text.replace("SIP/2.0/UDP", "SIP/2.0/TCP"));
    phone.send(&phone.text(&phone.call("OPTIONS", "sip:example.org")));
    phone.within(limit).map(|got| got.0)
}

#[test]
fn a_scanner_behind_another_proxy_does_not_get_that_proxy_banned() {
    let site = start("ban.exempt = []", &[]);
    let phone = site.foreign_phone();
    let mut scan = phone.call("OPTIONS", "sip:example.org");
    scan.lines = "User-Agent: friendly-scanner\n".into();
    let text = phone.text(&scan);
    let behind = text.replacen("Max-Forwards", "Via: SIP/2.0/UDP 192.0.2.9;branch=z9hG4bKedge\r\nMax-Forwards", 1);
    let got = over_tcp(&site, &behind, Duration::from_secs(5)).expect("the next request of the proxy is answered");
    assert_eq!(got.matches("SIP/2.0 200").count(), 1, "the scanner itself hears nothing: {got}");
    assert_eq!(phone.ask(&phone.call("OPTIONS", "sip:example.org")).status(), 200);
    // The source is the scanner itself, so it is banned.
    assert_eq!(over_tcp(&site, &text, Duration::from_millis(300)), None);
    phone.send(&phone.text(&phone.call("OPTIONS", "sip:example.org")));
    phone.hears_nothing();
}
