//! Campaign: load for a target by a plan, from the first socket to the finished run. Each text for people in it is a
//! sentence with a problem and its cure.

pub mod moment;
pub mod period;
pub mod plan;
pub mod preflight;
pub mod profile;
pub mod target;
pub mod users;

mod advice;
mod ahead;
mod documents;
mod ending;
mod facts;
mod failed_calls;
mod inputs;
mod keys;
mod live;
mod obstacle;
mod prepared;
mod probe;
mod registration;
mod rehearsal;
mod remarks;
mod side;
mod silence;
mod sockets;

pub use advice::Facts as AdviceFacts;
pub use documents::{Document, parse as documents};
pub use inputs::{timers, warnings};
pub use keys::QUIT;
pub use live::Live;
pub use obstacle::Obstacle;
pub use plan::{Connections, Plan, Pool, Trust, User, Work};
pub use probe::probe;
pub use rehearsal::{Line, rehearse};
pub use target::Target;

use crate::engine::Halt;
use crate::engine::sipp_stats::SippStats;
use crate::engine::traffic::{Event, ShardCommand};
use crate::workload::Workload;
use failed_calls::FailedCalls;
use prepared::{Prepared, connect, heading, right_side};
use registration::Registration;
use remarks::Remarks;
use side::{Part, Side};
use silence::{Change, Silence};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::TryRecvError;
use std::time::{Duration, Instant};
use strowger_measure::{Clock, Collector, Counter, Journal, Level, Log, Page, Run, ShardRecorder};
use strowger_net::{Snapshot, clock};

/// Progress of a campaign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Before the start of the schedule.
    Waiting,
    /// Calls begin.
    Running,
    /// No more calls begin; open ones end.
    Ending,
    Over,
}

/// Campaign in progress.
pub struct Campaign {
    plan: Plan,
    journal: Journal,
    callers: Vec<Side>,
    answerer: Option<Side>,
    /// Registration of the answering side.
    registration: Option<Registration>,
    /// Collector of the answering side, if it is not the campaign's.
    aside: Option<Collector>,
    /// Recorder of observations from outside the shards.
    own: ShardRecorder,
    /// Counted losses: datagrams that were dropped before they were read, and messages that were not sent.
    lost: (u64, u64),
    /// Users that connected before the schedule.
    ahead: ahead::Ahead,
    started: Instant,
    /// Time since which no call begins.
    ending: Option<Instant>,
    /// Time since which open calls are being ended.
    leaving: Option<Instant>,
    /// Time of the last command to an answering side to accept no more calls.
    closed: Option<Instant>,
    /// Time of the command to end its open ones.
    hung_up: Option<Instant>,
    /// Time that calls may then take to end.
    drain: Duration,
    reason: &'static str,
    remarks: Remarks,
    failed_calls: FailedCalls,
    silence: Silence,
    pressed: keys::Pressed,
    /// News to report during the run.
    news: Vec<String>,
    /// True if a thread has ended unexpectedly.
    broken: bool,
    stage: Stage,
    /// Resolved destination of messages.
    destination: Option<SocketAddr>,
}

/// Finished campaign.
#[derive(Debug)]
pub struct Ended {
    pub run: Run,
    /// Counts by step of the document, over all generators.
    pub stats: SippStats,
    /// Figures of the answering side, if both ends ran here.
    pub answering: Option<Page>,
    /// Troubles, as sentences with a cure; the gravest first.
    pub advice: Vec<String>,
    /// True if the generator itself broke down: a fault of this program.
    pub broken: bool,
}

/// Reason of a run whose last calls did not end by themselves (see [`Ending`](strowger_measure::Ending)).
pub const CUT: &str = "calls that did not end were cut off";

/// Reason of a run that Ctrl-C cut short.
pub const INTERRUPTED: &str = "interrupted";

/// Reason of a run that ended with a fatal error.
pub const HALTED: &str = "an error ended it";

/// Reason of a run that a requirement ended.
pub const LOST: &str = "a requirement was lost";

/// Time for which ended calls are kept once no more are accepted, in case the peer repeats its last message.
const REPETITIONS: Duration = Duration::from_millis(500);

