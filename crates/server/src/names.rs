//! Names of other servers, resolved beside the shards.

use crate::config;
use std::net::SocketAddr;
use strowger_core::Transport;

/// Resolves names.
pub struct Resolver {
    timeout: std::time::Duration,
}

impl Resolver {
    pub fn new(settings: &config::Dns) -> Self {
        Self { timeout: settings.timeout }
    }

    pub async fn resolve(
        &self,
        host: &str,
        port: Option<u16>,
        transport: Option<Transport>,
        secure: bool,
    ) -> std::io::Result<Vec<(Transport, SocketAddr)>> {
        let transport = transport.unwrap_or(if secure { Transport::Tls } else { Transport::Udp });
        let port = port.unwrap_or(transport.default_port());
        let found = tokio::time::timeout(self.timeout, tokio::net::lookup_host((host, port))).await??;
        Ok(found.map(|a| (transport, a)).collect())
    }
}
