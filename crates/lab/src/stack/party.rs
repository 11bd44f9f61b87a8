//! A side of the measurement on its shards.

use super::layer::{Layer, Tally};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use strowger_core::user_agent::EndpointRecord;
use strowger_core::{Arrival, Flow, ListenerId, Now, Outbox, Target, Transport};
use strowger_net::dedicated::{DedicatedSockets, SocketRequest};
use strowger_net::{Handle, Service, ServiceWithSockets};

/// Maximum number of connections of a calling side: both ends are in one process, which may have 1,024 descriptors. The kernel
/// assigns each answering end to some shard, so that many connections are spread evenly.
const CONNECTIONS: usize = 256;

/// Command to a shard of a party.
#[derive(Clone, Copy, Debug)]
pub(super) enum PartyCommand {
    /// Begin this number of exchanges, and another one for each that ends.
    Begin(u32),
    /// Begin no more.
    Stop,
}

/// Content of a bucket that moves to another shard.
pub(super) struct Record {
    bucket: u8,
    endpoint: Option<EndpointRecord>,
}

/// Exchanges of a shard that calls. Alone on its cache lines: other shards count theirs at the same time.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Counts {
    pub(super) begun: AtomicU64,
    pub(super) completed: AtomicU64,
    pub(super) failed: AtomicU64,
}

/// Part of a side in one shard.
pub(super) struct Party {
    pub(super) layer: Box<dyn Layer>,
    pub(super) handle: Handle<Self>,
    pub(super) shard: usize,
    pub(super) transport: Transport,
    pub(super) peer: SocketAddr,
    /// Counts of all shards.
    pub(super) counts: Arc<[Counts]>,
    pub(super) calling: Calling,
}

/// State of a side that calls.
#[derive(Default)]
pub(super) struct Calling {
    is_running: bool,
    sockets: Option<DedicatedSockets>,
    targets: Vec<Target>,
    /// Target of the next exchange that follows none.
    next: usize,
    /// Exchanges of this round: begun, and ended.
    begun: u64,
    tally: Tally,
}

impl Party {
    /// Begins exchanges: over the connection of the exchange that they follow, otherwise over each connection in turn.
    fn begin(&mut self, now: Now, count: u32, follows: Option<Flow>, out: &mut Outbox) {
        for _ in 0..count {
            let Some(target) = self.calling.targets.get(self.calling.next) else { return };
            if follows.is_some() {
                self.layer.begin(now, &Target { flow: follows, ..*target }, out);
            } else {
                self.layer.begin(now, target, out);
                self.calling.next = (self.calling.next + 1) % self.calling.targets.len();
            }
            self.calling.begun += 1;
        }
    }

    /// Counts exchanges that ended, and begins the same number of exchanges. `over`: the connection over which they
    /// ended.
    #[inline]
    fn tally(&mut self, now: Now, ended: Tally, over: Option<Flow>, out: &mut Outbox) {
        let count = ended.completed + ended.failed;
        if count > 0 {
            self.calling.tally.completed += ended.completed;
            self.calling.tally.failed += ended.failed;
            if self.calling.is_running {
                let is_own = |flow: &Flow| usize::from(flow.shard) == self.shard;
                self.begin(now, count, over.filter(is_own), out);
            }
        }
    }

    /// Finds the targets of the exchanges: the listener of the peer, or one connection for each exchange, as telephones have. Exchanges
    /// on a shared connection share its system calls: if one thread works on all of them at the same time, a call costs half, and the
    /// figures would compare connections instead of threads.
    fn aim(&mut self, exchanges: u32) {
        let target = Target::new(self.transport, ListenerId(0), self.peer);
        if self.transport == Transport::Udp {
            self.calling.targets = vec![target];
            return;
        }
        let most = (CONNECTIONS / self.counts.len()).max(1);
        let connections = most.min(exchanges as usize);
        let sockets = DedicatedSockets::new(&self.handle, self.shard, connections);
        let sockets = self.calling.sockets.insert(sockets);
        let request = SocketRequest {
            transport: self.transport,
            listener: ListenerId(0),
            from: SocketAddr::new(self.peer.ip(), 0),
            to: self.peer,
            name: None,
        };
        let open = |_| sockets.open(request).ok().map(|opened| Target { flow: Some(opened.flow), ..target });
        self.calling.targets = (0..connections).filter_map(open).collect();
    }
}

impl Service for Party {
    type ShardMessage = PartyCommand;
    type Record = Record;

    #[inline]
    fn end(&mut self, _: Now, _: &mut Outbox) {
        let calling = &mut self.calling;
        let ended = std::mem::take(&mut calling.tally);
        let begun = std::mem::take(&mut calling.begun);
        if begun > 0 || ended != Tally::default() {
            let counts = &self.counts[self.shard];
            counts.begun.fetch_add(begun, Relaxed);
            counts.completed.fetch_add(ended.completed.into(), Relaxed);
            counts.failed.fetch_add(ended.failed.into(), Relaxed);
        }
    }

    fn receive(&mut self, now: Now, arrival: &Arrival, bytes: &[u8], out: &mut Outbox) {
        let ended = self.layer.receive(now, arrival, bytes, out);
        self.tally(now, ended, arrival.flow, out);
    }

    fn poll(&mut self, now: Now, out: &mut Outbox) {
        let ended = self.layer.poll(now, out);
        self.tally(now, ended, None, out);
    }

    fn deadline(&mut self) -> Option<u64> {
        self.layer.deadline()
    }

    fn answered(&mut self, now: Now, command: PartyCommand, out: &mut Outbox) {
        match command {
            PartyCommand::Begin(count) => {
                self.calling.is_running = true;
                self.aim(count);
                self.begin(now, count, None, out);
            }
            PartyCommand::Stop => self.calling.is_running = false,
        }
    }

    fn failed(&mut self, now: Now, token: u64, out: &mut Outbox) {
        let ended = self.layer.failed(now, token, out);
        self.tally(now, ended, None, out);
    }

    fn closed(&mut self, _: Now, _: Flow, _: &mut Outbox) {}

    fn export(&mut self, now: Now, bucket: u8) -> Vec<Record> {
        vec![Record { bucket, endpoint: self.layer.export(now, bucket) }]
    }

    fn import(&mut self, now: Now, record: Record, _: &mut Outbox) {
        self.layer.import(now, record.bucket, record.endpoint);
    }
}

impl ServiceWithSockets for Party {
    fn sockets(&mut self) -> Option<&mut DedicatedSockets> {
        self.calling.sockets.as_mut()
    }
}
