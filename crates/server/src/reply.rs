//! Answers of the server's own.
//!
//! The source of a UDP request may be forged. So one that proved nothing, neither by a password nor by what we wrote into its call,
//! gets one answer of at most three times its size, which no timer sends again. What a callee answers it gets as it comes, and again
//! only as long as all of that is no more than three times its size.

use crate::asked::{Asked, Why};
use crate::engine::Engine;
use strowger_core::routing::Request;
use strowger_core::transaction::{MOST_TIMES, length_as_sent};
use strowger_core::via;
use strowger_message::{Method, respond};

impl Engine {
    /// Answers a request: through its transaction, or without one. `lines` writes further header lines.
    pub(crate) fn reply(&mut self, asked: &mut Asked<'_, '_>, status: u16, lines: impl FnOnce(&mut Vec<u8>)) {
        if status >= 300 {
            self.log_refusal(asked, status);
        }
        let request = asked.request;
        let from = asked.out.start();
        self.write_reply(request, status, lines, &mut asked.out.bytes);
        let proven = is_proven(asked);
        if !proven && !self.fit(request, status, from, &mut asked.out.bytes) {
            self.counters().withheld.one();
            asked.out.bytes.truncate(from);
            if let Some(server) = asked.server {
                self.transactions.forget(asked.now, server);
            }
            return;
        }
        let range = from..asked.out.bytes.len();
        let Some(server) = asked.server else {
            let target = via::reply_target(&request.essentials.via, request.arrival);
            return asked.out.send(target, range, 0);
        };
        // A client that has heard nothing yet sends the request again, and gets an answer for it each time: it needs no other, and a forged
        // source none at all, for which nothing is kept (RFC 3261 section 26.3.2.4).
        if proven || asked.found.trying || status < 200 {
            self.transactions.respond(asked.now, server, status, range, asked.out);
        } else if request.method != Method::Invite || request.to_tag.is_empty() {
            self.transactions.respond(asked.now, server, status, range, asked.out);
            self.transactions.forget(asked.now, server);
        } else {
            // Its ACK bears the tag of another element, and is known by the transaction alone.
            self.transactions.doubt(server, 0);
            self.transactions.respond(asked.now, server, status, range, asked.out);
        }
    }

    /// A response of our own; its To tag is known again when it comes back.
    pub(crate) fn write_reply(
        &self,
        request: &Request<'_>,
        status: u16,
        lines: impl FnOnce(&mut Vec<u8>),
        out: &mut Vec<u8>,
    ) {
        let tag = self.router.own_tag().of(request.call_id);
        let tag = if status == 100 { None } else { Some(&tag[..]) };
        let mut builder = respond(&request.message, status, None, tag, out);
        lines(builder.buffer());
        builder.buffer().extend_from_slice(&self.shared.server_line);
        builder.finish(b"");
    }

    /// Shortens the answer that begins at `from`, which its request did not earn, if it is too long: what it need not say goes. False if
    /// it is too long all the same.
    fn fit(&self, request: &Request<'_>, status: u16, from: usize, out: &mut Vec<u8>) -> bool {
        let size = length_as_sent(&request.message, &request.essentials.via);
        if is_in_bounds(out.len() - from, size) {
            return true;
        }
        if matches!(status, 401 | 407) {
            // It says nothing without its challenges.
            let end = out.len() - END.len();
            out.drain(end - self.shared.server_line.len()..end);
        } else {
            out.truncate(from);
            let tag = self.router.own_tag().of(request.call_id);
            respond(&request.message, status, None, Some(&tag), out).finish(b"");
        }
        is_in_bounds(out.len() - from, size)
    }

    /// Of a request that goes on and proved nothing its source is sent no more than it earned, of which so many bytes are spent.
    pub(crate) fn doubt_unproven(&mut self, asked: &Asked<'_, '_>, spent: usize) {
        if let (Some(server), false) = (asked.server, is_proven(asked)) {
            let request = asked.request;
            let earned = MOST_TIMES * length_as_sent(&request.message, &request.essentials.via);
            self.transactions.doubt(server, earned.saturating_sub(spent));
        }
    }

    /// [`Engine::reply`] without further lines, and counted as refused.
    pub(crate) fn refuse_request(&mut self, asked: &mut Asked<'_, '_>, status: u16) {
        self.counters().refused.one();
        self.reply(asked, status, |_| ());
    }

    /// 503 because a bound is reached.
    pub(crate) fn reply_overloaded(&mut self, asked: &mut Asked<'_, '_>) {
        self.counters().overloaded.one();
        self.reply_unavailable(asked);
    }

    /// 503 because the process is about to end.
    pub(crate) fn reply_shutting_down(&mut self, asked: &mut Asked<'_, '_>) {
        self.counters().refused_at_shutdown.one();
        asked.why = Why::Text("shutting down");
        self.reply_unavailable(asked);
    }

    /// 503 with the time after which to try again (RFC 3261 section 21.5.4).
    fn reply_unavailable(&mut self, asked: &mut Asked<'_, '_>) {
        self.reply(asked, 503, |text| text.extend_from_slice(b"Retry-After: 5\r\n"));
    }
}

/// How each answer without a body ends.
const END: &[u8] = b"Content-Length: 0\r\n\r\n";

/// An answer of this length gives no one who forges the source of a request more bytes than it is worth.
pub(crate) const fn is_in_bounds(answer: usize, request: usize) -> bool {
    answer <= MOST_TIMES * request
}

/// Its sender is there, or was.
pub(crate) fn is_proven(asked: &Asked<'_, '_>) -> bool {
    asked.request.arrival.transport.is_reliable() || asked.found.authenticated || asked.found.in_dialog
}
