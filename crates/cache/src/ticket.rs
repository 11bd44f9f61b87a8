//! Tickets: a shard starts a slow operation without waiting for it.
//!
//! A shard registers once as a receiver; with each request it gives a [`Ticket`] of that receiver and a number of its
//! own. The number comes back with the answer, many at once, on a thread of the engine.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use crate::error::CacheError;
use crate::request::CacheAnswer;

/// Name of a receiver of answers, usually a shard. Numbers are never reused: a late answer reaches no wrong receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReceiverId(u64);

/// Token of a request. It comes back once, with the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// Receiver that gets it back.
    pub receiver: ReceiverId,
    /// Number of the caller's choice.
    pub value: u64,
}

impl Ticket {
    /// Ticket without a receiver: for changes that no caller waits for.
    pub const NONE: Self = Self { receiver: ReceiverId(u64::MAX), value: 0 };
}

/// Answer under a ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// Number of the caller.
    pub ticket: u64,
    /// Answer.
    pub result: Result<CacheAnswer, CacheError>,
    /// Value of [`CacheAnswer::Found`]; otherwise empty.
    pub value: Box<[u8]>,
}

/// Receiver of answers, on a thread of the engine. Does not block: a shard puts them into its mailbox.
pub trait Receiver: Send + Sync {
    /// Takes answers in the order of their completion.
    fn answered(&self, answers: Vec<Answered>);
}

/// Registered receivers. Sorts answers by receiver.
#[derive(Default)]
pub struct Receivers {
    next: AtomicU64,
    all: RwLock<BTreeMap<ReceiverId, Arc<dyn Receiver>>>,
}

impl Receivers {
    /// Registers a receiver.
    pub fn register(&self, receiver: Arc<dyn Receiver>) -> ReceiverId {
        let id = ReceiverId(self.next.fetch_add(1, Ordering::Relaxed));
        self.all.write().unwrap_or_else(PoisonError::into_inner).insert(id, receiver);
        id
    }

    /// Removes a receiver: its later answers are dropped.
    pub fn deregister(&self, id: ReceiverId) {
        let _receiver = self.all.write().unwrap_or_else(PoisonError::into_inner).remove(&id);
    }

    /// Passes answers to their receivers, once per receiver.
    pub fn hand_out(&self, mut answers: Vec<(ReceiverId, Answered)>) {
        if answers.is_empty() {
            return;
        }
        // A stable sort preserves the order within a receiver.
        answers.sort_by_key(|(receiver, _)| *receiver);
        let mut rest = answers.into_iter().peekable();
        let mut of_one = Vec::new();
        while let Some((id, answer)) = rest.next() {
            of_one.push(answer);
            if rest.peek().is_none_or(|(next, _)| *next != id) {
                let answers = std::mem::take(&mut of_one);
                // Called without the lock.
                let receiver = self.all.read().unwrap_or_else(PoisonError::into_inner).get(&id).cloned();
                if let Some(receiver) = receiver {
                    receiver.answered(answers);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[derive(Default)]
    struct Got(Mutex<Vec<Vec<u64>>>);

    impl Receiver for Got {
        fn answered(&self, answers: Vec<Answered>) {
            self.0.lock().unwrap().push(answers.into_iter().map(|answer| answer.ticket).collect());
        }
    }

    #[test]
    fn each_receiver_gets_its_own_once_and_in_order() {
        let receivers = Receivers::default();
        let (a, b) = (Arc::new(Got::default()), Arc::new(Got::default()));
        let (to_a, to_b) = (receivers.register(a.clone()), receivers.register(b.clone()));
        let of = |id, ticket| (id, Answered { ticket, result: Ok(CacheAnswer::Stored), value: Box::default() });
        receivers.hand_out(vec![of(to_b, 9), of(to_a, 3), of(Ticket::NONE.receiver, 5), of(to_b, 1), of(to_a, 2)]);
        assert_eq!(*a.0.lock().unwrap(), [[3, 2]]);
        assert_eq!(*b.0.lock().unwrap(), [[9, 1]]);
    }
    #[test]
    fn an_answer_to_one_that_is_gone_reaches_no_other() {
        let (receivers, got) = (Receivers::default(), Arc::new(Got::default()));
        let gone = receivers.register(got.clone());
        receivers.deregister(gone);
        let there = receivers.register(got.clone());
        let of = |id, ticket| (id, Answered { ticket, result: Ok(CacheAnswer::Stored), value: Box::default() });
        receivers.hand_out(vec![of(gone, 1), of(there, 2)]);
        assert_eq!(*got.0.lock().unwrap(), [[2]]);
        receivers.deregister(there);
        assert_eq!(Arc::strong_count(&got), 1);
    }
}
