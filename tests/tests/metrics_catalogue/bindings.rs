//! Bindings, and their path to disk.

use super::{SOON, Stage, ask, code, send};
use strowger_tests::meter::Shows::{Above, At, By, More};
use strowger_tests::server::Setup;
use strowger_tests::text::{Request, status};
use strowger_tests::wire::Transport::Udp;
use strowger_tests::wire::Wire;

pub(super) const SCENES: &[(&str, fn())] = &[
    ("registrations", registrations),
    ("expiry", expiry),
    ("failed writes", failed_writes),
    ("bindings that wait", waiting),
];

fn register(wire: &Wire, user: &str, contacts: usize, expires: u32) -> Request {
    let contact = |n: usize| format!("sip:{user}-{n}@{}", wire.local());
    let mut request = Request::register(user, "example.org", &contact(0), "udp", wire.local());
    request.headers.extend((1..contacts).map(|n| format!("Contact: <{}>", contact(n))));
    request.headers.retain(|line| !line.starts_with("Expires"));
    request.with(format!("Expires: {expires}"))
}

fn registrations() {
    let mut stage = Stage::start(Setup::on(&[Udp]).open_registrar());
    let mut phone = stage.server.connect(Udp);
    stage.shows(&[("bindings", At(0)), ("registered_users", At(0)), ("journal_bound", At(20_000))]);
    let request = register(&phone, "alice", 2, 600);
    let answer = ask(&mut phone, &request);
    assert_eq!(status(&answer), Some(200));
    stage.shows(&[
        ("bindings", At(2)),
        ("registered_users", At(1)),
        ("requests_total", By(1)),
        ("registrations_total", By(1)),
        ("datagrams_in_total", By(1)),
        ("datagram_in_bytes_total", By(request.bytes().len() as u64)),
        ("batches_in_total", By(1)),
        ("datagrams_out_total", By(1)),
        ("datagram_out_bytes_total", By(answer.len() as u64)),
        ("batches_out_total", By(1)),
        ("journal_groups_total", By(1)),
        ("journal_kept_total", By(1)),
        ("journal_longest_commit_seconds", Above(0.0)),
        ("commit_seconds_count", By(1)),
        ("commit_seconds_sum", More),
        ("answers_total", By(1)),
        ("requests_forwarded_total", By(0)),
        ("rounds_total", More),
        ("shard_busy_seconds_total", More),
        ("shard_longest_turn_seconds", Above(0.0)),
        ("process_resident_memory_bytes", Above(1e6)),
    ]);
    // A query is answered without a commit.
    let mut question = register(&phone, "alice", 1, 600);
    question.headers.clear();
    assert_eq!(code(&mut phone, &question), 200);
    stage.shows(&[("registrations_total", By(1)), ("journal_kept_total", By(1)), ("journal_groups_total", By(0))]);
    let mut all = register(&phone, "alice", 1, 0);
    all.headers[0] = "Contact: *".into();
    assert_eq!(code(&mut phone, &all), 200);
    stage.shows(&[
        ("bindings", At(0)),
        ("registered_users", At(0)),
        ("journal_kept_total", By(1)),
        ("registrations_total", By(1)),
    ]);
    stage.end();
}

fn expiry() {
    let mut stage = Stage::start(Setup::on(&[Udp]).open_registrar().with("registrar.min_expires = \"1s\""));
    let mut phone = stage.server.connect(Udp);
    let request = register(&phone, "alice", 3, 2);
    assert_eq!(code(&mut phone, &request), 200);
    stage.shows(&[("bindings", At(3)), ("bindings_expired_total", By(0))]);
    stage.shows(&[
        ("bindings", At(0)),
        ("registered_users", At(0)),
        ("bindings_expired_total", By(3)),
        ("journal_groups_total", By(1)),
    ]);
    stage.end();
}

/// Locks the database as another process.
fn hold(stage: &Stage) -> rusqlite::Connection {
    let other = rusqlite::Connection::open(stage.server.folder().join("test.sqlite")).expect("the database is there");
    other.busy_timeout(SOON).expect("it can be set");
    other.execute_batch("BEGIN IMMEDIATE").expect("the lock is free for a moment");
    other
}

fn release(other: &rusqlite::Connection) {
    other.execute_batch("ROLLBACK").expect("it was begun");
}

fn failed_writes() {
    let setup = Setup::on(&[Udp]).open_registrar().with("store.busy_timeout = \"0s\"\nregistrar.min_expires = \"1s\"");
    let mut stage = Stage::start(setup);
    let mut phone = stage.server.connect(Udp);
    for (user, contacts, expires) in [("alice", 2, 1), ("bob", 1, 600)] {
        let request = register(&phone, user, contacts, expires);
        assert_eq!(code(&mut phone, &request), 200);
    }
    let other = hold(&stage);
    let request = register(&phone, "bob", 2, 600);
    assert_eq!(code(&mut phone, &request), 500);
    stage.shows(&[
        ("failed_writes_total", By(1)),
        ("journal_failed_total", By(1)),
        ("bindings_expired_total", By(2)),
        ("journal_unpurged", At(2)),
        ("bindings", At(1)),
        ("registrations_total", By(2)),
    ]);
    release(&other);
    let request = register(&phone, "bob", 2, 600);
    assert_eq!(code(&mut phone, &request), 200);
    stage.shows(&[
        ("journal_unpurged", At(0)),
        ("bindings", At(2)),
        ("journal_groups_total", By(1)),
        ("journal_kept_total", By(1)),
    ]);
    stage.end();
}

fn waiting() {
    const QUEUE: u64 = 16;
    let mut stage = Stage::start(Setup::on(&[Udp]).open_registrar().with("store.busy_timeout = \"30s\""));
    let mut phones: Vec<Wire> = (0..=QUEUE).map(|_| stage.server.connect(Udp)).collect();
    let other = hold(&stage);
    let requests: Vec<Request> =
        phones.iter().enumerate().map(|(n, phone)| register(phone, &format!("user{n}"), 1, 600)).collect();
    // The writer has the first change, and waits.
    send(&mut phones[0], &requests[0]);
    stage.shows(&[("requests_waiting", At(1)), ("journal_queued", At(0)), ("bindings", At(1))]);
    for (phone, request) in phones.iter_mut().zip(&requests).skip(1) {
        send(phone, request);
    }
    stage.shows(&[("requests_waiting", At(QUEUE + 1)), ("journal_queued", At(QUEUE)), ("journal_bound", At(20_000))]);
    release(&other);
    for phone in &mut phones {
        assert_eq!(phone.final_response(SOON).as_deref().and_then(status), Some(200));
    }
    stage.shows(&[
        ("requests_waiting", At(0)),
        ("journal_queued", At(0)),
        ("journal_kept_total", By(QUEUE + 1)),
        ("registrations_total", By(QUEUE + 1)),
    ]);
    stage.end();
}
