//! Every measure of the catalogue is really counted: for each there is a run that makes it nonzero, and a requirement
//! that the run violates. The list of measures is the program's own, so that a measure without such a run is detected.

mod answering;

use self::answering::peer;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;
use strowger_tests::generator::{Running, answers, certificates, output, reply};
use strowger_tests::plant::flood;
use strowger_tests::port;

/// Measures that no run of the program reaches on purpose, and the test that does.
const ELSEWHERE: &[(&str, &str)] = &[
    // A generator with a document of the laboratory's experiment `b2bua` sends stamps.
    ("media.delay.max", "strowger-load: media::stamp::tests::"),
    ("media.refused", "strowger-load: media_streams::too_many_commands_are_refused_and_counted"),
    ("media.unjudged", "strowger-load: media_streams::received::streams_above_the_limit_are_counted"),
];

#[test]
fn every_measure_is_driven_off_zero_and_breaks_a_requirement() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let runs = runs(folder.path());
    assert!(runs.len() > 20, "each run has left its log");
    let reports: Vec<(PathBuf, Value)> = in_turns(&runs, |log| {
        let json = output(&["report", &text(log), "--json", "-"]);
        let json = serde_json::from_slice(&json.stdout).unwrap_or_else(|e| panic!("{}: {e}", log.display()));
        (log.clone(), json)
    });
    let listed = output(&["measures"]);
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let names: Vec<String> = listed.lines().filter(|line| !line.starts_with(' ')).map(name).collect();
    assert!(names.len() > 120, "{listed}");
    let missing = Mutex::new(Vec::new());
    in_turns(&names, |name| {
        let exact = concrete(name);
        if ELSEWHERE.iter().any(|(elsewhere, _)| *elsewhere == exact) {
            return;
        }
        let driven = reports.iter().find(|(_, json)| value(json, &exact).is_some_and(|value| value > 0.0));
        let Some((log, _)) = driven else {
            missing.lock().expect("nobody panics with it").push(exact);
            return;
        };
        let requirement = format!("{exact}==0");
        let ended = output(&["report", &text(log), "--require", &requirement, "--quiet"]);
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        // Delays of the generator itself take precedence.
        assert!([Some(3), Some(4)].contains(&ended.status.code()), "{requirement}: {:?}\n{said}", ended.status);
        assert!(said.contains(&format!("✗ {requirement}")), "{said}");
    });
    let missing = missing.into_inner().expect("nobody panics with it");
    assert!(missing.is_empty(), "no run drives these off zero: {missing:?}");
}

/// Returns the name in a line of `strowger load measures`.
fn name(line: &str) -> String {
    line.split([' ', ',']).next().unwrap_or_default().to_owned()
}

/// Returns one measure of a family; for a delay the maximum.
fn concrete(name: &str) -> String {
    match name {
        "timer.NAME.p95" => "timer.asked.max".into(),
        "responses.CODE" => "responses.486".into(),
        "responses.METHOD.CODE" => "responses.invite.486".into(),
        "sent.METHOD" => "sent.invite".into(),
        "received.METHOD" => "received.bye".into(),
        "resent.METHOD" => "resent.invite".into(),
        name => {
            let delay = name.strip_suffix(".p95").or_else(|| name.strip_suffix(".p1"));
            delay.map_or_else(|| name.to_owned(), |delay| format!("{delay}.max"))
        }
    }
}

/// Returns a figure of a report by the name of its measure.
fn value(json: &Value, name: &str) -> Option<f64> {
    let number = |value: &Value| value.as_f64();
    let rows = |of: &str, what: &dyn Fn(&Value) -> bool, field: &str| -> Option<f64> {
        json[of].as_array().map(|rows| rows.iter().filter(|row| what(row)).filter_map(|row| row[field].as_f64()).sum())
    };
    let delay = |of: &str| name.strip_suffix(".max").and_then(|name| json[of][name]["max"].as_f64());
    number(&json["counters"][name])
        .or_else(|| number(&json["ratios"][name]["value"]))
        .or_else(|| number(&json["rates"][name]["value"]))
        .or_else(|| number(&json["failures"][name.strip_prefix("calls.failed.")?]))
        .or_else(|| delay("delays"))
        .or_else(|| json["timers"][name.strip_prefix("timer.")?.strip_suffix(".max")?]["max"].as_f64())
        .or_else(|| match name {
            "concurrency" => number(&json["concurrency"]["at_end"]),
            "concurrency.max" => number(&json["concurrency"]["most"]),
            "duration" => number(&json["run"]["duration_s"]),
            "responses.486" | "responses.invite.486" => {
                rows("responses", &|row| row["code"] == 486 && row["direction"] == "received", "count")
            }
            "sent.invite" => rows("requests", &|row| row["method"] == "INVITE", "sent"),
            "received.bye" => rows("requests", &|row| row["method"] == "BYE", "received"),
            "resent.invite" => rows("requests", &|row| row["method"] == "INVITE", "resent"),
            _ => None,
        })
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// Does the same work for each, a few at a time.
fn in_turns<T: Sync, R: Send>(all: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some(one) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = work(one);
                    done.lock().expect("nobody panics with it").push(result);
                }
            });
        }
    });
    done.into_inner().expect("nobody panics with it")
}

