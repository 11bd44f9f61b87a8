//! Dispatcher of a shard: gives each message to its service or to another shard.

use crate::buckets::{Buckets, Placement};
use crate::counters::Counters;
use crate::dedicated::DedicatedSockets;
use crate::extension::Extension;
use crate::links::{Content, Links};
use crate::process::{Command, ConnectionOrder, Process};
use crate::sender::Sender;
use crate::service::Service;
use crate::timestamp::{ClockReading, Clocks};
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use strowger_core::call::BUCKETS;
use strowger_core::{Arrival, Flow, Now, Outbox, Target};
use strowger_message::scan;

pub(crate) struct Dispatcher<S: Service, X: Extension<S>> {
    /// State of all shards. Clones stay within the shard, so that they do not write the reference count that all shards share.
    #[expect(clippy::redundant_allocation, reason = "a second count, of this shard alone")]
    pub(crate) process: Rc<Arc<Process<S>>>,
    pub(crate) index: usize,
    pub(crate) service: S,
    pub(crate) out: Outbox,
    /// Messages of other shards for connections of this one; their bytes are in `out` too.
    pub(crate) foreign_sends: Vec<ForeignSend>,
    /// Orders about connections.
    pub(crate) connection_orders: Vec<(Flow, ConnectionOrder)>,
    pub(crate) links: Links<S>,
    buckets: Buckets,
    held: VecDeque<(u8, Held<S>)>,
    /// Fences of this round and of earlier ones: old owner, bucket, new owner.
    new_fences: Vec<(usize, u8, u8)>,
    fences: Vec<(usize, u8, u8)>,
    /// Rounds in which the fences waited because the sockets were not empty.
    fences_waited: u32,
    /// Number of shards that share the buckets, and whether a bucket may have to move.
    share: usize,
    moving: bool,
    commands: Vec<Command<S>>,
    /// Clocks, if the service needs times of arrival.
    clocks: Option<Clocks>,
    /// Arrival and reading of the current message, in microseconds of [`crate::clock::micros`].
    arrival: (u64, u64),
    extension: PhantomData<X>,
}

/// A message sent for another shard.
pub(crate) struct ForeignSend {
    pub(crate) target: Target,
    pub(crate) range: Range<usize>,
    pub(crate) sender: Sender,
}

/// Input held until its bucket has settled.
enum Held<S: Service> {
    Message(Arrival, Box<[u8]>),
    Answer(S::ShardMessage),
}

/// Rounds after which a fence is passed although the sockets were never empty.
const MOST_FENCE_ROUNDS: u32 = 64;

impl<S: Service, X: Extension<S>> Dispatcher<S, X> {
    pub(crate) fn new(
        process: Arc<Process<S>>,
        index: usize,
        owner: [u8; BUCKETS],
        service: S,
        links: Links<S>,
    ) -> Self {
        let entry = &process.entries[index];
        let buckets = Buckets::new(index as u8, owner);
        entry.counters.buckets.set(buckets.owned() as u64);
        entry.links_taken.store(links.peers().count(), Release);
        Self {
            index,
            service,
            out: Outbox::new(),
            foreign_sends: Vec::new(),
            connection_orders: Vec::new(),
            links,
            buckets,
            held: VecDeque::new(),
            new_fences: Vec::new(),
            fences: Vec::new(),
            fences_waited: 0,
            share: process.active.load(Acquire),
            moving: false,
            commands: Vec::new(),
            clocks: process.settings.scheduling.timestamps.then(Clocks::default),
            arrival: (0, 0),
            extension: PhantomData,
            process: Rc::new(process),
        }
    }

    /// Returns the dedicated sockets of the service.
    #[inline]
    pub(crate) fn sockets(&mut self) -> Option<&mut DedicatedSockets> {
        X::sockets(&mut self.service)
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.process.entries[self.index].counters
    }

    /// Tells whether received messages have time stamps of the kernel.
    pub(crate) const fn has_timestamps(&self) -> bool {
        self.clocks.is_some()
    }

