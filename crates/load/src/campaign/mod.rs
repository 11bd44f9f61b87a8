//! A campaign: load for a target by a plan, from the first socket to the finished run. No words for people but sentences that
//! say what is wrong and what would help.

pub mod period;
pub mod plan;
pub mod preflight;
pub mod profile;
pub mod target;
pub mod users;

mod advice;
mod ending;
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
use crate::measure::{Books, Clock, Collector, Counter, GeneratorRole, Heading, Journal, Level, Log, Page, Run};
use crate::scenario::Role;
use crate::workload::Workload;
use prepared::Prepared;
use registration::Registration;
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
        let text: String = text.into();
        self.journal.note(clock::micros(), level, crate::printable(&text));
    }

    /// What has become known since it was last asked, in sentences for the user.
    pub fn news(&mut self) -> Vec<String> {
        let news = std::mem::take(&mut self.news);
        news.iter().map(|text| crate::printable(text).into_owned()).collect()
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

    /// How long ago the schedule began.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// How it goes.
    pub fn live(&self) -> Live {
        Live::of(self)
    }
}

/// Messages that this machine could not send.
const fn unsent(counters: &Snapshot) -> u64 {
    counters.datagrams_refused + counters.datagrams_dropped + counters.dedicated_refused
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
