//! Remote targets of the dialogs of the user agent (RFC 3261 section 12.1.1): its requests reach the party as those of the proxy do, and no party
//! makes this server send to an address that it may not name ([`crate::reach`]).

use crate::decider::Decider;
use std::net::SocketAddr;
use strowger_core::proxy::ResponseSender;
use strowger_core::routing::contact_repair::{is_first_hop, is_needed, is_translated};
use strowger_core::routing::{NextHop, Request, Scope};
use strowger_core::{Arrival, ListenerId, Target, Transport};
use strowger_message::{Edit, Message, Method, Name, SipUri, Uri};

impl Decider<'_> {
    /// Returns a request with the source of its sender as Contact, if its own Contact does not lead to the sender, or is
    /// an address that the sender may not name; `None` if the request stays unchanged.
    pub(crate) fn with_reachable_contact(&self, request: &Request<'_>) -> Option<Vec<u8>> {
        // The methods that refresh the target of a dialog.
        if !matches!(
            request.method,
            Method::Invite | Method::Update | Method::Subscribe | Method::Notify | Method::Refer
        ) {
            return None;
        }
        let (message, arrival) = (&request.message, request.arrival);
        let contact = message.contacts().next()?.ok()?.value;
        let uri = contact.addr.uri.sip()?;
        let is_moved = || {
            let translated = is_translated(&request.mandatory.via, arrival);
            let repairs = arrival.transport.is_reliable() || self.policy.config.nat.contact_repair;
            repairs && is_first_hop(message) && is_needed(uri, arrival.transport, &arrival.remote, translated)
        };
        if !self.is_barred(request, &contact.addr.uri) && !is_moved() {
            return None;
        }
        Some(with_contact(message, uri, (arrival.transport, arrival.remote)))
    }

    /// Returns a response to a far INVITE with the address of its sender as Contact, if its own Contact does not lead to the sender, or is an
    /// address that the sender may not name; `None` if the response stays unchanged.
    pub(crate) fn with_sender_as_contact(&self, response: &Message<'_>, sender: &ResponseSender) -> Option<Vec<u8>> {
        let contact = response.contacts().next()?.ok()?.value;
        let uri = contact.addr.uri.sip()?;
        let Arrival { transport, listener, remote, .. } = sender.source;
        let place = match sender.device {
            Some(device) => (device.transport, device.address),
            None => {
                let repairs = transport.is_reliable() || self.policy.config.nat.contact_repair;
                let is_moved = repairs && !response.has(Name::RecordRoute) && is_needed(uri, transport, &remote, false);
                if !is_moved && !self.leads_to_barred(sender.scope, &contact.addr.uri, listener) {
                    return None;
                }
                (transport, remote)
            }
        };
        Some(with_contact(response, uri, place))
    }

    /// Returns the 2xx to a re-INVITE or UPDATE of the user agent with the place to which that was sent as Contact, if the Contact of the sender does
    /// not lead to it, or is an address that it may not name; `None` if the response stays unchanged.
    pub(crate) fn with_reachable_answer(
        &self,
        response: &Message<'_>,
        arrival: &Arrival,
        sent: Target,
    ) -> Option<Vec<u8>> {
        let is_answer = response.status().is_some_and(|status| (200..300).contains(&status));
        if !is_answer || !matches!(response.cseq().ok()?.method, Method::Invite | Method::Update) {
            return None;
        }
        let contact = response.contacts().next()?.ok()?.value;
        let uri = contact.addr.uri.sip()?;
        // A device may answer from another port than it listens at.
        let is_udp = sent.transport == Transport::Udp && arrival.transport == Transport::Udp;
        let (transport, remote) = (arrival.transport, if is_udp { sent.address } else { arrival.remote });
        let repairs = transport.is_reliable() || self.policy.config.nat.contact_repair;
        let scope = self.policy.router.scope_of_source(arrival);
        let is_moved = repairs && is_needed(uri, transport, &remote, false);
        let is_replaced = is_moved || self.leads_to_barred(scope, &contact.addr.uri, arrival.listener);
        is_replaced.then(|| with_contact(response, uri, (transport, remote)))
    }

    /// Tells whether the next hop of the dialog that a response makes, by its Record-Route, is an address that a sender of this scope may not
    /// name.
    pub(crate) fn has_barred_hop(&self, response: &Message<'_>, arrival: &Arrival, scope: Scope) -> bool {
        // The caller uses the route set in reverse order (section 12.1.2).
        let first = response.record_routes().filter_map(Result::ok).last();
        first.is_some_and(|route| self.leads_to_barred(scope, &route.value.uri, arrival.listener))
    }

    /// Tells whether the next hop of the dialog that an INVITE makes, by its Record-Route, is an address that its sender
    /// may not name.
    pub(crate) fn has_barred_route(&self, request: &Request<'_>) -> bool {
        let first = request.message.record_routes().next().and_then(Result::ok);
        first.is_some_and(|route| self.is_barred(request, &route.value.uri))
    }

    fn is_barred(&self, request: &Request<'_>, uri: &Uri<'_>) -> bool {
        self.leads_to_barred(self.policy.scope_of_sender(request), uri, request.arrival.listener)
    }

    fn leads_to_barred(&self, scope: Scope, uri: &Uri<'_>, listener: ListenerId) -> bool {
        match self.policy.router.next_hop(uri, listener) {
            NextHop::Known(target) => !self.policy.may_name(scope, &target),
            _ => false,
        }
    }
}

/// Returns a message with this place as Contact, in place of `uri`.
fn with_contact(message: &Message<'_>, uri: &SipUri<'_>, place: (Transport, SocketAddr)) -> Vec<u8> {
    let (mut edit, mut bytes) = (Edit::new(), Vec::new());
    edit.set(message.index(), Name::Contact, |out| write_place(uri, place, out));
    edit.write(message, &mut bytes);
    bytes
}

/// Writes a place as Contact, with the user of `uri`.
fn write_place(uri: &SipUri<'_>, (transport, address): (Transport, SocketAddr), out: &mut Vec<u8>) {
    out.extend_from_slice(if uri.secure { b"<sips:" } else { b"<sip:" });
    if let Some(user) = uri.user {
        out.extend_from_slice(user);
        out.push(b'@');
    }
    out.extend_from_slice(address.to_string().as_bytes());
    let transport = match (uri.secure, transport) {
        (_, Transport::Udp) | (true, Transport::Tls) => None,
        (true, Transport::Wss) => Some(Transport::Ws),
        (_, transport) => Some(transport),
    };
    if let Some(transport) = transport {
        out.extend_from_slice(b";transport=");
        out.extend_from_slice(transport.text().as_bytes());
    }
    out.push(b'>');
}
