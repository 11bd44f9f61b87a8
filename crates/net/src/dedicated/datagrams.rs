//! UDP socket of one call or user, with the datagrams that it did not take.

use crate::counters::Counters;
use crate::udp::{self, WaitingDatagram};
use crate::unreachable;
use socket2::{Domain, Protocol, Socket, Type};
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use strowger_core::ListenerId;

pub(super) struct Datagrams {
    pub(super) socket: UdpSocket,
    pub(super) listener: ListenerId,
    /// Datagrams that the socket did not take.
    pub(super) waiting: VecDeque<WaitingDatagram>,
    /// True if the socket ends when nothing waits any more.
    pub(super) leaving: bool,
}

impl Datagrams {
    pub(super) fn count_drops(&self, counters: &Counters) {
        if let Ok((_, dropped, _)) = udp::backlog(&self.socket) {
            counters.dedicated_drops.add(u64::from(dropped));
        }
    }

    /// Returns false if the socket has no room.
    pub(super) fn transmit(
        &self,
        bytes: &[u8],
        target: SocketAddr,
        token: u64,
        failed: &mut Vec<u64>,
        counters: &Counters,
    ) -> bool {
        let mut again = false;
        loop {
            match self.socket.send_to(bytes, target) {
                Ok(n) => {
                    counters.datagrams_out.add(1);
                    counters.datagram_bytes_out.add(n as u64);
                    counters.batches_out.add(1);
                    return true;
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => (),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return false,
                // This is the same as for shared sockets: the kernel reports the error of an earlier datagram to the
                // next call.
                Err(e) if !again && (e.kind() == ErrorKind::ConnectionRefused || unreachable::may_be_icmp(&e)) => {
                    again = true
                }
                Err(error) => {
                    tracing::debug!(to = %target, %error, "datagram not sent");
                    counters.datagrams_refused.add(1);
                    if token != 0 {
                        failed.push(token);
                    }
                    return true;
                }
            }
        }
    }

    #[cold]
    pub(super) fn keep(
        &mut self,
        bytes: &[u8],
        target: SocketAddr,
        token: u64,
        bound: usize,
        failed: &mut Vec<u64>,
        counters: &Counters,
    ) {
        if self.waiting.len() >= bound {
            counters.datagrams_dropped.add(1);
            if token != 0 {
                failed.push(token);
            }
            return;
        }
        self.waiting.push_back(WaitingDatagram { bytes: bytes.into(), target, token });
        counters.datagrams_waiting.add(1);
    }
}

/// Opens a socket for the datagrams of one call or user, with the kernel's default receive buffer.
pub(super) fn datagrams(from: SocketAddr, send_buffer: usize) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(from), Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
    if from.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_send_buffer_size(send_buffer)?;
    socket.bind(&from.into())?;
    Ok(socket.into())
}
