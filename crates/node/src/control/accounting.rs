//! Orders about accounting: state of spool and quarantine, and attempts to write their rows now.

use super::{Controlled, Reply, shutting_down};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use strowger_backend::accounting::Accounting;
use strowger_backend::accounting::writer::Attempt;

/// Longest wait for an attempt. A longer attempt continues.
const LONGEST_TRY: Duration = Duration::from_secs(8);

/// State of accounting: rows since the start, and waiting rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AccountingState {
    /// Destination of rows.
    pub place: String,
    /// True: rows are written there now; false: they go to the spool, since they cannot be written.
    pub works: bool,
    /// Written rows, including those of the spool.
    pub written: u64,
    /// Rows that went to the spool first.
    pub spooled: u64,
    /// Lost rows: the queue was full.
    pub lost: u64,
    /// Failed attempts to write rows or the spool, or to remove old rows.
    pub failures: u64,
    /// Rows that wait in memory.
    pub queued: u64,
    /// Most rows that may wait in memory.
    pub queue: u64,
    /// The spool.
    pub spool: SpoolState,
    /// The quarantine.
    pub quarantine: QuarantineState,
    /// Latest failure since the start, even if accounting works again.
    pub last_error: Option<AccountingError>,
}

/// File of the rows that could not be written yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SpoolState {
    /// Path of the file.
    pub file: String,
    /// Rows in it.
    pub rows: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// Largest size in bytes.
    pub most_bytes: u64,
    /// Time of its oldest row, in milliseconds since 1970; none: it is empty, or that row has not been read yet.
    pub oldest: Option<u64>,
}

/// File of the rows that the database refused for their values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QuarantineState {
    /// Path of the file.
    pub file: String,
    /// Rows in it.
    pub rows: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// Largest size in bytes.
    pub most_bytes: u64,
    /// Time of its oldest row, in milliseconds since 1970; none: it is empty.
    pub oldest: Option<u64>,
    /// Reason for the refusal of its last row; none: it is empty.
    pub last_reason: Option<String>,
    /// Rows put into it since the start.
    pub since_start: u64,
}

/// A failure to write rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AccountingError {
    /// Time, in milliseconds since 1970.
    pub at: u64,
    /// Description, with the file or the server.
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
        // The server may end meanwhile: it writes queued rows when the last reference is gone.
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
