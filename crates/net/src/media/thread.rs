//! Media thread: sockets, sessions, timers.

use super::handle::push;
use super::lending::Lendings;
use super::pace::{NextLook, Pace};
use super::ports::{BoundLeg, Ports, named};
use super::recorder::RecorderLink;
use super::sessions::{Sessions, Slot};
use super::timers::Timers;
use super::{Entry, Transfer, Wake};
use crate::arrival_clock::ArrivalClock;
use crate::batch::Receiver;
use crate::clock;
use crate::ready_set::{NO_EVENT, ReadySet};
use crate::ring::{Consumer, Producer};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use std::task::{Wake as Waking, Waker};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use strowger_core::entropy::Entropy;
use strowger_media::Moment;
use strowger_media::session::{
    LegPort, Session, SessionEvent, SessionKey, SessionOrder, SessionOutput, Side, StreamOrder,
};

/// Maximum number of sockets in one look.
const EVENTS: usize = 256;

/// Orders of one shard between two looks: packets do not wait for more.
const ORDERS: usize = 64;

/// Looks between two readings of the processor time of the thread: under load, a sixteenth of a second.
const BUSY_LOOKS: u64 = 64;

/// Time without a look at the sockets after which the silence of all peers begins again, in microseconds: their packets came meanwhile.
const DEAF: u64 = 1_000_000;

/// Name of the bell among the watched sockets.
const BELL: u64 = u64::MAX;

/// Link to one shard.
pub(super) struct ShardLink {
    orders: Consumer<Transfer<SessionOrder>>,
    events: Producer<Transfer<SessionEvent>>,
    /// Events for which the ring has no room: at most one of each kind for each stream of the open sessions.
    waiting: VecDeque<SessionEvent>,
}

impl ShardLink {
    pub(super) const fn new(
        orders: Consumer<Transfer<SessionOrder>>,
        events: Producer<Transfer<SessionEvent>>,
    ) -> Self {
        Self { orders, events, waiting: VecDeque::new() }
    }

    /// Tells whether the thread has work for this link.
    fn has_work(&self) -> bool {
        self.orders.len() > 0 || !self.waiting.is_empty() && self.events.has_room()
    }
}

/// Wakes the thread from its wait for sockets.
struct WakePipe(UnixStream);

impl Waking for WakePipe {
    fn wake(self: Arc<Self>) {
        // A full pipe has woken the thread already.
        let _ = (&self.0).write_all(&[1]);
    }
}

/// State of a media thread.
pub(super) struct MediaThread {
    entry: Arc<Entry>,
    links: Vec<ShardLink>,
    sessions: Sessions,
    ports: Ports,
    lendings: Lendings,
    timers: Timers,
    watched: ReadySet,
    /// Readable after the bell was rung.
    woken: UnixStream,
    clock: ArrivalClock,
    pace: Pace,
    out: SessionOutput,
    random: Entropy,
    timeout: Option<u64>,
    wake: Wake,
    recorder: RecorderLink,
}

impl MediaThread {
    pub(super) fn new(
        entry: Arc<Entry>,
        links: Vec<ShardLink>,
        ports: Ports,
        random: Entropy,
        timeout: Option<Duration>,
        (wake, recorder): (Wake, RecorderLink),
    ) -> io::Result<Self> {
        let watched = ReadySet::new()?;
        let (woken, waking) = UnixStream::pair()?;
        woken.set_nonblocking(true)?;
        waking.set_nonblocking(true)?;
        watched.add(woken.as_fd(), BELL)?;
        entry.bell.set_waker(&Waker::from(Arc::new(WakePipe(waking))));
        Ok(Self {
            entry,
            links,
            sessions: Sessions::default(),
            ports,
            lendings: Lendings::default(),
            timers: Timers::default(),
            watched,
            woken,
            clock: ArrivalClock::new(),
            pace: Pace::default(),
            out: SessionOutput::default(),
            random,
            timeout: timeout.map(|timeout| timeout.as_micros() as u64),
            wake,
            recorder,
        })
    }

