//! Raw log: all data of the reports, written during the run.
//!
//! A file of [records](strowger_records) that begins with `STRWLOG` and the version (2). Kinds: 1 heading, 2 page, 3
//! sample of the generator, 4 note, 5 receive buffer, 6 ending, 7 sample of a process tree, 8 sample of a machine, 9
//! page of the warm-up, 10 failed call, 11 requirement that ended the run, 12 sum of a document. Pages are binary, all
//! others JSON; a sum of a document is its name in JSON, a line feed and its page. The heading also names the figures
//! of pages, in their order. Readers skip kinds that they do not know.

use super::encoding::DecodeError;
use super::heading::{Ending, Heading, Note, ReceiveBuffer};
use super::layout::{Layout, Places};
use super::{DocumentName, DocumentTotals, FailedCall, Judgement, MachineSample, Page, Sample, TreeSample};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use strowger_records::{Medium, Reader, Writer};

const NAME: [u8; 7] = *b"STRWLOG";
const VERSION: u8 = 2;

const HEADING: u8 = 1;
const PAGE: u8 = 2;
const SAMPLE: u8 = 3;
const NOTE: u8 = 4;
const BUFFER: u8 = 5;
const ENDING: u8 = 6;
const TREE: u8 = 7;
const MACHINE: u8 = 8;
const WARM_UP: u8 = 9;
const FAILED_CALL: u8 = 10;
const LOST: u8 = 11;
const DOCUMENT: u8 = 12;

/// First record.
#[derive(Serialize, Deserialize)]
struct First {
    #[serde(flatten)]
    heading: Heading,
    #[serde(default)]
    layout: Layout,
}

/// Writer of a log. An error never stops a run: a record that cannot be written is counted, the first reason is kept,
/// and writing is tried again with the next record.
pub struct Log {
    writer: Writer,
    lost: u64,
    problem: Option<String>,
    headless: Option<First>,
}

impl Log {
    /// Creates the file, or truncates an existing one. Its errors are those of opening: no such folder, no permission.
    pub fn create(path: &Path, heading: &Heading) -> io::Result<Self> {
        Ok(Self::by(Writer::create(path, magic())?, heading))
    }

    /// Creates a log on any medium.
    pub fn on(medium: impl Medium + 'static, heading: &Heading) -> Self {
        Self::by(Writer::on(medium, magic()), heading)
    }

    fn by(writer: Writer, heading: &Heading) -> Self {
        let first = First { heading: heading.clone(), layout: Layout::own() };
        let mut log = Self { writer, lost: 0, problem: None, headless: Some(first) };
        log.begin();
        log
    }

    /// Writes the heading before all other records. If that fails, tries again with each record until it succeeds.
    fn begin(&mut self) -> bool {
        let Some(first) = self.headless.take() else { return true };
        if let Ok(json) = serde_json::to_vec(&first)
            && !self.write(HEADING, |out| out.extend_from_slice(&json))
        {
            self.headless = Some(first);
        }
        self.headless.is_none()
    }

    fn write(&mut self, kind: u8, payload: impl FnOnce(&mut Vec<u8>)) -> bool {
        let written = self.writer.write(|records| records.push(kind, payload));
        if let Err(error) = &written {
            self.problem.get_or_insert_with(|| error.to_string());
        }
        written.is_ok()
    }

    fn record(&mut self, kind: u8, payload: impl FnOnce(&mut Vec<u8>)) {
        if !self.begin() || !self.write(kind, payload) {
            self.lost += 1;
        }
    }

    fn json(&mut self, kind: u8, what: &impl Serialize) {
        if let Ok(json) = serde_json::to_vec(what) {
            self.record(kind, |out| out.extend_from_slice(&json));
        }
    }

    /// Writes a complete second. The seconds must be in order.
    pub fn page(&mut self, page: &Page) {
        self.record(if page.warm_up { WARM_UP } else { PAGE }, |out| page.encode(out));
    }

