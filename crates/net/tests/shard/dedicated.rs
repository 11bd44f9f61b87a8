//! Dedicated sockets and connections of a service.

use crate::echo::{bounds, settings};
use crate::relay::{listener, message, start as relay};
use crate::streams::{identity, secure};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::time::{Duration, Instant};
use strowger_core::Transport::{self, Tcp, Tls, Udp, Ws, Wss};
use strowger_core::{Arrival, Flow, ListenerId, Now, Outbox, PeerName, Target};
use strowger_net::dedicated::{self, DedicatedSockets, SocketRequest};
use strowger_net::{
    Bounds, Ending, Handle, Listener, Net, NetSettings, Node, Service, ServiceWithSockets, Snapshot, UdpSettings,
    Unsent, tls,
};

/// "OPEN NAME tcp 127.0.0.1:5060" opens a dedicated socket and returns its port, "SAY NAME TEXT" sends a text over it, "CLOSE NAME" ends it, "END
/// NAME" does both together, "SLEEP MILLISECONDS" blocks the shard. Messages over a dedicated socket, and the report of its end, go to the sender of
/// "OPEN".
struct Opener {
    sockets: DedicatedSockets,
    open: HashMap<String, (Flow, SocketAddr, Transport)>,
    controller: Option<Arrival>,
    /// Name that secure peers must prove.
    peer: PeerName,
}

impl Opener {
    fn report(&self, text: &str, out: &mut Outbox) {
        let Some(controller) = &self.controller else { return };
        Self::send(controller.reply(), text, 0, out);
    }

    fn send(to: Target, text: &str, token: u64, out: &mut Outbox) {
        let start = out.start();
        out.bytes.extend_from_slice(text.as_bytes());
        out.send(to, start..out.bytes.len(), token);
    }

    fn say(&self, name: &str, out: &mut Outbox) {
        let (flow, address, transport) = self.open[name];
        let target = Target { flow: Some(flow), ..Target::new(transport, ListenerId(0), address) };
        Self::send(target, &message(&format!("SAID {name}"), name, 30), 7, out);
    }
}

impl Service for Opener {
    type ShardMessage = ();
    type Record = ();

    fn receive(&mut self, _: Now, arrival: &Arrival, bytes: &[u8], out: &mut Outbox) {
        let text = String::from_utf8_lossy(bytes).into_owned();
        if let Some(flow) = arrival.flow {
            assert!(dedicated::is_dedicated(flow));
            if !self.sockets.is_open(flow) {
                // The response to the last text.
                return;
            }
            assert_eq!(self.open.values().filter(|o| o.0 == flow).count(), 1);
            return self.report(&format!("CAME {text}"), out);
        }
        self.controller = Some(*arrival);
        let word: Vec<&str> = text.split(' ').collect();
        match word[0] {
            "OPEN" | "BEGIN" => {
                let (transport, to): (_, SocketAddr) =
                    (Transport::of(word[2].as_bytes()).unwrap(), word[3].parse().unwrap());
                let from = SocketAddr::new(if to.is_ipv4() { "127.0.0.3".parse().unwrap() } else { to.ip() }, 0);
                match self.sockets.open(SocketRequest {
                    transport,
                    listener: ListenerId(0),
                    from,
                    to,
                    name: Some(self.peer),
                }) {
                    Ok(socket) => {
                        self.open.insert(word[1].to_owned(), (socket.flow, to, transport));
                        if word[0] == "BEGIN" {
                            self.say(word[1], out);
                        } else {
                            self.report(&format!("OPENED {}", socket.address), out);
                        }
                    }
                    Err(error) => self.report(&format!("NOT {:?}", error.kind()), out),
                }
            }
            "SAY" => self.say(word[1], out),
            // A service that is slower than its input.
            "SLEEP" => std::thread::sleep(Duration::from_millis(word[1].parse().unwrap())),
            "CLOSE" => self.sockets.close(self.open[word[1]].0),
            "END" => {
                self.say(word[1], out);
                self.sockets.close(self.open[word[1]].0);
            }
            other => panic!("{other}"),
        }
    }

    fn failed(&mut self, _: Now, _: u64, _: &mut Outbox) {
        unreachable!("unsent is called instead");
    }

