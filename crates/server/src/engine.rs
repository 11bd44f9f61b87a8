//! Engine of one shard. It decides about every message that the shard owns, and performs no I/O.
//!
//! Its owner gives it the time and one input (message, answer to a question, timer, closed flow). The engine writes
//! messages into the [`Outbox`]. All other actions are [`Effect`]s, which the owner carries out. The engine has no
//! socket, clock or runtime, and knows no other shard.

mod anchored;
mod bans;
mod buffers;
mod failed_targets;
mod loopback;
mod memory;
mod moves;
mod overload;
mod policy;
mod reading;
mod stack;
mod unread;

pub use crate::effect::Effect;
pub use crate::shard::{MediaThreadStatus, ProcessStatus, ShardState, Sinks};
pub use crate::waiting::WaitingCounts;
pub(crate) use anchored::Anchored;
pub use anchored::AnchoredCounts;
pub use moves::EngineRecord;

use self::buffers::Buffers;
use self::memory::Memory;
use self::stack::Stack;
use crate::call_settings::call_times;
use crate::counters::{Counters, Messages};
use crate::decider::Decider;
use crate::identity::{conceal_callee, names_callee};
use crate::local_address::LocalAddresses;
use crate::ping::Pings;
use crate::policy::{ActivePolicy, Policy};
use crate::process_state::ProcessState;
use crate::question::{HostKey, Resolved};
use crate::refusals::log_lost;
use crate::waiting::{LookupResult, Waiting};
use std::net::SocketAddr;
use std::sync::Arc;
use strowger_cache::ticket::Answered;
use strowger_calls::{CallTable, Passage};
use strowger_core::proxy::Report;
use strowger_core::slots::Id;
use strowger_core::timer::sooner;
use strowger_core::transaction::{ClientId, Event, Incoming, Role, Transactions};
use strowger_core::user_agent::UserAgent;
use strowger_core::{Arrival, Flow, Now, Outbox};
use strowger_media::session::SessionEvent;
use strowger_message::{Limits, Message};
use strowger_store::error::StoreError;
use strowger_store::subscriber;

/// Message from outside the engine: results of look-ups and commits, and news of the process.
#[derive(Debug)]
pub enum EngineInput {
    /// Results of commits of bindings, by ticket.
    Written(Vec<(u64, Result<(), StoreError>)>),
    /// Results of subscriber look-ups, by ticket.
    Subscribers(Vec<(u64, Result<subscriber::SubscriberAnswer, StoreError>)>),
    /// Answers of the credential cache.
    Credentials(Vec<Answered>),
    /// Message for the first shard: there are new bindings that need pings.
    Pings,
    /// Resolved name, without targets if the look-up failed.
    Resolved {
        /// Ticket of the [`Effect::Resolve`].
        ticket: u64,
        /// Name that was looked up.
        name: HostKey,
        /// Targets of the name.
        to: Resolved,
    },
    /// New policy, for all requests from now on.
    Policy(Arc<Policy>),
    /// Event of a media session for the shard that owns the bucket of its call ([`bucket_of`](crate::media_sessions::bucket_of)), or ports for
    /// this shard.
    Media(SessionEvent),
}

/// State of one shard.
pub struct Engine {
    /// State that the engines of the process share.
    pub shared: Arc<ProcessState>,
    /// Policy of new requests; while an earlier request is handled, the policy of that request.
    pub(crate) policy: Arc<ActivePolicy>,
    /// Number of the shard, and the state of the process around it.
    pub shard: ShardState,
    /// Receivers of the answers to the questions of the shard.
    pub sinks: Sinks,
    /// State machines of `core`.
    pub(crate) stack: Stack,
    /// Calls that are tracked or logged.
    pub(crate) calls: CallTable,
    /// Requests that wait for an answer, and messages behind them.
    pub(crate) waiting: Waiting,
    /// Scratch memory.
    pub(crate) buffers: Buffers,
    /// Actions that the calls of the engine so far requested, in order. The owner takes them out.
    pub effects: Vec<Effect>,
    /// Reports of the proxy, for an owner that sets this field. The owner takes the reports out after each call of the
    /// engine, while the messages of that call are still in the outbox.
    pub heard: Option<Vec<Report>>,
    /// Calls that end at this server.
    pub(crate) anchored: Anchored,
    pub(crate) pings: Pings,
    pub(crate) local_addresses: LocalAddresses,
    memory: Memory,
}