    pub fn sample(&mut self, sample: &Sample) {
        self.json(SAMPLE, sample);
    }

    pub fn tree(&mut self, sample: &TreeSample) {
        self.json(TREE, sample);
    }

    pub fn machine(&mut self, sample: &MachineSample) {
        self.json(MACHINE, sample);
    }

    pub fn note(&mut self, note: &Note) {
        self.json(NOTE, note);
    }

    pub fn receive_buffer(&mut self, buffer: &ReceiveBuffer) {
        self.json(BUFFER, buffer);
    }

    pub fn failed_call(&mut self, call: &FailedCall) {
        self.json(FAILED_CALL, call);
    }

    pub fn requirement_lost(&mut self, judgement: &Judgement) {
        self.json(LOST, judgement);
    }

    pub fn document(&mut self, sum: &DocumentTotals) {
        if let Ok(json) = serde_json::to_vec(&sum.document) {
            self.record(DOCUMENT, |out| {
                out.extend_from_slice(&json);
                out.push(b'\n');
                sum.totals.encode(out);
            });
        }
    }

    pub fn ending(&mut self, ending: &Ending) {
        self.json(ENDING, ending);
    }

    /// Returns the number of records that could not be written.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Returns the reason of the first of them.
    pub fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }
}

const fn magic() -> strowger_records::Magic {
    let [a, b, c, d, e, f, g] = NAME;
    [a, b, c, d, e, f, g, VERSION]
}

/// Record of a log. The content of a page is stored in the page given to [`LogReader::next`].
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    Page,
    Sample(Sample),
    Note(Note),
    ReceiveBuffer(ReceiveBuffer),
    Ending(Ending),
    FailedCall(FailedCall),
    RequirementLost(Judgement),
    /// Sum of a document, in the page.
    Document(DocumentName),
    Tree(TreeSample),
    Machine(MachineSample),
}

/// Error of reading a log.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error("{path}: {error}", path = .path.display())]
    Unreadable { path: PathBuf, error: io::Error },
    #[error("{path} is no log of results: it does not begin with STRWLOG", path = .0.display())]
    NoLog(PathBuf),
    #[error("{path} is a log of results of version {version}; this program reads version 2", path = .path.display())]
    Version { path: PathBuf, version: u8 },
    #[error("{path} has samples of processes and of a machine alone, and no figures of calls: name the log of a generator", path = .0.display())]
    NoCalls(PathBuf),
    #[error("{path} has no heading, its beginning is cut or damaged: nothing can be read from it", path = .0.display())]
    NoHeading(PathBuf),
}

/// Reader of a log.
pub struct LogReader {
    path: PathBuf,
    reader: Reader,
    heading: Heading,
    places: Places,
    /// Error of a page that cannot be decoded, at which reading ends.
    stopped: Option<DecodeError>,
}

