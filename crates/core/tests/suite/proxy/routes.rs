//! Route and Record-Route: loose and strict routers, several values, own ones and others (sections 16.4 and 16.6).

use super::rig::*;
use strowger_core::{Target, Transport};

fn routed(uri: &str, routes: &str) -> Sent {
    only(Rig::new().request(&alice("INVITE", uri, routes), udp(ALICE), &[]))
}

#[test]
fn a_foreign_route_is_followed_and_stays() {
    let sent = routed("sip:bob@10.2.2.2", "Route: <sip:10.8.8.8:5070;lr>\n");
    assert_eq!((sent.to().as_str(), sent.uri()), ("10.8.8.8:5070", "sip:bob@10.2.2.2"));
    assert_eq!(sent.all("Route"), ["<sip:10.8.8.8:5070;lr>"]);
}

#[test]
fn our_own_route_goes_whichever_way_it_is_written() {
    let own = [
        "Route: <sip:10.0.0.1;lr>\nRoute: <sip:10.8.8.8;lr>\n",
        "Route: <sip:10.0.0.1:5060;lr>, <sip:10.8.8.8;lr>\n",
        "Route: \"us, the proxy\" <sip:10.0.0.1;lr>;x=y , <sip:10.8.8.8;lr>\n",
        "Route: <sip:example.org;lr>,<sip:10.8.8.8;lr>\n",
        "route: <sip:10.0.0.1;transport=tcp;lr>,\n <sip:10.0.0.1;lr>\nRoute: <sip:10.8.8.8;lr>\n",
        "Route: <sip:10.0.0.1;transport=udp;lr>,<sip:10.0.0.1:5061;transport=tls;lr>,<sip:10.8.8.8;lr>\n",
        "Route: <sips:10.0.0.1;lr>,<sip:10.8.8.8;lr>\n",
    ];
    for routes in own {
        let sent = routed("sip:bob@10.2.2.2", routes);
        assert_eq!((sent.to().as_str(), sent.uri()), ("10.8.8.8:5060", "sip:bob@10.2.2.2"), "{routes}");
        assert_eq!(sent.all("Route"), ["<sip:10.8.8.8;lr>"], "{routes}");
    }
    // Values after it on its line stay unchanged.
    let sent = routed("sip:bob@10.2.2.2", "Route: <sip:10.0.0.1;lr>, <sip:10.8.8.8;lr>  ,<sip:p2;lr>;q=\"x,y\"\n");
    assert_eq!(sent.all("Route"), ["<sip:10.8.8.8;lr>  ,<sip:p2;lr>;q=\"x,y\""]);
    // Without further Routes, the Request-URI is the target.
    let sent = routed("sip:bob@10.2.2.2", "Route: <sip:10.0.0.1;lr>\n");
    assert_eq!((sent.to().as_str(), sent.all("Route").len()), (BOB, 0));
}

#[test]
fn foreign_routes_are_not_taken_for_own_ones() {
    for route in ["<sip:10.0.0.1:5070;lr>", "<sip:10.0.0.2;lr>", "<sip:user@10.9.9.9;lr>"] {
        let routes = format!("Route: {route}\n");
        let own = Rig::new().routing(&alice("INVITE", "sip:bob@10.2.2.2", &routes), |p, r| p.route(NOW, r).own_route);
        assert!(!own, "{route}");
    }
}

#[test]
fn a_strict_router_before_us_is_undone() {
    // Section 16.4: our Record-Route is in the Request-URI, and the real one is the last Route.
    let mut rig = Rig::new();
    let sent = only(rig.request(&alice("INVITE", "sip:bob@10.2.2.2", ""), udp(ALICE), &to(BOB)));
    let own = sent.one("Record-Route").trim_matches(['<', '>']).to_owned();
    let ok = only(rig.answer(&sent, 200, "Contact: <sip:bob@10.2.2.2>\n"));
    let answered = ok.one("Record-Route").trim_matches(['<', '>']).to_owned();
    let bye = |uri: &str, routes: &str| {
        alice("BYE", uri, routes)
            .replace("sip:bob@example.org>", "sip:bob@example.org>;tag=at5060")
            .replace("CSeq: 1", "CSeq: 2")
    };
    let out = only(rig.request(&bye(&own, "Route: <sip:bob@10.2.2.2>\n"), udp(ALICE), &[]));
    assert_eq!((out.uri(), out.to().as_str(), out.all("Route").len()), ("sip:bob@10.2.2.2", BOB, 0));
    let text = bye(&own, "Route: <sip:10.8.8.8;lr>, <sip:bob@10.2.2.2>\n").replace("bKaBYE", "bK2");
    let out = only(rig.request(&text, udp(ALICE), &[]));
    assert_eq!((out.uri(), out.to().as_str()), ("sip:bob@10.2.2.2", "10.8.8.8:5060"));
    assert_eq!(out.all("Route"), ["<sip:10.8.8.8;lr>"]);
    let text = bye(&own, "Route: <sip:10.8.8.8;lr>\nRoute: <sip:bob@10.2.2.2>\n").replace("bKaBYE", "bK3");
    let out = only(rig.request(&text, udp(ALICE), &[]));
    assert_eq!((out.uri(), out.all("Route")), ("sip:bob@10.2.2.2", vec!["<sip:10.8.8.8;lr>"]));
    // The route token of the Request-URI counts.
    let text = bye(&answered, "Route: <sip:bob@10.2.2.2>\n");
    assert!(rig.routing(&text, |router, request| router.route(NOW, request).in_dialog));
    let text = bye(&answered, "Route: <sip:bob@10.2.2.9>\n");
    assert!(!rig.routing(&text, |router, request| router.route(NOW, request).in_dialog));
    let text = bye(&own, "Route: <sip:bob@10.2.2.2>\n");
    assert!(!rig.routing(&text, |router, request| router.route(NOW, request).in_dialog), "it leads to the caller");
}

