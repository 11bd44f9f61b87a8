//! Accounting: the rows of calls in each format. Despite all failures there is exactly one copy of each row.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::dialogs::taken;
use strowger_tests::call::{exchange, register};
use strowger_tests::control::{done, metric};
use strowger_tests::dialog::{arrives, contact, invite, set_up};
use strowger_tests::limits::limit_files;
use strowger_tests::server::{Server, Setup};
use strowger_tests::text::{respond, status, unique};
use strowger_tests::wait;
use strowger_tests::wire::Transport::{Tcp, Udp};
use strowger_tests::wire::Wire;

const LIMIT: Duration = Duration::from_secs(10);
/// Time limit for rows to be written.
const WRITTEN: Duration = Duration::from_secs(20);

fn setup(to: &str, more: &str) -> Setup {
    let lines = format!(
        "accounting.cdr = true\naccounting.events = true\naccounting.to = \"{to}\"\naccounting.path = \"rows\"\n\
         accounting.spool = \"rows.spool\"\naccounting.group_interval = \"10ms\"\n{more}"
    );
    Setup::on(&[Udp, Tcp]).open_registrar().with(&lines)
}

/// Row by column names; null is an empty text.
type Row = BTreeMap<String, String>;

/// Returns the rows of a table, in the order of writing.
pub(crate) fn rows(server: &Server, table: &str) -> Vec<Row> {
    let path = server.folder().join("rows");
    if path.is_file() {
        return of_database(&path, table);
    }
    let mut files: Vec<PathBuf> = std::fs::read_dir(&path)
        .map(|entries| entries.map(|entry| entry.expect("an entry").path()).collect())
        .unwrap_or_default();
    files.retain(|file| file.file_name().is_some_and(|name| name.to_string_lossy().starts_with(table)));
    files.sort();
    let read = |file: &PathBuf| {
        let text = std::fs::read_to_string(file).expect("it can be read");
        // A line that is still being written is left out.
        let text = &text[..text.rfind('\n').map_or(0, |at| at + 1)];
        if file.extension().is_some_and(|form| form == "csv") { of_csv(text) } else { of_json(text) }
    };
    files.iter().flat_map(read).collect()
}

fn of_database(path: &Path, table: &str) -> Vec<Row> {
    use rusqlite::types::Value;
    let database = rusqlite::Connection::open(path).expect("it can be opened");
    database.busy_timeout(LIMIT).expect("a time");
    let mut all = database.prepare(&format!("SELECT * FROM {table} ORDER BY rowid")).expect("the table is there");
    let names: Vec<String> = all.column_names().map(str::to_owned).collect();
    let row = |row: &rusqlite::Row<'_>| {
        let text = |n: usize| -> rusqlite::Result<String> {
            Ok(match row.get::<_, Value>(n)? {
                Value::Null => String::new(),
                Value::Integer(number) => number.to_string(),
                Value::Text(text) => text,
                other => format!("{other:?}"),
            })
        };
        names.iter().enumerate().map(|(n, name)| Ok((name.clone(), text(n)?))).collect()
    };
    all.query_map([], row).expect("it can be read").map(|row| row.expect("a row")).collect()
}

fn of_json(text: &str) -> Vec<Row> {
    let row = |line: &str| {
        let value: BTreeMap<String, serde_json::Value> = serde_json::from_str(line).expect("a line is an object");
        let text = |value: serde_json::Value| match value {
            serde_json::Value::Null => String::new(),
            serde_json::Value::String(text) => text,
            serde_json::Value::Object(fields) if fields.is_empty() => String::new(),
            other => other.to_string(),
        };
        value.into_iter().map(|(name, value)| (name, text(value))).collect()
    };
    text.lines().map(row).collect()
}

