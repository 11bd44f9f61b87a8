//! Refusal of requests while this shard is overloaded ([`strowger_core::overload`]), and of messages for which a queue is full.
//!
//! The engine looks at the first bytes of a message, and at an index of its lines; nothing else is parsed. These messages pass:
//!
//! * responses, ACK, BYE, CANCEL and PRACK;
//! * requests of a call in progress. A To tag alone is no proof: the request needs our route token or seal, the tag of our user agent
//!   in a dialog that it has, or both tags of a tracked dialog. The proof is checked only if the request would be refused;
//! * INVITEs that replace a party of a bridged call, by its Call-ID and both tags (RFC 3891);
//! * emergency calls (RFC 5031), by their Request-URI and then by the rules of every emergency call;
//! * retransmissions, which get the last response of their transaction, and requests that wait for a look-up.
//!
//! Any other request may be refused: 503 with Retry-After, without a transaction and without a row of accounting. The keyed hash in the To
//! tag of the 503 names its ACK, which is dropped. A refused datagram that has waited for more than 500 ms is dropped without a response:
//! its sender has sent it again, and the copy is answered.

use super::Engine;
use crate::waiting::line_of;
use std::net::SocketAddr;
use strowger_core::overload::{OverloadChange, RequestClass};
use strowger_core::routing::Request;
use strowger_core::stack::Received;
use strowger_core::{Arrival, Now, Outbox, Transport};
use strowger_message::header::Party;
use strowger_message::{Form, Message, Method, Name, Uri, Write, scan};
use strowger_store::binding::BindingView;

/// First bytes of the messages that always pass. Of the ACKs those of refusals are dropped.
const PASSING: [&[u8]; 4] = [b"SIP/2.0 ", b"BYE ", b"CANCEL ", b"PRACK "];

/// Wait after which the sender of a datagram has sent it again, in microseconds (T1, RFC 3261 section 17.1.1.1).
const REPEATED: u64 = 500_000;

impl Engine {
    /// Reports for how long the oldest unserved messages of this shard have waited, in microseconds; 0 if none is left unserved. `datagrams`:
    /// the oldest datagram; `connections`: the oldest message of a connection. Called in each round while the wait is measured. The engine
    /// refuses requests while messages wait too long.
    pub fn waited(&mut self, now: Now, datagrams: u64, connections: u64) {
        self.stack.datagram_wait = datagrams;
        self.continue_overload(now, datagrams.max(connections));
    }

    /// Tells whether this shard is overloaded.
    pub const fn is_overloaded(&self) -> bool {
        self.stack.overload.is_active()
    }

    /// Takes the step of the overload control that is due.
    pub(super) fn continue_overload(&mut self, now: Now, wait: u64) {
        let Some(change) = self.stack.overload.waited(now, wait) else { return };
        let shard = self.shard.number;
        match change {
            OverloadChange::Began => {
                let (waited_ms, refused_percent) = (wait / 1_000, self.stack.overload.refused_percent());
                tracing::warn!(shard, waited_ms, refused_percent, "overload: requests are refused");
            }
            OverloadChange::Ended { lasted, refused } => {
                tracing::warn!(shard, seconds = lasted / 1_000, refused, "overload has ended");
            }
        }
    }

    /// Refuses, absorbs or drops a message of an overloaded shard. Returns whether it did; if not, the message is handled as usual.
    #[inline(never)]
    pub(super) fn sheds(&mut self, now: Now, arrival: &Arrival, bytes: &[u8], out: &mut Outbox) -> bool {
        if PASSING.iter().any(|beginning| bytes.starts_with(beginning)) {
            return false;
        }
        if bytes.starts_with(b"ACK ") {
            return self.absorbs_ack(bytes);
        }
        let mut index = std::mem::take(&mut self.buffers.index);
        // An unreadable request is answered as usual, without a transaction.
        let is_read = index.parse(bytes, &self.policy.limits).is_ok() && index.form() != Form::Ambiguous;
        let message = Message::new(bytes, &index);
        let is_shed = is_read && self.sheds_request(now, arrival, &message, out);
        if is_shed {
            self.messages().requests.one(message.method().unwrap_or(Method::Other));
        }
        self.buffers.index = index;
        is_shed
    }

    fn sheds_request(&mut self, now: Now, arrival: &Arrival, message: &Message<'_>, out: &mut Outbox) -> bool {
        let (Some(method), Some(call_id)) = (message.method(), message.header(Name::CallId)) else { return false };
        let class = match method {
            Method::Ack | Method::Bye | Method::Cancel | Method::Prack => return false,
            Method::Invite => RequestClass::Call,
            Method::Register if self.is_refresh(now, arrival, message, call_id) => RequestClass::Refresh,
            Method::Register => RequestClass::Registration,
            _ => RequestClass::Other,
        };
        let Some(retry_after) = self.stack.overload.refuses(now, class, call_id) else { return false };
        if self.is_exempt(now, arrival, message) {
            self.stack.overload.exempt(class);
            return false;
        }
        if self.stack.core.transactions.absorb(now, message, out) {
            self.stack.overload.exempt(class);
            return true;
        }
        if self.stack.datagram_wait > REPEATED && !arrival.transport.is_reliable() {
            self.counters().overload_dropped.one();
            return true;
        }
        let counters = self.counters();
        match class {
            RequestClass::Other => counters.overload_other.one(),
            RequestClass::Call => counters.overload_calls.one(),
            RequestClass::Registration => counters.overload_registrations.one(),
            RequestClass::Refresh => counters.overload_refreshes.one(),
        }
        self.refuse(arrival, message, call_id, retry_after, out);
        true
    }

