//! Many sockets under one descriptor: a shard asks which of them are ready, instead of asking each.

pub(crate) use crate::ready_set::Wanted;
use crate::ready_set::{NO_EVENT, ReadySet};
use std::io;
use std::os::fd::BorrowedFd;
use std::task::{Context, Poll};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Maximum number of sockets reported at once.
pub(crate) const EVENTS: usize = 256;

/// Set of sockets, itself watched by the runtime of its shard.
pub(crate) struct Readiness {
    watched: AsyncFd<ReadySet>,
    events: Box<[libc::epoll_event; EVENTS]>,
}

/// A ready socket, by its given name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ready {
    pub(crate) name: u64,
    pub(crate) writable: bool,
    /// True if the socket has an error.
    pub(crate) failed: bool,
}

impl Readiness {
    /// Creates the instance, inside the runtime of its shard.
    ///
    /// # Errors
    /// The process is out of descriptors or memory.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { watched: watched()?, events: Box::new([NO_EVENT; EVENTS]) })
    }

    /// Watches a socket. The kernel forgets it when its last descriptor is closed.
    ///
    /// # Errors
    /// The kernel has no room for one more.
    pub(crate) fn add(&self, socket: BorrowedFd<'_>, name: u64) -> io::Result<()> {
        self.watched.get_ref().add(socket, name)
    }

    /// Changes the watched events of a socket.
    ///
    /// # Errors
    /// Errors of the system call.
    pub(crate) fn change(&self, socket: BorrowedFd<'_>, name: u64, wanted: Wanted) -> io::Result<()> {
        self.watched.get_ref().change(socket, name, wanted)
    }

    /// Appends the ready sockets. Returns whether there may be more; otherwise `cx` is woken when there are more.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, ready: &mut Vec<Ready>) -> bool {
        let Poll::Ready(Ok(mut guard)) = self.watched.poll_read_ready(cx) else { return false };
        let events = &mut self.events;
        let found = guard.try_io(|watched| match watched.get_ref().wait_events(&mut events[..], 0)? {
            // The next event makes the descriptor readable again.
            0 => Err(io::ErrorKind::WouldBlock.into()),
            n => Ok(n),
        });
        match found {
            Ok(Ok(n)) => {
                ready.extend(self.events[..n].iter().map(|event| Ready {
                    name: event.u64,
                    writable: has(event, libc::EPOLLOUT),
                    failed: has(event, libc::EPOLLERR),
                }));
                true
            }
            // Interrupted: try again.
            Ok(Err(_)) => true,
            // Registers for the next wake-up.
            Err(_) => self.watched.poll_read_ready(cx).is_ready(),
        }
    }
}

/// Creates an empty set that is watched by the runtime of the calling thread.
///
/// # Errors
/// The process is out of descriptors or memory.
pub(crate) fn watched() -> io::Result<AsyncFd<ReadySet>> {
    let set = ReadySet::new()?;
    // SAFETY: a `ReadySet` names the same descriptor each time and closes it only when it is dropped, which
    // `AsyncFd` does after it has ended the watch.
    let watched = unsafe { AsyncFd::register_with_interest(set, Interest::READABLE) };
    watched.map_err(io::Error::from)
}

/// Tells whether one of these events has come.
pub(crate) const fn has(event: &libc::epoll_event, what: libc::c_int) -> bool {
    event.events & what as u32 != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;
    use std::time::Duration;

    async fn wait(readiness: &mut Readiness) -> Vec<Ready> {
        let mut ready = Vec::new();
        let wait = std::future::poll_fn(|cx| {
            let more = readiness.poll(cx, &mut ready);
            if more || !ready.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        });
        let _ = tokio::time::timeout(Duration::from_secs(2), wait).await;
        ready
    }

    #[tokio::test]
    async fn it_says_which_socket_has_something_and_wakes_for_it() {
        let [a, b, c] = [0; 3].map(|_| UdpSocket::bind("127.0.0.1:0").unwrap());
        let mut readiness = Readiness::new().unwrap();
        readiness.add(a.as_fd(), 1).unwrap();
        readiness.add(b.as_fd(), 1 << 40).unwrap();
        c.send_to(b"x", b.local_addr().unwrap()).unwrap();
        assert_eq!(wait(&mut readiness).await, [Ready { name: 1 << 40, writable: false, failed: false }]);
        b.recv(&mut [0; 8]).unwrap();
        let mut none = Vec::new();
        std::future::poll_fn(|cx| {
            while readiness.poll(cx, &mut none) {}
            Poll::Ready(())
        })
        .await;
        assert!(none.is_empty());
        // Sleeps until a datagram arrives.
        let to = a.local_addr().unwrap();
        let later = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            c.send_to(b"x", to).unwrap();
        });
        assert_eq!(wait(&mut readiness).await, [Ready { name: 1, writable: false, failed: false }]);
        later.join().unwrap();
        readiness.change(b.as_fd(), 7, Wanted::Both).unwrap();
        drop(a);
        assert_eq!(wait(&mut readiness).await, [Ready { name: 7, writable: true, failed: false }]);
    }
}
