//! Spool: rows that cannot be written now wait in order in a file of [records](strowger_records).
//!
//! A record holds a row as JSON: a program whose rows have more columns can read an older file. Only one process may
//! use a spool: another one would overwrite or remove its rows.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use strowger_files::{FileLock, LockError};
use strowger_records::{HEAD, Magic, OpenError as Unread, Reader, Writer};
use strowger_store::accounting::cdr::Row;

const MAGIC: Magic = *b"STRACCT\x01";
const NAME: [u8; 7] = *b"STRACCT";

/// Kind of a record with a row.
const ROW: u8 = 1;

/// Reason why a spool cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file has another format or version, or cannot be read.
    #[error(transparent)]
    Unread(#[from] Unread),
    /// Another process uses it.
    #[error("{path}: another server has it; end that first, or name a file of its own in accounting.spool", path = .0.display())]
    InUse(PathBuf),
    /// The lock file cannot be taken.
    #[error("{path}: {error}; accounting.spool is to name a file that this user may make", path = .path.display())]
    Lock {
        /// Path of the lock.
        path: PathBuf,
        /// Error of the system.
        error: io::Error,
    },
}

impl From<LockError> for OpenError {
    fn from(error: LockError) -> Self {
        match error {
            LockError::InUse(path) => Self::InUse(path),
            LockError::Unusable { path, error } => Self::Lock { path, error },
        }
    }
}

/// Spool file with its read position.
pub struct Spool {
    path: PathBuf,
    _lock: FileLock,
    /// Maximum size of the file, in bytes.
    most: u64,
    /// `None` while the file cannot be opened.
    writer: Option<Writer>,
    reader: Option<Reader>,
    /// Rows of the file that have been taken.
    taken: u64,
    /// Rows of the file that have not been taken.
    left: u64,
    /// Set when the last rows did not fit.
    is_full: bool,
    /// Time of the oldest waiting row; `None`: no row waits, or the row has not been read yet.
    oldest: Option<u64>,
    /// Rows taken and not confirmed.
    #[expect(clippy::vec_box, reason = "rows come and go as they are")]
    chunk: Vec<Box<Row>>,
}

