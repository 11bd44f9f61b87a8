//! What a shard drives: the server, a load generator, or anything else that speaks in messages.

use crate::DedicatedSockets;
use std::net::SocketAddr;
use strowger_core::{Arrival, Flow, Now, Outbox};

/// How a connection came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ending {
    /// The peer said that nothing will follow: by TCP (FIN), or in the words of TLS or WebSocket.
    Finished,
    /// It broke: by TCP (RST, no route, no acknowledgement), or because of an error of TLS.
    Broken,
    /// We ended it: it was asked for, a time was over, a limit was reached, or what came made no sense.
    Ours,
    /// It was a dedicated connection and never made.
    Unmade,
}

/// What kept a message from being sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unsent {
    /// This machine: its kernel refused the message, as much waits as may, or the connection that it was for is gone.
    Here,
    /// The connection was not made: it was refused, or not answered in time. The time of a message with another way is short
    /// ([`strowger_core::Outbox::set_fallback`]).
    Connection,
    /// The peer did not come to the end of the TLS handshake, or it failed.
    TlsHandshake,
    /// The same of the WebSocket handshake.
    WebSocketHandshake,
}

/// The machines of one shard. The shard calls it; it never blocks, and what it wants sent it puts into the
/// [`Outbox`], which the shard empties at the end of the round.
pub trait Service {
    /// What comes back from the service runtime (look-ups, commits) to this shard.
    type Answer: Send + 'static;
    /// A piece of state on its way to another shard, when buckets move.
    type Record: Send + 'static;

    /// All that came in this round was given to the service; what it has in the outbox is sent next.
    #[inline]
    fn end(&mut self, _now: Now, _out: &mut Outbox) {}

    /// One whole message: a datagram, or one cut from a stream. Calls whose bucket this shard owns, only.
    fn receive(&mut self, now: Now, arrival: &Arrival, bytes: &[u8], out: &mut Outbox);

    /// A message of a call that another shard owns and that cannot get there, because as many wait already as may; it is
    /// dropped and counted ([`Snapshot::crossings_dropped`](crate::Snapshot)). What the protocol answers to it goes into the
    /// outbox.
    fn shed(&mut self, _now: Now, _arrival: &Arrival, _bytes: &[u8], _out: &mut Outbox) {}

    /// Timers: called when [`Service::deadline`] has passed.
    fn poll(&mut self, now: Now, out: &mut Outbox);

    /// When [`Service::poll`] must be called at the latest ([`Now::mono`] milliseconds). Asked at the end of a round. A call for a deadline that has passed must move
    /// it, or the shard never sleeps.
    fn deadline(&mut self) -> Option<u64>;

    /// An answer to something this shard asked the service runtime.
    fn answered(&mut self, now: Now, answer: Self::Answer, out: &mut Outbox);

    /// A message with this token (see [`Outbox::send`]) could not be sent.
    fn failed(&mut self, now: Now, token: u64, out: &mut Outbox);

    /// The same, with the cause: called instead of [`Service::failed`].
    #[inline]
    fn unsent(&mut self, now: Now, token: u64, _cause: Unsent, out: &mut Outbox) {
        self.failed(now, token, out);
    }

    /// The connection over which a message with this token went has ended, or its peer has said that nothing will follow:
    /// no answer comes by it, and whether the message has arrived is not known (RFC 3261 section 18.4). Called for the last
    /// [`NetSettings::remembered`](crate::NetSettings) messages.
    #[inline]
    fn cut_off(&mut self, _now: Now, _token: u64, _out: &mut Outbox) {}

    /// A datagram to this address was unreachable, as a host or router on its way says (ICMP; RFC 3261 section 18.4); `quoted` is how
    /// it began. Called on all shards where [`UdpSettings::icmp_errors`](crate::UdpSettings) is on. It is a hint: any host that knows
    /// the two addresses can forge it, but a host that has not seen the datagram cannot quote it.
    #[inline]
    fn unreachable(&mut self, _now: Now, _to: SocketAddr, _quoted: &[u8], _out: &mut Outbox) {}

    /// A connection accepted or made by this shard has ended.
    fn closed(&mut self, now: Now, flow: Flow, out: &mut Outbox);

    /// Everything of the calls of this bucket, taken out, for its new owner.
    fn export(&mut self, now: Now, bucket: u8) -> Vec<Self::Record>;

