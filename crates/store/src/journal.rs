//! From the location table to disk: changes in order, written in groups, acknowledged once they are kept.
//!
//! # Order, and why no wrong 200 leaves
//!
//! The memory of the location table is the truth that shards read. A change is decided, applied there and queued here
//! under the *same* bucket lock, so the order on disk is the order in memory, whichever shards the REGISTERs of an
//! address-of-record came by. A shard holds its 200 until the ticket of the change comes back.
//!
//! If a group cannot be written, nothing of it is on disk. Then, for each address-of-record in it, memory goes back to what
//! it was before the first change that failed (each change carries that picture), and every change for that
//! address-of-record that was decided before memory went back fails too, since it was decided on what is no longer so.
//! So memory and disk agree again, and each of those tickets comes back with an error: a 500, never a 200. A phone may
//! be called by a binding whose 200 is a few milliseconds away; that harms nobody and saves a second copy of the table.
//!
//! A REGISTER that only asks (no Contact) takes its place in the same queue: its list may name a binding that is still
//! being written, and it must not be sent if that fails.
//!
//! # Engines
//!
//! [`BindingEngine`] is what a database must do. It may block: it lives on one thread of its own and sees groups, so an
//! engine over a network (MariaDB, PostgreSQL) sends one multi-row statement a group, Redis one pipeline. The rest, order,
//! linger, bounds, roll-back and tickets, is here once for all of them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::agents::Agents;
use crate::binding::{Binding, BindingId, BindingView, Record};
use crate::location::LocationTable;
use crate::ticket::{Refused, SinkId, Sinks, Ticket};

/// What a 200 to REGISTER promises.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Committed before the answer: survives `kill -9` of the process. After a power cut the last moments may be missing,
    /// the file is whole.
    #[default]
    Crash,
    /// Synced to disk (`fsync` or `fdatasync` returned) before the answer: survives a power cut.
    PowerLoss,
    /// Memory only: no rows are written, a restart forgets.
    None,
}

/// Why a change was not kept. The caller answers 500, or 503 for [`WriteError::Locked`] and [`WriteError::NoRoom`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// Disk full, or the file's own limit reached.
    #[error("no room on disk for the binding")]
    NoRoom,
    /// Another process held the database longer than the busy timeout.
    #[error("the database is locked by another process")]
    Locked,
    /// The disk failed.
    #[error("the disk failed")]
    Io,
    /// The database file is damaged.
    #[error("the database is damaged")]
    Corrupt,
    /// It was decided on an earlier change of the same address-of-record, and that one failed.
    #[error("an earlier change of the same address-of-record failed")]
    Superseded,
    /// The writer has stopped.
    #[error("the writer has stopped")]
    Stopped,
    /// Anything else that the database says; the log has its words.
    #[error("the database refused the change")]
    Other,
}

/// Receives tickets: once a group for each receiver, on the writer's thread. It must not block; pushing to the shard's ring
/// and waking it is what it is for.
pub trait WriteSink: Send + Sync {
    /// The tickets of one group with what became of them, in the order of their changes.
    fn written(&self, results: &[(u64, Result<(), WriteError>)]);
}

impl<F: Fn(&[(u64, Result<(), WriteError>)]) + Send + Sync> WriteSink for F {
    fn written(&self, results: &[(u64, Result<(), WriteError>)]) {
        self(results);
    }
}

/// One row to write.
#[derive(Clone, Copy, Debug)]
pub enum Write<'a> {
    /// Insert the row of this id, or replace it whole.
    Put(BindingView<'a>),
    /// Delete the row of this id; fine when there is none.
    Delete(BindingId),
    /// Delete the row of this id if it expired at or before `now_ms`.
    Purge {
        /// The row.
        id: BindingId,
        /// Milliseconds since 1970.
        now_ms: u64,
    },
}

