//! Capacity of a SIP server at an address: the highest load that it carries, and the cause of the limit.
//!
//! [`measure`] first checks for an [`Obstacle`], then searches by short trials ([`crate::finder::Search`]), and then confirms 0.9 of the
//! limit for 30 s. The measurement ends within [`LONGEST`].

mod answer;
mod obstacle;
mod page;
mod sampling;
mod server;

pub use answer::{answer, json, table};
pub use obstacle::Obstacle;
pub use page::page;
pub use server::{is_of_this_machine, is_private, owner_of_port};

use crate::finder::{Finder, Goal, Limit, Next, Search, Settings, TrialOutcome};
use crate::generator::{Generator, Made, Setting, Traffic, Trial};
use crate::host::{Host, Party, ProcessHost};
use crate::row::{Check, Load, LoadUnit, Validity};
use crate::{Error, port};
use sampling::Sampling;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use strowger_core::Transport;
use strowger_load::campaign::Target;
use strowger_measure::Thresholds;

/// Time of a whole measurement.
pub const LONGEST: Duration = Duration::from_secs(180);

/// Time after which the search narrows no further, so that the confirmation fits into [`LONGEST`].
const SEARCH: Duration = Duration::from_secs(120);

/// Load before the window of a trial.
const WARM_UP: Duration = Duration::from_millis(500);

/// Time without an answer after which an attempt has failed.
const PATIENCE: Duration = Duration::from_secs(2);

/// Time that a trial takes in addition to its window: preparation, warm-up, the wait for a whole second, and late
/// answers.
const BESIDE: Duration = Duration::from_secs(5);

/// Time within which a server answers again after a load that was too high.
const RECOVERY: Duration = Duration::from_secs(8);

/// Share of a core above which a thread of the generator that did not keep up was at its own limit.
const OWN_LIMIT: f64 = 80.0;

/// First load.
const START: f64 = 20.0;

/// Measured work of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// OPTIONS and its answer.
    Options,
    /// Registrations of these users.
    Registrations,
    /// Calls.
    Calls,
}

impl Work {
    /// Returns the unit of the work's load.
    pub const fn unit(&self) -> LoadUnit {
        match self {
            Self::Options => LoadUnit::Requests,
            Self::Registrations => LoadUnit::Registrations,
            Self::Calls => LoadUnit::Calls,
        }
    }

    /// Returns the goal of the work's search.
    pub fn goal(&self) -> Goal {
        match self {
            Self::Options => Goal::requests(),
            Self::Registrations => Goal::registrations(),
            Self::Calls => Goal::calls(),
        }
    }

    /// Returns the name of the work's attempts.
    pub const fn attempts(&self) -> &'static str {
        match self {
            Self::Options => "OPTIONS",
            Self::Registrations => "registrations",
            Self::Calls => "calls",
        }
    }

    /// Returns the workload of `strowger load` for this work.
    const fn workload(&self) -> &'static str {
        match self {
            Self::Options => "options",
            Self::Registrations => "register",
            Self::Calls => "call",
        }
    }
}

/// Processes of a server.
#[derive(Clone, Debug)]
pub enum Server {
    /// Processes that cannot be seen.
    Unseen,
    /// Tree of a process on this machine.
    Here(u32),
    /// Owner of the port on a host.
    There(Arc<Host>),
}

/// Request to measure the capacity of a server.
#[derive(Clone, Debug)]
pub struct CapacityRequest {
    /// Server, as the user wrote it.
    pub target: Target,
    /// Address of the server.
    pub address: SocketAddr,
    /// Transport.
    pub transport: Transport,
    /// Measured work.
    pub work: Work,
    /// Further words of the command line of `strowger load`: users, callee, both ends.
    pub words: Vec<String>,
    /// Program `strowger`.
    pub program: PathBuf,
    /// Processes of the server.
    pub server: Server,
    /// Highest load that may be offered.
    pub most: f64,
    /// Length of a short trial.
    pub trial: Duration,
    /// Length of the trial that confirms the limit.
    pub hold: Duration,
    /// Folder of logs and samples.
    pub folder: PathBuf,
}

impl CapacityRequest {
    /// Returns a load of this value.
    const fn load(&self, value: f64) -> Load {
        Load { value, unit: self.work.unit() }
    }
}

/// Trial of a measurement.
#[derive(Clone, Debug)]
pub struct Step {
    /// Offered load.
    pub load: f64,
    /// Length of the trial's window.
    pub length: Duration,
    /// Figures and verdict.
    pub outcome: TrialOutcome,
    /// True if the trial met the goal.
    pub is_met: bool,
}

