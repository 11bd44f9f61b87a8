//! Answers of the server's own.
//!
//! The source of a UDP request may be forged. So one that proved nothing, neither by a password nor by what we wrote into its call,
//! gets one answer of at most three times its size, which no timer sends again. What a callee answers it gets as it comes, and again
//! only as long as all of that is no more than three times its size.

use crate::engine::Engine;
use crate::handling::Handling;
use strowger_core::digest::{ChallengeHeader, ChallengeParams};
use strowger_core::routing::Request;
use strowger_core::transaction::{MOST_TIMES, length_as_sent};
use strowger_message::{Method, Name, Uri, respond};

/// What this server answers to a request, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) lines: Lines,
    pub(crate) why: Why,
    pub(crate) counted: Counted,
}

/// Header lines of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lines {
    None,
    /// One challenge for each algorithm that is offered (RFC 7616 section 3.3).
    Challenge {
        header: ChallengeHeader,
        stale: bool,
    },
    /// Of what Require names: what a server does not know (RFC 3261 section 8.2.2.3).
    Unsupported,
    /// What Proxy-Require names: a proxy knows none (section 16.3 item 5).
    UnsupportedByProxy,
    Allow,
    /// What the server can do (section 11.2).
    Capabilities,
    RetryAfter,
    /// The event packages of this server: none (RFC 6665 section 8.3.2).
    AllowEvents,
    /// The shortest session timer, in seconds (RFC 4028 section 5).
    MinSe(u32),
}

/// Why a request is refused, for the operator: the peer gets the status alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// What the status code means says all.
    Status,
    Text(&'static str),
    /// This party is of a domain that is none of ours, by mistake most often.
    Domain(Party),
    /// The rule at this place of the configuration answers so.
    Rule(usize),
    /// The filter at this place of the configuration answers so.
    Filter(usize),
    /// There are as many calls as the limit at this place of the configuration lets.
    Limit(usize),
    /// It was logged with more than a text.
    Logged,
}

/// Whom a request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Party {
    RequestUri,
    From,
    To,
}

impl Party {
    /// The URI by which a request names it.
    pub(crate) fn uri<'m>(self, request: &Request<'m>) -> Uri<'m> {
        match self {
            Self::RequestUri => request.uri,
            Self::From => request.mandatory.from.uri,
            Self::To => request.mandatory.to.uri,
        }
    }
}

/// By what a reply is counted, beside its transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    Not,
    Refused,
    NotFound,
    RelayDenied,
    Challenge,
    Overloaded,
    Shutdown,
}

impl Reply {
    pub(crate) const fn new(status: u16) -> Self {
        Self { status, lines: Lines::None, why: Why::Status, counted: Counted::Not }
    }

    /// Something is wrong with the request.
    pub(crate) const fn refused(status: u16) -> Self {
        Self { counted: Counted::Refused, ..Self::new(status) }
    }

    /// There is no such user, or it cannot be reached.
    pub(crate) const fn not_found(status: u16) -> Self {
        Self { counted: Counted::NotFound, ..Self::new(status) }
    }

    /// This party is no user of this server.
    pub(crate) const fn unknown(party: Party) -> Self {
        Self { why: Why::Domain(party), ..Self::not_found(404) }
    }

    pub(crate) const fn challenge(header: ChallengeHeader, stale: bool) -> Self {
        let lines = Lines::Challenge { header, stale };
        Self { lines, counted: Counted::Challenge, ..Self::new(header.status()) }
    }

    /// 503 because a bound is reached.
    pub(crate) const fn overloaded() -> Self {
        Self { lines: Lines::RetryAfter, counted: Counted::Overloaded, ..Self::new(503) }
    }

    /// 503 because the process is about to end.
    pub(crate) const fn shutting_down() -> Self {
        let why = Why::Text("shutting down");
        Self { lines: Lines::RetryAfter, why, counted: Counted::Shutdown, ..Self::new(503) }
    }

    pub(crate) const fn because(self, text: &'static str) -> Self {
        Self { why: Why::Text(text), ..self }
    }

    pub(crate) const fn with(self, lines: Lines) -> Self {
        Self { lines, ..self }
    }
}

impl Engine {
    /// Answers a request.
    pub(crate) fn reply(&mut self, handling: &mut Handling<'_, '_>, reply: Reply) {
        let mut lines = std::mem::take(&mut self.reply_lines);
        lines.clear();
        self.write_lines(handling, reply.lines, &mut lines);
        if self.respond(handling, reply.status, reply.why, &lines) {
            self.count(reply.counted);
        }
        self.account_refusal(handling, reply.status, reply.why);
        if reply.status >= 300 {
            self.doubt_named(handling, false);
        }
        if handling.progress.context != 0 {
            self.refuse_own(handling.progress.context, reply.status);
        }
        self.reply_lines = lines;
    }

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

