//! Parties that a participant of a call can reach by the header fields of this server: only the other party of this
//! call, and no third party. The configuration is the default: every caller may call users of the server, and these
//! users may call any address.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use strowger_tests::account::{challenged, register};
use strowger_tests::call::exchange;
use strowger_tests::dialog::{End, arrives, contact, invite, set_up, set_up_with};
use strowger_tests::namespace::{self, Namespace};
use strowger_tests::server::Setup;
use strowger_tests::site::Site;
use strowger_tests::text::{Request, address, field, request_uri, respond, status, unique};
use strowger_tests::wire::{Transport, Wire};

/// Time limit of an answer.
const SOON: Duration = Duration::from_secs(5);

/// Every method that may occur in a dialog.
const METHODS: [&str; 13] = [
    "INVITE",
    "BYE",
    "INFO",
    "UPDATE",
    "PRACK",
    "REFER",
    "NOTIFY",
    "SUBSCRIBE",
    "MESSAGE",
    "OPTIONS",
    "PUBLISH",
    "REGISTER",
    "NONSENSE",
];

fn start(transports: &[Transport], lines: &str, users: &[&str]) -> Site {
    let server = Setup::on(transports).with("domains = [\"example.org\"]").with(lines).site();
    for user in users {
        server.add_user(&format!("{user}@example.org"), user);
    }
    server
}

/// Asserts that the request is refused: it is not forwarded. Returns the status.
fn refused(wire: &mut Wire, request: &Request) -> u16 {
    wire.send(&request.bytes()).expect("loopback takes it");
    let status = loop {
        let answer = wire.final_response(SOON).unwrap_or_else(|| panic!("no answer to {request:#?}"));
        if field(&answer, "Call-ID").as_deref() == Some(&request.call_id) {
            if request.method == "INVITE" {
                wire.send(&request.ack(&answer).bytes()).expect("loopback takes it");
            }
            break status(&answer).expect("a response");
        }
    };
    assert!((400..500).contains(&status), "{status} to {request:#?}");
    status
}

/// Waits until all earlier requests have been processed.
fn settle(server: SocketAddr, wire: &mut Wire) {
    let uri = format!("sip:{server}");
    let answer = exchange(wire, &Request::new("OPTIONS", &uri, "udp", wire.local()));
    assert_eq!(status(&answer), Some(200), "{}", String::from_utf8_lossy(&answer));
}

/// Asserts that no earlier datagram has arrived.
fn hears_nothing(wire: &mut Wire) {
    if let Some(message) = wire.receive(Duration::from_millis(20)) {
        panic!("it heard {}", String::from_utf8_lossy(&message));
    }
}

/// Makes a call of a stranger to a user, which rings or is answered. Returns both ends.
fn strangers_call(server: &Site, user: &str, answers: bool) -> (Wire, Wire, End, End) {
    let (mut stranger, mut bob) = (server.connect(Transport::Udp), server.connect(Transport::Udp));
    register(&mut bob, user, user);
    let invite = invite(&format!("sip:{user}@example.org"), &stranger);
    let (one, other) = set_up(&mut stranger, &mut bob, &invite, answers);
    (stranger, bob, one, other)
}

