//! A simulated network around the engines of servers and the user agents of `strowger-core`: for tests.
//!
//! Hosts ([`agent::Agent`], [`server::ServerHost`]) are connected by a [`network::Network`] that loses, duplicates,
//! delays and reorders datagrams, and by [`connections::Connections`] that break. One clock jumps from event to event.
//! All randomness comes from one seed, so a failure replays: [`scene::run`]. The [`laws`] are checked after every step.
//! When no work is in progress any more, no transaction, stored message, timer or dialog may be left.
//!
//! ```
//! // Calls on a bad network, twice by one seed: both runs are equal, message by message.
//! strowger_sim::scene::run_twice(7)?;
//! # Ok::<(), String>(())
//! ```
//!
//! # Where is ...?
//!
//! | behaviour | file |
//! |---|---|
//! | simulation as a test; faults that it must find | `tests/tests/simulate.rs`; `tests/faults.toml` |
//! | rows of accounting on their way; a kill between them | `server/rows.rs`; `kept.rs` |
//! | ringing calls without an account; servers that count by one cache | `server/ringing.rs`; `counts.rs` |
//! | a gateway, phones and an account that wants to talk without a record | `billing.rs`; `billing/law.rs` |
//! | bridged calls with media, translator, outsider; what stays hidden | `bridged.rs`; `bridged/topology.rs`, `reach.rs`, `judge.rs` |

#![forbid(unsafe_code)]

pub mod agent;
pub mod billing;
pub mod bridged;
pub mod connections;
pub mod day;
pub mod laws;
mod log;
pub mod network;
pub mod node;
mod noise;
pub mod random;
pub mod scene;
pub mod server;
pub mod world;
mod written;
