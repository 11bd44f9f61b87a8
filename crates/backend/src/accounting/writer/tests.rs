//! Rows are written once each, in order, however often the sink, the spool or the process fails.

use super::*;
use crate::accounting::work::CHUNK;
use std::collections::HashSet;
use std::sync::Mutex;
use std::time::Instant;
use strowger_store::accounting::cdr::Cdr;

/// Sink in memory that fails on request.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    rows: Vec<String>,
    fails: Option<Trouble>,
    refuses: HashSet<String>,
    panics: bool,
    attempts: usize,
    purged: Vec<u64>,
}

impl Sink for Memory {
    fn place(&self) -> String {
        "memory".into()
    }

    fn open(&mut self) -> Result<(), SinkError> {
        Ok(())
    }

    fn write(&mut self, rows: &[Box<Row>], _now: u64) -> Result<(), SinkError> {
        let mut state = self.0.lock().unwrap();
        state.attempts += 1;
        if state.panics {
            drop(state);
            panic!("as the test says");
        }
        if let Some(kind) = state.fails {
            return Err(SinkError { kind, detail: "as the test says".into() });
        }
        if let Some(row) = rows.iter().find(|row| state.refuses.contains(row.identity())) {
            return Err(SinkError { kind: Trouble::Row, detail: format!("{} is too long", row.identity()) });
        }
        // A table has each identity once.
        let rows: Vec<&Box<Row>> =
            rows.iter().filter(|row| !state.rows.iter().any(|old| old == row.identity())).collect();
        state.rows.extend(rows.iter().map(|row| row.identity().to_owned()));
        Ok(())
    }

    fn written(&mut self, identities: &HashSet<String>) -> Result<HashSet<String>, SinkError> {
        Ok(self.0.lock().unwrap().rows.iter().filter(|row| identities.contains(*row)).cloned().collect())
    }

    fn purge(&mut self, before: u64) -> Result<bool, SinkError> {
        self.0.lock().unwrap().purged.push(before);
        Ok(false)
    }
}

impl Memory {
    fn fail(&self, kind: Option<Trouble>) {
        self.0.lock().unwrap().fails = kind;
    }

    fn refuse(&self, numbers: &[u32]) {
        self.0.lock().unwrap().refuses = numbers.iter().map(u32::to_string).collect();
    }

    fn rows(&self) -> Vec<String> {
        self.0.lock().unwrap().rows.clone()
    }
}

fn settings(folder: &std::path::Path) -> Settings {
    let settings = Settings::new(folder.join("spool"));
    let group = GroupSettings { linger: Duration::from_millis(1), group: 8, queue: 1_000 };
    Settings { group, retry: Duration::from_millis(5), patience: Duration::ZERO, ..settings }
}

fn start(memory: &Memory, settings: &Settings) -> Accounting {
    Accounting::start(Box::new(memory.clone()), settings.clone(), Arc::new(|| 1_000_000)).unwrap()
}

fn submit(accounting: &Accounting, numbers: std::ops::Range<u32>) {
    for n in numbers {
        accounting.submit(Box::new(Row::Cdr(Cdr { identity: n.to_string(), ..Cdr::default() })));
    }
}

fn numbers(range: std::ops::Range<u32>) -> Vec<String> {
    range.map(|n| n.to_string()).collect()
}

fn wait(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < end, "not in twenty seconds: {what}");
        std::thread::yield_now();
    }
}

#[test]
fn what_cannot_be_written_follows_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let (memory, settings) = (Memory::default(), settings(folder.path()));
    let accounting = start(&memory, &settings);
    submit(&accounting, 0..10);
    wait("written", || memory.rows().len() == 10);
    memory.fail(Some(Trouble::Locked));
    submit(&accounting, 10..40);
    // The counters are updated one after the other.
    let is_spooled = |figures: Figures| figures.spool_rows == 30 && figures.spooled == 30 && figures.is_down;
    wait("in the spool", || is_spooled(accounting.figures()));
    let figures = accounting.figures();
    assert_eq!((figures.written, figures.dropped), (10, 0));
    assert!(figures.failures > 0 && figures.spool_bytes > 0);
    memory.fail(None);
    // The spool is written without another row.
    wait("the spool is empty", || accounting.figures().spool_rows == 0);
    submit(&accounting, 40..50);
    wait("written", || memory.rows().len() == 50);
    assert_eq!(memory.rows(), numbers(0..50));
    wait("counted", || accounting.figures().written == 50);
    assert!(!accounting.figures().is_down);
}

