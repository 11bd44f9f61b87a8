//! Shards: batched UDP, TCP, TLS and WebSocket around the state machines of `core`.
//!
//! [`Net::bind`] opens the listeners, [`Net::spawn`] starts the shards, each with a [`Service`] of its own. Other
//! threads of the process reach the shards by the [`Handle`]. A shard is a thread: it calls its service with each
//! message of the calls that it owns, and sends the messages that the service leaves in the outbox.
//! [`Handle::set_bounds`] and [`Handle::set_identities`] change limits and certificates of running shards.
//! [`Net::with_sockets`] takes sockets that are already open; a service that opens sockets itself is a
//! [`ServiceWithSockets`].
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
//!     type ShardMessage = ();
//!     type Record = ();
//!
//!     fn receive(&mut self, _: Now, arrival: &Arrival, bytes: &[u8], out: &mut Outbox) {
//!         let start = out.start();
//!         out.bytes.extend_from_slice(bytes);
//!         out.send(arrival.reply(), start..out.bytes.len(), 0);
//!     }
//!
//!     // It has no timers and no state of calls.
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
//!
//! # A round
//!
//! A shard sleeps until a socket is ready, a timer is due or another thread rings its bell. Then it works in rounds: it reads the clock
//! once (the wall clock every 10 ms), receives up to 64 datagrams from each UDP socket by one `recvmmsg`, accepts connections,
//! takes commands and messages of other shards, runs due timers, and sends the outbox. Between rounds each ready connection gives up to
//! 64 messages. No step of a round waits. Code that rarely runs is in functions of its own, because a message
//! passes through more code than the first-level cache holds.
//!
//! # Connections under pressure
//!
//! A connection whose messages cannot be taken is not read for a moment: its write queue is half full, the service has no room for its peer, or the
//! shard of its next message is late. The kernel and the peer hold the rest. It is read again after 20 ms, and the end of its peer's side is seen
//! after its data. While the shard is overloaded, turns of connections are short.
//!
//! A silent connection ends by its kind, which the service knows ([`ConnectionKind`]), but not while a request of it has no final response.
//!
//! # The owner of a call
//!
//! A keyed hash of the Call-ID selects one of 256 buckets, and each bucket belongs to one shard. So one shard handles
//! all messages of a call without a lock, whatever socket they arrive at. The key is random at each start, so a peer
//! cannot choose the shard of a call. With several shards the Call-ID is found by a scan without parsing the message,
//! and a message of another shard's bucket is passed once, by a bounded ring. A ring has no slots until its first
//! message, and grows with its use: a shard without traffic costs little memory, however many there are. For UDP a
//! packet filter in the kernel computes the same hash and selects the socket. The filter only saves work: a datagram at
//! the wrong shard is passed on.
//!
//! # Load balancers
//!
//! A connection from a balancer that its listener names begins with a header of the PROXY protocol. The address in it becomes the remote address of
//! the connection, so that limits, log lines and the service know the peer behind the balancer alone. Messages to this peer go over its connection or
//! nowhere: no program listens for this server at that address.
//!
//! # Sending
//!
//! In a round one `sendmmsg` sends all datagrams of a socket, and one `writev` sends all bytes of a connection.
//! Datagrams for which the kernel has no room wait in a bounded queue. If a message cannot be sent, [`Service::failed`]
//! reports its token. A later ICMP error is read from the queue of the socket and reported to all shards. When a
//! connection ends, its unanswered requests are sent once more by another connection; a response whose connection is
//! closed goes to the listening address of the peer (RFC 3261 section 18.2.2). A socket bound to all addresses
//! remembers the local address to which each peer has sent, and answers from this address.
//!
//! # Shards start and end
//!
//! `shards = "auto"` starts one shard. Above 70 % load another shard is started; when the shards are idle, the buckets
//! of the last shard move to the others. Each further shard costs wake-ups, so there are only as many shards as the
//! load needs.
//!
//! A bucket moves while its calls continue. The old owner ends its round, exports the records of the bucket and sends a
//! fence to every shard. Each shard empties its sockets, whose messages still go to the old owner; then it records the
//! new owner and confirms. Until all shards have confirmed, the new owner handles messages that the old owner passes
//! on, and holds back messages that arrive directly, because these are younger. So no message is lost or overtaken.
//! Connections do not move.
//!
//! `Bounds` and `Identities` are replaced as a whole while shards run: a shard compares one pointer a round. No
//! connection is closed because a bound was lowered. New handshakes use the new certificates and resume no earlier
//! session.
//!
//! A panic in a shard or in another task, or the end of a thread of the store, ends all shards. [`Handle::failed`]
//! returns the reason, and `strowger serve` exits with code 70.
//!
//! # Sockets of a service
//!
//! The generator's service ([`ServiceWithSockets`]) opens *dedicated sockets*, one for a call or user. Messages carry
//! the flow id in both directions; the directory does not list these sockets. One `epoll` of the shard reports which of
//! these sockets are readable. Received messages carry the time stamp of the kernel, and a shard with exact timers
//! sleeps on a timer of the kernel, at most a thousand times a second in the mean.
//!
//! # Media threads
//!
//! [`media::MediaThreads`] are threads apart from the shards, since sockets of media cannot move with a bucket and must not wait behind SIP. A thread
//! owns bound ports and the sessions on them, lends ports to the shards, and obeys their orders. One thread starts, and a further one when all are more
//! than 70 % busy; new sessions go to the least busy thread, and a session keeps its thread. On the way of a packet there is no lock,
//! no allocation and no runtime: a socket is ready, the session decides, the packet leaves.
//!
//! # Where is ...?
//!
//! | behaviour | file |
//! |---|---|
//! | owner of a message | `dispatcher.rs`, `arrive`; `buckets.rs` |
//! | ring and bell between shards | `ring.rs`; `links.rs`; `bell.rs` |
//! | packet filter | `steer.rs` |
//! | shards that are added under load | `shard_pool.rs`, `watch` |
//! | scheduling class of a shard | `scheduling.rs` |
//! | idle and other time-outs of a connection | `connection.rs`, `due`; `open_requests.rs` |
//! | probes of the kernel; keep-alives and silence of a peer | `keep_alive.rs`, `probe`, `PeerActivity` |
//! | order in which connections are read, messages of one in a turn | `ready_queue.rs`; `shard.rs`, `read_connections`; `streams.rs`, `collect` |
//! | connections that are read less, or not for a moment | `pressure.rs`; `dispatcher.rs`, `takes` |
//! | time that a shard was kept from its work | `turns.rs`, `longest` |
//! | age of unread datagrams, wait of messages of connections | `queue_delay.rs`, `QueueDelay`; `handle.rs`, `oldest_datagram`; `stream_wait.rs`, `StreamWait` |
//! | writing to connections, waiting for one | `streams/writing.rs`; `posting.rs`, `hold_fallback` |
//! | requests and responses of an ended connection | `streams/sent_log.rs`; `ending.rs` |
//! | certificates, TLS versions, sessions | `tls.rs`; `tls/sessions.rs`; `tls/sni.rs`, `Certificates` |
//! | TLS handshake, change from rustls to own records; traffic secrets | `tls/handshake.rs`, `Handshake`; `handshake/conversion.rs`; `tls/key_log.rs` |
//! | keys of session tickets | `tls/ticket_keys.rs`, `TicketKeys` |
//! | records of TLS behind the handshake, their keys and verdicts | `tls/records.rs`, `Records`; `tls/aead.rs`; `tls/record_fault.rs` |
//! | certificates replaced at run time | `tls/identities.rs`, `Identities`; `handle.rs`, `set_identities` |
//! | limits replaced at run time | `bounds.rs`, `Bounds`; `handle.rs`, `set_bounds` |
//! | memory of a source | `sources.rs` |
//! | header of a load balancer (PROXY protocol); peers behind it | `proxy_protocol.rs`, `read`; `balancers.rs`; `streams/accepting.rs`, `balancer_header` |
//! | source address of a UDP message | `source_addresses.rs` |
//! | sockets opened by systemd; sockets that shards share | `listen_socket.rs`, `Origin`; `node.rs`, `with_sockets` |
//! | socket of one call | `dedicated.rs` |
//! | sockets, arrival times of a thread outside the shards | `datagrams.rs`, `Incoming`; `ready_set.rs`; `arrival_clock.rs` |
//! | time stamps, exact timers, batches of one size | `timestamp.rs`; `alarm.rs`; `gso.rs` |
//! | failure of a shard | `failure.rs` |
//! | periodic work on one beat | `clock.rs`, `beat` |
//! | metrics of the network side | `counters.rs` |
//! | media threads: packets, orders, timers | `media/thread.rs`, `receive`, `obey`; `media/handle.rs`, `MediaHandle` |
//! | ports of media; those that threads share | `media/ports.rs`, `lend`; `media/lending.rs`, `Lendings`; `media/port_table.rs`, `PortTable` |
//! | media threads that start under load | `media/growth.rs`, `Growth` |
//! | a look at the sockets of media once in a millisecond | `media/pace.rs`, `Pace` |
//! | recordings: hand-over by rings, files | `media/recorder.rs`, `Recorder`; `media/recording_file.rs`, `RecordingFile` |
//! | unread relay and echo, for comparison | `floor.rs`, `relay`; `floor/exchange.rs` |

