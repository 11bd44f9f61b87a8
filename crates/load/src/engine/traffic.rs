//! The calls of one shard: begun by the schedule or by what comes, found by Call-ID, woken by alarms.

mod beginning;
mod ending;
mod service;

use super::bound::Bound;
use super::call::{Call, Calls, Kind, Shared, Value};
use super::dead::DeadCalls;
use super::incoming;
use super::ledger::Ledger;
use super::pace::Pace;
use super::presence::Presence;
use super::run::Run;
use super::script::Script;
use super::sockets::{Riders, Ways};
use super::stage::{Go, Stage};
use super::watch::Watch;
use super::wheel::{Alarm, Wheel};
use super::world::{Halt, Random, World};
use crate::command::{self, Heard};
use crate::scenario::ThirdPartyRole;
use hashbrown::HashTable;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Sender, SyncSender};
use strowger_core::{Arrival, Outbox, Target};
use strowger_measure::{Books, CallBook, Counter};
use strowger_message::{Index, Limits, Method};
use strowger_net::clock;
use strowger_net::dedicated::DedicatedSockets;

/// What the traffic of a shard tells the thread that started it.
#[derive(Debug)]
pub enum Event {
    /// No call is open and none will be begun. The counts of this shard.
    Finished(Box<Ledger>),
    /// An action asked for the end of the run.
    Halt(Halt),
}

/// What it can be asked for while it runs.
#[derive(Debug)]
pub enum Order {
    /// Calls a second from now on.
    Rate(f64),
    /// Replaces the rest of the profile.
    Profile(Vec<super::pace::Part>),
    /// Calls open at once, at most.
    Limit(u64),
    /// So many users from now on, where calls come by users.
    Users(u32),
    /// The connection that calls will use is made, so that none of them waits for it.
    Connect,
    /// The schedule begins at this moment of the engine's clock (µs), or now; see [`Traffic::waiting`].
    Begin(Option<u64>),
    /// No calls are begun until this is taken back.
    Pause(bool),
    /// No calls are begun any more.
    Quit,
    /// Nor is one taken: a caller that comes is refused. Calls that are open go on, but for those that only stay for repetitions. Calls
    /// beside the scenario are waited for.
    Close,
    /// No calls are begun any more, and those that are open end: with a CANCEL or a BYE, which is repeated until it is
    /// answered. How long that may take is for the asker to say, by [`Order::End`].
    Leave,
    /// Every open call ends now, with a word to the peer or without.
    End { goodbye: bool },
    /// Another controller says something, or has gone (third party call control).
    Heard(Heard),
    /// Open calls end without a word, and these follow on the same sockets.
    Follow(Box<Following>),
    /// Where the counts are to go.
    Report(SyncSender<Ledger>),
}

/// Calls that follow those of the run on the same sockets. No call of a peer is taken meanwhile. The scenario beside the main one
/// stays what it is.
#[derive(Debug)]
pub struct Following {
    pub run: Arc<Run>,
    pub script: Arc<Script>,
    /// Nothing of them is counted in the books of the run.
    pub books: Books,
    /// What is reported from now on goes here.
    pub events: Sender<Event>,
}

/// The calls of one shard.
pub struct Traffic {
    world: World,
    main: Arc<Script>,
    out_of_call: Option<Arc<Script>>,
    calls: Calls,
    free: Vec<u32>,
    table: HashTable<u32>,
    dead: DeadCalls,
    /// Calls of a ready answering side whose BYE may come again.
    ended: DeadCalls,
    /// Calls over connections that others made.
    riders: Riders,
    /// Connections made again so far, and when the next is to be made, ms; 0: none is.
    reconnected: u32,
    reconnect_at: u64,
    wheel: Wheel,
    pace: Pace,
    /// The same schedule as far as it has come by the clock: what was wanted, begun or not; how many, and how many of them begun.
    wanted: Pace,
    intended: u64,
    scheduled: u64,
    /// End of the schedule.
    bound: Bound,
    /// When the next timer for a call may go off at the earliest, by the mean of those before, µs.
    next_wake: u64,
    id: Box<[beginning::IdPart]>,
    /// Whether calls of this name belong to this shard.
    owns: Option<Owns>,
    number: u64,
    /// Begun so far, by the schedule or from outside.
    begun: u64,
    limit: u64,
    /// Users without a call, and since when, µs.
    idle_users: VecDeque<(u32, u64)>,
    /// Who has a higher number makes no calls any more.
    users: u32,
    paused: bool,
    /// The schedule has not begun, and when it is to begin, µs; `u64::MAX`: that has not been said.
    waiting: bool,
    opens_at: u64,
    quitting: bool,
    /// A caller that comes hears that the run ends.
    refusing: bool,
    /// Open calls from this place on are still to take their leave, which was asked for at this time, µs.
    leave_from: Option<u32>,
    leave_since: u64,
    finished: bool,
    /// And only the connections of calls are still to end.
    parting: bool,
    /// `<init>` is still to be passed through.
    uninitialised: bool,
    /// Open calls that are not of the main scenario.
    strangers: usize,
    events: Sender<Event>,
    /// Messages that came in this round.
    heard: usize,
    /// When the message came that is received next, if the kernel said so; else 0.
    stamped: u64,
    /// When the books want to be opened next, ms.
    tick: u64,
    presence: Presence,
}

