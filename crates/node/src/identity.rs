//! Identity of the server: names of the configuration and addresses of the machine.

use if_addrs::IfAddr;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use strowger_config::Config;
use strowger_core::routing::{Identity, ListenerAddress, Machine};
use strowger_server::policy::Policy;

/// Addresses that peers may name only under conditions.
#[derive(Debug, Default)]
pub(crate) struct Guarded {
    /// Addresses of the services.
    pub(crate) services: Vec<SocketAddr>,
    /// Addresses of the advertised names.
    pub(crate) advertised: Vec<IpAddr>,
}

/// Returns the names and addresses of this server. A listener on all addresses gets the machine's address with the
/// widest reach.
pub(crate) fn identity(config: &Config, bound: &[SocketAddr], guarded: &Guarded) -> Identity {
    let (interfaces, machine) = machine(guarded);
    let mut networks: Vec<&str> = Vec::new();
    let listeners = config.listeners.iter().zip(bound).map(|(listener, bound)| {
        let network = networks.iter().position(|n| *n == listener.network).unwrap_or_else(|| {
            networks.push(&listener.network);
            networks.len() - 1
        });
        let (host, port) = match &listener.advertise {
            Some(name) => (name.host.clone(), name.port.unwrap_or_else(|| bound.port())),
            None => (shown_ip(reachable(bound.ip(), &interfaces)), bound.port()),
        };
        // A Via may omit the default port. The server writes it for peers that assume another one.
        ListenerAddress {
            transport: listener.transport,
            bound: *bound,
            sent_by: format!("{host}:{port}").into_bytes().into(),
            network: network as u16,
        }
    });
    made(config, machine, listeners.collect(), &interfaces)
}

/// Returns the identity of the running server with the present addresses of the machine; its listeners keep their
/// names.
pub(crate) fn identity_again(policy: &Policy, guarded: &Guarded) -> Identity {
    let (interfaces, machine) = machine(guarded);
    made(&policy.config, machine, policy.identity().listeners().to_vec(), &interfaces)
}

fn made(config: &Config, machine: Machine, listeners: Vec<ListenerAddress>, interfaces: &[IpAddr]) -> Identity {
    let names = config.server_names();
    let identity = Identity::on(machine, listeners, config.domain_names(), interfaces);
    identity.with_names(names).with_aliases(config.aliases())
}

/// Returns the address-of-record of a user, under the canonical name of the domain.
pub(crate) fn canonical_aor(identity: &Identity, user: &[u8]) -> Vec<u8> {
    let at = user.iter().rposition(|byte| *byte == b'@').map_or(user.len(), |at| at + 1);
    let (name, domain) = (&user[..at], user[at..].to_ascii_lowercase());
    [name, identity.canonical_domain(&domain)].concat()
}

/// Returns the addresses of the interfaces, and the addresses that belong to the machine. The machine also owns the
/// broadcast addresses, and the anycast addresses of the routers of its IPv6 networks (RFC 4291 section 2.6.1).
fn machine(guarded: &Guarded) -> (Vec<IpAddr>, Machine) {
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
    let shared = interfaces.iter().filter_map(|interface| match &interface.addr {
        IfAddr::V4(addr) => addr.broadcast.map(IpAddr::from),
        IfAddr::V6(addr) => anycast(addr.ip, addr.netmask).map(IpAddr::from),
    });
    let addresses: Vec<IpAddr> = interfaces.iter().map(|interface| interface.ip()).collect();
    let machine = Machine::new(addresses.iter().copied().chain(shared), guarded.services.iter().copied());
    let machine = machine.with_advertised(&guarded.advertised);
    (addresses, machine)
}

/// Returns the anycast address of the routers of a network; `None` for a network of two hosts (RFC 6164) or one.
fn anycast(ip: Ipv6Addr, mask: Ipv6Addr) -> Option<Ipv6Addr> {
    (mask.to_bits().count_zeros() > 1).then(|| Ipv6Addr::from_bits(ip.to_bits() & mask.to_bits()))
}

fn reachable(bound: IpAddr, interfaces: &[IpAddr]) -> IpAddr {
    if !bound.is_unspecified() {
        return bound;
    }
    let link_local = |ip: &IpAddr| matches!(ip, IpAddr::V6(ip) if (ip.segments()[0] & 0xffc0) == 0xfe80);
    let same = |ip: &&IpAddr| ip.is_ipv4() == bound.is_ipv4() && !link_local(ip);
    let mut fitting: Vec<&IpAddr> = interfaces.iter().filter(same).collect();
    fitting.sort_by_key(|ip| ip.is_loopback());
    fitting.first().map_or(bound, |ip| **ip)
}

fn shown_ip(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routers_of_a_network_have_one_address() {
        let ip = |text: &str| text.parse::<Ipv6Addr>().expect("an address");
        let (own, mask) = (ip("2001:db8:5:0:1::9"), |prefix: u32| Ipv6Addr::from_bits(u128::MAX << (128 - prefix)));
        assert_eq!(anycast(own, mask(64)), Some(ip("2001:db8:5::")));
        assert_eq!(anycast(own, mask(126)), Some(ip("2001:db8:5:0:1::8")));
        assert_eq!((anycast(own, mask(127)), anycast(own, mask(128))), (None, None));
    }
}
