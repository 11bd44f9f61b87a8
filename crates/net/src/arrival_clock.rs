//! Clock of arrivals: moves time stamps of the kernel from the wall clock to the monotonic clock by one fixed difference, so that the time
//! between two datagrams is as exact as their time stamps.
//!
//! Both clocks are slewed alike (clock_gettime(2)), so their difference changes only when the wall clock is set.

use crate::clock;
use std::time::{SystemTime, UNIX_EPOCH};

/// Change of the difference from which the wall clock was set, nanoseconds.
const STEP: i64 = 1_000_000;

/// Longest wait of a datagram in its socket, microseconds. A time stamp further back is of another wall clock.
const LONGEST: u64 = 10_000_000;

/// Readings at the beginning, of which the fastest counts.
const FIRST: usize = 8;

/// Difference of the clocks, and the time of the last reading.
#[derive(Debug)]
pub(crate) struct ArrivalClock {
    difference: Option<Difference>,
    /// Microseconds of [`clock::micros`].
    now: u64,
}

/// Difference of the clocks by one reading.
#[derive(Clone, Copy, Debug)]
struct Difference {
    /// Nanoseconds by which the wall clock is ahead of the monotonic clock.
    ahead: i64,
    /// Duration of the reading in nanoseconds, which bounds its error.
    duration: i64,
}

impl ArrivalClock {
    pub(crate) fn new() -> Self {
        let mut clock = Self { difference: None, now: 0 };
        (0..FIRST).for_each(|_| clock.read());
        clock
    }

    /// Reads the clocks, after a read from a socket.
    pub(crate) fn read(&mut self) {
        let before = clock::micros();
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as i64);
        self.set(before, wall, clock::micros());
    }

    /// Reads the monotonic clock alone, after a further read from a socket. The known difference of the clocks remains.
    pub(crate) fn advance(&mut self) {
        self.now = clock::micros();
    }

    /// Returns the time of the last reading in microseconds.
    pub(crate) const fn now(&self) -> u64 {
        self.now
    }

    /// Takes a reading of the wall clock between two of the monotonic clock.
    fn set(&mut self, before: u64, wall: i64, after: u64) {
        let duration = (after - before) as i64 * 1_000;
        let ahead = wall - (before + after) as i64 * 500;
        // A slow reading was interrupted between two clocks, and says less than the known one.
        let holds = self
            .difference
            .is_some_and(|known| known.duration <= duration && (ahead - known.ahead).abs() <= STEP + duration);
        if !holds {
            self.difference = Some(Difference { ahead, duration });
        }
        self.now = after;
    }

    /// Converts a time stamp to microseconds of [`clock::micros`]. Without a time stamp of the present wall clock, returns the time of
    /// the last reading.
    pub(crate) fn arrival(&self, stamp: Option<i64>) -> u64 {
        let (Some(stamp), Some(difference)) = (stamp, self.difference) else { return self.now };
        let Ok(at) = u64::try_from((stamp - difference.ahead) / 1_000) else { return self.now };
        let is_sound = at <= self.now + STEP as u64 / 1_000 && self.now.saturating_sub(at) <= LONGEST;
        if is_sound { at.min(self.now) } else { self.now }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000_000_000;

    fn wall(us: i64) -> i64 {
        1_700_000_000_000_000_000 + us * 1_000
    }

    fn clock() -> ArrivalClock {
        let mut clock = ArrivalClock { difference: None, now: 0 };
        clock.set(1_000, wall(1_000), 1_000);
        clock
    }

    #[test]
    fn times_between_time_stamps_are_exact() {
        let mut clock = clock();
        assert_eq!((clock.arrival(Some(wall(400))), clock.arrival(None)), (400, 1_000));
        // The thread lost the processor for 4 ms between its readings.
        clock.set(2_000, wall(5_990), 6_000);
        assert_eq!((clock.arrival(Some(wall(1_400))), clock.arrival(Some(wall(5_000)))), (1_400, 5_000));
        // A time stamp ahead by the error of a reading is no arrival in the future.
        assert_eq!(clock.arrival(Some(wall(6_003))), 6_000);
        // A datagram that came after the reading, in the same look.
        clock.now = 7_000;
        assert_eq!((clock.arrival(Some(wall(6_003))), clock.now()), (6_003, 7_000));
    }

    #[test]
    fn a_wall_clock_that_is_set_moves_no_arrival() {
        let mut clock = clock();
        // A datagram with a time stamp of the clock before it was set counts as arriving now.
        clock.set(2_000, wall(2_000) + HOUR, 2_000);
        assert_eq!(clock.arrival(Some(wall(1_900))), 2_000);
        assert_eq!(clock.arrival(Some(wall(1_900) + HOUR)), 1_900);
        clock.set(3_000, wall(3_000), 3_000);
        assert_eq!((clock.arrival(Some(wall(2_500) + HOUR)), clock.arrival(Some(wall(2_500)))), (3_000, 2_500));
    }

    #[test]
    fn a_faster_reading_replaces_a_slow_one() {
        let mut clock = ArrivalClock { difference: None, now: 0 };
        clock.set(0, wall(900), 1_000);
        clock.set(2_000, wall(2_001), 2_002);
        assert_eq!(clock.arrival(Some(wall(1_500))), 1_500);
    }
}
