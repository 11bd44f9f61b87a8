//! State that all shards of the process share.

use crate::ban::Bans;
use crate::bounds::EngineBounds;
use crate::bridged_dialogs::BridgedDialogs;
use crate::counters::{Counters, Counts, Durations, Messages};
use crate::flows::Flows;
use crate::gateways::Gateways;
use crate::local_address::Routes;
use crate::log_line_rate::LineRate;
use crate::peer_names::PeerNames;
use crate::policy::Policy;
use crate::removed_users::RemovedUsers;
use crate::target_quarantine::{QuarantinedTarget, TargetQuarantine};
use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Mutex, PoisonError};
use strowger_calls::TableSettings;
use strowger_calls::ended_calls::EndedCalls;
use strowger_calls::limits::CallLimits;
use strowger_config::{Config, Decisions};
use strowger_core::log_limiter::LogLimiter;
use strowger_core::proxy::UdpOnly;
use strowger_core::routing::Identity;
use strowger_core::{Flow, Now, call};
use strowger_store::credential_cache::CredentialCache;
use strowger_store::location::LocationTable;
use strowger_store::subscriber::Subscribers;

/// Bound of [`ProcessState::refusal_rows`] per minute. A source gets a tenth of the bound, all sources together about
/// half, since all rows are of one kind.
const REFUSAL_ROWS: u32 = 600;

/// State that lives as long as the process, and belongs to no call.
pub struct ProcessState {
    /// Policy of new requests. Each shard gets the policy at its start, and after each change.
    policy: Mutex<Arc<Policy>>,
    /// Number of policies since the first.
    reloads: AtomicU64,
    /// Number of those that brought another configuration.
    configurations: AtomicU64,
    /// Earlier policies, each kept while a request uses it. A thread that builds a policy holds this lock, so policies
    /// are built one at a time.
    retired: Mutex<Vec<Arc<Policy>>>,
    /// Key of the tokens, seals and tags that the server writes.
    secret: Vec<u8>,
    /// Bindings of all users.
    pub location: Arc<LocationTable>,
    pub(crate) flows: Flows,
    /// Next hops that failed.
    pub(crate) set_aside: TargetQuarantine,
    /// Peers to which large requests go by UDP.
    pub(crate) udp_only: Arc<UdpOnly>,
    /// Database of users; `None`: the server knows no user, and admits or refuses every user of a local domain alike.
    pub subscribers: Option<Arc<dyn Subscribers>>,
    /// Cache of the credentials of registered users, if only a cache has them. It verifies all requests except
    /// REGISTER.
    pub credentials: Option<CredentialCache>,
    /// Bounds that no configuration sets.
    pub bounds: EngineBounds,
    /// Limiter of log lines about requests and connections that were refused or failed.
    pub log_limiter: Arc<LogLimiter>,
    pub(crate) routes: Box<dyn Routes>,
    pub(crate) peer_names: Arc<dyn PeerNames>,
    /// Counts of calls under the limits of rules.
    pub call_limits: Arc<CallLimits>,
    /// Limiter of log lines about calls.
    pub(crate) call_lines: LineRate,
    /// Limiter of accounting rows about refused calls whose callers have shown no password.
    pub(crate) refusal_rows: LogLimiter,
    /// Limiter of log lines about registrations.
    pub(crate) registration_lines: LineRate,
    /// Dialogs of the bridged calls of all shards.
    pub(crate) bridged_dialogs: BridgedDialogs,
    /// Set while rounds of pings run.
    pub(crate) pings_awake: std::sync::atomic::AtomicBool,
    /// Start of the process.
    pub(crate) began: Now,
    /// Users whose accounts were removed.
    pub removed_users: RemovedUsers,
    pub(crate) ended_calls: Arc<EndedCalls>,
    /// Random seed, drawn at the start of the process. Each shard derives its entropy from it.
    pub(crate) seed: [u8; 32],
    /// Counters of each shard, in order.
    pub counters: Vec<Counters>,
    /// Counters of messages and calls by method and code, one per shard.
    pub messages: Vec<Messages>,
    /// Gateways of rules.
    pub gateways: Gateways,
    /// Histograms of durations, one per shard.
    pub durations: Vec<Durations>,
}

/// Part of [`ProcessContext::seed`] that is the key of the tables of calls. If calls are kept over a restart, this key
/// and `call_secret` are derived from the secret ([`CallKeys::derive`](strowger_core::call::CallKeys::derive)).
pub const CALL_SEED: Range<usize> = 16..24;

/// Key that separates the hash of tags from other ones.
const TAGS: u32 = 0x7461_6773;

