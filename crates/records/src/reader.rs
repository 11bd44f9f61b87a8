//! Reading: every record that is whole, and what is missing.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crate::HEAD;
use crate::format::{Beginning, Format};

/// Bytes that a search for the next record looks through at a time.
const WINDOW: u64 = 64 << 10;

const CUT: &str = "its last record is cut";
const DAMAGED: &str = "a record is damaged";
const UNREADABLE: &str = "it cannot be read on";

/// Why a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The system does not let it be read.
    #[error("{path}: {error}", path = .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// It does not begin as it should.
    #[error("{path} does not begin with {name}", path = .path.display(), name = String::from_utf8_lossy(.name))]
    NoRecords {
        /// The file.
        path: PathBuf,
        /// What it should begin with.
        name: [u8; 7],
    },
    /// A process was killed before its first record was whole.
    #[error("{path} is cut before its first record", path = .0.display())]
    Cut(PathBuf),
}

/// A file of records being read.
pub struct Reader {
    input: BufReader<File>,
    format: Format,
    bytes: Vec<u8>,
    /// Behind the last whole record.
    position: u64,
    /// Offset of the next record.
    next: u64,
    lost: Lost,
    /// Why reading ended before the file did.
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
    /// A record of this kind; its payload was read.
    Whole(u8),
    /// The end of the file.
    End,
    /// The beginning of a record, and then the end of the file.
    Cut,
    /// A head whose payload is not the one it was written for.
    Damaged,
    /// Bytes that are no head.
    Nothing,
}

impl Reader {
    /// Opens a file of this kind; returns it with its version.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(path: &Path, name: [u8; 7]) -> Result<(Self, u8), OpenError> {
        let unreadable = |error| OpenError::Unreadable { path: path.into(), error };
        let mut input = BufReader::new(File::open(path).map_err(unreadable)?);
        let mut beginning = [0; Format::LONGEST_BEGINNING];
        // The beginning of a plain file is shorter; the bytes behind it are read again as a record.
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

    /// Next record: its kind and payload. `None` at the end. Behind damage the reader searches for the next whole record. It does not search a
    /// plain file: there it stops at an impossible length.
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

    /// The payload of the record that [`Reader::next`] gave last; empty before the first.
    pub fn last(&self) -> &[u8] {
        &self.bytes
    }

    /// Records that are left.
    pub fn count(mut self) -> usize {
        let mut count = 0;
        while self.next().is_some() {
            count += 1;
        }
        count
    }

    /// Bytes up to the end of the last whole record.
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// Bytes of the record that [`Reader::next`] gave last, its head among them.
    pub const fn record_length(&self) -> u64 {
        (self.format.head_length() + self.bytes.len()) as u64
    }

    /// Whether everything behind the last whole record is the beginning of one record, as a kill leaves it: it may be cut off. False where
    /// the file has not been read to its end.
    pub fn is_cut(&self) -> bool {
        matches!(self.format, Format::Salted(_)) && self.stopped == Some(CUT)
    }

    /// What is missing of what was read so far: damaged records, and what stands where reading ended before the file did. A part of a
    /// sentence.
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

    /// The record of `bytes` stands there.
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

    /// The first whole record that begins there or later, and its kind; else the end of the file. Each byte is looked at once, and a payload
    /// is read only behind a head whose own checksum is right.
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