/// A database that keeps bindings. Called on the writer's thread alone; may block, should give up after its own deadline.
pub trait BindingEngine: Send + 'static {
    /// Hands over every binding that has not expired at `now_ms` and forgets the others. Returns the highest id that was
    /// ever used as far as the rows show (0 for none).
    ///
    /// # Errors
    /// What the database said; the server should not start on it.
    fn load(&mut self, now_ms: u64, each: &mut dyn FnMut(BindingId, &Binding<'_>)) -> Result<u64, WriteError>;

    /// Writes all rows or none, in their order, as durable as it was opened for. Logs in words what went wrong.
    ///
    /// # Errors
    /// Nothing of the group is kept then.
    fn commit(&mut self, writes: &mut dyn Iterator<Item = Write<'_>>) -> Result<(), WriteError>;

    /// Called after the tickets of a group went out: the place for work that may take longer (checkpoints).
    fn settle(&mut self) {}
}

/// Limits of the queue and the writer.
#[derive(Clone, Debug)]
pub struct JournalSettings {
    /// How long the first change of a group waits for company.
    pub linger: Duration,
    /// Most changes in a group; a group that reaches it does not wait longer.
    pub group: usize,
    /// Most changes queued; more are refused ([`Refused::Full`]).
    pub queue: usize,
}

impl Default for JournalSettings {
    fn default() -> Self {
        Self { linger: Duration::from_millis(2), group: 4096, queue: 20_000 }
    }
}

/// Figures of the writer since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalGauges {
    /// Changes queued now.
    pub queued: usize,
    /// Bound of the queue.
    pub bound: usize,
    /// Groups committed.
    pub groups: u64,
    /// Changes kept.
    pub kept: u64,
    /// Changes failed.
    pub failed: u64,
    /// Changes refused since the queue was full.
    pub refused: u64,
    /// Microseconds spent in commits, all together.
    pub commit_us: u64,
    /// Longest commit, in microseconds.
    pub commit_max_us: u64,
    /// Rows of expired bindings still to be deleted because the database failed.
    pub unpurged: u64,
}

/// What one decision changes, as queued.
pub(crate) enum Change {
    /// A decision about one address-of-record.
    Update {
        ticket: Option<Ticket>,
        aor: Box<[u8]>,
        puts: Vec<Record>,
        deletes: Vec<BindingId>,
        /// All bindings of the address-of-record as they were before.
        before: Vec<Record>,
    },
    /// Bindings that expired at `now_ms`.
    Purge { ids: Vec<BindingId>, now_ms: u64 },
}

struct Pending {
    seq: u64,
    change: Change,
}

struct State {
    pending: Vec<Pending>,
    /// When the oldest of `pending` came.
    since: Instant,
    /// Number of the last change accepted.
    last: u64,
    /// The writer sleeps until something comes.
    asleep: bool,
    stopped: bool,
}

/// The bounded queue between the table and the writer.
pub(crate) struct Queue {
    state: Mutex<State>,
    wake: Condvar,
    settings: JournalSettings,
    figures: Figures,
}

#[derive(Default)]
struct Figures {
    groups: AtomicU64,
    kept: AtomicU64,
    failed: AtomicU64,
    refused: AtomicU64,
    commit_us: AtomicU64,
    commit_max_us: AtomicU64,
    unpurged: AtomicU64,
}

impl Queue {
    fn new(settings: JournalSettings) -> Self {
        Self {
            state: Mutex::new(State {
                pending: Vec::new(),
                since: Instant::now(),
                last: 0,
                asleep: false,
                stopped: false,
            }),
            wake: Condvar::new(),
            settings,
            figures: Figures::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a change. Called under a bucket lock, so it neither blocks nor does I/O.
    pub(crate) fn submit(&self, change: Change) -> Result<(), Refused> {
        let mut state = self.lock();
        if state.stopped {
            return Err(Refused::Stopped);
        }
        if state.pending.len() >= self.settings.queue {
            drop(state);
            self.figures.refused.fetch_add(1, Ordering::Relaxed);
            return Err(Refused::Full);
        }
        if state.pending.is_empty() {
            state.since = Instant::now();
        }
        state.last += 1;
        let seq = state.last;
        state.pending.push(Pending { seq, change });
        // While the writer lingers it wakes by itself: a wake-up costs more than the whole change.
        let wake = state.asleep || state.pending.len() == self.settings.group;
        state.asleep = false;
        drop(state);
        if wake {
            self.wake.notify_one();
        }
        Ok(())
    }

    /// Number of the last change accepted.
    fn last(&self) -> u64 {
        self.lock().last
    }

    /// Waits for a group; `None` once stopped and empty.
    fn take(&self, group: &mut Vec<Pending>) -> Option<()> {
        group.clear();
        let mut state = self.lock();
        while state.pending.is_empty() {
            if state.stopped {
                return None;
            }
            state.asleep = true;
            state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.asleep = false;
        while state.pending.len() < self.settings.group && !state.stopped {
            let Some(left) = self.settings.linger.checked_sub(state.since.elapsed()).filter(|d| !d.is_zero()) else {
                break;
            };
            (state, _) = self.wake.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
        }
        if state.pending.len() <= self.settings.group {
            std::mem::swap(&mut state.pending, group);
        } else {
            let most = self.settings.group.max(1);
            group.extend(state.pending.drain(..most));
        }
        Some(())
    }

    /// Refuses whatever comes from now on; what is queued is still written.
    fn stop(&self) {
        self.lock().stopped = true;
        self.wake.notify_all();
    }
}

/// The writer: a thread with an engine. Dropping it writes what is queued and ends the thread.
pub struct Journal {
    queue: Arc<Queue>,
    sinks: Arc<Sinks<dyn WriteSink>>,
    thread: Option<JoinHandle<()>>,
}

impl Journal {
    /// Loads the bindings that `engine` has into `table`, then starts the writer and makes `table` use it from now on.
    /// Returns it with the number of bindings loaded.
    ///
    /// # Errors
    /// What the engine said to the load, or that the thread could not be started ([`WriteError::Other`]).
    pub fn start(
        mut engine: impl BindingEngine,
        table: &Arc<LocationTable>,
        settings: JournalSettings,
        now_ms: u64,
    ) -> Result<(Self, usize), WriteError> {
        let mut loaded = 0;
        let highest = engine.load(now_ms, &mut |id, binding| match table.load(id, binding) {
            Ok(()) => loaded += 1,
            Err(unfit) => tracing::warn!(id = id.0, "a binding on disk is left out: {unfit}"),
        })?;
        table.ids_from(highest + 1);
        let queue = Arc::new(Queue::new(settings));
        let sinks = Arc::<Sinks<dyn WriteSink>>::default();
        let writer = Writer {
            engine,
            table: Arc::clone(table),
            queue: Arc::clone(&queue),
            sinks: Arc::clone(&sinks),
            doomed: HashMap::new(),
            unpurged: Vec::new(),
            results: Vec::new(),
        };
        let thread =
            std::thread::Builder::new().name("binding-writer".into()).spawn(move || writer.run()).map_err(|error| {
                tracing::error!("the thread that writes bindings cannot be started: {error}");
                WriteError::Other
            })?;
        table.write_to(Arc::clone(&queue));
        Ok((Self { queue, sinks, thread: Some(thread) }, loaded))
    }

    /// Adds a receiver of tickets.
    ///
    /// # Panics
    /// After 65,536 receivers: they are shards, and are made at start.
    pub fn receiver(&self, sink: Arc<dyn WriteSink>) -> SinkId {
        self.sinks.add(sink)
    }

    /// Figures for the log and the metrics.
    pub fn gauges(&self) -> JournalGauges {
        let f = &self.queue.figures;
        let of = |n: &AtomicU64| n.load(Ordering::Relaxed);
        JournalGauges {
            queued: self.queue.lock().pending.len(),
            bound: self.queue.settings.queue,
            groups: of(&f.groups),
            kept: of(&f.kept),
            failed: of(&f.failed),
            refused: of(&f.refused),
            commit_us: of(&f.commit_us),
            commit_max_us: of(&f.commit_max_us),
            unpurged: of(&f.unpurged),
        }
    }

    /// Writes what is queued, hands back its tickets and ends the thread. Changes after that are refused.
    pub fn close(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.queue.stop();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that writes bindings had ended by a panic");
        }
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.end();
    }
}

struct Writer<E> {
    engine: E,
    table: Arc<LocationTable>,
    queue: Arc<Queue>,
    sinks: Arc<Sinks<dyn WriteSink>>,
    /// Changes of these addresses-of-record up to that number were decided on what is no longer so.
    doomed: HashMap<Box<[u8]>, u64>,
    /// Expired rows that a failed group could not delete, with the time at which they had expired.
    unpurged: Vec<(BindingId, u64)>,
    results: Vec<(Ticket, Result<(), WriteError>)>,
}

impl<E: BindingEngine> Writer<E> {
    fn run(mut self) {
        // Should the engine panic, changes are refused instead of waiting for ever.
        let _stop = StopOnDrop { queue: Arc::clone(&self.queue), sinks: Arc::clone(&self.sinks) };
        let mut group = Vec::new();
        while self.queue.take(&mut group).is_some() {
            self.write(&mut group);
            self.engine.settle();
        }
    }

    fn write(&mut self, group: &mut [Pending]) {
        let doomed = |d: &HashMap<Box<[u8]>, u64>, p: &Pending| match &p.change {
            Change::Update { aor, .. } => d.get(aor).is_some_and(|fence| p.seq <= *fence),
            Change::Purge { .. } => false,
        };
        let late: Vec<bool> = if self.doomed.is_empty() {
            Vec::new()
        } else {
            group.iter().map(|p| doomed(&self.doomed, p)).collect()
        };
        let is_late = |n: usize| late.get(n).copied().unwrap_or(false);

        let outcome = self.commit(group, &is_late);
        if outcome.is_err() {
            self.roll_back(group, &is_late);
        }
        self.answer(group, &is_late, outcome);
        if let Some(last) = group.last() {
            self.doomed.retain(|_, fence| *fence > last.seq);
        }
    }

    fn commit(&mut self, group: &[Pending], is_late: &dyn Fn(usize) -> bool) -> Result<(), WriteError> {
        let agents = self.table.agents();
        let timely = group.iter().enumerate().filter(|(n, _)| !is_late(*n));
        let mut writes = timely.flat_map(|(_, pending)| rows(&pending.change, agents)).peekable();
        if writes.peek().is_none() {
            return Ok(());
        }
        let old = self.unpurged.iter().map(|(id, now_ms)| Write::Purge { id: *id, now_ms: *now_ms });
        let start = Instant::now();
        let outcome = self.engine.commit(&mut old.chain(writes));
        self.count(start.elapsed(), outcome);
        outcome
    }

    fn count(&mut self, took: Duration, outcome: Result<(), WriteError>) {
        let f = &self.queue.figures;
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        f.commit_us.fetch_add(us, Ordering::Relaxed);
        f.commit_max_us.fetch_max(us, Ordering::Relaxed);
        if outcome.is_ok() {
            self.unpurged.clear();
            f.groups.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Memory goes back to before the first change that failed, one address-of-record after the other.
    fn roll_back(&mut self, group: &mut [Pending], is_late: &dyn Fn(usize) -> bool) {
        for (n, pending) in group.iter_mut().enumerate() {
            match &mut pending.change {
                Change::Update { aor, puts, deletes, before, .. } => {
                    let fenced = self.doomed.get(aor).is_some_and(|fence| pending.seq <= *fence);
                    if is_late(n) || fenced || (puts.is_empty() && deletes.is_empty()) {
                        continue;
                    }
                    let queue = &self.queue;
                    let fence = self.table.restore(aor, std::mem::take(before), || queue.last());
                    self.doomed.insert(aor.clone(), fence);
                }
                Change::Purge { ids, now_ms } => self.unpurged.extend(ids.iter().map(|id| (*id, *now_ms))),
            }
        }
    }

    fn answer(&mut self, group: &[Pending], is_late: &dyn Fn(usize) -> bool, outcome: Result<(), WriteError>) {
        let (mut kept, mut failed) = (0, 0);
        for (n, pending) in group.iter().enumerate() {
            let Change::Update { ticket, aor, puts, deletes, .. } = &pending.change else { continue };
            let question = puts.is_empty() && deletes.is_empty();
            let result = if is_late(n) {
                Err(WriteError::Superseded)
            } else if question {
                // A question fails only with a change that its answer may name.
                outcome.or_else(|error| if self.doomed.contains_key(aor) { Err(error) } else { Ok(()) })
            } else {
                outcome
            };
            match result {
                Ok(()) => kept += 1,
                Err(_) => failed += 1,
            }
            self.results.extend(ticket.map(|ticket| (ticket, result)));
        }
        self.queue.figures.kept.fetch_add(kept, Ordering::Relaxed);
        self.queue.figures.failed.fetch_add(failed, Ordering::Relaxed);
        self.queue.figures.unpurged.store(self.unpurged.len() as u64, Ordering::Relaxed);
        self.sinks.hand_out(&mut self.results, |sink, results| sink.written(results));
    }
}

/// The rows of a change, in the order in which they must be written.
fn rows<'a>(change: &'a Change, agents: &'a Agents) -> impl Iterator<Item = Write<'a>> {
    let (puts, deletes, purges, now_ms): (&[Record], &[BindingId], &[BindingId], u64) = match change {
        Change::Update { puts, deletes, .. } => (puts, deletes, &[], 0),
        Change::Purge { ids, now_ms } => (&[], &[], ids, *now_ms),
    };
    deletes
        .iter()
        .map(|id| Write::Delete(*id))
        .chain(puts.iter().map(move |r| Write::Put(BindingView::new(r, agents))))
        .chain(purges.iter().map(move |id| Write::Purge { id: *id, now_ms }))
}

struct StopOnDrop {
    queue: Arc<Queue>,
    sinks: Arc<Sinks<dyn WriteSink>>,
}

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.queue.stop();
        let left = std::mem::take(&mut self.queue.lock().pending);
        let tickets = left.iter().filter_map(|pending| match &pending.change {
            Change::Update { ticket, .. } => *ticket,
            Change::Purge { .. } => None,
        });
        let mut results = tickets.map(|ticket| (ticket, Err(WriteError::Stopped))).collect();
        self.sinks.hand_out(&mut results, |sink, results| sink.written(results));
    }
}
