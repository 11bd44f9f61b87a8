//! Calls through the server, and calls after a restart.

use crate::site::*;

/// Calls Bob from Alice; Bob answers. Returns Alice's INVITE, the INVITE that Bob received, and Alice's 200.
pub(crate) fn answered(alice: &Phone, bob: &Phone) -> (Call, Got, Got) {
    let call = alice.call("INVITE", "sip:bob@example.org");
    let call = alice.authorized(&call, &alice.ask(&call), "alice", "alice");
    alice.send(&alice.text(&call));
    let invite = bob.next();
    assert_eq!(invite.method(), "INVITE", "{}", invite.0);
    bob.respond(&invite, 180, "");
    assert_eq!(alice.answer().status(), 180);
    bob.respond(&invite, 200, "");
    let ok = alice.answer();
    assert_eq!(ok.status(), 200);
    (call, invite, ok)
}

fn uri_of(contact: &str) -> String {
    contact.split(['<', '>']).nth(1).expect("a URI in angle brackets").to_owned()
}

/// Request of the caller within the dialog.
pub(crate) fn within(call: &Call, ok: &Got, method: &str, cseq: u32) -> Call {
    Call {
        method: method.into(),
        uri: uri_of(ok.one("Contact")),
        to: ok.one("To").into(),
        cseq,
        lines: ok.all("Record-Route").iter().rev().map(|r| format!("Route: {r}\n")).collect(),
        ..call.clone()
    }
}

/// Request of the callee within the dialog.
fn backwards(bob: &Phone, invite: &Got, ok: &Got, method: &str) -> Call {
    Call {
        uri: uri_of(invite.one("Contact")),
        from: ok.one("To").into(),
        to: ok.one("From").into(),
        call_id: ok.one("Call-ID").into(),
        cseq: 1_000,
        lines: invite.all("Record-Route").iter().map(|r| format!("Route: {r}\n")).collect(),
        ..bob.call(method, "sip:x")
    }
}

/// Sends a request of the caller within the call, then ends the call from the callee.
fn goes_on_and_ends(alice: &Phone, bob: &Phone, call: &Call, invite: &Got, ok: &Got) {
    alice.send(&alice.text(&within(call, ok, "INFO", call.cseq + 1)));
    let info = bob.next();
    assert_eq!(info.method(), "INFO");
    bob.respond(&info, 200, "");
    assert_eq!(alice.answer().status(), 200);
    bob.send(&bob.text(&backwards(bob, invite, ok, "BYE")));
    let bye = alice.next();
    assert_eq!(bye.method(), "BYE");
    alice.respond(&bye, 200, "");
    assert_eq!(bob.answer().status(), 200);
}

#[test]
fn a_call_from_end_to_end() {
    let site = Site::start("", &["alice", "bob"]);
    let (alice, bob) = (site.phone("alice"), site.phone("bob"));
    bob.register();
    let (call, invite, ok) = answered(&alice, &bob);
    assert_eq!(invite.uri(), format!("sip:phone@{}", bob.address));
    alice.send(&alice.text(&within(&call, &ok, "ACK", call.cseq)));
    let ack = bob.next();
    assert_eq!((ack.method(), ack.all("Route").len()), ("ACK", 0));
    // In-dialog requests in both directions need no credentials: their Route is proof.
    goes_on_and_ends(&alice, &bob, &call, &invite, &ok);
}

#[test]
fn a_call_that_rings_is_answered_while_the_server_ends() {
    let mut site = Site::start("", &["bob"]);
    let (caller, bob) = (site.stranger(), site.phone("bob"));
    bob.register();
    let call = caller.call("INVITE", "sip:bob@example.org");
    caller.send(&caller.text(&call));
    let invite = bob.next();
    bob.respond(&invite, 180, "");
    assert_eq!(caller.answer().status(), 180);
    // Immediately: no other event may make the server count its load.
    let end = site.drain();
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(!end.is_finished(), "it ended in the middle of a call");
    bob.respond(&invite, 200, "");
    let ok = caller.answer();
    assert_eq!(ok.status(), 200);
    // The server could end meanwhile.
    std::thread::sleep(std::time::Duration::from_millis(100));
    caller.send(&caller.text(&within(&call, &ok, "ACK", call.cseq)));
    assert_eq!(bob.next().method(), "ACK");
    end.join().expect("it ends");
}

