//! A request goes on: to the proxy of `core`, with its targets and without what it must not say (RFC 3261 section 16.6).

use crate::calls::within::Context;
use crate::contacts::{Contact, Contacts};
use crate::decision::{AfterFailure, FailureDecision};
use crate::engine::Engine;
use crate::handling::Handling;
use crate::identity::names_caller;
use crate::reply::Reply;
use crate::session_timer::SessionTimer;
use crate::stage::Stage;
use smallvec::SmallVec;
use strowger_config::{Fork, UnmatchedCancel};
use strowger_core::proxy::{Candidate, FailurePlan, Plan, Remedy};
use strowger_core::routing::{Request, Routing};
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
    /// To the next hop, by a Route to put before others, if any; answered `otherwise` if no way leads there.
    NextHop { targets: Targets, route: Vec<u8>, otherwise: u16 },
}

/// What changes in the header of a request on its way.
#[derive(Default)]
struct Edits {
    add: Vec<u8>,
    remove: SmallVec<[Name; 4]>,
}

impl Edits {
    fn of(handling: &Handling<'_, '_>, timer: &SessionTimer) -> Self {
        let (mut add, mut remove) = (timer.lines.clone(), SmallVec::from_slice(timer.replaced()));
        if let Some(decision) = &handling.progress.decision {
            add.extend_from_slice(&decision.add);
            remove.extend_from_slice(&decision.remove);
        }
        Self { add, remove }
    }

    /// The same with further lines.
    fn with(&self, lines: &[u8]) -> Self {
        Self { add: [&self.add[..], lines].concat(), remove: self.remove.clone() }
    }
}

/// Places that rules name, as targets of a request.
type Places<'a> = SmallVec<[Candidate<'a>; 2]>;

/// The places with these numbers, in this order. One with a user takes the place of the Request-URI, one without leads there with the
/// Request-URI as it is.
fn places<'a>(
    to: &'a [String],
    targets: &'a [Targets],
    order: impl Iterator<Item = usize>,
    edits: &'a Edits,
) -> Places<'a> {
    let count = targets.len().min(1000) as u16;
    let has_user =
        |uri: &&String| Uri::parse(uri.as_bytes()).is_ok_and(|uri| uri.sip().is_some_and(|uri| uri.user.is_some()));
    let place = |(n, place): (usize, usize)| {
        Some(Candidate {
            uri: to.get(place).filter(has_user).map(|uri| uri.as_bytes()),
            targets: targets.get(place)?,
            q: count - (n as u16).min(count),
            add: &edits.add,
            remove: &edits.remove,
            watched: true,
            ..Candidate::default()
        })
    };
    order.enumerate().filter_map(place).collect()
}

fn plan_for<'a>(failure: &'a FailureDecision, to: &'a [Candidate<'a>]) -> FailurePlan<'a> {
    let remedy = failure.answer.map_or(Remedy::Try(to), Remedy::Answer);
    FailurePlan { statuses: &failure.statuses, remedy }
}

