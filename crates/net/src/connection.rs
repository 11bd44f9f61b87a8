//! One connection: what is known of it while it lives.

use crate::Settings;
use crate::clock;
use crate::proof::Proof;
use crate::streams::Last;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use strowger_core::{Flow, ListenerId, Now, PeerName, Transport};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;

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
    /// Whom we asked for, of a connection that we made.
    pub(crate) name: Option<PeerName>,
    /// Another address that it leads to, for the peer said so (RFC 5923).
    pub(crate) alias: Option<Box<Alias>>,
    /// None for plain TCP that is open.
    pub(crate) layer: Option<Box<Layer>>,
    /// The start of a message whose rest has not come.
    pub(crate) partial: Vec<u8>,
    /// How far a header in `partial` was searched for its end.
    pub(crate) scanned: usize,
    /// Bytes that the socket did not take.
    pub(crate) waiting: Vec<u8>,
    /// When something was heard last, when `partial` or the handshake began, when to look next (milliseconds).
    pub(crate) heard: u64,
    pub(crate) since: u64,
    pub(crate) check: u64,
    pub(crate) task: Option<AbortHandle>,
    /// What was sent over it last.
    pub(crate) sent: Last,
    /// The peer has said that nothing will follow; what it asked before is still answered.
    pub(crate) finished: bool,
    /// Requests that came and have no final response yet, as far as can be told from the first bytes of messages.
    pub(crate) owed: u32,
    /// By what flow the service knows it, where that is a lane.
    pub(crate) lane: Option<Flow>,
    /// The service is done with it; it ends when everything was said and the peer has ended it too.
    pub(crate) leaving: bool,
}

/// An address that a connection leads to beside its own.
pub(crate) struct Alias {
    pub(crate) address: SocketAddr,
    /// Of a secure one: what the peer proved.
    pub(crate) proof: Option<Arc<Proof>>,
}

/// What lies between the socket and the messages.
#[derive(Default)]
pub(crate) struct Layer {
    /// Apart, for it is large and WebSocket without TLS has none.
    pub(crate) tls: Option<Box<rustls::Connection>>,
    pub(crate) websocket: bool,
    /// Messages, framed but not encrypted, that wait until the connection is open, and who wants to hear if it never is.
    pub(crate) before: Vec<u8>,
    pub(crate) tokens: Vec<(usize, u64)>,
    /// Key of our opening handshake.
    pub(crate) key: Option<String>,
    /// A WebSocket message that comes in pieces.
    pub(crate) message: Vec<u8>,
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
        Self { stream: Some(stream), phase, accepted: true, layer, ..Self::dialling(transport, listener, remote, now) }
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
            alias: None,
            layer: Some(Box::new(Layer { websocket, ..Layer::default() })),
            partial: Vec::new(),
            scanned: 0,
            waiting: Vec::new(),
            heard: now.mono,
            since: now.mono,
            check: u64::MAX,
            task: None,
            sent: 0,
            finished: false,
            owed: 0,
            lane: None,
            leaving: false,
        }
    }

    /// Its layer; before a connection is open there always is one.
    pub(crate) fn layer(&mut self) -> &mut Layer {
        self.layer.get_or_insert_default()
    }

    /// The certificate that the peer of a secure connection has shown.
    pub(crate) fn certificate(&self) -> Option<CertificateDer<'static>> {
        let tls = self.layer.as_ref()?.tls.as_ref()?;
        if tls.is_handshaking() { None } else { Some(tls.peer_certificates()?.first()?.clone().into_owned()) }
    }

    pub(crate) fn is_partial(&self) -> bool {
        !self.partial.is_empty() || self.layer.as_ref().is_some_and(|l| !l.message.is_empty())
    }

    /// When it has to end, as things are.
    pub(crate) fn due(&self, settings: &Settings) -> u64 {
        let (from, patience) = match self.phase {
            // Whoever it was for has gone.
            _ if self.leaving => (self.since, settings.farewell_timeout),
            _ if self.finished => (self.since, settings.answer_timeout),
            Phase::Dialling => (self.since, settings.connect_timeout + settings.handshake_timeout),
            Phase::Tls | Phase::Ws => (self.since, settings.handshake_timeout),
            Phase::Open if self.is_partial() => (self.since, settings.partial_timeout),
            Phase::Open => (self.heard, settings.idle_timeout),
        };
        from.saturating_add(patience.as_millis() as u64)
    }

    /// A message has begun.
    pub(crate) fn began(&mut self) {
        self.since = clock::now().mono;
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

    pub(crate) fn is_shaking_hands(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_handshaking())
    }

    pub(crate) const fn is_plain(&self) -> bool {
        self.tls.is_none() && !self.websocket
    }

    /// Tells the peer that nothing will follow, if the socket takes it.
    pub(crate) fn farewell(&mut self, stream: &TcpStream) {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
            let mut wire = Vec::new();
            while tls.wants_write() && tls.write_tls(&mut wire).is_ok() {}
            let _: io::Result<usize> = stream.try_write(&wire);
        }
    }
}
