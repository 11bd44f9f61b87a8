//! Calls of one shard: the schedule or a message begins them, Call-IDs find them, alarms wake them.

mod beginning;
mod ending;
mod service;

use super::bound::Bound;
use super::call::{Call, CallKind, Shared, Value};
use super::call_runner::{CallRunner, Progress};
use super::call_table::Calls;
use super::dead::DeadCalls;
use super::helper::{Helper, HelperResult};
use super::pace::Pace;
use super::received_message;
use super::run::Run;
use super::script::Script;
use super::shard_context::{Halt, ShardContext};
use super::sipp_stats::SippStats;
use super::sockets::{AcceptedCalls, CallSockets};
use super::stall_detector::StallDetector;
use super::watch::Watch;
use crate::command::{self, LinkEvent};
use crate::random::Random;
use crate::wheel::{Alarm, Wheel};
use hashbrown::HashTable;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Sender, SyncSender};
use strowger_core::{Arrival, Outbox, Target};
use strowger_measure::{CallBook, Counter, ShardRecorder};
use strowger_message::{Index, Limits, Method};
use strowger_net::clock;
use strowger_net::dedicated::DedicatedSockets;
use strowger_scenario::ThirdPartyRole;

/// Events that a shard sends to the thread that started it.
#[derive(Debug)]
pub enum Event {
    /// No call is open and none will begin. Carries the counts of this shard.
    Finished(Box<SippStats>),
    /// An action asked for the end of the run.
    Halt(Halt),
}

/// Commands to a running shard.
#[derive(Debug)]
pub enum ShardCommand {
    /// Sets the rate, calls per second.
    Rate(f64),
    /// Replaces the remaining profile.
    Profile(Vec<super::pace::Part>),
    /// Sets the limit of concurrent calls.
    Limit(u64),
    /// Sets the number of users, where calls come by users.
    Users(u32),
    /// Makes the connection that calls will use, so that none of them waits for it.
    Connect,
    /// Begins the schedule at this time of the engine's clock (µs), or now; see [`Traffic::waiting`].
    Begin(Option<u64>),
    /// Stops new calls (true) or resumes them (false).
    Pause(bool),
    /// Stops new calls permanently.
    Quit,
    /// Stops new calls, and refuses new calls of peers. Open calls continue, except those that only wait for
    /// retransmissions. The end of calls of the out-of-call scenario is awaited.
    Close,
    /// Stops new calls and ends open ones with a CANCEL or a BYE, which is sent again until it is answered. The sender
    /// of the command bounds that time with [`ShardCommand::End`].
    Leave,
    /// Ends every open call now, with or without a message to the peer.
    End { goodbye: bool },
    /// Delivers a command from another controller, or its departure (third party call control).
    LinkEvent(LinkEvent),
    /// Delivers the result of work outside the shard.
    Helped(HelperResult),
    /// Ends open calls without a message and begins other calls on the same sockets.
    Follow(Box<Following>),
    /// Sends the counts to this channel.
    Report(SyncSender<SippStats>),
}

