//! Load balancers of each listener. Their connections begin with a header of the PROXY protocol; a header of any other source is not read.

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

#[cfg(test)]
mod tests {
    use super::*;
    use strowger_core::Transport;

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
}
