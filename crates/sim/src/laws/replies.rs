//! Law: every request is answered, forwarded, or, if its sender retransmits it, counted as dropped. A refusal because
//! of a bound has a Retry-After, and is counted.

use super::recent::Recent;
use super::{is_of, key};
use crate::server::ServerHost;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::ops::AddAssign as _;
use strowger_message::{Message, Method, Name};

#[derive(Debug, Default)]
pub(super) struct Replies {
    requests: Recent<Request>,
    /// Number of requests that each process refused because of a bound or a shutdown.
    refused: HashMap<SocketAddr, u64>,
}

/// A received request.
#[derive(Debug, Default)]
struct Request {
    /// True if the request has a final response, or another host must send one.
    is_answered: bool,
    /// True for a stream, over which it comes once.
    by_stream: bool,
}

impl Replies {
    pub(super) fn arrived(&mut self, host: SocketAddr, message: &Message<'_>, by_stream: bool) {
        if let (Some(method), Ok(via)) = (message.method(), message.via())
            && method != Method::Ack
        {
            let key = key(host, via.branch.unwrap_or_default(), message.method_text());
            self.requests.of(key).by_stream |= by_stream;
        }
    }

    /// Checks a response that leaves a server.
    ///
    /// # Errors
    /// A 503 without Retry-After.
    pub(super) fn sent(&mut self, host: SocketAddr, message: &Message<'_>) -> Result<(), String> {
        let (Ok(cseq), Ok(via)) = (message.cseq(), message.via()) else { return Ok(()) };
        let Some(status) = message.status() else {
            // A request other than INVITE gets no answer if another host answers it too late (RFC 4320 section 4.2).
            let below = message.vias().flatten().nth(1).and_then(|via| via.branch).unwrap_or_default();
            if let Some(request) = self.requests.get_mut(&key(host, below, cseq.method_text)) {
                request.is_answered |= cseq.method != Method::Invite;
            }
            return Ok(());
        };
        if status >= 200
            && let Some(request) = self.requests.get_mut(&key(host, via.branch.unwrap_or_default(), cseq.method_text))
        {
            self.refused.entry(host).or_default().add_assign(u64::from(status == 503 && !request.is_answered));
            request.is_answered = true;
        }
        match status == 503 && !message.has(Name::RetryAfter) {
            true => Err("it does not say when to try again".to_owned()),
            false => Ok(()),
        }
    }

    /// Checks that each refusal is counted.
    ///
    /// # Errors
    /// A request was refused and not counted.
    pub(super) fn check(&self, server: &ServerHost) -> Result<(), String> {
        let host = server.address();
        let counts = server.counts();
        let (refused, counted) = (self.refused.get(&host).copied(), counts.overloaded + counts.refused_at_shutdown);
        match refused.filter(|refused| *refused > counted) {
            Some(refused) => Err(format!("{host}: {refused} requests were answered 503, {counted} are counted")),
            None => Ok(()),
        }
    }

    /// Checks the requests without a response at the end.
    ///
    /// # Errors
    /// More requests have no response than were dropped.
    pub(super) fn at_the_end(&self, server: &ServerHost) -> Result<(), String> {
        let host = server.address();
        let counts = server.counts();
        for (by_stream, dropped) in [(false, counts.held_dropped + counts.withheld), (true, 0)] {
            let is_lost = |(key, request): &(&Vec<u8>, &Request)| {
                request.by_stream == by_stream && !request.is_answered && is_of(host, key)
            };
            let lost: Vec<_> = self.requests.iter().filter(is_lost).collect();
            let dropped = dropped + counts.banned;
            if lost.len() as u64 > dropped {
                let keys: Vec<_> = lost.iter().map(|(key, _)| String::from_utf8_lossy(key)).collect();
                return Err(format!("{host}: {dropped} messages were dropped, these have no answer: {keys:?}"));
            }
        }
        Ok(())
    }

    pub(super) fn turn(&mut self, now: u64) {
        self.requests.turn(now);
    }

    pub(super) fn restarted(&mut self, host: SocketAddr) {
        self.requests.retain(|key| !is_of(host, key));
        self.refused.remove(&host);
    }
}
