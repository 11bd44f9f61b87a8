//! Choice of a server's certificate by the name that the client asks for (SNI, RFC 6066 section 3).

use rustls::SignatureScheme;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::collections::HashMap;
use std::sync::Arc;
use webpki::EndEntityCert;

/// Certificates of one server by the names that they are valid for: one or two look-ups for each handshake, however many there are.
#[derive(Debug)]
pub(super) struct Certificates {
    /// For clients without a name, or with an unknown one: the first certificate, and others with exactly the same names.
    default: Vec<Arc<CertifiedKey>>,
    by_name: HashMap<String, Vec<Arc<CertifiedKey>>>,
    /// Wildcard certificates, by the name after the first label.
    by_parent: HashMap<String, Vec<Arc<CertifiedKey>>>,
}

impl Certificates {
    /// Indexes the certificates; the first one is the default.
    ///
    /// # Errors
    /// A certificate cannot be read, or would never be chosen: its position, and the reason.
    pub(super) fn new(all: Vec<CertifiedKey>) -> Result<Self, (usize, String)> {
        let mut this = Self { default: Vec::new(), by_name: HashMap::new(), by_parent: HashMap::new() };
        let mut of_default = Vec::new();
        for (i, certified) in all.into_iter().enumerate() {
            let names = names(&certified).map_err(|error| (i, error.to_string()))?;
            if i > 0 && names.is_empty() {
                return Err((
                    i,
                    "it is valid for no DNS name, so no client would see it: put it first, or leave it out".into(),
                ));
            }
            let certified = Arc::new(certified);
            for name in &names {
                let of_name = match name.strip_prefix("*.") {
                    Some(parent) => this.by_parent.entry(parent.to_owned()).or_default(),
                    None => this.by_name.entry(name.clone()).or_default(),
                };
                of_name.push(certified.clone());
            }
            if i == 0 {
                of_default = names;
                this.default.push(certified);
            } else if names == of_default {
                this.default.push(certified);
            }
        }
        Ok(this)
    }

    /// Returns the certificates for this name, in any case, in their given order.
    fn find(&self, name: Option<&str>) -> &[Arc<CertifiedKey>] {
        let Some(name) = name.map(str::to_ascii_lowercase) else { return &self.default };
        // A wildcard stands for one label (RFC 6125 section 6.4.3).
        let by_parent = || self.by_parent.get(name.split_once('.')?.1);
        self.by_name.get(&name).or_else(by_parent).unwrap_or(&self.default)
    }
}

impl ResolvesServerCert for Certificates {
    /// Chooses a certificate for the requested name. Of several certificates with different kinds of key, chooses the
    /// first whose kind the client supports.
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let found = self.find(hello.server_name());
        let schemes: &[SignatureScheme] = hello.signature_schemes();
        let known = |certified: &&Arc<CertifiedKey>| certified.key.choose_scheme(schemes).is_some();
        found.iter().find(known).or_else(|| found.first()).cloned()
    }
}

/// Returns the DNS names that a certificate is valid for, sorted and in lower case; wildcards begin with `*.`.
fn names(certified: &CertifiedKey) -> Result<Vec<String>, rustls::Error> {
    let broken = |_| rustls::Error::InvalidCertificate(rustls::CertificateError::BadEncoding);
    let certificate = EndEntityCert::try_from(certified.end_entity_cert()?).map_err(broken)?;
    let mut names: Vec<String> = certificate.valid_dns_names().map(str::to_ascii_lowercase).collect();
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::is_valid_for;
    use rcgen::{CertificateParams, KeyPair};
    use rustls::crypto::aws_lc_rs::default_provider;
    use rustls::pki_types::{PrivateKeyDer, ServerName};

    fn certified(names: &[&str]) -> CertifiedKey {
        let key = KeyPair::generate().unwrap();
        let names: Vec<String> = names.iter().map(|&name| name.into()).collect();
        let made = CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        CertifiedKey::from_der(vec![made.der().clone()], key, &default_provider()).unwrap()
    }

    #[test]
    fn a_name_has_the_certificate_that_is_valid_for_it() {
        let all = [
            certified(&["first.test", "192.0.2.1"]),
            certified(&["*.wild.test", "Upper.Test"]),
            certified(&["in.wild.test", "*.deep.wild.test"]),
            certified(&["*.test", "*", "fourth.test"]),
        ];
        let shown = Certificates::new(all.to_vec()).unwrap();
        let place = |name: Option<&str>| {
            let found = &shown.find(name)[0];
            all.iter().position(|one| one.cert == found.cert).unwrap()
        };
        for (name, expected) in [
            ("first.test", 0),
            ("FIRST.test", 0),
            ("a.wild.test", 1),
            ("A.Wild.Test", 1),
            ("upper.test", 1),
            // An exact name precedes a wildcard.
            ("in.wild.test", 2),
            ("a.deep.wild.test", 2),
            // A wildcard stands for exactly one label, and not for a whole top-level domain.
            ("b.a.deep.wild.test", 0),
            ("wild.test", 0),
            ("other.test", 0),
            ("test", 0),
            ("unknown", 0),
            ("", 0),
            (".", 0),
        ] {
            assert_eq!(place(Some(name)), expected, "{name}");
            // A client accepts the chosen certificate.
            let Ok(meant) = ServerName::try_from(name) else { continue };
            let valid: Vec<bool> = all.iter().map(|one| is_valid_for(&one.cert[0], &meant)).collect();
            assert!(valid[expected] || valid.iter().all(|valid| !valid), "{name}: {valid:?}");
        }
        assert_eq!(place(None), 0);
    }

    #[test]
    fn certificates_of_the_same_names_stand_together() {
        let all =
            [certified(&["a.test"]), certified(&["b.test"]), certified(&["a.test"]), certified(&["a.test", "b.test"])];
        let shown = Certificates::new(all.to_vec()).unwrap();
        let places = |name: Option<&str>| -> Vec<usize> {
            let place = |found: &Arc<CertifiedKey>| all.iter().position(|one| one.cert == found.cert).unwrap();
            shown.find(name).iter().map(place).collect()
        };
        assert_eq!(
            [places(Some("a.test")), places(Some("b.test")), places(None)],
            [vec![0, 2, 3], vec![1, 3], vec![0, 2]]
        );
    }

    #[test]
    fn only_the_default_may_have_no_name() {
        let shown = Certificates::new(vec![certified(&[]), certified(&["a.test"])]).unwrap();
        let [none, unknown, a] = [None, Some("b.test"), Some("a.test")].map(|name| shown.find(name)[0].cert.clone());
        assert!(none == unknown && none != a);
        let (place, why) = Certificates::new(vec![certified(&["a.test"]), certified(&["192.0.2.1"])]).unwrap_err();
        assert!(place == 1 && why.contains("no DNS name"), "{place} {why}");
    }
}
