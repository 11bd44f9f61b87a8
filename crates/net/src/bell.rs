//! Waking a shard, and only if it sleeps: a wake costs 15-20 µs, a look at a flag nothing.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::*, fence};
use std::task::Waker;

/// The bell of one shard. The thread that put something into one of its queues rings; the shard, before it sleeps,
/// says so and looks into its queues once more.
#[derive(Default)]
pub(crate) struct Bell {
    asleep: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Bell {
    /// After the queue was filled; whether the shard had to be woken.
    pub(crate) fn ring(&self) -> bool {
        // Pairs with the fence in `rest`: either we see `asleep`, or the shard sees what we put into the queue.
        fence(SeqCst);
        if !self.asleep.load(Relaxed) || !self.asleep.swap(false, AcqRel) {
            return false;
        }
        if let Some(waker) = &*self.waker.lock().unwrap_or_else(|e| e.into_inner()) {
            waker.wake_by_ref();
        }
        true
    }

    /// By the shard, before it sleeps; then it must look into its queues.
    pub(crate) fn rest(&self) {
        self.asleep.store(true, Relaxed);
        fence(SeqCst);
    }

    /// By the shard, when it works.
    pub(crate) fn rise(&self) {
        self.asleep.store(false, Relaxed);
    }

    /// By the shard, once: the waker of its main future stays the same.
    pub(crate) fn hang(&self, waker: &Waker) {
        let mut held = self.waker.lock().unwrap_or_else(|e| e.into_inner());
        if !held.as_ref().is_some_and(|w| w.will_wake(waker)) {
            *held = Some(waker.clone());
        }
    }
}
