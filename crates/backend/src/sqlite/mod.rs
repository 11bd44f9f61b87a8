//! SQLite files: opening of the server's database, and the meaning of its errors. [`bindings`] and [`subscribers`] are
//! in it; [`own_file`] opens the files of accounting rows and of kept calls; [`rows`] reads files of other programs.

pub mod accounting;
pub mod bindings;
pub mod calls;
pub mod database_header;
pub mod own_file;
pub mod rows;
mod schema;
pub mod statements;
pub mod subscribers;

use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags};
use strowger_files::private;

use crate::technology::{DataPlace, PlaceKind, Technology};
use schema::Migrated;
use strowger_store::error::StoreError;
use strowger_store::journal::Durability;

pub use bindings::SqliteBindings;

/// Bytes of a page. A refresh of a random binding writes its page into the log and later into the file, and a row has
/// about 350 bytes: at 5,000 refreshes per second small pages mean 5 MB/s to sync in place of 20.
pub(crate) const PAGE: u32 = 1024;

/// Settings of the file.
#[derive(Clone, Debug)]
pub struct SqliteSettings {
    /// Path; created with mode 0600 if missing, since the file contains HA1s.
    pub path: PathBuf,
    /// Guarantee of a commit.
    pub durability: Durability,
    /// Longest wait for another process that holds the database; the group fails after that.
    pub busy_timeout: Duration,
    /// Pages of the write-ahead log that trigger a checkpoint.
    pub checkpoint_pages: u32,
    /// Page cache of a connection, in KiB.
    pub cache_kib: u32,
    /// Largest size of the file, in bytes (its log is not included); `None`: limited by the disk.
    pub max_bytes: Option<u64>,
}

impl SqliteSettings {
    /// Returns the defaults for a file.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            durability: Durability::Crash,
            busy_timeout: Duration::from_secs(1),
            checkpoint_pages: 4096,
            cache_kib: 16 * 1024,
            max_bytes: None,
        }
    }
}

impl From<&DataPlace> for SqliteSettings {
    fn from(place: &DataPlace) -> Self {
        Self { durability: place.durability, busy_timeout: place.patience, ..Self::new(&place.path) }
    }
}

/// Row of the table of technologies.
pub(crate) const TECHNOLOGY: Technology = Technology {
    name: "sqlite",
    place: PlaceKind::File,
    bindings: Some(|place, table, journal, clock| Ok(bindings::keep(&place.into(), table, journal, clock)?)),
    calls: Some(|place| {
        let settings = calls::FileSettings { path: place.path.clone(), form: place.form, wait: place.patience };
        Ok(Box::new(calls::Sqlite::open(settings)?))
    }),
    accounting: Some(|place| Ok(Box::new(accounting::Sqlite::new(&place.path, place.patience)))),
};

/// Reason why a database cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file is not SQLite's, or is damaged.
    #[error(
        "{path}: this is not a sound SQLite database ({detail}); restore it from a backup or move it away, then start again"
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Text of SQLite's error.
        detail: String,
    },
    /// A later version of this program wrote the file.
    #[error("{path}: schema version {found} is newer than this program knows ({known}); use the program that wrote it")]
    Newer {
        /// The file.
        path: PathBuf,
        /// Version of the file.
        found: usize,
        /// Newest version of the tables that this program knows.
        known: usize,
    },
    /// The database belongs to another program.
    #[error("{path}: this database belongs to another program; name a file of its own")]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// Another process holds the database.
    #[error("{path}: another process has held the database for {waited:?}; try again")]
    Locked {
        /// The file.
        path: PathBuf,
        /// Busy timeout.
        waited: Duration,
    },
    /// Another server stores its bindings there.
    #[error(
        "{path}: another server keeps its registrations in this database; end it first, or name a database of its own in \
         store.database"
    )]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The rights of the file or of its folder do not allow this user to write.
    #[error(
        "{path}: this user may not write the database ({detail}); the file and its folder must belong to the user that runs \
         the server"
    )]
    Rights {
        /// The file.
        path: PathBuf,
        /// Text of SQLite's error.
        detail: String,
    },
    /// The disk is full.
    #[error("{path}: no room on disk; make room, then try again")]
    NoRoom {
        /// The file.
        path: PathBuf,
    },
    /// The file cannot be opened, read or written.
    #[error("{path}: {detail}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Error text of the system or of SQLite.
        detail: String,
    },
}

impl OpenError {
    /// Returns the corresponding error common to all engines.
    pub const fn kind(&self) -> StoreError {
        match self {
            Self::Corrupt { .. } | Self::Foreign { .. } => StoreError::Corrupt,
            Self::Newer { .. } => StoreError::Refused,
            Self::Locked { .. } => StoreError::TimedOut,
            Self::NoRoom { .. } => StoreError::Full,
            Self::InUse { .. } | Self::Rights { .. } | Self::Io { .. } => StoreError::Unavailable,
        }
    }
}

