//! Route tokens and seals: a party of a call reaches by them only the other party of that call.

use super::rig::*;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use strowger_core::Transport;
use strowger_core::proxy::ProxySettings;

/// End of a call: its part of a request to the other end.
#[derive(Clone, Debug)]
pub(super) struct End {
    pub(super) uri: String,
    pub(super) routes: Vec<String>,
    from: String,
    to: String,
}

impl End {
    /// Returns the caller's end, by the response that it got.
    pub(super) fn caller(response: &Sent) -> Self {
        let routes = response.all("Record-Route").iter().rev().map(ToString::to_string).collect();
        Self { uri: uri_of(response), routes, from: response.one("From").into(), to: response.one("To").into() }
    }

    /// Returns the callee's end, by the request that it got and the tag of its answer.
    pub(super) fn called(invite: &Sent, tag: &str) -> Self {
        let routes = invite.all("Record-Route").iter().map(ToString::to_string).collect();
        let from = format!("{};tag={tag}", invite.one("To"));
        Self { uri: uri_of(invite), routes, from, to: invite.one("From").into() }
    }

    pub(super) fn text(&self, method: &str, lines: &str) -> String {
        let routes: String = self.routes.iter().map(|route| format!("Route: {route}\n")).collect();
        static BRANCHES: AtomicU64 = AtomicU64::new(0);
        format!(
            "{method} {} SIP/2.0\nVia: SIP/2.0/UDP 10.9.9.9:5060;branch=z9hG4bK{}\nMax-Forwards: 70\n{routes}From: {}\n\
             To: {}\nCall-ID: call@10.1.1.1\nCSeq: 7 {method}\n{lines}Content-Length: 0\n",
            self.uri,
            BRANCHES.fetch_add(1, Relaxed),
            self.from,
            self.to
        )
    }

    pub(super) fn with(&self, change: impl FnOnce(&mut Self)) -> Self {
        let mut changed = self.clone();
        change(&mut changed);
        changed
    }
}

pub(super) fn uri_of(message: &Sent) -> String {
    message.one("Contact").split(['<', '>']).nth(1).expect("a URI in angle brackets").to_owned()
}

/// Makes a call from Alice to Bob, who answers. Returns his end and hers.
fn call(rig: &mut Rig) -> (End, End) {
    let invite = only(rig.request(&alice("INVITE", "sip:bob@example.org", ""), udp(ALICE), &[contact(BOB, 1000)]));
    let ok = only(rig.answer(&invite, 200, "Contact: <sip:bob@10.2.2.2>\n"));
    (End::called(&invite, "at5060"), End::caller(&ok))
}

/// Tells whether the request is accepted as one of an admitted call.
pub(super) fn passes(rig: &Rig, end: &End) -> bool {
    rig.routing(&end.text("BYE", ""), |router, request| router.route(rig.now, request).in_dialog)
}

/// Returns the target and the Request-URI of the forwarded request.
fn goes(rig: &mut Rig, end: &End) -> (String, String) {
    let sent = only(rig.request(&end.text("BYE", ""), udp("10.9.9.9:5060"), &[]));
    (sent.to(), sent.uri().to_owned())
}

#[test]
fn each_party_reaches_the_other() {
    let mut rig = Rig::new();
    let (bob, alice) = call(&mut rig);
    assert!(passes(&rig, &alice) && passes(&rig, &bob));
    assert_eq!(goes(&mut rig, &alice).0, BOB);
    assert_eq!(goes(&mut rig, &bob).0, ALICE);
    // By any server with the same secret, with all own routes at once, with parameters that lead nowhere.
    let other = Rig::seeded(ProxySettings::default(), 2);
    assert!(passes(&other, &alice) && passes(&other, &bob));
    assert!(passes(&rig, &alice.with(|end| end.routes.insert(0, "<sip:10.0.0.1;lr>".into()))));
    assert!(passes(&rig, &alice.with(|end| end.uri = "sip:%62ob@10.2.2.2:5060;transport=udp;x=y".into())));
    rig.end();
}

