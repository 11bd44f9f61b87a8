//! Attempts to forge or flood the log: additional lines, additional fields, terminal escape sequences, and more text
//! than fits.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use strowger_tests::server::{Server, Setup};
use strowger_tests::text::unique;
use strowger_tests::wire::Transport::{self, Tcp, Udp, Ws};
use strowger_tests::wire::Wire;

/// Most bytes of a line.
const LONGEST: usize = 2_048;
/// `log.refusals_per_minute`, and the part of one source for each kind of line.
const A_MINUTE: usize = 100;
const OF_A_SOURCE: usize = A_MINUTE / 10;

/// Texts that an attacker wants in the log.
const POISONS: [(&str, &[u8]); 30] = [
    ("a line feed in a fold", b"a\r\n 2026-01-01T00:00:00.000000Z ERROR FORGED source=6.6.6.6"),
    ("a bare line feed in a fold", b"a\n\tFORGED source=6.6.6.6"),
    ("an escaped line feed", b"a%0aFORGED%0d%0aFORGED"),
    ("a line feed as backslash and n", b"a\\nFORGED"),
    ("the next line of Unicode", "a\u{85}FORGED".as_bytes()),
    ("the line separator of Unicode", "a\u{2028}FORGED\u{2029}FORGED".as_bytes()),
    ("a vertical tab and a form feed", b"a\x0bFORGED\x0cFORGED"),
    ("colours of a terminal", b"a\x1b[31mFORGED\x1b[0m"),
    ("a cleared screen", b"a\x1b[2J\x1b[1;1HFORGED"),
    ("the title of a window", b"a\x1b]0;FORGED\x07"),
    ("the control sequence of one byte", "a\u{9b}2JFORGED".as_bytes()),
    ("the same, not in UTF-8", b"a\x9b2JFORGED"),
    ("backspaces", b"a\x08\x08\x08\x08\x08\x08FORGED"),
    ("a deletion", b"a\x7f\x7f\x7fFORGED"),
    ("a NUL", b"a\0FORGED"),
    ("a bell", b"a\x07FORGED"),
    ("text from right to left", "a\u{202e}DEGROF\u{202c}".as_bytes()),
    ("letters that are not seen", "a\u{200b}\u{feff}FORGED".as_bytes()),
    ("what is no UTF-8", b"a\xff\xfe\xc3\x28FORGED"),
    ("the end of a string of JSON", b"a\",\"level\":\"ERROR\",\"message\":\"FORGED"),
    ("the end of an object of JSON", b"a\"}\r\n {\"level\":\"ERROR\",\"message\":\"FORGED\"}"),
    ("an escaped end of a string", b"a\\\",\\\"level\\\":\\\"ERROR\\\",\\\"message\\\":\\\"FORGED"),
    ("a backslash at the end", b"FORGED\\"),
    ("a field of its own", b"a source=6.6.6.6:5060 status=200 user=FORGED"),
    ("a field with a tab", b"a\tsource=6.6.6.6:5060\tuser=FORGED"),
    ("an equals sign", b"a=source=6.6.6.6"),
    ("words of a format", b"%s%n%n%n{}{0}{{FORGED"),
    ("a look-up of a logger", b"${jndi:ldap://6.6.6.6/FORGED}"),
    ("markup", b"<script>FORGED</script>"),
    ("a shell's command", b"$(FORGED)`FORGED`;FORGED"),
];

