//! The server's decisions: authentication, registrar and routing put together, without I/O.
//!
//! [`shared::Shared`] is made of a [`strowger_config::Config`] and of what surrounds the server; each shard has an
//! [`engine::Engine`], which takes every message of its calls: requests by way of authentication, registrar and routing to the proxy of
//! `core`, responses back through its transactions.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod acknowledgement;
mod address;
mod authentication;
mod authorization;
pub mod ban;
mod call_log;
mod contacts;
pub mod counters;
pub mod engine;
mod flows;
mod forwarding;
mod handling;
mod identity;
mod line_rate;
pub mod local_address;
mod own_name;
mod ping;
pub mod policy;
pub mod question;
mod reachability;
mod refusals;
mod registration;
mod registration_log;
mod reply;
mod routing;
pub mod shared;
mod stage;
mod suspended;
mod tally;
mod upkeep;
