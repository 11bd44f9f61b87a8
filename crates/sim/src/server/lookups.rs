//! Look-ups of one process: the cache of the server before the simulated database, and its laws.

use super::database::{Database, Outage, OutageKind, TimedAnswer, outage};
use crate::random::Random;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use strowger_store::clock::Clock;
use strowger_store::error::StoreError;
use strowger_store::read_through::{Batch, Changes, ReadThrough, ReadThroughSettings, Steps};
use strowger_store::subscriber::{Asked, LookupSink, Question, SubscriberAnswer, Subscribers};
use strowger_store::ticket::{Refused, SinkId, Ticket};

/// Time in ms after its deadline within which a look-up returns.
const GRACE: u64 = 50;

/// Time in ms between two ticks.
pub(super) const STEP: u64 = 25;

/// Number of ticks within which a look-up must get a connection, if one can be opened.
const PATIENCE: u32 = 3;

/// A returned ticket: its shard and its result.
pub(super) type TicketResult = (usize, u64, Result<SubscriberAnswer, StoreError>);

/// Look-ups of the shards.
pub(super) struct Lookups {
    cache: ReadThrough<Asked>,
    database: Arc<Database>,
    settings: ReadThroughSettings,
    time: Arc<AtomicU64>,
    state: Arc<Mutex<State>>,
    sinks: Mutex<Vec<SinkId>>,
}

#[derive(Default)]
struct State {
    results: Vec<TicketResult>,
    /// Look-up and start time of each waiting ticket.
    waiting: HashMap<(usize, u64), (Asked, u64)>,
    /// Users found, with the time of the last answer of the database. A notice removes an entry.
    known: HashMap<Asked, u64>,
    /// Users that a notice has named: time of the notice, and version of the password at that time.
    changed: HashMap<String, (u64, u32)>,
    /// Questions without a timely answer since the last one with a timely answer.
    late: HashSet<Asked>,
    problem: Option<String>,
}

impl State {
    fn wrong(&mut self, what: String) {
        self.problem.get_or_insert(what);
    }
}

/// A batch of questions at the database.
struct OpenBatch {
    number: u64,
    /// Questions that no other batch has answered.
    keys: BTreeSet<String>,
    since: u64,
    /// Time of the first question.
    waits_since: u64,
    /// True if no caller waits for it.
    is_probe: bool,
}

/// Questions to the database, with their number.
pub(super) struct AskedBatch {
    number: u64,
    batch: Batch<Asked>,
}

/// Work of the look-up threads.
pub(super) struct Asking {
    steps: Steps<Asked>,
    open_batches: Vec<OpenBatch>,
    asked: u64,
    /// Time up to which changes were received.
    heard: u64,
    /// Number of ticks for which a question has waited without a connection.
    kept_waiting: u32,
    /// Last batch of each question before its notice arrived.
    voided: HashMap<String, u64>,
    /// Deadlines missed since the last timely answer of the database.
    missed: u32,
    /// Time since which look-ups of unknown entries fail at once.
    broken_since: Option<u64>,
}

impl Lookups {
    pub(super) fn new(
        database: Arc<Database>,
        settings: ReadThroughSettings,
        time: Arc<AtomicU64>,
        clock: Clock,
    ) -> (Self, Asking) {
        let (cache, steps) = ReadThrough::in_steps(settings.clone(), clock);
        let asking = Asking {
            steps,
            open_batches: Vec::new(),
            asked: 0,
            heard: time.load(Ordering::Relaxed),
            kept_waiting: 0,
            voided: HashMap::new(),
            missed: 0,
            broken_since: None,
        };
        let (state, sinks) = (Arc::default(), Mutex::default());
        (Self { cache, database, settings, time, state, sinks }, asking)
    }

