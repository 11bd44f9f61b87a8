//! Other requests within the call: each is carried to the other side, and its final response back.

use serde::{Deserialize, Serialize};
use strowger_message::Method;

use super::Context;
use super::pair::{Pair, Side};
use super::passed_headers::Facts;
use super::setup::LATER;
use crate::user_agent::{IncomingKey, LegKey, RequestKey};

/// Request that was carried over and has no final response yet.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct CarriedRequest {
    /// Request of the peer.
    pub(super) asked: IncomingKey,
    /// Our request to the other side.
    pub(super) sent: RequestKey,
}

/// Largest number of requests of a pair that wait for their final response.
const MOST_CARRIED: usize = 32;

impl Pair {
    /// Carries a request to the other side, or answers it.
    pub(super) fn carry(
        &mut self,
        cx: &mut Context<'_, '_>,
        from: Side,
        request: IncomingKey,
        method: Method,
        body: &[u8],
        facts: &Facts,
    ) {
        match method {
            // Each begins a subscription or a binding, which would name the dialog of its side.
            Method::Refer | Method::Subscribe | Method::Publish | Method::Register => {
                let allow = [&b"Allow: "[..], &cx.agent.settings().capabilities.allow[..], b"\r\n"].concat();
                return respond(cx, request, 405, &allow);
            }
            // RFC 6665 section 4.1.3: there is no subscription.
            Method::Notify => return respond(cx, request, 481, b""),
            _ => (),
        }
        if !body.is_empty() && !facts.has_passing_body() {
            return respond(cx, request, 415, b"");
        }
        if self.carried.len() >= MOST_CARRIED {
            return respond(cx, request, 500, LATER);
        }
        let leg = self.forks.current.filter(|_| from == Side::Near && self.is_early());
        let headers: &[u8] = if body.is_empty() { b"" } else { &facts.content };
        let call = self.call(from.other()).map(|call| LegKey { call, leg });
        let sent = call.and_then(|key| cx.agent.request_within_named(cx.round, key, &facts.method, headers, body).ok());
        match sent {
            Some(sent) => {
                cx.index.requests.insert(sent, cx.id);
                self.carried.push(CarriedRequest { asked: request, sent });
            }
            // The other side has no dialog yet.
            None => respond(cx, request, 500, LATER),
        }
    }

    /// Handles the final response to a request that was carried over.
    pub(super) fn replied(
        &mut self,
        cx: &mut Context<'_, '_>,
        request: RequestKey,
        status: u16,
        body: &[u8],
        facts: &Facts,
    ) {
        cx.index.requests.remove(&request);
        let Some(at) = self.carried.iter().position(|carried| carried.sent == request) else { return };
        let CarriedRequest { asked, .. } = self.carried.swap_remove(at);
        let status = if matches!(status, 401 | 407) { 403 } else { status };
        let mut headers = facts.passed.clone();
        let body = if facts.has_passing_body() { body } else { b"" };
        if !body.is_empty() {
            headers.extend_from_slice(&facts.content);
        }
        cx.agent.respond(cx.round, asked, status, &headers, body);
    }

    /// Answers the requests whose call ends (RFC 3261 section 15.1.2).
    pub(super) fn drop_carried(&mut self, cx: &mut Context<'_, '_>) {
        for CarriedRequest { asked, sent } in self.carried.drain(..) {
            cx.index.requests.remove(&sent);
            cx.agent.respond(cx.round, asked, 487, b"", b"");
        }
    }
}

fn respond(cx: &mut Context<'_, '_>, request: IncomingKey, status: u16, headers: &[u8]) {
    cx.agent.respond(cx.round, request, status, headers, b"");
}
