//! A cache in front of any engine of subscribers: known answers at once, others from the engine's own thread.
//!
//! *Fresh.* Some times a second the reader asks the engine for its version; a new one makes all older answers void, so that
//! `strowger user passwd` of another process counts within [`ReadThroughSettings::poll`]. Beyond that an answer lives for its
//! time to live, "there is none" for a shorter one.
//!
//! *Bounded.* Found and absent answers have bounds of their own, so that a flood of made-up names cannot push out those
//! of real users.

mod reader;

use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use foldhash::quality::RandomState;
use hashbrown::HashTable;

use self::reader::Reader;
use crate::clock::Clock;
use crate::error::StoreError;
use crate::generations::{Entry, Key, Part, Parts, parts};
use crate::subscriber::{Answer, LookupSink, Question, Removed, SubscriberEngine, Subscribers};
use crate::ticket::{Refused, SinkId, Sinks, Ticket};

/// Limits and times of the cache.
#[derive(Clone, Debug)]
pub struct ReadThroughSettings {
    /// Most answers kept that found something.
    pub found: usize,
    /// Most answers kept that found nothing.
    pub absent: usize,
    /// Most bytes of a name of which it is kept that there is none: names that are made up may be long.
    pub absent_name: usize,
    /// How long a found answer is good.
    pub found_ttl: Duration,
    /// How long "there is none" is good.
    pub absent_ttl: Duration,
    /// How often the engine is asked whether a subscriber changed.
    pub poll: Duration,
    /// How long a request may take before its ticket comes back with [`StoreError::TimedOut`].
    pub deadline: Duration,
    /// Most different questions in flight.
    pub queue: usize,
    /// Most questions handed to the engine at once.
    pub batch: usize,
}

impl Default for ReadThroughSettings {
    fn default() -> Self {
        Self {
            found: 200_000,
            absent: 20_000,
            absent_name: 256,
            found_ttl: Duration::from_secs(300),
            absent_ttl: Duration::from_secs(30),
            poll: Duration::from_millis(500),
            deadline: Duration::from_secs(2),
            queue: 10_000,
            batch: 64,
        }
    }
}

/// Figures of the cache since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadThroughGauges {
    /// Answers kept now, void ones included.
    pub entries: usize,
    /// Different questions in flight now.
    pub in_flight: usize,
    /// Bound of `in_flight`.
    pub bound: usize,
    /// Answers from the cache.
    pub hits: u64,
    /// Questions that the cache could not answer.
    pub misses: u64,
    /// Requests that joined an equal one in flight.
    pub merged: u64,
    /// Requests refused since the queue was full.
    pub refused: u64,
    /// Tickets that came back at the deadline.
    pub late: u64,
}

struct Flight {
    key: Key,
    since: u64,
    tickets: Vec<Ticket>,
}

#[derive(Default)]
struct Requests {
    flights: HashTable<Flight>,
    /// Keys that no engine was asked for yet.
    waiting: VecDeque<Key>,
    stopped: bool,
}

struct Shared {
    parts: Box<[Mutex<Parts>]>,
    hasher: RandomState,
    /// Answers of an older version are void.
    version: AtomicU64,
    requests: Mutex<Requests>,
    in_flight: AtomicUsize,
    wake: Condvar,
    sinks: Sinks<dyn LookupSink>,
    removals: Mutex<Removals>,
    settings: ReadThroughSettings,
    clock: Clock,
    hits: AtomicU64,
    misses: AtomicU64,
    merged: AtomicU64,
    refused: AtomicU64,
    late: AtomicU64,
}

/// Users who were removed.
#[derive(Default)]
struct Removals {
    open: Vec<Removed>,
    /// Settled, and still noted in the database.
    settled: Vec<u64>,
}

/// Partitions of the cache.
const PARTS: usize = 16;

impl Shared {
    fn new(settings: ReadThroughSettings, clock: Clock) -> Self {
        let part = || {
            Mutex::new(Parts {
                found: Part::new(settings.found.div_ceil(PARTS), settings.found_ttl),
                absent: Part::new(settings.absent.div_ceil(PARTS), settings.absent_ttl),
            })
        };
        Self {
            parts: (0..PARTS).map(|_| part()).collect(),
            hasher: RandomState::default(),
            version: AtomicU64::new(0),
            requests: Mutex::default(),
            in_flight: AtomicUsize::new(0),
            wake: Condvar::new(),
            sinks: Sinks::default(),
            removals: Mutex::default(),
            settings,
            clock,
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            merged: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            late: AtomicU64::new(0),
        }
    }

