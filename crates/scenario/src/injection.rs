//! Injection files (`-inf`): a line of values for each call, read by `[fieldN]`.
//!
//! The first line gives the order of lines, `SEQUENTIAL`, `RANDOM` or `USER`, and may add `PRINTF=n`, `PRINTFOFFSET=n`
//! and `PRINTFMULTIPLE=n`. The file then has n lines, made from its lines in turn; the number `offset + multiple *
//! line` replaces `%d`, `%03d` and so on. `;` separates fields, a line that begins with `#` is a comment, the first
//! empty line ends the file. The behaviour is that of SIPp 3.6.1, found by trying it.
//!
//! All shards share a file. They read it without a lock until `insert` or `replace` first changes it, and under a read
//! lock from then on. The memory is that of the file plus four bytes a line, and about seven more bytes a line with an
//! index.

use std::hash::BuildHasher;
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashTable};

/// Error of an injection file or of its use.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InjectionError {
    #[error("{file}: {error}")]
    Read { file: String, error: std::io::Error },
    #[error("{file}:1: the first line must hold SEQUENTIAL, RANDOM or USER, in capitals; it is '{line}'")]
    Order { file: String, line: String },
    #[error(
        "{file}:1: {what} needs = and a number right behind it, then a comma or the end of the line, as in SEQUENTIAL,PRINTF=100"
    )]
    Printf { file: String, what: &'static str },
    #[error("{file}:1: PRINTF=0 makes no line; write the number of lines wanted")]
    NoPrintfLine { file: String },
    #[error("{file}: no line of values follows the first line (an empty line ends the file)")]
    Empty { file: String },
    #[error("{file}: more than 4 GiB")]
    TooLarge { file: String },
    #[error("{file} has {lines} lines, but user {user} wants one of its own; use -users {lines} at most, or add lines")]
    User { file: String, lines: u32, user: u32 },
    #[error("{file}: field {column} '{field}': only %d, with digits, - and . between, has a meaning in a PRINTF file")]
    Format { file: String, column: u32, field: String },
    #[error("{file} is a PRINTF file, whose lines are made up: nothing can be inserted, replaced or indexed")]
    Virtual { file: String },
    #[error("{file} has no line {line}, its {lines} lines count from 0")]
    Line { file: String, line: i64, lines: u32 },
    #[error("{file} has no index for lookup; name it with -infindex {file} FIELD")]
    NoIndex { file: String },
}

/// Order in which calls get lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineOrder {
    /// One after the other, then again from the first.
    Sequential,
    Random,
    /// Each user has a line of its own.
    User,
}

/// Settings of a PRINTF file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Printf {
    lines: u32,
    offset: i64,
    multiple: i64,
}

/// Options of reading a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InjectionOptions {
    /// Removes a carriage return before the line end, which SIPp 3.6.1 leaves in the last field.
    pub strip_carriage_return: bool,
    /// Field of the index for `lookup`, from 0 (`-infindex`).
    pub index: Option<u32>,
}

/// Injection file.
#[derive(Debug)]
pub struct Injection {
    name: String,
    order: LineOrder,
    printf: Option<Printf>,
    bytes: Box<[u8]>,
    /// Start of each line.
    starts: Box<[u32]>,
    strip: bool,
    /// Number of lines that calls see.
    count: AtomicU32,
    next: AtomicU32,
    /// True once `changes` holds a line.
    changed: AtomicBool,
    changes: RwLock<Changes>,
}

#[derive(Debug, Default)]
struct Changes {
    replaced: HashMap<u32, Box<[u8]>, FixedState>,
    /// Lines after those of the file.
    inserted: Vec<Box<[u8]>>,
    index: Option<Index>,
}

/// Values of a field, each with the last line that has it.
#[derive(Debug)]
struct Index {
    column: u32,
    lines: HashTable<u32>,
}

const HASH: FixedState = FixedState::with_seed(0);

impl Injection {
    /// Reads a file.
    ///
    /// # Errors
    /// The file cannot be read or has no lines, with file and line.
    pub fn load(path: &Path, options: InjectionOptions) -> Result<Self, InjectionError> {
        let name = path.display().to_string();
        match std::fs::read(path) {
            Ok(bytes) => Self::new(name, bytes, options),
            Err(error) => Err(InjectionError::Read { file: name, error }),
        }
    }