impl LogReader {
    pub fn open(path: &Path) -> Result<Self, LogError> {
        let (mut reader, version) = Reader::open(path, NAME).map_err(|error| match error {
            strowger_records::OpenError::Unreadable { path, error } => LogError::Unreadable { path, error },
            strowger_records::OpenError::NoRecords { path, .. } => LogError::NoLog(path),
            strowger_records::OpenError::Cut(path) => LogError::NoHeading(path),
        })?;
        if version != VERSION {
            return Err(LogError::Version { path: path.into(), version });
        }
        match reader.next() {
            Some((HEADING, payload)) => {
                let First { heading, layout } = json(payload).ok_or_else(|| LogError::NoHeading(path.into()))?;
                let places = Places::of(&layout, heading.timers.len());
                Ok(Self { path: path.into(), reader, heading, places, stopped: None })
            }
            _ => Err(LogError::NoHeading(path.into())),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn heading(&self) -> &Heading {
        &self.heading
    }

    /// Places the timers by their names among these from now on. `timers` includes all names of this log.
    pub(super) fn arrange(&mut self, timers: &[String]) {
        self.places.arrange(&self.heading.timers, timers);
    }

    /// Describes the damage so far as a sentence: damaged records, and the position if reading ended before the file
    /// did.
    pub fn damage(&self) -> Option<String> {
        let stopped = self.stopped.as_ref().map(|why| format!("{why}; the data before it was read"));
        let all: Vec<String> = self.reader.damage().into_iter().chain(stopped).collect();
        (!all.is_empty()).then(|| format!("{}: {}", self.path.display(), all.join(", and ")))
    }

    /// Returns the next entry, or `None` at the end, or if the log is truncated or damaged (see [`LogReader::damage`]).
    pub fn next(&mut self, page: &mut Page) -> Option<Entry> {
        while self.stopped.is_none() {
            let (kind, payload) = self.reader.next()?;
            let entry = match kind {
                PAGE | WARM_UP => match page.decode(payload, &self.places) {
                    Ok(()) => {
                        page.warm_up = kind == WARM_UP;
                        Some(Entry::Page)
                    }
                    Err(error) => {
                        self.stopped = Some(error);
                        None
                    }
                },
                SAMPLE => json(payload).map(Entry::Sample),
                NOTE => json(payload).map(Entry::Note),
                BUFFER => json(payload).map(Entry::ReceiveBuffer),
                ENDING => json(payload).map(Entry::Ending),
                TREE => json(payload).map(Entry::Tree),
                MACHINE => json(payload).map(Entry::Machine),
                FAILED_CALL => json(payload).map(Entry::FailedCall),
                LOST => json(payload).map(Entry::RequirementLost),
                DOCUMENT => {
                    let end = payload.iter().position(|byte| *byte == b'\n').unwrap_or(payload.len());
                    let (name, rest) = payload.split_at(end);
                    let read = rest.get(1..).is_some_and(|rest| page.decode(rest, &self.places).is_ok());
                    json(name).filter(|_| read).map(Entry::Document)
                }
                _ => None,
            };
            if entry.is_some() {
                return entry;
            }
        }
        None
    }
}

fn json<T: DeserializeOwned>(payload: &[u8]) -> Option<T> {
    serde_json::from_slice(payload).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heading::Level;
    use strowger_records::disk::Disk;

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
    fn a_written_log_reads_back() {
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
    fn a_truncated_log_gives_its_earlier_records() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.log");
        let mut log = Log::create(&path, &heading()).unwrap();
        let begun = log.writer.length();
        let mut ends = vec![];
        for number in 1..=3 {
            log.page(&second(number));
            ends.push(log.writer.length());
        }
        let whole = std::fs::read(&path).unwrap();
        assert_eq!(whole.len() as u64, log.writer.length());
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
        // A flipped bit is found, and costs only its record, even in a length.
        let tip = |at: usize| {
            let mut tipped = whole.clone();
            tipped[at] ^= 4;
            std::fs::write(&path, &tipped).unwrap();
            let (found, damage) = seconds(&path);
            (found, damage.unwrap())
        };
        let (first, third) = (ends[0] as usize, ends[2] as usize);
        let (found, damage) = tip(third - 3);
        assert!(found == [1, 2] && damage.contains("a.log: a damaged record was left out ("), "{damage}");
        assert_eq!(tip(first + 20).0, [1, 3]);
        let (found, damage) = tip(first + 3);
        assert!(found == [1, 3] && damage.contains("a damaged record was left out ("), "{damage}");
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

    #[test]
    fn a_full_disk_loses_seconds_but_not_the_log() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.log");
        for room in [0, 5, 200, 400, 500] {
            let disk = Disk::new(room);
            let mut log = Log::on(disk.clone(), &heading());
            log.page(&second(1));
            log.page(&second(2));
            disk.set_room(usize::MAX);
            log.page(&second(3));
            assert!(room == 500 || log.problem().unwrap().contains("No space left"));
            std::fs::write(&path, disk.bytes()).unwrap();
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
