//! Times of calls: their clock and their maximum durations.

use strowger_core::Now;

/// Times of calls, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct CallTimes {
    /// Time from the INVITE until the log forgets the call.
    pub logged: u64,
    /// Time from the answer until the server ends a tracked call.
    pub lifetime: u64,
    /// Timeout of a transaction: 64*T1.
    pub transaction: u64,
}

/// Returns a moment on the clock of calls, which is [`Now::mono`] as a number that may be negative.
pub(crate) const fn moment(now: Now) -> i64 {
    now.mono.cast_signed()
}