    fn write_lines(&mut self, handling: &Handling<'_, '_>, lines: Lines, text: &mut Vec<u8>) {
        let request = handling.request;
        // Methods that this server answers itself (RFC 3261 section 20.5): without a domain it registers no user.
        let allow: &[u8] = match self.policy.config.domains.is_empty() {
            true => b"Allow: OPTIONS\r\n",
            false => b"Allow: OPTIONS, REGISTER\r\n",
        };
        match lines {
            Lines::None => (),
            Lines::Challenge { header, stale } => self.write_challenges(handling, header, stale, text),
            Lines::Unsupported => {
                for (n, tag) in self.unsupported(request).enumerate() {
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
                if self.takes_paths() {
                    text.extend_from_slice(b"Supported: path\r\n");
                }
            }
            // When to try again (section 21.5.4).
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
        let source = self.source_bytes(arrival.remote.ip());
        let entropy = self.entropy.u64();
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

    /// Sends a response: through the transaction of the request, or without one. `lines`: further header lines. False: it is longer than
    /// its request earned, and is withheld.
    pub(crate) fn respond(&mut self, handling: &mut Handling<'_, '_>, status: u16, why: Why, lines: &[u8]) -> bool {
        if status >= 300 {
            self.log_refusal(handling, status, why);
        }
        let request = handling.request;
        let from = handling.out.start();
        let phrase = match why {
            Why::Rule(place) => self.policy.rule(place).and_then(|rule| rule.action.answer.as_ref()),
            Why::Filter(place) => self.policy.filter(place).and_then(|filter| filter.action.answer.as_ref()),
            _ => None,
        };
        let phrase = phrase.map(|(_, phrase)| phrase.as_bytes()).filter(|phrase| !phrase.is_empty());
        self.write_response(request, status, phrase, lines, &mut handling.out.bytes);
        let proven = handling.is_proven();
        if !proven && !self.fit(request, status, from, &mut handling.out.bytes) {
            self.counters().withheld.one();
            handling.out.bytes.truncate(from);
            if let Some(server) = handling.server {
                self.transactions.abandon(handling.now, server);
            }
            return false;
        }
        let range = from..handling.out.bytes.len();
        let Some(server) = handling.server else {
            let target = self.reply_target(&request.mandatory.via, request.arrival);
            handling.out.send(target, range, 0);
            return true;
        };
        // A client that has heard nothing yet sends the request again, and gets an answer for it each time: it needs no other, and a forged
        // source none at all, for which nothing is kept (RFC 3261 section 26.3.2.4).
        let is_proven = proven || handling.progress.trying || status < 200;
        // A look-up that failed may do better a moment later: without its transaction a copy of what was answered 500 would ring. And the
        // ACK of a failure in a dialog bears the tag of another element, and is known by the transaction alone.
        let is_kept = is_proven || status == 500 || (request.method == Method::Invite && !request.to_tag.is_empty());
        if is_kept && !is_proven {
            self.transactions.doubt(server, 0);
        }
        self.transactions.respond(handling.now, server, status, range, handling.out);
        if !is_kept {
            self.transactions.abandon(handling.now, server);
        }
        true
    }

    /// A response of our own; its To tag is known again when it comes back. `phrase`: in place of the usual one.
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

    /// Shortens the answer that begins at `from`, which its request did not earn, if it is too long: what it need not say goes. False if
    /// it is too long all the same.
    fn fit(&self, request: &Request<'_>, status: u16, from: usize, out: &mut Vec<u8>) -> bool {
        let size = length_as_sent(&request.message, &request.mandatory.via);
        if is_in_bounds(out.len() - from, size) {
            return true;
        }
        if matches!(status, 401 | 407) {
            // It says nothing without its challenges.
            let end = out.len() - END.len();
            out.drain(end - self.policy.server_line.len()..end);
        } else {
            out.truncate(from);
            let tag = self.policy.router.own_tag().of(request.call_id);
            respond(&request.message, status, None, Some(&tag), out).finish(b"");
        }
        is_in_bounds(out.len() - from, size)
    }

    /// Of a request that goes on and proved nothing its source is sent no more than it earned, of which so many bytes are spent.
    pub(crate) fn doubt_unproven(&mut self, handling: &Handling<'_, '_>, spent: usize) {
        if let (Some(server), false) = (handling.server, handling.is_proven()) {
            let request = handling.request;
            let earned = MOST_TIMES * length_as_sent(&request.message, &request.mandatory.via);
            self.transactions.doubt(server, earned.saturating_sub(spent));
        }
    }
}

/// How each answer without a body ends.
const END: &[u8] = b"Content-Length: 0\r\n\r\n";

/// An answer of this length gives a peer that forges the source of a request no more bytes than it is worth.
pub(crate) const fn is_in_bounds(answer: usize, request: usize) -> bool {
    answer <= MOST_TIMES * request
}
