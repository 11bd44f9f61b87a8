//! Tables of this program in a database server: `strowger db` creates them, and rows of accounting arrive once each and
//! in order, though the server is stopped, frozen, slow or without its table in between, and though this program is
//! killed.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use strowger_tests::binary::strowger;
use strowger_tests::call::register;
use strowger_tests::certificate::Certificate;
use strowger_tests::control::metric;
use strowger_tests::database::Database;
use strowger_tests::port;
use strowger_tests::server::{Server, Setup};
use strowger_tests::slow_relay::SlowRelay;
use strowger_tests::wait;
use strowger_tests::wire::Transport::Udp;
use strowger_tests::wire::Wire;

use super::accounting::{fails, in_the_spool};

/// Upper bound of the time until a server ends that refuses its configuration.
const START: Duration = Duration::from_secs(20);
/// Upper bound of the time until rows are written.
const WRITTEN: Duration = Duration::from_secs(20);

/// Runs `strowger db` with these words; returns whether it succeeded, and its output.
pub(crate) fn db(server: &Server, words: &[&str]) -> (bool, String) {
    let output = Command::new(strowger())
        .arg("db")
        .args(words)
        .arg("--config")
        .arg(server.config())
        .current_dir(server.folder())
        .output()
        .expect("the program runs");
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(!said.contains("strowger:strowger"), "a password: {said}");
    (output.status.success(), said)
}

fn setup(url: &str) -> Setup {
    Setup::on(&[Udp]).open_registrar().with(&format!(
        "accounting.cdr = true\naccounting.events = true\naccounting.to = \"sql\"\naccounting.database = \"{url}\"\n\
         accounting.spool = \"rows.spool\"\naccounting.group_interval = \"10ms\"\n"
    ))
}

/// `strowger db migrate` leaves tables of the current version alone; it refuses tables of a newer version, and so does
/// `init`.
fn leaves_what_it_need_not_or_cannot_migrate(database: &Database, server: &Server) {
    let there = || {
        let select = |what: &str| database.execute(&format!("SELECT {what}"));
        [select("part, version, changed_at FROM strowger_schema ORDER BY part"), select("COUNT(*) FROM strowger_cdr")]
    };
    let before = there();
    let (is_done, said) = db(server, &["migrate", "--dry-run"]);
    assert!(is_done && said.contains("(accounting): nothing to do"), "{said}");
    let (is_done, said) = db(server, &["migrate"]);
    assert!(is_done && said.matches("version 1").count() >= 2 && there() == before, "{said}");
    database.execute("UPDATE strowger_schema SET version = 9");
    let newer = there();
    for order in ["migrate", "init"] {
        for words in [&[order][..], &[order, "--dry-run"]] {
            let (is_done, said) = db(server, words);
            let refusal =
                "has tables for accounting of version 9, this program knows 1: use the program that made them";
            assert!(!is_done && said.contains(refusal) && there() == newer, "{words:?}: {said}");
        }
    }
    let (is_done, said) = db(server, &["migrate", "--json"]);
    assert!(!is_done && said.contains("\"found\": \"version 9\"") && said.contains("\"now\": \"version 9\""), "{said}");
    database.execute("UPDATE strowger_schema SET version = 1");
}

