//! Where a request goes, and whether it may (RFC 3261 sections 16.3 to 16.5).

use crate::asked::{Asked, Why};
use crate::contacts::{Contact, Contacts};
use crate::engine::{Effect, Engine};
use crate::identity::names_caller;
use crate::parked::{HostKey, Resolved};
use crate::reachability::{is_gone, is_web, listens_at, may_listen, target_of};
use crate::registration::write_aor;
use crate::reply::is_proven;
use smallvec::SmallVec;
use std::net::SocketAddr;
use strowger_config::{Fork, RelayFor};
use strowger_core::digest::ChallengeHeader;
use strowger_core::proxy::{Candidate, Plan};
use strowger_core::quota::Kind;
use strowger_core::registrar::PathRule;
use strowger_core::routing::contact_repair::is_invalid;
use strowger_core::routing::{NextHop, Place, Request, Routing, Scope};
use strowger_core::shown::shown;
use strowger_core::transaction::ServerId;
use strowger_core::{ListenerId, Now, Round, Target, Transport};
use strowger_message::header::Token;
use strowger_message::{Message, Method, Name, SipUri, Uri};
use strowger_store::subscriber::{Answer as Known, Question};

type Targets = SmallVec<[Target; 2]>;

/// The Request-URIs of a contact by its older flows.
type OlderUris<'a> = Vec<(Target, &'a [u8])>;

impl Engine {
    /// A new request with its transaction.
    pub(crate) fn request(&mut self, asked: &mut Asked<'_, '_>) {
        let request = asked.request;
        if let Uri::Other(_) = request.uri {
            return self.refuse_request(asked, 416);
        }
        let routing = self.router.route(asked.now, request);
        if routing.malformed {
            return self.refuse_request(asked, 400);
        }
        if routing.route.is_none() && self.names_server(&routing.uri) {
            return self.serve(asked);
        }
        if request.message.has(Name::ProxyRequire) {
            return self.refuse_extensions(asked);
        }
        if request.max_forwards == Some(0) {
            return self.refuse_request(asked, 483);
        }
        if self.is_nobody_here(&routing) {
            return self.refuse_unknown(asked, &routing.uri);
        }
        match self.is_own_by_name(asked, &routing) {
            None => return,
            Some(true) => return self.arrive(asked, &routing),
            Some(false) => (),
        }
        if self.shared.config.proxy.loop_detection && self.router.is_loop(request) {
            return self.refuse_request(asked, 482);
        }
        asked.found.in_dialog = routing.in_dialog;
        if routing.in_dialog {
            self.confirm(request);
        }
        if !routing.in_dialog && !self.may_pass(asked, &routing) {
            return;
        }
        self.forward(asked, &routing);
    }

    /// An ACK for a 2xx: forwarded without a transaction, under the rules of other requests; never answered.
    pub(crate) fn ack(&mut self, asked: &mut Asked<'_, '_>) {
        let request = asked.request;
        // It acknowledges an answer of ours, by whatever branch: it has arrived.
        if self.router.own_tag().is(request.to_tag, request.call_id) {
            return;
        }
        if request.max_forwards == Some(0) || matches!(request.uri, Uri::Other(_)) {
            return;
        }
        let routing = self.router.route(asked.now, request);
        match self.is_own_by_name(asked, &routing) {
            None => return,
            Some(true) => return self.arrive(asked, &routing),
            Some(false) => (),
        }
        let local = routing.route.is_none() && self.is_local(&routing.uri);
        // To a user without a tag it acknowledges nothing: the 2xx of a user agent has one (section 12.1.1).
        if local && request.to_tag.is_empty() {
            return;
        }
        // Where our Record-Route stands in a call, so does our mark in its ACK. Without it the ACK of a 2xx whose Contact is the user's
        // own address comes here all the same.
        let passes = routing.in_dialog
            || (local && !self.shared.config.proxy.record_route)
            || match self.shared.config.proxy.relay_for {
                RelayFor::Everyone => true,
                RelayFor::LocalDomains => !self.shared.config.auth.calls && self.is_local(&request.essentials.from.uri),
                RelayFor::Authenticated => false,
            };
        if routing.malformed || !passes || self.is_nobody_here(&routing) {
            self.counters().relay_denied.one();
            return self.log_ack(asked, &routing);
        }
        if routing.in_dialog {
            self.confirm(request);
        }
        if local && routing.way.is_none() {
            let mut contacts = std::mem::take(&mut self.contacts);
            self.collect(asked.now, &routing.uri, &mut contacts);
            if let Some(first) = contacts.entries.first()
                && let Some(target) = first.target.or_else(|| self.contact_target(&contacts, first))
            {
                let (uri, path) = (Some(&contacts.text[first.uri.clone()]), &contacts.text[first.path.clone()]);
                let candidate = Candidate { uri, path, targets: &[target], ..Candidate::default() };
                self.proxy.forward_ack(
                    &mut Round { now: asked.now, tx: &mut self.transactions, out: asked.out },
                    request,
                    &routing,
                    &candidate,
                );
            }
            self.contacts = contacts;
            return;
        }
        if let Some(targets) = self.next_hop(asked, &routing) {
            let candidate = Candidate { targets: &targets, ..Candidate::default() };
            self.proxy.forward_ack(
                &mut Round { now: asked.now, tx: &mut self.transactions, out: asked.out },
                request,
                &routing,
                &candidate,
            );
        }
    }

