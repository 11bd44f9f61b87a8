//! Writing: records of one call are written completely or not at all.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::format::{Format, Salt};
use crate::reader::{OpenError, Reader};
use strowger_files::{FileNumber, private};

use crate::{LONGEST, Magic};

/// Destination of records: a file, or a substitute in a test.
pub trait Medium: Write + Send {
    /// Discards everything after the first `length` bytes and continues from there.
    ///
    /// # Errors
    /// Error of the system; the next write tries again.
    fn cut(&mut self, length: u64) -> io::Result<()>;

    /// Returns when all written bytes survive a power cut.
    ///
    /// # Errors
    /// Error of the system: they may not survive.
    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Medium for File {
    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.set_len(length)?;
        self.seek(SeekFrom::Start(length)).map(|_| ())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }
}

/// Writer of a file of records.
pub struct Writer {
    medium: Box<dyn Medium>,
    magic: Magic,
    /// Format of the existing file. An empty file gets another salt with its first record.
    format: Format,
    /// Length of the valid bytes, including the header; 0: no header either.
    length: u64,
    /// True if the medium may have more than `length` bytes.
    is_torn: bool,
    bytes: Vec<u8>,
    name: Option<Name>,
}

/// Name of the written file. The system accepts writes to a file without a name, and these are lost.
struct Name {
    path: PathBuf,
    file: FileNumber,
}

impl Name {
    fn of(path: &Path, file: &File) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), file: FileNumber::of(file)? })
    }

    fn is_the_files(&self) -> io::Result<()> {
        if FileNumber::named(&self.path) == Some(self.file) {
            return Ok(());
        }
        let path = self.path.display();
        Err(io::Error::other(format!("{path} was removed or replaced: put it back, or start again")))
    }
}

impl Writer {
    /// Creates a file, or overwrites an existing one. It is private to its user ([`private`]).
    ///
    /// # Errors
    /// Error of opening: no such folder, no permission.
    pub fn create(path: &Path, magic: Magic) -> io::Result<Self> {
        let file = private::file().truncate(true).open(path)?;
        // A file of another user is left alone.
        let _ = private::narrow(&file);
        let name = Some(Name::of(path, &file)?);
        Ok(Self { name, ..Self::on(file, magic) })
    }

    /// Opens an existing file, or creates one, private to its user. Cuts off a partial record at the end, as after a
    /// kill, and nothing else: records are appended after a damaged place. First copies a damaged file to
    /// `PATH.damaged-1` up to `-9`. Returns the losses of the file ([`Reader::damage`]), and the path of the copy.
    ///
    /// # Errors
    /// The file cannot be opened, or has another name or version; or it is a plain file with damage, which is cut
    /// there, and cannot be copied before.
    pub fn append(path: &Path, magic: Magic) -> Result<(Self, Option<String>), OpenError> {
        let unreadable = |error| OpenError::Unreadable { path: path.into(), error };
        let [name @ .., version] = magic;
        let (format, length, damage) = match Reader::open(path, name) {
            Ok((reader, found)) if found == version => left(path, reader).map_err(unreadable)?,
            Ok(_) => return Err(OpenError::NoRecords { path: path.into(), name }),
            Err(OpenError::Unreadable { error, .. }) if error.kind() == io::ErrorKind::NotFound => {
                (Format::Plain, 0, None)
            }
            Err(OpenError::Cut(_)) => (Format::Plain, 0, None),
            Err(error) => return Err(error),
        };
        let file = private::file().open(path).map_err(unreadable)?;
        let _ = private::narrow(&file);
        let name = Some(Name::of(path, &file).map_err(unreadable)?);
        let mut writer = Self { name, format, ..Self::on(file, magic) };
        writer.medium.cut(length).map_err(unreadable)?;
        writer.length = length;
        Ok((writer, damage))
    }

    /// Writes records to any medium.
    pub fn on(medium: impl Medium + 'static, magic: Magic) -> Self {
        let (format, bytes) = (Format::Plain, Vec::new());
        Self { medium: Box::new(medium), magic, format, length: 0, is_torn: false, bytes, name: None }
    }

