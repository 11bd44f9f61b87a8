//! Index of a message, filled in one pass over the received bytes: positions of the start line, of each header line and
//! of the body.

use crate::octet::{is_control, is_token};
use crate::scan::{self, Lines};
use crate::start_line;
use crate::{Error, Limits, Name, Reason};
use std::ops::Range;

pub use crate::start_line::Start;

/// Position of one header line (with its folded continuation) in the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// Offset of the first byte of the name.
    pub start: u32,
    /// Offset of the first byte of the value, after the white space that follows the colon.
    pub value: u32,
    /// Offset after the last byte of the value, without white space at the end.
    pub value_end: u32,
    /// Offset after the line end, where the next line starts.
    pub end: u32,
    /// Length of the name in bytes.
    pub name_len: u16,
    /// Name; [`Name::Other`] if the table does not list it: then [`Message::name`](crate::Message::name) has the text.
    pub name: Name,
    /// True if the value extends over several lines (RFC 3261 section 7.3.1).
    pub folded: bool,
}

/// Conformance of the format of start line and header. Readers interpret deviations differently, so send a message only
/// in [`Form::Canonical`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    /// Every reader finds the same lines and the same body: each line ends with CRLF and is not folded, no white space
    /// precedes a colon, HTAB is the only control octet, there is one Content-Length with the plain digits of the
    /// body's length, and no single-valued header field is repeated.
    Canonical,
    /// The message has one meaning, but not every reader may find it. [`crate::canonical::write`] converts the message
    /// to canonical form.
    Loose,
    /// A CR without LF ends a line for this crate and is part of a line for other readers (RFC 3261 section 7 demands
    /// CRLF).
    Ambiguous,
}

/// Offsets of one message. Create it once and fill it for each message: once warm, parsing allocates nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Index {
    pub(crate) start: Start,
    pub(crate) lines: Vec<Line>,
    /// Line number + 1 of the first line of each name; 0 if there is none.
    pub(crate) first: [u16; Name::COUNT],
    /// One bit for each name that has more than one line.
    pub(crate) repeated: u128,
    pub(crate) form: Form,
    /// True if a line of the header ends with a bare CR or LF.
    pub(crate) bare_line_ends: bool,
    /// Offset after the start line, where the first header line starts.
    pub(crate) headers: u32,
    pub(crate) body: u32,
    pub(crate) end: u32,
}

impl Default for Index {
    fn default() -> Self {
        Self {
            start: Start::Status { code: 0, reason: (0, 0) },
            lines: Vec::new(),
            first: [0; Name::COUNT],
            repeated: 0,
            form: Form::Loose,
            bare_line_ends: false,
            headers: 0,
            body: 0,
            end: 0,
        }
    }
}

const _: () = assert!(Name::COUNT <= u128::BITS as usize);

/// Size of a header above which values are counted. A smaller header cannot have so many values that they cost much.
const WORTH_COUNTING: usize = 4_096;

impl Index {
    /// Creates an empty index; allocates nothing. It can be filled any number of times.
    pub fn new() -> Self {
        Self::default()
    }

    /// Parses one datagram, or one message that a [`crate::frame`] reader cut from a stream.
    ///
    /// Leading line ends are skipped (RFC 3261 section 7.5). CRLF, bare LF and bare CR end a line. Content-Length
    /// determines the body, and bytes beyond it are not part of the message (section 18.3). Without Content-Length, the
    /// body extends to the end of the bytes.
    ///
    /// # Errors
    /// The first fault and its position. The index then still holds all that could be parsed, so that the request can
    /// be answered: the well-formed lines, up to the limit, and from the start line the kind and the method.
    pub fn parse(&mut self, bytes: &[u8], limits: &Limits) -> Result<(), Error> {
        self.lines.clear();
        self.first = [0; Name::COUNT];
        self.repeated = 0;
        (self.form, self.bare_line_ends) = (Form::Loose, false);
        self.start = Start::Status { code: 0, reason: (0, 0) };
        (self.headers, self.body, self.end) = (0, 0, 0);
        let most = limits.message.min(u32::MAX as usize);
        if bytes.len() > most {
            // The header is parsed nevertheless, so that the answer can be routed.
            let _ = self.read(&bytes[..most], limits);
            return Err(Error::new(Reason::MessageTooLarge, most));
        }
        self.read(bytes, limits)
    }

