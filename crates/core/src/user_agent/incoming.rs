//! Requests that came: checked (RFC 3261 section 8.2), told apart, answered or told to the owner.

use strowger_message::header::RAck;
use strowger_message::{Essentials, Message, Method, Name, Uri, Write};

use super::answer::respond;
use super::call::{Asked, Call, Leg, Stage, Updated};
use super::caller::CAPABILITIES;
use super::settings::Reliability;
use super::{CallKey, Ending, Event, UserAgent};
use crate::dialog::{Clash, Dialog, Fault};
use crate::slots::Id;
use crate::transaction::{Incoming, ServerId};
use crate::{Arrival, Now, Outbox, call, via};

/// A request with a server transaction.
#[derive(Clone, Copy)]
struct Asking<'m> {
    message: &'m Message<'m>,
    essentials: &'m Essentials<'m>,
    method: Method,
    arrival: &'m Arrival,
    server: ServerId,
    call_hash: u32,
}

impl<'m> Asking<'m> {
    fn call_id(&self) -> &'m [u8] {
        self.essentials.call_id.text
    }

    fn sender_tag(&self) -> &'m [u8] {
        self.essentials.from.tag.unwrap_or_default()
    }

    fn asked(&self, reliable: bool, before: crate::dialog::Exchange) -> Asked {
        Asked { server: self.server, cseq: self.essentials.cseq.number, source: self.arrival.remote, reliable, before }
    }

    fn has_offer(&self) -> bool {
        !self.message.body().is_empty()
    }
}

impl UserAgent {
    pub(super) fn requested(&mut self, now: Now, arrival: &Arrival, message: &Message<'_>, out: &mut Outbox) {
        let essentials = match Essentials::of(message) {
            Ok(essentials) => essentials,
            Err(error) => return self.refuse(arrival, message, error.status(), out),
        };
        let method = message.method().unwrap_or(Method::Other);
        let call_hash = call::hash(self.call_secret, essentials.call_id.text);
        let asking = |server| Asking { message, essentials: &essentials, method, arrival, server, call_hash };
        match self.transactions.request(now, message, arrival, call_hash, out) {
            Incoming::Absorbed => (),
            Incoming::Full => self.refuse(arrival, message, 503, out),
            Incoming::Ack => self.acknowledged(now, message, &essentials, out),
            Incoming::New(server) => {
                self.transactions.set_reply(server, via::reply_target(&essentials.via, arrival));
                let asking = asking(server);
                match essentials.to.tag {
                    Some(tag) => self.asked_within(now, &asking, tag, out),
                    None => self.asked_outside(now, &asking, out),
                }
            }
            Incoming::Cancel { cancel, invite } => {
                self.transactions.set_reply(cancel, via::reply_target(&essentials.via, arrival));
                self.cancelled(now, &asking(cancel), invite, out);
            }
        }
    }

    /// Responds with further lines and no body.
    fn reply_with(
        &mut self,
        now: Now,
        asking: &Asking<'_>,
        status: u16,
        to_tag: &[u8],
        lines: &[u8],
        out: &mut Outbox,
    ) {
        let start = out.start();
        let made = if to_tag.is_empty() && status > 100 { self.word().to_vec() } else { Vec::new() };
        let to_tag = if to_tag.is_empty() { &made } else { to_tag };
        let mut builder = respond(asking.message, asking.arrival.remote, status, to_tag, &mut out.bytes);
        builder.buffer().extend_from_slice(lines);
        self.write_name(b"Server", builder.buffer());
        builder.finish(b"");
        self.transactions.respond(now, asking.server, status, start..out.bytes.len(), out);
    }

    fn reply_plain(&mut self, now: Now, asking: &Asking<'_>, status: u16, out: &mut Outbox) {
        self.reply_with(now, asking, status, b"", b"", out);
    }

    /// After a 500 the peer may try again in 0 to 10 s (section 14.2).
    fn reply_later(&mut self, now: Now, asking: &Asking<'_>, out: &mut Outbox) {
        let mut lines = b"Retry-After: ".to_vec();
        ((self.entropy.u64() % 11) as u32).write(&mut lines);
        lines.extend_from_slice(b"\r\n");
        self.reply_with(now, asking, 500, b"", &lines, out);
    }

