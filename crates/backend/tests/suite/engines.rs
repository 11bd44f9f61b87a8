//! Contracts of the store, kept by each technology of the table, and by a further one: the [`toy`](crate::toy) is a folder and a row.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use strowger_backend::accounting::{Accounting, Settings};
use strowger_backend::technology::{DataPlace, PlaceKind, TECHNOLOGIES, Technology};
use strowger_store::accounting::{Cdr, Row};
use strowger_store::binding::Binding;
use strowger_store::calls::{self, Change, Left};
use strowger_store::clock::{Clock, Moment};
use strowger_store::journal::JournalSettings;
use strowger_store::location::{LocationSettings, LocationTable, Step};
use strowger_store::ticket::Ticket;

/// Runs a check with each technology that has this kind of data and needs no server, each in a place of its own. The
/// tests of `sql` start their database servers.
fn with_each<T>(kind: fn(&Technology) -> Option<T>, check: impl Fn(&str, T, &DataPlace)) {
    let mut count = 0;
    for technology in TECHNOLOGIES.iter().chain([&crate::toy::TECHNOLOGY]) {
        if let Some(open) = kind(technology).filter(|_| technology.place != PlaceKind::Server) {
            let folder = tempfile::tempdir().unwrap();
            check(technology.name, open, &DataPlace { form: 1, ..DataPlace::new(folder.path().join("data")) });
            count += 1;
        }
    }
    assert!(count >= 2, "{count}");
}

/// Counts the rows of accounting at a place without its engine.
fn count_rows(technology: &str, path: &Path) -> usize {
    match technology {
        "sqlite" => {
            let rows = rusqlite::Connection::open(path).unwrap();
            rows.query_row("SELECT count(*) FROM cdr", [], |row| row.get::<_, u32>(0)).unwrap() as usize
        }
        "json" | "csv" => {
            let files = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
            let texts =
                files.filter(|path| path.extension().is_some()).map(|path| std::fs::read_to_string(path).unwrap());
            let titles = usize::from(technology == "csv");
            texts.map(|text| text.lines().count() - titles).sum()
        }
        "toy" => crate::toy::count_rows(path),
        other => panic!("how are the rows of {other} counted?"),
    }
}

#[test]
fn committed_bindings_are_loaded_by_the_next_process() {
    const AOR: &[u8] = b"alice@example.org";
    with_each(
        |technology| technology.bindings,
        |name, keep, place| {
            let start = |wall: u64| {
                let table = Arc::new(LocationTable::new(LocationSettings::default()));
                let clock: Clock = Arc::new(move || Moment { mono: wall, wall });
                let listeners = vec!["udp".into(), "tcp".into()];
                let settings = JournalSettings { listeners, ..JournalSettings::default() };
                let (journal, loaded) = keep(place, &table, settings, clock).unwrap();
                (table, journal.expect("a writer"), loaded)
            };
            let binding = |uri: &'static str, expires_at: u64, listener: u16| Binding {
                uri: uri.as_bytes(),
                expires_at,
                listener,
                ..Binding::EMPTY
            };
            let rows = |table: &LocationTable, now: u64| {
                let mut rows = Vec::new();
                table.lookup(AOR, now, &mut |row| {
                    rows.push((String::from_utf8_lossy(row.uri()).into_owned(), row.expires_at(), row.listener()));
                });
                rows.sort();
                rows
            };
            let add = |table: &LocationTable, now: u64, new: Binding<'_>| {
                table.update::<()>(AOR, now, 10, Ticket::NONE, |_| Ok(vec![Step::Add(new)])).unwrap();
            };
            let (table, journal, loaded) = start(0);
            assert_eq!(loaded, 0, "{name}");
            add(&table, 0, binding("sip:1@192.0.2.1", 10_000, 0));
            add(&table, 0, binding("sip:2@192.0.2.1", 90_000, 0));
            add(&table, 0, binding("sip:3@192.0.2.1", 90_000, 1));
            let change = table.update::<()>(AOR, 0, 10, Ticket::NONE, |current| {
                let steps = current.iter().filter_map(|row| match row.uri() {
                    b"sip:2@192.0.2.1" => Some(Step::Replace(row.id(), binding("sip:2@192.0.2.2", 95_000, 1))),
                    b"sip:3@192.0.2.1" => Some(Step::Remove(row.id())),
                    _ => None,
                });
                Ok(steps.collect())
            });
            change.unwrap();
            journal.close();
            let mut left = vec![("sip:2@192.0.2.2".to_owned(), 95_000, 1)];
            // The first binding has expired. Each process adds one binding, whose id no earlier process has used.
            for uri in ["sip:4@192.0.2.1", "sip:5@192.0.2.1"] {
                let (table, journal, loaded) = start(50_000);
                assert_eq!((loaded, rows(&table, 50_000)), (left.len(), left.clone()), "{name}");
                add(&table, 50_000, binding(uri, 90_000, 0));
                left.push((uri.to_owned(), 90_000, 0));
                journal.close();
            }
            let (table, journal, _) = start(50_000);
            assert_eq!(rows(&table, 50_000), left, "{name}");
            journal.close();
        },
    );
}

