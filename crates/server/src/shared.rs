//! What all shards of the process share.

use crate::ban::Bans;
use crate::counters::{Counters, Counts};
use crate::flows::Flows;
use crate::line_rate::LineRate;
use crate::local_address::Routes;
use std::sync::Arc;
use strowger_config::Config;
use strowger_core::digest::{Algorithm, Authenticator};
use strowger_core::quota::Quota;
use strowger_core::routing::{Identity, Router};
use strowger_core::{ListenerId, Now};
use strowger_message::Limits;
use strowger_store::location::LocationTable;
use strowger_store::subscriber::Subscribers;

/// The parts that belong to no call.
pub struct Shared {
    pub config: Config,
    /// Who this server is, and what it wrote.
    pub router: Arc<Router>,
    pub limits: Limits,
    pub location: Arc<LocationTable>,
    pub flows: Flows,
    /// None: the server knows no user, and admits or refuses every user of a local domain alike.
    pub subscribers: Option<Arc<dyn Subscribers>>,
    pub authenticator: Authenticator,
    /// Algorithms of digest authentication that each listener offers.
    pub algorithms: Vec<Box<[Algorithm]>>,
    pub bans: Bans,
    /// Of lines about requests and connections that were refused or failed.
    pub quota: Arc<Quota>,
    pub routes: Box<dyn Routes>,
    /// Of calls that are logged.
    pub call_lines: LineRate,
    /// Of lines about registrations.
    pub registration_lines: LineRate,
    /// Key of [`strowger_core::call::hash`].
    pub call_secret: u32,
    /// The rounds of pings run.
    pub pings_awake: std::sync::atomic::AtomicBool,
    /// Drawn at the start of the process: seeds of each shard's entropy.
    pub seed: [u8; 32],
    /// `Server: ...` with its line end, or nothing.
    pub server_line: Vec<u8>,
    /// Of each shard, in their order.
    pub counters: Vec<Counters>,
}

/// What a server has that its configuration does not tell.
pub struct Surroundings {
    /// Who it is, by the addresses that its listeners have.
    pub identity: Identity,
    /// What it writes is known again by this key.
    pub secret: Vec<u8>,
    /// Drawn at the start of the process.
    pub seed: [u8; 32],
    /// Key of [`strowger_core::call::hash`].
    pub call_secret: u32,
    /// What tells the flows of this process from those of an earlier one.
    pub process: u16,
    /// Shards, at most.
    pub shards: usize,
    pub location: Arc<LocationTable>,
    /// None: the server knows no user, and admits or refuses every user of a local domain alike.
    pub subscribers: Option<Arc<dyn Subscribers>>,
    pub quota: Arc<Quota>,
    pub routes: Box<dyn Routes>,
}

impl Shared {
    pub fn new(now: Now, config: Config, surroundings: Surroundings) -> Self {
        let Surroundings { identity, secret, seed, call_secret, process, shards, location, subscribers, quota, routes } =
            surroundings;
        let [_, nonces, ..] = *seed.as_chunks::<8>().0 else { unreachable!("four times eight bytes") };
        Self {
            router: Arc::new(Router::new(Arc::new(identity), &secret, config.route_lifetime())),
            limits: config.message_limits(),
            location,
            flows: Flows::new(config.server.node, process, shards),
            subscribers,
            authenticator: Authenticator::new(config.digest_settings(), &secret, u64::from_le_bytes(nonces), now),
            algorithms: config.offered_algorithms(),
            bans: Bans::new(config.ban.clone(), config.limits.ipv6_prefix),
            quota,
            routes,
            call_lines: LineRate::new(config.log.calls_per_minute),
            registration_lines: LineRate::new(config.log.registrations_per_minute),
            call_secret,
            pings_awake: Default::default(),
            seed,
            server_line: match &config.server.software[..] {
                "" => Vec::new(),
                software => format!("Server: {software}\r\n").into_bytes(),
            },
            counters: (0..shards).map(|_| Counters::default()).collect(),
            config,
        }
    }

    /// What digest authentication offers to a request that came in by this listener.
    pub fn algorithms(&self, listener: ListenerId) -> &[Algorithm] {
        self.algorithms.get(usize::from(listener.0)).map_or(&[], |offered| offered)
    }

    /// All shards together.
    pub fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        for counters in &self.counters {
            sum += counters.read();
        }
        sum
    }
}
