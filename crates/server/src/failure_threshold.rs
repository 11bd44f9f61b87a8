//! Counts of failures by key: for a limited time, and for a bounded number of keys.

use hashbrown::HashMap;
use std::collections::BinaryHeap;
use std::hash::{BuildHasher, Hash};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Table of counted failures, which all shards share. A lock is held only for one entry. Times are milliseconds of
/// [`strowger_core::Now::mono`].
pub(crate) struct FailureCounter<K> {
    parts: Box<[Mutex<Part<K>>]>,
    hasher: foldhash::quality::RandomState,
    /// Maximum number of entries in each part.
    most: usize,
    /// Number of held entries. If it is zero, a look-up costs one load.
    held: AtomicUsize,
}

type Part<K> = HashMap<K, Record, foldhash::quality::RandomState>;

#[derive(Clone, Copy, Debug)]
struct Record {
    /// Start of the counted failures.
    since: u64,
    failures: u32,
    /// End of the hold after too many failures; 0: the key is not held.
    until: u64,
}

/// Rule that tells when a count is too high.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    /// Failures within `window`.
    pub(crate) failures: u32,
    pub(crate) window: u64,
    /// Time for which an entry is held then.
    pub(crate) duration: u64,
}

/// Result of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Count {
    /// Number of failures in the window, below the maximum.
    Below(u32),
    /// First failure too many: the hold begins.
    Begins,
    /// Failure during a hold: the hold continues.
    Goes,
}

const PARTS: usize = 64;

impl<K: Hash + Eq + Copy> FailureCounter<K> {
    /// Creates a table for this number of entries.
    pub(crate) fn new(entries: usize) -> Self {
        Self {
            parts: (0..PARTS).map(|_| Mutex::default()).collect(),
            hasher: foldhash::quality::RandomState::default(),
            most: (entries / PARTS).max(1),
            held: AtomicUsize::new(0),
        }
    }

    /// Tells whether any entry is held.
    #[inline]
    pub(crate) fn holds_any(&self) -> bool {
        self.held.load(Relaxed) > 0
    }

    /// Returns the number of entries.
    pub(crate) fn len(&self) -> usize {
        self.parts.iter().map(|part| part.lock().unwrap_or_else(PoisonError::into_inner).len()).sum()
    }

    /// Returns the number of held entries.
    pub(crate) fn held(&self) -> usize {
        self.held.load(Relaxed)
    }

    /// Tells whether a key is held for too many failures.
    #[inline]
    pub(crate) fn is_held(&self, key: &K, now: u64) -> bool {
        self.holds_any() && self.look(key, now)
    }

    #[cold]
    fn look(&self, key: &K, now: u64) -> bool {
        let mut part = self.part(key);
        match part.get(key) {
            Some(record) if record.until > now => true,
            Some(record) if record.until > 0 => {
                part.remove(key);
                self.held.fetch_sub(1, Relaxed);
                false
            }
            _ => false,
        }
    }

    /// Counts one more failure.
    pub(crate) fn fails(&self, key: K, now: u64, rule: Rule) -> Count {
        let mut part = self.part(&key);
        if part.len() >= self.most && !part.contains_key(&key) {
            // The table is full: the oldest count is evicted, and a held entry only if there is no other.
            if let Some(oldest) = part.iter().min_by_key(|(_, r)| (r.until > now, r.since)).map(|(k, _)| *k)
                && part.remove(&oldest).is_some_and(|r| r.until > 0)
            {
                self.held.fetch_sub(1, Relaxed);
            }
        }
        let record = part.entry(key).or_insert(Record { since: now, failures: 0, until: 0 });
        if now.saturating_sub(record.since) > rule.window {
            (record.since, record.failures) = (now, 0);
        }
        record.failures += 1;
        if record.failures < rule.failures && record.until <= now {
            return Count::Below(record.failures);
        }
        let goes = record.until > now;
        if record.until == 0 {
            self.held.fetch_add(1, Relaxed);
        }
        record.until = now + rule.duration;
        record.failures = 0;
        if goes { Count::Goes } else { Count::Begins }
    }

    /// Lists at most `most` held entries in their order, beginning with `from`, with the ends of their holds.
    pub(crate) fn list(&self, now: u64, from: Option<K>, most: usize) -> Vec<(K, u64)>
    where
        K: Ord,
    {
        // The heap returns its greatest entry first.
        let mut held = BinaryHeap::new();
        for part in &self.parts {
            let part = part.lock().unwrap_or_else(PoisonError::into_inner);
            for (key, record) in part.iter().filter(|(_, record)| record.until > now) {
                if from.is_none_or(|from| *key >= from) {
                    held.push((*key, record.until));
                    if held.len() > most {
                        held.pop();
                    }
                }
            }
        }
        held.into_sorted_vec()
    }

    /// Forgets all entries for which `is_meant` returns true. Returns how many of them were held.
    pub(crate) fn forget(&self, is_meant: impl Fn(&K) -> bool, now: u64) -> usize {
        let mut lifted = 0;
        for part in &self.parts {
            part.lock().unwrap_or_else(PoisonError::into_inner).retain(|k, r| {
                let stays = !is_meant(k);
                if !stays && r.until > 0 {
                    self.held.fetch_sub(1, Relaxed);
                    lifted += usize::from(r.until > now);
                }
                stays
            });
        }
        lifted
    }

    /// Removes expired entries. Returns the number of held entries.
    pub(crate) fn tidy(&self, now: u64, window: u64) -> usize {
        for part in &self.parts {
            let mut part = part.lock().unwrap_or_else(PoisonError::into_inner);
            part.retain(|_, r| {
                let stays = if r.until > 0 { r.until > now } else { now.saturating_sub(r.since) <= window };
                if !stays && r.until > 0 {
                    self.held.fetch_sub(1, Relaxed);
                }
                stays
            });
            if part.is_empty() {
                part.shrink_to_fit();
            }
        }
        self.held.load(Relaxed)
    }

    fn part(&self, key: &K) -> MutexGuard<'_, Part<K>> {
        let part = &self.parts[self.hasher.hash_one(key) as usize % PARTS];
        part.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: Rule = Rule { failures: 3, window: 10_000, duration: 60_000 };

    #[test]
    fn three_failures_in_a_window_are_held_for_a_while() {
        let counter = FailureCounter::new(1_000);
        assert_eq!(counter.fails(1, 0, RULE), Count::Below(1));
        assert_eq!(counter.fails(1, 11_000, RULE), Count::Below(1));
        assert_eq!(counter.fails(1, 12_000, RULE), Count::Below(2));
        assert!(!counter.is_held(&1, 12_000));
        assert_eq!(counter.fails(1, 13_000, RULE), Count::Begins);
        assert!(counter.is_held(&1, 13_000) && !counter.is_held(&2, 13_000));
        assert_eq!(counter.fails(1, 14_000, RULE), Count::Goes);
        assert!(counter.is_held(&1, 73_999) && !counter.is_held(&1, 74_000));
        assert_eq!(counter.tidy(200_000, RULE.window), 0);
    }

    #[test]
    fn the_table_is_bounded_and_held_entries_stay_longest() {
        let counter = FailureCounter::new(PARTS * 4);
        for _ in 0..3 {
            counter.fails(u32::MAX, 0, RULE);
        }
        for n in 0..10_000 {
            counter.fails(n, n.into(), RULE);
        }
        let entries: usize = counter.parts.iter().map(|p| p.lock().unwrap().len()).sum();
        assert!(entries <= PARTS * 4, "{entries}");
        assert!(counter.is_held(&u32::MAX, 10_000));
    }
}
