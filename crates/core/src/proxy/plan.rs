//! How one request is forwarded: what belongs to it and not to the process; and what its user decides when no target is left.

use super::Proxy;
use super::contact::{makes_dialog, renews_target};
use super::notice::NoticeEvent;
use super::response_context::{Asking, Candidate, OwnedCandidate, Pending, ResponseContext};
use crate::routing::{AccountHash, Request, Routing, Usage};
use crate::slots::Id;
use crate::transaction::{Role, ServerId, Transactions};
use crate::{Now, Round};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use std::cmp::Reverse;
use strowger_message::Method;

/// What the user of the proxy wants of one request.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    /// Comes back with each notice of what becomes of the request ([`Proxy::notices`]); 0: there are none.
    pub context: u64,
    /// Stay on the way of later requests of the dialog (RFC 3261 section 16.6 step 4). Default yes.
    pub record_route: bool,
    /// The user did not let the request through as one within its dialog. An INVITE makes a new dialog then. Default no.
    pub outside: bool,
    /// The user tracks the call that this INVITE begins. Default no.
    pub tracked: bool,
    /// Account of the sender, for the route token that it gets. Default [`AccountHash::NONE`].
    pub account: AccountHash,
    /// How long a group of candidates may ring before the next one is tried, or the user is asked, in milliseconds. Default 20,000.
    pub ring_timeout: u64,
    /// How long a target may say nothing at all before the next one is tried, in milliseconds. Default: until its transaction ends
    /// (timers B and F).
    pub answer_timeout: Option<u64>,
    /// Default [`TryNext::Any`].
    pub try_next: TryNext<'a>,
    /// The user is asked before a failure goes upstream ([`NoticeEvent::Failing`]): it says [`Proxy::more`], [`Proxy::answer`] or
    /// [`Proxy::pass`]. The request is kept for that.
    pub asks: bool,
    /// Seconds of the session timer that the request has, if its sender supports one: a 2xx of a peer that does not is given this interval
    /// (RFC 4028 section 8.2). Default 0: none is.
    pub session: u32,
    /// The last group too may ring no longer than `ring_timeout`: then the request fails with 408. Default no: it rings until timer C.
    pub ring_ends: bool,
    /// What is done about a failure before the user is asked or it goes upstream: the first of these that is for the status of the best
    /// response, each once. None of them is for a request that its sender has cancelled.
    pub on_failure: &'a [FailurePlan<'a>],
}

/// What is done about some failures of a request.
#[derive(Clone, Copy, Debug)]
pub struct FailurePlan<'a> {
    /// The first and the last status code of each range that it is for; 408 where no target has answered.
    pub statuses: &'a [(u16, u16)],
    /// What is done.
    pub remedy: Remedy<'a>,
    /// See [`Plan::ring_timeout`]; then the last of its targets too may ring no longer. None: as before.
    pub ring_timeout: Option<u64>,
    /// See [`Plan::answer_timeout`]; none: as before.
    pub answer_timeout: Option<u64>,
    /// Of its own targets.
    pub try_next: TryNext<'a>,
    /// Not empty: the user is asked before this is done, and gets these bytes of its own with the question ([`NoticeEvent::Failing`]). The
    /// request is to have a [`Plan::context`] for that.
    pub asks: &'a [u8],
}

/// What is done about a failure.
#[derive(Clone, Copy, Debug)]
pub enum Remedy<'a> {
    /// This status, 300 to 699, goes upstream in place of it.
    Answer(u16),
    /// These targets are tried: voicemail, another gateway.
    Try(&'a [Candidate<'a>]),
}

/// After which failures of a candidate the next one has its turn. A target that was silent, or could not be reached, leads on in any
/// case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TryNext<'a> {
    /// After any but 6xx: the next address of a candidate after a 503 (RFC 3263 section 4.3), the next group after others. For the
    /// contacts of a user.
    Any,
    /// After these status codes, the next address or else the next group; any other ends the search. For gateways.
    On(&'a [u16]),
}

impl Default for Plan<'_> {
    fn default() -> Self {
        Self {
            context: 0,
            record_route: true,
            outside: false,
            tracked: false,
            account: AccountHash::NONE,
            ring_timeout: 20_000,
            answer_timeout: None,
            try_next: TryNext::Any,
            asks: false,
            session: 0,
            ring_ends: false,
            on_failure: &[],
        }
    }
}

