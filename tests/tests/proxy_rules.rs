//! The rules of RFC 3261 section 16 and its successors for a proxy, one by one.

use std::io::Read;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use strowger_tests::dialog::{arrives, invite, set_up};
use strowger_tests::namespace::{self, Namespace};
use strowger_tests::server::Setup;
use strowger_tests::site::Site;
use strowger_tests::text::{Request, address as address_of, field, fields, parameter, request_uri, respond, status};
use strowger_tests::wire::Transport::{Tcp, Tls, Udp, Wss};
use strowger_tests::wire::{Wire, listen};

const LIMIT: Duration = Duration::from_secs(5);

/// Starts a registrar of example.org that asks for no passwords; by default foreign callers may call its users.
fn start(lines: &str) -> Site {
    let lines = format!(
        "domains = [\"example.org\", \"localhost\"]\nregistrar.authenticate = false\nlog.level = \"error\"\n{lines}"
    );
    Setup::on(&[Udp]).with(&lines).in_memory().site()
}

fn ask(wire: &mut Wire, request: &Request) -> Option<u16> {
    wire.send(&request.bytes()).expect("loopback takes it");
    wire.final_response(LIMIT).as_deref().and_then(status)
}

/// Returns a REGISTER of this user with the wire's address as Contact.
fn registration(wire: &Wire, user: &str) -> Request {
    Request::register(user, "example.org", &format!("sip:{user}@{}", wire.local()), "udp", wire.local())
}

/// Registers a phone of this user.
fn phone(server: &Site, user: &str) -> Wire {
    let mut wire = server.connect(Udp);
    let request = registration(&wire, user);
    assert_eq!(ask(&mut wire, &request), Some(200));
    wire
}

fn message(uri: &str, from: SocketAddr) -> Request {
    Request::new("MESSAGE", uri, "udp", from)
}

/// Checks that a MESSAGE with this Route reaches bob's phone, without the Route.
fn assert_taken_off(wire: &mut Wire, bob: &mut Wire, route: &str) {
    let request = message("sip:bob@example.org", wire.local()).with(route);
    wire.send(&request.bytes()).expect("loopback takes it");
    let got = bob.request("MESSAGE", LIMIT).unwrap_or_else(|| panic!("{route} leads elsewhere"));
    assert_eq!((request_uri(&got), fields(&got, "Route").len()), (format!("sip:bob@{}", bob.local()), 0));
    bob.send(&respond(&got, 200, "b", &[])).expect("loopback takes it");
    assert_eq!(wire.final_response(LIMIT).as_deref().and_then(status), Some(200));
}

/// Checks that the server removes a Route with one of these names from any request, alone or among other Routes.
fn names_are_own(server: &Site, names: &[String]) {
    let mut bob = phone(server, "bob");
    for name in names {
        let mut wire = server.connect(Udp);
        let route = format!("Route: <sip:{name};lr>");
        let register = registration(&wire, "alice").with(&route);
        assert_eq!(ask(&mut wire, &register), Some(200), "{name}");
        let all = names.iter().map(|name| format!("<sip:{name};lr>")).collect::<Vec<_>>().join(", ");
        for route in [route, format!("Route: {all}")] {
            assert_taken_off(&mut wire, &mut bob, &route);
        }
        // The address of the server stands for its only domain. A name that leads here only by DNS does not.
        let uri = format!("sip:bob@{name}");
        let request = message(&uri, wire.local());
        if name.starts_with("pbx.") {
            assert_eq!(ask(&mut wire, &request), Some(404), "{uri}");
        } else {
            wire.send(&request.bytes()).expect("loopback takes it");
            let got = bob.request("MESSAGE", LIMIT).unwrap_or_else(|| panic!("{uri} is not bob's"));
            bob.send(&respond(&got, 200, "b", &[])).expect("loopback takes it");
            assert_eq!(wire.final_response(LIMIT).as_deref().and_then(status), Some(200), "{uri}");
        }
        // A Route behind the names of this server is followed, for authorized senders.
        let route = format!("Route: <sip:{name};lr>, <sip:{};lr>", bob.local());
        let request = message("sip:bob@example.org", wire.local()).with(route);
        assert_eq!(ask(&mut wire, &request), Some(407), "{name}");
    }
}

