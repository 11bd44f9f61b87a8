//! HTML report in a browser: every chart drawn, no console error, no request to any host.

use crate::measured;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use strowger_load::report::Report;
use strowger_measure::{Requirement, Thresholds};

const CHROMIUM: &str = "chromium";

/// Returns Debian's chromium, or prints why this test checks nothing.
fn browser() -> Option<&'static str> {
    let found = Command::new(CHROMIUM).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if found.is_err() {
        eprintln!("SKIPPED: report_html needs {CHROMIUM} (Debian package chromium), which is not installed");
        return None;
    }
    Some(CHROMIUM)
}

/// Returns the page after its script has run, and the browser's log.
fn open(browser: &str, page: &Path, dark: bool) -> (String, String) {
    let profile = tempfile::tempdir().unwrap();
    let mut command = Command::new(browser);
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]);
    command.args([
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-extensions",
        "--disable-sync",
    ]);
    command.args(["--window-size=1280,2400", "--virtual-time-budget=5000", "--enable-logging=stderr", "--log-level=0"]);
    if dark {
        command.arg("--blink-settings=preferredColorScheme=0");
    }
    command.arg(format!("--user-data-dir={}", profile.path().display()));
    command.arg("--dump-dom").arg(format!("file://{}", page.display()));
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // A browser that hangs is ended.
    let id = child.id().to_string();
    let (done, waits) = std::sync::mpsc::channel();
    let guard = std::thread::spawn(move || {
        if waits.recv_timeout(Duration::from_secs(120)).is_err() {
            let _ = Command::new("kill").args(["-9", &id]).status();
        }
    });
    let output = child.wait_with_output().unwrap();
    let _ = done.send(());
    guard.join().unwrap();
    (String::from_utf8_lossy(&output.stdout).into(), String::from_utf8_lossy(&output.stderr).into())
}

/// Returns the value of an attribute of the `<html>` element.
fn attribute<'a>(dom: &'a str, name: &str) -> Option<&'a str> {
    let tag = &dom[dom.find("<html")?..];
    let tag = &tag[..tag.find('>')?];
    let value = tag.split_once(&format!("{name}=\""))?.1;
    value.split_once('"').map(|(value, _)| value)
}

/// Returns the console messages, including refused requests; the log has them as `... INFO:CONSOLE:line] "text",
/// source: ...`.
fn console(log: &str) -> Vec<&str> {
    log.lines().filter(|line| line.contains("CONSOLE")).collect()
}

fn check(page: &Path, dark: bool, expected: &[&str]) {
    let Some(browser) = browser() else { return };
    let (dom, log) = open(browser, page, dark);
    assert_eq!(attribute(&dom, "data-ready"), Some("yes"), "the script did not reach its end:\n{log}");
    assert_eq!(attribute(&dom, "data-errors"), Some(""), "{log}");
    assert_eq!(attribute(&dom, "data-requests"), Some("0"));
    assert_eq!(attribute(&dom, "data-theme"), Some(if dark { "dark" } else { "light" }));
    assert_eq!(console(&log), Vec::<&str>::new());
    let charts: Vec<&str> = attribute(&dom, "data-charts").unwrap_or_default().split('|').collect();
    assert_eq!(charts, expected);
    let judged = dom.contains("the server\u{2019}s</span>") || dom.contains("<td class=\"left\">no calls</td>");
    assert_eq!(judged, dom.contains("id=\"delay-table\"") && expected.len() > 7, "the windows are in the page");
}

#[test]
fn every_chart_of_a_run_is_drawn_in_light_and_dark() {
    // Kept, so that a person can look at it.
    let page = Path::new(env!("CARGO_TARGET_TMPDIR")).join("report.html");
    let run = measured::run("west", 20, 1, None);
    let requirements = ["srd.p95<2s", "ser>=99.9%"].map(|text| Requirement::parse(text, &[]).unwrap());
    std::fs::write(&page, Report::new(&run, &requirements, &Thresholds::default()).html()).unwrap();
    let expected = [
        "rate=drawn",
        "concurrency=drawn",
        "codes=drawn",
        "trouble=drawn",
        "delay-rrd=drawn",
        "delay-srd=drawn",
        "delay-srd.failed=drawn",
        "delay-sdd=drawn",
        "delay-sdt.originating=drawn",
        "delay-response=drawn",
        "delay-ttfr=drawn",
        "delay-call.length=drawn",
        "delay-timer.1=drawn",
        "delay-timer.ring, &quot;long&quot;=drawn",
        "distribution=drawn",
        "lag=drawn",
        "cpu=drawn",
        "losses=drawn",
    ];
    for dark in [false, true] {
        check(&page, dark, &expected);
    }
}

#[test]
fn a_run_without_calls_says_so_without_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("report.html");
    let run = strowger_measure::Run::new(measured::heading("west"));
    std::fs::write(&page, Report::new(&run, &[], &Thresholds::default()).html()).unwrap();
    let empty = ["rate", "concurrency", "codes", "trouble", "lag", "cpu", "losses"].map(|name| format!("{name}=empty"));
    check(&page, false, &empty.each_ref().map(String::as_str));
}

#[test]
fn nothing_in_the_page_names_another_place() {
    let run = measured::run("west", 3, 1, None);
    let html = Report::new(&run, &[], &Thresholds::default()).html();
    for word in ["http://", "https://", "//cdn", "@import", "url(", " src=", "fetch(", "XMLHttpRequest", "import("] {
        assert!(!html.contains(word), "the page contains {word}");
    }
    assert!(html.contains("default-src 'none'"));
    // Text of users cannot become markup.
    assert!(!html.contains("register-then-call <b>") && html.contains("register-then-call &lt;b&gt;"));
}

#[test]
fn the_browser_would_tell_of_errors_and_requests() {
    let Some(browser) = browser() else { return };
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("bad.html");
    let html = Report::new(&measured::run("west", 2, 1, None), &[], &Thresholds::default()).html();
    for bad in [
        "<script>console.error('out of order')</script>",
        "<img src='http://127.0.0.1:9/x.png'>",
        "<script>nobody()</script>",
    ] {
        std::fs::write(&page, html.replace("<h2>Traffic", &format!("{bad}<h2>Traffic"))).unwrap();
        let (_, log) = open(browser, &page, false);
        assert!(!console(&log).is_empty(), "{bad} went unseen:\n{log}");
    }
}
