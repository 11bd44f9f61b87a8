//! Errors common to all engines.

/// Reason why a request failed. Each engine maps its own errors to these and logs their texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum CacheError {
    /// The cache cannot be reached, read or written, or it was stopped.
    #[error("the cache is not available")]
    Unavailable,
    /// The cache did not answer within the deadline.
    #[error("the cache did not answer in time")]
    TimedOut,
    /// The request is impossible: a key or value is beyond its bound, a counter is no number or would overflow.
    #[error("the cache refused")]
    Refused,
    /// The server refused a valid request: rights are missing, or it is read-only at present.
    #[error("the server of the cache refused")]
    Denied,
    /// The disk is full, or a limit of the cache is reached: the entry is larger than a partition, or the log is
    /// behind.
    #[error("no room in the cache")]
    Full,
    /// The stored data is damaged.
    #[error("the cache is damaged")]
    Corrupt,
}

impl CacheError {
    /// Converts an error of the system.
    pub(crate) fn of(error: &std::io::Error) -> Self {
        match error.kind() {
            _ if strowger_files::is_full(error) => Self::Full,
            std::io::ErrorKind::TimedOut => Self::TimedOut,
            _ => Self::Unavailable,
        }
    }
}
