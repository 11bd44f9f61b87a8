//! Kept calls in a folder of segments, numbered files of [records](strowger_records): a state, last words, or a removal
//! of a number.
//!
//! The last record of a number counts. The engine keeps the location of each state in memory, in sixteen bytes. When
//! more than half of all bytes belong to replaced states, the engine compacts: it copies the valid records of the
//! oldest segment into the newest segment, in small steps between the groups, and removes the oldest segment. So no
//! caller has to provide its state again. Nothing is synced to the disk: a power cut may lose data that the kernel has
//! not written yet.

mod record_location;
mod segments;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use strowger_files::{FileLock, is_full};
use strowger_records::{Segment, Writer};

use crate::files::calls::record_location::{Index, RecordLocation};
use crate::files::calls::segments::{BESIDE, CLOSED, MAGIC, REMOVED, Records, STATE};
use strowger_store::calls::{CallEngine, Change, Failure, Held, Left, LoadReport, OpenError};

/// Folder and its settings.
#[derive(Clone, Debug)]
pub struct FolderSettings {
    /// Path; created if missing. Only one process may use it.
    pub folder: PathBuf,
    /// Bytes of a segment after which the next group begins another. At most [`FolderSettings::LARGEST_SEGMENT`].
    pub segment: u64,
    /// Longest wait at the start for a process that is just ending and has the folder.
    pub wait: Duration,
}

impl FolderSettings {
    /// Maximum size of [`FolderSettings::segment`], in bytes.
    pub const LARGEST_SEGMENT: u64 = 8 << 20;

    /// Returns the defaults for this folder.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into(), segment: Self::LARGEST_SEGMENT, wait: Duration::from_secs(1) }
    }
}

/// Function that creates a segment.
pub(crate) type OpenSegment = Box<dyn FnMut(&Path) -> io::Result<Writer> + Send>;

/// Bytes that a compaction reads between two groups, in addition to twice the bytes of the previous group. So the
/// compaction is faster than the growth of the files.
const STEP: u64 = 1 << 20;
const MOST: u64 = 4 << 20;
/// Allowed segments beyond those that the bytes need: each start begins one.
const FEW: u64 = 16;

/// State by number in a folder of segments.
pub struct Folder {
    settings: FolderSettings,
    create: OpenSegment,
    /// Segments; the last one is being written.
    segments: Vec<Segment>,
    /// `None`: the next group begins a segment.
    writer: Option<Writer>,
    index: Index,
    /// Bytes of the valid records.
    live: u64,
    written: u64,
    /// Records of the oldest segment, whose valid ones are copied.
    compaction: Option<Records>,
    _lock: FileLock,
}

