//! Received requests: checked (RFC 3261 section 8.2), dispatched by purpose, answered or passed to the owner.

use strowger_message::header::RAck;
use strowger_message::{MandatoryHeaders, Message, Method, Name, Uri, Write};

use super::call::{Call, IncomingInvite, IncomingUpdate, OpenRequest, Stage};
use super::content::Content;
use super::settings::Reliability;
use super::uac::CAPABILITIES;
use super::uas::respond;
use super::{CallKey, Ending, Event, IncomingKey, UserAgent};
use crate::dialog::{Dialog, Fault, OfferError};
use crate::routing::Request;
use crate::slots::Id;
use crate::transaction::{Role, ServerId, TransactionUser};
use crate::{Arrival, Round};

/// Request with a server transaction.
#[derive(Clone, Copy)]
struct Asking<'m> {
    message: &'m Message<'m>,
    mandatory: &'m MandatoryHeaders<'m>,
    method: Method,
    arrival: &'m Arrival,
    server: ServerId,
    call_hash: u32,
}

impl<'m> Asking<'m> {
    fn of(request: &'m Request<'m>, server: ServerId) -> Self {
        let Request { message, mandatory, method, arrival, call_hash, .. } = request;
        Self { message, mandatory, method: *method, arrival, server, call_hash: *call_hash }
    }

    fn call_id(&self) -> &'m [u8] {
        self.mandatory.call_id.text
    }

    fn sender_tag(&self) -> &'m [u8] {
        self.mandatory.from.tag.unwrap_or_default()
    }

    fn asked(&self, reliable: bool, before: crate::dialog::OfferAnswer) -> IncomingInvite {
        IncomingInvite {
            server: self.server,
            cseq: self.mandatory.cseq.number,
            source: self.arrival.remote,
            reliable,
            before,
        }
    }

    fn has_offer(&self) -> bool {
        !self.message.body().is_empty()
    }
}

impl UserAgent {
    /// Takes a new request with its server transaction, in a dialog or not. It may have been suspended before: from now on the transaction
    /// belongs to this agent, which answers the request or passes it to its owner as an event. The shard has set the target of the
    /// responses ([`Transactions::set_reply`](crate::transaction::Transactions::set_reply)). `request` has the
    /// [`call_hash`](Request::call_hash) by the secret of this agent.
    pub fn take_request(&mut self, round: &mut Round<'_>, request: &Request<'_>, server: ServerId) {
        round.tx.set_user(server, TransactionUser::NONE);
        let asking = Asking::of(request, server);
        self.about(request.arrival, &request.message, |agent| match request.mandatory.to.tag {
            Some(tag) => agent.asked_within(round, &asking, tag),
            None => agent.asked_outside(round, &asking),
        });
    }

    /// Takes the ACK of a 2xx. Without effect if no call has its dialog ([`UserAgent::owns`]).
    pub fn take_ack(&mut self, round: &mut Round<'_>, ack: &Request<'_>) {
        self.about(ack.arrival, &ack.message, |agent| agent.acknowledged(round, &ack.message, &ack.mandatory));
    }

    /// Takes a CANCEL with its server transaction and that of its INVITE, and answers both; without an INVITE it answers 481.
    pub fn take_cancel(
        &mut self,
        round: &mut Round<'_>,
        request: &Request<'_>,
        cancel: ServerId,
        invite: Option<ServerId>,
    ) {
        let asking = Asking::of(request, cancel);
        self.about(request.arrival, &request.message, |agent| agent.cancelled(round, &asking, invite));
    }

    /// Responds with further lines and no body.
    fn reply_with(&mut self, round: &mut Round<'_>, asking: &Asking<'_>, status: u16, to_tag: &[u8], lines: &[u8]) {
        let start = round.out.start();
        let made = if to_tag.is_empty() && status > 100 { self.word().to_vec() } else { Vec::new() };
        let to_tag = if to_tag.is_empty() { &made } else { to_tag };
        let mut builder = respond(asking.message, asking.arrival.remote, status, to_tag, &mut round.out.bytes);
        builder.buffer().extend_from_slice(lines);
        self.write_name(b"Server", builder.buffer());
        builder.finish(b"");
        round.tx.respond(round.now, asking.server, status, start..round.out.bytes.len(), round.out);
    }

