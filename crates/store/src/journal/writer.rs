//! The thread that writes changes in groups, takes memory back when a group fails, and hands back the tickets.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::{BindingEngine, Write, WriteSink};
use crate::agents::Agents;
use crate::binding::{Binding, BindingId, BindingView, Record};
use crate::clock::{Clock, Moment};
use crate::error::StoreError;
use crate::location::LocationTable;
use crate::queue::{Change, Pending, Queue};
use crate::ticket::{Sinks, Ticket};

/// What the thread of a [`Journal`](super::Journal) has.
pub(super) struct Writer<E> {
    engine: E,
    table: Arc<LocationTable>,
    queue: Arc<Queue>,
    sinks: Arc<Sinks<dyn WriteSink>>,
    /// Changes of these addresses-of-record up to that number were decided on what is no longer so.
    doomed: HashMap<Box<[u8]>, u64>,
    /// Bindings that are back in memory: those that expired up to that number did so by a change that failed.
    back: HashMap<BindingId, u64>,
    /// Expired rows that a failed group could not delete.
    unpurged: Vec<BindingId>,
    clock: Clock,
    results: Vec<(Ticket, Result<(), StoreError>)>,
}

impl<E: BindingEngine> Writer<E> {
    pub(super) fn new(
        engine: E,
        table: Arc<LocationTable>,
        queue: Arc<Queue>,
        sinks: Arc<Sinks<dyn WriteSink>>,
        clock: Clock,
    ) -> Self {
        Self {
            engine,
            table,
            queue,
            sinks,
            doomed: HashMap::new(),
            back: HashMap::new(),
            unpurged: Vec::new(),
            clock,
            results: Vec::new(),
        }
    }

    /// Writes group after group until the queue has stopped and is empty.
    pub(super) fn run(mut self) {
        // Should this thread panic, changes are refused instead of waiting for ever.
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
        let late: Vec<bool> =
            if self.doomed.is_empty() { Vec::new() } else { group.iter().map(|p| doomed(&self.doomed, p)).collect() };
        let is_late = |n: usize| late.get(n).copied().unwrap_or(false);

        let outcome = self.commit(group, &is_late);
        if outcome.is_err() {
            self.roll_back(group, &is_late);
        }
        self.answer(group, &is_late, outcome);
        if let Some(last) = group.last() {
            self.doomed.retain(|_, fence| *fence > last.seq);
            self.back.retain(|_, fence| *fence > last.seq);
        }
    }

    fn commit(&mut self, group: &[Pending], is_late: &dyn Fn(usize) -> bool) -> Result<(), StoreError> {
        let agents = self.table.agents();
        let timely = group.iter().enumerate().filter(|(n, _)| !is_late(*n));
        let now = (self.clock)();
        let back = &self.back;
        let mut writes = timely.flat_map(|(_, pending)| rows(pending, back, agents, now)).peekable();
        if writes.peek().is_none() {
            return Ok(());
        }
        // Before all others: a row that is written again later must stay.
        let old = self.unpurged.iter().map(|id| Write::Delete(*id));
        let start = Instant::now();
        let engine = &mut self.engine;
        // A panic in an engine fails its group like any other failure: the tickets come back, memory goes back.
        let outcome = catch_unwind(AssertUnwindSafe(|| engine.commit(&mut old.chain(writes))));
        let outcome = outcome.unwrap_or_else(|_| {
            tracing::error!("writing bindings panicked; the group is given up");
            Err(StoreError::Refused)
        });
        self.count(start.elapsed(), outcome);
        outcome
    }

    fn count(&mut self, took: Duration, outcome: Result<(), StoreError>) {
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
                    let ids: Vec<BindingId> = before.iter().map(Record::id).collect();
                    let fence = self.table.restore(aor, std::mem::take(before), || queue.last());
                    self.doomed.insert(aor.clone(), fence);
                    self.back.extend(ids.into_iter().map(|id| (id, fence)));
                }
                Change::Purge { ids } => {
                    self.unpurged.extend(ids.iter().filter(|id| !is_back(&self.back, **id, pending.seq)));
                }
            }
        }
    }

    fn answer(&mut self, group: &[Pending], is_late: &dyn Fn(usize) -> bool, outcome: Result<(), StoreError>) {
        let (mut kept, mut failed) = (0, 0);
        for (n, pending) in group.iter().enumerate() {
            let Change::Update { ticket, aor, puts, deletes, .. } = &pending.change else { continue };
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
        self.queue.figures.kept.fetch_add(kept, Ordering::Relaxed);
        self.queue.figures.failed.fetch_add(failed, Ordering::Relaxed);
        self.queue.figures.unpurged.store(self.unpurged.len() as u64, Ordering::Relaxed);
        self.sinks.hand_out(&mut self.results, |sink, results| sink.written(results));
    }
}

/// The rows of a change, in the order in which they must be written.
fn rows<'a>(
    pending: &'a Pending,
    back: &'a HashMap<BindingId, u64>,
    agents: &'a Agents,
    now: Moment,
) -> impl Iterator<Item = Write<'a>> {
    let (puts, deletes, expired): (&[Record], &[BindingId], &[BindingId]) = match &pending.change {
        Change::Update { puts, deletes, .. } => (puts, deletes, &[]),
        Change::Purge { ids } => (&[], &[], ids),
    };
    let expired = expired.iter().filter(move |id| !is_back(back, **id, pending.seq));
    let put = move |record: &'a Record| {
        let binding = BindingView::new(record, agents).binding();
        Write::Put(record.id(), Binding { expires_at: now.to_wall(binding.expires_at), ..binding })
    };
    deletes.iter().chain(expired).map(|id| Write::Delete(*id)).chain(puts.iter().map(put))
}

/// It is in memory again, although it expired by the change of this number.
fn is_back(back: &HashMap<BindingId, u64>, id: BindingId, seq: u64) -> bool {
    back.get(&id).is_some_and(|fence| seq <= *fence)
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
        let mut results = tickets.map(|ticket| (ticket, Err(StoreError::Unavailable))).collect();
        self.sinks.hand_out(&mut results, |sink, results| sink.written(results));
    }
}