impl Spool {
    /// Opens the spool; its first rows are the rows of an earlier process. Creates a lock file next to the spool; the
    /// first row creates the spool itself. `patience`: longest wait for another process that may be about to end.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(path: &Path, most: u64, patience: Duration) -> Result<Self, OpenError> {
        let mut spool = Self {
            path: path.to_owned(),
            _lock: FileLock::beside(path, patience)?,
            most,
            writer: None,
            reader: None,
            taken: 0,
            left: 0,
            is_full: false,
            oldest: None,
            chunk: Vec::new(),
        };
        if std::fs::metadata(path).is_ok_and(|file| file.len() > 0) {
            spool.writer = Some(writer(path)?);
        }
        if spool.bytes() > 0 {
            let mut reader = spool.read()?;
            while let Some((_, payload)) = reader.next() {
                if spool.left == 0 {
                    spool.oldest = row(payload).map(|row| row.at());
                }
                spool.left += 1;
            }
        }
        Ok(spool)
    }

    /// Returns the number of waiting rows.
    pub fn rows(&self) -> u64 {
        self.left + self.chunk.len() as u64
    }

    /// Returns the length of the file in bytes.
    pub fn bytes(&self) -> u64 {
        self.writer.as_ref().map_or(0, Writer::length)
    }

    /// Returns the time of the oldest waiting row, in milliseconds since 1970; `None` if no row waits, or the row
    /// cannot be read.
    pub const fn oldest(&self) -> Option<u64> {
        self.oldest
    }

    /// Tells whether no row waits.
    pub fn is_empty(&self) -> bool {
        self.rows() == 0
    }

    /// Tells whether there was no room for the last rows. The file does not shrink until its last row is confirmed.
    pub const fn is_full(&self) -> bool {
        self.is_full
    }

    /// Appends either all of these rows or none.
    ///
    /// # Errors
    /// Error of the system, or the file would exceed its bound.
    pub fn append(&mut self, rows: &[Box<Row>]) -> io::Result<()> {
        let result = self.try_append(rows);
        self.is_full = result.is_err();
        result
    }

    fn try_append(&mut self, rows: &[Box<Row>]) -> io::Result<()> {
        // If another program has removed the file, it is created again. The removal is harmless while the file is
        // empty.
        if self.writer.as_ref().is_none_or(|writer| self.is_empty() && !writer.has_its_name()) {
            self.writer = Some(writer(&self.path).map_err(io::Error::other)?);
        }
        let Some(writer) = &mut self.writer else { return Err(io::ErrorKind::NotFound.into()) };
        let payloads: Vec<Vec<u8>> = rows.iter().map(|row| payload(row)).collect();
        let bytes: u64 = payloads.iter().map(|payload| (HEAD + payload.len()) as u64).sum();
        if writer.length() + bytes > self.most {
            let full = format!("{}: it has the {} bytes that it may have", self.path.display(), self.most);
            return Err(io::Error::new(io::ErrorKind::StorageFull, full));
        }
        let written = writer.write(|records| {
            for payload in &payloads {
                records.push(ROW, |out| out.extend_from_slice(payload));
            }
        });
        if let Err(error) = written {
            // The reader may have read bytes that are now cut off.
            self.reader = None;
            return Err(error);
        }
        if self.is_empty() {
            self.oldest = rows.first().map(|row| row.at());
        }
        self.left += rows.len() as u64;
        Ok(())
    }

    /// Returns the oldest rows, at most `most` of them. Returns the same rows again until they are
    /// [confirmed](Self::confirm).
    pub fn chunk(&mut self, most: usize) -> &[Box<Row>] {
        if self.chunk.is_empty() && self.left > 0 && self.fill(most).is_err() {
            // The next call tries again.
            self.reader = None;
        }
        if let Some(first) = self.chunk.first() {
            self.oldest = Some(first.at());
        }
        &self.chunk
    }

    /// Confirms the rows of the last [chunk](Self::chunk) except its last rows, which are `rest`. When all rows are
    /// confirmed, the file is emptied.
    pub fn confirm_all_but(&mut self, rest: Vec<Box<Row>>) {
        if rest.is_empty() {
            return self.confirm();
        }
        self.oldest = rest.first().map(|row| row.at());
        self.chunk = rest;
    }

    /// Confirms the rows of the last [chunk](Self::chunk). When all rows are confirmed, the file is emptied.
    pub fn confirm(&mut self) {
        self.chunk.clear();
        self.oldest = None;
        if self.left == 0 {
            (self.reader, self.taken, self.is_full) = (None, 0, false);
            if let Some(Err(error)) = self.writer.as_mut().map(Writer::clear) {
                // The next append empties the file. Otherwise the next start reads these rows again and recognizes
                // their identities.
                tracing::error!(spool = %self.path.display(), %error, "spool of accounting not emptied");
            }
        }
    }

    /// Returns the identities of all waiting rows.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn identities(&self) -> Result<HashSet<String>, Unread> {
        let mut found = HashSet::new();
        if self.left > 0 {
            let mut reader = self.read()?;
            while let Some((_, payload)) = reader.next() {
                found.extend(row(payload).map(|row| row.identity().to_owned()));
            }
        }
        Ok(found)
    }

    fn read(&self) -> Result<Reader, Unread> {
        Reader::open(&self.path, NAME).map(|(reader, _)| reader)
    }

    fn fill(&mut self, most: usize) -> Result<(), Unread> {
        if self.reader.is_none() {
            let mut reader = self.read()?;
            for _ in 0..self.taken {
                reader.next();
            }
            self.reader = Some(reader);
        }
        let Some(reader) = &mut self.reader else { return Ok(()) };
        while self.chunk.len() < most && self.left > 0 {
            let Some((_, payload)) = reader.next() else {
                tracing::error!(spool = %self.path.display(), rows = self.left, "rows of accounting cannot be read and are lost");
                self.left = 0;
                break;
            };
            (self.taken, self.left) = (self.taken + 1, self.left - 1);
            match row(payload) {
                Some(row) => self.chunk.push(row),
                None => tracing::error!(spool = %self.path.display(), "a row of accounting cannot be read and is lost"),
            }
        }
        Ok(())
    }
}

/// Opens the file for appending after its complete records.
fn writer(path: &Path) -> Result<Writer, Unread> {
    let (writer, damage) = Writer::append(path, MAGIC)?;
    if let Some(damage) = damage {
        tracing::error!(spool = %path.display(), "damaged rows of accounting are lost: {damage}");
    }
    Ok(writer)
}

fn payload(row: &Row) -> Vec<u8> {
    serde_json::to_vec(row).expect("a row is texts and numbers")
}

