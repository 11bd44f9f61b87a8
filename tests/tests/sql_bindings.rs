//! Bindings in a database: one conformance test for SQLite, MariaDB and PostgreSQL; and phones during an outage of a
//! database server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use strowger_backend::sql::ServerSettings;
use strowger_backend::sql::bindings::ServerBindings;
use strowger_backend::sql::lease::{self, Claim, Holder, Lease, Purpose};
use strowger_backend::sqlite::{SqliteBindings, SqliteSettings};
use strowger_store::binding::{Binding, BindingId, NO_LISTENER, Received};
use strowger_store::error::StoreError;
use strowger_store::journal::{BindingEngine, Durability, Write};
use strowger_tests::call::{exchange, register};
use strowger_tests::control::metric;
use strowger_tests::database::Database;
use strowger_tests::server::{Server, Setup};
use strowger_tests::stopwatch::{Stopwatch, Took};
use strowger_tests::text::{Request, respond, status};
use strowger_tests::wait;
use strowger_tests::wire::Transport::Udp;
use strowger_tests::wire::Wire;

use super::accounting::fails;
use super::sql_rows::db;

const SOON: Duration = Duration::from_secs(20);

/// Timeout of a commit.
const PATIENCE: Duration = Duration::from_millis(500);

/// Bindings by id: address of record, URI, listener.
type Kept = BTreeMap<u64, (Vec<u8>, Vec<u8>, String)>;

fn full() -> Binding<'static> {
    Binding {
        aor: b"sip:alice@example.com",
        uri: b"sip:alice@192.0.2.1:5070;ob",
        call_id: b"a84b4c76e66710@pc33",
        path: b"<sip:p1@192.0.2.7;lr>,<sip:p2.example.com;lr>",
        instance: b"<urn:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6>",
        user_agent: b"Phone's \\ 1.0",
        cseq: u32::MAX,
        q: Some(700),
        expires_at: 1 << 47,
        updated_at: 77,
        received: Some(Received { transport: 3, address: "[2001:db8::9]:49152".parse().expect("an address") }),
        flow: Some([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 255]),
        listener: NO_LISTENER,
        node: 1,
        reg_id: 1,
        flags: 0x8000_0001,
    }
}

fn commit(engine: &mut impl BindingEngine, writes: &[Write<'_>]) -> Result<(), StoreError> {
    engine.commit(&mut writes.iter().copied())
}

/// Returns the bindings that are valid at this time, and the highest id of node 0.
fn load(engine: &mut impl BindingEngine, now: u64) -> (Kept, u64) {
    let mut kept = Kept::new();
    let ids = BindingId::of_node(0);
    let highest = engine.load(now, ids, &mut |id, binding, listener| {
        kept.insert(id.0, (binding.aor.to_vec(), binding.uri.to_vec(), listener.to_owned()));
    });
    (kept, highest.expect("it can be read"))
}

/// Returns a binding with few fields.
const fn of(aor: &[u8]) -> Binding<'_> {
    Binding { aor, uri: b"later", expires_at: 2_000, ..Binding::EMPTY }
}

/// Tests the rules of every engine. Each call of `open` opens one on the same database, and at most one is open at a
/// time.
fn conforms<E: BindingEngine>(open: impl Fn() -> E) {
    let mut engine = open();
    assert_eq!(load(&mut engine, 0), (Kept::new(), *BindingId::of_node(0).start()));
    let odd = Binding {
        aor: b"sip:b\xff\x00@x",
        uri: b"sip:b\xfe'\\",
        received: Some(Received { transport: 0, address: "192.0.2.1:1".parse().expect("an address") }),
        expires_at: 1_000,
        listener: NO_LISTENER,
        ..Binding::EMPTY
    };
    let (one, two) = (BindingId(1), BindingId(2));
    let both = [Write::Put(one, full(), "udp:192.0.2.1:5060"), Write::Put(two, odd, "")];
    commit(&mut engine, &both).expect("it is written");
    drop(engine);
    let mut engine = open();
    let mut seen = Vec::new();
    let highest = engine.load(0, BindingId::of_node(0), &mut |id, binding, listener| {
        let expected = if id == one { (full(), "udp:192.0.2.1:5060") } else { (odd, "") };
        assert_eq!((*binding, listener), expected);
        seen.push(id);
    });
    assert_eq!((highest, seen.len()), (Ok(2), 2));

    // The last write of a group wins; a row is replaced whole; the deletion of an absent row is no error.
    let plain = of(b"a");
    let group = [
        Write::Put(one, plain, "tcp"),
        Write::Delete(two),
        Write::Put(two, plain, "tls"),
        Write::Put(BindingId(3), plain, "ws"),
        Write::Delete(BindingId(3)),
        Write::Delete(BindingId(99)),
    ];
    commit(&mut engine, &group).expect("it is written");
    let row = |listener: &str| (b"a".to_vec(), b"later".to_vec(), listener.to_owned());
    assert_eq!(load(&mut engine, 0), ([(1, row("tcp")), (2, row("tls"))].into(), 2));
    commit(&mut engine, &[Write::Delete(one)]).expect("it is written");

    // Expired bindings are deleted, and their ids are not reused; bindings of other nodes do not count for the highest
    // id.
    let theirs = BindingId(*BindingId::of_node(7).start() + 5);
    let short = Binding { expires_at: 100, ..plain };
    commit(&mut engine, &[Write::Put(BindingId(9), short, ""), Write::Put(theirs, plain, "")]).expect("it is written");
    assert_eq!(load(&mut engine, 100), ([(2, row("tls")), (theirs.0, row(""))].into(), 9));
    assert_eq!(load(&mut engine, 0).0.len(), 2, "they are gone for good");

    // More than one page and one step of each kind.
    let aors: Vec<String> = (0..5_001).map(|n| format!("sip:user{n}@example.com")).collect();
    let many = aors.iter().zip(1_000..).map(|(aor, id)| Write::Put(BindingId(id), of(aor.as_bytes()), "udp"));
    let many: Vec<Write<'_>> = many.collect();
    commit(&mut engine, &many).expect("it is written");
    let (kept, highest) = load(&mut engine, 0);
    assert_eq!((kept.len(), highest), (5_003, 6_000));
    assert_eq!(kept[&6_000].0, b"sip:user5000@example.com");
    let gone: Vec<Write<'_>> = kept.keys().map(|id| Write::Delete(BindingId(*id))).collect();
    commit(&mut engine, &gone).expect("it is written");
    assert!(load(&mut engine, 0).0.is_empty());
}

