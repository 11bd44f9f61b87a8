//! A host with the engines of a server, one per shard. The host simulates the shards, the storage threads and the
//! operating system, with the clock of the world: buckets move, look-ups and commits take time and fail, the
//! configuration is reloaded, the process restarts.

mod accounts;
mod background;
mod bindings;
mod counts;
mod credentials;
mod database;
mod failed_targets;
mod host;
mod kept;
mod limits;
mod lookups;
mod observer;
mod process;
mod ringing;
mod rows;
mod settings;

pub use self::counts::{CountManners, LIMITED};
pub use self::credentials::CacheManners;
pub use self::database::{Database, Outage, OutageKind, password};
pub use self::limits::{BoxLimit, Mailbox};
pub use self::settings::{End, FixedBounds, Keeping, Name, ServerSettings};

use self::accounts::{Identities, Written};
use self::bindings::Rows;
use self::counts::Counting;
use self::credentials::Credentials;
use self::kept::Kept;
use self::limits::RoutedCalls;
use self::observer::Input;
use self::process::{Due, Process, listeners};
use self::rows::Table;
pub(crate) use self::settings::software;
use crate::log;
use crate::random::Random;
use crate::world::{LISTENERS, listens_at};
use crate::written::through_bytes;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use strowger_config::Config;
use strowger_core::call::{self, BUCKETS};
use strowger_core::routing::{Identity, ListenerAddress};
use strowger_core::transaction::Transactions;
use strowger_core::{Flow, Now, Outbox, Transport};
use strowger_message::{Index, Limits, Message, scan};
use strowger_server::counters::Counts;
use strowger_server::engine::{Effect, Engine, EngineInput, ProcessStatus};
use strowger_server::question::{HostKey, Resolved};
use strowger_store::location::LocationTable;

/// State that outlives a process and that servers of one site share.
#[derive(Clone)]
struct Site {
    secret: Vec<u8>,
    location: Arc<LocationTable>,
    rows: Rows,
    credentials: Arc<Credentials>,
    counting: Arc<Counting>,
}

pub struct ServerHost {
    settings: ServerSettings,
    site: Site,
    process: Process,
    /// Number of the last configuration.
    policy: u32,
    /// Time of the first kill of the process.
    first_kill: Option<u64>,
    /// True if the server has restarted since the last query.
    has_restarted: bool,
    has_ended: bool,
    /// True if buckets have moved.
    has_moved: bool,
    random: Random,
    planned: u64,
    committed: u64,
    out: Outbox,
    index: Index,
    aliases: Vec<(Flow, Transport, SocketAddr)>,
    /// Time of the last removal of expired bindings.
    kept_up: u64,
    problem: Option<String>,
    /// Identities of all accounting rows.
    identities: Identities,
    /// Accounting table.
    table: Table,
    /// Random numbers of later additions to the simulation, so that the rest of a world does not depend on them.
    later_random: Random,
    /// True while buckets move.
    is_moving: bool,
    /// Persisted calls, if the configuration names a folder for them.
    kept: Option<Kept>,
    /// Calls that a failure has routed to the mailbox.
    led: RoutedCalls,
}

/// Time in ms between two rounds of upkeep.
const UPKEEP: u64 = 1_000;

/// First bit of the shard number in a token; an engine uses the bits below.
const SHARD: u32 = 60;

/// Returns the identity of a server with this address.
fn identity(address: SocketAddr, config: &Config) -> Identity {
    let listener = |transport| {
        let bound = listens_at(address, transport);
        ListenerAddress { transport, bound, sent_by: bound.to_string().into_bytes().into(), network: 0 }
    };
    Identity::new(LISTENERS.map(listener).to_vec(), config.domain_names(), &[]).with_aliases(config.aliases())
}

impl ServerHost {
    pub fn new(now: Now, settings: ServerSettings, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let location = Arc::new(LocationTable::new(settings.read(0).location_settings()));
        // These random numbers have a seed of their own, so that the rest of the world does not depend on them.
        let credentials = Arc::new(Credentials::new(!seed));
        let secret = random.u64().to_le_bytes().repeat(4);
        let site = Site { secret, location, rows: Rows::default(), credentials, counting: Arc::default() };
        Self::at(now, settings, site, random)
    }

    /// Creates another server with the secret and the database of this one.
    pub fn sibling(&self, now: Now, settings: ServerSettings, seed: u64) -> Self {
        Self::at(now, settings, self.site.clone(), Random::new(seed))
    }