/// Through the call of a stranger no method reaches another target: not by the Request-URI, a Route after ours,
/// `maddr`, the port, the transport, the user, another scheme.
#[test]
fn a_strangers_call_leads_to_no_third_party() {
    let server = start(&[Transport::Udp], "", &["bob"]);
    for answers in [false, true] {
        let (mut stranger, mut bob, mut end, _) = strangers_call(&server, "bob", answers);
        let mut victim = server.connect(Transport::Udp);
        let (there, party) = (victim.local(), end.uri.clone());
        for method in METHODS {
            for uri in [
                format!("sip:x@{there}"),
                format!("sip:{there}"),
                format!("{party};maddr={}", there.ip()),
                party.replace(&bob.local().port().to_string(), &there.port().to_string()),
                party.replace("callee@", "+19005551234@"),
            ] {
                refused(&mut stranger, &end.request_to(method, &uri));
            }
            let mut through = end.request(method);
            through.headers.push(format!("Route: <sip:{there};lr>"));
            refused(&mut stranger, &through);
            through.headers.swap(0, 1);
            through.branch.push('x');
            refused(&mut stranger, &through);
        }
        for uri in [format!("sip:x@{there}"), party.replace("callee@", "+19005551234@")] {
            stranger.send(&end.request_to("ACK", &uri).bytes()).expect("loopback takes it");
        }
        settle(server.address(Transport::Udp), &mut stranger);
        hears_nothing(&mut victim);
        hears_nothing(&mut bob);
        // The call itself still works.
        let bye = end.request("BYE");
        let (got, _) = arrives(&mut stranger, &mut bob, &bye, &[]);
        assert_eq!(request_uri(&got), party);
    }
}

/// The addresses in a stranger's messages lead the other party's phone no further into the network than their source:
/// not to ports of this machine.
#[test]
fn a_strangers_call_leads_no_request_further_in() {
    if !namespace::possible() {
        return;
    }
    let [middle, lan] = ["middle", "lan"].map(Namespace::new);
    middle.join(("m0", "10.62.1.1/24"), &lan, ("l0", "10.62.1.2/24"));
    let at = |text: &str| -> SocketAddr { text.parse().expect("an address") };
    let server = Setup::default()
        .listen(Transport::Udp, at("0.0.0.0:5060"))
        .listen(Transport::Tcp, at("0.0.0.0:5060"))
        .with("domains = [\"example.org\"]")
        .inside(&middle)
        .start();
    server.add_user("bob@example.org", "bob");
    let inner = middle.inside(|| TcpListener::bind("127.0.0.1:0")).expect("loopback has a port");
    inner.set_nonblocking(true).expect("a socket can be set");
    let port = inner.local_addr().expect("it is bound").port();
    let wire = || {
        let wire = lan.inside(|| Wire::connect_from(Transport::Udp, at("10.62.1.2:0"), at("10.62.1.1:5060"), None));
        wire.expect("a socket")
    };
    let mut bob = wire();
    register(&mut bob, "bob", "bob");
    let there = format!("{port};transport=tcp");
    let maddr = format!("Contact: <sip:x@10.62.1.2:{there};maddr=127.0.0.1>");
    let name = format!("Contact: <sip:x@localhost:{there}>");
    let mut stranger = wire();
    let own = contact("caller", &stranger);
    let routed = |lr: &str| vec![own.clone(), format!("Record-Route: <sip:127.0.0.1:{there}{lr}>")];
    for lines in [vec![maddr.clone()], vec![name.clone()], routed(";lr"), routed("")] {
        let mut call = Request::new("INVITE", "sip:bob@example.org", "udp", stranger.local());
        call.headers.extend(lines.clone());
        let (_, mut end) = set_up(&mut stranger, &mut bob, &call, false);
        assert_eq!(status(&exchange(&mut bob, &end.request("INFO"))), Some(500), "{lines:?}");
        assert!(inner.accept().is_err(), "{lines:?}");
    }
    for line in [maddr, name] {
        // Within the call.
        let call = invite("sip:bob@example.org", &stranger);
        let (mut one, mut other) = set_up(&mut stranger, &mut bob, &call, true);
        let update = one.request("UPDATE").with(line.clone());
        let (got, _) = arrives(&mut stranger, &mut bob, &update, &[]);
        let target = address(&field(&got, "Contact").expect("it was there"));
        assert_eq!(status(&exchange(&mut bob, &other.request_to("INFO", &target))), Some(500), "{line}");
        // From the callee: the ACK needs no password.
        let call = invite(&format!("sip:x@{}", stranger.local()), &bob);
        let call = Request { from: format!("<sip:bob@example.org>;tag={}", unique("f")), ..call };
        let call = challenged(&mut bob, &call, "bob", "bob");
        bob.send(&call.bytes()).expect("the server takes messages");
        let got = stranger.request("INVITE", SOON).expect("the INVITE arrives");
        stranger.send(&respond(&got, 200, "x", std::slice::from_ref(&line))).expect("the server takes messages");
        let mut end = End::caller(&call, &bob.final_response(SOON).expect("the call is answered"));
        bob.send(&end.request("ACK").bytes()).expect("the server takes messages");
        let answer = exchange(&mut bob, &Request { from: call.from.clone(), ..end.request("INFO") });
        assert_eq!(status(&answer), Some(500), "{line}");
        assert!(inner.accept().is_err(), "{line}");
    }
}

