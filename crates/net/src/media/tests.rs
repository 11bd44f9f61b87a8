//! Media threads with real sockets. Each test has a loopback address of its own; the ports are below those that the kernel gives away.

mod recordings;

use super::*;
use std::collections::VecDeque;
use std::net::UdpSocket;
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;
use strowger_media::g711::Law;
use strowger_media::quality::SpeechEncoding;
use strowger_media::rtp::{Numbering, Packet};
use strowger_media::session::{
    LatchedSource, PayloadFormat, PlayedSound, PortPair, SessionEnd, SessionKey, Side, StreamKind, StreamOrder,
    StreamPeer,
};
use strowger_media::sound::Sound;

/// Longest wait for what must come.
const SOON: Duration = Duration::from_secs(10);

/// Media threads, and two shards that a test plays.
struct Bench {
    threads: MediaThreads,
    handles: Vec<MediaHandle>,
    woken: Receiver<usize>,
    events: Vec<VecDeque<SessionEvent>>,
    address: IpAddr,
}

fn settings(host: u8, ports: RangeInclusive<u16>) -> MediaSettings {
    MediaSettings {
        addresses: vec![IpAddr::from([127, 0, 43, host])],
        ports,
        dscp: 46,
        threads: 1,
        most_threads: 1,
        most_pairs: usize::MAX,
        timeout: None,
    }
}

impl Bench {
    fn start(settings: &MediaSettings) -> Self {
        let (waking, woken) = channel();
        let wake = move |shard| {
            // After the test the receiver is gone.
            let _ = waking.send(shard);
        };
        let (threads, handles) = MediaThreads::start(settings, 2, &Entropy::new([7; 32]), wake).expect("they start");
        let events = handles.iter().map(|_| VecDeque::new()).collect();
        Self { threads, handles, woken, events, address: settings.addresses[0] }
    }

    fn order(&mut self, shard: usize, thread: u16, order: SessionOrder) {
        self.handles[shard].order(thread, order).expect("the queue has room");
    }

    /// Waits for the next event of a shard.
    fn event(&mut self, shard: usize) -> SessionEvent {
        loop {
            if let Some(event) = self.events[shard].pop_front() {
                return event;
            }
            let woken = self.woken.recv_timeout(SOON).expect("an event");
            let events = &mut self.events[woken];
            self.handles[woken].take_events(|_, event| events.push_back(event));
        }
    }

    fn lend(&mut self, shard: usize, thread: u16, pairs: u16) -> Vec<PortPair> {
        self.order(shard, thread, SessionOrder::Lend { shard: shard as u16, pairs });
        match self.event(shard) {
            SessionEvent::Lent { shard: borrower, ports } if usize::from(borrower) == shard => ports,
            other => panic!("{other:?}"),
        }
    }

    /// Opens or changes a session, and waits until it is so: orders of a shard are obeyed one after another.
    fn set(&mut self, shard: usize, key: u64, stream: StreamOrder) {
        self.order(shard, 0, SessionOrder::Set { key: SessionKey(key), version: 1, streams: vec![Some(stream)] });
        assert!(self.lend(shard, 0, 0).is_empty());
    }

    fn at(&self, ports: PortPair) -> SocketAddr {
        SocketAddr::new(self.address, ports.rtp)
    }
}

struct Phone {
    socket: UdpSocket,
    numbering: Numbering,
}

