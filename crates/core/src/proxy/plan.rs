//! Plan of one request: its settings, and the decisions of the user of the proxy about it when no target is left.

use super::Proxy;
use super::contact::{makes_dialog, renews_target};
use super::owned_plan::OwnedPlan;
use super::response_context::{Asking, Candidate, OwnedCandidate, Pending, ResponseContext};
use crate::notice::NoticeEvent;
use crate::routing::{AccountHash, Request, Routing, Usage};
use crate::slots::Id;
use crate::transaction::{Role, ServerId, Transactions};
use crate::{Now, Round};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use strowger_message::Method;

/// Settings of one request by the user of the proxy.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    /// Context of the notices about this request ([`crate::notice`]); 0 for no notices.
    pub context: u64,
    /// Whether the server stays on the route of later requests of the dialog (RFC 3261 section 16.6 step 4). Default
    /// yes.
    pub record_route: bool,
    /// Whether the user did not admit the request as a request within its dialog. An INVITE then creates a new dialog.
    /// Default no.
    pub outside: bool,
    /// Whether the user tracks the call that this INVITE begins. Default no.
    pub tracked: bool,
    /// Account of the sender, for its route token. Default [`AccountHash::NONE`].
    pub account: AccountHash,
    /// Milliseconds that a group of candidates may ring before the next group is tried, or the user is asked. Default 20,000.
    pub ring_timeout: u64,
    /// Milliseconds without any response of a target until the next one is tried. Default: until its transaction ends (timers B and F).
    pub answer_timeout: Option<u64>,
    /// Failures after which the next candidate is tried. Default [`TryNext::Any`].
    pub try_next: TryNext<'a>,
    /// Whether the user decides before a failure is sent upstream ([`Choice::Failing`](super::Choice::Failing)), by
    /// [`Proxy::more`], [`Proxy::answer`] or [`Proxy::pass`]. The request is kept for this. Default no.
    pub asks: bool,
    /// Session interval of the request in seconds, if its sender supports session timers: the proxy adds it to a 2xx of a peer that does
    /// not (RFC 4028 section 8.2). Default 0: not added.
    pub session: u32,
    /// Whether the last group, too, may ring for `ring_timeout` only, after which the request fails with 408. Default
    /// no: the last group rings until timer C.
    pub ring_ends: bool,
    /// Plans for failures, used before the user is asked or the failure is sent upstream. The first plan for the status
    /// of the best response applies; each plan applies once. None applies to a request that its sender has cancelled.
    pub on_failure: &'a [FailurePlan<'a>],
}

/// Plan for some failures of a request.
#[derive(Clone, Copy, Debug)]
pub struct FailurePlan<'a> {
    /// Ranges of status codes, first and last, that the plan is for; 408 if no target has answered.
    pub statuses: &'a [(u16, u16)],
    /// Remedy for the failure.
    pub remedy: Remedy<'a>,
    /// Ring time as in [`Plan::ring_timeout`], which then bounds the last target too; `None` if it is unchanged.
    pub ring_timeout: Option<u64>,
    /// Time as in [`Plan::answer_timeout`]. None: unchanged.
    pub answer_timeout: Option<u64>,
    /// Failures that lead to the next of its targets.
    pub try_next: TryNext<'a>,
    /// Bytes that [`Choice::Failing`](super::Choice::Failing) returns before the remedy, so that the proxy user decides
    /// about it. The request must then have a [`Plan::context`]. If there are no bytes, the user does not decide.
    pub asks: &'a [u8],
}

/// Remedy for a failure.
#[derive(Clone, Copy, Debug)]
pub enum Remedy<'a> {
    /// This status, 300 to 699, goes upstream in place of the failure.
    Answer(u16),
    /// These targets are tried: voicemail, another gateway.
    Try(&'a [Candidate<'a>]),
}

/// Failures of a candidate after which the next candidate is tried. After a silent or unreachable target the next one
/// is always tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TryNext<'a> {
    /// Any failure but 6xx. After the first 503 (RFC 3263 section 4.3) and after a 430 (RFC 5626 section 11.5) the next
    /// address of the candidate is tried, after other failures and a second 503 the next group. For the contacts of a user.
    Any,
    /// Only these status codes. After one of them the next address is tried, or else the next group; any other status
    /// ends the search. For gateways.
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
    /// The request proved its dialog and was admitted as one within it.
    pub(super) within: bool,
    /// The request gets our Record-Route; its responses get the route token for requests to the callee.
    pub(super) recorded: bool,
    /// The request renews the remote target of its dialog.
    pub(super) renews: bool,
    /// Usage of the dialog.
    pub(super) usage: Usage,
    /// Account of the sender.
    pub(super) account: AccountHash,
}

impl DialogUse {
    /// No effect: the request neither creates a dialog nor renews one.
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
    /// Tells whether this request gets a Record-Route: the plan wants one, and the request can create a dialog (RFC
    /// 3261 section 16.6 step 4). Each NOTIFY can (RFC 6665 section 4.3), and so can an INVITE within a dialog whose
    /// call becomes tracked. `within`: whether the request was admitted as a request within a dialog.
    pub fn records_route(&self, request: &Request<'_>, within: bool) -> bool {
        let makes = makes_dialog(request.method) && (!within || self.tracked || request.method == Method::Notify);
        self.record_route && makes
    }

