//! From key to slot: a hash table in parts, so that growing one part moves little at a time.

use super::key::Key;
use hashbrown::HashTable;

/// Parts of the table.
const PARTS: usize = 32;

/// Slots by key. The keys themselves stand in the entries.
#[derive(Debug)]
pub(super) struct Places {
    parts: [HashTable<u32>; PARTS],
}

impl Places {
    pub(super) fn new() -> Self {
        Self { parts: std::array::from_fn(|_| HashTable::new()) }
    }

    const fn part(key: &Key) -> usize {
        key.high as usize % PARTS
    }

    /// The slot whose entry has this key.
    pub(super) fn find(&self, key: &Key, key_of: impl Fn(u32) -> Option<Key>) -> Option<u32> {
        self.parts[Self::part(key)].find(key.low, |&slot| key_of(slot) == Some(*key)).copied()
    }

    pub(super) fn insert(&mut self, key: &Key, slot: u32, key_of: impl Fn(u32) -> Option<Key>) {
        let hash = |&slot: &u32| key_of(slot).map_or(0, |key| key.low);
        self.parts[Self::part(key)].insert_unique(key.low, slot, hash);
    }

    pub(super) fn remove(&mut self, key: &Key, slot: u32) {
        if let Ok(found) = self.parts[Self::part(key)].find_entry(key.low, |&s| s == slot) {
            found.remove();
        }
    }

    pub(super) fn len(&self) -> usize {
        self.parts.iter().map(HashTable::len).sum()
    }

    /// Gives memory back where a part is far larger than its content. Twice the content stays, so that a steady load
    /// takes no new memory.
    pub(super) fn tidy(&mut self, key_of: impl Fn(u32) -> Option<Key>) {
        for part in &mut self.parts {
            if part.capacity() > 8 * part.len() + 28 || part.is_empty() {
                part.shrink_to(2 * part.len(), |&slot| key_of(slot).map_or(0, |key| key.low));
            }
        }
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.parts.iter().map(HashTable::capacity).sum()
    }
}
