//! Connections of load balancers, which begin with a header of the PROXY protocol.

use crate::echo::{bounds, settings};
use crate::relay::{Relay, listener, message, start};
use crate::streams::{connect, counted, ends, expect, udp};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};
use strowger_core::Transport::{self, Tcp, Udp, Ws};
use strowger_core::source::Network;
use strowger_net::{Bounds, Listener, NetSettings, Node, Snapshot};

const V4: &str = "127.0.0.1:0";

/// Creates a TCP listener whose balancer is this machine.
fn balanced() -> Listener {
    balanced_by(Tcp)
}

fn balanced_by(transport: Transport) -> Listener {
    Listener { balancers: vec![Network::new(Ipv4Addr::LOCALHOST.into(), 32).unwrap()], ..listener(transport, V4) }
}

fn node(bounds: Bounds) -> (Node<Relay>, SocketAddr) {
    let node = start(NetSettings { bounds, ..settings(1) }, vec![balanced(), listener(Udp, V4)]);
    let address = node.handle().addresses()[0];
    (node, address)
}

fn line(peer: &str) -> String {
    let peer: SocketAddr = peer.parse().unwrap();
    format!("PROXY TCP4 {} 127.0.0.1 {} 5060\r\n", peer.ip(), peer.port())
}

/// Connects as the balancer, and exchanges a message that follows this header at once.
fn exchange(address: SocketAddr, header: &[u8]) -> TcpStream {
    let mut stream = connect(address);
    let text = message("ECHO", "1", 5);
    stream.write_all(&[header, text.as_bytes()].concat()).unwrap();
    expect(&mut stream, text.as_bytes());
    stream
}

const LOCAL: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";

#[test]
fn a_peer_behind_a_balancer_counts_for_its_limit_and_the_balancer_for_none() {
    let (node, address) = node(Bounds { connections_per_source: 1, connections: 7, ..bounds() });
    let behind = ["192.0.2.1:1024", "192.0.2.2:1024"].map(|peer| exchange(address, line(peer).as_bytes()));
    let own = [LOCAL, LOCAL, b"PROXY UNKNOWN\r\n"].map(|header| exchange(address, header));
    let mut late = connect(address);
    late.write_all(line("192.0.2.1:1025").as_bytes()).unwrap();
    ends(&mut late);
    counted(&node, |t| t.connections_refused, 1);
    assert_eq!(node.handle().total().tcp_connections, 5);
    drop(behind);
    counted(&node, |t| t.tcp_connections, 3);
    // No connection is counted twice or missed.
    let again = ["192.0.2.1:1026", "192.0.2.2:1026", "192.0.2.3:1026"].map(|p| exchange(address, line(p).as_bytes()));
    counted(&node, |t| t.tcp_connections, 6);
    let last = exchange(address, LOCAL);
    // The bound of all connections holds for balancers too.
    ends(&mut connect(address));
    counted(&node, |t| t.connections_refused, 2);
    drop((own, again, last));
    counted(&node, |t| t.connection_bytes, 0);
    counted(&node, |t| t.proxy_headers, 10);
    let _standing: Vec<_> = (0..7).map(|_| exchange(address, LOCAL)).collect();
}

#[test]
fn the_memory_of_a_peer_is_charged_to_it_and_not_to_its_balancer() {
    let (node, address) = node(Bounds { connection_memory_per_source: 50_000, ..bounds() });
    let whole = message("HALF", "1", 40_000);
    let half = &whole.as_bytes()[..30_000];
    let send = |header: &[u8]| {
        let mut stream = connect(address);
        stream.write_all(&[header, half].concat()).unwrap();
        stream
    };
    let mut held = vec![send(LOCAL), send(LOCAL), send(line("192.0.2.1:1").as_bytes())];
    counted(&node, |t| u64::from(t.connection_bytes > 90_000), 1);
    ends(&mut send(line("192.0.2.1:2").as_bytes()));
    counted(&node, |t| t.memory_refused, 1);
    held.push(send(line("192.0.2.2:1").as_bytes()));
    counted(&node, |t| u64::from(t.connection_bytes > 150_000), 1);
    assert_eq!(node.handle().total().memory_refused, 1);
    drop(held);
    counted(&node, |t| t.connection_bytes, 0);
}

