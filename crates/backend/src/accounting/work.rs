//! Writing thread: writes groups to the sink, refused rows to the quarantine, and all other unwritten rows to the
//! spool.

use crate::accounting::counts::Counts;
use crate::accounting::halving::{self, caught};
use crate::accounting::writer::{Clock, Settings};
use crate::files::quarantine::{Entry, Quarantine, Retry};
use crate::files::spool::Spool;
use std::collections::HashSet;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use strowger_store::accounting::cdr::Row;
use strowger_store::accounting::sink::{Sink, SinkError};
use strowger_store::group::{Commit, GroupFigures, Numbered};
use strowger_store::lasting_failure::LastingFailure;

/// Rows of the spool in one attempt.
pub(crate) const CHUNK: usize = 4_096;

/// Longest run of the search for refused rows: other rows wait for the thread.
const SLICE: Duration = Duration::from_secs(1);

/// Interval of searches for old rows, if there are none.
const REMOVAL: Duration = Duration::from_secs(600);

/// Interval while there are some.
const REMOVAL_STEP: Duration = Duration::from_secs(1);

/// Interval of log lines about a lasting failure.
const REMINDER: Duration = Duration::from_secs(60);

pub(crate) struct Work {
    sink: Box<dyn Sink>,
    spool: Spool,
    quarantine: Quarantine,
    settings: Settings,
    clock: Clock,
    counts: Arc<Counts>,
    earlier: Earlier,
    /// Set while the rows of the quarantine are retried.
    retrying: Option<Retrying>,
    next_try: Instant,
    /// Number of the last requested attempt that has begun.
    try_begun: u64,
    next_removal: Instant,
    sink_trouble: LastingFailure,
    spool_trouble: LastingFailure,
    refusals: RefusalLog,
}

/// Rows in the spool from an earlier process.
struct Earlier {
    /// Set until the sink has said which of them are written.
    is_unknown: bool,
    /// Identities of the written ones.
    written: HashSet<String>,
}

struct Retrying {
    retry: Retry,
    batch: Vec<Entry>,
    /// Identities in both sink and quarantine: a process was killed between the two steps.
    written: HashSet<String>,
    asked: u64,
}

/// Logged reasons, each once in [`REMINDER`].
#[derive(Default)]
struct RefusalLog(Vec<(String, Instant)>);

impl RefusalLog {
    /// Maximum number of logged reasons in [`REMINDER`]: peers may write a part of their text.
    const MOST: usize = 8;

    fn is_due(&mut self, reason: &str) -> bool {
        self.0.retain(|(_, said)| said.elapsed() < REMINDER);
        let is_due = self.0.len() < Self::MOST && self.0.iter().all(|(said, _)| said != reason);
        if is_due {
            self.0.push((reason.to_owned(), Instant::now()));
        }
        is_due
    }
}

impl Commit for Work {
    type Row = Box<Row>;

    fn write(&mut self, group: &mut Vec<Numbered<Box<Row>>>, figures: &GroupFigures) -> Duration {
        let began = Instant::now();
        let asked = self.begin_try();
        let first = group.first().map_or(0, |numbered| numbered.number);
        let rows: Vec<Box<Row>> = group.drain(..).map(|numbered| numbered.row).collect();
        let count = rows.len();
        let kept = catch_unwind(AssertUnwindSafe(|| self.keep(&rows)));
        figures.commit(began.elapsed(), matches!(kept, Ok(true)));
        if let Ok(true) = kept {
            figures.rows(count, 0);
            return Duration::ZERO;
        }
        group.extend(rows.into_iter().enumerate().map(|(n, row)| Numbered { number: first + n as u64, row }));
        if let Err(panic) = kept {
            // These rows are counted as lost when the thread ends.
            resume_unwind(panic);
        }
        self.end_try(asked);
        self.settings.retry
    }