/// Tells by its Call-ID whether a call belongs to a shard.
pub type Owns = Box<dyn Fn(&[u8]) -> bool + Send>;

/// So many messages in one round, and more are waiting: what they answer must not be sent again meanwhile. But no alarm
/// waits longer than so many milliseconds for that.
const FLOOD: usize = 128;
const PATIENCE: u64 = 500;

/// Milliseconds between two looks whether the connections of calls have ended.
const PARTING: u64 = 5;

/// So many wakes for calls may come faster than the mean of them may be.
const WAKES: u64 = 8;

/// Calls begun in one round at most: what has come in gets its turn between them.
const BEGUN: usize = 64;

impl Traffic {
    /// On the thread of its shard. `books` are open from now on.
    pub fn new(
        run: Arc<Run>,
        main: Arc<Script>,
        out_of_call: Option<Arc<Script>>,
        books: Books,
        events: Sender<Event>,
    ) -> Self {
        let now = clock::micros();
        let ms = now / 1_000;
        let scenario = &main.scenario;
        let mut shared = Shared::default();
        // A scenario beside the main one has the main one's globals first, then its own.
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
        let world = World {
            ledger: Ledger::new(scenario).beside(out_of_call.as_ref().map(|script| &*script.scenario)),
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
            places: super::places::Places::default(),
            halt: None,
            broken: false,
            frozen: false,
            scratch: Vec::new(),
            desk: super::desk::Desk::new(&run),
            shelf: super::shelf::Shelf::default(),
            link: None,
            ways: None,
            media: None,
            told_of_media: false,
            matcher: crate::expression::Matcher::new(),
            books,
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
            riders: Riders::default(),
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
            presence: Presence::default(),
            world,
            main,
            events,
        }
    }

    /// Who looks on.
    #[must_use]
    pub fn watched(mut self, watch: Option<Box<dyn Watch>>) -> Self {
        self.world.watch = watch;
        self
    }

    /// Through what the calls send their media.
    #[must_use]
    pub fn with_media(mut self, media: Option<crate::media::Legs>) -> Self {
        self.world.media = media;
        self
    }

    /// Where calls have sockets or connections of their own, this is what the shard opens them with.
    #[must_use]
    pub fn with_sockets(mut self, sockets: DedicatedSockets) -> Self {
        self.world.ways = Ways::new(self.world.run.sockets, self.world.run.transport, sockets);
        self
    }

    /// The way to the other controllers of third party call control; what they say comes as [`Order::Heard`].
    #[must_use]
    pub fn with_link(mut self, link: Option<command::Link>) -> Self {
        self.world.link = link;
        self
    }

    /// Begins nothing, and takes nothing, until [`Order::Pause`] is taken back.
    #[must_use]
    pub fn paused(mut self) -> Self {
        self.paused = true;
        self
    }

    /// The schedule begins with [`Order::Begin`], not with the thread: what starting costs (threads, connections, handshakes) is
    /// no lag of it.
    #[must_use]
    pub fn waiting(mut self) -> Self {
        self.waiting = true;
        self
    }

    /// One of several shards: only calls whose Call-ID it owns are begun here; each walks the whole schedule.
    #[must_use]
    pub fn owning(mut self, owns: Owns) -> Self {
        self.owns = Some(owns);
        self
    }