impl Phone {
    fn new() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        socket.set_read_timeout(Some(SOON)).expect("a time");
        Self { socket, numbering: Numbering::new(7, 1, 2) }
    }

    fn address(&self) -> SocketAddr {
        self.socket.local_addr().expect("it is bound")
    }

    fn send(&mut self, to: SocketAddr, sound: &[u8]) {
        let mut datagram = Vec::new();
        self.numbering.next(0, 160).write(&mut datagram);
        datagram.extend(sound);
        self.socket.send_to(&datagram, to).expect("it is sent");
    }

    /// Returns the payload type, the sound and the source of the next packet.
    fn hear(&self) -> (u8, Vec<u8>, SocketAddr) {
        let mut bytes = [0; 1_500];
        let (length, from) = self.socket.recv_from(&mut bytes).expect("a packet");
        let packet = Packet::read(&bytes[..length]).expect("it is RTP");
        (packet.header.payload_type, packet.payload.to_vec(), from)
    }

    fn peer(&self, ports: PortPair, payload_type: u8, other: u8) -> StreamPeer {
        StreamPeer {
            ports,
            rtp: Some(self.address()),
            rtcp: None,
            behind_nat: None,
            formats: vec![PayloadFormat {
                payload_type,
                other: Some(other),
                clock_rate: 8_000,
                is_event: false,
                encoding: SpeechEncoding::G711,
            }],
            sends: true,
            receives: true,
            may_send_first: true,
            heard: None,
        }
    }
}

/// Returns a relay between two phones: the first one calls its format 0, the second one 8.
fn relay(one: (&Phone, PortPair), other: (&Phone, PortPair)) -> StreamOrder {
    StreamOrder { kind: StreamKind::Relay, near: one.0.peer(one.1, 0, 8), far: Some(other.0.peer(other.1, 8, 0)) }
}

fn echo(phone: &Phone, ports: PortPair) -> StreamOrder {
    StreamOrder { kind: StreamKind::Echo, near: phone.peer(ports, 0, 0), far: None }
}

#[test]
fn a_sound_is_played_at_its_pace_until_its_end() {
    let mut bench = Bench::start(&settings(16, 20_000..=20_003));
    let (phone, ports) = (Phone::new(), bench.lend(0, 0, 1)[0]);
    let sound = Arc::new(Sound::new((0..8_000).map(|sample| 4 * sample)));
    let played = PlayedSound { sound: sound.clone(), payload_type: 8, law: Law::A, packet_time: 20, repeats: false };
    let (kind, near) = (StreamKind::Playback(played), phone.peer(ports, 8, 8));
    let began = Instant::now();
    bench.set(0, 1, StreamOrder { kind, near, far: None });
    let mut heard = Vec::new();
    for _ in 0..50 {
        let (payload_type, payload, from) = phone.hear();
        assert_eq!((payload_type, from), (8, bench.at(ports)));
        heard.extend(payload);
    }
    // From the first packet to the last one are 49 packet times.
    assert!(began.elapsed() >= Duration::from_millis(980), "{:?}", began.elapsed());
    let mut whole = Vec::new();
    sound.write(Law::A, 0, 8_000, false, &mut whole);
    assert!(heard == whole, "{} bytes", heard.len());
    assert_eq!(bench.event(0), SessionEvent::Played { key: SessionKey(1), stream: 0 });
}

