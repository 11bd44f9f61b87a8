//! Who the server is: by its configuration, and by the addresses that it has.

use if_addrs::IfAddr;
use std::net::{IpAddr, SocketAddr};
use strowger_config::Config;
use strowger_core::routing::{Identity, ListenerAddress, Machine};
use strowger_server::policy::Policy;

/// Names and addresses of ours. A listener on all addresses is known by the address that reaches furthest.
/// `services`: addresses of those that the server uses.
pub(crate) fn identity(config: &Config, bound: &[SocketAddr], services: &[SocketAddr]) -> Identity {
    let (interfaces, machine) = machine(services);
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
        // The default port may be left out in a Via; it stands there all the same, for those who get it wrong.
        ListenerAddress {
            transport: listener.transport,
            bound: *bound,
            sent_by: format!("{host}:{port}").into_bytes().into(),
            network: network as u16,
        }
    });
    made(config, machine, listeners.collect(), &interfaces)
}

/// Identity of the running server by the present addresses of the machine; its listeners keep their names.
pub(crate) fn identity_again(policy: &Policy, services: &[SocketAddr]) -> Identity {
    let (interfaces, machine) = machine(services);
    made(&policy.config, machine, policy.identity().listeners().to_vec(), &interfaces)
}

fn made(config: &Config, machine: Machine, listeners: Vec<ListenerAddress>, interfaces: &[IpAddr]) -> Identity {
    let names = config.server.names.iter().map(|name| name.as_str());
    Identity::on(machine, listeners, config.domain_names(), interfaces).with_names(names)
}

/// Addresses of the interfaces, and the machine that has them; their broadcast addresses are its own too.
fn machine(services: &[SocketAddr]) -> (Vec<IpAddr>, Machine) {
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
    let broadcast = interfaces.iter().filter_map(|interface| match &interface.addr {
        IfAddr::V4(addr) => addr.broadcast.map(IpAddr::from),
        IfAddr::V6(_) => None,
    });
    let addresses: Vec<IpAddr> = interfaces.iter().map(|interface| interface.ip()).collect();
    let machine = Machine::new(addresses.iter().copied().chain(broadcast), services.iter().copied());
    (addresses, machine)
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
