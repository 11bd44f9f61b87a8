//! Free media ports that media threads have lent to a shard.

use super::SessionPorts;
use std::collections::VecDeque;
use strowger_media::session::{PortPair, SessionOrder};

/// Largest number of pairs that a shard asks for, or gives back, at once.
const BLOCK: usize = 32;

/// Smallest number: lending takes a message to the media thread and back, in which further calls may come.
const SMALLEST_BLOCK: usize = 4;

/// Largest number of free pairs of a family of addresses below which the shard asks for more.
const FEW: usize = 8;

/// Free ports of a shard.
#[derive(Debug, Default)]
pub(crate) struct MediaPorts {
    /// Pairs in the order of their return, so that a pair rests before its next call: late packets of the last call reach
    /// no call.
    free: VecDeque<PortPair>,
    /// Set while an order for more is open.
    has_asked: bool,
}

/// Block of ports for which a shard asks: small if there are few ports, because a port that one shard has is no port for
/// the others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block(usize);

impl Block {
    /// Returns the block for this number of pairs and of shards.
    pub(super) fn of(pairs: usize, shards: usize) -> Self {
        Self((pairs / (4 * shards.max(1))).clamp(SMALLEST_BLOCK, BLOCK))
    }
}

impl MediaPorts {
    /// Returns the order for more ports if few of a family of addresses are free, or the order that gives some of many
    /// back. `families`: tell whether the media address at a place of the configuration is one of theirs.
    pub(super) fn balance(
        &mut self,
        shard: usize,
        Block(block): Block,
        families: &[&dyn Fn(u16) -> bool],
    ) -> Option<SessionOrder> {
        if self.free.len() > 3 * block * families.len() {
            return Some(SessionOrder::Return(self.free.drain(..block).collect()));
        }
        let is_few = |is_of: &&dyn Fn(u16) -> bool| {
            self.free.iter().filter(|ports| is_of(ports.address)).take(FEW).count() < block.min(FEW)
        };
        let asks = !self.has_asked && families.iter().any(is_few);
        self.has_asked |= asks;
        asks.then_some(SessionOrder::Lend { shard: shard as u16, pairs: block as u16 })
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
    pub(crate) fn take(&mut self, fits: impl Fn(u16) -> bool) -> Option<PortPair> {
        let place = self.free.iter().position(|ports| fits(ports.address))?;
        self.free.remove(place)
    }

    /// Takes this number of free pairs for each leg of a bridged call, all of one media thread. `near` and `far`: tell whether the media
    /// address at this place of the configuration can be used for the leg.
    pub(crate) fn take_legs(
        &mut self,
        streams: usize,
        near: impl Fn(u16) -> bool,
        far: impl Fn(u16) -> bool,
    ) -> Option<SessionPorts> {
        let mut threads: Vec<u16> = Vec::new();
        for ports in &self.free {
            if !threads.contains(&ports.thread) {
                threads.push(ports.thread);
            }
        }
        let legs: [&dyn Fn(u16) -> bool; 2] = [&near, &far];
        let taken = threads.into_iter().find_map(|thread| self.legs_of(thread, streams, legs))?;
        self.free.retain(|ports| !taken.near.contains(ports) && !taken.far.contains(ports));
        Some(taken)
    }

    fn legs_of(&self, thread: u16, streams: usize, legs: [&dyn Fn(u16) -> bool; 2]) -> Option<SessionPorts> {
        let [near, far] = legs;
        let of_thread = |fits: &dyn Fn(u16) -> bool, others: &[PortPair]| {
            let is_free = |ports: &&PortPair| ports.thread == thread && fits(ports.address) && !others.contains(ports);
            let pairs: Vec<PortPair> = self.free.iter().filter(is_free).take(streams).copied().collect();
            (pairs.len() == streams).then_some(pairs)
        };
        let near = of_thread(near, &[])?;
        let far = of_thread(far, &near)?;
        Some(SessionPorts { near, far })
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
        let balance = |ports: &mut MediaPorts| ports.balance(3, Block::of(8_192, 4), &[&|_| true]);
        let asked = Some(SessionOrder::Lend { shard: 3, pairs: 32 });
        assert_eq!([balance(&mut ports), balance(&mut ports)], [asked.clone(), None]);
        ports.lent(pairs(9));
        assert_eq!(balance(&mut ports), None);
        assert_eq!(ports.take(|address| address == 1).map(|pair| pair.rtp), Some(20_002));
        assert_eq!(balance(&mut ports), None);
        assert_eq!(ports.take(|_| true).map(|pair| pair.rtp), Some(20_000));
        assert_eq!(balance(&mut ports), asked.clone());
        ports.lent(Vec::new());
        assert_eq!(balance(&mut ports), asked, "an empty answer allows the next question");
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
        let block = Block::of(8_192, 4);
        let Some(SessionOrder::Return(back)) = ports.balance(0, block, &[&|_| true]) else { panic!("98 are free") };
        assert_eq!((back.len(), ports.balance(0, block, &[&|_| true])), (32, None));
    }

    #[test]
    fn the_legs_of_a_call_have_ports_of_one_thread() {
        let mut ports = MediaPorts::default();
        let pair = |thread, address, rtp| PortPair { thread, address, rtp };
        ports.lent(vec![pair(0, 0, 10), pair(1, 0, 20), pair(1, 1, 22), pair(0, 1, 12), pair(1, 0, 24)]);
        let (first, second) = (|address: u16| address == 0, |address: u16| address == 1);
        assert_eq!(ports.take_legs(2, first, second), None, "no thread has two of both");
        let taken = ports.take_legs(1, first, second).expect("thread 0 has both");
        assert_eq!((taken.near, taken.far), (vec![pair(0, 0, 10)], vec![pair(0, 1, 12)]));
        let taken = ports.take_legs(1, first, first).expect("thread 1 has two");
        assert_eq!((taken.near, taken.far), (vec![pair(1, 0, 20)], vec![pair(1, 0, 24)]));
        assert_eq!(ports.take(|_| true), Some(pair(1, 1, 22)), "a refusal has taken none");
    }

    #[test]
    fn a_shard_asks_if_one_family_has_few() {
        let mut ports = MediaPorts::default();
        let balance = |ports: &mut MediaPorts| {
            ports.balance(0, Block::of(8_192, 1), &[&|address| address == 0, &|address| address == 1])
        };
        ports.lent(pairs(32));
        for _ in 0..8 {
            assert_eq!(balance(&mut ports), None);
            assert!(ports.take(|address| address == 1).is_some());
        }
        assert_eq!(balance(&mut ports), None);
        assert!(ports.take(|address| address == 1).is_some());
        assert_eq!(balance(&mut ports), Some(SessionOrder::Lend { shard: 0, pairs: 32 }));
    }

    #[test]
    fn shards_leave_ports_to_each_other() {
        // 50 calls on 4 shards: a shard that has asked once leaves most to the others.
        let mut ports = MediaPorts::default();
        let block = Block::of(50, 4);
        assert_eq!(ports.balance(0, block, &[&|_| true]), Some(SessionOrder::Lend { shard: 0, pairs: 4 }));
        ports.lent(pairs(13));
        let Some(SessionOrder::Return(back)) = ports.balance(0, block, &[&|_| true]) else { panic!("13 are free") };
        assert_eq!((back.len(), ports.balance(0, block, &[&|_| true])), (4, None));
        assert_eq!([Block::of(0, 0).0, Block::of(1, 64).0, Block::of(8_192, 4).0], [4, 4, 32]);
    }
}