    fn unsent(&mut self, _: Now, token: u64, cause: Unsent, out: &mut Outbox) {
        self.report(&format!("FAILED {token} {cause:?}"), out);
    }

    fn unreachable(&mut self, _: Now, to: SocketAddr, quoted: &[u8], out: &mut Outbox) {
        self.report(&format!("UNREACHABLE at {to} {}", String::from_utf8_lossy(quoted)), out);
    }

    fn closed(&mut self, _: Now, _: Flow, _: &mut Outbox) {
        unreachable!("ended is called instead");
    }

    fn poll(&mut self, _: Now, _: &mut Outbox) {}
    fn deadline(&mut self) -> Option<u64> {
        None
    }
    fn answered(&mut self, _: Now, _: (), _: &mut Outbox) {}
    fn export(&mut self, _: Now, _: u8) -> Vec<()> {
        Vec::new()
    }
    fn import(&mut self, _: Now, _: (), _: &mut Outbox) {}
}

impl ServiceWithSockets for Opener {
    fn ended(&mut self, _: Now, flow: Flow, ending: Ending, out: &mut Outbox) {
        let name = self.open.iter().find(|o| o.1.0 == flow).map_or_else(|| "?".into(), |o| o.0.clone());
        self.sockets.close(flow);
        self.report(&format!("CLOSED {name} {ending:?}"), out);
    }

    fn sockets(&mut self) -> Option<&mut DedicatedSockets> {
        Some(&mut self.sockets)
    }
}

/// Starts an opener of at most `most` dedicated sockets, and a socket to control it.
fn start(settings: NetSettings, most: usize) -> (Node<Opener>, Controller) {
    let make = move |shard, handle: Handle<_>| Opener {
        sockets: DedicatedSockets::new(&handle, shard, most),
        open: HashMap::new(),
        controller: None,
        peer: handle.name("localhost"),
    };
    let listeners = vec![Listener::new(Udp, "127.0.0.1:0".parse().unwrap())];
    let node = Net::bind(settings, listeners).unwrap().spawn_with_sockets(make).unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(node.handle().addresses()[0]).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    (node, Controller(socket))
}

struct Controller(UdpSocket);

impl Controller {
    fn order(&self, text: &str) {
        self.0.send(text.as_bytes()).unwrap();
    }

    fn receive(&self) -> String {
        let mut buffer = [0; 2_000];
        let n = self.0.recv(&mut buffer).expect("a word within five seconds");
        String::from_utf8_lossy(&buffer[..n]).into_owned()
    }

    fn ask(&self, text: &str) -> String {
        self.order(text);
        self.receive()
    }

    /// Opens a dedicated socket and returns its address.
    fn open(&self, name: &str, transport: Transport, to: SocketAddr) -> SocketAddr {
        let said = self.ask(&format!("OPEN {name} {} {to}", transport.text()));
        said.strip_prefix("OPENED ").unwrap_or_else(|| panic!("{said}")).parse().unwrap()
    }
}

/// Returns the length of the text of "SAY NAME". A peer that leaves some of this text unread ends a connection by RST.
fn said(name: &str) -> usize {
    message(&format!("SAID {name}"), name, 30).len()
}