/// Places whose text may be logged: `@` is the poison.
const PLACES: [(&str, &str, &str); 16] = [
    ("the user in From", "REGISTER", "From: <sip:@@example.org>;tag=1\r\n"),
    ("the name in From", "REGISTER", "From: \"@\" <sip:bob@example.org>;tag=1\r\n"),
    ("the host in From", "REGISTER", "From: <sip:bob@@>;tag=1\r\n"),
    ("the tag in From", "REGISTER", "From: <sip:bob@example.org>;tag=@\r\n"),
    ("Call-ID", "REGISTER", "Call-ID: @\r\n"),
    ("User-Agent", "REGISTER", "User-Agent: @\r\n"),
    ("the User-Agent of a scanner", "OPTIONS", "User-Agent: friendly-scanner @\r\n"),
    ("Contact", "REGISTER", "Contact: <sip:@@127.0.0.1>\r\n"),
    ("the user of credentials", "REGISTER", "Authorization: Digest username=\"@\", realm=\"example.org\"\r\n"),
    ("the realm of credentials", "REGISTER", "Authorization: Digest username=\"bob\", realm=\"@\"\r\n"),
    (
        "the nonce of credentials",
        "REGISTER",
        "Authorization: Digest username=\"bob\", realm=\"example.org\", nonce=\"@\"\r\n",
    ),
    ("the scheme of credentials", "REGISTER", "Authorization: @\r\n"),
    ("Route", "INVITE", "Route: <sip:@;lr>\r\n"),
    ("Proxy-Require", "INVITE", "Proxy-Require: @\r\n"),
    ("Via", "INVITE", "Via: SIP/2.0/UDP @;branch=z9hG4bKx\r\n"),
    ("CSeq", "INVITE", "CSeq: 1 @\r\n"),
];

fn start(lines: &str) -> Server {
    let lines = format!("domains = [\"example.org\"]\n{lines}");
    let server = Setup::on(&[Udp, Tcp, Ws]).with(&lines).start();
    server.add_user("bob@example.org", "bob");
    server
}

/// Returns a request that is refused in some way, with this method and these lines in place of the usual ones.
fn request(method: &[u8], uri: &[u8], lines: &[u8], wire: &Wire) -> Vec<u8> {
    let transport = wire.transport().name().to_uppercase();
    let mut bytes = [method, b" ", uri, b" SIP/2.0\r\n"].concat();
    let has = |name: &str| lines.starts_with(name.as_bytes());
    for (name, value) in [
        ("Via", format!("SIP/2.0/{transport} {};branch={};rport", wire.local(), unique("z9hG4bK"))),
        ("Max-Forwards", "70".into()),
        ("From", "<sip:bob@example.org>;tag=1".into()),
        ("To", "<sip:bob@example.org>".into()),
        ("Call-ID", unique("call")),
        ("CSeq", format!("1 {}", String::from_utf8_lossy(method))),
        ("Contact", "<sip:bob@127.0.0.1>".into()),
        ("Content-Length", "0".into()),
    ] {
        if has(&format!("{name}:")) && name != "Via" {
            bytes.extend_from_slice(lines);
        } else {
            bytes.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        }
    }
    if !["From:", "Call-ID:", "CSeq:", "Contact:"].iter().any(|name| has(name)) {
        bytes.extend_from_slice(lines);
    }
    [&bytes[..], b"\r\n"].concat()
}

/// Replaces `@` by the poison, and `@@` by the poison and an at sign.
fn fill(line: &str, poison: &[u8]) -> Vec<u8> {
    let mut filled = Vec::new();
    let mut parts = line.splitn(2, '@');
    filled.extend_from_slice(parts.next().unwrap_or_default().as_bytes());
    if let Some(rest) = parts.next() {
        filled.extend_from_slice(poison);
        filled.extend_from_slice(rest.as_bytes());
    }
    filled
}

fn at(server: &Server, transport: Transport, host: [u8; 2]) -> Wire {
    let from = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, host[0], host[1])), 0);
    Wire::connect_from(transport, from, server.address(transport), None).expect("loopback takes it")
}

/// Stops the server; returns the lines of its log since it was ready.
fn lines(server: &mut Server) -> Vec<String> {
    server.stop();
    let log = server.log();
    let from = log.find("\nready\n").expect("it was ready") + "\nready\n".len();
    log[from..].split('\n').filter(|line| !line.is_empty()).map(String::from).collect()
}

