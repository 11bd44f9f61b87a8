//! Names of this server that its configuration does not tell: they resolve to an address of ours (RFC 3261 section 16.4).
//!
//! Phones put the name of their outbound proxy into a Route of whatever they send, before they have shown a password. An unknown peer must
//! not choose what is resolved, so before that only names below a domain of ours are; others once the request may pass.

use crate::asked::{Asked, Why};
use crate::engine::Engine;
use crate::parked::HostKey;
use strowger_core::routing::{NextHop, Request, Routing};
use strowger_message::{Host, Index, Message, Method, SipUri, Uri};

impl Engine {
    /// Whether the first Route that is left, or the Request-URI if there is none, names this server by a name that was looked up.
    /// None: answered, or waiting for the name.
    pub(crate) fn is_own_by_name(&mut self, asked: &mut Asked<'_, '_>, routing: &Routing<'_>) -> Option<bool> {
        let Uri::Sip(uri) = routing.route.as_ref().unwrap_or(&routing.uri) else { return Some(false) };
        let (Host::Name(name), None, None) = (uri.host, uri.params.maddr(), routing.way) else { return Some(false) };
        let identity = self.shared.router.identity();
        let may_ask = identity.is_below_local_domain(name);
        if (asked.found.names.is_empty() && !may_ask) || identity.is_local_domain(uri.host) || self.router.is_own(uri) {
            return Some(false);
        }
        let Some(key) = self.key_of(asked.request, routing, uri) else { return Some(false) };
        if asked.found.name(&key).is_none() && may_ask {
            // Each of them may lead here where all names of a domain do.
            if asked.found.names.len() < self.shared.config.dns.names_per_request {
                self.resolve(asked, key);
            } else if asked.request.method != Method::Ack {
                asked.why = Why::Text("too many names in its Routes");
                self.refuse_request(asked, 400);
            }
            return None;
        }
        Some(self.leads_here_by(asked, &key))
    }

    /// Goes on with a request that [`Engine::is_own_by_name`] is true of.
    pub(crate) fn arrive(&mut self, asked: &mut Asked<'_, '_>, routing: &Routing<'_>) {
        let request = asked.request;
        let method = request.method;
        if routing.route.is_none() {
            let has_user = routing.uri.sip().is_some_and(|uri| uri.user.is_some());
            return match method {
                Method::Ack => (),
                Method::Register if !has_user && !self.shared.config.domains.is_empty() => self.register_here(asked),
                _ if has_user => self.refuse_unknown(asked, &routing.uri),
                _ => self.serve(asked),
            };
        }
        let mut bytes = Vec::with_capacity(request.message.bytes().len());
        let names_us =
            |uri: &SipUri<'_>| self.key_of(request, routing, uri).is_some_and(|key| self.leads_here_by(asked, &key));
        self.router.take_off_routes(&request.message, names_us, &mut bytes);
        let mut index = Index::new();
        if index.parse(&bytes, &self.shared.limits).is_err() {
            return;
        }
        let Ok(request) = Request::of(Message::new(&bytes, &index), request.arrival, request.call_hash) else { return };
        let (now, server, why) = (asked.now, asked.server, asked.why);
        let mut asked = Asked { now, request: &request, server, found: asked.found, why, out: asked.out };
        match method {
            Method::Ack => self.ack(&mut asked),
            Method::Register if self.is_for_registrar(now, &request) || self.names_registrar(now, &request) => {
                self.register_here(&mut asked);
            }
            _ => self.request(&mut asked),
        }
    }

    /// A registration that began as a transaction, since it was not known to be for us.
    fn register_here(&mut self, asked: &mut Asked<'_, '_>) {
        if let Some(server) = asked.server.take() {
            self.transactions.forget(asked.now, server);
        }
        self.register(asked);
    }

    fn key_of(&self, request: &Request<'_>, routing: &Routing<'_>, uri: &SipUri<'_>) -> Option<HostKey> {
        let prefer = routing.listener.unwrap_or(request.arrival.listener);
        // As `Engine::next_hop` looks it up.
        let uri = SipUri { secure: uri.secure || routing.uri.is_sips(), ..*uri };
        match self.router.next_hop(&Uri::Sip(uri), prefer) {
            NextHop::Name { host, port, transport, secure } => {
                Some((host.to_ascii_lowercase().into(), port, transport, secure))
            }
            _ => None,
        }
    }

    fn leads_here_by(&self, asked: &Asked<'_, '_>, key: &HostKey) -> bool {
        let found = asked.found.name(key);
        found.is_some_and(|to| {
            to.targets.iter().any(|(_, address)| self.shared.router.identity().is_own_socket(address))
        })
    }
}
