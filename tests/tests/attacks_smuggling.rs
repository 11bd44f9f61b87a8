//! Attempts to make this server's peers read one message as two, or as another: a request in the body or in a header
//! line. A strict reader parses all stream input of the phone; with the default configuration.

use std::time::Duration;

use strowger_tests::account::register;
use strowger_tests::call::exchange;
use strowger_tests::server::{Server, Setup};
use strowger_tests::strict::Framer;
use strowger_tests::text::{Request, status, unique};
use strowger_tests::wire::Transport::{Tcp, Udp, Ws};
use strowger_tests::wire::Wire;

const SOON: Duration = Duration::from_secs(5);
/// Request that would call bob as a local user.
const SMUGGLED: &str = "INVITE sip:bob@example.org SIP/2.0\r\nVia: SIP/2.0/TCP 127.0.0.1;branch=z9hG4bKsmuggled\r\n\
    Max-Forwards: 70\r\nFrom: <sip:alice@example.org>;tag=s\r\nTo: <sip:bob@example.org>\r\nCall-ID: smuggled\r\n\
    CSeq: 1 INVITE\r\nContent-Length: 0\r\n\r\n";

/// MESSAGE with the line ends of an attack: `{length}` is the length of the smuggled request, `{smuggled}` that
/// request.
struct Attack {
    name: &'static str,
    /// Replacement of `Content-Length: {length}`, the empty line and the body.
    end: &'static str,
}

const fn attack(name: &'static str, end: &'static str) -> Attack {
    Attack { name, end }
}

const LENGTHS: &[Attack] = &[
    attack("no Content-Length", "\r\n{smuggled}"),
    attack("a Content-Length of 0 before a body", "Content-Length: 0\r\n\r\n{smuggled}"),
    attack("two that differ, the short one first", "Content-Length: 0\r\nContent-Length: {length}\r\n\r\n{smuggled}"),
    attack("two that differ, the long one first", "Content-Length: {length}\r\nContent-Length: 0\r\n\r\n{smuggled}"),
    attack("two that are equal", "Content-Length: {length}\r\nContent-Length: {length}\r\n\r\n{smuggled}"),
    attack("the compact form beside the long one", "l: 0\r\nContent-Length: {length}\r\n\r\n{smuggled}"),
    attack("the long form beside the compact one", "Content-Length: 0\r\nL: {length}\r\n\r\n{smuggled}"),
    attack("a list of two", "Content-Length: 0, {length}\r\n\r\n{smuggled}"),
    attack("a negative one", "Content-Length: -1\r\n\r\n{smuggled}"),
    attack("one with a plus sign", "Content-Length: +{length}\r\n\r\n{smuggled}"),
    attack("one in hexadecimal digits", "Content-Length: 0x10\r\n\r\n{smuggled}"),
    attack("one with a fraction", "Content-Length: 0.0\r\n\r\n{smuggled}"),
    attack("one with an exponent", "Content-Length: 0e9\r\n\r\n{smuggled}"),
    attack("one in quotes", "Content-Length: \"0\"\r\n\r\n{smuggled}"),
    attack("one with a parameter", "Content-Length: 0;x={length}\r\n\r\n{smuggled}"),
    attack("one with a space within", "Content-Length: 0 {length}\r\n\r\n{smuggled}"),
    attack("one of nothing", "Content-Length:\r\n\r\n{smuggled}"),
    attack("one of many zeros", "Content-Length: 00000000000000000000000000000\r\n\r\n{smuggled}"),
    attack("one that is 0 modulo 2^32", "Content-Length: 4294967296\r\n\r\n{smuggled}"),
    attack("one that is 0 modulo 2^64", "Content-Length: 18446744073709551616\r\n\r\n{smuggled}"),
    attack("one in Arabic digits", "Content-Length: \u{660}\r\n\r\n{smuggled}"),
    attack("one that is folded", "Content-Length:\r\n 0\r\n\r\n{smuggled}"),
    attack("one whose fold adds a digit", "Content-Length: 0\r\n 1\r\n\r\n{smuggled}"),
    attack("one with a space before the colon", "Content-Length : 0\r\n\r\n{smuggled}"),
    attack("one with a tab before the colon", "Content-Length\t: 0\r\n\r\n{smuggled}"),
    attack("one with a NUL before the colon", "Content-Length\0: 0\r\n\r\n{smuggled}"),
    attack("one with a NUL behind the digits", "Content-Length: 0\0\r\n\r\n{smuggled}"),
    attack("one behind the body", "\r\n{smuggled}Content-Length: 0\r\n\r\n"),
    attack("one that is a fold of another line", "X-Odd: a\r\n Content-Length: 0\r\n\r\n{smuggled}"),
    attack("one in a value", "X-Odd: a Content-Length: 0\r\n\r\n{smuggled}"),
    attack("chunks as of HTTP", "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n{smuggled}"),
    attack("chunks beside a length", "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n{smuggled}"),
    attack("a multipart body", "Content-Type: multipart/mixed;boundary=b\r\n\r\n--b\r\n\r\n{smuggled}--b--\r\n"),
    attack("a body of the type message/sip", "Content-Type: message/sip\r\n\r\n{smuggled}"),
];

