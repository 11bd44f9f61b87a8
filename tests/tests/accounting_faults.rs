//! Accounting rows in a database server that is frozen, slow, restarted and stopped during calls; at the end the SIP
//! server is killed: no call is lost, and each is in the tables once, with its events in order.

use std::time::Duration;

use strowger_tests::call::register;
use strowger_tests::control::metric;
use strowger_tests::database::Database;
use strowger_tests::dialog::invite;
use strowger_tests::port;
use strowger_tests::program::{SIPP, have};
use strowger_tests::server::{Server, Setup};
use strowger_tests::sipp::{Calls, Scenario};
use strowger_tests::slow_relay::SlowRelay;
use strowger_tests::text::respond;
use strowger_tests::wait;
use strowger_tests::wire::Transport::Udp;

use super::accounting::in_the_spool;
use super::control_stores::order;
use super::sql_rows::db;

/// Time from answer to BYE, in milliseconds, as in `uac_held.xml`.
const HELD: u64 = 500;
/// Delay of each answer of a slow database.
const SLOW: Duration = Duration::from_millis(500);
/// Time limit for all waiting rows to be written.
const WRITTEN: Duration = Duration::from_secs(60);
/// Time limit of an answer.
const SOON: Duration = Duration::from_secs(20);

fn setup(url: &str) -> Setup {
    Setup::on(&[Udp]).relay().with(&format!(
        "auth.secret = \"the secret of both processes\"\ndialogs.folder = \"calls\"\nstore.busy_timeout = \"200ms\"\n\
         accounting.cdr = true\naccounting.events = true\naccounting.to = \"sql\"\naccounting.database = \"{url}\"\n\
         accounting.spool = \"rows.spool\"\n\
         control.socket = \"test.control\"\nlog.calls_per_minute = 0\nlog.statistics = \"never\"\n"
    ))
}

/// Returns the number that a statement selects.
#[track_caller]
fn number(database: &Database, statement: &str) -> u64 {
    let said = database.execute(statement);
    said.trim().parse().unwrap_or_else(|_| panic!("{statement}: {said:?}"))
}

/// Waits until all rows are written.
#[track_caller]
fn are_written(database: &Database, server: &Server, calls: u64) {
    let waits = |of: &str| metric(server, &format!("strowger_accounting_{of}"));
    let rows = |table: &str| number(database, &format!("SELECT COUNT(*) FROM strowger_{table}"));
    let is_so = wait::until(WRITTEN, || {
        waits("spool_rows") == 0.0 && waits("queued") == 0.0 && rows("cdr") >= calls && rows("events") >= 2 * calls
    });
    let there = (rows("cdr"), rows("events"));
    assert!(is_so && there == (calls, 2 * calls), "{there:?} rows of {calls} calls\n{}", server.log());
}

/// Asserts that the tables have this many calls, each once, with consistent columns.
#[track_caller]
fn are_right(database: &Database, calls: u64) {
    let at_most = HELD + 5_000;
    for (of, so) in [
        ("identities", "1 = 1"),
        ("answered calls that their caller has ended", "outcome = 'answered' AND ended_by = 'caller'"),
        ("moments in their order", "setup_at <= answer_at AND answer_at < end_at"),
        (
            "durations",
            // The times of a passing message and of its sender differ by delays of the machine.
            &format!("duration_ms = end_at - answer_at AND duration_ms BETWEEN {} AND {at_most}", HELD - 50),
        ),
    ] {
        let there = number(database, &format!("SELECT COUNT(DISTINCT identity) FROM strowger_cdr WHERE {so}"));
        assert_eq!(there, calls, "{of}");
    }
    assert_eq!(number(database, "SELECT COUNT(DISTINCT call_id) FROM strowger_cdr"), calls);
    assert_eq!(number(database, "SELECT COUNT(DISTINCT identity) FROM strowger_events"), 2 * calls);
    // Row numbers grow in the order of writing.
    let in_order = "SELECT COUNT(*) FROM (SELECT call_identity FROM strowger_events GROUP BY call_identity HAVING COUNT(*) = 2 \
                    AND MIN(CASE WHEN event = 'invite' THEN id END) < MIN(CASE WHEN event = 'bye' THEN id END)) in_order \
                    JOIN strowger_cdr ON identity = call_identity";
    assert_eq!(number(database, in_order), calls, "each call has its INVITE, then its BYE");
}

