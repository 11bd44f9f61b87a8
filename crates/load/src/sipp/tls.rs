//! `-tls_cert`, `-tls_key`, `-tls_ca`, `-tls_crl`, `-tls_version`: certificate and trust over TLS.

use super::options::Options;
use std::io;
use std::path::PathBuf;
use strowger_net::tls::{Certificate, Client, Server, Versions};

/// Returns the certificate for peers that connect. With `-tls_crl` these peers MUST present a certificate of `-tls_ca`
/// that is not revoked.
pub(super) fn server(options: &Options) -> Option<Server> {
    if !options.transport.is_secure() {
        return None;
    }
    let or = |given: &Option<PathBuf>, name: &str| given.clone().unwrap_or_else(|| name.into());
    let revoked = options.tls_revoked.clone();
    Some(Server {
        client_authorities: options.tls_ca.clone().filter(|_| revoked.is_some()),
        revoked,
        versions: options.tls_versions,
        ..Server::new(Certificate::new(or(&options.tls_certificate, "cacert.pem"), or(&options.tls_key, "cakey.pem")))
    })
}

/// Returns the client settings. With `-tls_ca` only peers with a certificate of that authority are trusted, otherwise
/// any peer, as with SIPp. A server that asks for a certificate gets `-tls_cert`.
pub(super) fn client(options: &Options) -> Client {
    let secure = options.transport.is_secure();
    let own = options.tls_certificate.clone().zip(options.tls_key.clone()).filter(|_| secure);
    Client {
        authorities: options.tls_ca.clone(),
        unverified: options.tls_ca.is_none(),
        certificate: own.map(|(chain, key)| Certificate { chain, key }),
        revoked: options.tls_revoked.clone().filter(|_| secure),
        versions: options.tls_versions,
        ..Client::default()
    }
}

/// Checks that the files can be used.
pub(super) fn check(options: &Options, dials: bool) -> io::Result<()> {
    if let Some(own) = server(options).filter(|_| !dials) {
        own.load()?;
    }
    client(options).load().map(|_| ())
}

/// Parses a TLS version; SIPp's 0 means all.
pub(super) fn versions(text: &str) -> Result<Versions, String> {
    match text.trim() {
        "1.2" => Ok(Versions::Only12),
        "1.3" => Ok(Versions::Only13),
        "0" | "0.0" => Ok(Versions::All),
        old @ ("1" | "1.0" | "1.1") => Err(format!(
            "'-tls_version {old}': TLS before 1.2 is deprecated (RFC 8996) and not spoken here; there are 1.2 and 1.3"
        )),
        other => Err(format!("'-tls_version' wants 1.2 or 1.3, not '{other}'")),
    }
}

/// Checks that the options fit together.
pub(super) fn settle(options: &Options) -> Result<(), String> {
    match (options.transport.is_secure(), &options.tls_revoked, &options.tls_ca) {
        (true, Some(list), None) => Err(format!(
            "-tls_crl {} needs -tls_ca FILE: with revocation lists every peer has to show a certificate of an \
             authority, and without -tls_ca there is none that is trusted; SIPp refuses each peer then",
            list.display()
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, String> {
        Options::parse(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn versions_and_revocation_lists_of_tls() {
        for (text, versions) in [("1.2", Versions::Only12), ("1.3", Versions::Only13), ("0.0", Versions::All)] {
            assert_eq!(parse(&format!("-tls_version {text}")).unwrap().tls_versions, versions);
        }
        assert_eq!(parse("-t l1").unwrap().tls_versions, Versions::All);
        for (text, word) in [("1.0", "RFC 8996"), ("1.1", "RFC 8996"), ("1.4", "wants 1.2 or 1.3"), ("x", "not 'x'")] {
            let error = parse(&format!("-tls_version {text}")).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
        let o = parse("-t ln -tls_crl lists.pem -tls_ca ca.pem").unwrap();
        assert!(o.tls_revoked.is_some_and(|file| file.ends_with("lists.pem")) && o.ignored.is_empty());
        assert!(parse("-tls_crl lists.pem -t l1").unwrap_err().contains("needs -tls_ca"));
        // As SIPp, which then ignores it.
        assert!(parse("-tls_crl lists.pem -t t1").is_ok());
    }

    #[test]
    fn certificates_are_presented_and_required() {
        let o = parse("-t l1 -tls_ca ca -tls_cert c -tls_key k").unwrap();
        assert!(server(&o).is_some_and(|s| s.client_authorities.is_none() && s.revoked.is_none()));
        let o = parse("-t l1 -tls_ca ca -tls_cert c -tls_key k -tls_crl l -tls_version 1.3").unwrap();
        let (own, trust) = (server(&o).unwrap(), client(&o));
        assert_eq!((own.client_authorities, &own.revoked), (Some("ca".into()), &trust.revoked));
        assert_eq!((trust.certificate, trust.unverified), (Some(Certificate::new("c", "k")), false));
        assert_eq!((own.versions, trust.versions), (Versions::Only13, Versions::Only13));
        let o = parse("-t t1 -tls_ca ca -tls_cert c -tls_key k -tls_crl l").unwrap();
        assert!(server(&o).is_none() && client(&o).certificate.is_none() && client(&o).revoked.is_none());
    }
}
