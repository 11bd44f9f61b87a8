//! Strict reader of streams according to RFC 3261: only CRLF ends a line, only Content-Length in plain digits ends a
//! message (sections 7, 18.3, 25.1). It shares no code with the parser under test.

use std::fmt;

/// Input that a strict reader rejects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Violated rule.
    pub rule: &'static str,
    /// Bytes from the start of the message on, as text.
    pub text: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.text)
    }
}

/// Parsed message.
#[derive(Clone, PartialEq, Eq)]
pub struct Strict {
    /// Start line.
    pub start: String,
    /// Names and values in order, unchanged.
    pub headers: Vec<(String, Vec<u8>)>,
    /// Body, with the length of Content-Length.
    pub body: Vec<u8>,
}

impl fmt::Debug for Strict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.start)?;
        for (name, value) in &self.headers {
            writeln!(f, "{name}: {}", value.escape_ascii())?;
        }
        writeln!(f, "{:?}", String::from_utf8_lossy(&self.body))
    }
}

impl Strict {
    /// Returns the method of a request.
    pub fn method(&self) -> Option<&str> {
        (!self.start.starts_with("SIP/2.0 ")).then(|| self.start.split(' ').next().unwrap_or_default())
    }

    /// Returns the values of a header field by either of its names, in any case.
    pub fn all(&self, name: &str, compact: &str) -> Vec<&[u8]> {
        let is = |n: &str| n.eq_ignore_ascii_case(name) || n.eq_ignore_ascii_case(compact);
        self.headers.iter().filter(|(n, _)| is(n)).map(|(_, value)| &value[..]).collect()
    }

    /// Returns the first value of a header field, as text.
    pub fn first(&self, name: &str, compact: &str) -> String {
        self.all(name, compact).first().map(|value| String::from_utf8_lossy(value).into_owned()).unwrap_or_default()
    }
}

/// Splitter of a stream into messages.
#[derive(Debug, Default)]
pub struct Framer {
    bytes: Vec<u8>,
}

impl Framer {
    /// Adds bytes of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the bytes that are no message yet.
    pub fn rest(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the next message, if it is complete. Between messages only CRLF is allowed (RFC 5626 section 4.4.1).
    ///
    /// # Errors
    /// The first bytes are no message; the stream cannot be read further.
    pub fn next_message(&mut self) -> Result<Option<Strict>, Fault> {
        while self.bytes.starts_with(b"\r\n") {
            self.bytes.drain(..2);
        }
        let Some((message, length)) = read(&self.bytes)? else { return Ok(None) };
        self.bytes.drain(..length);
        Ok(Some(message))
    }
}

/// Reads bytes that must be exactly one message.
///
/// # Errors
/// The bytes are no message, or more than one.
pub fn only(bytes: &[u8]) -> Result<Strict, Fault> {
    match read(bytes)? {
        Some((message, length)) if length == bytes.len() => Ok(message),
        Some(_) => Err(fault("more than one message", bytes)),
        None => Err(fault("less than one message", bytes)),
    }
}

fn fault(rule: &'static str, bytes: &[u8]) -> Fault {
    Fault { rule, text: bytes[..bytes.len().min(3_000)].escape_ascii().to_string() }
}

/// Reads the first message and its length, once it is complete.
fn read(bytes: &[u8]) -> Result<Option<(Strict, usize)>, Fault> {
    let wrong = |rule| Err(fault(rule, bytes));
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
    let mut lines = Vec::new();
    let mut rest = &bytes[..end];
    while let Some(at) = rest.windows(2).position(|two| two == b"\r\n") {
        lines.push(&rest[..at]);
        rest = &rest[at + 2..];
    }
    lines.push(rest);
    for line in &lines {
        if line.iter().any(|&b| b < 0x20 && b != b'\t') {
            return wrong("a control octet or a bare line end stands in a line");
        }
    }
    let start = String::from_utf8_lossy(lines[0]).into_owned();
    let words: Vec<&str> = start.splitn(3, ' ').collect();
    let status = |text: &str| text.len() == 3 && text.bytes().all(|b| b.is_ascii_digit());
    let good = match words[..] {
        ["SIP/2.0", code, _] => status(code),
        [method, uri, "SIP/2.0"] => is_token(method.as_bytes()) && uri.contains(':') && !uri.contains('\t'),
        _ => false,
    };
    if !good {
        return wrong("the start line is none");
    }
    let mut headers = Vec::new();
    for line in &lines[1..] {
        if line.starts_with(b" ") || line.starts_with(b"\t") {
            return wrong("a line is folded");
        }
        let Some(colon) = line.iter().position(|&b| b == b':') else { return wrong("a header line has no colon") };
        if !is_token(&line[..colon]) {
            return wrong("a header name is no token right before its colon");
        }
        let name = String::from_utf8_lossy(&line[..colon]).into_owned();
        headers.push((name, line[colon + 1..].trim_ascii().to_vec()));
    }
    let mut message = Strict { start, headers, body: Vec::new() };
    // A request may lack some of these header fields, and then its answer lacks them too.
    let least = usize::from(message.method().is_some());
    for (name, compact) in [("From", "f"), ("To", "t"), ("Call-ID", "i"), ("CSeq", "CSeq")] {
        if !(least..=1).contains(&message.all(name, compact).len()) {
            return wrong("From, To, Call-ID or CSeq does not stand once");
        }
    }
    if message.all("Content-Length", "l").len() != 1 {
        return wrong("Content-Length does not stand once");
    }
    if message.all("Via", "v").is_empty() || message.all("Max-Forwards", "Max-Forwards").len() > 1 {
        return wrong("there is no Via, or more than one Max-Forwards");
    }
    let digits = message.first("Content-Length", "l");
    if digits.is_empty() || digits.len() > 9 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return wrong("Content-Length is no number");
    }
    if digits.starts_with('0') && digits.len() > 1 {
        return wrong("Content-Length could be octal");
    }
    let from = end + 4;
    let Some(to) = digits.parse::<usize>().ok().map(|length| from + length).filter(|to| *to <= bytes.len()) else {
        return Ok(None);
    };
    message.body = bytes[from..to].to_vec();
    Ok(Some((message, to)))
}