    fn reply_plain(&mut self, round: &mut Round<'_>, asking: &Asking<'_>, status: u16) {
        self.reply_with(round, asking, status, b"", b"");
    }

    /// Responds with 500; the peer may try again in 0 to 10 s (section 14.2).
    fn reply_later(&mut self, round: &mut Round<'_>, asking: &Asking<'_>) {
        let mut lines = b"Retry-After: ".to_vec();
        ((self.entropy.u64() % 11) as u32).write(&mut lines);
        lines.extend_from_slice(b"\r\n");
        self.reply_with(round, asking, 500, b"", &lines);
    }

    /// Checks method, Request-URI, Require and content (sections 8.2.1 to 8.2.3). Returns false if the request was refused.
    fn inspect(&mut self, round: &mut Round<'_>, asking: &Asking<'_>) -> bool {
        if !ALLOWED.contains(&asking.method) && !self.settings.other_methods {
            self.reply_with(round, asking, 405, b"", ALLOW);
            return false;
        }
        if matches!(asking.mandatory.uri, Some(Uri::Other(_) | Uri::Urn(_))) {
            self.reply_plain(round, asking, 416);
            return false;
        }
        let mut lines = Vec::new();
        for tag in asking.message.require() {
            let Ok(tag) = tag else {
                self.reply_plain(round, asking, 400);
                return false;
            };
            if !tag.is(b"100rel") {
                lines.extend_from_slice(if lines.is_empty() { b"Unsupported: " } else { b", " });
                lines.extend_from_slice(tag.text);
            }
        }
        if !lines.is_empty() {
            lines.extend_from_slice(b"\r\n");
            self.reply_with(round, asking, 420, b"", &lines);
            return false;
        }
        let message = asking.message;
        if message.body().is_empty() {
            return true;
        }
        let encoded = message.header(Name::ContentEncoding).is_some_and(|e| !e.eq_ignore_ascii_case(b"identity"));
        if encoded {
            self.reply_with(round, asking, 415, b"", b"Accept-Encoding: identity\r\n");
            return false;
        }
        let session = matches!(asking.method, Method::Invite | Method::Update | Method::Prack | Method::Ack);
        let is_sdp = message.header(Name::ContentType).is_some_and(|t| {
            t.split(|&b| b == b';').next().is_some_and(|t| t.trim_ascii().eq_ignore_ascii_case(b"application/sdp"))
        });
        if session && !is_sdp {
            self.reply_with(round, asking, 415, b"", ACCEPT);
            return false;
        }
        true
    }

    fn asked_outside(&mut self, round: &mut Round<'_>, asking: &Asking<'_>) {
        if !self.inspect(round, asking) {
            return;
        }
        match asking.method {
            Method::Invite => self.invited(round, asking),
            Method::Options => self.reply_capabilities(round, asking),
            Method::Message => {
                self.reply_plain(round, asking, 200);
                let message = asking.message;
                let mut keep = |text: Option<&[u8]>| self.events.keep(text.unwrap_or_default());
                let (from, to) = (keep(message.header(Name::From)), keep(message.header(Name::To)));
                let (content_type, body) = (keep(message.header(Name::ContentType)), keep(Some(message.body())));
                self.events.push(Event::Message { from, to, content_type, body });
            }
            // Every other known method needs a dialog, and there is none.
            method if ALLOWED.contains(&method) => self.reply_plain(round, asking, 481),
            _ => self.ask_owner(round, asking, None),
        }
    }

    /// Passes a request of an unknown method to the owner.
    fn ask_owner(&mut self, round: &mut Round<'_>, asking: &Asking<'_>, call: Option<CallKey>) {
        let tag = if call.is_some() { Vec::new() } else { self.word().to_vec() };
        let bytes = asking.message.bytes().to_vec();
        let id = self.open.insert(OpenRequest {
            server: asking.server,
            source: asking.arrival.remote,
            bytes,
            call_hash: asking.call_hash,
            tag,
        });
        round.tx.set_user(asking.server, TransactionUser::new(Role::UserAgent(id)));
        self.open_until.push_back((round.now.mono + self.settings.timers.t1_64(), id));
        self.events.push(Event::Request { request: IncomingKey(id), call });
    }