/// With any tag, an ACK outside of a call reaches no phone; the log reports the drop.
#[test]
fn an_ack_of_no_call_reaches_nobody() {
    let server = start(&[Transport::Udp], "", &["bob"]);
    let (mut stranger, mut bob, end, _) = strangers_call(&server, "bob", true);
    let mut ack = Request::new("ACK", "sip:bob@example.org", "udp", stranger.local());
    ack.to = "<sip:bob@example.org>;tag=x".into();
    stranger.send(&ack.bytes()).expect("loopback takes it");
    settle(server.address(Transport::Udp), &mut stranger);
    hears_nothing(&mut bob);
    server.log_with("ACK dropped");
    // The route token of the call, for another Contact.
    let mut early = end;
    let ack = early.request_to("ACK", "sip:other@127.0.0.1:9");
    stranger.send(&ack.bytes()).expect("loopback takes it");
    server.log_with("13.2.2.4");
}

/// A stranger could send bytes to an inner TCP port, and learn from the answer whether it is open.
#[test]
fn a_strangers_call_opens_no_connection() {
    let server = start(&[Transport::Udp, Transport::Tcp], "", &["bob"]);
    let (mut stranger, _bob, mut end, _) = strangers_call(&server, "bob", false);
    let (listener, open) = server.listen();
    let closed = server.free_address();
    let mut answers = Vec::new();
    for method in METHODS {
        for there in [open, closed] {
            let uri = format!("sip:x@{there};transport=tcp");
            let request = end.request_to(method, &uri).with("X-Inject: FLUSHALL");
            answers.push(refused(&mut stranger, &request));
        }
    }
    assert!(answers.chunks(2).all(|pair| pair[0] == pair[1]), "they tell open from closed ports: {answers:?}");
    assert!(listener.accept(Duration::from_millis(20)).is_none(), "a connection was made");
}

/// The party is determined by the route token, and not by the To header of the request, which its sender writes.
#[test]
fn another_party_in_to_changes_nothing() {
    let server = start(&[Transport::Udp], "", &["bob", "gw"]);
    let (mut stranger, _bob, mut end, _) = strangers_call(&server, "bob", false);
    let mut gateway = server.connect(Transport::Udp);
    register(&mut gateway, "gw", "gw");
    let tag = end.to.split_once(";tag=").expect("a tag").1.to_owned();
    for method in ["INVITE", "MESSAGE", "REFER", "BYE"] {
        for uri in [format!("sip:+19005551234@{}", gateway.local()), format!("sip:gw@{}", gateway.local())] {
            let mut request = end.request_to(method, &uri);
            request.to = format!("<sip:gw@example.org>;tag={tag}");
            refused(&mut stranger, &request);
        }
    }
    hears_nothing(&mut gateway);
}

