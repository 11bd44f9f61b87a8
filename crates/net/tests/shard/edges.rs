//! Events of connections: the kernel reports each once, so the shard itself must remember what is left.

use crate::echo::{bounds, settings};
use crate::relay::{GATE, STOPPED, listener, message, start};
use crate::streams::{ask, connect, counted, expect, udp};
use std::io::Write;
use std::net::{Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::{Duration, Instant};
use strowger_core::Transport::{Tcp, Udp, Ws};
use strowger_net::{Bounds, NetSettings};

const V4: &str = "127.0.0.1:0";

/// Does this while the shard behind `server` stands still, so that all events come at once.
fn at_once<T>(server: SocketAddr, meanwhile: impl FnOnce() -> T) -> T {
    let gate = GATE.lock().unwrap_or_else(|e| e.into_inner());
    STOPPED.store(false, Release);
    UdpSocket::bind(V4).unwrap().send_to(message("STALL", "stall", 0).as_bytes(), server).unwrap();
    let patience = Instant::now() + Duration::from_secs(5);
    while !STOPPED.load(Acquire) {
        assert!(Instant::now() < patience, "the shard stops");
        std::thread::yield_now();
    }
    let done = meanwhile();
    // Another test waits for its own shard.
    STOPPED.store(false, Release);
    drop(gate);
    done
}

#[test]
fn connections_that_become_ready_at_once_are_all_served_beside_datagrams() {
    const COUNT: usize = 300;
    let node = start(settings(1), vec![listener(Udp, V4), listener(Tcp, V4)]);
    let [datagrams, streams] = *node.handle().addresses() else { panic!("two listeners") };
    let mut connections: Vec<TcpStream> = (0..COUNT).map(|_| connect(streams)).collect();
    counted(&node, |t| t.tcp_connections, COUNT as u64);
    let one = message("A", "1", 10);
    at_once(datagrams, || connections.iter_mut().for_each(|stream| stream.write_all(one.as_bytes()).unwrap()));
    let socket = udp(datagrams);
    assert_eq!(ask(&socket, &one), one);
    connections.iter_mut().for_each(|stream| expect(stream, one.as_bytes()));
    // So are those that a listener accepts.
    let mut connections: Vec<TcpStream> = at_once(datagrams, || (0..100).map(|_| connect(streams)).collect());
    connections.iter_mut().for_each(|stream| stream.write_all(one.as_bytes()).unwrap());
    connections.iter_mut().for_each(|stream| expect(stream, one.as_bytes()));
}

/// Many short turns follow one event.
#[test]
fn data_of_one_event_are_read_to_their_end() {
    let settings = NetSettings { bounds: Bounds { messages_per_turn: 3, ..bounds() }, ..settings(1) };
    let node = start(settings, vec![listener(Udp, V4), listener(Tcp, V4)]);
    let [datagrams, streams] = *node.handle().addresses() else { panic!("two listeners") };
    let many = message("A", "1", 40).repeat(500);
    let mut stream = connect(streams);
    at_once(datagrams, || stream.write_all(many.as_bytes()).unwrap());
    expect(&mut stream, many.as_bytes());
}

/// The end has no event of its own if it comes before the data are read.
#[test]
fn an_end_that_comes_with_data_is_seen() {
    let node = start(settings(1), vec![listener(Udp, V4), listener(Tcp, V4), listener(Ws, V4)]);
    let [datagrams, tcp, ws] = *node.handle().addresses() else { panic!("three listeners") };
    let mut stream = connect(tcp);
    counted(&node, |t| t.tcp_connections, 1);
    let one = message("A", "1", 10);
    at_once(datagrams, || {
        stream.write_all(one.as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
    });
    counted(&node, |t| t.stream_messages_in, 1);
    counted(&node, |t| t.tcp_connections, 0);
    // A handshake that is never completed.
    let mut stream = connect(ws);
    counted(&node, |t| t.ws_connections, 1);
    at_once(datagrams, || {
        stream.write_all(b"GET / HTTP/1.1\r\n").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
    });
    counted(&node, |t| t.ws_connections, 0);
    // And a connection that ends before it is accepted.
    at_once(datagrams, || drop(connect(tcp)));
    counted(&node, |t| t.accepted, 3);
    counted(&node, |t| t.tcp_connections, 0);
}

/// The socket of the shard takes no more at first; an event reports that it has room again.
#[test]
fn bytes_that_wait_leave_when_the_peer_reads() {
    let node = start(settings(1), vec![listener(Tcp, V4)]);
    let mut stream = connect(node.handle().addresses()[0]);
    let large = message("A", "1", 50_000);
    let mut sent = 0;
    while node.handle().total().stream_bytes_waiting == 0 {
        assert!(sent < 1_000, "the buffers of the kernel have an end");
        stream.write_all(large.as_bytes()).unwrap();
        sent += 1;
        counted(&node, |t| t.stream_messages_in, sent);
    }
    (0..sent).for_each(|_| expect(&mut stream, large.as_bytes()));
    counted(&node, |t| t.stream_bytes_waiting, 0);
}
