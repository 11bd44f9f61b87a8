//! Stateful proxy of RFC 3261 section 16, without I/O.
//!
//! The user of the proxy (a server) receives a request, asks [`Router::route`] for the target that the Route headers
//! and the Request-URI of the request name, decides by its own policy where the request may go, finds the targets
//! (locations, DNS) and calls [`Proxy::forward`]. From there on the proxy handles responses, time-outs and CANCEL.
//!
//! In this program a request from 192.0.2.1 is forwarded by a proxy at 192.0.2.9 to 192.0.2.2, and its response is sent
//! back:
//!
//! ```
//! use std::sync::Arc;
//! use strowger_core::entropy::Entropy;
//! use strowger_core::proxy::{Candidate, Plan, Proxy, ProxySettings};
//! use strowger_core::routing::{Identity, ListenerAddress, NextHop, Request, Router};
//! use strowger_core::timer::TimerSettings;
//! use strowger_core::transaction::{Incoming, Role, Transactions};
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
//! // A request arrives and creates a server transaction. (Before this, a server completes the top Via: `via::complete`.)
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
//! let Incoming::Request(server) = transactions.request(now, &message, &arrival, call_hash, &mut out) else {
//!     panic!("it comes for the first time")
//! };
//!
//! // The Request-URI names the target; a server could choose another one.
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
//! // The next hop answers. The transaction names its user: the proxy, and the id of the response context.
//! index.parse(&forwarded, &Limits::default())?;
//! let mut ok = Vec::new();
//! respond(&Message::new(&forwarded, &index), 200, None, Some(b"2"), &mut ok).finish(b"");
//! index.parse(&ok, &Limits::default())?;
//! let response = Message::new(&ok, &index);
//! let Incoming::Response { id, tu, .. } = transactions.response(now, &response, &mut out) else {
//!     panic!("the transaction waits for it")
//! };
//! let Role::Proxy(context) = tu.role() else { panic!("it was forwarded by a proxy") };
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
mod outgoing_request;
mod owned_plan;
mod plan;
mod report;
mod response;
mod response_context;
mod udp_only;
mod upstream_response;

pub use failed_target::{FailedTarget, TargetFailure};
pub use moves::{ContextRecord, MovedContexts};
pub use plan::{FailurePlan, Plan, Remedy, TryNext};
pub use report::{Choice, Question, Report};
pub use response_context::{Candidate, Rerouting, may_be_removed};
pub use udp_only::UdpOnly;
pub use upstream_response::ResponseSender;

use crate::Round;
use crate::entropy::Entropy;
use crate::notice::NoticeEvent;
use crate::routing::Router;
use crate::slots::{Id, Slots};
use crate::timer::sooner;
use crate::transaction::{Event, Role, ServerId};
use response_context::ResponseContext;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use strowger_message::{Edit, Index, Message, Name};

/// Settings of the forwarding by a proxy.
#[derive(Clone, Debug)]
pub struct ProxySettings {
    /// Max-Forwards of a request that has none (section 16.6 step 3). Default 70.
    pub max_forwards: u8,
    /// Size in bytes above which a request is sent by TCP, and by UDP if TCP fails or takes too long (section 18.1.1).
    /// Default 1300.
    pub tcp_above: Option<usize>,
    /// Carries the real address of a device in its Contact (see [`contact_repair`](crate::routing::contact_repair)). Default yes.
    pub contact_repair: bool,
    /// Parallel branches of one request; a lower Max-Breadth of the request prevails (RFC 5393 section 5.3.3). Default 60.
    pub max_breadth: u16,
    /// Total number of branches of one request, including those of its copies that return to this server. Default 64.
    pub max_branches: u16,
    /// Bytes of memory that one request may occupy: the request and its targets, while further targets wait, and the
    /// copy sent to each target. For a large request fewer candidates are tried at once, and for a request larger than
    /// a third of this setting only the first candidate. While branches without a response occupy the memory, no
    /// further target is tried. Default 65,536.
    pub request_memory: usize,
    /// Realms whose credentials are removed before a request goes on (section 22.3).
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

/// Policy of the requests that are forwarded while the policy is set. Each request keeps the policy until its last
/// response.
#[derive(Debug)]
pub struct Policy {
    /// Names and keys of this server.
    pub router: Arc<Router>,
    /// Limits and changes of forwarded requests.
    pub settings: ProxySettings,
}

/// The proxy core of one shard.
#[derive(Debug)]
pub struct Proxy {
    /// Policy of new requests; while an earlier request is handled, the policy of that request.
    policy: Arc<Policy>,
    entropy: Entropy,
    contexts: Slots<ResponseContext>,
    /// Response contexts without a final response.
    unanswered: usize,
    /// End of the ring time of groups while other groups wait, with the response context. Timers of answered calls
    /// remain until then and are ignored.
    fork_timers: BinaryHeap<Reverse<(u64, u64)>>,
    /// [`Now::mono`](crate::Now::mono) of the next release of spare memory.
    tidy_at: Option<u64>,
    /// Reports since the user took them last.
    reports: Vec<Report>,
    /// Failed targets since the user took them last.
    failed_targets: Vec<FailedTarget>,
    /// Peers to which large requests go by UDP.
    udp_only: Arc<UdpOnly>,
    /// Reason of the CANCEL to a branch that lost (RFC 3326 section 3.1).
    completed_elsewhere: Arc<[u8]>,
    edit: Edit,
    index: Index,
}

/// Ring time of a further address after the time of its group is over, in milliseconds.
const LAST_FORK_TIME: u64 = 5_000;

/// Milliseconds between two releases of spare memory.
const TIDY: u64 = 1_000;

impl Proxy {
    /// Creates the proxy of a shard. `entropy`: generator of only this shard.
    pub fn new(router: Arc<Router>, settings: ProxySettings, entropy: Entropy) -> Self {
        Self {
            policy: Arc::new(Policy { router, settings }),
            entropy,
            contexts: Slots::new(),
            unanswered: 0,
            fork_timers: BinaryHeap::new(),
            tidy_at: None,
            reports: Vec::new(),
            failed_targets: Vec::new(),
            udp_only: Arc::default(),
            completed_elsewhere: Arc::from(&b"Reason: SIP;cause=200;text=\"Call completed elsewhere\"\r\n"[..]),
            edit: Edit::new(),
            index: Index::new(),
        }
    }

