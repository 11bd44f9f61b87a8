//! Engine of one shard. It decides about every message that the shard owns, and performs no I/O.
//!
//! Its owner gives it the time and one input (message, answer to a question, timer, closed flow). The engine writes
//! messages into the [`Outbox`]. All other actions are [`Effect`]s, which the owner carries out. The engine has no
//! socket, clock or runtime, and knows no other shard.

mod bans;
mod failed_targets;
mod moves;
mod parts;
mod policy;
mod reading;
mod unread;
mod upkeep;

pub use moves::EngineRecord;
pub use parts::{Circumstances, ShardState, Sinks};

use crate::calls::answers::Passage;
use crate::calls::{CallTimes, Calls};
use crate::counters::{Counters, Messages};
use crate::identity::{conceal_callee, names_callee};
use crate::local_address::LocalAddresses;
use crate::ping::Pings;
use crate::policy::{InForce, Policy};
use crate::process_state::ProcessState;
use crate::question::{HostKey, Resolved};
use crate::suspended::{Held, HoldKey, LookupResult, Suspended, SuspendedRequest};
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use strowger_cache::ticket::Answered;
use strowger_core::entropy::Entropy;
use strowger_core::proxy::{Notice, Proxy};
use strowger_core::registrar::Registrar;
use strowger_core::slots::{Id, Slots};
use strowger_core::timer::sooner;
use strowger_core::transaction::{ClientId, Event, Outgoing, Role, Transactions};
use strowger_core::{Arrival, Flow, Now, Outbox, Round, Transport};
use strowger_message::{Edit, Index, Limits, Message};
use strowger_store::accounting::Row;
use strowger_store::error::StoreError;
use strowger_store::subscriber;

/// Answer from outside the engine.
#[derive(Debug)]
pub enum Answer {
    /// Results of commits of bindings, by ticket.
    Written(Vec<(u64, Result<(), StoreError>)>),
    /// Results of subscriber look-ups, by ticket.
    Subscribers(Vec<(u64, Result<subscriber::Answer, StoreError>)>),
    /// Answers of the credential cache.
    Credentials(Vec<Answered>),
    /// News for the first shard: there are new bindings that need pings.
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
}

/// Action that an engine requests, other than sending a message. The owner carries it out when the call of the engine
/// returns.
#[derive(Debug)]
pub enum Effect {
    /// Connection for messages to this address, while it lives (RFC 5923).
    Alias {
        /// Connection of the request.
        flow: Flow,
        /// Transport of the connection.
        transport: Transport,
        /// Source address of the peer, with the port of its Via.
        address: SocketAddr,
    },
    /// UDP address whose last message is proved to come from the peer there.
    Confirm(SocketAddr),
    /// Name look-up for a request; the answer is [`Answer::Resolved`].
    Resolve {
        /// Ticket of the suspended request.
        ticket: u64,
        /// Source of the request, by which log lines about failed look-ups are counted.
        source: IpAddr,
        /// Name to look up.
        name: HostKey,
    },
    /// Order to the first shard to look for bindings that need pings.
    WakePings,
    /// Row of accounting to be written.
    Account(Box<Row>),
    /// State of a call for the next process ([`Engine::take_over`]). It replaces earlier state of the call.
    Keep {
        /// Key of the call, equal in all shards.
        call: u64,
        /// State, read by [`read_kept`](crate::calls::read_kept).
        state: Box<[u8]>,
    },
    /// End of a call that may have been kept. Its rows are on their way to the writer.
    Close {
        /// Key of the call.
        call: u64,
        /// Copy of the rows, in case they are lost on their way; read by [`Row::read_all`].
        rows: Box<[u8]>,
    },
    /// End of a kept call.
    Forget {
        /// Key of the call.
        call: u64,
    },
    /// Hint that memory may go back to the system: the load has dropped much.
    GiveBack,
}

/// Counts of suspended requests and held messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitingCounts {
    /// Requests that wait for an answer or a commit.
    pub requests: usize,
    /// Messages held back behind others of their call and sender.
    pub held: usize,
    /// Length of the longest queue of held messages of one call and sender.
    pub longest: usize,
    /// Pairs of call and sender with suspended requests, plus pairs with held messages.
    pub lines: usize,
    /// Sources of requests that wait for a name.
    pub sources: usize,
    /// Bytes of all that waits for look-ups.
    pub bytes: usize,
}

