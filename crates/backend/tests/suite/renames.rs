//! A domain becomes an alias of another domain: its bindings are found under the other name, now and after a restart.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use strowger_backend::sqlite::{SqliteBindings, SqliteSettings};
use strowger_store::binding::Binding;
use strowger_store::clock::{Clock, Moment};
use strowger_store::journal::{Journal, JournalSettings};
use strowger_store::location::{LocationSettings, LocationTable, Renamed, Step};
use strowger_store::ticket::Ticket;

const USERS: usize = 3_000;

fn start(file: &Path) -> (Arc<LocationTable>, Journal) {
    let table = Arc::new(LocationTable::new(LocationSettings::default()));
    let engine = SqliteBindings::open(&SqliteSettings::new(file)).unwrap();
    let clock: Clock = Arc::new(|| Moment { mono: 0, wall: 0 });
    // The queue is shorter than half of the users.
    let settings = JournalSettings { queue: 1_000, ..JournalSettings::default() };
    let (journal, _) = Journal::start(engine, &table, settings, clock).unwrap();
    (table, journal)
}

fn add(table: &LocationTable, aor: &str, uri: &str) {
    let binding = Binding { uri: uri.as_bytes(), expires_at: 9_000, ..Binding::EMPTY };
    let add = || table.update::<()>(aor.as_bytes(), 0, 10, Ticket::NONE, |_| Ok(vec![Step::Add(binding)]));
    while add().is_err() {
        std::thread::yield_now();
    }
}

fn uris(table: &LocationTable, aor: &str) -> Vec<String> {
    let mut uris = Vec::new();
    table.lookup(aor.as_bytes(), 0, &mut |binding| uris.push(String::from_utf8_lossy(binding.uri()).into_owned()));
    uris.sort();
    uris
}

#[test]
fn bindings_follow_the_name_of_their_domain() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bindings.db");
    let (table, journal) = start(&file);
    for n in 0..USERS {
        add(&table, &format!("{n}@b.example"), "one");
    }
    add(&table, "7@a.example", "two");
    let refused = journal.gauges().refused;
    let canonical = |aor: &[u8]| Some([aor.strip_suffix(b"b.example")?, b"a.example"].concat());
    let end = Instant::now() + Duration::from_secs(60);
    assert_eq!(table.rename_all(&canonical, end), Renamed { bindings: USERS, left: 0 });
    let check = |table: &LocationTable| {
        assert_eq!(uris(table, "7@a.example"), ["one", "two"]);
        assert!((0..USERS).all(|n| uris(table, &format!("{n}@a.example")).contains(&"one".to_owned())));
        assert!((0..USERS).all(|n| uris(table, &format!("{n}@b.example")).is_empty()));
    };
    check(&table);
    assert_eq!(journal.gauges().refused, refused, "half of the queue is for others");
    journal.close();
    let (table, journal) = start(&file);
    check(&table);
    journal.close();
}
