//! Index from the hash of a key to its entry: a table of lines, each one cache line of the processor.
//!
//! A line has space for twelve entries, each with its number and a byte of its hash. An entry whose line is full is
//! stored in the next line with space, and each line that it has passed counts the entry: a look-up ends at the first
//! line that no entry has passed. So most look-ups read one line; a table with bytes and numbers in two places would
//! read two lines.

/// Entries of a line.
const WAYS: usize = 12;
/// Average number of entries per line at which the table grows, by half.
const MOST: usize = 9;

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line {
    slots: [u32; WAYS],
    /// Tags: bytes of the hashes; 0 is no entry.
    tags: [u8; WAYS],
    /// Number of entries that belong to this line or an earlier one and are in a later one.
    passed: u32,
}

impl Line {
    /// Returns the ways with this tag: one bit for each, which [`way`] decodes.
    ///
    /// All bytes are compared at once. The position of an entry is practically random: branches for each way would be
    /// mispredicted once per look-up, and the processor's speculative work while it waits for the line would be lost.
    #[inline]
    fn ways(&self, tag: u8) -> u64 {
        const ONES: u64 = u64::MAX / 255;
        // Sets a bit for each zero byte: no byte carries into the next.
        let zeros = |bytes: u64| !(((bytes & (ONES * 127)) + ONES * 127) | bytes | (ONES * 127)) >> 7;
        let [a, b, c, d, e, f, g, h, i, j, k, l] = self.tags;
        let (first, rest) = (u64::from_le_bytes([a, b, c, d, e, f, g, h]), u32::from_le_bytes([i, j, k, l]));
        let (tags, low) = (ONES * u64::from(tag), u64::from(u32::MAX));
        zeros(first ^ tags) | (zeros(u64::from(rest) ^ tags) & low) << 4
    }
}

/// Returns the first of these ways (there is one): each of the first eight has its bit at the start of a byte, each of
/// the other four in its middle.
const fn way(ways: u64) -> usize {
    let bit = ways.trailing_zeros() as usize;
    bit / 8 + (bit & 4) * 2
}

const EMPTY: Line = Line { slots: [0; WAYS], tags: [0; WAYS], passed: 0 };

/// Result of the first step of a look-up.
pub(super) enum Guess {
    /// Probably this entry; another one may have the same tag.
    Likely(u32),
    /// No such entry.
    Absent,
    /// Unknown: the entry may be in a later line.
    Open,
}

pub(super) struct Index {
    lines: Box<[Line]>,
    len: usize,
}

impl Index {
    pub(super) fn new() -> Self {
        Self { lines: Box::default(), len: 0 }
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.lines)
    }

    /// Inspects one line for the entry with this hash.
    #[inline(always)]
    pub(super) fn guess(&self, hash: u32) -> Guess {
        let Some(line) = self.lines.get(self.home(hash)) else { return Guess::Absent };
        match line.ways(tag(hash)) {
            0 if line.passed == 0 => Guess::Absent,
            0 => Guess::Open,
            ways => Guess::Likely(line.slots[way(ways)]),
        }
    }

    /// Returns the first non-empty result of `is_it` for the entries with this hash.
    pub(super) fn find<T>(&self, hash: u32, is_it: impl Fn(u32) -> Option<T>) -> Option<T> {
        self.place(hash, is_it).map(|(.., said)| said)
    }

    /// Makes space for one more entry; `hash` returns the hash of an entry.
    pub(super) fn reserve(&mut self, hash: impl Fn(u32) -> u32) {
        if self.len < self.lines.len() * MOST {
            return;
        }
        let lines = self.lines.len() + self.lines.len() / 2 + 1;
        let old = std::mem::replace(&mut self.lines, vec![EMPTY; lines].into());
        self.len = 0;
        for line in old {
            for (slot, _) in line.slots.iter().zip(line.tags).filter(|(_, tag)| *tag != 0) {
                self.insert(hash(*slot), *slot);
            }
        }
    }

    /// Adds an entry. The entry must be absent, and there must be space.
    pub(super) fn insert(&mut self, hash: u32, slot: u32) {
        let mut at = self.home(hash);
        loop {
            let line = &mut self.lines[at];
            if let Some(way) = line.tags.iter().position(|tag| *tag == 0) {
                (line.slots[way], line.tags[way]) = (slot, tag(hash));
                self.len += 1;
                return;
            }
            line.passed += 1;
            at = self.after(at);
        }
    }

    /// Removes an entry.
    pub(super) fn remove(&mut self, hash: u32, slot: u32) {
        let Some((found, way, ())) = self.place(hash, |other| (other == slot).then_some(())) else { return };
        self.lines[found].tags[way] = 0;
        self.len -= 1;
        let mut at = self.home(hash);
        while at != found {
            self.lines[at].passed -= 1;
            at = self.after(at);
        }
    }

    #[inline]
    fn place<T>(&self, hash: u32, is_it: impl Fn(u32) -> Option<T>) -> Option<(usize, usize, T)> {
        if self.lines.is_empty() {
            return None;
        }
        let (mut at, tag) = (self.home(hash), tag(hash));
        loop {
            let line = &self.lines[at];
            let mut ways = line.ways(tag);
            while ways != 0 {
                let way = way(ways);
                if let Some(said) = is_it(line.slots[way]) {
                    return Some((at, way, said));
                }
                ways &= ways - 1;
            }
            if line.passed == 0 {
                return None;
            }
            at = self.after(at);
        }
    }

    /// Returns the line of a hash. The line is determined by the high bits, because the tag uses the low bits.
    fn home(&self, hash: u32) -> usize {
        ((u64::from(hash) * self.lines.len() as u64) >> 32) as usize
    }

    fn after(&self, line: usize) -> usize {
        if line + 1 == self.lines.len() { 0 } else { line + 1 }
    }
}

fn tag(hash: u32) -> u8 {
    (hash as u8).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn it_is_a_map_for_spread_and_for_equal_hashes() {
        for spread in [0x9e37_79b9_u32, 1 << 31, 1] {
            let (mut index, mut model, mut random) = (Index::new(), HashMap::new(), 1_u32);
            let hash = |slot: u32| slot.wrapping_mul(spread);
            for _ in 0..20_000 {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let slot = random >> 22;
                if model.remove(&slot).is_some() {
                    index.remove(hash(slot), slot);
                } else {
                    index.reserve(hash);
                    index.insert(hash(slot), slot);
                    model.insert(slot, ());
                }
                let probe = (random >> 10) & 1023;
                let found = index.find(hash(probe), |slot| (slot == probe).then_some(slot));
                assert_eq!(found, model.contains_key(&probe).then_some(probe));
                match index.guess(hash(probe)) {
                    Guess::Likely(slot) => {
                        assert!(model.contains_key(&slot), "{slot} is gone");
                        assert_eq!(tag(hash(slot)), tag(hash(probe)));
                    }
                    Guess::Absent => assert_eq!(found, None),
                    Guess::Open => {}
                }
                assert_eq!(index.len(), model.len());
            }
            for slot in 0..1024 {
                index.remove(hash(slot), slot);
            }
            assert!(index.lines.iter().all(|line| line.passed == 0 && line.tags == [0; WAYS]));
        }
    }
}
