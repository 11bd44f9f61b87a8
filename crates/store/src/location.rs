//! Location table (RFC 3261 section 10): the current contacts of each address-of-record.
//!
//! One table for the process, read by every shard on every call. It is split into partitions, each behind its own short
//! lock, chosen by a keyed hash of the address-of-record. A look-up allocates nothing and does no I/O; a change is
//! decided and applied under the lock ([`LocationTable::update`]), so two phones that register one address-of-record
//! from two shards cannot overwrite each other. [`journal`](crate::journal) describes how changes reach the disk, and
//! the handling of failures.
//!
//! The caller provides the time: `now_ms` and [`Binding::expires_at`] are milliseconds on one clock that never goes
//! back ([`clock`](crate::clock)).
//!
//! Closures given to these functions run under a partition's lock: they must be short and must not call the table.

mod decision;
mod rename;

use std::hash::BuildHasher;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use foldhash::quality::RandomState;

use self::decision::Plan;
pub use self::decision::{ExistingBindings, Step, UpdateError, UpdateStatus};
pub use self::rename::Renamed;
use crate::binding::{Binding, BindingId, BindingView, InvalidBinding, PackedBinding};
use crate::journal::Change;
use crate::partition::Partition;
use crate::queue::Queue;
use crate::ticket::Ticket;
use crate::user_agent_texts::UserAgentTexts;

/// Limits of the table.
#[derive(Clone, Debug)]
pub struct LocationSettings {
    /// Number of this server among the servers that share a database; part of each id.
    pub node: u16,
    /// Partitions; rounded up to a power of two, 1 to 65,536.
    pub partitions: usize,
    /// Maximum number of bindings in all.
    pub bindings: usize,
    /// Maximum size of one packed binding (its texts and about 60 bytes more), in bytes.
    pub binding_bytes: usize,
    /// Maximum number of different User-Agent texts that bindings share (at most 65,535).
    pub user_agents: usize,
}

impl Default for LocationSettings {
    fn default() -> Self {
        Self { node: 0, partitions: 256, bindings: 10_000_000, binding_bytes: 16 * 1024, user_agents: 4096 }
    }
}

/// Figures of the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LocationGauges {
    /// Bindings, including expired ones that are not yet cleaned up.
    pub bindings: usize,
    /// Addresses-of-record with at least one binding.
    pub aors: usize,
    /// Maximum number of bindings in all.
    pub bound: usize,
    /// Different User-Agent texts.
    pub user_agents: usize,
    /// Bindings that expired since start.
    pub expired: u64,
}

/// Position in [`LocationTable::walk`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    partition: usize,
    slot: usize,
}

impl Cursor {
    /// Returns the position as a number, for a caller in another process.
    pub const fn to_number(self) -> u64 {
        (self.partition as u64) << 40 | self.slot as u64
    }

    /// Reads a position from a number. A number that was never given out means an arbitrary position, or none.
    pub const fn from_number(number: u64) -> Self {
        Self { partition: (number >> 40) as usize, slot: (number & ((1 << 40) - 1)) as usize }
    }
}

/// Location table.
pub struct LocationTable {
    partitions: Box<[Mutex<Partition>]>,
    hasher: RandomState,
    agents: UserAgentTexts,
    settings: LocationSettings,
    next_id: AtomicU64,
    bindings: AtomicUsize,
    aors: AtomicUsize,
    expired: AtomicU64,
    /// First partition of the next clean-up, so that its bound starves no partition.
    clean_from: AtomicUsize,
    queue: OnceLock<Arc<Queue<Change>>>,
}

