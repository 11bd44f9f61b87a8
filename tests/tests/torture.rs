//! Torture messages at the running server, over UDP and TCP.
//!
//! The messages of RFC 4475 and RFC 5118 are in the folder that `STROWGER_CORPORA` names; Strowger's own are here, so
//! that a clone without the folder has tests too.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;
use strowger_tests::corpora;
use strowger_tests::program::skipped;
use strowger_tests::server::Setup;
use strowger_tests::site::Site;
use strowger_tests::text::{self, Request};
use strowger_tests::wire::Transport::{self, Tcp, Udp};
use strowger_tests::wire::Wire;

/// Upper bound of the time of a reaction.
const WAIT: Duration = Duration::from_millis(700);
const STEP: Duration = Duration::from_millis(20);

/// All callees in the messages of RFC 4475.
const CALLED: &[&str] = &[
    "sip:user@example.com",
    "sip:user@example.org",
    "sip:t.watson@example.org",
    "sip:UserB@example.com",
    "sip:vivekg@chair-dnrc.example.com",
    "sip:kumiko@example.org",
    "sip:user@company.com",
    "sip:remote-target@example.com",
    "sip:sips%3Auser%40example.com@example.net",
    "sip:user;par=u%40example.net@example.com",
    "sip:1_unusual.URI~(to-be!sure)&isn't+it$/crazy?,/;;*:&it+has=1,weird!*pas$wo~d_too.(doesn't-it)@example.com",
];

const DOMAINS: &str = "domains = [\"example.com\", \"example.org\", \"example.net\", \"company.com\", \
    \"chair-dnrc.example.com\", \"services.example.com\", \
    \"registrar.example.com\", \"host.example.net\", \"[2001:db8::10]\", \"127.0.0.1\"]";

/// A server where all callees are registered at one phone, and that phone.
struct Bench {
    server: Site,
    telephone: Wire,
}

/// The reaction to one message.
#[derive(Debug, Default)]
struct Seen {
    /// Final responses.
    statuses: Vec<u16>,
    /// Requests that the phone received.
    forwarded: Vec<Vec<u8>>,
    closed: bool,
}

impl Bench {
    fn start() -> Self {
        let server = Setup::on(&[Udp, Tcp])
            .with(DOMAINS)
            .with("registrar.authenticate = false\nauth.calls = false\nproxy.relay_for = \"everyone\"")
            // Most Vias of the messages name hosts that do not exist here.
            .with("nat.force_rport = true\nban.enabled = false\nproxy.udp_to_tcp_above = \"never\"")
            // An absent name server: no query leaves the machine.
            .with("dns.servers = [\"127.0.0.254\"]\ndns.timeout = \"50ms\"")
            .in_memory()
            .site();
        let mut telephone = server.connect(Udp);
        let here = telephone.local();
        for (index, uri) in CALLED.iter().enumerate() {
            let domain = uri.rsplit('@').next().expect("each has a host");
            let contact = format!("sip:{index}@{here}");
            let mut register = Request::register("", domain, &contact, "udp", here);
            register.to = format!("<{uri}>");
            register.from = format!("<{uri}>;tag=torture");
            telephone.send(&register.bytes()).expect("the server takes messages");
            let answer = telephone.receive(WAIT).unwrap_or_else(|| panic!("{uri} is not registered"));
            assert_eq!(text::status(&answer), Some(200), "{uri}: {}", String::from_utf8_lossy(&answer));
        }
        Self { server, telephone }
    }

    /// `mpart01` has a Route to a port of this machine: the phone's address replaces it.
    fn with_next_hop_here(&self, message: Vec<u8>) -> Vec<u8> {
        let (from, to) = (b"127.0.0.1:5080", self.telephone.local().to_string());
        match message.windows(from.len()).position(|window| window == from) {
            Some(at) => [&message[..at], to.as_bytes(), &message[at + from.len()..]].concat(),
            None => message,
        }
    }

