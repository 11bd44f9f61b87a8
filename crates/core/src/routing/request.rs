//! A request that has what every request must have.

use crate::Arrival;
use strowger_message::header::Via;
use strowger_message::params::write_quoted;
use strowger_message::{Edit, Error, Form, Index, Limits, Line, MandatoryHeaders, Message, Method, Reason, Uri};

/// A parsed request with the views that every step of its way needs, made once.
///
/// It is canonical ([`strowger_message::canonical`]): so is what a proxy makes of it. Its top Via is complete: `received` and `rport`
/// were filled in when it arrived (RFC 3261 section 18.2.1, RFC 3581).
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The whole of it.
    pub message: Message<'a>,
    /// From where it came, and by what listener or connection.
    pub arrival: &'a Arrival,
    /// That of the start line.
    pub method: Method,
    /// The Request-URI as it came.
    pub uri: Uri<'a>,
    /// The header fields that each request must have, read.
    pub mandatory: MandatoryHeaders<'a>,
    /// That of the top Via; empty: it has none (a peer of RFC 2543).
    pub branch: &'a [u8],
    /// The value of Call-ID.
    pub call_id: &'a [u8],
    /// Empty: From has none (a peer of RFC 2543).
    pub from_tag: &'a [u8],
    /// Empty: To has none, and the request is in no dialog.
    pub to_tag: &'a [u8],
    /// The number of CSeq.
    pub cseq: u32,
    /// 0 to 255; none: there is no Max-Forwards (section 16.3 step 3).
    pub max_forwards: Option<u32>,
    /// [`crate::call::hash`] of the Call-ID.
    pub call_hash: u32,
}

impl<'a> Request<'a> {
    /// Reads what a request must have (section 8.1.1), once for all that look at it. `call_hash`: [`Request::call_hash`].
    ///
    /// # Errors
    /// What [`MandatoryHeaders::of`] finds missing or malformed; [`Reason::StartLine`] for a response; what keeps the message
    /// from being [`Form::Canonical`]: what goes on to others must mean the same to them.
    pub fn of(message: Message<'a>, arrival: &'a Arrival, call_hash: u32) -> Result<Self, Error> {
        Self::with_top(message, message.via(), arrival, call_hash)
    }

    /// The same for a caller that has read the topmost Via ([`Message::via`]).
    ///
    /// # Errors
    /// Those of [`Request::of`].
    pub fn with_top(
        message: Message<'a>,
        top: Result<Via<'a>, Error>,
        arrival: &'a Arrival,
        call_hash: u32,
    ) -> Result<Self, Error> {
        let mandatory = MandatoryHeaders::with_top(&message, top)?;
        let index = message.index();
        if index.form() != Form::Canonical {
            let twice = |line: &&Line| line.name.stands_once() && index.repeated(line.name);
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

    /// If the display name of From or To lacks quotes, writes the request with them, as every reader takes it (RFC 4475 section
    /// 3.1.2.15), and returns true.
    pub fn quote_names(&self, out: &mut Vec<u8>) -> bool {
        let mut edit = Edit::new();
        for party in [&self.mandatory.from, &self.mandatory.to].into_iter().filter(|party| party.lacks_quotes()) {
            edit.replace(self.message.range_of(party.display), |text| write_quoted(party.display, text));
        }
        let is_changed = !edit.is_empty();
        if is_changed {
            edit.write(&self.message, out);
        }
        is_changed
    }

    /// Reads a request that was read before.
    pub(crate) fn again(bytes: &'a [u8], index: &'a mut Index, arrival: &'a Arrival, call_hash: u32) -> Option<Self> {
        let unlimited =
            Limits { message: usize::MAX, body: usize::MAX, headers: u16::MAX as usize - 1, uri: usize::MAX };
        index.parse(bytes, &unlimited).ok()?;
        Self::of(Message::new(bytes, index), arrival, call_hash).ok()
    }
}
