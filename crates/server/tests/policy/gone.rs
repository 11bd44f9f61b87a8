//! Phones whose connection has ended since their registration.

use crate::site::*;
use std::time::Duration;
use strowger_core::Transport;

/// Sends a REGISTER of `user` over a connection of its own, with this Contact. Returns the response.
fn register(site: &Site, user: &str, contact: &str) -> (Phone, Got) {
    let phone = Phone::new(site.connect(Transport::Tcp), &format!("sip:{user}@example.org"));
    let text = phone.text(&phone.register_call("Expires: 600\n"));
    phone.send(&text.replace(&format!("<sip:phone@{}>", phone.address), contact));
    let got = phone.answer();
    (phone, got)
}

/// Closes the connection, and waits until the server has noticed it.
fn hang_up(site: &Site, phone: Phone) {
    site.settle();
    let before = site.connections();
    drop(phone);
    site.settle();
    assert_eq!(site.connections(), before - 1);
}

#[test]
fn who_cannot_be_reached_any_more_is_not_available() {
    for shards in [1, 3] {
        let site = start(&format!("server.shards = {shards}\nregistrar.authenticate = false"), &[]);
        let (stream, ok) = register(&site, "bob", "<sip:bob@10.44.44.44:5060;transport=tcp>");
        assert_eq!(ok.status(), 200, "{}", ok.0);
        hang_up(&site, stream);
        for restart in [false, true] {
            if restart {
                site.restart();
            }
            let caller = site.foreign_phone();
            for method in ["INVITE", "MESSAGE"] {
                let got = caller.ask(&caller.call(method, "sip:bob@example.org"));
                assert_eq!(got.status(), 480, "{}", got.0);
            }
            assert_eq!(site.bindings(), 1, "it may connect again and refresh");
        }
    }
}

/// Checks a request within a call whose party has lost its connection (RFC 5626 section 5.3.1).
#[test]
fn the_flow_of_a_party_that_is_gone_has_failed() {
    let site = start("", &["alice", "bob"]);
    let (alice, bob) = (site.phone("alice"), Phone::new(site.connect(Transport::Tcp), "sip:bob@example.org"));
    bob.register();
    let call = alice.call("INVITE", "sip:bob@example.org");
    let call = alice.authorized(&call, &alice.ask(&call), "alice", "alice");
    alice.send(&alice.text(&call));
    bob.respond_as(&bob.next(), 200, "10.44.44.44:5060");
    let ok = alice.answer();
    assert_eq!(ok.status(), 200, "{}", ok.0);
    hang_up(&site, bob);
    let got = alice.ask(&call.within(&ok, "INFO", call.cseq + 1));
    assert_eq!(got.status(), 430, "{}", got.0);
    let got = alice.ask_as(&alice.call("MESSAGE", "sip:bob@example.org"), "alice");
    assert_eq!(got.status(), 480, "{}", got.0);
}

/// The connection ends while the party has the request.
#[test]
fn a_flow_that_fails_under_a_request_has_failed() {
    let site = start("", &["alice", "bob"]);
    let (alice, bob) = (site.phone("alice"), Phone::new(site.connect(Transport::Tcp), "sip:bob@example.org"));
    bob.register();
    let call = alice.call("INVITE", "sip:bob@example.org");
    let call = alice.authorized(&call, &alice.ask(&call), "alice", "alice");
    alice.send(&alice.text(&call));
    bob.respond_as(&bob.next(), 200, "10.44.44.44:5060");
    let ok = alice.answer();
    assert_eq!(ok.status(), 200, "{}", ok.0);
    alice.send(&alice.text(&call.within(&ok, "INFO", call.cseq + 1)));
    assert!(bob.next().0.starts_with("INFO "));
    hang_up(&site, bob);
    let got = alice.answer();
    assert_eq!(got.status(), 430, "{}", got.0);
}

