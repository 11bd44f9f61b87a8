//! Plan of a request, for operators: its places, limits, edits, and actions after failures. The log at level debug and
//! [`explain`](crate::explain) show the same view.

use crate::decider::Decider;
use crate::decision::{Decision, FailureDecision};
use crate::destination::{RuleTargetAddresses, Targets};
use crate::edits::Edits;
use crate::handling::Handling;
use crate::path_decision::PathDecision;
use crate::rule_targets::RuleTargets;
use crate::rule_trace::plain;
use serde::Serialize;
use std::fmt;
use strowger_calls::limits::Claim;
use strowger_config::{OverLimit, ReferFrom};
use strowger_core::Target;
use strowger_core::b2bua::negotiation::LegPolicy;
use strowger_core::proxy::Candidate;
use strowger_core::routing::Routing;
use strowger_core::shown::shown;

/// Plan of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlanView {
    /// Places in the order of trying.
    pub to: Vec<PlaceView>,
    /// True if the places are tried at once.
    pub at_once: bool,
    /// Groups of some of these places, in order.
    pub groups: Vec<GroupView>,
    /// Status codes after which the next place is tried; `None` means any but 6xx.
    pub try_next: Option<Vec<u16>>,
    /// Limits under which its call counts.
    pub limits: Vec<LimitView>,
    /// Bridge that the server makes of a call; `None`: the request itself is forwarded.
    pub bridge: Option<BridgeView>,
    /// True if the server stays in the path of later requests by a Record-Route. Only a request that can create a dialog
    /// has one, and no bridged call.
    pub record_route: bool,
    /// True if the call is tracked.
    pub track: bool,
    /// True if the call is accounted.
    pub account: bool,
    /// Account to charge, if a rule names one.
    pub account_as: Option<String>,
    /// Milliseconds that a place may ring, if a rule sets them.
    pub ring_timeout: Option<u64>,
    /// Milliseconds that a place may be silent, if a rule sets them.
    pub answer_timeout: Option<u64>,
    /// Header lines that are added.
    pub add: Vec<String>,
    /// Header fields that are removed.
    pub remove: Vec<String>,
    /// Actions after failures. For each failure the first matching action is used; each action is used once.
    pub on_failure: Vec<FailureView>,
}

/// Place to which a request goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlaceView {
    /// URI of the place.
    pub uri: String,
    /// Addresses with their transports, in the order of trying; none if a name was not looked up.
    pub at: Vec<String>,
    /// Group to which the place belongs.
    pub group: Option<String>,
    /// True if the place is a user of this server, whose contacts are called.
    pub is_user: bool,
}

/// Group of gateways.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GroupView {
    /// Name of the group.
    pub name: String,
    /// Choice of the target that is tried first: `in_order`, `in_turn` or `by_call`.
    pub pick: &'static str,
}

/// Media of a bridged call: the server has one call with the caller and one with the callee.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BridgeView {
    /// Audio codecs on the side of the caller, in order; empty: all, in the order of the offer.
    pub caller_codecs: Vec<String>,
    /// Audio codecs on the side of the callee, in order; empty: all, in the order of the offer.
    pub callee_codecs: Vec<String>,
    /// Media types that pass beside audio.
    pub media_types: Vec<String>,
    /// Parties that may refer the other one: `users`, `everyone` or `none`.
    pub refer_from: &'static str,
}

/// Limit under which a call counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LimitView {
    /// Name of the limit.
    pub name: String,
    /// User, group or URI whose calls are counted; empty if all calls are counted.
    pub of: String,
    /// Maximum number of calls at a time.
    pub most: u32,
    /// Status of the response to a call beyond the limit. `None`: the rule, failure or place with the limit is skipped.
    pub answer: Option<u16>,
    /// True if the limit belongs to a failure.
    pub of_failure: bool,
    /// True if the limit belongs to a place or group: the call counts while it is sent there.
    pub of_place: bool,
}