#[test]
fn a_route_token_opens_no_other_call_and_no_other_direction() {
    let mut rig = Rig::new();
    let (bob, alice) = call(&mut rig);
    let (there, back) = (alice.routes[0].clone(), bob.routes[0].clone());
    let (start, token) = there.trim_end_matches('>').split_once(";d=").expect("a route token");
    let refused = [
        // No token, or none of ours.
        alice.with(|end| end.routes.clear()),
        alice.with(|end| end.routes[0] = "<sip:10.0.0.1;lr>".into()),
        alice.with(|end| end.routes[0] = "<sip:10.0.0.1;lr;d>".into()),
        alice.with(|end| end.routes[0] = format!("{start};d={}>", "A".repeat(token.len()))),
        alice.with(|end| end.routes[0] = format!("{start};d={token}A>")),
        alice.with(|end| end.routes[0] = format!("{start};d={}>", &token[..token.len() - 1])),
        alice.with(|end| end.routes[0] = there.replace("10.0.0.1", "10.0.0.2")),
        alice.with(|end| end.routes[0] = format!("{start};d=x;d={token}>")),
        // The token of the other direction, alone and before the right one.
        alice.with(|end| end.routes[0] = back.clone()),
        alice.with(|end| end.routes.insert(0, back.clone())),
        bob.with(|end| end.routes[0] = there.clone()),
        // The tags are exchanged, foreign, or missing.
        alice.with(|end| std::mem::swap(&mut end.from, &mut end.to)),
        bob.with(|end| std::mem::swap(&mut end.from, &mut end.to)),
        alice.with(|end| end.to = "<sip:bob@example.org>;tag=other".into()),
        alice.with(|end| end.to = "<sip:bob@example.org>".into()),
    ];
    for end in &refused {
        assert!(!passes(&rig, end), "{end:#?}");
    }
    let text = alice.text("BYE", "").replace("call@10.1.1.1", "other@10.1.1.1");
    assert!(!rig.routing(&text, |router, request| router.route(NOW, request).in_dialog));
    // Another secret.
    let stranger = Rig::of(b"10.0.0.1:5060", b"another");
    assert!(!passes(&stranger, &alice));
}

#[test]
fn a_route_token_leads_nowhere_else() {
    let mut rig = Rig::new();
    let (bob, alice) = call(&mut rig);
    for uri in [
        "sip:+1900@10.2.2.2",
        "sip:10.2.2.2",
        "sip:bob@10.2.2.3",
        "sip:bob@10.2.2.2:5061",
        "sip:bob@10.2.2.2;transport=tcp",
        "sip:bob@10.2.2.2;maddr=10.6.6.6",
        "sip:bob@10.2.2.2;maddr=10.0.0.1",
        "sips:bob@10.2.2.2",
        "sip:bob:pw@10.2.2.2",
        "sip:bob@gateway.example",
        "sip:alice@10.1.1.1:5060",
        "tel:+1900",
        "urn:service:sos",
    ] {
        assert!(!passes(&rig, &alice.with(|end| end.uri = uri.into())), "{uri}");
    }
    for route in ["<sip:10.6.6.6;lr>", "<sip:10.2.2.2;lr>", "<sip:bob@10.2.2.2>", "<tel:+1900>", "<sip:example.net>"] {
        for (name, end) in [("alice", &alice), ("bob", &bob)] {
            assert!(!passes(&rig, &end.with(|end| end.routes.push(route.into()))), "{name} {route}");
            assert!(!passes(&rig, &end.with(|end| end.routes.insert(0, route.into()))), "{name} {route} first");
        }
    }
}

#[test]
fn a_route_token_ends() {
    let mut rig = Rig::with_lifetime(3_600);
    let (bob, alice) = call(&mut rig);
    rig.now.wall += 3_600_000;
    assert!(passes(&rig, &alice) && passes(&rig, &bob));
    rig.now.wall += 1_000;
    assert!(!passes(&rig, &alice) && !passes(&rig, &bob));
}

