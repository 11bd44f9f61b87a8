//! Sockets and connections of their own for calls and users: what the other side sees of them, and what is left when they end.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use strowger_tests::binary;
use strowger_tests::certificate::Certificate;
use strowger_tests::generator::{Ran, Running, answers, load, refused, reply};
use strowger_tests::namespace::{self, Namespace};
use strowger_tests::process::Process;
use strowger_tests::program::{self, SIPP};
use strowger_tests::server::Setup;
use strowger_tests::wire::Transport;
use strowger_tests::{port, together};

#[test]
fn sockets_and_connections_of_calls() {
    let _turn = strowger_tests::beside();
    together(&[
        ("each_call_has_a_socket", each_call_has_a_socket),
        ("each_call_has_a_connection", each_call_has_a_connection),
        ("each_call_has_a_connection_of_tls", || a_connection_for_each_call("tls")),
        ("each_call_has_a_connection_of_ws", || a_connection_for_each_call("ws")),
        ("each_call_has_a_connection_of_wss", || a_connection_for_each_call("wss")),
        ("each_user_has_a_socket", each_user_has_a_socket),
        ("users_are_shared_out_among_generators", users_are_shared_out_among_generators),
        ("users_are_called_over_their_connections", users_are_called_over_their_connections),
        ("through_a_server", through_a_server),
        ("descriptors_come_back", descriptors_come_back),
        ("at_the_bound_calls_share", at_the_bound_calls_share),
        ("no_port_is_free", no_port_is_free),
        ("what_cannot_be_is_refused", what_cannot_be_is_refused),
        ("sipp_is_called_by_socket_and_connection", sipp_is_called_by_socket_and_connection),
        ("sipp_calls_by_socket_and_connection", sipp_calls_by_socket_and_connection),
        ("addresses_of_a_file", addresses_of_a_file),
        ("the_only_connection_is_lost", the_only_connection_is_lost),
        ("connections_of_calls_are_lost_one_by_one", connections_of_calls_are_lost_one_by_one),
        ("what_lies_there_twice_is_taken_once", what_lies_there_twice_is_taken_once),
    ]);
}

/// What came: from where, and what it says of itself.
#[derive(Clone, Debug)]
struct Seen {
    from: SocketAddr,
    text: String,
}

impl Seen {
    fn header(&self, name: &str) -> &str {
        let line = self.text.lines().find(|l| l.starts_with(name) && l[name.len()..].starts_with(':'));
        line.map_or("", |l| l[name.len() + 1..].trim())
    }

    /// The port that the message names as its own: in its Via, and in its Contact if there is one.
    fn named(&self) -> BTreeSet<u16> {
        let port = |value: &str| {
            let at = value.find("127.0.0.").expect("an address");
            let rest = value[at..].split_once(':').expect("a port").1;
            let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            rest[..end].parse().expect("digits")
        };
        [self.header("Via"), self.header("Contact")].into_iter().filter(|v| !v.is_empty()).map(port).collect()
    }
}

/// What a peer answers: nothing to an ACK.
fn accepted(text: &str, own: SocketAddr) -> Option<String> {
    (!text.starts_with("ACK")).then(|| reply("200 OK", text, own))
}

/// A peer by hand that says 200 to everything and remembers what it saw.
struct Peer {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    connections: Arc<Connections>,
}

#[derive(Default)]
struct Connections {
    made: AtomicUsize,
    open: AtomicUsize,
    most: AtomicUsize,
    /// Ended by a word, and by a reset.
    ended: AtomicUsize,
    reset: AtomicUsize,
}

