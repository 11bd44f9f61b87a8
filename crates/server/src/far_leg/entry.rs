//! Entry of the call of a far INVITE into the table of calls, and the log of its refusal.

use crate::engine::Engine;
use crate::handling::Handling;
use crate::reply::Why;
use crate::rule_target_forwarding::limited_targets;
use strowger_calls::{Context, Legs};
use strowger_core::proxy::Candidate;
use strowger_core::routing::Request;
use strowger_message::{Index, Limits, Message};

impl Engine {
    /// Enters the call of a far INVITE into the table of calls, under the names of its near INVITE. Returns the context, and the first candidate
    /// whose limits have room.
    pub(crate) fn enter_far_leg(
        &mut self,
        handling: &mut Handling<'_, '_>,
        candidates: &[Candidate<'_>],
        places: &[usize],
    ) -> (Context, usize) {
        let call_id = handling.request.call_id;
        let entered = self.with_near_invite(handling, |engine, near| {
            let mut limited = limited_targets(near, candidates, places);
            let context = engine.begin_call_as(near, (Legs::Anchored, call_id), &mut limited);
            (context, limited.first)
        });
        // The near INVITE was parsed before.
        let Some((context, first)) = entered else { return (Context::Full, 0) };
        if let Context::Notices(context) = context {
            self.anchored.far_legs.has_entered(call_id, context);
        }
        (context, first)
    }

    /// Logs the refusal of a request: that of a far INVITE, whose names no party has seen, with the names of its near INVITE.
    pub(crate) fn log_refused(&mut self, handling: &mut Handling<'_, '_>, status: u16, why: Why) {
        let is_far = handling.is_far_leg();
        let is_logged = is_far
            && self
                .with_near_invite(handling, |engine, near| engine.decider().log_refusal(near, status, why))
                .is_some();
        if !is_logged {
            self.decider().log_refusal(handling, status, why);
        }
    }

    /// Calls `work` with the near INVITE in place of its far INVITE, whose call is not in the table yet.
    pub(crate) fn with_near_invite<T>(
        &mut self,
        handling: &mut Handling<'_, '_>,
        work: impl FnOnce(&mut Self, &mut Handling<'_, '_>) -> T,
    ) -> Option<T> {
        let (far, mut index) = (handling.request, Index::new());
        let bytes = self.anchored.far_legs.legs.get(far.call_id).map(|leg| leg.near.clone())?;
        index.parse(&bytes, &Limits::UNLIMITED).ok()?;
        let near = Message::new(&bytes, &index);
        let call_hash = self.shared.call_hash(near.call_id().ok()?.text);
        let near = Request::of(near, far.arrival, call_hash).ok()?;
        let Handling { now, server, progress, out, .. } = handling;
        Some(work(self, &mut Handling { now: *now, request: &near, server: *server, progress, out }))
    }
}
