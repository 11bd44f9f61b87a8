//! Machines without I/O: transactions, dialogs, user agents, the proxy, the registrar, digest.
//!
//! The one rule of use: a machine reads no clock, opens no socket and draws no randomness. [`Now`], received
//! bytes and entropy come in; what is to be sent goes out through the [`Outbox`]. So a server, a test and a simulation run the very
//! same machines, and what happened once can be made to happen again.
//!
//! | module | RFC 3261 | what it decides |
//! |---|---|---|
//! | [`transaction`] | section 17 | which messages belong together, what is sent again, when to give up |
//! | [`dialog`] | section 12 | what two user agents remember of each other |
//! | [`user_agent`] | sections 8, 10.2, 13 to 15 | calls, registrations and messages, of thousands of telephones |
//! | [`routing`] | sections 16.3 to 16.6 | where a request goes, by itself and by our names |
//! | [`proxy`] | section 16 | forwarding, forking, and which response goes back |
//! | [`registrar`] | section 10.3 | what a REGISTER changes |
//! | [`digest`] | section 22 | challenges and credentials |
//! | [`via`] | section 18.2 | where responses go |
//!
//! Transactions are one table a shard, [`transaction::Transactions`]. Proxy and user agent are lent it for each thing that they do, with
//! the time and the outbox: a [`Round`].
//!
//! # A phone registers
//!
//! Both ends of a registration, on a clock of our own. [`proxy`] shows a request on its way through a proxy.
//!
//! ```
//! use std::sync::Arc;
//! use strowger_core::entropy::Entropy;
//! use strowger_core::registrar::{Outcome, Registrar, RegistrarSettings};
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
//! // It registers for ten minutes: its REGISTER stands in the outbox.
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
//! // A registrar that has no binding of alice yet decides to make one, and writes the lines of the 200.
//! let mut index = Index::new();
//! index.parse(&request, &Limits::default())?;
//! let request = Message::new(&request, &index);
//! let mut registrar = Registrar::new(RegistrarSettings::default());
//! assert_eq!(registrar.decide(now, &request, &[]), Ok(Outcome::Changed));
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

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod base64;
pub mod call;
pub mod dialog;
pub mod digest;
pub mod entropy;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz_dialog;
mod hmac;
pub mod log_limiter;
mod message_store;
pub mod now;
pub mod outbox;
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
pub mod timer;
pub mod transaction;
pub mod transport;
pub mod user_agent;
pub mod via;

pub use now::Now;
pub use outbox::Outbox;
pub use round::Round;
pub use transport::{Arrival, Flow, ListenerId, PeerName, Target, Transport};
