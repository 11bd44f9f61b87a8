//! Process of a server: its engines, and the state that a restart keeps.

use crate::log;
use crate::media::MediaThread;
use crate::moves::OwnNames;
use crate::names::ProcessNames;
use crate::users::Users;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use strowger_calls::{CallView, anchor_of, read_kept};
use strowger_config::{Config, Source};
use strowger_core::call::BUCKETS;
use strowger_core::log_limiter::LogLimiter;
use strowger_core::routing::{Identity, ListenerAddress, Machine};
use strowger_core::{Flow, ListenerId, Now, Outbox, Target, Transport};
use strowger_media::session::SessionKey;
use strowger_message::scan;
use strowger_server::anchored_calls::kept_ports;
use strowger_server::bounds::EngineBounds;
use strowger_server::engine::{Effect, Engine, EngineInput, ProcessStatus};
use strowger_server::local_address::OneWay;
use strowger_server::media_sessions::bucket_of;
use strowger_server::process_state::{CALL_SEED, ProcessContext, ProcessState};
use strowger_store::accounting::Row;
use strowger_store::location::{ExistingBindings, LocationTable, Step};
use strowger_store::ticket::{SinkId, Ticket};

/// Message that leaves, or the attempt to send one.
pub(crate) struct Sent {
    pub(crate) target: Target,
    pub(crate) bytes: Vec<u8>,
    /// Token of the sender; 0 if the sender wants no report of a failure.
    pub(crate) token: u64,
}

/// State of a server that is kept over a restart, as a database and a configuration keep it.
struct Kept {
    users: Arc<Users>,
    has_database: bool,
    /// Key of its tokens, seals and nonces.
    secret: Vec<u8>,
    bounds: EngineBounds,
    location: Arc<LocationTable>,
    listeners: Vec<(Transport, SocketAddr)>,
}

/// One process of a server.
struct Process {
    /// Number of the process, part of its flows.
    number: u16,
    shared: Arc<ProcessState>,
    /// Names that its peers must prove.
    names: Arc<ProcessNames>,
    engines: Vec<Engine>,
    /// Time of the last poll of each engine.
    polled: Vec<u64>,
    /// Number of connections so far.
    slots: u32,
    is_draining: bool,
}

/// A server.
pub(crate) struct Host {
    process: Process,
    kept: Kept,
    pub(crate) log: String,
    pub(crate) media: MediaThread,
    /// Rows of accounting.
    pub(crate) rows: Vec<Row>,
    /// States of kept calls, as a folder or a database has them.
    pub(crate) kept_calls: BTreeMap<u64, Box<[u8]>>,
    /// Ports of media that another program takes before the next process starts.
    pub(crate) foreign_ports: Vec<u16>,
    out: Outbox,
}

/// Key of the hash that names the bucket of a call.
const CALL_SECRET: u32 = 7;

/// Reads a configuration.
///
/// # Panics
/// The configuration is wrong.
pub(crate) fn read(text: &str, folder: &Path) -> Config {
    let read = Config::read(Source { file: "test", text, folder, ..Source::default() });
    read.unwrap_or_else(|report| panic!("{report}\n{text}")).0
}

/// Returns the configuration to start with, and the one to load afterwards. With `STROWGER_BY_RELOAD=1` a server starts
/// with only the keys that need a restart, and gets the other keys by a reload: the result must be the same.
fn parts(config: Config) -> (Config, Option<Config>) {
    if std::env::var_os("STROWGER_BY_RELOAD").is_none_or(|value| value != "1") {
        return (config, None);
    }
    (Config::default().for_running(&config).0, Some(config))
}

/// Returns the secret of the configuration; without one each server has its own secret.
fn secret(config: &Config) -> Vec<u8> {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    match &config.auth.secret {
        Some(secret) => secret.reveal().to_vec(),
        None => NEXT.fetch_add(1, Relaxed).to_be_bytes().repeat(4),
    }
}

