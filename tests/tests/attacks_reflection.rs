//! Traffic that an attacker with a forged source can direct at a victim. A UDP request whose source is unproven gets
//! only one answer, of at most three times its size. The server forwards no ACK for its own answers.

use std::time::Duration;

use strowger_tests::account::{authorized, challenged, register};
use strowger_tests::call::exchange;
use strowger_tests::dialog::{invite, set_up};
use strowger_tests::server::Setup;
use strowger_tests::site::Site;
use strowger_tests::text::{Request, field, respond, status, unique};
use strowger_tests::wire::{Transport, Wire};

const SOON: Duration = Duration::from_secs(5);

/// The first two retransmissions by timer G would come within this time (500 ms and 1 s).
const REPEATED: Duration = Duration::from_millis(1_700);

fn start() -> Site {
    let server = Setup::on(&[Transport::Udp]).with("domains = [\"example.org\"]").site();
    for user in ["alice", "bob"] {
        server.add_user(&format!("{user}@example.org"), user);
    }
    server
}

/// Returns the shortest possible request.
fn shortest(method: &str, uri: &str, from: &str, lines: &str) -> Vec<u8> {
    let (branch, call) = (unique("z9hG4bK"), unique("c"));
    format!(
        "{method} {uri} SIP/2.0\r\nv:SIP/2.0/UDP a;branch={branch};rport\r\nf:<{from}>;tag=1\r\nt:<{uri}>\r\ni:{call}\r\n\
         CSeq:1 {method}\r\n{lines}\r\n"
    )
    .into_bytes()
}

#[test]
fn what_proved_nothing_gets_one_answer() {
    let server = start();
    let (local, remote) = ("sip:alice@example.org", "sip:x@example.net");
    let bob = "sip:bob@example.org";
    // Requests of an external user to Bob, with these header fields.
    let of_bob = [
        ("a user who is not there", ""),
        ("no hops left", "Max-Forwards: 0\r\n"),
        ("an unknown extension", "Proxy-Require: x\r\n"),
        ("no breadth left", "Max-Breadth: 0\r\n"),
        ("a Route that cannot be read", "Route: <\r\n"),
        ("two CSeqs", "CSeq: 2 OTHER\r\n"),
        ("a length that is no number", "Content-Length: x\r\n"),
    ];
    let of_others = [
        ("a challenge", bob, local),
        ("an unknown user", "sip:nobody@example.org", remote),
        ("relaying", "sip:+1900@192.0.2.9", remote),
        ("the server itself", "sip:example.org", remote),
        ("an unknown scheme", "http://example.org/", remote),
    ];
    let requests = of_bob.map(|(name, lines)| (name, bob, remote, lines));
    let requests = [&requests[..], &of_others.map(|(name, uri, from)| (name, uri, from, ""))].concat();
    let mut cases: Vec<(String, Vec<u8>, Wire)> = Vec::new();
    let mut add = |name: String, bytes: Vec<u8>| cases.push((name, bytes, server.connect(Transport::Udp)));
    for method in ["INVITE", "MESSAGE", "BYE", "SUBSCRIBE", "OPTIONS", "REGISTER", "CANCEL", "NONSENSE"] {
        for (name, uri, from, lines) in &requests {
            add(format!("{method}, {name}"), shortest(method, uri, from, lines));
        }
        // The request is sent as if within a dialog: the answer has the tag of another user agent.
        let inside = String::from_utf8(shortest(method, "sip:bob@192.0.2.9", remote, "")).expect("text");
        let inside = inside.replace("\r\ni:", ";tag=2\r\ni:").into_bytes();
        add(format!("{method}, as if within a call"), inside);
    }
    // The last one has a thousand letters that the answer copies.
    let long = shortest("INVITE", &format!("sip:{}@example.org", "x".repeat(1_000)), remote, "");
    add("a long user".into(), long);
    for (_, bytes, wire) in &mut cases {
        wire.send(bytes).expect("loopback takes it");
    }
    // Retransmissions by timer G would come only later.
    server.wait(REPEATED);
    for (name, bytes, wire) in &mut cases {
        let text = String::from_utf8_lossy(bytes);
        let mut answers = Vec::new();
        while let Some(answer) = wire.receive(Duration::from_millis(1)) {
            answers.push(answer);
        }
        let sent: usize = answers.iter().map(Vec::len).sum();
        assert!(answers.len() <= 1, "{} answers to {name}: {text}", answers.len());
        assert!(sent <= 3 * bytes.len(), "{name}: {sent} bytes for {}: {text}", bytes.len());
        // The sender may ask again, and is answered again.
        wire.send(bytes).expect("loopback takes it");
        let again = wire.receive(Duration::from_millis(300));
        assert_eq!(again.map(|a| a.len()).unwrap_or_default(), sent, "{text}");
    }
}

