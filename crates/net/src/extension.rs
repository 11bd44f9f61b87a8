//! Services with sockets of their own, and the calls of a shard to them.

use crate::DedicatedSockets;
use crate::service::{Ending, Service};
use strowger_core::{Flow, Now, Outbox};

/// A service that generates traffic: it opens sockets and connections for single calls, and needs exact times of events.
/// [`Net::spawn_with_sockets`](crate::Net::spawn_with_sockets) starts its shards.
pub trait ServiceWithSockets: Service {
    /// Called at the begin of a round.
    #[inline]
    fn begin(&mut self, _now: Now) {}

    /// Reports the arrival time of the next message, by the time stamp of the kernel, and the time at which it was
    /// read, `now` ([`clock::micros`](crate::clock::micros)).
    #[inline]
    fn arrived(&mut self, _came: u64, _now: u64) {}

    /// Returns the latest time of the next round without input, in microseconds of [`clock::micros`](crate::clock::micros). Called before the shard
    /// sleeps, with the result of [`Service::deadline`], which is the default. A service without a use for [`Service::poll`] may implement this
    /// alone.
    #[inline]
    fn wake(&mut self, deadline: Option<u64>) -> Option<u64> {
        in_micros(deadline)
    }

    /// Called when the peer has accepted a connection of the service, at `at`
    /// ([`clock::micros`](crate::clock::micros)); a handshake may follow.
    #[inline]
    fn connected(&mut self, _flow: Flow, _at: u64) {}

    /// Called when that connection carries messages, from `at` on: waiting messages leave then.
    #[inline]
    fn opened(&mut self, _flow: Flow, _at: u64) {}

    /// Called instead of [`Service::closed`], with the cause.
    #[inline]
    fn ended(&mut self, now: Now, flow: Flow, _ending: Ending, out: &mut Outbox) {
        self.closed(now, flow, out);
    }

    /// Returns the sockets and connections that the service has opened; `None` if there are none.
    fn sockets(&mut self) -> Option<&mut DedicatedSockets>;
}

/// Calls of a shard to its service beyond [`Service`]. The type is chosen where the shards are spawned, so that a server does not pay for calls that
/// only the other kind needs.
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

/// Extension for a service without dedicated sockets.
pub(crate) struct Plain;

impl<S: Service> Extension<S> for Plain {}

/// Extension for a [`ServiceWithSockets`].
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
