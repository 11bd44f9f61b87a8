//! State of a connection.

use crate::flags::Flags;
use crate::keep_alive::PeerActivity;
use crate::local_fd::LocalFd;
use crate::open_requests::OpenRequests;
use crate::streams::LastSent;
use crate::verified_certificate::VerifiedCertificate;
use crate::{Bounds, clock};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use strowger_core::{Flow, ListenerId, Now, PeerName, Target, Transport};

/// Upper bound of the memory of a connection in bytes.
const PLAIN: usize = 2_048;

/// Further memory of the connection's TLS session in bytes. It holds an incomplete record of up to 16 KB.
const TLS: usize = 32_768;

/// Bytes of a TLS session during the handshake, whose messages may have 64 KB.
const TLS_HANDSHAKE: usize = 81_920;

/// Longest time to connect for messages with a fallback, in milliseconds from the SYN. Most handshakes take less (RFC 8305 section 5 recommends 250).
pub(crate) const FALLBACK_DELAY: u64 = 300;

/// Interval of checks, in milliseconds, whether responses have reached a peer that has ended its side.
const ACKNOWLEDGEMENT_CHECK: u64 = 100;

/// Phase of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Dialling,
    /// Header of a load balancer.
    Header,
    /// TLS handshake.
    Tls,
    /// WebSocket handshake.
    Ws,
    Open,
}

impl Phase {
    /// Returns the first phase of an accepted connection, or the phase after the header of a balancer.
    pub(crate) const fn first(transport: Transport) -> Self {
        match transport {
            Transport::Tls | Transport::Wss => Self::Tls,
            Transport::Ws => Self::Ws,
            Transport::Tcp | Transport::Udp => Self::Open,
        }
    }
}

/// Side that connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Initiator {
    /// This side.
    Own,
    /// The peer.
    Peer,
    /// A load balancer for itself, or one whose header is not complete. It counts for no source.
    Balancer,
    /// A load balancer for a peer, whose address the header names.
    BehindBalancer,
}

pub(crate) struct Connection {
    /// `None` before the attempt to connect begins.
    pub(crate) stream: Option<LocalFd>,
    pub(crate) transport: Transport,
    pub(crate) listener: ListenerId,
    pub(crate) phase: Phase,
    pub(crate) initiator: Initiator,
    pub(crate) remote: SocketAddr,
    /// Server name of a connection made by this side.
    pub(crate) name: Option<PeerName>,
    /// True if a certificate that the peer has shown was verified.
    pub(crate) verified: bool,
    /// Further address that the connection leads to, by the peer's request (RFC 5923).
    pub(crate) alias: Option<Box<Alias>>,
    /// `None` for an open connection of plain TCP.
    pub(crate) layer: Option<Box<Layer>>,
    /// Beginning of an incomplete message.
    pub(crate) partial: Vec<u8>,
    /// True if `partial` may contain complete messages, since the connection's turn ended.
    pub(crate) over_budget: bool,
    /// Length of `partial` that was searched for the end of the header.
    pub(crate) scanned: usize,
    /// Bytes that the socket did not take.
    pub(crate) waiting: Vec<u8>,
    /// Activity of the peer.
    pub(crate) peer: PeerActivity,
    /// Times in milliseconds: the begin of the handshake or of the end, and the next time-out.
    pub(crate) since: u64,
    pub(crate) timeout_at: u64,
    /// Begin of the incomplete message; 0: there is none.
    partial_since: u64,
    /// State of its reading.
    pub(crate) flags: Flags,
    /// Last messages sent over the connection.
    pub(crate) sent: LastSent,
    /// True if the peer has ended its side; its earlier requests are still answered.
    pub(crate) half_closed: bool,
    /// Responses since then, each with another target: if the peer has closed the connection completely, none of them arrives.
    pub(crate) unacknowledged: Vec<(Target, Box<[u8]>)>,
    /// Time of the last check of their arrival (milliseconds).
    pub(crate) checked_at: u64,
    /// Bytes charged to its source.
    pub(crate) charged: u32,
    /// Requests without a final response.
    pub(crate) requests: OpenRequests,
    /// Flow of a dedicated connection, as the service knows it.
    pub(crate) dedicated: Option<Flow>,
    /// True if the service has closed the connection. It ends when everything is sent and the peer has ended it too.
    pub(crate) closing: bool,
}

/// Further address of a connection.
pub(crate) struct Alias {
    pub(crate) address: SocketAddr,
    /// For a secure connection: the peer's certificate.
    pub(crate) certificate: Option<Arc<VerifiedCertificate>>,
}

/// Protocols between the socket and the messages.
#[derive(Default)]
pub(crate) struct Layer {
    /// Boxed: it is large, and WebSocket without TLS has none.
    pub(crate) tls: Option<Box<rustls::Connection>>,
    pub(crate) websocket: bool,
    /// Framed but unencrypted messages that wait until the connection opens, with the shards and tokens that learn of a failure.
    pub(crate) pending: Vec<u8>,
    /// Number of waiting messages.
    pub(crate) pending_messages: u32,
    pub(crate) tokens: Vec<(usize, u64)>,
    /// Time at which the attempt to connect fails, in milliseconds.
    pub(crate) connect_by: u64,
    /// Messages with a fallback. They leave when the connection opens, or fail after [`FALLBACK_DELAY`].
    pub(crate) fallbacks: Vec<Fallback>,
    /// Key of this side's opening handshake.
    pub(crate) key: Option<String>,
    /// A fragmented WebSocket message, and whether one has begun: its first fragment may be empty.
    pub(crate) message: Vec<u8>,
    pub(crate) in_pieces: bool,
}

