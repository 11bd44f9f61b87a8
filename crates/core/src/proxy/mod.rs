//! The stateful proxy of RFC 3261 section 16, without I/O.
//!
//! Its user (a server) receives a request, asks [`Router::route`] what the request's Route headers and
//! Request-URI say, decides by its own policy where it may go, finds the targets (locations, DNS) and calls
//! [`Proxy::forward`]. From there on responses, time-outs and CANCEL are handled here.
//!
//! A request from 192.0.2.1 through a proxy at 192.0.2.9 to 192.0.2.2, and its response:
//!
//! ```
//! use std::sync::Arc;
//! use strowger_core::entropy::Entropy;
//! use strowger_core::proxy::{Candidate, Plan, Proxy, ProxySettings};
//! use strowger_core::routing::{Identity, ListenerAddress, NextHop, Request, Router};
//! use strowger_core::timer::TimerSettings;
//! use strowger_core::transaction::{Incoming, Outgoing, Role, Transactions};
//! use strowger_core::{Arrival, ListenerId, Now, Outbox, Round, Transport, call};
//! use strowger_message::{Index, Limits, Message, respond};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let listener = ListenerAddress {
//!     transport: Transport::Udp,
//!     bound: "192.0.2.9:5060".parse()?,
//!     sent_by: b"192.0.2.9:5060"[..].into(),
//!     network: 0,
//! };
//! let identity = Arc::new(Identity::new(vec![listener], ["example.org"], &[]));
//! // The secret, the keys and the seed are random in a server.
//! let router = Router::new(identity, b"a secret of this server", 86_400);
//! let mut proxy = Proxy::new(Arc::new(router), ProxySettings::default(), Entropy::new([7; 32]));
//! let mut transactions = Transactions::new(TimerSettings::default(), [1, 2]);
//! let (now, mut out) = (Now { mono: 0, wall: 1_700_000_000_000 }, Outbox::new());
//! let from = |remote: &str| {
//!     let remote = remote.parse().expect("an address");
//!     Arrival { transport: Transport::Udp, listener: ListenerId(0), remote, flow: None }
//! };
//!
//! // A request comes, and makes a server transaction. (Before that a server completes its top Via: `via::complete`.)
//! let bytes = b"OPTIONS sip:bob@192.0.2.2 SIP/2.0\r\n\
//!     Via: SIP/2.0/UDP 192.0.2.1:5060;branch=z9hG4bKnashds8\r\n\
//!     From: <sip:alice@example.org>;tag=1\r\nTo: <sip:bob@example.org>\r\n\
//!     Call-ID: a84b4c76e66710\r\nCSeq: 1 OPTIONS\r\nMax-Forwards: 70\r\nContent-Length: 0\r\n\r\n";
//! let mut index = Index::new();
//! index.parse(bytes, &Limits::default())?;
//! let message = Message::new(bytes, &index);
//! let call_hash = call::hash(3, message.call_id()?.text);
//! let arrival = from("192.0.2.1:5060");
//! let request = Request::of(message, &arrival, call_hash)?;
//! let Incoming::New(server) = transactions.request(now, &message, &arrival, call_hash, &mut out) else {
//!     panic!("it comes for the first time")
//! };
//!
//! // It says itself where it goes; it might be led elsewhere.
//! let routing = proxy.router().route(now, &request);
//! let NextHop::Known(target) = proxy.router().next_hop(&routing.next(), arrival.listener) else {
//!     panic!("its Request-URI has an address")
//! };
//! let candidates = [Candidate { targets: &[target], ..Candidate::default() }];
//! let mut round = Round { now, tx: &mut transactions, out: &mut out };
//! proxy.forward(&mut round, &request, &routing, server, &candidates, &Plan::default());
//! let [send] = out.sends() else { panic!("one message is to be sent") };
//! assert_eq!(send.target.address, "192.0.2.2:5060".parse()?);
//! let forwarded = out.bytes[send.range()].to_vec();
//! assert!(forwarded.starts_with(b"OPTIONS sip:bob@192.0.2.2 SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.9:5060;"));
//! out.clear();
//!
//! // The next hop answers. The transaction knows that it was the proxy's, and what the proxy called it.
//! index.parse(&forwarded, &Limits::default())?;
//! let mut ok = Vec::new();
//! respond(&Message::new(&forwarded, &index), 200, None, Some(b"2"), &mut ok).finish(b"");
//! index.parse(&ok, &Limits::default())?;
//! let response = Message::new(&ok, &index);
//! let Outgoing::Deliver { id, tu, .. } = transactions.response(now, &response, &mut out) else {
//!     panic!("the transaction waits for it")
//! };
//! let context = tu.id(Role::Proxy).expect("a request that was forwarded");
//! let mut round = Round { now, tx: &mut transactions, out: &mut out };
//! proxy.response(&mut round, context, &response, &from("192.0.2.2:5060"), id);
//! let [send] = out.sends() else { panic!("one message is to be sent") };
//! assert_eq!(send.target.address, arrival.remote);
//! assert!(out.bytes[send.range()].starts_with(b"SIP/2.0 200 OK\r\nVia: SIP/2.0/UDP 192.0.2.1:5060;branch=z9hG4bKnashds8\r\n"));
//! # Ok(())
//! # }
//! ```

