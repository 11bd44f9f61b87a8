//! Contract of the sinks that write rows.

use std::collections::HashSet;
use std::path::Path;

use super::cdr::Row;

/// Maximum number of rows in a group, the most that a sink gets at a time.
pub const GROUP_ROWS: usize = 4_096;

/// Sink of rows. A sink may block, and has a deadline of its own. Each kind of database has its own implementation.
pub trait Sink: Send {
    /// Returns a description of the sink's place: a format and a path, or a server without its password.
    fn place(&self) -> String;

    /// Performs the preparations of [`Sink::write`] early, so that errors appear at the start.
    ///
    /// # Errors
    /// [`SinkError`]
    fn open(&mut self) -> Result<(), SinkError>;

    /// Writes these rows in order: all of them, or none. A table skips a row whose identity it has already. `now`:
    /// milliseconds since 1970, UTC.
    ///
    /// # Errors
    /// None of them is written; a table that skips existing identities may have written some.
    fn write(&mut self, rows: &[Box<Row>], now: u64) -> Result<(), SinkError>;

    /// Returns those of these identities that were written shortly before this process began, and that [`Sink::write`]
    /// would write again. There may be such identities because a killed process may have written rows that its spool
    /// still has.
    ///
    /// # Errors
    /// The rows cannot be read.
    fn written(&mut self, identities: &HashSet<String>) -> Result<HashSet<String>, SinkError> {
        let _ = identities;
        Ok(HashSet::new())
    }

    /// Removes rows that are older than this time, in milliseconds since 1970. Removes only so many rows that this
    /// takes little time. Returns whether any may remain.
    ///
    /// # Errors
    /// The rows are still there.
    fn purge(&mut self, before: u64) -> Result<bool, SinkError>;
}

/// Error of a sink.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct SinkError {
    /// Kind of the error.
    pub kind: Trouble,
    /// Description, with the file.
    pub detail: String,
}

/// Reason why rows cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Another process holds the database.
    Locked,
    /// The sink cannot be reached, or does not answer in time.
    Unreachable,
    /// The database refuses one of these rows because of its values: too long, or against a constraint. Others may be valid.
    Row,
    /// There is no space left.
    Full,
    /// The table cannot be written: it belongs to another program, is damaged, or the rights are missing. At the start this is
    /// an error of the settings.
    Unusable,
}

impl SinkError {
    /// Returns the error for a system error of a file.
    pub fn of_file(path: &Path, error: &std::io::Error) -> Self {
        let kind = if strowger_files::is_full(error) { Trouble::Full } else { Trouble::Unusable };
        Self { kind, detail: format!("{}: {error}", path.display()) }
    }
}
