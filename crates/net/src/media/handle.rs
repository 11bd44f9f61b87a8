//! Handle of the media threads for one shard.

use super::{Entry, Transfer};
use crate::ring::{Consumer, Producer};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;
use strowger_media::session::{SessionEvent, SessionOrder};

/// Bound of orders that wait for one full ring. Beyond it a shard opens no session; what ends one is always taken.
const WAITING: usize = 1_024;

/// Handle of the media threads for one shard.
pub struct MediaHandle {
    shard: usize,
    threads: Vec<ThreadLink>,
}

/// Link to one media thread.
struct ThreadLink {
    entry: Arc<Entry>,
    orders: Producer<Transfer<SessionOrder>>,
    /// Orders for which the ring had no room.
    waiting: VecDeque<SessionOrder>,
    events: Consumer<Transfer<SessionEvent>>,
}

impl ThreadLink {
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
    pub(super) const fn new(shard: usize) -> Self {
        Self { shard, threads: Vec::new() }
    }

    pub(super) fn join(
        &mut self,
        entry: Arc<Entry>,
        orders: Producer<Transfer<SessionOrder>>,
        events: Consumer<Transfer<SessionEvent>>,
    ) {
        self.threads.push(ThreadLink { entry, orders, waiting: VecDeque::new(), events });
    }

    /// Returns the number of the shard.
    pub const fn shard(&self) -> usize {
        self.shard
    }

    /// Returns the number of media threads.
    pub const fn threads(&self) -> usize {
        self.threads.len()
    }

    /// Gives an order to a thread: for a session, that of its ports. Orders are obeyed one after another.
    ///
    /// # Errors
    /// Returns the order if there is no such thread or it has ended, or if [`SessionOrder::Set`], [`SessionOrder::Report`] or
    /// [`SessionOrder::Lend`] would be too much: too many orders wait.
    pub fn order(&mut self, thread: u16, order: SessionOrder) -> Result<(), SessionOrder> {
        let is_running = |link: &&mut ThreadLink| !link.entry.has_ended.load(Acquire);
        let Some(link) = self.threads.get_mut(usize::from(thread)).filter(is_running) else { return Err(order) };
        let is_optional = matches!(
            order,
            SessionOrder::Set { .. } | SessionOrder::Report { .. } | SessionOrder::Lend { .. }
        );
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
