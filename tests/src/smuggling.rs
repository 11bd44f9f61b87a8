//! Messages for request smuggling: readers may disagree about the end of a line, of a header or of a message. Each has
//! a separate request in its body and a separate header line in the text of others.

use std::fmt::Write;

use crate::random::Random;
use crate::strict::Strict;
use crate::text::unique;

/// Message as sent.
#[derive(Debug, Clone)]
pub struct Sent {
    /// Branch of its Via, which no mutation changes and no other message has.
    pub branch: String,
    pub bytes: Vec<u8>,
}

/// Meaning of a message for a reader that accepts CRLF and LF as line ends.
struct Meant {
    headers: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
}

/// Request in the body of each message, which no reader may take for a message.
const PASSENGER: &str = "INVITE sip:boss@example.org SIP/2.0\r\nVia: SIP/2.0/TCP 127.0.0.1:9;branch=z9hG4bKpassenger\r\n\
    Max-Forwards: 70\r\nFrom: <sip:passenger@example.net>;tag=p\r\nTo: <sip:boss@example.org>\r\nCall-ID: passenger\r\n\
    CSeq: 1 INVITE\r\nContact: <sip:passenger@127.0.0.1:9>\r\nContent-Length: 0\r\n\r\n";

/// Replacements of CRLF. The first ones are line ends to us.
const ENDS: [&str; 14] = [
    "\n", "\n", "\r\n\r\n", "\n\r\n", "\r", "\r\r\n", "\r\n\r", "\r\n\n", "\u{b}", "\u{c}", "\0", "\u{85}", "\u{2028}",
    "\u{1e}",
];

/// Endless sequence of such messages from a seed.
#[derive(Debug)]
pub struct Smuggler {
    random: Random,
    number: u64,
    word: String,
    /// True for a stream: variants that would desynchronize the sender itself are left out.
    stream: bool,
}

/// Message before it is written.
struct Draft {
    lead: Vec<u8>,
    /// Start line, header lines and the blank line, each with its line end.
    lines: Vec<(Vec<u8>, Vec<u8>)>,
    body: Vec<u8>,
    tail: Vec<u8>,
}

impl Smuggler {
    /// Creates a sequence; `stream`: the messages are sent over a stream.
    pub fn new(seed: u64, stream: bool) -> Self {
        Self { random: Random::new(seed), number: 0, word: unique("smuggler"), stream }
    }

    /// Returns a MESSAGE for this user; `via` is the sent-by with its transport, such as `UDP 127.0.0.1:5060`.
    pub fn message(&mut self, uri: &str, via: &str) -> Sent {
        self.number += 1;
        let draft = self.draft(uri, via);
        self.mutated(draft)
    }

    /// Returns a 200 to such a message.
    pub fn answer(&mut self, request: &Strict) -> Sent {
        self.number += 1;
        let draft = self.answer_draft(request);
        self.mutated(draft)
    }

    fn mutated(&mut self, mut draft: Draft) -> Sent {
        for _ in 0..self.random.below(4) {
            self.mutate(&mut draft);
        }
        self.written(draft)
    }

    fn written(&self, draft: Draft) -> Sent {
        let mut bytes = draft.lead;
        for (line, end) in &draft.lines {
            bytes.extend_from_slice(line);
            bytes.extend_from_slice(end);
        }
        bytes.extend_from_slice(&draft.body);
        bytes.extend_from_slice(&draft.tail);
        Sent { branch: self.branch(), bytes }
    }

    /// Returns a message without mutations; its answer proves that all earlier messages were read.
    pub fn plain(&mut self, uri: &str, via: &str) -> Sent {
        self.number += 1;
        let draft = self.draft(uri, via);
        self.written(draft)
    }

    /// Returns an answer without mutations.
    pub fn plain_answer(&mut self, request: &Strict) -> Sent {
        self.number += 1;
        let draft = self.answer_draft(request);
        self.written(draft)
    }

    fn branch(&self) -> String {
        format!("z9hG4bK{}.{}", self.word, self.number)
    }

