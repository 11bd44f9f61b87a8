//! Messages that cannot be parsed: they are answered before any stage sees them.

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
        let tag = self.policy.router.own_tag().of(call_id);
        if self.reply_unrouted(arrival, message, &tag, error.status(), lines, out) {
            self.counters().refused.one();
        }
    }

    /// Answers a request that reached no stage; `tag`: tag for its To. Returns false if the response is withheld.
    pub(super) fn reply_unrouted(
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
