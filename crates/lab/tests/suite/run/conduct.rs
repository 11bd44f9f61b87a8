//! Conduct of a run: repetition of invalid trials, searches, interruption and resumption at every row.

use super::bed::{Bed, CAPACITY, fixed, schedule};
use super::description;
use std::cell::Cell;
use std::path::Path;
use std::time::Duration;
use strowger_lab::compare::FLOOR;
use strowger_lab::experiment::{Experiment, PlannedLoad, plan};
use strowger_lab::finder::{Finding, Part};
use strowger_lab::row::{AxisValue, Check, Profile, Row};
use strowger_lab::run::{Due, Ending, Event, Folder, PlanVerdict, Recorded, Schedule, conduct, replay};

/// Conducts a run to its end, or until `stop_after` rows are written.
fn run(path: &Path, schedule: &mut Schedule, bed: &mut Bed, stop_after: usize) -> Result<Ending, String> {
    let (mut folder, rows) = match path.exists() {
        true => Folder::resume(path, &description()).expect("the same run"),
        false => (Folder::create(path, &description(), "title").expect("a new folder"), Vec::new()),
    };
    replay(schedule, &rows)?;
    let written = Cell::new(rows.len());
    let mut tell = |_: &Schedule, event: &Event<'_>| {
        if matches!(event, Event::Written(_)) {
            written.set(written.get() + 1);
        }
    };
    conduct(schedule, &mut folder, bed, &|| written.get() >= stop_after, &mut tell).map_err(|error| error.to_string())
}

fn whole(path: &Path, profile: Profile, bed: &mut Bed) -> (Schedule, Vec<Row>) {
    let mut schedule = schedule(profile);
    assert_eq!(run(path, &mut schedule, bed, usize::MAX), Ok(Ending::Whole));
    let recorded = Recorded::open(path).expect("a whole run");
    assert!(recorded.is_whole && schedule.next() == Due::Nothing);
    (schedule, recorded.rows)
}

/// Checks the warm-up: a window that begins before each user has its connection would measure connects.
#[test]
fn users_connect_before_the_window() {
    let warm_up = |name: &str, axis: &str, value: AxisValue| {
        let (experiment, _) = Experiment::shipped(name).expect("it is shipped");
        let mut plan = plan(&experiment, Profile::Standard, &["strowger"]);
        plan.trials.retain(|trial| trial.axes.get(axis) == Some(&value));
        let of = |plan| match Schedule::new(experiment.clone(), Profile::Standard, plan).next() {
            Due::Trial(order) => order.warm_up,
            other => panic!("{other:?}"),
        };
        let mut search = plan.clone();
        search.trials.retain(|trial| trial.load == PlannedLoad::Search);
        (of(plan), (!search.trials.is_empty()).then(|| of(search)))
    };
    let seconds = Duration::from_secs_f64;
    assert_eq!(warm_up("connections-idle", "connections", AxisValue::Number(15_000.0)), (seconds(7.5), None));
    assert_eq!(warm_up("connections-idle", "connections", AxisValue::Number(1_000.0)), (seconds(1.0), None));
    let of = |lifetime: &str| warm_up("connections", "lifetime", AxisValue::Text(lifetime.into()));
    assert_eq!(of("tls-persistent"), (seconds(2.0), Some(seconds(2.0))));
    assert_eq!(of("tls-transaction"), (seconds(1.0), Some(Duration::ZERO)));
}

#[test]
fn a_sound_run_has_each_trial_once_and_names_limits_and_causes() {
    let temporary = tempfile::tempdir().expect("a temporary folder");
    let mut bed = Bed::sound();
    let (schedule, rows) = whole(&temporary.path().join("run"), Profile::Quick, &mut bed);
    assert!(schedule.marked().is_empty());
    assert_eq!(fixed(&rows).count(), 8, "two letters, two systems, two repetitions");
    let floors: Vec<usize> = (0..rows.len()).filter(|at| rows[*at].system.name == FLOOR).collect();
    assert_eq!(floors, [0, 1, rows.len() - 2, rows.len() - 1], "at the start and at the end");
    let limits: Vec<&Row> = rows.iter().filter(|row| row.limit.is_some()).collect();
    assert_eq!(limits.len(), 4, "two letters and two systems, searched once");
    for row in limits {
        let value = |figure| row.figures.value(figure).expect("it was set");
        assert!((CAPACITY * 0.95..=CAPACITY * 1.02).contains(&value("limit")), "{}", row.to_line());
        assert!(value("limit.high") > value("limit.low"));
        let (found, rate) = (row.limit.as_ref().expect("a limit"), value("rate.achieved"));
        assert_eq!((found.finding, found.part, found.marked), (Finding::Found, Part::Server, false));
        assert_eq!(found.thread.as_deref(), Some("shard-0"));
        // The trial at 0.9 of the limit confirmed it, and its load is what is scaled.
        assert!((rate / value("limit") - 0.9).abs() < 0.01, "{rate}");
        assert!((value("load.scaled") - 1_300.0).abs() < 1.0);
    }
    let systems: Vec<&str> = fixed(&rows).map(|row| row.system.name.as_str()).collect();
    let first = [systems[0], systems[4]];
    assert_ne!(first[0], first[1], "the order alternates: {systems:?}");
}

