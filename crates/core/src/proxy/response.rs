//! Forwarding of responses upstream (RFC 3261 section 16.7).

use super::response_context::{BestResponse, Branch, ResponseContext};
use super::upstream_response::{SenderFacts, challenge_lines, without_extras};
use super::{Proxy, best};
use crate::notice::NoticeEvent;
use crate::slots::Id;
use crate::transaction::{ClientId, ServerId, Transactions};
use crate::{Arrival, Round, Target};
use smallvec::SmallVec;
use std::sync::Arc;
use strowger_message::{Edit, Form, Index, Limits, Message, Name};

impl Proxy {
    /// Handles a response to the request of this client transaction, in the response context with this id.
    pub fn response(
        &mut self,
        round: &mut Round<'_>,
        id: Id,
        response: &Message<'_>,
        arrival: &Arrival,
        client: ClientId,
    ) {
        self.by_its_policy(id, |proxy| proxy.context_response(round, id, response, arrival, client));
    }

    fn context_response(
        &mut self,
        round: &mut Round<'_>,
        id: Id,
        response: &Message<'_>,
        arrival: &Arrival,
        client: ClientId,
    ) {
        let Some(status) = response.status() else { return };
        if is_for_us_alone(response) || response.index().form() != Form::Canonical {
            // No element upstream could parse this response, or different elements would parse it differently.
            if status >= 200 {
                self.branch_failed(round, id, client, 502);
            }
            return;
        }
        let Some(context) = self.contexts.get_mut(id) else { return };
        if status < 200 {
            if let Some(branch) = context.branch_mut(client).filter(|b| b.status < 200) {
                let before = std::mem::replace(&mut branch.status, status);
                // A repeated 100 does not prolong Timer C (step 2).
                if status > 100 || before == 0 {
                    round.tx.start_timer_c(round.now, client);
                }
            }
            // 100 is hop by hop. A provisional response after a final one is too late. Only an INVITE has provisional responses other than
            // 100 (RFC 4320 section 4.1).
            if status > 100 && context.invite && !context.answered {
                let after = context.first_sign(round.now);
                let branch = context.branch_of(client).map_or(0, |branch| branch.number);
                let (server, facts) = (context.server, SenderFacts::of(context, round.tx, client));
                let range = self.write_upstream(round.now, response, arrival, status, facts, &mut round.out.bytes);
                self.notice(id, NoticeEvent::Rang { status, branch, bytes: range.clone(), after });
                round.tx.respond(round.now, server, status, range, round.out);
            }
            return;
        }
        let cancelled = context.cancelled;
        let Some(branch) = context.branch_mut(client) else { return };
        if status < 300 && branch.status == REFUSED {
            return;
        }
        // A caller that has not sent a CANCEL must not get a 487 (section 21.4.25).
        let status = if status == 487 && branch.timed_out && !cancelled { 408 } else { status };
        // A branch whose time was over counts as timed out: the search continued without it, or does so now.
        let was_given_up = branch.timed_out || branch.status >= 200;
        branch.status = status;
        let upstream = if branch.has_path { best::of_edge } else { best::upstream };
        if status < 300 {
            // Each 2xx of an INVITE is sent upstream at once (step 5); of another request, only the first 2xx.
            if !context.answered || context.invite {
                self.unanswered -= usize::from(!context.answered);
                let first = !std::mem::replace(&mut context.answered, true);
                context.pending = None;
                context.best = None;
                let (server, facts) = (context.server, SenderFacts::of(context, round.tx, client));
                let range = self.write_upstream(round.now, response, arrival, status, facts, &mut round.out.bytes);
                let after = self.contexts.get_mut(id).and_then(|context| context.first_sign(round.now));
                self.notice(id, NoticeEvent::Answered { status, first, bytes: range.clone(), after });
                round.tx.respond(round.now, server, status, range, round.out);
                let lines = self.completed_elsewhere.clone();
                self.cancel_others(round, id, &lines);
            }
            return;
        }
        let by = round.tx.client_target(client);
        if status == 503 {
            self.says_unavailable(id, client, by, response, arrival);
        }
        self.branch_ended(id, client);
        let Some(context) = self.contexts.get_mut(id) else { return };
        if context.answered {
            return;
        }
        self.notice(id, refusal(status, by));
        let Some(context) = self.contexts.get_mut(id) else { return };
        if status >= 600 {
            // No other branch is to answer (step 5), so the proxy cancels the open branches and waits for them.
            context.end_search();
            context.pending = context.pending.take().filter(|pending| pending.plan.goes_on());
            let text = strowger_message::status::reason(status);
            let lines = Arc::from(format!("Reason: SIP;cause={status};text=\"{text}\"\r\n").into_bytes());
            self.cancel_others(round, id, &lines);
        } else if !was_given_up {
            let again = status == 503 && context.is_unavailable_again(client);
            let plan = context.pending.as_ref().map(|pending| &pending.plan);
            let (next, ends) =
                plan.map_or((false, false), |p| (p.tries_next_address(status, again), p.ends_search(status)));
            if ends {
                context.end_search();
            } else if next && self.next_address(round, id, client) {
                return;
            }
        }
        let Some(context) = self.contexts.get_mut(id) else { return };
        if !context.is_waiting() && context.pending.is_none() && context.best.is_none() {
            // No other answer will arrive.
            self.unanswered -= 1;
            context.answered = true;
            let (server, invite) = (context.server, context.invite);
            if is_too_late(status, invite) {
                return self.abandon(round, id, server);
            }
            let status = upstream(status);
            let range =
                self.write_upstream(round.now, response, arrival, status, SenderFacts::NOTHING, &mut round.out.bytes);
            self.notice(id, NoticeEvent::Exhausted { status, bytes: range.clone() });
            round.tx.respond(round.now, server, status, range, round.out);
            return;
        }
        let (mut text, forwarded_status) = (Vec::new(), upstream(status));
        let range =
            self.write_upstream(round.now, response, arrival, forwarded_status, SenderFacts::NOTHING, &mut text);
        self.remember(id, status, forwarded_status, &text[range], response, round.tx);
        self.conclude(round, id);
    }