/// Returns the address by which peers reach a listener.
fn reachable(bound: SocketAddr) -> IpAddr {
    if bound.ip().is_unspecified() { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { bound.ip() }
}

/// Returns the identity of a server with these listeners, on a machine whose interfaces are theirs and loopback.
fn identity(config: &Config, bound: &[(Transport, SocketAddr)]) -> Identity {
    let mut networks: Vec<&str> = Vec::new();
    let listeners = config.listeners.iter().zip(bound).map(|(listener, (transport, bound))| {
        let network = networks.iter().position(|name| *name == listener.network).unwrap_or_else(|| {
            networks.push(&listener.network);
            networks.len() - 1
        });
        let sent_by = match &listener.advertise {
            Some(name) => format!("{}:{}", name.host, name.port.unwrap_or_else(|| bound.port())),
            None => SocketAddr::new(reachable(*bound), bound.port()).to_string(),
        };
        ListenerAddress {
            transport: *transport,
            bound: *bound,
            sent_by: sent_by.into_bytes().into(),
            network: network as u16,
        }
    });
    let listeners: Vec<ListenerAddress> = listeners.collect();
    let mut interfaces: Vec<IpAddr> = bound.iter().map(|(_, bound)| reachable(*bound)).collect();
    interfaces.push(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let machine = Machine::new(interfaces.iter().copied(), []);
    let identity = Identity::on(machine, listeners, config.domain_names(), &interfaces);
    identity.with_names(config.server_names()).with_aliases(config.aliases())
}

/// Returns the shard of a bucket.
fn shard_of(bucket: u8, shards: usize) -> usize {
    usize::from(bucket) * shards / BUCKETS
}

impl Process {
    fn start(now: Now, number: u16, config: Config, kept: &Kept) -> Self {
        let shards = config.server.shards.map_or(1, usize::from);
        let mut seed = [number as u8; 32];
        if config.dialogs.place().is_some() {
            // The keys of kept calls are those of the process before.
            seed[CALL_SEED].fill(1);
        }
        let names = Arc::new(ProcessNames::new(number));
        let surroundings = ProcessContext {
            identity: identity(&config, &kept.listeners),
            secret: kept.secret.clone(),
            seed,
            call_secret: CALL_SECRET,
            process: number,
            shards,
            location: kept.location.clone(),
            subscribers: kept.has_database.then(|| kept.users.clone() as _),
            credentials: None,
            bounds: kept.bounds,
            log_limiter: Arc::new(LogLimiter::new(config.log.refusals_per_minute, config.limits.ipv6_prefix)),
            routes: Box::new(OneWay),
            names: names.clone(),
        };
        let shared = Arc::new(ProcessState::new(now, config, surroundings));
        let engine = |shard| {
            let process_status = ProcessStatus { draining: false, shards };
            let mut engine = Engine::new(now, shared.clone(), shard, process_status);
            engine.sinks.found = Some(SinkId::NONE);
            engine
        };
        let mut engines: Vec<Engine> = (0..shards).map(engine).collect();
        // The first shard has had all buckets, as in a process.
        let others = (0..=u8::MAX).filter(|bucket| shard_of(*bucket, shards) != 0);
        others.for_each(|bucket| drop(engines[0].export(now, bucket)));
        Self { number, shared, names, engines, polled: vec![now.mono; shards], slots: 0, is_draining: false }
    }
}

impl Host {
    /// Starts a server. `port`: function that returns a port for a listener whose port is chosen by the system.
    pub(crate) fn start(now: Now, config: Config, bounds: EngineBounds, mut port: impl FnMut() -> u16) -> Self {
        let bound = config.listeners.iter().map(|listener| {
            let mut address = listener.address;
            if address.port() == 0 {
                address.set_port(port());
            }
            (listener.transport, address)
        });
        let kept = Kept {
            users: Arc::default(),
            has_database: config.store.database.is_some(),
            secret: secret(&config),
            bounds,
            location: Arc::new(LocationTable::new(config.location_settings())),
            listeners: bound.collect(),
        };
        let media = MediaThread::new(&config.media);
        let (first, rest) = parts(config);
        let process = Process::start(now, 1, first, &kept);
        let (log, rows, kept_calls, foreign_ports) = Default::default();
        let mut host = Self { process, kept, log, media, rows, kept_calls, foreign_ports, out: Outbox::new() };
        rest.into_iter().for_each(|config| host.reload(now, config));
        host
    }

    /// Starts the next process, with this configuration.
    pub(crate) fn restart(&mut self, now: Now, config: Config) {
        self.media = MediaThread::new(&config.media);
        let (first, rest) = parts(config);
        self.process = Process::start(now, self.process.number + 1, first, &self.kept);
        rest.into_iter().for_each(|config| self.reload(now, config));
        self.take_over(now);
    }

    /// Continues the kept calls of the process before.
    fn take_over(&mut self, now: Now) {
        let policy = self.process.shared.policy();
        if policy.config.dialogs.place().is_none() {
            return;
        }
        let states = self.kept_calls.values();
        let ports = states.flat_map(|state| kept_ports(policy.identity(), &policy.config.media, anchor_of(state)));
        self.media.reserve(&ports.collect::<Vec<_>>(), &self.foreign_ports);
        for (key, state) in self.kept_calls.clone() {
            // A process removes state that it cannot read.
            let Ok(call) = read_kept(now, &state) else { continue };
            let engine = &mut self.process.engines[shard_of(call.bucket(), self.process.polled.len())];
            assert_eq!(engine.take_over(now, vec![call]), 0, "the process has the secret of the one before");
            engine.take_over_media(now, vec![(key, anchor_of(&state).into())]);
        }
    }

    /// Ends the calls with media that no later process continues; returns the messages and effects with their shard.
    pub(crate) fn end_unkept(&mut self, now: Now) -> Vec<(usize, Vec<Sent>, Vec<Effect>)> {
        let shards = self.process.engines.len();
        let end = |shard| {
            let (sent, effects) = self.work(now, shard, |engine, out| _ = engine.end_unkept(now, out));
            (shard, sent, effects)
        };
        (0..shards).map(end).collect()
    }

    /// Adopts another configuration, except the keys that need a restart.
    pub(crate) fn reload(&mut self, now: Now, config: Config) {
        let (config, _) = config.for_running(&self.process.shared.policy().config);
        let identity = identity(&config, &self.kept.listeners);
        let policy = self.process.shared.set_config(config, identity);
        for shard in 0..self.process.engines.len() {
            let policy = policy.clone();
            let (sent, effects) =
                self.work(now, shard, |engine, out| engine.answered(now, EngineInput::Policy(policy), out));
            assert!(sent.is_empty(), "a reload sends nothing");
            // They are carried out after the next work.
            self.process.engines[shard].effects.extend(effects);
        }
        self.process.shared.drop_retired();
    }

    /// Returns the state that all engines share.
    pub(crate) fn shared(&self) -> &Arc<ProcessState> {
        &self.process.shared
    }

    /// Returns the names that peers of this process must prove.
    pub(crate) fn names(&self) -> &ProcessNames {
        &self.process.names
    }

    /// Returns the database of users.
    pub(crate) fn users(&self) -> &Arc<Users> {
        &self.kept.users
    }

    /// Returns the listeners, in the order of the configuration.
    pub(crate) fn listeners(&self) -> &[(Transport, SocketAddr)] {
        &self.kept.listeners
    }

    /// Returns the number of its shards.
    pub(crate) fn shards(&self) -> usize {
        self.process.engines.len()
    }

    /// Returns the number of the process.
    pub(crate) const fn process(&self) -> u16 {
        self.process.number
    }

    /// Removes a user, with the bindings and route tokens.
    pub(crate) fn remove_user(&self, now: Now, name: &str, domain: &str) {
        self.kept.users.remove(name, domain);
        let aor = format!("{name}@{domain}");
        let all = |_: &ExistingBindings<'_>| Ok::<_, ()>(vec![Step::RemoveAll]);
        let removed = self.kept.location.update(aor.as_bytes(), now.mono, 0, Ticket::NONE, all);
        assert!(removed.is_ok(), "a table without a journal takes each change");
        self.process.shared.end_routes_of(name.as_bytes(), domain.as_bytes(), now);
    }

    /// Returns the tracked calls.
    pub(crate) fn calls(&self, now: Now) -> Vec<CallView> {
        let of = |engine: &Engine| engine.list_calls(now, 0, usize::MAX, None).calls;
        self.process.engines.iter().flat_map(of).collect()
    }

    /// Shows the tracked call with this id, as an operator sees it; returns the messages and effects with their shard.
    pub(crate) fn show_call(
        &mut self,
        now: Now,
        id: u64,
        found: &mut Option<CallView>,
    ) -> Vec<(usize, Vec<Sent>, Vec<Effect>)> {
        let mut done = Vec::new();
        for shard in 0..self.process.engines.len() {
            let (sent, effects) = self.work(now, shard, |engine, _| {
                *found = found.take().or_else(|| engine.show_call(now, id));
            });
            done.push((shard, sent, effects));
        }
        done
    }

    /// Ends the tracked call with this id, as an operator does; returns the messages and effects with their shard.
    pub(crate) fn end_call(&mut self, now: Now, id: u64) -> Vec<(usize, Vec<Sent>, Vec<Effect>)> {
        let mut done = Vec::new();
        for shard in 0..self.process.engines.len() {
            let (sent, effects) = self.work(now, shard, |engine, out| {
                engine.end_call(now, id, out);
            });
            done.push((shard, sent, effects));
        }
        done
    }

    /// Makes the server accept no new requests from now on.
    pub(crate) fn drain(&mut self) {
        self.process.is_draining = true;
    }

    /// Takes the effects of each shard that its start has caused.
    pub(crate) fn first_effects(&mut self) -> Vec<Vec<Effect>> {
        self.process.engines.iter_mut().map(|engine| std::mem::take(&mut engine.effects)).collect()
    }

    /// Calls an engine; returns the messages to send and the effects to carry out.
    pub(crate) fn work(
        &mut self,
        now: Now,
        shard: usize,
        input: impl FnOnce(&mut Engine, &mut Outbox),
    ) -> (Vec<Sent>, Vec<Effect>) {
        let _log = log::catch();
        let (process, out) = (&mut self.process, &mut self.out);
        let process_status = ProcessStatus { draining: process.is_draining, shards: process.engines.len() };
        let engine = &mut process.engines[shard];
        engine.shard.process_status = process_status;
        input(engine, out);
        engine.sinks.has_asked = false;
        engine.keep_changed(now);
        engine.show_gauges();
        engine.count_sent(out);
        let sent = |send: &strowger_core::outbox::Send| Sent {
            target: send.target,
            bytes: out.bytes[send.range()].to_vec(),
            token: send.token,
        };
        let sent = out.sends().iter().map(sent).collect();
        out.clear();
        self.log.push_str(&log::taken());
        (sent, std::mem::take(&mut engine.effects))
    }

    /// Runs the timers of an engine.
    pub(crate) fn poll(&mut self, now: Now, shard: usize) -> (Vec<Sent>, Vec<Effect>) {
        self.process.polled[shard] = now.mono;
        self.work(now, shard, |engine, out| engine.poll(now, out))
    }

    /// Runs the upkeep that is due every second.
    pub(crate) fn keep_up(&mut self, now: Now) {
        let _log = log::catch();
        self.process.shared.keep_up(now);
        self.process.shared.tidy(now);
        self.log.push_str(&log::taken());
    }

    /// Returns the earliest deadline of an engine, and its number.
    pub(crate) fn deadline(&mut self) -> Option<(u64, usize)> {
        let due = |((shard, engine), polled): ((usize, &mut Engine), &u64)| {
            engine.deadline().map(|at| (at.max(polled + 1), shard))
        };
        self.process.engines.iter_mut().enumerate().zip(&self.process.polled).filter_map(due).min()
    }

    /// Returns the shard for an event of a media session.
    pub(crate) fn shard_of_session(&self, session: SessionKey) -> usize {
        shard_of(bucket_of(session), self.process.engines.len())
    }

    /// Takes all calls out of their shards, and in again.
    pub(crate) fn move_calls(&mut self, now: Now) {
        for bucket in 0..=u8::MAX {
            let shard = shard_of(bucket, self.process.engines.len());
            let bytes = self.process.engines[shard].export_bytes(now, bucket, &OwnNames);
            let (sent, effects) = self.work(now, shard, |engine, out| {
                engine.import_bytes(now, &bytes, &OwnNames, out).expect("it was written just now");
            });
            assert!(sent.is_empty(), "a move sends nothing unless a request waits");
            self.process.engines[shard].effects.extend(effects);
        }
    }

    /// Returns the shard of the call of this message.
    pub(crate) fn shard_of(&self, now: Now, bytes: &[u8]) -> usize {
        let bucket = scan::call_id(bytes).map_or(0, |at| self.process.shared.bucket_of(now, &bytes[at], bytes));
        shard_of(bucket, self.process.engines.len())
    }

    /// Returns the address of a listener as its peers see it.
    pub(crate) fn address(&self, listener: ListenerId) -> SocketAddr {
        let (_, bound) = self.kept.listeners[usize::from(listener.0)];
        SocketAddr::new(reachable(bound), bound.port())
    }

    /// Returns the listener for messages to this address.
    pub(crate) fn listener(&self, transport: Transport, to: SocketAddr) -> Option<ListenerId> {
        let takes = |(own, bound): &(Transport, SocketAddr)| {
            *own == transport && bound.port() == to.port() && (bound.ip().is_unspecified() || bound.ip() == to.ip())
        };
        self.kept.listeners.iter().position(takes).map(|at| ListenerId(at as u16))
    }

    /// Returns the flow of another connection.
    pub(crate) fn next_flow(&mut self) -> Flow {
        self.process.slots += 1;
        let node = self.process.shared.policy().config.server.node;
        Flow { node, process: self.process.number, shard: 0, slot: self.process.slots, generation: 2 }
    }

    /// Notes a keep-alive of the peer of a connection of this process.
    pub(crate) fn kept_alive(&self, now: Now, flow: Flow) {
        self.process.engines[0].kept_alive(now, flow);
    }

    /// Notes that a connection of this process has closed.
    pub(crate) fn closed(&self, flow: Flow) {
        self.process.engines[0].closed(flow);
    }
}