#[test]
fn a_cancelled_call() {
    let site = Site::start("", &["bob"]);
    let (caller, bob) = (site.stranger(), site.phone("bob"));
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
    let site = Site::start("", &["alice", "bob"]);
    let (alice, bob, stranger, target) = (site.phone("alice"), site.phone("bob"), site.stranger(), site.stranger());
    bob.register();
    let (call, _, ok) = answered(&alice, &bob);
    let foreign = format!("sip:carol@{}", target.address);
    let stolen = within(&call, &ok, "BYE", 9);
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

/// Any caller may call Bob, and gets a route token for the call. It leads to Bob only.
#[test]
fn the_route_token_of_a_strangers_call_leads_to_whom_he_called() {
    let site = Site::start("", &["bob"]);
    // With one contact the request leaves at once, with two it waits in a fork.
    for contacts in [1, 2] {
        let (bob, second, stranger, target) = (site.phone("bob"), site.phone("bob"), site.stranger(), site.stranger());
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
            let within = within(&call, &ok, method, cseq);
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
            let back = Call { cseq: 5_000 + cseq, ..backwards(&bob, &invite, &ok, method) };
            bob.send(&bob.text(&back));
            let got = stranger.next();
            assert_eq!(got.method(), method);
            stranger.respond(&got, 200, "");
            assert_eq!(bob.answer().status(), 200);
        }
        bob.send(&bob.text(&backwards(&bob, &invite, &ok, "BYE")));
        let bye = stranger.next();
        assert_eq!(bye.method(), "BYE");
        stranger.respond(&bye, 200, "");
        assert_eq!(bob.answer().status(), 200);
        target.hears_nothing();
        let unregister = bob.register_call("Expires: 0\n");
        assert_eq!(bob.ask_as(&unregister, "bob").status(), 200);
    }
}

/// The route token of an emergency call, which needs no password, leads nowhere else: not even through the emergency
/// gateway.
#[test]
fn the_route_token_of_a_call_for_help_leads_nowhere_else() {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let site = Site::start(&format!("emergency.target = \"sip:{};lr\"", socket.local_addr().unwrap()), &[]);
    let (caller, gateway, target) = (site.stranger(), site.phone_on(socket), site.stranger());
    let call = caller.call("INVITE", "urn:service:sos");
    caller.send(&caller.text(&call));
    let help = gateway.next();
    gateway.respond(&help, 200, "");
    let ok = caller.answer();
    assert_eq!(ok.status(), 200);
    caller.send(&caller.text(&within(&call, &ok, "ACK", call.cseq)));
    assert_eq!(gateway.next().method(), "ACK");
    for (n, place) in [target.address, gateway.address].into_iter().enumerate() {
        let wrong = Call { uri: format!("sip:+1900@{place}"), ..within(&call, &ok, "INVITE", 20 + n as u32) };
        assert_eq!(caller.ask(&wrong).status(), 407, "{place}");
    }
    // Either party may modify the call.
    caller.send(&caller.text(&within(&call, &ok, "INVITE", 30)));
    let again = gateway.next();
    gateway.respond(&again, 200, "");
    assert_eq!(caller.answer().status(), 200);
    gateway.send(&gateway.text(&backwards(&gateway, &help, &ok, "INVITE")));
    caller.respond(&caller.next(), 200, "");
    assert_eq!(gateway.answer().status(), 200);
    caller.send(&caller.text(&within(&call, &ok, "BYE", 31)));
    gateway.respond(&gateway.next(), 200, "");
    assert_eq!(caller.answer().status(), 200);
    target.hears_nothing();
}

#[test]
fn several_contacts_ring_and_one_answers() {
    let site = Site::start("", &["bob"]);
    let (caller, one, two) = (site.stranger(), site.phone("bob"), site.phone("bob"));
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
    let site = Site::start("", &["alice", "bob"]);
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
    alice.send(&alice.text(&within(&call, &ok, "BYE", call.cseq + 1)));
    let bye = bob.next();
    assert_eq!((bye.method(), bye.uri()), ("BYE", "sip:phone@10.99.99.99:5060"));
}

#[test]
fn bindings_and_routes_outlive_a_restart() {
    let mut site = Site::start("", &["alice", "bob"]);
    let (alice, bob) = (site.phone("alice"), site.phone("bob"));
    bob.register();
    let (call, invite, ok) = answered(&alice, &bob);
    site.restart();
    // The call continues in both directions.
    goes_on_and_ends(&alice, &bob, &call, &invite, &ok);
    // The next call reaches the phone.
    assert_eq!(site.server().bindings(), 1);
    answered(&alice, &bob);
}

