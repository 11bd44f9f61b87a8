//! Cached answers in two generations: approximates "least recently used" without memory per entry.
//!
//! A full young generation becomes the old one, and the old one is dropped; an old answer that is used becomes young
//! again.

use std::time::Duration;

use hashbrown::{Equivalent, HashTable};

use super::Key;

pub(super) struct Entry<K: Key> {
    pub(super) key: K,
    pub(super) answer: K::Value,
    /// [`Moment::mono`](crate::clock::Moment::mono).
    pub(super) read_at: u64,
    /// Era of the cache when the engine was asked.
    pub(super) era: u64,
}

/// Usability of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Worth {
    Fresh,
    /// Usable only while the engine is silent.
    Stale,
    Nothing,
}

/// Two generations of answers of one kind.
pub(super) struct Part<K: Key> {
    young: HashTable<Entry<K>>,
    old: HashTable<Entry<K>>,
    /// Maximum number of entries of one generation.
    bound: usize,
    lifetime: Duration,
}

impl<K: Key> Part<K> {
    pub(super) fn new(bound: usize, lifetime: Duration) -> Self {
        Self { young: HashTable::new(), old: HashTable::new(), bound: bound.div_ceil(2), lifetime }
    }

    pub(super) fn find(
        &mut self,
        hash: u64,
        question: &impl Equivalent<K>,
        worth: impl Fn(&Entry<K>, Duration) -> Worth,
        rehash: impl Fn(&Entry<K>) -> u64,
    ) -> Option<(K::Value, Worth)> {
        let same = |e: &Entry<K>| question.equivalent(&e.key);
        if let Ok(entry) = self.young.find_entry(hash, same) {
            let is = worth(entry.get(), self.lifetime);
            if is != Worth::Nothing {
                return Some((entry.get().answer.clone(), is));
            }
            entry.remove();
            return None;
        }
        let (entry, _) = self.old.find_entry(hash, same).ok()?.remove();
        let is = worth(&entry, self.lifetime);
        if is == Worth::Nothing {
            return None;
        }
        let answer = entry.answer.clone();
        self.insert(hash, entry, rehash);
        Some((answer, is))
    }

    pub(super) fn insert(&mut self, hash: u64, entry: Entry<K>, rehash: impl Fn(&Entry<K>) -> u64) {
        if self.bound == 0 {
            return;
        }
        self.remove(hash, &entry.key);
        if self.young.len() >= self.bound {
            std::mem::swap(&mut self.young, &mut self.old);
            self.young.clear();
        }
        self.young.insert_unique(hash, entry, rehash);
    }

    /// Removes an answer. Returns whether it was cached.
    pub(super) fn remove(&mut self, hash: u64, key: &K) -> bool {
        let mut was_there = false;
        for table in [&mut self.young, &mut self.old] {
            if let Ok(same) = table.find_entry(hash, |e| e.key == *key) {
                same.remove();
                was_there = true;
            }
        }
        was_there
    }

    pub(super) fn clear(&mut self) {
        self.young.clear();
        self.old.clear();
    }

    pub(super) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }
}
