//! Table of the connections of a shard, by slot.

#![cfg_attr(not(test), expect(dead_code, reason = "until connections are entries"))]

use crate::balancers::next_generation;
use crate::entry::Entry;
use crate::tick::Tick;

/// Number of entries that are allocated at once, 104 KB. So a growing table is never copied, and has few entries too many.
const CHUNK: usize = 1_024;

/// Entries by slot. An entry never moves. The slot that was left last is used first.
#[derive(Default)]
pub(crate) struct Slab {
    chunks: Vec<Box<[Place]>>,
    /// Slots that were used and are free.
    free: Vec<u32>,
    /// Number of slots that were ever used.
    used: u32,
}

enum Place {
    /// Generation of the last entry.
    Free(u32),
    Used(Entry),
}

const _: () = assert!(size_of::<Place>() == size_of::<Entry>());

impl Slab {
    /// Inserts an entry with the next generation of its slot. Returns the slot.
    pub(crate) fn insert(&mut self, entry: Entry) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| self.grow());
        let place = &mut self.chunks[slot as usize / CHUNK][slot as usize % CHUNK];
        let last = match place {
            Place::Free(generation) => *generation,
            Place::Used(entry) => entry.generation,
        };
        let generation = next_generation(last, entry.is_balanced());
        *place = Place::Used(Entry { generation, ..entry });
        slot
    }

    /// Adds a slot.
    fn grow(&mut self) -> u32 {
        let slot = self.used;
        if slot as usize == self.chunks.len() * CHUNK {
            self.chunks.push((0..CHUNK).map(|_| Place::Free(0)).collect());
        }
        self.used += 1;
        slot
    }

    /// Returns the number of slots: those that are used, and those that were.
    pub(crate) fn slots(&self) -> u32 {
        self.used
    }

    fn place(&mut self, slot: u32) -> Option<&mut Place> {
        self.chunks.get_mut(slot as usize / CHUNK)?.get_mut(slot as usize % CHUNK)
    }

    /// Returns the entry of a slot.
    pub(crate) fn get(&mut self, slot: u32) -> Option<&mut Entry> {
        match self.place(slot)? {
            Place::Used(entry) => Some(entry),
            Place::Free(_) => None,
        }
    }

    /// Returns the entry of a slot if it has this generation: an event or flow may name an earlier one.
    pub(crate) fn same(&mut self, slot: u32, generation: u32) -> Option<&mut Entry> {
        self.get(slot).filter(|entry| entry.generation == generation)
    }

    /// Removes an entry, which has left the wheel before. Its generation is not used again.
    pub(crate) fn remove(&mut self, slot: u32) -> Option<Entry> {
        let place = self.place(slot)?;
        let Place::Used(Entry { generation, times, .. }) = place else { return None };
        debug_assert!(times.timeout_at == Tick::NEVER, "neighbours in the wheel name this slot");
        let free = Place::Free(*generation);
        let Place::Used(entry) = std::mem::replace(place, free) else { return None };
        self.free.push(slot);
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::Initiator;

    #[test]
    fn a_slot_has_one_entry_at_a_time() {
        let mut slab = Slab::default();
        let slots: Vec<u32> = (0..3).map(|_| slab.insert(Entry::sample(Initiator::Peer))).collect();
        assert_eq!(slots, [0, 1, 2]);
        assert!(slab.get(3).is_none() && slab.get(u32::MAX).is_none() && slab.remove(u32::MAX).is_none());
        assert_eq!(slab.remove(1).map(|entry| entry.generation), Some(2));
        assert!(slab.get(1).is_none() && slab.remove(1).is_none());
        slab.remove(0);
        let slots = [(); 3].map(|()| slab.insert(Entry::sample(Initiator::Peer)));
        assert_eq!((slots, slab.slots()), ([0, 1, 3], 4), "the slot that was left last is used first");
    }

    #[test]
    fn an_ended_connection_is_not_taken_for_the_next_one_of_its_slot() {
        let mut slab = Slab::default();
        let mut last = 0;
        for initiator in [Initiator::Peer, Initiator::Balancer, Initiator::BehindBalancer, Initiator::Own] {
            let slot = slab.insert(Entry::sample(initiator));
            let generation = slab.get(slot).unwrap().generation;
            assert!(slot == 0 && generation > last);
            assert_eq!(generation & 1 == 1, matches!(initiator, Initiator::Balancer | Initiator::BehindBalancer));
            assert!(slab.same(slot, last).is_none() && slab.same(slot, generation).is_some());
            slab.remove(slot);
            assert!(slab.same(slot, generation).is_none());
            last = generation;
        }
    }

    #[test]
    fn entries_stay_in_their_places_when_the_table_grows() {
        let mut slab = Slab::default();
        let first = slab.insert(Entry::sample(Initiator::Peer));
        slab.get(first).unwrap().charged = 77;
        let place = &raw const *slab.get(first).unwrap();
        let most = 5 * CHUNK as u32;
        for i in 1..most {
            assert_eq!(slab.insert(Entry::sample(Initiator::Peer)), i);
            slab.get(i).unwrap().charged = i;
        }
        assert_eq!((&raw const *slab.get(first).unwrap(), slab.chunks.len()), (place, 5));
        assert_eq!(slab.get(first).unwrap().charged, 77);
        assert!((1..most).all(|i| slab.get(i).is_some_and(|entry| entry.charged == i)));
        for i in 0..most {
            slab.remove(i);
        }
        for _ in 0..most {
            slab.insert(Entry::sample(Initiator::Peer));
        }
        assert_eq!((slab.slots(), slab.chunks.len()), (most, 5), "ended connections leave their places to others");
    }

    #[test]
    #[should_panic(expected = "neighbours in the wheel")]
    fn an_entry_leaves_the_wheel_before_the_table() {
        let (mut slab, mut wheel) = (Slab::default(), crate::wheel::Wheel::default());
        let slot = slab.insert(Entry::sample(Initiator::Peer));
        wheel.set(&mut slab, slot, Tick::numbered(7));
        slab.remove(slot);
    }
}
