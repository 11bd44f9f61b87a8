//! Clocks of a run: a monotonic one in microseconds for delays, and the wall clock for the seconds of the series.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Relation of the monotonic clock to the wall clock, fixed at the start of the run: later changes of the wall clock
/// have no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// Microseconds since 1970-01-01 UTC at zero of the monotonic clock.
    base: i64,
}

impl Clock {
    /// Creates a clock: the wall clock showed `wall` when the monotonic clock showed `mono` (µs).
    pub fn new(mono: u64, wall: SystemTime) -> Self {
        let wall = wall.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_micros() as i64;
        Self { base: wall - mono as i64 }
    }

    /// Returns the microseconds since 1970-01-01 UTC at `mono` (µs).
    #[inline]
    pub fn wall(self, mono: u64) -> u64 {
        self.base.saturating_add_unsigned(mono).max(0) as u64
    }

    /// Returns the wall-clock second (since 1970-01-01 UTC) of `mono`.
    #[inline]
    pub fn second(self, mono: u64) -> u64 {
        self.wall(mono) / 1_000_000
    }

    /// Returns the monotonic time (µs) at which the wall clock shows `wall` (µs since 1970-01-01 UTC), or 0 if that was
    /// before the clock's zero.
    pub fn mono(self, wall: u64) -> u64 {
        0u64.saturating_add_signed((wall as i64).saturating_sub(self.base))
    }

    /// Returns the monotonic time (µs) at which the wall-clock second `second` begins, or 0 if that was before the
    /// clock's zero.
    #[inline]
    pub fn begin(self, second: u64) -> u64 {
        (second.saturating_mul(1_000_000) as i64).saturating_sub(self.base).max(0) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_those_of_the_wall_clock() {
        let clock = Clock::new(5_000_000, UNIX_EPOCH + Duration::from_micros(1_700_000_000_400_000));
        assert_eq!(clock.second(5_000_000), 1_700_000_000);
        assert_eq!(clock.second(5_599_999), 1_700_000_000);
        assert_eq!(clock.second(5_600_000), 1_700_000_001);
        assert_eq!(clock.begin(1_700_000_001), 5_600_000);
        assert_eq!(clock.wall(5_600_000), 1_700_000_001_000_000);
        assert_eq!((clock.mono(1_700_000_001_000_000), clock.mono(7)), (5_600_000, 0));
    }
}
