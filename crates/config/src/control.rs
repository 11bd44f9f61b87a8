//! `[control]`: the control socket for commands, and the HTTP address for the same orders.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::key::Text;
use super::reader::{ANY, section};
use super::secret::Secret;

/// Location of the control socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ControlSocket {
    /// Next to the database; no socket if the database is in memory.
    Database,
    /// At this path.
    At(PathBuf),
    /// No socket.
    None,
}

impl Text for ControlSocket {
    const EXPECTED: &'static str = "a path in quotes, \"database\" for a file beside `store.database`, or \"none\"";

    fn from_text(text: &str) -> Result<Self, String> {
        Ok(match text {
            "database" => Self::Database,
            "none" => Self::None,
            path => Self::At(PathBuf::from_text(path)?),
        })
    }

    fn to_text(&self) -> String {
        match self {
            Self::Database => "database".into(),
            Self::None => "none".into(),
            Self::At(path) => path.to_text(),
        }
    }

    fn resolve(&mut self, folder: &Path) {
        if let Self::At(path) = self {
            Text::resolve(path, folder);
        }
    }
}

section! {
    /// The socket through which `strowger status`, `registrations`, `calls`, `limits`, `sets`, `caches`, `accounting`, `ban`, `log`, `reload` and
    /// `drain` reach the running server. Its file has mode 0600: the user of the server and root may give orders. Programs may give the same orders
    /// by HTTP (docs/openapi.json).
    pub struct Control = "control" {
        /// Path of the socket. "database": the path of `store.database` with `.control` in place of its ending; then a server whose database is in
        /// memory has no socket.
        pub socket: ControlSocket = ControlSocket::Database, ANY.fixed();
        /// Address for orders by HTTP, as JSON; "none": no address. The orders are not encrypted: use an address that other machines can reach only
        /// in a network of your own, or behind a proxy with TLS.
        pub listen: Option<SocketAddr> = None, ANY.or("none").fixed();
        /// Secret that each request by HTTP must carry, as `Authorization: Bearer SECRET`; "": no secret, which is allowed only on a loopback
        /// address; all users of this machine may then give orders.
        pub secret: Option<Secret> = None, ANY.or("");
    }
}
