//! TLS handshake without buffers of rustls (RFC 8446 section 4, RFC 5246 section 7), and the change from rustls to own records behind it.
//!
//! rustls sees one record after the other, and none behind the handshake: these are encrypted with the keys that it then gives away, so nothing
//! that belongs to the connection stays in it. A connection that cannot be converted stays with rustls for its life.

mod conversion;

use super::key_log::{self, TrafficSecrets};
use super::record_format::{HEADER, LONGEST_RECORD};
use super::records::Records;
use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::kernel::KernelConnection;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData, EncryptError, UnbufferedStatus};
use rustls::{ClientConfig, CommonState, HandshakeKind, InvalidMessage, ServerConfig};
use std::sync::Arc;

/// Receiver of session tickets that a server sends behind the handshake.
pub(crate) type TicketReceiver = Box<KernelConnection<ClientConnectionData>>;

/// Most bytes that wait for the rest of their handshake message or record.
const LONGEST_WAITING: usize = 65_535 + LONGEST_RECORD;

/// Connection of rustls: during its handshake, and later if it cannot be converted.
pub(crate) struct Handshake(Box<Session>);

struct Session {
    connection: Connection,
    secrets: TrafficSecrets,
    /// Received bytes that rustls holds or has not seen.
    input: Vec<u8>,
    /// Length of the records at the begin of `input` that rustls has read. It holds them for the rest of their handshake message.
    held: usize,
    stage: Stage,
    /// True if the settings allow rustls to give away its keys.
    extracts: bool,
    /// True if the peer has sent a close_notify.
    has_closed: bool,
    failure: Option<rustls::Error>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Handshake,
    /// The handshake is complete, and rustls has seen no record behind it.
    Complete,
    /// rustls reads all records.
    Whole,
}

enum Connection {
    Server(UnbufferedServerConnection),
    Client(UnbufferedClientConnection),
    /// Lost in a conversion that failed.
    Lost,
}

/// Result of a step of rustls.
enum Step {
    More,
    /// More bytes of the peer are needed, or nothing is left to do.
    Idle,
    /// The peer has sent a close_notify.
    PeerClosed,
}

/// Output of an open connection.
#[derive(Clone, Copy)]
enum Output<'a> {
    Data(&'a [u8]),
    CloseNotify,
}

impl Handshake {
    /// Begins as server.
    ///
    /// # Errors
    /// The settings cannot be used.
    pub(crate) fn server(config: Arc<ServerConfig>) -> Result<Self, rustls::Error> {
        let extracts = config.enable_secret_extraction;
        Ok(Self::new(Connection::Server(UnbufferedServerConnection::new(config)?), extracts))
    }

    /// Begins as client; the first call of [`Self::process`] gives the first message. The server must prove `name`.
    ///
    /// # Errors
    /// The settings cannot be used.
    pub(crate) fn client(config: Arc<ClientConfig>, name: ServerName<'static>) -> Result<Self, rustls::Error> {
        let extracts = config.enable_secret_extraction;
        Ok(Self::new(Connection::Client(UnbufferedClientConnection::new(config, name)?), extracts))
    }

    fn new(connection: Connection, extracts: bool) -> Self {
        let (secrets, stage) = (TrafficSecrets::new(), Stage::Handshake);
        Self(Box::new(Session {
            connection,
            secrets,
            input: Vec::new(),
            held: 0,
            stage,
            extracts,
            has_closed: false,
            failure: None,
        }))
    }

    /// Takes received bytes. Records for the peer go to `wire`, also the alert of an error; data of the peer to `plain`. True: the handshake is
    /// complete. The call that completes it leaves the records behind it for [`Self::into_records`]; a further call, also without input, gives
    /// them to rustls, and the connection cannot be converted any more.
    ///
    /// # Errors
    /// The handshake or a record is wrong, as rustls says; or more than 65,535 bytes and one record wait for the rest of a handshake message. The
    /// connection must end, and each further call fails.
    pub(crate) fn process(
        &mut self,
        input: &[u8],
        wire: &mut Vec<u8>,
        plain: &mut Vec<u8>,
    ) -> Result<bool, rustls::Error> {
        let session = &mut *self.0;
        if let Some(failure) = &session.failure {
            return Err(failure.clone());
        }
        if session.stage == Stage::Complete {
            session.stage = Stage::Whole;
        }
        // Bytes behind a close_notify are ignored (RFC 8446 section 6.1).
        if !session.has_closed {
            session.input.extend_from_slice(input);
            key_log::start();
            let result = session.run(wire, plain);
            session.secrets.collect();
            if let Err(error) = result {
                session.fail(error.clone(), wire, plain);
                return Err(error);
            }
        }
        Ok(session.stage != Stage::Handshake)
    }

