//! The threads beside the askers: one keeps deadlines, one hears what has changed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{Changes, Key, Shared, StopOnDrop, Watch};
use crate::error::StoreError;

/// How often deadlines are looked after while something is in flight: they are kept within twice that.
const STEP: Duration = Duration::from_millis(25);

/// Steps without anything in flight after which it sleeps until there is: a question must not wake it each time.
const IDLE_STEPS: u32 = 40;

/// Keeps deadlines, and starts a further asker by `add` where all are busy.
pub(super) fn keep_time<K: Key>(shared: &Arc<Shared<K>>, add: impl Fn() -> bool) {
    let _stop = StopOnDrop(shared.clone());
    let (mut askers, mut idle) = (1, 0);
    let mut results = Vec::new();
    while shared.flights.wait(STEP, idle >= IDLE_STEPS) {
        idle = if shared.flights.len() == 0 { idle + 1 } else { 0 };
        if idle > 0 {
            continue;
        }
        let now = (shared.clock)().mono;
        let due = shared.flights.due(now, |key| shared.stale(key, now), &mut results);
        if due.is_overdue {
            shared.is_silent.store(true, Ordering::Relaxed);
        }
        if due.missed > 0 {
            let late = results.iter().filter(|(_, result)| result.is_err()).count();
            shared.figures.late.fetch_add(late as u64, Ordering::Relaxed);
            shared.missed(due.missed);
        }
        shared.give(&mut results);
        if due.lacks_askers && askers < shared.settings.connections {
            askers += usize::from(add());
        }
    }
}

/// Asks again and again what has changed, and voids that.
pub(super) fn watch<K: Key>(shared: &Arc<Shared<K>>, mut watch: Box<dyn Watch<Key = K>>) {
    let _stop = StopOnDrop(shared.clone());
    loop {
        let asked = catch_unwind(AssertUnwindSafe(|| watch.changes())).unwrap_or_else(|_| {
            tracing::error!(of = shared.settings.name, "asking the database what has changed panicked");
            Err(StoreError::Refused)
        });
        match asked {
            Ok(changes) => {
                match changes {
                    Changes::None => {}
                    Changes::Of(keys) => {
                        keys.iter().for_each(|key| shared.cache.void(key));
                        shared.figures.voided.fetch_add(keys.len() as u64, Ordering::Relaxed);
                    }
                    Changes::All => {
                        shared.cache.doubt();
                        shared.figures.doubted.fetch_add(1, Ordering::Relaxed);
                    }
                }
                watch.voided();
                if shared.is_broken() {
                    shared.flights.probe_now();
                }
            }
            Err(_) => shared.is_silent.store(true, Ordering::Relaxed),
        }
        if !shared.flights.wait_poll() {
            return;
        }
    }
}