#[test]
fn an_invalid_trial_is_made_again_three_times_and_marked() {
    let temporary = tempfile::tempdir().expect("a temporary folder");
    for check in Check::ALL {
        let path = temporary.path().join(check.word());
        let is_first = |order: &strowger_lab::run::NextTrial| {
            order.planned.system == "kamailio" && order.planned.repetition == 1 && order.load.value == 90.0
        };
        let mut bed = Bed::new(move |_, order| is_first(order).then_some(*check));
        let (schedule, rows) = whole(&path, Profile::Quick, &mut bed);
        let invalid: Vec<&Row> = fixed(&rows).filter(|row| row.validity.fails(*check)).collect();
        assert_eq!(invalid.len(), 8, "{check}: two letters, each made four times");
        assert_eq!(schedule.marked().len(), 2, "{check}");
        assert_eq!(schedule.marked()[0].reasons[0].check, *check);
        assert_eq!(PlanVerdict::of(Profile::Quick, schedule.marked()), PlanVerdict::Invalid);
    }
}

#[test]
fn a_trial_that_becomes_valid_is_not_marked() {
    let temporary = tempfile::tempdir().expect("a temporary folder");
    // The third trial and its first repetition are disturbed.
    let mut bed = Bed::new(|number, _| [3, 4].contains(&number).then_some(Check::Stolen));
    let (schedule, rows) = whole(&temporary.path().join("run"), Profile::Quick, &mut bed);
    assert!(schedule.marked().is_empty());
    assert_eq!(rows.iter().filter(|row| !row.validity.is_valid()).count(), 2);
    assert_eq!((rows[2].cell(), rows[3].cell()), (rows[4].cell(), rows[4].cell()));
}

#[test]
fn a_disturbed_trial_of_a_search_is_made_again_and_a_weak_generator_is_a_result() {
    let temporary = tempfile::tempdir().expect("a temporary folder");
    let search = |order: &strowger_lab::run::NextTrial| order.planned.load == PlannedLoad::Search;
    let mut bed = Bed::new(move |_, order| (search(order) && order.attempt < 3).then_some(Check::Neighbour));
    let (schedule, rows) = whole(&temporary.path().join("disturbed"), Profile::Quick, &mut bed);
    let limits: Vec<&Row> = rows.iter().filter(|row| row.limit.is_some()).collect();
    assert!(limits.iter().all(|row| row.limit.as_ref().is_some_and(|limit| !limit.marked)));
    assert!(schedule.marked().is_empty());
    let mut bed = Bed::new(move |_, order| (search(order) && order.load.value > 300.0).then_some(Check::Generator));
    let (schedule, rows) = whole(&temporary.path().join("weak"), Profile::Quick, &mut bed);
    for limit in rows.iter().filter_map(|row| row.limit.as_ref()) {
        assert_eq!((limit.part, limit.marked), (Part::Generator, false));
    }
    assert!(schedule.marked().is_empty());
}

#[test]
fn nothing_is_made_again_in_the_profile_smoke() {
    let temporary = tempfile::tempdir().expect("a temporary folder");
    let mut bed = Bed::new(|_, _| Some(Check::Neighbour));
    let (schedule, rows) = whole(&temporary.path().join("busy"), Profile::Smoke, &mut bed);
    assert_eq!(fixed(&rows).count(), 4, "two letters and two systems");
    assert_eq!(PlanVerdict::of(Profile::Smoke, schedule.marked()), PlanVerdict::Valid);
    let mut bed = Bed::new(|_, _| Some(Check::Restart));
    let (schedule, _) = whole(&temporary.path().join("dying"), Profile::Smoke, &mut bed);
    assert_eq!(PlanVerdict::of(Profile::Smoke, schedule.marked()), PlanVerdict::Invalid);
}

#[test]
fn a_run_that_stops_at_any_row_goes_on_to_the_same_rows() {
    let temporary = tempfile::tempdir().expect("a temporary folder");
    let bed = || Bed::new(|_, order| (order.attempt == 1 && order.load.value == 200.0).then_some(Check::Stolen));
    let (_, rows) = whole(&temporary.path().join("whole"), Profile::Quick, &mut bed());
    for stop in (1..rows.len()).step_by(9) {
        let path = temporary.path().join(stop.to_string());
        assert_eq!(run(&path, &mut schedule(Profile::Quick), &mut bed(), stop), Ok(Ending::Interrupted));
        let part = Recorded::verify(&path).expect("a valid part");
        assert!(!part.is_whole && part.rows == rows[..stop], "stopped after {stop} rows");
        let (_, all) = whole(&path, Profile::Quick, &mut bed());
        assert_eq!(all, rows, "stopped after {stop} rows");
    }
}

#[test]
fn a_trial_that_cannot_be_made_keeps_the_rows_before() {
    let temporary = tempfile::tempdir().expect("a temporary folder");
    let path = temporary.path().join("run");
    let mut bed = Bed { fails_at: Some(6), ..Bed::sound() };
    let error = run(&path, &mut schedule(Profile::Quick), &mut bed, usize::MAX).expect_err("a port is taken");
    assert!(error.contains("port 5060 is taken"), "{error}");
    assert_eq!(Recorded::open(&path).expect("a valid part").rows.len(), 5);
    whole(&path, Profile::Quick, &mut Bed::sound());
}

#[test]
fn rows_of_another_plan_are_refused() {
    let temporary = tempfile::tempdir().expect("a temporary folder");
    let (_, mut rows) = whole(&temporary.path().join("run"), Profile::Quick, &mut Bed::sound());
    rows.swap(2, 3);
    let refusal = replay(&mut schedule(Profile::Quick), &rows).expect_err("another order");
    assert!(refusal.starts_with("row 3 is not of this plan: ") && refusal.contains("is due"), "{refusal}");
    assert!(replay(&mut schedule(Profile::Smoke), &rows).is_err());
}
