//! `strowger demo` as a newcomer runs it: the first impression must be good.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use strowger_tests::binary;
use strowger_tests::program::{self, CHROMIUM};

fn demo(arguments: &[&str]) -> Output {
    // The test removes its page.
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let mut command = Command::new(binary::strowger());
    let output = command.arg("demo").args(arguments).env("TMPDIR", folder.path()).output().expect("the program starts");
    assert!(
        output.status.success(),
        "exit code {:?}\n{}\n{}",
        output.status.code(),
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

#[test]
fn a_call_is_drawn_and_measured() {
    let output = demo(&["--seconds", "2", "--rate", "50"]);
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(!text.contains('\u{1b}'), "colours are for terminals:\n{text}");
    for user in ["alice", "bob"] {
        let line =
            text.lines().find(|line| line.trim_start().starts_with(user)).unwrap_or_else(|| panic!("{user}:\n{text}"));
        assert!(line.contains("REGISTER → 401 → REGISTER with credentials → 200"), "{line}");
    }

    // Every message of the call, in an order that any network preserves; a slow machine may add retransmissions between
    // them.
    let ladder = [
        "│── INVITE 1 ",
        "│◀─ 407 INVITE 1 ",
        "│── ACK 1 ",
        "│── INVITE 2 ",
        "│◀─ 100 INVITE 2 ",
        "│── INVITE 2 ",
        "│◀─ 180 INVITE 2 ",
        "│◀─ 180 INVITE 2 ",
        "│◀─ 200 INVITE 2 ",
        "│◀─ 200 INVITE 2 ",
        "│── ACK 2 ",
        "│── ACK 2 ",
        "s of talk",
        "│── BYE 3 ",
        "│── BYE 3 ",
        "│◀─ 200 BYE 3 ",
        "│◀─ 200 BYE 3 ",
    ];
    let mut rest = &text[text.find("One calls the other").expect("the call has a heading")..];
    for step in ladder {
        let at = rest.find(step).unwrap_or_else(|| panic!("no {step:?} where it belongs:\n{text}"));
        rest = &rest[at + step.len()..];
    }

    let (_, echo) = rest.split_once("A tone of one second came back: ").expect("the echo answers");
    let packets = echo.split(' ').next().and_then(|packets| packets.parse::<u32>().ok());
    assert!(packets.is_some_and(|packets| packets > 10) && rest.contains("sip:echo@example.org"), "{text}");

    let figure = |name: &str| -> f64 {
        let line = rest
            .lines()
            .find(|line| line.trim_start().starts_with(name))
            .unwrap_or_else(|| panic!("no {name}:\n{text}"));
        let value = line.trim_start()[name.len()..].split_whitespace().next().expect("a value");
        value.parse().unwrap_or_else(|_| panic!("{name} is no number: {line}"))
    };
    assert!((figure("calls"), figure("failures")) == (100.0, 0.0), "{text}");
    let (p50, p95, p99) = (figure("call setup, p50"), figure("p95"), figure("p99"));
    assert!(0.0 < p50 && p50 <= p95 && p95 <= p99, "{text}");
    assert!((10.0..=60.0).contains(&figure("calls per second")), "{text}");
    assert!(figure("CPU per call") > 0.0 && figure("memory") > 1.0, "{text}");
    assert!(text.contains("Every call succeeded.") && text.contains("What to try next"), "{text}");

    // The page about the demo shows the same ladder, with other times.
    let arrows = |text: &str| -> Vec<String> {
        let rows = text.lines().filter(|row| row.contains('▶') || row.contains('◀'));
        rows.filter_map(|row| row.split_once('│').map(|(_, row)| row.to_owned())).collect()
    };
    let page = include_str!("../../docs/demo.md");
    let (shown, drawn) = (arrows(page), arrows(&text));
    assert_eq!(shown.len(), 16, "docs/demo.md shows the ladder whole");
    for row in shown {
        assert!(drawn.contains(&row), "docs/demo.md shows {row:?}, the demo does not:\n{text}");
    }

    let progress = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(progress.contains("of 100 calls over, 0 failed"), "{progress}");
}

#[test]
fn one_json_object_says_the_same() {
    let output = demo(&["--seconds", "1", "--rate", "20", "--json"]);
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).expect("JSON and nothing else");
    assert_eq!(document["succeeded"], true);
    assert_eq!(document["call_succeeded"], true);
    assert_eq!(document["registrations"].as_array().map(Vec::len), Some(2));
    assert!(document["echo"]["packets"].as_u64().is_some_and(|packets| packets > 10), "{document}");
    assert_eq!(document["load"]["calls"], 20);
    assert_eq!(document["load"]["failures"], 0);

    // Changes of a proxy (RFC 3261 section 16.6), seen at the callee.
    let call = document["call"].as_array().expect("messages");
    let invites: Vec<&Value> = call.iter().filter(|message| message["method"] == "INVITE").collect();
    let first = invites.iter().find(|message| message["from"] == "alice").expect("an INVITE of the caller");
    let last = invites.iter().find(|message| message["to"] == "bob").expect("an INVITE to the callee");
    assert_eq!((&first["via"], &first["record_route"], &first["max_forwards"]), (&1.into(), &0.into(), &70.into()));
    assert_eq!((&last["via"], &last["record_route"], &last["max_forwards"]), (&2.into(), &1.into(), &69.into()));
    // The password, in any form, is for the server alone (section 22.3).
    assert_eq!(last["credentials"], false);
}

#[test]
fn without_load_there_is_no_table() {
    let text = String::from_utf8(demo(&["--seconds", "0"]).stdout).expect("UTF-8");
    assert!(text.contains("│── BYE") && text.contains("What to try next"), "{text}");
    assert!(!text.contains("call setup"), "{text}");
}

/// As in a server by default: the reported memory is the memory in use.
#[test]
fn no_huge_pages_are_taken() {
    let mut child = Command::new(binary::strowger())
        .args(["demo", "--seconds", "0"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut line = String::new();
    output.read_line(&mut line).expect("a heading");
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).expect("it runs");
    output.read_to_string(&mut line).expect("the rest");
    assert!(child.wait().expect("it ends").success(), "{line}");
    assert!(status.lines().any(|line| line.split_whitespace().eq(["THP_enabled:", "0"])), "{status}");
}

#[test]
fn the_report_of_the_load_is_a_page_that_draws_every_chart() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let page = folder.path().join("demo.html");
    let path = page.display().to_string();
    let text = String::from_utf8(demo(&["--seconds", "3", "--rate", "50", "--html", &path]).stdout).expect("UTF-8");
    assert!(text.contains(&format!("The whole report, with charts: {path}\n")), "{text}");
    if !program::have(&[CHROMIUM]) {
        return;
    }
    let profile = folder.path().join("profile");
    let output = Command::new("timeout")
        .args(["120", CHROMIUM.name, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
        .args(["--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--virtual-time-budget=5000", "--enable-logging=stderr", "--log-level=0"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg("--dump-dom")
        .arg(format!("file://{path}"))
        .output()
        .expect("the browser starts");
    let (dom, log) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let html = dom.split_once("<html").and_then(|(_, rest)| rest.split_once('>')).map_or("", |(tag, _)| tag);
    let attribute = |name: &str| {
        let value = html.split_once(&format!("{name}=\"")).and_then(|(_, rest)| rest.split_once('"'));
        value.map(|(value, _)| value).unwrap_or_else(|| panic!("no {name}: {html}\n{log}"))
    };
    assert_eq!((attribute("data-ready"), attribute("data-errors"), attribute("data-requests")), ("yes", "", "0"));
    let said: Vec<&str> = log.lines().filter(|line| line.contains("CONSOLE")).collect();
    assert_eq!(said, Vec::<&str>::new());
    let charts: Vec<&str> = attribute("data-charts").split('|').collect();
    for chart in
        ["rate", "concurrency", "codes", "delay-srd", "delay-sdd", "delay-response", "distribution", "lag", "cpu"]
    {
        assert!(charts.contains(&format!("{chart}=drawn").as_str()), "{chart}: {charts:?}");
    }
    assert!(!charts.iter().any(|chart| chart.contains("=failed")), "{charts:?}");
}