/// Reads RFC 4180.
fn of_csv(text: &str) -> Vec<Row> {
    let mut records: Vec<Vec<String>> = vec![vec![String::new()]];
    let mut is_quoted = false;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let record = records.last_mut().expect("there is one");
        match c {
            '"' if is_quoted && chars.peek() == Some(&'"') => {
                chars.next();
                record.last_mut().expect("a value").push('"');
            }
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => record.push(String::new()),
            '\r' if !is_quoted => assert_eq!(chars.next(), Some('\n'), "a line ends with CRLF"),
            c => record.last_mut().expect("a value").push(c),
        }
        if c == '\r' && !is_quoted {
            records.push(vec![String::new()]);
        }
    }
    assert_eq!(records.pop(), Some(vec![String::new()]), "the last line ends");
    if records.is_empty() {
        return Vec::new();
    }
    let names = records.remove(0);
    let row = |values: Vec<String>| {
        assert_eq!(values.len(), names.len());
        names.iter().cloned().zip(values).collect()
    };
    records.into_iter().map(row).collect()
}

/// Waits until the table has `count` rows, and returns the rows.
#[track_caller]
fn comes_to(server: &Server, table: &str, count: usize) -> Vec<Row> {
    let mut all = Vec::new();
    let is_so = wait::until(WRITTEN, || {
        all = rows(server, table);
        all.len() >= count
    });
    assert!(is_so && all.len() == count, "{} rows of {count}: {all:#?}\n{}", all.len(), server.log());
    all
}

fn number(row: &Row, name: &str) -> u64 {
    row[name].parse().unwrap_or_else(|_| panic!("{name} in {row:?}"))
}

/// Sends an INVITE that the callee answers with this failure.
pub(crate) fn fails(caller: &mut Wire, callee: &mut Wire, code: u16) -> String {
    let call = invite("sip:bob@example.org", caller).with("User-Agent: a \"phone\", of a test");
    caller.send(&call.bytes()).expect("the server takes messages");
    let got = callee.request("INVITE", LIMIT).expect("the INVITE arrives");
    callee.send(&respond(&got, code, &unique("tag"), &[])).expect("the server takes messages");
    let answer = caller.final_response(LIMIT).expect("it is answered");
    assert_eq!(status(&answer), Some(code));
    caller.send(&call.ack(&answer).bytes()).expect("the server takes messages");
    callee.request("ACK", LIMIT).expect("the ACK arrives");
    call.call_id
}

/// Makes a call that is answered, and ended by the caller.
fn completes(caller: &mut Wire, callee: &mut Wire) -> String {
    let call = invite("sip:bob@example.org", caller);
    let (mut end, _) = set_up(caller, callee, &call, true);
    arrives(caller, callee, &end.request("BYE"), &[]);
    call.call_id
}

fn is_cancelled(caller: &mut Wire, callee: &mut Wire) -> String {
    let call = invite("sip:bob@example.org", caller);
    caller.send(&call.bytes()).expect("the server takes messages");
    let got = callee.request("INVITE", LIMIT).expect("the INVITE arrives");
    callee.send(&respond(&got, 180, "callee", &[])).expect("the server takes messages");
    assert_eq!(caller.answer(LIMIT).as_deref().and_then(status), Some(180));
    caller.send(&call.cancel().bytes()).expect("the server takes messages");
    let cancel = callee.request("CANCEL", LIMIT).expect("the CANCEL arrives");
    callee.send(&respond(&cancel, 200, "callee", &[])).expect("the server takes messages");
    callee.send(&respond(&got, 487, "callee", &[])).expect("the server takes messages");
    let answer = wait::look(LIMIT, || caller.final_response(LIMIT).filter(|answer| status(answer) == Some(487)));
    caller.send(&call.ack(&answer.expect("it is answered")).bytes()).expect("the server takes messages");
    call.call_id
}

