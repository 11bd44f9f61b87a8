//! Connections whose messages cannot be taken: what is not read waits with the kernel and the peer, and nothing is lost.

use crate::echo::{bounds, settings};
use crate::relay::{listener, message};
use crate::streams::{connect, counted, expect};
use socket2::SockRef;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};
use strowger_core::Transport::{Tcp, Ws};
use strowger_core::{Arrival, Flow, Now, Outbox};
use strowger_net::{Bounds, Net, NetSettings, Node, Service};

const V4: &str = "127.0.0.1:0";

/// Counts messages, and takes time for each.
struct Counting {
    /// Messages since the last round.
    since: usize,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    /// Time for a message in microseconds.
    time: u64,
    received: AtomicUsize,
    shed: AtomicUsize,
    /// Maximum number of messages between two rounds.
    most: AtomicUsize,
    /// Longest reported wait of connections in microseconds.
    wait: AtomicU64,
    is_full: AtomicBool,
    is_overloaded: AtomicBool,
}

impl Service for Counting {
    type ShardMessage = ();
    type Record = ();

    fn receive(&mut self, _: Now, _: &Arrival, _: &[u8], _: &mut Outbox) {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_micros(self.state.time) {
            std::hint::spin_loop();
        }
        self.since += 1;
        self.state.received.fetch_add(1, Relaxed);
    }

    fn shed(&mut self, _: Now, _: &Arrival, _: &[u8], _: &mut Outbox) {
        self.state.shed.fetch_add(1, Relaxed);
    }

    fn end(&mut self, _: Now, _: &mut Outbox) {
        self.state.most.fetch_max(std::mem::take(&mut self.since), Relaxed);
    }

    fn waited(&mut self, _: Now, _: u64, connections: u64) {
        self.state.wait.fetch_max(connections, Relaxed);
    }

    fn has_room(&self, _: SocketAddr) -> bool {
        !self.state.is_full.load(Relaxed)
    }

