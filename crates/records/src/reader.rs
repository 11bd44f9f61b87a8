//! Reading: every complete record, and a report of the losses.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crate::HEAD;
use crate::format::{Beginning, Format};

/// Bytes that a search for the next record reads at once.
const WINDOW: u64 = 64 << 10;

const CUT: &str = "its last record is cut";
const DAMAGED: &str = "a record is damaged";
const UNREADABLE: &str = "it cannot be read on";

/// Reason why a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The operating system cannot read the file.
    #[error("{path}: {error}", path = .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        error: io::Error,
    },
    /// The first bytes of the file are not those of records.
    #[error("{path} does not begin with {name}", path = .path.display(), name = String::from_utf8_lossy(.name))]
    NoRecords {
        /// The file.
        path: PathBuf,
        /// Expected name.
        name: [u8; 7],
    },
    /// A kill cut the file before its first record was complete.
    #[error("{path} is cut before its first record", path = .0.display())]
    Cut(PathBuf),
}

/// Reader of a file of records.
pub struct Reader {
    input: BufReader<File>,
    format: Format,
    bytes: Vec<u8>,
    /// End of the last complete record.
    position: u64,
    /// Offset of the next record.
    next: u64,
    lost: Lost,
    /// Reason why reading stopped before the end of the file.
    stopped: Option<&'static str>,
}

/// Damage between records.
#[derive(Clone, Copy, Debug, Default)]
struct Lost {
    places: u64,
    bytes: u64,
}

/// Result of reading at an offset.
enum Found {
    /// Record of this kind; its payload was read.
    Whole(u8),
    /// The end of the file.
    End,
    /// Beginning of a record, then the end of the file.
    Cut,
    /// Head with a payload that does not match.
    Damaged,
    /// Bytes that are no head.
    Nothing,
}

