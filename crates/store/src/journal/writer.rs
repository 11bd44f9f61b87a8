//! Thread that writes changes in groups, rolls memory back when a group fails, and returns the tickets.

use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::{BindingEngine, Change, JournalSettings, Write, WriteSink};
use crate::binding::{Binding, BindingId, BindingView, PackedBinding};
use crate::clock::{Clock, Moment};
use crate::error::StoreError;
use crate::group::{Commit, GroupFigures, GroupSettings, Numbered};
use crate::location::LocationTable;
use crate::queue::Queue;
use crate::ticket::{Sinks, Ticket};
use crate::user_agent_texts::UserAgentTexts;

/// State of the thread of a [`Journal`](super::Journal).
pub(super) struct Writer<E> {
    engine: E,
    table: Arc<LocationTable>,
    queue: Arc<Queue<Change>>,
    sinks: Arc<Sinks<dyn WriteSink>>,
    /// Changes of these addresses-of-record up to this number were decided on a state that was rolled back.
    doomed: HashMap<Box<[u8]>, u64>,
    /// Restored bindings: an expiry up to this number belongs to a failed change.
    back: HashMap<BindingId, u64>,
    /// Repairs of rows that may differ from memory after a commit in doubt, by address-of-record.
    repairs: HashMap<Box<[u8]>, Repair>,
    /// Expired rows that a failed group could not delete.
    unpurged: Vec<BindingId>,
    /// Number of entries in `unpurged`.
    still_there: Arc<AtomicU64>,
    listeners: Arc<[Box<str>]>,
    clock: Clock,
    results: Vec<(Ticket, Result<(), StoreError>)>,
}

/// Restores the rows of an address-of-record from before a commit in doubt.
struct Repair {
    rows: Vec<PackedBinding>,
    gone: Vec<BindingId>,
}

impl<E: BindingEngine> Commit for Writer<E> {
    type Row = Change;

    fn write(&mut self, group: &mut Vec<Numbered<Change>>, figures: &GroupFigures) -> Duration {
        let late: Vec<bool> =
            if self.doomed.is_empty() { Vec::new() } else { group.iter_mut().map(|p| self.is_late(p)).collect() };
        let is_late = |n: usize| late.get(n).copied().unwrap_or(false);

        let outcome = self.commit(group, &is_late, figures);
        if outcome.is_err() {
            self.roll_back(group, &is_late);
        }
        self.answer(group, &is_late, outcome, figures);
        if let Some(last) = group.last() {
            self.doomed.retain(|_, fence| *fence > last.number);
            self.back.retain(|_, fence| *fence > last.number);
        }
        // Memory equals the disk, so nothing is written again.
        group.clear();
        Duration::ZERO
    }

    fn settle(&mut self) -> Option<Duration> {
        self.engine.settle();
        None
    }
}

impl<E: BindingEngine> Writer<E> {
    pub(super) fn new(engine: E, table: Arc<LocationTable>, settings: JournalSettings, clock: Clock) -> Self {
        let JournalSettings { linger, group, queue, listeners, .. } = settings;
        Self {
            engine,
            table,
            queue: Arc::new(Queue::new(GroupSettings { linger, group, queue })),
            sinks: Arc::default(),
            doomed: HashMap::new(),
            back: HashMap::new(),
            repairs: HashMap::new(),
            unpurged: Vec::new(),
            still_there: Arc::default(),
            listeners: listeners.into(),
            clock,
            results: Vec::new(),
        }
    }

    /// Returns the queue of the writer's changes.
    pub(super) fn queue(&self) -> Arc<Queue<Change>> {
        Arc::clone(&self.queue)
    }

    /// Returns the receivers of tickets.
    pub(super) fn sinks(&self) -> Arc<Sinks<dyn WriteSink>> {
        Arc::clone(&self.sinks)
    }

