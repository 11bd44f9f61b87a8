//! Forwarding, and refusals of large messages.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use strowger_tests::call::{exchange, register};
use strowger_tests::port;
use strowger_tests::server::{Server, Setup};
use strowger_tests::text::{self, Request, respond};
use strowger_tests::wire::Transport::{Tcp, Udp};
use strowger_tests::wire::{self, Wire};

use super::{NEVER, SOON, code, open, request, rings_bob, send};

#[test]
fn messages_beyond_the_limits_are_refused() {
    let server = open("limits.message_size = 6000");
    let own = format!("sip:{}", server.address(Udp));
    let ask = |what: &str, status: u16, change: &dyn Fn(&mut Request)| {
        let mut wire = server.connect(Udp);
        let mut request = Request::new("OPTIONS", &own, "udp", wire.local());
        change(&mut request);
        send(&mut wire, &request);
        let answer = wire.final_response(SOON).unwrap_or_else(|| panic!("{what}: no answer"));
        assert_eq!(code(&answer), status, "{what}");
    };
    ask("a body", 200, &|request| request.body = vec![b'x'; 5_000]);
    ask("a Request-URI", 414, &|request| request.uri = format!("sip:{}@127.0.0.1", "x".repeat(4_100)));
    // After the fields that an answer copies.
    ask("header fields", 400, &|request| request.call_id.push_str(&"\r\nX: 1".repeat(256)));
    ask("a large message", 200, &|request| request.call_id.push_str(&format!("\r\nX: {}", "x".repeat(5_000))));
    ask("too large a message", 513, &|request| request.call_id.push_str(&format!("\r\nX: {}", "x".repeat(6_000))));
}

#[test]
fn what_is_forwarded_and_answered_is_as_the_settings_say() {
    let server = open("proxy.record_route = false\nproxy.max_forwards = 9\nserver.software = \"Exchange 5\"");
    let (mut caller, mut bob) = (server.connect(Udp), server.connect(Udp));
    register(&mut bob, "bob");
    let invite = request(&caller, "INVITE", "sip:bob@example.org").bytes();
    let text = String::from_utf8(invite).expect("it is text").replace("Max-Forwards: 70\r\n", "");
    caller.send(text.as_bytes()).expect("loopback takes it");
    let got = bob.request("INVITE", SOON).expect("the INVITE arrives");
    assert_eq!(text::field(&got, "Record-Route"), None);
    assert_eq!(text::field(&got, "Max-Forwards").as_deref(), Some("9"));
    assert_eq!(text::field(&got, "Max-Breadth").as_deref(), Some("60"));
    let own = format!("sip:{}", server.address(Udp));
    let options = request(&caller, "OPTIONS", &own);
    let answer = exchange(&mut caller, &options);
    assert_eq!(text::field(&answer, "Server").as_deref(), Some("Exchange 5"));

    let server = open("server.software = \"\"");
    let mut caller = server.connect(Udp);
    let own = format!("sip:{}", server.address(Udp));
    let options = request(&caller, "OPTIONS", &own);
    let answer = exchange(&mut caller, &options);
    assert_eq!(text::field(&answer, "Server"), None);
}

#[test]
fn a_call_from_one_network_to_another_has_a_route_for_each() {
    for (network, routes) in [("default", 1), ("outside", 2)] {
        let (one, two) = (port::free_address(), port::free_address());
        let table = |at: SocketAddr, network: &str| {
            format!(
                "[[listener]]\ntransport = \"udp\"\naddress = \"127.0.0.1\"\nport = {}\nnetwork = \"{network}\"\n",
                at.port()
            )
        };
        let tables = format!("{}{}", table(one, "default"), table(two, network));
        let server = Setup::tables(&[(Udp, one), (Udp, two)]).open_registrar().in_memory().with(&tables).start();
        let (mut caller, mut bob) = (server.connect(Udp), Wire::udp(two));
        register(&mut bob, "bob");
        let invite = request(&caller, "INVITE", "sip:bob@example.org");
        send(&mut caller, &invite);
        let got = bob.request("INVITE", SOON).expect("the INVITE arrives");
        assert_eq!(text::fields(&got, "Record-Route").len(), routes, "{network}");
    }
}

/// Bob has two phones; tells which of them ring before any answer.
fn rings(server: &Server) -> (Wire, [Wire; 2], [bool; 2]) {
    let mut phones = [server.connect(Udp), server.connect(Udp)];
    for (phone, q) in phones.iter_mut().zip(["1.0", "0.5"]) {
        let mut request = Request::register("bob", "example.org", "sip:x", "udp", phone.local());
        request.headers[0] = format!("Contact: <sip:bob@{}>;q={q}", phone.local());
        assert_eq!(code(&exchange(phone, &request)), 200);
    }
    let mut caller = server.connect(Udp);
    let invite = request(&caller, "INVITE", "sip:bob@example.org");
    send(&mut caller, &invite);
    let rung = phones.each_mut().map(|phone| {
        let got = phone.request("INVITE", 2 * NEVER);
        if let Some(got) = &got {
            phone.send(&respond(got, 180, "bob", &[])).expect("loopback takes it");
        }
        got.is_some()
    });
    (caller, phones, rung)
}

