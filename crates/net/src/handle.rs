//! What the rest of the process holds of the shards.

use crate::bell::Bell;
use crate::counters::{Counters, Snapshot};
use crate::directory::Directory;
use crate::failure::Failure;
use crate::links::Transfer;
use crate::peer_names::PeerNames;
use crate::ring::{Consumer, Producer};
use crate::shard_pool::{Backlog, ShardPool};
use crate::source_addresses::SourceAddresses;
use crate::sources::Sources;
use crate::tls::Identities;
use crate::turns::Turns;
use crate::{Bounds, Listener, NetSettings, Service, bounds};
use arc_swap::ArcSwap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use strowger_core::call::{self, BUCKETS};
use strowger_core::{Flow, PeerName, Transport};

/// Everything that the shards of one process share.
pub(crate) struct Process<S: Service> {
    pub(crate) network: Arc<Network>,
    pub(crate) entries: Box<[ShardEntry<S>]>,
    /// Shards that own calls, or will once the buckets have moved: the first so many entries.
    pub(crate) active: AtomicUsize,
    /// Whose each bucket is, for those beside the shards: right but for buckets that move just now.
    pub(crate) owners: [AtomicU8; BUCKETS],
    pub(crate) draining: AtomicBool,
    pub(crate) stopping: AtomicBool,
    /// Why they end, if it was not asked for.
    pub(crate) failure: tokio::sync::watch::Sender<Option<Failure>>,
    pub(crate) services: tokio::runtime::Handle,
    pub(crate) pool: Mutex<ShardPool<S>>,
}

/// The part of it that knows nothing of the service.
pub(crate) struct Network {
    pub(crate) settings: NetSettings,
    pub(crate) listeners: Vec<Listener>,
    pub(crate) addresses: Vec<SocketAddr>,
    /// Of handshakes that begin from now on.
    pub(crate) identities: ArcSwap<Identities>,
    pub(crate) bounds: bounds::Current,
    pub(crate) directory: Directory,
    pub(crate) sources: Sources,
    pub(crate) source_addresses: Arc<SourceAddresses>,
    pub(crate) names: Arc<PeerNames>,
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

/// Entry of one shard for other threads, alone on its cache lines: the shard writes it in each round.
#[repr(align(128))]
pub(crate) struct ShardEntry<S: Service> {
    pub(crate) bell: Bell,
    pub(crate) counters: Arc<Counters>,
    pub(crate) turns: Turns,
    /// Something lies in `commands`.
    pub(crate) has_commands: AtomicBool,
    pub(crate) commands: Mutex<Vec<Command<S>>>,
    /// Peers whose rings the shard has taken.
    pub(crate) links_taken: AtomicUsize,
    /// The clock of the thread's CPU time, 0 before it runs.
    pub(crate) clock: AtomicI32,
}

/// What comes to a shard from outside the shards.
pub(crate) enum Command<S: Service> {
    Answer(S::Answer),
    /// For a call of this bucket.
    AnswerTo(u8, S::Answer),
    /// A new shard and the rings there and back.
    Peer(usize, Producer<Transfer<S>>, Consumer<Transfer<S>>),
    /// This connection shall end.
    Close(Flow),
    /// Messages to this address go over that connection as long as it lives.
    Alias(Flow, Transport, SocketAddr),
    /// So many shards share the buckets from now on.
    Share(usize),
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
    pub(crate) fn post(&self, command: Command<S>) {
        {
            let mut commands = self.commands.lock().unwrap_or_else(|e| e.into_inner());
            commands.push(command);
            self.has_commands.store(true, Release);
        }
        self.bell.ring();
    }
}

/// The running shards, for the threads beside them. Cheap to clone, may go to any thread.
pub struct Handle<S: Service> {
    pub(crate) process: Arc<Process<S>>,
}

impl<S: Service> Clone for Handle<S> {
    fn clone(&self) -> Self {
        Self { process: self.process.clone() }
    }
}

/// Where answers for one shard are put.
pub struct Mailbox<S: Service> {
    process: Arc<Process<S>>,
    shard: usize,
}

impl<S: Service> Clone for Mailbox<S> {
    fn clone(&self) -> Self {
        Self { process: self.process.clone(), shard: self.shard }
    }
}

impl<S: Service> Mailbox<S> {
    /// Gives an answer to the shard; it is woken only if it sleeps.
    pub fn send(&self, answer: S::Answer) {
        self.process.entries[self.shard].post(Command::Answer(answer));
    }

