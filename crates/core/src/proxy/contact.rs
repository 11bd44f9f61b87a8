//! The Contact of what passes, where it needs our seal: because its device is not where it says, or because a party of a call changes
//! it, so that the route token of its Record-Route does not lead there.

use super::Proxy;
use super::plan::DialogUse;
use crate::routing::contact_repair::{is_first_hop, is_invalid, is_narrower, is_needed, is_private, is_translated};
use crate::routing::route_token::{Beyond, Named};
use crate::routing::{DeviceAddress, Request, Scope, Usage};
use crate::{Arrival, Now, Target, Transport};
use std::net::IpAddr;
use strowger_message::{Host, Message, Method, Name, SipUri, Uri};

/// Requests whose 2xx, or whose NOTIFY, makes a dialog (RFC 3261 section 12, RFC 6665, RFC 3515).
pub(super) const fn makes_dialog(method: Method) -> bool {
    matches!(method, Method::Invite | Method::Subscribe | Method::Refer | Method::Notify)
}

/// Requests within a dialog whose Contact is the target of later ones from then on (RFC 3261 section 12.2, RFC 3311 section 5,
/// RFC 6665 section 4.4.1).
pub(super) const fn renews_target(method: Method) -> bool {
    makes_dialog(method) || matches!(method, Method::Update)
}

/// Whether a response comes from the device that its Contact names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FromDevice {
    Yes,
    /// If no element behind us record-routed.
    IfLast,
    No,
}

/// What a message says of where its sender is.
#[derive(Clone, Copy, Debug)]
pub(super) struct SenderContact<'a> {
    /// The URI of the first Contact as it stands.
    text: &'a [u8],
    uri: SipUri<'a>,
    /// Where its sender really is, if others could not reach that.
    device: Option<Target>,
    /// Of the address that it came from.
    scope: Scope,
    /// Usage of the dialog that the message makes or renews.
    usage: Usage,
}

impl SenderContact<'_> {
    /// The Contact that a route token is to lead to: by its own words only if they do not mean something else to others.
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
    /// What a request says that makes a dialog or renews the target of one.
    pub(super) fn contact_of_request<'a>(&self, request: &Request<'a>, dialog: DialogUse) -> Option<SenderContact<'a>> {
        let (message, arrival, method) = (&request.message, request.arrival, request.method);
        let may_change_target = if request.to_tag.is_empty() { makes_dialog(method) } else { renews_target(method) };
        let (text, uri) = contact(message).filter(|_| may_change_target && dialog.stays)?;
        let (from, first_hop) = (arrival.reply(), is_first_hop(message));
        // The first hop from a device: no element stands between it and us.
        let is_moved = || {
            let translated = is_translated(&request.mandatory.via, arrival);
            first_hop && is_needed(&uri, from.transport, &from.address, translated)
        };
        let is_lost =
            || is_narrower(&uri, &from.address) && matches!(self.policy.router.behind_us(message), Beyond::Party);
        let router = &self.policy.router;
        let is_repaired = self.policy.settings.contact_repair && (is_moved() || is_lost());
        // A server is no device: where this one sent the request to itself, it has repaired the Contact before.
        let device = (is_repaired && !router.is_from_here(request)).then_some(from);
        let scope = router.scope_of_sender(request);
        Some(SenderContact { text, uri, device, scope, usage: dialog.usage })
    }

    /// The same of a response. `sent`: where the request went, and whether a translator stands before that.
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
        // As in a request.
        let device = device.filter(|device| !router.identity().is_this_server(device.transport, &device.address));
        let scope = router.scope_of_response(arrival, sent.0);
        Some(SenderContact { text, uri, device, scope, usage })
    }

    /// Seals the Contact of the party with this tag, if it needs that. `renews`: it is the target of a dialog from now on. `receiver`: who gets
    /// the message. One that sends from further out than the Contact reaches could not name it to a third party (RFC 5589 section 7): the seal
    /// says that its own party named it.
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
        // Another server with our secret, or this one when the request passed it before, has done so.
        if device.is_none() && self.policy.router.seals.find(now, call_id, tag, &uri).is_some_and(|seal| seal.of_party)
        {
            return;
        }
        let device =
            device.map(|from| DeviceAddress { transport: from.transport, address: from.address, flow: from.flow });
        let range = message.range_of(text);
        let seals = &self.policy.router.seals;
        if range.start == 0 || message.bytes()[range.start - 1] != b'<' {
            // Without angle brackets parameters would be the header's.
            self.edit.replace(range, |out| {
                out.push(b'<');
                out.extend_from_slice(text);
                seals.write(now, call_id, tag, &uri, device.as_ref(), facts, out);
                out.push(b'>');
            });
        } else {
            // Parameters stand before the question mark.
            let headers = if uri.headers.is_empty() { 0 } else { uri.headers.len() + 1 };
            self.edit
                .insert(range.end - headers, |out| seals.write(now, call_id, tag, &uri, device.as_ref(), facts, out));
        }
    }

    /// Whether a Contact has an address that its sender may name, and the receiver may not.
    fn leads_further_in(&self, contact: &SenderContact<'_>, receiver: IpAddr) -> bool {
        let machine = self.policy.router.identity().machine();
        let leads = |ip| (contact.scope..machine.scope_of_sender(receiver)).contains(&machine.scope_of(ip));
        contact.uri.host.ip().is_some_and(leads)
    }

    /// No other proxy that record-routed stands between us and the sender of this response.
    fn is_last(&self, response: &Message<'_>) -> bool {
        match response.record_routes().next() {
            None => true,
            Some(Ok(route)) => route.uri.sip().is_some_and(|uri| self.policy.router.is_own(uri)),
            Some(Err(_)) => false,
        }
    }
}

/// The first Contact, its text and what it says.
fn contact<'a>(message: &Message<'a>) -> Option<(&'a [u8], SipUri<'a>)> {
    let contact = message.contacts().next()?.ok()?.value;
    match contact.uri {
        Uri::Sip(uri) => Some((contact.uri_text, uri)),
        _ => None,
    }
}

/// The way to a device that answered, if its Contact leads elsewhere. By UDP that is where the request reached it: it may answer
/// from another port than it listens on.
fn device_behind(contact: &SipUri<'_>, arrival: &Arrival, sent: (Option<Target>, bool)) -> Option<Target> {
    let from = arrival.reply();
    let needed = |device: &Target| is_needed(contact, device.transport, &device.address, sent.1);
    match sent.0.filter(|sent| arrival.transport == Transport::Udp && sent.transport == Transport::Udp) {
        Some(sent) => (needed(&from) && needed(&sent)).then_some(sent),
        None => Some(from).filter(needed),
    }
}
