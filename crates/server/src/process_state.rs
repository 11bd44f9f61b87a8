//! What all shards of the process share.

use crate::call_limits::CallLimits;
use crate::counters::{Counters, Counts, Durations, Messages};
use crate::ended_calls::EndedCalls;
use crate::flows::Flows;
use crate::gateways::Gateways;
use crate::line_rate::LineRate;
use crate::local_address::Routes;
use crate::policy::Policy;
use crate::removed_users::RemovedUsers;
use crate::set_aside::{AsideTarget, SetAside};
use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Mutex, PoisonError};
use strowger_config::{Config, Decisions};
use strowger_core::log_limiter::LogLimiter;
use strowger_core::proxy::UdpOnly;
use strowger_core::routing::Identity;
use strowger_core::{Flow, Now};
use strowger_store::credential_cache::CredentialCache;
use strowger_store::location::LocationTable;
use strowger_store::subscriber::Subscribers;

/// The bound of [`ProcessState::refusal_rows`] in a minute; a tenth of it for each source. About half of it for all of them: they are of one kind.
const REFUSAL_ROWS: u32 = 600;

/// What lives as long as the process, and belongs to no call.
pub struct ProcessState {
    /// What new requests go by; each shard has it from here when it starts, and then as it changes.
    policy: Mutex<Arc<Policy>>,
    /// How many there have been since the first.
    reloads: AtomicU64,
    /// How many of them brought another configuration.
    configurations: AtomicU64,
    /// Those of before, each as long as a request goes by it. Who makes another one holds this: there is one at a time.
    retired: Mutex<Vec<Arc<Policy>>>,
    /// What the server writes is known again by this key.
    secret: Vec<u8>,
    /// The bindings of all users.
    pub location: Arc<LocationTable>,
    pub(crate) flows: Flows,
    /// Next hops that failed.
    pub(crate) set_aside: SetAside,
    /// Peers to which large requests go by UDP.
    pub(crate) udp_only: Arc<UdpOnly>,
    /// None: the server knows no user, and admits or refuses every user of a local domain alike.
    pub subscribers: Option<Arc<dyn Subscribers>>,
    /// Where the credentials of registered users are, if they are in a cache alone: what is no REGISTER is verified from there.
    pub credentials: Option<CredentialCache>,
    /// Of lines about requests and connections that were refused or failed.
    pub log_limiter: Arc<LogLimiter>,
    pub(crate) routes: Box<dyn Routes>,
    /// Calls that count under limits of rules.
    pub call_limits: Arc<CallLimits>,
    /// Of calls that are logged.
    pub(crate) call_lines: LineRate,
    /// Rows of accounting about refused calls whose callers have shown no password.
    pub(crate) refusal_rows: LogLimiter,
    /// Of lines about registrations.
    pub(crate) registration_lines: LineRate,
    /// Key of [`strowger_core::call::hash`].
    pub call_secret: u32,
    /// The rounds of pings run.
    pub(crate) pings_awake: std::sync::atomic::AtomicBool,
    /// When the process began.
    pub(crate) began: Now,
    /// Users whose accounts were removed.
    pub removed_users: RemovedUsers,
    pub(crate) ended_calls: EndedCalls,
    /// Drawn at the start of the process: seeds of each shard's entropy.
    pub(crate) seed: [u8; 32],
    /// Of each shard, in their order.
    pub counters: Vec<Counters>,
    /// Messages and calls by method and code, of each shard.
    pub messages: Vec<Messages>,
    /// Gateways of rules.
    pub gateways: Gateways,
    /// How long things took, of each shard.
    pub durations: Vec<Durations>,
}

/// The part of [`Surroundings::seed`] that is the key of the tables of calls. Where calls are kept over a restart it follows from the
/// secret, and so does `call_secret` ([`CallKeys::derive`](strowger_core::call::CallKeys::derive)).
pub const CALL_SEED: Range<usize> = 16..24;

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
    /// Where bindings are kept, those of the database read in already.
    pub location: Arc<LocationTable>,
    /// None: the server knows no user, and admits or refuses every user of a local domain alike.
    pub subscribers: Option<Arc<dyn Subscribers>>,
    /// Where the credentials of registered users are, if they are in a cache alone.
    pub credentials: Option<CredentialCache>,
    /// Bounds what is logged about each source.
    pub log_limiter: Arc<LogLimiter>,
    /// What the kernel says of its routes.
    pub routes: Box<dyn Routes>,
}

