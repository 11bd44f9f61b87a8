//! Changes that wait for the thread: the last one of each number.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::engine::Change;

pub(crate) type Changes = HashMap<u64, Change>;

/// Two callers seldom meet in one of so many.
const PARTS: usize = 16;

/// What all callers and the thread share. All changes of a number are in one part, so the last one that was put is the last one there.
#[derive(Default)]
pub(crate) struct Pending {
    parts: [Mutex<Changes>; PARTS],
    count: AtomicU64,
    /// The thread sleeps until there is a change.
    is_idle: AtomicBool,
    /// There is no thread any more.
    has_ended: AtomicBool,
    signal: Mutex<Signal>,
    wake: Condvar,
}

#[derive(Default)]
struct Signal {
    is_woken: bool,
    is_stopped: bool,
}

impl Pending {
    pub(crate) fn put(&self, number: u64, change: Change) {
        if self.has_ended() {
            return;
        }
        // Numbers are hashes, whose low bits may have another meaning.
        let part = (number >> 32) as usize % PARTS;
        let before = self.part(part).insert(number, change);
        if before.is_none() {
            self.count.fetch_add(1, Ordering::Relaxed);
        }
        if self.is_idle.load(Ordering::SeqCst) && self.is_idle.swap(false, Ordering::SeqCst) {
            self.signal().is_woken = true;
            self.wake.notify_all();
        }
    }

    pub(crate) fn len(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Moves all that waits into `changes`, over what is there, and counts it in `taken` before it counts here no more.
    pub(crate) fn take(&self, changes: &mut Changes, scratch: &mut Changes, taken: &AtomicU64) {
        for part in 0..PARTS {
            // Under the lock no more than two maps change places.
            std::mem::swap(&mut *self.part(part), scratch);
            taken.fetch_add(scratch.len() as u64, Ordering::Relaxed);
            self.count.fetch_sub(scratch.len() as u64, Ordering::Relaxed);
            changes.extend(scratch.drain());
            if scratch.capacity() > RESERVE {
                // A burst does not keep its memory.
                *scratch = Changes::new();
            }
        }
    }

    /// Returns when there is a change, or this time is over. Whether the thread is to end.
    pub(crate) fn wait(&self, most: Option<Duration>) -> bool {
        self.is_idle.store(true, Ordering::SeqCst);
        // What was put before the flag could be seen.
        if self.len() > 0 {
            self.is_idle.store(false, Ordering::SeqCst);
            return self.signal().is_stopped;
        }
        let is_stopped = self.sleep(most);
        self.is_idle.store(false, Ordering::SeqCst);
        is_stopped
    }

    /// Returns after this time. Whether the thread is to end.
    pub(crate) fn linger(&self, time: Duration) -> bool {
        self.sleep(Some(time))
    }

    /// Changes are taken by no thread from now on, and dropped.
    pub(crate) fn end(&self) {
        self.has_ended.store(true, Ordering::SeqCst);
        (0..PARTS).for_each(|part| *self.part(part) = Changes::new());
        self.count.store(0, Ordering::Relaxed);
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed)
    }

    pub(crate) fn stop(&self) {
        let mut signal = self.signal();
        (signal.is_woken, signal.is_stopped) = (true, true);
        self.wake.notify_all();
    }

    fn sleep(&self, most: Option<Duration>) -> bool {
        let end = most.map(|most| Instant::now() + most);
        let mut signal = self.signal();
        while !signal.is_woken {
            signal = match end {
                None => self.wake.wait(signal).unwrap_or_else(PoisonError::into_inner),
                Some(end) => {
                    let Some(left) = end.checked_duration_since(Instant::now()) else { break };
                    self.wake.wait_timeout(signal, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        signal.is_woken = signal.is_stopped;
        signal.is_stopped
    }

    fn part(&self, part: usize) -> MutexGuard<'_, Changes> {
        self.parts[part].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn signal(&self) -> MutexGuard<'_, Signal> {
        self.signal.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Changes of a part for which memory stays.
const RESERVE: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_change_of_a_number_waits() {
        let pending = Pending::default();
        let state = |byte: u8| Change::State([byte].into());
        (0..1_000_u64).for_each(|n| pending.put(n << 30, state(1)));
        pending.put(0, state(2));
        pending.put(1 << 30, Change::Removed);
        assert_eq!(pending.len(), 1_000);
        let (mut changes, mut scratch) = (Changes::from([(0, state(0)), (7, state(7))]), Changes::new());
        pending.take(&mut changes, &mut scratch, &AtomicU64::new(0));
        assert_eq!((changes.len(), pending.len()), (1_001, 0));
        assert_eq!((&changes[&0], &changes[&(1 << 30)], &changes[&7]), (&state(2), &Change::Removed, &state(7)));
    }

    #[test]
    fn a_change_wakes_and_a_stop_does() {
        let pending = Pending::default();
        pending.put(1, Change::Removed);
        assert!(!pending.wait(None));
        pending.take(&mut Changes::new(), &mut Changes::new(), &AtomicU64::new(0));
        assert!(!pending.wait(Some(Duration::from_millis(1))));
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| pending.wait(None));
            pending.stop();
            assert!(waits.join().expect("it ends"));
        });
        assert!(pending.linger(Duration::from_secs(60)), "no time is spent once it has stopped");
    }
}
