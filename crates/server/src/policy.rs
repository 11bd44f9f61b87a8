//! Policy of the server: its compiled configuration.
//!
//! A process has one policy after the other. A new one reaches each engine between two messages
//! ([`EngineInput::Policy`](crate::engine::EngineInput)). A request keeps the policy that was current when it arrived,
//! however long it waits or rings.

use crate::ban::Bans;
use crate::realm::Realms;
use std::fmt;
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use strowger_config::{Action, Config, Decisions, FilterAction, Network};
use strowger_core::digest::{Algorithm, Authenticator};
use strowger_core::routing::{ClockSteps, Identity, Router};
use strowger_core::source::counted;
use strowger_core::{Arrival, ListenerId, Now, proxy, registrar};
use strowger_message::Limits;
use strowger_rules::Rule;

/// Compiled configuration, by which requests are judged. All shards share it.
pub struct Policy {
    /// Configuration as read, for the keys that the fields below do not compile.
    pub config: Config,
    /// Identity of this server, and the keys of its route tokens and seals.
    pub(crate) router: Arc<Router>,
    /// Networks of every `[[source]]`: peers may name addresses in them.
    pub(crate) source_networks: Box<[Network]>,
    pub(crate) limits: Limits,
    /// Issuer and verifier of nonces. The table of used nonces belongs to the process: all policies share it.
    pub authenticator: Authenticator,
    /// Digest algorithms that each listener offers.
    pub(crate) algorithms: Vec<Box<[Algorithm]>>,
    /// Banned sources. Each next policy keeps them.
    pub bans: Bans,
    /// Realms in which requests are judged.
    pub(crate) realms: Realms,
    pub(crate) registrar: Arc<registrar::RegistrarSettings>,
    /// `Server` header field with its line end, or nothing.
    pub(crate) server_line: Vec<u8>,
    /// Turn of each group of gateways, in the order of the configuration.
    pub(crate) turns: Arc<[Turn]>,
}

impl Policy {
    /// Creates the first policy of a process. `secret`: key of the tokens, seals and tags that the server writes.
    /// `seed`: random seed of the authenticator.
    pub fn first(now: Now, config: Config, identity: Identity, (secret, seed): (&[u8], u64), bans: Bans) -> Self {
        let authenticator = Authenticator::new(config.digest_settings(), secret, seed, now);
        let steps = Arc::new(ClockSteps::default());
        steps.note(now);
        Self::of(config, identity, (secret, steps), authenticator, bans)
    }

    /// Compiles another configuration for the same process, after the policy `self`. Issued nonces stay valid and
    /// banned sources stay banned. Settings that were fixed when the process began MUST be the same in both.
    pub fn next(&self, config: Config, identity: Identity, secret: &[u8]) -> Self {
        let authenticator = self.authenticator.with_settings(config.digest_settings());
        let bans = self.bans.with_settings(config.ban_settings());
        let steps = self.router.clock_steps().clone();
        Self::of(config, identity.after(self.router.identity()), (secret, steps), authenticator, bans)
    }

    /// Returns this policy with other rules and data sets. The compiled parts of all other tables are shared.
    pub(crate) fn with_decisions(&self, decisions: Arc<Decisions>) -> Self {
        Self {
            config: Config { decisions, ..self.config.clone() },
            router: self.router.clone(),
            source_networks: self.source_networks.clone(),
            limits: self.limits,
            authenticator: self.authenticator.with_settings(self.config.digest_settings()),
            algorithms: self.algorithms.clone(),
            bans: self.bans.with_settings(self.config.ban_settings()),
            realms: Realms::of(&self.config),
            registrar: self.registrar.clone(),
            server_line: self.server_line.clone(),
            turns: self.turns.clone(),
        }
    }

    /// Returns this policy with a changed identity: with other addresses of the machine, or of the services that the
    /// server uses.
    pub(crate) fn with_identity(&self, identity: Identity, secret: &[u8]) -> Self {
        let identity = Arc::new(identity.after(self.router.identity()));
        let router = Router::new(identity, secret, self.config.route_lifetime());
        let router = router.with_clock_steps(self.router.clock_steps().clone());
        Self { router: Arc::new(router), ..self.with_decisions(self.config.decisions.clone()) }
    }

    fn of(
        config: Config,
        identity: Identity,
        (secret, steps): (&[u8], Arc<ClockSteps>),
        authenticator: Authenticator,
        bans: Bans,
    ) -> Self {
        let router = Router::new(Arc::new(identity), secret, config.route_lifetime()).with_clock_steps(steps);
        Self {
            source_networks: config.source_networks().collect(),
            router: Arc::new(router),
            limits: config.message_limits(),
            authenticator,
            algorithms: config.offered_algorithms(),
            bans,
            realms: Realms::of(&config),
            registrar: Arc::new(config.registrar_settings()),
            server_line: match &config.server.software[..] {
                "" => Vec::new(),
                software => format!("Server: {software}\r\n").into_bytes(),
            },
            turns: config.gateway_groups.iter().map(|_| Turn::default()).collect(),
            config,
        }
    }

    /// Returns the identity of this server.
    pub fn identity(&self) -> &Identity {
        self.router.identity()
    }

    /// Returns the key under which a source is counted: an IPv4 address, or an IPv6 network of `limits.ipv6_prefix`
    /// bits.
    pub(crate) fn source_of(&self, arrival: &Arrival) -> IpAddr {
        counted(arrival.remote.ip(), self.config.limits.ipv6_prefix)
    }

    /// Returns the digest algorithms that this listener offers.
    pub(crate) fn algorithms(&self, listener: ListenerId) -> &[Algorithm] {
        self.algorithms.get(usize::from(listener.0)).map_or(&[], |offered| offered)
    }
}

/// Position of a group in its rotation. All shards share it, so that even a few calls are spread evenly.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    /// Turn of requests that go to the group.
    pub(crate) of_rules: AtomicUsize,
    /// Turn of requests that may go to the group after a failure.
    pub(crate) of_failures: AtomicUsize,
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policy").finish_non_exhaustive()
    }
}

/// Policy in use by one shard. Suspended requests refer to it. Each shard has a value of its own, so that no two
/// threads share a reference count.
#[derive(Debug)]
pub(crate) struct ActivePolicy {
    policy: Arc<Policy>,
    /// Part for the proxy core.
    pub(crate) forwarding: Arc<proxy::Policy>,
}

impl ActivePolicy {
    pub(crate) fn new(policy: Arc<Policy>) -> Arc<Self> {
        let forwarding = proxy::Policy { router: policy.router.clone(), settings: policy.config.proxy_settings() };
        Arc::new(Self { forwarding: Arc::new(forwarding), policy })
    }

    /// Returns the filter with this index.
    pub(crate) fn filter(&self, place: usize) -> Option<&Rule<FilterAction>> {
        self.config.decisions.filters.iter().nth(place)
    }

    /// Returns the rule with this index.
    pub(crate) fn rule(&self, place: usize) -> Option<&Rule<Action>> {
        self.config.decisions.rules.iter().nth(place)
    }
}

impl Deref for ActivePolicy {
    type Target = Policy;

    fn deref(&self) -> &Policy {
        &self.policy
    }
}
