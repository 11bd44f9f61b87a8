//! Own requests: written, sent, repeated with credentials; their responses are delivered.

use serde::{Deserialize, Serialize};
use strowger_message::{Edit, Limits, Message, Method, Name, NameAddr, Write};

use super::account::{AccountKey, Signed};
use super::call::{Call, Stage};
use super::{BadAddress, Branch, Event, RequestKey, UserAgent};
use crate::dialog::{OfferAnswer, RequestRoute};
use crate::slots::Id;
use crate::transaction::{ClientId, Role, TransactionUser};
use crate::{Arrival, PeerName, Round, Target, call};

/// Kind of an own request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ClientRequestKind {
    /// Makes a call.
    Invite,
    /// Changes the session of a call.
    Reinvite,
    Update,
    Bye,
    Prack,
    /// Any other request within a dialog.
    InDialog,
    /// Request outside of any dialog.
    OutOfDialog,
    Register,
}

/// Own request with a live transaction.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Request {
    pub(super) kind: ClientRequestKind,
    /// Call or registration of the request.
    pub(super) of: Option<Id>,
    /// Number of the request's dialog in the call; `None` if the request creates a call or is outside of any call.
    pub(super) leg: Option<u16>,
    pub(super) client: Option<ClientId>,
    pub(super) account: Option<AccountKey>,
    pub(super) target: Target,
    pub(super) call_hash: u32,
    /// Number of times that the request was sent again: with credentials, or with a longer session interval.
    pub(super) tries: u8,
    /// Set if it asks for a session timer.
    pub(super) is_timed: bool,
    /// Set if the request refreshes a session for the agent: its refusal is not reported.
    pub(super) is_refresh: bool,
    /// Set if it went to a SIPS URI.
    pub(super) secure: bool,
    /// Set if it had an offer.
    pub(super) offered: bool,
    /// State of offer and answer to restore if the offer is refused.
    pub(super) before: OfferAnswer,
    /// Sent bytes, if the request may be sent again.
    pub(super) bytes: Vec<u8>,
}

impl Request {
    pub(super) fn new(
        kind: ClientRequestKind,
        of: Option<Id>,
        account: Option<AccountKey>,
        target: Target,
        call_hash: u32,
    ) -> Self {
        Self {
            kind,
            of,
            leg: None,
            client: None,
            account,
            target,
            call_hash,
            tries: 0,
            is_timed: false,
            is_refresh: false,
            secure: false,
            offered: false,
            before: OfferAnswer::default(),
            bytes: Vec::new(),
        }
    }
}

/// Response to an own request of a call, or a status in place of one.
#[derive(Clone, Copy)]
pub(super) struct Response<'m> {
    pub(super) request: Id,
    pub(super) call: Id,
    pub(super) status: u16,
    /// `None` for a time-out (408) or a transport error (503).
    pub(super) message: Option<&'m Message<'m>>,
    /// Set if the transaction had a final response before.
    pub(super) after_final: bool,
}

/// Maximum number of repetitions; after the last one a refusal is final.
const TRIES: u8 = 4;

/// Request outside of any dialog that does not create one: OPTIONS, MESSAGE or another.
#[derive(Clone, Copy, Debug)]
pub struct OutOfDialog<'a> {
    /// Method; it makes no dialog.
    pub method: Method,
    /// Sender for From: name-addr or URI.
    pub from: &'a [u8],
    /// Recipient for To: name-addr or URI.
    pub to: &'a [u8],
    /// Request-URI. None: the URI of `to`.
    pub uri: Option<&'a [u8]>,
    /// Value of Route. Empty: none.
    pub routes: &'a [u8],
    /// Target of the request.
    pub target: Target,
    /// Account that answers challenges; without one (`None`) a 401 or 407 is the final response.
    pub account: Option<AccountKey>,
    /// Further header lines, each with its CRLF; Content-Type among them if there is a body.
    pub headers: &'a [u8],
    /// Body. Empty: none.
    pub body: &'a [u8],
}

impl<'a> OutOfDialog<'a> {
    /// Returns a request without further header lines and body.
    pub const fn new(method: Method, from: &'a [u8], to: &'a [u8], target: Target) -> Self {
        let (uri, account) = (None, None);
        let (routes, headers, body): (&[u8], &[u8], &[u8]) = (b"", b"", b"");
        Self { method, from, to, uri, routes, target, account, headers, body }
    }
}

