//! Contact of a forwarded message, in the cases in which it needs a seal: the device sends from another address, or a
//! party changes its Contact, which the route token of its Record-Route does not cover.

use super::Proxy;
use super::plan::DialogUse;
use crate::routing::contact_repair::{is_first_hop, is_invalid, is_narrower, is_needed, is_private, is_translated};
use crate::routing::route_token::{Beyond, Named};
use crate::routing::{DeviceAddress, Request, Scope, Usage};
use crate::{Arrival, Now, Target, Transport};
use std::net::IpAddr;
use strowger_message::{Host, Message, Method, Name, SipUri, Uri};

/// Tells whether a 2xx to this method, or a NOTIFY, creates a dialog (RFC 3261 section 12, RFC 6665, RFC 3515).
pub(super) const fn makes_dialog(method: Method) -> bool {
    matches!(method, Method::Invite | Method::Subscribe | Method::Refer | Method::Notify)
}

/// Tells whether the Contact of such a request within a dialog becomes the target of later requests (RFC 3261 section 12.2, RFC 3311
/// section 5, RFC 6665 section 4.4.1).
pub(super) const fn renews_target(method: Method) -> bool {
    makes_dialog(method) || matches!(method, Method::Update)
}

/// Origin of a response: the device that its Contact names, or another element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FromDevice {
    Yes,
    /// Yes, if no element behind this server has record-routed.
    IfLast,
    No,
}

/// Contact of a message and the real address of its sender.
#[derive(Clone, Copy, Debug)]
pub(super) struct SenderContact<'a> {
    /// Text of the URI of the first Contact.
    text: &'a [u8],
    uri: SipUri<'a>,
    /// Real address of the sender, if others cannot reach its Contact.
    device: Option<Target>,
    /// Scope of the address that the message came from.
    scope: Scope,
    /// Usage of the dialog that the message makes or renews.
    usage: Usage,
}

impl SenderContact<'_> {
    /// Returns the real address of the sender, if others cannot reach its Contact.
    pub(super) const fn device(&self) -> Option<Target> {
        self.device
    }

    /// Returns the Contact that a route token covers. The written Contact is used only if it has the same meaning for
    /// other elements.
    pub(super) fn named(&self) -> Named<'_> {
        match (&self.device, self.uri.host) {
            (None, _) => Named::Contact(&self.uri),
            (Some(_), Host::Name(name)) if !is_invalid(name) => Named::Contact(&self.uri),
            (Some(device), host) => match host.ip() {
                Some(ip) if ip == device.address.ip() || !is_private(ip, device.address.ip()) => {
                    Named::Contact(&self.uri)
                }
                _ => Named::Seal,
            },
        }
    }
}

