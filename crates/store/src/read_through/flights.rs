//! Questions in flight, and who waits for them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hashbrown::{Equivalent, HashTable};

use super::{Key, ReadThroughSettings, Results, since};
use crate::error::StoreError;
use crate::ticket::{Refused, Ticket};

struct Flight<K> {
    hash: u64,
    key: K,
    since: u64,
    tickets: Vec<Ticket>,
    /// It was looked whether there is an answer past its lifetime.
    is_overdue: bool,
}

struct State<K> {
    flights: HashTable<Flight<K>>,
    /// Keys that no engine was asked for yet, with their hashes.
    waiting: VecDeque<(u64, K)>,
    /// Askers that wait for questions.
    idle: usize,
    /// The keeper of the time sleeps until there is something in flight.
    is_keeper_asleep: bool,
    /// The last that missed its deadline: asked again and again while the engine does not answer.
    probe: Option<K>,
    /// When it is asked next.
    probe_at: u64,
    has_stopped: bool,
}

pub(super) struct Flights<K: Key> {
    state: Mutex<State<K>>,
    /// Wakes askers.
    questions: Condvar,
    /// Wakes the keeper of the time.
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

/// What a look at the time found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Due {
    /// A question has waited for as long as an answer past its lifetime is held back.
    pub(super) is_overdue: bool,
    /// Questions that missed their deadline.
    pub(super) missed: u32,
    /// Questions wait, and every asker is busy.
    pub(super) lacks_askers: bool,
}

impl<K: Key> Flights<K> {
    pub(super) fn new(settings: &ReadThroughSettings) -> Self {
        let state = State {
            flights: HashTable::new(),
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

    /// Lets `ticket` wait for the answer; without one it is asked for the cache alone. Whether an equal one was in flight already.
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
            flight.tickets.extend(ticket);
            return Ok(true);
        }
        if state.flights.len() >= self.bound {
            return Err(Refused::Full);
        }
        let key: K = (*question).into();
        state.waiting.push_back((hash, key.clone()));
        let flight = Flight { hash, key, since: now, tickets: ticket.into_iter().collect(), is_overdue: false };
        state.flights.insert_unique(hash, flight, |f| f.hash);
        self.len.store(state.flights.len(), Ordering::Relaxed);
        self.has_unsent.store(true, Ordering::Release);
        if std::mem::take(&mut state.is_keeper_asleep) {
            self.time.notify_one();
        }
        Ok(false)
    }

    pub(super) fn flush(&self) {
        if self.has_unsent.load(Ordering::Acquire) && self.has_unsent.swap(false, Ordering::AcqRel) {
            self.questions.notify_one();
        }
    }

    /// Waits for questions, or until it is time to ask one again if the engine `is_broken`. Those of a round leave together; `false` once
    /// stopped.
    pub(super) fn take(&self, keys: &mut Vec<K>, clock: impl Fn() -> u64, is_broken: impl Fn() -> bool) -> bool {
        keys.clear();
        let (mut state, mut was_woken) = (self.lock(), false);
        loop {
            if state.has_stopped {
                return false;
            }
            let mut until_probe = None;
            if is_broken() {
                let now = clock();
                if now >= state.probe_at {
                    state.probe_at = now + milliseconds(self.poll);
                    if let Some(probe) = &state.probe {
                        keys.push(probe.clone());
                        return true;
                    }
                }
                until_probe = Some(since(now, state.probe_at));
            }
            // Of a round that is under way more may come; it ends with a wake.
            if !state.waiting.is_empty() && (was_woken || !self.has_unsent.load(Ordering::Acquire)) {
                let most = state.waiting.len().min(self.batch);
                keys.extend(state.waiting.drain(..most).map(|(_, key)| key));
                if !state.waiting.is_empty() && state.idle > 0 {
                    self.questions.notify_one();
                }
                return true;
            }
            state.idle += 1;
            state = match until_probe {
                Some(most) => self.questions.wait_timeout(state, most).unwrap_or_else(PoisonError::into_inner).0,
                None => self.questions.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
            state.idle -= 1;
            was_woken = true;
        }
    }

    /// The engine has answered, though late perhaps: the next question is worth asking.
    pub(super) fn probe_now(&self) {
        self.lock().probe_at = 0;
        self.questions.notify_one();
    }

    /// Ends the flight of `key` and names who waits for it; none when the deadline was faster.
    pub(super) fn land(&self, hash: u64, key: &K) -> Vec<Ticket> {
        let mut state = self.lock();
        let Ok(flight) = state.flights.find_entry(hash, |f| f.key == *key) else { return Vec::new() };
        let tickets = flight.remove().0.tickets;
        self.len.store(state.flights.len(), Ordering::Relaxed);
        tickets
    }

    /// What has waited for too long at `now`: for an answer past its lifetime, which `stale` has, or for the deadline.
    pub(super) fn due(&self, now: u64, stale: impl Fn(&K) -> Option<K::Answer>, results: &mut Results<K>) -> Due {
        let mut due = Due::default();
        let mut guard = self.lock();
        let State { flights, waiting, idle, probe, .. } = &mut *guard;
        for flight in flights.iter_mut() {
            if !flight.is_overdue && since(flight.since, now) >= self.stale_wait {
                flight.is_overdue = true;
                due.is_overdue = true;
                if !flight.tickets.is_empty()
                    && let Some(answer) = stale(&flight.key)
                {
                    results.extend(flight.tickets.drain(..).map(|ticket| (ticket, Ok(answer.clone()))));
                }
            }
        }
        for flight in flights.extract_if(|f| since(f.since, now) >= self.deadline) {
            due.missed += 1;
            results.extend(flight.tickets.into_iter().map(|ticket| (ticket, Err(StoreError::TimedOut))));
            *probe = Some(flight.key);
        }
        if due.missed > 0 {
            // No caller waits for those any more.
            waiting.retain(|(hash, key)| flights.find(*hash, |f| f.key == *key).is_some());
            self.len.store(flights.len(), Ordering::Relaxed);
        }
        due.lacks_askers = !waiting.is_empty() && *idle == 0;
        if !waiting.is_empty() && self.has_unsent.swap(false, Ordering::AcqRel) {
            self.questions.notify_one();
        }
        due
    }

    /// Sleeps for `step`, or while nothing is in flight if `is_idle`. `false` once stopped.
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

    /// Sleeps until the engine is to be asked what has changed. `false` once stopped.
    pub(super) fn wait_poll(&self) -> bool {
        self.wait(self.poll, false)
    }

    /// The breaker has opened: askers look what they are to do.
    pub(super) fn wake_all(&self) {
        self.questions.notify_all();
    }

    /// An asker begins.
    pub(super) fn begin(&self) {
        self.askers.fetch_add(1, Ordering::Relaxed);
    }

    /// Refuses what comes from now on, and ends the threads.
    pub(super) fn stop(&self) -> Results<K> {
        let mut state = self.lock();
        state.has_stopped = true;
        state.waiting.clear();
        let open = state.flights.drain().flat_map(|flight| flight.tickets);
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
