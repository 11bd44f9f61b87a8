//! Removed users, and the answers of the cache of subscribers meanwhile.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use strowger_store::cached_subscribers::CachedSubscribers;
use strowger_store::clock::Moment;
use strowger_store::error::StoreError;
use strowger_store::read_through::{Changes, LookupEngine, ReadThroughSettings};
use strowger_store::subscriber::{Asked, Question, Removed, SubscriberAnswer, SubscriberWatch, Subscribers};
use strowger_store::ticket::Ticket;

/// Database that knows every user, and cannot settle removals.
#[derive(Clone, Default)]
struct Fake {
    changes: Arc<Mutex<Vec<Asked>>>,
    removed: Arc<Mutex<Vec<Removed>>>,
    settles: Arc<AtomicU64>,
}

impl LookupEngine for Fake {
    type Key = Asked;

    fn answer(&mut self, questions: &[Asked], answers: &mut Vec<SubscriberAnswer>) -> Result<(), StoreError> {
        answers.extend(questions.iter().map(|_| SubscriberAnswer::Exists));
        Ok(())
    }
}

impl SubscriberWatch for Fake {
    fn changes(&mut self) -> Result<Changes<Asked>, StoreError> {
        let changes = std::mem::take(&mut *self.changes.lock().unwrap());
        Ok(if changes.is_empty() { Changes::None } else { Changes::Of(changes) })
    }

    fn removed(&mut self) -> Result<Vec<Removed>, StoreError> {
        Ok(self.removed.lock().unwrap().clone())
    }

    fn settle(&mut self, _ids: &[u64]) -> Result<(), StoreError> {
        self.settles.fetch_add(1, SeqCst);
        Err(StoreError::Unavailable)
    }
}

fn until(is_so: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < end, "it never is");
        std::thread::yield_now();
    }
}

#[test]
fn a_removal_voids_the_cache_and_one_that_cannot_be_noted_does_not() {
    let fake = Fake::default();
    let settings = ReadThroughSettings { poll: Duration::from_millis(5), ..ReadThroughSettings::default() };
    let start = Instant::now();
    let now = move || start.elapsed().as_millis() as u64;
    let clock = Arc::new(move || Moment { mono: now(), wall: 0 });
    let again = fake.clone();
    let store =
        CachedSubscribers::start(fake.clone(), move || Ok(again.clone()), fake.clone(), settings, clock).unwrap();
    let (tx, answers) = mpsc::channel();
    let sink = store.receiver(Arc::new(move |results: &[(u64, Result<SubscriberAnswer, StoreError>)]| {
        let _gone = tx.send(results.len());
    }));
    let bob = Question::User { username: b"bob", domain: b"d" };
    let is_known = || store.cached(bob, now()).is_some();
    let ask = || {
        store.request(Ticket { sink, value: 0 }, bob, now()).unwrap();
        store.flush();
        assert_eq!(answers.recv_timeout(Duration::from_secs(20)), Ok(1));
    };
    let removal = |id| Removed { id, username: "bob".into(), domain: "d".into() };

    let remove = |id| {
        // Both happen in one step, as in a database.
        let mut removed = fake.removed.lock().unwrap();
        removed.push(removal(id));
        fake.changes.lock().unwrap().push(bob.into());
    };
    ask();
    remove(1);
    until(|| store.removed() == [removal(1)]);
    assert!(!is_known(), "no caller hears any more that there is such a user");
    store.settled(1);
    until(|| fake.settles.load(SeqCst) > 0);
    ask();
    let before = fake.settles.load(SeqCst);
    until(|| fake.settles.load(SeqCst) > before + 3);
    assert!(is_known(), "nothing has changed");
    assert_eq!(store.removed(), [], "it is settled, though the database still has it");
    remove(2);
    until(|| store.removed() == [removal(2)]);
    assert!(!is_known(), "no caller hears any more that there is such a user");
}
