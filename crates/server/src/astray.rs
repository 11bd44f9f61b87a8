//! Requests within a call that a stranger began.
//!
//! Anybody may call a user of ours, and gets a Record-Route with our mark for it. That opens the way to whom he called, not
//! to the world: what could make a call of its own there stays with the telephones that the user has registered. Other
//! requests within a call make none.

use crate::registration::write_aor;
use crate::shard::Shard;
use strowger_core::proxy::{Began, Request, Routing};
use strowger_core::{Now, Target};
use strowger_message::{Host, Method, SipUri, Uri};
use strowger_store::binding::BindingView;

impl Shard {
    /// A request within a dialog goes elsewhere than its mark is good for: it needs what a first request needs.
    pub(crate) fn goes_astray(&self, now: Now, request: &Request<'_>, routing: &Routing<'_>) -> bool {
        // A REFER has its receiver call, at the expense of who trusts us there (RFC 3515 section 5).
        let makes_calls = matches!(request.method, Method::Invite | Method::Message | Method::Refer);
        routing.began == Began::Stranger && makes_calls && !self.leads_to_party(now, request, routing)
    }

    /// The next hop is a place where the user in To is registered.
    fn leads_to_party(&self, now: Now, request: &Request<'_>, routing: &Routing<'_>) -> bool {
        let party = request.essentials.to.uri;
        if !self.is_local(&party) {
            return false;
        }
        let mut aor = Vec::new();
        write_aor(&party, &mut aor);
        let mut found = false;
        self.shared.location.lookup(&aor, now.mono, &mut |binding| found |= leads_to(routing, &binding));
        found
    }
}

fn leads_to(routing: &Routing<'_>, binding: &BindingView<'_>) -> bool {
    let contact = || Uri::parse(binding.uri()).ok();
    match (routing.alias, routing.route, routing.uri) {
        (Some(Target { address, .. }), _, _) => binding.received().is_some_and(|from| from.address == address),
        (None, Some(Uri::Sip(route)), _) => first_of(binding.path()).is_some_and(|edge| is_same_place(&route, &edge)),
        (None, None, Uri::Sip(uri)) => {
            let received = binding.received().map(|from| from.address);
            let is_received = received.is_some_and(|a| uri.host == Host::from(a.ip()) && port_of(&uri) == a.port());
            (is_received && uri.params.maddr().is_none()) || contact().is_some_and(|own| is_same_place(&uri, &own))
        }
        _ => false,
    }
}

/// The first URI of a Path.
fn first_of(path: &[u8]) -> Option<Uri<'_>> {
    let open = path.iter().position(|&b| b == b'<')? + 1;
    let close = path[open..].iter().position(|&b| b == b'>')? + open;
    Uri::parse(&path[open..close]).ok()
}

/// Both lead to the same port of the same host. A `maddr` leads elsewhere than the host says.
fn is_same_place(uri: &SipUri<'_>, other: &Uri<'_>) -> bool {
    let Uri::Sip(other) = other else { return false };
    uri.host == other.host && port_of(uri) == port_of(other) && uri.params.maddr() == other.params.maddr()
}

fn port_of(uri: &SipUri<'_>) -> u16 {
    uri.port.unwrap_or(if uri.secure { 5061 } else { 5060 })
}