/// A message with a fallback that waits for its connection.
pub(crate) struct Fallback {
    pub(crate) origin: usize,
    pub(crate) token: u64,
    pub(crate) message: Box<[u8]>,
}

impl Connection {
    pub(crate) fn accepted(
        stream: LocalFd,
        transport: Transport,
        listener: ListenerId,
        remote: SocketAddr,
        layer: Option<Box<Layer>>,
        now: Now,
    ) -> Self {
        Self {
            stream: Some(stream),
            phase: Phase::first(transport),
            initiator: Initiator::Peer,
            // A client is asked for a certificate only if the server verifies certificates.
            verified: true,
            layer,
            ..Self::dialling(transport, listener, remote, now)
        }
    }

    pub(crate) fn dialling(transport: Transport, listener: ListenerId, remote: SocketAddr, now: Now) -> Self {
        let websocket = matches!(transport, Transport::Ws | Transport::Wss);
        Self {
            stream: None,
            transport,
            listener,
            phase: Phase::Dialling,
            initiator: Initiator::Own,
            remote,
            name: None,
            verified: false,
            alias: None,
            layer: Some(Box::new(Layer { websocket, ..Layer::default() })),
            partial: Vec::new(),
            over_budget: false,
            scanned: 0,
            waiting: Vec::new(),
            peer: PeerActivity::new(now.mono),
            since: now.mono,
            timeout_at: u64::MAX,
            partial_since: 0,
            flags: Flags::default(),
            sent: 0,
            half_closed: false,
            unacknowledged: Vec::new(),
            checked_at: 0,
            charged: 0,
            requests: OpenRequests::default(),
            dedicated: None,
            closing: false,
        }
    }

    /// Returns the connection's layer. Must be called before the connection opens: until then a layer always exists.
    pub(crate) fn layer(&mut self) -> &mut Layer {
        self.layer.get_or_insert_default()
    }

    /// Tells whether messages with a fallback wait.
    pub(crate) fn has_fallbacks(&self) -> bool {
        self.layer.as_ref().is_some_and(|layer| !layer.fallbacks.is_empty())
    }

