//! System calls of a server, recorded by strace.

use crate::wait;
use std::path::PathBuf;
use std::time::Duration;

use tempfile::TempDir;

use crate::program::STRACE;

/// Output file of strace.
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

    /// Returns the words in front of a command line that make strace record these system calls, separated by commas,
    /// with this many bytes of each text.
    ///
    /// # Panics
    /// There is no strace.
    pub fn words(&self, calls: &str, bytes: usize) -> Vec<String> {
        self.words_with(&[], calls, bytes)
    }

    /// Returns [`Trace::words`] with these options of strace.
    ///
    /// # Panics
    /// There is no strace.
    pub fn words_with(&self, options: &[&str], calls: &str, bytes: usize) -> Vec<String> {
        let strace = STRACE.path().expect("strace is there").display().to_string();
        let (file, calls) = (self.file().display().to_string(), format!("trace={calls}"));
        // -D: the traced program stays our child, strace becomes its grandchild.
        let first = [&strace, "-D", "-f"].map(String::from);
        let last = ["-s", &bytes.to_string(), "-e", &calls, "-o", &file].map(String::from);
        first.into_iter().chain(options.iter().map(ToString::to_string)).chain(last).collect()
    }

    /// Returns the words in front of a command line that make strace inject this into a system call, such as
    /// `error=ENOMEM:when=1` or `delay_enter=100000` (in microseconds).
    ///
    /// # Panics
    /// There is no strace.
    pub fn injecting(&self, call: &str, what: &str) -> Vec<String> {
        [self.words(call, 0), vec!["-e".into(), format!("inject={call}:{what}")]].concat()
    }

    fn so_far(&self) -> String {
        std::fs::read_to_string(self.file()).unwrap_or_default()
    }

    /// Returns the whole trace once this process has ended: strace writes its last lines after the end of the traced
    /// process.
    ///
    /// # Panics
    /// The process does not end within ten seconds.
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
