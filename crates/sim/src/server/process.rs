//! One process of a server: all of its state is lost when it is killed.

use super::accounts::Accounts;
use super::bindings::Rows;
use super::counts::Sharing;
use super::credentials::ByTheClock;
use super::failed_targets::FailedTargets;
use super::lookups::{AskedBatch, Asking, Lookups};
use super::observer::Observer;
use super::ringing::Ringing;
use super::rows::Writer;
use super::settings::{Keeping, ServerSettings};
use super::{Site, identity};
use crate::random::Random;
use crate::world::LISTENERS;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use strowger_cache::engine::CacheHandle;
use strowger_cache::ticket::ReceiverId;
use strowger_core::Now;
use strowger_core::call::{BUCKETS, CallKeys};
use strowger_core::log_limiter::LogLimiter;
use strowger_server::engine::{Engine, EngineInput, ProcessStatus};
use strowger_server::local_address::Routes;
use strowger_server::peer_names::NoNames;
use strowger_server::policy::Policy;
use strowger_server::process_state::{CALL_SEED, ProcessContext, ProcessState};
use strowger_store::clock::{Clock, Moment};
use strowger_store::credential_cache::CredentialCache;
use strowger_store::error::StoreError;
use strowger_store::journal::{Journal, JournalSettings, JournalSteps};
use strowger_store::location::LocationTable;
use strowger_store::read_through::ReadThroughSettings;
use strowger_store::subscriber::{self, Subscribers};

/// An event besides the timers of the engines.
pub(super) enum Due {
    /// An answer for a shard.
    Answer(usize, EngineInput),
    /// The configuration with this number reaches a shard.
    Policy(usize, u32, Arc<Policy>),
    /// The answer of the database to a batch.
    Looked(AskedBatch, Result<Vec<subscriber::SubscriberAnswer>, StoreError>),
    /// A tick of the look-ups.
    KeepTime,
    /// Writing of queued bindings begins.
    Commit,
    /// Changes of persisted calls are written.
    Keep,
    /// Last words expire.
    LastWords,
    /// A group of accounting rows is taken.
    Group,
    /// The group is written.
    GroupWritten,
    /// The answer of the cache with which servers count calls together.
    Counted,
    /// The commit has succeeded or failed.
    Committed(Option<StoreError>),
    /// A draining process checks whether it may end.
    Drain,
}

/// Returned tickets of commits.
type Written = Arc<Mutex<Vec<(usize, u64, Result<(), StoreError>)>>>;

/// The journal of a process.
pub(super) struct Keeper {
    pub(super) journal: Journal,
    pub(super) steps: JournalSteps<Rows>,
    written: Written,
    /// True while a group is being written, or is about to be.
    pub(super) is_busy: bool,
}