impl Engine {
    /// Returns the view for decisions, under the policy of the current request.
    #[inline]
    pub(crate) fn decider(&self) -> Decider<'_> {
        let Self { policy, shared, shard, calls, sinks, .. } = self;
        Decider { policy, shared, shard, calls, sinks }
    }

    pub(crate) fn counters(&self) -> &Counters {
        self.decider().counters()
    }

    pub(crate) fn messages(&self) -> &Messages {
        self.decider().messages()
    }

    /// Counts the responses that are sent with a round.
    pub fn count_sent(&self, out: &Outbox) {
        let sent = &self.messages().sent;
        for send in out.sends() {
            if let Some(code) = out.bytes.get(send.range().start..).and_then(status_code) {
                sent.one(code);
            }
        }
    }

    /// Returns the transaction table, so that the owner can read its counts.
    pub fn transactions(&self) -> &Transactions {
        &self.stack.core.transactions
    }

    /// Returns the number of forwarded requests without a final response.
    pub fn contexts(&self) -> usize {
        self.stack.proxy.contexts()
    }

    /// Returns the number of places under limits that the calls of this engine take.
    pub fn counted(&self) -> usize {
        self.calls.counts().counted
    }

    /// Returns the counts of suspended requests and held messages.
    pub fn waiting(&self) -> WaitingCounts {
        self.waiting.counts()
    }
}

/// Gauges.
impl Engine {
    /// Updates the gauges of this engine, which the metrics show and the shutdown waits for. A round calls this at its
    /// end, before its messages are sent, so that a peer that has a response is counted. Inputs after the end of a
    /// round call this themselves.
    pub fn show_gauges(&self) {
        let counters = self.counters();
        counters.unanswered.set(self.stack.proxy.unanswered() as u64);
        counters.waiting.set(self.waiting.suspended.len() as u64);
        let overload = &self.stack.overload;
        counters.overloaded_shards.set(u64::from(overload.is_active()));
        counters.overload_percent.set(overload.refused_percent());
        let calls = self.calls.counts();
        counters.calls_logged.set(calls.logged as u64);
        counters.calls_tracked.set(calls.tracked as u64);
        counters.calls_bridged.set(self.anchored.bridges.len() as u64);
        counters.dialogs_early.set(calls.early as u64);
        counters.dialogs_confirmed.set(calls.confirmed as u64);
        let counts = self.stack.core.transactions.counts();
        counters.server_transactions.set(counts.servers);
        counters.client_transactions.set(counts.clients);
        counters.kept_bytes.set(counts.kept_bytes);
        counters.charged_bytes.set(counts.charged_bytes);
        counters.kept_abridged.set(counts.abridged);
        counters.retransmissions.set(counts.requests_resent + counts.responses_resent);
        counters.pings_pending.set(self.pings.pending() as u64);
        counters.timeouts.set(counts.timeouts.saturating_sub(counters.pings_unanswered.value()));
    }
}

/// Reads the status code at the start of a response.
#[inline]
pub(crate) fn status_code(bytes: &[u8]) -> Option<u16> {
    let digits = bytes.strip_prefix(b"SIP/2.0 ")?.first_chunk::<3>()?;
    let [a, b, c] = digits.map(|digit| u16::from(digit.wrapping_sub(b'0')));
    Some(a * 100 + b * 10 + c)
}

/// Inputs of the engine.
impl Engine {
    /// Handles a complete message of a call whose bucket this shard owns.
    pub fn receive(&mut self, now: Now, arrival: &Arrival, bytes: &[u8], out: &mut Outbox) {
        if self.stack.overload.is_active() && self.sheds(now, arrival, bytes, out) {
            return;
        }
        self.read(now, arrival, bytes, out);
        self.process_notices(now, out);
    }

    /// Runs the timers that are due. The owner calls this when [`Engine::deadline`] has passed.
    pub fn poll(&mut self, now: Now, out: &mut Outbox) {
        self.stack.divide_bounds(&self.policy.config, self.shard.process_status.shards);
        self.stack.core.poll(now, out);
        self.run_events(now, "", out);
        self.stack.proxy.poll(&mut self.stack.core.round(now, out));
        self.stack.with_agent(now, out, UserAgent::poll);
        self.poll_bridges(now, out);
        self.check_media(now);
        self.end_calls(now, out);
        self.process_notices(now, out);
        let Self { policy, shared, shard, calls, sinks, pings, stack, .. } = self;
        let decider = Decider { policy, shared, shard, calls, sinks };
        pings.send_due(now, decider, (&mut stack.core.transactions, &mut stack.entropy), out);
        self.waiting.suspended.tidy();
        self.calls.tidy(now.mono);
        if self.stack.overload.is_active() {
            self.continue_overload(now, self.stack.overload.wait());
        }
        let rests = sooner(self.stack.deadline(), self.anchored.bridges.deadline()).is_none();
        let gives_back = self.memory.step(now, &self.stack, rests, self.pings.pending() as u64);
        self.effects.extend(gives_back.then_some(Effect::GiveBack));
    }