#[test]
fn packets_are_echoed_and_relayed() {
    let mut bench = Bench::start(&settings(1, 20_000..=20_019));
    let (mut alone, mut caller, callee, mut stranger) = (Phone::new(), Phone::new(), Phone::new(), Phone::new());
    let own = bench.lend(0, 0, 1)[0];
    let two = bench.lend(1, 0, 2);
    bench.set(0, 1, echo(&alone, own));
    bench.set(1, 2, relay((&caller, two[0]), (&callee, two[1])));

    let (echoes, at_caller, at_callee) = (bench.at(own), bench.at(two[0]), bench.at(two[1]));
    alone.send(echoes, b"hello");
    assert_eq!(alone.hear(), (0, b"hello".to_vec(), echoes));
    stranger.send(at_caller, b"noise");
    for sound in [b"one", b"two"] {
        caller.send(at_caller, sound);
        assert_eq!(callee.hear(), (8, sound.to_vec(), at_callee));
    }
    let heard = |key, from: &Phone| SessionEvent::Heard {
        key: SessionKey(key),
        stream: 0,
        side: Side::Near,
        source: LatchedSource { described: from.address(), from: from.address(), is_symmetric: true },
    };
    assert_eq!((bench.event(0), bench.event(1)), (heard(1, &alone), heard(2, &caller)));

    bench.order(1, 0, SessionOrder::Report { key: SessionKey(2) });
    let SessionEvent::Reported { key: SessionKey(2), streams: so_far } = bench.event(1) else { panic!("no report") };
    bench.order(1, 0, SessionOrder::Close { key: SessionKey(2) });
    let SessionEvent::Closed { key: SessionKey(2), streams } = bench.event(1) else { panic!("not closed") };
    let [(near, Some(far))] = &streams[..] else { panic!("{streams:?}") };
    assert_eq!((near.figures.packets, near.dropped, near.sent, far.sent), (2, 1, 0, 2));
    assert_eq!(so_far, streams, "no packet has come since");
    bench.order(1, 0, SessionOrder::Report { key: SessionKey(2) });
    assert_eq!(bench.event(1), SessionEvent::Reported { key: SessionKey(2), streams: Vec::new() });
    let figures = bench.threads.total();
    assert_eq!((figures.sessions, figures.received, figures.sent, figures.unsent), (1, 4, 3, 0));
    assert_eq!((figures.used, figures.lent, figures.free, figures.threads), (1, 2, 7, 1));
    // Headers of 12 bytes, and the sound.
    assert_eq!((figures.received_bytes, figures.sent_bytes), (4 * 12 + 16, 3 * 12 + 11));
    // The packet from another source, and the callee that said nothing.
    assert_eq!((figures.dropped_source, figures.unheard), (1, 1));

    // The ports have another session now, and packets in between are of neither.
    caller.send(at_caller, b"late");
    bench.set(1, 3, echo(&caller, two[0]));
    caller.send(at_caller, b"again");
    assert_eq!(caller.hear(), (0, b"again".to_vec(), at_caller));
    bench.order(1, 0, SessionOrder::Close { key: SessionKey(9) });
    assert_eq!(bench.event(1), heard(3, &caller));
    assert_eq!(bench.event(1), SessionEvent::Closed { key: SessionKey(9), streams: Vec::new() });
    // The other source got nothing.
    stranger.socket.set_nonblocking(true).expect("it is a socket");
    assert!(stranger.socket.recv(&mut [0; 100]).is_err());
}

#[test]
fn ports_are_lent_until_none_is_left() {
    let mut bench = Bench::start(&settings(2, 19_999..=20_008));
    assert_eq!(settings(2, 19_999..=20_008).capacity(), 4);
    // Another program has one.
    let taken = UdpSocket::bind("127.0.43.2:20003").expect("it is free");
    let lent = bench.lend(0, 0, 9);
    assert_eq!(lent.iter().map(|ports| ports.rtp).collect::<Vec<_>>(), [20_000, 20_004, 20_006]);
    assert!(bench.lend(1, 0, 1).is_empty());
    // They are this server's alone.
    assert!(UdpSocket::bind("127.0.43.2:20004").is_err() && UdpSocket::bind("127.0.43.2:20005").is_err());

    bench.order(0, 0, SessionOrder::Return(vec![lent[1]]));
    assert!(bench.lend(0, 0, 0).is_empty());
    assert_eq!(bench.lend(1, 0, 2), [lent[1]]);
    drop(taken);
    assert_eq!(bench.lend(1, 0, 2), [PortPair { thread: 0, address: 0, rtp: 20_002 }]);
    // A pair that is not lent is no pair to return.
    bench.order(0, 0, SessionOrder::Return(vec![PortPair { rtp: 20_001, ..lent[0] }, PortPair { rtp: 3, ..lent[0] }]));
    assert!(bench.lend(0, 0, 1).is_empty());
    assert_eq!(bench.threads.total().lent, 4);
}