/// An unusable place is an error of the start that names the remedy, and the remedy works.
fn made_by_the_command(database: &Database) {
    let mut server = setup(&database.url()).prepare();
    let refused = |server: &mut Server| {
        assert!(!server.try_start().end(START).success());
        server.log()
    };
    let said = refused(&mut server);
    assert!(said.contains("no table \"strowger_cdr\"") && said.contains("strowger db init"), "{said}");
    let (is_done, said) = db(&server, &["migrate"]);
    assert!(!is_done && said.contains("strowger db init makes them"), "{said}");
    database.execute("CREATE TABLE strowger_events (theirs INT)");
    let (is_done, said) = db(&server, &["init"]);
    assert!(!is_done && said.contains("did not make"), "{said}");
    database.execute("DROP TABLE strowger_events");
    let (is_done, said) = db(&server, &["init", "--dry-run"]);
    assert!(is_done && said.contains("CREATE TABLE IF NOT EXISTS") && said.contains("strowger_events"), "{said}");
    let (is_done, said) = db(&server, &["init", "--json"]);
    assert!(is_done && said.contains("\"now\": \"version 1\"") && said.contains("\"found\": \"nothing\""), "{said}");
    let (is_done, said) = db(&server, &["init"]);
    assert!(is_done && said.contains("test.sqlite") && said.matches("version 1").count() >= 2, "{said}");
    leaves_what_it_need_not_or_cannot_migrate(database, &server);
    for (change, again, part) in [
        (
            "UPDATE strowger_schema SET version = 9",
            "UPDATE strowger_schema SET version = 1",
            "use the program that made them",
        ),
        ("ALTER TABLE strowger_cdr DROP COLUMN codecs", "DROP TABLE strowger_cdr", "lacks the column \"codecs\""),
    ] {
        database.execute(change);
        let said = refused(&mut server);
        assert!(said.contains(part), "{said}");
        database.execute(again);
    }
    let (is_done, said) = db(&server, &["init"]);
    assert!(is_done && said.contains("version 0"), "the table that is gone is made again: {said}");
    let wrong = database.url().replace("strowger:strowger@", "strowger:hunter2hunter2@");
    let said = refused(&mut setup(&wrong).prepare());
    let is_denied = said.contains("Access denied") || said.contains("password authentication failed");
    assert!(is_denied && said.contains("rows of accounting cannot be written") && !said.contains("hunter2"), "{said}");
}

/// Waits until both tables hold these Call-IDs, once each and in this order.
#[track_caller]
fn comes_to_hold(database: &Database, server: &Server, calls: &[String]) {
    let select = |table: &str| database.execute(&format!("SELECT call_id FROM {table} ORDER BY id"));
    for table in ["strowger_cdr", "strowger_events"] {
        let is_so = wait::until(WRITTEN, || select(table).lines().count() == calls.len());
        let there = select(table);
        assert!(is_so && there.lines().eq(calls), "{table}: {there}\nof {calls:?}\n{}", server.log());
        let identities = database.execute(&format!("SELECT COUNT(DISTINCT identity) FROM {table}"));
        assert_eq!(identities.trim(), calls.len().to_string());
    }
}

/// Makes calls that the callee refuses; calls work while their rows cannot be written.
fn calls(caller: &mut Wire, callee: &mut Wire, calls: &mut Vec<String>) {
    calls.extend((0..5).map(|_| fails(caller, callee, 486)));
}

fn once_each(database: &mut Database) {
    let relay = SlowRelay::to(database.server().address());
    let own = database.server().address().port().to_string();
    let url = database.url().replace(&own, &relay.address().port().to_string());
    let lines = "store.busy_timeout = \"1500ms\"\naccounting.retention = \"1h\"\naccounting.fields = [\"User-Agent\"]";
    let mut server = setup(&url).with(lines).start();
    let [mut caller, mut callee] = [(); 2].map(|()| server.connect(Udp));
    register(&mut callee, "bob");
    let mut made = Vec::new();
    let mut call = |server: &Server| {
        calls(&mut caller, &mut callee, &mut made);
        assert_eq!(metric(server, "strowger_accounting_dropped_total"), 0.0);
        made.clone()
    };
    comes_to_hold(database, &server, &call(&server));
    let fields = "SELECT COUNT(*) FROM strowger_cdr WHERE fields LIKE '{\"User-Agent\":\"a %phone%, of a test\"}'";
    assert_eq!(database.execute(fields).trim(), "5");

    database.server().freeze();
    call(&server);
    in_the_spool(&server, 2.0);
    database.server().thaw();
    comes_to_hold(database, &server, &call(&server));

    relay.slow_down(Duration::from_millis(500));
    let all = call(&server);
    comes_to_hold(database, &server, &all);
    relay.slow_down(Duration::ZERO);

    database.execute("ALTER TABLE strowger_events RENAME TO gone");
    call(&server);
    in_the_spool(&server, 2.0);
    server.log_with("rows of accounting cannot be written");
    database.execute("ALTER TABLE gone RENAME TO strowger_events");
    comes_to_hold(database, &server, &call(&server));

    database.stop();
    call(&server);
    in_the_spool(&server, 10.0);
    server.kill();
    // The server starts without the database, and calls continue.
    server.start();
    in_the_spool(&server, 10.0);
    let all = call(&server);
    database.start_again();
    comes_to_hold(database, &server, &all);

    // Rows older than an hour are deleted.
    let old = "INSERT INTO strowger_events (identity, call_identity, event, event_at, setup_at, call_id, caller, callee, auth_user, account, \
               source, gateway, done_by, status, cause) VALUES ('old', '', 'bye', 1, 1, '', '', '', '', '', '', '', '', 200, 16)";
    database.execute(old);
    server.stop();
    server.start();
    comes_to_hold(database, &server, &all);
}

