//! Calls that are counted under the limits of rules, in all shards together.
//!
//! A call counts from when it is put into the table of calls of its shard until it leaves that, however it ended. A call on its way to another shard
//! counts in neither.

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};
use std::hash::{BuildHasher, Hasher};
use std::sync::Mutex;
use strowger_config::CallLimitTable;

/// A limit, and of which of the things that it is for: what a call counts under.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitScope {
    /// Name of the limit.
    pub name: Box<str>,
    /// The user, group or URI that it is for; empty: all calls.
    pub value: Box<[u8]>,
}

/// A call is to be counted, if there are not too many.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Claim {
    pub(crate) counted: LimitScope,
    most: u32,
    /// Of the answer to one that is too many.
    pub(crate) status: u16,
}

impl Claim {
    pub(crate) fn of(limit: &CallLimitTable, value: &[u8]) -> Self {
        let counted = LimitScope { name: limit.name.as_str().into(), value: value.into() };
        Self { counted, most: limit.most, status: limit.status }
    }
}

/// What calls count under, by its hash, and their number.
type Calls = HashMap<u64, (LimitScope, u32)>;

/// Calls by what they count under. All shards share one.
#[derive(Debug)]
pub struct CallLimits {
    partitions: Box<[Mutex<Calls>]>,
    hash: foldhash::quality::FixedState,
}

/// So many that one is looked through in no time: each is, under its lock, for who asks what calls count under.
const PARTITIONS: usize = 256;
/// Entries of a partition for which memory stays.
const RESERVE: usize = 7;

impl CallLimits {
    /// `seed`: known to no peer.
    pub(crate) fn new(seed: u64) -> Self {
        let partitions = (0..PARTITIONS).map(|_| Mutex::default()).collect();
        Self { partitions, hash: foldhash::quality::FixedState::with_seed(seed) }
    }

    fn with<T>(&self, counted: &LimitScope, work: impl FnOnce(u64, &mut Calls) -> T) -> T {
        let mut hasher = self.hash.build_hasher();
        hasher.write_usize(counted.name.len());
        hasher.write(counted.name.as_bytes());
        hasher.write(&counted.value);
        let key = hasher.finish();
        let partition = &self.partitions[key as usize % PARTITIONS];
        work(key, &mut partition.lock().expect("nothing panics while it holds this"))
    }

    /// Whether one more call would be too many now.
    pub(crate) fn is_full(&self, claim: &Claim) -> bool {
        self.with(&claim.counted, |key, calls| calls.get(&key).is_some_and(|(_, count)| *count >= claim.most))
    }

    /// Counts a call under all of these, or under none: then that which has too many is returned.
    pub(crate) fn take<'a>(&self, claims: &'a [Claim]) -> Result<(), &'a Claim> {
        for (n, claim) in claims.iter().enumerate() {
            let is_counted = self.with(&claim.counted, |key, calls| {
                let (_, count) = calls.entry(key).or_insert_with(|| (claim.counted.clone(), 0));
                let has_room = *count < claim.most;
                *count += u32::from(has_room);
                has_room
            });
            if !is_counted {
                claims[..n].iter().for_each(|claim| self.give_back(&claim.counted));
                return Err(claim);
            }
        }
        Ok(())
    }

    /// Counts a call that counted elsewhere before, however many there are.
    pub(crate) fn take_over(&self, counted: &LimitScope) {
        self.with(counted, |key, calls| calls.entry(key).or_insert_with(|| (counted.clone(), 0)).1 += 1);
    }

    /// A call has ended.
    pub(crate) fn give_back(&self, counted: &LimitScope) {
        self.with(counted, |key, calls| {
            let Some((_, count)) = calls.get_mut(&key) else { return };
            *count -= 1;
            if *count == 0 {
                calls.remove(&key);
                // Not where calls come one by one.
                if calls.is_empty() && calls.capacity() > RESERVE {
                    calls.shrink_to(RESERVE);
                }
            }
        });
    }

    /// The calls that count under this now.
    pub fn calls(&self, counted: &LimitScope) -> u32 {
        self.with(counted, |key, calls| calls.get(&key).map_or(0, |(_, count)| *count))
    }

    /// Into how many parts what calls count under is cut.
    pub const fn parts(&self) -> usize {
        self.partitions.len()
    }

    /// Shows what calls count under now in a part, with their number. Calls that begin and end meanwhile wait for `visit`: it is to be short.
    pub fn each(&self, part: usize, visit: &mut dyn FnMut(&LimitScope, u32)) {
        let Some(partition) = self.partitions.get(part) else { return };
        let calls = partition.lock().expect("nothing panics while it holds this");
        calls.values().for_each(|(counted, count)| visit(counted, *count));
    }

    /// What calls count under now, with their number, by name and value.
    pub fn list(&self) -> Vec<(LimitScope, u32)> {
        let mut all = Vec::new();
        for part in 0..self.parts() {
            self.each(part, &mut |counted, count| all.push((counted.clone(), count)));
        }
        all.sort_by(|(a, _), (b, _)| (&a.name, &a.value).cmp(&(&b.name, &b.value)));
        all
    }
}
