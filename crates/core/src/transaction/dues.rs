//! Bytes kept for open requests, by source.

use crate::source::counted;
use hashbrown::HashMap;
use std::net::IpAddr;

/// Charges of each source, and their bounds.
#[derive(Debug)]
pub(super) struct Dues {
    most: usize,
    most_of_all: usize,
    ipv6_prefix: u8,
    of: HashMap<IpAddr, usize, foldhash::quality::FixedState>,
    sum: usize,
}

impl Dues {
    /// Creates a table without bounds. `secret`: seed of the hash, so that peers cannot choose the places of their
    /// sources in the table.
    pub(super) fn new(secret: u64) -> Self {
        let of = HashMap::with_hasher(foldhash::quality::FixedState::with_seed(secret));
        Self { most: usize::MAX, most_of_all: usize::MAX, ipv6_prefix: 64, of, sum: 0 }
    }

    /// Sets the maximum bytes of each source and of all together. A source of IPv6 is a network of `ipv6_prefix` bits, which must not
    /// change after the first charge.
    pub(super) fn set_shares(&mut self, most: usize, most_of_all: usize, ipv6_prefix: u8) {
        (self.most, self.most_of_all, self.ipv6_prefix) = (most, most_of_all, ipv6_prefix);
    }

    /// Returns the source that an address belongs to.
    pub(super) fn source(&self, ip: IpAddr) -> IpAddr {
        counted(ip, self.ipv6_prefix)
    }

    /// Tells whether this source has room for more bytes.
    pub(super) fn has_room(&self, source: IpAddr, bytes: usize) -> bool {
        let sum = self.sum.saturating_add(bytes);
        if sum > self.most_of_all {
            return false;
        }
        // All sources together rarely reach the bound of one source.
        let held = || self.of.get(&counted(source, self.ipv6_prefix)).copied().unwrap_or(0);
        sum <= self.most || held().saturating_add(bytes) <= self.most
    }

    /// Tells whether this source has room for a request that proved its dialog: each bound is an eighth higher.
    pub(super) fn has_room_within_dialog(&self, source: IpAddr, bytes: usize) -> bool {
        let raised = |bound: usize| bound.saturating_add(bound / 8);
        let held = self.of.get(&counted(source, self.ipv6_prefix)).copied().unwrap_or(0);
        self.sum.saturating_add(bytes) <= raised(self.most_of_all) && held.saturating_add(bytes) <= raised(self.most)
    }

    /// Returns the maximum bytes of all sources together.
    pub(super) const fn most_of_all(&self) -> usize {
        self.most_of_all
    }

    /// Tells whether all sources together remain below half of their bound with these additional bytes.
    pub(super) const fn has_half(&self, bytes: usize) -> bool {
        self.sum.saturating_add(bytes) <= self.most_of_all / 2
    }

    pub(super) fn charge(&mut self, source: IpAddr, bytes: usize) {
        if bytes > 0 {
            *self.of.entry(counted(source, self.ipv6_prefix)).or_insert(0) += bytes;
            self.sum += bytes;
        }
    }

    /// Reverses a charge, or a part of it.
    pub(super) fn refund(&mut self, source: IpAddr, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let source = counted(source, self.ipv6_prefix);
        if let Some(held) = self.of.get_mut(&source) {
            self.sum -= bytes.min(*held);
            *held = held.saturating_sub(bytes);
            if *held == 0 {
                self.of.remove(&source);
            }
        }
    }

    /// Returns the bytes of all sources.
    pub(super) const fn sum(&self) -> usize {
        self.sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_source_has_its_own_share_and_gets_it_back() {
        let mut dues = Dues::new(1);
        dues.set_shares(100, 250, 64);
        let [a, b, c] = ["2001:db8::1", "2001:db8::2", "192.0.2.1"].map(|text| text.parse().unwrap());
        assert!(dues.has_room(a, 100) && !dues.has_room(a, 101));
        dues.charge(a, 60);
        dues.charge(b, 40);
        assert!(!dues.has_room(b, 1), "one network is one source");
        assert!(dues.has_room(c, 100));
        dues.charge(c, 100);
        assert_eq!(dues.sum(), 200);
        let d = "192.0.2.2".parse().unwrap();
        assert!(dues.has_room(d, 50) && !dues.has_room(d, 51), "all together have a bound too");
        assert!(!dues.has_half(0));
        dues.refund(b, 40);
        assert!(dues.has_room(a, 40) && !dues.has_room(a, 41) && !dues.has_room(c, 1));
        dues.refund(a, 1_000);
        dues.refund(c, 100);
        assert_eq!((dues.sum(), dues.of.len()), (0, 0));
        assert!(dues.has_half(125) && !dues.has_half(126));
    }
}
