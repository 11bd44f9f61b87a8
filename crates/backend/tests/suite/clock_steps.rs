//! Steps of the system clock forward and back: no binding ends early or late while the table lives, and a restart
//! restores the remaining life by that clock, never more than the registrar grants.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use strowger_backend::sqlite::{SqliteBindings, SqliteSettings};
use strowger_store::binding::Binding;
use strowger_store::clock::{Clock, Moment};
use strowger_store::error::StoreError;
use strowger_store::journal::{Journal, JournalSettings};
use strowger_store::location::{ExistingBindings, LocationSettings, LocationTable, Step};
use strowger_store::ticket::{SinkId, Ticket};

const HOUR: u64 = 3_600_000;
const DAY: u64 = 24 * HOUR;
/// A day in 2023.
const TODAY: u64 = 1_700_000_000_000;

/// Both clocks of a machine, set by hand.
#[derive(Default)]
struct Hands {
    mono: AtomicU64,
    wall: AtomicU64,
}

impl Hands {
    fn set(&self, mono: u64, wall: u64) {
        self.mono.store(mono, SeqCst);
        self.wall.store(wall, SeqCst);
    }
}

struct Server {
    table: Arc<LocationTable>,
    journal: Journal,
    sink: SinkId,
    kept: mpsc::Receiver<Result<(), StoreError>>,
    hands: Arc<Hands>,
}

impl Server {
    /// Starts a server with these times on its clocks.
    fn start(file: &Path, mono: u64, wall: u64) -> Self {
        let hands = Arc::new(Hands::default());
        hands.set(mono, wall);
        let seen = Arc::clone(&hands);
        let clock: Clock = Arc::new(move || Moment { mono: seen.mono.load(SeqCst), wall: seen.wall.load(SeqCst) });
        let table = Arc::new(LocationTable::new(LocationSettings::default()));
        let engine = SqliteBindings::open(&SqliteSettings::new(file)).unwrap();
        let settings = JournalSettings { longest: Duration::from_millis(2 * HOUR), ..JournalSettings::default() };
        let (journal, _) = Journal::start(engine, &table, settings, clock).unwrap();
        let (tx, kept) = mpsc::channel();
        let sink = journal.receiver(Arc::new(move |results: &[(u64, Result<(), StoreError>)]| {
            for (_, result) in results {
                let _gone = tx.send(*result);
            }
        }));
        Self { table, journal, sink, kept, hands }
    }

    fn now(&self) -> u64 {
        self.hands.mono.load(SeqCst)
    }

    /// Registers for an hour.
    fn register(&self, aor: &[u8]) {
        self.register_for(aor, HOUR, 0);
    }

    fn register_for(&self, aor: &[u8], life: u64, updated_at: u64) {
        let now = self.now();
        let decide = |current: &ExistingBindings<'_>| {
            let b = Binding { uri: b"sip:phone@192.0.2.1", expires_at: now + life, updated_at, ..Binding::EMPTY };
            Ok::<_, ()>(vec![current.iter().next().map_or(Step::Add(b), |old| Step::Replace(old.id(), b))])
        };
        self.table.update(aor, now, 5, Ticket { sink: self.sink, value: 0 }, decide).unwrap();
        assert_eq!(self.kept.recv_timeout(Duration::from_secs(20)), Ok(Ok(())));
    }

    /// Returns the remaining milliseconds of a binding.
    fn left(&self, aor: &[u8]) -> Option<u64> {
        let now = self.now();
        let mut left = None;
        self.table.expire(now, 100, &mut |_| ());
        self.table.lookup(aor, now, &mut |b| left = Some(b.expires_at() - now));
        left
    }
}

#[test]
fn a_step_of_the_systems_clock_ends_nothing_and_keeps_nothing() {
    let dir = tempfile::tempdir().unwrap();
    for step in [TODAY + 400 * DAY, TODAY - 400 * DAY, 0] {
        let server = Server::start(&dir.path().join(step.to_string()), 5_000, TODAY);
        server.register(b"alice");
        server.hands.set(5_000 + HOUR / 2, step);
        assert_eq!(server.left(b"alice"), Some(HOUR / 2), "half an hour later, whatever the system's clock shows");
        server.register(b"bob");
        server.hands.set(5_000 + HOUR - 1, step);
        assert_eq!(server.left(b"alice"), Some(1));
        server.hands.set(5_000 + HOUR, step);
        assert_eq!(server.left(b"alice"), None);
        assert_eq!(server.left(b"bob"), Some(HOUR / 2));
    }
}

#[test]
fn a_restart_goes_on_with_what_is_left_by_the_systems_clock() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("db");
    let server = Server::start(&file, 900_000_000, TODAY);
    server.register(b"alice");
    server.journal.close();
    // For ten minutes no server runs; the monotonic clock begins when the machine starts.
    let server = Server::start(&file, 12, TODAY + HOUR / 6);
    assert_eq!(server.left(b"alice"), Some(HOUR * 5 / 6));
    // The machine starts with a wrong clock, which is then corrected: rows that are written after the correction are
    // correct.
    server.hands.set(2_012, TODAY + 30 * DAY);
    server.register(b"bob");
    server.journal.close();
    let server = Server::start(&file, 99, TODAY + 30 * DAY + HOUR / 2);
    assert_eq!(server.left(b"alice"), None, "by that clock it ended long ago");
    assert_eq!(server.left(b"bob"), Some(HOUR / 2));
}

#[test]
fn a_restart_with_the_clock_put_back_gives_no_more_than_the_longest_life() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("db");
    let server = Server::start(&file, 0, TODAY);
    server.register(b"alice");
    server.journal.close();
    let server = Server::start(&file, 0, TODAY - 30 * DAY);
    assert_eq!(server.left(b"alice"), Some(2 * HOUR));
}

/// The phone knows its granted life only.
#[test]
fn what_was_granted_outlives_a_setting_that_grants_less() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("db");
    let server = Server::start(&file, 0, TODAY);
    server.register_for(b"alice", 5 * HOUR, TODAY);
    server.journal.close();
    for (clock, left) in [(TODAY + HOUR, 4 * HOUR), (TODAY - 30 * DAY, 5 * HOUR)] {
        let server = Server::start(&file, 0, clock);
        assert_eq!(server.left(b"alice"), Some(left));
        server.journal.close();
    }
}

/// An ended binding is deleted from the disk, too, although the system clock stepped back after its row was written.
#[test]
fn no_row_outlives_its_binding() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("db");
    let server = Server::start(&file, 0, TODAY);
    server.register(b"alice");
    server.hands.set(HOUR, TODAY - DAY);
    assert_eq!(server.left(b"alice"), None);
    // Once this later write is stored, the row is deleted.
    server.register(b"bob");
    server.journal.close();
    let server = Server::start(&file, 0, TODAY - DAY);
    assert_eq!(server.left(b"alice"), None);
    assert_eq!(server.left(b"bob"), Some(HOUR));
}
