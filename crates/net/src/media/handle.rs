//! Handle of the media threads for one shard.

use super::{Entry, Transfer};
use crate::ring::{Consumer, Producer};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex, PoisonError};
use strowger_media::session::{SessionEvent, SessionOrder};

/// Limit of orders that wait for one full ring. Beyond it a shard opens no session. An order that ends a session is always taken, and so is a
/// claim: there is one claim for each session of the process before.
const WAITING: usize = 1_024;

/// Handle of the media threads for one shard.
pub struct MediaHandle {
    shard: usize,
    threads: Vec<ThreadLink>,
    started: Arc<StartedThreads>,
}

/// Media threads that have started, from which the handles take their links.
pub(super) struct StartedThreads {
    count: AtomicUsize,
    /// Thread for new sessions.
    preferred: AtomicUsize,
    /// Links that each shard has not taken yet.
    links: Mutex<Vec<Vec<ThreadLink>>>,
}

impl StartedThreads {
    /// Creates the list without a thread.
    pub(super) fn new(shards: usize) -> Self {
        let links = Mutex::new((0..shards).map(|_| Vec::new()).collect());
        Self { count: AtomicUsize::new(0), preferred: AtomicUsize::new(0), links }
    }

    /// Adds a thread by its links, one for each shard.
    pub(super) fn add(&self, links: Vec<ThreadLink>) {
        let mut waiting = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.iter_mut().zip(links).for_each(|(of_shard, link)| of_shard.push(link));
        self.count.fetch_add(1, Release);
    }

    /// Moves the links that a shard has not taken yet to `links`.
    #[cold]
    fn take(&self, shard: usize, links: &mut Vec<ThreadLink>) {
        let mut waiting = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        links.append(&mut waiting[shard]);
    }

    /// Sets the thread for new sessions.
    pub(super) fn prefer(&self, thread: usize) {
        self.preferred.store(thread, Relaxed);
    }

    /// Returns the thread for new sessions.
    pub(super) fn preferred(&self) -> usize {
        self.preferred.load(Relaxed)
    }
}

/// Link to one media thread.
pub(super) struct ThreadLink {
    entry: Arc<Entry>,
    orders: Producer<Transfer<SessionOrder>>,
    /// Orders for which the ring had no room.
    waiting: VecDeque<SessionOrder>,
    events: Consumer<Transfer<SessionEvent>>,
}

impl ThreadLink {
    pub(super) fn new(
        entry: Arc<Entry>,
        orders: Producer<Transfer<SessionOrder>>,
        events: Consumer<Transfer<SessionEvent>>,
    ) -> Self {
        Self { entry, orders, waiting: VecDeque::new(), events }
    }

    /// Puts waiting orders into the ring while it has room.
    fn flush(&mut self) {
        while let Some(order) = self.waiting.pop_front() {
            if let Some(order) = push(&mut self.orders, order) {
                self.waiting.push_front(order);
                break;
            }
        }
        self.entry.bell.ring();
    }
}

/// Puts a value into a ring. Returns it if there is no room.
pub(super) fn push<T>(ring: &mut Producer<Transfer<T>>, value: T) -> Option<T> {
    let mut value = Some(value);
    ring.push(|slot| *slot = value.take());
    value
}

impl MediaHandle {
    pub(super) fn new(shard: usize, started: Arc<StartedThreads>) -> Self {
        Self { shard, threads: Vec::new(), started }
    }

    /// Takes the links to threads that have started since the last call.
    fn join(&mut self) {
        if self.threads.len() < self.started.count.load(Acquire) {
            self.started.take(self.shard, &mut self.threads);
        }
    }

    /// Returns the number of the shard.
    pub const fn shard(&self) -> usize {
        self.shard
    }

    /// Returns the number of media threads. It grows under load.
    pub fn threads(&self) -> usize {
        self.started.count.load(Acquire)
    }

    /// Returns the thread for new sessions: the least busy one.
    pub fn preferred(&self) -> u16 {
        self.started.preferred() as u16
    }

    /// Gives an order to a thread: for a session, that of its ports. Orders are obeyed one after another.
    ///
    /// # Errors
    /// Returns the order if there is no such thread or it has ended, or if [`SessionOrder::Set`], [`SessionOrder::Report`] or
    /// [`SessionOrder::Lend`] would be too much: too many orders wait.
    pub fn order(&mut self, thread: u16, order: SessionOrder) -> Result<(), SessionOrder> {
        self.join();
        let is_running = |link: &&mut ThreadLink| !link.entry.has_ended.load(Acquire);
        let Some(link) = self.threads.get_mut(usize::from(thread)).filter(is_running) else { return Err(order) };
        let is_optional =
            matches!(order, SessionOrder::Set { .. } | SessionOrder::Report { .. } | SessionOrder::Lend { .. });
        if is_optional && link.waiting.len() >= WAITING {
            return Err(order);
        }
        link.waiting.push_back(order);
        link.flush();
        Ok(())
    }

    /// Takes the events, each with its thread.
    pub fn take_events(&mut self, mut take: impl FnMut(u16, SessionEvent)) {
        for (thread, link) in self.threads.iter_mut().enumerate() {
            let mut event = None;
            while link.events.pop(|slot| event = slot.take()) {
                if let Some(event) = event.take() {
                    take(thread as u16, event);
                }
            }
            if link.events.producer_waits() {
                link.entry.bell.ring();
            }
            if !link.waiting.is_empty() {
                link.flush();
            }
        }
    }
}
