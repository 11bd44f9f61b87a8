//! `strowger load` as a gate: runs that end with 0, and the first line of output.

use std::io::Read;
use std::net::{TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use strowger_tests::generator::{Ran, Running, answers, load, output, peer};
use strowger_tests::server::Setup;
use strowger_tests::stopwatch::Stopwatch;
use strowger_tests::wire::Transport;
use strowger_tests::{port, together};

use crate::load::as_published;

#[test]
fn what_a_gate_lets_pass() {
    together(&[
        ("no_single_requirement", no_single_requirement_lets_a_run_pass_in_which_nothing_succeeded),
        ("failed_calls_are_allowed", failed_calls_are_allowed_only_by_what_counts_all_of_them),
        ("a_closed_port", a_closed_port_ends_its_calls_at_once),
        ("the_first_line", the_first_line_says_nothing_good_of_a_server_that_failed),
        ("two_sides", logs_of_callers_and_answerers_are_no_sum),
        ("cut_logs", a_log_that_is_not_whole_passes_no_gate),
    ]);
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder can be made")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

/// Returns every measure that can be required, as an exact figure.
fn measures() -> Vec<String> {
    let listed = output(&["measures"]);
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    let exact = |line: &str| {
        let name = line.split([' ', ',']).next().unwrap_or_default();
        let name = name.replace("CODE", "407").replace("METHOD", "invite").replace("timer.NAME", "srd");
        let delay = name.strip_suffix(".p95").or_else(|| name.strip_suffix(".p1"));
        delay.map_or_else(|| name.clone(), |delay| format!("{delay}.count"))
    };
    let all: Vec<String> = text.lines().filter(|line| !line.starts_with(' ')).map(exact).collect();
    assert!(all.len() > 120, "{text}");
    all
}

fn no_single_requirement_lets_a_run_pass_in_which_nothing_succeeded() {
    let folder = folder();
    let server = Setup::on(&[Transport::Udp]).with("domains = [\"example.org\"]").start();
    server.add_user("alice@example.org", "secret");
    let server = server.address(Transport::Udp).to_string();
    let silent = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    let silent = silent.local_addr().expect("it is bound").to_string();
    let plain = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let no_tls = format!("tls://{}", plain.local_addr().expect("it is bound"));
    std::thread::spawn(move || plain.incoming().flatten().for_each(|mut stream| drop(stream.read(&mut [0; 100]))));
    let closed = port::free_address().to_string();
    let register = ["-w", "register", "--auth", "alice:wrong", "--domain", "example.org"];
    let runs: [(&str, &str, &[&str]); 4] =
        [("passwords", &server, &register), ("tls", &no_tls, &[]), ("port", &closed, &[]), ("silence", &silent, &[])];
    let logs = runs.map(|(name, target, words)| {
        let log = folder.path().join(format!("{name}.log"));
        let text = log.display().to_string();
        let usual = [
            "-r",
            "100",
            "-m",
            "5",
            "--timeout",
            "200ms",
            "--no-preflight",
            "--quiet",
            "--max-lag",
            "1min",
            "--log",
            &text,
        ];
        let ended = output(&[&[target][..], words, &usual].concat());
        assert_eq!(ended.status.code(), Some(1), "{name}: {}", said(&ended));
        log
    });
    // Requirements that every run meets, and those that this one meets: neither makes it a good run.
    let measures = measures();
    let all: Vec<(&PathBuf, String)> = logs
        .iter()
        .flat_map(|log| {
            measures.iter().enumerate().map(move |(n, name)| (log, format!("{name}{}0", [">=", "=="][n % 2])))
        })
        .collect();
    let next = AtomicUsize::new(0);
    let wrong = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while let Some((log, requirement)) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let log = log.display().to_string();
                    let ended = output(&["report", &log, "--require", requirement, "--quiet", "--max-lag", "1min"]);
                    if !matches!(ended.status.code(), Some(1 | 3)) {
                        wrong
                            .lock()
                            .expect("nobody panics with it")
                            .push(format!("{log} {requirement}: {:?}", ended.status));
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().expect("nobody panics with it");
    assert!(wrong.is_empty(), "{} of {}: {}", wrong.len(), all.len(), wrong.join("\n"));
}

fn failed_calls_are_allowed_only_by_what_counts_all_of_them() {
    // One of ten calls is refused, and one registration of ten.
    let seen = AtomicUsize::new(0);
    let target = peer(move |_, text| match text.split(' ').next() {
        Some("INVITE" | "REGISTER") if seen.fetch_add(1, Ordering::Relaxed) % 10 == 9 => {
            Some("503 Service Unavailable")
        }
        _ => Some("200 OK"),
    });
    let target = target.to_string();
    let common = ["-r", "100", "-m", "20", "--hold", "0", "--no-preflight", "--max-lag", "1min", "--quiet"];
    let code = |words: &[&str], requirement: &str| {
        let folder = folder();
        let log = folder.path().join("run.log").display().to_string();
        let ended = output(&[&[target.as_str()][..], words, &common, &["--log", &log]].concat());
        assert_eq!(ended.status.code(), Some(1), "{}", said(&ended));
        output(&["report", &log, "--require", requirement, "--max-lag", "1min", "--quiet"]).status.code()
    };
    for (requirement, want) in [
        ("calls.failed<=10", 0),
        ("calls.success>=50%", 0),
        ("ser>=50%", 0),
        ("calls.failed<=0", 3),
        ("calls.failed.tls==0", 1),
        ("srd.p95<10s", 1),
        ("calls.success>=0%", 1),
        ("calls.outgoing==20", 1),
    ] {
        assert_eq!(code(&[], requirement), Some(want), "{requirement}");
    }
    for (requirement, want) in [("ira.any<=50%", 0), ("ira<=50%", 1), ("registration.failed<=10", 1)] {
        assert_eq!(code(&["-w", "register"], requirement), Some(want), "{requirement}");
    }
}

fn a_closed_port_ends_its_calls_at_once() {
    let closed = port::free_address().to_string();
    for words in [&["-w", "register"][..], &[], &["--connections", "per-call"], &["-r", "1000"]] {
        let run = || {
            let begun = Stopwatch::start();
            let ran = load(&[&[closed.as_str()][..], &["-m", "10", "--no-preflight"], words].concat());
            let took = begun.took();
            // The schedule alone takes a second.
            assert!(took.is_below(Duration::from_secs(4)), "{words:?}: {took:?} {}", ran.said);
            ran.ended_with(1);
            ran
        };
        // Linux limits ICMP errors per second for the whole machine (net.ipv4.icmp_msgs_per_sec): another test may have
        // used them up.
        let was_told = |ran: &Ran| ran.count("counters", "retransmissions") == 0;
        let ran = (0..3).map(|_| run()).find(was_told).expect("a run in which each error is told");
        assert_eq!((ran.failures("refused"), ran.calls("failed")), (10, 10), "{words:?}: {}", ran.said);
        assert!(ran.said.contains("nothing listens on"), "{}", ran.said);
        as_published(&ran.json);
    }
    // A document has no pre-flight; it ends as early.
    let folder = folder();
    let path = folder.path().join("asks.xml");
    std::fs::write(&path, OPTIONS).expect("the folder can be written");
    let begun = Stopwatch::start();
    let ran = load(&[&closed, "--sf", &path.display().to_string(), "-m", "5", "-r", "50"]);
    assert!(begun.took().is_below(Duration::from_secs(3)), "{:?} {}", begun.took(), ran.said);
    ran.ended_with(1);
    assert_eq!(ran.failures("refused"), 5, "{}", ran.said);
}

const OPTIONS: &str = r#"<?xml version="1.0"?><scenario name="asks"><send retrans="500"><![CDATA[
  OPTIONS sip:[service]@[remote_ip]:[remote_port] SIP/2.0
  Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]
  From: <sip:me@[local_ip]>;tag=[call_number]
  To: <sip:[service]@[remote_ip]>
  Call-ID: [call_id]
  CSeq: 1 OPTIONS
  Content-Length: 0

]]></send><recv response="200"/></scenario>"#;

