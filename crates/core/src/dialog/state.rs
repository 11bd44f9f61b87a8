//! Dialog: its identity, its state and its valid messages.

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use strowger_message::header::Party;
use strowger_message::params::Params;
use strowger_message::{Message, Method, Name, NameAddr};

use super::OfferAnswer;
use super::text::{Piece, Texts};
use crate::record::{Number, Recorded};

/// Our side of the request that made the dialog.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// Sender of the request (UAC).
    Caller,
    /// Receiver of the request (UAS).
    Callee,
}

/// State of a dialog (section 12).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// Made by a provisional response (section 12.1).
    Early,
    /// Made or confirmed by a 2xx.
    Confirmed,
    /// Ended by a BYE, or by a final response other than 2xx to the request that made it.
    Ended,
}

/// Reason why a message makes no dialog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalid {
    /// A header field is missing or malformed.
    Header(Name),
    /// A tag that the dialog needs is missing. For a request in a dialog this means 481.
    NoTag,
}

impl std::fmt::Display for Invalid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Header(name) => write!(f, "{name} is missing or malformed"),
            Self::NoTag => f.write_str("there is no tag"),
        }
    }
}

impl std::error::Error for Invalid {}

/// Reason to refuse a request in a dialog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The dialog has ended: 481.
    Ended,
    /// The CSeq of the request is not above the CSeq of an earlier one: 500 (section 12.2.2).
    OutOfOrder,
    /// CSeq is missing or malformed: 400.
    Malformed,
}

impl Fault {
    /// Returns the status code of the refusal.
    pub const fn status(self) -> u16 {
        match self {
            Self::Ended => 481,
            Self::OutOfOrder => 500,
            Self::Malformed => 400,
        }
    }
}

/// Dialog, seen from one of its two ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dialog {
    pub(super) texts: Texts,
    role: Role,
    state: State,
    /// Set if both sides use TLS (section 12.1): made by a request to a SIPS URI over a secure transport.
    secure: bool,
    local_cseq: u32,
    /// CSeq of the peer; `None` until the peer has sent a request.
    remote_cseq: Option<u32>,
    /// Exchange of session descriptions.
    pub exchange: OfferAnswer,
}

impl Dialog {
    /// Creates the dialog of a response to our request (section 12.1.2). `secure`: whether the request was sent to a
    /// SIPS URI over TLS.
    ///
    /// # Errors
    /// A header field that a dialog needs is missing. A To without tag makes no dialog (a 100, or a peer of RFC 2543).
    pub fn caller(response: &Message<'_>, secure: bool) -> Result<Self, Invalid> {
        let local = response.from().map_err(|_| Invalid::Header(Name::From))?;
        let remote = response.to().map_err(|_| Invalid::Header(Name::To))?;
        let cseq = response.cseq().map_err(|_| Invalid::Header(Name::CSeq))?.number;
        if remote.tag.is_none() {
            return Err(Invalid::NoTag);
        }
        // A response may lack a Contact, though section 12.1.1 requires it: the owner sets a target.
        let target = contact(response)?.unwrap_or_default();
        Ok(Self {
            texts: texts(response, Role::Caller, &local, local.tag, &remote, target)?,
            role: Role::Caller,
            state: if response.status().is_some_and(|s| s >= 200) { State::Confirmed } else { State::Early },
            secure,
            local_cseq: cseq,
            remote_cseq: None,
            exchange: OfferAnswer::default(),
        })
    }

    /// Creates the dialog of our response with `local_tag` to a request (section 12.1.1). `secure`: whether the request
    /// came over TLS with a SIPS Request-URI. It begins as [`State::Early`]; [`Dialog::confirm`] follows when a 2xx is
    /// sent.
    ///
    /// # Errors
    /// A header field that a dialog needs is missing.
    pub fn callee(request: &Message<'_>, local_tag: &[u8], secure: bool) -> Result<Self, Invalid> {
        let remote = request.from().map_err(|_| Invalid::Header(Name::From))?;
        let local = request.to().map_err(|_| Invalid::Header(Name::To))?;
        let cseq = request.cseq().map_err(|_| Invalid::Header(Name::CSeq))?.number;
        let target = contact(request)?.ok_or(Invalid::Header(Name::Contact))?;
        Ok(Self {
            texts: texts(request, Role::Callee, &local, Some(local_tag), &remote, target)?,
            role: Role::Callee,
            state: State::Early,
            secure,
            local_cseq: 0,
            remote_cseq: Some(cseq),
            exchange: OfferAnswer::default(),
        })
    }

