//! Calls of one shard: the schedule or a message begins them, Call-IDs find them, alarms wake them.

mod beginning;
mod ending;
mod link_events;
mod service;
mod shard_command;
mod strays;

pub use shard_command::{Event, Following, ShardCommand};

use super::bound::Bound;
use super::call::{Call, CallKind, Shared, Value};
use super::call_runner::{CallRunner, Progress};
use super::call_table::Calls;
use super::dead::DeadCalls;
use super::helper::{Helper, HelperResult};
use super::pace::Pace;
use super::run::Run;
use super::script::Script;
use super::shard_context::{Halt, ShardContext};
use super::sipp_stats::SippStats;
use super::sockets::{AcceptedCalls, CallSockets};
use super::stall_detector::StallDetector;
use super::watch::Watch;
use crate::command;
use crate::random::Random;
use crate::wheel::{Alarm, Wheel};
use hashbrown::HashTable;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use strowger_core::{Outbox, Target};
use strowger_measure::{CallBook, ShardRecorder};
use strowger_message::{Index, Limits};
use strowger_net::clock;
use strowger_net::dedicated::DedicatedSockets;

/// Calls of one shard.
pub struct Traffic {
    shard: ShardContext,
    main: Arc<Script>,
    out_of_call: Option<Arc<Script>>,
    calls: Calls,
    free: Vec<u32>,
    table: HashTable<u32>,
    dead: DeadCalls,
    /// Calls of a ready answering side whose BYE may be retransmitted.
    ended: DeadCalls,
    /// Calls over accepted connections.
    accepted_calls: AcceptedCalls,
    /// Reconnections so far, and the time of the next, ms; 0: none.
    reconnected: u32,
    reconnect_at: u64,
    wheel: Wheel,
    pace: Pace,
    /// Three fields: a copy of the schedule that only the clock advances, the number of its calls so far, begun or not,
    /// and the number of scheduled calls that have begun.
    wanted: Pace,
    intended: u64,
    scheduled: u64,
    /// End of the schedule.
    bound: Bound,
    /// Earliest next wake-up for a call, by the mean of earlier ones, µs.
    next_wake: u64,
    id: Box<[beginning::IdPart]>,
    /// Decides which Call-IDs belong to this shard.
    owns: Option<Owns>,
    number: u64,
    /// Calls begun so far, by the schedule or by a peer.
    begun: u64,
    limit: u64,
    /// Users without a call, and since when, µs.
    idle_users: VecDeque<(u32, u64)>,
    /// Number of users. A user with a higher number makes no more calls.
    users: u32,
    paused: bool,
    /// True before the schedule has begun; and its start, µs; `u64::MAX`: unknown.
    waiting: bool,
    opens_at: u64,
    quitting: bool,
    /// True if new callers are refused because the run ends.
    refusing: bool,
    /// Slot from which open calls have yet to leave, and the time of the command, µs.
    leave_from: Option<(u32, u64)>,
    finished: bool,
    /// True if only the connections of ended calls are still open.
    parting: bool,
    /// The calls of the run, while the calls before its schedule are made.
    resumed: Option<Box<Following>>,
    /// True until `<init>` has run.
    uninitialised: bool,
    /// Open calls outside the main scenario.
    strangers: usize,
    events: Sender<Event>,
    /// Messages received in this round.
    heard: usize,
    /// Kernel timestamp of the message received next; 0: none.
    stamped: u64,
    /// Next time to open the recorder, ms.
    tick: u64,
    stall_detector: StallDetector,
}

/// Decides by Call-ID whether a call belongs to a shard.
pub type Owns = Box<dyn Fn(&[u8]) -> bool + Send>;

/// Number of messages received in one round from which on more messages are assumed to wait; meanwhile their requests
/// must not be retransmitted. No alarm is postponed for longer than `PATIENCE`, milliseconds, for this reason.
const FLOOD: usize = 128;
const PATIENCE: u64 = 500;

/// Interval of checks whether the connections of calls have ended, milliseconds.
const PARTING: u64 = 5;

/// Wake-ups for calls that may come ahead of the mean rate.
const WAKES: u64 = 8;

/// Maximum number of calls begun in one round, so that received messages are handled between them.
const BEGUN: usize = 64;