    /// Shares a table of peers without TCP with the proxies of other shards. To be called before the first request is
    /// forwarded.
    pub fn set_udp_only(&mut self, table: Arc<UdpOnly>) {
        self.udp_only = table;
    }

    /// Returns the router of new requests.
    pub fn router(&self) -> &Arc<Router> {
        &self.policy.router
    }

    /// Returns the settings of new requests.
    pub fn settings(&self) -> &ProxySettings {
        &self.policy.settings
    }

    /// Returns the policy of new requests.
    pub fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// Sets the policy of new requests; forwarded requests keep their policy. Returns the previous policy. Each request
    /// changes the reference count of the policy, so a policy per shard avoids a cache line shared between shards.
    pub fn set_policy(&mut self, policy: Arc<Policy>) -> Arc<Policy> {
        std::mem::replace(&mut self.policy, policy)
    }

    /// Runs `work` under the policy with which the request of a context was forwarded.
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

    /// Returns the number of requests with a live transaction.
    pub fn contexts(&self) -> usize {
        self.contexts.len()
    }

    /// Returns the number of forwarded requests without a final response.
    pub fn unanswered(&self) -> usize {
        self.unanswered
    }

    /// Handles a CANCEL for the INVITE of this server transaction (section 16.10): cancels each branch without a final
    /// response, with the same Reason; the 487 of a branch is sent upstream. Returns false if the request was not
    /// forwarded (yet).
    pub fn cancel(&mut self, round: &mut Round<'_>, invite: ServerId, cancel: &Message<'_>) -> bool {
        let Role::Proxy(id) = round.tx.user(invite).role() else { return false };
        self.by_its_policy(id, |proxy| proxy.cancel_context(round, id, invite, cancel))
    }

    /// Cancels all requests with this [`Plan::context`] that have no final response. The function visits every response
    /// context.
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

    /// Ends the search for targets of a request and cancels its branches.
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

    /// Returns the [`Plan::context`] of the request of this response context; 0 if the request has no context, or the
    /// response context was removed.
    pub fn user_of(&self, context: Id) -> u64 {
        self.contexts.get(context).map_or(0, |context| context.user)
    }

    /// Handles an event of a transaction of this response context.
    pub fn event(&mut self, round: &mut Round<'_>, context: Id, event: &Event) {
        self.by_its_policy(context, |proxy| proxy.context_event(round, context, event));
    }

    fn context_event(&mut self, round: &mut Round<'_>, context: Id, event: &Event) {
        match *event {
            Event::Timeout { id, .. } => self.branch_failed(round, context, id, 408),
            Event::ClientTransportError { id, .. } => self.branch_failed(round, context, id, 503),
            // Section 16.8: the branch has sent a provisional response, so it can be cancelled.
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

    /// Returns the latest moment for the next [`Proxy::poll`].
    pub fn deadline(&mut self) -> Option<u64> {
        sooner(self.tidy_at, self.first_fork_timer())
    }

    /// Returns the first end of a wait for a ringing group or a target without a response. Drops timers of requests
    /// that no longer wait, because most requests are answered long before.
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

    /// Cancels groups of candidates whose ring time is over, so that the next group is tried (section 16.7 step 5).
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

    /// Sets the end of the ring time of the current group, if another group waits for it.
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
        // Until the last branch has answered its CANCEL, a branch may be tried at its next address, where it rings for
        // a short time only.
        if rings(self) {
            self.start_fork_timer(id, round.now.mono + LAST_FORK_TIME);
        }
    }
}

/// Id of no transaction.
const GONE: ServerId = ServerId::from_u64(0);