    /// Tells whether no part of the plan must be kept for a request with one target.
    pub(super) const fn is_plain(&self) -> bool {
        self.answer_timeout.is_none() && !self.asks && !self.ring_ends && self.on_failure.is_empty()
    }
}

/// Milliseconds in which the user must decide; afterwards the failure is sent upstream.
const DECISION: u64 = 32_000;

impl Proxy {
    /// Applies the plan when no target is left, or sends the best response upstream if the plan has nothing to apply.
    pub(super) fn fail(&mut self, round: &mut Round<'_>, id: Id) {
        if !self.remedies(round, id) && !self.asks(round.now, id) {
            self.finish(round, id);
        }
    }

    /// Applies the plans for the failure before the failure is sent upstream. Returns true if a remedy is under way, a
    /// response was sent, or the user was asked.
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

    /// Asks the user before a failure is sent upstream, if the plan says so. Returns whether the user was asked.
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
        self.put_question(id, question);
    }

    /// Repeats the notice to the proxy user after a move from another shard.
    pub(super) fn ask_again(&mut self, id: Id) {
        if let Some(question) = self.contexts.get(id).and_then(ResponseContext::question) {
            self.put_question(id, question);
        }
    }

    /// Returns the response context of this request and its pending decision, which is no longer pending then; `None`
    /// if no decision is pending.
    fn asked(&mut self, server: ServerId, tx: &Transactions) -> Option<(Id, Asking)> {
        let Role::Proxy(id) = tx.user(server).role() else { return None };
        let pending = self.contexts.get_mut(id).filter(|c| c.server == server)?.pending.as_mut()?;
        Some((id, std::mem::take(&mut pending.asking))).filter(|(_, asking)| asking.is_any())
    }

    /// Tries further targets after [`Choice::Failing`](super::Choice::Failing). Returns false if no target could be
    /// tried, so that the failure was sent upstream.
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

    /// Answers with this status after [`Choice::Failing`](super::Choice::Failing), in place of the responses of the targets.
    pub fn answer(&mut self, round: &mut Round<'_>, server: ServerId, status: u16) {
        let Some((id, _)) = self.asked(server, round.tx) else { return };
        self.by_its_policy(id, |proxy| proxy.answer_locally(round, id, status));
    }

    /// Applies the plan for failures of [`Choice::Failing`](super::Choice::Failing), or tries the candidate of
    /// [`Choice::Choosing`](super::Choice::Choosing).
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

    /// Declines after [`Choice::Failing`](super::Choice::Failing): the failure is sent upstream, or the next plan for
    /// it applies. Declines after [`Choice::Choosing`](super::Choice::Choosing): the next candidate is considered.
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

    /// Tries the candidate that the proxy user has accepted.
    fn choose(&mut self, round: &mut Round<'_>, id: Id) {
        if let Some(pending) = self.contexts.get_mut(id).and_then(|context| context.pending.as_mut())
            && let Some(candidate) = pending.candidates.get_mut(pending.next)
        {
            pending.chosen = std::mem::take(&mut candidate.asks);
        }
        self.try_on(round, id);
    }

    /// Skips the candidate that the proxy user has declined: all its addresses, and the candidates after it that have
    /// no question of their own.
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

    /// Returns the plan of a request, and the position of the plan for its current failure.
    fn due(&mut self, id: Id) -> Option<(&mut OwnedPlan, usize)> {
        let context = self.contexts.get_mut(id)?;
        let status = context.failed_with();
        let plan = &mut context.pending.as_mut()?.plan;
        let place = plan.due(status)?;
        Some((plan, place))
    }

    /// Adds targets at once, such as a phone that has just registered, while others are being tried. This works only if
    /// the plan asks the user. Returns false if no target could be tried.
    pub fn add(&mut self, round: &mut Round<'_>, server: ServerId, candidates: &[Candidate<'_>]) -> bool {
        let Role::Proxy(id) = round.tx.user(server).role() else { return false };
        let Some(context) = self.contexts.get_mut(id).filter(|c| c.server == server && !c.answered) else {
            return false;
        };
        let Some(pending) = context.pending.as_mut().filter(|pending| pending.plan.asks) else { return false };
        pending.asking = Asking::No;
        // New candidates are inserted before those that wait.
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

    /// Appends candidates, as far as the branches and the memory of the request allow.
    fn extend(&mut self, round: &mut Round<'_>, id: Id, candidates: &[Candidate<'_>]) {
        let Some(server) = self.contexts.get(id).map(|context| context.server) else { return };
        let candidates = candidates.iter().filter(|candidate| !candidate.targets.is_empty());
        let candidates = candidates.map(OwnedCandidate::of).collect();
        self.put_behind(round, id, server, candidates);
    }

    fn put_behind(&mut self, round: &mut Round<'_>, id: Id, server: ServerId, candidates: Vec<OwnedCandidate>) {
        let room = self.policy.settings.request_memory;
        let Some(pending) = self.contexts.get_mut(id).and_then(|context| context.pending.as_mut()) else { return };
        // The next failure is a new one, for which all plans are available.
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
        // The new branches share the remaining budget, in case the request returns to this server.
        pending.share.left = pending.share.left.min(pending.reserve);
    }

    /// Sends a response of this server.
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
