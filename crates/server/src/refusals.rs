//! Log lines about requests and connections that were refused or failed.
//! [`LogLimiter`](strowger_core::log_limiter::LogLimiter) bounds their number. Bans are logged elsewhere, and are few.

use crate::decider::Decider;
use crate::handling::Handling;
use crate::media_sessions::offer_of;
use crate::process_state::ProcessState;
use crate::refused_offer::{Offered, offered};
use crate::reply::{Party, Why};
use std::borrow::Cow;
use strowger_core::log_limiter::LogSubject;
use strowger_core::routing::Routing;
use strowger_core::shown::{brief, shown};
use strowger_core::transaction::{Event, Transactions};
use strowger_core::{Arrival, Now};
use strowger_message::{Error, Host, Index, Message, Method, Name};

/// Logs that a forwarded request failed at one target. The caller gets this failure only if there was no other target.
#[cold]
pub(crate) fn log_lost(now: Now, event: &Event, reason: &str, transactions: &Transactions, decider: Decider<'_>) {
    let (id, reason) = match event {
        Event::Timeout { id, .. } => (*id, "no response"),
        Event::ClientTransportError { id, .. } => (*id, reason),
        _ => return,
    };
    let Some(target) = transactions.lost_target(id) else { return };
    if !decider.shared.log_limiter.allow(LogSubject::Forwarding, target.address.ip(), now.mono) {
        return;
    }
    let mut index = Index::new();
    let sent = transactions.lost_request(id).unwrap_or_default();
    let request = index.parse(sent, &decider.policy.limits).ok().map(|()| Message::new(sent, &index));
    let (method, call_id) = request.map(|r| (r.method_text(), r.header(Name::CallId))).unwrap_or_default();
    tracing::info!(
        to = %target.address,
        transport = %target.transport.text(),
        method = %shown(method),
        call_id = %shown(call_id.unwrap_or_default()),
        reason,
        "forwarding failed"
    );
}

/// Returns the offered streams and what may pass, in words, if a request was refused for its offer.
fn offer_and_policy(handling: &Handling<'_, '_>, reason: &str) -> [Option<String>; 2] {
    let Some(role) = Offered::of_reason(reason) else { return [None, None] };
    let allowed = handling.progress.decision.as_deref().map(|decision| role.allowed(decision));
    [Some(offered(offer_of(&handling.request.message))), allowed]
}