    /// Reads the clocks after a socket was read. Returns `None` if there are no time stamps.
    #[inline]
    pub(crate) fn read_clocks(&mut self) -> Option<ClockReading> {
        self.clocks.as_mut().map(Clocks::read)
    }

    /// Sets the time of arrival for the next messages, from this reading of the clocks and this time stamp of the
    /// kernel.
    #[inline]
    pub(crate) fn set_arrival(&mut self, reading: ClockReading, stamp: Option<i64>) {
        self.arrival = (reading.arrival(stamp), reading.now);
    }

    #[inline]
    fn receive(&mut self, now: Now, arrival: &Arrival, bytes: &[u8]) {
        if self.clocks.is_some() {
            X::arrived(&mut self.service, self.arrival.0, self.arrival.1);
        }
        self.service.receive(now, arrival, bytes, &mut self.out);
    }

    /// Handles a message from a socket or connection of this shard. A message without Call-ID belongs to no shard, and
    /// this shard handles it.
    #[inline]
    pub(crate) fn arrive(&mut self, now: Now, arrival: &Arrival, bytes: &[u8]) {
        if self.buckets.owns_all() {
            return self.receive(now, arrival, bytes);
        }
        let Some(range) = scan::call_id(bytes) else {
            return self.receive(now, arrival, bytes);
        };
        let bucket = self.service.bucket(now, self.process.settings.secret, &bytes[range], bytes);
        match self.buckets.placement(bucket) {
            Placement::Here => self.receive(now, arrival, bytes),
            placement => self.pass(now, placement, bucket, arrival, bytes),
        }
    }

    /// Tells whether a message of a connection can be given to its shard now. If not, it waits at the connection.
    #[inline]
    pub(crate) fn takes(&mut self, now: Now, bytes: &[u8]) -> bool {
        (!self.links.is_behind() && self.held.is_empty()) || self.takes_behind(now, bytes)
    }

    #[cold]
    fn takes_behind(&mut self, now: Now, bytes: &[u8]) -> bool {
        let Some(range) = scan::call_id(bytes) else { return true };
        let bucket = self.service.bucket(now, self.process.settings.secret, &bytes[range], bytes);
        match self.buckets.placement(bucket) {
            Placement::Here => true,
            Placement::Hold => self.may_hold(),
            Placement::Shard(to) => self.links.has_room(to as usize),
        }
    }

    /// Tells whether messages for some shard wait at their connections.
    #[inline]
    pub(crate) fn is_crowded(&self) -> bool {
        (self.links.is_behind() && self.links.peers().any(|peer| !self.links.has_room(peer))) || !self.may_hold()
    }

    /// Tells whether one more message of a connection may be held until its bucket has settled: half of the room is left
    /// to datagrams.
    fn may_hold(&self) -> bool {
        self.held.len() < self.process.settings.ring.div_ceil(2)
    }

    /// Reports an unreachable datagram to all shards: the kernel reports it to any of the sockets that share an address, and the quoted part need not
    /// name the call.
    #[cold]
    pub(crate) fn unreachable(&mut self, now: Now, to: SocketAddr, quoted: &[u8]) {
        let counters = &self.process.entries[self.index].counters;
        counters.unreachable.add(1);
        for peer in self.links.peers() {
            self.links.put(peer, Content::Unreachable { to }, quoted, counters);
        }
        self.service.unreachable(now, to, quoted, &mut self.out);
    }

    fn pass(&mut self, now: Now, placement: Placement, bucket: u8, arrival: &Arrival, bytes: &[u8]) {
        let counters = &self.process.entries[self.index].counters;
        match placement {
            Placement::Here => self.service.receive(now, arrival, bytes, &mut self.out),
            Placement::Hold if self.held.len() >= self.process.settings.ring => {
                counters.crossings_dropped.add(1);
                self.service.shed(now, arrival, bytes, &mut self.out);
            }
            Placement::Hold => self.hold(bucket, Held::Message(*arrival, bytes.into())),
            Placement::Shard(to) => {
                let content = Content::Message { bucket, arrival: *arrival };
                if self.links.put(to as usize, content, bytes, counters) {
                    counters.crossed_out.add(1);
                } else {
                    self.service.shed(now, arrival, bytes, &mut self.out);
                }
            }
        }
    }

