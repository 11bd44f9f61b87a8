//! Index from key to slot: an open-addressing hash table in parts, so that the growth of one part moves little at a
//! time.
//!
//! A removal moves later entries back and leaves no tombstone. The size of a part depends on the number of all entries,
//! not on their random share in the part. So a steady load never rebuilds a part.

use super::key::Key;

/// Number of parts of the table.
const PARTS: usize = 32;
/// Number of places in the smallest part that holds anything.
const LEAST: usize = 16;

/// Slots by key. The entries have the keys themselves.
#[derive(Debug)]
pub(super) struct KeyIndex {
    parts: [Part; PARTS],
    len: usize,
    /// Number of places that each part should have; a smaller part grows to this number with its next insertion.
    want: usize,
}

#[derive(Debug, Default)]
struct Part {
    /// Places; their number is a power of two, or zero.
    places: Box<[IndexEntry]>,
    len: usize,
}

#[derive(Clone, Copy, Debug)]
struct IndexEntry {
    /// Half of the key: it determines the first place of the key, and differs for nearly all other keys.
    tag: u32,
    slot: u32,
}

const EMPTY: IndexEntry = IndexEntry { tag: 0, slot: u32::MAX };

impl KeyIndex {
    pub(super) fn new() -> Self {
        Self { parts: std::array::from_fn(|_| Part::default()), len: 0, want: LEAST }
    }

    const fn part(key: &Key) -> usize {
        key.high as usize % PARTS
    }

    /// Returns the slot whose entry has this key.
    pub(super) fn find(&self, key: &Key, key_of: impl Fn(u32) -> Option<Key>) -> Option<u32> {
        let part = &self.parts[Self::part(key)];
        part.walk(key.low as u32).find(|p| p.tag == key.low as u32 && key_of(p.slot) == Some(*key)).map(|p| p.slot)
    }

    pub(super) fn insert(&mut self, key: &Key, slot: u32) {
        self.len += 1;
        while self.len > enough_for(self.want) {
            self.want *= 2;
        }
        let part = &mut self.parts[Self::part(key)];
        if part.places.len() < self.want {
            part.resize(self.want);
        } else if part.len >= part.places.len() / 8 * 7 {
            part.resize(2 * part.places.len());
        }
        part.put(IndexEntry { tag: key.low as u32, slot });
        part.len += 1;
    }

    /// Removes an entry. Returns false if it was absent.
    pub(super) fn remove(&mut self, key: &Key, slot: u32) -> bool {
        let was_there = self.parts[Self::part(key)].remove(key.low as u32, slot);
        self.len -= usize::from(was_there);
        was_there
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Returns the bytes that the parts take.
    pub(super) fn memory(&self) -> usize {
        self.parts.iter().map(|p| p.places.len() * size_of::<IndexEntry>()).sum()
    }

    /// Frees spare memory when the parts are far larger than their content.
    pub(super) fn tidy(&mut self) {
        while self.want > LEAST && self.len <= enough_for(self.want / 8) {
            self.want /= 2;
        }
        for part in &mut self.parts {
            if self.len == 0 {
                part.places = Box::default();
            } else if part.places.len() > self.want && part.len < self.want / 2 {
                part.resize(self.want);
            }
        }
    }
}

/// Returns the number of keys that parts of this size can store together. Parts fill unevenly, so a quarter of the
/// places, and four times the square root of the mean, are left free.
fn enough_for(places: usize) -> usize {
    let most = (places as f64 * 0.75 - 4.0).max(0.0);
    let root = (4.0 + most).sqrt() - 2.0;
    PARTS * (root * root) as usize
}

impl Part {
    fn mask(&self) -> usize {
        self.places.len().wrapping_sub(1)
    }

    /// Returns the places from the first one of this tag on.
    fn walk(&self, tag: u32) -> impl Iterator<Item = &IndexEntry> {
        let home = tag as usize & self.mask();
        let (before, from) = self.places.split_at(home.min(self.places.len()));
        from.iter().chain(before).take_while(|p| p.slot != EMPTY.slot)
    }

    fn put(&mut self, place: IndexEntry) {
        let mask = self.mask();
        let mut at = place.tag as usize & mask;
        while self.places[at].slot != EMPTY.slot {
            at = (at + 1) & mask;
        }
        self.places[at] = place;
    }

    /// Removes an entry. Returns false if it was absent.
    fn remove(&mut self, tag: u32, slot: u32) -> bool {
        if self.places.is_empty() {
            return false;
        }
        let mask = self.mask();
        let mut hole = tag as usize & mask;
        while self.places[hole].slot != slot {
            if self.places[hole].slot == EMPTY.slot {
                return false;
            }
            hole = (hole + 1) & mask;
        }
        // A following entry without a gap moves back if the hole is between its first place and its position.
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let place = self.places[at];
            if place.slot == EMPTY.slot {
                break;
            }
            let home = place.tag as usize & mask;
            if at.wrapping_sub(home) & mask >= at.wrapping_sub(hole) & mask {
                self.places[hole] = place;
                hole = at;
            }
        }
        self.places[hole] = EMPTY;
        self.len -= 1;
        true
    }

    fn resize(&mut self, places: usize) {
        let before = std::mem::replace(&mut self.places, vec![EMPTY; places].into_boxed_slice());
        for place in before.into_iter().filter(|p| p.slot != EMPTY.slot) {
            self.put(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn agrees_with_a_map_through_growth_removal_and_tidying() {
        let (mut places, mut map, mut keys) = (KeyIndex::new(), HashMap::new(), Vec::<Option<Key>>::new());
        let mut state = 1u64;
        let mut random = move || {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (state >> 33) as u32
        };
        for round in 0..60_000u32 {
            // At first more entries are added than removed, later more are removed.
            if random() % 60_000 > round {
                // Few parts and few tags, so that searches are long and wrap around.
                let key = Key {
                    high: u64::from(random() % 3),
                    low: u64::from(random() % 64) << 32 | u64::from(random() % 999),
                };
                if map.contains_key(&key) {
                    continue;
                }
                let slot = keys.len() as u32;
                keys.push(Some(key));
                map.insert(key, slot);
                places.insert(&key, slot);
            } else if let Some((&key, &slot)) = map.iter().next() {
                map.remove(&key);
                places.remove(&key, slot);
                keys[slot as usize] = None;
            }
            if round % 10_000 == 0 {
                for (key, &slot) in &map {
                    assert_eq!(places.find(key, |slot| keys[slot as usize]), Some(slot));
                }
                places.tidy();
            }
            assert_eq!(places.len(), map.len());
        }
        for (key, slot) in map {
            assert_eq!(places.find(&key, |slot| keys[slot as usize]), Some(slot));
            places.remove(&key, slot);
            assert_eq!(places.find(&key, |slot| keys[slot as usize]), None);
        }
        places.tidy();
        assert_eq!((places.len(), places.memory()), (0, 0));
        places.remove(&Key { high: 0, low: 0 }, 0);
    }
}
