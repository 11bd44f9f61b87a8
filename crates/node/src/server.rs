//! The server whole: from a configuration to running shards.

use crate::identity::identity;
use crate::removal::Removals;
use crate::routes::KernelRoutes;
use crate::shard::{Outside, Shard};
use crate::{random, settings, store, upkeep};
use anyhow::Context;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use strowger_config::Config;
use strowger_core::Outbox;
use strowger_net::resolve::Resolver;
use strowger_net::{Handle, Net, Node, clock};
use strowger_server::counters::{Counts, counted};
use strowger_server::policy::Policy;
use strowger_server::shared::{Shared, Surroundings};
use strowger_store::journal::Journal;
use strowger_store::location::LocationTable;

/// What the program around the server does for it.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Each shard calls it when much less is under way than before, so that the allocator of the program gives memory back that
    /// is no longer used.
    pub give_back: fn(),
    /// Lines that the log has lost, and attempts to write it that failed, since the start; for the statistics.
    pub log_lost: fn() -> (u64, u64),
    /// Sees what a shard is about to send, each round; for tests that judge where messages go.
    pub sends: fn(&Outbox),
}

impl Default for Program {
    fn default() -> Self {
        Self { give_back: || (), log_lost: || (0, 0), sends: |_| () }
    }
}

/// A running server. Dropped, it stops.
pub struct Server {
    shared: Arc<Shared>,
    outside: Arc<Outside>,
    node: Node<Shard>,
    /// Ends after the shards: what they gave it is written.
    journal: Option<Arc<Journal>>,
}

impl Server {
    /// Opens the database, binds the listeners, starts the shards. When it returns, messages are answered.
    ///
    /// # Errors
    /// What could not be opened or bound, in words.
    pub fn start(config: Config) -> anyhow::Result<Self> {
        Self::start_in(Program::default(), config)
    }

