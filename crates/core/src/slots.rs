//! A table of entries in segments: it grows without copying, names entries by checked ids and gives memory back.

/// Names one entry of a [`Slots`]: where it stands and which use of the place is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id {
    pub slot: u32,
    /// Never 0. Counts insertions of the whole table, so that an id is not mistaken for a later one of the same slot.
    pub generation: u32,
}

impl Id {
    /// The id as one word, never 0: a token for others to carry.
    pub const fn to_u64(self) -> u64 {
        (self.generation as u64) << 32 | self.slot as u64
    }

    /// Reads the word back. Any word may be given; one that was no id finds nothing.
    pub const fn from_u64(word: u64) -> Self {
        Self { slot: word as u32, generation: (word >> 32) as u32 }
    }
}

/// Entries of a segment; its free places are the zero bits of one `u128`.
const SEGMENT: usize = 128;

/// A slab in segments of 128 entries.
///
/// The lowest place that is free is used first, so that the segments above run empty when the load falls;
/// [`Slots::tidy`] gives wholly empty ones back. Growing copies nothing.
#[derive(Debug)]
pub struct Slots<T> {
    segments: Vec<Option<Box<Segment<T>>>>,
    room: Room,
    held: Held,
    len: usize,
    generation: u32,
}

#[derive(Debug)]
struct Segment<T> {
    used: u128,
    generations: [u32; SEGMENT],
    values: Box<[Option<T>]>,
}

