//! The engine of one shard: it decides about every message that the shard owns, and does nothing itself.
//!
//! Its owner gives it the time and one input (a message, an answer to a question, a timer, a flow that ended). It writes messages into
//! the [`Outbox`], and what else it wants of the world as [`Effect`]s, which its owner carries out. It holds no socket, no clock, no
//! runtime and no other shard.

use crate::call_log::{CallLog, LoggedCall};
use crate::counters::Counters;
use crate::handling::{Handling, Progress};
use crate::local_address::LocalAddresses;
use crate::ping::Pings;
use crate::question::{HostKey, Resolved};
use crate::reply::{Reply, is_in_bounds};
use crate::shared::Shared;
use crate::stage::Stage;
use crate::suspended::{Heard, Line, Suspended, Waiting};
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use strowger_core::entropy::Entropy;
use strowger_core::proxy::{ContextRecord, Proxy};
use strowger_core::quota::Kind;
use strowger_core::registrar::Registrar;
use strowger_core::routing::contact_repair::is_first_hop;
use strowger_core::routing::{Request, Router};
use strowger_core::shown::shown;
use strowger_core::slots::Slots;
use strowger_core::timer::sooner;
use strowger_core::transaction::{Event, Incoming, Outgoing, Record, Role, TransactionUser, Transactions};
use strowger_core::{Arrival, Flow, Now, Outbox, Round, Transport, call, via};
use strowger_message::header::Via;
use strowger_message::{Edit, Error, Form, Index, Message, Method, Name, Reason};
use strowger_store::journal::WriteError;
use strowger_store::subscriber::{self, LookupError};
use strowger_store::ticket::SinkId;

/// What comes back to an engine from beside it.
#[derive(Debug)]
pub enum Answer {
    /// Bindings are kept, or not.
    Written(Vec<(u64, Result<(), WriteError>)>),
    /// Subscribers were looked up.
    Subscribers(Vec<(u64, Result<subscriber::Answer, LookupError>)>),
    /// For the first shard: bindings that want pings were made.
    Pings,
    /// A name was resolved: to nothing if it could not be.
    Resolved { ticket: u64, name: HostKey, to: Resolved },
}

/// What an engine wants of the world besides the messages that it sends; carried out when its call returns.
#[derive(Debug)]
pub enum Effect {
    /// Messages to this address go over that connection, while it lives (RFC 5923).
    Alias { flow: Flow, transport: Transport, address: SocketAddr },
    /// What came last from this address by UDP was of the peer that is there.
    Confirm(SocketAddr),
    /// A name is to be resolved for a request of this source: [`Answer::Resolved`] comes back.
    Resolve { ticket: u64, source: IpAddr, name: HostKey },
    /// The first shard is to look for bindings that want pings.
    WakePings,
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

/// What moves with a bucket of calls.
#[derive(Debug)]
pub enum Moved {
    Calls {
        contexts: Vec<ContextRecord>,
        transactions: Vec<Record>,
        logged: Vec<(u64, LoggedCall)>,
    },
    /// A request that waited for an answer, with how far it came: it asks again with its new owner. Without that: a message that was
    /// held back behind one.
    Waiting {
        bytes: Vec<u8>,
        arrival: Arrival,
        progress: Option<Progress>,
    },
}

/// The machines of one shard and what they need.
pub struct Engine {
    pub shared: Arc<Shared>,
    pub(crate) number: usize,
    pub(crate) transactions: Transactions,
    pub(crate) router: Arc<Router>,
    pub(crate) proxy: Proxy,
    pub(crate) registrar: Registrar,
    pub(crate) entropy: Entropy,
    pub circumstances: Circumstances,
    pub effects: Vec<Effect>,
    /// This shard among the receivers of the stores.
    pub written: Option<SinkId>,
    pub found: Option<SinkId>,
    pub(crate) suspended: Slots<Suspended>,
    /// Memory of requests that waited, for the next ones.
    #[expect(clippy::vec_box, reason = "they go into slots as they are")]
    pub(crate) spare: Vec<Box<Waiting>>,
    /// Messages of calls that wait, in order.
    pub(crate) held: HashMap<Line, VecDeque<(Vec<u8>, Arrival)>>,
    /// How many requests of a call wait.
    pub(crate) waiting: HashMap<Line, usize>,
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
    pub(crate) call_log: CallLog,
    pub(crate) contacts: crate::contacts::Contacts,
    pub(crate) local_addresses: LocalAddresses,
    /// Scratch of registrations: the address-of-record and the header lines of the 200.
    pub(crate) aor: Vec<u8>,
    pub(crate) lines: Vec<u8>,
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

