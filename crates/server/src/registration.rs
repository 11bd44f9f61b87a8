//! REGISTER: processing from the request to the change of the location table and the response (RFC 3261 section 10.3).

use crate::binding_change::{BindingChange, Changed, RegistrationError};
use crate::credentials::Keeping;
use crate::decider::Decider;
use crate::effect::Effect;
use crate::engine::Engine;
use crate::handling::Handling;
use crate::outbound::LONGEST_SILENCE;
use crate::proof::Proof;
use crate::registrant::Registrant;
use crate::registration_log::Sender;
use crate::reply::{Party, Reply, Why};
use crate::stage::Verdict;
use crate::waiting::{Registration, Suspended};
use strowger_cache::error::CacheError;
use strowger_core::Outbox;
use strowger_core::digest::ChallengeHeader;
use strowger_core::log_limiter::LogSubject;
use strowger_core::registrar::Registrar;
use strowger_core::shown::{brief, shown};
use strowger_core::slots::Id;
use strowger_store::error::StoreError;
use strowger_store::location::{UpdateError, UpdateStatus};
use strowger_store::ticket::{SinkId, Ticket};

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
}

impl Engine {
    /// Changes the bindings, has the credentials of the registrant stored, and answers the REGISTER.
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
        // The table may hand the ticket back, so the ticket must be created before.
        let durable = self.sinks.written;
        let may_wait = durable.is_some() || registrant.is_some();
        let id = may_wait.then(|| self.waiting.suspended.insert(Suspended::Registration(Box::default())));
        let ticket = Ticket { sink: durable.unwrap_or(SinkId::NONE), value: id.map_or(0, Id::to_u64) };
        let mut lines = std::mem::take(&mut self.buffers.lines);
        lines.clear();
        let (request, replayed) = (handling.request, handling.progress.proof.replayed);
        let change =
            BindingChange { decider: self.decider(), now: handling.now, request, aor, replayed, registrant, ticket };
        match change.enter(registrar, lines) {
            Ok((status, changed)) => self.changed(handling, aor, id, status, changed),
            Err(error) => {
                if let Some(id) = id {
                    self.waiting.suspended.remove(id);
                }
                self.refuse_registration(handling, aor, registrar, error);
            }
        }
    }

    /// Answers a REGISTER whose change the table has accepted, unless the journal or the cache has to answer first.
    /// `id`: place of the registration among the suspended requests.
    fn changed(
        &mut self,
        handling: &mut Handling<'_, '_>,
        aor: &[u8],
        id: Option<Id>,
        status: UpdateStatus,
        changed: Changed,
    ) {
        let Changed { lines, pings, timed_until, registered_until, changes, keeping, .. } = changed;
        let request = handling.request;
        self.sinks.has_asked_cache |= keeping.answers() > 0;
        if pings && self.pings.note_new(handling.now, self.shard.number, &self.shared.pings_awake) {
            self.effects.push(Effect::WakePings);
        }
        if let (Some(until), Some(flow)) = (registered_until, request.arrival.flow) {
            self.shared.flows.registered(flow, until);
        }
        if let (Some(until), Some(flow)) = (timed_until, request.arrival.flow) {
            self.effects.push(Effect::LimitSilence { flow, longest: LONGEST_SILENCE, until });
        }
        let needs_cache = self.policy.config.auth.credential_cache_required;
        let mut has_failed = false;
        if let Keeping::Failed(error) = keeping {
            self.decider().credentials_not_kept(&shown(aor).to_string(), error);
            has_failed = needs_cache;
        }
        let decider = self.decider();
        let target = self.policy.reply_target(&request.mandatory.via, request.arrival);
        let left = u8::from(matches!(status, UpdateStatus::Pending)) + keeping.answers();
        if left == 0 {
            if !has_failed {
                decider.counters().registrations.one();
            }
            if !changes.is_empty() {
                changes.log(&shown(aor).to_string(), &Sender::of(request));
            }
            let (status, lines) = if has_failed { (500, &b""[..]) } else { (200, &lines[..]) };
            let from = handling.out.start();
            decider.write_response(request, status, None, lines, &mut handling.out.bytes);
            let range = from..handling.out.bytes.len();
            handling.out.send(target, range, 0);
            if let Some(id) = id {
                self.waiting.suspended.remove(id);
            }
        } else {
            let (mut ok, mut failed) = (Vec::new(), Vec::new());
            decider.write_response(request, 200, None, &lines, &mut ok);
            decider.write_response(request, 500, None, b"", &mut failed);
            let target = Some(target);
            if let Some(Suspended::Registration(waiting)) = id.and_then(|id| self.waiting.suspended.get_mut(id)) {
                let log = (!changes.is_empty()).then(|| (changes, Sender::of(request)));
                let (aor, stores) = (shown(aor).to_string(), keeping.stores());
                let needs_cache = needs_cache && stores;
                **waiting = Registration { ok, failed, target, aor, log, left, has_failed, stores, needs_cache };
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
                if self.decider().may_say(handling, LogSubject::Registration) {
                    let reason = brief(&error);
                    tracing::info!(%call_id, %source, aor = %shown(aor), %reason, "registration refused");
                }
                Reply { why: Why::Logged, ..Reply::refused(403) }
            }
            UpdateError::TableFull | UpdateError::Refused(_) => {
                // The store logs its failure once; a warning for each phone would hide that line.
                tracing::debug!(%call_id, aor = %shown(aor), reason = %brief(&error), "registration refused");
                Reply::overloaded()
            }
            UpdateError::NoSuchBinding(_) => {
                if self.decider().may_say(handling, LogSubject::Registration) {
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

    /// Counts one of the results for which a registration waits. After the last result the 200 or 500 is sent.
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