/// Returns the fault of a line in the format `text`.
fn fault_of_text(line: &str) -> Option<String> {
    let plain = line.bytes().all(|byte| (0x20..0x7f).contains(&byte));
    let stamped = line.len() > 28 && line.as_bytes()[4] == b'-' && line.as_bytes()[26] == b'Z';
    // Outside of quotes, each field occurs once.
    let mut outside = String::new();
    let (mut quoted, mut escaped) = (false, false);
    for character in line.chars() {
        match character {
            '"' if !escaped => quoted = !quoted,
            _ if !quoted => outside.push(character),
            _ => (),
        }
        escaped = character == '\\' && !escaped;
    }
    let mut names: BTreeMap<&str, usize> = BTreeMap::new();
    for (name, _) in outside.split(' ').filter_map(|word| word.split_once('=')) {
        *names.entry(name).or_default() += 1;
    }
    let twice = names.iter().find(|(_, times)| **times > 1);
    match () {
        () if !plain => Some("is not plain text".into()),
        () if !stamped => Some("does not begin as a line".into()),
        () if line.len() > LONGEST => Some(format!("has {} bytes", line.len())),
        () if quoted => Some("has a quotation that does not end".into()),
        () => twice.map(|(name, _)| format!("has {name} twice")),
    }
}

/// Returns the fault of a line in the format `json`.
fn fault_of_json(line: &str) -> Option<String> {
    let Ok(serde_json::Value::Object(object)) = serde_json::from_str(line) else {
        return Some("is no object of JSON".into());
    };
    let plain = line.bytes().all(|byte| (0x20..0x7f).contains(&byte));
    let levels = line.match_indices("\"level\":").filter(|(at, _)| line.as_bytes()[at - 1] != b'\\').count();
    match () {
        () if !plain => Some("is not plain text".into()),
        () if line.len() > LONGEST => Some(format!("has {} bytes", line.len())),
        () if levels != 1 => Some("has more than one level".into()),
        () if object.get("message").and_then(|m| m.as_str()).is_none_or(|m| m.contains("FORGED")) => {
            Some("has another message".into())
        }
        () => None,
    }
}

#[test]
fn no_text_of_a_peer_becomes_a_line_or_a_field() {
    for format in ["text", "json"] {
        let all = format!("log.format = \"{format}\"\nlog.level = \"debug\"\nlog.refusals_per_minute = 1000000");
        let mut server = start(&all);
        let mut wire = server.connect(Udp);
        let mut stream = server.connect(Ws);
        let mut sent = 0;
        for (_, poison) in POISONS {
            for (_, method, line) in PLACES {
                let bytes = request(method.as_bytes(), b"sip:example.org", &fill(line, poison), &wire);
                wire.send(&bytes).expect("loopback takes it");
                sent += 1;
            }
            // The start line, too.
            for (method, uri) in [
                (&b"INVITE"[..], [b"sip:", poison, b"@example.org"].concat()),
                (b"INVITE", [b"sip:nobody@example.org;x=", poison].concat()),
                (b"INVITE", [poison, b":x"].concat()),
                (poison, b"sip:bob@example.org".to_vec()),
            ] {
                wire.send(&request(method, &uri, b"", &wire)).expect("loopback takes it");
            }
            // A response without a request, and input that is no message.
            wire.send(&[b"SIP/2.0 200 ", poison, b"\r\nCall-ID: x\r\n\r\n"].concat()).expect("loopback takes it");
            wire.send(poison).expect("loopback takes it");
            if stream.send(poison).is_err() {
                stream = server.connect(Ws);
            }
            let mut garbage = server.connect(Tcp);
            garbage.send(&[poison, b"\r\n\r\n"].concat()).expect("it is connected");
            // An answer proves that all earlier input has been read: no more is pending than a socket holds.
            let own = format!("OPTIONS sip:{} SIP/2.0\r\n", server.address(Udp));
            let ask = request(b"OPTIONS", b"sip:example.org", b"", &wire);
            let ask = [own.as_bytes(), &ask[ask.iter().position(|b| *b == b'\n').expect("a line") + 1..]].concat();
            wire.drain();
            wire.send(&ask).expect("loopback takes it");
            wire.final_response(Duration::from_secs(5)).expect("the server answers");
        }
        assert!(sent >= 400);
        let lines = lines(&mut server);
        let fault = |line: &String| match format {
            "json" => fault_of_json(line),
            _ => fault_of_text(line),
        };
        let faults: Vec<_> = lines.iter().filter_map(|line| Some((fault(line)?, line))).collect();
        assert!(lines.len() > 100, "{} lines of {sent}", lines.len());
        assert!(faults.is_empty(), "{} of {} lines as {format}: {faults:#?}", faults.len(), lines.len());
    }
}

