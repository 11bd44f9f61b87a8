//! Decisions of rules and failures about a request. They move with the request.

use crate::endpoint::EndpointSound;
use crate::number_translation::user_part;
use crate::path_decision::PathDecision;
use crate::role::ServerRole;
use crate::rule_targets::RuleTargets;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;
use strowger_calls::limits::Claim;
use strowger_config::{Action, FailureAction, IdentitySource, ReferFrom, RelayFor, Targets};
use strowger_core::b2bua::negotiation::LegPolicy;
use strowger_core::proxy::TryNext;
use strowger_core::record::header_names;
use strowger_core::routing::{Request, Routing};
use strowger_message::{Edit, Name};

/// Joint decision of all rules that hold for a request. The request keeps it, even if the rules have changed since.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Decision {
    /// Places to which the request goes; empty: the rules name none.
    pub(crate) to: RuleTargets,
    /// Setting that says which callers may reach these places; `None` after the setting was checked.
    #[serde(skip)]
    pub(crate) relay_for: Option<RelayFor>,
    pub(crate) try_next: Option<Vec<u16>>,
    /// Actions after failures, in order.
    pub(crate) on_failure: Vec<FailureDecision>,
    /// Limits under which the call counts, each once.
    pub(crate) claims: Vec<Claim>,
    /// Failure whose places the request goes to, if the failure has limits and no target was tried before.
    pub(crate) limited_failure: Option<Box<LimitedFailure>>,
    /// Role of this server for the request.
    pub(crate) role: ServerRole,
    /// Sound for the caller if this server is an endpoint.
    pub(crate) sound: EndpointSound,
    /// New user part of the Request-URI; `None` if the user part is unchanged, or already replaced.
    pub(crate) user: Option<Vec<u8>>,
    /// True if the Request-URI was changed.
    pub(crate) has_other_uri: bool,
    /// Request-URI before rules changed it. A request that moves to another process while it waits loses this URI.
    #[serde(skip)]
    pub(crate) dialled: Option<Box<[u8]>>,
    /// Header lines to be added.
    pub(crate) add: Vec<u8>,
    /// Header fields to be removed.
    #[serde(with = "header_names")]
    pub(crate) remove: Vec<Name>,
    /// List of `rule.identity`, which adds to the identities of the account. A request that moves to another process
    /// while it waits loses this list.
    #[serde(skip)]
    pub(crate) identity: Option<IdentitySource>,
    /// Number of octets of `add` and number of names in `remove` that come from rules. The following octets and names
    /// come from the failure in use.
    pub(crate) own_edits: (usize, usize),
    pub(crate) path: PathDecision,
    pub(crate) track: Option<bool>,
    pub(crate) account: Option<bool>,
    pub(crate) account_as: Option<Box<str>>,
    /// Time in milliseconds.
    pub(crate) ring_timeout: Option<u64>,
    /// Time in milliseconds.
    pub(crate) answer_timeout: Option<u64>,
}

/// Action after some failures of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FailureDecision {
    /// First and last status code of each range to which the action applies.
    pub(crate) statuses: Vec<(u16, u16)>,
    /// Places to which the request goes after the failure; empty if the request is answered.
    pub(crate) to: RuleTargets,
    /// Status of the response in place of the failure.
    pub(crate) answer: Option<u16>,
    /// Statuses after which the next place is tried; `None` means any status but 6xx.
    pub(crate) try_next: Option<Vec<u16>>,
    /// New user part of the Request-URI after the failure; `None`: unchanged.
    pub(crate) user: Option<Vec<u8>>,
    /// Header lines to be added.
    pub(crate) add: Vec<u8>,
    /// Header fields to be removed.
    #[serde(with = "header_names")]
    pub(crate) remove: Vec<Name>,
    /// Time in milliseconds.
    pub(crate) ring_timeout: Option<u64>,
    /// Time in milliseconds.
    pub(crate) answer_timeout: Option<u64>,
    /// Limits under which the call counts after the failure, each once. If one is full, this action is skipped.
    pub(crate) claims: Vec<Claim>,
}

/// Failure with limits that is in use for a request which was not forwarded yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LimitedFailure {
    /// Status for which the failure is used.
    pub(crate) status: u16,
    /// Index of the failure among the failures of the previous decision.
    pub(crate) place: usize,
    pub(crate) claims: Vec<Claim>,
    pub(crate) before: Decision,
}

impl FailureDecision {
    /// Makes the decision of a failure. `claims`: limits under which the call would count; `places`: those at each of its places.
    pub(crate) fn of(action: &FailureAction, claims: Vec<Claim>, places: Vec<Vec<Claim>>) -> Self {
        Self {
            statuses: action.statuses.iter().map(|range| (range.first, range.last)).collect(),
            to: RuleTargets::of(&action.to, places),
            answer: action.answer,
            try_next: action.try_next.as_ref().map(|statuses| statuses.to_vec()),
            // The user is taken from the joint result of all rules, which is not known yet.
            user: None,
            add: action.add.to_vec(),
            remove: action.remove.to_vec(),
            ring_timeout: milliseconds(action.ring_timeout),
            answer_timeout: milliseconds(action.answer_timeout),
            claims,
        }
    }

