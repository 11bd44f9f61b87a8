//! Two clocks of a binding's life, and the conversion between them.
//!
//! In memory the end of a binding is a time of the monotonic clock: when the system clock steps forward (NTP after a
//! start without a battery, a resumed virtual machine) no phone is lost, and when it steps back no binding stays too
//! long. On disk it is a time of the system clock, since only that clock continues over a restart. A row is converted
//! when it is written and when it is loaded, each time by the current values of both clocks; there is no stored offset
//! to correct.
//!
//! Remaining error: a row written before a step of the system clock is off by that step until its phone refreshes.
//! After a restart in that time the binding has ended, and the phone registers again; or it lives longer than it
//! should, limited by [`JournalSettings::longest`](crate::journal::JournalSettings::longest) or by its granted life.

use std::sync::Arc;
use std::time::Duration;

/// Time on both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Milliseconds on a clock that never goes back, the clock of [`LocationTable`](crate::location::LocationTable).
    pub mono: u64,
    /// Milliseconds since 1970 UTC; may jump.
    pub wall: u64,
}

/// Function that reads both clocks, on the writing thread.
pub type Clock = Arc<dyn Fn() -> Moment + Send + Sync>;

impl Moment {
    /// Converts a monotonic time to system time; a time in the past becomes now.
    pub const fn to_wall(self, mono: u64) -> u64 {
        self.wall.saturating_add(mono.saturating_sub(self.mono))
    }

    /// Converts a system time to monotonic time, at most `longest` from now.
    pub fn to_mono(self, wall: u64, longest: Duration) -> u64 {
        let longest = u64::try_from(longest.as_millis()).unwrap_or(u64::MAX);
        self.mono.saturating_add(wall.saturating_sub(self.wall).min(longest))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::sync::LazyLock;
    use std::time::Instant;

    /// Returns [`Moment::mono`], for tests that wait in real time.
    pub(crate) fn now() -> u64 {
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        START.elapsed().as_millis() as u64
    }

    #[test]
    fn what_is_left_is_the_same_on_both_clocks() {
        let now = Moment { mono: 5_000, wall: 1_700_000_000_000 };
        let end = now.to_wall(65_000);
        assert_eq!(end, 1_700_000_060_000);
        assert_eq!(now.to_mono(end, Duration::MAX), 65_000);
        let restarted = Moment { mono: 7, wall: now.wall + 10_000 };
        assert_eq!(restarted.to_mono(end, Duration::MAX), 50_007);
        let put_back = Moment { mono: 7, wall: now.wall - 86_400_000 };
        assert_eq!(put_back.to_mono(end, Duration::from_secs(100)), 100_007);
        assert_eq!(now.to_wall(1), now.wall, "what has passed");
        assert_eq!(now.to_mono(1, Duration::MAX), now.mono);
    }
}
