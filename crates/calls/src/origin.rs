//! Addresses of the parties of a dialog: the sources of its INVITE and its 2xx.
//!
//! A route token proves that a request leads to a party of a call. It does not prove who sends it: the token covers the
//! Call-ID and the tag of that party, and a caller chooses both. A second phone of the same user can get a token for
//! the same Call-ID and tag, by a subscription or an earlier call. One phone could then end the call in the name of the
//! gateway. So a BYE from a foreign address ends the dialog only at its receiver, and the server sends a BYE to the
//! named party. A target refresh from a foreign address changes no target in the table.

use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};

/// Source of a party: its IPv4 address, or a hash of the /64 prefix of its IPv6 address. The port is not included,
/// because address translation and new connections change it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Source(u32);

impl Source {
    pub(crate) const UNKNOWN: Self = Self(0);

    pub(crate) fn of(address: SocketAddr) -> Self {
        match address.ip().to_canonical() {
            IpAddr::V4(ip) => Self(ip.to_bits()),
            // Fibonacci hashing. The result 0 is reserved for [`Source::UNKNOWN`].
            IpAddr::V6(ip) => {
                let prefix = (ip.to_bits() >> 64) as u64;
                Self((prefix.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32 | 1)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_an_address_without_its_port_or_a_64() {
        let of = |text: &str| Source::of(text.parse().expect("an address"));
        assert_eq!(of("192.0.2.1:5060"), of("[::ffff:192.0.2.1]:1"));
        assert_ne!(of("192.0.2.1:5060"), of("192.0.2.2:5060"));
        assert_eq!(of("[2001:db8::1]:5060"), of("[2001:db8::2:3]:1"));
        assert_ne!(of("[2001:db8::1]:5060"), of("[2001:db8:0:1::1]:5060"));
        assert_ne!(of("[::1]:5060"), Source::UNKNOWN);
    }
}
