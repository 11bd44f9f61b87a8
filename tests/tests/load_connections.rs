//! Separate sockets and connections for calls and users, as the other side sees them, and their release.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;
use strowger_tests::wait;

use strowger_tests::binary;
use strowger_tests::certificate::Certificate;
use strowger_tests::generator::{Ran, Running, answers, load, refused, reply};
use strowger_tests::namespace::{self, Namespace};
use strowger_tests::peer::{Connections, Peer};
use strowger_tests::process::Process;
use strowger_tests::server::Setup;
use strowger_tests::together;
use strowger_tests::wire::Transport;

#[test]
fn sockets_and_connections_of_calls() {
    together(&[
        ("each_call_has_a_socket", each_call_has_a_socket),
        ("each_call_has_a_connection", each_call_has_a_connection),
        ("each_call_has_a_connection_of_tls", || a_connection_for_each_call("tls")),
        ("each_call_has_a_connection_of_ws", || a_connection_for_each_call("ws")),
        ("each_call_has_a_connection_of_wss", || a_connection_for_each_call("wss")),
        ("each_user_has_a_socket", each_user_has_a_socket),
        ("users_are_shared_out_among_generators", users_are_shared_out_among_generators),
        ("users_connect_before_the_schedule", users_connect_before_the_schedule),
        ("users_are_called_over_their_connections", users_are_called_over_their_connections),
        ("what_the_kernel_dropped_before_a_user", what_the_kernel_dropped_before_a_user_is_in_the_report),
        ("through_a_server", through_a_server),
        ("descriptors_come_back", descriptors_come_back),
        ("at_the_bound_calls_share", at_the_bound_calls_share),
        ("no_port_is_free", no_port_is_free),
        ("what_cannot_be_is_refused", what_cannot_be_is_refused),
    ]);
}

/// Starts a pipe to `to` that counts connections.
fn pipe(to: SocketAddr) -> (SocketAddr, Arc<Connections>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let connections: Arc<Connections> = Arc::default();
    let counted = connections.clone();
    std::thread::spawn(move || {
        while let Ok((near, _)) = listener.accept() {
            counted.begin();
            let far = TcpStream::connect(to).expect("the other end is there");
            let (near_too, far_too) = (near.try_clone().expect("a copy"), far.try_clone().expect("a copy"));
            std::thread::spawn(move || pump(far_too, near_too));
            let counted = counted.clone();
            std::thread::spawn(move || {
                counted.end(pump(near, far));
                counted.open.fetch_sub(1, SeqCst);
            });
        }
    });
    (address, connections)
}

fn pump(mut from: TcpStream, mut to: TcpStream) -> std::io::Result<usize> {
    let mut buffer = [0; 65_536];
    loop {
        let read = from.read(&mut buffer);
        match read {
            Ok(n) if n > 0 => drop(to.write_all(&buffer[..n])),
            ended => {
                let _ = to.shutdown(std::net::Shutdown::Write);
                return ended;
            }
        }
    }
}

#[track_caller]
fn until(what: &str, reached: impl FnMut() -> bool) {
    assert!(wait::until(Duration::from_secs(5), reached), "{what}");
}

/// Asserts that each call has one port of its own, which its messages name.
fn is_apart(peer: &Peer, calls: usize) {
    let ports = peer.ports();
    assert_eq!(ports.len(), calls);
    assert!(ports.values().all(|ports| ports.len() == 1), "a call by several ports: {ports:?}");
    for seen in peer.seen() {
        assert_eq!(seen.named(), BTreeSet::from([seen.from.port()]), "from {}:\n{}", seen.from, seen.text);
    }
}

fn run(target: &str, words: &[&str]) -> Ran {
    load(&[&[target, "--no-preflight"], words].concat())
}

fn each_call_has_a_socket() {
    let peer = Peer::udp();
    let ran =
        run(&peer.address.to_string(), &["--connections", "per-call", "-r", "200", "-m", "60", "--hold", "400ms"]);
    ran.all_successful(60);
    ran.ended_with(0);
    is_apart(&peer, 60);
    let ports: BTreeSet<u16> = peer.seen().iter().map(|seen| seen.from.port()).collect();
    assert_eq!(ports.len(), 60, "they were all open at once");
    // INVITE, ACK and BYE.
    assert_eq!(peer.seen().len(), 180);
}

