//! One partition: its entries, the queues of eviction, and the wheel of expiry.
//!
//! Eviction is S3-FIFO: a new entry enters the small queue, a twentieth of the memory. At the end of this queue it
//! moves to the main queue if it was fetched twice; otherwise it is evicted and its key remembered for a while. A
//! remembered key that is stored again enters the main queue at once. At the end of the main queue an entry goes round
//! once more for each fetch since then, up to seven. So a fetch moves nothing: it is counted in the entry.
//!
//! *Promised entries* ([`Promise::Kept`]) have their own queue, which goes round as the main queue does. Only a
//! promised entry that needs space evicts one, after all other entries: an entry that any sender can cause never
//! replaces a promised one.

use super::cells::{CELL, Cells, NEVER, Piece, QUEUE, cells_of};
use super::ghost::Ghost;
use super::index::{Guess, Index};
use super::list::List;
use super::wheel::Wheel;
use crate::error::CacheError;
use crate::log::changes::Changes;
use crate::request::{Count, Floor, Promise};

/// Upper limit of the count of fetches.
const MOST_FETCHES: u8 = 7;
/// Fetches after which an entry of the small queue moves to the main queue.
const WORTHY: u8 = 2;
/// Mark of an entry in the main queue.
const MAIN: u8 = 8;
/// Mark of a promised entry, which is in the promised queue.
const PROMISED: u8 = 16;
/// Maximum number of entries that go round before one is evicted nevertheless: a lock is held meanwhile.
const ROUNDS: usize = 64;

/// Counters of a partition.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) hits: u64,
    pub(super) misses: u64,
    pub(super) stores: u64,
    pub(super) removals: u64,
    pub(super) evictions: u64,
    pub(super) expired: u64,
    pub(super) refused: u64,
}

pub(crate) struct Partition {
    cells: Cells,
    index: Index,
    small: List,
    main: List,
    promised: List,
    /// Cells of the small queue.
    small_cells: usize,
    wheel: Wheel,
    ghost: Ghost,
    budget: usize,
    /// Bytes of keys and values.
    data: usize,
    /// Text of a counter.
    scratch: Vec<u8>,
    pub(super) counts: Counts,
    /// Changes for the log.
    pub(crate) changes: Option<Changes>,
}