    /// Method, Request-URI, Require, content (sections 8.2.1 to 8.2.3). False: it has been refused.
    fn inspect(&mut self, now: Now, asking: &Asking<'_>, out: &mut Outbox) -> bool {
        if !ALLOWED.contains(&asking.method) {
            self.reply_with(now, asking, 405, b"", ALLOW, out);
            return false;
        }
        if matches!(asking.essentials.uri, Some(Uri::Other(_) | Uri::Urn(_))) {
            self.reply_plain(now, asking, 416, out);
            return false;
        }
        let mut lines = Vec::new();
        for tag in asking.message.require() {
            let Ok(tag) = tag else {
                self.reply_plain(now, asking, 400, out);
                return false;
            };
            if !tag.is(b"100rel") {
                lines.extend_from_slice(if lines.is_empty() { b"Unsupported: " } else { b", " });
                lines.extend_from_slice(tag.text);
            }
        }
        if !lines.is_empty() {
            lines.extend_from_slice(b"\r\n");
            self.reply_with(now, asking, 420, b"", &lines, out);
            return false;
        }
        let message = asking.message;
        if message.body().is_empty() {
            return true;
        }
        let encoded = message.header(Name::ContentEncoding).is_some_and(|e| !e.eq_ignore_ascii_case(b"identity"));
        if encoded {
            self.reply_with(now, asking, 415, b"", b"Accept-Encoding: identity\r\n", out);
            return false;
        }
        let session = matches!(asking.method, Method::Invite | Method::Update | Method::Prack | Method::Ack);
        let is_sdp = message.header(Name::ContentType).is_some_and(|t| {
            t.split(|&b| b == b';').next().is_some_and(|t| t.trim_ascii().eq_ignore_ascii_case(b"application/sdp"))
        });
        if session && !is_sdp {
            self.reply_with(now, asking, 415, b"", ACCEPT, out);
            return false;
        }
        true
    }

    fn asked_outside(&mut self, now: Now, asking: &Asking<'_>, out: &mut Outbox) {
        if !self.inspect(now, asking, out) {
            return;
        }
        match asking.method {
            Method::Invite => self.invited(now, asking, out),
            Method::Options => self.reply_capabilities(now, asking, out),
            Method::Message => {
                self.reply_plain(now, asking, 200, out);
                let message = asking.message;
                let mut keep = |text: Option<&[u8]>| self.events.keep(text.unwrap_or_default());
                let (from, to) = (keep(message.header(Name::From)), keep(message.header(Name::To)));
                let (content_type, body) = (keep(message.header(Name::ContentType)), keep(Some(message.body())));
                self.events.push(Event::Message { from, to, content_type, body });
            }
            // Each of the others belongs to a dialog that is not there.
            _ => self.reply_plain(now, asking, 481, out),
        }
    }

    /// Section 11.2.
    fn reply_capabilities(&mut self, now: Now, asking: &Asking<'_>, out: &mut Outbox) {
        let lines = [CAPABILITIES, ACCEPT, b"Accept-Encoding: identity\r\nAccept-Language: en\r\n"].concat();
        self.reply_with(now, asking, 200, b"", &lines, out);
    }

    /// An INVITE that makes a call (section 13.3.1).
    fn invited(&mut self, now: Now, asking: &Asking<'_>, out: &mut Outbox) {
        if self.is_merged(asking) {
            return self.reply_plain(now, asking, 482, out);
        }
        if self.calls.len() >= self.settings.calls {
            return self.reply_with(now, asking, 503, b"", b"Retry-After: 5\r\n", out);
        }
        let message = asking.message;
        let tag = self.word();
        let secure = asking.arrival.transport.is_secure() && asking.essentials.uri.is_some_and(|u| u.is_sips());
        let Ok(mut dialog) = Dialog::callee(message, &tag, secure) else {
            return self.reply_plain(now, asking, 400, out);
        };
        let before = dialog.exchange;
        if asking.has_offer() && dialog.exchange.receive_request(false).is_err() {
            return self.reply_plain(now, asking, 400, out);
        }
        let reliable = match self.settings.reliability {
            Reliability::Supported if message.supports(b"100rel") => true,
            _ => message.require().flatten().any(|t| t.is(b"100rel")),
        };
        let place = self.place(asking.call_id());
        let mut call = Call::new(Stage::Incoming, place, asking.call_hash, asking.arrival.reply());
        call.legs.push(Leg { dialog, rseq: 0 });
        call.kept = message.bytes().to_vec();
        call.asked = Some(asking.asked(reliable, before));
        let id = self.insert_call(call);
        self.transactions.set_owner(asking.server, id.to_u64());
        if self.settings.trying {
            self.reply_plain(now, asking, 100, out);
        }
        let from = self.events.keep(message.header(Name::From).unwrap_or_default());
        let to = self.events.keep(message.header(Name::To).unwrap_or_default());
        let uri = self.events.keep(message.request_uri());
        let offer = self.events.keep(message.body());
        self.events.push(Event::Invited { call: CallKey(id), from, to, uri, offer });
    }

