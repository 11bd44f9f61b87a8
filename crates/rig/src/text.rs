//! Messages written and read by hand, without the parser under test.

use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

/// Returns a text that is unique in this process, with a word in front.
pub fn unique(word: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    format!("{word}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Request to write. All fields can be changed before.
#[derive(Debug, Clone)]
pub struct Request {
    /// Method.
    pub method: String,
    /// Request-URI.
    pub uri: String,
    /// Transport and sent-by of Via.
    pub via: (String, SocketAddr),
    /// Branch of Via, including the magic cookie.
    pub branch: String,
    /// Value of From, with tag.
    pub from: String,
    /// Value of To, with tag in a dialog.
    pub to: String,
    /// Call-ID.
    pub call_id: String,
    /// Number of CSeq.
    pub cseq: u32,
    /// Max-Forwards.
    pub max_forwards: u32,
    /// Further header lines without line ends, in this order, after Via.
    pub headers: Vec<String>,
    /// Body.
    pub body: Vec<u8>,
}

impl Request {
    /// Creates a request outside of a dialog. `transport` is the transport of Via, `here` the address for answers.
    pub fn new(method: &str, uri: &str, transport: &str, here: SocketAddr) -> Self {
        Self {
            method: method.into(),
            uri: uri.into(),
            via: (transport.to_uppercase(), here),
            branch: unique("z9hG4bK"),
            from: format!("<sip:tester@{}>;tag={}", here.ip(), unique("f")),
            to: format!("<{uri}>"),
            call_id: unique("call"),
            cseq: 1,
            max_forwards: 70,
            headers: Vec::new(),
            body: Vec::new(),
        }
    }

    /// Adds a header line.
    pub fn with(mut self, header: impl Into<String>) -> Self {
        self.headers.push(header.into());
        self
    }

    /// Creates a REGISTER of one contact.
    pub fn register(user: &str, domain: &str, contact: &str, transport: &str, here: SocketAddr) -> Self {
        let aor = format!("sip:{user}@{domain}");
        let mut this = Self::new("REGISTER", &format!("sip:{domain}"), transport, here)
            .with(format!("Contact: <{contact}>"))
            .with("Expires: 600");
        this.from = format!("<{aor}>;tag={}", unique("r"));
        this.to = format!("<{aor}>");
        this
    }

    /// Returns the CANCEL of this request (RFC 3261 section 9.1).
    pub fn cancel(&self) -> Self {
        Self { method: "CANCEL".into(), headers: Vec::new(), body: Vec::new(), ..self.clone() }
    }

    /// Returns the ACK of a final response. The ACK of a 200 is a separate transaction, to the Contact of the response
    /// along its Record-Route (RFC 3261 section 13.2.2.4); other ACKs belong to the INVITE (section 17.1.1.3).
    pub fn ack(&self, response: &[u8]) -> Self {
        let mut this = Self { method: "ACK".into(), headers: Vec::new(), body: Vec::new(), ..self.clone() };
        this.to = field(response, "To").unwrap_or_default();
        if status(response).is_some_and(|status| status < 300) {
            this.enter(response);
        }
        this
    }

    /// Returns a later request of the dialog that a 200 to this INVITE opened.
    pub fn within(&self, method: &str, response: &[u8]) -> Self {
        let mut this = self.ack(response);
        this.method = method.into();
        this.cseq += 1;
        this
    }

    fn enter(&mut self, response: &[u8]) {
        self.branch = unique("z9hG4bK");
        if let Some(contact) = field(response, "Contact") {
            self.uri = address(&contact);
        }
        let mut routes = fields(response, "Record-Route");
        routes.reverse();
        self.headers.extend(routes.into_iter().map(|route| format!("Route: {route}")));
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let (transport, here) = &self.via;
        let mut text = format!("{} {} SIP/2.0\r\n", self.method, self.uri);
        // Writing to a String cannot fail.
        let _ = write!(text, "Via: SIP/2.0/{transport} {here};branch={};rport\r\n", self.branch);
        for header in &self.headers {
            let _ = write!(text, "{header}\r\n");
        }
        let _ = write!(
            text,
            "Max-Forwards: {}\r\nFrom: {}\r\nTo: {}\r\nCall-ID: {}\r\nCSeq: {} {}\r\nContent-Length: {}\r\n\r\n",
            self.max_forwards,
            self.from,
            self.to,
            self.call_id,
            self.cseq,
            self.method,
            self.body.len()
        );
        let mut bytes = text.into_bytes();
        bytes.extend_from_slice(&self.body);
        bytes
    }
}

/// Received message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Got(pub String);

impl Got {
    /// Returns the first line.
    pub fn start(&self) -> &str {
        self.0.lines().next().unwrap_or_default()
    }

    /// Returns the status of a response; 0 for a request.
    pub fn status(&self) -> u16 {
        status(self.0.as_bytes()).unwrap_or(0)
    }

    /// Returns the first word of the message: the method of a request.
    pub fn method(&self) -> &str {
        self.start().split(' ').next().unwrap_or_default()
    }

    /// Returns the Request-URI.
    pub fn uri(&self) -> &str {
        self.start().split(' ').nth(1).unwrap_or_default()
    }

    /// Returns the value of each line of a header field.
    pub fn all(&self, name: &str) -> Vec<&str> {
        let head = self.0.split("\r\n\r\n").next().unwrap_or_default();
        let lines = head.lines().skip(1).filter_map(|line| line.split_once(':'));
        lines.filter(|(own, _)| own.trim().eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).collect()
    }

    /// Returns the value of the first line of a header field.
    ///
    /// # Panics
    /// There is none.
    pub fn one(&self, name: &str) -> &str {
        self.all(name).first().copied().unwrap_or_else(|| panic!("no {name} in {}", self.0))
    }

    /// Returns the branch of the first Via.
    ///
    /// # Panics
    /// There is none.
    pub fn branch(&self) -> &str {
        let (_, rest) = self.one("Via").split_once("branch=").expect("a branch");
        rest.split([';', ',']).next().unwrap_or_default()
    }

    /// Returns the response of a user agent to this request, see [`respond`]. `lines`: further header lines.
    pub fn respond(&self, status: u16, to_tag: &str, lines: &str) -> String {
        let lines: Vec<String> = lines.lines().map(|line| line.trim_end().to_owned()).collect();
        String::from_utf8(respond(self.0.as_bytes(), status, to_tag, &lines)).expect("text")
    }
}

/// Returns the response of a user agent to a request: Via, Record-Route, From, To, Call-ID and CSeq by RFC 3261 section
/// 8.2.6.2, a tag for To if it has none, and further header lines.
pub fn respond(request: &[u8], status: u16, to_tag: &str, headers: &[String]) -> Vec<u8> {
    let mut text = format!("SIP/2.0 {status} As told\r\n");
    for line in lines(request) {
        let Some((name, value)) = line.split_once(':') else { continue };
        match name.trim().to_ascii_lowercase().as_str() {
            "via" | "v" | "record-route" | "from" | "f" | "call-id" | "i" | "cseq" => {
                let _ = write!(text, "{line}\r\n");
            }
            "to" | "t" => {
                let tagged = value.contains(";tag=") || status == 100;
                let tag = if tagged { String::new() } else { format!(";tag={to_tag}") };
                let _ = write!(text, "{line}{tag}\r\n");
            }
            _ => {}
        }
    }
    for header in headers {
        let _ = write!(text, "{header}\r\n");
    }
    text.push_str("Content-Length: 0\r\n\r\n");
    text.into_bytes()
}

/// Returns the status code, or `None` if it is not a response.
pub fn status(message: &[u8]) -> Option<u16> {
    let rest = message.strip_prefix(b"SIP/2.0 ")?;
    std::str::from_utf8(rest.get(..3)?).ok()?.parse().ok()
}

/// Returns the method, or `None` if it is not a request.
pub fn method(message: &[u8]) -> Option<String> {
    if status(message).is_some() {
        return None;
    }
    let end = message.iter().position(|byte| *byte == b' ')?;
    Some(String::from_utf8_lossy(&message[..end]).into_owned())
}

/// Returns the method of CSeq.
pub fn cseq_method(message: &[u8]) -> String {
    field(message, "CSeq").and_then(|cseq| cseq.split_whitespace().nth(1).map(String::from)).unwrap_or_default()
}

/// Returns the Request-URI of a request.
pub fn request_uri(message: &[u8]) -> String {
    lines(message).first().and_then(|line| line.split(' ').nth(1)).unwrap_or_default().to_owned()
}

/// Returns the first value of a header field.
pub fn field(message: &[u8], name: &str) -> Option<String> {
    fields(message, name).into_iter().next()
}

/// Returns the value of each line of a header field; splits lists of name-addrs in one line.
pub fn fields(message: &[u8], name: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in lines(message).iter().skip(1) {
        let Some((before, value)) = line.split_once(':') else { continue };
        if before.trim().eq_ignore_ascii_case(name) {
            found.extend(
                value.replace(">,", ">\n").replace(", <", "\n<").split('\n').map(|value| value.trim().to_owned()),
            );
        }
    }
    found
}

/// Returns the port of the first stream of audio in the description of a message; `None` if there is none.
pub fn audio_port(message: &[u8]) -> Option<u16> {
    let text = String::from_utf8_lossy(message);
    let stream = text.lines().find_map(|line| line.strip_prefix("m=audio "))?;
    stream.split(' ').next()?.parse().ok()
}

/// Returns the URI of a name-addr or addr-spec.
pub fn address(value: &str) -> String {
    match value.split_once('<') {
        Some((_, rest)) => rest.split('>').next().unwrap_or_default().into(),
        None => value.split(';').next().unwrap_or_default().trim().into(),
    }
}

/// Returns the value of a parameter.
pub fn parameter(value: &str, name: &str) -> Option<String> {
    value.split(';').skip(1).find_map(|parameter| {
        let (before, after) = parameter.split_once('=').unwrap_or((parameter, ""));
        before.trim().eq_ignore_ascii_case(name).then(|| after.trim().to_owned())
    })
}

/// Returns start line and header lines, with folded lines joined.
fn lines(message: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(message);
    let head = text.split("\r\n\r\n").next().unwrap_or_default();
    let mut lines: Vec<String> = Vec::new();
    for line in head.split("\r\n") {
        match lines.last_mut() {
            Some(last) if line.starts_with([' ', '\t']) => {
                last.push(' ');
                last.push_str(line.trim_start());
            }
            _ => lines.push(line.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_can_be_read() {
        let here = "127.0.0.1:5099".parse().expect("an address");
        let invite = Request::new("INVITE", "sip:bob@127.0.0.1", "udp", here).with("Contact: <sip:a@127.0.0.1:5099>");
        let bytes = invite.bytes();
        assert_eq!(method(&bytes).as_deref(), Some("INVITE"));
        assert_eq!(request_uri(&bytes), "sip:bob@127.0.0.1");
        let answer = respond(&bytes, 200, "t", &["Contact: <sip:bob@127.0.0.9:7>".into()]);
        assert_eq!(status(&answer), Some(200));
        assert_eq!(field(&answer, "via"), field(&bytes, "Via"));
        let bye = invite.within("BYE", &answer).bytes();
        assert_eq!(request_uri(&bye), "sip:bob@127.0.0.9:7");
        assert_eq!(cseq_method(&bye), "BYE");
        assert_eq!(parameter(&field(&bye, "To").expect("To"), "tag").as_deref(), Some("t"));
    }
}