    /// Parses the bytes of a file. `name` is for messages and [`Self::answers_to`].
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn new(name: String, bytes: Vec<u8>, options: InjectionOptions) -> Result<Self, InjectionError> {
        if u32::try_from(bytes.len()).is_err() {
            return Err(InjectionError::TooLarge { file: name });
        }
        let head_end = memchr::memchr(b'\n', &bytes).unwrap_or(bytes.len());
        let head = &bytes[..head_end];
        let order =
            [(&b"RANDOM"[..], LineOrder::Random), (b"SEQUENTIAL", LineOrder::Sequential), (b"USER", LineOrder::User)]
                .into_iter()
                .find_map(|(word, order)| memchr::memmem::find(head, word).map(|_| order));
        let Some(order) = order else {
            return Err(InjectionError::Order { file: name, line: String::from_utf8_lossy(head.trim_ascii()).into() });
        };
        let printf = match setting(&name, head, "PRINTF")? {
            None => None,
            Some(lines) => match u32::try_from(lines) {
                Ok(lines @ 1..) => Some(Printf {
                    lines,
                    offset: setting(&name, head, "PRINTFOFFSET")?.unwrap_or(0),
                    multiple: setting(&name, head, "PRINTFMULTIPLE")?.unwrap_or(1),
                }),
                _ => return Err(InjectionError::NoPrintfLine { file: name }),
            },
        };
        let starts = starts(&bytes, head_end + 1, options.strip_carriage_return);
        let lines = starts.len() as u32;
        if lines == 0 {
            return Err(InjectionError::Empty { file: name });
        }
        let injection = Self {
            name,
            order,
            printf,
            bytes: bytes.into_boxed_slice(),
            starts,
            strip: options.strip_carriage_return,
            count: AtomicU32::new(printf.map_or(lines, |printf| printf.lines)),
            next: AtomicU32::new(0),
            changed: AtomicBool::new(false),
            changes: RwLock::default(),
        };
        if let Some(column) = options.index {
            injection.index(column)?;
        }
        Ok(injection)
    }

    /// Returns the name as given.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether `file="name"` means this file: `name` is compared with the file name without folders.
    pub fn answers_to(&self, name: &[u8]) -> bool {
        self.name.rsplit('/').next().is_some_and(|base| base.as_bytes() == name)
    }

    /// Returns the order in which calls get lines.
    pub fn order(&self) -> LineOrder {
        self.order
    }

    /// Returns the number of lines that calls see.
    pub fn lines(&self) -> u32 {
        self.count.load(Ordering::Acquire)
    }

    /// Returns the line for a new call. `user` counts from 1; it is 0 without users, and then a USER file has no line
    /// and its fields are empty. `entropy` is random; only a RANDOM file uses it.
    ///
    /// # Errors
    /// A user beyond the lines of a USER file.
    pub fn pick(&self, user: u32, entropy: u64) -> Result<Option<u32>, InjectionError> {
        let lines = self.lines();
        Ok(match self.order {
            LineOrder::Sequential => {
                let mut line = self.next.load(Ordering::Relaxed);
                loop {
                    let next = if line + 1 >= lines { 0 } else { line + 1 };
                    match self.next.compare_exchange_weak(line, next, Ordering::Relaxed, Ordering::Relaxed) {
                        Ok(_) => break Some(line),
                        Err(now) => line = now,
                    }
                }
            }
            // As SIPp.
            LineOrder::Random => Some((entropy % u64::from(lines)) as u32),
            LineOrder::User if user > lines => {
                return Err(InjectionError::User { file: self.name.clone(), lines, user });
            }
            LineOrder::User => user.checked_sub(1),
        })
    }

    /// Appends a field of a line, both from 0; nothing if the line or the field is missing.
    ///
    /// # Errors
    /// A field of a PRINTF file with a wrong format; `out` is then unchanged.
    pub fn write_field(&self, line: u32, column: u32, out: &mut Vec<u8>) -> Result<(), InjectionError> {
        if let Some(printf) = self.printf {
            if line >= printf.lines {
                return Ok(());
            }
            let template = field(self.original(line % self.originals()), column);
            let number = printf.offset.wrapping_add(printf.multiple.wrapping_mul(i64::from(line)));
            let start = out.len();
            return write_format(template, number, out).map_err(|()| {
                out.truncate(start);
                let field = String::from_utf8_lossy(template).into();
                InjectionError::Format { file: self.name.clone(), column, field }
            });
        }
        if self.changed.load(Ordering::Acquire) {
            let changes = self.read();
            out.extend_from_slice(field(self.line(&changes, line), column));
        } else {
            out.extend_from_slice(field(self.original(line), column));
        }
        Ok(())
    }

