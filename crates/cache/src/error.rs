//! What went wrong, in the words of no engine in particular.

/// Why a request was not done. Each engine says which of these its own errors are, and logs its own words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum CacheError {
    /// It cannot be reached, read or written, or it was stopped.
    #[error("the cache is not available")]
    Unavailable,
    /// It did not answer within the deadline.
    #[error("the cache did not answer in time")]
    TimedOut,
    /// What is asked cannot be done: a key or value is beyond its bound, a counter is no number or would overflow.
    #[error("the cache refused")]
    Refused,
    /// Its server answers, and does not do what it does for others or at other times: rights are missing, or it may not write now.
    #[error("the server of the cache refused")]
    Denied,
    /// Disk full, or its own limit reached: the entry is larger than a partition, or the log is behind.
    #[error("no room in the cache")]
    Full,
    /// What it holds is damaged.
    #[error("the cache is damaged")]
    Corrupt,
}

impl CacheError {
    /// What an error of the system means here.
    pub(crate) fn of(error: &std::io::Error) -> Self {
        match error.kind() {
            _ if strowger_files::is_full(error) => Self::Full,
            std::io::ErrorKind::TimedOut => Self::TimedOut,
            _ => Self::Unavailable,
        }
    }
}
