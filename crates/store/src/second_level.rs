//! A cache between the memory of this process and its database, which several servers may share and which may outlive them.
//!
//! A question that the memory cannot answer goes to this cache first, together with all of its batch; what is not there goes to the database,
//! and what the database says is stored. That there is no such user is an answer too, with a life of its own. A cache that fails or is silent
//! costs its deadline at most: the database is asked instead.
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
use strowger_cache::waiting::WaitingCache;

use self::codec::{decode, encode, key_of};
use crate::clock::Clock;
use crate::error::StoreError;
use crate::read_through::{Changes, Engine, Key};
use crate::subscriber::{Answer, Asked, Removed, SubscriberWatch};

/// Keys of which it is known when they changed. With more of them nothing is read that is older than now.
const CHANGED: usize = 10_000;

/// Lives and times of the cache.
#[derive(Clone, Copy, Debug)]
pub struct SecondLevelSettings {
    /// How long an answer is good that found something.
    pub found: Duration,
    /// How long "there is none" is good.
    pub absent: Duration,
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

impl<E: Engine<Key = Asked>> Cached<E> {
    /// What the cache knows of these questions.
    fn known(&mut self, questions: &[Asked], keys: &[Vec<u8>]) -> Vec<Option<Answer>> {
        let not_before: Vec<u64> = {
            let doubts = self.shared.doubts();
            keys.iter().map(|key| doubts.not_before(key)).collect()
        };
        let fetches: Vec<Request<'_>> = keys.iter().map(|key| Request::Fetch { key }).collect();
        let now = (self.shared.clock)().mono;
        let outcomes = self.cache.ask(&fetches, Promise::Held, now, self.shared.settings.wait);
        let answers = outcomes.into_iter().zip(not_before).zip(questions.iter().zip(keys));
        answers
            .map(|((outcome, not_before), (asked, key))| match outcome.result {
                Ok(CacheAnswer::Found) => decode(&outcome.value, asked, key, not_before),
                _ => None,
            })
            .collect()
    }

    /// Stores what the database said, unless something has changed since it was asked.
    fn keep(&self, answers: &[(&[u8], &Answer)], read_at: u64, changes: u64) {
        let settings = &self.shared.settings;
        let values: Vec<Vec<u8>> = answers.iter().map(|(key, answer)| encode(answer, key, read_at)).collect();
        let now = (self.shared.clock)().mono;
        // Under the lock: a removal that is heard of comes behind it, and requests for a key keep their order.
        let doubts = self.shared.doubts();
        if doubts.changes != changes {
            return;
        }
        for ((key, answer), value) in answers.iter().zip(&values) {
            let life = if **answer == Answer::Absent { settings.absent } else { settings.found };
            let request = Request::Store { key, value, life: Life::from(life) };
            // Of no use to this server: it has the answer.
            let _ = self.shared.cache.ask(&request, Promise::Held, Ticket::NONE, now, &mut Vec::new());
        }
        drop(doubts);
        self.shared.cache.flush();
    }
}

impl<E: Engine<Key = Asked>> Engine for Cached<E> {
    type Key = Asked;

