//! Local addresses from which peers are answered if a socket is bound to all addresses (RFC 3581 section 4: from the address and port that received
//! the request).
//!
//! Only addresses that the kernel would not choose itself are remembered: on a machine with one address, none.
//!
//! The source of a datagram may be forged. So the address that received the last datagram of a peer is used only for responses; requests leave from
//! the address of the last datagram that the service attributed to this peer.

use std::collections::HashMap;
use std::hash::Hash;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Milliseconds after which the kernel is asked again for its choice: routes change.
const ASK_AGAIN: u64 = 10_000;

/// A bounded map: at its limit the older half of the entries is dropped.
struct BoundedMap<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
    most: usize,
}

impl<K: Eq + Hash, V: Copy> BoundedMap<K, V> {
    fn new(most: usize) -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), most }
    }

    fn find(&self, key: &K) -> Option<V> {
        self.young.get(key).or_else(|| self.old.get(key)).copied()
    }

    fn insert(&mut self, key: K, value: V) {
        if self.young.len() >= self.most.div_ceil(2) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, value);
    }

    fn remove(&mut self, key: &K) {
        self.young.remove(key);
        self.old.remove(key);
    }

    fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }
}

/// Source addresses of the peers of all shards. Its lock is held for one look-up.
pub(crate) struct SourceAddresses {
    known: Mutex<Peers>,
    /// Number of known peers, so that sends skip the look-up while it is 0.
    count: AtomicUsize,
}

/// Local addresses that received datagrams, by the source of the datagram.
struct Peers {
    /// Address of the last datagram.
    last: BoundedMap<SocketAddr, IpAddr>,
    /// Address of the last datagram that was confirmed.
    confirmed: BoundedMap<SocketAddr, IpAddr>,
}

impl SourceAddresses {
    pub(crate) fn new(most: usize) -> Self {
        let known = Peers { last: BoundedMap::new(most), confirmed: BoundedMap::new(most) };
        Self { known: Mutex::new(known), count: AtomicUsize::new(0) }
    }

    /// Returns the local address from which this message must leave for a peer, if the kernel would choose another
    /// address.
    #[inline]
    pub(crate) fn find(&self, peer: SocketAddr, message: &[u8]) -> Option<IpAddr> {
        if self.count.load(Relaxed) == 0 {
            return None;
        }
        let known = self.known();
        if message.starts_with(b"SIP/2.0 ") { known.last.find(&peer) } else { known.confirmed.find(&peer) }
    }

    /// Confirms the last datagram from this source: requests to the peer leave from the address that received it.
    pub(crate) fn confirm(&self, peer: SocketAddr) {
        if self.count.load(Relaxed) == 0 {
            return;
        }
        self.change(|known| match known.last.find(&peer) {
            Some(to) => known.confirmed.insert(peer, to),
            None => known.confirmed.remove(&peer),
        });
    }

    fn note(&self, peer: SocketAddr, to: Option<IpAddr>) {
        if to.is_none() && self.count.load(Relaxed) == 0 {
            return;
        }
        self.change(|known| match to {
            Some(to) => known.last.insert(peer, to),
            None => known.last.remove(&peer),
        });
    }

    fn change(&self, change: impl FnOnce(&mut Peers)) {
        let mut known = self.known();
        change(&mut known);
        self.count.store(known.last.len() + known.confirmed.len(), Relaxed);
    }

    fn known(&self) -> MutexGuard<'_, Peers> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Choices of the kernel, as known to one shard.
pub(crate) struct RouteCache {
    /// Local address from which the kernel sends to a peer's address.
    asked: BoundedMap<IpAddr, IpAddr>,
    since: u64,
    probes: [Option<UdpSocket>; 2],
}

impl RouteCache {
    pub(crate) fn new(most: usize) -> Self {
        Self { asked: BoundedMap::new(most), since: 0, probes: [None, None] }
    }

