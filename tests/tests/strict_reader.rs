//! A strict reader splits the streams of the server into exactly the intended messages: no header field or body of one
//! becomes a message, over any way in.
//!
//! `STROWGER_SMUGGLED` (8,000, and 100,000 with `STROWGER_WHOLE=1`) is the number of mutated messages, `STROWGER_SMUGGLED_SEED` the seed of their
//! sequence.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use strowger_tests::amount;
use strowger_tests::kamailio::Kamailio;
use strowger_tests::port;
use strowger_tests::program::{KAMAILIO, have};
use strowger_tests::server::{Server, Setup};
use strowger_tests::smuggling::{Smuggler, compare};
use strowger_tests::strict::{Framer, Strict, only};
use strowger_tests::text::{Request, parameter, respond, status};
use strowger_tests::wire::Transport::{self, Tcp, Tls, Udp, Ws};
use strowger_tests::wire::Wire;

const LIMIT: Duration = Duration::from_secs(5);
/// Messages in flight of a sender.
const AT_ONCE: usize = 40;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

/// Starts a registrar that asks for no passwords; by default foreign callers may call its users.
fn start() -> Server {
    Setup::on(&[Udp, Tcp, Tls, Ws])
        .with("domains = [\"example.org\"]\nregistrar.authenticate = false\nlog.level = \"error\"")
        .in_memory()
        .start()
}

/// Registers a phone that is reached over its connection.
fn register(server: &Server, transport: Transport) -> Wire {
    let mut wire = server.connect(transport);
    let name = transport.name();
    let contact = format!("sip:{name}@{};transport={name}", wire.local());
    wire.send(&Request::register(name, "example.org", &contact, name, wire.local()).bytes()).expect("it is connected");
    let answer = wire.final_response(LIMIT).expect("an answer to REGISTER");
    assert_eq!(status(&answer), Some(200), "{}", String::from_utf8_lossy(&answer));
    wire
}

/// Messages on their way, by branch.
type Sent = Arc<Mutex<HashMap<String, (Transport, Vec<u8>)>>>;

#[derive(Default)]
struct Counts {
    /// Counts by transport of the sender and of the receiver.
    arrived: Mutex<HashMap<(Transport, Transport), usize>>,
    sent: AtomicUsize,
    reconnects: AtomicUsize,
}

/// A phone that accepts only strict messages, and answers them.
fn phone(mut wire: Wire, sent: &Sent, counts: &Counts, over: &AtomicBool) {
    let mut framer = Framer::default();
    while !over.load(Ordering::SeqCst) {
        let Some(chunk) = wire.chunk(Duration::from_millis(50)) else { continue };
        if wire.transport() == Ws {
            only(&chunk).unwrap_or_else(|fault| panic!("a frame to {wire:?}: {fault}"));
        }
        framer.push(&chunk);
        let mut answers = Vec::new();
        while let Some(got) = framer.next_message().unwrap_or_else(|fault| panic!("to {wire:?}: {fault}")) {
            // A keep-alive of the server.
            if got.method() == Some("OPTIONS") && got.first("Call-ID", "i").starts_with("ping-") {
                answers.push(answer(&got));
                continue;
            }
            let found = sent.lock().unwrap().remove(&branch(&got));
            let (from, bytes) = found.unwrap_or_else(|| panic!("nobody sent this to {wire:?}, or once: {got:?}"));
            assert_eq!(got.method(), Some("MESSAGE"), "{got:?}");
            compare(&bytes, &got)
                .unwrap_or_else(|fault| panic!("{} to {wire:?}: {fault}\n{}", from.name(), bytes.escape_ascii()));
            *counts.arrived.lock().unwrap().entry((from, wire.transport())).or_default() += 1;
            answers.push(answer(&got));
        }
        match wire.transport() {
            Ws => answers.iter().for_each(|answer| wire.send(answer).expect("it is connected")),
            _ => wire.send(&answers.concat()).expect("it is connected"),
        }
    }
    assert!(framer.rest().is_empty(), "left over: {}", framer.rest().escape_ascii());
}

