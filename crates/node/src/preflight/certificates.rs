//! Files of certificates, keys and authorities: what they hold, and the names that a certificate proves.

use std::collections::BTreeSet;
use std::fs;
use std::net::IpAddr;
use std::path::Path;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::CertifiedKey;
use strowger_config::{CertificateFiles, Config, Fault};
use webpki::EndEntityCert;

use super::findings::{Findings, Span, with_reason};
use super::validity;

/// A certificate chain read from a file.
pub(super) type Chain = Vec<CertificateDer<'static>>;

/// Notes faults of the files at the positions of their keys. Returns the chain if it can be read.
pub(super) fn check_files(
    files: &CertificateFiles,
    span: &Span,
    key_span: &Span,
    findings: &mut Findings<'_>,
) -> Option<Chain> {
    let chain = certificates(&files.certificate, span, findings);
    let key = private_key(&files.key, key_span, findings);
    for fault in chain.iter().flat_map(|chain| validity::faults(chain, &files.certificate, span.clone())) {
        findings.push(fault);
    }
    let (Some(chain), Some(key)) = (&chain, key) else { return chain };
    if let Err(error) = CertifiedKey::from_der(chain.clone(), key, &aws_lc_rs::default_provider()) {
        let (key, certificate) = (files.key.display(), files.certificate.display());
        let message = format!("{key} does not belong to the certificate {certificate}: {error}");
        findings.push(Fault::error(key_span.clone(), message, "name the key that the certificate was made with"));
    }
    Some(chain.clone())
}

/// Reads the certificates of a file.
pub(super) fn certificates(path: &Path, span: &Span, findings: &mut Findings<'_>) -> Option<Chain> {
    let cure = "name a file in PEM that has -----BEGIN CERTIFICATE-----, and that this user may read";
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) => {
            let message = format!("cannot read {}: {}", path.display(), with_reason(&error, path));
            findings.push(Fault::error(span.clone(), message, cure));
            return None;
        }
    };
    match CertificateDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>() {
        Ok(chain) if !chain.is_empty() => Some(chain),
        _ => {
            findings.push(Fault::error(span.clone(), format!("{} holds no certificate", path.display()), cure));
            None
        }
    }
}

fn private_key(path: &Path, span: &Span, findings: &mut Findings<'_>) -> Option<PrivateKeyDer<'static>> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) => {
            let cure = "name a private key in PEM that this user may read";
            let message = format!("cannot read {}: {}", path.display(), with_reason(&error, path));
            findings.push(Fault::error(span.clone(), message, cure));
            return None;
        }
    };
    if bytes.windows(21).any(|window| window == b"ENCRYPTED PRIVATE KEY") {
        let cure =
            "write it without a password (openssl pkey -in key.pem -out plain.pem) and let only this user read it";
        findings.push(Fault::error(span.clone(), format!("{} is encrypted", path.display()), cure));
        return None;
    }
    let Ok(key) = PrivateKeyDer::from_pem_slice(&bytes) else {
        let cure = "name a file in PEM that has -----BEGIN PRIVATE KEY-----";
        findings.push(Fault::error(span.clone(), format!("{} holds no private key", path.display()), cure));
        return None;
    };
    findings.warn_if_others_read(path, span);
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

    /// Warns of a certificate that proves none of these names. A client that checks the name does not connect to a
    /// server with such a certificate (RFC 5922 section 7.2).
    pub(super) fn check(&self, chain: &Chain, path: &Path, span: Span, findings: &mut Findings<'_>) {
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
            findings.push(Fault::warning(span, message, cure));
        }
    }
}

/// Returns the host in the form of a certificate: IPv6 without brackets.
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
    use super::*;
    use strowger_config::{KeyPositions, Report, Source};

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
            let places = KeyPositions::default();
            let mut findings = Findings::new(&places);
            names.check(&chain(proved), Path::new("west.pem"), None, &mut findings);
            let report = Report::new("test.toml", "", findings.faults).to_string();
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
