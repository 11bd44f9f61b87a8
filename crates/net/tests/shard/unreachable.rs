//! Datagrams whose target is unreachable.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};
use strowger_core::{Arrival, Flow, ListenerId, Now, Outbox, Target, Transport};
use strowger_net::{Listener, Net, NetSettings, Node, Service, Shards, UdpSettings};

/// Sends the text of "ADDRESS TEXT" to that address, and reports "INDEX ADDRESS TEXT" of unreachable datagrams to the
/// controller.
struct Thrower {
    index: usize,
    controller: SocketAddr,
}

impl Thrower {
    fn send(address: SocketAddr, bytes: &[u8], out: &mut Outbox) {
        let start = out.start();
        out.bytes.extend_from_slice(bytes);
        let target = Target::new(Transport::Udp, ListenerId(0), address);
        out.send(target, start..out.bytes.len(), 7);
    }
}

impl Service for Thrower {
    type ShardMessage = ();
    type Record = ();

    fn receive(&mut self, _: Now, _: &Arrival, bytes: &[u8], out: &mut Outbox) {
        for line in std::str::from_utf8(bytes).unwrap().lines() {
            let (address, text) = line.split_once(' ').unwrap();
            Self::send(address.parse().unwrap(), text.as_bytes(), out);
        }
    }

    fn unreachable(&mut self, _: Now, to: SocketAddr, quoted: &[u8], out: &mut Outbox) {
        let report = format!("{} {to} {}", self.index, String::from_utf8_lossy(quoted));
        Self::send(self.controller, report.as_bytes(), out);
    }

    fn failed(&mut self, _: Now, token: u64, out: &mut Outbox) {
        Self::send(self.controller, format!("FAILED {token}").as_bytes(), out);
    }

    fn poll(&mut self, _: Now, _: &mut Outbox) {}
    fn deadline(&mut self) -> Option<u64> {
        None
    }
    fn answered(&mut self, _: Now, _: (), _: &mut Outbox) {}
    fn closed(&mut self, _: Now, _: Flow, _: &mut Outbox) {}
    fn export(&mut self, _: Now, _: u8) -> Vec<()> {
        Vec::new()
    }
    fn import(&mut self, _: Now, _: (), _: &mut Outbox) {}
}

fn start(settings: NetSettings, ip: &str) -> (Node<Thrower>, UdpSocket) {
    let controller = UdpSocket::bind((ip, 0)).unwrap();
    controller.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let address = controller.local_addr().unwrap();
    let listener = Listener::new(Transport::Udp, SocketAddr::new(ip.parse().unwrap(), 0));
    let make = move |index, _| Thrower { index, controller: address };
    let node = Net::bind(settings, vec![listener]).unwrap().spawn(make).unwrap();
    controller.connect(node.handle().addresses()[0]).unwrap();
    (node, controller)
}

fn settings(shards: usize) -> NetSettings {
    NetSettings {
        shards: Shards::Fixed(shards),
        udp: UdpSettings { icmp_errors: true, ..UdpSettings::default() },
        ..NetSettings::default()
    }
}

fn receive(controller: &UdpSocket) -> String {
    let mut buffer = [0; 4_000];
    let n = controller.recv(&mut buffer).expect("a word within five seconds");
    String::from_utf8_lossy(&buffer[..n]).into_owned()
}

/// Returns an address at which no program listens.
fn closed(ip: &str) -> SocketAddr {
    UdpSocket::bind((ip, 0)).unwrap().local_addr().unwrap()
}

#[test]
fn what_reached_no_socket_is_reported_and_wakes_a_sleeping_shard() {
    for ip in ["127.0.0.1", "::1"] {
        let (node, controller) = start(settings(1), ip);
        for i in 0..20 {
            let to = closed(ip);
            let begun = Instant::now();
            controller.send(format!("{to} word {i}").as_bytes()).unwrap();
            assert_eq!(receive(&controller), format!("0 {to} word {i}"));
            assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
        }
        // The shard counts after the system call.
        std::thread::sleep(Duration::from_millis(50));
        let total = node.handle().total();
        assert_eq!((total.unreachable, total.receive_errors, total.datagrams_refused), (20, 0, 0));
        // The shard sleeps again.
        let rounds = total.rounds;
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(node.handle().total().rounds, rounds);
    }
}

#[test]
fn others_of_the_same_round_are_not_disturbed() {
    for segment in [false, true] {
        let (node, controller) = start(
            NetSettings {
                udp: UdpSettings { icmp_errors: true, gso: segment, ..UdpSettings::default() },
                ..settings(1)
            },
            "127.0.0.1",
        );
        let alive = UdpSocket::bind("127.0.0.1:0").unwrap();
        alive.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let (alive_at, closed) = (alive.local_addr().unwrap(), closed("127.0.0.1"));
        let text: String = (0..30).map(|i| format!("{closed} gone {i:02}\n{alive_at} here {i:02}\n")).collect();
        for _ in 0..5 {
            controller.send(text.as_bytes()).unwrap();
            let mut gone: Vec<String> = (0..30).map(|_| receive(&controller)).collect();
            gone.sort();
            let all = |word: &str| (0..30).map(|i| format!("{word} {i:02}")).collect::<Vec<_>>();
            assert_eq!(gone, all(&format!("0 {closed} gone")));
            let mut here: Vec<String> = (0..30).map(|_| receive(&alive)).collect();
            here.sort();
            assert_eq!(here, all("here"));
        }
        assert_eq!(node.handle().total().datagrams_refused, 0);
    }
}

#[test]
fn each_datagram_of_a_run_is_reported_once_it_was_repeated() {
    let (_node, controller) = start(
        NetSettings { udp: UdpSettings { icmp_errors: true, gso: true, ..UdpSettings::default() }, ..settings(1) },
        "127.0.0.1",
    );
    let closed = closed("127.0.0.1");
    let text: String = (0..30).map(|i| format!("{closed} gone {i:02}\n")).collect();
    // A report quotes a run once, from its beginning; a service that retransmits unanswered messages gets a report of
    // each.
    controller.send(text.as_bytes()).unwrap();
    let first = receive(&controller);
    assert!(first.starts_with(&format!("0 {closed} gone 00")), "{first}");
    controller.send(text.as_bytes()).unwrap();
    let mut gone: Vec<String> = (0..30).map(|_| receive(&controller)).collect();
    gone.sort();
    gone.dedup();
    let all: Vec<String> = (0..30).map(|i| format!("0 {closed} gone {i:02}")).collect();
    assert_eq!(gone, all);
}

#[test]
fn each_shard_gets_each_report_once() {
    let (node, controller) = start(settings(3), "127.0.0.1");
    for i in 0..10 {
        let to = closed("127.0.0.1");
        controller.send(format!("{to} word {i}").as_bytes()).unwrap();
        let mut report = [receive(&controller), receive(&controller), receive(&controller)];
        report.sort();
        assert_eq!(report, [0, 1, 2].map(|shard| format!("{shard} {to} word {i}")));
    }
    assert_eq!(node.handle().total().unreachable, 10);
}

#[test]
fn where_it_is_off_nothing_is_reported() {
    let (node, controller) = start(
        NetSettings { udp: UdpSettings { icmp_errors: false, ..UdpSettings::default() }, ..settings(1) },
        "127.0.0.1",
    );
    controller.send(format!("{} word", closed("127.0.0.1")).as_bytes()).unwrap();
    controller.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    assert!(controller.recv(&mut [0; 100]).is_err());
    assert_eq!(node.handle().total().unreachable, 0);
}
