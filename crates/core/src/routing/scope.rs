//! Scope of an address: its reach.
//!
//! A peer names targets: by a Request-URI, a Route, a Contact, a Path, its `maddr`, a Record-Route, or a name that
//! resolves as the peer likes. The scope of a target must not be narrower than that of the peer's source address: no
//! request from the world is sent into the network of this server, and no request from that network to the ports of
//! this machine. Route tokens and seals contain the scope of the party for which they are valid; a binding has the
//! scope of the sender of its REGISTER.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Scope of an address, from the narrowest to the widest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Loopback.
    Machine,
    /// Link-local: RFC 3927, RFC 4291 section 2.5.6.
    Link,
    /// Private network: RFC 1918, RFC 4193.
    Site,
    /// Shared space of a carrier (RFC 6598), whose customers do not know each other.
    Carrier,
    /// Every other address.
    World,
}

impl Scope {
    /// Returns the scope of this address. An IPv6 address that embeds an IPv4 address has at most the scope of the IPv4
    /// address, because an address translator may forward to it.
    pub fn of(ip: IpAddr) -> Self {
        match ip.to_canonical() {
            ip if ip.is_loopback() || ip.is_unspecified() => Self::Machine,
            IpAddr::V4(ip) if ip.is_link_local() => Self::Link,
            // RFC 1122 section 3.2.1.3.
            IpAddr::V4(ip) if ip.octets()[0] == 0 => Self::Machine,
            IpAddr::V6(ip) if ip.is_unicast_link_local() => Self::Link,
            IpAddr::V4(ip) if is_shared(ip) => Self::Carrier,
            ip if super::contact_repair::is_private(ip, ip) => Self::Site,
            IpAddr::V6(ip) => {
                let outer = if is_local_prefix(&ip) { Self::Site } else { Self::World };
                embedded(&ip).map_or(outer, |inner| Self::of(inner.into()).min(outer))
            }
            IpAddr::V4(_) => Self::World,
        }
    }

    /// Returns three bits for bindings, route tokens and seals. Earlier versions wrote only two of them, and read
    /// [`Self::Carrier`] as the world.
    pub const fn bits(self) -> u8 {
        match self {
            Self::Machine => 0,
            Self::Link => 1,
            Self::Site => 2,
            Self::World => 3,
            Self::Carrier => 7,
        }
    }

    /// Reads the lowest three bits.
    pub const fn of_bits(bits: u8) -> Self {
        match bits & 0b111 {
            0 => Self::Machine,
            1 => Self::Link,
            2 => Self::Site,
            7 => Self::Carrier,
            _ => Self::World,
        }
    }
}

/// Tells whether this is the address of one host: not unspecified, multicast, broadcast or reserved.
pub fn is_host(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        // RFC 1122 section 3.2.1.3, RFC 5771, RFC 1112 section 4.
        IpAddr::V4(ip) => !matches!(ip.octets()[0], 0 | 224..),
        IpAddr::V6(ip) if ip.is_loopback() => true,
        IpAddr::V6(ip) => {
            !ip.is_unspecified() && !ip.is_multicast() && embedded(&ip).is_none_or(|inner| is_host(inner.into()))
        }
    }
}

/// Tells whether an address is in the shared space between a carrier and its customers (RFC 6598).
pub(super) const fn is_shared(ip: Ipv4Addr) -> bool {
    matches!(ip.octets(), [100, 64..=127, ..])
}

/// Tells whether an address has a prefix for local use: RFC 3879, RFC 8215. (RFC 4193 is tested before.)
const fn is_local_prefix(ip: &Ipv6Addr) -> bool {
    matches!(ip.segments(), [0xfec0..=0xfeff, ..] | [0x64, 0xff9b, 1, ..])
}

/// Returns the plain form of an address: an IPv4 address in IPv6 form becomes IPv4.
pub(super) fn plain(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) if !ip.is_loopback() && !ip.is_unspecified() => {
            translated(&ip).map_or_else(|| ip.into(), IpAddr::V4)
        }
        ip => ip,
    }
}

