//! From the hash of a key to its entry: a table of lines, each of which is one line of a processor's cache.
//!
//! A line has room for twelve entries, each by its number and a byte of its hash. An entry that finds its line full goes to the next with
//! room, and each line that it passed counts that: a look-up ends at the first line that was never passed. So most look-ups read one line,
//! where a table with its bytes and its numbers in two places reads two.

/// Entries of a line.
const WAYS: usize = 12;
/// Entries for each line on average at which the table grows, by half.
const MOST: usize = 9;

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line {
    slots: [u32; WAYS],
    /// Of the hash; 0 is no entry.
    tags: [u8; WAYS],
    /// Entries that belong to this line or one before and are in one behind.
    passed: u32,
}

const EMPTY: Line = Line { slots: [0; WAYS], tags: [0; WAYS], passed: 0 };

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

    /// The entry with this hash that `is_it`.
    #[inline]
    pub(super) fn find(&self, hash: u32, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        self.place(hash, is_it).map(|(at, way)| self.lines[at].slots[way])
    }

    /// Makes room for one more; `hash` says that of an entry.
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

    /// An entry that is not there; there is room for it.
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

    /// An entry is there no more.
    pub(super) fn remove(&mut self, hash: u32, slot: u32) {
        let Some((found, way)) = self.place(hash, |other| other == slot) else { return };
        self.lines[found].tags[way] = 0;
        self.len -= 1;
        let mut at = self.home(hash);
        while at != found {
            self.lines[at].passed -= 1;
            at = self.after(at);
        }
    }

    #[inline]
    fn place(&self, hash: u32, is_it: impl Fn(u32) -> bool) -> Option<(usize, usize)> {
        if self.lines.is_empty() {
            return None;
        }
        let (mut at, tag) = (self.home(hash), tag(hash));
        loop {
            let line = &self.lines[at];
            for way in 0..WAYS {
                if line.tags[way] == tag && is_it(line.slots[way]) {
                    return Some((at, way));
                }
            }
            if line.passed == 0 {
                return None;
            }
            at = self.after(at);
        }
    }

    /// The line of a hash, by its high bits: the tag has the low ones.
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
                let found = index.find(hash(probe), |slot| slot == probe);
                assert_eq!(found, model.contains_key(&probe).then_some(probe));
                assert_eq!(index.len(), model.len());
            }
            for slot in 0..1024 {
                index.remove(hash(slot), slot);
            }
            assert!(index.lines.iter().all(|line| line.passed == 0 && line.tags == [0; WAYS]));
        }
    }
}
