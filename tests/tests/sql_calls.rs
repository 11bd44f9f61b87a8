//! Stored calls: one conformance test for a folder, MariaDB and PostgreSQL; and calls during an outage of a database
//! server, and over `kill -9`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use strowger_backend::files::calls::{Folder, FolderSettings};
use strowger_backend::sql::ServerSettings;
use strowger_backend::sql::calls::{CallSettings, ServerCalls};
use strowger_backend::sql::lease::{self, Claim, Holder, Purpose};
use strowger_store::calls::{CallEngine, CallStore, Left, LoadReport, Settings};
use strowger_tests::certificate::Certificate;
use strowger_tests::control::metric;
use strowger_tests::database::Database;
use strowger_tests::server::{Server, Setup};
use strowger_tests::slow_relay::SlowRelay;
use strowger_tests::stopwatch::Stopwatch;
use strowger_tests::wait;
use strowger_tests::wire::Transport::Udp;

use super::kept_dialogs::{Pair, are_written, is_empty, keeps};
use super::sql_rows::db;

const SOON: Duration = Duration::from_secs(20);

/// Timeout of a group.
const PATIENCE: Duration = Duration::from_secs(1);

/// Calls by number: true for a closed call; the bytes.
type Found = BTreeMap<u64, (bool, Vec<u8>)>;

fn settings() -> Settings {
    let ms = Duration::from_millis;
    Settings { interval: ms(1), retry: ms(50), grace: Duration::ZERO, end: ms(200) }
}

fn keep(engine: Box<dyn CallEngine>, settings: Settings) -> (CallStore, Found, LoadReport) {
    let mut found = Found::new();
    let (store, report) = CallStore::open(engine, settings, |number, left| {
        let of = match left {
            Left::State(bytes) => (false, bytes.to_vec()),
            Left::LastWords(bytes) => (true, bytes.to_vec()),
        };
        assert!(found.insert(number, of).is_none(), "{number} twice");
    })
    .expect("it can be read");
    (store, found, report)
}

/// Returns arbitrary bytes of varying length.
fn state(number: u64, version: u64) -> Box<[u8]> {
    let mut bytes = format!("{number} {version} '\\\0").into_bytes();
    bytes.resize(40 + (number % 7) as usize * 30, 0xff);
    bytes.into()
}

fn found(states: impl IntoIterator<Item = (u64, u64)>) -> Found {
    states.into_iter().map(|(number, version)| (number, (false, state(number, version).into()))).collect()
}

#[track_caller]
fn is_written(store: &CallStore, kept: u64) {
    let is_so = wait::until(SOON, || {
        let figures = store.figures();
        figures.pending == 0 && !figures.is_down && figures.kept == kept
    });
    assert!(is_so, "{:?}, and {kept} are to be kept", store.figures());
}

/// Tests the rules of every engine. Each call of `open` opens one on the same place; it fails while another is open.
fn conforms(open: impl Fn() -> Result<Box<dyn CallEngine>, String>) {
    let start = |settings| keep(open().expect("it is free"), settings);
    let long = Settings { grace: Duration::from_secs(600), ..settings() };
    let (store, left, report) = start(long);
    assert_eq!((left, report), (Found::new(), LoadReport::default()));
    // All bits of a number count.
    let number = |n: u64| n << 55 | n;
    (0..300).for_each(|n| store.put(number(n), state(n, 1)));
    (0..300).step_by(3).for_each(|n| store.put(number(n), state(n, 2)));
    (0..300).step_by(5).for_each(|n| store.remove(number(n)));
    store.remove(77);
    store.close(number(1), b"last words"[..].into());
    store.close(number(2), b"other words"[..].into());
    is_written(&store, 240);
    assert!(store.figures().bytes > 240 * 40 && store.figures().written >= 240, "{:?}", store.figures());
    // Another process is refused, and does no harm.
    let refused = open().err().expect("it is in use");
    assert!(refused.contains("another"), "{refused}");
    // The call starts again while its last words are stored.
    store.put(number(2), state(2, 7));
    // Pending changes are written at the end.
    drop(store);
    let version = |n: u64| {
        if n == 2 {
            7
        } else if n.is_multiple_of(3) {
            2
        } else {
            1
        }
    };
    let mut expected: Found =
        (0..300).filter(|n| n % 5 != 0).map(|n| (number(n), (false, state(n, version(n)).into()))).collect();
    expected.insert(number(1), (true, b"last words".into()));
    let (store, left, report) = start(settings());
    assert_eq!((report.states, report.closed, report.damage), (239, 1, vec![]));
    assert!(left == expected, "{} are left", left.len());
    // Last words of the previous process expire too.
    is_written(&store, 239);
    drop(store);
    expected.remove(&number(1));
    let (store, left, _) = start(settings());
    assert!(left == expected, "{} are left", left.len());
    expected.keys().for_each(|number| store.remove(*number));
    is_written(&store, 0);
    // More than a group and a page, and one of the maximum length.
    (0..5_001).for_each(|n| store.put(n, state(n, 1)));
    let longest = vec![0; CallStore::LONGEST];
    store.put(u64::MAX, longest.clone().into());
    store.put(1 << 63, vec![0; CallStore::LONGEST + 1].into());
    is_written(&store, 5_002);
    drop(store);
    let (store, mut left, _) = start(settings());
    assert!(left.remove(&u64::MAX) == Some((false, longest)));
    assert!(left == found((0..5_001).map(|n| (n, 1))), "{} are left", left.len());
    (0..5_001).chain([u64::MAX]).for_each(|number| store.remove(number));
    is_written(&store, 0);
    assert_eq!(store.figures().failures, 0);
    drop(store);
    assert_eq!(start(settings()).1, Found::new());
}