    /// Responds to OPTIONS (section 11.2).
    fn reply_capabilities(&mut self, round: &mut Round<'_>, asking: &Asking<'_>) {
        let lines = [CAPABILITIES, ACCEPT, b"Accept-Encoding: identity\r\nAccept-Language: en\r\n"].concat();
        self.reply_with(round, asking, 200, b"", &lines);
    }

    /// Handles an INVITE that makes a call (section 13.3.1).
    fn invited(&mut self, round: &mut Round<'_>, asking: &Asking<'_>) {
        if self.is_merged(asking) {
            return self.reply_plain(round, asking, 482);
        }
        if self.calls.len() >= self.settings.calls {
            return self.reply_with(round, asking, 503, b"", b"Retry-After: 5\r\n");
        }
        let message = asking.message;
        let tag = self.word();
        let secure = asking.arrival.transport.is_secure() && asking.mandatory.uri.is_some_and(|u| u.is_sips());
        let Ok(mut dialog) = Dialog::callee(message, &tag, secure) else {
            return self.reply_plain(round, asking, 400);
        };
        let before = dialog.exchange;
        if asking.has_offer() && dialog.exchange.receive_request(false).is_err() {
            return self.reply_plain(round, asking, 400);
        }
        let reliable = match self.settings.reliability {
            Reliability::Supported if message.supports(b"100rel") => true,
            _ => message.require().flatten().any(|t| t.is(b"100rel")),
        };
        let place = self.place(asking.call_id());
        let mut call = Call::new(Stage::Incoming, place, asking.call_hash, asking.arrival.reply());
        call.add_leg(dialog);
        call.kept = message.bytes().to_vec();
        call.asked = Some(asking.asked(reliable, before));
        let id = self.insert_call(call);
        round.tx.set_user(asking.server, TransactionUser::new(Role::UserAgent(id)));
        if self.settings.trying {
            self.reply_plain(round, asking, 100);
        }
        let from = self.events.keep(message.header(Name::From).unwrap_or_default());
        let to = self.events.keep(message.header(Name::To).unwrap_or_default());
        let uri = self.events.keep(message.request_uri());
        let offer = self.events.keep(message.body());
        self.events.push(Event::Invited { call: CallKey(id), from, to, uri, offer });
    }

    /// Tells whether the same request came before by another path (section 8.2.2.2).
    fn is_merged(&self, asking: &Asking<'_>) -> bool {
        let place = self.place(asking.call_id());
        let cseq = asking.mandatory.cseq.number;
        self.places.iter_hash(place).filter(|(hash, _)| *hash == place).any(|&(_, id)| {
            self.calls.get(id).is_some_and(|call| {
                let open = call.asked.or(call.accepted).is_some_and(|a| a.cseq == cseq);
                open && call.legs.first().is_some_and(|l| {
                    l.dialog.remote_tag() == asking.sender_tag() && l.dialog.call_id() == asking.call_id()
                })
            })
        })
    }

    /// Handles a request within a dialog (section 12.2.2).
    fn asked_within(&mut self, round: &mut Round<'_>, asking: &Asking<'_>, to_tag: &[u8]) {
        if !self.inspect(round, asking) {
            return;
        }
        let Some((id, leg)) = self.find(asking.call_id(), to_tag, asking.sender_tag()) else {
            return self.reply_plain(round, asking, 481);
        };
        let Some(call) = self.calls.get_mut(id) else { return };
        let closing = call.stage == Stage::Terminating;
        self.events.is_of_leg(call.legs[leg].number);
        match call.legs[leg].dialog.receive(asking.message) {
            Ok(()) => (),
            Err(Fault::OutOfOrder) => return self.reply_later(round, asking),
            Err(fault) => return self.reply_plain(round, asking, fault.status()),
        }
        match asking.method {
            Method::Bye => self.bye(round, asking, id, leg),
            // After our BYE the dialog is over on this side.
            _ if closing => self.reply_plain(round, asking, 481),
            Method::Invite => self.reinvited(round, asking, id),
            Method::Update => self.updated(round, asking, id, leg),
            Method::Prack => self.pracked(round, asking, id),
            Method::Options => self.reply_capabilities(round, asking),
            method if !ALLOWED.contains(&method) => self.ask_owner(round, asking, Some(CallKey(id))),
            _ => {
                self.reply_plain(round, asking, 200);
                let body = self.events.keep(asking.message.body());
                self.events.push(Event::Within { call: CallKey(id), method: asking.method, body });
            }
        }
    }

