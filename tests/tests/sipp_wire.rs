//! Messages of `strowger sipp`, byte by byte, against those of SIPp 3.6.1: the same document, the same arguments, the
//! same ports, the same peer. Only the process id and named times are replaced. The counts of both (`-trace_stat`,
//! `-trace_counts`) must be equal too.
//!
//! Both play at once, each in its own network namespace where that is allowed, else one after the other.
//!
//! `STROWGER_WIRE=name,name` plays only these; `STROWGER_WIRE_SHOW=1` prints all messages of both;
//! `STROWGER_WIRE_FOLDER=FOLDER` plays the cases of another folder.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Instant;

use strowger_tests::binary;
use strowger_tests::duel::bench::leave;
use strowger_tests::duel::case::Case;
use strowger_tests::duel::{Played, Ports, play};
use strowger_tests::program::{self, SIPP};

/// Cases that differ on purpose, with the reason. Each is still played, and must still differ.
const EXCEPTIONS: &[(&str, &str)] = &[
    ("abort-routed", "the BYE of a call given up goes to the dialog's target by its routes, as SIPp does since 3.7"),
    ("next-url-comma", "SIPp puts a Contact with a display name whole into the Request-URI, which no server can read"),
    ("tcp-keep-alive", "CRLFCRLF over a stream is answered (RFC 5626 section 4.4.1)"),
    (
        "tcp-reset-callee",
        "one connection that is broken off ends all of SIPp; here its calls fail and the others go on",
    ),
    ("tcp-reset-per-call", "the same where each call has a connection of its own"),
    ("unexpected-ping", "after the answer to a PING SIPp never wakes the call again"),
];

/// Number of cases that run at a time: they mostly wait.
const AT_ONCE: usize = 20;

#[test]
fn every_message_is_that_of_sipp() {
    let _turn = strowger_tests::alone();
    if !program::have(&[SIPP]) {
        return;
    }
    let cases = cases();
    assert!(!cases.is_empty(), "no case has been chosen");
    let queue = Mutex::new(cases.iter());
    let verdicts = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let next = queue.lock().expect("nobody panics with it").next();
                    let Some(case) = next else { return };
                    let began = Instant::now();
                    let verdict = catch_unwind(|| judge(case)).unwrap_or_else(|_| Some("a panic, see above".into()));
                    let took = began.elapsed().as_secs_f64();
                    verdicts.lock().expect("nobody panics with it").insert(case.name.clone(), (verdict, took));
                }
            });
        }
    });
    let verdicts = verdicts.into_inner().expect("the threads have ended");
    let mut text = String::new();
    for (name, (verdict, _)) in &verdicts {
        let excused = EXCEPTIONS.iter().find(|(n, _)| n == name);
        match (verdict, excused) {
            (None, Some(_)) => {
                writeln!(text, "\n=== {name}: no exception any more, take it off the table").expect("text")
            }
            (Some(difference), None) => writeln!(text, "\n=== {name}: {difference}").expect("text"),
            _ => (),
        }
    }
    let wrong = text.matches("\n=== ").count();
    assert!(text.is_empty(), "{wrong} of {} cases differ\n{text}", verdicts.len());
    let excused = verdicts.values().filter(|(verdict, _)| verdict.is_some()).count();
    println!("{} cases equal, {excused} exceptions", verdicts.len() - excused);
    let mut longest: Vec<_> = verdicts.iter().map(|(name, (_, took))| (took, name)).collect();
    longest.sort_by(|a, b| b.0.total_cmp(a.0));
    let longest: Vec<String> = longest.iter().take(5).map(|(took, name)| format!("{name} {took:.1} s")).collect();
    println!("the longest: {}", longest.join(", "));
}

/// Returns the documents of `scenarios/wire`, all or those that the environment names.
fn cases() -> Vec<Case> {
    let own = || Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/wire");
    let folder = std::env::var_os("STROWGER_WIRE_FOLDER").map_or_else(own, PathBuf::from);
    let mut paths: Vec<PathBuf> =
        folder.read_dir().expect("the cases are there").map(|entry| entry.expect("a file").path()).collect();
    paths.sort();
    let chosen = std::env::var("STROWGER_WIRE").ok();
    paths.retain(|path| {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        chosen.as_ref().is_none_or(|chosen| chosen.split(',').any(|c| c == name))
    });
    paths.iter().map(|path| Case::read(path)).collect()
}

