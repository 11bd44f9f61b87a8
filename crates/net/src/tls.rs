//! Certificates and how peers are verified.

use crate::tickets::Tickets;
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Who we are on a listener.
#[derive(Clone, Debug)]
pub struct Server {
    /// PEM file of the certificate and those above it.
    pub certificate: PathBuf,
    /// PEM file of the private key.
    pub key: PathBuf,
    /// PEM file of authorities; if given, clients must show a certificate of theirs.
    pub client_authorities: Option<PathBuf>,
}

/// Whom we trust when we connect.
#[derive(Clone, Debug, Default)]
pub struct Client {
    /// PEM file of authorities.
    pub authorities: Option<PathBuf>,
    /// Trust anybody: for tests and closed networks. Without it and without `authorities` nobody is trusted.
    pub unverified: bool,
    /// PEM files of our own certificate and key, if peers ask for one.
    pub identity: Option<(PathBuf, PathBuf)>,
}

impl Server {
    /// Reads the files.
    ///
    /// # Errors
    /// A file that cannot be read or does not fit is named.
    pub fn load(&self) -> io::Result<Arc<ServerConfig>> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?;
        let builder = match &self.client_authorities {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(authorities(path)?), provider);
                builder.with_client_cert_verifier(verifier.build().map_err(|e| bad(path, e))?)
            }
        };
        let mut config = builder
            .with_single_cert(certificates(&self.certificate)?, key(&self.key)?)
            .map_err(|e| bad(&self.certificate, e))?;
        // Sessions are resumed by tickets that the client keeps, so they cost no memory here.
        config.ticketer = aws_lc_rs::Ticketer::new().map_err(io::Error::other)?;
        Ok(Arc::new(config))
    }
}

impl Client {
    /// Reads the files. Of each server so many sessions are kept to be resumed.
    ///
    /// # Errors
    /// A file that cannot be read or does not fit is named.
    pub fn load_keeping(&self, sessions: usize) -> io::Result<Arc<ClientConfig>> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?;
        let builder = if self.unverified {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(Anybody(provider)))
        } else {
            let roots = match &self.authorities {
                Some(path) => authorities(path)?,
                None => RootCertStore::empty(),
            };
            builder.with_root_certificates(roots)
        };
        let mut config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some((certificate, path)) => builder
                .with_client_auth_cert(certificates(certificate)?, key(path)?)
                .map_err(|e| bad(certificate, e))?,
        };
        config.resumption = Resumption::store(Arc::new(Tickets::new(sessions)));
        Ok(Arc::new(config))
    }
}

fn bad(path: &Path, why: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{}: {why}", path.display()))
}

fn certificates(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).map_err(|e| bad(path, e))?.collect();
    match all {
        Ok(all) if all.is_empty() => Err(bad(path, "no certificate in it")),
        all => all.map_err(|e| bad(path, e)),
    }
}

fn key(path: &Path) -> io::Result<PrivateKeyDer<'static>> {
    PrivateKeyDer::from_pem_file(path).map_err(|e| bad(path, e))
}

fn authorities(path: &Path) -> io::Result<RootCertStore> {
    let mut store = RootCertStore::empty();
    for certificate in certificates(path)? {
        store.add(certificate).map_err(|e| bad(path, e))?;
    }
    Ok(store)
}

/// Trusts every server, yet checks that it holds the key of what it shows.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
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
