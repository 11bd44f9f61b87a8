//! The parts put together: configuration, and the server that follows it.
//!
//! [`Server::start`] makes shards of a [`strowger_config::Config`]; each owns a [`shard::Shard`] with an engine, which takes every message of its calls:
//! requests by way of authentication, registrar and routing to the proxy of `core`, responses back through its transactions.

#![forbid(unsafe_code)]

mod asked;
mod authentication;
pub mod ban;
mod call_log;
mod contacts;
pub mod counters;
mod engine;
pub mod flows;
mod identity;
pub mod line_rate;
mod local_address;
mod node;
mod own_name;
mod parked;
mod ping;
mod reach;
mod refusals;
mod registration;
mod registration_log;
mod removal;
mod reply;
mod routing;
pub mod shard;
pub mod shared;
mod tally;

pub use node::{Program, Server};
