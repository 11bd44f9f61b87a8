//! Log file with a size limit, at which it is rotated or ends.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Size limits of log files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Growth {
    /// `-ringbuffer_size`: bytes after which a new file begins; 0: never.
    pub turn: u64,
    /// `-ringbuffer_files`: number of full files to keep.
    pub kept: usize,
    /// `-max_log_size`: bytes after which nothing more is written; 0: no limit.
    pub most: u64,
}

/// Log file. The first record creates it unless it was opened before.
pub(super) struct LogFile {
    path: PathBuf,
    /// Name of full files without `_{seconds since 1970 at their start}.log`.
    stem: String,
    growth: Growth,
    append: bool,
    out: Option<BufWriter<File>>,
    written: u64,
    began: u64,
    full: VecDeque<PathBuf>,
    /// True if the file failed or has reached its limit.
    over: bool,
}

impl LogFile {
    /// Creates a log file named `given`, or `{base}_{name}.log` if no name is given. `append` keeps its content.
    pub(super) fn new(given: Option<&Path>, base: &str, name: &str, append: bool, growth: Growth) -> Self {
        let stem = format!("{base}_{name}");
        Self {
            path: given.map_or_else(|| format!("{stem}.log").into(), Path::to_path_buf),
            stem,
            growth,
            append,
            out: None,
            written: 0,
            began: 0,
            full: VecDeque::new(),
            over: false,
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether nothing was written yet.
    pub(super) const fn is_new(&self) -> bool {
        self.out.is_none() && !self.over
    }

    /// Opens the file, unless it is open.
    ///
    /// # Errors
    /// The file cannot be opened; the error is a sentence.
    pub(super) fn open(&mut self) -> Result<(), String> {
        if self.out.is_some() || self.over {
            return Ok(());
        }
        let mut how = OpenOptions::new();
        how.create(true).write(true);
        // A file that was rotated before has no content to keep.
        if self.append && self.began == 0 {
            how.append(true)
        } else {
            how.truncate(true)
        };
        let file = how.open(&self.path).map_err(|error| {
            self.over = true;
            format!("Unable to create '{}': {error}", self.path.display())
        })?;
        self.out = Some(BufWriter::with_capacity(1 << 16, file));
        self.written = 0;
        self.began = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        Ok(())
    }

    /// Writes a record.
    pub(super) fn write(&mut self, record: &[u8]) {
        if let Err(text) = self.open() {
            eprintln!("{text}");
        }
        let Some(out) = &mut self.out else { return };
        // Logs are shown on terminals.
        let record = &*crate::printable_bytes(record);
        if let Err(error) = out.write_all(record) {
            return self.fail(&error);
        }
        self.written += record.len() as u64;
        if self.growth.most > 0 && self.written >= self.growth.most {
            self.flush();
            (self.out, self.over) = (None, true);
        } else if self.growth.turn > 0 && self.written > self.growth.turn {
            self.turn();
        }
    }

    /// Renames the full file, and removes the oldest.
    fn turn(&mut self) {
        self.flush();
        self.out = None;
        if self.growth.kept == 0 {
            return;
        }
        if self.full.len() >= self.growth.kept
            && let Some(oldest) = self.full.pop_front()
        {
            let _ = std::fs::remove_file(oldest);
        }
        let name = |n: usize| match n {
            0 => PathBuf::from(format!("{}_{}.log", self.stem, self.began)),
            n => PathBuf::from(format!("{}_{}.{n}.log", self.stem, self.began)),
        };
        let free = (0..).map(name).find(|path| !path.exists());
        let full = free.expect("a folder has room for a name that none of its files has");
        match std::fs::rename(&self.path, &full) {
            Ok(()) => self.full.push_back(full),
            Err(error) => self.fail(&error),
        }
    }

    pub(super) fn flush(&mut self) {
        if let Some(Err(error)) = self.out.as_mut().map(BufWriter::flush) {
            self.fail(&error);
        }
    }

    /// Reports an error once.
    fn fail(&mut self, error: &std::io::Error) {
        if !std::mem::replace(&mut self.over, true) {
            eprintln!("'{}' cannot be written: {error}", self.path.display());
        }
        if let Some(out) = self.out.take() {
            // A dropped writer would try to write the remaining bytes again.
            drop(out.into_parts());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(folder: &Path, append: bool, growth: Growth) -> LogFile {
        let base = folder.join("run_1").to_string_lossy().into_owned();
        LogFile::new(None, &base, "messages", append, growth)
    }

    fn sizes(folder: &Path) -> Vec<u64> {
        let mut all: Vec<_> = folder.read_dir().unwrap().map(|e| e.unwrap()).collect();
        all.sort_by_key(std::fs::DirEntry::file_name);
        all.iter().map(|e| e.metadata().unwrap().len()).collect()
    }

    #[test]
    fn full_files_turn() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = file(folder.path(), false, Growth { turn: 25, kept: 2, most: 0 });
        assert!(log.is_new());
        for _ in 0..11 {
            log.write(b"0123456789");
        }
        log.flush();
        assert_eq!(sizes(folder.path()), [20, 30, 30]);
        // Without a number of files none is kept.
        let folder = tempfile::tempdir().unwrap();
        let mut log = file(folder.path(), false, Growth { turn: 25, kept: 0, most: 0 });
        (0..4).for_each(|_| log.write(b"0123456789"));
        log.flush();
        assert_eq!(sizes(folder.path()), [10]);
    }

    #[test]
    fn a_limit_ends_the_file_and_append_keeps_its_content() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("run_1_messages.log"), "old").unwrap();
        let mut log = file(folder.path(), true, Growth { turn: 0, kept: 0, most: 15 });
        (0..9).for_each(|_| log.write(b"0123456789"));
        assert_eq!(sizes(folder.path()), [23]);
        let mut log = file(folder.path(), false, Growth::default());
        log.write(b"new");
        log.flush();
        assert_eq!(sizes(folder.path()), [3]);
    }

    #[test]
    fn open_errors_are_reported() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = LogFile::new(Some(&folder.path().join("none/x")), "", "x", false, Growth::default());
        assert!(log.open().unwrap_err().contains("Unable to create"));
        log.write(b"lost");
        assert!(!log.is_new());
    }
}