impl Partition {
    pub(super) fn new(budget: usize) -> Self {
        Self {
            cells: Cells::new(budget),
            index: Index::new(),
            small: List::EMPTY,
            main: List::EMPTY,
            promised: List::EMPTY,
            small_cells: 0,
            wheel: Wheel::new(),
            ghost: Ghost::new(),
            budget,
            data: 0,
            scratch: Vec::new(),
            counts: Counts::default(),
            changes: None,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    pub(crate) const fn data(&self) -> usize {
        self.data
    }

    /// Returns the bytes of memory in use.
    pub(super) fn bytes(&self) -> usize {
        self.cells.bytes() + self.index.bytes() + self.wheel.bytes() + self.ghost.bytes()
    }

    /// Appends the value of a key. Returns false if the key has no value.
    ///
    /// Short on purpose: it waits for memory twice, for a line of the index and for the entry. If all of it fits into
    /// the processor's look-ahead window of some hundred instructions, the next fetch waits at the same time.
    #[inline(always)]
    pub(super) fn fetch(&mut self, hash: u32, key: &[u8], now: u64, into: &mut Vec<u8>) -> bool {
        match self.alive(hash, key, now) {
            Ok((slot, value)) => {
                self.cells.append_from(value, self.cells.value_length(slot), into);
                self.counts.hits += 1;
                let marks = self.cells.marks(slot);
                if marks & MOST_FETCHES < MOST_FETCHES {
                    self.cells.set_marks(slot, marks + 1);
                }
                true
            }
            Err(ended) => {
                self.counts.misses += 1;
                self.expire(ended);
                false
            }
        }
    }

    /// Tells whether a key has a value.
    pub(super) fn contains(&mut self, hash: u32, key: &[u8], now: u64) -> bool {
        self.find(hash, key, now).is_some()
    }

    /// Stores a value, replacing an existing value.
    ///
    /// # Errors
    /// There is no space; the key has no value then.
    pub(super) fn store(
        &mut self,
        hash: u32,
        (key, value): (&[u8], &[u8]),
        end: u64,
        promise: Promise,
        now: u64,
    ) -> Result<(), CacheError> {
        if end <= now {
            self.take_out(hash, key);
            self.note_removal(key);
            return Ok(());
        }
        let cells = cells_of(key.len(), value.len());
        let kept = if cells * CELL > self.budget / 2 {
            self.take_out(hash, key);
            false
        } else if let Some(slot) = self.slot(hash, key) {
            self.replace(slot, hash, value, end, promise, now)
        } else {
            self.add(hash, (key, value), end, promise, now)
        };
        if !kept {
            self.counts.refused += 1;
            self.note_removal(key);
            return Err(CacheError::Full);
        }
        self.counts.stores += 1;
        if let Some(changes) = &mut self.changes {
            changes.store(end.min(NEVER), promise, key.len(), key.len() + value.len(), |out| {
                out.extend_from_slice(key);
                out.extend_from_slice(value);
            });
        }
        Ok(())
    }

    /// Changes a counter. Returns its new value.
    ///
    /// # Errors
    /// The value is no number, or would overflow; nothing has changed. Or there is no space.
    pub(super) fn count(&mut self, hash: u32, key: &[u8], count: Count, now: u64) -> Result<i64, CacheError> {
        let (mut before, mut end) = (0, count.life.end(now));
        if let Some(slot) = self.find(hash, key, now) {
            let Some(number) = self.number(slot, hash, key) else {
                self.counts.refused += 1;
                return Err(CacheError::Refused);
            };
            (before, end) = (number, self.cells.end(slot));
        }
        let after = match (i64::checked_add(before, count.by), count.floor) {
            (Some(after), Floor::None) => after,
            (Some(after), Floor::Zero) => after.max(0),
            // An underflow is below zero.
            (None, Floor::Zero) if count.by < 0 => 0,
            (None, _) => {
                self.counts.refused += 1;
                return Err(CacheError::Refused);
            }
        };
        self.store(hash, (key, Digits::of(after).text()), end, Promise::Held, now)?;
        Ok(after)
    }

    /// Removes a key. Returns whether it had a value.
    pub(super) fn remove(&mut self, hash: u32, key: &[u8], now: u64) -> bool {
        let found = self.find(hash, key, now);
        if let Some(slot) = found {
            self.counts.removals += 1;
            self.drop_entry(slot);
        }
        // The log may have an entry that memory has evicted.
        self.note_removal(key);
        found.is_some()
    }

    /// Removes expired entries, and decrements `looks` for each inspected entry. Returns false if more entries may have
    /// expired.
    pub(super) fn sweep(&mut self, now: u64, looks: &mut u32) -> bool {
        while let Some(slot) = self.wheel.due(&self.cells, now, looks) {
            self.counts.expired += 1;
            self.drop_entry(slot);
        }
        *looks > 0
    }

    /// Notes entries for the log as if they were stored now: up to `most` entries, from the entry `from` on. Returns
    /// the entry with which to continue.
    pub(crate) fn note_entries(&mut self, mut from: u32, most: usize, most_bytes: usize) -> Option<u32> {
        let (mut noted, mut bytes) = (0, 0);
        while noted < most && bytes < most_bytes {
            let slot = match self.cells.entry_from(from, 512) {
                Ok(slot) => slot?,
                Err(next) => return Some(next),
            };
            let (cells, changes) = (&self.cells, self.changes.as_mut()?);
            let (key, value) = (cells.key_length(slot), cells.value_length(slot));
            if !changes.has_room() {
                return Some(slot);
            }
            changes
                .store(cells.end(slot), promise_of(cells.marks(slot)), key, key + value, |out| cells.append(slot, out));
            (noted, bytes, from) = (noted + 1, bytes + key + value, slot + 1);
        }
        Some(from)
    }

    /// Returns the live entry of a key; drops the entry if it has expired.
    fn find(&mut self, hash: u32, key: &[u8], now: u64) -> Option<u32> {
        match self.alive(hash, key, now) {
            Ok((slot, _)) => Some(slot),
            Err(ended) => {
                self.expire(ended);
                None
            }
        }
    }

    /// Reads the value of a key as a number.
    fn number(&mut self, slot: u32, hash: u32, key: &[u8]) -> Option<i64> {
        let (length, value) = (self.cells.value_length(slot), self.cells.value_of(slot, hash, key)?);
        if length > Digits::MOST {
            return None;
        }
        self.scratch.clear();
        self.cells.append_from(value, length, &mut self.scratch);
        std::str::from_utf8(&self.scratch).ok()?.parse().ok()
    }

    /// Returns the entry of a key and the begin of its value.
    ///
    /// # Errors
    /// The key has no live entry. An expired entry is returned, so that the caller drops it.
    #[inline(always)]
    fn alive(&self, hash: u32, key: &[u8], now: u64) -> Result<(u32, Piece<'_>), Option<u32>> {
        match self.look(hash, key) {
            Some((slot, value)) if self.cells.end(slot) > now => Ok((slot, value)),
            ended => Err(ended.map(|(slot, _)| slot)),
        }
    }

    #[inline(never)]
    fn slot(&self, hash: u32, key: &[u8]) -> Option<u32> {
        self.look(hash, key).map(|(slot, _)| slot)
    }

    #[inline(always)]
    fn look(&self, hash: u32, key: &[u8]) -> Option<(u32, Piece<'_>)> {
        match self.index.guess(hash) {
            Guess::Likely(slot) => match self.cells.value_of(slot, hash, key) {
                Some(value) => Some((slot, value)),
                None => self.look_further(hash, key),
            },
            Guess::Absent => None,
            Guess::Open => self.look_further(hash, key),
        }
    }

    #[inline(never)]
    fn look_further(&self, hash: u32, key: &[u8]) -> Option<(u32, Piece<'_>)> {
        self.index.find(hash, |slot| self.cells.value_of(slot, hash, key).map(|value| (slot, value)))
    }

    /// Drops an expired entry, if one was found.
    #[inline]
    fn expire(&mut self, ended: Option<u32>) {
        if let Some(slot) = ended {
            self.counts.expired += 1;
            self.drop_entry(slot);
        }
    }

    fn add(&mut self, hash: u32, (key, value): (&[u8], &[u8]), end: u64, promise: Promise, now: u64) -> bool {
        let cells = &self.cells;
        self.index.reserve(|slot| cells.hash(slot));
        if !self.make_room(cells_of(key.len(), value.len()), promise, now) {
            return false;
        }
        let slot = self.cells.add(hash, key, value, end);
        if promise == Promise::Kept {
            self.cells.set_marks(slot, PROMISED);
        } else if self.ghost.recall(hash) {
            self.cells.set_marks(slot, MAIN);
        }
        self.enqueue(slot);
        self.wheel.link(&mut self.cells, slot);
        self.index.insert(hash, slot);
        self.data += key.len() + value.len();
        true
    }

    fn replace(&mut self, slot: u32, hash: u32, value: &[u8], end: u64, promise: Promise, now: u64) -> bool {
        let key = self.cells.key_length(slot);
        let (old, new) = (self.cells.cells(slot), cells_of(key, value.len()));
        let marks = self.cells.marks(slot);
        if new == old && promise_of(marks) == promise {
            self.data = self.data + value.len() - self.cells.value_length(slot);
            self.cells.replace(slot, value);
        } else {
            // The entry is removed from its queue meanwhile, because it must not evict itself.
            self.dequeue(slot);
            if !self.make_room(new.saturating_sub(old), promise, now) {
                self.enqueue(slot);
                self.drop_slot(slot, hash);
                return false;
            }
            self.data = self.data + value.len() - self.cells.value_length(slot);
            self.cells.replace(slot, value);
            if promise_of(marks) != promise {
                self.cells.set_marks(slot, if promise == Promise::Kept { PROMISED } else { 0 });
            }
            self.enqueue(slot);
        }
        if self.cells.end(slot) != end.min(NEVER) {
            self.wheel.unlink(&mut self.cells, slot);
            self.cells.set_end(slot, end);
            self.wheel.link(&mut self.cells, slot);
        }
        true
    }

    fn take_out(&mut self, hash: u32, key: &[u8]) {
        if let Some(slot) = self.slot(hash, key) {
            self.drop_slot(slot, hash);
        }
    }

    #[inline(never)]
    fn drop_entry(&mut self, slot: u32) {
        self.drop_slot(slot, self.cells.hash(slot));
    }

    fn drop_slot(&mut self, slot: u32, hash: u32) {
        self.dequeue(slot);
        self.wheel.unlink(&mut self.cells, slot);
        self.index.remove(hash, slot);
        self.data -= self.cells.key_length(slot) + self.cells.value_length(slot);
        self.cells.free(slot);
    }

    fn enqueue(&mut self, slot: u32) {
        let queue = match self.cells.marks(slot) & (MAIN | PROMISED) {
            0 => {
                self.small_cells += self.cells.cells(slot);
                &mut self.small
            }
            MAIN => &mut self.main,
            _ => &mut self.promised,
        };
        queue.push_back(&mut self.cells, QUEUE, slot);
    }

    fn dequeue(&mut self, slot: u32) {
        let queue = match self.cells.marks(slot) & (MAIN | PROMISED) {
            0 => {
                self.small_cells -= self.cells.cells(slot);
                &mut self.small
            }
            MAIN => &mut self.main,
            _ => &mut self.promised,
        };
        queue.unlink(&mut self.cells, QUEUE, slot);
    }

    /// Evicts entries until this many more cells fit. Evicts promised entries only to store a promised entry.
    fn make_room(&mut self, cells: usize, promise: Promise, now: u64) -> bool {
        while self.bytes() + cells * CELL > self.budget {
            if !self.evict(promise, now) {
                return false;
            }
        }
        true
    }

    /// Evicts one entry. Returns false if there is no entry to evict.
    fn evict(&mut self, promise: Promise, now: u64) -> bool {
        for round in 0.. {
            let small = self.small.first().filter(|_| self.small_cells * CELL > self.budget / 20);
            let promised = || self.promised.first().filter(|_| promise == Promise::Kept);
            let held = small.or_else(|| self.main.first()).or_else(|| self.small.first());
            let Some(slot) = held.or_else(promised) else { return false };
            let (marks, ended) = (self.cells.marks(slot), self.cells.end(slot) <= now);
            let fetches = marks & MOST_FETCHES;
            let is_small = marks & (MAIN | PROMISED) == 0;
            let (stays, marks) = if is_small { (fetches >= WORTHY, MAIN) } else { (fetches > 0, marks - 1) };
            if stays && !ended && round < ROUNDS {
                self.dequeue(slot);
                self.cells.set_marks(slot, marks);
                self.enqueue(slot);
                continue;
            }
            if ended {
                self.counts.expired += 1;
            } else {
                self.counts.evictions += 1;
                if is_small {
                    self.ghost.remember(self.cells.hash(slot), self.index.len());
                }
            }
            self.drop_entry(slot);
            return true;
        }
        false
    }

    fn note_removal(&mut self, key: &[u8]) {
        if let Some(changes) = &mut self.changes {
            changes.remove(key);
        }
    }
}

/// Returns the promise of an entry with these marks.
const fn promise_of(marks: u8) -> Promise {
    if marks & PROMISED != 0 { Promise::Kept } else { Promise::Held }
}

/// Number as text, without an allocation.
struct Digits {
    bytes: [u8; Self::MOST],
    length: usize,
}

impl Digits {
    /// Length of the lowest number.
    const MOST: usize = 20;

    fn of(number: i64) -> Self {
        use std::io::Write;
        let mut bytes = [0; Self::MOST];
        let mut left = &mut bytes[..];
        write!(left, "{number}").expect("a number of 64 bits has at most 20 bytes");
        let left = left.len();
        Self { bytes, length: Self::MOST - left }
    }

    fn text(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}
