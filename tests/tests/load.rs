//! `strowger load` as its user runs it: what it makes, what it says when something is wrong, and how it ends.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use strowger_tests::certificate::Certificate;
use strowger_tests::process::Process;
use strowger_tests::server::Setup;
use strowger_tests::wire::Transport;
use strowger_tests::{alone, binary, port};

/// The figures of a run, and how it ended.
struct Ran {
    code: i32,
    json: Value,
    /// Standard error: the table and what was said.
    said: String,
}

impl Ran {
    fn count(&self, of: &str, name: &str) -> u64 {
        self.json[of][name].as_u64().unwrap_or_else(|| panic!("no {of}.{name}:\n{}", self.said))
    }

    fn calls(&self, name: &str) -> u64 {
        self.count("counters", &format!("calls.{name}"))
    }

    /// µs.
    fn delay(&self, name: &str, figure: &str) -> f64 {
        self.json["delays"][name][figure].as_f64().unwrap_or_else(|| panic!("no {name}.{figure}:\n{}", self.said))
    }

    /// It ended with this code; where the machine of the test was too busy for the generator, with that of INVALID instead.
    #[track_caller]
    fn ended_with(&self, code: i32) {
        let late = self.json["verdict"]["valid"] == false;
        assert_eq!(self.code, if late { 4 } else { code }, "{}", self.said);
        let reasons = self.json["verdict"]["reasons"].to_string();
        assert!(!late || reasons.contains("late") || reasons.contains("stood still"), "{reasons}");
    }

    fn failures(&self, name: &str) -> u64 {
        self.json["failures"][name].as_u64().unwrap_or(0)
    }
}

fn command(words: &[&str]) -> Command {
    let mut command = Command::new(binary::strowger());
    command.arg("load").args(words).stdin(Stdio::null());
    command
}

fn output(words: &[&str]) -> Output {
    command(words).output().expect("the program starts")
}

fn ran(output: &Output) -> Ran {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let json = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}\n{said}", String::from_utf8_lossy(&output.stdout)));
    Ran { code: output.status.code().unwrap_or(-1), json, said }
}

/// Runs `strowger load` with its report on standard output.
fn load(words: &[&str]) -> Ran {
    let mut all = words.to_vec();
    all.extend(["--json", "-"]);
    ran(&output(&all))
}

/// What it says to a command line that it refuses, and the exit code.
fn refused(words: &[&str]) -> (i32, String) {
    let output = output(words);
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// An answering side of its own.
struct Answers {
    process: Process,
    address: SocketAddr,
}

fn answers(folder: &Path, words: &[&str]) -> Answers {
    let port = port::free();
    let mut command = command(&["uas", "--source", "127.0.0.1", "--port", &port.to_string()]);
    command.args(words);
    let mut process = Process::start("uas", folder, &mut command);
    process.wait_for("Answering on", 1, Duration::from_secs(20));
    Answers { process, address: SocketAddr::from(([127, 0, 0, 1], port)) }
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder can be made")
}

/// Answers each request by this function: what follows `SIP/2.0 `, or nothing.
fn peer(answer: impl Fn(usize, &str) -> Option<&'static str> + Send + 'static) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    socket.set_read_timeout(Some(Duration::from_secs(30))).expect("it can be set");
    let address = socket.local_addr().expect("it is bound");
    std::thread::spawn(move || {
        let mut buffer = [0; 65_536];
        let mut number = 0;
        while let Ok((length, from)) = socket.recv_from(&mut buffer) {
            let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
            if text.starts_with("ACK") {
                continue;
            }
            let Some(line) = answer(number, &text) else { continue };
            number += 1;
            let kept: String = text
                .lines()
                .filter(|l| ["Via:", "From:", "Call-ID:", "CSeq:"].iter().any(|n| l.starts_with(n)))
                .map(|l| format!("{l}\r\n"))
                .collect();
            let to = text.lines().find(|l| l.starts_with("To:")).unwrap_or_default();
            let reply = format!(
                "SIP/2.0 {line}\r\n{kept}{to};tag=peer\r\nContact: <sip:{address}>\r\nContent-Length: 0\r\n\r\n"
            );
            let _ = socket.send_to(reply.as_bytes(), from);
        }
    });
    address
}