    /// Returns the latest moment for the next [`Engine::poll`], as [`Now::mono`]; `None` while nothing is in progress.
    pub fn deadline(&mut self) -> Option<u64> {
        let of_media = sooner(self.anchored.bridges.deadline(), self.anchored.next_check());
        let of_calls = sooner(of_media, self.calls.deadline());
        let of_upkeep = sooner(self.pings.deadline(), self.stack.overload.deadline());
        sooner(self.stack.deadline(), sooner(of_calls, of_upkeep))
    }

    /// Takes an answer from outside. An answer to a request that no longer waits is dropped.
    pub fn answered(&mut self, now: Now, answer: EngineInput, out: &mut Outbox) {
        match answer {
            EngineInput::Written(results) => {
                for (ticket, result) in results {
                    self.written(ticket, result, out);
                }
            }
            EngineInput::Subscribers(results) => {
                for (ticket, result) in results {
                    self.go_on(now, ticket, LookupResult::Subscriber(result), out);
                }
            }
            EngineInput::Credentials(answers) => {
                answers.into_iter().for_each(|answered| self.on_cache_answer(now, answered, out))
            }
            EngineInput::Pings => self.pings.wake(now),
            EngineInput::Resolved { ticket, name, to } => {
                self.go_on(now, ticket, LookupResult::Name(name, to), out);
            }
            EngineInput::Policy(policy) => self.set_policy(now, policy),
            EngineInput::Media(event) => self.on_session_event(now, event, out),
        }
        self.process_notices(now, out);
    }

    /// Handles the failure to send the message with this token. `by_peer`: whether the peer refused the connection; if
    /// not, this machine could not send.
    pub fn unsent(&mut self, now: Now, token: u64, reason: &str, by_peer: bool, out: &mut Outbox) {
        self.stack.core.failed(now, token, out);
        self.run_events(now, reason, out);
        if !by_peer {
            self.excuse_targets();
        }
        self.process_notices(now, out);
        self.show_gauges();
    }

    /// Handles the end of the connection that carried the message with this token: no response can arrive over it (RFC
    /// 3261 section 18.4).
    pub fn cut_off(&mut self, now: Now, token: u64, out: &mut Outbox) {
        self.stack.core.cut_off(now, token, out);
        self.run_events(now, "connection lost", out);
        // The peer accepted the connection, and may have closed it because of the request.
        self.excuse_targets();
        self.process_notices(now, out);
        self.show_gauges();
    }

    /// Handles an ICMP error about a datagram to this address. `quoted` is the start of the datagram. The error counts
    /// only if that start names a transaction.
    pub fn unreachable(&mut self, now: Now, to: SocketAddr, quoted: &[u8], out: &mut Outbox) {
        if self.stack.core.unreachable(now, to, quoted, out) {
            self.run_events(now, "unreachable (ICMP error)", out);
            self.process_notices(now, out);
            self.show_gauges();
        }
    }

    /// Notes that the peer of a connection has sent a keep-alive: its flow needs no pings for a while.
    pub fn kept_alive(&self, now: Now, flow: Flow) {
        self.shared.flows.kept_alive(now, flow);
    }

    /// Returns the end of the last registration over this open connection, in milliseconds of [`Now::mono`]; `None` if no
    /// phone is registered over it.
    pub fn registered_until(&self, now: Now, flow: Flow) -> Option<u64> {
        self.shared.flows.registered_until(now, flow)
    }

    /// Tells whether this is the host of a gateway of the rules.
    pub fn is_gateway(&self, address: SocketAddr) -> bool {
        self.shared.gateways.is_at(address.ip(), &self.policy.config)
    }

    /// Notes that a connection of this shard has closed: no binding is reachable over the connection any more.
    pub fn closed(&self, flow: Flow) {
        self.shared.flows.closed(flow);
    }
}

/// Responses and events for the roles of their transactions.
impl Engine {
    fn response(&mut self, now: Now, arrival: &Arrival, message: &Message<'_>, out: &mut Outbox) {
        let incoming = self.stack.core.transactions.response(now, message, out);
        self.give_response(now, arrival, message, incoming, out);
    }

