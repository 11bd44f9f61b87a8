//! The table of used nonce counts (RFC 7616 section 3.4.5): what keeps a captured request from being sent twice.
//!
//! One table serves the whole process. It is bounded, and an entry is made only for a request whose response was right,
//! so nobody without an account can fill it. Entries lie in slices of the time at which their nonce was issued, and a
//! slice leaves as a whole when the last of its nonces has expired: no timer and no search per entry.

use std::hash::BuildHasher;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::nonce::Nonce;

/// Bounds of a [`ReplayTable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplaySettings {
    /// Nonces in use that are remembered at most, about 40 bytes each. When they are, right answers to other nonces
    /// are treated as stale.
    pub entries: usize,
    /// Parts with a lock each; rounded up to a power of two.
    pub partitions: usize,
    /// By how much a count may lie behind the highest one seen, because UDP reorders: 0 to 63. No count passes twice.
    pub window: u32,
}

impl Default for ReplaySettings {
    fn default() -> Self {
        Self { entries: 1_000_000, partitions: 64, window: 32 }
    }
}

/// How a request uses its nonce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// Without qop there is no count: one request per nonce.
    Once,
    /// The value of nc.
    Nc(u32),
}

/// What the table says to a use of a nonce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Not seen before, remembered from now on.
    New,
    /// Seen before, or so far behind that it cannot be told.
    Replayed,
    /// The table is full.
    Full,
}

/// Used nonce counts of all users, shared by all shards.
#[derive(Debug)]
pub struct ReplayTable {
    partitions: Box<[Mutex<Partition>]>,
    entries_each: usize,
    window: u32,
    /// Seconds of issue time that one slice covers.
    slice: u32,
    life: u32,
    hasher: FixedState,
    entries: AtomicUsize,
}

/// Slices in the ring. Those that can hold a fresh nonce are two fewer.
const SLICES: usize = 8;

#[derive(Debug)]
struct Partition {
    slices: [Slice; SLICES],
    entries: usize,
}

#[derive(Debug)]
struct Slice {
    /// Issue time divided by the length of a slice.
    number: u32,
    used: HashMap<Key, Used, FixedState>,
}

/// The user stands in the key so that nobody with an account can use up a nonce that went to somebody else.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Key {
    salt: u64,
    issued: u32,
    user: u32,
}

#[derive(Debug)]
struct Used {
    highest: u32,
    /// Bit n: the count `highest - n` was seen.
    seen: u64,
}

impl ReplayTable {
    /// A table for nonces that live `life` seconds and may come from clocks `skew` seconds ahead. `seed` should be
    /// secret and differ between processes.
    pub fn new(settings: ReplaySettings, life: u32, skew: u32, seed: u64) -> Self {
        let partitions = settings.partitions.max(1).next_power_of_two();
        let hasher = FixedState::with_seed(seed);
        let slice = life.saturating_add(skew).div_ceil(SLICES as u32 - 2).max(1);
        Self {
            partitions: (0..partitions).map(|_| Mutex::new(Partition::new(&hasher))).collect(),
            entries_each: settings.entries.div_ceil(partitions),
            window: settings.window.min(63),
            slice,
            life,
            hasher,
            entries: AtomicUsize::new(0),
        }
    }

    /// Notes that a fresh nonce was used by whom `user` names: the HA1, which the response proves. To be called only after
    /// the response was found right.
    pub fn admit(&self, now: u64, nonce: &Nonce, user: &[u8], count: Count) -> Admission {
        let key = Key { salt: nonce.salt(), issued: nonce.issued(), user: self.hasher.hash_one(user) as u32 };
        let part = (self.hasher.hash_one(nonce.salt()) >> 32) as usize & (self.partitions.len() - 1);
        let mut part = self.partitions[part].lock().unwrap_or_else(|broken| broken.into_inner());
        let freed = part.purge(now, self.slice, self.life);
        let before = part.entries;
        let admission = part.admit(key, self.slice, self.window, self.entries_each, count);
        let added = part.entries - before;
        drop(part);
        if freed != added {
            self.entries.fetch_add(added.wrapping_sub(freed), Ordering::Relaxed);
        }
        admission
    }

    /// Gives back what expired before `now`. Uses do so too, partition by partition; a caller that purges every few
    /// seconds keeps an idle table empty.
    pub fn purge(&self, now: u64) {
        for part in &self.partitions {
            let freed = part.lock().unwrap_or_else(|broken| broken.into_inner()).purge(now, self.slice, self.life);
            if freed > 0 {
                self.entries.fetch_sub(freed, Ordering::Relaxed);
            }
        }
    }

    /// Nonces remembered now: a gauge.
    pub fn entries(&self) -> usize {
        self.entries.load(Ordering::Relaxed)
    }

    /// Nonces remembered at most; a partition may be full a little earlier.
    pub fn capacity(&self) -> usize {
        self.entries_each * self.partitions.len()
    }
}

impl Partition {
    fn new(hasher: &FixedState) -> Self {
        Self {
            slices: std::array::from_fn(|_| Slice { number: 0, used: HashMap::with_hasher(hasher.clone()) }),
            entries: 0,
        }
    }

    /// Empties slices whose last nonce has expired; returns how many entries left.
    fn purge(&mut self, now: u64, length: u32, life: u32) -> usize {
        let mut freed = 0;
        for slice in &mut self.slices {
            let last_issue = (u64::from(slice.number) + 1) * u64::from(length) - 1;
            if !slice.used.is_empty() && last_issue + u64::from(life) < now {
                freed += slice.used.len();
                // The memory goes too: after a storm the table shrinks to what the next slice needs.
                slice.used = HashMap::with_hasher(slice.used.hasher().clone());
            }
        }
        self.entries -= freed;
        freed
    }

