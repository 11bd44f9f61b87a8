//! A message: the received bytes together with their index.

use crate::index::Start;
use crate::{Index, Line, Method, Name};

/// View of one parsed message. Copies nothing; cheap to pass by value.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    bytes: &'a [u8],
    index: &'a Index,
}

impl<'a> Message<'a> {
    /// Creates a view. `index` must have been filled from exactly these `bytes`.
    pub fn new(bytes: &'a [u8], index: &'a Index) -> Self {
        debug_assert!(index.end() <= bytes.len());
        Self { bytes, index }
    }

    /// Returns all bytes of the message, leading line ends included, bytes beyond Content-Length excluded.
    pub fn bytes(&self) -> &'a [u8] {
        &self.bytes[..self.index.end()]
    }

    /// Offsets of start line, header lines and body.
    pub fn index(&self) -> &'a Index {
        self.index
    }

    /// Tells whether this is a request. The kind of a refused start line is determined by its beginning.
    pub fn is_request(&self) -> bool {
        matches!(self.index.start, Start::Request { .. })
    }

    /// Returns the method of a request; `None` for a response (its CSeq has one).
    pub fn method(&self) -> Option<Method> {
        match self.index.start {
            Start::Request { method, .. } => Some(method),
            Start::Status { .. } => None,
        }
    }

    /// Returns the raw method of a request; empty for a response.
    pub fn method_text(&self) -> &'a [u8] {
        match self.index.start {
            Start::Request { method_len, uri, .. } => {
                let end = uri.0 as usize - 1;
                &self.bytes[end - method_len as usize..end]
            }
            Start::Status { .. } => b"",
        }
    }

    /// Returns the raw Request-URI; empty for a response.
    pub fn request_uri(&self) -> &'a [u8] {
        match self.index.start {
            Start::Request { uri, .. } => &self.bytes[uri.0 as usize..uri.1 as usize],
            Start::Status { .. } => b"",
        }
    }

    /// Status code of a response, 100 to 699; `None` for a request.
    pub fn status(&self) -> Option<u16> {
        match self.index.start {
            Start::Status { code, .. } if code != 0 => Some(code),
            _ => None,
        }
    }

    /// Returns the raw reason phrase of a response, maybe empty; empty for a request.
    pub fn reason(&self) -> &'a [u8] {
        match self.index.start {
            Start::Status { reason, .. } => &self.bytes[reason.0 as usize..reason.1 as usize],
            Start::Request { .. } => b"",
        }
    }

    /// Returns the raw value of one line, still folded.
    #[inline]
    pub fn value(&self, line: &Line) -> &'a [u8] {
        &self.bytes[line.value as usize..line.value_end as usize]
    }

    /// Returns the raw name of one line.
    pub fn name(&self, line: &Line) -> &'a [u8] {
        &self.bytes[line.start as usize..line.start as usize + line.name_len as usize]
    }

    /// Returns the raw value of the first line of this name.
    #[inline]
    pub fn header(&self, name: Name) -> Option<&'a [u8]> {
        self.index.first(name).map(|l| self.value(l))
    }

    /// Returns the raw values of all lines of this name, in order.
    pub fn headers(&self, name: Name) -> impl Iterator<Item = &'a [u8]> + Clone {
        let message = *self;
        self.index.lines_of(name).map(move |l| message.value(l))
    }

    /// Returns the raw value of the first line with this name, for names that [`Name`] does not list.
    pub fn header_named(&self, name: &[u8]) -> Option<&'a [u8]> {
        self.index.lines.iter().find(|l| self.name(l).eq_ignore_ascii_case(name)).map(|l| self.value(l))
    }

    /// Tells whether a line has this name, with any value.
    pub fn has(&self, name: Name) -> bool {
        self.index.first[name as usize] != 0
    }

    /// Returns the body, as long as Content-Length says (RFC 3261 section 18.3); empty if there is none.
    pub fn body(&self) -> &'a [u8] {
        &self.bytes[self.index.body()]
    }
}