#[test]
fn a_route_that_resolves_to_this_server_is_taken_off() {
    let server = start("");
    let port = server.address(Udp).port();
    // A name below a domain of its own, and the machine's own name.
    names_are_own(&server, &[format!("localhost:{port}"), format!("pbx.localhost:{port}")]);
}

/// The outbound proxy of a phone is often the domain, with the port.
#[test]
fn a_route_that_names_the_domain_is_taken_off_whatever_its_port_and_user() {
    let server = start("");
    let own = server.address(Udp).port();
    let mut bob = phone(&server, "bob");
    let mut wire = server.connect(Udp);
    for name in [
        "example.org".into(),
        format!("example.org:{own}"),
        format!("EXAMPLE.org:{own};transport=udp"),
        format!("alice@example.org:{own}"),
        "alice@example.org".into(),
    ] {
        let route = format!("Route: <sip:{name};lr>");
        let register = registration(&wire, "alice").with(&route);
        assert_eq!(ask(&mut wire, &register), Some(200), "{name}");
        // Phones keep their outbound proxy before the route set of a call.
        for route in [route.clone(), format!("Route: <sip:127.0.0.1:{own};lr>\r\n{route}")] {
            assert_taken_off(&mut wire, &mut bob, &route);
        }
    }
    // Another program listens at another port.
    let other = format!("Route: <sip:example.org:{};lr>", wire.local().port());
    let request = message("sip:bob@example.org", wire.local()).with(other);
    assert_eq!(ask(&mut wire, &request), Some(407));
}

#[test]
fn a_route_with_a_configured_name_of_this_server_is_taken_off() {
    let server = start("server.names = [\"router.example.net\"]");
    let port = server.address(Udp).port();
    names_are_own(&server, &["router.example.net".into(), format!("ROUTER.example.net:{port}")]);
    // Another program listens at another port.
    let mut wire = server.connect(Udp);
    let other = format!("Route: <sip:router.example.net:{};lr>", wire.local().port());
    let request = message("sip:bob@example.org", wire.local()).with(other);
    assert_eq!(ask(&mut wire, &request), Some(407));
}

/// Accepts a connection; returns its first octet.
fn first_octet(listener: &TcpListener) -> u8 {
    let mut octet = [0];
    let (mut stream, _) = listener.accept().expect("a connection comes");
    stream.read_exact(&mut octet).expect("something comes over it");
    octet[0]
}

/// RFC 3261 section 16.6 step 7: a sips resource is reached over TLS alone, even against a Route or a Path.
#[test]
fn a_sips_request_never_leaves_without_tls() {
    const HANDSHAKE: u8 = 22;
    let lines = "domains = [\"example.org\"]\nregistrar.authenticate = false\nproxy.relay_for = \"everyone\"\nauth.calls = false";
    let server = Setup::on(&[Udp, Tcp, Tls]).with(lines).in_memory().start();
    let (listener, tls) = listen();
    let mut edge = server.connect(Udp);
    let mut wire = server.connect(Udp);
    // The Route itself asks for UDP, and then for TCP.
    for (port, transport) in [(edge.local().port(), ""), (tls.port(), ";transport=tcp")] {
        let route = format!("Route: <sip:127.0.0.1:{port}{transport};lr>");
        let request = Request::new("MESSAGE", "sips:bob@secure.example.net", "udp", wire.local()).with(route);
        wire.send(&request.bytes()).expect("loopback takes it");
        if port == tls.port() {
            assert_eq!(first_octet(&listener), HANDSHAKE);
        }
        assert_eq!(wire.final_response(LIMIT).as_deref().and_then(status), Some(500));
    }
    let mut register = registration(&wire, "bob").with("Supported: path");
    register.headers[0] = "Contact: <sips:bob@10.9.9.9>".into();
    register.headers.push(format!("Path: <sip:{};lr>", edge.local()));
    assert_eq!(ask(&mut wire, &register), Some(200));
    for uri in ["sips:bob@example.org", "sip:bob@example.org"] {
        let request = message(uri, wire.local());
        assert!(matches!(ask(&mut wire, &request), Some(480 | 500)), "{uri}");
    }
    assert!(edge.receive(Duration::from_millis(1)).is_none());
    // The same holds for a sips Contact that was registered over a connection without TLS, and for a sips Contact that
    // leads to a sip Contact.
    let mut phone = server.connect(Tcp);
    for (user, contact) in
        [("dave", format!("sips:dave@{}", phone.local())), ("eve", String::from("sips:frank@example.org"))]
    {
        let register = Request::register(user, "example.org", &contact, "tcp", phone.local());
        assert_eq!(ask(&mut phone, &register), Some(200), "{user}");
    }
    let register =
        Request::register("frank", "example.org", &format!("sip:frank@{}", phone.local()), "tcp", phone.local());
    assert_eq!(ask(&mut phone, &register), Some(200));
    for user in ["dave", "eve"] {
        let request = message(&format!("sip:{user}@example.org"), wire.local());
        assert_eq!(ask(&mut wire, &request), Some(480), "{user}");
    }
    assert!(phone.receive(Duration::from_millis(1)).is_none());
}

