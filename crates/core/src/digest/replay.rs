//! Table of used nonce counts (RFC 7616 section 3.4.5): it prevents the replay of a captured request.
//!
//! One table serves the whole process. It is bounded. Only a request with a right response makes an entry, so an
//! attacker needs an account to fill the table. No account may have more entries than are free: one account gets at
//! most half of the table, two get a third each and leave a third free, and so on, so that a few accounts cannot keep
//! other accounts out. Entries are stored in slices by the issue time of their nonce. A slice is dropped as a whole
//! when its last nonce has expired, so that entries need no timer and no search.

use std::hash::BuildHasher;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use foldhash::fast::FixedState;
use hashbrown::HashTable;

use super::nonce::Nonce;

/// Bounds of a [`ReplayTable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplaySettings {
    /// Maximum number of remembered nonces, 40 to 60 bytes each; one user may have as many as are free. Right answers to further nonces
    /// count as stale.
    pub entries: usize,
    /// Number of partitions, each with a lock; rounded up to a power of two.
    pub partitions: usize,
    /// Maximum distance of a count from the highest count seen, which is needed because UDP reorders: 0 to 63. No count
    /// is accepted twice.
    pub window: u32,
}

impl Default for ReplaySettings {
    fn default() -> Self {
        Self { entries: 1_000_000, partitions: 64, window: 32 }
    }
}

/// Use of a nonce by a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// Without qop there is no count, so each nonce is valid for one request.
    Once,
    /// Value of nc.
    Nc(u32),
}

/// Answer of the table to a use of a nonce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Not seen before; remembered from now on.
    New,
    /// Seen before, or too far behind to know.
    Replayed,
    /// The table is full, or has no more free entries than this user already has.
    Full,
}

/// Used nonce counts of all users, shared by all shards.
#[derive(Debug)]
pub struct ReplayTable {
    partitions: Box<[Mutex<Partition>]>,
    entries_each: usize,
    window: u32,
    /// Seconds of issue time of one slice.
    slice: u32,
    life: u32,
    hasher: FixedState,
    entries: AtomicUsize,
}

/// Number of slices in the ring, two more than can hold fresh nonces.
const SLICES: usize = 8;

/// Counters of users' entries in a partition.
const SHARES: usize = 256;

#[derive(Debug)]
struct Partition {
    slices: [Slice; SLICES],
    entries: usize,
    /// Number of entries by a hash of their user. It is exact for one user, and too high only if the hashes of two
    /// users collide. Each partition has other collisions, so a user whose entry is refused by one partition finds room
    /// with the next nonce.
    shares: Box<[u32; SHARES]>,
    /// Odd, and different in each partition.
    spread: u32,
}

/// Uses of the nonces of a few seconds. Entries are added one by one and dropped together. They are stored in chunks
/// that never move, because a growing map of half a million entries leaves more unused memory behind than it takes.
#[derive(Debug, Default)]
struct Slice {
    /// Issue time divided by the length of a slice.
    number: u64,
    chunks: Vec<Vec<Entry>>,
    len: u32,
    /// Positions of entries, by the hash of their key.
    places: HashTable<u32>,
}

/// Entries of a chunk: 4 KB.
const CHUNK: usize = 128;

#[derive(Debug)]
struct Entry {
    key: Key,
    used: Used,
}

impl Slice {
    fn find(&mut self, hash: u64, key: &Key) -> Option<&mut Used> {
        let Self { chunks, places, .. } = self;
        let at = *places.find(hash, |&at| entry(chunks, at).key == *key)?;
        Some(&mut chunks[at as usize / CHUNK][at as usize % CHUNK].used)
    }

    fn insert(&mut self, hasher: &FixedState, hash: u64, key: Key, used: Used) {
        let Self { chunks, len, places, .. } = self;
        if *len as usize == chunks.len() * CHUNK {
            chunks.push(Vec::with_capacity(CHUNK));
        }
        chunks.last_mut().expect("there is room in it").push(Entry { key, used });
        places.insert_unique(hash, *len, |&at| hasher.hash_one(&entry(chunks, at).key));
        *len += 1;
    }
}

