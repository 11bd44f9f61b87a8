//! Work of the engine with the role that anchors calls ([`Anchor`]).

use crate::anchor::{Anchor, AnchoredInvite, LegOrder, ServerRole};
use crate::contacts::Contacts;
use crate::destination::Destination;
use crate::engine::Engine;
use crate::handling::Handling;
use crate::reply::Reply;
use crate::stage::Verdict;
use strowger_calls::{Context, Legs, LimitedTargets};
use strowger_core::routing::Routing;
use strowger_core::{Now, Outbox, Round};

/// Changes the verdict about a request whose destination is known to the verdict of the role that the rules name.
pub(crate) fn by_role(handling: &Handling<'_, '_>, verdict: Verdict) -> Verdict {
    let decision = handling.progress.decision.as_deref();
    let is_anchored = decision.is_some_and(|decision| decision.role == ServerRole::Anchor);
    match verdict {
        Verdict::Forward(destination) if is_anchored && handling.begins_call() => Verdict::Anchor(destination),
        verdict => verdict,
    }
}

impl Engine {
    /// Hands a call to the role of this server that anchors calls.
    pub(crate) fn anchor_call(
        &mut self,
        handling: &mut Handling<'_, '_>,
        routing: &Routing<'_>,
        contacts: &Contacts,
        destination: Destination,
    ) {
        let Some(server) = handling.server else { return };
        if self.anchor.is_none() {
            return self.reply(handling, Reply::refused(501).because("no role of this server anchors calls"));
        }
        if self.goes_on(handling, routing, contacts, &destination).is_none() {
            return;
        }
        let mut limited = limited_targets(handling, &destination);
        let context = self.begin_call(handling, Legs::Anchored, &mut limited);
        let first = limited.first;
        let context = match context {
            Context::Notices(context) => context,
            refused => return self.refuse_entry(handling, routing, refused),
        };
        self.trying(handling);
        let targets = destination.targets_from(first);
        let invite = AnchoredInvite { context, server, request: handling.request, targets: &targets };
        self.with_anchor(handling.now, handling.out, |role, round| role.invite(round, invite));
    }

    /// Gives an order to the role that anchors a call. Without such a role the order fails, as a request that this server cannot send.
    pub(crate) fn order_leg(&mut self, now: Now, context: u64, order: LegOrder, out: &mut Outbox) {
        let is_given = self.with_anchor(now, out, |role, round| role.order(round, context, order));
        if !is_given && order != LegOrder::Cancel {
            self.refuse_own(context, 500);
        }
    }

    /// Handles the notices of the role that anchors calls. Returns whether there were any.
    pub(crate) fn take_anchor_notices(&mut self, now: Now, out: &mut Outbox) -> bool {
        let Some(role) = &mut self.anchor else { return false };
        let mut notices = Vec::new();
        role.take_notices(&mut notices);
        notices.iter().for_each(|notice| self.take_notice(now, notice, out));
        !notices.is_empty()
    }

    /// Runs `work` with the role that anchors calls. Returns whether there is such a role.
    fn with_anchor(&mut self, now: Now, out: &mut Outbox, work: impl FnOnce(&mut dyn Anchor, &mut Round<'_>)) -> bool {
        let Some(role) = &mut self.anchor else { return false };
        work(&mut **role, &mut Round { now, tx: &mut self.stack.core.transactions, out });
        true
    }
}

/// Returns the places of rules that have an address, with their limits, if the call counts under limits there.
fn limited_targets<'a>(handling: &'a Handling<'_, '_>, destination: &Destination) -> LimitedTargets<'a> {
    let mut limited = LimitedTargets::default();
    let decision = handling.progress.decision.as_deref().filter(|decision| decision.to.may_count());
    if let (Some(decision), Destination::Places(targets)) = (decision, destination) {
        let reached = targets.iter().enumerate().filter(|(_, targets)| !targets.is_empty());
        limited.claims = reached.map(|(place, _)| (place, decision.to.claims(place))).collect();
        limited.first = limited.claims.first().map_or(0, |(place, _)| *place);
    }
    limited
}

#[cfg(test)]
mod tests;