/// A registered phone, and the INVITE that it rings for.
struct Ringing {
    phone: Wire,
    invite: Vec<u8>,
}

impl Ringing {
    fn send(&mut self, code: u16) {
        let tag = self.phone.local().port().to_string();
        self.phone.send(&respond(&self.invite, code, &tag, &[])).expect("loopback takes it");
    }

    /// Returns the Reasons of the CANCEL that arrives in this time.
    fn cancelled(&mut self, limit: Duration) -> Option<Vec<String>> {
        let cancel = self.phone.request("CANCEL", limit)?;
        self.phone.send(&respond(&cancel, 200, "c", &[])).expect("loopback takes it");
        Some(fields(&cancel, "Reason"))
    }
}

/// Calls this user, whose `phones` phones ring.
fn call(server: &Site, user: &str, phones: usize) -> (Wire, Request, Vec<Ringing>) {
    let mut phones: Vec<_> = (0..phones).map(|_| phone(server, user)).collect();
    let mut caller = server.connect(Udp);
    let invite = Request::new("INVITE", &format!("sip:{user}@example.org"), "udp", caller.local());
    caller.send(&invite.bytes()).expect("loopback takes it");
    let rings = |mut phone: Wire| {
        let invite = phone.request("INVITE", LIMIT).expect("it rings");
        Ringing { phone, invite }
    };
    let ringing = phones.drain(..).map(rings).collect();
    (caller, invite, ringing)
}

const ELSEWHERE: &str = "SIP;cause=200;text=\"Call completed elsewhere\"";

/// RFC 3326: otherwise each phone of a group lists a missed call.
#[test]
fn a_phone_hears_why_its_ringing_ends() {
    let server = start("");
    // One of three phones answers, the second phone has only rung, and the third has sent nothing yet.
    let (mut caller, _, mut phones) = call(&server, "bob", 3);
    phones[0].send(180);
    phones[1].send(200);
    assert_eq!(caller.final_response(LIMIT).as_deref().and_then(status), Some(200));
    assert_eq!(phones[0].cancelled(LIMIT).as_deref(), Some(&[ELSEWHERE.to_owned()][..]));
    phones[2].send(180);
    assert_eq!(phones[2].cancelled(LIMIT).as_deref(), Some(&[ELSEWHERE.to_owned()][..]));
    // One of two phones declines the call for all phones.
    let (_caller, _, mut phones) = call(&server, "carol", 2);
    phones[0].send(180);
    phones[1].send(603);
    assert_eq!(phones[0].cancelled(LIMIT).as_deref(), Some(&["SIP;cause=603;text=\"Decline\"".to_owned()][..]));
    // The caller gives up, with or without Reasons.
    let why = ["SIP;cause=480", "Q.850;cause=16;text=\"Terminated\""];
    for reasons in [&why[..], &why[..1], &[]] {
        let user = format!("dave{}", reasons.len());
        let (mut caller, invite, mut phones) = call(&server, &user, 2);
        phones[0].send(180);
        assert_eq!(caller.answer(LIMIT).as_deref().and_then(status), Some(180));
        let cancel = reasons.iter().fold(invite.cancel(), |cancel, reason| cancel.with(format!("Reason: {reason}")));
        caller.send(&cancel.bytes()).expect("loopback takes it");
        assert_eq!(caller.final_response(LIMIT).as_deref().and_then(status), Some(200));
        phones[1].send(180);
        for phone in &mut phones {
            assert_eq!(phone.cancelled(LIMIT).expect("a CANCEL"), reasons);
        }
    }
}

