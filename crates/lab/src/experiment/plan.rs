//! Plan of a run: its trials in their order, and its time.

use super::{Axes, Experiment, FinderKind, Steps, SystemSpec, Workers};
use crate::compare::FLOOR;
use crate::row::{AxisValue, LoadUnit, Profile};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Trial of a plan, or search of several.
#[derive(Clone, Debug, PartialEq)]
pub struct Planned {
    /// Name of the system.
    pub system: String,
    /// Name of the system's configuration, with the values of axes filled in.
    pub configuration: String,
    /// Values of the axes.
    pub axes: Axes,
    /// Load.
    pub load: PlannedLoad,
    /// Number of the repetition, from 1.
    pub repetition: u32,
    /// Place in the run.
    pub place: TrialPosition,
    /// Users that register before it, because the system starts with it.
    pub registers: u32,
    /// True if the trial's events kill the server.
    pub kills: bool,
    /// Estimated time.
    pub time: Duration,
}

/// Load of a planned trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PlannedLoad {
    /// One trial with this load.
    Fixed(f64),
    /// One trial with this multiple of the limit that the search at the other values of axes finds. If the profile searches nothing,
    /// the multiple of the [assumed limit](Experiment::assumed_limit).
    Multiple(f64),
    /// Search by the experiment's finder.
    Search,
}

/// Position of a trial in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrialPosition {
    /// Floor before all trials.
    FloorAtStart,
    /// Trial of the experiment.
    Trial,
    /// Floor after all trials.
    FloorAtEnd,
}

/// Plan of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Trials in their order.
    pub trials: Vec<Planned>,
    /// Time of all.
    pub time: Duration,
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut systems: Vec<&str> = Vec::new();
        for trial in &self.trials {
            if !systems.contains(&trial.system.as_str()) {
                systems.push(&trial.system);
            }
        }
        let minutes = |time: Duration| time.as_secs_f64() / 60.0;
        for system in systems {
            let own = || self.trials.iter().filter(|trial| trial.system == system);
            let searches = own().filter(|trial| trial.load == PlannedLoad::Search).count();
            let trials = own().count() - searches;
            let time = own().map(|trial| trial.time).sum();
            writeln!(f, "{system:<14} {trials:>4} trials, {searches:>3} searches, {:>6.1} min", minutes(time))?;
        }
        writeln!(f, "{:<14} {:>36.1} min", "in all", minutes(self.time))
    }
}

/// Returns the number of trials of the floor at the start, which is also the number at the end. A comparison of two runs
/// needs the interval of their floors.
const fn floors(profile: Profile) -> u32 {
    match profile {
        Profile::Smoke => 1,
        Profile::Quick => 2,
        Profile::Standard | Profile::Paper => 6,
    }
}

/// Returns the longest window and warm-up of the floor. The profile `smoke` judges nothing, so that one second is
/// enough.
pub(crate) const fn floor_window(profile: Profile) -> Duration {
    match profile {
        Profile::Smoke => Duration::from_secs(1),
        Profile::Quick | Profile::Standard | Profile::Paper => Duration::from_secs(5),
    }
}

/// Least load of the floor in calls a second.
const FLOOR_LOAD: f64 = 1_000.0;

/// Start of a system.
const START: Duration = Duration::from_millis(300);

/// Start of a system and its database.
const START_DATABASE: Duration = Duration::from_millis(1_800);

/// Start of a system and its database with a million users.
const START_MILLION: Duration = Duration::from_secs(20);

/// Start of the unread relay.
const FLOOR_START: Duration = Duration::from_millis(100);

/// Start and end of the generator around a trial, on top of the length of a call. A window begins with a whole second.
const AROUND: Duration = Duration::from_secs(1);

/// Numbers of workers of which the best is chosen.
const WORKERS: u32 = 3;

/// Trial with one of these numbers.
const CHOICE: Duration = Duration::from_secs(4);

/// Registrations a second before the load.
pub(crate) const REGISTRATIONS: f64 = 1_000.0;

/// Short trials of a search on a machine without much noise.
const SEARCH_TRIALS: u32 = 24;

/// Rates that RFC 7502 tries around the limit, besides the climb to it.
const REPEATS: f64 = 20.0;