    fn now(&self) -> u64 {
        self.time.load(Ordering::Relaxed)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a receiver for the answers of the cache to the next shard. Returns the identifier of the receiver.
    pub(super) fn shard(&self) -> SinkId {
        let mut sinks = self.sinks.lock().unwrap_or_else(PoisonError::into_inner);
        let shard = sinks.len();
        let (state, time, database) = (self.state.clone(), self.time.clone(), self.database.clone());
        let settings = self.settings.clone();
        let sink = self.cache.receiver(move |results: &[(u64, Result<SubscriberAnswer, StoreError>)]| {
            let now = time.load(Ordering::Relaxed);
            let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
            for (value, result) in results {
                came_back(&mut state, &database, &settings, (shard, *value), result, now);
                state.results.push((shard, *value, result.clone()));
            }
        });
        sinks.push(sink);
        sink
    }

    /// Takes the tickets that have returned since the last call.
    pub(super) fn results(&self) -> Vec<TicketResult> {
        std::mem::take(&mut self.state().results)
    }

    pub(super) fn check(&self) -> Result<(), String> {
        self.state().problem.clone().map_or(Ok(()), Err)
    }

    pub(super) fn leftovers(&self) -> Result<(), String> {
        let (waiting, gauges) = (self.state().waiting.len(), self.cache.gauges());
        match waiting + gauges.in_flight {
            0 => Ok(()),
            _ => Err(format!("{waiting} look-ups wait, {} questions are in flight", gauges.in_flight)),
        }
    }

    /// Returns whether a tick is due.
    pub(super) fn is_busy(&self) -> bool {
        self.cache.gauges().in_flight > 0
    }

    /// Checks that a server uses its database again as soon as the database answers. A database that answers may miss
    /// deadlines too, if questions wait for a busy connection; then the server uses it again as soon as an answer is in
    /// time.
    fn check_recovery(&self, broken_since: Option<u64>) {
        let Some(broken_since) = broken_since else { return };
        let (now, database) = (self.now(), &self.database);
        let ended = database.outages.iter().filter(|outage| outage.from <= now).map(|outage| outage.to).max();
        let last = ended.map_or(broken_since, |ended| ended.max(broken_since));
        let more = |outage: &Outage| if let OutageKind::Slow(more) = outage.kind { more } else { 0 };
        let slowest = database.delay.1 + database.outages.iter().map(more).max().unwrap_or(0);
        let patience = self.settings.poll.as_millis() as u64 + 2 * slowest + GRACE;
        let longest = self.settings.deadline.as_millis() as u64;
        let is_slow = database.delay.1 >= longest || database.failures > 0;
        if !is_slow && now > last + patience {
            self.state().wrong(format!("{now}: the database answers again, and is not asked"));
        }
    }
}

/// Returns whether a cached entry of an existing user is valid at `now`, even if the database does not answer.
fn is_good(settings: &ReadThroughSettings, read_at: u64, now: u64) -> bool {
    let lifetime = settings.found_ttl + settings.serve_stale;
    !settings.serve_stale.is_zero() && now.saturating_sub(read_at) < lifetime.as_millis() as u64
}

/// Checks the result and the time of a ticket that returns.
fn came_back(
    state: &mut State,
    database: &Database,
    settings: &ReadThroughSettings,
    ticket: (usize, u64),
    result: &Result<SubscriberAnswer, StoreError>,
    now: u64,
) {
    let Some((asked, since)) = state.waiting.remove(&ticket) else {
        return state.wrong(format!("{now}: a ticket came back twice, or was never given: {ticket:?}"));
    };
    let deadline = settings.deadline.as_millis() as u64;
    if now > since + deadline + GRACE {
        state.wrong(format!("{now}: a look-up came back after {} ms of {deadline}: {asked:?}", now - since));
    }
    match result {
        Err(error) => {
            if state.known.get(&asked).is_some_and(|read_at| is_good(settings, *read_at, since)) {
                state.wrong(format!("{now}: who is known is not found ({error}): {asked:?}"));
            }
            if *error == StoreError::TimedOut && now >= since + deadline {
                state.late.insert(asked);
            }
        }
        Ok(answer) => is_current(state, database, answer, since, now),
    }
}

/// Checks that an answer is not older than the last notice about its user that arrived before the look-up began.
fn is_current(state: &mut State, database: &Database, answer: &SubscriberAnswer, since: u64, now: u64) {
    let SubscriberAnswer::Credential(credential) = answer else { return };
    let Some((heard, version)) = state.changed.get(&*credential.username) else { return };
    if *heard < since && database.version(credential) < *version {
        let user = &credential.username;
        state.wrong(format!("{now}: an old password of {user} counts, though the change was heard at {heard}"));
    }
}

impl Asking {
    /// Questions for idle connections, with the answers of the database and their times.
    pub(super) fn take(&mut self, lookups: &Lookups, random: &mut Random) -> Vec<(AskedBatch, TimedAnswer)> {
        let mut batches = Vec::new();
        while let Some(batch) = self.steps.take() {
            let (now, deadline) = (lookups.now(), lookups.settings.deadline.as_millis() as u64);
            let keys: BTreeSet<String> = batch.keys().iter().map(|asked| format!("{asked:?}")).collect();
            // A question that was not answered in time may be repeated.
            let is_asked = |other: &OpenBatch| {
                !other.is_probe && other.waits_since + deadline > now && !keys.is_disjoint(&other.keys)
            };
            // A database that has stopped answering is probed by one question repeatedly.
            let is_probe = keys.len() == 1 && lookups.cache.gauges().is_broken;
            if !is_probe && (keys.len() < batch.keys().len() || self.open_batches.iter().any(is_asked)) {
                lookups.state().wrong(format!("{now}: equal questions are asked at once: {keys:?}"));
            }
            self.asked += 1;
            let number = self.asked;
            let state = lookups.state();
            // The time of a question of the cache itself is unknown.
            let since = |key: &Asked| state.waiting.values().filter(|(asked, _)| asked == key).map(|(_, at)| *at).min();
            let waits_since = batch.keys().iter().map(|key| since(key).unwrap_or(0)).min().unwrap_or(0);
            drop(state);
            self.open_batches.push(OpenBatch { number, keys, since: now, waits_since, is_probe });
            if self.open_batches.len() > lookups.settings.connections {
                lookups.state().wrong(format!("{now}: {} batches are asked at once", self.open_batches.len()));
            }
            let said = lookups.database.ask(random, now, batch.keys());
            batches.push((AskedBatch { number, batch }, said));
        }
        batches
    }

