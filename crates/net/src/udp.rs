//! UDP socket of a shard, with its waiting and failed datagrams.

use crate::batch::{Receiver, Sender};
use crate::counters::Counters;
use crate::gso::{self, GsoBatch};
use crate::queue_delay::QueueDelay;
use crate::source_addresses::SourceAddresses;
use crate::unreachable::{self, Unreachable};
use crate::{Bounds, NetSettings, clock, socket_option, timestamp};
use socket2::{Domain, Protocol, Socket, Type};
use std::cell::Cell;
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use strowger_core::ListenerId;
use strowger_core::log_limiter::{LogLimiter, LogSubject};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Opens a socket bound to `address`, with buffers of the requested size or of the largest that the kernel allows.
/// `reuse_port`: other sockets of this process will be bound to the same address.
pub(crate) fn bind(address: SocketAddr, reuse_port: bool, settings: &NetSettings) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    if reuse_port {
        socket.set_reuse_port(true)?;
    }
    socket.bind(&address.into())?;
    prepare(&socket, address, settings)?;
    Ok(socket.into())
}

/// Sets the buffers of a bound socket, and enables its control messages.
pub(crate) fn prepare(socket: &Socket, address: SocketAddr, settings: &NetSettings) -> io::Result<()> {
    let udp = &settings.udp;
    // The kernel doubles the requested size, and silently sets a smaller size if the request exceeds its limit.
    socket.set_recv_buffer_size(udp.receive_buffer)?;
    socket.set_send_buffer_size(udp.send_buffer)?;
    let mut given = socket.recv_buffer_size()? / 2;
    if given < udp.receive_buffer && udp.force_buffers {
        force(socket, libc::SO_RCVBUFFORCE, udp.receive_buffer);
        force(socket, libc::SO_SNDBUFFORCE, udp.send_buffer);
        given = socket.recv_buffer_size()? / 2;
    }
    if udp.gro && !gso::enable_gro(socket.as_fd()) {
        tracing::info!(%address, "UDP_GRO unavailable");
    }
    if address.ip().is_unspecified() && !timestamp::enable_packet_info(socket.as_fd(), address.is_ipv6()) {
        tracing::warn!(%address, "IP_PKTINFO unavailable: replies leave from any address");
    }
    if settings.scheduling.timestamps && !timestamp::enable(socket.as_fd()) {
        tracing::info!(%address, "SO_TIMESTAMPNS unavailable: datagrams count as received when they are read");
    }
    if given < udp.receive_buffer {
        tracing::warn!(
            %address, asked = udp.receive_buffer, given,
            "the kernel gave a smaller receive buffer: bursts may be lost; raise net.core.rmem_max"
        );
    }
    Ok(())
}

/// Requests a buffer above the kernel's limit, which only privileged processes get.
fn force(socket: &Socket, option: libc::c_int, bytes: usize) {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    let _ = socket_option::set(socket.as_fd(), libc::SOL_SOCKET, option, bytes);
}

