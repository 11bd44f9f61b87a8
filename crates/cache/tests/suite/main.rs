//! Behaviours that cross files.

mod behaviour;
mod bounds;
mod eviction;
mod log;
mod log_damage;
mod log_failures;
mod log_kill;
mod model;
mod references;
mod threads;
mod tickets;