    fn draft(&mut self, uri: &str, via: &str) -> Draft {
        let (n, word, branch) = (self.number, &self.word, self.branch());
        let head = format!(
            "MESSAGE {uri} SIP/2.0\nVia: SIP/2.0/{via};branch={branch};rport\nMax-Forwards: 70\n\
             From: \"A Smuggler\" <sip:s@example.net>;tag=f{n}\nTo: <{uri}>\nCall-ID: {n}.{word}\nCSeq: 7 MESSAGE"
        );
        self.with_body(&head)
    }

    fn answer_draft(&mut self, request: &Strict) -> Draft {
        let mut head = String::from("SIP/2.0 200 OK");
        for (name, value) in &request.headers {
            let value = String::from_utf8_lossy(value);
            // Writing to a String cannot fail.
            let _ = match &*name.to_ascii_lowercase() {
                "via" | "from" | "call-id" | "cseq" => write!(head, "\n{name}: {value}"),
                "to" => write!(head, "\n{name}: {value};tag=a{}", self.number),
                _ => Ok(()),
            };
        }
        self.with_body(&head)
    }

    fn with_body(&mut self, head: &str) -> Draft {
        let mut body = "words before it\r\n\r\n".repeat(self.random.below(3));
        body.push_str(PASSENGER);
        let text = format!(
            "{head}\nSubject: some words\nX-Number: {}\nContent-Type: text/plain\nContent-Length: {}",
            self.number,
            body.len()
        );
        let mut lines: Vec<_> = text.lines().map(|line| (line.as_bytes().to_vec(), b"\r\n".to_vec())).collect();
        // Content-Length at any position after the Vias.
        let vias = lines.iter().skip(1).take_while(|(line, _)| line.to_ascii_lowercase().starts_with(b"via")).count();
        let to = 1 + vias + self.random.below(lines.len() - 1 - vias);
        let last = lines.len() - 1;
        lines.swap(to, last);
        lines.push((Vec::new(), b"\r\n".to_vec()));
        Draft { lead: Vec::new(), lines, body: body.into_bytes(), tail: Vec::new() }
    }

