//! REGISTER: from the request to the location table and back (RFC 3261 section 10.3).

use crate::contacts::first_hop;
use crate::credentials::{Keeping, Registrant, last_end};
use crate::decider::Decider;
use crate::engine::Engine;
use crate::handling::{Handling, Proof};
use crate::methods;
use crate::ping::NEEDS_PING;
use crate::reach;
use crate::reachability::is_unreachable;
use crate::registration_log::{Changes, Sender};
use crate::reply::{Party, Reply, Why};
use crate::stage::Verdict;
use crate::suspended::{Registration, Suspended};
use std::cell::Cell;
use strowger_cache::error::CacheError;
use strowger_core::digest::ChallengeHeader;
use strowger_core::log_limiter::Kind;
use strowger_core::registrar::{ExistingBinding, Refusal, Registrar};
use strowger_core::routing::contact_repair::{is_first_hop, is_narrower, is_needed, is_translated};
use strowger_core::routing::{Request, Scope};
use strowger_core::shown::{brief, shown};
use strowger_core::slots::Id;
use strowger_core::{Flow, Now, Outbox};
use strowger_message::{Message, Name, Uri};
use strowger_store::binding::{Binding, BindingId, BindingView, Received};
use strowger_store::error::StoreError;
use strowger_store::location::{self, Step, UpdateError, UpdateStatus};
use strowger_store::ticket::{SinkId, Ticket};

/// Bit of [`Binding::flags`]: the contact names a local user, whose contacts stand for it.
pub(crate) const LEADS_ON: u32 = 2;

/// Destination of a contact that leads to this server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Here {
    /// Local user: calls are forwarded to it.
    User,
    /// Server itself: it would get back each request that it sends there.
    Server,
}

impl Decider<'_> {
    /// Decides whether the sender of a REGISTER may change the bindings that it names.
    pub(crate) fn authorize_registration(&self, handling: &Handling<'_, '_>) -> Verdict {
        let party = handling.request.mandatory.to.uri;
        if party.sip().is_none_or(|uri| uri.user.is_none()) || !self.is_party_local(&party) {
            return Reply::unknown(Party::To).into();
        }
        if !self.policy.config.registrar.authenticate {
            return Verdict::Register(Proof::default(), None);
        }
        let shown = self.authenticate(handling, ChallengeHeader::WwwAuthenticate, &party);
        shown.map_or_else(Verdict::from, |(proof, registrant)| Verdict::Register(proof, registrant))
    }

    fn leads_here(&self, uri: &Uri<'_>, own: &[u8]) -> Option<Here> {
        if !self.names_user(uri) {
            return uri.sip().is_some_and(|sip| self.policy.router.leads_here(sip)).then_some(Here::Server);
        }
        let mut aor = Vec::new();
        self.write_aor(uri, &mut aor);
        Some(if aor == own { Here::Server } else { Here::User })
    }
}

impl Engine {
    /// Changes the bindings, has the credentials of the registrant stored, and answers.
    pub(crate) fn register(&mut self, handling: &mut Handling<'_, '_>, registrant: Option<&Registrant>) {
        let mut aor = std::mem::take(&mut self.buffers.aor);
        aor.clear();
        self.decider().write_aor(&handling.request.mandatory.to.uri, &mut aor);
        let mut registrar = std::mem::take(&mut self.stack.registrar);
        registrar.set_settings(&self.policy.registrar);
        self.update(handling, &aor, &mut registrar, registrant);
        self.stack.registrar = registrar;
        self.buffers.aor = aor;
    }

