//! Where rows are written.

use crate::files::Files;
use crate::form::Form;
use crate::record::Row;
use crate::sqlite::Sqlite;
use std::collections::HashSet;
use std::path::PathBuf;
use std::time::Duration;

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
    pub(crate) fn of_file(path: &std::path::Path, error: &std::io::Error) -> Self {
        let kind = strowger_store::own_file::Obstacle::from(error).into();
        Self { kind, detail: format!("{}: {error}", path.display()) }
    }
}

/// Which sink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A database file. The time is how long another process that holds it is waited for.
    Sqlite(PathBuf, Duration),
    /// A folder of files with JSON lines, one a day and table.
    Json(PathBuf),
    /// The same with CSV.
    Csv(PathBuf),
}

impl Place {
    /// What writes there. Nothing is opened yet.
    pub fn sink(&self) -> Box<dyn Sink> {
        match self {
            Self::Sqlite(path, patience) => Box::new(Sqlite::new(path, *patience)),
            Self::Json(folder) => Box::new(Files::new(folder, Form::Json)),
            Self::Csv(folder) => Box::new(Files::new(folder, Form::Csv)),
        }
    }
}
