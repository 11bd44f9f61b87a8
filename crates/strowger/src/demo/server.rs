//! The server of the demo: in this process, on free ports of loopback, its database in a folder that goes with it.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use anyhow::Context;
use strowger_backend::sqlite::subscribers::SqliteAdmin;
use strowger_config::{Config, Source, Transport};
use strowger_node::{Server, backends};
use strowger_store::subscriber::SubscriberAdmin;
use tempfile::TempDir;

use crate::user;

/// The domain of the demo (RFC 2606: reserved).
pub(super) const DOMAIN: &str = "example.org";

/// What a user would write into `strowger.toml` for this; the database is put beside it.
const CONFIGURATION: &str = r#"
listen = ["udp:127.0.0.1:0", "tcp:127.0.0.1:0"]
domains = ["example.org"]
realm = "example.org"
store.database = "demo.sqlite"
"#;

/// A running server and its folder. Fields end in this order: first the server, then its files.
pub(super) struct Subject {
    server: Server,
    _folder: TempDir,
}

impl Subject {
    /// Makes the database with its users and starts the server.
    ///
    /// # Errors
    /// No folder, no database, no port.
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

    /// Where it listens by UDP.
    pub(super) fn udp(&self) -> SocketAddr {
        let policy = self.server.policy();
        let listeners = policy.config.listeners.iter().zip(self.server.addresses());
        *listeners
            .filter(|(l, _)| l.transport == Transport::Udp)
            .map(|(_, a)| a)
            .next()
            .expect("the configuration has one by UDP")
    }

    /// Every listener, as `udp 127.0.0.1:40000`.
    pub(super) fn listeners(&self) -> Vec<String> {
        let policy = self.server.policy();
        let listeners = policy.config.listeners.iter().zip(self.server.addresses());
        listeners.map(|(listener, address)| format!("{} {address}", listener.transport.text())).collect()
    }

    /// Processor time that the threads which carry messages have used so far: the shards, not the writer of the database.
    pub(super) fn busy(&self) -> Duration {
        let handle = self.server.handle();
        (0..handle.most()).filter_map(|shard| handle.busy(shard)).sum()
    }

    /// Messages that were sent again, by either side's timers.
    pub(super) fn retransmissions(&self) -> u64 {
        self.server.counts().retransmissions
    }

    /// Bindings that are registered now.
    pub(super) fn bindings(&self) -> usize {
        self.server.bindings()
    }
}
