//! Routes of the kernel.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use strowger_server::local_address::Routes;

/// Routes of the kernel, and the interfaces at the start.
pub(crate) struct KernelRoutes {
    /// Addresses of this machine, each with the number of its interface.
    interfaces: Vec<(IpAddr, Option<u32>)>,
}

impl KernelRoutes {
    pub(crate) fn new() -> Self {
        let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
        Self { interfaces: interfaces.into_iter().map(|interface| (interface.ip(), interface.index)).collect() }
    }
}

impl Routes for KernelRoutes {
    /// Returns the local address from which a datagram to this address would leave. Connects a socket, without sending,
    /// and reads its address.
    fn source(&self, to: IpAddr) -> Option<IpAddr> {
        let any: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let socket = UdpSocket::bind(SocketAddr::new(any, 0)).ok()?;
        // Any port other than 0 serves.
        socket.connect(SocketAddr::new(to, 9)).ok()?;
        Some(socket.local_addr().ok()?.ip())
    }

    fn interface(&self, own: IpAddr) -> Option<u32> {
        self.interfaces.iter().find(|(ip, _)| *ip == own).and_then(|(_, index)| *index)
    }
}