#[test]
fn a_header_may_come_byte_by_byte_and_with_the_first_message() {
    let (node, address) = node(bounds());
    for header in [line("192.0.2.1:1024").into_bytes(), LOCAL.to_vec()] {
        let mut stream = connect(address);
        for byte in &header {
            stream.write_all(&[*byte]).unwrap();
        }
        let text = message("ECHO", "1", 5);
        stream.write_all(text.as_bytes()).unwrap();
        expect(&mut stream, text.as_bytes());
        // A later header is no header.
        let twice = line("192.0.2.9:1024") + &text;
        stream.write_all(twice.as_bytes()).unwrap();
        expect(&mut stream, twice.as_bytes());
    }
    assert_eq!(node.handle().total().proxy_headers, 2);
}

#[test]
fn each_wrong_header_ends_its_connection_and_is_counted_by_its_reason() {
    let (node, address) = node(Bounds { handshake_timeout: Duration::from_millis(500), ..bounds() });
    let long = format!("PROXY UNKNOWN {}\r\n", "f".repeat(100));
    let mut reached = [0; 4];
    let reasons = |t: Snapshot| [t.proxy_malformed, t.proxy_long, t.proxy_cut, t.proxy_late];
    for (bytes, reason) in [
        (&b"OPTIONS sip:a SIP/2.0\r\n"[..], 0),
        (b"PROXY TCP4 0.0.0.0 127.0.0.1 1 2\r\n", 0),
        (long.as_bytes(), 1),
        (b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff", 1),
        (b"PROXY TCP4 192.0.2.1 127", 2),
        (b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02", 2),
        (b"PROXY TCP4 192.0.2.1 127", 3),
        (b"", 3),
    ] {
        let (mut stream, begun) = (connect(address), Instant::now());
        stream.write_all(bytes).unwrap();
        if reason == 2 {
            stream.shutdown(Shutdown::Write).unwrap();
        }
        ends(&mut stream);
        assert!(reason != 3 || begun.elapsed() >= Duration::from_millis(450), "{bytes:?}");
        reached[reason] += 1;
        counted(&node, |t| u64::from(reasons(t) == reached), 1);
    }
    // A connection without a byte is a check of the balancer.
    drop(connect(address));
    counted(&node, |t| u64::from(t.accepted == 9 && t.tcp_connections == 0), 1);
    let total = node.handle().total();
    assert_eq!((reasons(total), total.handshakes_failed, total.proxy_headers), (reached, 0, 0));
}

/// Checks that a balancer which sends LOCAL and ends the connection does not count as a client whose handshake failed.
#[test]
fn a_check_of_a_balancer_is_no_failed_handshake() {
    let node = start(settings(1), vec![balanced_by(Ws)]);
    let address = node.handle().addresses()[0];
    let peer = line("192.0.2.1:1024");
    for (n, (header, request)) in (1..).zip([(LOCAL, ""), (LOCAL, "GET / HTTP/1.1\r\n"), (peer.as_bytes(), "")]) {
        let mut stream = connect(address);
        stream.write_all(header).unwrap();
        counted(&node, |t| t.proxy_headers, n);
        // The request comes in a later millisecond than the header.
        std::thread::sleep(Duration::from_millis(5));
        stream.write_all(request.as_bytes()).unwrap();
        drop(stream);
        counted(&node, |t| t.ws_connections, 0);
    }
    // All is counted before the shard accepts another connection. Who sends a part of a handshake, or is a peer, checks nothing.
    let _next = connect(address);
    counted(&node, |t| t.accepted, 4);
    assert_eq!(node.handle().total().handshakes_failed, 2);
}

#[test]
fn a_header_of_another_source_is_no_header() {
    let (node, _) = node(bounds());
    let plain = start(settings(1), vec![listener(Tcp, V4)]);
    let text = line("192.0.2.1:1024") + &message("ECHO", "1", 5);
    let mut stream = connect(plain.handle().addresses()[0]);
    stream.write_all(text.as_bytes()).unwrap();
    expect(&mut stream, text.as_bytes());
    assert_eq!(plain.handle().total().proxy_headers, 0);
    // The binary form is no frame of a stream.
    let mut stream = connect(plain.handle().addresses()[0]);
    stream.write_all(LOCAL).unwrap();
    ends(&mut stream);
    counted(&plain, |t| t.frames_broken, 1);
    // Balancers may change at run time.
    let address = node.handle().addresses()[0];
    let mut before = exchange(address, LOCAL);
    node.handle().set_balancers(&[listener(Tcp, V4), listener(Udp, V4)]);
    exchange(address, b"");
    let text = message("ECHO", "2", 5);
    before.write_all(text.as_bytes()).unwrap();
    expect(&mut before, text.as_bytes());
    node.handle().set_balancers(&[balanced(), listener(Udp, V4)]);
    exchange(address, LOCAL);
}

/// Accepts a connection that comes within five seconds.
fn accepted(listener: &TcpListener) -> TcpStream {
    let patience = Instant::now() + Duration::from_secs(5);
    loop {
        match waiting(listener) {
            Some(stream) => return stream,
            None => assert!(Instant::now() < patience, "no connection comes"),
        }
        // Interval between two looks.
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Accepts the connection that waits at a listener, if there is one.
fn waiting(listener: &TcpListener) -> Option<TcpStream> {
    listener.set_nonblocking(true).unwrap();
    match listener.accept() {
        Ok((stream, _)) => Some(stream),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::WouldBlock);
            None
        }
    }
}

/// A program listens at the named address, so that a connection to it would be seen.
#[test]
fn a_flow_to_a_peer_behind_a_balancer_is_its_connection_alone() {
    let (node, address) = node(bounds());
    let (named, alias) = (TcpListener::bind(V4).unwrap(), TcpListener::bind(V4).unwrap());
    let [peer, alias_address] = [&named, &alias].map(|listener| listener.local_addr().unwrap());
    let mut stream = exchange(address, line(&peer.to_string()).as_bytes());
    let socket = udp(node.handle().addresses()[1]);
    let ask = |text: &str| socket.send(message(text, text, 0).as_bytes()).unwrap();
    let by_flow = format!("FLOW 0 0 3 tcp {peer}");
    ask(&by_flow);
    expect(&mut stream, message(&by_flow, &by_flow, 0).replacen("FLOW", "AT", 1).as_bytes());
    // The peer cannot take over messages to another address.
    let text = message(&format!("ALIAS {alias_address}"), "alias", 0);
    stream.write_all(text.as_bytes()).unwrap();
    expect(&mut stream, text.as_bytes());
    ask(&format!("TO tcp {alias_address}"));
    let _open = accepted(&alias);
    drop(stream);
    counted(&node, |t| t.tcp_connections, 1);
    ask(&by_flow);
    for result in ["CUT OFF", "FAILED"] {
        let mut answer = [0; 100];
        let n = socket.recv(&mut answer).unwrap();
        assert!(answer[..n].starts_with(result.as_bytes()), "{}", String::from_utf8_lossy(&answer[..n]));
    }
    assert!(waiting(&named).is_none());
}

#[test]
fn an_answer_to_a_peer_behind_a_balancer_goes_over_its_connection_or_nowhere() {
    let (node, address) = node(Bounds { answer_timeout: Duration::from_secs(5), ..bounds() });
    let named = TcpListener::bind(V4).unwrap();
    let peer = named.local_addr().unwrap();
    let ask = || {
        let mut stream = connect(address);
        let text = line(&peer.to_string()) + &message("LATER 100", "1", 0);
        stream.write_all(text.as_bytes()).unwrap();
        stream
    };
    let mut stream = ask();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("SIP/2.0 200 OK"), "{answer}");
    // This peer has closed its connection, and its system resets it after the answer.
    drop(ask());
    counted(&node, |t| t.stream_messages_out, 2);
    counted(&node, |t| t.tcp_connections, 0);
    // A connection to the named address would be made within this time.
    std::thread::sleep(Duration::from_millis(300));
    assert!(waiting(&named).is_none());
}
