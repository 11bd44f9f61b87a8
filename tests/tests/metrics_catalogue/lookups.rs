//! Look-ups of subscribers and of names, also at a database or name server that does not answer.

use super::{SOON, Stage, ask, code, send};
use std::net::Ipv4Addr;
use std::time::Duration;

use rusqlite::Connection;
use strowger_tests::account::authorized;
use strowger_tests::frozen_database::FrozenDatabase;
use strowger_tests::meter;
use strowger_tests::meter::Shows::{Above, At, By};
use strowger_tests::name_server::{A, NAPTR, NameServer, Record, SRV};
use strowger_tests::server::Setup;
use strowger_tests::text::{Request, respond, status, unique};
use strowger_tests::wait;
use strowger_tests::wire::Transport::{Tcp, Udp};
use strowger_tests::wire::{Wire, accept, listen};

pub(super) const SCENES: &[(&str, fn())] = &[
    ("changed subscribers", changed_subscribers),
    ("a failing database", failing_database),
    ("a silent database", silent_database),
    ("many look-ups", many),
    ("names", names),
    ("names in use", names_in_use),
    ("next hops that fail", next_hops),
    ("a large request to a peer without TCP", udp_only_peers),
];

fn start(lines: &str, users: &[&str]) -> Stage {
    Stage::with_users(Setup::on(&[Udp]).with("domains = [\"example.org\"]").with(lines), users)
}

fn register(wire: &Wire, user: &str) -> Request {
    let contact = format!("sip:{user}@{}", wire.local());
    Request::register(user, "example.org", &contact, "udp", wire.local())
}

/// Returns a REGISTER with the user's name as password, for an earlier challenge.
fn signed(wire: &Wire, user: &str, challenge: &[u8]) -> Request {
    authorized(&register(wire, user), challenge, user, user)
}

fn challenge(wire: &mut Wire) -> Vec<u8> {
    let request = register(wire, "nobody");
    ask(wire, &request)
}

/// Registers with a fresh nonce.
fn registers(wire: &mut Wire, user: &str) -> u16 {
    let challenge = challenge(wire);
    let request = signed(wire, user, &challenge);
    code(wire, &request)
}

/// Opens the database of the server as another program.
fn open(stage: &Stage) -> Connection {
    let other = Connection::open(stage.server.folder().join("test.sqlite")).expect("the database is there");
    other.busy_timeout(SOON).expect("it can be set");
    other
}

fn changed_subscribers() {
    let mut stage = start("", &["alice", "bob"]);
    let mut phone = stage.server.connect(Udp);
    stage.shows(&[("lookups_cached", At(0)), ("lookups_bound", At(10_000)), ("lookup_connections", At(1))]);
    for user in ["alice", "bob"] {
        assert_eq!(registers(&mut phone, user), 200);
    }
    stage.shows(&[
        ("lookups_cached", At(2)),
        ("lookup_misses_total", By(2)),
        ("lookup_hits_total", By(0)),
        ("requests_suspended_total", By(2)),
        ("subscriber_lookup_seconds_count", By(2)),
        ("challenges_total", By(2)),
    ]);
    assert_eq!(registers(&mut phone, "dave"), 401);
    stage.shows(&[
        ("lookups_cached_absent", At(1)),
        ("lookup_misses_total", By(1)),
        ("requests_suspended_total", By(1)),
        ("subscriber_lookup_seconds_count", By(1)),
        ("failed_authentications_total", By(1)),
        ("challenges_total", By(2)),
    ]);
    stage.server.add_user("dave@example.org", "dave");
    stage.shows(&[("lookups_cached_absent", At(0)), ("lookups_voided_total", By(1))]);
    // One user is changed, in three algorithms; another one, whom no request named before, is added.
    stage.server.set_password("alice@example.org", "another");
    stage.server.add_user("carol@example.org", "carol");
    stage.shows(&[("lookups_voided_total", By(1)), ("lookups_cached", At(1))]);
    assert_eq!(registers(&mut phone, "bob"), 200);
    stage.shows(&[("lookup_hits_total", By(1)), ("lookup_misses_total", By(0)), ("challenges_total", By(1))]);
    // The change log is reset: no cached answer counts as fresh.
    open(&stage)
        .execute("UPDATE sqlite_sequence SET seq = 0 WHERE name = 'subscriber_change'", [])
        .expect("it is written");
    stage.shows(&[("lookups_doubted_total", By(1)), ("lookups_cached", At(1))]);
    assert_eq!(registers(&mut phone, "bob"), 200);
    stage.shows(&[
        ("lookup_hits_total", By(0)),
        ("lookup_misses_total", By(1)),
        ("requests_suspended_total", By(1)),
        ("subscriber_lookup_seconds_count", By(1)),
        ("challenges_total", By(1)),
    ]);
    stage.end();
}

