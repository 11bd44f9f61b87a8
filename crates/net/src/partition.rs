//! Partitions of the tables by address.

use std::net::IpAddr;

/// Number of partitions.
pub(crate) const PARTS: usize = 32;

/// Returns the partition of an address.
pub(crate) fn of(ip: IpAddr) -> usize {
    let bits = match ip {
        IpAddr::V4(ip) => u64::from(ip.to_bits()),
        IpAddr::V6(ip) => (ip.to_bits() >> 64) as u64 ^ ip.to_bits() as u64,
    };
    (bits.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - PARTS.ilog2())) as usize
}
