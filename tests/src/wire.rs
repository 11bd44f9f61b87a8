//! Client by hand over each transport: sends bytes, receives messages.

use crate::wait;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use socket2::{Domain, Socket, Type};
use tokio_tungstenite::tungstenite::{self, ClientRequestBuilder, Message, WebSocket};

/// Transport of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transport {
    Udp,
    Tcp,
    Tls,
    Ws,
    Wss,
}

/// Every transport.
pub const TRANSPORTS: [Transport; 5] = [Transport::Udp, Transport::Tcp, Transport::Tls, Transport::Ws, Transport::Wss];

impl Transport {
    /// Returns the transport's name in a configuration and in the transport parameter of a URI.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Tcp => "tcp",
            Self::Tls => "tls",
            Self::Ws => "ws",
            Self::Wss => "wss",
        }
    }

    /// Tells whether the transport uses certificates.
    pub const fn is_secure(self) -> bool {
        matches!(self, Self::Tls | Self::Wss)
    }
}

trait Stream: Read + Write + Send {
    fn tcp(&self) -> &TcpStream;
}

impl Stream for TcpStream {
    fn tcp(&self) -> &TcpStream {
        self
    }
}

impl Stream for StreamOwned<ClientConnection, TcpStream> {
    fn tcp(&self) -> &TcpStream {
        &self.sock
    }
}

impl Stream for Box<dyn Stream> {
    fn tcp(&self) -> &TcpStream {
        (**self).tcp()
    }
}

enum Way {
    /// Line of a site without sockets.
    Line(strowger_rig::Line),
    Udp {
        socket: UdpSocket,
        peer: SocketAddr,
    },
    Stream {
        stream: Box<dyn Stream>,
        rest: Vec<u8>,
    },
    Ws(Box<WebSocket<Box<dyn Stream>>>),
}

/// Socket or connection to a server.
pub struct Wire {
    transport: Transport,
    way: Way,
    local: SocketAddr,
}

impl std::fmt::Debug for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} from {}", self.transport.name(), self.local)
    }
}

/// Time limit of connecting and sending.
const LIMIT: Duration = Duration::from_secs(10);

impl Wire {
    /// Connects from a port that the system chooses.
    ///
    /// # Errors
    /// Error of the system, of TLS or of the WebSocket handshake. `authority` is needed for TLS and WSS.
    pub fn connect(transport: Transport, server: SocketAddr, authority: Option<&Path>) -> io::Result<Self> {
        Self::connect_from(transport, SocketAddr::new(any_loopback(server), 0), server, authority)
    }

    /// Opens UDP from a port that the system chooses.
    ///
    /// # Panics
    /// The system has no socket.
    pub fn udp(server: SocketAddr) -> Self {
        Self::connect(Transport::Udp, server, None).expect("loopback has a port")
    }

    /// Connects from an address; port 0 lets the system choose.
    ///
    /// # Errors
    /// See [`Wire::connect`].
    pub fn connect_from(
        transport: Transport,
        from: SocketAddr,
        server: SocketAddr,
        authority: Option<&Path>,
    ) -> io::Result<Self> {
        Self::open(transport, from, server, authority, &[])
    }

    /// Connects as a load balancer does: this header precedes the bytes of the transport.
    ///
    /// # Errors
    /// See [`Wire::connect`].
    pub fn connect_behind(
        header: &[u8],
        transport: Transport,
        server: SocketAddr,
        authority: Option<&Path>,
    ) -> io::Result<Self> {
        Self::open(transport, SocketAddr::new(any_loopback(server), 0), server, authority, header)
    }

