//! Tickets: how a shard asks for what takes time without waiting for it.
//!
//! A shard registers once as a receiver; with each request it gives a [`Ticket`] of that receiver and a number of its own. The number comes
//! back with the answer, many at once, on a thread of the engine.

use std::sync::{Arc, PoisonError, RwLock};

use crate::error::CacheError;
use crate::request::Answer;

/// Names one receiver of answers, usually one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReceiverId(u16);

/// Comes back once with what became of the request that it was given with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// The receiver that gets it back.
    pub receiver: ReceiverId,
    /// The caller's own number.
    pub value: u64,
}

impl Ticket {
    /// Comes back to no receiver: for changes that no caller waits for.
    pub const NONE: Self = Self { receiver: ReceiverId(u16::MAX), value: 0 };
}

/// An answer under a ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// The caller's number.
    pub ticket: u64,
    /// The answer.
    pub result: Result<Answer, CacheError>,
    /// The value of [`Answer::Found`]; else empty.
    pub value: Box<[u8]>,
}

/// Gets answers, on a thread of the engine. Does not block: a shard takes them into its mailbox.
pub trait Receiver: Send + Sync {
    /// Answers in the order in which they came about.
    fn answered(&self, answers: Vec<Answered>);
}

/// The receivers of an engine, and the answers of a round sorted by them.
#[derive(Default)]
pub struct Receivers(RwLock<Vec<Arc<dyn Receiver>>>);

impl Receivers {
    /// Registers a receiver.
    ///
    /// # Panics
    /// After 65,535 receivers: they are shards, and are made at start.
    pub fn register(&self, receiver: Arc<dyn Receiver>) -> ReceiverId {
        let mut receivers = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let id = u16::try_from(receivers.len()).ok().filter(|id| *id != u16::MAX);
        receivers.push(receiver);
        ReceiverId(id.expect("there are fewer than 65,535 shards"))
    }

    /// Hands answers to their receivers, once for each.
    pub fn hand_out(&self, mut answers: Vec<(ReceiverId, Answered)>) {
        if answers.is_empty() {
            return;
        }
        let receivers: Vec<Arc<dyn Receiver>> = self.0.read().unwrap_or_else(PoisonError::into_inner).clone();
        // Stable: the order within a receiver stays.
        answers.sort_by_key(|(receiver, _)| *receiver);
        let mut rest = answers.into_iter().peekable();
        let mut of_one = Vec::new();
        while let Some((id, answer)) = rest.next() {
            of_one.push(answer);
            if rest.peek().is_none_or(|(next, _)| *next != id) {
                let answers = std::mem::take(&mut of_one);
                if let Some(receiver) = receivers.get(usize::from(id.0)) {
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
        let of = |id, ticket| (id, Answered { ticket, result: Ok(Answer::Stored), value: Box::default() });
        receivers.hand_out(vec![of(to_b, 9), of(to_a, 3), of(Ticket::NONE.receiver, 5), of(to_b, 1), of(to_a, 2)]);
        assert_eq!(*a.0.lock().unwrap(), [[3, 2]]);
        assert_eq!(*b.0.lock().unwrap(), [[9, 1]]);
    }
}
