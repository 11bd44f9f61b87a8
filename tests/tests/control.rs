//! Commands to the running server through its control socket.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::Value;
use strowger_tests::account::authorized;
use strowger_tests::control::{done, json, run};
use strowger_tests::server::{Server, Setup};
use strowger_tests::text::{Request, status};
use strowger_tests::wire::Transport;

const SOON: Duration = Duration::from_secs(10);

/// Returns exit code and error message of a failed command.
fn failed(server: &Server, words: &[&str]) -> (Option<i32>, String) {
    let output = run(server, words);
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn socket(server: &Server) -> PathBuf {
    server.folder().join("test.control")
}

fn register(server: &Server, user: &str) -> Option<u16> {
    let mut wire = server.connect(Transport::Udp);
    let contact = format!("sip:{user}@{}", wire.local());
    wire.send(&Request::register(user, "example.org", &contact, "udp", wire.local()).bytes()).expect("it is sent");
    status(&wire.final_response(SOON).expect("an answer"))
}

#[test]
fn status_shows_the_server_and_its_figures() {
    let mut server = Setup::on(&[Transport::Udp, Transport::Tcp]).open_registrar().start();
    assert_eq!(std::fs::metadata(socket(&server)).expect("it is there").permissions().mode() & 0o777, 0o600);
    for user in ["alice", "bob"] {
        assert_eq!(register(&server, user), Some(200));
    }
    let text = done(&server, &["status"]);
    let process = server.process().id();
    assert!(text.starts_with(&format!("Strowger {}, process {process}: ready\n", env!("CARGO_PKG_VERSION"))), "{text}");
    for line in ["  registrations  2, 2 users\n", "  banned         0 sources\n", "  shard 0        "] {
        assert!(text.contains(line), "no {line:?} in\n{text}");
    }
    let status = json(&server, &["status"]);
    assert_eq!(status["metrics"]["strowger_bindings"], 2.0);
    assert_eq!(status["metrics"]["strowger_registrations_total"], 2.0);
    assert_eq!(status["listeners"].as_array().map(Vec::len), Some(2));
    assert_eq!(status["shards"][0]["buckets"], 256);
    assert!(status["shards"][0]["longest_turn_seconds"].as_f64().is_some_and(|seconds| seconds > 0.0));

    // Without a server, the error names the socket that was tried.
    server.stop();
    assert!(!socket(&server).exists());
    let (code, said) = failed(&server, &["status"]);
    assert_eq!((code, said.contains(&socket(&server).display().to_string())), (Some(3), true), "{said}");
    // A killed server leaves its socket, and the next one replaces it.
    server.start();
    server.process().signal(libc::SIGKILL);
    server.process().end(SOON);
    assert_eq!(failed(&server, &["status"]).0, Some(3));
    server.start();
    assert_eq!(json(&server, &["status"])["metrics"]["strowger_bindings"], 2.0);
}

#[test]
fn registrations_are_listed_page_by_page() {
    let server = Setup::on(&[Transport::Udp]).open_registrar().start();
    assert_eq!(done(&server, &["registrations"]), "no registrations\n");
    assert_eq!(json(&server, &["registrations"]), Value::Array(Vec::new()));
    let mut wire = server.connect(Transport::Udp);
    const USERS: usize = 1_203;
    for n in 0..USERS {
        let contact = format!("sip:u{n}@{}", wire.local());
        let user = format!("u{n}");
        wire.send(&Request::register(&user, "example.org", &contact, "udp", wire.local()).bytes()).expect("it is sent");
        assert_eq!(status(&wire.final_response(SOON).expect("an answer")), Some(200));
    }
    let all = json(&server, &["registrations"]);
    let mut users: Vec<&str> = all.as_array().expect("a list").iter().filter_map(|row| row["user"].as_str()).collect();
    users.sort_unstable();
    users.dedup();
    assert_eq!(users.len(), USERS);
    let some = json(&server, &["registrations", "--limit", "601"]);
    assert_eq!(some.as_array().map(Vec::len), Some(601));
    let one = json(&server, &["registrations", "--user", "u77@example.org"]);
    assert_eq!(one.as_array().map(Vec::len), Some(1));
    assert_eq!(one[0]["contact"], format!("sip:u77@{}", wire.local()));
    assert_eq!((&one[0]["transport"], &one[0]["received"]), (&"udp".into(), &Value::Null));
    assert!(one[0]["expires_in_seconds"].as_u64().is_some_and(|left| (1..=3_600).contains(&left)), "{one}");
    let text = done(&server, &["registrations", "--user", "u77@example.org"]);
    assert!(text.starts_with("user ") && text.contains("\nu77@example.org "), "{text}");
    assert_eq!(done(&server, &["registrations", "--user", "carol@example.org"]), "no registrations\n");
}

#[test]
fn bans_are_listed_and_lifted() {
    let server = Setup::on(&[Transport::Udp, Transport::Tcp])
        .with("domains = [\"example.org\"]\nban.exempt = []\nban.scanners = [\"evil\"]")
        .start();
    assert_eq!(done(&server, &["ban", "list"]), "no source is banned\n");
    let mut wire = server.connect(Transport::Tcp);
    let uri = format!("sip:{};transport=tcp", server.address(Transport::Tcp));
    let good = Request::new("OPTIONS", &uri, "tcp", wire.local());
    wire.send(&good.bytes()).expect("it is sent");
    assert!(wire.final_response(SOON).is_some());
    let scan = Request::new("OPTIONS", &uri, "tcp", wire.local()).with("User-Agent: evil/1");
    wire.send(&scan.bytes()).expect("it is sent");
    let banned = || json(&server, &["ban", "list"])["bans"].as_array().expect("a list").clone();
    assert!(strowger_tests::wait::until(SOON, || banned().len() == 1));
    assert_eq!(banned()[0]["source"], "127.0.0.1");
    assert!(banned()[0]["seconds_left"].as_u64().is_some_and(|left| left > 0));
    assert_eq!(json(&server, &["status"])["metrics"]["strowger_sources_banned"], 1.0);
    let (code, said) = failed(&server, &["ban", "lift", "192.0.2.7"]);
    assert_eq!((code, said.contains("192.0.2.7 is not banned")), (Some(1), true), "{said}");
    assert_eq!(done(&server, &["ban", "lift", "127.0.0.1"]), "bans lifted: 1\n");
    assert!(banned().is_empty());
    let mut wire = server.connect(Transport::Tcp);
    let good = Request::new("OPTIONS", &uri, "tcp", wire.local());
    wire.send(&good.bytes()).expect("it is sent");
    assert!(wire.final_response(SOON).is_some());
    wire.send(&scan.bytes()).expect("it is sent");
    assert!(strowger_tests::wait::until(SOON, || banned().len() == 1));
    assert_eq!(json(&server, &["ban", "lift", "--all"])["lifted"], 1);
    server.log_with("bans lifted by command");
}

#[test]
fn the_log_level_changes_while_the_server_runs() {
    let server = Setup::on(&[Transport::Udp]).open_registrar().with("log.level = \"warn\"").start();
    assert_eq!(done(&server, &["log", "level"]), "warn\n");
    assert_eq!(register(&server, "alice"), Some(200));
    assert_eq!(done(&server, &["log", "level", "info"]), "info\n");
    assert_eq!(register(&server, "bob"), Some(200));
    let log = server.log_with("bob@example.org");
    assert!(!log.contains("alice@example.org"), "{log}");
    let (code, said) = failed(&server, &["log", "level", "loud"]);
    assert_eq!((code, said.contains("\"loud\" is no level: write error, warn")), (Some(1), true), "{said}");
    assert_eq!(done(&server, &["log", "level"]), "info\n");
}

#[test]
fn drain_ends_the_server_when_calls_are_set_up() {
    let mut server = Setup::on(&[Transport::Udp]).open_registrar().start();
    assert_eq!(done(&server, &["drain", "--wait"]), "the server has ended\n");
    assert_eq!(server.process().end(SOON).code(), Some(0), "{}", server.log());
    assert_eq!(failed(&server, &["drain"]).0, Some(3));
}

#[test]
fn so_many_commands_are_connected_for_so_long() {
    let server = Setup::on(&[Transport::Udp]).open_registrar().with("control.socket = \"orders\"").start();
    let path = server.folder().join("orders");
    let begun = Instant::now();
    let silent: Vec<UnixStream> = (0..8).map(|_| UnixStream::connect(&path).expect("it listens")).collect();
    let (code, said) = failed(&server, &["status"]);
    assert_eq!((code, said.contains("8 other commands are connected")), (Some(1), true), "{said}");
    for mut stream in silent {
        stream.set_read_timeout(Some(2 * SOON)).expect("a socket takes a time-out");
        assert_eq!(stream.read_to_end(&mut Vec::new()).expect("it is closed"), 0);
    }
    assert!(begun.elapsed() >= Duration::from_millis(9_500));
    // Invalid input is refused, however long it is.
    for line in [&b"status\n"[..], &[b'{'; 100_000]] {
        let stream = UnixStream::connect(&path).expect("it listens");
        stream.set_read_timeout(Some(SOON)).expect("a socket takes a time-out");
        let _ = (&stream).write_all(line);
        let mut reply = String::new();
        let _ = BufReader::new(&stream).read_line(&mut reply);
        assert!(reply.starts_with("{\"refused\":\"not an order of this version:"), "{reply}");
    }
    done(&server, &["status"]);
}

#[test]
fn without_a_control_socket_commands_say_so() {
    let server = Setup::on(&[Transport::Udp]).relay().start();
    let (code, said) = failed(&server, &["status"]);
    assert_eq!((code, said.contains("has no control socket")), (Some(1), true), "{said}");
    let server = Setup::on(&[Transport::Udp]).open_registrar().with("control.socket = \"none\"").start();
    assert_eq!(failed(&server, &["status"]).0, Some(1));
    // A path in the configuration must be usable; the default path need not be.
    let mut server = Setup::on(&[Transport::Udp]).relay().with("control.socket = \"missing/orders\"").prepare();
    assert_eq!(server.try_start().end(SOON).code(), Some(1));
    let log = server.log();
    assert!(log.contains("`control.socket`") && log.contains("missing/orders cannot be bound"), "{log}");
    let mut server = Setup::on(&[Transport::Udp]).open_registrar().prepare();
    std::fs::write(socket(&server), "precious").expect("the folder can be written");
    server.start();
    server.log_with("no control socket");
    server.stop();
    assert!(socket(&server).exists());
}

/// The command ends the registrations of the old password, and the server refuses that password at once.
#[test]
fn a_changed_password_ends_registrations() {
    let lines = "domains = [\"example.org\"]";
    let mut server = Setup::on(&[Transport::Udp]).with(lines).start();
    server.add_user("alice@example.org", "old");
    let registers = |server: &Server, password: &str| {
        let mut phone = server.connect(Transport::Udp);
        let request =
            Request::register("alice", "example.org", &format!("sip:alice@{}", phone.local()), "udp", phone.local());
        let mut ask = |request: &Request| {
            phone.send(&request.bytes()).expect("it is sent");
            phone.final_response(SOON).expect("an answer")
        };
        let challenge = ask(&request);
        status(&ask(&authorized(&request, &challenge, "alice", password)))
    };
    assert_eq!(registers(&server, "old"), Some(200));
    let passwd = ["passwd", "alice@example.org", "--end-registrations"];
    let said = server.user(&passwd, "new");
    assert!(
        said.contains("changed the password of alice@example.org") && said.contains("registrations removed: 1"),
        "{said}"
    );
    assert_eq!(json(&server, &["registrations"]), serde_json::json!([]));
    assert_eq!((registers(&server, "old"), registers(&server, "new")), (Some(401), Some(200)));
    assert!(server.user(&passwd[..2], "newer").lines().count() == 1);
    assert_eq!(json(&server, &["registrations"]).as_array().map(Vec::len), Some(1), "without the option they stay");
    assert!(server.user(&passwd, "last").contains("registrations removed: 1"));
    assert!(server.user(&passwd, "last").contains("registrations removed: 0"));
    server.stop();
}