    /// Sends a message and collects the reaction.
    fn play(&mut self, transport: Transport, message: &[u8]) -> Seen {
        self.telephone.drain();
        let mut wire = self.server.connect(transport);
        let mut seen = Seen::default();
        if wire.send(message).is_err() {
            seen.closed = true;
            return seen;
        }
        for _ in 0..WAIT.as_millis() / STEP.as_millis() {
            let answer = wire.receive(STEP);
            seen.statuses.extend(answer.as_deref().and_then(text::status).filter(|status| *status >= 200));
            while let Some(request) = self.telephone.receive(Duration::ZERO) {
                // The phone answers, so that the server does not retransmit.
                let answer = text::respond(&request, 200, "torture", &[]);
                self.telephone.send(&answer).expect("the server takes messages");
                seen.forwarded.push(request);
            }
            if !seen.statuses.is_empty() && seen.forwarded.is_empty() {
                // One request, one answer; only a message with two requests needs more time.
                if transport == Udp || !contains(message, b"\r\n\r\nINVITE ") {
                    break;
                }
            }
        }
        seen.closed = transport != Udp && wire.closes(Duration::from_millis(50));
        seen
    }
}

impl Seen {
    /// Returns the reaction in the terms of `expected.json`.
    fn words(&self) -> BTreeSet<String> {
        let mut words = BTreeSet::new();
        if self.forwarded.is_empty() {
            words.extend(self.statuses.iter().map(u16::to_string));
        } else {
            let fixed = self.forwarded.iter().all(|request| is_clean(request));
            words.extend(["forward".to_owned()].into_iter().chain(fixed.then(|| "forward-fixed".to_owned())));
        }
        if words.is_empty() {
            // There is no reaction: the message was dropped, was taken for a response, or is incomplete on a stream.
            words.extend(["drop", "accept-response"].map(String::from));
            if self.closed {
                words.insert("close".into());
            }
        }
        words
    }
}

