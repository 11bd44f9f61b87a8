//! Settings of a database server.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use strowger_store::database_url::DatabaseUrl;

use crate::sql::error::OpenError;

/// Settings to reach a server.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// Address and login.
    pub url: DatabaseUrl,
    /// PEM file of certificate authorities, one of which must have signed the certificate of the server, which must
    /// match its host. `None`: no TLS. A socket of this machine never has TLS.
    pub authorities: Option<PathBuf>,
}

/// Settings with the contents of their files.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) url: DatabaseUrl,
    /// Certificates of authorities.
    pub(crate) authorities: Option<Authorities>,
}

/// Certificates in PEM and parsed, as the two drivers require them.
#[derive(Clone, Debug)]
pub(crate) struct Authorities {
    pub(crate) pem: Arc<[u8]>,
    pub(crate) roots: Arc<rustls::RootCertStore>,
}

impl Server {
    pub(crate) fn new(settings: &ServerSettings) -> Result<Self, OpenError> {
        let authorities = settings.authorities.as_deref().map(Authorities::read).transpose()?;
        Ok(Self { url: settings.url.clone(), authorities })
    }
}

impl Authorities {
    fn read(path: &Path) -> Result<Self, OpenError> {
        let wrong = |reason: String| OpenError::Authorities { path: path.into(), reason };
        let pem = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
        let mut roots = rustls::RootCertStore::empty();
        let certificates = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>();
        let certificates = certificates.map_err(|error| wrong(format!("is no PEM file of certificates ({error})")))?;
        roots.add_parsable_certificates(certificates);
        if roots.is_empty() {
            return Err(wrong("has no certificate of an authority".into()));
        }
        Ok(Self { pem: pem.into(), roots: Arc::new(roots) })
    }
}