impl Traffic {
    /// Creates the traffic, on the thread of its shard. Opens `recorder`. The answers of `helper` come as
    /// [`ShardCommand::Helped`].
    pub fn new(
        run: Arc<Run>,
        main: Arc<Script>,
        out_of_call: Option<Arc<Script>>,
        recorder: ShardRecorder,
        events: Sender<Event>,
        helper: Helper,
    ) -> Self {
        let now = clock::micros();
        let ms = now / 1_000;
        let scenario = &main.scenario;
        let mut shared = Shared::default();
        // The globals of the out-of-call scenario begin with those of the main one.
        let globals = match &out_of_call {
            Some(aside) if aside.scenario.variables.global.starts_with(&scenario.variables.global) => &aside.scenario,
            _ => scenario,
        };
        shared.global.resize(globals.variables.global.len(), Value::Unset);
        for (name, value) in &run.globals {
            if let Some(place) = globals.variables.global.iter().position(|known| known == name) {
                shared.global[place].set_text(value.as_bytes());
            }
        }
        let shard = ShardContext {
            stats: SippStats::new(scenario).beside(out_of_call.as_ref().map(|script| &*script.scenario)),
            shared,
            random: Random(run.seed),
            watch: None,
            now,
            ms,
            came: now,
            posted: 0,
            departing: 0,
            burst: 1,
            wall: 0,
            index: Index::new(),
            parsed: None,
            limits: Limits::default(),
            dynamic_id: run.dynamic_id.first,
            open: 0,
            places: super::free_places::FreePlaces::default(),
            halt: None,
            broken: false,
            frozen: false,
            scratch: Vec::new(),
            pool: super::buffer_pool::BufferPool::new(&run),
            messages: super::message_pool::MessagePool::default(),
            link: None,
            call_sockets: None,
            media: None,
            warned_of_media: false,
            helper,
            matcher: strowger_scenario::expression::Matcher::new(),
            recorder,
            run: run.clone(),
        };
        let pace = Pace::profile(run.load.profile.clone(), now, run.load.arrivals, run.seed);
        let ended = DeadCalls::new(ending::repetitions(&run, &main, out_of_call.as_ref()));
        Self {
            wanted: pace.clone(),
            intended: 0,
            scheduled: 0,
            bound: Bound::of(&run.load, now),
            next_wake: 0,
            pace,
            limit: run.load.limit,
            idle_users: (1..=run.load.users.unwrap_or(0)).rev().map(|user| (user, now)).collect(),
            users: run.load.users.unwrap_or(0),
            out_of_call,
            id: beginning::id_parts(&run),
            wheel: Wheel::new(ms),
            calls: Calls::default(),
            free: Vec::new(),
            table: HashTable::new(),
            accepted_calls: AcceptedCalls::default(),
            reconnected: 0,
            reconnect_at: 0,
            dead: DeadCalls::new(u64::from(run.behaviour.dead_call_wait)),
            ended,
            owns: None,
            number: 0,
            begun: 0,
            paused: false,
            waiting: false,
            opens_at: u64::MAX,
            quitting: false,
            refusing: false,
            leave_from: None,
            finished: false,
            parting: false,
            resumed: None,
            uninitialised: !main.scenario.init.is_empty(),
            strangers: 0,
            heard: 0,
            stamped: 0,
            tick: ms + 1_000,
            stall_detector: StallDetector::default(),
            shard,
            main,
            events,
        }
    }

    /// Sets the observer.
    #[must_use]
    pub fn watched(mut self, watch: Option<Box<dyn Watch>>) -> Self {
        self.shard.watch = watch;
        self
    }

    /// Sets the media plane of the calls.
    #[must_use]
    pub fn with_media(mut self, media: Option<crate::media::Legs>) -> Self {
        self.shard.media = media;
        self
    }

    /// Sets the source of sockets and connections of the calls' own.
    #[must_use]
    pub fn with_sockets(mut self, sockets: DedicatedSockets) -> Self {
        self.shard.call_sockets = CallSockets::new(self.shard.run.sockets, self.shard.run.transport, sockets);
        self
    }

    /// Sets the connection to the other controllers of third party call control; their commands come as
    /// [`ShardCommand::LinkEvent`].
    #[must_use]
    pub fn with_link(mut self, link: Option<command::Link>) -> Self {
        self.shard.link = link;
        self
    }

    /// Stops all calls until [`ShardCommand::Pause`] is taken back.
    #[must_use]
    pub fn paused(mut self) -> Self {
        self.paused = true;
        self
    }

    /// Waits for [`ShardCommand::Begin`] to begin the schedule: the cost of starting (threads, connections, handshakes) is no
    /// lag.
    #[must_use]
    pub fn waiting(mut self) -> Self {
        self.waiting = true;
        self
    }

    /// Limits the shard to calls whose Call-ID it owns. Each of several shards walks the whole schedule.
    #[must_use]
    pub fn owning(mut self, owns: Owns) -> Self {
        self.owns = Some(owns);
        self
    }

