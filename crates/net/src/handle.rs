//! What the rest of the process holds of the shards.

use crate::bell::Bell;
use crate::counters::{Counters, Snapshot};
use crate::{Listener, Service, Settings};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex};

/// Everything that the shards of one process share.
pub(crate) struct Shared<S: Service> {
    pub(crate) settings: Settings,
    pub(crate) listeners: Vec<Listener>,
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) seats: Box<[Seat<S>]>,
    /// Shards that own calls: the first so many seats.
    pub(crate) active: AtomicUsize,
    pub(crate) draining: AtomicBool,
    pub(crate) stopping: AtomicBool,
    pub(crate) services: tokio::runtime::Handle,
}

/// What others reach of one shard.
pub(crate) struct Seat<S: Service> {
    pub(crate) bell: Bell,
    pub(crate) counters: Counters,
    /// Something lies in `posted`.
    pub(crate) mail: AtomicBool,
    pub(crate) posted: Mutex<Vec<Letter<S>>>,
}

/// What comes to a shard from outside the shards.
pub(crate) enum Letter<S: Service> {
    Answer(S::Answer),
}

impl<S: Service> Default for Seat<S> {
    fn default() -> Self {
        Self { bell: Bell::default(), counters: Counters::default(), mail: AtomicBool::new(false), posted: Mutex::default() }
    }
}

impl<S: Service> Seat<S> {
    pub(crate) fn post(&self, letter: Letter<S>) {
        {
            let mut posted = self.posted.lock().unwrap_or_else(|e| e.into_inner());
            posted.push(letter);
            self.mail.store(true, Release);
        }
        self.bell.ring();
    }
}

/// The running shards, for whoever stands beside them. Cheap to clone, may go to any thread.
pub struct Handle<S: Service> {
    pub(crate) shared: Arc<Shared<S>>,
}

impl<S: Service> Clone for Handle<S> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

/// Where answers for one shard are put.
pub struct Mailbox<S: Service> {
    shared: Arc<Shared<S>>,
    shard: usize,
}

impl<S: Service> Clone for Mailbox<S> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone(), shard: self.shard }
    }
}

impl<S: Service> Mailbox<S> {
    /// Gives an answer to the shard; it is woken only if it sleeps.
    pub fn send(&self, answer: S::Answer) {
        self.shared.seats[self.shard].post(Letter::Answer(answer));
    }

    pub const fn shard(&self) -> usize {
        self.shard
    }
}

impl<S: Service> Handle<S> {
    /// The mailbox of a shard.
    pub fn mailbox(&self, shard: usize) -> Mailbox<S> {
        assert!(shard < self.shared.seats.len());
        Mailbox { shared: self.shared.clone(), shard }
    }

    /// The runtime beside the shards, for what is slow: look-ups, commits, HTTP.
    pub fn services(&self) -> &tokio::runtime::Handle {
        &self.shared.services
    }

    /// The listeners as they were asked for.
    pub fn listeners(&self) -> &[Listener] {
        &self.shared.listeners
    }

    /// The addresses on which the listeners really listen (they differ where port 0 was asked for).
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.shared.addresses
    }

    pub fn settings(&self) -> &Settings {
        &self.shared.settings
    }

    /// Shards that own calls now.
    pub fn shards(&self) -> usize {
        self.shared.active.load(Acquire)
    }

    /// New work should be refused: the process is about to end.
    pub fn is_draining(&self) -> bool {
        self.shared.draining.load(Relaxed)
    }

    /// The counters of one shard.
    pub fn counters(&self, shard: usize) -> Snapshot {
        self.shared.seats[shard].counters.snapshot()
    }

    /// The counters of all shards.
    pub fn total(&self) -> Snapshot {
        let mut sum = Snapshot::default();
        for seat in &self.shared.seats {
            sum += seat.counters.snapshot();
        }
        sum
    }

    /// Ends the shards at once.
    pub fn stop(&self) {
        self.shared.stopping.store(true, Release);
        for seat in &self.shared.seats {
            seat.bell.ring();
        }
    }
}
