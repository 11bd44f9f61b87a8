//! The engine of one shard: it decides about every message that the shard owns, and does nothing itself.
//!
//! Its owner gives it the time and one input (a message, an answer to a question, a timer, a flow that ended). It writes messages into
//! the [`Outbox`], and what else it wants of the world as [`Effect`]s, which its owner carries out. It holds no socket, no clock, no
//! runtime and no other shard.

mod bans;
mod failed_targets;
mod moves;
mod policy;
mod reading;
mod unread;
mod upkeep;

pub use moves::EngineRecord;

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
use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use strowger_cache::ticket::{Answered, ReceiverId};
use strowger_core::entropy::Entropy;
use strowger_core::proxy::{Notice, Proxy};
use strowger_core::registrar::Registrar;
use strowger_core::slots::{Id, Slots};
use strowger_core::timer::sooner;
use strowger_core::transaction::{ClientId, Event, Outgoing, Role, Transactions};
use strowger_core::{Arrival, Flow, Now, Outbox, Round, Transport};
use strowger_message::{Edit, Index, Limits, Message};
use strowger_store::accounting::Row;
use strowger_store::credential_cache::{CredentialCache, Scratch};
use strowger_store::error::StoreError;
use strowger_store::subscriber;
use strowger_store::ticket::SinkId;

/// What comes back to an engine from beside it.
#[derive(Debug)]
pub enum Answer {
    /// Bindings are kept, or not.
    Written(Vec<(u64, Result<(), StoreError>)>),
    /// Subscribers were looked up.
    Subscribers(Vec<(u64, Result<subscriber::Answer, StoreError>)>),
    /// The cache of credentials answered.
    Credentials(Vec<Answered>),
    /// For the first shard: bindings that want pings were made.
    Pings,
    /// A name was resolved: to nothing if it could not be.
    Resolved {
        /// That of the [`Effect::Resolve`].
        ticket: u64,
        /// What was asked for.
        name: HostKey,
        /// Where it leads.
        to: Resolved,
    },
    /// The configuration has changed: what comes from now on goes by this.
    Policy(Arc<Policy>),
}

/// What an engine wants of the world besides the messages that it sends; carried out when its call returns.
#[derive(Debug)]
pub enum Effect {
    /// Messages to this address go over that connection, while it lives (RFC 5923).
    Alias {
        /// The connection that the request came by.
        flow: Flow,
        /// Its transport.
        transport: Transport,
        /// The address that the peer sent from, with the port that its Via names.
        address: SocketAddr,
    },
    /// What came last from this address by UDP was of the peer that is there.
    Confirm(SocketAddr),
    /// A name is to be resolved for a request of this source: [`Answer::Resolved`] comes back.
    Resolve {
        /// Names the request that waits.
        ticket: u64,
        /// The address that it came from, by which lines about failed look-ups are counted.
        source: IpAddr,
        /// What to resolve.
        name: HostKey,
    },
    /// The first shard is to look for bindings that want pings.
    WakePings,
    /// A row of accounting is to be written.
    Account(Box<Row>),
    /// This is what the next process needs to go on with a call ([`Engine::take_over`]), in place of what was said of it before.
    Keep {
        /// The call, by a number that means the same in all shards.
        call: u64,
        /// Read by [`read_kept`](crate::calls::read_kept).
        state: Box<[u8]>,
    },
    /// A call that may have been kept is over, and its rows are on their way.
    Close {
        /// The call.
        call: u64,
        /// The rows, should they be lost on their way: read by [`Row::read_all`].
        rows: Box<[u8]>,
    },
    /// A call that was kept is over.
    Forget {
        /// The call.
        call: u64,
    },
    /// Much less is under way than before: memory may go back to the system.
    GiveBack,
}

/// What is so around an engine, while it decides.
#[derive(Clone, Copy, Debug)]
pub struct Circumstances {
    /// The process is about to end: what is under way goes on, nothing new begins.
    pub draining: bool,
    /// Shards among which calls are divided.
    pub shards: usize,
}

/// What waits in an engine, and what it counts of that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitingCounts {
    /// Requests that wait for an answer or a commit.
    pub requests: usize,
    /// Messages held back behind others of their call and sender.
    pub held: usize,
    /// The most of them of one call and sender.
    pub longest: usize,
    /// Calls and senders of which anything waits, those that hold something back counted twice.
    pub lines: usize,
    /// Sources of requests that wait for a name.
    pub sources: usize,
    /// Bytes of all that waits for look-ups.
    pub bytes: usize,
}

