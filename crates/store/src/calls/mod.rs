//! State by number that outlives the process: the last state of each number is kept in a place that an [`Engine`] writes to.
//!
//! A caller puts the state of a number as bytes, puts another in its place, removes it, or closes it with its last words. No caller waits:
//! what is put waits in memory, the last state of each number alone, until a thread takes all of it, at most once in
//! [`Settings::interval`], and has the engine write it in groups. So `kill -9` loses the changes of that time, and a place that is full, slow or
//! away costs memory for the numbers that have changed, each once, and loses nothing: the thread tries again, and writes the state of that moment.
//!
//! Last words ([`CallStore::close`]) stay for [`Settings::grace`] before the number is removed, and are given to the next process if this one is
//! killed before: the place that they are to reach by another way has that long to take them.
//!
//! The engines are in `strowger-backend`: a folder of segments, a SQLite file, a database server.

mod engine;
mod writing;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

pub use engine::{Change, Engine, Failure, Held, Left, LoadReport};

use strowger_files::LockError;

use crate::group::{GroupSettings, GroupWriter};
use writing::{Put, Writing};

/// How state is kept.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How long the first change of a group waits for others.
    pub interval: Duration,
    /// After a failure, the time until the next attempt to write.
    pub retry: Duration,
    /// How long last words stay before their number is removed.
    pub grace: Duration,
    /// How long it may take at the end to write what waits, attempts that fail among them; one that is under way then goes on.
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

/// Why a place cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it.
    #[error("{path}: another process keeps its state here", path = .0.display())]
    InUse(PathBuf),
    /// It cannot be made, read or written.
    #[error("{path}: {error}", path = .path.display())]
    Unusable {
        /// The folder, a file in it, or the file.
        path: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// What another engine says.
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
    /// Numbers that have a state or last words in their place.
    pub kept: u64,
    /// Bytes that they take there.
    pub bytes: u64,
    /// Numbers whose last change is still to be written.
    pub pending: u64,
    /// Records written since the start, those that were copied among them.
    pub written: u64,
    /// Attempts to write that failed.
    pub failures: u64,
    /// Nothing can be written at present.
    pub is_down: bool,
}

#[derive(Debug, Default)]
struct Counts {
    kept: AtomicU64,
    bytes: AtomicU64,
    /// Taken by the thread, and not yet written.
    unwritten: AtomicU64,
    written: AtomicU64,
    failures: AtomicU64,
    is_down: AtomicBool,
    /// The writer is to end.
    is_ending: AtomicBool,
}

/// Takes states and writes them. Dropped, it writes what is left, and ends its thread.
pub struct CallStore {
    writer: GroupWriter<Put>,
    counts: Arc<Counts>,
}

impl CallStore {
    /// Most bytes of a state. A longer one is not kept, which is logged.
    pub const LONGEST: usize = (1 << 20) - 1 - writing::BESIDE as usize;

    /// Gives all that an earlier process left there to `take`, and starts the thread.
    ///
    /// # Errors
    /// The engine cannot read what is there, or not write; or there is no thread.
    pub fn open(
        mut engine: Box<dyn Engine>,
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
        // The queue holds the last change of each number, so what there is of numbers bounds it.
        let group = GroupSettings { linger: settings.interval, group: usize::MAX, queue: usize::MAX };
        let writer = GroupWriter::start("call-store", group, writing, |_| ());
        let writer = writer.map_err(|error| OpenError::Unusable { path: PathBuf::from("a thread"), error })?;
        Ok((Self { writer, counts }, report))
    }

    /// This is the state of the number from now on. Neither waits nor does I/O, as all that follows.
    pub fn put(&self, number: u64, state: Box<[u8]>) {
        self.submit(number, Change::State(state));
    }

    /// Nothing is kept of the number any more.
    pub fn remove(&self, number: u64) {
        self.submit(number, Change::Removed);
    }

    /// The number has no state any more, and these last words.
    pub fn close(&self, number: u64, last_words: Box<[u8]>) {
        self.submit(number, Change::Closed(last_words));
    }

    fn submit(&self, number: u64, change: Change) {
        // A thread that has ended by a panic takes nothing more: see [`CallStore::has_ended`].
        let _ = self.writer.submit(Put { number, change });
    }

    /// The thread has ended: nothing is written any more.
    pub fn has_ended(&self) -> bool {
        self.writer.has_ended()
    }

    /// For the metrics.
    pub fn figures(&self) -> Figures {
        let of = |count: &AtomicU64| count.load(Relaxed);
        let Counts { kept, bytes, unwritten, written, failures, is_down, is_ending: _ } = &*self.counts;
        // In the order in which a change goes through both, so that none is missed.
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