fn each_call_has_a_connection() {
    let peer = Peer::tcp(0);
    let target = format!("tcp://{}", peer.address);
    let ran = run(&target, &["--connections", "per-call", "-r", "200", "-m", "60", "--hold", "400ms"]);
    ran.all_successful(60);
    ran.ended_with(0);
    is_apart(&peer, 60);
    // Closed by us, without a reset.
    until("connections stay open", || peer.connections.open.load(SeqCst) == 0);
    assert_eq!(peer.connections.counts(), [60, 0, 60, 0]);
    assert_eq!(peer.connections.most.load(SeqCst), 60);
    // If calls follow each other, the end of one and the beginning of the next may overlap.
    let peer = Peer::tcp(0);
    let target = format!("tcp://{}", peer.address);
    let ran = run(&target, &["--connections", "per-call", "-r", "10", "-m", "10", "-l", "1", "--hold", "0"]);
    ran.all_successful(10);
    assert_eq!(peer.connections.counts()[0], 10);
    assert!(peer.connections.most.load(SeqCst) <= 2);
}

fn a_connection_for_each_call(transport: &str) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let Certificate { chain, key, .. } = Certificate::in_folder(folder.path(), &["example.org"]);
    let files = [chain.display().to_string(), key.display().to_string()];
    let secure = transport == "tls" || transport == "wss";
    let cert: &[&str] = if secure { &["--tls-cert", &files[0], "--tls-key", &files[1]] } else { &[] };
    let uas = answers(&[&["--transport", transport][..], cert].concat());
    let (address, connections) = pipe(uas.address);
    let target = format!("{transport}://{address}");
    // The first call ends before the others begin, so they can resume its TLS session. On a late machine the limit of
    // open calls still makes most of them begin after another one.
    let ran = run(
        &target,
        &[
            "--connections",
            "per-call",
            "--rate-profile",
            "burst:1,0:300ms,50:60s",
            "-m",
            "40",
            "-l",
            "12",
            "--hold",
            "200ms",
        ],
    );
    ran.all_successful(40);
    ran.ended_with(0);
    until("connections stay open", || connections.open.load(SeqCst) == 0);
    assert_eq!(connections.counts(), [40, 0, 40, 0], "{}", ran.said);
    if secure {
        let json = ran.json.to_string();
        let note = json.split('"').find(|text| text.contains("TLS handshakes")).unwrap_or_else(|| panic!("{json}"));
        let numbers: Vec<u32> = note.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        // The first call, and on a busy machine some that begin before its sessions have arrived.
        assert!(numbers[0] == 40 && numbers[1] >= 20, "{note}");
    }
}

fn users(folder: &Path, count: usize) -> String {
    let path = folder.join("users.csv");
    let text: String = (0..count).map(|i| format!("user{i};secret\n")).collect();
    std::fs::write(&path, text).expect("the folder can be written");
    path.display().to_string()
}

/// Returns the ports of each user.
fn by_user(peer: &Peer) -> BTreeMap<String, BTreeSet<u16>> {
    let mut ports: BTreeMap<String, BTreeSet<u16>> = BTreeMap::new();
    for seen in peer.seen() {
        let from = seen.header("From");
        let user = from.split(['<', ':', '@']).find(|w| w.starts_with("user")).unwrap_or(from).to_owned();
        ports.entry(user).or_default().insert(seen.from.port());
    }
    ports
}

fn each_user_has_a_socket() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = users(folder.path(), 4);
    for (scheme, peer) in [("udp", Peer::udp()), ("tcp", Peer::tcp(0))] {
        let target = format!("{scheme}://{}", peer.address);
        let words = ["--connections", "per-user", "--users", &file, "-r", "100", "-m", "40", "--hold", "100ms"];
        let ran = run(&target, &words);
        ran.all_successful(40);
        let ports = by_user(&peer);
        assert_eq!(ports.len(), 4, "{ports:?}");
        assert!(ports.values().all(|ports| ports.len() == 1), "{ports:?}");
        assert_eq!(ports.values().flatten().collect::<BTreeSet<_>>().len(), 4, "{ports:?}");
        is_apart(&peer, 40);
        if scheme == "tcp" {
            until("connections stay open", || peer.connections.open.load(SeqCst) == 0);
            assert_eq!(peer.connections.counts(), [4, 0, 4, 0]);
        }
    }
}

fn users_are_shared_out_among_generators() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = users(folder.path(), 6);
    let peer = Peer::udp();
    let words =
        ["--connections", "per-user", "--users", &file, "--shards", "3", "-r", "200", "-m", "60", "--hold", "50ms"];
    let ran = run(&peer.address.to_string(), &words);
    ran.all_successful(60);
    let ports = by_user(&peer);
    assert_eq!((ports.len(), ports.values().flatten().collect::<BTreeSet<_>>().len()), (6, 6), "{ports:?}");
}

