//! Messages that are answered or dropped before any stage sees them.

use super::Engine;
use crate::decider::Decider;
use crate::response::is_in_bounds;
use strowger_core::stack::Unread;
use strowger_core::{Arrival, Now, Outbox, via};
use strowger_message::{Message, Method, Name, Write};

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
        let tag = self.policy.router.own_tag().of(call_id);
        if self.reply_unrouted(arrival, message, &tag, error.status(), lines, out) {
            self.counters().refused.one();
        }
    }

    /// Answers a request that reached no stage; `tag`: tag for its To. Returns false if the response is withheld.
    fn reply_unrouted(
        &self,
        arrival: &Arrival,
        message: &Message<'_>,
        tag: &[u8],
        status: u16,
        lines: &[u8],
        out: &mut Outbox,
    ) -> bool {
        let top = message.via().ok();
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
            let mut builder = strowger_message::build::respond_via(message, status, None, Some(tag), write_top, bytes);
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
