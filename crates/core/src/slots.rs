//! Table of entries in segments: it grows without copying, names entries by checked ids and frees spare memory.

use crate::segments::{self, Segments};
use serde::{Deserialize, Serialize};

/// Bits of a generation: a table makes this many insertions before an id repeats. The other bits of a word are free for other data.
pub const GENERATION_BITS: u32 = 28;

/// Id of an entry of a [`Slots`]: its slot, and the use of the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Id {
    /// Position in the table; another entry may have the same position later.
    pub slot: u32,
    /// Number of the insertion in the whole table, so that an id is not mistaken for a later one of the same slot. Never 0, below
    /// 2^[`GENERATION_BITS`].
    pub generation: u32,
}

impl Id {
    /// Returns the id as one word, never 0, which other parts can store as a token.
    pub const fn to_u64(self) -> u64 {
        (self.generation as u64) << 32 | self.slot as u64
    }

    /// Reads an id from a word. Any word may be given; an invalid id finds nothing.
    pub const fn from_u64(word: u64) -> Self {
        Self { slot: word as u32, generation: (word >> 32) as u32 }
    }
}

/// Defines ids of one kind of entry, as a type of its own.
macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
        pub struct $name(pub(super) crate::slots::Id);

        impl $name {
            /// Returns the id as one word, never 0.
            pub const fn to_u64(self) -> u64 {
                self.0.to_u64()
            }

            /// Reads an id from a word. Any word may be given; an invalid id finds nothing.
            pub const fn from_u64(word: u64) -> Self {
                Self(crate::slots::Id::from_u64(word))
            }
        }
    )*};
}
pub(crate) use ids;

/// Entries of a segment. The zero bits of one `u128` mark its free places.
const SEGMENT: usize = 128;

/// Slab in segments of 128 entries.
///
/// The lowest free place is used first, so that the upper segments become empty when the load falls; [`Slots::tidy`]
/// frees empty segments. Growth copies nothing.
#[derive(Debug)]
pub struct Slots<T> {
    segments: Segments<Segment<T>>,
    len: usize,
    generation: u32,
}

#[derive(Debug)]
struct Segment<T> {
    used: u128,
    generations: [u32; SEGMENT],
    values: Box<[Option<T>]>,
}

impl<T> segments::Segment for Segment<T> {
    fn new(_number: usize) -> Box<Self> {
        Box::new(Self { used: 0, generations: [0; SEGMENT], values: (0..SEGMENT).map(|_| None).collect() })
    }

    fn is_empty(&self) -> bool {
        self.used == 0
    }

