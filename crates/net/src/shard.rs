//! One shard: a thread, its sockets, and the rounds in which it drives its service.

mod output;

use crate::alarm::Alarm;
use crate::batch::Receiver;
use crate::clock::RoundClock;
use crate::dispatcher::Dispatcher;
use crate::extension::Extension;
use crate::failure::{caught, or_fail};
use crate::line_ends::without_line_ends;
use crate::process::{ConnectionOrder, Process};
use crate::readiness::Ready;
use crate::ready_queue::Work;
use crate::source_addresses::RouteCache;
use crate::streams::Streams;
use crate::udp::Udp;
use crate::{Service, bounds};
use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use std::task::{Context, Poll, Waker};
use strowger_core::timer::sooner;
use strowger_core::{Arrival, Now, Transport};

pub(crate) struct Shard<S: Service, X: Extension<S>> {
    dispatcher: Dispatcher<S, X>,
    udp: Vec<Udp>,
    /// Index in `udp` of each listener, `NONE` for other transports.
    place: Vec<u8>,
    receiver: Receiver,
    streams: Streams,
    bounds: bounds::Seen,
    failed: Vec<u64>,
    /// Ready dedicated sockets.
    ready: Vec<Ready>,
    /// Room for the quoted part of unreachable datagrams; empty until there is one.
    quoted: Vec<u8>,
    /// True if the tasks that wait for ICMP errors were started.
    watches_errors: bool,
    /// True if the last report was that messages wait.
    has_waited: bool,
    clock: RoundClock,
    alarm: Alarm,
    routes: RouteCache,
    /// Deadline of the service at the end of the last round.
    due: Option<u64>,
    /// Consecutive polls of the service that did not move its deadline; counted if assertions are checked.
    polls_without_progress: u32,
    me: Weak<RefCell<Self>>,
    /// Waker of the main future.
    waker: Option<Waker>,
}

const NONE: u8 = u8::MAX;

/// Maximum number of connections that are read in a round, and the number of their messages after which no further connection is read.
const CONNECTIONS_PER_ROUND: usize = 64;
const MESSAGES_PER_ROUND: usize = 256;

/// Maximum number of steps of TLS handshakes in a round in which connections with messages are left.
const HANDSHAKES_PER_ROUND: usize = 4;