fn open_of(url: &str, node: u16) -> Result<Box<dyn CallEngine>, String> {
    let server = ServerSettings { url: url.parse().expect("a URL"), authorities: None };
    let holder = Holder { name: "this test".into(), process: String::new(), has_ended: |_| false };
    let wanted = [(server.clone(), Purpose::Calls(node))];
    let leases = lease::acquire(&wanted, &holder, Claim::IfFree, &AtomicBool::new(false));
    let leases = leases.map_err(|unavailable| unavailable.to_string())?;
    let lease = leases.into_iter().flatten().map(Arc::new).next().expect("not cancelled");
    let calls = ServerCalls::open(&server, CallSettings { node, form: 1, patience: PATIENCE }, lease);
    calls.map(|calls| Box::new(calls) as _).map_err(|error| error.to_string())
}

/// A frozen, slow or restarted server, or a closed connection, loses no state, and no caller waits for it.
fn outlasts_its_server(database: &mut Database) {
    let relay = SlowRelay::to(database.server().address());
    let own = database.server().address().port().to_string();
    let url = database.url().replace(&own, &relay.address().port().to_string());
    let open = |node| open_of(&url, node).expect("the table is there");
    let (store, ..) = keep(open(0), settings());
    let put = |n: u64, version: u64| store.put(n, state(n, version));
    let is_down = || assert!(wait::until(SOON, || store.figures().is_down), "{:?}", store.figures());
    (0..10).for_each(|n| put(n, 1));
    is_written(&store, 10);

    // Closed by an operator.
    database.end_connections();
    put(0, 2);
    is_written(&store, 10);
    assert_eq!(store.figures().failures, 0);

    database.server().freeze();
    // Both changes are sent, and executed after the thaw: later changes must win.
    put(1, 2);
    put(10, 1);
    is_down();
    let asked = Stopwatch::start();
    (3..1_000).for_each(|version| put(1, version));
    store.remove(10);
    store.remove(2);
    assert!(asked.took().is_below(PATIENCE / 4) && store.figures().pending <= 6, "{:?}", store.figures());
    database.server().thaw();
    is_written(&store, 9);

    relay.slow_down(Duration::from_millis(500));
    let before = store.figures().failures;
    for version in 2..6 {
        (100..150).for_each(|n| put(n, version));
    }
    is_written(&store, 59);
    assert_eq!(store.figures().failures, before);
    relay.slow_down(Duration::ZERO);

    database.stop();
    put(3, 2);
    is_down();
    put(3, 3);
    store.close(4, b"words"[..].into());
    database.start_again();
    // Last words are deleted as soon as they are written, as their grace time is zero.
    is_written(&store, 58);

    // Another node has its own calls.
    let (other, left, _) = keep(open(1), settings());
    assert_eq!(left, Found::new());
    other.put(3, state(3, 9));
    drop(other);

    // The shutdown does not wait for a silent server.
    database.server().freeze();
    put(5, 2);
    let asked = Stopwatch::start();
    drop(store);
    assert!(asked.took().is_below(3 * PATIENCE), "{:?}", asked.took());
    database.server().thaw();

    let mut expected = found([(0, 2), (1, 999), (3, 3), (5, 1)]);
    expected.extend(found((6..10).map(|n| (n, 1)).chain((100..150).map(|n| (n, 5)))));
    let mut left = keep(open(0), settings()).1;
    // The server may have executed the last change after the thaw.
    left.insert(5, (false, state(5, 1).into()));
    assert_eq!(left, expected);
    assert_eq!(keep(open(1), settings()).1, found([(3, 9)]));
    database.execute("DELETE FROM strowger_call");
}

fn server(database: &Database) -> Setup {
    server_at(&database.url())
}

fn server_at(url: &str) -> Setup {
    Setup::on(&[Udp]).open_registrar().with(&format!(
        "dialogs.database = \"{url}\"\nstore.busy_timeout = \"500ms\"\naccounting.cdr = true\n\
         accounting.path = \"rows\"\naccounting.spool = \"rows.spool\"\naccounting.group_interval = \"10ms\"\n"
    ))
}