/// Effect of a request on a dialog.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct DialogUse {
    /// The plan asks for a Record-Route.
    pub(super) stays: bool,
    /// The request proved its dialog and is let through as one within it.
    pub(super) within: bool,
    /// The request gets our Record-Route; its responses get the route token that leads to the callee.
    pub(super) recorded: bool,
    /// The request renews the remote target of its dialog.
    pub(super) renews: bool,
    /// Usage of the dialog.
    pub(super) usage: Usage,
    /// Account of the sender.
    pub(super) account: AccountHash,
}

impl DialogUse {
    /// No effect: the request neither makes a dialog nor renews one.
    pub(super) const NONE: Self = Self {
        stays: false,
        within: false,
        recorded: false,
        renews: false,
        usage: Usage::Subscription,
        account: AccountHash::NONE,
    };

    pub(super) fn of(plan: &Plan<'_>, request: &Request<'_>, routing: &Routing<'_>) -> Self {
        let within = routing.in_dialog && !plan.outside;
        let made = Usage::made_by(request.method, plan.tracked);
        Self {
            stays: plan.record_route,
            within,
            recorded: plan.records_route(request, within),
            renews: within && renews_target(request.method),
            // A NOTIFY may make a dialog (RFC 6665 section 4.4.1). Its route token states that usage.
            usage: if within && request.method != Method::Notify { routing.usage } else { made },
            account: plan.account,
        }
    }
}

impl Plan<'_> {
    /// Whether this request gets a Record-Route: if the plan wants one, and the request can make a dialog (RFC 3261 section 16.6 step 4).
    /// Each NOTIFY can (RFC 6665 section 4.3), and so can an INVITE within a dialog whose call is tracked from then on. `within`: it is let
    /// through as one within a dialog.
    pub fn records_route(&self, request: &Request<'_>, within: bool) -> bool {
        let makes = makes_dialog(request.method) && (!within || self.tracked || request.method == Method::Notify);
        self.record_route && makes
    }

    /// Nothing of it need be remembered for a request with one target.
    pub(super) const fn is_plain(&self) -> bool {
        self.answer_timeout.is_none() && !self.asks && !self.ring_ends && self.on_failure.is_empty()
    }
}

/// Those of [`TryNext::On`]; none: [`TryNext::Any`].
type Statuses = Option<SmallVec<[u16; 8]>>;

impl TryNext<'_> {
    fn statuses(self) -> Statuses {
        match self {
            Self::Any => None,
            Self::On(statuses) => Some(SmallVec::from_slice(statuses)),
        }
    }
}

/// What is remembered of a plan while targets are left.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct OwnedPlan {
    pub(super) dialog: DialogUse,
    pub(super) ring_timeout: u64,
    pub(super) answer_timeout: Option<u64>,
    try_next: Statuses,
    pub(super) asks: bool,
    pub(super) ring_ends: bool,
    /// Those that were not used yet.
    pub(super) on_failure: Vec<OwnedFailurePlan>,
    /// The user has passed over so many of them, the first ones, for the failure that there is now.
    passed: usize,
}

/// A plan for failures that waits for one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct OwnedFailurePlan {
    statuses: SmallVec<[(u16, u16); 2]>,
    /// Upstream, if there are no targets.
    status: u16,
    ring_timeout: Option<u64>,
    answer_timeout: Option<u64>,
    try_next: Statuses,
    pub(super) candidates: Vec<OwnedCandidate>,
    /// Empty: it is done without a question.
    pub(super) asks: Box<[u8]>,
}

impl OwnedFailurePlan {
    fn of(plan: &FailurePlan<'_>) -> Self {
        let (status, candidates) = match plan.remedy {
            Remedy::Answer(status) => (status, &[][..]),
            Remedy::Try(candidates) => (0, candidates),
        };
        let candidates = candidates.iter().filter(|candidate| !candidate.targets.is_empty());
        let mut candidates: Vec<_> = candidates.map(OwnedCandidate::of).collect();
        candidates.sort_by_key(|candidate| Reverse(candidate.q));
        Self {
            statuses: SmallVec::from_slice(plan.statuses),
            status,
            ring_timeout: plan.ring_timeout,
            answer_timeout: plan.answer_timeout,
            try_next: plan.try_next.statuses(),
            candidates,
            asks: plan.asks.into(),
        }
    }