/// Start of a request outside of any dialog.
#[derive(Clone, Copy)]
pub(super) struct Head<'a> {
    pub(super) method: Method,
    pub(super) route: RequestRoute<'a>,
    pub(super) from: &'a NameAddr<'a>,
    pub(super) from_tag: &'a [u8],
    pub(super) to: &'a NameAddr<'a>,
    pub(super) call_id: &'a [u8],
    pub(super) cseq: u32,
    pub(super) account: Option<AccountKey>,
}

impl UserAgent {
    /// Sends a request outside of any dialog; [`Event::Reply`] reports the outcome.
    ///
    /// # Errors
    /// `from` or `to` is malformed.
    pub fn request(&mut self, round: &mut Round<'_>, request: &OutOfDialog<'_>) -> Result<RequestKey, BadAddress> {
        let (from, to) = (NameAddr::parse(request.from)?, NameAddr::parse(request.to)?);
        let (call_id, tag, branch) = (self.own_call_id(), self.word(), self.branch());
        let uri = request.uri.unwrap_or(to.uri_text);
        let target = self.settings.outbound.unwrap_or(request.target);
        let start = round.out.start();
        let head = Head {
            method: request.method,
            route: RequestRoute::new(uri, request.routes),
            from: &from,
            from_tag: &tag,
            to: &to,
            call_id: &call_id,
            cseq: 1,
            account: request.account,
        };
        self.write_head(&head, &target, &branch, request.body, &mut round.out.bytes);
        round.out.bytes.extend_from_slice(request.headers);
        finish(request.body, &mut round.out.bytes);
        let open = Request::new(
            ClientRequestKind::OutOfDialog,
            None,
            request.account,
            target,
            call::hash(self.call_secret, &call_id),
        );
        Ok(RequestKey(self.submit(round, start, &branch, request.method.text(), open)))
    }

    /// Writes start line and header lines of a request outside of any dialog, up to the credentials for known challenges.
    pub(super) fn write_head(
        &mut self,
        head: &Head<'_>,
        target: &Target,
        branch: &Branch,
        body: &[u8],
        out: &mut Vec<u8>,
    ) {
        out.extend_from_slice(head.method.text());
        out.push(b' ');
        let uri = out.len();
        head.route.write_uri(out);
        let uri = uri..out.len();
        out.extend_from_slice(b" SIP/2.0\r\nVia: ");
        self.write_via(target, branch, out);
        out.extend_from_slice(b"\r\nMax-Forwards: 70\r\n");
        head.route.write_routes(out);
        out.extend_from_slice(b"From: ");
        head.from.write(out);
        out.extend_from_slice(b";tag=");
        out.extend_from_slice(head.from_tag);
        out.extend_from_slice(b"\r\nTo: ");
        head.to.write(out);
        out.extend_from_slice(b"\r\nCall-ID: ");
        out.extend_from_slice(head.call_id);
        out.extend_from_slice(b"\r\nCSeq: ");
        head.cseq.write(out);
        out.push(b' ');
        out.extend_from_slice(head.method.text());
        out.extend_from_slice(b"\r\n");
        self.write_name(b"User-Agent", out);
        self.write_credentials(head.account, head.method.text(), uri, body, out);
    }

    /// Writes credentials for earlier challenges. `uri`: range of the Request-URI in `out`.
    pub(super) fn write_credentials(
        &mut self,
        account: Option<AccountKey>,
        method: &[u8],
        uri: std::ops::Range<usize>,
        body: &[u8],
        out: &mut Vec<u8>,
    ) {
        if !self.settings.reuse_challenges {
            return;
        }
        if let Some(account) = account.and_then(|account| self.accounts.get_mut(account)) {
            let uri = out[uri].to_vec();
            account.write_known(Signed { method, uri: &uri, body }, &mut self.entropy, out);
        }
    }

    /// Sends the request in the outbox from `start`.
    pub(super) fn submit(
        &mut self,
        round: &mut Round<'_>,
        start: usize,
        branch: &Branch,
        method: &[u8],
        mut request: Request,
    ) -> Id {
        if request.account.is_some() || request.is_timed {
            request.bytes = round.out.bytes[start..].to_vec();
        }
        let (target, call_hash) = (request.target, request.call_hash);
        let call = request.leg.and(request.of).and_then(|of| self.calls.get(of));
        let is_unproven = call.is_some_and(|call| call.is_unproven);
        let id = self.requests.insert(request);
        let range = start..round.out.bytes.len();
        let client = round.tx.send(
            round.now,
            range,
            branch.text(),
            method,
            target,
            call_hash,
            TransactionUser::new(Role::UserAgent(id)),
            round.out,
        );
        if is_unproven {
            round.tx.stop_copies(client);
        }
        if let Some(request) = self.requests.get_mut(id) {
            request.client = Some(client);
        }
        id
    }

