//! Messages that are answered or dropped before any stage sees them.

use super::Engine;
use crate::decider::Decider;
use crate::response::is_in_bounds;
use strowger_core::stack::Unread;
use strowger_core::{Arrival, Now, Outbox, via};
use strowger_message::{Message, Method, Name};

impl Decider<'_> {
    /// Refuses a message that cannot be parsed. The sender gets a response if enough of the message can be parsed.
    pub(super) fn refuse_unread(&self, now: Now, arrival: &Arrival, unread: &Unread<'_>, out: &mut Outbox) {
        let Unread { error, request: Some(message) } = unread else { return self.counters().unreadable.one() };
        self.messages().requests.one(message.method().unwrap_or(Method::Other));
        let answerable = message.method() != Some(Method::Ack) && message.has(Name::Via);
        if !answerable {
            self.counters().unreadable.one();
            return;
        }
        // Without a Call-ID the sender matches the response by its branch (RFC 4475 section 3.3.1).
        let call_id = message.header(Name::CallId).unwrap_or_default();
        self.log_malformed(now, arrival, message, *error);
        let warning = [b"Warning: 399 strowger \"", error.reason.text().as_bytes(), b"\"\r\n"].concat();
        let lines: &[u8] = if error.status() == 400 { &warning } else { b"" };
        if self.reply_unrouted(arrival, message, call_id, error.status(), lines, out) {
            self.counters().refused.one();
        }
    }

    /// Answers a request that reached no stage. Returns false if the response is withheld.
    fn reply_unrouted(
        &self,
        arrival: &Arrival,
        message: &Message<'_>,
        call_id: &[u8],
        status: u16,
        lines: &[u8],
        out: &mut Outbox,
    ) -> bool {
        let top = message.via().ok();
        let tag = self.policy.router.own_tag().of(call_id);
        let from = out.start();
        let server_line = &self.policy.server_line;
        // Optional lines are dropped if the response would be too long for a request that may be forged.
        for more in [&[lines, server_line][..], &[]] {
            out.bytes.truncate(from);
            let write_top = |text: &mut Vec<u8>| match &top {
                Some(top) => via::write_completed(message, top, &arrival.remote, false, text),
                // The Via is copied unchanged: its author must recognise it.
                None => false,
            };
            let bytes = &mut out.bytes;
            let mut builder = strowger_message::build::respond_via(message, status, None, Some(&tag), write_top, bytes);
            more.iter().for_each(|line| builder.buffer().extend_from_slice(line));
            builder.finish(b"");
            let length = out.bytes.len() - from;
            if arrival.transport.is_reliable() || is_in_bounds(length, message.bytes().len()) {
                break;
            }
            if more.is_empty() {
                self.counters().withheld.one();
                out.bytes.truncate(from);
                return false;
            }
        }
        let range = from..out.bytes.len();
        let target = match &top {
            Some(top) if !self.policy.config.nat.force_rport => self.policy.reply_target(top, arrival),
            _ => arrival.reply(),
        };
        out.send(target, range, 0);
        true
    }
}

impl Engine {
    /// Sheds a message. Over UDP the message is dropped: the peer retransmits it, and most often the message is a
    /// retransmission itself, so a response would end a call that is being set up. Over a connection there is no
    /// retransmission, so the message is answered.
    pub fn shed(&mut self, arrival: &Arrival, bytes: &[u8], out: &mut Outbox) {
        if !arrival.transport.is_reliable() {
            return;
        }
        let mut index = std::mem::take(&mut self.buffers.index);
        if index.parse(bytes, &self.policy.limits).is_ok() {
            let message = Message::new(bytes, &index);
            let answered = message.is_request() && message.method() != Some(Method::Ack);
            if let (true, Some(call_id)) = (answered, message.header(Name::CallId)) {
                self.counters().overloaded.one();
                self.decider().reply_unrouted(arrival, &message, call_id, 503, b"Retry-After: 5\r\n", out);
            }
        }
        self.buffers.index = index;
    }
}
