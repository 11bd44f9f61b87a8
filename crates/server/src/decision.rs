//! The stage of rules: what the rules of the configuration say of a request that does not belong to a call that was let through.

use crate::call_limits::Claim;
use crate::engine::Engine;
use crate::handling::Handling;
use crate::policy::InForce;
use crate::reply::{Reply, Why};
use crate::request_facts::RequestFacts;
use crate::stage::{Stage, Verdict};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::ops::ControlFlow;
use std::time::Duration;
use strowger_config::{Action, FailureAction, FilterAction, OverLimit, UserEdit, is_user_text};
use strowger_core::proxy::TryNext;
use strowger_core::record::header_names;
use strowger_core::routing::{Request, Routing};
use strowger_core::shown::shown;
use strowger_message::{Edit, Index, Message, Method, Name, Uri};
use strowger_rules::{Rule, Sets};

/// What the rules that hold say together. It goes with its request, also where the rules have changed since.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Decision {
    /// Where it goes, in order of trying; empty: the rules do not say.
    pub(crate) to: Vec<String>,
    try_next: Option<Vec<u16>>,
    /// What is done where it fails, in order.
    pub(crate) on_failure: Vec<FailureDecision>,
    /// Limits that its call counts under.
    pub(crate) claims: Vec<Claim>,
    /// It is answered with where it would go.
    pub(crate) redirect: bool,
    /// The user part that its Request-URI gets; none: it stays, or has been changed.
    user: Option<Vec<u8>>,
    /// It was changed.
    pub(crate) has_other_uri: bool,
    /// Header lines that it gets.
    pub(crate) add: Vec<u8>,
    /// Header fields that it loses.
    #[serde(with = "header_names")]
    pub(crate) remove: Vec<Name>,
    pub(crate) record_route: Option<bool>,
    pub(crate) track: Option<bool>,
    pub(crate) account: Option<bool>,
    /// Milliseconds.
    pub(crate) ring_timeout: Option<u64>,
    /// Milliseconds.
    pub(crate) answer_timeout: Option<u64>,
}

/// What is done about some failures of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FailureDecision {
    /// The first and the last status code of each range that it is for.
    pub(crate) statuses: Vec<(u16, u16)>,
    /// Where the request goes then, in order of trying; empty: it is answered.
    pub(crate) to: Vec<String>,
    /// The answer in place of the failure.
    pub(crate) answer: Option<u16>,
    /// Header lines that it gets.
    pub(crate) add: Vec<u8>,
}

impl FailureDecision {
    fn of(action: &FailureAction) -> Self {
        Self {
            statuses: action.statuses.iter().map(|range| (range.first, range.last)).collect(),
            to: action.to.iter().map(|uri| uri.as_str().to_owned()).collect(),
            answer: action.answer,
            add: action.add.to_vec(),
        }
    }
}

/// What becomes of a request that fails before it goes anywhere.
#[derive(Debug)]
pub(crate) enum AfterFailure {
    /// It is answered with this status.
    Answer(u16),
    /// It goes on by this.
    Try(Box<Decision>),
}

impl Decision {
    /// What is done where its target fails with this status before the request goes there; none: nothing.
    pub(crate) fn after_failure(&self, status: u16) -> Option<AfterFailure> {
        let is_for =
            |failure: &FailureDecision| failure.statuses.iter().any(|(first, last)| (*first..=*last).contains(&status));
        let place = self.on_failure.iter().position(is_for)?;
        let mut next = self.clone();
        let failure = next.on_failure.remove(place);
        if let Some(status) = failure.answer {
            return Some(AfterFailure::Answer(status));
        }
        (next.to, next.try_next, next.redirect) = (failure.to, None, false);
        next.add.extend_from_slice(&failure.add);
        Some(AfterFailure::Try(Box::new(next)))
    }

    /// What one more rule says counts where none before it has said so.
    fn hear(&mut self, action: &Action, uri: &Uri<'_>, sets: &Sets) {
        let milliseconds = |time: Option<Duration>| time.map(|time| time.as_millis() as u64);
        if self.to.is_empty() {
            self.to = action.to.iter().map(|uri| uri.as_str().to_owned()).collect();
            self.try_next = action.try_next.as_ref().map(|statuses| statuses.to_vec());
        }
        self.on_failure.extend(action.on_failure.iter().map(|failure| FailureDecision::of(failure)));
        self.redirect |= action.redirect;
        if self.user.is_none() {
            self.user = action.user.as_ref().and_then(|edit| edited(user_part(uri)?, edit, sets));
        }
        self.add.extend_from_slice(&action.add);
        self.remove.extend_from_slice(&action.remove);
        self.record_route = self.record_route.or(action.record_route);
        self.track = self.track.or(action.track);
        self.account = self.account.or(action.account);
        self.ring_timeout = self.ring_timeout.or_else(|| milliseconds(action.ring_timeout));
        self.answer_timeout = self.answer_timeout.or_else(|| milliseconds(action.answer_timeout));
    }

