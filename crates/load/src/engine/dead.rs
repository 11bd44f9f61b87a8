//! Call-IDs of ended calls, remembered for a while, so that a message for one of them is recognised as late instead of
//! unknown.

use hashbrown::HashTable;
use std::collections::VecDeque;

/// Hashes of Call-IDs.
pub(super) struct DeadCalls {
    /// Time for which a Call-ID is remembered, milliseconds; 0: not at all.
    wait: u64,
    /// Hashes, in several tables so that no single growth takes long.
    known: Box<[HashTable<u64>; PARTS]>,
    /// Hashes in the order of their ends, with their expiry times.
    queue: VecDeque<(u64, u64)>,
}

const PARTS: usize = 256;

/// Selects a table. The tables themselves use the highest and the lowest bits.
const fn part(hash: u64) -> usize {
    (hash >> 40) as usize % PARTS
}

impl DeadCalls {
    pub(super) fn new(wait: u64) -> Self {
        Self { wait, known: Box::new(std::array::from_fn(|_| HashTable::new())), queue: VecDeque::new() }
    }

    pub(super) fn add(&mut self, hash: u64, now: u64) {
        if self.wait == 0 {
            return;
        }
        self.queue.push_back((now + self.wait, hash));
        self.known[part(hash)].insert_unique(hash, hash, |&h| h);
    }

    pub(super) fn knows(&self, hash: u64) -> bool {
        !self.queue.is_empty() && self.known[part(hash)].find(hash, |&h| h == hash).is_some()
    }

    /// Removes expired entries, a few at a time.
    pub(super) fn tidy(&mut self, now: u64) {
        for _ in 0..256 {
            match self.queue.front() {
                Some(&(until, hash)) if until <= now => {
                    if let Ok(entry) = self.known[part(hash)].find_entry(hash, |&h| h == hash) {
                        entry.remove();
                    }
                    self.queue.pop_front();
                }
                _ => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_forgotten_in_time() {
        let mut dead = DeadCalls::new(100);
        dead.add(7, 0);
        dead.add(8, 50);
        dead.tidy(99);
        assert!(dead.knows(7) && dead.knows(8));
        dead.tidy(100);
        assert!(!dead.knows(7) && dead.knows(8));
        DeadCalls::new(0).add(1, 0);
    }
}
