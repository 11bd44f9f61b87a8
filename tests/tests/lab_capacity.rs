//! `strowger lab capacity` as a user runs it: the limit that it finds, and its messages about obstacles.

use std::net::{SocketAddr, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Instant;

use serde_json::Value;
use strowger_lab::system::{self, Setting, SystemFolder};
use strowger_tests::generator::peer;
use strowger_tests::program::{KAMAILIO, have};
use strowger_tests::server::Setup;
use strowger_tests::wire::Transport;
use strowger_tests::{alone, binary, port, shared, undisturbed};

/// Finished measurement.
struct Ran {
    code: i32,
    json: Value,
    said: String,
}

fn capacity(target: &str, words: &[&str]) -> Ran {
    let mut command = Command::new(binary::strowger());
    command.args(["lab", "capacity", target, "--json", "-"]).args(words).stdin(Stdio::null());
    let output = command.output().expect("the program starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let json = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    Ran { code: output.status.code().unwrap_or(-1), json, said }
}

/// Starts a server that accepts this many requests of a method per second, and refuses the others.
fn limited(method: &'static str, rate: f64) -> SocketAddr {
    let bucket = Mutex::new((Instant::now(), 0.0));
    peer(move |_, request| {
        if !request.starts_with(method) {
            return Some("200 OK");
        }
        let (last, tokens) = &mut *bucket.lock().expect("no answer panics");
        *tokens = (*tokens + last.elapsed().as_secs_f64() * rate).min((rate / 20.0).max(2.0));
        *last = Instant::now();
        let is_taken = *tokens >= 1.0;
        *tokens -= f64::from(u8::from(is_taken));
        Some(if is_taken { "200 OK" } else { "503 Service Unavailable" })
    })
}

/// Asserts that the limit is within a tenth of the rate, that the server is the cause, and that the message says so.
#[track_caller]
fn finds(ran: &Ran, rate: f64, unit: &str) {
    assert_eq!(ran.code, 0, "{}", ran.said);
    let limit = ran.json["limit"].as_f64().expect("there is a limit");
    assert!((limit / rate - 1.0).abs() <= 0.1, "{limit} of {rate}\n{}", ran.said);
    assert_eq!((&ran.json["cause"]["part"], &ran.json["finding"]), (&"server".into(), &"found".into()), "{}", ran.said);
    assert_eq!(ran.json["confirmed"], true, "{}", ran.said);
    let answer = ran.json["answer"].as_str().unwrap_or_default();
    assert!(answer.contains(unit) && answer.contains("the limit is the server: "), "{answer}");
    assert!(answer.contains("; beyond, ") && ran.said.contains("not carried"), "{}", ran.said);
}

/// Options for short trials.
const SHORT: [&str; 4] = ["--trial", "1s", "--confirm", "4s"];

#[test]
fn the_limit_of_a_server_is_found() {
    undisturbed(|| {
        std::thread::scope(|scope| {
            let of_requests = scope.spawn(|| capacity(&limited("OPTIONS", 500.0).to_string(), &SHORT));
            let calls = capacity(&format!("sip:bob@{}", limited("INVITE", 50.0)), &SHORT);
            finds(&calls, 50.0, "calls/s");
            finds(&of_requests.join().expect("it ran"), 500.0, "requests/s");
        });
    });
}

/// Configuration of a registrar whose domain is its address.
const REGISTRAR: &str = "domains = [\"127.0.0.1\"]\nban.enabled = false";

#[test]
fn each_transport_and_each_kind_of_work_is_measured() {
    undisturbed(each_kind_of_work_is_measured);
}

/// OPTIONS by a connection, registrations with passwords, and calls with both ends in this process.
fn each_kind_of_work_is_measured() {
    let registrar = Setup::on(&[Transport::Udp, Transport::Tcp, Transport::Tls]);
    let registrar = registrar.with(REGISTRAR).start();
    // A trial registers the same contacts as the one before, also by connections.
    let few = [Transport::Udp, Transport::Tcp, Transport::Tls]
        .map(|transport| Setup::on(&[transport]).with(&format!("{REGISTRAR}\nregistrar.max_contacts = 1")).start());
    let relay = Setup::on(&[Transport::Udp, Transport::Tcp]).relay().start();
    for user in ["alice", "carol", "bob"] {
        registrar.add_user(&format!("{user}@127.0.0.1"), &format!("of {user}"));
        few.iter().for_each(|few| few.add_user(&format!("{user}@127.0.0.1"), &format!("of {user}")));
    }
    let users = registrar.folder().join("callers.csv");
    std::fs::write(&users, "alice;of alice\ncarol;of carol\n").expect("the folder can be written");
    let users = users.display().to_string();
    let at = |transport| registrar.address(transport);
    let cases = [
        (format!("sip:{};transport=tcp", at(Transport::Tcp)), vec![], "tcp", "requests/s"),
        (format!("sips:{}", at(Transport::Tls)), vec![], "tls", "requests/s"),
        (format!("tls://{}", few[2].address(Transport::Tls)), vec!["--users", &users], "tls", "registrations/s"),
        (format!("tcp://{}", few[1].address(Transport::Tcp)), vec!["--users", &users], "tcp", "registrations/s"),
        (few[0].address(Transport::Udp).to_string(), vec!["--users", &users], "udp", "registrations/s"),
        (format!("sip:{};transport=tcp", relay.address(Transport::Tcp)), vec!["--pair"], "tcp", "calls/s"),
        (at(Transport::Udp).to_string(), vec!["--users", &users, "--pair", "--callee", "bob:of bob"], "udp", "calls/s"),
    ];
    std::thread::scope(|scope| {
        let ran = cases.map(|(target, words, transport, unit)| {
            let words = [words, ["--max-rate", "30", "--trial", "1s", "--confirm", "2s"].to_vec()].concat();
            (scope.spawn(move || capacity(&target, &words)), transport, unit)
        });
        for (ran, transport, unit) in ran {
            let Ran { code, json, said } = ran.join().expect("it ran");
            assert_eq!(code, 0, "{transport}, {unit}: {said}");
            assert_eq!((&json["transport"], &json["unit"]), (&transport.into(), &unit.into()), "{said}");
            assert_eq!((&json["finding"], &json["limit"]), (&"at least".into(), &30.0.into()), "{said}");
            assert_eq!(json["confirmed"], true, "{said}");
            let answer = json["answer"].as_str().unwrap_or_default();
            assert!(answer.contains(&format!("carries at least 30 {unit}, the most that was offered")), "{answer}");
        }
    });
}

#[test]
fn an_obstacle_has_its_sentence() {
    let _turn = shared();
    let silent = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    let silent = silent.local_addr().map(|address| (silent, address)).expect("it is bound");
    let challenge = peer(|_, _| Some("401 Unauthorized"));
    let refusal = peer(|_, _| Some("404 Not Found"));
    let ban = peer(|number, _| (number < 4).then_some("200 OK"));
    // Answers the pre-flight, and then only for a short time.
    let late = peer(|number, _| (number < 30).then_some("200 OK"));
    let refusing = peer(|number, _| Some(if number < 60 { "200 OK" } else { "403 Forbidden" }));
    let dead = format!("127.0.0.1:{}", port::free());
    let cases = [
        (dead.clone(), 1, "nothing listens on 127.0.0.1:"),
        (silent.1.to_string(), 1, "nothing came back from 127.0.0.1:"),
        (challenge.to_string(), 2, "asks for a password (401): give --users FILE"),
        (refusal.to_string(), 4, "refuses all OPTIONS with 404: "),
        (ban.to_string(), 4, "stopped answering 127.0.0.1 after 4 answers"),
        (refusing.to_string(), 4, "took OPTIONS and refuses all with 403 now, at "),
        (late.to_string(), 4, "and did not come back within 8 s: a ban"),
        (format!("sip:{dead};transport=tcp"), 1, "nothing listens on 127.0.0.1:"),
        (format!("sips:{dead}"), 1, "nothing listens on 127.0.0.1:"),
        ("192.0.2.1".into(), 2, "is neither of this machine nor of a private network: give --yes"),
    ];
    std::thread::scope(|scope| {
        let ran =
            cases.map(|(target, code, sentence)| (scope.spawn(move || capacity(&target, &SHORT)), code, sentence));
        for (ran, code, sentence) in ran {
            let ran = ran.join().expect("it ran");
            assert_eq!((ran.code, ran.said.contains(sentence)), (code, true), "{sentence}\n{}", ran.said);
            assert_eq!(ran.said.matches("error: ").count(), 1, "{}", ran.said);
        }
    });
}

#[test]
#[ignore = "takes minutes; make test-long"]
fn limits_of_servers_with_full_trials() {
    for rate in [50.0, 500.0, 2_000.0] {
        undisturbed(|| {
            let more = (rate * 4.0).to_string();
            let ran = capacity(&limited("OPTIONS", rate).to_string(), &["--max-rate", &more]);
            finds(&ran, rate, "requests/s");
            let seconds = ran.json["seconds"].as_f64().expect("it took its time");
            assert!(seconds <= 180.0, "{seconds}");
        });
    }
}

#[test]
#[ignore = "takes minutes; make test-long"]
fn real_servers_have_an_answer_within_three_minutes() {
    let _alone = alone();
    let answered = |target: &str, words: &[&str]| {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let page = folder.path().join("capacity.html").display().to_string();
        let ran = capacity(target, &[words, &["--html", &page]].concat());
        assert!([0, 3, 4].contains(&ran.code), "{}", ran.said);
        println!("{}", ran.said);
        assert!(ran.json["seconds"].as_f64().is_some_and(|seconds| seconds <= 180.0), "{}", ran.said);
        let page = std::fs::read_to_string(page).expect("it was written");
        assert!(page.contains("Capacity of sip:127.0.0.1") && !ran.json["trials"].is_null());
        ran.said
    };
    let ours = Setup::on(&[Transport::Udp]).relay().start();
    let said = answered(&ours.address(Transport::Udp).to_string(), &["--pair"]);
    assert!(said.contains("calls/s"), "{said}");
    if have(&[KAMAILIO]) {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let kamailio = SystemFolder::open("kamailio", None).expect("it is shipped");
        let mut setting = Setting::new(folder.path(), "relay");
        setting.workers = Some(2);
        let running = system::start(&kamailio, &setting).expect("it starts");
        answered(&running.address().to_string(), &["--pair"]);
    }
}