    pub fn transactions(&self) -> &Transactions {
        &self.transactions
    }

    /// Requests that are forwarded and not answered to the end.
    pub fn contexts(&self) -> usize {
        self.proxy.contexts()
    }

    /// Messages that wait, for a look-up or behind others of their call.
    pub fn waiting(&self) -> usize {
        self.suspended.len() + self.held.values().map(VecDeque::len).sum::<usize>()
    }

    /// Parses what came and hands it on: responses to their transactions, requests to their first stage ([`Engine::advance`]).
    fn take_in(&mut self, now: Now, arrival: &Arrival, bytes: &[u8], out: &mut Outbox) {
        if self.is_banned(arrival, now) {
            return;
        }
        let mut index = std::mem::take(&mut self.index);
        match index.parse(bytes, &self.shared.limits) {
            Ok(()) if index.form() == Form::Canonical => self.sort(now, arrival, bytes, &mut index, out),
            Ok(()) => self.rewrite(now, arrival, bytes, &mut index, out),
            Err(error) => self.refuse_unread(now, arrival, bytes, &index, error, out),
        }
        self.index = index;
    }

    /// Whether its source is banned: then the message is dropped.
    pub(crate) fn is_banned(&self, arrival: &Arrival, now: Now) -> bool {
        let banned = self.shared.bans.is_banned(arrival.remote.ip(), now.mono);
        if banned {
            self.counters().banned.one();
        }
        banned
    }

    /// What is written loosely goes on as every reader takes it, or not at all: what we pass on must not be another
    /// message to the next one than to us.
    #[cold]
    fn rewrite(&mut self, now: Now, arrival: &Arrival, bytes: &[u8], index: &mut Index, out: &mut Outbox) {
        if index.form() == Form::Ambiguous {
            return self.refuse_unread(now, arrival, bytes, index, Error::new(Reason::LineEnd, 0), out);
        }
        let mut canonical = std::mem::take(&mut self.canonical);
        canonical.clear();
        strowger_message::canonical::write(&Message::new(bytes, index), &mut canonical);
        match index.parse(&canonical, &self.shared.limits) {
            Ok(()) => self.sort(now, arrival, &canonical, index, out),
            Err(error) => self.refuse_unread(now, arrival, &canonical, index, error, out),
        }
        self.canonical = canonical;
    }

    fn sort(&mut self, now: Now, arrival: &Arrival, bytes: &[u8], index: &mut Index, out: &mut Outbox) {
        let message = Message::new(bytes, index);
        if message.is_request() {
            self.counters().requests.one();
            self.complete(now, arrival, bytes, index, out);
        } else if index.form() == Form::Canonical {
            self.counters().responses.one();
            self.response(now, arrival, &message, out);
        } else {
            self.counters().unreadable.one();
        }
    }