impl Campaign {
    /// Opens the sockets, makes the registrations, and begins. That may take half a minute if the target does not
    /// answer; `stopped` ends the wait.
    ///
    /// # Errors
    /// The reason why the campaign cannot begin, with a cure.
    pub fn start(plan: Plan, stopped: &dyn Fn() -> bool) -> Result<Self, String> {
        let mut prepared = Prepared::new(&plan)?;
        let count = prepared.callers.len().max(1);
        let callers_none = prepared.callers.is_empty();
        let now = clock::micros();
        let clock = Clock::new(now, plan.wall());
        let first = match (callers_none, prepared.registers) {
            (true, true) => Part::Receiver,
            (true, false) => Part::Answerer,
            _ => Part::caller(0, count),
        };
        let plans = plan.parted();
        let (mut timers, mut drain) = (Vec::new(), Duration::ZERO);
        for plan in &plans {
            let scenario = prepared.facts.scenario(plan, first)?;
            right_side(plan, scenario.role)?;
            drain = drain.max(plan.drain(&scenario));
            inputs::add_names(&mut timers, scenario.timed());
        }
        let heading = heading(&plan, callers_none, clock, now, timers);
        let log = match &plan.log {
            Some(path) => Some(
                Log::create(path, &heading)
                    .map_err(|e| format!("the raw log {} cannot be written: {e}", path.display()))?,
            ),
            None => None,
        };
        let mut journal = Journal::new(clock, heading, count + 2, log).bounded(plan.rows).in_windows(plan.window);
        journal = journal.guarded(plan.abort_on.clone()).of_documents(documents::titles(plan.documents()));
        let remarks = Remarks::default();
        let failed_calls = FailedCalls::new(plan.keep_failed);
        let mut aside = None;
        let mut answerer = None;
        let mut registration = prepared.registers.then(|| Registration::new(prepared.facts.clone()));
        if let Some(bound) = prepared.answerer.take() {
            let part = if prepared.registers { Part::Receiver } else { Part::Answerer };
            let scenario = Arc::new(prepared.facts.scenario(&plan, part)?);
            let recorder = if callers_none {
                journal.recorder(now)
            } else {
                let mut collector = Collector::new(clock, scenario.timed(), 1);
                let recorder = collector.recorder(now);
                aside = Some(collector);
                recorder
            };
            let run = prepared.facts.run(&plan, part, scenario, bound.address)?;
            let heard = callers_none.then(|| remarks.clone());
            let watch = match &registration {
                Some(registration) => Some(registration.watch(heard)),
                None => heard.map(|remarks| failed_calls.watch(remarks, bound.address, clock)),
            };
            // Without a caller, registrations are the calls of the schedule.
            let waits = callers_none && prepared.registers;
            answerer = Some(Side::start(bound, run, recorder, watch, waits)?);
        }
        let mut callers = Vec::new();
        let of_each = count / plans.len();
        for (place, bound) in prepared.callers.into_iter().enumerate() {
            let document = place / of_each;
            let (plan, part) =
                (&plans[document], Part::Caller { index: place % of_each, count: of_each, place, all: count });
            let scenario = Arc::new(prepared.facts.scenario(plan, part)?);
            let recorder = journal.recorder_of_document(clock::micros(), document, &scenario.timed());
            let run = prepared.facts.run(plan, part, scenario, bound.address)?;
            let watch = failed_calls.watch(remarks.clone(), bound.address, clock);
            callers.push(Side::prepare(bound, run, recorder, watch)?);
        }
        if let (Some(registration), Some(collector), Some(side)) = (&mut registration, &mut aside, &mut answerer) {
            registration.wait(side, collector, &plan, stopped)?;
        }
        connect(&callers, &plan, stopped);
        let connected = ahead::connect(&prepared.facts, &plan, &callers, stopped);
        let opening = connected.and_then(|ahead| Ok((ahead, moment::opening(plan.start_at, clock, plan.wall())?)));
        let (connected, (at, left)) = match opening {
            Ok(opening) => opening,
            Err(error) => {
                if let (Some(registration), Some(side)) = (&mut registration, &mut answerer) {
                    registration.remove_within(side, &plan, registration::HASTE);
                }
                return Err(error);
            }
        };
        let mut ahead = ahead::Ahead::default();
        if let Some((result, are_all, text)) = connected {
            ahead = result;
            // The processor time so far is none of the run.
            journal.wait(clock::micros());
            journal.note(clock::micros(), if are_all { Level::Info } else { Level::Warning }, text);
        }
        for side in callers.iter().chain(answerer.as_ref().filter(|_| callers_none && prepared.registers)) {
            side.send_command(ShardCommand::Begin(at));
        }
        let mut own = journal.recorder(clock::micros());
        if at.is_some() || !plan.warm_up.is_zero() {
            own.reopen(at.unwrap_or_else(clock::micros), plan.warm_up.as_micros() as u64);
        }
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
            lost: (0, 0),
            ahead,
            started: Instant::now() + left,
            ending: None,
            leaving: None,
            closed: None,
            hung_up: None,
            drain,
            reason: "all calls were made",
            remarks,
            failed_calls,
            silence: Silence::default(),
            pressed: keys::Pressed::default(),
            news: Vec::new(),
            broken: false,
            stage: if left.is_zero() { Stage::Running } else { Stage::Waiting },
        })
    }

    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns the destination of messages.
    pub fn destination(&self) -> Option<SocketAddr> {
        self.destination
    }

    /// Returns the address of the answering side, if it runs here.
    pub fn answering_at(&self) -> Option<SocketAddr> {
        self.answerer.as_ref().map(|side| side.address)
    }

    /// Returns whether the campaign makes no calls that it could end.
    pub fn only_answers(&self) -> bool {
        self.callers.is_empty()
    }

    /// Returns the run so far.
    pub fn run(&self) -> &Run {
        self.journal.run()
    }

    /// Adds a sentence to the report.
    pub fn note(&mut self, level: Level, text: impl Into<String>) {
        let text: String = text.into();
        self.journal.note(clock::micros(), level, crate::printable(&text));
    }

    /// Takes the news since the last call, as sentences for the user.
    pub fn news(&mut self) -> Vec<String> {
        let news = std::mem::take(&mut self.news);
        news.iter().map(|text| crate::printable(text).into_owned()).collect()
    }

    /// Continues for about `patience`. Returns the progress.
    pub fn poll(&mut self, patience: Duration) -> Stage {
        let until = Instant::now() + patience;
        if self.stage == Stage::Waiting && self.started <= Instant::now() {
            self.stage = Stage::Running;
        }
        self.keep_books();
        self.abort_if_lost();
        self.tell_change(false);
        if self.leaving.is_none() && self.stage != Stage::Waiting {
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
                    Ok(Event::Finished(stats)) => side.stats = Some(*stats),
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
            // After such a halt no call receives anything any more, so that there is nothing to wait for.
            self.leave();
        }
        let receives = self.plan.workload() == Some(Workload::RegisterThenReceive);
        let over = match &self.answerer {
            // Registrations are made long before the last call is received.
            Some(side) if receives => self.ending.is_some() && side.report().open == 0,
            Some(side) if self.callers.is_empty() => side.stats.is_some(),
            _ => self.callers.iter().all(|side| side.stats.is_some()),
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
            self.stop_standstill();
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

    /// Checks that the target answers the callers.
    fn listen(&mut self) {
        let mut counters = Snapshot::default();
        self.callers.iter().for_each(|side| counters += side.counters());
        let Some(change) = self.silence.look(self.started.elapsed(), &counters) else { return };
        let text = advice::news(change, &self.place(), self.plan.transport);
        // The advice reports a run without any answer.
        if !matches!(change, Change::Silent { .. }) {
            self.note(Level::Warning, text.clone());
        }
        self.news.push(text);
    }

    /// Returns the target for sentences.
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
        self.failed_calls.take().into_iter().for_each(|call| self.journal.failed_call(call));
        if self.ending.is_some() || self.plan.calls.is_some_and(|calls| self.run().begun() >= calls) {
            self.journal.unguard();
        }
        if self.stage == Stage::Waiting {
            self.journal.wait(now);
        } else {
            self.journal.poll(now);
        }
        let own = &mut self.own;
        if let Some(aside) = &mut self.aside {
            aside.poll(now, |page| own.beside(page));
        }
    }

    /// Counts the messages that this machine lost so far: inbound and outbound.
    fn count_losses(&mut self, drops: u64, unsent: u64) {
        for (counter, known, now) in
            [(Counter::SocketDrops, &mut self.lost.0, drops), (Counter::SendFailuresLocal, &mut self.lost.1, unsent)]
        {
            self.own.count(counter, now.saturating_sub(*known));
            *known = now.max(*known);
        }
    }

    /// Returns the time since the start of the schedule.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Returns the time until the start of the schedule.
    pub fn begins_in(&self) -> Duration {
        self.started.saturating_duration_since(Instant::now())
    }

    /// Returns the progress for a screen.
    pub fn live(&self) -> Live {
        Live::of(self)
    }
}

/// Returns the number of messages that this machine could not send.
const fn unsent(counters: &Snapshot) -> u64 {
    counters.datagrams_refused + counters.datagrams_dropped + counters.dedicated_refused
}