/// Measured capacity.
#[derive(Clone, Debug)]
pub struct Capacity {
    /// Limit and its cause.
    pub limit: Limit,
    /// True if a long trial at 0.9 of the limit met the goal.
    pub is_confirmed: bool,
    /// True if a signal ended the search.
    pub is_interrupted: bool,
    /// All trials in their order.
    pub steps: Vec<Step>,
    /// Time that the measurement took.
    pub time: Duration,
}

/// Progress of a measurement.
#[derive(Clone, Copy, Debug)]
pub enum News<'a> {
    /// A load is offered for this time.
    Offered(f64, Duration),
    /// A trial was made.
    Made(&'a Step),
}

/// Reason why there is no capacity.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// An obstacle between the generator and the server.
    #[error("{0}")]
    Obstacle(Obstacle),
    /// The generator does not run.
    #[error("{0}")]
    Error(#[from] Error),
}

impl From<Obstacle> for Failure {
    fn from(obstacle: Obstacle) -> Self {
        Self::Obstacle(obstacle)
    }
}

/// Measures the capacity of a server.
///
/// # Errors
/// An obstacle was met, or the generator does not run.
pub fn measure(request: &CapacityRequest, mut news: impl FnMut(News<'_>)) -> Result<Capacity, Failure> {
    let begun = Instant::now();
    let answers_options = obstacle::look(request)?;
    let generator = Generator::new(setting(request), &request.folder)?;
    let sampling = Sampling::start(request)?;
    let mut bench = Bench { request, generator, sampling, made: 0, refusal: None };
    let rehearsal = bench.trial(obstacle::REHEARSAL, Duration::ZERO, Duration::from_secs(1));
    obstacle::rehearse(request, &rehearsal.map_err(obstacle::of_generator)?)?;
    let settings =
        Settings { start: START, most: request.most, trial: request.trial, hold: request.hold, ..Settings::brief() };
    let (mut search, goal) = (Search::new(settings, request.work.goal()), request.work.goal());
    let mut steps = Vec::new();
    let (mut is_hurried, mut is_confirmed, mut is_interrupted) = (false, false, false);
    let limit = loop {
        if begun.elapsed() >= SEARCH && !is_hurried {
            is_hurried = true;
            search.hurry();
        }
        let trial = match search.next() {
            Next::Done(limit) => break limit,
            Next::Trial(trial) => trial,
        };
        if begun.elapsed() + trial.duration + BESIDE > LONGEST {
            break search.so_far();
        }
        news(News::Offered(trial.load, trial.duration));
        let is_long = trial.duration == request.hold;
        let meets = |outcome: &TrialOutcome| meets(&goal, outcome, trial.duration, is_long);
        let outcome = match bench.undisturbed(trial.load, trial.duration, &meets) {
            Err(Error::Interrupted) if !steps.is_empty() => {
                is_interrupted = true;
                break search.so_far();
            }
            outcome => outcome?,
        };
        let step = Step { load: trial.load, length: trial.duration, is_met: meets(&outcome), outcome };
        is_confirmed |= is_long && step.is_met;
        news(News::Made(&step));
        if !step.is_met {
            if let Some(refusal) = bench.refusal.take() {
                return Err(refusal.into());
            }
            let rest = RECOVERY.min(LONGEST.saturating_sub(begun.elapsed()));
            obstacle::recovered(request, answers_options, step.load, rest)?;
        }
        search.take(if step.is_met { relieved(&step.outcome) } else { step.outcome.clone() });
        steps.push(step);
    };
    let limit = sampling::seen_from_outside(limit, &steps, request);
    Ok(Capacity { limit, is_confirmed, is_interrupted, steps, time: begun.elapsed() })
}

/// Returns whether a trial meets the goal. A late generator makes delays longer and never shorter. So a trial that meets the goal
/// at its whole rate counts, whatever the verdict of the generator on itself.
fn meets(goal: &Goal, outcome: &TrialOutcome, length: Duration, is_long: bool) -> bool {
    let relieved = relieved(outcome);
    let judgement = if is_long { goal.judge_hold(&relieved, length) } else { goal.judge(&relieved, length) };
    judgement.is_met()
}

/// Returns the outcome without the generator's verdict on itself.
fn relieved(outcome: &TrialOutcome) -> TrialOutcome {
    let validity = match &outcome.validity {
        Validity::Valid => Validity::Valid,
        Validity::Reasons(reasons) => {
            Validity::of(reasons.iter().filter(|reason| reason.check != Check::Generator).cloned().collect())
        }
    };
    TrialOutcome { validity, ..outcome.clone() }
}

/// Returns the setting of the generator for this request.
fn setting(request: &CapacityRequest) -> Setting {
    let mut words = request.words.clone();
    if matches!(request.work, Work::Registrations) {
        words.extend(contact(request));
    }
    Setting {
        program: request.program.clone(),
        target: request.target.to_string(),
        transport: request.transport,
        connections: crate::generator::CallerConnections::default(),
        traffic: Traffic::Ready(request.work.workload(), words),
        users: 0,
        registers: true,
        hold: Duration::from_millis(100),
        callers: vec![Party::here(None)],
        sides: Vec::new(),
        answerers: vec![ProcessHost::Here],
        answer: crate::generator::CalleeBehaviour::Ring(Duration::ZERO),
        patience: PATIENCE,
        thresholds: thresholds(),
        cores: Vec::new(),
    }
}

/// Returns the words that keep the contacts of all trials the same. With new contacts in each trial, the server would
/// sooner or later refuse the further contacts of a user.
fn contact(request: &CapacityRequest) -> [String; 2] {
    let port = port::free();
    match request.transport {
        Transport::Udp => ["--port".into(), port.to_string()],
        // A connection has a port of its own, and over loopback an address of its own in each trial.
        _ => {
            let itself = SocketAddr::new(server::own_address(request.address), port);
            ["--contact".into(), itself.to_string()]
        }
    }
}

/// Returns the bounds of the generator's verdict. A lag of a tenth of the goal's delay is allowed, because it changes
/// no judgement.
fn thresholds() -> Thresholds {
    let lag = Some(30.0);
    Thresholds { lag_p99: lag, receive_lag: lag, run_queue: lag, stall: 500.0, ..Thresholds::default() }
}

/// Generator and samplers of a measurement.
struct Bench<'a> {
    request: &'a CapacityRequest,
    generator: Generator,
    sampling: Sampling,
    /// Trials made so far.
    made: u32,
    /// Refusal of all attempts of the last trial.
    refusal: Option<Obstacle>,
}