    fn read(&mut self, bytes: &[u8], limits: &Limits) -> Result<(), Error> {
        let from = bytes.iter().position(|b| !matches!(b, b'\r' | b'\n')).ok_or(Error::new(Reason::Empty, 0))?;
        let mut lines = Lines::new(bytes, from);
        let end = lines.end(from);
        let mut fault = None;
        let mut form = if from == 0 { Form::Canonical } else { Form::Loose };
        self.start = start_line::parse(bytes, from..end, limits).unwrap_or_else(|error| {
            fault = Some(error);
            start_line::of_refused(bytes, from..end)
        });
        let mut at = scan::past(bytes, end);
        if at - end != 2 {
            form = form.max(self.bare(bytes, end));
        }
        self.headers = at as u32;
        // Line numbers are kept in 16 bits.
        let most = limits.headers.min(u16::MAX as usize - 1);
        loop {
            let (colon, mut end) = lines.colon_and_end(at);
            match bytes.get(colon) {
                Some(b':') => (),
                Some(_) if colon == at => break,
                None if colon == at => {
                    (self.body, self.end) = (at as u32, at as u32);
                    return Err(fault.unwrap_or_else(|| Error::new(Reason::Unterminated, at)));
                }
                // No colon in the line: `header_line` reports it.
                _ => (),
            }
            let mut next = scan::past(bytes, end);
            if next - end != 2 {
                form = form.max(self.bare(bytes, end));
            }
            let mut folded = false;
            while let Some(b' ' | b'\t') = bytes.get(next) {
                folded = true;
                end = lines.end(next);
                next = scan::past(bytes, end);
                form = form.max(if next - end == 2 { Form::Loose } else { self.bare(bytes, end) });
            }
            if self.lines.len() >= most {
                (self.body, self.end) = (at as u32, at as u32);
                return Err(fault.unwrap_or_else(|| Error::new(Reason::TooManyHeaders, at)));
            }
            match self.header_line(bytes, at, colon, end, next, folded) {
                Ok(name_end) if name_end == colon => (),
                Ok(_) => form = form.max(Form::Loose),
                Err(error) => _ = fault.get_or_insert(error),
            }
            at = next;
        }
        if at - self.headers as usize > WORTH_COUNTING && self.has_more_values(bytes, most) {
            (self.body, self.end) = (at as u32, at as u32);
            return Err(fault.unwrap_or_else(|| Error::new(Reason::TooManyHeaders, at)));
        }
        let body = scan::past(bytes, at);
        if body - at != 2 {
            form = form.max(self.bare(bytes, at));
        }
        self.body = body as u32;
        self.end = bytes.len() as u32;
        if let Some(fault) = fault {
            return Err(fault);
        }
        if let Some(length) = self.content_length(bytes)? {
            if length > limits.body {
                return Err(Error::new(Reason::BodyTooLarge, body));
            }
            if length > bytes.len() - body {
                return Err(Error::new(Reason::BodyTooShort, body));
            }
            self.end = (body + length) as u32;
        } else if bytes.len() - body > limits.body {
            return Err(Error::new(Reason::BodyTooLarge, body));
        }
        let plain = self.has_plain_start(bytes, from)
            && self.has_plain_length(bytes)
            && self.repeated & SINGLE_VALUED == 0
            && !(lines.controls() && bytes[..body].iter().any(|&b| is_control(b)));
        self.form = if plain { form } else { form.max(Form::Loose) };
        Ok(())
    }

