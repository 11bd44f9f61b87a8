//! The server process: one engine, its disk, and the times of outgoing messages that the laws need.

use super::ledger::Ledger;
use super::text::Received;
use super::{DOMAIN, PASSWORD, SERVER};
use crate::random::Random;
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use strowger_calls::read_kept;
use strowger_config::{Config, Source};
use strowger_core::call::CallKeys;
use strowger_core::digest::{Ha1Set, Hash};
use strowger_core::log_limiter::LogLimiter;
use strowger_core::routing::{Identity, ListenerAddress};
use strowger_core::{Arrival, ListenerId, Now, Outbox, Transport};
use strowger_server::bounds::EngineBounds;
use strowger_server::engine::{Effect, Engine, EngineInput, ProcessStatus};
use strowger_server::local_address::OneWay;
use strowger_server::peer_names::NoNames;
use strowger_server::process_state::{CALL_SEED, ProcessContext, ProcessState};
use strowger_server::question::Resolved;
use strowger_store::accounting::Row;
use strowger_store::error::StoreError;
use strowger_store::location::LocationTable;
use strowger_store::subscriber::{self, Credential, Ha1s, LookupSink, Question, Subscribers};
use strowger_store::ticket::{Refused, SinkId, Ticket};

/// Time in milliseconds for which the first change of a group of persisted calls waits for others.
pub(super) const KEEP_INTERVAL: u64 = 100;

/// A database with all answers in memory.
struct Known(Vec<Arc<Credential>>);

impl Known {
    fn of(users: &[&str]) -> Self {
        let credential = |user: &&str| {
            let ha1 = Ha1Set::of_password(user.as_bytes(), DOMAIN.as_bytes(), PASSWORD.as_bytes());
            let md5 = ha1.of(Hash::Md5).and_then(|ha1| ha1.value().as_bytes().try_into().ok());
            let [realm, domain] = [DOMAIN.into(), DOMAIN.into()];
            Arc::new(Credential { username: (*user).into(), realm, domain, ha1: Ha1s { md5, ..Ha1s::default() } })
        };
        Self(users.iter().map(credential).collect())
    }
}

impl Subscribers for Known {
    fn receiver(&self, _sink: Arc<dyn LookupSink>) -> SinkId {
        SinkId::NONE
    }

    fn cached(&self, question: Question<'_>, _now_ms: u64) -> Option<Result<subscriber::SubscriberAnswer, StoreError>> {
        let of = |name: &[u8]| self.0.iter().find(|credential| credential.username.as_bytes() == name).cloned();
        Some(Ok(match question {
            Question::Credential { username, .. } => {
                of(username).map_or(subscriber::SubscriberAnswer::Absent, subscriber::SubscriberAnswer::Credential)
            }
            Question::User { username, .. } => {
                of(username).map_or(subscriber::SubscriberAnswer::Absent, |_| subscriber::SubscriberAnswer::Exists)
            }
        }))
    }

    fn request(&self, _ticket: Ticket, _question: Question<'_>, _now_ms: u64) -> Result<(), Refused> {
        unreachable!("every question has its answer in memory")
    }
}

/// State of a call on disk, or a change of it.
#[derive(Clone, Debug)]
enum OnDisk {
    State(Box<[u8]>),
    LastWords(Box<[u8]>),
    Nothing,
}

/// The server across all of its processes.
pub(super) struct Server {
    config: String,
    engine: Engine,
    location: Arc<LocationTable>,
    random: Random,
    process: u16,
    out: Outbox,
    disk: BTreeMap<u64, OnDisk>,
    pending: BTreeMap<u64, OnDisk>,
    /// Time at which the pending changes are written.
    keeps_at: Option<u64>,
    /// Rows on their way to their table, and the time of their arrival.
    waiting: Vec<Row>,
    writes_at: Option<u64>,
    pub(super) ledger: Ledger,
    pub(super) passed: Passed,
}

/// Times at which messages that the laws need left the server.
#[derive(Debug, Default)]
pub(super) struct Passed {
    /// Moments of each 2xx to an INVITE, by Call-ID and both tags.
    pub(super) answers: HashMap<(String, String, String), Vec<u64>>,
    /// Branch and first moment of each BYE, by Call-ID and tag of its receiver.
    pub(super) byes: HashMap<(String, String), Vec<(String, u64)>>,
    /// Times at which the process was killed.
    pub(super) kills: Vec<u64>,
}

