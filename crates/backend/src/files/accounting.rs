//! Rows in text files: one per day (UTC) and table, `cdr-2026-11-25.jsonl`, so that old rows can be removed as whole
//! files.
//!
//! A group is written to its files whole or not at all. A file that another program has moved, removed or cut is
//! continued in its present state. Only one process may use a folder, because it cuts off incomplete rows.

use crate::files::form::Form;
use jiff::SignedDuration;
use jiff::civil::Date;
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;
use strowger_files::{FileLock, FileNumber, LockError, private};
use strowger_store::accounting::cdr::{Row, Table};
use strowger_store::accounting::sink::{Sink, SinkError, Trouble};

/// Folder of such files.
pub struct Files {
    folder: PathBuf,
    form: Form,
    lock: Option<FileLock>,
    /// Open file of each table.
    open: [Option<Open>; 2],
}

/// File of a day.
struct Open {
    day: u64,
    path: PathBuf,
    file: File,
    /// Identifies the file: device and inode number.
    number: FileNumber,
    /// Length of the complete rows in bytes.
    length: u64,
    /// Value of `length` before the current group.
    before: u64,
    /// True if the file may be longer than `length`.
    is_torn: bool,
}

const DAY: u64 = 86_400_000;

/// Bytes that the search for the last line end reads at once.
const PART: u64 = 64 << 10;

/// Lock file of a folder. Its name begins with a dot, so that a `*` in the command of another program does not match
/// it.
const LOCK: &str = ".lock";

impl Files {
    /// Creates a sink without opening anything; the folder is created when needed.
    pub fn new(folder: &Path, form: Form) -> Self {
        Self { folder: folder.to_owned(), form, lock: None, open: [None, None] }
    }

    /// Creates and locks the folder.
    fn make_folder(&mut self) -> Result<(), SinkError> {
        if self.lock.is_some() {
            return private::make_folder(&self.folder).map_err(|error| SinkError::of_file(&self.folder, &error));
        }
        let lock = FileLock::of_folder(&self.folder, LOCK, Duration::ZERO).map_err(|error| match error {
            LockError::InUse(folder) => {
                let cure = "end that first, or name a folder of its own in accounting.path";
                let detail = format!("{}: another server writes there; {cure}", folder.display());
                SinkError { kind: Trouble::Unusable, detail }
            }
            LockError::Unusable { path, error } => SinkError::of_file(&path, &error),
        })?;
        self.lock = Some(lock);
        Ok(())
    }

    /// Returns the file of this day.
    fn file(&mut self, table: Table, day: u64) -> Result<&mut Open, SinkError> {
        let slot = &mut self.open[table as usize];
        if slot.as_ref().is_none_or(|open| open.day != day || !open.is_there()) {
            *slot = None;
        }
        if slot.is_none() {
            self.make_folder()?;
        }
        let name = format!("{}-{}.{}", table.name(), date(day), self.form.extension());
        let slot = &mut self.open[table as usize];
        match slot {
            Some(open) => Ok(open),
            None => {
                let path = self.folder.join(name);
                let open = Open::new(day, &path).map_err(|error| SinkError::of_file(&path, &error))?;
                Ok(slot.insert(open))
            }
        }
    }

    fn try_write(&mut self, rows: &[Box<Row>], day: u64) -> Result<(), SinkError> {
        let form = self.form;
        for table in Table::ALL {
            let mut of_table = rows.iter().filter(|row| row.table() == table).peekable();
            if of_table.peek().is_none() {
                continue;
            }
            let open = self.file(table, day)?;
            let mut text = Vec::new();
            if open.length == 0 {
                text.extend_from_slice(form.heading(table).as_bytes());
            }
            of_table.for_each(|row| form.write(row, &mut text));
            open.append(&text).map_err(|error| SinkError::of_file(&open.path, &error))?;
        }
        Ok(())
    }

    /// Returns the files of a table with their days, the oldest first.
    fn all(&self, table: Table) -> io::Result<Vec<(u64, PathBuf)>> {
        let (start, end) = (format!("{}-", table.name()), format!(".{}", self.form.extension()));
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            let name = entry.file_name();
            let day = name.to_str().and_then(|name| name.strip_prefix(&start)?.strip_suffix(&end)).and_then(day_of);
            found.extend(day.map(|day| (day, entry.path())));
        }
        found.sort();
        Ok(found)
    }
}

