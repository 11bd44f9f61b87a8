//! A cache as a thread sees it that may wait: one beside the shards, a program of the command line, a test.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::engine::{Engine, Reply};
use crate::error::CacheError;
use crate::request::{Answer, Promise, Request};
use crate::ticket::{Answered, Receiver, ReceiverId, Ticket};

/// What came of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The answer.
    pub result: Result<Answer, CacheError>,
    /// The value of [`Answer::Found`]; else empty.
    pub value: Box<[u8]>,
}

/// Asks a cache of any kind and waits for the answers. A thread has one of its own.
pub struct WaitingCache {
    engine: Engine,
    mailbox: Arc<Mailbox>,
    receiver: ReceiverId,
    next: u64,
}

impl WaitingCache {
    /// Of this engine.
    pub fn new(engine: Engine) -> Self {
        let mailbox = Arc::<Mailbox>::default();
        let receiver = engine.register(mailbox.clone());
        Self { engine, mailbox, receiver, next: 0 }
    }

    /// The cache.
    pub const fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Asks all of these at once, and waits for the answers, which come in the order of the requests. None is waited for longer than `most`,
    /// which is more than the deadline of the engine. `now` as [`Engine::ask`] has it.
    pub fn ask(&mut self, requests: &[Request<'_>], promise: Promise, now: u64, most: Duration) -> Vec<Outcome> {
        let first = self.next;
        self.next += requests.len() as u64;
        let mut outcomes: Vec<Option<Outcome>> = Vec::with_capacity(requests.len());
        for (ticket, request) in (first..).zip(requests) {
            let (ticket, mut value) = (Ticket { receiver: self.receiver, value: ticket }, Vec::new());
            let reply = self.engine.ask(request, promise, ticket, now, &mut value);
            outcomes.push(match reply {
                Reply::Now(result) => Some(Outcome { result, value: value.into() }),
                Reply::Later => None,
            });
        }
        self.engine.flush();
        let end = Instant::now() + most;
        let mut open = outcomes.iter().filter(|outcome| outcome.is_none()).count();
        while open > 0 {
            let answers = self.mailbox.wait(end);
            if answers.is_empty() {
                break;
            }
            for answered in answers {
                // Those of an earlier call came too late.
                let place = answered.ticket.checked_sub(first).and_then(|place| usize::try_from(place).ok());
                if let Some(outcome @ None) = place.and_then(|place| outcomes.get_mut(place)) {
                    *outcome = Some(Outcome { result: answered.result, value: answered.value });
                    open -= 1;
                }
            }
        }
        let late = || Outcome { result: Err(CacheError::TimedOut), value: Box::default() };
        outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(late)).collect()
    }

    /// Asks this and waits for the answer, as [`ask`](Self::ask) does.
    pub fn ask_one(&mut self, request: &Request<'_>, now: u64, most: Duration) -> Outcome {
        let mut outcomes = self.ask(std::slice::from_ref(request), Promise::Held, now, most);
        outcomes.pop().expect("a request has an outcome")
    }
}

impl Drop for WaitingCache {
    fn drop(&mut self) {
        self.engine.deregister(self.receiver);
    }
}

#[derive(Default)]
struct Mailbox {
    answers: Mutex<Vec<Answered>>,
    came: Condvar,
}

impl Mailbox {
    /// What came; nothing where nothing comes until `end`.
    fn wait(&self, end: Instant) -> Vec<Answered> {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let left = end.saturating_duration_since(Instant::now());
        let waited = self.came.wait_timeout_while(answers, left, |answers| answers.is_empty());
        std::mem::take(&mut *waited.unwrap_or_else(PoisonError::into_inner).0)
    }
}

impl Receiver for Mailbox {
    fn answered(&self, answers: Vec<Answered>) {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).extend(answers);
        self.came.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::RemoteEngine;
    use crate::gauges::Gauges;
    use crate::ticket::Receivers;

    /// It never answers.
    #[derive(Default)]
    struct Silent(Receivers);

    impl RemoteEngine for Silent {
        fn ask(&self, _: &Request<'_>, _: Ticket, _: u64) -> Result<(), CacheError> {
            Ok(())
        }

        fn receivers(&self) -> &Receivers {
            &self.0
        }

        fn gauges(&self) -> Gauges {
            Gauges::default()
        }
    }

    /// Each order of an operator has one.
    #[test]
    fn however_many_come_and_go_none_leaves_anything_behind() {
        let engine = Engine::Remote(Arc::new(Silent::default()));
        for _ in 0..70_000 {
            let cache = WaitingCache::new(engine.clone());
            let mailbox = Arc::downgrade(&cache.mailbox);
            drop(cache);
            assert!(mailbox.upgrade().is_none());
        }
    }
}
