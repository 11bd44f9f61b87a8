//! Thread that ends overdue look-ups, and starts further askers.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::flights::Due;
use super::{Key, Shared, StopOnDrop};

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
}
