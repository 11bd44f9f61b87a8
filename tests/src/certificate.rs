//! An authority of the test's own, and what it signs.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType};

/// PEM files in a folder: an authority, and a certificate of 127.0.0.1, localhost and further names.
#[derive(Debug, Clone)]
pub struct Certificate {
    /// The authority that peers must trust.
    pub authority: PathBuf,
    /// The certificate.
    pub chain: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

impl Certificate {
    /// Writes the files, or names them if they are there already.
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