impl Folder {
    /// Creates the folder if missing, and locks it for this process.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(settings: FolderSettings) -> Result<Self, OpenError> {
        Self::open_on(settings, Box::new(|path| Writer::create(path, MAGIC)))
    }

    /// Opens the folder with segments from `create`.
    pub(crate) fn open_on(settings: FolderSettings, create: OpenSegment) -> Result<Self, OpenError> {
        let settings = FolderSettings { segment: settings.segment.min(FolderSettings::LARGEST_SEGMENT), ..settings };
        let lock = FileLock::of_folder(&settings.folder, "lock", settings.wait)?;
        let (segments, index) = Default::default();
        Ok(Self { settings, create, segments, writer: None, index, live: 0, written: 0, compaction: None, _lock: lock })
    }

    fn set_place(&mut self, number: u64, place: Option<RecordLocation>) {
        let before = match place {
            Some(place) => self.index.insert(number, place),
            None => self.index.remove(&number),
        };
        self.live += place.map_or(0, RecordLocation::length);
        self.live -= before.map_or(0, RecordLocation::length);
    }

    /// Returns the number of the segment for the next write.
    fn ready(&mut self) -> io::Result<u64> {
        if self.writer.as_ref().is_none_or(|writer| writer.length() >= self.settings.segment) {
            self.begin_segment()?;
        }
        Ok(self.segments.last().map_or(0, |segment| segment.number))
    }

    /// # Errors
    /// The file cannot be created, or its header not be written.
    fn begin_segment(&mut self) -> io::Result<()> {
        let number = self.segments.last().map_or(1, |segment| segment.number + 1);
        let path = Segment::path(&self.settings.folder, number);
        let mut writer = (self.create)(&path)?;
        if let Err(error) = writer.write(|_| ()) {
            // Failed attempts leave no files.
            let _ = std::fs::remove_file(&path);
            return Err(error);
        }
        self.segments.push(Segment { number, bytes: writer.length() });
        self.writer = Some(writer);
        Ok(())
    }

    fn has_written(&mut self) {
        if let (Some(segment), Some(writer)) = (self.segments.last_mut(), &self.writer) {
            segment.bytes = writer.length();
        }
    }

    fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }

    /// Continues the compaction of the oldest segment. Otherwise begins a compaction if more than half of all bytes are
    /// invalid.
    fn compact(&mut self, step: u64) -> io::Result<()> {
        if self.compaction.is_none() {
            let (bytes, segments, largest) = (self.bytes(), self.segments.len() as u64, self.settings.segment);
            let is_much = bytes > 2 * self.live + largest || segments > FEW + 2 * bytes / largest.max(1);
            let is_worth = is_much && segments > 1;
            let Some(oldest) = self.segments.first().filter(|_| is_worth) else { return Ok(()) };
            match Records::open(&self.settings.folder, oldest.number) {
                Ok(Some(records)) => self.compaction = Some(records),
                Ok(None) => return self.remove_oldest(),
                Err(error) => {
                    tracing::error!(%error, "state lost: a segment cannot be read");
                    return self.remove_oldest();
                }
            }
        }
        let mut copies: Vec<(u8, u64, RecordLocation, Box<[u8]>)> = Vec::new();
        let Some(records) = &mut self.compaction else { return Ok(()) };
        let until = records.position() + step;
        let is_whole = loop {
            if records.position() >= until {
                break false;
            }
            let Some((kind, number, place, said)) = records.next() else { break true };
            if self.index.get(&number) == Some(&place) {
                copies.push((kind, number, place, said.into()));
            }
        };
        if let Err(error) = self.copy(&copies) {
            // The segment is read again from its beginning. Records that were copied already are not copied again,
            // because they are no longer valid in this segment.
            self.compaction = None;
            return Err(error);
        }
        if is_whole {
            self.compaction = None;
            return self.remove_oldest();
        }
        Ok(())
    }

    fn copy(&mut self, copies: &[(u8, u64, RecordLocation, Box<[u8]>)]) -> io::Result<()> {
        if copies.is_empty() {
            return Ok(());
        }
        let segment = self.ready()?;
        let Some(writer) = &mut self.writer else { return Err(io::ErrorKind::NotFound.into()) };
        let mut offset = writer.start();
        writer.write(|records| {
            for (kind, number, _, said) in copies {
                records.push(*kind, |out| {
                    out.extend_from_slice(&number.to_le_bytes());
                    out.extend_from_slice(said);
                });
            }
        })?;
        let places: Vec<(u64, RecordLocation)> = copies
            .iter()
            .map(|(_, number, _, said)| {
                let place = RecordLocation::new(segment, offset, BESIDE + said.len() as u64);
                offset += place.length();
                (*number, place)
            })
            .collect();
        self.written += copies.len() as u64;
        for (number, place) in places {
            // A record of an earlier version has another length.
            self.set_place(number, Some(place));
        }
        self.has_written();
        Ok(())
    }

    /// Removes the oldest segment after its valid records were copied.
    fn remove_oldest(&mut self) -> io::Result<()> {
        let Some(oldest) = self.segments.first().copied() else { return Ok(()) };
        let path = Segment::path(&self.settings.folder, oldest.number);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => (),
        }
        self.segments.remove(0);
        // Records that could not be read again are lost: the disk has damaged them since.
        let before = self.index.len();
        let live = &mut self.live;
        self.index.retain(|_, place| {
            let is_there = !place.is_in(oldest.number);
            *live -= if is_there { 0 } else { place.length() };
            is_there
        });
        let lost = before - self.index.len();
        if lost > 0 {
            tracing::error!(numbers = lost, segment = %path.display(), "state lost: a segment is damaged");
        }
        Ok(())
    }
}

impl CallEngine for Folder {
    fn name(&self) -> String {
        self.settings.folder.display().to_string()
    }

    /// Loads the folder. Damaged records are no error: they are skipped and reported.
    fn load(&mut self, take: &mut (dyn FnMut(u64, Left<'_>) + Send)) -> Result<LoadReport, OpenError> {
        let path = self.settings.folder.clone();
        let unusable = |error| OpenError::Unusable { path: path.clone(), error };
        let (segments, index, report) = segments::load(&self.settings.folder, take).map_err(unusable)?;
        self.live = index.values().map(|place| place.length()).sum();
        (self.segments, self.index) = (segments, index);
        // The first segment is created at the start, so that an unwritable folder is an error of the start. A full disk
        // is no such error, because each write tries again.
        match self.begin_segment() {
            Err(error) if is_full(&error) => Ok(report),
            begun => begun.map(|()| report).map_err(unusable),
        }
    }

    fn write(&mut self, changes: &[(u64, &Change)]) -> Result<(), Failure> {
        let segment = self.ready()?;
        let Some(writer) = &mut self.writer else { return Err(io::Error::from(io::ErrorKind::NotFound).into()) };
        let mut offset = writer.start();
        let mut done: Vec<(u64, Option<RecordLocation>)> = Vec::with_capacity(changes.len());
        let index = &self.index;
        writer.write(|records| {
            for (number, change) in changes {
                let kind = match change {
                    Change::State(_) => STATE,
                    Change::Closed(_) => CLOSED,
                    Change::Removed => REMOVED,
                };
                // A number without a record needs no removal.
                if kind == REMOVED && !index.contains_key(number) {
                    continue;
                }
                let said = change.said();
                records.push(kind, |out| {
                    out.extend_from_slice(&number.to_le_bytes());
                    out.extend_from_slice(said);
                });
                let place = RecordLocation::new(segment, offset, BESIDE + said.len() as u64);
                offset += place.length();
                done.push((*number, (kind != REMOVED).then_some(place)));
            }
        })?;
        self.written += changes.len() as u64;
        for (number, place) in done {
            self.set_place(number, place);
        }
        self.has_written();
        Ok(())
    }

    fn tidy(&mut self, written: u64) -> Result<bool, Failure> {
        self.compact((STEP + 2 * written).min(MOST))?;
        Ok(self.compaction.is_some())
    }

    fn held(&self) -> Held {
        Held { kept: self.index.len() as u64, bytes: self.bytes(), written: self.written }
    }
}

#[cfg(test)]
mod tests;
