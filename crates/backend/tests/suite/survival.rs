//! Acknowledged changes survive: `kill -9` with the default durability, a trace that proves the sync before a ticket
//! comes back with `PowerLoss`, and real full disks.
//!
//! The process that dies is this test binary again, running [`child`] alone.

use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use strowger_backend::sqlite::{SqliteBindings, SqliteSettings};
use strowger_store::binding::Binding;
use strowger_store::clock::{Clock, Moment};
use strowger_store::error::StoreError;
use strowger_store::journal::{Durability, Journal, JournalSettings};
use strowger_store::location::{ExistingBindings, LocationSettings, LocationTable, Step};
use strowger_store::ticket::Ticket;

const AORS: u64 = 3000;
const FILE: &str = "STROWGER_TEST_STORE_FILE";
const MODE: &str = "STROWGER_TEST_STORE_MODE";

fn now_ms() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

fn start(path: &Path, durability: Durability) -> (Arc<LocationTable>, Journal, usize) {
    let table = Arc::new(LocationTable::new(LocationSettings::default()));
    let engine = SqliteBindings::open(&SqliteSettings { durability, ..SqliteSettings::new(path) }).unwrap();
    let clock: Clock = Arc::new(|| Moment { mono: now_ms(), wall: now_ms() });
    let (journal, loaded) = Journal::start(engine, &table, JournalSettings::default(), clock).unwrap();
    (table, journal, loaded)
}

/// Registers `n`: its address-of-record has one contact, whose URI contains the last `n`.
fn register(table: &LocationTable, ticket: Ticket, n: u64) -> bool {
    let aor = format!("sip:user{}@example.com", n % AORS);
    let uri = format!("sip:{n}@192.0.2.1");
    let now = now_ms();
    let decide = |current: &ExistingBindings<'_>| {
        let b = Binding { uri: uri.as_bytes(), expires_at: now + 600_000, ..Binding::EMPTY };
        Ok::<_, ()>(vec![current.iter().next().map_or(Step::Add(b), |old| Step::Replace(old.id(), b))])
    };
    table.update(aor.as_bytes(), now, 1, ticket, decide).is_ok()
}

fn last_of(table: &LocationTable, aor: u64) -> Option<u64> {
    let mut last = None;
    table.lookup(format!("sip:user{aor}@example.com").as_bytes(), now_ms(), &mut |b| {
        let uri = std::str::from_utf8(b.uri()).unwrap();
        last = uri.strip_prefix("sip:").and_then(|u| u.split('@').next()).and_then(|n| n.parse().ok());
    });
    last
}

fn command(mode: &str, file: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "survival::child", "--nocapture", "--test-threads=1"]);
    command.env(FILE, file).env(MODE, mode).stdout(Stdio::piped());
    command
}

/// Runs as the other process; if it is run as a test, it does nothing.
#[test]
#[ignore = "started by the other tests in a process of its own"]
fn child() {
    let Ok(file) = std::env::var(FILE) else { return };
    let mode = std::env::var(MODE).unwrap();
    // Ends the line that the test harness began.
    println!();
    let durability = if mode == "power-loss" { Durability::PowerLoss } else { Durability::Crash };
    let (table, journal, _) = start(Path::new(&file), durability);
    let (tx, rx) = mpsc::channel();
    // The thread of the writer prints this: in a trace the line follows the system calls of the commit.
    let sink = journal.receiver(Arc::new(move |results: &[(u64, Result<(), StoreError>)]| {
        let mut lines = Vec::new();
        for (n, result) in results {
            match result {
                Ok(()) => writeln!(lines, "kept {n}").unwrap(),
                Err(error) => writeln!(lines, "failed {n} {error}").unwrap(),
            }
        }
        std::io::stdout().write_all(&lines).unwrap();
        std::io::stdout().flush().unwrap();
        let _gone = tx.send(results.len());
    }));
    match mode.as_str() {
        // 5,000 registrations per second until the kill.
        "crash" => {
            let start = Instant::now();
            for n in 0.. {
                let due = Duration::from_micros(200 * n);
                if let Some(wait) = due.checked_sub(start.elapsed()) {
                    // The rate of 5,000 per second.
                    std::thread::sleep(wait);
                }
                register(&table, Ticket { sink, value: n }, n);
            }
        }
        // The changes are made one after the other.
        "power-loss" => {
            for n in 0..20 {
                register(&table, Ticket { sink, value: n }, n);
                rx.recv_timeout(Duration::from_secs(30)).unwrap();
            }
        }
        // Registers until the disk is full, and again when it has space.
        "full" => {
            let filler = Path::new(&file).with_file_name("filler");
            let (mut n, mut failures) = (0, 0);
            while failures < 3 {
                for _ in 0..200 {
                    register(&table, Ticket { sink, value: n }, n);
                    n += 1;
                }
                // The interval of checks.
                std::thread::sleep(Duration::from_millis(20));
                failures = journal.gauges().failed.min(3);
            }
            std::fs::remove_file(filler).unwrap();
            println!("room");
            for _ in 0..200 {
                register(&table, Ticket { sink, value: n }, n);
                n += 1;
            }
            journal.close();
            for aor in 0..AORS {
                if let Some(n) = last_of(&table, aor) {
                    println!("memory {aor} {n}");
                }
            }
        }
        other => panic!("no such mode: {other}"),
    }
}

