//! A shard of a server: its engine, connected to sockets, other shards and slow services.

mod call_order;

pub use self::call_order::CallOrder;

use crate::data_sets::state::DataSets;
use crate::http_connections::Crowded;
use crate::kept::{self, LeftCalls};
use crate::media::{MediaLink, MediaLinks, refusal, session_of};
use crate::policy_thread::PolicyThread;
use crate::program::Program;
use crate::service_addresses::ServiceAddresses;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use strowger_backend::accounting::Accounting;
use strowger_cache::ticket::{Answered, Receiver};
use strowger_core::log_limiter::{LogLimiter, LogSubject};
use strowger_core::shown::{brief, shown};
use strowger_core::{Arrival, Flow, Now, Outbox};
use strowger_dns::Resolver;
use strowger_net::{ConnectionKind, Handle, Mailbox, Service, Unsent, clock};
use strowger_server::engine::{Effect, Engine, EngineInput, EngineRecord, ProcessStatus};
use strowger_server::media_sessions::bucket_of;
use strowger_server::process_state::ProcessState;
use strowger_server::question::{HostKey, Resolved};
use strowger_store::accounting::Row;
use strowger_store::calls::CallStore;
use strowger_store::journal::Journal;
use strowger_store::read_through::LocalAsker;
use strowger_store::subscriber::Asked;

/// Services of a process that its shards share, in addition to the state of the engines.
pub(crate) struct Services {
    /// Replaced by a reload.
    resolver: Mutex<Arc<Resolver>>,
    pub(crate) reloads_refused: AtomicU64,
    /// Connections of control and metrics that were closed at their bounds.
    pub(crate) crowded: Crowded,
    /// Data sets of the rules.
    pub(crate) sets: DataSets,
    /// Thread that builds and frees policies.
    pub(crate) policies: PolicyThread,
    /// [`ProcessState::reloads`] of the policy in the engine, for each shard.
    reloads: Box<[AtomicU64]>,
    pub(crate) program: Program,
    /// Addresses of databases, caches, control and metrics.
    pub(crate) addresses: ServiceAddresses,
    /// Calls of an earlier process, for the first shard, which owns all buckets at the start.
    left: Mutex<LeftCalls>,
    /// Links of the shards to the media threads.
    media: MediaLinks,
}

impl Services {
    /// Creates the services for at most `shards` shards. `left`: calls of an earlier process. `media`: links of the shards
    /// to the media threads.
    pub(crate) fn new(
        resolver: Resolver,
        shards: usize,
        program: Program,
        policies: PolicyThread,
        addresses: ServiceAddresses,
        (left, media): (LeftCalls, MediaLinks),
    ) -> Self {
        let reloads = (0..shards).map(|_| AtomicU64::new(0)).collect();
        Self {
            resolver: Mutex::new(Arc::new(resolver)),
            reloads_refused: AtomicU64::new(0),
            crowded: Crowded::default(),
            sets: DataSets::default(),
            policies,
            reloads,
            program,
            addresses,
            left: Mutex::new(left),
            media,
        }
    }

    /// Returns the number of policies that have replaced the first one in this shard.
    pub(crate) fn reloads(&self, shard: usize) -> u64 {
        self.reloads[shard].load(Relaxed)
    }