    fn settle(&mut self) -> Option<Duration> {
        let asked = self.begin_try();
        self.replay();
        if self.spool.is_empty() || !self.is_due() {
            self.end_try(asked);
        }
        let until_retry = self.retry().then_some(Duration::ZERO);
        let until_try = match (self.spool.is_empty(), self.is_due()) {
            (true, _) => None,
            (false, true) => Some(Duration::ZERO),
            (false, false) => Some(self.next_try.saturating_duration_since(Instant::now())),
        };
        let until_removal = self.settings.retention.map(|retention| {
            if Instant::now() >= self.next_removal {
                self.remove_old(retention);
            }
            self.next_removal.saturating_duration_since(Instant::now())
        });
        until_retry.into_iter().chain(until_try).chain(until_removal).min()
    }
}

impl Work {
    pub(crate) fn new(
        sink: Box<dyn Sink>,
        (spool, quarantine): (Spool, Quarantine),
        settings: Settings,
        clock: Clock,
        counts: Arc<Counts>,
    ) -> Self {
        let earlier = Earlier { is_unknown: !spool.is_empty(), written: HashSet::new() };
        let [sink_trouble, spool_trouble] = [LastingFailure::every(REMINDER); 2];
        let now = Instant::now();
        Self {
            sink,
            spool,
            quarantine,
            settings,
            clock,
            counts,
            earlier,
            retrying: None,
            next_try: now,
            try_begun: 0,
            next_removal: now,
            sink_trouble,
            spool_trouble,
            refusals: RefusalLog::default(),
        }
    }

    /// Stores rows. Returns whether all of these rows are now written, or in the quarantine or the spool.
    fn keep(&mut self, rows: &[Box<Row>]) -> bool {
        // Rows of the spool are older and are written first. A full spool has room again after its last row was
        // written.
        while self.replay() && self.spool.is_full() {}
        let is_next = self.spool.is_empty() && self.is_due();
        let done = if is_next { self.try_sink(rows, rows.len() as u64) } else { 0 };
        let rest = &rows[done..];
        rest.is_empty() || self.try_spool(rest)
    }

    fn is_due(&self) -> bool {
        Instant::now() >= self.next_try
    }

    /// Makes a requested attempt due now. Returns the number of the last request, or `None` if no attempt is requested.
    fn begin_try(&mut self) -> Option<u64> {
        let asked = self.counts.flushes.wanted()?;
        // An attempt in progress continues chunk by chunk.
        if asked > self.try_begun {
            (self.next_try, self.try_begun) = (Instant::now(), asked);
        }
        Some(asked)
    }

    /// Marks the attempts up to this one as made.
    fn end_try(&self, asked: Option<u64>) {
        if let Some(asked) = asked {
            self.counts.flushes.end(asked);
        }
    }

    /// Tries to write these rows. Returns how many of them, counted from the first row, are now written or in the
    /// quarantine. `waiting`: number of all rows that wait, including these rows.
    fn try_sink(&mut self, rows: &[Box<Row>], waiting: u64) -> usize {
        let now = (self.clock)();
        let outcome = halving::write(&mut *self.sink, rows, now, SLICE);
        let refused = rows.iter().zip(&outcome.refusals).filter_map(|(row, refusal)| {
            refusal.as_ref().map(|reason| Entry { at: now, reason: reason.clone(), row: row.clone() })
        });
        let refused: Vec<Entry> = refused.collect();
        let kept = if refused.is_empty() { Ok(()) } else { self.quarantine.add(&refused) };
        let done = match kept {
            Ok(()) => outcome.refusals.len(),
            // The refused row waits in the spool with all rows behind it.
            Err(_) => outcome.refusals.iter().position(Option::is_some).unwrap_or(0),
        };
        let written = outcome.refusals[..done].iter().filter(|refusal| refusal.is_none()).count();
        self.counts.written.fetch_add(written as u64, Relaxed);
        if kept.is_ok() {
            self.say_refused(&refused);
        }
        if let Err(error) = kept {
            self.quarantine_failed(&error);
        } else if let Some(error) = &outcome.trouble {
            self.failed(error, waiting);
        } else {
            self.counts.is_down.store(0, Relaxed);
            if let Some((_, after)) = self.sink_trouble.works() {
                tracing::info!(?after, "rows of accounting are written again");
            }
        }
        self.show();
        done
    }

