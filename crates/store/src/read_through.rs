//! Cache in front of any engine, for any kind of question: cached answers are returned at once, threads beside the
//! shards fetch the others.
//!
//! *Batches.* Equal questions in flight are asked once. The questions of a round leave together
//! ([`ReadThrough::flush`]); up to [`ReadThroughSettings::connections`] batches are with the engine at once, each on
//! its own connection. A shard may have one more connection for itself, which wakes no thread ([`ReadThrough::local`]).
//!
//! *Fresh answers.* A [`Watch`] asks the engine several times a second for changes, on a connection that carries no
//! questions. A notice voids the answers that it names, and a new version voids all answers, so that `strowger user
//! passwd` of another process takes effect within [`ReadThroughSettings::poll`]. In addition each answer has a
//! lifetime; negative answers have a shorter one.
//!
//! *Silent engines.* Cached answers outlive their engine (as RFC 8767 does for names): an answer past its lifetime
//! stays usable for another [`ReadThroughSettings::serve_stale`] if the engine fails or does not answer within
//! [`ReadThroughSettings::stale_wait`]; meanwhile the answer is requested again. Questions without a cached answer fail
//! at their deadline. After [`ReadThroughSettings::breaker_after`] consecutive missed deadlines they fail at once, and
//! one question is repeated until the engine answers in time.
//!
//! *Bounded.* Positive and negative answers have separate bounds, so that a flood of made-up names cannot evict the
//! answers about real users.

mod asker;
mod batch;
mod cache;
mod change_watch;
mod deadlines;
mod engine;
mod flights;
mod generations;
mod local;
mod steps;

use std::hash::Hash;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hashbrown::Equivalent;

use self::asker::Asker;
pub use self::batch::Batch;
use self::cache::Cache;
use self::change_watch::watch;
use self::deadlines::keep_time;
pub use self::engine::{Changes, Key, LookupEngine, Version, Watch};
use self::flights::Flights;
pub use self::local::{LocalAsker, LocalEngine, Task};
pub use self::steps::Steps;
use crate::clock::Clock;
use crate::error::StoreError;
use crate::ticket::{Refused, SinkId, Sinks, Ticket};

/// Limits and times of the cache.
#[derive(Clone, Debug)]
pub struct ReadThroughSettings {
    /// Subject of the look-ups, for names of threads and the log; at most 10 bytes.
    pub name: &'static str,
    /// Maximum number of positive answers in the cache.
    pub found: usize,
    /// Maximum number of negative answers in the cache.
    pub absent: usize,
    /// Longest name, in bytes, with a cached negative answer: made-up names may be long.
    pub absent_name: usize,
    /// Lifetime of a positive answer.
    pub found_ttl: Duration,
    /// Lifetime of a negative answer.
    pub absent_ttl: Duration,
    /// Time beyond its lifetime for which a positive answer is used while the engine does not answer; zero: not at all.
    pub serve_stale: Duration,
    /// Time that the engine has to answer before a stale answer is used.
    pub stale_wait: Duration,
    /// Interval between two checks for changes, and between two trial look-ups at an engine that has stopped answering.
    pub poll: Duration,
    /// Time after which a request's ticket comes back with [`StoreError::TimedOut`]; kept within 50 ms.
    pub deadline: Duration,
    /// Deadlines missed in a row after which unknown questions are answered with [`StoreError::Unavailable`] at once.
    pub breaker_after: u32,
    /// Maximum number of different questions in flight.
    pub queue: usize,
    /// Maximum number of questions given to the engine at once.
    pub batch: usize,
    /// Limit of batches with the engine at a time: connections, each with its thread. One is opened at the start, others
    /// when all are busy.
    pub connections: usize,
}

impl Default for ReadThroughSettings {
    fn default() -> Self {
        Self {
            name: "lookup",
            found: 200_000,
            absent: 20_000,
            absent_name: 256,
            found_ttl: Duration::from_secs(300),
            absent_ttl: Duration::from_secs(30),
            serve_stale: Duration::from_secs(86_400),
            stale_wait: Duration::from_millis(200),
            poll: Duration::from_millis(500),
            deadline: Duration::from_secs(2),
            breaker_after: 5,
            queue: 10_000,
            batch: 256,
            connections: 4,
        }
    }
}

