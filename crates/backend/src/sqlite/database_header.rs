//! Detection of a SQLite file that another program overwrites while this process has it open.
//!
//! SQLite itself does not detect this. SQLite commits into the write-ahead log and reads from its cache, so commits
//! succeed whose rows no later process finds. The file header
//! (<https://www.sqlite.org/fileformat.html#the_database_header>) shows that the file was overwritten: SQLite never
//! changes the first bytes of the header, and never decreases its change counter.

use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rusqlite::Connection;
use rusqlite::config::DbConfig;

/// Constant bytes, up to the reserved space of each page: the magic, the page size, the versions of the format.
const CONSTANT: usize = 20;

/// Offset of the change counter.
const COUNTER: usize = 24;

/// Number of bytes read.
const BYTES: usize = COUNTER + 4;

/// Files that other programs have overwritten while this process had them open.
static OVERWRITTEN: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn overwritten() -> MutexGuard<'static, Vec<PathBuf>> {
    OVERWRITTEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notes that another program has overwritten this file.
pub fn note_overwritten(path: &Path) {
    let mut overwritten = overwritten();
    if !overwritten.iter().any(|other| other == path) {
        overwritten.push(path.to_owned());
    }
}

/// Prepares the end of a connection. The last connection to a file writes the log back into the file. SQLite MUST NOT
/// do so if the file was overwritten: the file may be a restored backup, to which the log does not belong.
pub fn before_close(connection: &Connection, path: &Path) {
    if overwritten().iter().any(|other| other == path)
        && let Err(error) = connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)
    {
        tracing::error!(path = %path.display(), %error, "the write-ahead log goes into a file that another program has overwritten");
    }
}

/// Last read file header of a database.
#[derive(Debug)]
pub struct DatabaseHeader {
    /// Closed only by [`DatabaseHeader::close`]: closing releases the locks that SQLite has on the same file
    /// (`fcntl(2)`, "record locks").
    file: ManuallyDrop<File>,
    header: [u8; BYTES],
    is_overwritten: bool,
}

impl DatabaseHeader {
    /// Reads the header of a file that SQLite has just opened.
    ///
    /// # Errors
    /// Error of the system.
    pub fn read(path: &Path) -> io::Result<Self> {
        let file = ManuallyDrop::new(File::open(path)?);
        let mut header = [0; BYTES];
        file.read_exact_at(&mut header, 0)?;
        Ok(Self { file, header, is_overwritten: false })
    }

    /// Closes the file. This process must have no connection to it any more.
    pub fn close(self) {
        drop(ManuallyDrop::into_inner(self.file));
    }

    /// Tells whether another program has overwritten the file since it was opened. Once this returned true, it returns
    /// true for ever: a matching header proves nothing about the pages.
    pub fn is_overwritten(&mut self) -> bool {
        if !self.is_overwritten {
            let mut header = [0; BYTES];
            self.is_overwritten = match self.file.read_exact_at(&mut header, 0) {
                Ok(()) => !self.is_followed_by(&header),
                Err(error) => error.kind() == io::ErrorKind::UnexpectedEof,
            };
            self.header = header;
        }
        self.is_overwritten
    }

    /// Tells whether SQLite may have written `header` after this header.
    fn is_followed_by(&self, header: &[u8; BYTES]) -> bool {
        let counter = |header: &[u8; BYTES]| {
            header[COUNTER..].iter().fold(0, |counter: u32, byte| counter << 8 | u32::from(*byte))
        };
        header[..CONSTANT] == self.header[..CONSTANT]
            && counter(header).wrapping_sub(counter(&self.header)).cast_signed() >= 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_of_sqlite_differ_from_those_of_others() {
        let folder = tempfile::tempdir().unwrap();
        let (path, backup) = (folder.path().join("a.db"), folder.path().join("backup"));
        let connection = Connection::open(&path).unwrap();
        connection.execute_batch("PRAGMA journal_mode = wal; CREATE TABLE t (x)").unwrap();
        let write_back = || connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
        write_back();
        std::fs::copy(&path, &backup).unwrap();
        let mut header = DatabaseHeader::read(&path).unwrap();
        for n in 0..50 {
            connection.execute("INSERT INTO t VALUES (zeroblob(5000))", []).unwrap();
            if n % 10 == 0 {
                write_back();
            }
            assert!(!header.is_overwritten(), "{n}");
        }
        connection.execute_batch("VACUUM; PRAGMA user_version = 7").unwrap();
        write_back();
        assert!(!header.is_overwritten());
        // Another process of the same program writes.
        let other = Connection::open(&path).unwrap();
        other.execute_batch("CREATE TABLE u (x); PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
        assert!(!header.is_overwritten());
        let whole = std::fs::read(&path).unwrap();
        // Garbage, an empty file, an earlier copy, another database.
        let another = folder.path().join("other.db");
        Connection::open(&another).unwrap().execute_batch("PRAGMA page_size = 512; CREATE TABLE t (x)").unwrap();
        for bytes in
            [vec![b'x'; whole.len()], Vec::new(), std::fs::read(&backup).unwrap(), std::fs::read(&another).unwrap()]
        {
            let mut header = DatabaseHeader::read(&path).unwrap();
            assert!(!header.is_overwritten());
            std::fs::write(&path, &bytes).unwrap();
            assert!(header.is_overwritten(), "{} bytes", bytes.len());
            std::fs::write(&path, &whole).unwrap();
            assert!(header.is_overwritten(), "it stays so");
        }
    }
}
