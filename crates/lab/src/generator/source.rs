//! Source addresses: fresh ones for each trial.

use super::Setting;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU32, Ordering};
use strowger_core::Transport;
use strowger_load::campaign::Connections;

/// Connections a second from one address. A closed connection keeps its port for a minute, and an address has 28,000 ports.
const CONNECTS: f64 = 312.5;

/// Maximum number of source addresses of one trial: each has a thread of its own.
const MOST: f64 = 16.0;

/// Connections that an address holds. Beyond these the kernel searches for a free port with each connection.
const HELD: u32 = 14_000;

/// Addresses from 127.64.0.0 on are given out one after the other.
const FIRST: u32 = u32::from_be_bytes([127, 64, 0, 0]);
const COUNT: u32 = 1 << 22;

/// Returns loopback addresses that no earlier trial of this process has used, or none if the kernel may choose the address.
///
/// Over a stream transport, a new connection could otherwise have the same addresses and port as a connection of an earlier trial in
/// TIME_WAIT, and its connect would wait for seconds.
pub(super) fn fresh(setting: &Setting, rate: f64) -> Vec<Ipv4Addr> {
    match (setting.is_loopback(), setting.transport) {
        (false, _) => Vec::new(),
        (true, Transport::Udp) => vec![Ipv4Addr::LOCALHOST],
        (true, _) => {
            let wanted = match setting.connections.owner {
                Connections::PerCall => (rate / CONNECTS).ceil().clamp(1.0, MOST) as u32,
                Connections::PerUser if setting.connections.connect_rate.is_some() => {
                    setting.users.div_ceil(HELD).max(1)
                }
                Connections::One | Connections::PerUser => 1,
            };
            (0..wanted).map(|_| next()).collect()
        }
    }
}

fn next() -> Ipv4Addr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Processes that run side by side begin in different places.
    let start = std::process::id().wrapping_mul(4_099);
    let number = start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % COUNT;
    // Neither the first nor the last address of a block of 256.
    let address = FIRST + number;
    if matches!(address & 0xff, 0 | 0xff) { next() } else { Ipv4Addr::from(address) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generator::Traffic;

    #[test]
    fn streams_over_loopback_have_fresh_sources() {
        let mut setting = Setting::new("sip:bob@127.0.0.1:5070", Traffic::Ready("call", vec![])).expect("a path");
        assert_eq!(fresh(&setting, 100.0), [Ipv4Addr::LOCALHOST]);
        (setting.transport, setting.connections.owner) = (Transport::Tcp, Connections::PerCall);
        let mut all = fresh(&setting, 2_500.0);
        assert_eq!(all.len(), 8);
        (setting.connections.owner, setting.users) = (Connections::PerUser, 28_001);
        assert_eq!(fresh(&setting, 2_500.0).len(), 1);
        setting.connections.connect_rate = Some(4_000.0);
        assert_eq!(fresh(&setting, 2_500.0).len(), 3, "held connections are shared out");
        setting.connections.owner = Connections::PerCall;
        all.extend(fresh(&setting, 100.0));
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 9, "each is given once");
        assert!(all.iter().all(|address| address.is_loopback() && address.octets()[1] >= 64));
        setting.target = "192.0.2.1".into();
        assert_eq!(fresh(&setting, 100.0), [] as [Ipv4Addr; 0]);
    }
}
