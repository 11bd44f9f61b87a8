//! A campaign: load for a target by a plan, from the first socket to the finished run. No words for people but sentences that
//! say what is wrong and what would help.

pub mod period;
pub mod plan;
pub mod preflight;
pub mod profile;
pub mod target;
pub mod users;

mod advice;
mod live;
mod prepared;
mod probe;
mod registration;
mod rehearsal;
mod remarks;
mod side;
mod silence;

pub use advice::Facts as AdviceFacts;
pub use live::Live;
pub use plan::{Connections, Plan, Trust, User, Work};
pub use probe::probe;
pub use rehearsal::{Line, rehearse};
pub use side::{timers, warnings};
pub use target::Target;

use crate::engine::Halt;
use crate::engine::ledger::Ledger;
use crate::engine::traffic::{Event, Order};
use crate::measure::{
    Books, Clock, Collector, Counter, GeneratorRole, Heading, Journal, Level, Log, Page, Run, grouped,
};
use crate::scenario::Role;
use crate::workload::Workload;
use prepared::Prepared;
use registration::{HASTE, Registration};
use remarks::Remarks;
use side::{Part, Side};
use silence::{Change, Silence};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::TryRecvError;
use std::time::{Duration, Instant, SystemTime};
use strowger_net::{Snapshot, clock};

/// How far a campaign is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Calls are begun.
    Running,
    /// None is begun any more; those that are open end.
    Ending,
    Over,
}

/// A campaign under way.
pub struct Campaign {
    plan: Plan,
    journal: Journal,
    callers: Vec<Side>,
    answerer: Option<Side>,
    /// The answering side has registered.
    registration: Option<Registration>,
    /// The books of the answering side where they are not those of the campaign.
    aside: Option<Collector>,
    /// What is seen from beside the shards.
    own: Books,
    drops: u64,
    unsent: u64,
    started: Instant,
    /// Since when no call is begun.
    ending: Option<Instant>,
    /// Since when those that are open are ended.
    leaving: Option<Instant>,
    /// When a side that only answers was last told to take no call any more.
    closed: Option<Instant>,
    /// When it was told to end those that are open.
    hung_up: Option<Instant>,
    /// How long calls may then take to end.
    drain: Duration,
    reason: &'static str,
    remarks: Remarks,
    silence: Silence,
    /// What is to be said while it runs.
    news: Vec<String>,
    /// A thread has ended that should not have.
    broken: bool,
    stage: Stage,
    /// Where messages go, resolved.
    destination: Option<SocketAddr>,
}

/// A campaign that is over.
#[derive(Debug)]
pub struct Ended {
    pub run: Run,
    /// By step of the document, over all generators.
    pub ledger: Ledger,
    /// What the answering side counted, where both ends ran here.
    pub answering: Option<Page>,
    /// What went wrong, in sentences that help; the gravest first.
    pub advice: Vec<String>,
    /// The generator itself broke down on the way: a fault of this program.
    pub broken: bool,
}

/// How a run ended whose last calls did not end by themselves (see [`Ending`](crate::measure::Ending)).
pub const CUT: &str = "calls that did not end were cut off";

/// How a run ended that Ctrl-C cut short.
pub const INTERRUPTED: &str = "interrupted";

/// How a run ended that met an error with which it could not go on.
pub const HALTED: &str = "an error ended it";

/// Who was called waits for the answers to its BYEs for so long, but no longer than for calls to end by themselves.
const GOODBYE: Duration = Duration::from_secs(2);

/// Where no call is taken any more, those that ended since are kept for so long, in case the peer repeats what it said last.
const REPETITIONS: Duration = Duration::from_millis(500);

