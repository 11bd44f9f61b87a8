//! Answered calls that have ended, as far as the process remembers them.
//!
//! A route token says that a call is tracked. If the table of calls does not know it, either the call has ended here,
//! or another server with the same secret has it. Only a request of a call that has ended here is refused. The memory
//! is bounded: each partition remembers the last 8,192 to 16,384 calls, and the moment since which it has lost none. A
//! call whose token is younger than that moment, and that the partition does not remember, has not ended here. Moments
//! are of the monotonic clock: a step of the wall clock does not change which calls are remembered.

use hashbrown::HashSet;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};
use strowger_core::Now;

/// Number of partitions, so that shards seldom wait for each other.
const PARTITIONS: usize = 8;

/// Calls of the younger of two generations, in each partition.
const HALF: usize = 8_192;

/// Ended calls of the process, by their keys.
#[derive(Debug, Default)]
pub struct EndedCalls([Mutex<Partition>; PARTITIONS]);

#[derive(Debug, Default)]
struct Partition {
    young: HashSet<u64, BuildHasherDefault<KeyHasher>>,
    old: HashSet<u64, BuildHasherDefault<KeyHasher>>,
    /// Moment ([`Now::mono`]) at which the young generation began.
    young_since: u64,
    /// Moment since which all ended calls are remembered; `None`: since the process began.
    whole_since: Option<u64>,
}

/// Knowledge about a call that is not in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Ended here.
    Ended,
    /// Not ended here since its route token was made.
    Unknown,
    /// Perhaps ended here, before the oldest call that is remembered.
    Forgotten,
}

impl EndedCalls {
    fn partition(&self, key: u64) -> MutexGuard<'_, Partition> {
        self.0[(key >> 32) as usize % PARTITIONS].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers the end of a call.
    pub fn note(&self, key: u64, now: Now) {
        let mut partition = self.partition(key);
        if partition.young.len() >= HALF {
            let young = std::mem::take(&mut partition.young);
            let is_first = partition.old.is_empty();
            partition.old = young;
            partition.whole_since = if is_first { partition.whole_since } else { Some(partition.young_since) };
            partition.young_since = now.mono;
        }
        partition.young.insert(key);
    }

    /// Returns whether a call has ended, as far as the process remembers.
    pub fn is_there(&self, key: u64) -> bool {
        self.partition(key).has(key)
    }

    /// Looks up a call. `age`: seconds since its route token was made.
    pub fn recall(&self, now: Now, key: u64, age: u32) -> Memory {
        let partition = self.partition(key);
        if partition.has(key) {
            return Memory::Ended;
        }
        // Token ages are in whole seconds.
        let made = now.mono.saturating_sub(u64::from(age) * 1_000);
        match partition.whole_since {
            Some(since) if made <= since.saturating_add(1_000) => Memory::Forgotten,
            _ => Memory::Unknown,
        }
    }
}

impl Partition {
    fn has(&self, key: u64) -> bool {
        self.young.contains(&key) || self.old.contains(&key)
    }
}

/// Hasher for keys, which are hashes already.
#[derive(Debug, Default)]
struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ended_calls_are_remembered_in_bounded_memory() {
        let ended = EndedCalls::default();
        let at = |second: u64| Now { mono: second * 1_000, wall: 0 };
        assert_eq!(ended.recall(at(1_000), 1, 1_000), Memory::Unknown);
        // All in one partition, ten in a second.
        let keys = 3 * HALF as u64;
        for key in 1..=keys {
            ended.note(key, at(1_000 + key / 10));
        }
        let partition = ended.partition(1);
        assert!(partition.young.len() + partition.old.len() <= 2 * HALF);
        let since = partition.whole_since.expect("some are forgotten");
        drop(partition);
        assert!(ended.is_there(keys));
        let now = at(1_000 + keys / 10);
        let age = u32::try_from((now.mono - since) / 1_000).expect("an age");
        assert_eq!(ended.recall(now, keys, age), Memory::Ended);
        assert_eq!((ended.recall(now, 1, age + 9), ended.recall(now, 1, age)), (Memory::Forgotten, Memory::Forgotten));
        assert_eq!(ended.recall(now, keys + 1, age - 2), Memory::Unknown);
        // A wall clock that was stepped since changes nothing.
        assert_eq!(ended.recall(Now { wall: 1 << 40, ..now }, 1, age), Memory::Forgotten);
        // Each call that ended since is there.
        let first = (since / 1_000 + 1 - 1_000) * 10;
        assert!((first..=keys).all(|key| ended.is_there(key)));
        assert_eq!(ended.recall(now, 1 << 32, age), Memory::Unknown, "another partition");
    }
}
