//! Forwarding of requests downstream (RFC 3261 section 16.6).

use super::outgoing_request::OutgoingBranch;
use super::owned_plan::{OwnedFailurePlan, OwnedPlan};
use super::plan::{DialogUse, Plan};
use super::report::Report;
use super::response_context::{Asking, Branch, Candidate, OwnedCandidate, Pending, ResponseContext, Share};
use super::{Proxy, UdpOnly};
use crate::message_store::memory_of;
use crate::notice::{Notice, NoticeEvent};
use crate::routing::{Request, Routing};
use crate::slots::Id;
use crate::transaction::{ClientId, Role, ServerId, TransactionUser};
use crate::{Now, Round, Target, Transport};
use std::cmp::Reverse;
use std::ops::Range;
use strowger_message::{Method, Name};

impl Proxy {
    /// Forwards a request to its candidates: those of the highest q at once, then those of the next lower q, and so on
    /// while no candidate has accepted. `server` is the server transaction of the request; from here on the proxy
    /// handles responses, time-outs and CANCEL.
    ///
    /// Returns false if no candidate has a target: nothing was sent, and the caller answers.
    pub fn forward(
        &mut self,
        round: &mut Round<'_>,
        request: &Request<'_>,
        routing: &Routing<'_>,
        server: ServerId,
        candidates: &[Candidate<'_>],
        plan: &Plan<'_>,
    ) -> bool {
        let (breadth, budget) = (self.breadth(request), self.budget(request));
        if !is_wide_enough(breadth, budget, candidates) {
            let bytes = self.refuse(round, request, server, 440);
            if plan.context != 0 {
                let context = plan.context;
                let events = [NoticeEvent::Exhausted { status: 440, bytes }, NoticeEvent::Ended];
                self.reports.extend(events.map(|event| Report::Notice(Notice { context, event })));
            }
            return true;
        }
        let dialog = DialogUse::of(plan, request, routing);
        let id = self.contexts.insert(ResponseContext {
            server,
            first: Branch::default(),
            others: None,
            best: None,
            pending: None,
            call_hash: request.call_hash,
            live: 1,
            invite: request.method == Method::Invite,
            direct: dialog.within && routing.route.is_none(),
            dialog,
            cancelled: false,
            answered: false,
            user: plan.context,
            policy: Some(self.policy.clone()),
            began: (round.now.mono as u32).max(1),
            session: plan.session,
        });
        self.unanswered += 1;
        round.tx.set_user(server, TransactionUser::new(Role::Proxy(id)));
        self.tidy_at.get_or_insert(round.now.mono + super::TIDY);
        if request.method != Method::Invite {
            round.tx.expect_answer(round.now, server);
        }
        // Fast path of nearly every request: one candidate, one address, no fork.
        if plan.is_plain()
            && let [candidate] = candidates
            && let [target] = candidate.targets
            && (candidate.fixed || self.with_tcp(round.now, request, *target).is_none())
        {
            let share = Share { breadth, left: budget - 1 };
            let branch = candidate.branch(*target, share, dialog);
            self.send_branch(round, request, routing, id, 0, &branch);
            return true;
        }
        let mut owned: Vec<OwnedCandidate> =
            candidates.iter().filter(|c| !c.targets.is_empty()).map(OwnedCandidate::of).collect();
        owned.sort_by_key(|c| Reverse(c.q));
        for candidate in &mut owned {
            if !candidate.fixed {
                candidate.enlarge(|target| self.with_tcp(round.now, request, target));
            }
        }
        if owned.is_empty() {
            self.contexts.remove(id);
            self.unanswered -= 1;
            round.tx.set_user(server, TransactionUser::NONE);
            return false;
        }
        let (bytes, room) = (request.message.bytes().len(), self.policy.settings.request_memory);
        let fits = |owned: &[OwnedCandidate]| {
            let branch = owned.iter().map(|candidate| branch_memory(bytes, candidate)).max();
            waiting_memory(bytes, owned) + branch.unwrap_or(0) <= room
        };
        while owned.len() > 1 && !fits(&owned) {
            owned.pop();
        }
        if !fits(&owned) {
            // The request is not kept for further targets.
            owned[0].targets.truncate(1);
        }
        // Half of the branches are reserved for targets that may be added after a failure.
        let reserve = if plan.asks || !plan.on_failure.is_empty() { budget / 2 } else { 0 };
        let left = divide(budget - reserve, &mut owned);
        let chosen = std::mem::take(&mut owned[0].asks);
        let mut request_bytes = Vec::with_capacity(request.message.bytes().len());
        request_bytes.extend_from_slice(request.message.bytes());
        let plan = OwnedPlan::of(plan, dialog);
        round.tx.bill(server, plan.on_failure.iter().map(OwnedFailurePlan::memory).sum());
        if let Some(context) = self.contexts.get_mut(id) {
            context.pending = Some(Box::new(Pending {
                request: request_bytes,
                arrival: *request.arrival,
                candidates: owned,
                next: 0,
                until: 0,
                share: Share { breadth, left },
                silent_until: None,
                plan,
                asking: Asking::No,
                chosen,
                reserve,
            }));
        }
        self.next_group(round, id)
    }

    /// Returns the TCP target for a request that is too large for UDP (section 18.1.1). Returns `None` for a UDP flow
    /// of a binding, whose device may not listen on TCP, and for a peer that recently accepted no TCP connection.
    fn with_tcp(&self, now: Now, request: &Request<'_>, target: Target) -> Option<Target> {
        let limit = self.policy.settings.tcp_above?;
        // Size of the header fields to be added: Via, Record-Route, Route.
        if target.transport != Transport::Udp || request.message.bytes().len() + 200 <= limit {
            return None;
        }
        let fits = request.message.bytes().len() <= UdpOnly::LONGEST;
        if fits && self.udp_only.holds(target.address, now.mono) {
            return None;
        }
        self.policy.router.target(Transport::Tcp, target.address, target.listener)
    }

    /// Sends the request to the next group of candidates with one q, or asks the user whether to try the next
    /// candidate. Returns false if no candidate is left, or if there is no memory for one while branches without a
    /// response are kept.
    pub(super) fn next_group(&mut self, round: &mut Round<'_>, id: Id) -> bool {
        let Some(context) = self.contexts.get_mut(id) else { return false };
        let Some(mut pending) = context.pending.take() else { return false };
        let from = pending.next;
        if pending.candidates.get(from).is_some_and(|candidate| !candidate.asks.is_empty()) {
            context.pending = Some(pending);
            self.ask(round.now, id, Asking::Candidate);
            return true;
        }
        let Some(q) = pending.candidates.get(from).map(|c| c.q) else {
            context.pending = Some(pending).filter(|pending| pending.plan.goes_on());
            return false;
        };
        let before: usize =
            context.branches().filter_map(|b| b.client).map(|client| round.tx.kept_memory(client)).sum();
        let bytes = pending.request.len();
        let mut memory = before + waiting_memory(bytes, &pending.candidates);
        let fits = |candidate: &&OwnedCandidate| {
            memory += branch_memory(bytes, candidate);
            candidate.q == q && candidate.asks.is_empty() && memory <= self.policy.settings.request_memory
        };
        let count = match pending.candidates[from..].iter().take_while(fits).count() {
            0 if before > 0 => {
                context.pending = Some(pending).filter(|pending| pending.plan.goes_on());
                return false;
            }
            count => count.max(1),
        };
        pending.next = from + count;
        let mut sent = false;
        let mut index = std::mem::take(&mut self.index);
        if let Some(request) = Request::again(&pending.request, &mut index, &pending.arrival, self.call_hash_of(id)) {
            // The breadth is divided among the candidates of one group; the next group gets all of it again (RFC 5393
            // section 5.3.3.1.1). Candidates beyond the breadth form the next group.
            let breadth = self.breadth(&request).max(1);
            let count = count.min(usize::from(breadth));
            pending.next = from + count;
            pending.share.breadth = breadth / count as u16;
            let share = pending.share;
            let routing = self.policy.router.route(round.now, &request);
            for (n, candidate) in pending.candidates[from..from + count].iter_mut().enumerate() {
                let target = candidate.targets[0];
                candidate.tried = 1;
                let branch = candidate.branch(target, share, pending.plan.dialog);
                self.send_branch(round, &request, &routing, id, (from + n) as u16, &branch);
                sent = true;
            }
        }
        self.index = index;
        let is_left =
            pending.next < pending.candidates.len() || pending.candidates.iter().any(|c| c.tried < c.targets.len());
        let (ring, plan) = (round.now.mono + pending.plan.ring_timeout, &pending.plan);
        let is_needed = is_left || plan.goes_on() || plan.ring_ends || plan.answer_timeout.is_some();
        if let Some(context) = self.contexts.get_mut(id).filter(|_| is_needed) {
            round.tx.bill(context.server, waiting_memory(bytes, &pending.candidates));
            context.pending = Some(pending);
        }
        self.start_fork_timer(id, ring);
        self.let_be_silent(id, round.now.mono);
        sent
    }

    /// Tells whether the request may have these branches at once, and any branch at all. Otherwise the answer is 440 (RFC 5393 section
    /// 5.3.3.1).
    pub fn has_breadth(&self, request: &Request<'_>, candidates: &[Candidate<'_>]) -> bool {
        is_wide_enough(self.breadth(request), self.budget(request), candidates)
    }

