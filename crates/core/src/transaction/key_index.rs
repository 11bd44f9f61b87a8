//! From key to slot: an open hash table in parts, so that growing one part moves little at a time.
//!
//! Removing moves later places back and leaves no mark, and how large a part must be follows from how much there is in
//! all, not from what chance put into the part: so a steady load never makes any of it again.

use super::key::Key;

/// Parts of the table.
const PARTS: usize = 32;
/// KeyIndex of the smallest part that holds anything.
const LEAST: usize = 16;

/// Slots by key. The keys themselves stand in the entries.
#[derive(Debug)]
pub(super) struct KeyIndex {
    parts: [Part; PARTS],
    len: usize,
    /// KeyIndex that every part should have; it gets them with its next insertion.
    want: usize,
}

#[derive(Debug, Default)]
struct Part {
    /// A power of two of them, or none.
    places: Box<[Place]>,
    len: usize,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    /// Half of the key: enough to find its first place again and to pass over nearly all others.
    tag: u32,
    slot: u32,
}

const EMPTY: Place = Place { tag: 0, slot: u32::MAX };

impl KeyIndex {
    pub(super) fn new() -> Self {
        Self { parts: std::array::from_fn(|_| Part::default()), len: 0, want: LEAST }
    }

    const fn part(key: &Key) -> usize {
        key.high as usize % PARTS
    }

    /// The slot whose entry has this key.
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
        part.put(Place { tag: key.low as u32, slot });
        part.len += 1;
    }

    /// Whether it was there.
    pub(super) fn remove(&mut self, key: &Key, slot: u32) -> bool {
        let was_there = self.parts[Self::part(key)].remove(key.low as u32, slot);
        self.len -= usize::from(was_there);
        was_there
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Bytes that the parts take.
    pub(super) fn memory(&self) -> usize {
        self.parts.iter().map(|p| p.places.len() * size_of::<Place>()).sum()
    }

    /// Gives memory back when the parts are far larger than their content.
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

/// How many keys in all parts of this size take with ease, though chance fills one more than the other: four times the
/// square root of the mean is left free, and a quarter of all places.
fn enough_for(places: usize) -> usize {
    let most = (places as f64 * 0.75 - 4.0).max(0.0);
    let root = (4.0 + most).sqrt() - 2.0;
    PARTS * (root * root) as usize
}

impl Part {
    fn mask(&self) -> usize {
        self.places.len().wrapping_sub(1)
    }

    /// The places taken from this tag's first one on.
    fn walk(&self, tag: u32) -> impl Iterator<Item = &Place> {
        let home = tag as usize & self.mask();
        let (before, from) = self.places.split_at(home.min(self.places.len()));
        from.iter().chain(before).take_while(|p| p.slot != EMPTY.slot)
    }

    fn put(&mut self, place: Place) {
        let mask = self.mask();
        let mut at = place.tag as usize & mask;
        while self.places[at].slot != EMPTY.slot {
            at = (at + 1) & mask;
        }
        self.places[at] = place;
    }

    /// Returns whether it was there.
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
        // What follows without a gap moves back if the hole lies between its first place and where it stands.
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
            // More come than go at first, later more go than come.
            if random() % 60_000 > round {
                // Few parts and few tags, so that walks are long and wrap round.
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
