use std::collections::HashSet;
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc;

use super::*;
use crate::clock::Moment;
use crate::clock::tests::now as real_now;
use crate::subscriber::{Asked, Credential, Ha1s, Question, SubscriberAnswer};

/// Engine that knows users whose names begin with "u"; fails, blocks and counts on request.
#[derive(Clone, Default)]
struct Fake {
    asked: Arc<AtomicU64>,
    batches: Arc<AtomicU64>,
    version: Arc<AtomicU64>,
    changes: Arc<Mutex<Vec<Asked>>>,
    fail: Arc<AtomicUsize>,
    gate: Arc<Mutex<()>>,
}

impl LookupEngine for Fake {
    type Key = Asked;

    fn answer(&mut self, questions: &[Asked], answers: &mut Vec<SubscriberAnswer>) -> Result<(), StoreError> {
        self.asked.fetch_add(questions.len() as u64, Ordering::SeqCst);
        self.batches.fetch_add(1, Ordering::SeqCst);
        let _gate = self.gate.lock().unwrap();
        if self.fail.load(Ordering::SeqCst) != 0 {
            return Err(StoreError::Unavailable);
        }
        for asked in questions {
            answers.push(match asked.question() {
                Question::Credential { username, .. } if username.starts_with(b"u") => {
                    SubscriberAnswer::Credential(Arc::new(Credential {
                        username: String::from_utf8_lossy(username).into(),
                        realm: "r".into(),
                        domain: "d".into(),
                        ha1: Ha1s::default(),
                    }))
                }
                Question::User { username, .. } if username.starts_with(b"u") => SubscriberAnswer::Exists,
                _ => SubscriberAnswer::Absent,
            });
        }
        Ok(())
    }
}

/// Watch by version and by notice.
struct Both(Fake, Version<Asked, Box<dyn FnMut() -> Result<u64, StoreError> + Send>>);

impl Watch for Both {
    type Key = Asked;

    fn changes(&mut self) -> Result<Changes<Asked>, StoreError> {
        let noted = std::mem::take(&mut *self.0.changes.lock().unwrap());
        let noted = if noted.is_empty() { Changes::None } else { Changes::Of(noted) };
        Ok(self.1.changes()?.and(noted))
    }
}

struct Bed {
    fake: Fake,
    store: ReadThrough<Asked>,
    sink: SinkId,
    results: mpsc::Receiver<(u64, Result<SubscriberAnswer, StoreError>)>,
    /// Lead of the clock over real time, in milliseconds.
    ahead: Arc<AtomicU64>,
}

fn bed(settings: ReadThroughSettings) -> Bed {
    bed_that_connects(settings, Ok)
}

fn bed_that_connects(settings: ReadThroughSettings, connect: fn(Fake) -> Result<Fake, StoreError>) -> Bed {
    let fake = Fake::default();
    let (again, version) = (fake.clone(), fake.version.clone());
    let version = Version::new(Box::new(move || Ok(version.load(Ordering::SeqCst))) as Box<_>);
    let watch = Box::new(Both(fake.clone(), version));
    let ahead = Arc::new(AtomicU64::new(0));
    let skew = ahead.clone();
    let clock = Arc::new(move || Moment { mono: real_now() + skew.load(Ordering::SeqCst), wall: 0 });
    let store = ReadThrough::start(fake.clone(), move || connect(again.clone()), Some(watch), settings, clock).unwrap();
    // The first read of a version makes everything doubtful.
    while store.gauges().doubted == 0 {
        std::thread::yield_now();
    }
    let (tx, results) = mpsc::channel();
    let sink = store.receiver(move |results: &[(u64, Result<SubscriberAnswer, StoreError>)]| {
        for result in results {
            let _gone = tx.send(result.clone());
        }
    });
    Bed { fake, store, sink, results, ahead }
}

fn credential(username: &str) -> Question<'_> {
    Question::Credential { username: username.as_bytes(), realm: b"r" }
}

