//! Stage of rules: evaluates the rules of the configuration for a request outside a call.

use crate::claims::{claims_at, claims_by};
use crate::decider::Decider;
use crate::decision::{AfterFailure, Decision, FailureDecision, LimitedFailure};
use crate::handling::Handling;
use crate::identity::withholds_identity;
use crate::number_translation::{edited, join, user_part};
use crate::reply::{Reply, Why};
use crate::request_facts::RequestFacts;
use crate::role::ServerRole;
use crate::rule_trace::{self, MatchedRule, RuleResult, TraceRequest, plain};
use crate::stage::{Stage, Verdict};
use std::net::IpAddr;
use std::ops::ControlFlow;
use std::sync::Arc;
use strowger_calls::limits::Claim;
use strowger_calls::{Again, Call, passes_again};
use strowger_config::{Action, CallLimitTable, FailureAction, IdentitySource, OverLimit};
use strowger_core::routing::{Request, Routing};
use strowger_core::shown::shown;
use strowger_rules::Rule;

impl Decider<'_> {
    /// Decides about a request by the rules; the verdict is the next stage if no rule answers the request. If rules send the
    /// request out of the domain, its sender may have to authenticate first; the rules are then evaluated again for that user.
    pub(crate) fn decide(&self, handling: &Handling<'_, '_>, routing: &Routing<'_>) -> Verdict {
        match self.consult_rules(handling, routing) {
            Verdict::Decide(mut decision) if decision.role != ServerRole::Redirect => {
                let relay_for = decision.relay_for.take();
                let unproven = self.authorize_places(handling, &decision.to.uris, relay_for);
                unproven.unwrap_or(Verdict::Decide(decision))
            }
            verdict => verdict,
        }
    }

    /// Evaluates the rules for a request. Returns the verdict.
    pub(crate) fn consult_rules(&self, handling: &Handling<'_, '_>, routing: &Routing<'_>) -> Verdict {
        let facts = RequestFacts::of(*self, handling, routing);
        let trace_request = handling.progress.trace_request.as_deref();
        if trace_request.is_none() && !tracing::enabled!(tracing::Level::DEBUG) {
            return self.ask_rules(&facts, routing, &[], |_| ());
        }
        self.decide_with_reasons(&facts, routing, trace_request)
    }

    /// Evaluates the rules for a request and records which were evaluated: for `strowger explain` if it asked,
    /// otherwise for the log. Returns the verdict.
    #[cold]
    fn decide_with_reasons(
        &self,
        facts: &RequestFacts<'_, '_>,
        routing: &Routing<'_>,
        trace_request: Option<&TraceRequest>,
    ) -> Verdict {
        let decisions = &self.policy.config.decisions;
        let mut matched = Vec::new();
        let full = trace_request.map_or(&[][..], |trace_request| &trace_request.full);
        let verdict = self.ask_rules(facts, routing, full, |one| matched.push(one()));
        let path = rule_trace::path(&decisions.rules, facts, &decisions.sets, matched);
        match trace_request {
            Some(trace_request) => *trace_request.path.borrow_mut() = path,
            None => log_path(&path, &verdict, facts.request.call_id),
        }
        verdict
    }

    /// Evaluates the rules in order until one decides. `full`: limits that are assumed to be full. `trace` is called for each
    /// rule that holds.
    fn ask_rules(
        &self,
        facts: &RequestFacts<'_, '_>,
        routing: &Routing<'_>,
        full: &[String],
        mut trace: impl FnMut(&dyn Fn() -> MatchedRule),
    ) -> Verdict {
        let decisions = &self.policy.config.decisions;
        let mut decision = Decision::default();
        let (part, mut edit) = (user_part(&routing.uri), None);
        let mut changing = Vec::new();
        let (mut is_any, mut identity) = (false, None);
        let answer = decisions.rules.walk(facts, &decisions.sets, |place, rule: &Rule<Action>| {
            let Action { answer, drop, ends, .. } = &rule.action;
            if *drop || answer.is_some() {
                trace(&|| MatchedRule::of(place, true));
                return ControlFlow::Break(Some((answer.as_ref().map(|(status, _)| *status), Why::Rule(place))));
            }
            let places = match self.claims(facts, &rule.action, full) {
                Ok((claims, places)) => {
                    let limits = || claims.iter().map(|claim| claim.counted.name.to_string()).collect();
                    trace(&|| MatchedRule { limits: limits(), ..MatchedRule::of(place, *ends) });
                    Claim::add(&mut decision.claims, claims);
                    places
                }
                Err(limit) => {
                    let answers = limit.over == OverLimit::Answer;
                    trace(&|| MatchedRule { full: Some(limit.name.to_string()), ..MatchedRule::of(place, answers) });
                    if !answers {
                        return ControlFlow::Continue(());
                    }
                    let limits = &self.policy.config.call_limits;
                    let why = limits.iter().position(|table| table.name == limit.name).map_or(Why::Status, Why::Limit);
                    return ControlFlow::Break(Some((Some(limit.status), why)));
                }
            };
            is_any = true;
            let changes = |(_, failure): &(usize, &Arc<FailureAction>)| failure.user.is_some();
            let failures = (decision.on_failure.len()..).zip(&rule.action.on_failure).filter(changes);
            changing.extend(failures.map(|(place, failure)| (place, failure.clone())));
            let failures = rule.action.on_failure.iter().map(|failure| {
                let claims = claims_by(facts, &failure.call_limits);
                FailureDecision::of(failure, claims, claims_at(facts, &failure.to, &failure.call_limits))
            });
            decision.apply_rule(&rule.action, places, failures);
            identity = identity.or(rule.action.identity.as_ref());
            if let (Some(part), Some(more)) = (part, &rule.action.user) {
                join(edit.get_or_insert_default(), more, part, &decisions.sets);
            }
            if *ends { ControlFlow::Break(None) } else { ControlFlow::Continue(()) }
        });
        match answer {
            ControlFlow::Break(Some((Some(status), why))) => return Reply { why, ..Reply::refused(status) }.into(),
            ControlFlow::Break(Some((None, _))) => return Verdict::Drop,
            ControlFlow::Break(None) | ControlFlow::Continue(()) => (),
        }
        decision.user = part.zip(edit).and_then(|(part, edit)| edited(part, &edit, &decisions.sets));
        decision.own_edits = (decision.add.len(), decision.remove.len());
        if let Some(source) = identity {
            decision.identity = Some(source.clone());
            self.assert_by(source, facts, &mut decision);
        }
        if let Some(part) = decision.user.as_deref().or(part).filter(|_| !changing.is_empty()) {
            // The edit of one failure does not affect the others.
            for (place, failure) in decision.on_failure.iter_mut().enumerate() {
                let action = changing.iter().find(|(changed, _)| *changed == place);
                let edit = action.and_then(|(_, action)| action.user.as_ref());
                let user = edit.and_then(|edit| edited(part, edit, &decisions.sets));
                failure.user = (!failure.to.is_empty()).then(|| user.unwrap_or_else(|| part.to_vec()));
            }
        }
        if is_any { Verdict::Decide(Box::new(decision)) } else { Verdict::Next(Stage::Route) }
    }

    /// Adds the identity that a rule asserts. With `Privacy: id` the identity is sent to targets of rules only, which
    /// are trusted (RFC 3325 section 7).
    #[inline(never)]
    fn assert_by(&self, source: &IdentitySource, facts: &RequestFacts<'_, '_>, decision: &mut Decision) {
        let request = facts.request;
        if decision.to.is_empty() && withholds_identity(&request.message) {
            return;
        }
        let may_choose = facts.user.is_some() || self.believes(request.arrival.remote.ip());
        if let Some(identity) = self.identity_by(request, facts.user, may_choose, source) {
            decision.assert(&identity);
        }
    }

    /// Returns the refusal of a request that has no target, or needs no response, if a rule answers or drops the
    /// request.
    pub(crate) fn refused_by_rules(&self, handling: &Handling<'_, '_>, routing: &Routing<'_>) -> Option<Verdict> {
        if !self.has_rules() {
            return None;
        }
        Some(self.consult_rules(handling, routing))
            .filter(|verdict| matches!(verdict, Verdict::Reply(_) | Verdict::Drop))
    }

    /// Returns the limits under which a call would count by this rule, and those at each of its places. Returns as
    /// error a limit without room: a limit of the rule or, if no place has room, a limit of the first place. `full`:
    /// limits that are assumed to be full.
    fn claims<'a>(
        &self,
        facts: &RequestFacts<'_, '_>,
        action: &'a Action,
        full: &[String],
    ) -> Result<(Vec<Claim>, Vec<Vec<Claim>>), &'a CallLimitTable> {
        let claims = claims_by(facts, &action.call_limits);
        let places = claims_at(facts, &action.to, &action.call_limits);
        if claims.is_empty() && places.is_empty() {
            return Ok((claims, places));
        }
        // A retransmitted INVITE may count already; a forked INVITE needs room for one more target.
        let is_fork = |call: &Call| {
            passes_again(&self.policy.router, facts.request, facts.user.is_some(), call) == Some(Again::Forked)
        };
        let before = self.call_of(facts.request).filter(|call| !is_fork(call));
        let counts = |claim: &Claim| before.is_some_and(|call| call.counts_under(claim));
        let is_full = |claim: &&Claim| !counts(claim) && self.is_full(claim, full);
        let of_places = || {
            let has_room = self.has_room_at_any(&places, full, counts);
            // The first full limit decides about the call.
            places.first().filter(|_| !has_room)?.iter().find(is_full)
        };
        let limit = claims.iter().find(is_full).or_else(of_places);
        match limit.and_then(|full| action.limits().find(|limit| *limit.name == *full.counted.name)) {
            Some(limit) => Err(limit),
            None => Ok((claims, places)),
        }
    }

    /// Tells whether a limit has no room for one more call. `full`: limits that are assumed to be full.
    pub(crate) fn is_full(&self, claim: &Claim, full: &[String]) -> bool {
        full.iter().any(|name| **name == *claim.counted.name) || self.shared.call_limits.is_full(claim)
    }

    /// Tells whether a call has room under the limits of at least one of these places. `counts`: function that tells
    /// whether the call counts under a limit already. `full`: limits that are assumed to be full.
    pub(crate) fn has_room_at_any(
        &self,
        places: &[Vec<Claim>],
        full: &[String],
        counts: impl Fn(&Claim) -> bool,
    ) -> bool {
        let has_room = |claims: &Vec<Claim>| claims.iter().all(|claim| counts(claim) || !self.is_full(claim, full));
        places.is_empty() || places.iter().any(has_room)
    }

    /// Returns the call of a request, if the table of calls has it.
    fn call_of(&self, request: &Request<'_>) -> Option<&Call> {
        self.calls.get(self.calls.key_of_call(request.call_id, request.from_tag))
    }

    /// Returns the action of rules for a request that fails with this status before it is forwarded; `None` if no rule
    /// has one.
    pub(crate) fn after_failure(&self, handling: &Handling<'_, '_>, status: u16) -> Option<AfterFailure> {
        self.after_failures(handling, handling.progress.decision.as_deref()?, status, 0)
    }

    /// Returns the action for a failure with this status, among the failures of the decision from index `from` on.
    fn after_failures(
        &self,
        handling: &Handling<'_, '_>,
        decision: &Decision,
        status: u16,
        from: usize,
    ) -> Option<AfterFailure> {
        let full = handling.progress.trace_request.as_deref().map_or(&[][..], |trace_request| &trace_request.full);
        let call = self.call_of(handling.request);
        // A call counts only once under a limit.
        let counts = |claim: &Claim| {
            decision.claims.iter().any(|other| other.counted == claim.counted)
                || call.is_some_and(|call| call.counts_under(claim))
        };
        let has_room = |failure: &FailureDecision| {
            let is_own = |claim: &Claim| failure.claims.iter().any(|other| other.counted == claim.counted);
            failure.claims.iter().all(|claim| counts(claim) || !self.is_full(claim, full))
                && self.has_room_at_any(failure.to.all_claims(), full, |claim| is_own(claim) || counts(claim))
        };
        decision.after_failure(status, from, has_room)
    }

    /// Returns the response to a request that was redirected by a failure whose limits have no more room, and the next
    /// action of rules.
    pub(crate) fn after_full(
        &self,
        handling: &Handling<'_, '_>,
        limited_failure: &LimitedFailure,
    ) -> (Reply, Option<AfterFailure>) {
        let reply =
            Reply::not_found(limited_failure.status).because("the failure that leads it on is at a limit of calls");
        (
            reply,
            self.after_failures(handling, &limited_failure.before, limited_failure.status, limited_failure.place + 1),
        )
    }

    /// Returns the index of the first filter whose condition holds, and the status of its response. A filter without a
    /// status drops the request.
    pub(crate) fn filter(&self, handling: &Handling<'_, '_>) -> Option<(usize, Option<u16>)> {
        if self.policy.config.decisions.filters.is_empty() { None } else { self.filter_by_facts(handling) }
    }

    #[inline(never)]
    fn filter_by_facts(&self, handling: &Handling<'_, '_>) -> Option<(usize, Option<u16>)> {
        let decisions = &self.policy.config.decisions;
        let routing = self.policy.router.route(handling.progress.began, handling.request);
        if self.is_emergency(handling.now, handling.request, &routing) {
            return None;
        }
        let facts = RequestFacts::of(*self, handling, &routing);
        let found = decisions.filters.walk(&facts, &decisions.sets, |place, rule| {
            ControlFlow::Break((place, rule.action.answer.as_ref().map(|(status, _)| *status)))
        });
        found.break_value()
    }

    /// Tells whether there are rules.
    pub(crate) fn has_rules(&self) -> bool {
        !self.policy.config.decisions.rules.is_empty()
    }

    /// Tells whether the source of a request needs no password.
    pub(crate) fn is_trusted(&self, source: IpAddr) -> bool {
        let decisions = &self.policy.config.decisions;
        decisions.group_of(source.to_canonical()).is_some_and(|group| decisions.trusts(group))
    }
}

/// Logs the rules that were evaluated for a request, in order up to the one that decided, and a verdict that ends the
/// request.
#[cold]
fn log_path(path: &[RuleResult], verdict: &Verdict, call_id: &[u8]) {
    let call_id = shown(call_id);
    for RuleResult { name, holds, part, part_holds, values, limits, full } in path {
        let values = plain(values.iter().map(|(name, value)| format!("{name} is {value}")));
        let part = plain(std::iter::once(part.clone()));
        let limits = Some(limits.join(", ")).filter(|limits| !limits.is_empty());
        tracing::debug!(rule = %name, holds, part, part_holds, values, limits, full, %call_id, "rule judged");
    }
    let rule = path.last().map_or("", |last| &last.name);
    match verdict {
        Verdict::Reply(reply) => tracing::debug!(rule = %rule, answer = reply.status, %call_id, "rule ends a request"),
        Verdict::Drop => tracing::debug!(rule = %rule, drop = true, %call_id, "rule ends a request"),
        _ => (),
    }
}
