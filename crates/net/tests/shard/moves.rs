//! Calls that reach their shard by any socket, and shards that start and end under load.

use crate::echo::settings;
use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};
use strowger_core::{Arrival, Flow, ListenerId, Now, Outbox, Transport};
use strowger_message::scan;
use strowger_net::{Handle, Listener, Net, NetSettings, Node, Service, UdpSettings};

/// Answers each message with its number, the shard, and whether it follows the last one of its call.
pub(crate) struct Ledger {
    index: usize,
    handle: Handle<Self>,
    calls: HashMap<String, u32>,
}

impl Service for Ledger {
    type ShardMessage = (String, Arrival);
    type Record = (String, u32);

    fn receive(&mut self, _: Now, arrival: &Arrival, bytes: &[u8], out: &mut Outbox) {
        let call = String::from_utf8(bytes[scan::call_id(bytes).unwrap()].to_vec()).unwrap();
        let text = std::str::from_utf8(bytes).unwrap();
        if text.starts_with("ASK ") {
            let (handle, arrival) = (self.handle.clone(), *arrival);
            self.handle.services().spawn(async move {
                // A look-up that takes time.
                tokio::time::sleep(Duration::from_millis(5)).await;
                handle.deliver(handle.bucket(call.as_bytes()), (call, arrival));
            });
            return;
        }
        let number: u32 = text.split(' ').nth(1).unwrap().parse().unwrap();
        let last = self.calls.entry(call.clone()).or_default();
        let verdict = if number == *last + 1 { "next" } else { "GAP" };
        *last = number;
        self.say(arrival, &format!("{call} {number} {verdict} {}", self.index), out);
    }

    fn answered(&mut self, _: Now, (call, arrival): Self::ShardMessage, out: &mut Outbox) {
        let known = if self.calls.contains_key(&call) { "known" } else { "FOREIGN" };
        self.say(&arrival, &format!("{call} 0 {known} {}", self.index), out);
    }

    fn export(&mut self, _: Now, bucket: u8) -> Vec<Self::Record> {
        let handle = self.handle.clone();
        self.calls.extract_if(|call, _| handle.bucket(call.as_bytes()) == bucket).collect()
    }

    fn import(&mut self, _: Now, (call, last): Self::Record, _: &mut Outbox) {
        assert!(self.calls.insert(call, last).is_none(), "the call was here before its bucket");
    }

    fn poll(&mut self, _: Now, _: &mut Outbox) {}
    fn deadline(&mut self) -> Option<u64> {
        None
    }
    fn failed(&mut self, _: Now, _: u64, _: &mut Outbox) {}
    fn closed(&mut self, _: Now, _: Flow, _: &mut Outbox) {}
}

impl Ledger {
    fn say(&self, to: &Arrival, text: &str, out: &mut Outbox) {
        assert_eq!(to.listener, ListenerId(0));
        let start = out.start();
        out.bytes.extend_from_slice(text.as_bytes());
        out.send(to.reply(), start..out.bytes.len(), 0);
    }
}

fn start(settings: NetSettings) -> Node<Ledger> {
    let listener = Listener::new(Transport::Udp, "127.0.0.1:0".parse().unwrap());
    spawn(Net::bind(settings, vec![listener]).unwrap())
}

pub(crate) fn spawn(net: Net) -> Node<Ledger> {
    net.spawn(|index, handle| Ledger { index, handle, calls: HashMap::new() }).unwrap()
}

pub(crate) fn client(server: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(server).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    socket
}

