//! What rules and failures decide of a request: it goes with the request.

use crate::call_limits::Claim;
use crate::consultation::claims_by;
use crate::places::{Places, claims_at};
use crate::request_facts::RequestFacts;
use crate::user_edit::user_part;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::time::Duration;
use strowger_config::{Action, FailureAction, IdentitySource, RelayFor, Targets};
use strowger_core::proxy::TryNext;
use strowger_core::record::header_names;
use strowger_core::routing::{Request, Routing};
use strowger_message::{Edit, Name};

/// What the rules that hold say together. It goes with its request, also where the rules have changed since.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Decision {
    /// Where it goes; empty: the rules do not say.
    pub(crate) to: Places,
    /// Who may go there, until that is judged.
    #[serde(skip)]
    pub(crate) relay_for: Option<RelayFor>,
    pub(crate) try_next: Option<Vec<u16>>,
    /// What is done where it fails, in order.
    pub(crate) on_failure: Vec<FailureDecision>,
    /// Limits that its call counts under, each once.
    pub(crate) claims: Vec<Claim>,
    /// The failure by which it goes where it goes, if that has limits and nothing was tried before.
    pub(crate) led: Option<Box<Led>>,
    /// It is answered with where it would go.
    pub(crate) redirect: bool,
    /// The user part that its Request-URI gets; none: it stays, or has been changed.
    pub(crate) user: Option<Vec<u8>>,
    /// It was changed.
    pub(crate) has_other_uri: bool,
    /// The Request-URI before rules changed it. A request that waits while it moves to another process loses it.
    #[serde(skip)]
    pub(crate) dialled: Option<Box<[u8]>>,
    /// Header lines that it gets.
    pub(crate) add: Vec<u8>,
    /// Header fields that it loses.
    #[serde(with = "header_names")]
    pub(crate) remove: Vec<Name>,
    /// List of `rule.identity`, which adds to the identities of the account. A request that moves to another process while it waits loses it.
    #[serde(skip)]
    pub(crate) identity: Option<IdentitySource>,
    /// How many octets of those lines, and how many of those names, the rules say; what follows is of the failure that leads it.
    pub(crate) own_edits: (usize, usize),
    record_route: Option<bool>,
    pub(crate) track: Option<bool>,
    pub(crate) account: Option<bool>,
    pub(crate) account_as: Option<Box<str>>,
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
    /// Where the request goes then; empty: it is answered.
    pub(crate) to: Places,
    /// The answer in place of the failure.
    pub(crate) answer: Option<u16>,
    /// Statuses that lead on there; none: any but 6xx.
    pub(crate) try_next: Option<Vec<u16>>,
    /// The user part that its Request-URI gets then; none: it stays.
    pub(crate) user: Option<Vec<u8>>,
    /// Header lines that it gets.
    pub(crate) add: Vec<u8>,
    /// Header fields that it loses then.
    #[serde(with = "header_names")]
    pub(crate) remove: Vec<Name>,
    /// Milliseconds.
    pub(crate) ring_timeout: Option<u64>,
    /// Milliseconds.
    pub(crate) answer_timeout: Option<u64>,
    /// Limits that its call counts under then, each once: where one is full, this is passed over.
    pub(crate) claims: Vec<Claim>,
}

/// A failure with limits that leads a request on which has gone nowhere yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Led {
    /// Of the failure that it is used for.
    pub(crate) status: u16,
    /// Its place among those of the decision before.
    pub(crate) place: usize,
    pub(crate) claims: Vec<Claim>,
    pub(crate) before: Decision,
}

impl FailureDecision {
    fn of(action: &FailureAction, facts: &RequestFacts<'_, '_>) -> Self {
        Self {
            statuses: action.statuses.iter().map(|range| (range.first, range.last)).collect(),
            to: Places::of(&action.to, claims_at(facts, &action.to, &action.call_limits)),
            answer: action.answer,
            try_next: action.try_next.as_ref().map(|statuses| statuses.to_vec()),
            // It changes what all rules together make of it.
            user: None,
            add: action.add.to_vec(),
            remove: action.remove.to_vec(),
            ring_timeout: milliseconds(action.ring_timeout),
            answer_timeout: milliseconds(action.answer_timeout),
            claims: claims_by(facts, &action.call_limits),
        }
    }

    fn is_for(&self, status: u16) -> bool {
        self.statuses.iter().any(|(first, last)| (*first..=*last).contains(&status))
    }

    /// Its call counts under limits if it is used.
    fn may_count(&self) -> bool {
        !self.claims.is_empty() || self.to.may_count()
    }

    /// Its limits for [`Engine::consider`](crate::engine::Engine::consider), which is asked before it is used; empty: it has none.
    pub(crate) fn question(&self) -> Vec<u8> {
        if !self.may_count() {
            return Vec::new();
        }
        let question = (&self.claims, self.to.all_claims());
        postcard::to_extend(&question, Vec::new()).expect("a vector takes all, and every sequence knows its length")
    }
}

/// The limits of a failure, when its turn has come.
#[derive(Debug, Deserialize)]
pub(crate) struct Question {
    /// What the call counts under to its end.
    pub(crate) claims: Vec<Claim>,
    /// What it counts under at each place.
    pub(crate) places: Vec<Vec<Claim>>,
}