/// Action after some failures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FailureView {
    /// First and last status code of each range.
    pub statuses: Vec<(u16, u16)>,
    /// Places that are tried after the failure, in this order.
    pub to: Vec<String>,
    /// True if the places are tried at once.
    pub at_once: bool,
    /// Groups of some of these places, in order.
    pub groups: Vec<GroupView>,
    /// Status of the response in place of the failure.
    pub answer: Option<u16>,
    /// Status codes after which the next of these places is tried; `None` means any but 6xx.
    pub try_next: Option<Vec<u16>>,
    /// New user part of the Request-URI after the failure; `None`: unchanged.
    pub user: Option<String>,
    /// Milliseconds for which a place may ring after the failure; `None` if the time is unchanged.
    pub ring_timeout: Option<u64>,
    /// Milliseconds for which a place may send no response after the failure; `None` if the time is unchanged.
    pub answer_timeout: Option<u64>,
    /// Header lines that are added after the failure.
    pub add: Vec<String>,
    /// Header fields that are removed after the failure.
    pub remove: Vec<String>,
    /// Limits under which the call counts after the failure.
    pub limits: Vec<LimitView>,
}

impl BridgeView {
    fn of(path: &PathDecision) -> Self {
        let [near, far] = path.policies();
        let codecs = |leg: &LegPolicy| leg.codecs.iter().map(ToString::to_string).collect();
        let media_types = near.media_types.iter().map(ToString::to_string).collect();
        let refer_from = path.refer_from().word();
        Self { caller_codecs: codecs(&near), callee_codecs: codecs(&far), media_types, refer_from }
    }
}

impl LimitView {
    fn new(claim: &Claim, answer: Option<u16>) -> Self {
        let (name, of) = (claim.counted.name.to_string(), String::from_utf8_lossy(&claim.counted.value).into_owned());
        Self { name, of, most: claim.most, answer, of_failure: false, of_place: false }
    }

    fn of_failure(claim: &Claim) -> Self {
        Self { of_failure: true, ..Self::new(claim, None) }
    }

    /// Returns the limits of some places, each once.
    fn of_places<'a>(claims: impl Iterator<Item = &'a Claim>) -> Vec<Self> {
        let mut views = Vec::new();
        for view in claims.map(|claim| Self { of_place: true, ..Self::new(claim, None) }) {
            if !views.contains(&view) {
                views.push(view);
            }
        }
        views
    }
}

impl PlaceView {
    pub(crate) fn new(uri: &[u8], targets: &[Target]) -> Self {
        let at = |target: &Target| format!("{}:{}", target.transport.text(), target.address);
        let uri = String::from_utf8_lossy(uri).into_owned();
        Self { uri, at: targets.iter().map(at).collect(), group: None, is_user: false }
    }

    /// Returns several places, each with its targets.
    pub(crate) fn several<'a>(uris: impl Iterator<Item = &'a [u8]>, targets: &[Targets]) -> Vec<Self> {
        uris.zip(targets).map(|(uri, targets)| Self::new(uri, targets)).collect()
    }
}

impl FailureView {
    fn of(failure: &FailureDecision, groups: Vec<GroupView>) -> Self {
        let of_places = LimitView::of_places(failure.to.all_claims().iter().flatten());
        Self {
            statuses: failure.statuses.clone(),
            to: failure.to.uris.clone(),
            at_once: failure.to.at_once,
            groups,
            answer: failure.answer,
            try_next: failure.try_next.clone(),
            user: failure.user.as_deref().map(|user| String::from_utf8_lossy(user).into_owned()),
            ring_timeout: failure.ring_timeout,
            answer_timeout: failure.answer_timeout,
            add: lines(&failure.add),
            remove: failure.remove.iter().map(|name| name.text().to_owned()).collect(),
            limits: failure.claims.iter().map(LimitView::of_failure).chain(of_places).collect(),
        }
    }
}