impl Campaign {
    /// Opens the sockets, registers who has to be registered, and begins. That may take half a minute if the target does not answer;
    /// `stopped` says that it need not be waited for any more.
    ///
    /// # Errors
    /// Why it cannot begin, and what would help.
    pub fn start(plan: Plan, stopped: &dyn Fn() -> bool) -> Result<Self, String> {
        let mut prepared = Prepared::new(&plan)?;
        let count = prepared.callers.len().max(1);
        let callers_none = prepared.callers.is_empty();
        let now = clock::micros();
        let clock = Clock::new(now, SystemTime::now());
        let first = match (callers_none, prepared.registers) {
            (true, true) => Part::Receiver,
            (true, false) => Part::Answerer,
            _ => Part::Caller { index: 0, count },
        };
        let scenario = prepared.facts.scenario(&plan, first)?;
        right_side(&plan, scenario.role)?;
        let heading = heading(&plan, callers_none, clock, now, scenario.timed());
        let drain = plan.drain(&scenario);
        let log = match &plan.log {
            Some(path) => Some(
                Log::create(path, &heading)
                    .map_err(|e| format!("the raw log {} cannot be written: {e}", path.display()))?,
            ),
            None => None,
        };
        let mut journal = Journal::new(clock, heading, count + 2, log).bounded(plan.rows).in_windows(plan.window);
        let remarks = Remarks::default();
        let mut aside = None;
        let mut answerer = None;
        let mut registration = prepared.registers.then(|| Registration::new(prepared.facts.clone()));
        if let Some(bound) = prepared.answerer.take() {
            let part = if prepared.registers { Part::Receiver } else { Part::Answerer };
            let scenario = Arc::new(prepared.facts.scenario(&plan, part)?);
            let books = if callers_none {
                journal.books(now)
            } else {
                let mut collector = Collector::new(clock, scenario.timed(), 1);
                let books = collector.books(now);
                aside = Some(collector);
                books
            };
            let run = prepared.facts.run(&plan, part, scenario, bound.address)?;
            let heard = callers_none.then(|| remarks.clone());
            let ear = match &registration {
                Some(registration) => Some(registration.ear(heard)),
                None => heard.map(|remarks| remarks.ear()),
            };
            answerer = Some(Side::start(bound, run, books, ear)?);
        }
        let mut callers = Vec::new();
        for (index, bound) in prepared.callers.into_iter().enumerate() {
            let part = Part::Caller { index, count };
            let scenario = Arc::new(prepared.facts.scenario(&plan, part)?);
            let run = prepared.facts.run(&plan, part, scenario, bound.address)?;
            let side = Side::prepare(bound, run, journal.books(clock::micros()), remarks.ear())?;
            callers.push(side);
        }
        if let (Some(registration), Some(collector), Some(side)) = (&mut registration, &mut aside, &mut answerer) {
            registration.wait(side, collector, &plan, stopped)?;
        }
        warm_up(&callers, &plan, stopped);
        for side in &callers {
            side.order(Order::Begin);
        }
        let own = journal.books(clock::micros());
        for side in callers.iter().chain(&answerer) {
            if let Some(buffer) = side.receive_buffer() {
                journal.receive_buffer(buffer);
            }
        }
        Ok(Self {
            destination: prepared.facts.destination,
            plan,
            journal,
            callers,
            answerer,
            registration,
            aside,
            own,
            drops: 0,
            unsent: 0,
            started: Instant::now(),
            ending: None,
            leaving: None,
            closed: None,
            hung_up: None,
            drain,
            reason: "all calls were made",
            remarks,
            silence: Silence::default(),
            news: Vec::new(),
            broken: false,
            stage: Stage::Running,
        })
    }

    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Where messages go.
    pub fn destination(&self) -> Option<SocketAddr> {
        self.destination
    }

    /// Where the answering side listens, if it runs here.
    pub fn answering_at(&self) -> Option<SocketAddr> {
        self.answerer.as_ref().map(|side| side.address)
    }

    /// It makes no calls that it could end.
    pub fn only_answers(&self) -> bool {
        self.callers.is_empty()
    }

    /// The run so far.
    pub fn run(&self) -> &Run {
        self.journal.run()
    }

    /// A sentence for the report.
    pub fn note(&mut self, level: Level, text: impl Into<String>) {
        self.journal.note(clock::micros(), level, text);
    }

    /// What has become known since it was last asked, in sentences for the user.
    pub fn news(&mut self) -> Vec<String> {
        std::mem::take(&mut self.news)
    }

    /// Goes on for about so long, and says how far it is.
    pub fn poll(&mut self, patience: Duration) -> Stage {
        let until = Instant::now() + patience;
        self.keep_books();
        if self.leaving.is_none() {
            self.listen();
        }
        loop {
            self.take_events();
            if self.stage == Stage::Over || Instant::now() >= until {
                return self.stage;
            }
            std::thread::sleep(Duration::from_millis(10).min(until.saturating_duration_since(Instant::now())));
        }
    }