    /// Refuses a 2xx to an INVITE: its branch counts as failed with 502, and no further 2xx of the branch is sent
    /// upstream. The callee gets no ACK and ends the session itself (RFC 3261 section 13.3.1.4).
    pub fn refuse_answer(
        &mut self,
        round: &mut Round<'_>,
        id: Id,
        response: &Message<'_>,
        arrival: &Arrival,
        client: ClientId,
    ) {
        self.by_its_policy(id, |proxy| {
            let mut text = Vec::new();
            let range = proxy.write_upstream(round.now, response, arrival, REFUSED, SenderFacts::NOTHING, &mut text);
            let local = without_extras(&text[range]);
            proxy.branch_failed_as(round, id, client, (REFUSED, best::upstream(REFUSED)), Some(local));
            let context = proxy.contexts.get_mut(id);
            if let Some(branch) = context.and_then(|context| context.branch_mut(client))
                && !(200..300).contains(&branch.status)
            {
                branch.status = REFUSED;
            }
        });
    }

    /// Ends a failed branch, as if it had responded with `status` (section 16.9): 503 if its request could not be sent, 408 without an
    /// answer.
    pub(super) fn branch_failed(&mut self, round: &mut Round<'_>, id: Id, client: ClientId, status: u16) {
        let Some(context) = self.contexts.get(id) else { return };
        let branch = context.branch_of(client).copied().unwrap_or_default();
        let target = round.tx.lost_target(client).or_else(|| round.tx.client_target(client));
        // The party of a call is reached by its flow alone (RFC 5626 section 5.3.1).
        let is_flow = branch.translated && !branch.registered && target.is_some_and(|t| t.transport.is_reliable());
        let forwarded_status = match status {
            503 if is_flow => 430,
            // The copy by UDP is not sent.
            503 if branch.enlarged && context.cancelled => 487,
            status if branch.registered => best::of_user(status),
            status => best::upstream(status),
        };
        let local = round.tx.lost_request(client).and_then(|sent| self.local_response(sent, forwarded_status));
        self.branch_failed_as(round, id, client, (status, forwarded_status), local);
    }

    /// Ends a failed branch. `local`: response of this server that replaces the response of the branch.
    fn branch_failed_as(
        &mut self,
        round: &mut Round<'_>,
        id: Id,
        client: ClientId,
        (status, forwarded_status): (u16, u16),
        local: Option<Vec<u8>>,
    ) {
        self.branch_ended(id, client);
        let Some(context) = self.contexts.get_mut(id) else { return };
        let Some(branch) = context.branch_mut(client) else { return };
        if branch.status >= 200 {
            return;
        }
        let before = *branch;
        branch.status = status;
        let (answered, cancelled) = (context.answered, context.cancelled);
        let target = round.tx.lost_target(client).or_else(|| round.tx.client_target(client));
        self.comes_to_nothing(&before, status, target);
        // A peer that accepts no connection gets a copy by UDP; both are one attempt.
        let has_fallback = before.enlarged && status == 503;
        if !answered && (!has_fallback || cancelled) {
            self.notice(id, refusal(if has_fallback { 487 } else { status }, target));
        }
        let Some(context) = self.contexts.get(id) else { return };
        if answered || (!context.cancelled && self.next_address(round, id, client)) {
            return;
        }
        if let Some(bytes) = local {
            self.remember_local(id, status, forwarded_status, &bytes, round.tx);
        }
        self.conclude(round, id);
    }

