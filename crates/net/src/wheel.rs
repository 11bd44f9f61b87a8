//! Time-outs of the connections of a shard: a circle of buckets, one for each tick of 6.8 minutes.
//!
//! A time-out is a number in the entry of its connection and two links to its neighbours in the bucket, so a connection that ends leaves nothing. A
//! bucket also has time-outs of later rotations: they stay when the time passes it.

#![cfg_attr(not(test), expect(dead_code, reason = "until connections are entries"))]

use crate::entry::WheelLinks;
use crate::slab::Slab;
use crate::tick::Tick;

/// Number of buckets, a power of 2.
const BUCKETS: u32 = 4_096;

/// No slot.
const NONE: u32 = WheelLinks::NONE;

/// Time-outs of the entries of a [`Slab`].
pub(crate) struct Wheel {
    /// First slot of each bucket.
    first: Box<[u32]>,
    /// Buckets that are not empty, a bit for each.
    used: [u64; BUCKETS as usize / 64],
    /// Last tick whose time-outs were removed.
    passed: Tick,
}

impl Default for Wheel {
    fn default() -> Self {
        Self { first: vec![NONE; BUCKETS as usize].into(), used: [0; BUCKETS as usize / 64], passed: Tick::default() }
    }
}

fn bucket(at: Tick) -> usize {
    (at.number() % BUCKETS) as usize
}

impl Wheel {
    /// Sets the time-out of an entry; [`Tick::NEVER`]: none. One that is due already comes with the next tick. So a shard that prolongs connections
    /// neither meets one of them twice in a round nor runs without sleep.
    pub(crate) fn set(&mut self, slab: &mut Slab, slot: u32, at: Tick) {
        let at = at.max(self.passed.plus(1));
        let Some(entry) = slab.get(slot).filter(|entry| entry.times.timeout_at != at) else { return };
        if entry.times.timeout_at != Tick::NEVER {
            self.clear(slab, slot);
        }
        if at == Tick::NEVER {
            return;
        }
        let bucket = bucket(at);
        let next = std::mem::replace(&mut self.first[bucket], slot);
        self.used[bucket / 64] |= 1 << (bucket % 64);
        if let Some(entry) = slab.get(slot) {
            entry.times.timeout_at = at;
            entry.links = WheelLinks { next, previous: NONE };
        }
        if let Some(neighbour) = slab.get(next) {
            neighbour.links.previous = slot;
        }
    }

    /// Removes the time-out of an entry.
    pub(crate) fn clear(&mut self, slab: &mut Slab, slot: u32) {
        let Some(entry) = slab.get(slot).filter(|entry| entry.times.timeout_at != Tick::NEVER) else { return };
        let at = std::mem::replace(&mut entry.times.timeout_at, Tick::NEVER);
        let WheelLinks { next, previous } = entry.links;
        if let Some(neighbour) = slab.get(next) {
            neighbour.links.previous = previous;
        }
        if let Some(neighbour) = slab.get(previous) {
            neighbour.links.next = next;
            return;
        }
        let bucket = bucket(at);
        self.first[bucket] = next;
        if next == NONE {
            self.used[bucket / 64] &= !(1 << (bucket % 64));
        }
    }

    /// Removes the due time-outs, and appends the slots of their entries to `out`, in the order of time if at most a rotation has passed. `now` never
    /// decreases.
    pub(crate) fn due(&mut self, slab: &mut Slab, now: Tick, out: &mut Vec<u32>) {
        if now <= self.passed {
            return;
        }
        // After more than a rotation each bucket is passed once.
        let last = now.min(self.passed.plus(BUCKETS));
        let mut from = self.passed.plus(1);
        while let Some(tick) = self.next_used(from).filter(|tick| *tick <= last) {
            self.take(slab, bucket(tick), now, out);
            from = tick.plus(1);
        }
        self.passed = now;
    }

    /// Removes the due time-outs of a bucket.
    fn take(&mut self, slab: &mut Slab, bucket: usize, now: Tick, out: &mut Vec<u32>) {
        let mut slot = self.first[bucket];
        while let Some(entry) = slab.get(slot) {
            let next = entry.links.next;
            if entry.times.timeout_at <= now {
                self.clear(slab, slot);
                out.push(slot);
            }
            slot = next;
        }
    }

    /// Returns the latest time of the next [`Self::due`]. All time-outs of the bucket may belong to later rotations.
    pub(crate) fn deadline(&self) -> Option<Tick> {
        self.next_used(self.passed.plus(1))
    }

