//! Identity of a source in counters.

use std::net::{IpAddr, Ipv6Addr};

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
