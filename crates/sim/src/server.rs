//! A host with the engines of a server inside, one a shard. What the shards would do for them, the network and the clock of the world
//! do; buckets of calls move from one engine to the next as the settings say.

use crate::random::Random;
use crate::users::Users;
use crate::world::{Host, listener, nothing_left};
use crate::written::through_bytes;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::sync::Arc;
use strowger_config::{Config, Source};
use strowger_core::call::{self, BUCKETS};
use strowger_core::log_limiter::LogLimiter;
use strowger_core::routing::{Identity, ListenerAddress};
use strowger_core::transaction::Transactions;
use strowger_core::{Arrival, Now, Outbox, Transport};
use strowger_message::scan;
use strowger_server::engine::{Answer, Circumstances, Effect, Engine};
use strowger_server::local_address::Routes;
use strowger_server::process_state::{ProcessState, Surroundings};
use strowger_server::question::{HostKey, Resolved};
use strowger_store::error::StoreError;
use strowger_store::location::LocationTable;
use strowger_store::subscriber::Subscribers;
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
    /// What the database said once is known at once.
    pub remembers: bool,
    pub shards: usize,
    /// When half of all buckets move to the next shard, earliest last: [`Now::mono`].
    pub moves: Vec<u64>,
    /// Requests that wait during which they move too, in thousandths.
    pub chased: u64,
    /// When the process is killed and starts again, earliest last: [`Now::mono`].
    pub restarts: Vec<u64>,
}

/// What outlives a process, and servers beside each other share.
#[derive(Clone)]
struct Site {
    secret: Vec<u8>,
    /// Each registration is written before it is answered.
    location: Arc<LocationTable>,
}

/// A running server: all of this is gone when it is killed.
struct Process {
    shared: Arc<ProcessState>,
    engines: Vec<Engine>,
    /// The shard of each bucket of calls.
    owners: [usize; BUCKETS],
    users: Option<Arc<Users>>,
    /// What was asked and by which shard, by the moment of its answer, then in the order of asking.
    answers: BTreeMap<(u64, u64), (usize, Answer)>,
    /// Of messages whose sender wants to hear of failures: the shard and its token, by the token that the network has.
    tokens: HashMap<u64, (usize, u64)>,
}

pub struct ServerHost {
    settings: ServerSettings,
    site: Site,
    process: Process,
    /// When the process is first killed.
    first_restart: Option<u64>,
    /// It was killed, since this was last asked for.
    has_restarted: bool,
    random: Random,
    asked: u64,
    next_token: u64,
    out: Outbox,
    /// When bindings that have expired were last removed.
    kept_up: u64,
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

/// ms between two rounds of upkeep.
const UPKEEP: u64 = 1_000;

impl Process {
    /// # Panics
    /// The configuration is wrong.
    fn start(now: Now, settings: &ServerSettings, site: &Site, random: &mut Random) -> Self {
        let at = settings.address;
        let config = settings.read();
        let address = |transport| ListenerAddress {
            transport,
            bound: at,
            sent_by: at.to_string().into_bytes().into(),
            network: 0,
        };
        let identity =
            Identity::new(vec![address(Transport::Udp), address(Transport::Tcp)], config.domain_names(), &[]);
        let mut seed = [0; 32];
        seed.chunks_exact_mut(8).for_each(|part| part.copy_from_slice(&random.u64().to_le_bytes()));
        let users = (!settings.users.is_empty())
            .then(|| Arc::new(Users::new(&config.realm, &settings.users, settings.remembers)));
        let surroundings = Surroundings {
            identity,
            secret: site.secret.clone(),
            seed,
            call_secret: random.u64() as u32,
            process: random.u64() as u16,
            shards: settings.shards,
            location: site.location.clone(),
            subscribers: users.clone().map(|users| users as Arc<dyn Subscribers>),
            log_limiter: Arc::new(LogLimiter::new(config.log.refusals_per_minute, config.limits.ipv6_prefix)),
            routes: Box::new(OneWay(at.ip())),
        };
        let shared = Arc::new(ProcessState::new(now, config, surroundings));
        let circumstances = Circumstances { draining: false, shards: settings.shards };
        let engine = |number| {
            let mut engine = Engine::new(now, shared.clone(), number, circumstances);
            engine.found = users.as_ref().map(|_| SinkId::NONE);
            engine
        };
        Self {
            engines: (0..settings.shards).map(engine).collect(),
            owners: std::array::from_fn(|bucket| bucket % settings.shards),
            users,
            shared,
            answers: BTreeMap::new(),
            tokens: HashMap::new(),
        }
    }
}

impl ServerSettings {
    /// # Panics
    /// The configuration is wrong.
    fn read(&self) -> Config {
        let at = self.address;
        let text = format!("listen = [\"udp:{at}\", \"tcp:{at}\"]\n{}", self.config);
        match Config::read(Source { text: &text, ..Source::default() }) {
            Ok((config, _)) => config,
            Err(report) => panic!("{report:?}\n{text}"),
        }
    }
}

impl ServerHost {
    pub fn new(now: Now, settings: ServerSettings, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let location = Arc::new(LocationTable::new(settings.read().location_settings()));
        let site = Site { secret: random.u64().to_le_bytes().repeat(4), location };
        Self::at(now, settings, site, random)
    }