#[test]
fn contacts_ring_in_the_order_of_the_setting_and_as_long_as_they_may() {
    let server = open("proxy.fork = \"parallel\"");
    assert_eq!(rings(&server).2, [true, true]);
    let server = open("proxy.fork = \"sequence\"\nproxy.fork_timeout = \"1s\"");
    let (_caller, [mut first, mut second], rung) = rings(&server);
    assert_eq!(rung, [true, false]);
    // By default after 20 seconds.
    let cancel = first.request("CANCEL", SOON).expect("its time is over");
    first.send(&respond(&cancel, 200, "bob", &[])).expect("loopback takes it");
    let ended = respond(&cancel, 487, "bob", &[]);
    let ended = String::from_utf8(ended).expect("it is text").replace(" CANCEL\r\n", " INVITE\r\n");
    first.send(ended.as_bytes()).expect("loopback takes it");
    assert!(second.request("INVITE", SOON).is_some());
}

#[test]
fn a_large_request_leaves_by_tcp() {
    let server = open("proxy.udp_to_tcp_above = 1000");
    let (listener, udp, at) = loop {
        let (listener, at) = wire::listen();
        if let Ok(udp) = UdpSocket::bind(at) {
            break (listener, udp, at);
        }
    };
    udp.set_read_timeout(Some(SOON)).expect("a socket can be set");
    let mut caller = server.connect(Udp);
    let mut message = request(&caller, "MESSAGE", &format!("sip:x@{at}"));
    send(&mut caller, &message);
    udp.recv_from(&mut [0; 4_096]).expect("a small one comes by UDP");
    message = request(&caller, "MESSAGE", &format!("sip:x@{at}"));
    message.body = vec![b'x'; 800];
    send(&mut caller, &message);
    let mut stream = wire::accept(&listener, SOON);
    assert!(stream.request("MESSAGE", SOON).is_some());
}

/// Without `rport` the answer goes to the port in Via.
#[test]
fn answers_go_where_requests_came_from_if_the_setting_says_so() {
    for (setting, heard) in [(false, false), (true, true)] {
        let server = open(&format!("nat.force_rport = {setting}"));
        let (mut phone, mut other) = (server.connect(Udp), server.connect(Udp));
        let mut options = request(&phone, "OPTIONS", &format!("sip:{}", server.address(Udp)));
        options.via.1 = other.local();
        let text = String::from_utf8(options.bytes()).expect("it is text").replace(";rport", "");
        phone.send(text.as_bytes()).expect("loopback takes it");
        let (one, two) = if heard { (&mut phone, &mut other) } else { (&mut other, &mut phone) };
        assert!(one.final_response(SOON).is_some(), "force_rport = {setting}");
        assert!(two.final_response(NEVER).is_none(), "force_rport = {setting}");
    }
}

/// A ringing call may continue for the configured time, not for 30 seconds.
#[test]
fn a_shutdown_waits_for_calls_as_long_as_it_may() {
    let mut server = open("server.drain_timeout = \"1s\"");
    let (mut caller, _bob, _) = rings_bob(&server);
    let begun = Instant::now();
    server.process().signal(libc::SIGTERM);
    // The shards stop accepting a moment later.
    let own = format!("sip:{}", server.address(Udp));
    loop {
        let options = request(&caller, "OPTIONS", &own);
        match code(&exchange(&mut caller, &options)) {
            503 => break,
            other => assert!(other == 200 && begun.elapsed() < Duration::from_millis(900), "{other}"),
        }
    }
    server.process().end(Duration::from_secs(15));
    assert!(begun.elapsed() > Duration::from_millis(900), "{:?}", begun.elapsed());
}

#[test]
fn further_transactions_than_the_bound_are_refused() {
    let server = open("limits.transactions = 16");
    let (mut caller, mut bob) = (server.connect(Tcp), server.connect(Udp));
    register(&mut bob, "bob");
    let invites = (0..32).map(|_| request(&caller, "INVITE", "sip:bob@example.org"));
    for invite in invites.collect::<Vec<_>>() {
        send(&mut caller, &invite);
    }
    let refused = caller.final_response(SOON).expect("some are refused");
    assert_eq!(code(&refused), 503);
    assert!(text::field(&refused, "Retry-After").is_some());
}
