//! The stage of an ACK for a 2xx: forwarded without a transaction, under the rules of other requests; never answered.

use crate::contacts::Contacts;
use crate::engine::Engine;
use crate::forwarding::Destination;
use crate::handling::Handling;
use crate::own_name::OwnName;
use crate::routing::NoHop;
use crate::stage::Verdict;
use strowger_config::RelayFor;
use strowger_core::routing::Routing;
use strowger_message::{Method, Uri};

impl Engine {
    /// Whether an ACK may go on, and where.
    pub(crate) fn acknowledge(
        &self,
        handling: &Handling<'_, '_>,
        routing: &Routing<'_>,
        contacts: &mut Contacts,
    ) -> Verdict {
        let request = handling.request;
        // It acknowledges an answer of ours, by any branch: it has arrived.
        let is_ours = self.policy.router.own_tag().is(request.to_tag, request.call_id);
        if is_ours || request.max_forwards == Some(0) || matches!(request.uri, Uri::Other(_)) {
            return Verdict::Drop;
        }
        match self.is_own_by_name(handling, routing) {
            OwnName::No => (),
            OwnName::Yes => return self.arrived(handling, routing),
            OwnName::Ask(name) => return Verdict::Ask(name),
            OwnName::TooMany => return Verdict::Drop,
        }
        let local = routing.route.is_none() && self.is_local(&routing.uri);
        // To a user without a tag it acknowledges nothing: the 2xx of a user agent has one (section 12.1.1).
        if local && request.to_tag.is_empty() {
            return Verdict::Drop;
        }
        // Where our Record-Route stands in a call, so does our route token in its ACK. Without it the ACK of a 2xx whose Contact is the
        // user's own address comes here all the same.
        let passes = routing.in_dialog
            || (local && !self.policy.config.proxy.record_route)
            || match self.policy.config.proxy.relay_for {
                RelayFor::Everyone => true,
                RelayFor::LocalDomains => !self.policy.config.auth.calls && self.is_local(&request.mandatory.from.uri),
                RelayFor::Authenticated => false,
            };
        // What a rule answers or drops in another request is dropped in an ACK, but not in one of a call that was let through.
        let passes = passes && (routing.in_dialog || self.refused_by_rules(handling, routing).is_none());
        if routing.malformed || !passes || self.is_unknown_here(routing) {
            self.counters().relay_denied.one();
            self.log_ack(handling, routing);
            return Verdict::Drop;
        }
        if local && routing.device.is_none() {
            self.lookup_contacts(handling.now, Method::Invite, &routing.uri, contacts);
            let first = contacts.entries.first();
            let target = first.and_then(|first| first.target.or_else(|| self.contact_target(contacts, first)));
            return target.map_or(Verdict::Drop, |target| Verdict::Forward(Destination::FirstContact(target)));
        }
        match self.next_hop(handling, routing, &mut contacts.text) {
            Ok(targets) => Verdict::Forward(Destination::NextHop { targets, otherwise: 0 }),
            Err(NoHop::Ask(question)) => Verdict::Ask(question),
            Err(NoHop::Denied) => {
                self.counters().relay_denied.one();
                Verdict::Drop
            }
        }
    }
}
