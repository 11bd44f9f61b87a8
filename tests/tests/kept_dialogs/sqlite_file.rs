//! Kept calls in a SQLite file that is locked, made before, or damaged.

use super::*;

/// Another program may lock the file for a while, and a second server is refused.
#[test]
fn a_sqlite_file_that_is_locked_holds_up_no_call() {
    let mut server =
        Setup::on(&[Udp]).open_registrar().with(&in_a_file()).with("store.busy_timeout = \"100ms\"").start();
    let mut pair = Pair::new(&server, "bob");
    pair.call(5);
    keeps(&server, 5);
    let file = server.folder().join("calls.sqlite");
    let other = rusqlite::Connection::open(&file).expect("it is there");
    other.busy_timeout(LIMIT).expect("a time");
    other.execute_batch("BEGIN IMMEDIATE").expect("the lock is free for a moment");
    pair.call(5);
    let mut times = pair.end(2);
    assert!(wait::until(WRITTEN, || metric(&server, "strowger_kept_calls_down") == 1.0), "{}", server.log());
    server.log_with("database is locked");
    other.execute_batch("ROLLBACK").expect("it is ours");
    keeps(&server, 8);
    let count =
        other.query_row("SELECT count(*) FROM call WHERE closed = 0 AND length(state) > 100", [], |row| row.get(0));
    assert_eq!(count, Ok(8));

    let lines = format!("dialogs.database = \"sqlite:{}\"\ndialogs.track = true", file.display());
    let mut second = Setup::on(&[Udp]).open_registrar().with(&lines).with("store.busy_timeout = \"100ms\"").prepare();
    assert_eq!(second.try_start().end(LIMIT).code(), Some(1));
    second.log_with("another process keeps its state here");
    server.kill();
    server.start();
    times.extend(pair.end(8));
    is_empty(&server);
    are_written(&server, &times);
}

#[test]
fn the_sqlite_file_of_calls_can_be_made_before() {
    let mut server = Setup::on(&[Udp]).open_registrar().with(&in_a_file()).prepare();
    let file = server.folder().join("calls.sqlite");
    let (is_done, script) = db(&server, &["init", "--dry-run"]);
    assert!(is_done && script.contains("(calls)\nCREATE TABLE IF NOT EXISTS call ("), "{script}");
    assert!(!file.exists());
    let (is_done, said) = db(&server, &["init"]);
    let is_it = |text: &str, found: &str| {
        text.lines()
            .any(|line| line.contains("calls.sqlite  calls ") && line.contains(found) && line.ends_with("version 1"))
    };
    assert!(is_done && is_it(&said, "nothing") && file.exists(), "{said}");
    let (is_done, said) = db(&server, &["migrate"]);
    assert!(is_done && is_it(&said, "version 1 "), "{said}");
    server.start();
    keeps(&server, 0);
}

/// The server does not start without its calls if their file is unreadable.
#[test]
fn a_damaged_sqlite_file_is_an_error_of_the_start() {
    let mut server = Setup::on(&[Udp]).open_registrar().with(&in_a_file()).start();
    let mut pair = Pair::new(&server, "bob");
    pair.call(3);
    keeps(&server, 3);
    server.stop();
    let file = server.folder().join("calls.sqlite");
    std::fs::write(&file, "text in place of a database").expect("it can be written");
    assert_eq!(server.try_start().end(LIMIT).code(), Some(1));
    server.log_with("`dialogs.database`");
    server.log_with("restore it from a backup or move it away");
    std::fs::remove_file(&file).expect("it is there");
    server.start();
    assert_eq!(metric(&server, "strowger_calls_tracked"), 0.0);
}