fn until(what: &str, reached: impl Fn() -> bool) {
    let patience = Instant::now() + Duration::from_secs(5);
    while !reached() {
        assert!(Instant::now() < patience, "{what}");
        // Interval between two checks.
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn counted<S: Service + 'static>(node: &Node<S>, value: impl Fn(Snapshot) -> u64, expected: u64) {
    until(&format!("{expected}: {:?}", node.handle().total()), || value(node.handle().total()) == expected);
}

#[test]
fn a_socket_for_datagrams_has_a_port_of_its_own_and_receives_what_comes_to_it() {
    let (node, controller) = start(settings(1), 100);
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    peer.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let at = peer.local_addr().unwrap();
    let names: Vec<String> = (0..20).map(|i| i.to_string()).collect();
    let ports: Vec<SocketAddr> = names.iter().map(|name| controller.open(name, Udp, at)).collect();
    let mut different: Vec<u16> = ports.iter().map(SocketAddr::port).collect();
    different.sort_unstable();
    different.dedup();
    assert_eq!(different.len(), 20);
    assert!(ports.iter().all(|p| p.ip().to_string() == "127.0.0.3"));
    let mut buffer = [0; 2_000];
    for (name, port) in names.iter().zip(&ports) {
        controller.order(&format!("SAY {name}"));
        let (n, from) = peer.recv_from(&mut buffer).unwrap();
        assert_eq!(from, *port);
        assert!(buffer[..n].starts_with(format!("SAID {name} ").as_bytes()));
        peer.send_to(format!("answer to {name}").as_bytes(), from).unwrap();
        assert_eq!(controller.receive(), format!("CAME answer to {name}"));
    }
    // The service does not see keep-alives.
    peer.send_to(b"\r\n\r\n", ports[3]).unwrap();
    counted(&node, |t| t.datagram_pings, 1);
    counted(&node, |t| t.dedicated, 20);
    // A message of the same round still leaves.
    for name in &names {
        controller.order(&format!("END {name}"));
        assert!(peer.recv_from(&mut buffer).is_ok());
    }
    counted(&node, |t| t.dedicated, 0);
    // Another test may have got one of the ports since.
    let free = ports.iter().filter(|port| UdpSocket::bind(port).is_ok()).count();
    assert!(free + 1 >= ports.len(), "{free} of {} are free", ports.len());
    // A message over a closed dedicated socket fails.
    assert_eq!(controller.ask("SAY 3"), "FAILED 7 Here");
    // The slot of the closed socket is reused under another name.
    controller.open("again", Udp, at);
    assert_eq!(controller.ask("SAY 3"), "FAILED 7 Here");
    assert_eq!(node.handle().total().dedicated_opened, 21);
}

#[test]
fn the_first_answer_to_the_first_socket_wakes_the_shard() {
    for _ in 0..10 {
        let (_node, controller) = start(settings(1), 1);
        let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
        peer.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        controller.order(&format!("BEGIN a udp {}", peer.local_addr().unwrap()));
        let (_, from) = peer.recv_from(&mut [0; 2_000]).unwrap();
        // The shard sleeps by then.
        std::thread::sleep(Duration::from_millis(5));
        peer.send_to(b"answer", from).unwrap();
        assert_eq!(controller.receive(), "CAME answer");
    }
}

#[test]
fn every_transport_has_connections_of_their_own_beside_each_other_and_ends_them_with_grace() {
    let (_folder, identity) = identity();
    let listeners =
        vec![listener(Tcp, "127.0.0.1:0"), secure(Tls, &identity), listener(Ws, "127.0.0.1:0"), secure(Wss, &identity)];
    let far = relay(settings(1), listeners);
    let trusting = tls::Client { authorities: Some(identity.certificates[0].chain.clone()), ..tls::Client::default() };
    let (near, controller) = start(NetSettings { tls: trusting, ..settings(1) }, 100);
    for (i, transport) in [Tcp, Tls, Ws, Wss].into_iter().enumerate() {
        let to = far.handle().addresses()[i];
        let mut ports = Vec::new();
        for n in 0..5 {
            let name = format!("{}{n}", transport.text());
            ports.push(controller.open(&name, transport, to).port());
            let came = controller.ask(&format!("SAY {name}"));
            assert!(came.starts_with(&format!("CAME SAID {name} SIP/2.0")), "{came}");
        }
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 5, "{transport:?}");
        counted(&far, |t| t.accepted, 5 * (i as u64 + 1));
        // Some sockets end in the round of their last message, the others without one.
        for n in 0..5 {
            controller.order(&format!("{} {}{n}", if n % 2 == 0 { "END" } else { "CLOSE" }, transport.text()));
        }
        counted(&far, |t| t.tcp_connections + t.tls_connections + t.ws_connections + t.wss_connections, 0);
        counted(
            &near,
            |t| t.dedicated + t.tcp_connections + t.tls_connections + t.ws_connections + t.wss_connections,
            0,
        );
        assert_eq!(far.handle().total().stream_messages_in, 8 * (i as u64 + 1));
    }
    // Sent and ended before the connection is made.
    let to = far.handle().addresses()[1];
    controller.open("quick", Tls, to);
    controller.order("END quick");
    counted(&far, |t| t.stream_messages_in, 33);
    counted(&near, |t| t.dedicated, 0);
    let total = near.handle().total();
    assert_eq!((total.handshakes_failed, total.connects_failed, total.dedicated_opened), (0, 0, 21));
    // All but the first of each listener resume a session: both listeners have one name and different ports, and their sessions are separate.
    assert_eq!((total.tls_handshakes, total.tls_resumed), (11, 9));
    let total = far.handle().total();
    assert_eq!((total.tls_handshakes, total.tls_resumed, total.handshakes_failed), (11, 9, 0));
}