/// Text of a phone's message with another address in its Contact.
fn hidden(phone: &Phone, text: &str, address: &str) -> String {
    text.replace(&format!("phone@{}", phone.address), &format!("phone@{address}"))
}

#[test]
fn two_servers_in_a_row_with_a_phone_behind_nat_at_each_end() {
    let open = "registrar.authenticate = false\nauth.calls = false\n";
    let first = Site::start(&format!("{open}proxy.relay_for = \"everyone\""), &[]);
    let second = Site::start(&format!("domains = [\"{{ip}}\"]\n{open}"), &[]);
    let (alice, mut bob) = (first.phone("alice"), second.phone("bob"));
    bob.aor = format!("sip:bob@{}", second.udp.ip());
    let register = Call { uri: format!("sip:{}", second.udp.ip()), ..bob.register_call("Expires: 600\n") };
    bob.send(&hidden(&bob, &bob.text(&register), "10.88.88.88"));
    assert_eq!(bob.answer().status(), 200);
    let call = alice.call("INVITE", &format!("sip:bob@{}", second.udp));
    alice.send(&hidden(&alice, &alice.text(&call), "10.77.77.77:5066"));
    let invite = bob.next();
    assert_eq!((invite.uri(), invite.all("Record-Route").len()), ("sip:phone@10.88.88.88", 2));
    bob.respond_as(&invite, 200, "10.88.88.88");
    let ok = alice.answer();
    assert_eq!(ok.status(), 200);
    // The first server's Route is last in the response and first in the route set.
    let (own, peer) = (first.udp.to_string(), second.udp.to_string());
    assert!(ok.all("Record-Route")[0].contains(&peer) && ok.all("Record-Route")[1].contains(&own));
    alice.send(&alice.text(&within(&call, &ok, "ACK", 1)));
    let ack = bob.next();
    assert_eq!((ack.method(), ack.uri(), ack.all("Via").len()), ("ACK", "sip:phone@10.88.88.88", 3));
    alice.send(&alice.text(&within(&call, &ok, "INFO", 2)));
    let info = bob.next();
    assert_eq!((info.method(), info.uri()), ("INFO", "sip:phone@10.88.88.88"));
    bob.respond_as(&info, 200, "10.88.88.88");
    assert_eq!(alice.answer().status(), 200);
    bob.send(&bob.text(&backwards(&bob, &invite, &ok, "BYE")));
    let bye = alice.next();
    assert_eq!((bye.method(), bye.uri(), bye.all("Via").len()), ("BYE", "sip:phone@10.77.77.77:5066", 3));
    alice.respond(&bye, 200, "");
    assert_eq!(bob.answer().status(), 200);
}

#[test]
fn a_phone_by_tcp_is_reached_by_its_connection() {
    use std::io::{Read, Write};
    let site = Site::start("", &["alice", "bob"]);
    let alice = site.phone("alice");
    let mut stream = std::net::TcpStream::connect(site.udp).unwrap();
    stream.set_read_timeout(Some(std::time::Duration::from_secs(5))).unwrap();
    let mut held = Vec::new();
    let mut next = |stream: &mut std::net::TcpStream| loop {
        if let Some(end) = held.windows(4).position(|w: &[u8]| w == b"\r\n\r\n") {
            let text = String::from_utf8(held.drain(..end + 4).collect()).unwrap();
            // Skips pings of the server.
            if !text.contains("Call-ID: ping-") {
                return Got(text);
            }
            continue;
        }
        let mut buffer = [0; 4096];
        let len = stream.read(&mut buffer).expect("something comes");
        assert!(len > 0, "closed");
        held.extend_from_slice(&buffer[..len]);
    };
    let bob = site.phone("bob");
    let by_tcp =
        |text: String| text.replace("SIP/2.0/UDP", "SIP/2.0/TCP").replace("phone@127.0.0.1", "phone@10.44.44.44");
    let call = bob.register_call("Expires: 600\n");
    stream.write_all(by_tcp(bob.text(&call)).as_bytes()).unwrap();
    let challenge = next(&mut stream);
    let call = bob.authorized(&call, &challenge, "bob", "bob");
    stream.write_all(by_tcp(bob.text(&call)).as_bytes()).unwrap();
    assert_eq!(next(&mut stream).status(), 200);

    let call = alice.call("INVITE", "sip:bob@example.org");
    let call = alice.authorized(&call, &alice.ask(&call), "alice", "alice");
    alice.send(&alice.text(&call));
    let invite = next(&mut stream);
    assert!(invite.one("Via").starts_with("SIP/2.0/TCP "), "{}", invite.0);
    assert_eq!((invite.method(), invite.all("Record-Route").len()), ("INVITE", 2));
    let answer =
        |request: &Got| by_tcp(bob.response(request, 200, "Contact: <sip:phone@127.0.0.1:5060;transport=tcp>\n"));
    stream.write_all(answer(&invite).as_bytes()).unwrap();
    let ok = alice.answer();
    assert_eq!(ok.status(), 200);
    assert!(ok.one("Contact").contains(";x-strowger="), "{}", ok.0);
    alice.send(&alice.text(&within(&call, &ok, "ACK", call.cseq)));
    assert_eq!(next(&mut stream).method(), "ACK");
    alice.send(&alice.text(&within(&call, &ok, "BYE", call.cseq + 1)));
    let bye = next(&mut stream);
    assert_eq!((bye.method(), bye.uri()), ("BYE", "sip:phone@10.44.44.44:5060;transport=tcp"));
    stream.write_all(answer(&bye).as_bytes()).unwrap();
    assert_eq!(alice.answer().status(), 200);
}

