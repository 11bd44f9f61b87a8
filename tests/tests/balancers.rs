//! Load balancers in front of the server: the PROXY protocol over each transport.

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use strowger_tests::port;
use strowger_tests::server::{Server, Setup};
use strowger_tests::text::{self, Request};
use strowger_tests::wire::Transport::{self, Tcp, Tls, Ws, Wss};
use strowger_tests::wire::Wire;

/// Time limit of an answer.
const SOON: Duration = Duration::from_secs(5);

/// Time after which a missing answer counts as refusal. A request that is served has its answer within milliseconds.
const NO_ANSWER: Duration = Duration::from_secs(1);

const STREAMS: [Transport; 4] = [Tcp, Tls, Ws, Wss];

/// Describes a listener for each stream transport with this load balancer.
fn behind(balancer: &str) -> Setup {
    let listen = STREAMS.map(|transport| (transport, port::free_address()));
    let tables = listen.iter().map(|(transport, address)| {
        let (name, ip, port) = (transport.name(), address.ip(), address.port());
        format!(
            "[[listener]]\ntransport = \"{name}\"\naddress = \"{ip}\"\nport = {port}\nproxy_protocol_from = [\"{balancer}\"]\n"
        )
    });
    Setup::tables(&listen).open_registrar().in_memory().with(&tables.collect::<String>())
}

fn line(ip: &str) -> Vec<u8> {
    format!("PROXY TCP4 {ip} 192.0.2.1 4711 5060\r\n").into_bytes()
}

/// Returns a header of version 2: for a connection of the balancer itself (LOCAL), or of a peer.
fn binary(peer: Option<[u8; 4]>) -> Vec<u8> {
    let signature = b"\r\n\r\n\0\r\nQUIT\n";
    match peer {
        None => [&signature[..], b"\x20\0\0\0"].concat(),
        // Port 4711, and a field without effect (PP2_TYPE_NOOP).
        Some(ip) => [&signature[..], b"\x21\x11\0\x0f", &ip, b"\xc0\0\x02\x01\x12\x67\x13\xc4", b"\x04\0\0"].concat(),
    }
}

fn connect(server: &Server, transport: Transport, header: &[u8]) -> Wire {
    let authority = server.authority();
    Wire::connect_behind(header, transport, server.address(transport), Some(authority.as_path()))
        .unwrap_or_else(|error| panic!("{}: {error}\n{}", transport.name(), server.log()))
}

fn options(wire: &Wire) -> Request {
    Request::new("OPTIONS", "sip:example.org", wire.transport().name(), wire.local())
}

fn answer(wire: &mut Wire, request: &Request, limit: Duration) -> Option<Vec<u8>> {
    wire.send(&request.bytes()).ok()?;
    wire.final_response(limit)
}

#[test]
fn the_address_in_a_header_is_the_source_over_every_transport() {
    let server = behind("127.0.0.1").start();
    for transport in STREAMS {
        for (header, received) in [
            (line("192.0.2.9"), Some("received=192.0.2.9")),
            (b"PROXY TCP6 2001:db8::9 2001:db8::1 4711 5060\r\n".to_vec(), Some("received=2001:db8::9")),
            (binary(Some([192, 0, 2, 10])), Some("received=192.0.2.10")),
            // The peer is the balancer, or unknown.
            (binary(None), None),
            (b"PROXY UNKNOWN\r\n".to_vec(), None),
        ] {
            let mut wire = connect(&server, transport, &header);
            for _ in 0..2 {
                let request = options(&wire);
                let response = answer(&mut wire, &request, SOON).expect("an answer over the same connection");
                assert_eq!(text::status(&response), Some(200));
                let via = text::field(&response, "Via").expect("a Via");
                match received {
                    Some(received) => assert!(via.contains(received) && via.contains("rport=4711"), "{via}"),
                    None => assert!(via.contains(&format!("rport={}", wire.local().port())), "{via}"),
                }
            }
        }
    }
}