#[test]
fn one_line_is_enough() {
    let _alone = alone();
    let folder = folder();
    let uas = answers(folder.path(), &[]);
    let ran = load(&[&uas.address.to_string()]);
    ran.ended_with(0);
    assert_eq!((ran.calls("outgoing"), ran.calls("successful"), ran.calls("failed")), (100, 100, 0), "{}", ran.said);
    let duration = ran.json["run"]["duration_s"].as_f64().expect("a duration");
    assert!((10.5..14.0).contains(&duration), "ten seconds of calls that are held for one: {duration}\n{}", ran.said);
    assert!(!ran.said.contains('\u{1b}'), "colours are for terminals:\n{}", ran.said);
    for second in ["   5 s  ", "  10 s  "] {
        assert!(ran.said.contains(second), "a line a second:\n{}", ran.said);
    }
}

#[test]
fn every_workload_comes_to_its_end() {
    let _alone = alone();
    let folder = folder();
    let uas = answers(folder.path(), &[]);
    let address = uas.address.to_string();
    for (workload, measure) in [
        ("call", "session.completed"),
        ("register", "registration.successful"),
        ("re-register", "registration.successful"),
        ("register-then-call", "session.completed"),
        ("options", "request.successful"),
        ("message", "request.successful"),
        ("mix", "session.completed"),
    ] {
        let ran = load(&[&address, "-w", workload, "-r", "100", "-m", "100", "--hold", "50ms", "--seed", "7"]);
        assert_eq!((ran.calls("successful"), ran.calls("failed")), (100, 0), "{workload}: {}", ran.said);
        let done = ran.count("counters", measure);
        match workload {
            "re-register" => assert_eq!(done, 200, "{workload}"),
            "mix" => assert!((50..90).contains(&done), "{workload}: {done}\n{}", ran.said),
            _ => assert_eq!(done, 100, "{workload}"),
        }
        ran.ended_with(0);
    }
}

#[test]
fn both_ends_through_the_server_by_each_transport() {
    let _alone = alone();
    let server = Setup::on(&[Transport::Udp, Transport::Tcp, Transport::Ws, Transport::Tls]).relay().start();
    for transport in [Transport::Udp, Transport::Tcp, Transport::Tls] {
        let target = format!("{}://{}", transport.name(), server.address(transport));
        let mut words = vec![target.as_str(), "--pair", "-r", "100", "-m", "50", "--hold", "20ms"];
        let certificate = Certificate::in_folder(server.folder(), &["example.org"]);
        let (authority, chain, key) = (certificate.authority, certificate.chain, certificate.key);
        let files = [&authority, &chain, &key].map(|path| path.display().to_string());
        if transport.is_secure() {
            words.extend(["--tls-ca", &files[0], "--tls-cert", &files[1], "--tls-key", &files[2]]);
        }
        let ran = load(&words);
        assert_eq!((ran.calls("successful"), ran.calls("failed")), (50, 0), "{target}: {}", ran.said);
        assert_eq!(ran.json["run"]["transport"], transport.name().to_uppercase());
    }
}

