//! The process of a server: tokio, shards, sockets, names, database and files around the engines of `strowger-server`.
//!
//! The one rule of use: a [`Server`] runs on threads of its own, beside those of its caller. [`Server::stop`] ends it at once;
//! [`Server::drain`] lets calls end first.
//!
//! [`Server::start`] makes shards of a [`strowger_config::Config`]; each owns a [`shard::Shard`], which gives its engine what comes and
//! carries out what it wants.
//!
//! # A server for a test
//!
//! ```
//! use std::net::UdpSocket;
//! use strowger_config::{Config, Source};
//! use strowger_node::Server;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let folder = tempfile::tempdir()?;
//! // It writes nothing but its secret, into that folder.
//! let text = "listen = [\"udp:127.0.0.1:0\"]\n\
//!             domains = [\"example.org\"]\n\
//!             registrar.durability = \"none\"\n\
//!             store.database = \"memory\"";
//! let (config, _) = Config::read(Source { text, folder: folder.path(), ..Source::default() }).expect("it is right");
//! let server = Server::start(config)?;
//!
//! let (server_address, phone) = (server.addresses()[0], UdpSocket::bind("127.0.0.1:0")?);
//! let options = format!(
//!     "OPTIONS sip:{server_address} SIP/2.0\r\nVia: SIP/2.0/UDP {};branch=z9hG4bK1\r\nMax-Forwards: 70\r\n\
//!      From: <sip:alice@example.org>;tag=a\r\nTo: <sip:{server_address}>\r\nCall-ID: 1\r\nCSeq: 1 OPTIONS\r\n\r\n",
//!     phone.local_addr()?
//! );
//! phone.send_to(options.as_bytes(), server_address)?;
//! let mut answer = [0; 2_000];
//! let length = phone.recv(&mut answer)?;
//! assert!(answer[..length].starts_with(b"SIP/2.0 200 "));
//! server.stop();
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod backends;
mod caches;
pub mod control;
mod data_sets;
mod directory;
mod health;
mod http;
mod http_connections;
mod identity;
mod kept;
mod lease;
mod machine;
pub mod metrics;
mod named_users;
pub mod offline;
mod policy_thread;
pub mod preflight;
mod reload;
mod removal;
mod routes;
mod server;
mod settings;
pub mod shard;
mod shared_counts;
mod store;
pub mod supervisor;
mod upkeep;

use anyhow::Context;
use std::sync::OnceLock;

pub use directory::server_settings;
pub use health::Health;
pub use lease::Leases;
pub use policy_thread::PolicyThread;
pub use reload::Refusal;
pub use server::{Program, Server};
pub use strowger_backend::sql::lease::Claim;

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
