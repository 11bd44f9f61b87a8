//! SQLite file for one purpose beside the database of the server: accounting rows or kept calls. The file has its
//! tables from its creation on, and numbers that identify the program and the version of the tables.

use std::io;
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};
use strowger_files::{is_full, private};

use crate::sqlite::{OpenError, classify, explain, stamp};
use strowger_store::error::StoreError;

/// Identity of such a file.
#[derive(Clone, Copy, Debug)]
pub struct OwnFile {
    /// Number that distinguishes the file from files of other programs (`PRAGMA application_id`).
    pub application: i32,
    /// Version of the file's tables (`PRAGMA user_version`).
    pub version: i32,
    /// Page size of a new file in bytes: small for scattered writes, since each write takes a whole page.
    pub page: u32,
}

/// Reason why such a file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct OwnFileError {
    /// Kind of the reason.
    pub obstacle: Obstacle,
    /// Description, with the file.
    pub error: OpenError,
}

/// Kind of reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// Another process holds the file at the moment.
    Locked,
    /// There is no space left.
    Full,
    /// The file is damaged, belongs to another program, or the rights are missing.
    Unusable,
}

impl From<&rusqlite::Error> for Obstacle {
    fn from(error: &rusqlite::Error) -> Self {
        match classify(error) {
            StoreError::TimedOut => Self::Locked,
            StoreError::Full => Self::Full,
            // SQLite reports a file that may not grow as an I/O error.
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
    /// Reads the version of the tables in a file; 0 if there are no tables or no file. Changes nothing.
    ///
    /// # Errors
    /// The file belongs to another program, or cannot be read.
    pub fn found(self, path: &Path) -> Result<u32, OpenError> {
        match stamp(path)? {
            None | Some((0, 0)) => Ok(0),
            Some((application, version)) if application == self.application => Ok(version.unsigned_abs()),
            Some(_) => Err(OpenError::Foreign { path: path.to_owned() }),
        }
    }

    /// Opens the file with access for its owner only, and creates it if missing. The statements create missing tables.
    /// `patience`: longest wait for another process that holds the file, now and in later statements.
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