const SECRET: &[u8] = b"the secret of these worlds, of all processes";

impl Server {
    pub(super) fn new(now: Now, config: String, mut random: Random) -> Self {
        let location = Arc::new(LocationTable::new(read(&config).location_settings()));
        let engine = engine(now, &config, &location, 1, &mut random);
        Self {
            config,
            engine,
            location,
            random,
            process: 1,
            out: Outbox::new(),
            disk: BTreeMap::new(),
            pending: BTreeMap::new(),
            keeps_at: None,
            waiting: Vec::new(),
            writes_at: None,
            ledger: Ledger::default(),
            passed: Passed::default(),
        }
    }

    /// Handles a received datagram. Returns the datagrams that the server sends.
    pub(super) fn receive(&mut self, now: Now, remote: SocketAddr, bytes: &[u8]) -> Vec<(SocketAddr, Vec<u8>)> {
        let arrival = Arrival { transport: Transport::Udp, listener: ListenerId(0), remote, flow: None };
        self.work(now, |engine, out| engine.receive(now, &arrival, bytes, out))
    }

    /// Runs the timers that are due.
    pub(super) fn poll(&mut self, now: Now) -> Vec<(SocketAddr, Vec<u8>)> {
        if self.keeps_at.take_if(|at| *at <= now.mono).is_some() {
            self.commit();
        }
        if self.writes_at.take_if(|at| *at <= now.mono).is_some() {
            self.write();
        }
        self.work(now, |engine, out| engine.poll(now, out))
    }

    pub(super) fn deadline(&mut self) -> Option<u64> {
        self.engine.deadline().into_iter().chain(self.keeps_at).chain(self.writes_at).min()
    }

    fn work(&mut self, now: Now, work: impl FnOnce(&mut Engine, &mut Outbox)) -> Vec<(SocketAddr, Vec<u8>)> {
        let mut out = std::mem::take(&mut self.out);
        work(&mut self.engine, &mut out);
        self.carry_out(now, &mut out);
        let sends = out.sends().iter();
        let sent: Vec<_> = sends.map(|send| (send.target.address, out.bytes[send.range()].to_vec())).collect();
        out.clear();
        self.out = out;
        sent.iter().for_each(|(_, bytes)| self.passed.note(now, bytes));
        sent
    }

    fn carry_out(&mut self, now: Now, out: &mut Outbox) {
        self.engine.keep_changed(now);
        while !self.engine.effects.is_empty() {
            for effect in std::mem::take(&mut self.engine.effects) {
                match effect {
                    // No name can be resolved.
                    Effect::Resolve { ticket, name, .. } => {
                        let to = Resolved::default();
                        self.engine.answered(now, EngineInput::Resolved { ticket, name, to }, out);
                        self.engine.keep_changed(now);
                    }
                    Effect::Account(row) => {
                        self.waiting.push(*row);
                        let due = now.mono + self.random.between(1, 100);
                        self.writes_at.get_or_insert(due);
                    }
                    Effect::PersistCall { call, state } => self.change(now, call, OnDisk::State(state)),
                    Effect::FinishCall { call, rows } => self.change(now, call, OnDisk::LastWords(rows)),
                    Effect::DeleteCall { call } => self.change(now, call, OnDisk::Nothing),
                    // No configuration of the simulation has media.
                    Effect::Media { .. } => (),
                    Effect::Alias { .. }
                    | Effect::LimitSilence { .. }
                    | Effect::SourceVerified(_)
                    | Effect::WakePings
                    | Effect::GiveBack => (),
                }
            }
        }
    }

    fn change(&mut self, now: Now, call: u64, change: OnDisk) {
        self.pending.insert(call, change);
        self.keeps_at.get_or_insert(now.mono + KEEP_INTERVAL);
    }

    fn commit(&mut self) {
        for (call, change) in std::mem::take(&mut self.pending) {
            match change {
                OnDisk::Nothing => _ = self.disk.remove(&call),
                change => _ = self.disk.insert(call, change),
            }
        }
    }

    fn write(&mut self) {
        std::mem::take(&mut self.waiting).into_iter().for_each(|row| self.ledger.take(row));
    }