mod best;
mod contact;
mod failed_target;
mod forward;
mod moves;
mod notice;
mod outgoing_request;
mod plan;
mod response;
mod response_context;
mod udp_only;
mod upstream_response;

pub use failed_target::{FailedTarget, TargetFailure};
pub use moves::{ContextRecord, MovedContexts};
pub use notice::{Notice, NoticeEvent};
pub use plan::{FailurePlan, Plan, Remedy, TryNext};
pub use response_context::{Candidate, Rerouting, may_be_removed};
pub use udp_only::UdpOnly;

use crate::Round;
use crate::entropy::Entropy;
use crate::routing::Router;
use crate::slots::{Id, Slots};
use crate::timer::sooner;
use crate::transaction::{Event, Role, ServerId};
use response_context::ResponseContext;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use strowger_message::{Edit, Index, Message, Name};

/// How a proxy treats what it forwards.
#[derive(Clone, Debug)]
pub struct ProxySettings {
    /// Written when a request has no Max-Forwards (section 16.6 step 3). Default 70.
    pub max_forwards: u8,
    /// Requests larger than so many bytes go by TCP, and by UDP if that fails or is not there soon (section 18.1.1).
    pub tcp_above: Option<usize>,
    /// Carry a device's real address in its Contact (see [`contact_repair`](crate::routing::contact_repair)).
    pub contact_repair: bool,
    /// Branches that one request may have in parallel: what it says itself if that is less (RFC 5393 section 5.3.3). Default 60.
    pub max_breadth: u16,
    /// Branches that one request may have in all, also where its contacts lead it back to us. Default 64.
    pub max_branches: u16,
    /// Memory that one request may have kept at once: itself and its targets, while there are further ones, and what was sent to each.
    /// Of a large one fewer candidates are tried at once, of one larger than a third of this the first alone; and where others are
    /// silent and still kept, none. Default 65,536.
    pub request_memory: usize,
    /// Realms whose credentials are taken off before a request goes on (section 22.3).
    pub realms: Vec<Box<[u8]>>,
}

impl Default for ProxySettings {
    fn default() -> Self {
        Self {
            max_forwards: 70,
            tcp_above: Some(1300),
            contact_repair: true,
            max_breadth: 60,
            max_branches: 64,
            request_memory: 65_536,
            realms: Vec::new(),
        }
    }
}

/// What a request is forwarded by, to its last response.
#[derive(Debug)]
pub struct Policy {
    /// Names and keys of this server.
    pub router: Arc<Router>,
    /// Limits, and what is changed on the way.
    pub settings: ProxySettings,
}

/// The proxy core of one shard.
#[derive(Debug)]
pub struct Proxy {
    /// That of new requests; while one that came before is looked at, its own.
    policy: Arc<Policy>,
    entropy: Entropy,
    contexts: Slots<ResponseContext>,
    /// Response contexts without a final response.
    unanswered: usize,
    /// Groups of candidates that ring while others wait: until when, and of which context. Those of calls that went on
    /// otherwise stay until then and mean nothing.
    fork_timers: BinaryHeap<Reverse<(u64, u64)>>,
    /// [`Now::mono`] of the next giving back of memory.
    tidy_at: Option<u64>,
    /// Since the user took them last.
    notices: Vec<Notice>,
    /// The same of targets that failed.
    failed_targets: Vec<FailedTarget>,
    /// Peers to which large requests go by UDP.
    udp_only: Arc<UdpOnly>,
    /// The Reason that goes with the CANCEL of a branch that lost (RFC 3326 section 3.1).
    completed_elsewhere: Arc<[u8]>,
    edit: Edit,
    index: Index,
}

/// How long one more address of a group may ring whose time is over, in milliseconds.
const LAST_FORK_TIME: u64 = 5_000;

/// How often memory is given back, in milliseconds.
const TIDY: u64 = 1_000;

impl Proxy {
    /// `entropy` is this shard's own.
    pub fn new(router: Arc<Router>, settings: ProxySettings, entropy: Entropy) -> Self {
        Self {
            policy: Arc::new(Policy { router, settings }),
            entropy,
            contexts: Slots::new(),
            unanswered: 0,
            fork_timers: BinaryHeap::new(),
            tidy_at: None,
            notices: Vec::new(),
            failed_targets: Vec::new(),
            udp_only: Arc::default(),
            completed_elsewhere: Arc::from(&b"Reason: SIP;cause=200;text=\"Call completed elsewhere\"\r\n"[..]),
            edit: Edit::new(),
            index: Index::new(),
        }
    }

