//! Names and addresses of hosts.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};

/// Returns the first address of a host.
///
/// # Errors
/// The host has none.
pub(super) fn resolve(host: &str, port: u16) -> Result<SocketAddr, String> {
    let all = (host, port).to_socket_addrs().map_err(|e| format!("Unknown remote host '{host}' ({e})"))?;
    let mut all: Vec<SocketAddr> = all.collect();
    // An IPv4 address is preferred if both kinds are offered.
    all.sort_by_key(SocketAddr::is_ipv6);
    all.into_iter().next().ok_or_else(|| format!("Unknown remote host '{host}'"))
}

/// Returns the local address of the route to `remote`, or, without a remote, the address of this machine's name.
pub(super) fn local(remote: Option<SocketAddr>) -> IpAddr {
    let towards = |remote: SocketAddr| {
        let any: SocketAddr = if remote.is_ipv6() { ([0u16; 8], 0).into() } else { ([0u8; 4], 0).into() };
        let socket = UdpSocket::bind(any).ok()?;
        // Connecting a UDP socket sends nothing: it only looks up the route.
        socket.connect(remote).ok()?;
        socket.local_addr().ok().map(|a| a.ip())
    };
    let by_name = || {
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
        resolve(name.trim(), 0).ok().map(|a| a.ip())
    };
    remote.and_then(towards).or_else(by_name).unwrap_or(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST))
}