    /// Handles the answers of the database to a batch.
    pub(super) fn answered(
        &mut self,
        lookups: &Lookups,
        asked: AskedBatch,
        said: Result<Vec<SubscriberAnswer>, StoreError>,
    ) {
        let (now, AskedBatch { number, batch }) = (lookups.now(), asked);
        let at = self.open_batches.iter().position(|batch| batch.number == number).expect("it was asked");
        let since = self.open_batches.remove(at).since;
        for asked in batch.keys() {
            let key = format!("{asked:?}");
            // A failure answers no other question. An answer from before a notice does not answer a question that was
            // asked after the notice.
            let notice = self.voided.get(&key).filter(|last| number <= **last);
            let is_ended = |other: &&mut OpenBatch| said.is_ok() && notice.is_none_or(|last| other.number <= *last);
            for other in self.open_batches.iter_mut().filter(is_ended) {
                other.keys.remove(&key);
            }
        }
        if let Ok(answers) = &said {
            let mut state = lookups.state();
            if now < since + lookups.settings.deadline.as_millis() as u64 {
                state.late.clear();
                self.missed = 0;
            }
            for (asked, answer) in batch.keys().iter().zip(answers) {
                let SubscriberAnswer::Credential(credential) = answer else { continue };
                // This answer is not cached, because its question was asked before the notice arrived.
                let is_void = state.changed.get(&*credential.username).is_some_and(|(heard, _)| *heard >= since);
                if !is_void {
                    state.known.insert(asked.clone(), since);
                }
            }
        }
        self.steps.answered(batch, said);
        self.check_breaker(lookups);
    }

    /// Performs a tick. Afterwards the caller must [take](Self::take) and [check](Self::check_connections) the new
    /// questions.
    pub(super) fn keep_time(&mut self, lookups: &Lookups) {
        self.missed += self.steps.keep_time();
        self.check_breaker(lookups);
    }

