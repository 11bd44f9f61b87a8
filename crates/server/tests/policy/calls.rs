//! Calls through the server, and calls after a restart.

use crate::site::*;
use std::time::Duration;
use strowger_core::Transport;

#[test]
fn a_call_from_end_to_end() {
    let site = start("", &["alice", "bob"]);
    let (alice, bob) = (site.phone("alice"), site.phone("bob"));
    bob.register();
    let (call, invite, ok) = alice.calls(&bob);
    assert_eq!(invite.uri(), format!("sip:phone@{}", bob.address));
    alice.send(&alice.text(&call.within(&ok, "ACK", call.cseq)));
    let ack = bob.next();
    assert_eq!((ack.method(), ack.all("Route").len()), ("ACK", 0));
    // In-dialog requests in both directions need no credentials: their Route is proof.
    alice.continues_and_ends(&bob, &(call, invite, ok));
}

#[test]
fn a_cancelled_call() {
    let site = start("", &["bob"]);
    let (caller, bob) = (site.foreign_phone(), site.phone("bob"));
    bob.register();
    let call = caller.call("INVITE", "sip:bob@example.org");
    caller.send(&caller.text(&call));
    assert_eq!(caller.next().status(), 100);
    let invite = bob.next();
    bob.respond(&invite, 180, "");
    assert_eq!(caller.answer().status(), 180);
    caller.send(&caller.text(&call).replace("INVITE", "CANCEL"));
    assert_eq!(caller.answer().status(), 200);
    let cancel = bob.next();
    assert_eq!(cancel.method(), "CANCEL");
    bob.respond(&cancel, 200, "");
    bob.respond(&invite, 487, "");
    assert_eq!(caller.answer().status(), 487);
    assert_eq!(bob.next().method(), "ACK");
}

#[test]
fn a_route_token_of_one_call_opens_no_other() {
    let site = start("", &["alice", "bob"]);
    let (alice, bob, stranger, target) =
        (site.phone("alice"), site.phone("bob"), site.foreign_phone(), site.foreign_phone());
    bob.register();
    let (call, _, ok) = alice.calls(&bob);
    let foreign = format!("sip:carol@{}", target.address);
    let stolen = call.within(&ok, "BYE", 9);
    for wrong in [
        Call { call_id: "another".into(), uri: foreign.clone(), ..stolen.clone() },
        Call { from: "<sip:mallory@example.net>;tag=m".into(), uri: foreign.clone(), ..stolen.clone() },
        Call { to: format!("<{foreign}>"), uri: foreign.clone(), ..stolen.clone() },
        Call { lines: stolen.lines.replace("d=", "d=A"), uri: foreign.clone(), ..stolen.clone() },
    ] {
        assert_eq!(stranger.ask(&wrong).status(), 407, "{wrong:?}");
    }
    target.hears_nothing();
}

