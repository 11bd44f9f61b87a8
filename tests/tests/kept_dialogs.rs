//! Calls that continue over a restart, whatever ended the earlier process: their parties end them, limits count them,
//! and each has one accounting row.

mod pair;
mod sqlite_file;

pub(crate) use self::pair::{Pair, Times};

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::accounting::in_the_spool;
use crate::sql_rows::db;
use strowger_tests::call::register;
use strowger_tests::control::{done, metric};
use strowger_tests::dialog::{End, invite, set_up};
use strowger_tests::limits::{SmallDisk, limit_files};
use strowger_tests::server::{Server, Setup};
use strowger_tests::stopwatch::Stopwatch;
use strowger_tests::text::{Request, field, method, respond, status};
use strowger_tests::wait;
use strowger_tests::wire::Transport::{Tcp, Udp};
use strowger_tests::wire::Wire;

const LIMIT: Duration = Duration::from_secs(10);
/// Time limit of writing.
const WRITTEN: Duration = Duration::from_secs(20);
/// Time until a UDP retransmission (RFC 3261 section 17.1.1.1).
const T1: Duration = Duration::from_millis(500);

const KEPT: &str = "dialogs.folder = \"calls\"\naccounting.cdr = true\n\
                    accounting.path = \"rows\"\naccounting.spool = \"rows.spool\"\naccounting.group_interval = \"10ms\"\n";

/// Returns the same settings with a SQLite file.
fn in_a_file() -> String {
    KEPT.replace("folder = \"calls\"", "database = \"sqlite:calls.sqlite\"")
}

fn setup(more: &str) -> Setup {
    Setup::on(&[Udp, Tcp]).open_registrar().with(KEPT).with(more)
}

/// Returns milliseconds since 1970.
fn wall() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64)
}

/// Waits until the states of this many calls are written.
#[track_caller]
pub(crate) fn keeps(server: &Server, calls: usize) {
    let is_so = wait::until(WRITTEN, || {
        metric(server, "strowger_kept_calls") == calls as f64 && metric(server, "strowger_kept_calls_pending") == 0.0
    });
    assert!(is_so, "{}", server.log());
}

/// Waits until no call is known any more.
#[track_caller]
pub(crate) fn is_empty(server: &Server) {
    let names = ["strowger_calls_tracked", "strowger_dialogs_confirmed", "strowger_kept_calls"];
    let is_so = wait::until(WRITTEN, || names.iter().all(|name| metric(server, name) == 0.0));
    assert!(is_so, "{:?}\n{}", names.map(|name| metric(server, name)), server.log());
}

/// Returns Call-ID, milliseconds of answer and end, and the ending party of each row.
fn rows(server: &Server) -> Vec<(String, u64, u64, String)> {
    let database = rusqlite::Connection::open(server.folder().join("rows")).expect("it can be opened");
    database.busy_timeout(LIMIT).expect("a time");
    let mut all = database
        .prepare("SELECT call_id, coalesce(answer_at, 0), coalesce(end_at, 0), ended_by FROM cdr ORDER BY rowid")
        .expect("the table is there");
    let number = |row: &rusqlite::Row<'_>, n| row.get::<_, i64>(n).map(i64::cast_unsigned);
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, number(row, 1)?, number(row, 2)?, row.get(3)?));
    all.query_map([], read).expect("it can be read").map(|row| row.expect("a row")).collect()
}

/// Asserts that each of these calls has one row, with its times.
#[track_caller]
pub(crate) fn are_written(server: &Server, calls: &Times) {
    let mut all = Vec::new();
    let is_so = wait::until(WRITTEN, || {
        all = rows(server);
        all.len() >= calls.len()
    });
    assert!(is_so && all.len() == calls.len(), "{} rows of {}\n{}", all.len(), calls.len(), server.log());
    let mut seen = HashMap::new();
    for (call_id, answer, end, by) in all {
        assert_eq!(seen.insert(call_id.clone(), ()), None, "{call_id} twice");
        let (answered, ended) = calls[&call_id];
        let is_true = |written: u64, was: u64| written.abs_diff(was) <= 1_000;
        assert!(
            is_true(answer, answered) && is_true(end, ended) && is_true(end - answer, ended - answered),
            "{call_id}: {answer} to {end}, not {answered} to {ended}"
        );
        assert!(by == "caller" || by == "callee", "{by}");
    }
}

