//! Method of a run in sentences.

use super::cells::value_of;
use super::table::show as show_value;
use crate::compare::FLOOR;
use crate::experiment::{Action, EventSpec, Experiment, FinderKind, Steps, SystemSpec};
use crate::row::{AxisValue, Profile, Row};
use crate::run::Description;
use std::time::Duration;
use strowger_measure::{Unit, grouped, several};

/// Figure of the floor that a method names.
const COST: &str = "server.cpu.call";

/// Describes how the rows were measured and what their values mean.
pub(super) fn method(experiment: &Experiment, profile: Profile, rows: &[Row]) -> Vec<String> {
    let steps = experiment.profiles.get(&profile).cloned().unwrap_or_else(|| Steps::default_of(profile));
    let hold = steps.hold.unwrap_or(experiment.call.hold);
    let call = &experiment.call;
    let mut sentences = vec![format!(
        "Each trial{} has a warm-up of {}{} and a window of {}, which alone is measured{}{}. Calls follow the document {}{}{}.",
        if has_search(experiment, &steps) { " at a fixed load" } else { "" },
        show(steps.warm_up),
        match steps.warm_up_calls {
            0 => String::new(),
            calls => format!(", {} at least,", several(u64::from(calls), "call")),
        },
        show(steps.window),
        match steps.cool_down {
            time if time.is_zero() => String::new(),
            time => format!("; the load goes on for {} after it", show(time)),
        },
        match (steps.settle, steps.settled) {
            (time, _) if time.is_zero() => String::new(),
            (time, None) => format!("; memory is read {} after the load", show(time)),
            (time, Some(settled)) => format!(
                "; memory is read {} after the load, in {} of a cell",
                show(time),
                several(u64::from(settled), "repetition")
            ),
        },
        call.document,
        if hold.is_zero() { String::new() } else { format!(" and last {}", show(hold)) },
        match call.users {
            0 => String::new(),
            users => format!(", by {}", several(u64::from(users), "user")),
        },
    )];
    sentences.push(format!(
        "Systems take turns and their order alternates, so that a drift of the machine favours none. {} of each cell; a value is the \
         median of its valid trials, with the interval of the median by the sign test, which reaches 95 % with six repetitions.",
        several(u64::from(steps.repetitions), "repetition"),
    ));
    sentences.push(
        "A trial is valid if the generator kept up with its schedule and met the rate within 1 %, both ends counted the same, no row of \
         accounting and no sample is missing, at most 5 % of the processor time was stolen, no other program was busy, and the server ran \
         from begin to end, unless an event killed it. An invalid trial is made again, three times at most; where none is valid, the last one is shown and marked."
            .into(),
    );
    sentences.extend(cores(rows));
    sentences.extend(quota(experiment));
    sentences.extend(mixed(experiment));
    sentences.extend(multiples(experiment, &steps));
    sentences.extend(events(experiment, profile));
    if steps.search {
        sentences.extend(finder(experiment));
        sentences.extend(trials_of_search(experiment, &steps));
    }
    sentences.extend(experiment.notes.iter().cloned());
    let all: Vec<&Row> = rows.iter().filter(|row| row.system.name == FLOOR && row.validity.is_valid()).collect();
    let (start, end) = all.split_at(all.len() / 2);
    let cost = |rows: &[&Row]| Some(show_value(COST, value_of(rows, |row| row.figures.value(COST))?));
    let (floor, unit) = match experiment.load.unit {
        crate::row::LoadUnit::Registrations => ("an echo that stores nothing", "a registration"),
        _ => ("a relay that reads nothing", "a call"),
    };
    if let (Some(start), Some(end)) = (cost(start), cost(end)) {
        sentences.push(format!(
            "The floor, {floor}, took {start} of CPU {unit} at the start of the run and {end} at its end: so fast was \
             the machine, and so much did it drift."
        ));
    }
    sentences
}

/// Time of a run beside that of its plan, in seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Time {
    planned: u64,
    took: u64,
    /// Trials that were made again.
    again: u64,
}

impl Time {
    /// Reads the time of a run that ended at this second since 1970-01-01 UTC. Returns `None` if the clock was set
    /// back.
    pub(super) fn of(description: &Description, rows: &[Row], ended: u64) -> Option<Self> {
        let took = ended.checked_sub(description.started)?;
        let is_again = |pair: &&[Row]| {
            let [before, after] = pair else { return false };
            !before.validity.is_valid() && before.repetition == after.repetition && before.cell() == after.cell()
        };
        let again = rows.windows(2).filter(is_again).count() as u64;
        Some(Self { planned: description.planned, took, again })
    }

    /// Tells whether a run without a repeated trial took a quarter more or less than its plan.
    pub(super) const fn misses_plan(self) -> bool {
        self.again == 0 && self.took.abs_diff(self.planned) * 4 > self.planned
    }

    pub(super) fn sentence(self) -> String {
        let Self { planned, took, again } = self;
        let again = match again {
            0 => "no trial was made again".to_owned(),
            1 => "1 trial was made again".to_owned(),
            count => format!("{count} trials were made again"),
        };
        format!("The plan estimated {planned} s, and the run took {took} s from its begin to its last sample; {again}.")
    }
}