    /// Its number.
    pub const fn shard(&self) -> usize {
        self.shard
    }
}

impl<S: Service + 'static> Handle<S> {
    /// The mailbox of a shard.
    pub fn mailbox(&self, shard: usize) -> Mailbox<S> {
        assert!(shard < self.process.entries.len());
        Mailbox { process: self.process.clone(), shard }
    }

    /// The runtime beside the shards, for what is slow: look-ups, commits, HTTP.
    pub fn services(&self) -> &tokio::runtime::Handle {
        &self.process.services
    }

    /// The listeners as they were asked for when the shards began.
    pub fn listeners(&self) -> &[Listener] {
        &self.process.listeners
    }

    /// The addresses on which the listeners really listen (they differ where port 0 was asked for).
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.process.addresses
    }

    /// What the shards were started with.
    pub fn settings(&self) -> &NetSettings {
        &self.process.settings
    }

    /// The bounds in force.
    pub fn bounds(&self) -> Arc<Bounds> {
        self.process.bounds.load_full()
    }

    /// Puts other bounds in force. Each shard takes them before its next round, and is woken for that.
    ///
    /// Nothing ends because it is more than the new bounds allow: no new connection is admitted, no more bytes are held and no more
    /// datagrams are kept until there is room again; of the names the oldest are forgotten as new ones come. A connection that stands
    /// has the new timeouts, counted from the moment from which the old ones were; one that is being made is given up after the
    /// [`connect_timeout`](Bounds::connect_timeout) that it began with, at the latest.
    pub fn set_bounds(&self, bounds: Bounds) {
        self.process.bounds.store(Arc::new(bounds));
        self.wake_all();
    }

    /// Puts other certificates, keys and authorities in force: the next handshake of either direction uses them, and resumes no session
    /// of those before.
    ///
    /// Connections that stand go on until they end, also those whose peer was verified by an authority that is no longer trusted;
    /// [`Handle::close`] ends a connection earlier.
    ///
    /// # Panics
    /// They were loaded for other listeners.
    pub fn set_identities(&self, identities: Identities) {
        assert!(identities.are_for(&self.process.listeners), "the identities are of other listeners");
        self.process.identities.store(Arc::new(identities));
    }

    /// Shards that own calls now.
    pub fn shards(&self) -> usize {
        self.process.active.load(Acquire)
    }

    /// How many shards there can be.
    pub fn most(&self) -> usize {
        self.process.entries.len()
    }

    /// Shares the calls among `shards` shards from now on, starting threads that are missing; buckets move one
    /// by one, while calls go on. Returns when the moves are asked for. Blocks for the start of a thread: not to
    /// be called on a shard.
    ///
    /// # Errors
    /// Sockets could not be bound or threads not be started; the calls stay where they are.
    pub fn set_shards(&self, shards: usize) -> std::io::Result<()> {
        crate::shard_pool::set(&self.process, shards)
    }

    /// Every bucket has reached the shard that it was last meant for.
    pub fn is_settled(&self) -> bool {
        crate::shard_pool::is_settled(&self.process)
    }

    /// The bucket of a Call-ID, see [`Handle::deliver`].
    pub fn bucket(&self, call_id: &[u8]) -> u8 {
        call::bucket(call::hash(self.process.settings.secret, call_id))
    }

    /// The shard that owns a bucket, or will once it has moved.
    pub fn owner(&self, bucket: u8) -> usize {
        self.process.owners[bucket as usize].load(Relaxed) as usize
    }

    /// Gives an answer to the shard that owns this bucket of calls, also if the bucket moves meanwhile.
    pub fn deliver(&self, bucket: u8, answer: S::Answer) {
        let owner = self.process.owners[bucket as usize].load(Relaxed) as usize;
        self.process.entries[owner].post(Command::AnswerTo(bucket, answer));
    }

    /// Messages to `address` go over this connection from now on, while it lives (RFC 5923: the peer asked for it by
    /// an `alias` parameter in its Via, and is trusted to be at that address). A connection has one such address: the
    /// last. By TLS only if the peer has shown a certificate that was verified, and only messages for peers that it is valid for.
    pub fn alias(&self, flow: Flow, transport: Transport, address: SocketAddr) {
        let directory = &self.process.directory;
        // A secure one is looked at by its shard first; any shard knows when a connection ends, or that it has.
        let news = match transport.is_secure() {
            true => !directory.is_alias(transport, address, flow),
            false => transport.is_reliable() && directory.add_alias(transport, address, flow),
        };
        if let (true, Some(entry)) = (news, self.process.entries.get(flow.shard as usize)) {
            entry.post(Command::Alias(flow, transport, address));
        }
    }

    /// What came last from this address by UDP was of the peer that is there, as far as the service can know. So requests to it leave from
    /// the address that this came to; one whose source was forged does not change that.
    #[inline]
    pub fn confirm(&self, peer: SocketAddr) {
        self.process.source_addresses.confirm(peer);
    }

    /// The number of a name, for [`Target::name`](strowger_core::Target): connections for it ask for this server (SNI,
    /// Host), whose certificate must be valid for it (RFC 5922). The oldest of more than
    /// [`Bounds::names`] are forgotten.
    pub fn name(&self, name: &str) -> PeerName {
        self.process.names.intern(name)
    }

    /// Ends a connection.
    pub fn close(&self, flow: Flow) {
        if let Some(entry) = self.process.entries.get(flow.shard as usize) {
            entry.post(Command::Close(flow));
        }
    }

    /// From now on [`Handle::is_draining`] is true; after `deadline` the shards end.
    pub fn drain(&self, deadline: Duration) {
        self.process.draining.store(true, Relaxed);
        let handle = self.clone();
        self.process.services.spawn(async move {
            tokio::time::sleep(deadline).await;
            handle.stop();
        });
    }

    /// CPU time that the shard's thread has used so far; none before it runs.
    pub fn busy(&self, shard: usize) -> Option<Duration> {
        crate::shard_pool::cpu_time(self.process.entries[shard].clock.load(Acquire))
    }

    /// How long the oldest datagram has waited that a shard has not read, as of its last look; nothing where it reads all that comes.
    pub fn oldest_datagram(&self, shard: usize) -> Duration {
        Duration::from_micros(self.process.entries[shard].counters.datagram_age.value())
    }

    /// The longest turn of a shard in the last 30 to 60 seconds, one that goes on included: for so long it did not look at what had come.
    pub fn longest_turn(&self, shard: usize) -> Duration {
        self.process.entries[shard].turns.longest()
    }

    /// How long the turn has lasted that a shard is in; nothing where it rests.
    pub fn turn(&self, shard: usize) -> Duration {
        self.process.entries[shard].turns.current()
    }

    /// Wakes each shard for a round: one whose [`Snapshot::rounds`] stay as they are after this does not work.
    pub fn wake_all(&self) {
        for entry in &self.process.entries {
            entry.bell.ring();
        }
    }

    /// New work should be refused: the process is about to end.
    pub fn is_draining(&self) -> bool {
        self.process.draining.load(Relaxed)
    }

    /// The counters and gauges of one shard.
    pub fn counters(&self, shard: usize) -> Snapshot {
        self.process.entries[shard].counters.snapshot()
    }

    /// The counters of all shards.
    pub fn total(&self) -> Snapshot {
        let mut sum = Snapshot::default();
        for entry in &self.process.entries {
            sum += entry.counters.snapshot();
        }
        sum
    }

    /// What waits in the kernel before each UDP socket, and what it dropped.
    pub fn backlogs(&self) -> Vec<Backlog> {
        crate::shard_pool::backlogs(&self.process)
    }

    /// Ends the shards at once.
    pub fn stop(&self) {
        self.process.stop();
    }
}