    /// Returns the kind of the handshake, once it is known.
    pub(crate) fn kind(&self) -> Option<HandshakeKind> {
        self.0.connection.common()?.handshake_kind()
    }

    /// Returns the certificate that the peer has shown, once the handshake is complete. Whether its issuers were verified depends on the settings.
    pub(crate) fn peer_certificate(&self) -> Option<CertificateDer<'static>> {
        let common = self.0.connection.common().filter(|common| !common.is_handshaking())?;
        Some(common.peer_certificates()?.first()?.clone().into_owned())
    }

    /// Tells whether the peer has sent a close_notify, behind all its data.
    pub(crate) fn has_closed(&self) -> bool {
        self.0.has_closed
    }

    /// Moves keys and secrets of a complete handshake to `into`, which must be new; no certificate. Returns the rest of the input, which may have
    /// whole records and must be read at once; and the receiver of tickets of a client of TLS 1.3.
    ///
    /// # Errors
    /// Returns the connection, which stays with rustls: the next call of [`Self::process`] reads the rest of the input. If the keys do not follow
    /// from the reported secrets, which only a defect can cause, this call fails.
    pub(crate) fn into_records(self, into: &mut Records) -> Result<(Vec<u8>, Option<TicketReceiver>), Self> {
        conversion::convert(self.0, into).map_err(Self)
    }

    /// Encrypts data for the peer.
    ///
    /// # Errors
    /// The handshake is not complete, the connection has ended, or its keys are used up (TLS 1.2).
    pub(crate) fn encrypt(&mut self, clear: &[u8], wire: &mut Vec<u8>) -> Result<(), String> {
        if clear.is_empty() {
            return Ok(());
        }
        self.0.send(Output::Data(clear), wire)
    }

    /// Tells the peer that no more data follow, once the handshake is complete (RFC 8446 section 6.1).
    pub(crate) fn close_notify(&mut self, wire: &mut Vec<u8>) {
        // An error means that nothing can be sent: the connection ends without a word.
        let _: Result<(), String> = self.0.send(Output::CloseNotify, wire);
    }
}

impl Session {
    /// Gives rustls one record after the other.
    fn run(&mut self, wire: &mut Vec<u8>, plain: &mut Vec<u8>) -> Result<(), rustls::Error> {
        let mut done = 0;
        loop {
            let next = &self.input[self.held..];
            let length = length_in_header(next).filter(|length| *length <= next.len());
            let end = length.map_or(self.input.len(), |length| self.held + length);
            loop {
                let (discard, step) = self.connection.step(&mut self.input[done..end], wire, plain);
                done += discard;
                match step? {
                    Step::More => (),
                    Step::Idle => break,
                    Step::PeerClosed => {
                        (self.input, self.held, self.has_closed) = (Vec::new(), 0, true);
                        return Ok(());
                    }
                }
            }
            if length.is_none() {
                break;
            }
            self.held = end;
            if self.stage == Stage::Handshake && !self.connection.is_handshaking() {
                self.stage = Stage::Complete;
                break;
            }
        }
        self.input.drain(..done);
        self.held = self.held.saturating_sub(done);
        if self.input.is_empty() {
            self.input = Vec::new();
        }
        if self.stage != Stage::Complete && self.input.len() > LONGEST_WAITING {
            return Err(InvalidMessage::HandshakePayloadTooLarge.into());
        }
        Ok(())
    }

    /// Notes an error, and writes its alert.
    fn fail(&mut self, error: rustls::Error, wire: &mut Vec<u8>, plain: &mut Vec<u8>) {
        (self.input, self.held, self.failure) = (Vec::new(), 0, Some(error));
        // Without output rustls would look for handshake messages that it holds, in an input that is gone.
        while self.connection.common().is_some_and(CommonState::wants_write) {
            if self.connection.step(&mut [], wire, plain).1.is_err() {
                break;
            }
        }
    }

    fn send(&mut self, output: Output<'_>, wire: &mut Vec<u8>) -> Result<(), String> {
        if let Some(failure) = &self.failure {
            return Err(failure.to_string());
        }
        if self.stage == Stage::Complete {
            self.stage = Stage::Whole;
        }
        let held = &mut self.input[..self.held];
        loop {
            let is_sent = match &mut self.connection {
                Connection::Server(server) => send(server.process_tls_records(held), output, wire),
                Connection::Client(client) => send(client.process_tls_records(held), output, wire),
                Connection::Lost => return Err(LOST.into()),
            };
            if is_sent? {
                return Ok(());
            }
        }
    }
}

