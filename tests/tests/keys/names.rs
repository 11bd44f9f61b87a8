//! Names of other servers, asked of a name server of the test's own.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use strowger_tests::program;
use strowger_tests::server::Server;
use strowger_tests::text;
use strowger_tests::wire::Transport::{Tcp, Udp};

use super::{SOON, code, open, request, send};

/// Type A (RFC 1035 section 3.2.2).
const A: u16 = 1;

/// A name server that says nothing, or that every name has the address 127.0.0.1.
struct NameServer {
    address: IpAddr,
    /// Type and name of each question.
    asked: Arc<Mutex<Vec<(u16, String)>>>,
}

impl NameServer {
    /// None where this user may not open port 53.
    fn start(answers: bool) -> Option<Self> {
        let id = std::process::id().to_be_bytes();
        let socket = (0..=250).find_map(|last| {
            let address = SocketAddr::from((Ipv4Addr::new(127, 53, id[3], last + 1), 53));
            UdpSocket::bind(address).ok()
        });
        let Some(socket) = socket else {
            program::skipped("a name server needs root");
            return None;
        };
        let address = socket.local_addr().expect("it is bound").ip();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = asked.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 1_500];
            while let Ok((length, from)) = socket.recv_from(&mut buffer) {
                let Some((name, kind, end)) = question(&buffer[..length]) else { continue };
                seen.lock().expect("no test panics with it").push((kind, name));
                if answers {
                    let _ = socket.send_to(&answer(&buffer[..end], kind), from);
                }
            }
        });
        Some(Self { address, asked })
    }

    /// How often the address of a name was asked for.
    fn questions(&self) -> usize {
        self.asked.lock().expect("no test panics with it").iter().filter(|(kind, _)| *kind == A).count()
    }

    fn serve(&self, lines: &str) -> Server {
        open(&format!("dns.servers = [\"{}\"]\n{lines}", self.address))
    }
}

/// Name and type of the question, and where it ends.
fn question(message: &[u8]) -> Option<(String, u16, usize)> {
    let (mut at, mut name) = (12, String::new());
    loop {
        let length = usize::from(*message.get(at)?);
        if length == 0 {
            break;
        }
        name.push_str(std::str::from_utf8(message.get(at + 1..at + 1 + length)?).ok()?);
        name.push('.');
        at += 1 + length;
    }
    let kind = u16::from_be_bytes(message.get(at + 1..at + 3)?.try_into().ok()?);
    Some((name, kind, at + 5))
}

fn answer(question: &[u8], kind: u16) -> Vec<u8> {
    let mut out = question.to_vec();
    out[2..4].copy_from_slice(&[0x81, 0x80]);
    // One question; for an address one answer, for others none.
    out[4..12].copy_from_slice(&[0, 1, 0, u8::from(kind == A), 0, 0, 0, 0]);
    if kind == A {
        out.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1]);
    }
    out
}

#[test]
fn a_silent_name_server_is_asked_so_often_and_waited_for_so_long() {
    let Some(names) = NameServer::start(false) else { return };
    let server = names.serve("dns.timeout = \"200ms\"\ndns.attempts = 4");
    let mut caller = server.connect(Tcp);
    let begun = Instant::now();
    let message = request(&caller, "MESSAGE", "sip:x@gone.example.net:5060;transport=udp");
    send(&mut caller, &message);
    let refused = caller.final_response(SOON).expect("an answer");
    assert!(code(&refused) >= 400);
    assert!(begun.elapsed() < Duration::from_millis(3_500), "by default it takes four seconds: {:?}", begun.elapsed());
    // The last of them may not have been read yet.
    while names.questions() < 4 && begun.elapsed() < SOON {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(names.questions(), 4);
}

#[test]
fn answers_are_kept() {
    let Some(names) = NameServer::start(true) else { return };
    for (lines, questions) in [("", 1), ("dns.cache_entries = 0", 3)] {
        let server = names.serve(lines);
        let (mut caller, mut bob) = (server.connect(Udp), server.connect(Udp));
        let before = names.questions();
        for _ in 0..questions.max(2) {
            let uri = format!("sip:x@there.example.net:{};transport=udp", bob.local().port());
            let message = request(&caller, "MESSAGE", &uri);
            send(&mut caller, &message);
            assert!(bob.request("MESSAGE", SOON).is_some());
        }
        assert_eq!(names.questions() - before, questions, "{lines}");
    }
}

#[test]
fn so_many_look_ups_wait_and_so_many_messages_of_a_call() {
    let Some(names) = NameServer::start(false) else { return };
    let mut server = names.serve("dns.timeout = \"1s\"\nlimits.lookup_queue = 16\nlimits.held_messages_per_call = 1");
    let mut caller = server.connect(Tcp);
    for n in 0..20 {
        let message = request(&caller, "MESSAGE", &format!("sip:x@name{n}.example.net:5060;transport=udp"));
        send(&mut caller, &message);
    }
    let begun = Instant::now();
    let refused = caller.final_response(SOON).expect("some are refused");
    assert_eq!(code(&refused), 503);
    assert!(begun.elapsed() < Duration::from_millis(900), "those that wait are answered after two seconds");
    // Those that wait are waited for no longer.
    server.kill();

    server.start();
    let mut caller = server.connect(Udp);
    let first = request(&caller, "MESSAGE", "sip:x@name.example.net:5060;transport=udp");
    for cseq in 1..5 {
        let mut next = first.clone();
        (next.cseq, next.branch) = (cseq, text::unique("z9hG4bK"));
        send(&mut caller, &next);
    }
    assert!(code(&caller.final_response(SOON).expect("an answer")) >= 400);
    server.stop();
    let log = server.log();
    assert!(log.lines().any(|line| line.contains("statistics at the end") && line.contains("held_dropped=2")), "{log}");
}
