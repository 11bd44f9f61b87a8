//! `strowger load` on a terminal: the keys of SIPp's screen, and a restored terminal afterwards.

use std::process::Command;

use serde_json::Value;
use strowger_tests::generator::answers;
use strowger_tests::terminal::{SOON, Terminal};
use strowger_tests::{binary, wait};

/// Settings without line buffering and echo.
const RAW: (bool, bool) = (false, false);

fn start(folder: &std::path::Path, target: &str, words: &[&str]) -> Terminal {
    let mut command = Command::new(binary::strowger());
    command.args(["load", target, "--max-lag", "1min", "--json", "run.json", "--log", "run.log"]);
    Terminal::start(command.args(words).current_dir(folder))
}

fn said(t: &Terminal, what: &str) {
    assert!(wait::until(SOON, || t.text().contains(what)), "{what:?} is not shown:\n{}", t.text());
}

/// Asserts this exit code, or that of INVALID if the machine is too busy for the generator.
fn ends_with(t: &mut Terminal, code: i32) {
    let ended = t.ends().code();
    assert!([Some(code), Some(4)].contains(&ended), "{ended:?}: {}", t.text());
}

fn report(folder: &std::path::Path) -> Value {
    let text = std::fs::read(folder.join("run.json")).expect("the report was written");
    serde_json::from_slice(&text).expect("it is JSON")
}

#[test]
fn keys_change_the_rate_that_is_asked_for() {
    let (uas, folder) = (answers(&[]), tempfile::tempdir().expect("a temporary folder"));
    let target = uas.address.to_string();
    let mut t = start(folder.path(), &target, &["-r", "20", "-d", "5s", "--hold", "0", "--no-preflight"]);
    said(&t, "p pause");
    t.is_set(RAW);
    t.press("***+*/");
    // The wanted rate over a whole second.
    let wanted = wait::until(SOON, || ["of 50.", "of 51.", "of 52."].iter().any(|rate| t.text().contains(rate)));
    assert!(wanted, "{}", t.text());
    ends_with(&mut t, 0);
    let json = report(folder.path());
    let calls = |name: &str| json["calls"][name].as_u64().unwrap_or(0);
    assert!((120..=255).contains(&calls("intended")) && calls("intended") == calls("outgoing"), "{}", json["calls"]);
    assert!(!json["verdict"]["reasons"].to_string().contains("keep its rate"), "{}", json["verdict"]);
    let warnings = json["verdict"]["warnings"].to_string();
    assert!(
        warnings.contains("By a key,") && warnings.contains("the rate became 51 a second instead of 20"),
        "{warnings}"
    );
    // The log has it, too.
    let log = folder.path().join("run.log").display().to_string();
    let again = strowger_tests::generator::output(&["report", &log, "--json", "-", "--max-lag", "1min"]);
    assert!(String::from_utf8_lossy(&again.stdout).contains("the rate became 51 a second instead of 20"));
}

#[test]
fn keys_pause_and_end_a_run() {
    let (uas, folder) = (answers(&[]), tempfile::tempdir().expect("a temporary folder"));
    let target = uas.address.to_string();
    let mut t = start(folder.path(), &target, &["-r", "20", "-d", "1h", "--hold", "0", "--no-preflight"]);
    said(&t, "p pause");
    t.press("p");
    said(&t, "paused");
    t.press("p");
    t.press("q");
    said(&t, "No more calls are begun");
    ends_with(&mut t, 130);
    let json = report(folder.path());
    assert_eq!(json["run"]["ended"], "ended by a key");
    assert_eq!(json["calls"]["stopped"], 0, "{}", json["calls"]);
    let warnings = json["verdict"]["warnings"].to_string();
    assert!(warnings.contains("no calls are begun") && warnings.contains("calls are begun again"), "{warnings}");
    // Q ends calls on hold.
    let mut t = start(folder.path(), &target, &["-r", "20", "-d", "1h", "--no-preflight", "--hold", "1h"]);
    said(&t, "p pause");
    assert!(wait::until(SOON, || t.text().contains(" of 2") || t.text().contains(" of 19.")), "{}", t.text());
    t.press("Q");
    ends_with(&mut t, 130);
    let json = report(folder.path());
    assert!(json["calls"]["stopped"].as_u64() > Some(0), "{}", json["calls"]);
}
