//! REFER of a party of a bridged call (RFC 3515): who may refer the other party (`rule.refer_from`).
//!
//! Many phones follow a REFER without asking, and the new call is their own: an outsider could have them call expensive numbers. By default the
//! REFER of users of this server and of trusted sources alone goes to the other party.

use super::party_of;
use crate::decision::Decision;
use crate::engine::Engine;
use crate::handling::Handling;
use std::net::{IpAddr, Ipv4Addr};
use strowger_config::ReferFrom;
use strowger_core::b2bua::bridge::{PairKey, Side};
use strowger_core::log_limiter::LogSubject;
use strowger_core::shown::shown;
use strowger_core::user_agent::Event;
use strowger_core::{Now, Outbox};
use strowger_message::Method;

impl Engine {
    /// Tells for caller and callee of a new call whether they may refer the other one; `None` if that depends on who answers.
    pub(super) fn may_refer(&self, handling: &Handling<'_, '_>) -> [Option<bool>; 2] {
        let of_callee = match handling.progress.decision.as_deref().map(Decision::refer_from).unwrap_or_default() {
            ReferFrom::Everyone => Some(true),
            ReferFrom::None => Some(false),
            ReferFrom::Users => None,
        };
        [Some(self.decider().may_refer_callee(handling)), of_callee]
    }

    /// Notes who has answered, before the bridge handles the event: a user at a registered contact, or a trusted source, may refer the caller.
    pub(super) fn note_callee(&mut self, event: &Event, (pair, side): (PairKey, Side)) {
        if side == Side::Near || !matches!(event, Event::Answered { .. }) {
            return;
        }
        let is_user =
            self.anchored.far_legs.is_user() || self.decider().believes(self.anchored.far_legs.source().remote.ip());
        if let Some(call) = self.anchored.bridges.calls.get_mut(&pair) {
            call.far.may_refer.get_or_insert(is_user);
        }
    }

    /// Answers the REFER of a party that may not refer the other one by 403. Returns false for all other events.
    pub(super) fn refuses_refer(
        &mut self,
        now: Now,
        event: &Event,
        (pair, side): (PairKey, Side),
        out: &mut Outbox,
    ) -> bool {
        let Event::Request { request, method: Method::Refer, .. } = *event else { return false };
        let Some(call) = self.anchored.bridges.calls.get_mut(&pair) else { return false };
        if call.leg_mut(side).may_refer == Some(true) {
            return false;
        }
        let unknown = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let source = self.stack.agent.arrival().map_or(unknown, |arrival| arrival.remote.ip().to_canonical());
        if self.shared.log_limiter.allow(LogSubject::Request, source, now.mono) {
            let (far_call_id, party) = (shown(&call.far_call_id), party_of(side).text());
            tracing::info!(%far_call_id, party, %source, "REFER refused");
        }
        self.stack.with_agent(now, out, |agent, round| agent.respond(round, request, 403, b"", b""));
        true
    }
}