impl<S: Service + 'static, X: Extension<S>> Shard<S, X> {
    /// Creates the shard inside the runtime of its thread.
    pub(crate) fn new(dispatcher: Dispatcher<S, X>, udp: Vec<Udp>, streams: Streams) -> Rc<RefCell<Self>> {
        let mut place = vec![NONE; dispatcher.process.listeners.len()];
        for (i, socket) in udp.iter().enumerate() {
            place[socket.listener.0 as usize] = i as u8;
        }
        let process = dispatcher.process.clone();
        let settings = &process.settings;
        let has_ancillary = settings.udp.gro
            || settings.scheduling.timestamps
            || process.listeners.iter().any(|listener| listener.bind.ip().is_unspecified());
        Rc::new_cyclic(|me| {
            RefCell::new(Self {
                clock: RoundClock::default(),
                alarm: Alarm::new(settings.scheduling.exact_timers),
                receiver: Receiver::new(settings.udp.batch.clamp(1, 1_024), has_ancillary),
                routes: RouteCache::new(settings.udp.peers),
                bounds: bounds::Seen::new(process.bounds.clone()),
                dispatcher,
                udp,
                place,
                streams,
                failed: Vec::with_capacity(64),
                ready: Vec::new(),
                quoted: Vec::new(),
                watches_errors: false,
                has_waited: false,
                due: None,
                polls_without_progress: 0,
                me: me.clone(),
                waker: None,
            })
        })
    }

    /// Polls the main future: works until no work is left, then sleeps until a socket is ready, a timer is due or the
    /// bell rings.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let process = self.dispatcher.process.clone();
        let entry = &process.entries[self.dispatcher.index];
        let poll = self.turn(cx, &process);
        entry.turns.end();
        poll
    }

    #[inline]
    fn turn(&mut self, cx: &mut Context<'_>, process: &Process<S>) -> Poll<()> {
        let entry = &process.entries[self.dispatcher.index];
        entry.bell.mark_awake();
        if !self.waker.as_ref().is_some_and(|w| w.will_wake(cx.waker())) {
            self.waker = Some(cx.waker().clone());
            entry.bell.set_waker(cx.waker());
        }
        let mut has_begun = false;
        for _ in 0..self.streams.bounds.batches.max(1) {
            let (mut now, micros) = self.clock.read();
            if !std::mem::replace(&mut has_begun, true) {
                entry.turns.begin(micros);
            }
            if process.stopping.load(Acquire) {
                return Poll::Ready(());
            }
            entry.counters.rounds.add(1);
            if self.has_new_bounds() {
                self.take_bounds();
            }
            X::begin(&mut self.dispatcher.service, now);
            self.dispatcher.links.count_arrived();
            let mut more = self.read_udp(now, cx);
            let stream_wait = self.streams.wait.round(now.mono, self.streams.watch.queue.oldest(now.mono));
            self.report_wait(now, stream_wait, 0);
            more |= self.read_unreachable(now);
            more |= self.read_dedicated(now, cx);
            let empty = !more;
            more |= self.streams.collect(cx, now);
            more |= self.streams.accept(now);
            if !self.streams.watch.queue.is_empty() {
                self.read_connections();
                now = self.clock.read().0;
            }
            more |= self.streams.reschedule();
            more |= self.dispatcher.take_commands(now);
            more |= self.dispatcher.read_links(now);
            more |= self.dispatcher.take_fences(empty);
            if let Some(due) = self.due.filter(|at| *at <= now.mono) {
                self.dispatcher.service.poll(now, &mut self.dispatcher.out);
                debug_assert!(
                    self.has_progressed(due),
                    "the service does not move a deadline that has passed: this shard would never sleep"
                );
            }
            self.dispatcher.service.end(now, &mut self.dispatcher.out);
            if self.streams.deadline().is_some_and(|at| at <= now.mono) {
                let service = &self.dispatcher.service;
                self.streams.expire(now, &|flow, peer| service.connection_kind(now, flow, peer));
            }
            if self.dispatcher.links.deadline().is_some_and(|at| at <= now.mono) {
                self.dispatcher.links.tidy(now);
            }
            if !self.dispatcher.connection_orders.is_empty() {
                self.change_connections();
            }
            more |= self.flush(now, cx);
            if !self.watches_errors {
                self.watch_errors();
            }
            more |= self.dispatcher.move_surplus(now);
            self.dispatcher.links.flush(now, &process.entries, &entry.counters);
            self.due = self.dispatcher.service.deadline();
            if more || !self.streams.is_idle() || self.arm(now, cx) {
                continue;
            }
            entry.bell.mark_asleep();
            if self.dispatcher.is_idle() && !self.has_new_bounds() {
                return Poll::Pending;
            }
            entry.bell.mark_awake();
        }
        // The tasks of the runtime need their turn.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    #[inline]
    fn has_new_bounds(&mut self) -> bool {
        !Arc::ptr_eq(self.bounds.load(), &self.streams.bounds)
    }

    /// Adopts the bounds in force.
    #[cold]
    fn take_bounds(&mut self) {
        let bounds = self.bounds.load().clone();
        for udp in &mut self.udp {
            udp.set_waiting_bound(bounds.datagrams_waiting);
        }
        if let Some(sockets) = self.dispatcher.sockets() {
            sockets.set_waiting_bound(bounds.datagrams_waiting);
        }
        self.streams.set_bounds(bounds);
    }

    /// Carries out requests of the service and of other shards about connections.
    #[cold]
    fn change_connections(&mut self) {
        for (flow, order) in self.dispatcher.connection_orders.drain(..) {
            match order {
                ConnectionOrder::Alias(transport, address) => self.streams.alias(flow, transport, address),
                ConnectionOrder::LimitSilence { longest, until } => self.streams.limit_silence(flow, longest, until),
                ConnectionOrder::Close => {
                    if self.streams.same(flow.slot, flow.generation).is_some() {
                        self.streams.close(flow.slot, &"it was asked for");
                    }
                }
            }
        }
    }

    /// Starts the tasks that wait for ICMP errors.
    #[cold]
    fn watch_errors(&mut self) {
        self.watches_errors = true;
        for udp in &self.udp {
            let me = self.me.clone();
            let wake = move || {
                if let Some(shard) = me.upgrade() {
                    shard.borrow().wake();
                }
            };
            if let Some(watch) = udp.watch_errors(wake) {
                let process = Arc::clone(&self.dispatcher.process);
                tokio::task::spawn_local(or_fail(process, "a task that waits for ICMP errors", watch));
            }
        }
    }

    fn wake(&self) {
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
    }

    /// Reads connections that have data, each for one turn at most.
    #[inline(never)]
    fn read_connections(&mut self) {
        self.streams.watch.queue.begin_round();
        let mut messages = 0;
        for _ in 0..CONNECTIONS_PER_ROUND {
            match self.read_connection(Work::Messages) {
                Some(read) => messages += read,
                None => break,
            }
            if messages >= MESSAGES_PER_ROUND {
                break;
            }
        }
        let is_left = self.streams.watch.queue.oldest(0).is_some();
        for _ in 0..if is_left { HANDSHAKES_PER_ROUND } else { CONNECTIONS_PER_ROUND } {
            if self.read_connection(Work::Handshake).is_none() {
                break;
            }
        }
    }

    /// Reads the next connection with this work. Returns the number of its messages; `None` if none is left in this round. Within a round that
    /// takes long the wait is reported meanwhile: between two reports the service would take it for a standstill, and it must not wait for its
    /// next step.
    fn read_connection(&mut self, work: Work) -> Option<usize> {
        let now = self.clock.read().0;
        let waited = self.streams.watch.queue.oldest(now.mono).unwrap_or(0);
        let read = caught(|| self.streams.read_next(work, now, &mut self.dispatcher));
        let process = &self.dispatcher.process;
        let messages = read.unwrap_or_else(|panic| process.panicked("a shard that reads a connection", panic))?;
        if work == Work::Messages {
            self.streams.wait.read(now.mono, waited);
        }
        let queued = self.streams.watch.queue.oldest(now.mono);
        if let Some((connections, since)) = self.streams.wait.within_round(now.mono, queued) {
            self.report_wait(now, Some(connections), since);
        }
        Some(messages)
    }

    /// Reads one batch of each socket. Returns whether there are more datagrams to read.
    fn read_udp(&mut self, now: Now, cx: &mut Context<'_>) -> bool {
        let process = self.dispatcher.process.clone();
        let counters = &process.entries[self.dispatcher.index].counters;
        let (mut more, mut measured) = (false, false);
        for udp in &mut self.udp {
            let (n, full) = udp.receive(&mut self.receiver, cx, counters);
            more |= full;
            if n == self.receiver.batch() || udp.delay.is_measured() {
                udp.measure_delay(&mut self.receiver, n, now.mono);
                measured = true;
            }
            if n == 0 {
                continue;
            }
            counters.batches_in.add(1);
            let reading = self.dispatcher.read_clocks();
            let (mut bytes, mut runs) = (0, 0);
            for i in 0..n {
                let Some(datagram) = self.receiver.datagram(i) else { continue };
                bytes += datagram.bytes.len() as u64;
                if let Some(reading) = reading {
                    self.dispatcher.set_arrival(reading, datagram.ancillary.stamp);
                }
                if let Some(to) = datagram.ancillary.to.filter(|_| !is_ping(datagram.bytes)) {
                    self.routes.received(datagram.source, to, now.mono, &process.source_addresses);
                }
                let arrival =
                    Arrival { transport: Transport::Udp, listener: udp.listener, remote: datagram.source, flow: None };
                let Some(segment) = datagram.ancillary.segment else {
                    read(&mut self.dispatcher, now, &arrival, datagram.bytes);
                    continue;
                };
                for part in datagram.bytes.chunks(segment) {
                    read(&mut self.dispatcher, now, &arrival, part);
                }
                runs += datagram.bytes.len().div_ceil(segment).saturating_sub(1) as u64;
            }
            counters.datagrams_in.add(n as u64 + runs);
            counters.datagram_bytes_in.add(bytes);
        }
        if measured {
            counters.datagram_age.set(self.udp.iter().map(|udp| udp.delay.age()).max().unwrap_or(0));
        }
        more
    }

    /// Reports to the service how long messages wait, while this is measured, and at its end that none waits. `connections`: wait of
    /// messages of connections; `since`: time since the datagrams were measured. Both are in microseconds.
    #[inline]
    fn report_wait(&mut self, now: Now, connections: Option<u64>, since: u64) {
        let measured = self.udp.iter().filter(|udp| udp.delay.is_measured());
        let older = |age: u64| if age > 0 { age + since } else { 0 };
        let datagrams = measured.map(|udp| older(udp.delay.age())).max();
        if datagrams.is_some() || connections.is_some() || self.has_waited {
            let (datagrams, connections) = (datagrams.unwrap_or(0), connections.unwrap_or(0));
            self.has_waited = datagrams.max(connections) > 0;
            self.dispatcher.service.waited(now, datagrams, connections);
        }
    }

    /// Reads the reports of unreachable datagrams of each socket. Returns whether there are more reports.
    #[inline]
    fn read_unreachable(&mut self, now: Now) -> bool {
        let mut more = false;
        for udp in self.udp.iter().filter(|udp| udp.has_icmp_errors()) {
            let (dispatcher, most) = (&mut self.dispatcher, self.receiver.batch());
            udp.unreachable(most, &mut self.quoted, |found| dispatcher.unreachable(now, found.to, found.quoted));
            more |= udp.has_icmp_errors();
        }
        more
    }

    /// Reads one batch of each ready dedicated socket. Returns whether there are more datagrams to read.
    #[inline]
    fn read_dedicated(&mut self, now: Now, cx: &mut Context<'_>) -> bool {
        let Some(sockets) = self.dispatcher.sockets() else { return false };
        self.ready.clear();
        let more = sockets.ready(cx, &mut self.ready, &mut self.failed);
        let process = self.dispatcher.process.clone();
        let counters = &process.entries[self.dispatcher.index].counters;
        for i in 0..self.ready.len() {
            let Ready { name, failed, .. } = self.ready[i];
            if failed {
                self.read_unreachable_of(name, now);
            }
            let receiver = &mut self.receiver;
            let read_from = self.dispatcher.sockets().and_then(|sockets| sockets.receive(name, receiver));
            let Some((n, listener, flow)) = read_from else { continue };
            counters.batches_in.add(1);
            counters.datagrams_in.add(n as u64);
            let reading = self.dispatcher.read_clocks();
            let mut bytes = 0;
            for i in 0..n {
                let Some(datagram) = self.receiver.datagram(i) else { continue };
                bytes += datagram.bytes.len() as u64;
                if let Some(reading) = reading {
                    self.dispatcher.set_arrival(reading, datagram.ancillary.stamp);
                }
                let arrival =
                    Arrival { transport: Transport::Udp, listener, remote: datagram.source, flow: Some(flow) };
                read(&mut self.dispatcher, now, &arrival, datagram.bytes);
            }
            counters.datagram_bytes_in.add(bytes);
        }
        more
    }

    /// Reads the reports of unreachable datagrams of a dedicated socket.
    #[cold]
    fn read_unreachable_of(&mut self, name: u64, now: Now) {
        for _ in 0..self.receiver.batch() {
            let room = &mut self.quoted;
            let found = self.dispatcher.sockets().and_then(|sockets| sockets.unreachable(name, room));
            let Some((to, length)) = found else { return };
            self.dispatcher.unreachable(now, to, &self.quoted[..length]);
        }
    }

    /// Takes over the connections that the service has begun to make.
    #[inline]
    fn take_over(&mut self, now: Now) {
        let Some(sockets) = self.dispatcher.sockets() else { return };
        while let Some(opening) = sockets.opened() {
            let flow = opening.flow;
            sockets.placed(flow, self.streams.take_over(*opening, now));
        }
    }

    /// Ends the dedicated sockets that the service has closed, after everything is sent. Returns whether the remaining
    /// dedicated sockets must be checked once more before the shard sleeps.
    #[inline]
    fn leave_dedicated(&mut self) -> bool {
        let Some(sockets) = self.dispatcher.sockets() else { return false };
        sockets.leave(|slot, flow| self.streams.close_dedicated(slot, flow));
        sockets.gone(std::mem::take(&mut self.streams.dedicated_gone));
        sockets.is_unasked()
    }

    /// Tells whether the service's deadline is later than the deadline of this poll. A poll may start work that is due
    /// at once, and so may the next poll, but this must end.
    fn has_progressed(&mut self, due: u64) -> bool {
        self.polls_without_progress =
            if self.dispatcher.service.deadline() == Some(due) { self.polls_without_progress + 1 } else { 0 };
        self.polls_without_progress < 10_000
    }

    /// Sets the alarm if the service's deadline has become earlier. Returns whether the deadline has passed, as after
    /// an event in this round: a round that follows at once costs less than an alarm.
    fn arm(&mut self, now: Now, cx: &mut Context<'_>) -> bool {
        let others =
            sooner(self.streams.deadline(), self.dispatcher.links.deadline()).map(|ms| ms.saturating_mul(1_000));
        let Some(at) = sooner(X::wake(&mut self.dispatcher.service, self.due), others) else { return false };
        at <= now.mono.saturating_mul(1_000) || self.alarm.set(at, cx)
    }
}

/// Tells whether this is a keep-alive of a NAT binding without content.
fn is_ping(datagram: &[u8]) -> bool {
    datagram.len() <= 4 && datagram.iter().all(|b| matches!(b, b'\r' | b'\n' | 0))
}

/// Handles one datagram: passes it to the dispatcher.
#[inline]
fn read<S: Service, X: Extension<S>>(dispatcher: &mut Dispatcher<S, X>, now: Now, arrival: &Arrival, bytes: &[u8]) {
    if is_ping(bytes) {
        dispatcher.counters().datagram_pings.add(1);
        return;
    }
    dispatcher.arrive(now, arrival, without_line_ends(bytes));
}