    fn answer(&mut self, now: Now, placement: Placement, bucket: u8, answer: S::ShardMessage) {
        match placement {
            Placement::Here => self.service.answered(now, answer, &mut self.out),
            Placement::Hold => self.hold(bucket, Held::Answer(answer)),
            Placement::Shard(to) => {
                let counters = &self.process.entries[self.index].counters;
                self.links.put(to as usize, Content::Answer { bucket, answer }, &[], counters);
            }
        }
    }

    fn hold(&mut self, bucket: u8, held: Held<S>) {
        self.held.push_back((bucket, held));
        self.counters().held.set(self.held.len() as u64);
    }

    /// Handles commands from outside the shards. Returns whether there were any commands.
    #[inline]
    pub(crate) fn take_commands(&mut self, now: Now) -> bool {
        let any = self.process.entries[self.index].has_commands.load(Acquire);
        if any {
            self.take_posted(now);
        }
        any
    }

    #[cold]
    fn take_posted(&mut self, now: Now) {
        let process = self.process.clone();
        let entry = &process.entries[self.index];
        let mut commands = std::mem::take(&mut self.commands);
        {
            let mut posted = entry.commands.lock().unwrap_or_else(|e| e.into_inner());
            std::mem::swap(&mut *posted, &mut commands);
            entry.has_commands.store(false, Release);
        }
        for command in commands.drain(..) {
            match command {
                Command::Answer(answer) => {
                    entry.counters.answers.add(1);
                    self.service.answered(now, answer, &mut self.out);
                }
                Command::AnswerTo(bucket, answer) => {
                    entry.counters.answers.add(1);
                    let placement = self.buckets.placement(bucket);
                    self.answer(now, placement, bucket, answer);
                }
                Command::Peer(peer, outgoing, incoming) => {
                    self.links.join(peer, outgoing, incoming);
                    entry.links_taken.fetch_add(1, AcqRel);
                }
                Command::Connection(flow, order) => self.connection_orders.push((flow, order)),
                Command::Share(shards) => {
                    self.share = shards;
                    self.moving = true;
                }
            }
        }
        self.commands = commands;
    }

    /// Handles transfers of other shards that arrived before the round began. Returns whether there were any transfers.
    #[inline]
    pub(crate) fn read_links(&mut self, now: Now) -> bool {
        self.links.has_any() && self.read_each_link(now)
    }

    #[inline(never)]
    fn read_each_link(&mut self, now: Now) -> bool {
        let mut any = false;
        for peer in 0..self.links.arrived.len() {
            let n = self.links.arrived[peer];
            if n == 0 {
                continue;
            }
            any = true;
            let mut link = self.links.take(peer).expect("something came by it");
            for _ in 0..n {
                link.pop(|transfer| {
                    let content = std::mem::replace(&mut transfer.content, Content::Nothing);
                    self.unpack(now, peer, content, &transfer.bytes);
                });
            }
            if link.producer_waits() {
                self.process.entries[peer].bell.ring();
            }
            self.links.put_back(peer, link);
        }
        any
    }