#[test]
fn users_register_with_their_passwords_and_call() {
    let _alone = alone();
    let server = Setup::on(&[Transport::Udp])
        .with("domains = [\"example.org\"]\nrealm = \"example.org\"\nproxy.relay_for = \"authenticated\"\nban.enabled = false")
        .start();
    let mut list = String::from("SEQUENTIAL\n");
    for user in 0..5 {
        server.add_user(&format!("user{user}@example.org"), &format!("secret{user}"));
        list.push_str(&format!("user{user};secret{user}\n"));
    }
    server.add_user("bob@example.org", "builder");
    let users = server.folder().join("users.csv");
    std::fs::write(&users, list).expect("the folder can be written");
    let (target, users) = (server.address(Transport::Udp).to_string(), users.display().to_string());
    let domain = ["--domain", "example.org"];

    let words = [&[target.as_str(), "-w", "register", "--users", &users, "-r", "50", "-m", "20"], &domain[..]].concat();
    let ran = load(&words);
    assert_eq!((ran.calls("successful"), ran.count("counters", "challenges")), (20, 20), "{}", ran.said);
    assert_eq!(ran.count("counters", "registration.successful"), 20, "{}", ran.said);

    let pair = ["--pair", "--callee", "bob:builder", "-r", "50", "-m", "20", "--hold", "20ms"];
    let ran = load(&[&[target.as_str(), "--users", &users], &domain[..], &pair[..]].concat());
    assert_eq!((ran.calls("successful"), ran.calls("failed")), (20, 0), "{}", ran.said);

    // Without a password, and with a wrong one.
    let ran = load(&[&[target.as_str(), "-w", "register", "-r", "50", "-m", "5"], &domain[..]].concat());
    ran.ended_with(1);
    assert_eq!(ran.calls("failed"), 5, "{}", ran.said);
    assert!(ran.said.contains("asks for a password") && ran.said.contains("--users FILE"), "{}", ran.said);
    let ran = load(
        &[&[target.as_str(), "-w", "register", "--auth", "user1:wrong", "-r", "50", "-m", "5"], &domain[..]].concat(),
    );
    ran.ended_with(1);
    assert_eq!(ran.calls("failed"), 5, "{}", ran.said);
    assert!(ran.said.contains("is the password right"), "{}", ran.said);
}

#[test]
fn users_register_and_receive() {
    let _alone = alone();
    let server = Setup::on(&[Transport::Udp]).open_registrar().in_memory().with("ban.enabled = false").start();
    let folder = folder();
    std::fs::write(folder.path().join("users.csv"), "anna\nberta\ncarla\n").expect("the folder can be written");
    let target = server.address(Transport::Udp).to_string();
    let domain = ["--domain", "example.org"];
    let words = [target.as_str(), "-w", "register-then-receive", "--users", "users.csv", "-r", "50"];
    let words = [&words[..], &domain[..], &["--duration", "6s", "--json", "report.json"]].concat();
    let mut phones = Process::start("phones", folder.path(), command(&words).current_dir(folder.path()));
    phones.wait_for("  1 s  ", 1, Duration::from_secs(20));
    for user in ["anna", "carla"] {
        let callee = format!("sip:{user}@example.org");
        let ran = load(&[&callee, "--proxy", &target, "-r", "50", "-m", "20", "--hold", "20ms", "--no-preflight"]);
        assert_eq!((ran.calls("successful"), ran.calls("failed")), (20, 0), "{user}: {}", ran.said);
    }
    phones.end(Duration::from_secs(60));
    let said = phones.log();
    let json = std::fs::read(folder.path().join("report.json")).expect("the report is there");
    let ran = Ran { code: 0, json: serde_json::from_slice(&json).expect("JSON"), said };
    assert_eq!(ran.count("counters", "registration.successful"), 3, "each user once: {}", ran.said);
    assert_eq!(ran.count("counters", "incoming.completed"), 40, "{}", ran.said);
    assert_eq!(ran.json["run"]["ended"], "time is up", "{}", ran.said);
}

#[test]
fn ctrl_c_takes_back_calls_through_a_proxy() {
    let _alone = alone();
    let server = Setup::on(&[Transport::Udp]).relay().start();
    let folder = folder();
    let mut uas = answers(folder.path(), &["--json", "/dev/stdout"]);
    let (callee, proxy) = (format!("sip:bob@{}", uas.address), server.address(Transport::Udp).to_string());
    let words = [&callee, "--proxy", &proxy, "-r", "50", "--duration", "1h", "--hold", "1h", "--no-preflight"];
    let mut generator = Process::start("generator", folder.path(), &mut command(&words));
    generator.wait_for("  2 s  ", 1, Duration::from_secs(20));
    generator.signal(libc::SIGTERM);
    generator.end(Duration::from_secs(10));
    std::thread::sleep(Duration::from_millis(300));
    uas.process.signal(libc::SIGINT);
    uas.process.end(Duration::from_secs(10));
    let log = uas.process.log();
    let report = log.lines().find(|line| line.starts_with('{')).unwrap_or_else(|| panic!("no report: {log}"));
    let report: Value = serde_json::from_str(report).expect("JSON");
    let answered = report["counters"]["incoming.answered"].as_u64().expect("a count");
    assert!(answered >= 50, "{log}");
    // By Record-Route the proxy stays in the way, and the BYE takes that way.
    assert_eq!(report["counters"]["incoming.completed"], answered, "{log}");
    assert_eq!(report["counters"]["calls.failed"], 0, "{log}");
}

