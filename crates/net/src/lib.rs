//! Shards: batched UDP, TCP, TLS and WebSocket around the machines of `core`.
//!
//! [`Net::bind`] opens the listeners, [`Net::spawn`] starts the shards, each with a [`Service`] of its own; the
//! [`Handle`] is what the rest of the process holds of them.

pub mod clock;
pub mod counters;
pub mod datagrams;
pub mod dedicated;
pub mod descriptors;
pub mod handle;
pub mod memory;
pub mod node;
pub mod resolve;
pub mod service;
pub mod settings;
pub mod tls;

mod alarm;
mod batch;
mod bell;
mod buckets;
mod bursts;
mod connection;
mod directory;
mod dispatcher;
mod failure;
mod links;
mod listen_socket;
mod names;
mod proof;
mod readiness;
mod reading;
mod ring;
mod scheduling;
mod shard;
mod shard_pool;
mod socket_option;
mod sources;
mod spare;
mod stamp;
mod steer;
mod streams;
mod sync;
mod tickets;
mod udp;
mod unreachable;
mod wait;
mod ways;
mod ws;

pub use counters::Snapshot;
pub use dedicated::{DedicatedSocket, DedicatedSockets};
pub use failure::Failure;
pub use handle::{Handle, Mailbox};
pub use listen_socket::ListenSocket;
pub use node::{Net, Node};
pub use service::{Ending, Service, ServiceWithSockets, Unsent};
pub use settings::{Listener, Settings, Shards};
pub use shard_pool::Backlog;
