//! The server: engines of its shards, its media thread, and the way of events between them.

use super::media::MediaThread;
use super::{Datagram, SERVER};
use crate::random::Random;
use crate::world::nothing_left;
use crate::written::through_bytes;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use strowger_calls::{anchor_of, read_kept};
use strowger_config::{Config, Source};
use strowger_core::call::BUCKETS;
use strowger_core::log_limiter::LogLimiter;
use strowger_core::routing::{Identity, ListenerAddress};
use strowger_core::{Arrival, ListenerId, Now, Outbox, Transport};
use strowger_media::session::{PortPair, SessionEvent};
use strowger_message::scan;
use strowger_server::anchored_calls::kept_ports;
use strowger_server::bounds::EngineBounds;
use strowger_server::engine::{AnchoredCounts, Effect, Engine, EngineInput, ProcessStatus};
use strowger_server::local_address::OneWay;
use strowger_server::media_sessions::bucket_of;
use strowger_server::peer_names::NoNames;
use strowger_server::process_state::{CALL_SEED, ProcessContext, ProcessState};
use strowger_server::question::Resolved;
use strowger_store::accounting::{Cdr, Row};
use strowger_store::location::LocationTable;

/// Key of the hash that names the bucket of a call.
const CALL_SECRET: u32 = 7;

/// Milliseconds for which a Call-ID stays known after the end of its call, because of late messages.
const PASSING: u64 = 240_000;

/// The server across all of its processes.
pub(super) struct Server {
    config: String,
    shards: usize,
    engines: Vec<Engine>,
    /// Shard of each bucket.
    owners: [usize; BUCKETS],
    location: Arc<LocationTable>,
    media: MediaThread,
    random: Random,
    process: u16,
    out: Outbox,
    /// Answers for shards by time, then in the order of planning.
    answers: BTreeMap<(u64, u64), (Receiver, EngineInput)>,
    planned: u64,
    /// Longest delay of an event of the media thread, and the time of the last event: a ring keeps their order.
    lag: u64,
    last_event: u64,
    pub(super) disk: Disk,
    /// Datagrams that the network has not taken yet.
    sent: Vec<Datagram>,
}

/// Files that all processes write.
#[derive(Debug, Default)]
pub(super) struct Disk {
    /// Records of calls.
    pub(super) records: Vec<Cdr>,
    /// States of kept calls.
    kept: BTreeMap<u64, Box<[u8]>>,
    /// Calls that a process has taken over: the time, and the Call-ID of the caller.
    pub(super) continued: Vec<(u64, Vec<u8>)>,
}

/// Shard that gets an answer.
#[derive(Clone, Copy, Debug)]
enum Receiver {
    Shard(usize),
    /// Owner of this bucket at the time of the answer.
    OwnerOf(u8),
}

impl Server {
    pub(super) fn new(now: Now, config: String, shards: usize, mut random: Random) -> Self {
        let read = read(&config);
        let lag = *random.pick(&[5, 5, 300]);
        let mut server = Self {
            location: Arc::new(LocationTable::new(read.location_settings())),
            media: MediaThread::new(&read.media, Random::new(random.u64())),
            engines: Vec::new(),
            owners: std::array::from_fn(|bucket| bucket % shards),
            config,
            shards,
            random,
            process: 0,
            out: Outbox::new(),
            answers: BTreeMap::new(),
            planned: 0,
            lag,
            last_event: 0,
            disk: Disk::default(),
            sent: Vec::new(),
        };
        server.start(now);
        server
    }

    /// Starts the next process. Returns whether another program has taken ports of the kept calls.
    pub(super) fn start(&mut self, now: Now) -> bool {
        let config = read(&self.config);
        self.process += 1;
        self.media = MediaThread::new(&config.media, Random::new(self.random.u64()));
        self.answers.clear();
        self.engines = engines(now, config, (self.shards, self.process), &self.location, &mut self.random);
        let has_lost_ports = self.take_over(now);
        (0..self.shards).for_each(|shard| self.carry_out(now, shard));
        has_lost_ports
    }

    /// Continues the kept calls of the process before. Returns whether another program has taken some of their ports.
    fn take_over(&mut self, now: Now) -> bool {
        let policy = self.engines[0].shared.policy();
        let states: Vec<(u64, Box<[u8]>)> = self.disk.kept.iter().map(|(key, state)| (*key, state.clone())).collect();
        let ports = |state: &[u8]| kept_ports(policy.identity(), &policy.config.media, anchor_of(state));
        let ports: Vec<PortPair> = states.iter().flat_map(|(_, state)| ports(state)).collect();
        let are_in_use = self.random.chance(300);
        let taken: Vec<PortPair> = ports.iter().copied().filter(|_| are_in_use && self.random.chance(300)).collect();
        self.media.reserve(&ports, &taken);
        for (key, state) in states {
            let call = read_kept(now, &state).expect("this program has written the state");
            let anchor = anchor_of(&state);
            if !anchor.is_empty() {
                self.disk.continued.push((now.mono, call.call_id().to_vec()));
            }
            let engine = &mut self.engines[self.owners[usize::from(call.bucket())]];
            assert_eq!(engine.take_over(now, vec![call]), 0, "the process has the secret of the one before");
            let unreadable = engine.take_over_media(now, vec![(key, anchor.into())]);
            assert!(unreadable.is_none(), "this program has written the state");
        }
        !taken.is_empty()
    }

