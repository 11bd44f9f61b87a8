//! A SQLite file of one purpose beside the database of the server: rows of accounting, kept calls. It has its tables from the moment it is made,
//! and numbers that say whose it is and of which version.

use std::io;
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};
use strowger_files::{is_full, private};

use crate::sqlite::{OpenError, classify, explain, stamp};
use strowger_store::error::StoreError;

/// What such a file is.
#[derive(Clone, Copy, Debug)]
pub struct OwnFile {
    /// Tells it from the files of other programs (`PRAGMA application_id`).
    pub application: i32,
    /// Of its tables (`PRAGMA user_version`).
    pub version: i32,
    /// Bytes of a page of a new one: small where rows are written here and there, since each write takes a whole page.
    pub page: u32,
}

/// Why it cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct OwnFileError {
    /// What stands in the way.
    pub obstacle: Obstacle,
    /// In words, with the file.
    pub error: OpenError,
}

/// What stands in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// Another process has the file at this moment.
    Locked,
    /// There is no room.
    Full,
    /// It is damaged, not ours, or the rights are missing.
    Unusable,
}

impl From<&rusqlite::Error> for Obstacle {
    fn from(error: &rusqlite::Error) -> Self {
        match classify(error) {
            StoreError::TimedOut => Self::Locked,
            StoreError::Full => Self::Full,
            // A file that may not grow is an error of the system to SQLite.
            _ if error.sqlite_error_code() == Some(ErrorCode::SystemIoFailure) => Self::Full,
            _ => Self::Unusable,
        }
    }
}

impl From<&io::Error> for Obstacle {
    fn from(error: &io::Error) -> Self {
        if is_full(error) { Self::Full } else { Self::Unusable }
    }
}

impl OwnFile {
    /// The version of the tables that a file has; 0: none, or there is no file. It is only read.
    ///
    /// # Errors
    /// It is another program's, or cannot be read.
    pub fn found(self, path: &Path) -> Result<u32, OpenError> {
        match stamp(path)? {
            None | Some((0, 0)) => Ok(0),
            Some((application, version)) if application == self.application => Ok(version.unsigned_abs()),
            Some(_) => Err(OpenError::Foreign { path: path.to_owned() }),
        }
    }

    /// Opens the file, which is for this user alone, and makes it if it is missing. The statements make its tables where they are not there. Another
    /// process that holds it is waited for so long, now and later.
    ///
    /// # Errors
    /// [`OwnFileError`]
    pub fn open(self, path: &Path, patience: Duration, statements: &[String]) -> Result<Connection, OwnFileError> {
        private::file().open(path).map_err(|error| {
            let detail = error.to_string();
            OwnFileError { obstacle: (&error).into(), error: OpenError::Io { path: path.to_owned(), detail } }
        })?;
        let opened = self.prepare(path, patience, statements);
        opened
            .map_err(|error| OwnFileError { obstacle: (&error).into(), error: explain(path, patience, &error) })?
            .map_err(|error| OwnFileError { obstacle: Obstacle::Unusable, error })
    }

    fn prepare(
        self,
        path: &Path,
        patience: Duration,
        statements: &[String],
    ) -> rusqlite::Result<Result<Connection, OpenError>> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(patience)?;
        let number = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
        let (application, version, schema) =
            (number("application_id")?, number("user_version")?, number("schema_version")?);
        let is_new = (application, version, schema) == (0, 0, 0);
        if !is_new && application != self.application {
            return Ok(Err(OpenError::Foreign { path: path.to_owned() }));
        }
        if !is_new && version != self.version {
            let detail = format!("its tables are of version {version}, this program writes {}", self.version);
            return Ok(Err(OpenError::Io { path: path.to_owned(), detail }));
        }
        connection.pragma_update(None, "page_size", self.page)?;
        connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()))?;
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for statement in statements {
            transaction.execute_batch(statement)?;
        }
        transaction.pragma_update(None, "application_id", self.application)?;
        transaction.pragma_update(None, "user_version", self.version)?;
        transaction.commit()?;
        Ok(Ok(connection))
    }
}