impl Peer {
    fn udp() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
        let address = socket.local_addr().expect("it is bound");
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let kept = seen.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 65_536];
            while let Ok((length, from)) = socket.recv_from(&mut buffer) {
                let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
                if let Some(reply) = accepted(&text, address) {
                    let _ = socket.send_to(reply.as_bytes(), from);
                }
                kept.lock().expect("nobody panics with it").push(Seen { from, text });
            }
        });
        Self { address, seen, connections: Arc::default() }
    }

    /// `ends`: after so many messages of a connection it is closed.
    fn tcp(ends: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let connections: Arc<Connections> = Arc::default();
        let (kept, counted) = (seen.clone(), connections.clone());
        std::thread::spawn(move || {
            while let Ok((stream, from)) = listener.accept() {
                let (kept, counted) = (kept.clone(), counted.clone());
                counted.begin();
                std::thread::spawn(move || {
                    serve(stream, from, address, &kept, &counted, ends);
                    counted.open.fetch_sub(1, SeqCst);
                });
            }
        });
        Self { address, seen, connections }
    }

    fn seen(&self) -> Vec<Seen> {
        self.seen.lock().expect("nobody panics with it").clone()
    }

    /// The ports from which the calls came, by Call-ID.
    fn ports(&self) -> BTreeMap<String, BTreeSet<u16>> {
        let mut ports: BTreeMap<String, BTreeSet<u16>> = BTreeMap::new();
        for seen in self.seen() {
            ports.entry(seen.header("Call-ID").to_owned()).or_default().insert(seen.from.port());
        }
        ports
    }
}

impl Connections {
    fn begin(&self) {
        self.made.fetch_add(1, SeqCst);
        let open = self.open.fetch_add(1, SeqCst) + 1;
        self.most.fetch_max(open, SeqCst);
    }

    fn end(&self, result: std::io::Result<usize>) {
        match result {
            Ok(_) => &self.ended,
            Err(_) => &self.reset,
        }
        .fetch_add(1, SeqCst);
    }

    /// Connections made, still open, ended by a word, reset.
    fn counts(&self) -> [usize; 4] {
        [&self.made, &self.open, &self.ended, &self.reset].map(|n| n.load(SeqCst))
    }
}

fn serve(
    mut stream: TcpStream,
    from: SocketAddr,
    own: SocketAddr,
    kept: &Mutex<Vec<Seen>>,
    counted: &Connections,
    ends: usize,
) {
    let (mut text, mut buffer, mut number) = (String::new(), [0; 65_536], 0);
    loop {
        let read = stream.read(&mut buffer);
        let Some(length) = read.as_ref().ok().copied().filter(|n| *n > 0) else { return counted.end(read) };
        text.push_str(&String::from_utf8_lossy(&buffer[..length]));
        while let Some(head) = text.find("\r\n\r\n").map(|at| at + 4) {
            let body = text[..head].lines().find_map(|l| l.strip_prefix("Content-Length:"));
            let end = head + body.and_then(|n| n.trim().parse().ok()).unwrap_or(0usize);
            if text.len() < end {
                break;
            }
            let message: String = text.drain(..end).collect();
            if let Some(reply) = accepted(&message, own) {
                let _ = stream.write_all(reply.as_bytes());
            }
            kept.lock().expect("nobody panics with it").push(Seen { from, text: message });
            number += 1;
            if number == ends {
                std::thread::sleep(Duration::from_millis(100));
                return;
            }
        }
    }
}

/// Passes bytes on to `to`, and counts the connections.
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
fn until(what: &str, reached: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(5);
    while !reached() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Each call has one port of its own, and its messages say so.
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
    // Ended by us, with a word.
    until("connections stay open", || peer.connections.open.load(SeqCst) == 0);
    assert_eq!(peer.connections.counts(), [60, 0, 60, 0]);
    assert_eq!(peer.connections.most.load(SeqCst), 60);
    // One at a time where calls follow each other.
    let peer = Peer::tcp(0);
    let target = format!("tcp://{}", peer.address);
    let ran = run(&target, &["--connections", "per-call", "-r", "5", "-m", "5", "--hold", "0"]);
    ran.all_successful(5);
    assert_eq!((peer.connections.counts()[0], peer.connections.most.load(SeqCst)), (5, 1));
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
    // The first call ends before the others begin: they have its sessions to resume.
    let ran = run(
        &target,
        &["--connections", "per-call", "--rate-profile", "burst:1,0:300ms,50:1s", "-m", "40", "--hold", "200ms"],
    );
    ran.all_successful(40);
    ran.ended_with(0);
    until("connections stay open", || connections.open.load(SeqCst) == 0);
    assert_eq!(connections.counts(), [40, 0, 40, 0], "{}", ran.said);
    if secure {
        let json = ran.json.to_string();
        let note = json.split('"').find(|text| text.contains("TLS handshakes")).unwrap_or_else(|| panic!("{json}"));
        let numbers: Vec<u32> = note.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        // The first call, and on a busy machine some that begin before its sessions have come.
        assert!(numbers[0] == 40 && numbers[1] >= 20, "{note}");
    }
}

