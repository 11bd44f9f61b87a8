//! One UDP socket of a shard: what waits for it, what failed.

use crate::Settings;
use crate::batch::Sender;
use crate::counters::Counters;
use socket2::{Domain, Protocol, Socket, Type};
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::AsFd;
use std::task::Context;
use strowger_core::ListenerId;
use tokio::net::UdpSocket;

/// A socket bound to `address`, with buffers as large as asked or as the kernel allows. `shared`: others of
/// this process will be bound to the same address.
pub(crate) fn bind(address: SocketAddr, shared: bool, settings: &Settings) -> io::Result<std::net::UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    if shared {
        socket.set_reuse_port(true)?;
    }
    // The kernel doubles what it is told and takes silently what is above its limit.
    socket.set_recv_buffer_size(settings.receive_buffer)?;
    socket.set_send_buffer_size(settings.send_buffer)?;
    socket.bind(&address.into())?;
    let given = socket.recv_buffer_size()? / 2;
    if given < settings.receive_buffer {
        tracing::warn!(
            %address, asked = settings.receive_buffer, given,
            "the kernel gave a smaller receive buffer: bursts may be lost; raise net.core.rmem_max"
        );
    }
    Ok(socket.into())
}

pub(crate) struct Udp {
    pub(crate) socket: UdpSocket,
    pub(crate) listener: ListenerId,
    pub(crate) v6: bool,
    sender: Sender,
    /// What the socket did not take; while there is any, whatever follows waits behind it.
    waiting: VecDeque<Waiting>,
    waiting_bound: usize,
}

struct Waiting {
    bytes: Box<[u8]>,
    target: SocketAddr,
    token: u64,
}

impl Udp {
    /// Inside the runtime of its shard.
    pub(crate) fn new(socket: std::net::UdpSocket, listener: ListenerId, settings: &Settings) -> io::Result<Self> {
        let v6 = socket.local_addr()?.is_ipv6();
        Ok(Self {
            socket: UdpSocket::from_std(socket)?,
            listener,
            v6,
            sender: Sender::new(settings.batch),
            waiting: VecDeque::new(),
            waiting_bound: settings.datagrams_waiting,
        })
    }

    /// Takes one message of the round into the batch; `bytes` is the whole outbox.
    pub(crate) fn push(
        &mut self,
        bytes: &[u8],
        range: Range<usize>,
        target: SocketAddr,
        token: u64,
        failed: &mut Vec<u64>,
        counters: &Counters,
    ) {
        if self.sender.is_full() {
            self.flush(bytes, failed, counters);
        }
        self.sender.push(range, target, token);
    }

    /// Hands the batch to the kernel. A datagram that it refuses is skipped, the others go; what it has no room
    /// for is kept.
    pub(crate) fn flush(&mut self, bytes: &[u8], failed: &mut Vec<u64>, counters: &Counters) {
        let n = self.sender.queued().len();
        let mut at = if self.waiting.is_empty() { 0 } else { self.keep(0, bytes, failed, counters) };
        let mut again = false;
        while at < n {
            match self.sender.send(self.socket.as_fd(), bytes, at) {
                Ok(sent) => {
                    let size = |q: &crate::batch::Queued| (q.range.1 - q.range.0) as u64;
                    counters.datagrams_out.add(sent as u64);
                    counters.datagram_bytes_out.add(self.sender.queued()[at..at + sent].iter().map(size).sum());
                    counters.batches_out.add(1);
                    at += sent;
                    again = false;
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => (),
                Err(e) if e.kind() == ErrorKind::WouldBlock => at = self.keep(at, bytes, failed, counters),
                // What an earlier datagram met on its way is told to the next, which may be innocent: once more.
                Err(e) if !again && e.kind() == ErrorKind::ConnectionRefused => again = true,
                Err(e) => {
                    let bad = &self.sender.queued()[at];
                    tracing::debug!(target = %bad.target, error = %e, "datagram refused");
                    fail(bad.token, failed);
                    counters.datagrams_refused.add(1);
                    at += 1;
                    again = false;
                }
            }
        }
        self.sender.clear();
    }

    /// Keeps what is queued from `from` on until the socket takes it; the number queued.
    #[cold]
    fn keep(&mut self, from: usize, bytes: &[u8], failed: &mut Vec<u64>, counters: &Counters) -> usize {
        if self.waiting.is_empty() {
            // Forget that the socket was writable, so that the next wait is a real one.
            let _ = self.socket.try_io::<()>(tokio::io::Interest::WRITABLE, || Err(ErrorKind::WouldBlock.into()));
        }
        for q in &self.sender.queued()[from..] {
            if self.waiting.len() >= self.waiting_bound {
                counters.datagrams_dropped.add(1);
                fail(q.token, failed);
                continue;
            }
            let bytes = bytes[q.range.0 as usize..q.range.1 as usize].into();
            self.waiting.push_back(Waiting { bytes, target: q.target, token: q.token });
            counters.datagrams_waiting.add(1);
        }
        self.sender.queued().len()
    }

    /// Sends what waits as far as the socket takes it, else sees to it that `cx` is woken when it does.
    pub(crate) fn resume(&mut self, cx: &mut Context<'_>, failed: &mut Vec<u64>, counters: &Counters) {
        while let Some(first) = self.waiting.front() {
            match self.socket.try_send_to(&first.bytes, first.target) {
                Ok(n) => {
                    counters.datagrams_out.add(1);
                    counters.datagram_bytes_out.add(n as u64);
                    counters.batches_out.add(1);
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => match self.socket.poll_send_ready(cx) {
                    std::task::Poll::Pending => return,
                    std::task::Poll::Ready(_) => continue,
                },
                Err(e) => {
                    tracing::debug!(target = %first.target, error = %e, "datagram refused");
                    fail(first.token, failed);
                    counters.datagrams_refused.add(1);
                }
            }
            self.waiting.pop_front();
            counters.datagrams_waiting.less(1);
        }
    }

    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }
}

fn fail(token: u64, failed: &mut Vec<u64>) {
    if token != 0 {
        failed.push(token);
    }
}