impl Engine {
    /// Forwards a request, or answers it if no way leads anywhere.
    pub(crate) fn forward(
        &mut self,
        handling: &mut Handling<'_, '_>,
        routing: &Routing<'_>,
        contacts: &Contacts,
        destination: Destination,
    ) {
        let timer = match self.session_timer(handling) {
            Ok(timer) => timer,
            Err(reply) => return self.reply(handling, reply),
        };
        if handling.progress.decision.as_ref().is_some_and(|decision| decision.redirect)
            && self.redirect(handling, routing, contacts, &destination)
        {
            return;
        }
        match destination {
            Destination::Contacts(targets) => self.forward_to_contacts(handling, routing, contacts, &targets, &timer),
            Destination::Places(mut targets) => {
                let order = self.order_places(handling, &mut targets);
                self.forward_to_places(handling, routing, &targets, &order, &timer);
            }
            Destination::FirstContact(target) => {
                let Some(first) = contacts.entries.first() else { return };
                let (uri, path) = (Some(&contacts.text[first.uri.clone()]), &contacts.text[first.path.clone()]);
                let candidate = Candidate { uri, path, targets: &[target], ..Candidate::default() };
                self.forward_ack(handling, routing, &candidate);
            }
            Destination::NextHop { mut targets, route, otherwise } => {
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
                    path: &route,
                    targets: &targets,
                    q: 1000,
                    add: &edits.add,
                    remove: &edits.remove,
                    fixed: routing.device.is_some(),
                    translated: routing.device.is_some(),
                    // A party of a call that is no next hop of this server's has no other address.
                    watched: routing.device.is_none(),
                };
                self.send(handling, routing, &[candidate], otherwise, timer.session, &edits);
            }
        }
    }

    fn forward_ack(&mut self, handling: &mut Handling<'_, '_>, routing: &Routing<'_>, candidate: &Candidate<'_>) {
        if routing.in_dialog {
            self.confirm(handling.request);
        }
        let round = &mut Round { now: handling.now, tx: &mut self.transactions, out: handling.out };
        self.proxy.forward_ack(round, handling.request, routing, candidate);
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
            })
            .collect();
        self.send(handling, routing, &candidates, 480, timer.session, &edits);
    }

    fn forward_to_places(
        &mut self,
        handling: &mut Handling<'_, '_>,
        routing: &Routing<'_>,
        targets: &[Targets],
        order: &[usize],
        timer: &SessionTimer,
    ) {
        let edits = Edits::of(handling, timer);
        let to = handling.progress.decision.as_ref().map_or(Vec::new(), |decision| decision.to.clone());
        let candidates = places(&to, targets, order.iter().copied(), &edits);
        self.send(handling, routing, &candidates, 500, timer.session, &edits);
    }

    fn send(
        &mut self,
        handling: &mut Handling<'_, '_>,
        routing: &Routing<'_>,
        candidates: &[Candidate<'_>],
        otherwise: u16,
        session: u32,
        edits: &Edits,
    ) {
        let Some(server) = handling.server else { return };
        if candidates.iter().all(|c| c.targets.is_empty()) {
            let decision = handling.progress.decision.as_ref();
            let otherwise = match decision.and_then(|decision| decision.after_failure(otherwise)) {
                Some(AfterFailure::Try(next)) => {
                    (handling.progress.decision, handling.progress.stage) = (Some(next), Stage::Route);
                    return self.advance(handling);
                }
                Some(AfterFailure::Answer(status)) => status,
                None => otherwise,
            };
            let why = match otherwise {
                480 => "no contact of the user can be reached",
                404 => "no route: nothing here leads to this kind of URI",
                _ => "no route: the next hop has no address that a listener reaches",
            };
            return self.reply(handling, Reply::not_found(otherwise).because(why));
        }
        if !self.proxy.has_breadth(handling.request, candidates) {
            return self.reply(handling, Reply::refused(440));
        }
        let length = handling.request.message.bytes().len();
        if !handling.is_proven() && !self.transactions.has_room_for_unproven(length) {
            return self.reply(handling, Reply::overloaded());
        }
        let context = match self.context_of(handling) {
            Context::Notices(context) => context,
            Context::Full => return self.reply(handling, Reply::overloaded()),
            Context::Limited(status) => {
                return self.reply(handling, Reply::refused(status).because("as many calls as a limit lets"));
            }
        };
        self.trying(handling);
        self.doubt_unproven(handling, 0);
        self.counters().forwarded.one();
        let decision = handling.progress.decision.take();
        // The stage before has asked for the names of these places.
        let targets = decision.as_ref().and_then(|decision| self.targets_on_failure(handling, decision).ok());
        let targets = targets.unwrap_or_default();
        let failures = decision.as_ref().map_or(&[][..], |decision| &decision.on_failure);
        let edits: Vec<Edits> = failures.iter().map(|failure| edits.with(&failure.add)).collect();
        let failures = failures.iter().zip(&targets).zip(&edits);
        let failures: Vec<_> =
            failures.map(|((failure, to), edits)| (failure, places(&failure.to, to, 0..to.len(), edits))).collect();
        let on_failure: Vec<_> = failures.iter().map(|(failure, to)| plan_for(failure, to)).collect();
        let set = self.policy.config.plan();
        let plan = match &decision {
            None => Plan { context, session, ..set },
            Some(decision) => Plan {
                context,
                session,
                record_route: decision.record_route.unwrap_or(set.record_route),
                ring_timeout: decision.ring_timeout.unwrap_or(set.ring_timeout),
                answer_timeout: decision.answer_timeout.or(set.answer_timeout),
                try_next: decision.try_next(),
                ring_ends: decision.ring_timeout.is_some(),
                on_failure: &on_failure,
                ..set
            },
        };
        let sent = handling.out.sends().len();
        if self.forward_concealed(handling, routing, server, candidates, &plan) {
            self.forwarded(handling, context, sent);
        } else {
            self.not_forwarded(context);
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
        let (now, request) = (handling.now, handling.request);
        if !names_caller(&request.message) {
            let round = &mut Round { now, tx: &mut self.transactions, out: handling.out };
            return self.proxy.forward(round, request, routing, server, candidates, plan);
        }
        let (mut edit, (mut bytes, mut index)) = (std::mem::take(&mut self.edit), std::mem::take(&mut self.concealed));
        bytes.clear();
        let conceals = self.conceal(handling, routing, &mut edit, &mut bytes);
        let round = &mut Round { now, tx: &mut self.transactions, out: handling.out };
        let is_forwarded = if !conceals {
            self.proxy.forward(round, request, routing, server, candidates, plan)
        } else if index.parse(&bytes, &self.policy.limits).is_ok()
            && let Ok(request) = Request::of(Message::new(&bytes, &index), request.arrival, request.call_hash)
        {
            let routing = self.policy.router.route(handling.progress.began, &request);
            self.proxy.forward(round, &request, &routing, server, candidates, plan)
        } else {
            false
        };
        (self.edit, self.concealed) = (edit, (bytes, index));
        is_forwarded
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
