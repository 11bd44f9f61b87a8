//! Forwarding of a request to the places of rules and failures.

use crate::decider::Decider;
use crate::decision::{Decision, FailureDecision};
use crate::destination::RuleTargetAddresses;
use crate::edits::Edits;
use crate::engine::Engine;
use crate::handling::Handling;
use crate::rule_target_addresses::{PlaceCandidates, PlaceEdits, flows};
use crate::rule_targets::RuleTargets;
use crate::session_timer::SessionTimer;
use strowger_calls::LimitedTargets;
use strowger_calls::limits::Claim;
use strowger_core::proxy::{Candidate, FailurePlan, Plan, Remedy, TryNext};
use strowger_core::routing::Routing;
use strowger_core::transaction::ServerId;

/// Returns for each of these places the claims of the call under the limits of the place, as bytes that the proxy hands
/// back before it tries the place. `counts`: whether the call may count under limits at one of the places, or counted
/// under such limits before; if not, the result is empty.
fn questions(to: &RuleTargets, counts: bool) -> Vec<Vec<u8>> {
    if !counts {
        return Vec::new();
    }
    (0..to.uris.len()).map(|place| Claim::write_all(to.claims(place))).collect()
}

/// Returns the places to which a request may go, with their limits, if its call counts under limits there.
pub(crate) fn limited_targets<'a>(
    handling: &'a Handling<'_, '_>,
    candidates: &[Candidate<'_>],
    places: &[usize],
) -> LimitedTargets<'a> {
    let mut limited = LimitedTargets::default();
    if places.is_empty() {
        return limited;
    }
    let Some(decision) = handling.progress.decision.as_deref().filter(|decision| decision.to.may_count()) else {
        return limited;
    };
    let places = candidates.iter().zip(places).enumerate();
    let reached = places.filter(|(_, (candidate, _))| !candidate.targets.is_empty());
    limited.claims = reached.map(|(number, (_, place))| (number, decision.to.claims(*place))).collect();
    limited.first = limited.claims.first().map_or(0, |(number, _)| *number);
    limited
}

fn plan_for<'a>(failure: &'a FailureDecision, to: &'a [Candidate<'a>], asks: &'a [u8]) -> FailurePlan<'a> {
    let remedy = failure.answer.map_or(Remedy::Try(to), Remedy::Answer);
    FailurePlan {
        statuses: &failure.statuses,
        remedy,
        ring_timeout: failure.ring_timeout,
        answer_timeout: failure.answer_timeout,
        try_next: failure.try_next.as_deref().map_or(TryNext::Any, TryNext::On),
        asks,
    }
}

/// Notes the gateways to which a call may be sent, each with its targets.
fn note_gateways(decider: Decider<'_>, uris: &[String], targets: &[RuleTargetAddresses]) {
    for (uri, targets) in uris.iter().zip(targets) {
        if let RuleTargetAddresses::NextHop(targets) = targets {
            decider.shared.gateways.note(uri, targets, &decider.policy.config);
        }
    }
}

impl Engine {
    /// Forwards a request to the places of its rules. Not inlined: most requests are not routed by rules, and so run
    /// less code.
    #[inline(never)]
    pub(crate) fn forward_to_places(
        &mut self,
        handling: &mut Handling<'_, '_>,
        routing: &Routing<'_>,
        mut targets: Vec<RuleTargetAddresses>,
        timer: &SessionTimer,
    ) {
        let to =
            handling.progress.decision.as_deref().map_or_else(RuleTargets::default, |decision| decision.to.clone());
        let mut order = self.policy.order_of_groups(handling.request, &to);
        self.decider().order_places(handling, &mut targets, &mut order);
        let edits = Edits::of(handling, timer);
        if handling.begins_call() {
            note_gateways(self.decider(), &to.uris, &targets);
        }
        let asks = questions(&to, to.may_count());
        let routes = self.decider().emergency_routes(routing, &to.uris);
        let (flows, changes) = (flows(&targets), PlaceEdits { uri: None, edits: &edits, asks: &asks });
        let mut copies = PlaceCandidates::new(&to, (&targets, &flows), order.into_iter(), changes);
        if let Some(routes) = &routes {
            for (candidate, place) in copies.candidates.iter_mut().zip(&copies.places) {
                if matches!(targets[*place], RuleTargetAddresses::NextHop(_)) {
                    (candidate.uri, candidate.path) = (None, &routes[*place]);
                }
            }
        }
        self.send(handling, routing, &copies.candidates, &copies.places, timer.session, &edits);
    }

    /// Forwards a request that has actions after failures. Not inlined: most requests have none, and so run less code.
    #[inline(never)]
    pub(crate) fn forward_with_failures(
        &mut self,
        handling: &mut Handling<'_, '_>,
        routing: &Routing<'_>,
        (server, candidates): (ServerId, &[Candidate<'_>]),
        plan: &Plan<'_>,
        (decision, edits): (&Decision, &Edits),
    ) -> bool {
        // The names of these places were looked up in the previous stage.
        let targets = self.decider().targets_on_failure(handling, decision).unwrap_or_default();
        if handling.begins_call() {
            let places = decision.on_failure.iter().zip(&targets);
            places.for_each(|(failure, targets)| note_gateways(self.decider(), &failure.to.uris, targets));
        }
        let (failures, of_failure) = (&decision.on_failure, decision.of_failure());
        let changed = |failure: &FailureDecision| {
            let uri = failure.user.as_ref().and_then(|user| routing.uri_with_user(user));
            (edits.with(of_failure, failure), uri)
        };
        let changed: Vec<_> = failures.iter().map(changed).collect();
        let counts = decision.may_count_at_places();
        let first = |number, count| self.policy.first_after_failure(number, count, handling.request);
        let of_failure = |failure: &FailureDecision| questions(&failure.to, true);
        let asks: Vec<_> = failures.iter().filter(|_| counts).map(of_failure).collect();
        let flows: Vec<_> = targets.iter().map(|targets| flows(targets)).collect();
        let failures = failures.iter().zip(targets.iter().zip(&flows)).zip(&changed).enumerate();
        let failures: Vec<_> = failures
            .map(|(n, ((failure, (to, flows)), (edits, uri)))| {
                let asks = asks.get(n).map_or(&[][..], |asks| asks);
                let order = failure.to.groups().next().map(|_| failure.to.order(first));
                let order = (0..to.len()).map(|n| order.as_ref().map_or(n, |order| order[n]));
                let changes = PlaceEdits { uri: uri.as_deref(), edits, asks };
                (failure, PlaceCandidates::new(&failure.to, (to, flows), order, changes).candidates)
            })
            .collect();
        let of_failures: Vec<_> = failures.iter().map(|(failure, _)| failure.question()).collect();
        let on_failure = failures.iter().zip(&of_failures);
        let on_failure: Vec<_> = on_failure.map(|((failure, to), asks)| plan_for(failure, to, asks)).collect();
        self.forward_concealed(handling, routing, server, candidates, &Plan { on_failure: &on_failure, ..*plan })
    }
}