    fn answer(&mut self, questions: &[Asked], answers: &mut Vec<Answer>) -> Result<(), StoreError> {
        let keys: Vec<Vec<u8>> = questions.iter().map(key_of).collect();
        let changes = self.shared.doubts().changes;
        let mut known = self.known(questions, &keys);
        let missing: Vec<usize> = (0..known.len()).filter(|place| known[*place].is_none()).collect();
        if !missing.is_empty() {
            let asked: Vec<Asked> = missing.iter().map(|place| questions[*place].clone()).collect();
            let read_at = (self.shared.clock)().wall;
            let mut said = Vec::with_capacity(asked.len());
            self.engine.answer(&asked, &mut said)?;
            if said.len() != asked.len() {
                return Err(StoreError::Refused);
            }
            let kept = missing.iter().zip(&said).filter(|(place, _)| questions[**place].is_kept());
            let pairs: Vec<(&[u8], &Answer)> = kept.map(|(place, answer)| (&*keys[*place], answer)).collect();
            self.keep(&pairs, read_at, changes);
            for (place, answer) in missing.into_iter().zip(said) {
                known[place] = Some(answer);
            }
        }
        answers.extend(known.into_iter().flatten());
        Ok(())
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
mod tests {
    use super::*;
    use crate::clock::Moment;
    use crate::subscriber::{Credential, Ha1s, Question};
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
    use strowger_cache::engine::RemoteEngine;
    use strowger_cache::gauges::Gauges;
    use strowger_cache::local::LocalCache;
    use strowger_cache::settings::LocalSettings;
    use strowger_cache::ticket::Receivers;

    type Meanwhile = Box<dyn FnOnce() + Send>;

    /// Users with the first octet of their HA1.
    #[derive(Clone, Default)]
    struct Database {
        users: Arc<Mutex<Vec<(&'static str, u8)>>>,
        changed: Arc<Mutex<Vec<Asked>>>,
        is_unsure: Arc<Mutex<bool>>,
        asked: Arc<AtomicU64>,
        is_down: Arc<Mutex<bool>>,
        /// Is called while it answers.
        meanwhile: Arc<Mutex<Option<Meanwhile>>>,
    }

    fn credential(name: &str, octet: u8) -> Answer {
        let ha1 = Ha1s { md5: Some([octet; 16]), sha256: Some([octet; 32]), sha512_256: None };
        Answer::Credential(Arc::new(Credential { username: name.into(), realm: "r".into(), domain: "d".into(), ha1 }))
    }

    impl Engine for Database {
        type Key = Asked;

        fn answer(&mut self, questions: &[Asked], answers: &mut Vec<Answer>) -> Result<(), StoreError> {
            if *self.is_down.lock().unwrap() {
                return Err(StoreError::Unavailable);
            }
            self.asked.fetch_add(questions.len() as u64, SeqCst);
            let users = self.users.lock().unwrap().clone();
            for asked in questions {
                let find = |name: &[u8]| users.iter().find(|(user, _)| user.as_bytes() == name);
                answers.push(match asked.question() {
                    Question::Credential { username, .. } => {
                        find(username).map_or(Answer::Absent, |(name, octet)| credential(name, *octet))
                    }
                    Question::User { username, .. } => find(username).map_or(Answer::Absent, |_| Answer::Exists),
                });
            }
            if let Some(meanwhile) = self.meanwhile.lock().unwrap().take() {
                meanwhile();
            }
            Ok(())
        }
    }

    impl SubscriberWatch for Database {
        fn changes(&mut self) -> Result<Changes<Asked>, StoreError> {
            if std::mem::take(&mut *self.is_unsure.lock().unwrap()) {
                return Ok(Changes::All);
            }
            let changed = std::mem::take(&mut *self.changed.lock().unwrap());
            Ok(if changed.is_empty() { Changes::None } else { Changes::Of(changed) })
        }
    }

    struct Bed {
        database: Database,
        local: Arc<LocalCache>,
        level: SecondLevel,
        now: Arc<AtomicU64>,
    }

    impl Bed {
        fn new() -> Self {
            let local = Arc::new(LocalCache::new(LocalSettings::default()));
            let now = Arc::new(AtomicU64::new(1_000_000));
            let level = level(&local, &now);
            Self { database: Database::default(), local, level, now }
        }

        fn ask(&self, question: Question<'_>) -> Result<Answer, StoreError> {
            let mut answers = Vec::new();
            self.level.before(self.database.clone()).answer(&[question.into()], &mut answers)?;
            assert_eq!(answers.len(), 1);
            Ok(answers.remove(0))
        }

        fn asked(&self) -> u64 {
            self.database.asked.swap(0, SeqCst)
        }
    }

    fn level(local: &Arc<LocalCache>, now: &Arc<AtomicU64>) -> SecondLevel {
        level_of(CacheEngine::Local(local.clone()), now)
    }

    fn level_of(cache: CacheEngine, now: &Arc<AtomicU64>) -> SecondLevel {
        let settings = SecondLevelSettings {
            found: Duration::from_secs(60),
            absent: Duration::from_secs(10),
            wait: Duration::from_secs(5),
        };
        let now = now.clone();
        let clock: Clock = Arc::new(move || Moment { mono: now.load(SeqCst), wall: now.load(SeqCst) + 5_000_000 });
        SecondLevel::new(cache, settings, clock)
    }

    const ALICE: Question<'_> = Question::Credential { username: b"alice", realm: b"r" };
    const BOB: Question<'_> = Question::Credential { username: b"bob", realm: b"r" };

    #[test]
    fn the_database_is_asked_once_for_all_servers() {
        let bed = Bed::new();
        bed.database.users.lock().unwrap().push(("alice", 1));
        for (at, asked) in [(0, 2), (1, 0), (9_999, 0), (10_000, 1), (59_999, 1), (60_000, 1)] {
            bed.now.store(1_000_000 + at, SeqCst);
            // Another server, with another memory.
            let other = Bed { level: level(&bed.local, &bed.now), ..Bed::new() };
            let other = Bed { database: bed.database.clone(), now: bed.now.clone(), local: bed.local.clone(), ..other };
            assert_eq!(other.ask(ALICE), Ok(credential("alice", 1)));
            assert_eq!(other.ask(BOB), Ok(Answer::Absent));
            assert_eq!(bed.asked(), asked, "{at}");
        }
    }

    #[test]
    fn of_the_spellings_of_an_address_one_is_stored() {
        let bed = Bed::new();
        bed.database.users.lock().unwrap().extend([("alice@d", 1), ("alice@D", 2)]);
        for (username, octet, asked) in [("alice@d", 1, 1), ("alice@D", 2, 1), ("alice@D", 2, 1), ("alice@d", 1, 0)] {
            let question = Question::Credential { username: username.as_bytes(), realm: b"r" };
            assert_eq!(bed.ask(question), Ok(credential(username, octet)));
            assert_eq!(bed.asked(), asked, "{username}");
        }
    }

    #[test]
    fn what_is_known_and_what_is_not_come_in_the_order_of_the_questions() {
        let bed = Bed::new();
        bed.database.users.lock().unwrap().extend([("alice", 1), ("bob", 2)]);
        bed.ask(BOB).unwrap();
        let questions = [
            Asked::from(ALICE),
            BOB.into(),
            Question::User { username: b"alice", domain: b"d" }.into(),
            Question::User { username: b"carol", domain: b"d" }.into(),
        ];
        for asked in [4, 0] {
            let mut answers = Vec::new();
            bed.level.before(bed.database.clone()).answer(&questions, &mut answers).unwrap();
            assert_eq!(answers, [credential("alice", 1), credential("bob", 2), Answer::Exists, Answer::Absent]);
            assert_eq!(bed.asked(), asked);
        }
    }

    #[test]
    fn what_has_changed_is_asked_for_again() {
        let bed = Bed::new();
        let mut watch = bed.level.watched_by(bed.database.clone());
        bed.database.users.lock().unwrap().extend([("alice", 1), ("bob", 2)]);
        bed.ask(ALICE).unwrap();
        bed.ask(BOB).unwrap();
        *bed.database.users.lock().unwrap() = vec![("alice", 3), ("bob", 4)];
        bed.database.changed.lock().unwrap().push(ALICE.into());
        watch.changes().unwrap();
        assert_eq!(bed.ask(ALICE), Ok(credential("alice", 3)));
        assert_eq!(bed.ask(BOB), Ok(credential("bob", 2)), "of whom no change was told");
        // All may have changed.
        *bed.database.is_unsure.lock().unwrap() = true;
        bed.now.fetch_add(1, SeqCst);
        watch.changes().unwrap();
        assert_eq!(bed.ask(BOB), Ok(credential("bob", 4)));
    }

    #[test]
    fn what_changes_while_the_database_is_asked_is_not_kept() {
        let bed = Bed::new();
        let mut watch = bed.level.watched_by(bed.database.clone());
        bed.database.users.lock().unwrap().push(("alice", 1));
        let database = bed.database.clone();
        *bed.database.meanwhile.lock().unwrap() = Some(Box::new(move || {
            *database.users.lock().unwrap() = vec![("alice", 2)];
            database.changed.lock().unwrap().push(ALICE.into());
            watch.changes().unwrap();
        }));
        assert_eq!(bed.ask(ALICE), Ok(credential("alice", 1)), "as it was when it was asked for");
        assert_eq!(bed.ask(ALICE), Ok(credential("alice", 2)));
    }

    #[test]
    fn what_another_server_read_before_a_change_and_stored_after_it_does_not_count() {
        // In the same millisecond, and in another one; who is new, and who has changed.
        for (later, before) in [(0, vec![]), (1, vec![]), (0, vec![("alice", 1)]), (1, vec![("alice", 1)])] {
            let bed = Bed::new();
            let mut watch = bed.level.watched_by(bed.database.clone());
            *bed.database.users.lock().unwrap() = before;
            let (database, now) = (bed.database.clone(), bed.now.clone());
            *bed.database.meanwhile.lock().unwrap() = Some(Box::new(move || {
                now.fetch_add(later, SeqCst);
                *database.users.lock().unwrap() = vec![("alice", 2)];
                database.changed.lock().unwrap().push(ALICE.into());
                watch.changes().unwrap();
            }));
            // The other one has not heard of the change yet.
            let mut other = level(&bed.local, &bed.now).before(bed.database.clone());
            let mut answers = Vec::new();
            other.answer(&[ALICE.into()], &mut answers).unwrap();
            assert_ne!(answers, [credential("alice", 2)], "as it was when it was asked for");
            let now = bed.now.fetch_add(1, SeqCst) + 1;
            assert!(bed.local.fetch(&key_of(&ALICE.into()), now, &mut Vec::new()).unwrap(), "it is stored");
            bed.asked();
            for asked in [1, 0] {
                assert_eq!(bed.ask(ALICE), Ok(credential("alice", 2)));
                assert_eq!(bed.asked(), asked, "what was read later counts");
            }
        }
    }

    #[test]
    fn more_changes_than_are_kept_make_all_doubtful() {
        let bed = Bed::new();
        let mut watch = bed.level.watched_by(bed.database.clone());
        bed.database.users.lock().unwrap().push(("bob", 1));
        for (count, asked) in [(CHANGED, 0), (1, 1)] {
            bed.ask(BOB).unwrap();
            bed.asked();
            for n in 0..count {
                let name = format!("{count}:{n}");
                let changed = Question::User { username: name.as_bytes(), domain: b"d" };
                bed.database.changed.lock().unwrap().push(changed.into());
            }
            watch.changes().unwrap();
            bed.ask(BOB).unwrap();
            assert_eq!(bed.asked(), asked);
        }
    }

    /// A server that does nothing.
    #[derive(Default)]
    struct Denying(Receivers);

    impl RemoteEngine for Denying {
        fn ask(&self, _: &Request<'_>, _: Ticket, _: u64) -> Result<(), CacheError> {
            Err(CacheError::Denied)
        }

        fn receivers(&self) -> &Receivers {
            &self.0
        }

        fn gauges(&self) -> Gauges {
            Gauges::default()
        }
    }

    #[test]
    fn who_has_the_cache_void_an_answer_hears_whether_it_is_gone() {
        let bed = Bed::new();
        bed.database.users.lock().unwrap().push(("alice", 1));
        bed.ask(ALICE).unwrap();
        let is_there =
            || bed.local.fetch(&key_of(&ALICE.into()), bed.now.load(SeqCst), &mut Vec::new()).expect("a short key");
        assert!(is_there());
        assert_eq!(bed.level.void(&[ALICE.into()]), Ok(()));
        assert!(!is_there());
        let denying = level_of(CacheEngine::Remote(Arc::new(Denying::default())), &bed.now);
        assert_eq!(denying.void(&[ALICE.into()]), Err(CacheError::Denied));
    }

    #[test]
    fn what_was_stored_before_the_watch_began_does_not_count() {
        let bed = Bed::new();
        bed.database.users.lock().unwrap().push(("alice", 1));
        bed.ask(ALICE).unwrap();
        *bed.database.users.lock().unwrap() = vec![("alice", 2)];
        bed.now.fetch_add(1, SeqCst);
        let level = level(&bed.local, &bed.now);
        let _watch = level.watched_by(bed.database.clone());
        let restarted = Bed { level, ..bed };
        assert_eq!(restarted.ask(ALICE), Ok(credential("alice", 2)));
    }

    #[test]
    fn a_value_under_the_key_of_another_user_is_no_answer() {
        let bed = Bed::new();
        bed.database.users.lock().unwrap().extend([("alice", 1), ("bob", 2)]);
        bed.ask(ALICE).unwrap();
        let (mut value, now) = (Vec::new(), bed.now.load(SeqCst));
        assert!(bed.local.fetch(&key_of(&ALICE.into()), now, &mut value).unwrap());
        bed.local.store(&key_of(&BOB.into()), &value, Life::FOREVER, now).unwrap();
        assert_eq!(bed.ask(BOB), Ok(credential("bob", 2)));
    }

    #[test]
    fn who_is_known_to_the_cache_is_known_without_the_database() {
        let bed = Bed::new();
        bed.database.users.lock().unwrap().push(("alice", 1));
        bed.ask(ALICE).unwrap();
        *bed.database.is_down.lock().unwrap() = true;
        assert_eq!(bed.ask(ALICE), Ok(credential("alice", 1)));
        assert_eq!(bed.ask(BOB), Err(StoreError::Unavailable));
    }
}
