//! Connections of one shard: accepting, connecting, writing, ending.
//!
//! An idle connection is a socket and a [`Connection`] without buffers: reading uses one scratch buffer of the shard, and
//! an incomplete message is kept only while it is incomplete. Sockets report events to the shard, which reads and writes in
//! its round (see [`Streams::collect`] and [`crate::stream_receive`]).

mod accepting;
mod dedicated;
mod dial;
mod ending;
mod posting;
mod sent_log;
mod watching;
mod writing;

pub(crate) use self::posting::Post;
pub(crate) use self::sent_log::LastSent;

use self::dial::Dial;
use self::sent_log::SentLog;
use self::watching::Watch;
use crate::balancers::next_generation;
use crate::connection::{Connection, Fallback, Phase};
use crate::counters::{Count, Counters};
use crate::edge_readiness::{EdgeReadiness, Token, WatchedKind};
use crate::flags::Flags;
use crate::network::Network;
use crate::pressure::{Rests, Turn};
use crate::stream_wait::StreamWait;
use crate::{Bounds, Ending, Unsent, clock, keep_alive, ws};
use rustls::HandshakeKind;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::task::Context;
use strowger_core::log_limiter::LogSubject;
use strowger_core::timer::sooner;
use strowger_core::{Flow, ListenerId, Now, Target, Transport};

/// Maximum number of parts of one `writev`.
const PARTS: usize = 64;

/// Time-outs are rounded up to a multiple of this, in milliseconds, so that many share one wake-up.
const STEP: u64 = 100;

/// Maximum number of connections whose time-outs are computed again in one round, after the bounds have changed.
const RESCHEDULED_PER_ROUND: usize = 256;

pub(crate) struct Streams {
    pub(crate) network: Arc<Network>,
    pub(crate) bounds: Arc<Bounds>,
    pub(crate) counters: Arc<Counters>,
    index: usize,
    slots: Vec<Slot>,
    free: Vec<u32>,
    acceptors: Vec<Acceptor>,
    accept_pause: AcceptPause,
    /// Sockets of connections and listeners.
    edges: EdgeReadiness,
    pub(crate) watch: Watch,
    /// Parts to send in this round.
    round: Vec<Piece>,
    /// Receive buffer, lent to the reader.
    pub(crate) scratch: Vec<u8>,
    /// Output of decryption.
    pub(crate) plain: Vec<u8>,
    /// Turn of the current connection.
    pub(crate) turn: Turn,
    pub(crate) rests: Rests,
    /// Buffer for the data of a connection's next turn.
    pub(crate) rest: Vec<u8>,
    /// Wait of messages of connections.
    pub(crate) wait: StreamWait,
    encryption: Encryption,
    timeouts: BinaryHeap<Reverse<(u64, u32, u32)>>,
    /// Number of the first slots whose time-out may precede their alarm, since the bounds have changed.
    unscheduled: usize,
    /// Counter for the masks of WebSocket frames.
    frames: u64,
    /// Unsent messages: shard, token and cause.
    pub(crate) unsent: Vec<(usize, u64, Unsent)>,
    /// Messages whose connection ended before a response: shard and token.
    pub(crate) cut_off: Vec<(usize, u64)>,
    /// Responses that did not arrive, with their next target.
    pub(crate) resend: Vec<(Target, Box<[u8]>)>,
    sent: SentLog,
    /// Ended connections, with the cause.
    pub(crate) ended: Vec<(Flow, Ending)>,
    /// Dedicated sockets that were connected (false) or opened for messages (true), with the time in µs.
    pub(crate) made: Vec<(Flow, bool, u64)>,
    /// Dedicated sockets that could not be made, and the number of those that have released their descriptors.
    pub(crate) not_made: Vec<Flow>,
    pub(crate) dedicated_gone: usize,
    /// Connections to make.
    dials: Vec<Dial>,
}

/// Pause of accepting, because the process is out of descriptors.
#[derive(Default)]
struct AcceptPause {
    until: Option<u64>,
    /// Time of the last log line about it.
    warned: Option<u64>,
}

/// Input and output of encryption.
#[derive(Default)]
struct Encryption {
    clear: Vec<u8>,
    wire: Vec<u8>,
}

struct Slot {
    generation: u32,
    connection: Option<Box<Connection>>,
}

