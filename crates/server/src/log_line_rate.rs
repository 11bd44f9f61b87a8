//! Rate limit of log lines about successful work: a maximum number of lines per minute, evenly spread over the minute,
//! and a burst.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// Token bucket of the process. Each line takes a token.
#[derive(Debug)]
pub(crate) struct LineRate {
    /// 0: no lines at all.
    per_minute: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Fill of the bucket, in units of which a token has 60,000: each millisecond adds as many units as lines per
    /// minute are allowed.
    parts: u64,
    /// Moment of the last refill, in milliseconds of [`strowger_core::Now::mono`].
    at: u64,
    /// Lines without a token since the last report.
    suppressed: u64,
    reported: u64,
}

const MINUTE: u64 = 60_000;

/// Time that fills the bucket: ten seconds.
const FULL: u64 = MINUTE / 6;

impl LineRate {
    /// Creates a limit of this many lines per minute, of which a sixth may be written in a burst.
    pub(crate) fn new(per_minute: u32) -> Self {
        let per_minute = u64::from(per_minute);
        Self {
            per_minute: per_minute.into(),
            state: Mutex::new(State { parts: Self::full(per_minute), at: 0, suppressed: 0, reported: 0 }),
        }
    }

    fn full(per_minute: u64) -> u64 {
        (per_minute * FULL).max(MINUTE)
    }

    /// Tells whether any lines are written.
    pub(crate) fn is_on(&self) -> bool {
        self.per_minute() > 0
    }

    /// Sets the number of lines per minute.
    pub(crate) fn set(&self, per_minute: u32) {
        self.per_minute.store(per_minute.into(), Relaxed);
    }

    fn per_minute(&self) -> u64 {
        self.per_minute.load(Relaxed)
    }

    /// Tells whether a line may be written at `now` (milliseconds). If not, the line is counted.
    pub(crate) fn may_log(&self, now: u64) -> bool {
        self.take(now, 0)
    }

    /// Tells the same for lines that any peer can cause. Such lines use at most half of the bucket, so that tokens
    /// remain for other lines.
    pub(crate) fn may_log_of_unproven(&self, now: u64) -> bool {
        self.take(now, Self::full(self.per_minute()) / 2)
    }

    fn take(&self, now: u64, left: u64) -> bool {
        let per_minute = self.per_minute();
        if per_minute == 0 {
            return false;
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let come = now.saturating_sub(state.at).saturating_mul(per_minute);
        state.parts = state.parts.saturating_add(come).min(Self::full(per_minute));
        state.at = state.at.max(now);
        if state.parts < MINUTE + left.min(Self::full(per_minute) - MINUTE) {
            state.suppressed += 1;
            return false;
        }
        state.parts -= MINUTE;
        true
    }

    /// Returns once a minute the number of lines that were suppressed since the last report; 0 if there is nothing to
    /// report.
    pub(crate) fn suppressed(&self, now: u64) -> u64 {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if now < state.reported.saturating_add(MINUTE) {
            return 0;
        }
        state.reported = now;
        std::mem::take(&mut state.suppressed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_at_once_and_then_evenly() {
        let rate = LineRate::new(600);
        let lines = |from: u64, to: u64| (from..to).filter(|now| rate.may_log(*now)).count();
        assert_eq!(lines(0, 60_000), 100 + 599);
        assert_eq!(rate.suppressed(59_999), 0, "the minute is not over");
        assert_eq!(rate.suppressed(60_000), 60_000 - 699);
        assert_eq!(lines(600_000, 600_050), 50, "the bucket is full again");
    }

    #[test]
    fn lines_without_a_password_leave_half_a_bucket_to_others() {
        let rate = LineRate::new(60);
        assert_eq!((0..20).filter(|_| rate.may_log_of_unproven(0)).count(), 5);
        assert_eq!((0..20).filter(|_| rate.may_log(0)).count(), 5);
    }

    #[test]
    fn one_line_a_minute_and_none() {
        let rate = LineRate::new(1);
        assert!(rate.may_log_of_unproven(0) && !rate.may_log(59_999) && rate.may_log(60_000));
        rate.set(600);
        assert_eq!((60_000..60_300).filter(|now| rate.may_log(*now)).count(), 2, "ten a second, from now on");
        let off = LineRate::new(0);
        assert!(!off.may_log(0) && !off.is_on());
        assert_eq!(off.suppressed(MINUTE), 0, "they are not wanted");
    }
}
