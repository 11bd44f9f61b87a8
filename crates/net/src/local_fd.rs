//! Stream socket of a connection, named by a number of its thread's descriptor table.

use crate::socket_option;
use libc::c_int;
use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, Type};
use std::io::{self, IoSlice};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Flags of sending: never waits, and raises no signal if the connection is broken.
const SENDING: c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;

/// Stream socket of the calling thread. A thread that has left the common descriptor table has one of its own (unshare(2), CLONE_FILES), and
/// the number of a socket means another file there, or none. So a `LocalFd` is neither `Send` nor `Sync`: the thread that has opened the socket
/// reads, writes and closes it. No call waits.
#[derive(Debug)]
pub(crate) struct LocalFd {
    fd: OwnedFd,
    of_thread: PhantomData<*const ()>,
}

const _: () = assert!(size_of::<Option<LocalFd>>() == 4);

impl AsFd for LocalFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl LocalFd {
    const fn new(fd: OwnedFd) -> Self {
        Self { fd, of_thread: PhantomData }
    }

    /// Accepts a connection. Returns its socket and the address of the peer.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if none waits at a listener that does not block; errors of accept4(2).
    pub(crate) fn accept(listener: BorrowedFd<'_>) -> io::Result<(Self, SocketAddr)> {
        let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: the kernel writes an address of at most `length` bytes and its length, or returns an error.
        let (fd, peer) = unsafe {
            SockAddr::try_init(|address, length| {
                match libc::accept4(listener.as_raw_fd(), address.cast(), length, flags) {
                    fd if fd < 0 => Err(io::Error::last_os_error()),
                    // The kernel has just returned this descriptor, and nothing else has it.
                    fd => Ok(OwnedFd::from_raw_fd(fd)),
                }
            })
        }?;
        let peer = peer.as_socket().ok_or(io::ErrorKind::Unsupported)?;
        Ok((Self::new(fd), peer))
    }