    /// Returns whether a line has this field, counted from 0. Returns true for a line that does not exist.
    pub fn has_field(&self, line: u32, column: u32) -> bool {
        let separators = |text: &[u8]| memchr::memchr_iter(b';', text).take(column as usize).count() == column as usize;
        if let Some(printf) = self.printf {
            return line >= printf.lines || separators(self.original(line % self.originals()));
        }
        if line >= self.lines() {
            return true;
        }
        if self.changed.load(Ordering::Acquire) {
            let changes = self.read();
            separators(self.line(&changes, line))
        } else {
            separators(self.original(line))
        }
    }

    /// Builds the index for [`Self::look_up`] over a field, counted from 0. Replaces an earlier index.
    ///
    /// # Errors
    /// A PRINTF file.
    pub fn index(&self, column: u32) -> Result<(), InjectionError> {
        self.is_real()?;
        let mut changes = self.write();
        let mut index = Index { column, lines: HashTable::with_capacity(self.lines() as usize) };
        for line in 0..self.lines() {
            self.enter(&changes, &mut index, line);
        }
        changes.index = Some(index);
        Ok(())
    }

    /// Runs `lookup`: returns the last line whose indexed field is `key`.
    ///
    /// # Errors
    /// A file without index.
    pub fn look_up(&self, key: &[u8]) -> Result<Option<u32>, InjectionError> {
        let changes = self.read();
        let Some(index) = &changes.index else { return Err(InjectionError::NoIndex { file: self.name.clone() }) };
        let found = index.lines.find(HASH.hash_one(key), |&line| field(self.line(&changes, line), index.column) == key);
        Ok(found.copied())
    }

    /// Runs `insert`: appends a line.
    ///
    /// # Errors
    /// A PRINTF file.
    pub fn insert(&self, line: &[u8]) -> Result<(), InjectionError> {
        self.is_real()?;
        let mut changes = self.write();
        changes.inserted.push(line.into());
        self.changed.store(true, Ordering::Release);
        let number = self.lines();
        if let Some(mut index) = changes.index.take() {
            self.enter(&changes, &mut index, number);
            changes.index = Some(index);
        }
        self.count.store(number + 1, Ordering::Release);
        Ok(())
    }

    /// Runs `replace`: sets the text of a line. The old key is no longer found, even if another line has the same key.
    ///
    /// # Errors
    /// A PRINTF file, or a line that does not exist.
    pub fn replace(&self, line: i64, value: &[u8]) -> Result<(), InjectionError> {
        self.is_real()?;
        let mut changes = self.write();
        let lines = self.lines();
        let Some(number) = u32::try_from(line).ok().filter(|&number| number < lines) else {
            return Err(InjectionError::Line { file: self.name.clone(), line, lines });
        };
        let mut index = changes.index.take();
        if let Some(index) = &mut index {
            let hash = HASH.hash_one(field(self.line(&changes, number), index.column));
            if let Ok(entry) = index.lines.find_entry(hash, |&known| known == number) {
                entry.remove();
            }
        }
        let originals = self.originals();
        if number < originals {
            changes.replaced.insert(number, value.into());
        } else {
            changes.inserted[(number - originals) as usize] = value.into();
        }
        self.changed.store(true, Ordering::Release);
        if let Some(index) = &mut index {
            self.enter(&changes, index, number);
        }
        changes.index = index;
        Ok(())
    }

    /// Returns the number of lines of the file, without inserted ones.
    fn originals(&self) -> u32 {
        self.starts.len() as u32
    }

    fn is_real(&self) -> Result<(), InjectionError> {
        if self.printf.is_some() { Err(InjectionError::Virtual { file: self.name.clone() }) } else { Ok(()) }
    }

