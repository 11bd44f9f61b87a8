//! TLS files of all listeners and of outbound connections: loaded as a whole, then replaced as a whole.

use crate::Listener;
use crate::tls::Client;
use crate::tls::sessions::ClientConfigs;
use rustls::{ClientConfig, ServerConfig};
use std::io;
use std::sync::Arc;
use strowger_core::ListenerId;

/// Certificates, keys and authorities that were read and checked: see
/// [`Handle::set_identities`](crate::Handle::set_identities).
pub struct Identities {
    /// By listener; `None` for an unencrypted one.
    servers: Vec<Option<Arc<ServerConfig>>>,
    client: ClientConfigs,
    /// True if servers of outbound connections must prove their names.
    verifies: bool,
}

impl Identities {
    /// Reads the files of all listeners, in their order, and the files of outbound connections. This may take a while,
    /// so shards must not call it. Does not replace the identities in force. Connections with these identities cannot
    /// resume sessions of other identities.
    ///
    /// # Errors
    /// A file cannot be read or used, and is named with its listener; or an encrypting listener has no certificate.
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

    /// Tells whether the identities fit these listeners: both must have the same number of listeners, and the same
    /// listeners must encrypt.
    pub(crate) fn are_for(&self, listeners: &[Listener]) -> bool {
        let secure = listeners.iter().map(|listener| listener.transport.is_secure());
        self.servers.iter().map(Option::is_some).eq(secure)
    }

    /// Returns the settings for accepted connections of this listener.
    pub(crate) fn server(&self, listener: ListenerId) -> Option<&Arc<ServerConfig>> {
        self.servers.get(listener.0 as usize)?.as_ref()
    }

    /// Returns the settings for outbound connections to this port.
    pub(crate) fn client(&self, port: u16) -> Arc<ClientConfig> {
        self.client.of(port)
    }

    /// Tells whether servers of outbound connections must prove their names.
    pub(crate) const fn verifies(&self) -> bool {
        self.verifies
    }
}

impl std::fmt::Debug for Identities {
    /// Does not show keys.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identities").field("listeners", &self.servers.len()).finish_non_exhaustive()
    }
}