#![warn(missing_docs)]

pub mod bounds;
pub mod clock;
pub mod counters;
pub mod datagrams;
pub mod dedicated;
pub mod descriptors;
pub mod floor;
pub mod handle;
pub mod media;
pub mod node;
pub mod proxy_protocol;
pub mod ready_set;
pub mod service;
pub mod settings;
pub mod tls;

mod alarm;
mod arrival_clock;
mod balancers;
mod batch;
mod bell;
mod buckets;
mod buffer_pool;
mod cold;
mod connection;
mod directory;
mod dispatcher;
mod edge_readiness;
mod entry;
mod extension;
mod failure;
mod flags;
mod gso;
mod keep_alive;
mod line_ends;
mod links;
mod listen_socket;
mod local_fd;
mod network;
mod open_requests;
mod partition;
mod peer_address;
mod peer_names;
mod pressure;
mod process;
mod queue_delay;
mod readiness;
mod ready_queue;
mod ring;
mod scheduling;
mod sender;
mod shard;
mod shard_pool;
mod slab;
mod socket_option;
mod source_addresses;
mod sources;
mod steer;
mod stream_receive;
mod stream_wait;
mod streams;
mod sync;
mod tick;
mod timestamp;
mod turns;
mod udp;
mod unreachable;
mod verified_certificate;
mod wheel;
mod ws;

pub use bounds::{Bounds, Lifetimes};
pub use counters::Snapshot;
pub use dedicated::{DedicatedSocket, DedicatedSockets};
pub use extension::ServiceWithSockets;
pub use failure::Failure;
pub use handle::{Handle, Mailbox};
pub use listen_socket::ListenSocket;
pub use node::{Net, Node};
pub use peer_names::PeerNames;
pub use service::{ConnectionKind, Ending, Service, Unsent};
pub use settings::{BACKLOG, Listener, NetSettings, Scheduling, Shards, UdpSettings};
pub use shard_pool::Backlog;
