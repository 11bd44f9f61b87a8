//! Emergency calls (RFC 5031).
//!
//! An emergency call passes before authentication, rules and filters, counts under no limit, and passes from a banned source. Where a table is
//! full, entries are reserved for emergency calls. The calls need no password, so a sender may forge many: each source has at most its ordinary
//! share and the reserve, and sources that may be forged have at most half of the reserve.

use crate::decider::Decider;
use crate::decision::Decision;
use crate::handling::Handling;
use crate::identity::is_anonymous;
use crate::proof::User;
use crate::reachability::target_of;
use crate::request_facts::number_of;
use crate::rule_trace::RuleResult;
use strowger_core::log_limiter::LogSubject;
use strowger_core::routing::{Request, Routing};
use strowger_core::shown::shown;
use strowger_core::{Arrival, Now};
use strowger_message::uri::sip::unescaped;
use strowger_message::{Form, Host, Index, Message, Method, SipUri, Uri};

/// Returns whether a URI has no parameter after its number except `phone-context` (RFC 3966 section 5.1.5). A gateway
/// may dial or route by other parameters, such as `rn` (RFC 4694).
fn is_bare_number(uri: &Uri<'_>) -> bool {
    let is_context = |parameter: &[u8]| parameter.to_ascii_lowercase().starts_with(b"phone-context=");
    match uri {
        Uri::Tel(tel) => tel.params.iter().all(|(name, _)| name.eq_ignore_ascii_case(b"phone-context")),
        uri => {
            let user: Vec<u8> =
                uri.sip().and_then(|uri| uri.user).map(|user| unescaped(user).collect()).unwrap_or_default();
            let mut parts = user.split(|b| *b == b';');
            let is_plain = |b: &u8| b.is_ascii_digit() || b"*#+-.() ".contains(b);
            parts.next().is_some_and(|number| number.iter().all(is_plain)) && parts.all(is_context)
        }
    }
}

/// First bytes of the messages of a call.
const OF_CALLS: [&[u8]; 7] = [b"INVITE ", b"ACK ", b"CANCEL ", b"BYE ", b"PRACK ", b"UPDATE ", b"SIP/2.0 "];

