//! `[[certificate]]`: named certificates, and checks of the files of all certificates.

use std::collections::BTreeSet;
use std::fs;
use std::net::IpAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::CertifiedKey;
use webpki::EndEntityCert;

use super::check::warn_if_others_read;
use super::name::Name;
use super::reader::{ANY, Reader, section};
use super::report::Fault;
use super::{Config, validity, with_reason};

section! {
    /// A certificate that tls and wss listeners show, by its name; repeat the table for each.
    pub struct Certificate = "certificate" {
        /// Name in `certificates` of a `[[listener]]`.
        pub name: Name = Name::UNSET, ANY.required();
        /// Certificate chain in PEM, the server's own first.
        pub certificate: PathBuf = PathBuf::new(), ANY.required();
        /// Private key in PEM, not encrypted; protect it by the rights of the file.
        pub key: PathBuf = PathBuf::new(), ANY.required();
    }
}

impl Eq for Certificate {}

impl Certificate {
    /// Returns its files.
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

/// A certificate chain read from a file.
pub(super) type Chain = Vec<CertificateDer<'static>>;

/// Position in the configuration file.
pub(super) type Span = Option<Range<usize>>;

impl CertificateFiles {
    /// Pairs two keys of the file, if both are set.
    pub(super) fn of(certificate: Option<PathBuf>, key: Option<PathBuf>) -> Option<Self> {
        certificate.zip(key).map(|(certificate, key)| Self { certificate, key })
    }

    /// Notes faults of the files at the positions of their keys. Returns the chain if it can be read.
    pub(super) fn check(&self, span: &Span, key_span: &Span, reader: &mut Reader) -> Option<Chain> {
        let chain = certificates(&self.certificate, span, reader);
        let key = private_key(&self.key, key_span, reader);
        for fault in chain.iter().flat_map(|chain| validity::faults(chain, &self.certificate, span.clone())) {
            reader.push(fault);
        }
        let (Some(chain), Some(key)) = (&chain, key) else { return chain };
        if let Err(error) = CertifiedKey::from_der(chain.clone(), key, &aws_lc_rs::default_provider()) {
            let (key, certificate) = (self.key.display(), self.certificate.display());
            let message = format!("{key} does not belong to the certificate {certificate}: {error}");
            reader.push(Fault::error(key_span.clone(), message, "name the key that the certificate was made with"));
        }
        Some(chain.clone())
    }
}

/// Reads the certificates of a file.
pub(super) fn certificates(path: &Path, span: &Span, reader: &mut Reader) -> Option<Chain> {
    let cure = "name a file in PEM that has -----BEGIN CERTIFICATE-----, and that this user may read";
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) => {
            let message = format!("cannot read {}: {}", path.display(), with_reason(&error, path));
            reader.push(Fault::error(span.clone(), message, cure));
            return None;
        }
    };
    match CertificateDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>() {
        Ok(chain) if !chain.is_empty() => Some(chain),
        _ => {
            reader.push(Fault::error(span.clone(), format!("{} holds no certificate", path.display()), cure));
            None
        }
    }
}

fn private_key(path: &Path, span: &Span, reader: &mut Reader) -> Option<PrivateKeyDer<'static>> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) => {
            let cure = "name a private key in PEM that this user may read";
            let message = format!("cannot read {}: {}", path.display(), with_reason(&error, path));
            reader.push(Fault::error(span.clone(), message, cure));
            return None;
        }
    };
    if bytes.windows(21).any(|window| window == b"ENCRYPTED PRIVATE KEY") {
        let cure =
            "write it without a password (openssl pkey -in key.pem -out plain.pem) and let only this user read it";
        reader.push(Fault::error(span.clone(), format!("{} is encrypted", path.display()), cure));
        return None;
    }
    let Ok(key) = PrivateKeyDer::from_pem_slice(&bytes) else {
        let cure = "name a file in PEM that has -----BEGIN PRIVATE KEY-----";
        reader.push(Fault::error(span.clone(), format!("{} holds no private key", path.display()), cure));
        return None;
    };
    warn_if_others_read(path, span, reader);
    Some(key)
}

/// Names by which clients know this server.
pub(super) struct ServerNames {
    /// Names that a certificate may prove.
    exact: Vec<String>,
    /// Domains; a name below one of them may lead to this server as well.
    domains: Vec<String>,
}

impl ServerNames {
    pub(super) fn of(config: &Config) -> Self {
        let aliases = config.aliases().map(|(alias, _)| alias);
        let domains: Vec<String> = config.domain_names().chain(aliases).map(bare).collect();
        let mut exact = domains.clone();
        exact.extend(config.listeners.iter().filter_map(|listener| listener.host().as_deref().map(bare)));
        exact.extend(config.server.names.iter().map(|name| bare(name)));
        // RFC 6761 section 6.3.
        let hears_itself = |ip: IpAddr| ip.is_loopback() || ip.is_unspecified();
        if config.listeners.iter().any(|listener| hears_itself(listener.address.ip())) {
            exact.push("localhost".into());
        }
        let mut seen = BTreeSet::new();
        exact.retain(|name| seen.insert(name.clone()));
        Self { exact, domains }
    }