    /// Kills the process and starts the next process with the state on disk.
    ///
    /// # Errors
    /// A persisted call cannot be read, or has another key.
    pub(super) fn kill(&mut self, now: Now) -> Result<Vec<(SocketAddr, Vec<u8>)>, String> {
        self.passed.kills.push(now.mono);
        if self.random.chance(500) {
            self.commit();
        }
        if self.random.chance(500) {
            self.write();
        }
        self.pending.clear();
        self.waiting.clear();
        (self.keeps_at, self.writes_at) = (None, None);
        self.process += 1;
        self.engine = engine(now, &self.config, &self.location, self.process, &mut self.random);
        let mut calls = Vec::new();
        for left in self.disk.values() {
            match left {
                OnDisk::State(bytes) => {
                    calls.push(read_kept(now, bytes).map_err(|error| format!("a kept call: {error}"))?);
                }
                OnDisk::LastWords(rows) => {
                    let rows = Row::read_all(rows).ok_or("last words are no rows")?;
                    rows.into_iter().for_each(|row| self.ledger.take(*row));
                }
                OnDisk::Nothing => (),
            }
        }
        // Last words stay on disk for a while after their call; they are not read again.
        self.disk.retain(|_, left| matches!(left, OnDisk::State(_)));
        match self.engine.take_over(now, calls) {
            0 => Ok(self.poll(now)),
            strange => Err(format!("{strange} kept calls are found under other keys")),
        }
    }

    /// Checks that no call is left at the end.
    ///
    /// # Errors
    /// The calls, limits and rows that are left.
    pub(super) fn leftovers(&self) -> Result<(), String> {
        self.engine.show_gauges();
        let counts = self.engine.shared.counts();
        let limited: u32 = self.engine.shared.call_limits.list().into_iter().map(|(_, calls)| calls).sum();
        let left = [counts.calls_tracked, counts.dialogs_early, counts.dialogs_confirmed, u64::from(limited)];
        match (left, self.waiting.len(), self.pending.len()) {
            ([0, 0, 0, 0], 0, 0) => Ok(()),
            left => Err(format!("left at the end: {left:?}")),
        }
    }
}

impl Passed {
    fn note(&mut self, now: Now, bytes: &[u8]) {
        if bytes.starts_with(b"BYE ") {
            let said = Received::read(bytes);
            let byes = self.byes.entry((said.call_id().to_owned(), said.tag("To").to_owned())).or_default();
            if byes.iter().all(|(branch, _)| branch != said.branch()) {
                byes.push((said.branch().to_owned(), now.mono));
            }
        } else if bytes.starts_with(b"SIP/2.0 2") {
            let said = Received::read(bytes);
            if said.method() == "INVITE" {
                let tags = [said.call_id(), said.tag("From"), said.tag("To")].map(str::to_owned);
                self.answers.entry(tags.into()).or_default().push(now.mono);
            }
        }
    }
}

fn read(text: &str) -> Config {
    match Config::read(Source { text, ..Source::default() }) {
        Ok((config, _)) => config,
        Err(report) => panic!("{report}\n{text}"),
    }
}

fn engine(now: Now, text: &str, location: &Arc<LocationTable>, process: u16, random: &mut Random) -> Engine {
    let config = read(text);
    let address = ListenerAddress {
        transport: Transport::Udp,
        bound: SERVER,
        sent_by: SERVER.to_string().into_bytes().into(),
        network: 0,
    };
    let keys = CallKeys::derive(SECRET);
    let mut seed = [0; 32];
    seed.chunks_exact_mut(8).for_each(|part| part.copy_from_slice(&random.u64().to_le_bytes()));
    seed[CALL_SEED].copy_from_slice(&keys.tables.to_le_bytes());
    let surroundings = ProcessContext {
        identity: Identity::new(vec![address], config.domain_names(), &[]),
        secret: SECRET.to_vec(),
        seed,
        call_secret: keys.buckets,
        process,
        shards: 1,
        location: location.clone(),
        subscribers: Some(Arc::new(Known::of(&["mallory", "bob"]))),
        credentials: None,
        bounds: EngineBounds::default(),
        log_limiter: Arc::new(LogLimiter::new(config.log.refusals_per_minute, config.limits.ipv6_prefix)),
        routes: Box::new(OneWay),
        names: Arc::new(NoNames),
    };
    let shared = Arc::new(ProcessState::new(now, config, surroundings));
    let mut engine = Engine::new(now, shared, 0, ProcessStatus { draining: false, shards: 1 });
    engine.sinks.found = Some(SinkId::NONE);
    engine
}
