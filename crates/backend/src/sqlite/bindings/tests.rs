//! Bindings on disk: commits, restarts, and damaged files.

use super::*;
use crate::sqlite::PAGE;
use strowger_store::clock::Moment;
use strowger_store::location::{ExistingBindings, LocationSettings, Step, UpdateStatus};
use strowger_store::ticket::{SinkId, Ticket};

type Results = mpsc::Receiver<(u64, Result<(), StoreError>)>;

fn start(settings: &SqliteSettings) -> (Arc<LocationTable>, Journal, SinkId, Results) {
    start_with(settings, &["a", "b", "c", "d", "e", "f"])
}

fn start_with(settings: &SqliteSettings, listeners: &[&str]) -> (Arc<LocationTable>, Journal, SinkId, Results) {
    let listeners = listeners.iter().map(|name| (*name).into()).collect();
    let table = Arc::new(LocationTable::new(LocationSettings::default()));
    let engine = SqliteBindings::open(settings).unwrap();
    let (journal, _) =
        Journal::start(engine, &table, JournalSettings { listeners, ..JournalSettings::default() }, still()).unwrap();
    let (tx, rx) = mpsc::channel();
    let sink = journal.receiver(Arc::new(move |results: &[(u64, Result<(), StoreError>)]| {
        for result in results {
            let _gone = tx.send(*result);
        }
    }));
    (table, journal, sink, rx)
}

fn still() -> Clock {
    Arc::new(|| Moment { mono: 0, wall: 0 })
}

fn add(table: &LocationTable, sink: SinkId, value: u64, binding: Binding<'_>) {
    let steps = |_: &ExistingBindings<'_>| Ok::<_, ()>(vec![Step::Add(binding)]);
    let standing = table.update(binding.aor, 0, 10, Ticket { sink, value }, steps).unwrap();
    assert_eq!(standing, UpdateStatus::Pending);
}

fn wait(results: &Results) -> (u64, Result<(), StoreError>) {
    results.recv_timeout(Duration::from_secs(20)).expect("each ticket comes back")
}

fn full() -> Binding<'static> {
    Binding {
        aor: b"sip:alice@example.com",
        uri: b"sip:alice@192.0.2.1:5070;ob",
        call_id: b"a84b4c76e66710@pc33",
        path: b"<sip:p1@192.0.2.7;lr>,<sip:p2.example.com;lr>",
        instance: b"<urn:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6>",
        user_agent: b"Phone 1.0",
        cseq: u32::MAX,
        q: Some(700),
        expires_at: 1 << 47,
        updated_at: 77,
        received: Some(Received { transport: 3, address: "[2001:db8::9]:49152".parse().unwrap() }),
        flow: Some([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 255]),
        listener: 5,
        node: 1,
        reg_id: 1,
        flags: 0x8000_0001,
    }
}

#[test]
fn a_binding_names_its_listener() {
    let dir = tempfile::tempdir().unwrap();
    let settings = SqliteSettings::new(dir.path().join("s.db"));
    let (table, journal, sink, results) = start_with(&settings, &["udp:192.0.2.1:5060", "tcp:192.0.2.1:5060"]);
    add(&table, sink, 1, Binding { listener: 1, ..full() });
    assert_eq!(wait(&results), (1, Ok(())));
    journal.close();
    let cases: [(&[&str], u16); 3] = [
        (&["tcp:192.0.2.1:5060", "udp:192.0.2.1:5060"], 0),
        (&["udp:192.0.2.1:5060"], NO_LISTENER),
        (&["a", "b", "tcp:192.0.2.1:5060"], 2),
    ];
    for (listeners, now) in cases {
        let (table, journal, ..) = start_with(&settings, listeners);
        let mut seen = None;
        table.lookup(full().aor, 0, &mut |b| seen = Some(b.listener()));
        assert_eq!(seen, Some(now), "{listeners:?}");
        journal.close();
    }
}

