//! The thread that asks the engine what the cache does not know, and whether what it knows is still so.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Shared, since};
use crate::error::StoreError;
use crate::generations::{Entry, Key};
use crate::subscriber::{Question, Removed, SubscriberEngine};

/// What the thread of a [`ReadThrough`](super::ReadThrough) has.
pub(super) struct Reader<E> {
    engine: E,
    shared: Arc<Shared>,
    /// Version of the engine that the cache stands for.
    seen: Option<u64>,
    polled: Option<u64>,
    /// Who was removed could not be asked or noted: the next poll does it.
    behind: bool,
}

impl<E: SubscriberEngine> Reader<E> {
    pub(super) fn new(engine: E, shared: Arc<Shared>) -> Self {
        Self { engine, shared, seen: None, polled: None, behind: false }
    }

    /// Answers questions until the cache is dropped.
    pub(super) fn run(mut self) {
        // Should this thread panic, requests are refused instead of waiting for ever.
        let _stop = StopOnDrop(Arc::clone(&self.shared));
        let mut keys = Vec::new();
        let mut answers = Vec::new();
        let mut results = Vec::new();
        while self.shared.take(&mut keys) {
            let now = (self.shared.clock)().mono;
            self.shared.overdue(now);
            // The version is read before the rows: a change between the two makes them void, not the other way round.
            self.poll(now);
            if keys.is_empty() {
                continue;
            }
            let version = self.shared.version.load(Ordering::Acquire);
            answers.clear();
            let questions: Vec<Question<'_>> = keys.iter().map(Key::question).collect();
            let engine = &mut self.engine;
            // A panic in an engine fails its questions like any other failure.
            let asked = catch_unwind(AssertUnwindSafe(|| engine.answer(&questions, &mut answers)));
            let asked = asked.unwrap_or_else(|_| {
                tracing::error!("reading subscribers panicked; the questions are given up");
                Err(StoreError::Unavailable)
            });
            let complete = answers.len() == keys.len();
            if let Err(error) = asked.and(if complete { Ok(()) } else { Err(StoreError::Unavailable) }) {
                answers.clear();
                for key in keys.drain(..) {
                    results.extend(self.shared.land(&key).into_iter().map(|ticket| (ticket, Err(error))));
                }
            }
            for (key, answer) in keys.drain(..).zip(answers.drain(..)) {
                // Known before the flight ends: a question that comes then finds it.
                self.shared.keep(Entry { key: key.clone(), answer: answer.clone(), read_at: now, version });
                results.extend(self.shared.land(&key).into_iter().map(|ticket| (ticket, Ok(answer.clone()))));
            }
            self.shared.give(&mut results);
        }
    }

    fn poll(&mut self, now: u64) {
        if self.polled.is_some_and(|polled| since(polled, now) < self.shared.settings.poll) {
            return;
        }
        self.polled = Some(now);
        // A version that cannot be read is one that nothing in the cache has.
        let version = self.engine.version().ok();
        let changed = version.is_none() || version != self.seen;
        self.seen = version;
        let mut removed = self.removed(changed);
        let mut removals = self.shared.removals();
        if let Some(removed) = &mut removed {
            removed.retain(|removed| !removals.settled.contains(&removed.id));
        }
        // Some may have been removed after the version was read: what the cache says of them is void before they stand there.
        if changed || removed.as_ref().is_some_and(|removed| *removed != removals.open) {
            self.shared.version.fetch_add(1, Ordering::AcqRel);
        }
        if let Some(removed) = removed {
            removals.open = removed;
        }
    }

    /// Notes in the database what was settled, and asks who was removed when anything `changed` or there may be more. None: it
    /// was not asked, or could not be; then the next poll does it.
    fn removed(&mut self, changed: bool) -> Option<Vec<Removed>> {
        let settled = self.shared.removals().settled.clone();
        let noted = settled.is_empty() || self.engine.settle(&settled).is_ok();
        if noted {
            self.shared.removals().settled.retain(|id| !settled.contains(id));
        }
        if !changed && !self.behind && settled.is_empty() {
            return None;
        }
        let removed = self.engine.removed();
        self.behind = !noted || removed.is_err();
        removed.ok()
    }
}

struct StopOnDrop(Arc<Shared>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}