/// Makes at least this many calls at this rate. Meanwhile the database has every kind of trouble in turn; calls
/// continue until it has started again.
fn in_all_troubles(mut database: Database, calls: u32, rate: u32) {
    let relay = SlowRelay::to(database.server().address());
    let own = database.server().address().port().to_string();
    let mut server = setup(&database.url().replace(&own, &relay.address().port().to_string())).prepare();
    let (is_done, said) = db(&server, &["init"]);
    assert!(is_done, "{said}");
    server.start();
    let scenarios = (Scenario::Ours("uac_held"), Scenario::Ours("uas"));
    let traffic = Calls { scenarios, transports: ("u1", "u1"), way: "udp", calls: None, rate };
    let traffic = traffic.start(server.address(Udp), None, port::free());
    let reach = |percent: u64| traffic.reach(u64::from(calls) * percent / 100);
    reach(10);
    database.server().freeze();
    in_the_spool(&server, 2.0);
    reach(25);
    database.server().thaw();
    reach(35);
    relay.slow_down(SLOW);
    reach(55);
    relay.slow_down(Duration::ZERO);
    reach(65);
    database.stop();
    database.start_again();
    reach(85);
    database.stop();
    in_the_spool(&server, 2.0);
    assert_eq!(metric(&server, "strowger_accounting_down"), 1.0);
    reach(100);
    let calls = traffic.end();
    // The stored states of the last calls are on disk; their rows may still be on their way to the spool.
    assert!(wait::until(WRITTEN, || metric(&server, "strowger_kept_calls_pending") == 0.0), "{}", server.log());
    assert_eq!(metric(&server, "strowger_accounting_dropped_total"), 0.0);
    server.kill();
    server.start();
    in_the_spool(&server, 2.0);
    database.start_again();
    are_written(&database, &server, calls);
    are_right(&database, calls);
    assert_eq!(metric(&server, "strowger_accounting_dropped_total"), 0.0);
}

fn mariadb(calls: u32, rate: u32) {
    if have(&[SIPP])
        && let Some((database, _folder)) = Database::mariadb()
    {
        in_all_troubles(database, calls, rate);
    }
}

fn postgresql(calls: u32, rate: u32) {
    if have(&[SIPP])
        && let Some((database, _certificate, _folder)) = Database::postgresql()
    {
        in_all_troubles(database, calls, rate);
    }
}

#[test]
fn calls_beside_a_mariadb_in_trouble_are_accounted_once_each() {
    mariadb(300, 100);
}

#[test]
fn calls_beside_a_postgresql_in_trouble_are_accounted_once_each() {
    postgresql(300, 100);
}