const LINES: &[Attack] = &[
    attack("a bare CR as the empty line", "X-Odd: a\r\rContent-Length: {length}\r\n\r\n{smuggled}"),
    attack("a bare LF as the empty line", "X-Odd: a\n\nContent-Length: {length}\r\n\r\n{smuggled}"),
    attack("LF CR as the empty line", "X-Odd: a\n\r\n\rContent-Length: {length}\r\n\r\n{smuggled}"),
    attack("CR CR LF", "X-Odd: a\r\r\nContent-Length: {length}\r\n\r\n{smuggled}"),
    attack("an empty line of white space", "X-Odd: a\r\n \r\nContent-Length: {length}\r\n\r\n{smuggled}"),
    attack("a NUL in the empty line", "X-Odd: a\r\n\0\r\n{smuggled}"),
    attack("vertical tabs for line ends", "X-Odd: a\u{b}\u{b}{smuggled}"),
    attack("form feeds for line ends", "X-Odd: a\u{c}\u{c}{smuggled}"),
    attack("the line end of Unicode", "X-Odd: a\u{2028}\u{2028}{smuggled}"),
    attack("the line end of EBCDIC", "X-Odd: a\u{85}\u{85}{smuggled}"),
    attack("an escaped line end in a URI", "Contact: <sip:x%0d%0a%0d%0a@127.0.0.1>\r\n\r\n{smuggled}"),
    attack("a quoted line end", "Contact: \"a\\\r\n\\\r\n\" <sip:x@127.0.0.1>\r\n\r\n{smuggled}"),
    attack("a comment that does not end", "Subject: (\r\n\r\n{smuggled}"),
    attack("a quotation that does not end", "Contact: \"a <sip:x@127.0.0.1>\r\n\r\n{smuggled}"),
    attack("a line without a colon", "nonsense\r\n\r\n{smuggled}"),
    attack("a line without a name", ": nonsense\r\n\r\n{smuggled}"),
    attack("the request as a header line", "{smuggled}"),
    attack("the request as folded lines", "X-Odd: a\r\n {smuggled}"),
];

impl Attack {
    fn bytes(&self, wire: &Wire) -> Vec<u8> {
        let transport = wire.transport().name().to_uppercase();
        let (branch, call) = (unique("z9hG4bK"), unique("call"));
        let end = self.end.replace("{length}", &SMUGGLED.len().to_string()).replace("{smuggled}", SMUGGLED);
        format!(
            "MESSAGE sip:bob@example.org SIP/2.0\r\nVia: SIP/2.0/{transport} {};branch={branch};rport\r\nMax-Forwards: 70\r\n\
             From: <sip:x@example.net>;tag=x\r\nTo: <sip:bob@example.org>\r\nCall-ID: {call}\r\nCSeq: 1 MESSAGE\r\n\
             X-Attack: {}\r\n{end}",
            wire.local(),
            self.name
        )
        .into_bytes()
    }
}

fn start() -> Server {
    let server = Setup::on(&[Udp, Tcp, Ws]).with("domains = [\"example.org\"]").start();
    for user in ["alice", "bob"] {
        server.add_user(&format!("{user}@example.org"), user);
    }
    server
}

/// Reads the phone's new input strictly; each message must be a MESSAGE.
fn read(phone: &mut Wire, framer: &mut Framer, name: &str, faults: &mut Vec<String>) {
    while phone.has_come() {
        framer.push(&phone.chunk(SOON).unwrap_or_default());
        loop {
            match framer.next_message() {
                Ok(None) => break,
                Ok(Some(got)) if got.method() == Some("MESSAGE") && got.first("Call-ID", "i") != "smuggled" => (),
                // Sent by the server itself.
                Ok(Some(got)) if got.method() == Some("OPTIONS") && got.first("Call-ID", "i").starts_with("ping-") => {}
                Ok(Some(got)) => faults.push(format!("{name}: {got:?}")),
                Err(fault) => {
                    faults.push(format!("{name}: {fault}"));
                    *framer = Framer::default();
                    break;
                }
            }
        }
    }
    if !framer.rest().is_empty() {
        faults.push(format!("{name}: left over: {}", framer.rest().escape_ascii()));
        *framer = Framer::default();
    }
}

/// Waits until all earlier requests have been processed.
fn settle(server: &Server, wire: &mut Wire) {
    let uri = format!("sip:{}", server.address(Udp));
    assert_eq!(status(&exchange(wire, &Request::new("OPTIONS", &uri, "udp", wire.local()))), Some(200));
}