impl WaitingCounts {
    /// Requests and messages that wait.
    pub fn messages(&self) -> usize {
        self.requests + self.held
    }

    /// Nothing waits, and nothing is left of what did.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// The machines of one shard and what they need.
pub struct Engine {
    /// What the engines of the process have in common.
    pub shared: Arc<ProcessState>,
    /// That of new requests; while one that came before is looked at, its own.
    pub(crate) policy: Arc<InForce>,
    pub(crate) number: usize,
    pub(crate) transactions: Transactions,
    pub(crate) proxy: Proxy,
    pub(crate) registrar: Registrar,
    pub(crate) entropy: Entropy,
    /// To be brought up to date before each call.
    pub circumstances: Circumstances,
    /// What the calls so far want of the world, in order; the owner takes it out.
    pub effects: Vec<Effect>,
    /// This shard among the receivers of commits; none where nothing is kept on disk.
    pub written: Option<SinkId>,
    /// The same for subscribers; none where the server has no users.
    pub found: Option<SinkId>,
    /// The cache of credentials as this shard asks it, and the shard among its receivers; none where there is none.
    pub cached: Option<(CredentialCache, ReceiverId)>,
    /// Subscribers were asked in this round: what they are asked leaves when it ends.
    pub has_asked: bool,
    /// The same for the cache of credentials.
    pub has_asked_cache: bool,
    /// What became of the INVITEs that begin calls, for an owner that sets this, and takes it out whenever a call of the engine returns:
    /// the messages of that call stand in the outbox still.
    pub heard: Option<Vec<Notice>>,
    pub(crate) suspended: Slots<Suspended>,
    /// Memory of requests that waited, for the next ones.
    #[expect(clippy::vec_box, reason = "they go into slots as they are")]
    pub(crate) spare: Vec<Box<SuspendedRequest>>,
    /// Messages of calls that wait, in order.
    pub(crate) held: HashMap<HoldKey, VecDeque<Held>>,
    /// How many requests of a call wait.
    pub(crate) waiting: HashMap<HoldKey, usize>,
    /// How many requests of a source wait for a name.
    pub(crate) resolving: HashMap<IpAddr, usize>,
    /// Bytes of all that waits.
    pub(crate) waiting_bytes: usize,
    /// Shards among which the bounds of kept bytes were last divided.
    divided_among: usize,
    pub(crate) index: Index,
    /// Scratch: a message that was written loosely, as it goes on; one whose top Via was completed.
    canonical: Vec<u8>,
    completed: Vec<u8>,
    pub(crate) edit: Edit,
    /// Scratch: a request without what it must not say of its caller.
    pub(crate) concealed: (Vec<u8>, Index),
    events: Vec<Event>,
    pub(crate) pings: Pings,
    pub(crate) calls: Calls,
    pub(crate) contacts: crate::contacts::Contacts,
    pub(crate) local_addresses: LocalAddresses,
    /// Scratch of registrations: the address-of-record and the header lines of the 200.
    pub(crate) aor: Vec<u8>,
    pub(crate) lines: Vec<u8>,
    /// Scratch: what is asked of the cache of credentials, and what it has at once.
    pub(crate) scratch: Cell<Scratch>,
    /// Scratch: header lines of a reply.
    pub(crate) reply_lines: Vec<u8>,
    /// Transactions alive at most since they last became few.
    most_transactions: u64,
    /// They became few: memory is to be given back so many times more, or until the tables rest.
    gives_left: u32,
    /// [`Now::mono`] when memory was last given back.
    gave_back: u64,
}

impl Engine {
    pub(crate) fn counters(&self) -> &Counters {
        &self.shared.counters[self.number]
    }

