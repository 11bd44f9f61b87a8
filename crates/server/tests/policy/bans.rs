//! Sources that fail too often, and scanners.

use crate::site::*;

fn wrong(phone: &Phone) -> Got {
    let call = phone.register_call("");
    let challenge = phone.ask(&call);
    phone.ask(&phone.authorized(&call, &challenge, "bob", "wrong"))
}

#[test]
fn who_fails_too_often_is_not_heard() {
    let site = Site::start("ban.exempt = []\nban.failures = 3\nban.duration = \"2s\"", &["bob"]);
    let bob = site.phone("bob");
    for _ in 0..3 {
        assert_eq!(wrong(&bob).status(), 401);
    }
    bob.send(&bob.text(&bob.call("OPTIONS", "sip:example.org")));
    bob.hears_nothing();
    assert!(site.server().counts().banned > 0);
    // Not for ever.
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert_eq!(bob.ask(&bob.call("OPTIONS", "sip:example.org")).status(), 200);
    bob.register();
}

#[test]
fn by_udp_only_a_nonce_of_ours_counts() {
    let site = Site::start("ban.exempt = []\nban.failures = 2", &["bob"]);
    let bob = site.phone("bob");
    for _ in 0..6 {
        // Whoever forges a source never saw a challenge.
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
    let site = Site::start("ban.enabled = false\nban.exempt = []\nban.failures = 1", &["bob"]);
    let bob = site.phone("bob");
    for _ in 0..4 {
        assert_eq!(wrong(&bob).status(), 401);
    }
    bob.register();
}

#[test]
fn those_exempt_may_fail() {
    let site = Site::start("ban.failures = 1", &["bob"]);
    let bob = site.phone("bob");
    for _ in 0..4 {
        assert_eq!(wrong(&bob).status(), 401);
    }
    bob.register();
}

#[test]
fn scanners_hear_nothing() {
    let site = Site::start("ban.exempt = []", &[]);
    let phone = site.stranger();
    let mut call = phone.call("OPTIONS", "sip:example.org");
    call.lines = "User-Agent: Friendly-Scanner/1.0\n".into();
    phone.send(&phone.text(&call));
    phone.hears_nothing();
    // Its source may be forged: by UDP nobody is banned for it.
    assert_eq!(phone.ask(&phone.call("OPTIONS", "sip:example.org")).status(), 200);
    assert_eq!(site.server().counts().banned, 1);
}