    /// The same request by another way (section 8.2.2.2).
    fn is_merged(&self, asking: &Asking<'_>) -> bool {
        let place = self.place(asking.call_id());
        let cseq = asking.essentials.cseq.number;
        self.places.iter_hash(place).filter(|(hash, _)| *hash == place).any(|&(_, id)| {
            self.calls.get(id).is_some_and(|call| {
                let open = call.asked.or(call.accepted).is_some_and(|a| a.cseq == cseq);
                open && call.legs.first().is_some_and(|l| {
                    l.dialog.remote_tag() == asking.sender_tag() && l.dialog.call_id() == asking.call_id()
                })
            })
        })
    }

    /// A request in a dialog (section 12.2.2).
    fn asked_within(&mut self, now: Now, asking: &Asking<'_>, to_tag: &[u8], out: &mut Outbox) {
        if !self.inspect(now, asking, out) {
            return;
        }
        let Some((id, leg)) = self.find(asking.call_id(), to_tag, asking.sender_tag()) else {
            return self.reply_plain(now, asking, 481, out);
        };
        let Some(call) = self.calls.get_mut(id) else { return };
        let closing = call.stage == Stage::Closing;
        match call.legs[leg].dialog.receive(asking.message) {
            Ok(()) => (),
            Err(Fault::OutOfOrder) => return self.reply_later(now, asking, out),
            Err(fault) => return self.reply_plain(now, asking, fault.status(), out),
        }
        match asking.method {
            Method::Bye => self.bye(now, asking, id, leg, out),
            // Our BYE is under way: the dialog is over as far as we are concerned.
            _ if closing => self.reply_plain(now, asking, 481, out),
            Method::Invite => self.reinvited(now, asking, id, out),
            Method::Update => self.updated(now, asking, id, leg, out),
            Method::Prack => self.pracked(now, asking, id, out),
            Method::Options => self.reply_capabilities(now, asking, out),
            _ => {
                self.reply_plain(now, asking, 200, out);
                let body = self.events.keep(asking.message.body());
                self.events.push(Event::Within { call: CallKey(id), method: asking.method, body });
            }
        }
    }

    /// Section 15.1.2.
    fn bye(&mut self, now: Now, asking: &Asking<'_>, id: Id, leg: usize, out: &mut Outbox) {
        self.reply_plain(now, asking, 200, out);
        let Some(call) = self.calls.get_mut(id) else { return };
        match call.stage {
            // One of the places that ring has given up; the INVITE goes on without it.
            Stage::Inviting | Stage::Cancelling => {
                call.legs.remove(leg);
            }
            Stage::Incoming => self.refuse_call(now, id, 487, Ending::Remote, out),
            // Both hung up at once: who said so first, on this side, was we.
            Stage::Closing => (),
            Stage::Talking | Stage::Owing => {
                if call.asked.is_some() {
                    self.refuse_call(now, id, 487, Ending::Remote, out);
                }
                self.remove_call(now, id, out);
                self.events.push(Event::Ended { call: CallKey(id), by: Ending::Remote });
            }
        }
    }

    /// A re-INVITE (section 14.2).
    fn reinvited(&mut self, now: Now, asking: &Asking<'_>, id: Id, out: &mut Outbox) {
        let Some(call) = self.calls.get_mut(id) else { return };
        if call.asked.is_some() || call.stage == Stage::Incoming {
            return self.reply_later(now, asking, out);
        }
        if call.inviting.is_some() || call.accepted.is_some() || call.updated.is_some() || call.stage != Stage::Talking
        {
            return self.reply_plain(now, asking, 491, out);
        }
        let Some(dialog) = call.dialog() else { return };
        let before = dialog.exchange;
        if asking.has_offer()
            && let Err(clash) = dialog.exchange.receive_request(false)
        {
            return self.clash(now, asking, clash, out);
        }
        call.asked = Some(asking.asked(false, before));
        call.kept = asking.message.bytes().to_vec();
        self.transactions.set_owner(asking.server, id.to_u64());
        if self.settings.trying {
            self.reply_plain(now, asking, 100, out);
        }
        let offer = self.events.keep(asking.message.body());
        self.events.push(Event::Offered { call: CallKey(id), offer, update: false });
    }

