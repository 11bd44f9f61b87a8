//! From the shards to the thread of an engine: requests of a round with their bytes, taken all at once.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::Notify;

use super::flight::Op;
use super::subscription::Subscriptions;
use super::world::DENIED;
use strowger_cache::error::CacheError;
use strowger_cache::gauges::{Gauges, RemoteGauges};
use strowger_cache::request::{Answer, Request};
use strowger_cache::ticket::{Receivers, Ticket};

/// A request, whose bytes stand in those of its [`Jobs`].
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) op: Op,
    pub(super) key: Range<usize>,
    pub(super) value: Range<usize>,
    pub(super) ticket: Ticket,
    pub(super) due: Instant,
}

/// Requests with their bytes. Their memory is used again.
#[derive(Default)]
pub(super) struct Jobs {
    pub(super) list: Vec<Job>,
    pub(super) bytes: Vec<u8>,
}

impl Jobs {
    /// More than that is given back to the allocator after a burst.
    const KEPT: usize = 1 << 20;

    pub(super) fn clear(&mut self) {
        self.list.clear();
        self.bytes.clear();
        self.bytes.shrink_to(Self::KEPT);
    }
}

/// What shards and the thread share.
pub(super) struct Shared {
    jobs: Mutex<Jobs>,
    pub(super) wake: Notify,
    /// Something was queued since the thread was last woken.
    is_due: AtomicBool,
    is_stopped: AtomicBool,
    /// Most requests and bytes under way.
    most: (usize, usize),
    /// Requests without an answer, and their bytes.
    pub(super) in_flight: AtomicUsize,
    in_flight_bytes: AtomicUsize,
    /// Connections that are not down. None: requests fail at once.
    pub(super) usable: AtomicUsize,
    /// Servers that are not reached, or do not answer.
    pub(super) silent: AtomicUsize,
    /// When a server last did not do what it was asked.
    pub(super) denied: Mutex<Option<Instant>>,
    pub(super) receivers: Receivers,
    pub(super) subscriptions: Subscriptions,
    pub(super) figures: Figures,
}

#[derive(Default)]
pub(super) struct Figures {
    hits: AtomicU64,
    misses: AtomicU64,
    stores: AtomicU64,
    removals: AtomicU64,
    refused: AtomicU64,
    late: AtomicU64,
    failed: AtomicU64,
    pub(super) connections: AtomicUsize,
    pub(super) connected: AtomicU64,
    pub(super) lost: AtomicU64,
}

impl Shared {
    pub(super) fn new(requests: usize, bytes: usize) -> Self {
        Self {
            jobs: Mutex::default(),
            wake: Notify::new(),
            is_due: AtomicBool::new(false),
            is_stopped: AtomicBool::new(false),
            most: (requests, bytes),
            in_flight: AtomicUsize::new(0),
            in_flight_bytes: AtomicUsize::new(0),
            // Until the thread knows better.
            usable: AtomicUsize::new(1),
            silent: AtomicUsize::new(0),
            denied: Mutex::default(),
            receivers: Receivers::default(),
            subscriptions: Subscriptions::default(),
            figures: Figures::default(),
        }
    }

    fn jobs(&self) -> MutexGuard<'_, Jobs> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a request.
    pub(super) fn push(&self, request: &Request<'_>, ticket: Ticket, due: Instant) -> Result<(), CacheError> {
        if self.usable.load(Ordering::Relaxed) == 0 {
            self.figures.failed.fetch_add(1, Ordering::Relaxed);
            return Err(CacheError::Unavailable);
        }
        let (op, key, value) = Op::of(request);
        let size = key.len() + value.len();
        let bytes = self.in_flight_bytes.load(Ordering::Relaxed) + size;
        if self.in_flight.load(Ordering::Relaxed) >= self.most.0 || bytes > self.most.1 {
            self.figures.refused.fetch_add(1, Ordering::Relaxed);
            return Err(CacheError::Full);
        }
        let mut jobs = self.jobs();
        // Under the lock: what is queued before it stopped is answered.
        if self.is_stopped.load(Ordering::Relaxed) {
            return Err(CacheError::Unavailable);
        }
        // Before the thread can take it, and take it off again.
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        self.in_flight_bytes.fetch_add(size, Ordering::Relaxed);
        let at = jobs.bytes.len();
        jobs.bytes.extend_from_slice(key);
        jobs.bytes.extend_from_slice(value);
        let middle = at + key.len();
        jobs.list.push(Job { op, key: at..middle, value: middle..middle + value.len(), ticket, due });
        drop(jobs);
        self.is_due.store(true, Ordering::Release);
        Ok(())
    }

    /// The requests of a round leave.
    pub(super) fn flush(&self) {
        if self.is_due.load(Ordering::Acquire) && self.is_due.swap(false, Ordering::AcqRel) {
            self.wake.notify_one();
        }
    }

    /// Takes all that is queued into `jobs`, which is empty.
    pub(super) fn take(&self, jobs: &mut Jobs) {
        std::mem::swap(&mut *self.jobs(), jobs);
    }

    /// Nothing is queued any more.
    pub(super) fn stop(&self) {
        {
            let _jobs = self.jobs();
            self.is_stopped.store(true, Ordering::Relaxed);
        }
        self.wake.notify_one();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// A request has its answer.
    pub(super) fn count(&self, op: Op, size: u32, result: Result<Answer, CacheError>) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
        self.in_flight_bytes.fetch_sub(size as usize, Ordering::Relaxed);
        let f = &self.figures;
        let figure = match (op, result) {
            (Op::Fetch, Ok(Answer::Found)) => &f.hits,
            (Op::Fetch, Ok(_)) => &f.misses,
            (_, Ok(Answer::Stored | Answer::Count(_))) => &f.stores,
            (_, Ok(Answer::Removed)) => &f.removals,
            (_, Ok(_)) => return,
            (_, Err(CacheError::TimedOut)) => &f.late,
            (_, Err(CacheError::Refused | CacheError::Denied | CacheError::Full)) => &f.refused,
            (_, Err(_)) => &f.failed,
        };
        figure.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn refuse(&self) -> CacheError {
        self.figures.refused.fetch_add(1, Ordering::Relaxed);
        CacheError::Refused
    }

    pub(super) fn gauges(&self) -> Gauges {
        let (f, of) = (&self.figures, |n: &AtomicU64| n.load(Ordering::Relaxed));
        Gauges {
            hits: of(&f.hits),
            misses: of(&f.misses),
            stores: of(&f.stores),
            removals: of(&f.removals),
            refused: of(&f.refused),
            ..Gauges::default()
        }
    }

    pub(super) fn remote_gauges(&self) -> RemoteGauges {
        let (f, of) = (&self.figures, |n: &AtomicU64| n.load(Ordering::Relaxed));
        let now = |n: &AtomicUsize| n.load(Ordering::Relaxed) as u64;
        let denied = *self.denied.lock().unwrap_or_else(PoisonError::into_inner);
        RemoteGauges {
            late: of(&f.late),
            failed: of(&f.failed),
            connected: of(&f.connected),
            lost: of(&f.lost),
            connections: now(&f.connections),
            in_flight: now(&self.in_flight),
            bound: self.most.0 as u64,
            is_down: self.usable.load(Ordering::Relaxed) == 0,
            silent: now(&self.silent),
            is_denied: denied.is_some_and(|at| at.elapsed() < DENIED),
        }
    }
}
