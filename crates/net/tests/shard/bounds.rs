//! Changes of bounds while connections are open.

use crate::echo::{bounds, settings};
use crate::relay::{Relay, listener, message, start};
use crate::streams::{connect, counted, ends, expect};
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use strowger_core::Transport::{Tcp, Ws};
use strowger_net::{Bounds, NetSettings, Node, Shards};

const V4: &str = "127.0.0.1:0";

/// Starts a node with one TCP listener.
fn node(shards: usize, bounds: Bounds) -> (Node<Relay>, SocketAddr) {
    let node = start(NetSettings { bounds, ..settings(shards) }, vec![listener(Tcp, V4)]);
    let address = node.handle().addresses()[0];
    (node, address)
}

/// Sets bounds, and waits until each shard has begun a later round: by then it has adopted the bounds.
fn set(node: &Node<Relay>, bounds: Bounds) {
    node.handle().set_bounds(bounds);
    for shard in 0..node.handle().shards() {
        let rounds = || node.handle().counters(shard).rounds;
        let (before, patience) = (rounds(), Instant::now() + Duration::from_secs(5));
        while rounds() == before {
            assert!(Instant::now() < patience, "shard {shard} has rounds");
            node.handle().wake_all();
            std::thread::yield_now();
        }
    }
}

fn exchange(stream: &mut TcpStream, body: usize) {
    let text = message("ECHO", "1", body);
    stream.write_all(text.as_bytes()).unwrap();
    expect(stream, text.as_bytes());
}

/// Opens connections and exchanges a message over each.
fn open(address: SocketAddr, count: usize) -> Vec<TcpStream> {
    let mut all: Vec<_> = (0..count).map(|_| connect(address)).collect();
    all.iter_mut().for_each(|stream| exchange(stream, 5));
    all
}

#[test]
fn fewer_connections_may_be_open_than_are() {
    for (shards, per_source) in [(1, false), (1, true), (3, false), (3, true)] {
        let at_most = |n| match per_source {
            true => Bounds { connections_per_source: n, ..bounds() },
            false => Bounds { connections: n, ..bounds() },
        };
        let (node, address) = node(shards, at_most(5));
        let mut refused = 0;
        let mut is_refused = || {
            ends(&mut connect(address));
            refused += 1;
            counted(&node, |t| t.connections_refused, refused);
        };
        let mut standing = open(address, 5);
        is_refused();
        set(&node, at_most(2));
        assert_eq!(*node.handle().bounds(), at_most(2));
        standing.iter_mut().for_each(|stream| exchange(stream, 5));
        is_refused();
        // Two exceed the bound, one does not.
        standing.truncate(2);
        counted(&node, |t| t.tcp_connections, 2);
        is_refused();
        standing.truncate(1);
        counted(&node, |t| t.tcp_connections, 1);
        standing.extend(open(address, 1));
        is_refused();
        set(&node, at_most(4));
        standing.extend(open(address, 2));
        is_refused();
        standing.iter_mut().for_each(|stream| exchange(stream, 5));
        // No connection is counted twice or missed: after all connections have ended, the full number is admitted.
        drop(standing);
        counted(&node, |t| t.tcp_connections, 0);
        let _standing = open(address, 4);
        is_refused();
    }
}

#[test]
fn less_memory_may_be_held_than_is() {
    for shards in [1, 3] {
        let (node, address) = node(shards, bounds());
        let mut standing = open(address, 3);
        let held = node.handle().total().connection_bytes;
        set(&node, Bounds { connection_memory_per_source: 1_000, ..bounds() });
        standing.iter_mut().for_each(|stream| exchange(stream, 5));
        let mut one_more = connect(address);
        ends(&mut one_more);
        counted(&node, |t| t.memory_refused, 1);
        assert_eq!(node.handle().total().connection_bytes, held);
        set(&node, bounds());
        standing.extend(open(address, 2));
        drop(standing);
        counted(&node, |t| t.connection_bytes, 0);
    }
}

const SOON: Duration = Duration::from_millis(300);

/// The shards sleep when the bounds change, and no message would wake them.
#[test]
fn shorter_timeouts_end_what_stands() {
    for shards in [1, 3] {
        let (node, address) = node(shards, bounds());
        let mut idle = open(address, 4);
        let mut partial: Vec<_> = open(address, 4);
        partial
            .iter_mut()
            .for_each(|stream| stream.write_all(b"ECHO SIP/2.0\r\nContent-Length: 9\r\n\r\nhalf").unwrap());
        counted(&node, |t| t.stream_messages_in, 8);
        let since = Instant::now();
        node.handle().set_bounds(Bounds { partial_timeout: SOON, ..bounds() });
        partial.iter_mut().for_each(ends);
        idle.iter_mut().for_each(|stream| exchange(stream, 5));
        node.handle().set_bounds(Bounds { idle_timeout: SOON, ..bounds() });
        idle.iter_mut().for_each(ends);
        assert!((500..5_000).contains(&since.elapsed().as_millis()), "{:?}", since.elapsed());
        let total = node.handle().total();
        assert_eq!((total.partial_closed, total.idle_closed, total.tcp_connections), (4, 4, 0));
    }
}

