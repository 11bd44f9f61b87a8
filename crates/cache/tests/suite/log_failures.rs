//! A disk that is full, missing or slow: the cache continues in memory, reports it, and has a complete log again
//! afterwards.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use strowger_cache::error::CacheError;
use strowger_cache::local::LocalCache;
use strowger_cache::log::Moment;
use strowger_cache::request::{CacheAnswer, Life, Promise, Request};
use strowger_cache::settings::{LocalSettings, LogSettings};
use strowger_cache::ticket::{Answered, Receiver, Ticket};

const AT: Moment = Moment { now: 1_000_000, wall: 1_000_000 };
const LONG: Duration = Duration::from_secs(60);

fn open(folder: &Path, queue: usize) -> LocalCache {
    let pause = Duration::from_millis(5);
    let log = LogSettings { segment: 20_000, pause, queue, ..LogSettings::new(folder) };
    let settings = LocalSettings { bytes: 8 << 20, value: 1000, ..LocalSettings::default() };
    let (cache, report) = LocalCache::open(settings, log, AT).unwrap();
    assert_eq!(report.damage, []);
    cache
}

fn is_there(cache: &LocalCache, n: u32) -> bool {
    cache.fetch(&n.to_le_bytes(), AT.now, &mut Vec::new()).unwrap()
}

fn wait_for(what: impl Fn() -> bool) {
    while !what() {
        std::thread::yield_now();
    }
}

#[test]
fn a_folder_that_is_gone_and_comes_back() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("log");
    let cache = open(&folder, 64 << 20);
    let store = |n: u32| cache.store(&n.to_le_bytes(), &[1; 500], Life::FOREVER, AT.now).unwrap();
    for n in 0..100 {
        cache.wait(store(n), LONG).unwrap();
    }
    std::fs::remove_dir_all(&folder).unwrap();
    let mut n = 100;
    // The open segment accepts some more.
    while cache.wait(store(n), LONG).is_ok() {
        n += 1;
    }
    n += 1;
    let receipt = store(n);
    assert_eq!(cache.wait(receipt, LONG), Err(CacheError::Unavailable));
    assert!((0..=n).all(|n| is_there(&cache, n)), "memory has all");
    cache.remove(&7_u32.to_le_bytes(), AT.now).unwrap();

    std::fs::create_dir(&folder).unwrap();
    wait_for(|| cache.log_gauges().unwrap().failing == 0);
    cache.wait(receipt, LONG).unwrap();
    let last = n + 1;
    cache.wait(store(last), LONG).unwrap();
    let log = cache.log_gauges().unwrap();
    assert!(log.failures > 0 && log.compactions > 0, "{log:?}");
    cache.close();
    let cache = open(&folder, 64 << 20);
    assert!((0..=last).all(|n| is_there(&cache, n) == (n != 7)));
}

#[derive(Default)]
struct Mailbox(Mutex<Vec<Answered>>);

impl Receiver for Mailbox {
    fn answered(&self, answers: Vec<Answered>) {
        self.0.lock().unwrap().extend(answers);
    }
}

#[test]
fn tickets_come_back_when_nothing_is_kept() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("log");
    let cache = open(&folder, 64 << 20);
    std::fs::remove_dir_all(&folder).unwrap();
    let mailbox = Arc::new(Mailbox::default());
    let receiver = cache.receivers().expect("a log").register(mailbox.clone());
    let request = Request::Store { key: b"key", value: &[1; 1000], life: Life::FOREVER };
    let ask = |value| cache.ask(&request, Promise::Kept, Ticket { receiver, value }, AT.now, &mut Vec::new());
    let is_later = ask(1).is_none();
    wait_for(|| cache.log_gauges().unwrap().failing == 1);
    if is_later {
        wait_for(|| !mailbox.0.lock().unwrap().is_empty());
        let answer = Answered { ticket: 1, result: Err(CacheError::Unavailable), value: Box::default() };
        assert_eq!(mailbox.0.lock().unwrap()[..], [answer]);
    }
    // The result is known at once, and the ticket does not come back.
    assert_eq!(ask(2), Some(Err(CacheError::Unavailable)));
    let held = cache.ask(&request, Promise::Held, Ticket::NONE, AT.now, &mut Vec::new());
    assert_eq!(held, Some(Ok(CacheAnswer::Stored)));
}

#[test]
fn changes_that_come_faster_than_they_are_written_are_in_memory_and_later_in_the_log() {
    let folder = tempfile::tempdir().unwrap();
    // Space for a few changes in each partition.
    let cache = open(folder.path(), 4000);
    let mut n = 0_u32;
    while cache.log_gauges().unwrap().failures == 0 {
        for _ in 0..1000 {
            cache.store(&(n % 5000).to_le_bytes(), &[1; 100], Life::FOREVER, AT.now).unwrap();
            n += 1;
        }
    }
    let last = cache.store(b"last", b"value", Life::FOREVER, AT.now).unwrap();
    wait_for(|| cache.wait(last, LONG).is_ok());
    let entries = cache.len();
    cache.close();
    assert_eq!(open(folder.path(), 64 << 20).len(), entries);
}

#[test]
fn what_the_log_lacks_at_the_end_is_written_then() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("log");
    let settings = LogSettings { pause: LONG, ..LogSettings::new(&folder) };
    let (cache, _) = LocalCache::open(LocalSettings::default(), settings, AT).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    for n in 0..20_000_u32 {
        cache.store(&n.to_le_bytes(), &[1; 100], Life::FOREVER, AT.now).unwrap();
    }
    wait_for(|| cache.log_gauges().unwrap().failing == 1);
    std::fs::create_dir(&folder).unwrap();
    // Long before the next regular attempt.
    cache.close();
    assert_eq!(open(&folder, 64 << 20).len(), 20_000);
}

#[test]
fn a_cache_that_ends_while_its_log_fails_ends() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("log");
    let cache = open(&folder, 64 << 20);
    std::fs::remove_dir_all(&folder).unwrap();
    cache.store(b"key", &[1; 1000], Life::FOREVER, AT.now).unwrap();
    wait_for(|| cache.log_gauges().unwrap().failing == 1);
    cache.close();
}
