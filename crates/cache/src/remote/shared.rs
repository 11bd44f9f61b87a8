//! State shared by all threads with connections to the servers of a cache: bounds, figures, the order of changes.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use super::changes_in_progress::ChangesInProgress;
use super::flight::Op;
use super::log_once::LogOnce;
use super::memcached;
use super::queue::Queue;
use super::settings::RemoteSettings;
use crate::error::CacheError;
use crate::gauges::{Gauges, RemoteGauges};
use crate::request::{CacheAnswer, Request};
use crate::servers::Service;
use crate::ticket::{Receivers, Ticket};

/// Maximum size of all keys and values in flight, in bytes.
const BYTES: usize = 64 << 20;
/// Interval of log lines about one reason of refusals; the server counts as refusing for this time.
pub(super) const DENIED: Duration = Duration::from_secs(60);

pub(super) struct Shared {
    pub(super) settings: RemoteSettings,
    /// Queues to the threads, by their numbers. The first belongs to the engine's own thread.
    queues: RwLock<Vec<Arc<Queue>>>,
    order: Arc<ChangesInProgress>,
    /// Requests without an answer, and their bytes.
    in_flight: AtomicUsize,
    in_flight_bytes: AtomicUsize,
    /// Time of the last refusal by a server.
    denied: Mutex<Option<Instant>>,
    pub(super) said: LogOnce,
    pub(super) receivers: Receivers,
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
    pub(super) connected: AtomicU64,
    pub(super) lost: AtomicU64,
}

impl Shared {
    pub(super) fn new(settings: RemoteSettings) -> Self {
        Self {
            settings,
            queues: RwLock::default(),
            order: Arc::default(),
            in_flight: AtomicUsize::new(0),
            in_flight_bytes: AtomicUsize::new(0),
            denied: Mutex::default(),
            said: LogOnce::default(),
            receivers: Receivers::default(),
            figures: Figures::default(),
        }
    }

    /// Adds a thread. Returns its number and its queue.
    pub(super) fn add(&self) -> (usize, Arc<Queue>) {
        let mut queues = self.queues.write().unwrap_or_else(PoisonError::into_inner);
        queues.push(Arc::default());
        (queues.len() - 1, queues[queues.len() - 1].clone())
    }

    fn queue(&self, thread: usize) -> Arc<Queue> {
        self.queues.read().unwrap_or_else(PoisonError::into_inner)[thread].clone()
    }

    /// Queues a request for the connections of this thread.
    pub(super) fn ask(
        &self,
        (own, queue): (usize, &Queue),
        request: &Request<'_>,
        ticket: Ticket,
    ) -> Result<(), CacheError> {
        let settings = &self.settings;
        let parts @ (op, key, value) = Op::of(request);
        let is_within = !key.is_empty() && key.len() <= settings.key && value.len() <= settings.value;
        if !is_within || (settings.service == Service::Memcached && memcached::refuses(op)) {
            return Err(self.refuse());
        }
        let (thread, claim) = match op {
            Op::Fetch => (self.order.thread_for(key, own), None),
            _ => {
                let (thread, claim) = self.order.claim(key, own);
                (thread, Some(claim))
            }
        };
        let other = (thread != own).then(|| self.queue(thread));
        let queue = other.as_deref().unwrap_or(queue);
        if queue.usable.load(Ordering::Relaxed) == 0 {
            self.figures.failed.fetch_add(1, Ordering::Relaxed);
            return Err(CacheError::Unavailable);
        }
        let size = key.len() + value.len();
        let bytes = self.in_flight_bytes.load(Ordering::Relaxed) + size;
        if self.in_flight.load(Ordering::Relaxed) >= settings.queue || bytes > BYTES {
            self.figures.refused.fetch_add(1, Ordering::Relaxed);
            return Err(CacheError::Full);
        }
        let due = Instant::now() + settings.timeout;
        let is_queued = queue.put(|jobs| {
            // Before the thread can take the request and decrement these.
            self.in_flight.fetch_add(1, Ordering::Relaxed);
            self.in_flight_bytes.fetch_add(size, Ordering::Relaxed);
            jobs.push(parts, ticket, due, claim);
        });
        if other.is_some() {
            queue.flush();
        }
        if is_queued { Ok(()) } else { Err(CacheError::Unavailable) }
    }

    /// Counts an answered request.
    pub(super) fn count(&self, op: Op, size: u32, result: Result<CacheAnswer, CacheError>) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
        self.in_flight_bytes.fetch_sub(size as usize, Ordering::Relaxed);
        let f = &self.figures;
        let figure = match (op, result) {
            (Op::Fetch, Ok(CacheAnswer::Found)) => &f.hits,
            (Op::Fetch, Ok(_)) => &f.misses,
            (_, Ok(CacheAnswer::Stored | CacheAnswer::Count(_))) => &f.stores,
            (_, Ok(CacheAnswer::Removed)) => &f.removals,
            (_, Ok(_)) => return,
            (_, Err(CacheError::TimedOut)) => &f.late,
            (_, Err(CacheError::Refused | CacheError::Denied | CacheError::Full)) => &f.refused,
            (_, Err(_)) => &f.failed,
        };
        figure.fetch_add(1, Ordering::Relaxed);
    }

    fn refuse(&self) -> CacheError {
        self.figures.refused.fetch_add(1, Ordering::Relaxed);
        CacheError::Refused
    }

    /// Records a refusal by a server.
    pub(super) fn denied(&self) {
        *self.denied.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
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
        let denied = *self.denied.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut connections, mut usable, mut silent) = (0, 0, 0);
        for queue in &*self.queues.read().unwrap_or_else(PoisonError::into_inner) {
            connections += queue.connections.load(Ordering::Relaxed);
            usable += queue.usable.load(Ordering::Relaxed);
            silent = silent.max(queue.silent.load(Ordering::Relaxed));
        }
        RemoteGauges {
            late: of(&f.late),
            failed: of(&f.failed),
            connected: of(&f.connected),
            lost: of(&f.lost),
            connections: connections as u64,
            in_flight: self.in_flight.load(Ordering::Relaxed) as u64,
            bound: self.settings.queue as u64,
            is_down: usable == 0,
            silent: silent as u64,
            is_denied: denied.is_some_and(|at| at.elapsed() < DENIED),
        }
    }
}