    pub(crate) fn messages(&self) -> &Messages {
        &self.shared.messages[self.number]
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

    /// For a look from outside: how many there are, and what they keep.
    pub fn transactions(&self) -> &Transactions {
        &self.transactions
    }

    /// Requests that are forwarded and not answered to the end.
    pub fn contexts(&self) -> usize {
        self.proxy.contexts()
    }

    /// Under how many limits its calls count, those of each call together.
    pub fn counted(&self) -> usize {
        self.calls.counts().counted
    }

    /// Messages that wait, for a look-up or behind others of their call.
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

/// The status code of a response that begins so.
#[inline]
fn status_code(bytes: &[u8]) -> Option<u16> {
    let digits = bytes.strip_prefix(b"SIP/2.0 ")?.first_chunk::<3>()?;
    let [a, b, c] = digits.map(|digit| u16::from(digit.wrapping_sub(b'0')));
    Some(a * 100 + b * 10 + c)
}

/// What comes in.
impl Engine {
    /// A whole message of a call whose bucket this shard owns.
    pub fn receive(&mut self, now: Now, arrival: &Arrival, bytes: &[u8], out: &mut Outbox) {
        self.read(now, arrival, bytes, out);
        self.hear_notices(now, out);
    }

    /// Runs the timers that are due. To be called when [`Engine::deadline`] has passed.
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

    /// When [`Engine::poll`] must be called at the latest, as [`Now::mono`]; none while nothing is under way.
    pub fn deadline(&mut self) -> Option<u64> {
        let of_messages = sooner(self.transactions.deadline(), self.proxy.deadline());
        sooner(of_messages, sooner(self.calls.deadline(), self.pings.deadline()))
    }

    /// What came back from beside it. An answer to a request that waits no more is dropped.
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

    /// A message with this token did not leave. `by_peer`: its peer took no connection; otherwise this machine could not send it.
    pub fn unsent(&mut self, now: Now, token: u64, reason: &str, by_peer: bool, out: &mut Outbox) {
        self.transactions.failed(now, token, out, &mut self.events);
        self.run_events(now, reason, out);
        if !by_peer {
            self.excuse_targets();
        }
        self.hear_notices(now, out);
        self.show_gauges();
    }

    /// The connection has ended by which went what has this token: no answer comes by it (RFC 3261 section 18.4).
    pub fn cut_off(&mut self, now: Now, token: u64, out: &mut Outbox) {
        self.transactions.cut_off(now, token, out, &mut self.events);
        self.run_events(now, "connection lost", out);
        // It took the connection. Perhaps it did not like the request.
        self.excuse_targets();
        self.hear_notices(now, out);
        self.show_gauges();
    }

    /// A datagram to this address was unreachable, as ICMP says; `quoted` is how it began. Believed only where that names a transaction.
    pub fn unreachable(&mut self, now: Now, to: SocketAddr, quoted: &[u8], out: &mut Outbox) {
        if self.transactions.unreachable(now, to, quoted, out, &mut self.events) {
            self.run_events(now, "unreachable (ICMP error)", out);
            self.hear_notices(now, out);
            self.show_gauges();
        }
    }

    /// A connection of this shard has ended: no binding is reached by it any more.
    pub fn closed(&self, flow: Flow) {
        self.shared.flows.closed(flow);
    }
}

/// What becomes of transactions.
impl Engine {
    fn response(&mut self, now: Now, arrival: &Arrival, message: &Message<'_>, out: &mut Outbox) {
        match self.transactions.response(now, message, out) {
            Outgoing::Deliver { id, tu, .. } => {
                self.hear_target(now, id, message);
                if let Some(context) = tu.id(Role::Proxy) {
                    match self.passage(self.proxy.user_of(context), message) {
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
        if !names_callee(message) || self.believes(arrival.remote.ip()) {
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

    /// `reason`: why what could not be sent could not be.
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
    /// The engine of the shard with this number, counted from 0. The first one sends pings, if bindings are there that want them.
    pub fn new(now: Now, shared: Arc<ProcessState>, number: usize, circumstances: Circumstances) -> Self {
        let policy = InForce::new(shared.policy());
        let config = &policy.config;
        let entropy = Entropy::new(shared.seed).derive(&(number as u64).to_le_bytes());
        let words = |label: &[u8]| {
            let mut same = Entropy::new(shared.seed).derive(label);
            [same.u64(), same.u64()]
        };
        let mut engine = Self {
            number,
            transactions: Transactions::new(config.timer_settings(), words(b"transactions")),
            proxy: Proxy::new(policy.router.clone(), config.proxy_settings(), entropy.derive(b"proxy")),
            registrar: Registrar::default(),
            entropy,
            circumstances,
            effects: Vec::new(),
            written: None,
            found: None,
            cached: None,
            has_asked: false,
            has_asked_cache: false,
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
            scratch: Cell::default(),
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
