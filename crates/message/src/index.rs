//! One pass over the received bytes: where the start line, each header line and the body are.

use crate::{Error, Limits, Method, Name, Reason};
use std::ops::Range;

/// Where one header line (with its folded continuation) stands in the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// First byte of the name.
    pub start: u32,
    /// First byte of the value, white space after the colon skipped.
    pub value: u32,
    /// One past the last byte of the value, white space before the line end skipped.
    pub value_end: u32,
    /// One past the line end: the next line starts here.
    pub end: u32,
    /// Bytes of the name.
    pub name_len: u16,
    pub name: Name,
    /// The value goes over several lines (RFC 3261 section 7.3.1).
    pub folded: bool,
}

/// The start line, told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// `Method SP Request-URI SP SIP/2.0`; the range is the Request-URI's.
    Request { method: Method, method_len: u16, uri: (u32, u32) },
    /// `SIP/2.0 SP code SP reason`; the range is the reason's.
    Status { code: u16, reason: (u32, u32) },
}

/// Offsets of one message. Made once and filled again for each message, so that parsing allocates
/// nothing once warm.
#[derive(Clone, Debug)]
pub struct Index {
    pub(crate) start: Start,
    pub(crate) lines: Vec<Line>,
    /// Line number + 1 of the first line of each name; 0: none.
    pub(crate) first: [u16; Name::COUNT],
    /// End of the start line: the first header line starts here.
    pub(crate) headers: u32,
    pub(crate) body: u32,
    pub(crate) end: u32,
}

impl Default for Index {
    fn default() -> Self {
        Self {
            start: Start::Status { code: 0, reason: (0, 0) },
            lines: Vec::with_capacity(32),
            first: [0; Name::COUNT],
            headers: 0,
            body: 0,
            end: 0,
        }
    }
}

impl Index {
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads one datagram, or one message that a [`crate::frame`] reader cut from a stream.
    ///
    /// Leading line ends are skipped (RFC 3261 section 7.5). CRLF, bare LF and bare CR end a line. With
    /// Content-Length the body is what it says and bytes beyond are no part of the message (section
    /// 18.3); without, the body goes to the end.
    ///
    /// # Errors
    /// What is wrong and where; the index then holds the lines read so far, so that an answer can still
    /// be made from them.
    pub fn parse(&mut self, bytes: &[u8], limits: &Limits) -> Result<(), Error> {
        self.lines.clear();
        self.first = [0; Name::COUNT];
        self.start = Start::Status { code: 0, reason: (0, 0) };
        (self.headers, self.body, self.end) = (0, 0, 0);
        if bytes.len() > limits.message {
            // The header may still be read, so that the answer finds its way.
            let _ = self.read(&bytes[..limits.message], limits);
            return Err(Error::new(Reason::MessageTooLarge, limits.message));
        }
        self.read(bytes, limits)
    }

    fn read(&mut self, bytes: &[u8], limits: &Limits) -> Result<(), Error> {
        let mut at = bytes.iter().position(|b| !matches!(b, b'\r' | b'\n')).ok_or(Error::new(Reason::Empty, 0))?;
        let (line, next) = line_end(bytes, at);
        self.start = start_line(bytes, at..line, limits)?;
        at = next;
        self.headers = at as u32;
        loop {
            if at >= bytes.len() {
                (self.body, self.end) = (at as u32, at as u32);
                return Err(Error::new(Reason::Unterminated, at));
            }
            let (mut end, mut next) = line_end(bytes, at);
            if end == at {
                at = next;
                break;
            }
            let mut folded = false;
            while let Some(b' ' | b'\t') = bytes.get(next) {
                folded = true;
                (end, next) = line_end(bytes, next);
            }
            if self.lines.len() >= limits.headers {
                return Err(Error::new(Reason::TooManyHeaders, at));
            }
            self.header_line(bytes, at, end, next, folded)?;
            at = next;
        }
        self.body = at as u32;
        self.end = bytes.len() as u32;
        if let Some(length) = self.content_length(bytes)? {
            if length > limits.body {
                return Err(Error::new(Reason::BodyTooLarge, at));
            }
            if length > bytes.len() - at {
                return Err(Error::new(Reason::BodyTooShort, at));
            }
            self.end = (at + length) as u32;
        } else if bytes.len() - at > limits.body {
            return Err(Error::new(Reason::BodyTooLarge, at));
        }
        Ok(())
    }

    fn header_line(&mut self, bytes: &[u8], at: usize, end: usize, next: usize, folded: bool) -> Result<(), Error> {
        let line = &bytes[at..end];
        let colon = memchr::memchr(b':', line).ok_or(Error::new(Reason::HeaderName, at))?;
        let name = line[..colon].trim_ascii_end();
        if name.is_empty() || name.len() > u16::MAX as usize || !name.iter().all(|&b| is_token(b)) {
            return Err(Error::new(Reason::HeaderName, at));
        }
        let value = &line[colon + 1..];
        let trimmed = value.trim_ascii();
        let start = end - value.trim_ascii_start().len();
        let kind = Name::of(name);
        let first = &mut self.first[kind as usize];
        if *first == 0 {
            *first = self.lines.len() as u16 + 1;
        }
        self.lines.push(Line {
            start: at as u32,
            value: start as u32,
            value_end: (start + trimmed.len()) as u32,
            end: next as u32,
            name_len: name.len() as u16,
            name: kind,
            folded,
        });
        Ok(())
    }

