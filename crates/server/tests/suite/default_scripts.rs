//! Default scripts of OpenSIPS and Kamailio, as `examples/default-opensips.toml` and `default-kamailio.toml`: a test
//! for each rule, by its number; and `examples/residential-opensips.toml`, by the switches of OpenSIPS' residential
//! script. If a part of a file does the work, the test also takes the part out, and the work must then not be done.

mod kamailio;
mod opensips;
mod residential;

use crate::accounting::rows;
use crate::peer::{answer, receive, status, statuses, uri};
use crate::site::{BOB, Site};
use std::path::Path;

/// Caller of another domain.
const CAROL: &str = "203.0.113.40:5060";
/// Caller of this server, at an address that needs no password.
const ALICE: &str = "198.51.100.130:5060";
/// Another domain, by its address.
const ELSEWHERE: &str = "203.0.113.77:5060";
const GATEWAY: &str = "203.0.113.80:5060";
const VOICEMAIL: &str = "203.0.113.90:5060";

/// Server with one of these files, and the number of requests so far.
struct Script {
    site: Site,
    sent: u32,
}

/// Parts of a request.
struct Ask<'a> {
    from: &'a str,
    at: &'a str,
    method: &'a str,
    uri: &'a str,
    /// Parameter of To, with its semicolon.
    tag: &'a str,
    more: &'a str,
}

/// INVITE of a foreign caller to bob.
const CALL: Ask<'static> = Ask {
    from: "sip:carol@example.net",
    at: CAROL,
    method: "INVITE",
    uri: "sip:bob@example.org",
    tag: "",
    more: "Max-Forwards: 70\r\n",
};

/// INVITE as [`CALL`], from a user of this server.
const OWN: Ask<'static> = Ask { from: "sip:alice@example.org", at: ALICE, ..CALL };

/// BYE of a call that the server does not know.
const STRAY_BYE: Ask<'static> = Ask { method: "BYE", tag: ";tag=t", ..CALL };

/// INVITE to a place that no transport of the server reaches.
const NOWHERE: Ask<'static> = Ask { uri: "sip:dave@203.0.113.77;transport=sctp", ..OWN };

impl Script {
    /// Starts a server at which bob is registered, with the methods of his phone.
    fn of(text: &str) -> Self {
        // No password is needed: other tests cover the digests of registrations.
        let open = "registrar.authenticate = false\n";
        let has_open = text.lines().any(|line| line == open.trim());
        let mut script = Self::as_it_stands(&if has_open { text.to_owned() } else { format!("{open}{text}") });
        let contact = "<sip:bob@198.51.100.8:5060>;methods=\"INVITE,ACK,BYE,CANCEL\"";
        assert!(script.registers("bob@example.org", contact, BOB));
        script
    }

    /// Starts a server without registered phones.
    fn as_it_stands(text: &str) -> Self {
        Self { site: Site::of_example(text), sent: 0 }
    }

    /// Returns whether a REGISTER from there is accepted.
    fn registers(&mut self, user: &str, contact: &str, at: &str) -> bool {
        self.status_of_register(user, contact, at) == Some(200)
    }

    fn status_of_register(&mut self, user: &str, contact: &str, at: &str) -> Option<u16> {
        let domain = format!("sip:{}", user.rsplit('@').next().unwrap_or_default());
        let more = format!("Contact: {contact}\r\n");
        let from = format!("sip:{user}");
        let register = Ask { from: &from, at, method: "REGISTER", uri: &domain, more: &more, ..CALL };
        self.sent += 1;
        let text = written(&register, self.sent).replace(&format!("To: <{domain}>"), &format!("To: <{from}>"));
        statuses(&receive(&mut self.site, at, &text), at).first().copied()
    }

    fn ask(&mut self, ask: &Ask<'_>) -> Vec<(String, String)> {
        self.sent += 1;
        let text = written(ask, self.sent);
        receive(&mut self.site, ask.at, &text)
    }

    /// Returns the status of the immediate response, if there is one.
    fn status(&mut self, ask: &Ask<'_>) -> Option<u16> {
        statuses(&self.ask(ask), ask.at).first().copied()
    }

    /// Returns whether the request is answered at once, with this status line.
    fn says(&mut self, ask: &Ask<'_>, line: &str) -> bool {
        let got = self.ask(ask);
        got.first().is_some_and(|(at, text)| at == ask.at && text.starts_with(&format!("SIP/2.0 {line}\r\n")))
    }

    /// Returns the forwarded request and its target.
    fn forwarded(&mut self, ask: &Ask<'_>) -> Option<(String, String)> {
        self.ask(ask).into_iter().find(|(_, text)| status(text).is_none())
    }