/// Data goes to a server over TLS, and only to one with a valid certificate.
fn is_protected(database: &Database, certificate: &Certificate) {
    let server = |authority: &Path| {
        let url = format!("{}?tls=required&ca={}", database.url(), authority.display());
        setup(&url).with(&format!("store.bindings = \"{url}\""))
    };
    let mut own = server(&certificate.authority).prepare();
    let (is_done, said) = db(&own, &["init"]);
    assert!(is_done, "{said}");
    own.start();
    let [mut caller, mut callee] = [(); 2].map(|()| own.connect(Udp));
    register(&mut callee, "bob");
    fails(&mut caller, &mut callee, 486);
    let select = "SELECT COUNT(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE ssl AND application_name = 'strowger'";
    assert_eq!(database.execute(select).trim(), "3", "one for bindings, one for their lease, one for rows");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let foreign = Certificate::in_folder(folder.path(), &["db.example"]);
    own.stop();
    let mut own = server(&foreign.authority).prepare();
    assert!(!own.try_start().end(START).success());
    let said = own.log();
    assert!(said.contains("`store.bindings`") && said.contains("certificate"), "{said}");
}

#[test]
fn rows_in_mariadb_are_written_once_each_in_their_order() {
    if let Some((mut database, _folder)) = Database::mariadb() {
        made_by_the_command(&database);
        once_each(&mut database);
    }
}

#[test]
fn rows_in_postgresql_are_written_once_each_in_their_order() {
    if let Some((mut database, certificate, _folder)) = Database::postgresql() {
        made_by_the_command(&database);
        once_each(&mut database);
        is_protected(&database, &certificate);
    }
}

/// `strowger db` handles the files of the server too, and creates the table of subscribers with the columns of
/// OpenSIPS.
#[test]
fn files_are_made_by_the_command_too() {
    let server = Setup::on(&[Udp]).open_registrar().with("accounting.cdr = true\naccounting.path = \"rows\"").prepare();
    let (is_done, said) = db(&server, &["init", "--dry-run"]);
    assert!(
        is_done && said.contains("CREATE TABLE subscriber") && said.contains("CREATE TABLE IF NOT EXISTS cdr"),
        "{said}"
    );
    assert!(!server.folder().join("test.sqlite").exists() && !server.folder().join("rows").exists());
    let (is_done, said) = db(&server, &["migrate"]);
    assert!(!is_done && said.contains("strowger db init makes them"), "{said}");
    let (is_done, said) = db(&server, &["init"]);
    assert!(is_done && said.contains("nothing") && said.contains("version 3"), "{said}");
    let (is_done, said) = db(&server, &["migrate"]);
    assert!(is_done && !said.contains("nothing"), "{said}");
    assert!(server.folder().join("test.sqlite").exists() && server.folder().join("rows").exists());
    // Files of a newer program are left unchanged.
    for (name, wanted) in [("test.sqlite", "newer"), ("rows", "use the program that made them")] {
        let file = rusqlite::Connection::open(server.folder().join(name)).expect("it is there");
        let known: i64 = file.pragma_query_value(None, "user_version", |row| row.get(0)).expect("it has one");
        file.pragma_update(None, "user_version", 99).expect("it can be written");
        for order in ["migrate", "init"] {
            let (is_done, said) = db(&server, &[order]);
            assert!(!is_done && said.contains("99") && said.contains(wanted), "{name}: {said}");
        }
        let found: i64 = file.pragma_query_value(None, "user_version", |row| row.get(0)).expect("it has one");
        assert_eq!(found, 99, "{name}");
        file.pragma_update(None, "user_version", known).expect("it can be written");
    }
    // No database server listens there.
    let url = format!("mysql://u:hunter2@127.0.0.1:{}/d", port::free());
    let server = Setup::on(&[Udp]).open_registrar().with(&format!("store.subscribers = \"{url}\"")).prepare();
    let (is_done, said) = db(&server, &["init"]);
    assert!(!is_done && said.contains("cannot be reached") && !said.contains("hunter2"), "{said}");
}
