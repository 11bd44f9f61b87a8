//! Bounds that may change while the shards run. Each has a default.

use arc_swap::{ArcSwap, Cache};
use std::sync::Arc;
use std::time::Duration;
use strowger_message::Limits;

/// Limits of sizes, counts and times: see [`Handle::set_bounds`](crate::Handle::set_bounds).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Largest message of a stream and its parts.
    pub limits: Limits,
    /// Maximum number of connections of all shards together. Default 500,000.
    pub connections: usize,
    /// Maximum number of connections accepted from one source. Default 10,000.
    pub connections_per_source: usize,
    /// Maximum number of bytes held for the connections of all shards, without those of the kernel: see
    /// [`connection_memory_per_source`](Self::connection_memory_per_source). Default 4 GiB.
    pub connection_memory: usize,
    /// Limit of bytes held for the connections of one source: each connection itself, more during a TLS handshake; incomplete messages; data for a peer
    /// that does not read. A connection that would exceed it is closed. Default 32 MiB.
    pub connection_memory_per_source: usize,
    /// Longest silence of a connection. Default 1 hour.
    pub idle_timeout: Duration,
    /// Lifetimes of connections by their kind and use.
    pub lifetimes: Lifetimes,
    /// Longest time from the first byte of a message until it is complete. Default 30 s.
    pub partial_timeout: Duration,
    /// Longest time to establish a connection. Default 5 s.
    pub connect_timeout: Duration,
    /// Longest time of a TLS or WebSocket handshake. Default 10 s.
    pub handshake_timeout: Duration,
    /// Time in which responses still go to a peer that has ended its side (FIN), from that end and from each message to it: it may have sent requests
    /// before. Default 32 s, the life of a transaction (64*T1).
    pub answer_timeout: Duration,
    /// Longest wait for the peer to end a connection that this side has ended. Default 1 s.
    pub close_timeout: Duration,
    /// Maximum number of bytes that may wait for a peer that does not read; more close the connection. Default 1 MB.
    pub write_queue: usize,
    /// Limit of messages, and pieces between them, taken from one connection in a turn. Default 64, at least 1.
    pub messages_per_turn: usize,
    /// Maximum number of batches taken from one UDP socket in a turn. Default 8, at least 1.
    pub batches: usize,
    /// Maximum number of datagrams that wait for a full UDP socket. Default 4,096.
    pub datagrams_waiting: usize,
    /// Maximum number of names that secure peers must prove. Default 8,192.
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
            lifetimes: Lifetimes::default(),
            partial_timeout: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(5),
            handshake_timeout: Duration::from_secs(10),
            answer_timeout: Duration::from_secs(32),
            close_timeout: Duration::from_secs(1),
            write_queue: 1 << 20,
            messages_per_turn: 64,
            batches: 8,
            datagrams_waiting: 4_096,
            names: 8_192,
        }
    }
}

/// Lifetimes of connections by their kind ([`ConnectionKind`](crate::ConnectionKind)) and use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    /// Longest silence of an accepted connection of the kind [`Other`](crate::ConnectionKind::Other). Default `None`:
    /// [`Bounds::idle_timeout`].
    pub other: Option<Duration>,
    /// Longest time between two messages of a transaction: a connection with a request without a final response is not
    /// closed before. Default 181 s (Timer C, RFC 3261 section 16.6 step 11).
    pub transaction: Duration,
}

impl Default for Lifetimes {
    fn default() -> Self {
        Self { other: None, transaction: Duration::from_secs(181) }
    }
}

impl Bounds {
    /// Returns the longest silence of a connection of which the service says nothing.
    pub(crate) fn longest_silence(&self, is_accepted: bool) -> Duration {
        self.lifetimes.other.filter(|_| is_accepted).unwrap_or(self.idle_timeout)
    }
}

/// Bounds in force, for all shards.
pub(crate) type Current = Arc<ArcSwap<Bounds>>;

/// View of a shard: one load of a pointer tells whether the bounds have changed.
pub(crate) type Seen = Cache<Current, Arc<Bounds>>;
