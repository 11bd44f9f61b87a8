//! Dedicated sockets and connections that a service opens for itself, outside the listeners: one for a call or a user.
//!
//! A dedicated socket is open, and its port known, before any message is sent. Messages in both directions carry its
//! [`Flow`]. The socket belongs to the shard whose service opened it. The shard drives the sockets that
//! [`ServiceWithSockets::sockets`](crate::ServiceWithSockets::sockets) returns.

mod datagrams;

use self::datagrams::{Datagrams, datagrams};
use crate::batch::Receiver;
use crate::counters::Counters;
use crate::readiness::{Readiness, Ready, Wanted};
use crate::{Handle, Service, socket_option, timestamp, unreachable};
use socket2::{Domain, Protocol, Socket, Type};
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::task::Context;
use strowger_core::{Flow, ListenerId, PeerName, Transport};

/// Slots of dedicated sockets, which no connection of a listener or of the directory has.
const DEDICATED: u32 = 1 << 31;

/// Tells whether a flow is a dedicated socket.
pub const fn is_dedicated(flow: Flow) -> bool {
    flow.slot & DEDICATED != 0
}

/// Returns the index of a dedicated socket in its shard: small numbers, which are reused.
pub const fn index(flow: Flow) -> usize {
    (flow.slot & !DEDICATED) as usize
}

/// An opened dedicated socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DedicatedSocket {
    /// Flow of messages over this socket.
    pub flow: Flow,
    /// Local address.
    pub address: SocketAddr,
}