    fn take_events(&mut self) {
        if self.removes() {
            self.stage = Stage::Ending;
            let patience = self.plan.grace;
            if self.registration.as_mut().is_some_and(|registration| registration.is_over(patience)) {
                self.stage = Stage::Over;
                self.news.extend(self.registration.as_ref().and_then(|registration| registration.remains(&self.plan)));
            }
            return;
        }
        let mut stands = false;
        for side in self.callers.iter_mut().chain(&mut self.answerer) {
            loop {
                match side.events.try_recv() {
                    Ok(Event::Finished(ledger)) => side.ledger = Some(*ledger),
                    Ok(Event::Halt(halt)) => {
                        self.reason = if halt == Halt::Error { HALTED } else { "the scenario asked for the end" };
                        self.ending.get_or_insert_with(Instant::now);
                        stands |= halt != Halt::Gracefully;
                    }
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => {
                        self.reason = "a thread of the generator broke down";
                        self.broken = true;
                        self.stage = Stage::Over;
                        return;
                    }
                }
            }
        }
        if stands {
            // Its calls hear nothing any more: there is nothing to wait for.
            self.leave();
        }
        let receives = self.plan.workload() == Some(Workload::RegisterThenReceive);
        let over = match &self.answerer {
            // Registrations are made long before the last call comes.
            Some(side) if receives => self.ending.is_some() && side.report().open == 0,
            Some(side) if self.callers.is_empty() => side.ledger.is_some(),
            _ => self.callers.iter().all(|side| side.ledger.is_some()),
        };
        if over {
            self.stage = Stage::Over;
            if let (Some(registration), Some(side)) = (&mut self.registration, &mut self.answerer) {
                registration.remove(side, &self.plan);
                self.stage = Stage::Ending;
            }
            return;
        }
        let elapsed = self.started.elapsed();
        let planned = profile::length(&self.plan.profile).map(Duration::from_micros);
        if self.ending.is_none() && planned.is_some_and(|planned| elapsed >= planned) {
            self.ending = Some(Instant::now());
            self.reason = if self.plan.calls.is_some() && !receives { self.reason } else { "time is up" };
            if self.only_answers() {
                self.close();
            }
        }
        if self.closed.is_some_and(|at| at.elapsed() > REPETITIONS) {
            self.close();
        }
        if let Some(since) = self.ending {
            self.stage = Stage::Ending;
            match self.leaving {
                None if since.elapsed() > self.drain => {
                    self.reason = CUT;
                    self.leave();
                }
                Some(_) if self.hung_up.is_some() => self.hang_up(),
                Some(since) if since.elapsed() > self.plan.grace && self.only_answers() => self.hang_up(),
                Some(since) if since.elapsed() > self.plan.grace => self.cut(),
                _ => (),
            }
        }
    }

    /// The run is over, and its registrations are being removed.
    fn removes(&self) -> bool {
        self.registration.as_ref().is_some_and(Registration::has_begun_to_remove)
    }

    /// Who only answers takes no call any more.
    fn close(&mut self) {
        self.closed = Some(Instant::now());
        if let Some(side) = &self.answerer {
            side.order(Order::Close);
        }
    }

    /// Calls that are open are ended with CANCEL or BYE, and their answers waited for.
    fn leave(&mut self) {
        if self.leaving.is_some() {
            return;
        }
        self.leaving = Some(Instant::now());
        match self.only_answers() {
            true => self.hang_up(),
            // The side that answers here is to hear the BYE, too.
            false => self.callers.iter().for_each(|side| side.order(Order::Leave)),
        }
    }

    /// A side that only answers ends the calls that its peers did not.
    fn hang_up(&mut self) {
        match self.hung_up {
            None => {
                self.hung_up = Some(Instant::now());
                self.answerer.iter().for_each(|side| side.order(Order::Leave));
            }
            Some(at) if at.elapsed() > GOODBYE.min(self.plan.grace) => self.cut(),
            Some(_) => (),
        }
    }

    /// Calls that are open end at once.
    fn cut(&self) {
        for side in self.callers.iter().chain(&self.answerer) {
            side.order(Order::End { goodbye: false });
        }
    }

    /// Whether the target answers the callers.
    fn listen(&mut self) {
        let mut counters = Snapshot::default();
        self.callers.iter().for_each(|side| counters += side.counters());
        let Some(change) = self.silence.look(self.started.elapsed(), &counters) else { return };
        let text = advice::news(change, &self.place(), self.plan.transport);
        // What is said of a run without any answer is said by the advice.
        if !matches!(change, Change::Silent { .. }) {
            self.note(Level::Warning, text.clone());
        }
        self.news.push(text);
    }