/// Checks that the targets of an open call are renewed, and with them the tokens and seals that prove them (RFC 4028).
#[test]
fn a_call_that_is_refreshed_goes_on() {
    let mut rig = Rig::with_lifetime(3_600);
    let (mut bob, mut alice) = call(&mut rig);
    for _ in 0..5 {
        rig.pass(3_000_000);
        let own = "Contact: <sip:alice@10.1.1.1:5060>\n";
        let update = only(rig.request(&alice.text("UPDATE", own), udp(ALICE), &[]));
        bob.uri = uri_of(&update);
        let ok = only(rig.answer(&update, 200, "Contact: <sip:bob@10.2.2.2>\n"));
        alice.uri = uri_of(&ok);
        assert!(passes(&rig, &alice) && passes(&rig, &bob));
    }
    assert_eq!(goes(&mut rig, &alice), (BOB.into(), "sip:bob@10.2.2.2".into()));
    assert_eq!(goes(&mut rig, &bob), (ALICE.into(), "sip:alice@10.1.1.1:5060".into()));
}

/// Checks that the time of the route token decides after the removal of an account and after a restart of the server.
#[test]
fn a_refresh_makes_no_route_token_younger() {
    let mut rig = Rig::with_lifetime(3_600);
    let (mut bob, mut alice) = call(&mut rig);
    let began = strowger_core::routing::seconds(rig.now);
    for n in 1..5 {
        rig.pass(3_000_000);
        let update = only(rig.request(&alice.text("UPDATE", "Contact: <sip:alice@10.1.1.1:5060>\n"), udp(ALICE), &[]));
        bob.uri = uri_of(&update);
        let ok = only(rig.answer(&update, 200, "Contact: <sip:bob@10.2.2.2>\n"));
        alice.uri = uri_of(&ok);
        for end in [&alice, &bob] {
            let (made, renewed, account) = rig.routing(&end.text("BYE", ""), |router, request| {
                let routing = router.route(rig.now, request);
                (routing.made, routing.renewed, routing.account)
            });
            let is_stale = n > 1;
            assert_eq!((made, renewed), (began, if is_stale { began + 3_000 * n } else { began }), "{n}");
            assert!(account.is_some(), "the route token states it");
        }
    }
}

#[test]
fn a_target_that_is_renewed_is_reached() {
    let mut rig = Rig::new();
    for method in ["INVITE", "UPDATE", "SUBSCRIBE", "NOTIFY", "REFER"] {
        let (bob, alice) = call(&mut rig);
        // The caller moves; the callee moves in the answer.
        let again =
            only(rig.request(&alice.text(method, "Contact: <sip:a2@203.0.113.7>\n"), udp("203.0.113.7:5060"), &[]));
        assert_eq!((again.to().as_str(), again.uri()), (BOB, "sip:bob@10.2.2.2"), "{method}");
        let ok = only(rig.answer(&again, 200, "Contact: <sip:b2@198.51.100.7:5070>\n"));
        let (alice_2, bob_2) = (alice.with(|end| end.uri = uri_of(&ok)), bob.with(|end| end.uri = uri_of(&again)));
        assert_eq!(goes(&mut rig, &alice_2), ("198.51.100.7:5070".into(), "sip:b2@198.51.100.7:5070".into()));
        assert_eq!(goes(&mut rig, &bob_2), ("203.0.113.7:5060".into(), "sip:a2@203.0.113.7".into()));
        for end in [&alice_2, &bob_2] {
            assert!(passes(&rig, end));
            // Without the seal, with another target under it, with the seal of the other party.
            let plain = |uri: &str| uri.split(";x-strowger").next().expect("a part").to_owned();
            assert!(!passes(&rig, &end.with(|end| end.uri = plain(&end.uri))));
            assert!(!passes(&rig, &end.with(|end| end.uri = end.uri.replace("sip:", "sip:x"))));
            let other = if end.to == alice.to { &bob_2 } else { &alice_2 };
            assert!(!passes(&rig, &end.with(|end| end.uri = other.uri.clone())));
        }
        // A method that makes no new target changes none.
        let info = only(rig.request(&alice.text("INFO", "Contact: <sip:a3@10.1.1.8>\n"), udp(ALICE), &[]));
        assert_eq!(info.one("Contact"), "<sip:a3@10.1.1.8>");
        rig.pass(600_000);
    }
}