fn the_first_line_says_nothing_good_of_a_server_that_failed() {
    let busy = peer(|_, text| Some(if text.starts_with("INVITE") { "486 Busy Here" } else { "200 OK" })).to_string();
    let silent = peer(|_, _| None).to_string();
    let uas = answers(&[]);
    let good = uas.address.to_string();
    let wide = [
        "-r",
        "100",
        "-m",
        "10",
        "--hold",
        "0",
        "--timeout",
        "300ms",
        "--no-preflight",
        "--max-lag",
        "1min",
        "--max-stall",
        "1min",
    ];
    for (target, server, outcome) in [
        (
            &busy,
            "Server       Every call failed: 0 of 10 succeeded, most often by: 10 × 486 Busy Here (INVITE).",
            "all-failed",
        ),
        (&silent, "Server       answered nothing: 10 calls, 10 messages sent, none received.", "silent"),
        (&good, "Server       All 10 calls succeeded.", "succeeded"),
    ] {
        let folder = folder();
        let html = folder.path().join("report.html");
        let path = html.display().to_string();
        let ran = load(&[&[target.as_str()][..], &wide, &["--html", &path]].concat());
        // The table is on the stream without the report.
        let table: Vec<&str> = ran
            .said
            .lines()
            .filter(|line| line.starts_with("Generator    kept") || line.starts_with("Server "))
            .collect();
        assert_eq!(
            table,
            ["Generator    kept up with its schedule: the figures are the server's.", server],
            "{}",
            ran.said
        );
        assert!(!ran.said.contains("VALID"), "{}", ran.said);
        assert_eq!(ran.json["verdict"]["outcome"], outcome);
        as_published(&ran.json);
        let page = std::fs::read_to_string(&html).expect("the page is written");
        let server = server.split_once("       ").map_or("", |(_, text)| text);
        assert!(
            page.contains("<strong>Generator</strong>") && page.contains(&format!("<strong>Server</strong>{server}")),
            "{server}"
        );
    }
    let ran = load(&[&busy, "-r", "100", "-m", "10", "--no-preflight", "--max-lag", "1min"]);
    let refusal = &ran.json["refusals"][0];
    assert_eq!(
        (&refusal["code"], &refusal["reason"], &refusal["count"]),
        (&486.into(), &"Busy Here".into(), &10.into())
    );
    assert!(ran.said.contains("Failures     10 × 486 Busy Here (INVITE)"), "{}", ran.said);
    // A generator at its limit is reported first, and no requirement has a mark.
    let limit = output(&[&good, "-r", "100", "-m", "5", "--hold", "0", "--max-lag", "0", "--require", "ser>=1%"]);
    let text = String::from_utf8_lossy(&limit.stdout).into_owned();
    assert!(text.starts_with("INVALID ") && text.contains("(--max-lag)") && text.contains("\n? ser>=1%"), "{text}");
    assert!(!text.contains('✓'), "{text}");
}

