//! The raw log: everything that reports are made from, written as the run goes.
//!
//! A file begins with the 8 bytes `STRWLOG` and the version (2). Records follow: length of the payload (u32), kind (u8),
//! CRC-32 of kind and payload (u32), payload; numbers little-endian. Kinds: 1 heading, 2 page, 3 sample of the generator,
//! 4 note, 5 receive buffer, 6 ending; all but pages in JSON. The heading also names the figures of pages, in their order. Readers skip kinds that they do not know. Each record is written
//! by one call, so a process that is killed leaves whole records and at most one cut one, which a reader leaves out.

use super::encoding::DecodeError;
use super::heading::{Ending, Heading, Note, ReceiveBuffer};
use super::layout::{Layout, Places};
use super::{Page, Sample};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

const MAGIC: &[u8; 8] = b"STRWLOG\x02";
/// No record is longer; more is damage.
const LONGEST: u32 = 64 << 20;

const HEADING: u8 = 1;
const PAGE: u8 = 2;
const SAMPLE: u8 = 3;
const NOTE: u8 = 4;
const BUFFER: u8 = 5;
const ENDING: u8 = 6;

/// The first record.
#[derive(Serialize, Deserialize)]
struct First {
    #[serde(flatten)]
    heading: Heading,
    #[serde(default)]
    layout: Layout,
}

/// Where a log is written: a file, or what a test puts in its place.
pub trait Medium: Write + Send {
    /// Everything after the first `length` bytes was written in vain: forgets it and goes on from there.
    fn cut(&mut self, length: u64) -> io::Result<()>;
}

impl Medium for File {
    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.set_len(length)?;
        self.seek(SeekFrom::Start(length)).map(|_| ())
    }
}

/// A log being written. It never stops a run: what cannot be written is counted, the first reason kept, and the next record
/// is tried again.
pub struct Log {
    medium: Box<dyn Medium>,
    /// Bytes that are whole records.
    length: u64,
    /// The medium may hold more than `length`.
    torn: bool,
    bytes: Vec<u8>,
    lost: u64,
    problem: Option<String>,
    headless: Option<Heading>,
}

impl Log {
    /// A new file, or an existing one in its place. An error here is one of opening: no such folder, no permission.
    pub fn create(path: &Path, heading: &Heading) -> io::Result<Self> {
        Ok(Self::on(File::create(path)?, heading))
    }

    /// A log on anything.
    pub fn on(medium: impl Medium + 'static, heading: &Heading) -> Self {
        let mut log = Self {
            medium: Box::new(medium),
            length: 0,
            torn: false,
            bytes: Vec::new(),
            lost: 0,
            problem: None,
            headless: Some(heading.clone()),
        };
        log.begin();
        log
    }

    /// The magic and the heading go first, or nothing does: tried again with each record until it works.
    fn begin(&mut self) -> bool {
        let Some(heading) = self.headless.take() else { return true };
        self.bytes.clear();
        self.bytes.extend_from_slice(MAGIC);
        let first = First { heading, layout: Layout::own() };
        if let Ok(json) = serde_json::to_vec(&first) {
            frame(&mut self.bytes, HEADING, |out| out.extend_from_slice(&json));
        }
        if !self.write() {
            self.headless = Some(first.heading);
        }
        self.headless.is_none()
    }

    fn write(&mut self) -> bool {
        let medium = &mut self.medium;
        let cut = if self.torn { medium.cut(self.length) } else { Ok(()) };
        match cut.and_then(|()| medium.write_all(&self.bytes)) {
            Ok(()) => {
                self.torn = false;
                self.length += self.bytes.len() as u64;
                true
            }
            Err(error) => {
                self.torn = true;
                self.problem.get_or_insert_with(|| error.to_string());
                false
            }
        }
    }

    fn record(&mut self, kind: u8, payload: impl FnOnce(&mut Vec<u8>)) {
        let begun = self.begin();
        self.bytes.clear();
        frame(&mut self.bytes, kind, payload);
        if !begun || !self.write() {
            self.lost += 1;
        }
    }

    fn json(&mut self, kind: u8, what: &impl Serialize) {
        if let Ok(json) = serde_json::to_vec(what) {
            self.record(kind, |out| out.extend_from_slice(&json));
        }
    }

