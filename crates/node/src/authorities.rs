//! PEM files of the authorities that verify servers: the named ones, or else those of the system.

use std::path::{Path, PathBuf};
use strowger_config::{DatabaseServer, DatabaseTls, SetTable, Tls};

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
pub(crate) fn of_server(server: DatabaseServer<'_>) -> Option<PathBuf> {
    of_database(server.tls, server.authorities)
}

/// Returns the authorities for the database server of a set, as [`of_server`] does.
pub(crate) fn of_set(table: &SetTable) -> Option<PathBuf> {
    of_database(table.tls, table.ca.as_deref())
}

fn of_database(tls: DatabaseTls, named: Option<&Path>) -> Option<PathBuf> {
    match tls {
        DatabaseTls::Off => None,
        DatabaseTls::Required => Some(or_system(named).unwrap_or_default()),
    }
}
