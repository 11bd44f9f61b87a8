//! Errors common to all engines.

/// Reason why a question was not answered or a change not stored. Each engine maps its own errors to these and logs
/// their texts.
///
/// The server answers 500 to all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum StoreError {
    /// The database cannot be reached, read or written, or it was stopped.
    #[error("the database is not available")]
    Unavailable,
    /// The database did not answer within the deadline, or another process held it longer than the wait limit.
    #[error("the database did not answer in time")]
    TimedOut,
    /// The database answered with a refusal; the log has its text.
    #[error("the database refused")]
    Refused,
    /// The disk is full, or the limit of the database is reached.
    #[error("no room in the database")]
    Full,
    /// The stored data is damaged.
    #[error("the database is damaged")]
    Corrupt,
    /// The change depends on an earlier one of the same key, which failed.
    #[error("an earlier change of the same address-of-record failed")]
    Superseded,
}
