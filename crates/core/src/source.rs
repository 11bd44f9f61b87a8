//! Identity of a source in counters, and networks of sources.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Returns the address under which a source is counted. An IPv4 address is not changed, or is unmapped if it is mapped
/// into IPv6. For IPv6 the result is the network of `ipv6_prefix` bits (0 to 128), because a peer with one address of a
/// network, mostly a /64, has all of them (RFC 6177, RFC 8981).
pub fn counted(source: IpAddr, ipv6_prefix: u8) -> IpAddr {
    match source.to_canonical() {
        IpAddr::V6(ip) => {
            let host_bits = 128u32.saturating_sub(ipv6_prefix.into());
            Ipv6Addr::from(u128::from(ip) & u128::MAX.checked_shl(host_bits).unwrap_or(0)).into()
        }
        ip => ip,
    }
}

/// A network in CIDR notation, or one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

impl Network {
    /// Creates the network of an address; `None` if the prefix is longer than the address.
    pub const fn new(address: IpAddr, prefix: u8) -> Option<Self> {
        let width = if address.is_ipv4() { 32 } else { 128 };
        if prefix <= width { Some(Self { address, prefix }) } else { None }
    }

    /// Returns the prefix length in bits.
    pub const fn prefix(&self) -> u8 {
        self.prefix
    }

    /// Tells whether an address is in the network. An IPv4 address mapped into IPv6 counts as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        let (network, address, width) = match (self.address, address.to_canonical()) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                (u128::from(u32::from(network)), u128::from(u32::from(address)), 32)
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => (u128::from(network), u128::from(address), 128),
            _ => return false,
        };
        let host_bits = width - u32::from(self.prefix);
        // A shift by the full width is undefined: prefix 0 of IPv6 contains every IPv6 address.
        host_bits == 128 || network >> host_bits == address >> host_bits
    }

    /// Returns the first address of the network.
    pub fn first(&self) -> IpAddr {
        let host_bits = |width: u8| u32::from(width - self.prefix);
        match self.address {
            IpAddr::V4(ip) => {
                Ipv4Addr::from_bits(ip.to_bits() & u32::MAX.checked_shl(host_bits(32)).unwrap_or(0)).into()
            }
            IpAddr::V6(ip) => {
                Ipv6Addr::from_bits(ip.to_bits() & u128::MAX.checked_shl(host_bits(128)).unwrap_or(0)).into()
            }
        }
    }

    /// Returns the address of a network that has only one.
    pub fn single(&self) -> Option<IpAddr> {
        let width = if self.address.is_ipv4() { 32 } else { 128 };
        (self.prefix == width).then_some(self.address.to_canonical())
    }

    /// Tells whether the network is part of a loopback network.
    pub const fn is_loopback(&self) -> bool {
        match self.address {
            IpAddr::V4(address) => address.is_loopback() && self.prefix >= 8,
            IpAddr::V6(address) => address.is_loopback() && self.prefix == 128,
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_of_ipv6_is_one_source() {
        for (source, prefix, same) in [
            ("192.0.2.7", 64, "192.0.2.7"),
            ("::ffff:192.0.2.7", 64, "192.0.2.7"),
            ("2001:db8:1:2:3:4:5:6", 64, "2001:db8:1:2::"),
            ("2001:db8:1:2:3:4:5:6", 128, "2001:db8:1:2:3:4:5:6"),
            ("2001:db8:1:2:3:4:5:6", 32, "2001:db8::"),
            ("2001:db8:1:2:3:4:5:6", 0, "::"),
            ("::1", 64, "::"),
        ] {
            assert_eq!(counted(source.parse().unwrap(), prefix), same.parse::<IpAddr>().unwrap(), "{source}/{prefix}");
        }
    }
}
