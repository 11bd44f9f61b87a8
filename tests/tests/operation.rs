//! Daily operation of a server: signals, failed starts, files of its folder.

use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use strowger_tests::binary::strowger;
use strowger_tests::call::exchange;
use strowger_tests::process::Process;
use strowger_tests::program;
use strowger_tests::server::Setup;
use strowger_tests::stopwatch::Stopwatch;
use strowger_tests::text::{Request, status};
use strowger_tests::wire::Transport;
use tempfile::TempDir;

use crate::config::{error_of, folder, run, text_of};

const SOON: Duration = Duration::from_secs(10);

#[test]
fn a_start_without_its_port_leaves_no_file_behind() {
    let taken = UdpSocket::bind("127.0.0.1:0").expect("loopback has ports");
    let mut server = Setup::default().listen(Transport::Udp, taken.local_addr().expect("it is bound")).prepare();
    let ended = server.try_start().end(SOON);
    assert_eq!(ended.code(), Some(1), "{}", server.log());
    let log = server.log();
    assert!(
        log.contains("Address already in use") && log.contains("another process has this port: `ss -lunp`"),
        "{log}"
    );
    let mut names: Vec<_> = fs::read_dir(server.folder())
        .expect("it is there")
        .map(|entry| entry.expect("it can be read").file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["strowger.log", "strowger.toml"]);
}

/// SQLite continues to write to a deleted file.
#[test]
fn a_database_that_is_removed_keeps_nothing_and_says_so() {
    let server = Setup::on(&[Transport::Udp]).open_registrar().start();
    let mut wire = server.connect(Transport::Udp);
    let mut register = |user: &str| {
        let contact = format!("sip:{user}@{}", wire.local());
        let request = Request::register(user, "example.org", &contact, "udp", wire.local());
        status(&exchange(&mut wire, &request))
    };
    assert_eq!(register("alice"), Some(200));
    let (file, away) = (server.folder().join("test.sqlite"), server.folder().join("away"));
    fs::rename(&file, &away).expect("it is there");
    assert_eq!(register("bob"), Some(500));
    let log = server.log_with("the database file was removed or replaced: put it back, or restart the server");
    assert!(!log.contains("disk failed"), "{log}");
    fs::write(&file, "another").expect("the folder can be written");
    assert_eq!(register("bob"), Some(500));
    fs::rename(&away, &file).expect("it is there");
    assert_eq!(register("bob"), Some(200));
}

/// An unknown level is refused: as the name of a target it would match no log line, and the log would stay empty.
#[test]
fn what_the_environment_says_of_the_log_is_a_level_or_refused() {
    for (text, wrong) in [("warm", "warm"), ("info,verbose", "verbose"), ("strowger_net=loud", "strowger_net=loud")] {
        let mut server = Setup::on(&[Transport::Udp]).environment("STROWGER_LOG", text).prepare();
        assert_eq!(server.try_start().end(SOON).code(), Some(2), "{text}: {}", server.log());
        let log = server.log();
        assert!(
            log.contains(&format!("STROWGER_LOG is {text:?}, and {wrong:?} is no level: write error, warn,")),
            "{log}"
        );
    }
    // A directive for one target leaves the other targets alone.
    for (text, is_logged) in [("", true), ("INFO", true), ("strowger_net=debug", true), ("warn", false)] {
        let mut server = Setup::on(&[Transport::Udp]).environment("STROWGER_LOG", text).start();
        server.stop();
        assert_eq!(server.log().contains("statistics at the end"), is_logged, "{text:?}: {}", server.log());
    }
}

