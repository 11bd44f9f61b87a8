//! Records against rustls. A twin has the keys of a connection of rustls and reads the same bytes: it must find the same data and the same end, and
//! send the same bytes. The peer of both is a third set of records, which can also send what no honest peer sends.

use super::*;
use crate::tls::AnyServer;
use crate::tls::record_format::LONGEST_RECORD;
use rcgen::KeyPair;
use rustls::crypto::{CryptoProvider, aws_lc_rs::default_provider};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::version::{TLS12, TLS13};
use rustls::{
    CipherSuite, ClientConfig, ClientConnection, Connection, ConnectionTrafficSecrets, KeyLog, ServerConfig,
    ServerConnection,
};
use std::fmt;
use std::io::{Read, Write};
use std::sync::{LazyLock, Mutex};

mod conversations;
mod faults;
mod limits;

/// A side of a connection: the twin's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kind {
    suite: Suite,
    version: Version,
    is_client: bool,
}

fn kinds() -> impl Iterator<Item = Kind> {
    let suites = [Suite::Aes128Gcm, Suite::Aes256Gcm, Suite::ChaCha20Poly1305];
    let both = [false, true];
    suites.into_iter().flat_map(move |suite| {
        [Version::Tls12, Version::Tls13]
            .into_iter()
            .flat_map(move |version| both.map(|is_client| Kind { suite, version, is_client }))
    })
}

/// A connection of rustls, its twin, and the peer of both.
struct World {
    kind: Kind,
    rustls: Connection,
    twin: Side,
    peer: Side,
    /// Data that rustls has read.
    plain: Vec<u8>,
    /// Bytes that rustls has sent.
    wire: Vec<u8>,
    /// Error of rustls.
    error: Option<Error>,
    has_closed: bool,
}

/// Records with their buffers.
#[derive(Default)]
struct Side {
    records: Records,
    parts: Fragments,
    /// Incomplete record.
    rest: Vec<u8>,
    plain: Vec<u8>,
    wire: Vec<u8>,
    tickets: Vec<Vec<u8>>,
}

impl Side {
    fn open(&mut self, bytes: &[u8]) {
        self.rest.extend_from_slice(bytes);
        let opened = self.records.open(&mut self.rest, &mut self.parts, &mut self.wire, |ticket| {
            self.tickets.push(ticket.to_vec());
        });
        assert!(opened.rest.end == self.rest.len() && opened.plain <= opened.rest.start);
        self.plain.extend_from_slice(&self.rest[..opened.plain]);
        self.rest.drain(..opened.rest.start);
        assert!(self.rest.len() < LONGEST_RECORD);
    }
}

impl World {
    fn new(kind: Kind) -> Self {
        let secrets = Arc::new(Secrets::default());
        let (client, server) = connect(kind, &secrets);
        let (rustls, keys) = match kind.is_client {
            true => (Connection::Client(client), server.dangerous_extract_secrets()),
            false => (Connection::Server(server), client.dangerous_extract_secrets()),
        };
        let (keys, secrets) = (keys.unwrap(), *secrets.0.lock().unwrap());
        let mut sides = [Side::default(), Side::default()];
        for (side, is_client) in sides.iter_mut().zip([kind.is_client, !kind.is_client]) {
            let records = &mut side.records;
            (records.suite, records.version, records.is_client) = (kind.suite, kind.version, is_client);
            records.secrets = if is_client { secrets } else { [secrets[1], secrets[0]] };
            // The keys are those of the peer.
            let (tx, rx) = if is_client == kind.is_client { (&keys.rx, &keys.tx) } else { (&keys.tx, &keys.rx) };
            fill(&mut records.tx, tx);
            fill(&mut records.rx, rx);
        }
        let [twin, peer] = sides;
        let (plain, wire) = (Vec::new(), Vec::new());
        Self { kind, rustls, twin, peer, plain, wire, error: None, has_closed: false }
    }

    /// Gives bytes to rustls and, in pieces of these sizes in turn, to the twin. Both must see the same.
    fn deliver(&mut self, bytes: &[u8], sizes: &[usize]) {
        let (mut left, mut sizes) = (bytes, sizes.iter().cycle());
        while !left.is_empty() {
            let size = sizes.next().map_or(left.len(), |size| left.len().min(*size));
            let (piece, rest) = left.split_at(size);
            self.twin.open(piece);
            left = rest;
        }
        self.read(bytes);
        assert!(self.plain == self.twin.plain, "{:?}: {} of {}", self.kind, self.twin.plain.len(), self.plain.len());
        let end = match &self.error {
            Some(error) => Some(Err(error.clone())),
            None => self.has_closed.then_some(Ok(())),
        };
        assert_eq!(self.twin.records.end(), end, "{:?}", self.kind);
        assert!(end.is_none() || (self.twin.rest.is_empty() && self.twin.parts.is_empty()));
    }

    /// Gives bytes to rustls.
    fn read(&mut self, mut bytes: &[u8]) {
        let mut room = vec![0; 20_000];
        while !bytes.is_empty() && self.error.is_none() && !self.has_closed {
            self.rustls.read_tls(&mut bytes).unwrap();
            match self.rustls.process_new_packets() {
                Ok(state) => self.has_closed = state.peer_has_closed(),
                Err(error) => self.error = Some(error),
            }
            while let Ok(length @ 1..) = self.rustls.reader().read(&mut room) {
                self.plain.extend_from_slice(&room[..length]);
            }
        }
    }