    fn say_refused(&mut self, refused: &[Entry]) {
        let before = self.counts.quarantined.fetch_add(refused.len() as u64, Relaxed);
        for (n, Entry { reason, row, .. }) in refused.iter().enumerate() {
            if self.refusals.is_due(reason) {
                let (identity, file) = (row.identity(), self.quarantine.path().display());
                let rows = before + n as u64 + 1;
                tracing::error!(%reason, identity, rows, quarantine = %file, "row of accounting refused by the database");
            }
        }
    }

    fn quarantine_failed(&mut self, error: &io::Error) {
        self.next_try = Instant::now() + self.settings.retry;
        self.counts.failures.fetch_add(1, Relaxed);
        self.counts.is_down.store(1, Relaxed);
        self.counts.fail((self.clock)(), format!("quarantine: {error}"));
        if self.sink_trouble.fails(true).is_some() {
            let file = self.quarantine.path().display();
            tracing::error!(%error, quarantine = %file, "a refused row of accounting finds no room: rows go to the spool");
        }
    }

    fn failed(&mut self, error: &SinkError, waiting: u64) {
        self.next_try = Instant::now() + self.settings.retry;
        self.counts.failures.fetch_add(1, Relaxed);
        self.counts.is_down.store(1, Relaxed);
        self.counts.fail((self.clock)(), error.to_string());
        if self.sink_trouble.fails(true).is_some() {
            let spool = self.settings.spool.display();
            tracing::error!(%error, %spool, rows = waiting, "rows of accounting cannot be written: they go to the spool");
        }
    }

    /// Appends these rows to the spool. Returns whether this succeeded.
    fn try_spool(&mut self, rows: &[Box<Row>]) -> bool {
        let result = self.spool.append(rows);
        self.show();
        match result {
            Ok(()) => {
                self.counts.spooled.fetch_add(rows.len() as u64, Relaxed);
                if let Some((_, after)) = self.spool_trouble.works() {
                    tracing::info!(?after, "the spool of accounting is written again");
                }
                true
            }
            Err(error) => {
                self.counts.failures.fetch_add(1, Relaxed);
                self.counts.fail((self.clock)(), format!("spool: {error}"));
                if self.spool_trouble.fails(true).is_some() {
                    let spool = self.settings.spool.display();
                    tracing::error!(%error, %spool, rows = rows.len(), "the spool of accounting cannot be written: rows wait in memory");
                }
                false
            }
        }
    }

    /// Writes the oldest rows of the spool to the sink, if the spool has rows and an attempt is due. Returns whether
    /// any rows were written.
    fn replay(&mut self) -> bool {
        if self.spool.is_empty() || !self.is_due() || !self.learns_what_is_written() {
            return false;
        }
        let mut rows = self.spool.chunk(CHUNK).to_vec();
        if rows.is_empty() && !self.spool.is_empty() {
            // The spooled rows cannot be read now.
            self.next_try = Instant::now() + self.settings.retry;
            return false;
        }
        let is_done = |identity: &str| self.earlier.written.contains(identity) || self.quarantine.contains(identity);
        rows.retain(|row| !is_done(row.identity()));
        let waiting = self.spool.rows();
        let done = if rows.is_empty() { 0 } else { self.try_sink(&rows, waiting) };
        let is_any_done = done > 0 || rows.is_empty();
        if is_any_done {
            self.spool.confirm_all_but(rows.split_off(done));
        }
        if self.spool.is_empty() {
            self.earlier.written = HashSet::new();
        }
        self.show();
        is_any_done
    }