#[test]
fn a_binding_comes_back_from_the_file_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let settings = SqliteSettings::new(dir.path().join("s.db"));
    let odd = Binding {
        aor: b"sip:b\xff\x00@x",
        uri: b"sip:b\xfe",
        received: Some(Received { transport: 0, address: "192.0.2.1:1".parse().unwrap() }),
        expires_at: 1000,
        ..Binding::EMPTY
    };
    let (table, journal, sink, results) = start(&settings);
    add(&table, sink, 1, full());
    add(&table, sink, 2, odd);
    assert_eq!((wait(&results), wait(&results)), ((1, Ok(())), (2, Ok(()))));
    journal.close();

    let (table, _journal, ..) = start(&settings);
    for binding in [full(), odd] {
        let mut seen = 0;
        table.lookup(binding.aor, 0, &mut |b| {
            assert_eq!(b.binding(), binding);
            seen += 1;
        });
        assert_eq!(seen, 1);
    }
    let c = Connection::open(&settings.path).unwrap();
    let (uri, kind): (String, String) = c
        .query_row("SELECT uri, typeof(user_agent) FROM binding WHERE id = 1", [], |r| Ok((r.get(0)?, r.get(1)?)))
        .unwrap();
    assert_eq!((uri.as_bytes(), kind.as_str()), (full().uri, "text"), "a person can read it");
}

#[test]
fn a_locked_database_fails_the_group_and_then_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let busy_timeout = Duration::from_millis(50);
    let settings = SqliteSettings { busy_timeout, ..SqliteSettings::new(dir.path().join("s.db")) };
    let (table, _journal, sink, results) = start(&settings);
    let other = Connection::open(&settings.path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    add(&table, sink, 1, full());
    assert_eq!(wait(&results), (1, Err(StoreError::TimedOut)));
    assert!(!table.is_registered(full().aor, 0));
    other.execute_batch("COMMIT").unwrap();
    add(&table, sink, 2, full());
    assert_eq!(wait(&results), (2, Ok(())));
    assert!(table.is_registered(full().aor, 0));
}

#[test]
fn a_second_server_is_kept_off_the_bindings_of_the_first() {
    let dir = tempfile::tempdir().unwrap();
    let busy_timeout = Duration::from_millis(20);
    let settings = SqliteSettings { busy_timeout, ..SqliteSettings::new(dir.path().join("s.db")) };
    let (table, journal, sink, results) = start(&settings);
    add(&table, sink, 1, full());
    assert_eq!(wait(&results), (1, Ok(())));
    // A server that keeps bindings only in memory would delete these rows.
    for durability in [Durability::Crash, Durability::None] {
        let settings = SqliteSettings { durability, ..settings.clone() };
        let other = Arc::new(LocationTable::new(LocationSettings::default()));
        match keep(&settings, &other, JournalSettings::default(), still()) {
            Err(OpenError::InUse { .. }) => {}
            Err(error) => panic!("{error}"),
            Ok(_) => panic!("two servers number the rows of one file"),
        }
    }
    journal.close();
    let (table, ..) = start(&settings);
    assert!(table.is_registered(full().aor, 0));
}

#[test]
fn a_file_that_another_program_overwrites_gets_nothing_more() {
    let dir = tempfile::tempdir().unwrap();
    let settings = SqliteSettings { checkpoint_pages: 2, ..SqliteSettings::new(dir.path().join("s.db")) };
    let (table, journal, sink, results) = start(&settings);
    add(&table, sink, 1, full());
    assert_eq!(wait(&results), (1, Ok(())));
    let garbage = vec![b'x'; 100_000];
    std::fs::write(&settings.path, &garbage).unwrap();
    for n in 2..20u64 {
        let aor = n.to_le_bytes();
        add(&table, sink, n, Binding { aor: &aor, ..full() });
        assert_eq!(wait(&results), (n, Err(StoreError::Corrupt)));
        assert!(!table.is_registered(&aor, 0));
    }
    // Registered users stay in memory.
    assert!(table.is_registered(full().aor, 0));
    journal.close();
    assert!(std::fs::read(&settings.path).unwrap() == garbage, "at the end neither");
    match keep(
        &settings,
        &Arc::new(LocationTable::new(LocationSettings::default())),
        JournalSettings::default(),
        still(),
    ) {
        Err(OpenError::Corrupt { .. }) => {}
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it is no database"),
    }
}

