//! The log of a local cache: what is stored outlives the process.
//!
//! The log is a folder of segments, numbered files of [records](strowger_records), each of them a change: a value stored, a key removed.
//! The last change of a key counts. Changes are noted under the lock of their partition, so they stand in the log in the order in which
//! memory saw them; a thread takes them from all partitions and writes them as a group.
//!
//! Receipts number groups, not changes. The thread first begins the next number, then takes what the partitions have: so every change with
//! an earlier receipt is in the group, and one number says how far all partitions are kept.
//!
//! A compaction begins a segment, lets each partition note all its entries again, a few under each lock, between the changes that go on, and
//! removes the segments before, the oldest first. So what is left at any moment says of each key the truth.
//!
//! Where the log cannot be written, or changes come faster than it is, the cache goes on in memory. The log is tried again by a compaction:
//! once it has ended, the log has what memory has, and receipts given meanwhile are good.
//!
//! What is evicted is not noted: after a start it may be there again, with its life, unless it was removed.

pub(crate) mod changes;
mod keeper;
mod segments;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::error::CacheError;
use crate::gauges::LogGauges;
use crate::request::Answer;
use crate::ticket::{Answered, Receivers, Ticket};

pub(crate) use self::keeper::{Keeper, OpenSegment};
pub(crate) use self::segments::{create, load};

/// The number of the group by which a change reaches the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Receipt(pub(crate) u64);

/// One moment by two clocks, in milliseconds: that by which a cache is asked, and the wall clock, by which lives go on in the next process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// By the clock of the cache.
    pub now: u64,
    /// Since 1970.
    pub wall: u64,
}

/// What a log had.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadReport {
    /// Segments read.
    pub segments: usize,
    /// Bytes read.
    pub bytes: u64,
    /// Changes read.
    pub changes: u64,
    /// Entries that are in memory then.
    pub entries: u64,
    /// What could not be read: a file and a part of a sentence. The cut record that a kill leaves at the end is among them.
    pub damage: Vec<(PathBuf, String)>,
}

/// What the thread of the log shares with those who store.
#[derive(Default)]
pub(crate) struct LogState {
    /// The number of the next group.
    group: AtomicU64,
    /// Groups up to this number are in the log.
    kept: AtomicU64,
    waiting: Mutex<Waiting>,
    progress: Condvar,
    signal: Mutex<Signal>,
    wake: Condvar,
    /// The thread sleeps until it is woken.
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
    tickets: Vec<(Receipt, Ticket, Answer)>,
    /// Why nothing is kept at present.
    error: Option<CacheError>,
}

#[derive(Default)]
struct Signal {
    is_woken: bool,
    is_stopped: bool,
    /// A compaction is asked for.
    compact: bool,
}

impl LogState {
    pub(crate) fn new() -> Self {
        // No change has the receipt 0: nothing is kept yet.
        Self { group: AtomicU64::new(1), ..Self::default() }
    }

    /// A change is noted: its receipt. Called under the lock of its partition.
    pub(crate) fn receipt(&self) -> Receipt {
        Receipt(self.group.load(Ordering::Acquire))
    }

    /// A change was noted; the lock of its partition is free again.
    pub(crate) fn wake(&self) {
        if self.is_idle.load(Ordering::SeqCst) && self.is_idle.swap(false, Ordering::SeqCst) {
            self.signal().is_woken = true;
            self.wake.notify_all();
        }
    }

    pub(crate) fn kept(&self) -> Receipt {
        Receipt(self.kept.load(Ordering::Acquire))
    }

    /// Gives the ticket back with the answer once the group is kept. `Some`: that is known already.
    pub(crate) fn answer_when_kept(
        &self,
        receipt: Receipt,
        ticket: Ticket,
        answer: Answer,
    ) -> Option<Result<Answer, CacheError>> {
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

    /// Figures; those of the queue are left to the caller.
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

    /// Begins the next group: changes with the number that is returned, or an earlier one, are noted already.
    fn next_group(&self) -> Receipt {
        Receipt(self.group.fetch_add(1, Ordering::AcqRel))
    }

    /// Groups up to this one are in the log; `is_whole`: and nothing is missing any more.
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

    /// Nothing is kept from now on.
    fn fail(&self, error: CacheError) {
        let answers = {
            let mut waiting = self.waiting();
            waiting.error = Some(error);
            waiting.tickets.drain(..).map(|(_, ticket, _)| (ticket, Err(error))).collect()
        };
        self.progress.notify_all();
        self.hand_out(answers);
    }

    fn hand_out(&self, answers: Vec<(Ticket, Result<Answer, CacheError>)>) {
        let answered = |(ticket, result): (Ticket, _)| {
            (ticket.receiver, Answered { ticket: ticket.value, result, value: Box::default() })
        };
        self.receivers.hand_out(answers.into_iter().map(answered).collect());
    }

    /// Sleeps until woken, or for as long as is said. Whether the thread should end.
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