#[test]
fn calls_that_a_kill_interrupts_end_in_the_next_process() {
    outlive_a_kill(KEPT);
}

#[test]
fn calls_kept_in_a_sqlite_file_outlive_a_kill() {
    outlive_a_kill(&in_a_file());
}

fn outlive_a_kill(kept: &str) {
    const CALLS: usize = 500;
    let limited = format!(
        "server.shards = 2\n[[call_limit]]\nname = \"all\"\nmost = {CALLS}\nstatus = 486\n\
         [[rule]]\nname = \"all\"\ncall_limits = [\"all\"]\n"
    );
    let mut server = Setup::on(&[Udp, Tcp]).open_registrar().with(kept).with(&limited).start();
    let mut pair = Pair::new(&server, "bob");
    pair.call(CALLS);
    keeps(&server, CALLS);
    server.kill();
    let began = Stopwatch::start();
    server.start();
    assert!(began.took().is_below(Duration::from_secs(5)), "{:?}", began.took());
    server.log_with(&format!("calls={CALLS}"));
    assert_eq!(metric(&server, "strowger_dialogs_confirmed"), CALLS as f64);
    // The limit still counts the calls.
    let more = invite("sip:bob@example.org", &pair.caller);
    pair.caller.send(&more.bytes()).expect("the server takes messages");
    let refused = pair.caller.final_response(LIMIT).expect("it is answered");
    assert_eq!(status(&refused), Some(486));
    pair.caller.send(&more.ack(&refused).bytes()).expect("the server takes messages");
    let listed = done(&server, &["calls", "list"]);
    assert!(listed.lines().count() >= CALLS, "{listed}");

    let mut times = pair.end(CALLS);
    is_empty(&server);
    let shown = done(&server, &["status"]);
    assert!(shown.lines().any(|line| line.contains("kept calls") && line.contains("0 kept")), "{shown}");
    // The limit has room again, and the next kill finds no calls.
    pair.call(1);
    times.extend(pair.end(1));
    // The refused call was unauthenticated, and has no row.
    are_written(&server, &times);
    keeps(&server, 0);
    server.kill();
    server.start();
    assert_eq!(metric(&server, "strowger_calls_tracked"), 0.0);
}

#[test]
fn a_call_that_ended_just_before_a_kill_ends_in_the_next_process() {
    for kept in [KEPT, &in_a_file()] {
        end_just_before_a_kill(kept);
    }
}

/// The BYE of a call is answered, and the process is killed before it has written the end. The next process asks both
/// parties.
fn end_just_before_a_kill(kept: &str) {
    let limited =
        "[[call_limit]]\nname = \"all\"\nmost = 1\nstatus = 486\n[[rule]]\nname = \"all\"\ncall_limits = [\"all\"]\n";
    let mut server = Setup::on(&[Udp, Tcp]).open_registrar().with(kept).with(limited).start();
    let mut pair = Pair::new(&server, "bob");
    pair.call(1);
    keeps(&server, 1);
    let began = wall();
    pair.end(1);
    server.kill();
    server.start();
    assert_eq!(metric(&server, "strowger_calls_tracked"), 1.0, "{}", server.log());
    for wire in [&mut pair.caller, &mut pair.callee] {
        let question = wire.request("OPTIONS", LIMIT).expect("each party is asked");
        wire.send(&respond(&question, 481, "", &[])).expect("the server takes messages");
    }
    for wire in [&mut pair.caller, &mut pair.callee] {
        let bye = wire.request("BYE", LIMIT).expect("each party gets a BYE");
        wire.send(&respond(&bye, 481, "", &[])).expect("the server takes messages");
    }
    is_empty(&server);
    let mut all = Vec::new();
    assert!(wait::until(WRITTEN, || {
        all = rows(&server);
        !all.is_empty()
    }));
    let [(_, _, end, by)] = &all[..] else { panic!("{all:?}") };
    assert!(by == "lost" && *end < began + 30_000, "{by} {end} {began}");
    // The limit has room again.
    pair.call(1);
    pair.end(1);
}

