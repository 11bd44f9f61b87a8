//! Usage by each source, and by all together: connections, and bytes held for them.

use crate::Bounds;
use crate::partition::{self, PARTS};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::sync::{Mutex, MutexGuard, PoisonError};
use strowger_core::source::counted;

/// Process-wide; its locks are held for one addition, never across I/O. Usage above a lowered bound stays counted.
pub(crate) struct Sources {
    /// Prefix length of the IPv6 network that counts as one source.
    ipv6_prefix: u8,
    each: [Mutex<HashMap<IpAddr, Usage>>; PARTS],
    connections: AtomicUsize,
    bytes: AtomicUsize,
}

#[derive(Default)]
struct Usage {
    connections: u32,
    bytes: usize,
}

impl Sources {
    pub(crate) fn new(ipv6_prefix: u8) -> Self {
        let (connections, bytes) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { ipv6_prefix, each: Default::default(), connections, bytes }
    }

    /// Counts one more connection, unless its source or all sources together have reached the bound; returns whether it
    /// was counted. An outbound connection and a balancer have no source.
    pub(crate) fn admit(&self, source: Option<IpAddr>, bounds: &Bounds) -> bool {
        if self.connections.fetch_add(1, AcqRel) >= bounds.connections {
            self.connections.fetch_sub(1, AcqRel);
            return false;
        }
        let admitted = source.is_none_or(|source| self.admit_source(source, bounds));
        if !admitted {
            self.connections.fetch_sub(1, AcqRel);
        }
        admitted
    }

    /// Counts a connection for its source, unless the source has reached the bound; returns whether it was counted. The
    /// connection was admitted without a source before.
    pub(crate) fn admit_source(&self, source: IpAddr, bounds: &Bounds) -> bool {
        self.with(source, |cost| {
            let room = (cost.connections as usize) < bounds.connections_per_source;
            cost.connections += u32::from(room);
            room
        })
    }

    /// Counts one more connection, without a check of the bounds: it has a bound of its own.
    pub(crate) fn count(&self) {
        self.connections.fetch_add(1, AcqRel);
    }

    /// Reverses [`Sources::admit`] or [`Sources::count`].
    pub(crate) fn release(&self, source: Option<IpAddr>) {
        self.connections.fetch_sub(1, AcqRel);
        if let Some(source) = source {
            self.with(source, |cost| cost.connections = cost.connections.saturating_sub(1));
        }
    }

    /// Charges this source with further bytes, unless this source or all sources together would exceed the bound. A
    /// balancer has no source.
    pub(crate) fn charge(&self, source: Option<IpAddr>, bytes: usize, bounds: &Bounds) -> bool {
        let held = self.bytes.fetch_add(bytes, AcqRel);
        let of_source = |source| {
            self.with(source, |cost| {
                let room = cost.bytes.saturating_add(bytes) <= bounds.connection_memory_per_source;
                cost.bytes += if room { bytes } else { 0 };
                room
            })
        };
        let charged = held.saturating_add(bytes) <= bounds.connection_memory && source.is_none_or(of_source);
        if !charged {
            self.bytes.fetch_sub(bytes, AcqRel);
        }
        charged
    }

    /// Reverses [`Sources::charge`], or a part of it.
    pub(crate) fn refund(&self, source: Option<IpAddr>, bytes: usize) {
        self.bytes.fetch_sub(bytes, AcqRel);
        if let Some(source) = source {
            self.with(source, |cost| cost.bytes = cost.bytes.saturating_sub(bytes));
        }
    }

    fn with<T>(&self, source: IpAddr, change: impl FnOnce(&mut Usage) -> T) -> T {
        let source = counted(source, self.ipv6_prefix);
        let mut part = self.part(source);
        let cost = part.entry(source).or_default();
        let changed = change(cost);
        if (cost.connections, cost.bytes) == (0, 0) {
            part.remove(&source);
        }
        changed
    }

    fn part(&self, source: IpAddr) -> MutexGuard<'_, HashMap<IpAddr, Usage>> {
        self.each[partition::of(source)].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn limits_count_all_and_each() {
        let bounds = Bounds { connections: 3, connections_per_source: 2, ..Bounds::default() };
        let sources = Sources::new(64);
        let [a, b] = ["192.0.2.1", "192.0.2.2"].map(|text| Some(ip(text)));
        let admit = |source| sources.admit(source, &bounds);
        assert!(admit(a) && admit(a) && !admit(a));
        assert!(admit(b) && !admit(b) && !admit(None));
        sources.release(a);
        assert!(admit(b) && !admit(a));
    }

    /// A balancer counts for all sources alone, until its header names a source.
    #[test]
    fn a_balancer_is_no_source_and_its_peers_are() {
        let bounds = Bounds { connections: 3, connections_per_source: 1, connection_memory: 300, ..Bounds::default() };
        let bounds = Bounds { connection_memory_per_source: 100, ..bounds };
        let sources = Sources::new(64);
        let [a, b] = ["192.0.2.1", "192.0.2.2"].map(ip);
        assert!((0..3).all(|_| sources.admit(None, &bounds)) && !sources.admit(None, &bounds));
        assert!(sources.admit_source(a, &bounds) && !sources.admit_source(a, &bounds));
        assert!(sources.admit_source(b, &bounds));
        sources.release(Some(a));
        assert!(sources.admit(None, &bounds) && sources.admit_source(a, &bounds));
        assert!(sources.charge(None, 200, &bounds) && !sources.charge(None, 101, &bounds));
        sources.refund(None, 100);
        assert!(sources.charge(Some(a), 100, &bounds) && !sources.charge(Some(a), 1, &bounds));
        sources.refund(None, 100);
        sources.refund(Some(a), 100);
        assert!(sources.charge(Some(b), 100, &bounds) && sources.charge(None, 200, &bounds));
    }

    #[test]
    fn bytes_count_for_all_and_each_and_a_network_is_one_source() {
        let bounds = Bounds { connection_memory: 300, connection_memory_per_source: 200, ..Bounds::default() };
        let sources = Sources::new(64);
        let [a, b, c] = ["2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"].map(ip);
        let charge = |source, bytes| sources.charge(Some(source), bytes, &bounds);
        assert!(charge(a, 150) && charge(b, 50) && !charge(b, 1), "one network");
        assert!(charge(c, 100) && !charge(c, 1), "all together");
        sources.refund(Some(a), 150);
        assert!(charge(b, 150) && !charge(b, usize::MAX));
        for (source, bytes) in [(b, 200), (c, 100)] {
            sources.refund(Some(source), bytes);
        }
        assert!(
            sources.each.iter().all(|part| part.lock().unwrap().is_empty()),
            "a source that costs nothing is not kept"
        );
    }
}
