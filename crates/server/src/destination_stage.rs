//! Third stage: destination of a request (RFC 3261 section 16.5).

use crate::contacts::{Contact, Contacts};
use crate::decider::Decider;
use crate::decision::{AfterFailure, Decision};
use crate::destination::{Destination, DeviceFlows, RuleTargetAddresses, Targets};
use crate::forwarding::log_failed;
use crate::handling::Handling;
use crate::question::{HostKey, Question, Resolved};
use crate::reachability::{is_gone, is_web, listens_at, may_listen, target_of};
use crate::reply::{Counted, Lines, Reply, Why};
use crate::role::ServerRole;
use crate::rule_targets::RuleTargets;
use crate::stage::Verdict;
use smallvec::SmallVec;
use std::net::SocketAddr;
use strowger_core::log_limiter::LogSubject;
use strowger_core::routing::contact_repair::is_invalid;
use strowger_core::routing::{NextHop, Request, Routing, Scope, UriTarget};
use strowger_core::shown::shown;
use strowger_core::{Arrival, ListenerId, Target, Transport};
use strowger_message::{Method, SipUri, Uri};
use strowger_store::subscriber;

/// Reason why the addresses of a next hop are missing.
#[derive(Debug)]
pub(crate) enum NoHop {
    /// Name that must be looked up first.
    Ask(Question),
    /// Refusal: the peer that named the next hop may name none of its addresses ([`crate::reach`]).
    Denied,
}

impl From<Question> for NoHop {
    fn from(question: Question) -> Self {
        Self::Ask(question)
    }
}