/// Figures of the cache since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadThroughGauges {
    /// Cached answers, including voided ones.
    pub entries: usize,
    /// Cached negative answers.
    pub absent: usize,
    /// Different questions in flight.
    pub in_flight: usize,
    /// Bound of `in_flight`.
    pub bound: usize,
    /// Open connections to the engine.
    pub connections: usize,
    /// True while the engine does not answer: questions without a cached answer fail at once.
    pub is_broken: bool,
    /// Answers from the cache.
    pub hits: u64,
    /// Questions that the cache could not answer.
    pub misses: u64,
    /// Stale answers that were used because the engine was silent.
    pub stale: u64,
    /// Requests that joined an equal one in flight.
    pub merged: u64,
    /// Requests refused since the queue was full.
    pub refused: u64,
    /// Tickets that came back at the deadline.
    pub late: u64,
    /// Questions that failed at once because the engine had missed several deadlines in a row.
    pub broken: u64,
    /// Batches that failed with an error of the engine.
    pub failed: u64,
    /// Cached answers that notices voided one by one.
    pub voided: u64,
    /// Times that the whole cache lost its freshness because the changes were unknown.
    pub doubted: u64,
}

#[derive(Default)]
struct Figures {
    hits: AtomicU64,
    misses: AtomicU64,
    stale: AtomicU64,
    merged: AtomicU64,
    refused: AtomicU64,
    late: AtomicU64,
    broken: AtomicU64,
    failed: AtomicU64,
    voided: AtomicU64,
    doubted: AtomicU64,
}

/// Receiver of answers. Runs on a thread of the store, so it must not block.
trait Sink<A>: Send + Sync {
    fn answered(&self, results: &[(u64, Result<A, StoreError>)]);
}

impl<A, F: Fn(&[(u64, Result<A, StoreError>)]) + Send + Sync> Sink<A> for F {
    fn answered(&self, results: &[(u64, Result<A, StoreError>)]) {
        self(results);
    }
}

type Results<K> = Vec<(Ticket, Result<<K as Key>::Value, StoreError>)>;

struct Shared<K: Key> {
    cache: Cache<K>,
    flights: Flights<K>,
    sinks: Sinks<dyn Sink<K::Value>>,
    settings: ReadThroughSettings,
    clock: Clock,
    /// Set while the engine does not answer in time: cached answers are used past their lifetime.
    is_silent: AtomicBool,
    /// Deadlines missed since the last answer in time.
    misses: AtomicU32,
    figures: Figures,
}

impl<K: Key> Shared<K> {
    fn new(settings: ReadThroughSettings, clock: Clock) -> Self {
        Self {
            cache: Cache::new(&settings),
            flights: Flights::new(&settings),
            sinks: Sinks::default(),
            settings,
            clock,
            is_silent: AtomicBool::new(false),
            misses: AtomicU32::new(0),
            figures: Figures::default(),
        }
    }

    fn give(&self, results: &mut Results<K>) {
        self.sinks.hand_out(results, |sink, results| sink.answered(results));
    }

    fn is_broken(&self) -> bool {
        self.misses.load(Ordering::Relaxed) >= self.settings.breaker_after
    }

    /// Records an answer that came `took` after its question.
    fn heard(&self, took: Duration) {
        self.is_silent.store(took >= self.settings.stale_wait, Ordering::Relaxed);
        if took < self.settings.deadline {
            let was_broken = self.is_broken();
            self.misses.store(0, Ordering::Relaxed);
            if was_broken {
                tracing::info!(of = self.settings.name, "the database answers again");
            }
        } else if self.is_broken() {
            self.flights.probe_now();
        }
    }

