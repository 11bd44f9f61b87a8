//! Commands other than `serve` and `load`: their output, files and exit codes.

use std::fs;
use std::process::{Command, Stdio};

use strowger_tests::binary::strowger;

use crate::config::{error_of, folder, run, text_of};

#[test]
fn init_writes_a_file_that_check_accepts_and_never_overwrites_it() {
    let folder = folder();
    let init = [
        "init",
        "--domain",
        "example.org",
        "--realm",
        "The office",
        "--listen",
        "udp:0.0.0.0:5060",
        "--advertise",
        "203.0.113.5",
    ];
    let output = run(&init, folder.path());
    assert_eq!(output.status.code(), Some(0), "{}", error_of(&output));
    let file = folder.path().join("strowger.toml");
    let written = fs::read_to_string(&file).expect("it was written");
    assert!(written.contains("realm = \"The office\"") && written.contains("advertise = \"203.0.113.5\""), "{written}");
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(fs::metadata(&file).expect("it is there").permissions().mode() & 0o777, 0o600, "it holds a secret");
    assert_eq!(run(&["check", "strowger.toml"], folder.path()).status.code(), Some(0));

    let output = run(&init, folder.path());
    assert_eq!(output.status.code(), Some(1));
    assert!(error_of(&output).contains("--force"), "{}", error_of(&output));
    assert_eq!(fs::read_to_string(&file).expect("it is there"), written);
    let forced = [&init[..], &["--force"]].concat();
    assert_eq!(run(&forced, folder.path()).status.code(), Some(0));
    assert_ne!(fs::read_to_string(&file).expect("it is there"), written, "a new file has a new secret");

    // Without a terminal a missing value is named.
    let output = run(&["init", "--output", "other.toml"], folder.path());
    assert_eq!(output.status.code(), Some(2));
    assert!(error_of(&output).contains("--domain"), "{}", error_of(&output));
    assert!(!folder.path().join("other.toml").exists());
}