/// A callee of our user can reach that user through the call, but cannot reach third parties in the name of that user.
#[test]
fn whom_a_user_calls_gets_no_open_relay() {
    let server = start(&[Transport::Udp], "", &["alice", "bob"]);
    let (mut alice, mut mallory) = (server.connect(Transport::Udp), server.connect(Transport::Udp));
    let mut gateway = server.connect(Transport::Udp);
    register(&mut alice, "alice", "alice");
    let mut call = invite(&format!("sip:mallory@{}", mallory.local()), &alice);
    call.from = "<sip:alice@example.org>;tag=alice".into();
    let call = challenged(&mut alice, &call, "alice", "alice");
    alice.send(&call.bytes()).expect("loopback takes it");
    let got = mallory.request("INVITE", SOON).expect("the INVITE arrives");
    let mut end = End::called(&got, "mallory", &mallory);
    mallory.send(&respond(&got, 486, "mallory", &[])).expect("loopback takes it");
    assert_eq!(alice.final_response(SOON).as_deref().and_then(status), Some(486));
    mallory.drain();
    let mut attack = |server: &Site, mallory: &mut Wire| {
        for method in METHODS {
            for from in ["<sip:ceo@example.org>", "<sip:alice@example.org>", "<sip:mallory@example.net>"] {
                for to in ["<sip:+19005551234@example.org>", "<sip:alice@example.org>"] {
                    let uri = format!("sip:+19005551234@{}", gateway.local());
                    let mut request = end.request_to(method, &uri);
                    request.from = format!("{from};tag=mallory");
                    request.to = format!("{to};tag=alice");
                    refused(mallory, &request);
                }
            }
        }
        settle(server.address(Transport::Udp), mallory);
        hears_nothing(&mut gateway);
    };
    attack(&server, &mut mallory);
    // Not after a restart either, nor without the user.
    server.restart();
    attack(&server, &mut mallory);
    server.remove_user("alice@example.org");
    attack(&server, &mut mallory);
}

/// The server does not use forged connection numbers and addresses: it continues to work, and no connection gets
/// messages that were meant for another connection.
#[test]
fn what_stands_in_a_contact_names_no_connection() {
    for shards in ["1", "\"auto\"", "2"] {
        let lines = format!("server.shards = {shards}");
        let server = start(&[Transport::Udp, Transport::Tcp], &lines, &["bob"]);
        let (mut stranger, mut bob) = (server.connect(Transport::Udp), server.connect(Transport::Tcp));
        // A trunk with an open connection that never registered.
        let mut trunk = server.connect(Transport::Tcp);
        let options = Request::new("OPTIONS", &format!("sip:{}", server.address(Transport::Tcp)), "tcp", trunk.local());
        trunk.send(&options.bytes()).expect("the server takes messages");
        assert!(trunk.final_response(SOON).is_some());
        register(&mut bob, "bob", "bob");
        let call = invite("sip:bob@example.org", &stranger);
        let (mut end, _) = set_up(&mut stranger, &mut bob, &call, false);
        let sealed = end.uri.clone();
        let plain = format!("sip:callee@{};transport=tcp", bob.local());
        assert!(sealed.starts_with(&plain) && sealed.len() > plain.len(), "{sealed}");
        // In the earlier format: address, transport, node.process.shard.slot.generation.
        let process = sealed.rsplit('~').next().and_then(|flow| flow.split('.').nth(1)).unwrap_or("1");
        let address = format!("{}~{}~1", bob.local().ip(), bob.local().port());
        let mut forged: Vec<String> = Vec::new();
        for slot in 0..6 {
            forged.push(format!("{plain};alias={address}~0.{process}.0.{slot:x}.2"));
        }
        for shard in [1, 2, 3, 7, 63, 64, 200, 255] {
            forged.push(format!("{plain};alias={address}~0.{process}.{shard:x}.0.2"));
        }
        // In the present format: our value, with each character changed.
        let value = sealed.rfind('=').expect("a value") + 1;
        for at in value..sealed.len() {
            for character in ["A", "z", "-"] {
                let mut changed = sealed.clone();
                changed.replace_range(at..=at, character);
                if changed != sealed {
                    forged.push(changed);
                }
            }
        }
        for (n, uri) in forged.iter().enumerate() {
            // No more at once than a socket holds answers.
            if n % 20 == 0 {
                settle(server.address(Transport::Udp), &mut stranger);
            }
            for to in [&end.to, "<sip:nobody@example.org>;tag=x"] {
                let request = Request { to: to.into(), uri: uri.clone(), ..end.clone().request("INFO") };
                end.cseq += 1;
                stranger.send(&request.bytes()).expect("loopback takes it");
            }
        }
        settle(server.address(Transport::Udp), &mut stranger);
        server.assert_answers(Transport::Udp);
        server.assert_answers(Transport::Tcp);
        assert!(trunk.receive(Duration::from_millis(20)).is_none(), "the trunk got what was meant for bob");
    }
}