#[test]
fn calls_are_written_in_each_form() {
    for to in ["sqlite", "json", "csv"] {
        let mut server = setup(to, "accounting.fields = [\"User-Agent\"]").start();
        let [mut caller, mut callee] = [(); 2].map(|()| server.connect(Udp));
        register(&mut callee, "bob");
        let bob = callee.local();
        let answered = completes(&mut caller, &mut callee);
        let busy = fails(&mut caller, &mut callee, 486);
        let failed = fails(&mut caller, &mut callee, 404);
        let cancelled = is_cancelled(&mut caller, &mut callee);
        // The server forwards nothing, and the caller counts as present because it has a connection.
        let mut by_tcp = server.connect(Tcp);
        let call = invite("sip:carol@example.org", &by_tcp);
        let away = call.call_id.clone();
        let code = status(&exchange(&mut by_tcp, &call)).expect("a response");
        let cdrs = comes_to(&server, "cdr", 5);
        let events = comes_to(&server, "events", 6);
        // Another process continues in the same place, and still knows bob.
        server.stop();
        server.start();
        fails(&mut caller, &mut callee, 603);
        assert_eq!(comes_to(&server, "cdr", 6)[..5], cdrs[..], "{to}");

        let code = code.to_string();
        for (row, (call_id, outcome, status, ended_by, attempts)) in cdrs.iter().zip([
            (&answered, "answered", "200", "caller", "1"),
            (&busy, "missed", "486", "callee", "1"),
            (&failed, "failed", "404", "callee", "1"),
            (&cancelled, "cancelled", "487", "caller", "1"),
            (&away, if code == "480" { "missed" } else { "failed" }, &*code, "server", "0"),
        ]) {
            let told = ["call_id", "outcome", "status", "ended_by", "attempts"].map(|name| row[name].as_str());
            assert_eq!(told, [call_id, outcome, status, ended_by, attempts], "{to}: {row:?}");
            assert!(number(row, "setup_at") <= number(row, "end_at"), "{to}: {row:?}");
            assert_eq!(number(row, "total_ms"), number(row, "end_at") - number(row, "setup_at"));
            assert_eq!(row["answer_at"].is_empty(), outcome != "answered", "{to}: {row:?}");
        }
        let [first, second, ..] = &cdrs[..] else { panic!("{cdrs:?}") };
        let duration = number(first, "end_at") - number(first, "answer_at");
        assert_eq!((number(first, "duration_ms"), second["duration_ms"].as_str()), (duration, "0"));
        assert!(number(first, "ring_at") <= number(first, "answer_at"));
        assert_eq!((first["caller"].contains('@'), first["callee"].as_str()), (true, "sip:bob@example.org"));
        let gateway = first["gateway"].parse::<std::net::SocketAddr>();
        assert!(gateway.is_ok_and(|gateway| gateway == bob), "{first:?}");
        let fields: serde_json::Value = serde_json::from_str(&second["fields"]).expect("an object");
        assert_eq!((&fields["User-Agent"], first["fields"].as_str()), (&"a \"phone\", of a test".into(), ""));
        let told: Vec<_> = events.iter().map(|row| (row["event"].as_str(), row["call_id"].as_str())).collect();
        let expected =
            [("invite", &answered), ("bye", &answered), ("missed", &busy), ("failed", &failed), ("missed", &cancelled)];
        assert_eq!(told[..5], expected.map(|(event, call_id)| (event, call_id.as_str())), "{to}");
        let mut identities: Vec<&str> = cdrs.iter().chain(&events).map(|row| row["identity"].as_str()).collect();
        identities.sort_unstable();
        identities.dedup();
        assert_eq!(identities.len(), cdrs.len() + events.len(), "{to}: an identity stands twice");
        let text = done(&server, &["status"]);
        assert!(text.lines().any(|line| line.contains("accounting") && line.contains("2 rows written")), "{text}");
    }
}

/// By default no row is written, and no file created.
#[test]
fn accounting_is_off_unless_it_is_asked_for() {
    let server = Setup::on(&[Udp]).open_registrar().start();
    let [mut caller, mut callee] = [(); 2].map(|()| server.connect(Udp));
    register(&mut callee, "bob");
    completes(&mut caller, &mut callee);
    let names = std::fs::read_dir(server.folder()).expect("its folder");
    let names: Vec<_> = names.map(|entry| entry.expect("an entry").file_name()).collect();
    assert!(!names.iter().any(|name| name.to_string_lossy().contains("accounting")), "{names:?}");
    assert_eq!(metric(&server, "strowger_accounting_written_total"), 0.0);
}

/// Opens the database of the rows and locks it against writes.
fn hold(server: &Server) -> rusqlite::Connection {
    let database = rusqlite::Connection::open(server.folder().join("rows")).expect("it is there");
    database.busy_timeout(LIMIT).expect("a time");
    database.execute_batch("BEGIN IMMEDIATE").expect("the lock is free for a moment");
    database
}

