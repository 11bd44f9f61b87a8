//! Where a request goes, as far as it and this server's own names say (RFC 3261 sections 16.3 to 16.6): without state, for proxy,
//! registrar and user agent alike.
//!
//! [`Router::route`] reads Route headers and Request-URI, [`Router::next_hop`] a URI; [`Router::is_loop`] knows a request that came by
//! before. What this server writes into messages to read it again (the route token of Record-Route, the seal of a Contact, the branch, the
//! To tag) is made and judged here, each under a key of its own.

pub mod contact_repair;
mod identity;
pub(crate) mod loop_detection;
mod machine;
mod own_tag;
mod place;
mod request;
pub(crate) mod request_uri;
mod route;
pub(crate) mod route_token;
mod scope;
pub mod seal;
mod usage;

pub use identity::{Identity, ListenerAddress};
pub use machine::Machine;
pub use own_tag::OwnTag;
pub use place::Place;
pub use request::Request;
pub(crate) use route::ROUTE_TOKEN;
pub use route::{NextHop, Routing};
pub use route_token::seconds;
pub use scope::{Scope, is_host};
pub use seal::DeviceAddress;
pub use usage::Usage;

use loop_detection::{BranchKey, Visit};
use route_token::{Beyond, RouteTokens};
use seal::Seals;
use std::sync::Arc;
use strowger_message::{Message, Name, Uri};

/// What a server knows of itself and of what it wrote. It never changes: all shards share one.
#[derive(Clone, Debug)]
pub struct Router {
    identity: Arc<Identity>,
    pub(crate) route_tokens: RouteTokens,
    pub(crate) seals: Seals,
    own_tag: OwnTag,
    pub(crate) branch_key: BranchKey,
}

impl Router {
    /// `secret` is shared by every server that shall let the same dialogs through. `lifetime`: how long, in seconds, what was written
    /// into a dialog opens the way to its parties: the route token of Record-Route from when the dialog was made, the seal of a Contact
    /// from when it was said.
    pub fn new(identity: Arc<Identity>, secret: &[u8], lifetime: u32) -> Self {
        // What tells one server from another with the same secret: no other has its first address.
        let name = identity.listeners().first().map_or(&b""[..], |listener| &listener.sent_by);
        Self {
            route_tokens: RouteTokens::new(secret, lifetime),
            seals: Seals::new(secret, name, lifetime),
            own_tag: OwnTag::new(secret),
            branch_key: BranchKey::new(secret, name),
            identity,
        }
    }

    /// Names and addresses of this server.
    pub fn identity(&self) -> &Arc<Identity> {
        &self.identity
    }

    /// The To tag of this server's own responses.
    pub fn own_tag(&self) -> &OwnTag {
        &self.own_tag
    }

    /// The request came by here before with nothing changed that routing depends on (section 16.3 item 4, RFC
    /// 5393 section 4.2).
    pub fn is_loop(&self, request: &Request<'_>) -> bool {
        let mut hash = None;
        self.visits(request).any(|visit| visit.of_request == *hash.get_or_insert_with(|| self.loop_hash(request)))
    }

    /// The request came by here before, also if it was changed since.
    pub fn has_been_here(&self, request: &Request<'_>) -> bool {
        self.visits(request).next().is_some()
    }

    /// What the branches of ours say that stand in the request, the last one first.
    pub(crate) fn visits(&self, request: &Request<'_>) -> impl Iterator<Item = Visit> {
        // What we sent to ourselves has our own on top. Most have that of their sender alone, which was read before.
        let behind = request.message.has_several(Name::Via).then(|| request.message.vias().skip(1));
        let branches = behind.into_iter().flatten().filter_map(|via| via.ok()?.branch);
        std::iter::once(request.branch).chain(branches).filter_map(|branch| self.branch_key.read(branch))
    }

    pub(crate) fn loop_hash(&self, request: &Request<'_>) -> u64 {
        let message = &request.message;
        self.branch_key.of_request(
            message.request_uri(),
            message.headers(Name::Route),
            request.call_id,
            request.from_tag,
            request.cseq,
        )
    }

    /// The element that record-routed last before this message came here, this server aside: a request has been here before if it came round.
    pub(crate) fn behind_us<'a>(&self, message: &Message<'a>) -> Beyond<'a> {
        for route in message.record_routes() {
            match route.map(|route| route.uri) {
                Ok(Uri::Sip(uri)) if self.is_own(&uri) => (),
                Ok(Uri::Sip(uri)) => return Beyond::Proxy(Place::of(&uri)),
                _ => return Beyond::Unknown,
            }
        }
        Beyond::Party
    }
}