    fn hash(&self, question: Question<'_>) -> u64 {
        self.hasher.hash_one(parts(question))
    }

    fn removals(&self) -> MutexGuard<'_, Removals> {
        self.removals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn part(&self, hash: u64) -> MutexGuard<'_, Parts> {
        self.parts[(hash >> 32) as usize % PARTS].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn requests(&self) -> MutexGuard<'_, Requests> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, question: Question<'_>, now: u64) -> Option<Answer> {
        let hash = self.hash(question);
        let version = self.version.load(Ordering::Acquire);
        let fresh = |e: &Entry, ttl| e.version == version && since(e.read_at, now) < ttl;
        let rehash = |e: &Entry| self.hash(e.key.question());
        let mut part = self.part(hash);
        part.found.find(hash, question, fresh, rehash).or_else(|| part.absent.find(hash, question, fresh, rehash))
    }

    fn keep(&self, entry: Entry) {
        if entry.answer == Answer::Absent && entry.key.len() > self.settings.absent_name {
            return;
        }
        let hash = self.hash(entry.key.question());
        let rehash = |e: &Entry| self.hash(e.key.question());
        let mut part = self.part(hash);
        let parts = &mut *part;
        let (to, other) = match entry.answer {
            Answer::Absent => (&mut parts.absent, &mut parts.found),
            Answer::Credential(_) | Answer::Exists => (&mut parts.found, &mut parts.absent),
        };
        // One question has one answer.
        other.remove(hash, &entry.key);
        to.insert(hash, entry, rehash);
    }

    fn entries(&self) -> usize {
        let len = |parts: &Mutex<Parts>| {
            let parts = parts.lock().unwrap_or_else(PoisonError::into_inner);
            parts.found.len() + parts.absent.len()
        };
        self.parts.iter().map(len).sum()
    }

    /// Ends the flight of `key` and names who waits for it; none when the deadline was faster.
    fn land(&self, key: &Key) -> Vec<Ticket> {
        let hash = self.hash(key.question());
        let mut requests = self.requests();
        let Ok(flight) = requests.flights.find_entry(hash, |f| f.key == *key) else { return Vec::new() };
        let tickets = flight.remove().0.tickets;
        self.in_flight.store(requests.flights.len(), Ordering::Relaxed);
        tickets
    }

    fn give(&self, results: &mut Vec<(Ticket, Result<Answer, StoreError>)>) {
        self.sinks.hand_out(results, |sink, results| sink.answered(results));
    }

    fn overdue(&self, now: u64) {
        if self.in_flight.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut results = Vec::new();
        {
            let mut requests = self.requests();
            let late = |f: &mut Flight| since(f.since, now) >= self.settings.deadline;
            for flight in requests.flights.extract_if(late) {
                results.extend(flight.tickets.into_iter().map(|ticket| (ticket, Err(StoreError::TimedOut))));
            }
            let Requests { flights, waiting, .. } = &mut *requests;
            if !results.is_empty() {
                waiting.retain(|key| flights.find(self.hash(key.question()), |f| f.key == *key).is_some());
            }
            self.in_flight.store(flights.len(), Ordering::Relaxed);
        }
        self.late.fetch_add(results.len() as u64, Ordering::Relaxed);
        self.give(&mut results);
    }

    /// Waits for questions; after `poll` it returns without any. `false` once stopped.
    fn take(&self, keys: &mut Vec<Key>) -> bool {
        keys.clear();
        let mut requests = self.requests();
        if requests.waiting.is_empty() && !requests.stopped {
            requests = self.wake.wait_timeout(requests, self.settings.poll).unwrap_or_else(PoisonError::into_inner).0;
        }
        if requests.stopped {
            return false;
        }
        let most = requests.waiting.len().min(self.settings.batch.max(1));
        keys.extend(requests.waiting.drain(..most));
        true
    }

    fn stop(&self) {
        let mut results = Vec::new();
        {
            let mut requests = self.requests();
            requests.stopped = true;
            requests.waiting.clear();
            for flight in requests.flights.drain() {
                results.extend(flight.tickets.into_iter().map(|ticket| (ticket, Err(StoreError::Unavailable))));
            }
            self.in_flight.store(0, Ordering::Relaxed);
        }
        self.wake.notify_all();
        self.give(&mut results);
    }
}

/// From one moment to another, in milliseconds of [`Moment::mono`](crate::clock::Moment::mono).
const fn since(then: u64, now: u64) -> Duration {
    Duration::from_millis(now.saturating_sub(then))
}

