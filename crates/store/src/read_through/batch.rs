//! Questions on their way to an engine, and the handling of its answers or failure.

use super::cache::Mark;
use super::{Key, Shared, since};
use crate::error::StoreError;

/// Questions, each with the number of its flight; 0: no flight.
pub(super) struct Questions<K> {
    pub(super) keys: Vec<K>,
    pub(super) numbers: Vec<u64>,
}

impl<K> Questions<K> {
    pub(super) const fn none() -> Self {
        Self { keys: Vec::new(), numbers: Vec::new() }
    }

    pub(super) fn clear(&mut self) {
        self.keys.clear();
        self.numbers.clear();
    }

    pub(super) fn push(&mut self, key: K, number: u64) {
        self.keys.push(key);
        self.numbers.push(number);
    }
}

/// Questions for one call of an engine.
pub struct Batch<K: Key> {
    questions: Questions<K>,
    asked_at: u64,
    mark: Mark,
}

impl<K: Key> Batch<K> {
    /// Returns the questions, in the order of the expected answers.
    pub fn keys(&self) -> &[K] {
        &self.questions.keys
    }
}

impl<K: Key> Shared<K> {
    /// Creates the batch just before the engine is asked.
    pub(super) fn depart(&self, questions: Questions<K>) -> Batch<K> {
        Batch { questions, asked_at: (self.clock)().mono, mark: self.cache.mark() }
    }

    /// Handles the answers of the engine, or its failure. Returns the emptied batch of questions, whose memory is
    /// reused.
    pub(super) fn land(&self, batch: Batch<K>, outcome: Result<&mut Vec<K::Value>, StoreError>) -> Questions<K> {
        let Batch { mut questions, asked_at, mark } = batch;
        let Questions { keys, numbers } = &mut questions;
        let now = (self.clock)().mono;
        let mut results = Vec::new();
        match outcome {
            Ok(answers) => {
                for (key, answer) in keys.drain(..).zip(answers.drain(..)) {
                    let hash = self.cache.hash(&key);
                    // The answer is cached before the flight ends, so that a question that comes then finds the answer.
                    self.cache.keep(key.clone(), answer.clone(), asked_at, mark);
                    let tickets = self.flights.land(hash, &key, self.cache.is_current(hash, mark));
                    results.extend(tickets.into_iter().map(|ticket| (ticket, Ok(answer.clone()))));
                }
                self.heard(since(asked_at, now));
            }
            Err(error) => {
                self.failed();
                // Tickets with a stale answer get this answer; other tickets get the error. Questions that were asked
                // again meanwhile may still be answered.
                for (key, number) in keys.drain(..).zip(numbers.iter()) {
                    let tickets = self.flights.fail(self.cache.hash(&key), &key, *number);
                    let stale = if tickets.is_empty() { None } else { self.stale(&key, now) };
                    let result = stale.ok_or(error);
                    results.extend(tickets.into_iter().map(|ticket| (ticket, result.clone())));
                }
            }
        }
        self.give(&mut results);
        questions
    }
}
