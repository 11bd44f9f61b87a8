//! Cost of a shard alone, without a SIP server.
//!
//! * `shard_cost idle tcp|ws [COUNT]`: an idle connection. Opens COUNT of them (default 8,000; each needs two
//!   descriptors) to a shard in this process, sends one message over each, and prints the growth of the process's own
//!   memory.
//! * `shard_cost relay LISTEN-PORT UAC-PORT UAS-PORT`: a datagram. Relays each unread, those of UAS to UAC and all
//!   others to UAS, all on 127.0.0.1; SHARDS and ICMP_ERRORS (1: reports of unreachable ones) are
//!   environment variables.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::ExitCode;

use strowger_core::{Arrival, Flow, Now, Outbox, Transport};
use strowger_net::{Bounds, Listener, Net, NetSettings, Service, Shards, UdpSettings};

/// Sends every message back, or between two ends.
struct Pass {
    /// UAC and UAS.
    ends: Option<[SocketAddr; 2]>,
}

impl Service for Pass {
    type ShardMessage = ();
    type Record = ();

    fn receive(&mut self, _: Now, arrival: &Arrival, bytes: &[u8], out: &mut Outbox) {
        let mut target = arrival.reply();
        if let Some([uac, uas]) = self.ends {
            target.address = if arrival.remote.port() == uas.port() { uac } else { uas };
        }
        let start = out.start();
        out.bytes.extend_from_slice(bytes);
        out.send(target, start..out.bytes.len(), 0);
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

fn local(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// Returns the proportional set size in bytes.
fn memory() -> std::io::Result<u64> {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup")?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:")).unwrap_or_default();
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or_default() * 1_024)
}

fn idle(transport: Transport, count: usize) -> std::io::Result<()> {
    let bounds = Bounds { connections_per_source: count + 200, ..Bounds::default() };
    let settings = NetSettings { shards: Shards::Fixed(1), bounds, ..NetSettings::default() };
    let net = Net::bind(settings, vec![Listener::new(transport, local(0))])?;
    let address = net.addresses()[0];
    let node = net.spawn(|_, _| Pass { ends: None })?;
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

fn relay(listen: u16, ends: [u16; 2]) -> std::io::Result<()> {
    let number = |name: &str| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
    let shards = Shards::Fixed(number("SHARDS").unwrap_or(1) as usize);
    let udp = UdpSettings { icmp_errors: number("ICMP_ERRORS") == Some(1), ..UdpSettings::default() };
    let settings = NetSettings { shards, udp, ..NetSettings::default() };
    let net = Net::bind(settings, vec![Listener::new(Transport::Udp, local(listen))])?;
    let node = net.spawn(move |_, _| Pass { ends: Some(ends.map(local)) })?;
    node.join().expect("it was asked to end");
    Ok(())
}

fn main() -> std::io::Result<ExitCode> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let ports: Vec<u16> = words.iter().skip(1).filter_map(|word| word.parse().ok()).collect();
    match (&words[..], &ports[..]) {
        (["idle", transport, count @ ..], _) => {
            let transport = Transport::of(transport.as_bytes()).unwrap_or(Transport::Tcp);
            idle(transport, count.first().and_then(|count| count.parse().ok()).unwrap_or(8_000))?;
        }
        (["relay", ..], &[listen, uac, uas]) => relay(listen, [uac, uas])?,
        _ => {
            eprintln!("usage: shard_cost idle tcp|ws [COUNT]\n       shard_cost relay LISTEN-PORT UAC-PORT UAS-PORT");
            return Ok(ExitCode::from(2));
        }
    }
    Ok(ExitCode::SUCCESS)
}
