//! HTTP pages of the server: metrics for Prometheus, health for supervisors.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};
use strowger_tests::port::free_address;
use strowger_tests::program::{PROMTOOL, have};
use strowger_tests::scrape::{assert_clean, get, scrape, text_over};
use strowger_tests::server::{Server, Setup};
use strowger_tests::text::Request;
use strowger_tests::wait;
use strowger_tests::wire::Transport;

const SOON: Duration = Duration::from_secs(10);

/// Starts a server with its metrics, and returns their address.
fn start(setup: Setup) -> (Server, SocketAddr) {
    let address = free_address();
    (setup.with(&format!("metrics.listen = \"{address}\"")).start(), address)
}

fn register(server: &Server, user: &str) {
    let mut wire = server.connect(Transport::Udp);
    let contact = format!("sip:{user}@{}", wire.local());
    let request = Request::register(user, "example.org", &contact, "udp", wire.local());
    wire.send(&request.bytes()).expect("it is sent");
    let answer = wire.final_response(SOON).expect("an answer");
    assert_eq!(strowger_tests::text::status(&answer), Some(200));
}

#[test]
fn metrics_are_clean_and_count_what_was_done() {
    let (server, address) = start(Setup::on(&[Transport::Udp]).open_registrar());
    let before = scrape(address);
    for user in ["alice", "bob"] {
        register(&server, user);
    }
    let after = scrape(address);
    for (name, more) in [
        ("strowger_registrations_total", 2.0),
        ("strowger_bindings", 2.0),
        ("strowger_registered_users", 2.0),
        ("strowger_requests_total{method=\"REGISTER\"}", 2.0),
        ("strowger_datagrams_in_total", 2.0),
        ("strowger_journal_kept_total", 2.0),
    ] {
        assert_eq!(after[name] - before[name], more, "{name}");
    }
    for name in ["strowger_commit_seconds_count", "strowger_commit_seconds_sum", "strowger_rounds_total{shard=\"0\"}"] {
        assert!(after[name] > before[name], "{name}");
    }
    assert!(after["strowger_shard_longest_turn_seconds{shard=\"0\"}"] > 0.0);
    assert!(after["process_resident_memory_bytes"] > 1e6);

    assert_clean(&text_over(TcpStream::connect(address).expect("the server listens")));
}

#[test]
fn supervisors_hear_whether_it_works() {
    let (mut server, address) = start(Setup::on(&[Transport::Udp]).relay().with("server.drain_timeout = \"20s\""));
    for path in ["/healthz", "/readyz"] {
        assert!(get(address, path).starts_with("HTTP/1.1 200 OK\r\n"), "{path}");
    }
    assert!(get(address, "/").starts_with("HTTP/1.1 404 Not Found\r\n"));
    // A call that waits for its answer delays the end.
    let mut caller = server.connect(Transport::Udp);
    let silent = free_address();
    let phone = std::net::UdpSocket::bind(silent).expect("a free port");
    let invite = Request::new("INVITE", &format!("sip:bob@{silent}"), "udp", caller.local());
    caller.send(&invite.bytes()).expect("it is sent");
    phone.set_read_timeout(Some(SOON)).expect("a socket takes a time-out");
    phone.recv(&mut [0; 2_048]).expect("the INVITE");
    server.process().signal(libc::SIGTERM);
    server.log_with("graceful shutdown");
    let answer = get(address, "/readyz");
    assert!(
        answer.starts_with("HTTP/1.1 503 Service Unavailable\r\n") && answer.ends_with("shutting down\n"),
        "{answer}"
    );
    assert!(get(address, "/healthz").starts_with("HTTP/1.1 200 OK\r\n"));
    server.process().signal(libc::SIGTERM);
    server.process().end(SOON);
}

