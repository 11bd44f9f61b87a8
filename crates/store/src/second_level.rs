//! A cache between the memory of this process and its database, which several servers may share and which may outlive them.
//!
//! A question that the memory cannot answer goes to this cache first, together with all of its batch; what is not there goes to the database,
//! and each user that it finds is stored. A cache that fails or is silent costs its deadline at most: the database is asked instead.
//!
//! *Unknown users.* That there is no such user is never stored: any sender can ask for users without end, and their entries would evict those
//! of known users. The memory of the process keeps such answers, with a bound of their own ([`read_through`](crate::read_through)).
//!
//! *Whose answer.* A key has the realm, or the domain, and the user. A value begins with the version of its form and holds the key once more:
//! what stands under a wrong key, is of another version or damaged is no answer.
//!
//! *Fresh.* What the database tells as changed is removed from the cache. From then on an answer to that question counts only if it was read
//! from the database later: another server that has not heard of the change yet may store what it read before. The same holds for all answers
//! where the database cannot say what changed, and for those from before this process watched it. "Later" is by the system's clocks of the
//! servers, which are to agree. A database that tells of no changes has no watch: an answer is then as old as the lives of both caches
//! together at most.

pub(crate) mod codec;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use strowger_cache::engine::Engine as CacheEngine;
use strowger_cache::error::CacheError;
use strowger_cache::request::{Answer as CacheAnswer, Life, Promise, Request};
use strowger_cache::ticket::Ticket;
use strowger_cache::waiting::{Outcome, WaitingCache};

use self::codec::{decode, encode, key_of};
use crate::clock::Clock;
use crate::error::StoreError;
use crate::read_through::{Changes, Engine, Key, LocalEngine, Task};
use crate::subscriber::{Answer, Asked, Removed, SubscriberWatch};

/// Keys of which it is known when they changed. With more of them nothing is read that is older than now.
const CHANGED: usize = 10_000;

/// Lives and times of the cache.
#[derive(Clone, Copy, Debug)]
pub struct SecondLevelSettings {
    /// How long an answer is good.
    pub found: Duration,
    /// How long an answer of the cache is waited for at most; its own deadline is shorter.
    pub wait: Duration,
}

/// The cache; its copies share it.
#[derive(Clone)]
pub struct SecondLevel {
    shared: Arc<Shared>,
}

struct Shared {
    cache: CacheEngine,
    settings: SecondLevelSettings,
    clock: Clock,
    doubts: Mutex<Doubts>,
}

/// What in the cache may not be so any more.
#[derive(Default)]
struct Doubts {
    /// Keys that have changed. Answers that the database gave before, in milliseconds since 1970, do not count.
    changed: HashMap<Vec<u8>, u64>,
    /// Those of them that are still to be removed.
    removals: HashSet<Vec<u8>>,
    /// The same for all keys.
    not_before: u64,
    /// Grows with each change that is heard of.
    changes: u64,
}

impl Doubts {
    /// From when on answers for this key count.
    fn not_before(&self, key: &[u8]) -> u64 {
        self.changed.get(key).map_or(self.not_before, |changed| self.not_before.max(*changed))
    }

    /// Answers from before do not count, for any key.
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

