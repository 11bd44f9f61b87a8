//! Settings and peers of the tests: rustls with its buffers, and records that are sealed and opened one by one.

use super::aead::{Context, next_generation};
use super::handshake::Handshake;
use super::key_log::secret_log;
use super::record_format::HEADER;
use super::records::Records;
use rustls::crypto::{CryptoProvider, aws_lc_rs as provider};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{
    ClientConfig, ClientConnection, Connection, Error, RootCertStore, ServerConfig, ServerConnection,
    SupportedCipherSuite,
};
use std::io::{Read, Write};
use std::sync::{Arc, OnceLock};

/// Returns the suites: three of TLS 1.3, and the same three of TLS 1.2.
pub(super) fn suites() -> [SupportedCipherSuite; 6] {
    use provider::cipher_suite::{
        TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384,
        TLS13_CHACHA20_POLY1305_SHA256,
    };
    [
        TLS13_AES_128_GCM_SHA256,
        TLS13_AES_256_GCM_SHA384,
        TLS13_CHACHA20_POLY1305_SHA256,
        TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    ]
}

/// A certificate of "localhost", which is also its authority, and its key.
fn identity() -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
    static IDENTITY: OnceLock<rcgen::CertifiedKey<rcgen::KeyPair>> = OnceLock::new();
    let identity =
        IDENTITY.get_or_init(|| rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a key"));
    (identity.cert.der().clone(), PrivatePkcs8KeyDer::from(identity.signing_key.serialize_der()).into())
}

/// Settings of both sides for this suite; the server asks clients for a certificate if `verifies`.
pub(super) fn configs(suite: SupportedCipherSuite, verifies: bool) -> (ServerConfig, ClientConfig) {
    let mut provider = provider::default_provider();
    provider.cipher_suites.retain(|one| *one == suite);
    configs_by(suite, provider, verifies)
}

/// Settings of both sides whose server accepts only a key exchange of which the client sends no share at first.
pub(super) fn configs_with_retry(suite: SupportedCipherSuite) -> (ServerConfig, ClientConfig) {
    let mut provider = provider::default_provider();
    let (_, client) = configs_by(suite, provider.clone(), false);
    provider.kx_groups = vec![provider::kx_group::SECP384R1];
    (configs_by(suite, provider, false).0, client)
}

fn configs_by(suite: SupportedCipherSuite, provider: CryptoProvider, verifies: bool) -> (ServerConfig, ClientConfig) {
    let (provider, versions) = (Arc::new(provider), [suite.version()]);
    let (certificate, key) = identity();
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).expect("an authority");
    let roots = Arc::new(roots);
    let server = ServerConfig::builder_with_provider(provider.clone()).with_protocol_versions(&versions).expect("one");
    let server = match verifies {
        true => server.with_client_cert_verifier(
            WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone()).build().expect("roots"),
        ),
        false => server.with_no_client_auth(),
    };
    let mut server = server.with_single_cert(vec![certificate.clone()], key.clone_key()).expect("its key");
    server.ticketer = provider::Ticketer::new().expect("random numbers");
    let client = ClientConfig::builder_with_provider(provider).with_protocol_versions(&versions).expect("one");
    let client = client.with_root_certificates(roots);
    let mut client = client.with_client_auth_cert(vec![certificate], key).expect("its key");
    (server.key_log, client.key_log) = (secret_log(), secret_log());
    (server.enable_secret_extraction, client.enable_secret_extraction) = (true, true);
    (server, client)
}

/// Our side as server or client, and rustls at the other end.
pub(super) fn sides(server: &Arc<ServerConfig>, client: &Arc<ClientConfig>, is_client: bool) -> (Handshake, Peer) {
    let name = || "localhost".try_into().expect("a name");
    let (ours, peer) = if is_client {
        let peer = ServerConnection::new(server.clone()).expect("settings");
        (Handshake::client(client.clone(), name()), Connection::Server(peer))
    } else {
        let peer = ClientConnection::new(client.clone(), name()).expect("settings");
        (Handshake::server(server.clone()), Connection::Client(peer))
    };
    (ours.expect("settings"), Peer(peer))
}

/// rustls with its buffers.
pub(super) struct Peer(pub(super) Connection);