/// Returns a document with an OPTIONS and `action` at its answer.
fn asking(action: &str) -> String {
    format!(
        "<?xml version=\"1.0\"?><scenario name=\"asks\"><nop><action><assign assign_to=\"one\" value=\"1\"/><assignstr assign_to=\"text\" \
         value=\"a\"/><log message=\"[$one][$text]\"/></action></nop>{}<recv response=\"200\" rtd=\"asked\"><action>{action}</action></recv></scenario>",
        request("OPTIONS", 1, "", "")
    )
}

/// Returns a request of a document; `attributes` of its `send`.
fn request(method: &str, cseq: u32, attributes: &str, body: &str) -> String {
    let tag = if cseq > 1 { "[peer_tag_param]" } else { "" };
    let kind = if body.is_empty() { "" } else { "Content-Type: application/sdp\n" };
    format!(
        "<send {attributes}><![CDATA[\n{method} sip:[service]@[remote_ip]:[remote_port] SIP/2.0\n\
         Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]\nFrom: <sip:me@[local_ip]>;tag=[call_number]\n\
         To: <sip:[service]@[remote_ip]>{tag}\nCall-ID: [call_id]\nCSeq: {cseq} {method}\nContact: <sip:me@[local_ip]:[local_port]>\n\
         Max-Forwards: 70\n{kind}Content-Length: [len]\n\n{body}\n]]></send>"
    )
}

fn document(steps: &[&str]) -> String {
    format!("<?xml version=\"1.0\"?><scenario name=\"d\">{}</scenario>", steps.concat())
}