/// A token of one call is invalid in another call, in the other direction, and for another party.
#[test]
fn route_tokens_are_not_exchanged() {
    let server = start(&[Transport::Udp], "", &["bob", "carol"]);
    let (mut stranger, mut bob, mut end, mut back) = strangers_call(&server, "bob", true);
    let (mut second, _, mut other, _) = strangers_call(&server, "carol", true);
    let foreign = other.routes[0].clone();
    let (there, home) = (end.routes[0].clone(), back.routes[0].clone());
    let changed = |end: &mut End, change: &dyn Fn(&mut Request)| {
        let mut request = end.request("INFO");
        change(&mut request);
        request
    };
    let from = end.from.clone();
    let attacks: [&dyn Fn(&mut Request); 12] = [
        // The route token of another call, of the other direction, and both before the right one.
        &|r| r.headers[0] = format!("Route: {foreign}"),
        &|r| r.headers[0] = format!("Route: {home}"),
        &|r| r.headers.insert(0, format!("Route: {home}")),
        &|r| r.headers.insert(0, format!("Route: {foreign}")),
        // Two in one Route.
        &|r| r.headers[0] = format!("Route: {}", there.replace(";d=", ";d=AAAA;d=")),
        &|r| r.headers[0] = format!("Route: {}", there.replace(";d=", ";D=x;d=")),
        // Truncated, longer, without a value.
        &|r| r.headers[0] = format!("Route: {}>", &there[..there.len() - 2]),
        &|r| r.headers[0] = format!("Route: {}A>", &there[..there.len() - 1]),
        &|r| {
            r.headers[0] =
                format!("Route: {}", there.split(";d=").next().map(|s| format!("{s};d>")).expect("a route token"))
        },
        // Another call, another party, no party.
        &|r| r.call_id.push('x'),
        &|r| r.to = from.clone(),
        &|r| r.to = r.to.replace(";tag=", ";tag=x"),
    ];
    for (n, attack) in attacks.iter().enumerate() {
        let request = changed(&mut end, *attack);
        let answer = refused(&mut stranger, &request);
        assert!(answer == 407 || answer == 400, "attack {n}: {answer}");
    }
    // This is the form of a strict router: our Route is the Request-URI, and the target is the last Route.
    let own = there.trim_matches(['<', '>']).to_owned();
    for target in ["<sip:+19005551234@127.0.0.9>".to_owned(), format!("<sip:x@{}>", second.local())] {
        let mut request = end.request_to("INFO", &own);
        request.headers = vec![format!("Route: {target}")];
        refused(&mut stranger, &request);
    }
    hears_nothing(&mut bob);
    hears_nothing(&mut second);
    // All of these route tokens are valid at their proper place.
    arrives(&mut stranger, &mut bob, &end.request("INFO"), &[]);
    arrives(&mut bob, &mut stranger, &back.request("INFO"), &[]);
    let mut request = end.request_to("INFO", &own);
    request.headers = vec![format!("Route: <{}>", end.uri)];
    arrives(&mut stranger, &mut bob, &request, &[]);
    other.routes.clear();
    refused(&mut second, &other.request("INFO"));
}