struct Acceptor {
    socket: TcpListener,
    /// True if connections may wait.
    is_ready: bool,
    listener: ListenerId,
    transport: Transport,
}

struct Piece {
    slot: u32,
    /// Position in the round.
    order: u32,
    range: Range<usize>,
}

impl Streams {
    /// Creates the state inside the runtime of its shard.
    pub(crate) fn new(
        network: Arc<Network>,
        bounds: Arc<Bounds>,
        counters: Arc<Counters>,
        index: usize,
        acceptors: Vec<(TcpListener, ListenerId)>,
    ) -> io::Result<Self> {
        let edges = EdgeReadiness::new()?;
        let acceptor = |(index, (socket, listener)): (u32, (TcpListener, ListenerId))| {
            let transport = network.listeners[listener.0 as usize].transport;
            keep_alive::probe(socket.as_fd());
            edges.add(socket.as_fd(), Token::acceptor(index))?;
            Ok(Acceptor { socket, is_ready: false, listener, transport })
        };
        Ok(Self {
            acceptors: (0..).zip(acceptors).map(acceptor).collect::<io::Result<_>>()?,
            edges,
            watch: Watch::default(),
            sent: SentLog::new(network.settings.remembered),
            bounds,
            network,
            counters,
            index,
            slots: Vec::new(),
            free: Vec::new(),
            accept_pause: AcceptPause::default(),
            round: Vec::new(),
            scratch: vec![0; 65_536],
            plain: Vec::new(),
            turn: Turn::default(),
            rests: Rests::default(),
            rest: Vec::new(),
            wait: StreamWait::default(),
            encryption: Encryption::default(),
            timeouts: BinaryHeap::new(),
            unscheduled: 0,
            frames: 0,
            unsent: Vec::new(),
            cut_off: Vec::new(),
            resend: Vec::new(),
            ended: Vec::new(),
            made: Vec::new(),
            not_made: Vec::new(),
            dedicated_gone: 0,
            dials: Vec::new(),
        })
    }

    pub(crate) fn connection(&mut self, slot: u32) -> Option<&mut Connection> {
        self.slots.get_mut(slot as usize)?.connection.as_deref_mut()
    }

    /// Returns the connection of an event or flow, if the slot still has it.
    pub(crate) fn same(&mut self, slot: u32, generation: u32) -> Option<&mut Connection> {
        let slot = self.slots.get_mut(slot as usize).filter(|s| s.generation == generation)?;
        slot.connection.as_deref_mut()
    }

    /// Returns the flow by which the service knows a connection.
    pub(crate) fn flow(&self, slot: u32) -> Flow {
        let place = &self.slots[slot as usize];
        place.connection.as_ref().and_then(|c| c.dedicated).unwrap_or(Flow {
            node: self.network.settings.node,
            process: self.network.settings.process,
            shard: self.index as u8,
            slot,
            generation: place.generation,
        })
    }

