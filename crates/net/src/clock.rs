//! The two clocks behind [`Now`].

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use strowger_core::Now;

/// Zero of [`Now::mono`]: the same for all shards of the process.
fn start() -> Instant {
    static START: OnceLock<Instant> = OnceLock::new();
    *START.get_or_init(Instant::now)
}

/// The moment, for a round of a shard or for whoever stands beside the shards.
pub fn now() -> Now {
    let mono = start().elapsed().as_millis() as u64;
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64);
    Now { mono, wall }
}

/// Microseconds on the clock of [`Now::mono`], with the same zero.
pub fn micros() -> u64 {
    start().elapsed().as_micros() as u64
}

/// The instant at which [`Now::mono`] reads `mono`.
pub(crate) fn instant(mono: u64) -> Instant {
    // A deadline centuries away would overflow the clock of some systems; a year is never reached either.
    start() + Duration::from_millis(mono.min(365 * 86_400_000))
}