/// Returns the branch of the sender, which is in the last Via.
fn branch(message: &Strict) -> String {
    let via = message.all("Via", "v").last().map(|via| String::from_utf8_lossy(via).into_owned()).unwrap_or_default();
    parameter(&via, "branch").unwrap_or_default()
}

fn answer(request: &Strict) -> Vec<u8> {
    let mut text = b"SIP/2.0 200 OK\r\n".to_vec();
    for (name, value) in &request.headers {
        let copied =
            ["via", "v", "from", "f", "to", "t", "call-id", "i", "cseq"].contains(&&*name.to_ascii_lowercase());
        if copied {
            text.extend([name.as_bytes(), b": ", value].concat());
            if name.eq_ignore_ascii_case("to") || name.eq_ignore_ascii_case("t") {
                text.extend_from_slice(b";tag=phone");
            }
            text.extend_from_slice(b"\r\n");
        }
    }
    text.extend_from_slice(b"Content-Length: 0\r\n\r\n");
    text
}

/// Sends `count` mutated messages, to each phone in turn.
fn smuggle(server: &Server, transport: Transport, count: usize, seed: u64, sent: &Sent, counts: &Counts) {
    let stream = matches!(transport, Tcp | Tls);
    let mut smuggler = Smuggler::new(seed, stream);
    let mut wire = server.connect(transport);
    let mut framer = Framer::default();
    for turn in 0..count.div_ceil(AT_ONCE) {
        let via = format!("{} {}", transport.name().to_uppercase(), wire.local());
        let uri = format!("sip:{}@example.org", ["tcp", "tls", "ws"][turn % 3]);
        let mut messages: Vec<_> = (0..AT_ONCE).map(|_| smuggler.message(&uri, &via)).collect();
        messages.push(smuggler.plain(&uri, &via));
        let fence = messages[AT_ONCE].branch.clone();
        sent.lock().unwrap().extend(messages.iter().map(|m| (m.branch.clone(), (transport, m.bytes.clone()))));
        let done = match stream {
            true => wire.send(&messages.iter().flat_map(|m| m.bytes.clone()).collect::<Vec<_>>()).is_ok(),
            false => messages.iter().all(|message| wire.send(&message.bytes).is_ok()),
        };
        counts.sent.fetch_add(AT_ONCE, Ordering::Relaxed);
        if !done || !wait_for(&mut wire, &mut framer, &fence) {
            assert!(stream, "{} is gone, or lost a message", transport.name());
            counts.reconnects.fetch_add(1, Ordering::Relaxed);
            wire = server.connect(transport);
            framer = Framer::default();
        }
    }
}

/// Reads answers as strictly as the phones do, until the answer to the last message. False: the connection ended.
fn wait_for(wire: &mut Wire, framer: &mut Framer, fence: &str) -> bool {
    while let Some(chunk) = wire.chunk(LIMIT) {
        if matches!(wire.transport(), Udp | Ws) {
            only(&chunk).unwrap_or_else(|fault| panic!("to {wire:?}: {fault}"));
        }
        framer.push(&chunk);
        let mut seen = false;
        while let Some(got) = framer.next_message().unwrap_or_else(|fault| panic!("to {wire:?}: {fault}")) {
            assert_eq!(got.method(), None, "a request to {wire:?}: {got:?}");
            seen |= branch(&got) == fence;
        }
        if seen {
            return true;
        }
    }
    false
}

