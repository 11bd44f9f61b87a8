//! What all shards of the process share.

use crate::ban::Bans;
use strowger_config::Config;
use crate::counters::{Counters, Counts};
use crate::flows::Flows;
use crate::line_rate::LineRate;
use std::sync::Arc;
use strowger_core::ListenerId;
use strowger_core::digest::{Algorithm, Authenticator};
use strowger_core::quota::Quota;
use strowger_core::routing::Router;
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
    /// None: nobody is known, every user of a local domain is admitted or refused alike.
    pub subscribers: Option<Arc<dyn Subscribers>>,
    pub authenticator: Authenticator,
    /// Algorithms of digest authentication that each listener offers.
    pub algorithms: Vec<Box<[Algorithm]>>,
    pub bans: Bans,
    /// Of lines about requests and connections that were refused or failed.
    pub quota: Arc<Quota>,
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

impl Shared {
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