#[test]
fn the_last_state_of_each_number_is_loaded_by_the_next_process() {
    with_each(
        |technology| technology.calls,
        |name, open, place| {
            let load = |engine: &mut dyn calls::CallEngine| {
                let mut left = BTreeMap::new();
                let mut take = |number: u64, state: Left<'_>| {
                    let state = match state {
                        Left::State(bytes) => (false, bytes.to_vec()),
                        Left::LastWords(bytes) => (true, bytes.to_vec()),
                    };
                    assert!(left.insert(number, state).is_none(), "{name}");
                };
                let report = engine.load(&mut take).unwrap();
                assert!(report.damage.is_empty(), "{name}: {report:?}");
                ((report.states, report.closed), left)
            };
            let state = |text: &str| Change::State(text.as_bytes().into());
            let mut engine = open(place).unwrap();
            assert_eq!(load(&mut *engine), ((0, 0), BTreeMap::new()), "{name}");
            let long = "x".repeat(100_000);
            for group in [
                vec![(1, state("one")), (2, state("two")), (3, state("three"))],
                vec![(1, state(&long)), (2, Change::Closed(b"bye"[..].into())), (u64::MAX, state("last"))],
                vec![(3, Change::Removed), (7, Change::Removed)],
            ] {
                let group: Vec<(u64, &Change)> = group.iter().map(|(number, change)| (*number, change)).collect();
                engine.write(&group).unwrap();
                while engine.tidy(1 << 20).unwrap() {}
            }
            assert_eq!(engine.held().kept, 3, "{name}");
            drop(engine);
            let left = BTreeMap::from([
                (1, (false, long.into_bytes())),
                (2, (true, b"bye".to_vec())),
                (u64::MAX, (false, b"last".to_vec())),
            ]);
            assert_eq!(load(&mut *open(place).unwrap()), ((2, 1), left), "{name}");
        },
    );
}

#[test]
fn rows_of_accounting_are_written_once() {
    with_each(
        |technology| technology.accounting,
        |name, open, place| {
            let row = |n: u64| {
                let identity = format!("{n:032x}");
                Box::new(Row::Cdr(Cdr {
                    identity,
                    setup: 1_700_000_000_000,
                    outcome: "missed".into(),
                    ..Cdr::default()
                }))
            };
            for numbers in [0..100, 100..150] {
                let clock = Arc::new(|| 1_700_000_000_000);
                let spool = place.path.with_extension("spool");
                let accounting = Accounting::start(open(place).unwrap(), Settings::new(spool), clock).unwrap();
                numbers.clone().for_each(|n| accounting.submit(row(n)));
                // Writes the queued rows.
                drop(accounting);
                assert_eq!(count_rows(name, &place.path), numbers.end as usize, "{name}");
            }
        },
    );
}