/// Parts of a server that its configuration does not tell.
pub struct ProcessContext {
    /// Identity of the server, by the addresses of its listeners.
    pub identity: Identity,
    /// Key of the tokens, seals and tags that the server writes.
    pub secret: Vec<u8>,
    /// Random seed, drawn at the start of the process.
    pub seed: [u8; 32],
    /// Key of [`strowger_core::call::hash`].
    pub call_secret: u32,
    /// Number that distinguishes the flows of this process from those of an earlier one.
    pub process: u16,
    /// Maximum number of shards.
    pub shards: usize,
    /// Location table, with the bindings of the database already read.
    pub location: Arc<LocationTable>,
    /// Database of users; `None`: the server knows no user, and admits or refuses every user of a local domain alike.
    pub subscribers: Option<Arc<dyn Subscribers>>,
    /// Cache of the credentials of registered users, if only a cache has them.
    pub credentials: Option<CredentialCache>,
    /// Bounds that no configuration sets.
    pub bounds: EngineBounds,
    /// Limiter of log lines about each source.
    pub log_limiter: Arc<LogLimiter>,
    /// Routing table of the kernel.
    pub routes: Box<dyn Routes>,
    /// Names that peers of secure connections must prove.
    pub names: Arc<dyn PeerNames>,
}

impl ProcessState {
    /// Returns the secret of the tags of the user agent. It is that of the process before, so that a request in a dialog that has ended with it is
    /// known.
    pub(crate) fn tag_secret(&self) -> u32 {
        call::hash(TAGS, &self.secret)
    }

    /// Returns the key of [`strowger_core::call::hash`].
    pub const fn call_secret(&self) -> u32 {
        self.bridged_dialogs.secret()
    }

    /// Returns the hash of a Call-ID, with the bucket to which the Call-ID belongs in its highest bits.
    #[inline]
    pub(crate) fn call_hash(&self, call_id: &[u8]) -> u32 {
        self.bridged_dialogs.placed_hash(call::hash(self.call_secret(), call_id), call_id)
    }

    /// Returns the bucket of the call of a received message with this Call-ID, 0 to 255. An INVITE that is to replace a party of a bridged call
    /// (RFC 3891), and all later messages with its Call-ID, belong to the bucket of that call. The owner of several engines gives each message to
    /// that of its bucket.
    #[inline]
    pub fn bucket_of(&self, now: Now, call_id: &[u8], message: &[u8]) -> u8 {
        let hash = call::hash(self.call_secret(), call_id);
        call::bucket(self.bridged_dialogs.hash_of_message(now.mono, (hash, call_id), message))
    }

    /// Creates the state with the first policy of the process, from `config`.
    /// [`Engine::new`](crate::engine::Engine::new) creates engines from this state.
    pub fn new(now: Now, config: Config, surroundings: ProcessContext) -> Self {
        let ProcessContext {
            identity,
            secret,
            seed,
            call_secret,
            process,
            shards,
            location,
            subscribers,
            credentials,
            bounds,
            log_limiter,
            routes,
            names,
        } = surroundings;
        let [limits, nonces, ..] = *seed.as_chunks::<8>().0 else { unreachable!("four times eight bytes") };
        let bans = Bans::new(config.ban_settings(), bounds.ban_sources, config.limits.ipv6_prefix);
        Self {
            location,
            flows: Flows::new(config.server.node, process, shards),
            set_aside: TargetQuarantine::new(),
            udp_only: Arc::default(),
            subscribers,
            credentials,
            bounds,
            log_limiter,
            routes,
            peer_names: names,
            call_limits: Arc::new(CallLimits::new(u64::from_le_bytes(limits))),
            call_lines: LineRate::new(config.log.calls_per_minute),
            refusal_rows: LogLimiter::new(REFUSAL_ROWS, config.limits.ipv6_prefix),
            registration_lines: LineRate::new(config.log.registrations_per_minute),
            bridged_dialogs: BridgedDialogs::new(call_secret),
            pings_awake: Default::default(),
            began: now,
            removed_users: RemovedUsers::default(),
            ended_calls: Arc::default(),
            seed,
            counters: (0..shards).map(|_| Counters::default()).collect(),
            messages: (0..shards).map(|_| Messages::default()).collect(),
            gateways: Gateways::default(),
            durations: (0..shards).map(|_| Durations::default()).collect(),
            reloads: AtomicU64::new(0),
            configurations: AtomicU64::new(0),
            retired: Mutex::default(),
            policy: Mutex::new(Arc::new(Policy::first(
                now,
                config,
                identity,
                (&secret[..], u64::from_le_bytes(nonces)),
                bans,
            ))),
            secret,
        }
    }