/// Opens the file, creates it if missing, and migrates it to the newest schema.
pub(crate) fn open(settings: &SqliteSettings) -> Result<Connection, OpenError> {
    let path = &settings.path;
    let made = private::file().create_new(true).open(path);
    if let Err(error) = made
        && error.kind() != io::ErrorKind::AlreadyExists
    {
        return Err(OpenError::Io { path: path.clone(), detail: error.to_string() });
    }
    let fail = |error: rusqlite::Error| explain(path, settings.busy_timeout, &error);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut c = Connection::open_with_flags(path, flags).map_err(fail)?;
    c.busy_timeout(settings.busy_timeout).map_err(fail)?;
    // SQLite opens an unwritable file read-only, and would fail only at the first write.
    if c.is_readonly("main").map_err(fail)? {
        return Err(OpenError::Rights { path: path.clone(), detail: "it can only be read".into() });
    }
    // The first read detects a file that is no database before anything is changed.
    c.pragma_query_value(None, "schema_version", |row| row.get::<_, i64>(0)).map_err(fail)?;
    // Applies to a new file only.
    c.pragma_update(None, "page_size", PAGE).map_err(fail)?;
    admit(path, schema::migrate(&mut c).map_err(fail)?)?;
    let mode: String = c.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0)).map_err(fail)?;
    if mode != "wal" {
        let detail = format!("the file system does not allow a write-ahead log (journal mode stays {mode:?})");
        return Err(OpenError::Io { path: path.clone(), detail });
    }
    let synchronous = if settings.durability == Durability::PowerLoss { "FULL" } else { "NORMAL" };
    c.pragma_update(None, "synchronous", synchronous).map_err(fail)?;
    c.pragma_update(None, "foreign_keys", true).map_err(fail)?;
    c.pragma_update(None, "cache_size", -i64::from(settings.cache_kib)).map_err(fail)?;
    if let Some(bytes) = settings.max_bytes {
        // An older file keeps the page size with which it was created.
        let page: u32 = c.pragma_query_value(None, "page_size", |row| row.get(0)).map_err(fail)?;
        let pages = u32::try_from(bytes / u64::from(page.max(1))).unwrap_or(u32::MAX - 1).max(1);
        c.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(())).map_err(fail)?;
    }
    Ok(c)
}

fn admit(path: &Path, migrated: Migrated) -> Result<(), OpenError> {
    let path = path.to_path_buf();
    match migrated {
        Migrated::Ready => Ok(()),
        Migrated::Foreign => Err(OpenError::Foreign { path }),
        Migrated::Newer(found) => Err(OpenError::Newer { path, found, known: schema::MIGRATIONS.len() }),
    }
}

/// Checks whether a server could use this file, without waiting and without changing anything. A missing or empty file
/// can be used.
///
/// # Errors
/// [`OpenError`]: [`Corrupt`](OpenError::Corrupt), [`Foreign`](OpenError::Foreign) and [`Newer`](OpenError::Newer)
/// concern the file; the others may be temporary or due to the rights of this process.
pub fn look(path: &Path) -> Result<(), OpenError> {
    if !path.exists() {
        return Ok(());
    }
    let judge = || open_to_look(path, Duration::ZERO).and_then(|connection| schema::judge(&connection));
    admit(path, judge().map_err(|error| explain(path, Duration::ZERO, &error))?)
}

/// Missing migrations of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending {
    /// Version of the file: number of its migrations; 0: no tables, or no file.
    pub found: usize,
    /// Newest version of the tables that this program knows.
    pub known: usize,
    /// Statements of the missing migrations.
    pub statements: &'static [&'static str],
}

/// Returns the changes that [`make`] would make to a file. Reads only.
///
/// # Errors
/// See [`look`].
pub fn pending(path: &Path) -> Result<Pending, OpenError> {
    look(path)?;
    let found = match stamp(path)? {
        Some((_, version)) => usize::try_from(version).unwrap_or(0),
        None => 0,
    };
    let statements = schema::MIGRATIONS.get(found..).unwrap_or_default();
    Ok(Pending { found, known: schema::MIGRATIONS.len(), statements })
}

/// Creates the file with its tables, or migrates it to the version of this program, as a server does at its start.
///
/// # Errors
/// [`OpenError`], for display as it is.
pub fn make(settings: &SqliteSettings) -> Result<(), OpenError> {
    open(settings).map(drop)
}

/// Reads application id and version of a database file; `None` if it is missing or empty. Changes nothing.
///
/// # Errors
/// [`OpenError`], for display as it is.
pub fn stamp(path: &Path) -> Result<Option<(i32, i32)>, OpenError> {
    if std::fs::metadata(path).map_or(0, |file| file.len()) == 0 {
        return Ok(None);
    }
    let read = || {
        let connection = open_to_look(path, Duration::ZERO)?;
        let number = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
        Ok((number("application_id")?, number("user_version")?))
    };
    read().map(Some).map_err(|error| explain(path, Duration::ZERO, &error))
}

