//! Cache between memory and database, in this process and elsewhere.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::task::{Context, Poll, Waker};

use strowger_cache::engine::RemoteEngine;
use strowger_cache::gauges::Gauges;
use strowger_cache::local::LocalCache;
use strowger_cache::settings::LocalSettings;
use strowger_cache::ticket::{Answered, ReceiverId, Receivers};

use super::*;
use crate::clock::Moment;
use crate::subscriber::{Credential, Ha1s, Question};

type Meanwhile = Box<dyn FnOnce() + Send>;

/// Users with the first octet of their HA1.
#[derive(Clone, Default)]
struct Database {
    users: Arc<Mutex<Vec<(&'static str, u8)>>>,
    changed: Arc<Mutex<Vec<Asked>>>,
    is_unsure: Arc<Mutex<bool>>,
    asked: Arc<AtomicU64>,
    is_down: Arc<Mutex<bool>>,
    /// Called while it answers.
    meanwhile: Arc<Mutex<Option<Meanwhile>>>,
}

fn credential(name: &str, octet: u8) -> SubscriberAnswer {
    let ha1 = Ha1s { md5: Some([octet; 16]), sha256: Some([octet; 32]), sha512_256: None };
    SubscriberAnswer::Credential(Arc::new(Credential {
        username: name.into(),
        realm: "r".into(),
        domain: "d".into(),
        ha1,
    }))
}

impl LookupEngine for Database {
    type Key = Asked;

    fn answer(&mut self, questions: &[Asked], answers: &mut Vec<SubscriberAnswer>) -> Result<(), StoreError> {
        if *self.is_down.lock().unwrap() {
            return Err(StoreError::Unavailable);
        }
        self.asked.fetch_add(questions.len() as u64, SeqCst);
        let users = self.users.lock().unwrap().clone();
        for asked in questions {
            let find = |name: &[u8]| users.iter().find(|(user, _)| user.as_bytes() == name);
            answers.push(match asked.question() {
                Question::Credential { username, .. } => {
                    find(username).map_or(SubscriberAnswer::Absent, |(name, octet)| credential(name, *octet))
                }
                Question::User { username, .. } => {
                    find(username).map_or(SubscriberAnswer::Absent, |_| SubscriberAnswer::Exists)
                }
            });
        }
        if let Some(meanwhile) = self.meanwhile.lock().unwrap().take() {
            meanwhile();
        }
        Ok(())
    }
}

impl LocalEngine for Database {
    type Key = Asked;

    async fn connect(&mut self) {}