    /// Shares a table of peers without TCP with the proxies of other shards. Before it forwards anything.
    pub fn set_udp_only(&mut self, table: Arc<UdpOnly>) {
        self.udp_only = table;
    }

    /// That of new requests.
    pub fn router(&self) -> &Arc<Router> {
        &self.policy.router
    }

    /// Those of new requests.
    pub fn settings(&self) -> &ProxySettings {
        &self.policy.settings
    }

    /// That of new requests.
    pub fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// Requests are forwarded by this from now on; those that were forwarded keep theirs. Gives back what held before. A count of
    /// references is touched for each request: a policy of this shard's own shares that with no other.
    pub fn set_policy(&mut self, policy: Arc<Policy>) -> Arc<Policy> {
        std::mem::replace(&mut self.policy, policy)
    }

    /// Does this by the policy with which the request of a context was forwarded.
    #[inline]
    fn by_its_policy<T>(&mut self, id: Id, work: impl FnOnce(&mut Self) -> T) -> T {
        let its = self.contexts.get(id).and_then(|context| context.policy.as_ref());
        match its.filter(|its| !Arc::ptr_eq(its, &self.policy)).cloned() {
            None => work(self),
            Some(its) => {
                let newer = self.set_policy(its);
                let result = work(self);
                self.policy = newer;
                result
            }
        }
    }

    /// Requests with a transaction that still lives.
    pub fn contexts(&self) -> usize {
        self.contexts.len()
    }

    /// Requests that went out and have no final response yet.
    pub fn unanswered(&self) -> usize {
        self.unanswered
    }

    /// A CANCEL for the INVITE whose server transaction this is (section 16.10): every branch without a
    /// final response is cancelled for the same Reason, their 487 goes upstream. False: the request was not forwarded (yet).
    pub fn cancel(&mut self, round: &mut Round<'_>, invite: ServerId, cancel: &Message<'_>) -> bool {
        let Some(id) = round.tx.user(invite).id(Role::Proxy) else { return false };
        self.by_its_policy(id, |proxy| proxy.cancel_context(round, id, invite, cancel))
    }

    /// Ends requests with this [`Plan::context`] that have no final response, as their senders' CANCELs would. It looks at every request.
    pub fn cancel_all(&mut self, round: &mut Round<'_>, context: u64) {
        let is_meant = |entry: &ResponseContext| entry.user == context && !entry.answered && !entry.cancelled;
        let ids: Vec<Id> = self.contexts.iter().filter(|(_, entry)| is_meant(entry)).map(|(id, _)| id).collect();
        for id in ids {
            self.by_its_policy(id, |proxy| proxy.give_up(round, id, None));
        }
    }

    fn cancel_context(&mut self, round: &mut Round<'_>, id: Id, invite: ServerId, cancel: &Message<'_>) -> bool {
        let Some(context) = self.contexts.get_mut(id) else { return false };
        if context.server != invite {
            return false;
        }
        let mut lines = Vec::new();
        for value in cancel.headers(Name::Reason) {
            for part in [b"Reason: ", value, b"\r\n"] {
                lines.extend_from_slice(part);
            }
        }
        let lines = (!lines.is_empty()).then(|| Arc::from(lines));
        self.give_up(round, id, lines.as_ref());
        true
    }

    /// A request is tried no further: its branches are cancelled.
    fn give_up(&mut self, round: &mut Round<'_>, id: Id, lines: Option<&Arc<[u8]>>) {
        let Some(context) = self.contexts.get_mut(id) else { return };
        context.cancelled = true;
        let is_asking = context.pending.as_ref().is_some_and(|pending| pending.asking.is_any());
        self.notice(id, NoticeEvent::Cancelled);
        if is_asking {
            return self.answer_locally(round, id, 487);
        }
        if let Some(context) = self.contexts.get_mut(id) {
            context.pending = None;
        }
        self.cancel_branches(round, id, lines);
    }

    fn cancel_branches(&mut self, round: &mut Round<'_>, id: Id, lines: Option<&Arc<[u8]>>) {
        let Some(context) = self.contexts.get_mut(id) else { return };
        if !context.invite {
            return;
        }
        for branch in std::iter::once(&context.first).chain(context.others.iter().flat_map(|o| o.iter())) {
            if let (Some(client), ..200) = (branch.client, branch.status) {
                round.tx.cancel(round.now, client, lines, round.out);
            }
        }
    }

