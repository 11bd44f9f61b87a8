//! Ends of bridged calls by this server: by the table of calls, and by the media thread.

use super::side_of_session;
use crate::engine::{Anchored, Engine};
use crate::media_sessions::{ORDERED, SILENT};
use strowger_calls::OwnRequest;
use strowger_core::b2bua::bridge::{PairKey, Side};
use strowger_core::notice::Party;
use strowger_core::user_agent::{CallKey, RequestKey};
use strowger_core::{Now, Outbox};
use strowger_media::session::Side as SessionSide;
use strowger_message::Method;

impl Engine {
    /// Carries out an order of the table of calls about the call with this key. `context`: context of the notice about the result. Returns false
    /// if no bridged call has the key.
    pub(crate) fn order_bridge(
        &mut self,
        now: Now,
        (key, context): (u64, u64),
        (party, kind): (Party, OwnRequest),
        out: &mut Outbox,
    ) -> bool {
        let Some(pair) = self.anchored.bridges.keys.get(&key).copied() else { return false };
        let side = self.anchored.bridges.calls.get(&pair).map_or(Side::Near, |call| call.side_of(party));
        match (self.call_of_leg(pair, side), kind) {
            (Some(_), OwnRequest::Bye) => {
                if let Some(call) = self.anchored.bridges.calls.get_mut(&pair) {
                    call.leg_mut(side).bye = Some(context);
                }
                self.end_pair(now, pair, (480, ORDERED), out);
            }
            (Some(leg), OwnRequest::Question) => self.ask_leg(now, (pair, side, leg), context, out),
            // The leg is over, and its party knows.
            (None, OwnRequest::Bye) => self.report_own(context, 200),
            (None, OwnRequest::Question) => self.report_own(context, 481),
        }
        true
    }

    /// Returns the call of a leg that has not ended.
    fn call_of_leg(&self, pair: PairKey, side: Side) -> Option<CallKey> {
        let (near, far) = self.anchored.bridges.bridge.calls(pair)?;
        match side {
            Side::Near => near,
            Side::Far => far,
        }
    }

    /// Asks the party of a leg whether its dialog still exists.
    fn ask_leg(&mut self, now: Now, (pair, side, leg): (PairKey, Side, CallKey), context: u64, out: &mut Outbox) {
        let asked =
            self.stack.with_agent(now, out, |agent, round| agent.request_within(round, leg, Method::Options, b"", b""));
        match (asked, self.anchored.bridges.calls.get_mut(&pair)) {
            (Ok(request), Some(call)) => {
                call.leg_mut(side).question = Some((request, context));
                self.anchored.bridges.questions.insert(request, (pair, side));
            }
            _ => self.report_own(context, 481),
        }
    }

    /// Takes the context of an OPTIONS that the table of calls has ordered.
    pub(crate) fn take_bridged_question(&mut self, request: RequestKey) -> Option<u64> {
        let (pair, side) = self.anchored.bridges.questions.remove(&request)?;
        let leg = self.anchored.bridges.calls.get_mut(&pair)?.leg_mut(side);
        leg.question.take_if(|(asked, _)| *asked == request).map(|(_, context)| context)
    }

    /// Ends a bridged call that rings, by an order of the table of calls. `context`: that of its INVITE.
    pub(crate) fn bridge_cancel(&mut self, now: Now, context: u64, out: &mut Outbox) {
        if let Some(call) = self.anchored.bridges.newcomer(context) {
            self.stack.with_agent(now, out, |agent, round| agent.reject(round, call, 487));
        } else if let Some(pair) = self.pair_of_context(context) {
            self.end_pair(now, pair, (487, b""), out);
        }
    }

    /// Returns the pair whose far INVITE has this context.
    pub(super) fn pair_of_context(&self, context: u64) -> Option<PairKey> {
        if !self.anchored.far_legs.has_context(context) {
            // A call of an endpoint: no look at all bridged ones.
            return None;
        }
        let is_meant = |call_id: &[u8]| self.anchored.far_legs.context(call_id) == Some(context);
        let find =
            || self.anchored.bridges.calls.iter().find(|(_, call)| is_meant(&call.far_call_id)).map(|(pair, _)| *pair);
        let known = self.calls.key_of(context).and_then(|key| self.anchored.bridges.keys.get(&key).copied());
        // A call of which no response has come has no known key.
        known.or_else(find)
    }

    /// Ends both calls of a pair. `status` refuses the caller if it has no final response yet; `reason`: header lines of the BYEs.
    pub(crate) fn end_pair(&mut self, now: Now, pair: PairKey, (status, reason): (u16, &[u8]), out: &mut Outbox) {
        let Self { stack, anchored: Anchored { bridges, .. }, .. } = self;
        stack.with_agent(now, out, |agent, round| bridges.bridge.end(agent, round, pair, status, reason));
        self.close_bridged_media(pair);
        self.take_bridge_events(now, out);
    }

    /// Ends an answered call because no media come from a side. Before the answer a side may be silent.
    pub(crate) fn end_silent(&mut self, now: Now, pair: PairKey, side: SessionSide, out: &mut Outbox) {
        let side = side_of_session(side);
        let Some(call) = self.anchored.bridges.calls.get_mut(&pair).filter(|call| call.is_answered) else { return };
        let end = (call.party_of(side), Some(SILENT.cause));
        if call.ended.is_none() {
            call.ended = Some((end.0, end.1, now.mono));
            self.end_pair(now, pair, (480, SILENT.reason), out);
            self.report_hang_up(now, pair, end, out);
        }
    }
}
