//! Engines: the local one answers at once, one in another process answers under a ticket.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use crate::error::CacheError;
use crate::gauges::{Gauges, RemoteGauges};
use crate::local::LocalCache;
use crate::request::{CacheAnswer, Promise, Request};
use crate::ticket::{Receiver, ReceiverId, Receivers, Ticket};

/// Future that a thread runs in its runtime, beside its own work.
pub type Task = Pin<Box<dyn Future<Output = ()>>>;

/// Cache in another process or on another machine. A request neither blocks nor does I/O: it is queued for the engine's
/// own thread, which answers within its deadline once the round is [flushed](Self::flush).
pub trait RemoteEngine: Send + Sync {
    /// Queues a request; the ticket comes back once with the answer.
    ///
    /// # Errors
    /// The request was not queued, the ticket does not come back: [`CacheError::Full`] at the bound of the queue,
    /// [`CacheError::Unavailable`] without a thread.
    fn ask(&self, request: &Request<'_>, ticket: Ticket, now: u64) -> Result<(), CacheError>;

    /// Sends together all requests that were queued since the last call. This is cheap if there are none.
    fn flush(&self) {}

    /// Returns the receivers of tickets.
    fn receivers(&self) -> &Receivers;

    /// Returns the same cache for the calling thread only, with connections of its own, so that no other thread is
    /// woken for a request or its answer. The thread must run the task in its runtime, a tokio runtime with local
    /// tasks, as long as it sends requests. Returns `None` if all requests go through the thread of the engine.
    fn local(&self) -> Option<(Arc<dyn RemoteEngine>, Task)> {
        None
    }

    /// Returns the addresses of the servers to which the engine is or was connected.
    fn peers(&self) -> Vec<SocketAddr> {
        Vec::new()
    }

    /// Returns the engine's figures, as far as it has them.
    fn gauges(&self) -> Gauges;

    /// Returns the figures that only a cache in other processes has.
    fn remote_gauges(&self) -> RemoteGauges {
        RemoteGauges::default()
    }
}

/// Result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The answer; a found value was appended. The ticket does not come back.
    Now(Result<CacheAnswer, CacheError>),
    /// The ticket comes back with the answer.
    Later,
}

/// Handle of a cache of any kind.
#[derive(Clone)]
pub enum CacheHandle {
    /// Cache in this process.
    Local(Arc<LocalCache>),
    /// Cache in another process.
    Remote(Arc<dyn RemoteEngine>),
}

impl CacheHandle {
    /// Sends a request without waiting. A value that is found at once is appended to `into`; a value that is found
    /// later comes with the ticket.
    pub fn ask(&self, request: &Request<'_>, promise: Promise, ticket: Ticket, now: u64, into: &mut Vec<u8>) -> Reply {
        match self {
            Self::Local(cache) => cache.ask(request, promise, ticket, now, into).map_or(Reply::Later, Reply::Now),
            Self::Remote(engine) => match engine.ask(request, ticket, now) {
                Ok(()) => Reply::Later,
                Err(error) => Reply::Now(Err(error)),
            },
        }
    }

    /// Sends the ticketed requests of the caller's round together. These requests wait for this call.
    pub fn flush(&self) {
        if let Self::Remote(engine) = self {
            engine.flush();
        }
    }

    /// Returns the same cache with connections of the calling thread, if the cache supports such connections; see
    /// [`RemoteEngine::local`].
    pub fn local(&self) -> Option<(Self, Task)> {
        match self {
            Self::Local(_) => None,
            Self::Remote(engine) => engine.local().map(|(own, task)| (Self::Remote(own), task)),
        }
    }

    /// Registers a receiver of tickets.
    pub fn register(&self, receiver: Arc<dyn Receiver>) -> ReceiverId {
        // If there are no receivers, no ticket ever comes back.
        self.receivers().map_or(Ticket::NONE.receiver, |receivers| receivers.register(receiver))
    }

    /// Removes a receiver, which gets no more tickets.
    pub fn deregister(&self, receiver: ReceiverId) {
        if let Some(receivers) = self.receivers() {
            receivers.deregister(receiver);
        }
    }

    fn receivers(&self) -> Option<&Receivers> {
        match self {
            Self::Local(cache) => cache.receivers(),
            Self::Remote(engine) => Some(engine.receivers()),
        }
    }

    /// Returns figures for the log and the metrics.
    pub fn gauges(&self) -> Gauges {
        match self {
            Self::Local(cache) => cache.gauges(),
            Self::Remote(engine) => engine.gauges(),
        }
    }

    /// Returns the figures that only a cache in other processes has; for a local cache they are 0.
    pub fn remote_gauges(&self) -> RemoteGauges {
        match self {
            Self::Local(_) => RemoteGauges::default(),
            Self::Remote(engine) => engine.remote_gauges(),
        }
    }
}
