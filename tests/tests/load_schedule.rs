//! `strowger load`: the begin of a run, and of its measurement.

use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use strowger_tests::generator::{Ran, Running, answers, load, output, peer, refused};
use strowger_tests::together;

#[test]
fn runs_begin_and_count_when_they_are_told() {
    together(&[
        ("generators_begin_at_the_same_moment", generators_begin_at_the_same_moment),
        ("a_run_may_end_before_its_moment", a_run_may_end_before_its_moment),
        ("a_warm_up_is_in_no_figure", a_warm_up_is_in_no_figure),
        ("calls_are_held_by_number", calls_are_held_by_number),
    ]);
}

/// Returns a time this far ahead, in the format of the option, and its second.
fn moment(ahead: u64) -> (String, u64) {
    let second = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later than 1970").as_secs() + ahead;
    let date = Command::new("date").args(["-u", "-d", &format!("@{second}"), "+%Y-%m-%dT%H:%M:%SZ"]).output();
    let date = String::from_utf8(date.expect("the program starts").stdout).expect("it is text");
    (date.trim().to_owned(), second)
}

fn generators_begin_at_the_same_moment() {
    let uas = answers(&[]);
    let target = uas.address.to_string();
    let (at, second) = moment(4);
    let words = [&target, "-r", "50", "-d", "1s", "--hold", "0", "--start-at", &at, "--max-lag", "1min"];
    // One generator is ready long before the other.
    let mut runs = vec![Running::start(&words)];
    runs[0].wait_for("on, in ");
    runs.push(Running::start(&words));
    let mut ends = runs.iter_mut().map(|run| run.end(Duration::from_secs(30)));
    let (one, other): (Ran, Ran) = (ends.next().expect("there are two"), ends.next().expect("there are two"));
    for ran in [&one, &other] {
        ran.all_successful(50);
        assert_eq!(ran.json["run"]["started_us"], second * 1_000_000);
        // The first call of the run fell due with that second, not before, and not after the wait for the other generator.
        assert_eq!(ran.json["series"]["rows"][0][0], second, "{}", ran.said);
        let length = ran.json["run"]["duration_s"].as_f64().expect("it has a length");
        assert!((0.9..4.0).contains(&length), "{length}");
        assert!(ran.said.contains(&format!("from {at} on, in ")), "{}", ran.said);
    }
    // On a machine whose clock is a minute behind, time and seconds still equal those of the others.
    let (at, second) = moment(63);
    let begun = Instant::now();
    let ran = load(&[&target, "-r", "50", "-m", "5", "--hold", "0", "--start-at", &at, "--clock-ahead", "-60000000"]);
    ran.all_successful(5);
    assert!(begun.elapsed() < Duration::from_secs(40), "it does not wait for its own clock");
    assert_eq!(ran.json["run"]["started_us"], second * 1_000_000);
    assert_eq!(ran.json["series"]["rows"][0][0], second, "{}", ran.said);
    let (code, said) = refused(&[&target, "--start-at", "2020-02-29T12:00:00Z"]);
    assert!(code == 2 && said.contains("ago; name a later one, or a time from now such as +5s"), "{code}: {said}");
    load(&[&target, "-r", "50", "-m", "5", "--hold", "0", "--start-at", "+1s"]).all_successful(5);
}

fn a_run_may_end_before_its_moment() {
    let uas = answers(&[]);
    let begun = Instant::now();
    let mut run = Running::start(&[&uas.address.to_string(), "--start-at", "+1h"]);
    run.wait_for("on, in ");
    run.signal(libc::SIGINT);
    let ran = run.end(Duration::from_secs(10));
    assert!(ran.code == 130 && ran.said.contains("before the first call"), "{}: {}", ran.code, ran.said);
    assert!(begun.elapsed() < Duration::from_secs(30));
    assert_eq!(uas.report().count("counters", "incoming.sessions"), 0);
}

/// A server that refuses all calls for a second, and then none.
fn a_warm_up_is_in_no_figure() {
    let cold = std::sync::OnceLock::new();
    let server = peer(move |_, request| {
        let first = cold.get_or_init(Instant::now);
        let refuses = request.starts_with("INVITE") && first.elapsed() < Duration::from_secs(1);
        Some(if refuses { "503 Service Unavailable" } else { "200 OK" })
    });
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let log = folder.path().join("run.log").display().to_string();
    let target = server.to_string();
    let words = ["-r", "50", "-d", "4s", "--warm-up", "2s", "--hold", "500ms", "--no-preflight", "--max-lag", "1min"];
    let ran = load(&[&[&*target], &words[..], &["--require", "calls.failed==0", "--log", &log]].concat());
    ran.ended_with(0);
    ran.all_successful(100);
    assert_eq!((ran.calls("intended"), ran.calls("outgoing")), (100, 100), "{}", ran.said);
    let warm_up = |name: &str| ran.json["warm_up"]["calls"][name].as_u64().unwrap_or(0);
    assert_eq!(warm_up("outgoing"), 100, "{}", ran.said);
    assert!((45..=55).contains(&warm_up("failed")), "{}", ran.said);
    assert!(ran.said.contains("s, warm-up, ") || ran.said.contains("/s, warm-up"), "{}", ran.said);
    // The log has all of it, and a report from it has the same result.
    let again = output(&["report", &log, "--json", "-", "--require", "calls.failed==0", "--max-lag", "1min"]);
    let json: serde_json::Value = serde_json::from_slice(&again.stdout).expect("it is JSON");
    for part in ["calls", "warm_up", "requirements", "delays"] {
        assert_eq!(json[part], ran.json[part], "{part}");
    }
    let (code, said) = refused(&[&target, "-d", "10s", "--warm-up", "10s"]);
    assert!(code == 2 && said.contains("--warm-up 10 s leaves nothing of a schedule of 10 s"), "{code}: {said}");
}

fn calls_are_held_by_number() {
    let uas = answers(&[]);
    let target = uas.address.to_string();
    let ran = load(&[&target, "--simultaneous", "20", "--hold", "500ms", "-d", "2s", "--no-preflight"]);
    // 40 calls a second.
    ran.all_successful(80);
    let most = ran.json["concurrency"]["most"].as_u64().expect("it is a number");
    assert!((19..=30).contains(&most), "{most}: {}", ran.said);
    let (code, said) = refused(&[&target, "--simultaneous", "20", "--hold", "1min"]);
    assert!(code == 2 && said.contains("calls begin for 10 s and last 1 min; give a longer -d"), "{code}: {said}");
}