    /// Answers a request at its callee. Returns the messages that are sent then.
    fn answered(&mut self, ask: &Ask<'_>, code: u16) -> Vec<(String, String)> {
        let Some((at, text)) = self.forwarded(ask) else { return Vec::new() };
        let response = answer(&text, code, "Contact: <sip:x@203.0.113.99>\r\n");
        receive(&mut self.site, &at, &response)
    }

    /// Makes a call ring. Returns the target and the INVITE that it got.
    fn rings(&mut self, ask: &Ask<'_>) -> Option<(String, String)> {
        let (at, text) = self.forwarded(ask)?;
        let got = receive(&mut self.site, &at, &answer(&text, 180, ""));
        (statuses(&got, ask.at) == [180]).then_some((at, text))
    }

    /// Cancels a ringing call, while the phone answers the INVITE with this status. Returns the messages that are sent
    /// then.
    fn cancelled(&mut self, ask: &Ask<'_>, code: u16) -> Option<Vec<(String, String)>> {
        let (at, text) = self.rings(ask)?;
        let cancel = written(&Ask { method: "CANCEL", ..*ask }, self.sent);
        let got = receive(&mut self.site, ask.at, &cancel);
        let is_cancelled = got.iter().any(|(to, text)| *to == at && text.starts_with("CANCEL "));
        let got = receive(&mut self.site, &at, &answer(&text, code, "Contact: <sip:x@203.0.113.99>\r\n"));
        is_cancelled.then_some(got)
    }

    /// Makes a call that is answered, and sends a later request of its caller along the route set. Returns the
    /// forwarded request and its target.
    fn within(&mut self, ask: &Ask<'_>, method: &str) -> Option<(String, String)> {
        let got = self.answered(ask, 200);
        let (_, ok) = got.iter().find(|(at, _)| at == ask.at)?;
        let value = |name: &str| ok.split("\r\n").find_map(|line| line.strip_prefix(name));
        let more = format!("Max-Forwards: 70\r\nRoute: {}\r\n", value("Record-Route: ")?);
        let uri = value("Contact: <")?.split('>').next()?;
        let text = written(&Ask { method, uri, tag: ";tag=t", more: &more, ..*ask }, self.sent);
        let text = text.replace("z9hG4bKs", "z9hG4bKlater").replace("CSeq: 1", "CSeq: 2");
        // To is that of the call.
        let text = text.replace(&format!("To: <{uri}>"), &format!("To: <{}>", ask.uri));
        receive(&mut self.site, ask.at, &text).into_iter().find(|(_, text)| status(text).is_none())
    }

    /// Returns the seconds until the ringing call is abandoned; `None` if it lasts longer.
    fn given_up_after(&mut self, seconds: u32) -> Option<u32> {
        (1..=seconds).find(|_| self.site.wait(1_000).contains("CANCEL "))
    }

    /// Returns the events since the last call, each with its status.
    fn events(&mut self) -> Vec<(String, u16)> {
        rows(&mut self.site).1.into_iter().map(|event| (event.event, event.status)).collect()
    }
}

fn written(ask: &Ask<'_>, n: u32) -> String {
    let Ask { from, at, method, uri, tag, more } = ask;
    let contact = if more.contains("Contact:") { String::new() } else { format!("Contact: <sip:c@{at}>\r\n") };
    format!(
        "{method} {uri} SIP/2.0\r\nVia: SIP/2.0/UDP {at};branch=z9hG4bKs{n}\r\nFrom: <{from}>;tag=f{n}\r\nTo: <{uri}>{tag}\r\n\
         Call-ID: s{n}\r\nCSeq: 1 {method}\r\n{contact}{more}Content-Length: 0\r\n\r\n"
    )
}

fn example(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name);
    std::fs::read_to_string(path).expect("the example is there")
}

/// Returns the configuration without the part behind this name, up to the next name or the next single table.
fn without(text: &str, name: &str) -> String {
    let mark = format!("[{name}]");
    let is_mark = |line: &str| line.starts_with("# [");
    let is_table = |line: &str| line.starts_with('[') && !line.starts_with("[[");
    let mut cuts = false;
    let mut found = false;
    let mut left = String::new();
    for line in text.lines() {
        if is_mark(line) || is_table(line) {
            cuts = is_mark(line) && line.split(' ').any(|word| word == mark);
            found |= cuts;
        }
        if !cuts {
            left += line;
            left.push('\n');
        }
    }
    assert!(found, "nothing of the file is {mark}");
    left
}

/// Returns the configuration with one text replaced, which must occur once.
fn with(text: &str, from: &str, to: &str) -> String {
    assert_eq!(text.matches(from).count(), 1, "{from}");
    text.replace(from, to)
}

