//! Segments: numbered files in a folder, read in order.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use strowger_files::private;
use strowger_records::{Magic, OpenError, Reader, Writer};

use super::LoadReport;
use super::changes::{Change, read};

const NAME: [u8; 7] = *b"SW-CACH";
pub(super) const MAGIC: Magic = *b"SW-CACH\x01";
const ENDING: &str = "segment";

/// Segment and its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(super) number: u64,
    pub(super) bytes: u64,
}

pub(super) fn path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{number:012}.{ENDING}"))
}

/// Creates the file of a segment.
pub(crate) fn create(path: &Path) -> io::Result<Writer> {
    Writer::create(path, MAGIC)
}

/// Passes all changes of a folder to `apply`, in order; returns its segments.
///
/// # Errors
/// The folder cannot be read. Errors of single files are in the report.
pub(crate) fn load(folder: &Path, mut apply: impl FnMut(Change<'_>)) -> io::Result<(Vec<Segment>, LoadReport)> {
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == ENDING) {
            numbers.extend(path.file_stem().and_then(|stem| stem.to_str()?.parse::<u64>().ok()));
        }
    }
    numbers.sort_unstable();
    let mut report = LoadReport::default();
    let mut segments = Vec::new();
    for (at, number) in numbers.iter().enumerate() {
        let path = path(folder, *number);
        let bytes = std::fs::metadata(&path).map_or(0, |file| file.len());
        // Earlier versions created files with the rights of their umask. A file of another user is left alone.
        let _ = File::open(&path).and_then(|file| private::narrow(&file));
        segments.push(Segment { number: *number, bytes });
        report.segments += 1;
        report.bytes += bytes;
        let is_last = at + 1 == numbers.len();
        match load_segment(&path, is_last, &mut report.changes, &mut apply) {
            Ok(None) => {}
            Ok(Some(damage)) => report.damage.push((path, damage)),
            Err(error) => report.damage.push((path, error.to_string())),
        }
    }
    Ok((segments, report))
}

fn load_segment(
    path: &Path,
    is_last: bool,
    changes: &mut u64,
    apply: &mut impl FnMut(Change<'_>),
) -> Result<Option<String>, OpenError> {
    let (mut reader, version) = match Reader::open(path, NAME) {
        // A kill has cut it within its header.
        Err(OpenError::Cut(_)) => return Ok(None),
        opened => opened?,
    };
    if version != MAGIC[7] {
        return Ok(Some(format!("it is of version {version}, which is not known")));
    }
    let mut unknown = 0;
    while let Some((kind, payload)) = reader.next() {
        match read(kind, payload) {
            Some(change) => {
                *changes += 1;
                apply(change);
            }
            None => unknown += 1,
        }
    }
    let damage = reader.damage().or_else(|| (unknown > 0).then(|| format!("{unknown} records are not known")));
    let whole = reader.position();
    if is_last && reader.is_cut() {
        // A kill cut this record. It is removed, so that it is reported once. A file that cannot be cut is read all the
        // same.
        let _ = File::options().write(true).open(path).and_then(|file| file.set_len(whole));
    }
    Ok(damage)
}
