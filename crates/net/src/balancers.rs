//! Load balancers of each listener. Their connections begin with a header of the PROXY protocol; a header of another source is not read.

use crate::Listener;
use std::net::IpAddr;
use strowger_core::ListenerId;
use strowger_core::source::Network;

/// Networks of the balancers, by listener.
pub(crate) struct Balancers(Box<[Box<[Network]>]>);

impl Balancers {
    pub(crate) fn of(listeners: &[Listener]) -> Self {
        Self(listeners.iter().map(|listener| listener.balancers.as_slice().into()).collect())
    }

    /// Tells whether this source is a balancer of the listener.
    pub(crate) fn contains(&self, listener: ListenerId, source: IpAddr) -> bool {
        let networks = self.0.get(listener.0 as usize);
        networks.is_some_and(|networks| networks.iter().any(|network| network.contains(source)))
    }
}

/// Returns the generation of the next connection in a slot. It is larger than the last one, and odd for a balancer's
/// connection: so a flow shows this after its connection has ended ([`Flow::is_balanced`](strowger_core::Flow::is_balanced)).
pub(crate) const fn next_generation(last: u32, is_balanced: bool) -> u32 {
    (last >> 1).wrapping_add(1) << 1 | is_balanced as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use strowger_core::{Flow, Transport};

    #[test]
    fn a_balancer_is_one_for_the_listeners_that_name_it() {
        let listener = |networks: &[(&str, u8)]| Listener {
            balancers: networks.iter().map(|(ip, bits)| Network::new(ip.parse().unwrap(), *bits).unwrap()).collect(),
            ..Listener::new(Transport::Tcp, "127.0.0.1:0".parse().unwrap())
        };
        let balancers = Balancers::of(&[listener(&[]), listener(&[("192.0.2.7", 32), ("2001:db8::", 64)])]);
        let is_one = |listener: u16, source: &str| balancers.contains(ListenerId(listener), source.parse().unwrap());
        for source in ["192.0.2.7", "::ffff:192.0.2.7", "2001:db8::9"] {
            assert_eq!([0, 1, 2].map(|listener| is_one(listener, source)), [false, true, false], "{source}");
        }
        assert!(!is_one(1, "192.0.2.8") && !is_one(1, "2001:db8:0:1::1"));
    }

    #[test]
    fn generations_grow_and_tell_a_balancer() {
        let mut last = 0;
        for is_balancer in [false, true, true, false, false, true] {
            let next = next_generation(last, is_balancer);
            assert!(next > last && next <= last + 3, "{last} {next}");
            let flow = Flow { node: 0, process: 0, shard: 0, slot: 0, generation: next };
            assert_eq!(flow.is_balanced(), is_balancer);
            last = next;
        }
        assert_eq!([next_generation(u32::MAX, false), next_generation(u32::MAX - 1, true)], [0, 1]);
        assert!(!Flow::LOOPBACK.is_balanced());
    }
}