    /// Tells whether the lines of list header fields have more than `most` values, or many times as many parameters.
    /// The count is approximate, because a quoted string may contain commas and semicolons.
    #[cold]
    fn has_more_values(&self, bytes: &[u8], most: usize) -> bool {
        const PARAMETERS: usize = 8;
        let list = |line: &&Line| {
            !matches!(line.name, Name::Other | Name::Subject | Name::UserAgent | Name::Server | Name::Organization)
        };
        let (mut commas, mut semicolons) = (0, 0);
        for line in self.lines.iter().filter(list) {
            for at in memchr::memchr2_iter(b',', b';', &bytes[line.value as usize..line.value_end as usize]) {
                match bytes[line.value as usize + at] {
                    b',' => commas += 1,
                    _ => semicolons += 1,
                }
            }
        }
        self.lines.len() + commas > most || semicolons > most.saturating_mul(PARAMETERS)
    }

    /// Records that a bare CR or LF ends the line at `end`.
    #[cold]
    fn bare(&mut self, bytes: &[u8], end: usize) -> Form {
        self.bare_line_ends = true;
        if bytes.get(end) == Some(&b'\r') { Form::Ambiguous } else { Form::Loose }
    }

    /// Tells whether the start line is in canonical form (see [`crate::canonical::write`]).
    #[inline]
    fn has_plain_start(&self, bytes: &[u8], from: usize) -> bool {
        const VERSION: &[u8] = b"SIP/2.0";
        let at = |at: usize| bytes.get(at..at + VERSION.len()) == Some(VERSION);
        match self.start {
            Start::Request { uri, .. } => at(uri.1 as usize + 1),
            Start::Status { reason, .. } => {
                at(from) && reason.0 as usize - from == VERSION.len() + 5 && bytes[reason.0 as usize - 1] == b' '
            }
        }
    }

    /// Tells whether there is one Content-Length in plain digits. Its value was compared with the body before.
    #[inline]
    fn has_plain_length(&self, bytes: &[u8]) -> bool {
        self.first(Name::ContentLength)
            .is_some_and(|line| bytes.get(line.value as usize) != Some(&b'0') || line.value_end - line.value == 1)
    }

    /// Records one line; `colon` is the offset of its first colon or line end. Returns the end of its name.
    #[inline(always)]
    fn header_line(
        &mut self,
        bytes: &[u8],
        at: usize,
        colon: usize,
        end: usize,
        next: usize,
        folded: bool,
    ) -> Result<usize, Error> {
        if bytes.get(colon) != Some(&b':') {
            return Err(Error::new(Reason::HeaderName, at));
        }
        let (name, name_end) = name(bytes, at, colon);
        if name == Name::Other {
            let text = &bytes[at..name_end];
            if text.is_empty() || text.len() > u16::MAX as usize || !text.iter().all(|&b| is_token(b)) {
                return Err(Error::new(Reason::HeaderName, at));
            }
        }
        let value = scan::trim(bytes, colon + 1..end);
        let first = &mut self.first[name as usize];
        if *first == 0 {
            *first = self.lines.len() as u16 + 1;
        } else {
            self.repeated |= 1 << name as u32;
        }
        self.lines.push(Line {
            start: at as u32,
            value: value.start as u32,
            value_end: value.end as u32,
            end: next as u32,
            name_len: (name_end - at) as u16,
            name,
            folded,
        });
        Ok(name_end)
    }

    /// Returns the value of Content-Length; several equal ones count as one.
    fn content_length(&self, bytes: &[u8]) -> Result<Option<usize>, Error> {
        let mut found = None;
        for line in self.lines_of(Name::ContentLength) {
            let value = &bytes[line.value as usize..line.value_end as usize];
            let wrong = Error::new(Reason::ContentLength, line.value as usize);
            let number = length(value).ok_or(wrong)?;
            if found.is_some_and(|other| other != number) {
                return Err(wrong);
            }
            found = Some(number);
        }
        Ok(found)
    }