    /// Works until the thread has to stop.
    pub(super) fn run(mut self) {
        let mut events = vec![NO_EVENT; EVENTS];
        // One datagram of each ready socket in turn: a flood at one port delays the others by one datagram each.
        let mut receiver = Receiver::new(1, true);
        let (mut next, mut looked, mut waited) = (NextLook::Awaited, clock::micros(), 0);
        self.entry.turns.begin(clock::micros());
        self.entry.counters.threads.set(1);
        loop {
            if self.entry.stopping.load(Acquire) {
                return;
            }
            self.take_orders();
            self.lend();
            self.forgive_silence(looked, waited);
            let played = self.poll_sessions();
            self.recorder.pass();
            self.take_failures();
            self.pass_events();
            self.entry.turns.end();
            let found = self.wait(&mut events, next);
            self.clock.read();
            looked = self.clock.now();
            self.entry.turns.begin(looked);
            self.note_look();
            let waits = events[..found].iter().map(|event| self.receive(event.u64, &mut receiver));
            waited = waits.max().unwrap_or_default();
            next = self.pace.next_look(self.clock.now(), found + played, waited);
            if let NextLook::NotBefore(at) = next
                && found < EVENTS
            {
                std::thread::sleep(Duration::from_micros(at.saturating_sub(clock::micros())));
            }
        }
    }

    /// Begins the silence of all peers again if the thread stood still. `looked`: time of the last look; `waited`: longest time for which a datagram
    /// waited for it. Both are in microseconds.
    fn forgive_silence(&mut self, looked: u64, waited: u64) {
        let now = clock::micros();
        if waited.max(now.saturating_sub(looked)) > DEAF {
            self.sessions.each().for_each(|session| session.begin_silence(now));
        }
    }

    /// Counts a look at the sockets, and the processor time from time to time.
    fn note_look(&self) {
        let counters = &self.entry.counters;
        counters.looks.one();
        if counters.looks.value().is_multiple_of(BUSY_LOOKS) {
            counters.busy.set(clock::processor_micros());
        }
    }

    /// Waits for packets, orders or the next timer, unless the next look is at once. Returns the number of events.
    fn wait(&self, events: &mut [libc::epoll_event], next: NextLook) -> usize {
        if next == NextLook::AtOnce {
            return self.watched.wait_events(events, 0).unwrap_or(0);
        }
        let bell = &self.entry.bell;
        bell.mark_asleep();
        // An order that came before the mark did not ring.
        let has_work = self.entry.stopping.load(Acquire)
            || !self.lendings.is_empty()
            || self.recorder.has_work()
            || self.links.iter().any(ShardLink::has_work);
        let timeout = match self.timers.next() {
            _ if has_work => 0,
            // Late by less than a millisecond, and never early.
            Some(at) => at.saturating_sub(clock::micros()).div_ceil(1_000).min(60_000) as libc::c_int,
            None => -1,
        };
        // A signal ends the wait.
        let found = self.watched.wait_events(events, timeout).unwrap_or(0);
        bell.mark_awake();
        found
    }

    /// Takes one datagram of a ready socket. Returns for how long it has waited there, in microseconds.
    fn receive(&mut self, name: u64, receiver: &mut Receiver) -> u64 {
        if name == BELL {
            while (&self.woken).read(&mut [0; 64]).is_ok_and(|length| length > 0) {}
            return 0;
        }
        let (place, is_rtcp) = named(name);
        let Some(pair) = self.ports.at(place) else { return 0 };
        match receiver.receive(pair.socket(is_rtcp).as_fd()) {
            Ok(1..) => {
                let counters = &self.entry.counters;
                counters.received.one();
                counters.received_bytes.add(receiver.datagram(0).map_or(0, |datagram| datagram.bytes.len() as u64));
            }
            // Nothing is left, or the next look tries again.
            Ok(0) | Err(_) => return 0,
        }
        let Some(BoundLeg { session, stream, side }) = pair.leg else { return 0 };
        let (Some(slot), Some(datagram)) = (self.sessions.get(session), receiver.datagram(0)) else { return 0 };
        self.clock.advance();
        let now = self.clock.arrival(datagram.ancillary.stamp);
        let (shard, key) = (slot.shard, slot.session.key());
        let waited = self.clock.now().saturating_sub(now);
        slot.session.packet(now, LegPort { stream, side, is_rtcp }, datagram.source, datagram.bytes, &mut self.out);
        if let Some(place) = self.out.recorded
            && !self.recorder.write(key, place, &self.out.samples)
        {
            self.entry.counters.recording_lost.one();
        }
        self.send(shard);
        waited
    }