#[test]
fn the_other_side_ends_refuses_or_does_not_go_along() {
    let (node, controller) = start(
        NetSettings { bounds: Bounds { close_timeout: Duration::from_millis(200), ..bounds() }, ..settings(1) },
        3,
    );
    let peer = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = peer.local_addr().unwrap();
    controller.open("ended", Tcp, to);
    let (mut stream, _) = peer.accept().unwrap();
    controller.order("SAY ended");
    stream.read_exact(&mut vec![0; said("ended")]).unwrap();
    drop(stream);
    assert_eq!(controller.receive(), "CLOSED ended Finished");
    counted(&node, |t| t.dedicated, 0);
    assert_eq!(controller.ask("SAY ended"), "FAILED 7 Here");
    // If the peer keeps its side open, the connection is closed after a while; until then the peer may still send.
    controller.open("stubborn", Tcp, to);
    let (mut stream, _) = peer.accept().unwrap();
    controller.order("END stubborn");
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    assert!(said.starts_with("SAID stubborn"), "{said}");
    assert_eq!(node.handle().total().dedicated, 1);
    counted(&node, |t| t.dedicated, 0);
    assert!(stream.write_all(&[b'x'; 10]).is_ok());
    // A closed port: the message fails, and then the dedicated socket ends.
    drop(peer);
    assert_eq!(controller.ask(&format!("BEGIN refused tcp {to}")), "FAILED 7 Connection");
    assert_eq!(controller.receive(), "CLOSED refused Unmade");
    counted(&node, |t| t.dedicated, 0);
    // Both must fail: one more socket than the bound, and an address that is not local.
    let udp: SocketAddr = "127.0.0.1:9".parse().unwrap();
    for name in ["a", "b", "c"] {
        controller.open(name, Udp, udp);
    }
    assert_eq!(controller.ask("OPEN d udp 127.0.0.1:9"), "NOT QuotaExceeded");
    controller.order("CLOSE a");
    counted(&node, |t| t.dedicated, 2);
    controller.open("d", Udp, udp);
    let total = node.handle().total();
    assert_eq!((total.dedicated_full, total.dedicated_refused), (1, 0));
}

#[test]
fn how_a_connection_ended_is_reported() {
    let settings = NetSettings { bounds: Bounds { idle_timeout: Duration::from_secs(1), ..bounds() }, ..settings(1) };
    let (_folder, identity) = identity();
    let trusting = tls::Client { authorities: Some(identity.certificates[0].chain.clone()), ..tls::Client::default() };
    let (node, controller) = start(NetSettings { tls: trusting, ..settings.clone() }, 20);
    let peer = TcpListener::bind("127.0.0.1:0").unwrap();
    let accepted = |name: &str| {
        controller.open(name, Tcp, peer.local_addr().unwrap());
        let stream = peer.accept().unwrap().0;
        // The connection is open once a message has arrived over it.
        controller.order(&format!("SAY {name}"));
        (&stream).read_exact(&mut vec![0; said(name)]).unwrap();
        stream
    };
    drop(accepted("fin"));
    assert_eq!(controller.receive(), "CLOSED fin Finished");
    // Half a close is enough (RFC 9293 section 3.6).
    let half = accepted("half");
    half.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(controller.receive(), "CLOSED half Finished");
    let reset = accepted("reset");
    socket2::SockRef::from(&reset).set_linger(Some(Duration::ZERO)).unwrap();
    drop(reset);
    assert_eq!(controller.receive(), "CLOSED reset Broken");
    let _idle = accepted("idle");
    assert_eq!(controller.receive(), "CLOSED idle Ours");
    let mut noise = accepted("noise");
    noise.write_all(b"OPTIONS sip:a SIP/2.0\r\nContent-Length: some\r\n\r\n").unwrap();
    assert_eq!(controller.receive(), "CLOSED noise Ours");
    // The time of the peer is over first; the peer reports this by the closes of TLS and WebSocket.
    let far = relay(
        NetSettings {
            bounds: Bounds { idle_timeout: Duration::from_millis(50), ..settings.bounds.clone() },
            ..settings.clone()
        },
        vec![secure(Tls, &identity), listener(Ws, "127.0.0.1:0")],
    );
    for (transport, to) in [Tls, Ws].into_iter().zip(far.handle().addresses()) {
        controller.open("far", transport, *to);
        assert!(controller.ask("SAY far").starts_with("CAME SAID far"));
        assert_eq!(controller.receive(), "CLOSED far Finished");
    }
    counted(&node, |t| t.dedicated, 0);
}