impl Bench<'_> {
    fn trial(&mut self, load: f64, warm_up: Duration, window: Duration) -> Result<Made, Error> {
        self.made += 1;
        let folder = self.request.folder.join(format!("trial-{}", self.made));
        let load = self.request.load(load);
        self.generator.trial(&Trial::new(load, warm_up, window, &folder))
    }

    /// Makes a trial, and repeats it if it missed the goal because of a generator that was not at its own limit.
    fn undisturbed(
        &mut self,
        load: f64,
        window: Duration,
        meets: &dyn Fn(&TrialOutcome) -> bool,
    ) -> Result<TrialOutcome, Error> {
        let first = self.outcome(load, window)?;
        let own = first.figures.largest("generator.thread/").map_or(0.0, |(_, share)| share);
        let is_disturbed = first.validity.is_limit_of_generator() && own < OWN_LIMIT && !meets(&first);
        if is_disturbed && window < self.request.hold { self.outcome(load, window) } else { Ok(first) }
    }

    fn outcome(&mut self, load: f64, window: Duration) -> Result<TrialOutcome, Error> {
        self.sampling.begin()?;
        let mut made = self.trial(load, WARM_UP, window)?;
        self.sampling.add(&mut made)?;
        self.refusal = obstacle::refuses(self.request, &made, load);
        // Sessions that an earlier load left in the server reach the answering side late, which is no fault of this
        // trial.
        made.reasons.retain(|reason| reason.check != Check::Ends);
        Ok(TrialOutcome { figures: made.figures, validity: Validity::of(made.reasons), ..TrialOutcome::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Reason;

    #[test]
    fn a_late_generator_spoils_no_trial_that_meets_the_goal() {
        let outcome = |check, failed: f64| {
            let mut outcome = TrialOutcome::default();
            for (name, value) in [("failed.any", failed), ("request.p95", 2_000.0)] {
                outcome.figures.set(name, value).expect("a known figure");
            }
            outcome.validity = Validity::of(vec![Reason { check, sentence: "it was late".into() }]);
            outcome
        };
        let met = |outcome: &TrialOutcome| meets(&Goal::requests(), outcome, Duration::from_secs(2), false);
        assert!(met(&outcome(Check::Generator, 0.0)) && relieved(&outcome(Check::Generator, 0.0)).validity.is_valid());
        assert!(!met(&outcome(Check::Generator, 2.0)));
        // A load that was not offered was not carried.
        assert!(!met(&outcome(Check::Rate, 0.0)));
    }
}
