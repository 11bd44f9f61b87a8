//! Cost of one message, one source and one network to the server: processor time and memory, against bounds.
//!
//! `bench_abuse [--messages N]` starts the program (`STROWGER_BIN`, or the one of this tree) with its default policy
//! and limits, and for each kind of expensive message sends many of them one after the other. Processor time is that of
//! all threads of the program (`/proc/PID/task/*/schedstat`), memory its proportional set size (`smaps_rollup`). Exit
//! code 1 when a row is beyond its bound. The network row needs root and the packages iproute2 and iptables.

use std::any::Any;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use strowger_benches::command_line::run;
use strowger_tests::account::{authorized, authorized_again, challenged, register, register_at};
use strowger_tests::call::exchange;
use strowger_tests::namespace::{self, Namespace};
use strowger_tests::server::{Server, Setup};
use strowger_tests::text::{Request, respond, status, unique};
use strowger_tests::wire::Transport::{self, Tcp, Tls, Udp, Ws};
use strowger_tests::wire::Wire;

/// Bounds of one message: processor time, and bytes that the server keeps for it.
const MESSAGE: (Duration, u64) = (Duration::from_millis(1), 64 << 10);
/// Bound of the bytes that the server keeps for one source, or one /64.
const SOURCE: u64 = 64 << 20;
/// A value that fills a datagram.
const LARGE: usize = 60_000;
/// Length of a value that makes the datagram as large as possible.
const LARGEST: usize = 65_150;
const LIMIT: Duration = Duration::from_secs(10);
const PASSWORD: &str = "a password";

#[derive(clap::Parser)]
#[command(about = "What one message, one source and one network can cost the server")]
struct Arguments {
    /// Messages of each kind
    #[arg(long, value_name = "N", default_value = "100", value_parser = clap::value_parser!(u32).range(10..))]
    messages: u32,
}

/// Table of the measured rows.
struct Table {
    failed: bool,
}

impl Table {
    fn row(&mut self, name: &str, time: Option<Duration>, bytes: u64, bound: u64) {
        let late = time.is_some_and(|time| time > MESSAGE.0);
        let kept = bytes > bound;
        self.failed |= late || kept;
        let time = time.map_or_else(|| "-".into(), |time| format!("{:.3} of 1.000", time.as_secs_f64() * 1e3));
        let word = if late || kept { "BEYOND" } else { "ok" };
        println!("{name:<64} {time:>15} {:>9} of {:<8} {word}", bytes >> 10, bound >> 10);
    }
}

/// Starts a server with its defaults, perhaps in a namespace. By default the server never bans loopback addresses.
fn start(setup: Setup) -> Server {
    let server = setup.with("domains = [\"example.org\"]\nlog.statistics = \"1s\"").start();
    for user in ["alice", "bob", "carol"] {
        server.add_user(&format!("{user}@example.org"), PASSWORD);
    }
    server
}

/// Returns the processor time of the server, and memory that it keeps, while `work` sends `n` messages.
fn measured(server: &mut Server, n: u32, mut work: impl FnMut(u32)) -> (Duration, u64) {
    let (time, memory) = (server.process().run_time(), server.process().pss());
    (0..n).for_each(&mut work);
    let took = server.process().run_time().saturating_sub(time) / n;
    // The allocator returns freed memory a moment later.
    std::thread::sleep(Duration::from_millis(300));
    (took, server.process().pss().saturating_sub(memory) / u64::from(n))
}

fn options(wire: &Wire) -> Request {
    Request::new("OPTIONS", "sip:example.org", wire.transport().name(), wire.local())
}

/// Returns the text of this length that repeats `value`.
fn long(value: &str, bytes: usize) -> String {
    value.repeat(bytes / value.len())
}