    fn at(now: Now, settings: ServerSettings, site: Site, mut random: Random) -> Self {
        let first_kill = settings.ends.iter().rfind(|(_, end)| *end == End::Killed).map(|(at, _)| *at);
        Self {
            process: Process::start(now, &settings, 0, &site, &mut random),
            policy: 0,
            first_kill,
            kept: settings.kept(),
            settings,
            site,
            has_restarted: false,
            has_ended: false,
            has_moved: false,
            later_random: Random::new(!random.clone().u64()),
            random,
            planned: 0,
            committed: 0,
            out: Outbox::new(),
            index: Index::new(),
            aliases: Vec::new(),
            kept_up: now.mono,
            problem: None,
            identities: Identities::default(),
            table: Table::default(),
            is_moving: false,
            led: RoutedCalls::default(),
        }
    }

    pub const fn settings(&self) -> &ServerSettings {
        &self.settings
    }

    /// Returns the longest time in ms of a look-up without faults.
    pub fn longest_look_up(&self) -> u64 {
        let of_users = self.settings.database.as_ref().map_or(0, |database| database.delay.1);
        self.settings.lookups.1.max(of_users) + self.settings.credentials.map_or(0, |cache| cache.delay.1)
    }

    /// Returns the time of the first kill of the process: [`Now::mono`].
    pub const fn first_kill(&self) -> Option<u64> {
        self.first_kill
    }

    /// Returns whether a process has ended, by a kill or a shutdown.
    pub const fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Returns whether buckets have moved.
    pub const fn has_moved(&self) -> bool {
        self.has_moved
    }

    /// Returns whether look-ups or commits may fail or come late.
    pub fn may_fail(&self) -> bool {
        let settings = &self.settings;
        settings.failures + settings.commit_failures > 0
            || !settings.disk_outages.is_empty()
            || settings.credentials.is_some_and(|cache| cache.failures > 0)
            || settings.database.as_ref().is_some_and(|database| database.may_fail())
    }

    pub const fn address(&self) -> SocketAddr {
        self.settings.address
    }

    /// Returns the number of call records that all processes of the server have written to its table.
    pub const fn records(&self) -> u64 {
        self.table.records
    }

    /// Returns the counters of all shards since the start of the process.
    pub fn counts(&self) -> Counts {
        self.process.shared.counts()
    }

    /// Returns the transaction table of each shard.
    pub fn transactions(&self) -> impl Iterator<Item = &Transactions> {
        self.process.engines.iter().map(Engine::transactions)
    }

    /// Returns the banned sources.
    pub(crate) fn banned(&self, now: Now) -> Vec<IpAddr> {
        let banned = self.process.shared.policy().bans.list(now.mono, None, usize::MAX);
        banned.into_iter().map(|(source, _)| source).collect()
    }

    /// Returns whether the server believes this connection of its process open.
    pub(crate) fn has_open_flow(&self, flow: Flow) -> bool {
        flow.process == self.process.number && self.process.shared.is_open(flow)
    }

    /// Returns the number of the configuration for a message that arrives now.
    pub(crate) fn policy_of(&self, bytes: &[u8]) -> u32 {
        self.process.in_force[self.shard_of(bytes)]
    }

    /// Returns the text of a configuration.
    pub(crate) fn config(&self, number: u32) -> &str {
        &self.settings.configs[number as usize % self.settings.configs.len()]
    }

    fn wrong(&mut self, what: String) {
        let here = self.settings.address;
        self.problem.get_or_insert_with(|| format!("{here}: {what}"));
    }