#[test]
fn a_shutdown_leaves_calls_to_the_next_process() {
    let mut server = setup("").start();
    let mut pair = Pair::new(&server, "bob");
    pair.call(20);
    let mut times = pair.end(4);
    server.stop();
    assert_eq!(rows(&server).len(), 4, "none is cut off");
    server.start();
    assert_eq!(metric(&server, "strowger_calls_tracked"), 16.0);
    times.extend(pair.end(16));
    are_written(&server, &times);
    is_empty(&server);
}

/// Rows wait for their group, and a kill would lose waiting rows.
#[test]
fn calls_that_end_just_before_a_kill_have_their_rows_once() {
    for interval in ["60s", "1ms"] {
        // The second process has written the rows, and must not write them again.
        let lines =
            KEPT.replace("accounting.group_interval = \"10ms\"", &format!("accounting.group_interval = {interval:?}"));
        for to in ["sqlite", "json"] {
            let mut server =
                Setup::on(&[Udp]).open_registrar().with(&lines).with(&format!("accounting.to = \"{to}\"")).start();
            let mut pair = Pair::new(&server, "bob");
            pair.call(10);
            let times = pair.end(10);
            let count = || match to {
                "sqlite" => rows(&server).len(),
                _ => lines_of(&server.folder().join("rows")).len(),
            };
            assert!(wait::until(WRITTEN, || metric(&server, "strowger_kept_calls_pending") == 0.0));
            assert!(interval == "60s" || wait::until(WRITTEN, || count() == 10));
            server.kill();
            if interval == "60s" {
                server.rewrite("group_interval = \"60s\"", "group_interval = \"10ms\"");
            }
            server.start();
            let count = || match to {
                "sqlite" => rows(&server).len(),
                _ => lines_of(&server.folder().join("rows")).len(),
            };
            assert!(wait::until(WRITTEN, || count() >= 10), "{to} {interval}: {}\n{}", count(), server.log());
            assert!(wait::until(WRITTEN, || metric(&server, "strowger_accounting_spool_rows") == 0.0));
            assert_eq!(count(), 10, "{to} {interval}");
            if to == "sqlite" {
                are_written(&server, &times);
            }
        }
    }
}

/// At the kill, the spool has rows that the last words of their calls also contain.
#[test]
fn rows_that_the_spool_has_are_written_once() {
    let mut server = setup("accounting.to = \"json\"").start();
    let mut pair = Pair::new(&server, "bob");
    pair.call(10);
    let folder = server.folder().join("rows");
    std::fs::remove_dir_all(&folder).expect("it is there");
    std::fs::write(&folder, "in its place").expect("the folder can be written");
    pair.end(10);
    in_the_spool(&server, 10.0);
    assert!(wait::until(WRITTEN, || metric(&server, "strowger_kept_calls_pending") == 0.0));
    server.kill();
    std::fs::remove_file(&folder).expect("it is there");
    server.start();
    assert!(wait::until(WRITTEN, || metric(&server, "strowger_accounting_written_total") >= 10.0), "{}", server.log());
    assert!(wait::until(WRITTEN, || metric(&server, "strowger_accounting_spool_rows") == 0.0));
    assert_eq!(lines_of(&folder).len(), 10, "{}", server.log());
}

/// Returns the lines of all files of a folder.
fn lines_of(folder: &Path) -> Vec<String> {
    let files = std::fs::read_dir(folder).map(|entries| entries.map(|entry| entry.expect("an entry").path()).collect());
    let files: Vec<PathBuf> = files.unwrap_or_default();
    let read = |path: &PathBuf| std::fs::read_to_string(path).expect("it can be read");
    files.iter().flat_map(|path| read(path).lines().map(str::to_owned).collect::<Vec<_>>()).collect()
}