#[test]
fn a_large_order_for_ports_has_one_answer() {
    let mut bench = Bench::start(&settings(10, 20_000..=20_199));
    // Two orders at once: each is answered with its own ports.
    bench.order(1, 0, SessionOrder::Lend { shard: 1, pairs: 30 });
    assert_eq!(bench.lend(0, 0, 50).len(), 50);
    let SessionEvent::Lent { shard: 1, ports } = bench.event(1) else { panic!("no ports") };
    assert_eq!(ports.len(), 30);
    // The rest of the range.
    assert_eq!((bench.lend(0, 0, 50).len(), bench.threads.total().lent), (20, 100));
}

#[test]
fn threads_and_addresses_share_the_ports() {
    let mut settings = MediaSettings { threads: 2, ..settings(3, 20_000..=20_007) };
    settings.addresses.push(IpAddr::from([127, 0, 43, 4]));
    let mut bench = Bench::start(&settings);
    assert_eq!((bench.handles[0].threads(), bench.handles[1].shard()), (2, 1));
    let pair = |thread, address, rtp| PortPair { thread, address, rtp };
    let first = bench.lend(0, 0, 3);
    assert_eq!(first, [pair(0, 0, 20_000), pair(0, 1, 20_000), pair(0, 0, 20_002)]);
    // Those that the first thread has not bound.
    let rest = [(1, 20_002), (0, 20_004), (1, 20_004), (0, 20_006), (1, 20_006)];
    let mut lent = bench.lend(1, 1, 9);
    lent.sort_by_key(|ports| (ports.rtp, ports.address));
    let mut expected = rest.map(|(address, rtp)| pair(1, address, rtp));
    expected.sort_by_key(|ports| (ports.rtp, ports.address));
    assert_eq!(lent, expected);
    assert_eq!((bench.threads.total().free, bench.threads.total().lent), (0, 8));
    // The other thread may bind a pair that is given back.
    bench.order(0, 0, SessionOrder::Return(first));
    assert!(bench.lend(0, 0, 0).is_empty());
    assert_eq!(bench.lend(1, 1, 1).len(), 1);
    let lend = SessionOrder::Lend { shard: 0, pairs: 1 };
    assert_eq!(bench.handles[0].order(2, lend.clone()), Err(lend));
    let foreign = MediaSettings { addresses: vec![IpAddr::from([192, 0, 2, 1])], ..settings };
    assert!(MediaThreads::start(&foreign, 1, &Entropy::new([7; 32]), |_| ()).is_err());
}

#[test]
fn ports_of_the_process_before_are_claimed_together() {
    let mut bench = Bench::start(&settings(15, 20_000..=20_009));
    let pair = |rtp| PortPair { thread: 0, address: 0, rtp };
    bench.threads.reserve([20_000, 20_002, 20_004, 20_006].map(pair));
    assert_eq!(bench.lend(0, 0, 9), [pair(20_008)], "the others are reserved");
    let mut claim = |key, ports: [u16; 2]| {
        let (key, ports) = (SessionKey(key), ports.map(pair).to_vec());
        bench.order(0, 0, SessionOrder::Claim { key, ports: ports.clone() });
        let SessionEvent::Claimed { key: of, ports: answered, is_bound } = bench.event(0) else { panic!("no answer") };
        assert_eq!((of, answered), (key, ports));
        is_bound
    };
    assert!(claim(1, [20_000, 20_002]));
    assert!(!claim(2, [20_000, 20_006]), "another session has one");
    let foreign = UdpSocket::bind("127.0.43.15:20005").expect("nobody has it");
    assert!(!claim(3, [20_006, 20_004]));
    drop(foreign);
    // Neither bound nor reserved any more.
    assert_eq!(bench.lend(0, 0, 9).len(), 2);
    assert_eq!(bench.threads.total().lent, 5);
}

