//! Free media ports that media threads have lent to a shard.

use super::SessionPorts;
use std::collections::VecDeque;
use strowger_media::session::{PortPair, SessionOrder};

/// Largest stock: lending takes a message to the media thread and back, in which a burst of 200 calls with two pairs each may come.
const LARGEST_BLOCK: usize = 420;

/// Pairs that an empty shard asks for: a media thread binds them at once, and the stock follows.
const FIRST: usize = 16;

/// Smallest stock.
const SMALLEST_BLOCK: usize = 4;

/// Largest number of pairs that are given back at once: closing them holds the media thread up.
const GIVEN_BACK: usize = 32;

/// Free ports of a shard.
#[derive(Debug, Default)]
pub(crate) struct MediaPorts {
    /// Pairs in the order of their return, so that a pair rests before its next call: late packets of the last call reach
    /// no call.
    free: VecDeque<PortPair>,
    /// Media thread for new sessions.
    thread: u16,
    /// Set while an order for more is open.
    has_asked: bool,
}

/// Stock of free pairs of a family of addresses: a shard with less asks for as many again, so that one answer fills the stock after a burst that
/// has emptied it. The stocks of all shards together are at most an eighth of the pairs, because a pair that one shard has is no pair for the
/// others; with what a shard gets above its stock, it is a quarter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block(usize);

impl Block {
    /// Returns the stock for this number of pairs and of shards.
    pub(super) fn of(pairs: usize, shards: usize) -> Self {
        Self((pairs / (8 * shards.max(1))).clamp(SMALLEST_BLOCK, LARGEST_BLOCK))
    }
}

impl MediaPorts {
    /// Sets the media thread for new sessions: the least busy one.
    pub(super) fn prefer(&mut self, thread: u16) {
        self.thread = thread;
    }

    /// Returns the order for more ports of the thread for new sessions if the stock of a family of addresses is not full, or the
    /// order that gives some of many back. `families`: tell whether the media address at a place of the configuration is one of theirs.
    pub(super) fn balance(
        &mut self,
        shard: usize,
        Block(block): Block,
        families: &[&dyn Fn(u16) -> bool],
    ) -> Option<SessionOrder> {
        if self.free.len() > 3 * block * families.len() {
            return Some(SessionOrder::Return(self.surplus(block.min(GIVEN_BACK))));
        }
        let is_few = |is_of: &&dyn Fn(u16) -> bool| {
            let is_meant = |ports: &&PortPair| ports.thread == self.thread && is_of(ports.address);
            self.free.iter().filter(is_meant).take(block).count() < block
        };
        let asks = !self.has_asked && families.iter().any(is_few);
        self.has_asked |= asks;
        let pairs = if self.free.is_empty() { block.min(FIRST) } else { block };
        asks.then_some(SessionOrder::Lend { shard: shard as u16, pairs: pairs as u16 })
    }

    /// Removes so many free pairs, those of other media threads first.
    fn surplus(&mut self, most: usize) -> Vec<PortPair> {
        let mut surplus = Vec::with_capacity(most);
        self.free.retain(|ports| {
            let goes = ports.thread != self.thread && surplus.len() < most;
            surplus.extend(goes.then_some(*ports));
            !goes
        });
        let rest = (most - surplus.len()).min(self.free.len());
        surplus.extend(self.free.drain(..rest));
        surplus
    }

    /// Adds lent ports; none if no port is free in the process.
    pub(super) fn lent(&mut self, ports: Vec<PortPair>) {
        self.has_asked = false;
        self.free.extend(ports);
    }

    /// Tells whether an order for more ports has no answer yet.
    pub(crate) const fn awaits_more(&self) -> bool {
        self.has_asked
    }

    /// Returns the number of free pairs.
    pub(crate) fn free(&self) -> usize {
        self.free.len()
    }

    /// Removes pairs that are not bound.
    pub(super) fn forget(&mut self, ports: &[PortPair]) {
        self.free.retain(|free| !ports.contains(free));
    }

    /// Adds the ports of a session that has ended.
    pub(super) fn put_back(&mut self, ports: PortPair) {
        self.free.push_back(ports);
    }

    /// Takes a free pair, if possible of the thread for new sessions. `fits`: tells whether the media address at this place of the configuration can
    /// be used.
    pub(crate) fn take(&mut self, fits: impl Fn(u16) -> bool) -> Option<PortPair> {
        let is_preferred = |ports: &PortPair| ports.thread == self.thread && fits(ports.address);
        let preferred = self.free.iter().position(is_preferred);
        let place = preferred.or_else(|| self.free.iter().position(|ports| fits(ports.address)))?;
        self.free.remove(place)
    }

