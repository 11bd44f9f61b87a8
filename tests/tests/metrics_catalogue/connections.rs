//! Connections: their number, memory and ends.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use super::{SOON, Stage, code, send};
use strowger_tests::meter::Shows::{Above, At, By, More};
use strowger_tests::port;
use strowger_tests::server::Setup;
use strowger_tests::text::{Request, respond, status};
use strowger_tests::wire::Transport::{Tcp, Tls, Udp, Ws, Wss};
use strowger_tests::wire::{Wire, accept, listen};

pub(super) const SCENES: &[(&str, fn())] = &[
    ("connections of each transport", each_transport),
    ("messages over a connection", messages),
    ("connections to peers", to_peers),
    ("too many connections", too_many),
    ("too much memory", too_much_memory),
    ("failed handshakes", failed_handshakes),
    ("headers of load balancers", headers),
    ("resumed sessions", resumed),
    ("broken and unfinished messages", broken),
    ("a silent connection", idle),
    ("a slow peer", slow_peer),
    ("many requests to a silent peer", many_sent),
];

fn options(wire: &Wire, uri: &str) -> Request {
    Request::new("OPTIONS", uri, wire.transport().name(), wire.local())
}

fn each_transport() {
    let transports = [(Tcp, "tcp"), (Tls, "tls"), (Ws, "ws"), (Wss, "wss")];
    let mut stage = Stage::start(Setup::on(&transports.map(|(transport, _)| transport)).open_registrar());
    for (transport, name) in transports {
        let gauge = format!("connections{{transport=\"{name}\"}}");
        stage.shows(&[(&gauge, At(0)), ("connection_bytes", At(0))]);
        let mut wires: Vec<Wire> = (0..2).map(|_| stage.server.connect(transport)).collect();
        for wire in &mut wires {
            let request = options(wire, "sip:example.org");
            assert_eq!(code(wire, &request), 200);
        }
        stage.shows(&[
            (&gauge, At(2)),
            ("connections_accepted_total", By(2)),
            ("connections_made_total", By(0)),
            ("stream_messages_in_total", By(2)),
            ("stream_messages_out_total", By(2)),
            ("tls_handshakes_total", By(if transport.is_secure() { 2 } else { 0 })),
            ("tls_resumed_total", By(0)),
            ("connection_bytes", Above(500.0)),
        ]);
        drop(wires);
        stage.shows(&[(&gauge, At(0)), ("connection_bytes", At(0))]);
    }
    stage.end();
}

fn messages() {
    let mut stage = Stage::start(Setup::on(&[Tcp]).open_registrar());
    let mut wire = stage.server.connect(Tcp);
    let request = options(&wire, "sip:example.org");
    send(&mut wire, &request);
    let answer = wire.final_response(SOON).expect("an answer");
    stage.shows(&[
        ("stream_messages_in_total", By(1)),
        ("stream_in_bytes_total", By(request.bytes().len() as u64)),
        ("stream_messages_out_total", By(1)),
        ("stream_out_bytes_total", By(answer.len() as u64)),
        ("requests_total", By(1)),
        ("stream_pings_total", By(0)),
    ]);
    wire.send(b"\r\n\r\n").expect("the server reads");
    assert_eq!(wire.chunk(SOON).as_deref(), Some(&b"\r\n"[..]));
    stage.shows(&[
        ("stream_pings_total", By(1)),
        ("stream_messages_in_total", By(0)),
        ("stream_in_bytes_total", By(4)),
        ("stream_out_bytes_total", By(2)),
    ]);
    stage.end();
}