/// Measures messages that the server answers at once.
fn answered(server: &mut Server, table: &mut Table, n: u32) {
    let lines = |line: &str, n: usize| vec![line.to_owned(); n];
    let authorization = |parameters: &str| {
        format!(
            "Authorization: Digest username=\"alice\", realm=\"example.org\", uri=\"sip:x\", {parameters}response=\"0\""
        )
    };
    let deep = (0..4_000).map(|i| format!("p{i}=\"\\\"\", ")).collect::<String>();
    let kinds: Vec<(&str, Vec<String>)> = vec![
        ("OPTIONS", vec![]),
        ("User-Agent of 60 kB", vec![format!("User-Agent: {}", long("a", LARGE))]),
        (
            "User-Agent of 60 kB, almost the name of a scanner",
            vec![format!("User-Agent: {}", long("friendly-scanne", LARGE))],
        ),
        ("Via x 200", lines("Via: SIP/2.0/UDP 192.0.2.1;branch=z9hG4bK1", 200)),
        ("Via x 1000, more header fields than allowed", lines("Via: SIP/2.0/UDP 192.0.2.1;branch=z9hG4bK1", 1_000)),
        (
            "Via x 1000 in one header field",
            vec![format!("Via: {}SIP/2.0/UDP 192.0.2.1", long("SIP/2.0/UDP 192.0.2.1;branch=z9hG4bK1, ", 40_000))],
        ),
        ("Record-Route x 200", lines("Record-Route: <sip:192.0.2.1;lr>", 200)),
        ("Route of 55 kB", vec![format!("Route: {}<sip:192.0.2.1;lr>", long("<sip:192.0.2.1;lr>, ", 55_000))]),
        ("a header field of 60 kB", vec![format!("X: {}", long("x", LARGE))]),
        ("a header field folded into 10,000 lines", vec![format!("X: {}", long("x\r\n ", 40_000))]),
        ("Contact x 2,300", vec![format!("Contact: {}<sip:a@b>", long("<sip:a@192.0.2.1>;q=0.1, ", 57_000))]),
        ("Authorization of 55 kB in 4,000 parameters", vec![authorization(&deep)]),
        ("Contact of 25,000 parameters", vec![format!("Contact: <sip:a@192.0.2.1>{}", long(";a", 50_000))]),
        ("Contact with a URI of 25,000 parameters", vec![format!("Contact: <sip:a@192.0.2.1{}>", long(";a", 50_000))]),
        ("Route of 25,000 parameters", vec![format!("Route: <sip:192.0.2.1;lr>{}", long(";a", 50_000))]),
        ("Route with a URI of 25,000 parameters", vec![format!("Route: <sip:192.0.2.1;lr{}>", long(";a", 50_000))]),
        ("Via of 25,000 parameters", vec![format!("Via: SIP/2.0/UDP 192.0.2.1{}", long(";a", 50_000))]),
        ("Route x 200", lines("Route: <sip:192.0.2.1;lr>", 200)),
        ("Require of 120 tags", vec![format!("Require: {}a", long("a,", 240))]),
        ("Authorization x 200", vec![authorization("nonce=\"x\", "); 200]),
        ("Supported of 60 kB in 30,000 tags", vec![format!("Supported: {}a", long("a,", LARGE - 2_000))]),
        ("Require of 60 kB in 30,000 tags", vec![format!("Require: {}a", long("a,", LARGE - 2_000))]),
    ];
    for transport in [Udp, Tcp] {
        let mut wire = server.connect(transport);
        for (name, headers) in &kinds {
            for method in ["OPTIONS", "REGISTER", "INVITE"] {
                if transport == Tcp && (method != "INVITE" || name == &"OPTIONS") {
                    continue;
                }
                let mut send = |_| {
                    let mut request = options(&wire);
                    method.clone_into(&mut request.method);
                    request.headers.clone_from(headers);
                    if method != "OPTIONS" {
                        request.from = format!("<sip:alice@example.org>;tag={}", unique("f"));
                        request.to = "<sip:alice@example.org>".into();
                    }
                    if method == "INVITE" {
                        request.uri = "sip:carol@example.org".into();
                    }
                    wire.send(&request.bytes()).expect("loopback takes it");
                    // A response that would be much longer than its request is withheld.
                    let _ = wire.final_response(Duration::from_millis(200));
                };
                (0..5).for_each(&mut send);
                let (time, mut bytes) = measured(server, n, &mut send);
                if bytes > MESSAGE.1 {
                    // Either the server keeps memory for each message, or a buffer of the shard was used for the first
                    // time. Ten times as many messages show which.
                    bytes = measured(server, 10 * n, &mut send).1;
                }
                table.row(&format!("{} {method}: {name}", transport.name()), Some(time), bytes, MESSAGE.1);
            }
        }
    }
}