/// The interval between two attempts is an hour here: any earlier attempt was requested.
#[test]
fn an_attempt_that_is_asked_for_is_made_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let (memory, settings) = (Memory::default(), settings(folder.path()));
    let settings = Settings { retry: Duration::from_secs(3_600), ..settings };
    let accounting = start(&memory, &settings);
    let limit = Duration::from_secs(20);
    assert!(accounting.flush().wait(limit) && accounting.last_error().is_none() && accounting.oldest().is_none());
    memory.fail(Some(Trouble::Locked));
    submit(&accounting, 0..3);
    wait("in the spool", || accounting.figures().spool_rows == 3);
    let attempts = memory.0.lock().unwrap().attempts;
    assert!(accounting.flush().wait(limit));
    assert_eq!((memory.0.lock().unwrap().attempts, accounting.figures().spool_rows), (attempts + 1, 3));
    let error = accounting.last_error().unwrap();
    assert_eq!((error.at, &*error.detail), (1_000_000, "as the test says"));
    memory.fail(None);
    // No attempt is due, and none is requested.
    submit(&accounting, 3..4);
    wait("in the spool", || accounting.figures().spool_rows == 4);
    assert!(accounting.flush().wait(limit));
    assert_eq!((accounting.figures().spool_rows, memory.rows()), (0, numbers(0..4)));
    // The last failure is still reported.
    assert!(accounting.last_error().is_some() && !accounting.figures().is_down);
}

#[test]
fn a_process_that_was_killed_leaves_its_spool_to_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let (memory, settings) = (Memory::default(), settings(folder.path()));
    memory.fail(Some(Trouble::Full));
    let accounting = start(&memory, &settings);
    submit(&accounting, 0..20);
    wait("in the spool", || accounting.figures().spool_rows == 20);
    // The process writes some of the rows, and is killed before the spool is confirmed.
    memory.0.lock().unwrap().rows = numbers(0..7);
    memory.fail(Some(Trouble::Locked));
    drop(accounting);
    memory.fail(None);
    let accounting = start(&memory, &settings);
    submit(&accounting, 20..25);
    wait("written", || memory.rows().len() == 25);
    assert_eq!(memory.rows(), numbers(0..25));
    drop(accounting);
    assert_eq!(Spool::open(&settings.spool, 1 << 20, Duration::ZERO).unwrap().rows(), 0);
}

/// A waiting caller does not prevent the final write.
#[test]
fn an_attempt_keeps_nothing_from_ending() {
    let folder = tempfile::tempdir().unwrap();
    let (memory, settings) = (Memory::default(), settings(folder.path()));
    let accounting = start(&memory, &settings);
    submit(&accounting, 0..5);
    let attempt = accounting.flush();
    drop(accounting);
    assert_eq!(memory.rows(), numbers(0..5));
    assert!(Spool::open(&settings.spool, 1 << 20, Duration::ZERO).is_ok(), "it is free");
    attempt.wait(Duration::ZERO);
}

#[test]
fn two_do_not_share_a_spool() {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(folder.path());
    let _first = start(&Memory::default(), &settings);
    let second = Accounting::start(Box::new(Memory::default()), settings, Arc::new(|| 0));
    let error = second.err().unwrap().to_string();
    assert!(error.contains("the spool of accounting cannot be used") && error.contains("another server"), "{error}");
}

/// The interval between two attempts is an hour here, too.
#[test]
fn a_full_spool_is_written_whole_when_writing_works_again() {
    let folder = tempfile::tempdir().unwrap();
    let (memory, settings) = (Memory::default(), settings(folder.path()));
    let group = GroupSettings { group: CHUNK, queue: 100_000, ..settings.group };
    let settings = Settings { group, retry: Duration::from_secs(3_600), spool_bytes: 4 << 20, ..settings };
    memory.fail(Some(Trouble::Unreachable));
    let accounting = start(&memory, &settings);
    submit(&accounting, 0..30_000);
    wait("full", || accounting.last_error().is_some_and(|error| error.detail.starts_with("spool: ")));
    let spooled = accounting.figures().spool_rows;
    assert!(spooled > CHUNK as u64 && spooled < 30_000, "{spooled}");
    memory.fail(None);
    assert!(accounting.flush().wait(Duration::from_secs(20)));
    wait("written", || memory.rows().len() == 30_000);
    assert_eq!(memory.rows(), numbers(0..30_000));
    let figures = accounting.figures();
    assert_eq!((figures.spool_rows, figures.spool_bytes, figures.dropped), (0, 0, 0));
}