    /// Returns the certificate that the peer of a secure connection has shown.
    pub(crate) fn certificate(&self) -> Option<CertificateDer<'static>> {
        let tls = self.layer.as_ref()?.tls.as_ref()?;
        if tls.is_handshaking() { None } else { Some(tls.peer_certificates()?.first()?.clone().into_owned()) }
    }

    /// Returns the source to which the bytes of the connection are charged; `None` for a balancer.
    pub(crate) fn charged_source(&self) -> Option<IpAddr> {
        (self.initiator != Initiator::Balancer).then(|| self.remote.ip())
    }

    /// Tells whether the peer or a balancer connected to this side.
    pub(crate) const fn is_accepted(&self) -> bool {
        !matches!(self.initiator, Initiator::Own)
    }

    /// Tells whether a balancer connected to this side.
    pub(crate) const fn is_balanced(&self) -> bool {
        matches!(self.initiator, Initiator::Balancer | Initiator::BehindBalancer)
    }

    pub(crate) fn is_partial(&self) -> bool {
        !self.partial.is_empty() || self.is_in_pieces()
    }

    /// Tells whether the first fragments of a WebSocket message have come.
    fn is_in_pieces(&self) -> bool {
        self.layer.as_ref().is_some_and(|l| l.in_pieces)
    }

    /// Tells whether the rest of a message must come in time. While data wait at this side, the rest may be among them;
    /// but further fragments do not put off the end of a message.
    pub(crate) fn awaits_rest(&self) -> bool {
        self.is_in_pieces() || (!self.partial.is_empty() && !self.over_budget)
    }

    /// Returns the time at which the connection must end in its present state.
    pub(crate) fn due(&self, bounds: &Bounds) -> u64 {
        let (from, timeout) = match self.phase {
            // The peer whose end of the connection is awaited has gone.
            _ if self.closing => (self.since, bounds.close_timeout),
            _ if self.half_closed => (self.since, bounds.answer_timeout),
            Phase::Dialling if self.has_fallbacks() => (self.since, Duration::from_millis(FALLBACK_DELAY)),
            Phase::Dialling => return self.connect_by(),
            Phase::Header | Phase::Tls | Phase::Ws => (self.since, bounds.handshake_timeout),
            Phase::Open if self.awaits_rest() => (self.partial_since, bounds.partial_timeout),
            Phase::Open => {
                let longest = bounds.longest_silence(self.is_accepted());
                let in_use_until = self.requests.in_use_until(bounds.lifetimes.transaction, longest);
                return self.before_check(self.peer.due(longest, in_use_until));
            }
        };
        let end = from.saturating_add(timeout.as_millis() as u64);
        if self.phase == Phase::Dialling { end.min(self.connect_by()) } else { self.before_check(end) }
    }

    /// Returns the time at which the attempt to connect fails.
    fn connect_by(&self) -> u64 {
        self.layer.as_ref().map_or(u64::MAX, |layer| layer.connect_by)
    }

    /// Returns the earlier time: `end`, or that of the next check whether responses have arrived.
    fn before_check(&self, end: u64) -> u64 {
        if self.unacknowledged.is_empty() { end } else { end.min(self.checked_at + ACKNOWLEDGEMENT_CHECK) }
    }

    /// Tells whether the system of the peer has not acknowledged all written bytes.
    ///
    /// # Errors
    /// The connection is broken: it never will.
    pub(crate) fn has_unacknowledged(&self) -> io::Result<bool> {
        let Some(stream) = &self.stream else { return Ok(false) };
        if let Some(error) = stream.take_error()? {
            return Err(error);
        }
        Ok(stream.unacknowledged()? > 0 || !self.waiting.is_empty())
    }

    /// Tells whether bytes of the peer wait to be read.
    pub(crate) fn has_unread(&self) -> bool {
        self.stream.as_ref().is_some_and(LocalFd::has_unread)
    }

    /// Notes an incomplete message. Its time limit counts from its first byte.
    pub(crate) fn note_partial(&mut self) {
        if self.partial_since == 0 {
            self.partial_since = clock::now().mono.max(1);
        }
    }

    /// Begins the time limit of the incomplete message again: this side did not read its rest.
    pub(crate) fn begin_partial_again(&mut self, now: Now) {
        if self.partial_since > 0 && !self.is_in_pieces() {
            self.partial_since = now.mono.max(1);
        }
    }

    /// Notes a complete message: if another message has begun, it began later than the noted time.
    pub(crate) fn note_whole(&mut self) {
        if !self.is_partial() {
            self.partial_since = 0;
        }
    }

    /// Returns the approximate number of bytes that this process holds for the peer of the connection, without the
    /// buffers of the kernel.
    pub(crate) fn memory(&self) -> usize {
        let buffers = |layer: &Layer| layer.pending.capacity() + layer.message.capacity() + layer.fallback_bytes();
        let own = match (&self.layer, self.phase) {
            _ if !self.is_accepted() => 0,
            (Some(layer), Phase::Tls) if layer.tls.is_some() => PLAIN + TLS_HANDSHAKE,
            (Some(layer), _) if layer.tls.is_some() => PLAIN + TLS,
            _ => PLAIN,
        };
        let said: usize = self.unacknowledged.iter().map(|said| size_of_val(said) + said.1.len()).sum();
        own + self.layer.as_deref().map_or(0, buffers) + self.partial.capacity() + self.waiting.capacity() + said
    }
}

impl Layer {
    /// Creates the layer of an accepted connection.
    pub(crate) fn accepting(
        transport: Transport,
        config: Option<&Arc<ServerConfig>>,
    ) -> Result<Option<Box<Self>>, rustls::Error> {
        let websocket = matches!(transport, Transport::Ws | Transport::Wss);
        let tls = match config {
            Some(config) if transport.is_secure() => {
                let mut session = ServerConnection::new(config.clone())?;
                // Unsent bytes are bounded after encryption, at the buffer of bytes that the socket did not take.
                session.set_buffer_limit(None);
                Some(Box::new(rustls::Connection::Server(session)))
            }
            _ => None,
        };
        Ok((websocket || tls.is_some()).then(|| Box::new(Self { tls, websocket, ..Self::default() })))
    }

    /// Begins a handshake as client. The server must prove `name`; without a name it must prove its address.
    pub(crate) fn start_tls(
        &mut self,
        config: Arc<ClientConfig>,
        name: Option<&str>,
        address: IpAddr,
    ) -> Result<(), String> {
        let name = match name {
            Some(name) => ServerName::try_from(name.to_owned()).map_err(|e| e.to_string())?,
            None => ServerName::from(address),
        };
        let mut session = ClientConnection::new(config, name).map_err(|e| e.to_string())?;
        session.set_buffer_limit(None);
        self.tls = Some(Box::new(rustls::Connection::Client(session)));
        Ok(())
    }

    /// Returns the size of the messages with a fallback.
    pub(crate) fn fallback_bytes(&self) -> usize {
        self.fallbacks.iter().map(|fallback| fallback.message.len()).sum()
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_handshaking())
    }

    pub(crate) const fn is_plain(&self) -> bool {
        self.tls.is_none() && !self.websocket
    }

    /// Sends a close_notify, which tells the peer that no more data follow, if the socket takes it (RFC 8446 section
    /// 6.1).
    pub(crate) fn send_close_notify(&mut self, stream: &LocalFd) {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
            let mut wire = Vec::new();
            while tls.wants_write() && tls.write_tls(&mut wire).is_ok() {}
            let _: io::Result<usize> = stream.write(&wire);
        }
    }
}
