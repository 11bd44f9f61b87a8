//! Free media ports that media threads have lent to a shard.

use std::collections::VecDeque;
use strowger_media::session::{PortPair, SessionOrder};

/// Pairs that a shard asks for, or gives back, at once.
const BLOCK: u16 = 32;

/// Number of free pairs below which the shard asks for more.
const FEW: usize = 8;

/// Number of free pairs above which the shard gives a block back.
const MANY: usize = 3 * BLOCK as usize;

/// Free ports of a shard.
#[derive(Debug, Default)]
pub(super) struct MediaPorts {
    /// Pairs in the order of their return, so that a pair rests before its next call: late packets of the last call reach
    /// no call.
    free: VecDeque<PortPair>,
    /// Set while an order for more is open.
    has_asked: bool,
}

impl MediaPorts {
    /// Returns the order for more ports if few are free, or the order that gives some of many back.
    pub(super) fn balance(&mut self, shard: usize) -> Option<SessionOrder> {
        if self.free.len() > MANY {
            return Some(SessionOrder::Return(self.free.drain(..usize::from(BLOCK)).collect()));
        }
        let asks = self.free.len() < FEW && !self.has_asked;
        self.has_asked |= asks;
        asks.then_some(SessionOrder::Lend { shard: shard as u16, pairs: BLOCK })
    }

    /// Adds lent ports; none if no port is free in the process.
    pub(super) fn lent(&mut self, ports: Vec<PortPair>) {
        self.has_asked = false;
        self.free.extend(ports);
    }

    /// Adds the ports of a session that has ended.
    pub(super) fn put_back(&mut self, ports: PortPair) {
        self.free.push_back(ports);
    }

    /// Takes a free pair. `fits`: tells whether the media address at this place of the configuration can be used.
    pub(super) fn take(&mut self, fits: impl Fn(u16) -> bool) -> Option<PortPair> {
        let place = self.free.iter().position(|ports| fits(ports.address))?;
        self.free.remove(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(count: u16) -> Vec<PortPair> {
        (0..count).map(|n| PortPair { thread: 0, address: n % 2, rtp: 20_000 + 2 * n }).collect()
    }

    #[test]
    fn a_shard_asks_once_and_in_time() {
        let mut ports = MediaPorts::default();
        let asked = Some(SessionOrder::Lend { shard: 3, pairs: 32 });
        assert_eq!([ports.balance(3), ports.balance(3)], [asked.clone(), None]);
        ports.lent(pairs(9));
        assert_eq!(ports.balance(3), None);
        assert_eq!(ports.take(|address| address == 1).map(|pair| pair.rtp), Some(20_002));
        assert_eq!(ports.balance(3), None);
        assert_eq!(ports.take(|_| true).map(|pair| pair.rtp), Some(20_000));
        assert_eq!(ports.balance(3), asked.clone());
        ports.lent(Vec::new());
        assert_eq!(ports.balance(3), asked, "an empty answer allows the next question");
        assert_eq!(ports.take(|address| address == 2), None);
    }

    #[test]
    fn a_pair_rests_before_its_next_call_and_a_surplus_goes_back() {
        let mut ports = MediaPorts::default();
        ports.lent(pairs(2));
        let first = ports.take(|_| true).expect("two are free");
        ports.put_back(first);
        assert_ne!(ports.take(|_| true), Some(first));
        ports.lent(pairs(97));
        let Some(SessionOrder::Return(back)) = ports.balance(0) else { panic!("98 are free") };
        assert_eq!((back.len(), ports.balance(0)), (32, None));
    }
}
