//! Queue from callers to the thread with the connections: requests of a round with their bytes, taken all at once.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::Notify;

use super::changes_in_progress::Claim;
use super::flight::Op;
use crate::ticket::Ticket;

/// Request, whose bytes are in those of its [`Jobs`].
#[derive(Debug)]
pub(super) struct Job {
    pub(super) op: Op,
    pub(super) key: Range<usize>,
    pub(super) value: Range<usize>,
    pub(super) ticket: Ticket,
    pub(super) due: Instant,
    pub(super) claim: Option<Claim>,
}

/// Requests with their bytes, in reused memory.
#[derive(Default)]
pub(super) struct Jobs {
    pub(super) list: Vec<Job>,
    pub(super) bytes: Vec<u8>,
}

impl Jobs {
    /// Memory above this is freed after a burst.
    const KEPT: usize = 1 << 20;

    pub(super) fn push(
        &mut self,
        (op, key, value): (Op, &[u8], &[u8]),
        ticket: Ticket,
        due: Instant,
        claim: Option<Claim>,
    ) {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        let middle = at + key.len();
        self.list.push(Job { op, key: at..middle, value: middle..middle + value.len(), ticket, due, claim });
    }

    pub(super) fn clear(&mut self) {
        self.list.clear();
        self.bytes.clear();
        self.bytes.shrink_to(Self::KEPT);
    }
}

/// Queue to one thread and its connections.
pub(super) struct Queue {
    jobs: Mutex<Jobs>,
    pub(super) wake: Notify,
    /// Set if anything was queued since the thread was last woken.
    is_due: AtomicBool,
    is_stopped: AtomicBool,
    /// Open connections.
    pub(super) connections: AtomicUsize,
    /// Connections that are not down. 0: requests fail at once.
    pub(super) usable: AtomicUsize,
    /// Servers that are not reached, or do not answer.
    pub(super) silent: AtomicUsize,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            jobs: Mutex::default(),
            wake: Notify::new(),
            is_due: AtomicBool::new(false),
            is_stopped: AtomicBool::new(false),
            connections: AtomicUsize::new(0),
            // The server counts as usable until the thread has tried.
            usable: AtomicUsize::new(1),
            silent: AtomicUsize::new(0),
        }
    }
}

impl Queue {
    fn jobs(&self) -> MutexGuard<'_, Jobs> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `put`, which adds requests. Returns false if the queue has stopped; earlier requests are still answered.
    pub(super) fn put(&self, put: impl FnOnce(&mut Jobs)) -> bool {
        let mut jobs = self.jobs();
        if self.is_stopped() {
            return false;
        }
        put(&mut jobs);
        drop(jobs);
        self.is_due.store(true, Ordering::Release);
        true
    }

    /// Sends the requests of a round.
    pub(super) fn flush(&self) {
        if self.is_due.load(Ordering::Acquire) && self.is_due.swap(false, Ordering::AcqRel) {
            self.wake.notify_one();
        }
    }

    /// Takes all queued requests into `jobs`, which is empty.
    pub(super) fn take(&self, jobs: &mut Jobs) {
        std::mem::swap(&mut *self.jobs(), jobs);
    }

    /// Stops the queue: it accepts no more requests.
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
}