/// Checks that a party behind a proxy that record-routes is reached through that proxy, and is itself the target.
#[test]
fn behind_another_proxy_both_the_way_and_the_party_count() {
    let mut rig = Rig::new();
    let invite = alice("INVITE", "sip:bob@example.org", "Record-Route: <sip:p1.example.net;lr;x=1>\n").replacen(
        "Via: ",
        "Via: SIP/2.0/UDP 10.5.5.5;branch=z9hG4bKp1\nVia: ",
        1,
    );
    let invite = only(rig.request(&invite, udp("10.5.5.5:5060"), &[contact("10.6.6.6:5060", 1000)]));
    let text = String::from_utf8(respond(&invite, 200, "Contact: <sip:bob@192.168.3.3>\n")).unwrap();
    let text = text.replacen("Record-Route: ", "Record-Route: <sip:10.6.6.6;lr;y>\r\nRecord-Route: ", 1);
    let ok = only(rig.response(text.as_bytes(), udp("10.6.6.6:5060")));
    let bob = End::called(&invite, "at5060");
    let alice = End::caller(&ok).with(|end| drop(end.routes.remove(0)));
    assert_eq!((bob.routes.len(), alice.routes.len()), (2, 2));
    assert!(passes(&rig, &bob) && passes(&rig, &alice));
    assert_eq!(goes(&mut rig, &alice), ("10.6.6.6:5060".into(), "sip:bob@192.168.3.3".into()));
    for end in [&alice, &bob] {
        assert!(!passes(&rig, &end.with(|end| end.uri = "sip:+1900@gateway.example".into())));
        assert!(!passes(&rig, &end.with(|end| end.routes.truncate(1))));
        assert!(!passes(&rig, &end.with(|end| end.routes[1] = "<sip:10.6.6.7;lr>".into())));
        // Routes behind the next proxy are the affair of that proxy.
        assert!(passes(&rig, &end.with(|end| end.routes.push("<sip:10.3.3.3;lr>".into()))));
    }
    // A renewed target is proved here too, though it is not the next hop, and our seal goes no further.
    let update = alice.text("UPDATE", "Contact: <sip:a2@192.168.1.1>\n");
    let update = only(rig.request(&update, udp("10.5.5.5:5060"), &[]));
    let ok = only(rig.answer(&update, 200, "Contact: <sip:b2@192.168.3.4>\n"));
    let alice = alice.with(|end| end.uri = uri_of(&ok));
    assert!(alice.uri.contains(";x-strowger=") && passes(&rig, &alice));
    assert_eq!(goes(&mut rig, &alice), ("10.6.6.6:5060".into(), "sip:b2@192.168.3.4".into()));
}

/// Covers strict routers (RFC 3261 section 16.6 step 6) on either side of this server.
#[test]
fn strict_routers_count_as_others() {
    let mut rig = Rig::new();
    let invite = alice("INVITE", "sip:bob@example.org", "Record-Route: <sip:10.5.5.5>\n");
    let invite = only(rig.request(&invite, udp("10.5.5.5:5060"), &[contact(BOB, 1000)]));
    let ok = only(rig.answer(&invite, 200, "Contact: <sip:bob@10.2.2.2>\n"));
    // To the strict router: it becomes the Request-URI, and the party's Contact the last Route.
    let bob = End::called(&invite, "at5060");
    assert!(passes(&rig, &bob));
    assert_eq!(goes(&mut rig, &bob), ("10.5.5.5:5060".into(), "sip:10.5.5.5".into()));
    // From the strict router: our Record-Route is the Request-URI.
    let alice = End::caller(&ok);
    let own = alice.routes[1].trim_matches(['<', '>']).to_owned();
    let from_strict = |uri: &str| {
        alice.with(|end| {
            end.routes = vec![format!("<{uri}>")];
            end.uri = own.clone();
        })
    };
    assert!(passes(&rig, &from_strict(&alice.uri)));
    assert!(!passes(&rig, &from_strict("sip:+1900@10.2.2.2")));
    assert!(!passes(&rig, &from_strict("sip:bob@10.2.2.9")));
    let update = only(rig.request(&from_strict(&alice.uri).text("UPDATE", ""), udp("10.5.5.5:5060"), &[]));
    let ok = only(rig.answer(&update, 200, "Contact: <sip:b2@198.51.100.7>\n"));
    assert_eq!(goes(&mut rig, &from_strict(&uri_of(&ok))), ("198.51.100.7:5060".into(), "sip:b2@198.51.100.7".into()));
}