#[test]
fn ports_leave_descriptors_to_others() {
    let mut bench = Bench::start(&MediaSettings { most_pairs: 3, ..settings(13, 20_000..=20_019) });
    let lent = bench.lend(0, 0, 5);
    assert_eq!((lent.len(), bench.lend(1, 0, 1).len(), bench.threads.total().free), (3, 0, 0));
    bench.order(0, 0, SessionOrder::Return(lent));
    assert!(bench.lend(0, 0, 0).is_empty());
    assert_eq!(bench.lend(1, 0, 5).len(), 3);
}

#[test]
fn a_further_thread_serves_new_sessions() {
    let mut bench = Bench::start(&MediaSettings { most_threads: 2, ..settings(14, 20_000..=20_019) });
    let mut phone = Phone::new();
    let ports = bench.lend(0, 0, 1)[0];
    bench.set(0, 1, echo(&phone, ports));
    // The thread is busy for three seconds.
    let (mut started, begun) = (Vec::new(), clock::micros());
    bench.threads.running().measured = begun;
    for second in 1..=4_u64 {
        bench.threads.running().entries[0].counters.busy.set(second * 900_000);
        let load = bench.threads.balance_at(begun + second * 1_000_000).expect("it can be started");
        started.extend(load.map(|threads| (second, threads)));
    }
    assert_eq!((started, bench.handles[0].threads(), bench.handles[0].preferred()), (vec![(3, 2)], 2, 1));
    // The session keeps its thread; the next one has the other.
    phone.send(bench.at(ports), b"still");
    assert_eq!(phone.hear().1, b"still");
    assert!(matches!(bench.event(0), SessionEvent::Heard { key: SessionKey(1), .. }));
    let mut other = Phone::new();
    let next = bench.lend(0, 1, 1)[0];
    assert_eq!(next.thread, 1);
    let order = SessionOrder::Set { key: SessionKey(2), version: 1, streams: vec![Some(echo(&other, next))] };
    bench.order(0, 1, order);
    assert!(bench.lend(0, 1, 0).is_empty());
    other.send(bench.at(next), b"hello");
    assert_eq!(other.hear().1, b"hello");
    assert!(bench.threads.are_running() && bench.threads.total().threads == 2);
}

#[test]
fn a_late_order_of_the_shard_before_is_ignored() {
    let mut bench = Bench::start(&settings(20, 20_000..=20_019));
    let (before, mut phone) = (Phone::new(), Phone::new());
    let ports = bench.lend(0, 0, 1)[0];
    for (shard, version, peer) in [(0, 1, &before), (1, 3, &phone), (0, 2, &before)] {
        let streams = vec![Some(echo(peer, ports))];
        bench.order(shard, 0, SessionOrder::Set { key: SessionKey(1), version, streams });
        assert!(bench.lend(shard, 0, 0).is_empty());
    }
    phone.send(bench.at(ports), b"hello");
    assert_eq!(phone.hear().1, b"hello");
    assert!(matches!(bench.event(1), SessionEvent::Heard { key: SessionKey(1), .. }));
}

#[test]
fn a_peer_that_is_gone_disturbs_no_other() {
    let mut bench = Bench::start(&settings(5, 20_000..=20_019));
    let (mut alone, mut caller, callee) = (Phone::new(), Phone::new(), Phone::new());
    let lent = bench.lend(0, 0, 3);
    bench.set(0, 1, echo(&alone, lent[0]));
    bench.set(0, 2, relay((&caller, lent[1]), (&callee, lent[2])));
    let gone = callee.address();
    drop(callee);
    for _ in 0..50 {
        caller.send(bench.at(lent[1]), b"anyone?");
        alone.send(bench.at(lent[0]), b"hello");
        assert_eq!(alone.hear().1, b"hello");
    }
    // The peer comes back.
    let callee = UdpSocket::bind(gone).expect("the port is free again");
    callee.set_read_timeout(Some(SOON)).expect("a time");
    caller.send(bench.at(lent[1]), b"anyone?");
    let mut bytes = [0; 100];
    let length = callee.recv(&mut bytes).expect("a packet");
    assert!(bytes[..length].ends_with(b"anyone?") && bench.threads.are_running());
}

