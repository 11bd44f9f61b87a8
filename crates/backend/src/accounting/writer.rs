//! Accounting, for those who hand in rows and ask what became of them. [`work`](crate::accounting::work) has its thread.

use crate::accounting::Place;
use crate::accounting::counts::{Attempts, Counts};
use crate::accounting::work::Work;
use crate::files::quarantine::Quarantine;
use crate::files::spool::{OpenError, Spool};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use strowger_store::accounting::record::Row;
use strowger_store::accounting::sink::{GROUP_ROWS, Sink, SinkError, Trouble};
use strowger_store::group::{GroupSettings, GroupWriter};
use strowger_store::ticket::Refused;

pub use crate::accounting::counts::{Attempt, LastError};

/// The bounds.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The file of those that cannot be written.
    pub spool: PathBuf,
    /// Bytes that it may have.
    pub spool_bytes: u64,
    /// Bytes that the file of refused rows may have.
    pub quarantine_bytes: u64,
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
            quarantine_bytes: 64 << 20,
            patience: Duration::from_secs(1),
            group: GroupSettings { linger: Duration::from_millis(100), group: GROUP_ROWS, queue: 100_000 },
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
    /// The file of refused rows cannot be used.
    #[error("the quarantine of accounting cannot be used: {0}")]
    Quarantine(strowger_records::OpenError),
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
    quarantine: PathBuf,
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
    /// Rows that went to the quarantine: the database refused them for their values.
    pub quarantined: u64,
    /// Times that rows could not be written, or old ones not removed.
    pub failures: u64,
    /// Rows in the spool.
    pub spool_rows: u64,
    /// Bytes of the spool.
    pub spool_bytes: u64,
    /// Rows in the quarantine.
    pub quarantine_rows: u64,
    /// Bytes of the quarantine.
    pub quarantine_bytes: u64,
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
        let quarantine =
            Quarantine::open(&settings.spool, settings.quarantine_bytes).map_err(StartError::Quarantine)?;
        let counts = Arc::<Counts>::default();
        counts.show(&spool, &quarantine);
        if quarantine.rows() > 0 {
            let (rows, file) = (quarantine.rows(), quarantine.path().display());
            tracing::warn!(rows, quarantine = %file, "refused rows of accounting wait: strowger accounting retry");
        }
        let (place, group, own) = (sink.place(), settings.group.clone(), settings.clone());
        let quarantine_path = quarantine.path().to_owned();
        let work = Work::new(sink, (spool, quarantine), settings, clock, counts.clone());
        let of_thread = counts.clone();
        let abandon = move |rows: Vec<Box<Row>>| {
            of_thread.dropped.fetch_add(rows.len() as u64, Relaxed);
            tracing::error!(
                rows = rows.len(),
                "rows of accounting lost: neither they nor the spool could be written at the end"
            );
        };
        let writer = GroupWriter::start("accounting", group, work, abandon)?;
        Ok(Self { writer, counts, place, settings: own, quarantine: quarantine_path })
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

    /// Has the rows of the spool written now, whether or not it is time to try again.
    pub fn flush(&self) -> Attempt {
        self.attempt(|counts| &counts.flushes)
    }

    /// Has the rows of the quarantine tried again now.
    pub fn retry(&self) -> Attempt {
        self.attempt(|counts| &counts.retries)
    }

    fn attempt(&self, of: fn(&Counts) -> &Attempts) -> Attempt {
        let asked = of(&self.counts).ask();
        self.writer.poke();
        Attempt { counts: self.counts.clone(), of, asked }
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
        self.counts.spool.oldest()
    }

    /// The file of refused rows.
    pub fn quarantine(&self) -> &std::path::Path {
        &self.quarantine
    }

    /// When the oldest row of the quarantine was made, in milliseconds since 1970; none: it is empty.
    pub fn oldest_refused(&self) -> Option<u64> {
        self.counts.quarantine.oldest()
    }

    /// Why the last row of the quarantine was refused.
    pub fn last_reason(&self) -> Option<String> {
        self.counts.last_reason()
    }

    /// What failed last since the start, also where it works again.
    pub fn last_error(&self) -> Option<LastError> {
        self.counts.last_error()
    }

    /// For the metrics.
    pub fn figures(&self) -> Figures {
        let (gauges, of) = (self.writer.gauges(), |count: &AtomicU64| count.load(Relaxed));
        let counts = &*self.counts;
        Figures {
            queued: gauges.queued as u64,
            bound: gauges.bound as u64,
            written: of(&counts.written),
            spooled: of(&counts.spooled),
            dropped: of(&counts.dropped),
            quarantined: of(&counts.quarantined),
            failures: of(&counts.failures) + of(&counts.removal_failures),
            spool_rows: of(&counts.spool.rows),
            spool_bytes: of(&counts.spool.bytes),
            quarantine_rows: of(&counts.quarantine.rows),
            quarantine_bytes: of(&counts.quarantine.bytes),
            is_down: of(&counts.is_down) != 0,
        }
    }
}

#[cfg(test)]
mod tests;
