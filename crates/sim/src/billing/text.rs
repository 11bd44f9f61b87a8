//! Messages as text: the parties of these worlds read and write them line by line.

use strowger_core::digest::{Challenge, ChallengeAnswer, Secret};

/// A received message.
#[derive(Clone, Debug)]
pub(super) struct Received {
    /// Start line.
    first: String,
    lines: Vec<(String, String)>,
}

impl Received {
    /// Parses a message. The server sends every message in canonical form.
    pub(super) fn read(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let mut lines = text.split("\r\n");
        let first = lines.next().unwrap_or_default().to_owned();
        let pairs = lines.take_while(|line| !line.is_empty()).filter_map(|line| line.split_once(": "));
        Self { first, lines: pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect() }
    }

    /// Returns the status of a response; `None` for a request.
    pub(super) fn status(&self) -> Option<u16> {
        self.first.strip_prefix("SIP/2.0 ")?.get(..3)?.parse().ok()
    }

    /// Returns the method of a request, or of the request that a response answers.
    pub(super) fn method(&self) -> &str {
        self.line("CSeq").split(' ').nth(1).unwrap_or_default()
    }

    pub(super) fn cseq(&self) -> u32 {
        self.line("CSeq").split(' ').next().and_then(|number| number.parse().ok()).unwrap_or_default()
    }

    /// Returns the first value of this header; empty if there is none.
    pub(super) fn line(&self, name: &str) -> &str {
        self.values(name).next().unwrap_or_default()
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.values(name).next().is_some()
    }

    pub(super) fn values<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a str> {
        self.lines.iter().filter(move |(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| &**value)
    }

    /// Returns the tag in From or To; empty if there is none.
    pub(super) fn tag(&self, name: &str) -> &str {
        tag(self.line(name))
    }

    pub(super) fn call_id(&self) -> &str {
        self.line("Call-ID")
    }

    /// Returns the branch of the top Via.
    pub(super) fn branch(&self) -> &str {
        let via = self.line("Via");
        via.split_once("branch=").map_or("", |(_, rest)| rest.split([';', ',']).next().unwrap_or_default())
    }

    /// Returns whether the server created the message.
    pub(super) fn is_of_server(&self) -> bool {
        self.values("Via").any(|via| via.contains("server.invalid"))
    }

    /// Returns the URI of the Contact.
    pub(super) fn contact(&self) -> Option<String> {
        self.values("Contact").next().map(uri)
    }

    /// Returns the Record-Routes, from top to bottom.
    pub(super) fn record_routes(&self) -> Vec<String> {
        self.values("Record-Route").flat_map(|value| value.split(", ")).map(str::to_owned).collect()
    }

    /// Returns the seconds of the Session-Expires of the message.
    pub(super) fn session_expires(&self) -> Option<u64> {
        self.line("Session-Expires").split(';').next()?.trim().parse().ok()
    }
}

/// Returns the tag of a From or To.
pub(super) fn tag(value: &str) -> &str {
    value.split_once(";tag=").map_or("", |(_, tag)| tag.split(';').next().unwrap_or_default())
}

/// Returns the URI between angle brackets.
pub(super) fn uri(value: &str) -> String {
    let inner = value.split_once('<').and_then(|(_, rest)| rest.split_once('>')).map(|(uri, _)| uri);
    inner.unwrap_or(value).to_owned()
}

/// An outgoing request.
#[derive(Clone, Debug, Default)]
pub(super) struct Request {
    pub(super) method: String,
    pub(super) uri: String,
    /// Host and port of its Via.
    pub(super) via: String,
    pub(super) branch: String,
    pub(super) from: String,
    pub(super) to: String,
    pub(super) call_id: String,
    pub(super) cseq: u32,
    pub(super) routes: Vec<String>,
    /// Further header lines, with their ends.
    pub(super) lines: String,
}

impl Request {
    pub(super) fn text(&self) -> String {
        let Self { method, uri, via, branch, from, to, call_id, cseq, routes, lines } = self;
        let routes: String = routes.iter().map(|route| format!("Route: {route}\r\n")).collect();
        let forwards = if lines.contains("Max-Forwards: ") { "" } else { "Max-Forwards: 70\r\n" };
        format!(
            "{method} {uri} SIP/2.0\r\nVia: SIP/2.0/UDP {via};branch={branch};rport\r\n{forwards}{routes}From: {from}\r\n\
             To: {to}\r\nCall-ID: {call_id}\r\nCSeq: {cseq} {method}\r\n{lines}Content-Length: 0\r\n\r\n"
        )
    }

    /// Returns a copy with the answer to this challenge; `None` if there is no challenge.
    pub(super) fn authorized(
        &self,
        challenged: &Received,
        (user, password): (&str, &str),
        branch: String,
    ) -> Option<Self> {
        let challenge = Challenge::parse(challenged.line("Proxy-Authenticate").as_bytes()).ok()?;
        let answer = ChallengeAnswer {
            user: user.as_bytes(),
            secret: Secret::Password(password.as_bytes()),
            method: self.method.as_bytes(),
            uri: self.uri.as_bytes(),
            body: b"",
            cnonce: b"0a4f113b",
            nc: 1,
        };
        let mut credentials = Vec::new();
        answer.write(&challenge, &mut credentials).ok()?;
        let credentials = String::from_utf8_lossy(&credentials);
        let lines = format!("{}Proxy-Authorization: {credentials}\r\n", self.lines);
        Some(Self { branch, lines, ..self.clone() })
    }
}

/// Creates a response to this request. `tag` is added to a To that has none.
pub(super) fn response(request: &Received, status: u16, tag: &str, lines: &str) -> String {
    let copied = |name: &'static str| request.values(name).map(move |value| format!("{name}: {value}\r\n"));
    let mut text = format!("SIP/2.0 {status} Said\r\n");
    text.extend(copied("Via"));
    if (101..300).contains(&status) {
        text.extend(copied("Record-Route"));
    }
    text.extend(copied("From"));
    let to = request.line("To");
    match request.tag("To").is_empty() && !tag.is_empty() {
        true => text += &format!("To: {to};tag={tag}\r\n"),
        false => text += &format!("To: {to}\r\n"),
    }
    text.extend(copied("Call-ID"));
    text.extend(copied("CSeq"));
    text + lines + "Content-Length: 0\r\n\r\n"
}
