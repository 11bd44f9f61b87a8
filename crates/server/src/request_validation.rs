//! First stage: decides for whom a request is (RFC 3261 sections 16.3 and 16.4).

use crate::decider::Decider;
use crate::handling::Handling;
use crate::own_name::OwnName;
use crate::reply::{Lines, Party, Reply};
use crate::stage::{Stage, Verdict};
use strowger_core::Now;
use strowger_core::registrar::PathRule;
use strowger_core::routing::{Request, Routing};
use strowger_message::header::Token;
use strowger_message::uri::sip::unescaped;
use strowger_message::{Method, Name, SipUri, Uri};

impl Decider<'_> {
    /// Decides for whom a request is, and whether the request can be forwarded at all.
    pub(crate) fn address(&self, handling: &Handling<'_, '_>, routing: &Routing<'_>) -> Verdict {
        let request = handling.request;
        if let Uri::Other(_) = request.uri {
            return Reply::refused(416).into();
        }
        if routing.malformed {
            return Reply::refused(400).into();
        }
        if has_control(&request.uri) || has_control(&routing.uri) {
            return Reply::refused(400).because("a control character in the user part of the Request-URI").into();
        }
        if routing.route.is_none() && self.names_server(&routing.uri) {
            return self.serve_by_rules(handling, routing);
        }
        // Extensions that a proxy must understand: this server understands none (section 16.3 item 5).
        if request.message.has(Name::ProxyRequire) {
            return Reply::refused(420).with(Lines::UnsupportedByProxy).into();
        }
        if request.max_forwards == Some(0) {
            return Reply::refused(483).into();
        }
        let is_emergency = self.is_emergency(handling.now, request, routing);
        if !is_emergency && self.is_unknown_here(routing) {
            return Reply::unknown(Party::RequestUri).into();
        }
        match self.policy.is_own_by_name(handling, routing, self.shared.bounds.names_per_request) {
            OwnName::No => (),
            OwnName::Yes => return self.arrived(handling, routing),
            OwnName::Ask(name) => return Verdict::Ask(name),
            OwnName::TooMany => return Reply::refused(400).because("too many names in its Routes").into(),
        }
        if self.policy.router.is_loop(request) {
            return Reply::refused(482).into();
        }
        if is_emergency {
            return Verdict::Decide(self.emergency_decision(handling, routing));
        }
        Verdict::Next(Stage::Authorize)
    }

    /// Handles a request whose first Route, or its Request-URI, names this server by a name that was looked up.
    pub(crate) fn arrived(&self, handling: &Handling<'_, '_>, routing: &Routing<'_>) -> Verdict {
        let request = handling.request;
        if routing.route.is_some() {
            return Verdict::TakeOffRoutes;
        }
        let has_user = routing.uri.sip().is_some_and(|uri| uri.user.is_some());
        match request.method {
            Method::Ack => Verdict::Drop,
            Method::Register if !has_user && !self.policy.config.domains.is_empty() => Verdict::Next(Stage::Register),
            _ if has_user => Reply::unknown(Party::RequestUri).into(),
            _ => self.serve_by_rules(handling, routing),
        }
    }

    /// Answers a request for this server itself, unless a rule answers the request.
    fn serve_by_rules(&self, handling: &Handling<'_, '_>, routing: &Routing<'_>) -> Verdict {
        self.refused_by_rules(handling, routing).unwrap_or_else(|| self.serve(handling.request).into())
    }

    /// Returns the response of this server to a request for itself.
    fn serve(&self, request: &Request<'_>) -> Reply {
        if self.unsupported(request).next().is_some() {
            return Reply::refused(420).with(Lines::Unsupported);
        }
        match request.method {
            // Capabilities of the server (section 11.2).
            Method::Options => Reply::new(200).with(Lines::Capabilities),
            Method::Other => Reply::refused(501).with(Lines::Allow),
            _ => Reply::refused(405).with(Lines::Allow),
        }
    }

    /// Returns the extensions that a request for this server requires, and this server does not know.
    pub(crate) fn unsupported<'m>(&self, request: &Request<'m>) -> impl Iterator<Item = &'m [u8]> + use<'m> {
        let with_path = self.takes_paths();
        let is_known = move |tag: &Token<'_>| with_path && tag.is(b"path");
        request.message.require().flatten().filter(move |tag| !is_known(tag)).map(|tag| tag.text)
    }

    /// Tells whether registrations may arrive through other proxies (RFC 3327).
    pub(crate) fn takes_paths(&self) -> bool {
        self.policy.registrar.path != PathRule::Ignore
    }

    /// Tells whether a REGISTER is for the registrar: its Request-URI names a local domain, or this server by an
    /// address.
    pub(crate) fn is_for_registrar(&self, now: Now, request: &Request<'_>) -> bool {
        let stays = || !request.message.has(Name::Route) || self.policy.router.route(now, request).route.is_none();
        let is_here = self.is_for_local(request, &request.uri)
            || (self.names_server(&request.uri) && !self.policy.config.domains.is_empty());
        is_here && stays()
    }

    /// Tells whether a URI names a local user, or this server: by a name or alias of a domain, or by an address of a
    /// listener.
    pub(crate) fn is_local(&self, uri: &Uri<'_>) -> bool {
        uri.sip().is_some_and(|uri| self.policy.is_local(uri))
    }

    /// Tells whether the Request-URI, or its replacement, names a local user or this server. Outside a dialog an
    /// address of this server without a port names the server, as a domain does. Within a dialog such an address is the
    /// address of a party, for example of another program of this machine on the default port.
    pub(crate) fn is_for_local(&self, request: &Request<'_>, uri: &Uri<'_>) -> bool {
        self.is_local(uri) || (request.to_tag.is_empty() && self.is_party_local(uri))
    }

    /// Tells whether a URI of From or To names a local user. The URI may have no port, or a port of this server.
    pub(crate) fn is_party_local(&self, uri: &Uri<'_>) -> bool {
        uri.sip().is_some_and(|uri| self.policy.identity().domain_at(uri.host, uri.port).is_some())
    }

    /// Writes the address of record that a URI names
    /// ([`Identity::write_aor`](strowger_core::routing::Identity::write_aor)).
    pub(crate) fn write_aor(&self, uri: &Uri<'_>, out: &mut Vec<u8>) {
        self.policy.identity().write_aor(uri, out);
    }

    /// Returns the address of record that a URI names.
    pub(crate) fn aor_of(&self, uri: &Uri<'_>) -> Vec<u8> {
        let mut aor = Vec::new();
        self.write_aor(uri, &mut aor);
        aor
    }

    /// Tells whether a URI without a user names this server itself.
    pub(crate) fn names_server(&self, uri: &Uri<'_>) -> bool {
        let Uri::Sip(sip) = uri else { return false };
        sip.user.is_none() && self.policy.router.is_own(sip)
    }

    /// Tells whether a URI names a local user, whose contacts are in the location table.
    pub(crate) fn names_user(&self, uri: &Uri<'_>) -> bool {
        let has_user = |sip: &SipUri<'_>| sip.user.is_some() && sip.params.maddr().is_none();
        uri.sip().is_some_and(has_user) && self.is_local(uri)
    }

    /// Tells whether the target is a user at an address of this server that is no domain. Such a request would return
    /// to this server again and again.
    pub(crate) fn is_unknown_here(&self, routing: &Routing<'_>) -> bool {
        let Uri::Sip(uri) = &routing.uri else { return false };
        let leads_on = routing.route.is_some() || routing.device.is_some() || uri.params.maddr().is_some();
        !leads_on && self.policy.router.is_own(uri) && !self.is_local(&routing.uri)
    }
}

/// Tells whether the user part has an escaped control character. No user and no number has one, and gateways differ in
/// how they read it.
fn has_control(uri: &Uri<'_>) -> bool {
    let user = match uri {
        Uri::Sip(uri) => uri.user.unwrap_or_default(),
        Uri::Tel(uri) => uri.number,
        _ => b"",
    };
    user.contains(&b'%') && unescaped(user).any(|byte| byte.is_ascii_control())
}
