//! Set of sockets that are watched for reading by one `epoll` instance (epoll(7)): the kernel says which of them are ready, instead of being asked
//! for each.

use libc::{c_int, epoll_event};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// Maximum number of sockets that [`ReadySet::wait`] reports at once.
const EVENTS: usize = 64;

/// Initial entry of a list of events.
pub(crate) const NO_EVENT: epoll_event = epoll_event { events: 0, u64: 0 };

/// Events to watch for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Reading,
    /// Reading and writing.
    Both,
    /// Reading, writing and the end of the peer's side, each reported once when it comes (`EPOLLET`, epoll(7)).
    Edges,
}

/// Set of sockets that are watched. Any thread may add and remove sockets while another waits.
#[derive(Debug)]
pub struct ReadySet {
    fd: OwnedFd,
}

impl AsRawFd for ReadySet {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl ReadySet {
    /// Creates an empty set.
    ///
    /// # Errors
    /// The process is out of descriptors or memory.
    pub fn new() -> io::Result<Self> {
        // SAFETY: no pointer is passed.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just returned this descriptor, and nothing else has it.
        Ok(Self { fd: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    /// Adds a socket under a name, to be watched for reading. The kernel forgets it when its last descriptor is closed.
    ///
    /// # Errors
    /// The socket is in the set, or the kernel has no room for one more.
    pub fn add(&self, socket: BorrowedFd<'_>, name: u64) -> io::Result<()> {
        self.add_for(socket, name, Wanted::Reading)
    }

    /// Adds a socket under a name, to be watched for these events.
    ///
    /// # Errors
    /// As of [`Self::add`].
    pub(crate) fn add_for(&self, socket: BorrowedFd<'_>, name: u64, wanted: Wanted) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, socket, name, wanted)
    }

    /// Removes a socket; one that is not in the set is ignored.
    pub fn remove(&self, socket: BorrowedFd<'_>) {
        let _ = self.control(libc::EPOLL_CTL_DEL, socket, 0, Wanted::Reading);
    }

    /// Changes the watched events of a socket.
    ///
    /// # Errors
    /// Errors of the system call.
    pub(crate) fn change(&self, socket: BorrowedFd<'_>, name: u64, wanted: Wanted) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, socket, name, wanted)
    }

    fn control(&self, operation: c_int, socket: BorrowedFd<'_>, name: u64, wanted: Wanted) -> io::Result<()> {
        let events = match wanted {
            Wanted::Reading => libc::EPOLLIN,
            Wanted::Both => libc::EPOLLIN | libc::EPOLLOUT,
            Wanted::Edges => libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET,
        };
        let mut event = epoll_event { events: events as u32, u64: name };
        // SAFETY: the kernel reads our own variable and writes nothing; a descriptor that is none is an error.
        let result = unsafe { libc::epoll_ctl(self.as_raw_fd(), operation, socket.as_raw_fd(), &mut event) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Waits for readable sockets, at most for `limit`, and appends their names. A socket is reported again until it is empty.
    ///
    /// # Errors
    /// Errors of the system call.
    pub fn wait(&self, limit: Duration, names: &mut Vec<u64>) -> io::Result<()> {
        let mut events = [NO_EVENT; EVENTS];
        let limit = c_int::try_from(limit.as_millis()).unwrap_or(c_int::MAX);
        let ready = match self.wait_events(&mut events, limit) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            found => found?,
        };
        names.extend(events[..ready].iter().map(|event| event.u64));
        Ok(())
    }

    /// Waits for events, at most `timeout` milliseconds: 0 not at all, -1 without end. Returns their number.
    ///
    /// # Errors
    /// [`io::ErrorKind::Interrupted`] by a signal.
    pub(crate) fn wait_events(&self, events: &mut [epoll_event], timeout: c_int) -> io::Result<usize> {
        let most = c_int::try_from(events.len()).unwrap_or(c_int::MAX);
        // SAFETY: the kernel writes at most as many events to our own list as it has.
        let n = unsafe { libc::epoll_wait(self.as_raw_fd(), events.as_mut_ptr(), most, timeout) };
        usize::try_from(n).map_err(|_| io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    #[test]
    fn readable_sockets_are_named_until_they_are_empty() {
        let sockets = [0; 2].map(|_| UdpSocket::bind("127.0.0.1:0").unwrap());
        let set = ReadySet::new().unwrap();
        for (name, socket) in sockets.iter().enumerate() {
            set.add(socket.as_fd(), name as u64 + 7).unwrap();
        }
        assert!(set.add(sockets[0].as_fd(), 9).is_err());
        let ready = |limit: u64| {
            let mut names = Vec::new();
            set.wait(Duration::from_millis(limit), &mut names).unwrap();
            names
        };
        assert!(ready(0).is_empty());
        sockets[0].send_to(b"x", sockets[1].local_addr().unwrap()).unwrap();
        assert_eq!((ready(5_000), ready(0)), (vec![8], vec![8]));
        sockets[1].recv_from(&mut [0; 9]).unwrap();
        assert!(ready(0).is_empty());
        sockets[0].send_to(b"y", sockets[1].local_addr().unwrap()).unwrap();
        set.remove(sockets[1].as_fd());
        set.remove(sockets[1].as_fd());
        assert!(ready(0).is_empty());
    }
}
