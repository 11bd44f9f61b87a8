//! Certificates, verification of peers, and reports of failures.

mod aead;
mod certificate;
mod decryption;
mod fragments;
#[cfg_attr(not(test), expect(dead_code, reason = "until connections use it"))]
mod handshake;
mod identities;
#[cfg_attr(not(test), expect(dead_code, reason = "until connections use it"))]
mod key_log;
mod record_fault;
mod record_format;
#[cfg_attr(not(test), expect(dead_code, reason = "until connections use it"))]
mod records;
mod sessions;
mod sni;
#[cfg(test)]
mod test_peer;
#[cfg_attr(not(test), expect(dead_code, reason = "until listeners use it"))]
mod ticket_keys;

pub use certificate::Certificate;
pub use identities::Identities;

pub(crate) use decryption::decrypt;

use certificate::{authorities, bad, revocations};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::sign::SingleCertAndKey;
use rustls::version::{TLS12, TLS13};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, PeerIncompatible, RootCertStore,
    ServerConfig, SignatureScheme, SupportedProtocolVersion,
};
use sessions::SessionStore;
use sni::Certificates;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Certificates and client verification of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Certificates, at least one. A client that asks for a name (SNI, RFC 6066 section 3) gets the certificate valid for it: of several the first
    /// with a kind of key that the client knows. A client that asks for none, or for another one, gets the first.
    pub certificates: Vec<Certificate>,
    /// PEM file of authorities; if set, clients must show a certificate of theirs.
    pub client_authorities: Option<PathBuf>,
    /// PEM file of revocation lists (RFC 5280 section 5), for certificates of clients: see [`Client::revoked`].
    pub revoked: Option<PathBuf>,
    /// Versions of TLS.
    pub versions: Versions,
}

/// Verification of servers in outbound connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// PEM file of authorities.
    pub authorities: Option<PathBuf>,
    /// Trust any certificate: for tests and closed networks. If this is false and there are no `authorities`, none is
    /// trusted.
    pub unverified: bool,
    /// Own certificate, if peers ask for one.
    pub certificate: Option<Certificate>,
    /// PEM file of revocation lists (RFC 5280 section 5). If set, every certificate between the peer and an authority
    /// needs a current list of its issuer that does not name it. Only useful with `authorities`.
    pub revoked: Option<PathBuf>,
    /// Versions of TLS.
    pub versions: Versions,
    /// Limit of sessions of each server that are kept for resumption: each connection uses one. Default 1,024, at least 1.
    pub sessions: usize,
}

impl Default for Client {
    fn default() -> Self {
        let versions = Versions::All;
        Self { authorities: None, unverified: false, certificate: None, revoked: None, versions, sessions: 1_024 }
    }
}

/// Supported versions of TLS. Those before 1.2 are deprecated (RFC 8996) and not available.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Versions {
    /// 1.2 and 1.3: the highest that the peer supports.
    #[default]
    All,
    /// Only 1.2.
    Only12,
    /// Only 1.3.
    Only13,
}

/// Callback for each failed handshake of TLS or WebSocket, and for each connection that TLS ends by an error, with the peer's address and the reason.
#[derive(Clone)]
pub struct OnFailure(Arc<Call>);

type Call = dyn Fn(SocketAddr, &str) + Send + Sync;

impl OnFailure {
    /// Wraps a callback. `call` runs on the threads of shards and must not block.
    pub fn new(call: impl Fn(SocketAddr, &str) + Send + Sync + 'static) -> Self {
        Self(Arc::new(call))
    }

    pub(crate) fn call(&self, peer: SocketAddr, why: &str) {
        (self.0)(peer, why);
    }
}

impl std::fmt::Debug for OnFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OnFailure")
    }
}

/// Newest version first.
static ALL_VERSIONS: &[&SupportedProtocolVersion] = &[&TLS13, &TLS12];

impl Versions {
    fn supported(self) -> &'static [&'static SupportedProtocolVersion] {
        match self {
            Self::All => ALL_VERSIONS,
            Self::Only12 => ALL_VERSIONS.split_at(1).1,
            Self::Only13 => ALL_VERSIONS.split_at(1).0,
        }
    }
}

impl Server {
    /// Creates settings with this certificate and no client verification.
    pub fn new(certificate: Certificate) -> Self {
        Self { certificates: vec![certificate], client_authorities: None, revoked: None, versions: Versions::All }
    }

