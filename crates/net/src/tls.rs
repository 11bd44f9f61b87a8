//! Certificates and how peers are verified.

use std::path::PathBuf;

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