impl Decider<'_> {
    /// Returns the plan of a request that goes to these places.
    pub(crate) fn plan_view(&self, handling: &Handling<'_, '_>, edits: &Edits, to: Vec<PlaceView>) -> PlanView {
        let none = Decision::default();
        let decision = handling.progress.decision.as_deref().unwrap_or(&none);
        let begins_call = handling.begins_call();
        let bridge = handling.begins_bridge().then(|| BridgeView::of(&decision.path));
        let records_route =
            self.plan(Some(decision)).records_route(handling.request, handling.progress.proof.in_dialog);
        let is_accounted = begins_call && self.accounts(handling);
        let of_failure = |failure: &FailureDecision| FailureView::of(failure, self.group_views(&failure.to));
        let is_led_to = |group: &GroupView| to.iter().any(|place| place.group.as_deref() == Some(group.name.as_str()));
        let groups = self.group_views(&decision.to).into_iter().filter(is_led_to).collect();
        PlanView {
            to,
            at_once: decision.to.at_once,
            groups,
            try_next: decision.statuses().map(<[u16]>::to_vec),
            limits: self.limit_views(handling, decision),
            record_route: records_route && bridge.is_none(),
            bridge,
            track: begins_call && self.tracks(handling),
            account: is_accounted,
            account_as: self.account_of(handling).filter(|_| is_accounted).map(str::to_owned),
            ring_timeout: decision.ring_timeout,
            answer_timeout: decision.answer_timeout,
            add: lines(&edits.add),
            remove: edits.remove.iter().map(|name| name.text().to_owned()).collect(),
            on_failure: decision.on_failure.iter().map(of_failure).collect(),
        }
    }

    /// Returns the groups of places, each once.
    fn group_views(&self, places: &RuleTargets) -> Vec<GroupView> {
        let mut views: Vec<GroupView> = Vec::new();
        for group in places.groups().filter_map(|number| self.policy.config.gateway_groups.get(number)) {
            if views.iter().all(|view| view.name != *group.name) {
                views.push(GroupView { name: group.name.to_string(), pick: group.pick.word() });
            }
        }
        views
    }

    /// Returns the view of the place with this index in a decision.
    pub(crate) fn place_view(&self, decision: &Decision, place: usize, uri: &[u8], targets: &[Target]) -> PlaceView {
        let group = decision.to.group_of(place).and_then(|number| self.policy.config.gateway_groups.get(number));
        PlaceView { group: group.map(|group| group.name.to_string()), ..PlaceView::new(uri, targets) }
    }

    /// Returns the places of a request's rules that have room for its call, with their targets.
    pub(crate) fn open_places(&self, handling: &Handling<'_, '_>, targets: &[RuleTargetAddresses]) -> Vec<PlaceView> {
        let Some(decision) = &handling.progress.decision else { return Vec::new() };
        let uris = decision.to.uris.iter().zip(targets).enumerate();
        let open = uris.filter(|(place, _)| self.is_open(handling, decision, *place));
        let view = |(place, (uri, targets)): (usize, (&String, &RuleTargetAddresses))| {
            let view = self.place_view(decision, place, uri.as_bytes(), &targets.addresses());
            PlaceView { is_user: matches!(targets, RuleTargetAddresses::User(_)), ..view }
        };
        open.map(view).collect()
    }

    fn is_open(&self, handling: &Handling<'_, '_>, decision: &Decision, place: usize) -> bool {
        let full = handling.progress.trace_request.as_deref().map_or(&[][..], |trace_request| &trace_request.full);
        let is_full = |claim: &Claim| full.iter().any(|name| **name == *claim.counted.name);
        !decision.to.claims(place).iter().any(is_full)
    }

    /// Logs the plan of a request that goes to these candidates. `places`: indexes of the candidates among the places of
    /// the rules, if they are such places.
    #[cold]
    pub(crate) fn log_plan(
        &self,
        handling: &Handling<'_, '_>,
        routing: &Routing<'_>,
        candidates: &[Candidate<'_>],
        places: &[usize],
        edits: &Edits,
    ) {
        let reached = candidates.iter().enumerate().filter(|(_, candidate)| !candidate.targets.is_empty());
        let decision = handling.progress.decision.as_deref();
        let place = |(n, to): (usize, &Candidate<'_>)| {
            let uri = to.uri.unwrap_or(routing.uri_text);
            match decision.zip(places.get(n)) {
                Some((decision, place)) => self.place_view(decision, *place, uri, to.targets),
                None => PlaceView::new(uri, to.targets),
            }
        };
        let view = self.plan_view(handling, edits, reached.map(place).collect());
        let is_changed = handling.progress.decision.as_ref().is_some_and(|decision| decision.has_other_uri);
        view.log(is_changed.then_some(routing.uri_text), handling.request.call_id);
    }

    fn limit_views(&self, handling: &Handling<'_, '_>, decision: &Decision) -> Vec<LimitView> {
        let passes_over = |name: &str| {
            let mut limits = self.policy.config.call_limits.iter();
            limits.any(|limit| *limit.name == *name && limit.over == OverLimit::NextRule)
        };
        let answer = |claim: &Claim| (!passes_over(&claim.counted.name)).then_some(claim.status);
        let of_rules = decision.claims.iter().map(|claim| LimitView::new(claim, answer(claim)));
        let of_failure = decision.failure_claims().iter().filter(|claim| !decision.claims.contains(claim));
        let is_open = |place: &usize| self.is_open(handling, decision, *place);
        let open = (0..decision.to.uris.len()).filter(is_open);
        let of_places = LimitView::of_places(open.flat_map(|place| decision.to.claims(place)));
        of_rules.chain(of_failure.map(LimitView::of_failure)).chain(of_places).collect()
    }
}