/// Tells whether a forwarded request is free of the fault: its request line follows the grammar, and display names that
/// are not tokens are quoted.
fn is_clean(request: &[u8]) -> bool {
    let line = request.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let three = words.len() == 3 && words.iter().all(|word| !word.is_empty());
    let uri = words.get(1).copied().unwrap_or_default();
    let unquoted = |name: &str| {
        let value = text::field(request, name).unwrap_or_default();
        let display = value.split('<').next().unwrap_or_default().trim();
        value.contains('<') && !display.is_empty() && !display.starts_with('"') && display.contains([',', ':', '@'])
    };
    three && !uri.iter().any(|byte| b"<>?".contains(byte)) && !["From", "To", "Contact"].into_iter().any(unquoted)
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

fn list(value: &Value) -> Vec<&str> {
    value.as_array().map(|words| words.iter().filter_map(Value::as_str).collect()).unwrap_or_default()
}

#[test]
fn rfc_4475() {
    let Some(folder) = corpora::folder("rfc4475") else { return };
    let expected = std::fs::read_to_string(folder.join("expected.json")).expect("the set has its verdicts");
    let expected: Value = serde_json::from_str(&expected).expect("the verdicts are JSON");
    let cases = expected.as_array().expect("a list");
    assert_eq!(cases.len(), 49);
    let (mut wrong, mut disputed) = (Vec::new(), Vec::new());
    for transport in [Udp, Tcp] {
        // A separate server for each transport: one that knows the transaction would absorb the second copy.
        let mut bench = Bench::start();
        for case in cases {
            let id = case["id"].as_str().expect("each has a name");
            let message = std::fs::read(folder.join(format!("{id}.dat"))).expect("each has a file");
            let message = bench.with_next_hop_here(message);
            let acceptable = list(&case["acceptable"]);
            let seen = bench.play(transport, &message);
            let words = seen.words();
            let mut good = acceptable.iter().any(|word| words.contains(*word));
            match (id, transport) {
                // A body shorter than Content-Length, a header without its empty line: the server waits for more.
                ("clerr" | "baddn", Tcp) => good |= seen.statuses.is_empty() && seen.forwarded.is_empty(),
                // Two requests in a stream are both served (RFC 3261 section 18.3); in a datagram the second is
                // padding.
                ("dblreq", Tcp) => {
                    good = seen.statuses.contains(&200) && seen.statuses.len() + seen.forwarded.len() >= 2
                }
                ("dblreq", _) => good &= seen.forwarded.is_empty() && seen.statuses == [200],
                _ => {}
            }
            if !good {
                let line = format!("{id} by {}: {words:?}, acceptable {acceptable:?}", transport.name());
                match case["provenance"].as_str() {
                    Some("M") => disputed.push(line),
                    _ => wrong.push(line),
                }
            }
            bench.server.assert_answers(Udp);
        }
        bench.server.assert_answers(Tcp);
    }
    if !disputed.is_empty() {
        skipped(&format!("disputed verdicts that differ (reported, not gated):\n{}", disputed.join("\n")));
    }
    assert!(wrong.is_empty(), "{} verdicts of 98 are wrong:\n{}\n", wrong.len(), wrong.join("\n"));
}

#[test]
fn rfc_5118() {
    let Some(folder) = corpora::folder("rfc5118") else { return };
    let expected = std::fs::read_to_string(folder.join("expected.json")).expect("the set has its verdicts");
    let expected: Value = serde_json::from_str(&expected).expect("the verdicts are JSON");
    let cases = expected.as_array().expect("a list");
    assert_eq!(cases.len(), 12);
    let mut wrong = Vec::new();
    for transport in [Udp, Tcp] {
        let mut bench = Bench::start();
        for (number, case) in cases.iter().enumerate() {
            let id = case["id"].as_str().expect("each has a name");
            let mut message = std::fs::read(folder.join(id)).expect("each has a file");
            // All messages have the same branch: the second REGISTER would count as a retransmission of the first.
            let branch = b"z9hG4bKas3-1";
            if let Some(at) = message.windows(branch.len()).position(|window| window == branch) {
                message[at + branch.len()] = b'a' + number as u8;
            }
            let seen = bench.play(transport, &message);
            // The networks of the request do not exist here; any reaction but a 400 shows that it was parsed.
            let silent = seen.statuses.is_empty() && seen.forwarded.is_empty();
            let understood = !silent && !seen.statuses.contains(&400);
            let valid = case["valid"].as_bool().expect("valid or not");
            if understood == valid {
                continue;
            }
            let line = format!("{id} by {}: {seen:?}, valid {valid}", transport.name());
            if id == "ipv6-bug-abnf-3-colons" {
                skipped(&format!("three colons (reported, not gated): {line}"));
            } else {
                wrong.push(line);
            }
        }
        bench.server.assert_answers(Tcp);
    }
    assert!(wrong.is_empty(), "{} verdicts of 24 are wrong:\n{}\n", wrong.len(), wrong.join("\n"));
}

/// A message of Strowger's own: its name, the text (`\n` means CRLF; `@` is the address for answers), and the
/// acceptable reactions.
struct Case {
    name: &'static str,
    text: &'static str,
    udp: &'static [&'static str],
    tcp: &'static [&'static str],
}

const GOOD: &[&str] = &["forward"];
const BAD: &[&str] = &["400"];