    // No lock is held across a call that can panic, so the tables are whole after a panic.
    fn read(&self) -> RwLockReadGuard<'_, Changes> {
        self.changes.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Changes> {
        self.changes.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a line to the index by its key.
    fn enter(&self, changes: &Changes, index: &mut Index, line: u32) {
        let column = index.column;
        let key = field(self.line(changes, line), column);
        let hash = |line: &u32| HASH.hash_one(field(self.line(changes, *line), column));
        let same = |known: &u32| field(self.line(changes, *known), column) == key;
        match index.lines.entry(HASH.hash_one(key), same, hash) {
            hashbrown::hash_table::Entry::Occupied(mut entry) => *entry.get_mut() = line,
            hashbrown::hash_table::Entry::Vacant(entry) => drop(entry.insert(line)),
        }
    }

    fn line<'a>(&'a self, changes: &'a Changes, line: u32) -> &'a [u8] {
        let originals = self.originals();
        match line.checked_sub(originals) {
            Some(inserted) => changes.inserted.get(inserted as usize).map_or(&b""[..], |line| line),
            None => match changes.replaced.get(&line) {
                Some(line) => line,
                None => self.original(line),
            },
        }
    }

    fn original(&self, line: u32) -> &[u8] {
        let Some(&start) = self.starts.get(line as usize) else { return b"" };
        let rest = &self.bytes[start as usize..];
        let line = &rest[..memchr::memchr(b'\n', rest).unwrap_or(rest.len())];
        if self.strip { line.strip_suffix(b"\r").unwrap_or(line) } else { line }
    }
}

/// Returns a setting of the first line. SIPp searches for the first occurrence of the word, so `PRINTF` must precede
/// `PRINTFOFFSET`.
fn setting(file: &str, head: &[u8], word: &'static str) -> Result<Option<i64>, InjectionError> {
    let Some(at) = memchr::memmem::find(head, word.as_bytes()) else { return Ok(None) };
    let wrong = || InjectionError::Printf { file: file.to_owned(), what: word };
    let text = head[at + word.len()..].strip_prefix(b"=").ok_or_else(wrong)?;
    let end = text.iter().position(|&byte| matches!(byte, b',' | b'\r')).unwrap_or(text.len());
    let text = std::str::from_utf8(&text[..end]).map_err(|_| wrong())?;
    let (digits, radix) = match text.strip_prefix("0x") {
        Some(digits) => (digits, 16),
        None => (text, 10),
    };
    i64::from_str_radix(digits, radix).map(Some).map_err(|_| wrong())
}

/// Returns the starts of the lines of values, from `at` to the first empty line.
fn starts(bytes: &[u8], mut at: usize, strip: bool) -> Box<[u32]> {
    let mut starts = Vec::new();
    while at < bytes.len() {
        let end = memchr::memchr(b'\n', &bytes[at..]).map_or(bytes.len(), |length| at + length);
        match &bytes[at..end] {
            [] => break,
            b"\r" if strip => break,
            [b'#', ..] => {}
            // The caller has checked that the file is below 4 GiB.
            _ => starts.push(at as u32),
        }
        at = end + 1;
    }
    starts.into_boxed_slice()
}

/// Returns a field of a line, or an empty text if the field is missing.
fn field(line: &[u8], column: u32) -> &[u8] {
    let mut rest = line;
    for _ in 0..column {
        match memchr::memchr(b';', rest) {
            Some(end) => rest = &rest[end + 1..],
            None => return b"",
        }
    }
    &rest[..memchr::memchr(b';', rest).unwrap_or(rest.len())]
}

/// Appends a field with the number in place of each format of `printf`: `%d` with flags `-` and `0`, width and
/// precision.
fn write_format(template: &[u8], number: i64, out: &mut Vec<u8>) -> Result<(), ()> {
    let mut rest = template;
    while let Some(at) = memchr::memchr(b'%', rest) {
        out.extend_from_slice(&rest[..at]);
        let length = rest[at + 1..].iter().position(|byte| !matches!(byte, b'0'..=b'9' | b'-' | b'.')).ok_or(())?;
        let format = &rest[at + 1..at + 1 + length];
        if rest[at + 1 + length] != b'd' {
            return Err(());
        }
        write_number(format, number, out)?;
        rest = &rest[at + length + 2..];
    }
    out.extend_from_slice(rest);
    Ok(())
}

/// Writes the number; `format` is the text between `%` and `d`. Widths are at most 1,000.
fn write_number(format: &[u8], number: i64, out: &mut Vec<u8>) -> Result<(), ()> {
    let flags = format.iter().take_while(|byte| matches!(byte, b'-' | b'0')).count();
    let (flags, sizes) = format.split_at(flags);
    let mut sizes = sizes.split(|&byte| byte == b'.').map(|digits| match digits {
        [] => Ok(None),
        digits => std::str::from_utf8(digits).ok().and_then(|digits| digits.parse::<usize>().ok()).map(Some).ok_or(()),
    });
    let width = sizes.next().transpose()?.flatten().unwrap_or(0).min(1_000);
    let precision = sizes.next().transpose()?.map(|digits| digits.unwrap_or(0).min(1_000));
    let (left, zeros) = (flags.contains(&b'-'), flags.contains(&b'0'));
    let sign = usize::from(number < 0);
    let digits = match (precision, zeros && !left) {
        (Some(precision), _) => precision,
        (None, true) => width.saturating_sub(sign),
        (None, false) => 1,
    };
    let start = out.len();
    if sign == 1 {
        out.push(b'-');
    }
    let written = write!(out, "{:0digits$}", number.unsigned_abs());
    debug_assert!(written.is_ok(), "a Vec takes all");
    let missing = width.saturating_sub(out.len() - start);
    out.extend(std::iter::repeat_n(b' ', missing));
    if !left {
        out[start..].rotate_right(missing);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
