//! A request goes on: to the proxy of `core`, with its targets and without what it must not say (RFC 3261 section 16.6).

use crate::call_limits::Claim;
use crate::calls::within::{Context, Ways};
use crate::contacts::{Contact, Contacts};
use crate::decision::{AfterFailure, Decision, FailureDecision};
use crate::engine::Engine;
use crate::handling::Handling;
use crate::identity::names_caller;
use crate::places::Places;
use crate::reply::{Reply, Why};
use crate::session_timer::SessionTimer;
use smallvec::SmallVec;
use strowger_config::{Fork, UnmatchedCancel};
use strowger_core::proxy::{Candidate, FailurePlan, Plan, Remedy, TryNext};
use strowger_core::routing::{Request, Routing};
use strowger_core::shown::shown;
use strowger_core::transaction::ServerId;
use strowger_core::{Round, Target};
use strowger_message::{Message, Method, Name, Uri};

/// The addresses of one target, in the order in which they are tried.
pub(crate) type Targets = SmallVec<[Target; 2]>;

/// The Request-URIs of a contact by its older flows.
type OlderUris<'a> = Vec<(Target, &'a [u8])>;

/// Where a request goes.
#[derive(Debug, PartialEq)]
pub(crate) enum Destination {
    /// To the contacts that were looked up, each with its targets.
    Contacts(SmallVec<[Targets; 2]>),
    /// To the first of them: an ACK, of which there is one.
    FirstContact(Target),
    /// Where rules say, each place with its targets.
    Places(Vec<Targets>),
    /// Next hop by Route or Request-URI; status of the answer if it has no address.
    NextHop { targets: Targets, otherwise: u16 },
}

impl Destination {
    /// The answer where none of its targets has an address; none: one has.
    pub(crate) fn unreachable(&self) -> Option<u16> {
        match self {
            Self::Contacts(targets) => targets.iter().all(|targets| targets.is_empty()).then_some(480),
            Self::Places(targets) => targets.iter().all(|targets| targets.is_empty()).then_some(500),
            Self::NextHop { targets, otherwise, .. } => targets.is_empty().then_some(*otherwise),
            Self::FirstContact(_) => None,
        }
    }
}

/// What becomes of a request whose destination is known.
#[derive(Debug)]
pub(crate) enum Onward {
    /// It is answered.
    Reply(Reply),
    /// It is answered with where it would go.
    Redirect,
    /// Its destination has no address; in place of this answer it goes on by what rules say of that.
    Decide(Box<Decision>, Reply),
    /// It goes there.
    Forward(SessionTimer),
}

/// What changes in the header of a request on its way.
#[derive(Default)]
pub(crate) struct Edits {
    pub(crate) add: Vec<u8>,
    pub(crate) remove: SmallVec<[Name; 4]>,
}

impl Edits {
    pub(crate) fn of(handling: &Handling<'_, '_>, timer: &SessionTimer) -> Self {
        let (mut add, mut remove) = (timer.lines.clone(), SmallVec::from_slice(timer.replaced()));
        if let Some(decision) = &handling.progress.decision {
            add.extend_from_slice(&decision.add);
            remove.extend_from_slice(&decision.remove);
        }
        Self { add, remove }
    }

    /// The same with those of a failure, in place of so many of the failure that leads the request now ([`Decision::of_failure`]).
    fn with(&self, (added, removed): (usize, usize), failure: &FailureDecision) -> Self {
        let add = &self.add[..self.add.len() - added];
        let remove = &self.remove[..self.remove.len() - removed];
        Self { add: [add, &failure.add].concat(), remove: remove.iter().chain(&failure.remove).copied().collect() }
    }
}

/// Places that rules name, as targets of a request.
type Candidates<'a> = SmallVec<[Candidate<'a>; 2]>;

