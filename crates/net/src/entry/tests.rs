//! Tests of entries.

use super::*;
use crate::connection::Fallback;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use strowger_core::Target;

const LISTENER: ListenerId = ListenerId(3);

fn at(tick: u64) -> Tick {
    Tick::numbered(tick)
}

fn pair() -> (LocalFd, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (LocalFd::from_stream(listener.accept().unwrap().0), peer)
}

fn phase(phase: Phase, now: Tick, spare: &mut Spare) -> Entry {
    let mut entry = Entry::sample(Initiator::Peer);
    entry.role.phase = phase;
    entry.times.last_read = now;
    if phase != Phase::Open {
        entry.cold(spare).since = now;
    }
    entry
}

fn dialling(deadline: Tick, fallbacks: usize, now: Tick, spare: &mut Spare) -> Entry {
    let fallback = |n| Fallback { origin: 0, token: n as u64, message: Box::default() };
    let fallbacks = (0..fallbacks).map(fallback).collect();
    let opening = Opening { fallbacks, ..Opening::until(deadline) };
    Entry::dialling("192.0.2.7:5060".parse().unwrap(), LISTENER, Transport::Tcp, Owner::NONE, opening, now, spare)
}

/// Bounds with a time of its own for each state: idle 100, partial 30, handshake 10, answer 32, close 1 s.
fn bounds() -> Bounds {
    Bounds { idle_timeout: Duration::from_secs(100), ..Bounds::default() }
}

/// Ends the side of the peer, with a response to it that was checked last at a time.
fn half_closed(entry: &mut Entry, cold: &mut Cold, since: Tick, checked_at: Tick) {
    entry.flags.insert(Flags::HALF_CLOSED);
    (cold.since, cold.checked_at) = (since, checked_at);
    cold.unacknowledged = vec![(Target::LOOPBACK, Box::default())];
}

#[test]
fn a_connection_ends_after_the_time_of_its_state() {
    // All begin at tick 500; later events are at ticks 520 and 530.
    let (now, mut spare) = (at(500), Spare::default());
    let check = |state: &str, due: u64, mut entry: Entry, change: fn(&mut Entry, &mut Cold)| {
        let mut cold = entry.cold.take().unwrap_or_default();
        change(&mut entry, &mut cold);
        entry.cold = Some(cold);
        assert_eq!(entry.due(&bounds()), at(due), "{state}");
    };
    let open = || phase(Phase::Open, now, &mut Spare::default());
    check("idle", 1_500, open(), |_, _| ());
    check("the peer has sent bytes", 1_530, open(), |entry, _| entry.times.last_read = at(530));
    check("incomplete message", 820, open(), |entry, cold| {
        (cold.partial, cold.partial_since) = (vec![b'I'], at(520));
        entry.times.last_read = at(530);
    });
    check("fragments of a WebSocket message, the first one empty", 820, open(), |entry, cold| {
        entry.flags.insert(Flags::PIECES);
        cold.partial_since = at(520);
    });
    check("incomplete TLS record", 1_500, open(), |_, cold| cold.record = vec![23]);
    check("waiting output", 1_500, open(), |_, cold| cold.waiting = vec![b'I']);
    check("half-closed", 850, open(), |entry, cold| {
        entry.flags.insert(Flags::HALF_CLOSED);
        cold.since = at(530);
    });
    check("half-closed with a response", 531, open(), |entry, cold| half_closed(entry, cold, at(520), at(530)));
    check("end before the next check", 840, open(), |entry, cold| half_closed(entry, cold, at(520), at(840)));
    check("closed by both sides", 540, open(), |entry, cold| {
        entry.flags.insert(Flags::HALF_CLOSED | Flags::CLOSING);
        cold.since = at(530);
    });
    check("closed within a message", 540, open(), |entry, cold| {
        entry.flags.insert(Flags::CLOSING);
        (cold.partial, cold.partial_since, cold.since) = (vec![b'I'], at(520), at(530));
    });
    for of in [Phase::Header, Phase::Tls, Phase::Ws] {
        let entry = phase(of, now, &mut spare);
        check(&format!("{of:?}"), 600, entry, |entry, cold| {
            entry.times.last_read = at(530);
            cold.partial = vec![b'P'];
        });
    }
    check("connecting", 550, dialling(at(550), 0, now, &mut spare), |_, _| ());
    check("connecting, with fallbacks", 503, dialling(at(550), 2, now, &mut spare), |_, _| ());
    check("connecting ends before fallbacks", 502, dialling(at(502), 2, now, &mut spare), |_, _| ());
    check("closed before it is made", 540, dialling(at(550), 0, now, &mut spare), |entry, cold| {
        entry.flags.insert(Flags::CLOSING);
        cold.since = at(530);
    });
}