impl Reader {
    /// Opens a file with this name; returns it with its version.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(path: &Path, name: [u8; 7]) -> Result<(Self, u8), OpenError> {
        let unreadable = |error| OpenError::Unreadable { path: path.into(), error };
        let mut input = BufReader::new(File::open(path).map_err(unreadable)?);
        let mut beginning = [0; Format::LONGEST_BEGINNING];
        // The header of a plain file is shorter, so the bytes after it are read again as a record.
        let read = read_up_to(&mut input, &mut beginning).map_err(unreadable)?;
        let (format, version) = match Format::read_beginning(&beginning[..read], name) {
            Beginning::Records(format, version) => (format, version),
            Beginning::Cut => return Err(OpenError::Cut(path.into())),
            Beginning::Other => return Err(OpenError::NoRecords { path: path.into(), name }),
        };
        let position = format.beginning_length() as u64;
        if read > format.beginning_length() {
            input.seek(SeekFrom::Start(position)).map_err(unreadable)?;
        }
        let (bytes, lost, next) = (Vec::new(), Lost::default(), position);
        Ok((Self { input, format, bytes, position, next, lost, stopped: None }, version))
    }

    /// Returns the next record: its kind and payload; `None` at the end. After damage the reader searches for the next
    /// complete record. A plain file is not searched: in such a file the reader stops at an impossible length.
    #[expect(clippy::should_implement_trait, reason = "a record borrows the reader")]
    pub fn next(&mut self) -> Option<(u8, &[u8])> {
        while self.stopped.is_none() {
            let start = self.next;
            match (self.record(), self.format) {
                (Ok(Found::Whole(kind)), _) => return Some(self.is_at(start, kind)),
                (Ok(Found::End), _) => return None,
                (Err(_), _) => self.stopped = Some(UNREADABLE),
                (Ok(found), Format::Salted(_)) => match self.search(start + 1) {
                    Ok(Ok((at, kind))) => {
                        self.loses(at - start);
                        return Some(self.is_at(at, kind));
                    }
                    Ok(Err(_)) if matches!(found, Found::Cut) => self.stopped = Some(CUT),
                    Ok(Err(end)) => {
                        self.loses(end.saturating_sub(start));
                        self.stopped = Some(DAMAGED);
                    }
                    Err(_) => self.stopped = Some(UNREADABLE),
                },
                (Ok(Found::Damaged), Format::Plain) => {
                    let length = self.record_length();
                    self.loses(length);
                    self.next += length;
                }
                (Ok(Found::Cut), Format::Plain) => self.stopped = Some(CUT),
                (Ok(Found::Nothing), Format::Plain) => self.stopped = Some(DAMAGED),
            }
        }
        None
    }

    /// Returns the payload of the last record from [`Reader::next`]; empty before the first.
    pub fn last(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the number of remaining records.
    pub fn count(mut self) -> usize {
        let mut count = 0;
        while self.next().is_some() {
            count += 1;
        }
        count
    }

    /// Returns the end of the last complete record.
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// Returns the length of the last record from [`Reader::next`], including its head.
    pub const fn record_length(&self) -> u64 {
        (self.format.head_length() + self.bytes.len()) as u64
    }

    /// Tells whether all bytes after the last complete record are the beginning of one record, as after a kill; such
    /// bytes may be cut off. Returns false before the reader has reached the end of the file.
    pub fn is_cut(&self) -> bool {
        matches!(self.format, Format::Salted(_)) && self.stopped == Some(CUT)
    }

    /// Describes the losses so far: damaged records, and the reason why reading stopped early. A part of a sentence.
    pub fn damage(&self) -> Option<String> {
        let Lost { places, bytes } = self.lost;
        let left_out = match places {
            0 => None,
            1 => Some(format!("a damaged record was left out ({bytes} bytes)")),
            _ => Some(format!("damaged records were left out at {places} places ({bytes} bytes)")),
        };
        let is_counted = self.stopped == Some(DAMAGED) && matches!(self.format, Format::Salted(_));
        let stopped = self.stopped.filter(|_| !is_counted).map(|why| format!("{why}; what stands before it was read"));
        let all: Vec<String> = left_out.into_iter().chain(stopped).collect();
        (!all.is_empty()).then(|| all.join(", and "))
    }

    pub(crate) const fn format(&self) -> Format {
        self.format
    }

    fn loses(&mut self, bytes: u64) {
        self.lost.places += 1;
        self.lost.bytes += bytes;
    }

    /// Returns the record in `bytes`, which starts at this offset.
    fn is_at(&mut self, start: u64, kind: u8) -> (u8, &[u8]) {
        self.next = start + self.record_length();
        self.position = self.next;
        (kind, &self.bytes)
    }

    /// Reads a record at the position of the input.
    fn record(&mut self) -> io::Result<Found> {
        let mut head = [0; HEAD];
        let head = &mut head[..self.format.head_length()];
        match read_up_to(&mut self.input, head)? {
            0 => return Ok(Found::End),
            read if read < head.len() => return Ok(Found::Cut),
            _ => (),
        }
        let Some(head) = self.format.read_head(head) else { return Ok(Found::Nothing) };
        self.bytes.clear();
        let read = Read::by_ref(&mut self.input).take(u64::from(head.length)).read_to_end(&mut self.bytes)?;
        Ok(match read == head.length as usize {
            false => Found::Cut,
            true if self.format.belongs(head, &self.bytes) => Found::Whole(head.kind),
            true => Found::Damaged,
        })
    }

    /// Returns the offset and kind of the first complete record at this offset or later. Without such a record, returns
    /// the end of the file. Each byte is inspected once, and a payload is read only after a head with a correct
    /// checksum.
    fn search(&mut self, from: u64) -> io::Result<Result<(u64, u8), u64>> {
        let end = self.input.get_ref().metadata()?.len();
        let head = self.format.head_length();
        let (mut at, mut window) = (from, Vec::new());
        while at + head as u64 <= end {
            self.input.seek(SeekFrom::Start(at))?;
            window.clear();
            Read::by_ref(&mut self.input).take(WINDOW).read_to_end(&mut window)?;
            if window.len() < head {
                break;
            }
            for (n, bytes) in window.windows(head).enumerate() {
                let start = at + n as u64;
                let left = end.saturating_sub(start + head as u64);
                if self.format.read_head(bytes).is_none_or(|head| u64::from(head.length) > left) {
                    continue;
                }
                self.input.seek(SeekFrom::Start(start))?;
                if let Found::Whole(kind) = self.record()? {
                    return Ok(Ok((start, kind)));
                }
            }
            at += (window.len() - head + 1) as u64;
        }
        Ok(Err(end))
    }
}

fn read_up_to(input: &mut impl Read, into: &mut [u8]) -> io::Result<usize> {
    let mut read = 0;
    while read < into.len() {
        match input.read(&mut into[read..]) {
            Ok(0) => break,
            Ok(more) => read += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}