/// Describes the events within each trial.
fn events(experiment: &Experiment, profile: Profile) -> Option<String> {
    let of_axes = |event: &EventSpec| -> String {
        let list = |values: &[AxisValue]| values.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ");
        event.only.iter().map(|(name, values)| format!(", where {name} is {}", list(values))).collect()
    };
    let one = |event: &EventSpec| {
        let action = match event.action {
            Action::Kill { silent: false } => "all processes of the server end by SIGKILL".to_owned(),
            Action::Kill { silent: true } => {
                "all processes of the server end by SIGKILL, and datagrams are dropped unanswered".to_owned()
            }
            Action::Start => "the server starts again".to_owned(),
            Action::Load(load) => format!("the load becomes {load} {}", experiment.load.unit),
        };
        Some(format!("{} after the begin of the window {action}{}", show(*event.at.get(&profile)?), of_axes(event)))
    };
    let all: Vec<String> = experiment.events.iter().filter_map(one).collect();
    (!all.is_empty())
        .then(|| format!("Within each trial: {}. Values over time are of one second each.", all.join("; ")))
}

/// Describes the processor time of a system.
fn quota(experiment: &Experiment) -> Option<String> {
    let percent = experiment.call.quota?;
    Some(format!(
        "All processes of a system together get {percent} % of one core: a part of every 5 ms, by their control group."
    ))
}

/// Describes the calls that follow other documents.
fn mixed(experiment: &Experiment) -> Option<String> {
    let shares: Vec<String> =
        experiment.call.mixed.iter().map(|(name, share)| format!("{share} % follow {name}")).collect();
    (!shares.is_empty()).then(|| format!("Of the calls, {}.", shares.join(" and ")))
}

/// Describes loads that are multiples of a limit.
fn multiples(experiment: &Experiment, steps: &Steps) -> Option<String> {
    let axis = experiment.multiples()?;
    let around =
        |load: Option<f64>, when: &str| load.map_or_else(String::new, |load| format!(", {load} times it {when}"));
    let limit = match steps.search {
        true => "the limit that the run finds first for the system and the other axes".to_owned(),
        false => {
            let of = |system: &SystemSpec| {
                format!("{} for {}", grouped(experiment.assumed_limit(steps, &system.name)), system.name)
            };
            let systems: Vec<String> = experiment.systems.iter().map(of).collect();
            format!(
                "an assumed limit, since this profile searches none: {} {}",
                systems.join(", "),
                experiment.load.unit
            )
        }
    };
    Some(format!(
        "The axis {} multiplies {limit}. The load has this multiple in the window{}{}.",
        axis.name,
        around(experiment.load.before, "in the warm-up"),
        around(experiment.load.after, "after the window"),
    ))
}

fn finder(experiment: &Experiment) -> Option<String> {
    let bounds = |goal: crate::finder::Goal| {
        let bound = |(figure, most): &(String, f64)| {
            let unit = crate::row::definition(figure).map_or(Unit::Count, |definition| definition.unit);
            format!("{figure} of at most {}", unit.show(*most))
        };
        goal.at_most.iter().map(bound).collect::<Vec<_>>().join(", ")
    };
    Some(match experiment.load.finder {
        FinderKind::Fixed => return None,
        FinderKind::Search => format!(
            "The limit is searched by several short trials a load, in the manner of MLRsearch: a load passes when most of its trial time \
             meets the goal, which is {}.",
            bounds(experiment.load.goal())
        ),
        FinderKind::Rfc7502 => {
            "The limit is that of RFC 7502 section 4.10: the highest rate at which no session fails, with its number of repeats.".into()
        }
        FinderKind::Staircase => "Loads rise by equal steps. The limit of the CPU is the first point of its maximum, that of delays the \
             last point before a leap or before 300 ms, that of failures the last point before IRA or ISA pass 1 %; the total is the \
             least of them."
            .into(),
    })
}

fn show(time: Duration) -> String {
    Unit::Microseconds.show(time.as_micros() as f64)
}

/// Returns whether a finder makes trials in addition to those at fixed loads.
fn has_search(experiment: &Experiment, steps: &Steps) -> bool {
    steps.search && matches!(experiment.load.finder, FinderKind::Search | FinderKind::Rfc7502)
}

/// Describes the duration of the trials of a search.
fn trials_of_search(experiment: &Experiment, steps: &Steps) -> Option<String> {
    let length = match experiment.load.finder {
        FinderKind::Search => {
            format!("last {}, the one that confirms the limit {}", show(steps.trial), show(steps.confirm))
        }
        FinderKind::Rfc7502 => {
            let sessions = u64::from(steps.sessions.unwrap_or(experiment.load.sessions));
            format!("have {} and last {} at least", several(sessions, "session"), show(steps.trial))
        }
        FinderKind::Fixed | FinderKind::Staircase => return None,
    };
    Some(format!(
        "Its trials {length}; they have no warm-up, except that each user with a connection of its own connects first."
    ))
}

/// Describes the cores that the server had.
fn cores(rows: &[Row]) -> Option<String> {
    let of = |row: &Row| row.figures.value("server.cores").zip(row.figures.value("machine.cores"));
    let (own, all) = rows.iter().filter(|row| row.system.name != FLOOR).find_map(of)?;
    Some(match own < all {
        true => format!("The server had {own} of the {all} cores of its machine, and a generator there the others."),
        false if all < 4.0 => format!(
            "The server could use all {all} cores of its machine, also those of a generator there: with fewer than four, server and database \
             would share one."
        ),
        false => format!("The server could use all {all} cores of its machine."),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_missed_by_a_quarter_unless_trials_were_made_again() {
        let misses = |took, again| Time { planned: 100, took, again }.misses_plan();
        assert!(misses(126, 0) && misses(74, 0));
        assert!(!misses(125, 0) && !misses(75, 0) && !misses(200, 1));
        let sentence = Time { planned: 100, took: 200, again: 2 }.sentence();
        assert!(
            sentence.ends_with("took 200 s from its begin to its last sample; 2 trials were made again."),
            "{sentence}"
        );
    }
}
