//! Names of this server that its configuration does not have: they resolve to one of its addresses (RFC 3261 section
//! 16.4).
//!
//! Phones put the name of their outbound proxy into a Route of each request, before they have shown a password. An
//! unknown peer must not choose which names are looked up. So only names below a local domain are looked up before the
//! password is proved; other names are looked up once the request may be forwarded.

use crate::handling::Handling;
use crate::policy::Policy;
use crate::question::{Answers, HostKey, Question};
use strowger_core::routing::{NextHop, Request, Routing};
use strowger_message::{Host, SipUri, Uri};

/// Answer to the question whether a request names this server by a name that is looked up.
#[derive(Debug)]
pub(crate) enum OwnName {
    No,
    Yes,
    /// The name must be looked up first.
    Ask(Question),
    /// The request has used up its look-ups.
    TooMany,
}

impl Policy {
    /// Tells whether the first remaining Route, or the Request-URI if there is none, names this server by a name that
    /// was looked up. `most_names`: maximum number of names that are looked up for a request.
    pub(crate) fn is_own_by_name(
        &self,
        handling: &Handling<'_, '_>,
        routing: &Routing<'_>,
        most_names: usize,
    ) -> OwnName {
        let Uri::Sip(uri) = routing.route.as_ref().unwrap_or(&routing.uri) else { return OwnName::No };
        let (Host::Name(name), None, None) = (uri.host, uri.params.maddr(), routing.device) else { return OwnName::No };
        let identity = self.router.identity();
        let answers = &handling.progress.answers;
        let may_ask = identity.is_below_local_domain(name);
        if (answers.names.is_empty() && !may_ask) || identity.is_local_domain(uri.host) || self.router.is_own(uri) {
            return OwnName::No;
        }
        let Some(key) = self.key_of(handling.request, routing, uri) else { return OwnName::No };
        if answers.name(&key).is_none() && may_ask {
            // If all names of a domain resolve to this server, each of these names may resolve to it too.
            return match answers.names.len() < most_names {
                true => OwnName::Ask(Question::Name(key)),
                false => OwnName::TooMany,
            };
        }
        if self.leads_here_by(answers, &key) { OwnName::Yes } else { OwnName::No }
    }

    pub(crate) fn key_of(&self, request: &Request<'_>, routing: &Routing<'_>, uri: &SipUri<'_>) -> Option<HostKey> {
        let prefer = routing.listener.unwrap_or(request.arrival.listener);
        // The same key as in `Decider::next_hop`.
        let uri = SipUri { secure: uri.secure || routing.uri.is_sips(), ..*uri };
        match self.router.next_hop(&Uri::Sip(uri), prefer) {
            NextHop::Name { host, port, transport, secure } => {
                Some((host.to_ascii_lowercase().into(), port, transport, secure))
            }
            _ => None,
        }
    }

    pub(crate) fn leads_here_by(&self, answers: &Answers, key: &HostKey) -> bool {
        answers
            .name(key)
            .is_some_and(|to| to.targets.iter().any(|(_, address)| self.router.identity().is_own_socket(address)))
    }
}