    fn admit(&mut self, key: Key, length: u32, window: u32, bound: usize, count: Count) -> Admission {
        let number = key.issued / length;
        let slice = &mut self.slices[number as usize % SLICES];
        if slice.number != number {
            if !slice.used.is_empty() {
                // Only a clock that jumped brings two live slices to one place: not to be told, so not admitted.
                return Admission::Replayed;
            }
            slice.number = number;
        }
        if let Some(used) = slice.used.get_mut(&key) {
            return if used.admit(count, window) { Admission::New } else { Admission::Replayed };
        }
        if self.entries >= bound {
            return Admission::Full;
        }
        self.entries += 1;
        slice.used.insert(
            key,
            match count {
                Count::Nc(highest) => Used { highest, seen: 1 },
                // Every count lies behind this one and is marked as seen.
                Count::Once => Used { highest: u32::MAX, seen: u64::MAX },
            },
        );
        Admission::New
    }
}

impl Used {
    fn admit(&mut self, count: Count, window: u32) -> bool {
        let Count::Nc(nc) = count else { return false };
        if nc > self.highest {
            self.seen = self.seen.checked_shl(nc - self.highest).unwrap_or(0) | 1;
            self.highest = nc;
            return true;
        }
        let behind = self.highest - nc;
        if behind > window || self.seen >> behind & 1 == 1 {
            return false;
        }
        self.seen |= 1 << behind;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::nonce::NonceKey;
    use super::*;

    fn nonce(issued: u64, salt: u64) -> Nonce {
        let key = NonceKey::new(b"k");
        key.open(key.issue(issued, b"r", b"", salt).as_bytes(), b"r").expect("just issued")
    }

    fn table(entries: usize, window: u32) -> ReplayTable {
        ReplayTable::new(ReplaySettings { entries, partitions: 1, window }, 300, 10, 7)
    }

    #[test]
    fn each_count_passes_once_in_any_order_within_the_window() {
        let (table, nonce) = (table(10, 4), nonce(1_000, 1));
        let admit = |nc| table.admit(1_000, &nonce, b"bob", Count::Nc(nc)) == Admission::New;
        for (nc, new) in [
            (1, true),
            (1, false),
            (3, true),
            (2, true),
            (2, false),
            (0, true),
            (10, true),
            (6, true),
            (6, false),
            (5, false),
            (200, true),
            (199, true),
            (10, false),
            (u32::MAX, true),
            (u32::MAX, false),
        ] {
            assert_eq!(admit(nc), new, "nc {nc}");
        }
        assert_eq!(table.entries(), 1);
    }

    #[test]
    fn without_window_counts_only_rise() {
        let (table, nonce) = (table(10, 0), nonce(1_000, 1));
        let admit = |nc| table.admit(1_000, &nonce, b"bob", Count::Nc(nc)) == Admission::New;
        assert!(admit(2) && !admit(1) && !admit(2) && admit(3));
    }

    #[test]
    fn without_qop_a_nonce_serves_once() {
        let table = table(10, 32);
        let first = nonce(1_000, 1);
        assert_eq!(table.admit(1_000, &first, b"bob", Count::Once), Admission::New);
        assert_eq!(table.admit(1_000, &first, b"bob", Count::Once), Admission::Replayed);
        for nc in [0, 1, u32::MAX] {
            assert_eq!(table.admit(1_000, &first, b"bob", Count::Nc(nc)), Admission::Replayed);
        }
        let second = nonce(1_000, 2);
        assert_eq!(table.admit(1_000, &second, b"bob", Count::Nc(1)), Admission::New);
        assert_eq!(table.admit(1_000, &second, b"bob", Count::Once), Admission::Replayed);
    }

    #[test]
    fn a_full_table_says_so_and_known_nonces_go_on() {
        let table = table(2, 32);
        for salt in [1, 2] {
            assert_eq!(table.admit(1_000, &nonce(1_000, salt), b"bob", Count::Nc(1)), Admission::New);
        }
        assert_eq!(table.admit(1_000, &nonce(1_000, 3), b"bob", Count::Nc(1)), Admission::Full);
        assert_eq!(table.admit(1_000, &nonce(1_000, 1), b"bob", Count::Nc(2)), Admission::New);
        assert_eq!((table.entries(), table.capacity()), (2, 2));
    }

    #[test]
    fn another_user_cannot_use_up_a_nonce() {
        let (table, nonce) = (table(10, 32), nonce(1_000, 1));
        assert_eq!(table.admit(1_000, &nonce, b"mallory", Count::Nc(u32::MAX)), Admission::New);
        assert_eq!(table.admit(1_000, &nonce, b"bob", Count::Nc(1)), Admission::New);
    }

    #[test]
    fn entries_leave_with_the_life_of_their_nonce_and_not_before() {
        let table = table(100_000, 32);
        for now in 1_000..3_000 {
            let fresh = nonce(now, now);
            assert_eq!(table.admit(now, &fresh, b"bob", Count::Nc(1)), Admission::New);
            // Every nonce still fresh is still known.
            let oldest = nonce((now - 300).max(1_000), (now - 300).max(1_000));
            assert_eq!(table.admit(now, &oldest, b"bob", Count::Nc(1)), Admission::Replayed, "{now}");
            assert!(table.entries() <= 300 + 2 * 52 + 1, "{}", table.entries());
        }
        table.purge(3_000 + 299);
        assert!(table.entries() > 0);
        table.purge(3_000 + 300 + 52);
        assert_eq!(table.entries(), 0);
    }
}
