//! Processor time.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Returns the processor time of this thread, so that a busy machine does not count; without Linux, the elapsed time.
pub(crate) fn processor_time() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    let of_kernel = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let spent = of_kernel.and_then(|s| s.split(' ').next()?.parse().ok());
    spent.map_or_else(|| START.get_or_init(Instant::now).elapsed(), Duration::from_nanos)
}