/// Other ways to make a server send much, or often, to an address that its sender only claims.
#[test]
fn nothing_short_is_answered_at_length() {
    let server = start();
    let mut bob = server.connect(Transport::Udp);
    register(&mut bob, "bob", "bob");
    let mut fence = server.connect(Transport::Udp);
    let plain = |method: &str, uri: &str, lines: &str| shortest(method, uri, "sip:x@example.net", lines);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    let server_uri = format!("sip:{}", server.address(Transport::Udp));
    let again = |n: usize, uri: &str, lines: &str| plain("OPTIONS", uri, &lines.repeat(n));
    let options = text(plain("OPTIONS", "sip:example.org", ""));
    let mut faults = Vec::new();
    let attacks: [(&str, Vec<u8>); 26] = [
        ("many Vias", again(60, "sip:example.org", "v:SIP/2.0/UDP a\r\n")),
        ("many Vias in a line", plain("OPTIONS", "sip:example.org", &format!("v:{}\r\n", "SIP/2.0/UDP a,".repeat(60)))),
        ("many Record-Routes", again(60, "sip:example.org", "Record-Route:<sip:a>\r\n")),
        ("many extensions", plain("OPTIONS", "sip:example.org", &format!("Require:{}a\r\n", "a,".repeat(400)))),
        (
            "many extensions of proxies",
            plain("INVITE", "sip:bob@example.org", &format!("Proxy-Require:{}a\r\n", "a,".repeat(400))),
        ),
        ("many lines of them", again(100, "sip:example.org", "Require:a\r\n")),
        ("a time stamp", plain("OPTIONS", "sip:example.org", &format!("Timestamp:{}\r\n", "1".repeat(400)))),
        ("what a capability asks for", plain("OPTIONS", &server_uri, "Accept:x/y\r\nAccept-Language:xx\r\n")),
        ("a version that nobody has", options.replace(" SIP/2.0\r\n", " SIP/9.0\r\n").into_bytes()),
        ("a name that is not ours as version", options.replacen(" SIP/2.0\r\n", " HTTP/1.1\r\n", 1).into_bytes()),
        ("a registration that is too brief", plain("REGISTER", "sip:example.org", "m:<sip:a>;expires=1\r\n")),
        ("a registration of many", plain("REGISTER", "sip:example.org", &"m:<sip:a>\r\n".repeat(60))),
        ("a registrar that is not ours", plain("REGISTER", "sip:example.net", "")),
        ("credentials of nothing", plain("REGISTER", "sip:example.org", "Authorization:Digest\r\n")),
        (
            "credentials of many realms",
            plain("REGISTER", "sip:example.org", &"Authorization:Digest realm=\"a\"\r\n".repeat(30)),
        ),
        ("a call by way of us to us", plain("INVITE", &server_uri, &format!("Route:<{server_uri};lr>\r\n").repeat(9))),
        ("an event that nobody knows", plain("SUBSCRIBE", "sip:example.org", "o:x\r\n")),
        ("a method that nobody knows", plain("X", "sip:example.org", "")),
        ("an ACK", plain("ACK", "sip:bob@example.org", "")),
        ("a CANCEL", plain("CANCEL", "sip:bob@example.org", "")),
        ("a response", b"SIP/2.0 200 OK\r\nv:SIP/2.0/UDP a;branch=z9hG4bK1\r\n\r\n".to_vec()),
        ("a keep-alive", b"\r\n\r\n".to_vec()),
        ("a question of STUN", [&[0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42][..], &[7; 12]].concat()),
        ("half a message", options.as_bytes()[..60].to_vec()),
        ("no message", b"hello\r\n\r\n".to_vec()),
        ("one octet", vec![b'X']),
    ];
    for (name, bytes) in &attacks {
        // The request comes from an address without history, three times, because the server might fail to recognize
        // its own answers.
        let mut wire = server.connect(Transport::Udp);
        for _ in 0..3 {
            wire.send(bytes).expect("loopback takes it");
        }
        let uri = format!("sip:{}", server.address(Transport::Udp));
        let options = Request::new("OPTIONS", &uri, "udp", fence.local());
        exchange(&mut fence, &options);
        let mut answers = Vec::new();
        while wire.has_come() {
            let Some(answer) = wire.receive(Duration::from_millis(1)) else { break };
            answers.push(answer.len());
        }
        let sent: usize = answers.iter().sum();
        if answers.len() > 3 || sent > 3 * 3 * bytes.len() {
            faults.push(format!("{name}: {} bytes thrice, {answers:?} back", bytes.len()));
        }
    }
    assert!(faults.is_empty(), "{} got through:\n{}", faults.len(), faults.join("\n"));
    if let Some(heard) = bob.receive(Duration::from_millis(1)) {
        panic!("bob heard {}", String::from_utf8_lossy(&heard));
    }
}