/// Returns the bytes that wait in the socket, the datagrams that the kernel dropped, and the size of the buffer.
pub(crate) fn backlog(socket: &UdpSocket) -> io::Result<(u32, u32, u32)> {
    // Fields of SO_MEMINFO (linux/sock_diag.h), which has nine numbers.
    const RECEIVED: usize = 0;
    const BUFFER: usize = 1;
    const DROPPED: usize = 8;
    let mut numbers = [0u32; DROPPED + 1];
    let mut length = size_of_val(&numbers) as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to our array, which has as many.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            numbers.as_mut_ptr().cast(),
            &mut length,
        )
    };
    if result == 0 {
        Ok((numbers[RECEIVED], numbers[DROPPED], numbers[BUFFER]))
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Batches that are sent without runs after an unreachable datagram.
const WITHOUT_GSO: u32 = 256;

pub(crate) struct Udp {
    /// Watched for reading only: the kernel reports a UDP socket as writable each time a peer has taken a datagram, and
    /// each such report would wake the shard needlessly.
    pub(crate) socket: Rc<AsyncFd<UdpSocket>>,
    /// Set if the kernel reports unreachable datagrams: whether there are such reports.
    icmp_errors: Option<Rc<Cell<bool>>>,
    /// Watched for writing, only while datagrams wait.
    writable: Option<AsyncFd<UdpSocket>>,
    pub(crate) listener: ListenerId,
    pub(crate) v6: bool,
    /// Wait of received datagrams.
    pub(crate) delay: QueueDelay,
    /// False: the socket belongs to another shard, which reads it.
    reads: bool,
    sender: Sender,
    /// Set if runs of datagrams are sent as one.
    gso: Option<GsoBatch>,
    /// Remaining batches without runs: only the first datagram of an unreachable run is quoted.
    without_gso: Cell<u32>,
    /// Datagrams that the socket did not take; later ones wait behind them.
    waiting: VecDeque<WaitingDatagram>,
    waiting_bound: usize,
    log_limiter: Arc<LogLimiter>,
    /// Set if the socket is bound to all addresses: the address from which each peer is answered.
    source_addresses: Option<Arc<SourceAddresses>>,
}

/// A datagram for which a socket had no room.
pub(crate) struct WaitingDatagram {
    pub(crate) bytes: Box<[u8]>,
    pub(crate) target: SocketAddr,
    pub(crate) token: u64,
}

impl Udp {
    /// Creates the socket inside the runtime of its shard. `reads`: false if another shard reads this socket, and this one only sends.
    pub(crate) fn new(
        socket: UdpSocket,
        listener: ListenerId,
        reads: bool,
        settings: &NetSettings,
        bounds: &Bounds,
        source_addresses: &Arc<SourceAddresses>,
    ) -> io::Result<Self> {
        let local = socket.local_addr()?;
        let v6 = local.is_ipv6();
        let mut icmp_errors = None;
        if settings.udp.icmp_errors {
            match unreachable::enable(socket.as_fd(), v6) {
                Ok(()) => icmp_errors = Some(Rc::default()),
                Err(error) => tracing::info!(%error, "IP_RECVERR unavailable: ICMP errors are ignored"),
            }
        }
        Ok(Self {
            // A socket watched for an event that UDP never has wakes no shard.
            socket: Rc::new(watch(socket, if reads { Interest::READABLE } else { Interest::PRIORITY })?),
            icmp_errors,
            writable: None,
            listener,
            v6,
            delay: QueueDelay::new(settings.scheduling.timestamps),
            reads,
            sender: Sender::new(settings.udp.batch),
            gso: settings.udp.gso.then(|| GsoBatch::new(settings.udp.batch)),
            without_gso: Cell::new(0),
            waiting: VecDeque::new(),
            waiting_bound: bounds.datagrams_waiting,
            log_limiter: settings.log_limiter.clone(),
            source_addresses: local.ip().is_unspecified().then(|| source_addresses.clone()),
        })
    }

    /// Waits for errors of the socket until the runtime ends. After each error it notes that there are reports, and
    /// calls `wake`. Returns `None` if the kernel reports nothing, or another shard waits for the errors.
    pub(crate) fn watch_errors<W: Fn()>(&self, wake: W) -> Option<impl Future<Output = ()> + use<W>> {
        let (socket, icmp_errors) = (self.socket.clone(), self.icmp_errors.clone().filter(|_| self.reads)?);
        Some(async move {
            while let Ok(mut error) = socket.ready(Interest::ERROR).await {
                error.clear_ready();
                icmp_errors.set(true);
                wake();
            }
        })
    }

    /// Tells whether [`Udp::unreachable`] may have reports.
    #[inline]
    pub(crate) fn has_icmp_errors(&self) -> bool {
        self.icmp_errors.as_ref().is_some_and(|icmp_errors| icmp_errors.get())
    }

    /// Reports up to `most` unreachable datagrams, the oldest first.
    #[cold]
    pub(crate) fn unreachable(&self, most: usize, room: &mut Vec<u8>, mut report: impl FnMut(Unreachable<'_>)) {
        for _ in 0..most {
            match unreachable::next(self.socket.get_ref().as_fd(), room) {
                Ok(Some(unreachable)) => {
                    self.without_gso.set(WITHOUT_GSO);
                    report(unreachable);
                }
                Ok(None) => (),
                Err(error) if error.kind() == ErrorKind::Interrupted => (),
                Err(_) => {
                    if let Some(icmp_errors) = &self.icmp_errors {
                        icmp_errors.set(false);
                    }
                    return;
                }
            }
        }
    }

    /// Receives one batch into `receiver`. Returns the number of datagrams, and whether there may be more.
    pub(crate) fn receive(&self, receiver: &mut Receiver, cx: &mut Context<'_>, counters: &Counters) -> (usize, bool) {
        let fails = |error: &io::Error| {
            let icmp = self.icmp_errors.is_some() && unreachable::may_be_icmp(error);
            if error.kind() != ErrorKind::Interrupted && !icmp {
                counters.receive_errors.add(1);
            }
        };
        if !self.reads {
            return (0, false);
        }
        let Poll::Ready(Ok(mut ready)) = self.socket.poll_read_ready(cx) else { return (0, false) };
        let mut n = 0;
        // A short batch means that the socket is empty. Clearing the readiness now saves a call that would find the
        // socket empty; the next datagram makes the descriptor ready again.
        let whole = ready.try_io(|socket| {
            n = receiver.receive(socket.get_ref().as_fd())?;
            if n < receiver.batch() { Err(ErrorKind::WouldBlock.into()) } else { Ok(()) }
        });
        match whole {
            Ok(Ok(())) => (n, true),
            // Registers for the next wake-up.
            Err(_) => (n, self.socket.poll_read_ready(cx).is_ready()),
            Ok(Err(error)) => {
                fails(&error);
                (0, true)
            }
        }
    }

    /// Adds one message of the round to the batch; `bytes` is the whole outbox.
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
        let from = self
            .source_addresses
            .as_ref()
            .and_then(|source_addresses| source_addresses.find(target, &bytes[range.clone()]));
        self.sender.push(range, target, token);
        self.sender.leave_from(from);
    }

    /// Sends the batch. Skips datagrams that the kernel refuses, and keeps datagrams for which it has no room.
    pub(crate) fn flush(&mut self, bytes: &[u8], failed: &mut Vec<u64>, counters: &Counters) {
        let n = self.sender.queued().len();
        let reports = self.icmp_errors.is_some();
        let mut at = if self.waiting.is_empty() { 0 } else { self.keep(0, bytes, failed, counters) };
        let mut again = false;
        let without_gso = self.without_gso.get();
        self.without_gso.set(without_gso.saturating_sub(1));
        if at == 0 && n > 1 && without_gso == 0 && self.gso.is_some() && !self.sender.is_particular() {
            at = self.send_gso(bytes, failed, counters);
        }
        while at < n {
            match self.sender.send(self.socket.get_ref().as_fd(), bytes, at) {
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
                // The error may belong to another datagram, so this datagram is tried once more.
                Err(e) if !again && is_of_another(&e, reports) => again = true,
                Err(e) => {
                    let bad = &self.sender.queued()[at];
                    log_refused(&self.log_limiter, bad.target, &e);
                    fail(bad.token, failed);
                    counters.datagrams_refused.add(1);
                    at += 1;
                    again = false;
                }
            }
        }
        self.sender.clear();
    }

    /// Sends the batch as runs of datagrams. Returns the number of handled datagrams. If not all are handled, this
    /// kernel or route supports no runs, and the remaining datagrams must be sent one by one.
    fn send_gso(&mut self, bytes: &[u8], failed: &mut Vec<u64>, counters: &Counters) -> usize {
        let reports = self.icmp_errors.is_some();
        let Some(gso) = &mut self.gso else { return 0 };
        gso.plan(self.sender.queued_mut());
        let (mut at, mut run, mut again) = (0, 0, false);
        while run < gso.runs() {
            match gso.send(self.socket.get_ref().as_fd(), bytes, self.sender.queued(), run, at) {
                Ok(runs) => {
                    let count: usize = (run..run + runs).map(|r| gso.count(r)).sum();
                    let size = |q: &crate::batch::Queued| (q.range.1 - q.range.0) as u64;
                    counters.datagrams_out.add(count as u64);
                    counters.datagram_bytes_out.add(self.sender.queued()[at..at + count].iter().map(size).sum());
                    counters.batches_out.add(1);
                    at += count;
                    run += runs;
                    again = false;
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => (),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return self.keep(at, bytes, failed, counters),
                Err(e) if !again && is_of_another(&e, reports) => again = true,
                Err(e) if gso.count(run) > 1 => {
                    // For example, the device has no checksums, or a datagram is larger than a packet.
                    tracing::info!(error = %e, "UDP GSO disabled");
                    self.gso = None;
                    self.sender.readdress();
                    return at;
                }
                Err(e) => {
                    let bad = &self.sender.queued()[at];
                    log_refused(&self.log_limiter, bad.target, &e);
                    fail(bad.token, failed);
                    counters.datagrams_refused.add(1);
                    at += 1;
                    run += 1;
                    again = false;
                }
            }
        }
        at
    }

    /// Keeps the queued datagrams from `from` on until the socket has room. Returns the number of queued datagrams.
    #[cold]
    fn keep(&mut self, from: usize, bytes: &[u8], failed: &mut Vec<u64>, counters: &Counters) -> usize {
        for q in &self.sender.queued()[from..] {
            if self.waiting.len() >= self.waiting_bound {
                counters.datagrams_dropped.add(1);
                fail(q.token, failed);
                continue;
            }
            let bytes = bytes[q.range.0 as usize..q.range.1 as usize].into();
            self.waiting.push_back(WaitingDatagram { bytes, target: q.target, token: q.token });
            counters.datagrams_waiting.add(1);
        }
        self.sender.queued().len()
    }

    /// Sends waiting datagrams as far as the socket takes them. If datagrams remain, `cx` is woken when the socket has
    /// room.
    pub(crate) fn resume(&mut self, cx: &mut Context<'_>, failed: &mut Vec<u64>, counters: &Counters) {
        let (reports, mut again) = (self.icmp_errors.is_some(), false);
        while let Some(first) = self.waiting.front() {
            let from = self
                .source_addresses
                .as_ref()
                .and_then(|source_addresses| source_addresses.find(first.target, &first.bytes));
            match send_from(self.socket.get_ref(), &first.bytes, first.target, from) {
                Ok(n) => {
                    counters.datagrams_out.add(1);
                    counters.datagram_bytes_out.add(n as u64);
                    counters.batches_out.add(1);
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) if e.kind() == ErrorKind::WouldBlock => match self.wait_for_room(cx) {
                    Ok(Poll::Pending) => return,
                    Ok(Poll::Ready(())) => continue,
                    // No event will report that the socket has room, so waiting datagrams are sent with the next
                    // message.
                    Err(error) => return tracing::warn!(%error, "a full socket cannot be watched"),
                },
                Err(e) if !again && is_of_another(&e, reports) => {
                    again = true;
                    continue;
                }
                Err(e) => {
                    log_refused(&self.log_limiter, first.target, &e);
                    fail(first.token, failed);
                    counters.datagrams_refused.add(1);
                }
            }
            again = false;
            self.waiting.pop_front();
            counters.datagrams_waiting.less(1);
        }
        self.writable = None;
    }

    /// Tells whether the socket has become writable since it was full.
    fn wait_for_room(&mut self, cx: &mut Context<'_>) -> io::Result<Poll<()>> {
        let watch = match &mut self.writable {
            Some(watch) => watch,
            none => none.insert(watch(self.socket.get_ref().try_clone()?, Interest::WRITABLE)?),
        };
        Ok(match watch.poll_write_ready(cx)? {
            Poll::Pending => Poll::Pending,
            Poll::Ready(mut ready) => {
                let error = ready.ready().is_write_closed();
                ready.clear_ready();
                if error {
                    // The runtime takes an error of the socket for its end, and would report the socket as ready for
                    // ever.
                    self.writable = None;
                }
                Poll::Ready(())
            }
        })
    }

    /// Measures the wait of the batch of `n` datagrams that was just read into `receiver`.
    #[cold]
    pub(crate) fn measure_delay(&mut self, receiver: &mut Receiver, n: usize, now: u64) {
        let full = n == receiver.batch();
        if full {
            receiver.enable_ancillary();
        }
        let stamp = n.checked_sub(1).and_then(|last| receiver.datagram(last)).and_then(|last| last.ancillary.stamp);
        self.delay.measure(self.socket.get_ref().as_fd(), full, stamp, now);
    }

    /// Sets the maximum number of datagrams that may wait; datagrams that wait already stay.
    pub(crate) const fn set_waiting_bound(&mut self, most: usize) {
        self.waiting_bound = most;
    }

    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }
}

/// Sends one datagram, from this local address or from the one that the kernel chooses.
fn send_from(socket: &UdpSocket, bytes: &[u8], target: SocketAddr, from: Option<IpAddr>) -> io::Result<usize> {
    if from.is_none() {
        return socket.send_to(bytes, target);
    }
    let mut sender = Sender::new(1);
    sender.push(0..bytes.len(), target, 0);
    sender.leave_from(from);
    sender.send(socket.as_fd(), bytes, 0).map(|_| bytes.len())
}

fn watch(socket: UdpSocket, interest: Interest) -> io::Result<AsyncFd<UdpSocket>> {
    // SAFETY: a `UdpSocket` owns its descriptor, names the same one each time, and closes it only when it is dropped,
    // which `AsyncFd` does after it has ended the watch.
    let watched = unsafe { AsyncFd::register_with_interest(socket, interest) };
    watched.map_err(Into::into)
}

/// Tells whether a failed call reports an earlier datagram, perhaps to another target: the kernel reports an error
/// once, to the next call. `reports`: whether the kernel reports unreachable datagrams.
fn is_of_another(error: &io::Error, reports: bool) -> bool {
    error.kind() == ErrorKind::ConnectionRefused || reports && unreachable::may_be_icmp(error)
}

#[cold]
fn log_refused(log_limiter: &LogLimiter, to: SocketAddr, error: &io::Error) {
    if log_limiter.allow(LogSubject::Forwarding, to.ip(), clock::now().mono) {
        tracing::info!(%to, %error, "datagram not sent");
    }
}

fn fail(token: u64, failed: &mut Vec<u64>) {
    if token != 0 {
        failed.push(token);
    }
}

#[cfg(test)]
mod tests;