    /// Records a failure of the engine.
    fn failed(&self) {
        self.is_silent.store(true, Ordering::Relaxed);
        self.figures.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// Records `count` missed deadlines.
    fn missed(&self, count: u32) {
        let before = self.misses.fetch_add(count, Ordering::Relaxed);
        let after = self.settings.breaker_after;
        if before < after && before.saturating_add(count) >= after {
            tracing::error!(
                of = self.settings.name,
                deadlines = after,
                "the database does not answer: look-ups of what is not known fail at once"
            );
            self.flights.wake_all();
        }
    }

    /// Returns the stale answer, if there is one.
    fn stale(&self, key: &K, now: u64) -> Option<K::Value> {
        let (answer, _) = self.cache.find(self.cache.hash(key), key, now)?;
        self.figures.stale.fetch_add(1, Ordering::Relaxed);
        Some(answer)
    }
}

/// Returns the time between two values of [`Moment::mono`](crate::clock::Moment::mono), in milliseconds.
const fn since(then: u64, now: u64) -> Duration {
    Duration::from_millis(now.saturating_sub(then))
}

/// Cache with its threads. A drop ends them; open tickets come back with [`StoreError::Unavailable`].
pub struct ReadThrough<K: Key> {
    shared: Arc<Shared<K>>,
    threads: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

impl<K: Key> ReadThrough<K> {
    /// Starts the threads. `connect` opens another connection when the connections so far are busy, and may take long.
    /// `changes` reports changed answers; without it only the lifetime limits the use of an answer. `clock` must be the
    /// clock of the callers.
    ///
    /// # Errors
    /// A thread could not be started.
    pub fn start<E: LookupEngine<Key = K>>(
        first: E,
        connect: impl Fn() -> Result<E, StoreError> + Send + Sync + 'static,
        changes: Option<Box<dyn Watch<Key = K>>>,
        settings: ReadThroughSettings,
        clock: Clock,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::new(settings, clock));
        let started = Self { shared: shared.clone(), threads: Arc::default() };
        let asker = Asker::new(Some(first), Arc::new(connect), shared.clone());
        let further = asker.another();
        started.spawn("read", move || asker.run())?;
        if let Some(changes) = changes {
            let shared = shared.clone();
            started.spawn("poll", move || watch(&shared, changes))?;
        }
        let threads = started.threads.clone();
        started.spawn("due", move || {
            let name = shared.settings.name;
            keep_time(&shared, || {
                let asker = further.another();
                match spawn(&threads, format!("{name}-read"), move || asker.run()) {
                    Ok(()) => true,
                    Err(error) => {
                        tracing::error!(of = name, %error, "a further thread for look-ups cannot be started");
                        false
                    }
                }
            });
        })?;
        Ok(started)
    }

    fn spawn(&self, what: &str, run: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
        spawn(&self.threads, format!("{}-{what}", self.shared.settings.name), run)
    }

    /// Adds a receiver of answers. `sink` is called on a thread of the store, and must not block.
    pub fn receiver(&self, sink: impl Fn(&[(u64, Result<K::Value, StoreError>)]) + Send + Sync + 'static) -> SinkId {
        self.shared.sinks.add(Arc::new(sink))
    }

    /// Returns the answer known at `now_ms`, or an error at once if the engine is broken. Never waits; does not
    /// allocate while the engine answers.
    #[inline]
    pub fn cached<Q>(&self, question: Q, now_ms: u64) -> Option<Result<K::Value, StoreError>>
    where
        Q: Copy + Hash + Equivalent<K> + Into<K>,
    {
        let shared = &self.shared;
        let hash = shared.cache.hash(&question);
        match shared.cache.find(hash, &question, now_ms) {
            Some((answer, true)) => {
                shared.figures.hits.fetch_add(1, Ordering::Relaxed);
                Some(Ok(answer))
            }
            Some((answer, false)) if shared.is_silent.load(Ordering::Relaxed) => {
                shared.figures.stale.fetch_add(1, Ordering::Relaxed);
                if !shared.is_broken() {
                    let _full = shared.flights.request(None, hash, &question, now_ms);
                }
                Some(Ok(answer))
            }
            _ if shared.is_broken() => {
                shared.figures.broken.fetch_add(1, Ordering::Relaxed);
                Some(Err(StoreError::Unavailable))
            }
            _ => {
                shared.figures.misses.fetch_add(1, Ordering::Relaxed);
                None
            }
        }
    }