fn users(folder: &Path, count: usize) -> String {
    let path = folder.join("users.csv");
    let text: String = (0..count).map(|i| format!("user{i};secret\n")).collect();
    std::fs::write(&path, text).expect("the folder can be written");
    path.display().to_string()
}

/// The ports that each user came by.
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
    phones.wait_for("  1 s  ");
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

/// A proxy in the way: later requests of a call come back over its connection too.
fn through_a_server() {
    let server = Setup::on(&[Transport::Udp, Transport::Tcp]).relay().start();
    for transport in [Transport::Udp, Transport::Tcp] {
        let target = format!("{}://{}", transport.name(), server.address(transport));
        let ran = run(&target, &["--pair", "--connections", "per-call", "-r", "100", "-m", "30", "--hold", "50ms"]);
        ran.all_successful(30);
    }
}

/// Descriptors that a process has open.
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
            std::thread::sleep(Duration::from_millis(20));
        }
        let most = counts.iter().copied().max().unwrap_or(0);
        let peak = counts.iter().position(|n| *n == most).unwrap_or(0);
        // Forty calls at once have one each. Of a program that is ending none are seen.
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

/// A network with thirty ports. What fails for want of them is the generator's doing.
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

/// `strowger sipp`, or SIPp itself, in a folder of its own.
struct Sipp {
    process: Process,
    _folder: tempfile::TempDir,
}

impl Sipp {
    fn start(ours: bool, words: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut command = if ours {
            let mut command = Command::new(binary::strowger());
            command.arg("sipp");
            command
        } else {
            Command::new(SIPP.path().expect("it is there"))
        };
        command.args(words).args(["-i", "127.0.0.1", "-nostdin", "-max_socket", "500"]);
        command.current_dir(folder.path()).stdin(Stdio::null());
        let name = if ours { "strowger" } else { "sipp" };
        Self { process: Process::start(name, folder.path(), &mut command), _folder: folder }
    }

    #[track_caller]
    fn end(&mut self) -> ExitStatus {
        self.process.end(Duration::from_secs(20))
    }
}

/// The built-in scenarios between the two, each with a socket or connection for each call.
fn duel(ours_calls: bool) {
    if !program::have(&[SIPP]) {
        return;
    }
    for (calls, answers) in [("un", "u1"), ("tn", "t1")] {
        let port = port::free().to_string();
        let mut uas = Sipp::start(!ours_calls, &["-sn", "uas", "-p", &port, "-t", answers, "-m", "50"]);
        std::thread::sleep(Duration::from_millis(400));
        let target = format!("127.0.0.1:{port}");
        let mut uac =
            Sipp::start(ours_calls, &["-sn", "uac", &target, "-t", calls, "-m", "50", "-r", "100", "-d", "100"]);
        let ended = uac.end();
        assert!(ended.success(), "{calls}: {ended:?}\n{}\n---\n{}", uac.process.tail(), uas.process.tail());
        let ended = uas.end();
        // SIPp fails a call whose connection ends before it has come to its last wait, which is a matter of luck.
        let lucky = calls == "un" || ours_calls;
        assert!(!lucky || ended.success(), "{calls}: {ended:?}\n{}\n---\n{}", uas.process.tail(), uac.process.tail());
    }
}

fn sipp_is_called_by_socket_and_connection() {
    duel(true);
}

fn sipp_calls_by_socket_and_connection() {
    duel(false);
}

