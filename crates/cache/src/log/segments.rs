//! Changes of the segments of a folder.

use std::fs::File;
use std::io;
use std::path::Path;

use strowger_files::private;
use strowger_records::{Magic, Reader, Segment, Writer};

use super::LoadReport;
use super::changes::{Change, read};

pub(super) const MAGIC: Magic = *b"SW-CACH\x01";

/// Creates the file of a segment.
pub(crate) fn create(path: &Path) -> io::Result<Writer> {
    Writer::create(path, MAGIC)
}

/// Passes all changes of a folder to `apply`, in order. Returns the segments of the folder.
///
/// # Errors
/// The folder cannot be read. Errors of single files are in the report.
pub(crate) fn load(folder: &Path, mut apply: impl FnMut(Change<'_>)) -> io::Result<(Vec<Segment>, LoadReport)> {
    let segments = Segment::all(folder)?;
    let mut report = LoadReport::default();
    for (at, segment) in segments.iter().enumerate() {
        let path = Segment::path(folder, segment.number);
        // Earlier versions created files with the rights of their umask. A file of another user is not changed.
        let _ = File::open(&path).and_then(|file| private::narrow(&file));
        report.segments += 1;
        report.bytes += segment.bytes;
        let is_last = at + 1 == segments.len();
        match Segment::open(folder, segment.number, MAGIC) {
            Ok(None) => {}
            Ok(Some(mut reader)) => {
                let damage = load_segment(&mut reader, &mut report.changes, &mut apply);
                report.damage.extend(damage.map(|damage| (path.clone(), damage)));
                if is_last && reader.is_cut() {
                    Segment::cut(&path, reader.position());
                }
            }
            Err(damage) => report.damage.push((path, damage)),
        }
    }
    Ok((segments, report))
}

fn load_segment(reader: &mut Reader, changes: &mut u64, apply: &mut impl FnMut(Change<'_>)) -> Option<String> {
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
    reader.damage().or_else(|| (unknown > 0).then(|| format!("{unknown} records are not known")))
}
