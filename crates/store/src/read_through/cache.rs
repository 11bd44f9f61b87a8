//! Cached answers, in partitions with a short lock each.

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hash};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use foldhash::quality::RandomState;
use hashbrown::Equivalent;

use super::generations::{Entry, Part, Worth};
use super::{Key, ReadThroughSettings, since};

/// Number of partitions.
const PARTS: usize = 16;

/// Limit of recent voided questions, compared with answers on their way. An answer requested before the oldest of them is
/// not cached.
const VOIDED: usize = 1024;

pub(super) struct Cache<K: Key> {
    parts: Box<[Mutex<Parts<K>>]>,
    hasher: RandomState,
    /// Era, raised when all answers may be outdated. Answers of earlier eras are not fresh.
    era: AtomicU64,
    /// Number of questions voided so far.
    voids: AtomicU64,
    voided: Mutex<VecDeque<u64>>,
    /// Longest question, in bytes, with a cached negative answer.
    absent_name: usize,
    serve_stale: Duration,
}

/// State of voids before the engine was asked: answers voided since then are not cached.
#[derive(Clone, Copy)]
pub(super) struct Mark {
    era: u64,
    voids: u64,
}

struct Parts<K: Key> {
    found: Part<K>,
    absent: Part<K>,
}

impl<K: Key> Cache<K> {
    pub(super) fn new(settings: &ReadThroughSettings) -> Self {
        let part = || {
            Mutex::new(Parts {
                found: Part::new(settings.found.div_ceil(PARTS), settings.found_ttl),
                absent: Part::new(settings.absent.div_ceil(PARTS), settings.absent_ttl),
            })
        };
        Self {
            parts: (0..PARTS).map(|_| part()).collect(),
            hasher: RandomState::default(),
            era: AtomicU64::new(0),
            voids: AtomicU64::new(0),
            voided: Mutex::default(),
            absent_name: settings.absent_name,
            serve_stale: settings.serve_stale,
        }
    }

    pub(super) fn hash(&self, question: &impl Hash) -> u64 {
        self.hasher.hash_one(question)
    }

    /// Returns the answer, and whether it is fresh. A negative answer is returned only while it is fresh.
    #[inline]
    pub(super) fn find(&self, hash: u64, question: &impl Equivalent<K>, now: u64) -> Option<(K::Value, bool)> {
        let era = self.era.load(Ordering::Acquire);
        let is_fresh = |e: &Entry<K>, lifetime| e.era == era && since(e.read_at, now) < lifetime;
        let found = |e: &Entry<K>, lifetime| match is_fresh(e, lifetime) {
            true => Worth::Fresh,
            false if since(e.read_at, now) < lifetime + self.serve_stale => Worth::Stale,
            false => Worth::Nothing,
        };
        let absent = |e: &Entry<K>, lifetime| if is_fresh(e, lifetime) { Worth::Fresh } else { Worth::Nothing };
        let rehash = |e: &Entry<K>| self.hash(&e.key);
        let mut part = self.part(hash);
        let known = part.found.find(hash, question, found, rehash);
        let known = known.or_else(|| part.absent.find(hash, question, absent, rehash));
        known.map(|(answer, worth)| (answer, worth == Worth::Fresh))
    }

    pub(super) fn mark(&self) -> Mark {
        Mark { era: self.era.load(Ordering::Acquire), voids: self.voids.load(Ordering::Acquire) }
    }

    /// Caches the answer of an engine that was asked after `mark` was taken.
    pub(super) fn keep(&self, key: K, answer: K::Value, read_at: u64, mark: Mark) {
        let is_absent = K::is_absent(&answer);
        if !key.is_kept() || (is_absent && key.bytes() > self.absent_name) {
            return;
        }
        let hash = self.hash(&key);
        let rehash = |e: &Entry<K>| self.hash(&e.key);
        let mut part = self.part(hash);
        // This is checked under the lock of the part: a concurrent void records its hash first, and then finds the
        // entry here.
        if self.was_voided(hash, mark) {
            return;
        }
        let parts = &mut *part;
        let (to, other) =
            if is_absent { (&mut parts.absent, &mut parts.found) } else { (&mut parts.found, &mut parts.absent) };
        // A question has one answer: a positive answer replaces a negative one, and the reverse.
        other.remove(hash, &key);
        to.insert(hash, Entry { key, answer, read_at, era: mark.era }, rehash);
    }

    /// Voids the answer to this question. Returns whether the answer was cached.
    pub(super) fn void(&self, key: &K) -> bool {
        let hash = self.hash(key);
        {
            let mut voided = self.voided.lock().unwrap_or_else(PoisonError::into_inner);
            if voided.len() == VOIDED {
                voided.pop_front();
            }
            voided.push_back(hash);
            self.voids.fetch_add(1, Ordering::AcqRel);
        }
        let mut part = self.part(hash);
        part.found.remove(hash, key) | part.absent.remove(hash, key)
    }

    /// Ends the freshness of all answers.
    pub(super) fn doubt(&self) {
        self.era.fetch_add(1, Ordering::AcqRel);
    }

    /// Removes all answers. Answers that are on their way are not cached either.
    pub(super) fn clear(&self) {
        self.doubt();
        {
            let mut voided = self.voided.lock().unwrap_or_else(PoisonError::into_inner);
            voided.clear();
            self.voids.fetch_add(1, Ordering::AcqRel);
        }
        for part in &self.parts {
            let mut part = part.lock().unwrap_or_else(PoisonError::into_inner);
            part.found.clear();
            part.absent.clear();
        }
    }

    /// Returns the number of positive and of negative answers.
    pub(super) fn len(&self) -> (usize, usize) {
        self.parts.iter().fold((0, 0), |(found, absent), parts| {
            let parts = parts.lock().unwrap_or_else(PoisonError::into_inner);
            (found + parts.found.len(), absent + parts.absent.len())
        })
    }

    /// Tells whether no change since `mark` concerns an answer with this hash.
    pub(super) fn is_current(&self, hash: u64, mark: Mark) -> bool {
        self.era.load(Ordering::Acquire) == mark.era && !self.was_voided(hash, mark)
    }

    fn was_voided(&self, hash: u64, mark: Mark) -> bool {
        if self.voids.load(Ordering::Acquire) == mark.voids {
            return false;
        }
        let voided = self.voided.lock().unwrap_or_else(PoisonError::into_inner);
        let since = usize::try_from(self.voids.load(Ordering::Acquire) - mark.voids).unwrap_or(usize::MAX);
        since > voided.len() || voided.iter().rev().take(since).any(|voided| *voided == hash)
    }

    fn part(&self, hash: u64) -> MutexGuard<'_, Parts<K>> {
        self.parts[(hash >> 32) as usize % PARTS].lock().unwrap_or_else(PoisonError::into_inner)
    }
}