    /// Handles a BYE (section 15.1.2).
    fn bye(&mut self, round: &mut Round<'_>, asking: &Asking<'_>, id: Id, leg: usize) {
        self.reply_plain(round, asking, 200);
        let Some(call) = self.calls.get_mut(id) else { return };
        match call.stage {
            // One of the ringing places has given up; the INVITE goes on without it.
            Stage::Inviting | Stage::Cancelling => {
                call.legs.remove(leg);
            }
            Stage::Incoming => self.refuse_call(round, id, 487, Ending::Remote),
            // Both sides hung up at the same time: on this side we were first.
            Stage::Terminating => (),
            Stage::Established | Stage::AnswerDue => {
                if call.asked.is_some() {
                    self.refuse_call(round, id, 487, Ending::Remote);
                }
                self.remove_call(round, id);
                self.events.push(Event::Ended { call: CallKey(id), by: Ending::Remote });
            }
        }
    }

    /// Handles a re-INVITE (section 14.2).
    fn reinvited(&mut self, round: &mut Round<'_>, asking: &Asking<'_>, id: Id) {
        let Some(call) = self.calls.get_mut(id) else { return };
        if call.asked.is_some() || call.stage == Stage::Incoming {
            return self.reply_later(round, asking);
        }
        if call.inviting.is_some()
            || call.accepted.is_some()
            || call.updated.is_some()
            || call.stage != Stage::Established
        {
            return self.reply_plain(round, asking, 491);
        }
        let Some(dialog) = call.dialog() else { return };
        let before = dialog.exchange;
        if asking.has_offer()
            && let Err(clash) = dialog.exchange.receive_request(false)
        {
            return self.clash(round, asking, clash);
        }
        call.asked = Some(asking.asked(false, before));
        call.kept = asking.message.bytes().to_vec();
        round.tx.set_user(asking.server, TransactionUser::new(Role::UserAgent(id)));
        if self.settings.trying {
            self.reply_plain(round, asking, 100);
        }
        let offer = self.events.keep(asking.message.body());
        self.events.push(Event::Offered { call: CallKey(id), offer, update: false });
    }

    fn clash(&mut self, round: &mut Round<'_>, asking: &Asking<'_>, clash: OfferError) {
        match clash {
            OfferError::Glare => self.reply_plain(round, asking, clash.status()),
            OfferError::OverlappingOffer => self.reply_later(round, asking),
        }
    }

    /// Handles an UPDATE (RFC 3311 section 5.2).
    fn updated(&mut self, round: &mut Round<'_>, asking: &Asking<'_>, id: Id, leg: usize) {
        let Some(call) = self.calls.get_mut(id) else { return };
        if call.updated.is_some() {
            return self.reply_later(round, asking);
        }
        let dialog = &mut call.legs[leg].dialog;
        if !asking.has_offer() {
            // Only the target is refreshed.
            let (local, secure, target) = (dialog.local().to_vec(), dialog.is_secure(), call.target);
            let mut lines = Vec::new();
            self.write_contact(&local, &target, secure, &mut lines);
            return self.reply_with(round, asking, 200, b"", &lines);
        }
        let before = dialog.exchange;
        if let Err(clash) = dialog.exchange.receive_request(false) {
            return self.clash(round, asking, clash);
        }
        let bytes = asking.message.bytes().to_vec();
        call.updated =
            Some(Box::new(IncomingUpdate { server: asking.server, source: asking.arrival.remote, bytes, before }));
        let offer = self.events.keep(asking.message.body());
        self.events.push(Event::Offered { call: CallKey(id), offer, update: true });
    }

