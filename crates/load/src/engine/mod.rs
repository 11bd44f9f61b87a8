//! Running calls: a [`strowger_net::Service`] for each shard.
//!
//! [`Run`](run::Run) holds the settings of a run. [`Script`](script::Script) is a scenario whose texts are prepared for
//! that run; the shards share it. [`Traffic`](traffic::Traffic) is the service of one shard.

mod circuits;
pub mod ledger;
pub mod pace;
mod places;
mod presence;
pub mod run;
pub mod script;
pub mod sockets;
pub mod traffic;
pub mod watch;
pub mod wheel;

mod abort;
mod action;
mod bound;
mod call;
mod chance;
mod command;
mod credentials;
mod data;
mod dead;
mod desk;
mod incoming;
mod late;
mod leaving;
pub(crate) mod moment;
mod render;
mod routes;
mod shelf;
mod stage;
mod world;

pub use circuits::Circuits;
pub use world::Halt;
pub(crate) use world::Random;