#[track_caller]
pub(crate) fn in_the_spool(server: &Server, least: f64) {
    let is_so = wait::until(WRITTEN, || metric(server, "strowger_accounting_spool_rows") >= least);
    assert!(is_so, "{}", server.log());
}

/// Asserts that these are the rows of these calls, once each, and in order.
#[track_caller]
fn are_of(rows: &[Row], calls: &[String]) {
    let told: Vec<&str> = rows.iter().map(|row| row["call_id"].as_str()).collect();
    assert_eq!(told, calls.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn rows_of_a_locked_database_follow_once_each_in_their_order() {
    let server = setup("sqlite", "store.busy_timeout = \"10ms\"").start();
    let [mut caller, mut callee] = [(); 2].map(|()| server.connect(Udp));
    register(&mut callee, "bob");
    let mut calls: Vec<String> = (0..5).map(|_| fails(&mut caller, &mut callee, 486)).collect();
    comes_to(&server, "cdr", 5);
    let other = hold(&server);
    calls.extend((0..20).map(|_| fails(&mut caller, &mut callee, 486)));
    in_the_spool(&server, 40.0);
    assert_eq!(metric(&server, "strowger_accounting_down"), 1.0);
    server.log_with("rows of accounting cannot be written: they go to the spool");
    other.execute_batch("ROLLBACK").expect("it was begun");
    calls.extend((0..5).map(|_| fails(&mut caller, &mut callee, 486)));
    are_of(&comes_to(&server, "cdr", 30), &calls);
    are_of(&comes_to(&server, "events", 30), &calls);
    server.log_with("rows of accounting are written again");
    assert_eq!(metric(&server, "strowger_accounting_spool_rows"), 0.0);
}

#[test]
fn a_killed_server_leaves_its_spool_to_the_next() {
    let mut server = setup("sqlite", "store.busy_timeout = \"10ms\"").start();
    let [mut caller, mut callee] = [(); 2].map(|()| server.connect(Udp));
    register(&mut callee, "bob");
    let mut calls = vec![fails(&mut caller, &mut callee, 486)];
    comes_to(&server, "cdr", 1);
    let other = hold(&server);
    calls.extend((0..10).map(|_| fails(&mut caller, &mut callee, 486)));
    in_the_spool(&server, 20.0);
    server.kill();
    other.execute_batch("ROLLBACK").expect("it was begun");
    server.start();
    are_of(&comes_to(&server, "cdr", 11), &calls);
    server.log_with("rows of accounting that an earlier process left");
}

/// A server that ends in order writes all its rows, and partial rows of open calls.
#[test]
fn a_server_that_ends_writes_all() {
    let mut server = setup("json", "").start();
    let [mut caller, mut callee] = [(); 2].map(|()| server.connect(Udp));
    register(&mut callee, "bob");
    let ended = completes(&mut caller, &mut callee);
    let call = invite("sip:bob@example.org", &caller);
    set_up(&mut caller, &mut callee, &call, true);
    server.stop();
    let cdrs = rows(&server, "cdr");
    are_of(&cdrs, &[ended, call.call_id]);
    let open = ["outcome", "ended_by", "end_at", "duration_ms"].map(|name| cdrs[1][name].as_str());
    assert_eq!(open, ["answered", "shutdown", "", ""]);
}

/// The server does not wait for a phone that rang, lost the call to another phone and is silent: `kill -9` would lose a
/// row that has not been written yet.
#[test]
fn the_record_of_a_call_waits_for_no_phone_that_lost() {
    let mut server = setup("json", "proxy.fork = \"parallel\"").start();
    let [mut caller, mut first, mut other] = [(); 3].map(|()| server.connect(Udp));
    register(&mut first, "bob");
    register(&mut other, "bob");
    let (call, mut phones) = (invite("sip:bob@example.org", &caller), [first, other]);
    let mut end = taken(&mut caller, &mut phones, &call, false);
    arrives(&mut caller, &mut phones[0], &end.request("BYE"), &[]);
    let cdrs = comes_to(&server, "cdr", 1);
    assert_eq!((&cdrs[0]["ended_by"][..], cdrs[0]["end_at"].is_empty()), ("caller", false));
    server.kill();
    server.start();
    are_of(&comes_to(&server, "cdr", 1), &[call.call_id]);
}

#[test]
fn a_full_disk_is_reported_and_calls_go_on() {
    // Without this setting the signal of a file at its size limit would end the process.
    let ignores = ["sh", "-c", "trap '' XFSZ; exec \"$0\" \"$@\""];
    let quiet = "log.calls_per_minute = 0\nlog.registrations_per_minute = 0";
    let mut server = setup("json", quiet).under(&ignores).start();
    let [mut caller, mut callee] = [(); 2].map(|()| server.connect(Udp));
    register(&mut callee, "bob");
    limit_files(&mut server, 16 << 10);
    // Two rows per call: the files of both tables are full, and then the spool.
    let mut calls: Vec<String> = (0..60).map(|_| fails(&mut caller, &mut callee, 486)).collect();
    // Rows are written in groups, asynchronously.
    server.log_with("rows of accounting cannot be written");
    server.log_with("the spool of accounting cannot be written: rows wait in memory");
    assert_eq!(metric(&server, "strowger_accounting_down"), 1.0);
    limit_files(&mut server, libc::RLIM_INFINITY);
    calls.extend((0..3).map(|_| fails(&mut caller, &mut callee, 486)));
    are_of(&comes_to(&server, "cdr", 63), &calls);
    are_of(&comes_to(&server, "events", 63), &calls);
    assert_eq!(metric(&server, "strowger_accounting_dropped_total"), 0.0);
}

#[test]
fn old_rows_are_removed() {
    let mut server = setup("csv", "accounting.retention = \"30d\"").prepare();
    let folder = server.folder().join("rows");
    std::fs::create_dir(&folder).expect("the folder can be made");
    let old = folder.join("cdr-2020-01-01.csv");
    let other = folder.join("notes-2020-01-01.csv");
    for file in [&old, &other] {
        std::fs::write(file, "identity\r\n").expect("the folder can be written");
    }
    server.start();
    assert!(wait::until(WRITTEN, || !old.exists()), "{}", server.log());
    assert!(other.exists(), "it is none of ours");
}

/// An unusable place is an error of the start, with the file.
#[test]
fn a_database_of_another_program_is_refused_at_the_start() {
    let mut server = setup("sqlite", "").prepare();
    let theirs = rusqlite::Connection::open(server.folder().join("rows")).expect("it can be made");
    theirs.execute_batch("CREATE TABLE cdr (a)").expect("a table");
    assert_eq!(server.try_start().end(LIMIT).code(), Some(1));
    server.log_with("belongs to another program");
}

/// Each of the two servers would cut off rows of the other.
#[test]
fn two_servers_do_not_share_a_spool_or_a_folder() {
    let server = setup("json", "").start();
    let [path, spool] = ["rows", "rows.spool"].map(|name| server.folder().join(name));
    for (line, said) in [
        (format!("accounting.spool = {spool:?}"), "the spool of accounting cannot be used"),
        (format!("accounting.path = {path:?}"), "another server writes there"),
    ] {
        let lines = format!("accounting.cdr = true\naccounting.to = \"json\"\nstore.busy_timeout = \"100ms\"\n{line}");
        let mut other = Setup::on(&[Udp]).open_registrar().with(&lines).prepare();
        assert_eq!(other.try_start().end(LIMIT).code(), Some(1));
        other.log_with(said);
    }
}

/// The other party does not answer its BYE; this is written as an event, too.
#[test]
fn a_bye_that_fails_is_written() {
    let server = setup("json", "").start();
    let [mut caller, mut callee] = [(); 2].map(|()| server.connect(Udp));
    register(&mut callee, "bob");
    let call = invite("sip:bob@example.org", &caller);
    let (mut end, _) = set_up(&mut caller, &mut callee, &call, true);
    caller.send(&end.request("BYE").bytes()).expect("the server takes messages");
    let got = callee.request("BYE", LIMIT).expect("the BYE arrives");
    callee.send(&respond(&got, 481, "callee", &[contact("callee", &callee)])).expect("the server takes messages");
    let events = comes_to(&server, "events", 2);
    let told = ["event", "done_by", "status"].map(|name| events[1][name].as_str());
    assert_eq!(told, ["bye", "caller", "481"]);
    assert_eq!(comes_to(&server, "cdr", 1)[0]["ended_by"], "caller");
}
