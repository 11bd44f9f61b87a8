//! Remote targets of the dialogs of the user agent (RFC 3261 section 12.1.1): the requests of an endpoint reach the caller as those of the
//! proxy do, and no caller makes this server send to an address that it may not name ([`crate::reach`]).

use crate::decider::Decider;
use strowger_core::Transport;
use strowger_core::routing::contact_repair::{is_first_hop, is_needed, is_translated};
use strowger_core::routing::{NextHop, Request};
use strowger_message::{Edit, Method, Name, SipUri, Uri};

impl Decider<'_> {
    /// Returns a request with the source of its sender as Contact, if its own Contact does not lead to the sender, or is
    /// an address that the sender may not name; `None` if the request stays unchanged.
    pub(crate) fn with_reachable_contact(&self, request: &Request<'_>) -> Option<Vec<u8>> {
        if !matches!(request.method, Method::Invite | Method::Update) {
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
        let (mut edit, mut bytes) = (Edit::new(), Vec::new());
        edit.set(message.index(), Name::Contact, |out| write_source(uri, request, out));
        edit.write(message, &mut bytes);
        Some(bytes)
    }

    /// Tells whether the next hop of the dialog that an INVITE makes, by its Record-Route, is an address that its sender
    /// may not name.
    pub(crate) fn has_barred_route(&self, request: &Request<'_>) -> bool {
        let first = request.message.record_routes().next().and_then(Result::ok);
        first.is_some_and(|route| self.is_barred(request, &route.value.uri))
    }

    fn is_barred(&self, request: &Request<'_>, uri: &Uri<'_>) -> bool {
        let scope = self.policy.scope_of_sender(request);
        match self.policy.router.next_hop(uri, request.arrival.listener) {
            NextHop::Known(target) => !self.policy.may_name(scope, &target),
            _ => false,
        }
    }
}

/// Writes the source of a request as Contact, with the user of `uri`.
fn write_source(uri: &SipUri<'_>, request: &Request<'_>, out: &mut Vec<u8>) {
    let arrival = request.arrival;
    out.extend_from_slice(if uri.secure { b"<sips:" } else { b"<sip:" });
    if let Some(user) = uri.user {
        out.extend_from_slice(user);
        out.push(b'@');
    }
    out.extend_from_slice(arrival.remote.to_string().as_bytes());
    let transport = match (uri.secure, arrival.transport) {
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