#[test]
fn timer_c_ends_the_branch_that_says_nothing_more_and_no_other() {
    let server = start("timers.timer_c = \"1s\"");
    let (_caller, _, mut phones) = call(&server, "bob", 2);
    let begun = phones[1].phone.clock();
    phones[1].send(180);
    // Early media of one branch does not extend the time of the other branch.
    let mut cancelled = None;
    while cancelled.is_none() {
        assert!(phones[1].phone.clock() < begun + LIMIT, "it rings on");
        phones[0].send(183);
        cancelled = phones[1].cancelled(Duration::from_millis(200));
    }
    let took = phones[1].phone.clock() - begun;
    assert!((1_000..1_200).contains(&took.as_millis()), "{took:?}");
    assert!(phones[0].cancelled(Duration::from_millis(1)).is_none());
}

/// RFC 4320 section 4.1, whatever the transport.
#[test]
fn a_request_that_takes_long_is_answered_100() {
    let lines =
        "domains = [\"example.org\"]\nregistrar.authenticate = false\ntimers.t1 = \"50ms\"\ntimers.t2 = \"200ms\"";
    let server = Setup::on(&[Udp, Tcp]).with(lines).in_memory().site();
    let mut bob = phone(&server, "bob");
    for transport in [Udp, Tcp] {
        let mut wire = server.connect(transport);
        let request = Request::new("MESSAGE", "sip:bob@example.org", transport.name(), wire.local());
        let begun = wire.clock();
        wire.send(&request.bytes()).expect("loopback takes it");
        let got = bob.request("MESSAGE", LIMIT).expect("it arrives");
        let trying = wire.receive(LIMIT).expect("a response");
        assert_eq!(status(&trying), Some(100), "{transport:?}");
        // After 50 and 100 ms.
        assert_eq!((wire.clock() - begun).as_millis(), 150, "when Timer E is T2");
        assert_eq!(field(&trying, "To").as_deref(), Some("<sip:bob@example.org>"));
        bob.send(&respond(&got, 202, "b", &[])).expect("loopback takes it");
        assert_eq!(wire.final_response(LIMIT).as_deref().and_then(status), Some(202));
        bob.drain();
    }
}

#[test]
fn timer_b_is_how_long_a_silent_phone_is_waited_for() {
    let server = start("timers.timer_b = \"300ms\"");
    let (mut bob, mut next, mut caller) = (phone(&server, "bob"), server.connect(Udp), server.connect(Udp));
    let mut register = registration(&next, "bob");
    register.headers[0].push_str(";q=0.5");
    assert_eq!(ask(&mut next, &register), Some(200));
    let invite = Request::new("INVITE", "sip:bob@example.org", "udp", caller.local());
    caller.send(&invite.bytes()).expect("loopback takes it");
    bob.request("INVITE", LIMIT).expect("the first");
    next.request("INVITE", LIMIT).expect("the other one, long before 64 times T1");
    assert_eq!(caller.final_response(LIMIT).as_deref().and_then(status), Some(408));
}