    /// A place for a call of this name.
    fn place(&mut self, hash: u64, kind: Kind, target: Target, book: CallBook) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.calls.push(Call::new(target, book));
            self.calls.len() as u32 - 1
        });
        let call = &mut self.calls[slot as usize];
        call.begin(hash, kind, target, book, self.world.now, self.world.run.base_cseq);
        call.local_port = self.world.run.local_port;
        let calls = &self.calls;
        self.table.insert_unique(hash, slot, |&s| calls[s as usize].hash);
        self.world.open += 1;
        self.strangers += usize::from(kind != Kind::Main);
        slot
    }

    /// Its calls are begun by the words of another controller.
    fn begins_by_word(&self) -> bool {
        self.main.scenario.third_party == Some(ThirdPartyRole::B)
    }

    /// Another controller has gone.
    #[cold]
    fn lose(&mut self, name: &str, out: &mut Outbox) {
        self.quitting = true;
        let classic = self.world.link.as_ref().is_some_and(command::Link::is_classic);
        let who = match (classic, self.begins_by_word()) {
            (false, _) => "One of the twin instances",
            (true, true) => "3PCC controller A",
            (true, false) => "3PCC controller B",
        };
        self.world.warn(format_args!("{who} has ended -> exiting"));
        for slot in 0..self.calls.len() as u32 {
            if self.calls[slot as usize].live && !self.calls[slot as usize].counted {
                self.drive(slot, out, |stage| stage.lose_controller(name));
            }
        }
    }

    /// What another controller says is for the call of that name, or begins one.
    #[cold]
    fn hear(&mut self, heard: Heard, out: &mut Outbox) {
        let word = match heard {
            Heard::Word(word) => word,
            Heard::Ended(name) => return self.lose(&name, out),
        };
        let Some(whole) = command::call_id(&word) else {
            return self.world.warn(format_args!("a command without Call-ID is discarded"));
        };
        let keep_slashes = self.world.run.behaviour.keep_slashes;
        let name = known(whole, keep_slashes);
        let hash = incoming::hash(name);
        let calls = &self.calls;
        let found = self.table.find(hash, |&s| known(calls[s as usize].id(), keep_slashes) == name).copied();
        if let Some(slot) = found {
            return self.drive(slot, out, |stage| stage.hear_command(&word));
        }
        let address = self.world.run.sending_address.or(self.world.run.target);
        let begins = self.begins_by_word() && self.may_begin() && !command::is_abort(&word);
        let Some(address) = address.filter(|_| begins) else {
            let text = String::from_utf8_lossy(&word).into_owned();
            return self.world.warn(format_args!("a command for no known call is discarded:\n{text}"));
        };
        let run = &*self.world.run;
        let target = run.to(address);
        self.number += 1;
        self.begun += 1;
        self.world.books.calls_intended(1);
        let book = self.world.books.call_started(self.world.now, self.world.came, 0);
        let slot = self.place(hash, Kind::Main, target, book);
        let number = self.number;
        let call = &mut self.calls[slot as usize];
        call.name(whole, number, 0);
        call.prepare(&self.main);
        self.world.ledger.outgoing += 1;
        self.drive(slot, out, |stage| if stage.take_socket() { stage.hear_command(&word) } else { Go::Over });
    }

    fn script(&self, kind: Kind) -> Arc<Script> {
        match (kind, &self.out_of_call) {
            (Kind::OutOfCall, Some(script)) => script.clone(),
            _ => self.main.clone(),
        }
    }

    /// Lets a call work, and sees to what becomes of it.
    fn drive(&mut self, slot: u32, out: &mut Outbox, work: impl FnOnce(&mut Stage<'_>) -> Go) {
        let call = &mut self.calls[slot as usize];
        let script = match (call.kind, &self.out_of_call) {
            (Kind::OutOfCall, Some(script)) => script,
            _ => &self.main,
        };
        // What the calls beside the scenario see is counted by their own steps.
        let (aside, warm_up) = (call.kind == Kind::OutOfCall, call.book.warm_up);
        if aside {
            self.world.ledger.turn();
        }
        if warm_up {
            self.world.books.turn_to_warm_up();
        }
        let mut stage = Stage { world: &mut self.world, call, script, slot, out };
        let went = work(&mut stage);
        if aside {
            self.world.ledger.turn();
        }
        if warm_up {
            self.world.books.turn_to_warm_up();
        }
        match went {
            Go::Over => self.end_call(slot),
            // It was there for one answer.
            Go::Waits if self.calls[slot as usize].kind == Kind::Passing => self.end_call(slot),
            Go::Waits => {
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

    /// Passes on what was asked of the whole run.
    fn tell_halt(&mut self) {
        if let Some(halt) = self.world.halt.take() {
            self.quitting = true;
            self.world.frozen |= halt != Halt::Gracefully;
            let _ = self.events.send(Event::Halt(halt));
        }
    }

    fn end_call(&mut self, slot: u32) {
        let call = &mut self.calls[slot as usize];
        if !call.counted {
            self.world.leave_place();
        }
        let hash = call.hash;
        self.strangers -= usize::from(call.kind != Kind::Main);
        if let Some(media) = &mut self.world.media {
            media.end(slot);
        }
        call.live = false;
        call.generation = call.generation.wrapping_add(1).max(1);
        call.alarm = u64::MAX;
        match (call.socket.take(), &mut self.world.ways) {
            (Some(flow), Some(ways)) => ways.give_back(flow, Some(self.world.ms)),
            _ => {
                if let Some(flow) = call.target.flow {
                    self.riders.alight(flow);
                }
            }
        }
        let user = std::mem::take(&mut call.user);
        if user > 0 && user <= self.users {
            self.idle_users.push_back((user, self.world.came));
        }
        if let Ok(entry) = self.table.find_entry(hash, |&s| s == slot) {
            entry.remove();
        }
        self.dead.add(hash, self.world.ms);
        self.ended.add(hash, self.world.ms);
        if let (Some(circuits), Some(circuit)) = (&self.world.run.circuits, self.calls[slot as usize].circuit.take()) {
            circuits.give(circuit);
        }
        self.free.push(slot);
    }

    /// Wakes the calls whose alarms have gone off.
    fn alarms(&mut self, out: &mut Outbox) {
        if self.world.frozen {
            return;
        }
        let until = if self.heard >= FLOOD { self.world.ms.saturating_sub(PATIENCE) } else { self.world.ms };
        while let Some(alarm) = self.wheel.ring(until) {
            let call = &mut self.calls[alarm.slot as usize];
            if !call.live || call.generation != alarm.generation || call.alarm != alarm.due {
                continue;
            }
            call.alarm = u64::MAX;
            let due = call.due();
            if due <= self.world.ms {
                self.world.books.timer_lag(self.world.now.saturating_sub(due * 1_000));
            } else {
                if due != u64::MAX {
                    call.alarm = due;
                    self.wheel.set(Alarm { due, ..alarm });
                }
                continue;
            }
            self.drive(alarm.slot, out, |stage| stage.wake());
        }
    }

    /// A message of no call that is open.
    #[cold]
    fn stray(&mut self, hash: u64, name: &[u8], arrival: &Arrival, bytes: &[u8], out: &mut Outbox) {
        if self.dead.knows(hash) {
            self.world.books.dead_call(bytes.len());
            self.world.ledger.dead_call += 1;
            let id = String::from_utf8_lossy(name).into_owned();
            if self.world.watch.is_some() {
                let message = String::from_utf8_lossy(bytes).into_owned();
                self.world.warn(format_args!(
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
            self.world.books.count(Counter::AutoAnswered, 1);
            self.world.ledger.auto_answered += 1;
            let method = String::from_utf8_lossy(bytes.split(|&b| b == b' ').next().unwrap_or_default()).into_owned();
            self.world.warn(format_args!("Received out-of-call {method} message, using the out-of-call scenario"));
            return self.accept(hash, Kind::OutOfCall, name, arrival, bytes, out);
        }
        let method = bytes.iter().position(|&b| b == b' ').map_or(Method::Other, |end| Method::of(&bytes[..end]));
        let polite = matches!(method, Method::Info | Method::Notify | Method::Options | Method::Update);
        if self.world.run.behaviour.auto_answer && polite {
            self.world.books.count(Counter::AutoAnswered, 1);
            self.world.ledger.auto_answered += 1;
            let id = String::from_utf8_lossy(name).into_owned();
            self.world.warn(format_args!(
                "Automatic response mode for an unexpected INFO, NOTIFY, OPTIONS or UPDATE for call: {id}"
            ));
            return self.accept(hash, Kind::Passing, name, arrival, bytes, out);
        }
        self.world.books.out_of_call(bytes.len());
        self.world.ledger.out_of_call += 1;
        let message = String::from_utf8_lossy(bytes).into_owned();
        self.world.warn(format_args!("Discarding message which can't be mapped to a known SIPp call:\n{message}"));
    }
}

/// The part of a Call-ID by which a call is known: what stands behind `///`, if that is in it.
fn known(name: &[u8], keep_slashes: bool) -> &[u8] {
    if keep_slashes {
        return name;
    }
    match memchr::memchr(b'/', name).and_then(|_| memchr::memmem::find(name, b"///")) {
        Some(at) => &name[at + 3..],
        None => name,
    }
}
