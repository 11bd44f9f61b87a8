//! Reach: targets that a peer may name. Any other target is removed before the server sends or connects, so that no
//! response shows whether a port is open.
//!
//! A target of a peer's choice reaches at least as far as the source address of the peer ([`Scope`]), or lies in a
//! network of `proxy.reachable`. A target on this machine must be the port of a listener, unless the peer is on this
//! machine too. The target is never a service that this server uses: a database, a cache, an address for control or
//! metrics. The check judges addresses: it applies to each address of a name, as resolved for this request.
//!
//! Targets of the configuration are not checked. Connections and source addresses of devices are not checked either,
//! because traffic has proved them.

use crate::destination::Targets;
use crate::policy::Policy;
use std::net::IpAddr;
use strowger_config::Network;
use strowger_core::routing::{Request, Scope, is_host};
use strowger_core::{Arrival, Target, Transport, via};
use strowger_message::header::Via;
use strowger_store::binding::BindingView;

/// Bit of [`Binding::flags`](strowger_store::binding::Binding::flags): the scope of the sender of the REGISTER is in
/// the three bits from [`FIRST`] on.
const KNOWN: u32 = 8;
const FIRST: u32 = 4;

/// Returns the flags of a binding for the scope of the sender of its REGISTER.
pub(crate) const fn flags(sender: Scope) -> u32 {
    KNOWN | (sender.bits() as u32) << FIRST
}

/// Returns the scope of the sender of the REGISTER that made a binding. A binding that an earlier version stored has no
/// scope, so the source address of its device is used.
pub(crate) fn sender_of(binding: &BindingView<'_>) -> Scope {
    match binding.flags() {
        flags if flags & KNOWN != 0 => Scope::of_bits((flags >> FIRST) as u8),
        _ => binding.received().map_or(Scope::World, |received| Scope::of(received.address.ip())),
    }
}

impl Policy {
    /// Returns the scope of the sender of this request.
    pub(crate) fn scope_of_sender(&self, request: &Request<'_>) -> Scope {
        self.router.scope_of_sender(request)
    }

    /// Tells whether a peer that sends from an address of this scope may name this target.
    pub(crate) fn may_name(&self, sender: Scope, target: &Target) -> bool {
        let (identity, address) = (self.router.identity(), &target.address);
        let (machine, ip) = (identity.machine(), address.ip());
        if machine.is_service(address) {
            return false;
        }
        let scope = machine.scope_of(ip);
        // A configured network of other machines opens no port of this machine, even if this machine has an address in
        // that network.
        let is_meant =
            |network: &Network| scope > Scope::Machine || network.is_loopback() || network.single().is_some();
        (is_host(ip) && scope >= sender)
            || self.config.proxy.reachable.iter().any(|network| network.contains(ip) && is_meant(network))
            || (is_host(ip) && scope > Scope::Machine && self.is_of_source(ip))
            || (Scope::of(ip) >= sender && self.listens(target))
    }

    /// Tells whether a `[[source]]` names this address. A `[[source]]` with a network wider than the private network of
    /// the address does not name the address.
    fn is_of_source(&self, ip: IpAddr) -> bool {
        let is_as_narrow = |network: &Network| Scope::of(network.first()) == Scope::of(ip);
        self.source_networks.iter().any(|network| network.contains(ip) && is_as_narrow(network))
    }

    /// Tells whether a listener accepts requests to this target. A large request for UDP may be sent by TCP.
    fn listens(&self, target: &Target) -> bool {
        let takes = |transport| self.router.identity().listens(transport, &target.address);
        takes(target.transport) && (target.transport != Transport::Udp || takes(Transport::Tcp))
    }

    /// Removes the targets that a peer of this scope may not name. Returns whether any were removed.
    pub(crate) fn keep_out(&self, targets: &mut Targets, sender: Scope) -> bool {
        let before = targets.len();
        targets.retain(|target| self.may_name(sender, target));
        targets.len() < before
    }

    /// Returns the target of the response to a request with this top Via ([`via::reply_target`]): the source of the
    /// request if the Via names the port of a service.
    pub(crate) fn reply_target(&self, top: &Via<'_>, arrival: &Arrival) -> Target {
        let target = via::reply_target(top, arrival);
        match self.router.identity().machine().is_service(&target.without_flow().address) {
            true => arrival.reply(),
            false => target,
        }
    }
}
