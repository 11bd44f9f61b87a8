//! Connections that a shard makes.

use crate::echo::{bounds, settings};
use crate::relay::{listener, message, start};
use crate::streams::{counted, expect, udp};
use socket2::{Domain, Socket, Type};
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};
use strowger_core::Transport::Udp;
use strowger_net::{Bounds, NetSettings};

const V4: &str = "127.0.0.1:0";

/// Listener whose queue is full: the kernel does not answer further attempts to connect.
struct BlackHole {
    address: SocketAddr,
    _listener: Socket,
    _queue: Vec<Socket>,
}

impl BlackHole {
    fn new() -> Self {
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        listener.bind(&V4.parse::<SocketAddr>().unwrap().into()).unwrap();
        listener.listen(0).unwrap();
        let address = listener.local_addr().unwrap().as_socket().unwrap();
        let connect = |_| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            socket.set_nonblocking(true).unwrap();
            let _in_progress = socket.connect(&address.into());
            socket
        };
        Self { address, _listener: listener, _queue: (0..4).map(connect).collect() }
    }
}

#[test]
fn an_attempt_to_connect_has_the_time_of_the_bounds_at_its_begin() {
    let hole = BlackHole::new();
    let with = |connect_timeout| Bounds { connect_timeout, ..bounds() };
    let settings = NetSettings { bounds: with(Duration::from_millis(400)), ..settings(1) };
    let node = start(settings, vec![listener(Udp, V4)]);
    let socket = udp(node.handle().addresses()[0]);
    for later in [Duration::from_secs(60), Duration::from_millis(400)] {
        let (since, before) = (Instant::now(), node.handle().total().connects_failed);
        socket.send(message(&format!("TO tcp {}", hole.address), "1", 0).as_bytes()).unwrap();
        counted(&node, |t| t.tcp_connections, 1);
        node.handle().set_bounds(with(later));
        let mut answer = [0; 100];
        let length = socket.recv(&mut answer).expect("a report within five seconds");
        assert!(answer[..length].starts_with(b"FAILED"));
        assert!((350..4_000).contains(&since.elapsed().as_millis()), "{:?}", since.elapsed());
        counted(&node, |t| t.connects_failed, before + 1);
        counted(&node, |t| t.tcp_connections, 0);
        node.handle().set_bounds(with(Duration::from_millis(400)));
    }
}

#[test]
fn connections_come_from_the_fixed_port_one_after_another() {
    let free = TcpListener::bind(V4).unwrap().local_addr().unwrap().port();
    let node = start(NetSettings { dial_port: free, ..settings(1) }, vec![listener(Udp, V4)]);
    let socket = udp(node.handle().addresses()[0]);
    let peer = TcpListener::bind(V4).unwrap();
    let to = peer.local_addr().unwrap();
    for call in ["1", "2"] {
        socket.send(message(&format!("TO tcp {to}"), call, 0).as_bytes()).unwrap();
        let (mut stream, from): (TcpStream, SocketAddr) = peer.accept().unwrap();
        assert_eq!(from.port(), free);
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        expect(&mut stream, message(&format!("AT tcp {to}"), call, 0).as_bytes());
        // The server ends first, so its port is in TIME-WAIT.
        stream.write_all(b"A SIP/2.0\r\nContent-Length: many\r\n\r\n").unwrap();
        crate::streams::ends(&mut stream);
        counted(&node, |t| t.tcp_connections, 0);
        let mut report = [0; 100];
        let length = socket.recv(&mut report).expect("a report of what had no answer");
        assert!(report[..length].starts_with(b"CUT OFF"));
    }
}

/// Data that the peer sends before this side does come with the event of the connection, or after it.
#[test]
fn a_peer_that_speaks_first_is_heard() {
    let node = start(settings(1), vec![listener(Udp, V4)]);
    let socket = udp(node.handle().addresses()[0]);
    let peer = TcpListener::bind(V4).unwrap();
    let to = peer.local_addr().unwrap();
    for call in 0..20 {
        let text = message(&format!("TO tcp {to}"), &call.to_string(), 0);
        socket.send(text.as_bytes()).unwrap();
        let (mut stream, _) = peer.accept().unwrap();
        let answer = message("SIP/2.0 200", &call.to_string(), 5);
        stream.write_all(answer.as_bytes()).unwrap();
        let mut received = [0; 200];
        let length = socket.recv(&mut received).expect("an answer within five seconds");
        assert_eq!(&received[..length], answer.as_bytes());
        drop(stream);
        counted(&node, |t| t.tcp_connections, 0);
        // Whether the request was answered, the service does not say: it has a report too.
        let length = socket.recv(&mut received).expect("a report within five seconds");
        assert!(received[..length].starts_with(b"CUT OFF"));
    }
}