    /// Notes that a datagram of this peer was received at this local address.
    pub(crate) fn received(&mut self, peer: SocketAddr, to: IpAddr, now: u64, addresses: &SourceAddresses) {
        if now >= self.since + ASK_AGAIN {
            (self.asked.young, self.asked.old, self.since) = (HashMap::new(), HashMap::new(), now);
        }
        let chosen = self.asked.find(&peer.ip()).unwrap_or_else(|| {
            // Without a route back, any address serves.
            let chosen = self.probe(peer).unwrap_or(to);
            self.asked.insert(peer.ip(), chosen);
            chosen
        });
        addresses.note(peer, (chosen != to).then_some(to));
    }

    #[cold]
    fn probe(&mut self, peer: SocketAddr) -> io::Result<IpAddr> {
        let probe = &mut self.probes[usize::from(peer.is_ipv6())];
        let socket = match probe {
            Some(socket) => socket,
            none => {
                let any: IpAddr =
                    if peer.is_ipv6() { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
                none.insert(UdpSocket::bind((any, 0))?)
            }
        };
        socket.connect(peer)?;
        Ok(socket.local_addr()?.ip())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    const RESPONSE: &[u8] = b"SIP/2.0 200 OK";

    #[test]
    fn only_what_the_kernel_would_not_choose_is_remembered() {
        let (addresses, mut routes) = (SourceAddresses::new(100), RouteCache::new(100));
        let peer = at("127.0.0.1:5060");
        routes.received(peer, "127.0.0.1".parse().unwrap(), 0, &addresses);
        assert_eq!((addresses.find(peer, RESPONSE), addresses.count.load(Relaxed)), (None, 0));
        let other = "127.0.0.2".parse().unwrap();
        routes.received(peer, other, 0, &addresses);
        assert_eq!(
            (addresses.find(peer, RESPONSE), addresses.find(at("127.0.0.1:5061"), RESPONSE)),
            (Some(other), None)
        );
        routes.received(peer, "127.0.0.1".parse().unwrap(), 0, &addresses);
        assert_eq!((addresses.find(peer, RESPONSE), addresses.count.load(Relaxed)), (None, 0));
    }

    #[test]
    fn requests_leave_from_where_a_peer_was_heard_that_is_known_to_be_there() {
        const REQUEST: &[u8] = b"BYE sip:b@127.0.0.1 SIP/2.0";
        let (addresses, mut routes) = (SourceAddresses::new(100), RouteCache::new(100));
        let (peer, [one, two]) = (at("127.0.0.1:5060"), ["127.0.0.2", "127.0.0.3"].map(|ip| ip.parse().unwrap()));
        routes.received(peer, one, 0, &addresses);
        assert_eq!((addresses.find(peer, RESPONSE), addresses.find(peer, REQUEST)), (Some(one), None));
        addresses.confirm(peer);
        routes.received(peer, two, 0, &addresses);
        assert_eq!((addresses.find(peer, RESPONSE), addresses.find(peer, REQUEST)), (Some(two), Some(one)));
        routes.received(peer, "127.0.0.1".parse().unwrap(), 0, &addresses);
        assert_eq!((addresses.find(peer, RESPONSE), addresses.find(peer, REQUEST)), (None, Some(one)));
        addresses.confirm(peer);
        assert_eq!((addresses.find(peer, REQUEST), addresses.count.load(Relaxed)), (None, 0));
    }

    #[test]
    fn the_older_half_is_forgotten() {
        let (addresses, mut routes) = (SourceAddresses::new(100), RouteCache::new(100));
        for port in 1..=1_000 {
            routes.received(SocketAddr::new(at("127.0.0.1:1").ip(), port), "127.0.0.3".parse().unwrap(), 0, &addresses);
        }
        assert!((50..=100).contains(&addresses.count.load(Relaxed)));
        let knows = |peer| addresses.find(at(peer), RESPONSE).is_some();
        assert!(knows("127.0.0.1:1000") && !knows("127.0.0.1:100"));
    }
}