    /// Warns of a certificate that proves none of these names: a client that checks it does not connect (RFC 5922
    /// section 7.2).
    pub(super) fn check(&self, chain: &Chain, path: &Path, span: Span, reader: &mut Reader) {
        let Some(certificate) = chain.first().and_then(|first| EndEntityCert::try_from(first).ok()) else { return };
        let is_below = |name: &str| {
            let host =
                |domain: &String| name.to_ascii_lowercase().strip_suffix(&**domain).map(|host| host.ends_with('.'));
            self.domains.iter().any(|domain| host(domain) == Some(true))
        };
        let is_ours = self.exact.iter().any(|name| is_valid_for(&certificate, name))
            || certificate.valid_dns_names().any(is_below);
        if !is_ours {
            let names = self.exact.join(", ");
            let message = format!("{} is valid for none of the names of this server: {names}", path.display());
            let cure = "use a certificate whose subjectAltName has one of them, or name the server: `advertise` of its [[listener]], or server.names";
            reader.push(Fault::warning(span, message, cure));
        }
    }
}

/// Host in the form of a certificate: IPv6 without brackets.
fn bare(host: &str) -> String {
    host.trim_matches(['[', ']']).to_owned()
}

fn is_valid_for(certificate: &EndEntityCert<'_>, name: &str) -> bool {
    ServerName::try_from(name).is_ok_and(|name| certificate.verify_is_valid_for_subject_name(&name).is_ok())
}

/// Names for which both are valid, in alphabetical order.
pub(super) fn common_names(a: &Chain, b: &Chain) -> Vec<String> {
    let (Some(a), Some(b)) = (a.first(), b.first()) else { return Vec::new() };
    let (Ok(a), Ok(b)) = (EndEntityCert::try_from(a), EndEntityCert::try_from(b)) else { return Vec::new() };
    let mut names = BTreeSet::new();
    for (one, other) in [(&a, &b), (&b, &a)] {
        let both = one.valid_dns_names().filter(|name| {
            is_valid_for(other, name) || other.valid_dns_names().any(|same| same.eq_ignore_ascii_case(name))
        });
        names.extend(both.map(str::to_ascii_lowercase));
    }
    names.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::super::Source;
    use super::super::report::Report;
    use super::*;

    fn chain(names: &[&str]) -> Chain {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        vec![rcgen::generate_simple_self_signed(names).expect("a certificate").cert.into()]
    }

    #[test]
    fn a_certificate_proves_a_name_of_the_server_or_is_told() {
        let text = "domains = [\"a.example\", \"192.0.2.9\"]\nserver.names = [\"proxy.other.example\"]\n\
            [[listener]]\naddress = \"192.0.2.1\"\n[[listener]]\ntransport = \"tcp\"\naddress = \"2001:db8::1\"\n\
            [[listener]]\naddress = \"0.0.0.0\"\nport = 5070\nadvertise = \"sip.b.example:5070\"\n";
        let (config, _) =
            Config::read(Source { text, ..Source::default() }).unwrap_or_else(|report| panic!("{report}"));
        let names = ServerNames::of(&config);
        for (proved, is_ours) in [
            (&["a.example"][..], true),
            (&["A.Example"], true),
            (&["other.example", "a.example"], true),
            (&["edge.a.example"], true),
            (&["*.a.example"], true),
            (&["*.b.example"], true),
            (&["sip.b.example"], true),
            (&["proxy.other.example"], true),
            (&["192.0.2.1"], true),
            (&["192.0.2.9"], true),
            (&["2001:db8::1"], true),
            (&["localhost"], true),
            (&["b.example"], false),
            (&["xa.example"], false),
            (&["192.0.2.2"], false),
            (&[], false),
        ] {
            let mut reader = Reader::default();
            names.check(&chain(proved), Path::new("west.pem"), None, &mut reader);
            let report = Report::new("test.toml", "", reader.into_faults()).to_string();
            let told = "west.pem is valid for none of the names of this server: a.example, 192.0.2.9, 192.0.2.1, 2001:db8::1, sip.b.example, ";
            assert_eq!(report.is_empty(), is_ours, "{proved:?} {report}");
            assert!(is_ours || report.contains(told), "{report}");
        }
    }

    #[test]
    fn the_names_that_two_certificates_share() {
        for (a, b, both) in [
            (&["a.example"][..], &["b.example"][..], &[][..]),
            (&["a.example", "x.example"], &["b.example", "A.example"], &["a.example"]),
            (&["*.x.example"], &["a.x.example", "b.x.example", "a.b.x.example"], &["a.x.example", "b.x.example"]),
            (&["*.x.example"], &["*.X.example"], &["*.x.example"]),
            (&["*.a.example"], &["a.example"], &[]),
            (&[], &["a.example"], &[]),
        ] {
            let (a, b) = (chain(a), chain(b));
            assert_eq!(common_names(&a, &b), both);
            assert_eq!(common_names(&b, &a), both);
        }
        assert_eq!(common_names(&Vec::new(), &chain(&["a.example"])), [""; 0]);
    }
}
