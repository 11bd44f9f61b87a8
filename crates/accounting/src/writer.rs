//! The thread that writes: groups to the sink, and what that does not take to the spool.

use crate::record::Row;
use crate::sink::{Place, Sink, SinkError, Trouble};
use crate::spool::{OpenError, Spool};
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use strowger_store::group::{self, Commit, GroupFigures, GroupSettings, GroupWriter, Numbered};
use strowger_store::lasting_failure::LastingFailure;
use strowger_store::ticket::Refused;

/// The bounds.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The file of those that cannot be written.
    pub spool: PathBuf,
    /// Bytes that it may have.
    pub spool_bytes: u64,
    /// How long another process that has it, and may be just ending, is waited for.
    pub patience: Duration,
    /// How long the first row of a group waits for others, rows of a group and rows that may wait.
    pub group: GroupSettings,
    /// After a failure the sink is tried again so much later.
    pub retry: Duration,
    /// Rows older than this go; none: they stay.
    pub retention: Option<Duration>,
}

impl Settings {
    /// The defaults.
    pub fn new(spool: PathBuf) -> Self {
        Self {
            spool,
            spool_bytes: 256 << 20,
            patience: Duration::from_secs(1),
            group: GroupSettings { linger: Duration::from_millis(100), group: 4_096, queue: 100_000 },
            retry: Duration::from_secs(1),
            retention: None,
        }
    }
}

/// Milliseconds since 1970, UTC.
pub type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Why accounting does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The rows cannot be written there.
    #[error("rows of accounting cannot be written: {0}")]
    Sink(SinkError),
    /// The spool cannot be used.
    #[error("the spool of accounting cannot be used: {0}")]
    Spool(#[from] OpenError),
    /// The thread could not be started.
    #[error("the thread of accounting cannot be started: {0}")]
    Thread(#[from] std::io::Error),
}

/// Takes rows. Dropped, it writes what is queued, and ends its thread.
pub struct Accounting {
    writer: GroupWriter<Box<Row>>,
    counts: Arc<Counts>,
    place: String,
    settings: Settings,
}

#[derive(Debug, Default)]
struct Counts {
    written: AtomicU64,
    spooled: AtomicU64,
    dropped: AtomicU64,
    failures: AtomicU64,
    removal_failures: AtomicU64,
    spool_rows: AtomicU64,
    spool_bytes: AtomicU64,
    /// As [`Spool::oldest`], 0 for none.
    spool_oldest: AtomicU64,
    is_down: AtomicU64,
    last_error: Mutex<Option<LastError>>,
    tries: Mutex<Tries>,
    tried: Condvar,
}

/// Attempts to write what waits that were asked for, and how many of them were made.
#[derive(Clone, Copy, Debug, Default)]
struct Tries {
    asked: u64,
    made: u64,
}

/// What failed last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastError {
    /// When, in milliseconds since 1970, UTC.
    pub at: u64,
    /// In words, with the file or the server.
    pub detail: String,
}

/// What became of rows since the start, and how many wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Rows that wait for the thread.
    pub queued: u64,
    /// Rows that may wait.
    pub bound: u64,
    /// Rows that were written.
    pub written: u64,
    /// Rows that went to the spool first.
    pub spooled: u64,
    /// Rows that are lost: as many waited as may.
    pub dropped: u64,
    /// Times that rows could not be written, or old ones not removed.
    pub failures: u64,
    /// Rows in the spool.
    pub spool_rows: u64,
    /// Bytes of the spool.
    pub spool_bytes: u64,
    /// Rows go to the spool.
    pub is_down: bool,
}

impl Accounting {
    /// Opens the sink of this place and the spool, and starts the thread.
    ///
    /// # Errors
    /// [`StartError`]. A sink that is locked, full or out of reach is none: its rows go to the spool.
    pub fn start(place: &Place, settings: Settings, clock: Clock) -> Result<Self, StartError> {
        Self::start_on(place.sink(), settings, clock)
    }

