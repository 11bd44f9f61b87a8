//! Outage of a database that stops, freezes or slows down for a minute, under calls of known and unknown users: calls
//! of known users are not affected, the others get the specified answer at the deadline, and when the database answers
//! again, service is as before.
//!
//! The clock passes the minute in one step.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::{Duration, Instant};

use strowger_store::clock::Moment;
use strowger_store::error::StoreError;
use strowger_store::read_through::{Changes, LookupEngine, ReadThrough, ReadThroughSettings, Watch};
use strowger_store::subscriber::{Asked, Question, SubscriberAnswer};
use strowger_store::ticket::{SinkId, Ticket};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Well,
    Stopped,
    Frozen,
    Slow,
}

/// Database in the mode that the test sets.
#[derive(Clone)]
struct Database(Arc<(Mutex<Mode>, Condvar)>);

impl Database {
    fn set(&self, mode: Mode) {
        *self.0.0.lock().unwrap() = mode;
        self.0.1.notify_all();
    }

    fn reach(&self) -> Result<(), StoreError> {
        let (mode, changed) = &*self.0;
        let mode = changed.wait_while(mode.lock().unwrap(), |mode| *mode == Mode::Frozen).unwrap();
        let now = *mode;
        drop(mode);
        match now {
            Mode::Stopped => return Err(StoreError::Unavailable),
            // The delay under test.
            Mode::Slow => std::thread::sleep(SLOW),
            Mode::Well | Mode::Frozen => {}
        }
        Ok(())
    }
}

impl LookupEngine for Database {
    type Key = Asked;

    fn answer(&mut self, questions: &[Asked], answers: &mut Vec<SubscriberAnswer>) -> Result<(), StoreError> {
        self.reach()?;
        answers.extend(questions.iter().map(|_| SubscriberAnswer::Exists));
        Ok(())
    }
}

impl Watch for Database {
    type Key = Asked;

    fn changes(&mut self) -> Result<Changes<Asked>, StoreError> {
        self.reach()?;
        Ok(Changes::None)
    }
}

const SLOW: Duration = Duration::from_millis(500);
const DEADLINE: Duration = Duration::from_secs(1);
const LIFETIME: Duration = Duration::from_secs(10);
const KNOWN: u64 = 50;

type Heard = (u64, Result<SubscriberAnswer, StoreError>);

struct Bed {
    database: Database,
    store: ReadThrough<Asked>,
    sink: SinkId,
    heard: mpsc::Receiver<(Heard, Instant)>,
    start: Instant,
    ahead: Arc<AtomicU64>,
    calls: u64,
    open: HashMap<u64, Instant>,
}

impl Bed {
    fn new() -> Self {
        let database = Database(Arc::new((Mutex::new(Mode::Well), Condvar::new())));
        let (start, ahead) = (Instant::now(), Arc::new(AtomicU64::new(0)));
        let skew = ahead.clone();
        let clock = Arc::new(move || Moment { mono: start.elapsed().as_millis() as u64 + skew.load(SeqCst), wall: 0 });
        let settings =
            ReadThroughSettings { found_ttl: LIFETIME, deadline: DEADLINE, ..ReadThroughSettings::default() };
        let again = database.clone();
        let watch = Box::new(database.clone());
        let store =
            ReadThrough::start(database.clone(), move || Ok(again.clone()), Some(watch), settings, clock).unwrap();
        let (tx, heard) = mpsc::channel();
        let sink = store.receiver(move |results: &[Heard]| {
            for result in results {
                let _gone = tx.send((result.clone(), Instant::now()));
            }
        });
        Self { database, store, sink, heard, start, ahead, calls: 0, open: HashMap::new() }
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_millis() as u64 + self.ahead.load(SeqCst)
    }

    /// Starts a call of this user. Returns the cached answer, or asks with a ticket and returns `None`.
    fn call(&mut self, name: &str) -> Option<Result<SubscriberAnswer, StoreError>> {
        let question = Question::User { username: name.as_bytes(), domain: b"d" };
        let known = self.store.cached(question, self.now());
        if known.is_none() {
            self.calls += 1;
            self.open.insert(self.calls, Instant::now());
            self.store.request(Ticket { sink: self.sink, value: self.calls }, question, self.now()).unwrap();
            self.store.flush();
        }
        known
    }