    /// Returns Max-Breadth of the request, at most the configured one (RFC 5393 section 5.3.3.1).
    fn breadth(&self, request: &Request<'_>) -> u16 {
        let most = self.policy.settings.max_breadth;
        let Some(value) = request.message.header(Name::MaxBreadth) else { return most };
        let digits = std::str::from_utf8(value).unwrap_or_default().trim();
        // A number that overflows is a large number.
        digits.parse().unwrap_or(most).min(most)
    }

    /// Answers a request that cannot be forwarded. Returns the range of the response in the outbox.
    fn refuse(&self, round: &mut Round<'_>, request: &Request<'_>, server: ServerId, status: u16) -> Range<usize> {
        let tag = self.policy.router.own_tag().of(request.call_id);
        let from = round.out.start();
        strowger_message::build::respond(&request.message, status, None, Some(&tag), &mut round.out.bytes).finish(b"");
        let range = from..round.out.bytes.len();
        round.tx.respond(round.now, server, status, range.clone(), round.out);
        range
    }

    fn call_hash_of(&self, id: Id) -> u32 {
        self.contexts.get(id).map_or(0, |e| e.call_hash)
    }

    /// Sends the request to the next address of the candidate of `client` (RFC 3263 section 4.3). Returns false if no
    /// address is left.
    pub(super) fn next_address(&mut self, round: &mut Round<'_>, id: Id, client: ClientId) -> bool {
        let Some(context) = self.contexts.get_mut(id) else { return false };
        let Some(at) = context.branch_mut(client).map(|b| b.candidate) else { return false };
        let Some(mut pending) = context.pending.take() else { return false };
        let mut sent = false;
        if let Some(candidate) = pending.candidates.get_mut(at as usize)
            && let Some(&target) = candidate.targets.get(candidate.tried)
        {
            candidate.tried += 1;
            let share = pending.share;
            let candidate = candidate.clone();
            let mut index = std::mem::take(&mut self.index);
            if let Some(request) = Request::again(&pending.request, &mut index, &pending.arrival, self.call_hash_of(id))
            {
                let routing = self.policy.router.route(round.now, &request);
                let branch = candidate.branch(target, share, pending.plan.dialog);
                self.send_branch(round, &request, &routing, id, at, &branch);
                sent = true;
            }
            self.index = index;
        }
        if let Some(context) = self.contexts.get_mut(id) {
            context.pending = Some(pending);
        }
        self.let_be_silent(id, round.now.mono);
        sent
    }