impl PlanView {
    /// Logs the plan. `uri`: Request-URI that rules have changed.
    fn log(&self, uri: Option<&[u8]>, call_id: &[u8]) {
        let some = |text: String| Some(text).filter(|text| !text.is_empty());
        let places = self.to.iter().map(|place| {
            let of = place.group.iter().map(|group| format!(" of group {group}")).collect::<String>();
            match &place.at[..] {
                [] => format!("{}{of}", shown(place.uri.as_bytes())),
                at => format!("{} at {}{of}", shown(place.uri.as_bytes()), at.join(" ")),
            }
        });
        let limits = some(plain(self.limits.iter().map(ToString::to_string)));
        let failures = some(plain(self.on_failure.iter().map(ToString::to_string)));
        tracing::debug!(
            to = plain(places),
            uri = uri.map(|uri| shown(uri).to_string()),
            try_next = self.try_next.as_deref().map(list),
            limits,
            b2bua = self.bridge.as_ref().map(ToString::to_string),
            record_route = self.record_route,
            track = self.track,
            account = self.account,
            account_as = self.account_as,
            ring_timeout = self.ring_timeout,
            answer_timeout = self.answer_timeout,
            add = some(plain(self.add.iter().cloned())),
            remove = some(self.remove.join(", ")),
            on_failure = failures,
            call_id = %shown(call_id),
            "request planned"
        );
    }
}

impl fmt::Display for BridgeView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let codecs = |names: &[String]| if names.is_empty() { "any codec".to_owned() } else { names.join(", ") };
        write!(f, "caller {}; callee {}", codecs(&self.caller_codecs), codecs(&self.callee_codecs))?;
        self.media_types.iter().try_for_each(|kind| write!(f, "; {kind}"))?;
        if self.refer_from == ReferFrom::default().word() {
            return Ok(());
        }
        write!(f, "; REFER of {}", self.refer_from)
    }
}

