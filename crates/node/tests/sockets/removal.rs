//! Removal of users whose phones are registered.

use crate::site::*;
use std::time::{Duration, Instant};
use strowger_store::subscriber::SubscriberAdmin;

fn until_bindings(site: &Site, most: usize) {
    let end = Instant::now() + Duration::from_secs(10);
    while site.server().bindings() > most {
        assert!(Instant::now() < end, "{} bindings stay", site.server().bindings());
        // Interval between two checks.
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn who_is_removed_cannot_be_called_any_more() {
    let mut site = Site::start("auth.calls = false", &["alice", "bob"]);
    let (alice, bob, second) = (site.phone("alice"), site.phone("bob"), site.phone("bob"));
    alice.register();
    bob.register();
    second.register();
    assert_eq!(site.server().bindings(), 3);
    site.admin().remove("bob", "example.org").expect("there is one");
    until_bindings(&site, 1);
    let call = |to: &str| alice.ask(&alice.call("MESSAGE", &format!("sip:{to}@example.org"))).status();
    assert_eq!(call("bob"), 404);
    bob.hears_nothing();
    // The phone cannot authenticate any more either.
    let refresh = bob.register_call("Expires: 600\n");
    assert_eq!(bob.ask_as(&refresh, "bob").status(), 401);
    assert_eq!(site.server().bindings(), 1);
    // The removal is in the database: a restart does not undo it.
    site.restart();
    assert_eq!(site.server().bindings(), 1);
    assert_eq!(call("bob"), 404);
}

#[test]
fn who_gets_the_name_next_is_left_alone() {
    let mut site = Site::start("auth.calls = false", &["bob"]);
    let old = site.phone("bob");
    old.register();
    site.admin().remove("bob", "example.org").expect("there is one");
    site.admin()
        .add("bob", "example.org", "example.org", &ha1s("bob", "example.org", "another"), 0)
        .expect("the name is free");
    until_bindings(&site, 0);
    let caller = site.foreign_phone();
    assert_eq!(caller.ask(&caller.call("MESSAGE", "sip:bob@example.org")).status(), 480, "a user, and not there");
    // The removal is completed by now, and does not return with the next start.
    std::thread::sleep(Duration::from_millis(1_500));
    site.restart();
    let new = site.phone("bob");
    let register = new.register_call("Expires: 600\n");
    let register = new.authorized(&register, &new.ask(&register), "bob", "another");
    assert_eq!(new.ask(&register).status(), 200);
    // Longer than the execution of a removal takes.
    std::thread::sleep(Duration::from_millis(1_500));
    assert_eq!(site.server().bindings(), 1);
}