    /// Fills in `received` and `rport` of the top Via, so that everything further sees a request that says where it
    /// came from.
    fn complete(&mut self, now: Now, arrival: &Arrival, bytes: &[u8], index: &mut Index, out: &mut Outbox) {
        let message = Message::new(bytes, index);
        let mut completed = std::mem::take(&mut self.completed);
        completed.clear();
        let force = self.shared.config.nat.force_rport;
        let edit = &mut self.edit;
        let top = message.via();
        let changed = top.is_ok_and(|top| via::complete(&message, &top, &arrival.remote, force, edit, &mut completed));
        if changed {
            index.moved_by_value(Name::Via, completed.len() as isize - message.bytes().len() as isize);
            #[cfg(debug_assertions)]
            self.is_as_read(index, &completed);
            self.enter(now, arrival, &Message::new(&completed, index), out);
        } else {
            self.enter_with_top(now, arrival, &message, top, out);
        }
        self.completed = completed;
    }

    /// What was moved is what a second reading finds.
    #[cfg(debug_assertions)]
    fn is_as_read(&self, index: &Index, bytes: &[u8]) {
        let mut again = Index::new();
        let limits = strowger_message::Limits { message: usize::MAX, ..self.shared.limits };
        // A header that has just become longer than one whose values are counted may be refused.
        if again.parse(bytes, &limits).is_ok() {
            assert_eq!(*index, again);
        }
    }

    /// A request, its Via complete: to its transaction, or behind those of its call that wait.
    pub(crate) fn enter(&mut self, now: Now, arrival: &Arrival, message: &Message<'_>, out: &mut Outbox) {
        self.enter_with_top(now, arrival, message, message.via(), out);
    }

    fn enter_with_top<'a>(
        &mut self,
        now: Now,
        arrival: &Arrival,
        message: &Message<'a>,
        top: Result<Via<'a>, Error>,
        out: &mut Outbox,
    ) {
        let call_hash = message.header(Name::CallId).map_or(0, |id| call::hash(self.shared.call_secret, id));
        let request = match Request::with_top(*message, top, arrival, call_hash) {
            Ok(request) => request,
            Err(error) => return self.refuse(now, arrival, message, error, out),
        };
        if !self.waiting.is_empty() {
            let line = self.line_of(&request);
            if self.waiting.contains_key(&line) {
                // Only what is new waits: an ACK ends the repetitions of its failure at once, and a request that came before gets what
                // its transaction has sent.
                if !self.transactions.absorb(now, message, out) {
                    self.hold(line, message.bytes(), arrival);
                }
                return;
            }
        }
        if request.essentials.from.lacks_quotes() || request.essentials.to.lacks_quotes() {
            return self.quote(now, &request, out);
        }
        self.dispatch(now, &request, out);
    }

    /// What a proxy does not use may be written loosely, but does not leave it so.
    #[cold]
    fn quote(&mut self, now: Now, request: &Request<'_>, out: &mut Outbox) {
        let (mut bytes, mut index) = (Vec::new(), Index::new());
        request.quote_names(&mut bytes);
        match index.parse(&bytes, &self.shared.limits) {
            Ok(()) => {
                if let Ok(request) = Request::of(Message::new(&bytes, &index), request.arrival, request.call_hash) {
                    self.dispatch(now, &request, out);
                }
            }
            Err(error) => self.refuse(now, request.arrival, &request.message, error, out),
        }
    }

    fn dispatch(&mut self, now: Now, request: &Request<'_>, out: &mut Outbox) {
        if self.is_scanner(now, request) {
            return;
        }
        if let (true, Some(flow)) = (request.essentials.via.alias, request.arrival.flow) {
            self.alias(request, flow);
        }
        self.begin(now, request, &mut Progress::new(now), out);
    }