    pub(crate) fn resolver(&self) -> Arc<Resolver> {
        self.resolver.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn take_left(&self) -> LeftCalls {
        std::mem::take(&mut *self.left.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the resolver. Look-ups in progress continue with the old resolver.
    pub(crate) fn set_resolver(&self, mut resolver: Resolver) {
        let mut current = self.resolver.lock().unwrap_or_else(PoisonError::into_inner);
        resolver.continue_counting(&current);
        *current = Arc::new(resolver);
    }
}

/// Input of a shard from other threads.
#[derive(Debug)]
pub enum Input {
    /// An answer for the engine.
    Answer(EngineInput),
    /// An order about its calls.
    Calls(CallOrder),
    /// Events of media threads are there.
    Media,
}

/// Gives input to an engine and carries out its effects.
pub struct Shard {
    engine: Engine,
    services: Arc<Services>,
    handle: Handle<Self>,
    mailbox: Mailbox<Self>,
    /// Writer of accounting; ends after the last shard.
    accounting: Option<Arc<Accounting>>,
    /// Writer of kept calls; ends after the last shard too.
    call_store: Option<Arc<CallStore>>,
    /// Sends the database questions of a round over a connection of this shard.
    asker: Option<LocalAsker<Asked>>,
    /// Link to the media threads; `None` if there are none.
    media: Option<MediaLink>,
}

impl Shard {
    pub(crate) fn new(
        shared: Arc<ProcessState>,
        services: Arc<Services>,
        number: usize,
        handle: &Handle<Self>,
        journal: Option<&Journal>,
        (accounting, call_store): (Option<Arc<Accounting>>, Option<Arc<CallStore>>),
    ) -> Self {
        let mailbox = handle.mailbox(number);
        let written = journal.map(|journal| {
            let mailbox = mailbox.clone();
            journal.receiver(Arc::new(move |results: &[(u64, Result<(), _>)]| {
                mailbox.send(Input::Answer(EngineInput::Written(results.to_vec())));
            }))
        });
        let found = shared.subscribers.as_ref().map(|subscribers| {
            let mailbox = mailbox.clone();
            subscribers.receiver(Arc::new(move |results: &[(u64, Result<_, _>)]| {
                mailbox.send(Input::Answer(EngineInput::Subscribers(results.to_vec())));
            }))
        });
        let asker = shared.subscribers.as_ref().and_then(|subscribers| subscribers.local()).map(|(asker, tasks)| {
            for task in tasks {
                tokio::task::spawn_local(task);
            }
            asker
        });
        let cached = shared.credentials.as_ref().map(|cache| {
            let own = cache.local().map(|(own, task)| {
                tokio::task::spawn_local(task);
                own
            });
            let cache = own.unwrap_or_else(|| cache.clone());
            let receiver = cache.receiver(Arc::new(CacheAnswers(mailbox.clone())));
            (cache, receiver)
        });
        // The number is read before the policy, so that the shard notices after its first round if another policy has
        // replaced this one meanwhile.
        services.reloads[number].store(shared.reloads(), Relaxed);
        let mut engine = Engine::new(clock::now(), shared, number, process_status(handle));
        (engine.sinks.written, engine.sinks.found, engine.sinks.cached) = (written, found, cached);
        let left = if number == 0 { services.take_left() } else { LeftCalls::default() };
        let media = services.media.take(handle, number);
        let handle = handle.clone();
        let mut shard = Self { engine, services, handle, mailbox, accounting, call_store, asker, media };
        // Ports for media are asked for before the first call.
        shard.carry_out();
        if !left.calls.is_empty() {
            shard.take_over(left);
        }
        shard
    }

    fn take_over(&mut self, left: LeftCalls) {
        let (calls, now) = (left.calls.len(), clock::now());
        let (strange, unreadable) = self.drive(|engine| {
            let strange = engine.take_over(now, left.calls);
            (strange, engine.take_over_media(now, left.anchors))
        });
        if let Some((error, calls)) = unreadable {
            tracing::error!(%error, calls, "kept calls with media not readable: they end");
        }
        if strange > 0 {
            tracing::error!(
                calls = strange,
                of = calls,
                "kept calls are of another secret: their parties cannot end them here"
            );
        }
    }

    /// Gives an input to the engine and carries out its effects.
    #[inline]
    fn drive<T>(&mut self, input: impl FnOnce(&mut Engine) -> T) -> T {
        self.engine.shard.process_status = process_status(&self.handle);
        if let Some(media) = &self.media {
            self.engine.shard.media_threads = media.status();
        }
        let result = input(&mut self.engine);
        if !self.engine.effects.is_empty() {
            self.carry_out();
        }
        result
    }

    /// Gives the current policy to the engine, between two rounds.
    #[cold]
    fn change_policy(&mut self, now: Now, out: &mut Outbox) {
        let began = Instant::now();
        let shared = self.engine.shared.clone();
        // Number before the policy, as at the start.
        let (number, reloads) = (self.mailbox.shard(), shared.reloads());
        let policy = shared.policy();
        self.drive(|engine| engine.answered(now, EngineInput::Policy(policy), out));
        self.services.reloads[number].store(reloads, Relaxed);
        shared.durations[number].reload.observe(began.elapsed().as_micros() as u64);
    }

    fn carry_out(&mut self) {
        for effect in self.engine.effects.drain(..) {
            let Some(effect) = kept::carry_out(self.call_store.as_deref(), effect) else { continue };
            match effect {
                Effect::Alias { flow, transport, address } => self.handle.alias(flow, transport, address),
                Effect::LimitSilence { flow, longest, until } => self.handle.limit_silence(flow, longest, until),
                Effect::SourceVerified(peer) => self.handle.confirm(peer),
                Effect::Resolve { ticket, source, name } => {
                    let log_limiter = &self.engine.shared.log_limiter;
                    look_up((ticket, source, name), &self.services, log_limiter, &self.handle, &self.mailbox);
                }
                Effect::WakePings => self.handle.mailbox(0).send(Input::Answer(EngineInput::Pings)),
                Effect::Account(row) => account(self.accounting.as_deref(), row),
                Effect::GiveBack => (self.services.program.give_back)(),
                Effect::Media { thread, order } => {
                    let refused = match &mut self.media {
                        Some(media) => media.order(thread, order),
                        None => refusal(order),
                    };
                    if let Some(event) = refused {
                        self.mailbox.send(Input::Answer(EngineInput::Media(event)));
                    }
                }
                Effect::PersistCall { .. } | Effect::FinishCall { .. } | Effect::DeleteCall { .. } => (),
            }
        }
    }
}

/// Media threads.
impl Shard {
    /// Gives the events of media threads to the engines of their calls.
    #[cold]
    fn take_media_events(&mut self, now: Now, out: &mut Outbox) {
        let events = self.media.as_mut().map(MediaLink::events).unwrap_or_default();
        for event in events {
            let bucket = session_of(&event).map(bucket_of);
            let answer = EngineInput::Media(event);
            match bucket.filter(|bucket| self.handle.owner(*bucket) != self.mailbox.shard()) {
                // The call has moved since the order.
                Some(bucket) => self.handle.deliver(bucket, Input::Answer(answer)),
                None => self.drive(|engine| engine.answered(now, answer, out)),
            }
        }
    }
}

/// Puts the answers of the credential cache into the mailbox of a shard.
struct CacheAnswers(Mailbox<Shard>);

impl Receiver for CacheAnswers {
    fn answered(&self, answers: Vec<Answered>) {
        self.0.send(Input::Answer(EngineInput::Credentials(answers)));
    }
}

/// Writes the final accounting of unfinished calls when the shard ends.
impl Drop for Shard {
    fn drop(&mut self) {
        if let Some(media) = self.media.take() {
            self.services.media.put_back(self.mailbox.shard(), media);
        }
        self.engine.cut_off_accounts(clock::now());
        for effect in self.engine.effects.drain(..) {
            if let Some(Effect::Account(row)) = kept::carry_out(self.call_store.as_deref(), effect) {
                account(self.accounting.as_deref(), row);
            }
        }
    }
}

/// Submits an accounting row. There is no writer if the configuration has accounting off.
fn account(accounting: Option<&Accounting>, row: Box<Row>) {
    if let Some(accounting) = accounting {
        accounting.submit(row);
    }
}

fn process_status(handle: &Handle<Shard>) -> ProcessStatus {
    ProcessStatus { draining: handle.is_draining(), shards: handle.shards() }
}

/// Starts the look-up of a name; the result goes to the mailbox of the shard. This is a function of its own, so that
/// its stack does not enlarge the frame of each round.
#[inline(never)]
fn look_up(
    (ticket, source, name): (u64, IpAddr, HostKey),
    services: &Arc<Services>,
    log_limiter: &Arc<LogLimiter>,
    handle: &Handle<Shard>,
    mailbox: &Mailbox<Shard>,
) {
    let (services, log_limiter) = (services.clone(), log_limiter.clone());
    let (own, mailbox) = (handle.clone(), mailbox.clone());
    let work = async move {
        let to = resolve(&services.resolver(), &log_limiter, &own, source, &name).await;
        mailbox.send(Input::Answer(EngineInput::Resolved { ticket, name, to }));
    };
    handle.spawn("the resolver", work);
}

/// Returns the targets of a name, or no targets if the look-up fails.
async fn resolve(
    resolver: &Resolver,
    log_limiter: &LogLimiter,
    handle: &Handle<Shard>,
    source: IpAddr,
    (host, port, transport, secure): &HostKey,
) -> Resolved {
    let text = String::from_utf8_lossy(host);
    let targets = match resolver.resolve(&text, *port, *transport, *secure).await {
        Ok(targets) => targets,
        Err(error) => {
            if log_limiter.allow(LogSubject::Lookup, source, clock::now().mono) {
                let (host, error) = (shown(host), brief(&error));
                tracing::info!(%host, %error, "name not resolved");
            }
            Vec::new()
        }
    };
    let is_secure = targets.iter().any(|(transport, _)| transport.is_secure());
    Resolved { name: is_secure.then(|| handle.name(&text)), targets }
}

impl Service for Shard {
    type ShardMessage = Input;
    type Record = EngineRecord;

    #[inline]
    fn bucket(&mut self, now: Now, _secret: u32, call_id: &[u8], bytes: &[u8]) -> u8 {
        self.engine.shared.bucket_of(now, call_id, bytes)
    }

    fn receive(&mut self, now: Now, arrival: &Arrival, bytes: &[u8], out: &mut Outbox) {
        self.drive(|engine| engine.receive(now, arrival, bytes, out));
    }

    fn shed(&mut self, now: Now, arrival: &Arrival, bytes: &[u8], out: &mut Outbox) {
        self.drive(|engine| engine.shed(now, arrival, bytes, out));
    }

    fn waited(&mut self, now: Now, datagrams: u64, connections: u64) {
        self.engine.waited(now, datagrams, connections);
    }

    fn poll(&mut self, now: Now, out: &mut Outbox) {
        self.drive(|engine| engine.poll(now, out));
    }

    fn end(&mut self, now: Now, out: &mut Outbox) {
        if self.engine.shared.reloads() != self.services.reloads(self.mailbox.shard()) {
            self.change_policy(now, out);
        }
        if std::mem::take(&mut self.engine.sinks.has_asked)
            && let Some(subscribers) = &self.engine.shared.subscribers
        {
            match &self.asker {
                Some(asker) => asker.flush(),
                None => subscribers.flush(),
            }
        }
        if std::mem::take(&mut self.engine.sinks.has_asked_cache)
            && let Some((cache, _)) = &self.engine.sinks.cached
        {
            cache.flush();
        }
        self.engine.keep_changed(now);
        if !self.engine.effects.is_empty() {
            self.carry_out();
        }
        self.engine.show_gauges();
        self.engine.count_sent(out);
        (self.services.program.sends)(out);
    }

    fn deadline(&mut self) -> Option<u64> {
        self.engine.deadline()
    }

    fn answered(&mut self, now: Now, input: Input, out: &mut Outbox) {
        match input {
            Input::Answer(answer) => self.drive(|engine| engine.answered(now, answer, out)),
            Input::Calls(order) => self.drive(|engine| order.carry_out(engine, now, out)),
            Input::Media => self.take_media_events(now, out),
        }
    }

    fn failed(&mut self, now: Now, token: u64, out: &mut Outbox) {
        self.unsent(now, token, Unsent::Here, out);
    }

    fn unsent(&mut self, now: Now, token: u64, cause: Unsent, out: &mut Outbox) {
        let reason = match cause {
            Unsent::Here => "not sent",
            Unsent::Connection => "connection not made",
            Unsent::TlsHandshake => "TLS handshake failed",
            Unsent::WebSocketHandshake => "WebSocket handshake failed",
        };
        let by_peer = cause != Unsent::Here;
        self.drive(|engine| engine.unsent(now, token, reason, by_peer, out));
        // The unsent message is no longer in `out`; the engine may send it by another way in this round.
        self.engine.count_sent(out);
        (self.services.program.sends)(out);
    }

    fn cut_off(&mut self, now: Now, token: u64, out: &mut Outbox) {
        self.drive(|engine| engine.cut_off(now, token, out));
    }

    fn unreachable(&mut self, now: Now, to: SocketAddr, quoted: &[u8], out: &mut Outbox) {
        self.drive(|engine| engine.unreachable(now, to, quoted, out));
    }

    fn kept_alive(&mut self, now: Now, flow: Flow) {
        self.engine.kept_alive(now, flow);
    }

    #[inline]
    fn has_room(&self, peer: SocketAddr) -> bool {
        self.engine.has_room(peer.ip())
    }

    #[inline]
    fn is_overloaded(&self) -> bool {
        self.engine.is_overloaded()
    }

    fn connection_kind(&self, now: Now, flow: Flow, peer: SocketAddr) -> ConnectionKind {
        match self.engine.registered_until(now, flow) {
            Some(until) => ConnectionKind::Registered { until },
            None if self.engine.is_gateway(peer) => ConnectionKind::Trunk,
            None => ConnectionKind::Other,
        }
    }

    fn closed(&mut self, _now: Now, flow: Flow, _out: &mut Outbox) {
        self.drive(|engine| engine.closed(flow));
    }

    fn export(&mut self, now: Now, bucket: u8) -> Vec<EngineRecord> {
        self.drive(|engine| engine.export(now, bucket))
    }

    fn import(&mut self, now: Now, record: EngineRecord, out: &mut Outbox) {
        self.drive(|engine| engine.import(now, record, out));
    }
}
