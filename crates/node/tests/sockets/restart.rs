//! Calls and bindings after a restart with the same database.

use crate::site::*;

#[test]
fn bindings_and_routes_outlive_a_restart() {
    let mut site = Site::start("", &["alice", "bob"]);
    let (alice, bob) = (site.phone("alice"), site.phone("bob"));
    bob.register();
    let (call, invite, ok) = alice.calls(&bob);
    site.restart();
    // The call continues in both directions.
    alice.continues_and_ends(&bob, &(call, invite, ok));
    // The next call reaches the phone.
    assert_eq!(site.server().bindings(), 1);
    alice.calls(&bob);
}