/// Checks that any caller may call Bob, and gets a route token for the call, which is valid only for requests to Bob.
#[test]
fn the_route_token_of_a_foreign_call_leads_to_its_callee() {
    let site = start("", &["bob"]);
    // With one contact the request leaves at once, with two it waits in a fork.
    for contacts in [1, 2] {
        let (bob, second, stranger, target) =
            (site.phone("bob"), site.phone("bob"), site.foreign_phone(), site.foreign_phone());
        bob.register();
        if contacts == 2 {
            second.register();
        }
        let call = stranger.call("INVITE", "sip:bob@example.org");
        stranger.send(&stranger.text(&call));
        let invite = bob.next();
        bob.respond(&invite, 200, "");
        let ok = stranger.answer();
        assert_eq!(ok.status(), 200);
        let foreign = format!("sip:+1900@{}", target.address);
        for (method, cseq) in [("INVITE", 20), ("MESSAGE", 21), ("REFER", 22)] {
            // Other targets: by Request-URI, by a second Route, by maddr, by an address that neither party gave.
            let within = call.within(&ok, method, cseq);
            let port = target.address.port();
            for (n, wrong) in [
                Call { uri: foreign.clone(), ..within.clone() },
                Call { lines: format!("{}Route: <{foreign};lr>\n", within.lines), ..within.clone() },
                Call { uri: format!("{};maddr=127.0.0.9", within.uri), ..within.clone() },
                Call {
                    uri: format!("{};x-strowger=127.0.0.1~{port}~0", within.uri.replace("phone", "x")),
                    ..within.clone()
                },
                Call { uri: foreign.clone(), to: format!("<{foreign}>;tag=answer"), ..within.clone() },
            ]
            .into_iter()
            .enumerate()
            {
                let wrong = Call { cseq: cseq * 10 + n as u32, ..wrong };
                assert_eq!(stranger.ask(&wrong).status(), 407, "{wrong:?}");
            }
            // Requests to each other still pass.
            stranger.send(&stranger.text(&Call { cseq: cseq * 100, ..within }));
            let got = bob.next();
            assert_eq!(got.method(), method);
            bob.respond(&got, 200, "");
            assert_eq!(stranger.answer().status(), 200);
            let back = Call { cseq: 5_000 + cseq, ..bob.backwards(&invite, &ok, method) };
            bob.send(&bob.text(&back));
            let got = stranger.next();
            assert_eq!(got.method(), method);
            stranger.respond(&got, 200, "");
            assert_eq!(bob.answer().status(), 200);
        }
        bob.send(&bob.text(&bob.backwards(&invite, &ok, "BYE")));
        let bye = stranger.next();
        assert_eq!(bye.method(), "BYE");
        stranger.respond(&bye, 200, "");
        assert_eq!(bob.answer().status(), 200);
        target.hears_nothing();
        let unregister = bob.register_call("Expires: 0\n");
        assert_eq!(bob.ask_as(&unregister, "bob").status(), 200);
    }
}

/// Checks that the route token of an emergency call, which needs no password, is valid for no other target, not even
/// through the emergency gateway.
#[test]
fn the_route_token_of_a_call_for_help_leads_nowhere_else() {
    let site = start("emergency.target = \"sip:127.0.0.1:5070;lr\"", &[]);
    let (caller, gateway, target) = (site.foreign_phone(), phone_at(&site, "127.0.0.1:5070"), site.foreign_phone());
    let call = caller.call("INVITE", "urn:service:sos");
    caller.send(&caller.text(&call));
    let help = gateway.next();
    gateway.respond(&help, 200, "");
    let ok = caller.answer();
    assert_eq!(ok.status(), 200);
    caller.send(&caller.text(&call.within(&ok, "ACK", call.cseq)));
    assert_eq!(gateway.next().method(), "ACK");
    for (n, place) in [target.address, gateway.address].into_iter().enumerate() {
        let wrong = Call { uri: format!("sip:+1900@{place}"), ..call.within(&ok, "INVITE", 20 + n as u32) };
        assert_eq!(caller.ask(&wrong).status(), 407, "{place}");
    }
    // Either party may modify the call.
    caller.send(&caller.text(&call.within(&ok, "INVITE", 30)));
    let again = gateway.next();
    gateway.respond(&again, 200, "");
    assert_eq!(caller.answer().status(), 200);
    gateway.send(&gateway.text(&gateway.backwards(&help, &ok, "INVITE")));
    caller.respond(&caller.next(), 200, "");
    assert_eq!(gateway.answer().status(), 200);
    caller.send(&caller.text(&call.within(&ok, "BYE", 31)));
    gateway.respond(&gateway.next(), 200, "");
    assert_eq!(caller.answer().status(), 200);
    target.hears_nothing();
}

#[test]
fn several_contacts_ring_and_one_answers() {
    let site = start("", &["bob"]);
    let (caller, one, two) = (site.foreign_phone(), site.phone("bob"), site.phone("bob"));
    one.register();
    two.register();
    let call = caller.call("INVITE", "sip:bob@example.org");
    caller.send(&caller.text(&call));
    let (first, second) = (one.next(), two.next());
    one.respond(&first, 180, "");
    two.respond(&second, 180, "");
    two.respond(&second, 200, "");
    loop {
        let got = caller.answer();
        if got.status() == 200 {
            break;
        }
        assert_eq!(got.status(), 180);
    }
    let cancel = one.next();
    assert_eq!(cancel.method(), "CANCEL");
    one.respond(&cancel, 200, "");
    one.respond(&first, 487, "");
    assert_eq!(one.next().method(), "ACK");
    caller.hears_nothing();
}

