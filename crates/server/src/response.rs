//! Writing and sending of the responses of this server itself.
//!
//! The source of a UDP request may be forged. So a request that proved nothing, neither by a password nor by a token or
//! seal of this server, gets one response of at most three times its size, which no timer retransmits. Responses of a
//! callee are forwarded to such a source, and retransmitted, only as long as their total size is at most three times
//! the size of the request.

use crate::decider::Decider;
use crate::engine::Engine;
use crate::handling::Handling;
use crate::reply::{Counted, Lines, Reply, Why};
use strowger_core::digest::{ChallengeHeader, ChallengeParams};
use strowger_core::routing::Request;
use strowger_core::transaction::{MOST_TIMES, length_as_sent};
use strowger_message::{Method, Name, respond};

impl Engine {
    /// Answers a request.
    pub(crate) fn reply(&mut self, handling: &mut Handling<'_, '_>, reply: Reply) {
        let mut lines = std::mem::take(&mut self.buffers.reply_lines);
        lines.clear();
        self.write_lines(handling, reply.lines, &mut lines);
        if self.respond(handling, reply.status, reply.why, &lines) {
            self.decider().count(reply.counted);
        }
        self.account_refusal(handling, reply.status, reply.why);
        if reply.status >= 300 && handling.progress.context == 0 {
            self.calls.doubt_named(handling.now, handling.request, false);
        }
        if handling.progress.context != 0 {
            self.report_own(handling.progress.context, reply.status);
        }
        self.buffers.reply_lines = lines;
    }

    fn write_lines(&mut self, handling: &Handling<'_, '_>, lines: Lines, text: &mut Vec<u8>) {
        let request = handling.request;
        // Methods that this server answers itself (RFC 3261 section 20.5). A server without a domain registers no user.
        let allow: &[u8] = match self.policy.config.domains.is_empty() {
            true => b"Allow: OPTIONS\r\n",
            false => b"Allow: OPTIONS, REGISTER\r\n",
        };
        match lines {
            Lines::None => (),
            Lines::Challenge { header, stale } => self.write_challenges(handling, header, stale, text),
            Lines::Unsupported => {
                for (n, tag) in self.decider().unsupported(request).enumerate() {
                    text.extend_from_slice(if n == 0 { b"Unsupported: " } else { b", " });
                    text.extend_from_slice(tag);
                }
                text.extend_from_slice(b"\r\n");
            }
            Lines::UnsupportedByProxy => {
                for value in request.message.headers(Name::ProxyRequire) {
                    text.extend_from_slice(b"Unsupported: ");
                    text.extend_from_slice(value);
                    text.extend_from_slice(b"\r\n");
                }
            }
            Lines::Allow => text.extend_from_slice(allow),
            Lines::Capabilities => {
                text.extend_from_slice(allow);
                text.extend_from_slice(
                    b"Accept: application/sdp\r\nAccept-Encoding: identity\r\nAccept-Language: en\r\n",
                );
                if self.decider().takes_paths() {
                    text.extend_from_slice(b"Supported: path\r\n");
                }
            }
            // Time until the next attempt (section 21.5.4).
            Lines::RetryAfter => text.extend_from_slice(b"Retry-After: 5\r\n"),
            Lines::AllowEvents => text.extend_from_slice(b"Allow-Events:\r\n"),
            Lines::MinSe(seconds) => {
                text.extend_from_slice(b"Min-SE: ");
                text.extend_from_slice(seconds.to_string().as_bytes());
                text.extend_from_slice(b"\r\n");
            }
        }
    }

    pub(crate) fn write_challenges(
        &mut self,
        handling: &Handling<'_, '_>,
        header: ChallengeHeader,
        stale: bool,
        text: &mut Vec<u8>,
    ) {
        let arrival = handling.request.arrival;
        let source = self.decider().source_bytes(arrival.remote.ip());
        let entropy = self.stack.entropy.u64();
        let policy = &self.policy;
        let demand = ChallengeParams {
            header,
            algorithms: policy.algorithms(arrival.listener),
            realm: policy.realms.judging(policy.identity(), handling.request, header).as_bytes(),
            source: &source,
            entropy,
            stale,
        };
        policy.authenticator.write_challenges(handling.now, &demand, text);
    }