impl Bed {
    fn now(&self) -> u64 {
        real_now() + self.ahead.load(Ordering::SeqCst)
    }

    fn request(&self, value: u64, question: Question<'_>) -> Result<(), Refused> {
        self.store.request(Ticket { sink: self.sink, value }, question, self.now())?;
        self.store.flush();
        Ok(())
    }

    fn cached(&self, question: Question<'_>) -> Option<SubscriberAnswer> {
        self.store.cached(question, self.now()).map(Result::unwrap)
    }

    fn result(&self) -> (u64, Result<SubscriberAnswer, StoreError>) {
        self.results.recv_timeout(Duration::from_secs(20)).expect("each ticket comes back")
    }

    fn ask(&self, question: Question<'_>) -> SubscriberAnswer {
        self.request(0, question).unwrap();
        self.result().1.unwrap()
    }

    fn until(&self, is_so: impl Fn(&Self) -> bool) {
        let end = Instant::now() + Duration::from_secs(20);
        while !is_so(self) {
            assert!(Instant::now() < end, "it never is: {:?}", self.store.gauges());
            std::thread::yield_now();
        }
    }

    fn until_asked(&self, n: u64) {
        self.until(|bed| bed.fake.asked.load(Ordering::SeqCst) >= n);
    }
}

#[test]
fn the_second_time_it_is_known() {
    let bed = bed(ReadThroughSettings::default());
    assert_eq!(bed.cached(credential("u1")), None);
    let answer = bed.ask(credential("u1"));
    assert!(matches!(&answer, SubscriberAnswer::Credential(c) if &*c.username == "u1"));
    assert_eq!(bed.cached(credential("u1")), Some(answer));
    assert_eq!(bed.ask(credential("nobody")), SubscriberAnswer::Absent);
    assert_eq!(bed.cached(credential("nobody")), Some(SubscriberAnswer::Absent));
    // The same texts, split elsewhere or in another kind of question, are another question.
    let split = Question::Credential { username: b"u", realm: b"1r" };
    assert_eq!(bed.cached(split), None);
    let user = Question::User { username: b"u1", domain: b"r" };
    assert_eq!(bed.cached(user), None);
    assert_eq!(bed.ask(user), SubscriberAnswer::Exists);
    let gauges = bed.store.gauges();
    assert_eq!((gauges.entries, gauges.hits, gauges.misses, gauges.in_flight), (3, 2, 3, 0));
}

/// Made-up names may be as long as a message: twenty thousand of them would be a gigabyte.
#[test]
fn that_there_is_no_user_of_a_long_name_is_not_kept() {
    let bed = bed(ReadThroughSettings::default());
    for (length, kept) in [(200, 1), (400, 1), (60_000, 1)] {
        let name = "n".repeat(length);
        assert_eq!(bed.ask(credential(&name)), SubscriberAnswer::Absent);
        assert_eq!(bed.store.gauges().entries, kept, "{length}");
    }
}