    /// Checks that no question waits for long while one more connection may be opened.
    pub(super) fn check_connections(&mut self, lookups: &Lookups) {
        let gauges = lookups.cache.gauges();
        let open_batches: usize = self.open_batches.iter().map(|batch| batch.keys.len()).sum();
        let waits =
            gauges.in_flight > open_batches && gauges.connections < lookups.settings.connections && !gauges.is_broken;
        self.kept_waiting = if waits { self.kept_waiting + 1 } else { 0 };
        if self.kept_waiting > PATIENCE {
            lookups.state().wrong(format!("{}: questions wait though connections may be opened", lookups.now()));
        }
    }

    /// Checks that look-ups of users without an entry fail at once after this number of consecutive missed deadlines,
    /// until the database answers in time.
    fn check_breaker(&mut self, lookups: &Lookups) {
        let (now, is_broken) = (lookups.now(), lookups.cache.gauges().is_broken);
        self.broken_since = is_broken.then(|| self.broken_since.unwrap_or(now));
        if is_broken != (self.missed >= lookups.settings.breaker_after) {
            let missed = self.missed;
            lookups
                .state()
                .wrong(format!("{now}: {missed} deadlines were missed in a row, and is broken: {is_broken}"));
        }
    }

    /// Returns the time of the next trial look-up, besides the ticks.
    pub(super) fn deadline(&self) -> Option<u64> {
        self.steps.deadline()
    }

    /// Reads the changes of the database, if the next reading is due.
    pub(super) fn hear(&mut self, lookups: &Lookups) {
        let now = lookups.now();
        lookups.check_recovery(self.broken_since);
        if now < self.heard + lookups.settings.poll.as_millis() as u64 {
            return;
        }
        if outage(&lookups.database.outages, now).is_some_and(|outage| !matches!(outage.kind, OutageKind::Slow(_))) {
            return self.steps.hear(Err(StoreError::Unavailable));
        }
        let changed = lookups.database.changed(self.heard, now);
        self.heard = now;
        if changed.is_empty() {
            return self.steps.hear(Ok(Changes::None));
        }
        let before = lookups.cache.gauges();
        self.steps.hear(Ok(Changes::Of(changed.clone())));
        let after = lookups.cache.gauges();
        let mut state = lookups.state();
        if after.entries + changed.len() < before.entries || after.doubted > before.doubted {
            state.wrong(format!("{now}: more than what has changed is void: {before:?}, {after:?}"));
        }
        for asked in changed {
            if let Question::Credential { username, .. } = asked.question() {
                let name = String::from_utf8_lossy(username).into_owned();
                let version = lookups.database.current(&name, now);
                state.changed.insert(name, (now, version));
            }
            state.known.remove(&asked);
            self.voided.insert(format!("{asked:?}"), self.asked);
        }
    }
}

impl Subscribers for Lookups {
    fn receiver(&self, _sink: Arc<dyn LookupSink>) -> SinkId {
        SinkId::NONE
    }

    fn cached(&self, question: Question<'_>, now_ms: u64) -> Option<Result<SubscriberAnswer, StoreError>> {
        let known = self.cache.cached(question, now_ms);
        let mut state = self.state();
        match &known {
            Some(Ok(answer)) => is_current(&mut state, &self.database, answer, now_ms, now_ms),
            Some(Err(error)) => {
                let read_at = state.known.get(&Asked::from(question));
                if read_at.is_some_and(|read_at| is_good(&self.settings, *read_at, now_ms)) {
                    state.wrong(format!("{now_ms}: who is known is not found ({error}): {question:?}"));
                }
            }
            None if state.late.len() >= self.settings.breaker_after as usize => {
                state.wrong(format!("{now_ms}: the database does not answer, and is waited for again: {question:?}"));
            }
            None => (),
        }
        known
    }

    fn request(&self, ticket: Ticket, question: Question<'_>, now_ms: u64) -> Result<(), Refused> {
        self.cache.request(ticket, question, now_ms)?;
        let sinks = self.sinks.lock().unwrap_or_else(PoisonError::into_inner);
        let shard = sinks.iter().position(|sink| *sink == ticket.sink).expect("each shard has its receiver");
        drop(sinks);
        self.state().waiting.insert((shard, ticket.value), (question.into(), now_ms));
        Ok(())
    }

    fn flush(&self) {
        self.cache.flush();
    }
}
