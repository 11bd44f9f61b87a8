//! Ports of loopback that nobody uses.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};

/// Below the ports that Linux gives to clients, so that no connection made meanwhile takes one.
const FIRST: u32 = 12_000;
const COUNT: u32 = 20_000;

/// A port of 127.0.0.1 that is free for UDP and TCP, and that this process was not given before.
///
/// # Panics
/// There is none.
pub fn free() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(u32::MAX);
    next(&NEXT, FIRST, COUNT)
}

/// The same of four digits, for programs that write no more.
///
/// # Panics
/// There is none.
pub fn short() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(u32::MAX);
    next(&NEXT, 5_100, 4_800)
}

fn next(next: &AtomicU32, first: u32, count: u32) -> u16 {
    // Test programs that run side by side start in different places.
    let start = std::process::id().wrapping_mul(97) % count;
    let _ = next.compare_exchange(u32::MAX, start, Ordering::Relaxed, Ordering::Relaxed);
    for _ in 0..count {
        let port = (first + next.fetch_add(1, Ordering::Relaxed) % count) as u16;
        let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
        if UdpSocket::bind(address).is_ok() && TcpListener::bind(address).is_ok() {
            return port;
        }
    }
    panic!("no port of 127.0.0.1 is free");
}

/// 127.0.0.1 with a free port.
pub fn free_address() -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), free())
}