    /// The same on any sink.
    ///
    /// # Errors
    /// As [`Accounting::start`].
    pub fn start_on(mut sink: Box<dyn Sink>, settings: Settings, clock: Clock) -> Result<Self, StartError> {
        // First this one: it waits for a process that is just ending.
        let spool = Spool::open(&settings.spool, settings.spool_bytes, settings.patience)?;
        match sink.open() {
            Err(error) if error.kind == Trouble::Unusable => return Err(StartError::Sink(error)),
            Err(error) => {
                tracing::error!(%error, "rows of accounting cannot be written: they go to the spool until they can");
            }
            Ok(()) => (),
        }
        let counts = Arc::<Counts>::default();
        counts.show(&spool);
        let (place, group, own) = (sink.place(), settings.group.clone(), settings.clone());
        let is_replay = !spool.is_empty();
        let work = Work {
            sink,
            spool,
            settings,
            clock,
            counts: counts.clone(),
            is_replay,
            written: HashSet::new(),
            next_try: Instant::now(),
            try_begun: 0,
            next_removal: Instant::now(),
            sink_trouble: LastingFailure::every(REMINDER),
            spool_trouble: LastingFailure::every(REMINDER),
        };
        let of_thread = counts.clone();
        let abandon = move |rows: Vec<Box<Row>>| {
            of_thread.dropped.fetch_add(rows.len() as u64, Relaxed);
            tracing::error!(
                rows = rows.len(),
                "rows of accounting lost: neither they nor the spool could be written at the end"
            );
        };
        let writer = GroupWriter::start("accounting", group, work, abandon)?;
        Ok(Self { writer, counts, place, settings: own })
    }

    /// Takes a row. Neither waits nor does I/O: one that finds no room is counted, and lost.
    pub fn submit(&self, row: Box<Row>) {
        let Err(refused) = self.writer.submit(row) else { return };
        let lost = self.counts.dropped.fetch_add(1, Relaxed) + 1;
        // The more there are, the rarer the line.
        if lost.is_power_of_two() {
            match refused {
                Refused::Full => tracing::error!(lost, "rows of accounting are lost: as many wait as may"),
                Refused::Stopped => {
                    tracing::error!(lost, "rows of accounting are lost: the thread that writes them has ended")
                }
            }
        }
    }

    /// Has what waits in the spool written now, whether or not it is time to try again.
    pub fn flush(&self) -> Attempt {
        let asked = {
            let mut tries = self.counts.tries();
            tries.asked += 1;
            tries.asked
        };
        self.writer.poke();
        Attempt { counts: self.counts.clone(), asked }
    }

    /// Whether the thread has ended before it was asked to: by a panic. Every row is lost from then on.
    pub fn has_ended(&self) -> bool {
        self.writer.has_ended()
    }

    /// Where rows go, as people name it.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// The bounds.
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// When the oldest row of the spool was made, in milliseconds since 1970; none: it is empty, or that row has not been read yet.
    pub fn oldest(&self) -> Option<u64> {
        Some(self.counts.spool_oldest.load(Relaxed)).filter(|oldest| *oldest > 0)
    }

    /// What failed last since the start, also where it works again.
    pub fn last_error(&self) -> Option<LastError> {
        self.counts.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// For the metrics.
    pub fn figures(&self) -> Figures {
        let (gauges, of) = (self.writer.gauges(), |count: &AtomicU64| count.load(Relaxed));
        let Counts { written, spooled, dropped, failures, removal_failures, spool_rows, spool_bytes, is_down, .. } =
            &*self.counts;
        Figures {
            queued: gauges.queued as u64,
            bound: gauges.bound as u64,
            written: of(written),
            spooled: of(spooled),
            dropped: of(dropped),
            failures: of(failures) + of(removal_failures),
            spool_rows: of(spool_rows),
            spool_bytes: of(spool_bytes),
            is_down: of(is_down) != 0,
        }
    }
}

/// An attempt that was asked for. It keeps nothing from ending: accounting may be dropped meanwhile.
pub struct Attempt {
    counts: Arc<Counts>,
    asked: u64,
}

impl Attempt {
    /// Waits for the outcome so long at most. Whether the attempt was made: [`Accounting::figures`] say what is left.
    pub fn wait(self, most: Duration) -> bool {
        let is_open = |tries: &mut Tries| tries.made < self.asked;
        let waited = self.counts.tried.wait_timeout_while(self.counts.tries(), most, is_open);
        waited.unwrap_or_else(PoisonError::into_inner).0.made >= self.asked
    }
}

impl Counts {
    fn show(&self, spool: &Spool) {
        self.spool_rows.store(spool.rows(), Relaxed);
        self.spool_bytes.store(spool.bytes(), Relaxed);
        self.spool_oldest.store(spool.oldest().unwrap_or(0), Relaxed);
    }

    fn fail(&self, at: u64, detail: String) {
        *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = Some(LastError { at, detail });
    }

