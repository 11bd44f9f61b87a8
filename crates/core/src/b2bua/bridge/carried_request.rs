//! Other requests within the call: each is carried to the other side, and its final response back.

use serde::{Deserialize, Serialize};
use strowger_message::Method;

use super::Context;
use super::pair::{Pair, Side};
use super::passed_headers::Facts;
use super::setup::{LATER, passing_status};
use crate::user_agent::{IncomingKey, LegKey, RequestKey};

/// Request that was carried over and has no final response yet.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct CarriedRequest {
    /// Request of the peer.
    pub(super) asked: IncomingKey,
    /// Our request to the other side.
    pub(super) sent: RequestKey,
    /// Set for the NOTIFY of a transfer.
    pub(super) is_notify: bool,
}

/// Largest number of requests of a pair that wait for their final response.
pub(super) const MOST_CARRIED: usize = 32;

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
            Method::Refer => return self.refer(cx, from, request, facts),
            Method::Notify => return self.notified(cx, from, request),
            // Each begins a subscription or a binding, which would name the dialog of its side.
            Method::Subscribe | Method::Publish | Method::Register => {
                let allow = allow_line(cx);
                return respond(cx, request, 405, &allow);
            }
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
                self.carried.push(CarriedRequest { asked: request, sent, is_notify: false });
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
        self.refer_answered(cx, request, status, facts);
        let Some(at) = self.carried.iter().position(|carried| carried.sent == request) else { return };
        let CarriedRequest { asked, .. } = self.carried.swap_remove(at);
        let status = passing_status(status);
        let mut headers = facts.passed.clone();
        if status == 405 {
            headers.extend_from_slice(&allow_line(cx));
        }
        let body = if facts.has_passing_body() { body } else { b"" };
        if !body.is_empty() {
            headers.extend_from_slice(&facts.content);
        }
        cx.agent.respond(cx.round, asked, status, &headers, body);
    }

    /// Answers the open requests of a pair that ends: 487 (RFC 3261 section 15.1.2), and 200 to a NOTIFY, which was passed on.
    pub(super) fn drop_carried(&mut self, cx: &mut Context<'_, '_>) {
        for CarriedRequest { asked, sent, is_notify } in self.carried.drain(..) {
            cx.index.requests.remove(&sent);
            let status = if is_notify { 200 } else { 487 };
            cx.agent.respond(cx.round, asked, status, b"", b"");
        }
    }
}

fn allow_line(cx: &Context<'_, '_>) -> Vec<u8> {
    [&b"Allow: "[..], &cx.agent.settings().capabilities.allow[..], b"\r\n"].concat()
}

pub(super) fn respond(cx: &mut Context<'_, '_>, request: IncomingKey, status: u16, headers: &[u8]) {
    cx.agent.respond(cx.round, request, status, headers, b"");
}