    /// Reads the files.
    ///
    /// # Errors
    /// A file cannot be read or used, and is named; or there is no certificate.
    pub fn load(&self) -> io::Result<Arc<ServerConfig>> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let all: Vec<_> = self.certificates.iter().map(|one| one.load(&provider)).collect::<io::Result<_>>()?;
        if all.is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no certificate given"));
        }
        let certificates = Certificates::new(all).map_err(|(i, why)| bad(&self.certificates[i].chain, why))?;
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(self.versions.supported())
            .map_err(io::Error::other)?;
        let builder = match (&self.client_authorities, &self.revoked) {
            (None, Some(list)) => return Err(without_authorities(list)),
            (None, None) => builder.with_no_client_auth(),
            (Some(path), list) => {
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(authorities(path)?), provider);
                let verifier = match list {
                    None => verifier,
                    Some(list) => verifier.with_crls(revocations(list)?).enforce_revocation_expiration(),
                };
                let at_fault = list.as_ref().unwrap_or(path);
                builder.with_client_cert_verifier(verifier.build().map_err(|e| bad(at_fault, e))?)
            }
        };
        let mut config = builder.with_cert_resolver(Arc::new(certificates));
        // Clients keep the tickets for resumption, so sessions cost no memory here.
        config.ticketer = aws_lc_rs::Ticketer::new().map_err(io::Error::other)?;
        Ok(Arc::new(config))
    }
}

impl Client {
    /// Reads the files.
    ///
    /// # Errors
    /// A file cannot be read or used, and is named.
    pub fn load(&self) -> io::Result<Arc<ClientConfig>> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let own = self.certificate.as_ref().map(|own| own.load(&provider)).transpose()?;
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(self.versions.supported())
            .map_err(io::Error::other)?;
        if let Some(list) = self.revoked.as_ref().filter(|_| self.unverified || self.authorities.is_none()) {
            return Err(without_authorities(list));
        }
        let builder = if self.unverified {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyServer(provider)))
        } else {
            let roots = match &self.authorities {
                Some(path) => authorities(path)?,
                None => RootCertStore::empty(),
            };
            match &self.revoked {
                None => builder.with_root_certificates(roots),
                Some(path) => {
                    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
                        .with_crls(revocations(path)?)
                        .enforce_revocation_expiration();
                    builder.with_webpki_verifier(verifier.build().map_err(|e| bad(path, e))?)
                }
            }
        };
        let mut config = match own {
            None => builder.with_no_client_auth(),
            Some(own) => builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(own))),
        };
        config.resumption = Resumption::store(Arc::new(SessionStore::new(self.sessions)));
        Ok(Arc::new(config))
    }
}

/// Tells whether a certificate, whose issuers were verified, is valid for the intended peer.
pub(crate) fn is_valid_for(certificate: &CertificateDer<'_>, meant: &ServerName<'_>) -> bool {
    ParsedCertificate::try_from(certificate).and_then(|parsed| verify_server_name(&parsed, meant)).is_ok()
}

/// Error: a revocation list without an authority that could have signed it.
fn without_authorities(list: &Path) -> io::Error {
    bad(list, "a revocation list needs the authorities whose certificates are to be checked")
}

/// Describes a failed handshake for the operator.
pub(crate) fn reason(error: &rustls::Error) -> String {
    use rustls::Error::{AlertReceived, InvalidCertificate, NoCertificatesPresented};
    let text = match error {
        InvalidCertificate(CertificateError::Revoked) => "the peer's certificate is revoked",
        InvalidCertificate(CertificateError::UnknownRevocationStatus) => {
            "whether the peer's certificate is revoked is not known: there is no revocation list of its issuer"
        }
        InvalidCertificate(
            CertificateError::ExpiredRevocationList | CertificateError::ExpiredRevocationListContext { .. },
        ) => "whether the peer's certificate is revoked is not known: the revocation list of its issuer is out of date",
        // A single command of OpenSSL makes such a certificate, and browsers accept such certificates.
        InvalidCertificate(CertificateError::Other(why)) if why.to_string() == "CaUsedAsEndEntity" => {
            "the peer shows the certificate of an authority as its own (openssl req -x509 makes such, unless told \
             -addext basicConstraints=critical,CA:FALSE)"
        }
        NoCertificatesPresented => "the peer shows no certificate",
        AlertReceived(AlertDescription::CertificateRevoked) => "the peer says that our certificate is revoked",
        AlertReceived(AlertDescription::CertificateRequired) => "the peer demands a certificate, and we showed none",
        AlertReceived(AlertDescription::ProtocolVersion) => {
            "the peer speaks no version of TLS that is allowed here (its alert: protocol_version)"
        }
        rustls::Error::PeerIncompatible(
            PeerIncompatible::ServerDoesNotSupportTls12Or13
            | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig
            | PeerIncompatible::SupportedVersionsExtensionRequired
            | PeerIncompatible::Tls12NotOffered
            | PeerIncompatible::Tls12NotOfferedOrEnabled,
        ) => "the peer speaks no version of TLS that is allowed here",
        other => return other.to_string(),
    };
    text.into()
}