    /// Takes a response for a client transaction of this agent, with the fields of [`Incoming::Response`](crate::transaction::Incoming).
    pub fn take_response(
        &mut self,
        round: &mut Round<'_>,
        arrival: &Arrival,
        response: &Message<'_>,
        id: ClientId,
        tu: TransactionUser,
        after_final: bool,
    ) {
        let Some(request) = self.request_of(tu, id) else { return };
        let status = response.status().unwrap_or(500);
        self.note_source(request, arrival);
        self.about(arrival, response, |agent| agent.replied(round, request, status, Some(response), after_final));
    }

    /// Sets the name that the peer must prove to which another role of this server has carried this INVITE ([`Target::LOOPBACK`]), before its
    /// response is taken: later requests of the call demand the name too. Has no effect on other requests.
    pub fn note_peer_name(&mut self, tu: TransactionUser, client: ClientId, name: Option<PeerName>) {
        let request = self.request_of(tu, client).and_then(|id| self.requests.get_mut(id));
        if let Some(request) = request.filter(|request| request.target.is_loopback()) {
            request.target.name = name;
        }
    }

    /// Notes the source of a response to an INVITE that another role of this server has carried ([`Target::LOOPBACK`]): later requests of
    /// the call go there, if their next hop names no other address.
    fn note_source(&mut self, request: Id, arrival: &Arrival) {
        let Some(sent) = self.requests.get(request) else { return };
        let is_carried = sent.target.is_loopback() && !arrival.is_loopback();
        if let (true, Some(call)) = (is_carried, sent.of.and_then(|of| self.calls.get_mut(of)))
            && matches!(call.stage, Stage::Inviting | Stage::Cancelling)
        {
            let name = sent.target.name.filter(|_| arrival.transport.is_secure());
            call.target = Target { name, ..arrival.reply() };
        }
    }

    /// Repeats a request with answers to the challenges of `response`. Returns false if there is no answer.
    fn answer_challenge(&mut self, round: &mut Round<'_>, id: Id, response: &Message<'_>) -> bool {
        let Some(request) = self.requests.get(id) else { return false };
        let (account, again) = (request.account, request.tries > 0);
        self.repeat(round, id, |agent, message, edit| {
            let account = account.and_then(|account| agent.accounts.get_mut(account));
            account.is_some_and(|account| account.answer(message, response, again, &mut agent.entropy, edit))
        })
    }