    fn is_for(&self, status: u16) -> bool {
        self.statuses.iter().any(|(first, last)| (*first..=*last).contains(&status))
    }

    /// Tells whether the call counts under limits if this failure is used.
    fn may_count(&self) -> bool {
        !self.claims.is_empty() || self.to.may_count()
    }

    /// Encodes the limits of the failure for [`Engine::consider`](crate::engine::Engine::consider), which checks them
    /// before the failure is used. The result is empty if there are no limits.
    pub(crate) fn question(&self) -> Vec<u8> {
        if !self.may_count() {
            return Vec::new();
        }
        let question = (&self.claims, self.to.all_claims());
        postcard::to_extend(&question, Vec::new()).expect("a vector takes all, and every sequence knows its length")
    }
}

/// Limits of a failure that may be used next.
#[derive(Debug, Deserialize)]
pub(crate) struct Question {
    /// Limits under which the call counts to its end.
    pub(crate) claims: Vec<Claim>,
    /// Limits at each place.
    pub(crate) places: Vec<Vec<Claim>>,
}

impl Question {
    /// Reads the bytes of [`FailureDecision::question`].
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        postcard::from_bytes(bytes).ok()
    }
}

/// Next step of a request that fails before it is forwarded.
#[derive(Debug)]
pub(crate) enum AfterFailure {
    /// Response with this status.
    Answer(u16),
    /// Continuation by this decision.
    Try(Box<Decision>),
}

impl Decision {
    /// Makes the decision for an emergency call: it goes to these targets, counts under no limit, and has a record.
    pub(crate) fn of_emergency(to: &Targets) -> Self {
        let to = RuleTargets::of(to, Vec::new());
        let answer_timeout = (to.uris.len() > 1).then_some(EMERGENCY_ANSWER);
        let account_as = Some("emergency".into());
        Self { to, track: Some(true), account: Some(true), account_as, answer_timeout, ..Self::default() }
    }

    /// Makes the decision for a call that began in an earlier process: these rules count and record it, but do not route
    /// it.
    pub(crate) fn resumed(self) -> Self {
        let Self { claims, track, account, account_as, .. } = self;
        Self { claims, track, account, account_as, path: PathDecision::recorded(), ..Self::default() }
    }

    /// Replaces P-Asserted-Identity by this URI (RFC 3325 section 5).
    pub(crate) fn assert(&mut self, identity: &[u8]) {
        self.remove.push(Name::PAssertedIdentity);
        self.add.extend_from_slice(&[b"P-Asserted-Identity: <", identity, b">\r\n"].concat());
        self.own_edits = (self.add.len(), self.remove.len());
    }

    /// Returns the next step if the target fails with this status before the request is forwarded; `None` if no failure
    /// applies. `from`: index of the first failure to consider.
    pub(crate) fn after_failure(
        &self,
        status: u16,
        from: usize,
        has_room: impl Fn(&FailureDecision) -> bool,
    ) -> Option<AfterFailure> {
        let is_used = |failure: &FailureDecision| failure.is_for(status) && has_room(failure);
        let place = (from..self.on_failure.len()).find(|place| is_used(&self.on_failure[*place]))?;
        // The targets of the earlier failure had no address, so its limits do not count the call.
        let mut next = Self { limited_failure: None, ..self.clone() };
        let failure = next.on_failure.remove(place);
        if let Some(status) = failure.answer {
            return Some(AfterFailure::Answer(status));
        }
        if failure.may_count() {
            let before = Self { limited_failure: None, ..self.clone() };
            next.limited_failure = Some(Box::new(LimitedFailure { status, place, claims: failure.claims, before }));
        }
        (next.to, next.try_next, next.user) = (failure.to, failure.try_next, failure.user);
        if next.role == ServerRole::Redirect {
            next.role = next.forwarding_role();
        }
        next.add.truncate(next.own_edits.0);
        next.remove.truncate(next.own_edits.1);
        next.add.extend_from_slice(&failure.add);
        next.remove.extend_from_slice(&failure.remove);
        next.ring_timeout = failure.ring_timeout.or(next.ring_timeout);
        next.answer_timeout = failure.answer_timeout.or(next.answer_timeout);
        Some(AfterFailure::Try(Box::new(next)))
    }

    /// Returns the limits of the failure in use.
    pub(crate) fn failure_claims(&self) -> &[Claim] {
        self.limited_failure.as_ref().map_or(&[][..], |limited_failure| &limited_failure.claims)
    }