/// Makes every run; runs that only wait run in parallel. Returns the logs of the runs.
fn runs(folder: &Path) -> Vec<PathBuf> {
    let peer = peer();
    let to = |user: &str| format!("sip:{user}@{peer}");
    let mut plain: Vec<(String, Vec<String>)> = Vec::new();
    let mut run = |name: &str, words: &[&str]| {
        plain.push((name.to_owned(), words.iter().map(|word| (*word).to_owned()).collect()));
    };
    let usual = ["-r", "50", "-m", "3", "--hold", "0", "--timeout", "300ms"];
    for user in
        ["bob", "busy", "moved", "full", "silent", "locked", "bad-bye", "no-bye", "slow", "forks", "twice", "chatty"]
    {
        let patience: &[&str] = if user == "slow" { &["--timeout", "2s"] } else { &[] };
        run(user, &[&[to(user).as_str()][..], &usual[..if patience.is_empty() { 8 } else { 6 }], patience].concat());
    }
    for user in ["alice", "moved", "forbidden", "silent", "locked"] {
        let auth = format!("{user}:secret");
        let target = peer.to_string();
        run(&format!("register-{user}"), &[&[target.as_str(), "-w", "register", "--auth", &auth][..], &usual].concat());
        run(&format!("options-{user}"), &[&[to(user).as_str(), "-w", "options"][..], &usual].concat());
    }
    run("then-call", &[&[to("bob").as_str(), "-w", "register-then-call"][..], &usual].concat());
    let closed = port::free_address().to_string();
    run("refused", &[&[closed.as_str()][..], &usual].concat());
    run("refused-register", &[&[closed.as_str(), "-w", "register"][..], &usual].concat());
    run("connect", &[&[format!("tcp://{closed}").as_str()][..], &usual].concat());
    let plain_tcp = closing();
    for transport in ["tls", "ws", "tcp"] {
        run(transport, &[&[format!("{transport}://{plain_tcp}").as_str()][..], &usual].concat());
    }
    run("forks-longer", &[&[to("forks").as_str()][..], &["-r", "50", "-m", "3", "--hold", "100ms"]].concat());
    run("closed", &[&[format!("tcp://{plain_tcp}").as_str(), "--connections", "per-call"][..], &usual].concat());
    let users = folder.join("users.csv");
    std::fs::write(&users, "alice;secret\nbob;secret\n").expect("the folder can be written");
    let held = ["-w", "register", "--users", &text(&users), "--connections", "per-user", "--connect-rate", "100"];
    run("held", &[&[peer.to_string().as_str()][..], &held, &usual].concat());
    run("limited", &[&to("bob"), "-r", "100", "-m", "20", "-l", "1", "--hold", "20ms"]);

    let (hundred, big) = ("100", "x".repeat(66_000));
    let sdp = "v=0\no=- 1 1 IN IP4 [local_ip]\ns=-\nc=IN IP4 [media_ip]\nt=0 0\nm=audio [media_port] RTP/AVP 8\na=rtpmap:8 PCMA/8000";
    std::fs::write(folder.join("sound.raw"), [0x55; 8_000]).expect("the folder can be written");
    let invite = request("INVITE", 1, "retrans=\"500\"", sdp);
    let answered =
        "<recv response=\"100\" optional=\"true\"/><recv response=\"180\" optional=\"true\"/><recv response=\"200\"/>";
    let ended = [request("BYE", 3, "", ""), "<recv response=\"200\"/>".into()].concat();
    let ack = request("ACK", 1, "", "");
    let play = |file: &str| {
        format!("<nop><action><exec rtp_stream=\"{file}\"/><exec rtp_echo=\"startaudio,8,PCMA\"/></action></nop>")
    };
    let playing =
        document(&[&invite, answered, &ack, &play("sound.raw,-1,8"), "<pause milliseconds=\"1000\"/>", &ended]);
    let again = request("INVITE", 2, "retrans=\"500\"", sdp);
    for (name, user, scenario) in [
        (
            "regexp-no-match",
            "bob",
            asking(
                "<ereg regexp=\"nothing\" search_in=\"msg\" check_it=\"true\" assign_to=\"found\"/><log message=\"[$found]\"/>",
            ),
        ),
        (
            "regexp-match",
            "bob",
            asking(
                "<ereg regexp=\"SIP\" search_in=\"msg\" check_it_inverse=\"true\" assign_to=\"found\"/><log message=\"[$found]\"/>",
            ),
        ),
        (
            "regexp-no-header",
            "bob",
            asking(
                "<ereg regexp=\".\" search_in=\"hdr\" header=\"X-None:\" check_it=\"true\" assign_to=\"found\"/><log message=\"[$found]\"/>",
            ),
        ),
        (
            "test-no-match",
            "bob",
            asking(
                "<test assign_to=\"t\" variable=\"one\" compare=\"equal\" value=\"2\" check_it=\"true\"/><log message=\"[$t]\"/>",
            ),
        ),
        (
            "test-match",
            "bob",
            asking(
                "<test assign_to=\"t\" variable=\"one\" compare=\"equal\" value=\"1\" check_it_inverse=\"true\"/><log message=\"[$t]\"/>",
            ),
        ),
        (
            "compare-no-match",
            "bob",
            asking("<strcmp assign_to=\"t\" variable=\"text\" value=\"b\" check_it=\"true\"/><log message=\"[$t]\"/>"),
        ),
        (
            "compare-match",
            "bob",
            asking(
                "<strcmp assign_to=\"t\" variable=\"text\" value=\"a\" check_it_inverse=\"true\"/><log message=\"[$t]\"/>",
            ),
        ),
        ("rejected", "bob", asking("<exec int_cmd=\"stop_call\"/>")),
        ("fatal", "bob", asking("<error message=\"no further\"/>")),
        (
            "retransmissions",
            "silent",
            document(&[&request("OPTIONS", 1, "retrans=\"5\"", ""), "<recv response=\"200\"/>"]),
        ),
        ("abandoned", "bob", document(&[&request("INVITE", 1, "", ""), "<recv response=\"100\"/>"])),
        ("register-abandoned", "silent", document(&[&request("REGISTER", 1, "", "")])),
        ("modified", "bob", document(&[&invite, answered, &ack, &again, answered, &request("ACK", 2, "", ""), &ended])),
        (
            "cannot-send",
            "bob",
            document(&[
                &request("OPTIONS", 1, "", "").replace("Max-Forwards", &format!("X-Long: {big}\nMax-Forwards")),
                "<recv response=\"200\"/>",
            ]),
        ),
        (
            "no-way-for-media",
            "nowhere",
            document(&[&invite, answered, &ack, &play("sound.raw,1,8"), "<pause milliseconds=\"50\"/>", &ended]),
        ),
    ] {
        let path = folder.join(format!("{name}.xml"));
        std::fs::write(&path, scenario).expect("the folder can be written");
        run(name, &[&to(user), "--sf", &text(&path), "-r", hundred, "-m", "2"]);
    }
    let playing_file = folder.join("playing.xml");
    std::fs::write(&playing_file, playing).expect("the folder can be written");
    std::thread::scope(|scope| {
        let others = [
            scope.spawn(|| cut_short(folder, peer)),
            scope.spawn(|| vec![held_up(folder, peer, &playing_file)]),
            scope.spawn(|| who_answer(folder)),
        ];
        let mut logs = in_turns(&plain, |(name, words)| {
            let log = folder.join(format!("{name}.log"));
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let ended = output(&[&words[..], &["--no-preflight", "--quiet", "--log", &text(&log)]].concat());
            let said = String::from_utf8_lossy(&ended.stderr);
            assert!(ended.status.code().is_some_and(|code| code != 2), "{name}: {:?} {said}", ended.status);
            log
        });
        others.into_iter().for_each(|other| logs.extend(other.join().expect("these runs end")));
        logs
    })
}

