//! From which of our addresses a peer is answered, where a socket is bound to all of them (RFC 3581 section 4: from the address
//! and port that the request came to).
//!
//! Remembered is only what the kernel would not choose itself: on a machine with one address, nothing.

use std::collections::HashMap;
use std::hash::Hash;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What the kernel chooses is asked again after so many milliseconds: routes change.
const ASK_AGAIN: u64 = 10_000;

/// A map that forgets: of so many entries the older half goes when there are more.
struct Bounded<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
    most: usize,
}

impl<K: Eq + Hash, V: Copy> Bounded<K, V> {
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

/// The peers of all shards. Its lock is held for one look.
pub(crate) struct Ways {
    known: Mutex<Bounded<SocketAddr, IpAddr>>,
    /// How many are known, so that where none is nobody looks.
    count: AtomicUsize,
}

impl Ways {
    pub(crate) fn new(most: usize) -> Self {
        Self { known: Mutex::new(Bounded::new(most)), count: AtomicUsize::new(0) }
    }

    /// From which address this peer is to be answered, if the kernel would choose another one.
    #[inline]
    pub(crate) fn find(&self, peer: SocketAddr) -> Option<IpAddr> {
        if self.count.load(Relaxed) == 0 {
            return None;
        }
        self.known().find(&peer)
    }

    fn note(&self, peer: SocketAddr, to: Option<IpAddr>) {
        if to.is_none() && self.count.load(Relaxed) == 0 {
            return;
        }
        let mut known = self.known();
        match to {
            Some(to) => known.insert(peer, to),
            None => known.remove(&peer),
        }
        self.count.store(known.len(), Relaxed);
    }

    fn known(&self) -> MutexGuard<'_, Bounded<SocketAddr, IpAddr>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What one shard has asked the kernel.
pub(crate) struct Choices {
    /// By the address of a peer: the one of ours that it is sent to from.
    asked: Bounded<IpAddr, IpAddr>,
    since: u64,
    probes: [Option<UdpSocket>; 2],
}

impl Choices {
    pub(crate) fn new(most: usize) -> Self {
        Self { asked: Bounded::new(most), since: 0, probes: [None, None] }
    }

    /// A datagram of this peer came to this address of ours.
    pub(crate) fn came(&mut self, peer: SocketAddr, to: IpAddr, now: u64, ways: &Ways) {
        if now >= self.since + ASK_AGAIN {
            (self.asked.young, self.asked.old, self.since) = (HashMap::new(), HashMap::new(), now);
        }
        let chosen = self.asked.find(&peer.ip()).unwrap_or_else(|| {
            // Where there is no way back, any address is as good.
            let chosen = self.probe(peer).unwrap_or(to);
            self.asked.insert(peer.ip(), chosen);
            chosen
        });
        ways.note(peer, (chosen != to).then_some(to));
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

    #[test]
    fn only_what_the_kernel_would_not_choose_is_remembered() {
        let (ways, mut choices) = (Ways::new(100), Choices::new(100));
        let peer = at("127.0.0.1:5060");
        choices.came(peer, "127.0.0.1".parse().unwrap(), 0, &ways);
        assert_eq!((ways.find(peer), ways.count.load(Relaxed)), (None, 0));
        let other = "127.0.0.2".parse().unwrap();
        choices.came(peer, other, 0, &ways);
        assert_eq!((ways.find(peer), ways.find(at("127.0.0.1:5061"))), (Some(other), None));
        choices.came(peer, "127.0.0.1".parse().unwrap(), 0, &ways);
        assert_eq!((ways.find(peer), ways.count.load(Relaxed)), (None, 0));
    }

    #[test]
    fn the_older_half_is_forgotten() {
        let (ways, mut choices) = (Ways::new(100), Choices::new(100));
        for port in 1..=1_000 {
            choices.came(SocketAddr::new(at("127.0.0.1:1").ip(), port), "127.0.0.3".parse().unwrap(), 0, &ways);
        }
        assert!((50..=100).contains(&ways.count.load(Relaxed)));
        assert!(ways.find(at("127.0.0.1:1000")).is_some() && ways.find(at("127.0.0.1:100")).is_none());
    }
}