#[test]
fn a_503_that_goes_on_as_500_says_nothing_of_when_to_come_again() {
    let server = start("");
    let mut bob = phone(&server, "bob");
    for (code, upstream, kept) in [(503, 500, 0), (500, 500, 1)] {
        let mut wire = server.connect(Udp);
        let request = message("sip:bob@example.org", wire.local());
        wire.send(&request.bytes()).expect("loopback takes it");
        let got = bob.request("MESSAGE", LIMIT).expect("it arrives");
        bob.send(&respond(&got, code, "b", &["Retry-After: 3600".into()])).expect("loopback takes it");
        let answer = wire.final_response(LIMIT).expect("an answer");
        assert_eq!((status(&answer), fields(&answer, "Retry-After").len()), (Some(upstream), kept));
    }
}

/// RFC 3261 section 16.3 step 1: header fields that a proxy does not use may be malformed. They leave in the form that
/// every reader accepts (RFC 4475 section 3.1.2.15).
#[test]
fn what_a_proxy_does_not_use_may_be_written_loosely() {
    let server = start("");
    let mut bob = phone(&server, "bob");
    let mut relay = |from: &str, text: &str| {
        let mut wire = server.connect(Udp);
        let mut request = message("sip:bob@example.org", wire.local());
        request.from = request.from.replace('<', &format!("{from} <"));
        let text = String::from_utf8(request.bytes()).expect("text").replace(";rport", text);
        wire.send(text.as_bytes()).expect("loopback takes it");
        let got = bob.request("MESSAGE", LIMIT).unwrap_or_else(|| panic!("{from:?}, {text:?}"));
        bob.send(&respond(&got, 200, "b", &[])).expect("loopback takes it");
        let answer = wire.final_response(LIMIT).expect("an answer");
        assert_eq!(status(&answer), Some(200));
        (got, answer, wire.local())
    };
    for name in ["Bob, Jr.", "Bob (home)", "J\u{f6}rg", "A/B"] {
        let (got, answer, _) = relay(name, ";rport");
        for message in [got, answer] {
            assert!(field(&message, "From").is_some_and(|from| from.starts_with(&format!("\"{name}\" <"))), "{name}");
        }
    }
    let (_, answer, here) = relay("Bob", ";rport=");
    let via = field(&answer, "Via").expect("a Via");
    assert_eq!(parameter(&via, "rport"), Some(here.port().to_string()), "{via}");
}

/// Old call flows write Routes without brackets.
#[test]
fn a_route_without_brackets_is_one_with_its_parameters() {
    let server = start("");
    let mut bob = phone(&server, "bob");
    let mut wire = server.connect(Udp);
    let request = message("sip:bob@example.org", wire.local()).with(format!("Route: sip:{};lr", server.address(Udp)));
    wire.send(&request.bytes()).expect("loopback takes it");
    assert!(bob.request("MESSAGE", LIMIT).is_some());
    let server = Setup::on(&[Udp]).relay().site();
    let (mut next, mut wire) = (server.connect(Udp), server.connect(Udp));
    let route = format!("Route: sip:{};lr", next.local());
    wire.send(&message("sip:bob@example.net", wire.local()).with(&route).bytes()).expect("loopback takes it");
    let got = next.request("MESSAGE", LIMIT).expect("the request");
    assert_eq!(request_uri(&got), "sip:bob@example.net", "no strict router stands there");
    assert_eq!(fields(&got, "Route").len(), 1);
}

#[test]
fn a_400_says_which_header_field_is_missing() {
    let server = start("");
    for name in ["From", "To", "CSeq"] {
        let mut wire = server.connect(Udp);
        let text = String::from_utf8(message("sip:bob@example.org", wire.local()).bytes()).expect("text");
        let lines: Vec<_> = text.split("\r\n").filter(|line| !line.starts_with(&format!("{name}:"))).collect();
        wire.send(lines.join("\r\n").as_bytes()).expect("loopback takes it");
        let answer = wire.final_response(LIMIT).expect("an answer");
        assert_eq!(status(&answer), Some(400));
        let warning = field(&answer, "Warning").unwrap_or_default();
        assert!(warning.contains(&format!("\"{name} is missing\"")), "{warning}");
    }
}

