//! A host of either kind.

use crate::agent::Agent;
use crate::server::ServerHost;
use crate::world::Host;
use std::net::SocketAddr;
use strowger_core::transaction::Transactions;

/// A user agent or a server.
pub enum SimNode {
    Agent(Box<Agent>),
    Server(Box<ServerHost>),
}

impl SimNode {
    /// Returns the name in messages.
    pub fn name(&self) -> String {
        match self {
            Self::Agent(agent) => agent.name().to_owned(),
            Self::Server(server) => server.address().to_string(),
        }
    }

    /// Returns the address as the host itself sees it.
    pub fn address(&self) -> SocketAddr {
        match self {
            Self::Agent(agent) => agent.address(),
            Self::Server(server) => server.address(),
        }
    }

    pub fn agent(&self) -> Option<&Agent> {
        if let Self::Agent(agent) = self { Some(agent) } else { None }
    }

    pub fn server(&self) -> Option<&ServerHost> {
        if let Self::Server(server) = self { Some(server) } else { None }
    }

    /// Returns the transaction tables, one per shard.
    pub fn transactions(&self) -> Vec<&Transactions> {
        match self {
            Self::Agent(agent) => vec![agent.transactions()],
            Self::Server(server) => server.transactions().collect(),
        }
    }

    pub fn host(&mut self) -> &mut dyn Host {
        match self {
            Self::Agent(agent) => &mut **agent,
            Self::Server(server) => &mut **server,
        }
    }

    pub fn host_ref(&self) -> &dyn Host {
        match self {
            Self::Agent(agent) => &**agent,
            Self::Server(server) => &**server,
        }
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        self.host_ref().check()
    }

    pub(crate) fn leftovers(&self) -> Result<(), String> {
        self.host_ref().leftovers()
    }
}

impl From<Agent> for SimNode {
    fn from(agent: Agent) -> Self {
        Self::Agent(Box::new(agent))
    }
}

impl From<ServerHost> for SimNode {
    fn from(server: ServerHost) -> Self {
        Self::Server(Box::new(server))
    }
}