    /// [`Server::start`] as a part of this program.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn start_in(program: Program, config: Config) -> anyhow::Result<Self> {
        let seed: [u8; 32] = random()?;
        let call_secret = u32::from_le_bytes(random()?);
        // A flow of an earlier life of this server must not be taken for one of this.
        let process = u16::from_le_bytes(random()?);
        let settings = strowger_net::Settings { process, ..settings::net(&config, call_secret) };
        let most = settings.shards.most();
        let quota = settings.quota.clone();
        // First the ports: a server that cannot have them leaves no file behind.
        let net = Net::bind(settings, settings::listeners(&config)).context("a listener cannot be opened")?;
        let location = Arc::new(LocationTable::new(config.location_settings()));
        let (journal, subscribers) = store::open(&config, &location)?;
        let journal = journal.map(Arc::new);
        let secret = match &config.auth.secret {
            Some(secret) => secret.reveal().to_vec(),
            None => store::kept_secret(&config)?,
        };
        let identity = identity(&config, net.addresses());
        let routes = Box::new(KernelRoutes::new());
        let surroundings = Surroundings {
            identity,
            secret,
            seed,
            call_secret,
            process,
            shards: most,
            location,
            subscribers,
            quota,
            routes,
        };
        let shared = Arc::new(Shared::new(clock::now(), config, surroundings));
        let outside = Arc::new(Outside { resolver: resolver(&shared.policy().config)?, program });
        let (for_shards, outside_for_shards, with_journal) = (shared.clone(), outside.clone(), journal.clone());
        let node = net.spawn(move |number, handle: Handle<Shard>| {
            Shard::new(for_shards.clone(), outside_for_shards.clone(), number, &handle, with_journal.as_deref())
        })?;
        node.handle().spawn("upkeep", upkeep::keep_up(shared.clone(), outside.clone()));
        if let Some(subscribers) = shared.subscribers.clone() {
            let removals = Removals::new(journal.as_deref());
            let (handle, journal) = (node.handle().clone(), journal.as_ref().map(Arc::downgrade));
            let work = upkeep::keep_up_database(shared.clone(), handle, journal, subscribers, removals);
            node.handle().spawn("upkeep of the database", work);
        }
        if let Some(interval) = shared.policy().config.log.statistics {
            let (shared, outside, handle) = (shared.clone(), outside.clone(), node.handle().clone());
            node.handle().spawn("the log of statistics", async move {
                let mut tick = tokio::time::interval(interval);
                tick.tick().await;
                loop {
                    tick.tick().await;
                    log_statistics(&shared, &outside, &handle, "statistics");
                }
            });
        }
        Ok(Self { shared, outside, node, journal })
    }

    /// The addresses on which the listeners of the configuration really listen.
    pub fn addresses(&self) -> &[SocketAddr] {
        self.node.handle().addresses()
    }

    /// What new requests go by.
    pub fn policy(&self) -> Arc<Policy> {
        self.shared.policy()
    }

    /// The shards and their sockets: their number, their counters, what is sent to them from outside.
    pub fn handle(&self) -> &Handle<Shard> {
        self.node.handle()
    }

    /// Counters of all shards.
    pub fn counts(&self) -> Counts {
        self.shared.counts()
    }

    /// Bindings that are registered now.
    pub fn bindings(&self) -> usize {
        self.shared.location.gauges().bindings
    }

    /// What the engines of all shards have in common: policy, bindings, users, counters.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Lets calls that are being set up go on for `most`, refuses new work, then stops.
    pub fn drain(self, most: Duration) {
        let end = Instant::now() + most;
        self.node.handle().drain(most);
        let (mut busy, t1): (Option<Instant>, _) = (None, self.policy().config.timers.t1);
        while Instant::now() < end {
            match self.counts().busy() {
                true => busy = Some(Instant::now()),
                // A call that was answered just now has its ACK still to come, and so has a failure.
                false if busy.is_some_and(|last| last.elapsed() < t1) => (),
                false => break,
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        self.stop();
    }

    /// Stops: what was acknowledged is kept.
    pub fn stop(self) {
        self.shared.say_left_out(u64::MAX);
        let open = self.counts().calls_logged;
        if open > 0 {
            tracing::info!(count = open, "calls left open: their ends will not be logged");
        }
        log_statistics(&self.shared, &self.outside, self.node.handle(), "statistics at the end");
        let Self { shared, outside: _, node, journal } = self;
        drop(node);
        drop(shared);
        drop(journal);
    }
}

/// Logs every counter and gauge that is not 0: of the server, of its network side, and of what belongs to the process.
fn log_statistics(shared: &Shared, outside: &Outside, handle: &Handle<Shard>, event: &str) {
    shared.counts().log(event);
    handle.total().log(event);
    let location = shared.location.gauges();
    let (log_lines_lost, log_write_errors) = (outside.program.log_lost)();
    tracing::info!(
        of = "process",
        bindings = counted(location.bindings as u64),
        bindings_expired = counted(location.expired),
        used_nonces = counted(shared.policy().authenticator.used().entries() as u64),
        shards = counted(handle.shards() as u64),
        log_lines_lost = counted(log_lines_lost),
        log_write_errors = counted(log_write_errors),
        "{event}"
    );
    if let Some(subscribers) = &shared.subscribers {
        let lookups = subscribers.gauges();
        tracing::info!(
            of = "look-ups",
            cached = counted(lookups.entries as u64),
            in_flight = counted(lookups.in_flight as u64),
            connections = counted(lookups.connections as u64),
            silent = counted(u64::from(lookups.is_broken)),
            hits = counted(lookups.hits),
            misses = counted(lookups.misses),
            stale = counted(lookups.stale),
            merged = counted(lookups.merged),
            refused = counted(lookups.refused),
            late = counted(lookups.late),
            failed = counted(lookups.failed),
            failed_at_once = counted(lookups.broken),
            voided = counted(lookups.voided),
            "{event}"
        );
    }
}

fn resolver(config: &Config) -> anyhow::Result<Resolver> {
    let settings = settings::resolver(config);
    let servers: Vec<SocketAddr> = config.dns.servers.iter().map(|ip| SocketAddr::new(*ip, 53)).collect();
    let resolver = if servers.is_empty() { Resolver::system(settings) } else { Resolver::of(&servers, settings) };
    resolver.context("names cannot be resolved: name servers in `dns.servers` or /etc/resolv.conf are needed")
}
