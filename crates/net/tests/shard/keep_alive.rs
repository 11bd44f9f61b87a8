//! Keep-alives of the kernel and of peers, and silent peers.

use crate::echo::settings;
use crate::relay::{GATE, STOPPED, listener, message, start};
use crate::streams::{connect, counted, ends, expect};
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::Ordering::Acquire;
use std::time::{Duration, Instant};
use strowger_core::Transport::{Tcp, Ws};

const V4: &str = "127.0.0.1:0";

/// Number of the timer of a silent connection in the table of the kernel (proc_net_tcp.rst).
const KEEP_ALIVE: u8 = 2;

/// Returns the timer of a connection of this machine, and its time in hundredths of a second.
fn timer(own: SocketAddr, peer: SocketAddr) -> Option<(u8, u64)> {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let port = |field: &str| u16::from_str_radix(field.split(':').nth(1)?, 16).ok();
    table.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        if (port(fields[1]), port(fields[2])) != (Some(own.port()), Some(peer.port())) {
            return None;
        }
        let (timer, time) = fields[5].split_once(':')?;
        Some((timer.parse().ok()?, u64::from_str_radix(time, 16).ok()?))
    })
}

/// Checks that the kernel will probe the peer of this side of a connection in about a minute.
fn is_probed(own: SocketAddr, peer: SocketAddr) {
    let patience = Instant::now() + Duration::from_secs(5);
    loop {
        // Another timer waits for the acknowledgement of data first.
        let found = timer(own, peer);
        if found.is_some_and(|(timer, time)| timer == KEEP_ALIVE && (3_000..=6_000).contains(&time)) {
            return;
        }
        assert!(Instant::now() < patience, "{found:?}");
        // Interval between two looks.
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn the_kernel_probes_accepted_and_made_connections() {
    let node = start(settings(1), vec![listener(Tcp, V4)]);
    let address = node.handle().addresses()[0];
    let mut stream = connect(address);
    let one = message("A", "1", 0);
    stream.write_all(one.as_bytes()).unwrap();
    expect(&mut stream, one.as_bytes());
    is_probed(address, stream.local_addr().unwrap());
    let far = TcpListener::bind(V4).unwrap();
    stream.write_all(message(&format!("TO tcp {}", far.local_addr().unwrap()), "2", 0).as_bytes()).unwrap();
    let (_made, from) = far.accept().unwrap();
    is_probed(from, far.local_addr().unwrap());
}

#[test]
fn silence_ends_a_connection_while_its_limit_lasts() {
    let node = start(settings(1), vec![listener(Tcp, V4)]);
    let address = node.handle().addresses()[0];
    let [mut silent, mut past, mut free] = [(); 3].map(|()| connect(address));
    // The limit of the second connection ends after 100 ms; that of the third one is removed at once.
    let [past_order, first_order, last_order] =
        ["300 100", "300 60000", "300 0"].map(|order| message(&format!("SILENCE {order}"), "1", 0));
    for (stream, orders) in [(&mut past, past_order), (&mut free, first_order + &last_order)] {
        stream.write_all(orders.as_bytes()).unwrap();
        expect(stream, orders.as_bytes());
    }
    let (order, since) = (message("SILENCE 300 60000", "1", 0), Instant::now());
    silent.write_all(order.as_bytes()).unwrap();
    expect(&mut silent, order.as_bytes());
    ends(&mut silent);
    assert!(since.elapsed() > Duration::from_millis(290), "{:?}", since.elapsed());
    counted(&node, |t| t.idle_closed, 1);
    for stream in [&mut past, &mut free] {
        let one = message("A", "1", 0);
        stream.write_all(one.as_bytes()).unwrap();
        expect(stream, one.as_bytes());
    }
    assert_eq!(node.handle().total().tcp_connections, 2);
}

/// Checks that a process that stood still, with its machine say, does not end the connections of all phones: their bytes
/// are in the sockets.
#[test]
fn a_peer_whose_bytes_are_not_yet_read_is_not_silent() {
    let node = start(settings(1), vec![listener(Tcp, V4)]);
    let address = node.handle().addresses()[0];
    let [mut peer, mut other] = [(); 2].map(|()| connect(address));
    let (order, one) = (message("SILENCE 2000 60000", "1", 0), message("A", "2", 0));
    peer.write_all(order.as_bytes()).unwrap();
    expect(&mut peer, order.as_bytes());
    let gate = GATE.lock().unwrap();
    other.write_all(message("STALL", "1", 0).as_bytes()).unwrap();
    let patience = Instant::now() + Duration::from_secs(5);
    while !STOPPED.load(Acquire) {
        assert!(Instant::now() < patience, "the shard stops");
        std::thread::yield_now();
    }
    peer.write_all(one.as_bytes()).unwrap();
    // The silence becomes too long while the shard stands still.
    std::thread::sleep(Duration::from_millis(2_200));
    drop(gate);
    expect(&mut peer, one.as_bytes());
    assert_eq!(node.handle().total().idle_closed, 0);
}

#[test]
fn the_service_learns_of_the_first_keep_alive_of_a_connection() {
    let node = start(settings(1), vec![listener(Tcp, V4)]);
    let address = node.handle().addresses()[0];
    let mut streams = [connect(address), connect(address)];
    let asked = message("REPORTED", "1", 0);
    for (n, stream) in streams.iter_mut().enumerate() {
        stream.write_all(asked.as_bytes()).unwrap();
        expect(stream, format!("0 of {n}\r\nContent-Length: 0\r\n\r\n").as_bytes());
        for _ in 0..3 {
            stream.write_all(b"\r\n\r\n").unwrap();
            expect(stream, b"\r\n");
        }
        stream.write_all(asked.as_bytes()).unwrap();
        expect(stream, format!("1 of {}\r\nContent-Length: 0\r\n\r\n", n + 1).as_bytes());
    }
    assert_eq!(node.handle().total().pings, 6);
}

#[test]
fn the_service_learns_of_keep_alives_by_websocket() {
    use tokio_tungstenite::tungstenite::client::IntoClientRequest;
    use tokio_tungstenite::tungstenite::{self, Bytes, Message};
    let node = start(settings(1), vec![listener(Ws, V4)]);
    let address = node.handle().addresses()[0];
    let kinds = [Message::text("\r\n\r\n"), Message::Ping(Bytes::from_static(b"there?"))];
    for (n, keep_alive) in kinds.into_iter().enumerate() {
        let mut request = format!("ws://{address}/").into_client_request().unwrap();
        request.headers_mut().insert("sec-websocket-protocol", "sip".parse().unwrap());
        let Ok((mut socket, _)) = tungstenite::client(request, connect(address)) else { panic!("no handshake") };
        socket.send(keep_alive).unwrap();
        socket.read().unwrap();
        socket.send(Message::text(message("REPORTED", "1", 0))).unwrap();
        let expected = format!("1 of {}\r\nContent-Length: 0\r\n\r\n", n + 1);
        assert_eq!(socket.read().unwrap(), Message::text(expected));
    }
}