/// `strowger init` writes the file, and every command finds it.
#[test]
fn commands_take_strowger_toml_of_their_folder_and_say_so() {
    let folder = folder();
    let port = strowger_tests::port::free();
    let text = format!("listen = [\"udp:127.0.0.1:{port}\"]\ndomains = [\"example.org\"]\nrealm = \"office\"\n");
    fs::write(folder.path().join("strowger.toml"), text).expect("it is ours");
    let using = "using strowger.toml of this folder";

    let output = run(&["check"], folder.path());
    assert!(error_of(&output).contains(using), "{}", error_of(&output));
    assert!(text_of(&output).starts_with("strowger.toml: can be used"), "{}", text_of(&output));
    // A file named on the command line needs no notice.
    assert!(!error_of(&run(&["check", "strowger.toml"], folder.path())).contains(using));

    let output = run(&["user", "list"], folder.path());
    assert!(error_of(&output).contains(using), "{}", error_of(&output));

    let mut command = Command::new(strowger());
    command.arg("serve").current_dir(folder.path()).env_remove("STROWGER_CONFIG");
    let mut serve = Process::start("strowger", folder.path(), &mut command);
    serve.wait_for("\nready", 1, SOON);
    let log = serve.log();
    let first = log.lines().next().unwrap_or_default();
    assert!(first.contains("configuration file=strowger.toml") && first.contains("found in this folder"), "{log}");
    assert!(log.contains(&format!("127.0.0.1:{port}")) && log.contains("office"), "{log}");
    serve.signal(libc::SIGTERM);
    serve.end(SOON);
}

#[test]
fn init_takes_several_domains() {
    let folder = folder();
    let words = ["init", "--domain", "example.org", "--domain", "example.net", "--domain", "example.org"];
    let output = run(&[&words[..], &["--listen", "udp:127.0.0.1:5060"]].concat(), folder.path());
    assert_eq!(output.status.code(), Some(0), "{}", error_of(&output));
    let written = fs::read_to_string(folder.path().join("strowger.toml")).expect("it was written");
    // Each domain has its own users.
    for domain in ["example.org", "example.net"] {
        assert!(written.contains(&format!("[[domain]]\nname = \"{domain}\"\nrealm = \"{domain}\"\n")), "{written}");
    }
    assert_eq!(written.matches("[[domain]]").count(), 2, "{written}");
    let next = text_of(&output);
    assert!(next.contains("user add alice@example.org\n") && next.contains("user add alice@example.net\n"), "{next}");
    assert!(next.contains("  strowger serve\n"), "{next}");
    let checked = run(&["check"], folder.path());
    assert!(
        text_of(&checked).contains("can be used; udp:127.0.0.1:5060 for example.org, example.net"),
        "{}",
        error_of(&checked)
    );
    // Domains share the users of a realm, where one is named.
    let shared = ["--realm", "office", "--listen", "udp:127.0.0.1:5060", "--force"];
    let output = run(&[&words[..], &shared].concat(), folder.path());
    assert_eq!(output.status.code(), Some(0), "{}", error_of(&output));
    let written = fs::read_to_string(folder.path().join("strowger.toml")).expect("it was written");
    assert!(written.contains("domains = [\"example.org\", \"example.net\"]\n"), "{written}");
    assert!(written.contains("\nrealm = \"office\"\n") && !written.contains("[[domain]]"), "{written}");
}

/// Runs the program as a user who owns nothing.
fn run_as_nobody(arguments: &[&str], folder: &Path) -> Output {
    let mut command = Command::new(strowger());
    command.args(arguments).current_dir(folder).stdin(Stdio::null()).uid(65_534).gid(65_534);
    command.env_remove("STROWGER_CONFIG").output().expect("the program runs")
}

