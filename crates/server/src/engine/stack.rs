//! State machines of `core` in one shard: the stack, its roles, and their source of randomness.

use crate::policy::Policy;
use crate::process_state::ProcessState;
use strowger_config::{Config, KEPT_MEMORY};
use strowger_core::call::BucketSet;
use strowger_core::entropy::Entropy;
use strowger_core::overload::OverloadControl;
use strowger_core::proxy::{ContextRecord, Proxy};
use strowger_core::registrar::Registrar;
use strowger_core::stack::{Reading, Stack as Core};
use strowger_core::timer::sooner;
use strowger_core::transaction::{Role, TransactionRecord, TransactionUser};
use strowger_core::user_agent::{AccountKey, AgentRecord, MovedCalls, UserAgent, UserAgentSettings};
use strowger_core::{Now, Outbox, Round};

/// State machines of one shard.
pub(crate) struct Stack {
    /// Transactions and receive path.
    pub(crate) core: Core,
    pub(crate) proxy: Proxy,
    /// User agent of the calls that this server answers itself.
    pub(crate) agent: UserAgent,
    pub(crate) registrar: Registrar,
    pub(crate) entropy: Entropy,
    pub(crate) overload: OverloadControl,
    /// Last reported wait of datagrams, in microseconds.
    pub(crate) datagram_wait: u64,
    /// Number of shards at the last division of the memory bounds.
    divided_among: usize,
}

impl Stack {
    /// Creates the state machines of the shard with this number.
    pub(super) fn new(shared: &ProcessState, policy: &Policy, number: usize) -> Self {
        let config = &policy.config;
        let entropy = Entropy::new(shared.seed).derive(&(number as u64).to_le_bytes());
        let words = |label: &[u8]| {
            let mut same = Entropy::new(shared.seed).derive(label);
            [same.u64(), same.u64()]
        };
        let mut proxy = Proxy::new(policy.router.clone(), config.proxy_settings(), entropy.derive(b"proxy"));
        proxy.set_udp_only(shared.udp_only.clone());
        // All its Call-IDs are those of peers, so it needs to know no buckets.
        let agent = UserAgent::new(
            policy.router.identity().clone(),
            UserAgentSettings { tag_secret: shared.tag_secret(), ..config.agent_settings() },
            entropy.derive(b"agent"),
            shared.call_secret(),
            BucketSet::ALL,
        );
        Self {
            core: Core::new(config.timer_settings(), words(b"transactions"), Reading::new(shared.call_secret())),
            proxy,
            agent,
            registrar: Registrar::default(),
            entropy,
            overload: OverloadControl::new(words(b"overload")),
            datagram_wait: 0,
            divided_among: 0,
        }
    }

    /// Returns the moment of the next timer.
    pub(super) fn deadline(&mut self) -> Option<u64> {
        sooner(self.core.transactions.deadline(), sooner(self.proxy.deadline(), self.agent.deadline()))
    }

    /// Runs `work` with the user agent.
    pub(crate) fn with_agent<T>(
        &mut self,
        now: Now,
        out: &mut Outbox,
        work: impl FnOnce(&mut UserAgent, &mut Round<'_>) -> T,
    ) -> T {
        let Self { core, agent, .. } = self;
        work(agent, &mut core.round(now, out))
    }

    /// Sets the limits of new messages, the bounds of the transactions, and the accounts at gateways.
    pub(super) fn set_bounds(&mut self, policy: &Policy, shards: usize) {
        let config = &policy.config;
        self.agent.set_named_accounts(config.gateway_groups.iter().filter_map(|group| {
            let (user, password) = group.credentials()?;
            Some((AccountKey::named(group.name.as_str().as_bytes()), user, password))
        }));
        self.core.reading.limits = policy.limits;
        self.core.reading.force_rport = config.nat.force_rport;
        self.core.transactions.set_limit(config.limits.transactions);
        self.core.transactions.set_most_kept(KEPT_MEMORY);
        self.divided_among = 0;
        self.divide_bounds(config, shards);
    }

    /// Divides the memory bounds among the running shards, because each shard has about the same number of calls of
    /// each source.
    pub(super) fn divide_bounds(&mut self, config: &Config, shards: usize) {
        if shards != self.divided_among {
            self.divided_among = shards;
            let limits = &config.limits;
            let [of_source, of_all] =
                [limits.request_memory_per_source, limits.request_memory_of_all].map(|bytes| bytes.div_ceil(shards));
            self.core.transactions.set_shares(of_source, of_all, limits.ipv6_prefix);
        }
    }

    /// Takes over response contexts and transactions that another stack exported.
    pub(super) fn import(&mut self, now: Now, contexts: Vec<ContextRecord>, transactions: Vec<TransactionRecord>) {
        let moved = self.proxy.import(now, contexts);
        let user = |record: &TransactionRecord| match record.tu.role() {
            Role::Ping(_) => record.tu,
            _ => moved.user(record).unwrap_or(TransactionUser::NONE),
        };
        let ids = self.core.transactions.import_all(now, transactions, user);
        self.proxy.settle(&moved, &ids);
    }

    /// Takes over calls of the user agent, with their transactions, that another stack exported. Returns their new keys.
    pub(crate) fn import_agent(
        &mut self,
        now: Now,
        record: AgentRecord,
        transactions: Vec<TransactionRecord>,
    ) -> MovedCalls {
        let calls = self.agent.import(now, record);
        let user = |record: &TransactionRecord| calls.user(record).unwrap_or(TransactionUser::NONE);
        let ids = self.core.transactions.import_all(now, transactions, user);
        self.agent.settle(&calls, &ids);
        calls
    }
}