#[test]
fn early_dialogs_of_a_fork_are_told_apart() {
    let mut rig = Rig::new();
    let tries = [contact("10.2.2.2:5060", 1000), contact("10.3.3.3:5070", 1000)];
    let sent = rig.request(&alice("INVITE", "sip:bob@example.org", ""), udp(ALICE), &tries);
    let ends: Vec<End> = sent
        .iter()
        .map(|invite| {
            let lines = format!("Contact: <sip:bob@{}>\n", invite.to());
            End::caller(&only(rig.answer(invite, 183, &lines)))
        })
        .collect();
    assert!(passes(&rig, &ends[0]) && passes(&rig, &ends[1]));
    assert!(!passes(&rig, &ends[0].with(|end| end.uri = ends[1].uri.clone())));
    assert!(!passes(&rig, &ends[0].with(|end| end.routes = ends[1].routes.clone())));
    let ok = &rig.answer(&sent[1], 200, "Contact: <sip:bob@10.3.3.3:5070>\n")[0].clone();
    assert!(passes(&rig, &End::caller(ok)));
}

#[test]
fn a_party_without_a_contact_is_not_reached_by_a_route_token() {
    let mut rig = Rig::new();
    let text = alice("INVITE", "sip:bob@example.org", "").replace("Contact: <sip:alice@10.1.1.1:5060>\n", "");
    let invite = only(rig.request(&text, udp(ALICE), &[contact(BOB, 1000)]));
    let silent = End {
        uri: "sip:alice@10.1.1.1:5060".into(),
        ..End::called(&only(rig.answer(&invite, 180, "Contact: <sip:x@10.2.2.2>\n")), "")
    };
    let bob = silent.with(|end| {
        end.routes = invite.all("Record-Route").iter().map(ToString::to_string).collect();
        (end.from, end.to) = ("<sip:bob@example.org>;tag=at5060".into(), invite.one("From").into());
    });
    assert!(!passes(&rig, &bob));
    // A 180 without a Contact makes no target; the 200 with one does.
    let ringing = only(rig.answer(&invite, 180, "Supported: 100rel\n"));
    let ok = only(rig.answer(&invite, 200, "Contact: <sip:bob@10.2.2.2>\n"));
    let alice = End::caller(&ok);
    assert!(passes(&rig, &alice));
    let early = alice.with(|end| end.routes = ringing.all("Record-Route").iter().map(ToString::to_string).collect());
    assert!(!passes(&rig, &early));
}

/// Covers a request that passes this server twice and so has two own Record-Routes, between which there may be one of
/// another proxy.
#[test]
fn a_call_that_passes_us_twice_goes_on() {
    for between in [false, true] {
        let mut rig = Rig::new();
        let first = alice("INVITE", "sip:bob@10.4.4.4", "");
        let first = only(rig.request(&first, udp(ALICE), &to("10.4.4.4:5060")));
        // The request comes back for another target.
        let lines = if between { "Record-Route: <sip:10.4.4.4;lr>\r\nRecord-Route: " } else { "Record-Route: " };
        let round = first.0.replacen("INVITE sip:bob@10.4.4.4", "INVITE sip:bob@10.2.2.2", 1);
        let round = round.replacen("Via: ", "Via: SIP/2.0/UDP 10.4.4.4;branch=z9hG4bKround\r\nVia: ", 1);
        let round = round.replacen("Record-Route: ", lines, 1);
        let second = only(rig.request(&round, udp("10.4.4.4:5060"), &to(BOB)));
        let ok = only(rig.answer(&second, 200, "Contact: <sip:bob@10.2.2.2>\n"));
        let back = ok.0.replacen("Via: SIP/2.0/UDP 10.4.4.4;branch=z9hG4bKround\r\n", "", 1);
        let ok = only(rig.response(back.as_bytes(), udp("10.4.4.4:5060")));
        let (alice, bob) = (End::caller(&ok), End::called(&second, "at5060"));
        assert!(passes(&rig, &alice) && passes(&rig, &bob), "{between} {alice:#?} {bob:#?}");
        let (next, uri) = if between { ("10.4.4.4:5060", ALICE) } else { (BOB, BOB) };
        assert_eq!(goes(&mut rig, &alice).0, next, "{uri}");
    }
}

