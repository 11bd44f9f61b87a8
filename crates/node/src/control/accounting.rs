//! Orders about accounting: its spool and its quarantine, and attempts to write their rows now.

use super::{Controlled, Reply, shutting_down};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use strowger_backend::accounting::Accounting;
use strowger_backend::accounting::writer::Attempt;

/// How long an attempt is waited for. What takes longer goes on.
const LONGEST_TRY: Duration = Duration::from_secs(8);

/// What became of rows of accounting since the start, and what waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AccountingState {
    /// Where rows go.
    pub place: String,
    /// They go there now; false: they go to the spool, since they cannot be written.
    pub works: bool,
    /// Rows that were written, those of the spool among them.
    pub written: u64,
    /// Rows that went to the spool first.
    pub spooled: u64,
    /// Rows that are lost: as many waited as may.
    pub lost: u64,
    /// Times that rows or the spool could not be written, or old rows not removed.
    pub failures: u64,
    /// Rows that wait in memory.
    pub queued: u64,
    /// Rows that may wait in memory.
    pub queue: u64,
    /// The spool.
    pub spool: SpoolState,
    /// The quarantine.
    pub quarantine: QuarantineState,
    /// What failed last since the start, also where it works again.
    pub last_error: Option<AccountingError>,
}

/// The file of the rows that could not be written yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SpoolState {
    /// Where it is.
    pub file: String,
    /// Rows that wait in it.
    pub rows: u64,
    /// Its bytes.
    pub bytes: u64,
    /// Bytes that it may have.
    pub most_bytes: u64,
    /// When the oldest of its rows was made, in milliseconds since 1970; none: it is empty, or that row has not been read yet.
    pub oldest: Option<u64>,
}

/// The file of the rows that the database refused for their values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QuarantineState {
    /// Its path.
    pub file: String,
    /// Rows in it.
    pub rows: u64,
    /// Its bytes.
    pub bytes: u64,
    /// Bytes that it may have.
    pub most_bytes: u64,
    /// When the oldest of its rows was made, in milliseconds since 1970; none: it is empty.
    pub oldest: Option<u64>,
    /// Why the last of its rows was refused; none: it is empty.
    pub last_reason: Option<String>,
    /// Rows that came to it since the start.
    pub since_start: u64,
}

/// Why rows could not be written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AccountingError {
    /// When, in milliseconds since 1970.
    pub at: u64,
    /// In words, with the file or the server.
    pub message: String,
}

impl Controlled {
    pub(super) fn accounting(&self) -> Reply {
        match self.metrics.accounting() {
            Some(accounting) => Reply::Accounting(state(&accounting)),
            None => off(),
        }
    }

    /// Attempts to write waiting rows, and returns the state afterwards.
    pub(super) async fn try_accounting(&self, attempt: fn(&Accounting) -> Attempt) -> Reply {
        let Some(accounting) = self.metrics.accounting() else { return off() };
        let attempt = attempt(&accounting);
        // The server may end meanwhile: what is queued is written when nothing has it any more.
        drop(accounting);
        match tokio::task::spawn_blocking(move || attempt.wait(LONGEST_TRY)).await {
            Ok(true) => self.accounting(),
            Ok(false) => {
                let seconds = LONGEST_TRY.as_secs();
                Reply::Unavailable(format!("the attempt has no outcome after {seconds} s, and goes on"))
            }
            Err(_) => shutting_down(),
        }
    }
}

fn off() -> Reply {
    Reply::Refused("nothing is accounted: accounting.cdr and accounting.events are off".into())
}

fn state(accounting: &Accounting) -> AccountingState {
    let (figures, settings) = (accounting.figures(), accounting.settings());
    AccountingState {
        place: accounting.place().to_owned(),
        works: !figures.is_down,
        written: figures.written,
        spooled: figures.spooled,
        lost: figures.dropped,
        failures: figures.failures,
        queued: figures.queued,
        queue: figures.bound,
        spool: SpoolState {
            file: settings.spool.display().to_string(),
            rows: figures.spool_rows,
            bytes: figures.spool_bytes,
            most_bytes: settings.spool_bytes,
            oldest: accounting.oldest(),
        },
        quarantine: QuarantineState {
            file: accounting.quarantine().display().to_string(),
            rows: figures.quarantine_rows,
            bytes: figures.quarantine_bytes,
            most_bytes: settings.quarantine_bytes,
            oldest: accounting.oldest_refused(),
            last_reason: accounting.last_reason(),
            since_start: figures.quarantined,
        },
        last_error: accounting.last_error().map(|error| AccountingError { at: error.at, message: error.detail }),
    }
}