#[test]
fn requirements_stand_first_and_have_an_exit_code() {
    let _alone = alone();
    let folder = folder();
    let uas = answers(folder.path(), &[]);
    let address = uas.address.to_string();
    let schedule = [address.as_str(), "-r", "50", "-m", "50", "--hold", "0"];
    let met = ["--require", "srd.p95<1s", "--require", "calls.successful==50", "--require", "ser>=100%"];
    let good = output(&[&schedule[..], &met[..]].concat());
    let text = String::from_utf8_lossy(&good.stdout).into_owned();
    let busy = |text: &str| text.contains("INVALID").then_some(4);
    assert_eq!(good.status.code(), busy(&text).or(Some(0)), "{text}");
    let marks: Vec<bool> = text.lines().take(3).map(|line| line.starts_with("✓ ")).collect();
    assert_eq!(marks, [true; 3], "{text}");
    let bad = output(&[&schedule[..], &["--require", "srd.p50<1us"]].concat());
    let text = String::from_utf8_lossy(&bad.stdout).into_owned();
    assert_eq!(bad.status.code(), busy(&text).or(Some(3)), "{text}");
    assert!(text.starts_with("✗ srd.p50<1us "), "{text}");
}

#[test]
fn a_command_line_that_cannot_be_used_is_explained() {
    for (words, part) in [
        (&["some:host:x"][..], "neither host:port"),
        (&["127.0.0.1", "-w", "dance"], "register-then-call"),
        (&["127.0.0.1", "--require", "srd<200ms"], "srd.p95"),
        (&["127.0.0.1", "--require", "sdr.p95<200ms"], "nearest"),
        (&["127.0.0.1", "--rate", "fast"], "calls a second such as 100"),
        (&["127.0.0.1", "--rate-profile", "100"], "a ramp"),
        (&["127.0.0.1", "--rate-profile", "/nowhere/profile.csv"], "cannot be read"),
        (&["127.0.0.1", "--users", "/nowhere/users.csv"], "/nowhere/users.csv cannot be read"),
        (&["127.0.0.1", "--scenario", "/nowhere/call.xml"], "/nowhere/call.xml"),
        (&["127.0.0.1", "--json", "/nowhere/report.json"], "no such folder"),
        (&["127.0.0.1", "--connections", "8"], "UDP has none"),
        (&["tcp://127.0.0.1", "--connections", "per-call"], "A number makes so many"),
        (&["nobody.invalid"], "nobody.invalid"),
        (&[], "TARGET"),
        (&["report", "/nowhere/run.log"], "/nowhere/run.log"),
    ] {
        let (code, said) = refused(words);
        assert_eq!(code, 2, "{words:?}: {said}");
        assert!(said.contains(part), "{words:?}: {said}");
    }
}