    /// Sends the packets that a session of this shard has left, and keeps its events for the shard.
    fn send(&mut self, shard: usize) {
        let counters = &self.entry.counters;
        for packet in &self.out.packets {
            let pair = self.ports.place(packet.ports).and_then(|place| self.ports.at(place));
            let bytes = &self.out.bytes[packet.start..packet.end];
            match pair.map(|pair| pair.socket(packet.is_rtcp_port).send_to(bytes, packet.to)) {
                Some(Ok(length)) => {
                    counters.sent.one();
                    counters.sent_bytes.add(length as u64);
                }
                // Media cannot wait, and a lost packet is a lost packet.
                Some(Err(_)) | None => counters.unsent.one(),
            }
        }
        counters.add_dropped(&self.out.dropped);
        if !self.out.events.is_empty() {
            self.links[shard].waiting.extend(self.out.events.drain(..));
        }
        self.out.clear();
    }

    fn take_orders(&mut self) {
        for shard in 0..self.links.len() {
            let (mut order, mut has_taken) = (None, false);
            for _ in 0..ORDERS {
                if !self.links[shard].orders.pop(|slot| order = slot.take()) {
                    break;
                }
                has_taken = true;
                if let Some(order) = order.take() {
                    self.obey(shard, order);
                }
            }
            if has_taken && self.links[shard].orders.producer_waits() {
                (self.wake)(shard);
            }
        }
    }

    #[cold]
    fn obey(&mut self, shard: usize, order: SessionOrder) {
        match order {
            SessionOrder::Set { key, version, streams } => self.set(shard, (key, version), streams),
            SessionOrder::Report { key } => self.report(shard, key),
            SessionOrder::Close { key } => self.close(shard, key),
            SessionOrder::Lend { shard: borrower, pairs } => self.lendings.add(shard, borrower, pairs),
            SessionOrder::Claim { key, ports } => {
                let is_bound = self.ports.claim(&ports);
                self.links[shard].waiting.push_back(SessionEvent::Claimed { key, ports, is_bound });
            }
            SessionOrder::Return(ports) => ports.into_iter().for_each(|ports| self.ports.close(ports)),
        }
        self.entry.counters.sessions.set(self.sessions.len() as u64);
        self.show_ports();
    }

    fn show_ports(&self) {
        let used = self.ports.used();
        self.entry.counters.used.set(used as u64);
        self.entry.counters.lent.set((self.ports.len() - used) as u64);
    }

    /// Binds some of the ports for which shards have asked.
    fn lend(&mut self) {
        if self.lendings.is_empty() {
            return;
        }
        if let Some((shard, event)) = self.lendings.step(&mut self.ports) {
            self.links[shard].waiting.push_back(event);
        }
        self.show_ports();
    }

    /// Opens or changes a session.
    fn set(&mut self, shard: usize, (key, version): (SessionKey, u32), streams: Vec<Option<StreamOrder>>) {
        let now = moment();
        let (legs, file) = (self.legs(&streams), streams.iter().flatten().find_map(|order| order.kind.file().cloned()));
        let mut random = || self.random.u64() as u32;
        let number = match self.sessions.number(key) {
            Some(number) => {
                let Some(slot) = self.sessions.get(number) else { return };
                if version < slot.version {
                    // The call has moved, and its new shard has given a later order.
                    return;
                }
                slot.session.set(now, streams, &mut random, &mut self.out);
                (slot.shard, slot.version) = (shard, version);
                number
            }
            None => {
                let session = Session::new(now.mono, key, self.timeout, streams, &mut random);
                let (places, timer, is_recorded) = (Vec::new(), None, false);
                self.sessions.insert(Slot { session, shard, version, places, timer, is_recorded })
            }
        };
        // What the session still says leaves by the ports that it had.
        self.send(shard);
        let Some(slot) = self.sessions.get(number) else { return };
        if let Some(file) = file {
            slot.is_recorded = true;
            self.recorder.open(key, file);
        }
        let before = std::mem::replace(&mut slot.places, legs.iter().map(|(place, ..)| *place).collect());
        let deadline = slot.session.deadline().filter(|at| slot.timer.is_none_or(|timer| *at < timer));
        if let Some(at) = deadline {
            slot.timer = Some(at);
            self.timers.add(at, number);
        }
        for place in before.into_iter().filter(|place| legs.iter().all(|(kept, ..)| kept != place)) {
            self.ports.detach(place, number, &self.watched);
        }
        for (place, stream, side) in legs {
            let leg = BoundLeg { session: number, stream, side };
            if let Err(error) = self.ports.attach(place, leg, &self.watched) {
                tracing::warn!(%error, "ports of media not watched");
            }
        }
    }