impl Sink for Files {
    fn place(&self) -> String {
        let form = match self.form {
            Form::Json => "json",
            Form::Csv => "csv",
        };
        format!("{form} {}", self.folder.display())
    }

    fn open(&mut self) -> Result<(), SinkError> {
        self.make_folder()
    }

    fn write(&mut self, rows: &[Box<Row>], now: u64) -> Result<(), SinkError> {
        self.open.iter_mut().flatten().for_each(|open| open.before = open.length);
        let result = self.try_write(rows, now / DAY);
        if result.is_err() {
            // The first of two files may be written: the rows are written to both files or to none.
            self.open.iter_mut().flatten().for_each(Open::take_back);
        }
        result
    }

    fn written(&mut self, identities: &HashSet<String>) -> Result<HashSet<String>, SinkError> {
        /// The last rows of a process are in the newest files: in two files, if the process worked over midnight.
        const NEWEST: usize = 2;
        let mut found = HashSet::new();
        for table in Table::ALL {
            let files = self.all(table).map_err(|error| SinkError::of_file(&self.folder, &error))?;
            for (_, path) in files.iter().rev().take(NEWEST) {
                let mut read = || -> io::Result<()> {
                    for line in BufReader::new(File::open(path)?).split(b'\n') {
                        let line = line?;
                        let identity = std::str::from_utf8(&line).ok().and_then(|line| self.form.identity(line));
                        found.extend(identity.and_then(|identity| identities.get(identity)).cloned());
                    }
                    Ok(())
                };
                read().map_err(|error| SinkError::of_file(path, &error))?;
            }
        }
        Ok(found)
    }

    fn purge(&mut self, before: u64) -> Result<bool, SinkError> {
        for table in Table::ALL {
            let files = self.all(table).map_err(|error| SinkError::of_file(&self.folder, &error))?;
            // A day is over when its last moment is before the limit.
            for (_, path) in files.iter().filter(|(day, _)| (day + 1) * DAY <= before) {
                fs::remove_file(path).map_err(|error| SinkError::of_file(path, &error))?;
            }
        }
        Ok(false)
    }
}

impl Open {
    fn new(day: u64, path: &Path) -> io::Result<Self> {
        let mut file = private::file().read(true).append(true).open(path)?;
        let metadata = file.metadata()?;
        let length = whole_rows(&mut file, metadata.len())?;
        let number = FileNumber::from(&metadata);
        Ok(Self { day, path: path.to_owned(), file, number, length, before: length, is_torn: true })
    }

    /// Returns whether the path still names this file with the same length. Otherwise another program has replaced, cut
    /// or extended the file.
    fn is_there(&self) -> bool {
        let has_all = |length| length == self.length || (self.is_torn && length > self.length);
        fs::metadata(&self.path).is_ok_and(|file| FileNumber::from(&file) == self.number && has_all(file.len()))
    }

    fn append(&mut self, text: &[u8]) -> io::Result<()> {
        if self.is_torn {
            self.cut()?;
        }
        self.is_torn = true;
        self.file.write_all(text)?;
        self.is_torn = false;
        self.length += text.len() as u64;
        Ok(())
    }

    fn take_back(&mut self) {
        if self.length != self.before || self.is_torn {
            (self.length, self.is_torn) = (self.before, true);
            // If the file cannot be cut now, it is cut before the next row.
            let _ = self.cut();
        }
    }

    /// Cuts off everything after the complete rows. If another program has made the file shorter meanwhile, it does not
    /// grow.
    fn cut(&mut self) -> io::Result<()> {
        self.length = self.length.min(self.file.metadata()?.len());
        self.file.set_len(self.length)
    }
}

