//! The engine of the server: authentication, registrar, rules, routing and calls, without I/O.
//!
//! The one rule of use: an [`engine::Engine`] decides, and its owner acts. After each call of the engine, the owner sends the messages in the
//! [`Outbox`](strowger_core::Outbox) and carries out the [effects](engine::Effect). It calls [`poll`](engine::Engine::poll) when the deadline has
//! passed, and gives each engine the messages of its own calls, in their order.
//!
//! [`process_state::ProcessState`] holds the compiled [`strowger_config::Config`] and the state that all shards share. Each shard has an
//! [`engine::Engine`]: requests pass authentication, registrar and routing to the proxy of `core`, responses return through its transactions.
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
//! use strowger_server::bounds::EngineBounds;
//! use strowger_server::engine::{ProcessStatus, Engine};
//! use strowger_server::local_address::OneWay;
//! use strowger_server::peer_names::NoNames;
//! use strowger_server::process_state::{ProcessState, ProcessContext};
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
//! let surroundings = ProcessContext {
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
//!     bounds: EngineBounds::default(),
//!     log_limiter: Arc::new(LogLimiter::new(config.log.refusals_per_minute, config.limits.ipv6_prefix)),
//!     routes: Box::new(OneWay),
//!     names: Arc::new(NoNames),
//! };
//! let now = Now { mono: 10_000, wall: 1_700_000_000_000 };
//! let shared = Arc::new(ProcessState::new(now, config, surroundings));
//! let mut engine = Engine::new(now, shared.clone(), 0, ProcessStatus { draining: false, shards: 1 });
//!
//! // Targets and texts of the messages that the engine sends for a received message.
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
//!
//! # Stages
//!
//! A request passes stages, each in a file of its own: `request_validation.rs`, `authorization.rs`, `rule_evaluation.rs` (rules), `destination_stage.rs`;
//! REGISTER has `registration.rs`, and an ACK for a 2xx `acknowledgement.rs`. A stage is a function of request, policy and answers: a
//! method of `Decider`, which reads the engine. It sends and stores nothing and returns a `Verdict`: next stage, reply, question, or destination. `Engine::advance` carries the verdict
//! out.
//!
//! # Waiting
//!
//! A stage that lacks an answer (subscriber, name, cache) asks with a ticket, and the request is *suspended*: its bytes
//! and progress go into a slot, and the shard works on other calls. The answer resumes the request at the same stage;
//! no earlier stage runs twice. Later messages of the same call and sender are held back up to a bound, copies are
//! absorbed. The caller gets no 100 before it has proved its identity, since a 100 would reveal which users are in the
//! cache.
//!
//! # Authentication
//!
//! Without credentials a request of a local user gets a challenge for each algorithm; the nonce is stored nowhere.
//! Before the user is looked up, the server verifies the key and the age of the nonce, over UDP also the source, and
//! that the Request-URI is that of the credentials. Afterwards the nonce count is entered into a table of the process,
//! so that each count is accepted once.
//!
//! # Calls
//!
//! Each shard has a table of its tracked and logged calls ([`strowger_calls`]), which gets the notices of the role that
//! carries them, and whose effects the engine carries out (`call_effects.rs`). The policy decides whether an INVITE
//! enters the table (`call_admission.rs`). Requests of the server within a dialog pass the stages as if a peer had sent
//! them. Rows and kept state become effects, which writer threads take.
//!
//! # Endpoints
//!
//! A rule may name an endpoint of this server, which answers the call itself. The user agent of `core` is a role of the
//! shard like the proxy: the engine gives it the messages of its dialogs and transactions (`engine/reading.rs`). Media
//! threads are outside: orders to them are effects, their events inputs, and free ports are lent to each shard in
//! advance.
//!
//! # Bridged calls
//!
//! A rule may bridge a call: the user agent has a call with the caller and makes one to the callee. It sends the INVITE of that *far* call
//! to this server ([`Target::LOOPBACK`](strowger_core::Target::LOOPBACK)), where the INVITE takes the way of every request from routing on, with
//! the proof and the decision of the *near* one (`far_leg.rs`); the responses come back in the same way (`engine/loopback.rs`). Later requests go to
//! the next hop of their dialog. The bridge of `core` joins both calls, a media session has the streams between them, and the table of calls has
//! one call with both Call-IDs.
//!
//! # Contacts
//!
//! A contact is reached by the connection of its REGISTER (a flow: node, process, shard, slot, generation), by the
//! source address of its REGISTER (NAT), by its Path or by its URI. A contact that is another local user is replaced by
//! the contacts of that user, and so is a user whom a rule names. A contact that leads to this server is refused at
//! REGISTER.
//!
//! # Policy
//!
//! A policy is a compiled configuration, an immutable snapshot. A shard takes a new one at the end of a round; requests
//! in progress keep their policy, so a policy exists until its last request has ended. Nonces, bans and log quotas
//! belong to the process and survive. Names of earlier listeners stay names of this server, because Routes of calls
//! have them.
//!
//! # Moves
//!
//! The state of a bucket moves to another shard as records, or as bytes to another process (`engine/moves.rs`). A request read from
//! bytes continues under the policy of its new engine, with the plan that it had. Answers about subscribers are not moved, since they
//! prove passwords: the stage asks again. A REGISTER whose bindings are being written belongs to no call; the process that writes them
//! answers it. The reader needs the secret, the seed and the `call_secret` of the writer, or its tables find nothing.
//!
//! # Where is ...?
//!
//! | behaviour | file |
//! |---|---|
//! | stages and their verdicts; the way through them | `stage.rs`, `Verdict`; `advance.rs` |
//! | calls that this server answers: role, beginning, events, orders | `endpoint.rs`, `ServerRole`; `endpoint/` |
//! | sound for the caller: echo, test tone, announcement; file of a recording | `endpoint/sound.rs`, `EndpointSound` |
//! | bridged calls of all shards: buckets of INVITEs with Replaces | `bridged_dialogs.rs`, `BridgedDialogs` |
//! | bridged calls: transfers; beginning, texts of the far INVITE, events, orders, moves | `bridge/transfer.rs`; `bridge.rs`, `Bridges`; `bridge/` |
//! | media sessions of a shard: ports, orders, events, log lines | `media_sessions.rs`, `MediaSession`; `media_sessions/` |
//! | calls with media over a restart, and at the end of the process | `anchored_calls.rs`, `take_over_media`, `end_unkept`; `endpoint/kept.rs`, `bridge/kept.rs`, `bridge/relocation.rs` |
//! | own responses: lines and reasons; writing | `reply.rs`, `Reply`; `response.rs`, `write_response` |
//! | unreadable requests | `engine/unread.rs` |
//! | requests refused in an overload, or because a queue is full; messages that pass | `engine/overload.rs`, `sheds`, `shed` |
//! | rights of a caller without a password in a dialog | `authorization.rs`, `authorize`; `reach.rs`, `may_name` |
//! | INVITEs that begin a call; requests within a dialog; removed users | `dialog_access.rs`; `removed_users.rs` |
//! | proof of a dialog at a bound | `dialog_access.rs`, `proves_dialog` |
//! | targets that a peer may name | `reach.rs`, `may_name` |
//! | hosts to which media go before one has sent | `media_reach.rs`, `may_send_media` |
//! | spelling of a user in credentials | `proof.rs`, `User`; `authentication.rs`, `account` |
//! | change of the bindings under the lock of their partition | `binding_change.rs`, `BindingChange` |
//! | credentials in a cache alone | `credentials.rs`; `registrant.rs` |
//! | bans, their end; failures by source and account | `ban.rs`, `lift`, `is_banned`; `failure_threshold.rs` |
//! | set-aside next hops | `target_quarantine.rs`; `engine/failed_targets.rs` |
//! | destination of a request | `destination.rs`, `Destination` |
//! | users as places of rules: ring group, hunt group, forward | `rule_target_addresses.rs`; `rule_target_forwarding.rs` |
//! | methods of a device | `methods.rs` |
//! | keeper of a flow: phone with Flow-Timer, edge proxy, pings | `outbound.rs`, `KEEPS_FLOW`; `ping.rs` |
//! | facts of a request for rules; decision | `request_facts.rs`, `RequestFacts`; `rule_evaluation.rs`, `decide`; `decision.rs`, `Decision`; `path_decision.rs` |
//! | failures of a rule; change of a number | `decision.rs`, `after_failure`, `change_user`; `call_notices.rs`, `consider` |
//! | gateway groups; limits at a place | `rule_targets.rs`; `claims.rs` |
//! | explain | `explain.rs`, `explain`; `explained.rs`, `Explained`; `rule_trace.rs`, `RuleResult`; `plan_view.rs`, `PlanView` |
//! | entry of a call into the table; its notices, its effects | `call_admission.rs`, `begin_call`; `call_notices.rs`; `call_effects.rs` |
//! | requests of the server within a dialog | `call_effects.rs`, `send_own` |
//! | far INVITE of a bridged call; messages of the server to itself | `far_leg.rs`, `FarLeg`; `engine/loopback.rs`, `take_looped` |
//! | settings of the table of calls, of shared counts; bounds without a key | `call_settings.rs`; `bounds.rs`, `EngineBounds` |
//! | accounted calls, refused ones | `accounting.rs`, `account_facts`, `account_refusal` |
//! | log of registrations and calls; of refusals | `registration_log.rs`; `call_log.rs`; `log_line_rate.rs`; `refusals.rs`, `refused_offer.rs` |
//! | listener at an address of several | `local_address.rs` |
//! | names that peers must prove | `peer_names.rs`, `PeerNames` |
//! | own name by look-up | `own_name.rs` |
//! | policy of a request; freed policies | `engine/policy.rs`; `process_state.rs`, `drop_retired` |
//! | moves of a bucket, also as bytes | `engine/moves.rs`, `export`, `export_bytes` |
//! | metrics of the engine; of gateways | `counters.rs`, `Messages`; `gateways.rs` |

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod accounting;
mod acknowledgement;
mod advance;
pub mod anchored_calls;
mod authentication;
mod authorization;
pub mod ban;
mod binding_change;
pub mod bounds;
pub mod bridge;
mod bridged_dialogs;
mod call_admission;
mod call_effects;
mod call_log;
mod call_notices;
pub mod call_settings;
mod claims;
mod contacts;
pub mod counters;
mod credentials;
mod decider;
mod decision;
mod destination;
mod destination_stage;
mod dialog_access;
mod edits;
mod effect;
mod emergency;
pub mod endpoint;
pub mod engine;
pub mod explain;
mod explained;
mod failure_threshold;
mod far_leg;
mod flows;
mod forwarding;
pub mod gateways;
mod handling;
mod identity;
pub mod local_address;
mod log_line_rate;
mod media_reach;
pub mod media_sessions;
mod methods;
mod number_translation;
mod outbound;
mod own_name;
mod path_decision;
pub mod peer_names;
mod ping;
mod plan_view;
pub mod policy;
pub mod process_state;
mod proof;
pub mod question;
mod reach;
mod reachability;
mod realm;
mod redirect;
mod refusals;
mod refused_offer;
mod registrant;
mod registration;
mod registration_log;
pub mod removed_users;
mod reply;
mod request_facts;
mod request_validation;
mod response;
mod role;
mod rule_evaluation;
mod rule_target_addresses;
mod rule_target_forwarding;
pub mod rule_targets;
mod rule_trace;
mod session_timer;
mod shard;
mod stage;
mod suspended;
pub mod target_quarantine;
mod upkeep;
mod user_lookup;
mod waiting;