    /// A complete second; seconds come in order.
    pub fn page(&mut self, page: &Page) {
        self.record(PAGE, |out| page.encode(out));
    }

    pub fn sample(&mut self, sample: &Sample) {
        self.json(SAMPLE, sample);
    }

    pub fn note(&mut self, note: &Note) {
        self.json(NOTE, note);
    }

    pub fn receive_buffer(&mut self, buffer: &ReceiveBuffer) {
        self.json(BUFFER, buffer);
    }

    pub fn ending(&mut self, ending: &Ending) {
        self.json(ENDING, ending);
    }

    /// Records that could not be written.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Why the first of them could not.
    pub fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }
}

fn frame(out: &mut Vec<u8>, kind: u8, payload: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    out.push(kind);
    out.extend_from_slice(&[0; 4]);
    payload(out);
    let length = (out.len() - start - 9) as u32;
    let crc = crc32(crc32(!0, &[kind]), &out[start + 9..]);
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
    out[start + 5..start + 9].copy_from_slice(&(!crc).to_le_bytes());
}

/// One step of CRC-32 (ISO 3309, as in zip and gzip); begins with !0, ends with the complement.
fn crc32(crc: u32, bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut n = 0;
        while n < 256 {
            let mut value = n as u32;
            let mut bit = 0;
            while bit < 8 {
                value = if value & 1 == 1 { value >> 1 ^ 0xedb8_8320 } else { value >> 1 };
                bit += 1;
            }
            table[n] = value;
            n += 1;
        }
        table
    };
    bytes.iter().fold(crc, |crc, byte| TABLE[((crc ^ u32::from(*byte)) & 0xff) as usize] ^ crc >> 8)
}

/// One thing in a log. A page is put into the page given to [`LogReader::next`].
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    Page,
    Sample(Sample),
    Note(Note),
    ReceiveBuffer(ReceiveBuffer),
    Ending(Ending),
}

/// Why a log cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error("{path}: {error}", path = .path.display())]
    Unreadable { path: PathBuf, error: io::Error },
    #[error("{path} is no log of results: it does not begin with STRWLOG", path = .0.display())]
    NoLog(PathBuf),
    #[error("{path} is a log of results of version {version}; this program reads version 2", path = .path.display())]
    Version { path: PathBuf, version: u8 },
    #[error("{path} does not say what was run, its beginning is cut or damaged: nothing can be read from it", path = .0.display())]
    NoHeading(PathBuf),
}

/// A log being read.
pub struct LogReader {
    path: PathBuf,
    input: BufReader<File>,
    heading: Heading,
    places: Places,
    bytes: Vec<u8>,
    /// Records that were passed over.
    damaged: u64,
    /// Why reading ended before the file did.
    stopped: Option<String>,
}

impl LogReader {
    pub fn open(path: &Path) -> Result<Self, LogError> {
        let unreadable = |error| LogError::Unreadable { path: path.into(), error };
        let mut input = BufReader::new(File::open(path).map_err(unreadable)?);
        let mut magic = [0; MAGIC.len()];
        let read = read_up_to(&mut input, &mut magic).map_err(unreadable)?;
        if read < magic.len() || magic[..7] != MAGIC[..7] {
            return Err(LogError::NoLog(path.into()));
        }
        if magic[7] != MAGIC[7] {
            return Err(LogError::Version { path: path.into(), version: magic[7] });
        }
        let mut reader = Self {
            path: path.into(),
            input,
            heading: Heading::default(),
            places: Places::of(&Layout::default(), 0),
            bytes: Vec::new(),
            damaged: 0,
            stopped: None,
        };
        match reader.record() {
            Some(HEADING) => {
                let First { heading, layout } = reader.json().ok_or_else(|| LogError::NoHeading(path.into()))?;
                reader.places = Places::of(&layout, heading.timers.len());
                reader.heading = heading;
            }
            _ => return Err(LogError::NoHeading(path.into())),
        }
        Ok(reader)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn heading(&self) -> &Heading {
        &self.heading
    }

    /// Timers have the places of their names among these from now on; the names of this log are among them.
    pub(super) fn arrange(&mut self, timers: &[String]) {
        self.places.arrange(&self.heading.timers, timers);
    }

    /// What is missing of what was read so far: damaged records, and what stands where reading ended before the file did. A
    /// sentence.
    pub fn damage(&self) -> Option<String> {
        let left_out = match self.damaged {
            0 => None,
            1 => Some("a damaged record was left out".into()),
            more => Some(format!("{more} damaged records were left out")),
        };
        let stopped = self.stopped.as_ref().map(|why| format!("{why}; what stands before it was read"));
        let all: Vec<String> = left_out.into_iter().chain(stopped).collect();
        (!all.is_empty()).then(|| format!("{}: {}", self.path.display(), all.join(", and ")))
    }

    /// The next entry; `None` at the end, or where the log is cut or damaged (see [`LogReader::damage`]).
    pub fn next(&mut self, page: &mut Page) -> Option<Entry> {
        loop {
            let entry = match self.record()? {
                PAGE => match page.decode(&self.bytes, &self.places) {
                    Ok(()) => Some(Entry::Page),
                    Err(error) => return self.stop_at(error),
                },
                SAMPLE => self.json().map(Entry::Sample),
                NOTE => self.json().map(Entry::Note),
                BUFFER => self.json().map(Entry::ReceiveBuffer),
                ENDING => self.json().map(Entry::Ending),
                _ => None,
            };
            if entry.is_some() {
                return entry;
            }
        }
    }

    fn stop_at(&mut self, error: DecodeError) -> Option<Entry> {
        self.stopped = Some(error.to_string());
        None
    }

    fn json<T: DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_slice(&self.bytes).ok()
    }

