//! SIP state machines without I/O: transactions, dialogs, user agents, proxy, registrar, digest.
//!
//! The one rule of use: a machine reads no clock, opens no socket and draws no randomness. [`Now`], received bytes and entropy come in;
//! messages to send go out through the [`Outbox`]. So a server, a test and a simulation run the same machines, and can replay a run.
//!
//! | module | RFC 3261 | subject |
//! |---|---|---|
//! | [`stack`] | sections 17.1.3, 17.2.3, 18.2.1 | path from received bytes to the role that owns the message |
//! | [`transaction`] | section 17 | matching, retransmission, time-outs |
//! | [`dialog`] | section 12 | state that two user agents share |
//! | [`user_agent`] | sections 8, 10.2, 13 to 15 | calls, registrations and messages of thousands of phones |
//! | [`b2bua`] | RFC 3264 | calls joined in pairs: events, descriptions of both legs |
//! | [`routing`] | sections 16.3 to 16.6 | target of a request by its Routes, its Request-URI and our names |
//! | [`proxy`] | section 16 | forwarding, forking, choice of the response |
//! | [`registrar`] | section 10.3 | changes of bindings |
//! | [`digest`] | section 22 | challenges and credentials |
//! | [`via`] | section 18.2 | targets of responses |
//! | [`overload`] | section 21.5.4 | share of requests that is refused while messages wait too long |
//!
//! A shard has one [`stack::Stack`]. Its roles, proxy and user agent, borrow the transactions with the time and the outbox, as a [`Round`].
//!
//! # A phone registers
//!
//! This program runs both ends of a registration, on a simulated clock. The program in [`proxy`] sends a request
//! through a proxy.
//!
//! ```
//! use std::sync::Arc;
//! use strowger_core::entropy::Entropy;
//! use strowger_core::registrar::{RegisterOutcome, Registrar, RegistrarSettings};
//! use strowger_core::routing::{Identity, ListenerAddress};
//! use strowger_core::user_agent::{Endpoint, Event, Register, UserAgentSettings};
//! use strowger_core::{Arrival, ListenerId, Now, Outbox, Target, Transport};
//! use strowger_message::{Index, Limits, Message, respond};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // A user agent that listens at 192.0.2.1.
//! let phone = ListenerAddress {
//!     transport: Transport::Udp,
//!     bound: "192.0.2.1:5060".parse()?,
//!     sent_by: b"192.0.2.1:5060"[..].into(),
//!     network: 0,
//! };
//! let identity = Arc::new(Identity::new(vec![phone], [""; 0], &[]));
//! let mut phone = Endpoint::new(identity, UserAgentSettings::default(), Entropy::new([7; 32]), 1);
//!
//! // It registers for ten minutes: its REGISTER is in the outbox.
//! let (mut now, mut out) = (Now { mono: 0, wall: 1_700_000_000_000 }, Outbox::new());
//! let server = Target::new(Transport::Udp, ListenerId(0), "192.0.2.9:5060".parse()?);
//! let register = Register {
//!     aor: b"sip:alice@example.org",
//!     registrar: b"sip:example.org",
//!     routes: b"",
//!     target: server,
//!     account: None,
//!     expires: 600,
//!     headers: b"",
//! };
//! let (agent, mut round) = phone.lend(now, &mut out);
//! let registration = agent.register(&mut round, &register)?;
//! let [send] = out.sends() else { panic!("one message is to be sent") };
//! assert_eq!(send.target, server);
//! let request = out.bytes[send.range()].to_vec();
//! out.clear();
//!
//! // A registrar without a binding of alice decides to make one, and writes the lines of the 200.
//! let mut index = Index::new();
//! index.parse(&request, &Limits::default())?;
//! let request = Message::new(&request, &index);
//! let mut registrar = Registrar::new(RegistrarSettings::default());
//! assert_eq!(registrar.decide(now, &request, &[]), Ok(RegisterOutcome::Changed));
//! assert_eq!(registrar.upserts().len(), 1);
//! let mut ok = Vec::new();
//! let mut response = respond(&request, 200, None, Some(b"1928301774"), &mut ok);
//! registrar.write_ok(now, &request, &[], response.buffer());
//! response.finish(b"");
//!
//! // It arrives 20 ms later.
//! now.mono += 20;
//! let arrival = Arrival { transport: Transport::Udp, listener: ListenerId(0), remote: server.address, flow: None };
//! phone.receive(now, &arrival, &ok, &mut out);
//! assert_eq!(phone.agent.event(), Some(Event::Registered { registration, expires: 600 }));
//! assert!(out.is_empty());
//!
//! // When half of the ten minutes are over, the phone registers again.
//! while out.is_empty() {
//!     now.mono = phone.deadline().expect("it has a registration to keep up");
//!     phone.poll(now, &mut out);
//! }
//! assert_eq!(now.mono, 20 + 300_000);
//! assert!(out.bytes.starts_with(b"REGISTER sip:example.org SIP/2.0\r\n"));
//! # Ok(())
//! # }
//! ```
//!
//! # Transactions
//!
//! [`transaction::Transactions`] finds an entry by a keyed 128-bit hash of the matching fields. An entry takes 96 bytes, and one of
//! four state machines drives it: a function from state and event to the next state and a step. Each entry belongs to a transaction
//! user: a role (proxy, user agent, suspended request) and an id, in eight bytes.
//!
//! * *Timers* of one length are a first-in-first-out queue of 16 bytes an entry; a timer is stopped by forgetting its
//!   stamp. Retransmissions are exact. The ends of transactions are rounded up to 100 ms, so that many timers share a
//!   wake-up.
//! * *Copies*: a client transaction keeps its request in chained blocks until the response. Of a request that takes more memory than is
//!   admitted, it keeps the parts for ACK, CANCEL and a response alone, and sends it once.
//! * *Memory* of requests and long responses is charged to the source of the request; an IPv6 network is one source.
//! * *Reflection*: a UDP source that has proved nothing gets one response of at most three times the size of its
//!   request. After forwarding, each response of the callee is sent to such a source once; the 100, the final response
//!   and the retransmissions together have the same bound.
//! * *ICMP errors* can be forged. One ends a client transaction only if it quotes the branch of an unanswered request to that address.
//!
//! # Route tokens
//!
//! A route token in Record-Route proves that this server admitted a dialog. It covers the Call-ID, the tag of the party
//! to which requests are routed, the next Record-Route, the usage of the dialog, the account of its receiver and a hash
//! of the Contact; one keyed hash verifies all of these. A token is valid in one direction, gives access only to
//! addresses that the sender's own address reaches, and expires. A request without a valid token is treated as a
//! request outside of a dialog, even if it has a To tag. The decision about tokens and seals is
//! `docs/decisions/008-route-tokens-and-seals.md`.
//!
//! # Proxy
//!
//! A response context holds the server transaction and its branches. The candidates of the highest q are tried first,
//! then those of the next lower q, and so on. The addresses of a candidate are tried one after the other, failed
//! addresses last. Max-Breadth bounds simultaneous branches. The number of all branches is fixed when the request first
//! arrives, and each branch carries its share in the Via: contacts that lead back here cannot multiply requests. The
//! first 2xx cancels the other branches, each 2xx goes upstream, a 6xx ends the fork, and otherwise the best response
//! wins. Each ringing branch has its own Timer C.
//!
//! The plan of a request has its Record-Route, time-outs, the failures after which the next target is tried, and
//! whether the user of the proxy is asked before a failure is sent upstream. The proxy reports by notices ([`notice`]),
//! as every role that carries calls does: rang, answered, refused by which next hop, timed out, cancelled, no target
//! left, ended. Each bears the eight bytes that came with the request.
//!
//! # Records
//!
//! State moves between shards and processes as records: a version, the listeners and peers that the process knows by
//! number, then the fields as postcard writes them, with remaining milliseconds in place of moments. Records of each
//! version are in files beside their tests; if the format changes without a new version, these tests fail.
//!
//! # Where is ...?
//!
//! | behaviour | file |
//! |---|---|
//! | received message: read, completed, given to its role | `stack/reader.rs`, `read`; `stack/mod.rs`, `receive`, `place` |
//! | shard of a call: bucket of a Call-ID | `call.rs`, `bucket` |
//! | timers of a length | `timer.rs`, `TimerSettings` |
//! | reserve of known dialogs and emergency calls at a bound | `transaction/admission.rs`, `admit_within_dialog` |
//! | memory charged to a source | `transaction/dues.rs`; `charges.rs`; `source.rs` |
//! | bound of repeated responses to a source without proof | `transaction/allowance.rs` |
//! | large request kept in part | `transaction/abridged.rs` |
//! | ACK and CANCEL of a forwarded INVITE | `transaction/ack_cancel.rs` |
//! | To tag of own responses | `routing/own_tag.rs` |
//! | two calls joined: events of one leg, orders to the other | `b2bua/bridge/pair.rs`, `handle` |
//! | offers and answers of both legs; of an echo | `b2bua/negotiation/mod.rs`; `endpoint.rs`, `endpoint_answer` |
//! | payload types and version of a leg | `b2bua/negotiation/leg.rs`, `number`, `write` |
//! | names of this server, own Routes | `routing/identity.rs`, `domain_of`; `routing/route.rs`, `is_own` |
//! | listener for a next hop | `routing/identity.rs` |
//! | reach of an address; addresses of the machine | `routing/scope.rs`; `machine.rs` |
//! | steps of the wall clock | `routing/clock_steps.rs` |
//! | plan of a request, its failures | `proxy/plan.rs`, `FailurePlan` |
//! | notices about a call; questions of the proxy | `notice.rs`; `proxy/report.rs`, `Question` |
//! | failed targets | `proxy/failed_target.rs` |
//! | several gateways asked in turn | `proxy/response_context.rs`, `Asking` |
//! | moves to another shard | `proxy/moves.rs`; `user_agent/moves.rs`; `transaction/record.rs` |
//! | records in bytes, their version | `record.rs`, `VERSION` |
//! | share of requests that is refused in an overload; its steps and classes | `overload/mod.rs`, `RequestClass`; `overload/control.rs`, `OverloadControl` |
//! | rate limit of log lines | `log_limiter.rs`, `allow` |
//! | text of a peer in a log line | `shown.rs` |

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod b2bua;
mod base64;
pub mod call;
pub mod dialog;
pub mod digest;
pub mod entropy;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz_dialog;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz_negotiation;
mod hmac;
pub mod log_limiter;
mod message_store;
pub mod notice;
pub mod now;
pub mod outbox;
pub mod overload;
pub mod proxy;
pub mod record;
pub mod registrar;
mod round;
pub mod routing;
mod segments;
pub mod shown;
mod siphash;
pub mod slots;
pub mod source;
pub mod stack;
pub mod timer;
pub mod transaction;
pub mod transport;
pub mod user_agent;
pub mod via;

pub use now::Now;
pub use outbox::Outbox;
pub use round::Round;
pub use transport::{Arrival, Flow, ListenerId, PeerName, Target, Transport};
