//! Ways to reach a registered phone: the connection of its REGISTER, or the address of its Contact.

use crate::flows::Flows;
use strowger_core::routing::contact_repair::is_private;
use strowger_core::routing::{Identity, NextHop, Router};
use strowger_core::{Flow, ListenerId, Target, Transport};
use strowger_message::Uri;
use strowger_store::binding::BindingView;

/// Returns the target of a binding that is reached over its flow, at the source address of its REGISTER; `None` if the
/// binding is reached at its Contact.
pub(crate) fn target_of(binding: &BindingView<'_>, identity: &Identity) -> Option<Target> {
    let received = binding.received()?;
    let transport = *Transport::ALL.get(received.transport as usize)?;
    let listener = ListenerId(binding.listener());
    // Listeners may have changed since the binding was made.
    let fits = identity.listeners().get(listener.0 as usize).is_some_and(|f| f.transport == transport);
    let listener = if fits { listener } else { identity.listener_for(transport, &received.address, ListenerId(0))? };
    Some(Target { flow: binding.flow().map(Flow::from_bytes), ..Target::new(transport, listener, received.address) })
}

/// Tells whether a phone registered over a connection that has ended (RFC 5626 section 5.3: such a flow is not used).
pub(crate) fn is_gone(flows: &Flows, target: &Target) -> bool {
    target.transport.is_reliable() && !target.flow.is_some_and(|flow| flows.is_open(flow))
}

/// Returns the address at which a phone that registered over a connection accepts connections, with the port of its
/// Contact (RFC 3261 section 18.1.1). The phone is reached there when its connection is gone, for example after a
/// restart. The address must be on the machine from which the connection came: any other address in a Contact, for
/// example of a phone behind NAT, is unreachable. A phone behind a load balancer is reached by its connection alone.
pub(crate) fn listens_at(router: &Router, contact: &Uri<'_>, own: ListenerId, flow: &Target) -> Option<Target> {
    if !matches!(flow.transport, Transport::Tcp | Transport::Tls) || is_balanced(flow) {
        return None;
    }
    match router.next_hop(contact, own) {
        NextHop::Known(there) => {
            (there.transport == flow.transport && there.address.ip() == flow.address.ip()).then_some(there)
        }
        _ => None,
    }
}

/// Tells whether a party of a call that sends over a stream may accept connections at the address of its Contact. The
/// address must be on the machine from which the party sends, or be a public address. A party that uses TLS is reached
/// by TLS only, and a party behind a load balancer by its connection only.
pub(crate) fn may_listen(own: &Target, from: &Target) -> bool {
    let (ip, seen) = (own.address.ip(), from.address.ip());
    let is_there = ip == seen || !is_private(ip, seen);
    is_there
        && !is_web(from.transport)
        && !is_balanced(from)
        && (own.transport.is_secure() || !from.transport.is_secure())
}

/// Tells whether the source of a message was a connection of a load balancer.
fn is_balanced(from: &Target) -> bool {
    from.flow.is_some_and(Flow::is_balanced)
}

/// Tells whether the transport is WebSocket: a browser accepts no connections.
pub(crate) const fn is_web(transport: Transport) -> bool {
    matches!(transport, Transport::Ws | Transport::Wss)
}

/// Tells whether a binding is unreachable: it was registered over a connection that has ended, and its phone accepts no
/// connections.
pub(crate) fn is_unreachable(binding: &BindingView<'_>, identity: &Identity, flows: &Flows, router: &Router) -> bool {
    if !binding.path().is_empty() {
        return false;
    }
    let Some(target) = target_of(binding, identity).filter(|target| is_gone(flows, target)) else { return false };
    let listens = |uri: Uri<'_>| listens_at(router, &uri, ListenerId(binding.listener()), &target).is_some();
    !Uri::parse(binding.uri()).is_ok_and(listens)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_party_behind_a_balancer_is_reached_by_its_connection_alone() {
        let own = Target::new(Transport::Tcp, ListenerId(0), "192.0.2.9:5060".parse().expect("an address"));
        let from = |generation| {
            let flow = Some(Flow { node: 0, process: 1, shard: 0, slot: 3, generation });
            Target { flow, ..Target::new(Transport::Tcp, ListenerId(0), "192.0.2.9:4711".parse().expect("an address")) }
        };
        assert!(may_listen(&own, &from(2)) && !may_listen(&own, &from(3)));
    }
}
