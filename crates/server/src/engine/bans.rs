//! Drop of messages from banned sources and scanners.

use crate::decider::Decider;
use strowger_core::log_limiter::LogSubject;
use strowger_core::routing::Request;
use strowger_core::routing::contact_repair::is_first_hop;
use strowger_core::shown::shown;
use strowger_core::{Arrival, Now};
use strowger_message::Name;

impl Decider<'_> {
    /// Tells whether a message is dropped because its source is banned, and counts a dropped message. Emergency calls
    /// pass.
    pub(super) fn is_shut_out(&self, now: Now, arrival: &Arrival, bytes: &[u8]) -> bool {
        let banned = self.policy.bans.is_banned(arrival.remote.ip(), now.mono);
        let dropped = banned && !self.is_heard_though_banned(now, arrival, bytes);
        if dropped {
            self.counters().banned.one();
        }
        dropped
    }

    /// Tells whether the source is banned, so that the message is dropped, and counts a dropped message.
    pub(crate) fn is_banned(&self, arrival: &Arrival, now: Now) -> bool {
        let banned = self.policy.bans.is_banned(arrival.remote.ip(), now.mono);
        if banned {
            self.counters().banned.one();
        }
        banned
    }

    /// Tells whether the sender is a scanner, which looks for vulnerable accounts instead of a user to call.
    pub(super) fn is_scanner(&self, now: Now, request: &Request<'_>) -> bool {
        let Some(agent) = request.message.header(Name::UserAgent) else { return false };
        if !self.policy.bans.is_scanner(agent) {
            return false;
        }
        self.counters().banned.one();
        let source = request.arrival.remote;
        // The source of a UDP message may be forged, and a proxy is not the author of a message that it forwards: this
        // message is dropped, but its source is not banned.
        let is_of_source = request.arrival.transport.is_reliable() && is_first_hop(&request.message);
        let banned = is_of_source && self.policy.bans.scanner(source.ip(), now.mono);
        if self.shared.log_limiter.allow(LogSubject::Scanner, source.ip(), now.mono) {
            let (agent, transport) = (shown(agent), request.arrival.transport.text());
            tracing::info!(%source, %transport, %agent, banned, "scanner dropped");
        }
        true
    }
}