pub(crate) fn settled(handle: &Handle<Ledger>) {
    let patience = Instant::now() + Duration::from_secs(10);
    while !handle.is_settled() {
        assert!(Instant::now() < patience, "buckets rest");
        // Interval between two checks.
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub(crate) fn message(call: &str, number: u32) -> String {
    format!("MESSAGE {number} SIP/2.0\r\nVia: SIP/2.0/UDP 127.0.0.1;branch=z9hG4bK{number}\r\nCall-ID: {call}\r\n\r\n")
}

#[test]
fn one_call_from_many_ports_meets_in_one_shard() {
    for steering in [true, false] {
        let node = start(NetSettings {
            udp: UdpSettings { kernel_steering: steering, ..UdpSettings::default() },
            ..settings(4)
        });
        let address = node.handle().addresses()[0];
        settled(node.handle());
        let mut shards = [0; 4];
        for call in 0..80 {
            let mut owner = None;
            for number in 1..=6 {
                let socket = client(address);
                socket.send(message(&format!("call-{call}@host"), number).as_bytes()).unwrap();
                let mut buffer = [0; 500];
                let n = socket.recv(&mut buffer).unwrap();
                let text = std::str::from_utf8(&buffer[..n]).unwrap();
                let (rest, shard) = text.rsplit_once(' ').unwrap();
                assert_eq!(rest, format!("call-{call}@host {number} next"));
                assert_eq!(*owner.get_or_insert_with(|| shard.to_owned()), shard);
            }
            shards[owner.unwrap().parse::<usize>().unwrap()] += 1;
        }
        // Each shard gets twenty calls on average; one of four shards has fewer than three by chance in one run of
        // three million.
        assert!(shards.iter().all(|&n| n > 2), "{shards:?}");
        let crossed = node.handle().total().crossed_in;
        if steering {
            assert_eq!(crossed, 0, "the kernel knew the owner of each");
        } else {
            assert!((200..480).contains(&crossed), "three of four land wrong, {crossed} did");
        }
    }
}

#[test]
fn shards_come_and_go_under_load() {
    for steering in [true, false] {
        let node = start(NetSettings {
            udp: UdpSettings { kernel_steering: steering, ..UdpSettings::default() },
            ..settings(4)
        });
        let handle = node.handle().clone();
        let address = handle.addresses()[0];
        // The messages of 200 ms fit into a client's socket, so the client may wait that long for the processor.
        const CALLS: u32 = 25;
        const MESSAGES: u32 = 120;
        let clients: Vec<_> = (0..3)
            .map(|c| {
                std::thread::spawn(move || {
                    let socket = client(address);
                    let reader = socket.try_clone().unwrap();
                    let reader = std::thread::spawn(move || {
                        let mut last: HashMap<String, u32> = HashMap::new();
                        let mut buffer = [0; 500];
                        for i in 0..CALLS * MESSAGES {
                            let n = reader.recv(&mut buffer).unwrap_or_else(|e| panic!("after {i} answers: {e}"));
                            let text = std::str::from_utf8(&buffer[..n]).unwrap();
                            let part: Vec<&str> = text.split(' ').collect();
                            let last = last.entry(part[0].to_owned()).or_default();
                            assert_eq!((part[1].parse().unwrap(), part[2]), (*last + 1, "next"), "{text}");
                            *last += 1;
                        }
                    });
                    for number in 1..=MESSAGES {
                        for call in 0..CALLS {
                            socket.send(message(&format!("{c}-{call}"), number).as_bytes()).unwrap();
                        }
                        // At fifty rounds a second.
                        std::thread::sleep(Duration::from_millis(20));
                    }
                    reader.join().unwrap();
                })
            })
            .collect();
        for shards in [1, 4, 2, 3, 1, 4, 1] {
            // Messages arrive meanwhile.
            std::thread::sleep(Duration::from_millis(300));
            handle.set_shards(shards).unwrap();
        }
        for client in clients {
            client.join().unwrap();
        }
        settled(&handle);
        let total = handle.total();
        assert_eq!(total.datagrams_in, (3 * CALLS * MESSAGES) as u64);
        assert_eq!((total.crossings_dropped, total.held, total.buckets), (0, 0, 256));
        assert_eq!(handle.counters(0).buckets, 256);
        assert!(total.buckets_moved > 1_000, "{total:?}");
    }
}

#[test]
fn answers_follow_their_bucket() {
    let node = start(settings(4));
    let socket = client(node.handle().addresses()[0]);
    let mut buffer = [0; 500];
    for call in 0..40 {
        let name = format!("call-{call}");
        socket.send(message(&name, 1).as_bytes()).unwrap();
        socket.recv(&mut buffer).unwrap();
        socket.send(format!("ASK x\r\nCall-ID: {name}\r\n\r\n").as_bytes()).unwrap();
        // The bucket moves while the answer is pending.
        node.handle().set_shards(1 + call % 4).unwrap();
        let n = socket.recv(&mut buffer).unwrap();
        let text = std::str::from_utf8(&buffer[..n]).unwrap();
        assert!(text.starts_with(&format!("{name} 0 known ")), "{text}");
    }
}