#[test]
fn longer_timeouts_keep_what_stands() {
    for shards in [1, 3] {
        let (node, address) = node(shards, Bounds { idle_timeout: 2 * SOON, ..bounds() });
        let mut standing = open(address, 4);
        set(&node, bounds());
        // The earlier time-out passes.
        std::thread::sleep(3 * SOON);
        standing.iter_mut().for_each(|stream| exchange(stream, 5));
        assert_eq!(node.handle().total().idle_closed, 0);
    }
}

#[test]
fn a_shorter_timeout_of_handshakes_ends_one_that_goes_on() {
    let node = start(settings(1), vec![listener(Ws, V4)]);
    let mut silent = connect(node.handle().addresses()[0]);
    counted(&node, |t| t.ws_connections, 1);
    node.handle().set_bounds(Bounds { handshake_timeout: SOON, ..bounds() });
    ends(&mut silent);
    counted(&node, |t| t.handshakes_failed, 1);
}

/// There are more slots than one round checks.
#[test]
fn shorter_timeouts_end_all_of_many() {
    const MANY: usize = 700;
    strowger_net::descriptors::raise().unwrap();
    let (node, address) = node(1, bounds());
    let mut all = open(address, MANY);
    node.handle().set_bounds(Bounds { idle_timeout: SOON, ..bounds() });
    all.iter_mut().for_each(ends);
    counted(&node, |t| t.idle_closed, MANY as u64);
}

#[test]
fn a_message_is_measured_by_the_limits_in_force() {
    let at_most = |message| {
        let mut bounds = bounds();
        bounds.limits.message = message;
        bounds
    };
    for shards in [1, 3] {
        let (node, address) = node(shards, bounds());
        let [mut first, mut second] = [connect(address), connect(address)];
        exchange(&mut first, 5_000);
        set(&node, at_most(1_000));
        exchange(&mut second, 500);
        let long = message("ECHO", "1", 5_000);
        first.write_all(long.as_bytes()).unwrap();
        ends(&mut first);
        counted(&node, |t| t.frames_broken, 1);
        set(&node, bounds());
        exchange(&mut second, 5_000);
    }
}

#[test]
fn a_shard_that_starts_later_begins_with_the_bounds_in_force() {
    let mut short = bounds();
    short.limits.message = 1_000;
    let settings = NetSettings { shards: Shards::Auto { most: 3 }, ..settings(1) };
    let node = start(settings, vec![listener(Tcp, V4)]);
    set(&node, short);
    node.handle().set_shards(3).unwrap();
    let address = node.handle().addresses()[0];
    for _ in 0..30 {
        let mut stream = connect(address);
        let long = message("ECHO", "1", 5_000);
        stream.write_all(long.as_bytes()).unwrap();
        ends(&mut stream);
    }
    counted(&node, |t| t.frames_broken, 30);
    let accepted = (0..3).map(|shard| node.handle().counters(shard).accepted);
    assert!(accepted.clone().all(|n| n > 0), "{:?}", accepted.collect::<Vec<_>>());
}

/// Data that wait for a peer that does not read stay; one more message exceeds the bound.
#[test]
fn less_may_wait_for_a_peer_than_does() {
    let (node, address) = node(1, Bounds { write_queue: 8 << 20, ..bounds() });
    let mut deaf = connect(address);
    socket2::SockRef::from(&deaf).set_recv_buffer_size(65_536).unwrap();
    let large = message("ECHO", "1", 50_000);
    let mut sent = 0;
    while node.handle().total().stream_bytes_waiting < 500_000 {
        deaf.write_all(large.as_bytes()).unwrap();
        sent += 1;
    }
    counted(&node, |t| t.stream_messages_in, sent);
    // The round that read the last of these messages may still run, and queue the answer: the second exchange belongs
    // to a later round.
    let mut other = connect(address);
    exchange(&mut other, 5);
    exchange(&mut other, 5);
    set(&node, Bounds { write_queue: 100_000, ..bounds() });
    exchange(&mut other, 5);
    let total = node.handle().total();
    assert_eq!((total.slow_closed, total.tcp_connections), (0, 2), "{total:?}");
    let _ = deaf.write_all(large.as_bytes());
    counted(&node, |t| t.slow_closed, 1);
    counted(&node, |t| t.stream_bytes_waiting, 0);
    exchange(&mut other, 5);
}
