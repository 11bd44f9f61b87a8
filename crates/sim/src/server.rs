//! A host with the engine of a server inside. What a shard would do for it, the network and the clock of the world do.

use crate::random::Random;
use crate::users::Users;
use crate::world::{Host, listener, nothing_left};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use strowger_config::{Config, Source};
use strowger_core::quota::Quota;
use strowger_core::routing::{Identity, ListenerAddress};
use strowger_core::transaction::Transactions;
use strowger_core::{Arrival, Now, Outbox, Transport};
use strowger_server::engine::{Answer, Circumstances, Effect, Engine};
use strowger_server::local_address::Routes;
use strowger_server::parked::{HostKey, Resolved};
use strowger_server::shared::{Shared, Surroundings};
use strowger_store::location::LocationTable;
use strowger_store::subscriber::{LookupError, Subscribers};
use strowger_store::ticket::SinkId;

/// What surrounds the server.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    pub address: SocketAddr,
    /// What its file says beside its listeners.
    pub config: String,
    /// Names and the addresses that they stand for.
    pub names: Vec<(String, SocketAddr)>,
    /// Shortest and longest time that a look-up takes, ms.
    pub lookups: (u64, u64),
    /// Look-ups that fail, in thousandths.
    pub failures: u64,
    /// Who has a password here; none: the server knows no user and asks for no password.
    pub users: Vec<&'static str>,
}

pub struct ServerHost {
    settings: ServerSettings,
    shared: Arc<Shared>,
    engine: Engine,
    users: Option<Arc<Users>>,
    random: Random,
    /// What was asked, by the moment of its answer, then in the order of asking.
    answers: BTreeMap<(u64, u64), Answer>,
    asked: u64,
    /// When bindings that have expired were last removed.
    kept_up: u64,
}

/// A machine with one interface.
struct OneWay(IpAddr);

impl Routes for OneWay {
    fn source(&self, _to: IpAddr) -> Option<IpAddr> {
        Some(self.0)
    }

    fn interface(&self, own: IpAddr) -> Option<u32> {
        (own == self.0).then_some(1)
    }
}

/// ms between two rounds of upkeep.
const UPKEEP: u64 = 1_000;

const ALONE: Circumstances = Circumstances { draining: false, shards: 1 };

impl ServerHost {
    /// # Panics
    /// The configuration is wrong.
    pub fn new(now: Now, settings: ServerSettings, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let at = settings.address;
        let text = format!("listen = [\"udp:{at}\", \"tcp:{at}\"]\n{}", settings.config);
        let config = match Config::read(Source { text: &text, ..Source::default() }) {
            Ok((config, _)) => config,
            Err(report) => panic!("{report:?}\n{text}"),
        };
        let address = |transport| ListenerAddress {
            transport,
            bound: at,
            sent_by: at.to_string().into_bytes().into(),
            network: 0,
        };
        let domains: Vec<&str> = config.domains.iter().map(|domain| domain.as_str()).collect();
        let identity = Identity::new(vec![address(Transport::Udp), address(Transport::Tcp)], domains, &[]);
        let mut bytes = [0; 32];
        bytes.chunks_exact_mut(8).for_each(|part| part.copy_from_slice(&random.u64().to_le_bytes()));
        let known = (!settings.users.is_empty()).then(|| Arc::new(Users::new(&config.realm, &settings.users)));
        let surroundings = Surroundings {
            identity,
            secret: random.u64().to_le_bytes().repeat(4),
            seed: bytes,
            call_secret: random.u64() as u32,
            process: random.u64() as u16,
            shards: 1,
            location: Arc::new(LocationTable::new(config.location_settings())),
            subscribers: known.clone().map(|users| users as Arc<dyn Subscribers>),
            quota: Arc::new(Quota::new(config.log.refusals_per_minute, config.limits.ipv6_prefix)),
            routes: Box::new(OneWay(at.ip())),
        };
        let shared = Arc::new(Shared::new(now, config, surroundings));
        let mut engine = Engine::new(now, shared.clone(), 0, ALONE);
        engine.found = known.as_ref().map(|_| SinkId::NONE);
        Self { settings, shared, engine, users: known, random, answers: BTreeMap::new(), asked: 0, kept_up: now.mono }
    }