    /// Emits the notice of the end of a branch of an INVITE, unless the branch had a 2xx.
    fn branch_ended(&mut self, id: Id, client: ClientId) {
        let Some(context) = self.contexts.get(id).filter(|context| context.invite) else { return };
        let branch = context.branch_of(client).filter(|branch| !(200..300).contains(&branch.status));
        if let Some(branch) = branch.map(|branch| branch.number) {
            self.notice(id, NoticeEvent::BranchEnded { branch });
        }
    }

    /// Ends branches whose time is over without any response. They cannot be cancelled, so they count as timed out
    /// (section 16.8), and the next candidates need not wait for timer B.
    pub(super) fn silent_branches_failed(&mut self, round: &mut Round<'_>, id: Id) {
        let Some(context) = self.contexts.get_mut(id) else { return };
        let mut silent: SmallVec<[Branch; 4]> = SmallVec::new();
        for branch in context.branches_mut().filter(|b| b.client.is_some() && b.status == 0) {
            silent.push(*branch);
            branch.status = 408;
        }
        for branch in &silent {
            let target = branch.client.and_then(|client| round.tx.client_target(client));
            self.comes_to_nothing(branch, 408, target);
            self.notice(id, NoticeEvent::TimedOut { target });
        }
        let Some(context) = self.contexts.get(id) else { return };
        let Some(pending) = context.pending.as_ref().filter(|_| !silent.is_empty()) else { return };
        let request = pending.request.clone();
        if let Some(bytes) = self.respond_to(&request, 408) {
            self.remember_local(id, 408, 408, &bytes, round.tx);
        }
        self.conclude(round, id);
    }

    /// Ends each target without any response in the time of the plan, and tries the next address of its candidate. A
    /// phone that rings later is cancelled.
    pub(super) fn end_silence(&mut self, round: &mut Round<'_>, id: Id) {
        let Some(context) = self.contexts.get_mut(id) else { return };
        let invite = context.invite;
        let mut silent: SmallVec<[Branch; 4]> = SmallVec::new();
        for branch in context.branches_mut().filter(|b| b.client.is_some() && b.status == 0) {
            silent.push(*branch);
            (branch.status, branch.timed_out) = (408, true);
        }
        for branch in silent {
            let Some(client) = branch.client else { continue };
            let target = round.tx.client_target(client);
            self.comes_to_nothing(&branch, 408, target);
            self.notice(id, NoticeEvent::TimedOut { target });
            if invite {
                round.tx.cancel(round.now, client, None, round.out);
            }
            if self.next_address(round, id, client) {
                continue;
            }
            let request = self.contexts.get(id).and_then(|c| c.pending.as_ref()).map(|pending| pending.request.clone());
            if let Some(bytes) = request.and_then(|request| self.respond_to(&request, 408)) {
                self.remember_local(id, 408, 408, &bytes, round.tx);
            }
        }
        self.conclude(round, id);
    }

    /// Sends 100 for a slow request other than INVITE: its sender learns that it arrived (RFC 4320 section 4.1).
    pub(super) fn trying(&self, round: &mut Round<'_>, id: Id, server: ServerId) {
        let Some(context) = self.contexts.get(id) else { return };
        let mut sent = Vec::new();
        if !context.branches().filter_map(|branch| branch.client).any(|client| round.tx.sent_request(client, &mut sent))
        {
            return;
        }
        if let Some(bytes) = self.local_response(&sent, 100) {
            let from = round.out.start();
            round.out.bytes.extend_from_slice(&bytes);
            round.tx.respond(round.now, server, 100, from..round.out.bytes.len(), round.out);
        }
    }

    fn remember_local(&mut self, id: Id, status: u16, forwarded_status: u16, bytes: &[u8], tx: &mut Transactions) {
        let mut index = Index::new();
        if index.parse(bytes, &Limits::UNLIMITED).is_ok() {
            self.remember(id, status, forwarded_status, bytes, &Message::new(bytes, &index), tx);
        }
    }