#[test]
fn users_are_added_changed_listed_and_removed() {
    let folder = folder();
    fs::write(folder.path().join("strowger.toml"), "domains = [\"example.org\"]\n").expect("it is ours");
    let user = |arguments: &[&str], password: Option<&str>| {
        let mut command = Command::new(strowger());
        command.arg("user").args(arguments).args(["--config", "strowger.toml"]).current_dir(folder.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().expect("the program runs");
        if let Some(password) = password {
            use std::io::Write;
            // A program that refuses its input early has closed the pipe already.
            let _ = writeln!(child.stdin.as_ref().expect("it is piped"), "{password}");
        }
        child.wait_with_output().expect("it ends")
    };
    let list = || text_of(&user(&["list"], None));
    assert!(list().contains("no users"), "{}", list());
    let output = user(&["add", "alice@example.org", "--password-stdin"], Some("open sesame"));
    assert_eq!(output.status.code(), Some(0), "{}", error_of(&output));
    assert!(list().contains("alice@example.org"), "{}", list());

    let output = user(&["add", "alice@example.org", "--password-stdin"], Some("open sesame"));
    assert_eq!(output.status.code(), Some(1));
    assert!(error_of(&output).contains("exists already"), "{}", error_of(&output));
    let output = user(&["add", "bob@example.org", "--password-stdin"], Some(""));
    assert_eq!(output.status.code(), Some(1), "an empty password");
    let output = user(&["add", "bob@example.org", "--password-stdin"], Some("one\ntwo"));
    assert_eq!(output.status.code(), Some(1), "two passwords");
    assert!(error_of(&output).contains("several lines"), "{}", error_of(&output));
    assert!(!list().contains("bob"), "{}", list());
    let output = user(&["passwd", "bob@example.org", "--password-stdin"], Some("x"));
    assert_eq!(output.status.code(), Some(1));
    assert!(error_of(&output).contains("no user bob@example.org"), "{}", error_of(&output));
    assert_eq!(user(&["add", "bob", "--password-stdin"], Some("x")).status.code(), Some(2), "no domain");

    assert_eq!(user(&["passwd", "alice@example.org", "--password-stdin"], Some("other")).status.code(), Some(0));
    let json = text_of(&user(&["list", "--json"], None));
    let json: serde_json::Value = serde_json::from_str(&json).expect("it is JSON");
    assert_eq!(json[0]["name"], "alice");
    assert_eq!(json[0]["domain"], "example.org");
    assert_eq!(json[0]["realms"][0]["realm"], "example.org");
    assert_eq!(json.as_array().map(Vec::len), Some(1));

    // No file of the folder contains a password.
    for entry in fs::read_dir(folder.path()).expect("it is ours") {
        let bytes = fs::read(entry.expect("it can be read").path()).expect("it is ours");
        assert!(!bytes.windows(11).any(|window| window == b"open sesame"));
    }
    let database = folder.path().join("strowger.sqlite");
    let other = rusqlite::Connection::open(&database).expect("the database is there");
    other.execute_batch("BEGIN IMMEDIATE").expect("the lock is free");
    let output = user(&["add", "bob@example.org", "--password-stdin"], Some("x"));
    assert_eq!(output.status.code(), Some(1));
    let error = error_of(&output);
    let waited = "another process has been writing to this database for 1s (store.busy_timeout); try again";
    assert!(error.contains("strowger.sqlite: ") && error.contains(waited), "{error}");
    other.execute_batch("ROLLBACK").expect("it was begun");
    assert_eq!(user(&["remove", "alice@example.org"], None).status.code(), Some(0));
    assert_eq!(user(&["remove", "alice@example.org"], None).status.code(), Some(1));
    assert!(list().contains("no users"), "{}", list());
}

#[test]
fn parse_shows_a_message_or_says_where_it_is_wrong() {
    let folder = folder();
    let message = "OPTIONS sip:bob@example.org SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.1;branch=z9hG4bK1\r\n\
        From: <sip:alice@example.org>;tag=1\r\nTo: <sip:bob@example.org>\r\nCall-ID: 1@a\r\nCSeq: 1 OPTIONS\r\n\
        Max-Forwards: 70\r\n\r\n";
    fs::write(folder.path().join("right.sip"), message).expect("it is ours");
    fs::write(folder.path().join("wrong.sip"), message.replace("CSeq: 1", "CSeq: one")).expect("it is ours");
    let output = run(&["parse", "right.sip"], folder.path());
    assert_eq!(output.status.code(), Some(0), "{}", error_of(&output));
    assert!(text_of(&output).contains("OPTIONS sip:bob@example.org"), "{}", text_of(&output));
    let json = text_of(&run(&["parse", "--json", "right.sip"], folder.path()));
    let json: serde_json::Value = serde_json::from_str(&json).expect("it is JSON");
    assert_eq!(json["cseq"]["number"], 1);
    assert_eq!(json["uri"]["user"], "bob");

    let output = run(&["parse", "wrong.sip"], folder.path());
    assert_eq!(output.status.code(), Some(1));
    let at = message.find("1 OPTIONS").expect("it is there");
    assert!(error_of(&output).contains(&format!("at byte {at} ")), "{}", error_of(&output));
    let output = run(&["parse", "--json", "wrong.sip"], folder.path());
    assert_eq!(output.status.code(), Some(1));
    let json: serde_json::Value = serde_json::from_str(&text_of(&output)).expect("it is JSON");
    assert_eq!(json["offset"], at);
    assert_eq!(run(&["parse", "nowhere.sip"], folder.path()).status.code(), Some(1));
}

#[test]
fn the_program_alone_prints_help_and_a_wrong_word_is_a_wrong_command_line() {
    let folder = folder();
    let output = run(&[], folder.path());
    assert_eq!(output.status.code(), Some(0));
    assert!(text_of(&output).contains("strowger user add"), "{}", text_of(&output));
    for command in ["serve", "init", "user", "check", "parse", "demo", "completion"] {
        let help = text_of(&run(&[command, "--help"], folder.path()));
        assert!(help.contains("Usage: strowger "), "{help}");
        // The exit codes of `user` are at its subcommands.
        assert!(command == "user" || help.contains("Exit codes"), "{help}");
    }
    assert_eq!(run(&["sreve"], folder.path()).status.code(), Some(2));
    for shell in ["bash", "zsh", "fish"] {
        assert!(text_of(&run(&["completion", shell], folder.path())).contains("strowger"), "{shell}");
    }
}
