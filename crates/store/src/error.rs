//! What went wrong, in the words of no engine in particular.

/// Why a question was not answered or a change not kept. Each engine says which of these its own errors are, and logs its own words.
///
/// The server answers 500 whichever it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum StoreError {
    /// It cannot be reached, read or written, or it was stopped.
    #[error("the database is not available")]
    Unavailable,
    /// It did not answer within the deadline, or another process held it for longer than is waited.
    #[error("the database did not answer in time")]
    TimedOut,
    /// It answers, and does not do what is asked; the log has its words.
    #[error("the database refused")]
    Refused,
    /// Disk full, or its own limit reached.
    #[error("no room in the database")]
    Full,
    /// What it holds is damaged.
    #[error("the database is damaged")]
    Corrupt,
    /// A change that was decided on an earlier one of the same key, which failed.
    #[error("an earlier change of the same address-of-record failed")]
    Superseded,
}
