//! One connection: what is known of it while it lives.

use crate::streams::LastSent;
use crate::verified_certificate::VerifiedCertificate;
use crate::{Bounds, clock};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;
use strowger_core::{Flow, ListenerId, Now, PeerName, Target, Transport};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;

/// Bytes that a connection holds, with its task; measured.
const PLAIN: usize = 2_048;

/// The same for its TLS session: a record of 16 KB of which the last byte lacks is held by it.
const TLS: usize = 32_768;

/// While it shakes hands: a message of a handshake may have 64 KB.
const TLS_HANDSHAKE: usize = 81_920;

/// Deadline of a connection for messages with a fallback, in milliseconds from the SYN. Most handshakes take less (RFC 8305 section 5
/// recommends 250).
pub(crate) const FALLBACK_DELAY: u64 = 300;

/// How often it is looked whether responses have arrived at a peer that has ended its side, in milliseconds.
const ACKNOWLEDGEMENT_CHECK: u64 = 100;

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Dialling,
    /// TLS shakes hands.
    Tls,
    /// WebSocket shakes hands.
    Ws,
    Open,
}

pub(crate) struct Connection {
    /// None while dialling.
    pub(crate) stream: Option<TcpStream>,
    pub(crate) transport: Transport,
    pub(crate) listener: ListenerId,
    pub(crate) phase: Phase,
    /// The peer made it, not we.
    pub(crate) accepted: bool,
    pub(crate) remote: SocketAddr,
    /// The name that we asked for, of a connection that we made.
    pub(crate) name: Option<PeerName>,
    /// The peer's certificate, if it has shown one, was verified.
    pub(crate) verified: bool,
    /// Another address that it leads to, for the peer said so (RFC 5923).
    pub(crate) alias: Option<Box<Alias>>,
    /// None for plain TCP that is open.
    pub(crate) layer: Option<Box<Layer>>,
    /// The start of a message whose rest has not come.
    pub(crate) partial: Vec<u8>,
    /// Whole messages may lie in `partial`: the connection's turn was over.
    pub(crate) over_budget: bool,
    /// How far a header in `partial` was searched for its end.
    pub(crate) scanned: usize,
    /// Bytes that the socket did not take.
    pub(crate) waiting: Vec<u8>,
    /// When something was read last, when the handshake or the end began, when to look next (milliseconds).
    pub(crate) last_read: u64,
    pub(crate) since: u64,
    pub(crate) timeout_at: u64,
    /// When the message began whose rest has not come; 0: none has.
    partial_since: u64,
    pub(crate) task: Option<AbortHandle>,
    /// What was sent over it last.
    pub(crate) sent: LastSent,
    /// The peer has said that nothing will follow; what it asked before is still answered.
    pub(crate) half_closed: bool,
    /// Responses given to it since, and where else they may go: it may have ended the other side too, and then none of them arrives.
    pub(crate) unacknowledged: Vec<(Target, Box<[u8]>)>,
    /// When it was last looked whether they have arrived (milliseconds).
    pub(crate) checked_at: u64,
    /// Bytes that its source is charged for it.
    pub(crate) charged: u32,
    /// Requests that came and have no final response yet, as far as can be seen from the first bytes of messages.
    pub(crate) unanswered: u32,
    /// By what flow the service knows it, where that is a dedicated socket.
    pub(crate) dedicated: Option<Flow>,
    /// The service is done with it; it ends when everything was said and the peer has ended it too.
    pub(crate) closing: bool,
}

/// An address that a connection leads to beside its own.
pub(crate) struct Alias {
    pub(crate) address: SocketAddr,
    /// Of a secure one: what the peer proved.
    pub(crate) certificate: Option<Arc<VerifiedCertificate>>,
}

/// What lies between the socket and the messages.
#[derive(Default)]
pub(crate) struct Layer {
    /// Apart, for it is large and WebSocket without TLS has none.
    pub(crate) tls: Option<Box<rustls::Connection>>,
    pub(crate) websocket: bool,
    /// Messages, framed but not encrypted, that wait until the connection is open; the shards and tokens to which it is reported if it never is.
    pub(crate) pending: Vec<u8>,
    /// How many those are.
    pub(crate) pending_messages: u32,
    pub(crate) tokens: Vec<(usize, u64)>,
    /// Messages with a fallback. They leave when the connection opens, or fail after [`FALLBACK_DELAY`].
    pub(crate) fallbacks: Vec<Fallback>,
    /// Key of our opening handshake.
    pub(crate) key: Option<String>,
    /// A WebSocket message that comes in pieces, and whether one does: the first may be empty.
    pub(crate) message: Vec<u8>,
    pub(crate) in_pieces: bool,
}

/// Message with a fallback that waits for its connection.
pub(crate) struct Fallback {
    pub(crate) origin: usize,
    pub(crate) token: u64,
    pub(crate) message: Box<[u8]>,
}

impl Connection {
    pub(crate) fn accepted(
        stream: TcpStream,
        transport: Transport,
        listener: ListenerId,
        remote: SocketAddr,
        layer: Option<Box<Layer>>,
        now: Now,
    ) -> Self {
        let phase = match transport {
            Transport::Tls | Transport::Wss => Phase::Tls,
            Transport::Ws => Phase::Ws,
            Transport::Tcp | Transport::Udp => Phase::Open,
        };
        Self {
            stream: Some(stream),
            phase,
            accepted: true,
            // A client is asked for a certificate only where it is verified.
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
            accepted: false,
            remote,
            name: None,
            verified: false,
            alias: None,
            layer: Some(Box::new(Layer { websocket, ..Layer::default() })),
            partial: Vec::new(),
            over_budget: false,
            scanned: 0,
            waiting: Vec::new(),
            last_read: now.mono,
            since: now.mono,
            timeout_at: u64::MAX,
            partial_since: 0,
            task: None,
            sent: 0,
            half_closed: false,
            unacknowledged: Vec::new(),
            checked_at: 0,
            charged: 0,
            unanswered: 0,
            dedicated: None,
            closing: false,
        }
    }

