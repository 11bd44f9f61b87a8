//! Batches of datagrams for a thread outside the shards with a protocol other than SIP: media.

use crate::arrival_clock::ArrivalClock;
use crate::batch::{Receiver, Sender};
use crate::{timestamp, udp};
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;

/// Opens a socket bound only to `address`, with buffers of the given size or of the largest that the kernel allows.
/// Reading from it blocks.
///
/// # Errors
/// Errors of the system calls; [`ErrorKind::AddrInUse`] if the port is taken.
pub fn bind(address: SocketAddr, receive_buffer: usize, send_buffer: usize) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_recv_buffer_size(receive_buffer)?;
    socket.set_send_buffer_size(send_buffer)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// Result of sending a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Datagrams that the kernel took.
    pub datagrams: u64,
    /// Bytes of these datagrams.
    pub bytes: u64,
    /// Datagrams that the kernel refused: no route, buffer full, too long.
    pub failed: u64,
}

/// Datagrams that leave together from one socket.
pub struct Outgoing {
    sender: Sender,
    bytes: Vec<u8>,
}

impl Outgoing {
    /// Creates a batch of 1 to 1,024 datagrams.
    pub fn new(batch: usize) -> Self {
        Self { sender: Sender::new(batch.clamp(1, 1_024)), bytes: Vec::new() }
    }

    /// Tells whether the batch is full; then [`Outgoing::send`] must follow.
    pub fn is_full(&self) -> bool {
        self.sender.is_full()
    }

    /// Tells whether the batch is empty.
    pub fn is_empty(&self) -> bool {
        self.sender.queued().is_empty()
    }

    /// Adds one datagram with the bytes that `write` appends. The batch must not be full.
    pub fn push(&mut self, target: SocketAddr, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        write(&mut self.bytes);
        self.sender.push(start..self.bytes.len(), target, 0);
    }

    /// Sends the batch without waiting. Refused datagrams are dropped and counted: late media are useless.
    pub fn send(&mut self, socket: &UdpSocket) -> Sent {
        let mut sent = Sent::default();
        let queued = self.sender.queued().len();
        let mut at = 0;
        while at < queued {
            match self.sender.send(socket.as_fd(), &self.bytes, at) {
                Ok(0) => {
                    sent.failed += (queued - at) as u64;
                    break;
                }
                Ok(n) => {
                    for datagram in &self.sender.queued()[at..at + n] {
                        sent.bytes += u64::from(datagram.range.1 - datagram.range.0);
                    }
                    sent.datagrams += n as u64;
                    at += n;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => (),
                // The first remaining datagram cannot be sent; the datagrams after it may still be sent.
                Err(_) => {
                    sent.failed += 1;
                    at += 1;
                }
            }
        }
        self.sender.clear();
        self.bytes.clear();
        sent
    }
}

/// Asks the kernel for time stamps of arrival. Returns whether the kernel supports them.
pub fn stamp_arrivals(socket: &UdpSocket) -> bool {
    timestamp::enable(socket.as_fd())
}

/// Returns the number of datagrams that the kernel has dropped since the socket was opened, because its buffer was full (`SO_MEMINFO`); 0
/// if the kernel does not tell. It wraps around.
pub fn drops(socket: &UdpSocket) -> u32 {
    udp::backlog(socket).map_or(0, |(_, dropped, _)| dropped)
}

/// Datagrams received together.
pub struct Incoming {
    receiver: Receiver,
    /// `None`: times of arrival are not wanted.
    clock: Option<ArrivalClock>,
}

impl Incoming {
    /// Creates a batch of 1 to 1,024 datagrams.
    pub fn new(batch: usize) -> Self {
        Self { receiver: Receiver::new(batch.clamp(1, 1_024), false), clock: None }
    }

    /// Creates a batch of 1 to 1,024 datagrams with times of arrival, from sockets of [`stamp_arrivals`].
    pub fn with_arrivals(batch: usize) -> Self {
        Self { receiver: Receiver::new(batch.clamp(1, 1_024), true), clock: Some(ArrivalClock::new()) }
    }

    /// Receives at most one batch, without waiting. Returns the number of datagrams. Drops the datagrams of the last
    /// call.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] if there is nothing; those of the system call.
    pub fn receive(&mut self, socket: &UdpSocket) -> io::Result<usize> {
        let count = self.receiver.receive(socket.as_fd())?;
        if let Some(clock) = &mut self.clock {
            clock.read();
        }
        Ok(count)
    }

    /// Returns bytes and sender of datagram `i` of the last call.
    pub fn datagram(&self, i: usize) -> Option<(&[u8], SocketAddr)> {
        self.receiver.datagram(i).map(|d| (d.bytes, d.source))
    }

    /// Returns the time at which datagram `i` of the last call arrived in the kernel, in microseconds of [`crate::clock::micros`].
    /// Without a time stamp, or if the wall clock was set, it is the time of the call; 0 in a batch without times of arrival.
    pub fn arrival(&self, i: usize) -> u64 {
        let stamp = self.receiver.datagram(i).and_then(|d| d.ancillary.stamp);
        self.clock.as_ref().map_or(0, |clock| clock.arrival(stamp))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_above_the_buffer_are_counted() {
        let socket = bind("127.0.0.1:0".parse().unwrap(), 4_096, 4_096).unwrap();
        assert_eq!(drops(&socket), 0);
        for _ in 0..20 {
            socket.send_to(&[0; 1_000], socket.local_addr().unwrap()).unwrap();
        }
        assert!((10..20).contains(&drops(&socket)), "{} dropped", drops(&socket));
    }

    #[test]
    fn a_bad_datagram_does_not_keep_the_others_back() {
        let (a, b) = (
            bind("127.0.0.1:0".parse().unwrap(), 1 << 20, 1 << 20).unwrap(),
            bind("127.0.0.1:0".parse().unwrap(), 1 << 20, 1 << 20).unwrap(),
        );
        let target = b.local_addr().unwrap();
        let mut out = Outgoing::new(4);
        out.push(target, |bytes| bytes.extend_from_slice(b"one"));
        out.push("127.0.0.1:0".parse().unwrap(), |bytes| bytes.extend_from_slice(b"nowhere"));
        out.push(target, |bytes| bytes.extend_from_slice(b"two"));
        assert!(!out.is_full());
        assert_eq!(out.send(&a), Sent { datagrams: 2, bytes: 6, failed: 1 });
        assert!(out.is_empty());
        let mut incoming = Incoming::new(8);
        assert_eq!(incoming.receive(&b).unwrap(), 2);
        assert_eq!(incoming.datagram(0), Some((&b"one"[..], a.local_addr().unwrap())));
        assert_eq!(incoming.datagram(1), Some((&b"two"[..], a.local_addr().unwrap())));
        assert_eq!(incoming.receive(&b).unwrap_err().kind(), ErrorKind::WouldBlock);
    }
}
