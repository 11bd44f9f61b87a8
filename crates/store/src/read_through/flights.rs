//! Look-ups in flight (questions that no engine has answered yet), and the tickets that wait for them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hashbrown::{Equivalent, HashTable};

use super::batch::Questions;
use super::{Key, ReadThroughSettings, Results, since};
use crate::error::StoreError;
use crate::ticket::{Refused, Ticket};

struct Flight<K> {
    hash: u64,
    key: K,
    /// Sequence number. Hashes have no order, so expired tickets come back sorted by this number; it also identifies
    /// the flight of a late failure.
    number: u64,
    since: u64,
    tickets: Vec<Ticket>,
    /// Tickets requested after a notice that arrived while a query was at the engine. The answer to that query may be older
    /// than the notice, so these tickets wait for the next answer.
    after_notice: Option<Waiting>,
    /// Set while a query is at the engine.
    is_asked: bool,
    /// Set once a stale answer was looked for.
    is_overdue: bool,
}

/// Waiting tickets, and the time of the first.
struct Waiting {
    since: u64,
    tickets: Vec<Ticket>,
}

impl Waiting {
    const fn empty() -> Self {
        Self { since: 0, tickets: Vec::new() }
    }
}

impl<K> Flight<K> {
    /// Restarts the flight for the tickets requested after a notice. Returns the tickets from before.
    fn begin_again(&mut self, number: u64, later: Waiting) -> Vec<Ticket> {
        (self.number, self.since) = (number, later.since);
        (self.is_asked, self.is_overdue) = (false, false);
        std::mem::replace(&mut self.tickets, later.tickets)
    }
}

struct State<K> {
    flights: HashTable<Flight<K>>,
    /// Number of the last flight.
    last: u64,
    /// Keys that no engine has been asked yet, with their hashes.
    waiting: VecDeque<(u64, K)>,
    /// Number of idle connections: threads or tasks that could query the engine.
    idle: usize,
    /// Set while the timekeeper sleeps, with nothing in flight.
    is_keeper_asleep: bool,
    /// Last question that missed its deadline: repeated while the engine does not answer.
    probe: Option<K>,
    /// Time of the next repetition of `probe`.
    probe_at: u64,
    has_stopped: bool,
}

pub(super) struct Flights<K: Key> {
    state: Mutex<State<K>>,
    /// Wakes the threads that query the engine.
    questions: Condvar,
    /// Wakes the timekeeper.
    time: Condvar,
    /// Wakes the watch.
    end: Condvar,
    has_unsent: AtomicBool,
    len: AtomicUsize,
    askers: AtomicUsize,
    bound: usize,
    batch: usize,
    poll: Duration,
    deadline: Duration,
    stale_wait: Duration,
}

/// Result of a check for overdue questions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Due {
    /// True if a question has waited for `stale_wait`.
    pub(super) is_overdue: bool,
    /// Questions that missed their deadline.
    pub(super) missed: u32,
    /// True if questions wait, and every asker is busy.
    pub(super) lacks_askers: bool,
}