#[test]
fn a_packet_that_the_kernel_refuses_is_counted() {
    let mut bench = Bench::start(&settings(11, 20_000..=20_019));
    let (mut caller, callee) = (Phone::new(), Phone::new());
    let lent = bench.lend(0, 0, 2);
    let mut order = relay((&caller, lent[0]), (&callee, lent[1]));
    // A broadcast, which this socket may not send.
    order.far.as_mut().expect("a far side").rtp = Some(SocketAddr::from(([255, 255, 255, 255], 9)));
    bench.set(0, 1, order);
    caller.send(bench.at(lent[0]), b"anyone?");
    assert!(matches!(bench.event(0), SessionEvent::Heard { .. }));
    let figures = bench.threads.total();
    assert_eq!((figures.received, figures.sent, figures.unsent), (1, 0, 1));
}

#[test]
fn a_thread_that_ends_is_stuck() {
    let bench = Bench::start(&settings(12, 20_000..=20_001));
    assert_eq!(bench.threads.stuck(SOON), None);
    bench.threads.running().entries[0].has_ended.store(true, Release);
    assert_eq!(bench.threads.stuck(SOON), Some(0));
}

#[test]
fn a_silent_peer_is_told_once() {
    let timeout = Some(Duration::from_millis(50));
    let mut bench = Bench::start(&MediaSettings { timeout, ..settings(6, 20_000..=20_003) });
    let phone = Phone::new();
    let ports = bench.lend(0, 0, 1)[0];
    let before = Instant::now();
    bench.order(0, 0, SessionOrder::Set { key: SessionKey(1), version: 1, streams: vec![Some(echo(&phone, ports))] });
    let silent = SessionEvent::Silent { key: SessionKey(1), end: SessionEnd::Silence(Side::Near) };
    assert_eq!(bench.event(0), silent);
    assert!(before.elapsed() >= Duration::from_millis(50));
    bench.order(0, 0, SessionOrder::Close { key: SessionKey(1) });
    assert!(matches!(bench.event(0), SessionEvent::Closed { key: SessionKey(1), .. }));
}

#[test]
fn a_thread_that_has_ended_takes_no_order() {
    let Bench { threads, mut handles, .. } = Bench::start(&settings(8, 20_000..=20_001));
    assert_eq!((threads.stuck(SOON), threads.are_running()), (None, true));
    drop(threads);
    let order = SessionOrder::Close { key: SessionKey(1) };
    assert_eq!(handles[0].order(0, order.clone()), Err(order));
}

#[test]
fn many_orders_and_events_pass_full_rings() {
    const SESSIONS: u64 = 3_000;
    let mut bench = Bench::start(&settings(7, 20_000..=20_001));
    let handle = &mut bench.handles[0];
    for key in 0..SESSIONS {
        // The events are not taken yet, so both rings fill up.
        handle.order(0, SessionOrder::Close { key: SessionKey(key) }).expect("an end is always taken");
    }
    let (mut more, begun) = (0, Instant::now());
    while bench.threads.total().events_waiting == 0 {
        // An order passes those that wait on as well.
        handle.order(0, SessionOrder::Close { key: SessionKey(SESSIONS) }).expect("an end is always taken");
        assert!(begun.elapsed() < SOON);
        more += 1;
        std::thread::yield_now();
    }
    for key in 0..SESSIONS {
        assert_eq!(bench.event(0), SessionEvent::Closed { key: SessionKey(key), streams: Vec::new() });
    }
    for _ in 0..more {
        assert!(matches!(bench.event(0), SessionEvent::Closed { key: SessionKey(SESSIONS), .. }));
    }
    assert!(bench.lend(0, 0, 0).is_empty());
    assert_eq!(bench.threads.total().events_waiting, 0);
}