#[test]
fn a_phone_that_is_not_where_its_contact_says() {
    let site = start("", &["alice", "bob"]);
    let (alice, bob) = (site.phone("alice"), site.phone("bob"));
    // Bob's Contact has another address than his packets.
    let hidden = |text: String| text.replace(&format!("phone@{}", bob.address), "phone@10.99.99.99:5060");
    let call = bob.register_call("Expires: 600\n");
    let call = bob.authorized(&call, &bob.ask(&call), "bob", "bob");
    bob.send(&hidden(bob.text(&call)));
    let got = bob.answer();
    assert!(got.status() == 200 && got.one("Contact").contains("10.99.99.99"), "{}", got.0);
    let call = alice.call("INVITE", "sip:bob@example.org");
    let call = alice.authorized(&call, &alice.ask(&call), "alice", "alice");
    alice.send(&alice.text(&call));
    let invite = bob.next();
    assert_eq!(invite.uri(), "sip:phone@10.99.99.99:5060");
    bob.respond_as(&invite, 200, "10.99.99.99:5060");
    let ok = alice.answer();
    assert!(ok.one("Contact").contains("10.99.99.99:5060;x-strowger="), "{}", ok.0);
    alice.send(&alice.text(&call.within(&ok, "BYE", call.cseq + 1)));
    let bye = bob.next();
    assert_eq!((bye.method(), bye.uri()), ("BYE", "sip:phone@10.99.99.99:5060"));
}

#[test]
fn bindings_and_routes_outlive_a_restart() {
    let site = start("", &["alice", "bob"]);
    let (alice, bob) = (site.phone("alice"), site.phone("bob"));
    bob.register();
    let (call, invite, ok) = alice.calls(&bob);
    site.restart();
    // The call continues in both directions.
    alice.continues_and_ends(&bob, &(call, invite, ok));
    // The next call reaches the phone.
    assert_eq!(site.bindings(), 1);
    alice.calls(&bob);
}

/// Returns the text of a phone's message with another address in its Contact.
fn hidden(phone: &Phone, text: &str, address: &str) -> String {
    text.replace(&format!("phone@{}", phone.address), &format!("phone@{address}"))
}

#[test]
fn two_servers_in_a_row_with_a_phone_behind_nat_at_each_end() {
    let open = "registrar.authenticate = false\nauth.calls = false\n";
    let first = start(&format!("{open}proxy.relay_for = \"everyone\""), &[]);
    let second = start_beside(&first, &format!("domains = [\"{{ip}}\"]\n{open}"), &[]);
    let (alice, mut bob) = (first.phone("alice"), second.phone("bob"));
    bob.aor = format!("sip:bob@{}", second.udp().ip());
    let register = Call { uri: format!("sip:{}", second.udp().ip()), ..bob.register_call("Expires: 600\n") };
    bob.send(&hidden(&bob, &bob.text(&register), "10.88.88.88"));
    assert_eq!(bob.answer().status(), 200);
    let call = alice.call("INVITE", &format!("sip:bob@{}", second.udp()));
    alice.send(&hidden(&alice, &alice.text(&call), "10.77.77.77:5066"));
    let invite = bob.next();
    assert_eq!((invite.uri(), invite.all("Record-Route").len()), ("sip:phone@10.88.88.88", 2));
    bob.respond_as(&invite, 200, "10.88.88.88");
    let ok = alice.answer();
    assert_eq!(ok.status(), 200);
    // The first server's Route is last in the response and first in the route set.
    let (own, peer) = (first.udp().to_string(), second.udp().to_string());
    assert!(ok.all("Record-Route")[0].contains(&peer) && ok.all("Record-Route")[1].contains(&own));
    alice.send(&alice.text(&call.within(&ok, "ACK", 1)));
    let ack = bob.next();
    assert_eq!((ack.method(), ack.uri(), ack.all("Via").len()), ("ACK", "sip:phone@10.88.88.88", 3));
    alice.send(&alice.text(&call.within(&ok, "INFO", 2)));
    let info = bob.next();
    assert_eq!((info.method(), info.uri()), ("INFO", "sip:phone@10.88.88.88"));
    bob.respond_as(&info, 200, "10.88.88.88");
    assert_eq!(alice.answer().status(), 200);
    bob.send(&bob.text(&bob.backwards(&invite, &ok, "BYE")));
    let bye = alice.next();
    assert_eq!((bye.method(), bye.uri(), bye.all("Via").len()), ("BYE", "sip:phone@10.77.77.77:5066", 3));
    alice.respond(&bye, 200, "");
    assert_eq!(bob.answer().status(), 200);
}