#[test]
fn a_seal_is_for_the_call_of_its_contact() {
    let mut rig = Rig::new();
    let (_, alice_end) = call(&mut rig);
    // Bob behind NAT, in another call.
    let invite = alice("INVITE", "sip:bob@example.org", "").replace("call@", "hidden@").replace("bKa", "bKhidden");
    let tries = [Try { uri: Some("sip:bob@192.168.8.8".into()), ..contact("10.50.0.2:40002", 1000) }];
    let invite = only(rig.request(&invite, udp(ALICE), &tries));
    let ok = only(rig.answer(&invite, 200, "Contact: <sip:bob@192.168.8.8>\n"));
    let sealed = uri_of(&ok);
    let device = |rig: &Rig, text: &str| rig.routing(text, |router, request| router.route(rig.now, request).device);
    // It is no Contact of the first call: neither by its route token nor by itself.
    let copied = alice_end.with(|end| end.uri = sealed.clone());
    assert!(!passes(&rig, &copied) && device(&rig, &copied.text("BYE", "")).is_none());
    // Outside of a dialog it proves the address of its device, but does not admit the request.
    let fresh = alice("INVITE", &sealed, "");
    assert_eq!(device(&rig, &fresh).map(|to| to.address.to_string()).as_deref(), Some("10.50.0.2:40002"));
    assert!(!rig.routing(&fresh, |router, request| router.route(NOW, request).in_dialog));
    let sent = only(rig.request(&fresh.replace("call@", "new@").replace("bKa", "bKnew"), udp(ALICE), &[]));
    assert_eq!((sent.to().as_str(), sent.uri()), ("10.50.0.2:40002", "sip:bob@192.168.8.8"));
    // Forged, on another Contact, behind another's Route, too old.
    let (start, value) = sealed.split_at(sealed.len() - 1);
    let other = if value == "A" { "B" } else { "A" };
    for uri in
        [format!("{start}{other}"), sealed.replace("192.168.8.8", "10.2.2.2"), format!("{sealed};maddr=10.6.6.6")]
    {
        assert!(device(&rig, &alice("INVITE", &uri, "")).is_none(), "{uri}");
    }
    assert!(device(&rig, &alice("INVITE", &sealed, "Route: <sip:10.6.6.6;lr>\n")).is_none());
    rig.now.wall += 86_401_000;
    assert!(device(&rig, &fresh).is_none());
}

/// Checks that a Route that names an own listener selects it, and that no other text of a peer does.
#[test]
fn a_party_is_reached_by_a_listener_that_fits() {
    let mut rig = Rig::new();
    let came = by(TLS, Transport::Tls, "10.1.1.1:33333");
    let invite = only(rig.request(&alice("INVITE", "sip:bob@10.2.2.2", ""), came, &to(BOB)));
    let bob = End::called(&invite, "at5060");
    let text = bob.text("BYE", "");
    let routing = rig.routing(&text, |router, request| router.route(NOW, request).device);
    assert_eq!(routing.map(|way| (way.listener, way.flow)), Some((TLS, came.flow)));
    // Without a listener for its transport it is unreachable.
    let udp_only = Rig::of(b"10.0.0.1:5060", b"secret");
    assert!(udp_only.routing(&text, |router, request| router.route(NOW, request).device.is_none()));
}
