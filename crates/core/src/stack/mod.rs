//! Stack of one shard: transactions, timers, outbox, and the one path from received bytes to the owner of the message.
//!
//! [`Stack::receive`] reads a message, completes its top Via, checks its mandatory header fields, finds its transaction and returns an
//! [`Incoming`]. Several *roles* share the stack. A transaction belongs to one role ([`TransactionUser`](crate::transaction::TransactionUser)),
//! and the role gets its requests, responses and events:
//!
//! | role | gets | by |
//! |---|---|---|
//! | shard | each new request: it answers, or gives the request to a role | [`Incoming::Request`], [`Incoming::Full`], [`Received::Unread`] |
//! | [`Proxy`] | a request to be forwarded, with its server transaction | [`Proxy::forward`] |
//! | | the ACK of a 2xx, to be forwarded | [`Proxy::forward_ack`] |
//! | | the CANCEL of a forwarded INVITE; the shard answers the CANCEL | [`Proxy::cancel`] |
//! | | a response of a branch: [`Role::Proxy`] and the response context | [`Proxy::response`] |
//! | | an event of its transactions; a timer | [`Proxy::event`], [`Proxy::poll`] |
//! | [`UserAgent`] | a new request, also one that was suspended, with its server transaction | [`UserAgent::take_request`] |
//! | | the ACK of its 2xx: [`UserAgent::owns`] the dialog | [`UserAgent::take_ack`] |
//! | | a CANCEL and the INVITE, with both server transactions; the agent answers both | [`UserAgent::take_cancel`] |
//! | | a response to an own request: [`Role::UserAgent`] | [`UserAgent::take_response`] |
//! | | an event of its transactions; a timer | [`UserAgent::transaction_event`], [`UserAgent::poll`] |
//! | suspended request | the event that a 100 is due: [`Role::Suspended`] and its ticket | [`Event::TryingDue`] |
//! | | its answer; then it may be given to another role, which becomes the user of its transaction | the functions of that role |
//! | ping of a flow | its final response: [`Role::Ping`] and a number; nothing more is of use | [`Transactions::terminate`] |
//! | | the event that there is none | [`Event::Timeout`], [`Event::ClientTransportError`] |
//!
//! A shard whose policy has steps between reading and matching (a request is held back, or needs no transaction) takes the two halves of
//! the path apart: [`Reader::read`], then [`Stack::place`] or [`Transactions::response`].
//!
//! # Two roles on one stack
//!
//! Calls for `echo` end here; other requests are forwarded to the address in their Request-URI.
//!
//! ```
//! use std::sync::Arc;
//! use strowger_core::call::BucketSet;
//! use strowger_core::entropy::Entropy;
//! use strowger_core::proxy::{Candidate, Plan, Proxy, ProxySettings};
//! use strowger_core::routing::{Identity, ListenerAddress, NextHop, Request, Router};
//! use strowger_core::stack::{Incoming, Reading, Received, Role, Stack};
//! use strowger_core::timer::TimerSettings;
//! use strowger_core::transaction::ServerId;
//! use strowger_core::user_agent::{Ending, Event, UserAgent, UserAgentSettings};
//! use strowger_core::{Arrival, ListenerId, Now, Outbox, Round, Transport};
//! use strowger_message::respond;
//!
//! struct Shard {
//!     stack: Stack,
//!     proxy: Proxy,
//!     agent: UserAgent,
//! }
//!
//! impl Shard {
//!     /// Gives a received message to its role.
//!     fn receive(&mut self, now: Now, from: &str, text: &str, out: &mut Outbox) {
//!         let remote = from.parse().expect("an address");
//!         let arrival = Arrival { transport: Transport::Udp, listener: ListenerId(0), remote, flow: None };
//!         let Self { stack, proxy, agent } = self;
//!         let (received, incoming, mut round) = stack.receive(now, &arrival, text.as_bytes(), out);
//!         match (&received, incoming) {
//!             (Received::Request(request), Incoming::Request(server)) => {
//!                 let is_own = agent.owns(request.call_id, request.to_tag, request.from_tag);
//!                 if is_own || request.uri.sip().is_some_and(|uri| uri.user == Some(b"echo")) {
//!                     agent.take_request(&mut round, request, server);
//!                 } else {
//!                     forward(proxy, &mut round, request, server);
//!                 }
//!             }
//!             (Received::Request(request), Incoming::Ack) => {
//!                 if agent.owns(request.call_id, request.to_tag, request.from_tag) {
//!                     agent.take_ack(&mut round, request);
//!                 } else {
//!                     forward_ack(proxy, &mut round, request);
//!                 }
//!             }
//!             (Received::Request(request), Incoming::Cancel { cancel, invite }) => {
//!                 match invite.map(|invite| (invite, round.tx.user(invite).role())) {
//!                     Some((invite, Role::Proxy(_))) => {
//!                         answer(&mut round, request, cancel, 200);
//!                         proxy.cancel(&mut round, invite, &request.message);
//!                     }
//!                     _ => agent.take_cancel(&mut round, request, cancel, invite),
//!                 }
//!             }
//!             (Received::Response(response), Incoming::Response { id, tu, after_final }) => match tu.role() {
//!                 Role::Proxy(context) => proxy.response(&mut round, context, response, &arrival, id),
//!                 Role::UserAgent(_) => agent.take_response(&mut round, &arrival, response, id, tu, after_final),
//!                 Role::Suspended(_) | Role::Ping(_) | Role::None => (),
//!             },
//!             _ => (),
//!         }
//!     }
//!
//!     /// Runs the timers, and gives each event to its role.
//!     fn poll(&mut self, now: Now, out: &mut Outbox) {
//!         self.stack.poll(now, out);
//!         while let Some(event) = self.stack.event() {
//!             let round = &mut self.stack.round(now, out);
//!             match event.user().role() {
//!                 Role::Proxy(context) => self.proxy.event(round, context, &event),
//!                 Role::UserAgent(_) => self.agent.transaction_event(round, &event),
//!                 Role::Suspended(_) | Role::Ping(_) | Role::None => (),
//!             }
//!         }
//!         self.proxy.poll(&mut self.stack.round(now, out));
//!         self.agent.poll(&mut self.stack.round(now, out));
//!     }
//! }
//!
//! fn forward(proxy: &mut Proxy, round: &mut Round<'_>, request: &Request<'_>, server: ServerId) {
//!     let routing = proxy.router().route(round.now, request);
//!     let NextHop::Known(target) = proxy.router().next_hop(&routing.next(), request.arrival.listener) else {
//!         return answer(round, request, server, 404);
//!     };
//!     let candidates = [Candidate { targets: &[target], ..Candidate::default() }];
//!     proxy.forward(round, request, &routing, server, &candidates, &Plan::default());
//! }
//!
//! fn forward_ack(proxy: &mut Proxy, round: &mut Round<'_>, ack: &Request<'_>) {
//!     let routing = proxy.router().route(round.now, ack);
//!     if let NextHop::Known(target) = proxy.router().next_hop(&routing.next(), ack.arrival.listener) {
//!         let candidate = Candidate { targets: &[target], ..Candidate::default() };
//!         proxy.forward_ack(round, ack, &routing, &candidate);
//!     }
//! }
//!
//! fn answer(round: &mut Round<'_>, request: &Request<'_>, server: ServerId, status: u16) {
//!     let start = round.out.start();
//!     respond(&request.message, status, None, Some(b"shard"), &mut round.out.bytes).finish(b"");
//!     round.tx.respond(round.now, server, status, start..round.out.bytes.len(), round.out);
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let listener = ListenerAddress {
//!     transport: Transport::Udp,
//!     bound: "192.0.2.9:5060".parse()?,
//!     sent_by: b"192.0.2.9:5060"[..].into(),
//!     network: 0,
//! };
//! let identity = Arc::new(Identity::new(vec![listener], [""; 0], &[]));
//! // Secrets, keys and seeds are random in a server.
//! let router = Arc::new(Router::new(identity.clone(), b"a secret of this server", 86_400));
//! let (settings, entropy) = (UserAgentSettings::default(), Entropy::new([7; 32]));
//! let mut shard = Shard {
//!     stack: Stack::new(TimerSettings::default(), [1, 2], Reading::new(3)),
//!     proxy: Proxy::new(router, ProxySettings::default(), entropy.derive(b"proxy")),
//!     agent: UserAgent::new(identity, settings, entropy, 3, BucketSet::ALL),
//! };
//! let (now, mut out) = (Now { mono: 0, wall: 1_700_000_000_000 }, Outbox::new());
//! let request = |method: &str, uri: &str, branch: &str, cseq: u32| {
//!     format!(
//!         "{method} {uri} SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.1:5060;branch=z9hG4bK{branch}\r\nMax-Forwards: 70\r\n\
//!          From: <sip:alice@example.org>;tag=a\r\nTo: <{uri}>\r\nCall-ID: {branch}\r\nCSeq: {cseq} {method}\r\n\
//!          Contact: <sip:alice@192.0.2.1>\r\nContent-Length: 0\r\n\r\n"
//!     )
//! };
//! let sent = |out: &mut Outbox| -> Vec<String> {
//!     let text = |range| String::from_utf8_lossy(&out.bytes[range]).into_owned();
//!     let sent = out.sends().iter().map(|send| text(send.range())).collect();
//!     out.clear();
//!     sent
//! };
//!
//! // The user agent takes a call for `echo`, answers its CANCEL, and repeats its 487 itself.
//! shard.receive(now, "192.0.2.1:5060", &request("INVITE", "sip:echo@192.0.2.9", "1", 1), &mut out);
//! assert!(sent(&mut out)[0].starts_with("SIP/2.0 100 Trying\r\n"));
//! assert!(matches!(shard.agent.event(), Some(Event::Invited { .. })));
//! shard.receive(now, "192.0.2.1:5060", &request("CANCEL", "sip:echo@192.0.2.9", "1", 1), &mut out);
//! let answers = sent(&mut out);
//! assert!(answers[0].starts_with("SIP/2.0 200 OK\r\n") && answers[1].starts_with("SIP/2.0 487 "));
//! assert!(matches!(shard.agent.event(), Some(Event::Ended { by: Ending::Cancelled, .. })));
//!
//! // The proxy forwards a call for another address, and the CANCEL after its first provisional response.
//! shard.receive(now, "192.0.2.1:5060", &request("INVITE", "sip:bob@192.0.2.2", "2", 1), &mut out);
//! let forwarded = sent(&mut out).remove(0);
//! assert!(forwarded.starts_with("INVITE sip:bob@192.0.2.2 SIP/2.0\r\n") && shard.agent.event().is_none());
//! let ringing = forwarded.replacen("INVITE sip:bob@192.0.2.2 SIP/2.0", "SIP/2.0 180 Ringing", 1);
//! shard.receive(now, "192.0.2.2:5060", &ringing, &mut out);
//! assert!(sent(&mut out)[0].starts_with("SIP/2.0 180 Ringing\r\n"));
//! shard.receive(now, "192.0.2.1:5060", &request("CANCEL", "sip:bob@192.0.2.2", "2", 1), &mut out);
//! let messages = sent(&mut out);
//! assert!(messages[0].starts_with("SIP/2.0 200 OK\r\n") && messages[1].starts_with("CANCEL sip:bob@192.0.2.2 "));
//! assert_eq!((shard.proxy.contexts(), shard.agent.calls()), (1, 0));
//!
//! // Each INVITE ends by the timers of its transactions.
//! shard.poll(Now { mono: 200_000, ..now }, &mut out);
//! # Ok(())
//! # }
//! ```
//!
//! [`Proxy`]: crate::proxy::Proxy
//! [`Proxy::forward`]: crate::proxy::Proxy::forward
//! [`Proxy::forward_ack`]: crate::proxy::Proxy::forward_ack
//! [`Proxy::cancel`]: crate::proxy::Proxy::cancel
//! [`Proxy::response`]: crate::proxy::Proxy::response
//! [`Proxy::event`]: crate::proxy::Proxy::event
//! [`Proxy::poll`]: crate::proxy::Proxy::poll
//! [`UserAgent`]: crate::user_agent::UserAgent
//! [`UserAgent::owns`]: crate::user_agent::UserAgent::owns
//! [`UserAgent::take_request`]: crate::user_agent::UserAgent::take_request
//! [`UserAgent::take_ack`]: crate::user_agent::UserAgent::take_ack
//! [`UserAgent::take_cancel`]: crate::user_agent::UserAgent::take_cancel
//! [`UserAgent::take_response`]: crate::user_agent::UserAgent::take_response
//! [`UserAgent::transaction_event`]: crate::user_agent::UserAgent::transaction_event
//! [`UserAgent::poll`]: crate::user_agent::UserAgent::poll

mod reader;

pub use crate::transaction::{Event, Incoming, Role, Transactions};
pub use reader::{Reader, Reading, Received, Unread};

use crate::routing::Request;
use crate::timer::TimerSettings;
use crate::{Arrival, Now, Outbox, Round, via};
use std::net::SocketAddr;

/// Transactions of one shard, their events, and the receive path.
#[derive(Debug)]
pub struct Stack {
    /// Transactions of all roles.
    pub transactions: Transactions,
    /// Settings of new messages.
    pub reading: Reading,
    /// None while it is lent.
    reader: Option<Box<Reader>>,
    events: Vec<Event>,
    /// Number of events that were taken of `events`.
    taken: usize,
}

impl Stack {
    /// Creates a stack. `key`: secret of the transaction keys, the same in every shard of the process.
    pub fn new(timers: TimerSettings, key: [u64; 2], reading: Reading) -> Self {
        let transactions = Transactions::new(timers, key);
        Self { transactions, reading, reader: None, events: Vec::new(), taken: 0 }
    }

    /// Lends the stack to a role for one piece of work.
    pub fn round<'a>(&'a mut self, now: Now, out: &'a mut Outbox) -> Round<'a> {
        Round { now, tx: &mut self.transactions, out }
    }

    /// Receives a whole message: reads it and finds its owner. Returns the message, the owner, and the round in which the owner handles it.
    /// Responses of a new transaction go where the top Via says ([`via::reply_target`]). For [`Received::Unread`] the owner is
    /// [`Incoming::Unmatched`].
    pub fn receive<'a>(
        &'a mut self,
        now: Now,
        arrival: &'a Arrival,
        bytes: &'a [u8],
        out: &'a mut Outbox,
    ) -> (Received<'a>, Incoming, Round<'a>) {
        let Self { transactions, reading, reader, .. } = self;
        let received = reader.get_or_insert_default().read(arrival, bytes, reading);
        let incoming = match &received {
            Received::Request(request) => {
                let incoming = place(transactions, now, request, out);
                if let Incoming::Request(server) | Incoming::Cancel { cancel: server, .. } = incoming {
                    transactions.set_reply(server, via::reply_target(&request.mandatory.via, arrival));
                }
                incoming
            }
            Received::Response(response) => transactions.response(now, response, out),
            Received::Unread(_) => Incoming::Unmatched,
        };
        (received, incoming, Round { now, tx: transactions, out })
    }

    /// Finds the owner of a request that was read; a new one gets a server transaction. Second half of [`Stack::receive`].
    #[inline]
    pub fn place(&mut self, now: Now, request: &Request<'_>, out: &mut Outbox) -> Incoming {
        place(&mut self.transactions, now, request, out)
    }

    /// Lends the reader, for a shard that needs the whole stack while it handles the message.
    pub fn lend_reader(&mut self) -> Box<Reader> {
        self.reader.take().unwrap_or_default()
    }

    /// Takes the reader back.
    pub fn return_reader(&mut self, reader: Box<Reader>) {
        self.reader = Some(reader);
    }

    /// Runs the due timers of the transactions ([`Transactions::poll`]).
    pub fn poll(&mut self, now: Now, out: &mut Outbox) {
        self.transactions.poll(now, out, &mut self.events);
    }

    /// Handles a failure to send the messages with this token ([`Transactions::failed`]).
    pub fn failed(&mut self, now: Now, token: u64, out: &mut Outbox) {
        self.transactions.failed(now, token, out, &mut self.events);
    }

    /// Handles the end of the connection that carried the messages with this token ([`Transactions::cut_off`]).
    pub fn cut_off(&mut self, now: Now, token: u64, out: &mut Outbox) {
        self.transactions.cut_off(now, token, out, &mut self.events);
    }

    /// Handles an ICMP error ([`Transactions::unreachable`]). Returns true if it is believed.
    pub fn unreachable(&mut self, now: Now, to: SocketAddr, quoted: &[u8], out: &mut Outbox) -> bool {
        self.transactions.unreachable(now, to, quoted, out, &mut self.events)
    }

    /// Takes the next event for the role of its transaction ([`Event::user`]). Take all events after each call that may cause some.
    #[inline]
    pub fn event(&mut self) -> Option<Event> {
        let event = self.events.get(self.taken).copied();
        match event {
            Some(_) => self.taken += 1,
            None => {
                self.events.clear();
                self.taken = 0;
            }
        }
        event
    }
}

fn place(transactions: &mut Transactions, now: Now, request: &Request<'_>, out: &mut Outbox) -> Incoming {
    transactions.request(now, &request.message, request.arrival, request.call_hash, out)
}