    /// Takes this number of free pairs for each leg of a bridged call, all of one media thread, if possible of that for new sessions. `near` and
    /// `far`: tell whether the media address at this place of the configuration can be used for the leg.
    pub(crate) fn take_legs(
        &mut self,
        streams: usize,
        near: impl Fn(u16) -> bool,
        far: impl Fn(u16) -> bool,
    ) -> Option<SessionPorts> {
        let mut threads = vec![self.thread];
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
        let balance = |ports: &mut MediaPorts| ports.balance(3, Block::of(256, 4), &[&|_| true]);
        let asked = Some(SessionOrder::Lend { shard: 3, pairs: 8 });
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
    fn a_burst_of_bridged_calls_finds_ports_before_any_answer() {
        let mut ports = MediaPorts::default();
        let block = Block::of(8_192, 2);
        let first = SessionOrder::Lend { shard: 0, pairs: 16 };
        assert_eq!(ports.balance(0, block, &[&|_| true]), Some(first), "the first calls wait for no whole stock");
        ports.lent(pairs(16));
        for _ in 0..2 {
            // Between two bursts there is one answer.
            let Some(SessionOrder::Lend { pairs: wanted, .. }) = ports.balance(0, block, &[&|_| true]) else {
                panic!("the stock is not full")
            };
            ports.lent(pairs(wanted));
            let mut questions = 0;
            for call in 0..200 {
                questions += usize::from(ports.balance(0, block, &[&|_| true]).is_some());
                assert!(ports.take(|_| true).is_some() && ports.take(|_| true).is_some(), "call {call}");
            }
            assert_eq!(questions, 1);
            ports.lent(Vec::new());
        }
    }

    #[test]
    fn a_pair_rests_before_its_next_call_and_a_surplus_goes_back() {
        let mut ports = MediaPorts::default();
        ports.lent(pairs(2));
        let first = ports.take(|_| true).expect("two are free");
        ports.put_back(first);
        assert_ne!(ports.take(|_| true), Some(first));
        let block = Block::of(8_192, 16);
        assert_eq!(block.0, 64);
        ports.lent(pairs(3 * 64 + 32));
        let Some(SessionOrder::Return(back)) = ports.balance(0, block, &[&|_| true]) else { panic!("225 are free") };
        assert_eq!(back.len(), 32);
        let Some(SessionOrder::Return(back)) = ports.balance(0, block, &[&|_| true]) else { panic!("193 are free") };
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
            ports.balance(0, Block::of(64, 1), &[&|address| address == 0, &|address| address == 1])
        };
        ports.lent(pairs(32));
        for _ in 0..8 {
            assert_eq!(balance(&mut ports), None);
            assert!(ports.take(|address| address == 1).is_some());
        }
        assert_eq!(balance(&mut ports), None);
        assert!(ports.take(|address| address == 1).is_some());
        assert_eq!(balance(&mut ports), Some(SessionOrder::Lend { shard: 0, pairs: 8 }));
    }

    #[test]
    fn free_ports_follow_the_thread_for_new_sessions() {
        let mut ports = MediaPorts::default();
        let block = Block::of(256, 4);
        let balance = |ports: &mut MediaPorts| ports.balance(0, block, &[&|_| true]);
        let of_second = |count: u16| {
            (0..count).map(|n| PortPair { thread: 1, address: 0, rtp: 30_000 + 2 * n }).collect::<Vec<_>>()
        };
        ports.lent(pairs(16));
        assert_eq!(balance(&mut ports), None);
        ports.prefer(1);
        assert_eq!(balance(&mut ports), Some(SessionOrder::Lend { shard: 0, pairs: 8 }));
        // Until its ports are lent, those of the other thread serve.
        assert_eq!(ports.take(|_| true).map(|pair| pair.thread), Some(0));
        ports.lent(of_second(11));
        assert_eq!(
            (ports.take(|_| true).map(|pair| pair.thread), balance(&mut ports)),
            (Some(1), Some(SessionOrder::Return(pairs(9)[1..].to_vec())))
        );
        assert_eq!((balance(&mut ports), ports.free.len()), (None, 17));
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
        let blocks = [(0, 0), (1, 64), (8_192, 1), (8_192, 4), (8_192, 16), (60_000, 1)];
        assert_eq!(blocks.map(|(pairs, shards)| Block::of(pairs, shards).0), [4, 4, 420, 256, 64, 420]);
    }
}