    fn is_for(&self, status: u16) -> bool {
        let is_of_use = self.status != 0 || !self.candidates.is_empty();
        is_of_use && self.statuses.iter().any(|(first, last)| (*first..=*last).contains(&status))
    }

    /// Memory that it takes while it waits.
    pub(super) fn memory(&self) -> usize {
        size_of::<Self>() + self.asks.len() + self.candidates.iter().map(OwnedCandidate::memory).sum::<usize>()
    }
}

impl OwnedPlan {
    pub(super) fn of(plan: &Plan<'_>, dialog: DialogUse) -> Self {
        let try_next = plan.try_next.statuses();
        let Plan { ring_timeout, answer_timeout, asks, ring_ends, .. } = *plan;
        let on_failure = plan.on_failure.iter().map(OwnedFailurePlan::of).collect();
        Self { dialog, ring_timeout, answer_timeout, try_next, asks, ring_ends, on_failure, passed: 0 }
    }

    /// A plan for a failure says how its targets are tried.
    fn goes_on_by(&mut self, failure: &OwnedFailurePlan) {
        if let Some(ring_timeout) = failure.ring_timeout {
            (self.ring_timeout, self.ring_ends) = (ring_timeout, true);
        }
        self.answer_timeout = failure.answer_timeout.or(self.answer_timeout);
        self.try_next.clone_from(&failure.try_next);
    }

    /// What happens when every target has failed is not yet decided.
    pub(super) fn goes_on(&self) -> bool {
        self.asks || !self.on_failure.is_empty()
    }

    /// The place of the plan for a failure with this status.
    fn due(&self, status: u16) -> Option<usize> {
        (self.passed..self.on_failure.len()).find(|place| self.on_failure[*place].is_for(status))
    }

    /// The question about the plan for a failure with this status, if that asks.
    pub(super) fn question(&self, status: u16) -> Option<Box<[u8]>> {
        let plan = &self.on_failure[self.due(status)?];
        Some(plan.asks.clone()).filter(|asks| !asks.is_empty())
    }

    /// The same candidate is tried at its next address after this status.
    pub(super) fn tries_next_address(&self, status: u16) -> bool {
        self.try_next.as_ref().map_or(status == 503, |statuses| statuses.contains(&status))
    }

    /// No further candidate is tried after this status.
    pub(super) fn ends_search(&self, status: u16) -> bool {
        self.try_next.as_ref().is_some_and(|statuses| !statuses.contains(&status))
    }
}

/// How long the user may take to decide, in milliseconds: then the failure goes upstream.
const DECISION: u64 = 32_000;

impl Proxy {
    /// No target is left: what the plan does about that, else the best response goes upstream.
    pub(super) fn fail(&mut self, round: &mut Round<'_>, id: Id) {
        if !self.remedies(round, id) && !self.asks(round.now, id) {
            self.finish(round, id);
        }
    }

    /// Before a failure goes upstream: what the plan does about it. True: that is under way, or was answered, or the user is asked whether it
    /// may be done.
    fn remedies(&mut self, round: &mut Round<'_>, id: Id) -> bool {
        loop {
            let Some(context) = self.contexts.get_mut(id).filter(|context| !context.cancelled) else { return false };
            let (server, status) = (context.server, context.failed_with());
            let Some(pending) = context.pending.as_mut() else { return false };
            let Some(place) = pending.plan.due(status) else { return false };
            if !pending.plan.on_failure[place].asks.is_empty() {
                self.ask(round.now, id, Asking::Failure);
                return true;
            }
            let plan = pending.plan.on_failure.remove(place);
            if plan.candidates.is_empty() {
                self.answer_locally(round, id, plan.status);
                return true;
            }
            pending.plan.goes_on_by(&plan);
            self.put_behind(round, id, server, plan.candidates);
            if self.next_group(round, id) {
                return true;
            }
        }
    }