    /// The sender of a request has shown who it is: it is there.
    pub(crate) fn confirm(&mut self, request: &Request<'_>) {
        if !request.arrival.transport.is_reliable() {
            self.effects.push(Effect::Confirm(request.arrival.remote));
        }
    }

    /// A CANCEL: answered here, and each branch cancelled (section 16.10). One that matches nothing is answered 481: whatever
    /// we forward has a branch of its own, which no stateless copy of it would match.
    pub(crate) fn cancel(&mut self, asked: &mut Asked<'_, '_>, invite: Option<ServerId>) {
        let Some(invite) = invite else {
            return self.reply(asked, 481, |_| ());
        };
        self.reply(asked, 200, |_| ());
        self.proxy.cancel(
            &mut Round { now: asked.now, tx: &mut self.transactions, out: asked.out },
            invite,
            &asked.request.message,
        );
    }

    /// Extensions that a proxy must understand, and we understand none (section 16.3 item 5).
    fn refuse_extensions(&mut self, asked: &mut Asked<'_, '_>) {
        let request = asked.request;
        self.counters().refused.one();
        let message = request.message;
        let lines = |text: &mut Vec<u8>| {
            for value in message.headers(Name::ProxyRequire) {
                text.extend_from_slice(b"Unsupported: ");
                text.extend_from_slice(value);
                text.extend_from_slice(b"\r\n");
            }
        };
        self.reply(asked, 420, lines);
    }

    /// A user that this server does not know.
    pub(crate) fn refuse_unknown(&mut self, asked: &mut Asked<'_, '_>, uri: &Uri<'_>) {
        self.counters().not_found.one();
        self.log_domain(asked, uri);
        self.reply(asked, 404, |_| ());
    }

    /// A request for this server itself.
    pub(crate) fn serve(&mut self, asked: &mut Asked<'_, '_>) {
        let request = asked.request;
        let with_path = self.registrar.settings().path != PathRule::Ignore;
        let known = |tag: &Token<'_>| with_path && tag.is(b"path");
        let unsupported: Vec<&[u8]> =
            request.message.require().flatten().filter(|tag| !known(tag)).map(|tag| tag.text).collect();
        if !unsupported.is_empty() {
            self.counters().refused.one();
            return self.reply(asked, 420, |text| {
                text.extend_from_slice(b"Unsupported: ");
                text.extend_from_slice(&unsupported.join(&b", "[..]));
                text.extend_from_slice(b"\r\n");
            });
        }
        // Methods that this server answers itself (RFC 3261 section 20.5): without a domain it registers no user.
        let allow: &[u8] = match self.shared.config.domains.is_empty() {
            true => b"Allow: OPTIONS\r\n",
            false => b"Allow: OPTIONS, REGISTER\r\n",
        };
        match request.method {
            // What the server can do (section 11.2).
            Method::Options => {
                let lines = |text: &mut Vec<u8>| {
                    text.extend_from_slice(allow);
                    text.extend_from_slice(
                        b"Accept: application/sdp\r\nAccept-Encoding: identity\r\nAccept-Language: en\r\n",
                    );
                    if with_path {
                        text.extend_from_slice(b"Supported: path\r\n");
                    }
                };
                self.reply(asked, 200, lines);
            }
            Method::Other => {
                self.counters().refused.one();
                self.reply(asked, 501, |text| text.extend_from_slice(allow));
            }
            _ => {
                self.counters().refused.one();
                self.reply(asked, 405, |text| text.extend_from_slice(allow));
            }
        }
    }

