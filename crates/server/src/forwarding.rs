//! Forwarding of a request to the proxy of `core`, with its targets and without concealed identities (RFC 3261 section
//! 16.6).

use crate::contacts::{Contact, Contacts};
use crate::decider::Decider;
use crate::decision::{AfterFailure, Decision};
use crate::destination::{Destination, DeviceFlows, Targets};
use crate::edits::Edits;
use crate::engine::Engine;
use crate::handling::Handling;
use crate::identity::names_caller;
use crate::reply::{Reply, Why};
use crate::rule_target_addresses::rank;
use crate::rule_target_forwarding::limited_targets;
use crate::session_timer::SessionTimer;
use smallvec::SmallVec;
use strowger_calls::Context;
use strowger_config::UnmatchedCancel;
use strowger_core::Now;
use strowger_core::proxy::{Candidate, Plan, Rerouting};
use strowger_core::routing::{Request, Routing};
use strowger_core::shown::shown;
use strowger_core::transaction::ServerId;
use strowger_message::{Message, Method};

/// Next step of a request whose destination is known.
#[derive(Debug)]
pub(crate) enum Onward {
    /// Response of this server.
    Reply(Reply),
    /// Redirection to the destination.
    Redirect,
    /// Continuation by a decision of rules, because the destination has no address; without such a decision this reply
    /// is sent.
    Decide(Box<Decision>, Reply),
    /// Forwarding to the destination.
    Forward(SessionTimer),
}

/// Logs that a request has failed before it was forwarded, and continues by rules.
pub(crate) fn log_failed(handling: &Handling<'_, '_>, status: u16) {
    let call_id = shown(handling.request.call_id);
    tracing::debug!(status, %call_id, "failed before it was forwarded");
}

impl Decider<'_> {
    /// Returns the next step of a request whose destination is known.
    pub(crate) fn onward(
        &self,
        handling: &Handling<'_, '_>,
        routing: &Routing<'_>,
        destination: &Destination,
    ) -> Onward {
        if let Some(reply) = self.refusal_at_end(handling, routing) {
            return Onward::Reply(reply);
        }
        if handling.progress.context == 0
            && let Some((status, why)) = self.calls.unendable_within(handling.request)
        {
            return Onward::Reply(Reply::refused(status).because(why));
        }
        let timer = match self.session_timer(handling) {
            Ok(timer) => timer,
            Err(reply) => return Onward::Reply(reply),
        };
        let decision = handling.progress.decision.as_deref();
        if decision.is_some_and(|decision| decision.redirects(destination)) {
            return Onward::Redirect;
        }
        // An ACK is not answered.
        let unreachable = destination.unreachable().filter(|_| handling.request.method != Method::Ack);
        let Some(status) = unreachable else { return Onward::Forward(timer) };
        let why = match status {
            480 if matches!(destination, Destination::Places(_)) => "no user of the rule can be reached",
            480 => "no contact of the user can be reached",
            430 => "the connection of the party is gone",
            404 => "no route: nothing here leads to this kind of URI",
            _ => "no route: the next hop has no address that a listener reaches",
        };
        let reply = Reply::not_found(status).because(why);
        match self.after_failure(handling, status) {
            Some(AfterFailure::Try(next)) => Onward::Decide(next, reply),
            Some(AfterFailure::Answer(status)) => Onward::Reply(Reply { status, ..reply }),
            None => Onward::Reply(reply),
        }
    }

    /// Returns the plan of the proxy for a request with this decision, without its actions after failures.
    pub(crate) fn plan<'a>(&self, decision: Option<&'a Decision>) -> Plan<'a> {
        let set = self.policy.config.plan();
        let Some(decision) = decision else { return set };
        Plan {
            record_route: decision.stays().unwrap_or(set.record_route),
            ring_timeout: decision.ring_timeout.unwrap_or(set.ring_timeout),
            answer_timeout: decision.answer_timeout.or(set.answer_timeout),
            try_next: decision.try_next(),
            ring_ends: decision.ring_timeout.is_some(),
            ..set
        }
    }
}

