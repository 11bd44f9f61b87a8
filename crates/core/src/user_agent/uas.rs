//! Callee: responses of its owner to an INVITE, re-INVITE or UPDATE (RFC 3261 section 13.3, RFC 3262 section 3).

use std::net::SocketAddr;

use strowger_message::{Limits, Message, Method, Name, Write, build};

use super::call::{IncomingInvite, Leg, LegKey, Stage, Unacknowledged};
use super::content::Content;
use super::{CallKey, Ending, Event, IncomingKey, UserAgent};
use crate::dialog::OfferAnswer;
use crate::slots::Id;
use crate::transaction::ServerId;
use crate::{Arrival, Outbox, Round, via};

impl UserAgent {
    /// Sends a provisional response, 101 to 199, to an INVITE: 180 for ringing, 183 with a description for early media. While a reliable one
    /// waits for its PRACK, the next one is held back (RFC 3262 section 3): of several, the last with the last description.
    pub fn ring<'c>(&mut self, round: &mut Round<'_>, call: CallKey, status: u16, content: impl Into<Content<'c>>) {
        self.ring_as(round, call.0, status, content.into(), true);
    }

    /// Sends a provisional response without description as [`UserAgent::ring`] does, but not reliably: before the offer, for which the caller
    /// waits (RFC 3262 section 5). A caller that requires 100rel must not get it.
    pub fn ring_unreliably(&mut self, round: &mut Round<'_>, call: CallKey, status: u16, headers: &[u8]) {
        self.ring_as(round, call.0, status, Content { headers, ..Content::default() }, false);
    }

    fn ring_as(&mut self, round: &mut Round<'_>, id: Id, status: u16, content: Content<'_>, may_be_reliable: bool) {
        let has_body = content.is_description();
        let Some(c) = self.calls.get_mut(id).filter(|c| c.stage == Stage::Incoming) else { return };
        let Some(asked) = c.asked else { return };
        if let Some(open) = &mut c.unacknowledged {
            if open.answer.is_none() {
                let before = open.held.take().map(|(_, content)| content);
                open.held = Some((status, content.or_body(before.as_ref()).into()));
            }
            return;
        }
        if has_body && let Some(dialog) = c.dialog() {
            describe(&mut dialog.exchange, asked.before);
        }
        let mut rseq = 0;
        if asked.reliable && may_be_reliable {
            c.rseq = if c.rseq == 0 { 1 + (self.entropy.u64() as u32 & 0x00ff_ffff) } else { c.rseq + 1 };
            rseq = c.rseq;
        }
        let start = round.out.start();
        if !self.write_answer(id, status, rseq, content, round.out) {
            return;
        }
        let range = start..round.out.bytes.len();
        let bytes = if rseq == 0 { Vec::new() } else { round.out.bytes[range.clone()].to_vec() };
        round.tx.respond(round.now, asked.server, status, range, round.out);
        self.note_description(id, content);
        if rseq != 0
            && let Some(c) = self.calls.get_mut(id)
        {
            let (acknowledged, held, answer) = (false, None, None);
            c.unacknowledged =
                Some(Box::new(Unacknowledged { bytes, status, rseq, has_body, acknowledged, held, answer }));
            self.start_timers(round.now, id);
        }
    }

    /// Accepts an INVITE or a re-INVITE with 200. The description is the answer to its offer, or the offer if it had none. It may be empty
    /// if a reliable response gave it already.
    pub fn answer<'c>(&mut self, round: &mut Round<'_>, call: CallKey, content: impl Into<Content<'c>>) {
        let (id, content) = (call.0, content.into());
        let Some(c) = self.calls.get_mut(id) else { return };
        let Some(asked) = c.asked else { return };
        let held = c.unacknowledged.as_mut().and_then(|open| open.held.take()).map(|(_, content)| content);
        let content = content.or_body(held.as_ref());
        if let Some(open) = &mut c.unacknowledged
            && (open.has_body || open.acknowledged)
        {
            // The 2xx must not overtake the reliable response with the description (RFC 3262 section 3).
            open.answer = Some(content.into());
            return;
        }
        if c.unacknowledged.take().is_none() {
            // No PRACK may follow the 2xx.
            c.rseq = 0;
        }
        if content.is_description()
            && let Some(dialog) = c.dialog()
        {
            describe(&mut dialog.exchange, asked.before);
        }
        let start = round.out.start();
        if !self.write_answer(id, 200, 0, content, round.out) {
            return;
        }
        let range = start..round.out.bytes.len();
        let bytes = round.out.bytes[range.clone()].to_vec();
        round.tx.respond(round.now, asked.server, 200, range, round.out);
        if let Some(c) = self.calls.get_mut(id) {
            c.kept = bytes;
            c.asked = None;
            c.accepted = Some(asked);
            c.stage = Stage::Established;
            if let Some(dialog) = c.dialog() {
                dialog.confirm(None);
            }
            self.start_timers(round.now, id);
        }
        self.note_description(id, content);
        self.start_session(round.now, id, asked.grant);
    }

    /// Refuses an INVITE, which ends the call, or a re-INVITE, which changes nothing. `status`: 300 to 699.
    pub fn reject(&mut self, round: &mut Round<'_>, call: CallKey, status: u16) {
        self.reject_with(round, call, status, b"");
    }

    /// Refuses as [`UserAgent::reject`] does, with further header lines, each with its CRLF.
    pub fn reject_with(&mut self, round: &mut Round<'_>, call: CallKey, status: u16, headers: &[u8]) {
        let Some(c) = self.calls.get_mut(call.0).filter(|c| c.asked.is_some()) else { return };
        c.last_lines = headers.to_vec();
        self.refuse_call(round, call.0, status, Ending::Local);
    }

    /// Answers an UPDATE, or a PRACK with a further offer, with 200 and the answer to its offer.
    pub fn answer_update<'c>(
        &mut self,
        round: &mut Round<'_>,
        leg: impl Into<LegKey>,
        content: impl Into<Content<'c>>,
    ) {
        let (LegKey { call, leg }, content) = (leg.into(), content.into());
        let Some(c) = self.calls.get_mut(call.0) else { return };
        let (target, is_up) = (c.target, c.stage == Stage::Established);
        let Some(leg) = updated(&mut c.legs, leg) else { return };
        let Some(update) = leg.updated.take() else { return };
        // If our response to the INVITE has crossed the offer, its description has closed the exchange.
        if leg.dialog.exchange == OfferAnswer::RemoteOffer {
            leg.dialog.exchange.send();
        }
        let (local, secure) = (leg.dialog.local().to_vec(), leg.dialog.is_secure());
        let lines = |ua: &Self, lines: &mut Vec<u8>| {
            if !update.is_prack {
                ua.write_contact(&local, &target, secure, lines);
                ua.capabilities(Some(call.0)).write(lines);
            }
            update.grant.iter().for_each(|grant| grant.write(lines));
            lines.extend_from_slice(content.headers);
            content.write_type(lines);
        };
        self.reply(round, update.server, update.source, &update.bytes, 200, b"", lines, content.body);
        self.note_description(call.0, content);
        if update.is_prack {
            self.release(round, call.0);
        } else if is_up {
            self.start_session(round.now, call.0, update.grant);
        }
    }

    /// Refuses an UPDATE: the session stays unchanged. `status`: 300 to 699. A PRACK acknowledges its response also with this answer.
    pub fn reject_update(&mut self, round: &mut Round<'_>, leg: impl Into<LegKey>, status: u16) {
        self.reject_update_with(round, leg, status, b"");
    }

    /// Refuses as [`UserAgent::reject_update`] does, with further header lines, each with its CRLF.
    pub fn reject_update_with(&mut self, round: &mut Round<'_>, leg: impl Into<LegKey>, status: u16, headers: &[u8]) {
        let LegKey { call, leg } = leg.into();
        let Some(leg) = self.calls.get_mut(call.0).and_then(|c| updated(&mut c.legs, leg)) else { return };
        let Some(update) = leg.updated.take() else { return };
        leg.dialog.exchange.withdraw(update.before);
        let lines = |_: &Self, lines: &mut Vec<u8>| lines.extend_from_slice(headers);
        self.reply(round, update.server, update.source, &update.bytes, status, b"", lines, b"");
        if update.is_prack {
            self.release(round, call.0);
        }
    }

    /// Sends the response that has waited for a PRACK: the 2xx, else the last provisional one (RFC 3262 section 3).
    pub(super) fn release(&mut self, round: &mut Round<'_>, id: Id) {
        let Some(open) = self.calls.get_mut(id).and_then(|c| c.unacknowledged.take()) else { return };
        if let Some(answer) = open.answer {
            self.answer(round, CallKey(id), answer.content());
        } else if let Some((status, held)) = open.held {
            self.ring(round, CallKey(id), status, held.content());
        }
    }

    /// Refuses the open INVITE; if it would have made a call, the call is over.
    pub(super) fn refuse_call(&mut self, round: &mut Round<'_>, id: Id, status: u16, by: Ending) {
        let Some(call) = self.calls.get_mut(id) else { return };
        let Some(asked) = call.asked.take() else { return };
        self.timers.stop(&mut call.again);
        self.timers.stop(&mut call.end);
        call.unacknowledged = None;
        let (bytes, headers) = (std::mem::take(&mut call.kept), std::mem::take(&mut call.last_lines));
        let first = call.stage == Stage::Incoming;
        let mut tag = Vec::new();
        if let Some(dialog) = call.dialog() {
            tag.extend_from_slice(dialog.local_tag());
            dialog.exchange.withdraw(asked.before);
        }
        let write = |_: &Self, lines: &mut Vec<u8>| lines.extend_from_slice(&headers);
        self.reply(round, asked.server, asked.source, &bytes, status, &tag, write, b"");
        if first {
            self.remove_call(round, id);
            self.events.push(Event::Ended { call: CallKey(id), by });
        } else if by == Ending::Cancelled {
            self.events.push(Event::Withdrawn { call: CallKey(id) });
        }
    }

    /// Writes a response to the open INVITE that makes or keeps a dialog (section 12.1.1).
    fn write_answer(&mut self, id: Id, status: u16, rseq: u32, content: Content<'_>, out: &mut Outbox) -> bool {
        let Some(call) = self.calls.get_mut(id) else { return false };
        let Some(asked) = call.asked else { return false };
        let bytes = std::mem::take(&mut call.kept);
        let mut index = self.indexes.pop().unwrap_or_default();
        let parsed = index.parse(&bytes, &Limits::UNLIMITED).is_ok();
        if parsed {
            let request = Message::new(&bytes, &index);
            let call = self.calls.get(id).expect("the call was there just now");
            if let Some(leg) = call.legs.first() {
                let dialog = &leg.dialog;
                let mut builder = respond(&request, asked.source, status, dialog.local_tag(), &mut out.bytes);
                builder = builder.copy(&request, Name::RecordRoute);
                let out = builder.buffer();
                self.write_contact(dialog.local(), &call.target, dialog.is_secure(), out);
                if status >= 200 {
                    self.capabilities(Some(id)).write(out);
                    asked.grant.iter().for_each(|grant| grant.write(out));
                }
                if rseq != 0 {
                    out.extend_from_slice(b"Require: 100rel\r\nRSeq: ");
                    rseq.write(out);
                    out.extend_from_slice(b"\r\n");
                }
                self.write_name(b"Server", out);
                out.extend_from_slice(content.headers);
                content.write_type(out);
                builder.finish(content.body);
            }
        }
        self.indexes.push(index);
        if let Some(call) = self.calls.get_mut(id) {
            call.kept = bytes;
        }
        parsed
    }

    /// Responds to a kept request.
    #[expect(clippy::too_many_arguments, reason = "each says one thing about the response")]
    pub(super) fn reply(
        &mut self,
        round: &mut Round<'_>,
        server: ServerId,
        source: SocketAddr,
        request: &[u8],
        status: u16,
        to_tag: &[u8],
        lines: impl FnOnce(&Self, &mut Vec<u8>),
        body: &[u8],
    ) {
        let mut index = self.indexes.pop().unwrap_or_default();
        if index.parse(request, &Limits::UNLIMITED).is_ok() {
            let start = round.out.start();
            let request = Message::new(request, &index);
            let mut builder = respond(&request, source, status, to_tag, &mut round.out.bytes);
            lines(self, builder.buffer());
            self.write_name(b"Server", builder.buffer());
            builder.finish(body);
            round.tx.respond(round.now, server, status, start..round.out.bytes.len(), round.out);
        }
        self.indexes.push(index);
    }

    /// Answers the request of an [`Event::Request`]. `headers`: further lines, each with its CRLF; Content-Type among them if there is a
    /// body. A 2xx to a REFER or SUBSCRIBE in a call gets its Contact. The key is gone after a final response or 64*T1.
    pub fn respond(&mut self, round: &mut Round<'_>, request: IncomingKey, status: u16, headers: &[u8], body: &[u8]) {
        let Some(open) = self.open.get(request.0) else { return };
        let (server, source, bytes, tag) = (open.server, open.source, open.bytes.clone(), open.tag.clone());
        let contact = if (200..300).contains(&status) { self.contact_for(&bytes) } else { Vec::new() };
        let write = |_: &Self, lines: &mut Vec<u8>| lines.extend([&contact[..], headers].concat());
        if status >= 200 {
            self.open.remove(request.0);
        }
        self.reply(round, server, source, &bytes, status, &tag, write, body);
    }

    /// Returns the Contact line of a 2xx to a request in a call that begins a subscription (RFC 3515 section 2, RFC 6665 section 4.2.1.1);
    /// empty for other requests.
    fn contact_for(&mut self, request: &[u8]) -> Vec<u8> {
        let (mut line, mut index) = (Vec::new(), self.indexes.pop().unwrap_or_default());
        if index.parse(request, &Limits::UNLIMITED).is_ok() {
            let request = Message::new(request, &index);
            if matches!(request.method(), Some(Method::Refer | Method::Subscribe))
                && let (Ok(from), Ok(to), Ok(call_id)) = (request.from(), request.to(), request.call_id())
                && let Some((id, at)) =
                    self.find(call_id.text, to.tag.unwrap_or_default(), from.tag.unwrap_or_default())
                && let Some(call) = self.calls.get(id)
            {
                let dialog = &call.legs[at].dialog;
                self.write_contact(dialog.local(), &call.target, dialog.is_secure(), &mut line);
            }
        }
        self.indexes.push(index);
        line
    }

    /// Refuses a message without a transaction: it is malformed, or there is no room for it.
    pub(super) fn refuse(&mut self, arrival: &Arrival, message: &Message<'_>, status: u16, out: &mut Outbox) {
        let method = message.method();
        if method.is_none() || method == Some(Method::Ack) || message.header(Name::Via).is_none() {
            return;
        }
        let tag = self.word();
        let start = out.start();
        let mut builder = respond(message, arrival.remote, status, &tag, &mut out.bytes);
        if status == 503 {
            builder.buffer().extend_from_slice(b"Retry-After: 5\r\n");
        }
        self.write_name(b"Server", builder.buffer());
        builder.finish(b"");
        let target = message.via().map_or_else(|_| arrival.reply(), |top| via::reply_target(&top, arrival));
        out.send(target, start..out.bytes.len(), 0);
    }
}