    /// Returns the settings of the table of calls of a shard. `keeps`: whether calls are kept over a restart.
    pub(crate) fn call_table(&self, keeps: bool) -> TableSettings {
        let seed = u64::from_le_bytes(self.seed[CALL_SEED].try_into().expect("eight of thirty-two bytes"));
        TableSettings { seed, keeps, limits: self.call_limits.clone(), ended: self.ended_calls.clone() }
    }

    /// Returns the policy of new requests.
    pub fn policy(&self) -> Arc<Policy> {
        self.policy.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Invalidates the earlier route tokens of a user that was removed at `now`. Name and domain are spelled as in the
    /// database.
    pub fn end_routes_of(&self, name: &[u8], domain: &[u8], now: Now) {
        self.removed_users.note(self.policy().router.account(name, domain), now);
    }

    /// Returns the number of policies since the first. An engine that has seen fewer needs the current
    /// [policy](Self::policy).
    #[inline]
    pub fn reloads(&self) -> u64 {
        self.reloads.load(Acquire)
    }

    /// Replaces the configuration of this process. [`Config::for_running`] tells which keys must not change. The caller
    /// hands the policy to each engine between two rounds ([`EngineInput::Policy`](crate::engine::EngineInput)).
    pub fn set_config(&self, config: Config, identity: Identity) -> Arc<Policy> {
        let log = &config.log;
        self.call_lines.set(log.calls_per_minute);
        self.registration_lines.set(log.registrations_per_minute);
        self.log_limiter.set(log.refusals_per_minute);
        self.configurations.fetch_add(1, Release);
        self.replace(|policy| policy.next(config, identity, &self.secret))
    }

    /// Replaces the rules and data sets, and keeps the current configuration otherwise. The caller hands the policy on
    /// as in [`set_config`](Self::set_config).
    pub fn set_decisions(&self, decisions: Arc<Decisions>) -> Arc<Policy> {
        self.replace(|policy| policy.with_decisions(decisions))
    }

    /// Replaces the addresses of the machine, or of the services that the server uses, and keeps the current
    /// configuration. The caller hands the policy on as in [`set_config`](Self::set_config).
    pub fn set_identity(&self, identity: Identity) -> Arc<Policy> {
        self.replace(|policy| policy.with_identity(identity, &self.secret))
    }

    /// Returns the number of configurations since the first. Changes of data sets alone are not counted.
    pub fn configurations(&self) -> u64 {
        self.configurations.load(Acquire)
    }

    fn replace(&self, next: impl FnOnce(&Policy) -> Policy) -> Arc<Policy> {
        // Building a policy takes time, during which shards still use the current policy.
        let mut retired = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.policy();
        let next = Arc::new(next(&before));
        *self.policy.lock().unwrap_or_else(PoisonError::into_inner) = next.clone();
        retired.push(before);
        self.reloads.fetch_add(1, Release);
        next
    }

    /// Tells whether there are policies that no request uses any more.
    pub fn has_retired(&self) -> bool {
        self.retired.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|policy| Arc::strong_count(policy) == 1)
    }

    /// Frees the policies that no request uses any more. Freeing rules and data sets takes long, because they are
    /// large. So the caller is the thread that makes policies, which carries no messages.
    pub fn drop_retired(&self) {
        let unused = |policy: &mut Arc<Policy>| Arc::strong_count(policy) == 1;
        let unused: Vec<_> = {
            let mut retired = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
            retired.extract_if(.., unused).collect()
        };
        drop(unused);
    }

    /// Tells whether a connection of this process is open, as far as its shards have reported.
    pub fn is_open(&self, flow: Flow) -> bool {
        self.flows.is_open(flow)
    }

    /// Returns the number of next hops that are set aside: they failed, and have not answered since.
    pub fn targets_aside(&self) -> usize {
        self.set_aside.held()
    }

    /// Returns the number of peers that recently accepted no TCP connection for large requests.
    pub fn udp_only_peers(&self) -> usize {
        self.udp_only.held()
    }

    /// Lists at most `most` next hops that are set aside.
    pub fn list_aside(&self, now: Now, most: usize) -> Vec<QuarantinedTarget> {
        self.set_aside.list(now.mono, most)
    }

    /// Returns the numbers of requests and responses that all shards have received.
    pub fn received(&self) -> (u64, u64) {
        let requests = self.messages.iter().map(|messages| messages.requests.total()).sum();
        (requests, self.messages.iter().map(|messages| messages.received.total()).sum())
    }

    /// Returns the number of Call-IDs that are known as those of bridged calls, with those of calls that have ended lately.
    pub fn bridged_call_ids(&self) -> usize {
        self.bridged_dialogs.all.load(Acquire)
    }

    /// Sums the counters of all shards.
    pub fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        for counters in &self.counters {
            sum += counters.snapshot();
        }
        sum
    }
}