/// The phone registers and is called over its connection.
#[test]
fn a_phone_behind_a_balancer_is_called_over_its_connection() {
    let server = behind("127.0.0.0/8").start();
    for transport in STREAMS {
        let mut phone = connect(&server, transport, &binary(Some([192, 0, 2, 9])));
        let name = transport.name();
        let contact = format!("sip:bob@192.0.2.9:4711;transport={name}");
        let register = Request::register(name, "example.org", &contact, name, phone.local());
        assert_eq!(answer(&mut phone, &register, SOON).as_deref().and_then(text::status), Some(200));
        let mut caller = connect(&server, Tcp, &line("192.0.2.10"));
        let request = Request::new("MESSAGE", &format!("sip:{name}@example.org"), "tcp", caller.local());
        caller.send(&request.bytes()).expect("the server reads");
        let came = phone.request("MESSAGE", SOON).unwrap_or_else(|| panic!("{name}: {}", server.log()));
        phone.send(&text::respond(&came, 200, "t", &[])).expect("the server reads");
        assert_eq!(caller.final_response(SOON).as_deref().and_then(text::status), Some(200), "{name}");
    }
}

#[test]
fn a_header_of_a_source_that_the_listener_does_not_name_is_garbage() {
    let server = behind("192.0.2.7").start();
    let authority = server.authority();
    for header in [line("192.0.2.9"), binary(Some([192, 0, 2, 9])), binary(None)] {
        for transport in STREAMS {
            let wire = Wire::connect_behind(&header, transport, server.address(transport), Some(authority.as_path()));
            // Handshakes fail; a message behind the header is not served.
            let Ok(mut wire) = wire else { continue };
            assert_eq!(transport, Tcp, "a handshake was completed");
            let request = options(&wire);
            let response = answer(&mut wire, &request, NO_ANSWER);
            assert_ne!(response.as_deref().and_then(text::status), Some(200));
        }
    }
    for transport in STREAMS {
        let mut wire = server.connect(transport);
        let request = options(&wire);
        let response = answer(&mut wire, &request, SOON).expect("a peer without a header is served");
        assert_eq!(text::status(&response), Some(200));
    }
}

#[test]
fn a_peer_behind_a_balancer_is_banned_alone() {
    let server = behind("127.0.0.1").with("ban.exempt = []").start();
    let code = |header: &[u8], agent: &str, limit: Duration| {
        let mut wire = connect(&server, Tcp, header);
        let request = options(&wire).with(format!("User-Agent: {agent}"));
        answer(&mut wire, &request, limit).as_deref().and_then(text::status)
    };
    // A scanner gets no answer, and its source is banned.
    assert_eq!(code(&line("192.0.2.9"), "friendly-scanner", NO_ANSWER), None);
    assert_eq!(code(&binary(Some([192, 0, 2, 9])), "phone", NO_ANSWER), None);
    assert_eq!(code(&line("192.0.2.10"), "phone", SOON), Some(200));
    assert_eq!(code(&binary(None), "friendly-scanner", NO_ANSWER), None);
    assert_eq!(code(&binary(None), "phone", SOON), Some(200), "the balancer is banned");
    let log = server.log_with("scanner dropped");
    assert!(log.contains("source=192.0.2.9:4711"), "{log}");
}

#[test]
fn the_log_names_a_wrong_header_now_and_then_and_no_check_of_the_balancer() {
    let server = behind("127.0.0.1").with("log.refusals_per_minute = 3").start();
    for _ in 0..10 {
        drop(TcpStream::connect(server.address(Tcp)).expect("the server listens"));
    }
    let event = "connection of a balancer refused";
    for n in 0..10 {
        let mut stream = TcpStream::connect(server.address(STREAMS[n % 4])).expect("the server listens");
        stream.write_all(b"OPTIONS sip:example.org SIP/2.0\r\n").expect("the server reads");
        if n == 0 {
            let log = server.log_with("malformed PROXY header");
            assert_eq!(log.matches(event).count(), 1, "{log}");
        }
    }
    let mut wire = connect(&server, Tcp, &line("192.0.2.9"));
    let request = options(&wire);
    assert_eq!(answer(&mut wire, &request, SOON).as_deref().and_then(text::status), Some(200));
    let lines = server.log().matches(event).count();
    assert!((1..=3).contains(&lines), "{}", server.log());
}