#[test]
fn so_many_connections_are_served_for_so_long() {
    let (_server, address) = start(Setup::on(&[Transport::Udp]).relay());
    let begun = Instant::now();
    let mut silent: Vec<TcpStream> = (0..16).map(|_| TcpStream::connect(address).expect("it listens")).collect();
    for stream in &mut silent {
        stream.set_read_timeout(Some(SOON)).expect("a socket takes a time-out");
        assert_eq!(stream.read_to_end(&mut Vec::new()).expect("it is closed"), 0);
    }
    // The time for the head of a request is shorter than that of a connection.
    assert!(begun.elapsed() >= Duration::from_millis(1_900));
    // Sixteen clients that do not read their answers: other clients get the pages for supervisors only.
    let slow: Vec<TcpStream> = (0..16).map(|_| asks_and_does_not_read(address)).collect();
    assert!(get(address, "/metrics").starts_with("HTTP/1.1 503 "));
    assert!(get(address, "/healthz").starts_with("HTTP/1.1 200 OK\r\n"));
    drop(slow);
    assert!(wait::until(SOON, || get(address, "/metrics").starts_with("HTTP/1.1 200 OK\r\n")));
    // An endless head is refused, and no method but GET and HEAD is known.
    let mut stream = TcpStream::connect(address).expect("it listens");
    let _ = stream.write_all(&[b"GET / HTTP/1.1\r\nX: ".as_slice(), &[b'x'; 100_000]].concat());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP/1.1 2"), "{}", String::from_utf8_lossy(&answer));
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.write_all(b"POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n").expect("it is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 405 "), "{answer}");
}

/// Connects a client that requests the metrics with a window too small for them.
fn asks_and_does_not_read(address: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.set_recv_buffer_size(1_024).expect("a buffer");
    socket.set_tcp_mss(536).expect("a size of segments");
    socket.connect(&address.into()).expect("it listens");
    let mut stream = TcpStream::from(socket);
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("it is sent");
    stream.set_read_timeout(Some(SOON)).expect("a socket takes a time-out");
    stream.peek(&mut [0]).expect("the answer begins");
    stream
}

/// A client that opens connections and sends no request, or never completes one.
#[test]
fn connections_without_a_request_keep_no_supervisor_out() {
    let address = free_address();
    let orders = format!("control.listen = \"{address}\"");
    let (_server, pages) = start(Setup::on(&[Transport::Udp]).relay().with(&orders));
    for (address, path) in [(pages, "/healthz"), (pages, "/readyz"), (pages, "/metrics"), (address, "/v1/status")] {
        let mut idle = Vec::new();
        for _ in 0..12 {
            for _ in 0..5 {
                let mut stream = TcpStream::connect(address).expect("it listens");
                stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: lo").as_bytes()).expect("it is sent");
                idle.push(stream);
            }
            let answer = get(address, path);
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{path}: {answer}");
        }
        let first = &mut idle[0];
        first.set_read_timeout(Some(SOON)).expect("a socket takes a time-out");
        assert_eq!(first.read_to_end(&mut Vec::new()).expect("it is closed"), 0);
    }
}

/// DNS rebinding: a page in a browser of this machine uses a name that resolves to this server.
#[test]
fn a_page_of_the_web_reads_no_metrics() {
    let (_server, address) = start(Setup::on(&[Transport::Udp]).relay());
    for (host, path, code) in [
        ("evil.test", "/metrics", 403),
        ("evil.test:9060", "/metrics", 403),
        ("127.0.0.1.evil.test", "/", 403),
        ("localhost", "/metrics", 200),
        ("127.0.0.1:9060", "/metrics", 200),
        // A supervisor may use any name, and its pages disclose nothing else.
        ("evil.test", "/healthz", 200),
    ] {
        let mut stream = TcpStream::connect(address).expect("it listens");
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()).expect("it is sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        assert!(answer.starts_with(&format!("HTTP/1.1 {code} ")), "{host}{path}: {answer}");
        assert_eq!(answer.contains("strowger_"), code == 200 && path == "/metrics", "{host}{path}");
    }
}

/// The shipped alerts are valid for Prometheus, and refer to existing metrics.
#[test]
fn the_alerts_ask_for_metrics_that_there_are() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let file = root.join("packaging/prometheus-rules.yml");
    let text = std::fs::read_to_string(&file).expect("the alerts are there");
    let documents = std::fs::read_to_string(root.join("docs/metrics.md")).expect("the documents are there");
    let names = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    let names: Vec<&str> = names.filter(|name| name.starts_with("strowger_") || name.starts_with("process_")).collect();
    assert!(names.len() > 15, "{names:?}");
    for name in names {
        let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
        assert!(documents.contains(&format!("| `{family}` |")), "docs/metrics.md has no {name}");
    }
    if have(&[PROMTOOL]) {
        let checked = Command::new("promtool").args(["check", "rules"]).arg(&file).output().expect("it is there");
        assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    }
}
