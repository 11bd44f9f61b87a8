//! A message: received bytes and their index, seen together.

use crate::index::Start;
use crate::{Index, Line, Method, Name};

/// A view of one parsed message. Copies nothing; cheap to pass by value.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    bytes: &'a [u8],
    index: &'a Index,
}

impl<'a> Message<'a> {
    /// `index` must have been filled from these very `bytes`.
    pub fn new(bytes: &'a [u8], index: &'a Index) -> Self {
        debug_assert!(index.end() <= bytes.len());
        Self { bytes, index }
    }

    /// All bytes of the message, without leading line ends removed or bytes beyond Content-Length.
    pub fn bytes(&self) -> &'a [u8] {
        &self.bytes[..self.index.end()]
    }

    /// Where start line, header lines and body stand.
    pub fn index(&self) -> &'a Index {
        self.index
    }

    /// By its start line; one that was refused counts by how it begins.
    pub fn is_request(&self) -> bool {
        matches!(self.index.start, Start::Request { .. })
    }

    /// The method of a request; of a response, none (its CSeq names one).
    pub fn method(&self) -> Option<Method> {
        match self.index.start {
            Start::Request { method, .. } => Some(method),
            Start::Status { .. } => None,
        }
    }

    /// The method of a request as it stands; empty for a response.
    pub fn method_text(&self) -> &'a [u8] {
        match self.index.start {
            Start::Request { method_len, uri, .. } => {
                let end = uri.0 as usize - 1;
                &self.bytes[end - method_len as usize..end]
            }
            Start::Status { .. } => b"",
        }
    }

    /// The Request-URI as it stands; empty for a response.
    pub fn request_uri(&self) -> &'a [u8] {
        match self.index.start {
            Start::Request { uri, .. } => &self.bytes[uri.0 as usize..uri.1 as usize],
            Start::Status { .. } => b"",
        }
    }

    /// The status code of a response, 100 to 699; of a request, none.
    pub fn status(&self) -> Option<u16> {
        match self.index.start {
            Start::Status { code, .. } if code != 0 => Some(code),
            _ => None,
        }
    }

    /// The reason phrase of a response as it stands, maybe empty; of a request, empty.
    pub fn reason(&self) -> &'a [u8] {
        match self.index.start {
            Start::Status { reason, .. } => &self.bytes[reason.0 as usize..reason.1 as usize],
            Start::Request { .. } => b"",
        }
    }

    /// The value of one line, as it stands (folding not undone).
    #[inline]
    pub fn value(&self, line: &Line) -> &'a [u8] {
        &self.bytes[line.value as usize..line.value_end as usize]
    }

    /// The name of one line, as it stands.
    pub fn name(&self, line: &Line) -> &'a [u8] {
        &self.bytes[line.start as usize..line.start as usize + line.name_len as usize]
    }

    /// The value of the first line of this name, as it stands.
    #[inline]
    pub fn header(&self, name: Name) -> Option<&'a [u8]> {
        self.index.first(name).map(|l| self.value(l))
    }

    /// The values of all lines of this name, as they stand, in order.
    pub fn headers(&self, name: Name) -> impl Iterator<Item = &'a [u8]> + Clone {
        let message = *self;
        self.index.lines_of(name).map(move |l| message.value(l))
    }

    /// The value of the first line with this name, for names that [`Name`] does not list.
    pub fn header_named(&self, name: &[u8]) -> Option<&'a [u8]> {
        self.index.lines.iter().find(|l| self.name(l).eq_ignore_ascii_case(name)).map(|l| self.value(l))
    }

    /// Some line has this name, with any value.
    pub fn has(&self, name: Name) -> bool {
        self.index.first[name as usize] != 0
    }

    /// What stands behind the blank line, as far as Content-Length says (RFC 3261 section 18.3); empty if there is none.
    pub fn body(&self) -> &'a [u8] {
        &self.bytes[self.index.body()]
    }
}
