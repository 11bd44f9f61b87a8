//! Usage of a dialog (RFC 5057) as stated by our route tokens and seals, and its renewal.

use super::rig::*;
use super::route_tokens::{End, passes, uri_of};
use strowger_core::proxy::Plan;
use strowger_core::routing::Usage;

/// Returns the usage that a request of this end proves; `None` if it proves no dialog.
fn usage(rig: &Rig, end: &End) -> Option<Usage> {
    rig.routing(&end.text("INFO", ""), |router, request| {
        let routing = router.route(rig.now, request);
        routing.in_dialog.then_some(routing.usage)
    })
}

/// Makes a dialog of alice and bob by her request and his response with this status. Returns the request that bob gets, his end and hers.
fn dialog(rig: &mut Rig, method: &str, status: u16) -> (Sent, End, End) {
    let made = only(rig.request(&alice(method, "sip:bob@example.org", ""), udp(ALICE), &[contact(BOB, 1000)]));
    let response = only(rig.answer(&made, status, "Contact: <sip:bob@10.2.2.2>\n"));
    (made.clone(), End::called(&made, "at5060"), End::caller(&response))
}

#[test]
fn a_route_token_states_the_usage_of_its_dialog() {
    for (method, tracked, usages) in [
        ("INVITE", false, [Usage::Early, Usage::Call, Usage::Call]),
        ("INVITE", true, [Usage::Early, Usage::TrackedCall, Usage::TrackedCall]),
        ("SUBSCRIBE", false, [Usage::Subscription; 3]),
        ("REFER", true, [Usage::Subscription; 3]),
        ("NOTIFY", false, [Usage::Subscription; 3]),
    ] {
        let [early, answered, back] = usages.map(Some);
        for (status, expected) in [(183, early), (200, answered)] {
            let mut rig = Rig::new();
            rig.plan = Plan { tracked, ..Plan::default() };
            let (_, bob, alice_end) = dialog(&mut rig, method, if method == "INVITE" { status } else { 200 });
            assert_eq!([usage(&rig, &alice_end), usage(&rig, &bob)], [expected, back], "{method} {status}");
        }
    }
}

/// Checks that without a Route a seal alone proves a dialog, with the usage of the dialog in which the seal was
/// written.
#[test]
fn a_seal_states_the_usage_of_its_dialog() {
    for (method, of_dialog) in [("INVITE", Usage::Call), ("SUBSCRIBE", Usage::Subscription)] {
        let mut rig = Rig::new();
        let (_, mut bob, alice_end) = dialog(&mut rig, method, 200);
        let own = "Contact: <sip:a2@10.1.1.1:5060>\n";
        let update = only(rig.request(&alice_end.text("SUBSCRIBE", own), udp(ALICE), &[]));
        bob.uri = uri_of(&update);
        bob.routes.clear();
        assert_eq!(usage(&rig, &bob), Some(of_dialog), "{method}: {}", bob.uri);
        let ok = only(rig.answer(&update, 200, "Contact: <sip:b2@10.2.2.2>\n"));
        let alone = alice_end.with(|end| (end.uri, end.routes) = (uri_of(&ok), Vec::new()));
        assert_eq!(usage(&rig, &alone), Some(of_dialog), "{method}: {}", alone.uri);
    }
}

/// RFC 6665 section 4.3: a proxy that stays on the route record-routes the initial SUBSCRIBE and all NOTIFY requests.
#[test]
fn each_notify_is_record_routed() {
    let mut rig = Rig::new();
    let (_, bob, alice_end) = dialog(&mut rig, "SUBSCRIBE", 202);
    // The subscriber may learn the dialog from the NOTIFY, which arrives before the answer or comes from a second notifier.
    let own = "Contact: <sip:bob@10.2.2.2>\n";
    let notify = only(rig.request(&bob.text("NOTIFY", own), udp(BOB), &[]));
    assert_eq!(notify.to(), ALICE);
    assert_eq!(notify.all("Record-Route").len(), 1, "{}", notify.0);
    let subscriber = alice_end.with(|end| {
        end.uri = uri_of(&notify);
        end.routes = notify.all("Record-Route").iter().map(ToString::to_string).collect();
    });
    assert_eq!(usage(&rig, &subscriber), Some(Usage::Subscription));
    // A refresh renews the targets; the route set stays (RFC 3261 section 12.2).
    let refresh = only(rig.request(&subscriber.text("SUBSCRIBE", "Contact: <sip:a@10.1.1.1>\n"), udp(ALICE), &[]));
    assert_eq!((refresh.to().as_str(), refresh.all("Record-Route").len()), (BOB, 0));
    rig.plan.record_route = false;
    let notify = only(rig.request(&bob.text("NOTIFY", own), udp(BOB), &[]));
    assert_eq!(notify.all("Record-Route").len(), 0);
}