    /// Starts the time in which new targets must send any response, if the plan bounds it.
    fn let_be_silent(&mut self, id: Id, now: u64) {
        let Some(pending) = self.contexts.get_mut(id).and_then(|context| context.pending.as_mut()) else { return };
        let Some(timeout) = pending.plan.answer_timeout else { return };
        pending.silent_until = Some(now + timeout);
        self.fork_timers.push(Reverse((now + timeout, id.to_u64())));
    }

    fn send_branch(
        &mut self,
        round: &mut Round<'_>,
        request: &Request<'_>,
        routing: &Routing<'_>,
        id: Id,
        candidate: u16,
        branch: &OutgoingBranch<'_>,
    ) {
        let unique = self.entropy.u64();
        let OutgoingBranch { target, watched, registered, translated, .. } = *branch;
        let has_path = branch.uri.is_some() && !branch.path.is_empty();
        let enlarged = branch.enlarged && request.message.bytes().len() <= UdpOnly::LONGEST;
        let (range, branch) = self.write_request(round.now, request, routing, branch, unique, &mut round.out.bytes);
        let (length, tu) = (range.len(), TransactionUser::new(Role::Proxy(id)));
        let client = round.tx.send(
            round.now,
            range,
            &branch,
            request.message.method_text(),
            target,
            request.call_hash,
            tu,
            round.out,
        );
        if enlarged {
            round.out.set_fallback();
        }
        if let Some(context) = self.contexts.get_mut(id) {
            let number = unique as u32;
            let client = Some(client);
            let added = Branch {
                client,
                number,
                candidate,
                watched,
                registered,
                translated,
                has_path,
                enlarged,
                ..Branch::default()
            };
            context.add(added);
            round.tx.bill(context.server, memory_of(length) + BESIDE);
        }
    }