/// Opens an existing file read-only.
///
/// SQLite creates the companions of its write-ahead log even for a reading process, and leaves them. Without a log no
/// process has the file open, and it is read as immutable, which needs no companions.
pub(crate) fn open_to_look(path: &Path, patience: Duration) -> rusqlite::Result<Connection> {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let mut uri = b"file:".to_vec();
    for &byte in path.as_os_str().as_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => uri.push(byte),
            _ => write!(uri, "%{byte:02x}").expect("memory takes it"),
        }
    }
    if !Path::new(&log).exists() {
        uri.extend_from_slice(b"?immutable=1");
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
    let connection = Connection::open_with_flags(std::ffi::OsStr::from_bytes(&uri), flags)?;
    connection.busy_timeout(patience)?;
    Ok(connection)
}

pub(crate) fn explain(path: &Path, waited: Duration, error: &rusqlite::Error) -> OpenError {
    let path = path.to_path_buf();
    match classify(error) {
        StoreError::Corrupt => OpenError::Corrupt { path, detail: error.to_string() },
        StoreError::TimedOut => OpenError::Locked { path, waited },
        StoreError::Full => OpenError::NoRoom { path },
        StoreError::Unavailable
            if matches!(error.sqlite_error_code(), Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly)) =>
        {
            OpenError::Rights { path, detail: error.to_string() }
        }
        _ => OpenError::Io { path, detail: error.to_string() },
    }
}

/// Classifies an SQLite error for the caller whose write failed.
pub(crate) fn classify(error: &rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => StoreError::Full,
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed) => {
            StoreError::TimedOut
        }
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => StoreError::Corrupt,
        Some(ErrorCode::SystemIoFailure | ErrorCode::CannotOpen | ErrorCode::ReadOnly) => StoreError::Unavailable,
        _ => StoreError::Refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_kept_as_the_settings_say() {
        let dir = tempfile::tempdir().unwrap();
        let settings = SqliteSettings { cache_kib: 777, ..SqliteSettings::new(dir.path().join("pages")) };
        let connection = open(&settings).unwrap();
        let size: i64 = connection.pragma_query_value(None, "cache_size", |row| row.get(0)).unwrap();
        // A negative value is in KiB; a positive value would be in pages.
        assert_eq!(size, -777);
    }

    #[test]
    fn a_file_that_cannot_be_used_is_named_with_the_cure() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let said = |name: &str| match open(&SqliteSettings::new(path(name))) {
            Ok(_) => panic!("{name} was opened"),
            Err(error) => error.to_string(),
        };
        std::fs::write(path("text"), "this is no database, but long enough to look at".repeat(100)).unwrap();
        assert!(said("text").contains("restore it from a backup"), "{}", said("text"));

        Connection::open(path("theirs")).unwrap().execute_batch("CREATE TABLE t (a)").unwrap();
        assert!(said("theirs").contains("belongs to another program"));

        drop(open(&SqliteSettings::new(path("newer"))).unwrap());
        Connection::open(path("newer")).unwrap().pragma_update(None, "user_version", 99).unwrap();
        assert!(
            said("newer").contains(&format!(
                "schema version 99 is newer than this program knows ({})",
                schema::MIGRATIONS.len()
            ))
        );

        assert!(said("no/such/folder").contains("No such file"), "{}", said("no/such/folder"));

        // File rights restrict every user except root, and tests may run as root; SQLite reports denied rights by these
        // codes.
        for code in [rusqlite::ffi::SQLITE_CANTOPEN, rusqlite::ffi::SQLITE_READONLY] {
            let error = rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), None);
            let said = explain(&path("rights"), Duration::ZERO, &error).to_string();
            assert!(said.contains("must belong to the user that runs the server"), "{said}");
        }

        drop(open(&SqliteSettings::new(path("fine"))).unwrap());
        let mode = std::fs::metadata(path("fine")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "HA1s are for the server alone");

        // The read-only check reports the same, and leaves no file behind.
        let names = || {
            let mut names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
            names.sort();
            names
        };
        let before = names();
        let seen = |name: &str| look(&path(name)).map_err(|error| error.to_string());
        for name in ["text", "theirs", "newer"] {
            assert_eq!(seen(name), Err(said(name)));
        }
        std::fs::write(path("empty"), "").unwrap();
        for name in ["fine", "empty", "no/such/folder", "none"] {
            assert_eq!(seen(name), Ok(()), "{name}");
        }
        std::fs::rename(path("fine"), path("50% #1?.db")).unwrap();
        assert_eq!(seen("50% #1?.db"), Ok(()));
        std::fs::rename(path("50% #1?.db"), path("fine")).unwrap();
        std::fs::remove_file(path("empty")).unwrap();
        assert_eq!(names(), before);
        // While a server has the file open, the last changes are only in the log.
        let server = open(&SqliteSettings::new(path("running"))).unwrap();
        assert_eq!(seen("running"), Ok(()));
        server.pragma_update(None, "user_version", 99).unwrap();
        assert!(seen("running").unwrap_err().contains("schema version 99"));
        drop(server);

        // The file is damaged inside: the page of the schema is torn.
        let mut bytes = std::fs::read(path("fine")).unwrap();
        bytes[100..1100].fill(0xa5);
        std::fs::write(path("torn"), bytes).unwrap();
        assert!(said("torn").contains("restore it from a backup"), "{}", said("torn"));
    }
}
