//! Time of a round, read once by the shard and passed to the machines.

/// Moment on both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Now {
    /// Milliseconds on a clock that never goes back; its zero is the start of the process.
    pub mono: u64,
    /// Milliseconds since 1970-01-01 UTC; may jump.
    pub wall: u64,
}
