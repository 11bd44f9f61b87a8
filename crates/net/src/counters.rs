//! What a shard counts. Only the shard writes its counters, so an addition is a plain load and store.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A number that one thread writes and any may read.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    pub(crate) fn set(&self, n: u64) {
        self.0.store(n, Relaxed);
    }

    pub(crate) fn less(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_sub(n), Relaxed);
    }

    /// The number at this moment.
    pub fn value(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

macro_rules! counters {
    ($($(#[doc = $doc:literal])* $name:ident: $kind:ident;)*) => {
        /// The counters and gauges of one shard, as it writes them.
        #[derive(Debug, Default)]
        pub(crate) struct Counters { $($(#[doc = $doc])* pub(crate) $name: Count,)* }

        /// The counters and gauges of one shard, or of all of them added up, at one moment.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Snapshot { $($(#[doc = $doc])* pub $name: u64,)* }

        impl Counters {
            pub(crate) fn snapshot(&self) -> Snapshot {
                Snapshot { $($name: self.$name.value(),)* }
            }
        }

        impl Snapshot {
            /// Logs each that is not 0 as a field of one event.
            pub fn log(&self, event: &str) {
                let counted = |value: u64| (value > 0).then_some(value);
                tracing::info!(of = "network", $($name = counted(self.$name),)* "{event}");
            }

            /// Name, whether it is a gauge (else a counter that only grows), meaning and value of each.
            pub fn each(&self) -> impl Iterator<Item = (&'static str, bool, &'static str, u64)> + use<> {
                [$((stringify!($name), stringify!($kind).len() == 5, concat!($($doc),*).trim_ascii(), self.$name),)*].into_iter()
            }
        }

        impl std::ops::AddAssign for Snapshot {
            fn add_assign(&mut self, other: Self) {
                $(self.$name = self.$name.wrapping_add(other.$name);)*
            }
        }
    };
}

counters! {
    /// Rounds of the main loop.
    rounds: counter;
    /// Datagrams received.
    datagrams_in: counter;
    /// Bytes received by UDP.
    datagram_bytes_in: counter;
    /// Receiving system calls that brought at least one datagram.
    batches_in: counter;
    /// Microseconds for which the oldest unread datagram has waited, where a batch was full; else 0.
    datagram_age: gauge;
    /// Datagrams that were only a keep-alive.
    datagram_pings: counter;
    /// Datagrams sent.
    datagrams_out: counter;
    /// Bytes sent by UDP.
    datagram_bytes_out: counter;
    /// Sending system calls that took at least one datagram.
    batches_out: counter;
    /// Datagrams that the kernel refused to send, with an error.
    datagrams_refused: counter;
    /// Datagrams of which a host or router on their way said that they were unreachable (ICMP).
    unreachable: counter;
    /// Datagrams that were dropped because the queue to a full socket was full itself.
    datagrams_dropped: counter;
    /// Errors of receiving system calls.
    receive_errors: counter;
    /// Datagrams waiting because the socket's send buffer is full.
    datagrams_waiting: gauge;
    /// Messages that had nowhere to go: no listener of their transport or address family.
    unroutable: counter;
    /// Times that this shard woke another.
    wakes: counter;
    /// Messages given to another shard, because their call or connection is there.
    crossed_out: counter;
    /// Messages taken from another shard.
    crossed_in: counter;
    /// Messages dropped because the ring to another shard was full.
    crossings_dropped: counter;
    /// Messages and records waiting because the ring to another shard is full.
    crossings_waiting: gauge;
    /// Messages held back until their bucket has moved in.
    held: gauge;
    /// Buckets that this shard owns.
    buckets: gauge;
    /// Buckets given to another shard since the start.
    buckets_moved: counter;
    /// Answers taken from the service runtime.
    answers: counter;
    /// TCP connections that are open.
    tcp_connections: gauge;
    /// TLS connections that are open.
    tls_connections: gauge;
    /// WebSocket connections that are open.
    ws_connections: gauge;
    /// Secure WebSocket connections that are open.
    wss_connections: gauge;
    /// Connections accepted.
    accepted: counter;
    /// Connections made.
    connected: counter;
    /// Connections that could not be made.
    connects_failed: counter;
    /// Connections refused because of a limit, of all or of their source.
    connections_refused: counter;
    /// Connections refused or closed because too many bytes would be held, for all or for their source.
    memory_refused: counter;
    /// Bytes held for connections, as far as they are bounded by source.
    connection_bytes: gauge;
    /// TLS or WebSocket handshakes that failed or took too long.
    handshakes_failed: counter;
    /// TLS handshakes that were completed, on either side.
    tls_handshakes: counter;
    /// Of those, how many resumed a session (RFC 8446 section 2.2).
    tls_resumed: counter;
    /// Sockets and connections for one call or user that are open, or wait for the other side to end them.
    dedicated: gauge;
    /// Such sockets and connections opened.
    dedicated_opened: counter;
    /// Such sockets and connections that were not opened because as many were open as may be, or as the process may have.
    dedicated_full: counter;
    /// Such sockets and connections that could not be opened for another reason: no port was free, say.
    dedicated_refused: counter;
    /// Datagrams that the kernel dropped before such a socket; counted when it is closed, or its shard ends.
    dedicated_drops: counter;
    /// Connections closed after too long a silence.
    idle_closed: counter;
    /// Connections closed because the rest of a message did not come.
    partial_closed: counter;
    /// Connections closed because the peer did not read.
    slow_closed: counter;
    /// Connections closed because the stream could not be cut into messages.
    frames_broken: counter;
    /// Messages received over streams.
    stream_messages_in: counter;
    /// Messages sent over streams.
    stream_messages_out: counter;
    /// Messages that could not be sent over a stream: no connection, or a limit.
    streams_lost: counter;
    /// Bytes received over streams, before decryption.
    stream_bytes_in: counter;
    /// Bytes sent over streams.
    stream_bytes_out: counter;
    /// Keep-alive pings answered.
    pings: counter;
    /// Bytes waiting to be written to connections.
    stream_bytes_waiting: gauge;
}