/// Checks that only the first of several tokens is verified, since there may be thousands.
#[test]
fn the_first_of_several_route_tokens_decides() {
    let mut rig = Rig::new();
    let sent = only(rig.request(&alice("INVITE", "sip:bob@10.2.2.2", ""), udp(ALICE), &to(BOB)));
    let ok = only(rig.answer(&sent, 200, "Contact: <sip:bob@10.2.2.2>\n"));
    let right = ok.one("Record-Route").to_owned();
    let (start, token) = right.split_once(";d=").expect("it has a route token");
    let wrong = format!("{start};d={}", "A".repeat(token.len() - 1)) + ">";
    for (first, second, in_dialog) in [(&right, &wrong, true), (&wrong, &right, false)] {
        let bye = alice("BYE", "sip:bob@10.2.2.2", &format!("Route: {first}, {second}\n"))
            .replace("sip:bob@example.org>", "sip:bob@example.org>;tag=at5060");
        assert_eq!(rig.routing(&bye, |router, request| router.route(NOW, request).in_dialog), in_dialog);
    }
}

#[test]
fn a_strict_router_after_us_gets_its_own_uri() {
    // Section 16.6 step 6: the Request-URI becomes the last Route, the first Route the Request-URI.
    let sent = routed("sip:bob@10.2.2.2", "Route: <sip:10.0.0.1;lr>,<sip:10.8.8.8:5070>\n");
    assert_eq!((sent.uri(), sent.to().as_str()), ("sip:10.8.8.8:5070", "10.8.8.8:5070"));
    assert_eq!(sent.all("Route"), ["<sip:bob@10.2.2.2>"]);
    let sent = routed("sip:bob@10.2.2.2;x=y", "Route: <sip:10.8.8.8>\nRoute: <sip:10.7.7.7;lr>\n");
    assert_eq!(sent.uri(), "sip:10.8.8.8");
    assert_eq!(sent.all("Route"), ["<sip:10.7.7.7;lr>", "<sip:bob@10.2.2.2;x=y>"]);
    let sent = routed("sip:bob@10.2.2.2", "Route: <sip:10.8.8.8> , <sip:10.7.7.7>\n");
    assert_eq!((sent.uri(), sent.all("Route")), ("sip:10.8.8.8", vec!["<sip:10.7.7.7>", "<sip:bob@10.2.2.2>"]));
}

#[test]
fn two_of_ours_lead_from_one_side_to_the_other() {
    let mut rig = Rig::new();
    let mut tries = to("192.168.0.9:5060");
    tries[0].at[0].listener = INNER;
    let invite = only(rig.request(&alice("INVITE", "sip:bob@192.168.0.9", ""), udp(ALICE), &tries));
    let ok = only(rig.answer(&invite, 200, "Contact: <sip:bob@192.168.0.9>\n"));
    let recorded = ok.all("Record-Route");
    assert_eq!(recorded.len(), 2);
    // The caller's route set is the reversed list (section 12.1.2).
    let routes = format!("Route: {}, {}\n", recorded[1], recorded[0]);
    let bye = alice("BYE", "sip:bob@192.168.0.9", &routes)
        .replace("<sip:bob@example.org>", "<sip:bob@example.org>;tag=at5060");
    let out = only(rig.request(&bye, udp(ALICE), &[]));
    assert_eq!((out.target.listener, out.to().as_str()), (INNER, "192.168.0.9:5060"));
    assert!(out.all("Route").is_empty() && out.one("Via").contains("192.168.0.1:5060"));
    // The callee's is the list in its order (section 12.1.1).
    let bye = format!(
        "BYE sip:alice@10.1.1.1:5060 SIP/2.0\nVia: SIP/2.0/UDP 192.168.0.9:5060;branch=z9hG4bKb\nMax-Forwards: 70\n\
         Route: {}\nRoute: {}\nFrom: <sip:bob@example.org>;tag=at5060\nTo: <sip:alice@example.org>;tag=alice\n\
         Call-ID: call@10.1.1.1\nCSeq: 1 BYE\nContent-Length: 0\n",
        recorded[0], recorded[1]
    );
    let out = only(rig.request(&bye, by(INNER, Transport::Udp, "192.168.0.9:5060"), &[]));
    assert_eq!((out.target.listener, out.to().as_str()), (UDP, ALICE));
    assert!(out.all("Route").is_empty());
}

