//! Loads that are multiples of a limit: the search comes first, and each trial has its part of what the search found.

use super::bed::{Bed, CAPACITY};
use super::description;
use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;
use strowger_lab::experiment::{Experiment, PlannedLoad, TrialPosition, plan};
use strowger_lab::row::{AxisValue, Profile, Row};
use strowger_lab::run::{Ending, Folder, NextTrial, Recorded, Schedule, conduct, replay};

const EXPERIMENT: &str = r#"
title = "Multiples of the limit"
[call]
document = "call"
[load]
finder = "search"
start = 50
most = 2000
expected = 400
before = 0.5
after = 0.9
[[axis]]
name = "n"
values = [1, 10]
of_limit = true
[[axis]]
name = "letter"
values = ["A", "B"]
[[system]]
name = "strowger"
configuration = "stress-{letter}"
[[system]]
name = "kamailio"
configuration = "stress-{letter}"
expected = 200
[profile.smoke]
search = false
[profile.quick]
warm_up = "1s"
window = "5s"
cool_down = "3s"
repetitions = 2
[[figure]]
name = "goodput"
title = "Goodput"
x = "n"
y = ["goodput.share"]
"#;

fn experiment() -> Experiment {
    Experiment::read("mine.toml", EXPERIMENT).unwrap_or_else(|report| panic!("{report}")).0
}

/// Conducts a run to its end, or until `stop_after` rows are written. Returns the orders of its trials.
fn run(path: &Path, profile: Profile, stop_after: usize) -> (Vec<NextTrial>, Vec<Row>) {
    let experiment = experiment();
    let plan = plan(&experiment, profile, &[]);
    let mut schedule = Schedule::new(experiment, profile, plan);
    let (mut folder, rows) = match path.exists() {
        true => Folder::resume(path, &description()).expect("the same run"),
        false => (Folder::create(path, &description(), "title").expect("a new folder"), Vec::new()),
    };
    replay(&mut schedule, &rows).expect("rows of this plan");
    let orders: Rc<RefCell<Vec<NextTrial>>> = Rc::default();
    let seen = Rc::clone(&orders);
    let mut bed = Bed::new(move |_, order| {
        seen.borrow_mut().push(order.clone());
        None
    });
    let is_stopped = || orders.borrow().len() + rows.len() > stop_after;
    let ending = conduct(&mut schedule, &mut folder, &mut bed, &is_stopped, &mut |_, _| {});
    let ending = ending.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(ending == Ending::Whole, stop_after == usize::MAX);
    let orders = orders.borrow().clone();
    (orders, Recorded::open(path).expect("a valid part").rows)
}

fn is_multiple(order: &&NextTrial) -> bool {
    matches!(order.planned.load, PlannedLoad::Multiple(_))
}

#[test]
fn each_search_comes_before_its_multiples() {
    let plan = plan(&experiment(), Profile::Quick, &["strowger"]);
    let trials = plan.trials.iter().filter(|trial| trial.place == TrialPosition::Trial);
    let text = |axes: &strowger_lab::experiment::Axes| axes["letter"].to_string();
    let steps: Vec<(String, PlannedLoad)> = trials.map(|trial| (text(&trial.axes), trial.load)).collect();
    let once = |letter: &str| [1.0, 10.0].map(|multiple| (letter.to_owned(), PlannedLoad::Multiple(multiple)));
    let search = |letter: &str| (letter.to_owned(), PlannedLoad::Search);
    // The second repetition searches nothing. All multiples of a letter follow one another, though their axis is the first one.
    let mut wanted = vec![search("A")];
    wanted.extend(once("A"));
    wanted.push(search("B"));
    wanted.extend(["B", "A", "B"].into_iter().flat_map(once));
    assert_eq!(steps, wanted);
    let mut searches = plan.trials.iter().filter(|trial| trial.load == PlannedLoad::Search);
    assert!(searches.all(|trial| !trial.axes.contains_key("n")));
}

#[test]
fn loads_are_multiples_of_the_limit_that_was_found() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (orders, rows) = run(&folder.path().join("run"), Profile::Quick, usize::MAX);
    let limits: Vec<f64> =
        rows.iter().filter_map(|row| row.limit.as_ref().and_then(|_| row.figures.value("limit"))).collect();
    assert_eq!(limits.len(), 4, "two letters of two systems");
    let found: Vec<&NextTrial> = orders.iter().filter(is_multiple).collect();
    assert_eq!(found.len(), 16, "two multiples, two letters, two systems, two repetitions");
    for order in found {
        let n = match order.planned.axes["n"] {
            AxisValue::Number(number) => number,
            AxisValue::Text(_) => panic!("{order:?}"),
        };
        let near = |load: f64, of: f64| (0.95..=1.03).contains(&(load / (of * CAPACITY)));
        assert!(near(order.load.value, n) && order.load.value.fract() == 0.0, "{order:?}");
        let (before, after) = order.course.before.zip(order.course.after).expect("the experiment has both");
        assert!(near(before, 0.5) && near(after, 0.9), "{order:?}");
        assert_eq!(order.cool_down, Duration::from_secs(3));
    }
}

#[test]
fn a_profile_without_a_search_takes_the_expected_limits() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (orders, _) = run(&folder.path().join("run"), Profile::Smoke, usize::MAX);
    for (system, expected) in [("strowger", 400.0), ("kamailio", 200.0)] {
        let own = orders.iter().filter(is_multiple).filter(|order| order.planned.system == system);
        let mut loads: Vec<f64> = own.map(|order| order.load.value / expected).collect();
        loads.sort_by(f64::total_cmp);
        assert_eq!(loads, [1.0, 1.0, 10.0, 10.0], "{system}");
    }
}

/// Checks that the limits of a resumed run are those of its rows.
#[test]
fn a_run_that_stops_goes_on_with_the_same_multiples() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (_, rows) = run(&folder.path().join("whole"), Profile::Quick, usize::MAX);
    // The rows of four limits are of no trial.
    for stop in (1..rows.len() - 4).step_by(17) {
        let path = folder.path().join(stop.to_string());
        run(&path, Profile::Quick, stop);
        assert_eq!(run(&path, Profile::Quick, usize::MAX).1, rows, "stopped after {stop} rows");
    }
}
