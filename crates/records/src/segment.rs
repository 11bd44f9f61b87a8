//! Segments: numbered files of records in a folder, read in order.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use crate::{Magic, OpenError, Reader};

const ENDING: &str = "segment";

/// Segment and its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Number, which is its name.
    pub number: u64,
    /// Bytes of its file.
    pub bytes: u64,
}

impl Segment {
    /// Returns the path of a segment.
    pub fn path(folder: &Path, number: u64) -> PathBuf {
        folder.join(format!("{number:012}.{ENDING}"))
    }

    /// Returns the segments of a folder by number.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn all(folder: &Path) -> io::Result<Vec<Self>> {
        let mut segments = Vec::new();
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|ending| ending == ENDING)
                && let Some(number) = path.file_stem().and_then(|stem| stem.to_str()?.parse().ok())
            {
                let bytes = std::fs::metadata(&path).map_or(0, |file| file.len());
                segments.push(Self { number, bytes });
            }
        }
        segments.sort_unstable_by_key(|segment| segment.number);
        Ok(segments)
    }

    /// Opens a segment with this name and version. Returns `None` if a kill has cut the segment within its header.
    ///
    /// # Errors
    /// The end of a sentence that begins with its path.
    pub fn open(folder: &Path, number: u64, magic: Magic) -> Result<Option<Reader>, String> {
        let [name @ .., known] = magic;
        match Reader::open(&Self::path(folder, number), name) {
            Ok((reader, version)) if version == known => Ok(Some(reader)),
            Ok((_, version)) => Err(format!("it is of version {version}, which is not known")),
            Err(OpenError::Cut(_)) => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Cuts a file after its last complete record, so that the remains of a killed write are reported only once. A file
    /// that cannot be cut is still read.
    pub fn cut(path: &Path, length: u64) {
        let _ = File::options().write(true).open(path).and_then(|file| file.set_len(length));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Writer;

    const MAGIC: Magic = *b"SW-TEST\x01";

    #[test]
    fn segments_are_read_by_number_and_cut_after_their_last_record() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path();
        let mut lengths = Vec::new();
        for number in [10, 2, 1_000_000_000_000_000] {
            let mut writer = Writer::create(&Segment::path(folder, number), MAGIC).expect("a new file");
            writer.write(|records| records.push(1, |out| out.push(7))).expect("the disk has room");
            lengths.push(writer.length());
        }
        for other in ["x.segment", "3.other", "segment"] {
            std::fs::write(folder.join(other), "").expect("it can be written");
        }
        let segments = Segment::all(folder).expect("the folder can be read");
        let numbers: Vec<u64> = segments.iter().map(|segment| segment.number).collect();
        assert_eq!(numbers, [2, 10, 1_000_000_000_000_000]);
        assert!(segments.iter().all(|segment| segment.bytes == lengths[0]), "{segments:?} {lengths:?}");

        let path = Segment::path(folder, 2);
        let damage = |number: u64| {
            let mut reader = Segment::open(folder, number, MAGIC).expect("it has records").expect("and its header");
            assert_eq!(reader.next(), Some((1, &[7][..])));
            assert_eq!(reader.next(), None);
            (reader.is_cut(), reader.position())
        };
        let mut file = File::options().append(true).open(&path).expect("it is there");
        io::Write::write_all(&mut file, &[0; 5]).expect("the disk has room");
        let (is_cut, whole) = damage(2);
        assert!(is_cut && whole == lengths[1]);
        Segment::cut(&path, whole);
        assert_eq!(damage(2), (false, whole));

        Segment::cut(&path, 3);
        assert!(Segment::open(folder, 2, MAGIC).is_ok_and(|reader| reader.is_none()));
        let error = |number: u64, magic: Magic| Segment::open(folder, number, magic).err().unwrap_or_default();
        assert_eq!(error(10, *b"SW-TEST\x02"), "it is of version 1, which is not known");
        assert!(error(10, *b"SW-ELSE\x01").contains("does not begin with SW-ELSE"));
        assert!(error(11, MAGIC).contains("No such file"));
    }
}
