//! Sockets of which a thread outside the shards reads whichever has something: media of single calls.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use crate::epoll::{Epoll, NO_EVENT};

/// Maximum number of sockets reported at once.
const EVENTS: usize = 64;

/// Set of sockets that are watched for reading. Any thread may add and remove sockets while another waits.
#[derive(Debug)]
pub struct ReadySet {
    epoll: Epoll,
}

impl ReadySet {
    /// Creates an empty set.
    ///
    /// # Errors
    /// The process is out of descriptors or memory.
    pub fn new() -> io::Result<Self> {
        Ok(Self { epoll: Epoll::new()? })
    }

    /// Adds a socket under a name.
    ///
    /// # Errors
    /// The socket is in the set, or the kernel has no room for one more.
    pub fn add(&self, socket: BorrowedFd<'_>, name: u64) -> io::Result<()> {
        self.epoll.add(socket, name)
    }

    /// Removes a socket; one that is not in the set is ignored.
    pub fn remove(&self, socket: BorrowedFd<'_>) {
        let _ = self.epoll.remove(socket);
    }

    /// Waits for readable sockets, at most for `limit`, and appends their names. A socket is reported again until it is empty.
    ///
    /// # Errors
    /// Errors of the system call.
    pub fn wait(&self, limit: Duration, names: &mut Vec<u64>) -> io::Result<()> {
        let mut events = [NO_EVENT; EVENTS];
        let limit = i32::try_from(limit.as_millis()).unwrap_or(i32::MAX);
        let ready = match self.epoll.wait(&mut events, limit) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            found => found?,
        };
        names.extend(events[..ready].iter().map(|event| event.u64));
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
