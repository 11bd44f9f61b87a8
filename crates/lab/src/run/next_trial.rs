//! Schedule of a run: the next trial from the plan and the rows so far. It reads no clock and starts nothing.

use crate::experiment::{
    Axes, Course, Experiment, FinderKind, LoadPlan, Plan, Planned, PlannedLoad, Steps, TrialPosition, floor_window,
};
use crate::finder::{
    Finder, Limit, Method, Next, Rfc7502, Rfc7502Settings, Search, Settings, Staircase, StaircaseSettings, Trial,
    TrialOutcome, is_carried,
};
use crate::row::{Check, Load, LoadUnit, Profile, Reason, Row, Validity};
use std::time::Duration;

/// Times that an invalid trial is made again.
const REPEATS: u32 = 3;

/// No load after the window, and no pause before memory is read.
const AT_ONCE: (Duration, Option<Duration>) = (Duration::ZERO, Some(Duration::ZERO));

/// Trial that is due.
#[derive(Clone, Debug, PartialEq)]
pub struct NextTrial {
    /// Trial or search of the plan.
    pub planned: Planned,
    /// Number of the trial in the plan, from 1.
    pub number: usize,
    /// Offered load.
    pub load: Load,
    /// Load before the window.
    pub warm_up: Duration,
    /// Window.
    pub window: Duration,
    /// Load after the window.
    pub cool_down: Duration,
    /// Pause after the load, before memory is read. None: memory is not read.
    pub settle: Option<Duration>,
    /// Number of the attempt, from 1: an invalid trial is made again.
    pub attempt: u32,
    /// Events and figures over time.
    pub course: Course,
}

/// Next entry of a run.
#[derive(Clone, Debug, PartialEq)]
pub enum Due {
    /// Trial.
    Trial(Box<NextTrial>),
    /// Row with the limit that a search found, and the outcome of the trial that confirmed it.
    Limit(Box<(Planned, Limit, TrialOutcome)>),
    /// All trials were made.
    Nothing,
}

/// Trial of the plan that stayed invalid.
#[derive(Clone, Debug, PartialEq)]
pub struct Marked {
    /// Trial of the plan.
    pub planned: Planned,
    /// Failed checks of its last attempt.
    pub reasons: Vec<Reason>,
}

/// Schedule of a run. The rows of an interrupted run advance it to the trial after them.
#[derive(Debug)]
pub struct Schedule {
    experiment: Experiment,
    profile: Profile,
    steps: Steps,
    plan: Plan,
    /// Trials of the plan that are done.
    done: usize,
    attempt: u32,
    search: Option<Searching>,
    marked: Vec<Marked>,
    /// Limits that searches have found, by system and values of axes.
    limits: Vec<(String, Axes, f64)>,
}

/// Search in progress.
struct Searching {
    finder: Box<dyn Finder>,
    made: Vec<(Trial, TrialOutcome)>,
}

impl std::fmt::Debug for Searching {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Searching").field("made", &self.made).finish_non_exhaustive()
    }
}

impl Schedule {
    /// Begins a plan.
    pub fn new(experiment: Experiment, profile: Profile, plan: Plan) -> Self {
        let steps = experiment.profiles.get(&profile).cloned().unwrap_or_else(|| Steps::default_of(profile));
        Self {
            experiment,
            profile,
            steps,
            plan,
            done: 0,
            attempt: 1,
            search: None,
            marked: Vec::new(),
            limits: Vec::new(),
        }
        .ready()
    }

    /// Returns the experiment of the plan.
    pub const fn experiment(&self) -> &Experiment {
        &self.experiment
    }

    /// Returns the profile of the plan.
    pub const fn profile(&self) -> Profile {
        self.profile
    }

    /// Returns the plan.
    pub const fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns the number of trials and searches of the plan that are done.
    pub const fn done(&self) -> usize {
        self.done
    }

    /// Returns the estimated time of the remaining trials.
    pub fn rest(&self) -> Duration {
        self.plan.trials[self.done..].iter().map(|trial| trial.time).sum()
    }

    /// Returns the trials that stayed invalid.
    pub fn marked(&self) -> &[Marked] {
        &self.marked
    }

