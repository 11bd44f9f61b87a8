//! `[limits]`: the bounds of everything that a peer can make grow.

use std::time::Duration;

use super::key::Rule;
use super::reader::section;

section! {
    /// Bounds of everything that a peer can make grow.
    pub struct Limits = "limits" {
        /// Largest message; a larger one is answered 513 (RFC 3261 section 21.5.7) or its connection closed.
        pub message_size: usize = 65_535, Rule::bytes(1_300, 16 << 20);
        /// Largest body; a larger one is answered 413 (RFC 3261 section 21.4.11).
        pub body_size: usize = 65_535, Rule::bytes(0, 16 << 20);
        /// Most header fields of a message, and in a message with more than 4 KiB of them most values separated by commas; more are answered 400.
        pub header_count: usize = 256, Rule::number(16, 65_000);
        /// Longest Request-URI; a longer one is answered 414 (RFC 3261 section 21.4.12).
        pub uri_length: usize = 4_096, Rule::bytes(64, 65_535);
        /// Most connections of all streams together; further ones are closed at once.
        pub connections: usize = 500_000, Rule::number(1, 10_000_000);
        /// Most connections of one source address; further ones are closed at once.
        pub connections_per_source: usize = 10_000, Rule::number(1, 10_000_000);
        /// Bytes held for all connections, without those in the kernel; a connection that would exceed it is closed.
        pub connection_memory: usize = 4 << 30, Rule::bytes(1 << 20, 1 << 40);
        /// Bytes held for the connections of one source: the connections themselves (about 2 KiB each; 34 KiB with TLS, more during the handshake),
        /// incomplete messages, and data that the peer has not read. A source with more than a thousand TLS connections, such as many phones behind
        /// one router, needs more.
        pub connection_memory_per_source: usize = 32 << 20, Rule::bytes(128 << 10, 1 << 40);
        /// Memory of one kept message: for a request with all its branches. For a large request fewer contacts are tried at the same time, and none
        /// while silent ones leave no room; for one larger than a third of this only the first. A request larger than about 80 % of this is sent
        /// once, and only the parts for ACK and CANCEL are kept.
        pub request_memory: usize = 64 << 10, Rule::bytes(4 << 10, 1 << 30);
        /// Memory for the requests of one source: those without a final response, about 3 kB each, those that wait for a look-up, and the
        /// part of responses beyond 1300 bytes. Divided among the running shards. Further requests are answered 503, longer responses
        /// passed on and not kept. A source with more than about 7,000 calls that ring at once, such as another proxy, needs more.
        pub request_memory_per_source: usize = 20 << 20, Rule::bytes(128 << 10, 1 << 40);
        /// Memory for the requests of all sources together. Unauthenticated UDP requests, whose source may be forged, may use half of it.
        pub request_memory_of_all: usize = 1 << 30, Rule::bytes(1 << 20, 1 << 40);
        /// Messages sent over the connections of a shard that are remembered, to send a request once more or to fail it at
        /// once when its connection ends before an answer. 32 bytes each.
        pub sent_messages: usize = 16_384, Rule::number(0, 1 << 24).fixed();
        /// Bits of an IPv6 address that make one source where sources are counted (bans, failures, connections, log lines):
        /// a source with one address of a network has all of them.
        pub ipv6_prefix: u8 = 64, Rule::number(32, 128).fixed();
        /// Most transactions alive at once; further requests are answered 503 with Retry-After (RFC 3261 section 21.5.4). BYE, PRACK, UPDATE,
        /// NOTIFY and re-INVITE of known dialogs have an eighth more in reserve, here and at `request_memory_per_source`,
        /// `request_memory_of_all` and the bounds of look-ups; a CANCEL needs no room.
        pub transactions: usize = 1_000_000, Rule::number(16, 100_000_000);
        /// A connection over which nothing arrived for this long, not even a keep-alive, is closed; "never" leaves it open.
        pub idle_connection_timeout: Option<Duration> = Some(Duration::from_secs(3_600)), Rule::time(Duration::from_secs(1), Duration::from_secs(7 * 86_400)).or("never");
        /// A message that has begun must be complete within this time, or its connection is closed.
        pub partial_message_timeout: Duration = Duration::from_secs(30), Rule::time(Duration::from_millis(100), Duration::from_secs(600));
        /// A connection to a peer must stand within this time.
        pub connect_timeout: Duration = Duration::from_secs(5), Rule::time(Duration::from_millis(100), Duration::from_secs(120));
        /// A handshake of TLS or WebSocket must end within this time.
        pub handshake_timeout: Duration = Duration::from_secs(10), Rule::time(Duration::from_millis(100), Duration::from_secs(120));
        /// Datagrams that may wait for a UDP socket that takes no more; more are dropped and counted.
        pub udp_queue: usize = 4_096, Rule::number(64, 1 << 24);
        /// Bytes that may wait for a slow peer on one connection; more close it.
        pub connection_queue: usize = 1 << 20, Rule::bytes(4 << 10, 1 << 30);
        /// Messages that may wait on their way from one shard to another; of more, requests over connections are answered 503, those by UDP
        /// dropped, for they come again; all are counted.
        pub shard_queue: usize = 4_096, Rule::number(64, 1 << 24).fixed();
        /// Messages taken from one connection before others get their turn: a peer that sends many at once does not delay the calls of
        /// others by more than these take. What came behind them waits in the connection.
        pub messages_per_turn: usize = 64, Rule::number(1, 65_536);
        /// Look-ups (database, DNS) that may wait at once; more are answered 503.
        pub lookup_queue: usize = 10_000, Rule::number(16, 1 << 24).fixed();
        /// Names that may be looked up at once for requests of one source, in each shard; more are answered 503. Half of `lookup_queue` is
        /// for requests that have shown a password or belong to a call that stands.
        pub lookups_per_source: usize = 1_000, Rule::number(1, 1 << 24);
        /// Bytes of all messages that wait for look-ups, divided among the shards that run; requests beyond are answered 503.
        pub lookup_memory: usize = 256 << 20, Rule::bytes(1 << 20, 1 << 40);
        /// Messages of one call that may wait while a look-up for it is under way; of more, requests over connections are answered 503,
        /// those by UDP dropped, for they come again; all are counted.
        pub held_messages_per_call: usize = 32, Rule::number(1, 65_535);
    }
}
