//! Threads in addition to the askers: one thread keeps deadlines, another watches for changes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::flights::Due;
use super::{Changes, Key, Shared, StopOnDrop, Watch};
use crate::error::StoreError;

/// Interval of deadline checks while something is in flight: deadlines are kept within twice that.
const STEP: Duration = Duration::from_millis(25);

/// Idle steps before the timekeeper sleeps: so not every single question wakes it.
const IDLE_STEPS: u32 = 40;

/// Keeps deadlines, and starts a further asker by `add` if all are busy.
pub(super) fn keep_time<K: Key>(shared: &Arc<Shared<K>>, add: impl Fn() -> bool) {
    let _stop = StopOnDrop(shared.clone());
    let (mut askers, mut idle) = (1, 0);
    while shared.flights.wait(STEP, idle >= IDLE_STEPS) {
        idle = if shared.flights.len() == 0 { idle + 1 } else { 0 };
        if idle > 0 {
            continue;
        }
        let due = shared.look_at_the_time();
        if due.lacks_askers && askers < shared.settings.connections {
            askers += usize::from(add());
        }
    }
}

impl<K: Key> Shared<K> {
    /// Returns overdue tickets to their owners.
    pub(super) fn look_at_the_time(&self) -> Due {
        let (now, mut results) = ((self.clock)().mono, Vec::new());
        let due = self.flights.due(now, |key| self.stale(key, now), &mut results);
        if due.is_overdue {
            self.is_silent.store(true, Ordering::Relaxed);
        }
        if due.missed > 0 {
            let late = results.iter().filter(|(_, result)| result.is_err()).count();
            self.figures.late.fetch_add(late as u64, Ordering::Relaxed);
            self.missed(due.missed);
        }
        self.give(&mut results);
        due
    }

    /// Voids the answers to these questions, including answers on their way. Returns how many of the answers were
    /// cached.
    pub(super) fn void(&self, keys: &[K]) -> usize {
        let void = |key: &&K| {
            self.flights.void(self.cache.hash(*key), key);
            self.cache.void(key)
        };
        keys.iter().filter(void).count()
    }

    /// Voids changed answers. If the changes are unknown, the engine counts as silent.
    pub(super) fn hear(&self, changes: Result<Changes<K>, StoreError>) {
        match changes {
            Err(_) => return self.is_silent.store(true, Ordering::Relaxed),
            Ok(Changes::None) => {}
            Ok(Changes::Of(keys)) => {
                let voided = self.void(&keys);
                self.figures.voided.fetch_add(voided as u64, Ordering::Relaxed);
            }
            Ok(Changes::All) => {
                self.flights.void_all();
                self.cache.doubt();
                self.figures.doubted.fetch_add(1, Ordering::Relaxed);
            }
        }
        if self.is_broken() {
            self.flights.probe_now();
        }
    }
}

/// Polls the watch, and voids changed answers.
pub(super) fn watch<K: Key>(shared: &Arc<Shared<K>>, mut watch: Box<dyn Watch<Key = K>>) {
    let _stop = StopOnDrop(shared.clone());
    loop {
        let asked = catch_unwind(AssertUnwindSafe(|| watch.changes())).unwrap_or_else(|_| {
            tracing::error!(of = shared.settings.name, "asking the database what has changed panicked");
            Err(StoreError::Refused)
        });
        let is_known = asked.is_ok();
        shared.hear(asked);
        if is_known {
            watch.voided();
        }
        if !shared.flights.wait_poll() {
            return;
        }
    }
}
