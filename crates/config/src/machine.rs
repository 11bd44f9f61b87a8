//! Addresses of the machine.

use std::net::IpAddr;

/// Returns the addresses of this machine that peers may reach: no loopback and no link-local addresses.
pub fn own_addresses() -> Vec<IpAddr> {
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
    let own = interfaces.into_iter().map(|interface| interface.ip());
    own.filter(|ip| match ip {
        IpAddr::V4(ip) => !ip.is_loopback() && !ip.is_link_local(),
        IpAddr::V6(ip) => !ip.is_loopback() && !ip.is_unicast_link_local(),
    })
    .collect()
}