/// The cache with its reader thread. Dropping it ends the thread; open tickets come back with [`StoreError::Unavailable`].
pub struct ReadThrough {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl ReadThrough {
    /// Starts the reader. `clock` is the one that callers take their time from.
    ///
    /// # Errors
    /// The thread could not be started.
    pub fn start(engine: impl SubscriberEngine, settings: ReadThroughSettings, clock: Clock) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::new(settings, clock));
        let reader = Reader::new(engine, Arc::clone(&shared));
        let thread = std::thread::Builder::new().name("subscriber-read".into()).spawn(move || reader.run())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Makes every answer void, so that each is asked for again.
    pub fn forget(&self) {
        self.shared.version.fetch_add(1, Ordering::AcqRel);
    }

    /// Figures for the log and the metrics.
    pub fn gauges(&self) -> ReadThroughGauges {
        let s = &self.shared;
        let of = |n: &AtomicU64| n.load(Ordering::Relaxed);
        ReadThroughGauges {
            entries: s.entries(),
            in_flight: s.in_flight.load(Ordering::Relaxed),
            bound: s.settings.queue,
            hits: of(&s.hits),
            misses: of(&s.misses),
            merged: of(&s.merged),
            refused: of(&s.refused),
            late: of(&s.late),
        }
    }
}

impl Subscribers for ReadThrough {
    fn receiver(&self, sink: Arc<dyn LookupSink>) -> SinkId {
        self.shared.sinks.add(sink)
    }

    fn cached(&self, question: Question<'_>, now_ms: u64) -> Option<Answer> {
        let answer = self.shared.find(question, now_ms);
        let count = if answer.is_some() { &self.shared.hits } else { &self.shared.misses };
        count.fetch_add(1, Ordering::Relaxed);
        answer
    }

