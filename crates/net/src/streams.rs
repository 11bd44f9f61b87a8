//! Connections of one shard: accepting, connecting, writing, ending.
//!
//! An idle connection is a socket, a small task and a [`Connection`] without buffers: reading uses one scratch buffer
//! of the shard, and an incomplete message is kept only while it is incomplete. The main future writes; a connection's
//! task only reads (see [`crate::stream_receive`]).

mod accepting;
mod dedicated;
mod dial;
mod ending;
mod posting;
mod sent_log;
mod writing;

pub(crate) use self::posting::Post;
pub(crate) use self::sent_log::LastSent;

use self::dial::Dial;
use self::sent_log::SentLog;
use crate::balancers::next_generation;
use crate::connection::{Connection, Fallback, Phase};
use crate::counters::{Count, Counters};
use crate::network::Network;
use crate::pressure::{Rests, Turn};
use crate::stream_wait::StreamWait;
use crate::{Bounds, Ending, Unsent, clock, keep_alive, timestamp, ws};
use rustls::HandshakeKind;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;
use strowger_core::log_limiter::LogSubject;
use strowger_core::timer::sooner;
use strowger_core::{Flow, ListenerId, Now, Target, Transport};
use tokio::io::Interest;
use tokio::net::{TcpListener, TcpStream};

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
    /// Connections with bytes that their sockets did not take.
    blocked: Vec<u32>,
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
    /// Connections that need a task for reading.
    pub(crate) without_task: Vec<(u32, u32)>,
    /// Connections to make.
    pub(crate) dials: Vec<Dial>,
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
        acceptors: Vec<(std::net::TcpListener, ListenerId)>,
    ) -> io::Result<Self> {
        let acceptor = |(socket, listener): (std::net::TcpListener, ListenerId)| {
            let transport = network.listeners[listener.0 as usize].transport;
            keep_alive::probe(socket.as_fd());
            Ok(Acceptor { socket: TcpListener::from_std(socket)?, listener, transport })
        };
        Ok(Self {
            acceptors: acceptors.into_iter().map(acceptor).collect::<io::Result<_>>()?,
            sent: SentLog::new(network.settings.remembered),
            bounds,
            network,
            counters,
            index,
            slots: Vec::new(),
            free: Vec::new(),
            accept_pause: AcceptPause::default(),
            blocked: Vec::new(),
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
            without_task: Vec::new(),
            dials: Vec::new(),
        })
    }

    pub(crate) fn connection(&mut self, slot: u32) -> Option<&mut Connection> {
        self.slots.get_mut(slot as usize)?.connection.as_deref_mut()
    }

    /// Returns the connection of a task or flow, if the slot still has it.
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

    /// Continues after an attempt to connect.
    pub(crate) fn dialled(&mut self, slot: u32, generation: u32, result: io::Result<TcpStream>, now: Now) {
        let network = self.network.clone();
        let Some(connection) = self.same(slot, generation) else { return };
        let stream = match result {
            Ok(stream) => stream,
            Err(error) => {
                self.counters.connects_failed.add(1);
                return self.close(slot, &error);
            }
        };
        let _ = stream.set_nodelay(true);
        if connection.dedicated.is_none() {
            keep_alive::probe(stream.as_fd());
        }
        if network.settings.scheduling.timestamps {
            timestamp::enable(stream.as_fd());
        }
        connection.stream = Some(stream);
        connection.peer.last_read = now.mono;
        let dedicated = connection.dedicated;
        self.made.extend(dedicated.map(|flow| (flow, false, clock::micros())));
        let Some(connection) = self.same(slot, generation) else { return };
        let name = connection.name.map(|name| network.names.text(name));
        let started = match connection.transport {
            Transport::Tls | Transport::Wss => {
                connection.phase = Phase::Tls;
                let address = connection.remote.ip();
                let identities = network.identities.load();
                connection.verified = identities.verifies();
                let config = identities.client(connection.remote.port());
                match &name {
                    Some(None) => {
                        Err("the name that its peer must prove was forgotten: too many others were asked for since"
                            .into())
                    }
                    Some(Some(name)) => connection.layer().start_tls(config, Some(name), address),
                    None => connection.layer().start_tls(config, None, address),
                }
            }
            _ => Ok(()),
        };
        self.without_task.push((slot, generation));
        match started {
            Err(error) => self.close(slot, &error),
            Ok(()) => self.advance(slot),
        }
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

/// Clears the readiness of the stream.
pub(crate) fn drained(stream: &TcpStream, read: impl FnOnce() -> io::Result<bool>) -> io::Result<()> {
    stream.try_io(Interest::READABLE, || if read()? { Ok(()) } else { Err(ErrorKind::WouldBlock.into()) })
}
