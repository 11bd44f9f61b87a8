//! The parts put together: configuration, and the server that follows it.

pub mod config;