fn to_peers() {
    let setup = Setup::on(&[Udp, Tcp]).relay().with("limits.connections = 2\ndns.set_aside = \"0s\"");
    let mut stage = Stage::start(setup);
    let (listener, address) = listen();
    let mut caller = stage.server.connect(Udp);
    let request = options(&caller, &format!("sip:x@{address};transport=tcp"));
    send(&mut caller, &request);
    let mut peer = accept(&listener, SOON);
    let got = peer.request("OPTIONS", SOON).expect("the request comes");
    peer.send(&respond(&got, 200, "t", &[])).expect("the server reads");
    assert_eq!(caller.final_response(SOON).as_deref().and_then(status), Some(200));
    stage.shows(&[
        ("connections_made_total", By(1)),
        ("connections{transport=\"tcp\"}", At(1)),
        ("connections_failed_total", By(0)),
        ("stream_messages_out_total", By(1)),
        ("streams_lost_total", By(0)),
    ]);
    // No program listens there: the message that waits for the connection is lost.
    let closed = port::free_address();
    let request = options(&caller, &format!("sip:x@{closed};transport=tcp"));
    assert_eq!(code(&mut caller, &request), 500);
    stage.shows(&[
        ("connections_failed_total", By(1)),
        ("connections_made_total", By(0)),
        ("connections{transport=\"tcp\"}", At(1)),
        ("stream_messages_out_total", By(0)),
        ("streams_lost_total", By(1)),
        ("stream_waiting_bytes", At(0)),
    ]);
    // The limit is two connections.
    let _second = stage.server.connect(Tcp);
    stage.shows(&[("connections{transport=\"tcp\"}", At(2)), ("connections_accepted_total", By(1))]);
    let (_further, address) = listen();
    let request = options(&caller, &format!("sip:x@{address};transport=tcp"));
    assert_eq!(code(&mut caller, &request), 500);
    stage.shows(&[
        ("connections_refused_total", By(1)),
        ("streams_lost_total", By(1)),
        ("connections_failed_total", By(0)),
    ]);
    stage.end();
}

/// Requests over connections are remembered until an answer comes, the last 16,384 of them.
fn many_sent() {
    const MOST: u64 = 16_384;
    const MORE: u64 = 10;
    let lines = "limits.request_memory_per_source = \"1GiB\"\ntimers.t1 = \"4s\"\ndns.set_aside = \"0s\"";
    let mut stage = Stage::start(Setup::on(&[Tcp]).relay().with(lines));
    let (listener, address) = listen();
    let mut caller = stage.server.connect(Tcp);
    let uri = format!("sip:x@{address};transport=tcp");
    let request = options(&caller, &uri);
    send(&mut caller, &request);
    let mut peer = accept(&listener, SOON);
    std::thread::scope(|scope| {
        scope.spawn(|| (0..MOST + MORE).for_each(|n| assert!(peer.request("OPTIONS", SOON).is_some(), "{n}")));
        for _ in 1..MOST + MORE {
            let request = options(&caller, &uri);
            send(&mut caller, &request);
        }
    });
    stage.shows(&[("sent_forgotten_total", By(MORE)), ("streams_lost_total", By(0)), ("retransmissions_total", By(0))]);
    stage.end();
}

fn too_many() {
    let mut stage = Stage::start(Setup::on(&[Tcp]).open_registrar().with("limits.connections_per_source = 2"));
    let _both = [(); 2].map(|()| stage.server.connect(Tcp));
    stage.shows(&[("connections{transport=\"tcp\"}", At(2)), ("connections_refused_total", By(0))]);
    assert!(stage.server.connect(Tcp).closes(SOON));
    stage.shows(&[
        ("connections_refused_total", By(1)),
        ("connections_accepted_total", By(0)),
        ("connections{transport=\"tcp\"}", At(2)),
    ]);
    stage.end();
}

fn half_message(bytes: usize) -> Vec<u8> {
    format!("OPTIONS sip:example.org SIP/2.0\r\nX: {}", "x".repeat(bytes)).into_bytes()
}

