//! A thread with a connection, which asks the engine what the cache does not know.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::{Engine, Key, Results, Shared, StopOnDrop, since};
use crate::error::StoreError;

type Connect<E> = Arc<dyn Fn() -> Result<E, StoreError> + Send + Sync>;

pub(super) struct Asker<E: Engine> {
    /// None: to be opened.
    engine: Option<E>,
    connect: Connect<E>,
    shared: Arc<Shared<E::Key>>,
}

impl<E: Engine> Asker<E> {
    pub(super) fn new(engine: Option<E>, connect: Connect<E>, shared: Arc<Shared<E::Key>>) -> Self {
        Self { engine, connect, shared }
    }

    /// One that has its connection still to open.
    pub(super) fn another(&self) -> Self {
        Self::new(None, self.connect.clone(), self.shared.clone())
    }

    /// Answers questions until the cache is dropped.
    pub(super) fn run(mut self) {
        let shared = self.shared.clone();
        let _stop = StopOnDrop(shared.clone());
        let (mut keys, mut answers, mut results) = (Vec::new(), Vec::new(), Vec::new());
        shared.flights.begin();
        while shared.flights.take(&mut keys, || (shared.clock)().mono, || shared.is_broken()) {
            let asked_at = (shared.clock)().mono;
            let mark = shared.cache.mark();
            answers.clear();
            let outcome = self.ask(&keys, &mut answers);
            let now = (shared.clock)().mono;
            match outcome {
                Ok(()) => {
                    for (key, answer) in keys.drain(..).zip(answers.drain(..)) {
                        // Known before the flight ends: a question that comes then finds it.
                        shared.cache.keep(key.clone(), answer.clone(), asked_at, mark);
                        let tickets = shared.flights.land(shared.cache.hash(&key), &key);
                        results.extend(tickets.into_iter().map(|ticket| (ticket, Ok(answer.clone()))));
                    }
                    shared.heard(since(asked_at, now));
                }
                Err(error) => self.fail(&mut keys, error, now, &mut results),
            }
            shared.give(&mut results);
        }
    }

    fn ask(&mut self, keys: &[E::Key], answers: &mut Vec<<E::Key as Key>::Answer>) -> Result<(), StoreError> {
        let engine = match &mut self.engine {
            Some(engine) => engine,
            none => none.insert((self.connect)()?),
        };
        // A panic in an engine fails its questions like any other failure.
        let asked = catch_unwind(AssertUnwindSafe(|| engine.answer(keys, answers))).unwrap_or_else(|_| {
            tracing::error!(of = self.shared.settings.name, "asking the database panicked: the questions are given up");
            Err(StoreError::Refused)
        });
        asked.and(if answers.len() == keys.len() { Ok(()) } else { Err(StoreError::Refused) })
    }

    /// What is known goes on to be used; the others get the error.
    fn fail(&self, keys: &mut Vec<E::Key>, error: StoreError, now: u64, results: &mut Results<E::Key>) {
        let shared = &self.shared;
        shared.failed();
        for key in keys.drain(..) {
            let tickets = shared.flights.land(shared.cache.hash(&key), &key);
            let stale = if tickets.is_empty() { None } else { shared.stale(&key, now) };
            let result = stale.ok_or(error);
            results.extend(tickets.into_iter().map(|ticket| (ticket, result.clone())));
        }
    }
}