    /// Another server with the secret and the database of this one.
    pub fn beside(&self, now: Now, settings: ServerSettings, seed: u64) -> Self {
        Self::at(now, settings, self.site.clone(), Random::new(seed))
    }

    fn at(now: Now, settings: ServerSettings, site: Site, mut random: Random) -> Self {
        Self {
            process: Process::start(now, &settings, &site, &mut random),
            first_restart: settings.restarts.last().copied(),
            settings,
            site,
            has_restarted: false,
            random,
            asked: 0,
            next_token: 0,
            out: Outbox::new(),
            kept_up: now.mono,
        }
    }

    /// The longest time that a look-up takes, ms.
    pub fn longest_look_up(&self) -> u64 {
        self.settings.lookups.1
    }

    /// When the process is first killed: [`Now::mono`].
    pub fn first_restart(&self) -> Option<u64> {
        self.first_restart
    }

    /// Look-ups may fail.
    pub fn may_fail(&self) -> bool {
        self.settings.failures > 0
    }

    pub fn address(&self) -> SocketAddr {
        self.settings.address
    }

    /// Transactions and kept messages of each shard.
    pub fn transactions(&self) -> impl Iterator<Item = &Transactions> {
        self.process.engines.iter().map(Engine::transactions)
    }

    /// Lets a shard work, and carries out what it wants.
    fn work(&mut self, now: Now, shard: usize, out: &mut Outbox, work: impl FnOnce(&mut Engine, &mut Outbox)) {
        let mut own = std::mem::take(&mut self.out);
        work(&mut self.process.engines[shard], &mut own);
        for send in own.sends() {
            let from = out.start();
            out.bytes.extend_from_slice(&own.bytes[send.range()]);
            let mut token = 0;
            if send.token != 0 {
                self.next_token += 1;
                token = self.next_token;
                self.process.tokens.insert(token, (shard, send.token));
            }
            out.send(send.target, from..out.bytes.len(), token);
        }
        own.clear();
        self.out = own;
        self.carry_out(now, shard);
    }

    /// The shard of the call that this message is of.
    fn shard_of(&self, bytes: &[u8]) -> usize {
        let hash = |at: Range<usize>| call::hash(self.process.shared.call_secret, &bytes[at]);
        scan::call_id(bytes).map_or(0, |at| self.process.owners[usize::from(call::bucket(hash(at)))])
    }

    /// Half of all buckets go to the next shard, with all that is under way of their calls: as values, or in bytes as to another process.
    fn move_buckets(&mut self, now: Now, out: &mut Outbox) {
        let in_bytes = self.random.chance(500);
        for bucket in 0..BUCKETS {
            if self.random.chance(500) {
                let from = self.process.owners[bucket];
                let to = (from + 1) % self.process.engines.len();
                self.process.owners[bucket] = to;
                let records = self.process.engines[from].export(now, bucket as u8);
                for record in if in_bytes { through_bytes(records) } else { records } {
                    self.work(now, to, out, |engine, out| engine.import(now, record, out));
                }
            }
        }
    }