fn failing_database() {
    let mut stage = start("", &["alice", "bob"]);
    let mut phone = stage.server.connect(Udp);
    let other = open(&stage);
    other.execute_batch("ALTER TABLE credential RENAME TO aside").expect("it can be renamed");
    assert_eq!(registers(&mut phone, "alice"), 500);
    stage.shows(&[
        ("lookup_batches_failed_total", By(1)),
        ("failed_lookups_total", By(1)),
        ("lookup_misses_total", By(1)),
        ("requests_suspended_total", By(1)),
        ("subscriber_lookup_seconds_count", By(1)),
        ("challenges_total", By(1)),
        ("lookups_cached", At(0)),
    ]);
    // A call to an unregistered user asks the database whether the user exists.
    let call = Request::new("OPTIONS", "sip:bob@example.org", "udp", phone.local());
    assert_eq!(code(&mut phone, &call), 480);
    stage.shows(&[
        ("requests_not_found_total", By(1)),
        ("requests_suspended_total", By(1)),
        ("subscriber_lookup_seconds_count", By(1)),
        ("lookups_cached", At(1)),
    ]);
    other.execute_batch("ALTER TABLE aside RENAME TO credential").expect("it can be renamed");
    other.execute_batch("ALTER TABLE subscriber RENAME TO aside").expect("it can be renamed");
    let call = Request::new("OPTIONS", "sip:alice@example.org", "udp", phone.local());
    assert_eq!(code(&mut phone, &call), 500);
    stage.shows(&[
        ("lookup_batches_failed_total", By(1)),
        ("failed_lookups_total", By(1)),
        ("requests_not_found_total", By(0)),
        ("requests_suspended_total", By(1)),
        ("subscriber_lookup_seconds_count", By(1)),
    ]);
    stage.end();
}

/// Deadlines are three seconds: each check of the state before a deadline ends before it.
fn silent_database() {
    let lines = "store.cache_lifetime = \"0s\"\nstore.lookup_timeout = \"3s\"\nstore.lookup_connections = 1\nregistrar.durability = \"none\"";
    let mut stage = start(lines, &["known", "dave"]);
    let mut phone = stage.server.connect(Udp);
    assert_eq!(registers(&mut phone, "known"), 200);
    let nonces: Vec<Vec<u8>> = (0..10).map(|_| challenge(&mut phone)).collect();
    let mut nonces = nonces.iter();
    let mut signed = |wire: &Wire, user: &str| signed(wire, user, nonces.next().expect("there are enough"));
    stage.shows(&[
        ("lookup_misses_total", By(1)),
        ("requests_suspended_total", By(1)),
        ("subscriber_lookup_seconds_count", By(1)),
        ("challenges_total", By(11)),
        ("lookups_silent", At(0)),
        ("lookups_in_flight", At(0)),
    ]);

    let frozen = FrozenDatabase::of(&stage.server);
    // The first request waits for the whole timeout of the database.
    let request = signed(&phone, "known");
    assert_eq!(code(&mut phone, &request), 200);
    stage.shows(&[
        ("lookups_stale_total", By(1)),
        ("lookup_misses_total", By(1)),
        ("requests_suspended_total", By(1)),
        ("subscriber_lookup_seconds_count", By(1)),
        ("lookups_in_flight", At(1)),
    ]);
    let request = signed(&phone, "known");
    assert_eq!(code(&mut phone, &request), 200);
    stage.shows(&[("lookups_stale_total", By(1)), ("lookup_misses_total", By(0)), ("lookup_hits_total", By(0))]);
    // Two requests ask for one user.
    for _ in 0..2 {
        let request = signed(&phone, "carol");
        send(&mut phone, &request);
    }
    stage.shows(&[
        ("lookups_in_flight", At(2)),
        ("requests_waiting", At(2)),
        ("lookups_merged_total", By(1)),
        ("lookup_misses_total", By(2)),
        ("requests_suspended_total", By(2)),
        ("lookups_late_total", By(0)),
    ]);
    for _ in 0..2 {
        assert_eq!(phone.final_response(SOON).as_deref().and_then(status), Some(500));
    }
    stage.shows(&[
        ("lookups_in_flight", At(0)),
        ("requests_waiting", At(0)),
        ("lookups_late_total", By(2)),
        ("failed_lookups_total", By(2)),
        ("subscriber_lookup_seconds_count", By(2)),
        ("lookups_silent", At(0)),
    ]);
    // With these, five queries in a row had no answer.
    for user in ["erin", "frank", "grace"] {
        let request = signed(&phone, user);
        send(&mut phone, &request);
    }
    for _ in 0..3 {
        assert_eq!(phone.final_response(SOON).as_deref().and_then(status), Some(500));
    }
    stage.shows(&[
        ("lookups_silent", At(1)),
        ("lookups_late_total", By(3)),
        ("failed_lookups_total", By(3)),
        ("lookup_misses_total", By(3)),
        ("requests_suspended_total", By(3)),
        ("subscriber_lookup_seconds_count", By(3)),
        ("lookups_failed_at_once_total", By(0)),
    ]);
    let request = signed(&phone, "dave");
    assert_eq!(code(&mut phone, &request), 500);
    stage.shows(&[
        ("lookups_failed_at_once_total", By(1)),
        ("failed_lookups_total", By(1)),
        ("lookup_misses_total", By(0)),
        ("requests_suspended_total", By(0)),
    ]);
    drop(frozen);
    stage.shows(&[("lookups_silent", At(0)), ("lookups_in_flight", At(0)), ("lookup_batches_failed_total", By(0))]);
    let request = signed(&phone, "dave");
    assert_eq!(code(&mut phone, &request), 200);
    stage.shows(&[
        ("lookup_misses_total", By(1)),
        ("requests_suspended_total", By(1)),
        ("subscriber_lookup_seconds_count", By(1)),
    ]);
    stage.end();
}

