//! `[limits]`: the bounds of everything that a peer can make grow.

use std::time::Duration;

use super::key::Rule;
use super::reader::section;

section! {
    /// Bounds of everything that a peer can make grow.
    pub struct Limits = "limits" {
        /// Largest message; a larger one is answered 513 (RFC 3261 section 21.5.7) or its connection is closed. A request with all its branches may
        /// use 64 KiB of memory: for a large request fewer contacts are tried at the same time, and a request of more than about 52 KB is sent once,
        /// without retransmissions.
        pub message_size: usize = 65_535, Rule::bytes(1_300, 16 << 20);
        /// Most connections of all streams together; further ones are closed at once.
        pub connections: usize = 500_000, Rule::number(1, 10_000_000);
        /// Most connections of one source address; further ones are closed at once.
        pub connections_per_source: usize = 10_000, Rule::number(1, 10_000_000);
        /// Memory for all connections, without the buffers of the kernel; a connection that would exceed this bound is closed.
        pub connection_memory: usize = 4 << 30, Rule::bytes(1 << 20, 1 << 40);
        /// Memory for the connections of one source: the connections themselves (about 2 KiB each; 34 KiB with TLS, more during the handshake),
        /// incomplete messages, and data that the peer has not read. A source with more than a thousand TLS connections, such as many phones behind
        /// one router, needs more.
        pub connection_memory_per_source: usize = 32 << 20, Rule::bytes(128 << 10, 1 << 40);
        /// Memory for the requests of one source: requests without a final response, about 3 kB each, requests that wait for a look-up, and the part
        /// of stored responses beyond 1300 bytes. This memory is divided among the running shards. When it is used up, further requests are answered
        /// 503, and longer responses are forwarded without being stored. A source with more than about 7,000 calls that ring at once, such as another
        /// proxy, needs more.
        pub request_memory_per_source: usize = 20 << 20, Rule::bytes(128 << 10, 1 << 40);
        /// Memory for the requests of all sources together. Unauthenticated UDP requests, whose source may be forged, may use half of it.
        pub request_memory_of_all: usize = 1 << 30, Rule::bytes(1 << 20, 1 << 40);
        /// Prefix length of the IPv6 network that counts as one source for bans, failures, connections and log lines, because a host in such a
        /// network can use all of its addresses.
        pub ipv6_prefix: u8 = 64, Rule::number(32, 128).fixed();
        /// Most transactions at a time; further requests are answered 503 with Retry-After (RFC 3261 section 21.5.4). BYE, PRACK, UPDATE, NOTIFY and
        /// re-INVITE of known dialogs may use a reserve of an eighth beyond this bound, and beyond `request_memory_per_source`,
        /// `request_memory_of_all` and the bounds of look-ups; a CANCEL is not counted.
        pub transactions: usize = 1_000_000, Rule::number(16, 100_000_000);
        /// A connection over which nothing arrived for this long, not even a keep-alive, is closed, unless a phone is registered over it or one of
        /// its requests waits for a final response (RFC 3261 section 18); "never": idle connections stay open. A phone that has agreed to keep-alives
        /// (RFC 5626) has 160 s instead.
        pub idle_connection_timeout: Option<Duration> = Some(Duration::from_secs(3_600)), Rule::time(Duration::from_secs(1), Duration::from_secs(7 * 86_400)).or("never");
        /// The same for accepted connections of peers that are neither registered nor a gateway of a rule, and have no `alias` (RFC 5923). A short
        /// time closes such a connection after its transactions; a party of a call may then be reached only where it listens. "auto":
        /// `idle_connection_timeout`.
        pub unregistered_connection_timeout: Option<Duration> = None, Rule::time(Duration::from_secs(1), Duration::from_secs(7 * 86_400)).or("auto");
    }
}