/// Returns the configuration with the lines that only a `#` disables.
fn uncommented(text: &str) -> String {
    let line = |line: &str| match line.strip_prefix('#') {
        Some(rest) if !rest.starts_with(' ') => format!("{rest}\n"),
        _ => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

/// Checks that a file does this, and if a name is given, that the file no longer does it without the named part.
#[track_caller]
fn does(file: &str, name: Option<&str>, check: impl Fn(&mut Script) -> bool) {
    let text = example(file);
    assert!(check(&mut Script::of(&text)), "{file} does not");
    if let Some(name) = name {
        let less = without(&text, name);
        assert!(!check(&mut Script::of(&less)), "{file} does it without [{name}]");
    }
}

/// Checks that a file does this by itself, and does not with this change of the configuration.
#[track_caller]
fn does_unless(file: &str, otherwise: impl Fn(&str) -> String, check: impl Fn(&mut Script) -> bool) {
    let text = example(file);
    assert!(check(&mut Script::of(&text)), "{file} does not");
    assert!(!check(&mut Script::of(&otherwise(&text))), "{file} does it all the same");
}

fn has_line(text: &str, line: &str) -> bool {
    text.contains(&format!("\r\n{line}\r\n"))
}

fn is_record_routed(text: &str) -> bool {
    text.contains("\r\nRecord-Route: ")
}

// Behaviour of both scripts.

/// Checks that a request without Max-Forwards gets 10, each other loses one, and 0 is answered 483.
fn counts_forwards(script: &mut Script) -> bool {
    let of = |script: &mut Script, more: &'static str| script.forwarded(&Ask { more, ..CALL }).expect("it goes on").1;
    let none = of(script, "");
    let some = of(script, "Max-Forwards: 7\r\n");
    let refused = script.status(&Ask { more: "Max-Forwards: 0\r\n", ..CALL });
    has_line(&none, "Max-Forwards: 10") && has_line(&some, "Max-Forwards: 6") && refused == Some(483)
}

/// Checks that the ACK of a failure ends the retransmissions of the failure, and that an ACK of no call is not
/// forwarded.
fn absorbs_acks(script: &mut Script) -> bool {
    script.answered(&CALL, 603);
    let ack = Ask { method: "ACK", tag: ";tag=t", ..CALL };
    let text = written(&ack, script.sent);
    let absorbed = receive(&mut script.site, CAROL, &text).is_empty();
    let stray = script.ask(&Ask { method: "ACK", tag: ";tag=other", ..CALL }).is_empty();
    absorbed && stray
}

/// Checks that a BYE follows the route set of its call.
fn routes_byes(script: &mut Script) -> bool {
    let bye = script.within(&CALL, "BYE");
    bye.is_some_and(|(_, text)| text.starts_with("BYE sip:x@203.0.113.99 ") && !text.contains("\r\nRoute: "))
}

/// Checks that a BYE is accounted, including a BYE that fails.
fn accounts_byes(script: &mut Script) -> bool {
    [200, 500].into_iter().all(|code| {
        let Some((at, bye)) = script.within(&CALL, "BYE") else { return false };
        script.events();
        let response = answer(&bye, code, "").replace(";tag=t;tag=t", ";tag=t");
        receive(&mut script.site, &at, &response);
        script.events() == [("bye".to_owned(), code)]
    })
}

/// Checks that an INVITE is accounted when it is answered.
fn accounts_invites(script: &mut Script) -> bool {
    script.answered(&CALL, 200);
    script.events() == [("invite".to_owned(), 200)]
}

/// Checks that a call that its callee did not answer is accounted.
fn accounts_missed_calls(script: &mut Script) -> bool {
    script.answered(&CALL, 603);
    script.events() == [("missed".to_owned(), 603)]
}

/// Checks that a matching CANCEL reaches the phone, and its caller gets 487.
fn cancels(script: &mut Script) -> bool {
    script.cancelled(&CALL, 487).is_some_and(|got| statuses(&got, CAROL) == [487])
}

/// Checks that a retransmission gets the same response, and rings nowhere.
fn absorbs_copies(script: &mut Script) -> bool {
    script.answered(&CALL, 603);
    let again = written(&CALL, script.sent);
    let got = receive(&mut script.site, CAROL, &again);
    statuses(&got, CAROL) == [603] && got.len() == 1
}

/// Checks that a phone registers, and is called at its Contact.
fn saves_registrations(script: &mut Script) -> bool {
    let saved = script.registers("dave@example.org", "<sip:dave@203.0.113.40>", CAROL);
    let call = script.forwarded(&Ask { uri: "sip:dave@example.org", ..CALL });
    saved && call.is_some_and(|(at, text)| at == CAROL && uri(&text) == "sip:dave@203.0.113.40")
}

/// Checks that a request to another domain is sent there, with this header line.
fn marks_what_leaves(script: &mut Script, line: &str) -> bool {
    let foreign = Ask { uri: "sip:dave@203.0.113.77", ..OWN };
    script.forwarded(&foreign).is_some_and(|(at, text)| at == ELSEWHERE && has_line(&text, line))
}
