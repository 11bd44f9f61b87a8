//! Sender of a message to a connection.

/// Sender of a message.
#[derive(Clone, Copy)]
pub(crate) struct Sender {
    pub(crate) shard: usize,
    /// Token of the message for a report of failure; 0: no report.
    pub(crate) token: u64,
    /// True: the sender has a fallback. The message fails if no connection is made within [`FALLBACK_DELAY`](crate::connection::FALLBACK_DELAY).
    pub(crate) has_fallback: bool,
}
