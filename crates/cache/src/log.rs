//! Log of a local cache: stored values outlive the process.
//!
//! The log is a folder of segments, numbered files of [records](strowger_records). Each record is a change: a value
//! stored, a key removed. The last change of a key counts. Changes are noted under the lock of their partition, so the
//! log has the order of changes in memory; a thread takes them from all partitions and writes them as a group.
//!
//! Receipts number groups, not changes. The thread first increments the number, then takes the changes of the
//! partitions. So the group has every change with an earlier receipt, and one number shows the progress of all
//! partitions.
//!
//! A compaction begins a segment. It makes each partition note all its entries again, a few under each lock, between
//! the changes that continue meanwhile. Then it removes the earlier segments, the oldest first. So at any time the
//! remaining log has the correct last change of each key.
//!
//! If the log cannot be written, or changes arrive faster than they are written, the cache continues in memory. A
//! compaction is the next attempt to write: at its end the log has the contents of memory, and receipts given meanwhile
//! are valid.
//!
//! Evictions are not noted: an evicted entry may be present again after a start, with its remaining life, unless it was
//! removed.

pub(crate) mod changes;
mod keeper;
mod segments;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::error::CacheError;
use crate::gauges::LogGauges;
use crate::request::CacheAnswer;
use crate::ticket::{Answered, Receivers, Ticket};

pub(crate) use self::keeper::{Keeper, OpenSegment};
pub(crate) use self::segments::{create, load};

/// Number of the group by which a change reaches the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Receipt(pub(crate) u64);

/// One moment on two clocks, in milliseconds: the clock of the cache, and the wall clock, which the next process uses
/// to continue lifetimes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Time of the cache's clock.
    pub now: u64,
    /// Time since 1970.
    pub wall: u64,
}

/// Report of a load.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadReport {
    /// Segments read.
    pub segments: usize,
    /// Bytes read.
    pub bytes: u64,
    /// Changes read.
    pub changes: u64,
    /// Entries in memory afterwards.
    pub entries: u64,
    /// Unreadable data: a file and a part of a sentence. Includes the cut record that a kill leaves at the end.
    pub damage: Vec<(PathBuf, String)>,
}

/// State shared by the log thread and the storing threads.
#[derive(Default)]
pub(crate) struct LogState {
    /// Number of the next group.
    group: AtomicU64,
    /// Last group in the log.
    kept: AtomicU64,
    waiting: Mutex<Waiting>,
    progress: Condvar,
    signal: Mutex<Signal>,
    wake: Condvar,
    /// Set while the thread sleeps until it is woken.
    is_idle: AtomicBool,
    pub(crate) receivers: Receivers,
    figures: Figures,
}

#[derive(Default)]
struct Figures {
    written: AtomicU64,
    bytes: AtomicU64,
    segments: AtomicU64,
    compactions: AtomicU64,
    failures: AtomicU64,
}

#[derive(Default)]
struct Waiting {
    tickets: Vec<(Receipt, Ticket, CacheAnswer)>,
    /// Reason why the log is not written at present.
    error: Option<CacheError>,
}

#[derive(Default)]
struct Signal {
    is_woken: bool,
    is_stopped: bool,
    /// Set when a compaction is requested.
    compact: bool,
}

impl LogState {
    pub(crate) fn new() -> Self {
        // No change has receipt 0, because nothing is logged yet.
        Self { group: AtomicU64::new(1), ..Self::default() }
    }

    /// Returns the receipt of a noted change. Called under the lock of its partition.
    pub(crate) fn receipt(&self) -> Receipt {
        Receipt(self.group.load(Ordering::Acquire))
    }

    /// Wakes the thread after a change was noted and the lock of its partition released.
    pub(crate) fn wake(&self) {
        if self.is_idle.load(Ordering::SeqCst) && self.is_idle.swap(false, Ordering::SeqCst) {
            self.signal().is_woken = true;
            self.wake.notify_all();
        }
    }

    pub(crate) fn kept(&self) -> Receipt {
        Receipt(self.kept.load(Ordering::Acquire))
    }

