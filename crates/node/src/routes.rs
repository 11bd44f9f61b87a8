//! What the kernel knows of the ways out of this machine.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use strowger_server::local_address::Routes;

/// The routes of the kernel, and the interfaces as they were at the start.
pub(crate) struct KernelRoutes {
    /// Of each address of this machine, the number of its interface.
    interfaces: Vec<(IpAddr, Option<u32>)>,
}

impl KernelRoutes {
    pub(crate) fn new() -> Self {
        let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
        Self { interfaces: interfaces.into_iter().map(|interface| (interface.ip(), interface.index)).collect() }
    }
}

impl Routes for KernelRoutes {
    /// Nothing is sent: a socket is connected, and tells its address.
    fn source(&self, to: IpAddr) -> Option<IpAddr> {
        let any: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let socket = UdpSocket::bind(SocketAddr::new(any, 0)).ok()?;
        // Any port but 0 will do.
        socket.connect(SocketAddr::new(to, 9)).ok()?;
        Some(socket.local_addr().ok()?.ip())
    }

    fn interface(&self, own: IpAddr) -> Option<u32> {
        self.interfaces.iter().find(|(ip, _)| *ip == own).and_then(|(_, index)| *index)
    }
}
