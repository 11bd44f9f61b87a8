//! Target of a request by its own content and the names of this server (RFC 3261 sections 16.3 to 16.6): without state,
//! for proxy, registrar and user agent alike.
//!
//! [`Router::route`] reads the Route headers and the Request-URI, [`Router::next_hop`] finds the target of a URI, and
//! [`Router::is_loop`] detects a request that has returned. This module also writes and verifies the values by which
//! the server recognizes its own messages, each with a key of its own: the route token of a Record-Route, the seal of a
//! Contact, the branch, the To tag.

mod account_hash;
mod clock_steps;
pub mod contact_repair;
mod domains;
mod identity;
pub(crate) mod loop_detection;
mod machine;
mod own_tag;
mod request;
pub(crate) mod request_uri;
mod route;
pub(crate) mod route_token;
mod scope;
pub mod seal;
mod uri_target;
mod usage;

pub use account_hash::AccountHash;
pub use clock_steps::ClockSteps;
pub use identity::{Identity, ListenerAddress};
pub use machine::Machine;
pub use own_tag::OwnTag;
pub use request::Request;
pub(crate) use route::ROUTE_TOKEN;
pub use route::{NextHop, Routing};
pub use route_token::seconds;
pub use scope::{Scope, is_host};
pub use seal::DeviceAddress;
pub use uri_target::UriTarget;
pub use usage::Usage;

use crate::{Arrival, Target, Transport};
use account_hash::AccountKey;
use loop_detection::{BranchKey, Visit};
use route_token::{Beyond, RouteTokens};
use seal::Seals;
use std::sync::Arc;
use strowger_message::{Message, Name, Uri};

/// Names and keys of a server. Immutable; shared by all shards.
#[derive(Clone, Debug)]
pub struct Router {
    identity: Arc<Identity>,
    pub(crate) route_tokens: RouteTokens,
    pub(crate) seals: Seals,
    accounts: AccountKey,
    clock_steps: Arc<ClockSteps>,
    own_tag: OwnTag,
    pub(crate) branch_key: BranchKey,
}

impl Router {
    /// Creates a router. `secret`: shared by all servers that admit the same dialogs. `lifetime`: validity in seconds
    /// of a route token since its dialog began, and of a seal since its Contact was sent.
    pub fn new(identity: Arc<Identity>, secret: &[u8], lifetime: u32) -> Self {
        // The first address is the part that differs between servers with the same secret.
        let name = identity.listeners().first().map_or(&b""[..], |listener| &listener.sent_by);
        Self {
            route_tokens: RouteTokens::new(secret, lifetime),
            seals: Seals::new(secret, name, lifetime),
            accounts: AccountKey::new(secret),
            clock_steps: Arc::default(),
            own_tag: OwnTag::new(secret),
            branch_key: BranchKey::new(secret, name),
            identity,
        }
    }

    /// Takes over the recorded steps of the wall clock from another router of this process.
    #[must_use]
    pub fn with_clock_steps(mut self, steps: Arc<ClockSteps>) -> Self {
        (self.route_tokens.clock_steps, self.seals.clock_steps) = (steps.clone(), steps.clone());
        self.clock_steps = steps;
        self
    }

    /// Returns the steps of the wall clock.
    pub const fn clock_steps(&self) -> &Arc<ClockSteps> {
        &self.clock_steps
    }

    /// Returns names and addresses of this server.
    pub fn identity(&self) -> &Arc<Identity> {
        &self.identity
    }

    /// Returns the hash of the account of a user, as stated in route tokens. Name and domain are as stored in the database, or the domain
    /// is an alias.
    pub fn account(&self, name: &[u8], domain: &[u8]) -> AccountHash {
        self.accounts.of_user(name, self.identity.canonical_domain(domain))
    }

    /// Returns the hash of the account that a URI names; [`AccountHash::NONE`] if its domain is not local.
    pub fn account_of(&self, uri: &Uri<'_>) -> AccountHash {
        let domain = uri.address().and_then(|uri| self.identity.domain_of(uri.host));
        domain.map_or(AccountHash::NONE, |domain| self.accounts.of_uri(uri, domain))
    }

    /// Returns the To tag of this server's own responses.
    pub fn own_tag(&self) -> &OwnTag {
        &self.own_tag
    }

    /// Tells whether the request has passed this server before, unchanged in everything on which routing depends
    /// (section 16.3 item 4, RFC 5393 section 4.2).
    pub fn is_loop(&self, request: &Request<'_>) -> bool {
        let mut hash = None;
        self.visits(request).any(|visit| visit.of_request == *hash.get_or_insert_with(|| self.loop_hash(request)))
    }

    /// Tells whether the request has passed this server before, changed or not.
    pub fn has_been_here(&self, request: &Request<'_>) -> bool {
        self.visits(request).next().is_some()
    }

    /// Returns the scope of the sender of a request. A peer can make this server send to itself, by a name that
    /// resolves to this server. The target of such a request is still chosen by the peer, so its sender has the scope
    /// of the world.
    pub fn scope_of_sender(&self, request: &Request<'_>) -> Scope {
        let scope = self.scope_of_source(request.arrival);
        if scope < Scope::World && self.is_from_here(request) { Scope::World } else { scope }
    }

    /// Returns the scope of the source of a message. The author of a response from a listener of this server is
    /// unknown, and a WebSocket connection from a web server near this one may carry messages of a browser anywhere.
    /// Both have the scope of the world.
    pub fn scope_of_source(&self, arrival: &Arrival) -> Scope {
        let scope = self.identity.machine().scope_of_sender(arrival.remote.ip());
        let is_unknown = || {
            matches!(arrival.transport, Transport::Ws | Transport::Wss)
                || self.identity.is_this_server(arrival.transport, &arrival.remote)
        };
        if scope < Scope::World && is_unknown() { Scope::World } else { scope }
    }

    /// Returns [`Router::scope_of_source`] of a response. `sent`: target of the request of the response. A peer that
    /// accepts connections at this address is no browser.
    pub(crate) fn scope_of_response(&self, arrival: &Arrival, sent: Option<Target>) -> Scope {
        let is_called = sent.is_some_and(|sent| sent.flow.is_none() && sent.address == arrival.remote);
        let is_listener = || self.identity.is_this_server(arrival.transport, &arrival.remote);
        match is_called && !is_listener() {
            true => self.identity.machine().scope_of_sender(arrival.remote.ip()),
            false => self.scope_of_source(arrival),
        }
    }

    /// Tells whether this server itself sent the request.
    pub(crate) fn is_from_here(&self, request: &Request<'_>) -> bool {
        let (top, transport) = (&request.mandatory.via, request.arrival.transport);
        self.branch_key.read(request.branch).is_some() && self.identity.is_own_address(top.host, top.port, || transport)
    }

    /// Returns the contents of our branch parameters in the request, the latest first.
    pub(crate) fn visits(&self, request: &Request<'_>) -> impl Iterator<Item = Visit> {
        // A request that this server sent to itself has a Via of this server on top. Most requests have only the Via of
        // their sender, which was parsed before.
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

    /// Returns the element that record-routed last before this server. Own Record-Routes are skipped, since a request
    /// may pass this server several times.
    pub(crate) fn behind_us<'a>(&self, message: &Message<'a>) -> Beyond<'a> {
        for route in message.record_routes() {
            match route.map(|route| route.uri) {
                Ok(Uri::Sip(uri)) if self.is_own(&uri) => (),
                Ok(Uri::Sip(uri)) => return Beyond::Proxy(UriTarget::of(&uri)),
                _ => return Beyond::Unknown,
            }
        }
        Beyond::Party
    }
}
