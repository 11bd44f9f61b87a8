//! The process of a server: tokio, shards, sockets, names, database and files around the engines of `strowger-server`.
//!
//! [`Server::start`] makes shards of a [`strowger_config::Config`]; each owns a [`shard::Shard`], which gives its engine what comes and
//! carries out what it wants.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod identity;
mod removal;
mod routes;
mod server;
mod settings;
pub mod shard;
mod store;
mod upkeep;

use anyhow::Context;
use std::sync::OnceLock;

pub use server::{Program, Server};

/// From the system's source of randomness.
fn random<const N: usize>() -> anyhow::Result<[u8; N]> {
    use std::io::Read;
    static SOURCE: OnceLock<std::fs::File> = OnceLock::new();
    let mut source = match SOURCE.get() {
        Some(file) => file,
        None => SOURCE.get_or_init(|| std::fs::File::open("/dev/urandom").expect("every Linux has /dev/urandom")),
    };
    let mut bytes = [0; N];
    source.read_exact(&mut bytes).context("no randomness from /dev/urandom")?;
    Ok(bytes)
}
