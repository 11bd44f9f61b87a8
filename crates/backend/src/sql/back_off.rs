//! Pauses between attempts to reach a server.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Pause after the first failure.
const FIRST: Duration = Duration::from_millis(50);
/// Longest pause.
const LONGEST: Duration = Duration::from_secs(1);

/// Pauses shared by all connections to one server.
#[derive(Debug, Default)]
pub(crate) struct BackOff(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    failures: u32,
    /// Earliest time of the next attempt.
    until: Option<Instant>,
}

impl BackOff {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells whether an attempt to connect is allowed now.
    pub(crate) fn may_try(&self, now: Instant) -> bool {
        self.lock().until.is_none_or(|until| now >= until)
    }

    /// Records a failed attempt, or a connection that missed its deadline.
    pub(crate) fn failed(&self, now: Instant) {
        let mut state = self.lock();
        // Several connections may fail from one cause, which counts as one failure.
        if state.until.is_none_or(|until| now >= until) {
            let pause = FIRST.saturating_mul(1 << state.failures.min(10)).min(LONGEST);
            state.failures += 1;
            state.until = Some(now + pause);
        }
    }

    /// Records a successful connection. Returns whether an attempt had failed before.
    pub(crate) fn succeeded(&self) -> bool {
        std::mem::take(&mut *self.lock()).failures > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_second_and_end_with_a_connection() {
        let (back_off, mut now) = (BackOff::default(), Instant::now());
        assert!(back_off.may_try(now));
        let mut pauses = Vec::new();
        for _ in 0..8 {
            back_off.failed(now);
            // Another connection fails from the same cause.
            back_off.failed(now + Duration::from_millis(1));
            let start = now;
            while !back_off.may_try(now) {
                now += Duration::from_millis(1);
            }
            pauses.push((now - start).as_millis());
        }
        assert_eq!(pauses, [50, 100, 200, 400, 800, 1000, 1000, 1000]);
        assert!(back_off.succeeded() && !back_off.succeeded());
        back_off.failed(now);
        assert!(back_off.may_try(now + FIRST));
    }
}