#[test]
fn no_message_becomes_two_on_its_way_to_a_stream() {
    let total = amount("STROWGER_SMUGGLED", 100_000, 8_000) as usize;
    let seed = number("STROWGER_SMUGGLED_SEED", 1);
    let mut server = start();
    let (sent, counts, over) = (Sent::default(), Counts::default(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let phones = [Tcp, Tls, Ws].map(|transport| register(&server, transport));
        for wire in phones {
            scope.spawn(|| phone(wire, &sent, &counts, &over));
        }
        let server = &server;
        let (sent, counts) = (&sent, &counts);
        // Datagrams allow more mutations than a stream, which must stay in step.
        let senders = [(Udp, 5), (Tcp, 2), (Tls, 1), (Ws, 2)].map(|(transport, tenths)| {
            scope.spawn(move || smuggle(server, transport, total * tenths / 10, seed + tenths as u64, sent, counts))
        });
        let ended: Vec<_> = senders.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        over.store(true, Ordering::SeqCst);
        assert!(ended.iter().all(Result::is_ok), "a sender failed");
    });
    let arrived = counts.arrived.into_inner().unwrap();
    println!("{} sent, {} reconnects, {arrived:?}", counts.sent.into_inner(), counts.reconnects.into_inner());
    for (from, tenths) in [(Udp, 5), (Tcp, 2), (Tls, 1), (Ws, 2)] {
        for to in [Tcp, Tls, Ws] {
            let count = arrived.get(&(from, to)).copied().unwrap_or(0);
            assert!(count > total * tenths / 10 / 3 / 3, "{count} from {} to {}", from.name(), to.name());
        }
    }
    server.assert_answers(Udp);
}

/// A phone on UDP that answers each request, mostly with mutations, until `over` is set.
fn smuggling_phone(wire: &mut Wire, sent: &Sent, over: &AtomicBool) {
    let mut smuggler = Smuggler::new(7, false);
    let mut answers: HashMap<String, Vec<u8>> = HashMap::new();
    while !over.load(Ordering::SeqCst) {
        let Some(request) = wire.request("MESSAGE", Duration::from_millis(100)) else { continue };
        let request = only(&request).unwrap_or_else(|fault| panic!("to {wire:?}: {fault}"));
        // On a busy machine the server may retransmit a request.
        if let Some(answer) = answers.get(&branch(&request)) {
            wire.send(answer).expect("loopback takes it");
            continue;
        }
        let fence = request.first("Subject", "s") == "fence";
        let answer = if fence { smuggler.plain_answer(&request) } else { smuggler.answer(&request) };
        answers.insert(branch(&request), answer.bytes.clone());
        sent.lock().unwrap().insert(branch(&request), (Udp, answer.bytes.clone()));
        wire.send(&answer.bytes).expect("loopback takes it");
    }
}

#[test]
fn no_answer_becomes_two_on_its_way_to_a_stream() {
    const TURNS: usize = 25;
    let server = start();
    let mut phone = register(&server, Udp);
    let (sent, arrived, over) = (Sent::default(), AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let answering = scope.spawn(|| smuggling_phone(&mut phone, &sent, &over));
        let callers = [Tcp, Tls, Ws].map(|transport| {
            let (server, sent, arrived) = (&server, &sent, &arrived);
            scope.spawn(move || {
                let (mut wire, mut framer) = (server.connect(transport), Framer::default());
                for _ in 0..TURNS {
                    let ask = |subject: &str| {
                        let request = Request::new("MESSAGE", "sip:udp@example.org", transport.name(), wire.local());
                        request.with(format!("Subject: {subject}")).bytes()
                    };
                    let mut requests: Vec<_> = (0..AT_ONCE).map(|_| ask("words")).collect();
                    requests.push(ask("fence"));
                    let fence = branch(&only(&requests[AT_ONCE]).expect("our own"));
                    requests.iter().for_each(|request| wire.send(request).expect("it is connected"));
                    let mut seen = false;
                    while !seen {
                        let chunk = wire.chunk(LIMIT).expect("the answer to the fence");
                        if transport == Ws {
                            only(&chunk).unwrap_or_else(|fault| panic!("a frame to {wire:?}: {fault}"));
                        }
                        framer.push(&chunk);
                        while let Some(got) = framer.next_message().unwrap_or_else(|f| panic!("to {wire:?}: {f}")) {
                            // A 100 for a request whose answer was malformed.
                            if got.start.starts_with("SIP/2.0 100") {
                                continue;
                            }
                            assert!(got.start.starts_with("SIP/2.0 200"), "{got:?}");
                            let (_, bytes) = sent.lock().unwrap().remove(&branch(&got)).expect("answered once");
                            compare(&bytes, &got)
                                .unwrap_or_else(|fault| panic!("to {wire:?}: {fault}\n{}", bytes.escape_ascii()));
                            arrived.fetch_add(1, Ordering::Relaxed);
                            seen |= branch(&got) == fence;
                        }
                    }
                }
            })
        });
        let ended = callers.map(std::thread::ScopedJoinHandle::join);
        over.store(true, Ordering::SeqCst);
        assert!(ended.iter().all(Result::is_ok) && answering.join().is_ok());
    });
    let arrived = arrived.into_inner();
    assert!(arrived > 3 * TURNS * AT_ONCE / 3, "{arrived} answers arrived");
}

