//! State by number, in a folder: the last state of each number outlives the process.
//!
//! A caller puts the state of a number as bytes, puts another in its place, removes it, or closes it with its last words. No caller waits:
//! what is put waits in memory, the last state of each number alone, until a thread takes all of it, at most once in
//! [`Settings::interval`], and writes it as a group. So `kill -9` loses the changes of that time, and a disk that is full or slow costs
//! memory for the numbers that have changed, each once, and loses nothing: the thread tries again, and writes the state of that moment.
//! Nothing is synced to the disk: a power cut may lose what the kernel had not written yet.
//!
//! The folder has segments, numbered files of [records](strowger_records): a state, last words, or that a number is gone. The last record of a
//! number counts. Of each state the thread knows in sixteen bytes where it stands. When more than half of all bytes are of states that have
//! been replaced, it copies what still counts of the oldest segment into the newest, in small steps between the groups, and removes the file:
//! no caller is asked for its state again.
//!
//! Last words ([`Keeper::close`]) stay for [`Settings::grace`] before the number is removed, and are given to the next process if this one is
//! killed before: the place that they are to reach by another way has that long to take them.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod pending;
mod place;
mod segments;
mod writing;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use pending::{Change, Pending};
use segments::{MAGIC, hold};
use strowger_records::Writer;
use writing::{OpenSegment, Writing};

/// Where state is kept, and how.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The folder, made if it is missing. One process at a time has it.
    pub folder: PathBuf,
    /// How long the first change of a group waits for others.
    pub interval: Duration,
    /// Bytes that a segment has, at least: the next group begins another. At most [`Settings::LARGEST_SEGMENT`].
    pub segment: u64,
    /// After a failure, the time until the next attempt to write.
    pub retry: Duration,
    /// How long last words stay before their number is removed.
    pub grace: Duration,
    /// How long to wait at the start for a process that is just ending and has the folder.
    pub wait: Duration,
}

impl Settings {
    /// Most bytes of [`Settings::segment`].
    pub const LARGEST_SEGMENT: u64 = 8 << 20;

    /// The defaults for this folder.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            interval: Duration::from_millis(100),
            segment: Self::LARGEST_SEGMENT,
            retry: Duration::from_secs(1),
            grace: Duration::from_secs(2),
            wait: Duration::from_secs(1),
        }
    }
}

/// Why a folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it.
    #[error("{path}: another process keeps its state in this folder", path = .0.display())]
    InUse(PathBuf),
    /// It cannot be made, read or written.
    #[error("{path}: {error}", path = .path.display())]
    Unusable {
        /// The folder, or a file in it.
        path: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
}

/// What an earlier process left, of one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left<'a> {
    /// Its last state.
    State(&'a [u8]),
    /// Its last words: it was closed, and not yet removed.
    LastWords(&'a [u8]),
}

/// What was found in a folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadReport {
    /// Bytes read.
    pub bytes: u64,
    /// Numbers with a state.
    pub states: u64,
    /// Numbers with last words.
    pub closed: u64,
    /// What could not be read: a file and a part of a sentence. The cut record that a kill leaves at the end is among them.
    pub damage: Vec<(PathBuf, String)>,
}

/// What a keeper has and has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Numbers that have a state or last words in the folder.
    pub kept: u64,
    /// Bytes of the segments.
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
    is_down: AtomicU64,
}

/// Takes states and writes them. Dropped, it writes what is left, and ends its thread.
pub struct Keeper {
    pending: Arc<Pending>,
    counts: Arc<Counts>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Opens the folder, gives all that an earlier process left there to `take`, and starts the thread.
    ///
    /// # Errors
    /// [`OpenError`]. Damaged records are no error: they are left out, and in the report.
    pub fn open(settings: Settings, take: impl FnMut(u64, Left<'_>)) -> Result<(Self, LoadReport), OpenError> {
        let create = |path: &std::path::Path| Ok(Writer::on(segments::create(path)?, MAGIC));
        Self::open_on(settings, take, Box::new(create))
    }

    /// The same on segments that `create` makes.
    fn open_on(
        settings: Settings,
        take: impl FnMut(u64, Left<'_>),
        create: OpenSegment,
    ) -> Result<(Self, LoadReport), OpenError> {
        let settings = Settings { segment: settings.segment.min(Settings::LARGEST_SEGMENT), ..settings };
        let lock = hold(&settings.folder, settings.wait)?;
        let unusable = |error| OpenError::Unusable { path: settings.folder.clone(), error };
        let (mut closed, mut take) = (Vec::new(), take);
        let (segments, index, report) = segments::load(&settings.folder, |number, left| {
            if matches!(left, Left::LastWords(_)) {
                closed.push(number);
            }
            take(number, left);
        })
        .map_err(unusable)?;
        let (pending, counts) = (Arc::<Pending>::default(), Arc::<Counts>::default());
        let mut writing = Writing::new(settings.clone(), create, segments, index, counts.clone(), lock);
        writing.were_closed(&closed);
        // Early: a folder that cannot be written is an error of the start.
        writing.begin_segment().map_err(unusable)?;
        let of_thread = pending.clone();
        let work = move || run(&of_thread, &settings, writing);
        let thread = std::thread::Builder::new().name("keeper".into()).spawn(work);
        let thread = thread.map_err(|error| OpenError::Unusable { path: PathBuf::from("a thread"), error })?;
        Ok((Self { pending, counts, thread: Some(thread) }, report))
    }

    /// This is the state of the number from now on. Neither waits nor does I/O, as all that follows.
    pub fn put(&self, number: u64, state: Box<[u8]>) {
        self.pending.put(number, Change::State(state));
    }

    /// Nothing is kept of the number any more.
    pub fn remove(&self, number: u64) {
        self.pending.put(number, Change::Removed);
    }

    /// The number has no state any more, and these last words.
    pub fn close(&self, number: u64, last_words: Box<[u8]>) {
        self.pending.put(number, Change::Closed(last_words));
    }

    /// The thread has ended: nothing is written any more.
    pub fn has_ended(&self) -> bool {
        self.pending.has_ended()
    }

    /// For the metrics.
    pub fn figures(&self) -> Figures {
        let of = |count: &AtomicU64| count.load(Relaxed);
        let Counts { kept, bytes, unwritten, written, failures, is_down } = &*self.counts;
        Figures {
            kept: of(kept),
            bytes: of(bytes),
            pending: self.pending.len() + of(unwritten),
            written: of(written),
            failures: of(failures),
            is_down: of(is_down) != 0 || self.pending.has_ended(),
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.pending.stop();
        if let Some(thread) = self.thread.take() {
            // It has said why in the log of panics.
            let _ = thread.join();
        }
    }
}

fn run(pending: &Pending, settings: &Settings, mut writing: Writing) {
    let _ends = Ends(pending);
    loop {
        let mut is_stopped = pending.wait(writing.pause(settings.interval));
        if !is_stopped && pending.len() > 0 {
            // For the company of the first change, and no more often than that.
            is_stopped = pending.linger(settings.interval);
        }
        writing.take(pending);
        writing.work(Instant::now(), is_stopped);
        if is_stopped {
            return;
        }
    }
}

/// However the thread ends, by a panic too: nothing waits for it any more.
struct Ends<'a>(&'a Pending);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

#[cfg(test)]
mod tests;
