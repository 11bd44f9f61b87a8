//! State that the shards of one process and the handles of other threads share.

use crate::Service;
use crate::bell::Bell;
use crate::counters::Counters;
use crate::failure::Failure;
use crate::links::{Links, Transfer};
use crate::listen_socket::{ListenSocket, Origin};
use crate::network::Network;
use crate::ring::{Consumer, Producer};
use crate::turns::Turns;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicUsize, Ordering::*};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use strowger_core::call::BUCKETS;
use strowger_core::{Flow, ListenerId, Transport};

/// State that the shards of one process share.
pub(crate) struct Process<S: Service> {
    pub(crate) network: Arc<Network>,
    pub(crate) entries: Box<[ShardEntry<S>]>,
    /// Number of shards that own calls, or will after the moves: the first entries.
    pub(crate) active: AtomicUsize,
    /// Owner of each bucket, for other threads: exact except for buckets that are moving.
    pub(crate) owners: [AtomicU8; BUCKETS],
    pub(crate) draining: AtomicBool,
    pub(crate) stopping: AtomicBool,
    /// Reason for an unrequested end.
    pub(crate) failure: tokio::sync::watch::Sender<Option<Failure>>,
    pub(crate) services: tokio::runtime::Handle,
    pub(crate) pool: Mutex<ShardPool<S>>,
}

impl<S: Service> Process<S> {
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Release);
        for entry in &self.entries {
            entry.bell.ring();
        }
    }
}

impl<S: Service> std::ops::Deref for Process<S> {
    type Target = Network;

    fn deref(&self) -> &Network {
        &self.network
    }
}

/// Entry of one shard for other threads, on its own cache lines: the shard writes it in each round.
#[repr(align(128))]
pub(crate) struct ShardEntry<S: Service> {
    pub(crate) bell: Bell,
    pub(crate) counters: Arc<Counters>,
    pub(crate) turns: Turns,
    /// True: `commands` is not empty.
    pub(crate) has_commands: AtomicBool,
    pub(crate) commands: Mutex<Vec<Command<S>>>,
    /// Number of peers whose rings the shard has taken.
    pub(crate) links_taken: AtomicUsize,
    /// Clock of the thread's CPU time; 0 before it runs.
    pub(crate) clock: AtomicI32,
}

/// Input of a shard from outside the shards.
pub(crate) enum Command<S: Service> {
    Answer(S::ShardMessage),
    /// Answer for a call of this bucket.
    AnswerTo(u8, S::ShardMessage),
    /// A new shard, and the rings to and from it.
    Peer(usize, Producer<Transfer<S>>, Consumer<Transfer<S>>),
    /// Change this connection.
    Connection(Flow, ConnectionOrder),
    /// Share the buckets among this many shards from now on.
    Share(usize),
}

/// Order about a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ConnectionOrder {
    /// End the connection.
    Close,
    /// Direct messages for this address to the connection, while it lives.
    Alias(Transport, SocketAddr),
    /// Limit the silence of the peer, in milliseconds, until this time.
    LimitSilence { longest: u64, until: u64 },
}

impl<S: Service> Default for ShardEntry<S> {
    fn default() -> Self {
        Self {
            bell: Bell::default(),
            counters: Arc::default(),
            turns: Turns::default(),
            has_commands: AtomicBool::new(false),
            commands: Mutex::default(),
            links_taken: AtomicUsize::new(0),
            clock: AtomicI32::new(0),
        }
    }
}

impl<S: Service> ShardEntry<S> {
    /// Makes the shard begin a round, without a command.
    pub(crate) fn wake(&self) {
        {
            // The lock orders this flag before or after the one that the shard clears.
            let _commands = self.commands.lock().unwrap_or_else(|e| e.into_inner());
            self.has_commands.store(true, Release);
        }
        self.bell.ring();
    }

    pub(crate) fn post(&self, command: Command<S>) {
        {
            let mut commands = self.commands.lock().unwrap_or_else(|e| e.into_inner());
            commands.push(command);
            self.has_commands.store(true, Release);
        }
        self.bell.ring();
    }
}

/// Running shards, for other threads. Cheap to clone, may go to any thread.
pub struct Handle<S: Service> {
    pub(crate) process: Arc<Process<S>>,
}

impl<S: Service> Clone for Handle<S> {
    fn clone(&self) -> Self {
        Self { process: self.process.clone() }
    }
}

/// Creates the service of a shard.
pub(crate) type Factory<S> = Box<dyn Fn(usize, Handle<S>) -> S + Send + Sync>;

/// Body of a shard's thread: [`run`](crate::shard_pool::run) with the extension of its services.
pub(crate) type ThreadBody<S> = fn(Startup<S>, Arc<Factory<S>>, &SyncSender<io::Result<()>>) -> io::Result<()>;

/// Input of a shard at its start.
pub(crate) struct Startup<S: Service> {
    pub(crate) process: Arc<Process<S>>,
    pub(crate) index: usize,
    pub(crate) owner: [u8; BUCKETS],
    pub(crate) sockets: Vec<(ListenSocket, Origin)>,
    pub(crate) links: Links<S>,
}

/// Threads of the shards.
pub(crate) struct ShardPool<S: Service> {
    /// Number of shards ever started; none ends before the process does.
    pub(crate) started: usize,
    pub(crate) threads: Vec<JoinHandle<()>>,
    /// `None` after the shards have ended: it may own references to the shards.
    pub(crate) factory: Option<Arc<Factory<S>>>,
    pub(crate) run: ThreadBody<S>,
    /// All sockets of all listeners.
    pub(crate) open_listeners: Vec<OpenListener>,
}

/// Socket of one listener and shard.
pub(crate) struct OpenListener {
    pub(crate) listener: ListenerId,
    pub(crate) shard: usize,
    pub(crate) socket: ListenSocket,
    pub(crate) origin: Origin,
}
