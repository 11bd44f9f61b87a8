//! Certificates, keys, authorities and revocation lists from PEM files.

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{InconsistentKeys, RootCertStore};
use std::io;
use std::path::{Path, PathBuf};

/// A certificate and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// PEM file of the certificate and those above it.
    pub chain: PathBuf,
    /// PEM file of the private key.
    pub key: PathBuf,
}

impl Certificate {
    /// Names the file of the certificate and those above it, and the file of the key.
    pub fn new(chain: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        Self { chain: chain.into(), key: key.into() }
    }

    /// Reads the files.
    ///
    /// # Errors
    /// A file cannot be read or used, or the key belongs to another certificate; the file is named.
    pub(super) fn load(&self, provider: &CryptoProvider) -> io::Result<CertifiedKey> {
        let key = PrivateKeyDer::from_pem_file(&self.key).map_err(|e| bad(&self.key, e))?;
        let key = provider.key_provider.load_private_key(key).map_err(|e| bad(&self.key, e))?;
        let certified = CertifiedKey::new(certificates(&self.chain)?, key);
        match certified.keys_match() {
            // Some keys do not reveal their public part.
            Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(certified),
            Err(rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => {
                Err(bad(&self.key, format_args!("it is not the key of the certificate in {}", self.chain.display())))
            }
            Err(error) => Err(bad(&self.chain, error)),
        }
    }
}

/// Returns the error about this file.
pub(super) fn bad(path: &Path, why: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{}: {why}", path.display()))
}

/// Reads the certificates of the authorities in this file.
pub(super) fn authorities(path: &Path) -> io::Result<RootCertStore> {
    let mut store = RootCertStore::empty();
    // The files are read one after the other: a system has more than a hundred authorities, and a reload reads them
    // all.
    for certificate in CertificateDer::pem_file_iter(path).map_err(|e| bad(path, e))? {
        store.add(certificate.map_err(|e| bad(path, e))?).map_err(|e| bad(path, e))?;
    }
    if store.is_empty() { Err(bad(path, NO_CERTIFICATE)) } else { Ok(store) }
}

/// Reads the revocation lists in this file.
pub(super) fn revocations(path: &Path) -> io::Result<Vec<CertificateRevocationListDer<'static>>> {
    sections(path, "no certificate revocation list in it (BEGIN X509 CRL)")
}

const NO_CERTIFICATE: &str = "no certificate in it";

fn certificates(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    sections(path, NO_CERTIFICATE)
}

/// Reads the sections of one kind in a PEM file. A file without such sections is an error.
fn sections<T: PemObject>(path: &Path, none: &str) -> io::Result<Vec<T>> {
    let all: Result<Vec<T>, _> = T::pem_file_iter(path).map_err(|e| bad(path, e))?.collect();
    match all {
        Ok(all) if all.is_empty() => Err(bad(path, none)),
        all => all.map_err(|e| bad(path, e)),
    }
}
