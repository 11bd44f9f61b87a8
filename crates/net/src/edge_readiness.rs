//! Many stream sockets under one descriptor. The kernel reports each event once, so a shard changes no watch while a connection lives.

use crate::readiness::{EVENTS, Wanted, has, watched};
use crate::ready_set::{NO_EVENT, ReadySet};
use std::io;
use std::os::fd::BorrowedFd;
use std::task::{Context, Poll};
use tokio::io::unix::AsyncFd;

/// Bits of a slot in a [`Token`].
const SLOT: u32 = (1 << 30) - 1;

/// Kind of a socket in an [`EdgeReadiness`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchedKind {
    Connection,
    /// Listener that accepts connections.
    Acceptor,
}

/// Name of a socket in an [`EdgeReadiness`]: generation (32 bits), kind (2 bits), slot (30 bits). Many events are fetched at once, and the
/// first of them may end a connection whose slot is used again before the last is handled: then the generation of the slot differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token(pub(crate) u64);

impl Token {
    /// Returns the token of a connection. `slot`: less than 2^30.
    pub(crate) const fn connection(slot: u32, generation: u32) -> Self {
        Self((generation as u64) << 32 | (slot & SLOT) as u64)
    }

    /// Returns the token of a listener with this index.
    pub(crate) const fn acceptor(index: u32) -> Self {
        Self(1 << 30 | (index & SLOT) as u64)
    }

    pub(crate) const fn kind(self) -> WatchedKind {
        if self.0 >> 30 & 3 == 0 { WatchedKind::Connection } else { WatchedKind::Acceptor }
    }

    /// Returns the slot of a connection, or the index of a listener.
    pub(crate) const fn slot(self) -> u32 {
        self.0 as u32 & SLOT
    }

    pub(crate) const fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// Events of a socket since its last report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Edge {
    /// True if data or connections have arrived, or the end of data.
    pub(crate) readable: bool,
    /// True if the socket takes data after it took none, or is connected.
    pub(crate) writable: bool,
    /// True if the peer has ended its side or the connection is broken. Data may still be before the end: the caller reads until the end or an
    /// error, since no further event reports it.
    pub(crate) read_closed: bool,
    /// True if the socket has an error.
    pub(crate) failed: bool,
}

/// Set of stream sockets, itself watched by the runtime of its shard. Each event is reported once, when it comes (`EPOLLET`, epoll(7)). So the
/// caller reads a reported socket until it is empty, and writes until it takes no more. A socket needs no system call after it was added, also if
/// it is not read for a while. The kernel forgets a socket when its last descriptor is closed, so nothing may duplicate it.
pub(crate) struct EdgeReadiness {
    watched: AsyncFd<ReadySet>,
    events: Box<[libc::epoll_event; EVENTS]>,
}