#[test]
fn next_hops_of_uris() {
    let rig = Rig::new();
    let lead = |uri: &str| {
        rig.routing(&alice("OPTIONS", uri, ""), |router, request| match router.next_hop(&request.uri, UDP) {
            strowger_core::routing::NextHop::Known(Target { transport, address, .. }) => {
                format!("{transport:?} {address}")
            }
            strowger_core::routing::NextHop::Name { host, port, transport, secure } => {
                format!("{} {port:?} {transport:?} {secure}", String::from_utf8_lossy(host))
            }
            strowger_core::routing::NextHop::Unreachable => "nowhere".to_owned(),
        })
    };
    assert_eq!(lead("sip:b@10.2.2.2"), "Udp 10.2.2.2:5060");
    assert_eq!(lead("sip:b@10.2.2.2:5070;transport=tcp"), "Tcp 10.2.2.2:5070");
    assert_eq!(lead("sip:b@10.2.2.2;transport=TLS"), "Tls 10.2.2.2:5061");
    assert_eq!(lead("sips:b@10.2.2.2"), "Tls 10.2.2.2:5061");
    assert_eq!(lead("sips:b@10.2.2.2;transport=tcp"), "Tls 10.2.2.2:5061");
    assert_eq!(lead("sip:b@[2001:db8::9]"), "Udp [2001:db8::9]:5060");
    assert_eq!(lead("sip:b@example.net"), "example.net None None false");
    assert_eq!(lead("sip:b@example.net:5070;transport=tcp"), "example.net Some(5070) Some(Tcp) false");
    assert_eq!(lead("sip:b@example.net;maddr=10.6.6.6"), "Udp 10.6.6.6:5060");
    assert_eq!(lead("sip:b@10.2.2.2;transport=sctp"), "nowhere");
    assert_eq!(lead("sip:b@10.2.2.2;transport=ws"), "nowhere");
    assert_eq!(lead("sip:b@10.2.2.2:0"), "nowhere");
    assert_eq!(lead("tel:+4930123456"), "nowhere");
    assert_eq!(lead("urn:service:sos"), "nowhere");
}

#[test]
fn a_route_that_cannot_be_read_is_malformed() {
    for route in ["<sip:10.0.0.1;lr", "nonsense<", "<sip:>", ";lr"] {
        let text = alice("INVITE", "sip:bob@10.2.2.2", &format!("Route: {route}\n"));
        assert!(Rig::new().routing(&text, |router, request| router.route(NOW, request).malformed), "{route}");
    }
}

#[test]
fn an_maddr_that_names_us_has_done_its_work() {
    // Section 16.4: it is removed, with the port and the transport that led here.
    let sent = routed("sip:bob@10.2.2.2:5060;maddr=10.0.0.1;x=y;transport=udp", "");
    assert_eq!((sent.uri(), sent.to().as_str()), ("sip:bob@10.2.2.2;x=y", BOB));
    let sent = routed("sip:bob:pw@10.2.2.2;maddr=example.org", "Route: <sip:10.8.8.8>\n");
    assert_eq!((sent.uri(), sent.all("Route")), ("sip:10.8.8.8", vec!["<sip:bob:pw@10.2.2.2>"]));
    // The `maddr` of another host stays.
    let sent = routed("sip:bob@10.2.2.2;maddr=10.6.6.6", "");
    assert_eq!((sent.uri(), sent.to().as_str()), ("sip:bob@10.2.2.2;maddr=10.6.6.6", "10.6.6.6:5060"));
}

#[test]
fn routes_stay_behind_where_the_request_is_led_elsewhere() {
    let elsewhere = |at_: &str, q| Try { at: vec![at(at_)], q, rerouted: true, ..Try::default() };
    for route in
        ["<sip:10.8.8.8;lr>", "<sip:0900@10.8.8.8>", "<sip:10.0.0.1;lr>, <sip:0900@10.8.8.8>, <sip:10.7.7.7;lr>"]
    {
        let mut rig = Rig::new();
        let routes = format!("Route: {route}\n");
        let places = [elsewhere("10.3.3.1:5060", 1000), elsewhere("10.3.3.2:5060", 900)];
        let first = only(rig.request(&alice("INVITE", "sip:100@10.2.2.2", &routes), udp(ALICE), &places));
        let second =
            rig.answer(&first, 503, "").into_iter().find(|sent| sent.method() == "INVITE").expect("the next place");
        for (place, sent) in [("10.3.3.1:5060", first), ("10.3.3.2:5060", second)] {
            assert_eq!((sent.to().as_str(), sent.uri()), (place, "sip:100@10.2.2.2"), "{route}");
            assert_eq!(sent.all("Route"), [""; 0], "{route}");
        }
    }
}