fn is_token(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(|b| b.is_ascii_alphanumeric() || b"-.!%*_+`'~".contains(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "Via: x\r\nf: a\r\nTo: b\r\ni: c\r\nCSeq: 1 MESSAGE\r\n";

    #[test]
    fn messages_are_cut_by_their_length() {
        let mut framer = Framer::default();
        let two = format!(
            "\r\nMESSAGE sip:a SIP/2.0\r\n{HEAD}l: 4\r\n\r\n\r\n\r\nSIP/2.0 200 \r\n{HEAD}Content-Length: 0\r\n\r\n"
        );
        for byte in two.as_bytes() {
            framer.push(&[*byte]);
        }
        let first = framer.next_message().expect("strict").expect("whole");
        assert_eq!((first.method(), &first.body[..]), (Some("MESSAGE"), &b"\r\n\r\n"[..]));
        let second = framer.next_message().expect("strict").expect("whole");
        assert_eq!((second.method(), second.first("call-id", "i")), (None, "c".into()));
        assert_eq!(framer.next_message(), Ok(None));
        assert!(framer.rest().is_empty());
    }

    #[test]
    fn nothing_is_forgiven() {
        let length = "Content-Length: 0";
        for (from, to) in [
            ("", ""),
            (length, "X: y"),
            (length, "l: 0\r\nContent-Length: 0"),
            (length, "Content-Length : 0"),
            (length, "Content-Length: +0"),
            (length, "Content-Length: 00"),
            (length, "Content-Length:\r\n 0"),
            (length, "Content-Length: 0\r\nX: a\nb: c"),
            (length, "Content-Length: 0\r\nX: a\rb: c"),
            (length, "Content-Length: 0\r\nX: a\0b"),
            (length, "Content-Length: 0\r\nMax-Forwards: 1\r\nMax-Forwards: 1"),
            ("To: b", "To: b\r\nt: b"),
            ("sip:a", "sip:a  "),
            ("SIP/2.0", "sip/2.0"),
        ] {
            let text = format!("MESSAGE sip:a SIP/2.0\r\n{HEAD}{length}\r\n\r\n").replacen(from, to, 1);
            assert_eq!(only(text.as_bytes()).is_ok(), from.is_empty(), "{text:?}");
        }
    }
}
