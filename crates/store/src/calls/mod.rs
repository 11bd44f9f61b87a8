//! Persistent state by number: a [`CallEngine`] stores the last state of each number.
//!
//! A caller stores the state of a number (a call) as bytes, replaces or removes the state, or closes the number with
//! final bytes, its last words. No caller waits: the last state of each number waits in memory until a thread takes all
//! of them, at most once in [`Settings::interval`], and has the engine write them in groups. So `kill -9` loses the
//! changes of at most that interval. If the storage is full, slow or unreachable, no change is lost, and memory holds
//! the last state of each changed number: the thread tries again, and then writes the present state.
//!
//! Last words ([`CallStore::close`]), such as the accounting rows of a call, stay for [`Settings::grace`] before the number is
//! removed. In this time another consumer can store the same rows. If the process is killed before, the next process gets the last words.
//!
//! The engines are in `strowger-backend`: a folder of segments, a SQLite file, a database server.

mod engine;
mod writing;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

pub use engine::{CallEngine, Change, Failure, Held, Left, LoadReport};

use strowger_files::LockError;

use crate::group::{GroupSettings, GroupWriter};
use writing::{Put, Writing};

/// Settings of the call store.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Time that the first change of a group waits for others.
    pub interval: Duration,
    /// Time between a failure and the next attempt to write.
    pub retry: Duration,
    /// Time that last words stay before their number is removed.
    pub grace: Duration,
    /// Longest time at the end to write the remaining changes, including failed attempts; an attempt in progress may
    /// exceed it.
    pub end: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            interval: Duration::from_millis(100),
            retry: Duration::from_secs(1),
            grace: Duration::from_secs(2),
            end: Duration::from_secs(5),
        }
    }
}

/// Reason why a storage cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process uses it.
    #[error("{path}: another process keeps its state here", path = .0.display())]
    InUse(PathBuf),
    /// The folder or database cannot be created, read or written.
    #[error("{path}: {error}", path = .path.display())]
    Unusable {
        /// Folder, a file in it, or single file.
        path: PathBuf,
        /// Error of the system.
        error: std::io::Error,
    },
    /// Error of another engine.
    #[error(transparent)]
    Engine(Failure),
}

impl From<LockError> for OpenError {
    fn from(error: LockError) -> Self {
        match error {
            LockError::InUse(path) => Self::InUse(path),
            LockError::Unusable { path, error } => Self::Unusable { path, error },
        }
    }
}

/// Figures of a call store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Numbers in storage: those with a state, and closed ones with their last words.
    pub kept: u64,
    /// Bytes used in storage.
    pub bytes: u64,
    /// Numbers whose last change is still to be written.
    pub pending: u64,
    /// Records written since the start, including copies.
    pub written: u64,
    /// Failed attempts to write.
    pub failures: u64,
    /// Set while writes fail.
    pub is_down: bool,
}

#[derive(Debug, Default)]
struct Counts {
    kept: AtomicU64,
    bytes: AtomicU64,
    /// Changes taken by the thread and not yet written.
    unwritten: AtomicU64,
    written: AtomicU64,
    failures: AtomicU64,
    is_down: AtomicBool,
    /// Set when the writer must end.
    is_ending: AtomicBool,
}

/// Store of states. A drop writes the remaining changes, and ends the thread.
pub struct CallStore {
    writer: GroupWriter<Put>,
    counts: Arc<Counts>,
}

impl CallStore {
    /// Maximum size of a state, in bytes. A longer one is not stored, and logged.
    pub const LONGEST: usize = (1 << 20) - 1 - writing::BESIDE as usize;

    /// Passes all data of an earlier process to `take`, and starts the thread.
    ///
    /// # Errors
    /// The engine cannot read or write, or the thread cannot be started.
    pub fn open(
        mut engine: Box<dyn CallEngine>,
        settings: Settings,
        mut take: impl FnMut(u64, Left<'_>) + Send,
    ) -> Result<(Self, LoadReport), OpenError> {
        let mut closed = Vec::new();
        let report = engine.load(&mut |number, left| {
            if matches!(left, Left::LastWords(_)) {
                closed.push(number);
            }
            take(number, left);
        })?;
        let counts = Arc::<Counts>::default();
        let writing = Writing::new(settings, engine, &closed, counts.clone());
        // The queue holds only the last change of each number, so its length is bounded by the number of numbers.
        let group = GroupSettings { linger: settings.interval, group: usize::MAX, queue: usize::MAX };
        let writer = GroupWriter::start("call-store", group, writing, |_| ());
        let writer = writer.map_err(|error| OpenError::Unusable { path: PathBuf::from("a thread"), error })?;
        Ok((Self { writer, counts }, report))
    }

    /// Sets the state of the number. Neither waits nor does I/O; this is also true of the following functions.
    pub fn put(&self, number: u64, state: Box<[u8]>) {
        self.submit(number, Change::State(state));
    }

    /// Removes the number.
    pub fn remove(&self, number: u64) {
        self.submit(number, Change::Removed);
    }

    /// Replaces the state of the number by these last words.
    pub fn close(&self, number: u64, last_words: Box<[u8]>) {
        self.submit(number, Change::Closed(last_words));
    }

    fn submit(&self, number: u64, change: Change) {
        // A thread that ended by a panic takes no more changes: see [`CallStore::has_ended`].
        let _ = self.writer.submit(Put { number, change });
    }

    /// Tells whether the thread has ended; then nothing is written any more.
    pub fn has_ended(&self) -> bool {
        self.writer.has_ended()
    }

    /// Returns figures for the metrics.
    pub fn figures(&self) -> Figures {
        let of = |count: &AtomicU64| count.load(Relaxed);
        let Counts { kept, bytes, unwritten, written, failures, is_down, is_ending: _ } = &*self.counts;
        // The counters are read in the order in which a change passes them, so that no change is missed.
        let waiting = self.writer.waiting() as u64;
        Figures {
            kept: of(kept),
            bytes: of(bytes),
            pending: waiting + of(unwritten),
            written: of(written),
            failures: of(failures),
            is_down: is_down.load(Relaxed) || self.has_ended(),
        }
    }
}

impl Drop for CallStore {
    fn drop(&mut self) {
        self.counts.is_ending.store(true, Relaxed);
    }
}
