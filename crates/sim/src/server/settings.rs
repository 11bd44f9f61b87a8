//! Environment of a simulated server, and its incidents.

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
use strowger_server::bounds::EngineBounds;
use strowger_store::journal::JournalSettings;
use strowger_store::read_through::ReadThroughSettings;

/// A name that can be resolved.
#[derive(Clone, Debug)]
pub struct Name {
    pub host: String,
    /// Targets of the group, in the order of trial.
    pub targets: Vec<(Transport, SocketAddr)>,
    /// Name that its secure targets must prove.
    pub proves: Option<PeerName>,
}

/// End of a process; another one starts at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Killed,
    /// Refuses new work; work in progress may continue for this number of ms.
    Drained(u64),
}

/// Storage of bindings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keeping {
    /// All processes of a site share one table in memory, which outlives them: as if each change were on disk at once.
    Shared,
    /// Each process has its own table, writes by its journal, and loads the rows on disk at its start.
    Written,
}

/// Bounds that no configuration sets.
#[derive(Clone, Copy, Debug)]
pub struct FixedBounds {
    pub engine: EngineBounds,
    /// Missed deadlines in a row after which look-ups of subscribers fail at once.
    pub breaker_after: u32,
    /// Changes of bindings that may wait to be written.
    pub commit_queue: usize,
}

impl Default for FixedBounds {
    fn default() -> Self {
        Self {
            engine: EngineBounds::default(),
            breaker_after: ReadThroughSettings::default().breaker_after,
            commit_queue: JournalSettings::default().queue,
        }
    }
}

/// Environment of the server. Times are [`Now::mono`](strowger_core::Now), latest first.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    pub address: SocketAddr,
    /// Configurations without listeners: the first at the start, then the next at each reload, cyclically.
    pub configs: Vec<String>,
    pub bounds: FixedBounds,
    /// Times of reloads.
    pub reloads: Vec<u64>,
    /// Names that can be resolved.
    pub names: Vec<Name>,
    /// Shortest and longest time of the look-up of a name, in ms.
    pub lookups: (u64, u64),
    /// Look-ups of names that fail, in thousandths.
    pub failures: u64,
    /// Database of passwords; without one the server knows no user and asks for no password.
    pub database: Option<Arc<Database>>,
    /// Cache that alone has the credentials of registered users, if any.
    pub credentials: Option<CacheManners>,
    /// Settings for counting together with the other server, as in its configurations; without them it counts alone.
    pub counts: Option<CountManners>,
    /// Destination of failed calls to bob, as in its configurations; without one they fail.
    pub mailbox: Option<Mailbox>,
    pub keeping: Keeping,
    /// Shortest and longest time of a commit, in ms.
    pub commits: (u64, u64),
    /// Commits that fail, in thousandths.
    pub commit_failures: u64,
    /// Outages of the disk of the bindings.
    pub disk_outages: Vec<Outage>,
    pub shards: usize,
    /// Times at which half of all buckets move to the next shard.
    pub moves: Vec<u64>,
    /// Share of questions during which buckets move too, in thousandths.
    pub chased: u64,
    /// Times at which the process ends and another one starts.
    pub ends: Vec<(u64, End)>,
}

impl ServerSettings {
    /// Returns whether calls outlive a process.
    pub(super) fn keeps_calls(&self) -> bool {
        self.configs.iter().all(|config| config.contains("dialogs.folder = "))
    }

    /// Returns the state that outlives a process, if any.
    pub(super) fn kept(&self) -> Option<Kept> {
        let settings = self.keeps_calls().then(|| self.read(0).call_store_settings())?;
        Some(Kept::new(settings.grace.as_millis() as u64, Written::of(self).cdr))
    }

    /// Returns the realms of the server's configurations.
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

    /// Reads one of the server's configurations. Responses under this configuration contain its number.
    ///
    /// # Panics
    /// The configuration is wrong.
    pub(super) fn read(&self, number: u32) -> Config {
        let config = &self.configs[number as usize % self.configs.len()];
        let software = software(self.address, number);
        // Tables must follow all keys.
        let text = format!("{}\nserver.software = \"{software}\"\n{config}\n", listeners(self.address));
        match Config::read(Source { text: &text, ..Source::default() }) {
            Ok((config, _)) => config,
            Err(report) => panic!("{report:?}\n{text}"),
        }
    }
}

/// Returns the server header of a configuration, which identifies it in responses.
pub(crate) fn software(address: SocketAddr, number: u32) -> String {
    format!("{}/{number}", address.ip())
}
