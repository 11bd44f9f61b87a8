//! Request with the mandatory header fields.

use crate::Arrival;
use strowger_message::header::Via;
use strowger_message::params::write_quoted;
use strowger_message::{Edit, Error, Form, Index, Limits, Line, MandatoryHeaders, Message, Method, Reason, Uri};

/// Parsed request with the views that every later step needs, made once.
///
/// The message is canonical ([`strowger_message::canonical`]), as are its copies in a proxy. Its top Via is complete: `received` and `rport`
/// were added on arrival (RFC 3261 section 18.2.1, RFC 3581).
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Whole message.
    pub message: Message<'a>,
    /// Source, and listener or connection.
    pub arrival: &'a Arrival,
    /// Method of the start line.
    pub method: Method,
    /// Request-URI as received.
    pub uri: Uri<'a>,
    /// Mandatory header fields, parsed.
    pub mandatory: MandatoryHeaders<'a>,
    /// Branch of the top Via; empty if there is none (a peer of RFC 2543).
    pub branch: &'a [u8],
    /// Value of Call-ID.
    pub call_id: &'a [u8],
    /// Tag of From; empty if there is none (a peer of RFC 2543).
    pub from_tag: &'a [u8],
    /// Tag of To; empty if there is none, so that the request is in no dialog.
    pub to_tag: &'a [u8],
    /// Number of CSeq.
    pub cseq: u32,
    /// Max-Forwards, 0 to 255; `None` if there is no such header field (section 16.3 step 3).
    pub max_forwards: Option<u32>,
    /// [`crate::call::hash`] of the Call-ID.
    pub call_hash: u32,
}

impl<'a> Request<'a> {
    /// Reads the mandatory header fields of a request (section 8.1.1). `call_hash`: [`Request::call_hash`].
    ///
    /// # Errors
    /// Error of [`MandatoryHeaders::of`] for a missing or malformed field; [`Reason::StartLine`] for a response; [`Reason::Repeated`] or
    /// [`Reason::LineEnd`] for a message that is not [`Form::Canonical`], since other elements could read it in another way.
    pub fn of(message: Message<'a>, arrival: &'a Arrival, call_hash: u32) -> Result<Self, Error> {
        Self::with_top(message, message.via(), arrival, call_hash)
    }

    /// Reads a request whose topmost Via was read before ([`Message::via`]).
    ///
    /// # Errors
    /// Errors of [`Request::of`].
    pub fn with_top(
        message: Message<'a>,
        top: Result<Via<'a>, Error>,
        arrival: &'a Arrival,
        call_hash: u32,
    ) -> Result<Self, Error> {
        let mandatory = MandatoryHeaders::with_top(&message, top)?;
        let index = message.index();
        if index.form() != Form::Canonical {
            let twice = |line: &&Line| line.name.is_single_valued() && index.repeated(line.name);
            return Err(match (index.form(), index.lines().iter().find(twice)) {
                (Form::Loose, Some(line)) => Error::new(Reason::Repeated, line.start as usize),
                _ => Error::new(Reason::LineEnd, 0),
            });
        }
        let (Some(method), Some(uri)) = (message.method(), mandatory.uri) else {
            return Err(Error::new(Reason::StartLine, 0));
        };
        Ok(Self {
            message,
            arrival,
            method,
            uri,
            branch: mandatory.via.branch.unwrap_or_default(),
            call_id: mandatory.call_id.text,
            from_tag: mandatory.from.tag.unwrap_or_default(),
            to_tag: mandatory.to.tag.unwrap_or_default(),
            cseq: mandatory.cseq.number,
            max_forwards: mandatory.max_forwards.map(u32::from),
            call_hash,
            mandatory,
        })
    }

    /// Tells whether the display name of From or To lacks its quotes (RFC 4475 section 3.1.2.15).
    #[inline]
    pub fn lacks_quotes(&self) -> bool {
        self.mandatory.from.lacks_quotes() || self.mandatory.to.lacks_quotes()
    }

    /// Appends to `out` the request with these quotes added, so that every reader takes such names as quoted names.
    pub fn write_quoted(&self, out: &mut Vec<u8>) {
        let mut edit = Edit::new();
        for party in [&self.mandatory.from, &self.mandatory.to].into_iter().filter(|party| party.lacks_quotes()) {
            edit.replace(self.message.range_of(party.display), |text| write_quoted(party.display, text));
        }
        edit.write(&self.message, out);
    }

    /// Parses a request that was parsed before.
    pub(crate) fn again(bytes: &'a [u8], index: &'a mut Index, arrival: &'a Arrival, call_hash: u32) -> Option<Self> {
        let unlimited =
            Limits { message: usize::MAX, body: usize::MAX, headers: u16::MAX as usize - 1, uri: usize::MAX };
        index.parse(bytes, &unlimited).ok()?;
        Self::of(Message::new(bytes, index), arrival, call_hash).ok()
    }
}