    fn add(&mut self, connection: Connection) -> u32 {
        gauge(&self.counters, connection.transport).add(1);
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, connection: None });
            self.slots.len() as u32 - 1
        });
        let place = &mut self.slots[slot as usize];
        place.generation = next_generation(place.generation, connection.is_balanced());
        place.connection = Some(Box::new(connection));
        self.schedule(slot);
        slot
    }

    /// Fetches events of connections and listeners. Returns whether there may be more.
    pub(crate) fn collect(&mut self, cx: &mut Context<'_>, now: Now) -> bool {
        let Self { edges, watch, slots, acceptors, .. } = self;
        let more = edges.poll(cx, |token, edge| match token.kind() {
            WatchedKind::Acceptor => {
                if let Some(acceptor) = acceptors.get_mut(token.slot() as usize) {
                    acceptor.is_ready = true;
                }
            }
            WatchedKind::Connection => {
                // The slot may have another connection since: an event of an ended one means nothing.
                let place = slots.get_mut(token.slot() as usize).filter(|s| s.generation == token.generation());
                if let Some(connection) = place.and_then(|place| place.connection.as_deref_mut()) {
                    watch.note((token.slot(), token.generation()), connection, edge, now.mono);
                }
            }
        });
        while let Some((slot, generation)) = self.watch.connected.pop() {
            self.connected(slot, generation, now);
        }
        more
    }

    /// Watches the socket of a connection, also for data that have come before. A connection that cannot be watched ends.
    pub(super) fn watch(&mut self, slot: u32) {
        let Some(Slot { generation, connection: Some(connection) }) = self.slots.get(slot as usize) else { return };
        let Some(stream) = &connection.stream else { return };
        if let Err(error) = self.edges.add(stream.as_fd(), Token::connection(slot, *generation)) {
            self.close(slot, &error);
        }
    }

    /// Gives a connection another turn, in the next round. `now`: time in milliseconds.
    pub(crate) fn make_ready(&mut self, slot: u32, now: u64) {
        if let Some(Slot { generation, connection: Some(connection) }) = self.slots.get_mut(slot as usize) {
            self.watch.queue_up((slot, *generation), connection, now);
        }
    }

    /// Ends the rests of connections whose time has come.
    pub(super) fn end_rests(&mut self, now: Now) {
        let mut rests = std::mem::take(&mut self.rests);
        for (slot, generation) in rests.end(now.mono) {
            if let Some(connection) = self.same(slot, generation) {
                connection.flags.remove(Flags::PAUSED);
                self.make_ready(slot, now.mono);
            }
        }
        self.rests = rests;
    }

    /// Tells whether nothing is left to do before the next event or time-out.
    pub(crate) fn is_idle(&self) -> bool {
        let accepts = self.accept_pause.until.is_none() && self.acceptors.iter().any(|acceptor| acceptor.is_ready);
        self.watch.queue.is_empty() && self.watch.resumable.is_empty() && self.dials.is_empty() && !accepts
    }

    /// Enters the next phase if the present phase is complete, after input or a successful connect.
    pub(crate) fn advance(&mut self, slot: u32) {
        self.flush_tls(slot);
        let (network, counters) = (self.network.clone(), self.counters.clone());
        let Some(connection) = self.connection(slot) else { return };
        if connection.phase == Phase::Tls && connection.layer().is_handshaking() {
            return;
        }
        if connection.phase == Phase::Tls {
            let kind = connection.layer().tls.as_ref().and_then(|tls| tls.handshake_kind());
            counters.tls_handshakes.add(1);
            counters.tls_resumed.add(u64::from(kind == Some(HandshakeKind::Resumed)));
        }
        let websocket = matches!(connection.transport, Transport::Ws | Transport::Wss);
        match connection.phase {
            Phase::Dialling | Phase::Tls if websocket => {
                connection.phase = Phase::Ws;
                if connection.is_accepted() {
                    self.charge_source(slot);
                    return;
                }
                let name = connection.name.and_then(|name| network.names.text(name));
                let host = name.map_or_else(|| connection.remote.to_string(), |n| n.to_string());
                let layer = connection.layer();
                let (request, key) = ws::request(&host, std::process::id() as u64 ^ slot as u64);
                layer.key = Some(key);
                self.transmit(slot, &request);
            }
            Phase::Dialling | Phase::Tls => self.open(slot),
            Phase::Header | Phase::Ws | Phase::Open => (),
        }
    }

    /// Opens a connection for messages; waiting messages are sent first.
    pub(crate) fn open(&mut self, slot: u32) {
        let Some(connection) = self.connection(slot) else { return };
        connection.phase = Phase::Open;
        let accepted = connection.is_accepted();
        let (mut before, mut tokens) = (Vec::new(), Vec::new());
        let mut messages = 0;
        let mut fallbacks = Vec::new();
        if let Some(layer) = &mut connection.layer {
            fallbacks = std::mem::take(&mut layer.fallbacks);
            messages = std::mem::take(&mut layer.pending_messages);
            before = std::mem::take(&mut layer.pending);
            tokens = std::mem::take(&mut layer.tokens);
            if layer.is_plain() {
                connection.layer = None;
            }
        }
        if !accepted {
            self.counters.connected.add(1);
            let dedicated = self.connection(slot).and_then(|connection| connection.dedicated);
            self.made.extend(dedicated.map(|flow| (flow, true, clock::micros())));
        }
        for (origin, token) in tokens {
            self.note_sent(slot, origin, token);
        }
        let now = clock::now().mono;
        for Fallback { origin, token, message } in fallbacks {
            self.note_sent(slot, origin, token);
            if let Some(connection) = self.connection(slot) {
                connection.requests.note_sent(&message, now);
            }
            before.extend_from_slice(&message);
            messages += 1;
        }
        if !before.is_empty() {
            self.counters.stream_bytes_waiting.less(before.len() as u64);
            self.counters.stream_messages_out.add(messages.into());
            self.transmit(slot, &before);
        }
        if self.connection(slot).is_some_and(|c| c.closing) {
            self.shut_down(slot);
        }
        self.charge_source(slot);
        self.schedule(slot);
    }

    /// Charges the source of a connection with the bytes that are held for the connection now. Returns false if these
    /// bytes exceed a bound; then the connection has ended. Dedicated sockets are made by this side and have a bound of
    /// their own. For other outbound connections only the bytes caused by the peer count.
    pub(crate) fn charge_source(&mut self, slot: u32) -> bool {
        let (network, bounds, counters) = (self.network.clone(), self.bounds.clone(), self.counters.clone());
        let Some(connection) = self.connection(slot).filter(|c| c.dedicated.is_none()) else { return true };
        let bytes = u32::try_from(connection.memory()).unwrap_or(u32::MAX);
        let (before, source, remote) = (connection.charged, connection.charged_source(), connection.remote);
        if bytes > before {
            let more = bytes - before;
            if !network.sources.charge(source, more as usize, &bounds) {
                counters.memory_refused.add(1);
                if self.may_log(remote) {
                    tracing::info!(source = %remote.ip(), "connection closed: memory limit of its source reached");
                }
                self.close(slot, &"too much is held for its source, or for all");
                return false;
            }
            counters.connection_bytes.add(u64::from(more));
        } else if bytes < before {
            network.sources.refund(source, (before - bytes) as usize);
            counters.connection_bytes.less(u64::from(before - bytes));
        }
        connection.charged = bytes;
        true
    }

    /// Tells whether a line may be logged about a connection of this peer.
    #[cold]
    pub(crate) fn may_log(&self, peer: SocketAddr) -> bool {
        self.network.settings.log_limiter.allow(LogSubject::Connection, peer.ip(), clock::now().mono)
    }

    /// Schedules the connection's next time-out.
    pub(crate) fn schedule(&mut self, slot: u32) {
        let Some(Slot { generation, connection: Some(connection) }) = self.slots.get_mut(slot as usize) else { return };
        let due = connection.due(&self.bounds).next_multiple_of(STEP);
        if due < connection.timeout_at {
            connection.timeout_at = due;
            self.timeouts.push(Reverse((due, slot, *generation)));
        }
    }

    /// Sets the bounds; [`Streams::reschedule`] applies their time-outs to open connections.
    pub(crate) fn set_bounds(&mut self, bounds: Arc<Bounds>) {
        self.bounds = bounds;
        self.unscheduled = self.slots.len();
    }

    /// Applies changed time-outs to connections, to a limited number in each round. Returns whether more connections
    /// are left.
    #[inline]
    pub(crate) fn reschedule(&mut self) -> bool {
        self.unscheduled > 0 && self.reschedule_some()
    }

    #[cold]
    fn reschedule_some(&mut self) -> bool {
        let (from, to) = (self.unscheduled.saturating_sub(RESCHEDULED_PER_ROUND), self.unscheduled);
        for slot in from..to {
            let slot = slot as u32;
            if let Some(connection) = self.connection(slot) {
                // The service is asked again.
                connection.peer.kept_until = 0;
            }
            self.schedule(slot);
        }
        self.unscheduled = from;
        from > 0
    }

    /// Returns the latest time of the next [`Streams::expire`].
    pub(crate) fn deadline(&self) -> Option<u64> {
        let timeout = self.timeouts.peek().map(|Reverse((at, ..))| *at);
        sooner(sooner(timeout, self.accept_pause.until), self.rests.deadline())
    }
}

fn gauge(counters: &Counters, transport: Transport) -> &Count {
    match transport {
        Transport::Udp | Transport::Tcp => &counters.tcp_connections,
        Transport::Tls => &counters.tls_connections,
        Transport::Ws => &counters.ws_connections,
        Transport::Wss => &counters.wss_connections,
    }
}