impl Peer {
    pub(super) fn flush(&mut self) -> Vec<u8> {
        let mut wire = Vec::new();
        while self.0.wants_write() {
            self.0.write_tls(&mut wire).expect("a vector takes all");
        }
        wire
    }

    /// Reads records, and returns their data.
    pub(super) fn read(&mut self, mut wire: &[u8]) -> Result<Vec<u8>, Error> {
        let mut plain = Vec::new();
        while !wire.is_empty() {
            if self.0.read_tls(&mut wire).expect("room for a record") == 0 {
                break;
            }
            let length = self.0.process_new_packets()?.plaintext_bytes_to_read();
            let start = plain.len();
            plain.resize(start + length, 0);
            self.0.reader().read_exact(&mut plain[start..]).expect("as many as it says");
        }
        Ok(plain)
    }

    pub(super) fn write(&mut self, data: &[u8]) {
        self.0.writer().write_all(data).expect("room for data");
    }
}

/// Result of a handshake.
#[derive(Default)]
pub(super) struct Shaken {
    /// Bytes of the peer behind the handshake that our side has not got.
    pub(super) behind: Vec<u8>,
    pub(super) longest_flight: usize,
    pub(super) kind: Option<rustls::HandshakeKind>,
}

/// Runs a handshake. The first piece of each flight of the peer has at most `first` bytes, each other one at most `then`; `peer_says` is called
/// before each flight of the peer.
pub(super) fn shake(
    ours: &mut Handshake,
    peer: &mut Peer,
    (first, then): (usize, usize),
    mut peer_says: impl FnMut(&mut Peer),
) -> Shaken {
    let (mut wire, mut plain, mut shaken) = (Vec::new(), Vec::new(), Shaken::default());
    let mut is_complete = ours.process(&[], &mut wire, &mut plain).expect("nothing was received");
    for _ in 0..6 {
        peer.read(&std::mem::take(&mut wire)).expect("the handshake goes well");
        peer_says(peer);
        let flight = peer.flush();
        shaken.longest_flight = shaken.longest_flight.max(flight.len());
        let (mut rest, mut size) = (flight.as_slice(), first);
        while !rest.is_empty() && !is_complete {
            let (piece, later) = rest.split_at(size.min(rest.len()));
            is_complete = ours.process(piece, &mut wire, &mut plain).expect("the handshake goes well");
            (rest, size) = (later, then);
        }
        if is_complete {
            peer.read(&wire).expect("the handshake goes well");
            assert!(!peer.0.is_handshaking() && plain.is_empty());
            (shaken.behind, shaken.kind) = (rest.to_vec(), ours.kind());
            return shaken;
        }
    }
    panic!("the handshake does not end");
}

impl Records {
    /// Seals a record of this type by the keys of this side.
    pub(super) fn test_seal(&mut self, kind: u8, clear: &[u8]) -> Vec<u8> {
        let mut wire = Vec::new();
        Context::new(self.suite, self.version, &self.tx).seal(self.tx.seq, kind, clear, &mut wire);
        self.tx.seq += 1;
        wire
    }

    /// Opens whole records of the peer, and returns their types and contents.
    pub(super) fn test_open(&mut self, mut bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
        let mut records = Vec::new();
        while let Some((header, rest)) = bytes.split_first_chunk::<HEADER>() {
            let (payload, rest) = rest.split_at(usize::from(u16::from_be_bytes([header[3], header[4]])));
            let (context, mut payload) = (Context::new(self.suite, self.version, &self.rx), payload.to_vec());
            let opened = context.open(self.rx.seq, *header, &mut payload);
            let (kind, place) = opened.expect("a record under this key");
            self.rx.seq += 1;
            records.push((kind, payload[place].to_vec()));
            bytes = rest;
        }
        records
    }

    /// Replaces the keys of the bytes that this side sends.
    pub(super) fn test_update_sent(&mut self) {
        next_generation(self.suite, &mut self.secrets[0], &mut self.tx);
    }

    /// Replaces the keys of the bytes that this side receives.
    pub(super) fn test_update_received(&mut self) {
        next_generation(self.suite, &mut self.secrets[1], &mut self.rx);
    }
}
