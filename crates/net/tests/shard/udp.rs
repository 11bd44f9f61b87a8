//! Datagrams through one shard.

use crate::echo::{settings, start};
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};
use strowger_core::Transport::Udp;

fn client(server: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind(if server.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" }).unwrap();
    socket.connect(server).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    socket
}

fn read(socket: &UdpSocket) -> String {
    let mut buffer = [0; 2_000];
    let n = socket.recv(&mut buffer).expect("an answer within five seconds");
    String::from_utf8_lossy(&buffer[..n]).into_owned()
}

#[test]
fn both_families_answer_in_order() {
    let node = start(settings(1), &[(Udp, "127.0.0.1:0"), (Udp, "[::1]:0")]);
    for &address in node.handle().addresses() {
        let socket = client(address);
        for i in 0..200 {
            socket.send(format!("message {i}").as_bytes()).unwrap();
        }
        for i in 0..200 {
            assert_eq!(read(&socket), format!("message {i}"));
        }
    }
    // The shard counts after the system call; the answer may arrive before.
    std::thread::sleep(Duration::from_millis(100));
    let total = node.handle().total();
    assert_eq!((total.datagrams_in, total.datagrams_out), (400, 400));
    assert_eq!(total.datagram_bytes_in, total.datagram_bytes_out);
}

#[test]
fn a_keep_alive_is_no_message() {
    let node = start(settings(1), &[(Udp, "127.0.0.1:0")]);
    let socket = client(node.handle().addresses()[0]);
    for ping in [&b""[..], b"\0", b"\r\n\r\n", b"x"] {
        socket.send(ping).unwrap();
    }
    assert_eq!(read(&socket), "x");
    assert_eq!(node.handle().total().datagram_pings, 3);
}

#[test]
fn a_refused_datagram_is_reported_and_the_others_go() {
    let node = start(settings(1), &[(Udp, "127.0.0.1:0")]);
    let socket = client(node.handle().addresses()[0]);
    socket.send(b"bad between good").unwrap();
    assert_eq!([read(&socket), read(&socket), read(&socket)], ["good", "good", "failed"]);
    assert_eq!(node.handle().total().datagrams_refused, 1);
}

#[test]
fn a_dead_peer_disturbs_no_other() {
    let node = start(settings(1), &[(Udp, "127.0.0.1:0")]);
    let address = node.handle().addresses()[0];
    for _ in 0..20 {
        // The echo finds the port closed: the kernel gets an ICMP error for the server's socket.
        client(address).send(b"gone").unwrap();
    }
    let socket = client(address);
    for _ in 0..20 {
        socket.send(b"here").unwrap();
        assert_eq!(read(&socket), "here");
    }
}

#[test]
fn timers_fire_on_time_and_an_idle_shard_does_not_tick() {
    let node = start(settings(1), &[(Udp, "127.0.0.1:0")]);
    let socket = client(node.handle().addresses()[0]);
    // No timer fires early; a busy machine may delay some attempts.
    let mut attempts = 0;
    let on_time = (0..5).any(|_| {
        attempts += 1;
        let start = Instant::now();
        socket.send(b"timer 300").unwrap();
        socket.send(b"timer 100").unwrap();
        let passed = [100, 300].map(|due| {
            assert_eq!(read(&socket), "passed");
            let late = (start.elapsed().as_millis() + 1).checked_sub(due);
            late.expect("it fires when it is due")
        });
        passed.iter().all(|late| *late < 100)
    });
    assert!(on_time);
    let rounds = node.handle().total().rounds;
    assert!(rounds < attempts * 12, "{rounds} rounds");
    // A sleeping shard makes no round meanwhile.
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(node.handle().total().rounds, rounds);
}

#[test]
fn what_is_due_at_once_waits_for_no_timer() {
    let node = start(settings(1), &[(Udp, "127.0.0.1:0")]);
    let socket = client(node.handle().addresses()[0]);
    let took = |text: &str, answer: &str| {
        let sent = Instant::now();
        socket.send(text.as_bytes()).unwrap();
        assert_eq!(read(&socket), answer);
        sent.elapsed()
    };
    let (mut plain, mut due): (Vec<_>, Vec<_>) =
        (0..50).map(|_| (took("plain", "plain"), took("timer 0", "passed"))).unzip();
    plain.sort();
    due.sort();
    // Only the median is compared, because the machine may be busy. A timer of the runtime is a millisecond late.
    assert!(due[25] < plain[25] * 2 + Duration::from_micros(150), "{:?} for {:?}", due[25], plain[25]);
}

#[test]
fn answers_come_back_to_a_sleeping_shard() {
    let node = start(settings(1), &[(Udp, "127.0.0.1:0")]);
    let socket = client(node.handle().addresses()[0]);
    for _ in 0..100 {
        socket.send(b"ask").unwrap();
        assert_eq!(read(&socket), "answered");
    }
    assert_eq!(node.handle().total().answers, 100);
}

#[test]
fn a_shard_that_fails_ends_the_others_too() {
    let node = start(settings(2), &[(Udp, "127.0.0.1:0")]);
    let socket = client(node.handle().addresses()[0]);
    // The service of the tests panics at this.
    socket.send(b"timer soon").unwrap();
    node.join().expect_err("one has failed");
}