impl Engine {
    /// Forwards a request, or answers it if its destination has no address.
    pub(crate) fn forward(
        &mut self,
        handling: &mut Handling<'_, '_>,
        routing: &Routing<'_>,
        contacts: &Contacts,
        destination: Destination,
    ) {
        let Some(timer) = self.goes_on(handling, routing, contacts, &destination) else { return };
        match destination {
            Destination::Contacts(targets) => self.forward_to_contacts(handling, routing, contacts, &targets, &timer),
            Destination::Places(targets) => self.forward_to_places(handling, routing, targets, &timer),
            Destination::FirstContact(target) => {
                let Some(first) = contacts.entries.first() else { return };
                let (uri, path) = (Some(&contacts.text[first.uri.clone()]), &contacts.text[first.path.clone()]);
                let candidate = Candidate { uri, path, targets: &[target], ..Candidate::default() };
                self.forward_ack(handling, routing, &candidate);
            }
            Destination::NextHop { mut targets, .. } => {
                // Otherwise a second Route of this server, or a seal, names the listener where the dialog began.
                if routing.listener.is_none() && routing.device.is_none() {
                    let shared = &self.shared;
                    for target in &mut targets {
                        let identity = self.policy.router.identity();
                        *target = self.local_addresses.settle(&*shared.routes, identity, *target, handling.now.mono);
                    }
                }
                let is_ack = handling.request.method == Method::Ack;
                if routing.device.is_none() {
                    // An ACK has no response that would show whether its target is reachable.
                    self.decider().order_targets(handling, &mut targets, !is_ack);
                }
                if is_ack {
                    let candidate = Candidate { targets: &targets, ..Candidate::default() };
                    return self.forward_ack(handling, routing, &candidate);
                }
                let edits = Edits::of(handling, &timer);
                let candidate = Candidate {
                    uri: None,
                    flows: &[],
                    path: b"",
                    targets: &targets,
                    q: 1000,
                    add: &edits.add,
                    remove: &edits.remove,
                    fixed: routing.device.is_some(),
                    translated: routing.device.is_some(),
                    // A party of a call that is no next hop of this server has no alternative address.
                    watched: routing.device.is_none(),
                    rerouting: Rerouting::None,
                    asks: b"",
                };
                self.send(handling, routing, &[candidate], &[], timer.session, &edits);
            }
        }
    }

    fn forward_ack(&mut self, handling: &mut Handling<'_, '_>, routing: &Routing<'_>, candidate: &Candidate<'_>) {
        if routing.in_dialog {
            self.confirm(handling.request);
            self.calls.on_ack(&self.policy.router, handling.request);
        }
        self.pass_concealed(handling, routing, |engine, handling, request, routing| {
            let round = &mut engine.stack.core.round(handling.now, handling.out);
            engine.stack.proxy.forward_ack(round, request, routing, candidate);
        });
    }