#[test]
fn a_document_and_its_data() {
    let _alone = alone();
    let folder = folder();
    let uas = answers(folder.path(), &[]);
    let address = uas.address.to_string();
    let path = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("the folder can be written");
        path.display().to_string()
    };
    let document = path(
        "options.xml",
        r#"<?xml version="1.0" encoding="UTF-8"?>
        <scenario name="mine"><send retrans="500"><![CDATA[
          OPTIONS sip:[field0]@[remote_ip]:[remote_port] SIP/2.0
          Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]
          From: <sip:me@[local_ip]>;tag=[call_number]
          To: <sip:[field0]@[remote_ip]>
          Call-ID: [call_id]
          CSeq: 1 OPTIONS
          X-Word: [word]
          Content-Length: 0

        ]]></send><recv response="200" rtd="asked"/></scenario>"#,
    );
    let data = path("data.csv", "SEQUENTIAL\nanna;1\nberta;2\n");
    let base = [address.as_str(), "--sf", &document, "--key", "word=here", "-r", "50", "-m", "20"];
    let ran = load(&[&base[..], &["--inf", &data, "--require", "timer.asked.p99<2s"]].concat());
    assert_eq!((ran.calls("successful"), ran.calls("failed")), (20, 0), "{}", ran.said);
    assert_eq!(ran.json["timers"]["asked"]["count"], 20, "{}", ran.said);

    // The data are missing: not named, named and not there; the document is broken.
    let (code, said) = refused(&base);
    assert!(code == 2 && said.contains("injection file"), "{code}: {said}");
    let (code, said) = refused(&[&base[..], &["--inf", "/nowhere/data.csv"]].concat());
    assert!(code == 2 && said.contains("/nowhere/data.csv"), "{code}: {said}");
    let broken = path(
        "broken.xml",
        "<?xml version=\"1.0\"?>\n<scenario>\n<send><![CDATA[\nOPTIONS sip:[nonsense] SIP/2.0\n]]></send></scenario>",
    );
    let (code, said) = refused(&[&address, "--scenario", &broken]);
    assert!(code == 2 && said.contains("broken.xml:4") && said.contains("nonsense"), "{code}: {said}");
    let waits = path("waits.xml", "<?xml version=\"1.0\"?><scenario><recv request=\"INVITE\"/></scenario>");
    let (code, said) = refused(&[&address, "--scenario", &waits]);
    assert!(code == 2 && said.contains("load uas --scenario"), "{code}: {said}");
}

#[test]
fn a_closed_port() {
    let _alone = alone();
    let address = port::free_address().to_string();
    // The pre-flight meets it, before a call is made.
    for target in [address.clone(), format!("tcp://{address}"), format!("tls://{address}")] {
        let (code, said) = refused(&[&target, "-m", "10"]);
        assert_eq!(code, 1, "{said}");
        assert!(said.contains("nothing listens on") && said.contains("is the server running"), "{target}: {said}");
    }
    // The calls meet it.
    let ran = load(&[&address, "--no-preflight", "-r", "100", "-m", "20", "--timeout", "1s"]);
    ran.ended_with(1);
    assert_eq!((ran.calls("outgoing"), ran.calls("failed")), (20, 20), "{}", ran.said);
    assert!(ran.said.contains("Nothing came back from"), "{}", ran.said);
    let tcp = format!("tcp://{address}");
    let ran = load(&[&tcp, "--no-preflight", "-r", "100", "-m", "20", "--timeout", "1s"]);
    ran.ended_with(1);
    assert_eq!((ran.calls("failed"), ran.failures("connect")), (20, 20), "{}", ran.said);
    assert!(ran.said.contains("No connection to"), "{}", ran.said);
    let own = ran.count("counters", "send_failures");
    assert_eq!(own, 0, "the target refused, not the generator:\n{}", ran.said);
}

#[test]
fn a_frozen_receiver() {
    let _alone = alone();
    let folder = folder();
    let uas = answers(folder.path(), &[]);
    uas.process.signal(libc::SIGSTOP);
    let ran = load(&[&uas.address.to_string(), "-r", "100", "-m", "50", "--timeout", "1500ms"]);
    uas.process.signal(libc::SIGCONT);
    ran.ended_with(1);
    assert_eq!((ran.calls("outgoing"), ran.calls("failed")), (50, 50), "{}", ran.said);
    assert_eq!(ran.failures("receive_timeout"), 50, "{}", ran.said);
    // Timer A: 500 ms and 1.5 s after the INVITE; the second falls together with the end of patience.
    assert!((50..=100).contains(&ran.count("counters", "retransmissions")), "{}", ran.said);
    assert_eq!(ran.json["ratios"]["isa"]["value"], 100.0, "{}", ran.said);
    assert!(ran.said.contains("Nothing came back from"), "{}", ran.said);
}

