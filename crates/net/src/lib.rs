//! Shards: batched UDP, TCP, TLS and WebSocket around the machines of `core`.
//!
//! [`Net::bind`] opens the listeners, [`Net::spawn`] starts the shards, each with a [`Service`] of its own; the
//! [`Handle`] is what the rest of the process holds of them. A shard is a thread: it calls its service with each message of the calls
//! that it owns, and sends what the service leaves in the outbox. [`Handle::set_bounds`] and [`Handle::set_identities`] change what shards
//! and connections go by while they run. Further sockets are given by [`Net::with_sockets`]; a service that opens
//! some for itself is a [`ServiceWithSockets`].
//!
//! # A service that sends each message back
//!
//! ```
//! use std::net::UdpSocket;
//! use strowger_core::{Arrival, Flow, Now, Outbox, Transport};
//! use strowger_net::{Listener, Net, NetSettings, Service};
//!
//! struct Echo;
//!
//! impl Service for Echo {
//!     type Answer = ();
//!     type Record = ();
//!
//!     fn receive(&mut self, _: Now, arrival: &Arrival, bytes: &[u8], out: &mut Outbox) {
//!         let start = out.start();
//!         out.bytes.extend_from_slice(bytes);
//!         out.send(arrival.reply(), start..out.bytes.len(), 0);
//!     }
//!
//!     // It has no timers, asks nothing, and keeps nothing of a call that could move to another shard.
//!     fn poll(&mut self, _: Now, _: &mut Outbox) {}
//!     fn deadline(&mut self) -> Option<u64> {
//!         None
//!     }
//!     fn answered(&mut self, _: Now, (): (), _: &mut Outbox) {}
//!     fn failed(&mut self, _: Now, _: u64, _: &mut Outbox) {}
//!     fn closed(&mut self, _: Now, _: Flow, _: &mut Outbox) {}
//!     fn export(&mut self, _: Now, _: u8) -> Vec<()> {
//!         Vec::new()
//!     }
//!     fn import(&mut self, _: Now, (): (), _: &mut Outbox) {}
//! }
//!
//! # fn main() -> std::io::Result<()> {
//! let listener = Listener::new(Transport::Udp, ([127, 0, 0, 1], 0).into());
//! let node = Net::bind(NetSettings::default(), vec![listener])?.spawn(|_shard, _handle| Echo)?;
//! let phone = UdpSocket::bind("127.0.0.1:0")?;
//! phone.send_to(b"OPTIONS sip:a@example.org SIP/2.0\r\n", node.handle().addresses()[0])?;
//! let mut bytes = [0; 100];
//! let length = phone.recv(&mut bytes)?;
//! assert_eq!(&bytes[..length], b"OPTIONS sip:a@example.org SIP/2.0\r\n");
//! # Ok(())
//! # }
//! ```

#![warn(missing_docs)]

pub mod bounds;
pub mod clock;
pub mod counters;
pub mod datagrams;
pub mod dedicated;
pub mod descriptors;
pub mod floor;
pub mod handle;
pub mod node;
pub mod service;
pub mod settings;
pub mod tls;

mod alarm;
mod batch;
mod bell;
mod buckets;
mod buffer_pool;
mod connection;
mod directory;
mod dispatcher;
mod failure;
mod gso;
mod links;
mod listen_socket;
mod peer_names;
mod queue_delay;
mod readiness;
mod reading;
mod ring;
mod scheduling;
mod shard;
mod shard_pool;
mod socket_option;
mod source_addresses;
mod sources;
mod steer;
mod streams;
mod sync;
mod timestamp;
mod turns;
mod udp;
mod unreachable;
mod verified_certificate;
mod ws;

pub use bounds::Bounds;
pub use counters::Snapshot;
pub use dedicated::{DedicatedSocket, DedicatedSockets};
pub use failure::Failure;
pub use handle::{Handle, Mailbox};
pub use listen_socket::ListenSocket;
pub use node::{Net, Node};
pub use service::{Ending, Service, ServiceWithSockets, Unsent};
pub use settings::{Listener, NetSettings, Scheduling, Shards, UdpSettings};
pub use shard_pool::Backlog;