impl LocationTable {
    /// Creates an empty table that writes nothing to disk until a [`Journal`](crate::journal::Journal) is started on
    /// it.
    pub fn new(settings: LocationSettings) -> Self {
        let partitions = settings.partitions.clamp(1, 65_536).next_power_of_two();
        Self {
            partitions: (0..partitions).map(|_| Mutex::default()).collect(),
            hasher: RandomState::default(),
            agents: UserAgentTexts::new(settings.user_agents),
            next_id: AtomicU64::new(BindingId::of_node(settings.node).start() + 1),
            settings,
            bindings: AtomicUsize::new(0),
            aors: AtomicUsize::new(0),
            expired: AtomicU64::new(0),
            clean_from: AtomicUsize::new(0),
            queue: OnceLock::new(),
        }
    }

    /// Calls `f` for each binding of `aor` that has not expired at `now_ms`, in no particular order. Allocates nothing.
    pub fn lookup(&self, aor: &[u8], now_ms: u64, f: &mut dyn FnMut(BindingView<'_>)) {
        let hash = self.hasher.hash_one(aor);
        let partition = self.lock(hash);
        for slot in partition.of(hash, aor) {
            let record = partition.at(slot);
            if record.expires_at() > now_ms {
                f(BindingView::new(record, &self.agents));
            }
        }
    }

    /// Tells whether `aor` has a binding that has not expired at `now_ms`.
    pub fn is_registered(&self, aor: &[u8], now_ms: u64) -> bool {
        let mut found = false;
        self.lookup(aor, now_ms, &mut |_| found = true);
        found
    }

    /// Decides about the contacts of one address-of-record, under one lock, and applies all steps of the decision or
    /// none (RFC 3261 section 10.3 step 7).
    ///
    /// `decide` sees the bindings registered at `now_ms` and returns the steps, taken in order; no steps mean a query
    /// (REGISTER without Contact). On [`UpdateStatus::Pending`] the 200 waits for `ticket`. `most` is the largest
    /// number of contacts allowed; an address-of-record that has more already may refresh and remove, not add.
    ///
    /// # Errors
    /// Nothing has changed then, and the ticket does not come back.
    pub fn update<'c, E>(
        &self,
        aor: &[u8],
        now_ms: u64,
        most: usize,
        ticket: Ticket,
        decide: impl FnOnce(&ExistingBindings<'_>) -> Result<Vec<Step<'c>>, E>,
    ) -> Result<UpdateStatus, UpdateError<E>> {
        let decide = |current: &ExistingBindings<'_>| Ok((decide(current)?, ()));
        self.update_and(aor, now_ms, most, ticket, decide, |()| ()).map(|(status, ())| status)
    }

    /// Works as [`update`](Self::update), but `decide` returns a value in addition to the steps. Once the table has accepted the steps, `taken` gets
    /// this value under the same lock: requests that it sends have the order of the decisions. Also returns the result of `taken`.
    ///
    /// # Errors
    /// Nothing has changed then, `taken` is not called, and the ticket does not come back.
    pub fn update_and<'c, T, R, E>(
        &self,
        aor: &[u8],
        now_ms: u64,
        most: usize,
        ticket: Ticket,
        decide: impl FnOnce(&ExistingBindings<'_>) -> Result<(Vec<Step<'c>>, T), E>,
        taken: impl FnOnce(T) -> R,
    ) -> Result<(UpdateStatus, R), UpdateError<E>> {
        let hash = self.hasher.hash_one(aor);
        let mut guard = self.lock(hash);
        let partition = &mut *guard;
        let mut all: Vec<u32> = partition.of(hash, aor).collect();
        all.sort_unstable_by_key(|slot| partition.at(*slot).id());
        let is_live = |partition: &Partition, slot: u32| partition.at(slot).expires_at() > now_ms;
        let live: Vec<u32> = all.iter().copied().filter(|slot| is_live(partition, *slot)).collect();

        let (steps, rest) = decide(&ExistingBindings { partition, live: &live, agents: &self.agents })
            .map_err(UpdateError::Decision)?;
        let plan = Plan::of(&steps, partition, &live, |id, binding| {
            let id = id.unwrap_or_else(|| BindingId(self.next_id.fetch_add(1, Ordering::Relaxed)));
            PackedBinding::pack(id, &Binding { aor, ..*binding }, &self.agents, self.settings.binding_bytes)
        })?;
        let alive = plan.puts.iter().filter(|r| r.expires_at() > now_ms).count() + plan.untouched;
        if alive > most.max(live.len()) {
            return Err(UpdateError::TooManyContacts { contacts: alive, limit: most });
        }
        let (more, less) = (plan.puts.len(), plan.gone.len());
        if more > less && self.bindings.load(Ordering::Relaxed) + (more - less) > self.settings.bindings {
            return Err(UpdateError::TableFull);
        }

        let standing = match self.queue.get() {
            None => UpdateStatus::Done,
            Some(queue) => {
                let replaced = |id: &BindingId| plan.puts.iter().any(|r| r.id() == *id);
                let gone = plan.gone.iter().map(|slot| partition.at(*slot).id());
                let changed = !steps.is_empty();
                queue.submit(Change::Update {
                    ticket: Some(ticket),
                    aor: aor.into(),
                    deletes: gone.filter(|id| !replaced(id)).collect(),
                    puts: plan.puts.clone(),
                    before: if changed { all.iter().map(|s| partition.at(*s).clone()).collect() } else { Vec::new() },
                })?;
                UpdateStatus::Pending
            }
        };

        for slot in &plan.gone {
            partition.remove(hash, *slot);
        }
        for record in plan.puts {
            partition.insert(hash, record, |record| self.hasher.hash_one(record.aor()));
        }
        self.account(all.len(), all.len() + more - less);
        Ok((standing, taken(rest)))
    }