/// A phone that registered over a connection and listens at the address of its Contact (RFC 3261 section 18.1.1).
#[test]
fn a_phone_by_tcp_is_reached_where_it_listens_when_its_connection_is_gone() {
    use std::io::{Read, Write};
    let mut site = Site::start("registrar.authenticate = false", &[]);
    let (caller, bob) = (site.stranger(), site.phone("bob"));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let contact = format!("<sip:bob@{};transport=tcp>", listener.local_addr().unwrap());
    let mut stream = std::net::TcpStream::connect(site.udp).unwrap();
    stream.set_read_timeout(Some(std::time::Duration::from_secs(5))).unwrap();
    let text = bob.text(&bob.register_call("Expires: 600\n")).replace("SIP/2.0/UDP", "SIP/2.0/TCP");
    stream.write_all(text.replace(&format!("<sip:phone@{}>", bob.address), &contact).as_bytes()).unwrap();
    let mut buffer = [0; 4096];
    let len = stream.read(&mut buffer).unwrap();
    assert!(buffer[..len].starts_with(b"SIP/2.0 200 "), "{}", String::from_utf8_lossy(&buffer[..len]));

    let connections = |site: &Site| site.server().handle().total().tcp_connections;
    drop(stream);
    for restart in [false, true] {
        // The connection was closed, or belonged to the earlier process of the server.
        if restart {
            site.restart();
        }
        let end = std::time::Instant::now() + std::time::Duration::from_secs(5);
        while connections(&site) > 0 {
            assert!(std::time::Instant::now() < end, "the closed connection is still there");
            std::thread::yield_now();
        }
        let call = caller.call("MESSAGE", "sip:bob@example.org");
        caller.send(&caller.text(&call));
        let arrived = std::sync::mpsc::channel();
        let accepting = listener.try_clone().unwrap();
        std::thread::spawn(move || arrived.0.send(accepting.accept().unwrap().0));
        let mut way = arrived.1.recv_timeout(std::time::Duration::from_secs(5)).expect("the server connects");
        let len = way.read(&mut buffer).unwrap();
        let message = Got(String::from_utf8_lossy(&buffer[..len]).into_owned());
        assert_eq!((message.method(), format!("<{}>", message.uri())), ("MESSAGE", contact.clone()));
        way.write_all(bob.response(&message, 200, "").as_bytes()).unwrap();
        assert_eq!(caller.answer().status(), 200);
    }
}

#[test]
fn a_large_request_stays_on_the_way_that_a_phone_registered_by() {
    let site = Site::start("", &["bob"]);
    let caller = site.stranger();
    // The TCP port of the phone is free, so another program can listen there.
    let free = (0..20).find_map(|_| {
        let bob = site.phone("bob");
        std::net::TcpListener::bind(bob.address).ok().map(|other| (bob, other))
    });
    let (bob, other) = free.expect("a port is free for both");
    bob.register();
    other.set_nonblocking(true).unwrap();
    let mut call = caller.call("MESSAGE", "sip:bob@example.org");
    call.lines = format!("X-Large: {}\n", "x".repeat(2_000));
    caller.send(&caller.text(&call));
    assert_eq!(bob.next().one("X-Large").len(), 2_000);
    assert!(other.accept().is_err());
}
