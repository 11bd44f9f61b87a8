//! Bytes that are no messages: the shard survives and serves the next message.

use crate::echo::settings;
use crate::relay::{listener, message, start};
use crate::streams::{identity, secure};
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::time::Duration;
use strowger_core::Transport::{Tcp, Tls, Udp, Ws, Wss};

struct Dice(u64);

impl Dice {
    fn roll(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

#[test]
fn noise_is_survived_on_every_transport() {
    let (_folder, identity) = identity();
    let listeners = vec![
        listener(Udp, "127.0.0.1:0"),
        listener(Tcp, "127.0.0.1:0"),
        secure(Tls, &identity),
        listener(Ws, "127.0.0.1:0"),
        secure(Wss, &identity),
    ];
    let node = start(settings(2), listeners);
    let addresses = node.handle().addresses();
    let seed = 0x57_0e6e;
    println!("seed {seed}");
    let mut dice = Dice(seed);
    let base = message("ECHO", "1", 40);
    let handshake = "GET / HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
        Sec-WebSocket-Protocol: sip\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    for round in 0..4_000 {
        let mut bytes = base.clone().into_bytes();
        match dice.roll(3) {
            0 => bytes = (0..dice.roll(300)).map(|_| dice.roll(256) as u8).collect(),
            1 => (0..1 + dice.roll(6)).for_each(|_| {
                let at = dice.roll(bytes.len() as u64) as usize;
                bytes[at] = dice.roll(256) as u8;
            }),
            _ => bytes.truncate(dice.roll(bytes.len() as u64) as usize),
        }
        // "TO" would be an order to the service.
        if bytes.starts_with(b"TO ") {
            continue;
        }
        let kind = round % addresses.len();
        if kind == 0 {
            socket.send_to(&bytes, addresses[0]).unwrap();
            continue;
        }
        let mut stream = TcpStream::connect(addresses[kind]).unwrap();
        if kind == 3 && dice.roll(4) > 0 {
            stream.write_all(handshake.as_bytes()).unwrap();
            let _ = stream.read(&mut [0; 500]);
        }
        let _ = stream.write_all(&bytes);
    }
    // All connections end, as their clients have gone.
    let patience = std::time::Instant::now() + Duration::from_secs(10);
    loop {
        let t = node.handle().total();
        if t.tcp_connections + t.tls_connections + t.ws_connections + t.wss_connections == 0 {
            break;
        }
        assert!(std::time::Instant::now() < patience, "{t:?}");
        // Interval between two checks.
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut stream = TcpStream::connect(addresses[1]).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    stream.write_all(base.as_bytes()).unwrap();
    let mut answer = vec![0; base.len()];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, base.as_bytes());
}