fn too_much_memory() {
    let lines = "limits.connection_memory_per_source = \"128KiB\"";
    let mut stage = Stage::start(Setup::on(&[Tcp]).open_registrar().with(lines));
    let mut held: Vec<Wire> = (0..2).map(|_| stage.server.connect(Tcp)).collect();
    for wire in &mut held {
        wire.send(&half_message(40_000)).expect("the server reads");
    }
    stage.shows(&[("connection_bytes", Above(80_000.0)), ("memory_refused_total", By(0))]);
    let mut late = stage.server.connect(Tcp);
    late.send(&half_message(60_000)).expect("the kernel takes it");
    assert!(late.closes(SOON));
    stage.shows(&[
        ("memory_refused_total", By(1)),
        ("connections{transport=\"tcp\"}", At(2)),
        ("partial_closed_total", By(0)),
    ]);
    drop(held);
    stage.shows(&[("connection_bytes", At(0)), ("connections{transport=\"tcp\"}", At(0))]);
    stage.end();
}

fn failed_handshakes() {
    let mut stage = Stage::start(Setup::on(&[Tls, Ws]).open_registrar());
    for transport in [Tls, Ws] {
        let mut stream = TcpStream::connect(stage.server.address(transport)).expect("the server listens");
        stream.write_all(b"OPTIONS sip:example.org SIP/2.0\r\n\r\n").expect("the server reads");
        stream.set_read_timeout(Some(SOON)).expect("a socket takes a time-out");
        let _ = stream.read_to_end(&mut Vec::new());
        stage.shows(&[
            ("handshakes_failed_total", By(1)),
            ("connections_accepted_total", By(1)),
            ("tls_handshakes_total", By(0)),
            ("frames_broken_total", By(0)),
        ]);
    }
    stage.end();
}

fn headers() {
    let address = port::free_address();
    let (ip, port) = (address.ip(), address.port());
    let table = format!(
        "[[listener]]\ntransport = \"tcp\"\naddress = \"{ip}\"\nport = {port}\nproxy_protocol_from = [\"127.0.0.1\"]"
    );
    let mut stage = Stage::start(Setup::tables(&[(Tcp, address)]).open_registrar().with(&table));
    let header = b"PROXY TCP4 192.0.2.9 192.0.2.1 4711 5060\r\n";
    let mut wire = Wire::connect_behind(header, Tcp, address, None).expect("the server listens");
    let request = options(&wire, "sip:example.org");
    assert_eq!(code(&mut wire, &request), 200);
    stage.shows(&[("proxy_headers_total", By(1)), ("connections_accepted_total", By(1))]);
    let long = format!("PROXY UNKNOWN {}", "x".repeat(100));
    for (bytes, reason) in [
        ("OPTIONS sip:example.org SIP/2.0\r\n", "malformed"),
        (&long, "long"),
        ("PROXY TCP4", "cut"),
        // The header has 10 s to arrive.
        ("PROXY TCP4", "late"),
    ] {
        let mut stream = TcpStream::connect(address).expect("the server listens");
        stream.set_read_timeout(Some(2 * SOON)).expect("a socket takes a time-out");
        stream.write_all(bytes.as_bytes()).expect("the server reads");
        if reason == "cut" {
            stream.shutdown(Shutdown::Write).expect("it is open");
        }
        let _ = stream.read_to_end(&mut Vec::new());
        stage.shows(&[
            (&format!("proxy_headers_refused_total{{reason=\"{reason}\"}}"), By(1)),
            ("proxy_headers_total", By(0)),
            ("handshakes_failed_total", By(0)),
            ("frames_broken_total", By(0)),
        ]);
    }
    stage.end();
}