    /// Sends a refused request again as a new request of the same call (sections 22.2 and 8.1.3.5), with the next
    /// number, a new branch, and the edit of `change`. Returns false if `change` returns false, or the request may not
    /// be repeated: an INVITE that is abandoned, or the fifth refusal.
    pub(super) fn repeat(
        &mut self,
        round: &mut Round<'_>,
        id: Id,
        change: impl FnOnce(&mut Self, &Message<'_>, &mut Edit) -> bool,
    ) -> bool {
        let Some(request) = self.requests.get_mut(id) else { return false };
        let is_invite = matches!(request.kind, ClientRequestKind::Invite | ClientRequestKind::Reinvite);
        let is_abandoned = |call: &Call| call.stage == Stage::Cancelling || call.hang_up.is_some();
        let is_given_up = is_invite && request.of.and_then(|of| self.calls.get(of)).is_some_and(is_abandoned);
        if request.bytes.is_empty() || request.tries >= TRIES || is_given_up {
            return false;
        }
        let before = std::mem::take(&mut request.bytes);
        let (target, call_hash) = (request.target, request.call_hash);
        let mut index = self.indexes.pop().unwrap_or_default();
        let mut edit = std::mem::take(&mut self.edit);
        edit.clear();
        let mut sent = false;
        if index.parse(&before, &Limits::UNLIMITED).is_ok() {
            let message = Message::new(&before, &index);
            let method = message.method_text();
            if change(self, &message, &mut edit)
                && let (Ok(cseq), Ok(via)) = (message.cseq(), message.via())
                && let Some(old) = via.branch
            {
                let branch = Branch::new(self.entropy.u64());
                edit.replace(message.range_of(old), |text| text.extend_from_slice(branch.text()));
                let number = self.next_number(id, cseq.number);
                edit.set(message.index(), Name::CSeq, |text| {
                    number.write(text);
                    text.push(b' ');
                    text.extend_from_slice(method);
                });
                let start = round.out.start();
                edit.write(&message, &mut round.out.bytes);
                let bytes = round.out.bytes[start..].to_vec();
                let range = start..round.out.bytes.len();
                let client = round.tx.send(
                    round.now,
                    range,
                    branch.text(),
                    method,
                    target,
                    call_hash,
                    TransactionUser::new(Role::UserAgent(id)),
                    round.out,
                );
                if let Some(request) = self.requests.get_mut(id) {
                    request.client = Some(client);
                    request.tries += 1;
                    request.bytes = bytes;
                    if let (ClientRequestKind::Invite, Some(call)) = (request.kind, request.of) {
                        self.end_early_dialogs(round, call);
                    }
                }
                sent = true;
            }
        }
        self.edit = edit;
        self.indexes.push(index);
        sent
    }

    /// Takes the CSeq for the repetition of a request. In a dialog it is above those of all requests since the refused
    /// one.
    fn next_number(&mut self, id: Id, refused: u32) -> u32 {
        let next = refused.saturating_add(1);
        let Some(request) = self.requests.get(id) else { return next };
        let Some(of) = request.of else { return next };
        match request.kind {
            ClientRequestKind::Register => {
                if let Some(registration) = self.registrations.get_mut(of) {
                    registration.cseq = next;
                }
                next
            }
            ClientRequestKind::Invite | ClientRequestKind::OutOfDialog => next,
            ClientRequestKind::Reinvite
            | ClientRequestKind::Update
            | ClientRequestKind::Bye
            | ClientRequestKind::Prack
            | ClientRequestKind::InDialog => {
                let Some(call) = self.calls.get_mut(of) else { return next };
                let Some(at) = call.position(request.leg) else { return next };
                call.legs[at].dialog.next_cseq(1)
            }
        }
    }

    /// Handles a response to a request of this agent. `message`: `None` for a time-out (408) or a transport error
    /// (503).
    pub(super) fn replied(
        &mut self,
        round: &mut Round<'_>,
        id: Id,
        status: u16,
        message: Option<&Message<'_>>,
        after_final: bool,
    ) {
        if matches!(status, 401 | 407)
            && let Some(response) = message
            && self.answer_challenge(round, id, response)
        {
            return;
        }
        if status == 422
            && let Some(response) = message
            && self.lengthen_interval(round, id, response)
        {
            return;
        }
        let Some(request) = self.requests.get_mut(id) else { return };
        let (kind, of, leg) = (request.kind, request.of, request.leg);
        let of_call = |call: Id| Response { request: id, call, status, message, after_final };
        match (kind, of) {
            (ClientRequestKind::Invite, Some(call)) => self.invite_replied(round, of_call(call)),
            (ClientRequestKind::Reinvite, Some(call)) => self.reinvite_replied(round, of_call(call)),
            (ClientRequestKind::Update, Some(call)) => self.update_replied(round, of_call(call)),
            (ClientRequestKind::Bye, Some(call)) if status >= 200 => {
                if let Some(was) = self.remove_call(round, call).filter(|c| !c.silent) {
                    self.events.push(Event::Ended { call: super::CallKey(call), by: was.ended_by });
                }
            }
            (ClientRequestKind::InDialog | ClientRequestKind::Prack, Some(call)) if status >= 200 => {
                if kind == ClientRequestKind::InDialog {
                    self.tell_reply(id, status, message);
                }
                // The end of an early dialog that has lost is not that of the call, nor is the end of a subscription (RFC 5057
                // section 5.1).
                let is_of_subscription = message.is_some_and(|m| {
                    m.cseq().is_ok_and(|cseq| matches!(cseq.method, Method::Subscribe | Method::Notify))
                });
                if !is_of_subscription && self.calls.get(call).is_some_and(|call| call.position(leg).is_some()) {
                    self.fault(round, call, status);
                }
            }
            (ClientRequestKind::OutOfDialog, _) if status >= 200 => self.tell_reply(id, status, message),
            (ClientRequestKind::Register, Some(registration)) if status >= 200 => {
                self.register_replied(round, registration, status, message)
            }
            _ => (),
        }
        if status >= 200
            && let Some(request) = self.requests.get_mut(id)
        {
            request.bytes = Vec::new();
        }
    }

    fn tell_reply(&mut self, id: Id, status: u16, message: Option<&Message<'_>>) {
        if let Some(leg) = self.requests.get(id).and_then(|request| request.leg) {
            self.events.is_of_leg(leg);
        }
        let body = message.map_or_else(Default::default, |m| self.events.keep(m.body()));
        self.events.push(Event::Reply { request: RequestKey(id), status, body });
    }
}

/// Appends Content-Length, the blank line and the body.
pub(super) fn finish(body: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"Content-Length: ");
    (body.len() as u32).write(out);
    out.extend_from_slice(b"\r\n\r\n");
    out.extend_from_slice(body);
}