    /// The [`Plan::context`] of the request of this response context; 0: it has none, or is gone.
    pub fn user_of(&self, context: Id) -> u64 {
        self.contexts.get(context).map_or(0, |context| context.user)
    }

    /// What a transaction of the response context with this id had to say.
    pub fn event(&mut self, round: &mut Round<'_>, context: Id, event: &Event) {
        self.by_its_policy(context, |proxy| proxy.context_event(round, context, event));
    }

    fn context_event(&mut self, round: &mut Round<'_>, context: Id, event: &Event) {
        match *event {
            Event::Timeout { id, .. } => self.branch_failed(round, context, id, 408),
            Event::ClientTransportError { id, .. } => self.branch_failed(round, context, id, 503),
            // Section 16.8: it rings, so it can be cancelled.
            Event::TimerC { id, .. } => {
                if let Some(context) = self.contexts.get_mut(context) {
                    context.time_out(Some(id));
                }
                round.tx.cancel(round.now, id, None, round.out);
            }
            Event::TryingDue { id, .. } => self.trying(round, context, id),
            Event::ServerEnded { .. } | Event::ClientEnded { .. } => self.transaction_ended(context),
            _ => (),
        }
    }

    fn transaction_ended(&mut self, id: Id) {
        let Some(context) = self.contexts.get_mut(id) else { return };
        context.live = context.live.saturating_sub(1);
        if context.live == 0 {
            if !context.answered {
                self.unanswered -= 1;
                self.notice(id, NoticeEvent::Abandoned);
            }
            self.notice(id, NoticeEvent::Ended);
            self.contexts.remove(id);
        }
    }

    /// When [`Proxy::poll`] must be called at the latest.
    pub fn deadline(&mut self) -> Option<u64> {
        sooner(self.tidy_at, self.first_fork_timer())
    }

    /// When the first request ends its waiting for a group or a silent target. Those go that are waited for no longer: most requests are
    /// answered long before.
    fn first_fork_timer(&mut self) -> Option<u64> {
        while let Some(&Reverse((until, id))) = self.fork_timers.peek() {
            let waits = |context: &ResponseContext| [context.silent_until(), context.ring_end()].contains(&Some(until));
            if self.contexts.get(Id::from_u64(id)).is_some_and(waits) {
                return Some(until);
            }
            self.fork_timers.pop();
        }
        None
    }

    /// A group of candidates that has rung long enough is cancelled, so that the next one gets its turn (section 16.7 step 5).
    pub fn poll(&mut self, round: &mut Round<'_>) {
        if self.tidy_at.is_some_and(|at| at <= round.now.mono) {
            if self.contexts.is_empty() {
                self.fork_timers = BinaryHeap::new();
            }
            let more = self.contexts.tidy();
            self.tidy_at = (more || !self.contexts.is_empty()).then_some(round.now.mono + TIDY);
        }
        self.end_fork_timers(round);
    }

    /// Gives the group that rings now so much time, if another one waits for its end.
    fn start_fork_timer(&mut self, id: Id, until: u64) {
        let Some(context) = self.contexts.get_mut(id) else { return };
        if let Some(pending) = &mut context.pending {
            pending.until = until;
        }
        if context.ring_end().is_some() {
            self.fork_timers.push(Reverse((until, id.to_u64())));
        }
    }

    fn end_fork_timers(&mut self, round: &mut Round<'_>) {
        while let Some(&Reverse((until, id))) =
            self.fork_timers.peek().filter(|Reverse((until, _))| *until <= round.now.mono)
        {
            self.fork_timers.pop();
            let id = Id::from_u64(id);
            self.by_its_policy(id, |proxy| proxy.end_fork_timer(round, id, until));
        }
    }

    fn end_fork_timer(&mut self, round: &mut Round<'_>, id: Id, until: u64) {
        if self.contexts.get(id).and_then(ResponseContext::silent_until) == Some(until) {
            self.end_silence(round, id);
        }
        let rings = |proxy: &Self| proxy.contexts.get(id).and_then(ResponseContext::ring_end) == Some(until);
        if !rings(self) {
            return;
        }
        if self.contexts.get(id).and_then(|c| c.pending.as_ref()).is_some_and(|pending| pending.asking.is_any()) {
            self.finish(round, id);
            return;
        }
        if let Some(context) = self.contexts.get_mut(id) {
            context.time_out(None);
        }
        self.cancel_branches(round, id, None);
        self.silent_branches_failed(round, id);
        // Until the last has answered its CANCEL one of them may be tried at its next address: it is not to ring for long.
        if rings(self) {
            self.start_fork_timer(id, round.now.mono + LAST_FORK_TIME);
        }
    }
}

/// No transaction has this id.
const GONE: ServerId = ServerId::from_u64(0);