    /// Returns a slot for a call with this Call-ID.
    fn place(&mut self, hash: u64, kind: CallKind, target: Target, book: CallBook) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.calls.push(Call::new(target, book));
            self.calls.len() as u32 - 1
        });
        let call = &mut self.calls[slot as usize];
        call.begin(hash, kind, target, book, self.shard.now, self.shard.run.base_cseq);
        call.local_port = self.shard.run.local_port;
        let calls = &self.calls;
        self.table.insert_unique(hash, slot, |&s| calls[s as usize].hash);
        self.shard.open += 1;
        self.strangers += usize::from(kind != CallKind::Main);
        slot
    }

    #[cold]
    fn helped(&mut self, answer: HelperResult, out: &mut Outbox) {
        if self.shard.frozen {
            return;
        }
        match answer {
            HelperResult::Address { host, address: None, .. } => {
                self.shard.fatal(format_args!("Unknown host '{host}' for setdest"));
                self.tell_halt();
            }
            HelperResult::Address { place, .. } | HelperResult::Files { place, .. } => {
                let waits = |call: &Call| call.live && call.generation == place.generation;
                if self.calls.get(place.slot as usize).is_some_and(waits) {
                    self.drive(place.slot, out, |runner| runner.helped(place.number, answer));
                }
            }
            HelperResult::NoShell { command, error } => {
                self.shard.warn(format_args!("system call error for {command}: {error}"));
            }
        }
    }

    fn script(&self, kind: CallKind) -> Arc<Script> {
        match (kind, &self.out_of_call) {
            (CallKind::OutOfCall, Some(script)) => script.clone(),
            _ => self.main.clone(),
        }
    }

    /// Runs `work` on a call and handles the result.
    fn drive(&mut self, slot: u32, out: &mut Outbox, work: impl FnOnce(&mut CallRunner<'_>) -> Progress) {
        let call = &mut self.calls[slot as usize];
        let script = match (call.kind, &self.out_of_call) {
            (CallKind::OutOfCall, Some(script)) => script,
            _ => &self.main,
        };
        // Calls of the out-of-call scenario count in steps of their own.
        let (aside, warm_up) = (call.kind == CallKind::OutOfCall, call.book.warm_up);
        if aside {
            self.shard.stats.turn();
        }
        if warm_up {
            self.shard.recorder.turn_to_warm_up();
        }
        let mut runner = CallRunner { shard: &mut self.shard, call, script, slot, out };
        let went = work(&mut runner);
        if aside {
            self.shard.stats.turn();
        }
        if warm_up {
            self.shard.recorder.turn_to_warm_up();
        }
        match went {
            Progress::Over => self.end_call(slot),
            // This call existed for one answer.
            Progress::Waits if self.calls[slot as usize].kind == CallKind::Passing => self.end_call(slot),
            Progress::Waits => {
                let call = &mut self.calls[slot as usize];
                let due = call.due();
                if due < call.alarm {
                    call.alarm = due;
                    let generation = call.generation;
                    self.wheel.set(Alarm { due, slot, generation });
                }
            }
        }
        self.tell_halt();
    }

    /// Reports a requested end of the run.
    fn tell_halt(&mut self) {
        if let Some(halt) = self.shard.halt.take() {
            self.shard.helper.flush();
            self.quitting = true;
            self.shard.frozen |= halt != Halt::Gracefully;
            let _ = self.events.send(Event::Halt(halt));
        }
    }

    fn end_call(&mut self, slot: u32) {
        let call = &mut self.calls[slot as usize];
        if !call.counted {
            self.shard.leave_place();
        }
        let hash = call.hash;
        self.strangers -= usize::from(call.kind != CallKind::Main);
        if let Some(media) = &mut self.shard.media {
            let heard = media.end(slot);
            self.shard.recorder.media_heard(&call.book, &heard);
        }
        call.live = false;
        call.generation = call.generation.wrapping_add(1).max(1);
        call.alarm = u64::MAX;
        match (call.socket.take(), &mut self.shard.call_sockets) {
            (Some(flow), Some(call_sockets)) => call_sockets.give_back(flow, Some(self.shard.ms)),
            _ => {
                if let Some(flow) = call.target.flow {
                    self.accepted_calls.remove(flow);
                }
            }
        }
        let user = std::mem::take(&mut call.user);
        if user > 0 && user <= self.users {
            self.idle_users.push_back((user, self.shard.came));
        }
        if let Ok(entry) = self.table.find_entry(hash, |&s| s == slot) {
            entry.remove();
        }
        self.dead.add(hash, self.shard.ms);
        self.ended.add(hash, self.shard.ms);
        if let (Some(circuits), Some(circuit)) = (&self.shard.run.circuits, self.calls[slot as usize].circuit.take()) {
            circuits.give(circuit);
        }
        self.free.push(slot);
    }

    /// Wakes the calls whose alarms are due.
    fn alarms(&mut self, out: &mut Outbox) {
        if self.shard.frozen {
            return;
        }
        let until = if self.heard >= FLOOD { self.shard.ms.saturating_sub(PATIENCE) } else { self.shard.ms };
        while let Some(alarm) = self.wheel.ring(until) {
            let call = &mut self.calls[alarm.slot as usize];
            if !call.live || call.generation != alarm.generation || call.alarm != alarm.due {
                continue;
            }
            call.alarm = u64::MAX;
            let due = call.due();
            if due <= self.shard.ms {
                self.shard.recorder.timer_lag(self.shard.now.saturating_sub(due * 1_000));
            } else {
                if due != u64::MAX {
                    call.alarm = due;
                    self.wheel.set(Alarm { due, ..alarm });
                }
                continue;
            }
            self.drive(alarm.slot, out, |runner| runner.wake());
        }
    }
}

/// Returns the part of a Call-ID that identifies the call, which is the part after `///`, if present.
fn known(name: &[u8], keep_slashes: bool) -> &[u8] {
    if keep_slashes {
        return name;
    }
    match memchr::memchr(b'/', name).and_then(|_| memchr::memmem::find(name, b"///")) {
        Some(at) => &name[at + 3..],
        None => name,
    }
}
