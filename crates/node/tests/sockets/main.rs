//! Server in this process, with sockets, threads and a database: drain, restart, stuck shards, ICMP, removed users. Phones are UDP sockets on
//! loopback. Decisions are tested by crates/server/tests/policy.

mod drain;
mod gone;
mod health;
mod orders;
mod removal;
mod restart;
mod site;
mod unreachable;