fn options_twice(folder: &Path, pause: u32) -> String {
    let ask = |number: u32| {
        format!(
            "<send><![CDATA[\n\nOPTIONS sip:[service]@[remote_ip]:[remote_port] SIP/2.0\n\
             Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]\n\
             From: <sip:a@[local_ip]>;tag=[call_number]\nTo: <sip:b@[remote_ip]>\nCall-ID: [call_id]\n\
             CSeq: {number} OPTIONS\nMax-Forwards: 70\nContent-Length: 0\n\n]]></send><recv response=\"200\"/>"
        )
    };
    let path = folder.join("twice.xml");
    let text = format!(
        "<?xml version=\"1.0\"?>\n<scenario name=\"twice\">{}<pause milliseconds=\"{pause}\"/>{}</scenario>",
        ask(1),
        ask(2)
    );
    std::fs::write(&path, text).expect("the folder can be written");
    path.display().to_string()
}

fn addresses_of_a_file() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("addresses.csv");
    std::fs::write(&file, "SEQUENTIAL\na;127.0.0.5\nb;127.0.0.6\nc;127.0.0.5\nd;127.0.0.7\n")
        .expect("it can be written");
    let document = options_twice(folder.path(), 100);
    let peer = Peer::udp();
    let port = port::free();
    let words = [
        "-sf",
        &document,
        "-inf",
        &file.display().to_string(),
        "-t",
        "ui",
        "-ip_field",
        "1",
        "-p",
        &port.to_string(),
        "-m",
        "8",
        "-r",
        "50",
        &peer.address.to_string(),
    ]
    .map(str::to_owned);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut sipp = Sipp::start(true, &words);
    assert!(sipp.end().success(), "{}", sipp.process.tail());
    let mut from: BTreeMap<SocketAddr, usize> = BTreeMap::new();
    peer.seen().iter().for_each(|seen| *from.entry(seen.from).or_default() += 1);
    let expected = [(5, 8), (6, 4), (7, 4)].map(|(last, count)| (SocketAddr::from(([127, 0, 0, last], port)), count));
    assert_eq!(from, BTreeMap::from(expected));
    assert!(peer.seen().iter().all(|seen| seen.named() == BTreeSet::from([port])));
    // Who answers listens on each.
    let answers =
        ["-sn", "uas", "-inf", &file.display().to_string(), "-t", "ui", "-ip_field", "1", "-p", &port.to_string()]
            .map(str::to_owned);
    let answers: Vec<&str> = answers.iter().map(String::as_str).collect();
    let _uas = Sipp::start(true, &answers);
    std::thread::sleep(Duration::from_millis(400));
    for last in [5, 6, 7] {
        let ran = run(&format!("127.0.0.{last}:{port}"), &["-r", "50", "-m", "5", "--hold", "0"]);
        ran.all_successful(5);
    }
}

fn sipp_over_tcp(peer: &Peer, pause: u32, words: &[&str]) -> (i32, String) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let document = options_twice(folder.path(), pause);
    let target = peer.address.to_string();
    let all =
        [&["-sf", &document, &target, "-m", "3", "-r", "100", "-trace_err", "-error_file", "errors"], words].concat();
    let mut sipp = Sipp::start(true, &all);
    let code = sipp.end().code().unwrap_or(-1);
    let errors = std::fs::read_to_string(sipp._folder.path().join("errors")).unwrap_or_default();
    (code, errors)
}

