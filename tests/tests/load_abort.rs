//! `strowger load --abort-on`: a run ends once a requirement cannot be met any more.

use std::time::{Duration, Instant};

use strowger_tests::generator::{load, output, peer, refused};
use strowger_tests::together;

#[test]
fn runs_end_once_a_requirement_is_lost() {
    together(&[
        ("a_share_is_judged_by_the_last_seconds", a_share_is_judged_by_the_last_seconds),
        ("a_count_ends_a_run", a_count_ends_a_run),
    ]);
}

/// A server that refuses every call after three seconds.
fn a_share_is_judged_by_the_last_seconds() {
    let first = std::sync::OnceLock::new();
    let server = peer(move |_, request| {
        let refuses =
            request.starts_with("INVITE") && first.get_or_init(Instant::now).elapsed() > Duration::from_secs(3);
        Some(if refuses { "503 Service Unavailable" } else { "200 OK" })
    });
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let log = folder.path().join("run.log").display().to_string();
    let target = server.to_string();
    let words = ["-r", "50", "-d", "10min", "--hold", "0", "--no-preflight", "--max-lag", "1min", "--log", &log];
    let begun = Instant::now();
    let ran = load(
        &[&[&*target], &words[..], &["--abort-on", "calls.success>=75%", "--require", "calls.failed<=1M"]].concat(),
    );
    assert!(begun.elapsed() < Duration::from_secs(60), "{}", ran.said);
    ran.ended_with(3);
    assert_eq!(ran.json["run"]["ended"], "a requirement was lost");
    let met = |json: &serde_json::Value| -> Vec<(String, bool)> {
        let all = json["requirements"].as_array().cloned().unwrap_or_default();
        all.iter().map(|one| (one["requirement"].as_str().unwrap_or("").into(), one["met"] == true)).collect()
    };
    let wanted = [("calls.failed<=1M".to_owned(), true), ("calls.success>=75%".to_owned(), false)];
    assert_eq!(met(&ran.json), wanted, "{}", ran.said);
    for part in
        ["calls.success>=75% is lost after ", "% in the last 10 s. Open calls are ended.", "✗ calls.success>=75%"]
    {
        assert!(ran.said.contains(part), "{part}: {}", ran.said);
    }
    // A report from the log has the same result without the option.
    let again = output(&["report", &log, "--json", "-", "--max-lag", "1min"]);
    assert_eq!(again.status.code(), Some(ran.code), "{}", String::from_utf8_lossy(&again.stderr));
    let json = serde_json::from_slice(&again.stdout).expect("it is JSON");
    assert_eq!(met(&json), wanted[1..]);
}

fn a_count_ends_a_run() {
    let server = peer(|number, _| Some(if number == 30 { "486 Busy Here" } else { "200 OK" }));
    let target = server.to_string();
    let words =
        [&*target, "-w", "options", "-r", "50", "--no-preflight", "--max-lag", "1min", "--abort-on", "calls.failed==0"];
    let ran = load(&[&words[..], &["-d", "10min"]].concat());
    ran.ended_with(3);
    assert!(
        ran.said.contains("calls.failed==0 is lost after ") && ran.said.contains(": 1. Open calls"),
        "{}",
        ran.said
    );
    // A requirement that cannot become impossible early ends no run, but must still be met.
    let ran = load(&[
        &target,
        "-w",
        "options",
        "-r",
        "50",
        "-m",
        "20",
        "--no-preflight",
        "--max-lag",
        "1min",
        "--abort-on",
        "calls.outgoing>=100",
    ]);
    ran.ended_with(3);
    assert_eq!(ran.calls("outgoing"), 20);
    assert_eq!(ran.json["run"]["ended"], "all calls were made");
    let (code, said) = refused(&[&target, "--abort-on", "srd<200ms"]);
    assert!(code == 2 && said.contains("--abort-on:") && said.contains("srd.p95"), "{code}: {said}");
    let (code, said) = refused(&[&target, "--abort-on", "answering.calls.failed==0"]);
    assert!(code == 2 && said.contains("give it to --require"), "{code}: {said}");
}
