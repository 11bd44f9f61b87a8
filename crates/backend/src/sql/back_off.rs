//! How often a server that cannot be reached is tried again.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// After the first failure.
const FIRST: Duration = Duration::from_millis(50);
/// At most, however many there were.
const LONGEST: Duration = Duration::from_secs(1);

/// Shared by all connections to one server.
#[derive(Debug, Default)]
pub(crate) struct BackOff(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    failures: u32,
    /// Not tried before this.
    until: Option<Instant>,
}

impl BackOff {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is worth trying to connect.
    pub(crate) fn may_try(&self, now: Instant) -> bool {
        self.lock().until.is_none_or(|until| now >= until)
    }

    /// There is no connection, or one was silent for too long.
    pub(crate) fn failed(&self, now: Instant) {
        let mut state = self.lock();
        // Several connections may fail of one cause.
        if state.until.is_none_or(|until| now >= until) {
            let pause = FIRST.saturating_mul(1 << state.failures.min(10)).min(LONGEST);
            state.failures += 1;
            state.until = Some(now + pause);
        }
    }

    /// There is a connection; whether it was tried in vain before.
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
            // Of another connection, by the same cause.
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
