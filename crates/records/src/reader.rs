//! Reading: every record that is whole, and what is missing.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use crate::{HEAD, LONGEST, Magic, checksum};

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
}

/// A file of records being read.
pub struct Reader {
    input: BufReader<File>,
    bytes: Vec<u8>,
    /// Behind the last whole record.
    position: u64,
    /// Of records that were passed over since.
    passed_over: u64,
    /// Records that were passed over.
    damaged: u64,
    /// Why reading ended before the file did.
    stopped: Option<&'static str>,
}

impl Reader {
    /// Opens a file of this kind; returns it with its version.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(path: &Path, name: [u8; 7]) -> Result<(Self, u8), OpenError> {
        let unreadable = |error| OpenError::Unreadable { path: path.into(), error };
        let mut input = BufReader::new(File::open(path).map_err(unreadable)?);
        let mut magic: Magic = [0; 8];
        let read = read_up_to(&mut input, &mut magic).map_err(unreadable)?;
        let [found @ .., version] = magic;
        if read < magic.len() || found != name {
            return Err(OpenError::NoRecords { path: path.into(), name });
        }
        let position = magic.len() as u64;
        Ok((Self { input, bytes: Vec::new(), position, passed_over: 0, damaged: 0, stopped: None }, version))
    }

    /// The next record: its kind and payload. `None` at the end, or where the file is cut or damaged. One whose checksum is wrong is
    /// passed over: its length leads to the next, or, if it is that which is wrong, soon to nothing that could be one.
    #[expect(clippy::should_implement_trait, reason = "a record borrows the reader")]
    pub fn next(&mut self) -> Option<(u8, &[u8])> {
        while self.stopped.is_none() {
            let mut head = [0; HEAD];
            let result = match read_up_to(&mut self.input, &mut head) {
                Ok(0) => return None,
                Ok(HEAD) => {
                    let [a, b, c, d, kind, w, x, y, z] = head;
                    self.payload(u32::from_le_bytes([a, b, c, d]), kind, u32::from_le_bytes([w, x, y, z]))
                }
                Ok(_) => Err("its last record is cut"),
                Err(_) => Err("it cannot be read on"),
            };
            let length = (HEAD + self.bytes.len()) as u64;
            match result {
                Ok(true) => {
                    self.position += self.passed_over + length;
                    self.passed_over = 0;
                    return Some((head[4], &self.bytes));
                }
                Ok(false) => {
                    self.passed_over += length;
                    self.damaged += 1;
                }
                Err(what) => self.stopped = Some(what),
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

    /// What is missing of what was read so far: damaged records, and what stands where reading ended before the file did. A part of a
    /// sentence.
    pub fn damage(&self) -> Option<String> {
        let left_out = match self.damaged {
            0 => None,
            1 => Some("a damaged record was left out".into()),
            more => Some(format!("{more} damaged records were left out")),
        };
        let stopped = self.stopped.map(|why| format!("{why}; what stands before it was read"));
        let all: Vec<String> = left_out.into_iter().chain(stopped).collect();
        (!all.is_empty()).then(|| all.join(", and "))
    }

    /// Whether the payload is what its checksum says.
    fn payload(&mut self, length: u32, kind: u8, sum: u32) -> Result<bool, &'static str> {
        if length > LONGEST {
            return Err("a record is damaged");
        }
        self.bytes.clear();
        match Read::by_ref(&mut self.input).take(u64::from(length)).read_to_end(&mut self.bytes) {
            Ok(read) if read < length as usize => Err("its last record is cut"),
            Ok(_) => Ok(checksum::of(kind, &self.bytes) == sum),
            Err(_) => Err("it cannot be read on"),
        }
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