/// Lines about rules have values of the request; lines about plans have its Request-URI and its callers.
const RULES: &str = r#"
auth.calls = false
proxy.relay_for = "everyone"

[[call_limit]]
name = "caller"
per = "from.uri"
most = 1000000

[[rule]]
name = "answered"
when = "from.user == 'x' or header.Subject == 'x' or header.User-Agent == 'x' or request.uri == 'x'"
answer = 403

[[rule]]
name = "forwarded"
when = "exists request.user"
prepend = "1"
to = ["sip:127.0.0.1:9"]
call_limits = ["caller"]
"#;

#[test]
fn no_text_of_a_peer_becomes_a_line_about_rules() {
    for format in ["text", "json"] {
        let all =
            format!("log.format = \"{format}\"\nlog.level = \"debug\"\nlog.refusals_per_minute = 1000000\n{RULES}");
        let mut server = start(&all);
        let mut wire = server.connect(Udp);
        let long = "\"\u{e9}\\".repeat(3_000);
        for poison in POISONS.iter().map(|(_, poison)| *poison).chain([long.as_bytes()]) {
            for line in ["From: <sip:@@example.net>;tag=1\r\n", "Subject: @\r\n", "User-Agent: @\r\n", "Call-ID: @\r\n"]
            {
                let bytes = request(b"INVITE", b"sip:bob@example.org", &fill(line, poison), &wire);
                wire.send(&bytes).expect("loopback takes it");
            }
            let uri = [b"sip:bob@example.org;x=", poison].concat();
            wire.send(&request(b"INVITE", &uri, b"", &wire)).expect("loopback takes it");
            wire.drain();
            server.assert_answers(Udp);
        }
        let lines = lines(&mut server);
        for event in ["rule judged", "request planned"] {
            let count = lines.iter().filter(|line| line.contains(event)).count();
            assert!(count >= 60, "{count} of {event} as {format}");
        }
        let fault = |line: &String| if format == "json" { fault_of_json(line) } else { fault_of_text(line) };
        let faults: Vec<_> = lines.iter().filter_map(|line| Some((fault(line)?, line))).collect();
        assert!(faults.is_empty(), "{} of {} lines as {format}: {faults:#?}", faults.len(), lines.len());
    }
}

#[test]
fn no_long_text_makes_a_long_line() {
    for format in ["text", "json"] {
        let mut server = start(&format!("log.format = \"{format}\"\nlog.level = \"debug\""));
        let mut sources = 0;
        for (_, part) in
            [("letters", "A"), ("quotes", "\""), ("escapes", "%22"), ("beyond ASCII", "\u{e9}"), ("wide", "\u{1f600}")]
        {
            let long = part.repeat(40_000 / part.len());
            for (_, method, line) in PLACES {
                sources += 1;
                let mut wire = at(&server, Udp, [1, sources]);
                let bytes = request(method.as_bytes(), b"sip:example.org", &fill(line, long.as_bytes()), &wire);
                wire.send(&bytes).expect("loopback takes it");
            }
        }
        server.assert_answers(Udp);
        let lines = lines(&mut server);
        let longest = lines.iter().map(String::len).max().expect("lines");
        assert!(longest <= LONGEST, "{longest} bytes as {format}");
        assert!(lines.len() <= A_MINUTE + 20, "{} lines as {format}", lines.len());
    }
}