    fn clash(&mut self, now: Now, asking: &Asking<'_>, clash: Clash, out: &mut Outbox) {
        match clash {
            Clash::Glare => self.reply_plain(now, asking, clash.status(), out),
            Clash::Impatient => self.reply_later(now, asking, out),
        }
    }

    /// RFC 3311 section 5.2.
    fn updated(&mut self, now: Now, asking: &Asking<'_>, id: Id, leg: usize, out: &mut Outbox) {
        let Some(call) = self.calls.get_mut(id) else { return };
        if call.updated.is_some() {
            return self.reply_later(now, asking, out);
        }
        let dialog = &mut call.legs[leg].dialog;
        if !asking.has_offer() {
            // Only the target is refreshed.
            let (local, secure, target) = (dialog.local().to_vec(), dialog.is_secure(), call.target);
            let mut lines = Vec::new();
            self.write_contact(&local, &target, secure, &mut lines);
            return self.reply_with(now, asking, 200, b"", &lines, out);
        }
        let before = dialog.exchange;
        if let Err(clash) = dialog.exchange.receive_request(false) {
            return self.clash(now, asking, clash, out);
        }
        let bytes = asking.message.bytes().to_vec();
        call.updated = Some(Box::new(Updated { server: asking.server, source: asking.arrival.remote, bytes, before }));
        let offer = self.events.keep(asking.message.body());
        self.events.push(Event::Offered { call: CallKey(id), offer, update: true });
    }

    /// RFC 3262 section 3.
    fn pracked(&mut self, now: Now, asking: &Asking<'_>, id: Id, out: &mut Outbox) {
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
            return self.reply_plain(now, asking, status, out);
        }
        if asking.has_offer()
            && let Some(dialog) = call.dialog()
            && !matches!(dialog.exchange.receive_request(true), Ok(crate::dialog::Description::Answer))
        {
            // A further offer here is beyond us; the call goes on without it.
            if let Some(dialog) = call.dialog() {
                dialog.exchange.withdraw(crate::dialog::Exchange::Settled);
            }
            self.stop_timers(id);
            return self.reply_plain(now, asking, 488, out);
        }
        let waiting = call.unacknowledged.take().and_then(|open| open.answer);
        self.stop_timers(id);
        self.reply_plain(now, asking, 200, out);
        if let Some(body) = waiting {
            self.answer(now, CallKey(id), &body, out);
        }
    }

    /// The ACK of a 2xx.
    fn acknowledged(&mut self, now: Now, message: &Message<'_>, essentials: &Essentials<'_>, out: &mut Outbox) {
        let (Some(to_tag), from_tag) = (essentials.to.tag, essentials.from.tag.unwrap_or_default()) else { return };
        let Some((id, _)) = self.find(essentials.call_id.text, to_tag, from_tag) else { return };
        let Some(call) = self.calls.get_mut(id) else { return };
        if !call.accepted.is_some_and(|a| a.is_acknowledged_by(essentials.cseq.number)) {
            return;
        }
        call.accepted = None;
        call.kept = Vec::new();
        if let Some(dialog) = call.dialog()
            && !message.body().is_empty()
        {
            // Only an answer has a place here.
            let _ = dialog.exchange.receive_request(true);
        }
        self.stop_timers(id);
        let body = self.events.keep(message.body());
        self.events.push(Event::Confirmed { call: CallKey(id), body });
        self.hang_up_if_due(now, id, out);
    }

    /// Section 9.2.
    fn cancelled(&mut self, now: Now, asking: &Asking<'_>, invite: Option<ServerId>, out: &mut Outbox) {
        let Some(invite) = invite else {
            return self.reply_plain(now, asking, 481, out);
        };
        let id = Id::from_u64(self.transactions.owner(invite));
        let mut tag = Vec::new();
        let mut open = false;
        if let Some(call) = self.calls.get_mut(id) {
            open = call.asked.is_some_and(|a| a.server == invite);
            // The tag of the INVITE's responses.
            if let Some(dialog) = call.dialog() {
                tag.extend_from_slice(dialog.local_tag());
            }
        }
        self.reply_with(now, asking, 200, &tag, b"", out);
        if open {
            self.refuse_call(now, id, 487, Ending::Cancelled, out);
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