#[test]
fn nothing_is_due_when_the_process_begins() {
    let (zero, mut spare) = (Tick::default(), Spare::default());
    let of = [Phase::Header, Phase::Tls, Phase::Ws, Phase::Open];
    let mut entries: Vec<Entry> = of.into_iter().map(|of| phase(of, zero, &mut spare)).collect();
    entries.push(dialling(at(50), 1, zero, &mut spare));
    let mut partial = phase(Phase::Open, zero, &mut spare);
    partial.cold(&mut spare).partial.push(b'I');
    partial.note_partial(zero, &mut spare);
    entries.push(partial);
    let mut half = phase(Phase::Open, zero, &mut spare);
    let mut cold = spare.take();
    half_closed(&mut half, &mut cold, zero, zero);
    half.cold = Some(cold);
    entries.push(half);
    for (longest, until) in [(0, 0), (0, 1), (0, u64::MAX), (160_000, 0)] {
        let mut entry = phase(Phase::Open, zero, &mut spare);
        entry.limit_silence(longest, until);
        assert_eq!(entry.due(&bounds()), at(1_000), "{longest} {until}");
        entries.push(entry);
    }
    for (i, entry) in entries.iter().enumerate() {
        assert!(entry.due(&bounds()) > zero, "{i}");
    }
}

#[test]
fn silence_is_limited_while_the_limit_lasts() {
    let hour = Bounds { idle_timeout: Duration::from_secs(3_600), ..Bounds::default() };
    let mut entry = phase(Phase::Open, at(10), &mut Spare::default());
    assert_eq!(entry.due(&hour), at(36_010));
    entry.limit_silence(160_000, 600_000);
    assert_eq!(entry.due(&hour), at(1_610));
    assert_eq!(entry.due(&bounds()), at(1_010), "the shorter time counts");
    entry.times.last_read = at(4_400);
    assert_eq!(entry.due(&hour), at(6_000));
    entry.times.last_read = at(4_401);
    assert_eq!(entry.due(&hour), at(40_401), "the registration ends before");
    entry.limit_silence(160_000, 0);
    entry.times.last_read = at(20);
    assert_eq!(entry.due(&hour), at(36_020));
    entry.limit_silence(6_553_500, u64::MAX);
    assert_eq!(entry.due(&Bounds { idle_timeout: Duration::MAX, ..hour.clone() }), at(65_555));
    entry.limit_silence(6_553_501, u64::MAX);
    assert_eq!(entry.due(&hour), at(36_020), "no limit ends a connection earlier than the service permits");
}

#[test]
fn few_keep_alives_are_reported() {
    let mut entry = Entry::sample(Initiator::Peer);
    let reported: Vec<u64> = (0..600).step_by(10).filter(|now| entry.note_keep_alive(at(*now))).collect();
    assert_eq!(reported, [0, 200, 400]);
}

#[test]
fn the_time_of_a_message_counts_from_its_first_byte() {
    let (mut spare, mut entry) = (Spare::default(), Entry::sample(Initiator::Peer));
    for now in [0, 7] {
        entry.cold(&mut spare).partial.push(b'I');
        entry.note_partial(at(now), &mut spare);
        entry.note_whole();
        assert_eq!(entry.due(&bounds()), at(300));
    }
    // The message is complete, and another one begins.
    entry.cold(&mut spare).partial.clear();
    entry.note_whole();
    entry.cold(&mut spare).partial.push(b'B');
    entry.note_partial(at(40), &mut spare);
    assert_eq!(entry.due(&bounds()), at(340));
}

#[test]
fn an_idle_connection_has_no_cold_part() {
    let mut spare = Spare::default();
    let mut entry = Entry::sample(Initiator::Peer);
    entry.cold(&mut spare).waiting.push(1);
    entry.tidy(&mut spare);
    assert!(entry.cold.is_some(), "output waits");
    let buffer = &mut entry.cold(&mut spare).waiting;
    buffer.clear();
    assert!(buffer.capacity() > 0);
    entry.tidy(&mut spare);
    assert!(entry.cold.is_none());
    assert_eq!(entry.cold(&mut spare).waiting.capacity(), 0, "of the next connection");
}