/// An INVITE of usual length gets every answer that the server may send.
#[test]
fn common_requests_are_answered() {
    let server = start();
    let mut wire = server.connect(Transport::Udp);
    for (uri, from, expected) in [
        ("sip:bob@example.org", "<sip:alice@example.org>;tag=1", 407),
        ("sip:nobody@example.org", "<sip:x@example.net>;tag=1", 404),
        ("sip:bob@example.org", "<sip:x@example.net>;tag=1", 480),
        ("sip:+1900@192.0.2.9", "<sip:x@example.net>;tag=1", 407),
    ] {
        let mut request = invite(uri, &wire);
        request.from = from.into();
        let answer = exchange(&mut wire, &request);
        assert_eq!(status(&answer), Some(expected), "{}", String::from_utf8_lossy(&answer));
        assert!(answer.windows(8).any(|w| w == b"\r\nServer") || expected != 407);
        wire.send(&request.ack(&answer).bytes()).expect("loopback takes it");
    }
}

/// A request with a proven source is answered as RFC 3261 section 17.2.1 demands: the answer is repeated until the ACK
/// comes.
#[test]
fn what_proved_itself_is_answered_until_it_hears() {
    let server = start();
    let mut alice = server.connect(Transport::Udp);
    let mut call = invite("sip:nobody@example.org", &alice);
    call.from = "<sip:alice@example.org>;tag=1".into();
    let call = challenged(&mut alice, &call, "alice", "alice");
    alice.send(&call.bytes()).expect("loopback takes it");
    for _ in 0..2 {
        let answer = alice.final_response(SOON).expect("an answer, and again by timer G");
        assert_eq!(status(&answer), Some(404));
    }
}

/// The server cannot know whether the caller really is at its source address, but the calls of this caller must work.
#[test]
fn what_a_callee_answers_is_repeated_no_more_than_the_request_has_earned() {
    let server = start();
    let mut bob = server.connect(Transport::Udp);
    register(&mut bob, "bob", "bob");
    let long = [format!("X: {}", "x".repeat(58_000))];
    let lines = format!("m:<sip:x@a>\r\nSubject: {}\r\n", "of a common length ".repeat(40));
    let plain = |lines: &str| shortest("INVITE", "sip:bob@example.org", "sip:x@example.net", lines);
    // The request, additional header lines in bob's answer, the copies of the answer, and the copies after a
    // retransmission.
    let cases = [
        ("a short one", plain(""), &[][..], 1..=2, 1),
        ("an accomplice", plain(""), &long[..], 1..=1, 0),
        ("a common one", plain(&lines), &[][..], 3..=3, 1),
    ];
    let mut calls = Vec::new();
    for (name, bytes, more, copies, again) in cases {
        let mut caller = server.connect(Transport::Udp);
        caller.send(&bytes).expect("loopback takes it");
        let request = bob.request("INVITE", SOON).expect("it rings");
        bob.send(&respond(&request, 486, "t", more)).expect("loopback");
        calls.push((name, bytes, caller, copies, again));
    }
    // Retransmissions by timer G would come only later.
    server.wait(REPEATED);
    for (name, bytes, mut caller, copies, again) in calls {
        let mut finals = Vec::new();
        let mut sent = 0;
        while let Some(answer) = caller.receive(Duration::from_millis(1)) {
            sent += answer.len();
            if status(&answer) == Some(486) {
                finals.push(answer);
            }
        }
        assert!(copies.contains(&finals.len()), "{} copies of the answer to {name}", finals.len());
        assert!(sent <= 3 * bytes.len() || again == 0, "{sent} bytes for {} of {name}", bytes.len());
        caller.send(&bytes).expect("loopback takes it");
        let more = std::iter::from_fn(|| caller.receive(Duration::from_millis(200))).take(again + 1).count();
        assert_eq!(more, again, "{name}, when it comes again");
    }
}