fn logs_of_callers_and_answerers_are_no_sum() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (calls, answered) = (path("calls.log"), path("answers.log"));
    let uas = answers(&["--log", &answered]);
    let ran =
        load(&[&uas.address.to_string(), "-r", "100", "-m", "50", "--hold", "0", "--no-preflight", "--log", &calls]);
    ran.all_successful(50);
    let there = uas.report();
    for order in [[&calls, &answered], [&answered, &calls]] {
        let both =
            load(&["report", order[0], order[1], "--max-lag", "1min", "--require", "answering.calls.successful==50"]);
        as_published(&both.json);
        assert_eq!(both.code, 0, "{}", both.said);
        assert_eq!(both.json["counters"], ran.json["counters"], "the callers' alone");
        assert_eq!(both.json["answering"]["counters"], there.json["counters"], "beside the answerers'");
        assert_eq!(both.json["concurrency"]["most"], ran.json["concurrency"]["most"]);
        let roles: Vec<&str> = both.json["generators"]
            .as_array()
            .expect("two")
            .iter()
            .filter_map(|g| g["heading"]["role"].as_str())
            .collect();
        assert_eq!(roles, ["caller", "answerer"]);
    }
    // Timers of two documents are added by name.
    let uas = answers(&[]);
    let logs = [("setup", "other"), ("other", "more")].map(|(first, second)| {
        let text = OPTIONS.replace(
            "<recv response=\"200\"/>",
            &format!("<recv response=\"200\" rtd=\"{first}\"/><nop rtd=\"{second}\"/>"),
        );
        let document = folder.path().join(format!("{first}.xml"));
        std::fs::write(&document, text).expect("the folder can be written");
        let log = path(&format!("{first}.log"));
        load(&[
            &uas.address.to_string(),
            "--sf",
            &document.display().to_string(),
            "-m",
            "10",
            "-r",
            "50",
            "--log",
            &log,
        ])
        .all_successful(10);
        log
    });
    let both = load(&["report", &logs[0], &logs[1], "--require", "timer.more.count==10"]);
    let counts = ["setup", "other", "more"].map(|name| both.json["timers"][name]["count"].as_u64());
    assert_eq!(counts, [Some(10), Some(20), Some(10)], "{}", both.said);
    assert!(!both.said.contains("different timers") && Path::new(&logs[0]).exists(), "{}", both.said);
}

