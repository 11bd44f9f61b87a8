//! A simulated network around the engines of servers and the user agents of `strowger-core`: for tests.
//!
//! Hosts ([`agent::Agent`], [`server::ServerHost`]) stand around a [`network::Network`] that loses, doubles, delays and reorders, and
//! [`connections::Connections`] that break, under one clock that jumps from event to event. Everything comes from one seed, so a failure
//! replays: [`scene::run`]. After every step what must always hold is checked ([`laws`]), and when nothing is under way any more, that
//! nothing is left: no transaction, no kept byte, no timer, no dialog.

#![forbid(unsafe_code)]

pub mod agent;
pub mod billing;
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