    /// Runs a step of a shard and carries out its effects.
    fn work(
        &mut self,
        now: Now,
        shard: usize,
        input: Input<'_>,
        out: &mut Outbox,
        work: impl FnOnce(&mut Engine, &mut Outbox),
    ) {
        let mut own = std::mem::take(&mut self.out);
        let process = &mut self.process;
        let engine = &mut process.engines[shard];
        engine.shard.process_status =
            ProcessStatus { draining: process.draining.is_some(), shards: self.settings.shards };
        work(engine, &mut own);
        engine.keep_changed(now);
        engine.show_gauges();
        if std::mem::take(&mut engine.sinks.has_asked)
            && let Some(subscribers) = &process.shared.subscribers
        {
            subscribers.flush();
        }
        if std::mem::take(&mut engine.sinks.has_asked_cache)
            && let Some((cache, _)) = &engine.sinks.cached
        {
            cache.flush();
        }
        let reports = engine.heard.as_mut().map(std::mem::take).unwrap_or_default();
        let watched = process.observer.watch(now.mono, input, &own, &reports, &log::taken());
        let targets =
            self.settings.names.iter().find(|name| name.proves.is_some()).map_or(&[][..], |name| &name.targets);
        let tried = process.failed_targets.sends(now.mono, &own, targets, |token| token | (shard as u64) << SHARD);
        if let Err(problem) = watched.and(tried) {
            self.wrong(problem);
        }
        self.check_registrations(&own);
        self.watch_counts(now, &own, !self.is_moving);
        self.check_ringing(now, shard, input, &own, !reports.is_empty());
        self.check_limits(now, &own, !reports.is_empty());
        if let Some(kept) = &mut self.kept {
            kept.watch(now, &own);
        }
        for send in own.sends() {
            let from = out.start();
            out.bytes.extend_from_slice(&own.bytes[send.range()]);
            let token = if send.token == 0 { 0 } else { send.token | (shard as u64) << SHARD };
            out.send(send.target, from..out.bytes.len(), token);
            if send.has_fallback {
                out.set_fallback();
            }
        }
        own.clear();
        self.out = own;
        self.carry_out(now, shard);
        self.check_records();
    }

    /// Checks that the answers to REGISTER agree with the disk and with the cache of credentials.
    fn check_registrations(&mut self, out: &Outbox) {
        let (is_kept, has_cache) = (self.process.keeper.is_some(), self.settings.credentials.is_some());
        if !is_kept && !has_cache {
            return;
        }
        let realms = self.settings.realms();
        let (mut index, mut problems) = (std::mem::take(&mut self.index), Vec::new());
        for send in out.sends() {
            let bytes = &out.bytes[send.range()];
            if !bytes.starts_with(b"SIP/2.0 ") || index.parse(bytes, &Limits::default()).is_err() {
                continue;
            }
            let message = Message::new(bytes, &index);
            if !is_said_by(self.settings.address, &message) {
                continue;
            }
            let rows = if is_kept { self.site.rows.check(&message) } else { Ok(()) };
            let now = self.process.time.load(Ordering::Relaxed);
            let cache = if has_cache { self.site.credentials.check(now, &realms, &message) } else { Ok(()) };
            if let Err(problem) = rows.and(cache) {
                problems.push(problem);
            }
        }
        drop(realms);
        self.index = index;
        problems.into_iter().for_each(|problem| self.wrong(problem));
    }

    /// Returns the shard of the call of this message.
    fn shard_of(&self, bytes: &[u8]) -> usize {
        let hash = |at: Range<usize>| call::hash(self.process.shared.call_secret(), &bytes[at]);
        scan::call_id(bytes).map_or(0, |at| self.process.owners[usize::from(call::bucket(hash(at)))])
    }

    /// Moves half of all buckets to the next shard, with all state of their calls: as values, or as bytes like a move
    /// to another process. A record in bytes has no policy, so worlds that reload the configuration move values: only
    /// values show which policy a call follows.
    fn move_buckets(&mut self, now: Now, out: &mut Outbox) {
        (self.has_moved, self.is_moving) = (true, true);
        let in_bytes = self.settings.configs.len() == 1 && self.random.chance(500);
        self.process.failed_targets.is_blind = true;
        for bucket in 0..BUCKETS {
            if self.random.chance(500) {
                let from = self.process.owners[bucket];
                let to = (from + 1) % self.process.engines.len();
                self.process.owners[bucket] = to;
                let records = self.process.engines[from].export(now, bucket as u8);
                for record in if in_bytes { through_bytes(records) } else { records } {
                    self.work(now, to, Input::Other, out, |engine, out| engine.import(now, record, out));
                }
            }
        }
        self.is_moving = false;
    }