    /// Before a failure goes upstream: the user is asked, if it wants to be. True: it is, and decides later.
    fn asks(&mut self, now: Now, id: Id) -> bool {
        let wants = |pending: &Pending| pending.plan.asks;
        let context = self.contexts.get(id).filter(|context| !context.cancelled);
        if !context.and_then(|context| context.pending.as_deref()).is_some_and(wants) {
            return false;
        }
        self.ask(now, id, Asking::Failure);
        true
    }

    pub(super) fn ask(&mut self, now: Now, id: Id, asking: Asking) {
        let Some(context) = self.contexts.get_mut(id) else { return };
        let Some(pending) = context.pending.as_mut() else { return };
        let until = now.mono + DECISION;
        (pending.asking, pending.until) = (asking, until);
        let Some(question) = context.question() else { return };
        self.fork_timers.push(Reverse((until, id.to_u64())));
        self.notice(id, question);
    }

    /// It came from another shard, whose user was asked.
    pub(super) fn ask_again(&mut self, id: Id) {
        if let Some(question) = self.contexts.get(id).and_then(ResponseContext::question) {
            self.notice(id, question);
        }
    }

    /// The response context of this request, and what its user is asked; none: nothing.
    fn asked(&mut self, server: ServerId, tx: &Transactions) -> Option<(Id, Asking)> {
        let id = tx.user(server).id(Role::Proxy)?;
        let pending = self.contexts.get_mut(id).filter(|c| c.server == server)?.pending.as_mut()?;
        Some((id, std::mem::take(&mut pending.asking))).filter(|(_, asking)| asking.is_any())
    }