    /// The request with the user part that it gets.
    pub(crate) fn change_user(&mut self, request: &Request<'_>, routing: &Routing<'_>) -> Vec<u8> {
        let (mut edit, mut bytes) = (Edit::new(), Vec::new());
        if let (Some(user), Some(part)) = (self.user.take(), user_part(&routing.uri)) {
            edit.replace(request.message.range_of(part), |text| text.extend_from_slice(&user));
            self.has_other_uri = true;
        }
        edit.write(&request.message, &mut bytes);
        bytes
    }

    /// The Request-URI is to be changed.
    pub(crate) fn edits_uri(&self) -> bool {
        self.user.is_some()
    }

    /// Statuses that lead on; none: any but 6xx.
    pub(crate) fn statuses(&self) -> Option<&[u16]> {
        self.try_next.as_deref()
    }

    pub(crate) fn try_next(&self) -> TryNext<'_> {
        self.try_next.as_deref().map_or(TryNext::Any, TryNext::On)
    }
}

impl Engine {
    /// What becomes of a request by the rules; the next stage if none answers it.
    pub(crate) fn decide(&self, handling: &Handling<'_, '_>, routing: &Routing<'_>) -> Verdict {
        let decisions = &self.policy.config.decisions;
        let facts = RequestFacts::of(self, handling, routing);
        if tracing::enabled!(tracing::Level::DEBUG) {
            self.log_judgements(&facts);
        }
        let mut decision = Decision::default();
        let mut is_any = false;
        let answer = decisions.rules.walk(&facts, &decisions.sets, |place, rule: &Rule<Action>| {
            let Action { answer, drop, ends, .. } = &rule.action;
            if *drop || answer.is_some() {
                return ControlFlow::Break(Some((answer.as_ref().map(|(status, _)| *status), place)));
            }
            match self.claims(&facts, &rule.action) {
                Ok(claims) => decision.claims.extend(claims),
                Err((OverLimit::NextRule, _)) => return ControlFlow::Continue(()),
                Err((OverLimit::Answer, status)) => return ControlFlow::Break(Some((Some(status), place))),
            }
            is_any = true;
            decision.hear(&rule.action, &routing.uri, &decisions.sets);
            if *ends { ControlFlow::Break(None) } else { ControlFlow::Continue(()) }
        });
        match answer {
            ControlFlow::Break(Some((Some(status), place))) => {
                return Reply { why: Why::Rule(place), ..Reply::refused(status) }.into();
            }
            ControlFlow::Break(Some((None, _))) => return Verdict::Drop,
            ControlFlow::Break(None) | ControlFlow::Continue(()) => (),
        }
        if is_any { Verdict::Decide(Box::new(decision)) } else { Verdict::Next(Stage::Route) }
    }

    /// What becomes of a request that goes nowhere, or needs no answer, if a rule answers or drops it.
    pub(crate) fn refused_by_rules(&self, handling: &Handling<'_, '_>, routing: &Routing<'_>) -> Option<Verdict> {
        if !self.has_rules() {
            return None;
        }
        Some(self.decide(handling, routing)).filter(|verdict| matches!(verdict, Verdict::Reply(_) | Verdict::Drop))
    }

    /// What a call would count under by this rule; an error where that would be too many, with what becomes of it then.
    fn claims(&self, facts: &RequestFacts<'_, '_>, action: &Action) -> Result<Vec<Claim>, (OverLimit, u16)> {
        let request = facts.request;
        if action.call_limits.is_empty() || request.method != Method::Invite || !request.to_tag.is_empty() {
            return Ok(Vec::new());
        }
        // One that comes again, with credentials for a server behind this one, counts already.
        let key = self.key_of_call(request.call_id, request.from_tag);
        let counts = self.calls.get(key).is_some_and(|call| !call.counted.is_empty());
        let mut claims = Vec::new();
        for limit in &action.call_limits {
            let Some(value) = facts.counted_value(limit.per) else { continue };
            let claim = Claim::of(limit, &value);
            if !counts && self.shared.call_limits.is_full(&claim) {
                return Err((limit.over, limit.status));
            }
            claims.push(claim);
        }
        Ok(claims)
    }

