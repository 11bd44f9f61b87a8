//! Clocks of [`Now`].

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use strowger_core::Now;

/// Returns the zero of [`Now::mono`]: the same for all shards of the process.
fn start() -> Instant {
    static START: OnceLock<Instant> = OnceLock::new();
    *START.get_or_init(Instant::now)
}

/// Returns the current time, for a round of a shard or another thread.
pub fn now() -> Now {
    let mono = start().elapsed().as_millis() as u64;
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64);
    Now { mono, wall }
}

/// Clock of the rounds of a shard: thousands a second, each of which would otherwise read two clocks.
#[derive(Debug, Default)]
pub(crate) struct RoundClock {
    /// Difference of [`Now::wall`] from [`Now::mono`].
    ahead: u64,
    /// Time of the last reading of both clocks; `None`: never.
    read_at: Option<u64>,
}

/// Milliseconds for which the difference of the clocks is reused: the longest delay until a step of the wall clock is
/// noticed.
const ALIKE: u64 = 10;

impl RoundClock {
    /// Returns the current time, also in [`micros`].
    #[inline]
    pub(crate) fn read(&mut self) -> (Now, u64) {
        let micros = micros();
        let mono = micros / 1_000;
        if self.read_at.is_none_or(|at| mono - at >= ALIKE) {
            self.ahead = now().wall.wrapping_sub(mono);
            self.read_at = Some(mono);
        }
        (Now { mono, wall: mono.wrapping_add(self.ahead) }, micros)
    }
}

/// Returns microseconds on the clock of [`Now::mono`], with the same zero.
pub fn micros() -> u64 {
    start().elapsed().as_micros() as u64
}

/// Waits until the next whole multiple of this period on the clock of [`Now::mono`]. Tasks of one thread that wait for the same period, or for
/// multiples of it, share one wake-up.
pub async fn beat(period: Duration) {
    let period = (period.as_micros() as u64).max(1_000);
    let next = (micros() / period + 1).saturating_mul(period);
    tokio::time::sleep_until(instant(next).into()).await;
}

/// Returns the seconds by which local time (`TZ`, /etc/localtime) is ahead of UTC at this moment, in seconds since
/// 1970.
pub fn zone(seconds: u64) -> i64 {
    let Ok(seconds) = libc::time_t::try_from(seconds) else { return 0 };
    let mut parts = std::mem::MaybeUninit::<libc::tm>::zeroed();
    // SAFETY: both values are our own, and the C library keeps no pointer to them. The library reads the environment,
    // which nothing changes while threads run.
    let filled = unsafe { libc::localtime_r(&raw const seconds, parts.as_mut_ptr()) };
    if filled.is_null() {
        return 0;
    }
    // SAFETY: all zeroes are a value, and the C library has filled it in.
    unsafe { parts.assume_init() }.tm_gmtoff
}

/// Returns the processor time of the calling thread in microseconds; 0 if the kernel does not provide it.
pub fn processor_micros() -> u64 {
    let mut used = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes to our own structure.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut used) };
    if result == 0 { used.tv_sec as u64 * 1_000_000 + used.tv_nsec as u64 / 1_000 } else { 0 }
}

/// Returns the instant at which [`micros`] reads `at`.
pub(crate) fn instant(at: u64) -> Instant {
    // A deadline centuries away would overflow the clock of some systems. No deadline is longer than a year.
    start() + Duration::from_micros(at.min(365 * 86_400_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_of_rounds_tells_what_the_clocks_do() {
        let mut clock = RoundClock::default();
        let end = micros() + 3 * ALIKE * 1_000;
        let (mut before, mut last) = (now(), 0);
        while last < end {
            let (read, exact) = clock.read();
            let after = now();
            assert!(before.mono <= read.mono && read.mono <= after.mono && read.mono == exact / 1_000);
            // Both clocks are truncated.
            assert!(before.wall <= read.wall + 1 && read.wall <= after.wall + 1, "{before:?} {read:?} {after:?}");
            (before, last) = (after, exact);
        }
    }

    #[test]
    fn a_step_of_the_wall_clock_is_seen_soon() {
        let mut clock = RoundClock::default();
        clock.read();
        clock.ahead = clock.ahead.wrapping_sub(3_600_000);
        let end = micros() + (ALIKE + 1) * 1_000;
        while micros() < end {
            std::thread::yield_now();
        }
        assert!(clock.read().0.wall.abs_diff(now().wall) < 1_000);
    }

    #[test]
    fn beats_are_whole_multiples_of_their_period() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        runtime.block_on(async {
            for period in [1, 3, 20].map(Duration::from_millis) {
                let of = |micros: u64| micros / period.as_micros() as u64;
                for _ in 0..4 {
                    let before = of(micros());
                    beat(period).await;
                    assert!(before < of(micros()), "{period:?}: none lies between");
                }
            }
            // A period of zero must not loop.
            beat(Duration::ZERO).await;
        });
    }
}