    /// Returns the legs of these streams with the places of their ports.
    fn legs(&self, streams: &[Option<StreamOrder>]) -> Vec<(usize, u8, Side)> {
        let mut legs = Vec::new();
        for (stream, order) in (0_u8..=u8::MAX).zip(streams) {
            let Some(order) = order else { continue };
            let far = order.far.as_ref().map(|peer| (Side::Far, peer));
            for (side, peer) in std::iter::once((Side::Near, &order.near)).chain(far) {
                match self.ports.place(peer.ports) {
                    Some(place) => legs.push((place, stream, side)),
                    None => tracing::warn!(ports = ?peer.ports, "a session names ports of media that are not lent"),
                }
            }
        }
        legs
    }

    /// Tells the shard the figures of a session so far.
    fn report(&mut self, shard: usize, key: SessionKey) {
        let number = self.sessions.number(key);
        let slot = number.and_then(|number| self.sessions.get(number));
        let streams = slot.map(|slot| slot.session.reports()).unwrap_or_default();
        self.links[shard].waiting.push_back(SessionEvent::Reported { key, streams });
    }

    fn close(&mut self, shard: usize, key: SessionKey) {
        match self.sessions.remove(key) {
            Some((number, slot)) => {
                if slot.is_recorded {
                    self.recorder.close(key);
                }
                slot.session.close(moment(), &mut self.out);
                self.count_unheard();
                self.send(shard);
                for place in slot.places {
                    self.ports.detach(place, number, &self.watched);
                }
            }
            // The shard waits for the event all the same.
            None => self.links[shard].waiting.push_back(SessionEvent::Closed { key, streams: Vec::new() }),
        }
    }

    /// Counts the peers of a session that ends from which nothing came.
    fn count_unheard(&self) {
        for event in &self.out.events {
            let SessionEvent::Closed { streams, .. } = event else { continue };
            let reports = streams.iter().flat_map(|(near, far)| std::iter::once(near).chain(far));
            self.entry.counters.unheard.add(reports.filter(|report| report.is_silent()).count() as u64);
        }
    }

    /// Tells the shards which recordings have failed.
    fn take_failures(&mut self) {
        while let Some(key) = self.recorder.failure() {
            let number = self.sessions.number(key);
            let Some(slot) = number.and_then(|number| self.sessions.get(number)) else { continue };
            let shard = slot.shard;
            self.entry.counters.recordings_failed.one();
            self.links[shard].waiting.push_back(SessionEvent::RecordingFailed { key });
        }
    }

    /// Polls the sessions whose timers have gone off. Returns the number of packets that they have sent.
    fn poll_sessions(&mut self) -> usize {
        if self.timers.next().is_none_or(|at| at > clock::micros()) {
            return 0;
        }
        let (now, mut packets) = (moment(), 0);
        while let Some((at, number)) = self.timers.due(now.mono) {
            let Some(slot) = self.sessions.get(number).filter(|slot| slot.timer == Some(at)) else { continue };
            slot.session.poll(now, &mut || self.random.u64() as u32, &mut self.out);
            slot.timer = slot.session.deadline().map(|at| at.max(now.mono + 1));
            if let Some(at) = slot.timer {
                self.timers.add(at, number);
            }
            let shard = slot.shard;
            packets += self.out.packets.len();
            self.send(shard);
        }
        packets
    }

    /// Passes the events to the shards, and wakes those that get some.
    fn pass_events(&mut self) {
        let mut waiting = 0;
        for (shard, link) in self.links.iter_mut().enumerate() {
            let mut has_passed = false;
            while let Some(event) = link.waiting.pop_front() {
                if let Some(event) = push(&mut link.events, event) {
                    link.waiting.push_front(event);
                    break;
                }
                has_passed = true;
            }
            waiting += link.waiting.len();
            if has_passed {
                (self.wake)(shard);
            }
        }
        self.entry.counters.events_waiting.set(waiting as u64);
    }
}

/// Reads both clocks, in microseconds.
fn moment() -> Moment {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64);
    Moment { mono: clock::micros(), wall }
}