/// Returns the number of voluntary context switches of the threads with this name.
fn sleeps(process: u32, name: &str) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).expect("the process lives").flatten();
    let of = |task: std::path::PathBuf| {
        let comm = std::fs::read_to_string(task.join("comm")).ok()?;
        let status = std::fs::read_to_string(task.join("status")).ok().filter(|_| comm.trim() == name)?;
        let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        count.trim().parse::<u64>().ok()
    };
    tasks.filter_map(|task| of(task.path())).sum()
}

fn many() {
    const QUEUE: u64 = 16;
    let mut stage = start("store.lookup_timeout = \"60s\"", &[]);
    let mut phone = stage.server.connect(Udp);
    let challenge = challenge(&mut phone);
    stage.shows(&[("lookups_bound", At(10_000)), ("lookup_connections", At(1)), ("challenges_total", By(1))]);
    let frozen = FrozenDatabase::of(&stage.server);
    let process = stage.server.process().id();
    let before = sleeps(process, "subscriber-read");
    // The questions are asked one by one, because together they would be one batch on one connection.
    for n in 1..=QUEUE {
        let request = signed(&phone, &format!("user{n}"), &challenge);
        send(&mut phone, &request);
        // The first query waits at the database.
        assert!(wait::until(SOON, || sleeps(process, "subscriber-read") > before));
        stage.shows(&[("lookups_in_flight", At(n)), ("requests_waiting", At(n)), ("requests_suspended_total", By(1))]);
    }
    stage.shows(&[("lookup_connections", Above(1.0))]);
    drop(frozen);
    for _ in 0..QUEUE {
        assert_eq!(phone.final_response(SOON).as_deref().and_then(status), Some(401));
    }
    stage.shows(&[
        ("lookups_in_flight", At(0)),
        ("requests_waiting", At(0)),
        ("subscriber_lookup_seconds_count", By(QUEUE)),
        ("failed_authentications_total", By(QUEUE)),
        ("challenges_total", By(QUEUE)),
        ("lookups_cached", At(QUEUE)),
    ]);
    stage.end();
}

/// Messages of one call wait behind the one whose name is being resolved.
fn names() {
    let silent = || [A, SRV, NAPTR].map(Record::Silent);
    let hosts = ["slow.test", "_sip._udp.slow.test", "_sip._tcp.slow.test", "_sips._tcp.slow.test"];
    let records: Vec<(&str, Record)> = hosts.iter().flat_map(|host| silent().map(|record| (*host, record))).collect();
    let Some(servers) = NameServer::start(&records) else {
        return meter::leave_out(&["messages_held_dropped_total", "name_lookup_seconds"]);
    };
    const HELD: u64 = 32;
    let lines = "dns.timeout = \"500ms\"";
    let mut stage = Stage::start(Setup::on(&[Udp]).relay().with(&servers.line()).with(lines));
    let mut caller = stage.server.connect(Udp);
    let first = Request::new("MESSAGE", "sip:x@slow.test", "udp", caller.local());
    let more = |cseq| Request { cseq, branch: unique("z9hG4bK"), ..first.clone() };
    send(&mut caller, &first);
    for n in 0..HELD as u32 + 2 {
        send(&mut caller, &more(n + 2));
    }
    stage.shows(&[
        ("requests_waiting", At(1)),
        ("requests_suspended_total", By(1)),
        ("messages_held_dropped_total", By(2)),
        ("requests_total", By(HELD + 3)),
        ("name_lookup_seconds_count", By(0)),
    ]);
    // The other names are resolved after the first, one after the other.
    for _ in 0..=HELD {
        assert_eq!(caller.final_response(SOON).as_deref().and_then(status), Some(500));
    }
    stage.shows(&[
        ("requests_waiting", At(0)),
        ("name_lookup_seconds_count", By(HELD + 1)),
        ("name_lookup_seconds_sum", Above(0.1)),
        ("requests_suspended_total", By(HELD)),
        ("requests_total", By(0)),
        ("requests_not_found_total", By(HELD + 1)),
    ]);
    stage.end();
}