/// Two servers: the second closes an idle connection, and the first opens another one.
fn resumed() {
    let near = Setup::on(&[Udp, Tls]).open_registrar().with("limits.idle_connection_timeout = \"2s\"");
    let mut far = Stage::start(near);
    let authority = format!("tls.outbound_ca = {:?}", far.server.authority());
    let mut stage = Stage::start(Setup::on(&[Udp, Tls]).relay().with(&authority));
    let mut caller = stage.server.connect(Udp);
    let uri = format!("sips:{}", far.server.address(Tls));
    for resumed in [0, 1] {
        let request = options(&caller, &uri);
        assert_eq!(code(&mut caller, &request), 200);
        let handshakes =
            [("tls_handshakes_total", By(1)), ("tls_resumed_total", By(resumed)), ("handshakes_failed_total", By(0))];
        stage.shows(
            &[&handshakes[..], &[("connections_made_total", By(1)), ("connections{transport=\"tls\"}", At(1))]]
                .concat(),
        );
        far.shows(&[&handshakes[..], &[("connections_accepted_total", By(1)), ("idle_closed_total", By(0))]].concat());
        far.shows(&[("idle_closed_total", By(1)), ("connections{transport=\"tls\"}", At(0))]);
        stage.shows(&[("connections{transport=\"tls\"}", At(0)), ("idle_closed_total", By(0))]);
    }
    far.end();
    stage.end();
}

fn broken() {
    let mut stage = Stage::start(Setup::on(&[Tcp]).open_registrar());
    let mut wire = stage.server.connect(Tcp);
    wire.send(b"OPTIONS sip:example.org SIP/2.0\r\nContent-Length: minus one\r\n\r\n").expect("the server reads");
    assert!(wire.closes(SOON));
    stage.shows(&[
        ("frames_broken_total", By(1)),
        ("partial_closed_total", By(0)),
        ("stream_messages_in_total", By(0)),
    ]);
    let mut wire = stage.server.connect(Tcp);
    wire.send(&half_message(100)).expect("the server reads");
    // The remaining bytes have 30 s to arrive.
    assert!(wire.closes(3 * SOON + SOON));
    stage.shows(&[("partial_closed_total", By(1)), ("frames_broken_total", By(0)), ("idle_closed_total", By(0))]);
    stage.end();
}

fn idle() {
    let mut stage = Stage::start(Setup::on(&[Tcp]).open_registrar().with("limits.idle_connection_timeout = \"1s\""));
    let mut wire = stage.server.connect(Tcp);
    stage.shows(&[("connections{transport=\"tcp\"}", At(1)), ("idle_closed_total", By(0))]);
    assert!(wire.closes(SOON));
    stage.shows(&[("connections{transport=\"tcp\"}", At(0)), ("idle_closed_total", By(1))]);
    stage.end();
}

/// Bytes that the kernel does not accept wait in the server; above a limit, the connection ends.
fn slow_peer() {
    let mut stage = Stage::start(Setup::on(&[Tcp]).open_registrar());
    let uri = format!("sip:{}", stage.server.address(Tcp));
    for reads in [true, false] {
        let mut wire = stage.server.connect(Tcp);
        let long = format!("Via: SIP/2.0/TCP 192.0.2.1;branch={}", "x".repeat(2_000));
        let ask = |wire: &mut Wire| {
            let request = options(wire, &uri).with(&long);
            wire.send(&request.bytes())
        };
        let mut sent = 0;
        // The socket buffers of the kernel take some megabytes first.
        while !stage.meter.sees("stream_waiting_bytes", Above(0.0), Duration::ZERO) {
            (0..20).for_each(|_| ask(&mut wire).expect("the server reads"));
            sent += 20;
        }
        if reads {
            for _ in 0..sent {
                assert_eq!(wire.final_response(SOON).as_deref().and_then(status), Some(200));
            }
            stage.shows(&[
                ("stream_waiting_bytes", At(0)),
                ("slow_closed_total", By(0)),
                ("stream_messages_out_total", By(sent)),
            ]);
        } else {
            while (0..20).all(|_| ask(&mut wire).is_ok()) && stage.meter.value("slow_closed_total") == 0.0 {}
            stage.shows(&[
                ("slow_closed_total", By(1)),
                ("stream_waiting_bytes", At(0)),
                ("stream_messages_in_total", More),
                ("connection_pauses_total", More),
            ]);
        }
    }
    stage.end();
}