/// Waits until all changes are in the table.
#[track_caller]
fn has_written(server: &Server) {
    let names = ["strowger_kept_calls_pending", "strowger_kept_calls_down"];
    let is_so = wait::until(SOON, || names.iter().all(|name| metric(server, name) == 0.0));
    assert!(is_so, "{}", server.log());
}

/// Calls survive a kill and an outage of the database, and each has one record with its true duration.
fn calls_outlast_it(database: &mut Database) {
    let mut own = server(database).prepare();
    assert!(!own.try_start().end(SOON).success());
    own.log_with("strowger db init");
    let (is_done, said) = db(&own, &["init"]);
    assert!(is_done && said.contains("calls"), "{said}");
    own.start();
    let mut pair = Pair::new(&own, "bob");
    pair.call(30);
    keeps(&own, 30);
    let mut second = server(database).prepare();
    assert!(!second.try_start().end(SOON).success());
    second.log_with("`dialogs.database`");
    second.log_with("another server with server.node = 0 keeps its calls in this database");
    let second = server(database).with("server.node = 1").start();
    assert_eq!(metric(&second, "strowger_calls_tracked"), 0.0);
    drop(second);

    own.kill();
    own.start();
    own.log_with("calls=30");
    assert_eq!(metric(&own, "strowger_dialogs_confirmed"), 30.0);
    let mut times = pair.end(10);
    has_written(&own);

    database.server().freeze();
    let asked = Stopwatch::start();
    pair.call(5);
    times.extend(pair.end(5));
    // A blocked shard would wait for at least the timeout of a group.
    assert!(asked.took().is_below(Duration::from_millis(450)), "{:?}", asked.took());
    assert!(wait::until(SOON, || metric(&own, "strowger_kept_calls_down") == 1.0), "{}", own.log());
    assert!(metric(&own, "strowger_kept_calls_pending") >= 10.0);
    own.log_with("state not kept: it waits in memory");
    database.server().thaw();
    has_written(&own);
    own.log_with("state is kept again");

    database.stop();
    pair.call(5);
    times.extend(pair.end(5));
    assert!(wait::until(SOON, || metric(&own, "strowger_kept_calls_down") == 1.0), "{}", own.log());
    database.start_again();
    has_written(&own);
    // Some calls end with last words, which the next process reads.
    own.kill();
    own.start();
    assert_eq!(metric(&own, "strowger_calls_tracked"), 20.0);

    // A shutdown writes pending changes.
    pair.call(3);
    times.extend(pair.end(3));
    own.stop();
    own.start();
    assert_eq!(metric(&own, "strowger_calls_tracked"), 20.0);
    times.extend(pair.end(20));
    are_written(&own, &times);
    is_empty(&own);
    assert_eq!(database.execute("SELECT COUNT(*) FROM strowger_call").trim(), "0");
    own.stop();
}

/// Unreadable calls are an error of the start.
fn is_missed_at_the_start(database: &mut Database) {
    let mut own = server(database).prepare();
    database.stop();
    assert!(!own.try_start().end(SOON).success());
    own.log_with("`dialogs.database`");
    own.log_with("cannot be reached");
}

/// Data goes to a server over TLS, and only to one with a valid certificate.
fn is_protected(database: &Database, certificate: &Certificate) {
    let server = |certificate: &Certificate| {
        let url = format!("{}?tls=required&ca={}", database.url(), certificate.authority.display());
        server_at(&url).with("server.node = 2")
    };
    let own = server(certificate).start();
    let select = "SELECT COUNT(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE ssl AND application_name = 'strowger'";
    assert_eq!(database.execute(select).trim(), "2", "one for calls, one for their lease");
    drop(own);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut own = server(&Certificate::in_folder(folder.path(), &["db.example"])).prepare();
    assert!(!own.try_start().end(SOON).success());
    own.log_with("certificate");
}

fn all(database: &mut Database) {
    calls_outlast_it(database);
    conforms(|| open_of(&database.url(), 7));
    outlasts_its_server(database);
}

#[test]
fn calls_kept_in_mariadb_outlive_kills_and_its_outages() {
    if let Some((mut database, _folder)) = Database::mariadb() {
        all(&mut database);
        is_missed_at_the_start(&mut database);
    }
}

#[test]
fn calls_kept_in_postgresql_outlive_kills_and_its_outages() {
    if let Some((mut database, certificate, _folder)) = Database::postgresql() {
        all(&mut database);
        is_protected(&database, &certificate);
        is_missed_at_the_start(&mut database);
    }
}

#[test]
fn calls_kept_in_a_folder_follow_the_rules() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    conforms(|| {
        let settings = FolderSettings { wait: Duration::ZERO, ..FolderSettings::new(folder.path()) };
        Folder::open(settings).map(|folder| Box::new(folder) as _).map_err(|error| error.to_string())
    });
}