#[test]
fn a_full_disk_is_reported_and_what_could_not_be_written_follows() {
    follow_on_a_full_disk(KEPT);
}

#[test]
fn a_full_disk_under_a_sqlite_file_is_reported_and_what_could_not_be_written_follows() {
    follow_on_a_full_disk(&in_a_file());
}

fn follow_on_a_full_disk(kept: &str) {
    // The signal of a file at its limit would end the process.
    let ignores = ["sh", "-c", "trap '' XFSZ; exec \"$0\" \"$@\""];
    let quiet = "log.calls_per_minute = 0\nlog.registrations_per_minute = 0\ndialogs.track = true";
    let lines = kept.replace("accounting.cdr = true", "accounting.cdr = false");
    let mut server = Setup::on(&[Udp]).open_registrar().with(&lines).with(quiet).under(&ignores).start();
    let mut pair = Pair::new(&server, "bob");
    limit_files(&mut server, 16 << 10);
    pair.call(100);
    assert!(wait::until(WRITTEN, || metric(&server, "strowger_kept_calls_down") == 1.0), "{}", server.log());
    server.log_with("state not kept: it waits in memory");
    assert!(metric(&server, "strowger_kept_calls_pending") > 0.0);
    pair.end(20);
    pair.call(10);
    limit_files(&mut server, libc::RLIM_INFINITY);
    keeps(&server, 90);
    server.log_with("state is kept again");
    assert_eq!(metric(&server, "strowger_kept_calls_down"), 0.0);
    server.kill();
    server.start();
    assert_eq!(metric(&server, "strowger_calls_tracked"), 90.0);
    pair.end(90);
    is_empty(&server);
}

#[test]
fn calls_outlive_a_restart_on_a_full_disk() {
    let Some(disk) = SmallDisk::mount("1m") else { return };
    let calls = disk.folder().join("calls");
    let lines = KEPT.replace("\"calls\"", &format!("{calls:?}"));
    let mut server = Setup::on(&[Udp]).open_registrar().with(&lines).start();
    let mut pair = Pair::new(&server, "bob");
    pair.call(3);
    keeps(&server, 3);
    server.kill();
    disk.fill();
    server.start();
    assert_eq!(metric(&server, "strowger_calls_tracked"), 3.0);
    let mut times = pair.end(1);
    assert!(wait::until(WRITTEN, || metric(&server, "strowger_kept_calls_down") == 1.0), "{}", server.log());
    disk.free();
    keeps(&server, 2);
    server.kill();
    server.start();
    assert_eq!(metric(&server, "strowger_calls_tracked"), 2.0);
    times.extend(pair.end(2));
    is_empty(&server);
    are_written(&server, &times);
}

fn segments(server: &Server) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(server.folder().join("calls")).expect("the folder is there");
    let mut files: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.retain(|file| file.extension().is_some_and(|ending| ending == "segment"));
    files.sort();
    files
}

#[test]
fn a_damaged_record_is_reported_and_the_other_calls_go_on() {
    let mut server = setup("").start();
    let mut pair = Pair::new(&server, "bob");
    pair.call(20);
    keeps(&server, 20);
    server.kill();
    let segment = segments(&server).pop().expect("there is one");
    let mut bytes = std::fs::read(&segment).expect("it can be read");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    std::fs::write(&segment, bytes).expect("it can be written");
    server.start();
    server.log_with("kept calls damaged");
    let tracked = metric(&server, "strowger_calls_tracked");
    assert!((1.0..20.0).contains(&tracked), "{tracked}\n{}", server.log());
}

#[test]
fn two_processes_do_not_share_a_folder() {
    let server = setup("").start();
    let calls = server.folder().join("calls");
    let lines = format!("dialogs.folder = {calls:?}\ndialogs.track = true\nstore.busy_timeout = \"100ms\"");
    let mut other = Setup::on(&[Udp]).open_registrar().with(&lines).prepare();
    assert_eq!(other.try_start().end(LIMIT).code(), Some(1));
    other.log_with("another process keeps its state here");
}

