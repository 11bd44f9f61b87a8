//! Orders about accounting: state of spool and quarantine, and attempts to write their rows now.

use super::accounting_state::{AccountingError, AccountingState, QuarantineState, SpoolState};
use super::{Controlled, Reply, shutting_down};
use std::time::Duration;
use strowger_backend::accounting::Accounting;
use strowger_backend::accounting::writer::Attempt;

/// Longest wait for an attempt. A longer attempt continues.
const LONGEST_TRY: Duration = Duration::from_secs(8);

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
        // From here on this task holds no strong reference: the server may end meanwhile, and it writes queued rows
        // when the last reference is dropped.
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