    /// Returns the first tick from this one on, within a rotation, whose bucket is not empty.
    fn next_used(&self, from: Tick) -> Option<Tick> {
        let start = bucket(from);
        // The word of the first bucket is searched twice: from this bucket on, and at the end up to it.
        let words = self.used.len();
        (0..=words).find_map(|i| {
            let word = (start / 64 + i) % words;
            let wanted = match i {
                0 => u64::MAX << (start % 64),
                i if i == words => !(u64::MAX << (start % 64)),
                _ => u64::MAX,
            };
            let found = self.used[word] & wanted;
            let bucket = word as u32 * 64 + found.trailing_zeros();
            (found != 0).then(|| from.plus(bucket.wrapping_sub(start as u32) % BUCKETS))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::Initiator;
    use crate::entry::Entry;
    use std::collections::{BTreeMap, BTreeSet};
    use strowger_core::entropy::Entropy;

    fn at(tick: u64) -> Tick {
        Tick::numbered(tick)
    }

    /// Returns a wheel at this time, and slots of entries without a time-out.
    fn started<const N: usize>(now: u64) -> (Slab, Wheel, [u32; N]) {
        let (mut slab, mut wheel) = (Slab::default(), Wheel::default());
        wheel.due(&mut slab, at(now), &mut Vec::new());
        let slots = [(); N].map(|()| slab.insert(Entry::sample(Initiator::Peer)));
        (slab, wheel, slots)
    }

    fn due(wheel: &mut Wheel, slab: &mut Slab, now: u64) -> Vec<u32> {
        let mut out = Vec::new();
        wheel.due(slab, at(now), &mut out);
        assert!(out.iter().all(|slot| slab.get(*slot).unwrap().times.timeout_at == Tick::NEVER));
        out
    }

    #[test]
    fn a_time_out_comes_at_its_tick_and_once() {
        let (mut slab, mut wheel, [a, b, c]) = started(10);
        assert_eq!(wheel.deadline(), None);
        wheel.set(&mut slab, a, at(13));
        wheel.set(&mut slab, b, at(12));
        wheel.set(&mut slab, c, at(13));
        assert_eq!(wheel.deadline(), Some(at(12)));
        assert_eq!(due(&mut wheel, &mut slab, 11), []);
        assert_eq!(due(&mut wheel, &mut slab, 12), [b]);
        assert_eq!(wheel.deadline(), Some(at(13)));
        assert_eq!(BTreeSet::from_iter(due(&mut wheel, &mut slab, 20)), BTreeSet::from([a, c]));
        assert_eq!((due(&mut wheel, &mut slab, 21), wheel.deadline()), (vec![], None));
    }

    #[test]
    fn a_time_out_of_a_later_rotation_stays() {
        let (mut slab, mut wheel, [soon, later, latest]) = started(10);
        let rotation = u64::from(BUCKETS);
        for (slot, tick) in [(latest, 100 + 2 * rotation), (later, 100 + rotation), (soon, 100)] {
            wheel.set(&mut slab, slot, at(tick));
        }
        assert_eq!(wheel.deadline(), Some(at(100)));
        assert_eq!(due(&mut wheel, &mut slab, 100), [soon]);
        // The bucket comes again after a rotation.
        assert_eq!(wheel.deadline(), Some(at(100 + rotation)));
        assert_eq!(due(&mut wheel, &mut slab, 99 + rotation), []);
        assert_eq!(due(&mut wheel, &mut slab, 100 + rotation), [later]);
        // The process stood still for three rotations.
        wheel.set(&mut slab, soon, at(101 + rotation));
        let all = due(&mut wheel, &mut slab, 100 + 4 * rotation);
        assert_eq!(BTreeSet::from_iter(all), BTreeSet::from([soon, latest]));
        assert_eq!(wheel.deadline(), None);
    }

    #[test]
    fn a_removed_time_out_leaves_its_neighbours() {
        // The bucket has a before b before c, or the reverse: each place is removed once.
        for removed in 0..3 {
            let (mut slab, mut wheel, slots) = started::<3>(10);
            for slot in slots {
                wheel.set(&mut slab, slot, at(50));
            }
            wheel.clear(&mut slab, slots[removed]);
            wheel.clear(&mut slab, slots[removed]);
            slab.remove(slots[removed]);
            let left: BTreeSet<u32> = slots.into_iter().filter(|slot| *slot != slots[removed]).collect();
            // The slot has another connection, whose time-out is later.
            let next = slab.insert(Entry::sample(Initiator::Peer));
            wheel.set(&mut slab, next, at(51));
            assert_eq!(BTreeSet::from_iter(due(&mut wheel, &mut slab, 50)), left, "{removed}");
            assert_eq!(due(&mut wheel, &mut slab, 51), [next]);
        }
        let (mut slab, mut wheel, [a]) = started(10);
        wheel.set(&mut slab, a, at(50));
        wheel.set(&mut slab, a, Tick::NEVER);
        assert_eq!((wheel.deadline(), due(&mut wheel, &mut slab, 50)), (None, vec![]));
    }

    #[test]
    fn a_time_that_has_passed_comes_with_the_next_tick() {
        let (mut slab, mut wheel, [a, b]) = started(0);
        // A process has just begun: its first tick is a time like any other.
        wheel.set(&mut slab, a, at(0));
        assert_eq!((wheel.deadline(), due(&mut wheel, &mut slab, 1)), (Some(at(1)), vec![a]));
        for now in 2..10 {
            // A shard that prolongs both to times that have passed meets each once in a round, and sleeps in between.
            wheel.set(&mut slab, a, at(now - 2));
            wheel.set(&mut slab, b, at(now - 1));
            assert_eq!(wheel.deadline(), Some(at(now)));
            assert_eq!(due(&mut wheel, &mut slab, now - 1), []);
            assert_eq!(due(&mut wheel, &mut slab, now).len(), 2);
        }
    }

    /// Time-outs by slot, and in the order of time.
    #[derive(Default)]
    struct Model {
        times: BTreeMap<u32, u64>,
        order: BTreeSet<(u64, u32)>,
    }

    impl Model {
        fn set(&mut self, slot: u32, at: Option<u64>) {
            if let Some(before) = self.times.remove(&slot) {
                self.order.remove(&(before, slot));
            }
            if let Some(at) = at {
                self.times.insert(slot, at);
                self.order.insert((at, slot));
            }
        }
    }

    #[test]
    fn the_wheel_agrees_with_an_ordered_map() {
        let rotation = u64::from(BUCKETS);
        let mut random = Entropy::new([44; 32]);
        let (mut slab, mut wheel, []) = started(0);
        let mut model = Model::default();
        let (mut now, mut live) = (0, Vec::new());
        for _ in 0..1_000_000 {
            let (choice, n) = (random.u64() % 16, random.u64());
            let any = |live: &[u32]| (!live.is_empty()).then(|| (n >> 32) as usize % live.len());
            match choice {
                0..3 if live.len() < 3_000 => live.push(slab.insert(Entry::sample(Initiator::Peer))),
                0..11 => {
                    let Some(slot) = any(&live).map(|i| live[i]) else { continue };
                    // Times of this and of later rotations, and times that have passed.
                    let tick = match choice {
                        0..5 => now + n % 20,
                        5..8 => now + n % (2 * rotation),
                        8..10 => now + n % (5 * rotation),
                        _ => now.saturating_sub(n % 20),
                    };
                    wheel.set(&mut slab, slot, at(tick));
                    model.set(slot, Some(tick.max(now + 1)));
                }
                11..13 => {
                    let Some(i) = any(&live) else { continue };
                    wheel.clear(&mut slab, live[i]);
                    model.set(live[i], None);
                    if choice == 12 {
                        slab.remove(live.swap_remove(i));
                    }
                }
                _ => {
                    let step = match n % 2_000 {
                        0 => n % (3 * rotation),
                        1..50 => n % 300,
                        _ => n % 2,
                    };
                    now += step;
                    let found = due(&mut wheel, &mut slab, now);
                    let mut expected = BTreeMap::new();
                    while let Some((tick, slot)) = model.order.first().copied().filter(|(tick, _)| *tick <= now) {
                        model.set(slot, None);
                        expected.insert(slot, tick);
                    }
                    assert_eq!(found.len(), expected.len());
                    assert_eq!(found.iter().collect::<BTreeSet<_>>(), expected.keys().collect());
                    assert!(step > rotation || found.is_sorted_by_key(|slot| expected[slot]));
                }
            }
            // The next tick after `now` whose bucket has a time-out.
            if n.is_multiple_of(64) {
                let passes = |tick: u64| now + 1 + (tick - now - 1) % rotation;
                assert_eq!(wheel.deadline(), model.times.values().map(|tick| passes(*tick)).min().map(at));
            }
        }
        assert!(now > 100 * rotation && live.len() > 1_000, "{now} {}", live.len());
    }
}