#[test]
fn of_the_spellings_of_an_address_one_is_kept() {
    let bed = bed(ReadThroughSettings::default());
    for (name, is_kept) in [("u@example.org", true), ("u@Example.org", false), ("n@EXAMPLE.org", false)] {
        let answer = bed.ask(credential(name));
        assert_eq!(bed.cached(credential(name)), is_kept.then_some(answer), "{name}");
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
fn a_failure_is_reported_and_not_cached() {
    let bed = bed(ReadThroughSettings::default());
    bed.fake.fail.store(1, Ordering::SeqCst);
    bed.request(1, credential("u1")).unwrap();
    assert_eq!(bed.result(), (1, Err(StoreError::Unavailable)));
    assert_eq!(bed.cached(credential("u1")), None);
    bed.fake.fail.store(0, Ordering::SeqCst);
    assert_ne!(bed.ask(credential("u1")), SubscriberAnswer::Absent);
}

#[test]
fn made_up_names_do_not_push_out_users() {
    let bed = bed(ReadThroughSettings { found: 320, absent: 320, ..ReadThroughSettings::default() });
    bed.ask(credential("u1"));
    for n in 0..3000 {
        bed.ask(credential(&format!("x{n}")));
    }
    assert!(bed.cached(credential("u1")).is_some());
    let entries = bed.store.gauges().entries;
    assert!((160..=321).contains(&entries), "{entries}");
    // Users evict other users, but not a user who is asked for all the time.
    for n in 0..3000 {
        bed.ask(credential(&format!("u-{n}")));
        assert!(bed.cached(credential("u1")).is_some());
    }
    assert!(bed.store.gauges().entries <= 640);
}

#[test]
fn a_slow_database_is_answered_for_at_the_deadline() {
    let bed = bed(ReadThroughSettings {
        deadline: Duration::from_secs(50),
        queue: 2,
        connections: 1,
        ..ReadThroughSettings::default()
    });
    let gate = bed.fake.gate.lock().unwrap();
    bed.request(1, credential("u1")).unwrap();
    bed.until_asked(1);
    bed.request(2, credential("u2")).unwrap();
    assert_eq!(bed.request(3, credential("u3")), Err(Refused::Full));
    bed.request(4, credential("u2")).unwrap();
    bed.ahead.fetch_add(50_000, Ordering::SeqCst);
    let late: HashSet<_> = (0..3).map(|_| bed.result()).map(|(n, r)| (n, r.unwrap_err())).collect();
    assert_eq!(late, [1, 2, 4].map(|n| (n, StoreError::TimedOut)).into());
    drop(gate);
    // The late answer is cached nevertheless, and no ticket comes back twice.
    bed.until(|bed| bed.cached(credential("u1")).is_some());
    bed.ask(credential("u9"));
    assert!(bed.results.try_recv().is_err());
    assert_eq!(bed.store.gauges().late, 3);
    assert_eq!(bed.fake.asked.load(Ordering::SeqCst), 2, "what no caller waits for is not asked");
}

#[test]
fn deadlines_are_kept_within_50_ms() {
    let deadline = Duration::from_millis(100);
    let bed = bed(ReadThroughSettings { deadline, breaker_after: u32::MAX, ..ReadThroughSettings::default() });
    let gate = bed.fake.gate.lock().unwrap();
    let mut over: Vec<Duration> = (0..20)
        .map(|n| {
            let start = Instant::now();
            bed.request(n, credential(&format!("u{n}"))).unwrap();
            assert_eq!(bed.result(), (n, Err(StoreError::TimedOut)));
            // The clock has whole milliseconds.
            (start.elapsed() + Duration::from_millis(1)).checked_sub(deadline).expect("not before the deadline")
        })
        .collect();
    drop(gate);
    over.sort();
    assert!(over[15] <= Duration::from_millis(50), "{over:?}");
}

#[test]
fn answers_grow_old() {
    let bed = bed(ReadThroughSettings::default());
    bed.ask(credential("u1"));
    bed.ask(credential("nobody"));
    bed.ahead.fetch_add(60_000, Ordering::SeqCst);
    assert!(bed.cached(credential("u1")).is_some());
    assert_eq!(bed.cached(credential("nobody")), None);
    bed.ahead.fetch_add(300_000, Ordering::SeqCst);
    assert_eq!(bed.cached(credential("u1")), None);
}

#[test]
fn a_version_voids_all_and_a_notice_one() {
    let bed = bed(ReadThroughSettings { poll: Duration::from_millis(10), ..ReadThroughSettings::default() });
    bed.ask(credential("u1"));
    bed.ask(credential("u2"));
    std::thread::sleep(Duration::from_millis(50));
    assert!(bed.cached(credential("u1")).is_some(), "nothing changed");
    // A database may repeat a notice, and send one about a question that no caller asked.
    bed.fake.changes.lock().unwrap().extend(["u2", "u2", "never asked for"].map(|name| credential(name).into()));
    bed.until(|bed| bed.cached(credential("u2")).is_none());
    bed.until(|bed| bed.store.gauges().voided > 0);
    assert!(bed.cached(credential("u1")).is_some());
    assert_eq!(bed.store.gauges().voided, 1);
    bed.fake.version.store(1, Ordering::SeqCst);
    bed.until(|bed| bed.cached(credential("u1")).is_none());
    bed.ask(credential("u1"));
    bed.store.forget();
    assert_eq!(bed.cached(credential("u1")), None);
}

#[test]
fn an_answer_that_is_voided_on_its_way_is_not_kept() {
    for forget in [false, true] {
        let bed = bed(ReadThroughSettings { poll: Duration::from_millis(5), ..ReadThroughSettings::default() });
        bed.ask(credential("kept"));
        let gate = bed.fake.gate.lock().unwrap();
        bed.request(1, credential("u1")).unwrap();
        bed.until_asked(2);
        match forget {
            true => bed.store.forget(),
            false => {
                let changed = ["u1", "kept"].map(|name| credential(name).into());
                bed.fake.changes.lock().unwrap().extend(changed);
                // The second answer is cached, and voided after the first.
                bed.until(|bed| bed.store.gauges().voided == 1);
            }
        }
        drop(gate);
        assert!(bed.result().1.is_ok(), "it was so when it was asked");
        assert_eq!(bed.cached(credential("u1")), None);
        bed.ask(credential("u1"));
        assert!(bed.cached(credential("u1")).is_some());
    }
}

#[test]
fn questions_of_a_round_leave_together() {
    let bed = bed(ReadThroughSettings::default());
    for n in 0..200 {
        let ticket = Ticket { sink: bed.sink, value: n };
        bed.store.request(ticket, credential(&format!("u{n}")), bed.now()).unwrap();
    }
    bed.store.flush();
    for _ in 0..200 {
        bed.result().1.unwrap();
    }
    // Two if the timekeeper was faster than this thread.
    assert!(bed.fake.batches.load(Ordering::SeqCst) <= 2);
}

#[test]
fn as_many_batches_are_with_the_engine_as_there_are_connections() {
    let bed = bed(ReadThroughSettings { batch: 1, connections: 3, ..ReadThroughSettings::default() });
    let gate = bed.fake.gate.lock().unwrap();
    for n in 0..5 {
        bed.request(n, credential(&format!("u{n}"))).unwrap();
    }
    bed.until_asked(3);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(bed.fake.asked.load(Ordering::SeqCst), 3, "no more than its connections bear");
    assert_eq!(bed.store.gauges().connections, 3);
    drop(gate);
    for _ in 0..5 {
        bed.result().1.unwrap();
    }
}

#[test]
fn a_panic_while_it_connects_fails_a_question_and_ends_nothing() {
    let deadline = Duration::from_secs(20);
    let settings = ReadThroughSettings { batch: 1, connections: 2, deadline, ..ReadThroughSettings::default() };
    let bed = bed_that_connects(settings, |_| panic!("as a test wants it"));
    let gate = bed.fake.gate.lock().unwrap();
    bed.request(1, credential("u1")).unwrap();
    bed.until_asked(1);
    // There is no connection for this question yet.
    bed.request(2, credential("u2")).unwrap();
    assert_eq!(bed.result(), (2, Err(StoreError::Refused)));
    drop(gate);
    assert!(matches!(bed.result(), (1, Ok(_))) && !bed.store.has_ended());
}

#[test]
fn what_is_known_outlives_its_engine() {
    let settings = ReadThroughSettings {
        serve_stale: Duration::from_secs(3600),
        deadline: Duration::from_secs(3600 * 10),
        ..ReadThroughSettings::default()
    };
    let bed = bed(settings.clone());
    bed.ask(credential("u1"));
    bed.ask(credential("nobody"));
    bed.ahead.fetch_add(301_000, Ordering::SeqCst);
    let gate = bed.fake.gate.lock().unwrap();
    // The engine gets a moment to answer; after this moment it counts as silent.
    assert_eq!(bed.cached(credential("u1")), None);
    bed.request(1, credential("u1")).unwrap();
    bed.request(2, credential("nobody")).unwrap();
    let (value, answer) = bed.result();
    assert!(value == 1 && matches!(answer, Ok(SubscriberAnswer::Credential(_))), "{answer:?}");
    assert!(bed.cached(credential("u1")).is_some());
    assert_eq!(bed.store.gauges().stale, 2);
    assert_eq!(bed.cached(credential("nobody")), None, "that there was none is not known any more");
    bed.ahead.fetch_add(3_600_000, Ordering::SeqCst);
    assert_eq!(bed.cached(credential("u1")), None, "not for ever");
    drop(gate);
    bed.until(|bed| bed.store.gauges().in_flight == 0);
    assert!(bed.cached(credential("u1")).is_some(), "asked for again meanwhile");
}

#[test]
fn an_engine_that_fails_leaves_what_is_known() {
    let bed = bed(ReadThroughSettings { found_ttl: Duration::ZERO, ..ReadThroughSettings::default() });
    bed.ask(credential("u1"));
    bed.fake.fail.store(1, Ordering::SeqCst);
    assert_ne!(bed.ask(credential("u1")), SubscriberAnswer::Absent);
    bed.request(1, credential("u2")).unwrap();
    assert_eq!(bed.result().1, Err(StoreError::Unavailable));
    // An answer that a notice voids is not used, not even while the engine fails.
    bed.fake.changes.lock().unwrap().push(credential("u1").into());
    bed.until(|bed| bed.cached(credential("u1")).is_none());
}

#[test]
fn after_some_deadlines_in_a_row_the_rest_fails_at_once() {
    let bed = bed(ReadThroughSettings {
        deadline: Duration::from_millis(50),
        poll: Duration::from_millis(20),
        breaker_after: 3,
        connections: 1,
        ..ReadThroughSettings::default()
    });
    let unknown = |n: u64| bed.store.cached(credential(&format!("u{n}")), bed.now());
    let gate = bed.fake.gate.lock().unwrap();
    for n in 0..3 {
        assert_eq!(unknown(n), None);
        bed.request(n, credential(&format!("u{n}"))).unwrap();
        assert_eq!(bed.result().1, Err(StoreError::TimedOut));
    }
    bed.until(|bed| bed.store.gauges().is_broken);
    assert_eq!(unknown(3), Some(Err(StoreError::Unavailable)));
    assert_eq!(bed.store.gauges().broken, 1);
    drop(gate);
    // Without any caller, the last question is repeated, and its answer shows that the engine is back.
    bed.until(|bed| !bed.store.gauges().is_broken);
    assert!(bed.cached(credential("u2")).is_some());
    bed.ask(credential("u3"));
    assert_eq!(bed.store.gauges().late, 3);
}

#[test]
fn the_end_answers_what_is_open_and_waits_for_no_dead_engine() {
    let settings = ReadThroughSettings { deadline: Duration::from_millis(500), connections: 1, ..Default::default() };
    let Bed { fake, store, sink, results, .. } = bed(settings);
    let gate = fake.gate.lock().unwrap();
    for value in [1, 2] {
        let name = format!("u{value}");
        store.request(Ticket { sink, value }, credential(&name), real_now()).unwrap();
        store.flush();
        while fake.asked.load(Ordering::SeqCst) < 1 {
            std::thread::yield_now();
        }
    }
    drop(store);
    let ended: HashSet<_> = results.iter().take(2).map(|(n, r)| (n, r.unwrap_err())).collect();
    assert_eq!(ended, [1, 2].map(|n| (n, StoreError::Unavailable)).into());
    drop(gate);
}