    /// May this request go where it wants? False: answered, or waiting for a look-up.
    fn may_pass(&mut self, asked: &mut Asked<'_, '_>, routing: &Routing<'_>) -> bool {
        let request = asked.request;
        // A call for help needs no password.
        if routing.route.is_none() && self.is_emergency(&routing.uri) {
            return true;
        }
        let from = request.essentials.from.uri;
        let from_local = self.is_from_local(request);
        let to_local = routing.route.is_none() && self.is_local(&routing.uri);
        let relay_for = self.shared.config.proxy.relay_for;
        // A caller that names itself a user of ours must show it, wherever it calls.
        let must_authenticate =
            (from_local && self.shared.config.auth.calls) || (!to_local && relay_for == RelayFor::Authenticated);
        if must_authenticate {
            return self.authenticate(asked, ChallengeHeader::ProxyAuthenticate, &from);
        }
        if !to_local && relay_for == RelayFor::LocalDomains && !from_local {
            self.counters().relay_denied.one();
            asked.why = Why::Text("relaying denied: neither end is of a local domain");
            self.reply(asked, 403, |_| ());
            return false;
        }
        true
    }

    /// Finds the targets and hands the request to the proxy.
    fn forward(&mut self, asked: &mut Asked<'_, '_>, routing: &Routing<'_>) {
        if routing.way.is_none() && routing.route.is_none() && self.is_local(&routing.uri) {
            return self.call_user(asked, routing);
        }
        let Some(targets) = self.next_hop(asked, routing) else { return };
        let help =
            (routing.way.is_none() && routing.route.is_none()).then(|| self.emergency_route(&routing.uri)).flatten();
        let candidate = Candidate {
            uri: None,
            uris: &[],
            path: help.as_deref().unwrap_or_default(),
            targets: &targets,
            q: 1000,
            add: b"",
            remove: &[],
            fixed: routing.way.is_some(),
            translated: routing.way.is_some(),
        };
        let otherwise = match routing.uri.sip() {
            // A number or a service that no setting leads on has no next hop at all.
            None if routing.route.is_none() => 404,
            // The party of a call whose connection is gone may come back.
            _ if routing.way.is_some() => 480,
            // A next hop that cannot be reached counts as one that answers 503, which goes upstream as 500 (section 16.7 step 6).
            _ => 500,
        };
        self.send(asked, routing, &[candidate], otherwise);
    }