/// Returns the IPv4 address of such an IPv6 form: RFC 4291 section 2.5.5.1, RFC 2765 section 2.1, RFC 6052 section 2.1.
const fn translated(ip: &Ipv6Addr) -> Option<Ipv4Addr> {
    match ip.segments() {
        [0, 0, 0, 0, 0, 0, high, low] | [0, 0, 0, 0, 0xffff, 0, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            Some(ipv4(high, low))
        }
        _ => None,
    }
}

/// Returns the IPv4 address embedded in an IPv6 address. A mapped address (`::ffff:0:0/96`) is already canonical here.
const fn embedded(ip: &Ipv6Addr) -> Option<Ipv4Addr> {
    if let Some(ip) = translated(ip) {
        return Some(ip);
    }
    let (high, low) = match ip.segments() {
        // RFC 3056 section 2.
        [0x2002, high, low, ..] => (high, low),
        // RFC 4380 section 4.
        [0x2001, 0, _, _, _, _, high, low] => (!high, !low),
        // RFC 5214 section 6.1.
        [_, _, _, _, 0 | 0x200, 0x5efe, high, low] => (high, low),
        _ => return None,
    };
    Some(ipv4(high, low))
}

const fn ipv4(high: u16, low: u16) -> Ipv4Addr {
    let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
    Ipv4Addr::new(a, b, c, d)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn each_form_of_an_address_has_its_scope() {
        for (scope, addresses) in [
            (
                Scope::Machine,
                &["127.0.0.1", "127.255.255.254", "0.0.0.0", "0.1.2.3", "::1", "::", "::ffff:127.0.0.1", "::127.0.0.1"]
                    [..],
            ),
            (
                Scope::Machine,
                &["64:ff9b::127.0.0.1", "2002:7f00:1::", "::ffff:0:127.0.0.1", "2001:db8::5efe:127.0.0.1"],
            ),
            (Scope::Machine, &["2001:0:c000:201::80ff:fffe"]),
            (Scope::Link, &["169.254.169.254", "fe80::1", "febf::1", "::ffff:169.254.169.254", "2002:a9fe:a9fe::1"]),
            (Scope::Site, &["10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.0.1", "fc00::1", "fd12::1"]),
            (Scope::Carrier, &["100.64.0.1", "100.127.255.255", "::ffff:100.64.0.1", "64:ff9b::100.64.0.1"]),
            (Scope::Site, &["::ffff:10.0.0.1", "64:ff9b::10.0.0.1", "64:ff9b:1::8.8.8.8", "fec0::1", "::192.168.0.1"]),
            (Scope::World, &["8.8.8.8", "172.32.0.1", "100.128.0.1", "192.0.2.1", "2001:db8::1", "64:ff9b::8.8.8.8"]),
        ] {
            for address in addresses {
                assert_eq!(Scope::of(ip(address)), scope, "{address}");
            }
        }
    }

    #[test]
    fn a_scope_comes_back_from_its_bits() {
        let all = [Scope::Machine, Scope::Link, Scope::Site, Scope::Carrier, Scope::World];
        assert!(all.is_sorted() && all.iter().all(|scope| Scope::of_bits(scope.bits()) == *scope));
    }

    #[test]
    fn addresses_of_no_host_are_recognized() {
        for address in ["0.0.0.0", "0.0.0.1", "224.0.1.75", "255.255.255.255", "240.0.0.1", "::", "ff02::1", "ff0e::1"]
        {
            assert!(!is_host(ip(address)), "{address}");
        }
        for address in ["::ffff:224.0.0.1", "64:ff9b::255.255.255.255", "::0.0.0.0", "2002:e000:1::"] {
            assert!(!is_host(ip(address)), "{address}");
        }
        for address in ["127.0.0.1", "::1", "10.0.0.1", "8.8.8.8", "2001:db8::1", "fe80::1", "64:ff9b::8.8.8.8"] {
            assert!(is_host(ip(address)), "{address}");
        }
    }
}
