//! What an idle connection costs: opens many to a shard in this process, sends one message over each, and prints the
//! growth of the process's own memory.
//!
//! `idle_connections tcp|ws [COUNT]` (8,000 if nothing is said; each needs two descriptors).

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use strowger_core::{Arrival, Flow, Now, Outbox, Transport};
use strowger_net::{Listener, Net, Service, Settings, Shards};

struct Echo;

impl Service for Echo {
    type Answer = ();
    type Record = ();

    fn receive(&mut self, _: Now, arrival: &Arrival, bytes: &[u8], out: &mut Outbox) {
        let start = out.start();
        out.bytes.extend_from_slice(bytes);
        out.send(arrival.reply(), start..out.bytes.len(), 0);
    }

    fn poll(&mut self, _: Now, _: &mut Outbox) {}
    fn deadline(&mut self) -> Option<u64> {
        None
    }
    fn answered(&mut self, _: Now, _: (), _: &mut Outbox) {}
    fn failed(&mut self, _: Now, _: u64, _: &mut Outbox) {}
    fn closed(&mut self, _: Now, _: Flow, _: &mut Outbox) {}
    fn export(&mut self, _: Now, _: u8) -> Vec<()> {
        Vec::new()
    }
    fn import(&mut self, _: Now, _: (), _: &mut Outbox) {}
}

/// Proportional set size, bytes.
fn memory() -> std::io::Result<u64> {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup")?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:")).unwrap_or_default();
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or_default() * 1_024)
}

fn main() -> std::io::Result<()> {
    let mut words = std::env::args().skip(1);
    let transport = words.next().and_then(|w| Transport::of(w.as_bytes())).unwrap_or(Transport::Tcp);
    let count: usize = words.next().and_then(|w| w.parse().ok()).unwrap_or(8_000);
    let settings = Settings { shards: Shards::Fixed(1), connections_per_source: count + 200, ..Settings::default() };
    let net = Net::bind(settings, vec![Listener::new(transport, SocketAddr::from(([127, 0, 0, 1], 0)))])?;
    let address = net.addresses()[0];
    let node = net.spawn(|_, _| Echo)?;
    let message = b"OPTIONS sip:x SIP/2.0\r\nCall-ID: 1\r\nContent-Length: 0\r\n\r\n";
    let handshake = b"GET / HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
        Sec-WebSocket-Protocol: sip\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    let mut streams = Vec::with_capacity(count);
    let mut buffer = [0; 1_000];
    let mut before = 0;
    for i in 0..count + 100 {
        // The first hundred warm up.
        if i == 100 {
            before = memory()?;
        }
        let mut stream = TcpStream::connect(address)?;
        if transport == Transport::Ws {
            stream.write_all(handshake)?;
            let _ = stream.read(&mut buffer)?;
            let mut frame = vec![0x81, 0x80 | message.len() as u8, 0, 0, 0, 0];
            frame.extend_from_slice(message);
            stream.write_all(&frame)?;
        } else {
            stream.write_all(message)?;
        }
        let _ = stream.read(&mut buffer)?;
        streams.push(stream);
    }
    let grown = memory()?.saturating_sub(before);
    println!("{count} idle {} connections: {} bytes each", transport.text(), grown / count as u64);
    drop(node);
    Ok(())
}