impl Decider<'_> {
    /// Returns the destination of an admitted request, and its destinations after a failure. The contacts of a local
    /// user are written to `contacts`.
    pub(crate) fn route(&self, handling: &Handling<'_, '_>, routing: &Routing<'_>, contacts: &mut Contacts) -> Verdict {
        if let Some(verdict) = self.role_verdict(handling) {
            return verdict;
        }
        let first = self.first_destination(handling, routing, contacts);
        let failed = if let Verdict::Reply(reply) = &first { Some(reply.status) } else { None };
        let verdict = self.with_failures(handling, first);
        if let (Some(status), Verdict::Decide(_)) = (failed, &verdict) {
            log_failed(handling, status);
        }
        verdict
    }

    /// Returns the verdict about a request of which this server is a party by its role, or which would get around this party; `None` if the server
    /// is the proxy or redirects.
    pub(crate) fn role_verdict(&self, handling: &Handling<'_, '_>) -> Option<Verdict> {
        match handling.progress.decision.as_deref()?.role {
            ServerRole::Endpoint => Some(Verdict::Answer),
            // A failure of a redirected call is bridged, and so would be the failure after it.
            ServerRole::Bridge if handling.is_far_leg() => None,
            ServerRole::Bridge if handling.begins_bridge() => Some(Verdict::Bridge),
            ServerRole::Bridge => self.refusal_beside_bridge(handling).map(Verdict::Reply),
            ServerRole::Proxy | ServerRole::Redirect => None,
        }
    }

    /// Applies the failure rules to the first destination of a request.
    pub(crate) fn with_failures(&self, handling: &Handling<'_, '_>, verdict: Verdict) -> Verdict {
        match (&verdict, &handling.progress.decision) {
            (Verdict::Forward(_), Some(decision)) if !decision.on_failure.is_empty() => {
                self.targets_on_failure(handling, decision).map_or_else(Verdict::Ask, |_| verdict)
            }
            (Verdict::Reply(reply), Some(_)) => match self.after_failure(handling, reply.status) {
                Some(AfterFailure::Answer(status)) => Reply { status, ..*reply }.into(),
                Some(AfterFailure::Try(next)) => Verdict::Decide(next),
                None => verdict,
            },
            _ => verdict,
        }
    }

    /// Returns the targets of the places for failures, in the order of [`Decision::on_failure`].
    pub(crate) fn targets_on_failure(
        &self,
        handling: &Handling<'_, '_>,
        decision: &Decision,
    ) -> Result<Vec<Vec<RuleTargetAddresses>>, Question> {
        decision.on_failure.iter().map(|failure| self.targets_of_places(handling, &failure.to)).collect()
    }

    /// Returns the first destination of a request, before any failure rule.
    pub(crate) fn first_destination(
        &self,
        handling: &Handling<'_, '_>,
        routing: &Routing<'_>,
        contacts: &mut Contacts,
    ) -> Verdict {
        if let Some(decision) = handling.progress.decision.as_ref().filter(|decision| !decision.to.is_empty()) {
            return self.route_to_places(handling, &decision.to);
        }
        if routing.device.is_none() && routing.route.is_none() && self.is_for_local(handling.request, &routing.uri) {
            return self.route_to_user(handling, routing, contacts);
        }
        let otherwise = match routing.uri.sip() {
            // A number or a service for which no setting names a route has no next hop.
            None if routing.route.is_none() => 404,
            // The party of a call has lost its connection, and may reconnect (RFC 5626 section 5.3.1).
            _ if routing.device.is_some_and(|device| is_gone(&self.shared.flows, &device)) => 430,
            _ if routing.device.is_some() => 480,
            // An unreachable next hop is treated like one that answers 503, which is forwarded upstream as 500 (section
            // 16.7 step 6).
            _ => 500,
        };
        let targets = match self.next_hop(handling, routing, &mut contacts.text) {
            Ok(targets) => targets,
            Err(NoHop::Ask(question)) => return Verdict::Ask(question),
            Err(NoHop::Denied) => {
                let reply = Reply { counted: Counted::RelayDenied, ..Reply::new(otherwise) };
                return reply.because("the next hop has no address that its sender may name; `proxy.reachable` lets more networks through").into();
            }
        };
        Verdict::Forward(Destination::NextHop { targets, otherwise })
    }

    /// Routes a request to the places of rules.
    fn route_to_places(&self, handling: &Handling<'_, '_>, places: &RuleTargets) -> Verdict {
        match self.targets_of_places(handling, places) {
            Ok(targets) => Verdict::Forward(Destination::Places(targets)),
            Err(question) => Verdict::Ask(question),
        }
    }

    /// Routes a request to the contacts of a local user; 404 if there is no such user, 480 if it is not registered.
    fn route_to_user(&self, handling: &Handling<'_, '_>, routing: &Routing<'_>, contacts: &mut Contacts) -> Verdict {
        if self.asks_itself(handling.request, &routing.uri) {
            let reply = Reply::refused(489).with(Lines::AllowEvents);
            return reply.because("this server notifies no user of its own state, such as waiting messages").into();
        }
        self.lookup_contacts(handling.now, handling.request.method, &routing.uri, contacts);
        if contacts.entries.is_empty() {
            return match contacts.looped {
                true => Reply::refused(482).because("its contacts lead round").into(),
                false if contacts.unfit => {
                    let status = self.policy.config.proxy.unfit_status;
                    Reply::not_found(status).because("no phone of the user takes this method").into()
                }
                false => self.without_contact(handling, routing),
            };
        }
        match self.targets_of_contacts(handling, contacts) {
            Ok(targets) => Verdict::Forward(Destination::Contacts(targets)),
            Err(question) => Verdict::Ask(question),
        }
    }

    /// Returns the targets of each contact, without those that the sender of its REGISTER may not name.
    pub(crate) fn targets_of_contacts(
        &self,
        handling: &Handling<'_, '_>,
        contacts: &Contacts,
    ) -> Result<SmallVec<[Targets; 2]>, Question> {
        let (mut targets, mut refused) = (SmallVec::<[Targets; 2]>::new(), false);
        for contact in &contacts.entries {
            let mut reached = match (contact.target, contacts.uri(contact)) {
                (Some(target), _) => self.targets_of_contact(contacts, contact, target),
                (None, Some(uri)) => {
                    let mut named = self.targets_of_uri(handling, &uri, contact.listener)?;
                    refused |= self.policy.keep_out(&mut named, contact.sender);
                    named
                }
                (None, None) => Targets::new(),
            };
            for (flow, ..) in self.flows_of(handling, contacts, contact)? {
                if !reached.contains(&flow) {
                    reached.push(flow);
                }
            }
            targets.push(reached);
        }
        if refused {
            self.counters().relay_denied.one();
            let call_id = shown(handling.request.call_id);
            tracing::debug!(%call_id, "contact passed over: its address may not be named from where it was registered");
        }
        Ok(targets)
    }

    /// Returns the flows of a device with several, each with its Contact and Path (RFC 5626 section 7); nothing for a device
    /// with one flow. Two flows through one address of an edge proxy count as one, since the way to a target is one.
    pub(crate) fn flows_of<'c>(
        &self,
        handling: &Handling<'_, '_>,
        contacts: &'c Contacts,
        contact: &Contact,
    ) -> Result<DeviceFlows<'c>, Question> {
        let mut flows = DeviceFlows::new();
        if contact.older.is_empty() {
            return Ok(flows);
        }
        if !contact.path.is_empty() {
            let (uri, path) = (&contacts.text[contact.uri.clone()], &contacts.text[contact.path.clone()]);
            let edges = self.edge_targets(handling, contacts.uri(contact), contact.listener, contact.sender)?;
            flows.extend(edges.into_iter().map(|edge| (edge, uri, path)));
        }
        for older in &contact.older {
            let (uri, path) = (&contacts.text[older.uri.clone()], &contacts.text[older.path.clone()]);
            match older.target {
                Some(target) if is_gone(&self.shared.flows, &target) => (),
                Some(target) => flows.push((target, uri, path)),
                None => {
                    let first = contacts.first_uri(older.uri.clone(), older.path.clone());
                    let edges = self.edge_targets(handling, first, older.listener, older.sender)?;
                    flows.extend(edges.into_iter().map(|edge| (edge, uri, path)));
                }
            }
        }
        Ok(flows)
    }

    /// Returns the targets of the edge proxy of a flow that the sender of its REGISTER may name.
    fn edge_targets(
        &self,
        handling: &Handling<'_, '_>,
        edge: Option<Uri<'_>>,
        listener: ListenerId,
        sender: Scope,
    ) -> Result<Targets, Question> {
        let Some(edge) = edge else { return Ok(Targets::new()) };
        let mut targets = self.targets_of_uri(handling, &edge, listener)?;
        let _: bool = self.policy.keep_out(&mut targets, sender);
        Ok(targets)
    }

    /// Answers a request to an address without contacts: 404 if there is no such user, 480 if no phone of the user is
    /// reachable.
    fn without_contact(&self, handling: &Handling<'_, '_>, routing: &Routing<'_>) -> Verdict {
        let Uri::Sip(uri) = &routing.uri else { return Reply::not_found(404).into() };
        let known = match self.exists(handling, uri, Ok(subscriber::SubscriberAnswer::Exists)) {
            Ok(known) => known,
            Err(question) => return Verdict::Ask(question),
        };
        match known {
            Ok(subscriber::SubscriberAnswer::Absent) => Reply::not_found(404).because("unknown user").into(),
            Ok(_) => {
                let status = self.policy.config.proxy.unregistered_status;
                Reply::not_found(status).because("the user is not registered").into()
            }
            Err(error) => {
                self.counters().failed_lookups.one();
                if self.may_say(handling, LogSubject::Lookup) {
                    tracing::error!(call_id = %shown(handling.request.call_id), %error, "cannot look up a user");
                }
                Reply { why: Why::Logged, ..Reply::new(500) }.into()
            }
        }
    }

    /// Returns the target that the URI of a contact names, if no look-up is needed.
    pub(crate) fn contact_target(&self, contacts: &Contacts, contact: &Contact) -> Option<Target> {
        match self.policy.router.next_hop(&contacts.uri(contact)?, contact.listener) {
            NextHop::Known(target) => Some(target).filter(|target| self.policy.may_name(contact.sender, target)),
            _ => None,
        }
    }

    /// Returns the targets of a phone that registered from `from`: its connection while that is open, older
    /// connections, and the address where the phone accepts connections. The result is empty if the phone is
    /// unreachable (section 21.4.18).
    fn targets_of_contact(&self, contacts: &Contacts, contact: &Contact, from: Target) -> Targets {
        let flows = &self.shared.flows;
        let own = contacts.uri(contact).and_then(|uri| listens_at(&self.policy.router, &uri, contact.listener, &from));
        let own = own.filter(|own| self.policy.may_name(contact.sender, own));
        let older = contact.older.iter().filter_map(|older| older.target).filter(|older| !is_gone(flows, older));
        if is_gone(flows, &from) {
            return older.chain(own).collect();
        }
        let other = own.filter(|own| own.address != from.address);
        std::iter::once(from).chain(older).chain(other).collect()
    }

    /// Returns the addresses that the request's Route or Request-URI names.
    pub(crate) fn next_hop(
        &self,
        handling: &Handling<'_, '_>,
        routing: &Routing<'_>,
        scratch: &mut Vec<u8>,
    ) -> Result<Targets, NoHop> {
        let request = handling.request;
        if let Some(target) = routing.device {
            return self.targets_of_party(handling, routing, target, scratch);
        }
        let prefer = routing.listener.unwrap_or(request.arrival.listener);
        let targets = self.targets_of_uri(handling, &routing.next(), prefer)?;
        self.named_by(routing.scope.unwrap_or_else(|| self.policy.scope_of_sender(request)), targets)
    }

    /// Returns the targets of a party whose messages do not come from the address of its Contact, in this order: the
    /// source of that Contact, while the connection is open; a binding with this Contact that the party has made since,
    /// after a reconnection or a restart of this server; the address of the Contact, if the party may accept
    /// connections there.
    fn targets_of_party(
        &self,
        handling: &Handling<'_, '_>,
        routing: &Routing<'_>,
        target: Target,
        scratch: &mut Vec<u8>,
    ) -> Result<Targets, NoHop> {
        let mut targets = Targets::new();
        if !is_gone(&self.shared.flows, &target) {
            targets.push(target);
        }
        let Uri::Sip(contact) = &routing.uri else { return Ok(targets) };
        targets.extend(self.target_of_binding(handling, contact, scratch).filter(|other| *other != target));
        // A sips Contact is reached by TLS only (section 26.2.2). A WebSocket may be secure up to a proxy in front of
        // this server.
        targets.retain(|target| !contact.secure || target.transport.is_secure() || is_web(target.transport));
        if !target.transport.is_reliable() {
            return Ok(targets);
        }
        let (transport, listener, remote) = (target.transport, target.listener, target.address);
        let source = Arrival { transport, listener, remote, flow: target.flow };
        let scope = self.policy.router.scope_of_source(&source);
        match self.policy.router.next_hop(&routing.uri, target.listener) {
            NextHop::Known(own) if may_listen(&own, &target) && !targets.contains(&own) => {
                targets.extend(Some(own).filter(|own| self.policy.may_name(scope, own)));
            }
            // A name look-up takes time, so it is the last resort.
            NextHop::Name { host, .. } if targets.is_empty() && !is_invalid(host) && !is_web(target.transport) => {
                targets = self.named_by(scope, self.targets_of_uri(handling, &routing.uri, target.listener)?)?;
            }
            _ => (),
        }
        Ok(targets)
    }

    /// Returns the reachable source from which the user in To has registered this very Contact.
    fn target_of_binding(
        &self,
        handling: &Handling<'_, '_>,
        contact: &SipUri<'_>,
        aor: &mut Vec<u8>,
    ) -> Option<Target> {
        let party = handling.request.mandatory.to.uri;
        if !self.is_party_local(&party) {
            return None;
        }
        let (place, shared) = (UriTarget::of(contact), &self.shared);
        let identity = self.policy.router.identity();
        aor.clear();
        self.write_aor(&party, aor);
        let mut found = None;
        shared.location.lookup(aor, handling.now.mono, &mut |binding| {
            let is_same = || matches!(Uri::parse(binding.uri()), Ok(Uri::Sip(uri)) if UriTarget::of(&uri) == place);
            if found.is_none() && binding.path().is_empty() && is_same() {
                found = target_of(&binding, identity).filter(|target| !is_gone(&shared.flows, target));
            }
        });
        found
    }

    pub(crate) fn targets_of_uri(
        &self,
        handling: &Handling<'_, '_>,
        uri: &Uri<'_>,
        prefer: ListenerId,
    ) -> Result<Targets, Question> {
        match self.policy.router.next_hop(uri, prefer) {
            NextHop::Known(target) => Ok(Targets::from_slice(&[target])),
            NextHop::Unreachable => Ok(Targets::new()),
            NextHop::Name { host, port, transport, secure } => {
                let key: HostKey = (host.to_ascii_lowercase().into(), port, transport, secure);
                let Some(Resolved { targets, name }) = handling.progress.answers.name(&key) else {
                    return Err(Question::Name(key));
                };
                let target = |&(transport, address): &(Transport, SocketAddr)| {
                    let target = self.policy.router.target(transport, address, prefer)?;
                    Some(Target { name: name.filter(|_| transport.is_secure()), ..target })
                };
                Ok(targets.iter().filter_map(target).collect())
            }
        }
    }

    /// Tells whether a user subscribes to its own state (for example RFC 3842), or publishes it (RFC 3903). Such a
    /// request is for a server, but would be routed to the user's own phones.
    fn asks_itself(&self, request: &Request<'_>, uri: &Uri<'_>) -> bool {
        matches!(request.method, Method::Subscribe | Method::Publish)
            && request.to_tag.is_empty()
            && self.aor_of(&request.mandatory.from.uri) == self.aor_of(uri)
    }

    /// Removes the targets of a next hop that a peer of this scope may not name. Returns an error if no target remains.
    fn named_by(&self, sender: Scope, mut targets: Targets) -> Result<Targets, NoHop> {
        let is_refused = self.policy.keep_out(&mut targets, sender);
        if is_refused && targets.is_empty() { Err(NoHop::Denied) } else { Ok(targets) }
    }
}