impl EdgeReadiness {
    /// Creates the instance, inside the runtime of its shard.
    ///
    /// # Errors
    /// The process is out of descriptors or memory.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { watched: watched()?, events: Box::new([NO_EVENT; EVENTS]) })
    }

    /// Watches a socket. Data that have arrived before are reported too.
    ///
    /// # Errors
    /// The kernel has no room for one more.
    pub(crate) fn add(&self, socket: BorrowedFd<'_>, token: Token) -> io::Result<()> {
        self.watched.get_ref().add_for(socket, token.0, Wanted::Edges)
    }

    /// Calls `each` with the events that have come, at most [`EVENTS`]. Returns whether there may be more; otherwise `cx` is woken when there are
    /// more.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, mut each: impl FnMut(Token, Edge)) -> bool {
        let Poll::Ready(Ok(mut guard)) = self.watched.poll_read_ready(cx) else { return false };
        let found = guard.get_inner().wait_events(&mut self.events[..], 0);
        // Interrupted: try again.
        let Ok(found) = found else { return true };
        let is_full = found == EVENTS;
        if !is_full {
            // The kernel had no more. The next event makes the descriptor readable again, and the runtime of this thread learns of it later.
            guard.clear_ready();
        }
        for event in &self.events[..found] {
            let edge = Edge {
                readable: has(event, libc::EPOLLIN),
                writable: has(event, libc::EPOLLOUT),
                read_closed: has(event, libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR),
                failed: has(event, libc::EPOLLERR),
            };
            each(Token(event.u64), edge);
        }
        // Registers for the next wake-up.
        is_full || self.watched.poll_read_ready(cx).is_ready()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use socket2::SockRef;
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::time::Duration;

    const NONE: Edge = Edge { readable: false, writable: false, read_closed: false, failed: false };
    const NEW: Edge = Edge { writable: true, ..NONE };
    const DATA: Edge = Edge { readable: true, ..NEW };
    const END: Edge = Edge { read_closed: true, ..DATA };

    /// Polls until there are no more events. Two lists hold those of any test.
    fn fetch(readiness: &mut EdgeReadiness, cx: &mut Context<'_>, mut each: impl FnMut(Token, Edge)) {
        let polls = (0..5).take_while(|_| readiness.poll(cx, &mut each)).count();
        assert!(polls < 5, "the shard would never sleep");
    }

    /// Returns the events that have come, without waiting for more.
    async fn edges(readiness: &mut EdgeReadiness) -> Vec<(u32, Edge)> {
        let mut found = Vec::new();
        let poll = std::future::poll_fn(|cx| {
            fetch(readiness, cx, |token, edge| found.push((token.slot(), edge)));
            Poll::Ready(())
        });
        poll.await;
        found
    }

    /// Waits for the next events. `meanwhile` runs when the instance has found none and waits to be woken.
    async fn next_edges(readiness: &mut EdgeReadiness, meanwhile: impl FnOnce()) -> Vec<(u32, Edge)> {
        let (mut found, mut meanwhile) = (Vec::new(), Some(meanwhile));
        let wait = std::future::poll_fn(|cx| {
            fetch(readiness, cx, |token, edge| found.push((token.slot(), edge)));
            match meanwhile.take() {
                _ if !found.is_empty() => Poll::Ready(()),
                Some(meanwhile) => {
                    meanwhile();
                    Poll::Pending
                }
                None => Poll::Pending,
            }
        });
        tokio::time::timeout(Duration::from_secs(10), wait).await.expect("an event");
        found
    }

    /// Returns watched sockets in the slots from 0, and their peers.
    fn connections(readiness: &EdgeReadiness, n: u32) -> Vec<(TcpStream, TcpStream)> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connection = |slot| {
            let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (socket, _) = listener.accept().unwrap();
            socket.set_nonblocking(true).unwrap();
            readiness.add(socket.as_fd(), Token::connection(slot, 9)).unwrap();
            (socket, peer)
        };
        (0..n).map(connection).collect()
    }

    #[test]
    fn a_token_names_a_connection_of_one_generation_or_a_listener() {
        for (slot, generation) in [(0, 0), (7, u32::MAX), (SLOT, 1), (SLOT - 1, 1 << 31)] {
            let token = Token::connection(slot, generation);
            let parts = (token.kind(), token.slot(), token.generation());
            assert_eq!(parts, (WatchedKind::Connection, slot, generation));
        }
        let token = Token::acceptor(5);
        assert_eq!((token.kind(), token.slot()), (WatchedKind::Acceptor, 5));
    }

    #[tokio::test]
    async fn each_arrival_is_reported_once() {
        let mut readiness = EdgeReadiness::new().unwrap();
        let mut sockets = connections(&readiness, 2);
        let mut new = next_edges(&mut readiness, || ()).await;
        new.sort_by_key(|(slot, _)| *slot);
        assert_eq!(new, [(0, NEW), (1, NEW)], "they take data");
        assert!(edges(&mut readiness).await.is_empty());
        let peer = &mut sockets[1].1;
        assert_eq!(next_edges(&mut readiness, || peer.write_all(b"one").unwrap()).await, [(1, DATA)]);
        assert!(edges(&mut readiness).await.is_empty(), "it was reported, and is not read yet");
        assert_eq!(next_edges(&mut readiness, || peer.write_all(b"two").unwrap()).await, [(1, DATA)]);
        let mut bytes = [0; 8];
        assert_eq!(sockets[1].0.read(&mut bytes).unwrap(), 6);
        assert!(edges(&mut readiness).await.is_empty());
        // The kernel forgets a closed socket.
        sockets.remove(1);
        let peer = &mut sockets[0].1;
        assert_eq!(next_edges(&mut readiness, || peer.write_all(b"three").unwrap()).await, [(0, DATA)]);
    }

    #[tokio::test]
    async fn the_end_behind_data_is_reported_with_them() {
        let mut readiness = EdgeReadiness::new().unwrap();
        let mut sockets = connections(&readiness, 1);
        next_edges(&mut readiness, || ()).await;
        let (socket, peer) = &mut sockets[0];
        peer.write_all(b"data").unwrap();
        peer.shutdown(Shutdown::Write).unwrap();
        let mut found = Vec::new();
        // The data and the end may be two events.
        while !found.contains(&(0, END)) {
            found.extend(next_edges(&mut readiness, || ()).await);
            assert!(found.len() < 3, "{found:?}");
        }
        // A short read is no sign that nothing follows.
        let mut bytes = [0; 100];
        assert_eq!((socket.read(&mut bytes).unwrap(), socket.read(&mut bytes).unwrap()), (4, 0));
        assert!(edges(&mut readiness).await.is_empty());
    }

    #[tokio::test]
    async fn a_broken_connection_has_failed() {
        let mut readiness = EdgeReadiness::new().unwrap();
        let mut sockets = connections(&readiness, 1);
        next_edges(&mut readiness, || ()).await;
        let (_socket, peer) = sockets.remove(0);
        let reset = || {
            SockRef::from(&peer).set_linger(Some(Duration::ZERO)).unwrap();
            drop(peer);
        };
        assert_eq!(next_edges(&mut readiness, reset).await, [(0, Edge { failed: true, ..END })]);
    }

    #[tokio::test]
    async fn a_socket_that_took_no_more_is_reported_when_it_does() {
        let mut readiness = EdgeReadiness::new().unwrap();
        let mut sockets = connections(&readiness, 1);
        next_edges(&mut readiness, || ()).await;
        let (socket, peer) = &mut sockets[0];
        let block = vec![0; 1 << 20];
        while socket.write(&block).is_ok() {}
        edges(&mut readiness).await;
        peer.set_nonblocking(true).unwrap();
        let mut bytes = vec![0; 1 << 20];
        let mut drain = || while peer.read(&mut bytes).is_ok_and(|n| n > 0) {};
        drain();
        let mut found = edges(&mut readiness).await;
        while found.is_empty() {
            // The kernel sends the rest as the peer reads.
            drain();
            tokio::task::yield_now().await;
            found = edges(&mut readiness).await;
        }
        assert_eq!(found[0], (0, NEW));
        assert!(socket.write(b"more").is_ok());
    }

    #[tokio::test]
    async fn more_sockets_than_one_list_holds_are_all_reported() {
        let mut readiness = EdgeReadiness::new().unwrap();
        let mut sockets = connections(&readiness, 300);
        let slots = |found: Vec<(u32, Edge)>| {
            let mut slots: Vec<u32> = found.into_iter().map(|(slot, _)| slot).collect();
            slots.sort_unstable();
            slots
        };
        let all: Vec<u32> = (0..300).collect();
        assert_eq!(slots(next_edges(&mut readiness, || ()).await), all);
        let write = || sockets.iter_mut().for_each(|(_, peer)| peer.write_all(b"x").unwrap());
        assert_eq!(slots(next_edges(&mut readiness, write).await), all, "in one wake-up");
        assert!(edges(&mut readiness).await.is_empty());
    }

    #[tokio::test]
    async fn an_event_during_the_wait_wakes_the_runtime() {
        let mut readiness = EdgeReadiness::new().unwrap();
        let mut sockets = connections(&readiness, 1);
        next_edges(&mut readiness, || ()).await;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        readiness.add(listener.as_fd(), Token::acceptor(3)).unwrap();
        let ((_socket, mut peer), address) = (sockets.remove(0), listener.local_addr().unwrap());
        let (waits, other) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            other.recv().unwrap();
            let made = TcpStream::connect(address).unwrap();
            other.recv().unwrap();
            peer.write_all(b"x").unwrap();
            (made, peer)
        });
        let mut kinds = Vec::new();
        let mut told = 0;
        let wait = std::future::poll_fn(|cx| {
            fetch(&mut readiness, cx, |token, edge| kinds.push((token.kind(), token.slot(), edge.readable)));
            if kinds.len() == 2 {
                return Poll::Ready(());
            }
            if kinds.len() == told {
                told += 1;
                waits.send(()).unwrap();
            }
            Poll::Pending
        });
        tokio::time::timeout(Duration::from_secs(10), wait).await.expect("two events");
        assert_eq!(kinds, [(WatchedKind::Acceptor, 3, true), (WatchedKind::Connection, 0, true)]);
        thread.join().unwrap();
    }
}
