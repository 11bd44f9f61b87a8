//! One generator, or the answering side: a shard with sockets of its own.

use super::sockets::{Bound, Handshakes};
use crate::engine::helper::Helper;
use crate::engine::run::Run;
use crate::engine::script::Script;
use crate::engine::sipp_stats::SippStats;
use crate::engine::traffic::{Event, Following, ShardCommand, Traffic};
use crate::engine::watch::Watch;
use crate::media::Plane;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use strowger_core::PeerName;
use strowger_measure::{ReceiveBuffer, ShardRecorder};
use strowger_net::{DedicatedSockets, Node, Snapshot};

/// Values that move to the thread of a shard when it starts.
type Parts = (ShardRecorder, Sender<Event>, Option<Box<dyn Watch>>);

/// A running side.
pub(super) struct Side {
    node: Node<Traffic>,
    pub(super) events: Receiver<Event>,
    /// Final counts, once the side has ended.
    pub(super) stats: Option<SippStats>,
    pub(super) address: SocketAddr,
    steps: SippStats,
    pub(super) handshakes: Handshakes,
    /// Media, which stop when they are dropped.
    plane: Option<Plane>,
    /// Name that the target must prove by TLS.
    peer: Option<PeerName>,
}

/// Role of a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Makes calls. The side is number `index` of the `count` callers of its document, and number `place` of `all` callers.
    Caller {
        index: usize,
        count: usize,
        place: usize,
        all: usize,
    },
    Answerer,
    /// Registers, and answers calls on the same socket: a registrar may send calls to the source address of a REGISTER.
    Receiver,
}

impl Part {
    /// Creates the caller of a run with one document.
    pub(super) const fn caller(index: usize, count: usize) -> Self {
        Self::Caller { index, count, place: index, all: count }
    }
}

impl Side {
    /// Starts a side that begins as soon as its thread runs, or with [`ShardCommand::Begin`] if it `waits`.
    pub(super) fn start(
        bound: Bound,
        run: Run,
        recorder: ShardRecorder,
        watch: Option<Box<dyn Watch>>,
        waits: bool,
    ) -> Result<Self, String> {
        Self::spawn(bound, run, recorder, watch, waits)
    }

    /// Starts a side that begins with [`ShardCommand::Begin`] and reports to `watch`.
    pub(super) fn prepare(
        bound: Bound,
        mut run: Run,
        recorder: ShardRecorder,
        watch: Box<dyn Watch>,
    ) -> Result<Self, String> {
        // The certificate of the target must prove this name.
        run.peer = Some(&*run.target_host).filter(|host| !host.is_empty()).map(|host| bound.net.name(host));
        Self::spawn(bound, run, recorder, Some(watch), true)
    }

    fn spawn(
        bound: Bound,
        mut run: Run,
        recorder: ShardRecorder,
        watch: Option<Box<dyn Watch>>,
        waits: bool,
    ) -> Result<Self, String> {
        let plane = run.start_media().map_err(|error| error.to_string())?;
        let legs = Mutex::new(plane.as_ref().map(Plane::legs));
        let peer = run.peer;
        let run = Arc::new(run);
        let scenario = run.scenario.clone();
        let script = Arc::new(Script::new(scenario.clone(), &run));
        let answers = run.out_of_call.as_ref().map(|scenario| Arc::new(Script::new(scenario.clone(), &run)));
        let (events_out, events) = channel();
        let parts: Mutex<Option<Parts>> = Mutex::new(Some((recorder, events_out, watch)));
        let node = bound
            .net
            .spawn_with_sockets(move |shard, handle| {
                let parts = parts.lock().unwrap_or_else(|e| e.into_inner()).take();
                let (recorder, events, watch) = parts.expect("one shard is started, once");
                let legs = legs.lock().unwrap_or_else(|e| e.into_inner()).take();
                let mailbox = handle.mailbox(shard);
                let helper = Helper::new(move |answer| mailbox.send(ShardCommand::Helped(answer)));
                let traffic = Traffic::new(run.clone(), script.clone(), answers.clone(), recorder, events, helper);
                let sockets = DedicatedSockets::new(&handle, shard, run.sockets.most);
                let traffic = traffic.watched(watch).with_media(legs).with_sockets(sockets);
                if waits { traffic.waiting() } else { traffic }
            })
            .map_err(|error| format!("a thread cannot be started: {error}"))?;
        let steps = SippStats::new(&scenario);
        let Bound { address, handshakes, .. } = bound;
        Ok(Self { node, events, stats: None, address, steps, handshakes, plane, peer })
    }

    /// Makes the calls of `run` before the schedule, on the sockets of the side. Returns their events.
    pub(super) fn begin_ahead(&self, mut run: Run, recorder: ShardRecorder) -> Receiver<Event> {
        run.peer = self.peer;
        let run = Arc::new(run);
        let script = Arc::new(Script::new(run.scenario.clone(), &run));
        let (told, events) = channel();
        self.send_command(ShardCommand::Ahead(Box::new(Following { run, script, recorder, events: told })));
        events
    }

    pub(super) fn send_command(&self, command: ShardCommand) {
        self.node.handle().mailbox(0).send(command);
    }

    /// Waits until all earlier commands are done, for half a second at most: the shard handles commands in sequence.
    pub(super) fn settle(&self) {
        self.report();
    }

    /// Returns the present counts. If the shard does not answer in time, returns the counts of the start.
    pub(super) fn report(&self) -> SippStats {
        if let Some(stats) = &self.stats {
            return stats.clone();
        }
        let (to, from) = sync_channel(1);
        self.send_command(ShardCommand::Report(to));
        from.recv_timeout(Duration::from_millis(500)).unwrap_or_else(|_| self.steps.clone())
    }

    pub(super) fn counters(&self) -> Snapshot {
        self.node.handle().total()
    }

    /// Returns the time limit for connecting.
    pub(super) fn connect_timeout(&self) -> Duration {
        self.node.handle().bounds().connect_timeout
    }

    /// Returns the number of datagrams, media included, that the kernel dropped before they were read. The drops of a dedicated socket of a
    /// call or user are included after the socket is closed.
    pub(super) fn drops(&self) -> u64 {
        self.drops_of_shared_sockets() + self.counters().dedicated_drops
    }

    fn drops_of_shared_sockets(&self) -> u64 {
        let of_listener: u64 = self.node.handle().backlogs().iter().map(|backlog| u64::from(backlog.dropped)).sum();
        of_listener + self.plane.as_ref().map_or(0, Plane::drops)
    }

    /// Ends the thread and closes its sockets. Returns the final counters, and the datagrams dropped at all sockets.
    pub(super) fn end(self) -> (Snapshot, u64) {
        let (handle, dropped) = (self.node.handle().clone(), self.drops_of_shared_sockets());
        drop(self);
        let counters = handle.total();
        (counters, dropped + counters.dedicated_drops)
    }

    pub(super) fn receive_buffer(&self) -> Option<ReceiveBuffer> {
        let asked = self.node.handle().settings().udp.receive_buffer as u64;
        let backlog = self.node.handle().backlogs().into_iter().next()?;
        Some(ReceiveBuffer { socket: self.address.to_string(), asked, got: u64::from(backlog.buffer) / 2 })
    }
}
