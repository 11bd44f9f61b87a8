//! Allocations of relayed messages: none once warm, counted over all threads of a server.

use std::alloc::System;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};
use strowger_allocations::{Counting, of_process, set_aside};
use strowger_config::{Config, Source};
use strowger_node::Server;

#[global_allocator]
static ALLOCATOR: Counting<System> = Counting(System);

/// A call is forgotten after 64 * T1.
const CONFIG: &str = r#"
listen = ["udp:{address}"]
realm = "example.org"
domains = []
server.shards = 1
proxy.relay_for = "everyone"
store.database = "memory"
timers.t1 = "10ms"
timers.t2 = "40ms"
"#;
const FORGOTTEN: Duration = Duration::from_millis(640);

/// A phone on each side of the server.
struct Pair {
    caller: UdpSocket,
    called: UdpSocket,
    server: SocketAddr,
    bytes: Vec<u8>,
}

impl Pair {
    fn new(server: SocketAddr) -> Self {
        let socket = || {
            let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
            socket.set_read_timeout(Some(Duration::from_secs(5))).expect("a time-out");
            socket
        };
        Self { caller: socket(), called: socket(), server, bytes: vec![0; 4096] }
    }

    fn request(&self, method: &str, number: u32, cseq: u32, branch: u32) {
        let (from, to) = (self.caller.local_addr().expect("bound"), self.called.local_addr().expect("bound"));
        let text = format!(
            "{method} sip:b@{to} SIP/2.0\r\nVia: SIP/2.0/UDP {from};branch=z9hG4bK{number}-{branch}\r\n\
             Max-Forwards: 70\r\nFrom: <sip:a@{from}>;tag=f{number}\r\nTo: <sip:b@{to}>\r\nCall-ID: {number}@{from}\r\n\
             CSeq: {cseq} {method}\r\nContact: <sip:a@{from}>\r\nContent-Length: 0\r\n\r\n"
        );
        self.caller.send_to(text.as_bytes(), self.server).expect("sent");
    }

    /// Returns the next message on one side that begins with `start`. Skips other messages, such as a retransmission or
    /// a 100.
    fn take(&mut self, at_caller: bool, start: &str) -> String {
        let socket = if at_caller { &self.caller } else { &self.called };
        loop {
            let (len, _) = socket.recv_from(&mut self.bytes).unwrap_or_else(|error| panic!("no {start}: {error}"));
            let text = std::str::from_utf8(&self.bytes[..len]).expect("text");
            if text.starts_with(start) {
                return text.to_owned();
            }
        }
    }

    fn answer(&self, request: &str) {
        let head = request
            .lines()
            .filter(|line| ["Via:", "From:", "To:", "Call-ID:", "CSeq:"].iter().any(|name| line.starts_with(name)));
        let mut text = String::from("SIP/2.0 200 OK\r\n");
        for line in head {
            text += line;
            text += "\r\n";
        }
        text += "Content-Length: 0\r\n\r\n";
        self.called.send_to(text.as_bytes(), self.server).expect("sent");
    }

    /// Makes a call of five messages: INVITE, 200, ACK, BYE, 200. With the 100 that the server sends, these are six
    /// messages.
    fn call(&mut self, number: u32) {
        self.request("INVITE", number, 1, 1);
        let invite = self.take(false, "INVITE");
        self.answer(&invite);
        self.take(true, "SIP/2.0 200");
        self.request("ACK", number, 1, 2);
        self.take(false, "ACK");
        self.request("BYE", number, 2, 3);
        let bye = self.take(false, "BYE");
        self.answer(&bye);
        self.take(true, "SIP/2.0 200");
    }
}

#[test]
fn a_relayed_message_costs_no_allocation() {
    let folder = tempfile::tempdir().expect("a folder");
    let address = UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a free port");
    let text = CONFIG.replace("{address}", &address.to_string());
    let source = Source { file: "test", text: &text, folder: folder.path(), ..Source::default() };
    let config = Config::read(source).unwrap_or_else(|report| panic!("{report}")).0;
    let server = Server::start(config).expect("it starts");
    set_aside();
    let mut pair = Pair::new(address);
    let (mut number, began) = (0, Instant::now());
    // Tables reach their full size when the first calls have been forgotten.
    while began.elapsed() < 3 * FORGOTTEN {
        number += 1;
        pair.call(number);
        // At most five thousand calls a second.
        std::thread::sleep(Duration::from_micros(200));
    }
    let count = || (of_process(), server.received());
    let (before, first) = count();
    for _ in 0..1_000 {
        number += 1;
        pair.call(number);
        // At most two thousand calls a second.
        std::thread::sleep(Duration::from_micros(500));
    }
    let (after, last) = count();
    let messages = last.0 + last.1 - first.0 - first.1;
    server.stop();
    assert!(messages >= 5_000, "{messages} messages");
    let each = (after - before) as f64 / messages as f64;
    // The tolerance is for periodic work, once a second at any load.
    assert!(each < 0.01, "{each:.3} allocations a message: {} of {messages}", after - before);
}