#[test]
fn an_overloaded_receiver() {
    let _alone = alone();
    // OPTIONS is answered; of the calls only the first ten.
    let address = peer(|number, text| match text.split(' ').next() {
        Some("INVITE") if number > 20 => Some("503 Service Unavailable\r\nRetry-After: 5"),
        _ => Some("200 OK"),
    });
    let ran = load(&[&address.to_string(), "-r", "100", "-m", "100", "--hold", "0"]);
    ran.ended_with(1);
    assert_eq!(ran.calls("outgoing"), 100, "{}", ran.said);
    let refused = ran.count("counters", "session.ineffective");
    assert!(refused >= 80, "{}", ran.said);
    assert_eq!((ran.failures("unexpected"), ran.calls("failed")), (refused, refused), "{}", ran.said);
    assert!(ran.said.contains("refused for overload, or by a rate limiter"), "{}", ran.said);
}

#[test]
fn a_rate_limiter_is_met_before_the_calls() {
    let _alone = alone();
    let address = peer(|number, text| match text.starts_with("OPTIONS") && number >= 6 {
        true => Some("503 Service Unavailable\r\nRetry-After: 7"),
        false => Some("200 OK"),
    });
    let ran = load(&[&address.to_string(), "-r", "200", "-m", "10", "--hold", "0"]);
    assert!(ran.said.contains("seems to limit the rate: after 6 requests"), "{}", ran.said);
    assert!(ran.json["verdict"]["warnings"].to_string().contains("Retry-After: 7"), "{}", ran.json["verdict"]);
}

#[test]
fn a_handshake_that_fails() {
    let _alone = alone();
    let folder = folder();
    let [server, other] = ["server", "other"].map(|name| {
        let path = folder.path().join(name);
        std::fs::create_dir(&path).expect("the folder can be written");
        Certificate::in_folder(&path, &["example.org"])
    });
    let text = |path: &Path| path.display().to_string();
    let uas = answers(
        folder.path(),
        &["--transport", "tls", "--tls-cert", &text(&server.chain), "--tls-key", &text(&server.key)],
    );
    let target = format!("tls://{}", uas.address);
    let trust = |authority: &Path| {
        load(&[&target, "-r", "50", "-m", "10", "--timeout", "2s", "--hold", "0", "--tls-ca", &text(authority)])
    };
    let good = trust(&server.authority);
    assert_eq!((good.calls("successful"), good.calls("failed")), (10, 0), "{}", good.said);
    let bad = trust(&other.authority);
    bad.ended_with(1);
    assert_eq!(bad.calls("failed"), 10, "{}", bad.said);
    assert!(bad.said.contains("TLS handshake with") && bad.said.contains("must be of an authority"), "{}", bad.said);

    // A port that speaks no TLS at all, and ends the connection.
    let plain = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let target = format!("tls://{}", plain.local_addr().expect("it is bound"));
    std::thread::spawn(move || {
        for mut stream in plain.incoming().flatten() {
            let _ = stream.read(&mut [0; 64]);
            let _ = stream.write_all(b"SIP/2.0 400 Bad Request\r\n\r\n");
        }
    });
    let ran = load(&[&target, "-r", "50", "-m", "5", "--timeout", "2s"]);
    ran.ended_with(1);
    assert_eq!(ran.calls("failed"), 5, "{}", ran.said);
    assert!(ran.said.contains("does it speak TLS on this port?"), "{}", ran.said);
}

#[test]
fn a_full_disk() {
    let _alone = alone();
    let folder = folder();
    let uas = answers(folder.path(), &[]);
    let address = uas.address.to_string();
    let calls = [address.as_str(), "-r", "50", "-m", "10", "--hold", "0"];
    for option in ["--json", "--csv", "--html"] {
        let output = output(&[&calls[..], &[option, "/dev/full"]].concat());
        let (table, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(if table.contains("INVALID") { 4 } else { 1 }), "{said}");
        assert!(said.contains("/dev/full cannot be written: No space left on device"), "{said}");
        assert!(table.contains("10 successful"), "the figures are shown all the same: {table}");
    }
    let ran = load(&[&calls[..], &["--log", "/dev/full"]].concat());
    ran.ended_with(0);
    assert_eq!(ran.calls("successful"), 10, "a log that is lost stops no run: {}", ran.said);
    assert!(ran.said.contains("raw log cannot be written"), "{}", ran.said);
}

