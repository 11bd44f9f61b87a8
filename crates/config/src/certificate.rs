//! `[[certificate]]`: named certificates.

use std::ops::Range;
use std::path::PathBuf;

use super::name::Name;
use super::reader::{ANY, section};

section! {
    /// A certificate that tls and wss listeners name and show; repeat the table for each certificate.
    pub struct Certificate = "certificate" {
        /// Name in `certificates` of a `[[listener]]`.
        pub name: Name = Name::UNSET, ANY.required();
        /// Certificate chain in PEM; the certificate of the server is the first.
        pub certificate: PathBuf = PathBuf::new(), ANY.required();
        /// Private key in PEM, not encrypted; protect it by the rights of the file.
        pub key: PathBuf = PathBuf::new(), ANY.required();
    }
}

impl Eq for Certificate {}

impl Certificate {
    /// Returns the files of the certificate and its key.
    pub fn files(&self) -> CertificateFiles {
        CertificateFiles { certificate: self.certificate.clone(), key: self.key.clone() }
    }
}

/// A certificate and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    /// Certificate chain in PEM.
    pub certificate: PathBuf,
    /// Private key in PEM, not encrypted.
    pub key: PathBuf,
}

/// Position in the configuration file.
pub(super) type Span = Option<Range<usize>>;

impl CertificateFiles {
    /// Returns the pair of both files; `None` unless both are set.
    pub(super) fn of(certificate: Option<PathBuf>, key: Option<PathBuf>) -> Option<Self> {
        certificate.zip(key).map(|(certificate, key)| Self { certificate, key })
    }
}