    /// Keeps the better of this final response and the best so far, and all challenges. If the caller has no memory for
    /// a long response, keeps only the mandatory header fields.
    fn remember(
        &mut self,
        id: Id,
        status: u16,
        forwarded_status: u16,
        upstream: &[u8],
        response: &Message<'_>,
        tx: &mut Transactions,
    ) {
        let Some(context) = self.contexts.get_mut(id) else { return };
        let server = context.server;
        let mut hold = |upstream: &[u8]| {
            if tx.try_bill(server, upstream.len()) {
                return upstream.to_vec();
            }
            let bytes = without_extras(upstream);
            tx.bill(server, bytes.len());
            bytes
        };
        match &mut context.best {
            None => {
                context.best = Some(Box::new(BestResponse {
                    status,
                    forwarded_status,
                    bytes: hold(upstream),
                    challenges: Vec::new(),
                }))
            }
            Some(held) if best::rank(status) < best::rank(held.status) => {
                let kept = if matches!(held.status, 401 | 407) { challenge_lines(&held.bytes) } else { Vec::new() };
                held.challenges.extend_from_slice(&kept);
                (held.status, held.forwarded_status) = (status, forwarded_status);
                held.bytes = hold(upstream);
            }
            Some(held) if matches!(status, 401 | 407) => {
                let mut lines = Vec::new();
                for line in response.index().lines() {
                    if matches!(line.name, Name::WwwAuthenticate | Name::ProxyAuthenticate) {
                        lines.extend_from_slice(&response.bytes()[line.start as usize..line.end as usize]);
                    }
                }
                if tx.try_bill(server, lines.len()) {
                    held.challenges.extend_from_slice(&lines);
                }
            }
            Some(_) => (),
        }
    }

    /// Tries the next targets, or sends the best response upstream, when every branch has ended.
    fn conclude(&mut self, round: &mut Round<'_>, id: Id) {
        let Some(context) = self.contexts.get(id) else { return };
        if context.answered || context.is_waiting() || context.is_choosing() {
            return;
        }
        if context.pending.is_some() && !context.cancelled && self.next_group(round, id) {
            return;
        }
        self.fail(round, id);
    }

    /// Sends the best response upstream.
    pub(super) fn finish(&mut self, round: &mut Round<'_>, id: Id) {
        let Some(context) = self.contexts.get_mut(id).filter(|context| !context.answered) else { return };
        self.unanswered -= 1;
        context.answered = true;
        context.pending = None;
        let server = context.server;
        let held = context.best.take().filter(|held| !is_too_late(held.status, context.invite));
        let Some(held) = held else { return self.abandon(round, id, server) };
        let from = round.out.start();
        if held.challenges.is_empty() || !matches!(held.status, 401 | 407) {
            round.out.bytes.extend_from_slice(&held.bytes);
        } else {
            let mut index = Index::new();
            match index.parse(&held.bytes, &Limits::UNLIMITED) {
                Ok(()) => {
                    let message = Message::new(&held.bytes, &index);
                    let mut edit = Edit::new();
                    edit.insert(index.headers_end(), |text| text.extend_from_slice(&held.challenges));
                    edit.write(&message, &mut round.out.bytes);
                }
                Err(_) => round.out.bytes.extend_from_slice(&held.bytes),
            }
        }
        let range = from..round.out.bytes.len();
        let status = held.forwarded_status;
        self.notice(id, NoticeEvent::Exhausted { status, bytes: range.clone() });
        round.tx.respond(round.now, server, status, range, round.out);
    }

    /// Ends the request without a response upstream.
    pub(super) fn abandon(&mut self, round: &mut Round<'_>, id: Id, server: ServerId) {
        self.notice(id, NoticeEvent::Abandoned);
        round.tx.abandon(round.now, server);
    }

    /// Cancels the other branches. `lines`: Reason header line.
    fn cancel_others(&mut self, round: &mut Round<'_>, id: Id, lines: &Arc<[u8]>) {
        let Some(context) = self.contexts.get(id) else { return };
        if context.others.is_some() {
            self.cancel_branches(round, id, Some(lines));
        }
    }
}

impl ResponseContext {
    /// Notes a 503 of a target. Returns whether another target of the same candidate has sent a 503 before. Its further targets probably
    /// carry the same load, and a request that was tried at all of them would multiply the load.
    fn is_unavailable_again(&mut self, client: ClientId) -> bool {
        let Some(at) = self.branch_of(client).map(|branch| usize::from(branch.candidate)) else { return false };
        let candidate = self.pending.as_mut().and_then(|pending| pending.candidates.get_mut(at));
        candidate.is_some_and(|candidate| std::mem::replace(&mut candidate.unavailable, true))
    }
}

/// Status of a branch whose 2xx was refused. After such a status, further 2xx of the branch are dropped.
const REFUSED: u16 = 502;

/// Returns the notice of a failed branch.
const fn refusal(status: u16, target: Option<Target>) -> NoticeEvent {
    match status {
        408 => NoticeEvent::TimedOut { target },
        _ => NoticeEvent::Refused { status, by: target },
    }
}

/// Tells whether no Via is left after ours is removed, so that the response is not forwarded (section 16.7 step 3).
fn is_for_us_alone(response: &Message<'_>) -> bool {
    !response.has_several(Name::Via)
}

/// Tells whether no client waits for this status any more: a 408 of a request other than INVITE (RFC 4320 section 4.2).
fn is_too_late(status: u16, invite: bool) -> bool {
    status == 408 && !invite
}