#[test]
fn a_generator_that_is_held_up_is_not_believed() {
    let _alone = alone();
    let folder = folder();
    let uas = answers(folder.path(), &[]);
    let words = [&uas.address.to_string(), "-r", "200", "--duration", "3s", "--hold", "0", "--json", "report.json"];
    let mut generator = Process::start("generator", folder.path(), command(&words).current_dir(folder.path()));
    generator.wait_for("1 s  ", 1, Duration::from_secs(20));
    generator.signal(libc::SIGSTOP);
    std::thread::sleep(Duration::from_millis(1_000));
    generator.signal(libc::SIGCONT);
    let code = generator.end(Duration::from_secs(60)).code();
    let said = generator.log();
    assert_eq!(code, Some(4), "{said}");
    assert!(said.contains("INVALID") && said.contains("The generator stood still"), "{said}");
    assert!(said.contains("The generator started calls late"), "{said}");
    let json = std::fs::read(folder.path().join("report.json")).expect("the report is there");
    let json: Value = serde_json::from_slice(&json).expect("JSON");
    assert_eq!(
        (&json["verdict"]["valid"], &json["counters"]["calls.outgoing"]),
        (&false.into(), &600.into()),
        "{said}"
    );
}

#[test]
fn a_stalled_server_loses_no_call_from_the_books() {
    let _alone = alone();
    let mut server = Setup::on(&[Transport::Udp]).relay().with("ban.enabled = false").start();
    let folder = folder();
    let target = server.address(Transport::Udp).to_string();
    let words = [&target, "--pair", "-r", "1000", "--duration", "6s", "--hold", "0", "--json", "report.json"];
    let mut generator = Process::start("generator", folder.path(), command(&words).current_dir(folder.path()));
    generator.wait_for("  2 s  ", 1, Duration::from_secs(20));
    server.process().signal(libc::SIGSTOP);
    std::thread::sleep(Duration::from_secs(2));
    server.process().signal(libc::SIGCONT);
    generator.end(Duration::from_secs(90));
    let said = generator.log();
    let json = std::fs::read(folder.path().join("report.json")).expect("the report is there");
    let ran = Ran { code: 0, json: serde_json::from_slice(&json).expect("JSON"), said };
    // The schedule went on through the stall, and every call has an end.
    assert_eq!((ran.calls("intended"), ran.calls("outgoing")), (6_000, 6_000), "{}", ran.said);
    let ended = ran.calls("successful") + ran.calls("failed") + ran.calls("stopped");
    assert_eq!(ended, 6_000, "{}", ran.said);
    assert!(ran.calls("successful") >= 5_900, "retransmissions carry the calls over the stall: {}", ran.said);
    // Those of two of six seconds waited, the first of them for the whole stall.
    assert!(ran.delay("srd.intended", "max") >= 1_800_000.0, "{}", ran.said);
    assert!(ran.delay("srd.intended", "p90") >= 500_000.0, "{}", ran.said);
    assert!(ran.delay("srd.intended", "mean") >= ran.delay("srd", "mean"), "{}", ran.said);
    assert!(ran.count("counters", "retransmissions") >= 1_000, "{}", ran.said);
}

