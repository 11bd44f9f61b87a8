//! Parts of a trial: warm-up, window, load after it, and the reading of memory.

use std::time::Duration;
use strowger_lab::experiment::{Experiment, Plan, Planned, TrialPosition, plan};
use strowger_lab::row::{LoadUnit, Profile};
use strowger_lab::run::{Due, NextTrial, Schedule};

const EXPERIMENT: &str = r#"
title = "Two loads, twice"
[call]
document = "call"
[load]
values = [100, 200]
[[system]]
name = "strowger"
configuration = "relay"
[profile.quick]
window = "5s"
repetitions = 2
"#;

/// Returns the orders of the trials if the profile has these further lines, with the time of each in the plan.
fn orders(lines: &str) -> Vec<(NextTrial, Duration)> {
    let (experiment, _) =
        Experiment::read("mine.toml", &format!("{EXPERIMENT}{lines}")).unwrap_or_else(|report| panic!("{report}"));
    let mut planned = plan(&experiment, Profile::Quick, &[]).trials;
    planned.retain(|trial| trial.place == TrialPosition::Trial);
    assert_eq!(planned.len(), 4);
    let order = |trial: Planned| {
        let time = trial.time;
        match Schedule::new(experiment.clone(), Profile::Quick, Plan { trials: vec![trial], time }).next() {
            Due::Trial(order) => (*order, time),
            other => panic!("{other:?}"),
        }
    };
    planned.into_iter().map(order).collect()
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_warm_up_has_a_number_of_calls_at_least() {
    let (plain, counted) = (orders("warm_up = \"6s\""), orders("warm_up = \"6s\"\nwarm_up_calls = 1_000"));
    for ((plain, planned), (counted, time)) in plain.iter().zip(&counted) {
        let wanted = if plain.load.value == 100.0 { 10 * SECOND } else { 6 * SECOND };
        assert_eq!((plain.warm_up, counted.warm_up), (6 * SECOND, wanted));
        assert_eq!(*time - *planned, wanted - 6 * SECOND, "the plan counts it");
    }
}

#[test]
fn the_load_goes_on_after_the_window() {
    for ((plain, planned), (long, time)) in orders("").iter().zip(&orders("cool_down = \"7s\"")) {
        assert_eq!((plain.cool_down, long.cool_down), (Duration::ZERO, 7 * SECOND));
        assert_eq!((long.window, *time - *planned), (plain.window, 7 * SECOND));
    }
}

/// Checks that only the first repetitions read memory: a pause of half a minute in each of ten repetitions would take
/// longer than their windows.
#[test]
fn memory_is_read_in_the_first_repetitions_alone() {
    for (lines, first, others) in [
        ("", Some(Duration::ZERO), Some(Duration::ZERO)),
        ("settle = \"33s\"", Some(33 * SECOND), Some(33 * SECOND)),
        ("settle = \"33s\"\nsettled = 1", Some(33 * SECOND), None),
    ] {
        for ((_, plain), (order, time)) in orders("").iter().zip(&orders(lines)) {
            let wanted = if order.planned.repetition == 1 { first } else { others };
            assert_eq!(order.settle, wanted, "{lines}");
            assert_eq!(*time - *plain, wanted.unwrap_or_default(), "{lines}");
        }
    }
}

/// Checks that the floor makes registrations if the experiment does, so that the cost of a registration is compared
/// with a registration that costs only its transport.
#[test]
fn the_floor_registers_where_the_experiment_does() {
    for (unit, wanted) in
        [("calls/s", LoadUnit::Calls), ("requests/s", LoadUnit::Calls), ("registrations/s", LoadUnit::Registrations)]
    {
        let text = EXPERIMENT.replace("[load]", &format!("[load]\nunit = \"{unit}\""));
        let (experiment, _) = Experiment::read("mine.toml", &text).unwrap_or_else(|report| panic!("{report}"));
        let plan = plan(&experiment, Profile::Quick, &[]);
        match Schedule::new(experiment, Profile::Quick, plan).next() {
            Due::Trial(order) => {
                assert_eq!((order.planned.place, order.load.unit), (TrialPosition::FloorAtStart, wanted))
            }
            other => panic!("{other:?}"),
        }
    }
}