/// Plans a run of the named systems, or of all systems that are not optional.
///
/// Systems are interleaved and their order alternates, so that a drift during the run favours no system. A system that must lose nothing is
/// the first of its repetition: while it loses, no other system is measured. The floor runs at the start and at the end.
pub fn plan(experiment: &Experiment, profile: Profile, only: &[&str]) -> Plan {
    let steps = experiment.profiles.get(&profile).cloned().unwrap_or_else(|| Steps::default_of(profile));
    let systems: Vec<&SystemSpec> = experiment.systems.iter().filter(|system| system.is_among(only)).collect();
    let load = floor_load(experiment, &steps);
    let mut trials = floor(profile, &steps, load, TrialPosition::FloorAtStart);
    for repetition in 1..=steps.repetitions {
        for (at, (axes, loads)) in cells(experiment, &steps, repetition).into_iter().enumerate() {
            let present: Vec<&SystemSpec> = systems.iter().copied().filter(|system| system.has(&axes)).collect();
            for (step, load) in loads.into_iter().enumerate() {
                // A cell changes its order from repetition to repetition, and cells of one repetition do not all begin with the same.
                let mut order = present.clone();
                if (at + step + repetition as usize).is_multiple_of(2) {
                    order.reverse();
                }
                order.sort_by_key(|system| !system.is_lossless);
                for system in order {
                    // A system whose trials kill it, or need a fresh one, starts with each.
                    let kills = experiment.course(profile, &axes).restarts();
                    let starts = step == 0 || kills || experiment.call.fresh;
                    let registers = if starts { experiment.registered_users(&axes) } else { 0 };
                    let chooses = step == 0
                        && repetition == 1
                        && profile != Profile::Smoke
                        && system.workers_at(&axes) == Some(Workers::Best);
                    let start = starting(system, &axes, registers);
                    let choice = if chooses { (start + CHOICE) * WORKERS } else { Duration::ZERO };
                    let start = if starts { start } else { Duration::ZERO };
                    let settle = steps.settle_in(repetition).unwrap_or_default();
                    let time = time(experiment, &steps, &system.name, &axes, (load, settle)) + start + choice;
                    trials.push(Planned {
                        system: system.name.clone(),
                        configuration: experiment.configuration(system, &axes),
                        axes: axes.clone(),
                        load,
                        repetition,
                        place: TrialPosition::Trial,
                        registers,
                        kills,
                        time,
                    });
                }
            }
        }
    }
    trials.extend(floor(profile, &steps, load, TrialPosition::FloorAtEnd));
    let time = trials.iter().map(|trial| trial.time).sum();
    Plan { trials, time }
}

/// Returns the load of the floor: the experiment's rate of calls if it has a single one, so that the floor is a part of
/// the cost of these calls.
fn floor_load(experiment: &Experiment, steps: &Steps) -> f64 {
    let loads = loads(experiment, steps, &Axes::new(), 1);
    match loads.first() {
        Some(PlannedLoad::Fixed(load)) if loads.len() == 1 && experiment.load.unit == LoadUnit::Calls => {
            load.max(FLOOR_LOAD)
        }
        _ => FLOOR_LOAD,
    }
}

fn floor(profile: Profile, steps: &Steps, load: f64, place: TrialPosition) -> Vec<Planned> {
    let longest = floor_window(profile);
    let time = FLOOR_START + AROUND + steps.warm_up.min(longest) + steps.window.min(longest);
    let trial = |repetition| Planned {
        system: FLOOR.to_owned(),
        configuration: String::new(),
        axes: Axes::new(),
        load: PlannedLoad::Fixed(load),
        repetition,
        place,
        registers: 0,
        kills: false,
        time,
    };
    let count = floors(profile);
    let first = if place == TrialPosition::FloorAtStart { 1 } else { 1 + count };
    (first..first + count).map(trial).collect()
}

/// Returns all combinations of the values of the axes, the last axis varying fastest. `only` has the values of some axes in place of all.
pub fn combinations(experiment: &Experiment, only: &BTreeMap<String, Vec<AxisValue>>) -> Vec<Axes> {
    let mut all = vec![Axes::new()];
    for axis in &experiment.axes {
        let values = only.get(&axis.name).unwrap_or(&axis.values);
        let with = |axes: &Axes, value| {
            let mut axes = axes.clone();
            axes.insert(axis.name.clone(), value);
            axes
        };
        all = all.iter().flat_map(|axes| values.iter().map(|value| with(axes, value.clone()))).collect();
    }
    all
}

