//! Routing data of a request to a party of a dialog: remote target and route set (RFC 3261 section 12.2.1.1).

use crate::call::{Call, LONGEST_WAY};
use crate::dialog::Dialog;
use smallvec::SmallVec;
use strowger_core::notice::Party;
use strowger_core::routing::{Request, Router, UriTarget};
use strowger_message::header::Hop;
use strowger_message::{Message, SipUri, Uri};

/// Returns the text of the Contact URI.
pub(crate) fn contact_of<'a>(message: &Message<'a>) -> Option<&'a [u8]> {
    let text = message.contacts().next()?.ok()?.addr.uri_text;
    (text.len() <= LONGEST_WAY).then_some(text)
}

/// Returns the path of a request from the peer to this party: its Contact, and its Routes, which begin with the Route
/// of this server (RFC 3261 sections 12.1.1 and 12.1.2). The Record-Routes of a request lead to the caller. The
/// Record-Routes of a response, in reverse order, lead to the callee.
pub(crate) fn way<'a>(router: &Router, message: &Message<'a>) -> Option<(&'a [u8], Vec<u8>)> {
    let contact = contact_of(message)?;
    let mut routes: SmallVec<[Hop<'a>; 4]> = SmallVec::new();
    for route in message.record_routes() {
        routes.push(route.ok()?.value);
    }
    if !message.is_request() {
        routes.reverse();
    }
    // A peer can write a Route with an address of this server, but no route token.
    let is_own = |route: &Hop<'_>| route.uri.sip().is_some_and(|uri| router.is_own_record_route(uri));
    let first = routes.iter().position(is_own)?;
    let mut text = Vec::new();
    for route in &routes[first..] {
        text.extend_from_slice(if text.is_empty() { b"<" } else { b", <" });
        text.extend_from_slice(route.uri_text);
        text.push(b'>');
    }
    (text.len() <= LONGEST_WAY).then_some((contact, text))
}

/// Returns whether a request of this party is for the remote target of the dialog and uses its route set (RFC 3261
/// section 12.2.1.1). Call-ID and tags alone prove nothing, because a party can give them to others for a call with
/// another peer.
pub(crate) fn leads_along(router: &Router, request: &Request<'_>, call: &Call, dialog: &Dialog, party: Party) -> bool {
    let (contact, routes) = match party {
        Party::Caller => (dialog.contact(), dialog.routes()),
        Party::Callee => (call.caller_contact(), call.caller_routes()),
    };
    // Only a party of an emergency call can be unknown.
    if contact.is_empty() {
        return true;
    }
    let is_target = match (Uri::parse(contact), &request.uri) {
        (Ok(Uri::Sip(known)), Uri::Sip(uri)) => UriTarget::of(&known) == UriTarget::of(uri),
        _ => request.message.request_uri() == contact,
    };
    is_target && has_routes(router, request, routes)
}

/// Returns whether the Routes of a request name the same proxies as `routes`, from this server on.
fn has_routes(router: &Router, request: &Request<'_>, routes: &[u8]) -> bool {
    let is_own = |uri: &SipUri<'_>| router.is_own(uri);
    // Format in the table: `<URI>, <URI>`.
    let known = routes.split(|b| *b == b'>').map(|route| {
        let start = route.iter().position(|b| *b == b'<').map_or(0, |at| at + 1);
        &route[start..]
    });
    let known = known.filter_map(|route| Uri::parse(route).ok()?.sip().copied());
    let mut known = known.filter(|uri| !is_own(uri));
    let mut is_before = true;
    for route in request.message.routes() {
        let Some(uri) = route.ok().and_then(|route| route.value.uri.sip().copied()) else { return false };
        let is_ours = is_own(&uri);
        // Proxies before this server.
        is_before &= !is_ours;
        if is_before || is_ours {
            continue;
        }
        if known.next().is_none_or(|known| UriTarget::of(&known) != UriTarget::of(&uri)) {
            return false;
        }
    }
    known.next().is_none()
}

/// Returns whether a route set of the table names only this server.
pub(crate) fn has_own_routes_alone(router: &Router, routes: &[u8]) -> bool {
    let uris = routes.split(|b| matches!(b, b'<' | b'>')).skip(1).step_by(2);
    let mut uris = uris.map(|uri| Uri::parse(uri).ok().and_then(|uri| uri.sip().copied()));
    uris.all(|uri| uri.is_some_and(|uri| router.is_own(&uri)))
}