    /// Adjusts the offsets after the value of the first line of this name was replaced in the bytes by an equally plain
    /// value that is `by` bytes longer. Nothing is parsed again.
    pub fn moved_by_value(&mut self, name: Name, by: isize) {
        let Some(at) = (self.first[name as usize] as usize).checked_sub(1) else { return };
        let moved = |offset: &mut u32| *offset = offset.wrapping_add_signed(by as i32);
        let (changed, behind) = self.lines[at..].split_first_mut().expect("a line that `first` names is there");
        moved(&mut changed.value_end);
        moved(&mut changed.end);
        for line in behind {
            moved(&mut line.start);
            moved(&mut line.value);
            moved(&mut line.value_end);
            moved(&mut line.end);
        }
        moved(&mut self.body);
        moved(&mut self.end);
    }

    /// Returns the start line.
    pub fn start(&self) -> Start {
        self.start
    }

    /// Returns all header lines in order.
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// Returns the first line of this name.
    #[inline]
    pub fn first(&self, name: Name) -> Option<&Line> {
        match self.first[name as usize] {
            0 => None,
            n => self.lines.get(n as usize - 1),
        }
    }

    /// Returns every line of this name in order.
    #[inline]
    pub fn lines_of(&self, name: Name) -> impl Iterator<Item = &Line> + Clone {
        let from = match self.first[name as usize] {
            0 => self.lines.len(),
            n => n as usize - 1,
        };
        self.lines[from..].iter().filter(move |l| l.name == name)
    }

    /// Tells whether more than one line has this name.
    #[inline]
    pub fn repeated(&self, name: Name) -> bool {
        self.repeated >> name as u32 & 1 != 0
    }

    /// Returns the form of start line and header. Refused bytes are never [`Form::Canonical`].
    #[inline]
    pub fn form(&self) -> Form {
        self.form
    }

    /// Tells whether a line of start line or header ends with a bare CR or LF, which a stricter reader may take for
    /// part of the line.
    pub fn bare_line_ends(&self) -> bool {
        self.bare_line_ends
    }

    /// Returns the offset of the first header line, after the end of the start line.
    pub fn headers_start(&self) -> usize {
        self.headers as usize
    }

    /// Returns the offset after the last header line, where the blank line starts.
    pub fn headers_end(&self) -> usize {
        self.lines.last().map_or(self.headers as usize, |l| l.end as usize)
    }

    /// Returns the range of the body; empty if there is none. If the message was refused for its body, the range of the
    /// received part.
    pub fn body(&self) -> Range<usize> {
        self.body as usize..self.end as usize
    }

    /// Returns the offset after the last byte of the message; further bytes of the datagram are not part of it.
    pub fn end(&self) -> usize {
        self.end as usize
    }
}

/// Returns the name that starts at `at`, and its end: white space may precede the colon (HCOLON, RFC 3261 section
/// 25.1).
#[inline(always)]
pub(crate) fn name(bytes: &[u8], at: usize, colon: usize) -> (Name, usize) {
    let mut end = colon;
    while end > at && matches!(bytes[end - 1], b' ' | b'\t') {
        end -= 1;
    }
    (Name::of_at(bytes, at, end - at), end)
}

/// Parses a Content-Length value, in bytes.
pub(crate) fn length(value: &[u8]) -> Option<usize> {
    if value.is_empty() {
        return None;
    }
    value.iter().try_fold(0usize, |n, d| match d {
        b'0'..=b'9' => n.checked_mul(10)?.checked_add((d - b'0') as usize),
        _ => None,
    })
}

/// Single-valued header fields on which elements on the path act. A reader that uses the first line and a reader that
/// uses the last line must find the same value.
const SINGLE_VALUED: u128 = {
    let (mut names, mut n) = (0, 0);
    while n < Name::KNOWN.len() {
        if Name::KNOWN[n].is_single_valued() {
            names |= 1 << Name::KNOWN[n] as u32;
        }
        n += 1;
    }
    names
};

#[cfg(test)]
mod tests;
