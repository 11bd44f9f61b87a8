//! Engines: one in this process answers at once, one of another process under a ticket.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use crate::error::CacheError;
use crate::gauges::{Gauges, RemoteGauges};
use crate::local::LocalCache;
use crate::request::{Answer, Promise, Request};
use crate::ticket::{Receiver, ReceiverId, Receivers, Ticket};

/// What a thread runs in its runtime, beside its own work.
pub type Task = Pin<Box<dyn Future<Output = ()>>>;

/// A cache in another process or on another machine. Asking neither blocks nor does I/O: it queues for a thread of the engine's own, which
/// answers within its deadline once the round is [flushed](Self::flush).
pub trait RemoteEngine: Send + Sync {
    /// Queues a request; the ticket comes back once with the answer.
    ///
    /// # Errors
    /// It was not queued, no ticket comes: [`CacheError::Full`] at the bound of the queue, [`CacheError::Unavailable`] without a thread.
    fn ask(&self, request: &Request<'_>, ticket: Ticket, now: u64) -> Result<(), CacheError>;

    /// The requests since the last call leave, together. Cheap where there is none.
    fn flush(&self) {}

    /// Those that get tickets back.
    fn receivers(&self) -> &Receivers;

    /// The same cache for the calling thread alone, which asks it by connections of its own: no other thread is woken for a request or its answer.
    /// It is to run the task in its runtime, one of tokio that takes local tasks, as long as it asks. `None`: all ask by the thread of the engine.
    fn local(&self) -> Option<(Arc<dyn RemoteEngine>, Task)> {
        None
    }

    /// Addresses of its servers to which connections were made.
    fn peers(&self) -> Vec<SocketAddr> {
        Vec::new()
    }

    /// Has messages of a channel heard as long as the engine lives.
    ///
    /// # Errors
    /// [`CacheError::Refused`]: the engine has no channels, or not this one.
    fn subscribe(&self, _channel: &[u8], _subscriber: Arc<dyn Subscriber>) -> Result<(), CacheError> {
        Err(CacheError::Refused)
    }

    /// Figures, as far as it has them.
    fn gauges(&self) -> Gauges;

    /// Figures that only a cache in other processes has.
    fn remote_gauges(&self) -> RemoteGauges {
        RemoteGauges::default()
    }
}

/// Hears what is published on a channel, on a thread of the engine. Does not block.
pub trait Subscriber: Send + Sync {
    /// A message.
    fn published(&self, channel: &[u8], message: &[u8]);

    /// From now on messages are heard; those from before were missed. Also when the subscription begins again, after its server was lost.
    fn began(&self, _channel: &[u8]) {}
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The answer; a value that is found was appended. No ticket comes.
    Now(Result<Answer, CacheError>),
    /// The ticket comes back with it.
    Later,
}

/// A cache of any kind.
#[derive(Clone)]
pub enum Engine {
    /// In this process.
    Local(Arc<LocalCache>),
    /// Elsewhere.
    Remote(Arc<dyn RemoteEngine>),
}

impl Engine {
    /// Asks, without waiting. A value that is found at once is appended to `into`; a later one comes with the ticket.
    pub fn ask(&self, request: &Request<'_>, promise: Promise, ticket: Ticket, now: u64, into: &mut Vec<u8>) -> Reply {
        match self {
            Self::Local(cache) => cache.ask(request, promise, ticket, now, into).map_or(Reply::Later, Reply::Now),
            Self::Remote(engine) => match engine.ask(request, ticket, now) {
                Ok(()) => Reply::Later,
                Err(error) => Reply::Now(Err(error)),
            },
        }
    }

    /// A round of the caller has ended: what it asked under tickets leaves, together. Without it nothing does.
    pub fn flush(&self) {
        if let Self::Remote(engine) = self {
            engine.flush();
        }
    }

    /// The same cache for the calling thread alone, where that can ask it by connections of its own; see [`RemoteEngine::local`].
    pub fn local(&self) -> Option<(Self, Task)> {
        match self {
            Self::Local(_) => None,
            Self::Remote(engine) => engine.local().map(|(own, task)| (Self::Remote(own), task)),
        }
    }

    /// Registers who gets tickets back.
    pub fn register(&self, receiver: Arc<dyn Receiver>) -> ReceiverId {
        // Where there are none no ticket ever comes back.
        self.receivers().map_or(Ticket::NONE.receiver, |receivers| receivers.register(receiver))
    }

    /// Takes a receiver off that is to get no more tickets.
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

    /// Has messages of a channel heard as long as the engine lives.
    ///
    /// # Errors
    /// [`CacheError::Refused`]: the engine has no channels, or not this one. Redis alone has them.
    pub fn subscribe(&self, channel: &[u8], subscriber: Arc<dyn Subscriber>) -> Result<(), CacheError> {
        match self {
            Self::Local(_) => Err(CacheError::Refused),
            Self::Remote(engine) => engine.subscribe(channel, subscriber),
        }
    }

    /// Figures for the log and the metrics.
    pub fn gauges(&self) -> Gauges {
        match self {
            Self::Local(cache) => cache.gauges(),
            Self::Remote(engine) => engine.gauges(),
        }
    }

    /// Figures that only a cache in other processes has; those of a local one are 0.
    pub fn remote_gauges(&self) -> RemoteGauges {
        match self {
            Self::Local(_) => RemoteGauges::default(),
            Self::Remote(engine) => engine.remote_gauges(),
        }
    }
}