    /// The one value of Content-Length; several that agree count as one.
    fn content_length(&self, bytes: &[u8]) -> Result<Option<usize>, Error> {
        let mut found = None;
        for line in self.lines_of(Name::ContentLength) {
            let value = &bytes[line.value as usize..line.value_end as usize];
            let wrong = Error::new(Reason::ContentLength, line.value as usize);
            if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
                return Err(wrong);
            }
            let number = value.iter().try_fold(0usize, |n, d| n.checked_mul(10)?.checked_add((d - b'0') as usize)).ok_or(wrong)?;
            if found.is_some_and(|other| other != number) {
                return Err(wrong);
            }
            found = Some(number);
        }
        Ok(found)
    }

    /// The start line.
    pub fn start(&self) -> Start {
        self.start
    }

    /// All header lines in order.
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// The first line of this name.
    #[inline]
    pub fn first(&self, name: Name) -> Option<&Line> {
        match self.first[name as usize] {
            0 => None,
            n => self.lines.get(n as usize - 1),
        }
    }

    /// Every line of this name in order.
    #[inline]
    pub fn lines_of(&self, name: Name) -> impl Iterator<Item = &Line> + Clone {
        let from = match self.first[name as usize] {
            0 => self.lines.len(),
            n => n as usize - 1,
        };
        self.lines[from..].iter().filter(move |l| l.name == name)
    }

    /// Where the first header line starts: one past the start line's end.
    pub fn headers_start(&self) -> usize {
        self.headers as usize
    }

    /// One past the last header line: the blank line starts here.
    pub fn headers_end(&self) -> usize {
        self.lines.last().map_or(self.headers as usize, |l| l.end as usize)
    }

    pub fn body(&self) -> Range<usize> {
        self.body as usize..self.end as usize
    }

    /// One past the message's last byte; what follows in the datagram is no part of it.
    pub fn end(&self) -> usize {
        self.end as usize
    }
}

/// From `at`: (one past the last byte of the line, start of the next line).
#[inline]
fn line_end(bytes: &[u8], at: usize) -> (usize, usize) {
    match memchr::memchr2(b'\r', b'\n', &bytes[at..]) {
        None => (bytes.len(), bytes.len()),
        Some(n) => {
            let end = at + n;
            let crlf = bytes[end] == b'\r' && bytes.get(end + 1) == Some(&b'\n');
            (end, end + 1 + crlf as usize)
        }
    }
}

fn start_line(bytes: &[u8], line: Range<usize>, limits: &Limits) -> Result<Start, Error> {
    let at = line.start;
    let text = &bytes[line.clone()];
    let wrong = |reason, offset| Error::new(reason, offset);
    let space = memchr::memchr(b' ', text).ok_or(wrong(Reason::StartLine, at))?;
    let first = &text[..space];
    if first.len() > 3 && first[..4].eq_ignore_ascii_case(b"SIP/") {
        if !first.eq_ignore_ascii_case(b"SIP/2.0") {
            return Err(wrong(Reason::Version, at));
        }
        let rest = &text[space + 1..];
        let code = match rest {
            [a, b, c, tail @ ..] if matches!(tail.first(), None | Some(b' ')) && [a, b, c].iter().all(|d| d.is_ascii_digit()) => {
                (*a - b'0') as u16 * 100 + (*b - b'0') as u16 * 10 + (*c - b'0') as u16
            }
            _ => return Err(wrong(Reason::StatusCode, at + space + 1)),
        };
        if !(100..700).contains(&code) {
            return Err(wrong(Reason::StatusCode, at + space + 1));
        }
        let reason = (line.start + (space + 5).min(text.len())) as u32;
        return Ok(Start::Status { code, reason: (reason, line.end as u32) });
    }
    if first.is_empty() || first.len() > u16::MAX as usize || !first.iter().all(|&b| is_token(b)) {
        return Err(wrong(Reason::Method, at));
    }
    let last = memchr::memrchr(b' ', text).unwrap_or(space);
    if last == space {
        return Err(wrong(Reason::StartLine, at));
    }
    let version = &text[last + 1..];
    if !version.eq_ignore_ascii_case(b"SIP/2.0") {
        let reason = if version.len() > 3 && version[..4].eq_ignore_ascii_case(b"SIP/") { Reason::Version } else { Reason::StartLine };
        return Err(wrong(reason, at + last + 1));
    }
    let uri = &text[space + 1..last];
    if uri.is_empty() || uri.iter().any(|&b| b <= b' ' || b == 0x7f) {
        return Err(wrong(Reason::RequestUri, at + space + 1));
    }
    if uri.len() > limits.uri {
        return Err(wrong(Reason::UriTooLong, at + space + 1));
    }
    Ok(Start::Request {
        method: Method::of(first),
        method_len: first.len() as u16,
        uri: ((at + space + 1) as u32, (at + last) as u32),
    })
}

/// A token character (RFC 3261 section 25.1).
#[inline]
pub(crate) const fn is_token(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'!' | b'%' | b'*' | b'_' | b'+' | b'`' | b'\'' | b'~')
}
