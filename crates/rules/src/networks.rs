//! Longest-prefix match on networks: a sorted array for each address family.

use crate::Network;
use crate::network::{mask, to_bits};
use std::net::IpAddr;

/// Marker for no row.
const NONE: u32 = u32::MAX;

/// Networks, each with a number.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Networks {
    v4: Box<[Row]>,
    v6: Box<[Row]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Row {
    start: u128,
    value: u32,
    /// Row of the smallest network around this one.
    parent: u32,
    bits: u8,
}

impl Networks {
    /// Builds the arrays from networks in any order, each once.
    pub(crate) fn new(networks: &[(Network, u32)]) -> Self {
        let family = |v4| {
            let mut rows: Vec<Row> = networks
                .iter()
                .filter(|(network, _)| network.is_ipv4() == v4)
                .map(|(network, value)| {
                    let (start, bits) = network.key();
                    Row { start, value: *value, parent: NONE, bits }
                })
                .collect();
            rows.sort_unstable_by_key(|row| (row.start, row.bits));
            for at in 1..rows.len() {
                let start = rows[at].start;
                // The network around this one is the previous row, or one of the networks around the previous row.
                let mut parent = u32::try_from(at - 1).expect("rows are few");
                while let Some(row) = rows.get(parent as usize)
                    && start & mask(row.bits) != row.start
                {
                    parent = row.parent;
                }
                rows[at].parent = parent;
            }
            rows.into()
        };
        Self { v4: family(true), v6: family(false) }
    }

    /// Returns the number of the longest network that contains the address.
    pub(crate) fn longest(&self, address: IpAddr) -> Option<u32> {
        self.each(address).next().map(|(_, number)| number)
    }

    /// Returns all networks that contain the address, the longest first.
    pub(crate) fn each(&self, address: IpAddr) -> impl Iterator<Item = (Network, u32)> + use<'_> {
        let address = address.to_canonical();
        let (rows, v4) = if address.is_ipv4() { (&self.v4, true) } else { (&self.v6, false) };
        let bits = to_bits(address);
        // The last row that starts at or before the address contains the address, or lies within every network that
        // contains it.
        let mut next = rows.partition_point(|row| row.start <= bits).wrapping_sub(1);
        std::iter::from_fn(move || {
            let row = rows.get(next)?;
            next = row.parent as usize;
            Some(row)
        })
        .filter(move |row| bits & mask(row.bits) == row.start)
        .map(move |row| (Network::from_key((row.start, row.bits), v4), row.value))
    }

    /// Returns all networks in order, IPv4 first.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Network, u32)> + use<'_> {
        let family = |rows: &'_ [Row], v4| {
            rows.iter().map(move |row| (Network::from_key((row.start, row.bits), v4), row.value)).collect::<Vec<_>>()
        };
        family(&self.v4, true).into_iter().chain(family(&self.v6, false))
    }

    pub(crate) const fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    pub(crate) const fn memory(&self) -> usize {
        self.len() * size_of::<Row>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn network(text: &str) -> Network {
        Network::read(text).expect("a network")
    }

    #[test]
    fn the_longest_network_counts() {
        let texts = ["10.0.0.0/8", "10.1.0.0/16", "10.1.2.3", "10.1.2.0/24", "10.1.9.0/24", "::/0", "2001:db8::/32"];
        let rows: Vec<(Network, u32)> = texts.iter().map(|text| network(text)).zip(0..).collect();
        let set = Networks::new(&rows);
        for (address, want) in [
            ("10.1.2.3", &[2, 3, 1, 0][..]),
            ("10.1.2.4", &[3, 1, 0]),
            ("10.1.10.1", &[1, 0]),
            ("10.200.0.1", &[0]),
            ("11.0.0.0", &[]),
            ("9.255.255.255", &[]),
            ("::ffff:10.1.9.1", &[4, 1, 0]),
            ("2001:db8::1", &[6, 5]),
            ("::", &[5]),
        ] {
            let address = address.parse().expect("an address");
            assert_eq!(set.each(address).map(|(_, n)| n).collect::<Vec<_>>(), want, "{address}");
            assert_eq!(set.longest(address), want.first().copied(), "{address}");
        }
        assert_eq!(set.all().count(), 7);
        assert_eq!(Networks::new(&[]).longest(IpAddr::from([1, 2, 3, 4])), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_array_agrees_with_a_linear_search(
            rows in prop::collection::btree_set((any::<bool>(), 0..6u8, 0..9u8), 0..40),
            addresses in prop::collection::vec((any::<bool>(), any::<[u8; 2]>()), 30),
        ) {
            // Few bits at both ends, so that networks are nested.
            let address = |v4, start: u8, end: u8| match v4 {
                true => IpAddr::from([start << 5, 0, 0, end & 7]),
                false => IpAddr::from(((u128::from(start) << 125) | u128::from(end & 7)).to_be_bytes()),
            };
            let rows = rows.into_iter().map(|(v4, start, bits)| {
                let bits = if bits < 4 { bits } else { if v4 { 24 + bits } else { 120 + bits } };
                let (bits_of, _) = Network::of(address(v4, start, start)).key();
                Network::from_key((bits_of & mask(bits), bits), v4)
            });
            let rows: std::collections::BTreeSet<Network> = rows.collect();
            let rows: Vec<(Network, u32)> = rows.into_iter().zip(0..).collect();
            let set = Networks::new(&rows);
            for (v4, [start, end]) in addresses {
                let address = address(v4, start, end);
                let mut each: Vec<(Network, u32)> = rows.iter().filter(|(row, _)| row.contains(address)).copied().collect();
                each.sort_by_key(|(row, _)| std::cmp::Reverse(row.key().1));
                prop_assert_eq!(set.each(address).collect::<Vec<_>>(), each, "{}", address);
            }
        }
    }
}