/// Runs answering sides and their callers.
fn who_answer(folder: &Path) -> Vec<PathBuf> {
    let refusing = folder.join("refusing.xml");
    let no = "<recv request=\"INVITE\"/><send><![CDATA[\nSIP/2.0 486 Busy Here\n[last_Via:]\n[last_From:]\n[last_To:];tag=1\n[last_Call-ID:]\n[last_CSeq:]\nContent-Length: 0\n\n]]></send><recv request=\"ACK\"/>";
    std::fs::write(&refusing, document(&[no])).expect("the folder can be written");
    let all = [("answers", vec![]), ("refuses", vec!["--scenario".to_owned(), text(&refusing)])];
    let shaken = folder.join("shaken.log");
    let files = certificates(folder);
    let own: Vec<&str> = files[2..].iter().map(String::as_str).collect();
    let uas = answers(&[&["--transport", "tls"][..], &own].concat());
    let target = format!("tls://{}", uas.address);
    let usual = ["-r", "100", "-m", "3", "--hold", "0", "--no-preflight", "--quiet", "--log", &text(&shaken)];
    output(&[&[target.as_str(), "--connections", "per-call"][..], &usual].concat());
    let logs = all.map(|(name, words)| {
        let log = folder.join(format!("{name}.log"));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let uas = answers(&[&words[..], &["--log", &text(&log)]].concat());
        output(&[&uas.address.to_string(), "-r", "100", "-m", "3", "--hold", "0", "--no-preflight", "--quiet"]);
        uas.report();
        log
    });
    logs.into_iter().chain([shaken]).collect()
}

/// Makes runs that Ctrl-C and `kill -9` end.
fn cut_short(folder: &Path, peer: SocketAddr) -> Vec<PathBuf> {
    let start = |name: &str, words: &[&str]| {
        let log = folder.join(format!("{name}.log"));
        let common = ["-r", "50", "--duration", "1min", "--hold", "1min", "--no-preflight", "--grace", "0", "--log"];
        (Running::start(&[words, &common, &[&text(&log)]].concat()), log)
    };
    let registers = peer.to_string();
    let mut all = [
        start("cut", &[&format!("sip:no-bye@{peer}"), "-l", "20"]),
        start("cut-silent", &[&format!("sip:silent@{peer}")]),
        start("cut-register", &[&registers, "-w", "register", "--auth", "silent:x"]),
        start("killed", &[&format!("sip:bob@{peer}")]),
    ];
    for (place, (running, _)) in all.iter_mut().enumerate() {
        running.reach(2);
        running.signal(if place == 3 { libc::SIGKILL } else { libc::SIGINT });
    }
    all.into_iter()
        .map(|(mut running, log)| {
            running.end(Duration::from_secs(10));
            log
        })
        .collect()
}

/// Stops a generator while it plays, and floods it meanwhile.
fn held_up(folder: &Path, peer: SocketAddr, document: &Path) -> PathBuf {
    let log = folder.join("held-up.log");
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    let words = [
        &format!("sip:bob@{peer}"),
        "--sf",
        &text(document),
        "-r",
        "20",
        "--duration",
        "2s",
        "--no-preflight",
        "--timeout",
        "1s",
        "--log",
        &text(&log),
    ];
    let flooded = port::free_address();
    let mut running = Running::start(&[&words[..], &["--port", &flooded.port().to_string()]].concat());
    running.reach(1);
    // Media packets count as late after 10 ms; after a longer stop they are skipped. Between the stops they are sent.
    for _ in 0..5 {
        running.stop_for(Duration::from_millis(40));
        std::thread::sleep(Duration::from_millis(40));
    }
    running.signal(libc::SIGSTOP);
    flood(&socket, flooded);
    // Long enough to count as a stall.
    std::thread::sleep(Duration::from_millis(700));
    running.signal(libc::SIGCONT);
    running.end(Duration::from_secs(30));
    log
}

/// Starts a peer that accepts connections, and closes them at the first input.
fn closing() -> SocketAddr {
    use std::io::Read;
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || stream.read(&mut [0; 100]).is_ok());
        }
    });
    address
}
