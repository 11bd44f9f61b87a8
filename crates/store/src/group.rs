//! Group writer for any kind of row: a thread of the writer commits rows that arrive close together in one group, in
//! order.
//!
//! A writer has a bound, a linger and figures. [`Commit::write`] defines the handling of a failed group. The
//! [`journal`](crate::journal) rolls back bindings in memory and fails their REGISTERs. Accounting keeps its rows and
//! writes them again, while the queue fills up to its bound. The call store ([`calls`](crate::calls)) writes the last
//! state of each call again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use strowger_metrics::{Histogram, Observed};

use crate::queue::Queue;
use crate::ticket::Refused;

/// Limits of a writer.
#[derive(Clone, Debug)]
pub struct GroupSettings {
    /// Time that the first row of a group waits for further rows.
    pub linger: Duration,
    /// Maximum number of rows in a group; a group that reaches it does not wait longer.
    pub group: usize,
    /// Largest weight of the queued rows; more are refused ([`Refused::Full`]). A group in progress is not included.
    pub queue: usize,
}

/// Row of a writer.
pub trait Row: Send + 'static {
    /// Returns the row's weight against the bound of the queue: more than one for a large row.
    fn weight(&self) -> usize {
        1
    }

    /// Returns the row's key, or `None` if it has no key. A new row replaces a queued row with the same key.
    fn key(&self) -> Option<u64> {
        None
    }
}

/// Row with its sequence number, from 1.
#[derive(Debug)]
pub struct Numbered<R> {
    /// Sequence number.
    pub number: u64,
    /// Row.
    pub row: R,
}

/// Writer of groups, on a thread of its own; may block.
pub trait Commit: Send + 'static {
    /// Type of the commit's rows.
    type Row: Row;

    /// Writes a group and removes the rows that are finished, stored or not. Remaining rows are passed again, before
    /// any later row, after the returned time. Once the writer is closed, they are passed one last time.
    fn write(&mut self, group: &mut Vec<Numbered<Self::Row>>, figures: &GroupFigures) -> Duration;

    /// Performs work that may take longer, between groups. Called when the thread begins, after each group, and after
    /// the returned time if no group has come by then.
    fn settle(&mut self) -> Option<Duration> {
        None
    }

    /// Writes rows that earlier calls deferred. Called once, after the last group and before the thread ends.
    fn finish(&mut self) {}
}

/// Figures of a writer, counted by its [`Commit`].
#[derive(Debug, Default)]
pub struct GroupFigures {
    pub(crate) groups: AtomicU64,
    pub(crate) kept: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) retried: AtomicU64,
    pub(crate) commit_us: AtomicU64,
    pub(crate) commit_max_us: AtomicU64,
    /// Updated only by the writer.
    pub(crate) commits: Histogram,
}

impl GroupFigures {
    /// Counts stored rows, and rows that are finally lost.
    pub fn rows(&self, kept: usize, failed: usize) {
        self.kept.fetch_add(kept as u64, Ordering::Relaxed);
        self.failed.fetch_add(failed as u64, Ordering::Relaxed);
    }

    /// Counts a commit and its duration.
    pub fn commit(&self, took: Duration, is_kept: bool) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.commit_us.fetch_add(us, Ordering::Relaxed);
        self.commit_max_us.fetch_max(us, Ordering::Relaxed);
        self.commits.observe(us);
        self.groups.fetch_add(u64::from(is_kept), Ordering::Relaxed);
    }
}

/// Figures of a writer since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupGauges {
    /// Weight of the queued rows.
    pub queued: usize,
    /// Bound of the queue.
    pub bound: usize,
    /// Groups committed.
    pub groups: u64,
    /// Rows stored.
    pub kept: u64,
    /// Rows failed.
    pub failed: u64,
    /// Rows refused because the queue was full.
    pub refused: u64,
    /// How often a group was written again.
    pub retried: u64,
    /// Total time in commits, in microseconds.
    pub commit_us: u64,
    /// Longest commit, in microseconds.
    pub commit_max_us: u64,
}

/// Queue with its thread. A drop writes the queued rows and ends the thread.
pub struct GroupWriter<R: Row> {
    queue: Arc<Queue<R>>,
    thread: Option<JoinHandle<()>>,
}

impl<R: Row> GroupWriter<R> {
    /// Starts a thread with this name. `abandon` gets the rows that are never written: after a panic of `commit`, or
    /// after the last failed attempt of a closed writer.
    ///
    /// # Errors
    /// The thread could not be started.
    pub fn start(
        name: &str,
        settings: GroupSettings,
        commit: impl Commit<Row = R>,
        abandon: impl Fn(Vec<R>) + Send + 'static,
    ) -> std::io::Result<Self> {
        Self::on(name, Arc::new(Queue::new(settings)), commit, abandon)
    }

