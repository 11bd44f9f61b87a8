//! What RFC 3261 section 16 and its successors ask of a proxy, rule by rule.

use std::io::Read;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use strowger_tests::server::{Server, Setup};
use strowger_tests::text::{Request, fields, request_uri, respond, status};
use strowger_tests::wire::Transport::{Tcp, Tls, Udp};
use strowger_tests::wire::{Wire, listen};

const LIMIT: Duration = Duration::from_secs(5);

/// A registrar of example.org that asks for no passwords; that strangers may call its users is its default.
fn start(lines: &str) -> Server {
    let lines = format!(
        "domains = [\"example.org\", \"localhost\"]\nregistrar.authenticate = false\nlog.level = \"error\"\n{lines}"
    );
    Setup::on(&[Udp]).with(&lines).in_memory().start()
}

fn ask(wire: &mut Wire, request: &Request) -> Option<u16> {
    wire.send(&request.bytes()).expect("loopback takes it");
    wire.final_response(LIMIT).as_deref().and_then(status)
}

/// The REGISTER of this user for where its messages come from.
fn registration(wire: &Wire, user: &str) -> Request {
    Request::register(user, "example.org", &format!("sip:{user}@{}", wire.local()), "udp", wire.local())
}

/// A phone of this user.
fn phone(server: &Server, user: &str) -> Wire {
    let mut wire = server.connect(Udp);
    let request = registration(&wire, user);
    assert_eq!(ask(&mut wire, &request), Some(200));
    wire
}

fn message(uri: &str, from: SocketAddr) -> Request {
    Request::new("MESSAGE", uri, "udp", from)
}

/// A Route with one of these names, alone or among the others, is taken off whatever the request is.
fn names_are_own(server: &Server, names: &[String]) {
    let mut bob = phone(server, "bob");
    for name in names {
        let mut wire = server.connect(Udp);
        let route = format!("Route: <sip:{name};lr>");
        let register = registration(&wire, "alice").with(&route);
        assert_eq!(ask(&mut wire, &register), Some(200), "{name}");
        let all = names.iter().map(|name| format!("<sip:{name};lr>")).collect::<Vec<_>>().join(", ");
        for route in [route, format!("Route: {all}")] {
            let request = message("sip:bob@example.org", wire.local()).with(&route);
            wire.send(&request.bytes()).expect("loopback takes it");
            let got = bob.request("MESSAGE", LIMIT).unwrap_or_else(|| panic!("{route} leads elsewhere"));
            assert_eq!((request_uri(&got), fields(&got, "Route").len()), (format!("sip:bob@{}", bob.local()), 0));
            bob.send(&respond(&got, 200, "b", &[])).expect("loopback takes it");
            assert_eq!(wire.final_response(LIMIT).as_deref().and_then(status), Some(200));
        }
        // What its users are called is another matter.
        let uri = format!("sip:bob@{name}");
        let known = if name.starts_with("localhost") { 480 } else { 404 };
        let request = message(&uri, wire.local());
        assert_eq!(ask(&mut wire, &request), Some(known), "{uri}");
        // Behind the names of this server the way goes on, for those who may.
        let route = format!("Route: <sip:{name};lr>, <sip:{};lr>", bob.local());
        let request = message("sip:bob@example.org", wire.local()).with(route);
        assert_eq!(ask(&mut wire, &request), Some(407), "{name}");
    }
}

#[test]
fn a_route_that_resolves_to_this_server_is_taken_off() {
    let server = start("");
    let port = server.address(Udp).port();
    // Below a domain of its own, and what the machine calls itself.
    names_are_own(&server, &[format!("localhost:{port}"), format!("sip.localhost:{port}")]);
}

#[test]
fn a_route_with_a_configured_name_of_this_server_is_taken_off() {
    let server = start("server.names = [\"router.example.net\"]");
    let port = server.address(Udp).port();
    names_are_own(&server, &["router.example.net".into(), format!("ROUTER.example.net:{port}")]);
    // At another port another program listens.
    let mut wire = server.connect(Udp);
    let other = format!("Route: <sip:router.example.net:{};lr>", wire.local().port());
    let request = message("sip:bob@example.org", wire.local()).with(other);
    assert_eq!(ask(&mut wire, &request), Some(407));
}

/// By what a connection to this place begins, if one comes.
fn first_octet(listener: &TcpListener) -> u8 {
    let mut octet = [0];
    let (mut stream, _) = listener.accept().expect("a connection comes");
    stream.read_exact(&mut octet).expect("something comes over it");
    octet[0]
}

/// RFC 3261 section 16.6 step 7: a sips resource is reached by TLS alone, whatever a Route or a Path says.
#[test]
fn a_sips_request_never_leaves_without_tls() {
    const HANDSHAKE: u8 = 22;
    let lines = "domains = [\"example.org\"]\nregistrar.authenticate = false\nproxy.relay_for = \"everyone\"\nauth.calls = false";
    let server = Setup::on(&[Udp, Tcp, Tls]).with(lines).in_memory().start();
    let (listener, tls) = listen();
    let mut edge = server.connect(Udp);
    let mut wire = server.connect(Udp);
    // By the Route's own words it would be UDP, and then TCP.
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
        assert_eq!(ask(&mut wire, &request), Some(480), "{uri}");
    }
    assert!(edge.receive(Duration::from_millis(1)).is_none());
}