    fn update(
        &mut self,
        handling: &mut Handling<'_, '_>,
        aor: &[u8],
        registrar: &mut Registrar,
        registrant: Option<&Registrant>,
    ) {
        let (request, replayed) = (handling.request, handling.progress.proof.replayed);
        let (shared, policy) = (self.shared.clone(), self.policy.clone());
        // The table may return the ticket, so it must exist before.
        let durable = self.sinks.written;
        let may_wait = durable.is_some() || registrant.is_some();
        let id = may_wait.then(|| self.waiting.suspended.insert(Suspended::Registration(Box::default())));
        let sink = durable.unwrap_or(SinkId::NONE);
        let ticket = Ticket { sink, value: id.map_or(0, Id::to_u64) };
        let most = registrar.settings().max_contacts;
        let mut lines = std::mem::take(&mut self.buffers.lines);
        lines.clear();
        let mut pings = false;
        let mut changes = Changes::default();
        let (mut keeping, mut scratch) = (Keeping::None, self.sinks.scratch.take());
        let end = Cell::new(None);
        let outcome = {
            let (lines, pings, node) = (&mut lines, &mut pings, policy.config.server.node);
            let (keeping, scratch) = (&mut keeping, &mut scratch);
            let (noted, now) = (&mut changes, handling.now);
            let mut note = |registrar: &Registrar, bindings: &[ExistingBinding<'_>]| {
                noted.note(now, request, registrar, bindings, &shared.registration_lines);
            };
            let repair = policy.config.nat.contact_repair;
            // Moved into the closure, so that the steps may borrow from it.
            let decider = &mut *registrar;
            let is_unreachable = |binding: &BindingView<'_>| {
                is_unreachable(binding, policy.router.identity(), &shared.flows, &self.policy.router)
            };
            let here = |uri: &Uri<'_>| self.decider().leads_here(uri, aor);
            let is_own = |uri: &Uri<'_>| uri.sip().is_some_and(|uri| self.policy.router.leads_here(uri));
            let taken = || {
                if let Some(registrant) = registrant {
                    let bindings = (end.get(), request.message.has(Name::Contact));
                    *keeping = self.decider().keep_credentials(now, registrant, aor, bindings, ticket.value, scratch);
                }
            };
            shared.location.update_and(aor, handling.now.mono, most, ticket, taken, |current| {
                let sender = policy.scope_of_sender(request);
                let conditions =
                    Conditions { node, repair, is_unreachable: &is_unreachable, here: &here, sender, is_own: &is_own };
                let steps = decide(handling.now, request, decider, current, lines, pings, &conditions, &mut note);
                if replayed && !(matches!(&steps, Ok(steps) if steps.is_empty()) && is_of(request, current)) {
                    return Err(RegistrationError::Replayed);
                }
                end.set(steps.as_ref().ok().and_then(|steps| last_end(current, steps)));
                steps
            })
        };
        self.sinks.scratch.set(scratch);
        self.sinks.has_asked_cache |= keeping.answers() > 0;
        if pings {
            self.wake_pings(handling.now);
        }
        let needs_cache = policy.config.auth.credential_cache_required;
        let mut has_failed = false;
        if let (Ok(_), Keeping::Failed(error)) = (&outcome, &keeping) {
            self.decider().credentials_not_kept(&shown(aor).to_string(), *error);
            has_failed = needs_cache;
        }
        let left = u8::from(matches!(outcome, Ok(UpdateStatus::Pending))) + keeping.answers();
        match outcome {
            Ok(_) if left == 0 => {
                if !has_failed {
                    self.counters().registrations.one();
                }
                if !changes.is_empty() {
                    changes.log(&shown(aor).to_string(), &Sender::of(request));
                }
                let (status, lines) = if has_failed { (500, &b""[..]) } else { (200, &lines[..]) };
                let from = handling.out.start();
                self.decider().write_response(request, status, None, lines, &mut handling.out.bytes);
                let range = from..handling.out.bytes.len();
                handling.out.send(self.decider().reply_target(&request.mandatory.via, request.arrival), range, 0);
                if let Some(id) = id {
                    self.waiting.suspended.remove(id);
                }
            }
            Ok(_) => {
                let (mut ok, mut failed) = (Vec::new(), Vec::new());
                self.decider().write_response(request, 200, None, &lines, &mut ok);
                self.decider().write_response(request, 500, None, b"", &mut failed);
                let target = Some(self.decider().reply_target(&request.mandatory.via, request.arrival));
                if let Some(Suspended::Registration(waiting)) = id.and_then(|id| self.waiting.suspended.get_mut(id)) {
                    let log = (!changes.is_empty()).then(|| (changes, Sender::of(request)));
                    let (aor, stores) = (shown(aor).to_string(), keeping.stores());
                    let needs_cache = needs_cache && stores;
                    **waiting = Registration { ok, failed, target, aor, log, left, has_failed, stores, needs_cache };
                }
            }
            Err(error) => {
                if let Some(id) = id {
                    self.waiting.suspended.remove(id);
                }
                self.refuse_registration(handling, aor, registrar, error);
            }
        }
        self.buffers.lines = lines;
    }

    fn refuse_registration(
        &mut self,
        handling: &mut Handling<'_, '_>,
        aor: &[u8],
        registrar: &Registrar,
        error: UpdateError<RegistrationError>,
    ) {
        let request = handling.request;
        let (call_id, source) = (shown(request.call_id), request.arrival.remote);
        let reply = match error {
            UpdateError::Decision(RegistrationError::Replayed) => {
                Reply::challenge(ChallengeHeader::WwwAuthenticate, true)
            }
            UpdateError::Decision(RegistrationError::Registrar(refusal)) => {
                let mut lines = Vec::new();
                registrar.write_refusal(refusal, &mut lines);
                if self.respond(handling, refusal.status(), Why::Text(refusal.text()), &lines) {
                    self.counters().refused.one();
                }
                return;
            }
            UpdateError::Decision(RegistrationError::LeadsHere) => {
                Reply::refused(403).because("a contact, or the Path to it, names this server")
            }
            UpdateError::TooManyContacts { .. } | UpdateError::Invalid(_) => {
                if self.decider().may_say(handling, Kind::Registration) {
                    let reason = brief(&error);
                    tracing::info!(%call_id, %source, aor = %shown(aor), %reason, "registration refused");
                }
                Reply { why: Why::Logged, ..Reply::refused(403) }
            }
            UpdateError::TableFull | UpdateError::Refused(_) => {
                // The store logs its failure once; a warning for each phone would bury that line.
                tracing::debug!(%call_id, aor = %shown(aor), reason = %brief(&error), "registration refused");
                Reply::overloaded()
            }
            UpdateError::NoSuchBinding(_) => {
                if self.decider().may_say(handling, Kind::Registration) {
                    tracing::error!(%call_id, aor = %shown(aor), %error, "registration failed");
                }
                Reply { why: Why::Logged, ..Reply::new(500) }
            }
        };
        self.reply(handling, reply);
    }

    /// Takes the result of writing the bindings of a registration.
    pub(crate) fn written(&mut self, ticket: u64, result: Result<(), StoreError>, out: &mut Outbox) {
        let Some(Suspended::Registration(waiting)) = self.waiting.suspended.get_mut(Id::from_u64(ticket)) else {
            return;
        };
        if let Err(error) = result {
            waiting.log = None;
            tracing::debug!(aor = %waiting.aor, %error, "registration not kept: answered 500");
            self.counters().failed_writes.one();
        }
        self.registered(ticket, result.is_err(), out);
    }

    /// Takes the result of storing the credentials of a registration.
    pub(crate) fn credentials_kept(&mut self, ticket: u64, error: Option<CacheError>, out: &mut Outbox) {
        let Some(Suspended::Registration(waiting)) = self.waiting.suspended.get(Id::from_u64(ticket)) else { return };
        if let (Some(error), true) = (error, waiting.stores) {
            self.decider().credentials_not_kept(&waiting.aor, error);
        }
        let fails = error.is_some() && waiting.needs_cache;
        self.registered(ticket, fails, out);
    }

    /// Counts one result of those that a registration waits for. With the last one its 200 or 500 leaves.
    fn registered(&mut self, ticket: u64, fails: bool, out: &mut Outbox) {
        let id = Id::from_u64(ticket);
        let Some(Suspended::Registration(waiting)) = self.waiting.suspended.get_mut(id) else { return };
        waiting.has_failed |= fails;
        waiting.left = waiting.left.saturating_sub(1);
        if waiting.left > 0 {
            return;
        }
        let Some(Suspended::Registration(waiting)) = self.waiting.suspended.remove(id) else { return };
        let Some(target) = waiting.target else { return };
        if let Some((changes, sender)) = &waiting.log {
            changes.log(&waiting.aor, sender);
        }
        if !waiting.has_failed {
            self.counters().registrations.one();
        }
        let reply = if waiting.has_failed { &waiting.failed } else { &waiting.ok };
        let from = out.start();
        out.bytes.extend_from_slice(reply);
        let range = from..out.bytes.len();
        out.send(target, range, 0);
    }
}

