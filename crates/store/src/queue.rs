//! Bounded queue of a group writer.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::group::{GroupFigures, GroupSettings, Numbered, Row};
use crate::ticket::Refused;

struct State<R> {
    pending: Vec<Numbered<R>>,
    /// Weight of `pending` against the bound.
    weight: usize,
    /// Index in `pending` of each row that has a key.
    places: HashMap<u64, usize>,
    /// Weight of the group in progress.
    open: usize,
    /// Arrival time of the oldest row in `pending`.
    since: Instant,
    /// Number of the last row accepted.
    last: u64,
    /// Set while the writer sleeps until the next row.
    asleep: bool,
    /// Set by [`Queue::poke`]: the writer must check its work even without new rows.
    poked: bool,
    stopped: bool,
}

/// Capacity for keys that is never released.
pub(crate) const RESERVE: usize = 1_024;

/// Bounded queue of a writer.
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
                places: HashMap::new(),
                open: 0,
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

    /// Queues a row. This is called under locks, so it neither blocks nor does I/O.
    pub(crate) fn submit(&self, row: R) -> Result<(), Refused> {
        let mut state = self.lock();
        if state.stopped {
            return Err(Refused::Stopped);
        }
        let weight = row.weight();
        let key = row.key();
        if let Some(place) = key.and_then(|key| state.places.get(&key).copied()) {
            let before = std::mem::replace(&mut state.pending[place].row, row);
            state.weight = state.weight - before.weight() + weight;
            // The memory is freed outside the lock.
            drop(state);
            return Ok(());
        }
        // A row larger than the whole queue still passes if the queue is empty.
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
        if let Some(key) = key {
            let place = state.pending.len();
            state.places.insert(key, place);
        }
        state.pending.push(Numbered { number, row });
        // A lingering writer wakes by itself, so it is not woken: a wake-up would cost more than the whole row.
        let wake = state.asleep || state.pending.len() == self.settings.group;
        state.asleep = false;
        drop(state);
        if wake {
            self.wake.notify_one();
        }
        Ok(())
    }

    /// Tells whether half of the capacity is in use. Then rows for which no peer waits should leave the remaining
    /// capacity to other rows.
    pub(crate) fn is_half_full(&self) -> bool {
        self.lock().weight * 2 > self.settings.queue
    }

    /// Returns the number of the last row accepted.
    pub(crate) fn last(&self) -> u64 {
        self.lock().last
    }

    /// Ends the wait of the writer, for a group or after a failure.
    pub(crate) fn poke(&self) {
        self.lock().poked = true;
        self.wake.notify_one();
    }

    /// Waits for a group, for at most `patience`, or until a [poke](Self::poke); after a poke the group may be empty.
    /// Returns `None` once the queue is stopped and empty.
    pub(crate) fn take(&self, group: &mut Vec<Numbered<R>>, patience: Option<Duration>) -> Option<()> {
        group.clear();
        let linger = self.settings.linger;
        let end = patience.map(|patience| Instant::now() + patience);
        let look = patience.map_or(linger, |patience| linger.min(patience));
        let mut waited = false;
        let mut state = self.lock();
        if state.pending.is_empty() && !state.stopped && !state.poked && !look.is_zero() {
            // The writer was busy just now, so rows are likely: it checks the queue by itself after a linger, and no
            // caller has to wake it.
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

    /// Takes the queued rows without waiting. Returns whether there were any.
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
        state.open = group.iter().map(|pending| pending.row.weight()).sum();
        state.weight -= state.open;
        if state.places.capacity() > RESERVE {
            // Frees the memory of a burst.
            state.places = HashMap::new();
        }
        state.places.clear();
        let State { pending, places, .. } = state;
        places.extend(pending.iter().enumerate().filter_map(|(place, left)| Some((left.row.key()?, place))));
    }

    /// Sleeps for `most`, or until a [poke](Self::poke). Returns `false` at once if the queue is stopped.
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

    /// Marks the last group as finished.
    pub(crate) fn written(&self) {
        self.lock().open = 0;
    }

    /// Returns the weight of the rows that are queued or being written.
    pub(crate) fn waiting(&self) -> usize {
        let state = self.lock();
        state.weight + state.open
    }

    /// Returns the weight of the queued rows.
    pub(crate) fn weight(&self) -> usize {
        self.lock().weight
    }

    /// Removes and returns all queued rows.
    pub(crate) fn take_all(&self) -> Vec<Numbered<R>> {
        let mut state = self.lock();
        state.weight = 0;
        state.places.clear();
        std::mem::take(&mut state.pending)
    }

    /// Refuses all further rows; queued rows are still written.
    pub(crate) fn stop(&self) {
        self.lock().stopped = true;
        self.wake.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Keyed(u64, usize);

    impl Row for Keyed {
        fn weight(&self) -> usize {
            self.1
        }

        fn key(&self) -> Option<u64> {
            Some(self.0)
        }
    }

    fn queue(group: usize) -> Queue<Keyed> {
        Queue::new(GroupSettings { linger: Duration::ZERO, group, queue: usize::MAX })
    }

    fn taken(queue: &Queue<Keyed>) -> Vec<(u64, usize)> {
        let mut group = Vec::new();
        queue.try_take(&mut group);
        group.iter().map(|pending| (pending.row.0, pending.row.1)).collect()
    }

    #[test]
    fn the_last_row_of_a_key_waits() {
        let queue = queue(usize::MAX);
        (0..2_000).for_each(|key| queue.submit(Keyed(key, 1)).unwrap());
        (0..2_000).step_by(2).for_each(|key| queue.submit(Keyed(key, 3)).unwrap());
        assert_eq!((queue.weight(), queue.waiting()), (4_000, 4_000));
        let expected = (0..2_000).map(|key| (key, if key % 2 == 0 { 3 } else { 1 }));
        assert_eq!(taken(&queue), expected.collect::<Vec<_>>());
        // The group is being written, and rows with the same keys may be queued meanwhile.
        queue.submit(Keyed(7, 5)).unwrap();
        assert_eq!((queue.weight(), queue.waiting()), (5, 4_005));
        queue.written();
        assert_eq!((taken(&queue), queue.waiting()), (vec![(7, 5)], 5));
        queue.written();
        assert_eq!(queue.waiting(), 0);
    }

    #[test]
    fn a_row_that_a_full_group_has_left_is_still_known_by_its_key() {
        let queue = queue(2);
        (1..=4).for_each(|key| queue.submit(Keyed(key, 1)).unwrap());
        assert_eq!(taken(&queue), [(1, 1), (2, 1)]);
        queue.submit(Keyed(4, 9)).unwrap();
        queue.submit(Keyed(1, 2)).unwrap();
        assert_eq!(taken(&queue), [(3, 1), (4, 9)]);
        assert_eq!(taken(&queue), [(1, 2)]);
    }
}