    /// Returns the next trial or limit row.
    pub fn next(&self) -> Due {
        let Some(planned) = self.plan.trials.get(self.done) else { return Due::Nothing };
        let Steps { warm_up, window, cool_down, .. } = self.steps;
        let settle = self.steps.settle_in(planned.repetition);
        let connecting = |load| self.experiment.connecting(&planned.axes, load);
        let whole = |load| self.experiment.warm_up(&self.steps, &planned.axes, load);
        let order = |value, warm_up, window, (cool_down, settle): (Duration, Option<Duration>)| {
            let unit = if is_floor(planned) { self.unit_of_floor() } else { self.experiment.load.unit };
            let mut course = match is_floor(planned) {
                true => Course::default(),
                false => self.experiment.course(self.profile, &planned.axes),
            };
            if matches!(planned.load, PlannedLoad::Multiple(_)) {
                let (LoadPlan { before, after, .. }, limit) = (&self.experiment.load, self.limit_of(planned));
                (course.before, course.after) = (before.map(|of| of * limit), after.map(|of| of * limit));
            }
            let (planned, number) = (planned.clone(), self.done + 1);
            let load = Load { value, unit };
            let attempt = self.attempt;
            let order = NextTrial { planned, number, load, warm_up, window, cool_down, settle, attempt, course };
            Due::Trial(Box::new(order))
        };
        match (&self.search, planned.load) {
            (None, PlannedLoad::Fixed(load)) if is_floor(planned) => {
                let longest = floor_window(self.profile);
                order(load, warm_up.min(longest), window.min(longest), AT_ONCE)
            }
            (None, PlannedLoad::Fixed(load)) => order(load, whole(load), window, (cool_down, settle)),
            (None, PlannedLoad::Multiple(multiple)) => {
                let limit = self.limit_of(planned);
                let warm_up = whole(self.experiment.load.before.unwrap_or(multiple) * limit);
                order((multiple * limit).round().max(1.0), warm_up, window, (cool_down, settle))
            }
            (Some(search), _) => match search.finder.next() {
                Next::Trial(trial) => match self.experiment.load.finder {
                    FinderKind::Staircase => order(trial.load, whole(trial.load), trial.duration, (cool_down, settle)),
                    _ => order(trial.load, connecting(trial.load), trial.duration, AT_ONCE),
                },
                Next::Done(limit) => {
                    let outcome = confirmation(&search.made, &limit);
                    Due::Limit(Box::new((planned.clone(), limit, outcome)))
                }
            },
            // Unreachable: a finder is made as soon as its search is due.
            (None, PlannedLoad::Search) => Due::Nothing,
        }
    }

    /// Takes the row of the trial or limit that [`Schedule::next`] returned.
    ///
    /// # Errors
    /// The row is of another trial. The error is a sentence.
    pub fn take(&mut self, row: &Row) -> Result<(), String> {
        match self.next() {
            Due::Nothing => return Err("all trials of the plan were made".into()),
            Due::Limit(due) => {
                if row.limit.is_none() {
                    return Err(format!("the limit of {} is due", due.0.system));
                }
                self.matches(&due.0, Load { value: 0.0, unit: self.experiment.load.unit }, row)?;
                self.limits.push((due.0.system.clone(), due.0.axes.clone(), due.1.load));
                if due.1.marked {
                    self.marked.push(Marked { planned: due.0, reasons: reasons(&row.validity) });
                }
                self.advance();
            }
            Due::Trial(order) => {
                self.matches(&order.planned, order.load, row)?;
                self.made(*order, row);
            }
        }
        Ok(())
    }

    /// Returns the limit of which the load of a trial is a multiple: the one that was found at the other values of axes, or else the
    /// assumed one. A search that found no load to be carried leaves none.
    fn limit_of(&self, planned: &Planned) -> f64 {
        let others = self.experiment.others(&planned.axes);
        let is_own =
            |(system, axes, limit): &&(String, Axes, f64)| *system == planned.system && *axes == others && *limit > 0.0;
        let found = self.limits.iter().find(is_own).map(|(.., limit)| *limit);
        found.unwrap_or_else(|| self.experiment.assumed_limit(&self.steps, &planned.system))
    }

    /// Returns the unit of the floor's load: registrations if the experiment has registrations, otherwise calls.
    fn unit_of_floor(&self) -> LoadUnit {
        let unit = self.experiment.load.unit;
        if unit == LoadUnit::Registrations { unit } else { LoadUnit::Calls }
    }

    fn made(&mut self, order: NextTrial, row: &Row) {
        let outcome = TrialOutcome::from(row);
        let is_again = self.attempt <= self.repeats();
        match &mut self.search {
            Some(_) if outcome.is_doubtful() && is_again => self.attempt += 1,
            Some(search) => {
                let trial = Trial { load: order.load.value, duration: order.window };
                search.made.push((trial, outcome.clone()));
                search.finder.take(outcome);
                self.attempt = 1;
            }
            None if !row.validity.is_valid() && is_again => self.attempt += 1,
            None => {
                let reasons = reasons(&row.validity);
                if !reasons.is_empty() {
                    self.marked.push(Marked { planned: order.planned, reasons });
                }
                self.advance();
            }
        }
    }