fn the_only_connection_is_lost() {
    // Three messages come, then the peer ends the connection while the calls pause.
    let peer = Peer::tcp(3);
    let (code, errors) = sipp_over_tcp(&peer, 500, &["-t", "t1"]);
    assert_eq!(code, 1, "{errors}");
    // Between the calls: the next has none, and none is made again.
    let peer = Peer::tcp(2);
    let (code, errors) = sipp_over_tcp(&peer, 1, &["-t", "t1", "-r", "2"]);
    assert_eq!(code, 255, "{errors}");
    assert!(errors.contains("Broken pipe on TCP connection, remote peer probably closed the socket"), "{errors}");
    let peer = Peer::tcp(3);
    let (code, errors) = sipp_over_tcp(&peer, 500, &["-t", "t1", "-max_reconnect", "2", "-reconnect_sleep", "50"]);
    assert_eq!(code, 1, "{errors}");
    assert!(errors.contains("Closing calls, because of TCP reset or close!"), "{errors}");
    let peer = Peer::tcp(3);
    let words = ["-t", "t1", "-max_reconnect", "2", "-reconnect_close", "false", "-reconnect_sleep", "50"];
    let (code, errors) = sipp_over_tcp(&peer, 500, &words);
    assert_eq!(code, 0, "{errors}");
    assert!(errors.contains("Socket required a reconnection."), "{errors}");
    assert_eq!((peer.seen().len(), peer.connections.made.load(SeqCst)), (6, 2));
}

fn connections_of_calls_are_lost_one_by_one() {
    let peer = Peer::tcp(1);
    let (code, errors) = sipp_over_tcp(&peer, 500, &["-t", "tn", "-max_reconnect", "5"]);
    assert_eq!((code, peer.connections.made.load(SeqCst)), (1, 3), "{errors}");
    // A closed port.
    let closed = TcpListener::bind("127.0.0.1:0").expect("a port is free").local_addr().expect("it is bound");
    let ran = run(&format!("tcp://{closed}"), &["--connections", "per-call", "-r", "50", "-m", "10"]);
    assert_eq!((ran.calls("failed"), ran.failures("connect")), (10, 10), "{}", ran.said);
    assert_eq!(TcpStream::connect(closed).map_err(|e| e.kind()).err(), Some(ErrorKind::ConnectionRefused));
}

/// A caller repeats its INVITE because the answering side was kept from reading: both lie there when it comes to read.
fn what_lies_there_twice_is_taken_once() {
    if !program::have(&[SIPP]) {
        return;
    }
    let answers = [false, true].map(|ours| {
        let port = port::free();
        let mut uas = Sipp::start(ours, &["-sn", "uas", "-p", &port.to_string()]);
        std::thread::sleep(Duration::from_millis(800));
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
        socket.connect(("127.0.0.1", port)).expect("it is there");
        socket.set_read_timeout(Some(Duration::from_millis(400))).expect("it can be set");
        let own = socket.local_addr().expect("it is bound");
        let message = |method: &str, number: u32| {
            format!(
                "{method} sip:service@127.0.0.1:{port} SIP/2.0\r\nVia: SIP/2.0/UDP {own};branch=z9hG4bK-{method}\r\n\
                 From: <sip:a@{own}>;tag=1\r\nTo: <sip:service@127.0.0.1:{port}>\r\nCall-ID: twice@127.0.0.1\r\n\
                 CSeq: {number} {method}\r\nContact: <sip:a@{own}>\r\nMax-Forwards: 70\r\nContent-Length: 0\r\n\r\n"
            )
        };
        let send = |text: String| assert!(socket.send(text.as_bytes()).is_ok());
        let hear = |wanted: usize| -> Vec<String> {
            let mut buffer = [0; 4_096];
            (0..wanted)
                .map_while(|_| {
                    socket.recv(&mut buffer).ok().map(|n| String::from_utf8_lossy(&buffer[8..n.min(11)]).into())
                })
                .collect()
        };
        uas.process.signal(libc::SIGSTOP);
        send(message("INVITE", 1));
        send(message("INVITE", 1));
        std::thread::sleep(Duration::from_millis(50));
        uas.process.signal(libc::SIGCONT);
        let mut codes = hear(9);
        // SIPp says 180 once more; nobody gives the call up.
        codes.dedup();
        send(message("ACK", 1));
        std::thread::sleep(Duration::from_millis(50));
        send(message("BYE", 2));
        codes.extend(hear(9));
        assert!(uas.process.ended().is_none(), "{}", uas.process.tail());
        codes
    });
    assert_eq!(answers, [["180", "200", "200"]; 2]);
}
