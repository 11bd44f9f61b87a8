//! Accounting rows: written, delayed, lost.

use std::time::Duration;

use super::{SOON, Stage, send};
use strowger_tests::control;
use strowger_tests::dialog::invite;
use strowger_tests::meter::Shows::{Above, At, By, More};
use strowger_tests::server::Setup;
use strowger_tests::text::{respond, status};
use strowger_tests::wire::Transport::{Tcp, Udp};

pub(super) const SCENES: &[(&str, fn())] = &[
    ("rows of accounting", rows),
    ("rows of accounting in the spool", spool),
    ("a row of accounting that is refused", quarantine),
    ("refused calls of one source", refused_calls),
];

/// Starts a relay that writes two rows for a failed call, without retransmissions in this test.
fn relay(lines: &str) -> Stage {
    let both = "timers.t1 = \"4s\"\naccounting.cdr = true\naccounting.events = true\naccounting.path = \"rows\"";
    Stage::start(Setup::on(&[Udp]).relay().with(both).with(lines))
}

/// Makes a call to a busy callee.
fn fails(stage: &Stage) {
    let [mut alice, mut bob] = [(); 2].map(|()| stage.server.connect(Udp));
    let call = invite(&format!("sip:bob@{}", bob.local()), &alice);
    send(&mut alice, &call);
    let got = bob.request("INVITE", SOON).expect("the INVITE arrives");
    bob.send(&respond(&got, 486, "bob", &[])).expect("loopback takes it");
    let answer = alice.final_response(SOON).expect("it is answered");
    assert_eq!(status(&answer), Some(486));
    send(&mut alice, &call.ack(&answer));
    bob.request("ACK", SOON).expect("the ACK arrives");
}

fn rows() {
    // Long enough to see the rows in the queue.
    let mut stage = relay("accounting.group_interval = \"5s\"");
    fails(&stage);
    stage.shows(&[
        ("accounting_queued", At(2)),
        ("accounting_bound", At(100_000)),
        ("accounting_written_total", By(0)),
    ]);
    stage.shows(&[
        ("accounting_queued", At(0)),
        ("accounting_written_total", By(2)),
        ("accounting_spooled_total", By(0)),
    ]);
    stage.end();
}

fn spool() {
    let mut stage = relay("store.busy_timeout = \"10ms\"");
    let other = rusqlite::Connection::open(stage.server.folder().join("rows")).expect("the database is there");
    other.busy_timeout(Duration::from_secs(5)).expect("a time");
    other.execute_batch("BEGIN IMMEDIATE").expect("the lock is free for a moment");
    fails(&stage);
    stage.shows(&[
        ("accounting_down", At(1)),
        ("accounting_failures_total", More),
        ("accounting_spooled_total", By(2)),
        ("accounting_spool_rows", At(2)),
        ("accounting_spool_bytes", Above(500.0)),
        ("accounting_written_total", By(0)),
    ]);
    other.execute_batch("ROLLBACK").expect("it was begun");
    stage.shows(&[
        ("accounting_down", At(0)),
        ("accounting_written_total", By(2)),
        ("accounting_spool_rows", At(0)),
        ("accounting_spool_bytes", At(0)),
    ]);
    stage.end();
}

/// The database refuses the row of a call, and accepts its event.
fn quarantine() {
    let mut stage = relay("control.socket = \"orders\"");
    let other = rusqlite::Connection::open(stage.server.folder().join("rows")).expect("the database is there");
    other.busy_timeout(Duration::from_secs(5)).expect("a time");
    let refuses = "CREATE TRIGGER no BEFORE INSERT ON cdr BEGIN SELECT RAISE(ABORT, 'no'); END";
    other.execute_batch(refuses).expect("the table is there");
    fails(&stage);
    stage.shows(&[
        ("accounting_quarantined_total", By(1)),
        ("accounting_quarantine_rows", At(1)),
        ("accounting_quarantine_bytes", Above(100.0)),
        ("accounting_written_total", By(1)),
    ]);
    other.execute_batch("DROP TRIGGER no").expect("it is there");
    control::done(&stage.server, &["accounting", "retry"]);
    stage.shows(&[
        ("accounting_quarantine_rows", At(0)),
        ("accounting_quarantine_bytes", At(0)),
        ("accounting_written_total", By(1)),
    ]);
    stage.end();
}

/// Refused calls of callers without a password have a limited number of rows per minute.
fn refused_calls() {
    let lines = "accounting.cdr = true\naccounting.path = \"rows\"\naccounting.group_interval = \"1s\"";
    let mut stage = Stage::start(Setup::on(&[Tcp]).open_registrar().in_memory().with(lines));
    let mut alice = stage.server.connect(Tcp);
    for _ in 0..65 {
        let call = invite("sip:unknown@example.org", &alice);
        send(&mut alice, &call);
        let answer = alice.final_response(SOON).expect("it is answered");
        assert_eq!(status(&answer), Some(480));
        send(&mut alice, &call.ack(&answer));
    }
    stage.shows(&[
        ("refusals_unaccounted_total", By(5)),
        ("requests_not_found_total", By(65)),
        ("accounting_written_total", By(60)),
    ]);
    stage.end();
}
