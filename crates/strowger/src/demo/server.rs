//! The server of the demo: in this process, on free loopback ports, with a database in a temporary folder.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use anyhow::Context;
use strowger_backend::sqlite::subscribers::SqliteAdmin;
use strowger_config::{Config, Source, Transport};
use strowger_node::{Server, backends};
use strowger_store::subscriber::SubscriberAdmin;
use tempfile::TempDir;

use crate::user;

/// Domain of the demo (RFC 2606: reserved).
pub(super) const DOMAIN: &str = "example.org";

/// Configuration as a user would write it in `strowger.toml`; the database is in the same folder.
const CONFIGURATION: &str = r#"
listen = ["udp:127.0.0.1:0", "tcp:127.0.0.1:0"]
domains = ["example.org"]
realm = "example.org"
store.database = "demo.sqlite"
media.addresses = ["127.0.0.1"]
media.ports = "16384-16583"

[[rule]]
name = "echo"
when = "request.user == 'echo'"
answer = "echo"
"#;

/// A running server and its folder. Fields are dropped in this order: first the server, then its files.
pub(super) struct DemoServer {
    server: Server,
    _folder: TempDir,
}

impl DemoServer {
    /// Creates the database with its users and starts the server.
    ///
    /// # Errors
    /// No folder, database or port can be made.
    pub(super) fn start(users: &[(&str, &str)]) -> anyhow::Result<Self> {
        let folder = TempDir::with_prefix("strowger-demo-").context("no temporary folder can be made")?;
        let source = Source { file: "demo", text: CONFIGURATION, folder: folder.path(), ..Source::default() };
        let (config, _) = Config::read(source).map_err(|report| anyhow::anyhow!("{report}"))?;
        let settings = backends::sqlite(&config).context("the demo names a database file")?;
        let mut admin = SqliteAdmin::open(&settings)?;
        let now = user::milliseconds(SystemTime::now());
        for (name, password) in users {
            let ha1 = user::ha1s(name, config.realm_of(DOMAIN), password);
            admin.add(name, DOMAIN, config.realm_of(DOMAIN), &ha1, now)?;
        }
        drop(admin);
        Ok(Self { server: Server::start(config)?, _folder: folder })
    }

    /// Returns the UDP address of the server.
    pub(super) fn udp(&self) -> SocketAddr {
        let policy = self.server.policy();
        let listeners = policy.config.listeners.iter().zip(self.server.addresses());
        *listeners
            .filter(|(l, _)| l.transport == Transport::Udp)
            .map(|(_, a)| a)
            .next()
            .expect("the configuration has one by UDP")
    }

    /// Lists all listeners, as `udp 127.0.0.1:40000`.
    pub(super) fn listeners(&self) -> Vec<String> {
        let policy = self.server.policy();
        let listeners = policy.config.listeners.iter().zip(self.server.addresses());
        listeners.map(|(listener, address)| format!("{} {address}", listener.transport.text())).collect()
    }

    /// Returns the processor time of the shards so far, without the writer of the database.
    pub(super) fn busy(&self) -> Duration {
        let handle = self.server.handle();
        (0..handle.most()).filter_map(|shard| handle.busy(shard)).sum()
    }

    /// Returns the number of messages that the timers of either side retransmitted.
    pub(super) fn retransmissions(&self) -> u64 {
        self.server.counts().retransmissions
    }

    /// Returns the number of bindings.
    pub(super) fn bindings(&self) -> usize {
        self.server.bindings()
    }
}
