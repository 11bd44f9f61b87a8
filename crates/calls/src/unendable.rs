//! Refusal of calls that this server cannot end.
//!
//! A BYE of the server needs a CSeq above the last CSeq of each party, and the tags, URIs, Contacts and route sets of the
//! dialog. The table stores each text up to a maximum length. An INVITE of a tracked call with a longer or missing text
//! is refused; a 2xx with such a text counts as a failure of its branch.

use crate::call::{LAST_CSEQ, LONGEST_TAG, LONGEST_WAY, parties};
use strowger_core::routing::{Request, Router};
use strowger_message::header::Hop;
use strowger_message::{Message, Method, Uri};

/// Number of bytes that this server may add: a seal to a Contact, and two Record-Routes with route tokens to a route
/// set.
const OWN: usize = 512;

/// Number of bytes around a URI in a route set: `<`, `>`, `, `.
const SEPARATORS: usize = 4;

/// Reason for the refusal of an INVITE: status and text for the operator.
pub type Unendable = (u16, &'static str);

/// Returns the reason if this server could not end the call of an INVITE.
pub(crate) fn unendable(request: &Request<'_>) -> Option<Unendable> {
    if request.cseq > LAST_CSEQ {
        return Some((400, "its CSeq leaves none for a BYE of this server"));
    }
    let (caller, callee) = parties(request);
    if request.from_tag.is_empty() {
        return Some((400, "From has no tag, so no BYE of this server could reach the caller"));
    }
    let tag = request.from_tag.len().max(request.to_tag.len());
    if tag > LONGEST_TAG || caller.len() + callee.len() + request.call_id.len() > LONGEST_WAY {
        return Some((513, "Call-ID, From and To are longer than the table of calls keeps"));
    }
    let Some(contact) = reachable_contact(&request.message) else {
        return Some((400, "no SIP URI in Contact, so no BYE of this server could reach the caller"));
    };
    let routes = request.message.record_routes().map(|route| route.ok().map(|route| route.value));
    match length_of(routes) {
        None => Some((400, "a Record-Route without a SIP URI, so no BYE of this server could reach the caller")),
        Some(length) if length + OWN > LONGEST_WAY || contact.len() + OWN > LONGEST_WAY => {
            Some((513, "Contact or route set is longer than the table of calls keeps"))
        }
        Some(_) => None,
    }
}

/// Returns whether no BYE of this server could reach the sender of a 2xx to an INVITE.
pub(crate) fn is_beyond_reach(router: &Router, response: &Message<'_>) -> bool {
    // In a response the route set from this server to the callee ends with the last Record-Route of this server.
    let (mut length, mut up_to_ours) = (0, None);
    for route in response.record_routes() {
        let Some(route) = route.ok().map(|route| route.value).filter(|route| route.uri.sip().is_some()) else {
            return true;
        };
        length += route.uri_text.len() + SEPARATORS;
        if route.uri.sip().is_some_and(|uri| router.is_own_record_route(uri)) {
            up_to_ours = Some(length);
        }
    }
    let is_routed = up_to_ours.is_some_and(|length| length <= LONGEST_WAY);
    !is_routed || is_nobody(response)
}

/// Returns whether a 2xx lacks the tag or the Contact of its sender, or has one that the table cannot store.
pub(crate) fn is_nobody(response: &Message<'_>) -> bool {
    let tag = response.to().ok().and_then(|to| to.tag).unwrap_or_default();
    let contact = reachable_contact(response).filter(|contact| contact.len() + OWN <= LONGEST_WAY);
    tag.is_empty() || tag.len() > LONGEST_TAG || contact.is_none()
}

/// Returns the reason if a request within a tracked dialog would leave the server no way to end the dialog: the request
/// has no CSeq, or a new Contact that the table cannot store.
pub(crate) fn unendable_after(request: &Request<'_>) -> Option<Unendable> {
    match request.method {
        Method::Ack => None,
        _ if request.cseq > LAST_CSEQ => Some((400, "its CSeq leaves none for a BYE of this server")),
        Method::Invite | Method::Update if !keeps_target(&request.message) => {
            Some((400, "a Contact that is no SIP URI, or longer than the table of calls keeps"))
        }
        _ => None,
    }
}

/// Returns whether the party is still reachable after a target refresh by this request (RFC 3261 section 12.2).
fn keeps_target(message: &Message<'_>) -> bool {
    let is_short = |contact: &[u8]| contact.len() + OWN <= LONGEST_WAY;
    message.contacts().next().is_none() || reachable_contact(message).is_some_and(is_short)
}

/// Returns the URI of the first Contact, if it is a SIP URI.
fn reachable_contact<'a>(message: &Message<'a>) -> Option<&'a [u8]> {
    let text = message.contacts().next()?.ok()?.addr.uri_text;
    matches!(Uri::parse(text), Ok(Uri::Sip(_))).then_some(text)
}

/// Returns the length in bytes of a route set of these Record-Routes; `None` if one of them has no SIP URI.
fn length_of<'a>(mut routes: impl Iterator<Item = Option<Hop<'a>>>) -> Option<usize> {
    routes.try_fold(0, |length, route| {
        let route = route.filter(|route| route.uri.sip().is_some())?;
        Some(length + route.uri_text.len() + SEPARATORS)
    })
}
