//! Where rows are written.

use std::collections::HashSet;
use std::path::Path;

use super::record::Row;

/// Rows of a group at most: so many a sink gets at a time.
pub const GROUP_ROWS: usize = 4_096;

/// Writes rows; may block, and gives up after a deadline of its own. Another database is another implementation.
pub trait Sink: Send {
    /// Where rows go, as people name it: a form and a path, or a server without its password.
    fn place(&self) -> String;

    /// Makes ready what [`Sink::write`] would make ready by itself, so that what is wrong is known at the start.
    ///
    /// # Errors
    /// [`SinkError`]
    fn open(&mut self) -> Result<(), SinkError>;

    /// Writes these rows in their order: all of them, or none. A table passes over one whose identity it has. `now`: milliseconds since
    /// 1970, UTC.
    ///
    /// # Errors
    /// None of them is written; or, where a table passes over those that it has, some may be.
    fn write(&mut self, rows: &[Box<Row>], now: u64) -> Result<(), SinkError>;

    /// Those of these identities that were written last before this process began, and that [`Sink::write`] would write again: a process
    /// that was killed may have written what its spool still has.
    ///
    /// # Errors
    /// They cannot be read.
    fn written(&mut self, identities: &HashSet<String>) -> Result<HashSet<String>, SinkError> {
        let _ = identities;
        Ok(HashSet::new())
    }

    /// Removes rows from before this moment, in milliseconds since 1970, as many as take no time to speak of. Whether any may be left.
    ///
    /// # Errors
    /// They are still there.
    fn purge(&mut self, before: u64) -> Result<bool, SinkError>;
}

/// Why rows are not written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct SinkError {
    /// What stands in the way.
    pub kind: Trouble,
    /// In words, with the file.
    pub detail: String,
}

/// What stands in the way of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Another process holds the database.
    Locked,
    /// It cannot be reached, or does not answer in time.
    Unreachable,
    /// It refuses one of these rows for its values: too long, or against a constraint. Others may be good.
    Row,
    /// There is no room.
    Full,
    /// It cannot be written: it is another program's, or damaged, or the rights are missing. At the start this is an error of the settings.
    Unusable,
}

impl SinkError {
    /// What the system says of a file.
    pub fn of_file(path: &Path, error: &std::io::Error) -> Self {
        let kind = if strowger_files::is_full(error) { Trouble::Full } else { Trouble::Unusable };
        Self { kind, detail: format!("{}: {error}", path.display()) }
    }
}
