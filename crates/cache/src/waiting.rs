//! Interface of a cache for waiting callers: a thread beside the shards, a program of the command line, a test; or a
//! task of a shard.

use std::future::poll_fn;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use crate::engine::{CacheHandle, Reply};
use crate::error::CacheError;
use crate::request::{CacheAnswer, Promise, Request};
use crate::ticket::{Answered, Receiver, ReceiverId, Ticket};

/// Response to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheResponse {
    /// Answer.
    pub result: Result<CacheAnswer, CacheError>,
    /// Value of [`CacheAnswer::Found`]; otherwise empty.
    pub value: Box<[u8]>,
}

/// Client that sends requests to a cache of any kind and waits for the answers. Each thread or task has its own.
pub struct WaitingCache {
    engine: CacheHandle,
    mailbox: Arc<Mailbox>,
    receiver: ReceiverId,
    next: u64,
}

impl WaitingCache {
    /// Creates a client of this engine.
    pub fn new(engine: CacheHandle) -> Self {
        let mailbox = Arc::<Mailbox>::default();
        let receiver = engine.register(mailbox.clone());
        Self { engine, mailbox, receiver, next: 0 }
    }

    /// Returns the engine.
    pub const fn engine(&self) -> &CacheHandle {
        &self.engine
    }

    /// Sends all of these requests at once, and returns their answers, in the order of the requests. Waits at most for
    /// `most`, which must exceed the deadline of the engine. `now`: see [`CacheHandle::ask`].
    pub fn ask(&mut self, requests: &[Request<'_>], promise: Promise, now: u64, most: Duration) -> Vec<CacheResponse> {
        let mut asking = self.begin(requests, promise, now);
        let end = Instant::now() + most;
        while asking.open > 0 {
            let answers = self.mailbox.wait(end);
            if answers.is_empty() {
                break;
            }
            asking.take(answers);
        }
        asking.outcomes()
    }

    /// Acts as [`ask`](Self::ask), but in a task whose thread does other work meanwhile. There is no limit of the wait,
    /// because the engine has a deadline.
    pub async fn ask_in_task(&mut self, requests: &[Request<'_>], promise: Promise, now: u64) -> Vec<CacheResponse> {
        let mut asking = self.begin(requests, promise, now);
        while asking.open > 0 {
            let mailbox = &self.mailbox;
            asking.take(poll_fn(|context| mailbox.poll(context.waker())).await);
        }
        asking.outcomes()
    }

    fn begin(&mut self, requests: &[Request<'_>], promise: Promise, now: u64) -> Asking {
        let first = self.next;
        self.next += requests.len() as u64;
        let mut outcomes: Vec<Option<CacheResponse>> = Vec::with_capacity(requests.len());
        for (ticket, request) in (first..).zip(requests) {
            let (ticket, mut value) = (Ticket { receiver: self.receiver, value: ticket }, Vec::new());
            let reply = self.engine.ask(request, promise, ticket, now, &mut value);
            outcomes.push(match reply {
                Reply::Now(result) => Some(CacheResponse { result, value: value.into() }),
                Reply::Later => None,
            });
        }
        self.engine.flush();
        let open = outcomes.iter().filter(|outcome| outcome.is_none()).count();
        Asking { first, outcomes, open }
    }

    /// Sends one request and waits for the answer, as [`ask`](Self::ask) does.
    pub fn ask_one(&mut self, request: &Request<'_>, now: u64, most: Duration) -> CacheResponse {
        let mut outcomes = self.ask(std::slice::from_ref(request), Promise::Held, now, most);
        outcomes.pop().expect("a request has an outcome")
    }
}

impl Drop for WaitingCache {
    fn drop(&mut self) {
        self.engine.deregister(self.receiver);
    }
}

/// Requests sent together, with their outcomes so far.
struct Asking {
    /// Ticket of the first.
    first: u64,
    outcomes: Vec<Option<CacheResponse>>,
    /// Number of requests without an outcome.
    open: usize,
}

impl Asking {
    fn take(&mut self, answers: Vec<Answered>) {
        for answered in answers {
            // Late answers to an earlier call do not match.
            let place = answered.ticket.checked_sub(self.first).and_then(|place| usize::try_from(place).ok());
            if let Some(outcome @ None) = place.and_then(|place| self.outcomes.get_mut(place)) {
                *outcome = Some(CacheResponse { result: answered.result, value: answered.value });
                self.open -= 1;
            }
        }
    }

    fn outcomes(self) -> Vec<CacheResponse> {
        let late = || CacheResponse { result: Err(CacheError::TimedOut), value: Box::default() };
        self.outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(late)).collect()
    }
}

#[derive(Default)]
struct Mailbox {
    held: Mutex<Held>,
    came: Condvar,
}

#[derive(Default)]
struct Held {
    answers: Vec<Answered>,
    /// Waker of a waiting task.
    waker: Option<Waker>,
}

impl Mailbox {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the answers that have arrived; empty if none arrives until `end`.
    fn wait(&self, end: Instant) -> Vec<Answered> {
        let left = end.saturating_duration_since(Instant::now());
        let waited = self.came.wait_timeout_while(self.held(), left, |held| held.answers.is_empty());
        std::mem::take(&mut waited.unwrap_or_else(PoisonError::into_inner).0.answers)
    }

    /// Returns the answers once there are any.
    fn poll(&self, waker: &Waker) -> Poll<Vec<Answered>> {
        let mut held = self.held();
        if held.answers.is_empty() {
            held.waker = Some(waker.clone());
            return Poll::Pending;
        }
        Poll::Ready(std::mem::take(&mut held.answers))
    }
}

impl Receiver for Mailbox {
    fn answered(&self, answers: Vec<Answered>) {
        let mut held = self.held();
        held.answers.extend(answers);
        let waker = held.waker.take();
        drop(held);
        self.came.notify_one();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::RemoteEngine;
    use crate::gauges::Gauges;
    use crate::ticket::Receivers;
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Wake};

    /// Engine that never answers.
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

    /// Engine that answers when the test says.
    #[derive(Default)]
    struct Late {
        receivers: Receivers,
        asked: Mutex<Vec<Ticket>>,
    }

    impl Late {
        fn answer(&self) {
            let asked = std::mem::take(&mut *self.asked.lock().unwrap());
            let of = |ticket: Ticket| Answered {
                ticket: ticket.value,
                result: Ok(CacheAnswer::Absent),
                value: Box::default(),
            };
            self.receivers.hand_out(asked.into_iter().map(|ticket| (ticket.receiver, of(ticket))).collect());
        }
    }

    impl RemoteEngine for Late {
        fn ask(&self, request: &Request<'_>, ticket: Ticket, _: u64) -> Result<(), CacheError> {
            if *request == (Request::Fetch { key: b"full" }) {
                return Err(CacheError::Full);
            }
            self.asked.lock().unwrap().push(ticket);
            Ok(())
        }

        fn receivers(&self) -> &Receivers {
            &self.receivers
        }

        fn gauges(&self) -> Gauges {
            Gauges::default()
        }
    }

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_task_is_woken_when_it_has_its_answers() {
        let (engine, wakes) = (Arc::new(Late::default()), Arc::new(Wakes::default()));
        let mut cache = WaitingCache::new(CacheHandle::Remote(engine.clone()));
        let waker = Waker::from(wakes.clone());
        let mut context = Context::from_waker(&waker);
        let requests = [b"key".as_slice(), b"full", b"other"].map(|key| Request::Fetch { key });
        {
            // This task is abandoned, and its requests are answered later.
            let mut given_up = pin!(cache.ask_in_task(&requests, Promise::Held, 0));
            assert!(given_up.as_mut().poll(&mut context).is_pending());
        }
        let mut asked = pin!(cache.ask_in_task(&requests, Promise::Held, 0));
        assert!(asked.as_mut().poll(&mut context).is_pending());
        assert_eq!(wakes.0.load(Ordering::Relaxed), 0);
        engine.answer();
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
        let Poll::Ready(outcomes) = asked.as_mut().poll(&mut context) else { panic!("it has its answers") };
        let results: Vec<_> = outcomes.into_iter().map(|outcome| outcome.result).collect();
        assert_eq!(results, [Ok(CacheAnswer::Absent), Err(CacheError::Full), Ok(CacheAnswer::Absent)]);
    }

    /// Each command of an operator has its own client.
    #[test]
    fn however_many_come_and_go_none_leaves_anything_behind() {
        let engine = CacheHandle::Remote(Arc::new(Silent::default()));
        for _ in 0..70_000 {
            let cache = WaitingCache::new(engine.clone());
            let mailbox = Arc::downgrade(&cache.mailbox);
            drop(cache);
            assert!(mailbox.upgrade().is_none());
        }
    }
}
