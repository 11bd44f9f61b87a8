//! Renaming of addresses-of-record after a configuration change: a domain has become an alias of another domain.
//!
//! Each address-of-record is renamed under the locks of two partitions, in memory and by a change of the journal.
//! Bindings keep their ids, so each row is replaced. The bindings of both names are merged into one user. A start does
//! the same.

use std::collections::HashSet;
use std::hash::BuildHasher;
use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{Cursor, LocationTable};
use crate::binding::{Binding, BindingView, PackedBinding};
use crate::journal::Change;
use crate::partition::Partition;
use crate::ticket::Refused;

/// Result of [`LocationTable::rename_all`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Renamed {
    /// Bindings with a new address-of-record.
    pub bindings: usize,
    /// Addresses-of-record that kept their name because the journal did not accept the change in time.
    pub left: usize,
}

/// Bindings inspected under one hold of a lock.
const STEP: usize = 256;

/// Pause while the queue of the journal is half full.
const PAUSE: Duration = Duration::from_millis(1);

/// Partitions of two addresses-of-record, possibly the same one.
struct Pair<'a> {
    low: MutexGuard<'a, Partition>,
    high: Option<MutexGuard<'a, Partition>>,
    is_reversed: bool,
}

impl Pair<'_> {
    fn first(&mut self) -> &mut Partition {
        self.high.as_mut().filter(|_| self.is_reversed).unwrap_or(&mut self.low)
    }

    fn second(&mut self) -> &mut Partition {
        self.high.as_mut().filter(|_| !self.is_reversed).unwrap_or(&mut self.low)
    }
}

impl LocationTable {
    /// Renames each address-of-record for which `canonical` returns another name. Blocks until the journal has accepted
    /// the changes, or until `end`.
    pub fn rename_all(&self, canonical: &dyn Fn(&[u8]) -> Option<Vec<u8>>, end: Instant) -> Renamed {
        let (mut renamed, mut next) = (Renamed::default(), Some(Cursor::default()));
        let mut names = HashSet::new();
        while let Some(from) = next {
            names.clear();
            next = self.walk(from, STEP, &mut |binding| {
                if let Some(name) = canonical(binding.aor()).filter(|name| name != binding.aor()) {
                    names.insert((binding.aor().to_vec(), name));
                }
            });
            for (aor, name) in &names {
                match self.rename_until(aor, name, end) {
                    Ok(bindings) => renamed.bindings += bindings,
                    Err(_) => renamed.left += 1,
                }
            }
        }
        renamed
    }

    fn rename_until(&self, from: &[u8], to: &[u8], end: Instant) -> Result<usize, Refused> {
        loop {
            match self.rename(from, to) {
                Err(Refused::Full) if Instant::now() < end => std::thread::sleep(PAUSE),
                result => return result,
            }
        }
    }

    /// Moves all bindings of `from` to `to`. Returns the number of moved bindings.
    fn rename(&self, from: &[u8], to: &[u8]) -> Result<usize, Refused> {
        let queue = self.queue.get();
        if queue.is_some_and(|queue| queue.is_half_full()) {
            return Err(Refused::Full);
        }
        let (from_hash, to_hash) = (self.hasher.hash_one(from), self.hasher.hash_one(to));
        let mut pair = self.lock_both(from_hash, to_hash);
        let slots: Vec<u32> = pair.first().of(from_hash, from).collect();
        let mut puts = Vec::with_capacity(slots.len());
        for slot in &slots {
            let record = pair.first().at(*slot);
            let binding = Binding { aor: to, ..BindingView::new(record, &self.agents).binding() };
            match PackedBinding::pack(record.id(), &binding, &self.agents, usize::MAX) {
                Ok(put) => puts.push(put),
                Err(unfit) => {
                    tracing::warn!(id = record.id().0, "a binding keeps the former name of its domain: {unfit}");
                    return Ok(0);
                }
            }
        }
        let others: Vec<u32> = pair.second().of(to_hash, to).collect();
        let (count, before) = (puts.len(), [slots.len(), others.len()]);
        if count == 0 {
            return Ok(0);
        }
        if let Some(queue) = queue {
            let left = slots.iter().map(|slot| pair.first().at(*slot).clone()).collect();
            let joined = others.iter().map(|slot| pair.second().at(*slot).clone()).collect();
            let aors = [from.into(), to.into()];
            queue.submit(Change::Rename { aors, puts: puts.clone(), before: [left, joined] })?;
        }
        for slot in slots {
            pair.first().remove(from_hash, slot);
        }
        for record in puts {
            pair.second().insert(to_hash, record, |record| self.hasher.hash_one(record.aor()));
        }
        self.account(before[0], 0);
        self.account(before[1], before[1] + count);
        Ok(count)
    }

    /// Locks the partitions of two hashes in the order of the partition numbers. No other function holds two of these
    /// locks.
    fn lock_both(&self, first: u64, second: u64) -> Pair<'_> {
        let (first, second) = (self.partition_of(first), self.partition_of(second));
        let lock = |at: usize| self.partitions[at].lock().unwrap_or_else(PoisonError::into_inner);
        let low = lock(first.min(second));
        let high = (first != second).then(|| lock(first.max(second)));
        Pair { low, high, is_reversed: first > second }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::location::{LocationSettings, Step};
    use crate::ticket::Ticket;

    fn add(table: &LocationTable, aor: &[u8], uri: &[u8]) {
        let binding = Binding { uri, expires_at: 9_000, ..Binding::EMPTY };
        table.update::<()>(aor, 0, 10, Ticket::NONE, |_| Ok(vec![Step::Add(binding)])).expect("it fits");
    }

    /// Treats every domain `b` as an alias of `a`.
    fn canonical(aor: &[u8]) -> Option<Vec<u8>> {
        aor.strip_suffix(b"@b").map(|user| [user, b"@a"].concat())
    }

    #[test]
    fn bindings_of_both_names_become_those_of_one() {
        for partitions in [1, 256] {
            let table = LocationTable::new(LocationSettings { partitions, ..LocationSettings::default() });
            for n in 0..1_000 {
                add(&table, format!("{n}@b").as_bytes(), b"one");
                add(&table, format!("{n}@b").as_bytes(), b"two");
            }
            add(&table, b"7@a", b"three");
            add(&table, b"x@c", b"four");
            let end = Instant::now() + Duration::from_secs(20);
            assert_eq!(table.rename_all(&canonical, end), Renamed { bindings: 2_000, left: 0 });
            assert_eq!(table.rename_all(&canonical, end), Renamed::default());
            let count = |aor: &[u8]| {
                let mut count = 0;
                table.lookup(aor, 0, &mut |_| count += 1);
                count
            };
            assert_eq!((count(b"7@a"), count(b"8@a"), count(b"7@b"), count(b"x@c")), (3, 2, 0, 1));
            let gauges = table.gauges();
            assert_eq!((gauges.bindings, gauges.aors), (2_002, 1_001));
            assert_eq!(table.expire(9_000, 10_000, &mut |_| ()), 2_002);
        }
    }
}
