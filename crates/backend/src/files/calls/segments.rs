//! States in the segments of a folder.

use std::io;
use std::path::Path;

use strowger_records::{HEAD, Magic, Reader, Segment};

use crate::files::calls::record_location::{FARTHEST, Index, LONGEST, RecordLocation};
use strowger_store::calls::{CallStore, Left, LoadReport};

pub(crate) const MAGIC: Magic = *b"SW-KEEP\x01";

/// Kinds of records; each payload begins with the number (u64, little-endian).
pub(crate) const STATE: u8 = 1;
pub(crate) const CLOSED: u8 = 2;
pub(crate) const REMOVED: u8 = 3;

/// Bytes of a record without its state: head and number.
pub(crate) const BESIDE: u64 = HEAD as u64 + 8;

const _: () = assert!(CallStore::LONGEST as u64 + BESIDE <= LONGEST, "each state fits a record");

/// Splits a payload into the number and its data; `None` if the kind is unknown.
fn read(kind: u8, payload: &[u8]) -> Option<(u64, &[u8])> {
    let (number, rest) = payload.split_first_chunk()?;
    matches!(kind, STATE | CLOSED | REMOVED).then_some((u64::from_le_bytes(*number), rest))
}

/// Reader of a segment's records with their places, up to the first damage.
pub(crate) struct Records {
    reader: Reader,
    number: u64,
    unknown: u64,
}

impl Records {
    /// Opens a segment. Returns `None` if a kill has cut the segment within its header.
    pub(crate) fn open(folder: &Path, number: u64) -> Result<Option<Self>, String> {
        let reader = Segment::open(folder, number, MAGIC)?;
        Ok(reader.map(|reader| Self { reader, number, unknown: 0 }))
    }

    /// Returns the next record: its kind, number, location and data. Skips records of unknown kinds.
    pub(crate) fn next(&mut self) -> Option<(u8, u64, RecordLocation, &[u8])> {
        let (kind, number, place) = loop {
            let (kind, payload) = self.reader.next()?;
            let known = read(kind, payload).map(|(number, _)| number);
            // A copy of a record of an earlier version is longer.
            let is_short = (HEAD + payload.len()) as u64 <= LONGEST;
            let length = self.reader.record_length();
            let offset = self.reader.position() - length;
            match known.filter(|_| offset < FARTHEST && is_short) {
                Some(number) => break (kind, number, RecordLocation::new(self.number, offset, length)),
                None => self.unknown += 1,
            }
        };
        let said = read(kind, self.reader.last()).map_or(&[][..], |(_, said)| said);
        Some((kind, number, place, said))
    }

    pub(crate) fn damage(&self) -> Option<String> {
        let unknown = || (self.unknown > 0).then(|| format!("{} records are not known", self.unknown));
        self.reader.damage().or_else(unknown)
    }

    /// Returns the end of the last complete record.
    pub(crate) fn position(&self) -> u64 {
        self.reader.position()
    }

    /// Tells whether the file ends within a record; see [`Reader::is_cut`].
    fn is_cut(&self) -> bool {
        self.reader.is_cut()
    }
}

/// Passes the last data of each number to `take`. Returns the segments, and the location of each state.
///
/// # Errors
/// The folder cannot be read. Errors of single files are in the report.
pub(crate) fn load(
    folder: &Path,
    take: &mut dyn FnMut(u64, Left<'_>),
) -> io::Result<(Vec<Segment>, Index, LoadReport)> {
    let segments = Segment::all(folder)?;
    let (mut report, mut index) = (LoadReport::default(), Index::new());
    for Segment { number, bytes } in segments.iter().copied() {
        let path = Segment::path(folder, number);
        report.bytes += bytes;
        match Records::open(folder, number) {
            Ok(None) => {}
            Ok(Some(mut records)) => {
                while let Some((kind, number, place, _)) = records.next() {
                    match kind {
                        REMOVED => index.remove(&number),
                        _ => index.insert(number, place),
                    };
                }
                report.damage.extend(records.damage().map(|damage| (path.clone(), damage)));
                if segments.last().is_some_and(|last| last.number == number) && records.is_cut() {
                    Segment::cut(&path, records.position());
                }
            }
            Err(damage) => report.damage.push((path, damage)),
        }
    }
    hand_over(folder, &segments, &index, &mut report, take);
    index.shrink_to_fit();
    Ok((segments, index, report))
}

/// Passes the valid data to `take`, in a second pass over the segments. The first pass determined the valid records
/// without storing states in memory.
fn hand_over(
    folder: &Path,
    segments: &[Segment],
    index: &Index,
    report: &mut LoadReport,
    take: &mut dyn FnMut(u64, Left<'_>),
) {
    let mut places: Vec<(u64, RecordLocation)> = index.iter().map(|(number, place)| (*number, *place)).collect();
    places.sort_unstable_by_key(|(_, place)| *place);
    for of_segment in places.chunk_by(|(_, one), (_, other)| one.segment() == other.segment()) {
        let Some(segment) = segments.iter().find(|segment| of_segment[0].1.is_in(segment.number)) else { continue };
        // The first pass was able to open this segment.
        let mut records = match Records::open(folder, segment.number) {
            Ok(Some(records)) => records,
            Ok(None) => continue,
            Err(error) => {
                report.damage.push((Segment::path(folder, segment.number), error));
                continue;
            }
        };
        // Both sequences have the order of the file.
        let mut wanted = of_segment.iter().peekable();
        while let Some((_, expected)) = wanted.peek() {
            let Some((kind, number, place, said)) = records.next() else { break };
            if place != *expected {
                continue;
            }
            wanted.next();
            if kind == CLOSED {
                report.closed += 1;
                take(number, Left::LastWords(said));
            } else {
                report.states += 1;
                take(number, Left::State(said));
            }
        }
    }
}