/// Calls that follow the calls of the run on the same sockets. Meanwhile no call of a peer is accepted. The out-of-call
/// scenario remains.
#[derive(Debug)]
pub struct Following {
    pub run: Arc<Run>,
    pub script: Arc<Script>,
    /// Recorder of these calls; the run counts none of them.
    pub recorder: ShardRecorder,
    /// Receiver of later events.
    pub events: Sender<Event>,
}

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
    leave_from: Option<u32>,
    leave_since: u64,
    finished: bool,
    /// True if only the connections of ended calls are still open.
    parting: bool,
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
            leave_since: 0,
            finished: false,
            parting: false,
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

    /// Returns whether the commands of another controller begin calls.
    fn begins_by_word(&self) -> bool {
        self.main.scenario.third_party == Some(ThirdPartyRole::B)
    }

    /// Handles the departure of another controller.
    #[cold]
    fn lose(&mut self, name: &str, out: &mut Outbox) {
        self.quitting = true;
        let classic = self.shard.link.as_ref().is_some_and(command::Link::is_classic);
        let who = match (classic, self.begins_by_word()) {
            (false, _) => "One of the twin instances",
            (true, true) => "3PCC controller A",
            (true, false) => "3PCC controller B",
        };
        self.shard.warn(format_args!("{who} has ended -> exiting"));
        for slot in 0..self.calls.len() as u32 {
            if self.calls[slot as usize].live && !self.calls[slot as usize].counted {
                self.drive(slot, out, |runner| runner.lose_controller(name));
            }
        }
    }

    /// Delivers a command of another controller to its call, or begins a call with it.
    #[cold]
    fn on_link_event(&mut self, heard: LinkEvent, out: &mut Outbox) {
        let word = match heard {
            LinkEvent::Command(word) => word,
            LinkEvent::Ended(name) => return self.lose(&name, out),
        };
        let Some(whole) = command::call_id(&word) else {
            return self.shard.warn(format_args!("a command without Call-ID is discarded"));
        };
        let keep_slashes = self.shard.run.behaviour.keep_slashes;
        let name = known(whole, keep_slashes);
        let hash = received_message::hash(name);
        let calls = &self.calls;
        let found = self.table.find(hash, |&s| known(calls[s as usize].id(), keep_slashes) == name).copied();
        if let Some(slot) = found {
            return self.drive(slot, out, |runner| runner.receive_command(&word));
        }
        let address = self.shard.run.sending_address.or(self.shard.run.target);
        let begins = self.begins_by_word() && self.may_begin() && !command::is_abort(&word);
        let Some(address) = address.filter(|_| begins) else {
            let text = String::from_utf8_lossy(&word).into_owned();
            return self.shard.warn(format_args!("a command for no known call is discarded:\n{text}"));
        };
        let run = &*self.shard.run;
        let target = run.to(address);
        self.number += 1;
        self.begun += 1;
        self.shard.recorder.calls_intended(1);
        let book = self.shard.recorder.call_started(self.shard.now, self.shard.came, 0);
        let slot = self.place(hash, CallKind::Main, target, book);
        let number = self.number;
        let call = &mut self.calls[slot as usize];
        call.name(whole, number, 0);
        call.prepare(&self.main);
        self.shard.stats.outgoing += 1;
        self.drive(
            slot,
            out,
            |runner| if runner.take_socket() { runner.receive_command(&word) } else { Progress::Over },
        );
    }

    /// Takes the result of work outside the shard.
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

    /// Handles a message that belongs to no open call.
    #[cold]
    fn stray(&mut self, hash: u64, name: &[u8], arrival: &Arrival, bytes: &[u8], out: &mut Outbox) {
        if self.dead.knows(hash) {
            self.shard.recorder.dead_call(bytes.len());
            self.shard.stats.dead_call += 1;
            let id = String::from_utf8_lossy(name).into_owned();
            if self.shard.watch.is_some() {
                let message = String::from_utf8_lossy(bytes).into_owned();
                self.shard.warn(format_args!(
                    "Received message for a call that is already terminated, Call-ID '{id}': {message}"
                ));
            }
            return;
        }
        let request = bytes.first() != Some(&b'S') || !bytes.starts_with(b"SIP/2.0");
        if self.out_of_call.is_some() && request && self.disown(hash, arrival, bytes, out) {
            return;
        }
        if self.out_of_call.is_some() && request {
            self.shard.recorder.count(Counter::AutoAnswered, 1);
            self.shard.stats.auto_answered += 1;
            let method = String::from_utf8_lossy(bytes.split(|&b| b == b' ').next().unwrap_or_default()).into_owned();
            self.shard.warn(format_args!("Received out-of-call {method} message, using the out-of-call scenario"));
            return self.accept(hash, CallKind::OutOfCall, name, arrival, bytes, out);
        }
        let method = bytes.iter().position(|&b| b == b' ').map_or(Method::Other, |end| Method::of(&bytes[..end]));
        let polite = matches!(method, Method::Info | Method::Notify | Method::Options | Method::Update);
        if self.shard.run.behaviour.auto_answer && polite {
            self.shard.recorder.count(Counter::AutoAnswered, 1);
            self.shard.stats.auto_answered += 1;
            let id = String::from_utf8_lossy(name).into_owned();
            self.shard.warn(format_args!(
                "Automatic response mode for an unexpected INFO, NOTIFY, OPTIONS or UPDATE for call: {id}"
            ));
            return self.accept(hash, CallKind::Passing, name, arrival, bytes, out);
        }
        self.shard.recorder.out_of_call(bytes.len());
        self.shard.stats.out_of_call += 1;
        let message = String::from_utf8_lossy(bytes).into_owned();
        self.shard.warn(format_args!("Discarding message which can't be mapped to a known SIPp call:\n{message}"));
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