/// Returns the length of the file up to its last line end. A partial row after a kill, or garbage after a power cut, is
/// not included.
fn whole_rows(file: &mut File, length: u64) -> io::Result<u64> {
    let (mut end, mut part) = (length, Vec::new());
    while end > 0 {
        let start = end.saturating_sub(PART);
        part.clear();
        file.seek(SeekFrom::Start(start))?;
        Read::by_ref(file).take(end - start).read_to_end(&mut part)?;
        if let Some(last) = part.iter().rposition(|byte| *byte == b'\n') {
            return Ok(start + last as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

const EPOCH: Date = jiff::civil::date(1970, 1, 1);

/// Returns the date of this day, which is counted from 1970, in the form `2026-11-25`.
fn date(day: u64) -> String {
    let since = i64::try_from(day).unwrap_or(i64::MAX).saturating_mul(24);
    EPOCH.saturating_add(SignedDuration::from_hours(since)).to_string()
}

/// Returns the day of such a date.
fn day_of(text: &str) -> Option<u64> {
    let date: Date = text.parse().ok()?;
    let day = u64::try_from(date.duration_since(EPOCH).as_hours() / 24).ok()?;
    // Other forms of a date are not in names of our files.
    (date >= EPOCH && date.to_string() == text).then_some(day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use strowger_store::accounting::cdr::{Cdr, Event};

    /// 2026-11-25.
    const NOW: u64 = 20_782 * DAY + 5_000;

    fn cdr(identity: &str) -> Box<Row> {
        Box::new(Row::Cdr(Cdr { identity: identity.into(), ..Cdr::default() }))
    }

    fn event(identity: &str) -> Box<Row> {
        Box::new(Row::Event(Event { identity: identity.into(), ..Event::default() }))
    }

    fn identities(path: &Path, form: Form) -> Vec<String> {
        let text = fs::read_to_string(path).unwrap_or_default();
        text.lines().filter_map(|line| form.identity(line)).map(str::to_owned).collect()
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (day, text) in
            [(0, "1970-01-01"), (58, "1970-02-28"), (59, "1970-03-01"), (11_016, "2000-02-29"), (20_782, "2026-11-25")]
        {
            assert_eq!((date(day).as_str(), day_of(text)), (text, Some(day)));
        }
        for day in (0..40_000).step_by(7) {
            assert_eq!(day_of(&date(day)), Some(day));
        }
        let others = ["2026-13-01", "2026-02-29", "x", "2026-11-25-1", "2026-11-25T10:00", "20261125", "1969-12-31"];
        assert_eq!(others.map(day_of), [None; 7]);
    }

    #[test]
    fn rows_stand_in_the_file_of_their_day_and_table() {
        let folder = tempfile::tempdir().unwrap();
        for form in [Form::Json, Form::Csv] {
            let path = |name: &str| folder.path().join(format!("{name}.{}", form.extension()));
            let mut files = Files::new(folder.path(), form);
            files.write(&[cdr("1"), event("1-0"), cdr("2")], NOW).unwrap();
            files.write(&[cdr("3")], NOW).unwrap();
            files.write(&[cdr("4")], NOW + DAY).unwrap();
            // Another process continues after the complete rows.
            fs::OpenOptions::new().append(true).open(path("cdr-2026-11-26")).unwrap().write_all(b"{\"ident").unwrap();
            drop(files);
            let mut files = Files::new(folder.path(), form);
            files.write(&[cdr("5")], NOW + DAY).unwrap();
            assert_eq!(identities(&path("cdr-2026-11-25"), form), ["1", "2", "3"]);
            assert_eq!(identities(&path("events-2026-11-25"), form), ["1-0"]);
            assert_eq!(identities(&path("cdr-2026-11-26"), form), ["4", "5"]);
            let text = fs::read_to_string(path("cdr-2026-11-26")).unwrap();
            assert_eq!(text.lines().count(), 2 + usize::from(form == Form::Csv), "{text}");
            assert_eq!(fs::metadata(path("cdr-2026-11-26")).unwrap().permissions().mode() & 0o777, 0o600);
            let asked = ["2", "5", "1-0", "7"].map(str::to_owned).into();
            let mut written: Vec<String> = files.written(&asked).unwrap().into_iter().collect();
            written.sort();
            assert_eq!(written, ["1-0", "2", "5"]);
            // Only the first of the two days is over.
            assert!(!files.purge((NOW / DAY + 1) * DAY).unwrap());
            assert_eq!((path("cdr-2026-11-25").exists(), path("cdr-2026-11-26").exists()), (false, true));
            assert!(!path("events-2026-11-25").exists());
        }
    }

    #[test]
    fn a_group_is_written_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let events = folder.path().join("events-2026-11-25.jsonl");
        let cdrs = folder.path().join("cdr-2026-11-25.jsonl");
        let mut files = Files::new(folder.path(), Form::Json);
        files.write(&[cdr("1")], NOW).unwrap();
        // The file of events is a device that accepts nothing.
        std::os::unix::fs::symlink("/dev/full", &events).unwrap();
        let error = files.write(&[cdr("2"), event("2-0")], NOW).unwrap_err();
        assert!(error.detail.contains("events-2026-11-25.jsonl"), "{error}");
        assert_eq!(identities(&cdrs, Form::Json), ["1"]);
        fs::remove_file(&events).unwrap();
        files.write(&[cdr("2"), event("2-0")], NOW).unwrap();
        assert_eq!(
            (identities(&cdrs, Form::Json), identities(&events, Form::Json)),
            (vec!["1".into(), "2".into()], vec!["2-0".into()])
        );
    }

    #[test]
    fn a_file_that_was_moved_away_is_made_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cdr-2026-11-25.csv");
        let mut files = Files::new(folder.path(), Form::Csv);
        files.write(&[cdr("1")], NOW).unwrap();
        fs::rename(&path, folder.path().join("moved")).unwrap();
        files.write(&[cdr("2")], NOW).unwrap();
        assert_eq!(identities(&path, Form::Csv), ["2"]);
        assert!(fs::read_to_string(&path).unwrap().starts_with("identity,"));
    }

    /// Another program may cut the file (`copytruncate` of logrotate), or a person may add a line.
    #[test]
    fn a_file_that_another_program_has_cut_or_written_goes_on_at_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cdr-2026-11-25.csv");
        let mut files = Files::new(folder.path(), Form::Csv);
        files.write(&[cdr("1"), cdr("2")], NOW).unwrap();
        let other = fs::OpenOptions::new().append(true).open(&path).unwrap();
        other.set_len(0).unwrap();
        files.write(&[cdr("3")], NOW).unwrap();
        (&other).write_all(b"other,\n").unwrap();
        files.write(&[cdr("4")], NOW).unwrap();
        assert_eq!(identities(&path, Form::Csv), ["3", "other", "4"]);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("identity,") && !text.contains('\0'), "{text:?}");
        // The roll-back cuts the file at its present end, and not at its earlier end.
        other.set_len(0).unwrap();
        std::os::unix::fs::symlink("/dev/full", folder.path().join("events-2026-11-25.csv")).unwrap();
        files.write(&[cdr("5"), event("5-0")], NOW).unwrap_err();
        assert_eq!(fs::read(&path).unwrap(), b"");
    }

    #[test]
    fn what_a_power_cut_left_at_the_end_costs_no_row() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cdr-2026-11-25.jsonl");
        Files::new(folder.path(), Form::Json).write(&[cdr("1")], NOW).unwrap();
        let whole = fs::metadata(&path).unwrap().len();
        fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(whole + (3 << 20)).unwrap();
        Files::new(folder.path(), Form::Json).write(&[cdr("2")], NOW).unwrap();
        assert_eq!(
            (identities(&path, Form::Json), fs::metadata(&path).unwrap().len()),
            (vec!["1".into(), "2".into()], 2 * whole)
        );
    }

    #[test]
    fn one_process_at_a_time_has_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        let mut first = Files::new(folder.path(), Form::Json);
        first.open().unwrap();
        let mut second = Files::new(folder.path(), Form::Csv);
        let error = second.open().unwrap_err();
        assert!(error.kind == Trouble::Unusable && error.detail.contains("another server writes there"), "{error}");
        assert_eq!(second.write(&[cdr("1")], NOW).unwrap_err(), error);
        drop(first);
        second.write(&[cdr("1")], NOW).unwrap();
    }

    #[test]
    fn what_the_system_says_is_named_with_the_file() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("file"), "").unwrap();
        let error = Files::new(&folder.path().join("file/in"), Form::Json).open().unwrap_err();
        assert!(error.kind == Trouble::Unusable && error.detail.contains("file/in"), "{error}");
        let full = SinkError::of_file(Path::new("x"), &io::ErrorKind::StorageFull.into());
        assert_eq!(full.kind, Trouble::Full);
    }
}
