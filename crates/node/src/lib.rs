//! The process of a server: runtime, shards, sockets, names, database and files around the engines of `strowger-server`.
//!
//! The one rule of use: a [`Server`] runs on its own threads, separate from those of its caller. [`Server::stop`] ends it at once;
//! [`Server::drain`] lets calls end first.
//!
//! [`Server::start`] starts the shards of a [`strowger_config::Config`]; each has a [`shard::Shard`], which gives received messages to its
//! engine and carries out the effects.
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
//!
//! # Effects
//!
//! [`shard::Shard`] is the service of a network shard. It gives received messages with the time to the engine, and
//! carries out the effects of the engine when the call returns: names to resolve, questions to databases and caches,
//! rows of accounting, kept calls, aliases of connections, memory to return. The simulation runs the same engine, and
//! carries out the effects itself.
//!
//! # Reload
//!
//! Keys of the file are of two kinds: *fixed* ones, which a process has for life (addresses, threads, database, timers,
//! secret), and the policy. A reload reads the file again, keeps the values of fixed keys, and refuses a file that
//! contradicts these values, such as a file that removes the secret of a `control.listen` on an external address. All
//! steps that may fail are done first: the file is checked, certificates are loaded, name servers are opened. Then the
//! compiled policy replaces the earlier policy as a whole.
//!
//! One thread makes and frees all policies; no shard does. The allocator keeps separate memory for each thread: if one
//! thread made a policy with 100,000 prefixes and another thread freed it, a part of its memory would stay allocated
//! each time. That thread also serializes changes; the thread of signals never waits for a change. Rows of data sets
//! are fetched by threads of their own, then the policy thread builds the sets. Sets with equal entries are shared by
//! policies. A server does not start without the rows of a set; a running one keeps the earlier rows.
//!
//! `make test-reload` runs the tests of all keys on servers that got their policy by a reload.
//!
//! # Questions from outside
//!
//! HTTP (`/metrics`, `/healthz`, `/readyz`) and the control socket are served by the runtime next to the shards, each
//! with bounds for connections, bytes and time. A list of registrations is made in slices of 64 bindings, so a look-up
//! waits for one slice at most. All shards are woken periodically. A shard that then completes no round is stuck; only
//! this makes `/healthz` and the watchdog of systemd report a failure.
//!
//! # Where is ...?
//!
//! | behaviour | file |
//! |---|---|
//! | type of a server; graceful shutdown | `server.rs`, `Server`, `drain`; `program.rs`, `Program` |
//! | effects of the engine | `shard.rs`, `Shard` |
//! | calls that ports of media and descriptors carry | `media_capacity.rs`, `MediaCapacity` |
//! | reload; bindings of a renamed domain | `reload.rs`; `running.rs`; `renaming.rs`, `rename_bindings` |
//! | thread of policies and data sets | `policy_thread.rs` |
//! | data sets, their sources, refresh | `data_sets.rs`; `data_sets/sources.rs`; `refresh.rs` |
//! | explain without a running server | `offline.rs` |
//! | `/metrics`, `/healthz`, `/readyz` | `http.rs`; `health.rs`, `stuck` |
//! | metrics put together on request; their tables; with labels | `metrics.rs`; `metrics/tables.rs`; `metrics/labelled.rs` |
//! | orders of `strowger status` and others, also by HTTP | `control/order.rs`; `execution.rs`; `http_routes.rs`; `http.rs`; `openapi.rs` |
//! | orders about calls, limits, caches, accounting | `control/calls.rs`; `limits.rs`; `caches.rs`; `accounting.rs` |
//! | readiness, watchdog and sockets of systemd | `supervisor.rs` |
//! | addresses of the machine and of services; routes of the kernel | `machine.rs`; `service_addresses.rs`; `routes.rs` |
//! | names that peers must prove, for kept calls | `peer_names.rs` |
//! | checks of the files that a configuration names | `preflight.rs`; `preflight/certificates.rs`; `files.rs`; `sounds.rs`; `recordings.rs`; `machine.rs` |
//! | caches of the configuration | `caches.rs` |
//! | calls of the previous process | `kept.rs` |
//! | counts that servers share | `shared_counts.rs` |
//! | leases of a shared database | `lease.rs`, `Leases` |
//! | algorithms that a table lacks | `directory.rs`, `fit` |
//! | removed users; unknown users in rules | `removal.rs`; `named_users.rs`, `NamedUsers` |

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod authorities;
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
mod media;
mod media_capacity;
pub mod metrics;
mod named_users;
pub mod offline;
mod peer_names;
mod policy_thread;
pub mod preflight;
mod program;
mod reload;
mod removal;
mod renaming;
mod routes;
mod running;
mod server;
mod service_addresses;
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
pub use media_capacity::MediaCapacity;
pub use policy_thread::PolicyThread;
pub use program::Program;
pub use reload::Refusal;
pub use server::Server;
pub use strowger_backend::sql::lease::Claim;

/// Reads from the random source of the system.
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