    fn open(
        transport: Transport,
        from: SocketAddr,
        server: SocketAddr,
        authority: Option<&Path>,
        header: &[u8],
    ) -> io::Result<Self> {
        if transport == Transport::Udp {
            let socket = UdpSocket::bind(from)?;
            let local = socket.local_addr()?;
            return Ok(Self { transport, way: Way::Udp { socket, peer: server }, local });
        }
        let socket = Socket::new(Domain::for_address(server), Type::STREAM, None)?;
        socket.bind(&from.into())?;
        socket.connect_timeout(&server.into(), LIMIT)?;
        let tcp = TcpStream::from(socket);
        tcp.set_nodelay(true)?;
        tcp.set_read_timeout(Some(LIMIT))?;
        tcp.set_write_timeout(Some(LIMIT))?;
        let local = tcp.local_addr()?;
        (&tcp).write_all(header)?;
        let stream: Box<dyn Stream> = if transport.is_secure() {
            let authority = authority.ok_or_else(|| io::Error::other("TLS without an authority to trust"))?;
            let mut connection = ClientConnection::new(trusting(authority)?, ServerName::from(server.ip()).to_owned())
                .map_err(io::Error::other)?;
            let mut tcp = tcp;
            connection.complete_io(&mut tcp)?;
            Box::new(StreamOwned::new(connection, tcp))
        } else {
            Box::new(tcp)
        };
        let way = match transport {
            Transport::Ws | Transport::Wss => {
                let scheme = transport.name();
                let uri = format!("{scheme}://{server}/").parse().map_err(io::Error::other)?;
                let request = ClientRequestBuilder::new(uri).with_sub_protocol("sip");
                let (socket, _) =
                    tungstenite::client(request, stream).map_err(|error| io::Error::other(error.to_string()))?;
                Way::Ws(Box::new(socket))
            }
            _ => Way::Stream { stream, rest: Vec::new() },
        };
        Ok(Self { transport, way, local })
    }

    /// Uses a line of a site without sockets.
    pub fn of_line(transport: Transport, line: strowger_rig::Line) -> Self {
        Self { transport, local: line.local(), way: Way::Line(line) }
    }

    /// Sends by UDP to another server from now on.
    pub const fn turn_to(&mut self, server: SocketAddr) {
        match &mut self.way {
            Way::Udp { peer, .. } => *peer = server,
            Way::Line(line) => line.turn_to(server),
            Way::Stream { .. } | Way::Ws(_) => {}
        }
    }

    /// Returns the time of its clock, which is virtual for a site without sockets; only differences count.
    pub fn clock(&self) -> Duration {
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        match &self.way {
            Way::Line(line) => line.clock(),
            _ => START.elapsed(),
        }
    }

    /// Returns the source address of this client's messages.
    pub const fn local(&self) -> SocketAddr {
        self.local
    }

    /// Returns the connection's transport.
    pub const fn transport(&self) -> Transport {
        self.transport
    }