    /// Gives a request its transaction and its first stage, unless it came further before.
    fn begin(&mut self, now: Now, request: &Request<'_>, progress: &mut Progress, out: &mut Outbox) {
        let mut handling = Handling { now, request, server: None, progress, out };
        // Registrations are answered without a transaction: equal requests get equal answers.
        if request.method == Method::Register && self.is_for_registrar(now, request) {
            if self.circumstances.draining {
                return self.reply(&mut handling, Reply::shutting_down());
            }
            if !self.has_room_to_wait(request.arrival, request.message.bytes().len()) {
                return self.reply(&mut handling, Reply::overloaded());
            }
            handling.progress.stage = Stage::Register;
            return self.advance(&mut handling);
        }
        match self.transactions.request(now, &request.message, request.arrival, request.call_hash, handling.out) {
            Incoming::New(id) => {
                let reply = via::reply_target(&request.essentials.via, request.arrival);
                if reply != request.arrival.reply() {
                    self.transactions.set_reply(id, reply);
                }
                handling.server = Some(id);
                if self.circumstances.draining && request.to_tag.is_empty() {
                    return self.reply(&mut handling, Reply::shutting_down());
                }
                self.advance(&mut handling);
            }
            Incoming::Absorbed => (),
            Incoming::Ack => {
                handling.progress.stage = Stage::Acknowledge;
                self.advance(&mut handling);
            }
            Incoming::Cancel { cancel, invite } => {
                handling.server = Some(cancel);
                self.cancel(&mut handling, invite);
            }
            Incoming::Full => self.reply(&mut handling, Reply::overloaded()),
        }
    }

    /// A request that waited in another shard, at the stage that it came to.
    fn go_on_here(&mut self, now: Now, arrival: &Arrival, bytes: &[u8], mut progress: Progress, out: &mut Outbox) {
        // Its transaction is another one here, which has sent nothing.
        progress.trying = false;
        let mut index = Index::new();
        if index.parse(bytes, &self.shared.limits).is_err() {
            return;
        }
        let message = Message::new(bytes, &index);
        let call_hash = message.header(Name::CallId).map_or(0, |id| call::hash(self.shared.call_secret, id));
        if let Ok(request) = Request::of(message, arrival, call_hash) {
            self.begin(now, &request, &mut progress, out);
        }
    }

    /// The sender wants later requests over this connection too (RFC 5923). It is believed about a port of its own address
    /// only: no peer gets what is meant for another machine. By TLS a name may stand there: what its certificate proves is
    /// looked at when a request is to go by it.
    fn alias(&mut self, request: &Request<'_>, flow: Flow) {
        let (top, arrival) = (&request.essentials.via, request.arrival);
        let own = match top.host.ip() {
            Some(ip) => ip.to_canonical() == arrival.remote.ip().to_canonical(),
            None => arrival.transport.is_secure(),
        };
        let port = top.port.unwrap_or_else(|| arrival.transport.default_port());
        if own && port != 0 {
            let (transport, address) = (arrival.transport, SocketAddr::new(arrival.remote.ip(), port));
            self.effects.push(Effect::Alias { flow, transport, address });
        }
    }

    /// Its sender looks for ways in, not for a user to call.
    fn is_scanner(&self, now: Now, request: &Request<'_>) -> bool {
        let Some(agent) = request.message.header(Name::UserAgent) else { return false };
        if !self.shared.bans.is_scanner(agent) {
            return false;
        }
        self.counters().banned.one();
        let source = request.arrival.remote;
        // By UDP the source may be forged, and what came by another proxy is not of that proxy: this message is dropped, its source not
        // banned.
        let is_of_source = request.arrival.transport.is_reliable() && is_first_hop(&request.message);
        let banned = is_of_source && self.shared.bans.scanner(source.ip(), now.mono);
        if self.shared.quota.may_say(Kind::Scanner, source.ip(), now.mono) {
            let (agent, transport) = (shown(agent), request.arrival.transport.text());
            tracing::info!(%source, %transport, %agent, banned, "scanner dropped");
        }
        true
    }

    fn response(&mut self, now: Now, arrival: &Arrival, message: &Message<'_>, out: &mut Outbox) {
        match self.transactions.response(now, message, out) {
            Outgoing::Deliver { id, tu, .. } => {
                if let Some(context) = tu.id(Role::Proxy) {
                    self.proxy.response(
                        &mut Round { now, tx: &mut self.transactions, out },
                        context,
                        message,
                        arrival,
                        id,
                    );
                }
            }
            Outgoing::Stray | Outgoing::Absorbed => (),
        }
    }