    /// Begins to connect. When the socket becomes writable, [`Self::take_error`] tells whether the connection was made. `from`: local address;
    /// with port 0 the kernel chooses the port. `reuse_address`: an earlier connection of the port that was made with this too may still be in
    /// TIME-WAIT.
    ///
    /// # Errors
    /// The address cannot be bound, or there is no way to the peer.
    pub(crate) fn connect(from: Option<SocketAddr>, reuse_address: bool, to: SocketAddr) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(to), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
        if reuse_address {
            socket.set_reuse_address(true)?;
        }
        if let Some(from) = from {
            if from.port() == 0 {
                // The kernel chooses the port when it connects: one that differs from those of connections to the same peer.
                let _ = socket_option::set(socket.as_fd(), libc::SOL_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1);
            }
            socket.bind(&from.into())?;
        }
        match socket.connect(&to.into()) {
            Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
            _ => Ok(Self::new(socket.into())),
        }
    }

    /// Takes over a socket that this thread has opened.
    pub(crate) fn from_stream(stream: TcpStream) -> Self {
        Self::new(stream.into())
    }

    /// Makes small messages leave at once: they must not wait for the acknowledgement of earlier ones (Nagle's algorithm).
    pub(crate) fn send_at_once(&self) {
        let _ = SockRef::from(self).set_tcp_nodelay(true);
    }

    /// Reads available bytes. Returns their number; 0: the peer has ended its side.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if there are none; errors of recv(2).
    pub(crate) fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        // SAFETY: the kernel writes at most as many bytes to `into` as it has.
        let length =
            unsafe { libc::recv(self.fd.as_raw_fd(), into.as_mut_ptr().cast(), into.len(), libc::MSG_DONTWAIT) };
        usize::try_from(length).map_err(|_| io::Error::last_os_error())
    }

    /// Writes as many bytes as the kernel takes. Returns their number.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if it takes none; errors of send(2).
    pub(crate) fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        SockRef::from(self).send_with_flags(bytes, SENDING)
    }

    /// Writes as many bytes of these parts as the kernel takes. Returns their number.
    ///
    /// # Errors
    /// As of [`Self::write`].
    pub(crate) fn write_vectored(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        SockRef::from(self).send_vectored_with_flags(parts, SENDING)
    }

    /// Returns the error that the kernel has noted since the last call, and clears it.
    ///
    /// # Errors
    /// Errors of getsockopt(2).
    pub(crate) fn take_error(&self) -> io::Result<Option<io::Error>> {
        SockRef::from(self).take_error()
    }

    /// Returns the number of written bytes that the system of the peer has not acknowledged, with the end of this side as one (TIOCOUTQ, tcp(7)).
    ///
    /// # Errors
    /// Errors of ioctl(2).
    pub(crate) fn unacknowledged(&self) -> io::Result<usize> {
        let mut bytes: c_int = 0;
        // SAFETY: the kernel writes one number, to our variable.
        if unsafe { libc::ioctl(self.fd.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(usize::try_from(bytes).unwrap_or(0))
    }

    /// Tells whether bytes of the peer wait to be read.
    pub(crate) fn has_unread(&self) -> bool {
        let mut byte = [MaybeUninit::uninit()];
        let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
        SockRef::from(self).recv_with_flags(&mut byte, flags).is_ok_and(|length| length > 0)
    }

    /// Ends this side of the connection; the peer may still send.
    pub(crate) fn shut_down_writing(&self) {
        // If the connection is broken, nothing is left to end.
        let _ = SockRef::from(self).shutdown(Shutdown::Write);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ready_set::ReadySet;
    use std::io::{ErrorKind, Read, Write};
    use std::net::TcpListener;
    use std::time::{Duration, Instant};

    /// `LocalFd` is not `Send` or `Sync`: if it were, the name below would be ambiguous, and this would not compile.
    const _: fn() = || {
        trait Ambiguous<A> {
            fn name() {}
        }
        impl<T> Ambiguous<u8> for T {}
        impl<T: Send> Ambiguous<u16> for T {}
        impl<T: Sync> Ambiguous<u32> for T {}
        <LocalFd as Ambiguous<_>>::name();
    };

    fn listener() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    /// Waits until data, their end or an error can be read, or a connection accepted.
    fn wait(socket: &impl AsFd) {
        let (set, mut ready) = (ReadySet::new().unwrap(), Vec::new());
        set.add(socket.as_fd(), 1).unwrap();
        set.wait(Duration::from_secs(10), &mut ready).unwrap();
        assert_eq!(ready, [1]);
    }

    fn until(what: &str, mut holds: impl FnMut() -> bool) {
        let since = Instant::now();
        while !holds() {
            assert!(since.elapsed() < Duration::from_secs(10), "{what}");
            std::thread::yield_now();
        }
    }

    /// Returns an accepted socket and its peer.
    fn pair() -> (LocalFd, TcpStream) {
        let (listener, address) = listener();
        let peer = TcpStream::connect(address).unwrap();
        wait(&listener);
        let (socket, remote) = LocalFd::accept(listener.as_fd()).unwrap();
        assert_eq!(remote, peer.local_addr().unwrap());
        (socket, peer)
    }

    fn kind<T: std::fmt::Debug>(result: io::Result<T>) -> ErrorKind {
        result.unwrap_err().kind()
    }

    #[test]
    fn an_accepted_socket_never_waits_and_is_not_inherited() {
        let (listener, address) = listener();
        assert_eq!(kind(LocalFd::accept(listener.as_fd())), ErrorKind::WouldBlock);
        let mut peer = TcpStream::connect(address).unwrap();
        wait(&listener);
        let (socket, _) = LocalFd::accept(listener.as_fd()).unwrap();
        // SAFETY: no pointer is passed.
        let flags = [libc::F_GETFL, libc::F_GETFD].map(|get| unsafe { libc::fcntl(socket.fd.as_raw_fd(), get) });
        assert_eq!([flags[0] & libc::O_NONBLOCK, flags[1]], [libc::O_NONBLOCK, libc::FD_CLOEXEC]);
        let mut bytes = [0; 8];
        assert_eq!((kind(socket.read(&mut bytes)), socket.has_unread()), (ErrorKind::WouldBlock, false));
        peer.write_all(b"question").unwrap();
        wait(&socket);
        assert!(socket.has_unread() && socket.has_unread());
        assert_eq!((socket.read(&mut bytes[..5]).unwrap(), &bytes[..5]), (5, &b"quest"[..]));
        assert_eq!((socket.read(&mut bytes).unwrap(), &bytes[..3]), (3, &b"ion"[..]));
        assert_eq!(socket.write(b"an").unwrap(), 2);
        assert_eq!(socket.write_vectored(&[IoSlice::new(b"sw"), IoSlice::new(b""), IoSlice::new(b"er")]).unwrap(), 4);
        peer.read_exact(&mut bytes[..6]).unwrap();
        assert_eq!(&bytes[..6], b"answer");
    }

    #[test]
    fn a_socket_of_the_service_never_waits_either() {
        let (listener, address) = listener();
        let socket = LocalFd::from_stream(TcpStream::connect(address).unwrap());
        assert_eq!(kind(socket.read(&mut [0; 8])), ErrorKind::WouldBlock);
        assert!(!socket.has_unread());
        wait(&listener);
        let (_peer, _) = LocalFd::accept(listener.as_fd()).unwrap();
        let block = vec![0; 1 << 20];
        until("the kernel takes all", || match socket.write(&block) {
            Ok(_) => false,
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        });
    }

    #[test]
    fn a_connection_comes_from_its_address_and_port() {
        let (listener, address) = listener();
        let accept = || {
            wait(&listener);
            LocalFd::accept(listener.as_fd()).unwrap()
        };
        let from = SocketAddr::from(([127, 0, 0, 2], 0));
        let socket = LocalFd::connect(Some(from), true, address).unwrap();
        let (peer, remote) = accept();
        assert_eq!(remote.ip(), from.ip());
        assert!(socket.take_error().unwrap().is_none());
        // This side ends first, so its port is in TIME-WAIT.
        drop(socket);
        wait(&peer);
        assert_eq!(peer.read(&mut [0; 8]).unwrap(), 0);
        drop(peer);
        let (other, other_address) = self::listener();
        let connect = |reuse_address| LocalFd::connect(Some(remote), reuse_address, other_address);
        until("TIME-WAIT", || connect(false).is_err_and(|error| error.kind() == ErrorKind::AddrInUse));
        let _socket = connect(true).unwrap();
        wait(&other);
        assert_eq!(LocalFd::accept(other.as_fd()).unwrap().1, remote);
        let any = LocalFd::connect(None, false, address).unwrap();
        assert_ne!(accept().1, remote);
        assert!(any.take_error().unwrap().is_none());
    }

    #[test]
    fn a_refused_connection_has_an_error_once() {
        let (listener, address) = listener();
        drop(listener);
        let socket = LocalFd::connect(None, false, address).unwrap();
        wait(&socket);
        assert_eq!(socket.take_error().unwrap().map(|error| error.kind()), Some(ErrorKind::ConnectionRefused));
        assert!(socket.take_error().unwrap().is_none());
        let elsewhere = SocketAddr::from(([192, 0, 2, 1], 5060));
        assert_eq!(kind(LocalFd::connect(Some(elsewhere), false, address)), ErrorKind::AddrNotAvailable);
    }

    #[test]
    fn each_side_ends_alone() {
        let (socket, mut peer) = pair();
        socket.write(b"last").unwrap();
        socket.shut_down_writing();
        socket.shut_down_writing();
        let mut bytes = Vec::new();
        peer.read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes, b"last");
        assert!(socket.write(b"more").is_err_and(|error| error.kind() == ErrorKind::BrokenPipe));
        peer.write_all(b"still").unwrap();
        peer.shutdown(Shutdown::Write).unwrap();
        wait(&socket);
        assert!(socket.has_unread());
        let mut bytes = [0; 8];
        assert_eq!(socket.read(&mut bytes).unwrap(), 5);
        wait(&socket);
        assert_eq!((socket.read(&mut bytes).unwrap(), socket.has_unread()), (0, false));
    }

    #[test]
    fn a_reset_is_an_error_of_reading() {
        let (socket, peer) = pair();
        SockRef::from(&peer).set_linger(Some(Duration::ZERO)).unwrap();
        drop(peer);
        wait(&socket);
        assert!(!socket.has_unread(), "the error is no byte");
        let (socket, peer) = pair();
        SockRef::from(&peer).set_linger(Some(Duration::ZERO)).unwrap();
        drop(peer);
        wait(&socket);
        assert_eq!(kind(socket.read(&mut [0; 8])), ErrorKind::ConnectionReset);
    }

    #[test]
    fn bytes_that_the_peer_has_not_acknowledged_are_counted() {
        let (socket, mut peer) = pair();
        assert_eq!(socket.unacknowledged().unwrap(), 0);
        let (block, mut written) = (vec![7; 1 << 20], 0);
        until("the kernel takes all", || match socket.write(&block) {
            Ok(length) => {
                written += length;
                false
            }
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        });
        let waiting = socket.unacknowledged().unwrap();
        assert!(waiting > 0 && waiting < written, "{waiting} of {written}");
        peer.set_nonblocking(true).unwrap();
        let mut bytes = vec![0; 1 << 20];
        until("bytes remain unacknowledged", || {
            while peer.read(&mut bytes).is_ok_and(|length| length > 0) {}
            socket.unacknowledged().unwrap() == 0
        });
        let reader = std::thread::spawn(move || {
            peer.set_nonblocking(false).unwrap();
            peer.read_to_end(&mut Vec::new()).unwrap();
        });
        socket.shut_down_writing();
        reader.join().unwrap();
        until("the end is acknowledged", || socket.unacknowledged().unwrap() == 0);
    }
}
