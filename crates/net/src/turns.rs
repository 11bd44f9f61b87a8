//! How long a shard is at work without a look at what has come meanwhile.

use crate::clock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The longest turn is that of this period and the one before, in microseconds.
const PERIOD: u64 = 30_000_000;

/// The turns of one shard. The shard writes, any thread reads; all are microseconds of [`clock::micros`].
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// When the turn began that the shard is in; 0: it is in none.
    began: AtomicU64,
    /// Number of the period, and the longest turn that ended in it.
    period: AtomicU64,
    longest: AtomicU64,
    /// That of the period before.
    before: AtomicU64,
}

impl Turns {
    /// A turn begins at this moment, in microseconds.
    #[inline]
    pub(crate) fn begin(&self, now: u64) {
        self.began.store(now.max(1), Relaxed);
    }

    /// It ends.
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

    /// The longest turn of the last 30 to 60 seconds, one that goes on included.
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

    /// How long the turn has lasted that the shard is in; nothing where it rests.
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