impl Keeper {
    /// Takes the tickets that have returned since the last call.
    pub(super) fn written(&self) -> Vec<(usize, u64, Result<(), StoreError>)> {
        std::mem::take(&mut self.written.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A process that ends when no work is in progress.
#[derive(Clone, Copy, Debug)]
pub(super) struct Draining {
    pub(super) until: u64,
    /// Time of the last work in progress.
    pub(super) busy: Option<u64>,
}

/// A running server.
pub(super) struct Process {
    /// Incarnation number of the process, part of its flows.
    pub(super) number: u16,
    pub(super) shared: Arc<ProcessState>,
    pub(super) engines: Vec<Engine>,
    /// Number of the configuration for new requests of each shard.
    pub(super) in_force: Vec<u32>,
    /// Time at which each shard gets the last configuration.
    pub(super) policies_due: Vec<u64>,
    /// Policies that must have been dropped.
    pub(super) outlived: Vec<Weak<Policy>>,
    /// Shard of each bucket of calls.
    pub(super) owners: [usize; BUCKETS],
    pub(super) lookups: Option<(Arc<Lookups>, Asking)>,
    pub(super) keeper: Option<Keeper>,
    /// Receiver of each shard in the cache of credentials; empty without such a cache.
    pub(super) cached: Vec<ReceiverId>,
    /// Events by time, then in the order of planning.
    pub(super) due: BTreeMap<(u64, u64), Due>,
    pub(super) draining: Option<Draining>,
    pub(super) observer: Observer,
    pub(super) ringing: Ringing,
    pub(super) accounts: Accounts,
    pub(super) writer: Writer,
    /// Knowledge about the calls of another server, if they count together.
    pub(super) sharing: Option<Sharing>,
    /// Next hops that failed.
    pub(super) failed_targets: FailedTargets,
    /// Clock of the parts around the engines.
    pub(super) time: Arc<AtomicU64>,
}

struct OneWay(IpAddr);

impl Routes for OneWay {
    fn source(&self, _to: IpAddr) -> Option<IpAddr> {
        Some(self.0)
    }

    fn interface(&self, own: IpAddr) -> Option<u32> {
        (own == self.0).then_some(1)
    }
}

impl Process {
    /// Starts a process.
    ///
    /// # Panics
    /// The configuration is wrong.
    pub(super) fn start(now: Now, settings: &ServerSettings, policy: u32, site: &Site, random: &mut Random) -> Self {
        let config = settings.read(policy);
        let mut seed = [0; 32];
        seed.chunks_exact_mut(8).for_each(|part| part.copy_from_slice(&random.u64().to_le_bytes()));
        let time = Arc::new(AtomicU64::new(now.mono));
        let clock: Clock = {
            let (time, ahead) = (time.clone(), now.wall - now.mono);
            Arc::new(move || {
                let mono = time.load(Ordering::Relaxed);
                Moment { mono, wall: mono + ahead }
            })
        };
        let location = match settings.keeping {
            Keeping::Shared => site.location.clone(),
            Keeping::Written => Arc::new(LocationTable::new(config.location_settings())),
        };
        let mut keeper = (settings.keeping == Keeping::Written).then(|| {
            let queue = settings.bounds.commit_queue;
            let journal = JournalSettings { queue, ..config.journal_settings() };
            let (journal, steps) = Journal::in_steps(site.rows.clone(), &location, journal, clock.clone())
                .expect("what was written is read");
            Keeper { journal, steps, written: Arc::default(), is_busy: false }
        });
        let lookups = settings.database.clone().map(|database| {
            let breaker_after = settings.bounds.breaker_after;
            let answers = ReadThroughSettings { breaker_after, ..config.read_through_settings() };
            let (lookups, asking) = Lookups::new(database, answers, time.clone(), clock);
            (Arc::new(lookups), asking)
        });
        let number = random.u64() as u16;
        let mut call_secret = random.u64() as u32;
        if settings.keeps_calls() {
            let keys = CallKeys::derive(&site.secret);
            seed[CALL_SEED].copy_from_slice(&keys.tables.to_le_bytes());
            call_secret = keys.buckets;
        }
        let set_aside = config.dns.set_aside.as_millis() as u64;
        let (linger, patience) = (config.accounting.group_interval, config.store.busy_timeout);
        let sharing = Sharing::new(now, &config);
        let writer = Writer::new(linger.as_millis() as u64, patience.as_millis() as u64);
        let surroundings = ProcessContext {
            identity: identity(settings.address, &config),
            secret: site.secret.clone(),
            seed,
            call_secret,
            process: number,
            shards: settings.shards,
            location,
            subscribers: lookups.as_ref().map(|(lookups, _)| lookups.clone() as Arc<dyn Subscribers>),
            credentials: settings
                .credentials
                .map(|_| CredentialCache::new(CacheHandle::Remote(site.credentials.clone()))),
            bounds: settings.bounds.engine,
            log_limiter: Arc::new(LogLimiter::new(config.log.refusals_per_minute, config.limits.ipv6_prefix)),
            routes: Box::new(OneWay(settings.address.ip())),
            names: Arc::new(NoNames),
        };
        let shared = Arc::new(ProcessState::new(now, config, surroundings));
        if let Some(manners) = settings.credentials {
            site.credentials.set_manners(manners);
        }
        let receiver = |cache: &CredentialCache| cache.receiver(Arc::new(ByTheClock));
        let cached: Vec<ReceiverId> =
            (0..settings.shards).filter_map(|_| shared.credentials.as_ref().map(receiver)).collect();
        let process_status = ProcessStatus { draining: false, shards: settings.shards };
        let engine = |number| {
            let mut engine = Engine::new(now, shared.clone(), number, process_status);
            engine.sinks.found = lookups.as_ref().map(|(lookups, _)| lookups.shard());
            engine.sinks.written = keeper.as_mut().map(|keeper| {
                let written = keeper.written.clone();
                keeper.journal.receiver(Arc::new(move |results: &[(u64, Result<(), StoreError>)]| {
                    let results = results.iter().map(|(ticket, result)| (number, *ticket, *result));
                    written.lock().unwrap_or_else(PoisonError::into_inner).extend(results);
                }))
            });
            engine.sinks.cached = shared.credentials.clone().zip(cached.get(number).copied());
            engine.heard = Some(Vec::new());
            engine
        };
        Self {
            number,
            engines: (0..settings.shards).map(engine).collect(),
            in_force: vec![policy; settings.shards],
            policies_due: vec![now.mono; settings.shards],
            outlived: Vec::new(),
            owners: std::array::from_fn(|bucket| bucket % settings.shards),
            lookups,
            keeper,
            cached,
            shared,
            due: BTreeMap::new(),
            draining: None,
            observer: Observer::default(),
            ringing: Ringing::default(),
            accounts: Accounts::default(),
            writer,
            sharing,
            failed_targets: FailedTargets::new(set_aside),
            time,
        }
    }

    /// Returns whether calls are being set up, or a request waits.
    pub(super) fn is_busy(&self) -> bool {
        self.shared.counts().busy()
    }
}

/// Returns the listeners of a configuration, in the order of [`LISTENERS`]. The last listener is TLS for the engines,
/// but TCP in the configuration: TLS would need certificates, and the network only simulates them.
pub(super) fn listeners(address: std::net::SocketAddr) -> String {
    let listener = |transport: strowger_core::Transport| {
        let at = crate::world::listens_at(address, transport);
        let text = if transport.is_secure() { "tcp" } else { transport.text() };
        format!("\"{text}:{at}\"")
    };
    format!("listen = [{}]", LISTENERS.map(listener).join(", "))
}
