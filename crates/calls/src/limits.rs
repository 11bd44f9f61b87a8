//! Counts of calls under the limits of rules and failures, in all shards together.
//!
//! A call counts from its entry into the table of calls of its shard until it leaves the table, however it ended. A
//! call on its way to another shard counts in neither shard. The counts of other servers under the same limits are set
//! from outside ([`CallLimits::set_elsewhere`]), and are added.

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};
use std::hash::{BuildHasher, Hasher};
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// Scope of a limit: the limit, and the user, group or URI whose calls it counts.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LimitScope {
    /// Name of the limit.
    pub name: Box<str>,
    /// User, group or URI; empty: all calls.
    pub value: Box<[u8]>,
}

/// Request of a call to count under a limit, if there is room.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// Scope of the limit.
    pub counted: LimitScope,
    /// Maximum number of calls in the scope.
    pub most: u32,
    /// Status of the response if there is no room.
    pub status: u16,
}

impl Claim {
    /// Encodes claims as the bytes that the proxy hands back before it tries a target; never empty.
    pub fn write_all(claims: &[Self]) -> Vec<u8> {
        postcard::to_extend(claims, Vec::new()).expect("a vector takes all, and every sequence knows its length")
    }

    /// Decodes the bytes of [`Claim::write_all`]. Empty bytes hold no claims.
    pub fn read_all(bytes: &[u8]) -> Option<Vec<Self>> {
        if bytes.is_empty() { Some(Vec::new()) } else { postcard::from_bytes(bytes).ok() }
    }

    /// Adds claims: a call counts once under each limit and value.
    pub fn add(claims: &mut Vec<Self>, more: impl IntoIterator<Item = Self>) {
        for claim in more {
            if !claims.iter().any(|other| other.counted == claim.counted) {
                claims.push(claim);
            }
        }
    }
}

/// Entries by the hash of their scope.
type Calls = HashMap<u64, Entry, foldhash::fast::RandomState>;

#[derive(Debug)]
struct Entry {
    counted: LimitScope,
    /// Calls of this server.
    own: u32,
    /// Calls of other servers.
    elsewhere: u32,
}

impl Entry {
    fn of(counted: &LimitScope) -> Self {
        Self { counted: counted.clone(), own: 0, elsewhere: 0 }
    }

    const fn all(&self) -> u32 {
        self.own.saturating_add(self.elsewhere)
    }
}

/// Counts of calls by scope. All shards share one table.
#[derive(Debug)]
pub struct CallLimits {
    partitions: Box<[Mutex<Calls>]>,
    hash: foldhash::quality::FixedState,
    /// Names of the limits under which no call has room as long as the counts of other servers are unknown.
    closed: Mutex<Vec<Box<str>>>,
    /// Set if there are any.
    any_closed: AtomicBool,
    /// Number of counts of other servers that became too old.
    outdated: AtomicU64,
}

/// Number of partitions. A reader of the counts walks each partition under its lock; with so many partitions each walk
/// is short.
const PARTITIONS: usize = 256;
/// Number of entries for which an empty partition keeps its memory.
const RESERVE: usize = 7;

impl CallLimits {
    /// Creates an empty table. `seed`: random number that no peer knows.
    pub fn new(seed: u64) -> Self {
        let partitions = (0..PARTITIONS).map(|_| Mutex::default()).collect();
        let (closed, any_closed, outdated) = Default::default();
        Self { partitions, hash: foldhash::quality::FixedState::with_seed(seed), closed, any_closed, outdated }
    }

    fn key(&self, counted: &LimitScope) -> u64 {
        let mut hasher = self.hash.build_hasher();
        hasher.write_usize(counted.name.len());
        hasher.write(counted.name.as_bytes());
        hasher.write(&counted.value);
        hasher.finish()
    }

    fn with<T>(&self, counted: &LimitScope, work: impl FnOnce(u64, &mut Calls) -> T) -> T {
        let key = self.key(counted);
        let partition = &self.partitions[key as usize % PARTITIONS];
        work(key, &mut partition.lock().expect("nothing panics while it holds this"))
    }

    fn is_closed(&self, counted: &LimitScope) -> bool {
        self.any_closed.load(Relaxed)
            && self.closed.lock().expect("nothing panics while it holds this").contains(&counted.name)
    }

    /// Notes that this number of other servers' counts has become too old.
    pub fn note_outdated(&self, counts: u64) {
        self.outdated.fetch_add(counts, Relaxed);
    }

    /// Returns the number of times that the counts of another server became too old.
    pub fn outdated(&self) -> u64 {
        self.outdated.load(Relaxed)
    }

    /// Tells whether one more call would be too many now.
    pub fn is_full(&self, claim: &Claim) -> bool {
        self.is_closed(&claim.counted)
            || self.with(&claim.counted, |key, calls| calls.get(&key).is_some_and(|entry| entry.all() >= claim.most))
    }

