//! Contract of the service that a shard drives: the server, a load generator, or any other program that exchanges
//! messages.

use std::net::SocketAddr;
use strowger_core::{Arrival, Flow, Now, Outbox, call};

/// Cause of the end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ending {
    /// The peer ended its side: by TCP (FIN), TLS or WebSocket.
    Finished,
    /// The connection broke: by TCP (RST, no route, no acknowledgement), or by an error of TLS.
    Broken,
    /// This side ended it: by request, time-out, limit, or because the data made no sense.
    Ours,
    /// The dedicated connection was never made.
    Unmade,
}

/// Cause of an unsent message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unsent {
    /// This machine: the kernel refused the message, a queue is full, or the connection for it is gone.
    Here,
    /// The connection was not made: refused, or not answered in time. The time is short for a message with a fallback
    /// ([`strowger_core::Outbox::set_fallback`]).
    Connection,
    /// The TLS handshake failed or was not completed in time.
    TlsHandshake,
    /// The WebSocket handshake failed or was not completed in time.
    WebSocketHandshake,
}

/// Kind of a connection, which decides how long it stays open while nothing arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionKind {
    /// Flow of a registered phone: it stays until its registration ends, at [`Now::mono`].
    Registered {
        /// End of the registration, in milliseconds.
        until: u64,
    },
    /// Connection of a gateway or another server: [`Bounds::idle_timeout`](crate::Bounds::idle_timeout).
    Trunk,
    /// Any other connection: [`Lifetimes::other`](crate::Lifetimes::other) if it was accepted and has no alias (RFC 5923).
    Other,
}

/// State machines of one shard. The shard calls the service, which never blocks and puts messages to send into the
/// [`Outbox`]; the shard sends the contents of the outbox at the end of the round.
pub trait Service {
    /// Message to this shard: an answer of the service runtime (look-ups, commits), or a command.
    type ShardMessage: Send + 'static;
    /// State on its way to another shard when buckets move.
    type Record: Send + 'static;

    /// Called after all messages of a round, before the outbox is sent.
    #[inline]
    fn end(&mut self, _now: Now, _out: &mut Outbox) {}

    /// Returns the bucket of the call of a message with this Call-ID, 0 to 255: the bucket of the hash of the Call-ID ([`call::hash`] with this
    /// secret), unless the service knows that the message belongs to another call. Not called in a shard that owns all buckets.
    #[inline]
    fn bucket(&mut self, _now: Now, secret: u32, call_id: &[u8], _bytes: &[u8]) -> u8 {
        call::bucket(call::hash(secret, call_id))
    }

    /// Handles one complete message: a datagram, or a message cut from a stream. The shard passes only messages of
    /// calls whose bucket it owns.
    fn receive(&mut self, now: Now, arrival: &Arrival, bytes: &[u8], out: &mut Outbox);

    /// Called for a message of another shard's call when the queue of that shard is full; the message is dropped and
    /// counted ([`Snapshot::crossings_dropped`](crate::Snapshot)). The service may put a response of its protocol into
    /// the outbox.
    fn shed(&mut self, _now: Now, _arrival: &Arrival, _bytes: &[u8], _out: &mut Outbox) {}

    /// Reports for how long the oldest unserved messages of this shard have waited, the oldest datagram and the oldest message of a connection,
    /// in microseconds; 0 if none waits. Called in each round while the wait is measured: from a full batch or turn on, until 10 s without
    /// one have passed. The last report is 0 and 0.
    #[inline]
    fn waited(&mut self, _now: Now, _datagrams: u64, _connections: u64) {}

    /// Tells whether the service has room for further messages of this peer. While it has none, the connections of the
    /// peer are read less often, and their messages wait there. Called before each turn of a connection.
    #[inline]
    fn has_room(&self, _peer: SocketAddr) -> bool {
        true
    }

    /// Tells whether this shard is overloaded. Then the turns of connections are shorter.
    #[inline]
    fn is_overloaded(&self) -> bool {
        false
    }

    /// Handles timers; called when [`Service::deadline`] has passed.
    fn poll(&mut self, now: Now, out: &mut Outbox);

    /// Returns the latest time of the next [`Service::poll`] ([`Now::mono`] milliseconds). Called at the end of a round. A poll for a passed deadline
    /// must move it, or the shard never sleeps.
    fn deadline(&mut self) -> Option<u64>;

    /// Receives an answer to a request of this shard to the service runtime.
    fn answered(&mut self, now: Now, answer: Self::ShardMessage, out: &mut Outbox);

    /// Called if the message with this token (see [`Outbox::send`]) could not be sent.
    fn failed(&mut self, now: Now, token: u64, out: &mut Outbox);

    /// Called instead of [`Service::failed`], with the cause.
    #[inline]
    fn unsent(&mut self, now: Now, token: u64, _cause: Unsent, out: &mut Outbox) {
        self.failed(now, token, out);
    }

    /// Called if the connection of the message with this token has ended, or its peer has ended its side: no response will come over it, and it is
    /// unknown whether the message has arrived (RFC 3261 section 18.4). Only for the last [`NetSettings::remembered`](crate::NetSettings) messages.
    #[inline]
    fn cut_off(&mut self, _now: Now, _token: u64, _out: &mut Outbox) {}

    /// Called if a host or router reports a datagram to this address as unreachable (ICMP; RFC 3261 section 18.4);
    /// `quoted` is the beginning of the datagram. Called on all shards if
    /// [`UdpSettings::icmp_errors`](crate::UdpSettings) is on. The report is only a hint: any host that knows the two
    /// addresses can forge a report, but a host that has not seen the datagram cannot quote it.
    #[inline]
    fn unreachable(&mut self, _now: Now, _to: SocketAddr, _quoted: &[u8], _out: &mut Outbox) {}

    /// Called if the peer of a connection has sent a keep-alive, CRLF (RFC 5626 section 4.4.1) or a ping of the WebSocket: for the first one of a
    /// connection, then at most once in 20 seconds.
    #[inline]
    fn kept_alive(&mut self, _now: Now, _flow: Flow) {}

    /// Returns the kind of a silent connection to this peer, before the connection is closed.
    #[inline]
    fn connection_kind(&self, _now: Now, _flow: Flow, _peer: SocketAddr) -> ConnectionKind {
        ConnectionKind::Other
    }

    /// Called if a connection that this shard accepted or made has ended.
    fn closed(&mut self, now: Now, flow: Flow, out: &mut Outbox);

    /// Removes and returns all state of the calls of this bucket, for the new owner of the bucket.
    fn export(&mut self, now: Now, bucket: u8) -> Vec<Self::Record>;

    /// Adopts the exported state of another shard; timers continue.
    fn import(&mut self, now: Now, record: Self::Record, out: &mut Outbox);
}