    /// A message that could not be read to its end: answered if enough of it could.
    fn refuse_unread(&self, now: Now, arrival: &Arrival, bytes: &[u8], index: &Index, error: Error, out: &mut Outbox) {
        let end = index.end().max(index.headers_end()).min(bytes.len());
        if end == 0 || !matches!(index.start(), strowger_message::index::Start::Request { .. }) {
            self.counters().unreadable.one();
            return;
        }
        self.refuse(now, arrival, &Message::new(&bytes[..end], index), error, out);
    }

    fn refuse(&self, now: Now, arrival: &Arrival, message: &Message<'_>, error: Error, out: &mut Outbox) {
        let answerable = message.method() != Some(Method::Ack) && message.has(Name::Via);
        if !answerable {
            self.counters().unreadable.one();
            return;
        }
        // Without one its sender knows the answer by the branch (RFC 4475 section 3.3.1).
        let call_id = message.header(Name::CallId).unwrap_or_default();
        self.counters().refused.one();
        self.log_malformed(now, arrival, message, error);
        let warning = [b"Warning: 399 strowger \"", error.reason.text().as_bytes(), b"\"\r\n"].concat();
        let lines: &[u8] = if error.status() == 400 { &warning } else { b"" };
        self.reply_unrouted(arrival, message, call_id, error.status(), lines, out);
    }

    /// Answers a request that went no further than its reading.
    fn reply_unrouted(
        &self,
        arrival: &Arrival,
        message: &Message<'_>,
        call_id: &[u8],
        status: u16,
        lines: &[u8],
        out: &mut Outbox,
    ) {
        let top = message.via().ok();
        let tag = self.router.own_tag().of(call_id);
        let from = out.start();
        let server_line = &self.shared.server_line;
        // What it need not say goes if that would be too much for a request that may be forged.
        for more in [&[lines, server_line][..], &[]] {
            out.bytes.truncate(from);
            let write_top = |text: &mut Vec<u8>| match &top {
                Some(top) => via::write_completed(message, top, &arrival.remote, false, text),
                // As it came: who wrote it must know what it means.
                None => false,
            };
            let bytes = &mut out.bytes;
            let mut builder = strowger_message::build::respond_via(message, status, None, Some(&tag), write_top, bytes);
            more.iter().for_each(|line| builder.buffer().extend_from_slice(line));
            builder.finish(b"");
            let length = out.bytes.len() - from;
            if arrival.transport.is_reliable() || is_in_bounds(length, message.bytes().len()) {
                break;
            }
            if more.is_empty() {
                self.counters().withheld.one();
                return out.bytes.truncate(from);
            }
        }
        let range = from..out.bytes.len();
        let target = match &top {
            Some(top) if !self.shared.config.nat.force_rport => via::reply_target(top, arrival),
            _ => arrival.reply(),
        };
        out.send(target, range, 0);
    }

