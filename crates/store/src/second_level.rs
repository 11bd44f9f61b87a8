//! Cache between the memory of this process and its database. Several servers may share this cache, and it may outlive
//! these servers.
//!
//! A batch of questions that the memory cannot answer goes to this cache first. Misses go to the database, and each
//! user found there is stored. A failed or silent cache costs its deadline at most: the database is asked instead.
//!
//! *Unknown users.* Negative answers are never stored: any sender can ask for any number of made-up users, and their
//! entries would evict known users. The memory of the process holds such answers, with a bound of their own
//! ([`read_through`](crate::read_through)).
//!
//! *Keys.* A key has the realm, or the domain, and the user. A value begins with its format version and repeats the
//! key: an entry under a wrong key, of another version or damaged is ignored.
//!
//! *Fresh answers.* Changed answers are removed from the cache. From then on an answer to that question counts only if
//! it was read from the database after the change: another server that has not noticed the change yet may store its
//! older answer. The same holds for all answers if the database cannot say which have changed, and for answers from
//! before this process watched it. The comparison uses the system clocks of the servers, which must agree. A database
//! that reports no changes has no watch: an answer is then at most as old as the lifetimes of both caches together.

pub(crate) mod codec;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use strowger_cache::engine::CacheHandle;
use strowger_cache::error::CacheError;
use strowger_cache::request::{CacheAnswer, Life, Promise, Request};
use strowger_cache::ticket::Ticket;
use strowger_cache::waiting::{CacheResponse, WaitingCache};

use self::codec::{decode, encode, key_of};
use crate::clock::Clock;
use crate::error::StoreError;
use crate::read_through::{Changes, Key, LocalEngine, LookupEngine, Task};
use crate::subscriber::{Asked, Removed, SubscriberAnswer, SubscriberWatch};

/// Maximum number of keys with a known time of change. With more of them, all entries from before now are ignored.
const CHANGED: usize = 10_000;

/// Lifetimes and timeouts of the cache.
#[derive(Clone, Copy, Debug)]
pub struct SecondLevelSettings {
    /// Lifetime of an answer.
    pub found: Duration,
    /// Longest wait for an answer of the cache; its own deadline is shorter.
    pub wait: Duration,
}

/// Cache; clones share it.
#[derive(Clone)]
pub struct SecondLevel {
    shared: Arc<Shared>,
}

struct Shared {
    cache: CacheHandle,
    settings: SecondLevelSettings,
    clock: Clock,
    doubts: Mutex<Doubts>,
}

/// Entries of the cache that may be outdated.
#[derive(Default)]
struct Doubts {
    /// Changed keys. Answers that the database gave before this time, in milliseconds since 1970, do not count.
    changed: HashMap<Vec<u8>, u64>,
    /// Changed keys still to be removed.
    removals: HashSet<Vec<u8>>,
    /// Answers for any key that the database gave before this time, in milliseconds since 1970, do not count.
    not_before: u64,
    /// Number of reported changes.
    changes: u64,
}

impl Doubts {
    /// Returns the time from which answers for this key count.
    fn not_before(&self, key: &[u8]) -> u64 {
        self.changed.get(key).map_or(self.not_before, |changed| self.not_before.max(*changed))
    }

    /// Ignores earlier answers for all keys.
    fn doubt_all(&mut self, not_before: u64) {
        self.not_before = not_before;
        self.changed.clear();
        self.removals.clear();
    }
}

impl Shared {
    fn doubts(&self) -> MutexGuard<'_, Doubts> {
        self.doubts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the answers to these questions changed just now.
    fn doubt(&self, changed: &[Asked]) {
        // An answer read in this same millisecond may be from before the change.
        let not_before = (self.clock)().wall + 1;
        let doubts = &mut *self.doubts();
        doubts.changes += 1;
        for key in changed.iter().map(key_of) {
            doubts.changed.insert(key.clone(), not_before);
            doubts.removals.insert(key);
        }
        if doubts.changed.len() > CHANGED {
            doubts.doubt_all(not_before);
        }
    }

    /// Records that all answers may have changed just now.
    fn doubt_all(&self) {
        let not_before = (self.clock)().wall + 1;
        let doubts = &mut *self.doubts();
        doubts.changes += 1;
        doubts.doubt_all(not_before);
    }

    /// Removes these keys. Keys that the cache could not remove are added to `removals`.
    fn remove(&self, cache: &mut WaitingCache, keys: &[Vec<u8>]) -> Result<(), CacheError> {
        let removals: Vec<Request<'_>> = keys.iter().map(|key| Request::Remove { key }).collect();
        let now = (self.clock)().mono;
        let outcomes = cache.ask(&removals, Promise::Held, now, self.settings.wait);
        let mut removed = Ok(());
        let doubts = &mut *self.doubts();
        for (key, outcome) in keys.iter().zip(outcomes) {
            match outcome.result {
                // A refused key is too long, so the cache never has it.
                Ok(_) | Err(CacheError::Refused) => {
                    doubts.removals.remove(key);
                }
                Err(error) => removed = Err(error),
            }
        }
        removed
    }
}