const LOST: &str = "the connection was lost when its keys were taken from rustls";

impl Connection {
    fn common(&self) -> Option<&CommonState> {
        match self {
            Self::Server(server) => Some(server),
            Self::Client(client) => Some(client),
            Self::Lost => None,
        }
    }

    fn is_handshaking(&self) -> bool {
        self.common().is_none_or(CommonState::is_handshaking)
    }

    /// Lets rustls read `records`, until it has an event. Returns how many of their bytes must be removed.
    fn step(
        &mut self,
        records: &mut [u8],
        wire: &mut Vec<u8>,
        plain: &mut Vec<u8>,
    ) -> (usize, Result<Step, rustls::Error>) {
        match self {
            Self::Server(server) => step(server.process_tls_records(records), wire, plain),
            Self::Client(client) => step(client.process_tls_records(records), wire, plain),
            Self::Lost => (0, Err(rustls::Error::General(LOST.into()))),
        }
    }
}

/// Returns the length of the first record with its header, if the header is complete. rustls says whether the header is right.
fn length_in_header(bytes: &[u8]) -> Option<usize> {
    let header = bytes.first_chunk::<HEADER>()?;
    Some(HEADER + usize::from(u16::from_be_bytes([header[3], header[4]])))
}

fn step<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    wire: &mut Vec<u8>,
    plain: &mut Vec<u8>,
) -> (usize, Result<Step, rustls::Error>) {
    let mut discard = status.discard;
    let step = match status.state {
        Ok(ConnectionState::ReadTraffic(mut traffic)) => loop {
            match traffic.next_record() {
                Some(Ok(record)) => {
                    discard += record.discard;
                    plain.extend_from_slice(record.payload);
                }
                Some(Err(error)) => break Err(error),
                None => break Ok(Step::More),
            }
        },
        Ok(ConnectionState::EncodeTlsData(data)) => {
            encode(data, wire);
            Ok(Step::More)
        }
        // The caller sends `wire`.
        Ok(ConnectionState::TransmitTlsData(sent)) => {
            sent.done();
            Ok(Step::More)
        }
        Ok(ConnectionState::PeerClosed) => Ok(Step::PeerClosed),
        Ok(ConnectionState::WriteTraffic(_) | ConnectionState::BlockedHandshake | ConnectionState::Closed) => {
            Ok(Step::Idle)
        }
        Ok(_) => Err(rustls::Error::General("data before the handshake, which was not offered".into())),
        Err(error) => Err(error),
    };
    (discard, step)
}

/// Sends output if rustls is ready for it. Returns false if another step is needed first.
fn send<Data>(status: UnbufferedStatus<'_, '_, Data>, output: Output<'_>, wire: &mut Vec<u8>) -> Result<bool, String> {
    match status.state.map_err(|error| error.to_string())? {
        ConnectionState::WriteTraffic(mut traffic) => {
            let sent = match output {
                Output::Data(clear) => append(wire, clear.len() + 64, |to| traffic.encrypt(clear, to)),
                Output::CloseNotify => append(wire, 64, |to| traffic.queue_close_notify(to)),
            };
            sent.map(|()| true).map_err(|error| error.to_string())
        }
        ConnectionState::EncodeTlsData(data) => {
            encode(data, wire);
            Ok(false)
        }
        ConnectionState::TransmitTlsData(sent) => {
            sent.done();
            Ok(false)
        }
        ConnectionState::BlockedHandshake => Err("the handshake is not complete".into()),
        _ => Err("the connection is closed".into()),
    }
}

/// Appends a record that rustls has made.
fn encode<Data>(mut data: EncodeTlsData<'_, Data>, wire: &mut Vec<u8>) {
    if let Err(EncodeError::InsufficientSize(size)) = data.encode(&mut []) {
        let start = wire.len();
        wire.resize(start + size.required_size, 0);
        let length = data.encode(&mut wire[start..]).unwrap_or(0);
        wire.truncate(start + length);
    }
}

/// Appends what `write` writes into a buffer of `size` bytes, or of as many as it needs.
fn append(
    wire: &mut Vec<u8>,
    mut size: usize,
    mut write: impl FnMut(&mut [u8]) -> Result<usize, EncryptError>,
) -> Result<(), EncryptError> {
    let start = wire.len();
    loop {
        wire.resize(start + size, 0);
        match write(&mut wire[start..]) {
            Err(EncryptError::InsufficientSize(needed)) if needed.required_size > size => size = needed.required_size,
            written => {
                wire.truncate(start + *written.as_ref().unwrap_or(&0));
                return written.map(|_| ());
            }
        }
    }
}

#[cfg(test)]
mod tests;
