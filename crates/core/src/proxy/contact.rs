//! The Contact of what passes, where it needs our seal: because its device is not where it says, or because a party of a call changes
//! it, so that the mark of its Record-Route does not lead there.

use super::contact_repair::{is_first_hop, is_needed, is_translated};
use super::{Proxy, Request, Routing, Way};
use crate::{Arrival, Now, Target, Transport};
use strowger_message::{Message, Method, SipUri, Uri};

/// Requests whose 2xx, or whose NOTIFY, makes a dialog (RFC 3261 section 12, RFC 6665, RFC 3515).
pub(super) const fn makes_dialog(method: Method) -> bool {
    matches!(method, Method::Invite | Method::Subscribe | Method::Refer | Method::Notify)
}

/// Requests within a dialog whose Contact is the target of later ones from then on (RFC 3261 section 12.2, RFC 3311 section 5,
/// RFC 6665 section 4.4.1).
pub(super) const fn renews_target(method: Method) -> bool {
    makes_dialog(method) || matches!(method, Method::Update)
}

/// Whether the sender of a response is the device that its Contact names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Device {
    Yes,
    /// If nobody behind us record-routed.
    IfLast,
    No,
}

impl Proxy {
    pub(super) fn seal_contact_of_request(&mut self, now: Now, request: &Request<'_>, routing: &Routing<'_>) {
        let (message, arrival) = (&request.message, request.arrival);
        let (begins, method) = (request.to_tag.is_empty(), request.method);
        if !self.settings.record_route || !(if begins { makes_dialog(method) } else { renews_target(method) }) {
            return;
        }
        let Some((text, uri)) = contact(message) else { return };
        // The first hop from a device: nobody stands between it and us.
        let way = (self.settings.contact_repair && is_first_hop(message)).then_some(arrival.reply()).filter(|from| {
            let translated = is_translated(&request.essentials.via, arrival);
            is_needed(&uri, from.transport, &from.address, translated)
        });
        if way.is_some() || routing.in_dialog {
            self.seal_contact(now, message, text, &uri, request.call_id, request.from_tag, way);
        }
    }

    /// `sent`: where the request went. `renews`: that was one which renews targets, within a dialog.
    pub(super) fn seal_contact_of_response(
        &mut self,
        now: Now,
        response: &Message<'_>,
        arrival: &Arrival,
        sent: Option<Target>,
        device: Device,
        renews: bool,
    ) {
        let repairs = self.settings.contact_repair && device != Device::No;
        if !(repairs || renews) {
            return;
        }
        let Some((text, uri)) = contact(response) else { return };
        let is_own = repairs && (device == Device::Yes || self.is_last(response));
        let way = is_own.then(|| way_back(&uri, arrival, sent)).flatten();
        if way.is_none() && !renews {
            return;
        }
        if let (Ok(call_id), Ok(to)) = (response.call_id(), response.to()) {
            self.seal_contact(now, response, text, &uri, call_id.text, to.tag.unwrap_or_default(), way);
        }
    }

    #[expect(clippy::too_many_arguments, reason = "each says one thing about the Contact")]
    fn seal_contact(
        &mut self,
        now: Now,
        message: &Message<'_>,
        text: &[u8],
        uri: &SipUri<'_>,
        call_id: &[u8],
        tag: &[u8],
        way: Option<Target>,
    ) {
        if tag.is_empty() {
            return;
        }
        // Another server with our secret, or this one when the request passed it before, has done so.
        if way.is_none() && self.seals.find(now, call_id, tag, uri).is_some_and(|seal| seal.of_party) {
            return;
        }
        let way = way.map(|from| Way { transport: from.transport, address: from.address, flow: from.flow });
        let range = message.range_of(text);
        let seals = &self.seals;
        if range.start == 0 || message.bytes()[range.start - 1] != b'<' {
            // Without angle brackets parameters would be the header's.
            self.edit.replace(range, |out| {
                out.push(b'<');
                out.extend_from_slice(text);
                seals.write(now, call_id, tag, uri, way.as_ref(), out);
                out.push(b'>');
            });
        } else {
            // Parameters stand before the question mark.
            let headers = if uri.headers.is_empty() { 0 } else { uri.headers.len() + 1 };
            self.edit.insert(range.end - headers, |out| seals.write(now, call_id, tag, uri, way.as_ref(), out));
        }
    }

    /// No other proxy that record-routed stands between us and the sender of this response.
    fn is_last(&self, response: &Message<'_>) -> bool {
        match response.record_routes().next() {
            None => false,
            Some(Ok(route)) => route.uri.sip().is_some_and(|uri| self.is_own(uri)),
            Some(Err(_)) => false,
        }
    }
}

/// The first Contact, its text and what it says.
pub(super) fn contact<'a>(message: &Message<'a>) -> Option<(&'a [u8], SipUri<'a>)> {
    let contact = message.contacts().next()?.ok()?.value;
    match contact.uri {
        Uri::Sip(uri) => Some((contact.uri_text, uri)),
        _ => None,
    }
}

/// The way to a device that answered, if its Contact leads elsewhere. By UDP that is where the request reached it: it may answer
/// from another port than it listens on.
fn way_back(contact: &SipUri<'_>, arrival: &Arrival, sent: Option<Target>) -> Option<Target> {
    let from = arrival.reply();
    let needed = |way: &Target| is_needed(contact, way.transport, &way.address, true);
    match sent.filter(|sent| arrival.transport == Transport::Udp && sent.transport == Transport::Udp) {
        Some(sent) => (needed(&from) && needed(&sent)).then_some(sent),
        None => Some(from).filter(needed),
    }
}
