//! How far an address reaches.
//!
//! Peers without a password lead requests to addresses of their choice: by a Contact, its `maddr`, a Record-Route, a name that resolves as
//! they like. Our route token or seal lets those through, so it remembers how far the address reached that the peer sent from, and what
//! goes on by it goes no further in: not from the world into the network of this server, nor to the ports of its machine.

use std::net::IpAddr;

/// From the narrowest to the widest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Loopback.
    Machine,
    /// RFC 3927, RFC 4291 section 2.5.6.
    Link,
    /// RFC 1918, RFC 6598, RFC 4193.
    Site,
    /// Every other address.
    World,
}

impl Scope {
    /// How far this address reaches. One of IPv4 that is written as IPv6 reaches as far as it does itself.
    pub fn of(ip: IpAddr) -> Self {
        match ip.to_canonical() {
            ip if ip.is_loopback() || ip.is_unspecified() => Self::Machine,
            IpAddr::V4(ip) if ip.is_link_local() => Self::Link,
            IpAddr::V6(ip) if ip.is_unicast_link_local() => Self::Link,
            ip if super::contact_repair::is_private(ip, ip) => Self::Site,
            _ => Self::World,
        }
    }

    /// Of its two bits; those above them belong to another value.
    pub(crate) const fn of_bits(bits: u8) -> Self {
        match bits & 0b11 {
            0 => Self::Machine,
            1 => Self::Link,
            2 => Self::Site,
            _ => Self::World,
        }
    }
}