    pub fn address(&self) -> SocketAddr {
        self.settings.address
    }

    /// Transactions and kept messages of now.
    pub fn transactions(&self) -> &Transactions {
        self.engine.transactions()
    }

    fn carry_out(&mut self, now: Now) {
        self.ask_users(now);
        for effect in std::mem::take(&mut self.engine.effects) {
            match effect {
                Effect::Resolve { ticket, name, .. } => {
                    let fails = self.random.chance(self.settings.failures);
                    let to = if fails { Resolved::default() } else { self.look_up(&name) };
                    self.answer_later(now, Answer::Resolved { ticket, name, to });
                }
                Effect::WakePings | Effect::Alias { .. } | Effect::Confirm(_) | Effect::GiveBack => (),
            }
        }
    }

    /// The questions to the database among what the engine has just done.
    fn ask_users(&mut self, now: Now) {
        let Some(users) = self.users.clone() else { return };
        for (ticket, asked) in users.take() {
            let fails = self.random.chance(self.settings.failures);
            let result = if fails { Err(LookupError::Database) } else { Ok(users.answer(asked)) };
            self.answer_later(now, Answer::Subscribers(vec![(ticket, result)]));
        }
    }

    fn answer_later(&mut self, now: Now, answer: Answer) {
        let (shortest, longest) = self.settings.lookups;
        self.asked += 1;
        let due = now.mono + self.random.between(shortest, longest);
        self.answers.insert((due, self.asked), answer);
    }

    fn look_up(&self, (host, port, transport, _): &HostKey) -> Resolved {
        let is_it = |name: &str| name.as_bytes().eq_ignore_ascii_case(host);
        let found = self.settings.names.iter().find(|(name, _)| is_it(name));
        let target = |(_, address): &(String, SocketAddr)| {
            let port = port.unwrap_or_else(|| address.port());
            (transport.unwrap_or(Transport::Udp), SocketAddr::new(address.ip(), port))
        };
        Resolved { targets: found.map(target).into_iter().collect(), name: None }
    }
}

impl Host for ServerHost {
    fn receive(&mut self, now: Now, arrival: &Arrival, bytes: &[u8], out: &mut Outbox) {
        debug_assert_eq!(arrival.listener, listener(arrival.transport), "in the order of the configuration");
        self.engine.receive(now, arrival, bytes, out);
        self.carry_out(now);
    }

    fn failed(&mut self, now: Now, token: u64, out: &mut Outbox) {
        self.engine.unsent(now, token, "connection not made", out);
        self.carry_out(now);
    }

    fn poll(&mut self, now: Now, out: &mut Outbox) {
        while let Some(entry) = self.answers.first_entry().filter(|entry| entry.key().0 <= now.mono) {
            let answer = entry.remove();
            self.engine.answered(now, answer, out);
            self.carry_out(now);
        }
        self.engine.poll(now, out);
        if now.mono >= self.kept_up + UPKEEP {
            self.kept_up = now.mono;
            self.shared.keep_up(now);
        }
        self.carry_out(now);
    }

    fn deadline(&mut self) -> Option<u64> {
        let answer = self.answers.keys().next().map(|(due, _)| *due);
        self.engine.deadline().into_iter().chain(answer).min()
    }

    fn is_stateless(&self) -> bool {
        true
    }

    fn check(&self) -> Result<(), String> {
        let counts = self.transactions().counts();
        let whole = counts.servers + counts.clients;
        let here = self.settings.address;
        if counts.keys + counts.forgotten != whole {
            return Err(format!("{here}: {} keys for {whole} transactions", counts.keys));
        }
        if counts.kept_messages > whole || counts.timers > 2 * whole || self.engine.contexts() as u64 > whole {
            return Err(format!("{here}: more is held than transactions need: {counts:?}"));
        }
        Ok(())
    }

    fn leftovers(&self) -> Result<(), String> {
        let here = self.settings.address;
        nothing_left(&here, self.transactions())?;
        match (self.engine.contexts(), self.engine.waiting()) {
            (0, 0) => Ok(()),
            (contexts, waiting) => Err(format!("{here}: {contexts} contexts, {waiting} messages that wait")),
        }
    }
}