fn entry(chunks: &[Vec<Entry>], at: u32) -> &Entry {
    &chunks[at as usize / CHUNK][at as usize % CHUNK]
}

/// Key of an entry. It includes the user, so that no account can use up a nonce that was issued for another.
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
    /// Creates a table for nonces with a lifetime of `life` seconds, from clocks that may be `skew` seconds ahead. `seed` should be secret
    /// and differ between processes.
    pub fn new(settings: ReplaySettings, life: u32, skew: u32, seed: u64) -> Self {
        let partitions = settings.partitions.max(1).next_power_of_two();
        let hasher = FixedState::with_seed(seed);
        let slice = life.saturating_add(skew).div_ceil(SLICES as u32 - 2).max(1);
        Self {
            partitions: (0..partitions as u32).map(|number| Mutex::new(Partition::new(number))).collect(),
            entries_each: settings.entries.div_ceil(partitions),
            window: settings.window.min(63),
            slice,
            life,
            hasher,
            entries: AtomicUsize::new(0),
        }
    }

    /// Notes a use of a fresh nonce. `user`: the HA1, which the response proves. To be called only after the response
    /// was verified.
    pub fn admit(&self, now: u64, nonce: &Nonce, user: &[u8], count: Count) -> Admission {
        let (salt, issued) = nonce.identity();
        let key = Key { salt, issued, user: self.hasher.hash_one(user) as u32 };
        let number = nonce.issued_at(now) / u64::from(self.slice);
        let part = (self.hasher.hash_one(salt) >> 32) as usize & (self.partitions.len() - 1);
        let mut part = self.partitions[part].lock().unwrap_or_else(|broken| broken.into_inner());
        let freed = part.purge(now, self.slice, self.life);
        let before = part.entries;
        let admission = part.admit(&self.hasher, key, number, self.window, self.entries_each, count);
        let added = part.entries - before;
        drop(part);
        if freed != added {
            self.entries.fetch_add(added.wrapping_sub(freed), Ordering::Relaxed);
        }
        admission
    }

    /// Drops nonces that expired before `now`. [`ReplayTable::admit`] drops them too, partition by partition; a call
    /// every few seconds keeps an idle table empty.
    pub fn purge(&self, now: u64) {
        for part in &self.partitions {
            let freed = part.lock().unwrap_or_else(|broken| broken.into_inner()).purge(now, self.slice, self.life);
            if freed > 0 {
                self.entries.fetch_sub(freed, Ordering::Relaxed);
            }
        }
    }

    /// Returns the number of remembered nonces, for a gauge.
    pub fn entries(&self) -> usize {
        self.entries.load(Ordering::Relaxed)
    }

    /// Returns the maximum number of nonces; a partition may be full a little earlier.
    pub fn capacity(&self) -> usize {
        self.entries_each * self.partitions.len()
    }
}

impl Partition {
    fn new(number: u32) -> Self {
        Self {
            slices: Default::default(),
            entries: 0,
            shares: Box::new([0; SHARES]),
            // Multiplicative hashing: the golden ratio of 2^32, times an odd number.
            spread: 0x9e37_79b1u32.wrapping_mul(number.wrapping_mul(2) + 1),
        }
    }

    /// Returns the position of this user's counter.
    fn share(&self, user: u32) -> usize {
        (user.wrapping_mul(self.spread) >> 24) as usize % SHARES
    }

    /// Empties slices whose last nonce has expired. Returns the number of dropped entries.
    fn purge(&mut self, now: u64, length: u32, life: u32) -> usize {
        let mut freed = 0;
        for slice in 0..SLICES {
            let Slice { number, len, .. } = self.slices[slice];
            let last_issue = (number + 1) * u64::from(length) - 1;
            if len > 0 && last_issue + u64::from(life) < now {
                // The memory is freed too, so that after a burst the table shrinks to the need of the next slice.
                let gone = std::mem::take(&mut self.slices[slice]);
                freed += len as usize;
                for entry in gone.chunks.iter().flatten() {
                    let share = self.share(entry.key.user);
                    self.shares[share] -= 1;
                }
            }
        }
        self.entries -= freed;
        freed
    }