impl IncomingInvite {
    /// Tells whether an ACK with this CSeq acknowledges the 2xx of this INVITE.
    pub(super) const fn is_acknowledged_by(&self, cseq: u32) -> bool {
        self.cseq == cseq
    }
}

/// Notes a description in a response to an INVITE. An answer that repeats that of an earlier response counts once (RFC 3261 section 13.2.1).
/// `before`: state before the INVITE.
fn describe(exchange: &mut OfferAnswer, before: OfferAnswer) {
    if *exchange != OfferAnswer::Stable || before == OfferAnswer::Stable {
        exchange.send();
    }
}

/// Returns the dialog with an open UPDATE or PRACK; without a number, the first one.
fn updated(legs: &mut [Leg], number: Option<u16>) -> Option<&mut Leg> {
    legs.iter_mut().find(|leg| leg.updated.is_some() && number.is_none_or(|number| leg.number == number))
}

/// Starts a response whose top Via has the source of the request (sections 8.2.6 and 18.2.1, RFC 3581 section 4).
pub(super) fn respond<'o>(
    request: &Message<'_>,
    source: SocketAddr,
    status: u16,
    to_tag: &[u8],
    out: &'o mut Vec<u8>,
) -> build::Builder<'o> {
    let tag = (!to_tag.is_empty() && status > 100).then_some(to_tag);
    let top = request.via();
    let write_top = |out: &mut Vec<u8>| top.is_ok_and(|top| via::write_completed(request, &top, &source, false, out));
    build::respond_via(request, status, None, tag, write_top, out)
}