/// A name that is used shortly before and after its answer expires; its name server is silent by then.
fn names_in_use() {
    let hosts = [("host.test", Record::A(Ipv4Addr::LOCALHOST))];
    let Some(servers) = NameServer::start(&hosts) else {
        return meter::leave_out(&["names_asked_ahead_total", "names_known", "names_stale_total"]);
    };
    servers.set_lifetime(1);
    let lines = "dns.timeout = \"150ms\"\ndns.set_aside = \"0s\"";
    let mut stage = Stage::start(Setup::on(&[Udp]).relay().with(&servers.line()).with(lines));
    stage.shows(&[("names_known", At(0))]);
    let (mut caller, mut host) = (stage.server.connect(Udp), stage.server.connect(Udp));
    let uri = format!("sip:x@host.test:{};transport=udp", host.local().port());
    let mut reaches = || {
        let request = Request::new("MESSAGE", &uri, "udp", caller.local());
        send(&mut caller, &request);
        let got = host.request("MESSAGE", SOON).expect("it comes");
        host.send(&respond(&got, 200, "h", &[])).expect("loopback takes it");
        assert_eq!(caller.final_response(SOON).as_deref().and_then(status), Some(200));
    };
    reaches();
    stage.shows(&[
        ("requests_suspended_total", By(1)),
        ("name_lookup_seconds_count", By(1)),
        ("names_asked_ahead_total", By(0)),
        ("names_known", At(1)),
        ("names_stale_total", By(0)),
    ]);
    servers.freeze(true);
    // The answer has expired: one request waits, and gets the stale answer.
    std::thread::sleep(Duration::from_millis(1_200));
    reaches();
    stage.shows(&[
        ("requests_suspended_total", By(1)),
        ("name_lookup_seconds_count", By(1)),
        ("name_lookup_seconds_sum", Above(0.2)),
        ("names_asked_ahead_total", By(0)),
        ("names_stale_total", By(1)),
    ]);
    servers.freeze(false);
    // The server asks a failed name server again after five seconds.
    std::thread::sleep(Duration::from_millis(5_200));
    reaches();
    stage.shows(&[
        ("requests_suspended_total", By(1)),
        ("name_lookup_seconds_count", By(1)),
        ("names_asked_ahead_total", By(1)),
        ("names_stale_total", By(1)),
    ]);
    stage.end();
}

fn next_hops() {
    // A transaction without an answer ends after 640 ms; over streams nothing is retransmitted.
    let lines = "timers.t1 = \"10ms\"\ndns.set_aside = \"1s\"";
    let mut stage = Stage::start(Setup::on(&[Udp, Tcp]).relay().with(lines));
    let (mut caller, (listener, at)) = (stage.server.connect(Tcp), listen());
    let mut ask = || {
        let request = Request::new("MESSAGE", &format!("sip:x@{at};transport=tcp"), "tcp", caller.local());
        send(&mut caller, &request);
    };
    ask();
    let mut host = accept(&listener, SOON);
    assert!(host.request("MESSAGE", SOON).is_some());
    stage.shows(&[("transaction_timeouts_total", By(1)), ("targets_aside", At(1)), ("target_failures_total", By(1))]);
    // There is no other target.
    ask();
    let got = host.request("MESSAGE", SOON).expect("it comes");
    host.send(&respond(&got, 200, "h", &[])).expect("the server reads");
    stage.shows(&[("targets_aside", At(0)), ("target_failures_total", By(0)), ("transaction_timeouts_total", By(0))]);
    stage.end();
}

/// A large request to a peer without TCP.
fn udp_only_peers() {
    let mut stage = Stage::start(Setup::on(&[Udp, Tcp]).relay());
    let (mut caller, mut host) = (stage.server.connect(Tcp), stage.server.connect(Udp));
    let mut request = Request::new("MESSAGE", &format!("sip:x@{}", host.local()), "tcp", caller.local());
    request.body = vec![b'x'; 1_400];
    send(&mut caller, &request);
    let got = host.request("MESSAGE", SOON).expect("it comes");
    host.send(&respond(&got, 200, "h", &[])).expect("loopback takes it");
    stage.shows(&[
        ("udp_only_peers", At(1)),
        ("connections_failed_total", By(1)),
        ("targets_aside", At(0)),
        ("target_failures_total", By(0)),
    ]);
    stage.end();
}