    /// Handles a PRACK (RFC 3262 section 3).
    fn pracked(&mut self, round: &mut Round<'_>, asking: &Asking<'_>, id: Id) {
        let Some(call) = self.calls.get_mut(id) else { return };
        let rack = asking.message.mandatory::<RAck<'_>>(Name::RAck);
        let matches = match (&rack, &call.unacknowledged, call.asked) {
            (Ok(rack), Some(open), Some(asked)) => {
                rack.rseq == open.rseq && rack.cseq.number == asked.cseq && rack.cseq.method == Method::Invite
            }
            _ => false,
        };
        if !matches {
            let status = if rack.is_ok() { 481 } else { 400 };
            return self.reply_plain(round, asking, status);
        }
        if asking.has_offer()
            && let Some(dialog) = call.dialog()
            && !matches!(dialog.exchange.receive_request(true), Ok(crate::dialog::Description::Answer))
        {
            // A further offer in a PRACK is not supported; the call continues without it.
            if let Some(dialog) = call.dialog() {
                dialog.exchange.withdraw(crate::dialog::OfferAnswer::Stable);
            }
            self.stop_timers(id);
            return self.reply_plain(round, asking, 488);
        }
        let waiting = call.unacknowledged.take().and_then(|open| open.answer);
        self.stop_timers(id);
        self.reply_plain(round, asking, 200);
        if let Some((headers, body)) = waiting {
            self.answer(round, CallKey(id), Content { headers: &headers, body: &body });
        }
    }

    /// Handles the ACK of a 2xx.
    fn acknowledged(&mut self, round: &mut Round<'_>, message: &Message<'_>, mandatory: &MandatoryHeaders<'_>) {
        let (Some(to_tag), from_tag) = (mandatory.to.tag, mandatory.from.tag.unwrap_or_default()) else { return };
        let Some((id, _)) = self.find(mandatory.call_id.text, to_tag, from_tag) else { return };
        let Some(call) = self.calls.get_mut(id) else { return };
        if !call.accepted.is_some_and(|a| a.is_acknowledged_by(mandatory.cseq.number)) {
            return;
        }
        call.accepted = None;
        call.kept = Vec::new();
        if let Some(dialog) = call.dialog()
            && !message.body().is_empty()
        {
            // Only an answer is valid here.
            let _ = dialog.exchange.receive_request(true);
        }
        self.stop_timers(id);
        let body = self.events.keep(message.body());
        self.events.push(Event::Confirmed { call: CallKey(id), body });
        self.hang_up_if_due(round, id);
    }

    /// Handles a CANCEL (section 9.2).
    fn cancelled(&mut self, round: &mut Round<'_>, asking: &Asking<'_>, invite: Option<ServerId>) {
        let Some(invite) = invite else {
            return self.reply_plain(round, asking, 481);
        };
        let id = match round.tx.user(invite).role() {
            Role::UserAgent(id) => Some(id),
            _ => None,
        };
        let mut tag = Vec::new();
        let mut open = false;
        if let Some(call) = id.and_then(|id| self.calls.get_mut(id)) {
            open = call.asked.is_some_and(|a| a.server == invite);
            // Tag of the INVITE's responses.
            if let Some(dialog) = call.dialog() {
                tag.extend_from_slice(dialog.local_tag());
            }
        }
        self.reply_with(round, asking, 200, &tag, b"");
        if let (true, Some(id)) = (open, id) {
            self.refuse_call(round, id, 487, Ending::Cancelled);
        }
    }
}

const ALLOWED: &[Method] = &[
    Method::Invite,
    Method::Ack,
    Method::Cancel,
    Method::Bye,
    Method::Options,
    Method::Info,
    Method::Message,
    Method::Prack,
    Method::Update,
];

const ALLOW: &[u8] = b"Allow: INVITE, ACK, CANCEL, BYE, OPTIONS, INFO, MESSAGE, PRACK, UPDATE\r\n";
const ACCEPT: &[u8] = b"Accept: application/sdp\r\n";