/// Messages without Content-Length, which datagrams and frames may omit, on their way to a phone and a caller on
/// streams.
#[test]
fn what_comes_without_a_length_leaves_with_one() {
    let server = start();
    let body = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\n";
    let without = |bytes: Vec<u8>| {
        let text = String::from_utf8(bytes).expect("text");
        let (head, body) = text.split_once("\r\n\r\n").expect("a header");
        let lines: Vec<_> = head.split("\r\n").filter(|line| !line.starts_with("Content-Length")).collect();
        format!("{}\r\n\r\n{body}", lines.join("\r\n")).into_bytes()
    };
    // One read may bring several messages.
    let strict = |wire: &mut Wire, framer: &mut Framer| {
        loop {
            if let Some(got) = framer.next_message().unwrap_or_else(|fault| panic!("to {wire:?}: {fault}")) {
                return got;
            }
            framer.push(&wire.chunk(LIMIT).unwrap_or_else(|| panic!("nothing came to {wire:?}")));
        }
    };
    // A request to a phone on a stream.
    let (mut phone, mut framer) = (register(&server, Tcp), Framer::default());
    for transport in [Udp, Ws] {
        let mut caller = server.connect(transport);
        let mut invite = Request::new("INVITE", "sip:tcp@example.org", transport.name(), caller.local())
            .with(format!("Contact: <sip:caller@{}>", caller.local()))
            .with("Content-Type: application/sdp");
        invite.body = body.into();
        caller.send(&without(invite.bytes())).expect("loopback takes it");
        let got = strict(&mut phone, &mut framer);
        assert_eq!((got.method(), &got.body[..]), (Some("INVITE"), body.as_bytes()), "{got:?}");
    }
    // An answer to a caller on a stream.
    let mut phone = register(&server, Udp);
    for transport in [Tcp, Tls, Ws] {
        let mut caller = server.connect(transport);
        let invite = Request::new("INVITE", "sip:udp@example.org", transport.name(), caller.local())
            .with(format!("Contact: <sip:caller@{}>", caller.local()));
        caller.send(&invite.bytes()).expect("it is connected");
        let request = phone.request("INVITE", LIMIT).expect("the call");
        let contact = format!("Contact: <sip:udp@{}>", phone.local());
        let mut answer = respond(&request, 200, "b", &[contact, "Content-Type: application/sdp".into()]);
        answer.extend_from_slice(body.as_bytes());
        phone.send(&without(answer)).expect("loopback takes it");
        let mut framer = Framer::default();
        let mut got = strict(&mut caller, &mut framer);
        while got.start.starts_with("SIP/2.0 1") {
            got = strict(&mut caller, &mut framer);
        }
        assert_eq!((&got.start[..], &got.body[..]), ("SIP/2.0 200 As told", body.as_bytes()), "{got:?}");
    }
}

