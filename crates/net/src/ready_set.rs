//! Sockets of which a thread outside the shards reads whichever has something: media of single calls.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// Maximum number of sockets reported at once.
const EVENTS: usize = 64;

/// An `epoll` instance. Any thread may add and remove sockets while another waits.
#[derive(Debug)]
pub struct ReadySet {
    epoll: OwnedFd,
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
        Ok(Self { epoll: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    /// Adds a socket under a name.
    ///
    /// # Errors
    /// The socket is in the set, or the kernel has no room for one more.
    pub fn add(&self, socket: BorrowedFd<'_>, name: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, socket, name)
    }

    /// Removes a socket; one that is not in the set is ignored.
    pub fn remove(&self, socket: BorrowedFd<'_>) {
        let _ = self.control(libc::EPOLL_CTL_DEL, socket, 0);
    }

    fn control(&self, operation: libc::c_int, socket: BorrowedFd<'_>, name: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: name };
        // SAFETY: the kernel reads our own variable and writes nothing; a descriptor that is none is an error.
        let result = unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), operation, socket.as_raw_fd(), &raw mut event) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Waits for readable sockets, at most for `limit`, and appends their names. A socket is reported again until it is empty.
    ///
    /// # Errors
    /// Errors of the system call.
    pub fn wait(&self, limit: Duration, names: &mut Vec<u64>) -> io::Result<()> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS];
        let limit = libc::c_int::try_from(limit.as_millis()).unwrap_or(libc::c_int::MAX);
        // SAFETY: the kernel writes at most EVENTS events to our own array of as many.
        let n = unsafe {
            libc::epoll_wait(self.epoll.as_raw_fd(), events.as_mut_ptr(), EVENTS as libc::c_int, limit)
        };
        match usize::try_from(n) {
            Ok(n) => names.extend(events[..n].iter().map(|event| event.u64)),
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
        Ok(())
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