    fn carry_out(&mut self, now: Now, shard: usize) {
        for effect in std::mem::take(&mut self.process.engines[shard].effects) {
            match effect {
                Effect::Resolve { ticket, name, .. } => {
                    let fails = self.random.chance(self.settings.failures);
                    let to = if fails { Resolved::default() } else { self.look_up(&name) };
                    let (shortest, longest) = self.settings.lookups;
                    let due = now.mono + self.random.between(shortest, longest);
                    self.chase(now, due);
                    self.plan(due, Due::Answer(shard, EngineInput::Resolved { ticket, name, to }));
                }
                Effect::Alias { flow, transport, address } => self.aliases.push((flow, transport, address)),
                Effect::WakePings => self.plan(now.mono, Due::Answer(0, EngineInput::Pings)),
                Effect::Account(row) => {
                    let (process, written) = (&mut self.process, Written::of(&self.settings));
                    let (observer, kept) = (&process.observer, self.kept.as_ref());
                    let taken = process.accounts.take(&row, written, observer, &mut self.identities, kept);
                    taken.unwrap_or_else(|problem| self.wrong(problem));
                    self.submit(now, row);
                }
                // No configuration of the simulation has media.
                Effect::Media { .. } => (),
                Effect::LimitSilence { .. } | Effect::SourceVerified(_) | Effect::GiveBack => (),
                effect @ (Effect::PersistCall { .. } | Effect::FinishCall { .. } | Effect::DeleteCall { .. }) => {
                    self.keep(now, effect)
                }
            }
        }
        self.on_credentials(now);
        self.ask_users(now);
        self.keep_bindings(now);
    }

    /// Passes on the answers of the cache of credentials whose time has come.
    fn on_credentials(&mut self, now: Now) {
        if self.settings.credentials.is_none() {
            return;
        }
        for (receiver, delay, answered) in self.site.credentials.answers() {
            let Some(shard) = self.process.cached.iter().position(|own| *own == receiver) else { continue };
            self.chase(now, now.mono + delay);
            self.plan(now.mono + delay, Due::Answer(shard, EngineInput::Credentials(vec![answered])));
        }
    }

    fn plan(&mut self, at: u64, what: Due) {
        self.planned += 1;
        self.process.due.insert((at, self.planned), what);
    }

    /// Perhaps plans a move of buckets before this answer arrives.
    fn chase(&mut self, now: Now, due: u64) {
        if self.process.engines.len() > 1 && self.random.chance(self.settings.chased) {
            let moves = &mut self.settings.moves;
            moves.push(self.random.between(now.mono, due));
            moves.sort_unstable_by(|a, b| b.cmp(a));
        }
    }

    fn look_up(&self, (host, port, transport, _): &HostKey) -> Resolved {
        let is_it = |name: &&Name| name.host.as_bytes().eq_ignore_ascii_case(host);
        let Some(name) = self.settings.names.iter().find(is_it) else { return Resolved::default() };
        let target = |(by, address): &(Transport, SocketAddr)| {
            let port = port.unwrap_or_else(|| address.port());
            (transport.unwrap_or(*by), SocketAddr::new(address.ip(), port))
        };
        Resolved { targets: name.targets.iter().map(target).collect(), name: name.proves }
    }

    /// Passes the time to the parts around the engines, and the changes of the database.
    fn pass_time(&mut self, now: Now) {
        self.process.time.store(now.mono, Ordering::Relaxed);
        if let Some((lookups, asking)) = &mut self.process.lookups {
            asking.hear(lookups);
        }
    }

    fn node(&self) -> u16 {
        self.process.shared.policy().config.server.node
    }

    /// Checks the counters, whatever waits or is retransmitted.
    fn check_counters(&self) -> Result<(), String> {
        let (process, counts) = (&self.process, self.counts());
        let (least, most) = process.observer.requests();
        // If a request was given up, its last copy may arrive when its transaction is forgotten.
        let most = most as u64 + counts.timeouts;
        if !(least as u64..=most).contains(&counts.forwarded) {
            return Err(format!("{least} to {most} requests were forwarded, {} counted", counts.forwarded));
        }
        if counts.calls_logged > process.observer.open() as u64 {
            let open = process.observer.open();
            return Err(format!("{} calls are kept for the log, {open} are open", counts.calls_logged));
        }
        Ok(())
    }
}

/// Returns whether a server with this address sent the response itself, and did not forward it.
pub(crate) fn is_said_by(address: SocketAddr, response: &Message<'_>) -> bool {
    let prefix = software(address, 0);
    let host = prefix.trim_end_matches('0');
    response.header(strowger_message::Name::Server).is_some_and(|name| name.starts_with(host.as_bytes()))
}

/// Returns the shard of a token, and the token within that shard.
const fn shard_of_token(token: u64) -> (usize, u64) {
    ((token >> SHARD) as usize, token & ((1 << SHARD) - 1))
}