    /// After [`NoticeEvent::Failing`]: further targets. False: none could be tried, and the failure went upstream.
    pub fn more(&mut self, round: &mut Round<'_>, server: ServerId, candidates: &[Candidate<'_>]) -> bool {
        let Some((id, _)) = self.asked(server, round.tx) else { return false };
        self.by_its_policy(id, |proxy| {
            proxy.extend(round, id, candidates);
            let sent = proxy.next_group(round, id);
            if !sent {
                proxy.finish(round, id);
            }
            sent
        })
    }

    /// After [`NoticeEvent::Failing`]: this status goes upstream in place of what the targets said.
    pub fn answer(&mut self, round: &mut Round<'_>, server: ServerId, status: u16) {
        let Some((id, _)) = self.asked(server, round.tx) else { return };
        self.by_its_policy(id, |proxy| proxy.answer_locally(round, id, status));
    }

    /// After [`NoticeEvent::Failing`] with a plan for failures: what that says is done. After [`NoticeEvent::Choosing`]: the candidate is
    /// tried.
    pub fn carry_out(&mut self, round: &mut Round<'_>, server: ServerId) {
        let Some((id, asking)) = self.asked(server, round.tx) else { return };
        self.by_its_policy(id, |proxy| {
            if asking == Asking::Candidate {
                return proxy.choose(round, id);
            }
            if let Some((plan, place)) = proxy.due(id) {
                plan.on_failure[place].asks = Box::default();
            }
            proxy.fail(round, id);
        });
    }

    /// After [`NoticeEvent::Failing`]: the failure goes upstream. With a plan for failures: the next plan that is for the failure has its
    /// turn. After [`NoticeEvent::Choosing`]: the next candidate has its turn.
    pub fn pass(&mut self, round: &mut Round<'_>, server: ServerId) {
        let Some((id, asking)) = self.asked(server, round.tx) else { return };
        self.by_its_policy(id, |proxy| {
            if asking == Asking::Candidate {
                return proxy.pass_over(round, id);
            }
            let Some((plan, place)) = proxy.due(id) else { return proxy.finish(round, id) };
            plan.passed = place + 1;
            proxy.fail(round, id);
        });
    }

    /// The candidate that was asked about is tried.
    fn choose(&mut self, round: &mut Round<'_>, id: Id) {
        if let Some(pending) = self.contexts.get_mut(id).and_then(|context| context.pending.as_mut())
            && let Some(candidate) = pending.candidates.get_mut(pending.next)
        {
            pending.chosen = std::mem::take(&mut candidate.asks);
        }
        self.try_on(round, id);
    }

    /// The candidate that was asked about is not tried, nor any of its addresses, nor those behind it that belong to it.
    fn pass_over(&mut self, round: &mut Round<'_>, id: Id) {
        if let Some(pending) = self.contexts.get_mut(id).and_then(|context| context.pending.as_mut())
            && let Some((asked, behind)) = pending.candidates.get_mut(pending.next..).and_then(<[_]>::split_first_mut)
        {
            let its = behind.iter_mut().take_while(|candidate| candidate.asks.is_empty());
            let passed = std::iter::once(asked).chain(its).map(|candidate| candidate.targets.clear()).count();
            pending.next += passed;
        }
        self.try_on(round, id);
    }

    fn try_on(&mut self, round: &mut Round<'_>, id: Id) {
        if !self.next_group(round, id) {
            self.fail(round, id);
        }
    }

    /// The plan of a request, and the place of that for the failure which it has now.
    fn due(&mut self, id: Id) -> Option<(&mut OwnedPlan, usize)> {
        let context = self.contexts.get_mut(id)?;
        let status = context.failed_with();
        let plan = &mut context.pending.as_mut()?.plan;
        let place = plan.due(status)?;
        Some((plan, place))
    }

    /// Targets beside those that are under way, at once: a phone that has just registered. Only where the plan asks. False: none could be
    /// tried.
    pub fn add(&mut self, round: &mut Round<'_>, server: ServerId, candidates: &[Candidate<'_>]) -> bool {
        let Some(id) = round.tx.user(server).id(Role::Proxy) else { return false };
        let Some(context) = self.contexts.get_mut(id).filter(|c| c.server == server && !c.answered) else {
            return false;
        };
        let Some(pending) = context.pending.as_mut().filter(|pending| pending.plan.asks) else { return false };
        pending.asking = Asking::No;
        // Before those that wait for their turn.
        let waiting = pending.candidates.split_off(pending.next);
        let sent = self.by_its_policy(id, |proxy| {
            proxy.extend(round, id, candidates);
            proxy.next_group(round, id)
        });
        if let Some(pending) = self.contexts.get_mut(id).and_then(|context| context.pending.as_mut()) {
            pending.candidates.extend(waiting);
        }
        sent
    }

    /// Puts candidates behind those that are there, as many as the request may have branches and memory.
    fn extend(&mut self, round: &mut Round<'_>, id: Id, candidates: &[Candidate<'_>]) {
        let Some(server) = self.contexts.get(id).map(|context| context.server) else { return };
        let candidates = candidates.iter().filter(|candidate| !candidate.targets.is_empty());
        let candidates = candidates.map(OwnedCandidate::of).collect();
        self.put_behind(round, id, server, candidates);
    }

    fn put_behind(&mut self, round: &mut Round<'_>, id: Id, server: ServerId, candidates: Vec<OwnedCandidate>) {
        let room = self.policy.settings.request_memory;
        let Some(pending) = self.contexts.get_mut(id).and_then(|context| context.pending.as_mut()) else { return };
        // What follows is another failure.
        pending.plan.passed = 0;
        for mut owned in candidates {
            let branches = owned.targets.len().min(usize::from(pending.reserve));
            owned.targets.truncate(branches);
            let kept: usize = pending.candidates.iter().map(OwnedCandidate::memory).sum();
            if branches == 0 || kept + owned.memory() + pending.request.len() > room {
                break;
            }
            pending.reserve -= branches as u16;
            round.tx.bill(server, owned.memory());
            pending.candidates.push(owned);
        }
        // What is left is shared by what goes out now, if it comes back.
        pending.share.left = pending.share.left.min(pending.reserve);
    }

    /// A response of this server's own.
    pub(super) fn answer_locally(&mut self, round: &mut Round<'_>, id: Id, status: u16) {
        let Some(context) = self.contexts.get_mut(id).filter(|context| !context.answered) else { return };
        let Some(pending) = context.pending.take() else { return };
        self.unanswered -= 1;
        context.answered = true;
        context.best = None;
        let server = context.server;
        let Some(bytes) = self.respond_to(&pending.request, status) else { return self.abandon(round, id, server) };
        let from = round.out.start();
        round.out.bytes.extend_from_slice(&bytes);
        let range = from..round.out.bytes.len();
        self.notice(id, NoticeEvent::Exhausted { status, bytes: range.clone() });
        round.tx.respond(round.now, server, status, range, round.out);
    }
}