    /// What may be kept is divided among the shards that run: each has about as many calls of each source.
    fn divide_bounds(&mut self) {
        let shards = self.circumstances.shards;
        if shards != self.divided_among {
            self.divided_among = shards;
            let limits = &self.shared.config.limits;
            let [of_source, of_all] =
                [limits.request_memory_per_source, limits.request_memory_of_all].map(|bytes| bytes.div_ceil(shards));
            self.transactions.set_shares(of_source, of_all, limits.ipv6_prefix);
        }
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
            } else if let (Some(ticket), Event::NoAnswerYet { id, .. }) = (user.id(Role::Suspended), &event) {
                self.still_waits(now, ticket, *id, out);
            }
        }
        self.events = events;
    }

    /// Much less is under way than before: what the tables gave back goes on to the system, step by step while they empty,
    /// and a last time when they rest.
    fn give_memory_back(&mut self, now: Now) {
        const WORTH_IT: u64 = 1_024;
        // Milliseconds; so often within the time that transactions live on.
        const STEP: u64 = 2_000;
        const STEPS: u32 = 20;
        let counts = self.transactions.counts();
        let alive = counts.servers + counts.clients;
        self.most_transactions = self.most_transactions.max(alive);
        if self.most_transactions >= WORTH_IT && alive * 4 < self.most_transactions {
            self.most_transactions = alive;
            self.gives_left = STEPS;
        }
        let rests = self.transactions.deadline().is_none() && self.proxy.deadline().is_none();
        if self.gives_left > 0 && (rests || now.mono >= self.gave_back + STEP) {
            self.gave_back = now.mono;
            self.gives_left = if rests { 0 } else { self.gives_left - 1 };
            self.effects.push(Effect::GiveBack);
        }
    }

    /// What the end of the process waits for, or logs, is always true: an old value would end it in the middle of a call.
    fn show_busy(&self) {
        let counters = self.counters();
        counters.unanswered.set(self.proxy.unanswered() as u64);
        counters.waiting.set(self.suspended.len() as u64);
        counters.calls_logged.set(self.call_log.len() as u64);
    }

    fn read_gauges(&self) {
        self.show_busy();
        let counts = self.transactions.counts();
        let counters = self.counters();
        counters.server_transactions.set(counts.servers);
        counters.client_transactions.set(counts.clients);
        counters.kept_bytes.set(counts.kept_bytes);
        counters.charged_bytes.set(counts.charged_bytes);
        counters.kept_abridged.set(counts.abridged);
        counters.retransmissions.set(counts.requests_resent + counts.responses_resent);
        counters.timeouts.set(counts.timeouts);
    }
}

/// What comes in.
impl Engine {
    pub fn receive(&mut self, now: Now, arrival: &Arrival, bytes: &[u8], out: &mut Outbox) {
        self.take_in(now, arrival, bytes, out);
        self.hear_notices(now, out);
        self.show_busy();
    }

    /// By UDP the request comes again, and most often is a repetition itself: an answer to it would end a call that its
    /// owner sets up. Over a connection it comes once, so it is answered.
    pub fn shed(&mut self, arrival: &Arrival, bytes: &[u8], out: &mut Outbox) {
        if !arrival.transport.is_reliable() {
            return;
        }
        let mut index = std::mem::take(&mut self.index);
        if index.parse(bytes, &self.shared.limits).is_ok() {
            let message = Message::new(bytes, &index);
            let answered = message.is_request() && message.method() != Some(Method::Ack);
            if let (true, Some(call_id)) = (answered, message.header(Name::CallId)) {
                self.counters().overloaded.one();
                self.reply_unrouted(arrival, &message, call_id, 503, b"Retry-After: 5\r\n", out);
            }
        }
        self.index = index;
    }

    pub fn poll(&mut self, now: Now, out: &mut Outbox) {
        self.divide_bounds();
        self.transactions.poll(now, out, &mut self.events);
        self.run_events(now, "", out);
        self.proxy.poll(&mut Round { now, tx: &mut self.transactions, out });
        self.hear_notices(now, out);
        self.ping(now, out);
        self.suspended.tidy();
        self.read_gauges();
        self.give_memory_back(now);
    }

    pub fn deadline(&mut self) -> Option<u64> {
        sooner(self.transactions.deadline(), sooner(self.proxy.deadline(), self.pings.deadline()))
    }

    pub fn answered(&mut self, now: Now, answer: Answer, out: &mut Outbox) {
        match answer {
            Answer::Written(results) => {
                for (ticket, result) in results {
                    self.written(ticket, result, out);
                }
            }
            Answer::Subscribers(results) => {
                for (ticket, result) in results {
                    self.go_on(now, ticket, Heard::Subscriber(result), out);
                }
            }
            Answer::Pings => self.pings.wake(now),
            Answer::Resolved { ticket, name, to } => {
                self.go_on(now, ticket, Heard::Name(name, to), out);
            }
        }
        self.hear_notices(now, out);
        self.show_busy();
    }