impl SecondLevel {
    /// Uses this cache.
    pub fn new(cache: CacheHandle, settings: SecondLevelSettings, clock: Clock) -> Self {
        Self { shared: Arc::new(Shared { cache, settings, clock, doubts: Mutex::default() }) }
    }

    /// Puts the cache in front of a connection to the database.
    pub fn before<E: LookupEngine<Key = Asked>>(&self, engine: E) -> Cached<E> {
        Cached { cache: WaitingCache::new(self.shared.cache.clone()), engine, shared: self.shared.clone() }
    }

    /// Returns an engine that asks the cache before a connection of the calling shard. If the cache is in another
    /// process, the shard's own connections to the cache are used too, and the shard must run the task.
    pub fn before_local<E: LocalEngine<Key = Asked>>(&self, engine: E) -> (Cached<E>, Option<Task>) {
        let shared = self.shared.clone();
        let (cache, task) =
            shared.cache.local().map_or_else(|| (shared.cache.clone(), None), |(own, task)| (own, Some(task)));
        (Cached { cache: WaitingCache::new(cache), engine, shared }, task)
    }

    /// Makes the cache follow changes in the database. Entries from before now are ignored.
    pub fn watched_by<W: SubscriberWatch>(&self, watch: W) -> Watching<W> {
        self.shared.doubts().not_before = (self.shared.clock)().wall;
        Watching { cache: WaitingCache::new(self.shared.cache.clone()), watch, shared: self.shared.clone() }
    }

    /// Returns the cached answer to a question, and the time at which the database gave this answer, in milliseconds
    /// since 1970. Waits for the cache.
    ///
    /// # Errors
    /// The cache did not answer.
    pub fn held(&self, asked: &Asked) -> Result<Option<(SubscriberAnswer, u64)>, CacheError> {
        let (shared, key) = (&self.shared, key_of(asked));
        let not_before = shared.doubts().not_before(&key);
        let mut cache = WaitingCache::new(shared.cache.clone());
        let outcome = cache.ask_one(&Request::Fetch { key: &key }, (shared.clock)().mono, shared.settings.wait);
        Ok(match outcome.result? {
            CacheAnswer::Found => decode(&outcome.value, asked, &key, not_before)
                .and_then(|answer| Some((answer, codec::read_at(&outcome.value)?))),
            _ => None,
        })
    }

    /// Voids the entries of these questions, as a reported change does, and removes the entries. Waits for the cache.
    /// Failed removals are repeated later if the database is watched.
    ///
    /// # Errors
    /// The cache has not removed all of them: they are void for this process, but not for other servers that share the
    /// cache.
    pub fn void(&self, asked: &[Asked]) -> Result<(), CacheError> {
        self.shared.doubt(asked);
        let keys: Vec<Vec<u8>> = asked.iter().map(key_of).collect();
        self.shared.remove(&mut WaitingCache::new(self.shared.cache.clone()), &keys)
    }

    /// Voids all current entries for this process. Entries stay in the cache, for servers that share it, until other
    /// answers replace them.
    pub fn forget(&self) {
        self.shared.doubt_all();
    }
}

/// Connection to the database behind the cache.
pub struct Cached<E> {
    cache: WaitingCache,
    engine: E,
    shared: Arc<Shared>,
}

impl<E: LookupEngine<Key = Asked>> LookupEngine for Cached<E> {
    type Key = Asked;

    fn answer(&mut self, questions: &[Asked], answers: &mut Vec<SubscriberAnswer>) -> Result<(), StoreError> {
        let mut batch = Batch::new(&self.shared, questions);
        let now = (self.shared.clock)().mono;
        let outcomes = self.cache.ask(&batch.fetches(), Promise::Held, now, self.shared.settings.wait);
        batch.hear(outcomes);
        if let Some(missing) = batch.missing() {
            let mut said = Vec::with_capacity(missing.len());
            self.engine.answer(&missing, &mut said)?;
            batch.keep(said, self.cache.engine())?;
        }
        answers.extend(batch.answers());
        Ok(())
    }
}

impl<E: LocalEngine<Key = Asked>> LocalEngine for Cached<E> {
    type Key = Asked;

    async fn connect(&mut self) {
        self.engine.connect().await;
    }

    async fn answer(&mut self, questions: &[Asked], answers: &mut Vec<SubscriberAnswer>) -> Result<(), StoreError> {
        let mut batch = Batch::new(&self.shared, questions);
        let now = (self.shared.clock)().mono;
        let outcomes = self.cache.ask_in_task(&batch.fetches(), Promise::Held, now).await;
        batch.hear(outcomes);
        if let Some(missing) = batch.missing() {
            let mut said = Vec::with_capacity(missing.len());
            self.engine.answer(&missing, &mut said).await?;
            batch.keep(said, self.cache.engine())?;
        }
        answers.extend(batch.answers());
        Ok(())
    }
}