    /// Whether a filter ends this request, which is then answered or dropped.
    pub(crate) fn is_filtered(&mut self, handling: &mut Handling<'_, '_>) -> bool {
        let Some((place, answer)) = self.filter(handling) else { return false };
        match answer {
            Some(status) => self.reply(handling, Reply { why: Why::Filter(place), ..Reply::refused(status) }),
            None => {
                self.counters().refused.one();
                if let Some(server) = handling.server {
                    self.transactions.abandon(handling.now, server);
                }
            }
        }
        true
    }

    /// The first filter that holds, by its place, and the status that it answers with; none: it drops.
    pub(crate) fn filter(&self, handling: &Handling<'_, '_>) -> Option<(usize, Option<u16>)> {
        let decisions = &self.policy.config.decisions;
        if decisions.filters.is_empty() {
            return None;
        }
        let routing = self.policy.router.route(handling.progress.began, handling.request);
        let facts = RequestFacts::of(self, handling, &routing);
        let found = decisions.filters.walk(&facts, &decisions.sets, |place, rule| {
            ControlFlow::Break((place, rule.action.answer.as_ref().map(|(status, _)| *status)))
        });
        found.break_value()
    }

    /// Starts a request again with the user part of its Request-URI that rules give it.
    pub(crate) fn with_other_user(
        &mut self,
        handling: &mut Handling<'_, '_>,
        routing: &Routing<'_>,
        mut decision: Box<Decision>,
    ) {
        let (request, mut index) = (handling.request, Index::new());
        let bytes = decision.change_user(request, routing);
        let again = index.parse(&bytes, &self.policy.limits);
        handling.progress.decision = Some(decision);
        handling.progress.stage = Stage::Route;
        let Handling { now, server, progress, out, .. } = handling;
        let message = Message::new(&bytes, &index);
        match again.ok().and_then(|()| Request::of(message, request.arrival, request.call_hash).ok()) {
            Some(request) => {
                self.advance(&mut Handling { now: *now, request: &request, server: *server, progress, out })
            }
            // The message has become too large.
            None => self.reply(handling, Reply::refused(513)),
        }
    }

    /// Why each rule holds for this request, or does not: a line a rule.
    fn log_judgements(&self, facts: &RequestFacts<'_, '_>) {
        let decisions = &self.policy.config.decisions;
        for verdict in decisions.rules.explain(facts, &decisions.sets).verdicts {
            tracing::debug!(
                rule = %verdict.name,
                holds = verdict.matches,
                part = %verdict.decider,
                part_holds = verdict.holds,
                call_id = %shown(facts.request.call_id),
                "rule judged"
            );
        }
    }

    /// Whether rules are asked at all.
    pub(crate) fn has_rules(&self) -> bool {
        !self.policy.config.decisions.rules.is_empty()
    }

    /// Whether the source of a request needs no password.
    pub(crate) fn is_trusted(&self, source: IpAddr) -> bool {
        let decisions = &self.policy.config.decisions;
        decisions.group_of(source.to_canonical()).is_some_and(|group| decisions.trusts(group))
    }
}

/// What edits may change: the user of a SIP URI, the number of a tel URI.
fn user_part<'a>(uri: &Uri<'a>) -> Option<&'a [u8]> {
    match uri {
        Uri::Sip(sip) => sip.user,
        Uri::Tel(tel) => Some(tel.number),
        _ => None,
    }
}

/// What an edit makes of a user part; none: it stays as it is.
fn edited(user: &[u8], edit: &UserEdit, sets: &Sets) -> Option<Vec<u8>> {
    let set = edit.translate.and_then(|set| sets.set(set));
    let translated = set.and_then(|set| set.text_value(user, strowger_rules::Case::Exact));
    let before = translated.filter(|text| !text.is_empty() && is_user_text(text)).unwrap_or(user);
    let rest = before.get(usize::from(edit.strip)..).filter(|rest| !rest.is_empty()).unwrap_or(before);
    let after = [edit.prepend.as_bytes(), rest].concat();
    (after != user).then_some(after)
}

impl InForce {
    /// The filter at this place.
    pub(crate) fn filter(&self, place: usize) -> Option<&Rule<FilterAction>> {
        self.config.decisions.filters.iter().nth(place)
    }

    /// The rule at this place.
    pub(crate) fn rule(&self, place: usize) -> Option<&Rule<Action>> {
        self.config.decisions.rules.iter().nth(place)
    }
}