    /// Sends a response, through the transaction of the request or without one. `lines`: further header lines. Returns
    /// false if the response is too long for a request that proved nothing, and is withheld.
    pub(crate) fn respond(&mut self, handling: &mut Handling<'_, '_>, status: u16, why: Why, lines: &[u8]) -> bool {
        if status >= 300 {
            self.log_refused(handling, status, why);
        }
        let request = handling.request;
        let from = handling.out.start();
        let phrase = match why {
            Why::Rule(place) => self.policy.rule(place).and_then(|rule| rule.action.answer.as_ref()),
            Why::Filter(place) => self.policy.filter(place).and_then(|filter| filter.action.answer.as_ref()),
            _ => None,
        };
        let phrase = phrase.map(|(_, phrase)| phrase.as_bytes()).filter(|phrase| !phrase.is_empty());
        self.decider().write_response(request, status, phrase, lines, &mut handling.out.bytes);
        let proven = handling.is_proven();
        if !proven && !self.decider().fit(request, status, from, &mut handling.out.bytes) {
            self.counters().withheld.one();
            handling.out.bytes.truncate(from);
            if let Some(server) = handling.server {
                self.stack.core.transactions.abandon(handling.now, server);
            }
            return false;
        }
        let range = from..handling.out.bytes.len();
        let Some(server) = handling.server else {
            let target = self.policy.reply_target(&request.mandatory.via, request.arrival);
            handling.out.send(target, range, 0);
            return true;
        };
        // A client that has received nothing retransmits the request, and gets a response each time, so no transaction
        // is needed. Without one a forged source costs no memory (RFC 3261 section 26.3.2.4).
        let is_proven = proven || handling.progress.trying || status < 200;
        // There are two exceptions. A failed look-up may succeed a moment later, so that without its transaction a copy
        // of a request answered 500 would ring. And the ACK for a failure in a dialog has the tag of another element,
        // and is matched by the transaction alone.
        let is_kept = is_proven || status == 500 || (request.method == Method::Invite && !request.to_tag.is_empty());
        if is_kept && !is_proven {
            self.stack.core.transactions.doubt(server, 0);
        }
        self.stack.core.transactions.respond(handling.now, server, status, range, handling.out);
        if !is_kept {
            self.stack.core.transactions.abandon(handling.now, server);
        }
        true
    }

    /// Bounds the number of bytes that are sent to the source of an unproven, forwarded request. `spent`: number of
    /// bytes already sent.
    pub(crate) fn doubt_unproven(&mut self, handling: &Handling<'_, '_>, spent: usize) {
        if let (Some(server), false) = (handling.server, handling.is_proven()) {
            let request = handling.request;
            let earned = MOST_TIMES * length_as_sent(&request.message, &request.mandatory.via);
            self.stack.core.transactions.doubt(server, earned.saturating_sub(spent));
        }
    }
}

impl Decider<'_> {
    fn count(&self, counted: Counted) {
        let counters = self.counters();
        match counted {
            Counted::Not => (),
            Counted::Refused => counters.refused.one(),
            Counted::NotFound => counters.not_found.one(),
            Counted::RelayDenied => counters.relay_denied.one(),
            Counted::Challenge => counters.challenges.one(),
            Counted::Overloaded => counters.overloaded.one(),
            Counted::Shutdown => counters.refused_at_shutdown.one(),
        }
    }

    /// Writes a response of this server, with a To tag that the server recognises in later requests. `phrase` replaces
    /// the usual reason phrase.
    pub(crate) fn write_response(
        &self,
        request: &Request<'_>,
        status: u16,
        phrase: Option<&[u8]>,
        lines: &[u8],
        out: &mut Vec<u8>,
    ) {
        let tag = self.policy.router.own_tag().of(request.call_id);
        let tag = if status == 100 { None } else { Some(&tag[..]) };
        let mut builder = respond(&request.message, status, phrase, tag, out);
        builder.buffer().extend_from_slice(lines);
        builder.buffer().extend_from_slice(&self.policy.server_line);
        builder.finish(b"");
    }

    /// Shortens the response that begins at `from` in `out`, if it is too long for a request without proof of its
    /// source, by removing its optional lines. Returns false if the response is still too long.
    fn fit(&self, request: &Request<'_>, status: u16, from: usize, out: &mut Vec<u8>) -> bool {
        let size = length_as_sent(&request.message, &request.mandatory.via);
        if is_in_bounds(out.len() - from, size) {
            return true;
        }
        if matches!(status, 401 | 407) {
            // Without its challenges the response is useless.
            let end = out.len() - END.len();
            out.drain(end - self.policy.server_line.len()..end);
        } else {
            out.truncate(from);
            let tag = self.policy.router.own_tag().of(request.call_id);
            respond(&request.message, status, None, Some(&tag), out).finish(b"");
        }
        is_in_bounds(out.len() - from, size)
    }
}

/// End of each response without a body.
const END: &[u8] = b"Content-Length: 0\r\n\r\n";

/// Tells whether a response of this length is so short that forging the source of its request gains an attacker
/// nothing.
pub(crate) const fn is_in_bounds(answer: usize, request: usize) -> bool {
    answer <= MOST_TIMES * request
}