    /// What another shard exported; timers go on where they were.
    fn import(&mut self, now: Now, record: Self::Record, out: &mut Outbox);
}

/// A service that makes traffic: it opens sockets and connections for single calls, and wants to know when what happens. Its
/// shards are started by [`Net::spawn_with_sockets`](crate::Net::spawn_with_sockets).
pub trait ServiceWithSockets: Service {
    /// A round begins.
    #[inline]
    fn begin(&mut self, _now: Now) {}

    /// The message that is received next came at `came`, as the kernel stamped it, and was read at `now`
    /// ([`clock::micros`](crate::clock::micros)). Of what was read from a stream at once, all has the time of the last byte.
    /// Called only where [`Scheduling::timestamps`](crate::Scheduling) is on, and not for what another shard passes on.
    #[inline]
    fn arrived(&mut self, _came: u64, _now: u64) {}

    /// When a round must follow at the latest, though nothing comes: microseconds of [`clock::micros`](crate::clock::micros). Asked
    /// before the shard sleeps, with what [`Service::deadline`] has just said. By default that; a service without a use for
    /// [`Service::poll`] may have this alone.
    #[inline]
    fn wake(&mut self, deadline: Option<u64>) -> Option<u64> {
        in_micros(deadline)
    }

    /// A connection that the service opened was accepted by its peer at `at`
    /// ([`clock::micros`](crate::clock::micros)); a handshake may follow.
    #[inline]
    fn connected(&mut self, _flow: Flow, _at: u64) {}

    /// The same connection carries messages from `at` on: those that waited leave then.
    #[inline]
    fn opened(&mut self, _flow: Flow, _at: u64) {}

    /// The same as [`Service::closed`], and how: called instead.
    #[inline]
    fn ended(&mut self, now: Now, flow: Flow, _ending: Ending, out: &mut Outbox) {
        self.closed(now, flow, out);
    }

    /// The sockets and connections that the service opened for itself; none while it has opened none.
    fn sockets(&mut self) -> Option<&mut DedicatedSockets>;
}

/// What a shard calls of its service beyond [`Service`]. It is chosen where the shards are spawned: a server pays nothing for what only
/// the other kind has.
pub(crate) trait Extension<S: Service>: 'static {
    #[inline]
    fn begin(_: &mut S, _now: Now) {}

    #[inline]
    fn arrived(_: &mut S, _came: u64, _now: u64) {}

    #[inline]
    fn wake(_: &mut S, deadline: Option<u64>) -> Option<u64> {
        in_micros(deadline)
    }

    #[inline]
    fn ended(service: &mut S, now: Now, flow: Flow, _ending: Ending, out: &mut Outbox) {
        service.closed(now, flow, out);
    }

    #[inline]
    fn connected(_: &mut S, _flow: Flow, _at: u64) {}

    #[inline]
    fn opened(_: &mut S, _flow: Flow, _at: u64) {}

    #[inline]
    fn sockets(_: &mut S) -> Option<&mut DedicatedSockets> {
        None
    }
}

/// Of a service without sockets of its own.
pub(crate) struct Plain;

impl<S: Service> Extension<S> for Plain {}

/// Of a [`ServiceWithSockets`].
pub(crate) struct WithSockets;

impl<S: ServiceWithSockets> Extension<S> for WithSockets {
    #[inline]
    fn begin(service: &mut S, now: Now) {
        service.begin(now);
    }

    #[inline]
    fn arrived(service: &mut S, came: u64, now: u64) {
        service.arrived(came, now);
    }

    #[inline]
    fn wake(service: &mut S, deadline: Option<u64>) -> Option<u64> {
        service.wake(deadline)
    }

    #[inline]
    fn ended(service: &mut S, now: Now, flow: Flow, ending: Ending, out: &mut Outbox) {
        service.ended(now, flow, ending, out);
    }

    #[inline]
    fn connected(service: &mut S, flow: Flow, at: u64) {
        service.connected(flow, at);
    }

    #[inline]
    fn opened(service: &mut S, flow: Flow, at: u64) {
        service.opened(flow, at);
    }

    #[inline]
    fn sockets(service: &mut S) -> Option<&mut DedicatedSockets> {
        service.sockets()
    }
}

fn in_micros(deadline: Option<u64>) -> Option<u64> {
    deadline.map(|ms| ms.saturating_mul(1_000))
}