    fn mutate(&mut self, draft: &mut Draft) {
        let last = draft.lines.len() - 1;
        let at = 1 + self.random.below(last - 1);
        match self.random.below(13) {
            0 | 1 if !self.stream || self.random.below(20) == 0 => {
                let end = ENDS[self.random.below(if self.stream { 1 } else { ENDS.len() })];
                draft.lines[self.random.below(last + 1)].1 = end.into();
            }
            2 => draft.lines.iter_mut().for_each(|(_, end)| *end = b"\n".to_vec()),
            3 => {
                // A line within a line.
                let end = ENDS[if self.stream { 8 + self.random.below(6) } else { self.random.below(ENDS.len()) }];
                let words = ["Smuggled: yes", "Content-Length: 0", "Call-ID: passenger", "INVITE sip:x SIP/2.0", "\\"];
                let word = words[self.random.below(words.len())];
                let quote = if self.random.below(3) == 0 { "\"" } else { "" };
                let line = format!("X-Words: {quote}words {end}{word}{end}{quote}");
                draft.lines.insert(at, (line.into_bytes(), b"\r\n".to_vec()));
            }
            4 => {
                let folds = ["\r\n ", "\r\n\t", "\r\n  ", "\r\n \r\n ", "\n ", "\r ", "\u{b} "];
                let fold = folds[self.random.below(if self.stream { 4 } else { folds.len() })];
                let line = &mut draft.lines[at].0;
                let colon = line.iter().position(|&b| b == b':').map_or(line.len(), |at| at + 1);
                let spaces: Vec<_> = (colon..line.len()).filter(|&at| line[at] == b' ').collect();
                let to = spaces.get(self.random.below(spaces.len())).copied().unwrap_or(line.len());
                line.splice(to..to, fold.bytes());
            }
            5 => {
                let fold = if self.random.below(2) == 0 { "\r\n " } else { "\r\n\t" };
                let text = PASSENGER.trim_end().replace("\r\n", fold);
                let line = format!("X-Fold: words{fold}{fold}{text}");
                draft.lines.insert(at, (line.into_bytes(), b"\r\n".to_vec()));
            }
            6 => self.length(draft),
            7 => {
                let line = &mut draft.lines[at].0;
                let colon = line.iter().position(|&b| b == b':').unwrap_or(0);
                match self.random.below(4) {
                    0 => line[..colon].make_ascii_uppercase(),
                    1 => line[..colon].make_ascii_lowercase(),
                    _ => _ = line.splice(colon..colon, [" ", "\t", "  "][self.random.below(3)].bytes()),
                }
            }
            8 => draft.lead = ["\r\n", "\n", "\r\n\r\n", "\r\n\r\n\r\n"][self.random.below(4)].into(),
            9 if !self.stream => draft.tail = PASSENGER.into(),
            10 => {
                let mut copy = draft.lines[at].clone();
                if self.random.below(3) == 0 {
                    copy.0.push(b'7');
                }
                let is_via = copy.0.starts_with(b"Via") || copy.0.starts_with(b"VIA") || copy.0.starts_with(b"via");
                let is_length = copy.0.to_ascii_lowercase().starts_with(b"content-length");
                if !(is_via || self.stream && is_length) {
                    draft.lines.insert(1 + self.random.below(last), copy);
                }
            }
            11 => {
                let byte = self.random.number() as u8;
                if !self.stream || !matches!(byte, b'\r' | b'\n') {
                    let mut line = b"Organization: of odd ".to_vec();
                    line.extend([byte, b'x', byte, byte]);
                    draft.lines.insert(at, (line, b"\r\n".to_vec()));
                }
            }
            _ => {
                let odd =
                    ["X-Odd:", "X-Odd: \u{fc}\u{1f600}", "X-Odd:a:b: c", "x-odd-7: \\\"", "X-Odd: \"open", "l2: 0"];
                draft.lines.insert(at, (odd[self.random.below(odd.len())].into(), b"\r\n".to_vec()));
            }
        }
    }

    /// Writes Content-Length in another way, or with another length.
    fn length(&mut self, draft: &mut Draft) {
        let length = draft.body.len();
        let is = |line: &[u8]| line.to_ascii_lowercase().starts_with(b"content-length");
        let Some(at) = draft.lines.iter().position(|(line, _)| is(line)) else { return };
        let same = [
            format!("Content-Length : {length}"),
            format!("content-length:{length}"),
            format!("l: {length}"),
            format!("L\t:\t{length}  "),
            format!("Content-Length:\r\n {length}"),
            format!("Content-Length: 000{length}"),
            format!("Content-Length: {length}\r\nl: {length}"),
            format!("l: {length}\r\nContent-Length: 0{length}"),
        ];
        let others = [
            String::from("X-Instead: y"),
            format!("Content-Length: {}", length / 2),
            String::from("Content-Length: 0"),
            format!("Content-Length: {}", length + 100),
            format!("Content-Length: +{length}"),
            format!("Content-Length: {length}, {length}"),
            format!("Content-Length: {length};x"),
            format!("Content-Length: 0x{length}"),
            format!("Content-Length: {length}\r\nContent-Length: 0"),
            format!("l: 0\r\nContent-Length: {length}"),
            String::from("Content-Length:"),
            String::from("Content-Length: -1"),
            String::from("Content-Length: 18446744073709551616"),
            format!("Content-Length: {length}\0"),
            format!("Content-Length\0: {length}"),
            format!("Content-Length\r\n : {length}"),
        ];
        let line = if self.stream || self.random.below(3) == 0 {
            &same[self.random.below(same.len())]
        } else {
            &others[self.random.below(others.len())]
        };
        draft.lines[at].0 = line.clone().into_bytes();
    }
}

