//! Quarantine: refused rows with their reasons, in a file of [records](strowger_records) next to the spool.
//!
//! The database would refuse such a row for ever, and the rows after it would wait for ever. In the quarantine the row
//! waits for an operator, who repairs the table and requests another attempt. Each row has an identity: if a killed
//! process left the row in the spool too, the row is not written twice.

use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use strowger_records::{HEAD, Magic, OpenError, Reader, Writer};
use strowger_store::accounting::cdr::Row;

const MAGIC: Magic = *b"STRQUAR\x01";
const NAME: [u8; 7] = *b"STRQUAR";

/// Kind of a record with an entry.
const ENTRY: u8 = 1;

/// Maximum size of a reason, in bytes: longer error texts are cut.
const REASON: usize = 1_000;

/// Maximum number of rows in one attempt.
const BATCH: usize = 256;

/// Refused row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Time of the first refusal, in milliseconds since 1970.
    pub at: u64,
    /// Last error text of the database.
    pub reason: String,
    /// The row.
    pub row: Box<Row>,
}

/// Open file with the index of its rows.
pub struct Quarantine {
    path: PathBuf,
    /// Maximum size of the file, in bytes.
    most: u64,
    /// `None` while there is no file.
    writer: Option<Writer>,
    held: Held,
}

/// Index of the entries in a file.
#[derive(Debug, Default)]
struct Held {
    identities: HashSet<String>,
    /// Time of the oldest row.
    oldest: Option<u64>,
    last_reason: Option<String>,
}

impl Held {
    fn add(&mut self, entry: &Entry) {
        self.identities.insert(entry.row.identity().to_owned());
        let at = entry.row.at();
        self.oldest = Some(self.oldest.map_or(at, |oldest| oldest.min(at)));
        self.last_reason = Some(entry.reason.clone());
    }
}

