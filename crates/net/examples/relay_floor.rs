//! What a shard itself costs: passes every datagram on unread, those of UAS to UAC and all others to UAS.
//!
//! `relay_floor LISTEN-PORT UAC-PORT UAS-PORT`, all on 127.0.0.1; SHARDS and LINGER (microseconds) by environment.

use std::net::SocketAddr;
use strowger_core::{Arrival, Flow, Now, Outbox, Transport};
use strowger_net::{Listener, Net, Service, Settings, Shards};

struct Relay {
    uac: SocketAddr,
    uas: SocketAddr,
}

impl Service for Relay {
    type Answer = ();
    type Record = ();

    fn receive(&mut self, _: Now, arrival: &Arrival, bytes: &[u8], out: &mut Outbox) {
        let mut target = arrival.reply();
        target.address = if arrival.remote.port() == self.uas.port() { self.uac } else { self.uas };
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

fn main() -> std::io::Result<()> {
    let ports: Vec<u16> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    let &[listen, uac, uas] = &ports[..] else {
        eprintln!("usage: relay_floor LISTEN-PORT UAC-PORT UAS-PORT");
        std::process::exit(2);
    };
    let local = |port| SocketAddr::from(([127, 0, 0, 1], port));
    let shards = std::env::var("SHARDS").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let linger = std::env::var("LINGER").ok().and_then(|n| n.parse().ok()).unwrap_or(0);
    let linger = std::time::Duration::from_micros(linger);
    let settings = Settings { shards: Shards::Fixed(shards), linger, ..Settings::default() };
    let net = Net::bind(settings, vec![Listener::new(Transport::Udp, local(listen))])?;
    let node = net.spawn(move |_, _| Relay { uac: local(uac), uas: local(uas) })?;
    node.join();
    Ok(())
}