/// Returns the values of axes of a repetition, each with its loads. The trials at multiples of a limit follow its search, which is at the
/// other values of axes.
fn cells(experiment: &Experiment, steps: &Steps, repetition: u32) -> Vec<(Axes, Vec<PlannedLoad>)> {
    if experiment.multiples().is_none() {
        let of = |axes: Axes| {
            let loads = loads(experiment, steps, &axes, repetition);
            (axes, loads)
        };
        return combinations(experiment, &steps.only).into_iter().map(of).collect();
    }
    let mut found: Vec<(Axes, Vec<PlannedLoad>)> = Vec::new();
    let mut all = combinations(experiment, &steps.only);
    let others = |axes: &Axes| experiment.others(axes);
    // Equal values of the other axes stand together, also if this axis is not the last one.
    let order: Vec<Axes> = all.iter().map(others).collect();
    all.sort_by_key(|axes| order.iter().position(|known| *known == others(axes)));
    let mut searched: Option<Axes> = None;
    for axes in all {
        let own = others(&axes);
        if steps.search && repetition == 1 && searched.as_ref() != Some(&own) {
            found.push((own.clone(), vec![PlannedLoad::Search]));
        }
        searched = Some(own);
        let multiple = experiment.multiple(&axes).map(PlannedLoad::Multiple);
        found.push((axes, multiple.into_iter().collect()));
    }
    found
}

impl Experiment {
    /// Returns the limit of a system for a profile that searches none: the first of its loads, or the expected limit.
    pub fn assumed_limit(&self, steps: &Steps, system: &str) -> f64 {
        steps.loads.first().copied().unwrap_or_else(|| self.load_of(system).expected)
    }
}

/// Returns the loads of a repetition: the fixed loads in each one, and a search in the first one.
fn loads(experiment: &Experiment, steps: &Steps, axes: &Axes, repetition: u32) -> Vec<PlannedLoad> {
    let of_values = experiment.axes.iter().filter_map(|axis| axis.loads.get(&axes.get(&axis.name)?.to_string()));
    let of_values: Vec<f64> = of_values.copied().collect();
    let loads = [of_values, steps.loads.clone(), experiment.load.values.clone()];
    let loads = loads.into_iter().find(|loads| !loads.is_empty()).unwrap_or_default();
    let searches = experiment.load.finder != FinderKind::Fixed && steps.search && (repetition == 1 || loads.is_empty());
    let search = searches.then_some(PlannedLoad::Search);
    loads.into_iter().map(PlannedLoad::Fixed).chain(search).collect()
}

fn starting(system: &SystemSpec, axes: &Axes, users: u32) -> Duration {
    let beside = system.beside_at(axes);
    let has = |name: &str| beside.iter().any(|beside| beside == name);
    let start = match (has("mariadb"), has("mariadb-million")) {
        (_, true) => START_MILLION,
        (true, false) => START_DATABASE,
        (false, false) => START,
    };
    start + Duration::from_secs_f64(f64::from(users) / REGISTRATIONS)
}

fn time(
    experiment: &Experiment,
    steps: &Steps,
    system: &str,
    axes: &Axes,
    (load, settle): (PlannedLoad, Duration),
) -> Duration {
    let around = AROUND + steps.hold.unwrap_or(experiment.call.hold);
    let plan = experiment.load_of(system);
    let value = match load {
        PlannedLoad::Fixed(load) => load,
        PlannedLoad::Multiple(multiple) => plan.before.unwrap_or(multiple) * experiment.assumed_limit(steps, system),
        PlannedLoad::Search => plan.expected,
    };
    let connecting = experiment.connecting(axes, value);
    let step = around + experiment.warm_up(steps, axes, value) + steps.window + steps.cool_down + settle;
    match (plan.finder, load) {
        (FinderKind::Fixed, _) | (_, PlannedLoad::Fixed(_) | PlannedLoad::Multiple(_)) => step,
        (FinderKind::Search, _) => {
            (around + connecting + steps.trial) * SEARCH_TRIALS + around + connecting + steps.confirm
        }
        (FinderKind::Staircase, _) => {
            // Two steps beyond the limit, unless it is the highest load.
            let steps_to = |load: f64| ((load - plan.start) / plan.step).max(0.0).floor() + 1.0;
            let count = (steps_to(plan.expected) + 2.0).min(steps_to(plan.most));
            step.mul_f64(count)
        }
        (FinderKind::Rfc7502, _) => {
            let factor = 1.0 + steps.increase.unwrap_or(plan.increase);
            let climb = ((plan.expected / plan.start).max(1.0).ln() / factor.ln()).ceil();
            let sessions = f64::from(steps.sessions.unwrap_or(plan.sessions));
            let sending = |rate: f64| (sessions / rate).max(steps.trial.as_secs_f64());
            let climbing: f64 = (0..climb as i32).map(|n| sending(plan.start * factor.powi(n))).sum();
            Duration::from_secs_f64(climbing + REPEATS * sending(plan.expected)) + around.mul_f64(climb + REPEATS)
        }
    }
}
