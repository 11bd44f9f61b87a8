//! Contract of the engines that keep calls.

use super::OpenError;

/// Change of a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// New state.
    State(Box<[u8]>),
    /// The number is closed and leaves its last words: final bytes that stay until its removal.
    Closed(Box<[u8]>),
    /// Removed.
    Removed,
}

impl Change {
    /// Returns the bytes to store for the number.
    pub fn said(&self) -> &[u8] {
        match self {
            Self::State(said) | Self::Closed(said) => said,
            Self::Removed => &[],
        }
    }
}

/// State of one number left by an earlier process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left<'a> {
    /// Last state of the number.
    State(&'a [u8]),
    /// Last words of the number (its final bytes): it was closed, and not yet removed.
    LastWords(&'a [u8]),
}

/// Report of a load.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadReport {
    /// Bytes read.
    pub bytes: u64,
    /// Numbers with a state.
    pub states: u64,
    /// Numbers with last words.
    pub closed: u64,
    /// Unreadable data: a file and a part of a sentence. Includes the cut record that a kill leaves at the end.
    pub damage: Vec<(std::path::PathBuf, String)>,
}

/// Figures of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Numbers with a state or last words.
    pub kept: u64,
    /// Bytes in use.
    pub bytes: u64,
    /// Records written since the start, including copies.
    pub written: u64,
}

/// Cause of a failed write, for the log.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Storage for the state of numbers: a folder or a database. It belongs to one process, from before
/// [`load`](Self::load) until the drop. One thread at a time uses it, and may block.
pub trait CallEngine: Send {
    /// Returns a description of the storage's place, for the log, without secrets.
    fn name(&self) -> String;

    /// Passes the data of an earlier process to `take`, each number once, and prepares for writing. Called once, before
    /// all other functions.
    ///
    /// # Errors
    /// The storage cannot be read or written.
    fn load(&mut self, take: &mut (dyn FnMut(u64, Left<'_>) + Send)) -> Result<LoadReport, OpenError>;

    /// Writes these changes, each of a different number. A group has at most about two thousand changes and about a
    /// megabyte, or a single larger change.
    ///
    /// # Errors
    /// After an error it is unknown which changes are stored. The caller later writes unacknowledged changes again, each number
    /// with its change at that time; a failed group must not take effect after a later one.
    fn write(&mut self, changes: &[(u64, &Change)]) -> Result<(), Failure>;

    /// Performs a part of the background work, after changes of this many bytes were written. Returns whether there is
    /// more work; then the caller soon calls this function again.
    ///
    /// # Errors
    /// The work cannot be done now.
    fn tidy(&mut self, _written: u64) -> Result<bool, Failure> {
        Ok(false)
    }

    /// Returns figures for the metrics.
    fn held(&self) -> Held;
}