    /// Takes what rustls sends.
    fn transmit(&mut self) {
        while self.rustls.wants_write() {
            self.rustls.write_tls(&mut self.wire).unwrap();
        }
    }

    /// Lets rustls and the twin send the same data: the bytes must be the same, and the peer must read the data.
    fn write(&mut self, data: &[u8]) {
        self.rustls.writer().write_all(data).unwrap();
        self.transmit();
        assert_eq!(self.twin.records.seal(data, &mut self.twin.wire), Ok(()));
        assert!(self.wire == self.twin.wire, "{:?}: {} of {}", self.kind, self.twin.wire.len(), self.wire.len());
        self.wire.clear();
        let wire = std::mem::take(&mut self.twin.wire);
        self.peer.plain.clear();
        self.peer.open(&wire);
        assert!(
            self.peer.plain == data && self.peer.rest.is_empty() && self.peer.records.end().is_none(),
            "{:?}",
            self.kind
        );
    }
}

/// Secrets of client and server.
struct Secrets(Mutex<[[u8; 48]; 2]>);

impl Default for Secrets {
    fn default() -> Self {
        Self(Mutex::new([[0; 48]; 2]))
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secrets")
    }
}

impl KeyLog for Secrets {
    fn log(&self, label: &str, _: &[u8], secret: &[u8]) {
        let place = match label {
            "CLIENT_TRAFFIC_SECRET_0" => 0,
            "SERVER_TRAFFIC_SECRET_0" => 1,
            _ => return,
        };
        self.0.lock().unwrap()[place][..secret.len()].copy_from_slice(secret);
    }
}

/// Makes a connection of rustls without tickets.
fn connect(kind: Kind, secrets: &Arc<Secrets>) -> (ClientConnection, ServerConnection) {
    let mut provider = default_provider();
    let suite = match (kind.version, kind.suite) {
        (Version::Tls12, Suite::Aes128Gcm) => CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        (Version::Tls12, Suite::Aes256Gcm) => CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        (Version::Tls12, Suite::ChaCha20Poly1305) => CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        (Version::Tls13, Suite::Aes128Gcm) => CipherSuite::TLS13_AES_128_GCM_SHA256,
        (Version::Tls13, Suite::Aes256Gcm) => CipherSuite::TLS13_AES_256_GCM_SHA384,
        (Version::Tls13, Suite::ChaCha20Poly1305) => CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
    };
    provider.cipher_suites.retain(|one| one.suite() == suite);
    connect_by(provider, kind.version, secrets)
}

fn connect_by(
    provider: CryptoProvider,
    version: Version,
    secrets: &Arc<Secrets>,
) -> (ClientConnection, ServerConnection) {
    static CERTIFICATE: LazyLock<(CertificateDer<'static>, KeyPair)> = LazyLock::new(|| {
        let key = KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
        (certificate.der().clone(), key)
    });
    let (provider, version) = (Arc::new(provider), if version == Version::Tls12 { &TLS12 } else { &TLS13 });
    let mut client = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[version])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyServer(provider.clone())))
        .with_no_client_auth();
    (client.enable_secret_extraction, client.key_log) = (true, secrets.clone());
    let key = PrivateKeyDer::try_from(CERTIFICATE.1.serialize_der()).unwrap();
    let mut server = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![CERTIFICATE.0.clone()], key)
        .unwrap();
    (server.enable_secret_extraction, server.key_log, server.send_tls13_tickets) = (true, secrets.clone(), 0);
    let mut client = ClientConnection::new(Arc::new(client), "localhost".try_into().unwrap()).unwrap();
    let mut server = ServerConnection::new(Arc::new(server)).unwrap();
    client.set_buffer_limit(None);
    server.set_buffer_limit(None);
    while client.is_handshaking() || server.is_handshaking() || client.wants_write() || server.wants_write() {
        let mut wire = Vec::new();
        client.write_tls(&mut wire).unwrap();
        server.read_tls(&mut wire.as_slice()).unwrap();
        server.process_new_packets().unwrap();
        wire.clear();
        server.write_tls(&mut wire).unwrap();
        client.read_tls(&mut wire.as_slice()).unwrap();
        client.process_new_packets().unwrap();
    }
    (client, server)
}

fn fill(into: &mut RecordKeys, (seq, keys): &(u64, ConnectionTrafficSecrets)) {
    let (ConnectionTrafficSecrets::Aes128Gcm { key, iv }
    | ConnectionTrafficSecrets::Aes256Gcm { key, iv }
    | ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv }) = keys
    else {
        panic!("there is no other suite")
    };
    into.key[..key.as_ref().len()].copy_from_slice(key.as_ref());
    into.iv.copy_from_slice(iv.as_ref());
    into.seq = *seq;
}

/// Seeded numbers.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }
}

/// Returns a session ticket (RFC 8446 section 4.6.1) with this number of bytes, as handshake message.
fn ticket(length: usize) -> Vec<u8> {
    let mut body = vec![0, 0, 1, 0, 9, 8, 7, 6, 2, 1, 1];
    body.extend_from_slice(&(length as u16).to_be_bytes());
    body.extend(std::iter::repeat_n(5, length));
    body.extend_from_slice(&[0, 8, 0, 42, 0, 4, 0, 0, 0, 0]);
    handshake(NEW_SESSION_TICKET, &body)
}

fn handshake(kind: u8, body: &[u8]) -> Vec<u8> {
    let [_, length @ ..] = (body.len() as u32).to_be_bytes();
    [&[kind], &length[..], body].concat()
}