    /// Asks the engine once the round is [flushed](Self::flush). `ticket` comes back once: with the answer, or with an
    /// error at the deadline. If an equal question is in flight, it is not asked again.
    ///
    /// # Errors
    /// The queue is full or the threads have stopped; the ticket does not come back.
    pub fn request<Q>(&self, ticket: Ticket, question: Q, now_ms: u64) -> Result<(), Refused>
    where
        Q: Copy + Hash + Equivalent<K> + Into<K>,
    {
        let (shared, hash) = (&self.shared, self.shared.cache.hash(&question));
        let joined = shared.flights.request(Some(ticket), hash, &question, now_ms).inspect_err(|refused| {
            if *refused == Refused::Full {
                shared.figures.refused.fetch_add(1, Ordering::Relaxed);
            }
        })?;
        if joined {
            shared.figures.merged.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Sends the questions that were requested since the last call. This is cheap if there are none. Without this call
    /// the questions are sent a moment later.
    pub fn flush(&self) {
        self.shared.flights.flush();
    }

    /// Returns the cached answer to a question, and whether the answer is usable at `now_ms` without the engine. This
    /// is for display only: it counts as no hit.
    pub fn kept<Q>(&self, question: Q, now_ms: u64) -> Option<(K::Value, bool)>
    where
        Q: Copy + Hash + Equivalent<K>,
    {
        self.shared.cache.find(self.shared.cache.hash(&question), &question, now_ms)
    }

    /// Voids the answers to these questions, as a notice of the engine does. Returns how many of the answers were
    /// cached.
    pub fn void(&self, keys: &[K]) -> usize {
        self.shared.void(keys)
    }

    /// Removes all cached answers.
    pub fn forget(&self) {
        self.shared.flights.void_all();
        self.shared.cache.clear();
    }

    /// Tells whether a thread has ended unexpectedly; then every question is refused.
    pub fn has_ended(&self) -> bool {
        self.shared.flights.has_stopped()
    }

    /// Returns figures for the log and the metrics.
    pub fn gauges(&self) -> ReadThroughGauges {
        let (shared, f) = (&self.shared, &self.shared.figures);
        let of = |n: &AtomicU64| n.load(Ordering::Relaxed);
        let (found, absent) = shared.cache.len();
        ReadThroughGauges {
            entries: found + absent,
            absent,
            in_flight: shared.flights.len(),
            bound: shared.settings.queue,
            connections: shared.flights.askers(),
            is_broken: shared.is_broken(),
            hits: of(&f.hits),
            misses: of(&f.misses),
            stale: of(&f.stale),
            merged: of(&f.merged),
            refused: of(&f.refused),
            late: of(&f.late),
            broken: of(&f.broken),
            failed: of(&f.failed),
            voided: of(&f.voided),
            doubted: of(&f.doubted),
        }
    }
}

fn spawn(
    threads: &Mutex<Vec<JoinHandle<()>>>,
    name: String,
    run: impl FnOnce() + Send + 'static,
) -> std::io::Result<()> {
    let thread = std::thread::Builder::new().name(name).spawn(run)?;
    threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
    Ok(())
}

/// Interval at which a drop checks whether the threads have ended.
const LOOK: Duration = Duration::from_millis(1);

impl<K: Key> Drop for ReadThrough<K> {
    fn drop(&mut self) {
        let shared = &self.shared;
        let mut results = shared.flights.stop();
        shared.give(&mut results);
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        // An engine may block its thread: the wait has a limit of one deadline, so that a dead database does not delay
        // the end of the process.
        let end = Instant::now() + shared.settings.deadline;
        while Instant::now() < end && !threads.iter().all(JoinHandle::is_finished) {
            std::thread::sleep(LOOK);
        }
        for thread in threads {
            if !thread.is_finished() {
                tracing::warn!(of = shared.settings.name, "the database still holds up a thread: it is left behind");
            } else if thread.join().is_err() {
                tracing::error!(of = shared.settings.name, "a thread of the look-ups had ended by a panic");
            }
        }
    }
}

/// Guard of a thread: after a panic, requests are refused instead of waiting for ever.
struct StopOnDrop<K: Key>(Arc<Shared<K>>);

impl<K: Key> Drop for StopOnDrop<K> {
    fn drop(&mut self) {
        let mut results = self.0.flights.stop();
        self.0.give(&mut results);
    }
}

#[cfg(test)]
mod tests;
