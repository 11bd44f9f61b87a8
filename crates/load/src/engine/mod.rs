//! Running calls: a [`strowger_net::Service`] for each shard.
//!
//! [`Run`](run::Run) holds the settings of a run. [`Script`](script::Script) is a scenario whose texts are prepared for
//! that run; the shards share it. [`Traffic`](traffic::Traffic) is the service of one shard.

mod circuits;
mod free_places;
pub mod helper;
pub mod pace;
pub mod run;
pub mod script;
pub mod sipp_stats;
pub mod socket_plan;
mod sockets;
mod stall_detector;
mod suspension;
pub mod traffic;
pub mod watch;

mod abort;
mod action;
mod bound;
mod buffer_pool;
mod call;
mod call_runner;
mod call_socket;
mod call_table;
mod chance;
mod command;
mod credentials;
mod data;
mod dead;
mod late;
mod leaving;
mod message_pool;
pub(crate) mod moment;
mod received_message;
mod render;
mod routes;
mod shard_context;
mod step_matching;
mod text;

pub use circuits::Circuits;
pub use shard_context::Halt;