#[test]
fn a_sink_that_panics_has_failed_and_its_rows_follow() {
    let folder = tempfile::tempdir().unwrap();
    let (memory, settings) = (Memory::default(), settings(folder.path()));
    memory.0.lock().unwrap().panics = true;
    let accounting = start(&memory, &settings);
    submit(&accounting, 0..3);
    wait("in the spool", || accounting.figures().spool_rows == 3);
    assert!(accounting.figures().is_down && !accounting.has_ended());
    assert!(accounting.last_error().unwrap().detail.contains("the driver panicked"));
    memory.0.lock().unwrap().panics = false;
    wait("written", || memory.rows() == numbers(0..3));
}

/// A panic outside the sink ends the thread, which is reported.
#[test]
fn a_thread_that_ended_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(|| -> u64 { panic!("as the test says") });
    let accounting = Accounting::start(Box::new(Memory::default()), settings(folder.path()), clock).unwrap();
    assert!(!accounting.has_ended());
    submit(&accounting, 0..1);
    wait("the end", || accounting.has_ended());
    submit(&accounting, 1..3);
    assert_eq!(accounting.figures().dropped, 3);
}

#[test]
fn where_nothing_can_be_written_rows_wait_and_those_beyond_the_bound_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let memory = Memory::default();
    let group = GroupSettings { linger: Duration::from_millis(1), group: 4, queue: 10 };
    let settings = Settings { group, ..settings(folder.path()) };
    std::os::unix::fs::symlink("/dev/full", &settings.spool).unwrap();
    memory.fail(Some(Trouble::Full));
    let accounting = start(&memory, &settings);
    submit(&accounting, 0..100);
    let lost = accounting.figures().dropped;
    assert!((86..=90).contains(&lost), "{lost}");
    memory.fail(None);
    wait("the rest is written", || accounting.figures().queued == 0 && memory.rows().len() as u64 == 100 - lost);
    memory.fail(Some(Trouble::Full));
    submit(&accounting, 100..103);
    let counts = accounting.counts.clone();
    drop(accounting);
    assert_eq!(counts.dropped.load(Relaxed), lost + 3, "what the end leaves is counted");
}

#[test]
fn a_sink_that_fails_is_not_asked_for_each_group() {
    let folder = tempfile::tempdir().unwrap();
    let memory = Memory::default();
    let settings = Settings { retry: Duration::from_secs(60), ..settings(folder.path()) };
    memory.fail(Some(Trouble::Locked));
    let accounting = start(&memory, &settings);
    for n in 0..20 {
        submit(&accounting, n..n + 1);
        wait("in the spool", || accounting.figures().spool_rows == u64::from(n) + 1);
    }
    assert_eq!(memory.0.lock().unwrap().attempts, 1);
}

#[test]
fn old_rows_are_removed_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let memory = Memory::default();
    let settings = Settings { retention: Some(Duration::from_secs(600)), ..settings(folder.path()) };
    let _accounting = start(&memory, &settings);
    wait("a look for old rows", || memory.0.lock().unwrap().purged == [400_000]);
}

