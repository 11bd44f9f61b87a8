//! Connections with many messages at once: each of them, and all other connections, get their turns.

use crate::echo::{bounds, settings};
use crate::relay::{listener, message};
use crate::streams::{identity, secure};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};
use strowger_core::Transport::{Tcp, Tls, Udp, Ws};
use strowger_core::{Arrival, Flow, Now, Outbox};
use strowger_net::{Bounds, Listener, Net, NetSettings, Node, Service};

/// Takes time for each message of a connection, and counts them; answers datagrams.
struct Busy {
    since: usize,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    /// Messages of connections.
    all: AtomicUsize,
    /// Maximum number of messages of connections between two rounds.
    most: AtomicUsize,
}

impl Service for Busy {
    type ShardMessage = ();
    type Record = ();

    fn receive(&mut self, _: Now, arrival: &Arrival, bytes: &[u8], out: &mut Outbox) {
        if arrival.flow.is_none() {
            let start = out.start();
            out.bytes.extend_from_slice(bytes);
            return out.send(arrival.reply(), start..out.bytes.len(), 0);
        }
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_micros(10) {
            std::hint::spin_loop();
        }
        self.since += 1;
        self.counts.all.fetch_add(1, Relaxed);
    }

    fn end(&mut self, _: Now, _: &mut Outbox) {
        self.counts.most.fetch_max(std::mem::take(&mut self.since), Relaxed);
    }

    fn poll(&mut self, _: Now, _: &mut Outbox) {}
    fn deadline(&mut self) -> Option<u64> {
        None
    }
    fn answered(&mut self, _: Now, (): (), _: &mut Outbox) {}
    fn failed(&mut self, _: Now, _: u64, _: &mut Outbox) {}
    fn closed(&mut self, _: Now, _: Flow, _: &mut Outbox) {}
    fn export(&mut self, _: Now, _: u8) -> Vec<()> {
        Vec::new()
    }
    fn import(&mut self, _: Now, (): (), _: &mut Outbox) {}
}

fn start(messages_per_turn: usize, listeners: Vec<Listener>) -> (Node<Busy>, Arc<Counts>) {
    let counts = Arc::new(Counts::default());
    let settings = NetSettings { bounds: Bounds { messages_per_turn, ..bounds() }, ..settings(1) };
    let theirs = counts.clone();
    let make = move |_, _| Busy { since: 0, counts: theirs.clone() };
    (Net::bind(settings, listeners).unwrap().spawn(make).unwrap(), counts)
}

fn connect(to: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

/// Reads until the peer ends the connection. The peer does so after all messages before the end of this side.
fn until_it_ends(stream: &mut impl Read) {
    let mut bytes = [0; 1_000];
    while stream.read(&mut bytes).is_ok_and(|n| n > 0) {}
}

const LISTEN: &str = "127.0.0.1:0";

#[test]
fn a_connection_with_many_messages_has_its_turn_and_no_more() {
    const MESSAGES: usize = 100_000;
    let (node, counts) = start(64, vec![listener(Udp, LISTEN), listener(Tcp, LISTEN)]);
    let [datagrams, streams] = node.handle().addresses() else { panic!("two listeners") };
    let caller = UdpSocket::bind(LISTEN).unwrap();
    caller.connect(datagrams).unwrap();
    caller.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let (mut flood, mut answers) = (connect(*streams), 0);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let many = message("MESSAGE", "flood", 0).repeat(1_000);
            for _ in 0..MESSAGES / 1_000 {
                flood.write_all(many.as_bytes()).unwrap();
            }
            flood.shutdown(std::net::Shutdown::Write).unwrap();
            until_it_ends(&mut flood);
        });
        let mut bytes = [0; 100];
        while counts.all.load(Relaxed) < MESSAGES {
            caller.send(b"INVITE").unwrap();
            caller.recv(&mut bytes).expect("an answer within five seconds");
            answers += usize::from(counts.all.load(Relaxed) > 0);
        }
    });
    assert_eq!(counts.all.load(Relaxed), MESSAGES);
    assert!((1..=64).contains(&counts.most.load(Relaxed)), "{} messages in a turn", counts.most.load(Relaxed));
    // The exchange takes a second with 1,500 turns, some of which a busy machine leaves to the caller.
    assert!(answers > 50, "{answers} answers to another while the messages came");
}

/// The end of the connection follows the messages within the same read.
#[test]
fn every_message_before_the_end_of_a_connection_is_seen() {
    const MESSAGES: usize = 500;
    let (_folder, identity) = identity();
    for budget in [1, 7, MESSAGES] {
        let listeners = vec![listener(Tcp, LISTEN), secure(Tls, &identity), listener(Ws, LISTEN)];
        let (node, counts) = start(budget, listeners);
        let [tcp, tls, ws] = node.handle().addresses() else { panic!("three listeners") };
        let many = message("MESSAGE", "many", 20).repeat(MESSAGES);

        let mut stream = connect(*tcp);
        stream.write_all(many.as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        until_it_ends(&mut stream);
        assert_eq!(counts.all.swap(0, Relaxed), MESSAGES, "TCP, {budget} a turn");

        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(&identity.certificates[0].chain).unwrap()).unwrap();
        let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let name = ServerName::try_from("localhost").unwrap();
        let mut stream = StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), connect(*tls));
        stream.write_all(many.as_bytes()).unwrap();
        stream.conn.send_close_notify();
        stream.flush().unwrap();
        until_it_ends(&mut stream);
        assert_eq!(counts.all.swap(0, Relaxed), MESSAGES, "TLS, {budget} a turn");

        let mut stream = connect(*ws);
        stream
            .write_all(
                b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                  Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\
                  Sec-WebSocket-Protocol: sip\r\n\r\n",
            )
            .unwrap();
        let one = message("MESSAGE", "many", 20);
        // Final, text, masked with zeroes (RFC 6455 section 5.2); then a close.
        let mut frame = vec![0x81, 0x80 | u8::try_from(one.len()).unwrap(), 0, 0, 0, 0];
        frame.extend_from_slice(one.as_bytes());
        let mut frames = frame.repeat(MESSAGES);
        frames.extend_from_slice(&[0x88, 0x80, 0, 0, 0, 0]);
        stream.write_all(&frames).unwrap();
        until_it_ends(&mut stream);
        assert_eq!(counts.all.swap(0, Relaxed), MESSAGES, "WebSocket, {budget} a turn");
        assert!(counts.most.load(Relaxed) <= budget, "{} messages in a turn of {budget}", counts.most.load(Relaxed));
    }
}