    /// Sends bytes: one datagram, one frame, or a piece of the stream.
    ///
    /// # Errors
    /// The connection is gone, or the peer does not read for ten seconds.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.way {
            Way::Line(line) => line.send(bytes),
            Way::Udp { socket, peer } => socket.send_to(bytes, *peer).map(drop),
            Way::Stream { stream, .. } => {
                stream.write_all(bytes)?;
                stream.flush()
            }
            Way::Ws(socket) => {
                let message = match std::str::from_utf8(bytes) {
                    Ok(text) => Message::text(text),
                    Err(_) => Message::binary(bytes.to_vec()),
                };
                socket.send(message).map_err(|error| io::Error::other(error.to_string()))
            }
        }
    }

    /// Returns the next message, or `None` at the limit or when the connection is closed. Skips keep-alives.
    pub fn receive(&mut self, limit: Duration) -> Option<Vec<u8>> {
        if let Way::Line(line) = &self.way {
            return line.receive(limit);
        }
        let end = Instant::now() + limit;
        loop {
            if let Way::Stream { rest, .. } = &mut self.way {
                let blank = rest.iter().take_while(|byte| b"\r\n".contains(byte)).count();
                rest.drain(..blank);
                if let Some(length) = complete(rest) {
                    return Some(rest.drain(..length).collect());
                }
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            match &mut self.way {
                Way::Line(_) => return None,
                Way::Udp { socket, .. } => {
                    socket.set_read_timeout(Some(left)).ok()?;
                    let mut buffer = vec![0; 65_536];
                    let (length, _) = socket.recv_from(&mut buffer).ok()?;
                    buffer.truncate(length);
                    if buffer.iter().any(|byte| !b"\r\n\0".contains(byte)) {
                        return Some(buffer);
                    }
                }
                Way::Stream { stream, rest } => {
                    stream.tcp().set_read_timeout(Some(left)).ok()?;
                    let mut buffer = [0; 16_384];
                    match stream.read(&mut buffer) {
                        Ok(0) | Err(_) => return None,
                        Ok(length) => rest.extend_from_slice(&buffer[..length]),
                    }
                }
                Way::Ws(socket) => {
                    socket.get_ref().tcp().set_read_timeout(Some(left)).ok()?;
                    match socket.read().ok()? {
                        Message::Text(text) if text.trim().is_empty() => {}
                        Message::Text(text) => return Some(text.as_bytes().to_vec()),
                        Message::Binary(bytes) => return Some(bytes.to_vec()),
                        Message::Close(_) => return None,
                        _ => {}
                    }
                }
            }
        }
    }

    /// Returns raw input: bytes of a stream, one datagram or one frame. `None` as for [`Wire::receive`].
    pub fn chunk(&mut self, limit: Duration) -> Option<Vec<u8>> {
        match &mut self.way {
            Way::Stream { stream, rest } => {
                if !rest.is_empty() {
                    return Some(std::mem::take(rest));
                }
                stream.tcp().set_read_timeout(Some(limit.max(Duration::from_millis(1)))).ok()?;
                let mut buffer = vec![0; 65_536];
                let length = stream.read(&mut buffer).ok().filter(|length| *length > 0)?;
                buffer.truncate(length);
                Some(buffer)
            }
            Way::Line(line) => line.chunk(limit),
            Way::Udp { .. } | Way::Ws(_) => self.receive(limit),
        }
    }

    /// Receives until a final response comes; skips provisional responses and requests.
    pub fn final_response(&mut self, limit: Duration) -> Option<Vec<u8>> {
        let end = self.clock() + limit;
        loop {
            let message = self.receive(end.saturating_sub(self.clock()))?;
            if crate::text::status(&message).is_some_and(|status| status >= 200) {
                return Some(message);
            }
        }
    }

    /// Receives until a response above 100 comes.
    pub fn answer(&mut self, limit: Duration) -> Option<Vec<u8>> {
        let end = self.clock() + limit;
        loop {
            let message = self.receive(end.saturating_sub(self.clock()))?;
            if crate::text::status(&message).is_some_and(|status| status > 100) {
                return Some(message);
            }
        }
    }

    /// Receives until a request with this method comes.
    pub fn request(&mut self, method: &str, limit: Duration) -> Option<Vec<u8>> {
        let end = self.clock() + limit;
        loop {
            let message = self.receive(end.saturating_sub(self.clock()))?;
            if crate::text::method(&message).as_deref() == Some(method) {
                return Some(message);
            }
        }
    }

    /// Tells whether the peer closes the connection before the limit; discards its input. By UDP this returns false.
    pub fn closes(&mut self, limit: Duration) -> bool {
        if let Way::Line(line) = &self.way {
            return line.closes(limit);
        }
        let end = Instant::now() + limit;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            match &mut self.way {
                Way::Line(_) | Way::Udp { .. } => return false,
                Way::Stream { stream, .. } => {
                    let _ = stream.tcp().set_read_timeout(Some(left));
                    match stream.read(&mut [0; 16_384]) {
                        Ok(0) => return true,
                        Ok(_) => {}
                        Err(error) if is_timeout(&error) => return false,
                        Err(_) => return true,
                    }
                }
                Way::Ws(socket) => {
                    let _ = socket.get_ref().tcp().set_read_timeout(Some(left));
                    match socket.read() {
                        Ok(Message::Close(_)) => return true,
                        Ok(_) => {}
                        Err(tungstenite::Error::Io(error)) if is_timeout(&error) => return false,
                        Err(_) => return true,
                    }
                }
            }
        }
    }

    /// Tells whether the peer is known to have closed the connection; discards its input.
    pub fn is_closed(&mut self) -> bool {
        if let Way::Line(line) = &self.way {
            return line.closes(Duration::ZERO);
        }
        let Some(tcp) = self.tcp() else { return false };
        if tcp.set_nonblocking(true).is_err() {
            return true;
        }
        let closed = self.closes(Duration::from_secs(3_600));
        let Some(tcp) = self.tcp() else { return false };
        closed || tcp.set_nonblocking(false).is_err()
    }

    /// Tells whether there is unread input; the end of a connection counts as input.
    pub fn has_come(&self) -> bool {
        let is_empty = |peeked: io::Result<usize>| matches!(peeked, Err(error) if is_timeout(&error));
        match (&self.way, self.tcp()) {
            (Way::Line(line), _) => line.has_come(),
            (Way::Udp { socket, .. }, _) => {
                let come = socket.set_nonblocking(true).is_ok() && !is_empty(socket.peek(&mut [0]));
                socket.set_nonblocking(false).is_err() || come
            }
            (_, Some(tcp)) => {
                let come = tcp.set_nonblocking(true).is_err() || !is_empty(tcp.peek(&mut [0]));
                tcp.set_nonblocking(false).is_err() || come
            }
            (_, None) => false,
        }
    }

    fn tcp(&self) -> Option<&TcpStream> {
        match &self.way {
            Way::Line(_) | Way::Udp { .. } => None,
            Way::Stream { stream, .. } => Some(stream.tcp()),
            Way::Ws(socket) => Some(socket.get_ref().tcp()),
        }
    }

    /// Discards received messages.
    pub fn drain(&mut self) {
        while self.receive(Duration::from_millis(1)).is_some() {}
    }
}