#[test]
fn a_refused_row_waits_in_the_quarantine_and_those_behind_it_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let (memory, settings) = (Memory::default(), settings(folder.path()));
    let accounting = start(&memory, &settings);
    let limit = Duration::from_secs(20);
    memory.refuse(&[3, 17]);
    submit(&accounting, 0..10);
    // Rows from the spool are treated alike.
    memory.fail(Some(Trouble::Locked));
    submit(&accounting, 10..30);
    wait("in the spool", || accounting.figures().spool_rows > 0);
    memory.fail(None);
    let is_done = |figures: Figures| figures.quarantine_rows == 2 && figures.spool_rows == 0;
    wait("written", || memory.rows().len() == 28 && is_done(accounting.figures()));
    let good = |range: std::ops::Range<u32>| (range.filter(|n| ![3, 17].contains(n)).map(|n| n.to_string())).collect();
    let expected: Vec<String> = good(0..30);
    assert_eq!(memory.rows(), expected);
    let figures = accounting.figures();
    assert_eq!((figures.quarantined, figures.written, figures.spool_rows, figures.dropped), (2, 28, 0, 0));
    assert!(!figures.is_down && figures.quarantine_bytes > 0);
    assert_eq!(accounting.last_reason().as_deref(), Some("17 is too long"));
    // One of them is repaired.
    memory.refuse(&[17]);
    assert!(accounting.retry().wait(limit));
    assert_eq!((accounting.figures().quarantine_rows, memory.rows().len()), (1, 29));
    // An unreachable database changes nothing.
    memory.fail(Some(Trouble::Unreachable));
    assert!(accounting.retry().wait(limit));
    assert_eq!((accounting.figures().quarantine_rows, accounting.figures().is_down), (1, true));
    memory.fail(None);
    // The next process finds the row.
    drop(accounting);
    let accounting = start(&memory, &settings);
    assert_eq!((accounting.figures().quarantine_rows, accounting.oldest_refused()), (1, None));
    memory.refuse(&[]);
    assert!(accounting.retry().wait(limit));
    assert_eq!((accounting.figures().quarantine_rows, accounting.last_reason()), (0, None));
    assert_eq!(memory.rows(), [expected, vec!["3".into(), "17".into()]].concat());
    assert!(accounting.retry().wait(limit), "of nothing");
}

/// After a kill between the writes to quarantine and spool, a row is in both files, and the next process finds both
/// copies.
#[test]
fn a_kill_between_quarantine_and_spool_neither_doubles_nor_loses() {
    let folder = tempfile::tempdir().unwrap();
    let (memory, settings) = (Memory::default(), settings(folder.path()));
    let accounting = start(&memory, &settings);
    memory.fail(Some(Trouble::Locked));
    submit(&accounting, 0..9);
    wait("in the spool", || accounting.figures().spool_rows == 9);
    let spool = std::fs::read(&settings.spool).unwrap();
    memory.refuse(&[2, 5]);
    memory.fail(None);
    wait("written", || accounting.figures().quarantine_rows == 2 && accounting.figures().spool_rows == 0);
    drop(accounting);
    std::fs::write(&settings.spool, &spool).unwrap();
    // The table now accepts one of the two rows.
    memory.refuse(&[5]);
    let accounting = start(&memory, &settings);
    wait("the spool is empty", || accounting.figures().spool_rows == 0);
    assert_eq!((accounting.figures().quarantine_rows, accounting.figures().quarantined), (2, 0));
    assert_eq!(memory.rows().len(), 7);
    memory.refuse(&[]);
    // The process is killed again, after a retry had written both rows and before the file of the quarantine was
    // replaced.
    let quarantine = std::fs::read(accounting.quarantine()).unwrap();
    assert!(accounting.retry().wait(Duration::from_secs(20)));
    let path = accounting.quarantine().to_owned();
    drop(accounting);
    std::fs::write(&path, &quarantine).unwrap();
    let accounting = start(&memory, &settings);
    assert_eq!(accounting.figures().quarantine_rows, 2);
    assert!(accounting.retry().wait(Duration::from_secs(20)));
    let mut rows = memory.rows();
    rows.sort();
    assert_eq!((rows, accounting.figures().quarantine_rows), (numbers(0..9), 0));
}

#[test]
fn a_full_quarantine_makes_refused_rows_wait_in_the_spool() {
    let folder = tempfile::tempdir().unwrap();
    let (memory, settings) = (Memory::default(), settings(folder.path()));
    let settings = Settings { quarantine_bytes: 1_000, ..settings };
    let accounting = start(&memory, &settings);
    memory.refuse(&[0, 1, 2, 3]);
    submit(&accounting, 0..20);
    let is_full = || accounting.last_error().is_some_and(|error| error.detail.starts_with("quarantine: "));
    wait("full", || is_full() && accounting.figures().spool_rows > 0 && accounting.figures().queued == 0);
    let figures = accounting.figures();
    let is_anywhere = figures.quarantine_rows + figures.spool_rows + memory.rows().len() as u64 >= 20;
    assert!(figures.is_down && figures.dropped == 0 && is_anywhere, "{figures:?}");
    memory.refuse(&[]);
    wait("the spool is empty", || accounting.figures().spool_rows == 0);
    assert!(accounting.retry().wait(Duration::from_secs(20)));
    let mut rows: Vec<u32> = memory.rows().iter().map(|row| row.parse().unwrap()).collect();
    rows.sort_unstable();
    assert_eq!(rows, (0..20).collect::<Vec<_>>());
}
