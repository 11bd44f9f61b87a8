//! The bounded queue before a writer of groups.

use std::sync::atomic::Ordering;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::group::{GroupFigures, GroupSettings, Numbered, Row};
use crate::ticket::Refused;

struct State<R> {
    pending: Vec<Numbered<R>>,
    /// What `pending` counts for against the bound.
    weight: usize,
    /// When the oldest of `pending` came.
    since: Instant,
    /// Number of the last row accepted.
    last: u64,
    /// The writer sleeps until something comes.
    asleep: bool,
    /// The writer is to look at what it has to do, also where nothing has come.
    poked: bool,
    stopped: bool,
}

/// The bounded queue before a writer.
pub(crate) struct Queue<R> {
    state: Mutex<State<R>>,
    wake: Condvar,
    pub(crate) settings: GroupSettings,
    pub(crate) figures: GroupFigures,
}

impl<R: Row> Queue<R> {
    pub(crate) fn new(settings: GroupSettings) -> Self {
        Self {
            state: Mutex::new(State {
                pending: Vec::new(),
                weight: 0,
                since: Instant::now(),
                last: 0,
                asleep: false,
                poked: false,
                stopped: false,
            }),
            wake: Condvar::new(),
            settings,
            figures: GroupFigures::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<R>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a row. Called under locks, so it neither blocks nor does I/O.
    pub(crate) fn submit(&self, row: R) -> Result<(), Refused> {
        let mut state = self.lock();
        if state.stopped {
            return Err(Refused::Stopped);
        }
        let weight = row.weight();
        // A row that is larger than the whole queue still passes when it is alone.
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
        let number = state.last;
        state.pending.push(Numbered { number, row });
        // While the writer lingers it wakes by itself: a wake-up costs more than the whole row.
        let wake = state.asleep || state.pending.len() == self.settings.group;
        state.asleep = false;
        drop(state);
        if wake {
            self.wake.notify_one();
        }
        Ok(())
    }

    /// Whether half of the room is taken. Rows that no peer waits for leave the rest to others.
    pub(crate) fn is_half_full(&self) -> bool {
        self.lock().weight * 2 > self.settings.queue
    }

    /// Number of the last row accepted.
    pub(crate) fn last(&self) -> u64 {
        self.lock().last
    }

    /// Ends the wait of the writer, for a group or after a failure.
    pub(crate) fn poke(&self) {
        self.lock().poked = true;
        self.wake.notify_one();
    }

    /// Waits for a group, so long at most, or until it is [poked](Self::poke): then it may be empty. `None` once stopped and empty.
    pub(crate) fn take(&self, group: &mut Vec<Numbered<R>>, patience: Option<Duration>) -> Option<()> {
        group.clear();
        let linger = self.settings.linger;
        let end = patience.map(|patience| Instant::now() + patience);
        let look = patience.map_or(linger, |patience| linger.min(patience));
        let mut waited = false;
        let mut state = self.lock();
        if state.pending.is_empty() && !state.stopped && !state.poked && !look.is_zero() {
            // It was busy just now, so it will be again: it looks by itself after a linger, and no caller has to wake it.
            (state, _) = self.wake.wait_timeout(state, look).unwrap_or_else(PoisonError::into_inner);
            waited = !state.pending.is_empty();
        }
        while state.pending.is_empty() {
            if state.stopped {
                return None;
            }
            if std::mem::take(&mut state.poked) {
                return Some(());
            }
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            state.asleep = left.is_none_or(|left| !left.is_zero());
            match left {
                None => state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(Duration::ZERO) => return Some(()),
                Some(left) => (state, _) = self.wake.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner),
            }
        }
        state.asleep = false;
        while !waited && state.pending.len() < self.settings.group && !state.stopped {
            let Some(left) = linger.checked_sub(state.since.elapsed()).filter(|d| !d.is_zero()) else {
                break;
            };
            (state, _) = self.wake.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
        }
        self.draw(&mut state, group);
        Some(())
    }

    /// Takes what is queued, without waiting. False: nothing is.
    pub(crate) fn try_take(&self, group: &mut Vec<Numbered<R>>) -> bool {
        group.clear();
        self.draw(&mut self.lock(), group);
        !group.is_empty()
    }

    /// Moves the oldest rows into a group.
    fn draw(&self, state: &mut State<R>, group: &mut Vec<Numbered<R>>) {
        if state.pending.len() <= self.settings.group {
            std::mem::swap(&mut state.pending, group);
        } else {
            let most = self.settings.group.max(1);
            group.extend(state.pending.drain(..most));
        }
        state.weight -= group.iter().map(|pending| pending.row.weight()).sum::<usize>();
    }

    /// Sleeps, until it is [poked](Self::poke) at most; `false` once stopped, at once.
    pub(crate) fn pause(&self, most: Duration) -> bool {
        let end = Instant::now() + most;
        let mut state = self.lock();
        while !state.stopped && !std::mem::take(&mut state.poked) {
            let Some(left) = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) else {
                return true;
            };
            (state, _) = self.wake.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
        }
        !state.stopped
    }

    /// What rows count for that are queued now.
    pub(crate) fn weight(&self) -> usize {
        self.lock().weight
    }

    /// Takes out all that is queued.
    pub(crate) fn take_all(&self) -> Vec<Numbered<R>> {
        let mut state = self.lock();
        state.weight = 0;
        std::mem::take(&mut state.pending)
    }

    /// Refuses what comes from now on; what is queued is still written.
    pub(crate) fn stop(&self) {
        self.lock().stopped = true;
        self.wake.notify_all();
    }
}