    /// A message with this token did not leave.
    pub fn unsent(&mut self, now: Now, token: u64, reason: &str, out: &mut Outbox) {
        self.transactions.failed(now, token, out, &mut self.events);
        self.run_events(now, reason, out);
        self.hear_notices(now, out);
        self.show_busy();
    }

    pub fn cut_off(&mut self, now: Now, token: u64, out: &mut Outbox) {
        self.transactions.cut_off(now, token, out, &mut self.events);
        self.run_events(now, "connection lost", out);
        self.hear_notices(now, out);
        self.show_busy();
    }

    pub fn unreachable(&mut self, now: Now, to: SocketAddr, quoted: &[u8], out: &mut Outbox) {
        if self.transactions.unreachable(now, to, quoted, out, &mut self.events) {
            self.run_events(now, "unreachable (ICMP error)", out);
            self.hear_notices(now, out);
            self.show_busy();
        }
    }

    pub fn closed(&self, flow: Flow) {
        self.shared.flows.closed(flow);
    }

    pub fn export(&mut self, now: Now, bucket: u8) -> Vec<Moved> {
        let moves = |b: u8| b == bucket;
        // Before the transactions: those of requests that wait are forgotten, not moved.
        let waiting = self.take_waiting(now, bucket);
        let contexts = self.proxy.export(now, moves);
        let transactions = self.transactions.export(now, moves);
        let logged = self.call_log.export(bucket);
        let is_any = !contexts.is_empty() || !transactions.is_empty() || !logged.is_empty();
        let calls = is_any.then_some(Moved::Calls { contexts, transactions, logged });
        self.show_busy();
        calls.into_iter().chain(waiting).collect()
    }

    pub fn import(&mut self, now: Now, record: Moved, out: &mut Outbox) {
        match record {
            Moved::Calls { contexts, transactions, logged } => {
                self.call_log.import(logged);
                let moved = self.proxy.import(now, contexts);
                let user = |record: &Record| moved.user(record).unwrap_or(TransactionUser::NONE);
                let ids = self.transactions.import_all(now, transactions, user);
                self.proxy.settle(&moved, &ids);
            }
            Moved::Waiting { bytes, arrival, progress: Some(progress) } => {
                self.go_on_here(now, &arrival, &bytes, progress, out);
            }
            Moved::Waiting { bytes, arrival, progress: None } => self.take_in(now, &arrival, &bytes, out),
        }
        self.show_busy();
    }
}

impl Engine {
    pub fn new(now: Now, shared: Arc<Shared>, number: usize, circumstances: Circumstances) -> Self {
        let config = &shared.config;
        let entropy = Entropy::new(shared.seed).derive(&(number as u64).to_le_bytes());
        let words = |label: &[u8]| {
            let mut same = Entropy::new(shared.seed).derive(label);
            [same.u64(), same.u64()]
        };
        let mut transactions = Transactions::new(config.timer_settings(), words(b"transactions"));
        transactions.set_limit(config.limits.transactions);
        transactions.set_most_kept(config.kept_memory());
        let proxy = Proxy::new(shared.router.clone(), config.proxy_settings(), entropy.derive(b"proxy"));
        let registrar = Registrar::new(config.registrar_settings());
        let mut engine = Self {
            number,
            transactions,
            router: shared.router.clone(),
            proxy,
            registrar,
            entropy,
            circumstances,
            effects: Vec::new(),
            written: None,
            found: None,
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
            call_log: CallLog::default(),
            contacts: Default::default(),
            local_addresses: LocalAddresses::new(config.dns.cache_entries),
            aor: Vec::new(),
            lines: Vec::new(),
            reply_lines: Vec::new(),
            most_transactions: 0,
            gives_left: 0,
            gave_back: 0,
            shared,
        };
        engine.divide_bounds();
        if number == 0 && engine.shared.location.gauges().bindings > 0 {
            engine.pings.wake(now);
        }
        engine
    }
}