/// Opens a listener of the test for one connection of the server.
///
/// # Panics
/// No port is free.
pub fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("loopback has a port");
    let address = listener.local_addr().expect("it is bound");
    (listener, address)
}

/// Accepts the connection of a server to [`listen`].
///
/// # Panics
/// None came before the limit.
pub fn accept(listener: &TcpListener, limit: Duration) -> Wire {
    listener.set_nonblocking(true).expect("a socket can be set");
    let (stream, _) = wait::look(limit, || listener.accept().ok()).expect("the server connects");
    stream.set_nonblocking(false).expect("a socket can be set");
    let local = stream.local_addr().expect("it is connected");
    let way = Way::Stream { stream: Box::new(stream), rest: Vec::new() };
    Wire { transport: Transport::Tcp, way, local }
}

fn any_loopback(server: SocketAddr) -> IpAddr {
    match server.ip() {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(address) => IpAddr::V6(address),
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// Returns the TLS configuration of a client that trusts this authority alone.
///
/// # Errors
/// The file of the authority cannot be read.
pub fn trusting(authority: &Path) -> io::Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    let certificates = CertificateDer::pem_file_iter(authority).map_err(|error| io::Error::other(error.to_string()))?;
    for certificate in certificates {
        let certificate = certificate.map_err(|error| io::Error::other(error.to_string()))?;
        roots.add(certificate).map_err(io::Error::other)?;
    }
    Ok(Arc::new(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth()))
}

/// Returns the length of the first message in a stream, once it is complete (RFC 3261 section 18.3).
fn complete(stream: &[u8]) -> Option<usize> {
    let head = stream.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let length =
        crate::text::field(&stream[..head], "Content-Length").or_else(|| crate::text::field(&stream[..head], "l"));
    let all = head + length.and_then(|length| length.parse::<usize>().ok()).unwrap_or(0);
    (stream.len() >= all).then_some(all)
}
