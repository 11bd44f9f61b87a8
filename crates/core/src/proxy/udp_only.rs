//! Peers that a large request reaches by UDP only (RFC 3261 section 18.1.1).
//!
//! A request that is too large for UDP is first sent by TCP. If the peer accepts no TCP connection, the request is sent
//! by UDP: at once after a refusal, or after a short wait if the peer drops the SYN. This table remembers such
//! addresses, so that only the first request waits.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Addresses that recently refused or ignored a TCP connection. The shards of a process share one table. Times are
/// milliseconds of [`Now::mono`](crate::Now::mono).
#[derive(Debug, Default)]
pub struct UdpOnly {
    addresses: Mutex<Addresses>,
    /// Number of addresses. If it is 0, a look-up costs one load.
    held: AtomicUsize,
}

#[derive(Debug, Default)]
struct Addresses {
    until: HashMap<SocketAddr, u64>,
    /// Expiry queue, oldest first.
    order: VecDeque<(u64, SocketAddr)>,
}

impl UdpOnly {
    /// Milliseconds for which a failure is remembered.
    pub const TIME: u64 = 600_000;

    /// Maximum size in bytes of a request that falls back to UDP. The proxy adds header fields, and a datagram has 65,507 bytes.
    pub const LONGEST: usize = 60_000;

    /// Maximum number of addresses. A further address replaces the oldest.
    pub const MOST: usize = 4_096;

    /// Tells whether TCP recently failed at this address.
    pub fn holds(&self, address: SocketAddr, now: u64) -> bool {
        self.held() > 0 && self.addresses().until.get(&address).is_some_and(|until| *until > now)
    }

    /// Notes that TCP has failed at this address. Returns whether the address was not in the table.
    pub fn insert(&self, address: SocketAddr, now: u64) -> bool {
        let mut addresses = self.addresses();
        addresses.expire(now);
        if addresses.until.contains_key(&address) {
            return false;
        }
        if addresses.until.len() >= Self::MOST
            && let Some((_, oldest)) = addresses.order.pop_front()
        {
            addresses.until.remove(&oldest);
        }
        addresses.until.insert(address, now + Self::TIME);
        addresses.order.push_back((now + Self::TIME, address));
        self.held.store(addresses.until.len(), Relaxed);
        true
    }

    /// Returns the number of addresses.
    pub fn held(&self) -> usize {
        self.held.load(Relaxed)
    }

    /// Drops expired addresses, and frees spare memory.
    pub fn tidy(&self, now: u64) {
        if self.held() == 0 {
            return;
        }
        let mut addresses = self.addresses();
        addresses.expire(now);
        self.held.store(addresses.until.len(), Relaxed);
        if addresses.until.is_empty() {
            *addresses = Addresses::default();
        }
    }

    fn addresses(&self) -> MutexGuard<'_, Addresses> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Addresses {
    fn expire(&mut self, now: u64) {
        while let Some((_, address)) = self.order.pop_front_if(|(until, _)| *until <= now) {
            self.until.remove(&address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(port: u16) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, 1], port))
    }

    #[test]
    fn a_failure_is_remembered_for_its_time_and_not_prolonged() {
        let table = UdpOnly::default();
        assert!(!table.holds(at(1), 0));
        assert!(table.insert(at(1), 0) && !table.insert(at(1), 1_000));
        assert!(table.holds(at(1), UdpOnly::TIME - 1) && !table.holds(at(2), 1));
        assert!(!table.holds(at(1), UdpOnly::TIME));
        assert!(table.insert(at(1), UdpOnly::TIME), "its time is over");
        assert!(table.holds(at(1), 2 * UdpOnly::TIME - 1));
    }

    #[test]
    fn the_table_is_bounded_and_forgets() {
        let table = UdpOnly::default();
        for port in 0..=UdpOnly::MOST as u16 {
            table.insert(at(port), u64::from(port));
        }
        assert_eq!(table.held(), UdpOnly::MOST);
        assert!(!table.holds(at(0), 5_000) && table.holds(at(1), 5_000), "the oldest has made room");
        table.tidy(UdpOnly::TIME + 10);
        assert!(table.held() < UdpOnly::MOST && table.holds(at(11), UdpOnly::TIME + 10));
        table.tidy(2 * UdpOnly::TIME);
        assert_eq!((table.held(), table.addresses().until.capacity()), (0, 0));
    }
}