#[test]
fn no_length_and_no_line_end_makes_two_messages_of_one() {
    let mut server = start();
    let mut phone = server.connect(Tcp);
    register(&mut phone, "bob", "bob");
    let (mut framer, mut faults) = (Framer::default(), Vec::new());
    let mut fence = server.connect(Udp);
    let attacks = LENGTHS.iter().chain(LINES);
    assert!(attacks.clone().count() > 50);
    for attack in attacks {
        for transport in [Udp, Ws, Tcp] {
            let name = format!("{} by {}", attack.name, transport.name());
            let mut wire = server.connect(transport);
            let bytes = attack.bytes(&wire);
            // On a stream a second request ends one that waits for its body.
            wire.send(&bytes).expect("the server takes messages");
            if transport == Tcp {
                // An incomplete request cannot be judged.
                let _ = wire.send(&attack.bytes(&wire));
                settle_stream(&mut wire);
            }
            settle(&server, &mut fence);
            read(&mut phone, &mut framer, &name, &mut faults);
        }
    }
    assert!(faults.is_empty(), "{} got through:\n{}", faults.len(), faults.join("\n"));
    server.assert_answers(Udp);
}

/// Waits until the server has read the input of this connection: it has answered or closed, or waits for more.
fn settle_stream(wire: &mut Wire) {
    wire.receive(Duration::from_millis(5));
}

/// A WebSocket frame is a message: two messages in one frame, or one message in two frames, are invalid (RFC 7118
/// section 4).
#[test]
fn a_frame_is_one_message() {
    let mut server = start();
    let mut phone = server.connect(Tcp);
    register(&mut phone, "bob", "bob");
    let (mut framer, mut faults) = (Framer::default(), Vec::new());
    let mut fence = server.connect(Udp);
    let plain = attack("a plain one", "Content-Length: 0\r\n\r\n");
    let whole = |wire: &Wire| String::from_utf8(plain.bytes(wire)).expect("text");
    type Frames<'a> = &'a dyn Fn(&Wire) -> Vec<Vec<u8>>;
    let cases: [(&str, Frames<'_>); 6] = [
        ("two messages in a frame", &|wire| vec![format!("{}{SMUGGLED}", whole(wire)).into_bytes()]),
        ("a message behind line ends", &|wire| vec![format!("{}\r\n\r\n{SMUGGLED}", whole(wire)).into_bytes()]),
        ("one and a half", &|wire| {
            vec![format!("{}{}", whole(wire), &SMUGGLED[..50]).into_bytes(), SMUGGLED[50..].into()]
        }),
        ("half a message, then a whole one", &|wire| vec![whole(wire).as_bytes()[..80].to_vec(), SMUGGLED.into()]),
        ("a length beyond the frame", &|wire| {
            let long = whole(wire).replace("Content-Length: 0", &format!("Content-Length: {}", SMUGGLED.len()));
            vec![long.into_bytes(), SMUGGLED.into()]
        }),
        ("no UTF-8", &|wire| vec![[whole(wire).as_bytes(), b"\xff\xfe", SMUGGLED.as_bytes()].concat()]),
    ];
    for (name, frames) in cases {
        let mut wire = server.connect(Ws);
        for frame in frames(&wire) {
            let _ = wire.send(&frame);
        }
        settle_stream(&mut wire);
        settle(&server, &mut fence);
        // Alone in its frame, the smuggled request would be a request of a local user without a password.
        read(&mut phone, &mut framer, name, &mut faults);
    }
    assert!(faults.is_empty(), "{} got through:\n{}", faults.len(), faults.join("\n"));
    server.assert_answers(Udp);
}

/// Answers of a UDP phone, to a caller on a stream that reads strictly.
#[test]
fn no_answer_carries_another() {
    let server = start();
    let mut phone = server.connect(Udp);
    register(&mut phone, "bob", "bob");
    let (mut framer, mut faults) = (Framer::default(), Vec::new());
    let mut caller = server.connect(Tcp);
    let mut answered = 0;
    for attack in LENGTHS.iter().chain(LINES) {
        let request = Request::new("MESSAGE", "sip:bob@example.org", "tcp", caller.local());
        caller.send(&request.bytes()).expect("the server takes messages");
        let got = phone.request("MESSAGE", SOON).expect("it arrives");
        let answer = String::from_utf8(strowger_tests::text::respond(&got, 200, "t", &[])).expect("text");
        let end = attack.end.replace("{length}", &SMUGGLED.len().to_string()).replace("{smuggled}", SMUGGLED);
        phone.send(answer.replace("Content-Length: 0\r\n\r\n", &end).as_bytes()).expect("loopback takes it");
        // The right answer ends the transaction if the other was dropped.
        phone.send(answer.as_bytes()).expect("loopback takes it");
        let mut over = false;
        while !over {
            framer.push(&caller.chunk(SOON).unwrap_or_else(|| panic!("{}: no answer", attack.name)));
            loop {
                match framer.next_message() {
                    Ok(None) => break,
                    Ok(Some(got)) if got.start.starts_with("SIP/2.0 200") => over = true,
                    Ok(Some(got)) if got.start.starts_with("SIP/2.0 100") => (),
                    Ok(Some(got)) => faults.push(format!("{}: {got:?}", attack.name)),
                    Err(fault) => panic!("{}: {fault}", attack.name),
                }
            }
        }
        answered += 1;
    }
    assert!(faults.is_empty() && answered > 50, "{} got through:\n{}", faults.len(), faults.join("\n"));
}
