//! Tests with the world that measure no time: they run at once with one another.

mod algorithms;
mod attacks_log;
mod attacks_open_relay;
mod attacks_passwords;
mod attacks_reflection;
mod attacks_relay;
mod attacks_smuggling;
mod commands;
pub(crate) mod config;
mod connections;
mod digest;
mod events;
mod examples;
mod flood;
mod forwarding;
mod fuzz;
mod in_dialog;
mod keys;
mod library_examples;
mod logging;
mod operation;
mod process_end;
mod proxy_rules;
mod refusals;
mod strict_reader;
mod supply_chain;
mod torture;