    /// Returns the result of a waiting call, and the time for which it has waited.
    fn hear(&mut self) -> (Result<SubscriberAnswer, StoreError>, Duration) {
        let ((value, result), at) = self.heard.recv_timeout(Duration::from_secs(20)).expect("each ticket comes back");
        (result, at - self.open.remove(&value).expect("it is open"))
    }

    fn known(&mut self) {
        for n in 0..KNOWN {
            assert!(self.call(&format!("known{n}")) == Some(Ok(SubscriberAnswer::Exists)), "known{n} waits");
        }
    }
}

fn outage(mode: Mode) {
    let mut bed = Bed::new();
    for n in 0..KNOWN {
        bed.call(&format!("known{n}"));
        assert_eq!(bed.hear().0, Ok(SubscriberAnswer::Exists));
    }
    // Every answer is past its lifetime, so that each of these calls would ask.
    bed.ahead.fetch_add(LIFETIME.as_millis() as u64, SeqCst);
    bed.database.set(mode);

    // The first calls discover the outage; none waits longer than `stale_wait`.
    let mut waited = Vec::new();
    for n in 0..KNOWN {
        if bed.call(&format!("known{n}")).is_none() {
            let (result, took) = bed.hear();
            assert_eq!(result, Ok(SubscriberAnswer::Exists), "known{n} while the database is {mode:?}");
            waited.push(took);
        }
    }
    waited.sort();
    assert!(waited.len() <= 2, "only until it is known to be silent: {waited:?}");
    assert!(waited[0] < Duration::from_millis(200 + 100), "{waited:?}");

    // Unknown users, one every 20 ms, and the known ones between.
    let mut took = Vec::new();
    let mut at_once = 0;
    for n in 0..100 {
        match bed.call(&format!("unknown{n}")) {
            None => {}
            Some(Err(StoreError::Unavailable)) => at_once += 1,
            other => panic!("unknown{n}: {other:?}"),
        }
        bed.known();
        // The rate of calls.
        std::thread::sleep(Duration::from_millis(20));
    }
    while !bed.open.is_empty() {
        let (result, took_it) = bed.hear();
        took.push(took_it);
        match mode {
            Mode::Stopped => assert_eq!(result, Err(StoreError::Unavailable)),
            Mode::Frozen => assert_eq!(result, Err(StoreError::TimedOut)),
            Mode::Slow | Mode::Well => assert_eq!(result, Ok(SubscriberAnswer::Exists)),
        }
    }
    took.sort();
    // One of these calls may wait for the processor among tests that run in parallel.
    let most = took[took.len() - 1 - took.len() / 20];
    assert!(most <= DEADLINE + Duration::from_millis(100), "{mode:?}: {took:?}");
    assert_eq!(at_once > 0, mode == Mode::Frozen, "{at_once} failed at once");

    // The minute passes without any loss.
    bed.ahead.fetch_add(60_000, SeqCst);
    bed.known();

    bed.database.set(Mode::Well);
    let back = Instant::now();
    let mut n = 0;
    loop {
        n += 1;
        let known = bed.call(&format!("new{n}"));
        let result = known.unwrap_or_else(|| bed.hear().0);
        if result == Ok(SubscriberAnswer::Exists) {
            break;
        }
        assert!(back.elapsed() < Duration::from_secs(20), "it never recovers");
        // The rate of calls.
        std::thread::sleep(Duration::from_millis(5));
    }
    // A slow batch may be in progress.
    assert!(back.elapsed() < SLOW + Duration::from_millis(500), "{mode:?}: back after {:?}", back.elapsed());
    // All is as before: answers past their lifetime are asked for.
    for n in 0..KNOWN {
        let known = bed.call(&format!("known{n}"));
        assert_eq!(known.unwrap_or_else(|| bed.hear().0), Ok(SubscriberAnswer::Exists));
    }
    eprintln!(
        "{mode:?}: known waited {waited:?}; unknown at most {most:?}, {at_once} at once; back after {:?}",
        back.elapsed()
    );
}

#[test]
fn a_database_that_stops() {
    outage(Mode::Stopped);
}

#[test]
fn a_database_that_freezes() {
    outage(Mode::Frozen);
}

#[test]
fn a_database_that_slows_down() {
    outage(Mode::Slow);
}