    fn tries(&self) -> MutexGuard<'_, Tries> {
        self.tries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl group::Row for Box<Row> {}

/// Rows of the spool that are written at a time.
const CHUNK: usize = 4_096;

/// Between two looks for old rows, while there are none.
const REMOVAL: Duration = Duration::from_secs(600);

/// While there are some.
const REMOVAL_STEP: Duration = Duration::from_secs(1);

/// A trouble that lasts is logged so often.
const REMINDER: Duration = Duration::from_secs(60);

struct Work {
    sink: Box<dyn Sink>,
    spool: Spool,
    settings: Settings,
    clock: Clock,
    counts: Arc<Counts>,
    /// An earlier process has left rows: what it has written of them is not known yet.
    is_replay: bool,
    /// Identities of the spool that an earlier process has written.
    written: HashSet<String>,
    next_try: Instant,
    /// Number of the last attempt that was asked for and has begun.
    try_begun: u64,
    next_removal: Instant,
    sink_trouble: LastingFailure,
    spool_trouble: LastingFailure,
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
            // The end of the thread counts them.
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
        until_try.into_iter().chain(until_removal).min()
    }
}

impl Work {
    /// Whether these rows are written now, or in the spool.
    fn keep(&mut self, rows: &[Box<Row>]) -> bool {
        // In order: what waits in the spool is older. Where that is full, these find room with its last row.
        while self.replay() && self.spool.is_full() {}
        let is_written = self.spool.is_empty() && self.is_due() && self.try_sink(rows, rows.len() as u64);
        is_written || self.try_spool(rows)
    }

    fn is_due(&self) -> bool {
        Instant::now() >= self.next_try
    }

    /// Where an attempt is wanted now, it is time for one. Returns the number of the last that is wanted.
    fn begin_try(&mut self) -> u64 {
        let Tries { asked, made } = *self.counts.tries();
        // Not again where this one goes on, chunk by chunk.
        if asked > made.max(self.try_begun) {
            (self.next_try, self.try_begun) = (Instant::now(), asked);
        }
        asked
    }

    /// The attempts up to this one were made.
    fn end_try(&self, asked: u64) {
        let mut tries = self.counts.tries();
        if tries.made < asked {
            tries.made = asked;
            self.counts.tried.notify_all();
        }
    }

    /// Whether these rows are written now. `waiting`: all that wait with them.
    fn try_sink(&mut self, rows: &[Box<Row>], waiting: u64) -> bool {
        let now = (self.clock)();
        match caught(|| self.sink.write(rows, now)) {
            Ok(()) => {
                self.counts.written.fetch_add(rows.len() as u64, Relaxed);
                self.counts.is_down.store(0, Relaxed);
                if let Some((_, after)) = self.sink_trouble.works() {
                    tracing::info!(?after, "rows of accounting are written again");
                }
                true
            }
            Err(error) => {
                self.failed(&error, waiting);
                false
            }
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

    /// Whether these rows are in the spool.
    fn try_spool(&mut self, rows: &[Box<Row>]) -> bool {
        let result = self.spool.append(rows);
        self.counts.show(&self.spool);
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

    /// The oldest rows of the spool go where they belong, if there are any and it is time to try. Whether they did.
    fn replay(&mut self) -> bool {
        if self.spool.is_empty() || !self.is_due() || !self.learns_what_is_written() {
            return false;
        }
        let mut rows = self.spool.chunk(CHUNK).to_vec();
        if rows.is_empty() && !self.spool.is_empty() {
            // They cannot be read now.
            self.next_try = Instant::now() + self.settings.retry;
            return false;
        }
        rows.retain(|row| !self.written.contains(row.identity()));
        let is_written = rows.is_empty() || self.try_sink(&rows, self.spool.rows());
        if is_written {
            self.spool.confirm();
        }
        if self.spool.is_empty() {
            self.written = HashSet::new();
        }
        self.counts.show(&self.spool);
        is_written
    }

    /// What an earlier process had written of the rows that it left in its spool: it may have been killed between the two.
    fn learns_what_is_written(&mut self) -> bool {
        if !self.is_replay {
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
                (self.written, self.is_replay) = (written, false);
                true
            }
            Err(error) => {
                self.failed(&error, self.spool.rows());
                false
            }
        }
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

/// A driver that panics has failed like any other: its rows wait, and the thread goes on.
fn caught<T>(work: impl FnOnce() -> Result<T, SinkError>) -> Result<T, SinkError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        let detail = "the driver panicked, which is an error of this program".into();
        Err(SinkError { kind: Trouble::Unusable, detail })
    })
}

#[cfg(test)]
mod tests;
