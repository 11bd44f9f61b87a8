//! Counters of a shard. Only the shard writes them, so an addition is a plain load and store.

pub use strowger_metrics::Count;

strowger_metrics::metrics! {
    of = "network";
    /// Counters and gauges of one shard, as it writes them.
    pub(crate) struct Counters;
    /// Counters and gauges of one shard, or sums of all, at one moment.
    pub struct Snapshot;

    /// Rounds of the main loop.
    rounds: Counter by shard;
    /// Datagrams received.
    datagrams_in: Counter;
    /// Bytes received by UDP.
    datagram_bytes_in: Counter in Bytes as "datagram_in_bytes";
    /// Receiving system calls that brought at least one datagram.
    batches_in: Counter;
    /// Time that the oldest unread datagram has waited, after a full batch; else 0.
    datagram_age: Highest in Seconds as "shard_oldest_datagram_seconds" by shard;
    /// Datagrams that were only a keep-alive.
    datagram_pings: Counter;
    /// Datagrams sent.
    datagrams_out: Counter;
    /// Bytes sent by UDP.
    datagram_bytes_out: Counter in Bytes as "datagram_out_bytes";
    /// Sending system calls that took at least one datagram.
    batches_out: Counter;
    /// Datagrams that the kernel refused to send, with an error.
    datagrams_refused: Counter;
    /// Datagrams of which a host or router on their way said that they were unreachable (ICMP).
    unreachable: Counter as "datagrams_unreachable";
    /// Datagrams that were dropped because the queue to a full socket was full itself.
    datagrams_dropped: Counter;
    /// Errors of receiving system calls.
    receive_errors: Counter;
    /// Datagrams waiting because the socket's send buffer is full.
    datagrams_waiting: Gauge;
    /// Messages that had nowhere to go: no listener of their transport or address family.
    unroutable: Counter;
    /// Times that this shard woke another.
    wakes: Counter;
    /// Messages given to another shard, because their call or connection is there.
    crossed_out: Counter;
    /// Messages taken from another shard.
    crossed_in: Counter;
    /// Messages dropped because the ring to another shard was full.
    crossings_dropped: Counter;
    /// Messages and records waiting because the ring to another shard is full.
    crossings_waiting: Gauge;
    /// Messages held back until their bucket has moved in.
    held: Gauge as "messages_held";
    /// Buckets that this shard owns.
    buckets: Gauge by shard;
    /// Buckets given to another shard since the start.
    buckets_moved: Counter;
    /// Answers taken from the service runtime.
    answers: Counter;
    /// Connections that are open.
    tcp_connections: Gauge as "connections" {transport = "tcp"};
    /// Connections that are open.
    tls_connections: Gauge as "connections" {transport = "tls"};
    /// Connections that are open.
    ws_connections: Gauge as "connections" {transport = "ws"};
    /// Connections that are open.
    wss_connections: Gauge as "connections" {transport = "wss"};
    /// Connections accepted.
    accepted: Counter as "connections_accepted";
    /// Connections made.
    connected: Counter as "connections_made";
    /// Connections that could not be made.
    connects_failed: Counter as "connections_failed";
    /// Connections refused because of a limit, of all or of their source.
    connections_refused: Counter;
    /// Connections refused or closed because too many bytes would be held, for all or for their source.
    memory_refused: Counter;
    /// Headers of the PROXY protocol that were read.
    proxy_headers: Counter;
    /// Connections of balancers closed because of their PROXY header, by the reason.
    proxy_malformed: Counter as "proxy_headers_refused" {reason = "malformed"};
    /// Connections of balancers closed because of their PROXY header, by the reason.
    proxy_long: Counter as "proxy_headers_refused" {reason = "long"};
    /// Connections of balancers closed because of their PROXY header, by the reason.
    proxy_cut: Counter as "proxy_headers_refused" {reason = "cut"};
    /// Connections of balancers closed because of their PROXY header, by the reason.
    proxy_late: Counter as "proxy_headers_refused" {reason = "late"};
    /// Bytes held for connections, as far as they are bounded by source.
    connection_bytes: Gauge in Bytes;
    /// TLS or WebSocket handshakes that failed or took too long.
    handshakes_failed: Counter;
    /// TLS handshakes that were completed, on either side.
    tls_handshakes: Counter;
    /// TLS handshakes that resumed a session (RFC 8446 section 2.2).
    tls_resumed: Counter;
    /// Dedicated sockets and connections, of one call or user each, that are open, or wait for the peer to end them.
    dedicated: Gauge;
    /// Dedicated sockets and connections opened.
    dedicated_opened: Counter;
    /// Dedicated sockets and connections that were not opened because the most allowed were open, or the process had no descriptor left.
    dedicated_full: Counter;
    /// Dedicated sockets and connections that could not be opened for another reason: no port was free, say.
    dedicated_refused: Counter;
    /// Datagrams that the kernel dropped before a dedicated socket; counted when it is closed, or its shard ends.
    dedicated_drops: Counter;
    /// Connections closed after too long a silence.
    idle_closed: Counter;
    /// Connections closed because the rest of a message did not come.
    partial_closed: Counter;
    /// Connections closed because the peer did not read.
    slow_closed: Counter;
    /// Times that a connection was not read for a moment: its write queue was half full, look-ups of its peer were full, or the shard of its
    /// next message was late.
    pauses: Counter as "connection_pauses";
    /// Connections closed because the stream could not be cut into messages.
    frames_broken: Counter;
    /// Messages received over streams.
    stream_messages_in: Counter;
    /// Messages sent over streams.
    stream_messages_out: Counter;
    /// Messages sent over streams that are no longer remembered, since too many came after them: if their connection ends before an answer,
    /// timers end their transactions.
    sent_forgotten: Counter;
    /// Messages that could not be sent over a stream: no connection, or a limit.
    streams_lost: Counter;
    /// Bytes received over streams, before decryption.
    stream_bytes_in: Counter in Bytes as "stream_in_bytes";
    /// Bytes sent over streams.
    stream_bytes_out: Counter in Bytes as "stream_out_bytes";
    /// Keep-alive pings answered.
    pings: Counter as "stream_pings";
    /// Bytes waiting to be written to connections.
    stream_bytes_waiting: Gauge in Bytes as "stream_waiting_bytes";
}