    fn send(&mut self, asked: &mut Asked<'_, '_>, routing: &Routing<'_>, candidates: &[Candidate<'_>], otherwise: u16) {
        let Some(server) = asked.server else { return };
        if candidates.iter().all(|c| c.targets.is_empty()) {
            self.counters().not_found.one();
            asked.why = Why::Text(match otherwise {
                480 => "no contact of the user can be reached",
                404 => "no route: nothing here leads to this kind of URI",
                _ => "no route: the next hop has no address that a listener reaches",
            });
            return self.reply(asked, otherwise, |_| ());
        }
        if !self.proxy.has_breadth(asked.request, candidates) {
            return self.refuse_request(asked, 440);
        }
        if !is_proven(asked) && !self.transactions.has_room_for_unproven(asked.request.message.bytes().len()) {
            return self.reply_overloaded(asked);
        }
        self.trying(asked);
        self.doubt_unproven(asked, 0);
        self.counters().forwarded.one();
        let context = match (asked.request.method, asked.request.to_tag) {
            (Method::Invite, b"") => self.log_call_begun(asked),
            _ => 0,
        };
        let plan = Plan { context, ..self.shared.config.plan() };
        self.forward_concealed(asked, routing, server, candidates, &plan);
        if asked.request.method == Method::Bye {
            self.log_call_ended(asked);
        }
    }

    /// Forwards the request without what it must not say of its caller.
    fn forward_concealed(
        &mut self,
        asked: &mut Asked<'_, '_>,
        routing: &Routing<'_>,
        server: ServerId,
        candidates: &[Candidate<'_>],
        plan: &Plan<'_>,
    ) {
        let (now, request) = (asked.now, asked.request);
        if !names_caller(&request.message) {
            self.proxy.forward(
                &mut Round { now, tx: &mut self.transactions, out: asked.out },
                request,
                routing,
                server,
                candidates,
                plan,
            );
            return;
        }
        let (mut edit, (mut bytes, mut index)) = (std::mem::take(&mut self.edit), std::mem::take(&mut self.concealed));
        bytes.clear();
        if !self.conceal(asked, routing, &mut edit, &mut bytes) {
            self.proxy.forward(
                &mut Round { now, tx: &mut self.transactions, out: asked.out },
                request,
                routing,
                server,
                candidates,
                plan,
            );
        } else if index.parse(&bytes, &self.shared.limits).is_ok()
            && let Ok(request) = Request::of(Message::new(&bytes, &index), request.arrival, request.call_hash)
        {
            let routing = self.router.route(now, &request);
            self.proxy.forward(
                &mut Round { now, tx: &mut self.transactions, out: asked.out },
                &request,
                &routing,
                server,
                candidates,
                plan,
            );
        }
        (self.edit, self.concealed) = (edit, (bytes, index));
    }

    /// 100 at once: the caller need not send again (section 17.2.1).
    pub(crate) fn trying(&mut self, asked: &mut Asked<'_, '_>) {
        let request = asked.request;
        if request.method != Method::Invite || asked.found.trying {
            return;
        }
        asked.found.trying = true;
        let Some(server) = asked.server else { return };
        let from = asked.out.start();
        strowger_message::respond(&request.message, 100, None, None, &mut asked.out.bytes).finish(b"");
        let range = from..asked.out.bytes.len();
        self.doubt_unproven(asked, range.len());
        self.transactions.respond(asked.now, server, 100, range, asked.out);
    }

    /// The contacts of a local user; 404 if there is no such user, 480 if it is not registered.
    fn call_user(&mut self, asked: &mut Asked<'_, '_>, routing: &Routing<'_>) {
        if asks_itself(asked.request, &routing.uri) {
            asked.why = Why::Text("this server notifies no user of its own state, such as waiting messages");
            return self.refuse_request(asked, 489);
        }
        let mut contacts = std::mem::take(&mut self.contacts);
        self.collect(asked.now, &routing.uri, &mut contacts);
        if contacts.entries.is_empty() {
            let looped = contacts.looped;
            self.contacts = contacts;
            if !looped {
                return self.absent(asked, routing);
            }
            asked.why = Why::Text("its contacts lead round");
            return self.refuse_request(asked, 482);
        }
        let mut targets: SmallVec<[Targets; 2]> = SmallVec::new();
        for contact in &contacts.entries {
            let known = contact.target.map(|t| self.ways_to(&contacts, contact, t));
            let way = match known {
                Some(way) => Some(way),
                None => self.contact_way(asked, &contacts, contact),
            };
            match way {
                Some(way) => targets.push(way),
                None => {
                    // Waiting for a name.
                    self.contacts = contacts;
                    return;
                }
            }
        }
        let text = &contacts.text;
        let of_older =
            |contact: &Contact| contact.older.iter().map(|(flow, uri)| (*flow, &text[uri.clone()])).collect();
        let uris: SmallVec<[OlderUris<'_>; 2]> = contacts.entries.iter().map(of_older).collect();
        let fork = self.shared.config.proxy.fork;
        let count = contacts.entries.len().min(1000) as u16;
        let candidates: SmallVec<[Candidate<'_>; 2]> = contacts
            .entries
            .iter()
            .zip(&targets)
            .zip(contacts.groups())
            .zip(&uris)
            .enumerate()
            .map(|(n, (((contact, way), group), uris))| Candidate {
                uri: Some(&text[contact.uri.clone()]),
                uris,
                path: &text[contact.path.clone()],
                targets: way,
                q: match fork {
                    Fork::Parallel => 1000,
                    Fork::Sequence => count - (n as u16).min(count),
                    Fork::ByQ => count - group.min(count),
                },
                add: b"",
                remove: &[],
                // What registered by UDP may listen nowhere else (section 18.1.1 is for servers).
                fixed: contact.path.is_empty(),
                translated: contact.target.is_some(),
            })
            .collect();
        self.send(asked, routing, &candidates, 480);
        drop(candidates);
        drop(uris);
        self.contacts = contacts;
    }

    /// No contact is registered under this address: because there is no such user (404), or because its phones are away (480).
    fn absent(&mut self, asked: &mut Asked<'_, '_>, routing: &Routing<'_>) {
        let request = asked.request;
        let Uri::Sip(uri) = &routing.uri else {
            self.counters().not_found.one();
            return self.reply(asked, 404, |_| ());
        };
        let (mut user, mut domain) = (Vec::new(), Vec::new());
        strowger_message::uri::sip::unescape(uri.user.unwrap_or_default(), &mut user);
        uri.host.write_lower(&mut domain);
        let known = match asked.found.exists.take() {
            Some(answer) => answer,
            None if self.shared.subscribers.is_none() || !self.shared.config.registrar.authenticate => {
                Ok(Known::Exists)
            }
            None => {
                let question = Question::User { username: &user, domain: &domain };
                match self.ask_subscribers(asked, question) {
                    Some(answer) => Ok(answer),
                    None => return,
                }
            }
        };
        let (status, reason) = match known {
            Ok(Known::Absent) => (404, Why::Text("unknown user")),
            Ok(_) => (480, Why::Text("the user is not registered")),
            Err(error) => {
                self.counters().failed_lookups.one();
                if self.may_say(asked, Kind::Lookup) {
                    tracing::error!(call_id = %shown(request.call_id), %error, "cannot look up a user");
                }
                (500, Why::Logged)
            }
        };
        asked.why = reason;
        self.counters().not_found.one();
        self.reply(asked, status, |_| ());
    }

    /// Where a contact's own words lead: its Path first, else its URI. None: waiting for a name.
    fn contact_way(&mut self, asked: &mut Asked<'_, '_>, contacts: &Contacts, contact: &Contact) -> Option<Targets> {
        let Some(uri) = contacts.uri(contact) else { return Some(Targets::new()) };
        self.way_of(asked, &uri, contact.listener)
    }

    fn contact_target(&self, contacts: &Contacts, contact: &Contact) -> Option<Target> {
        match self.router.next_hop(&contacts.uri(contact)?, contact.listener) {
            NextHop::Known(target) => Some(target),
            _ => None,
        }
    }

    /// The ways to a phone that registered from there: its connection, while that is open, and where it takes others. None of
    /// them: it is not there (section 21.4.18).
    fn ways_to(&self, contacts: &Contacts, contact: &Contact, from: Target) -> Targets {
        let flows = &self.shared.flows;
        let own = contacts.uri(contact).and_then(|uri| listens_at(&self.router, &uri, contact.listener, &from));
        let older = contact.older.iter().map(|(older, _)| *older).filter(|older| !is_gone(flows, older));
        if is_gone(flows, &from) {
            return older.chain(own).collect();
        }
        let other = own.filter(|own| own.address != from.address);
        std::iter::once(from).chain(older).chain(other).collect()
    }

    /// The addresses that the request's Route or Request-URI names. None: answered, or waiting for a name.
    fn next_hop(&mut self, asked: &mut Asked<'_, '_>, routing: &Routing<'_>) -> Option<Targets> {
        let request = asked.request;
        if let Some(way) = routing.way {
            return self.ways_to_party(asked, routing, way);
        }
        let prefer = routing.listener.unwrap_or(request.arrival.listener);
        let shared = self.shared.clone();
        let emergency = &shared.config.proxy.emergency_target;
        let uri = match (routing.route, routing.uri) {
            (None, uri) if self.is_emergency(&uri) => {
                Uri::parse(emergency.as_ref().map_or("", |t| t.as_str()).as_bytes()).ok().unwrap_or(uri)
            }
            _ => routing.next(),
        };
        let mut ways = self.way_of(asked, &uri, prefer)?;
        self.keep_out(&mut ways, routing.scope);
        // A second Route of ours says it: there the dialog began.
        if routing.listener.is_none() {
            for way in &mut ways {
                *way = self.local_addresses.settle(&*shared.routes, shared.router.identity(), *way, asked.now.mono);
            }
        }
        Some(ways)
    }

    /// The ways to the party of a call that is not where its Contact says: from where it sent that, while the connection is open; a
    /// binding with this Contact that it has made since, after it connected again or this server restarted; at last what its Contact
    /// says, where it may listen.
    fn ways_to_party(&mut self, asked: &mut Asked<'_, '_>, routing: &Routing<'_>, way: Target) -> Option<Targets> {
        let mut ways = Targets::new();
        if !is_gone(&self.shared.flows, &way) {
            ways.push(way);
        }
        let Uri::Sip(contact) = &routing.uri else { return Some(ways) };
        ways.extend(self.way_of_binding(asked, contact).filter(|other| *other != way));
        // What is said to travel under TLS does (section 26.2.2). By WebSocket it may as far as a server in front of this one.
        ways.retain(|way| !contact.secure || way.transport.is_secure() || is_web(way.transport));
        if !way.transport.is_reliable() {
            return Some(ways);
        }
        match self.router.next_hop(&routing.uri, way.listener) {
            NextHop::Known(own) if may_listen(&own, &way) && !ways.contains(&own) => ways.push(own),
            // To ask for a name takes time: only if nothing else is left.
            NextHop::Name { host, .. } if ways.is_empty() && !is_invalid(host) && !is_web(way.transport) => {
                ways = self.way_of(asked, &routing.uri, way.listener)?;
                self.keep_out(&mut ways, Scope::of(way.address.ip()));
            }
            _ => (),
        }
        Some(ways)
    }

    /// What a peer without a password leads requests to lies no further in than where it sent from itself: neither its Contact, nor
    /// a Record-Route of its own, nor a name opens the way to ports that it does not reach.
    fn keep_out(&self, ways: &mut Targets, scope: Scope) {
        let before = ways.len();
        ways.retain(|way| Scope::of(way.address.ip()) >= scope);
        if ways.is_empty() && before > 0 {
            self.counters().relay_denied.one();
        }
    }

    /// Where the user in To has registered this very Contact from, if it can be reached there now.
    fn way_of_binding(&mut self, asked: &Asked<'_, '_>, contact: &SipUri<'_>) -> Option<Target> {
        let party = asked.request.essentials.to.uri;
        if !self.is_local(&party) {
            return None;
        }
        let (place, shared) = (Place::of(contact), &self.shared);
        let aor = &mut self.aor;
        aor.clear();
        write_aor(&party, aor);
        let mut found = None;
        shared.location.lookup(aor, asked.now.mono, &mut |binding| {
            let is_same = || matches!(Uri::parse(binding.uri()), Ok(Uri::Sip(uri)) if Place::of(&uri) == place);
            if found.is_none() && binding.path().is_empty() && is_same() {
                found = target_of(&binding, shared.router.identity()).filter(|target| !is_gone(&shared.flows, target));
            }
        });
        found
    }

    fn way_of(&mut self, asked: &mut Asked<'_, '_>, uri: &Uri<'_>, prefer: ListenerId) -> Option<Targets> {
        match self.router.next_hop(uri, prefer) {
            NextHop::Known(target) => Some(Targets::from_slice(&[target])),
            NextHop::Unreachable => Some(Targets::new()),
            NextHop::Name { host, port, transport, secure } => {
                let key: HostKey = (host.to_ascii_lowercase().into(), port, transport, secure);
                if let Some(Resolved { targets, name }) = asked.found.name(&key) {
                    let target = |&(transport, address): &(Transport, SocketAddr)| {
                        let target = self.router.target(transport, address, prefer)?;
                        Some(Target { name: name.filter(|_| transport.is_secure()), ..target })
                    };
                    return Some(targets.iter().filter_map(target).collect());
                }
                self.trying(asked);
                self.resolve(asked, key);
                None
            }
        }
    }

    /// Lets the request wait until a name is resolved (RFC 3263).
    pub(crate) fn resolve(&mut self, asked: &mut Asked<'_, '_>, name: HostKey) {
        let request = asked.request;
        if !self.may_resolve(asked) {
            if request.method != Method::Ack {
                self.reply_overloaded(asked);
            }
            return;
        }
        let ticket = self.park(asked, true);
        self.effects.push(Effect::Resolve { ticket, source: request.arrival.remote.ip(), name });
    }

    /// A URI that names a user of ours, or this server.
    pub(crate) fn is_local(&self, uri: &Uri<'_>) -> bool {
        uri.sip().is_some_and(|uri| self.shared.router.identity().is_at_local_domain(uri.host, uri.port))
    }

    /// A From that names a user of ours. Whatever port stands in it: who reads it looks at the name before it. An address with
    /// a port that is none of ours is another program only if the request comes from that address.
    fn is_from_local(&self, request: &Request<'_>) -> bool {
        let from = request.essentials.from.uri;
        let Uri::Sip(uri) = &from else { return false };
        let other_program = uri.host.ip().is_some_and(|ip| ip == request.arrival.remote.ip().to_canonical());
        self.is_local(&from) || (self.shared.router.identity().is_local_domain(uri.host) && !other_program)
    }

    /// A URI without a user that names this server itself.
    fn names_server(&self, uri: &Uri<'_>) -> bool {
        let Uri::Sip(sip) = uri else { return false };
        sip.user.is_none() && self.router.is_own(sip)
    }

    /// A user of ours, whose contacts stand in the location table.
    pub(crate) fn names_user(&self, uri: &Uri<'_>) -> bool {
        let has_user = |sip: &SipUri<'_>| sip.user.is_some() && sip.params.maddr().is_none();
        uri.sip().is_some_and(has_user) && self.is_local(uri)
    }

    /// A REGISTER for this server by its address: what its users are called stands in To.
    pub(crate) fn names_registrar(&self, now: Now, request: &Request<'_>) -> bool {
        self.names_server(&request.uri)
            && !self.shared.config.domains.is_empty()
            && self.router.route(now, request).route.is_none()
    }

    /// A user at an address of ours that is no domain of ours: it would come back to us again and again.
    fn is_nobody_here(&self, routing: &Routing<'_>) -> bool {
        let Uri::Sip(uri) = &routing.uri else { return false };
        let leads_on = routing.route.is_some() || routing.way.is_some() || uri.params.maddr().is_some();
        !leads_on && self.router.is_own(uri) && !self.is_local(&routing.uri)
    }

    /// The Route of a call for help: the next hop learns that it was chosen (RFC 3261 section 16.6 steps 6 and 7). Only what routes
    /// loosely may stand there.
    fn emergency_route(&self, uri: &Uri<'_>) -> Option<Vec<u8>> {
        let target = self.shared.config.proxy.emergency_target.as_ref().filter(|_| self.is_emergency(uri))?;
        let is_loose = Uri::parse(target.as_str().as_bytes()).ok()?.sip()?.params.lr();
        Some(format!("<{}{}>", target.as_str(), if is_loose { "" } else { ";lr" }).into_bytes())
    }

    /// A call for help (RFC 5031), and we know whom to send it to.
    fn is_emergency(&self, uri: &Uri<'_>) -> bool {
        matches!(uri, Uri::Urn(urn) if urn.is_emergency()) && self.shared.config.proxy.emergency_target.is_some()
    }
}

/// A user subscribes to its own state (RFC 3842 for one): its phones have that from a server, and would be asked themselves.
fn asks_itself(request: &Request<'_>, uri: &Uri<'_>) -> bool {
    if request.method != Method::Subscribe || !request.to_tag.is_empty() {
        return false;
    }
    let (mut from, mut to) = (Vec::new(), Vec::new());
    request.essentials.from.uri.write_aor(&mut from);
    uri.write_aor(&mut to);
    from == to
}
