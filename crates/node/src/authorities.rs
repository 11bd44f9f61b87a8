//! PEM files of the authorities that verify servers: the named ones, or else those of the system.

use std::path::{Path, PathBuf};
use strowger_config::{DatabaseTls, DatabaseUrl, Tls};

/// Paths of the authorities trusted by the system: Debian, Fedora, Alpine and the BSDs.
const SYSTEM: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

fn or_system(named: Option<&Path>) -> Option<PathBuf> {
    named.map(Path::to_owned).or_else(|| SYSTEM.iter().map(PathBuf::from).find(|path| path.is_file()))
}

/// Returns the authorities for outbound SIP connections.
pub(crate) fn outbound(tls: &Tls) -> Option<PathBuf> {
    or_system(tls.outbound_ca.as_deref())
}

/// Returns the authorities for a database server; none without TLS, and an empty path if the system has none.
pub(crate) fn of_server(url: &DatabaseUrl) -> Option<PathBuf> {
    match &url.tls {
        DatabaseTls::Off => None,
        DatabaseTls::Required(named) => Some(or_system(named.as_deref()).unwrap_or_default()),
    }
}
