//! Formulas of "A Performance Evaluation of In-Memory Databases Operations in Session Initiation Protocol" (Network
//! 2023, 3(1)).
//!
//! Errata: formula (2) lost its minus sign in print. The paper prints the response times of one measurement both in
//! milliseconds and in seconds, and its "1200 millisecond" are 1,200 seconds.

use std::time::Duration;

/// Computes the throughput in bytes a second, formula (1): bytes sent and received over time.
///
/// Returns `None` if no time has passed.
pub fn throughput(sent: u64, received: u64, time: Duration) -> Option<f64> {
    let seconds = time.as_secs_f64();
    (seconds > 0.0).then(|| sent as f64 / seconds + received as f64 / seconds)
}

/// Amounts of memory in bytes, as `/proc/meminfo` has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Memory that nothing uses.
    pub free: u64,
    /// Buffers of block devices.
    pub buffers: u64,
    /// Page cache.
    pub cache: u64,
    /// All memory.
    pub total: u64,
}

/// Computes the used memory in per cent of all memory, formula (2): 100 - 100 (free + buffers + cache) / total.
///
/// Returns `None` if there is no memory, or if more is free than there is.
pub fn used_memory(memory: Memory) -> Option<f64> {
    let Memory { free, buffers, cache, total } = memory;
    let available = free.checked_add(buffers)?.checked_add(cache)?;
    (total > 0 && available <= total).then(|| 100.0 - 100.0 * available as f64 / total as f64)
}

/// Computes the call response time, formula (3): from the sending of the INVITE to the receipt of its 200.
///
/// Returns `None` if the 200 was received before the INVITE was sent.
pub fn response_time(invite_sent: Duration, ok_received: Duration) -> Option<Duration> {
    ok_received.checked_sub(invite_sent)
}
