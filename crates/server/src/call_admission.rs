//! Entry of a request into the table of calls before it is forwarded, by the policy.

use crate::decider::Decider;
use crate::decision::Decision;
use crate::engine::Engine;
use crate::handling::Handling;
use crate::policy::ActivePolicy;
use crate::process_state::ProcessState;
use crate::shard::{ShardState, Sinks};
use strowger_calls::limits::Claim;
use strowger_calls::shares::{Parties, party_of};
use strowger_calls::{AccountFacts, Admission, Beginning, CallTable, Context, Environment, Legs, LimitedTargets};

/// Policy about an INVITE, apart from the table of calls that asks it.
struct InvitePolicy<'a, 't, 'm> {
    policy: &'a ActivePolicy,
    shared: &'a ProcessState,
    shard: &'a ShardState,
    sinks: &'a Sinks,
    handling: &'a Handling<'t, 'm>,
}

impl<'a> InvitePolicy<'a, '_, '_> {
    fn decider(&self, calls: &'a CallTable) -> Decider<'a> {
        let &Self { policy, shared, shard, sinks, .. } = self;
        Decider { policy, shared, shard, calls, sinks }
    }
}

impl Admission for InvitePolicy<'_, '_, '_> {
    fn is_emergency(&self, calls: &CallTable) -> bool {
        let is_set = !self.policy.config.decisions.emergency.uris.is_empty();
        is_set && self.decider(calls).is_emergency_of(self.handling)
    }

    fn log_begun(&self, calls: &CallTable) -> bool {
        self.decider(calls).log_call_begun(self.handling)
    }

    fn parties(&self, calls: &CallTable) -> Parties {
        self.decider(calls).parties_of_call(self.handling)
    }

    fn emergency_place(&self, calls: &CallTable) -> Option<Parties> {
        self.decider(calls).emergency_place(self.handling)
    }

    fn account(&self, calls: &CallTable) -> AccountFacts {
        self.decider(calls).account_facts(self.handling, "")
    }

    fn passes_over(&self, claim: &Claim) -> bool {
        let decision = self.handling.progress.decision.as_deref();
        decision.is_some_and(|decision| decision.limited_failure.is_some() && !decision.claims.contains(claim))
    }
}

impl Engine {
    /// Returns the context of a request that is about to be forwarded to its target, or to the first of these targets
    /// whose limits have room.
    pub(crate) fn context_of(&mut self, handling: &Handling<'_, '_>, limited: &mut LimitedTargets<'_>) -> Context {
        if handling.begins_call() {
            let legs = if self.decider().stays(handling) { Legs::Proxied } else { Legs::Passing };
            return self.begin_call(handling, legs, limited);
        }
        let (calls, mut env) = self.calls_at(handling.now);
        Context::Notices(match handling.progress.proof.in_dialog {
            // Outside its dialog a request changes nothing of a call.
            false => calls.pass_outside(&mut env, handling.request),
            true => calls.pass_within(&mut env, handling.request),
        })
    }

    /// Enters an INVITE into the table of calls. `legs`: part that this server takes in the dialogs of the call.
    pub(crate) fn begin_call(
        &mut self,
        handling: &Handling<'_, '_>,
        legs: Legs,
        limited: &mut LimitedTargets<'_>,
    ) -> Context {
        self.begin_call_as(handling, (legs, b""), limited)
    }

    /// Enters an INVITE into the table of calls as [`Engine::begin_call`] does, with the Call-ID of the far leg; empty if there is none.
    pub(crate) fn begin_call_as(
        &mut self,
        handling: &Handling<'_, '_>,
        (legs, far_call_id): (Legs, &[u8]),
        limited: &mut LimitedTargets<'_>,
    ) -> Context {
        let decider = self.decider();
        let decision = handling.progress.decision.as_deref();
        let claims = decision.map(Decision::all_claims).unwrap_or_default();
        let proof = &handling.progress.proof;
        let facts = Beginning {
            request: handling.request,
            in_dialog: proof.in_dialog,
            is_user: proof.user.is_some(),
            legs,
            far_call_id,
            tracks: decider.tracks(handling),
            logs: decider.may_log_calls(),
            accounts: decider.accounts(handling),
            draining: self.shard.process_status.draining,
            claims: &claims,
            may_count: decision.is_some_and(Decision::may_count),
            places: decider.call_places(),
        };
        let Self { calls, policy, shared, shard, sinks, stack, .. } = self;
        let mut env = Environment { now: handling.now, router: &policy.router, entropy: &mut stack.entropy };
        let asked = InvitePolicy { policy, shared, shard, sinks, handling };
        calls.begin(&mut env, &facts, limited, &asked)
    }
}

impl Decider<'_> {
    /// Returns the number of calls that this shard may track.
    pub(crate) fn call_places(&self) -> usize {
        self.policy.config.dialogs.calls.div_ceil(self.shared.counters.len())
    }

    /// Tells whether a request is an emergency call, which has bounds of its own.
    pub(crate) fn is_emergency_of(&self, handling: &Handling<'_, '_>) -> bool {
        let routing = self.policy.router.route(handling.progress.began, handling.request);
        self.is_emergency(handling.now, handling.request, &routing)
    }

    /// Returns the parties for which the new call of this request counts.
    fn parties_of_call(&self, handling: &Handling<'_, '_>) -> Parties {
        let request = handling.request;
        let hash = |kind: &[u8], party: &[u8]| party_of(self.calls.key_of_call(kind, party));
        let caller = match &handling.progress.proof.user {
            Some(user) => hash(b"user", &[&user.name[..], b"@", &user.domain[..]].concat()),
            None if self.is_trusted(request.arrival.remote.ip()) => return [0; 2],
            None => hash(b"source", self.policy.source_of(request.arrival).to_string().as_bytes()),
        };
        [caller, hash(b"callee", &self.aor_of(&request.uri))]
    }

    /// Returns a place among the emergency calls for a call that has no other place; `None` if the call is no emergency
    /// call, or no such place is free.
    fn emergency_place(&self, handling: &Handling<'_, '_>) -> Option<Parties> {
        if !self.is_emergency_of(handling) {
            return None;
        }
        let is_known = self.is_known_source(handling.now, handling.request);
        let source = self.policy.source_of(handling.request.arrival).to_string();
        let source = party_of(self.calls.key_of_call(b"emergency", source.as_bytes()));
        self.calls.emergency_place(self.call_places(), source, is_known)
    }
}
