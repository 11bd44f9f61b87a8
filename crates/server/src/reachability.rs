//! By which ways a phone that registered is reached: over the connection that it did so, or where its Contact says.

use crate::flows::Flows;
use strowger_core::routing::contact_repair::is_private;
use strowger_core::routing::{Identity, NextHop, Router};
use strowger_core::{Flow, ListenerId, Target, Transport};
use strowger_message::Uri;
use strowger_store::binding::BindingView;

/// Where a binding is reached: over its flow, at the address that its REGISTER came from. None: its Contact says it.
pub(crate) fn target_of(binding: &BindingView<'_>, identity: &Identity) -> Option<Target> {
    let received = binding.received()?;
    let transport = *Transport::ALL.get(received.transport as usize)?;
    let listener = ListenerId(binding.listener());
    // Listeners may have changed since the binding was made.
    let fits = identity.listeners().get(listener.0 as usize).is_some_and(|f| f.transport == transport);
    let listener = if fits { listener } else { identity.listener_for(transport, &received.address, ListenerId(0))? };
    Some(Target { flow: binding.flow().map(Flow::from_bytes), ..Target::new(transport, listener, received.address) })
}

/// It registered over a connection, and that has ended (RFC 5626 section 5.3: such a flow is not to be used).
pub(crate) fn is_gone(flows: &Flows, target: &Target) -> bool {
    target.transport.is_reliable() && !target.flow.is_some_and(|flow| flows.is_open(flow))
}

/// Where a phone takes connections itself that registered over one of its own: its Contact says the port (RFC 3261 section
/// 18.1.1). That is the way to it when its connection is gone, after a restart for one. Only on the very machine that the
/// connection came from: what else stands in a Contact, of a phone behind NAT, leads nowhere.
pub(crate) fn listens_at(router: &Router, contact: &Uri<'_>, own: ListenerId, flow: &Target) -> Option<Target> {
    if !matches!(flow.transport, Transport::Tcp | Transport::Tls) {
        return None;
    }
    match router.next_hop(contact, own) {
        NextHop::Known(there) => {
            (there.transport == flow.transport && there.address.ip() == flow.address.ip()).then_some(there)
        }
        _ => None,
    }
}

/// Whether a party of a call that sends by a stream from there may take connections at this place, which its Contact says: on the
/// very machine that it sends from, or where the whole world reaches it. What is said to travel under TLS stays there.
pub(crate) fn may_listen(own: &Target, from: &Target) -> bool {
    let (ip, seen) = (own.address.ip(), from.address.ip());
    let is_there = ip == seen || !is_private(ip, seen);
    is_there && !is_web(from.transport) && (own.transport.is_secure() || !from.transport.is_secure())
}

/// A browser cannot be called back.
pub(crate) const fn is_web(transport: Transport) -> bool {
    matches!(transport, Transport::Ws | Transport::Wss)
}

/// No way leads to it: it registered over a connection that has ended, and takes none itself.
pub(crate) fn is_unreachable(binding: &BindingView<'_>, identity: &Identity, flows: &Flows, router: &Router) -> bool {
    if !binding.path().is_empty() {
        return false;
    }
    let Some(target) = target_of(binding, identity).filter(|target| is_gone(flows, target)) else { return false };
    let listens = |uri: Uri<'_>| listens_at(router, &uri, ListenerId(binding.listener()), &target).is_some();
    !Uri::parse(binding.uri()).is_ok_and(listens)
}