    /// The answers to these questions changed just now.
    fn doubt(&self, changed: &[Asked]) {
        // What was read in this same millisecond may be from before the change.
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

    /// All answers may have changed just now.
    fn doubt_all(&self) {
        let not_before = (self.clock)().wall + 1;
        let doubts = &mut *self.doubts();
        doubts.changes += 1;
        doubts.doubt_all(not_before);
    }

    /// Removes what stands under these keys. What the cache does not do stays to be done.
    fn remove(&self, cache: &mut WaitingCache, keys: &[Vec<u8>]) -> Result<(), CacheError> {
        let removals: Vec<Request<'_>> = keys.iter().map(|key| Request::Remove { key }).collect();
        let now = (self.clock)().mono;
        let outcomes = cache.ask(&removals, Promise::Held, now, self.settings.wait);
        let mut removed = Ok(());
        let doubts = &mut *self.doubts();
        for (key, outcome) in keys.iter().zip(outcomes) {
            match outcome.result {
                // A key beyond its bound is never there.
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
    /// Of this cache.
    pub fn new(cache: CacheEngine, settings: SecondLevelSettings, clock: Clock) -> Self {
        Self { shared: Arc::new(Shared { cache, settings, clock, doubts: Mutex::default() }) }
    }

    /// Puts the cache before a connection to the database.
    pub fn before<E: Engine<Key = Asked>>(&self, engine: E) -> Cached<E> {
        Cached { cache: WaitingCache::new(self.shared.cache.clone()), engine, shared: self.shared.clone() }
    }

    /// Puts the cache before a connection of the calling shard: it is asked by connections of the shard too, where it is in another process,
    /// and the shard is to run the task beside them.
    pub fn before_local<E: LocalEngine<Key = Asked>>(&self, engine: E) -> (Cached<E>, Option<Task>) {
        let shared = self.shared.clone();
        let (cache, task) =
            shared.cache.local().map_or_else(|| (shared.cache.clone(), None), |(own, task)| (own, Some(task)));
        (Cached { cache: WaitingCache::new(cache), engine, shared }, task)
    }

    /// Has the cache follow what changes in the database. From now on nothing from before counts.
    pub fn watched_by<W: SubscriberWatch>(&self, watch: W) -> Watching<W> {
        self.shared.doubts().not_before = (self.shared.clock)().wall;
        Watching { cache: WaitingCache::new(self.shared.cache.clone()), watch, shared: self.shared.clone() }
    }

    /// What the cache holds of a question, and when the database said so, in milliseconds since 1970. Waits for the cache.
    ///
    /// # Errors
    /// The cache does not answer.
    pub fn held(&self, asked: &Asked) -> Result<Option<(Answer, u64)>, CacheError> {
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

    /// What the cache holds of these questions counts no more, as if the database had said that it changed, and is removed. Waits for the cache:
    /// what it does not do now is done later where the database is watched.
    ///
    /// # Errors
    /// The cache has not removed all: it counts no more for this process, and for others that share the cache it does.
    pub fn void(&self, asked: &[Asked]) -> Result<(), CacheError> {
        self.shared.doubt(asked);
        let keys: Vec<Vec<u8>> = asked.iter().map(key_of).collect();
        self.shared.remove(&mut WaitingCache::new(self.shared.cache.clone()), &keys)
    }

    /// Nothing that the cache holds now counts any more for this process. It stays there until other answers take its place, for servers that
    /// share the cache.
    pub fn forget(&self) {
        self.shared.doubt_all();
    }
}

/// A connection to the database behind the cache.
pub struct Cached<E> {
    cache: WaitingCache,
    engine: E,
    shared: Arc<Shared>,
}

impl<E: Engine<Key = Asked>> Engine for Cached<E> {
    type Key = Asked;

    fn answer(&mut self, questions: &[Asked], answers: &mut Vec<Answer>) -> Result<(), StoreError> {
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

    async fn answer(&mut self, questions: &[Asked], answers: &mut Vec<Answer>) -> Result<(), StoreError> {
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

/// Questions on their way through the cache and, those that it does not know, through the database.
struct Batch<'q> {
    shared: &'q Shared,
    questions: &'q [Asked],
    keys: Vec<Vec<u8>>,
    known: Vec<Option<Answer>>,
    /// Whether the cache has an entry of the question.
    has_entry: Vec<bool>,
    /// [`Doubts::changes`] when they were asked.
    changes: u64,
    /// When the database was asked, in milliseconds since 1970.
    read_at: u64,
}

impl<'q> Batch<'q> {
    fn new(shared: &'q Shared, questions: &'q [Asked]) -> Self {
        let keys = questions.iter().map(key_of).collect();
        let changes = shared.doubts().changes;
        Self { shared, questions, keys, known: Vec::new(), has_entry: Vec::new(), changes, read_at: 0 }
    }

    /// What the cache is asked.
    fn fetches(&self) -> Vec<Request<'_>> {
        self.keys.iter().map(|key| Request::Fetch { key }).collect()
    }

    /// Takes what the cache knows.
    fn hear(&mut self, outcomes: Vec<Outcome>) {
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

    /// What the database is to be asked now, if there is anything.
    fn missing(&mut self) -> Option<Vec<Asked>> {
        let unknown = self.questions.iter().zip(&self.known).filter(|(_, known)| known.is_none());
        let missing: Vec<Asked> = unknown.map(|(asked, _)| asked.clone()).collect();
        self.read_at = (self.shared.clock)().wall;
        (!missing.is_empty()).then_some(missing)
    }

    /// Takes the answers of the database, and stores the users that it found in this cache, unless something has changed since it was asked.
    /// Removes the invalid entry of an unknown user.
    fn keep(&mut self, said: Vec<Answer>, cache: &CacheEngine) -> Result<(), StoreError> {
        let missing: Vec<usize> = (0..self.known.len()).filter(|place| self.known[*place].is_none()).collect();
        if said.len() != missing.len() {
            return Err(StoreError::Refused);
        }
        let (settings, now) = (&self.shared.settings, (self.shared.clock)().mono);
        let kept = missing.iter().zip(&said).filter(|(place, _)| self.questions[**place].is_kept());
        let changes: Vec<(&[u8], Option<Vec<u8>>)> = kept
            .filter(|(place, answer)| **answer != Answer::Absent || self.has_entry[**place])
            .map(|(place, answer)| {
                let key = &*self.keys[*place];
                (key, encode(answer, key, self.read_at))
            })
            .collect();
        let life = Life::from(settings.found);
        // Under the lock: a removal that is heard of comes behind it, and requests for a key keep their order.
        let doubts = self.shared.doubts();
        if doubts.changes == self.changes {
            for (key, value) in &changes {
                let request = match value {
                    Some(value) => Request::Store { key, value, life },
                    None => Request::Remove { key },
                };
                // Of no use to this server: it has the answer.
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

    fn answers(self) -> impl Iterator<Item = Answer> {
        self.known.into_iter().flatten()
    }
}

/// A watch that the cache follows.
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
            // What is left is tried again.
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