impl Quarantine {
    /// Opens the quarantine of this spool. The lock of the spool covers both files. The first row creates the file.
    ///
    /// # Errors
    /// The file cannot be read, or belongs to another program.
    pub fn open(spool: &Path, most: u64) -> Result<Self, OpenError> {
        let mut path = spool.as_os_str().to_owned();
        path.push("-quarantine");
        let mut this = Self { path: path.into(), most, writer: None, held: Held::default() };
        // A killed process may have left this file.
        let _ = std::fs::remove_file(this.path_of_new());
        if std::fs::metadata(&this.path).is_ok_and(|file| file.len() > 0) {
            this.writer = Some(this.open_writer()?);
            let mut reader = this.read()?;
            while let Some(entry) = next(&mut reader) {
                this.held.add(&entry);
            }
        }
        Ok(this)
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> u64 {
        self.held.identities.len() as u64
    }

    /// Returns the length of the file in bytes.
    pub fn bytes(&self) -> u64 {
        self.writer.as_ref().map_or(0, Writer::length)
    }

    /// Returns the time of the oldest row, in milliseconds since 1970.
    pub const fn oldest(&self) -> Option<u64> {
        self.held.oldest
    }

    /// Returns the reason of the last row.
    pub fn last_reason(&self) -> Option<&str> {
        self.held.last_reason.as_deref()
    }

    /// Returns the identities of all rows.
    pub const fn identities(&self) -> &HashSet<String> {
        &self.held.identities
    }

    /// Tells whether a row is in quarantine.
    pub fn contains(&self, identity: &str) -> bool {
        self.held.identities.contains(identity)
    }

    /// Appends either all of these rows or none, and syncs them to disk. Skips a row that is in the file already.
    ///
    /// # Errors
    /// Error of the system, or the file would exceed its bound.
    pub fn add(&mut self, entries: &[Entry]) -> io::Result<()> {
        if self.writer.as_ref().is_some_and(|writer| !writer.has_its_name()) {
            // The rows in the removed file are lost.
            tracing::warn!(quarantine = %self.path.display(), "the quarantine of accounting was removed by another program");
            (self.writer, self.held) = (None, Held::default());
        }
        if self.writer.is_none() {
            self.writer = Some(self.open_writer().map_err(io::Error::other)?);
        }
        let new: Vec<Entry> = entries.iter().filter(|entry| !self.contains(entry.row.identity())).map(cut).collect();
        let Some(writer) = &mut self.writer else { return Err(io::ErrorKind::NotFound.into()) };
        write(writer, &new, self.most, &self.path)?;
        writer.sync()?;
        new.iter().for_each(|entry| self.held.add(entry));
        Ok(())
    }

    /// Begins another attempt for all rows.
    ///
    /// # Errors
    /// The file cannot be read, or its replacement cannot be written.
    pub fn retry(&self) -> io::Result<Retry> {
        let reader = self.read().map_err(io::Error::other)?;
        let new = Writer::create(&self.path_of_new(), MAGIC)?;
        Ok(Retry { reader, left: self.rows(), new, held: Held::default() })
    }

    /// Ends the attempt begun by [`Quarantine::retry`]: the rows still refused replace the file, together with rows
    /// added meanwhile.
    ///
    /// # Errors
    /// Error of the system; the file still has all its rows.
    pub fn end(&mut self, mut retry: Retry) -> io::Result<()> {
        let replaced = self.replace(&mut retry);
        if replaced.is_err() || retry.held.identities.is_empty() {
            let _ = std::fs::remove_file(self.path_of_new());
        }
        replaced?;
        self.held = retry.held;
        Ok(())
    }

    fn replace(&mut self, retry: &mut Retry) -> io::Result<()> {
        while let Some(entry) = next(&mut retry.reader) {
            retry.keep(&[entry])?;
        }
        if retry.held.identities.is_empty() {
            return self.writer.as_mut().map_or(Ok(()), Writer::clear);
        }
        retry.new.sync()?;
        std::fs::rename(self.path_of_new(), &self.path)?;
        // From here on the name belongs to another file.
        self.writer = None;
        self.writer = Some(self.open_writer().map_err(io::Error::other)?);
        Ok(())
    }

    fn path_of_new(&self) -> PathBuf {
        let mut path = self.path.as_os_str().to_owned();
        path.push("-new");
        path.into()
    }

    fn read(&self) -> Result<Reader, OpenError> {
        Reader::open(&self.path, NAME).map(|(reader, _)| reader)
    }

    fn open_writer(&self) -> Result<Writer, OpenError> {
        let (writer, damage) = Writer::append(&self.path, MAGIC)?;
        if let Some(damage) = damage {
            tracing::error!(quarantine = %self.path.display(), "damaged rows of accounting are lost: {damage}");
        }
        Ok(writer)
    }
}

/// Attempt to write all rows of a quarantine.
pub struct Retry {
    reader: Reader,
    /// Rows present at the begin of the attempt and not yet taken.
    left: u64,
    /// Replacement of the file.
    new: Writer,
    held: Held,
}

impl Retry {
    /// Returns the next rows; empty at the end.
    pub fn batch(&mut self) -> Vec<Entry> {
        let count = usize::try_from(self.left).map_or(BATCH, |left| left.min(BATCH));
        let entries: Vec<Entry> = (0..count).map_while(|_| next(&mut self.reader)).collect();
        self.left = if entries.len() < count { 0 } else { self.left - count as u64 };
        entries
    }

