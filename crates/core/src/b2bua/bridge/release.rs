//! End of a pair: when one call ends, the other one is ended too.

use super::Context;
use super::event::BridgeEnd;
use super::pair::{Pair, Side, Stage};
use super::passed_headers::Facts;
use crate::user_agent::Ending;

impl Pair {
    /// Handles the end of a call.
    pub(super) fn ended(&mut self, cx: &mut Context<'_, '_>, side: Side, by: Ending, facts: &Facts) {
        if self.is_replacing(side) {
            return self.newcomer_ended(cx, side);
        }
        self.forget_call(cx, side);
        if !self.stays(cx, side, by) {
            self.release_after(cx, side, by, facts);
        }
    }

    /// Handles a BYE of the agent to a side whose dialog was lost: the other side does not wait for the response.
    pub(super) fn ending(&mut self, cx: &mut Context<'_, '_>, side: Side, by: Ending, facts: &Facts) {
        if !self.is_replacing(side) {
            self.release_after(cx, side, by, facts);
        }
    }

    /// Ends both calls after the end of one.
    fn release_after(&mut self, cx: &mut Context<'_, '_>, side: Side, by: Ending, facts: &Facts) {
        let own: &[u8] = match by {
            Ending::Local | Ending::Remote | Ending::Cancelled => b"",
            Ending::NoAck | Ending::Expired | Ending::Fault(_) => b"Reason: SIP;cause=408\r\n",
            Ending::NoPrack => b"Reason: SIP;cause=504\r\n",
        };
        let headers = if own.is_empty() { &facts.passed[..] } else { own };
        self.release(cx, BridgeEnd::Side(side), 480, headers);
    }

    /// Forgets a call that is over.
    pub(super) fn forget_call(&mut self, cx: &mut Context<'_, '_>, side: Side) {
        if let Some(call) = self.leg_mut(side).call.take() {
            cx.index.calls.remove(&call);
        }
    }

    /// Ends both calls, if their end has not begun yet. `status` refuses the near INVITE if it has no final response.
    pub(super) fn release(&mut self, cx: &mut Context<'_, '_>, by: BridgeEnd, status: u16, headers: &[u8]) {
        if matches!(self.stage, Stage::Ending(_)) {
            return;
        }
        self.stage = Stage::Ending(by);
        self.exchange = None;
        self.waiting.clear();
        self.drop_carried(cx);
        self.release_replaced(cx, headers);
        if let Some(call) = self.near.call {
            if !self.invite.is_answered {
                cx.agent.reject_with(cx.round, call, status, headers);
            }
            // A call that was refused is over; one whose 2xx waits for a PRACK is refused by this.
            cx.agent.hang_up_with(cx.round, call, headers);
        }
        if let Some(call) = self.far.call {
            cx.agent.hang_up_with(cx.round, call, headers);
        }
    }
}