/// Returns the difference between the two programs, if any.
fn judge(case: &Case) -> Option<String> {
    let folders = tempfile::tempdir().expect("a temporary folder");
    let shared = OnceLock::new();
    let turn = Mutex::new(());
    let of = |name: &str, program: &[&Path]| {
        let folder = folders.path().join(name);
        std::fs::create_dir(&folder).expect("a temporary folder can be written");
        // Without network namespaces both use the same ports, one after the other.
        let apart = leave();
        let _turn = (!apart).then(|| turn.lock().unwrap_or_else(PoisonError::into_inner));
        let ports = if apart { Ports::OWN } else { *shared.get_or_init(Ports::free) };
        let played = play(case, program, ports, &folder);
        let log = std::fs::read_to_string(folder.join("program.log")).unwrap_or_default();
        (played, log)
    };
    let sipp = SIPP.path().expect("it is there");
    let ((mut theirs, their_log), (mut ours, our_log)) = std::thread::scope(|scope| {
        let theirs = scope.spawn(|| of("sipp", &[&sipp]));
        let ours = scope.spawn(|| of("strowger", &[binary::strowger(), Path::new("sipp")]));
        (theirs.join().expect("it plays"), ours.join().expect("it plays"))
    });
    Played::hide_both(&mut theirs, &mut ours);
    let ((_, theirs), (_, ours)) = (theirs, ours);
    if std::env::var_os("STROWGER_WIRE_SHOW").is_some() {
        eprintln!("##### {} SIPp\n{}##### {} strowger\n{}", case.name, show(&theirs), case.name, show(&ours));
    }
    // A case in which the oracle sends nothing proves nothing.
    if theirs.messages.is_empty() {
        return Some(format!("SIPp sent nothing\n{}", tail(&their_log)));
    }
    if theirs == ours {
        return None;
    }
    let mut text = difference(&theirs, &ours);
    let _ = write!(text, "\n--- SIPp printed\n{}\n--- strowger printed\n{}", tail(&their_log), tail(&our_log));
    Some(text)
}

fn show(played: &Played) -> String {
    let mut text = String::new();
    for message in &played.messages {
        let _ = writeln!(text, "{message}----");
    }
    let _ = writeln!(text, "in vain: {:?}, exit: {:?}", played.missed, played.exit);
    text
}

/// Returns the first message that differs, with its context.
fn difference(theirs: &Played, ours: &Played) -> String {
    let mut text = String::new();
    let of = |played: &Played| -> Vec<String> {
        played.messages.iter().map(|m| m.lines().next().unwrap_or_default().to_owned()).collect()
    };
    let _ = writeln!(text, "exit {:?} against {:?}", theirs.exit, ours.exit);
    if theirs.missed != ours.missed {
        let _ = writeln!(text, "in vain {:?} against {:?}", theirs.missed, ours.missed);
    }
    if of(theirs) != of(ours) {
        let _ = writeln!(text, "SIPp:     {:#?}\nstrowger: {:#?}", of(theirs), of(ours));
    }
    let missing = |here: &[String], there: &[String]| -> Vec<String> {
        here.iter().filter(|line| !there.contains(line)).cloned().collect()
    };
    if theirs.books != ours.books {
        let (a, b) = (missing(&theirs.books, &ours.books), missing(&ours.books, &theirs.books));
        let _ = writeln!(text, "SIPp counted {a:?}, strowger {b:?}");
    }
    let pairs = theirs.messages.iter().zip(&ours.messages).enumerate();
    if let Some((n, (a, b))) = pairs.into_iter().find(|(_, (a, b))| a != b) {
        let _ = writeln!(text, "message {} of SIPp:\n{a}\n--- of strowger:\n{b}", n + 1);
    }
    text
}

fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().filter(|l| !l.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(12)..].join("\n")
}