    /// Forwards an ACK for a 2xx to the first target of this candidate. Such an ACK is a transaction of its own without a response, so no
    /// state is kept. A retransmission gets the same branch.
    pub fn forward_ack(
        &mut self,
        round: &mut Round<'_>,
        request: &Request<'_>,
        routing: &Routing<'_>,
        candidate: &Candidate<'_>,
    ) {
        let budget = self.budget(request);
        let Some(&target) = candidate.targets.first().filter(|_| budget > 0) else { return };
        let no_routes = std::iter::empty();
        let unique = self.policy.router.branch_key.of_request(
            request.branch,
            no_routes,
            request.call_id,
            request.from_tag,
            request.cseq,
        );
        let share = Share { breadth: 0, left: budget - 1 };
        let branch = candidate.branch(target, share, DialogUse::NONE);
        let (range, _) = self.write_request(round.now, request, routing, &branch, unique, &mut round.out.bytes);
        round.out.send(target, range, 0);
    }

    /// Returns the number of branches that this request may become: the whole budget on its first arrival, or its share
    /// of the budget if it arrives again.
    fn budget(&self, request: &Request<'_>) -> u16 {
        let most = self.policy.settings.max_branches;
        self.policy.router.visits(request).next().map_or(most, |visit| visit.left.min(most))
    }
}

/// Memory of a branch in bytes, without its request: entries of its transactions, timers, keys, last response. Measured with responses of
/// the usual length.
const BESIDE: usize = 1_280;

/// Returns the memory of a branch for a request of this size: the request as sent to the target.
fn branch_memory(bytes: usize, candidate: &OwnedCandidate) -> usize {
    /// Size of further header fields, without URI and Path, and of the transaction entries.
    const MORE: usize = 768;
    memory_of(bytes + candidate.texts() + MORE)
}

/// Returns the memory of a request of this size that waits for these candidates, plus a quarter, because an allocator may round up.
fn waiting_memory(bytes: usize, candidates: &[OwnedCandidate]) -> usize {
    (bytes + candidates.iter().map(OwnedCandidate::memory).sum::<usize>()) / 4 * 5
}

/// Reduces the candidates and their addresses to the number of branches that the request may have. Returns the
/// remaining budget of each branch. Candidates of the highest q are kept, and each keeps at least one address.
fn divide(budget: u16, candidates: &mut Vec<OwnedCandidate>) -> u16 {
    candidates.truncate(budget as usize);
    let each = budget as usize / candidates.len().max(1);
    candidates.iter_mut().for_each(|candidate| candidate.targets.truncate(each));
    let branches = candidates.iter().map(|candidate| candidate.targets.len()).sum::<usize>() as u16;
    (budget - branches) / branches.max(1)
}

fn is_wide_enough(breadth: u16, budget: u16, candidates: &[Candidate<'_>]) -> bool {
    breadth > 0 && widest(candidates) <= breadth as usize && budget > 0
}

/// Returns the largest number of candidates with the same q.
fn widest(candidates: &[Candidate<'_>]) -> usize {
    let with = |q: u16| candidates.iter().filter(|c| c.q == q && !c.targets.is_empty()).count();
    if candidates.len() < 2 { candidates.len() } else { candidates.iter().map(|c| with(c.q)).max().unwrap_or(0) }
}