    fn admit(
        &mut self,
        hasher: &FixedState,
        key: Key,
        number: u64,
        window: u32,
        bound: usize,
        count: Count,
    ) -> Admission {
        let share = self.share(key.user);
        let slice = &mut self.slices[(number % SLICES as u64) as usize];
        if slice.number != number {
            if slice.len > 0 {
                // Two live slices have the same place only if a clock jumped. Earlier uses are unknown then, so the use
                // is refused.
                return Admission::Replayed;
            }
            slice.number = number;
        }
        let hash = hasher.hash_one(&key);
        if let Some(used) = slice.find(hash, &key) {
            return if used.admit(count, window) { Admission::New } else { Admission::Replayed };
        }
        if self.shares[share] as usize >= bound.saturating_sub(self.entries) {
            return Admission::Full;
        }
        self.entries += 1;
        self.shares[share] += 1;
        let used = match count {
            Count::Nc(highest) => Used { highest, seen: 1 },
            // Every earlier count is lower than this one, and is marked as seen.
            Count::Once => Used { highest: u32::MAX, seen: u64::MAX },
        };
        slice.insert(hasher, hash, key, used);
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
        let key = NonceKey::new(b"k", 1);
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
        for (salt, user) in [(1, b"bob"), (2, b"eve")] {
            assert_eq!(table.admit(1_000, &nonce(1_000, salt), user, Count::Nc(1)), Admission::New);
        }
        assert_eq!(table.admit(1_000, &nonce(1_000, 3), b"ann", Count::Nc(1)), Admission::Full);
        assert_eq!(table.admit(1_000, &nonce(1_000, 1), b"bob", Count::Nc(2)), Admission::New);
        assert_eq!((table.entries(), table.capacity()), (2, 2));
    }

    #[test]
    fn no_user_holds_more_than_is_free() {
        let settings = ReplaySettings { entries: 4_096, partitions: 4, window: 32 };
        let table = ReplayTable::new(settings, 300, 10, 7);
        let mut salt = 0;
        let mut admits = |user: &[u8]| {
            salt += 1;
            table.admit(1_000, &nonce(1_000, salt), user, Count::Nc(1)) == Admission::New
        };
        // Each user takes half of the free entries: 2,048, 1,024, 512.
        let fill = [b"mal", b"eve", b"sid"].map(|user| (0..10_000).filter(|_| admits(user)).count());
        assert_eq!(fill, [2_048, 1_024, 512]);
        // Many other users still find room.
        let late = (0..200u32).filter(|n| admits(&n.to_be_bytes())).count();
        assert!(late >= 190, "{late} of 200 found room");
        // The shares expire with the entries.
        table.purge(2_000);
        assert_eq!(table.entries(), 0);
        let shares = |part: &Mutex<Partition>| part.lock().expect("no panic").shares.iter().sum::<u32>();
        assert_eq!(table.partitions.iter().map(shares).sum::<u32>(), 0);
    }

    #[test]
    fn entries_outlive_the_end_of_32_bits_of_seconds() {
        let table = table(100_000, 32);
        for now in (1 << 32) - 400..(1 << 32) + 400u64 {
            let fresh = nonce(now, now);
            assert_eq!(table.admit(now, &fresh, b"bob", Count::Nc(1)), Admission::New, "{now}");
            assert_eq!(table.admit(now, &fresh, b"bob", Count::Nc(1)), Admission::Replayed, "{now}");
        }
        assert!(table.entries() <= 300 + 2 * 52 + 1, "{}", table.entries());
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
            // Every nonce that is still fresh is still known.
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
