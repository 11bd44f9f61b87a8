//! The thread that writes changes in groups, takes memory back when a group fails, and hands back the tickets.

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

/// What the thread of a [`Journal`](super::Journal) has.
pub(super) struct Writer<E> {
    engine: E,
    table: Arc<LocationTable>,
    queue: Arc<Queue<Change>>,
    sinks: Arc<Sinks<dyn WriteSink>>,
    /// Changes of these addresses-of-record up to that number were decided on what is no longer so.
    doomed: HashMap<Box<[u8]>, u64>,
    /// Bindings that are back in memory: those that expired up to that number did so by a change that failed.
    back: HashMap<BindingId, u64>,
    /// Rows that may be others than memory has, by address-of-record: a commit in doubt was theirs.
    repairs: HashMap<Box<[u8]>, Repair>,
    /// Expired rows that a failed group could not delete.
    unpurged: Vec<BindingId>,
    /// How many those are.
    still_there: Arc<AtomicU64>,
    listeners: Arc<[Box<str>]>,
    clock: Clock,
    results: Vec<(Ticket, Result<(), StoreError>)>,
}

/// What makes the rows of an address-of-record as they were before a commit in doubt.
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
        // Memory is as the disk is: nothing is written again.
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

    /// Where changes wait for it.
    pub(super) fn queue(&self) -> Arc<Queue<Change>> {
        Arc::clone(&self.queue)
    }

    /// Who gets tickets back.
    pub(super) fn sinks(&self) -> Arc<Sinks<dyn WriteSink>> {
        Arc::clone(&self.sinks)
    }

    /// Rows of expired bindings still to be deleted.
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
        // Before all others: a row that is written again later must stay. What expired since a commit in doubt goes behind its repair.
        let old = self.unpurged.iter().map(|id| Write::Delete(*id));
        // A row that went from one address-of-record to another is gone from the one alone.
        let gone = self.repairs.values().flat_map(|repair| repair.gone.iter().map(|id| Write::Delete(*id)));
        let rows_before = self.repairs.values().flat_map(|repair| &repair.rows);
        let repairs = gone.chain(rows_before.map(|record| put(record, agents, listeners, now)));
        let start = Instant::now();
        let engine = &mut self.engine;
        // A panic in an engine fails its group like any other failure: the tickets come back, memory goes back.
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

    /// Returns whether a failed change has made this one void. A void rename takes both names back in memory.
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

    /// Takes memory back to these bindings. Every change that was decided before that is void.
    fn take_back(&mut self, aor: &[u8], before: Vec<PackedBinding>) {
        let queue = &self.queue;
        let ids: Vec<BindingId> = before.iter().map(PackedBinding::id).collect();
        let fence = self.table.restore(aor, before, || queue.last());
        self.doomed.insert(aor.into(), fence);
        self.back.extend(ids.into_iter().map(|id| (id, fence)));
    }

    /// Memory goes back to before the first change that failed, one address-of-record after the other.
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

    /// Adds the repair of an address-of-record, unless there is one: it restores the rows from before the first commit in doubt.
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
        figures.rows(kept, failed);
        self.still_there.store(self.unpurged.len() as u64, Ordering::Relaxed);
        self.sinks.hand_out(&mut self.results, |sink, results| sink.written(results));
    }
}

impl Repair {
    /// These were to be written.
    fn note(&mut self, puts: &[PackedBinding]) {
        let (rows, gone) = (&self.rows, &mut self.gone);
        gone.extend(puts.iter().map(PackedBinding::id).filter(|id| !rows.iter().any(|row| row.id() == *id)));
    }
}

/// The rows of a change, in the order in which they must be written.
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

/// It is in memory again, although it expired by the change of this number.
fn is_back(back: &HashMap<BindingId, u64>, id: BindingId, seq: u64) -> bool {
    back.get(&id).is_some_and(|fence| seq <= *fence)
}

/// The writer has ended before these were written.
pub(super) fn give_up(changes: Vec<Change>, sinks: &Sinks<dyn WriteSink>) {
    let tickets = changes.into_iter().filter_map(|change| match change {
        Change::Update { ticket, .. } => ticket,
        Change::Rename { .. } | Change::Purge { .. } => None,
    });
    let mut results = tickets.map(|ticket| (ticket, Err(StoreError::Unavailable))).collect();
    sinks.hand_out(&mut results, |sink, results| sink.written(results));
}