impl<T> Segment<T> {
    fn new() -> Box<Self> {
        Box::new(Self { used: 0, generations: [0; SEGMENT], values: (0..SEGMENT).map(|_| None).collect() })
    }
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Slots<T> {
    pub fn new() -> Self {
        Self { segments: Vec::new(), room: Room::default(), held: Held::default(), len: 0, generation: 0 }
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Segments that hold memory, empty ones included.
    pub fn segments(&self) -> usize {
        self.held.segments
    }

    /// Bytes that the segments take.
    pub fn memory(&self) -> usize {
        self.held.segments * (size_of::<Segment<T>>() + SEGMENT * size_of::<Option<T>>())
    }

    /// Takes the lowest free place.
    pub fn insert(&mut self, value: T) -> Id {
        let at = self.room.lowest().unwrap_or_else(|| {
            self.segments.push(None);
            self.room.set(self.segments.len() - 1);
            self.segments.len() - 1
        });
        let held = &mut self.held;
        let segment = self.segments[at].get_or_insert_with(|| {
            held.segments += 1;
            Segment::new()
        });
        if segment.used == 0 {
            held.begin();
        }
        let place = segment.used.trailing_ones() as usize;
        segment.used |= 1 << place;
        if segment.used == u128::MAX {
            self.room.clear(at);
        }
        self.generation = self.generation.wrapping_add(1).max(1);
        segment.generations[place] = self.generation;
        segment.values[place] = Some(value);
        self.len += 1;
        Id { slot: (at * SEGMENT + place) as u32, generation: self.generation }
    }

    #[inline]
    fn segment(&self, slot: u32) -> Option<&Segment<T>> {
        self.segments.get(slot as usize / SEGMENT)?.as_deref()
    }

    pub fn get(&self, id: Id) -> Option<&T> {
        let segment = self.segment(id.slot)?;
        let place = id.slot as usize % SEGMENT;
        (segment.generations[place] == id.generation).then_some(segment.values[place].as_ref())?
    }

    pub fn get_mut(&mut self, id: Id) -> Option<&mut T> {
        let segment = self.segments.get_mut(id.slot as usize / SEGMENT)?.as_deref_mut()?;
        let place = id.slot as usize % SEGMENT;
        (segment.generations[place] == id.generation).then_some(segment.values[place].as_mut())?
    }

    /// The entry that stands in this slot now, whichever it is.
    pub fn at(&self, slot: u32) -> Option<(Id, &T)> {
        let segment = self.segment(slot)?;
        let place = slot as usize % SEGMENT;
        segment.values[place].as_ref().map(|value| (Id { slot, generation: segment.generations[place] }, value))
    }

    pub fn remove(&mut self, id: Id) -> Option<T> {
        let at = id.slot as usize / SEGMENT;
        let segment = self.segments.get_mut(at)?.as_deref_mut()?;
        let place = id.slot as usize % SEGMENT;
        if segment.generations[place] != id.generation {
            return None;
        }
        let value = segment.values[place].take()?;
        segment.used &= !(1 << place);
        if segment.used == 0 {
            self.held.end();
        }
        self.room.set(at);
        self.len -= 1;
        Some(value)
    }

    /// Every entry, in the order of their slots.
    pub fn iter(&self) -> impl Iterator<Item = (Id, &T)> {
        self.segments.iter().enumerate().filter_map(|(at, s)| Some((at, s.as_deref()?))).flat_map(|(at, segment)| {
            segment.values.iter().enumerate().filter_map(move |(place, value)| {
                let id = Id { slot: (at * SEGMENT + place) as u32, generation: segment.generations[place] };
                value.as_ref().map(|value| (id, value))
            })
        })
    }

    /// To be called about once a second: gives back segments that the last two calls' time did not need.
    ///
    /// Returns whether a later call may give back more though nothing else happens.
    pub fn tidy(&mut self) -> bool {
        let mut spare = self.held.spare();
        for segment in self.segments.iter_mut().rev() {
            if spare == 0 {
                break;
            }
            if segment.as_ref().is_some_and(|s| s.used == 0) {
                *segment = None;
                self.held.segments -= 1;
                spare -= 1;
            }
        }
        while self.segments.last().is_some_and(Option::is_none) {
            self.segments.pop();
            self.room.clear(self.segments.len());
        }
        if self.segments.is_empty() {
            self.segments = Vec::new();
            self.room = Room::default();
        }
        self.held.more()
    }
}

/// Which segments have room: a bit each.
#[derive(Debug, Default)]
pub(crate) struct Room {
    words: Vec<u64>,
    /// No word below has a bit set.
    from: usize,
}

impl Room {
    pub(crate) fn set(&mut self, at: usize) {
        let word = at / 64;
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (at % 64);
        self.from = self.from.min(word);
    }

    pub(crate) fn clear(&mut self, at: usize) {
        if let Some(word) = self.words.get_mut(at / 64) {
            *word &= !(1 << (at % 64));
        }
    }

    pub(crate) fn lowest(&mut self) -> Option<usize> {
        while let Some(&word) = self.words.get(self.from) {
            if word != 0 {
                return Some(self.from * 64 + word.trailing_zeros() as usize);
            }
            self.from += 1;
        }
        None
    }
}

/// How many segments are held, how many are in use, and the most that were of late.
#[derive(Debug, Default)]
pub(crate) struct Held {
    pub(crate) segments: usize,
    used: usize,
    peak: usize,
    peak_before: usize,
}

impl Held {
    /// A segment got its first entry.
    pub(crate) fn begin(&mut self) {
        self.used += 1;
        self.peak = self.peak.max(self.used);
    }

    /// A segment lost its last entry.
    pub(crate) fn end(&mut self) {
        self.used -= 1;
    }

    /// Ends a period: so many empty segments may go. Some slack stays while any is in use, so that a load that
    /// merely wavers frees and takes nothing.
    pub(crate) fn spare(&mut self) -> usize {
        let need = self.peak.max(self.peak_before);
        self.peak_before = self.peak;
        self.peak = self.used;
        let slack = if need == 0 { 0 } else { 1 + need / 16 };
        self.segments.saturating_sub(need + slack)
    }

    /// A later period may end with fewer.
    pub(crate) fn more(&self) -> bool {
        self.segments > self.used && self.peak_before.max(self.peak) > self.used || self.used == 0 && self.segments > 0
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