    /// Returns the number of rows of expired bindings still to be deleted.
    pub(super) fn unpurged(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.still_there)
    }

    fn commit(
        &mut self,
        group: &[Numbered<Change>],
        is_late: &dyn Fn(usize) -> bool,
        figures: &GroupFigures,
    ) -> Result<(), StoreError> {
        let agents = self.table.agents();
        let timely = group.iter().enumerate().filter(|(n, _)| !is_late(*n));
        let now = (self.clock)();
        let (back, listeners) = (&self.back, &self.listeners);
        let mut writes = timely.flat_map(|(_, pending)| rows(pending, back, agents, listeners, now)).peekable();
        if writes.peek().is_none() {
            return Ok(());
        }
        // Earlier deletions precede the new rows, because a row that is written again must stay. They follow the
        // repairs, which may restore a row that has expired since.
        let old = self.unpurged.iter().map(|id| Write::Delete(*id));
        // Deletions precede the restored rows: a row that moved between two addresses-of-record is in the deletions of
        // one address and in the rows of the other.
        let gone = self.repairs.values().flat_map(|repair| repair.gone.iter().map(|id| Write::Delete(*id)));
        let rows_before = self.repairs.values().flat_map(|repair| &repair.rows);
        let repairs = gone.chain(rows_before.map(|record| put(record, agents, listeners, now)));
        let start = Instant::now();
        let engine = &mut self.engine;
        // A panic in an engine fails its group as any other failure does: the tickets come back, memory is rolled back.
        let outcome = catch_unwind(AssertUnwindSafe(|| engine.commit(&mut repairs.chain(old).chain(writes))));
        let outcome = outcome.unwrap_or_else(|_| {
            tracing::error!("writing bindings panicked; the group is given up");
            Err(StoreError::Refused)
        });
        figures.commit(start.elapsed(), outcome.is_ok());
        if outcome.is_ok() {
            self.unpurged.clear();
            self.repairs.clear();
        }
        outcome
    }

    /// Tells whether an earlier failed change has voided this change. Rolls back both names in memory if the change is
    /// a voided rename.
    fn is_late(&mut self, pending: &mut Numbered<Change>) -> bool {
        let number = pending.number;
        let is_doomed =
            |doomed: &HashMap<Box<[u8]>, u64>, aor: &[u8]| doomed.get(aor).is_some_and(|fence| number <= *fence);
        match &mut pending.row {
            Change::Update { aor, .. } => is_doomed(&self.doomed, aor),
            Change::Rename { aors, before, .. } => {
                let is_late = aors.iter().any(|aor| is_doomed(&self.doomed, aor));
                for (aor, before) in aors.iter().zip(before).filter(|_| is_late) {
                    if !is_doomed(&self.doomed, aor) {
                        self.take_back(aor, std::mem::take(before));
                    }
                }
                is_late
            }
            Change::Purge { .. } => false,
        }
    }

    /// Restores these bindings in memory. Voids every change that was decided before.
    fn take_back(&mut self, aor: &[u8], before: Vec<PackedBinding>) {
        let queue = &self.queue;
        let ids: Vec<BindingId> = before.iter().map(PackedBinding::id).collect();
        let fence = self.table.restore(aor, before, || queue.last());
        self.doomed.insert(aor.into(), fence);
        self.back.extend(ids.into_iter().map(|id| (id, fence)));
    }

    /// Rolls back each address-of-record of the group to its state before the first failed change.
    fn roll_back(&mut self, group: &mut [Numbered<Change>], is_late: &dyn Fn(usize) -> bool) {
        let is_in_doubt = self.engine.is_in_doubt();
        let mut taken: HashSet<Box<[u8]>> = HashSet::new();
        for (_, pending) in group.iter_mut().enumerate().filter(|(n, _)| !is_late(*n)) {
            match &mut pending.row {
                Change::Update { puts, deletes, .. } if puts.is_empty() && deletes.is_empty() => (),
                Change::Update { aor, puts, before, .. } => {
                    if is_in_doubt {
                        self.repair(aor, before).note(puts);
                    }
                    if taken.insert(aor.clone()) {
                        self.take_back(aor, std::mem::take(before));
                    }
                }
                Change::Rename { aors, before, .. } => {
                    for (aor, before) in aors.iter().zip(before) {
                        if is_in_doubt {
                            self.repair(aor, before);
                        }
                        if taken.insert(aor.clone()) {
                            self.take_back(aor, std::mem::take(before));
                        }
                    }
                }
                Change::Purge { ids } => {
                    self.unpurged.extend(ids.iter().filter(|id| !is_back(&self.back, **id, pending.number)));
                }
            }
        }
    }

    /// Adds the repair of an address-of-record, unless there is one. The repair restores the rows from before the first
    /// commit in doubt.
    fn repair(&mut self, aor: &[u8], before: &[PackedBinding]) -> &mut Repair {
        let new = || Repair { rows: before.to_vec(), gone: Vec::new() };
        self.repairs.entry(aor.into()).or_insert_with(new)
    }

    fn answer(
        &mut self,
        group: &[Numbered<Change>],
        is_late: &dyn Fn(usize) -> bool,
        outcome: Result<(), StoreError>,
        figures: &GroupFigures,
    ) {
        let (mut kept, mut failed) = (0, 0);
        for (n, pending) in group.iter().enumerate() {
            let Change::Update { ticket, aor, puts, deletes, .. } = &pending.row else { continue };
            let question = puts.is_empty() && deletes.is_empty();
            let result = if is_late(n) {
                Err(StoreError::Superseded)
            } else if question {
                // A query fails only together with a change whose binding its answer may list.
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
        figures.rows(kept, failed);
        self.still_there.store(self.unpurged.len() as u64, Ordering::Relaxed);
        self.sinks.hand_out(&mut self.results, |sink, results| sink.written(results));
    }
}

impl Repair {
    /// Notes rows that the commit in doubt may have written.
    fn note(&mut self, puts: &[PackedBinding]) {
        let (rows, gone) = (&self.rows, &mut self.gone);
        gone.extend(puts.iter().map(PackedBinding::id).filter(|id| !rows.iter().any(|row| row.id() == *id)));
    }
}

/// Returns the rows of a change, in the order in which they must be written.
fn rows<'a>(
    pending: &'a Numbered<Change>,
    back: &'a HashMap<BindingId, u64>,
    agents: &'a UserAgentTexts,
    listeners: &'a [Box<str>],
    now: Moment,
) -> impl Iterator<Item = Write<'a>> {
    let (puts, deletes, expired): (&[PackedBinding], &[BindingId], &[BindingId]) = match &pending.row {
        Change::Update { puts, deletes, .. } => (puts, deletes, &[]),
        Change::Rename { puts, .. } => (puts, &[], &[]),
        Change::Purge { ids } => (&[], &[], ids),
    };
    let expired = expired.iter().filter(move |id| !is_back(back, **id, pending.number));
    let put = move |record: &'a PackedBinding| put(record, agents, listeners, now);
    deletes.iter().chain(expired).map(|id| Write::Delete(*id)).chain(puts.iter().map(put))
}

fn put<'a>(record: &'a PackedBinding, agents: &'a UserAgentTexts, listeners: &'a [Box<str>], now: Moment) -> Write<'a> {
    let binding = BindingView::new(record, agents).binding();
    let listener = listeners.get(usize::from(binding.listener)).map_or("", |name| &**name);
    Write::Put(record.id(), Binding { expires_at: now.to_wall(binding.expires_at), ..binding }, listener)
}

/// Tells whether a binding that the change with this number removed as expired is in memory again.
fn is_back(back: &HashMap<BindingId, u64>, id: BindingId, seq: u64) -> bool {
    back.get(&id).is_some_and(|fence| seq <= *fence)
}

/// Fails changes that the writer had not written when it ended.
pub(super) fn give_up(changes: Vec<Change>, sinks: &Sinks<dyn WriteSink>) {
    let tickets = changes.into_iter().filter_map(|change| match change {
        Change::Update { ticket, .. } => ticket,
        Change::Rename { .. } | Change::Purge { .. } => None,
    });
    let mut results = tickets.map(|ticket| (ticket, Err(StoreError::Unavailable))).collect();
    sinks.hand_out(&mut results, |sink, results| sink.written(results));
}
