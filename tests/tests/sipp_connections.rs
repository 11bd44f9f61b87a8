//! Sockets and connections of `strowger sipp`: per call, per address, and the calls whose connection ends.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use strowger_tests::generator::{Ran, load};
use strowger_tests::peer::Peer;
use strowger_tests::process::Process;
use strowger_tests::program::{self, SIPP};
use strowger_tests::{binary, port, together};

#[test]
fn sockets_and_connections_of_sipp() {
    together(&[
        ("sipp_is_called_by_socket_and_connection", sipp_is_called_by_socket_and_connection),
        ("sipp_calls_by_socket_and_connection", sipp_calls_by_socket_and_connection),
        ("addresses_of_a_file", addresses_of_a_file),
        ("the_only_connection_is_lost", the_only_connection_is_lost),
        ("connections_of_calls_are_lost_one_by_one", connections_of_calls_are_lost_one_by_one),
        ("what_lies_there_twice_is_taken_once", what_lies_there_twice_is_taken_once),
    ]);
}

fn run(target: &str, words: &[&str]) -> Ran {
    load(&[&[target, "--no-preflight"], words].concat())
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

/// Runs the built-in scenarios between the two programs, with a socket or connection for each call.
fn duel(ours_calls: bool) {
    if !program::have(&[SIPP]) {
        return;
    }
    for (calls, answers) in [("un", "u1"), ("tn", "t1")] {
        let port = port::free();
        let mut uas = Sipp::start(!ours_calls, &["-sn", "uas", "-p", &port.to_string(), "-t", answers, "-m", "50"]);
        uas.process.listens(port);
        let target = format!("127.0.0.1:{port}");
        let mut uac =
            Sipp::start(ours_calls, &["-sn", "uac", &target, "-t", calls, "-m", "50", "-r", "100", "-d", "100"]);
        let ended = uac.end();
        assert!(ended.success(), "{calls}: {ended:?}\n{}\n---\n{}", uac.process.tail(), uas.process.tail());
        let ended = uas.end();
        // SIPp fails a call whose connection ends before its last wait, which depends on timing.
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
    // The answering side listens on each address.
    let answers =
        ["-sn", "uas", "-inf", &file.display().to_string(), "-t", "ui", "-ip_field", "1", "-p", &port.to_string()]
            .map(str::to_owned);
    let answers: Vec<&str> = answers.iter().map(String::as_str).collect();
    let mut uas = Sipp::start(true, &answers);
    uas.process.listens(port);
    for last in [5, 6, 7] {
        let ran = run(&format!("127.0.0.{last}:{port}"), &["-r", "50", "-m", "5", "--hold", "0"]);
        ran.all_successful(5);
    }
}

fn sipp_over_tcp(peer: &Peer, pause: u32, words: &[&str]) -> (i32, String) {
    sipp_to(peer.address, pause, words)
}

fn sipp_to(target: SocketAddr, pause: u32, words: &[&str]) -> (i32, String) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let document = options_twice(folder.path(), pause);
    let target = target.to_string();
    let all =
        [&["-sf", &document, &target, "-m", "3", "-r", "100", "-trace_err", "-error_file", "errors"], words].concat();
    let mut sipp = Sipp::start(true, &all);
    let code = sipp.end().code().unwrap_or(-1);
    let errors = std::fs::read_to_string(sipp._folder.path().join("errors")).unwrap_or_default();
    (code, errors)
}

/// Starts a peer that answers nothing, and resets its first connection after this number of messages.
fn breaks_off(after: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("somebody connects");
        let (mut text, mut bytes) = (Vec::new(), [0; 4_096]);
        while text.windows(4).filter(|four| four == b"\r\n\r\n").count() < after {
            let n = stream.read(&mut bytes).expect("it is there until it is broken off");
            text.extend_from_slice(&bytes[..n]);
        }
        socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).expect("a socket can be told");
        drop(stream);
        // The peer accepts another connection.
        let _other = listener.accept();
    });
    address
}

