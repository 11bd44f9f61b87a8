//! Every file and folder that a server creates is accessible to its user alone.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use strowger_tests::call::exchange;
use strowger_tests::credential_cache::add_alice;
use strowger_tests::dialog::invite;
use strowger_tests::server::{Server, Setup};
use strowger_tests::text::status;
use strowger_tests::wait;
use strowger_tests::wire::Transport::Tcp;

const SOON: Duration = Duration::from_secs(10);

/// Returns the relative paths below a folder, with their modes.
fn modes(folder: &Path) -> BTreeMap<String, u32> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).expect("a folder of the test") {
            let path = entry.expect("and its entry").path();
            // SQLite may remove its -wal and -shm files meanwhile.
            let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
            let name = path.strip_prefix(folder).expect("it lies below").display().to_string();
            found.insert(name, metadata.permissions().mode() & 0o777);
            folders.extend(metadata.is_dir().then_some(path));
        }
    }
    found
}

/// Prepares a server with umask 000: only the server itself can make its files private.
fn setup(lines: &str) -> Server {
    let lines = format!(
        "domains = [\"example.org\"]\nban.enabled = false\nauth.calls = false\nauth.credential_cache = \"near\"\n\
         cache = [{{ name = \"near\", folder = \"made/cache\" }}]\ndialogs.folder = \"calls\"\n\
         store.busy_timeout = \"10ms\"\naccounting.cdr = true\naccounting.path = \"rows\"\naccounting.spool = \"rows.spool\"\n\
         accounting.group_interval = \"10ms\"\n{lines}"
    );
    let open = ["sh", "-c", "umask 000; exec \"$0\" \"$@\""];
    Setup::on(&[Tcp]).with(&lines).under(&open).prepare()
}

/// Makes a call that the server answers itself, so that a row is written.
fn fails(server: &Server) {
    let mut wire = server.connect(Tcp);
    let call = invite("sip:bob@example.org", &wire);
    assert_eq!(status(&exchange(&mut wire, &call)), Some(404));
}

/// Waits until these files exist, and checks that every new file is accessible to the server's user alone.
#[track_caller]
fn are_private(server: &Server, before: &BTreeMap<String, u32>, names: &[&str]) {
    // Names of segments and days have a suffix, and a lock file may exist before the file that it locks.
    let is_it = |found: &str, name: &str| found == name || (name.ends_with(['0', '-']) && found.starts_with(name));
    let is_there = |name: &&str| modes(server.folder()).keys().any(|found| is_it(found, name));
    let all_are = wait::until(SOON, || names.iter().all(&is_there));
    let found = modes(server.folder());
    assert!(all_are, "of {names:?}: {found:?}\n{}", server.log());
    assert_eq!(open_to_others(server, before), [], "of {found:?}");
}

/// Returns the new files that other users can access, with their modes.
fn open_to_others(server: &Server, before: &BTreeMap<String, u32>) -> Vec<(String, u32)> {
    let made = modes(server.folder()).into_iter();
    let made = made.filter(|(name, _)| !before.contains_key(name) && name != "strowger.log");
    let right = |name: &str| if server.folder().join(name).is_dir() { 0o700 } else { 0o600 };
    made.filter(|(name, mode)| *mode != right(name)).collect()
}

#[test]
fn what_a_server_makes_is_its_users_alone() {
    let mut server = setup("");
    let before = modes(server.folder());
    server.start();
    let rows = rusqlite::Connection::open(server.folder().join("rows")).expect("it is there");
    rows.busy_timeout(SOON).expect("a time");
    rows.execute_batch("BEGIN IMMEDIATE").expect("the lock is free for a moment");
    add_alice(&server);
    fails(&server);
    let names = [
        "made",
        "made/cache",
        "made/cache/0",
        "made/cache/lock",
        "calls",
        "calls/0",
        "calls/lock",
        "rows",
        "rows-shm",
        "rows-wal",
        "rows.spool",
        "rows.spool-lock",
        "test.control",
        "test.secret",
        "test.sqlite",
        "test.sqlite-lock",
        "test.sqlite-shm",
        "test.sqlite-wal",
    ];
    are_private(&server, &before, &names);

    // The next start closes files that an earlier version left open to others; an empty spool stays closed to the server too.
    let spool = server.folder().join("rows.spool");
    assert!(wait::until(SOON, || fs::metadata(&spool).is_ok_and(|spool| spool.len() > 0)), "no row in the spool");
    server.kill();
    let mut opened = 0;
    for (name, _) in modes(server.folder()).iter().filter(|(name, _)| name.contains("cache/0") || *name == "rows.spool")
    {
        fs::set_permissions(server.folder().join(name), Permissions::from_mode(0o644)).expect("it is ours");
        opened += 1;
    }
    assert!(opened >= 2, "{opened}");
    server.start();
    // The thread that writes rows opens the spool and sets its mode while the server is still starting.
    wait::until(SOON, || open_to_others(&server, &before).is_empty());
    are_private(&server, &before, &names);
}

#[test]
fn calls_in_a_sqlite_file_are_its_users_alone() {
    let mut server = setup("");
    server.rewrite("dialogs.folder = \"calls\"", "dialogs.database = \"sqlite:calls\"");
    let before = modes(server.folder());
    server.start();
    are_private(&server, &before, &["calls", "calls-lock", "calls-shm", "calls-wal"]);
}

#[test]
fn rows_in_files_of_text_are_its_users_alone() {
    for form in ["json", "csv"] {
        let mut server = setup(&format!("accounting.to = \"{form}\""));
        let before = modes(server.folder());
        server.start();
        fails(&server);
        are_private(&server, &before, &["rows", "rows/.lock", "rows/cdr-"]);
    }
}
