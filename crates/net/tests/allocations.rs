//! Allocations of messages: none once warm, by UDP, across shards, by plain TCP.

use std::alloc::System;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use strowger_allocations::{Counting, of_process};
use strowger_core::{Arrival, Flow, Now, Outbox, Transport};
use strowger_net::{Listener, Net, NetSettings, Node, Service, Shards, UdpSettings};

#[global_allocator]
static ALLOCATOR: Counting<System> = Counting(System);

/// Sends back each message and sets a timer for it, as transactions do.
struct Echo {
    due: Option<u64>,
}

impl Service for Echo {
    type ShardMessage = ();
    type Record = ();

    fn receive(&mut self, now: Now, arrival: &Arrival, bytes: &[u8], out: &mut Outbox) {
        let start = out.start();
        out.bytes.extend_from_slice(bytes);
        out.send(arrival.reply(), start..out.bytes.len(), 1);
        self.due.get_or_insert(now.mono + 3);
    }

    fn poll(&mut self, _: Now, _: &mut Outbox) {
        self.due = None;
    }

    fn deadline(&mut self) -> Option<u64> {
        self.due
    }

    fn answered(&mut self, _: Now, _: (), _: &mut Outbox) {}
    fn failed(&mut self, _: Now, _: u64, _: &mut Outbox) {}
    fn closed(&mut self, _: Now, _: Flow, _: &mut Outbox) {}
    fn export(&mut self, _: Now, _: u8) -> Vec<()> {
        Vec::new()
    }
    fn import(&mut self, _: Now, _: (), _: &mut Outbox) {}
}

fn start(transport: Transport, shards: usize) -> Node<Echo> {
    let settings = NetSettings {
        shards: Shards::Fixed(shards),
        ring: 64,
        udp: UdpSettings { kernel_steering: false, ..UdpSettings::default() },
        ..NetSettings::default()
    };
    let listener = Listener::new(transport, SocketAddr::from(([127, 0, 0, 1], 0)));
    Net::bind(settings, vec![listener]).unwrap().spawn(|_, _| Echo { due: None }).unwrap()
}

/// Returns the number of allocations of the whole process while `exchange` runs, once warm. The result is the least of
/// several runs: a batch that is larger than any before, which depends on the scheduler, enlarges a buffer. An
/// allocation for a message would occur in each run.
fn counted(mut exchange: impl FnMut(usize)) -> u64 {
    (0..3_000).for_each(&mut exchange);
    let mut least = u64::MAX;
    for _ in 0..5 {
        let before = of_process();
        (0..10_000).for_each(&mut exchange);
        least = least.min(of_process() - before);
        if least == 0 {
            break;
        }
    }
    least
}

fn message(i: usize) -> String {
    format!("OPTIONS sip:x SIP/2.0\r\nVia: SIP/2.0/UDP x\r\nCall-ID: {i}@x\r\nContent-Length: 0\r\n\r\n")
}

#[test]
fn nothing_is_allocated_once_warm() {
    let messages: Vec<String> = (0..97).map(message).collect();
    let mut buffer = [0; 4_096];
    for shards in [1, 3] {
        let node = start(Transport::Udp, shards);
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(node.handle().addresses()[0]).unwrap();
        let count = counted(|i| {
            // Several messages are sent together, so that batches have more than one message.
            for k in 0..5 {
                socket.send(messages[(i + k) % messages.len()].as_bytes()).unwrap();
            }
            for _ in 0..5 {
                socket.recv(&mut buffer).unwrap();
            }
        });
        let total = node.handle().total();
        assert_eq!(count, 0, "by UDP with {shards} shards: {total:?}");
        assert!(shards == 1 || total.crossed_in > 20_000, "{total:?}");
    }
    let node = start(Transport::Tcp, 1);
    let mut stream = TcpStream::connect(node.handle().addresses()[0]).unwrap();
    stream.set_nodelay(true).unwrap();
    let count = counted(|i| {
        let message = messages[i % messages.len()].as_bytes();
        stream.write_all(message).unwrap();
        stream.read_exact(&mut buffer[..message.len()]).unwrap();
    });
    assert_eq!(count, 0, "by TCP");
}