impl WaitingCounts {
    /// Returns the number of suspended requests and held messages.
    pub fn messages(&self) -> usize {
        self.requests + self.held
    }

    /// Tells whether all counts are zero.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// State machines of one shard, with their settings and scratch memory.
pub struct Engine {
    /// State that the engines of the process share.
    pub shared: Arc<ProcessState>,
    /// Policy of new requests. While an earlier request is handled: the policy of that request.
    pub(crate) policy: Arc<InForce>,
    /// Number of the shard, and the state of the process around it.
    pub shard: ShardState,
    /// Receivers of the answers to the questions of the shard.
    pub sinks: Sinks,
    pub(crate) transactions: Transactions,
    pub(crate) proxy: Proxy,
    pub(crate) registrar: Registrar,
    pub(crate) entropy: Entropy,
    /// Actions that the calls so far requested, in order. The owner takes them out.
    pub effects: Vec<Effect>,
    /// Notices about INVITEs that begin calls, for an owner that sets this. The owner takes them out after each call of
    /// the engine, while the messages of that call are still in the outbox.
    pub heard: Option<Vec<Notice>>,
    pub(crate) suspended: Slots<Suspended>,
    /// Memory of resumed requests, reused for the next ones.
    #[expect(clippy::vec_box, reason = "they go into slots as they are")]
    pub(crate) spare: Vec<Box<SuspendedRequest>>,
    /// Held messages by call and sender, in order of arrival.
    pub(crate) held: HashMap<HoldKey, VecDeque<Held>>,
    /// Number of suspended requests by call and sender.
    pub(crate) waiting: HashMap<HoldKey, usize>,
    /// Number of requests that wait for a name, by source.
    pub(crate) resolving: HashMap<IpAddr, usize>,
    /// Bytes of all that waits.
    pub(crate) waiting_bytes: usize,
    /// Number of shards at the last division of the memory bounds.
    divided_among: usize,
    pub(crate) index: Index,
    /// Scratch: canonical form of a loosely written message; message with a completed top Via.
    canonical: Vec<u8>,
    completed: Vec<u8>,
    pub(crate) edit: Edit,
    /// Scratch: message without the identities that must not be forwarded.
    pub(crate) concealed: (Vec<u8>, Index),
    events: Vec<Event>,
    pub(crate) pings: Pings,
    pub(crate) calls: Calls,
    pub(crate) contacts: crate::contacts::Contacts,
    pub(crate) local_addresses: LocalAddresses,
    /// Scratch of registrations: address of record, and header lines of the 200.
    pub(crate) aor: Vec<u8>,
    pub(crate) lines: Vec<u8>,
    /// Scratch: header lines of a reply.
    pub(crate) reply_lines: Vec<u8>,
    /// Highest number of live transactions since the last drop of the load.
    most_transactions: u64,
    /// Remaining steps that return memory to the system; zero once the tables rest.
    gives_left: u32,
    /// [`Now::mono`] of the last such step.
    gave_back: u64,
}

impl Engine {
    pub(crate) fn counters(&self) -> &Counters {
        self.decider().counters()
    }

    pub(crate) fn messages(&self) -> &Messages {
        self.decider().messages()
    }

    /// Counts the responses that leave with a round.
    pub fn count_sent(&self, out: &Outbox) {
        let sent = &self.messages().sent;
        for send in out.sends() {
            if let Some(code) = out.bytes.get(send.range().start..).and_then(status_code) {
                sent.one(code);
            }
        }
    }

    /// Returns the transaction table, for a look at its counts.
    pub fn transactions(&self) -> &Transactions {
        &self.transactions
    }

    /// Returns the number of forwarded requests without a final response.
    pub fn contexts(&self) -> usize {
        self.proxy.contexts()
    }

    /// Returns the number of places that its calls take under limits.
    pub fn counted(&self) -> usize {
        self.calls.counts().counted
    }