/// Root writes files that the user of a service cannot read: the error names owner and mode.
#[test]
fn files_of_another_user_are_named_with_owner_and_mode() {
    if !program::is_root() {
        return program::skipped("files of another user need root");
    }
    let folder = folder();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
    let port = strowger_tests::port::free();
    let listen = format!("udp:127.0.0.1:{port}");
    let output = run(&["init", "--domain", "example.org", "--listen", &listen], folder.path());
    let hint =
        "strowger.toml belongs to root (mode 0600): if the server runs as another user, chown USER strowger.toml*";
    assert!(text_of(&output).contains(hint), "{}", text_of(&output));

    let as_nobody = |arguments: &[&str]| run_as_nobody(arguments, folder.path());
    // The folders above the program itself may be closed to other users.
    if as_nobody(&["check", "/dev/null"]).status.code() != Some(0) {
        return program::skipped("another user cannot run the program where it lies");
    }
    let error = error_of(&as_nobody(&["check"]));
    assert!(error.contains("strowger.toml belongs to root (mode 0600), and this process runs as nobody"), "{error}");

    // The configuration is readable now, the database is not.
    fs::set_permissions(folder.path().join("strowger.toml"), fs::Permissions::from_mode(0o644)).expect("it is ours");
    let mut add = Command::new(strowger());
    add.args(["user", "add", "alice@example.org", "--password-stdin"]).current_dir(folder.path());
    add.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).env_remove("STROWGER_CONFIG");
    let mut child = add.spawn().expect("the program runs");
    std::io::Write::write_all(&mut child.stdin.take().expect("it is piped"), b"open sesame").expect("it reads it");
    let output = child.wait_with_output().expect("it ends");
    assert!(text_of(&output).contains("strowger.sqlite belongs to root (mode 0600)"), "{}", text_of(&output));
    for command in [&["serve"][..], &["user", "list"]] {
        let output = as_nobody(command);
        assert_eq!(output.status.code(), Some(1), "{}", error_of(&output));
        let error = error_of(&output);
        assert!(
            error.contains("strowger.sqlite belongs to root (mode 0600), and this process runs as nobody"),
            "{error}"
        );
    }
}

/// Only root can write beside a configuration in /etc: the error names the key before a row or a call is lost.
#[test]
fn a_place_that_cannot_be_written_is_named_by_check_and_at_the_start() {
    if !program::is_root() {
        return program::skipped("files of another user need root");
    }
    let folder = folder();
    let own = TempDir::new().expect("a temporary folder");
    std::os::unix::fs::chown(own.path(), Some(65_534), None).expect("it is ours");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
    let as_nobody = |arguments: &[&str]| run_as_nobody(arguments, folder.path());
    if as_nobody(&["check", "/dev/null"]).status.code() != Some(0) {
        return program::skipped("another user cannot run the program where it lies");
    }
    let own = own.path().display();
    let listen = format!("listen = [\"udp:127.0.0.1:{}\"]\n", strowger_tests::port::free());
    // The check comes before a connection to the database server.
    let sql =
        "accounting.cdr = true\naccounting.to = \"sql\"\naccounting.database = \"mysql://u@/d?socket=/nowhere.sock\"\n";
    let files = "accounting.cdr = true\naccounting.to = \"csv\"\n";
    let calls = "dialogs.track = true\ndialogs.folder = \"calls\"\n";
    let spool = format!("accounting.spool = \"{own}/spool\"\n");
    for (key, text) in [
        ("accounting.spool", sql.to_owned()),
        ("accounting.path", format!("{files}{spool}")),
        ("dialogs.folder", calls.to_owned()),
        ("dialogs.database", "dialogs.track = true\ndialogs.database = \"sqlite:calls.sqlite\"\n".to_owned()),
    ] {
        let text = format!("{listen}domains = [\"example.org\"]\nstore.database = \"{own}/s.sqlite\"\n{text}");
        fs::write(folder.path().join("strowger.toml"), text).expect("it is ours");
        let said = format!("{key}: nothing can be written to ");
        let checked = as_nobody(&["check"]);
        assert_eq!(checked.status.code(), Some(0), "{}", error_of(&checked));
        assert!(error_of(&checked).contains(&format!("warning: {said}")), "{}", error_of(&checked));
        assert!(text_of(&checked).contains("1 warning"), "{}", text_of(&checked));
        let served = as_nobody(&["serve"]);
        assert_eq!(served.status.code(), Some(1), "{}", error_of(&served));
        assert!(error_of(&served).contains(&said), "{}", error_of(&served));
        assert!(error_of(&served).contains("write the whole path"), "{}", error_of(&served));
    }
}

