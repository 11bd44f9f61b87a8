//! Tickets: a shard starts a slow operation without waiting for it.
//!
//! A shard registers once as a receiver and gets a [`SinkId`]; with each request it gives a [`Ticket`] of that receiver
//! and a number of its own. The numbers come back with the results, many at once, on a thread of the store.

use std::sync::{Arc, PoisonError, RwLock};

/// Name of a receiver of results, usually a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SinkId(pub(crate) u16);

impl SinkId {
    /// No receiver: for tables that write nothing and return no tickets.
    pub const NONE: Self = Self(u16::MAX);
}

/// Token of a request. It comes back once, with the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// Receiver that gets it back.
    pub sink: SinkId,
    /// Number of the caller's choice.
    pub value: u64,
}

impl Ticket {
    /// Ticket without a receiver: for a table without a journal, and for changes that no caller waits for.
    pub const NONE: Self = Self { sink: SinkId(u16::MAX), value: 0 };
}

/// Reason why a request was not queued. Nothing has changed, the ticket does not come back. The caller answers 503 with
/// Retry-After.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The queue is at its bound.
    #[error("the database is behind: the queue to it is full")]
    Full,
    /// The thread behind the queue has stopped.
    #[error("the thread behind the queue has stopped")]
    Stopped,
}

/// Registered receivers. Sorts results by receiver.
pub(crate) struct Sinks<S: ?Sized>(RwLock<Vec<Arc<S>>>);

impl<S: ?Sized> Default for Sinks<S> {
    fn default() -> Self {
        Self(RwLock::new(Vec::new()))
    }
}

impl<S: ?Sized> Sinks<S> {
    /// # Panics
    /// After 65,535 receivers: each is a shard, created at start.
    pub(crate) fn add(&self, sink: Arc<S>) -> SinkId {
        let mut sinks = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let id = SinkId(u16::try_from(sinks.len()).expect("there are fewer than 65,535 shards"));
        assert!(id != Ticket::NONE.sink, "there are fewer than 65,535 shards");
        sinks.push(sink);
        id
    }

    /// Passes the results to their receivers by `give`, in order, once per receiver, and empties the list.
    pub(crate) fn hand_out<R>(&self, results: &mut Vec<(Ticket, R)>, give: impl Fn(&S, &[(u64, R)])) {
        if results.is_empty() {
            return;
        }
        let sinks: Vec<Arc<S>> = self.0.read().unwrap_or_else(PoisonError::into_inner).clone();
        // A stable sort preserves the order within a receiver.
        results.sort_by_key(|(ticket, _)| ticket.sink.0);
        let mut rest = results.drain(..).peekable();
        let mut of_one = Vec::new();
        while let Some((ticket, result)) = rest.next() {
            of_one.push((ticket.value, result));
            if rest.peek().is_none_or(|(next, _)| next.sink != ticket.sink) {
                if let Some(sink) = sinks.get(usize::from(ticket.sink.0)) {
                    give(sink, &of_one);
                }
                of_one.clear();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    type Got = Mutex<Vec<Vec<(u64, char)>>>;

    #[test]
    fn each_receiver_gets_its_own_once_and_in_order() {
        let sinks = Sinks::<Got>::default();
        let (a, b) = (Arc::new(Got::default()), Arc::new(Got::default()));
        let (to_a, to_b) = (sinks.add(Arc::clone(&a)), sinks.add(Arc::clone(&b)));
        let of = |sink, value| Ticket { sink, value };
        let mut results =
            vec![(of(to_b, 9), 'x'), (of(to_a, 3), 'y'), (Ticket::NONE, 'n'), (of(to_b, 1), 'z'), (of(to_a, 2), 'w')];
        sinks.hand_out(&mut results, |sink, results| sink.lock().unwrap().push(results.to_vec()));
        assert!(results.is_empty());
        assert_eq!(*a.lock().unwrap(), [[(3, 'y'), (2, 'w')]]);
        assert_eq!(*b.lock().unwrap(), [[(9, 'x'), (1, 'z')]]);
    }
}