fn settings(database: &Database) -> ServerSettings {
    ServerSettings { url: database.url().parse().expect("a URL"), authorities: None }
}

/// Acquires the lease on the bindings. An error names the holder of the lease.
fn lease(settings: &ServerSettings) -> Result<Arc<Lease>, String> {
    let holder = Holder { name: "this test".into(), process: String::new(), has_ended: |_| false };
    let leases =
        lease::acquire(&[(settings.clone(), Purpose::Bindings)], &holder, Claim::IfFree, &AtomicBool::new(false));
    let leases = leases.map_err(|unavailable| unavailable.to_string())?;
    Ok(leases.into_iter().flatten().map(Arc::new).next().expect("not cancelled"))
}

fn try_open(database: &Database, durability: Durability, patience: Duration) -> Result<ServerBindings, String> {
    let settings = settings(database);
    let lease = lease(&settings)?;
    ServerBindings::open(&settings, durability, patience, lease).map_err(|error| error.to_string())
}

fn open(database: &Database, patience: Duration) -> ServerBindings {
    try_open(database, Durability::Crash, patience).expect("the table is there")
}

/// An engine reports a lost connection or a silent server, and recovers by itself.
fn outlasts_its_connection(database: &Database) {
    let mut engine = open(database, PATIENCE);
    load(&mut engine, 0);
    let put = |n: u64| Write::Put(BindingId(n), full(), "");
    commit(&mut engine, &[put(1)]).expect("it is written");
    let refused = lease(&settings(database)).expect_err("one server at a time");
    assert!(refused.contains("another server keeps its registrations"), "{refused}");
    // Closed by an operator: another connection writes the same group.
    database.end_connections();
    commit(&mut engine, &[put(2)]).expect("it is written");
    database.server().freeze();
    let asked = Stopwatch::start();
    assert_eq!(commit(&mut engine, &[put(3)]), Err(StoreError::TimedOut));
    assert!(engine.is_in_doubt() && asked.took().is_below(2 * PATIENCE), "{:?}", asked.took());
    // The next group does not wait for the timeout again.
    let asked = Stopwatch::start();
    assert_eq!(commit(&mut engine, &[put(4)]), Err(StoreError::Unavailable));
    assert!(!engine.is_in_doubt() && asked.took().is_below(PATIENCE), "{:?}", asked.took());
    database.server().thaw();
    // As the journal does: restores the state from before the doubtful write.
    let is_written = wait::until(SOON, || commit(&mut engine, &[Write::Delete(BindingId(3)), put(5)]).is_ok());
    assert!(is_written);
    assert_eq!(load(&mut engine, 0).0.into_keys().collect::<Vec<_>>(), [1, 2, 5]);
    commit(&mut engine, &[1, 2, 5].map(|n| Write::Delete(BindingId(n)))).expect("it is written");
}

fn server(database: &Database) -> Setup {
    Setup::on(&[Udp]).open_registrar().with(&format!(
        "store.bindings = \"{}\"\nstore.database = \"memory\"\nstore.busy_timeout = \"500ms\"\nauth.secret = \"a secret of this test only\"\ncontrol.socket = \"orders\"",
        database.url()
    ))
}

/// Registers; returns the status, and the time that it took.
fn registers(wire: &mut Wire, user: &str) -> (Option<u16>, Took) {
    let contact = format!("sip:{user}@{}", wire.local());
    let request = Request::register(user, "example.org", &contact, "udp", wire.local());
    let asked = Stopwatch::start();
    (status(&exchange(wire, &request)), asked.took())
}