    /// Returns the counts of suspended requests and held messages.
    pub fn waiting(&self) -> WaitingCounts {
        WaitingCounts {
            requests: self.suspended.len(),
            held: self.held.values().map(VecDeque::len).sum(),
            longest: self.held.values().map(VecDeque::len).max().unwrap_or(0),
            lines: self.held.len() + self.waiting.len(),
            sources: self.resolving.len(),
            bytes: self.waiting_bytes,
        }
    }
}

/// Reads the status code at the start of a response.
#[inline]
fn status_code(bytes: &[u8]) -> Option<u16> {
    let digits = bytes.strip_prefix(b"SIP/2.0 ")?.first_chunk::<3>()?;
    let [a, b, c] = digits.map(|digit| u16::from(digit.wrapping_sub(b'0')));
    Some(a * 100 + b * 10 + c)
}

/// Inputs of the engine.
impl Engine {
    /// Handles a whole message of a call whose bucket this shard owns.
    pub fn receive(&mut self, now: Now, arrival: &Arrival, bytes: &[u8], out: &mut Outbox) {
        self.read(now, arrival, bytes, out);
        self.hear_notices(now, out);
    }

    /// Runs the timers that are due. The owner calls this when [`Engine::deadline`] has passed.
    pub fn poll(&mut self, now: Now, out: &mut Outbox) {
        self.divide_bounds();
        self.transactions.poll(now, out, &mut self.events);
        self.run_events(now, "", out);
        self.proxy.poll(&mut Round { now, tx: &mut self.transactions, out });
        self.end_calls(now, out);
        self.hear_notices(now, out);
        self.ping(now, out);
        self.suspended.tidy();
        self.calls.tidy(now.mono);
        self.give_memory_back(now);
    }

    /// Returns the latest moment for the next [`Engine::poll`], as [`Now::mono`]; `None` while nothing is in progress.
    pub fn deadline(&mut self) -> Option<u64> {
        let of_messages = sooner(self.transactions.deadline(), self.proxy.deadline());
        sooner(of_messages, sooner(self.calls.deadline(), self.pings.deadline()))
    }

    /// Takes an answer from outside. An answer to a request that no longer waits is dropped.
    pub fn answered(&mut self, now: Now, answer: Answer, out: &mut Outbox) {
        match answer {
            Answer::Written(results) => {
                for (ticket, result) in results {
                    self.written(ticket, result, out);
                }
            }
            Answer::Subscribers(results) => {
                for (ticket, result) in results {
                    self.go_on(now, ticket, LookupResult::Subscriber(result), out);
                }
            }
            Answer::Credentials(answers) => {
                answers.into_iter().for_each(|answered| self.hear_cache(now, answered, out))
            }
            Answer::Pings => self.pings.wake(now),
            Answer::Resolved { ticket, name, to } => {
                self.go_on(now, ticket, LookupResult::Name(name, to), out);
            }
            Answer::Policy(policy) => self.set_policy(now, policy),
        }
        self.hear_notices(now, out);
    }

    /// Handles the failure to send the message with this token. `by_peer`: the peer took no connection; otherwise this
    /// machine could not send.
    pub fn unsent(&mut self, now: Now, token: u64, reason: &str, by_peer: bool, out: &mut Outbox) {
        self.transactions.failed(now, token, out, &mut self.events);
        self.run_events(now, reason, out);
        if !by_peer {
            self.excuse_targets();
        }
        self.hear_notices(now, out);
        self.show_gauges();
    }

    /// Handles the end of the connection that carried the message with this token: no response arrives by it (RFC 3261
    /// section 18.4).
    pub fn cut_off(&mut self, now: Now, token: u64, out: &mut Outbox) {
        self.transactions.cut_off(now, token, out, &mut self.events);
        self.run_events(now, "connection lost", out);
        // The peer took the connection, and may have closed it because of the request.
        self.excuse_targets();
        self.hear_notices(now, out);
        self.show_gauges();
    }

    /// Handles an ICMP error about a datagram to this address. `quoted` is the start of the datagram. The error counts
    /// only if that start names a transaction.
    pub fn unreachable(&mut self, now: Now, to: SocketAddr, quoted: &[u8], out: &mut Outbox) {
        if self.transactions.unreachable(now, to, quoted, out, &mut self.events) {
            self.run_events(now, "unreachable (ICMP error)", out);
            self.hear_notices(now, out);
            self.show_gauges();
        }
    }