impl<K: Key> Flights<K> {
    pub(super) fn new(settings: &ReadThroughSettings) -> Self {
        let state = State {
            flights: HashTable::new(),
            last: 0,
            waiting: VecDeque::new(),
            idle: 0,
            is_keeper_asleep: false,
            probe: None,
            probe_at: 0,
            has_stopped: false,
        };
        Self {
            state: Mutex::new(state),
            questions: Condvar::new(),
            time: Condvar::new(),
            end: Condvar::new(),
            has_unsent: AtomicBool::new(false),
            len: AtomicUsize::new(0),
            askers: AtomicUsize::new(0),
            bound: settings.queue,
            batch: settings.batch.max(1),
            poll: settings.poll,
            deadline: settings.deadline,
            stale_wait: settings.stale_wait,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds `ticket` to the question's flight; without a ticket the answer only refreshes the cache. Returns whether an
    /// equal question was in flight already.
    pub(super) fn request<Q>(&self, ticket: Option<Ticket>, hash: u64, question: &Q, now: u64) -> Result<bool, Refused>
    where
        Q: Copy + Equivalent<K> + Into<K>,
    {
        let mut guard = self.lock();
        let state = &mut *guard;
        if state.has_stopped {
            return Err(Refused::Stopped);
        }
        if let Some(flight) = state.flights.find_mut(hash, |f| question.equivalent(&f.key)) {
            match &mut flight.after_notice {
                None => flight.tickets.extend(ticket),
                Some(waiting) => {
                    waiting.since = if waiting.tickets.is_empty() { now } else { waiting.since };
                    waiting.tickets.extend(ticket);
                }
            }
            return Ok(true);
        }
        if state.flights.len() >= self.bound {
            return Err(Refused::Full);
        }
        let key: K = (*question).into();
        state.waiting.push_back((hash, key.clone()));
        state.last += 1;
        let (number, tickets) = (state.last, ticket.into_iter().collect());
        let flight =
            Flight { hash, key, number, since: now, tickets, after_notice: None, is_asked: false, is_overdue: false };
        state.flights.insert_unique(hash, flight, |f| f.hash);
        self.len.store(state.flights.len(), Ordering::Relaxed);
        self.has_unsent.store(true, Ordering::Release);
        if std::mem::take(&mut state.is_keeper_asleep) {
            self.time.notify_one();
        }
        Ok(false)
    }

    /// Tells whether requested questions have not left yet.
    pub(super) fn has_unsent(&self) -> bool {
        self.has_unsent.load(Ordering::Acquire)
    }

    pub(super) fn flush(&self) {
        if self.has_unsent.load(Ordering::Acquire) && self.has_unsent.swap(false, Ordering::AcqRel) {
            self.questions.notify_one();
        }
    }

    /// Waits for questions, or for the time of the next trial question if the engine `is_broken`. The questions of a
    /// round are taken together. Returns `false` once the cache is stopped.
    pub(super) fn take(
        &self,
        questions: &mut Questions<K>,
        clock: impl Fn() -> u64,
        is_broken: impl Fn() -> bool,
    ) -> bool {
        let (mut state, mut was_woken) = (self.lock(), false);
        loop {
            if state.has_stopped {
                return false;
            }
            let broken_at = is_broken().then(&clock);
            if self.next(&mut state, questions, broken_at, was_woken) {
                return true;
            }
            state.idle += 1;
            state = match broken_at.map(|now| since(now, state.probe_at)) {
                Some(most) => self.questions.wait_timeout(state, most).unwrap_or_else(PoisonError::into_inner).0,
                None => self.questions.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
            state.idle -= 1;
            was_woken = true;
        }
    }

    /// Takes questions for an idle asker that has no thread. Does not wait. If any questions are taken, the asker
    /// counts as busy.
    pub(super) fn try_take(&self, questions: &mut Questions<K>, broken_at: Option<u64>) -> bool {
        let mut state = self.lock();
        let has_taken = !state.has_stopped && state.idle > 0 && self.next(&mut state, questions, broken_at, false);
        state.idle -= usize::from(has_taken);
        has_taken
    }

    /// Takes the questions of a shard's round that has ended. Only the threads send trial questions to an engine that
    /// has stopped answering.
    pub(super) fn take_round(&self, questions: &mut Questions<K>) -> bool {
        let mut state = self.lock();
        self.has_unsent.store(false, Ordering::Release);
        !state.has_stopped && self.next(&mut state, questions, None, true)
    }

    /// Selects the next questions. Returns whether there are any. `broken_at`: the present time, if the engine has
    /// stopped answering. `is_whole`: whether the current round adds no more questions.
    fn next(&self, state: &mut State<K>, questions: &mut Questions<K>, broken_at: Option<u64>, is_whole: bool) -> bool {
        questions.clear();
        if let Some(now) = broken_at.filter(|now| *now >= state.probe_at) {
            state.probe_at = now + milliseconds(self.poll);
            if let Some(probe) = state.probe.clone() {
                questions.push(probe, 0);
                return true;
            }
        }
        // A round in progress may add questions; the end of the round wakes an asker.
        if state.waiting.is_empty() || (!is_whole && self.has_unsent.load(Ordering::Acquire)) {
            return false;
        }
        let State { flights, waiting, .. } = &mut *state;
        while questions.keys.len() < self.batch
            && let Some((hash, key)) = waiting.pop_front()
        {
            // A late answer of the engine may have ended some of these flights meanwhile.
            if let Some(flight) = flights.find_mut(hash, |f| f.key == key).filter(|flight| !flight.is_asked) {
                flight.is_asked = true;
                questions.push(key, flight.number);
            }
        }
        if !state.waiting.is_empty() && state.idle > 0 {
            self.questions.notify_one();
        }
        !questions.keys.is_empty()
    }

    /// Returns the time of the next trial question to a silent engine; `None` if no question has missed its deadline,
    /// or all askers are busy.
    pub(super) fn probe_at(&self) -> Option<u64> {
        let state = self.lock();
        state.probe.as_ref().filter(|_| state.idle > 0).map(|_| state.probe_at)
    }

    /// Counts an asker that has no thread as idle. The asker calls this at its start, and after each answer.
    pub(super) fn is_idle(&self) {
        self.lock().idle += 1;
    }

    /// Makes the trial question due at once, since the engine has answered, perhaps late.
    pub(super) fn probe_now(&self) {
        self.lock().probe_at = 0;
        self.questions.notify_one();
    }

    /// Ends the flight of `key` and returns its tickets; there are none if the deadline came first. If tickets were
    /// requested after a notice, the flight restarts for these tickets. `is_current`: whether no notice has arrived
    /// since the engine was asked; otherwise a flight that began after the notice continues.
    pub(super) fn land(&self, hash: u64, key: &K, is_current: bool) -> Vec<Ticket> {
        self.end_flight(&mut self.lock(), hash, key, is_current)
    }

    /// Ends the flight with this number, because the engine failed; see [`Flights::land`]. A later flight of `key`
    /// continues.
    pub(super) fn fail(&self, hash: u64, key: &K, number: u64) -> Vec<Ticket> {
        let mut state = self.lock();
        match state.flights.find(hash, |f| f.key == *key && f.number == number) {
            Some(_) => self.end_flight(&mut state, hash, key, true),
            None => Vec::new(),
        }
    }

    fn end_flight(&self, state: &mut State<K>, hash: u64, key: &K, is_current: bool) -> Vec<Ticket> {
        let Ok(mut entry) = state.flights.find_entry(hash, |f| f.key == *key) else { return Vec::new() };
        let flight = entry.get_mut();
        if !is_current && flight.after_notice.is_none() {
            return Vec::new();
        }
        if let Some(later) = flight.after_notice.take().filter(|waiting| !waiting.tickets.is_empty()) {
            state.last += 1;
            state.waiting.push_back((hash, key.clone()));
            self.questions.notify_one();
            return flight.begin_again(state.last, later);
        }
        let tickets = entry.remove().0.tickets;
        self.len.store(state.flights.len(), Ordering::Relaxed);
        tickets
    }

    /// Marks a question in flight as changed: the engine may still send the old answer.
    pub(super) fn void(&self, hash: u64, key: &K) {
        let mut state = self.lock();
        if let Some(flight) = state.flights.find_mut(hash, |f| f.key == *key).filter(|flight| flight.is_asked) {
            flight.after_notice.get_or_insert_with(Waiting::empty);
        }
    }

    /// Marks all questions in flight as changed.
    pub(super) fn void_all(&self) {
        for flight in self.lock().flights.iter_mut().filter(|flight| flight.is_asked) {
            flight.after_notice.get_or_insert_with(Waiting::empty);
        }
    }

    /// Collects the tickets of overdue questions at `now`: with a stale answer from `stale` after `stale_wait`, or with
    /// an error at the deadline.
    pub(super) fn due(&self, now: u64, stale: impl Fn(&K) -> Option<K::Value>, results: &mut Results<K>) -> Due {
        let mut due = Due::default();
        let mut guard = self.lock();
        let State { flights, waiting, idle, probe, last, .. } = &mut *guard;
        let is_overdue = |f: &&mut Flight<K>| !f.is_overdue && since(f.since, now) >= self.stale_wait;
        let mut overdue: Vec<_> = flights.iter_mut().filter(is_overdue).collect();
        overdue.sort_unstable_by_key(|flight| flight.number);
        for flight in overdue {
            flight.is_overdue = true;
            due.is_overdue = true;
            if !flight.tickets.is_empty()
                && let Some(answer) = stale(&flight.key)
            {
                results.extend(flight.tickets.drain(..).map(|ticket| (ticket, Ok(answer.clone()))));
            }
        }
        let mut missed: Vec<_> = flights.extract_if(|f| since(f.since, now) >= self.deadline).collect();
        missed.sort_unstable_by_key(|flight| flight.number);
        for mut flight in missed {
            due.missed += 1;
            *probe = Some(flight.key.clone());
            let mut later = flight.after_notice.take().unwrap_or(Waiting::empty());
            let mut tickets = std::mem::take(&mut flight.tickets);
            // Tickets requested after a notice have their own deadline.
            if !later.tickets.is_empty() && since(later.since, now) < self.deadline {
                *last += 1;
                flight.begin_again(*last, later);
                waiting.push_back((flight.hash, flight.key.clone()));
                self.questions.notify_one();
                flights.insert_unique(flight.hash, flight, |f| f.hash);
            } else {
                tickets.append(&mut later.tickets);
            }
            results.extend(tickets.into_iter().map(|ticket| (ticket, Err(StoreError::TimedOut))));
        }
        if due.missed > 0 {
            // No caller waits for the removed flights any more.
            waiting.retain(|(hash, key)| flights.find(*hash, |f| f.key == *key).is_some());
            self.len.store(flights.len(), Ordering::Relaxed);
        }
        due.lacks_askers = !waiting.is_empty() && *idle == 0;
        if !waiting.is_empty() && self.has_unsent.swap(false, Ordering::AcqRel) {
            self.questions.notify_one();
        }
        due
    }

    /// Sleeps for `step`; if `is_idle`, sleeps while nothing is in flight. Returns `false` once the cache is stopped.
    pub(super) fn wait(&self, step: Duration, is_idle: bool) -> bool {
        let mut state = self.lock();
        if is_idle {
            while state.flights.is_empty() && !state.has_stopped {
                state.is_keeper_asleep = true;
                state = self.time.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            state.is_keeper_asleep = false;
        }
        if !state.has_stopped {
            state = self.end.wait_timeout(state, step).unwrap_or_else(PoisonError::into_inner).0;
        }
        !state.has_stopped
    }

    /// Sleeps until the next check for changes. Returns `false` once the cache is stopped.
    pub(super) fn wait_poll(&self) -> bool {
        self.wait(self.poll, false)
    }

    /// Wakes all askers, since the breaker has opened.
    pub(super) fn wake_all(&self) {
        self.questions.notify_all();
    }

    /// Counts a new asker.
    pub(super) fn begin(&self) {
        self.askers.fetch_add(1, Ordering::Relaxed);
    }

    /// Removes an asker that ends before the cache does.
    pub(super) fn end(&self) {
        self.askers.fetch_sub(1, Ordering::Relaxed);
    }

    /// Refuses all further requests, and ends the threads. Returns the open tickets.
    pub(super) fn stop(&self) -> Results<K> {
        let mut state = self.lock();
        state.has_stopped = true;
        state.waiting.clear();
        let later = |flight: Option<Waiting>| flight.into_iter().flat_map(|waiting| waiting.tickets);
        let open =
            state.flights.drain().flat_map(|flight| flight.tickets.into_iter().chain(later(flight.after_notice)));
        let results = open.map(|ticket| (ticket, Err(StoreError::Unavailable))).collect();
        self.len.store(0, Ordering::Relaxed);
        drop(state);
        self.questions.notify_all();
        self.time.notify_all();
        self.end.notify_all();
        results
    }

    pub(super) fn has_stopped(&self) -> bool {
        self.lock().has_stopped
    }

    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    pub(super) fn askers(&self) -> usize {
        self.askers.load(Ordering::Relaxed)
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