fn a_log_that_is_not_whole_passes_no_gate() {
    let (folder, uas) = (folder(), answers(&[]));
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (killed, whole, cut) = (path("killed.log"), path("whole.log"), path("cut.log"));
    let target = uas.address.to_string();
    let words = [target.as_str(), "-r", "100", "-d", "20s", "--hold", "600ms", "--no-preflight", "--log", &killed];
    let mut generator = Running::start(&words);
    generator.reach(2);
    generator.signal(libc::SIGKILL);
    generator.end(Duration::from_secs(10));
    let ran = load(&[
        &target,
        "-r",
        "100",
        "-m",
        "50",
        "--hold",
        "0",
        "--no-preflight",
        "--max-lag",
        "1min",
        "--log",
        &whole,
    ]);
    ran.all_successful(50);
    let bytes = std::fs::read(&whole).expect("the log can be read");
    std::fs::write(&cut, &bytes[..bytes.len() - 9]).expect("the folder can be written");
    let gate = ["--require", "calls.failed==0", "--max-lag", "1min", "--max-stall", "1min", "--max-run-queue", "1min"];
    let report = |logs: &[&str], more: &[&str]| {
        let ended = output(&[&["report"], logs, &gate, more].concat());
        (ended.status.code(), said(&ended))
    };
    assert_eq!(report(&[&whole], &[]).0, Some(0));
    for quiet in [&[][..], &["--quiet"]] {
        let (code, text) = report(&[&killed], quiet);
        assert_eq!(code, Some(4), "{text}");
        assert!(text.contains("killed.log has no ending") && text.contains("are in no book"), "{text}");
        let (code, text) = report(&[&whole, &cut], quiet);
        assert!(code == Some(4) && text.contains("cut.log"), "{text}");
    }
    assert!(report(&[&killed], &[]).1.contains("A log is not whole"));
    let json = output(&[&["report", &killed, "--json", "-"][..], &gate].concat());
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).expect("the report is JSON");
    as_published(&json);
    assert_eq!(
        (&json["verdict"]["valid"], &json["generators"][0]["reasons"][0]["threshold"]),
        (&false.into(), &"log".into())
    );
}
