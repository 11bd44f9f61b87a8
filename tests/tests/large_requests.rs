//! Large requests to peers without TCP, as most telephones: the delay that a firewall causes by dropping SYNs.

use socket2::{Domain, Socket, Type};
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use strowger_tests::control::metric;
use strowger_tests::server::{Server, Setup};
use strowger_tests::stopwatch::{Stopwatch, Took};
use strowger_tests::text::{Request, field, fields, respond, status};
use strowger_tests::wait;
use strowger_tests::wire::Transport::{Tcp, Udp};
use strowger_tests::wire::Wire;

const LIMIT: Duration = Duration::from_secs(10);

/// Upper bound of a step without a wait.
const AT_ONCE: Duration = Duration::from_millis(250);

/// Wait for TCP before the fallback to UDP.
const WAIT: Duration = Duration::from_millis(300);

/// Peer that answers by UDP.
struct Peer {
    socket: UdpSocket,
}

impl Peer {
    fn at(address: SocketAddr) -> Self {
        Self { socket: UdpSocket::bind(address).expect("the port is free by UDP too") }
    }

    fn address(&self) -> SocketAddr {
        self.socket.local_addr().expect("it is bound")
    }

    fn takes(&self, limit: Duration) -> Option<(Vec<u8>, SocketAddr)> {
        self.socket.set_read_timeout(Some(limit)).expect("a socket can be set");
        let mut buffer = vec![0; 9_000];
        let (length, from) = self.socket.recv_from(&mut buffer).ok()?;
        buffer.truncate(length);
        Some((buffer, from))
    }

    /// Answers the next request with 200.
    #[track_caller]
    fn answers(&self) -> Vec<u8> {
        let (request, from) = self.takes(LIMIT).expect("a request comes");
        self.socket.send_to(&respond(&request, 200, "peer", &[]), from).expect("loopback takes it");
        request
    }
}

/// TCP port with a full backlog: the kernel drops each further SYN, as a firewall does, until [`opens`](Self::opens).
struct Deaf {
    listener: TcpListener,
    waiting: Vec<TcpStream>,
}

impl Deaf {
    fn new() -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).expect("a free port");
        socket.listen(0).expect("it listens");
        let mut deaf = Self { listener: socket.into(), waiting: Vec::new() };
        let address = deaf.address();
        while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(150)) {
            deaf.waiting.push(stream);
            assert!(deaf.waiting.len() < 64, "this kernel takes every connection");
        }
        deaf
    }

    fn address(&self) -> SocketAddr {
        self.listener.local_addr().expect("it is bound")
    }

    /// Accepts the waiting connections, and then the server's.
    fn opens(self) -> TcpStream {
        let own: Vec<SocketAddr> = self.waiting.iter().filter_map(|stream| stream.local_addr().ok()).collect();
        loop {
            let (stream, from) = self.listener.accept().expect("a connection comes");
            if !own.contains(&from) {
                return stream;
            }
        }
    }
}

fn server() -> Server {
    Setup::on(&[Udp, Tcp]).relay().with("control.socket = \"orders\"").with("log.level = \"debug\"").start()
}

/// Sends a large request to this peer. Returns the delay and the request as received.
#[track_caller]
fn reaches(caller: &mut Wire, peer: &Peer) -> (Took, Vec<u8>) {
    let mut request = Request::new("MESSAGE", &format!("sip:x@{}", peer.address()), "tcp", caller.local());
    request.headers.push("Content-Type: text/plain".into());
    request.body = vec![b'x'; 1_400];
    let begun = Stopwatch::start();
    caller.send(&request.bytes()).expect("the server takes messages");
    let got = peer.answers();
    let took = begun.took();
    assert_eq!(field(&got, "Call-ID"), Some(request.call_id));
    assert_eq!(caller.final_response(LIMIT).as_deref().and_then(status), Some(200));
    (took, got)
}

#[test]
fn a_peer_that_drops_syns_costs_a_moment_once() {
    let deaf = Deaf::new();
    let (server, peer) = (server(), Peer::at(deaf.address()));
    let mut caller = server.connect(Tcp);
    let (took, got) = reaches(&mut caller, &peer);
    assert!(took.is_at_least(WAIT) && took.is_below(WAIT * 4), "{took:?}");
    assert!(fields(&got, "Via")[0].starts_with("SIP/2.0/UDP "), "{}", String::from_utf8_lossy(&got));
    for _ in 0..5 {
        let (took, _) = reaches(&mut caller, &peer);
        assert!(took.is_below(AT_ONCE), "{took:?}");
    }
    assert!(peer.takes(Duration::from_millis(600)).is_none(), "nothing came twice");
    assert_eq!([metric(&server, "strowger_udp_only_peers"), metric(&server, "strowger_targets_aside")], [1.0, 0.0]);
    // The connection opens at last, but carries no data, because the request was sent by UDP.
    let mut late = deaf.opens();
    late.set_read_timeout(Some(Duration::from_millis(500))).expect("a socket can be set");
    let read = late.read(&mut [0; 100]);
    assert!(read.is_err(), "{read:?} bytes by TCP of what went by UDP");
    let log = server.log_with("no TCP: large requests go by UDP");
    assert!(!log.contains(" WARN "), "{log}");
}

#[test]
fn a_peer_that_refuses_tcp_costs_no_time() {
    let (server, peer) = (server(), Peer::at((Ipv4Addr::LOCALHOST, 0).into()));
    let mut caller = server.connect(Tcp);
    for _ in 0..3 {
        let (took, _) = reaches(&mut caller, &peer);
        assert!(took.is_below(AT_ONCE), "{took:?}");
    }
    assert!(wait::until(LIMIT, || metric(&server, "strowger_udp_only_peers") == 1.0));
    let log = server.log_with("no TCP: large requests go by UDP");
    assert_eq!(log.matches("INFO connection not made").count(), 1, "{log}");
    assert!(!log.contains(" WARN "), "{log}");
}

#[test]
fn a_peer_that_takes_tcp_gets_it_there() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let (server, peer) = (server(), Peer::at(listener.local_addr().expect("it is bound")));
    let mut caller = server.connect(Tcp);
    let mut request = Request::new("MESSAGE", &format!("sip:x@{}", peer.address()), "tcp", caller.local());
    request.body = vec![b'x'; 1_400];
    caller.send(&request.bytes()).expect("the server takes messages");
    let (mut stream, _) = listener.accept().expect("a connection");
    let mut got = vec![0; 9_000];
    let length = stream.read(&mut got).expect("a request");
    assert!(got[..length].starts_with(b"MESSAGE ") && fields(&got[..length], "Via")[0].starts_with("SIP/2.0/TCP "));
    assert!(peer.takes(WAIT * 2).is_none(), "it goes by one transport");
}