    fn is_overloaded(&self) -> bool {
        self.state.is_overloaded.load(Relaxed)
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

/// Starts shards with one listener for each transport, TCP and WebSocket.
fn start(settings: NetSettings, state: State) -> (Node<Counting>, Arc<State>) {
    let state = Arc::new(state);
    let theirs = state.clone();
    let make = move |_, _| Counting { since: 0, state: theirs.clone() };
    let listeners = vec![listener(Tcp, V4), listener(Ws, V4)];
    (Net::bind(settings, listeners).unwrap().spawn(make).unwrap(), state)
}

/// Waits until this number of messages has been received.
fn received(state: &State, count: usize) {
    let patience = Instant::now() + Duration::from_secs(20);
    while state.received.load(Relaxed) < count {
        assert!(Instant::now() < patience, "{} of {count}", state.received.load(Relaxed));
        // Interval between two looks.
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(state.received.load(Relaxed), count);
}

/// Opens a WebSocket.
fn web(address: SocketAddr) -> TcpStream {
    let mut stream = connect(address);
    let request = b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\
                    Sec-WebSocket-Protocol: sip\r\n\r\n";
    stream.write_all(request).unwrap();
    let (mut answer, mut byte) = (Vec::new(), [0]);
    while !answer.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        answer.push(byte[0]);
    }
    stream
}

/// Returns a frame with this message: final, text, masked with zeroes (RFC 6455 section 5.2).
fn frame(message: &str) -> Vec<u8> {
    let mut frame = vec![0x81, 0x80 | u8::try_from(message.len()).unwrap(), 0, 0, 0, 0];
    frame.extend_from_slice(message.as_bytes());
    frame
}

/// Each shard is slower than its input, and takes two messages of the other one.
#[test]
fn messages_for_a_late_shard_wait_at_their_connections() {
    const EACH: usize = 60;
    let settings = NetSettings { ring: 2, ..settings(2) };
    let (node, state) = start(settings, State { time: 500, ..State::default() });
    let [tcp, ws] = node.handle().addresses() else { panic!("two listeners") };
    let mut connections: Vec<TcpStream> = (0..8).map(|_| connect(*tcp)).collect();
    connections.extend((0..8).map(|_| web(*ws)));
    for (n, stream) in connections.iter_mut().enumerate() {
        for call in 0..EACH {
            let text = message("MESSAGE", &format!("{n}-{call}"), 0);
            let bytes = if n < 8 { text.into_bytes() } else { frame(&text) };
            stream.write_all(&bytes).unwrap();
        }
        // Everything before the end is seen.
        stream.shutdown(Shutdown::Write).unwrap();
    }
    received(&state, 16 * EACH);
    assert_eq!(state.shed.load(Relaxed), 0);
    counted_of(&node, |total| u64::from(total.pauses > 0), 1);
    let total = node.handle().total();
    assert_eq!((total.crossings_dropped, total.frames_broken), (0, 0));
    assert!(total.crossed_in > 0);
}

/// Waits until a value of the counters is the expected one.
fn counted_of(node: &Node<Counting>, value: impl Fn(strowger_net::Snapshot) -> u64, expected: u64) {
    let patience = Instant::now() + Duration::from_secs(5);
    while value(node.handle().total()) != expected {
        assert!(Instant::now() < patience, "{:?}", node.handle().total());
        // Interval between two looks.
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The connection is read a little at a time. Neither the time limit of messages nor that of silence ends it.
#[test]
fn a_peer_without_room_is_read_less_and_loses_nothing() {
    const COUNT: usize = 150;
    let soon = Duration::from_millis(200);
    let bounds = Bounds { partial_timeout: soon, idle_timeout: soon, ..bounds() };
    let (node, state) = start(NetSettings { bounds, ..settings(1) }, State::default());
    state.is_full.store(true, Relaxed);
    let many = message("MESSAGE", "many", 0).repeat(COUNT);
    let (mut stream, begun) = (connect(node.handle().addresses()[0]), Instant::now());
    stream.write_all(many.as_bytes()).unwrap();
    // The second half arrives while the first one waits.
    std::thread::sleep(Duration::from_millis(50));
    stream.write_all(many.as_bytes()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    received(&state, 2 * COUNT);
    // Four messages in 20 ms; the rest of all connections ends together.
    assert!(begun.elapsed() > Duration::from_millis(700), "{:?}", begun.elapsed());
    assert!(state.most.load(Relaxed) <= 4, "{} in a round", state.most.load(Relaxed));
    assert_eq!(state.wait.load(Relaxed), 0, "a peer without room is no overload");
    let total = node.handle().total();
    assert_eq!((total.partial_closed, total.idle_closed), (0, 0));
    assert!(total.pauses > 50, "{total:?}");
}

/// Messages that come during a rest do not end it.
#[test]
fn a_peer_without_room_that_sends_on_is_read_no_sooner() {
    const COUNT: usize = 60;
    let (node, state) = start(settings(1), State::default());
    state.is_full.store(true, Relaxed);
    let one = message("MESSAGE", "many", 0);
    let (mut stream, begun) = (connect(node.handle().addresses()[0]), Instant::now());
    stream.write_all(one.repeat(COUNT).as_bytes()).unwrap();
    for _ in 0..COUNT {
        stream.write_all(one.as_bytes()).unwrap();
        // Each comes alone.
        std::thread::sleep(Duration::from_millis(2));
    }
    received(&state, 2 * COUNT);
    // Four messages in 20 ms: 580 ms.
    assert!(begun.elapsed() > Duration::from_millis(450), "{:?}", begun.elapsed());
}

/// As soon as there is room, the rest follows.
#[test]
fn a_connection_is_read_again_when_there_is_room() {
    const COUNT: usize = 2_000;
    let (node, state) = start(settings(1), State::default());
    state.is_full.store(true, Relaxed);
    let mut stream = connect(node.handle().addresses()[0]);
    stream.write_all(message("MESSAGE", "many", 0).repeat(COUNT).as_bytes()).unwrap();
    counted_of(&node, |total| u64::from(total.pauses > 1), 1);
    let begun = Instant::now();
    state.is_full.store(false, Relaxed);
    received(&state, COUNT);
    // Four messages in 20 ms would take ten seconds.
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[test]
fn the_turns_of_connections_are_short_in_an_overload() {
    const COUNT: usize = 2_000;
    let bounds = Bounds { messages_per_turn: 64, ..bounds() };
    let (node, state) = start(NetSettings { bounds, ..settings(1) }, State { time: 10, ..State::default() });
    let mut stream = connect(node.handle().addresses()[0]);
    let many = message("MESSAGE", "many", 0).repeat(COUNT);
    for (is_overloaded, least, most) in [(true, 1, 8), (false, 9, 64)] {
        state.is_overloaded.store(is_overloaded, Relaxed);
        state.most.store(0, Relaxed);
        stream.write_all(many.as_bytes()).unwrap();
        received(&state, COUNT);
        state.received.store(0, Relaxed);
        let found = state.most.load(Relaxed);
        assert!((least..=most).contains(&found), "{found} messages in a turn");
    }
    assert_eq!(node.handle().total().pauses, 0, "an overloaded shard does not wait");
}

/// A trunk sends without pause and reads nothing. Its answers wait; other peers do not.
#[test]
fn a_trunk_that_reads_nothing_delays_no_other_and_loses_nothing() {
    let bounds = Bounds { write_queue: 400_000, ..bounds() };
    let node = crate::relay::start(NetSettings { bounds, ..settings(1) }, vec![listener(Tcp, V4)]);
    let address = node.handle().addresses()[0];
    let mut trunk = connect(address);
    SockRef::from(&trunk).set_recv_buffer_size(4_096).unwrap();
    let mut phones: Vec<TcpStream> = (0..20).map(|_| connect(address)).collect();
    let (large, small) = (message("A", "flood", 2_000), message("A", "phone", 0));
    let mut sent = 0;
    let patience = Instant::now() + Duration::from_secs(20);
    // The buffers of the kernel take some megabytes first.
    while node.handle().total().pauses == 0 {
        assert!(Instant::now() < patience, "{:?}", node.handle().total());
        (0..5).for_each(|_| trunk.write_all(large.as_bytes()).unwrap());
        sent += 5;
    }
    (0..20).for_each(|_| trunk.write_all(large.as_bytes()).unwrap());
    sent += 20;
    for phone in &mut phones {
        let begun = Instant::now();
        phone.write_all(small.as_bytes()).unwrap();
        expect(phone, small.as_bytes());
        assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    }
    assert!(node.handle().total().stream_bytes_waiting <= 400_000);
    for _ in 0..sent {
        expect(&mut trunk, large.as_bytes());
    }
    counted(&node, |total| total.stream_bytes_waiting, 0);
    assert_eq!(node.handle().total().slow_closed, 0);
}
