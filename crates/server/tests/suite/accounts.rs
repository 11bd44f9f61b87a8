//! Accounts in route tokens: after the removal of an account its tokens give no access, with any From and after any
//! refresh.

use crate::call_beginnings::{GATEWAY, Office, reaches};
use crate::dialogs::{of_alice, of_bob};
use crate::site::{ALICE, line};
use strowger_server::engine::EngineInput;
use strowger_store::subscriber;

const ALICE_SAYS: &str = "Contact: <sip:alice@198.51.100.7:5060>\r\n";
const GATEWAY_SAYS: &str = "Contact: <sip:gw@203.0.113.1:5060>\r\n";
const OWN: &str = "sip:alice@example.org";
/// Values of From that a removed user may write.
const OTHERS: [&str; 4] = ["sip:bob@example.org", "sip:x@example.net", "sip:example.org", "tel:+4930"];

/// Returns whether a request of alice with this From reaches the gateway. If not, it is challenged or refused.
#[track_caller]
fn passes(office: &mut Office, method: &str, from: &str, ok: &str, cseq: u32) -> bool {
    let text = of_alice(method, ok, cseq, ALICE_SAYS).replace(OWN, from);
    let sent = office.site.receive(ALICE, &text);
    let is_sent = sent.contains(&format!("{method} sip:gw@"));
    let is_refused = ["407", "403"].iter().any(|status| sent.contains(&format!("SIP/2.0 {status} ")));
    assert_eq!(is_refused, !is_sent, "{method} {from}: {sent}");
    is_sent
}

fn remove_alice(office: &Office) {
    let now = office.site.now;
    office.site.shared.end_routes_of(b"alice", b"example.org", now);
}

#[test]
fn a_removed_user_renews_nothing_under_another_name() {
    let mut office = Office::new("");
    let (_, subscription) = office.dialog("SUBSCRIBE", "200 OK");
    let (_, call) = office.dialog("INVITE", "200 OK");
    for (n, from) in (5..).zip([OWN, OTHERS[0]]) {
        // A change of identity within a dialog (RFC 4916) concerns the other party.
        assert!(passes(&mut office, "SUBSCRIBE", from, &subscription, n), "{from}");
        assert!(passes(&mut office, "UPDATE", from, &call, n), "{from}");
    }
    remove_alice(&office);
    for (n, from) in (10..).zip([OWN].iter().chain(&OTHERS)) {
        for (method, ok) in [("SUBSCRIBE", &subscription), ("REFER", &subscription), ("INFO", &call), ("INVITE", &call)]
        {
            assert!(!passes(&mut office, method, from, ok, n), "{method} {from}");
        }
    }
    assert!(passes(&mut office, "BYE", OTHERS[0], &call, 30), "a call can be ended");
}

/// Checks that a renewal asks for the user of the route token, and for no other user. No event follows the deletion of
/// a row in a database.
#[test]
fn a_subscription_is_renewed_in_the_name_of_its_account() {
    let mut office = Office::new("registrar.authenticate = true\n");
    let (_, ok) = office.dialog("SUBSCRIBE", "200 OK");
    for (n, from) in (5..).zip(OTHERS) {
        assert!(!passes(&mut office, "SUBSCRIBE", from, &ok, n), "{from}");
    }
    let renewal = of_alice("SUBSCRIBE", &ok, 10, ALICE_SAYS);
    assert_eq!(office.site.receive(ALICE, &renewal), "", "it waits");
    let answer: EngineInput = office.site.says(Ok(subscriber::SubscriberAnswer::Exists));
    let sent = office.site.work(|engine, now, out| engine.answered(now, answer, out));
    let _ = reaches(&sent, "SUBSCRIBE");
}

/// Checks that a removed account gets no access by a younger seal: the seal of a Contact that the other party has
/// refreshed since the removal is younger than the removal, but the route token is not.
#[test]
fn no_refresh_makes_a_route_token_younger_than_a_removal() {
    for is_stale in [false, true] {
        let mut office = Office::new("proxy.route_lifetime = \"1h\"\ndialogs.lifetime = \"1h\"\n");
        let (forwarded, ok) = office.dialog("SUBSCRIBE", "200 OK");
        office.site.wait(1_000_000);
        remove_alice(&office);
        office.site.wait(1_000_000);
        let notify = of_bob("NOTIFY", &forwarded, "gw", 1, GATEWAY_SAYS);
        let notify = office.site.receive(GATEWAY, &notify);
        let target = line(reaches(&notify, "NOTIFY"), "Contact");
        assert!(target.contains(";x-strowger="), "{target}");
        if is_stale {
            office.site.wait(2_000_000);
        }
        let renewed = ok.replace(line(&ok, "Contact"), target);
        for (n, from) in (20..).zip([OWN].iter().chain(&OTHERS)) {
            assert!(!passes(&mut office, "SUBSCRIBE", from, &renewed, n), "{is_stale} {from}");
            assert!(!passes(&mut office, "MESSAGE", from, &renewed, n), "{is_stale} {from}");
        }
        assert!(passes(&mut office, "BYE", OWN, &renewed, 40), "{is_stale}");
    }
}

