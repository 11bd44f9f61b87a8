//! `strowger parse`: shows how the parser reads a message.

use std::fmt::Write;
use std::io::Read;

use anyhow::Context;
use serde::Serialize;
use strowger_message::index::Start;
use strowger_message::{Error, Index, Limits, Line, MandatoryHeaders, Message, Name, NameAddr, Uri, view};

use crate::cli::ParseArguments;
use crate::output::{self, CommandOutcome};

pub(crate) fn run(arguments: &ParseArguments) -> anyhow::Result<CommandOutcome> {
    let name =
        if arguments.file.as_os_str() == "-" { "standard input".into() } else { arguments.file.display().to_string() };
    let bytes = if arguments.file.as_os_str() == "-" {
        let mut bytes = Vec::new();
        std::io::stdin().lock().read_to_end(&mut bytes).map(|_| bytes)
    } else {
        std::fs::read(&arguments.file)
    }
    .with_context(|| format!("cannot read {name}"))?;

    let (text, outcome) = match read(&bytes) {
        Ok(parsed) => (if arguments.json { json(&parsed)? } else { parsed.table() }, CommandOutcome::Done),
        Err(error) => {
            let refused = Refused::new(&error, &bytes);
            if arguments.json {
                (json(&refused)?, CommandOutcome::Failed)
            } else {
                output::complain(&format!("{name}: {}", refused.sentence()));
                (String::new(), CommandOutcome::Failed)
            }
        }
    };
    output::print(&text)?;
    Ok(outcome)
}

fn json(value: &impl Serialize) -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(value)? + "\n")
}

/// A refusal for people and programs.
#[derive(Serialize)]
struct Refused {
    refused: &'static str,
    /// Bytes from the start of the message.
    offset: usize,
    /// Line, from 1.
    line: usize,
    /// Column in bytes, from 1.
    column: usize,
    /// Status code of the response to such a request.
    status: u16,
    /// The bytes from that position on.
    at: String,
}

impl Refused {
    fn new(error: &Error, bytes: &[u8]) -> Self {
        let offset = error.offset.min(bytes.len());
        let before = &bytes[..offset];
        let line_start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
        let rest = &bytes[offset..bytes.len().min(offset + 32)];
        Self {
            refused: error.reason.text(),
            offset: error.offset,
            line: before.iter().filter(|byte| **byte == b'\n').count() + 1,
            column: offset - line_start + 1,
            status: error.status(),
            at: shown(rest),
        }
    }

    fn sentence(&self) -> String {
        let at = if self.at.is_empty() { "the end".to_owned() } else { format!("\"{}\"", self.at) };
        format!(
            "refused: {} at byte {} (line {}, column {}), at {at}; a request is answered {}",
            self.refused, self.offset, self.line, self.column, self.status
        )
    }
}

/// Converts bytes to text that cannot move the cursor of a terminal.
fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes)
        .chars()
        .flat_map(|character| {
            let escaped = character.is_control();
            let plain = (!escaped).then_some(character);
            character.escape_default().filter(move |_| escaped).chain(plain)
        })
        .collect()
}

/// The parsed message.
#[derive(Serialize)]
struct ParsedMessage {
    #[serde(flatten)]
    start: ParsedStart,
    via: ParsedVia,
    from: ParsedAddress,
    to: ParsedAddress,
    call_id: String,
    cseq: ParsedCSeq,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_forwards: Option<u8>,
    headers: Vec<ParsedHeader>,
    body: ParsedBody,
    /// Bytes after the message, which Content-Length excludes (RFC 3261 section 18.3).
    bytes_behind: usize,
    /// True if a line of the header ends with CR or LF alone.
    bare_line_ends: bool,
}

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum ParsedStart {
    Request { method: String, request_uri: String, uri: ParsedUri },
    Response { status: u16, reason: String },
}

#[derive(Serialize)]
struct ParsedUri {
    scheme: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    port: Option<u16>,
}

#[derive(Serialize)]
struct ParsedVia {
    transport: String,
    host: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    branch: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    received: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rport: Option<String>,
}

#[derive(Serialize)]
struct ParsedAddress {
    #[serde(skip_serializing_if = "String::is_empty")]
    display: String,
    uri: ParsedUri,
    #[serde(skip_serializing_if = "Option::is_none")]
    tag: Option<String>,
}

#[derive(Serialize)]
struct ParsedCSeq {
    number: u32,
    method: String,
}

#[derive(Serialize)]
struct ParsedHeader {
    /// Bytes from the start of the message.
    offset: usize,
    /// Full name, even if the message has the compact form.
    name: String,
    value: String,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    folded: bool,
    /// Fault that its typed view reports, with the position in the message.
    #[serde(skip_serializing_if = "Option::is_none")]
    malformed: Option<String>,
}

