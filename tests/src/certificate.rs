//! Certificate authority of a test, and its certificates.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType};

/// PEM files in a folder: an authority, and a certificate of 127.0.0.1, localhost and further names.
#[derive(Debug, Clone)]
pub struct Certificate {
    /// Authority that peers must trust.
    pub authority: PathBuf,
    /// Certificate.
    pub chain: PathBuf,
    /// Private key.
    pub key: PathBuf,
}

impl Certificate {
    /// Writes the files, or returns their paths if they exist already.
    ///
    /// # Panics
    /// The folder cannot be written.
    pub fn in_folder(folder: &Path, names: &[&str]) -> Self {
        let this = Self {
            authority: folder.join("authority.pem"),
            chain: folder.join("certificate.pem"),
            key: folder.join("key.pem"),
        };
        if this.key.exists() {
            return this;
        }
        let authority_key = KeyPair::generate().expect("keys can be made");
        let mut authority = CertificateParams::new(Vec::new()).expect("no names are good names");
        authority.distinguished_name.push(DnType::CommonName, "authority of a test");
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority_pem = authority.self_signed(&authority_key).expect("an authority signs itself").pem();
        let issuer = Issuer::new(authority, authority_key);

        let key = KeyPair::generate().expect("keys can be made");
        let all: Vec<String> = names.iter().copied().chain(["localhost"]).map(String::from).collect();
        let mut own = CertificateParams::new(all).expect("the names are ASCII");
        own.distinguished_name.push(DnType::CommonName, *names.first().unwrap_or(&"localhost"));
        own.subject_alt_names.push(SanType::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST)));
        let chain = own.signed_by(&key, &issuer).expect("an authority signs").pem();

        for (file, text) in [(&this.authority, authority_pem), (&this.chain, chain), (&this.key, key.serialize_pem())] {
            std::fs::write(file, text).expect("the folder of the test can be written");
        }
        this
    }
}

/// Authority that signs any certificate on request.
#[expect(missing_debug_implementations, reason = "its issuer has none")]
pub struct Authority {
    folder: PathBuf,
    issuer: Issuer<'static, KeyPair>,
    made: AtomicUsize,
    /// Certificate of the authority, which peers must trust.
    pub file: PathBuf,
}

/// Certificate and its key.
#[derive(Debug, Clone)]
pub struct Identity {
    /// Certificate.
    pub chain: PathBuf,
    /// Private key.
    pub key: PathBuf,
}

impl Authority {
    /// Creates an authority with its files in this folder.
    ///
    /// # Panics
    /// The folder cannot be written.
    pub fn new(folder: &Path) -> Self {
        let key = KeyPair::generate().expect("keys can be made");
        let mut own = CertificateParams::new(Vec::new()).expect("no names are good names");
        own.distinguished_name.push(DnType::CommonName, "authority of several");
        own.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let file = folder.join("authority-of-several.pem");
        let pem = own.self_signed(&key).expect("an authority signs itself").pem();
        std::fs::write(&file, pem).expect("the folder of the test can be written");
        Self { folder: folder.into(), issuer: Issuer::new(own, key), made: AtomicUsize::new(0), file }
    }

    /// Signs a certificate for these names: addresses, host names, or URIs such as `sip:a.test`.
    ///
    /// # Panics
    /// The folder cannot be written, or a name is not ASCII.
    pub fn sign(&self, names: &[&str]) -> Identity {
        self.sign_with(names, |_| ())
    }

    /// Signs a certificate with parameters that `change` may modify.
    ///
    /// # Panics
    /// See [`Authority::sign`].
    pub fn sign_with(&self, names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Identity {
        let key = KeyPair::generate().expect("keys can be made");
        let (uris, hosts): (Vec<&str>, Vec<&str>) = names.iter().partition(|name| name.starts_with("sip"));
        let mut own = CertificateParams::new(hosts.into_iter().map(String::from).collect::<Vec<_>>()).expect("ASCII");
        let uri = |uri: &str| SanType::URI(uri.try_into().expect("ASCII"));
        own.subject_alt_names.extend(uris.into_iter().map(uri));
        own.distinguished_name.push(DnType::CommonName, "one of several");
        change(&mut own);
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let of = |kind: &str| self.folder.join(format!("{kind}-{number}.pem"));
        let identity = Identity { chain: of("chain"), key: of("key") };
        let chain = own.signed_by(&key, &self.issuer).expect("an authority signs").pem();
        std::fs::write(&identity.chain, chain).expect("the folder of the test can be written");
        std::fs::write(&identity.key, key.serialize_pem()).expect("the folder of the test can be written");
        identity
    }
}

impl Identity {
    /// Reads the certificate and its key.
    ///
    /// # Panics
    /// The files are gone.
    pub fn read(&self) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        let chain = CertificateDer::pem_file_iter(&self.chain).expect("it was written");
        let chain = chain.map(|one| one.expect("it was written")).collect();
        (chain, PrivateKeyDer::from_pem_file(&self.key).expect("it was written"))
    }
}
