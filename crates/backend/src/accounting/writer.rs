//! Public interface of accounting: accepts rows and reports figures. [`work`](crate::accounting::work) has its thread.

use crate::accounting::counts::{Attempts, Counts};
use crate::accounting::work::Work;
use crate::files::quarantine::Quarantine;
use crate::files::spool::{OpenError, Spool};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use strowger_store::accounting::cdr::Row;
use strowger_store::accounting::sink::{GROUP_ROWS, Sink, SinkError, Trouble};
use strowger_store::group::{GroupSettings, GroupWriter};
use strowger_store::ticket::Refused;

pub use crate::accounting::counts::{Attempt, LastError};

/// Settings of accounting.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Spool file, for rows that cannot be written.
    pub spool: PathBuf,
    /// Maximum size of the spool, in bytes.
    pub spool_bytes: u64,
    /// Maximum size of the quarantine file, in bytes.
    pub quarantine_bytes: u64,
    /// Longest wait for another process that has the spool and may be just ending.
    pub patience: Duration,
    /// Linger of a group, most rows of a group and most waiting rows.
    pub group: GroupSettings,
    /// Time between a failure of the sink and the next attempt.
    pub retry: Duration,
    /// Age at which rows are removed; `None`: they stay.
    pub retention: Option<Duration>,
}

impl Settings {
    /// Returns the defaults.
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

/// Function that returns milliseconds since 1970, UTC.
pub type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Reason why accounting does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The sink cannot be used.
    #[error("rows of accounting cannot be written: {0}")]
    Sink(SinkError),
    /// The spool cannot be used.
    #[error("the spool of accounting cannot be used: {0}")]
    Spool(#[from] OpenError),
    /// The quarantine file cannot be used.
    #[error("the quarantine of accounting cannot be used: {0}")]
    Quarantine(strowger_records::OpenError),
    /// The thread could not be started.
    #[error("the thread of accounting cannot be started: {0}")]
    Thread(#[from] std::io::Error),
}

/// Accounting with its thread. A drop writes the queued rows, and ends the thread.
pub struct Accounting {
    writer: GroupWriter<Box<Row>>,
    counts: Arc<Counts>,
    place: String,
    settings: Settings,
    quarantine: PathBuf,
}

/// Figures of rows since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Rows that wait for the thread.
    pub queued: u64,
    /// Maximum number of waiting rows.
    pub bound: u64,
    /// Rows written.
    pub written: u64,
    /// Rows that went to the spool first.
    pub spooled: u64,
    /// Rows lost because the queue was full.
    pub dropped: u64,
    /// Rows that went to the quarantine: the database refused them for their values.
    pub quarantined: u64,
    /// Failures to write rows or to remove old ones.
    pub failures: u64,
    /// Rows in the spool.
    pub spool_rows: u64,
    /// Bytes of the spool.
    pub spool_bytes: u64,
    /// Rows in the quarantine.
    pub quarantine_rows: u64,
    /// Bytes of the quarantine.
    pub quarantine_bytes: u64,
    /// Set while rows go to the spool.
    pub is_down: bool,
}

impl Accounting {
    /// Opens the sink and the spool, and starts the thread.
    ///
    /// # Errors
    /// [`StartError`]. A locked, full or unreachable sink is no error: its rows go to the spool.
    pub fn start(mut sink: Box<dyn Sink>, settings: Settings, clock: Clock) -> Result<Self, StartError> {
        // The spool is opened first, because its lock waits for a process that is about to end.
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

    /// Queues a row. Neither waits nor does I/O; if the queue is full, the row is counted and lost.
    pub fn submit(&self, row: Box<Row>) {
        let Err(refused) = self.writer.submit(row) else { return };
        let lost = self.counts.dropped.fetch_add(1, Relaxed) + 1;
        // The line is logged at powers of two.
        if lost.is_power_of_two() {
            match refused {
                Refused::Full => tracing::error!(lost, "rows of accounting are lost: as many wait as may"),
                Refused::Stopped => {
                    tracing::error!(lost, "rows of accounting are lost: the thread that writes them has ended")
                }
            }
        }
    }

    /// Requests an attempt to write the rows of the spool now, although no attempt is due.
    pub fn flush(&self) -> Attempt {
        self.attempt(|counts| &counts.flushes)
    }

    /// Requests an attempt to write the rows of the quarantine now.
    pub fn retry(&self) -> Attempt {
        self.attempt(|counts| &counts.retries)
    }

    fn attempt(&self, of: fn(&Counts) -> &Attempts) -> Attempt {
        let asked = of(&self.counts).ask();
        self.writer.poke();
        Attempt { counts: self.counts.clone(), of, asked }
    }

    /// Tells whether the thread has ended by a panic; then every row is lost.
    pub fn has_ended(&self) -> bool {
        self.writer.has_ended()
    }

    /// Returns the place of the rows, for display.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Returns the settings.
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the time of the oldest row in the spool, in milliseconds since 1970; `None` if the spool is empty, or
    /// the row has not been read yet.
    pub fn oldest(&self) -> Option<u64> {
        self.counts.spool.oldest()
    }

    /// Returns the path of the quarantine file.
    pub fn quarantine(&self) -> &std::path::Path {
        &self.quarantine
    }

    /// Returns the time of the oldest row in the quarantine, in milliseconds since 1970; `None` if the quarantine is
    /// empty.
    pub fn oldest_refused(&self) -> Option<u64> {
        self.counts.quarantine.oldest()
    }

    /// Returns the reason of the last row in the quarantine.
    pub fn last_reason(&self) -> Option<String> {
        self.counts.last_reason()
    }

    /// Returns the last failure since the start, even after recovery.
    pub fn last_error(&self) -> Option<LastError> {
        self.counts.last_error()
    }

    /// Returns figures for the metrics.
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
