//! Contract of the engines that keep calls.

use super::OpenError;

/// What becomes of a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It has this state.
    State(Box<[u8]>),
    /// It was closed, with these last words.
    Closed(Box<[u8]>),
    /// Nothing is kept of it.
    Removed,
}

impl Change {
    /// The bytes that are kept of the number from now on.
    pub fn said(&self) -> &[u8] {
        match self {
            Self::State(said) | Self::Closed(said) => said,
            Self::Removed => &[],
        }
    }
}

/// What an earlier process left, of one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left<'a> {
    /// Its last state.
    State(&'a [u8]),
    /// Its last words: it was closed, and not yet removed.
    LastWords(&'a [u8]),
}

/// What was found at the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadReport {
    /// Bytes read.
    pub bytes: u64,
    /// Numbers with a state.
    pub states: u64,
    /// Numbers with last words.
    pub closed: u64,
    /// What could not be read: a file and a part of a sentence. The cut record that a kill leaves at the end is among them.
    pub damage: Vec<(std::path::PathBuf, String)>,
}

/// What an engine has and has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Numbers that have a state or last words there.
    pub kept: u64,
    /// Bytes that it takes.
    pub bytes: u64,
    /// Records written since the start, those that were copied among them.
    pub written: u64,
}

/// Why an engine cannot write; said in the log.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A place for the state of numbers: a folder, a database. It belongs to one process, from before [`load`](Self::load) until it is dropped, and is
/// used by one thread at a time, which may wait for it.
pub trait Engine: Send {
    /// Where that is, for the log: nothing secret.
    fn name(&self) -> String;

    /// Gives what an earlier process left to `take`, each number once, and is ready to write from then on. Called once, before all else.
    ///
    /// # Errors
    /// It cannot be read, or not be written.
    fn load(&mut self, take: &mut (dyn FnMut(u64, Left<'_>) + Send)) -> Result<LoadReport, OpenError>;

    /// Writes these changes, of numbers that differ: some two thousand at most, and some megabyte, or a single longer one.
    ///
    /// # Errors
    /// Nothing says which of them are there. What was not acknowledged is given again later, each number with the change of that time; a group that
    /// failed must not come to be there after one that follows.
    fn write(&mut self, changes: &[(u64, &Change)]) -> Result<(), Failure>;

    /// Does some of what is to be done beside, after changes of so many bytes. Whether more is to be done, which is asked for again soon.
    ///
    /// # Errors
    /// It cannot be done now.
    fn tidy(&mut self, _written: u64) -> Result<bool, Failure> {
        Ok(false)
    }

    /// For the metrics.
    fn held(&self) -> Held;
}