    /// Its layer; before a connection is open there always is one.
    pub(crate) fn layer(&mut self) -> &mut Layer {
        self.layer.get_or_insert_default()
    }

    /// Returns whether messages with a fallback wait.
    pub(crate) fn has_fallbacks(&self) -> bool {
        self.layer.as_ref().is_some_and(|layer| !layer.fallbacks.is_empty())
    }

    /// The certificate that the peer of a secure connection has shown.
    pub(crate) fn certificate(&self) -> Option<CertificateDer<'static>> {
        let tls = self.layer.as_ref()?.tls.as_ref()?;
        if tls.is_handshaking() { None } else { Some(tls.peer_certificates()?.first()?.clone().into_owned()) }
    }

    pub(crate) fn is_partial(&self) -> bool {
        !self.partial.is_empty() || self.layer.as_ref().is_some_and(|l| l.in_pieces)
    }

    /// When it has to end, as things are.
    pub(crate) fn due(&self, bounds: &Bounds) -> u64 {
        let (from, timeout) = match self.phase {
            // The peer that it was for has gone.
            _ if self.closing => (self.since, bounds.close_timeout),
            _ if self.half_closed => (self.since, bounds.answer_timeout),
            Phase::Dialling if self.has_fallbacks() => (self.since, Duration::from_millis(FALLBACK_DELAY)),
            Phase::Dialling => (self.since, bounds.connect_timeout + bounds.handshake_timeout),
            Phase::Tls | Phase::Ws => (self.since, bounds.handshake_timeout),
            Phase::Open if self.is_partial() => (self.partial_since, bounds.partial_timeout),
            Phase::Open => (self.last_read, bounds.idle_timeout),
        };
        let end = from.saturating_add(timeout.as_millis() as u64);
        if self.unacknowledged.is_empty() { end } else { end.min(self.checked_at + ACKNOWLEDGEMENT_CHECK) }
    }

    /// Whether the peer's system has not acknowledged yet all that was written.
    ///
    /// # Errors
    /// It never will: the connection is broken.
    pub(crate) fn has_unacknowledged(&self) -> io::Result<bool> {
        let Some(stream) = &self.stream else { return Ok(false) };
        if let Some(error) = stream.take_error()? {
            return Err(error);
        }
        let mut bytes: libc::c_int = 0;
        // SAFETY: the kernel writes one number, to a variable of ours.
        if unsafe { libc::ioctl(stream.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(bytes > 0 || !self.waiting.is_empty())
    }

    /// Something came that is no whole message. Its time counts from its first byte.
    pub(crate) fn note_partial(&mut self) {
        if self.partial_since == 0 {
            self.partial_since = clock::now().mono.max(1);
        }
    }

    /// A message is whole: if another has begun, it began later.
    pub(crate) fn note_whole(&mut self) {
        if !self.is_partial() {
            self.partial_since = 0;
        }
    }

    /// About how many bytes its peer has us hold, those of the kernel aside.
    pub(crate) fn memory(&self) -> usize {
        let buffers = |layer: &Layer| layer.pending.capacity() + layer.message.capacity() + layer.fallback_bytes();
        let own = match (&self.layer, self.phase) {
            _ if !self.accepted => 0,
            (Some(layer), Phase::Tls) if layer.tls.is_some() => PLAIN + TLS_HANDSHAKE,
            (Some(layer), _) if layer.tls.is_some() => PLAIN + TLS,
            _ => PLAIN,
        };
        let said: usize = self.unacknowledged.iter().map(|said| size_of_val(said) + said.1.len()).sum();
        own + self.layer.as_deref().map_or(0, buffers) + self.partial.capacity() + self.waiting.capacity() + said
    }
}

impl Layer {
    /// For a connection just accepted.
    pub(crate) fn accepting(
        transport: Transport,
        config: Option<&Arc<ServerConfig>>,
    ) -> Result<Option<Box<Self>>, rustls::Error> {
        let websocket = matches!(transport, Transport::Ws | Transport::Wss);
        let tls = match config {
            Some(config) if transport.is_secure() => {
                let mut session = ServerConnection::new(config.clone())?;
                // What waits is bounded after encryption, where the socket does not take it.
                session.set_buffer_limit(None);
                Some(Box::new(rustls::Connection::Server(session)))
            }
            _ => None,
        };
        Ok((websocket || tls.is_some()).then(|| Box::new(Self { tls, websocket, ..Self::default() })))
    }

    /// Begins a handshake as client. The server must prove `name`, or its address if that is not known.
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

    /// Size of the messages with a fallback.
    pub(crate) fn fallback_bytes(&self) -> usize {
        self.fallbacks.iter().map(|fallback| fallback.message.len()).sum()
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_handshaking())
    }

    pub(crate) const fn is_plain(&self) -> bool {
        self.tls.is_none() && !self.websocket
    }

    /// Says to the peer that nothing will follow, if the socket takes it (RFC 8446 section 6.1).
    pub(crate) fn send_close_notify(&mut self, stream: &TcpStream) {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
            let mut wire = Vec::new();
            while tls.wants_write() && tls.write_tls(&mut wire).is_ok() {}
            let _: io::Result<usize> = stream.try_write(&wire);
        }
    }
}