/// RFC 7118 section 5.2: `transport=ws` with and without TLS below it.
#[test]
fn a_record_route_over_secure_websocket_says_ws() {
    let lines = "domains = [\"example.org\"]\nregistrar.authenticate = false";
    let server = Setup::on(&[Udp, Wss]).with(lines).in_memory().site();
    let mut bob = phone(&server, "bob");
    let mut caller = server.connect(Wss);
    let request = invite("sip:bob@example.org", &caller);
    let (mut one, mut other) = set_up(&mut caller, &mut bob, &request, true);
    let way = format!("<sip:{};transport=ws;", server.address(Wss));
    let own: Vec<_> = one.routes.iter().filter(|route| route.contains("transport=")).collect();
    assert!(own.len() == 1 && own[0].starts_with(&way), "{:?}", one.routes);
    // The Record-Route works from both sides.
    let bye = other.request("INFO");
    arrives(&mut bob, &mut caller, &bye, &[]);
    let bye = one.request("BYE");
    arrives(&mut caller, &mut bob, &bye, &[]);
}

#[test]
fn a_phone_that_subscribes_to_its_own_state_does_not_hear_itself() {
    let server = start("auth.calls = false");
    let mut bob = phone(&server, "bob");
    let mut request =
        Request::new("SUBSCRIBE", "sip:bob@example.org", "udp", bob.local()).with("Event: message-summary");
    request.from = "<sip:bob@example.org>;tag=b".into();
    bob.send(&request.bytes()).expect("loopback takes it");
    let got = bob.receive(LIMIT).expect("an answer");
    assert_eq!(status(&got), Some(489));
    // Another user may subscribe.
    let mut carol = server.connect(Udp);
    let request = Request::new("SUBSCRIBE", "sip:bob@example.org", "udp", carol.local()).with("Event: presence");
    carol.send(&request.bytes()).expect("loopback takes it");
    assert!(bob.request("SUBSCRIBE", LIMIT).is_some());
}

/// A phone in one network calls into another one: the request leaves from the listener of that network, not from the
/// one that received it.
#[test]
fn a_next_hop_in_another_network_is_reached_by_the_listener_there() {
    if !namespace::possible() {
        return;
    }
    let [middle, lan, wan] = ["middle", "lan", "wan"].map(Namespace::new);
    middle.join(("m0", "10.61.1.1/24"), &lan, ("l0", "10.61.1.2/24"));
    middle.join(("m1", "10.61.2.1/24"), &wan, ("w0", "10.61.2.2/24"));
    let address = |text: &str| -> SocketAddr { text.parse().expect("an address") };
    // A network namespace has its own ports.
    let listen = ["10.61.1.1:5060", "10.61.2.1:5060"].map(address);
    let setup = listen.iter().fold(Setup::default(), |setup, at| setup.listen(Udp, *at));
    let _server = setup.relay().inside(&middle).start();
    let wire = |namespace: &Namespace, from: &str, to: SocketAddr| {
        namespace.inside(|| Wire::connect_from(Udp, address(from), to, None)).expect("a socket")
    };
    let mut phone = wire(&lan, "10.61.1.2:0", listen[0]);
    let mut trunk = wire(&wan, "10.61.2.2:0", listen[1]);
    let request = invite(&format!("sip:x@{}", trunk.local()), &phone);
    let (mut one, mut other) = set_up(&mut phone, &mut trunk, &request, true);
    // Each side sees the address of its own network.
    let host = |routes: &[String]| routes.first().map(|route| address_of(route)).unwrap_or_default();
    assert!(host(&one.routes).contains(&listen[0].to_string()), "{:?}", one.routes);
    assert!(host(&other.routes).contains(&listen[1].to_string()), "{:?}", other.routes);
    let info = other.request("INFO");
    let (got, _) = arrives(&mut trunk, &mut phone, &info, &[]);
    assert!(fields(&got, "Via")[0].contains(&listen[0].to_string()));
    let bye = one.request("BYE");
    let (got, _) = arrives(&mut phone, &mut trunk, &bye, &[]);
    assert!(fields(&got, "Via")[0].contains(&listen[1].to_string()));
}
