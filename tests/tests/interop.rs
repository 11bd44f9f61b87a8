//! Third-party programs through the running server: SIPp, sipsak, baresip and Kamailio.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use strowger_tests::account::{challenged, register};
use strowger_tests::baresip::{Baresip, Phone, end, with_users};
use strowger_tests::dialog::{arrives, invite, set_up};
use strowger_tests::homes::{HOST, Homes, SERVER};
use strowger_tests::kamailio::Kamailio;
use strowger_tests::namespace::{self, Namespace};
use strowger_tests::port;
use strowger_tests::program::{BARESIP, KAMAILIO, SIPP, SIPSAK, have};
use strowger_tests::server::{Server, Setup, loopback};
use strowger_tests::sipp::{BUILT_IN, Calls, OURS};
use strowger_tests::text::Request;
use strowger_tests::wire::Transport::{self, Tcp, Tls, Udp, Ws};
use strowger_tests::wire::Wire;

const SOON: Duration = Duration::from_secs(15);

#[test]
fn sipp_calls_sipp_by_udp() {
    if !have(&[SIPP]) {
        return;
    }
    let server = Setup::on(&[Udp]).relay().start();
    for scenarios in [BUILT_IN, OURS] {
        let calls = Calls { scenarios, transports: ("u1", "u1"), way: "udp", calls: Some(200), rate: 100 };
        calls.run(server.address(Udp), None, port::free());
    }
}

#[test]
fn sipp_calls_sipp_by_tcp() {
    if !have(&[SIPP]) {
        return;
    }
    let server = Setup::on(&[Udp, Tcp]).relay().start();
    // The built-in caller names no transport in its Request-URI, which means UDP (RFC 3263 section 4.1): the server
    // changes from one to the other.
    for (scenarios, transports, way) in [
        (BUILT_IN, ("t1", "u1"), "udp"),
        (OURS, ("t1", "t1"), "tcp"),
        (OURS, ("u1", "t1"), "tcp"),
        (OURS, ("t1", "u1"), "udp"),
        // One connection for each call.
        (OURS, ("tn", "t1"), "tcp"),
    ] {
        let calls = Calls { scenarios, transports, way, calls: Some(100), rate: 100 };
        calls.run(server.address(if transports.0 == "u1" { Udp } else { Tcp }), None, port::free());
    }
}

/// Returns a short port: sipsak always writes four digits of a port into its requests.
fn sipsak_port() -> SocketAddr {
    loopback(port::short())
}

fn sipsak(server: &Server, arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(SIPSAK.path().expect("sipsak is there"))
        .args(arguments)
        .current_dir(server.folder())
        .output()
        .expect("sipsak runs");
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn sipsak_asks_what_the_server_can_do() {
    if !have(&[SIPSAK]) {
        return;
    }
    let server = Setup::default().listen(Udp, sipsak_port()).listen(Tcp, sipsak_port());
    let server = server.with("domains = [\"127.0.0.1\"]").start();
    for (transport, name) in [(Udp, "udp"), (Tcp, "tcp")] {
        let uri = format!("sip:{}", server.address(transport));
        let (code, text) = sipsak(&server, &["-E", name, "-s", &uri, "-vv", "-N"]);
        assert_eq!(code, Some(0), "{name}: {text}");
        assert!(text.contains("SIP/2.0 200"), "{name}: {text}");
        assert!(text.contains("Allow:"), "{name}: {text}");
    }
}

#[test]
fn sipsak_registers_with_its_password_and_not_with_another() {
    if !have(&[SIPSAK]) {
        return;
    }
    let server =
        Setup::default().listen(Udp, sipsak_port()).with("domains = [\"127.0.0.1\"]\nrealm = \"example.org\"").start();
    server.add_user("alice@127.0.0.1", "secret of alice");
    let uri = format!("sip:alice@{}", server.address(Udp));
    let contact = "sip:alice@127.0.0.1:5999";
    let (code, text) = sipsak(
        &server,
        &["-U", "-s", &uri, "-C", contact, "-x", "120", "-u", "alice", "-a", "secret of alice", "-i", "-vv"],
    );
    assert_eq!(code, Some(0), "{text}\n{}", server.log());
    let (code, text) =
        sipsak(&server, &["-U", "-s", &uri, "-C", contact, "-x", "120", "-u", "alice", "-a", "guess", "-i", "-vv"]);
    assert_ne!(code, Some(0), "{text}");
}

/// Two phones register with digest; one calls the other, talks, hangs up.
fn telephones(server: SocketAddr, base: &Phone<'_>, ends: [(SocketAddr, Option<&Namespace>); 2]) {
    let [alice_end, bob_end] = ends;
    let alice = Phone {
        user: "alice",
        password: "secret-of-alice",
        server,
        listen: alice_end.0,
        namespace: alice_end.1,
        ..base.clone()
    };
    let bob = Phone {
        user: "bob",
        password: "secret-of-bob",
        server,
        listen: bob_end.0,
        namespace: bob_end.1,
        answers: true,
        ..base.clone()
    };
    let mut bob = Baresip::start(&bob);
    let mut alice = Baresip::start(&alice);
    bob.registered(SOON);
    alice.registered(SOON);
    alice.order("dial", "sip:bob@example.org");
    alice.expect("CALL_ESTABLISHED", SOON);
    bob.expect("CALL_ESTABLISHED", SOON);
    // The pause is the time of the talk, in which both phones send sound.
    std::thread::sleep(Duration::from_millis(500));
    alice.order("hangup", "");
    bob.expect("CALL_CLOSED", SOON);

    // The test is repeated in the other direction: the callee ends the call.
    alice.order("dial", "sip:bob@example.org");
    alice.expect("CALL_ESTABLISHED", SOON);
    bob.expect("CALL_ESTABLISHED", SOON);
    bob.order("hangup", "");
    alice.expect("CALL_CLOSED", SOON);
}

fn base<'a>(transport: &'a str) -> Phone<'a> {
    Phone {
        user: "",
        domain: "example.org",
        password: "",
        server: loopback(0),
        outbound_name: None,
        transport,
        authority: None,
        answers: false,
        namespace: None,
        listen: loopback(0),
    }
}

