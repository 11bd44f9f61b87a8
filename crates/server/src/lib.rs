//! The server's decisions: authentication, registrar and routing put together, without I/O.
//!
//! The one rule of use: an [`engine::Engine`] decides, and its owner acts. Whenever a call of the engine returns, the owner sends what stands
//! in the [`Outbox`](strowger_core::Outbox) and carries out its [effects](engine::Effect); it calls [`poll`](engine::Engine::poll) when the deadline
//! has passed, and gives each engine the messages of its own calls, in their order.
//!
//! [`process_state::ProcessState`] is made of a [`strowger_config::Config`] and of what surrounds the server; each shard has an
//! [`engine::Engine`], which takes every message of its calls: requests by way of authentication, registrar and routing to the proxy of
//! `core`, responses back through its transactions.
//!
//! Bob registers at an engine, and a call from elsewhere reaches his phone:
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//! use strowger_config::{Config, Source};
//! use strowger_core::log_limiter::LogLimiter;
//! use strowger_core::routing::{Identity, ListenerAddress};
//! use strowger_core::{Arrival, ListenerId, Now, Outbox, Transport};
//! use strowger_server::engine::{Circumstances, Engine};
//! use strowger_server::local_address::OneWay;
//! use strowger_server::process_state::{ProcessState, Surroundings};
//! use strowger_store::location::LocationTable;
//!
//! let text = "listen = [\"udp:192.0.2.1:5060\"]\ndomains = [\"example.org\"]\nregistrar.authenticate = false\n";
//! let (config, _) = Config::read(Source { text, ..Source::default() })?;
//! let listener = ListenerAddress {
//!     transport: Transport::Udp,
//!     bound: "192.0.2.1:5060".parse()?,
//!     sent_by: b"192.0.2.1:5060".as_slice().into(),
//!     network: 0,
//! };
//! let surroundings = Surroundings {
//!     identity: Identity::new(vec![listener], ["example.org"], &[]),
//!     // Drawn at the start of a process; fixed here, so that each run of this is the same.
//!     secret: vec![7; 32],
//!     seed: [7; 32],
//!     call_secret: 7,
//!     process: 1,
//!     shards: 1,
//!     location: Arc::new(LocationTable::new(config.location_settings())),
//!     subscribers: None,
//!     credentials: None,
//!     log_limiter: Arc::new(LogLimiter::new(config.log.refusals_per_minute, config.limits.ipv6_prefix)),
//!     routes: Box::new(OneWay),
//! };
//! let now = Now { mono: 10_000, wall: 1_700_000_000_000 };
//! let shared = Arc::new(ProcessState::new(now, config, surroundings));
//! let mut engine = Engine::new(now, shared.clone(), 0, Circumstances { draining: false, shards: 1 });
//!
//! // What the engine sends when this comes from there: to whom, and its text.
//! let mut receive = |from: &str, text: &str| -> Result<Vec<_>, std::net::AddrParseError> {
//!     let arrival = Arrival { transport: Transport::Udp, listener: ListenerId(0), remote: from.parse()?, flow: None };
//!     let mut out = Outbox::new();
//!     engine.receive(now, &arrival, text.as_bytes(), &mut out);
//!     let text = |range| String::from_utf8_lossy(&out.bytes[range]).into_owned();
//!     Ok(out.sends().iter().map(|send| (send.target.address.to_string(), text(send.range()))).collect())
//! };
//!
//! let sent = receive(
//!     "198.51.100.8:5060",
//!     "REGISTER sip:example.org SIP/2.0\r\nVia: SIP/2.0/UDP 198.51.100.8:5060;branch=z9hG4bK1;rport\r\n\
//!      From: <sip:bob@example.org>;tag=b\r\nTo: <sip:bob@example.org>\r\nCall-ID: r\r\nCSeq: 1 REGISTER\r\n\
//!      Contact: <sip:bob@198.51.100.8:5060>\r\nExpires: 600\r\nContent-Length: 0\r\n\r\n",
//! )?;
//! assert!(sent[0].1.starts_with("SIP/2.0 200 OK\r\n"));
//! assert_eq!(shared.counts().registrations, 1);
//!
//! let sent = receive(
//!     "203.0.113.5:5060",
//!     "INVITE sip:bob@example.org SIP/2.0\r\nVia: SIP/2.0/UDP 203.0.113.5:5060;branch=z9hG4bK2;rport\r\n\
//!      Max-Forwards: 70\r\nFrom: <sip:carol@example.com>;tag=c\r\nTo: <sip:bob@example.org>\r\nCall-ID: i\r\n\
//!      CSeq: 1 INVITE\r\nContact: <sip:carol@203.0.113.5:5060>\r\nContent-Length: 0\r\n\r\n",
//! )?;
//! assert!(sent[0].0 == "203.0.113.5:5060" && sent[0].1.starts_with("SIP/2.0 100 Trying\r\n"));
//! assert!(sent[1].0 == "198.51.100.8:5060" && sent[1].1.starts_with("INVITE sip:bob@198.51.100.8:5060 SIP/2.0\r\n"));
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod account_text;
mod accounting;
mod acknowledgement;
mod address;
mod authentication;
mod authorization;
pub mod ban;
pub mod call_limits;
mod call_log;
pub mod calls;
mod consultation;
mod contacts;
pub mod counters;
mod credentials;
mod decision;
mod dialog_access;
mod emergency;
mod ended_calls;
pub mod engine;
mod existence;
pub mod explain;
mod flows;
mod forwarding;
pub mod gateways;
mod handling;
mod identity;
mod judgement;
mod line_rate;
pub mod local_address;
mod methods;
mod own_name;
mod ping;
mod place_forwarding;
mod place_targets;
pub mod places;
mod plan_view;
pub mod policy;
pub mod process_state;
pub mod question;
mod reach;
mod reachability;
mod realm;
mod redirect;
mod refusals;
mod registration;
mod registration_log;
pub mod removed_users;
mod reply;
mod request_facts;
mod routing;
mod session_timer;
pub mod set_aside;
pub mod shared_counts;
mod stage;
mod suspended;
mod tally;
mod upkeep;
mod user_edit;