    /// Returns the ticket with the answer once the group is logged. Returns `Some` if the result is known already.
    pub(crate) fn answer_when_kept(
        &self,
        receipt: Receipt,
        ticket: Ticket,
        answer: CacheAnswer,
    ) -> Option<Result<CacheAnswer, CacheError>> {
        let mut waiting = self.waiting();
        if self.kept() >= receipt {
            return Some(Ok(answer));
        }
        if let Some(error) = waiting.error {
            return Some(Err(error));
        }
        waiting.tickets.push((receipt, ticket, answer));
        None
    }

    pub(crate) fn wait(&self, receipt: Receipt, most: Duration) -> Result<(), CacheError> {
        let end = Instant::now() + most;
        let mut waiting = self.waiting();
        loop {
            if self.kept() >= receipt {
                return Ok(());
            }
            if let Some(error) = waiting.error {
                return Err(error);
            }
            let left = end.checked_duration_since(Instant::now()).ok_or(CacheError::TimedOut)?;
            (waiting, _) = self.progress.wait_timeout(waiting, left).unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(crate) fn compact(&self) {
        let mut signal = self.signal();
        (signal.is_woken, signal.compact) = (true, true);
        self.wake.notify_all();
    }

    pub(crate) fn stop(&self) {
        let mut signal = self.signal();
        (signal.is_woken, signal.is_stopped) = (true, true);
        self.wake.notify_all();
    }

    /// Returns the figures of the log, without those of the queue, which the caller adds.
    pub(crate) fn gauges(&self) -> LogGauges {
        let of = |n: &AtomicU64| n.load(Ordering::Relaxed);
        let f = &self.figures;
        LogGauges {
            written: of(&f.written),
            bytes: of(&f.bytes),
            segments: of(&f.segments),
            compactions: of(&f.compactions),
            failures: of(&f.failures),
            failing: u64::from(self.waiting().error.is_some()),
            ..LogGauges::default()
        }
    }

    /// Begins the next group. Changes with the returned number or an earlier one are noted already.
    fn next_group(&self) -> Receipt {
        Receipt(self.group.fetch_add(1, Ordering::AcqRel))
    }

    /// Marks the groups up to this one as logged. `is_whole`: whether the log is complete again.
    fn keep(&self, group: Receipt, is_whole: bool) {
        let answers = {
            let mut waiting = self.waiting();
            if is_whole {
                waiting.error = None;
            }
            self.kept.store(group.0, Ordering::Release);
            waiting
                .tickets
                .extract_if(.., |(receipt, ..)| *receipt <= group)
                .map(|(_, ticket, answer)| (ticket, Ok(answer)))
                .collect()
        };
        self.progress.notify_all();
        self.hand_out(answers);
    }

    /// Marks the log as failed.
    fn fail(&self, error: CacheError) {
        let answers = {
            let mut waiting = self.waiting();
            waiting.error = Some(error);
            waiting.tickets.drain(..).map(|(_, ticket, _)| (ticket, Err(error))).collect()
        };
        self.progress.notify_all();
        self.hand_out(answers);
    }

    fn hand_out(&self, answers: Vec<(Ticket, Result<CacheAnswer, CacheError>)>) {
        let answered = |(ticket, result): (Ticket, _)| {
            (ticket.receiver, Answered { ticket: ticket.value, result, value: Box::default() })
        };
        self.receivers.hand_out(answers.into_iter().map(answered).collect());
    }

    /// Sleeps until woken, at most for `most`. Returns whether the thread must end.
    fn sleep(&self, most: Option<Duration>) -> bool {
        let end = most.map(|most| Instant::now() + most);
        let mut signal = self.signal();
        while !signal.is_woken {
            signal = match end {
                None => self.wake.wait(signal).unwrap_or_else(PoisonError::into_inner),
                Some(end) => {
                    let Some(left) = end.checked_duration_since(Instant::now()) else { break };
                    self.wake.wait_timeout(signal, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        signal.is_woken = signal.is_stopped;
        signal.is_stopped
    }

    fn takes_compaction(&self) -> bool {
        std::mem::take(&mut self.signal().compact)
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn signal(&self) -> MutexGuard<'_, Signal> {
        self.signal.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