    /// Returns the role of our end, which later requests of either end do not change.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Returns the state, changed only by [`Dialog::confirm`] and [`Dialog::end`].
    pub fn state(&self) -> State {
        self.state
    }

    /// Tells whether the dialog was created over TLS, by a request to a SIPS URI (sections 12.1.1 and 12.1.2).
    pub fn is_secure(&self) -> bool {
        self.secure
    }

    /// Returns the Call-ID of each request of the dialog.
    pub fn call_id(&self) -> &[u8] {
        self.texts.of(Piece::CallId)
    }

    /// Returns our tag: the tag of From in our requests, and of To in the peer's requests.
    pub fn local_tag(&self) -> &[u8] {
        self.texts.of(Piece::LocalTag)
    }

    /// Returns the tag of the peer; empty for a peer without tags.
    pub fn remote_tag(&self) -> &[u8] {
        self.texts.of(Piece::RemoteTag)
    }

    /// Returns our name-addr, without the tag.
    pub fn local(&self) -> &[u8] {
        self.texts.of(Piece::Local)
    }

    /// Returns the peer's name-addr, without tag.
    pub fn remote(&self) -> &[u8] {
        self.texts.of(Piece::Remote)
    }

    /// Returns the remote target URI.
    pub fn target(&self) -> &[u8] {
        self.texts.of(Piece::Target)
    }

    /// Sets the remote target URI of a dialog whose peer has sent no Contact.
    pub(crate) fn set_target(&mut self, uri: &[u8]) {
        self.texts.set(Piece::Target, uri);
    }

    /// Returns the route set as a value of Route: name-addrs joined with commas; empty if there are none.
    pub fn routes(&self) -> &[u8] {
        self.texts.of(Piece::Routes)
    }

    /// Returns the CSeq of our last request.
    pub fn local_cseq(&self) -> u32 {
        self.local_cseq
    }

    /// Returns the CSeq of the peer's last request.
    pub fn remote_cseq(&self) -> Option<u32> {
        self.remote_cseq
    }

    /// Returns the CSeq of our next request (section 12.2.1.1). The numbers of a callee start with `first`.
    pub fn next_cseq(&mut self, first: u32) -> u32 {
        self.local_cseq =
            if self.local_cseq == 0 { first.clamp(1, 1 << 30) } else { self.local_cseq.saturating_add(1) };
        self.local_cseq
    }

    /// Skips `count` CSeqs of our requests, which may be used although this state does not tell: an earlier process may have sent requests after it
    /// wrote the state. If this side had sent no request then, that process may have begun with any CSeq up to `first`, so these are skipped too.
    pub fn skip_cseqs(&mut self, first: u32, count: u32) {
        let last = if self.local_cseq == 0 { first } else { self.local_cseq };
        self.local_cseq = last.saturating_add(count);
    }

    /// Tells whether these tags, as seen from our side, identify this dialog (section 12.2.2).
    pub fn is(&self, call_id: &[u8], local_tag: &[u8], remote_tag: &[u8]) -> bool {
        self.local_tag() == local_tag && self.remote_tag() == remote_tag && self.call_id() == call_id
    }

    /// Verifies a received request in this dialog, and takes its CSeq and, if it refreshes the target, its Contact (section 12.2.2).
    ///
    /// An ACK has the number of its INVITE, and a CANCEL belongs to a transaction: both pass unchecked.
    ///
    /// # Errors
    /// The request must be refused with the status of the fault.
    pub fn receive(&mut self, request: &Message<'_>) -> Result<(), Fault> {
        let method = request.method().unwrap_or(Method::Other);
        if matches!(method, Method::Ack | Method::Cancel) {
            return Ok(());
        }
        if self.state == State::Ended {
            return Err(Fault::Ended);
        }
        let cseq = request.cseq().map_err(|_| Fault::Malformed)?.number;
        if self.remote_cseq.is_some_and(|last| cseq <= last) {
            return Err(Fault::OutOfOrder);
        }
        self.remote_cseq = Some(cseq);
        if refreshes(method) {
            self.refresh(request);
        }
        Ok(())
    }

    /// Takes the Contact of a 2xx to a request of ours that refreshes the target (section 12.2.1.2).
    pub fn refresh(&mut self, message: &Message<'_>) {
        if let Ok(Some(uri)) = contact(message) {
            self.texts.set(Piece::Target, uri);
        }
    }