    /// Writes the records that `fill` pushes: all of them, or none.
    ///
    /// # Errors
    /// Error of the system, or the file has lost its name; none of these records is stored then, and the next call
    /// tries again with its own.
    pub fn write(&mut self, fill: impl FnOnce(&mut Records<'_>)) -> io::Result<()> {
        self.name.as_ref().map_or(Ok(()), Name::is_the_files)?;
        self.bytes.clear();
        if self.length == 0 {
            self.format = Format::Salted(Salt::random());
            self.format.write_beginning(self.magic, &mut self.bytes);
        }
        fill(&mut Records { out: &mut self.bytes, format: self.format });
        if self.is_torn {
            self.medium.cut(self.length)?;
        }
        self.is_torn = true;
        self.medium.write_all(&self.bytes)?;
        self.is_torn = false;
        self.length += self.bytes.len() as u64;
        Ok(())
    }

    /// Tells whether the file still has the name by which it was opened.
    pub fn has_its_name(&self) -> bool {
        self.name.as_ref().is_none_or(|name| name.is_the_files().is_ok())
    }

    /// Removes all records: the file becomes empty.
    ///
    /// # Errors
    /// Error of the system; the next write tries again before anything else.
    pub fn clear(&mut self) -> io::Result<()> {
        (self.length, self.is_torn) = (0, true);
        self.medium.cut(0)?;
        self.is_torn = false;
        Ok(())
    }

    /// Returns when all written bytes survive a power cut.
    ///
    /// # Errors
    /// Error of the system: they may not survive.
    pub fn sync(&mut self) -> io::Result<()> {
        self.medium.sync()
    }

    /// Returns the offset of the first record of the next call.
    pub const fn start(&self) -> u64 {
        if self.length == 0 { Format::LONGEST_BEGINNING as u64 } else { self.length }
    }

    /// Returns the length of the file, including its header and damaged places.
    pub const fn length(&self) -> u64 {
        self.length
    }
}

/// Reads a file to its end. Returns its format, the offset of the next record, and the losses.
fn left(path: &Path, mut reader: Reader) -> io::Result<(Format, u64, Option<String>)> {
    while reader.next().is_some() {}
    let (format, end) = (reader.format(), std::fs::metadata(path)?.len());
    let Some(damage) = reader.damage() else { return Ok((format, reader.position(), None)) };
    let (length, copied) = match format {
        // Records after the damage would not be read.
        Format::Plain if reader.position() < end => (reader.position(), copy_aside(path)?),
        Format::Plain => (end, copy_aside(path)?),
        Format::Salted(_) if reader.is_cut() => {
            let has_more = damage.contains(" left out");
            (reader.position(), if has_more { copy_aside(path).unwrap_or(None) } else { None })
        }
        // Damage does not prevent the start of a server. Neither does a copy that finds no space, because nothing is
        // removed here.
        Format::Salted(_) => (end, copy_aside(path).unwrap_or(None)),
    };
    let copied = copied.map_or_else(String::new, |copy| format!("; the file as it was: {}", copy.display()));
    Ok((format, length, Some(damage + &copied)))
}

/// Copies a file within its folder, to the first free of nine names. Returns `None` if no name is free.
fn copy_aside(path: &Path) -> io::Result<Option<PathBuf>> {
    for number in 1..=9 {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".damaged-{number}"));
        let copy = PathBuf::from(name);
        match private::file().create_new(true).open(&copy) {
            Ok(mut file) => {
                let copied = io::copy(&mut File::open(path)?, &mut file);
                return match copied.and_then(|_| file.sync_all()) {
                    Ok(()) => Ok(Some(copy)),
                    Err(error) => {
                        let _ = std::fs::remove_file(&copy);
                        Err(error)
                    }
                };
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => (),
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Collector of the records of one call.
pub struct Records<'a> {
    out: &'a mut Vec<u8>,
    format: Format,
}

impl Records<'_> {
    /// Adds a record of this kind. `fill` appends its payload, at most [`LONGEST`] bytes.
    ///
    /// # Panics
    /// The payload is longer.
    pub fn push(&mut self, kind: u8, fill: impl FnOnce(&mut Vec<u8>)) {
        let out = &mut *self.out;
        let (start, length) = (out.len(), self.format.head_length());
        out.resize(start + length, 0);
        fill(out);
        let (head, payload) = out[start..].split_at_mut(length);
        let payload_length = u32::try_from(payload.len()).ok().filter(|length| *length <= LONGEST);
        let payload_length = payload_length.expect("a record is no longer than readers take");
        self.format.write_head(kind, payload_length, payload, head);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Disk;
    use std::sync::{Arc, Mutex};

    #[test]
    fn a_full_disk_takes_whole_groups_or_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        for room in 0..150 {
            let disk = Disk::new(room);
            let mut writer = Writer::on(disk.clone(), *b"RECORDS\x01");
            let mut group = |number: u8| {
                let two = |records: &mut Records<'_>| (0..2).for_each(|_| records.push(number, |out| out.push(number)));
                writer.write(two).is_ok()
            };
            let mut want: Vec<u8> = (1..=3).filter(|number| group(*number)).collect();
            disk.set_room(usize::MAX);
            assert!(group(4));
            want.push(4);
            std::fs::write(&path, disk.bytes()).unwrap();
            let (mut reader, _) = Reader::open(&path, *b"RECORDS").unwrap();
            let mut found = Vec::new();
            while let Some((kind, payload)) = reader.next() {
                assert_eq!(payload, [kind]);
                found.push(kind);
            }
            assert_eq!(found, want.iter().flat_map(|number| [*number; 2]).collect::<Vec<_>>(), "room for {room}");
            assert_eq!((reader.damage(), writer.length()), (None, reader.position()));
        }
    }

    #[test]
    fn the_next_writer_goes_on_behind_what_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let magic = *b"RECORDS\x01";
        let write = |text: &[u8]| {
            let (mut writer, damage) = Writer::append(&path, magic).unwrap();
            writer.write(|records| records.push(1, |out| out.extend_from_slice(text))).unwrap();
            writer.sync().unwrap();
            damage
        };
        assert_eq!([write(b"one"), write(b"two")], [None, None]);
        let whole = std::fs::read(&path).unwrap();
        for length in 0..=whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            let is_whole = length <= 40 || length == 40 + 16 || length == whole.len();
            assert_eq!(write(b"more").is_none(), is_whole, "{length}");
            let (mut reader, _) = Reader::open(&path, *b"RECORDS").unwrap();
            let mut found = Vec::new();
            while let Some((_, payload)) = reader.next() {
                found.push(payload.to_vec());
            }
            let first = 40 + 13 + 3;
            let kept = usize::from(length >= first) + usize::from(length >= first + 16);
            assert_eq!(found[..kept], [b"one", b"two"][..kept], "{length}");
            assert_eq!(found[kept..], [b"more"], "{length}");
            assert_eq!(reader.damage(), None);
        }
        assert!(Writer::append(&path, *b"RECORDS\x02").is_err(), "it is of another version");
        assert!(Writer::append(&path, *b"OTHERS!\x01").is_err(), "it is of another kind");
    }

    /// Medium that accepts writes, and refuses to cut until the test allows it.
    struct Stubborn(Disk, Arc<Mutex<bool>>);

    impl Write for Stubborn {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Medium for Stubborn {
        fn cut(&mut self, length: u64) -> io::Result<()> {
            if *self.1.lock().unwrap() { self.0.cut(length) } else { Err(io::ErrorKind::Other.into()) }
        }
    }

    #[test]
    fn what_is_cleared_is_gone_before_anything_else_is_written() {
        let (disk, cuts) = (Disk::new(usize::MAX), Arc::new(Mutex::new(false)));
        let mut writer = Writer::on(Stubborn(disk.clone(), cuts.clone()), *b"RECORDS\x01");
        let write = |writer: &mut Writer, kind| writer.write(|records| records.push(kind, |_| ()));
        let bytes = || disk.bytes();
        write(&mut writer, 1).unwrap();
        assert!(writer.clear().is_err() && write(&mut writer, 2).is_err());
        assert_eq!((writer.length(), writer.start(), bytes().len()), (0, 40, 53));
        *cuts.lock().unwrap() = true;
        write(&mut writer, 3).unwrap();
        assert_eq!((bytes()[44], bytes().len()), (3, 53));
        writer.clear().unwrap();
        assert_eq!((writer.length(), bytes()), (0, vec![]));
    }

    #[test]
    fn a_file_that_has_lost_its_name_takes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (path, away) = (folder.path().join("a"), folder.path().join("b"));
        for is_new in [true, false] {
            let magic = *b"RECORDS\x01";
            let mut writer = match is_new {
                true => Writer::create(&path, magic).unwrap(),
                false => Writer::append(&path, magic).unwrap().0,
            };
            let mut write = || writer.write(|records| records.push(1, |_| ()));
            write().unwrap();
            std::fs::rename(&path, &away).unwrap();
            let error = write().unwrap_err().to_string();
            assert!(error.contains("put it back") && error.contains(&*path.to_string_lossy()), "{error}");
            std::fs::write(&path, "another").unwrap();
            assert!(write().is_err());
            std::fs::rename(&away, &path).unwrap();
            write().unwrap();
            assert_eq!(Reader::open(&path, *b"RECORDS").unwrap().0.count(), if is_new { 2 } else { 4 });
        }
    }

    #[test]
    fn the_device_that_is_always_full() {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut writer = Writer::on(full, *b"RECORDS\x01");
        let error = writer.write(|records| records.push(1, |_| ())).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert_eq!(writer.length(), 0);
    }
}
