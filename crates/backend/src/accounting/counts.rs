//! Shared state of the thread and its users: counts, gauges, the last error, requested attempts.

use crate::files::quarantine::Quarantine;
use crate::files::spool::Spool;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) written: AtomicU64,
    pub(crate) spooled: AtomicU64,
    pub(crate) dropped: AtomicU64,
    pub(crate) quarantined: AtomicU64,
    pub(crate) failures: AtomicU64,
    pub(crate) removal_failures: AtomicU64,
    pub(crate) spool: FileCounts,
    pub(crate) quarantine: FileCounts,
    pub(crate) is_down: AtomicU64,
    last_error: Mutex<Option<LastError>>,
    last_reason: Mutex<Option<String>>,
    pub(crate) flushes: Attempts,
    pub(crate) retries: Attempts,
}

/// Counts of a file of waiting rows.
#[derive(Debug, Default)]
pub(crate) struct FileCounts {
    pub(crate) rows: AtomicU64,
    pub(crate) bytes: AtomicU64,
    /// Time of the oldest row; 0 for none.
    oldest: AtomicU64,
}

impl FileCounts {
    pub(crate) fn oldest(&self) -> Option<u64> {
        Some(self.oldest.load(Relaxed)).filter(|oldest| *oldest > 0)
    }

    fn show(&self, rows: u64, bytes: u64, oldest: Option<u64>) {
        self.rows.store(rows, Relaxed);
        self.bytes.store(bytes, Relaxed);
        self.oldest.store(oldest.unwrap_or(0), Relaxed);
    }
}

/// Last failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastError {
    /// Time, in milliseconds since 1970, UTC.
    pub at: u64,
    /// Text of the error, which names the file or the server.
    pub detail: String,
}

impl Counts {
    pub(crate) fn show(&self, spool: &Spool, quarantine: &Quarantine) {
        self.spool.show(spool.rows(), spool.bytes(), spool.oldest());
        self.quarantine.show(quarantine.rows(), quarantine.bytes(), quarantine.oldest());
        *lock(&self.last_reason) = quarantine.last_reason().map(str::to_owned);
    }

    pub(crate) fn fail(&self, at: u64, detail: String) {
        *lock(&self.last_error) = Some(LastError { at, detail });
    }

    pub(crate) fn last_error(&self) -> Option<LastError> {
        lock(&self.last_error).clone()
    }

    /// Returns the reason of the last row in quarantine.
    pub(crate) fn last_reason(&self) -> Option<String> {
        lock(&self.last_reason).clone()
    }
}

/// Attempts of one kind: requested and made.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    numbers: Mutex<Numbers>,
    progress: Condvar,
}

#[derive(Clone, Copy, Debug, Default)]
struct Numbers {
    asked: u64,
    made: u64,
}

impl Attempts {
    /// Requests an attempt. Returns its number.
    pub(crate) fn ask(&self) -> u64 {
        let mut numbers = lock(&self.numbers);
        numbers.asked += 1;
        numbers.asked
    }

    /// Returns the number of the last request, or `None` if all requested attempts were made.
    pub(crate) fn wanted(&self) -> Option<u64> {
        let Numbers { asked, made } = *lock(&self.numbers);
        (asked > made).then_some(asked)
    }

    /// Marks the attempts up to this one as made.
    pub(crate) fn end(&self, asked: u64) {
        let mut numbers = lock(&self.numbers);
        if numbers.made < asked {
            numbers.made = asked;
            self.progress.notify_all();
        }
    }
}

/// Requested attempt. It blocks no shutdown: accounting may be dropped meanwhile.
pub struct Attempt {
    pub(crate) counts: Arc<Counts>,
    pub(crate) of: fn(&Counts) -> &Attempts,
    pub(crate) asked: u64,
}

impl Attempt {
    /// Waits for the outcome, at most this long. Returns whether the attempt was made; then
    /// [`Figures`](crate::accounting::Figures) count the remaining rows.
    pub fn wait(self, most: Duration) -> bool {
        let attempts = (self.of)(&self.counts);
        let is_open = |numbers: &mut Numbers| numbers.made < self.asked;
        let waited = attempts.progress.wait_timeout_while(lock(&attempts.numbers), most, is_open);
        waited.unwrap_or_else(PoisonError::into_inner).0.made >= self.asked
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