    /// The next record's kind; its payload in `bytes`. One whose checksum is wrong is passed over: its length leads to the next, or,
    /// if it is that which is wrong, soon to nothing that could be one.
    fn record(&mut self) -> Option<u8> {
        while self.stopped.is_none() {
            let mut head = [0; 9];
            let result = match read_up_to(&mut self.input, &mut head) {
                Ok(0) => return None,
                Ok(9) => {
                    let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
                    let crc = u32::from_le_bytes([head[5], head[6], head[7], head[8]]);
                    self.payload(length, head[4], crc)
                }
                Ok(_) => Err("its last record is cut"),
                Err(_) => Err("it cannot be read on"),
            };
            match result {
                Ok(true) => return Some(head[4]),
                Ok(false) => self.damaged += 1,
                Err(what) => self.stopped = Some(what.into()),
            }
        }
        None
    }

    /// Whether the payload is what its checksum says.
    fn payload(&mut self, length: u32, kind: u8, crc: u32) -> Result<bool, &'static str> {
        if length > LONGEST {
            return Err("a record is damaged");
        }
        self.bytes.clear();
        match Read::by_ref(&mut self.input).take(u64::from(length)).read_to_end(&mut self.bytes) {
            Ok(read) if read < length as usize => Err("its last record is cut"),
            Ok(_) => Ok(!crc32(crc32(!0, &[kind]), &self.bytes) == crc),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::heading::Level;
    use std::sync::{Arc, Mutex};

    fn heading() -> Heading {
        Heading { title: "uac".into(), timers: vec!["1".into()], started: 7, ..Heading::default() }
    }

    fn second(number: u64) -> Page {
        let mut page = Page::new(1);
        (page.second, page.covered, page.peak) = (number, 1_000_000, number);
        page
    }

    fn seconds(path: &Path) -> (Vec<u64>, Option<String>) {
        let mut reader = LogReader::open(path).unwrap();
        let (mut page, mut seconds) = (Page::new(0), vec![]);
        while let Some(entry) = reader.next(&mut page) {
            if entry == Entry::Page {
                assert_eq!(page.peak, page.second);
                seconds.push(page.second);
            }
        }
        (seconds, reader.damage())
    }

    #[test]
    fn the_checksum_is_the_usual_one() {
        assert_eq!(!crc32(!0, b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn what_was_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.log");
        let mut log = Log::create(&path, &heading()).unwrap();
        let note = Note { at: 5, level: Level::Warning, text: "a word".into() };
        log.note(&note);
        log.page(&second(10));
        log.record(99, |out| out.extend_from_slice(b"a kind of a later version"));
        log.page(&second(11));
        log.ending(&Ending { at: 12, reason: "interrupted".into() });
        assert_eq!((log.lost(), log.problem()), (0, None));
        let mut reader = LogReader::open(&path).unwrap();
        assert_eq!(*reader.heading(), heading());
        let mut page = Page::new(0);
        assert_eq!(reader.next(&mut page), Some(Entry::Note(note)));
        assert_eq!((reader.next(&mut page), page.second), (Some(Entry::Page), 10));
        assert_eq!((reader.next(&mut page), page.second), (Some(Entry::Page), 11));
        assert!(matches!(reader.next(&mut page), Some(Entry::Ending(_))));
        assert_eq!((reader.next(&mut page), reader.damage()), (None, None));
    }

    #[test]
    fn a_log_cut_anywhere_gives_what_stands_before() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.log");
        let mut log = Log::create(&path, &heading()).unwrap();
        let begun = log.length;
        let mut ends = vec![];
        for number in 1..=3 {
            log.page(&second(number));
            ends.push(log.length);
        }
        let whole = std::fs::read(&path).unwrap();
        assert_eq!(whole.len() as u64, log.length);
        for length in 0..=whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            if (length as u64) < begun {
                assert!(LogReader::open(&path).is_err());
                continue;
            }
            let (found, damage) = seconds(&path);
            assert_eq!(found.len(), ends.iter().filter(|end| **end <= length as u64).count());
            let at_edge = length as u64 == begun || ends.contains(&(length as u64));
            assert_eq!(damage.is_none(), at_edge, "{length}: {damage:?}");
        }
        // A bit that tips is found, and costs its record; in a length, what stands behind it.
        let tip = |at: usize| {
            let mut tipped = whole.clone();
            tipped[at] ^= 4;
            std::fs::write(&path, &tipped).unwrap();
            let (found, damage) = seconds(&path);
            (found, damage.unwrap())
        };
        let (first, third) = (ends[0] as usize, ends[2] as usize);
        let (found, damage) = tip(third - 3);
        assert!(found == [1, 2] && damage.ends_with("a.log: a damaged record was left out"), "{damage}");
        assert_eq!(tip(first + 20).0, [1, 3]);
        let (found, damage) = tip(first + 3);
        assert!(found == [1] && damage.ends_with("a record is damaged; what stands before it was read"), "{damage}");
    }

    #[test]
    fn other_files_are_refused_with_a_sentence() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.csv");
        std::fs::write(&path, "a;b;c and more\n").unwrap();
        assert!(LogReader::open(&path).err().unwrap().to_string().contains("no log of results"));
        std::fs::write(&path, b"STRWLOG\x09").unwrap();
        assert!(LogReader::open(&path).err().unwrap().to_string().contains("version 9"));
        assert!(LogReader::open(&folder.path().join("none")).err().unwrap().to_string().contains("No such file"));
    }

