//! Longest turns of a shard: in a turn it does not receive new messages.

use crate::clock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Period of the measurement in microseconds. The longest turn is that of this period and the previous one.
const PERIOD: u64 = 30_000_000;

/// Turns of one shard. The shard writes, any thread reads; all are microseconds of [`clock::micros`].
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// Begin of the current turn; 0: the shard is in none.
    began: AtomicU64,
    /// Number of the period, and the longest turn that ended in it.
    period: AtomicU64,
    longest: AtomicU64,
    /// Longest turn of the previous period.
    before: AtomicU64,
}

impl Turns {
    /// Begins a turn at this time in microseconds.
    #[inline]
    pub(crate) fn begin(&self, now: u64) {
        self.began.store(now.max(1), Relaxed);
    }

    /// Ends the turn.
    #[inline]
    pub(crate) fn end(&self) {
        let now = clock::micros();
        self.note(now, now.saturating_sub(self.began.load(Relaxed)));
        self.began.store(0, Relaxed);
    }

    #[inline]
    fn note(&self, now: u64, took: u64) {
        let period = now / PERIOD;
        let known = self.period.load(Relaxed);
        if period != known {
            let before = if period == known + 1 { self.longest.load(Relaxed) } else { 0 };
            self.before.store(before, Relaxed);
            self.longest.store(took, Relaxed);
            self.period.store(period, Relaxed);
        } else if took > self.longest.load(Relaxed) {
            self.longest.store(took, Relaxed);
        }
    }

    /// Returns the longest turn of the last 30 to 60 seconds, including the current one.
    pub(crate) fn longest(&self) -> Duration {
        let now = clock::micros();
        let ended = match (now / PERIOD).wrapping_sub(self.period.load(Relaxed)) {
            0 => self.longest.load(Relaxed).max(self.before.load(Relaxed)),
            1 => self.longest.load(Relaxed),
            _ => 0,
        };
        Duration::from_micros(ended.max(self.running(now)))
    }

    fn running(&self, now: u64) -> u64 {
        match self.began.load(Relaxed) {
            0 => 0,
            began => now.saturating_sub(began),
        }
    }

    /// Returns the duration of the current turn; zero if the shard is idle.
    pub(crate) fn current(&self) -> Duration {
        Duration::from_micros(self.running(clock::micros()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_turn_is_that_of_two_periods() {
        let turns = Turns::default();
        turns.note(1, 5);
        turns.note(2, 3);
        assert_eq!(turns.longest().as_micros(), 5);
        turns.note(PERIOD, 4);
        assert_eq!((turns.before.load(Relaxed), turns.longest.load(Relaxed)), (5, 4));
        turns.note(2 * PERIOD, 1);
        assert_eq!((turns.before.load(Relaxed), turns.longest.load(Relaxed)), (4, 1));
        turns.note(4 * PERIOD, 2);
        assert_eq!((turns.before.load(Relaxed), turns.longest.load(Relaxed)), (0, 2));
    }

    #[test]
    fn a_turn_that_goes_on_counts() {
        let turns = Turns::default();
        assert_eq!(turns.current(), Duration::ZERO);
        turns.begin(clock::micros());
        while turns.current().is_zero() {
            std::thread::yield_now();
        }
        assert!(turns.longest() > Duration::ZERO);
        turns.end();
        assert!(turns.current().is_zero() && turns.longest() > Duration::ZERO);
    }
}
