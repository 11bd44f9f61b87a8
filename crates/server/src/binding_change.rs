//! Change of the bindings of an address of record by a REGISTER, decided under the lock of their partition.

use crate::contacts::{LEADS_ON, first_hop};
use crate::credentials::{Keeping, last_end};
use crate::decider::Decider;
use crate::methods;
use crate::outbound::{FirstHop, KEEPS_FLOW, is_timed, registered_until, timed_until, write_flow_timer};
use crate::ping::NEEDS_PING;
use crate::reach;
use crate::reachability::is_unreachable;
use crate::registrant::Registrant;
use crate::registration_log::Changes;
use strowger_core::registrar::{ExistingBinding, Refusal, Registrar, Upsert};
use strowger_core::routing::Request;
use strowger_core::routing::contact_repair::{is_first_hop, is_narrower, is_needed, is_translated};
use strowger_core::{Flow, Now};
use strowger_message::{Message, Name, Uri};
use strowger_store::binding::{Binding, BindingId, Received};
use strowger_store::location::{ExistingBindings, Step, UpdateError, UpdateStatus};
use strowger_store::ticket::Ticket;

/// Destination of a contact that leads to this server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Here {
    /// Local user: calls are forwarded to it.
    User,
    /// The contact names the server itself, which would get back each request that it sends there.
    Server,
}

/// Reason why a REGISTER changes nothing.
#[derive(Debug)]
pub(crate) enum RegistrationError {
    Registrar(Refusal),
    /// Contact or Path that names this server: requests to it would return to this server.
    LeadsHere,
    /// The credentials were used before, and the request is no copy of the request that used them.
    Replayed,
}

/// REGISTER of an admitted sender.
pub(crate) struct BindingChange<'a, 'm> {
    pub(crate) decider: Decider<'a>,
    pub(crate) now: Now,
    pub(crate) request: &'a Request<'m>,
    /// Address of record.
    pub(crate) aor: &'a [u8],
    /// Set if the request's credentials were used before.
    pub(crate) replayed: bool,
    /// Registrant whose credentials are to be stored.
    pub(crate) registrant: Option<&'a Registrant>,
    /// Ticket of the answers of journal and cache.
    pub(crate) ticket: Ticket,
}

/// Change that the location table has taken.
pub(crate) struct Changed {
    /// Header lines of the 200.
    pub(crate) lines: Vec<u8>,
    /// Set if a new binding needs pings.
    pub(crate) pings: bool,
    /// End of the time in which the phone keeps the connection of the REGISTER open, in milliseconds of [`Now::mono`];
    /// 0: it does so no longer. `None`: nothing has changed.
    pub(crate) timed_until: Option<u64>,
    /// End of the last new binding that is reached over the connection of the REGISTER, in milliseconds of [`Now::mono`].
    pub(crate) registered_until: Option<u64>,
    /// Changes for the log.
    pub(crate) changes: Changes,
    /// Work of the credential cache.
    pub(crate) keeping: Keeping,
    /// End of the last binding.
    end: Option<u64>,
}

