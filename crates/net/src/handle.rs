//! Handle of the shards for other threads of the process.

use crate::balancers::Balancers;
use crate::counters::Snapshot;
use crate::process::{Command, ConnectionOrder, Process};
use crate::shard_pool::Backlog;
use crate::tls::Identities;
use crate::{Bounds, Listener, NetSettings, Service};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use std::time::Duration;
use strowger_core::call;
use strowger_core::{Flow, PeerName, Transport};

pub use crate::process::Handle;

/// Receiver of answers for one shard.
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
    /// Sends an answer to the shard. Wakes the shard only if it sleeps.
    pub fn send(&self, answer: S::ShardMessage) {
        self.process.entries[self.shard].post(Command::Answer(answer));
    }

    /// Returns the number of the shard.
    pub const fn shard(&self) -> usize {
        self.shard
    }
}

impl<S: Service + 'static> Handle<S> {
    /// Returns the mailbox of a shard.
    pub fn mailbox(&self, shard: usize) -> Mailbox<S> {
        assert!(shard < self.process.entries.len());
        Mailbox { process: self.process.clone(), shard }
    }

    /// Returns the runtime outside the shards, for slow work: look-ups, commits, HTTP.
    pub fn services(&self) -> &tokio::runtime::Handle {
        &self.process.services
    }

    /// Returns the listeners as requested at the start of the shards.
    pub fn listeners(&self) -> &[Listener] {
        &self.process.listeners
    }

    /// Returns the bound addresses of the listeners (they differ for port 0).
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.process.addresses
    }

    /// Returns the settings that the shards were started with.
    pub fn settings(&self) -> &NetSettings {
        &self.process.settings
    }

    /// Returns the bounds in force.
    pub fn bounds(&self) -> Arc<Bounds> {
        self.process.bounds.load_full()
    }

    /// Replaces the bounds. Each shard adopts them before its next round, and is woken for that.
    ///
    /// Lower bounds end no connection: until there is room again, no new connection is admitted, no more bytes are held
    /// and no more datagrams are kept; the oldest names are forgotten as new names arrive. An open connection gets the
    /// new time-outs, counted from the same moment as the old time-outs. A connection that is being made is given up at
    /// the latest after the [`connect_timeout`](Bounds::connect_timeout) with which it began.
    pub fn set_bounds(&self, bounds: Bounds) {
        self.process.bounds.store(Arc::new(bounds));
        self.wake_all();
    }

    /// Replaces certificates, keys and authorities: the next handshake in either direction uses them, and resumes no earlier session.
    ///
    /// Open connections continue until they end, also if their peer was verified by an authority that is no longer trusted; [`Handle::close`] ends a
    /// connection earlier.
    ///
    /// # Panics
    /// The identities were loaded for other listeners.
    pub fn set_identities(&self, identities: Identities) {
        assert!(identities.are_for(&self.process.listeners), "the identities are of other listeners");
        self.process.identities.store(Arc::new(identities));
    }

    /// Replaces the balancers by those of these listeners, in the order of [`Handle::listeners`]. Open connections
    /// continue as they began.
    pub fn set_balancers(&self, listeners: &[Listener]) {
        self.process.balancers.store(Arc::new(Balancers::of(listeners)));
    }

    /// Returns the number of shards that own calls now.
    pub fn shards(&self) -> usize {
        self.process.active.load(Acquire)
    }

    /// Returns the largest number of shards.
    pub fn most(&self) -> usize {
        self.process.entries.len()
    }

    /// Divides the calls among `shards` shards, and starts missing threads. Buckets move one by one, while calls
    /// continue. Returns when the moves are requested. Starting a thread blocks, so shards must not call this.
    ///
    /// # Errors
    /// Sockets could not be bound or threads not be started; the calls stay with their owners.
    pub fn set_shards(&self, shards: usize) -> std::io::Result<()> {
        crate::shard_pool::set(&self.process, shards)
    }

    /// Tells whether every bucket has reached its latest destination.
    pub fn is_settled(&self) -> bool {
        crate::shard_pool::is_settled(&self.process)
    }

    /// Returns the bucket of a Call-ID, see [`Handle::deliver`].
    pub fn bucket(&self, call_id: &[u8]) -> u8 {
        call::bucket(call::hash(self.process.settings.secret, call_id))
    }

    /// Returns the shard that owns a bucket, or will after its move.
    pub fn owner(&self, bucket: u8) -> usize {
        self.process.owners[bucket as usize].load(Relaxed) as usize
    }

    /// Sends an answer to the shard that owns this bucket of calls, even if the bucket moves meanwhile.
    pub fn deliver(&self, bucket: u8, answer: S::ShardMessage) {
        let owner = self.process.owners[bucket as usize].load(Relaxed) as usize;
        self.process.entries[owner].post(Command::AnswerTo(bucket, answer));
    }

    /// Directs messages for `address` to this connection, while the connection lives. In RFC 5923 the peer requests
    /// this by an `alias` parameter in its Via; the peer is trusted to be at that address. A connection has only one
    /// such address, the last one. Over TLS this has an effect only if the peer has shown a verified certificate, and
    /// only for messages to peer names that the certificate proves. A connection by a balancer gets no such address: the
    /// peer is not known to be there.
    pub fn alias(&self, flow: Flow, transport: Transport, address: SocketAddr) {
        if flow.is_balanced() {
            return;
        }
        let directory = &self.process.directory;
        // The shard of a secure connection checks the certificate first. Any shard notices the end of a connection.
        let news = match transport.is_secure() {
            true => !directory.is_alias(transport, address, flow),
            false => transport.is_reliable() && directory.add_alias(transport, address, flow),
        };
        if let (true, Some(entry)) = (news, self.process.entries.get(flow.shard as usize)) {
            entry.post(Command::Connection(flow, ConnectionOrder::Alias(transport, address)));
        }
    }

    /// Notes that the service believes the source of the last UDP datagram from this address to be genuine. Requests to
    /// the peer then leave from the local address that received that datagram; a datagram with a forged source does not
    /// change this.
    #[inline]
    pub fn confirm(&self, peer: SocketAddr) {
        self.process.source_addresses.confirm(peer);
    }

    /// Returns the number of a name, for [`Target::name`](strowger_core::Target): connections for it ask for this
    /// server (SNI, Host), whose certificate must be valid for it (RFC 5922). Beyond [`Bounds::names`] the oldest names
    /// are forgotten.
    pub fn name(&self, name: &str) -> PeerName {
        self.process.names.intern(name)
    }

    /// Ends a connection.
    pub fn close(&self, flow: Flow) {
        self.order(flow, ConnectionOrder::Close);
    }

    /// Ends a connection after `longest` milliseconds without a byte of its peer, if they are over by `until`, in milliseconds of
    /// [`Now::mono`](strowger_core::Now::mono): its peer has promised keep-alives (RFC 5626 section 4.4). This replaces an
    /// earlier limit of the connection; `until` = 0 removes it. Until then it also replaces
    /// [`Bounds::idle_timeout`], even a shorter one.
    pub fn limit_silence(&self, flow: Flow, longest: u64, until: u64) {
        self.order(flow, ConnectionOrder::LimitSilence { longest, until });
    }

    fn order(&self, flow: Flow, order: ConnectionOrder) {
        if let Some(entry) = self.process.entries.get(flow.shard as usize) {
            entry.post(Command::Connection(flow, order));
        }
    }

    /// Begins the shutdown: [`Handle::is_draining`] becomes true, and after `deadline` the shards end.
    pub fn drain(&self, deadline: Duration) {
        self.process.draining.store(true, Relaxed);
        let handle = self.clone();
        self.process.services.spawn(async move {
            tokio::time::sleep(deadline).await;
            handle.stop();
        });
    }

    /// Returns the CPU time of the shard's thread; `None` before it runs.
    pub fn busy(&self, shard: usize) -> Option<Duration> {
        crate::shard_pool::cpu_time(self.process.entries[shard].clock.load(Acquire))
    }

    /// Returns how long the oldest unread datagram of the shard had waited when this was last measured; zero if the
    /// shard reads all datagrams that arrive.
    pub fn oldest_datagram(&self, shard: usize) -> Duration {
        Duration::from_micros(self.process.entries[shard].counters.datagram_age.value())
    }

    /// Returns the longest turn of a shard in the last 30 to 60 seconds, including the current one: in a turn it does not receive new messages.
    pub fn longest_turn(&self, shard: usize) -> Duration {
        self.process.entries[shard].turns.longest()
    }

    /// Returns the duration of the shard's current turn; zero if it sleeps.
    pub fn turn(&self, shard: usize) -> Duration {
        self.process.entries[shard].turns.current()
    }

    /// Wakes each shard for a round. If the [`Snapshot::rounds`] of a shard do not change afterwards, the shard is
    /// stuck.
    pub fn wake_all(&self) {
        for entry in &self.process.entries {
            entry.bell.ring();
        }
    }

    /// Wakes one shard for a round, which has a [`Service::end`]: the caller has put something into a queue of its service.
    pub fn wake(&self, shard: usize) {
        self.process.entries[shard].wake();
    }

    /// Tells whether new work should be refused: the process is about to end.
    pub fn is_draining(&self) -> bool {
        self.process.draining.load(Relaxed)
    }

    /// Returns the counters and gauges of one shard.
    pub fn counters(&self, shard: usize) -> Snapshot {
        self.process.entries[shard].counters.snapshot()
    }

    /// Returns the sums of the counters of all shards.
    pub fn total(&self) -> Snapshot {
        let mut sum = Snapshot::default();
        for entry in &self.process.entries {
            sum += entry.counters.snapshot();
        }
        sum
    }

    /// Returns for each UDP socket the bytes that wait in the kernel, and the datagrams that the kernel dropped.
    pub fn backlogs(&self) -> Vec<Backlog> {
        crate::shard_pool::backlogs(&self.process)
    }

    /// Ends the shards immediately.
    pub fn stop(&self) {
        self.process.stop();
    }
}
