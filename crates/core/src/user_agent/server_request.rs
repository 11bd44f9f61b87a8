//! Received requests: checked (RFC 3261 section 8.2), dispatched by purpose, answered or passed to the owner.

use strowger_message::header::RAck;
use strowger_message::{MandatoryHeaders, Message, Method, Name, Uri, Write};

use super::auto_answer::{IDENTITY, is_readable};
use super::call::{Call, IncomingInvite, IncomingUpdate, LegKey, OpenRequest, Stage};
use super::content::has_description;
use super::session_timer::{Grant, write_line};
use super::settings::Reliability;
use super::uas::respond;
use super::{CallKey, Ending, Event, IncomingKey, UserAgent};
use crate::dialog::{Description, Dialog, Fault, OfferAnswer, OfferError};
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

    fn asked(&self, reliable: bool, before: OfferAnswer, grant: Option<Grant>) -> IncomingInvite {
        IncomingInvite {
            server: self.server,
            cseq: self.mandatory.cseq.number,
            source: self.arrival.remote,
            reliable,
            before,
            grant,
        }
    }

    fn update(&self, before: OfferAnswer, grant: Option<Grant>) -> Box<IncomingUpdate> {
        Box::new(IncomingUpdate {
            is_prack: self.method == Method::Prack,
            server: self.server,
            source: self.arrival.remote,
            bytes: self.message.bytes().to_vec(),
            before,
            grant,
        })
    }

    fn has_offer(&self) -> bool {
        has_description(self.message)
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

    /// Takes the ACK of a 2xx. It has no effect if no call has the dialog of the ACK ([`UserAgent::owns`]).
    pub fn take_ack(&mut self, round: &mut Round<'_>, ack: &Request<'_>) {
        self.about(ack.arrival, &ack.message, |agent| agent.acknowledged(round, &ack.message, &ack.mandatory));
    }

    /// Takes a CANCEL with its server transaction and the server transaction of its INVITE, and answers both; without
    /// an INVITE it answers 481.
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

    /// Refuses a session interval (RFC 4028 section 9). `least`: Min-SE in seconds.
    fn reply_interval_too_small(&mut self, round: &mut Round<'_>, asking: &Asking<'_>, least: u32) {
        let mut lines = Vec::new();
        write_line(Name::MinSe, least, None, &mut lines);
        self.reply_with(round, asking, 422, b"", &lines);
    }

    /// Checks method, Request-URI, Require and content (sections 8.2.1 to 8.2.3) by the capabilities of the call. Returns false if the
    /// request was refused.
    fn inspect(&mut self, round: &mut Round<'_>, asking: &Asking<'_>, call: Option<Id>) -> bool {
        let mut lines = Vec::new();
        let status = self.refusal(asking, call, &mut lines);
        if let Some(status) = status {
            self.reply_with(round, asking, status, b"", &lines);
        }
        status.is_none()
    }

    /// Returns the status that refuses a request, and writes its header lines.
    fn refusal(&self, asking: &Asking<'_>, call: Option<Id>, lines: &mut Vec<u8>) -> Option<u16> {
        let (message, own) = (asking.message, self.capabilities(call));
        if !own.allows(message.method_text()) && !self.settings.other_methods {
            own.write_allow(lines);
            return Some(405);
        }
        if matches!(asking.mandatory.uri, Some(Uri::Other(_) | Uri::Urn(_))) {
            return Some(416);
        }
        for tag in message.require() {
            let Ok(tag) = tag else { return Some(400) };
            if !own.supports(tag.text) {
                lines.extend_from_slice(if lines.is_empty() { b"Unsupported: " } else { b", " });
                lines.extend_from_slice(tag.text);
            }
        }
        if !lines.is_empty() {
            lines.extend_from_slice(b"\r\n");
            return Some(420);
        }
        let is_of_session = matches!(asking.method, Method::Invite | Method::Update | Method::Prack);
        if !is_of_session || message.body().is_empty() {
            return None;
        }
        if !is_readable(message) {
            lines.extend_from_slice(IDENTITY);
            return Some(415);
        }
        if !own.accepts(message.header(Name::ContentType).unwrap_or_default()) {
            own.write_accept(lines);
            return Some(415);
        }
        None
    }

    fn asked_outside(&mut self, round: &mut Round<'_>, asking: &Asking<'_>) {
        if !self.inspect(round, asking, None) {
            return;
        }
        match asking.method {
            Method::Invite => self.invited(round, asking),
            // These methods need a dialog, and there is none.
            Method::Ack | Method::Bye | Method::Cancel | Method::Info | Method::Prack | Method::Update => {
                self.reply_plain(round, asking, 481);
            }
            _ => self.ask_owner(round, asking, None),
        }
    }

    /// Passes a request to the owner, who answers it.
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
        let body = self.events.keep(asking.message.body());
        self.events.push(Event::Request { request: IncomingKey(id), call, method: asking.method, body });
    }

    /// Handles an INVITE that creates a call (section 13.3.1).
    fn invited(&mut self, round: &mut Round<'_>, asking: &Asking<'_>) {
        if self.is_merged(asking) {
            return self.reply_plain(round, asking, 482);
        }
        if self.calls.len() >= self.settings.calls {
            return self.reply_with(round, asking, 503, b"", b"Retry-After: 5\r\n");
        }
        let message = asking.message;
        let grant = match self.grant(None, message) {
            Ok(grant) => grant,
            Err(least) => return self.reply_interval_too_small(round, asking, least),
        };
        let tag = self.tag();
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
        (call.kept, call.is_unproven) = (message.bytes().to_vec(), round.tx.is_doubted(asking.server));
        call.asked = Some(asking.asked(reliable, before, grant));
        let id = self.insert_call(call);
        self.note_peer(id, message);
        round.tx.set_user(asking.server, TransactionUser::new(Role::UserAgent(id)));
        if self.settings.trying {
            self.reply_plain(round, asking, 100);
        }
        let from = self.events.keep(message.header(Name::From).unwrap_or_default());
        let to = self.events.keep(message.header(Name::To).unwrap_or_default());
        let uri = self.events.keep(message.request_uri());
        let offer = self.events.keep(message.body());
        self.report_name(id, 0);
        self.events.push(Event::Invited { call: CallKey(id), from, to, uri, offer });
    }

    /// Tells whether the same request arrived before by another path (section 8.2.2.2).
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
        let found = self.find(asking.call_id(), to_tag, asking.sender_tag());
        if !self.inspect(round, asking, found.map(|(id, _)| id)) {
            return;
        }
        let Some((id, leg)) = found else { return self.reply_plain(round, asking, 481) };
        let Some(call) = self.calls.get_mut(id) else { return };
        let closing = call.stage == Stage::Terminating;
        call.is_unproven = false;
        self.events.is_of_leg(call.legs[leg].number);
        match call.legs[leg].dialog.receive(asking.message) {
            Ok(()) if asking.method == Method::Bye => (),
            // The request may have changed the remote target.
            Ok(()) => self.report_name(id, leg),
            Err(Fault::OutOfOrder) => return self.reply_later(round, asking),
            Err(fault) => return self.reply_plain(round, asking, fault.status()),
        }
        match asking.method {
            Method::Bye => self.bye(round, asking, id, leg),
            // After our BYE the dialog has ended on this side.
            _ if closing => self.reply_plain(round, asking, 481),
            Method::Invite => self.reinvited(round, asking, id),
            Method::Update => self.updated(round, asking, id, leg),
            Method::Prack => self.pracked(round, asking, id, leg),
            _ => self.ask_owner(round, asking, Some(CallKey(id))),
        }
    }

    /// Handles a BYE (section 15.1.2).
    fn bye(&mut self, round: &mut Round<'_>, asking: &Asking<'_>, id: Id, leg: usize) {
        self.reply_plain(round, asking, 200);
        let Some(call) = self.calls.get_mut(id) else { return };
        match call.stage {
            // One of the ringing places has ended its dialog; the INVITE continues without that place.
            Stage::Inviting | Stage::Cancelling => {
                let number = Some(call.legs[leg].number);
                self.reject_update(round, LegKey { call: CallKey(id), leg: number }, 487);
                if let Some(call) = self.calls.get_mut(id) {
                    call.legs.remove(leg);
                }
            }
            Stage::Incoming => self.refuse_call(round, id, 487, Ending::Remote),
            // Both sides have sent a BYE at the same time; on this side ours was first.
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
        let is_updated = call.legs.iter().any(|leg| leg.updated.is_some());
        let is_open = call.legs.first().is_some_and(|leg| leg.dialog.exchange == OfferAnswer::LocalOffer);
        let is_busy = call.inviting.is_some() || call.accepted.is_some() || is_updated || is_open;
        if is_busy || call.stage != Stage::Established {
            return self.reply_plain(round, asking, 491);
        }
        let grant = match self.grant(Some(id), asking.message) {
            Ok(grant) => grant,
            Err(least) => return self.reply_interval_too_small(round, asking, least),
        };
        self.note_peer(id, asking.message);
        let Some(call) = self.calls.get_mut(id) else { return };
        let Some(dialog) = call.dialog() else { return };
        let before = dialog.exchange;
        if asking.has_offer()
            && let Err(clash) = dialog.exchange.receive_request(false)
        {
            return self.clash(round, asking, clash);
        }
        call.asked = Some(asking.asked(false, before, grant));
        call.kept = asking.message.bytes().to_vec();
        round.tx.set_user(asking.server, TransactionUser::new(Role::UserAgent(id)));
        if self.settings.trying {
            self.reply_plain(round, asking, 100);
        }
        let offer = self.events.keep(asking.message.body());
        self.report_name(id, 0);
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
        if call.legs[leg].updated.is_some() {
            return self.reply_later(round, asking);
        }
        // A session that is not established yet has no timer.
        let is_up = call.stage == Stage::Established;
        let grant = match self.grant(Some(id), asking.message) {
            Ok(grant) => grant.filter(|_| is_up),
            Err(least) if is_up => return self.reply_interval_too_small(round, asking, least),
            Err(_) => None,
        };
        self.note_peer(id, asking.message);
        let Some(call) = self.calls.get_mut(id) else { return };
        let dialog = &mut call.legs[leg].dialog;
        if !asking.has_offer() {
            // The UPDATE only refreshes the target and the session (RFC 4028 section 7.4), so the owner has nothing to
            // answer.
            let (local, secure, target) = (dialog.local().to_vec(), dialog.is_secure(), call.target);
            let mut lines = Vec::new();
            self.write_contact(&local, &target, secure, &mut lines);
            grant.iter().for_each(|grant| grant.write(&mut lines));
            self.reply_with(round, asking, 200, b"", &lines);
            if is_up {
                self.start_session(round.now, id, grant);
            }
            self.report_name(id, leg);
            return self.events.push(Event::Refreshed { call: CallKey(id) });
        }
        let before = dialog.exchange;
        if let Err(clash) = dialog.exchange.receive_request(false) {
            return self.clash(round, asking, clash);
        }
        call.legs[leg].updated = Some(asking.update(before, grant));
        let offer = self.events.keep(asking.message.body());
        self.report_name(id, leg);
        self.events.push(Event::Offered { call: CallKey(id), offer, update: true });
    }

    /// Handles a PRACK (RFC 3262 sections 3 and 5).
    fn pracked(&mut self, round: &mut Round<'_>, asking: &Asking<'_>, id: Id, leg: usize) {
        let Some(call) = self.calls.get_mut(id) else { return };
        let Ok(rack) = asking.message.mandatory::<RAck<'_>>(Name::RAck) else {
            return self.reply_plain(round, asking, 400);
        };
        let is_of = |rseq: u32| rack.rseq == rseq && rack.cseq.method == Method::Invite;
        let open = match (&mut call.unacknowledged, call.asked) {
            (Some(open), Some(asked)) if rack.cseq.number == asked.cseq => Some(open),
            _ => None,
        };
        let is_due = open.as_ref().is_some_and(|open| is_of(open.rseq) && !open.acknowledged);
        // A response without description may be overtaken by the 2xx, which does not wait for its PRACK.
        let is_late = call.stage == Stage::Established && call.rseq != 0 && is_of(call.rseq);
        if !is_due && !is_late {
            return self.reply_plain(round, asking, 481);
        }
        if is_late {
            call.rseq = 0;
        }
        let exchange = &mut call.legs[leg].dialog.exchange;
        let before = *exchange;
        let described = if asking.has_offer() { exchange.receive_request(true).map(Some) } else { Ok(None) };
        let body = self.events.keep(asking.message.body());
        if described == Ok(Some(Description::Offer)) {
            if let Some(open) = open {
                open.acknowledged = true;
            }
            call.legs[leg].updated = Some(asking.update(before, None));
            self.events.push(Event::Offered { call: CallKey(id), offer: body, update: true });
        } else if let Err(clash) = described {
            // The response is acknowledged nevertheless.
            self.clash(round, asking, clash);
        } else {
            self.reply_plain(round, asking, 200);
            self.events.push(Event::Acknowledged { call: CallKey(id), body });
        }
        if is_due {
            self.stop_timers(id);
        }
        if described != Ok(Some(Description::Offer)) {
            self.release(round, id);
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
        (call.accepted, call.kept, call.is_unproven) = (None, Vec::new(), false);
        // Here only an answer is valid, not an offer.
        if let Some(dialog) = call.dialog()
            && dialog.exchange == OfferAnswer::LocalOffer
            && has_description(message)
        {
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