/// During an outage calls to registered phones continue, and a REGISTER gets a 500 in time; then the server recovers by
/// itself.
fn phones_outlast_it(database: &mut Database) {
    let mut own = server(database).prepare();
    let (is_done, said) = db(&own, &["init"]);
    assert!(is_done && said.contains("bindings"), "{said}");
    own.start();
    let [mut caller, mut bob, mut carol] = [(); 3].map(|()| own.connect(Udp));
    register(&mut bob, "bob");
    let rows = |database: &Database| database.execute("SELECT COUNT(*) FROM strowger_binding").trim().to_owned();
    assert_eq!(rows(database), "1");
    let known = |own: &Server, caller: &mut Wire, bob: &mut Wire| {
        fails(caller, bob, 486);
        assert!(!own.log().contains("panicked"), "{}", own.log());
    };
    let mut second = server(database).prepare();
    assert!(!second.try_start().end(SOON).success());
    second.log_with("another server keeps its registrations in this database");

    database.server().freeze();
    let (answer, took) = registers(&mut carol, "carol");
    assert_eq!(answer, Some(500));
    // The deadline, the time of the answer, and a margin for a busy machine.
    assert!(took.is_below(Duration::from_millis(900)), "{took:?}");
    known(&own, &mut caller, &mut bob);
    database.server().thaw();
    assert!(wait::until(SOON, || registers(&mut carol, "carol").0 == Some(200)), "{}", own.log());
    assert_eq!(rows(database), "2");
    own.log_with("bindings are written again");

    database.stop();
    assert_eq!(registers(&mut carol, "carol").0, Some(500));
    known(&own, &mut caller, &mut bob);
    // The start fails when the bindings cannot be read.
    own.kill();
    assert!(!own.try_start().end(SOON).success());
    own.log_with("cannot be reached");
    database.start_again();
    own.start();
    known(&own, &mut caller, &mut bob);
    // Both were loaded from the table.
    assert_eq!(metric(&own, "strowger_bindings"), 2.0);
}

/// The methods that a device allows are part of its binding, and count after a restart too.
fn methods_outlive_a_restart(own: &mut Server) {
    let [mut caller, mut bob, mut carol, mut dave] = [(); 4].map(|()| own.connect(Udp));
    for (wire, user, parameter, header) in [
        (&mut bob, "bob", ";methods=\"INVITE,ACK,BYE\"", None),
        (&mut carol, "carol", "", Some("Allow: INVITE, ACK, CANCEL")),
        (&mut dave, "dave", "", None),
    ] {
        let mut request =
            Request::register(user, "example.org", &format!("sip:{user}@{}", wire.local()), "udp", wire.local());
        let contact = request.headers.iter_mut().find(|line| line.starts_with("Contact:")).expect("it has one");
        contact.push_str(parameter);
        request.headers.extend(header.map(str::to_owned));
        assert_eq!(status(&exchange(wire, &request)), Some(200));
    }
    own.kill();
    own.start();
    let mut asks = |user: &str| {
        let request = Request::new("MESSAGE", &format!("sip:{user}@example.org"), "udp", caller.local());
        status(&exchange(&mut caller, &request))
    };
    assert_eq!([asks("bob"), asks("carol")], [Some(405); 2]);
    // A device without an Allow header field gets requests of every method.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let got = dave.request("MESSAGE", SOON).expect("it arrives");
            dave.send(&respond(&got, 200, "dave", &[])).expect("the server takes messages");
        });
        assert_eq!(asks("dave"), Some(200));
    });
    fails(&mut caller, &mut bob, 486);
}

/// A durability that the server does not provide is refused.
fn promises_what_is_kept(database: &Database) {
    let opened = try_open(database, Durability::PowerLoss, PATIENCE);
    match database {
        // The MariaDB of the tests runs with `innodb_flush_log_at_trx_commit = 2`.
        Database::MariaDb(_) => {
            let refused = opened.err().expect("it is not kept");
            assert!(refused.contains("innodb_flush_log_at_trx_commit = 2, and it has to be 1"), "{refused}");
        }
        Database::PostgreSql(_) => drop(opened.expect("each connection says how it commits")),
    }
}

fn all(mut database: Database) {
    phones_outlast_it(&mut database);
    // These phones have other addresses by now.
    database.execute("DELETE FROM strowger_binding");
    methods_outlive_a_restart(&mut server(&database).with("proxy.method_filter = true").start());
    database.execute("DELETE FROM strowger_binding");
    conforms(|| open(&database, SOON));
    outlasts_its_connection(&database);
    promises_what_is_kept(&database);
}

#[test]
fn bindings_in_mariadb_follow_the_rules() {
    if let Some((database, _folder)) = Database::mariadb() {
        all(database);
    }
}

#[test]
fn bindings_in_postgresql_follow_the_rules() {
    if let Some((database, _certificate, _folder)) = Database::postgresql() {
        all(database);
    }
}

#[test]
fn bindings_in_sqlite_follow_the_rules() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let settings = SqliteSettings::new(folder.path().join("s.db"));
    conforms(|| SqliteBindings::open(&settings).expect("it opens"));
}

#[test]
fn methods_of_a_device_in_sqlite_outlive_a_restart() {
    methods_outlive_a_restart(&mut Setup::on(&[Udp]).open_registrar().with("proxy.method_filter = true").start());
}