#[derive(Serialize)]
struct ParsedBody {
    offset: usize,
    length: usize,
}

/// Reads the message as the server does.
fn read(bytes: &[u8]) -> Result<ParsedMessage, Error> {
    let mut index = Index::new();
    index.parse(bytes, &Limits::default())?;
    let message = Message::new(bytes, &index);
    let mandatory = MandatoryHeaders::of(&message)?;
    let start = match index.start() {
        Start::Request { .. } => ParsedStart::Request {
            method: shown(message.method_text()),
            request_uri: shown(message.request_uri()),
            uri: uri(&message.uri()?),
        },
        Start::Status { code, .. } => ParsedStart::Response { status: code, reason: shown(message.reason()) },
    };
    let via = &mandatory.via;
    // The server needs only a few header fields to route the message. Faults in other header fields are shown, but the
    // message is not refused.
    let malformed = |line: &Line| view::of_line(&message, line, |_, _| ()).err().map(|fault| fault.to_string());
    let headers = index
        .lines()
        .iter()
        .map(|line| ParsedHeader {
            offset: line.start as usize,
            name: match line.name {
                Name::Other => shown(message.name(line)),
                known => known.text().to_owned(),
            },
            value: shown(message.value(line)),
            folded: line.folded,
            malformed: malformed(line),
        })
        .collect();
    Ok(ParsedMessage {
        start,
        via: ParsedVia {
            transport: shown(via.transport),
            host: host(&via.host),
            port: via.port,
            branch: via.branch.map(shown),
            received: via.received.map(shown),
            rport: via.rport.map(shown),
        },
        from: address(&mandatory.from.addr, mandatory.from.tag),
        to: address(&mandatory.to.addr, mandatory.to.tag),
        call_id: shown(mandatory.call_id.text),
        cseq: ParsedCSeq { number: mandatory.cseq.number, method: shown(mandatory.cseq.method_text) },
        max_forwards: mandatory.max_forwards,
        headers,
        body: ParsedBody { offset: index.body().start, length: index.body().len() },
        bytes_behind: bytes.len() - index.end(),
        bare_line_ends: index.bare_line_ends(),
    })
}

fn address(address: &NameAddr<'_>, tag: Option<&[u8]>) -> ParsedAddress {
    ParsedAddress { display: shown(&address.display_name()), uri: uri(&address.uri), tag: tag.map(shown) }
}

fn host(host: &strowger_message::Host<'_>) -> String {
    let mut text = Vec::new();
    host.write(&mut text);
    shown(&text)
}

fn uri(uri: &Uri<'_>) -> ParsedUri {
    let scheme = shown(uri.scheme());
    match uri {
        Uri::Sip(sip) => ParsedUri { scheme, user: sip.user.map(shown), host: Some(host(&sip.host)), port: sip.port },
        _ => {
            // The text after the scheme names a subscriber, a service or something that is only carried.
            let mut text = Vec::new();
            uri.write(&mut text);
            let rest = text.get(scheme.len() + 1..).unwrap_or_default();
            ParsedUri { scheme, user: Some(shown(rest)), host: None, port: None }
        }
    }
}

impl ParsedUri {
    fn line(&self) -> String {
        let part = |name: &str, value: &Option<String>| {
            value.as_ref().map_or_else(String::new, |value| format!("  {name} {value}"))
        };
        let port = self.port.map(|port| port.to_string());
        format!("{}{}{}{}", self.scheme, part("user", &self.user), part("host", &self.host), part("port", &port))
    }
}

impl ParsedAddress {
    fn line(&self) -> String {
        let display = if self.display.is_empty() { String::new() } else { format!("\"{}\"  ", self.display) };
        let tag = self.tag.as_ref().map_or_else(|| "no tag".to_owned(), |tag| format!("tag {tag}"));
        format!("{display}{}  {tag}", self.uri.line())
    }
}

