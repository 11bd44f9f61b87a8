//! The bounded queue between the location table and the writer.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::binding::{BindingId, Record};
use crate::journal::JournalSettings;
use crate::ticket::{Refused, Ticket};

/// What one decision changes, as queued.
pub(crate) enum Change {
    /// A decision about one address-of-record.
    Update {
        ticket: Option<Ticket>,
        aor: Box<[u8]>,
        puts: Vec<Record>,
        deletes: Vec<BindingId>,
        /// All bindings of the address-of-record as they were before.
        before: Vec<Record>,
    },
    /// Bindings that expired.
    Purge { ids: Vec<BindingId> },
}

impl Change {
    /// What it counts for against the bound of the queue: one, and one more for each [`WEIGHT`] bytes.
    fn weight(&self) -> usize {
        let bytes = match self {
            Self::Update { puts, before, .. } => puts.iter().chain(before).map(Record::bytes).sum::<usize>(),
            Self::Purge { .. } => 0,
        };
        1 + bytes / WEIGHT
    }
}

/// Eight usual registrations fit, so only bindings made large on purpose count for more than one.
const WEIGHT: usize = 4096;

pub(crate) struct Pending {
    pub(crate) seq: u64,
    pub(crate) change: Change,
}

pub(crate) struct State {
    pub(crate) pending: Vec<Pending>,
    /// What `pending` counts for against the bound.
    pub(crate) weight: usize,
    /// When the oldest of `pending` came.
    since: Instant,
    /// Number of the last change accepted.
    last: u64,
    /// The writer sleeps until something comes.
    asleep: bool,
    stopped: bool,
}

/// The bounded queue between the table and the writer.
pub(crate) struct Queue {
    state: Mutex<State>,
    wake: Condvar,
    pub(crate) settings: JournalSettings,
    pub(crate) figures: Figures,
}

#[derive(Default)]
pub(crate) struct Figures {
    pub(crate) groups: AtomicU64,
    pub(crate) kept: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) commit_us: AtomicU64,
    pub(crate) commit_max_us: AtomicU64,
    pub(crate) unpurged: AtomicU64,
}

impl Queue {
    pub(crate) fn new(settings: JournalSettings) -> Self {
        Self {
            state: Mutex::new(State {
                pending: Vec::new(),
                weight: 0,
                since: Instant::now(),
                last: 0,
                asleep: false,
                stopped: false,
            }),
            wake: Condvar::new(),
            settings,
            figures: Figures::default(),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a change. Called under a bucket lock, so it neither blocks nor does I/O.
    pub(crate) fn submit(&self, change: Change) -> Result<(), Refused> {
        let mut state = self.lock();
        if state.stopped {
            return Err(Refused::Stopped);
        }
        let weight = change.weight();
        // A change that is larger than the whole queue still passes when it is alone.
        if state.weight + weight > self.settings.queue && !(state.pending.is_empty() && self.settings.queue > 0) {
            drop(state);
            self.figures.refused.fetch_add(1, Ordering::Relaxed);
            return Err(Refused::Full);
        }
        if state.pending.is_empty() {
            state.since = Instant::now();
        }
        state.weight += weight;
        state.last += 1;
        let seq = state.last;
        state.pending.push(Pending { seq, change });
        // While the writer lingers it wakes by itself: a wake-up costs more than the whole change.
        let wake = state.asleep || state.pending.len() == self.settings.group;
        state.asleep = false;
        drop(state);
        if wake {
            self.wake.notify_one();
        }
        Ok(())
    }

    /// Number of the last change accepted.
    pub(crate) fn last(&self) -> u64 {
        self.lock().last
    }

    /// Waits for a group; `None` once stopped and empty.
    pub(crate) fn take(&self, group: &mut Vec<Pending>) -> Option<()> {
        group.clear();
        let linger = self.settings.linger;
        let mut waited = false;
        let mut state = self.lock();
        if state.pending.is_empty() && !state.stopped && !linger.is_zero() {
            // It was busy just now, so it will be again: it looks by itself after a linger, and no caller has to wake it.
            (state, _) = self.wake.wait_timeout(state, linger).unwrap_or_else(PoisonError::into_inner);
            waited = !state.pending.is_empty();
        }
        while state.pending.is_empty() {
            if state.stopped {
                return None;
            }
            state.asleep = true;
            state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.asleep = false;
        while !waited && state.pending.len() < self.settings.group && !state.stopped {
            let Some(left) = linger.checked_sub(state.since.elapsed()).filter(|d| !d.is_zero()) else {
                break;
            };
            (state, _) = self.wake.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
        }
        if state.pending.len() <= self.settings.group {
            std::mem::swap(&mut state.pending, group);
        } else {
            let most = self.settings.group.max(1);
            group.extend(state.pending.drain(..most));
        }
        state.weight -= group.iter().map(|pending| pending.change.weight()).sum::<usize>();
        Some(())
    }

    /// Refuses whatever comes from now on; what is queued is still written.
    pub(crate) fn stop(&self) {
        self.lock().stopped = true;
        self.wake.notify_all();
    }
}
