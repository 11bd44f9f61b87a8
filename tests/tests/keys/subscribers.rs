//! Cached users, and their lifetime. Here stale answers are not used, however slow this machine is.

use std::process::Command;
use std::time::Duration;

use strowger_tests::account::authorized;
use strowger_tests::control;
use strowger_tests::process::Process;
use strowger_tests::program::{STRACE, have};
use strowger_tests::server::{Server, Setup};
use strowger_tests::text::Request;
use strowger_tests::wire::Transport::Tcp;
use strowger_tests::wire::Wire;

use super::{ask, code};

fn start(lines: &str, users: &[&str]) -> Server {
    let lines = format!("domains = [\"example.org\"]\nstore.serve_stale = \"0s\"\nban.enabled = false\n{lines}");
    let server = Setup::on(&[Tcp]).with(&lines).start();
    for user in users {
        server.add_user(&format!("{user}@example.org"), "the first password");
    }
    server
}

/// Returns the status of a REGISTER with this password.
fn register(wire: &mut Wire, user: &str, password: &str) -> u16 {
    let request = Request::register(user, "example.org", &format!("sip:{user}@127.0.0.1"), "tcp", wire.local());
    let challenge = ask(wire, &request);
    code(&ask(wire, &authorized(&request, &challenge, user, password)))
}

/// The server has not yet got the notice of the change.
#[test]
fn an_answer_is_good_for_its_lifetime() {
    let server = start("store.cache_lifetime = \"0s\"", &["bob"]);
    let mut wire = server.connect(Tcp);
    assert_eq!(register(&mut wire, "bob", "the first password"), 200);
    server.set_password("bob@example.org", "the second password");
    assert_eq!(register(&mut wire, "bob", "the second password"), 200);
    assert_eq!(register(&mut wire, "ann", "a password"), 401);
    server.add_user("ann@example.org", "a password");
    assert_eq!(register(&mut wire, "ann", "a password"), 200);
}

/// The cache has 16 parts of at least two answers. Answers "there is none" have as much room of their own.
#[test]
fn so_many_answers_are_kept() {
    let users: Vec<String> = (0..128).map(|n| format!("user{n}")).collect();
    let names: Vec<&str> = users.iter().map(String::as_str).collect();
    for (lines, is_tiny) in [("store.cache_entries = 1", true), ("", false)] {
        let server = start(lines, &names);
        let mut wire = server.connect(Tcp);
        for user in &users {
            assert_eq!(register(&mut wire, user, "the first password"), 200);
            assert_eq!(register(&mut wire, &format!("no-{user}"), "a password"), 401);
        }
        for (name, most) in [("strowger_lookups_cached", 64.0), ("strowger_lookups_cached_absent", 32.0)] {
            let kept = control::metric(&server, name);
            assert!(kept > 0.0 && (kept <= most) == is_tiny, "{name}: {kept} with {lines:?}");
        }
    }
}

/// The kernel delays the reading thread beyond the limit of a look-up.
#[test]
fn a_look_up_that_takes_too_long_fails() {
    if !have(&[STRACE]) {
        return;
    }
    let mut server = start("store.lookup_timeout = \"100ms\"", &["bob"]);
    let process = server.process().id();
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).expect("the process lives");
    let reader = tasks
        .flatten()
        .map(|task| task.path())
        .find(|task| std::fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.trim() == "subscriber-read"));
    let reader = reader.expect("there is such a thread");
    let id = reader.file_name().expect("a number").to_string_lossy().into_owned();
    let mut strace = Command::new(STRACE.path().expect("it is there"));
    strace.args(["-e", "trace=fcntl,pread64", "-e", "inject=fcntl,pread64:delay_enter=1000000", "-p", &id]);
    let mut strace = Process::start("strace", server.folder(), &mut strace);
    strace.wait_for("attached", 1, Duration::from_secs(10));
    let mut wire = server.connect(Tcp);
    assert_eq!(register(&mut wire, "bob", "the first password"), 500);
}