#[test]
fn a_file_at_its_limit_fails_and_goes_on_when_bindings_expire() {
    let dir = tempfile::tempdir().unwrap();
    let settings = SqliteSettings { max_bytes: Some(64 << 10), ..SqliteSettings::new(dir.path().join("s.db")) };
    let (table, _journal, sink, results) = start(&settings);
    let mut n = 0;
    let kept = loop {
        let aor = format!("sip:user{n}@example.com");
        add(&table, sink, n, Binding { aor: aor.as_bytes(), expires_at: 60_000, ..full() });
        match wait(&results) {
            (_, Ok(())) => n += 1,
            (_, Err(error)) => {
                assert_eq!(error, StoreError::Full);
                break n;
            }
        }
        assert!(n < 10_000, "64 KiB cannot hold that");
    };
    assert_eq!(table.gauges().bindings as u64, kept);
    assert_eq!(table.expire(60_000, usize::MAX, &mut |_| {}) as u64, kept);
    // The rows are deleted with the next group.
    let again = (0..100).any(|n| {
        add(&table, sink, 100_000 + n, Binding { aor: &n.to_le_bytes(), ..full() });
        wait(&results).1.is_ok()
    });
    assert!(again, "the writer goes on by itself");
}

#[test]
fn the_log_is_written_back_and_does_not_grow() {
    let dir = tempfile::tempdir().unwrap();
    let settings = SqliteSettings { checkpoint_pages: 50, ..SqliteSettings::new(dir.path().join("s.db")) };
    let (table, _journal, sink, results) = start(&settings);
    let log = dir.path().join("s.db-wal");
    // Each commit writes at least one page; a log that never restarts would have all of these pages.
    let starts_again = (0..20_000u64).any(|n| {
        add(&table, sink, n, Binding { aor: &n.to_le_bytes(), ..full() });
        assert_eq!(wait(&results), (n, Ok(())));
        n > 300 && std::fs::metadata(&log).unwrap().len() < n * u64::from(PAGE) / 2
    });
    assert!(starts_again, "the log has {} bytes", std::fs::metadata(&log).unwrap().len());
    assert!(std::fs::metadata(&settings.path).unwrap().len() > 50_000);
}

#[test]
fn memory_only_leaves_nothing_of_before() {
    let dir = tempfile::tempdir().unwrap();
    let settings = SqliteSettings::new(dir.path().join("s.db"));
    let (table, journal, sink, results) = start(&settings);
    add(&table, sink, 1, full());
    assert_eq!(wait(&results), (1, Ok(())));
    journal.close();

    let table = Arc::new(LocationTable::new(LocationSettings::default()));
    let (again, loaded) = keep(&settings, &table, JournalSettings::default(), still()).unwrap();
    assert_eq!((loaded, again.is_some()), (1, true));
    drop(again);

    let none = SqliteSettings { durability: Durability::None, ..settings.clone() };
    let table = Arc::new(LocationTable::new(LocationSettings::default()));
    let (journal, loaded) = keep(&none, &table, JournalSettings::default(), still()).unwrap();
    assert!(journal.is_none() && loaded == 0);
    let steps = |_: &ExistingBindings<'_>| Ok::<_, ()>(vec![Step::Add(full())]);
    assert_eq!(table.update(b"a", 0, 1, Ticket::NONE, steps), Ok(UpdateStatus::Done));

    let table = Arc::new(LocationTable::new(LocationSettings::default()));
    let (_journal, loaded) = keep(&settings, &table, JournalSettings::default(), still()).unwrap();
    assert_eq!((loaded, table.gauges().bindings), (0, 0));
}
