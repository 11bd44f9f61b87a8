//! Reading of a received message: from bytes to a request or a response in canonical form.

use crate::routing::Request;
use crate::{Arrival, call, via};
use strowger_message::{Edit, Error, Form, Index, Limits, Message, Name, Reason, canonical};

/// Settings of the reading of messages.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// Sizes above which a message is refused.
    pub limits: Limits,
    /// Whether answers are sent to the source port of each request, as if its sender had asked for `rport` (RFC 3581).
    pub force_rport: bool,
    /// Secret of [`call::hash`], the same in every shard.
    pub call_secret: u32,
}

impl Reading {
    /// Creates settings with the default limits. `call_secret`: [`Reading::call_secret`].
    pub fn new(call_secret: u32) -> Self {
        Self { limits: Limits::default(), force_rport: false, call_secret }
    }
}

/// Received message that was read.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::large_enum_variant, reason = "a request is passed on by reference and never stored")]
pub enum Received<'a> {
    /// Request with its mandatory header fields, and its source in the top Via.
    Request(Request<'a>),
    /// Response.
    Response(Message<'a>),
    /// Message that cannot be parsed, or that other elements could parse in another way.
    Unread(Unread<'a>),
}

/// Message that cannot be read.
#[derive(Clone, Copy, Debug)]
pub struct Unread<'a> {
    /// Cause; [`Error::status`] is the status code of a response.
    pub error: Error,
    /// Request, as far as it was parsed: it can be answered if it has a Via. `None` for a response, or if the bytes are
    /// no message.
    pub request: Option<Message<'a>>,
}

impl<'a> Unread<'a> {
    /// Creates the record of a message whose index ends where the parser stopped.
    fn of(bytes: &'a [u8], index: &'a Index, error: Error) -> Self {
        let end = index.end().max(index.headers_end()).min(bytes.len());
        let request = (end > 0).then(|| Message::new(&bytes[..end], index)).filter(Message::is_request);
        Self { error, request }
    }
}

/// Index and buffers for one message. They are reused, so that reading allocates nothing once warm.
#[derive(Debug, Default)]
pub struct Reader {
    index: Index,
    /// Canonical form of a loosely written message.
    canonical: Vec<u8>,
    /// Message with a completed top Via.
    completed: Vec<u8>,
    /// Request with quotes around its display names, and its index.
    quoted: (Vec<u8>, Index),
    edit: Edit,
}

impl Reader {
    /// Parses a message. A loosely written message is rewritten in canonical form, because otherwise the next hop might
    /// parse it differently than this element does. The top Via of a request is completed with `received` and `rport`,
    /// so that all later parts find the source in it.
    pub fn read<'a>(&'a mut self, arrival: &'a Arrival, bytes: &'a [u8], reading: &Reading) -> Received<'a> {
        let Self { index, canonical, completed, quoted, edit } = self;
        if let Err(error) = index.parse(bytes, &reading.limits) {
            return Received::Unread(Unread::of(bytes, index, error));
        }
        let mut bytes = bytes;
        if index.form() == Form::Ambiguous {
            return Received::Unread(Unread::of(bytes, index, Error::new(Reason::LineEnd, 0)));
        }
        if index.form() == Form::Loose {
            canonical.clear();
            canonical::write(&Message::new(bytes, index), canonical);
            bytes = canonical;
            if let Err(error) = index.parse(bytes, &reading.limits) {
                return Received::Unread(Unread::of(bytes, index, error));
            }
        }
        let message = Message::new(bytes, index);
        if !message.is_request() {
            // A response with two different values of a single-valued header field has no single meaning.
            return match index.form() {
                Form::Canonical => Received::Response(Message::new(bytes, index)),
                _ => Received::Unread(Unread { error: Error::new(Reason::Repeated, 0), request: None }),
            };
        }
        completed.clear();
        let (before, mut top) = (message.bytes().len(), index.via(bytes));
        let is_changed =
            top.is_ok_and(|top| via::complete(&message, &top, &arrival.remote, reading.force_rport, edit, completed));
        if is_changed {
            index.moved_by_value(Name::Via, completed.len() as isize - before as isize);
            bytes = completed;
            #[cfg(debug_assertions)]
            assert_as_parsed(index, bytes, &reading.limits);
            top = index.via(bytes);
        }
        let message = Message::new(bytes, index);
        let request = match Request::with_top(message, top, arrival, call_hash(&message, reading)) {
            Ok(request) => request,
            Err(error) => return Received::Unread(Unread { error, request: Some(message) }),
        };
        if request.lacks_quotes() {
            return quote(&request, quoted, reading);
        }
        Received::Request(request)
    }

    /// Parses a request that was received before, so that its Via is complete. Returns `None` if it exceeds the limits
    /// of `reading`, or is no request.
    pub fn read_again<'a>(
        &'a mut self,
        arrival: &'a Arrival,
        bytes: &'a [u8],
        reading: &Reading,
    ) -> Option<Request<'a>> {
        self.index.parse(bytes, &reading.limits).ok()?;
        let message = Message::new(bytes, &self.index);
        let request = Request::of(message, arrival, call_hash(&message, reading)).ok()?;
        if !request.lacks_quotes() {
            return Some(request);
        }
        match quote(&request, &mut self.quoted, reading) {
            Received::Request(request) => Some(request),
            _ => None,
        }
    }
}

/// Returns [`Request::call_hash`] of a message.
fn call_hash(message: &Message<'_>, reading: &Reading) -> u32 {
    message.header(Name::CallId).map_or(0, |id| call::hash(reading.call_secret, id))
}

/// Adds missing quotes around display names. A proxy does not use the names, but must forward them in correct form.
#[cold]
fn quote<'a>(request: &Request<'a>, quoted: &'a mut (Vec<u8>, Index), reading: &Reading) -> Received<'a> {
    let (bytes, index) = quoted;
    bytes.clear();
    request.write_quoted(bytes);
    let again = match index.parse(bytes, &reading.limits) {
        Ok(()) => Request::of(Message::new(bytes, index), request.arrival, request.call_hash),
        Err(error) => Err(error),
    };
    match again {
        Ok(request) => Received::Request(request),
        Err(error) => Received::Unread(Unread { error, request: Some(request.message) }),
    }
}

/// Asserts that an index with moved offsets equals the index of a second parse.
#[cfg(debug_assertions)]
fn assert_as_parsed(index: &Index, bytes: &[u8], limits: &Limits) {
    let mut again = Index::new();
    // The second parse may refuse the header field, because the field may now exceed the length up to which values are
    // counted.
    if again.parse(bytes, &Limits { message: usize::MAX, ..*limits }).is_ok() {
        assert_eq!(*index, again);
    }
}
