//! Bounds that may change while the shards run. Every bound has a default and none is a constant.

use arc_swap::{ArcSwap, Cache};
use std::sync::Arc;
use std::time::Duration;
use strowger_message::Limits;

/// How much of everything, and how long for each thing: see [`Handle::set_bounds`](crate::Handle::set_bounds).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Largest message of a stream and its parts.
    pub limits: Limits,
    /// Connections of all shards together. Default 500,000.
    pub connections: usize,
    /// Connections accepted from one source. Default 10,000.
    pub connections_per_source: usize,
    /// Bytes held for the connections of all shards, as far as they are not the kernel's: see
    /// [`connection_memory_per_source`](Self::connection_memory_per_source). Default 4 GiB.
    pub connection_memory: usize,
    /// The same for those of one source: what a connection takes, more while TLS shakes hands; messages whose rest has not come;
    /// what waits for a peer that does not read. A connection that would pass it is closed. Default 32 MiB.
    pub connection_memory_per_source: usize,
    /// A connection silent for so long is closed. Default 1 hour.
    pub idle_timeout: Duration,
    /// A message must be whole so long after its first byte. Default 30 s.
    pub partial_timeout: Duration,
    /// A connection must be made in this time. Default 5 s.
    pub connect_timeout: Duration,
    /// A TLS or WebSocket handshake must end in this time. Default 10 s.
    pub handshake_timeout: Duration,
    /// A peer that says that nothing will follow (FIN) may have asked something before: so long after that, and after each
    /// message that it gets, it can be answered by the same connection. Default 32 s, as long as a transaction (64*T1).
    pub answer_timeout: Duration,
    /// How long a connection that we end waits for the peer to end it too. Default 1 s.
    pub close_timeout: Duration,
    /// Bytes that may wait for a connection whose peer does not read; more closes it. Default 1 MB.
    pub write_queue: usize,
    /// Messages, and pieces between them, taken from one connection before others get their turn. Default 64, at least 1.
    pub messages_per_turn: usize,
    /// Batches taken from one UDP socket before connections get their turn. Default 8, at least 1.
    pub batches: usize,
    /// Where datagrams come faster than this, a shard waits so long for several instead of being woken for each: it
    /// saves CPU time and delays by as much. Default 0 (off); useful up to 1 ms.
    pub receive_delay: Duration,
    /// Datagrams kept for a UDP socket that takes no more. Default 4,096.
    pub datagrams_waiting: usize,
    /// Names that secure peers must prove, remembered at most. Default 8,192.
    pub names: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            connections: 500_000,
            connections_per_source: 10_000,
            connection_memory: 4 << 30,
            connection_memory_per_source: 32 << 20,
            idle_timeout: Duration::from_secs(3_600),
            partial_timeout: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(5),
            handshake_timeout: Duration::from_secs(10),
            answer_timeout: Duration::from_secs(32),
            close_timeout: Duration::from_secs(1),
            write_queue: 1 << 20,
            messages_per_turn: 64,
            batches: 8,
            receive_delay: Duration::ZERO,
            datagrams_waiting: 4_096,
            names: 8_192,
        }
    }
}

/// The bounds in force, for all shards.
pub(crate) type Current = Arc<ArcSwap<Bounds>>;

/// What a shard has seen of them: it costs one load of a pointer to see whether there are others.
pub(crate) type Seen = Cache<Current, Arc<Bounds>>;