    /// Removes at most `most` bindings that expired at or before `now_ms`, and passes each of them to `each`. Returns
    /// their number; if this is `most`, there may be more. Must be called about once a second.
    pub fn expire(&self, now_ms: u64, most: usize, each: &mut dyn FnMut(BindingView<'_>)) -> usize {
        let count = self.partitions.len();
        let first = self.clean_from.load(Ordering::Relaxed);
        let mut left = most;
        for n in 0..count {
            let at = (first + n) % count;
            if left == 0 {
                self.clean_from.store(at, Ordering::Relaxed);
                break;
            }
            left -= self.expire_partition(at, now_ms, left, each);
        }
        most - left
    }

    /// Bindings removed under one hold of a lock.
    const CHUNK: usize = 64;

    fn expire_partition(&self, at: usize, now_ms: u64, most: usize, each: &mut dyn FnMut(BindingView<'_>)) -> usize {
        let mut done = 0;
        let mut due = Vec::new();
        while done < most {
            let mut guard = self.partitions[at].lock().unwrap_or_else(PoisonError::into_inner);
            let partition = &mut *guard;
            due.clear();
            let finished = partition.due(now_ms, (most - done).min(Self::CHUNK), &mut due);
            if due.is_empty() {
                break;
            }
            if let Some(queue) = self.queue.get() {
                let ids = due.iter().map(|slot| partition.at(*slot).id()).collect();
                // The queue is full: the bindings stay until the next round, and look-ups do not see them.
                if queue.submit(Change::Purge { ids }).is_err() {
                    break;
                }
            }
            for slot in &due {
                let record = partition.at(*slot);
                let hash = self.hasher.hash_one(record.aor());
                each(BindingView::new(record, &self.agents));
                let record = partition.remove(hash, *slot);
                let last = partition.of(hash, record.aor()).next().is_none();
                self.bindings.fetch_sub(1, Ordering::Relaxed);
                self.aors.fetch_sub(usize::from(last), Ordering::Relaxed);
            }
            done += due.len();
            self.expired.fetch_add(due.len() as u64, Ordering::Relaxed);
            if finished {
                break;
            }
        }
        done
    }

    /// Passes up to `most` bindings from `from` on to `each`. Returns the next position, or `None` at the end. The lock
    /// is held for this step only: a binding that is present all the time is seen once; a binding that is added or
    /// removed meanwhile may be missed. Expired bindings are included.
    pub fn walk(&self, from: Cursor, most: usize, each: &mut dyn FnMut(BindingView<'_>)) -> Option<Cursor> {
        let Cursor { partition, mut slot } = from;
        let guard = self.partitions.get(partition)?.lock().unwrap_or_else(PoisonError::into_inner);
        let mut left = most.max(1);
        while slot < guard.slots() {
            if left == 0 {
                return Some(Cursor { partition, slot });
            }
            if let Some(record) = guard.slot(slot) {
                each(BindingView::new(record, &self.agents));
                left -= 1;
            }
            slot += 1;
        }
        (partition + 1 < self.partitions.len()).then_some(Cursor { partition: partition + 1, slot: 0 })
    }

    /// Returns figures for the log and the metrics.
    pub fn gauges(&self) -> LocationGauges {
        LocationGauges {
            bindings: self.bindings.load(Ordering::Relaxed),
            aors: self.aors.load(Ordering::Relaxed),
            bound: self.settings.bindings,
            user_agents: self.agents.len(),
            expired: self.expired.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn agents(&self) -> &UserAgentTexts {
        &self.agents
    }

    /// Inserts a binding from the database.
    pub(crate) fn load(&self, id: BindingId, binding: &Binding<'_>) -> Result<(), InvalidBinding> {
        let record = PackedBinding::pack(id, binding, &self.agents, self.settings.binding_bytes)?;
        let hash = self.hasher.hash_one(binding.aor);
        let mut partition = self.lock(hash);
        let before = partition.of(hash, binding.aor).count();
        partition.insert(hash, record, |record| self.hasher.hash_one(record.aor()));
        self.account(before, before + 1);
        Ok(())
    }

    /// Returns the ids that this table may assign.
    pub(crate) const fn ids(&self) -> RangeInclusive<u64> {
        BindingId::of_node(self.settings.node)
    }

    /// Raises the next id of a new binding to at least `id`.
    pub(crate) fn ids_from(&self, id: u64) {
        self.next_id.fetch_max(id, Ordering::Relaxed);
    }

    /// Sends all further changes to `queue`. Only the first call has an effect, because a table has one journal.
    pub(crate) fn write_to(&self, queue: Arc<Queue<Change>>) {
        let _first = self.queue.set(queue);
    }

    /// Restores the bindings `before` of an address-of-record. Calls `fence` under the same lock and returns its
    /// result.
    pub(crate) fn restore(&self, aor: &[u8], before: Vec<PackedBinding>, fence: impl FnOnce() -> u64) -> u64 {
        let hash = self.hasher.hash_one(aor);
        let mut partition = self.lock(hash);
        let now: Vec<u32> = partition.of(hash, aor).collect();
        let counts = (now.len(), before.len());
        for slot in now {
            partition.remove(hash, slot);
        }
        for record in before {
            partition.insert(hash, record, |record| self.hasher.hash_one(record.aor()));
        }
        self.account(counts.0, counts.1);
        fence()
    }

    /// Updates the counters after an address-of-record went from `before` to `after` bindings.
    fn account(&self, before: usize, after: usize) {
        if after >= before {
            self.bindings.fetch_add(after - before, Ordering::Relaxed);
        } else {
            self.bindings.fetch_sub(before - after, Ordering::Relaxed);
        }
        match (before, after) {
            (0, 1..) => {
                self.aors.fetch_add(1, Ordering::Relaxed);
            }
            (1.., 0) => {
                self.aors.fetch_sub(1, Ordering::Relaxed);
            }
            _ => {}
        }
    }

    fn lock(&self, hash: u64) -> MutexGuard<'_, Partition> {
        self.partitions[self.partition_of(hash)].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn partition_of(&self, hash: u64) -> usize {
        // hashbrown uses the lowest bits and the seven highest bits; these bits are between them.
        (hash >> 32) as usize & (self.partitions.len() - 1)
    }
}

#[cfg(test)]
mod tests;