    fn carry_out(&mut self, now: Now, shard: usize) {
        self.ask_users(now, shard);
        for effect in std::mem::take(&mut self.process.engines[shard].effects) {
            match effect {
                Effect::Resolve { ticket, name, .. } => {
                    let fails = self.random.chance(self.settings.failures);
                    let to = if fails { Resolved::default() } else { self.look_up(&name) };
                    self.answer_later(now, shard, Answer::Resolved { ticket, name, to });
                }
                Effect::WakePings | Effect::Alias { .. } | Effect::Confirm(_) | Effect::GiveBack => (),
            }
        }
    }

    /// The questions to the database among what the engine has just done.
    fn ask_users(&mut self, now: Now, shard: usize) {
        let Some(users) = self.process.users.clone() else { return };
        for (ticket, asked) in users.take() {
            let fails = self.random.chance(self.settings.failures);
            let result = if fails { Err(StoreError::Unavailable) } else { Ok(users.answer(asked)) };
            self.answer_later(now, shard, Answer::Subscribers(vec![(ticket, result)]));
        }
    }

    fn answer_later(&mut self, now: Now, shard: usize, answer: Answer) {
        let (shortest, longest) = self.settings.lookups;
        self.asked += 1;
        let due = now.mono + self.random.between(shortest, longest);
        if self.process.engines.len() > 1 && self.random.chance(self.settings.chased) {
            let moves = &mut self.settings.moves;
            moves.push(self.random.between(now.mono, due));
            moves.sort_unstable_by(|a, b| b.cmp(a));
        }
        self.process.answers.insert((due, self.asked), (shard, answer));
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
        let shard = self.shard_of(bytes);
        self.work(now, shard, out, |engine, out| engine.receive(now, arrival, bytes, out));
    }

    fn failed(&mut self, now: Now, token: u64, out: &mut Outbox) {
        let Some((shard, token)) = self.process.tokens.remove(&token) else { return };
        self.work(now, shard, out, |engine, out| engine.unsent(now, token, "connection not made", out));
    }

    fn poll(&mut self, now: Now, out: &mut Outbox) {
        while let Some(entry) = self.process.answers.first_entry().filter(|entry| entry.key().0 <= now.mono) {
            let (shard, answer) = entry.remove();
            self.work(now, shard, out, |engine, out| engine.answered(now, answer, out));
        }
        if self.settings.moves.pop_if(|due| *due <= now.mono).is_some() {
            self.move_buckets(now, out);
        }
        if self.settings.restarts.pop_if(|due| *due <= now.mono).is_some() {
            self.process = Process::start(now, &self.settings, &self.site, &mut self.random);
            self.has_restarted = true;
        }
        for shard in 0..self.process.engines.len() {
            self.work(now, shard, out, |engine, out| engine.poll(now, out));
        }
        if now.mono >= self.kept_up + UPKEEP {
            self.kept_up = now.mono;
            self.process.shared.keep_up(now);
        }
    }

    fn deadline(&mut self) -> Option<u64> {
        let answer = self.process.answers.keys().next().map(|(due, _)| *due);
        let moves = self.settings.moves.last().copied().into_iter().chain(self.settings.restarts.last().copied());
        self.process.engines.iter_mut().filter_map(Engine::deadline).chain(answer).chain(moves).min()
    }

    fn is_stateless(&self) -> bool {
        true
    }

    fn has_restarted(&mut self) -> bool {
        std::mem::take(&mut self.has_restarted)
    }

    fn check(&self) -> Result<(), String> {
        let here = self.settings.address;
        for engine in &self.process.engines {
            let counts = engine.transactions().counts();
            let whole = counts.servers + counts.clients;
            if counts.keys + counts.forgotten != whole {
                return Err(format!("{here}: {} keys for {whole} transactions", counts.keys));
            }
            if counts.kept_messages > whole || counts.timers > 2 * whole || engine.contexts() as u64 > whole {
                return Err(format!("{here}: more is held than transactions need: {counts:?}"));
            }
        }
        Ok(())
    }

    fn leftovers(&self) -> Result<(), String> {
        let here = self.settings.address;
        for engine in &self.process.engines {
            nothing_left(&here, engine.transactions())?;
            let (contexts, waiting) = (engine.contexts(), engine.waiting());
            if contexts + waiting > 0 {
                return Err(format!("{here}: {contexts} contexts, {waiting} messages that wait"));
            }
        }
        Ok(())
    }
}