#[test]
fn baresip_calls_baresip_with_digest_by_udp() {
    if !have(&[BARESIP]) {
        return;
    }
    let server = with_users(Setup::on(&[Udp]));
    telephones(server.address(Udp), &base("udp"), [(end(), None), (end(), None)]);
}

#[test]
fn baresip_calls_baresip_with_digest_by_tcp() {
    if !have(&[BARESIP]) {
        return;
    }
    let server = with_users(Setup::on(&[Tcp]));
    telephones(server.address(Tcp), &base("tcp"), [(end(), None), (end(), None)]);
}

#[test]
fn baresip_calls_baresip_with_digest_by_tls() {
    if !have(&[BARESIP]) {
        return;
    }
    let server = with_users(Setup::on(&[Tls]));
    let base = Phone { authority: Some(server.authority()), ..base("tls") };
    telephones(server.address(Tls), &base, [(end(), None), (end(), None)]);
}

/// A server between two NAT routers, each with a phone behind it; both phones have the same private address.
fn behind_nat(transport: &str) {
    if !have(&[BARESIP]) || !namespace::possible() {
        return;
    }
    let net = Homes::new();
    let address = SocketAddr::new(SERVER, 5060);
    let server = with_users(Setup::default().listen(Udp, address).listen(Tcp, address).inside(&net.street));
    let [one, other] = &net.homes;
    let end = SocketAddr::new(HOST, 5060);
    telephones(address, &base(transport), [(end, Some(one)), (end, Some(other))]);
    drop(server);
}

#[test]
fn baresip_calls_baresip_behind_two_routers_that_translate_addresses_by_udp() {
    behind_nat("udp");
}

#[test]
fn baresip_calls_baresip_behind_two_routers_that_translate_addresses_by_tcp() {
    behind_nat("tcp");
}

/// Starts Kamailio with the certificate of the server.
fn kamailio(server: &Server, config: &str, ports: &[(&str, u16)], values: &[(&str, &str)]) -> Kamailio {
    let folder = server.folder();
    let file = |name: &str| folder.join(name).display().to_string();
    let ports = ports.iter().map(|(name, port)| (*name, port.to_string()));
    let files =
        [("CERTIFICATE", file("certificate.pem")), ("KEY", file("key.pem")), ("AUTHORITY", file("authority.pem"))];
    let own: Vec<(&str, String)> = ports.chain(files).collect();
    let own = own.iter().map(|(name, value)| (*name, value.as_str()));
    let values: Vec<(&str, &str)> = own.chain(values.iter().copied()).collect();
    Kamailio::start(folder, config, &values)
}

/// Starts a Kamailio that sends every call to one next hop.
fn peer(server: &Server, ports: &[(&str, u16); 3], next: &str) -> Kamailio {
    kamailio(server, "peer", ports, &[("NEXT", next)])
}

#[test]
fn kamailio_is_reached_by_tls() {
    if !have(&[SIPP, KAMAILIO]) {
        return;
    }
    let server = Setup::on(&[Udp, Tls]).relay().start();
    let (uas, tls) = (port::free(), port::free());
    let _peer =
        peer(&server, &[("UDP", port::free()), ("TLS", tls), ("WS", port::free())], &format!("sip:127.0.0.1:{uas}"));
    let calls = Calls { scenarios: OURS, transports: ("u1", "u1"), way: "tls", calls: Some(100), rate: 50 };
    calls.run(server.address(Udp), Some(loopback(tls)), uas);
}