#[test]
fn a_phone_by_tcp_is_reached_by_its_connection() {
    let site = start("", &["alice", "bob"]);
    let alice = site.phone("alice");
    let bob = Phone::new(site.connect(Transport::Tcp), "sip:bob@example.org");
    let elsewhere = |text: String| text.replace(&format!("phone@{}", bob.address), "phone@10.44.44.44:5060");
    let call = bob.register_call("Expires: 600\n");
    bob.send(&elsewhere(bob.text(&call)));
    let call = bob.authorized(&call, &bob.answer(), "bob", "bob");
    bob.send(&elsewhere(bob.text(&call)));
    assert_eq!(bob.answer().status(), 200);

    let call = alice.call("INVITE", "sip:bob@example.org");
    let call = alice.authorized(&call, &alice.ask(&call), "alice", "alice");
    alice.send(&alice.text(&call));
    let invite = bob.next();
    assert!(invite.one("Via").starts_with("SIP/2.0/TCP "), "{}", invite.0);
    assert_eq!((invite.method(), invite.all("Record-Route").len()), ("INVITE", 2));
    bob.respond_as(&invite, 200, "10.44.44.44:5060;transport=tcp");
    let ok = alice.answer();
    assert_eq!(ok.status(), 200);
    assert!(ok.one("Contact").contains(";x-strowger="), "{}", ok.0);
    alice.send(&alice.text(&call.within(&ok, "ACK", call.cseq)));
    assert_eq!(bob.next().method(), "ACK");
    alice.send(&alice.text(&call.within(&ok, "BYE", call.cseq + 1)));
    let bye = bob.next();
    assert_eq!((bye.method(), bye.uri()), ("BYE", "sip:phone@10.44.44.44:5060;transport=tcp"));
    bob.respond(&bye, 200, "");
    assert_eq!(alice.answer().status(), 200);
}

/// Covers a phone that registered over a connection and listens at the address of its Contact (RFC 3261 section
/// 18.1.1).
#[test]
fn a_phone_by_tcp_is_reached_where_it_listens_when_its_connection_is_gone() {
    let site = start("registrar.authenticate = false", &[]);
    let caller = site.foreign_phone();
    let bob = Phone::new(site.connect(Transport::Tcp), "sip:bob@example.org");
    let listener = site.listen();
    let contact = format!("<sip:bob@{};transport=tcp>", listener.address());
    let text = bob.text(&bob.register_call("Expires: 600\n"));
    bob.send(&text.replace(&format!("<sip:phone@{}>", bob.address), &contact));
    assert_eq!(bob.answer().status(), 200);
    drop(bob);
    for restart in [false, true] {
        // The connection was closed, or belonged to the earlier process of the server.
        if restart {
            site.restart();
        }
        site.settle();
        assert_eq!(site.connections(), 0);
        let call = caller.call("MESSAGE", "sip:bob@example.org");
        caller.send(&caller.text(&call));
        let line = listener.accept(Duration::from_secs(5)).expect("the server connects");
        let bob = Phone::new(line, "sip:bob@example.org");
        let message = bob.next();
        assert_eq!((message.method(), format!("<{}>", message.uri())), ("MESSAGE", contact.clone()));
        bob.respond(&message, 200, "");
        assert_eq!(caller.answer().status(), 200);
    }
}

#[test]
fn a_large_request_stays_on_the_way_that_a_phone_registered_by() {
    let site = start("", &["bob"]);
    let (caller, bob) = (site.foreign_phone(), site.phone("bob"));
    // Another program listens at the TCP port of the phone.
    let other = site.listen_at(bob.address);
    bob.register();
    let mut call = caller.call("MESSAGE", "sip:bob@example.org");
    call.lines = format!("X-Large: {}\n", "x".repeat(2_000));
    caller.send(&caller.text(&call));
    assert_eq!(bob.next().one("X-Large").len(), 2_000);
    assert!(other.accept(Duration::from_secs(1)).is_none());
}
