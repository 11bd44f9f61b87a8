//! Sockets of listeners: opened here, or already open when the process began (socket activation).

use crate::{BACKLOG, NetSettings, steer, udp};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use strowger_core::Transport;

/// An open socket, bound to the address of a listener: see [`Net::with_sockets`](crate::Net::with_sockets).
#[derive(Debug)]
pub enum ListenSocket {
    /// Socket of a listener for datagrams.
    Udp(UdpSocket),
    /// Socket of a listener for streams: TCP, TLS, WS or WSS.
    Tcp(TcpListener),
}

impl TryFrom<OwnedFd> for ListenSocket {
    type Error = io::Error;

    /// # Errors
    /// [`ErrorKind::InvalidInput`]: the descriptor is no IP socket for datagrams or streams.
    fn try_from(descriptor: OwnedFd) -> io::Result<Self> {
        let socket = Socket::from(descriptor);
        let refused = || io::Error::new(ErrorKind::InvalidInput, "the descriptor is no UDP or TCP socket");
        if socket.local_addr().ok().and_then(|address| address.as_socket()).is_none() {
            return Err(refused());
        }
        match socket.r#type()? {
            Type::DGRAM => Ok(Self::Udp(socket.into())),
            Type::STREAM => Ok(Self::Tcp(socket.into())),
            _ => Err(refused()),
        }
    }
}

impl fmt::Display for ListenSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if matches!(self, Self::Udp(_)) { "udp" } else { "tcp" };
        match self.address() {
            Ok(address) => write!(f, "{kind}:{address}"),
            Err(error) => write!(f, "{kind} ({error})"),
        }
    }
}

impl AsFd for ListenSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Udp(socket) => socket.as_fd(),
            Self::Tcp(socket) => socket.as_fd(),
        }
    }
}

impl ListenSocket {
    /// Returns the bound address.
    ///
    /// # Errors
    /// Errors of getsockname(2).
    pub fn address(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Udp(socket) => socket.local_addr(),
            Self::Tcp(socket) => socket.local_addr(),
        }
    }

    /// Opens a socket. `reuse_port`: other sockets of this process will be bound to the same address.
    pub(crate) fn open(
        transport: Transport,
        address: SocketAddr,
        reuse_port: bool,
        settings: &NetSettings,
    ) -> io::Result<Self> {
        match transport {
            Transport::Udp => udp::bind(address, reuse_port, settings).map(Self::Udp),
            _ => listen(address, reuse_port).map(Self::Tcp),
        }
    }

    /// Tells whether this is the socket of such a listener.
    pub(crate) fn serves(&self, transport: Transport, address: SocketAddr) -> bool {
        matches!(self, Self::Udp(_)) == (transport == Transport::Udp) && self.address().is_ok_and(|a| a == address)
    }

    /// Configures a socket that was opened elsewhere like a socket that was opened here. Linux lets sockets join the
    /// group of a socket that was bound without SO_REUSEPORT and has this option now.
    pub(crate) fn adopt(&self, reuse_port: bool, settings: &NetSettings) -> io::Result<()> {
        let (address, socket) = (self.address()?, SockRef::from(self));
        if address.is_ipv6() && !socket.only_v6()? {
            let words = "the socket takes IPv4 too: it must have IPV6_V6ONLY (systemd: BindIPv6Only=ipv6-only)";
            return Err(io::Error::new(ErrorKind::InvalidInput, words));
        }
        socket.set_nonblocking(true)?;
        if reuse_port {
            socket.set_reuse_port(true)?;
        }
        match self {
            Self::Udp(_) => udp::prepare(&socket, address, settings),
            Self::Tcp(_) => begin_listening(&socket),
        }
    }

    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Udp(socket) => Self::Udp(socket.try_clone()?),
            Self::Tcp(socket) => Self::Tcp(socket.try_clone()?),
        })
    }

    /// Attaches a filter to the group of sockets that this one belongs to.
    pub(crate) fn attach(&self, program: &[libc::sock_filter]) -> io::Result<()> {
        steer::attach(self.as_fd(), program)
    }
}

/// Opens the socket of a listener. `reuse_port`: as in [`udp::bind`].
fn listen(address: SocketAddr, reuse_port: bool) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    if reuse_port {
        socket.set_reuse_port(true)?;
    }
    socket.bind(&address.into())?;
    begin_listening(&socket)?;
    Ok(socket.into())
}

/// Makes the kernel accept connections on a bound socket.
fn begin_listening(socket: &Socket) -> io::Result<()> {
    socket.listen(BACKLOG)
}

/// Origin of a shard's socket of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Opened by the shard.
    Opened,
    /// Socket of the first shard, already open when the process began.
    Inherited,
    /// Socket of the first shard, shared because no other could be bound to its address, for example if it belongs to another user. Only the first
    /// shard reads its datagrams, or those of a call would be reordered.
    Duplicate,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixDatagram;

    #[test]
    fn a_descriptor_tells_what_it_is() {
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let (udp_address, tcp_address) = (udp.local_addr().unwrap(), tcp.local_addr().unwrap());
        let socket = ListenSocket::try_from(OwnedFd::from(udp)).unwrap();
        assert_eq!(socket.to_string(), format!("udp:{udp_address}"));
        assert!(socket.serves(Transport::Udp, udp_address) && !socket.serves(Transport::Tls, udp_address));
        let socket = ListenSocket::try_from(OwnedFd::from(tcp)).unwrap();
        assert!(socket.serves(Transport::Wss, tcp_address) && !socket.serves(Transport::Udp, tcp_address));
        for other in [OwnedFd::from(UnixDatagram::unbound().unwrap()), OwnedFd::from(tempfile::tempfile().unwrap())] {
            assert_eq!(ListenSocket::try_from(other).unwrap_err().kind(), ErrorKind::InvalidInput);
        }
    }

    #[test]
    fn a_socket_for_both_families_is_refused() {
        let socket = Socket::new(Domain::IPV6, Type::DGRAM, None).unwrap();
        socket.set_only_v6(false).unwrap();
        socket.bind(&SocketAddr::from(([0; 8], 0)).into()).unwrap();
        let error = ListenSocket::Udp(socket.into()).adopt(false, &NetSettings::default()).unwrap_err();
        assert!(error.to_string().contains("IPV6_V6ONLY"), "{error}");
    }
}
