//! Stage of an ACK for a 2xx. The ACK is forwarded without a transaction, under the rules of other requests, and never
//! answered.

use crate::contacts::Contacts;
use crate::decider::Decider;
use crate::destination::Destination;
use crate::destination_stage::NoHop;
use crate::handling::Handling;
use crate::own_name::OwnName;
use crate::stage::Verdict;
use strowger_config::RelayFor;
use strowger_core::routing::Routing;
use strowger_message::{Method, Uri};

impl Decider<'_> {
    /// Decides whether an ACK is forwarded, and where.
    pub(crate) fn acknowledge(
        &self,
        handling: &Handling<'_, '_>,
        routing: &Routing<'_>,
        contacts: &mut Contacts,
    ) -> Verdict {
        let request = handling.request;
        // The To tag shows that the ACK, with any branch, is for a response of this server: this server is its
        // destination.
        let is_ours = self.policy.router.own_tag().is(request.to_tag, request.call_id);
        if is_ours || request.max_forwards == Some(0) || matches!(request.uri, Uri::Other(_)) {
            return Verdict::Drop;
        }
        match self.policy.is_own_by_name(handling, routing, self.shared.bounds.names_per_request) {
            OwnName::No => (),
            OwnName::Yes => return self.arrived(handling, routing),
            OwnName::Ask(name) => return Verdict::Ask(name),
            OwnName::TooMany => return Verdict::Drop,
        }
        let local = routing.route.is_none() && self.is_local(&routing.uri);
        // An ACK for a user without a To tag acknowledges nothing: the 2xx of a user agent has a tag (section 12.1.1).
        if local && request.to_tag.is_empty() {
            return Verdict::Drop;
        }
        // If this server is in the Record-Route of a call, the ACK has a route token of this server. Otherwise the ACK
        // for a 2xx whose Contact is the user's own address arrives here nevertheless.
        let passes = routing.in_dialog
            || (local && !self.policy.config.proxy.record_route)
            || match self.policy.config.proxy.relay_for {
                RelayFor::Everyone => true,
                RelayFor::LocalDomains => !self.policy.config.auth.calls && self.is_local(&request.mandatory.from.uri),
                RelayFor::Authenticated => false,
            };
        // A rule that answers or drops other requests drops an ACK, unless the ACK belongs to an admitted call.
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