/// Batch of questions on its way through the cache and, for misses, the database.
struct Batch<'q> {
    shared: &'q Shared,
    questions: &'q [Asked],
    keys: Vec<Vec<u8>>,
    known: Vec<Option<SubscriberAnswer>>,
    /// Tells whether the cache has an entry of the question.
    has_entry: Vec<bool>,
    /// Value of [`Doubts::changes`] when they were asked.
    changes: u64,
    /// Time of the question to the database, in milliseconds since 1970.
    read_at: u64,
}

impl<'q> Batch<'q> {
    fn new(shared: &'q Shared, questions: &'q [Asked]) -> Self {
        let keys = questions.iter().map(key_of).collect();
        let changes = shared.doubts().changes;
        Self { shared, questions, keys, known: Vec::new(), has_entry: Vec::new(), changes, read_at: 0 }
    }

    /// Returns the requests to the cache.
    fn fetches(&self) -> Vec<Request<'_>> {
        self.keys.iter().map(|key| Request::Fetch { key }).collect()
    }

    /// Takes the answers of the cache.
    fn hear(&mut self, outcomes: Vec<CacheResponse>) {
        let not_before: Vec<u64> = {
            let doubts = self.shared.doubts();
            self.keys.iter().map(|key| doubts.not_before(key)).collect()
        };
        self.has_entry = outcomes.iter().map(|outcome| outcome.result == Ok(CacheAnswer::Found)).collect();
        let answers = outcomes.into_iter().zip(not_before).zip(self.questions.iter().zip(&self.keys));
        self.known = answers
            .map(|((outcome, not_before), (asked, key))| match outcome.result {
                Ok(CacheAnswer::Found) => decode(&outcome.value, asked, key, not_before),
                _ => None,
            })
            .collect();
    }

    /// Returns the questions for the database, which are those that the cache could not answer; `None` if the cache has
    /// answered all.
    fn missing(&mut self) -> Option<Vec<Asked>> {
        let unknown = self.questions.iter().zip(&self.known).filter(|(_, known)| known.is_none());
        let missing: Vec<Asked> = unknown.map(|(asked, _)| asked.clone()).collect();
        self.read_at = (self.shared.clock)().wall;
        (!missing.is_empty()).then_some(missing)
    }

    /// Handles the answers of the database. Stores the found users in this cache, unless anything has changed since the
    /// question. Removes the invalid entry of an unknown user.
    fn keep(&mut self, said: Vec<SubscriberAnswer>, cache: &CacheHandle) -> Result<(), StoreError> {
        let missing: Vec<usize> = (0..self.known.len()).filter(|place| self.known[*place].is_none()).collect();
        if said.len() != missing.len() {
            return Err(StoreError::Refused);
        }
        let (settings, now) = (&self.shared.settings, (self.shared.clock)().mono);
        let kept = missing.iter().zip(&said).filter(|(place, _)| self.questions[**place].is_kept());
        let changes: Vec<(&[u8], Option<Vec<u8>>)> = kept
            .filter(|(place, answer)| **answer != SubscriberAnswer::Absent || self.has_entry[**place])
            .map(|(place, answer)| {
                let key = &*self.keys[*place];
                (key, encode(answer, key, self.read_at))
            })
            .collect();
        let life = Life::from(settings.found);
        // This happens under the lock, so that a reported removal comes later, and requests for a key keep their order.
        let doubts = self.shared.doubts();
        if doubts.changes == self.changes {
            for (key, value) in &changes {
                let request = match value {
                    Some(value) => Request::Store { key, value, life },
                    None => Request::Remove { key },
                };
                // The result is irrelevant to this server: it has the answer.
                let _ = cache.ask(&request, Promise::Held, Ticket::NONE, now, &mut Vec::new());
            }
        }
        drop(doubts);
        cache.flush();
        for (place, answer) in missing.into_iter().zip(said) {
            self.known[place] = Some(answer);
        }
        Ok(())
    }

    fn answers(self) -> impl Iterator<Item = SubscriberAnswer> {
        self.known.into_iter().flatten()
    }
}

/// Watch that the cache follows.
pub struct Watching<W> {
    cache: WaitingCache,
    watch: W,
    shared: Arc<Shared>,
}

impl<W> Watching<W> {
    fn hear(&mut self, changes: &Changes<Asked>) {
        match changes {
            Changes::None => {}
            Changes::Of(changed) => self.shared.doubt(changed),
            Changes::All => self.shared.doubt_all(),
        }
        let keys: Vec<Vec<u8>> = self.shared.doubts().removals.iter().cloned().collect();
        if !keys.is_empty() {
            // Failed removals are tried again.
            let _left = self.shared.remove(&mut self.cache, &keys);
        }
    }
}

impl<W: SubscriberWatch> SubscriberWatch for Watching<W> {
    fn changes(&mut self) -> Result<Changes<Asked>, StoreError> {
        let changes = self.watch.changes()?;
        self.hear(&changes);
        Ok(changes)
    }

    fn removed(&mut self) -> Result<Vec<Removed>, StoreError> {
        self.watch.removed()
    }

    fn settle(&mut self, ids: &[u64]) -> Result<(), StoreError> {
        self.watch.settle(ids)
    }
}

#[cfg(test)]
mod tests;