    fn forward_to_contacts(
        &mut self,
        handling: &mut Handling<'_, '_>,
        routing: &Routing<'_>,
        contacts: &Contacts,
        targets: &[Targets],
        timer: &SessionTimer,
    ) {
        let (text, edits) = (&contacts.text, Edits::of(handling, timer));
        // The names of edge proxies were looked up with the targets.
        let flows = |contact: &Contact| self.decider().flows_of(handling, contacts, contact).unwrap_or_default();
        let flows: SmallVec<[DeviceFlows<'_>; 2]> = contacts.entries.iter().map(flows).collect();
        let fork = self.policy.config.proxy.fork;
        let candidates: SmallVec<[Candidate<'_>; 2]> = contacts
            .entries
            .iter()
            .zip(targets)
            .zip(contacts.groups())
            .zip(&flows)
            .enumerate()
            .map(|(n, (((contact, target), group), flows))| Candidate {
                uri: Some(&text[contact.uri.clone()]),
                flows,
                path: &text[contact.path.clone()],
                targets: target,
                q: 1_000_u16.saturating_sub(rank(fork, n, group)),
                add: &edits.add,
                remove: &edits.remove,
                // A phone that registered by UDP may listen nowhere else (section 18.1.1 is for servers).
                fixed: contact.path.is_empty(),
                translated: contact.target.is_some(),
                watched: false,
                rerouting: Rerouting::None,
                asks: b"",
            })
            .collect();
        self.send(handling, routing, &candidates, &[], timer.session, &edits);
    }

    /// Sends a request to these candidates. `places`: the numbers of the candidates among the places of rules; empty if
    /// the candidates are no such places.
    pub(crate) fn send(
        &mut self,
        handling: &mut Handling<'_, '_>,
        routing: &Routing<'_>,
        candidates: &[Candidate<'_>],
        places: &[usize],
        session: u32,
        edits: &Edits,
    ) {
        let Some(server) = handling.server else { return };
        if !self.stack.proxy.has_breadth(handling.request, candidates) {
            return self.reply(handling, Reply::refused(440));
        }
        let is_emergency = handling.progress.decision.is_some()
            && self.decider().is_emergency(handling.now, handling.request, routing);
        let length = handling.request.message.bytes().len();
        let has_room = match is_emergency {
            true => self.holds_emergency(handling.now, handling.request, server),
            false => handling.is_proven() || self.stack.core.transactions.has_room_for_unproven(length),
        };
        if !has_room {
            return self.reply(handling, Reply::overloaded());
        }
        let is_far_leg = handling.is_far_leg();
        let (context, first) = if is_far_leg && handling.progress.context == 0 {
            self.enter_far_leg(handling, candidates, places)
        } else {
            let mut limited = limited_targets(handling, candidates, places);
            match handling.progress.context {
                0 => (self.context_of(handling, &mut limited), limited.first),
                context => (Context::Notices(context), limited.first),
            }
        };
        let context = match context {
            Context::Notices(context) => context,
            refused => return self.refuse_entry(handling, routing, refused),
        };
        // The candidates before this one have no room under their limits.
        let (mut candidates, mut places) = (&candidates[first..], places.get(first..).unwrap_or_default());
        let tracked = self.calls.begins_tracked_call(context);
        if tracked && !handling.request.to_tag.is_empty() {
            // The dialogs of two callees that answer would have the same tag, which the caller has chosen, and so would
            // be one dialog in the table.
            (candidates, places) = (candidates.get(..1).unwrap_or_default(), places.get(..1).unwrap_or_default());
        }
        self.trying(handling);
        self.doubt_unproven(handling, 0);
        if tracing::enabled!(tracing::Level::DEBUG) {
            self.decider().log_plan(handling, routing, candidates, places, edits);
        }
        self.counters().forwarded.one();
        let decision = handling.progress.decision.take();
        handling.progress.rule_identity = decision.as_ref().and_then(|decision| decision.identity.clone());
        let outside = !handling.progress.proof.in_dialog;
        let mut plan = Plan { context, session, tracked, outside, ..self.decider().plan(decision.as_deref()) };
        // The dialog of a far leg is one of the user agent of this server.
        plan.record_route &= !is_far_leg;
        if plan.records_route(handling.request, routing.in_dialog && !outside) {
            plan.account = self.decider().account_of_sender(handling, routing);
        }
        let sent = handling.out.sends().len();
        let is_forwarded = match decision.as_deref().filter(|decision| !decision.on_failure.is_empty()) {
            None => self.forward_concealed(handling, routing, server, candidates, &plan),
            Some(decision) => {
                self.forward_with_failures(handling, routing, (server, candidates), &plan, (decision, edits))
            }
        };
        if is_forwarded && !is_far_leg {
            let sends = handling.out.sends().get(sent).and_then(|send| handling.out.bytes.get(send.range()));
            let source = handling.request.arrival.remote;
            self.calls.forwarded(&self.policy.router, context, sends.unwrap_or_default(), source);
        } else if !is_forwarded && self.calls.not_forwarded(handling.now, context) {
            self.report_own(context, 500);
        }
        if is_far_leg && !is_forwarded {
            // Its user agent has got a 100, and waits.
            self.reply(handling, Reply::new(500));
        }
    }

    /// Takes a reserved entry for the transaction of an emergency call. Returns false if no entry is left.
    fn holds_emergency(&mut self, now: Now, request: &Request<'_>, server: ServerId) -> bool {
        let is_known = self.decider().is_known_source(now, request);
        self.stack.core.transactions.hold_emergency(server, request.arrival, is_known, request.message.bytes().len())
    }

    /// Returns the session timer of a request that continues to its destination; `None` if the request was answered,
    /// redirected or sent elsewhere.
    pub(crate) fn goes_on(
        &mut self,
        handling: &mut Handling<'_, '_>,
        routing: &Routing<'_>,
        contacts: &Contacts,
        destination: &Destination,
    ) -> Option<SessionTimer> {
        match self.decider().onward(handling, routing, destination) {
            Onward::Reply(reply) => self.reply(handling, reply),
            Onward::Redirect => self.redirect(handling, routing, contacts, destination),
            Onward::Decide(next, reply) => {
                log_failed(handling, reply.status);
                self.go_on_by(handling, routing, next);
            }
            Onward::Forward(timer) => return Some(timer),
        }
        None
    }

    /// Refuses a request that the table of calls does not admit.
    #[cold]
    pub(crate) fn refuse_entry(&mut self, handling: &mut Handling<'_, '_>, routing: &Routing<'_>, refusal: Context) {
        let reply = match refusal {
            Context::Full => Reply::overloaded(),
            Context::OverShare => {
                Reply::overloaded().because("caller or callee has as many tracked calls as places are free")
            }
            Context::Merged => Reply::refused(482).because("another call of this Call-ID and tag stands"),
            Context::Unendable((status, why)) => Reply::refused(status).because(why),
            Context::Limited(claim) => {
                let mut limits = self.policy.config.call_limits.iter();
                let place = limits.position(|limit| *limit.name.as_str() == *claim.counted.name);
                let why = place.map_or(Why::Text("as many calls as a limit lets"), Why::Limit);
                Reply { why, ..Reply::refused(claim.status) }
            }
            Context::PassedOver => return self.pass_over(handling, routing),
            // The table admits it.
            Context::Notices(_) => return,
        };
        self.reply(handling, reply);
    }

    /// Skips the failure in use, because its limits have no room for the call. The next failure for the same status is
    /// used.
    fn pass_over(&mut self, handling: &mut Handling<'_, '_>, routing: &Routing<'_>) {
        let Some(limited_failure) = handling.progress.decision.take().and_then(|decision| decision.limited_failure)
        else {
            return;
        };
        let (reply, after) = self.decider().after_full(handling, &limited_failure);
        handling.progress.decision = Some(Box::new(limited_failure.before));
        match after {
            Some(AfterFailure::Try(next)) => self.go_on_by(handling, routing, next),
            Some(AfterFailure::Answer(status)) => self.reply(handling, Reply { status, ..reply }),
            None => self.reply(handling, reply),
        }
    }

    /// Forwards the request without identities that its sender may not show. Returns false if nothing was sent.
    pub(crate) fn forward_concealed(
        &mut self,
        handling: &mut Handling<'_, '_>,
        routing: &Routing<'_>,
        server: ServerId,
        candidates: &[Candidate<'_>],
        plan: &Plan<'_>,
    ) -> bool {
        let sent = self.pass_concealed(handling, routing, |engine, handling, request, routing| {
            let round = &mut engine.stack.core.round(handling.now, handling.out);
            engine.stack.proxy.forward(round, request, routing, server, candidates, plan)
        });
        sent.unwrap_or(false)
    }

    /// Calls `pass` with the request without identities that its sender may not show. Returns `None` if the request has
    /// become too large.
    #[inline]
    fn pass_concealed<'m, T>(
        &mut self,
        handling: &mut Handling<'_, 'm>,
        routing: &Routing<'_>,
        pass: impl FnOnce(&mut Self, &mut Handling<'_, 'm>, &Request<'_>, &Routing<'_>) -> T,
    ) -> Option<T> {
        let request = handling.request;
        if !names_caller(&request.message) {
            return Some(pass(self, handling, request, routing));
        }
        self.conceal_and_pass(handling, routing, pass)
    }

    /// Calls `pass` with a second message from which identities are removed. Not inlined: most requests have nothing to
    /// conceal, and do not need the stack frame of a second message.
    #[inline(never)]
    fn conceal_and_pass<'m, T>(
        &mut self,
        handling: &mut Handling<'_, 'm>,
        routing: &Routing<'_>,
        pass: impl FnOnce(&mut Self, &mut Handling<'_, 'm>, &Request<'_>, &Routing<'_>) -> T,
    ) -> Option<T> {
        let request = handling.request;
        let (mut edit, (mut bytes, mut index)) =
            (std::mem::take(&mut self.buffers.edit), std::mem::take(&mut self.buffers.concealed));
        bytes.clear();
        let conceals = self.decider().conceal(handling, routing, &mut edit, &mut bytes);
        let passed = if !conceals {
            Some(pass(self, handling, request, routing))
        } else if index.parse(&bytes, &self.policy.limits).is_ok()
            && let Ok(request) = Request::of(Message::new(&bytes, &index), request.arrival, request.call_hash)
        {
            let routing = self.policy.router.route(handling.progress.began, &request);
            Some(pass(self, handling, &request, &routing))
        } else {
            None
        };
        (self.buffers.edit, self.buffers.concealed) = (edit, (bytes, index));
        passed
    }

    /// Sends a 100 at once, so that the caller need not retransmit the request (section 17.2.1).
    pub(crate) fn trying(&mut self, handling: &mut Handling<'_, '_>) {
        let request = handling.request;
        if request.method != Method::Invite || handling.progress.trying {
            return;
        }
        handling.progress.trying = true;
        let Some(server) = handling.server else { return };
        let from = handling.out.start();
        strowger_message::respond(&request.message, 100, None, None, &mut handling.out.bytes).finish(b"");
        let range = from..handling.out.bytes.len();
        self.doubt_unproven(handling, range.len());
        self.stack.core.transactions.respond(handling.now, server, 100, range, handling.out);
    }

    /// Answers a CANCEL, and cancels each branch (section 16.10). A CANCEL that matches nothing is answered 481, or
    /// dropped. It is not forwarded: an INVITE that this server forwards has a branch of its own, which no stateless
    /// copy of the CANCEL would match.
    pub(crate) fn cancel(&mut self, handling: &mut Handling<'_, '_>, invite: Option<ServerId>) {
        let Some(invite) = invite else {
            if self.policy.config.proxy.unmatched_cancel == UnmatchedCancel::Answer {
                return self.reply(handling, Reply::new(481));
            }
            if let Some(cancel) = handling.server {
                self.stack.core.transactions.abandon(handling.now, cancel);
            }
            return;
        };
        self.reply(handling, Reply::new(200));
        let round = &mut self.stack.core.round(handling.now, handling.out);
        self.stack.proxy.cancel(round, invite, &handling.request.message);
    }
}