impl fmt::Display for LimitView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = if self.of.is_empty() { String::new() } else { format!(" of {}", self.of) };
        let calls = if self.most == 1 { "call" } else { "calls" };
        write!(f, "{}{of}: at most {} {calls}, one more ", self.name, self.most)?;
        match self.answer {
            Some(status) => write!(f, "is answered {status}"),
            None if self.of_place => f.write_str("goes to the next place"),
            None if self.of_failure => f.write_str("goes to the next failure"),
            None => f.write_str("goes to the next rule"),
        }
    }
}

impl fmt::Display for GroupView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.name, self.pick.replace('_', " "))
    }
}

impl fmt::Display for FailureView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let range = |(first, last): &(u16, u16)| match first == last {
            true => first.to_string(),
            false => format!("{first}-{last}"),
        };
        let statuses: Vec<String> = self.statuses.iter().map(range).collect();
        let between = if self.at_once { " and " } else { ", then " };
        let then = self.answer.map_or_else(|| self.to.join(between), |status| format!("answer {status}"));
        write!(f, "{}: {then}", statuses.join(", "))?;
        self.groups.iter().try_for_each(|group| write!(f, "; group {group}"))?;
        if let Some(user) = &self.user {
            write!(f, " for {user}")?;
        }
        if !self.add.is_empty() {
            write!(f, " with {}", self.add.join(", "))?;
        }
        if !self.remove.is_empty() {
            write!(f, " without {}", self.remove.join(", "))?;
        }
        if let Some(statuses) = self.try_next.as_deref().filter(|_| self.to.len() > 1) {
            write!(f, "; next after {}", list(statuses))?;
        }
        for (word, time) in [("ring", self.ring_timeout), ("silence", self.answer_timeout)] {
            if let Some(time) = time {
                write!(f, "; {word} at most {time} ms")?;
            }
        }
        self.limits.iter().try_for_each(|limit| write!(f, "; limit {limit}"))
    }
}

impl fmt::Display for PlanView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, place) in self.to.iter().enumerate() {
            let word = match (n, self.at_once) {
                (0, _) => "to",
                (_, true) => "with",
                (_, false) => "then",
            };
            let at = match place.at.as_slice() {
                [] if place.is_user => ", each phone of this user".to_owned(),
                [] => String::new(),
                at => format!(" at {}", at.join(", ")),
            };
            let of = place.group.iter().map(|group| format!(" of group {group}")).collect::<String>();
            writeln!(f, "{word:<8}{}{at}{of}", place.uri)?;
        }
        self.groups.iter().try_for_each(|group| writeln!(f, "group   {group}"))?;
        match &self.try_next {
            Some(statuses) => writeln!(f, "next    after {}", list(statuses))?,
            None if self.to.len() > 1 && !self.at_once => writeln!(f, "next    after any but 6xx")?,
            None => (),
        }
        for (word, time) in [("ring", self.ring_timeout), ("silence", self.answer_timeout)] {
            if let Some(time) = time {
                writeln!(f, "{word:<8}at most {time} ms")?;
            }
        }
        self.limits.iter().try_for_each(|limit| writeln!(f, "limit   {limit}"))?;
        self.add.iter().try_for_each(|line| writeln!(f, "add     {line}"))?;
        self.remove.iter().try_for_each(|name| writeln!(f, "remove  {name}"))?;
        match &self.bridge {
            Some(bridge) => writeln!(f, "path    two calls, with media of this server: {bridge}")?,
            None => writeln!(f, "path    {}", if self.record_route { "record-route" } else { "not in the path" })?,
        }
        if self.track {
            writeln!(f, "track   the call is tracked")?;
        }
        match &self.account_as {
            Some(account) => writeln!(f, "account the call is accounted as {account}")?,
            None if self.account => writeln!(f, "account the call is accounted")?,
            None => (),
        }
        self.on_failure.iter().try_for_each(|failure| writeln!(f, "failure {failure}"))
    }
}

/// Returns header lines without their ends.
fn lines(text: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(text).lines().map(str::to_owned).collect()
}

fn list(statuses: &[u16]) -> String {
    statuses.iter().map(u16::to_string).collect::<Vec<_>>().join(", ")
}