/// The places with these numbers, in this order. One with a user takes the place of the Request-URI, one without leads there with the
/// Request-URI as it is, or with the one that is given.
///
/// `asks`: [`Candidate::asks`] of each, by its number; empty: of none.
fn places<'a>(
    to: &'a [String],
    targets: &'a [Targets],
    order: impl Iterator<Item = usize>,
    uri: Option<&'a [u8]>,
    edits: &'a Edits,
    asks: &'a [Vec<u8>],
) -> Candidates<'a> {
    let count = targets.len().min(1000) as u16;
    let has_user =
        |uri: &&String| Uri::parse(uri.as_bytes()).is_ok_and(|uri| uri.sip().is_some_and(|uri| uri.user.is_some()));
    let place = |(n, place): (usize, usize)| {
        Some(Candidate {
            uri: to.get(place).filter(has_user).map(|uri| uri.as_bytes()).or(uri),
            targets: targets.get(place)?,
            q: count - (n as u16).min(count),
            add: &edits.add,
            remove: &edits.remove,
            watched: true,
            rerouted: true,
            asks: asks.get(place).map_or(&[], |asks| asks),
            ..Candidate::default()
        })
    };
    order.enumerate().filter_map(place).collect()
}

/// What the proxy is to ask before each of these places is tried, if a call may count under something at one of them, or did so before.
fn questions(to: &Places, counts: bool) -> Vec<Vec<u8>> {
    if !counts {
        return Vec::new();
    }
    (0..to.uris.len()).map(|place| Claim::write_all(to.claims(place))).collect()
}

/// A request has failed before it went anywhere, and goes on by what rules say of that.
pub(crate) fn log_failed(handling: &Handling<'_, '_>, status: u16) {
    let call_id = shown(handling.request.call_id);
    tracing::debug!(status, %call_id, "failed before it was forwarded");
}

/// Where a request may go, if its call counts under something at these places.
fn ways<'a>(handling: &'a Handling<'_, '_>, candidates: &[Candidate<'_>], places: &[usize]) -> Ways<'a> {
    let mut ways = Ways::default();
    if places.is_empty() {
        return ways;
    }
    let Some(decision) = handling.progress.decision.as_deref().filter(|decision| decision.to.may_count()) else {
        return ways;
    };
    let places = candidates.iter().zip(places).enumerate();
    let reached = places.filter(|(_, (candidate, _))| !candidate.targets.is_empty());
    ways.claims = reached.map(|(number, (_, place))| (number, decision.to.claims(*place))).collect();
    ways.first = ways.claims.first().map_or(0, |(number, _)| *number);
    ways
}

fn plan_for<'a>(failure: &'a FailureDecision, to: &'a [Candidate<'a>], asks: &'a [u8]) -> FailurePlan<'a> {
    let remedy = failure.answer.map_or(Remedy::Try(to), Remedy::Answer);
    FailurePlan {
        statuses: &failure.statuses,
        remedy,
        ring_timeout: failure.ring_timeout,
        answer_timeout: failure.answer_timeout,
        try_next: failure.try_next.as_deref().map_or(TryNext::Any, TryNext::On),
        asks,
    }
}

impl Engine {
    /// What becomes of a request now that its destination is known.
    pub(crate) fn onward(
        &self,
        handling: &Handling<'_, '_>,
        routing: &Routing<'_>,
        destination: &Destination,
    ) -> Onward {
        if self.is_of_ended_call(handling, routing) {
            return Onward::Reply(Reply::refused(481).because("the call has ended"));
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
            480 => "no contact of the user can be reached",
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

    /// Forwards a request, or answers it if no way leads anywhere.
    pub(crate) fn forward(
        &mut self,
        handling: &mut Handling<'_, '_>,
        routing: &Routing<'_>,
        contacts: &Contacts,
        destination: Destination,
    ) {
        let timer = match self.onward(handling, routing, &destination) {
            Onward::Reply(reply) => return self.reply(handling, reply),
            Onward::Redirect => return self.redirect(handling, routing, contacts, &destination),
            Onward::Decide(next, reply) => {
                log_failed(handling, reply.status);
                return self.go_on_by(handling, routing, next);
            }
            Onward::Forward(timer) => timer,
        };
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
                // Where a second Route of ours says it, or a seal, there the dialog began.
                if routing.listener.is_none() && routing.device.is_none() {
                    let shared = &self.shared;
                    for target in &mut targets {
                        let identity = self.policy.router.identity();
                        *target = self.local_addresses.settle(&*shared.routes, identity, *target, handling.now.mono);
                    }
                }
                let is_ack = handling.request.method == Method::Ack;
                if routing.device.is_none() {
                    // No answer says what became of an ACK.
                    self.order_targets(handling, &mut targets, !is_ack);
                }
                if is_ack {
                    let candidate = Candidate { targets: &targets, ..Candidate::default() };
                    return self.forward_ack(handling, routing, &candidate);
                }
                let edits = Edits::of(handling, &timer);
                let candidate = Candidate {
                    uri: None,
                    uris: &[],
                    path: b"",
                    targets: &targets,
                    q: 1000,
                    add: &edits.add,
                    remove: &edits.remove,
                    fixed: routing.device.is_some(),
                    translated: routing.device.is_some(),
                    // A party of a call that is no next hop of this server's has no other address.
                    watched: routing.device.is_none(),
                    rerouted: false,
                    asks: b"",
                };
                self.send(handling, routing, &[candidate], &[], timer.session, &edits);
            }
        }
    }