fn row(payload: &[u8]) -> Option<Box<Row>> {
    serde_json::from_slice(payload).ok().map(Box::new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use strowger_records::Medium;
    use strowger_store::accounting::cdr::{Cdr, Event};

    #[expect(clippy::vec_box, reason = "a spool gives them so")]
    fn rows(numbers: std::ops::Range<u32>) -> Vec<Box<Row>> {
        let row = |n: u32| match n % 2 {
            0 => Row::Cdr(Cdr {
                identity: n.to_string(),
                ring: Some(5),
                end: Some(u64::from(n) + 1_000),
                ..Cdr::default()
            }),
            _ => Row::Event(Event {
                identity: n.to_string(),
                at: u64::from(n) + 1_000,
                fields: vec![("a".into(), "b".into())],
                ..Event::default()
            }),
        };
        numbers.map(|n| Box::new(row(n))).collect()
    }

    fn open(path: &Path, most: u64) -> Result<Spool, OpenError> {
        Spool::open(path, most, Duration::ZERO)
    }

    /// Returns the spool that another process finds if this one is killed now.
    fn left(path: &Path) -> Spool {
        let copy = path.with_extension("copy");
        std::fs::copy(path, &copy).unwrap();
        open(&copy, 1 << 20).unwrap()
    }

    #[test]
    fn rows_come_back_in_order_and_until_they_are_confirmed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("spool");
        let mut spool = open(&path, 1 << 20).unwrap();
        assert!(spool.is_empty() && !path.exists());
        spool.append(&rows(0..5)).unwrap();
        assert_eq!(spool.chunk(3), rows(0..3));
        spool.append(&rows(5..6)).unwrap();
        assert_eq!(spool.chunk(3), rows(0..3));
        assert_eq!((spool.rows(), spool.oldest()), (6, Some(1_000)));
        spool.confirm();
        assert_eq!(spool.rows(), 3);
        assert_eq!(spool.chunk(9), rows(3..6));
        assert_eq!(spool.oldest(), Some(1_003));
        // After a kill at this point the next process has all rows again: it must find out which rows are written
        // already.
        let mut other = left(&path);
        assert_eq!((other.rows(), other.identities().unwrap().len(), other.oldest()), (6, 6, Some(1_000)));
        assert_eq!(other.chunk(9), rows(0..6));
        drop(other);
        spool.confirm();
        assert_eq!((spool.is_empty(), spool.bytes(), spool.oldest()), (true, 0, None));
        assert!(spool.chunk(9).is_empty());
        spool.append(&rows(6..8)).unwrap();
        assert_eq!(spool.chunk(9), rows(6..8));
        assert_eq!(left(&path).rows(), 2);
        // Another program may remove an empty file.
        spool.confirm();
        std::fs::remove_file(&path).unwrap();
        spool.append(&rows(8..9)).unwrap();
        assert_eq!((spool.chunk(9), left(&path).rows()), (&*rows(8..9), 1));
    }

    #[test]
    fn one_process_at_a_time_has_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("spool");
        let first = open(&path, 1 << 20).unwrap();
        let error = open(&path, 1 << 20).err().unwrap().to_string();
        assert!(error.contains("spool: another server has it") && error.contains("accounting.spool"), "{error}");
        drop(first);
        assert!(open(&path, 1 << 20).is_ok());
        let error = open(&folder.path().join("no/spool"), 1 << 20).err().unwrap().to_string();
        assert!(error.contains("no/spool-lock: "), "{error}");
    }

    /// Medium that accepts rows, and refuses to cut until the test allows it.
    struct Stubborn(File, Arc<AtomicBool>);

    impl io::Write for Stubborn {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Medium for Stubborn {
        fn cut(&mut self, length: u64) -> io::Result<()> {
            let cuts = self.1.load(Relaxed);
            if cuts { self.0.cut(length) } else { Err(io::ErrorKind::Other.into()) }
        }
    }

    #[test]
    fn rows_stand_behind_none_that_are_written_already() {
        let folder = tempfile::tempdir().unwrap();
        let (path, cuts) = (folder.path().join("spool"), Arc::<AtomicBool>::default());
        let mut spool = open(&path, 1 << 20).unwrap();
        let medium = Stubborn(File::create(&path).unwrap(), cuts.clone());
        spool.writer = Some(Writer::on(medium, MAGIC));
        spool.append(&rows(0..3)).unwrap();
        assert_eq!(spool.chunk(9), rows(0..3));
        spool.confirm();
        assert!(spool.append(&rows(3..5)).is_err() && spool.is_empty());
        cuts.store(true, Relaxed);
        spool.append(&rows(3..5)).unwrap();
        assert_eq!(spool.chunk(9), rows(3..5));
        assert_eq!(left(&path).rows(), 2);
    }

    #[test]
    fn a_cut_row_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("spool");
        open(&path, 1 << 20).unwrap().append(&rows(0..3)).unwrap();
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, &whole[..whole.len() - 4]).unwrap();
        let mut spool = open(&path, 1 << 20).unwrap();
        spool.append(&rows(7..8)).unwrap();
        assert_eq!(spool.chunk(9), [rows(0..2), rows(7..8)].concat());
        drop(spool);
        std::fs::write(&path, &whole[..3]).unwrap();
        assert_eq!(open(&path, 1 << 20).unwrap().rows(), 0);
    }

    #[test]
    fn bytes_beyond_the_bound_are_refused_and_files_of_others_not_touched() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("spool");
        let mut spool = open(&path, 1_000).unwrap();
        spool.append(&rows(0..1)).unwrap();
        let error = spool.append(&rows(1..100)).unwrap_err();
        assert_eq!((error.kind(), spool.rows(), spool.is_full()), (io::ErrorKind::StorageFull, 1, true));
        assert_eq!(spool.chunk(9), rows(0..1));
        spool.confirm();
        assert!(!spool.is_full());
        drop(spool);
        std::fs::write(&path, "a file of another program").unwrap();
        assert!(open(&path, 1_000).is_err());
    }

    #[test]
    fn an_older_row_has_what_it_has() {
        let read = row(br#"{"cdr":{"identity":"1","setup":5,"gone":true}}"#).unwrap();
        assert_eq!(*read, Row::Cdr(Cdr { identity: "1".into(), setup: 5, ..Cdr::default() }));
        assert!(row(b"{}").is_none());
    }
}