/// Trusts every server, but checks that it holds the key of its certificate.
#[derive(Debug)]
struct AnyServer(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyServer {
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
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{
        BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer, KeyIdMethod,
        KeyPair, RevokedCertParams, SerialNumber, date_time_ymd,
    };
    use rustls::{ClientConnection, Connection, ServerConnection};

    /// An authority, a certificate of "localhost" with its number, and revocation lists.
    struct World {
        folder: tempfile::TempDir,
        issuer: Issuer<'static, KeyPair>,
    }

    impl World {
        fn new() -> Self {
            let key = KeyPair::generate().unwrap();
            let mut authority = CertificateParams::new(Vec::new()).unwrap();
            authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let pem = authority.self_signed(&key).unwrap().pem();
            let world = Self { folder: tempfile::tempdir().unwrap(), issuer: Issuer::new(authority, key) };
            world.write("authority", &pem);
            let key = KeyPair::generate().unwrap();
            let mut own = CertificateParams::new(["localhost".to_owned()]).unwrap();
            own.serial_number = Some(SerialNumber::from(7));
            world.write("certificate", &own.signed_by(&key, &world.issuer).unwrap().pem());
            world.write("key", &key.serialize_pem());
            world.write("others", &world.list(8, 2040));
            world.write("ours", &world.list(7, 2040));
            world.write("old", &world.list(8, 2024));
            let mut foreign = CertificateParams::default();
            foreign.distinguished_name.push(DnType::CommonName, "foreign");
            world.write("foreign", &world.list_of(&Issuer::new(foreign, key), 8, 2040));
            world
        }

        fn list(&self, number: u64, until: i32) -> String {
            self.list_of(&self.issuer, number, until)
        }

        fn list_of(&self, issuer: &Issuer<'_, KeyPair>, number: u64, until: i32) -> String {
            let revoked = RevokedCertParams {
                serial_number: SerialNumber::from(number),
                revocation_time: date_time_ymd(2023, 2, 1),
                reason_code: None,
                invalidity_date: None,
            };
            let list = CertificateRevocationListParams {
                this_update: date_time_ymd(2023, 3, 1),
                next_update: date_time_ymd(until, 1, 1),
                crl_number: SerialNumber::from(1),
                issuing_distribution_point: None,
                revoked_certs: vec![revoked],
                key_identifier_method: KeyIdMethod::Sha256,
            };
            list.signed_by(issuer).unwrap().pem().unwrap()
        }

        fn write(&self, name: &str, text: &str) {
            std::fs::write(self.at(name), text).unwrap();
        }

        fn at(&self, name: &str) -> PathBuf {
            self.folder.path().join(name)
        }

        fn certificate(&self) -> Certificate {
            Certificate::new(self.at("certificate"), self.at("key"))
        }

        fn server(&self) -> Server {
            Server::new(self.certificate())
        }

        fn client(&self) -> Client {
            let certificate = Some(self.certificate());
            Client { authorities: Some(self.at("authority")), certificate, ..Client::default() }
        }
    }

    /// Returns the errors of both sides of a handshake, client first; none if it succeeds.
    fn shake(client: &Client, server: &Server) -> [Option<String>; 2] {
        let client = ClientConnection::new(client.load().unwrap(), "localhost".try_into().unwrap()).unwrap();
        let server = ServerConnection::new(server.load().unwrap()).unwrap();
        let mut sides = [Connection::Client(client), Connection::Server(server)];
        let mut said = [None, None];
        for _ in 0..6 {
            for from in [0, 1] {
                let mut wire = Vec::new();
                while sides[from].wants_write() && sides[from].write_tls(&mut wire).is_ok() {}
                let mut rest = wire.as_slice();
                while !rest.is_empty() && said[1 - from].is_none() {
                    sides[1 - from].read_tls(&mut rest).unwrap();
                    said[1 - from] = sides[1 - from].process_new_packets().err().map(|e| reason(&e));
                }
            }
        }
        assert!(said.iter().any(Option::is_some) || sides.iter().all(|side| !side.is_handshaking()));
        said
    }

    #[test]
    fn sides_without_a_common_version_say_so() {
        let world = World::new();
        let of = |client, server| {
            let client = Client { versions: client, ..world.client() };
            shake(&client, &Server { versions: server, ..world.server() })
        };
        use Versions::{All, Only12, Only13};
        for (client, server) in
            [(All, All), (All, Only12), (All, Only13), (Only12, All), (Only13, All), (Only13, Only13)]
        {
            assert_eq!(of(client, server), [None, None], "{client:?} {server:?}");
        }
        for (client, server) in [(Only12, Only13), (Only13, Only12)] {
            for said in of(client, server) {
                assert!(
                    said.as_ref().is_some_and(|s| s.contains("no version of TLS")),
                    "{client:?} {server:?} {said:?}"
                );
            }
        }
    }

    #[test]
    fn a_revoked_certificate_is_refused_on_either_side() {
        let world = World::new();
        for versions in [Versions::Only12, Versions::Only13] {
            for (list, word) in [
                ("others", None),
                ("ours", Some("certificate is revoked")),
                ("old", Some("out of date")),
                ("foreign", Some("no revocation list of its issuer")),
            ] {
                let client = Client { versions, revoked: Some(world.at(list)), ..world.client() };
                let [said, heard] = shake(&client, &world.server());
                assert_eq!(said.is_some(), word.is_some(), "{list} {said:?} {heard:?}");
                assert!(said.unwrap_or_default().contains(word.unwrap_or_default()), "{list}");
                let server = Server {
                    versions,
                    client_authorities: Some(world.at("authority")),
                    revoked: Some(world.at(list)),
                    ..world.server()
                };
                let [heard, said] = shake(&world.client(), &server);
                assert_eq!(said.is_some(), word.is_some(), "{list} {said:?} {heard:?}");
                assert!(said.unwrap_or_default().contains(word.unwrap_or_default()), "{list}");
                if list == "ours" {
                    assert_eq!(heard.as_deref(), Some("the peer says that our certificate is revoked"));
                }
            }
        }
    }

    #[test]
    fn an_authority_that_serves_by_its_own_certificate_is_explained() {
        let world = World::new();
        let key = KeyPair::generate().unwrap();
        let mut own = CertificateParams::new(["localhost".to_owned()]).unwrap();
        own.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        world.write("certificate", &own.self_signed(&key).unwrap().pem());
        world.write("key", &key.serialize_pem());
        let client = Client { authorities: Some(world.at("certificate")), ..world.client() };
        let [said, _] = shake(&client, &world.server());
        assert!(said.expect("it is refused").contains("CA:FALSE"));
    }

    #[test]
    fn a_list_that_cannot_be_used_is_named() {
        let world = World::new();
        world.write("empty", "");
        world.write("broken", "-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n");
        for (list, word) in [
            ("nowhere", "No such file"),
            ("empty", "no certificate revocation list in it"),
            ("certificate", "no certificate revocation list in it"),
            ("broken", "could not be parsed"),
        ] {
            let revoked = Some(world.at(list));
            let client = Client { revoked: revoked.clone(), ..world.client() };
            let client_authorities = Some(world.at("authority"));
            let server = Server { client_authorities, revoked, ..world.server() };
            for error in [client.load().unwrap_err(), server.load().unwrap_err()] {
                let text = error.to_string();
                assert!(text.starts_with(&*world.at(list).to_string_lossy()) && text.contains(word), "{text}");
            }
        }
        // The server asks no client for a certificate, so no certificate is there that the list could name.
        let revoked = Some(world.at("ours"));
        let any = Client { unverified: true, revoked: revoked.clone(), ..Client::default() };
        assert!(any.load().unwrap_err().to_string().contains("needs the authorities"));
        let server = Server { revoked, ..world.server() };
        assert!(server.load().unwrap_err().to_string().contains("needs the authorities"));
    }
}
