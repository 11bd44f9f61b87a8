//! A peer by hand that answers everything and remembers from where it came.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::generator::reply;

/// A datagram that is no message: a peer by hand sends it back.
const READ: &[u8] = b"have you read all?";

/// Waits until the peer by hand at this address, whose thread says [`sends_back`] first, has read all that came before:
/// a program that ended may have sent it something a moment ago.
///
/// # Panics
/// It does not, within ten seconds.
pub fn until_read(peer: SocketAddr) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    socket.set_read_timeout(Some(Duration::from_secs(10))).expect("it can be set");
    socket.send_to(READ, peer).expect("loopback takes it");
    socket.recv(&mut [0; READ.len()]).expect("the peer sends it back");
}

/// Whether this datagram only asks what was read, and goes back.
pub fn sends_back(socket: &UdpSocket, datagram: &[u8], from: SocketAddr) -> bool {
    datagram == READ && socket.send_to(datagram, from).is_ok()
}

/// What came: from where, and what it says of itself.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Who sent it.
    pub from: SocketAddr,
    /// All of it.
    pub text: String,
}

impl Seen {
    /// The value of its first header field of this name.
    pub fn header(&self, name: &str) -> &str {
        let line = self.text.lines().find(|l| l.starts_with(name) && l[name.len()..].starts_with(':'));
        line.map_or("", |l| l[name.len() + 1..].trim())
    }

    /// The port that the message names as its own: in its Via, and in its Contact if there is one.
    ///
    /// # Panics
    /// It names none of 127.0.0.0/24.
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

/// What a peer answers: nothing to an ACK.
fn accepted(text: &str, own: SocketAddr) -> Option<String> {
    (!text.starts_with("ACK")).then(|| reply("200 OK", text, own))
}

/// A peer by hand that says 200 to everything and remembers what it saw.
pub struct Peer {
    /// Where it listens.
    pub address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    /// Those that were made to it.
    pub connections: Arc<Connections>,
}

/// Counts of connections.
#[derive(Debug, Default)]
pub struct Connections {
    /// Ever.
    pub made: AtomicUsize,
    /// Now.
    pub open: AtomicUsize,
    /// At once.
    pub most: AtomicUsize,
    /// Ended by a word.
    pub ended: AtomicUsize,
    /// Ended by a reset.
    pub reset: AtomicUsize,
}

impl Peer {
    /// By UDP, on a port of 127.0.0.1.
    ///
    /// # Panics
    /// None is free.
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

    /// By TCP. `ends`: after so many messages of a connection it is closed; 0: never.
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

    /// What it saw so far.
    ///
    /// # Panics
    /// Its thread did.
    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().expect("nobody panics with it").clone()
    }

    /// The ports from which the calls came, by Call-ID.
    pub fn ports(&self) -> BTreeMap<String, BTreeSet<u16>> {
        let mut ports: BTreeMap<String, BTreeSet<u16>> = BTreeMap::new();
        for seen in self.seen() {
            ports.entry(seen.header("Call-ID").to_owned()).or_default().insert(seen.from.port());
        }
        ports
    }
}

impl Connections {
    /// One was made.
    pub fn begin(&self) {
        self.made.fetch_add(1, SeqCst);
        let open = self.open.fetch_add(1, SeqCst) + 1;
        self.most.fetch_max(open, SeqCst);
    }

    /// One has ended, by what was read last.
    pub fn end(&self, result: std::io::Result<usize>) {
        match result {
            Ok(_) => &self.ended,
            Err(_) => &self.reset,
        }
        .fetch_add(1, SeqCst);
    }

    /// Connections made, still open, ended by a word, reset.
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
                // What is still on its way to the peer arrives.
                std::thread::sleep(Duration::from_millis(100));
                return;
            }
        }
    }
}