/// The edge proxy of a phone says that its flow has failed, which is no answer for an endpoint (RFC 5626 section 11.5).
#[test]
fn a_failed_flow_at_the_edge_is_a_phone_that_is_not_available() {
    let site = start("registrar.authenticate = false", &[]);
    let (bob, edge, caller) = (site.phone("bob"), site.foreign_phone(), site.foreign_phone());
    let path = format!("Path: <sip:{};lr;ob>\nSupported: path\n", edge.address);
    let ok = bob.ask(&bob.register_call(&path));
    assert_eq!(ok.status(), 200, "{}", ok.0);
    for (answer, passed) in [(430, 480), (486, 486)] {
        caller.send(&caller.text(&caller.call("MESSAGE", "sip:bob@example.org")));
        edge.respond(&edge.next(), answer, "");
        assert_eq!(caller.answer().status(), passed);
    }
}

/// The phone has a flow through each of two edge proxies (RFC 5626 section 7).
#[test]
fn the_flow_through_the_other_edge_is_tried() {
    let site = start("registrar.authenticate = false", &[]);
    let (bob, edges, caller) = (site.phone("bob"), [site.foreign_phone(), site.foreign_phone()], site.foreign_phone());
    let instance = "<urn:uuid:00000000-0000-1000-8000-000a95a0e128>";
    for (n, edge) in edges.iter().enumerate() {
        let contact = format!("Contact: <sip:flow{n}@192.0.2.1>;reg-id={};+sip.instance=\"{instance}\"\n", n + 1);
        let lines = format!("{contact}Path: <sip:{};lr;ob>\nSupported: path, outbound\n", edge.address);
        let own = format!("Contact: <sip:phone@{}>\r\n", bob.address);
        let text = bob.text(&bob.register_call(&lines)).replacen(&own, "", 1);
        let device = "Via: SIP/2.0/TCP 192.0.2.1;branch=z9hG4bKdevice\r\nMax-Forwards";
        bob.send(&text.replacen("Max-Forwards", device, 1));
        let ok = bob.answer();
        assert_eq!(ok.status(), 200, "{}", ok.0);
        // The second flow is newer.
        site.wait(Duration::from_secs(1));
    }
    for (answers, passed) in [([430, 430], 480), ([430, 486], 486)] {
        caller.send(&caller.text(&caller.call("MESSAGE", "sip:bob@example.org")));
        for ((edge, user), answer) in edges.iter().zip(["flow0", "flow1"]).rev().zip(answers) {
            let got = edge.next();
            assert_eq!((got.uri(), got.one("Route")), (&*format!("sip:{user}@192.0.2.1"), &*route(edge)));
            edge.respond(&got, answer, "");
        }
        assert_eq!(caller.answer().status(), passed);
    }
    caller.send(&caller.text(&caller.call("MESSAGE", "sip:bob@example.org")));
    edges[1].respond(&edges[1].next(), 486, "");
    assert_eq!(caller.answer().status(), 486, "the phone has answered");
}

/// Returns the Path of an edge proxy.
fn route(edge: &Phone) -> String {
    format!("<sip:{};lr;ob>", edge.address)
}

#[test]
fn the_other_phone_of_the_user_rings() {
    let site = start("registrar.authenticate = false", &[]);
    let (stream, _) = register(&site, "bob", "<sip:bob@10.44.44.44:5060;transport=tcp>");
    let desk = site.phone("bob");
    assert_eq!(desk.ask(&desk.register_call("Expires: 600\n")).all("Contact").len(), 2);
    hang_up(&site, stream);
    let caller = site.foreign_phone();
    caller.send(&caller.text(&caller.call("MESSAGE", "sip:bob@example.org")));
    desk.respond(&desk.next(), 486, "");
    assert_eq!(caller.answer().status(), 486);
}

#[test]
fn connections_that_ended_leave_their_places_to_others() {
    let site = start("registrar.authenticate = false\nregistrar.max_contacts = 2", &[]);
    let contact = |n: u32| format!("<sip:tab{n}@10.44.44.44;transport=tcp>");
    let (first, _) = register(&site, "bob", &contact(1));
    let (second, ok) = register(&site, "bob", &contact(2));
    assert_eq!(ok.all("Contact").len(), 2);
    assert_eq!(register(&site, "bob", &contact(3)).1.status(), 403, "both are there");
    hang_up(&site, first);
    let (third, ok) = register(&site, "bob", &contact(3));
    assert_eq!(ok.status(), 200, "{}", ok.0);
    assert!(!ok.0.contains("tab1@") && ok.0.contains("tab2@") && ok.0.contains("tab3@"), "{}", ok.0);
    assert_eq!(site.bindings(), 2);
    drop((second, third));
}