/// Covers a subscriber that takes its route set from a NOTIFY (RFC 6665 section 4.4.1).
#[test]
fn the_route_token_in_a_notify_states_the_account_of_its_subscriber() {
    for is_removed_before in [false, true] {
        let mut office = Office::new("");
        let (forwarded, ok) = office.dialog("SUBSCRIBE", "200 OK");
        if is_removed_before {
            office.site.wait(5_000);
            remove_alice(&office);
            office.site.wait(5_000);
        }
        let notify = of_bob("NOTIFY", &forwarded, "gw", 1, GATEWAY_SAYS);
        let notify = office.site.receive(GATEWAY, &notify);
        let notify = reaches(&notify, "NOTIFY");
        let by_notify = ok
            .replace(line(&ok, "Record-Route"), line(notify, "Record-Route"))
            .replace(line(&ok, "Contact"), line(notify, "Contact"));
        assert_ne!(by_notify, ok);
        if !is_removed_before {
            assert!(passes(&mut office, "SUBSCRIBE", OTHERS[0], &by_notify, 5));
            remove_alice(&office);
        }
        for (n, from) in (10..).zip([OWN].iter().chain(&OTHERS)) {
            assert!(!passes(&mut office, "SUBSCRIBE", from, &by_notify, n), "{is_removed_before} {from}");
            assert!(!passes(&mut office, "MESSAGE", from, &by_notify, n), "{is_removed_before} {from}");
        }
    }
}

/// Checks that a seal alone, which states no account, renews no subscription, and after a removal gives no access to
/// earlier dialogs. The route tokens of earlier versions state no account either.
#[test]
fn a_seal_alone_renews_no_subscription() {
    let mut office = Office::new("registrar.authenticate = true\n");
    let (forwarded, ok) = office.dialog("SUBSCRIBE", "200 OK");
    let notify = of_bob("NOTIFY", &forwarded, "gw", 1, GATEWAY_SAYS);
    let notify = office.site.receive(GATEWAY, &notify);
    let target = line(reaches(&notify, "NOTIFY"), "Contact");
    let sealed = ok.replace(line(&ok, "Contact"), target).replace(line(&ok, "Record-Route"), "<sip:192.0.2.1;lr>");
    assert!(passes(&mut office, "MESSAGE", OWN, &sealed, 4));
    assert!(!passes(&mut office, "SUBSCRIBE", OWN, &sealed, 5));
    office.site.wait(2_000);
    remove_alice(&office);
    assert!(!passes(&mut office, "MESSAGE", OTHERS[1], &sealed, 6));
}

/// Checks that the callee of a call has the account for which the call was.
#[test]
fn the_removal_of_a_callee_ends_what_its_route_token_opens() {
    let mut site = crate::site::Site::new(
        "auth.calls = true\n[[source]]\nname = \"pbx\"\nnetworks = [\"198.51.100.7\"]\ntrusted = true\n",
    );
    site.register("<sip:bob@198.51.100.8:5060>");
    let (forwarded, _) = crate::dialogs::answered(&mut site, 1);
    let mut info = |n: u32, from: &str, is_removed: bool| {
        let text = of_bob("INFO", &forwarded, "bob", n, "").replace("sip:bob@example.org", from);
        let sent = site.receive(crate::site::BOB, &text);
        assert_eq!(sent.contains("INFO sip:alice@"), !is_removed, "{from}: {sent}");
        if n == 2 {
            site.shared.end_routes_of(b"bob", b"example.org", site.now);
        }
    };
    info(1, "sip:bob@example.org", false);
    info(2, "sip:carol@example.org", false);
    for (n, from) in (3..).zip(["sip:bob@example.org", "sip:carol@example.org", "sip:carol@example.net"]) {
        info(n, from, true);
    }
}