/// Sends a request of an account, with fresh credentials.
fn ask(wire: &mut Wire, user: &str, request: &Request) -> Option<u16> {
    let request = challenged(wire, request, user, PASSWORD);
    status(&exchange(wire, &request))
}

/// Measures registrations with costly work.
fn registrations(server: &mut Server, table: &mut Table, n: u32) {
    let mut wire = server.connect(Tcp);
    let contact = |n: usize, bytes: usize| format!("<sip:alice@192.0.2.1;n={n};x={}>", long("y", bytes));
    let many = |range: std::ops::Range<usize>, bytes: usize, more: &str| {
        range.map(|n| contact(n, bytes) + more).collect::<Vec<_>>().join(", ")
    };
    let register = |wire: &Wire, contacts: &str| {
        let mut request = Request::register("alice", "example.org", "sip:x", "tcp", wire.local());
        request.headers = vec![format!("Contact: {contacts}"), "Expires: 600".into()];
        request
    };
    for four in 0..4 {
        let request = register(&wire, &contact(four, 15_000));
        assert_eq!(ask(&mut wire, "alice", &request), Some(200));
    }
    let parameters =
        |n: usize, last: usize| (0..15).map(|i| format!(";p{n}q{i}=1")).collect::<String>() + &format!(";z={last}");
    let alike =
        (0..40).map(|n| format!("<sip:alice@192.0.2.1{}>;expires=0", parameters(n, n))).collect::<Vec<_>>().join(", ");
    for (name, contacts) in [
        ("one contact", many(0..1, 15_000, "")),
        ("240 contacts to remove beside four of 15 kB", many(0..240, 1, ";expires=0")),
        ("40 contacts to remove beside four of 15 kB", many(10..50, 1_000, ";expires=0")),
        ("40 contacts of 16 parameters", alike),
        ("10 contacts of 5 kB", many(10..20, 5_000, "")),
    ] {
        let mut took = Duration::ZERO;
        let before = server.process().pss();
        for _ in 0..n {
            let request = register(&wire, &contacts);
            let request = challenged(&mut wire, &request, "alice", PASSWORD);
            let time = server.process().run_time();
            drop(exchange(&mut wire, &request));
            took += server.process().run_time().saturating_sub(time);
        }
        let kept = server.process().pss().saturating_sub(before) / u64::from(n);
        table.row(&format!("tcp REGISTER: {name}"), Some(took / n), kept, MESSAGE.1);
    }
}

/// Number of sources of kept messages: enough kept messages in total to make huge pages of the allocator irrelevant.
const SOURCES: u32 = 8;

fn source(server: &Server, n: u32) -> Wire {
    let from = SocketAddr::new(Ipv4Addr::new(127, 0, 1, n as u8 + 1).into(), 0);
    Wire::connect_from(Udp, from, server.address(Udp), None).expect("loopback has addresses")
}