    fn is_full(&self) -> bool {
        self.used == u128::MAX
    }
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Slots<T> {
    /// Creates an empty table, without memory until the first insertion.
    pub fn new() -> Self {
        Self { segments: Segments::default(), len: 0, generation: 0 }
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Tells whether there is no entry; segments may still have memory.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of allocated segments, empty ones included.
    pub fn segments(&self) -> usize {
        self.segments.held()
    }

    /// Returns the bytes that the segments take.
    pub fn memory(&self) -> usize {
        self.segments.held() * (size_of::<Segment<T>>() + SEGMENT * size_of::<Option<T>>())
    }

    /// Inserts into the lowest free place.
    pub fn insert(&mut self, value: T) -> Id {
        self.generation = (self.generation + 1) % (1 << GENERATION_BITS);
        self.generation = self.generation.max(1);
        let generation = self.generation;
        let (at, place) = self.segments.take(|segment| {
            let place = segment.used.trailing_ones() as usize;
            segment.used |= 1 << place;
            segment.generations[place] = generation;
            segment.values[place] = Some(value);
            place
        });
        self.len += 1;
        Id { slot: (at * SEGMENT + place) as u32, generation }
    }

    #[inline]
    fn segment(&self, slot: u32) -> Option<&Segment<T>> {
        self.segments.get(slot as usize / SEGMENT)
    }

    /// Returns an entry; `None` if it was removed, or never existed.
    pub fn get(&self, id: Id) -> Option<&T> {
        let segment = self.segment(id.slot)?;
        let place = id.slot as usize % SEGMENT;
        (segment.generations[place] == id.generation).then_some(segment.values[place].as_ref())?
    }

    /// Returns an entry as [`Slots::get`] does.
    pub fn get_mut(&mut self, id: Id) -> Option<&mut T> {
        let segment = self.segments.get_mut(id.slot as usize / SEGMENT)?;
        let place = id.slot as usize % SEGMENT;
        (segment.generations[place] == id.generation).then_some(segment.values[place].as_mut())?
    }

    /// Returns the current entry of this slot, with its id.
    pub fn at(&self, slot: u32) -> Option<(Id, &T)> {
        let segment = self.segment(slot)?;
        let place = slot as usize % SEGMENT;
        segment.values[place].as_ref().map(|value| (Id { slot, generation: segment.generations[place] }, value))
    }

    /// Removes an entry and frees its place; returns `None` if there is no such entry.
    pub fn remove(&mut self, id: Id) -> Option<T> {
        let at = id.slot as usize / SEGMENT;
        let segment = self.segments.get_mut(at)?;
        let place = id.slot as usize % SEGMENT;
        if segment.generations[place] != id.generation {
            return None;
        }
        let value = segment.values[place].take()?;
        segment.used &= !(1 << place);
        self.segments.gave(at);
        self.len -= 1;
        Some(value)
    }

    /// Returns a slot number such that no slot from it on has an entry.
    pub fn end(&self) -> u32 {
        (self.segments.end() * SEGMENT) as u32
    }

    /// Returns every entry, in the order of slots.
    pub fn iter(&self) -> impl Iterator<Item = (Id, &T)> {
        self.segments.iter().flat_map(|(at, segment)| {
            segment.values.iter().enumerate().filter_map(move |(place, value)| {
                let id = Id { slot: (at * SEGMENT + place) as u32, generation: segment.generations[place] };
                value.as_ref().map(|value| (id, value))
            })
        })
    }

    /// Frees segments that were not needed since the call before the last. To be called about once a second.
    ///
    /// Returns true if a later call may return more memory without any other event.
    pub fn tidy(&mut self) -> bool {
        self.segments.tidy()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_name_one_use_of_a_slot() {
        let mut slots = Slots::new();
        let a = slots.insert("a");
        assert_eq!(slots.get(a), Some(&"a"));
        assert_eq!(Id::from_u64(a.to_u64()), a);
        assert_eq!(slots.remove(a), Some("a"));
        let b = slots.insert("b");
        assert_eq!(b.slot, a.slot, "the lowest place is used again");
        assert_eq!(slots.remove(a), None);
        assert_eq!((slots.get(a), slots.get(b)), (None, Some(&"b")));
        assert_eq!(slots.at(b.slot), Some((b, &"b")));
        assert_eq!(slots.get(Id::from_u64(0)), None);
        assert_eq!(slots.get(Id::from_u64(u64::MAX)), None);
    }

    #[test]
    fn empty_segments_are_given_back_and_ids_stay_unique() {
        let mut slots = Slots::new();
        let ids: Vec<Id> = (0..10_000).map(|n| slots.insert(n)).collect();
        assert_eq!(slots.segments(), 10_000usize.div_ceil(SEGMENT));
        assert_eq!(slots.iter().map(|(_, &n)| n).sum::<i32>(), (0..10_000).sum());
        for (n, &id) in ids.iter().enumerate() {
            assert_eq!(slots.remove(id), Some(n as i32));
        }
        let mut periods = 0;
        while slots.tidy() {
            periods += 1;
            assert!(periods < 4);
        }
        assert_eq!((slots.segments(), slots.len()), (0, 0));
        let again: Vec<Id> = (0..10_000).map(|n| slots.insert(n)).collect();
        assert!(ids.iter().all(|&id| slots.get(id).is_none()));
        assert!(again.iter().all(|&id| slots.get(id).is_some()));
    }

    #[test]
    fn a_wavering_load_keeps_its_segments() {
        let mut slots = Slots::new();
        let mut ids: Vec<Id> = (0..1000).map(|n| slots.insert(n)).collect();
        for _ in 0..10 {
            let held = slots.segments();
            for id in ids.drain(700..) {
                slots.remove(id);
            }
            slots.tidy();
            ids.extend((700..1000).map(|n| slots.insert(n)));
            assert_eq!(slots.segments(), held);
        }
        for id in ids.drain(100..) {
            slots.remove(id);
        }
        for _ in 0..3 {
            slots.tidy();
        }
        assert!(slots.segments() <= 3, "{}", slots.segments());
    }
}
