//! Contracts of the store, kept by each technology of a table. A further one is a folder and a line of this table: [`toy`](crate::toy) shows it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use strowger_backend::accounting::{Accounting, Settings};
use strowger_backend::files::accounting::Files;
use strowger_backend::files::calls::{Folder, FolderSettings};
use strowger_backend::files::form::Form;
use strowger_backend::sqlite::accounting::Sqlite as SqliteRows;
use strowger_backend::sqlite::calls::{FileSettings, Sqlite as SqliteCalls};
use strowger_backend::sqlite::{SqliteBindings, SqliteSettings};
use strowger_store::accounting::sink::Sink;
use strowger_store::accounting::{Cdr, Row};
use strowger_store::binding::{Binding, BindingId};
use strowger_store::calls::{self, Change, Left};
use strowger_store::journal::{BindingEngine, Write};

/// Opens the storage in a folder.
type Open<T> = fn(&Path) -> Box<T>;

/// Storage of one technology in a folder: how to open it for each kind of data. None: it has no such data.
pub(crate) struct Technology {
    pub(crate) name: &'static str,
    pub(crate) bindings: Option<Open<dyn BindingEngine>>,
    pub(crate) calls: Option<Open<dyn calls::Engine>>,
    pub(crate) rows: Option<Rows>,
}

/// Sink of accounting rows.
pub(crate) struct Rows {
    pub(crate) open: Open<dyn Sink>,
    /// Counts the rows of a folder without the sink.
    pub(crate) count: fn(&Path) -> usize,
}

/// Technologies that need no server. The tests of `sql` start their database servers.
const TECHNOLOGIES: &[Technology] = &[SQLITE, FILES, crate::toy::TECHNOLOGY];

const PATIENCE: Duration = Duration::from_secs(1);

const SQLITE: Technology = Technology {
    name: "sqlite",
    bindings: Some(|folder| Box::new(SqliteBindings::open(&SqliteSettings::new(folder.join("bindings"))).unwrap())),
    calls: Some(|folder| {
        let settings = FileSettings { path: folder.join("calls"), form: 1, wait: PATIENCE };
        Box::new(SqliteCalls::open(settings).unwrap())
    }),
    rows: Some(Rows {
        open: |folder| Box::new(SqliteRows::new(&folder.join("rows"), PATIENCE)),
        count: |folder| {
            let rows = rusqlite::Connection::open(folder.join("rows")).unwrap();
            rows.query_row("SELECT count(*) FROM cdr", [], |row| row.get::<_, u32>(0)).unwrap() as usize
        },
    }),
};

const FILES: Technology = Technology {
    name: "files",
    bindings: None,
    calls: Some(|folder| Box::new(Folder::open(FolderSettings::new(folder.join("calls"))).unwrap())),
    rows: Some(Rows {
        open: |folder| Box::new(Files::new(&folder.join("rows"), Form::Json)),
        count: |folder| {
            let files = std::fs::read_dir(folder.join("rows")).unwrap().map(|entry| entry.unwrap().path());
            let texts =
                files.filter(|path| path.extension().is_some()).map(|path| std::fs::read_to_string(path).unwrap());
            texts.map(|text| text.lines().count()).sum()
        },
    }),
};

/// Runs a check with each technology that has this kind of data.
fn with_each<T>(of: fn(&Technology) -> Option<&T>, check: impl Fn(&str, &T, &Path)) {
    let mut count = 0;
    for technology in TECHNOLOGIES {
        if let Some(open) = of(technology) {
            let folder = tempfile::tempdir().unwrap();
            check(technology.name, open, folder.path());
            count += 1;
        }
    }
    assert!(count >= 2, "{count}");
}

#[test]
fn committed_bindings_are_loaded_by_the_next_process() {
    with_each(
        |technology| technology.bindings.as_ref(),
        |name, open, folder| {
            let ids = BindingId::of_node(3);
            let id = |n: u64| BindingId(ids.start() + n);
            let binding = |uri: &'static str, expires_at: u64| Binding {
                aor: b"alice@example.org",
                uri: uri.as_bytes(),
                expires_at,
                ..Binding::EMPTY
            };
            let load = |engine: &mut dyn BindingEngine, now: u64| {
                let mut rows = Vec::new();
                let mut take = |id: BindingId, binding: &Binding<'_>, listener: &str| {
                    rows.push((id, String::from_utf8_lossy(binding.uri).into_owned(), listener.to_owned()));
                };
                let highest = engine.load(now, ids.clone(), &mut take).unwrap();
                rows.sort();
                (highest, rows)
            };
            let mut engine = open(folder);
            assert_eq!(load(&mut *engine, 0), (*ids.start(), Vec::new()), "{name}");
            let groups = [
                vec![
                    Write::Put(id(1), binding("sip:1@192.0.2.1", 10_000), "udp"),
                    Write::Put(id(2), binding("sip:2@192.0.2.1", 90_000), "udp"),
                    Write::Put(id(3), binding("sip:3@192.0.2.1", 90_000), "tcp"),
                ],
                vec![
                    Write::Put(id(2), binding("sip:2@192.0.2.2", 95_000), "tcp"),
                    Write::Put(id(4), binding("sip:4@192.0.2.1", 90_000), "udp"),
                    Write::Delete(id(3)),
                ],
                vec![Write::Delete(id(9))],
            ];
            for group in groups {
                engine.commit(&mut group.into_iter()).unwrap();
                engine.settle();
            }
            drop(engine);
            let rows = vec![
                (id(2), "sip:2@192.0.2.2".to_owned(), "tcp".to_owned()),
                (id(4), "sip:4@192.0.2.1".to_owned(), "udp".to_owned()),
            ];
            // The first one has expired.
            for _ in 0..2 {
                assert_eq!(load(&mut *open(folder), 50_000), (id(4).0, rows.clone()), "{name}");
            }
        },
    );
}

#[test]
fn the_last_state_of_each_number_is_loaded_by_the_next_process() {
    with_each(
        |technology| technology.calls.as_ref(),
        |name, open, folder| {
            let load = |engine: &mut dyn calls::Engine| {
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
            let mut engine = open(folder);
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
            assert_eq!(load(&mut *open(folder)), ((2, 1), left), "{name}");
        },
    );
}

#[test]
fn rows_of_accounting_are_written_once() {
    with_each(
        |technology| technology.rows.as_ref(),
        |name, rows, folder| {
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
                let accounting =
                    Accounting::start((rows.open)(folder), Settings::new(folder.join("spool")), clock).unwrap();
                numbers.clone().for_each(|n| accounting.submit(row(n)));
                // Writes the queued rows.
                drop(accounting);
                assert_eq!((rows.count)(folder), numbers.end as usize, "{name}");
            }
        },
    );
}