/// The table refuses one row and accepts five good ones after it; then the table is repaired. `refuse` makes it refuse
/// a Call-ID with an `x`.
fn one_row_is_refused(database: &Database, refuse: &str, mend: &str) {
    let mut server = Setup::on(&[Udp])
        .open_registrar()
        .with(&format!(
            "accounting.cdr = true\naccounting.to = \"sql\"\naccounting.database = \"{}\"\naccounting.spool = \"rows.spool\"\n\
             accounting.group_interval = \"10ms\"\n",
            database.url()
        ))
        .prepare();
    let (is_done, said) = db(&server, &["init"]);
    assert!(is_done, "{said}");
    database.execute(refuse);
    server.start();
    let [mut caller, mut callee] = [(); 2].map(|()| server.connect(Udp));
    register(&mut callee, "bob");
    let mut call = |mark: &str| {
        let mut call = invite("sip:bob@example.org", &caller);
        call.call_id = format!("{mark}{}", call.call_id);
        caller.send(&call.bytes()).expect("the server takes messages");
        let got = callee.request("INVITE", SOON).expect("it arrives");
        callee.send(&respond(&got, 486, "b", &[])).expect("the server takes messages");
        let answer = caller.final_response(SOON).expect("an answer");
        caller.send(&call.ack(&answer).bytes()).expect("the server takes messages");
        call.call_id
    };
    let waits = |server: &Server, of: &str| metric(server, &format!("strowger_accounting_{of}"));
    let rows = || number(database, "SELECT COUNT(*) FROM strowger_cdr");
    let refused = call(&"x".repeat(61));
    (0..5).for_each(|_| drop(call("good-")));
    assert!(wait::until(WRITTEN, || rows() == 5 && waits(&server, "quarantine_rows") == 1.0), "{}", server.log());
    assert_eq!((waits(&server, "quarantined_total"), waits(&server, "spool_rows")), (1.0, 0.0));
    assert_eq!(waits(&server, "down"), 0.0);
    server.log_with("row of accounting refused by the database");
    // Neither a retry before the repair nor a kill changes anything.
    let retry = |server: &Server| order(server, &["accounting", "retry"]);
    let (code, said) = retry(&server);
    assert!(code == Some(1) && said.contains(" 1 refused rows, ") && said.contains("last reason: "), "{said}");
    server.kill();
    server.start();
    assert_eq!((waits(&server, "quarantine_rows"), rows()), (1.0, 5));
    // A missing column is no fault of a row.
    database.execute("ALTER TABLE strowger_cdr RENAME COLUMN codecs TO others");
    call("good-");
    in_the_spool(&server, 1.0);
    assert_eq!(waits(&server, "quarantine_rows"), 1.0);
    database.execute("ALTER TABLE strowger_cdr RENAME COLUMN others TO codecs");
    assert!(wait::until(WRITTEN, || rows() == 6), "{}", server.log());
    database.execute(mend);
    let (code, said) = retry(&server);
    assert!(code == Some(0) && rows() == 7, "{said}");
    let of_it = format!("SELECT COUNT(*) FROM strowger_cdr WHERE call_id = '{refused}'");
    assert_eq!((number(database, &of_it), retry(&server).0), (1, Some(0)));
}

#[test]
fn a_row_that_mariadb_refuses_stops_no_other() {
    if let Some((database, _folder)) = Database::mariadb() {
        let alter = |kind: &str| format!("ALTER TABLE strowger_cdr MODIFY call_id {kind} NOT NULL");
        one_row_is_refused(&database, &alter("VARCHAR(60)"), &alter("MEDIUMTEXT"));
    }
}

#[test]
fn a_row_that_postgresql_refuses_stops_no_other() {
    if let Some((database, _certificate, _folder)) = Database::postgresql() {
        let check = "ALTER TABLE strowger_cdr ADD CONSTRAINT short CHECK (call_id NOT LIKE 'x%')";
        one_row_is_refused(&database, check, "ALTER TABLE strowger_cdr DROP CONSTRAINT short");
    }
}

/// Returns the smallest number of calls of the long variant, and their rate: it takes twenty seconds.
fn many() -> (u32, u32) {
    let calls = std::env::var("STROWGER_ACCOUNTED_CALLS");
    let calls: u32 = calls.map_or(20_000, |text| text.parse().expect("STROWGER_ACCOUNTED_CALLS is a number"));
    (calls, calls.div_ceil(20))
}

#[test]
#[ignore = "a minute, and much work: make test-accounting"]
fn twenty_thousand_calls_beside_a_mariadb_in_trouble() {
    let (calls, rate) = many();
    mariadb(calls, rate);
}

#[test]
#[ignore = "a minute, and much work: make test-accounting"]
fn twenty_thousand_calls_beside_a_postgresql_in_trouble() {
    let (calls, rate) = many();
    postgresql(calls, rate);
}