impl Meant {
    /// Reads the message of a datagram by the documented rules of the server: CRLF or LF ends a line, white space at
    /// the start of a line continues the previous line, and a control octet counts as a space. Returns `None` if the
    /// message is ambiguous (a CR alone, two different lengths); no peer may get such a message.
    fn read(bytes: &[u8]) -> Option<Self> {
        let from = bytes.iter().position(|b| !matches!(b, b'\r' | b'\n'))?;
        let mut rest = &bytes[from..];
        let mut lines: Vec<Vec<u8>> = Vec::new();
        loop {
            let end = rest.iter().position(|&b| b == b'\n')?;
            let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
            rest = &rest[end + 1..];
            if line.contains(&b'\r') {
                return None;
            }
            match (lines.last_mut(), line.first()) {
                (_, None) => break,
                (Some(last), Some(b' ' | b'\t')) => {
                    last.truncate(last.trim_ascii_end().len());
                    last.push(b' ');
                    last.extend_from_slice(line.trim_ascii());
                }
                _ => lines.push(line.to_vec()),
            }
        }
        let mut headers: Vec<(String, Vec<u8>)> = Vec::new();
        for line in lines.iter().skip(1) {
            let colon = line.iter().position(|&b| b == b':')?;
            let name = line[..colon].trim_ascii_end();
            let value = &line[colon + 1..];
            let clean = |&b: &u8| if b < b' ' && b != b'\t' { b' ' } else { b };
            let short = name.eq_ignore_ascii_case(b"l");
            let name =
                if short { "content-length".into() } else { String::from_utf8(name.to_ascii_lowercase()).ok()? };
            let number = name == "content-length";
            let value: Vec<u8> = if number { value.to_vec() } else { value.iter().map(clean).collect() };
            let value = single_spaced(&value);
            let once = ["from", "to", "call-id", "cseq", "max-forwards"].contains(&name.as_str());
            if !(once && headers.iter().any(|header| *header == (name.clone(), value.clone()))) {
                headers.push((name, value));
            }
        }
        let mut length = None;
        for (_, value) in headers.iter().filter(|(name, _)| name == "content-length") {
            let digits = std::str::from_utf8(value).ok().filter(|v| v.bytes().all(|b| b.is_ascii_digit()))?;
            let number: usize = digits.parse().ok()?;
            if length.is_some_and(|other| other != number) {
                return None;
            }
            length = Some(number);
        }
        let body = rest.get(..length.unwrap_or(rest.len()))?.to_vec();
        headers.retain(|(name, _)| !CHANGED.contains(&name.as_str()));
        Some(Self { headers, body })
    }
}

/// Compares a received message with the sent one: the same header fields in the same order, except those that a proxy
/// changes, and the same body.
///
/// # Errors
/// The difference, or that the sent message is ambiguous.
pub fn compare(sent: &[u8], got: &Strict) -> Result<(), String> {
    let meant = Meant::read(sent).ok_or_else(|| String::from("it says nothing clear"))?;
    let names = got.headers.iter().map(|(name, value)| (name.to_ascii_lowercase(), single_spaced(value)));
    let headers: Vec<_> = names.filter(|(name, _)| !CHANGED.contains(&name.as_str()) && name != "l").collect();
    if headers != meant.headers {
        let show = |headers: &[(String, Vec<u8>)]| {
            headers.iter().map(|(n, v)| format!("{n}: {}\n", v.escape_ascii())).collect::<String>()
        };
        return Err(format!("header fields\n{}became\n{}", show(&meant.headers), show(&headers)));
    }
    if got.body != meant.body {
        return Err(format!("body {} became {}", meant.body.escape_ascii(), got.body.escape_ascii()));
    }
    Ok(())
}

/// Replaces white space between words by one space (RFC 3261 section 7.3.1).
fn single_spaced(value: &[u8]) -> Vec<u8> {
    let words = value.split(|b| matches!(b, b' ' | b'\t' | b'\r' | b'\n')).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(&b' ')
}

/// Header fields that a proxy writes itself.
const CHANGED: [&str; 7] =
    ["via", "max-forwards", "max-breadth", "route", "record-route", "content-length", "proxy-authorization"];