    /// Notes that a connection of this shard has closed: no binding is reachable by it any more.
    pub fn closed(&self, flow: Flow) {
        self.shared.flows.closed(flow);
    }
}

/// Results of transactions.
impl Engine {
    fn response(&mut self, now: Now, arrival: &Arrival, message: &Message<'_>, out: &mut Outbox) {
        match self.transactions.response(now, message, out) {
            Outgoing::Deliver { id, tu, .. } => {
                self.hear_target(now, id, message);
                if let Some(context) = tu.id(Role::Proxy) {
                    match self.decider().passage(self.proxy.user_of(context), message) {
                        Passage::Passes => (),
                        Passage::Dropped => return self.counters().answers_dropped.one(),
                        Passage::Refused => {
                            self.counters().answers_dropped.one();
                            let round = &mut Round { now, tx: &mut self.transactions, out };
                            return self.proxy.refuse_answer(round, context, message, arrival, id);
                        }
                    }
                    self.calls.responded = Some(arrival.remote);
                    self.pass_response(now, arrival, message, (context, id), out);
                }
            }
            Outgoing::Unmatched | Outgoing::Absorbed => (),
        }
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
            let round = &mut Round { now, tx: &mut self.transactions, out };
            return self.proxy.response(round, context, message, arrival, id);
        }
        let (mut bytes, mut index) = std::mem::take(&mut self.concealed);
        bytes.clear();
        conceal_callee(message, &mut self.edit, &mut bytes);
        if index.parse(&bytes, &Limits::UNLIMITED).is_ok() {
            let round = &mut Round { now, tx: &mut self.transactions, out };
            self.proxy.response(round, context, &Message::new(&bytes, &index), arrival, id);
        }
        self.concealed = (bytes, index);
    }

    /// Handles the events of transactions. `reason`: cause of a failure to send.
    fn run_events(&mut self, now: Now, reason: &str, out: &mut Outbox) {
        let mut events = std::mem::take(&mut self.events);
        for event in events.drain(..) {
            if let Event::Timeout { .. } | Event::ClientTransportError { .. } = event {
                self.log_lost(now, &event, reason);
            }
            let user = event.user();
            if let Some(context) = user.id(Role::Proxy) {
                self.proxy.event(&mut Round { now, tx: &mut self.transactions, out }, context, &event);
            } else if let (Some(ticket), Event::TryingDue { id, .. }) = (user.id(Role::Suspended), &event) {
                self.still_waits(now, ticket, *id, out);
            }
        }
        self.events = events;
    }
}

impl Engine {
    /// Creates the engine of the shard with this number, from 0. The first one sends pings if there are bindings that
    /// need them.
    pub fn new(now: Now, shared: Arc<ProcessState>, number: usize, circumstances: Circumstances) -> Self {
        let policy = InForce::new(shared.policy());
        let config = &policy.config;
        let entropy = Entropy::new(shared.seed).derive(&(number as u64).to_le_bytes());
        let words = |label: &[u8]| {
            let mut same = Entropy::new(shared.seed).derive(label);
            [same.u64(), same.u64()]
        };
        let mut engine = Self {
            shard: ShardState { number, circumstances },
            sinks: Sinks::default(),
            transactions: Transactions::new(config.timer_settings(), words(b"transactions")),
            proxy: Proxy::new(policy.router.clone(), config.proxy_settings(), entropy.derive(b"proxy")),
            registrar: Registrar::default(),
            entropy,
            effects: Vec::new(),
            heard: None,
            suspended: Slots::new(),
            spare: Vec::new(),
            held: HashMap::new(),
            waiting: HashMap::new(),
            resolving: HashMap::new(),
            waiting_bytes: 0,
            divided_among: 0,
            index: Index::new(),
            canonical: Vec::new(),
            completed: Vec::new(),
            edit: Edit::new(),
            concealed: Default::default(),
            events: Vec::new(),
            pings: Pings::every(config.nat.ping_interval),
            calls: Calls::new(CallTimes::of(config), shared.call_limits.clone(), config.dialogs.place().is_some()),
            contacts: Default::default(),
            local_addresses: LocalAddresses::new(config.dns.cache_entries),
            aor: Vec::new(),
            lines: Vec::new(),
            reply_lines: Vec::new(),
            most_transactions: 0,
            gives_left: 0,
            gave_back: 0,
            policy,
            shared,
        };
        engine.proxy.set_udp_only(engine.shared.udp_only.clone());
        engine.go_by_policy(now);
        if number == 0 && engine.shared.location.gauges().bindings > 0 {
            engine.pings.wake(now);
        }
        engine
    }
}