impl ProcessState {
    /// With the first policy of the process, made of `config`. Engines are made from it: see [`Engine::new`](crate::engine::Engine::new).
    pub fn new(now: Now, config: Config, surroundings: Surroundings) -> Self {
        let Surroundings {
            identity,
            secret,
            seed,
            call_secret,
            process,
            shards,
            location,
            subscribers,
            credentials,
            log_limiter,
            routes,
        } = surroundings;
        let [limits, nonces, ..] = *seed.as_chunks::<8>().0 else { unreachable!("four times eight bytes") };
        Self {
            location,
            flows: Flows::new(config.server.node, process, shards),
            set_aside: SetAside::new(),
            udp_only: Arc::default(),
            subscribers,
            credentials,
            log_limiter,
            routes,
            call_limits: Arc::new(CallLimits::new(u64::from_le_bytes(limits))),
            call_lines: LineRate::new(config.log.calls_per_minute),
            refusal_rows: LogLimiter::new(REFUSAL_ROWS, config.limits.ipv6_prefix),
            registration_lines: LineRate::new(config.log.registrations_per_minute),
            call_secret,
            pings_awake: Default::default(),
            began: now,
            removed_users: RemovedUsers::default(),
            ended_calls: EndedCalls::default(),
            seed,
            counters: (0..shards).map(|_| Counters::default()).collect(),
            messages: (0..shards).map(|_| Messages::default()).collect(),
            gateways: Gateways::default(),
            durations: (0..shards).map(|_| Durations::default()).collect(),
            reloads: AtomicU64::new(0),
            configurations: AtomicU64::new(0),
            retired: Mutex::default(),
            policy: Mutex::new(Arc::new(Policy::first(now, config, identity, &secret, u64::from_le_bytes(nonces)))),
            secret,
        }
    }

    /// What new requests go by.
    pub fn policy(&self) -> Arc<Policy> {
        self.policy.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A user was removed at `now`: route tokens from before open nothing more. Name and domain are as the database has them.
    pub fn end_routes_of(&self, name: &[u8], domain: &[u8], now: Now) {
        self.removed_users.note(self.policy().router.account(name, domain), now);
    }

    /// How many policies have taken the place of the first: an engine that has seen fewer needs the [policy](Self::policy) of now.
    #[inline]
    pub fn reloads(&self) -> u64 {
        self.reloads.load(Acquire)
    }

    /// Makes the policy of another configuration that of this process: see [`Config::for_running`] for what must be as it was. The
    /// caller hands it to each engine between two rounds ([`Answer::Policy`](crate::engine::Answer)).
    pub fn set_config(&self, config: Config, identity: Identity) -> Arc<Policy> {
        let log = &config.log;
        self.call_lines.set(log.calls_per_minute);
        self.registration_lines.set(log.registrations_per_minute);
        self.log_limiter.set(log.refusals_per_minute);
        self.configurations.fetch_add(1, Release);
        self.replace(|policy| policy.next(config, identity, &self.secret))
    }

    /// Has new requests go by other rules and data sets, and by the configuration of now in all else. The caller hands the policy on, as in
    /// [`set_config`](Self::set_config).
    pub fn set_decisions(&self, decisions: Arc<Decisions>) -> Arc<Policy> {
        self.replace(|policy| policy.with_decisions(decisions))
    }

    /// Has new requests go by other addresses of the machine or of the services that the server uses, and by the configuration of now. The
    /// caller hands the policy on, as in [`set_config`](Self::set_config).
    pub fn set_identity(&self, identity: Identity) -> Arc<Policy> {
        self.replace(|policy| policy.with_identity(identity, &self.secret))
    }

    /// How many configurations have taken the place of the first. Other data sets are none.
    pub fn configurations(&self) -> u64 {
        self.configurations.load(Acquire)
    }

    fn replace(&self, next: impl FnOnce(&Policy) -> Policy) -> Arc<Policy> {
        // To make a policy takes its time, in which shards still look at the one of now.
        let mut retired = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.policy();
        let next = Arc::new(next(&before));
        *self.policy.lock().unwrap_or_else(PoisonError::into_inner) = next.clone();
        retired.push(before);
        self.reloads.fetch_add(1, Release);
        next
    }

    /// Whether there are policies by which no request goes any more.
    pub fn has_retired(&self) -> bool {
        self.retired.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|policy| Arc::strong_count(policy) == 1)
    }

    /// Frees them: rules and data sets are large, and no shard is to spend its time on that. To be called by a thread that carries no messages,
    /// the one that makes policies.
    pub fn drop_retired(&self) {
        let unused = |policy: &mut Arc<Policy>| Arc::strong_count(policy) == 1;
        let unused: Vec<_> = {
            let mut retired = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
            retired.extract_if(.., unused).collect()
        };
        drop(unused);
    }

    /// Whether a connection of this process is open, as far as its shards have said.
    pub fn is_open(&self, flow: Flow) -> bool {
        self.flows.is_open(flow)
    }

    /// How many next hops are set aside: they failed, and have not answered since.
    pub fn targets_aside(&self) -> usize {
        self.set_aside.held()
    }

    /// How many peers take no TCP connection for large requests, as was seen lately.
    pub fn udp_only_peers(&self) -> usize {
        self.udp_only.held()
    }

    /// These next hops, `most` of them at most.
    pub fn list_aside(&self, now: Now, most: usize) -> Vec<AsideTarget> {
        self.set_aside.list(now.mono, most)
    }

    /// Requests and responses that all shards have received.
    pub fn received(&self) -> (u64, u64) {
        let requests = self.messages.iter().map(|messages| messages.requests.total()).sum();
        (requests, self.messages.iter().map(|messages| messages.received.total()).sum())
    }

    /// All shards together.
    pub fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        for counters in &self.counters {
            sum += counters.snapshot();
        }
        sum
    }
}