    /// Confirms the dialog by a 2xx to its INVITE, received or sent. A received 2xx replaces the route set (section
    /// 13.2.2.4).
    pub fn confirm(&mut self, received: Option<&Message<'_>>) {
        if self.state != State::Early {
            return;
        }
        self.state = State::Confirmed;
        if let Some(response) = received {
            if let Ok(set) = route_set(response, self.role) {
                let mut routes = Vec::new();
                write_routes(&set, &mut routes);
                self.texts.set(Piece::Routes, &routes);
            }
            self.refresh(response);
        }
    }

    /// Ends the dialog by a BYE or a failure (section 12.3): later requests of the peer get [`Fault::Ended`].
    pub fn end(&mut self) {
        self.state = State::Ended;
    }
}

impl Recorded for Dialog {
    fn numbers(&mut self, _: &mut dyn FnMut(Number<'_>)) {}
}

/// Tells whether the method refreshes the remote target (RFC 3261 section 6, RFC 3311 section 5.1, RFC 6665 section 4.4.1).
pub(crate) const fn refreshes(method: Method) -> bool {
    matches!(method, Method::Invite | Method::Update | Method::Subscribe | Method::Notify | Method::Refer)
}

/// Collects the texts of a dialog that `message` creates. The sender of an old request may have an empty tag (section
/// 12.1.1).
fn texts(
    message: &Message<'_>,
    role: Role,
    local: &Party<'_>,
    local_tag: Option<&[u8]>,
    remote: &Party<'_>,
    target: &[u8],
) -> Result<Texts, Invalid> {
    let call_id = message.call_id().map_err(|_| Invalid::Header(Name::CallId))?.text;
    let routes = route_set(message, role)?;
    let local_tag = local_tag.unwrap_or_default();
    let remote_tag = remote.tag.unwrap_or_default();
    let about = call_id.len()
        + local_tag.len()
        + [Name::From, Name::To, Name::RecordRoute]
            .into_iter()
            .flat_map(|n| message.headers(n))
            .map(|v| v.len() + 4)
            .sum::<usize>()
        + target.len();
    Ok(Texts::new(about, |piece, out| match piece {
        Piece::CallId => out.extend_from_slice(call_id),
        Piece::LocalTag => out.extend_from_slice(local_tag),
        Piece::RemoteTag => out.extend_from_slice(remote_tag),
        Piece::Local => write_untagged(local, out),
        Piece::Remote => write_untagged(remote, out),
        Piece::Target => out.extend_from_slice(target),
        Piece::Routes => write_routes(&routes, out),
    }))
}

/// Writes From or To without its tag.
fn write_untagged(party: &Party<'_>, out: &mut Vec<u8>) {
    NameAddr { params: Params::default(), ..party.addr }.write(out);
    for param in party.addr.params.iter().filter(|p| !p.name.eq_ignore_ascii_case(b"tag")) {
        param.write(out);
    }
}

/// Returns the URI of the Contact, which a message that creates a dialog must have (section 8.1.1.8).
fn contact<'a>(message: &Message<'a>) -> Result<Option<&'a [u8]>, Invalid> {
    match message.contacts().next() {
        None => Ok(None),
        Some(Ok(contact)) => Ok(Some(contact.value.uri_text)),
        Some(Err(_)) => Err(Invalid::Header(Name::Contact)),
    }
}

type Routes<'a> = SmallVec<[NameAddr<'a>; 4]>;

/// Parses the Record-Routes: in their order for the callee, reversed for the caller (sections 12.1.1 and 12.1.2).
fn route_set<'a>(message: &Message<'a>, role: Role) -> Result<Routes<'a>, Invalid> {
    let mut routes = Routes::new();
    for route in message.record_routes() {
        // Proxies ignore display names; without them a route starts with its bracket.
        routes.push(NameAddr { display: b"", ..route.map_err(|_| Invalid::Header(Name::RecordRoute))?.value.0 });
    }
    if role == Role::Caller {
        routes.reverse();
    }
    Ok(routes)
}

fn write_routes(routes: &Routes<'_>, out: &mut Vec<u8>) {
    for (i, route) in routes.iter().enumerate() {
        if i > 0 {
            out.extend_from_slice(b", ");
        }
        route.write(out);
    }
}
