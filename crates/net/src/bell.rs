//! Wake-up of a shard, which is only sent if the shard sleeps: a wake-up costs 15-20 µs, and the check of a flag costs
//! nothing.

use crate::sync::{AtomicBool, Mutex, fence};
use std::sync::atomic::Ordering::*;
use std::task::Waker;

/// Bell of one shard. A thread that puts something into one of its queues rings it. Before the shard sleeps, it sets
/// the flag and looks into its queues once more.
// On its own cache lines, which the ringing threads read.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Bell {
    asleep: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Bell {
    /// Wakes the shard after its queue was filled. Returns whether it was asleep.
    pub(crate) fn ring(&self) -> bool {
        // This fence pairs with the fence in `mark_asleep`: either this thread sees `asleep`, or the shard sees the
        // filled queue.
        fence(SeqCst);
        if !self.asleep.load(Relaxed) || !self.asleep.swap(false, AcqRel) {
            return false;
        }
        if let Some(waker) = &*self.waker.lock().unwrap_or_else(|e| e.into_inner()) {
            waker.wake_by_ref();
        }
        true
    }

    /// Marks the shard as asleep. The shard calls this before it sleeps, and must then check its queues once more.
    pub(crate) fn mark_asleep(&self) {
        self.asleep.store(true, Relaxed);
        fence(SeqCst);
    }

    /// Marks the shard as awake. The shard calls this when it works.
    pub(crate) fn mark_awake(&self) {
        self.asleep.store(false, Relaxed);
    }

    /// Sets the waker. The shard calls this once, because the waker of its main future stays the same.
    pub(crate) fn set_waker(&self, waker: &Waker) {
        let mut held = self.waker.lock().unwrap_or_else(|e| e.into_inner());
        if !held.as_ref().is_some_and(|w| w.will_wake(waker)) {
            *held = Some(waker.clone());
        }
    }
}

/// Tests in all orders of the threads' steps.
#[cfg(all(test, loom))]
mod interleavings {
    use super::*;
    use crate::sync::{Arc, AtomicUsize};
    use loom::sync::Notify;
    use loom::thread;

    struct Sleeper(Notify);

    impl std::task::Wake for Sleeper {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.notify();
        }
    }

    /// A shard that found its queue empty sleeps. If the queue was filled meanwhile, the shard is woken.
    #[test]
    fn what_is_put_into_a_queue_is_found() {
        loom::model(|| {
            let (bell, queue) = (Arc::new(Bell::default()), Arc::new(AtomicUsize::new(0)));
            let sleeper = std::sync::Arc::new(Sleeper(Notify::new()));
            bell.set_waker(&Waker::from(sleeper.clone()));
            let peer = {
                let (bell, queue) = (bell.clone(), queue.clone());
                thread::spawn(move || {
                    queue.store(1, Relaxed);
                    bell.ring();
                })
            };
            loop {
                bell.mark_awake();
                if queue.load(Relaxed) > 0 {
                    break;
                }
                bell.mark_asleep();
                if queue.load(Relaxed) > 0 {
                    break;
                }
                // Spurious wake-ups are possible.
                sleeper.0.wait();
            }
            peer.join().unwrap();
        });
    }

    #[test]
    fn of_two_that_ring_one_wakes() {
        loom::model(|| {
            let bell = Arc::new(Bell::default());
            bell.mark_asleep();
            let other = {
                let bell = bell.clone();
                thread::spawn(move || bell.ring())
            };
            let ours = bell.ring();
            assert!(ours ^ other.join().unwrap());
        });
    }
}