    /// Takes a datagram that arrives at a port of the server.
    pub(super) fn receive(&mut self, now: Now, from: SocketAddr, port: u16, bytes: &[u8]) {
        if port != SERVER.port() {
            self.media.receive(now, port, from, bytes);
            return self.take_media(now);
        }
        let arrival = Arrival { transport: Transport::Udp, listener: ListenerId(0), remote: from, flow: None };
        let shared = &self.engines[0].shared;
        let bucket = scan::call_id(bytes).map_or(0, |at| shared.bucket_of(now, &bytes[at], bytes));
        let shard = self.owners[usize::from(bucket)];
        self.work(now, shard, |engine, out| engine.receive(now, &arrival, bytes, out));
    }

    /// Runs what is due.
    pub(super) fn poll(&mut self, now: Now) {
        while let Some(entry) = self.answers.first_entry().filter(|entry| entry.key().0 <= now.mono) {
            let (receiver, answer) = entry.remove();
            let shard = match receiver {
                Receiver::Shard(shard) => shard,
                Receiver::OwnerOf(bucket) => self.owners[usize::from(bucket)],
            };
            self.work(now, shard, |engine, out| engine.answered(now, answer, out));
        }
        self.media.poll(now);
        self.take_media(now);
        for shard in 0..self.shards {
            self.work(now, shard, |engine, out| engine.poll(now, out));
        }
    }

    pub(super) fn deadline(&mut self) -> Option<u64> {
        let answer = self.answers.keys().next().map(|(at, _)| *at);
        let engines = self.engines.iter_mut().filter_map(Engine::deadline);
        engines.chain(answer).chain(self.media.deadline()).min()
    }

    /// Moves half of all buckets to the next shard, as values or as bytes.
    pub(super) fn move_buckets(&mut self, now: Now) {
        let in_bytes = self.random.chance(500);
        for bucket in 0..BUCKETS {
            if self.random.chance(500) {
                let from = self.owners[bucket];
                let to = (from + 1) % self.shards;
                self.owners[bucket] = to;
                let records = self.engines[from].export(now, bucket as u8);
                self.carry_out(now, from);
                for record in if in_bytes { through_bytes(records) } else { records } {
                    self.work(now, to, |engine, out| engine.import(now, record, out));
                }
            }
        }
    }

    /// Takes the datagrams since the last call.
    pub(super) fn take_sent(&mut self) -> Vec<Datagram> {
        std::mem::take(&mut self.sent)
    }

    fn work(&mut self, now: Now, shard: usize, work: impl FnOnce(&mut Engine, &mut Outbox)) {
        let mut out = std::mem::take(&mut self.out);
        let engine = &mut self.engines[shard];
        work(engine, &mut out);
        engine.keep_changed(now);
        engine.show_gauges();
        for send in out.sends() {
            let bytes = out.bytes[send.range()].to_vec();
            self.sent.push(Datagram { from: SERVER, to: send.target.address, bytes });
        }
        out.clear();
        self.out = out;
        self.carry_out(now, shard);
    }

    fn carry_out(&mut self, now: Now, shard: usize) {
        for effect in std::mem::take(&mut self.engines[shard].effects) {
            match effect {
                Effect::Media { order, .. } => self.media.carry_out(now, order),
                Effect::Account(row) => {
                    if let Row::Cdr(cdr) = *row {
                        self.disk.records.push(cdr);
                    }
                }
                // No name can be resolved.
                Effect::Resolve { ticket, name, .. } => {
                    let answer = EngineInput::Resolved { ticket, name, to: Resolved::default() };
                    self.plan(now.mono, Receiver::Shard(shard), answer);
                }
                Effect::PersistCall { call, state } => _ = self.disk.kept.insert(call, state),
                Effect::FinishCall { call, .. } | Effect::DeleteCall { call } => _ = self.disk.kept.remove(&call),
                Effect::Alias { .. }
                | Effect::LimitSilence { .. }
                | Effect::SourceVerified(_)
                | Effect::WakePings
                | Effect::GiveBack => (),
            }
        }
        self.take_media(now);
    }

