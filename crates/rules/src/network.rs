//! Parses addresses and networks: `192.0.2.1`, `10.0.0.0/8`, `2001:db8::/32`.

use crate::Refusal;
use std::fmt;
use std::net::IpAddr;

/// A network: all addresses with the same leading bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Network {
    /// First address; an IPv4-mapped IPv6 address is stored as IPv4.
    address: IpAddr,
    bits: u8,
}

impl Network {
    /// Expected text, for error messages.
    pub(crate) const EXPECTED: &str = "an address such as 192.0.2.1 or 2001:db8::1, or a network such as 10.0.0.0/8";

    /// Creates a network of one address.
    pub fn of(address: IpAddr) -> Self {
        let address = address.to_canonical();
        Self { address, bits: if address.is_ipv4() { 32 } else { 128 } }
    }

    /// Reads an address or a network.
    ///
    /// # Errors
    /// The text is neither; with cause and cure.
    pub fn read(text: &str) -> Result<Self, Refusal> {
        let unread = || Refusal::new(format!("`{text}` is no address"), format!("write {}", Self::EXPECTED));
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let written: IpAddr = address.parse().map_err(|_| unread())?;
        let whole = Self::of(written);
        let Some(bits) = bits else { return Ok(whole) };
        let digits = !bits.is_empty() && bits.bytes().all(|b| b.is_ascii_digit());
        let mut bits = bits.parse::<u8>().ok().filter(|_| digits).ok_or_else(unread)?;
        // The prefix length of ::ffff:0:0/96 includes 96 bits before the IPv4 address.
        if written.is_ipv6() && whole.address.is_ipv4() {
            bits = bits.checked_sub(96).ok_or_else(unread)?;
        }
        if bits > whole.bits {
            let cure = format!("an address of this kind has {} bits", whole.bits);
            return Err(Refusal::new(format!("`{text}` is no network"), cure));
        }
        let network = Self { address: from_bits(to_bits(whole.address) & mask(bits), whole.is_ipv4()), bits };
        if network.address != whole.address {
            let message = format!("`{text}` names bits behind its first {bits}");
            return Err(Refusal::new(message, format!("write {network}")));
        }
        Ok(network)
    }

    /// Tells whether the network consists of one address.
    pub fn is_address(&self) -> bool {
        *self == Self::of(self.address)
    }

    /// Tells whether the address is in it.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.address.is_ipv4() && to_bits(address) & mask(self.bits) == to_bits(self.address)
    }

    /// Returns the first address.
    pub(crate) const fn address(&self) -> IpAddr {
        self.address
    }

    /// Tells whether the other network is completely in this one.
    pub(crate) fn holds(&self, other: &Self) -> bool {
        self.bits <= other.bits && self.contains(other.address)
    }

    pub(crate) const fn is_ipv4(&self) -> bool {
        self.address.is_ipv4()
    }

    /// Returns the leading bits of the network, at the top of the number, and their count.
    pub(crate) fn key(&self) -> (u128, u8) {
        (to_bits(self.address), self.bits)
    }

    /// Returns the network of a [`Self::key`].
    pub(crate) fn from_key((start, bits): (u128, u8), v4: bool) -> Self {
        Self { address: from_bits(start, v4), bits }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_address() { write!(f, "{}", self.address) } else { write!(f, "{}/{}", self.address, self.bits) }
    }
}

/// Returns the bits of a canonical address, at the top of the number.
pub(crate) fn to_bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
        IpAddr::V6(address) => address.to_bits(),
    }
}

fn from_bits(bits: u128, v4: bool) -> IpAddr {
    if v4 { IpAddr::V4(((bits >> 96) as u32).into()) } else { IpAddr::V6(bits.into()) }
}

/// Returns the mask of the first bits of a number.
pub(crate) fn mask(bits: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_reads_as_it_is_written() {
        for text in ["192.0.2.1", "10.0.0.0/8", "0.0.0.0/0", "::/0", "2001:db8::/32", "::1", "255.255.255.255"] {
            assert_eq!(Network::read(text).expect(text).to_string(), text);
        }
        assert_eq!(Network::read("192.0.2.1/32"), Network::read("192.0.2.1"));
        assert_eq!(Network::read("::ffff:192.0.2.0/120"), Network::read("192.0.2.0/24"));
        assert_eq!(Network::read("::ffff:192.0.2.1"), Network::read("192.0.2.1"));
    }

    #[test]
    fn a_malformed_network_has_its_cure() {
        for (text, cure) in [
            ("10.0.0.1/8", "write 10.0.0.0/8"),
            ("2001:db8::1/32", "write 2001:db8::/32"),
            ("10.0.0.0/33", "an address of this kind has 32 bits"),
        ] {
            assert_eq!(Network::read(text).expect_err(text).cure, cure);
        }
        for text in ["", "10", "10.0.0", "10.0.0.0/", "10.0.0.0/+8", "example.com", "::ffff:0.0.0.0/8", "1.2.3.4/8/9"] {
            assert!(Network::read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_network_contains_its_own_kind_alone() {
        let network = Network::read("192.0.2.0/24").expect("a network");
        for (address, within) in
            [("192.0.2.255", true), ("::ffff:192.0.2.7", true), ("192.0.3.0", false), ("::", false)]
        {
            assert_eq!(network.contains(address.parse().expect("an address")), within, "{address}");
        }
        let all = Network::read("::/0").expect("a network");
        assert!(!all.contains(IpAddr::from([1, 2, 3, 4])) && all.contains("::9".parse().expect("an address")));
    }
}