/// Reason why a REGISTER changes nothing.
#[derive(Debug)]
enum RegistrationError {
    Registrar(Refusal),
    /// Contact or Path that names this server: requests to it would come back.
    LeadsHere,
    /// Credentials that were used before, in a request that is no copy of the one that used them.
    Replayed,
}

/// Tells whether this very request made one of the bindings, and names contacts.
fn is_of(request: &Request<'_>, current: &location::ExistingBindings<'_>) -> bool {
    request.message.has(Name::Contact)
        && current.iter().any(|binding| binding.call_id() == request.call_id && binding.cseq() == request.cseq)
}

/// Conditions of a decision besides the request.
struct Conditions<'a> {
    node: u16,
    repair: bool,
    is_unreachable: &'a dyn Fn(&BindingView<'_>) -> bool,
    here: &'a dyn Fn(&Uri<'_>) -> Option<Here>,
    /// Scope of the source address of the request.
    sender: Scope,
    /// Tells whether a Route with this URI names this server.
    is_own: &'a dyn Fn(&Uri<'_>) -> bool,
}

/// Asks the registrar and turns its plan into steps of the table; `lines` gets the header lines of the 200.
#[expect(clippy::too_many_arguments, reason = "what a binding is made of")]
fn decide<'c>(
    now: Now,
    request: &Request<'c>,
    registrar: &'c mut Registrar,
    current: &location::ExistingBindings<'_>,
    lines: &mut Vec<u8>,
    pings: &mut bool,
    conditions: &Conditions<'_>,
    note: &mut dyn FnMut(&Registrar, &[ExistingBinding<'_>]),
) -> Result<Vec<Step<'c>>, RegistrationError> {
    let ids: Vec<BindingId> = current.iter().map(|b| b.id()).collect();
    let most = registrar.settings().max_contacts;
    let is_full = !current.is_empty() && current.len() + request.message.contacts().count() > most;
    let bindings: Vec<ExistingBinding<'_>> = current
        .iter()
        .map(|b| ExistingBinding {
            uri: b.uri(),
            call_id: b.call_id(),
            cseq: b.cseq(),
            expires_at: b.expires_at(),
            q: b.q(),
            instance: b.instance(),
            reg_id: b.reg_id(),
            // It matters only then.
            unreachable: is_full && (conditions.is_unreachable)(&b),
            elsewhere: b.received().is_some_and(|from| from.address.ip() != request.arrival.remote.ip()),
        })
        .collect();
    registrar.decide(now, &request.message, &bindings).map_err(RegistrationError::Registrar)?;
    registrar.write_ok(now, &request.message, &bindings, lines);
    let registrar: &'c Registrar = registrar;
    note(registrar, &bindings);
    let message = request.message;
    let bytes = message.bytes();
    let arrival = request.arrival;
    let translated = is_translated(&request.mandatory.via, arrival);
    // If another proxy forwarded it, the Path or the Contact itself tells where its device is (RFC 3327 section 1).
    let direct = is_first_hop(&message);
    // This server is the first hop of a flow, and answers the keep-alives of streams (RFC 5626 sections 3.5.1 and 6).
    // It knows no STUN, so a datagram is no flow.
    let keeps_flow = if direct { arrival.transport.is_reliable() } else { edge_keeps_flows(&message) };
    if keeps_flow && registrar.upserts().iter().any(|upsert| upsert.reg_id != 0) {
        lines.extend_from_slice(b"Require: outbound\r\n");
    }
    let mut steps: Vec<Step<'c>> = registrar.removals().map(|i| Step::Remove(ids[i])).collect();
    if first_hop(registrar.path()).is_some_and(|first| (conditions.is_own)(&first)) {
        return Err(RegistrationError::LeadsHere);
    }
    for upsert in registrar.upserts() {
        let uri = &bytes[upsert.uri.clone()];
        let parsed = Uri::parse(uri).ok();
        let moved = match &parsed {
            Some(Uri::Sip(uri)) => is_needed(uri, arrival.transport, &arrival.remote, translated),
            _ => false,
        };
        let is_repaired = direct && (arrival.transport.is_reliable() || (conditions.repair && moved));
        // An address that reaches less far than the source belongs to the network of the device, though this server may
        // have the same address in its own network.
        let is_elsewhere = is_repaired && matches!(&parsed, Some(Uri::Sip(uri)) if is_narrower(uri, &arrival.remote));
        // Along the Path another proxy takes requests to the address of the contact.
        let names_here = |_: &Uri<'_>| registrar.path().is_empty() && !is_elsewhere;
        let here = parsed.filter(names_here).and_then(|uri| (conditions.here)(&uri));
        if here == Some(Here::Server) {
            return Err(RegistrationError::LeadsHere);
        }
        let behind = match registrar.path() {
            b"" => here.is_none() && is_repaired,
            _ => arrival.transport.is_reliable(),
        };
        *pings |= behind;
        let binding = Binding {
            uri,
            call_id: request.call_id,
            path: registrar.path(),
            instance: &bytes[upsert.instance.clone()],
            user_agent: message.header(Name::UserAgent).unwrap_or_default(),
            cseq: request.cseq,
            q: upsert.q,
            expires_at: upsert.expires_at,
            updated_at: now.wall,
            received: behind.then_some(Received { transport: arrival.transport as u8, address: arrival.remote }),
            flow: arrival.flow.filter(|_| behind).map(Flow::to_bytes),
            listener: arrival.listener.0,
            node: conditions.node,
            reg_id: upsert.reg_id,
            flags: if behind { NEEDS_PING } else { 0 }
                | if here.is_some() { LEADS_ON } else { 0 }
                | methods::flags(&message, &upsert.uri)
                | reach::flags(conditions.sender),
            ..Binding::EMPTY
        };
        steps.push(match upsert.replaces {
            Some(i) => Step::Replace(ids[i], binding),
            None => Step::Add(binding),
        });
    }
    Ok(steps)
}

/// Tells whether a proxy on the way promises by `ob` to keep the flows of its devices alive (RFC 5626 section 5.1).
fn edge_keeps_flows(message: &Message<'_>) -> bool {
    message.paths().flatten().any(|hop| hop.uri.sip().is_some_and(|uri| uri.params.find(b"ob").is_some()))
}
