//! What TLS needs of files, of all listeners and of the connections that we make: loaded as a whole, then put in force as a whole.

use crate::Listener;
use crate::tls::Client;
use crate::tls::sessions::ClientConfigs;
use rustls::{ClientConfig, ServerConfig};
use std::io;
use std::sync::Arc;
use strowger_core::ListenerId;

/// Certificates, keys and authorities, read and checked: see [`Handle::set_identities`](crate::Handle::set_identities).
pub struct Identities {
    /// By listener; none where it does not encrypt.
    servers: Vec<Option<Arc<ServerConfig>>>,
    client: ClientConfigs,
    /// Servers to which we connect must prove their names.
    verifies: bool,
}

impl Identities {
    /// Reads the files of all listeners, in their order, and those of the connections that we make. This may take a while: not to be
    /// called on a shard. Nothing is in force yet, and sessions of other identities cannot be resumed by these.
    ///
    /// # Errors
    /// A file that cannot be read or used is named, and the listener whose file it is; or a listener that encrypts has no certificate.
    pub fn load(listeners: &[Listener], client: &Client) -> io::Result<Self> {
        let server = |listener: &Listener| {
            if !listener.transport.is_secure() {
                return Ok(None);
            }
            let loaded = match &listener.tls {
                Some(tls) => tls.load(),
                None => Err(io::Error::new(io::ErrorKind::InvalidInput, "no certificate given")),
            };
            loaded.map(Some).map_err(|error| listener.named(&error, ""))
        };
        let servers = listeners.iter().map(server).collect::<io::Result<_>>()?;
        Ok(Self { servers, client: ClientConfigs::new(client.load()?, client.sessions), verifies: !client.unverified })
    }

    /// Whether they are for such listeners: as many, the same of which encrypt.
    pub(crate) fn are_for(&self, listeners: &[Listener]) -> bool {
        let secure = listeners.iter().map(|listener| listener.transport.is_secure());
        self.servers.iter().map(Option::is_some).eq(secure)
    }

    /// Of connections that this listener accepts.
    pub(crate) fn server(&self, listener: ListenerId) -> Option<&Arc<ServerConfig>> {
        self.servers.get(listener.0 as usize)?.as_ref()
    }

    /// Of connections that we make to this port.
    pub(crate) fn client(&self, port: u16) -> Arc<ClientConfig> {
        self.client.of(port)
    }

    /// Whether servers to which we connect must prove their names.
    pub(crate) const fn verifies(&self) -> bool {
        self.verifies
    }
}

impl std::fmt::Debug for Identities {
    /// Keys are not shown.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identities").field("listeners", &self.servers.len()).finish_non_exhaustive()
    }
}