    /// The target in sentences.
    fn place(&self) -> String {
        self.destination.map_or_else(|| "the target".into(), |address| address.to_string())
    }

    fn keep_books(&mut self) {
        let now = clock::micros();
        self.own.tick(now);
        let sides = || self.callers.iter().chain(&self.answerer);
        let drops = sides().map(Side::drops).sum();
        let unsent = sides().map(|side| unsent(&side.counters())).sum();
        self.count_losses(drops, unsent);
        self.journal.poll(now);
        let own = &mut self.own;
        if let Some(aside) = &mut self.aside {
            aside.poll(now, |page| own.beside(page));
        }
    }

    /// What was lost so far on this machine: on its way in, and on its way out.
    fn count_losses(&mut self, drops: u64, unsent: u64) {
        for (counter, known, now) in
            [(Counter::SocketDrops, &mut self.drops, drops), (Counter::SendFailuresLocal, &mut self.unsent, unsent)]
        {
            self.own.count(counter, now.saturating_sub(*known));
            *known = now.max(*known);
        }
    }

    /// No call is begun any more, and those that are open are ended with CANCEL or BYE. What is not answered is repeated, and
    /// waited for as long as [`Plan::grace`] says. Who only answers takes no call any more, those that are open may end by
    /// themselves for as long, and then are ended with a BYE.
    pub fn interrupt(&mut self) {
        self.reason = INTERRUPTED;
        self.ending.get_or_insert_with(Instant::now);
        if !self.only_answers() {
            return self.leave();
        }
        self.leaving.get_or_insert_with(Instant::now);
        self.close();
    }

    /// How long ago the schedule began.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// How it goes.
    pub fn live(&self) -> Live {
        Live::of(self)
    }

    /// Ends what still runs, at once, and puts the books together.
    pub fn finish(mut self) -> Ended {
        if self.stage != Stage::Over {
            if !self.removes() {
                self.cut();
            }
            let until = Instant::now() + HASTE;
            while self.stage != Stage::Over && Instant::now() < until {
                self.poll(Duration::from_millis(20));
            }
        }
        if let (Some(registration), Some(side)) = (&mut self.registration, &mut self.answerer) {
            registration.remove_within(side, &self.plan, HASTE);
            if let Some(text) = registration.remains(&self.plan) {
                self.note(Level::Warning, text);
            }
        }
        self.keep_books();
        let mut ledger = Ledger::default();
        for side in &self.callers {
            ledger.add(&side.report());
        }
        if let Some(side) = self.answerer.as_ref().filter(|_| self.callers.is_empty()) {
            ledger.add(&side.report());
        }
        // What the kernel dropped before the sockets of calls and users is known when they are closed.
        let (mut network, mut drops, mut lost) = (Snapshot::default(), 0, 0);
        let receives = self.callers.is_empty() && self.plan.target.is_some();
        let calling = if receives { 1 } else { self.callers.len() };
        let mut handshake = None;
        for (place, side) in self.callers.drain(..).chain(self.answerer.take()).enumerate() {
            handshake = handshake.or_else(|| side.handshakes.last().filter(|_| place < calling));
            let (counters, dropped) = side.end();
            (drops, lost) = (drops + dropped, lost + unsent(&counters));
            if place < calling {
                network += counters;
            }
        }
        self.count_losses(drops, lost);
        if let Some((peer, why)) = &handshake {
            let times = grouped(network.handshakes_failed.max(1) as f64);
            self.note(Level::Warning, format!("{times} × a handshake failed, the last with {peer}: {why}"));
        }
        for (level, text) in notes(&network, self.plan.transport.is_reliable()) {
            self.note(level, text);
        }
        if self.silence.unsaid() > 0 {
            let times = grouped(self.silence.times() as f64);
            self.note(Level::Warning, format!("Answers stopped {times} times in all, each for a second or longer."));
        }
        if matches!(self.plan.work, Work::Document(_)) {
            for text in self.remarks.sentences() {
                self.note(Level::Warning, format!("The document: {text}"));
            }
        } else if self.reason == HALTED {
            self.note(Level::Warning, format!("The run was ended: {}", self.remarks.last()));
        }
        let own = &mut self.own;
        let answering = self.aside.take().map(|aside| aside.finish(|page| own.beside(page)));
        // Both ends are ours here: an end that only one of them knows is said.
        let calls = matches!(self.plan.workload(), Some(Workload::Call | Workload::RegisterThenCall));
        let there = answering.as_ref().map(|page| page.counter(Counter::IncomingCompleted)).filter(|_| calls);
        if let Some(there) = there.filter(|there| *there < ledger.successful) {
            let lost = grouped((ledger.successful - there) as f64);
            self.note(
                Level::Warning,
                format!("{lost} calls that succeeded at the callers did not end well at the answering side."),
            );
        }
        let now = clock::micros();
        self.own.close(now);
        let run = self.journal.finish(now, self.reason);
        let facts = AdviceFacts {
            plan: &self.plan,
            destination: self.destination,
            network,
            answered: answering.as_ref().map(|page| page.counter(Counter::CallsIncoming)),
            stopped: self.silence.times() > 0,
            handshake: handshake.as_ref().map(|(_, why)| &**why),
        };
        let advice = facts.sentences(&run);
        Ended { run, ledger, answering, advice, broken: self.broken }
    }
}