/// An ACK for a refusal of the server ends there, with any branch; the called user does not get it.
#[test]
fn an_ack_for_an_answer_of_ours_goes_no_further() {
    let server = start();
    let (mut alice, mut bob) = (server.connect(Transport::Udp), server.connect(Transport::Udp));
    register(&mut bob, "bob", "bob");
    let mut refused = Vec::new();
    for from in ["sip:alice@example.org", "sip:x@example.net"] {
        let mut call = invite("sip:bob@example.org", &alice);
        call.from = format!("<{from}>;tag={}", unique("f"));
        if from.contains("example.net") {
            call = call.with("Proxy-Require: x");
        }
        let answer = exchange(&mut alice, &call);
        refused.push((call, answer));
    }
    // Old answers count, too: the server has no memory of them.
    for (call, answer) in &refused {
        for branch in [call.branch.clone(), unique("z9hG4bK"), "old".into()] {
            let mut ack = call.ack(answer);
            ack.branch = branch;
            alice.send(&ack.bytes()).expect("loopback takes it");
        }
    }
    // An ACK to an existing transaction, with another branch.
    let mut call = invite("sip:bob@example.org", &alice);
    call.from = "<sip:alice@example.org>;tag=again".into();
    let call = challenged(&mut alice, &call, "alice", "wrong");
    let answer = exchange(&mut alice, &call);
    assert_eq!(status(&answer), Some(407));
    let mut ack = call.ack(&answer);
    ack.branch = unique("z9hG4bK");
    alice.send(&ack.bytes()).expect("loopback takes it");
    let options = Request::new("OPTIONS", &format!("sip:{}", server.address(Transport::Udp)), "udp", alice.local());
    exchange(&mut alice, &options);
    assert!(bob.receive(Duration::from_millis(50)).is_none(), "bob heard of a call that was refused");
    // The ACK of an accepted call reaches him.
    let mut stranger = server.connect(Transport::Udp);
    let call = invite("sip:bob@example.org", &stranger);
    set_up(&mut stranger, &mut bob, &call, true);
}

/// Messages before the challenge do not disclose whether a user exists or was recently present.
#[test]
fn nothing_comes_before_a_challenge() {
    let server = start();
    let mut wire = server.connect(Transport::Udp);
    for (user, password) in [("alice", "wrong"), ("nobody", "wrong"), ("alice", "wrong")] {
        let mut call = invite("sip:bob@example.org", &wire);
        call.from = format!("<sip:{user}@example.org>;tag=1");
        let challenge = exchange(&mut wire, &call);
        wire.send(&call.ack(&challenge).bytes()).expect("loopback takes it");
        let call = authorized(&call, &challenge, user, password);
        wire.send(&call.bytes()).expect("loopback takes it");
        let first = wire.receive(SOON).expect("an answer");
        assert_eq!(status(&first), Some(407), "{user}: {}", String::from_utf8_lossy(&first));
        wire.send(&call.ack(&first).bytes()).expect("loopback takes it");
    }
    let mut call = invite("sip:nobody@example.org", &wire);
    call.from = "<sip:x@example.net>;tag=1".into();
    wire.send(&call.bytes()).expect("loopback takes it");
    let first = wire.receive(SOON).expect("an answer");
    assert_eq!(status(&first), Some(404));
    assert_eq!(field(&first, "Call-ID"), Some(call.call_id));
}