#[test]
fn ctrl_c_ends_the_calls_and_the_reports_are_written() {
    let _alone = alone();
    let folder = folder();
    let mut uas = answers(folder.path(), &["--json", "/dev/stdout"]);
    let words = [
        &uas.address.to_string(),
        "-r",
        "50",
        "--duration",
        "1h",
        "--hold",
        "1h",
        "--json",
        "report.json",
        "--html",
        "report.html",
        "--log",
        "run.log",
    ];
    let mut generator = Process::start("generator", folder.path(), command(&words).current_dir(folder.path()));
    generator.wait_for("  2 s  ", 1, Duration::from_secs(20));
    generator.signal(libc::SIGINT);
    let begun = Instant::now();
    let code = generator.end(Duration::from_secs(10)).code();
    assert!(begun.elapsed() < Duration::from_secs(5), "nobody waits for an hour");
    let said = generator.log();
    assert!(code == Some(0) || code == Some(4), "{code:?} {said}");
    let json = std::fs::read(folder.path().join("report.json")).expect("the report is there");
    let json: Value = serde_json::from_slice(&json).expect("JSON");
    assert_eq!(json["run"]["ended"], "interrupted");
    let begun = json["counters"]["calls.outgoing"].as_u64().expect("calls");
    assert!(begun >= 50 && json["counters"]["calls.stopped"] == begun, "{said}");
    assert!(std::fs::metadata(folder.path().join("report.html")).is_ok_and(|m| m.len() > 10_000));
    // Each call ended with a BYE at the other side.
    std::thread::sleep(Duration::from_millis(300));
    uas.process.signal(libc::SIGINT);
    uas.process.end(Duration::from_secs(10));
    let log = uas.process.log();
    let report = log.lines().find(|line| line.starts_with('{')).unwrap_or_else(|| panic!("no report: {log}"));
    let report: Value = serde_json::from_str(report).expect("JSON");
    let byes = report["requests"].as_array().expect("requests").iter().find(|row| row["method"] == "BYE");
    assert_eq!(byes.map(|row| &row["received"]), Some(&begun.into()), "{report}");

    // The raw log alone gives the same report; twice, the double.
    let log = folder.path().join("run.log").display().to_string();
    let again = load(&["report", &log]);
    assert_eq!(again.json["counters"], json["counters"], "{}", again.said);
    let both = load(&["report", &log, &log]);
    assert_eq!(both.json["counters"]["calls.outgoing"], begun * 2, "{}", both.said);
}

#[test]
fn a_dry_run_sends_nothing() {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    socket.set_nonblocking(true).expect("it can be set");
    let address = socket.local_addr().expect("it is bound");
    let output = output(&[&format!("sip:bob@{address}"), "--dry-run"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{text}");
    for part in
        [format!("INVITE sip:bob@{address} SIP/2.0\n"), "\nACK sip:".into(), "\nBYE sip:".into(), "CSeq: 2 BYE".into()]
    {
        assert!(text.contains(&part), "{part}:\n{text}");
    }
    assert!(socket.recv(&mut [0; 64]).is_err(), "the target got something");
}

#[test]
fn prometheus_reads_the_run() {
    let _alone = alone();
    let folder = folder();
    let uas = answers(folder.path(), &[]);
    let scrape = port::free_address();
    let words =
        [&uas.address.to_string(), "-r", "50", "--duration", "3s", "--hold", "0", "--prometheus", &scrape.to_string()];
    let mut generator = Process::start("generator", folder.path(), &mut command(&words));
    generator.wait_for("  2 s  ", 1, Duration::from_secs(20));
    let mut stream = TcpStream::connect(scrape).expect("it listens");
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n").expect("it reads");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("it answers");
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
    let value = text.lines().find_map(|line| line.strip_prefix("strowger_load_calls_outgoing_total "));
    assert!(value.and_then(|value| value.trim().parse::<f64>().ok()).is_some_and(|calls| calls > 0.0), "{text}");
    generator.end(Duration::from_secs(30));
}

#[test]
fn a_profile_has_the_calls_of_its_area() {
    let _alone = alone();
    let folder = folder();
    let uas = answers(folder.path(), &[]);
    let address = uas.address.to_string();
    let words = [address.as_str(), "--hold", "0", "--shards", "2", "--rate-profile"];
    let ran = load(&[&words[..], &["40:1s,40-80:1s,burst:30"]].concat());
    assert!((128..=132).contains(&ran.calls("outgoing")), "{}", ran.said);
    assert_eq!(ran.calls("failed"), 0, "{}", ran.said);
    let file = folder.path().join("profile.csv");
    std::fs::write(&file, "time,rate\n0,20\n1,100,ramp\n2,0\n").expect("the folder can be written");
    let ran = load(&[&words[..], &[&file.display().to_string()]].concat());
    assert!((68..=72).contains(&ran.calls("outgoing")), "{}", ran.said);
}