    /// Returns how often an invalid trial is repeated. The profile `smoke` judges nothing, and so repeats nothing.
    const fn repeats(&self) -> u32 {
        if matches!(self.profile, Profile::Smoke) { 0 } else { REPEATS }
    }

    fn matches(&self, planned: &Planned, load: Load, row: &Row) -> Result<(), String> {
        let Row { experiment, system, axes, repetition, profile, .. } = row;
        let is_same = *experiment == self.experiment.name
            && *system.name == planned.system
            && *axes == planned.axes
            && row.load == load
            && *repetition == planned.repetition
            && *profile == self.profile;
        if is_same {
            return Ok(());
        }
        let mut wanted = row.cell();
        wanted.experiment.clone_from(&self.experiment.name);
        wanted.system.clone_from(&planned.system);
        (wanted.axes, wanted.load, wanted.profile) = (planned.axes.clone(), load, self.profile);
        let found = row.cell();
        Err(format!("{wanted} is due in repetition {}, and the row is {found} in {repetition}", planned.repetition))
    }

    fn advance(&mut self) {
        (self.done, self.attempt, self.search) = (self.done + 1, 1, None);
        self.begin_search();
    }

    fn ready(mut self) -> Self {
        self.begin_search();
        self
    }

    fn begin_search(&mut self) {
        let planned = self.plan.trials.get(self.done).filter(|planned| planned.load == PlannedLoad::Search);
        self.search = planned.map(|planned| Searching { finder: self.finder(&planned.system), made: Vec::new() });
    }

    fn finder(&self, system: &str) -> Box<dyn Finder> {
        let (load, steps) = (self.experiment.load_of(system), &self.steps);
        match load.finder {
            FinderKind::Fixed | FinderKind::Search => {
                let settings = Settings {
                    start: load.start,
                    most: load.most,
                    trial: steps.trial,
                    hold: steps.confirm,
                    ..Settings::brief()
                };
                Box::new(Search::new(settings, load.goal()))
            }
            FinderKind::Rfc7502 => Box::new(Rfc7502::new(Rfc7502Settings {
                sessions: steps.sessions.unwrap_or(load.sessions),
                least: steps.trial,
                rate: load.start,
                increase: steps.increase.unwrap_or(load.increase),
                most: load.most,
            })),
            FinderKind::Staircase => Box::new(Staircase::new(StaircaseSettings {
                start: load.start,
                step: load.step,
                most: load.most,
                duration: steps.window,
            })),
        }
    }
}

fn is_floor(planned: &Planned) -> bool {
    planned.place != TrialPosition::Trial
}

fn reasons(validity: &Validity) -> Vec<Reason> {
    match validity {
        Validity::Valid => Vec::new(),
        Validity::Reasons(reasons) => reasons.clone(),
    }
}

/// Returns the outcome of the longest trial at or below the limit, and of equally long trials that with the highest load. In RFC 7502 a
/// trial is longer if its rate is lower: there the result is the trial that carried the limit.
fn confirmation(made: &[(Trial, TrialOutcome)], limit: &Limit) -> TrialOutcome {
    if limit.method == Method::Rfc7502 {
        let mut at = made.iter().filter(|(trial, _)| trial.load == limit.load);
        return at
            .find(|(_, outcome)| is_carried(limit.load, outcome))
            .map(|(_, outcome)| outcome.clone())
            .unwrap_or_default();
    }
    let below = made.iter().filter(|(trial, _)| trial.load <= limit.load);
    let key = |trial: &Trial| (trial.duration, trial.load);
    let best = below.max_by(|(a, _), (b, _)| key(a).partial_cmp(&key(b)).unwrap_or(std::cmp::Ordering::Equal));
    best.map_or_else(TrialOutcome::default, |(_, outcome)| outcome.clone())
}

/// Verdict on a run whose plan is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanVerdict {
    /// Each trial of the plan is valid.
    Valid,
    /// A trial stayed invalid.
    Invalid,
}

impl PlanVerdict {
    /// Judges the trials that stayed invalid. In the profile `smoke` no figure is judged, so that a busy machine is no fault.
    pub fn of(profile: Profile, marked: &[Marked]) -> Self {
        let is_of_system = |reason: &Reason| matches!(reason.check, Check::Ends | Check::Accounting | Check::Restart);
        let counts = |marked: &Marked| profile != Profile::Smoke || marked.reasons.iter().any(is_of_system);
        if marked.iter().any(counts) { Self::Invalid } else { Self::Valid }
    }
}
