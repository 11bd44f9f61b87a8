//! Second stage: decides whether the sender has the right to have a request forwarded.

use crate::decider::Decider;
use crate::dialog_access::DialogAccess;
use crate::handling::Handling;
use crate::proof::Proof;
use crate::reply::{Counted, Reply};
use crate::stage::Verdict;
use strowger_config::RelayFor;
use strowger_core::digest::ChallengeHeader;
use strowger_core::routing::{Request, Routing};
use strowger_message::Uri;

impl Decider<'_> {
    /// Decides whether a request may be forwarded.
    pub(crate) fn authorize(&self, handling: &Handling<'_, '_>, routing: &Routing<'_>) -> Verdict {
        match self.dialog_access(handling, routing) {
            DialogAccess::Granted => return Verdict::Admit(Proof { in_dialog: true, ..Proof::default() }),
            DialogAccess::Ask(question) => return Verdict::Ask(question),
            DialogAccess::Refused => (),
        }
        let request = handling.request;
        if self.is_trusted(request.arrival.remote.ip()) {
            return Verdict::Admit(Proof::default());
        }
        let from = request.mandatory.from.uri;
        let from_local = self.is_from_local(request);
        let to_local = routing.route.is_none() && self.is_for_local(request, &routing.uri);
        let relay_for = self.policy.config.proxy.relay_for;
        // A caller that claims to be a local user must prove it, for every destination.
        let must_authenticate =
            (from_local && self.policy.config.auth.calls) || (!to_local && relay_for == RelayFor::Authenticated);
        if must_authenticate {
            let shown = self.authenticate(handling, ChallengeHeader::ProxyAuthenticate, &from);
            return shown.map_or_else(Verdict::from, |(proof, _)| Verdict::Admit(proof));
        }
        if !to_local && relay_for == RelayFor::LocalDomains && !from_local {
            let reply = Reply { counted: Counted::RelayDenied, ..Reply::new(403) };
            return reply.because("relaying denied: neither end is of a local domain").into();
        }
        Verdict::Admit(Proof::default())
    }

    /// Checks whether a request may go to places of a rule outside the local domains; returns `None` if so.
    /// `relay_for`: setting of the rule. A local domain in the Request-URI, for which no password is needed, gives no
    /// right to the places of a rule.
    pub(crate) fn authorize_places(
        &self,
        handling: &Handling<'_, '_>,
        to: &[String],
        relay_for: Option<RelayFor>,
    ) -> Option<Verdict> {
        let request = handling.request;
        let is_outside = |uri: &String| {
            let uri = Uri::parse(uri.as_bytes());
            !uri.is_ok_and(|uri| self.is_local(&uri) || self.names_server(&uri))
        };
        let relay_for = relay_for.unwrap_or(self.policy.config.proxy.relay_for);
        let may_go = relay_for == RelayFor::Everyone
            || handling.progress.proof.user.is_some()
            || !to.iter().any(is_outside)
            || self.is_trusted(request.arrival.remote.ip())
            // Wherever such a caller needs a password, the caller has proved it by now.
            || (relay_for == RelayFor::LocalDomains && self.is_from_local(request));
        if may_go {
            return None;
        }
        if relay_for == RelayFor::LocalDomains {
            let reply = Reply { counted: Counted::RelayDenied, ..Reply::new(403) };
            return Some(reply.because("relaying denied: the caller is of no local domain").into());
        }
        let shown = self.authenticate(handling, ChallengeHeader::ProxyAuthenticate, &request.mandatory.from.uri);
        Some(shown.map_or_else(Verdict::from, |(proof, _)| Verdict::Admit(proof)))
    }

    /// Tells whether From names a local user. The port is ignored, because a person who reads the address looks at the
    /// name before the port. There are two exceptions: an address with a foreign port is another program if the request
    /// comes from that address, and so is a loopback address without a port, if the request comes from loopback and the
    /// address is no local domain.
    pub(crate) fn is_from_local(&self, request: &Request<'_>) -> bool {
        let Some(uri) = request.mandatory.from.uri.address() else { return false };
        let (identity, source) = (self.policy.identity(), request.arrival.remote.ip().to_canonical());
        let is_other_program = match (uri.host.ip(), uri.port) {
            (Some(ip), Some(port)) => ip == source && !identity.is_own_port(port),
            (Some(ip), None) => ip.is_loopback() && source.is_loopback() && !identity.is_local_domain(uri.host),
            (None, _) => false,
        };
        identity.domain_of(uri.host).is_some() && !is_other_program
    }
}
