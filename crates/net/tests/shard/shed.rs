//! More messages for another shard than may wait.

use crate::echo::settings;
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use strowger_core::{Arrival, Flow, Now, Outbox, Transport};
use strowger_net::{Listener, Net, NetSettings, Node, Service, UdpSettings};

/// Takes time for each message, then reports it; also reports messages that it could not pass on.
#[derive(Clone, Default)]
pub(crate) struct Slow {
    /// Longest and last wait that the shard has reported, in microseconds.
    waits: Arc<[AtomicU64; 2]>,
    /// Times of the reports of a wait, in milliseconds.
    reports: Arc<Mutex<Vec<u64>>>,
}

impl Service for Slow {
    type ShardMessage = ();
    type Record = ();

    fn receive(&mut self, _: Now, arrival: &Arrival, _: &[u8], out: &mut Outbox) {
        // A service that is slower than its input.
        std::thread::sleep(Duration::from_millis(2));
        say(arrival, b"served", out);
    }

    fn shed(&mut self, _: Now, arrival: &Arrival, bytes: &[u8], out: &mut Outbox) {
        assert!(bytes.starts_with(b"MESSAGE "));
        say(arrival, b"shed", out);
    }

    fn waited(&mut self, now: Now, datagrams: u64, connections: u64) {
        let ([longest, last], wait) = (&*self.waits, datagrams.max(connections));
        longest.fetch_max(wait, Relaxed);
        last.store(wait, Relaxed);
        if wait > 0 {
            self.reports.lock().unwrap().push(now.mono);
        }
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

fn say(to: &Arrival, text: &[u8], out: &mut Outbox) {
    let start = out.start();
    out.bytes.extend_from_slice(text);
    out.send(to.reply(), start..out.bytes.len(), 0);
}

/// A shard that is slower than its input shows the wait of unread datagrams, and that it has caught up.
#[test]
fn the_age_of_the_oldest_unread_datagram_is_known() {
    const COUNT: usize = 400;
    let listener = Listener::new(Transport::Udp, "127.0.0.1:0".parse().unwrap());
    let settings = NetSettings { udp: UdpSettings { batch: 8, ..UdpSettings::default() }, ..settings(1) };
    let slow = Slow::default();
    let waits = slow.waits.clone();
    let [longest, last] = &*waits;
    let node = Net::bind(settings, vec![listener]).unwrap().spawn(move |_, _| slow.clone()).unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(node.handle().addresses()[0]).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    assert_eq!(node.handle().oldest_datagram(0), Duration::ZERO);
    let (mut oldest, mut answer) = (Duration::ZERO, [0; 16]);
    let send = || assert!(socket.send(b"MESSAGE sip:a@b SIP/2.0\r\nCall-ID: 1\r\n\r\n").is_ok());
    let receive = |answer: &mut [u8]| assert!(socket.recv(answer).is_ok(), "each message has one answer");
    // The kernel is asked for time stamps with the first full batch, and provides them a little later.
    for _ in 0..10 {
        (0..COUNT).for_each(|_| send());
        for _ in 0..COUNT {
            receive(&mut answer);
            oldest = oldest.max(node.handle().oldest_datagram(0));
        }
        // 2 ms each.
        if oldest > Duration::from_millis(100) {
            break;
        }
    }
    assert!(oldest > Duration::from_millis(100), "{oldest:?}");
    assert!(Duration::from_micros(longest.load(Relaxed)) >= oldest, "the service is told");
    socket.send(b"MESSAGE sip:a@b SIP/2.0\r\nCall-ID: 1\r\n\r\n").unwrap();
    socket.recv(&mut answer).expect("an answer");
    assert_eq!(node.handle().oldest_datagram(0), Duration::ZERO);
    assert_eq!(last.load(Relaxed), 0);
}

/// Starts a shard that takes 2 ms for each message of a connection. Returns it with the longest and the last wait that it reports.
fn slow_shard() -> (Node<Slow>, Arc<[AtomicU64; 2]>) {
    let slow = Slow::default();
    (shard_of(&slow), slow.waits)
}

fn shard_of(slow: &Slow) -> Node<Slow> {
    let (listener, slow) = (Listener::new(Transport::Tcp, "127.0.0.1:0".parse().unwrap()), slow.clone());
    Net::bind(settings(1), vec![listener]).unwrap().spawn(move |_, _| slow.clone()).unwrap()
}

/// Sends this number of messages over a connection.
fn send(mut connection: &TcpStream, count: usize) {
    connection.write_all(&b"MESSAGE sip:a@b SIP/2.0\r\nCall-ID: 1\r\nContent-Length: 0\r\n\r\n".repeat(count)).unwrap();
}

/// Receives the answers to this number of messages.
fn receive(mut connection: &TcpStream, count: usize) {
    connection.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    connection.read_exact(&mut vec![0; count * b"served".len()]).unwrap();
}

/// Checks that no wait is reported when all messages are served.
fn rests(connection: &TcpStream, waits: &[AtomicU64; 2]) {
    for _ in 0..2 {
        send(connection, 1);
        receive(connection, 1);
    }
    assert_eq!(waits[1].load(Relaxed), 0);
}

#[test]
fn many_connections_wait_for_each_other() {
    const COUNT: usize = 150;
    let (node, waits) = slow_shard();
    let address = node.handle().addresses()[0];
    let connections: Vec<TcpStream> = (0..COUNT).map(|_| TcpStream::connect(address).unwrap()).collect();
    rests(&connections[0], &waits);
    // The probe is woken when half of the connections have been served at most.
    for _ in 0..3 {
        connections.iter().for_each(|connection| send(connection, 1));
        connections.iter().for_each(|connection| receive(connection, 1));
    }
    let longest = waits[0].load(Relaxed);
    assert!(longest >= 50_000, "{longest} us");
    rests(&connections[0], &waits);
}

#[test]
fn a_connection_with_many_messages_waits() {
    let (node, waits) = slow_shard();
    let connection = TcpStream::connect(node.handle().addresses()[0]).unwrap();
    // The kernel is asked for time stamps after the first full turn, and provides them a little later.
    for _ in 0..10 {
        send(&connection, 200);
        receive(&connection, 200);
        if waits[0].load(Relaxed) >= 100_000 {
            break;
        }
    }
    let longest = waits[0].load(Relaxed);
    assert!(longest >= 100_000, "{longest} us");
    rests(&connection, &waits);
}

/// Checks that a service can tell a round of many turns from a standstill of its shard.
#[test]
fn reports_of_a_long_round_follow_each_other_soon() {
    const COUNT: usize = 250;
    let slow = Slow::default();
    let node = shard_of(&slow);
    let address = node.handle().addresses()[0];
    let connections: Vec<TcpStream> = (0..COUNT).map(|_| TcpStream::connect(address).unwrap()).collect();
    let are_close = || {
        slow.reports.lock().unwrap().clear();
        connections.iter().for_each(|connection| send(connection, 1));
        connections.iter().for_each(|connection| receive(connection, 1));
        let reports = slow.reports.lock().unwrap();
        let span = reports.last().zip(reports.first()).map_or(0, |(last, first)| last - first);
        let gap = reports.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
        // A round of about 60 turns takes 120 ms.
        span >= 200 && gap < 110
    };
    // Other programs may take the processor from the shard.
    assert!((0..10).any(|_| are_close()));
}

#[test]
fn a_full_connection_that_has_ended_waits_no_more() {
    let (node, waits) = slow_shard();
    let address = node.handle().addresses()[0];
    let (full, other) = (TcpStream::connect(address).unwrap(), TcpStream::connect(address).unwrap());
    // The kernel provides time stamps a little after the first full turn.
    send(&full, 200);
    for _ in 0..5 {
        receive(&full, 64);
        send(&full, 200);
    }
    let patience = Instant::now() + Duration::from_secs(20);
    while waits[1].load(Relaxed) == 0 {
        assert!(Instant::now() < patience, "the wait is reported");
        std::thread::yield_now();
    }
    // With unread answers: it is reset.
    drop(full);
    rests(&other, &waits);
}

#[test]
fn what_a_full_ring_takes_no_more_is_answered_by_the_shard_that_read_it() {
    const COUNT: usize = 400;
    let listener = Listener::new(Transport::Udp, "127.0.0.1:0".parse().unwrap());
    let settings =
        NetSettings { ring: 2, udp: UdpSettings { kernel_steering: false, ..UdpSettings::default() }, ..settings(2) };
    let node = Net::bind(settings, vec![listener]).unwrap().spawn(|_, _| Slow::default()).unwrap();
    // The datagrams come from several ports, so that both shards read some of them.
    let sockets: Vec<UdpSocket> = (0..8).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
    for n in 0..COUNT {
        let message = format!("MESSAGE sip:a@b SIP/2.0\r\nCall-ID: {n}\r\n\r\n");
        sockets[n % sockets.len()].send_to(message.as_bytes(), node.handle().addresses()[0]).unwrap();
    }
    let (mut served, mut shed) = (0, 0);
    for (i, socket) in sockets.iter().enumerate() {
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        for _ in (i..COUNT).step_by(sockets.len()) {
            let mut answer = [0; 16];
            let length = socket.recv(&mut answer).expect("each message has one answer");
            match &answer[..length] {
                b"served" => served += 1,
                b"shed" => shed += 1,
                other => panic!("{other:?}"),
            }
        }
    }
    let total = node.handle().total();
    assert_eq!(total.crossings_dropped, shed);
    assert!(shed > 0 && served > 0, "{served} served, {shed} shed");
    assert_eq!(total.crossed_in, total.crossed_out);
}

/// An answer goes over the connection of its request, which another shard owns. Whether the ring is full at that moment
/// depends on chance.
#[test]
fn an_answer_that_a_full_ring_does_not_take_has_not_crossed() {
    assert!((0..20).any(|_| lost_answers() > 0));
}

/// Returns the number of answers, of 400 requests, that found a full ring.
fn lost_answers() -> usize {
    const COUNT: usize = 400;
    let listener = Listener::new(Transport::Tcp, "127.0.0.1:0".parse().unwrap());
    let settings = NetSettings { ring: 2, ..settings(2) };
    let node = Net::bind(settings, vec![listener]).unwrap().spawn(|_, _| Slow::default()).unwrap();
    let connect = |_| TcpStream::connect(node.handle().addresses()[0]).unwrap();
    let mut connections: Vec<TcpStream> = (0..8).map(connect).collect();
    for n in 0..COUNT {
        let message = format!("MESSAGE sip:a@b SIP/2.0\r\nCall-ID: {n}\r\nContent-Length: 0\r\n\r\n");
        connections[n % 8].write_all(message.as_bytes()).unwrap();
    }
    connections.iter().for_each(|connection| connection.set_nonblocking(true).unwrap());
    let (mut answers, patience) = (String::new(), Instant::now() + Duration::from_secs(20));
    let lost = loop {
        for connection in &mut connections {
            let mut bytes = Vec::new();
            let _would_block = connection.read_to_end(&mut bytes);
            answers += std::str::from_utf8(&bytes).unwrap();
        }
        let (served, shed) = (answers.matches("served").count(), answers.matches("shed").count());
        // Dropped requests that arrived at the wrong shard are answered.
        let lost = (node.handle().total().crossings_dropped as usize).saturating_sub(shed);
        if served + shed + lost == COUNT {
            break lost;
        }
        assert!(Instant::now() < patience, "{served} served, {shed} shed, {lost} lost");
        // Interval between two checks.
        std::thread::sleep(Duration::from_millis(1));
    };
    let total = node.handle().total();
    assert_eq!(total.crossed_in, total.crossed_out);
    lost
}