const CASES: &[Case] = &[
    Case {
        name: "compact forms in any case, values folded over lines",
        text: "OPTIONS sip:user@example.com SIP/2.0\nv: SIP/2.0/UDP @;branch=z9hG4bKown1\nmAX-forWARDS:\n  70\nF: <sip:a@example.net>\n ;tag=1\nt: <sip:user@example.com>\nI: own-1\nCSEQ: 1\n\tOPTIONS\nl: 0\n\n",
        udp: GOOD,
        tcp: GOOD,
    },
    Case {
        name: "a method nobody knows",
        text: "FROBNICATE sip:user@example.com SIP/2.0\nVia: SIP/2.0/UDP @;branch=z9hG4bKown2\nMax-Forwards: 70\nFrom: <sip:a@example.net>;tag=1\nTo: <sip:user@example.com>\nCall-ID: own-2\nCSeq: 1 FROBNICATE\nContent-Length: 0\n\n",
        udp: GOOD,
        tcp: GOOD,
    },
    Case {
        name: "no Call-ID",
        text: "OPTIONS sip:user@example.com SIP/2.0\nVia: SIP/2.0/UDP @;branch=z9hG4bKown3\nMax-Forwards: 70\nFrom: <sip:a@example.net>;tag=1\nTo: <sip:user@example.com>\nCSeq: 1 OPTIONS\nContent-Length: 0\n\n",
        // RFC 4475 section 3.3.1: no field can be copied into a response, so silence is right too.
        udp: &["400", "drop"],
        tcp: &["400", "drop"],
    },
    Case {
        name: "CSeq of another method",
        text: "OPTIONS sip:user@example.com SIP/2.0\nVia: SIP/2.0/UDP @;branch=z9hG4bKown4\nMax-Forwards: 70\nFrom: <sip:a@example.net>;tag=1\nTo: <sip:user@example.com>\nCall-ID: own-4\nCSeq: 1 INVITE\nContent-Length: 0\n\n",
        udp: BAD,
        tcp: BAD,
    },
    Case {
        name: "two From header fields",
        text: "OPTIONS sip:user@example.com SIP/2.0\nVia: SIP/2.0/UDP @;branch=z9hG4bKown5\nMax-Forwards: 70\nFrom: <sip:a@example.net>;tag=1\nFrom: <sip:b@example.net>;tag=2\nTo: <sip:user@example.com>\nCall-ID: own-5\nCSeq: 1 OPTIONS\nContent-Length: 0\n\n",
        udp: BAD,
        tcp: BAD,
    },
    Case {
        name: "no hops left",
        text: "MESSAGE sip:user@example.com SIP/2.0\nVia: SIP/2.0/UDP @;branch=z9hG4bKown6\nMax-Forwards: 0\nFrom: <sip:a@example.net>;tag=1\nTo: <sip:user@example.com>\nCall-ID: own-6\nCSeq: 1 MESSAGE\nContent-Length: 0\n\n",
        udp: &["483"],
        tcp: &["483"],
    },
    Case {
        name: "a version of tomorrow",
        text: "OPTIONS sip:user@example.com SIP/3.0\nVia: SIP/2.0/UDP @;branch=z9hG4bKown7\nMax-Forwards: 70\nFrom: <sip:a@example.net>;tag=1\nTo: <sip:user@example.com>\nCall-ID: own-7\nCSeq: 1 OPTIONS\nContent-Length: 0\n\n",
        udp: &["505"],
        tcp: &["505"],
    },
    Case {
        name: "a demand on proxies that nobody can meet",
        text: "OPTIONS sip:user@example.com SIP/2.0\nVia: SIP/2.0/UDP @;branch=z9hG4bKown8\nMax-Forwards: 70\nProxy-Require: flight, sight\nFrom: <sip:a@example.net>;tag=1\nTo: <sip:user@example.com>\nCall-ID: own-8\nCSeq: 1 OPTIONS\nContent-Length: 0\n\n",
        udp: &["420"],
        tcp: &["420"],
    },
    Case {
        name: "a scheme that cannot be routed",
        text: "OPTIONS pigeon:user@example.com SIP/2.0\nVia: SIP/2.0/UDP @;branch=z9hG4bKown9\nMax-Forwards: 70\nFrom: <sip:a@example.net>;tag=1\nTo: <sip:user@example.com>\nCall-ID: own-9\nCSeq: 1 OPTIONS\nContent-Length: 0\n\n",
        udp: &["416"],
        tcp: &["416"],
    },
    Case {
        name: "nobody of that name is registered",
        text: "MESSAGE sip:nobody@example.com SIP/2.0\nVia: SIP/2.0/UDP @;branch=z9hG4bKown10\nMax-Forwards: 70\nFrom: <sip:a@example.net>;tag=1\nTo: <sip:nobody@example.com>\nCall-ID: own-10\nCSeq: 1 MESSAGE\nContent-Length: 0\n\n",
        udp: &["404", "480"],
        tcp: &["404", "480"],
    },
    Case {
        name: "a response to nothing",
        text: "SIP/2.0 200 OK\nVia: SIP/2.0/UDP @;branch=z9hG4bKown11\nFrom: <sip:a@example.net>;tag=1\nTo: <sip:user@example.com>;tag=2\nCall-ID: own-11\nCSeq: 1 OPTIONS\nContent-Length: 0\n\n",
        udp: &["drop"],
        tcp: &["drop"],
    },
    Case {
        name: "a number of more digits than a number has",
        text: "OPTIONS sip:user@example.com SIP/2.0\nVia: SIP/2.0/UDP @;branch=z9hG4bKown12\nMax-Forwards: 70\nFrom: <sip:a@example.net>;tag=1\nTo: <sip:user@example.com>\nCall-ID: own-12\nCSeq: 99999999999999999999 OPTIONS\nContent-Length: 0\n\n",
        udp: BAD,
        tcp: BAD,
    },
];