    /// Keeps these rows in quarantine.
    ///
    /// # Errors
    /// Error of the system.
    pub fn keep(&mut self, entries: &[Entry]) -> io::Result<()> {
        let entries: Vec<Entry> = entries.iter().map(cut).collect();
        write(&mut self.new, &entries, u64::MAX, Path::new(""))?;
        entries.iter().for_each(|entry| self.held.add(entry));
        Ok(())
    }
}

fn write(writer: &mut Writer, entries: &[Entry], most: u64, path: &Path) -> io::Result<()> {
    let payloads: Vec<Vec<u8>> =
        entries.iter().map(|entry| serde_json::to_vec(entry).expect("a row is texts and numbers")).collect();
    let bytes: u64 = payloads.iter().map(|payload| (HEAD + payload.len()) as u64).sum();
    if bytes > 0 && writer.length() + bytes > most {
        let full = format!("{}: it has the {most} bytes that it may have", path.display());
        return Err(io::Error::new(io::ErrorKind::StorageFull, full));
    }
    writer.write(|records| {
        for payload in &payloads {
            records.push(ENTRY, |out| out.extend_from_slice(payload));
        }
    })
}

/// Copies an entry with a reason of bounded length.
fn cut(entry: &Entry) -> Entry {
    let mut entry = entry.clone();
    entry.reason.truncate(entry.reason.floor_char_boundary(REASON));
    entry
}

/// Returns the next readable entry.
fn next(reader: &mut Reader) -> Option<Entry> {
    loop {
        let (_, payload) = reader.next()?;
        match serde_json::from_slice(payload) {
            Ok(entry) => return Some(entry),
            Err(error) => tracing::error!(%error, "a row in the quarantine of accounting cannot be read and is lost"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strowger_store::accounting::cdr::Cdr;

    fn entry(n: u64, reason: &str) -> Entry {
        let cdr = Cdr { identity: n.to_string(), setup: 1_000 + n, ..Cdr::default() };
        Entry { at: 5, reason: reason.into(), row: Box::new(Row::Cdr(cdr)) }
    }

    fn open(folder: &Path, most: u64) -> Quarantine {
        Quarantine::open(&folder.join("spool"), most).unwrap()
    }

    fn entries(quarantine: &Quarantine) -> Vec<Entry> {
        let mut reader = quarantine.read().unwrap();
        std::iter::from_fn(|| next(&mut reader)).collect()
    }

    #[test]
    fn rows_stay_until_a_retry_takes_them_out() {
        let folder = tempfile::tempdir().unwrap();
        let mut quarantine = open(folder.path(), 1 << 20);
        assert!(quarantine.rows() == 0 && !quarantine.path().exists());
        quarantine.add(&(0..600).map(|n| entry(n, "too long")).collect::<Vec<_>>()).unwrap();
        quarantine.add(&[entry(1, "again")]).unwrap();
        assert_eq!(
            (quarantine.rows(), quarantine.oldest(), quarantine.last_reason()),
            (600, Some(1_000), Some("too long"))
        );
        // The next process finds the rows.
        drop(quarantine);
        let mut quarantine = open(folder.path(), 1 << 20);
        assert!(quarantine.rows() == 600 && quarantine.contains("599") && !quarantine.contains("600"));
        let mut retry = quarantine.retry().unwrap();
        assert_eq!(retry.batch(), (0..256).map(|n| entry(n, "too long")).collect::<Vec<_>>());
        retry.keep(&[entry(7, "still too long")]).unwrap();
        // A row is added meanwhile.
        quarantine.add(&[entry(700, "new")]).unwrap();
        assert_eq!((retry.batch().len(), retry.batch().len(), retry.batch().len()), (256, 88, 0));
        // After a kill at this point, the next process has all rows.
        assert_eq!(open(folder.path(), 1 << 20).rows(), 601);
        let mut retry = quarantine.retry().unwrap();
        while !retry.batch().is_empty() {}
        retry.keep(&[entry(7, "still too long")]).unwrap();
        quarantine.end(retry).unwrap();
        assert_eq!((quarantine.rows(), quarantine.last_reason()), (1, Some("still too long")));
        quarantine.add(&[entry(8, "new")]).unwrap();
        assert_eq!(entries(&quarantine), [entry(7, "still too long"), entry(8, "new")]);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        let mut retry = quarantine.retry().unwrap();
        retry.batch();
        quarantine.end(retry).unwrap();
        assert_eq!((quarantine.rows(), quarantine.bytes(), quarantine.oldest()), (0, 0, None));
        assert_eq!(open(folder.path(), 1 << 20).rows(), 0);
    }

    #[test]
    fn beyond_the_bound_no_row_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        let mut quarantine = open(folder.path(), 5_000);
        quarantine.add(&[entry(1, &"é".repeat(900))]).unwrap();
        assert!(quarantine.last_reason().unwrap().len() <= REASON);
        let error = quarantine.add(&(2..20).map(|n| entry(n, "too long")).collect::<Vec<_>>()).unwrap_err();
        assert_eq!((error.kind(), quarantine.rows()), (io::ErrorKind::StorageFull, 1));
        // An operator may remove the file.
        std::fs::remove_file(quarantine.path()).unwrap();
        quarantine.add(&[entry(2, "too long")]).unwrap();
        assert_eq!((entries(&quarantine).len(), quarantine.rows()), (1, 1));
        std::fs::write(quarantine.path(), "a file of another program, long enough to be looked at").unwrap();
        assert!(Quarantine::open(&folder.path().join("spool"), 1).is_err());
    }
}
