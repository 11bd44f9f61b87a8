//! Servers of a name, and the choice of the first (RFC 2782).

use super::Targets;
use std::net::SocketAddr;
use strowger_core::Transport;

/// A host that serves a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Server {
    /// Rank of the server's service in the preference of the name (RFC 3263 section 4.1).
    pub(super) service: u16,
    pub(super) transport: Transport,
    pub(super) priority: u16,
    pub(super) weight: u16,
    /// Addresses in order of trying.
    pub(super) addresses: Vec<SocketAddr>,
}

impl Server {
    /// Creates the server of a name that has only one.
    pub(super) fn alone(transport: Transport, addresses: Vec<SocketAddr>) -> Self {
        Self { service: 0, transport, priority: 0, weight: 0, addresses }
    }
}

/// Chooses the targets of a request: at most `most` addresses.
pub(super) fn targets(servers: &[Server], most: usize, random: impl FnMut() -> u64) -> Targets {
    let mut targets: Targets = order(servers.iter().collect(), |server| server, random)
        .into_iter()
        .flat_map(|server| server.addresses.iter().map(|address| (server.transport, *address)))
        .collect();
    targets.truncate(most);
    targets
}

/// Orders servers as RFC 2782 requires: by service, then by priority. Servers of equal priority are drawn one after the
/// other, with probabilities proportional to their weights. `server` returns the server of an item.
pub(super) fn order<T>(mut servers: Vec<T>, server: impl Fn(&T) -> &Server, mut random: impl FnMut() -> u64) -> Vec<T> {
    let rank = |one: &T| (server(one).service, server(one).priority);
    let weight = |one: &T| u64::from(server(one).weight);
    servers.sort_by_key(|one| (rank(one), weight(one) != 0));
    let mut from = 0;
    while from < servers.len() {
        let first = rank(&servers[from]);
        let equals = servers[from..].iter().take_while(|one| rank(one) == first).count();
        let sum: u64 = servers[from..from + equals].iter().map(weight).sum();
        let mut luck = random() % (sum + 1);
        let mut chosen = from;
        for (i, one) in servers[from..from + equals].iter().enumerate() {
            chosen = from + i;
            if luck <= weight(one) {
                break;
            }
            luck -= weight(one);
        }
        // The remaining servers keep their order, with those of weight zero first.
        servers[from..=chosen].rotate_right(1);
        from += 1;
    }
    servers
}

pub(super) fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::hash::RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn server(service: u16, priority: u16, weight: u16, port: u16) -> Server {
        let addresses = vec![SocketAddr::from(([192, 0, 2, 1], port))];
        Server { service, priority, weight, ..Server::alone(Transport::Udp, addresses) }
    }

    #[test]
    fn weights_share_the_luck() {
        let servers =
            [server(0, 1, 0, 1), server(0, 1, 1, 2), server(0, 1, 3, 3), server(0, 0, 9, 4), server(1, 0, 9, 5)];
        let mut seed = 1u64;
        let mut random = move || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            seed >> 33
        };
        let mut first = HashMap::new();
        for _ in 0..10_000 {
            let ports: Vec<u16> = targets(&servers, 9, &mut random).iter().map(|(_, to)| to.port()).collect();
            assert_eq!((ports[0], ports[4], ports.len()), (4, 5, 5));
            *first.entry(ports[1]).or_insert(0) += 1;
        }
        // Of five possible draws (0 to 4) one selects the server of weight zero, one and three the others.
        assert!((1_700..2_300).contains(&first[&1]) && (1_700..2_300).contains(&first[&2]), "{first:?}");
    }

    #[test]
    fn no_more_addresses_are_tried_than_may_be() {
        let servers = [server(0, 1, 0, 1), server(0, 2, 0, 2), server(0, 3, 0, 3)];
        assert_eq!(targets(&servers, 2, || 0).iter().map(|(_, to)| to.port()).collect::<Vec<_>>(), [1, 2]);
    }
}