/// Each user has one connection for the whole run, and calls take users in no order.
fn users_connect_before_the_schedule() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = users(folder.path(), 20);
    let peer = Peer::tcp(0);
    let target = format!("tcp://{}", peer.address);
    let words = ["-w", "register", "--users", &file, "--connections", "per-user", "--connect-rate", "100"];
    let ran = run(&target, &[&words[..], &["--random-users", "--seed", "7", "-r", "100", "-m", "60"]].concat());
    ran.all_successful(60);
    until("connections stay open", || peer.connections.open.load(SeqCst) == 0);
    assert_eq!(peer.connections.counts(), [20, 0, 20, 0]);
    let figures = ["ahead", "made", "lost", "held"].map(|name| ran.count("counters", &format!("connections.{name}")));
    assert_eq!(figures, [20, 0, 0, 20], "{}", ran.said);
    assert!((1..=110).contains(&ran.count("counters", "connections.ahead.rate")), "{}", ran.said);
    assert!(ran.said.contains("Connecting 20 users, 100 a second"), "{}", ran.said);
    let names: Vec<String> = peer.seen().iter().map(|seen| seen.header("From").to_owned()).collect();
    let user = |name: &String| name.split(['<', ':', '@']).find(|word| word.starts_with("user")).map(str::to_owned);
    let in_turn: Vec<Option<String>> = (0..20).map(|i| Some(format!("user{i}"))).collect();
    let taken: Vec<Option<String>> = names.iter().map(user).collect();
    assert_eq!(taken.len(), 80);
    let first: BTreeSet<_> = taken[..20].iter().collect();
    assert_eq!(first.len(), 20, "each user registers once before the schedule: {taken:?}");
    assert!(taken[20..].chunks(20).all(|users| users != in_turn), "{taken:?}");
}

fn users_are_called_over_their_connections() {
    let server = Setup::on(&[Transport::Udp, Transport::Tcp]).open_registrar().in_memory();
    let server = server.with("ban.enabled = false").start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = users(folder.path(), 3);
    let (target, connections) = pipe(server.address(Transport::Tcp));
    let target = format!("tcp://{target}");
    let words = [&target, "-w", "register-then-receive", "--users", &file, "--connections", "per-user", "-r", "50"];
    let mut phones =
        Running::start(&[&words[..], &["--domain", "example.org", "--duration", "4s", "--no-preflight"]].concat());
    phones.reach(1);
    assert_eq!(connections.counts(), [3, 3, 0, 0]);
    let proxy = server.address(Transport::Udp).to_string();
    for user in ["user0", "user2"] {
        let callee = format!("sip:{user}@example.org");
        run(&callee, &["--proxy", &proxy, "-r", "100", "-m", "20", "--hold", "20ms"]).all_successful(20);
    }
    let ran = phones.end(Duration::from_secs(60));
    assert_eq!(ran.count("counters", "registration.successful"), 3, "each user once: {}", ran.said);
    assert_eq!(ran.count("counters", "incoming.completed"), 40, "{}", ran.said);
    assert_eq!(connections.counts()[0], 3, "they were called over the connections by which they registered");
}

/// The socket of a user stays open until the run ends, so that its losses can be read then.
fn what_the_kernel_dropped_before_a_user_is_in_the_report() {
    let registrar = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    registrar.set_read_timeout(Some(Duration::from_secs(20))).expect("it can be set");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = users(folder.path(), 1);
    let target = registrar.local_addr().expect("it is bound").to_string();
    let words = [&target, "-w", "register-then-receive", "--users", &file, "--connections", "per-user", "-r", "50"];
    let bounds = ["--max-stall", "1min", "--max-lag", "1min"];
    let mut phones = Running::start(&[&words[..], &bounds, &["--no-preflight", "--log", "run.log"]].concat());
    let mut buffer = [0; 65_536];
    let (length, user) = registrar.recv_from(&mut buffer).expect("the user registers");
    let request = String::from_utf8_lossy(&buffer[..length]).into_owned();
    let own = registrar.local_addr().expect("it is bound");
    phones.signal(libc::SIGSTOP);
    for _ in 0..40_000 {
        let _ = registrar.send_to(reply("200 OK", &request, own).as_bytes(), user);
    }
    phones.signal(libc::SIGCONT);
    phones.signal(libc::SIGINT);
    let ran = phones.end(Duration::from_secs(20));
    assert!(ran.count("counters", "socket_drops") > 1_000, "{}", ran.said);
    assert_eq!(ran.code, 4, "{}", ran.said);
    assert!(ran.said.contains("dropped"), "{}", ran.said);
    let again = load(&["report", &phones.folder().join("run.log").display().to_string()]);
    assert_eq!(again.json["counters"], ran.json["counters"], "{}", again.said);
}

/// With a proxy in between, later requests of a call come back over its connection, too.
fn through_a_server() {
    let server = Setup::on(&[Transport::Udp, Transport::Tcp]).relay().start();
    for transport in [Transport::Udp, Transport::Tcp] {
        let target = format!("{}://{}", transport.name(), server.address(transport));
        let ran = run(&target, &["--pair", "--connections", "per-call", "-r", "100", "-m", "30", "--hold", "50ms"]);
        ran.all_successful(30);
    }
}

