//! Ports of loopback that no program uses.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};

/// Below the ports that Linux gives to clients, so that no connection made meanwhile takes one.
const FIRST: u32 = 12_000;
const COUNT: u32 = 20_000;

static NEXT: AtomicU32 = AtomicU32::new(u32::MAX);

/// A port of 127.0.0.1 that is free for UDP and TCP, and that this process was not given before.
///
/// # Panics
/// There is none.
pub fn free() -> u16 {
    next(&NEXT, FIRST, COUNT, 1)
}

/// The same of an address of this machine.
///
/// # Panics
/// There is none.
pub fn free_at(ip: IpAddr) -> u16 {
    loop {
        let port = free();
        if is_free_at(ip, port) {
            return port;
        }
    }
}

/// The first of two that follow each other, for programs that take the port behind their own.
///
/// # Panics
/// There is none.
pub fn pair() -> u16 {
    next(&NEXT, FIRST, COUNT, 2)
}

/// The same of four digits, 9000 to 9899, for programs that write no more.
///
/// # Panics
/// There is none.
pub fn short() -> u16 {
    static SHORT: AtomicU32 = AtomicU32::new(u32::MAX);
    next(&SHORT, 9_000, 900, 1)
}

/// The first of `wanted` ports that follow each other.
fn next(next: &AtomicU32, first: u32, count: u32, wanted: u32) -> u16 {
    // Test programs that run side by side start in different places.
    let start = std::process::id().wrapping_mul(97) % count;
    let _ = next.compare_exchange(u32::MAX, start, Ordering::Relaxed, Ordering::Relaxed);
    for _ in 0..count {
        let port = (first + next.fetch_add(wanted, Ordering::Relaxed) % count) as u16;
        if (port..port + wanted as u16).all(is_free) {
            return port;
        }
    }
    panic!("no port of 127.0.0.1 is free");
}

/// Tells whether no program has this port of 127.0.0.1, by UDP or TCP.
pub(crate) fn is_free(port: u16) -> bool {
    is_free_at(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

/// Tells whether no program has this port of an address of this machine, by UDP or TCP.
pub(crate) fn is_free_at(ip: IpAddr, port: u16) -> bool {
    let address = SocketAddr::new(ip, port);
    UdpSocket::bind(address).is_ok() && TcpListener::bind(address).is_ok()
}

/// 127.0.0.1 with a free port.
pub fn free_address() -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), free())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_port_is_given_twice_when_several_threads_ask() {
        let some = || {
            let pairs = (0..50).map(|_| pair()).flat_map(|port| [port, port + 1]);
            pairs.chain((0..50).map(|_| free())).collect::<Vec<u16>>()
        };
        let given: Vec<u16> = std::thread::scope(|scope| {
            let askers: Vec<_> = (0..4).map(|_| scope.spawn(some)).collect();
            askers.into_iter().flat_map(|asker| asker.join().expect("there are ports")).collect()
        });
        assert_eq!(given.iter().collect::<BTreeSet<_>>().len(), given.len());
    }
}