#[test]
fn the_begin_of_a_state_is_kept_while_the_state_lasts() {
    let mut spare = Spare::default();
    for of in [Phase::Dialling, Phase::Header, Phase::Tls, Phase::Ws] {
        let mut entry = phase(of, at(7), &mut spare);
        entry.tidy(&mut spare);
        assert_eq!(entry.cold.as_ref().map(|cold| cold.since), Some(at(7)), "{of:?}");
        entry.role.phase = Phase::Open;
        entry.tidy(&mut spare);
        assert!(entry.cold.is_none(), "{of:?}");
    }
    for flag in [Flags::CLOSING, Flags::HALF_CLOSED, Flags::PIECES] {
        let mut entry = Entry::sample(Initiator::Peer);
        entry.cold(&mut spare).since = at(7);
        entry.flags.insert(flag);
        entry.tidy(&mut spare);
        assert_eq!(entry.cold.as_ref().map(|cold| cold.since), Some(at(7)));
        entry.flags.remove(flag);
        entry.tidy(&mut spare);
        assert!(entry.cold.is_none());
    }
}

#[test]
fn an_accepted_connection_begins_with_the_protocols_of_its_listener() {
    let mut spare = Spare::default();
    for (transport, initiator, phase) in [
        (Transport::Tcp, Initiator::Peer, Phase::Open),
        (Transport::Tls, Initiator::Peer, Phase::Tls),
        (Transport::Ws, Initiator::Peer, Phase::Ws),
        (Transport::Wss, Initiator::Peer, Phase::Tls),
        (Transport::Tcp, Initiator::Balancer, Phase::Header),
        (Transport::Wss, Initiator::Balancer, Phase::Header),
    ] {
        let (fd, _peer) = pair();
        let remote: SocketAddr = "[2001:db8::7]:5060".parse().unwrap();
        let entry = Entry::accepted(fd, remote, LISTENER, transport, initiator, at(9), &mut spare);
        assert_eq!((entry.role.phase, SocketAddr::from(entry.peer)), (phase, remote));
        let source = (initiator == Initiator::Peer).then_some(remote.ip());
        assert!(entry.is_accepted() && entry.flags.has(Flags::VERIFIED) && entry.charged_source() == source);
        let due = if phase == Phase::Open { 1_009 } else { 109 };
        assert_eq!((entry.due(&bounds()), entry.cold.is_some()), (at(due), phase != Phase::Open));
    }
}

#[test]
fn the_owner_is_a_flow_or_a_name() {
    let own = Flow { node: 1, process: 2, shard: 3, slot: 4, generation: 5 };
    let flow = Flow { slot: 1 << 31, generation: 0, ..own };
    let name = PeerName(NonZeroU32::new(7).unwrap());
    let read = |owner: Owner| (owner.flow(own), owner.name());
    assert_eq!(read(Owner::NONE), (None, None));
    assert_eq!(read(Owner::named(None)), (None, None));
    assert_eq!(read(Owner::named(Some(name))), (None, Some(name)));
    assert_eq!(read(Owner::dedicated(flow)), (Some(flow), None));
    assert_eq!(read(Owner::dedicated(Flow { generation: 7, ..flow })), (Some(Flow { generation: 7, ..flow }), None));
    // Until it is open, a dedicated connection has a name too.
    let opening = Opening { name: Some(name), ..Opening::until(at(50)) };
    let peer = "192.0.2.7:5061".parse().unwrap();
    let entry =
        Entry::dialling(peer, LISTENER, Transport::Tcp, Owner::dedicated(flow), opening, at(0), &mut Spare::default());
    assert_eq!((entry.owner.flow(own), entry.name()), (Some(flow), Some(name)));
    assert!(!entry.is_accepted() && !entry.is_balanced() && !entry.flags.has(Flags::VERIFIED));
}

#[test]
fn waiting_output_is_not_acknowledged() {
    let (fd, mut peer) = pair();
    let mut spare = Spare::default();
    let mut entry =
        Entry::accepted(fd, peer.local_addr().unwrap(), LISTENER, Transport::Tcp, Initiator::Peer, at(0), &mut spare);
    assert!(!entry.has_unacknowledged().unwrap());
    entry.cold(&mut spare).waiting.push(b'I');
    assert!(entry.has_unacknowledged().unwrap());
    entry.cold(&mut spare).waiting.clear();
    // A peer that ends with unread bytes resets the connection.
    assert_eq!(entry.fd.as_ref().unwrap().write(b"12").unwrap(), 2);
    peer.read_exact(&mut [0]).unwrap();
    drop(peer);
    let reset = |entry: &Entry| entry.has_unacknowledged().is_err();
    assert!((0..100_000).any(|_| reset(&entry)), "the connection is reset");
    assert!(!Entry::sample(Initiator::Own).has_unacknowledged().unwrap(), "it has no socket yet");
}