fn the_only_connection_is_lost() {
    // The peer ends the connection after three messages, while the calls pause.
    let peer = Peer::tcp(3);
    let (code, errors) = sipp_over_tcp(&peer, 500, &["-t", "t1"]);
    assert_eq!(code, 1, "{errors}");
    // The connection ends between the calls: the next call has no connection, and no connection is opened again.
    let peer = Peer::tcp(2);
    let (code, errors) = sipp_over_tcp(&peer, 1, &["-t", "t1", "-r", "2"]);
    assert_eq!(code, 255, "{errors}");
    assert!(errors.contains("Broken pipe on TCP connection, remote peer probably closed the socket"), "{errors}");
    let again = ["-t", "t1", "-max_reconnect", "2", "-reconnect_sleep", "50"];
    let (code, errors) = sipp_over_tcp(&Peer::tcp(3), 500, &again);
    assert_eq!(code, 1, "{errors}");
    // As with SIPp, an orderly close is no error, but a reset is an error.
    assert!(!errors.contains("Closing calls"), "{errors}");
    let (code, errors) = sipp_to(breaks_off(3), 500, &again);
    assert_eq!(code, 1, "{errors}");
    let said = ["Error on TCP connection, remote peer", "Closing calls, because of TCP reset or close!"];
    assert!(said.iter().all(|said| errors.contains(said)), "{errors}");
    let (code, errors) = sipp_to(breaks_off(3), 500, &["-t", "t1"]);
    assert_eq!(code, 255, "{errors}");
    assert!(errors.contains(said[0]) && !errors.contains(said[1]), "{errors}");
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
    // A closed port, on its own address.
    let closed = TcpListener::bind("127.0.0.232:0").expect("a port is free").local_addr().expect("it is bound");
    let ran = run(&format!("tcp://{closed}"), &["--connections", "per-call", "-r", "50", "-m", "10"]);
    assert_eq!((ran.calls("failed"), ran.failures("connect")), (10, 10), "{}", ran.said);
    assert_eq!(TcpStream::connect(closed).map_err(|e| e.kind()).err(), Some(ErrorKind::ConnectionRefused));
    // The same for a call that has not sent a message yet.
    let folder = tempfile::tempdir().expect("a temporary folder");
    let document = options_twice(folder.path(), 1);
    let text = std::fs::read_to_string(&document).expect("it was written");
    let late = text.replacen("<send>", "<pause milliseconds=\"200\"/><send>", 1);
    std::fs::write(&document, late).expect("the folder can be written");
    let statistics = folder.path().join("statistics").display().to_string();
    let target = closed.to_string();
    let mut sipp =
        Sipp::start(true, &["-sf", &document, &target, "-m", "2", "-t", "tn", "-trace_stat", "-stf", &statistics]);
    assert_eq!(sipp.end().code(), Some(1), "{}", sipp.process.tail());
    let text = std::fs::read_to_string(&statistics).expect("it is written");
    let cells = |line: Option<&str>| line.unwrap_or_default().split(';').map(str::to_owned).collect::<Vec<_>>();
    let columns: BTreeMap<_, _> = cells(text.lines().next()).into_iter().zip(cells(text.lines().last())).collect();
    assert_eq!(["FailedTcpConnect(C)", "FailedTcpClosed(C)"].map(|name| &columns[name][..]), ["2", "0"]);
}

/// A caller retransmits its INVITE before the stopped answering side reads, so both copies wait in the socket of that
/// side.
fn what_lies_there_twice_is_taken_once() {
    if !program::have(&[SIPP]) {
        return;
    }
    let answers = [false, true].map(|ours| {
        let port = port::free();
        let mut uas = Sipp::start(ours, &["-sn", "uas", "-p", &port.to_string()]);
        uas.process.listens(port);
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
        socket.connect(("127.0.0.1", port)).expect("it is there");
        socket.set_read_timeout(Some(Duration::from_secs(10))).expect("it can be set");
        let own = socket.local_addr().expect("it is bound");
        let message = |method: &str, number: u32| {
            format!(
                "{method} sip:service@127.0.0.1:{port} SIP/2.0\r\nVia: SIP/2.0/UDP {own};branch=z9hG4bK-{method}\r\n\
                 From: <sip:a@{own}>;tag=1\r\nTo: <sip:service@127.0.0.1:{port}>\r\nCall-ID: twice@127.0.0.1\r\n\
                 CSeq: {number} {method}\r\nContact: <sip:a@{own}>\r\nMax-Forwards: 70\r\nContent-Length: 0\r\n\r\n"
            )
        };
        let send = |text: String| assert!(socket.send(text.as_bytes()).is_ok());
        // Collects the status codes for the request of this method up to the final response.
        let hear = |method: &str| -> Vec<String> {
            let mut buffer = [0; 4_096];
            let mut codes = Vec::new();
            while codes.last().is_none_or(|code: &String| code.starts_with('1')) {
                let Ok(n) = socket.recv(&mut buffer) else { break };
                let text = String::from_utf8_lossy(&buffer[..n]);
                if text.lines().any(|line| line.starts_with("CSeq:") && line.ends_with(method)) {
                    codes.extend(text.get(8..11).map(str::to_owned));
                }
            }
            codes
        };
        uas.process.signal(libc::SIGSTOP);
        send(message("INVITE", 1));
        send(message("INVITE", 1));
        // Time for both copies to reach the socket before the process continues.
        std::thread::sleep(Duration::from_millis(50));
        uas.process.signal(libc::SIGCONT);
        let mut codes = hear("INVITE");
        // SIPp sends its 180 twice; neither program fails the call.
        codes.dedup();
        send(message("ACK", 1));
        // Time for SIPp to read the ACK before the BYE arrives.
        std::thread::sleep(Duration::from_millis(50));
        send(message("BYE", 2));
        codes.extend(hear("BYE"));
        assert!(uas.process.ended().is_none(), "{}", uas.process.tail());
        codes
    });
    assert_eq!(answers, [["180", "200", "200"]; 2]);
}