#[test]
fn the_cause_of_a_connection_that_is_not_made_is_the_layer_that_failed() {
    let (node, controller) = start(settings(1), 20);
    let plain = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = plain.local_addr().unwrap();
    // The connection uses neither TLS nor WebSocket.
    let answers = std::thread::spawn(move || {
        for stream in plain.incoming().take(2) {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 1_000]);
            let _ = stream.write_all(b"SIP/2.0 400 Bad Request\r\n\r\n");
        }
    });
    for (transport, cause) in [("tls", "TlsHandshake"), ("ws", "WebSocketHandshake")] {
        assert_eq!(controller.ask(&format!("BEGIN {transport} {transport} {to}")), format!("FAILED 7 {cause}"));
        assert_eq!(controller.receive(), format!("CLOSED {transport} Unmade"));
    }
    answers.join().unwrap();
    assert_eq!(controller.ask(&format!("BEGIN wss wss {to}")), "FAILED 7 Connection");
    assert_eq!(node.handle().total().handshakes_failed, 2);
}

#[test]
fn what_a_socket_of_its_own_sends_to_a_closed_port_is_reported() {
    for icmp_errors in [true, false] {
        let (node, controller) =
            start(NetSettings { udp: UdpSettings { icmp_errors, ..UdpSettings::default() }, ..settings(1) }, 3);
        let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
        peer.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let closed = UdpSocket::bind("127.0.0.233:0").unwrap().local_addr().unwrap();
        controller.open("gone", Udp, closed);
        controller.open("here", Udp, peer.local_addr().unwrap());
        for _ in 0..3 {
            controller.order("SAY gone");
            if icmp_errors {
                let report = controller.receive();
                assert!(report.starts_with(&format!("UNREACHABLE at {closed} SAID gone SIP/2.0")), "{report}");
            }
            controller.order("SAY here");
            let (_, from) = peer.recv_from(&mut [0; 2_000]).unwrap();
            peer.send_to(b"answer", from).unwrap();
            assert_eq!(controller.receive(), "CAME answer");
        }
        let total = node.handle().total();
        assert_eq!((total.unreachable, total.datagrams_refused), (if icmp_errors { 3 } else { 0 }, 0));
    }
}

#[test]
fn what_was_dropped_before_lanes_that_never_closed_is_counted_in_the_end() {
    let (node, controller) = start(settings(1), 20);
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    let [a, b] = ["a", "b"].map(|name| controller.open(name, Udp, peer.local_addr().unwrap()));
    controller.order("SLEEP 500");
    // More than the kernel's default buffer holds.
    for _ in 0..2_000 {
        peer.send_to(&[b'x'; 1_000], a).unwrap();
        peer.send_to(&[b'x'; 1_000], b).unwrap();
    }
    let handle = node.handle().clone();
    assert_eq!((handle.total().dedicated, handle.total().dedicated_drops), (2, 0));
    drop(node);
    let total = handle.total();
    assert_eq!(total.dedicated, 0);
    assert!((1..4_000).contains(&total.dedicated_drops), "{total:?}");
}