impl Decider<'_> {
    /// Returns whether a request is an emergency call: a request for an emergency service URN (RFC 5031), or an INVITE
    /// of a known caller for one of `emergency.numbers`. A CANCEL and the ACK of a failure have the Request-URI of
    /// their INVITE and are treated like the INVITE.
    pub(crate) fn is_emergency(&self, now: Now, request: &Request<'_>, routing: &Routing<'_>) -> bool {
        let is_set = !self.policy.config.decisions.emergency.uris.is_empty();
        if !is_set || routing.route.is_some() || routing.device.is_some() {
            return false;
        }
        match &routing.uri {
            // MESSAGE is in RFC 8876. Other methods would make a dialog without a password.
            Uri::Urn(urn) => {
                matches!(request.method, Method::Invite | Method::Ack | Method::Cancel | Method::Message)
                    && urn.is_emergency()
            }
            Uri::Other(_) => false,
            Uri::Sip(uri) if !self.is_host_here(uri.host) => false,
            uri => {
                let may_begin = match request.method {
                    Method::Invite | Method::Cancel => request.to_tag.is_empty(),
                    Method::Ack => true,
                    _ => false,
                };
                may_begin && self.is_emergency_number(uri) && self.knows_caller(now, request)
            }
        }
    }

    /// Returns whether a request with this Request-URI may be an emergency call.
    pub(crate) fn may_be_emergency(&self, uri: &[u8]) -> bool {
        !self.policy.config.decisions.emergency.uris.is_empty()
            && Uri::parse(uri).is_ok_and(|uri| match &uri {
                Uri::Urn(urn) => urn.is_emergency(),
                Uri::Other(_) => false,
                uri => self.is_emergency_number(uri),
            })
    }

    fn is_emergency_number(&self, uri: &Uri<'_>) -> bool {
        let Some(number) = number_of(uri).filter(|_| is_bare_number(uri)) else { return false };
        let mut numbers = self.policy.config.emergency.numbers.iter();
        numbers.any(|own| number.clone().eq(own.as_str().bytes()))
    }

    /// Returns whether a host is a local domain, or an address of this server.
    fn is_host_here(&self, host: Host<'_>) -> bool {
        let identity = self.policy.router.identity();
        identity.domain_of(host).is_some() || identity.is_own_host(host)
    }

    /// Returns whether From names a user of this server or is anonymous, or the source is trusted or a registered
    /// phone.
    fn knows_caller(&self, now: Now, request: &Request<'_>) -> bool {
        let from = request.mandatory.from.uri;
        self.is_from_local(request)
            || is_anonymous(&from)
            || from.address().is_some_and(|uri| self.is_host_here(uri.host))
            || self.is_trusted(request.arrival.remote.ip())
            || self.is_from_binding(now, request)
    }

    /// Returns whether the user in Contact has a binding that was registered from the address of this request.
    fn is_from_binding(&self, now: Now, request: &Request<'_>) -> bool {
        let Some(Ok(contact)) = request.message.contacts().next() else { return false };
        let Some(user) = contact.addr.uri.sip().and_then(|uri| uri.user) else { return false };
        let (identity, source) = (self.policy.router.identity(), request.arrival.remote.ip().to_canonical());
        let (mut aor, mut is_there) = (Vec::new(), false);
        for domain in self.policy.config.domain_names() {
            let Ok(host) = Host::parse(domain.as_bytes()) else { continue };
            aor.clear();
            self.write_aor(&Uri::Sip(SipUri::new(Some(user), host)), &mut aor);
            self.shared.location.lookup(&aor, now.mono, &mut |binding| {
                let of_contact = || Uri::parse(binding.uri()).ok()?.sip()?.host.ip();
                let at = target_of(&binding, identity).map(|at| at.address.ip().to_canonical()).or_else(of_contact);
                is_there |= at == Some(source);
            });
        }
        is_there
    }

    /// Returns whether the source of an emergency call is probably genuine: the source has a connection, is trusted, or
    /// is a registered phone.
    pub(crate) fn is_known_source(&self, now: Now, request: &Request<'_>) -> bool {
        let arrival = request.arrival;
        arrival.transport.is_reliable() || self.is_trusted(arrival.remote.ip()) || self.is_from_binding(now, request)
    }

    /// Builds the decision for an emergency call and logs it.
    pub(crate) fn emergency_decision(&self, handling: &Handling<'_, '_>, routing: &Routing<'_>) -> Box<Decision> {
        let (request, decisions) = (handling.request, &self.policy.config.decisions);
        let mut decision = Decision::of_emergency(&decisions.emergency);
        if let Some(source) = &decisions.emergency_identity {
            let caller = self.named_caller(request);
            if let Some(identity) = self.identity_by(request, caller.as_ref(), true, source) {
                decision.assert(&identity);
            }
        }
        if let Some(trace_request) = handling.progress.trace_request.as_deref() {
            let values = vec![("request.uri".to_owned(), format!("'{}'", shown(routing.uri_text)))];
            let (name, part) = ("[emergency]".to_owned(), "emergency call".to_owned());
            let rule_result = RuleResult { name, part, values, holds: true, part_holds: true, ..RuleResult::default() };
            trace_request.path.borrow_mut().push(rule_result);
        } else if self.may_say(handling, LogSubject::Forwarding) {
            tracing::warn!(
                call_id = %shown(request.call_id),
                source = %request.arrival.remote,
                from = %shown(request.mandatory.from.addr.uri_text),
                uri = %shown(routing.uri_text),
                "emergency call"
            );
        }
        Box::new(decision)
    }

    /// Returns the user in From, if its domain is local.
    fn named_caller(&self, request: &Request<'_>) -> Option<User> {
        let from = request.mandatory.from.uri.address().filter(|_| self.is_from_local(request))?;
        let mut user = User { name: Default::default(), domain: Default::default() };
        user.name.extend(unescaped(from.user?));
        user.domain.extend_from_slice(self.policy.identity().domain_of(from.host)?);
        Some(user)
    }

    /// Writes a Route for each target of a request for an emergency service URN, always with `lr` (RFC 3261 section 16.6
    /// steps 6 and 7). Returns `None` for a request that the server does not route as an emergency call.
    pub(crate) fn emergency_routes(&self, routing: &Routing<'_>, to: &[String]) -> Option<Vec<Vec<u8>>> {
        let Uri::Urn(urn) = &routing.uri else { return None };
        let is_set = !self.policy.config.decisions.emergency.uris.is_empty();
        let route = |uri: &String| {
            let target = Uri::parse(uri.as_bytes());
            let is_loose = target.is_ok_and(|target| target.sip().is_some_and(|target| target.params.lr()));
            format!("<{uri}{}>", if is_loose { "" } else { ";lr" }).into_bytes()
        };
        (is_set && urn.is_emergency() && routing.route.is_none()).then(|| to.iter().map(route).collect())
    }

    /// Returns whether a message of a banned source passes: an emergency call, a request within a dialog that this
    /// server admitted, or a response.
    #[cold]
    pub(crate) fn is_heard_though_banned(&self, now: Now, arrival: &Arrival, bytes: &[u8]) -> bool {
        let is_set = !self.policy.config.decisions.emergency.uris.is_empty();
        if !is_set || !OF_CALLS.iter().any(|beginning| bytes.starts_with(beginning)) {
            return false;
        }
        let mut index = Index::new();
        if index.parse(bytes, &self.policy.limits).is_err() || index.form() != Form::Canonical {
            return false;
        }
        let message = Message::new(bytes, &index);
        if !message.is_request() {
            return true;
        }
        let Ok(request) = Request::of(message, arrival, 0) else { return false };
        let routing = self.policy.router.route(now, &request);
        routing.in_dialog || self.is_emergency(now, &request, &routing)
    }
}