    fn forward_ack(&mut self, handling: &mut Handling<'_, '_>, routing: &Routing<'_>, candidate: &Candidate<'_>) {
        if routing.in_dialog {
            self.confirm(handling.request);
        }
        self.pass_concealed(handling, routing, |engine, handling, request, routing| {
            let round = &mut Round { now: handling.now, tx: &mut engine.transactions, out: handling.out };
            engine.proxy.forward_ack(round, request, routing, candidate);
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
        let of_older =
            |contact: &Contact| contact.older.iter().map(|(flow, uri)| (*flow, &text[uri.clone()])).collect();
        let uris: SmallVec<[OlderUris<'_>; 2]> = contacts.entries.iter().map(of_older).collect();
        let fork = self.policy.config.proxy.fork;
        let count = contacts.entries.len().min(1000) as u16;
        let candidates: SmallVec<[Candidate<'_>; 2]> = contacts
            .entries
            .iter()
            .zip(targets)
            .zip(contacts.groups())
            .zip(&uris)
            .enumerate()
            .map(|(n, (((contact, target), group), uris))| Candidate {
                uri: Some(&text[contact.uri.clone()]),
                uris,
                path: &text[contact.path.clone()],
                targets: target,
                q: match fork {
                    Fork::Parallel => 1000,
                    Fork::Sequence => count - (n as u16).min(count),
                    Fork::ByQ => count - group.min(count),
                },
                add: &edits.add,
                remove: &edits.remove,
                // What registered by UDP may listen nowhere else (section 18.1.1 is for servers).
                fixed: contact.path.is_empty(),
                translated: contact.target.is_some(),
                watched: false,
                rerouted: false,
                asks: b"",
            })
            .collect();
        self.send(handling, routing, &candidates, &[], timer.session, &edits);
    }

    /// Apart: most requests go where they say themselves, and pass by less code.
    #[inline(never)]
    fn forward_to_places(
        &mut self,
        handling: &mut Handling<'_, '_>,
        routing: &Routing<'_>,
        mut targets: Vec<Targets>,
        timer: &SessionTimer,
    ) {
        let decision = handling.progress.decision.as_deref();
        let order = decision.map(|decision| self.order_of_groups(handling.request, &decision.to));
        let mut order = order.unwrap_or_default();
        self.order_places(handling, &mut targets, &mut order);
        let edits = Edits::of(handling, timer);
        let to = decision.map_or(Vec::new(), |decision| decision.to.uris.clone());
        let counts = |decision: &Decision| questions(&decision.to, decision.to.may_count());
        let asks = decision.map(counts).unwrap_or_default();
        let routes = self.emergency_routes(routing, &to);
        let mut candidates = places(&to, &targets, order.iter().copied(), None, &edits, &asks);
        if let Some(routes) = &routes {
            for (candidate, place) in candidates.iter_mut().zip(&order) {
                (candidate.uri, candidate.path) = (None, &routes[*place]);
            }
        }
        self.send(handling, routing, &candidates, &order, timer.session, &edits);
    }

    /// `places`: the numbers that the candidates have as places of rules; empty: they are none.
    fn send(
        &mut self,
        handling: &mut Handling<'_, '_>,
        routing: &Routing<'_>,
        candidates: &[Candidate<'_>],
        places: &[usize],
        session: u32,
        edits: &Edits,
    ) {
        let Some(server) = handling.server else { return };
        if !self.proxy.has_breadth(handling.request, candidates) {
            return self.reply(handling, Reply::refused(440));
        }
        let length = handling.request.message.bytes().len();
        let has_room = handling.is_proven() || self.transactions.has_room_for_unproven(length);
        if !has_room && !self.is_emergency(handling.now, handling.request, routing) {
            return self.reply(handling, Reply::overloaded());
        }
        let (context, first) = {
            let mut ways = ways(handling, candidates, places);
            match handling.progress.context {
                0 => (self.context_of(handling, &mut ways), ways.first),
                context => (Context::Notices(context), ways.first),
            }
        };
        let context = match context {
            Context::Notices(context) => context,
            Context::Full => return self.reply(handling, Reply::overloaded()),
            Context::OverShare => {
                let reply =
                    Reply::overloaded().because("caller or callee has as many tracked calls as places are free");
                return self.reply(handling, reply);
            }
            Context::Merged => {
                let reply = Reply::refused(482).because("another call of this Call-ID and tag stands");
                return self.reply(handling, reply);
            }
            Context::Limited(status, place) => {
                let why = place.map_or(Why::Text("as many calls as a limit lets"), Why::Limit);
                return self.reply(handling, Reply { why, ..Reply::refused(status) });
            }
            Context::PassedOver => return self.pass_over(handling, routing),
        };
        // Those before it have no room.
        let (candidates, places) = (&candidates[first..], places.get(first..).unwrap_or_default());
        self.trying(handling);
        self.doubt_unproven(handling, 0);
        if tracing::enabled!(tracing::Level::DEBUG) {
            self.log_plan(handling, routing, candidates, places, edits);
        }
        self.counters().forwarded.one();
        let decision = handling.progress.decision.take();
        let tracked = self.begins_tracked_call(context);
        let outside = !handling.progress.proof.in_dialog;
        let plan = Plan { context, session, tracked, outside, ..self.plan(decision.as_deref()) };
        let sent = handling.out.sends().len();
        let is_forwarded = match decision.as_deref().filter(|decision| !decision.on_failure.is_empty()) {
            None => self.forward_concealed(handling, routing, server, candidates, &plan),
            Some(decision) => {
                self.forward_with_failures(handling, routing, (server, candidates), &plan, (decision, edits))
            }
        };
        if is_forwarded {
            self.forwarded(handling, context, sent);
        } else {
            self.not_forwarded(handling.now, context);
        }
    }

    /// Forwards a request of which rules say what is to be done about failures. Apart: most requests have none, and pass by less code.
    #[inline(never)]
    fn forward_with_failures(
        &mut self,
        handling: &mut Handling<'_, '_>,
        routing: &Routing<'_>,
        (server, candidates): (ServerId, &[Candidate<'_>]),
        plan: &Plan<'_>,
        (decision, edits): (&Decision, &Edits),
    ) -> bool {
        // The stage before has asked for the names of these places.
        let targets = self.targets_on_failure(handling, decision).unwrap_or_default();
        let (failures, of_failure) = (&decision.on_failure, decision.of_failure());
        let changed = |failure: &FailureDecision| {
            let uri = failure.user.as_ref().and_then(|user| routing.uri_with_user(user));
            (edits.with(of_failure, failure), uri)
        };
        let changed: Vec<_> = failures.iter().map(changed).collect();
        let counts = decision.may_count_at_places();
        let first = |number, count| self.policy.first_after_failure(number, count, handling.request);
        let of_failure = |failure: &FailureDecision| questions(&failure.to, true);
        let asks: Vec<_> = failures.iter().filter(|_| counts).map(of_failure).collect();
        let failures = failures.iter().zip(&targets).zip(&changed).enumerate();
        let failures: Vec<_> = failures
            .map(|(n, ((failure, to), (edits, uri)))| {
                let asks = asks.get(n).map_or(&[][..], |asks| asks);
                let order = failure.to.groups().next().map(|_| failure.to.order(first));
                let order = (0..to.len()).map(|n| order.as_ref().map_or(n, |order| order[n]));
                (failure, places(&failure.to.uris, to, order, uri.as_deref(), edits, asks))
            })
            .collect();
        let of_failures: Vec<_> = failures.iter().map(|(failure, _)| failure.question()).collect();
        let on_failure = failures.iter().zip(&of_failures);
        let on_failure: Vec<_> = on_failure.map(|((failure, to), asks)| plan_for(failure, to, asks)).collect();
        self.forward_concealed(handling, routing, server, candidates, &Plan { on_failure: &on_failure, ..*plan })
    }

    /// The failure that leads a request on has no room for its call: the next that is for what failed has its turn.
    fn pass_over(&mut self, handling: &mut Handling<'_, '_>, routing: &Routing<'_>) {
        let Some(led) = handling.progress.decision.take().and_then(|decision| decision.led) else { return };
        let (reply, after) = self.after_full(handling, &led);
        handling.progress.decision = Some(Box::new(led.before));
        match after {
            Some(AfterFailure::Try(next)) => self.go_on_by(handling, routing, next),
            Some(AfterFailure::Answer(status)) => self.reply(handling, Reply { status, ..reply }),
            None => self.reply(handling, reply),
        }
    }

    /// How the proxy is to forward a request of which rules say this; what it does about failures aside.
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

    /// Forwards the request without what it must not say of its caller. False: nothing was sent.
    fn forward_concealed(
        &mut self,
        handling: &mut Handling<'_, '_>,
        routing: &Routing<'_>,
        server: ServerId,
        candidates: &[Candidate<'_>],
        plan: &Plan<'_>,
    ) -> bool {
        let sent = self.pass_concealed(handling, routing, |engine, handling, request, routing| {
            let round = &mut Round { now: handling.now, tx: &mut engine.transactions, out: handling.out };
            engine.proxy.forward(round, request, routing, server, candidates, plan)
        });
        sent.unwrap_or(false)
    }

    /// Calls `pass` with the request without identities that its sender may not show. None: the request has become too large.
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

    /// Apart: most requests say nothing that is to be concealed, and take no room for a second message.
    #[inline(never)]
    fn conceal_and_pass<'m, T>(
        &mut self,
        handling: &mut Handling<'_, 'm>,
        routing: &Routing<'_>,
        pass: impl FnOnce(&mut Self, &mut Handling<'_, 'm>, &Request<'_>, &Routing<'_>) -> T,
    ) -> Option<T> {
        let request = handling.request;
        let (mut edit, (mut bytes, mut index)) = (std::mem::take(&mut self.edit), std::mem::take(&mut self.concealed));
        bytes.clear();
        let conceals = self.conceal(handling, routing, &mut edit, &mut bytes);
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
        (self.edit, self.concealed) = (edit, (bytes, index));
        passed
    }

    /// 100 at once: the caller need not send again (section 17.2.1).
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
        self.transactions.respond(handling.now, server, 100, range, handling.out);
    }

    /// A CANCEL: answered here, and each branch cancelled (section 16.10). One that matches nothing is answered 481, or dropped: what
    /// we forward has a branch of its own, which no stateless copy of it would match.
    pub(crate) fn cancel(&mut self, handling: &mut Handling<'_, '_>, invite: Option<ServerId>) {
        let Some(invite) = invite else {
            if self.policy.config.proxy.unmatched_cancel == UnmatchedCancel::Answer {
                return self.reply(handling, Reply::new(481));
            }
            if let Some(cancel) = handling.server {
                self.transactions.abandon(handling.now, cancel);
            }
            return;
        };
        self.reply(handling, Reply::new(200));
        let round = &mut Round { now: handling.now, tx: &mut self.transactions, out: handling.out };
        self.proxy.cancel(round, invite, &handling.request.message);
    }
}