#[test]
fn kamailio_reaches_the_server_by_tls() {
    if !have(&[SIPP, KAMAILIO]) {
        return;
    }
    let server = Setup::on(&[Udp, Tls]).relay().start();
    let udp = port::free();
    let next = format!("sip:{};transport=tls", server.address(Tls));
    let _peer = peer(&server, &[("UDP", udp), ("TLS", port::free()), ("WS", port::free())], &next);
    let calls = Calls { scenarios: OURS, transports: ("u1", "u1"), way: "udp", calls: Some(100), rate: 50 };
    calls.run(loopback(udp), None, port::free());
}

#[test]
fn kamailio_is_reached_by_websocket() {
    if !have(&[SIPP, KAMAILIO]) {
        return;
    }
    // Kamailio needs the certificate, so the server has a TLS listener, too.
    let server = Setup::on(&[Udp, Ws, Tls]).relay().start();
    let (uas, ws) = (port::free(), port::free());
    let _peer =
        peer(&server, &[("UDP", port::free()), ("TLS", port::free()), ("WS", ws)], &format!("sip:127.0.0.1:{uas}"));
    let calls = Calls { scenarios: OURS, transports: ("u1", "u1"), way: "ws", calls: Some(100), rate: 50 };
    calls.run(server.address(Udp), Some(loopback(ws)), uas);
}

/// Two phones behind a Kamailio that forwards their requests to the server, which challenges them.
fn behind_kamailio(way: Transport, path: &str) {
    if !have(&[BARESIP, KAMAILIO]) {
        return;
    }
    let server = with_users(Setup::on(&[Udp, Tcp, Tls]));
    let edge = port::free();
    let registrar = format!("sip:127.0.0.1:{};transport={}", server.address(way).port(), way.name());
    let _edge = kamailio(
        &server,
        "edge",
        &[("UDP", edge), ("TLS", port::free())],
        &[("REGISTRAR", &registrar), ("PATH", path)],
    );
    telephones(loopback(edge), &base("udp"), [(end(), None), (end(), None)]);
    drop(server);
}

#[test]
fn telephones_behind_kamailio_with_path_call_each_other() {
    behind_kamailio(Udp, "1");
    behind_kamailio(Tcp, "1");
}

/// Then the registrar reaches them at their Contact (RFC 3261 section 10.3), not at Kamailio's address.
#[test]
fn telephones_behind_kamailio_without_path_call_each_other() {
    behind_kamailio(Udp, "0");
    behind_kamailio(Tcp, "0");
}

/// Outgoing calls by a trunk with a password, incoming ones without; either side ends them.
#[test]
fn kamailio_is_a_trunk_by_udp_tcp_and_tls() {
    if !have(&[KAMAILIO]) {
        return;
    }
    for way in [Udp, Tcp, Tls] {
        let server = with_users(Setup::on(&[Udp, Tcp, Tls]));
        let mut alice = server.connect(Udp);
        register(&mut alice, "alice", "secret-of-alice");
        let (trunk, tls) = (port::free(), port::free());
        let mut number = Wire::udp(loopback(trunk));
        let beyond = format!("sip:{}", number.local());
        let at = if way == Tls { tls } else { trunk };
        let ports = [("UDP", trunk), ("TLS", tls), ("WS", trunk)];
        let out = peer(&server, &ports, &beyond);
        for by_caller in [true, false] {
            let call = invite(&format!("sip:+4930@127.0.0.1:{at};transport={}", way.name()), &alice);
            let call = Request { from: "<sip:alice@example.org>;tag=alice".into(), ..call };
            let call = challenged(&mut alice, &call, "alice", "secret-of-alice");
            let (mut one, mut other) = set_up(&mut alice, &mut number, &call, true);
            if by_caller {
                arrives(&mut alice, &mut number, &one.request("BYE"), &[]);
            } else {
                arrives(&mut number, &mut alice, &other.request("BYE"), &[]);
            }
        }
        drop(out);
        let registrar = format!("sip:127.0.0.1:{};transport={}", server.address(way).port(), way.name());
        let _in = peer(&server, &ports, &registrar);
        for by_caller in [true, false] {
            let call = invite("sip:alice@example.org", &number);
            let (mut one, mut other) = set_up(&mut number, &mut alice, &call, true);
            if by_caller {
                arrives(&mut number, &mut alice, &one.request("BYE"), &[]);
            } else {
                arrives(&mut alice, &mut number, &other.request("BYE"), &[]);
            }
        }
    }
}