/// Measures the cost of one more message of a kind after others of this kind, on a server that keeps no other messages.
fn another(table: &mut Table, name: &str, server: &mut Server, n: u32, mut send: impl FnMut(&mut Wire)) {
    let mut first = source(server, SOURCES);
    (0..5).for_each(|_| send(&mut first));
    let mut callers: Vec<Wire> = (0..SOURCES).map(|n| source(server, n)).collect();
    let (time, bytes) = measured(server, n * SOURCES, |n| send(&mut callers[(n % SOURCES) as usize]));
    let [kept, abridged, overloaded] = gauges(server, "server", ["kept_bytes", "kept_abridged", "overloaded"]);
    assert_eq!(overloaded, 0, "{name}: a row of refusals");
    table.row(name, Some(time), bytes, MESSAGE.1);
    let whole = if abridged > 0 { ", not whole" } else { "" };
    println!("{:<64} kept_bytes {} each{whole}", "", kept / u64::from(n * SOURCES + 5));
}

/// Returns gauges of the server. Reads them from the second line of its log on, because the first line may be too
/// early.
fn gauges<const N: usize>(server: &Server, of: &str, names: [&str; N]) -> [u64; N] {
    let of = format!(" statistics of=\"{of}\"");
    let lines = || {
        let log = server.log();
        (log.matches(&of).count(), log.lines().rfind(|line| line.contains(&of)).unwrap_or_default().to_owned())
    };
    let (before, end) = (lines().0, Instant::now() + LIMIT);
    loop {
        let (count, last) = lines();
        if count >= before + 2 || Instant::now() > end {
            let value = |name: &str| {
                let word = last.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
                word.and_then(|word| word.parse().ok()).unwrap_or(0)
            };
            return names.map(value);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Measures requests that wait for the response of a phone, and that response.
fn forwarded(table: &mut Table, n: u32) {
    let fields = |line: &str, n: usize| vec![line.to_owned(); n];
    let one = |bytes: usize| vec![format!("X: {}", long("x", bytes))];
    let kinds: Vec<(Transport, &str, Vec<String>, u16, usize)> = vec![
        (Tcp, "INVITE of 1 kB, ringing", one(600), 180, 0),
        (Tcp, "INVITE of 53 kB, ringing", one(52_900), 180, 0),
        (Tcp, "INVITE of 60 kB, ringing", one(LARGE), 180, 0),
        (Tcp, "INVITE of 65,500 bytes, ringing", one(LARGEST), 180, 0),
        (Tcp, "INVITE with Record-Route x 200, ringing", fields("Record-Route: <sip:192.0.2.1;lr>", 200), 180, 0),
        (
            Tcp,
            "INVITE with Route and Via of 60 kB, ringing",
            vec![format!("Via: SIP/2.0/UDP h;x={}", long("x", LARGE))],
            180,
            0,
        ),
        (Udp, "INVITE of 53 kB to a phone that takes UDP, ringing", one(52_900), 180, 0),
        (Udp, "INVITE of 65,000 bytes to a phone that takes UDP, ringing", one(64_500), 180, 0),
        (Tcp, "INVITE answered with a 180 of 53 kB", one(600), 180, 52_900),
        (Tcp, "INVITE answered with a 180 of 65,000 bytes", one(600), 180, 64_500),
        (Tcp, "INVITE answered with a 486 of 53 kB", one(600), 486, 52_900),
        (Tcp, "INVITE answered with a 486 of 65,000 bytes", one(600), 486, 64_500),
    ];
    for (transport, name, headers, code, answer) in kinds {
        let mut server = start(Setup::on(&[Udp, Tcp]));
        let mut phone = server.connect(transport);
        register(&mut phone, "bob", PASSWORD);
        let more = if answer > 0 { vec![format!("X: {}", long("x", answer))] } else { Vec::new() };
        another(table, &format!("udp {name}"), &mut server, n, |caller| {
            let mut request = Request::new("INVITE", "sip:bob@example.org", "udp", caller.local());
            request.headers.clone_from(&headers);
            caller.send(&request.bytes()).expect("loopback takes it");
            let request = phone.request("INVITE", LIMIT).expect("it arrives");
            phone.send(&respond(&request, code, "t", &more)).expect("loopback takes it");
            assert!(caller.answer(LIMIT).is_some(), "{name}: an answer");
        });
    }
}

/// Returns the phones of one user that read and never respond.
fn silent_phones(server: &Server, contact: usize) -> Vec<Wire> {
    let mut phones: Vec<Wire> = (0..10).map(|_| server.connect(Tcp)).collect();
    for phone in &mut phones {
        let contact = format!("sip:alice@{};transport=tcp;x={}", phone.local(), long("x", contact));
        register_at(phone, "alice", PASSWORD, &contact);
    }
    phones
}

/// Measures requests to an account with the maximum of contacts.
fn forked(table: &mut Table, n: u32) {
    for (method, name, bytes, contact) in [
        ("MESSAGE", "of 1 kB", 600, 1),
        ("INVITE", "of 1 kB", 600, 1),
        ("INVITE", "of 5 kB", 4_600, 1),
        ("MESSAGE", "of 10 kB", 9_600, 1),
        ("INVITE", "of 20 kB", 19_600, 1),
        ("INVITE", "of 28 kB", 28_000, 1),
        ("MESSAGE", "of 32 kB", 32_000, 1),
        ("INVITE", "of 60 kB", LARGE, 1),
        ("INVITE", "of 1 kB, each with a URI of 3 kB,", 600, 3_000),
        ("INVITE", "of 1 kB, each with a URI of 14 kB,", 600, 14_000),
    ] {
        let mut server = start(Setup::on(&[Udp, Tcp]));
        let mut phones = silent_phones(&server, contact);
        another(table, &format!("udp {method} {name} to ten phones that do not answer"), &mut server, n, |caller| {
            ask_silent(caller, &mut phones, method, bytes);
        });
    }
    // One group of phones after the other gets a request, while the requests to the first groups are still kept.
    let mut server = start(Setup::on(&[Udp, Tcp]).with("proxy.fork_timeout = \"3s\""));
    let mut phones = silent_phones(&server, 1);
    let name = "udp INVITE of 20 kB, one group of ten phones after the other";
    let asked = std::cell::Cell::new(0);
    another(table, name, &mut server, n, |caller| {
        ask_silent(caller, &mut phones, "INVITE", 19_600);
        asked.set(asked.get() + 1);
        if asked.get() == 5 + n * SOURCES {
            let end = Instant::now() + Duration::from_secs(14);
            while Instant::now() < end {
                phones.iter_mut().for_each(read);
            }
        }
    });
}

/// Reads what has arrived, without waiting.
fn read(phone: &mut Wire) {
    while phone.has_come() && phone.chunk(Duration::from_millis(1)).is_some() {}
}

fn ask_silent(caller: &mut Wire, phones: &mut [Wire], method: &str, bytes: usize) {
    let request = Request::new(method, "sip:alice@example.org", "udp", caller.local());
    caller.send(&request.with(format!("X: {}", long("x", bytes))).bytes()).expect("loopback takes it");
    let end = Instant::now() + LIMIT;
    while !phones.iter().any(Wire::has_come) {
        assert!(Instant::now() < end, "no phone is asked");
    }
    std::thread::sleep(Duration::from_millis(1));
    phones.iter_mut().for_each(read);
}

/// Measures the memory for an account that authenticates with one nonce after the other, and with the same nonce
/// repeatedly.
fn nonces(table: &mut Table) {
    /// Number of requests in transit.
    const AT_ONCE: u32 = 50;
    let mut server = start(Setup::on(&[Tcp]));
    let mut wire = server.connect(Tcp);
    let ask = |wire: &Wire| {
        let mut request = Request::register("alice", "example.org", "sip:x", "tcp", wire.local());
        request.headers.clear();
        request
    };
    let challenges = |wire: &mut Wire| -> Vec<(Request, Vec<u8>)> {
        let requests: Vec<Request> = (0..AT_ONCE).map(|_| ask(wire)).collect();
        let all: Vec<u8> = requests.iter().flat_map(Request::bytes).collect();
        wire.send(&all).expect("loopback takes it");
        let answers = requests.iter().map(|_| wire.final_response(LIMIT).expect("a challenge"));
        requests.iter().cloned().zip(answers).collect()
    };
    let send = |wire: &mut Wire, requests: &[Request]| -> usize {
        let all: Vec<u8> = requests.iter().flat_map(Request::bytes).collect();
        wire.send(&all).expect("loopback takes it");
        let answers = requests.iter().map(|_| wire.final_response(LIMIT).expect("an answer"));
        answers.filter(|answer| status(answer) == Some(200)).count()
    };
    drop(challenges(&mut wire));
    let before = server.process().pss();
    // No account may hold more than half of `auth.used_nonces`.
    let (most, mut right) = (500_000 + 20_000, 0);
    for _ in 0..most / AT_ONCE {
        let asked = challenges(&mut wire);
        let requests: Vec<Request> =
            asked.iter().map(|(request, challenge)| authorized(request, challenge, "alice", PASSWORD)).collect();
        right += send(&mut wire, &requests);
    }
    let kept = server.process().pss().saturating_sub(before);
    table.row("520,000 right answers of an account, each with its own nonce", None, kept, SOURCE);
    let [refused] = gauges(&server, "server", ["nonces_refused"]);
    println!("{:<64} {right} taken, nonces_refused {refused}, {} bytes each", "", kept / right as u64);
    assert!(refused > 0, "an account may hold half of them");
    let mut server = start(Setup::on(&[Tcp]));
    let mut wire = server.connect(Tcp);
    let (_, challenge) = challenges(&mut wire).pop().expect("there are some");
    let before = server.process().pss();
    let mut right = 0;
    for batch in 0..400 {
        let numbers = 1 + batch * AT_ONCE..=(batch + 1) * AT_ONCE;
        let requests: Vec<Request> =
            numbers.map(|nc| authorized_again(&ask(&wire), &challenge, "alice", PASSWORD, nc)).collect();
        right += send(&mut wire, &requests);
    }
    let kept = server.process().pss().saturating_sub(before);
    table.row(&format!("{right} right answers of an account with one nonce"), None, kept, SOURCE);
}

/// Opens connections from one address and writes the same bytes to each, until the server closes more connections than
/// it keeps.
fn crowd(most: usize, bytes: &[u8], from: impl Fn(usize) -> std::io::Result<TcpStream>) -> Vec<TcpStream> {
    let mut all = Vec::new();
    for n in 0..most {
        let Ok(mut stream) = from(n) else { break };
        let _ = stream.set_write_timeout(Some(Duration::from_millis(200)));
        let _ = stream.write_all(bytes);
        all.push(stream);
    }
    std::thread::sleep(Duration::from_millis(500));
    all
}

fn half_message() -> Vec<u8> {
    format!("OPTIONS sip:example.org SIP/2.0\r\nX: {}", long("x", 62_000)).into_bytes()
}

/// Returns a WebSocket handshake, and the first fragment of a message.
fn half_frame(address: SocketAddr) -> Vec<u8> {
    let mut bytes = format!(
        "GET / HTTP/1.1\r\nHost: {address}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: sip\r\n\r\n"
    )
    .into_bytes();
    // A text frame, not final, masked with zeros.
    bytes.extend_from_slice(&[0x01, 0x80 | 126]);
    bytes.extend_from_slice(&62_000u16.to_be_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend(vec![b'x'; 62_000]);
    bytes
}

/// Returns the beginning of a TLS record with a declared length of 16 KB.
fn half_record() -> Vec<u8> {
    let mut bytes = vec![22, 3, 1, 0x40, 0, 1, 0, 0x3f, 0xfc, 3, 3];
    bytes.resize(16_000, 0);
    bytes
}

/// Adds a row of a source, with the server's own gauges.
fn of_source(server: &mut Server, table: &mut Table, name: &str, work: impl FnOnce(&mut Server) -> Box<dyn Any>) {
    let before = server.process().pss();
    let held = work(server);
    let kept = server.process().pss().saturating_sub(before);
    table.row(name, None, kept, SOURCE);
    let [kept, charged] = gauges(server, "server", ["kept_bytes", "charged_bytes"]).map(|bytes| bytes >> 10);
    let [connections] = gauges(server, "network", ["connection_bytes"]).map(|bytes| bytes >> 10);
    println!("{:<64} KiB: kept_bytes {kept}, charged_bytes {charged}, connection_bytes {connections}", "");
    drop(held);
}

/// Measures the memory that the server keeps for one source.
fn sources(table: &mut Table) {
    let fresh = || start(Setup::on(&[Udp, Tcp, Ws, Tls]));
    for (transport, name, bytes) in [
        (Tcp, "half messages of 60 kB over 2,000 connections", half_message()),
        (Ws, "WebSocket fragments of 60 kB over 2,000 connections", Vec::new()),
        (Tls, "half TLS handshakes over 2,000 connections", half_record()),
        (Tcp, "idle connections, 8,000", Vec::new()),
    ] {
        let mut server = fresh();
        let address = server.address(transport);
        let (most, bytes) = match transport {
            Ws => (2_000, half_frame(address)),
            _ => (if bytes.is_empty() { 8_000 } else { 2_000 }, bytes),
        };
        of_source(&mut server, table, name, |_| Box::new(crowd(most, &bytes, |_| TcpStream::connect(address))));
    }
    of_source(&mut fresh(), table, "answers that are not read over 400 connections", |server| {
        let (address, local) = (server.address(Tcp), SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 5_060));
        let mut bytes = Vec::new();
        while bytes.len() < 2 << 20 {
            let request =
                Request::new("OPTIONS", "sip:example.org", "tcp", local).with(format!("Subject: {}", long("s", 300)));
            bytes.extend_from_slice(&request.bytes());
        }
        Box::new(crowd(400, &bytes, |_| TcpStream::connect(address)))
    });
    for (name, most, bytes, connections) in [
        ("2,000 INVITEs of 60 kB to a ringing phone", 2_000, LARGE, 0),
        ("2,000 INVITEs of 53 kB to a ringing phone", 2_000, 52_900, 0),
        ("60,000 INVITEs of 1 kB to a ringing phone", 60_000, 600, 0),
        ("60,000 INVITEs of 300 bytes to a ringing phone", 60_000, 0, 0),
        ("the same, and 2,000 connections with half messages", 60_000, 0, 2_000),
    ] {
        let mut server = fresh();
        let mut phone = server.connect(Tcp);
        register(&mut phone, "bob", PASSWORD);
        let mut caller = server.connect(Udp);
        of_source(&mut server, table, name, |server| {
            let address = server.address(Tcp);
            let held = crowd(connections, &half_message(), |_| TcpStream::connect(address));
            invite(&mut caller, &mut phone, most, bytes);
            Box::new(held)
        });
    }
}

/// Measures one call that its callee answers 60,000 times, each time as another fork, and as many calls of unknown
/// users.
fn floods_of_one(table: &mut Table) {
    const MANY: u32 = 60_000;
    for (name, lines) in [("", ""), (", tracked", "dialogs.track = true")] {
        let mut server = start(Setup::on(&[Udp, Tcp]).with(lines));
        let mut phone = server.connect(Tcp);
        register(&mut phone, "bob", PASSWORD);
        let mut caller = server.connect(Tcp);
        let own = format!("Contact: <sip:alice@{};transport=tcp>", caller.local());
        let request = Request::new("INVITE", "sip:bob@example.org", "tcp", caller.local()).with(own);
        caller.send(&request.bytes()).expect("loopback takes it");
        let invite = phone.request("INVITE", LIMIT).expect("it arrives");
        let contact = [format!("Contact: <sip:bob@{}>", phone.local())];
        let before = server.process().pss();
        let (time, _) = measured(&mut server, MANY, |n| {
            phone.send(&respond(&invite, 200, &format!("fork{n}"), &contact)).expect("the server reads");
            read(&mut caller);
            read(&mut phone);
        });
        let kept = server.process().pss().saturating_sub(before);
        table.row(&format!("{MANY} answers of one call{name}"), Some(time), kept, SOURCE);
    }
    let mut server = start(Setup::on(&[Udp, Tcp]));
    let mut wire = server.connect(Tcp);
    let before = server.process().pss();
    let (time, _) = measured(&mut server, MANY, |n| {
        let user = format!("nobody{n}");
        let request = Request::register(&user, "example.org", "sip:x", "tcp", wire.local());
        let request = challenged(&mut wire, &request, &user, PASSWORD);
        drop(exchange(&mut wire, &request));
    });
    let kept = server.process().pss().saturating_sub(before);
    table.row(&format!("{MANY} passwords of unknown users, two REGISTERs each"), Some(time), kept, SOURCE);
}

/// Sends this number of INVITEs to a phone that does not answer.
fn invite(caller: &mut Wire, phone: &mut Wire, most: usize, bytes: usize) {
    for n in 0..most {
        let mut request = Request::new("INVITE", "sip:bob@example.org", "udp", caller.local());
        if bytes > 0 {
            request.headers.push(format!("X: {}", long("x", bytes)));
        }
        caller.send(&request.bytes()).expect("loopback takes it");
        // The server answers each at once, with 100 or 503.
        assert!(caller.receive(LIMIT).is_some(), "INVITE {n}");
        read(phone);
    }
}

/// Sends the same incomplete message repeatedly, each time from another address of one /64.
fn network(table: &mut Table) {
    if !namespace::possible() {
        return println!("a /64: not measured");
    }
    let net = Namespace::new("abuse");
    let sysctl = net.command().args(["sysctl", "-q", "-w", "net.ipv6.ip_nonlocal_bind=1"]).status();
    assert!(sysctl.is_ok_and(|status| status.success()));
    net.ip(&["-6", "route", "add", "local", "2001:db8::/32", "dev", "lo"]);
    let address: SocketAddr = "[2001:db8:ffff::1]:5060".parse().expect("an address");
    let mut server = start(Setup::default().listen(Tcp, address).inside(&net));
    let name = "half messages of 60 kB from 2,000 addresses of one /64";
    of_source(&mut server, table, name, |_| {
        Box::new(net.inside(|| {
            Ok(crowd(2_000, &half_message(), |n| {
                let from: SocketAddr = format!("[2001:db8:1:2::{n:x}]:0").parse().map_err(std::io::Error::other)?;
                let socket = socket2::Socket::new(socket2::Domain::IPV6, socket2::Type::STREAM, None)?;
                socket.bind(&from.into())?;
                socket.connect(&address.into())?;
                Ok(socket.into())
            }))
        }))
    });
}

fn measure(arguments: &Arguments) -> Result<bool, String> {
    let mut table = Table { failed: false };
    println!("{:<64} {:>15} {:>9}", "what", "ms", "KiB kept");
    let n = arguments.messages;
    let mut server = start(Setup::on(&[Udp, Tcp, Ws, Tls]));
    answered(&mut server, &mut table, n);
    registrations(&mut server, &mut table, n);
    drop(server);
    forwarded(&mut table, n);
    forked(&mut table, n);
    nonces(&mut table);
    floods_of_one(&mut table);
    sources(&mut table);
    network(&mut table);
    Ok(!table.failed)
}

fn main() -> ExitCode {
    run(measure)
}