/// Tells whether an error of [`DedicatedSockets::open`] means that the maximum number of dedicated sockets is open, or
/// that the process has no free descriptor.
pub fn is_full(error: &io::Error) -> bool {
    error.kind() == ErrorKind::QuotaExceeded || matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// Request for a dedicated socket.
#[derive(Clone, Copy, Debug)]
pub struct SocketRequest {
    /// Transport; UDP has no fixed peer.
    pub transport: Transport,
    /// Listener that received messages are attributed to.
    pub listener: ListenerId,
    /// Local address; port 0: any free port.
    pub from: SocketAddr,
    /// Address of the peer; unused for datagrams.
    pub to: SocketAddr,
    /// Name that the peer of a secure connection must prove.
    pub name: Option<PeerName>,
}

/// Dedicated sockets of one shard.
pub struct DedicatedSockets {
    node: u16,
    process: u16,
    shard: u8,
    counters: Arc<Counters>,
    send_buffer: usize,
    waiting_bound: usize,
    /// True if the kernel reports unreachable datagrams.
    icmp_errors: bool,
    /// True if received messages have time stamps.
    timestamps: bool,
    most: usize,
    /// Dedicated sockets with open descriptors, including those that only wait for the peer to end.
    held: usize,
    places: Vec<SocketSlot>,
    free: Vec<u32>,
    /// Connections that the shard has not taken over yet.
    opened: Vec<u32>,
    /// Sockets that the service has closed in this round; their earlier messages are still to be sent.
    leaving: Vec<u32>,
    readiness: Option<Readiness>,
    /// True if a socket was opened after this round asked for readiness.
    unasked: bool,
}

#[derive(Default)]
struct SocketSlot {
    generation: u32,
    kind: Option<SocketKind>,
}

enum SocketKind {
    Datagrams(Box<Datagrams>),
    /// On its way to the shard's connections.
    Opened(Box<Opening>),
    /// Connection in this slot.
    Connection(u32),
}

/// A connection being made.
pub(crate) struct Opening {
    pub(crate) flow: Flow,
    pub(crate) request: SocketRequest,
    pub(crate) stream: TcpStream,
}

/// Result of a message for a dedicated socket.
pub(crate) enum SendOutcome {
    /// The kernel has it, or it waits, or its token is among the failed ones.
    Done,
    /// The message is for the connection in this slot, if that still belongs to the dedicated socket.
    By(u32),
    Gone,
}

impl DedicatedSockets {
    /// Creates the dedicated sockets of this shard, which may hold at most `most` of them.
    pub fn new<S: Service + 'static>(handle: &Handle<S>, shard: usize, most: usize) -> Self {
        let settings = handle.settings();
        Self {
            node: settings.node,
            process: settings.process,
            shard: shard as u8,
            counters: handle.process.entries[shard].counters.clone(),
            send_buffer: settings.udp.send_buffer,
            waiting_bound: handle.bounds().datagrams_waiting,
            icmp_errors: settings.udp.icmp_errors,
            timestamps: settings.scheduling.timestamps,
            most,
            held: 0,
            places: Vec::new(),
            free: Vec::new(),
            opened: Vec::new(),
            leaving: Vec::new(),
            readiness: None,
            unasked: false,
        }
    }

    /// Returns the number of open sockets, including those that only wait for the peer to end.
    pub const fn held(&self) -> usize {
        self.held
    }

    /// Tells whether one more dedicated socket may be opened.
    pub const fn has_room(&self) -> bool {
        self.held < self.most
    }

    /// Opens a socket, or begins to connect. A connection that is refused or not made in time is reported by
    /// [`Service::closed`], and its waiting messages by [`Service::failed`].
    ///
    /// # Errors
    /// [`ErrorKind::QuotaExceeded`]: the shard holds the most allowed. [`ErrorKind::AddrNotAvailable`] and
    /// [`ErrorKind::AddrInUse`]: no port is free, or the address is not local. Others are those of the system calls.
    pub fn open(&mut self, request: SocketRequest) -> io::Result<DedicatedSocket> {
        let opened = self.try_open(request);
        match &opened {
            Ok(_) => (),
            Err(error) if is_full(error) => self.counters.dedicated_full.add(1),
            Err(_) => self.counters.dedicated_refused.add(1),
        }
        opened
    }

    fn try_open(&mut self, request: SocketRequest) -> io::Result<DedicatedSocket> {
        if !self.has_room() {
            return Err(ErrorKind::QuotaExceeded.into());
        }
        let slot = self.free.last().copied().unwrap_or(self.places.len() as u32);
        let generation = self.places.get(slot as usize).map_or(0, |p| p.generation).wrapping_add(1);
        let flow =
            Flow { node: self.node, process: self.process, shard: self.shard, slot: slot | DEDICATED, generation };
        let (kind, address) = if request.transport == Transport::Udp {
            let socket = datagrams(request.from, self.send_buffer)?;
            let address = socket.local_addr()?;
            if self.timestamps {
                timestamp::enable(socket.as_fd());
            }
            if self.icmp_errors {
                // A kernel without the option reports nothing.
                let _ = unreachable::enable(socket.as_fd(), address.is_ipv6());
            }
            self.watching()?.add(socket.as_fd(), name(slot, generation))?;
            let datagrams = Datagrams { socket, listener: request.listener, waiting: VecDeque::new(), leaving: false };
            (SocketKind::Datagrams(Box::new(datagrams)), address)
        } else {
            let stream = connect(request.from, request.to)?;
            let address = stream.local_addr()?;
            self.opened.push(slot);
            (SocketKind::Opened(Box::new(Opening { flow, request, stream })), address)
        };
        if self.free.pop().is_none() {
            self.places.push(SocketSlot::default());
        }
        self.places[slot as usize] = SocketSlot { generation, kind: Some(kind) };
        self.held += 1;
        self.counters.dedicated.add(1);
        self.counters.dedicated_opened.add(1);
        Ok(DedicatedSocket { flow, address })
    }

    /// Sets the maximum number of datagrams that may wait for one socket.
    pub(crate) const fn set_waiting_bound(&mut self, most: usize) {
        self.waiting_bound = most;
    }

    fn watching(&mut self) -> io::Result<&mut Readiness> {
        match &mut self.readiness {
            Some(readiness) => Ok(readiness),
            none => {
                self.unasked = true;
                Ok(none.insert(Readiness::new()?))
            }
        }
    }

    /// Tells whether this dedicated socket is open.
    pub fn is_open(&self, flow: Flow) -> bool {
        self.slot(flow).is_some()
    }

    /// Ends a dedicated socket once the messages of this round are sent. A connection ends with the closing handshakes
    /// of its protocols, if the peer takes part. No further event of the socket is reported.
    pub fn close(&mut self, flow: Flow) {
        if let Some(slot) = self.slot(flow) {
            self.leaving.push(slot);
        }
    }

    fn flow(&self, slot: u32) -> Flow {
        let generation = self.places[slot as usize].generation;
        Flow { node: self.node, process: self.process, shard: self.shard, slot: slot | DEDICATED, generation }
    }

    /// Returns the slot of this flow, if the slot still has the dedicated socket of the flow.
    fn slot(&self, flow: Flow) -> Option<u32> {
        let ours = (flow.node, flow.process, flow.shard) == (self.node, self.process, self.shard);
        let slot = flow.slot & !DEDICATED;
        let place = self.places.get(slot as usize).filter(|_| ours && is_dedicated(flow))?;
        (place.generation == flow.generation && place.kind.is_some()).then_some(slot)
    }

    /// Returns the next connection that the service has opened, for the shard to take over.
    pub(crate) fn opened(&mut self) -> Option<Box<Opening>> {
        while let Some(slot) = self.opened.pop() {
            let place = &mut self.places[slot as usize];
            if let Some(SocketKind::Opened(_)) = place.kind
                && let Some(SocketKind::Opened(opening)) = place.kind.take()
            {
                return Some(opening);
            }
        }
        None
    }

    /// Notes the slot of the connection in the shard.
    pub(crate) fn placed(&mut self, flow: Flow, connection: u32) {
        self.places[index(flow)].kind = Some(SocketKind::Connection(connection));
    }

    /// Sends a message over a dedicated socket of this shard.
    #[inline]
    pub(crate) fn send(
        &mut self,
        flow: Flow,
        bytes: &[u8],
        target: SocketAddr,
        token: u64,
        failed: &mut Vec<u64>,
    ) -> SendOutcome {
        let Some(slot) = self.slot(flow) else { return SendOutcome::Gone };
        let counters = &self.counters;
        match &mut self.places[slot as usize].kind {
            Some(SocketKind::Connection(connection)) => SendOutcome::By(*connection),
            Some(SocketKind::Datagrams(datagrams)) => {
                if !datagrams.waiting.is_empty() {
                    datagrams.keep(bytes, target, token, self.waiting_bound, failed, counters);
                } else if !datagrams.transmit(bytes, target, token, failed, counters) {
                    datagrams.keep(bytes, target, token, self.waiting_bound, failed, counters);
                    let watching = self
                        .readiness
                        .as_ref()
                        .map(|r| r.change(datagrams.socket.as_fd(), name(slot, flow.generation), Wanted::Both));
                    if let Some(Err(error)) = watching {
                        // No event will report that the socket has room, so waiting datagrams are sent with the next
                        // message.
                        tracing::warn!(%error, "a full socket cannot be watched");
                    }
                }
                SendOutcome::Done
            }
            _ => SendOutcome::Gone,
        }
    }

    /// Ends the sockets that the service has closed: datagram sockets here, connections by `end`. Must be called after
    /// the messages of the round are sent.
    pub(crate) fn leave(&mut self, mut end: impl FnMut(u32, Flow)) {
        while let Some(slot) = self.leaving.pop() {
            let flow = self.flow(slot);
            match self.places[slot as usize].kind.take() {
                Some(SocketKind::Datagrams(mut datagrams)) if !datagrams.waiting.is_empty() => {
                    datagrams.leaving = true;
                    self.places[slot as usize].kind = Some(SocketKind::Datagrams(datagrams));
                }
                Some(SocketKind::Datagrams(datagrams)) => self.drop_datagrams(slot, &datagrams),
                Some(SocketKind::Connection(connection)) => {
                    self.free.push(slot);
                    end(connection, flow);
                }
                Some(SocketKind::Opened(_)) => {
                    self.free.push(slot);
                    self.gone(1);
                }
                None => (),
            }
        }
    }

    fn drop_datagrams(&mut self, slot: u32, datagrams: &Datagrams) {
        datagrams.count_drops(&self.counters);
        self.free.push(slot);
        self.gone(1);
    }

    /// Notes that this many dedicated sockets have released their descriptors.
    pub(crate) fn gone(&mut self, sockets: usize) {
        self.held = self.held.saturating_sub(sockets);
        self.counters.dedicated.less(sockets as u64);
    }

    /// Collects the readable sockets, and sends waiting datagrams. Returns whether there may be more readable sockets.
    pub(crate) fn ready(&mut self, cx: &mut Context<'_>, ready: &mut Vec<Ready>, failed: &mut Vec<u64>) -> bool {
        let Some(readiness) = &mut self.readiness else { return false };
        self.unasked = false;
        let more = readiness.poll(cx, ready);
        for one in ready.iter().filter(|one| one.writable) {
            self.resume(one.name, failed);
        }
        more
    }

    #[cold]
    fn resume(&mut self, name: u64, failed: &mut Vec<u64>) {
        let (slot, generation) = (name as u32, (name >> 32) as u32);
        let Some(place) = self.places.get_mut(slot as usize).filter(|p| p.generation == generation) else { return };
        let Some(SocketKind::Datagrams(datagrams)) = &mut place.kind else { return };
        while let Some(first) = datagrams.waiting.pop_front() {
            if !datagrams.transmit(&first.bytes, first.target, first.token, failed, &self.counters) {
                datagrams.waiting.push_front(first);
                return;
            }
            self.counters.datagrams_waiting.less(1);
        }
        if let Some(readiness) = &self.readiness {
            let _ = readiness.change(datagrams.socket.as_fd(), name, Wanted::Reading);
        }
        if datagrams.leaving
            && let Some(SocketKind::Datagrams(datagrams)) = place.kind.take()
        {
            self.drop_datagrams(slot, &datagrams);
        }
    }

    /// Tells whether the shard must not sleep yet, because no event would wake it for a new socket.
    pub(crate) const fn is_unasked(&self) -> bool {
        self.unasked
    }

    /// Receives a batch from a ready socket. Returns the number of datagrams, and the listener and flow of the socket.
    pub(crate) fn receive(&self, name: u64, receiver: &mut Receiver) -> Option<(usize, ListenerId, Flow)> {
        let (slot, generation) = (name as u32, (name >> 32) as u32);
        let place = self.places.get(slot as usize).filter(|p| p.generation == generation)?;
        let Some(SocketKind::Datagrams(datagrams)) = &place.kind else { return None };
        let flow = self.flow(slot);
        match receiver.receive(datagrams.socket.as_fd()) {
            Ok(n) => Some((n, datagrams.listener, flow)),
            Err(error) => {
                let icmp = self.icmp_errors && unreachable::may_be_icmp(&error);
                if !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) && !icmp {
                    self.counters.receive_errors.add(1);
                }
                None
            }
        }
    }

    /// Reads the next unreachable datagram of this dedicated socket: its target, and the length of the quoted part in `room`.
    #[cold]
    pub(crate) fn unreachable(&self, name: u64, room: &mut Vec<u8>) -> Option<(SocketAddr, usize)> {
        let (slot, generation) = (name as u32, (name >> 32) as u32);
        let place = self.places.get(slot as usize).filter(|p| p.generation == generation && self.icmp_errors)?;
        let Some(SocketKind::Datagrams(datagrams)) = &place.kind else { return None };
        loop {
            match unreachable::next(datagrams.socket.as_fd(), room) {
                Ok(Some(found)) => return Some((found.to, found.quoted.len())),
                Ok(None) => (),
                Err(error) if error.kind() == ErrorKind::Interrupted => (),
                Err(_) => return None,
            }
        }
    }
}