    /// A disk of `room` bytes that takes what it can of each write.
    #[derive(Clone)]
    struct Disk(Arc<Mutex<(Vec<u8>, usize)>>);

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let (written, room) = &mut *self.0.lock().unwrap();
            let takes = bytes.len().min(*room - written.len());
            if takes == 0 {
                return Err(io::Error::new(io::ErrorKind::StorageFull, "No space left on device"));
            }
            written.extend_from_slice(&bytes[..takes]);
            Ok(takes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Medium for Disk {
        fn cut(&mut self, length: u64) -> io::Result<()> {
            self.0.lock().unwrap().0.truncate(length as usize);
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_loses_seconds_but_not_the_log() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.log");
        for room in [0, 5, 200, 400, 500] {
            let disk = Disk(Arc::new(Mutex::new((vec![], room))));
            let mut log = Log::on(disk.clone(), &heading());
            log.page(&second(1));
            log.page(&second(2));
            disk.0.lock().unwrap().1 = usize::MAX;
            log.page(&second(3));
            assert!(room == 500 || log.problem().unwrap().contains("No space left"));
            std::fs::write(&path, &disk.0.lock().unwrap().0).unwrap();
            let (found, damage) = seconds(&path);
            assert_eq!(damage, None);
            assert_eq!(found.last(), Some(&3));
            assert_eq!(found.len() as u64, 3 - log.lost(), "room for {room} bytes");
        }
    }

    #[test]
    fn the_device_that_is_always_full() {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut log = Log::on(full, &heading());
        log.page(&second(1));
        assert_eq!(log.lost(), 1);
        assert!(log.problem().unwrap().contains("No space left"), "{:?}", log.problem());
    }
}
