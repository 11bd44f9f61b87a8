//! Address of the peer of a connection in 24 bytes; a [`SocketAddr`] has 32.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// Address of a peer, without the flow label of IPv6 (RFC 6437), which names no peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PeerAddress {
    /// Address; one of IPv4 in the first four bytes, followed by zeros.
    ip: [u8; 16],
    /// Scope of a link-local address of IPv6 (RFC 4007 section 6).
    scope: u32,
    port: u16,
    is_ipv6: bool,
}

const _: () = assert!(size_of::<PeerAddress>() == 24);

impl PeerAddress {
    /// Returns the address without its port and scope.
    pub(crate) fn ip(self) -> IpAddr {
        if self.is_ipv6 {
            return Ipv6Addr::from(self.ip).into();
        }
        let [a, b, c, d, ..] = self.ip;
        Ipv4Addr::new(a, b, c, d).into()
    }
}

impl From<SocketAddr> for PeerAddress {
    fn from(address: SocketAddr) -> Self {
        let port = address.port();
        match address {
            SocketAddr::V4(v4) => {
                let mut ip = [0; 16];
                ip[..4].copy_from_slice(&v4.ip().octets());
                Self { ip, scope: 0, port, is_ipv6: false }
            }
            SocketAddr::V6(v6) => Self { ip: v6.ip().octets(), scope: v6.scope_id(), port, is_ipv6: true },
        }
    }
}

impl From<PeerAddress> for SocketAddr {
    fn from(peer: PeerAddress) -> Self {
        match peer.ip() {
            IpAddr::V4(ip) => Self::from((ip, peer.port)),
            IpAddr::V6(ip) => SocketAddrV6::new(ip, peer.port, 0, peer.scope).into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_either_family_is_kept_with_its_scope() {
        for text in ["192.0.2.7:5060", "0.0.0.0:0", "[2001:db8::7]:5061", "[::]:65535", "[::ffff:192.0.2.7]:5060"] {
            let address: SocketAddr = text.parse().unwrap();
            let peer = PeerAddress::from(address);
            assert_eq!((SocketAddr::from(peer), peer.ip()), (address, address.ip()), "{text}");
        }
        let on = |scope| SocketAddr::from(SocketAddrV6::new("fe80::1".parse().unwrap(), 5060, 0, scope));
        assert_eq!(SocketAddr::from(PeerAddress::from(on(3))), on(3));
        assert_ne!(PeerAddress::from(on(3)), PeerAddress::from(on(4)), "links have peers of the same address");
    }

    #[test]
    fn an_address_of_ipv4_differs_from_the_same_bytes_of_ipv6() {
        let [v4, v6] = ["192.0.2.7:5060", "[c000:207::]:5060"].map(|text| text.parse::<SocketAddr>().unwrap());
        let [v4, v6] = [v4, v6].map(PeerAddress::from);
        assert_eq!(v4.ip, v6.ip);
        assert_ne!(v4, v6);
        assert_ne!(v4.ip(), v6.ip());
    }

    #[test]
    fn the_flow_label_names_no_peer() {
        let labelled = |label| PeerAddress::from(SocketAddr::from(SocketAddrV6::new(Ipv6Addr::LOCALHOST, 1, label, 0)));
        assert_eq!(labelled(7), labelled(8));
    }
}
