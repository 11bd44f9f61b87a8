//! Times of connections in steps of 100 ms: a time has four bytes, and many time-outs share one wake-up.

#![cfg_attr(not(test), expect(dead_code, reason = "until connections are entries"))]

use std::time::Duration;

/// Time in steps of [`Tick::MILLIS`] on the clock of [`Now::mono`](strowger_core::Now::mono). 0 is a time like any other: the process has just
/// begun. Times after 13 years are [`Tick::NEVER`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Tick(u32);

impl Tick {
    /// Length of a step in milliseconds.
    pub(crate) const MILLIS: u64 = 100;

    /// No time.
    pub(crate) const NEVER: Self = Self(u32::MAX);

    /// Creates the tick with this number; one that is too large is [`Self::NEVER`].
    pub(crate) fn numbered(number: u64) -> Self {
        u32::try_from(number).map_or(Self::NEVER, Self)
    }

    /// Returns the first tick at or after a time in milliseconds. Times are rounded up, so that no time-out comes early.
    pub(crate) fn not_before(millis: u64) -> Self {
        Self::numbered(millis.div_ceil(Self::MILLIS))
    }

    /// Returns the last tick at or before a time in milliseconds. Time-outs up to this tick are due.
    pub(crate) fn begun(millis: u64) -> Self {
        Self::numbered(millis / Self::MILLIS)
    }

    /// Returns the first tick after which this time has passed since `self`.
    pub(crate) fn after(self, time: Duration) -> Self {
        let ticks = time.as_millis().div_ceil(u128::from(Self::MILLIS));
        self.plus(u32::try_from(ticks).unwrap_or(u32::MAX))
    }

    /// Returns the tick that follows by this number.
    pub(crate) fn plus(self, ticks: u32) -> Self {
        Self(self.0.saturating_add(ticks))
    }

    pub(crate) fn number(self) -> u32 {
        self.0
    }

    /// Returns the time in milliseconds; `u64::MAX` for [`Self::NEVER`].
    pub(crate) fn millis(self) -> u64 {
        if self == Self::NEVER { u64::MAX } else { u64::from(self.0) * Self::MILLIS }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rounded_up_and_the_clock_down() {
        for (millis, not_before, begun) in
            [(0, 0, 0), (1, 1, 0), (99, 1, 0), (100, 1, 1), (101, 2, 1), (3_600_050, 36_001, 36_000)]
        {
            assert_eq!((Tick::not_before(millis), Tick::begun(millis)), (Tick(not_before), Tick(begun)), "{millis}");
        }
        for millis in 0..1_000 {
            // A time-out of 250 ms is due at the first tick at which they have passed.
            let due = Tick::not_before(millis).after(Duration::from_millis(250));
            let first = (millis..).find(|now| Tick::begun(*now) >= due).unwrap();
            assert!((millis + 250..millis + 250 + 2 * Tick::MILLIS).contains(&first), "{millis} {first}");
        }
    }

    #[test]
    fn a_time_beyond_all_ticks_is_never() {
        let last = Tick(u32::MAX - 1);
        assert_eq!((Tick::begun(last.millis()), Tick::not_before(last.millis() + 1)), (last, Tick::NEVER));
        for at in [
            Tick::begun(u64::MAX),
            Tick::not_before(u64::MAX),
            last.plus(7),
            Tick(5).after(Duration::MAX),
            Tick::NEVER.after(Duration::ZERO),
        ] {
            assert_eq!((at, at.millis()), (Tick::NEVER, u64::MAX));
        }
        assert_eq!(Tick(5).after(Duration::ZERO), Tick(5));
    }
}