/// States written with one secret are unusable with another: this is logged.
#[test]
fn calls_of_another_secret_are_reported() {
    let mut server = setup("auth.secret = \"one secret of many letters\"").start();
    let mut pair = Pair::new(&server, "bob");
    pair.call(3);
    keeps(&server, 3);
    server.kill();
    server.rewrite("one secret", "another secret");
    server.start();
    server.log_with("kept calls are of another secret");
    assert_eq!(metric(&server, "strowger_calls_tracked"), 3.0);
}

/// Acceptance test at full size, with the required figures.
#[test]
#[ignore = "takes minutes; make test-dialogs"]
fn a_hundred_thousand_calls_outlive_a_kill() {
    for kept in [KEPT, &in_a_file()] {
        println!("{}", kept.lines().next().unwrap_or_default());
        many_outlive_a_kill(kept);
    }
}

/// Bound of the memory of a call, in bytes of PSS. A third of it on a slow machine are half-empty pages of earlier
/// transactions; benches/src/bin/memory_calls.rs measures a call by itself.
const MEMORY: f64 = 1_280.0;

fn many_outlive_a_kill(kept: &str) {
    const PAIRS: usize = 4;
    let calls: usize =
        std::env::var("STROWGER_DIALOGS").map_or(100_000, |text| text.parse().expect("STROWGER_DIALOGS is a number"));
    let quiet = "log.calls_per_minute = 0\nlog.registrations_per_minute = 0\nlog.statistics = \"never\"";
    let mut server = Setup::on(&[Udp, Tcp]).open_registrar().with(kept).with(quiet).start();
    let mut pairs: Vec<Pair> = (0..PAIRS).map(|n| Pair::new(&server, &format!("bob{n}"))).collect();
    let each = |pairs: &mut [Pair], work: &(dyn Fn(&mut Pair) -> Times + Sync)| {
        std::thread::scope(|scope| {
            let threads: Vec<_> = pairs.iter_mut().map(|pair| scope.spawn(|| work(pair))).collect();
            threads.into_iter().flat_map(|thread| thread.join().expect("it ends")).collect::<Times>()
        })
    };
    let call = |count: usize| {
        move |pair: &mut Pair| {
            pair.call(count);
            Times::new()
        }
    };
    // Warm-up: memory that the first calls allocate permanently.
    each(&mut pairs, &call(50));
    let mut times = each(&mut pairs, &|pair| pair.end(50));
    let rest = |server: &mut Server| {
        let limit = Duration::from_secs(120);
        let names = ["strowger_server_transactions", "strowger_client_transactions"];
        assert!(wait::until(limit, || names.iter().all(|name| metric(server, name) == 0.0)));
        server.process().pss()
    };
    let before = rest(&mut server);
    each(&mut pairs, &call(calls / PAIRS));
    keeps(&server, calls);
    let after = rest(&mut server);
    let memory = (after - before) as f64 / calls as f64;
    let disk = metric(&server, "strowger_kept_calls_bytes") / calls as f64;
    println!("{calls} dialogs: {memory:.0} bytes each in memory, {disk:.0} on disk");

    server.kill();
    let began = Stopwatch::start();
    server.start();
    let took = began.took();
    println!("restart after a kill with them: {:.2?}; memory then {} KiB", took.elapsed, server.process().pss() >> 10);
    assert_eq!(metric(&server, "strowger_dialogs_confirmed"), calls as f64);
    times.extend(each(&mut pairs, &|pair| pair.end(calls / PAIRS)));
    assert!(wait::until(LIMIT, || rows(&server).len() == times.len()), "{} rows", rows(&server).len());
    are_written(&server, &times);
    is_empty(&server);
    assert!(took.is_below(Duration::from_secs(2)), "{took:?}");
    assert!(memory <= MEMORY, "{memory:.0} bytes");
}