    /// Returns all limits under which the call counts: the limits of its rules, and of the failure in use.
    pub(crate) fn all_claims(&self) -> Cow<'_, [Claim]> {
        let Some(limited_failure) = &self.limited_failure else { return Cow::Borrowed(&self.claims) };
        let mut all = self.claims.clone();
        Claim::add(&mut all, limited_failure.claims.iter().cloned());
        Cow::Owned(all)
    }

    /// Tells whether the call counts under limits, or may count later. Such a call is tracked.
    pub(crate) fn may_count(&self) -> bool {
        !self.claims.is_empty()
            || self.to.may_count()
            || self.limited_failure.is_some()
            || self.on_failure.iter().any(FailureDecision::may_count)
    }

    /// Tells whether a place has limits, under which the call counts only while it is sent to that place.
    pub(crate) fn may_count_at_places(&self) -> bool {
        self.to.may_count() || self.on_failure.iter().any(|failure| failure.to.may_count())
    }

    /// Tells whether later requests of the call pass this server; `None` if no rule decides. A call that counts under
    /// limits is tracked to its end, and an endpoint of this server has a dialog with the caller.
    pub(crate) fn stays(&self) -> Option<bool> {
        if self.may_count() || self.role.is_endpoint() { Some(true) } else { self.path.record_route }
    }

    /// Returns how many octets of the added header lines, and how many of the removed names, come from the failure in use.
    pub(crate) fn of_failure(&self) -> (usize, usize) {
        (self.add.len() - self.own_edits.0, self.remove.len() - self.own_edits.1)
    }

    /// Adds the actions of one more rule, except those that an earlier rule has set. `places`: limits at each place of the rule; `failures`:
    /// decisions of its failures.
    pub(crate) fn apply_rule(
        &mut self,
        action: &Action,
        places: Vec<Vec<Claim>>,
        failures: impl Iterator<Item = FailureDecision>,
    ) {
        if self.to.is_empty() {
            self.to = RuleTargets::of(&action.to, places);
            self.relay_for = action.relay_for;
            self.try_next = action.try_next.as_ref().map(|statuses| statuses.to_vec());
        }
        self.on_failure.extend(failures);
        self.path.apply_rule(&action.path);
        self.role = if action.redirect { ServerRole::Redirect } else { self.forwarding_role() };
        if let Some(sound) = EndpointSound::of(action) {
            (self.role, self.sound) = (ServerRole::Endpoint, sound);
        }
        self.add.extend_from_slice(&action.add);
        self.remove.extend_from_slice(&action.remove);
        self.track = self.track.or(action.track);
        self.account = self.account.or(action.account);
        if self.account_as.is_none() {
            self.account_as.clone_from(&action.account_as);
        }
        self.ring_timeout = self.ring_timeout.or_else(|| milliseconds(action.ring_timeout));
        self.answer_timeout = self.answer_timeout.or_else(|| milliseconds(action.answer_timeout));
    }

    /// Returns the role of this server for a request that goes to places.
    fn forwarding_role(&self) -> ServerRole {
        if self.path.is_bridged() { ServerRole::Bridge } else { ServerRole::Proxy }
    }

    /// Returns the policies of the legs of a bridged call: to the caller, and to the callee.
    pub(crate) fn bridge_policies(&self) -> [Arc<LegPolicy>; 2] {
        self.path.policies()
    }

    /// Returns the number of the gateway group to whose places alone the request can go, also after failures; `None` if there is no such group.
    pub(crate) fn only_group(&self) -> Option<usize> {
        if self.to.is_empty() {
            return None;
        }
        let targets = std::iter::once(&self.to).chain(self.on_failure.iter().map(|failure| &failure.to));
        let mut groups = targets.flat_map(|to| (0..to.uris.len()).map(move |place| to.group_of(place)));
        let first = groups.next()??;
        groups.all(|group| group == Some(first)).then_some(first)
    }

    /// Returns the parties of a bridged call that may refer the other one.
    pub(crate) fn refer_from(&self) -> ReferFrom {
        self.path.refer_from()
    }

    /// Returns the request with its new user part.
    pub(crate) fn change_user(&mut self, request: &Request<'_>, routing: &Routing<'_>) -> Vec<u8> {
        let (mut edit, mut bytes) = (Edit::new(), Vec::new());
        if let (Some(user), Some(part)) = (self.user.take(), user_part(&routing.uri)) {
            edit.replace(request.message.range_of(part), |text| text.extend_from_slice(&user));
            self.has_other_uri = true;
            self.dialled.get_or_insert_with(|| routing.uri_text.into());
        }
        edit.write(&request.message, &mut bytes);
        bytes
    }

    /// Tells whether the Request-URI is to be changed.
    pub(crate) fn edits_uri(&self) -> bool {
        self.user.is_some()
    }

    /// Returns the statuses after which the next place is tried; `None` means any status but 6xx.
    pub(crate) fn statuses(&self) -> Option<&[u16]> {
        self.try_next.as_deref()
    }

    pub(crate) fn try_next(&self) -> TryNext<'_> {
        self.try_next.as_deref().map_or(TryNext::Any, TryNext::On)
    }
}

/// Time without a response, in milliseconds, after which the next of several targets of an emergency call is tried.
const EMERGENCY_ANSWER: u64 = 4_000;

fn milliseconds(time: Option<Duration>) -> Option<u64> {
    time.map(|time| time.as_millis() as u64)
}