impl Question {
    /// What [`FailureDecision::question`] wrote.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        postcard::from_bytes(bytes).ok()
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
    /// Decision for an emergency call: it goes to these targets, counts under no limit, and has a record.
    pub(crate) fn of_emergency(to: &Targets) -> Self {
        let to = Places::of(to, Vec::new());
        let answer_timeout = (to.uris.len() > 1).then_some(EMERGENCY_ANSWER);
        let account_as = Some("emergency".into());
        Self { to, track: Some(true), account: Some(true), account_as, answer_timeout, ..Self::default() }
    }

    /// Decision for a call that began in an earlier process: these rules count and record it, and lead it nowhere.
    pub(crate) fn resumed(self) -> Self {
        let Self { claims, track, account, account_as, .. } = self;
        Self { claims, track, account, account_as, record_route: Some(true), ..Self::default() }
    }

    /// Replaces P-Asserted-Identity by this URI (RFC 3325 section 5).
    pub(crate) fn assert(&mut self, identity: &[u8]) {
        self.remove.push(Name::PAssertedIdentity);
        self.add.extend_from_slice(&[b"P-Asserted-Identity: <", identity, b">\r\n"].concat());
        self.own_edits = (self.add.len(), self.remove.len());
    }

    /// What is done where its target fails with this status before the request goes there, of the failures from this place on; none: nothing.
    pub(crate) fn after_failure(
        &self,
        status: u16,
        from: usize,
        has_room: impl Fn(&FailureDecision) -> bool,
    ) -> Option<AfterFailure> {
        let is_used = |failure: &FailureDecision| failure.is_for(status) && has_room(failure);
        let place = (from..self.on_failure.len()).find(|place| is_used(&self.on_failure[*place]))?;
        // What led here had no address: its limits are not taken.
        let mut next = Self { led: None, ..self.clone() };
        let failure = next.on_failure.remove(place);
        if let Some(status) = failure.answer {
            return Some(AfterFailure::Answer(status));
        }
        if failure.may_count() {
            let before = Self { led: None, ..self.clone() };
            next.led = Some(Box::new(Led { status, place, claims: failure.claims, before }));
        }
        (next.to, next.try_next, next.user, next.redirect) = (failure.to, failure.try_next, failure.user, false);
        next.add.truncate(next.own_edits.0);
        next.remove.truncate(next.own_edits.1);
        next.add.extend_from_slice(&failure.add);
        next.remove.extend_from_slice(&failure.remove);
        next.ring_timeout = failure.ring_timeout.or(next.ring_timeout);
        next.answer_timeout = failure.answer_timeout.or(next.answer_timeout);
        Some(AfterFailure::Try(Box::new(next)))
    }

    /// The limits of the failure that leads it.
    pub(crate) fn led_claims(&self) -> &[Claim] {
        self.led.as_ref().map_or(&[][..], |led| &led.claims)
    }

    /// All that its call counts under as it goes on: by its rules, and by the failure that leads it.
    pub(crate) fn all_claims(&self) -> Cow<'_, [Claim]> {
        let Some(led) = &self.led else { return Cow::Borrowed(&self.claims) };
        let mut all = self.claims.clone();
        Claim::add(&mut all, led.claims.iter().cloned());
        Cow::Owned(all)
    }

    /// Its call counts under limits, or may do so yet: it is tracked for that.
    pub(crate) fn may_count(&self) -> bool {
        !self.claims.is_empty()
            || self.to.may_count()
            || self.led.is_some()
            || self.on_failure.iter().any(FailureDecision::may_count)
    }

    /// Its call may count under something where it is led, and no more where it is led then.
    pub(crate) fn may_count_at_places(&self) -> bool {
        self.to.may_count() || self.on_failure.iter().any(|failure| failure.to.may_count())
    }

    /// Whether later requests of its call come by, if that is said. What counts is followed to its end.
    pub(crate) fn stays(&self) -> Option<bool> {
        if self.may_count() { Some(true) } else { self.record_route }
    }

    /// How many octets of its header lines, and how many of the names that go, are of the failure that leads it.
    pub(crate) fn of_failure(&self) -> (usize, usize) {
        (self.add.len() - self.own_edits.0, self.remove.len() - self.own_edits.1)
    }

    /// What one more rule says counts where none before it has said so.
    pub(crate) fn hear(&mut self, action: &Action, facts: &RequestFacts<'_, '_>, places: Vec<Vec<Claim>>) {
        if self.to.is_empty() {
            self.to = Places::of(&action.to, places);
            self.relay_for = action.relay_for;
            self.try_next = action.try_next.as_ref().map(|statuses| statuses.to_vec());
        }
        self.on_failure.extend(action.on_failure.iter().map(|failure| FailureDecision::of(failure, facts)));
        self.redirect |= action.redirect;
        self.add.extend_from_slice(&action.add);
        self.remove.extend_from_slice(&action.remove);
        self.record_route = self.record_route.or(action.record_route);
        self.track = self.track.or(action.track);
        self.account = self.account.or(action.account);
        if self.account_as.is_none() {
            self.account_as.clone_from(&action.account_as);
        }
        self.ring_timeout = self.ring_timeout.or_else(|| milliseconds(action.ring_timeout));
        self.answer_timeout = self.answer_timeout.or_else(|| milliseconds(action.answer_timeout));
    }

    /// The request with the user part that it gets.
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

/// Milliseconds that one of several targets of an emergency call may say nothing before the next is tried.
const EMERGENCY_ANSWER: u64 = 4_000;

fn milliseconds(time: Option<Duration>) -> Option<u64> {
    time.map(|time| time.as_millis() as u64)
}
