//! The system calls of a server, as strace writes them down.

use crate::wait;
use std::path::PathBuf;
use std::time::Duration;

use tempfile::TempDir;

use crate::program::STRACE;

/// A file that strace writes.
#[derive(Debug)]
pub struct Trace {
    folder: TempDir,
}

impl Default for Trace {
    fn default() -> Self {
        Self { folder: tempfile::tempdir().expect("a temporary folder can be made") }
    }
}

impl Trace {
    fn file(&self) -> PathBuf {
        self.folder.path().join("trace")
    }

    /// The words that stand in front of a command line: of its system calls these are written, separated by commas, with so many
    /// bytes of each text.
    ///
    /// # Panics
    /// There is no strace.
    pub fn words(&self, calls: &str, bytes: usize) -> Vec<String> {
        self.words_with(&[], calls, bytes)
    }

    /// [`Trace::words`] with these options of strace.
    ///
    /// # Panics
    /// There is no strace.
    pub fn words_with(&self, options: &[&str], calls: &str, bytes: usize) -> Vec<String> {
        let strace = STRACE.path().expect("strace is there").display().to_string();
        let (file, calls) = (self.file().display().to_string(), format!("trace={calls}"));
        // -D: what is traced stays our child, strace becomes its grandchild.
        let first = [&strace, "-D", "-f"].map(String::from);
        let last = ["-s", &bytes.to_string(), "-e", &calls, "-o", &file].map(String::from);
        first.into_iter().chain(options.iter().map(ToString::to_string)).chain(last).collect()
    }

    /// The words that stand in front of a command line: strace does this to each of these system calls, such as `error=ENOMEM:when=1` or
    /// `delay_enter=100000` (in microseconds).
    ///
    /// # Panics
    /// There is no strace.
    pub fn injecting(&self, call: &str, what: &str) -> Vec<String> {
        [self.words(call, 0), vec!["-e".into(), format!("inject={call}:{what}")]].concat()
    }

    fn so_far(&self) -> String {
        std::fs::read_to_string(self.file()).unwrap_or_default()
    }

    /// Everything, once this process has ended: strace writes its last lines behind the end of what it traces.
    ///
    /// # Panics
    /// It does not in ten seconds.
    pub fn whole(&self, process: u32) -> String {
        let process = process.to_string();
        // `PID +++ exited with 0 +++`
        let is_last = |line: &str| {
            line.split_once(' ').is_some_and(|(id, rest)| id == process && rest.trim_start().starts_with("+++ "))
        };
        let whole = || Some(self.so_far()).filter(|text| text.lines().any(is_last));
        wait::look(Duration::from_secs(10), whole)
            .unwrap_or_else(|| panic!("strace does not say that {process} has ended"))
    }
}