    fn request(&self, ticket: Ticket, question: Question<'_>, now_ms: u64) -> Result<(), Refused> {
        let shared = &self.shared;
        let hash = shared.hash(question);
        let mut requests = shared.requests();
        if requests.stopped {
            return Err(Refused::Stopped);
        }
        if let Some(flight) = requests.flights.find_mut(hash, |f| f.key.question() == question) {
            flight.tickets.push(ticket);
            shared.merged.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        if requests.flights.len() >= shared.settings.queue {
            shared.refused.fetch_add(1, Ordering::Relaxed);
            return Err(Refused::Full);
        }
        let key = Key::new(question);
        let flight = Flight { key: key.clone(), since: now_ms, tickets: vec![ticket] };
        requests.flights.insert_unique(hash, flight, |f| shared.hash(f.key.question()));
        shared.in_flight.store(requests.flights.len(), Ordering::Relaxed);
        requests.waiting.push_back(key);
        drop(requests);
        shared.wake.notify_one();
        Ok(())
    }

    fn overdue(&self, now_ms: u64) {
        self.shared.overdue(now_ms);
    }

    fn removed(&self) -> Vec<Removed> {
        self.shared.removals().open.clone()
    }

    fn has_ended(&self) -> bool {
        self.thread.as_ref().is_some_and(JoinHandle::is_finished)
    }

    fn settled(&self, id: u64) {
        let mut removals = self.shared.removals();
        removals.open.retain(|removed| removed.id != id);
        removals.settled.push(id);
    }
}

impl Drop for ReadThrough {
    fn drop(&mut self) {
        self.shared.stop();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that reads subscribers had ended by a panic");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::tests::{clock, now};
    use crate::subscriber::{Credential, Ha1s};
    use std::collections::HashSet;
    use std::sync::mpsc;
    use std::time::Instant;

    /// Knows users whose names begin with "u"; fails, waits and counts when told.
    #[derive(Clone, Default)]
    struct Fake {
        asked: Arc<AtomicU64>,
        version: Arc<AtomicU64>,
        fail: Arc<AtomicUsize>,
        gate: Arc<Mutex<()>>,
    }

    impl SubscriberEngine for Fake {
        fn answer(&mut self, questions: &[Question<'_>], answers: &mut Vec<Answer>) -> Result<(), StoreError> {
            self.asked.fetch_add(questions.len() as u64, Ordering::SeqCst);
            let _gate = self.gate.lock().unwrap();
            if self.fail.load(Ordering::SeqCst) != 0 {
                return Err(StoreError::Unavailable);
            }
            for question in questions {
                answers.push(match question {
                    Question::Credential { username, .. } if username.starts_with(b"u") => {
                        Answer::Credential(Arc::new(Credential {
                            username: String::from_utf8_lossy(username).into(),
                            realm: "r".into(),
                            domain: "d".into(),
                            ha1: Ha1s::default(),
                        }))
                    }
                    Question::User { username, .. } if username.starts_with(b"u") => Answer::Exists,
                    _ => Answer::Absent,
                });
            }
            Ok(())
        }

        fn version(&mut self) -> Result<u64, StoreError> {
            Ok(self.version.load(Ordering::SeqCst))
        }
    }

    struct Bed {
        fake: Fake,
        store: ReadThrough,
        sink: SinkId,
        results: mpsc::Receiver<(u64, Result<Answer, StoreError>)>,
    }

    fn bed(settings: ReadThroughSettings) -> Bed {
        let fake = Fake::default();
        let store = ReadThrough::start(fake.clone(), settings, clock()).unwrap();
        let (tx, results) = mpsc::channel();
        let sink = store.receiver(Arc::new(move |results: &[(u64, Result<Answer, StoreError>)]| {
            for result in results {
                let _gone = tx.send(result.clone());
            }
        }));
        Bed { fake, store, sink, results }
    }

    fn credential(username: &str) -> Question<'_> {
        Question::Credential { username: username.as_bytes(), realm: b"r" }
    }

    impl Bed {
        fn request(&self, value: u64, question: Question<'_>) -> Result<(), Refused> {
            self.store.request(Ticket { sink: self.sink, value }, question, now())
        }

        fn result(&self) -> (u64, Result<Answer, StoreError>) {
            self.results.recv_timeout(Duration::from_secs(20)).expect("each ticket comes back")
        }

        fn ask(&self, question: Question<'_>) -> Answer {
            self.request(0, question).unwrap();
            self.result().1.unwrap()
        }

        fn until_asked(&self, n: u64) {
            while self.fake.asked.load(Ordering::SeqCst) < n {
                std::thread::yield_now();
            }
        }
    }

    #[test]
    fn the_second_time_it_is_known() {
        let bed = bed(ReadThroughSettings::default());
        let now = now();
        assert_eq!(bed.store.cached(credential("u1"), now), None);
        let answer = bed.ask(credential("u1"));
        assert!(matches!(&answer, Answer::Credential(c) if &*c.username == "u1"));
        assert_eq!(bed.store.cached(credential("u1"), now), Some(answer));
        assert_eq!(bed.ask(credential("nobody")), Answer::Absent);
        assert_eq!(bed.store.cached(credential("nobody"), now), Some(Answer::Absent));
        // The same texts, cut elsewhere or asked otherwise, are another question.
        let split = Question::Credential { username: b"u", realm: b"1r" };
        assert_eq!(bed.store.cached(split, now), None);
        let user = Question::User { username: b"u1", domain: b"r" };
        assert_eq!(bed.store.cached(user, now), None);
        assert_eq!(bed.ask(user), Answer::Exists);
        let gauges = bed.store.gauges();
        assert_eq!((gauges.entries, gauges.hits, gauges.misses, gauges.in_flight), (3, 2, 3, 0));
    }

    /// Made-up names are as long as a message: twenty thousand of them would be a gigabyte.
    #[test]
    fn that_there_is_no_user_of_a_long_name_is_not_kept() {
        let bed = bed(ReadThroughSettings::default());
        for (length, kept) in [(200, 1), (400, 1), (60_000, 1)] {
            let name = "n".repeat(length);
            assert_eq!(bed.ask(credential(&name)), Answer::Absent);
            assert_eq!(bed.store.gauges().entries, kept, "{length}");
        }
    }

    #[test]
    fn equal_questions_in_flight_are_asked_once() {
        let bed = bed(ReadThroughSettings::default());
        let gate = bed.fake.gate.lock().unwrap();
        bed.request(0, credential("u0")).unwrap();
        bed.until_asked(1);
        for n in 1..100 {
            bed.request(n, credential("u1")).unwrap();
        }
        drop(gate);
        let values: HashSet<u64> = (0..100).map(|_| bed.result()).map(|(n, r)| r.map(|_| n).unwrap()).collect();
        assert_eq!(values.len(), 100);
        assert_eq!(bed.fake.asked.load(Ordering::SeqCst), 2);
        assert_eq!(bed.store.gauges().merged, 98);
    }

    #[test]
    fn a_slow_database_is_answered_for_at_the_deadline() {
        let bed =
            bed(ReadThroughSettings { deadline: Duration::from_secs(5), queue: 2, ..ReadThroughSettings::default() });
        let gate = bed.fake.gate.lock().unwrap();
        let start = now();
        bed.request(1, credential("u1")).unwrap();
        bed.until_asked(1);
        bed.request(2, credential("u2")).unwrap();
        assert_eq!(bed.request(3, credential("u3")), Err(Refused::Full));
        bed.request(4, credential("u2")).unwrap();
        bed.store.overdue(start + 4_000);
        assert!(bed.results.try_recv().is_err());
        bed.store.overdue(start + 6_000);
        let late: HashSet<_> = (0..3).map(|_| bed.result()).map(|(n, r)| (n, r.unwrap_err())).collect();
        assert_eq!(late, [1, 2, 4].map(|n| (n, StoreError::TimedOut)).into());
        drop(gate);
        // The answer that came too late is known all the same, and no ticket comes twice.
        while bed.store.cached(credential("u1"), now()).is_none() {
            std::thread::yield_now();
        }
        bed.ask(credential("u9"));
        assert!(bed.results.try_recv().is_err());
        assert_eq!(bed.store.gauges().late, 3);
        assert_eq!(bed.fake.asked.load(Ordering::SeqCst), 2, "what nobody waits for is not asked");
    }

    #[test]
    fn a_failure_is_told_and_not_kept() {
        let bed = bed(ReadThroughSettings::default());
        bed.fake.fail.store(1, Ordering::SeqCst);
        bed.request(1, credential("u1")).unwrap();
        assert_eq!(bed.result(), (1, Err(StoreError::Unavailable)));
        assert_eq!(bed.store.cached(credential("u1"), now()), None);
        bed.fake.fail.store(0, Ordering::SeqCst);
        assert_ne!(bed.ask(credential("u1")), Answer::Absent);
    }

    #[test]
    fn answers_grow_old() {
        let bed = bed(ReadThroughSettings::default());
        bed.ask(credential("u1"));
        bed.ask(credential("nobody"));
        let in_a_minute = now() + 60_000;
        assert!(bed.store.cached(credential("u1"), in_a_minute).is_some());
        assert_eq!(bed.store.cached(credential("nobody"), in_a_minute), None);
        assert_eq!(bed.store.cached(credential("u1"), in_a_minute + 300_000), None);
    }

    #[test]
    fn a_change_voids_the_cache() {
        let bed = bed(ReadThroughSettings { poll: Duration::from_millis(10), ..ReadThroughSettings::default() });
        bed.ask(credential("u1"));
        std::thread::sleep(Duration::from_millis(50));
        assert!(bed.store.cached(credential("u1"), now()).is_some(), "nothing changed");
        bed.fake.version.store(1, Ordering::SeqCst);
        let start = Instant::now();
        while bed.store.cached(credential("u1"), now()).is_some() {
            assert!(start.elapsed() < Duration::from_secs(20));
            std::thread::yield_now();
        }
        bed.ask(credential("u1"));
        bed.store.forget();
        assert_eq!(bed.store.cached(credential("u1"), now()), None);
    }

    #[test]
    fn made_up_names_do_not_push_out_users() {
        let bed = bed(ReadThroughSettings { found: 320, absent: 320, ..ReadThroughSettings::default() });
        bed.ask(credential("u1"));
        for n in 0..3000 {
            bed.ask(credential(&format!("x{n}")));
        }
        assert!(bed.store.cached(credential("u1"), now()).is_some());
        let entries = bed.store.gauges().entries;
        assert!((160..=321).contains(&entries), "{entries}");
        // Users push out users, but not one who is asked for all the time.
        for n in 0..3000 {
            bed.ask(credential(&format!("u-{n}")));
            assert!(bed.store.cached(credential("u1"), now()).is_some());
        }
        assert!(bed.store.gauges().entries <= 640);
    }

    #[test]
    fn the_end_answers_what_is_open() {
        let bed = bed(ReadThroughSettings::default());
        let gate = bed.fake.gate.lock().unwrap();
        bed.request(1, credential("u1")).unwrap();
        bed.until_asked(1);
        bed.request(2, credential("u2")).unwrap();
        bed.store.shared.stop();
        let ended: HashSet<_> = (0..2).map(|_| bed.result()).map(|(n, r)| (n, r.unwrap_err())).collect();
        assert_eq!(ended, [1, 2].map(|n| (n, StoreError::Unavailable)).into());
        assert_eq!(bed.request(3, credential("u3")), Err(Refused::Stopped));
        drop(gate);
    }
}
