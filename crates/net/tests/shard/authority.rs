//! An authority in a folder, its certificates, and clients that record the certificate of a server.

use crate::relay::{listener, message};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, ServerConnection, SignatureScheme, StreamOwned,
    SupportedProtocolVersion,
};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use strowger_core::Transport;
use strowger_net::{Listener, tls};

/// An authority; its own certificate is in the file `authority`.
pub(crate) struct Authority {
    folder: tempfile::TempDir,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // A verifier finds an authority by its name.
        params.distinguished_name.push(DnType::CommonName, format!("{:?}", key.public_key_raw()));
        let pem = params.self_signed(&key).unwrap().pem();
        let this = Self { folder: tempfile::tempdir().unwrap(), issuer: Issuer::new(params, key) };
        std::fs::write(this.file("authority"), pem).unwrap();
        this
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a new certificate with these names, and its key. Replaces earlier files.
    pub(crate) fn issue(&self, file: &str, names: &[&str]) -> tls::Certificate {
        self.issue_for(file, names, &KeyPair::generate().unwrap())
    }

    /// Writes a certificate as [`Authority::issue`] does, for this key.
    pub(crate) fn issue_for(&self, file: &str, names: &[&str], key: &KeyPair) -> tls::Certificate {
        let names: Vec<String> = names.iter().map(|&name| name.into()).collect();
        let made = CertificateParams::new(names).unwrap().signed_by(key, &self.issuer).unwrap();
        let certificate = tls::Certificate::new(self.file(&format!("{file}.pem")), self.file(&format!("{file}.key")));
        std::fs::write(&certificate.chain, made.pem()).unwrap();
        std::fs::write(&certificate.key, key.serialize_pem()).unwrap();
        certificate
    }

    /// Returns settings that trust this authority.
    pub(crate) fn trust(&self) -> tls::Client {
        tls::Client { authorities: Some(self.file("authority")), ..tls::Client::default() }
    }
}

/// Reads the certificate of the file.
pub(crate) fn read(certificate: &tls::Certificate) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(&certificate.chain).unwrap()
}

/// Returns a TLS listener with these certificates.
pub(crate) fn secure(certificates: &[&tls::Certificate]) -> Listener {
    let mut server = tls::Server::new(certificates[0].clone());
    server.certificates.extend(certificates[1..].iter().map(|&further| further.clone()));
    Listener { tls: Some(server), ..listener(Transport::Tls, "127.0.0.1:0") }
}

/// Accepts a connection as a server with this certificate.
pub(crate) fn accept(listener: &TcpListener, own: &tls::Certificate) -> StreamOwned<ServerConnection, TcpStream> {
    let (stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let config = tls::Server::new(own.clone()).load().unwrap();
    StreamOwned::new(ServerConnection::new(config).unwrap(), stream)
}

/// TLS settings of a test's client. It accepts any certificate, and keeps sessions to resume them.
#[derive(Clone)]
pub(crate) struct Client(Arc<ClientConfig>);

impl Client {
    /// Creates a client that shows this certificate if asked.
    pub(crate) fn new(versions: &[&'static SupportedProtocolVersion], own: Option<&tls::Certificate>) -> Self {
        Self::knowing(|_| true, versions, own)
    }

    /// Creates a client as [`Client::new`] does that knows only these signatures.
    pub(crate) fn knowing(
        known: fn(SignatureScheme) -> bool,
        versions: &[&'static SupportedProtocolVersion],
        own: Option<&tls::Certificate>,
    ) -> Self {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(versions)
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Any(provider, known)));
        Self(Arc::new(match own {
            None => builder.with_no_client_auth(),
            Some(own) => {
                let key = PrivateKeyDer::from_pem_file(&own.key).unwrap();
                builder.with_client_auth_cert(vec![read(own)], key).unwrap()
            }
        }))
    }

    /// Begins a connection for this name; `None`: it asks for no name.
    pub(crate) fn connect(&self, to: SocketAddr, name: Option<&str>) -> Secured {
        let name =
            name.map_or_else(|| ServerName::from(to.ip()), |name| ServerName::try_from(name.to_owned()).unwrap());
        let stream = TcpStream::connect(to).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        Secured(StreamOwned::new(ClientConnection::new(self.0.clone(), name).unwrap(), stream))
    }
}

/// A TLS connection.
pub(crate) struct Secured(pub(crate) StreamOwned<ClientConnection, TcpStream>);

impl Secured {
    /// Sends a message and receives it back. Returns the server's certificate, or the error.
    pub(crate) fn exchange(&mut self) -> std::io::Result<CertificateDer<'static>> {
        let text = message("ECHO", "1", 20);
        self.0.write_all(text.as_bytes())?;
        self.0.flush()?;
        let mut back = vec![0; text.len()];
        self.0.read_exact(&mut back)?;
        assert_eq!(back, text.as_bytes());
        Ok(self.0.conn.peer_certificates().expect("it has shown one")[0].clone())
    }

    /// Tells whether the handshake resumed a session.
    pub(crate) fn resumed(&self) -> bool {
        self.0.conn.handshake_kind() == Some(rustls::HandshakeKind::Resumed)
    }
}

/// Accepts any certificate, and knows these signatures.
#[derive(Debug)]
struct Any(Arc<CryptoProvider>, fn(SignatureScheme) -> bool);

impl ServerCertVerifier for Any {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0
            .signature_verification_algorithms
            .supported_schemes()
            .into_iter()
            .filter(|scheme| (self.1)(*scheme))
            .collect()
    }
}
