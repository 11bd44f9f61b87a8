//! `epoll` instance (epoll(7)): asks the kernel which of many sockets are ready, instead of asking each.

use libc::{c_int, epoll_event};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Entry of a list that is empty yet.
pub(crate) const NO_EVENT: epoll_event = epoll_event { events: 0, u64: 0 };

/// Events to watch for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Reading,
    /// Reading and writing.
    Both,
}

/// `epoll` instance.
#[derive(Debug)]
pub(crate) struct Epoll {
    fd: OwnedFd,
}

impl AsRawFd for Epoll {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl Epoll {
    /// Creates the instance.
    ///
    /// # Errors
    /// The process is out of descriptors or memory.
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: no pointer is passed.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just returned this descriptor, and nothing else has it.
        Ok(Self { fd: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    /// Watches a socket. The kernel forgets it when its last descriptor is closed.
    ///
    /// # Errors
    /// The kernel has no room for one more.
    pub(crate) fn add(&self, socket: BorrowedFd<'_>, name: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, socket, name, Wanted::Reading)
    }

    /// Changes the watched events of a socket.
    ///
    /// # Errors
    /// Errors of the system call.
    pub(crate) fn change(&self, socket: BorrowedFd<'_>, name: u64, wanted: Wanted) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, socket, name, wanted)
    }

    /// Watches a socket no longer.
    ///
    /// # Errors
    /// The socket is not watched.
    pub(crate) fn remove(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_DEL, socket, 0, Wanted::Reading)
    }

    fn control(&self, operation: c_int, socket: BorrowedFd<'_>, name: u64, wanted: Wanted) -> io::Result<()> {
        let events = match wanted {
            Wanted::Reading => libc::EPOLLIN,
            Wanted::Both => libc::EPOLLIN | libc::EPOLLOUT,
        };
        let mut event = epoll_event { events: events as u32, u64: name };
        // SAFETY: the kernel reads our own variable and writes nothing; a descriptor that is none is an error.
        let result = unsafe { libc::epoll_ctl(self.as_raw_fd(), operation, socket.as_raw_fd(), &mut event) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Waits for events, at most `timeout` milliseconds: 0 not at all, -1 without end. Returns their number.
    ///
    /// # Errors
    /// [`io::ErrorKind::Interrupted`] by a signal.
    pub(crate) fn wait(&self, events: &mut [epoll_event], timeout: c_int) -> io::Result<usize> {
        let most = c_int::try_from(events.len()).unwrap_or(c_int::MAX);
        // SAFETY: the kernel writes at most as many events to our own list as it has.
        let n = unsafe { libc::epoll_wait(self.as_raw_fd(), events.as_mut_ptr(), most, timeout) };
        usize::try_from(n).map_err(|_| io::Error::last_os_error())
    }
}