/// Tokens are accepted only in a Request-URI and a Route of ours.
#[test]
fn route_tokens_and_seals_are_believed_in_their_place_alone() {
    let server = start(&[Transport::Udp, Transport::Tcp], "", &["bob", "carol"]);
    let (mut stranger, mut bob) = (server.connect(Transport::Udp), server.connect(Transport::Tcp));
    register(&mut bob, "bob", "bob");
    let call = invite("sip:bob@example.org", &stranger);
    let (mut end, _) = set_up(&mut stranger, &mut bob, &call, true);
    let (route, sealed) = (end.routes[0].clone(), end.uri.clone());
    // Outside of the call: an initial request with the route token, or addressed to the seal.
    for headers in [vec![], vec![format!("Route: {route}")]] {
        let mut fresh = invite(&sealed, &stranger);
        fresh.headers.extend(headers.clone());
        assert_eq!(refused(&mut stranger, &fresh), 407);
        fresh.call_id.clone_from(&end.call_id);
        fresh.branch.push('2');
        assert_eq!(refused(&mut stranger, &fresh), 407);
    }
    // In another call: as its Contact, the seal gives its other party no access.
    let mut third = server.connect(Transport::Udp);
    let mut carol = server.connect(Transport::Udp);
    register(&mut carol, "carol", "carol");
    let call =
        Request::new("INVITE", "sip:carol@example.org", "udp", third.local()).with(format!("Contact: <{sealed}>"));
    let own = [contact("callee", &carol)];
    let (_, mut back) = set_up_with(&mut third, &mut carol, &call, true, &own);
    assert!(back.uri.contains("callee@"), "{}", back.uri);
    let bye = back.request("BYE");
    carol.send(&bye.bytes()).expect("loopback takes it");
    // The BYE goes to the address that is written in that Contact, not over bob's connection.
    assert!(bob.request("BYE", Duration::from_millis(200)).is_none());
    // In Path, Refer-To, Record-Route, Via it is text.
    let mut request = end.request("INFO");
    request.headers.extend([
        format!("Path: {route}"),
        format!("Refer-To: <{sealed}>"),
        format!("Record-Route: {route}"),
        format!("Contact: <{sealed}>"),
    ]);
    let (got, _) = arrives(&mut stranger, &mut bob, &request, &[]);
    assert_eq!(field(&got, "Refer-To"), Some(format!("<{sealed}>")));
    assert_eq!(field(&got, "Contact"), Some(format!("<{sealed}>")));
}

/// After `proxy.route_lifetime` requests of a call need the rights of an initial request; a call refreshed within this
/// time continues.
#[test]
fn route_tokens_end() {
    let server = start(&[Transport::Udp], "proxy.route_lifetime = \"1s\"", &["bob", "carol"]);
    let (mut stranger, mut bob, mut end, mut back) = strangers_call(&server, "bob", true);
    let (mut other, _, mut silent, _) = strangers_call(&server, "carol", true);
    // A second of the lifetime counts when it is over.
    for _ in 0..7 {
        let own = [contact("callee", &bob)];
        let update = end.request("UPDATE").with(contact("caller", &stranger));
        let (got, answer) = arrives(&mut stranger, &mut bob, &update, &own);
        back.uri = address(&field(&got, "Contact").expect("a Contact"));
        end.uri = address(&field(&answer, "Contact").expect("a Contact"));
        server.wait(Duration::from_millis(300));
    }
    arrives(&mut stranger, &mut bob, &end.request("BYE"), &[]);
    assert_eq!(refused(&mut other, &silent.request("BYE")), 407);
}

/// Two servers with different secrets, and a fake one.
#[test]
fn a_route_token_of_another_server_opens_nothing() {
    let (one, two) = (start(&[Transport::Udp], "", &["bob"]), start(&[Transport::Udp], "", &["bob"]));
    let (_stranger, _bob, end, _) = strangers_call(&one, "bob", true);
    let (_, mut bob, mut second, _) = strangers_call(&two, "bob", true);
    let mut wire = two.connect(Transport::Udp);
    let port = |server: &Site| server.address(Transport::Udp).port().to_string();
    let mut request = second.request("INFO");
    request.headers = vec![format!("Route: {}", end.routes[0].replace(&port(&one), &port(&two)))];
    request.call_id.clone_from(&end.call_id);
    request.to.clone_from(&end.to);
    refused(&mut wire, &request);
    hears_nothing(&mut bob);
}