    /// Takes the packets of the media thread, and plans its events.
    fn take_media(&mut self, now: Now) {
        let (packets, events) = self.media.take();
        self.sent.extend(packets);
        for event in events {
            let receiver = match &event {
                SessionEvent::Lent { shard, .. } => Receiver::Shard(usize::from(*shard)),
                SessionEvent::Heard { key, .. }
                | SessionEvent::Silent { key, .. }
                | SessionEvent::Played { key, .. }
                | SessionEvent::RecordingFailed { key }
                | SessionEvent::Reported { key, .. }
                | SessionEvent::Claimed { key, .. }
                | SessionEvent::Closed { key, .. } => Receiver::OwnerOf(bucket_of(*key)),
            };
            self.last_event = self.last_event.max(now.mono + self.random.between(0, self.lag));
            self.plan(self.last_event, receiver, EngineInput::Media(event));
        }
    }

    fn plan(&mut self, at: u64, receiver: Receiver, answer: EngineInput) {
        self.planned += 1;
        self.answers.insert((at, self.planned), (receiver, answer));
    }

    /// Checks the laws after every step.
    ///
    /// # Errors
    /// The violated law.
    pub(super) fn check(&self) -> Result<(), String> {
        let counted: usize = self.engines.iter().map(Engine::counted).sum();
        match self.listed() {
            listed if listed as usize == counted => self.media.check(),
            listed => Err(format!("{counted} calls count under limits, and {listed} are counted")),
        }
    }

    fn listed(&self) -> u32 {
        self.engines[0].shared.call_limits.list().into_iter().map(|(_, calls)| calls).sum()
    }

    /// Checks that nothing is left when no work is in progress.
    ///
    /// # Errors
    /// The remaining state.
    pub(super) fn leftovers(&self, now: Now) -> Result<(), String> {
        let mut free = 0;
        for engine in &self.engines {
            engine.show_gauges();
            nothing_left(&SERVER, engine.transactions())?;
            let (contexts, waiting, anchored) = (engine.contexts(), engine.waiting(), AnchoredCounts::of(engine));
            if contexts > 0 || !waiting.is_nothing() || !anchored.is_nothing() {
                return Err(format!("left at the end: {contexts} contexts, {waiting:?}, {anchored:?}"));
            }
            free += anchored.free_ports;
        }
        self.media.leftovers(free)?;
        if !self.disk.kept.is_empty() {
            return Err(format!("{} calls are kept for the next process", self.disk.kept.len()));
        }
        let shared = &self.engines[0].shared;
        shared.tidy(Now { mono: now.mono + PASSING, ..now });
        let named = shared.bridged_call_ids();
        if named > 0 {
            return Err(format!("{named} Call-IDs of bridged calls are known"));
        }
        let counts = self.engines[0].shared.counts();
        let calls = [counts.calls_tracked, counts.calls_logged, counts.calls_bridged, u64::from(self.listed())];
        let dialogs = [counts.dialogs_early, counts.dialogs_confirmed];
        match calls == [0; 4] && dialogs == [0; 2] {
            true => Ok(()),
            false => Err(format!("tracked, logged, bridged and limited calls: {calls:?}, dialogs: {dialogs:?}")),
        }
    }
}

fn read(text: &str) -> Config {
    match Config::read(Source { text, ..Source::default() }) {
        Ok((config, _)) => config,
        Err(report) => panic!("{report}\n{text}"),
    }
}

/// Creates the engines of a process.
fn engines(
    now: Now,
    config: Config,
    (shards, process): (usize, u16),
    location: &Arc<LocationTable>,
    random: &mut Random,
) -> Vec<Engine> {
    let address = ListenerAddress {
        transport: Transport::Udp,
        bound: SERVER,
        sent_by: SERVER.to_string().into_bytes().into(),
        network: 0,
    };
    let mut seed = [0; 32];
    seed.chunks_exact_mut(8).for_each(|part| part.copy_from_slice(&random.u64().to_le_bytes()));
    // The keys of kept calls are those of the process before.
    seed[CALL_SEED].fill(1);
    let surroundings = ProcessContext {
        identity: Identity::new(vec![address], config.domain_names(), &[]),
        secret: b"the secret of these worlds, of all processes".to_vec(),
        seed,
        call_secret: CALL_SECRET,
        process,
        shards,
        location: location.clone(),
        subscribers: None,
        credentials: None,
        bounds: EngineBounds::default(),
        log_limiter: Arc::new(LogLimiter::new(config.log.refusals_per_minute, config.limits.ipv6_prefix)),
        routes: Box::new(OneWay),
        names: Arc::new(NoNames),
    };
    let shared = Arc::new(ProcessState::new(now, config, surroundings));
    let status = ProcessStatus { draining: false, shards };
    (0..shards).map(|shard| Engine::new(now, shared.clone(), shard, status)).collect()
}