    /// Tells whether an ACK is for a refusal of this server. Such an ACK needs no look-up.
    fn absorbs_ack(&self, bytes: &[u8]) -> bool {
        let tag = self.policy.router.own_tag();
        let is_ours = scan::call_id(bytes).is_some_and(|call_id| tag.acknowledges_refusal(bytes, &bytes[call_id]));
        if is_ours {
            self.messages().requests.one(Method::Ack);
            self.counters().overload_acks.one();
        }
        is_ours
    }

    /// Tells whether a REGISTER refreshes a binding: one that was made with its Call-ID, or from its source address. The location
    /// table is asked only while registrations are refused.
    fn is_refresh(&mut self, now: Now, arrival: &Arrival, message: &Message<'_>, call_id: &[u8]) -> bool {
        if !self.stack.overload.is_refused(RequestClass::Registration) {
            return false;
        }
        let Some(Ok(to)) = message.header(Name::To).map(Party::parse) else { return false };
        let mut aor = std::mem::take(&mut self.buffers.aor);
        aor.clear();
        self.decider().write_aor(&to.addr.uri, &mut aor);
        let mut is_refresh = false;
        self.shared.location.lookup(&aor, now.mono, &mut |binding| {
            is_refresh |= binding.call_id() == call_id || address_of(&binding) == Some(arrival.remote);
        });
        self.buffers.aor = aor;
        is_refresh
    }

    /// Tells whether a request is handled as usual although its class is refused. A message of a banned source is, because
    /// it is dropped then.
    fn is_exempt(&mut self, now: Now, arrival: &Arrival, message: &Message<'_>) -> bool {
        if self.policy.bans.is_banned(arrival.remote.ip(), now.mono) {
            return true;
        }
        if self.shared.bridged_dialogs.are_named_by(message) {
            return true;
        }
        let may_wait = message.method() == Some(Method::Register) && !self.waiting.is_empty();
        let may_be_exempt =
            may_wait || !to_tag(message).is_empty() || self.decider().may_be_emergency(message.request_uri());
        if !may_be_exempt {
            return false;
        }
        let mut reader = self.stack.core.lend_reader();
        let is_exempt = match reader.read(arrival, message.bytes(), &self.stack.core.reading) {
            Received::Request(mut request) => {
                request.call_hash = self.shared.bridged_dialogs.placed_hash(request.call_hash, request.call_id);
                self.is_proven(now, &request)
            }
            Received::Response(_) | Received::Unread(_) => false,
        };
        self.stack.core.return_reader(reader);
        is_exempt
    }

    fn is_proven(&self, now: Now, request: &Request<'_>) -> bool {
        if !self.waiting.is_empty() && self.waiting.holds(line_of(request, self.shared.call_secret())) {
            return true;
        }
        match request.to_tag.is_empty() {
            true => self.decider().is_emergency(now, request, &self.policy.router.route(now, request)),
            false => self.is_of_agent(request) || self.decider().is_of_call(now, request),
        }
    }
}

impl Engine {
    /// Sheds a message. Over UDP the message is dropped: the peer retransmits it, and most often the message is a
    /// retransmission itself, so a response would end a call that is being set up. Over a connection there is no
    /// retransmission, so the message is answered.
    pub fn shed(&mut self, now: Now, arrival: &Arrival, bytes: &[u8], out: &mut Outbox) {
        if !arrival.transport.is_reliable() {
            return;
        }
        let mut index = std::mem::take(&mut self.buffers.index);
        if index.parse(bytes, &self.policy.limits).is_ok() {
            let message = Message::new(bytes, &index);
            let answered = message.is_request() && message.method() != Some(Method::Ack);
            if let (true, Some(call_id)) = (answered, message.header(Name::CallId)) {
                self.counters().overloaded.one();
                let retry_after = self.stack.overload.retry_after(now, call_id);
                self.refuse(arrival, &message, call_id, retry_after, out);
            }
        }
        self.buffers.index = index;
    }

    /// Refuses a request without a transaction: 503 with Retry-After in seconds (RFC 3261 section 21.5.4). The To tag names its ACK.
    pub(super) fn refuse(
        &mut self,
        arrival: &Arrival,
        message: &Message<'_>,
        call_id: &[u8],
        retry_after: u32,
        out: &mut Outbox,
    ) {
        let mut lines = std::mem::take(&mut self.buffers.reply_lines);
        lines.clear();
        lines.extend_from_slice(b"Retry-After: ");
        retry_after.write(&mut lines);
        lines.extend_from_slice(b"\r\n");
        let tag = self.policy.router.own_tag().of_refusal(call_id);
        self.decider().reply_unrouted(arrival, message, &tag, 503, &lines, out);
        self.buffers.reply_lines = lines;
    }
}

/// Returns the source address of the REGISTER that made a binding, or the address in its Contact.
fn address_of(binding: &BindingView<'_>) -> Option<SocketAddr> {
    let in_contact = || {
        let uri = Uri::parse(binding.uri()).ok()?;
        let uri = uri.sip()?;
        Some(SocketAddr::new(uri.host.ip()?, uri.port.unwrap_or_else(|| Transport::Udp.default_port())))
    };
    binding.received().map(|received| received.address).or_else(in_contact)
}

/// Returns the To tag of a request; empty if there is none.
fn to_tag<'m>(message: &Message<'m>) -> &'m [u8] {
    let to = message.header(Name::To).and_then(|to| Party::parse(to).ok());
    to.and_then(|to| to.tag).unwrap_or_default()
}
