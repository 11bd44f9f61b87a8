//! `[tls]`: certificates shown and demanded (RFC 3261 section 26.3, RFC 5922).

use std::path::PathBuf;

use super::certificate::CertificateFiles;
use super::reader::{ANY, section};

section! {
    /// Certificates shown and demanded by every tls and wss listener (RFC 3261 section 26.3, RFC 5922).
    pub struct Tls = "tls" {
        /// Certificate chain in PEM; the certificate of the server is the first.
        pub certificate: Option<PathBuf> = None, ANY.or("");
        /// Private key in PEM, not encrypted; protect it by the rights of the file.
        pub key: Option<PathBuf> = None, ANY.or("");
        /// Authorities in PEM; if named, every client must show a certificate that one of them signed.
        pub client_ca: Option<PathBuf> = None, ANY.or("");
        /// Authorities in PEM that must have signed the certificates of servers to which this server connects; "system": the authorities of the
        /// system.
        pub outbound_ca: Option<PathBuf> = None, ANY.or("system");
        /// Check the certificates of servers to which this server connects (RFC 5922 section 7); use false only for experiments.
        pub outbound_verify: bool = true, ANY;
    }
}

impl Tls {
    /// Returns the files of certificate and key, if the table names both.
    pub fn files(&self) -> Option<CertificateFiles> {
        CertificateFiles::of(self.certificate.clone(), self.key.clone())
    }
}
