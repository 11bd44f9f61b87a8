//! Peer by hand that answers every request and records the senders.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::generator::reply;

/// Datagram that is no message: a peer by hand sends it back.
const READ: &[u8] = b"have you read all?";

/// Waits until the peer by hand at this address has read all earlier datagrams, because a program that has ended may
/// have sent some a moment ago. The thread of the peer must call [`sends_back`] before it handles a datagram.
///
/// # Panics
/// The peer has not read them within ten seconds.
pub fn until_read(peer: SocketAddr) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    socket.set_read_timeout(Some(Duration::from_secs(10))).expect("it can be set");
    socket.send_to(READ, peer).expect("loopback takes it");
    socket.recv(&mut [0; READ.len()]).expect("the peer sends it back");
}

/// Tells whether this is the datagram of [`until_read`]; if it is, sends it back.
pub fn sends_back(socket: &UdpSocket, datagram: &[u8], from: SocketAddr) -> bool {
    datagram == READ && socket.send_to(datagram, from).is_ok()
}

/// Received message with its sender.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Sender.
    pub from: SocketAddr,
    /// Whole message.
    pub text: String,
}

impl Seen {
    /// Returns the value of the first header field with this name.
    pub fn header(&self, name: &str) -> &str {
        let line = self.text.lines().find(|l| l.starts_with(name) && l[name.len()..].starts_with(':'));
        line.map_or("", |l| l[name.len() + 1..].trim())
    }

    /// Returns the ports that the message names as its own: in its Via, and in its Contact if there is one.
    ///
    /// # Panics
    /// The message names no address of 127.0.0.0/24.
    pub fn named(&self) -> BTreeSet<u16> {
        let port = |value: &str| {
            let at = value.find("127.0.0.").expect("an address");
            let rest = value[at..].split_once(':').expect("a port").1;
            let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            rest[..end].parse().expect("digits")
        };
        [self.header("Via"), self.header("Contact")].into_iter().filter(|v| !v.is_empty()).map(port).collect()
    }
}

/// Returns the answer of a peer to a request; `None` for an ACK.
fn accepted(text: &str, own: SocketAddr) -> Option<String> {
    (!text.starts_with("ACK")).then(|| reply("200 OK", text, own))
}

/// Peer by hand that answers 200 to everything and records messages.
pub struct Peer {
    /// Address it listens on.
    pub address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    /// Connections to it.
    pub connections: Arc<Connections>,
}

/// Counts of connections.
#[derive(Debug, Default)]
pub struct Connections {
    /// All connections so far.
    pub made: AtomicUsize,
    /// Open connections.
    pub open: AtomicUsize,
    /// Maximum number of simultaneous connections.
    pub most: AtomicUsize,
    /// Connections closed normally.
    pub ended: AtomicUsize,
    /// Connections that were reset.
    pub reset: AtomicUsize,
}

impl Peer {
    /// Starts a peer by UDP, on a port of 127.0.0.1.
    ///
    /// # Panics
    /// No port is free.
    pub fn udp() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
        let address = socket.local_addr().expect("it is bound");
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let kept = seen.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 65_536];
            while let Ok((length, from)) = socket.recv_from(&mut buffer) {
                let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
                if let Some(reply) = accepted(&text, address) {
                    let _ = socket.send_to(reply.as_bytes(), from);
                }
                kept.lock().expect("nobody panics with it").push(Seen { from, text });
            }
        });
        Self { address, seen, connections: Arc::default() }
    }

    /// Starts a peer by TCP. `ends`: number of messages after which the peer closes a connection; 0: it never closes
    /// one.
    ///
    /// # Panics
    /// No port is free.
    pub fn tcp(ends: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let connections: Arc<Connections> = Arc::default();
        let (kept, counted) = (seen.clone(), connections.clone());
        std::thread::spawn(move || {
            while let Ok((stream, from)) = listener.accept() {
                let (kept, counted) = (kept.clone(), counted.clone());
                counted.begin();
                std::thread::spawn(move || {
                    serve(stream, from, address, &kept, &counted, ends);
                    counted.open.fetch_sub(1, SeqCst);
                });
            }
        });
        Self { address, seen, connections }
    }

    /// Returns the messages so far.
    ///
    /// # Panics
    /// The thread of the peer panicked.
    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().expect("nobody panics with it").clone()
    }

    /// Returns the ports from which the calls came, by Call-ID.
    pub fn ports(&self) -> BTreeMap<String, BTreeSet<u16>> {
        let mut ports: BTreeMap<String, BTreeSet<u16>> = BTreeMap::new();
        for seen in self.seen() {
            ports.entry(seen.header("Call-ID").to_owned()).or_default().insert(seen.from.port());
        }
        ports
    }
}

impl Connections {
    /// Counts a new connection.
    pub fn begin(&self) {
        self.made.fetch_add(1, SeqCst);
        let open = self.open.fetch_add(1, SeqCst) + 1;
        self.most.fetch_max(open, SeqCst);
    }

    /// Counts the end of a connection, by the result of its last read.
    pub fn end(&self, result: std::io::Result<usize>) {
        match result {
            Ok(_) => &self.ended,
            Err(_) => &self.reset,
        }
        .fetch_add(1, SeqCst);
    }

    /// Returns the numbers of connections made, still open, closed normally, reset.
    pub fn counts(&self) -> [usize; 4] {
        [&self.made, &self.open, &self.ended, &self.reset].map(|n| n.load(SeqCst))
    }
}

fn serve(
    mut stream: TcpStream,
    from: SocketAddr,
    own: SocketAddr,
    kept: &Mutex<Vec<Seen>>,
    counted: &Connections,
    ends: usize,
) {
    let (mut text, mut buffer, mut number) = (String::new(), [0; 65_536], 0);
    loop {
        let read = stream.read(&mut buffer);
        let Some(length) = read.as_ref().ok().copied().filter(|n| *n > 0) else { return counted.end(read) };
        text.push_str(&String::from_utf8_lossy(&buffer[..length]));
        while let Some(head) = text.find("\r\n\r\n").map(|at| at + 4) {
            let body = text[..head].lines().find_map(|l| l.strip_prefix("Content-Length:"));
            let end = head + body.and_then(|n| n.trim().parse().ok()).unwrap_or(0usize);
            if text.len() < end {
                break;
            }
            let message: String = text.drain(..end).collect();
            if let Some(reply) = accepted(&message, own) {
                let _ = stream.write_all(reply.as_bytes());
            }
            kept.lock().expect("nobody panics with it").push(Seen { from, text: message });
            number += 1;
            if number == ends {
                // The pause lets packets arrive that are still on their way to the peer.
                std::thread::sleep(Duration::from_millis(100));
                return;
            }
        }
    }
}