impl Proxy {
    /// Reads the Contact of a request that creates a dialog or renews the target of a dialog.
    pub(super) fn contact_of_request<'a>(&self, request: &Request<'a>, dialog: DialogUse) -> Option<SenderContact<'a>> {
        let (message, arrival, method) = (&request.message, request.arrival, request.method);
        let may_change_target = if request.to_tag.is_empty() { makes_dialog(method) } else { renews_target(method) };
        let (text, uri) = contact(message).filter(|_| may_change_target && dialog.stays)?;
        let (from, first_hop) = (arrival.reply(), is_first_hop(message));
        // True if this server is the first hop from a device, so that no element is between them.
        let is_moved = || {
            let translated = is_translated(&request.mandatory.via, arrival);
            first_hop && is_needed(&uri, from.transport, &from.address, translated)
        };
        let is_lost =
            || is_narrower(&uri, &from.address) && matches!(self.policy.router.behind_us(message), Beyond::Party);
        let router = &self.policy.router;
        let is_repaired = self.policy.settings.contact_repair && (is_moved() || is_lost());
        // Another server is no device. If this server sent the request to itself, it has repaired the Contact before.
        let device = (is_repaired && !router.is_from_here(request)).then_some(from);
        let scope = router.scope_of_sender(request);
        Some(SenderContact { text, uri, device, scope, usage: dialog.usage })
    }

    /// Reads the Contact of a response. `sent`: the target of the request, and whether an address translator precedes it.
    pub(super) fn contact_of_response<'a>(
        &self,
        response: &Message<'a>,
        arrival: &Arrival,
        sent: (Option<Target>, bool),
        from_device: FromDevice,
        usage: Usage,
    ) -> Option<SenderContact<'a>> {
        let (text, uri) = contact(response)?;
        let is_own = match from_device {
            FromDevice::Yes => true,
            FromDevice::IfLast => response.has(Name::RecordRoute) && self.is_last(response),
            FromDevice::No => is_narrower(&uri, &arrival.remote) && self.is_last(response),
        };
        let router = &self.policy.router;
        let is_repaired = is_own && self.policy.settings.contact_repair;
        let device = is_repaired.then(|| device_behind(&uri, arrival, sent)).flatten();
        // The rule is the same as for a request.
        let device = device.filter(|device| !router.identity().is_this_server(device.transport, &device.address));
        let scope = router.scope_of_response(arrival, sent.0);
        Some(SenderContact { text, uri, device, scope, usage })
    }

    /// Seals the Contact of the party with this tag, if it needs a seal. `renews`: whether the Contact becomes the
    /// target of a dialog. `receiver`: address to which the message is sent. Without a seal, a sender from a wider
    /// scope than that of its Contact could not give this Contact to a third party (RFC 5589 section 7); the seal
    /// states that the party itself named the Contact.
    pub(super) fn seal_contact(
        &mut self,
        now: Now,
        message: &Message<'_>,
        call_id: &[u8],
        tag: &[u8],
        contact: &SenderContact<'_>,
        (renews, receiver): (bool, IpAddr),
    ) {
        let SenderContact { text, uri, device, scope, usage } = *contact;
        let facts = (scope, usage);
        if tag.is_empty() || (device.is_none() && !renews && !self.leads_further_in(contact, receiver)) {
            return;
        }
        // Another server with the same secret, or this one on an earlier pass of the request, has sealed it.
        if device.is_none() && self.policy.router.seals.find(now, call_id, tag, &uri).is_some_and(|seal| seal.of_party)
        {
            return;
        }
        let device =
            device.map(|from| DeviceAddress { transport: from.transport, address: from.address, flow: from.flow });
        let range = message.range_of(text);
        let seals = &self.policy.router.seals;
        if range.start == 0 || message.bytes()[range.start - 1] != b'<' {
            // Without angle brackets, the parameters would be parameters of the header field.
            self.edit.replace(range, |out| {
                out.push(b'<');
                out.extend_from_slice(text);
                seals.write(now, call_id, tag, &uri, device.as_ref(), facts, out);
                out.push(b'>');
            });
        } else {
            // URI parameters precede the question mark.
            let headers = if uri.headers.is_empty() { 0 } else { uri.headers.len() + 1 };
            self.edit
                .insert(range.end - headers, |out| seals.write(now, call_id, tag, &uri, device.as_ref(), facts, out));
        }
    }

    /// Tells whether the sender of a Contact may name its address and the receiver may not.
    fn leads_further_in(&self, contact: &SenderContact<'_>, receiver: IpAddr) -> bool {
        let machine = self.policy.router.identity().machine();
        let leads = |ip| (contact.scope..machine.scope_of_sender(receiver)).contains(&machine.scope_of(ip));
        contact.uri.host.ip().is_some_and(leads)
    }

    /// Tells whether no other proxy with a Record-Route is between this server and the sender of this response.
    pub(super) fn is_last(&self, response: &Message<'_>) -> bool {
        match response.record_routes().next() {
            None => true,
            Some(Ok(route)) => route.uri.sip().is_some_and(|uri| self.policy.router.is_own(uri)),
            Some(Err(_)) => false,
        }
    }
}

/// Returns the first Contact: its text and its SIP URI.
pub(super) fn contact<'a>(message: &Message<'a>) -> Option<(&'a [u8], SipUri<'a>)> {
    let contact = message.contacts().next()?.ok()?.value;
    match contact.uri {
        Uri::Sip(uri) => Some((contact.uri_text, uri)),
        _ => None,
    }
}

/// Returns the target of a device that answered, if its Contact names another address. Over UDP this is the target of
/// the request, since the device may send its answer from another port than it listens on.
fn device_behind(contact: &SipUri<'_>, arrival: &Arrival, sent: (Option<Target>, bool)) -> Option<Target> {
    let from = arrival.reply();
    let needed = |device: &Target| is_needed(contact, device.transport, &device.address, sent.1);
    match sent.0.filter(|sent| arrival.transport == Transport::Udp && sent.transport == Transport::Udp) {
        Some(sent) => (needed(&from) && needed(&sent)).then_some(sent),
        None => Some(from).filter(needed),
    }
}