/// Returns the number of open descriptors of a process.
fn descriptors(id: u32) -> usize {
    std::fs::read_dir(format!("/proc/{id}/fd")).map_or(0, |folder| folder.count())
}

fn descriptors_come_back() {
    for (scheme, peer) in [("udp", Peer::udp()), ("tcp", Peer::tcp(0))] {
        let target = format!("{scheme}://{}", peer.address);
        let words = [
            "load",
            &target,
            "--no-preflight",
            "--connections",
            "per-call",
            "--hold",
            "200ms",
            "--rate-profile",
            "0:500ms,200:500ms,0:1s,2:700ms",
            "--json",
            "report.json",
        ];
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut command = Command::new(binary::strowger());
        let mut process = Process::start("load", folder.path(), command.args(words).current_dir(folder.path()));
        let mut counts = Vec::new();
        while process.ended().is_none() {
            counts.push(descriptors(process.id()));
            // Poll interval.
            std::thread::sleep(Duration::from_millis(20));
        }
        let most = counts.iter().copied().max().unwrap_or(0);
        let peak = counts.iter().position(|n| *n == most).unwrap_or(0);
        // Forty calls at once have one each. A process that is ending shows none.
        let back = counts[peak..].iter().filter(|n| **n > 0 && **n + 30 <= most).count();
        assert!(back >= 5, "{scheme}: {counts:?}\n{}", process.tail());
        assert!(peer.ports().len() > 100, "{scheme}");
    }
}

fn at_the_bound_calls_share() {
    let peer = Peer::udp();
    let words = ["--connections", "per-call", "--max-sockets", "5", "-r", "200", "-m", "40", "--hold", "500ms"];
    let ran = run(&peer.address.to_string(), &words);
    ran.all_successful(40);
    let ports: BTreeSet<u16> = peer.seen().iter().map(|seen| seen.from.port()).collect();
    assert_eq!(ports.len(), 5);
    is_apart(&peer, 40);
    assert!(ran.said.contains("35 calls found as many sockets open as may be"), "{}", ran.said);
}

/// A network with thirty ports. Failures for lack of ports are the generator's fault.
fn no_port_is_free() {
    if !namespace::possible() {
        return;
    }
    let network = Namespace::new("ports");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut few = network.command();
    few.args(["sysctl", "-q", "-w", "net.ipv4.ip_local_port_range=40000 40030"]);
    assert!(few.status().expect("it starts").success());
    let mut uas = network.command();
    uas.arg(binary::strowger()).args(["load", "uas", "--source", "127.0.0.1", "--transport", "tcp"]);
    let mut uas = Process::start("uas", folder.path(), &mut uas);
    uas.wait_for("Answering on", 1, Duration::from_secs(20));
    let mut load = network.command();
    load.arg(binary::strowger()).args(["load", "tcp://127.0.0.1", "--no-preflight", "--connections", "per-call"]);
    let output = load.args(["-r", "100", "-m", "60", "--hold", "1s"]).output().expect("it starts");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains("no port was free") && said.contains("TIME_WAIT"), "{said}");
    assert!(said.contains("× the connection could not be made"), "{said}");
}

fn what_cannot_be_is_refused() {
    for (words, part) in [
        (&["127.0.0.1", "--connections", "per-user"][..], "needs users"),
        (&["127.0.0.1", "--connections", "each"], "per-user and per-call"),
        (&["127.0.0.1", "--connections", "4"], "--shards says the same"),
        (&["tcp://127.0.0.1", "--connections", "4", "--shards", "2"], "give one of them"),
        (&["127.0.0.1", "--connections", "per-call", "--max-sockets", "0"], "--max-sockets"),
        (&["tcp://127.0.0.1", "--connect-rate", "100"], "give --users FILE"),
        (&["tcp://127.0.0.1", "--auth", "a:b", "--connect-rate", "100"], "give --connections per-user"),
        (&["tcp://127.0.0.1", "--auth", "a:b", "--connections", "per-user", "--connect-rate", "0"], "connects nobody"),
        (&["tcp://127.0.0.1", "-w", "register-then-receive", "--connect-rate", "100"], "at the rate of -r"),
        (&["tcp://127.0.0.1", "--random-users"], "--users"),
        (&["127.0.0.1", "--shards", "2", "--port", "65535", "--no-preflight"], "the highest is 65535"),
        (
            &["127.0.0.1", "-w", "register-then-receive", "--connections", "per-call", "--no-preflight"],
            "per-user keeps it",
        ),
    ] {
        let (code, said) = refused(words);
        assert!(code == 2 || code == 1, "{words:?}: {code} {said}");
        assert!(said.contains(part), "{words:?}: {said}");
    }
}