fn lines(child: &mut Child) -> impl Iterator<Item = String> + use<> {
    BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok)
}

fn kept(line: &str) -> Option<u64> {
    line.strip_prefix("kept ").and_then(|n| n.parse().ok())
}

#[test]
fn kill_9_loses_nothing_that_was_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("strowger.db");
    let mut child = command("crash", &file).spawn().unwrap();
    let mut out = lines(&mut child);
    let mut acknowledged: Vec<u64> = Vec::new();
    // Well into the second and third refresh of each binding.
    while acknowledged.len() < 8000 {
        let line = out.next().expect("the child runs until it is killed");
        acknowledged.extend(kept(&line));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    acknowledged.extend(out.filter_map(|line| kept(&line)));

    let (table, _journal, loaded) = start(&file, Durability::Crash);
    assert_eq!(loaded, AORS as usize);
    for n in &acknowledged {
        let last = last_of(&table, n % AORS);
        assert!(last.is_some_and(|last| last >= *n), "{n} was acknowledged, {last:?} is there");
    }
    println!("{} acknowledged, none lost", acknowledged.len());
}

#[test]
fn with_power_loss_the_disk_has_it_before_the_ticket_comes() {
    if Command::new("strace").arg("-V").output().is_err() {
        println!("NOT TESTED: strace is missing, so nothing proves that the log is synced before a ticket comes back");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (file, trace) = (dir.path().join("strowger.db"), dir.path().join("trace"));
    let inner = command("power-loss", &file);
    let status = Command::new("strace")
        .args(["-f", "-y", "-e", "trace=fsync,fdatasync,write", "-o"])
        .arg(&trace)
        .arg(inner.get_program())
        .args(inner.get_args())
        .envs(inner.get_envs().filter_map(|(k, v)| v.map(|v| (k, v))))
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
    let trace = std::fs::read_to_string(trace).unwrap();
    let (mut synced, mut tickets) = (false, 0);
    let mut syncing = std::collections::HashSet::new();
    for line in trace.lines() {
        let (thread, call) = line.split_once(' ').unwrap();
        let call = call.trim_start();
        let begins = ["fsync(", "fdatasync("].iter().any(|name| call.starts_with(name));
        let resumes = call.starts_with("<... fsync resumed>") || call.starts_with("<... fdatasync resumed>");
        if begins && call.contains("strowger.db-wal") {
            syncing.insert(thread);
        }
        if (begins || resumes) && call.trim_end().ends_with("= 0") && syncing.remove(thread) {
            synced = true;
        }
        if call.contains("\"kept ") {
            assert!(synced, "ticket {tickets} came back before the log was synced:\n{line}");
            (synced, tickets) = (false, tickets + 1);
        }
    }
    assert_eq!(tickets, 20);
}

#[test]
fn a_full_disk_fails_loudly_and_the_writer_goes_on_when_there_is_room() {
    let dir = tempfile::tempdir().unwrap();
    // A file system of 3 MB in its own mount namespace, half of it taken by a filler.
    let script =
        "mount -t tmpfs -o size=3m tmpfs \"$DIR\" && head -c 1500000 /dev/zero > \"$DIR/filler\" && exec \"$@\"";
    let probe = Command::new("unshare").args(["-rm", "sh", "-c", "mount -t tmpfs -o size=1m tmpfs /mnt"]).output();
    if !probe.is_ok_and(|o| o.status.success()) {
        println!("NOT TESTED: no mount namespace may be made here, so no disk is really full");
        return;
    }
    let file = dir.path().join("strowger.db");
    let inner = command("full", &file);
    let mut child = Command::new("unshare")
        .args(["-rm", "sh", "-c", script, "sh"])
        .arg(inner.get_program())
        .args(inner.get_args())
        .envs(inner.get_envs().filter_map(|(k, v)| v.map(|v| (k, v))))
        .env("DIR", dir.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut expected = std::collections::BTreeMap::new();
    let mut memory = std::collections::BTreeMap::new();
    let (mut failed, mut room, mut after) = (0, false, 0);
    for line in lines(&mut child) {
        if let Some(n) = kept(&line) {
            expected.insert(n % AORS, n);
            after += u64::from(room);
        } else if line.starts_with("failed ") {
            assert!(line.ends_with("no room in the database") || line.contains("earlier change"), "{line}");
            failed += 1;
        } else if line == "room" {
            room = true;
        } else if let Some(pair) = line.strip_prefix("memory ") {
            let (aor, n) = pair.split_once(' ').unwrap();
            memory.insert(aor.parse::<u64>().unwrap(), n.parse::<u64>().unwrap());
        }
    }
    assert!(child.wait().unwrap().success());
    assert!(failed > 0);
    assert!(after > 0, "the writer did not go on");
    assert_eq!(memory, expected, "memory holds what was acknowledged, no more and no less");
}