/// Attempts of one source, or many, to get more lines than the quota grants, by appearing as a new source each time.
#[test]
fn no_disguise_evades_the_quota() {
    let mut server = start("");
    // One source has many ports.
    let mut ports: Vec<Wire> = (0..20).map(|_| at(&server, Udp, [2, 1])).collect();
    let guess = |user: &str| {
        format!(
            "Authorization: Digest username=\"{user}\", realm=\"example.org\", nonce=\"x\", uri=\"sip:example.org\", response=\"0\"\r\n"
        )
    };
    type Disguise<'a> = (&'a str, &'a dyn Fn(u8, &Wire) -> Vec<u8>);
    let disguises: [Disguise<'_>; 10] = [
        ("new Call-IDs", &|_, wire| request(b"REGISTER", b"sip:example.org", guess("bob").as_bytes(), wire)),
        ("new users", &|n, wire| request(b"REGISTER", b"sip:example.org", guess(&format!("u{n}")).as_bytes(), wire)),
        ("new targets", &|n, wire| {
            request(b"INVITE", format!("sip:t{n}@example.org").as_bytes(), b"From: <sip:x@example.net>;tag=1\r\n", wire)
        }),
        ("new methods", &|n, wire| request(format!("M{n}").as_bytes(), b"http://x", b"", wire)),
        ("new faults", &|n, wire| {
            request(b"INVITE", b"sip:example.org", format!("CSeq: {n} OTHER\r\n").as_bytes(), wire)
        }),
        ("new extensions", &|n, wire| {
            request(b"INVITE", b"sip:example.org", format!("Proxy-Require: e{n}\r\n").as_bytes(), wire)
        }),
        ("scanners", &|n, wire| {
            request(b"OPTIONS", b"sip:example.org", format!("User-Agent: sipvicious {n}\r\n").as_bytes(), wire)
        }),
        ("new callers", &|n, wire| {
            request(
                b"INVITE",
                b"sip:bob@example.org",
                format!("From: <sip:u{n}@example.org>;tag=1\r\n").as_bytes(),
                wire,
            )
        }),
        ("relaying", &|n, wire| {
            request(b"INVITE", format!("sip:x@192.0.2.{n}").as_bytes(), b"From: <sip:x@example.net>;tag=1\r\n", wire)
        }),
        ("no hops left", &|_, wire| request(b"INVITE", b"sip:bob@example.org", b"Max-Forwards: 0\r\n", wire)),
    ];
    for (_, message) in disguises {
        for (n, wire) in (0..20).zip(&mut ports) {
            wire.send(&message(n, wire)).expect("loopback takes it");
        }
    }
    // Connections of it, each with input that is no message.
    for n in 0..20u8 {
        at(&server, Tcp, [2, 1]).send(format!("nonsense {n}\r\n\r\n").as_bytes()).expect("it is connected");
    }
    server.assert_answers(Udp);
    // The same from many sources.
    for (kind, (_, message)) in disguises.iter().enumerate() {
        for n in 0..20 {
            let mut wire = at(&server, Udp, [3 + kind as u8, 1 + n]);
            wire.send(&message(n, &wire)).expect("loopback takes it");
        }
        server.assert_answers(Udp);
    }
    let lines = lines(&mut server);
    let of_one: Vec<&String> = lines.iter().filter(|line| line.contains("127.0.2.1:")).collect();
    assert!(!of_one.is_empty(), "it says something");
    for (kind, words) in [
        ("authentication", &["credentials"][..]),
        ("requests", &["request refused", "status=4", "method="]),
        ("malformed", &["request refused", "byte="]),
        ("scanners", &["scanner dropped"]),
        ("connections", &["stream cannot be cut"]),
    ] {
        let is_it = |line: &str| words.iter().all(|word| line.contains(word));
        let lines =
            of_one.iter().filter(|line| is_it(line) && (kind == "malformed" || !line.contains("byte="))).count();
        assert!(lines <= OF_A_SOURCE, "{lines} lines of one source about {kind}: {of_one:#?}");
    }
    let kinds = 5;
    assert!(of_one.len() <= kinds * OF_A_SOURCE, "{} lines of one source: {of_one:#?}", of_one.len());
    assert!(lines.len() <= A_MINUTE + 20, "{} lines", lines.len());
}

/// Connections that carry malformed data.
#[test]
fn connections_of_scanners_do_not_fill_the_log() {
    let mut server = Setup::on(&[Tcp]).with("log.refusals_per_minute = 50").start();
    for _ in 0..30 {
        let mut wire = server.connect(Tcp);
        wire.send(b"OPTIONS sip:a SIP/2.0\r\nContent-Length: some\r\n\r\n").expect("loopback takes it");
        assert!(wire.final_response(Duration::from_secs(2)).is_none());
    }
    server.stop();
    assert_eq!(server.log().matches("stream cannot be cut into messages").count(), 5, "{}", server.log());
    assert_eq!(
        server.log().matches("suppressed log lines count=25 setting=log.refusals_per_minute connections=25").count(),
        1,
        "{}",
        server.log()
    );
}