impl ParsedMessage {
    fn table(&self) -> String {
        let mut out = String::new();
        let mut row = |name: &str, value: &str| {
            // Writing to a String cannot fail.
            let _ = writeln!(out, "{name:<13} {value}");
        };
        match &self.start {
            ParsedStart::Request { method, request_uri, uri } => {
                row("request", &format!("{method} {request_uri}"));
                row("  to", &uri.line());
            }
            ParsedStart::Response { status, reason } => row("response", &format!("{status} {reason}")),
        }
        let via = &self.via;
        let option = |name: &str, value: &Option<String>| {
            value.as_ref().map_or_else(String::new, |value| format!("  {name} {value}"))
        };
        let port = via.port.map(|port| port.to_string());
        row(
            "came by",
            &format!(
                "{} {}{}{}{}{}",
                via.transport,
                via.host,
                option("port", &port),
                option("branch", &via.branch),
                option("received", &via.received),
                option("rport", &via.rport)
            ),
        );
        row("from", &self.from.line());
        row("to", &self.to.line());
        row("call", &self.call_id);
        row("sequence", &format!("{} {}", self.cseq.number, self.cseq.method));
        if let Some(hops) = self.max_forwards {
            row("hops left", &hops.to_string());
        }
        row("body", &format!("{} bytes from byte {}", self.body.length, self.body.offset));
        if self.bytes_behind > 0 {
            row("behind it", &format!("{} bytes that Content-Length leaves out", self.bytes_behind));
        }
        if self.bare_line_ends {
            row("line ends", "some are CR or LF alone");
        }
        out.push_str("\n   byte  header\n");
        for header in &self.headers {
            let folded = if header.folded { "  (folded)" } else { "" };
            let _ = writeln!(out, "{:>7}  {}: {}{folded}", header.offset, header.name, header.value);
            if let Some(fault) = &header.malformed {
                let _ = writeln!(out, "         ^ {fault}");
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INVITE: &str = "INVITE sip:bob@example.com;lr SIP/2.0\r\nv: SIP/2.0/UDP 192.0.2.1:5070;branch=z9hG4bK1;rport\r\n\
        Max-Forwards: 9\r\nf: \"Alice\" <sip:alice@example.org>;tag=a\r\nt: <sip:bob@example.com>\r\ni: 1@x\r\n\
        CSeq: 7 INVITE\r\nm: <sip:alice@192.0.2.1\r\nX-Own: a\u{1b}[2Jb\r\nContent-Length: 2\r\n\r\nhi!";

    #[test]
    fn a_message_is_parsed() {
        let parsed = read(INVITE.as_bytes()).unwrap_or_else(|error| panic!("{error}"));
        let json = serde_json::to_value(&parsed).expect("it has only texts and numbers");
        assert_eq!(json["kind"], "request");
        assert_eq!(json["uri"]["host"], "example.com");
        assert_eq!(json["via"]["port"], 5070);
        assert_eq!(json["from"]["display"], "Alice");
        assert_eq!(json["headers"][0]["name"], "Via");
        assert_eq!(json["body"]["length"], 2);
        assert_eq!(json["bytes_behind"], 1);
        // The malformed Contact does not prevent routing, but it is shown.
        let contact = json["headers"].as_array().expect("a list").iter().find(|line| line["name"] == "Contact");
        assert!(contact.expect("it came")["malformed"].is_string());
        let table = parsed.table();
        assert!(table.contains("INVITE sip:bob@example.com;lr"), "{table}");
        assert!(!table.contains('\u{1b}'), "nothing reaches the terminal as a command");
    }

    #[test]
    fn every_header_that_has_a_view_is_judged_by_it() {
        let lines = "Date: tomorrow\r\nRAck: x\r\nSession-Expires: soon\r\nEvent: \r\nSupported:\r\nX-Own: @@\r\nContent-Length";
        let text = INVITE.replace("Content-Length", lines);
        let parsed = read(text.as_bytes()).unwrap_or_else(|error| panic!("{error}"));
        let wrong = parsed.headers.iter().filter(|line| line.malformed.is_some()).map(|line| &line.name[..]);
        assert_eq!(wrong.collect::<Vec<_>>(), ["Contact", "Date", "RAck", "Session-Expires", "Event"]);
        assert!(parsed.table().contains("Date: tomorrow\n         ^ a header field"), "{}", parsed.table());
    }

    #[test]
    fn a_refusal_has_reason_and_place() {
        let text = INVITE.replace("CSeq: 7 INVITE", "CSeq: 7 BYE");
        let Err(error) = read(text.as_bytes()) else { panic!("it contradicts itself") };
        let refused = Refused::new(&error, text.as_bytes());
        assert_eq!(refused.offset, text.find("7 BYE").expect("put there"));
        assert_eq!((refused.line, refused.column, refused.status), (7, 7, 400));
        assert!(refused.sentence().contains("\"7 BYE"), "{}", refused.sentence());
    }

    #[test]
    fn nothing_at_all_is_refused() {
        for bytes in [&b""[..], b"\r\n", b"\0", b"\xff\xff"] {
            let Err(error) = read(bytes) else { panic!("{bytes:?}") };
            assert!(!Refused::new(&error, bytes).sentence().is_empty());
        }
    }
}
