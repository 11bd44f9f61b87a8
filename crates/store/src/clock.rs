//! The two clocks of a binding's life, and the way from one to the other.
//!
//! In memory a binding's end is a moment of the monotonic clock: when the system's clock is put forward (by NTP after
//! a start without a battery, by a virtual machine that wakes up) no phone is lost, and when it is put back none stays too
//! long. On disk it is a moment of the system's clock, since only that one goes on over a restart. A row is converted when it
//! is written and when it is loaded, each time by what the two clocks show then; nothing is anchored, so nothing must be
//! anchored again.
//!
//! What remains: a row written before a step of the system's clock is off by that step until its phone refreshes. A restart in
//! that time finds the binding ended, and the phone registers again; or finds more time left than it has, at most
//! [`JournalSettings::longest`](crate::journal::JournalSettings::longest) or what it was granted.

use std::sync::Arc;
use std::time::Duration;

/// What both clocks show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Milliseconds on a clock that never goes back, the one that [`LocationTable`](crate::location::LocationTable) is asked by.
    pub mono: u64,
    /// Milliseconds since 1970 UTC; may jump.
    pub wall: u64,
}

/// Reads both clocks, on the thread that writes.
pub type Clock = Arc<dyn Fn() -> Moment + Send + Sync>;

impl Moment {
    /// When the system's clock will show what the other one shows at `mono`; what has passed is now.
    pub const fn to_wall(self, mono: u64) -> u64 {
        self.wall.saturating_add(mono.saturating_sub(self.mono))
    }

    /// The way back, at most `longest` from now on.
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

    /// [`Moment::mono`] of tests that take real time.
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