    pub(crate) fn on(
        name: &str,
        queue: Arc<Queue<R>>,
        commit: impl Commit<Row = R>,
        abandon: impl Fn(Vec<R>) + Send + 'static,
    ) -> std::io::Result<Self> {
        let (of_thread, group) = (queue.clone(), Vec::new());
        // The guard is created here, so that rows are returned even if the thread has not begun.
        let left = Left { queue: of_thread, group, abandon };
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || run(left, commit))?;
        Ok(Self { queue, thread: Some(thread) })
    }

    /// Creates a writer without a thread: its owner writes by [`GroupSteps`].
    pub(crate) fn in_steps<C: Commit<Row = R>>(queue: Arc<Queue<R>>, commit: C) -> (Self, GroupSteps<C>) {
        let steps = GroupSteps { queue: queue.clone(), group: Vec::new(), commit };
        (Self { queue, thread: None }, steps)
    }

    /// Queues a row. Neither blocks nor does I/O.
    ///
    /// # Errors
    /// The queue is at its bound, or the thread has ended.
    pub fn submit(&self, row: R) -> Result<(), Refused> {
        self.queue.submit(row)
    }

    /// Makes the thread retry a failed group and [settle](Commit::settle) now.
    pub fn poke(&self) {
        self.queue.poke();
    }

    /// Returns figures for the log and the metrics.
    pub fn gauges(&self) -> GroupGauges {
        let f = &self.queue.figures;
        let of = |n: &AtomicU64| n.load(Ordering::Relaxed);
        GroupGauges {
            queued: self.queue.weight(),
            bound: self.queue.settings.queue,
            groups: of(&f.groups),
            kept: of(&f.kept),
            failed: of(&f.failed),
            refused: of(&f.refused),
            retried: of(&f.retried),
            commit_us: of(&f.commit_us),
            commit_max_us: of(&f.commit_max_us),
        }
    }

    /// Returns the weight of the rows that are queued or being written.
    pub fn waiting(&self) -> usize {
        self.queue.waiting()
    }

    /// Returns the histogram of commit times.
    pub fn commits(&self) -> Observed {
        self.queue.figures.commits.observed()
    }

    /// Tells whether the thread has ended by a panic; then every row is refused.
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_some_and(JoinHandle::is_finished)
    }

    /// Writes the queued rows and ends the thread. Later rows are refused.
    pub fn close(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.queue.stop();
        if let Some(thread) = self.thread.take() {
            let name = thread.thread().name().unwrap_or_default().to_owned();
            if thread.join().is_err() {
                tracing::error!(thread = %name, "a thread that writes to the database had ended by a panic");
            }
        }
    }
}

impl<R: Row> Drop for GroupWriter<R> {
    fn drop(&mut self) {
        self.end();
    }
}

/// Work of a writer's thread, one step at a time: a simulation thus writes as a server does, by its own clock.
pub(crate) struct GroupSteps<C: Commit> {
    queue: Arc<Queue<C::Row>>,
    group: Vec<Numbered<C::Row>>,
    commit: C,
}

impl<C: Commit> GroupSteps<C> {
    /// Takes a group if no group is open and a row is queued. Returns whether a group is open.
    pub(crate) fn take(&mut self) -> bool {
        !self.group.is_empty() || self.queue.try_take(&mut self.group)
    }

    /// Writes the open group. Rows that remain stay open for another attempt.
    pub(crate) fn write(&mut self) {
        if !self.group.is_empty() {
            self.commit.write(&mut self.group, &self.queue.figures);
            if self.group.is_empty() {
                self.queue.written();
            }
            let _patience = self.commit.settle();
        }
    }
}

fn run<C: Commit>(mut left: Left<C::Row, impl Fn(Vec<C::Row>)>, mut commit: C) {
    let mut patience = commit.settle();
    while left.queue.take(&mut left.group, patience).is_some() {
        while !left.group.is_empty() {
            let pause = commit.write(&mut left.group, &left.queue.figures);
            if left.group.is_empty() {
                break;
            }
            left.queue.figures.retried.fetch_add(1, Ordering::Relaxed);
            if !left.queue.pause(pause) {
                let _last = commit.write(&mut left.group, &left.queue.figures);
                left.give_up();
            }
        }
        left.queue.written();
        patience = commit.settle();
    }
    commit.finish();
}

/// Rows not written yet. After a panic of the thread, rows are refused instead of waiting for ever.
struct Left<R: Row, F: Fn(Vec<R>)> {
    queue: Arc<Queue<R>>,
    group: Vec<Numbered<R>>,
    abandon: F,
}

impl<R: Row, F: Fn(Vec<R>)> Left<R, F> {
    fn give_up(&mut self) {
        let rows: Vec<R> = self.group.drain(..).map(|numbered| numbered.row).collect();
        if !rows.is_empty() {
            self.queue.figures.rows(0, rows.len());
            (self.abandon)(rows);
        }
    }
}

impl<R: Row, F: Fn(Vec<R>)> Drop for Left<R, F> {
    fn drop(&mut self) {
        self.queue.stop();
        self.group.append(&mut self.queue.take_all());
        self.give_up();
    }
}