    async fn answer(&mut self, questions: &[Asked], answers: &mut Vec<SubscriberAnswer>) -> Result<(), StoreError> {
        LookupEngine::answer(self, questions, answers)
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

    fn ask(&self, question: Question<'_>) -> Result<SubscriberAnswer, StoreError> {
        let mut answers = Vec::new();
        LookupEngine::answer(&mut self.level.before(self.database.clone()), &[question.into()], &mut answers)?;
        assert_eq!(answers.len(), 1);
        Ok(answers.remove(0))
    }

    fn asked(&self) -> u64 {
        self.database.asked.swap(0, SeqCst)
    }
}

fn level(local: &Arc<LocalCache>, now: &Arc<AtomicU64>) -> SecondLevel {
    level_of(CacheHandle::Local(local.clone()), now)
}

fn level_of(cache: CacheHandle, now: &Arc<AtomicU64>) -> SecondLevel {
    let settings = SecondLevelSettings { found: Duration::from_secs(60), wait: Duration::from_secs(5) };
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
    for (at, asked) in [(0, 1), (1, 0), (59_999, 0), (60_000, 1)] {
        bed.now.store(1_000_000 + at, SeqCst);
        // Another server, with another memory.
        let other = Bed { level: level(&bed.local, &bed.now), ..Bed::new() };
        let other = Bed { database: bed.database.clone(), now: bed.now.clone(), local: bed.local.clone(), ..other };
        assert_eq!(other.ask(ALICE), Ok(credential("alice", 1)));
        assert_eq!(bed.asked(), asked, "{at}");
    }
}

/// Any sender can ask for made-up names.
#[test]
fn unknown_users_leave_nothing_in_the_cache() {
    let bed = Bed::new();
    bed.database.users.lock().unwrap().push(("alice", 1));
    bed.ask(ALICE).unwrap();
    for n in 0..1_000 {
        let name = format!("made up {n}");
        let question = Question::Credential { username: name.as_bytes(), realm: b"r" };
        assert_eq!(bed.ask(question), Ok(SubscriberAnswer::Absent));
    }
    assert_eq!(bed.local.len(), 1);
    // The entry of a removed user is removed, too.
    let mut watch = bed.level.watched_by(bed.database.clone());
    *bed.database.is_unsure.lock().unwrap() = true;
    bed.database.users.lock().unwrap().clear();
    bed.now.fetch_add(1, SeqCst);
    watch.changes().unwrap();
    assert_eq!(bed.ask(ALICE), Ok(SubscriberAnswer::Absent));
    assert_eq!(bed.local.len(), 0);
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
    for asked in [4, 1] {
        let mut answers = Vec::new();
        LookupEngine::answer(&mut bed.level.before(bed.database.clone()), &questions, &mut answers).unwrap();
        assert_eq!(
            answers,
            [credential("alice", 1), credential("bob", 2), SubscriberAnswer::Exists, SubscriberAnswer::Absent]
        );
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
    // All answers may have changed.
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
    // In the same millisecond, and in another one.
    for later in [0, 1] {
        let bed = Bed::new();
        let mut watch = bed.level.watched_by(bed.database.clone());
        *bed.database.users.lock().unwrap() = vec![("alice", 1)];
        let (database, now) = (bed.database.clone(), bed.now.clone());
        *bed.database.meanwhile.lock().unwrap() = Some(Box::new(move || {
            now.fetch_add(later, SeqCst);
            *database.users.lock().unwrap() = vec![("alice", 2)];
            database.changed.lock().unwrap().push(ALICE.into());
            watch.changes().unwrap();
        }));
        // The other server has not noticed the change yet.
        let mut other = level(&bed.local, &bed.now).before(bed.database.clone());
        let mut answers = Vec::new();
        LookupEngine::answer(&mut other, &[ALICE.into()], &mut answers).unwrap();
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

/// Server that denies every request.
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
    let denying = level_of(CacheHandle::Remote(Arc::new(Denying::default())), &bed.now);
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

/// Server that answers when the test says, with separate connections for the asking thread.
struct Elsewhere {
    entries: Arc<LocalCache>,
    receivers: Receivers,
    answers: Mutex<Vec<(ReceiverId, Answered)>>,
    own: Option<Arc<Self>>,
}

impl Elsewhere {
    fn new(own: Option<Arc<Self>>) -> Self {
        let entries =
            own.as_ref().map_or_else(|| Arc::new(LocalCache::new(LocalSettings::default())), |own| own.entries.clone());
        Self { entries, receivers: Receivers::default(), answers: Mutex::default(), own }
    }

    /// Answers the open requests. Returns their number.
    fn answer(&self) -> usize {
        let answers = std::mem::take(&mut *self.answers.lock().unwrap());
        let count = answers.len();
        self.receivers.hand_out(answers);
        count
    }
}

impl RemoteEngine for Elsewhere {
    fn ask(&self, request: &Request<'_>, ticket: Ticket, now: u64) -> Result<(), CacheError> {
        let mut value = Vec::new();
        let result = self.entries.ask(request, Promise::Held, ticket, now, &mut value).expect("it has no log");
        let answered = Answered { ticket: ticket.value, result, value: value.into() };
        self.answers.lock().unwrap().push((ticket.receiver, answered));
        Ok(())
    }

    fn receivers(&self) -> &Receivers {
        &self.receivers
    }

    fn local(&self) -> Option<(Arc<dyn RemoteEngine>, Task)> {
        self.own.clone().map(|own| (own as Arc<dyn RemoteEngine>, Box::pin(async {}) as Task))
    }

    fn gauges(&self) -> Gauges {
        Gauges::default()
    }
}

#[test]
fn a_shard_asks_the_cache_and_the_database_by_connections_of_its_own() {
    let bed = Bed::new();
    bed.database.users.lock().unwrap().push(("alice", 1));
    let own = Arc::new(Elsewhere::new(None));
    let all = Arc::new(Elsewhere::new(Some(own.clone())));
    let (mut cached, task) = level_of(CacheHandle::Remote(all.clone()), &bed.now).before_local(bed.database.clone());
    assert!(task.is_some(), "the shard runs its connection");
    let questions = [Asked::from(ALICE), BOB.into()];
    let mut context = Context::from_waker(Waker::noop());
    // Fetches and stores of the database's answers; then fetches alone.
    for (database, stored) in [(2, 1), (1, 0)] {
        let mut answers = Vec::new();
        {
            let mut asked = pin!(LocalEngine::answer(&mut cached, &questions, &mut answers));
            assert_eq!(asked.as_mut().poll(&mut context), Poll::Pending);
            assert_eq!((own.answer(), bed.asked()), (2, 0), "first the cache");
            assert_eq!(asked.as_mut().poll(&mut context), Poll::Ready(Ok(())));
        }
        assert_eq!(answers, [credential("alice", 1), SubscriberAnswer::Absent]);
        assert_eq!((own.answer(), bed.asked()), (stored, database));
    }
    assert_eq!(all.answer(), 0, "no other thread is woken");
}

#[test]
fn a_shard_has_the_answers_of_a_cache_in_this_process_at_once() {
    let bed = Bed::new();
    bed.database.users.lock().unwrap().push(("alice", 1));
    let (mut cached, task) = bed.level.before_local(bed.database.clone());
    assert!(task.is_none());
    let mut context = Context::from_waker(Waker::noop());
    for asked in [1, 0] {
        let mut answers = Vec::new();
        let questions = [ALICE.into()];
        let answered = pin!(LocalEngine::answer(&mut cached, &questions, &mut answers)).poll(&mut context);
        assert_eq!(answered, Poll::Ready(Ok(())));
        assert_eq!((answers, bed.asked()), (vec![credential("alice", 1)], asked));
    }
}
