//! The connections of all shards: where one to an address is, how many there are and from whom.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::sync::{Mutex, MutexGuard};
use strowger_core::{Flow, Transport};

const PARTS: usize = 32;

/// Process-wide; its locks are held for a look-up only, never across I/O.
#[derive(Default)]
pub(crate) struct Directory {
    places: [Mutex<HashMap<(Transport, SocketAddr), Flow>>; PARTS],
    sources: [Mutex<HashMap<IpAddr, u32>>; PARTS],
    count: AtomicUsize,
    /// The name that the server at an address must prove by its certificate.
    names: Mutex<HashMap<SocketAddr, Box<str>>>,
}

/// Names remembered at most; beyond, all are forgotten and told anew.
const NAMES: usize = 100_000;

impl Directory {
    pub(crate) fn find(&self, of: Transport, to: SocketAddr) -> Option<Flow> {
        lock(&self.places[part(to.ip())]).get(&(of, to)).copied()
    }

    /// The connection to this address; if there is none but `stale`, `make` makes one and it becomes it. The
    /// second value tells whether it was made.
    pub(crate) fn find_or(
        &self,
        of: Transport,
        to: SocketAddr,
        stale: Option<Flow>,
        make: impl FnOnce() -> Flow,
    ) -> (Flow, bool) {
        let mut places = lock(&self.places[part(to.ip())]);
        match places.get(&(of, to)) {
            Some(flow) if Some(*flow) != stale => (*flow, false),
            _ => {
                let flow = make();
                places.insert((of, to), flow);
                (flow, true)
            }
        }
    }

    /// This connection leads there no more: it ended, or serves another address.
    pub(crate) fn forget(&self, of: Transport, to: SocketAddr, flow: Flow) {
        let mut places = lock(&self.places[part(to.ip())]);
        if places.get(&(of, to)) == Some(&flow) {
            places.remove(&(of, to));
        }
    }

    /// Messages to this address go over that connection from now on, until it is [forgotten](Self::forget). Whether they
    /// did not before.
    pub(crate) fn alias(&self, of: Transport, to: SocketAddr, flow: Flow) -> bool {
        lock(&self.places[part(to.ip())]).insert((of, to), flow) != Some(flow)
    }

    pub(crate) fn name(&self, address: SocketAddr, name: &str) {
        let mut names = lock(&self.names);
        if names.get(&address).is_some_and(|n| **n == *name) {
            return;
        }
        if names.len() >= NAMES {
            names.clear();
        }
        names.insert(address, name.into());
    }

    pub(crate) fn name_of(&self, address: SocketAddr) -> Option<Box<str>> {
        lock(&self.names).get(&address).cloned()
    }

    /// Counts one more connection unless that is more than `most`, or its source has more than `each`.
    pub(crate) fn admit(&self, source: Option<IpAddr>, most: usize, each: usize) -> bool {
        if self.count.fetch_add(1, AcqRel) >= most {
            self.count.fetch_sub(1, AcqRel);
            return false;
        }
        let Some(source) = source else { return true };
        let mut sources = lock(&self.sources[part(source)]);
        let n = sources.entry(source).or_insert(0);
        if *n as usize >= each {
            self.count.fetch_sub(1, AcqRel);
            return false;
        }
        *n += 1;
        true
    }

    /// Takes back what [`Directory::admit`] counted.
    pub(crate) fn dismiss(&self, source: Option<IpAddr>) {
        self.count.fetch_sub(1, AcqRel);
        let Some(source) = source else { return };
        let mut sources = lock(&self.sources[part(source)]);
        if let Some(n) = sources.get_mut(&source) {
            *n -= 1;
            if *n == 0 {
                sources.remove(&source);
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

fn part(ip: IpAddr) -> usize {
    let bytes = match ip {
        IpAddr::V4(ip) => u32::from(ip) as u64,
        IpAddr::V6(ip) => (u128::from(ip) >> 64) as u64 ^ u128::from(ip) as u64,
    };
    (bytes.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 59) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(slot: u32) -> Flow {
        Flow { node: 0, process: 0, shard: 0, slot, generation: 1 }
    }

    #[test]
    fn one_connection_for_one_address_and_an_alias_until_it_is_forgotten() {
        let directory = Directory::default();
        let [a, b] = ["192.0.2.1:5060", "192.0.2.1:5070"].map(|a| a.parse().unwrap());
        assert_eq!(directory.find_or(Transport::Tcp, a, None, || flow(1)), (flow(1), true));
        assert_eq!(directory.find_or(Transport::Tcp, a, None, || unreachable!()), (flow(1), false));
        assert_eq!(directory.find_or(Transport::Tls, a, None, || flow(2)), (flow(2), true));
        assert!(directory.alias(Transport::Tcp, b, flow(1)) && !directory.alias(Transport::Tcp, b, flow(1)));
        assert_eq!(directory.find_or(Transport::Tcp, b, None, || unreachable!()), (flow(1), false));
        directory.forget(Transport::Tcp, b, flow(2));
        assert_eq!(directory.find_or(Transport::Tcp, b, None, || unreachable!()), (flow(1), false), "of another");
        directory.forget(Transport::Tcp, b, flow(1));
        assert_eq!(directory.find_or(Transport::Tcp, b, None, || flow(3)), (flow(3), true));
    }

    #[test]
    fn limits_count_all_and_each() {
        let directory = Directory::default();
        let [a, b] = ["192.0.2.1", "192.0.2.2"].map(|ip| Some(ip.parse().unwrap()));
        assert!(directory.admit(a, 3, 2) && directory.admit(a, 3, 2) && !directory.admit(a, 3, 2));
        assert!(directory.admit(b, 3, 2) && !directory.admit(b, 3, 2));
        directory.dismiss(a);
        assert!(directory.admit(b, 3, 2) && !directory.admit(a, 3, 2));
    }
}