    fn unpack(&mut self, now: Now, from: usize, content: Content<S>, bytes: &[u8]) {
        let counters = &self.process.entries[self.index].counters;
        match content {
            Content::Nothing => (),
            Content::Message { bucket, arrival } => {
                counters.crossed_in.add(1);
                let placement = self.buckets.placement_of_passed(bucket, from as u8);
                self.pass(now, placement, bucket, &arrival, bytes);
            }
            Content::Answer { bucket, answer } => {
                let placement = self.buckets.placement_of_passed(bucket, from as u8);
                self.answer(now, placement, bucket, answer);
            }
            Content::Send { target, sender } => {
                counters.crossed_in.add(1);
                let start = self.out.start();
                self.out.bytes.extend_from_slice(bytes);
                let range = start..self.out.bytes.len();
                self.foreign_sends.push(ForeignSend { target, range, sender });
            }
            Content::Unreachable { to } => self.service.unreachable(now, to, bytes, &mut self.out),
            Content::CutOff { token } => self.service.cut_off(now, token, &mut self.out),
            Content::Failed { token, cause } => self.service.unsent(now, token, cause, &mut self.out),
            Content::Records { bucket, records } => {
                self.buckets.move_in(bucket, from as u8);
                for record in records {
                    self.service.import(now, record, &mut self.out);
                }
            }
            Content::Fence { bucket, to } => self.new_fences.push((from, bucket, to)),
            Content::Confirmed { bucket } => {
                if let Some(owner) = self.buckets.confirmed(bucket) {
                    self.links.put(owner as usize, Content::Settled { bucket }, &[], counters);
                }
            }
            Content::Settled { bucket } => self.settle(now, bucket),
        }
    }

    /// Marks a bucket as settled, and handles its held messages.
    fn settle(&mut self, now: Now, bucket: u8) {
        self.buckets.settled(bucket);
        self.moving = true;
        let held = std::mem::take(&mut self.held);
        for (of, held) in held {
            match held {
                held if of != bucket => self.held.push_back((of, held)),
                Held::Message(arrival, bytes) => self.service.receive(now, &arrival, &bytes, &mut self.out),
                Held::Answer(answer) => self.service.answered(now, answer, &mut self.out),
            }
        }
        self.counters().held.set(self.held.len() as u64);
        self.counters().buckets.set(self.buckets.owned() as u64);
    }

    /// Confirms fences after the sockets were read. `empty`: whether the sockets were read until no message was left.
    /// Returns whether fences still wait.
    #[inline]
    pub(crate) fn take_fences(&mut self, empty: bool) -> bool {
        !(self.fences.is_empty() && self.new_fences.is_empty()) && self.pass_fences(empty)
    }

    #[cold]
    fn pass_fences(&mut self, empty: bool) -> bool {
        if !self.fences.is_empty() {
            self.fences_waited += 1;
            if empty || self.fences_waited > MOST_FENCE_ROUNDS {
                self.fences_waited = 0;
                let counters = &self.process.entries[self.index].counters;
                for (from, bucket, to) in self.fences.drain(..) {
                    self.buckets.set_owner(bucket, to);
                    self.links.put(from, Content::Confirmed { bucket }, &[], counters);
                }
            }
        }
        self.fences.append(&mut self.new_fences);
        !self.fences.is_empty()
    }

    /// Moves one bucket that belongs to another shard, at the end of a round. Returns whether there was such a bucket.
    #[inline]
    pub(crate) fn move_surplus(&mut self, now: Now) -> bool {
        self.moving && self.move_bucket(now)
    }

    #[cold]
    fn move_bucket(&mut self, now: Now) -> bool {
        let Some((bucket, to)) = self.buckets.surplus(self.share).next() else {
            self.moving = false;
            return false;
        };
        let counters = &self.process.entries[self.index].counters;
        let records = self.service.export(now, bucket);
        self.buckets.move_out(bucket, to, self.links.peers().count() as u8);
        self.process.owners[bucket as usize].store(to, Relaxed);
        counters.buckets.set(self.buckets.owned() as u64);
        counters.buckets_moved.add(1);
        self.links.put(to as usize, Content::Records { bucket, records }, &[], counters);
        for peer in self.links.peers() {
            self.links.put(peer, Content::Fence { bucket, to }, &[], counters);
        }
        true
    }

    /// Tells whether no input is pending.
    pub(crate) fn is_idle(&self) -> bool {
        !self.process.entries[self.index].has_commands.load(Acquire)
            && self.links.is_idle()
            && !self.process.stopping.load(Acquire)
    }
}