/// Every line is JSON: warnings of the configuration, counters as fields, the error that ends the server.
#[test]
fn a_json_log_is_json_and_nothing_else() {
    let lines = "domains = [\"example.org\", \"example.org\"]\nlog.format = \"json\"\nlog.statistics = \"1s\"";
    let server = Setup::on(&[Transport::Udp]).with(lines).prepare();
    let log = server.folder().join("log.json");
    let mut command = Command::new(strowger());
    command.args(["serve", "--config"]).arg(server.config()).current_dir(server.folder());
    let start = |command: &mut Command| {
        let file = fs::File::options().create(true).append(true).open(&log).expect("the folder can be written");
        command.stdout(Stdio::null()).stderr(file).stdin(Stdio::null()).spawn().expect("the program runs")
    };
    let mut child = start(&mut command);
    let events = || {
        let text = fs::read_to_string(&log).expect("it is there");
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let event = |line: &str| serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        whole.lines().map(event).collect::<Vec<_>>()
    };
    let is = |event: &Value, name: &str, value: &str| event[name].as_str() == Some(value);
    let begun = Stopwatch::start();
    while !events().iter().any(|event| is(event, "message", "statistics") && is(event, "of", "server")) {
        assert!(begun.took().is_below(SOON), "{:?}", events());
        let mut wire = server.connect(Transport::Udp);
        let request = Request::new("OPTIONS", "sip:nobody@example.org", "udp", wire.local());
        wire.send(&request.bytes()).expect("loopback takes it");
        let _ = wire.receive(Duration::from_millis(100));
    }
    // The port is in use: a second server ends with an error.
    let mut second = start(&mut command);
    assert_eq!(second.wait().expect("it ends").code(), Some(1));
    // SAFETY: the child was not waited for, so the id is still its own.
    unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
    let events = events();
    let warning = events.iter().find(|event| is(event, "level", "WARN")).expect("a warning");
    assert!(
        is(warning, "message", "the domain example.org is named twice: line 4") && is(warning, "cure", "name it once"),
        "{warning}"
    );
    assert!(warning["file"].is_string() && warning["line"].is_u64() && warning["column"].is_u64(), "{warning}");
    let statistics = events.iter().find(|event| is(event, "of", "messages") && event["requests"].is_u64());
    assert!(statistics.is_some(), "{events:?}");
    let error = events.iter().find(|event| is(event, "level", "ERROR")).expect("an error");
    assert!(error["message"].as_str().is_some_and(|text| text.contains("Address already in use")), "{error}");
    drop(server);
}

#[test]
fn the_demo_tells_before_it_runs_that_its_report_cannot_be_written() {
    let folder = folder();
    let begun = Stopwatch::start();
    let output = run(&["demo", "--html", "nowhere/report.html"], folder.path());
    assert_eq!(output.status.code(), Some(2), "{}", error_of(&output));
    assert!(error_of(&output).contains("nowhere/report.html cannot be written"), "{}", error_of(&output));
    assert!(text_of(&output).is_empty() && begun.took().is_below(Duration::from_secs(5)), "{}", text_of(&output));
}

#[test]
fn help_says_what_signals_and_a_new_password_do() {
    let folder = folder();
    for (arguments, words) in [
        (&["serve", "--help"][..], &["shut down gracefully", "503", "SIGHUP reloads", "SIGUSR1"][..]),
        (&["user", "--help"], &["until their registration expires", "--end-registrations"]),
    ] {
        let help = text_of(&run(arguments, folder.path())).split_whitespace().collect::<Vec<_>>().join(" ");
        for word in words {
            assert!(help.contains(word), "{word}: {help}");
        }
    }
}