    /// Asks the sink which rows of the spool an earlier process had written before a kill.
    fn learns_what_is_written(&mut self) -> bool {
        if !self.earlier.is_unknown {
            return true;
        }
        let identities = match self.spool.identities() {
            Ok(identities) => identities,
            Err(error) => {
                tracing::error!(%error, "the spool of accounting cannot be read");
                self.next_try = Instant::now() + self.settings.retry;
                return false;
            }
        };
        match caught(|| self.sink.written(&identities)) {
            Ok(written) => {
                tracing::info!(
                    rows = identities.len(),
                    written = written.len(),
                    "rows of accounting that an earlier process left"
                );
                self.earlier = Earlier { is_unknown: false, written };
                true
            }
            Err(error) => {
                self.failed(&error, self.spool.rows());
                false
            }
        }
    }

    /// Retries rows of the quarantine for one slice of time, if an attempt was requested. Returns whether more rows
    /// must be tried.
    fn retry(&mut self) -> bool {
        let Some(mut retrying) = self.retrying.take().or_else(|| self.begin_retry()) else { return false };
        let (asked, before) = (retrying.asked, self.quarantine.rows());
        let ended = match self.retry_some(&mut retrying) {
            Ok(true) => {
                self.retrying = Some(retrying);
                return true;
            }
            Ok(false) => self.quarantine.end(retrying.retry),
            Err(error) => Err(error),
        };
        match ended {
            Ok(()) => {
                let left = self.quarantine.rows();
                tracing::info!(written = before.saturating_sub(left), left, "refused rows of accounting tried again");
            }
            Err(error) => self.quarantine_failed(&error),
        }
        self.show();
        self.counts.retries.end(asked);
        false
    }

    fn begin_retry(&mut self) -> Option<Retrying> {
        let asked = self.counts.retries.wanted()?;
        if self.quarantine.rows() > 0 {
            let written = caught(|| self.sink.written(self.quarantine.identities()));
            match (written, self.quarantine.retry()) {
                (Ok(written), Ok(retry)) => return Some(Retrying { retry, batch: Vec::new(), written, asked }),
                (Err(error), _) => self.failed(&error, self.quarantine.rows()),
                (_, Err(error)) => self.quarantine_failed(&error),
            }
        }
        self.counts.retries.end(asked);
        None
    }

    /// Retries rows for one slice of time. Returns whether more rows must be tried.
    fn retry_some(&mut self, retrying: &mut Retrying) -> io::Result<bool> {
        let began = Instant::now();
        while began.elapsed() < SLICE {
            let Retrying { retry, batch, written, .. } = retrying;
            if batch.is_empty() {
                *batch = retry.batch();
                if batch.is_empty() {
                    return Ok(false);
                }
                batch.retain(|entry| !written.contains(entry.row.identity()));
                continue;
            }
            let rows: Vec<Box<Row>> = batch.iter().map(|entry| entry.row.clone()).collect();
            let outcome = halving::write(&mut *self.sink, &rows, (self.clock)(), SLICE);
            let tried: Vec<Entry> = batch.drain(..outcome.refusals.len()).collect();
            let count = tried.len();
            let refused = tried.into_iter().zip(outcome.refusals);
            let refused = refused.filter_map(|(entry, refusal)| refusal.map(|reason| Entry { reason, ..entry }));
            let refused: Vec<Entry> = refused.collect();
            self.counts.written.fetch_add((count - refused.len()) as u64, Relaxed);
            retry.keep(&refused)?;
            if let Some(error) = outcome.trouble {
                // The rows of this batch stay in the quarantine, and so do all rows after this batch.
                retry.keep(batch)?;
                self.failed(&error, self.quarantine.rows());
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn show(&self) {
        self.counts.show(&self.spool, &self.quarantine);
    }

    fn remove_old(&mut self, retention: Duration) {
        let before = (self.clock)().saturating_sub(retention.as_millis() as u64);
        let pause = match caught(|| self.sink.purge(before)) {
            Ok(true) => REMOVAL_STEP,
            Ok(false) => REMOVAL,
            Err(error) => {
                self.counts.removal_failures.fetch_add(1, Relaxed);
                self.counts.fail((self.clock)(), error.to_string());
                tracing::warn!(%error, "old rows of accounting cannot be removed");
                REMOVAL
            }
        };
        self.next_removal = Instant::now() + pause;
    }
}