    /// Gives a response to the role of its transaction.
    fn give_response(
        &mut self,
        now: Now,
        arrival: &Arrival,
        message: &Message<'_>,
        incoming: Incoming,
        out: &mut Outbox,
    ) {
        let Incoming::Response { id, tu, after_final } = incoming else { return };
        self.note_response(now, id, message);
        match tu.role() {
            Role::Proxy(context) => self.proxy_response(now, arrival, message, (context, id), out),
            Role::Ping(ping) => {
                let status = message.status().unwrap_or_default();
                self.pings.response(ping, id, status, &mut self.stack.core.transactions);
            }
            Role::UserAgent(_) => {
                self.calls.set_responded((*arrival != Arrival::LOOPBACK).then_some(arrival.remote));
                self.agent_response(now, arrival, message, (id, tu, after_final), out);
            }
            Role::Suspended(_) | Role::None => (),
        }
    }

    /// Hands a response to the proxy unless the call of its request has ended.
    fn proxy_response(
        &mut self,
        now: Now,
        arrival: &Arrival,
        message: &Message<'_>,
        (context, id): (Id, ClientId),
        out: &mut Outbox,
    ) {
        match self.calls.passage(&self.policy.router, self.stack.proxy.user_of(context), message) {
            Passage::Passes => (),
            Passage::Dropped => return self.counters().answers_dropped.one(),
            Passage::Refused => {
                self.counters().answers_dropped.one();
                let round = &mut self.stack.core.round(now, out);
                return self.stack.proxy.refuse_answer(round, context, message, arrival, id);
            }
        }
        if self.is_of_far_leg(context) {
            return self.far_response(now, arrival, message, (context, id), out);
        }
        self.calls.set_responded(Some(arrival.remote));
        self.pass_response(now, arrival, message, (context, id), out);
    }

    /// Hands a response to the proxy, without identities of the callee unless its source is trusted (RFC 3325 section 5).
    fn pass_response(
        &mut self,
        now: Now,
        arrival: &Arrival,
        message: &Message<'_>,
        (context, id): (Id, ClientId),
        out: &mut Outbox,
    ) {
        if !names_callee(message) || self.decider().believes(arrival.remote.ip()) {
            let round = &mut self.stack.core.round(now, out);
            return self.stack.proxy.response(round, context, message, arrival, id);
        }
        let (mut bytes, mut index) = std::mem::take(&mut self.buffers.concealed);
        bytes.clear();
        conceal_callee(message, &mut self.buffers.edit, &mut bytes);
        if index.parse(&bytes, &Limits::UNLIMITED).is_ok() {
            let round = &mut self.stack.core.round(now, out);
            self.stack.proxy.response(round, context, &Message::new(&bytes, &index), arrival, id);
        }
        self.buffers.concealed = (bytes, index);
    }

    /// Handles the events of transactions. `reason`: cause of a failure to send.
    fn run_events(&mut self, now: Now, reason: &str, out: &mut Outbox) {
        while let Some(event) = self.stack.core.event() {
            match (event.user().role(), event) {
                (Role::Proxy(context), _) => {
                    if let Event::Timeout { .. } | Event::ClientTransportError { .. } = event {
                        log_lost(now, &event, reason, &self.stack.core.transactions, self.decider());
                    }
                    self.stack.proxy.event(&mut self.stack.core.round(now, out), context, &event);
                }
                (Role::Suspended(ticket), Event::TryingDue { id, .. }) => self.still_waits(now, ticket, id, out),
                (Role::Ping(ping), _) => {
                    if self.pings.end(ping, &event) {
                        self.counters().pings_unanswered.one();
                    }
                }
                (Role::UserAgent(_), _) => {
                    self.stack.with_agent(now, out, |agent, round| agent.transaction_event(round, &event));
                }
                (Role::Suspended(_) | Role::None, _) => (),
            }
        }
    }
}

impl Engine {
    /// Creates the engine of the shard with this number, from 0. The first one sends pings if there are bindings that
    /// need them.
    pub fn new(now: Now, shared: Arc<ProcessState>, number: usize, process_status: ProcessStatus) -> Self {
        let policy = ActivePolicy::new(shared.policy());
        let config = &policy.config;
        let mut engine = Self {
            shard: ShardState { number, process_status, media_threads: MediaThreadStatus::default() },
            sinks: Sinks::default(),
            stack: Stack::new(&shared, &policy, number),
            calls: CallTable::new(
                call_times(config, &shared.bounds),
                shared.call_table(config.dialogs.place().is_some()),
            ),
            waiting: Waiting::default(),
            buffers: Buffers::default(),
            effects: Vec::new(),
            heard: None,
            anchored: Anchored::default(),
            pings: Pings::every(config.nat.ping_interval),
            local_addresses: LocalAddresses::default(),
            memory: Memory::default(),
            policy,
            shared,
        };
        engine.go_by_policy(now);
        if number == 0 && engine.shared.location.gauges().bindings > 0 {
            engine.pings.wake(now);
        }
        engine
    }
}