/// Requests with a CR that is not followed by LF, and with lines that only some readers see.
#[test]
fn a_bare_cr_is_refused_and_a_bare_lf_made_whole() {
    let server = start();
    let mut phone = register(&server, Tcp);
    let mut caller = server.connect(Udp);
    let ask = |caller: &mut Wire, line: &str| {
        let mut request = Request::new("MESSAGE", "sip:tcp@example.org", "udp", caller.local());
        request.body = b"INVITE sip:boss@example.org SIP/2.0\r\n\r\n".to_vec();
        let length = "Content-Length";
        let text = String::from_utf8(request.bytes()).expect("text").replace(length, &format!("{line}{length}"));
        caller.send(text.as_bytes()).expect("loopback takes it");
    };
    // The refused requests do not reach the phone: it receives the next correct request first.
    for refused in ["X-Odd: a\r\r\n", "X-Odd: a\rb: c\r\n", "X-Odd: a\r b\r\n", "X-Odd: a\r\n \r b\r\n", "\r\r\n"] {
        ask(&mut caller, refused);
        let status = caller.final_response(LIMIT).as_deref().and_then(status);
        assert_eq!(status, Some(400), "{refused:?}");
    }
    for (written, read) in [
        ("X-Odd: a\nX-Next: b\n", "X-Odd: a\r\nX-Next: b\r\n"),
        ("X-Odd: a\n b\r\n\t c\r\n", "X-Odd: a b c\r\n"),
        ("X-Odd: a\0b\u{b}c\u{c}d\r\n", "X-Odd: a b c d\r\n"),
        ("X-Odd : a\r\n", "X-Odd: a\r\n"),
    ] {
        ask(&mut caller, written);
        let got = phone.request("MESSAGE", LIMIT).expect("the request");
        only(&got).unwrap_or_else(|fault| panic!("{written:?}: {fault}"));
        let got = String::from_utf8(got).expect("text");
        assert!(got.contains(read) && got.ends_with("\r\n\r\nINVITE sip:boss@example.org SIP/2.0\r\n\r\n"), "{got}");
        phone.send(&respond(got.as_bytes(), 200, "t", &[])).expect("it is connected");
        assert_eq!(caller.final_response(LIMIT).as_deref().and_then(status), Some(200), "{written:?}");
    }
    // On a stream the end of such a message is uncertain: the connection ends.
    for line in ["X-Odd: a\r\r\n", "X-Odd: a\nX-Next: b\r\n"] {
        let mut caller = server.connect(Tcp);
        let request = Request::new("MESSAGE", "sip:tcp@example.org", "tcp", caller.local()).with("X-Odd: here");
        let text = String::from_utf8(request.bytes()).expect("text").replace("X-Odd: here\r\n", line);
        caller.send(text.as_bytes()).expect("it is connected");
        assert!(caller.closes(LIMIT), "{line:?}");
    }
}

/// Kamailio as the next hop of a relay: it treats CR as part of a line, and closes a connection at a message without
/// Content-Length.
#[test]
fn kamailio_reads_no_smuggled_request() {
    if !have(&[KAMAILIO]) {
        return;
    }
    let mut server = Setup::on(&[Udp, Tcp]).relay().with("log.level = \"error\"").start();
    let (tcp, udp) = (port::free(), port::free());
    let values = [("TCP", tcp.to_string()), ("UDP", udp.to_string())];
    let values: Vec<_> = values.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let mut kamailio = Kamailio::start(server.folder(), "witness", &values);
    let uri = format!("sip:someone@127.0.0.1:{tcp};transport=tcp");
    let (mut wire, mut framer) = (server.connect(Udp), Framer::default());
    let via = format!("UDP {}", wire.local());
    let mut smuggler = Smuggler::new(3, false);
    const TURNS: usize = 25;
    for _ in 0..TURNS {
        let mut messages: Vec<_> = (0..AT_ONCE).map(|_| smuggler.message(&uri, &via)).collect();
        messages.push(smuggler.plain(&uri, &via));
        messages.iter().for_each(|message| wire.send(&message.bytes).expect("loopback takes it"));
        assert!(wait_for(&mut wire, &mut framer, &messages[AT_ONCE].branch), "Kamailio answers no more");
    }
    let log = kamailio.process().log();
    let witnessed = |words: &str| log.lines().filter(|line| line.contains(words)).count();
    assert!(witnessed("WITNESS MESSAGE") > TURNS * AT_ONCE / 4, "{log}");
    assert_eq!(witnessed("WITNESS"), witnessed("WITNESS MESSAGE"), "{log}");
    assert_eq!(witnessed("ERROR"), 0, "{log}");
    server.assert_answers(Udp);
}