/// Counts the datagrams that the kernel dropped before sockets that are still open at the end of the shard.
impl Drop for DedicatedSockets {
    fn drop(&mut self) {
        for place in &self.places {
            if let Some(SocketKind::Datagrams(datagrams)) = &place.kind {
                datagrams.count_drops(&self.counters);
                self.counters.datagrams_waiting.less(datagrams.waiting.len() as u64);
            }
        }
        self.counters.dedicated.less(self.held as u64);
    }
}

fn name(slot: u32, generation: u32) -> u64 {
    u64::from(generation) << 32 | u64::from(slot)
}

/// Begins to connect.
fn connect(from: SocketAddr, to: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    let bound = from.port() != 0 || !from.ip().is_unspecified();
    if bound && from.is_ipv4() == to.is_ipv4() {
        if from.port() == 0 {
            choose_late(&socket);
        } else {
            // The port's earlier connection may still be in TIME-WAIT.
            socket.set_reuse_address(true)?;
        }
        socket.bind(&from.into())?;
    }
    match socket.connect(&to.into()) {
        Ok(()) => (),
        Err(e) if e.raw_os_error() == Some(libc::EINPROGRESS) => (),
        Err(e) => return Err(e),
    }
    Ok(socket.into())
}

/// Lets the kernel choose the port when the connection is made, and not when the address is bound. Then the port must
/// differ only from the ports of connections to the same peer.
fn choose_late(socket: &Socket) {
    // Without the option the port is chosen early.
    let _ = socket_option::set(socket.as_fd(), libc::SOL_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1);
}