impl<'m> BindingChange<'_, 'm> {
    /// Changes the location table as a REGISTER asks. `lines`: memory for the header lines of the 200.
    ///
    /// # Errors
    /// Nothing was changed.
    pub(crate) fn enter(
        &self,
        registrar: &mut Registrar,
        lines: Vec<u8>,
    ) -> Result<(UpdateStatus, Changed), UpdateError<RegistrationError>> {
        let most = registrar.settings().max_contacts;
        let location = &self.decider.shared.location;
        // The registrar is moved into the closure, so that the steps may borrow from it.
        let decide = move |current: &ExistingBindings<'_>| {
            let decided = self.decide(registrar, current, lines);
            let changes_nothing = matches!(&decided, Ok((steps, _)) if steps.is_empty());
            if self.replayed && !(changes_nothing && is_of(self.request, current)) {
                return Err(RegistrationError::Replayed);
            }
            decided
        };
        location.update_and(self.aor, self.now.mono, most, self.ticket, decide, |changed| self.keep(changed))
    }

    /// Stores the credentials of the registrant in the cache. The cache gets registrations in the order of the decisions.
    fn keep(&self, changed: Changed) -> Changed {
        let Some(registrant) = self.registrant else { return changed };
        let bindings = (changed.end, self.request.message.has(Name::Contact));
        let keeping = self.decider.keep_credentials(self.now, registrant, self.aor, bindings, self.ticket.value);
        Changed { keeping, ..changed }
    }

    /// Asks the registrar for its plan, and translates the plan into steps of the location table.
    fn decide<'c>(
        &self,
        registrar: &'c mut Registrar,
        current: &ExistingBindings<'_>,
        mut lines: Vec<u8>,
    ) -> Result<(Vec<Step<'c>>, Changed), RegistrationError>
    where
        'm: 'c,
    {
        let (now, request, message) = (self.now, self.request, self.request.message);
        let Decider { policy, shared, .. } = self.decider;
        let ids: Vec<BindingId> = current.iter().map(|b| b.id()).collect();
        let most = registrar.settings().max_contacts;
        let is_full = !current.is_empty() && current.len() + message.contacts().count() > most;
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
                // Only a full AOR needs this value.
                unreachable: is_full && is_unreachable(&b, policy.identity(), &shared.flows, &policy.router),
                elsewhere: b.received().is_some_and(|from| from.address.ip() != request.arrival.remote.ip()),
            })
            .collect();
        registrar.decide(now, &message, &bindings).map_err(RegistrationError::Registrar)?;
        registrar.write_ok(now, &message, &bindings, &mut lines);
        let registrar: &'c Registrar = registrar;
        let mut changes = Changes::default();
        changes.note(now, request, registrar, &bindings, &shared.registration_lines);
        let arrival = request.arrival;
        // If another proxy forwarded the REGISTER, the Path or the Contact tells where the device is (RFC 3327 section 1).
        let is_direct = is_first_hop(&message);
        // This server is the first hop of a flow, and answers the keep-alives of streams (RFC 5626 sections 3.5.1 and
        // 6). This server does not implement STUN, so datagrams do not make a flow.
        let keeps_flows = if is_direct { arrival.transport.is_reliable() } else { edge_keeps_flows(&message) };
        let hop = FirstHop { is_direct, keeps_flows, transport: arrival.transport };
        if registrar.upserts().iter().any(|upsert| hop.is_flow(upsert)) {
            lines.extend_from_slice(b"Require: outbound\r\n");
        }
        let is_own = |uri: &Uri<'_>| uri.sip().is_some_and(|uri| policy.router.leads_here(uri));
        if first_hop(registrar.path()).is_some_and(|first| is_own(&first)) {
            return Err(RegistrationError::LeadsHere);
        }
        let mut steps: Vec<Step<'c>> = registrar.removals().map(|i| Step::Remove(ids[i])).collect();
        for upsert in registrar.upserts() {
            let binding = self.binding(registrar.path(), upsert, hop)?;
            steps.push(match upsert.replaces {
                Some(i) => Step::Replace(ids[i], binding),
                None => Step::Add(binding),
            });
        }
        let needs_ping = |step: &Step<'_>| matches!(step, Step::Replace(_, binding) | Step::Add(binding) if binding.flags & NEEDS_PING != 0);
        let (pings, end) = (steps.iter().any(needs_ping), last_end(current, &steps));
        let timed_until = match timed_until(&steps) {
            Some(end) => {
                write_flow_timer(&mut lines);
                Some(end)
            }
            None => (!steps.is_empty() && is_timed(current, arrival.flow)).then_some(0),
        };
        let registered_until = registered_until(&steps);
        let keeping = Keeping::None;
        Ok((steps, Changed { lines, pings, timed_until, registered_until, changes, keeping, end }))
    }

    /// Returns the binding of a contact.
    fn binding<'c>(&self, path: &'c [u8], upsert: &Upsert, hop: FirstHop) -> Result<Binding<'c>, RegistrationError>
    where
        'm: 'c,
    {
        let (request, message, config) = (self.request, self.request.message, &self.decider.policy.config);
        let (arrival, bytes) = (request.arrival, message.bytes());
        let uri = &bytes[upsert.uri.clone()];
        let parsed = Uri::parse(uri).ok();
        let translated = is_translated(&request.mandatory.via, arrival);
        let moved = match &parsed {
            Some(Uri::Sip(uri)) => is_needed(uri, arrival.transport, &arrival.remote, translated),
            _ => false,
        };
        let is_repaired = hop.is_direct && (arrival.transport.is_reliable() || (config.nat.contact_repair && moved));
        // An address of a narrower scope than the source belongs to the network of the device, even if this server has
        // the same address in its own network.
        let is_elsewhere = is_repaired && matches!(&parsed, Some(Uri::Sip(uri)) if is_narrower(uri, &arrival.remote));
        // With a Path, another proxy forwards requests to the address of the contact.
        let names_here = |_: &Uri<'_>| path.is_empty() && !is_elsewhere;
        let here = parsed.filter(names_here).and_then(|uri| self.leads_here(&uri));
        if here == Some(Here::Server) {
            return Err(RegistrationError::LeadsHere);
        }
        let behind = match path {
            b"" => here.is_none() && is_repaired,
            _ => arrival.transport.is_reliable(),
        };
        let keeper = if hop.is_kept(upsert, path) { KEEPS_FLOW } else { NEEDS_PING };
        Ok(Binding {
            uri,
            call_id: request.call_id,
            path,
            instance: &bytes[upsert.instance.clone()],
            user_agent: message.header(Name::UserAgent).unwrap_or_default(),
            cseq: request.cseq,
            q: upsert.q,
            expires_at: upsert.expires_at,
            updated_at: self.now.wall,
            received: behind.then_some(Received { transport: arrival.transport as u8, address: arrival.remote }),
            flow: arrival.flow.filter(|_| behind).map(Flow::to_bytes),
            listener: arrival.listener.0,
            node: config.server.node,
            reg_id: upsert.reg_id,
            flags: if behind { keeper } else { 0 }
                | if here.is_some() { LEADS_ON } else { 0 }
                | methods::flags(&message, &upsert.uri)
                | reach::flags(self.decider.policy.scope_of_sender(request)),
            ..Binding::EMPTY
        })
    }

    /// Returns which user of this server, or whether this server itself, is named by a contact; `None` if the contact
    /// leads elsewhere.
    fn leads_here(&self, uri: &Uri<'_>) -> Option<Here> {
        if !self.decider.names_user(uri) {
            let is_server = |sip| self.decider.policy.router.leads_here(sip);
            return uri.sip().is_some_and(is_server).then_some(Here::Server);
        }
        let mut aor = Vec::new();
        self.decider.write_aor(uri, &mut aor);
        Some(if aor == self.aor { Here::Server } else { Here::User })
    }
}

/// Tells whether this very request, which must name contacts, made one of the bindings.
fn is_of(request: &Request<'_>, current: &ExistingBindings<'_>) -> bool {
    request.message.has(Name::Contact)
        && current.iter().any(|binding| binding.call_id() == request.call_id && binding.cseq() == request.cseq)
}

/// Tells whether a proxy on the path promises by `ob` to keep the flows of its devices alive (RFC 5626 section 5.1).
fn edge_keeps_flows(message: &Message<'_>) -> bool {
    message.paths().flatten().any(|hop| hop.uri.sip().is_some_and(|uri| uri.params.find(b"ob").is_some()))
}