    /// Counts a call under all of these claims, or under none. Returns as error a claim without room.
    pub fn take<'a>(&self, claims: &'a [Claim]) -> Result<(), &'a Claim> {
        for (n, claim) in claims.iter().enumerate() {
            let is_counted = !self.is_closed(&claim.counted)
                && self.with(&claim.counted, |key, calls| {
                    let entry = calls.entry(key).or_insert_with(|| Entry::of(&claim.counted));
                    let has_room = entry.all() < claim.most;
                    entry.own += u32::from(has_room);
                    has_room
                });
            if !is_counted {
                claims[..n].iter().for_each(|claim| self.give_back(&claim.counted));
                return Err(claim);
            }
        }
        Ok(())
    }

    /// Counts a call that has counted elsewhere before, even above the limit.
    pub fn take_over(&self, counted: &LimitScope) {
        self.with(counted, |key, calls| calls.entry(key).or_insert_with(|| Entry::of(counted)).own += 1);
    }

    /// Counts one call less.
    pub fn give_back(&self, counted: &LimitScope) {
        self.with(counted, |key, calls| {
            let Some(entry) = calls.get_mut(&key) else { return };
            entry.own -= 1;
            if entry.all() == 0 {
                calls.remove(&key);
                // The memory of single calls is kept, because they come and go one by one.
                if calls.is_empty() && calls.capacity() > RESERVE {
                    calls.shrink_to(RESERVE);
                }
            }
        });
    }

    /// Returns the number of calls in this scope.
    pub fn calls(&self, counted: &LimitScope) -> u32 {
        self.with(counted, |key, calls| calls.get(&key).map_or(0, Entry::all))
    }

    /// Returns the number of partitions.
    pub const fn parts(&self) -> usize {
        self.partitions.len()
    }

    /// Calls `visit` with each scope of a partition and its number of calls. Calls that begin and end meanwhile wait
    /// for `visit`, so it must be short.
    pub fn each(&self, part: usize, visit: &mut dyn FnMut(&LimitScope, u32)) {
        let Some(partition) = self.partitions.get(part) else { return };
        let calls = partition.lock().expect("nothing panics while it holds this");
        calls.values().for_each(|entry| visit(&entry.counted, entry.all()));
    }

    /// Replaces the counts of other servers, and the names of the limits under which no call has room.
    pub fn set_elsewhere(&self, elsewhere: &std::collections::HashMap<LimitScope, u32>, closed: Vec<Box<str>>) {
        for partition in &self.partitions {
            let mut calls = partition.lock().expect("nothing panics while it holds this");
            calls.retain(|_, entry| {
                entry.elsewhere = elsewhere.get(&entry.counted).copied().unwrap_or(0);
                entry.all() > 0
            });
        }
        for (counted, count) in elsewhere.iter().filter(|(_, count)| **count > 0) {
            self.with(counted, |key, calls| {
                calls.entry(key).or_insert_with(|| Entry::of(counted)).elsewhere = *count;
            });
        }
        self.any_closed.store(!closed.is_empty(), Relaxed);
        *self.closed.lock().expect("nothing panics while it holds this") = closed;
    }

    /// Lists the scopes in which this server has calls, with their number of calls, ordered by name and value.
    pub fn list(&self) -> Vec<(LimitScope, u32)> {
        let of = |partition: &Mutex<Calls>| {
            let calls = partition.lock().expect("nothing panics while it holds this");
            let own = calls.values().filter(|entry| entry.own > 0);
            own.map(|entry| (entry.counted.clone(), entry.own)).collect::<Vec<_>>()
        };
        let mut all: Vec<_> = self.partitions.iter().flat_map(of).collect();
        all.sort_by(|(a, _), (b, _)| (&a.name, &a.value).cmp(&(&b.name, &b.value)));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(value: &str, most: u32) -> Claim {
        let counted = LimitScope { name: "line".into(), value: value.as_bytes().into() };
        Claim { counted, most, status: 503 }
    }

    #[test]
    fn calls_of_other_servers_count_too() {
        let limits = CallLimits::new(1);
        let (alice, bob) = ([claim("alice", 3)], [claim("bob", 3)]);
        assert!(limits.take(&alice).is_ok());
        let heard = [(alice[0].counted.clone(), 2), (bob[0].counted.clone(), 3)].into_iter().collect();
        limits.set_elsewhere(&heard, Vec::new());
        assert!(limits.is_full(&alice[0]) && limits.take(&alice).is_err());
        assert!(limits.is_full(&bob[0]) && limits.take(&bob).is_err());
        assert_eq!(limits.list(), [(alice[0].counted.clone(), 1)], "those of this server");
        // One call of this server ends, and all calls of the other servers.
        limits.give_back(&alice[0].counted);
        assert!(!limits.is_full(&alice[0]));
        limits.set_elsewhere(&Default::default(), Vec::new());
        assert!(!limits.is_full(&bob[0]) && limits.list().is_empty());
        let held: usize = limits.partitions.iter().map(|calls| calls.lock().unwrap().len()).sum();
        assert_eq!(held, 0, "nothing is kept of what has ended");
    }

    #[test]
    fn a_limit_that_is_closed_has_no_room() {
        let limits = CallLimits::new(1);
        let claims = [claim("alice", 3)];
        limits.set_elsewhere(&Default::default(), vec!["other".into()]);
        assert!(!limits.is_full(&claims[0]));
        limits.set_elsewhere(&Default::default(), vec!["line".into()]);
        assert!(limits.is_full(&claims[0]) && limits.take(&claims).is_err());
        limits.set_elsewhere(&Default::default(), Vec::new());
        assert!(limits.take(&claims).is_ok());
    }
}