/// Checks that an INVITE that is not admitted as a request of its dialog creates a new dialog.
#[test]
fn an_invite_outside_of_its_dialog_is_record_routed() {
    for (outside, count) in [(false, 0), (true, 1)] {
        let mut rig = Rig::new();
        let (_, _, alice_end) = dialog(&mut rig, "SUBSCRIBE", 200);
        rig.plan.outside = outside;
        let text = alice_end.text("INVITE", "Contact: <sip:alice@10.1.1.1:5060>\n");
        let invite = only(rig.request(&text, udp(ALICE), &[]));
        assert_eq!(invite.all("Record-Route").len(), count, "{}", invite.0);
        if outside {
            let ok = only(rig.answer(&invite, 200, "Contact: <sip:bob@10.2.2.2>\n"));
            assert_eq!(usage(&rig, &End::caller(&ok)), Some(Usage::Call));
        }
    }
    // A To tag invented by a peer.
    let mut rig = Rig::new();
    let text = alice("INVITE", "sip:bob@example.org", "").replace("To: <sip:bob@example.org>", "To: <sip:b@h>;tag=x");
    let invite = only(rig.request(&text, udp(ALICE), &[contact(BOB, 1000)]));
    assert_eq!(invite.all("Record-Route").len(), 1, "{}", invite.0);
}

/// Checks that a session refresh (RFC 4028) renews the targets of a call, even with another proxy between this server
/// and a party.
#[test]
fn a_call_behind_another_proxy_that_is_refreshed_goes_on() {
    const EDGE: &str = "10.5.5.5:5060";
    let behind_edge =
        |text: &str, n: u32| text.replacen("Via: ", &format!("Via: SIP/2.0/UDP 10.5.5.5;branch=z9hG4bKe{n}\nVia: "), 1);
    let mut rig = Rig::with_lifetime(3_600);
    let invite = alice("INVITE", "sip:bob@example.org", "Record-Route: <sip:10.5.5.5;lr>\n");
    let invite = only(rig.request(&behind_edge(&invite, 0), udp(EDGE), &[contact(BOB, 1000)]));
    let ok = only(rig.answer(&invite, 200, "Contact: <sip:bob@10.2.2.2>\n"));
    let (mut bob, mut alice_end) = (End::called(&invite, "at5060"), End::caller(&ok));
    alice_end.routes.retain(|route| !route.contains("10.5.5.5"));
    assert_eq!((bob.routes.len(), alice_end.routes.len()), (2, 1));
    for n in 1..5 {
        rig.pass(3_000_000);
        let own = "Contact: <sip:alice@10.1.1.1:5060>\n";
        let update = only(rig.request(&behind_edge(&alice_end.text("UPDATE", own), n), udp(EDGE), &[]));
        bob.uri = uri_of(&update);
        let ok = only(rig.answer(&update, 200, "Contact: <sip:bob@10.2.2.2>\n"));
        alice_end.uri = uri_of(&ok);
        assert!(passes(&rig, &bob) && passes(&rig, &alice_end), "{n}");
        // The route token is for the route by that proxy, the seal for this Contact.
        assert!(!passes(&rig, &bob.with(|end| end.routes[1] = "<sip:10.5.5.6;lr>".into())));
        assert!(!passes(&rig, &bob.with(|end| drop(end.routes.remove(0)))), "no route token");
        let unsealed = bob.with(|end| end.uri = "sip:alice@10.1.1.1:5060".into());
        assert_eq!(passes(&rig, &unsealed), n == 1, "without a seal as long as the route token lasts");
    }
    assert_eq!(usage(&rig, &bob), Some(Usage::Call));
    rig.now.wall += 3_601_000;
    assert!(!passes(&rig, &bob) && !passes(&rig, &alice_end), "it is refreshed no longer");
}