#[test]
fn our_own() {
    let mut bench = Bench::start();
    let mut wrong = Vec::new();
    for case in CASES {
        for (transport, acceptable) in [(Udp, case.udp), (Tcp, case.tcp)] {
            let message = case
                .text
                .replace('\n', "\r\n")
                .replace("UDP @", &format!("{} 127.0.0.1", transport.name().to_uppercase()));
            let message = message.replace("own", &format!("own-{}-", transport.name()));
            let seen = bench.play(transport, message.as_bytes());
            let words = seen.words();
            if !acceptable.iter().any(|word| words.contains(*word)) {
                wrong.push(format!("{} by {}: {words:?}, acceptable {acceptable:?}", case.name, transport.name()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}\n", wrong.join("\n"));
}

#[test]
fn unknown_header_fields_pass_byte_for_byte() {
    let mut bench = Bench::start();
    let odd = "X-Odd:   \u{fc}\t \"unbalanced ;;==<<  \r\n\t folded    too\r\nX-ODD : second\r\nx-Empty:\r\n";
    let message = format!(
        "OPTIONS sip:user@example.com SIP/2.0\r\nVia: SIP/2.0/UDP 127.0.0.1;branch=z9hG4bKodd\r\nMax-Forwards: 70\r\n{odd}\
         From: <sip:a@example.net>;tag=1\r\nTo: <sip:user@example.com>\r\nCall-ID: odd\r\nCSeq: 1 OPTIONS\r\nContent-Length: 3\r\n\r\n\0\r\n"
    );
    let seen = bench.play(Udp, message.as_bytes());
    let forwarded = seen.forwarded.first().unwrap_or_else(|| panic!("not forwarded: {seen:?}"));
    // The form that every reader accepts: no fold, and no space before a colon.
    let plain = odd.replace("  \r\n\t folded", " folded").replace("ODD :", "ODD:");
    assert!(contains(forwarded, plain.as_bytes()), "{}", String::from_utf8_lossy(forwarded));
    assert!(forwarded.ends_with(b"\r\n\r\n\0\r\n"), "{}", String::from_utf8_lossy(forwarded));
}

#[test]
fn many_requests_in_one_piece_and_one_in_many_pieces() {
    let server = Setup::on(&[Udp, Tcp]).with(DOMAINS).in_memory().start();
    let mut wire: Wire = server.connect(Tcp);
    let request = |n: u32| {
        let mut request = Request::new("OPTIONS", &format!("sip:{}", server.address(Tcp)), "tcp", wire.local());
        request.cseq = n;
        request.bytes()
    };
    let together: Vec<u8> = (1..=50).flat_map(request).collect();
    let apart = request(51);
    wire.send(&together).expect("the connection is open");
    for byte in &apart {
        wire.send(&[*byte]).expect("the connection is open");
    }
    let mut answered = BTreeSet::new();
    while let Some(answer) = wire.final_response(Duration::from_secs(2)) {
        assert_eq!(text::status(&answer), Some(200));
        let cseq = text::field(&answer, "CSeq").expect("a response has one");
        answered.insert(cseq.split(' ').next().and_then(|n| n.parse::<u32>().ok()).expect("a number"));
        if answered.len() == 51 {
            break;
        }
    }
    assert_eq!(answered.len(), 51, "{answered:?}");
}