impl Decider<'_> {
    /// Logs the refusal of a request with this status. A challenge is not logged as a refusal, because the sender has
    /// not sent credentials yet.
    pub(crate) fn log_refusal(&self, handling: &Handling<'_, '_>, status: u16, why: Why) {
        let request = handling.request;
        let challenge = matches!(status, 401 | 407);
        match why {
            Why::Logged => return,
            Why::Domain(party) if self.log_domain(handling, party) => return,
            _ => (),
        }
        if challenge && !tracing::enabled!(tracing::Level::DEBUG)
            || !challenge && !self.may_say(handling, kind_of(handling))
        {
            return;
        }
        let method = shown(request.message.method_text());
        let uri = shown(request.message.request_uri());
        let from = shown(request.mandatory.from.addr.uri_text);
        let (source, transport) = (request.arrival.remote, request.arrival.transport.text());
        let call_id = shown(request.call_id);
        if challenge {
            tracing::debug!(status, %method, %uri, %from, %source, %transport, %call_id, "challenged");
        } else {
            let reason = &*self.refusal_text(status, why);
            let [offered, allowed] = offer_and_policy(handling, reason);
            let (offered, allowed) = (offered.as_deref(), allowed.as_deref());
            tracing::info!(status, reason, offered, allowed, %method, %uri, %from, %source, %transport, %call_id, "request refused");
        }
    }

    /// Returns the reason for a refusal in words, for the log and the records.
    pub(crate) fn refusal_text(&self, status: u16, why: Why) -> Cow<'_, str> {
        match why {
            Why::Text(text) => text.into(),
            Why::Rule(place) => self.policy.rule(place).map_or("a rule", |rule| &rule.name).into(),
            Why::Filter(place) => self.policy.filter(place).map_or("a filter", |filter| &filter.name).into(),
            Why::Limit(place) => {
                let limit = self.policy.config.call_limits.get(place);
                limit.map_or_else(|| "a call limit".into(), |limit| format!("call limit {}", limit.name).into())
            }
            Why::Logged | Why::Domain(_) | Why::Status => strowger_message::status::reason(status).into(),
        }
    }

    /// Logs a request that cannot be parsed, or violates the RFC, with the parts that can be parsed.
    #[cold]
    pub(crate) fn log_malformed(&self, now: Now, arrival: &Arrival, message: &Message<'_>, error: Error) {
        let source = arrival.remote;
        if !self.shared.log_limiter.allow(LogSubject::Malformed, source.ip(), now.mono) {
            return;
        }
        let from =
            message.from().map_or_else(|_| message.header(Name::From).unwrap_or_default(), |from| from.addr.uri_text);
        tracing::info!(
            status = error.status(),
            reason = error.reason.text(),
            byte = error.offset,
            method = %shown(message.method_text()),
            uri = %shown(message.request_uri()),
            from = %shown(from),
            %source,
            transport = arrival.transport.text(),
            call_id = %shown(message.header(Name::CallId).unwrap_or_default()),
            "request refused"
        );
    }

    /// Logs that a request names a party of a domain that is not local. Most often this is a mistake: a phone uses its
    /// name of the server as the domain. Returns false if the domain is local.
    fn log_domain(&self, handling: &Handling<'_, '_>, party: Party) -> bool {
        let named = party.uri(handling.request);
        let Some((uri, reason)) = named.sip().and_then(|uri| Some((uri, self.foreign_domain(uri.host)?))) else {
            return false;
        };
        if !self.may_say(handling, kind_of(handling)) {
            return true;
        }
        let request = handling.request;
        let mut domain = Vec::new();
        uri.host.write_lower(&mut domain);
        let domains: Vec<&str> = self.policy.config.domain_names().collect();
        tracing::info!(
            domain = %shown(&domain),
            reason,
            domains = %brief(&domains.join(", ")),
            method = %shown(request.message.method_text()),
            user = %shown(uri.user.unwrap_or_default()),
            source = %request.arrival.remote,
            transport = %request.arrival.transport.text(),
            call_id = %shown(request.call_id),
            "request refused"
        );
        true
    }

    /// Returns why a host is no domain of this server, with the remedy; `None` if the host is one.
    pub(crate) fn foreign_domain(&self, host: Host<'_>) -> Option<&'static str> {
        let identity = self.policy.identity();
        if identity.domain_of(host).is_some() {
            return None;
        }
        Some(match (identity.is_own_host(host), self.policy.config.domains.is_empty()) {
            (true, false) => {
                "the domain is an address of this server, which has several domains: enter one of them in the phone, or name the address in \
                 `aliases` of a [[domain]]"
            }
            (_, true) => "this server has no domain: name those of its users in `domains`",
            (false, false) => {
                "the domain is not one of this server's: enter one of `domains` in the phone, or add this name to `domains` or to `aliases` of a \
                 [[domain]]"
            }
        })
    }

    /// Logs an ACK that is dropped. It gets no response, and its call ends 32 seconds later (RFC 3261 section
    /// 13.3.1.4).
    pub(crate) fn log_ack(&self, handling: &Handling<'_, '_>, routing: &Routing<'_>) {
        if !self.may_say(handling, LogSubject::Request) {
            return;
        }
        let request = handling.request;
        let reason = match routing.other_contact {
            true => {
                "its Route is of an answer with another Contact: the one of the 2xx counts (RFC 3261 section 13.2.2.4)"
            }
            false => "of no call that was let through",
        };
        let (call_id, source) = (shown(request.call_id), request.arrival.remote);
        tracing::info!(%call_id, %source, uri = %shown(routing.uri_text), reason, "ACK dropped");
    }

    /// Tells whether a line of this kind may be written about this request.
    pub(crate) fn may_say(&self, handling: &Handling<'_, '_>, kind: LogSubject) -> bool {
        self.shared.log_limiter.allow(kind, handling.request.arrival.remote.ip(), handling.now.mono)
    }
}

fn kind_of(handling: &Handling<'_, '_>) -> LogSubject {
    if handling.request.method == Method::Register { LogSubject::Registration } else { LogSubject::Request }
}

impl ProcessState {
    /// Logs the number of suppressed lines, once a minute. `now` is in milliseconds.
    pub fn report_suppressed(&self, now: u64) {
        let suppressed = self.log_limiter.suppressed(now);
        if suppressed.count() > 0 {
            let [connections, forwarding, scanners, malformed, authentication, registrations, requests, lookups] =
                LogSubject::ALL.map(|kind| Some(suppressed.of(kind)).filter(|count| *count > 0));
            tracing::warn!(
                count = suppressed.count(),
                setting = %"log.refusals_per_minute",
                connections,
                forwarding,
                scanners,
                malformed,
                authentication,
                registrations,
                requests,
                lookups,
                "suppressed log lines"
            );
        }
        for (count, setting, is_wanted) in [
            (self.call_lines.suppressed(now), "log.calls_per_minute", crate::call_log::is_wanted()),
            (
                self.registration_lines.suppressed(now),
                "log.registrations_per_minute",
                crate::registration_log::is_wanted(),
            ),
        ] {
            if count > 0 && is_wanted {
                tracing::warn!(count, %setting, "suppressed log lines");
            }
        }
    }
}