/// Messages that this machine could not send.
const fn unsent(counters: &Snapshot) -> u64 {
    counters.datagrams_refused + counters.datagrams_dropped + counters.lanes_refused
}

/// Documents that make calls need a target, those that answer have none.
fn right_side(plan: &Plan, role: Role) -> Result<(), String> {
    match role {
        Role::Server if plan.target.is_some() => Err(format!(
            "{} waits for calls, it makes none: run it with `strowger load uas --scenario FILE`",
            plan.title()
        )),
        Role::Client if plan.target.is_none() => {
            Err(format!("{} makes calls: run it with `strowger load TARGET --scenario FILE`", plan.title()))
        }
        _ => Ok(()),
    }
}

/// What should be known of sockets and connections.
fn notes(network: &Snapshot, reliable: bool) -> Vec<(Level, String)> {
    let mut notes = Vec::new();
    let number = |n: u64| grouped(n as f64);
    if network.lanes_full > 0 {
        notes.push((
            Level::Warning,
            format!(
                "{} calls found as many sockets open as may be, and shared one: --max-sockets and `ulimit -n` say how many",
                number(network.lanes_full)
            ),
        ));
    }
    if network.lanes_refused > 0 {
        notes.push((
            Level::Warning,
            format!(
                "{} calls got no socket, because no port was free: several --source addresses have more{}",
                number(network.lanes_refused),
                if reliable {
                    ". A connection that we end keeps its port for a minute (TIME_WAIT); net.ipv4.tcp_tw_reuse=1 makes \
                     that a second"
                } else {
                    ""
                }
            ),
        ));
    }
    if network.tls_handshakes > 1 {
        let (all, resumed) = (number(network.tls_handshakes), number(network.tls_resumed));
        notes.push((Level::Info, format!("{all} TLS handshakes, {resumed} of which resumed a session")));
    }
    notes
}

fn heading(plan: &Plan, answers: bool, clock: Clock, now: u64, timers: Vec<String>) -> Heading {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let target = match &plan.target {
        Some(target) => target.to_string(),
        None => String::new(),
    };
    Heading {
        generator: host.trim().into(),
        role: if answers { GeneratorRole::Answerer } else { GeneratorRole::Caller },
        program: format!("Strowger {}", env!("CARGO_PKG_VERSION")),
        title: plan.title(),
        target,
        transport: plan.transport.text().to_ascii_uppercase(),
        started: clock.wall(now),
        timers,
        settings: plan.settings.clone(),
        cores: std::thread::available_parallelism().map_or(1, |n| n.get() as u32),
        seed: Some(plan.seed),
    }
}

/// The connections are made before the first call is due: a handshake costs a shard milliseconds, and is neither a lag of its
/// schedule nor a delay of its first calls. Who cannot connect begins all the same; its calls find out.
fn warm_up(callers: &[Side], plan: &Plan, stopped: &dyn Fn() -> bool) {
    if !plan.transport.is_reliable() || plan.connections != Connections::One {
        return;
    }
    callers.iter().for_each(|side| side.order(Order::Connect));
    let until = Instant::now() + callers.iter().map(Side::connect_timeout).max().unwrap_or_default();
    let came_to_something = |side: &Side| {
        let counters = side.counters();
        counters.connected + counters.connects_failed + counters.handshakes_failed > 0
    };
    while Instant::now() < until && !callers.iter().all(came_to_something) && !stopped() {
        std::thread::sleep(Duration::from_millis(1));
    }
}
