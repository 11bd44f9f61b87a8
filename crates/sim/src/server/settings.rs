//! What surrounds a simulated server, and what befalls it.

use super::accounts::Written;
use super::counts::CountManners;
use super::credentials::CacheManners;
use super::database::{Database, Outage};
use super::kept::Kept;
use super::limits::Mailbox;
use super::listeners;
use std::net::SocketAddr;
use std::sync::Arc;
use strowger_config::{Config, Source};
use strowger_core::{PeerName, Transport};

/// A name that can be looked up.
#[derive(Clone, Debug)]
pub struct Name {
    pub host: String,
    /// Where it leads, in the order in which they are tried.
    pub targets: Vec<(Transport, SocketAddr)>,
    /// What those of secure transports must prove.
    pub proves: Option<PeerName>,
}

/// How a process ends; another one starts at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Killed,
    /// New work is refused, what is under way goes on for so many ms at most.
    Drained(u64),
}

/// How bindings are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keeping {
    /// All processes of a site have one table in memory, which outlives them: as if each change were on disk at once.
    Shared,
    /// Each process has its own, writes by its journal, and loads what is on disk when it starts.
    Written,
}

/// What surrounds the server. Moments are [`Now::mono`](strowger_core::Now), latest first.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    pub address: SocketAddr,
    /// What its file says beside its listeners: at first, and then at each reload the next, over and over.
    pub configs: Vec<String>,
    /// When its configuration is read again.
    pub reloads: Vec<u64>,
    /// Those that can be looked up.
    pub names: Vec<Name>,
    /// Shortest and longest time that the look-up of a name takes, ms.
    pub lookups: (u64, u64),
    /// Names that cannot be looked up, in thousandths.
    pub failures: u64,
    /// Who has a password here; none: the server knows no user and asks for no password.
    pub database: Option<Arc<Database>>,
    /// The cache in which credentials of registered users stand alone; none: there is none.
    pub credentials: Option<CacheManners>,
    /// How it counts calls together with the server beside it, as its files say too; none: it counts alone.
    pub counts: Option<CountManners>,
    /// Where calls to bob go that fail, as its files say too; none: they fail.
    pub mailbox: Option<Mailbox>,
    pub keeping: Keeping,
    /// Shortest and longest time that a commit takes, ms.
    pub commits: (u64, u64),
    /// Commits that fail, in thousandths.
    pub commit_failures: u64,
    /// When the disk of the bindings does what.
    pub disk_outages: Vec<Outage>,
    pub shards: usize,
    /// When half of all buckets move to the next shard.
    pub moves: Vec<u64>,
    /// Questions for whose answer requests wait when buckets move too, in thousandths.
    pub chased: u64,
    /// When the process ends and another one starts.
    pub ends: Vec<(u64, End)>,
}

impl ServerSettings {
    /// Calls outlive a process.
    pub(super) fn keeps_calls(&self) -> bool {
        self.configs.iter().all(|config| config.contains("dialogs.folder = "))
    }

    /// What outlives a process of them, if anything does.
    pub(super) fn kept(&self) -> Option<Kept> {
        let settings = self.keeps_calls().then(|| self.read(0).call_store_settings())?;
        Some(Kept::new(settings.grace.as_millis() as u64, Written::of(self).cdr))
    }

    /// The realms of its configurations.
    pub(super) fn realms(&self) -> Vec<&str> {
        let realm = |config: &'_ String| -> Option<std::ops::Range<usize>> {
            let start = config.find("\nrealm = \"")? + "\nrealm = \"".len();
            Some(start..start + config[start..].find('"')?)
        };
        let mut realms: Vec<&str> = self.configs.iter().filter_map(|config| Some(&config[realm(config)?])).collect();
        realms.sort_unstable();
        realms.dedup();
        realms
    }

    /// One of its configurations, whose number its answers bear.
    ///
    /// # Panics
    /// It is wrong.
    pub(super) fn read(&self, number: u32) -> Config {
        let config = &self.configs[number as usize % self.configs.len()];
        let software = software(self.address, number);
        // The tables stand behind all keys.
        let text = format!("{}\nserver.software = \"{software}\"\n{config}\n", listeners(self.address));
        match Config::read(Source { text: &text, ..Source::default() }) {
            Ok((config, _)) => config,
            Err(report) => panic!("{report:?}\n{text}"),
        }
    }
}

/// What the answers of a server say by which configuration they were made.
pub(crate) fn software(address: SocketAddr, number: u32) -> String {
    format!("{}/{number}", address.ip())
}
