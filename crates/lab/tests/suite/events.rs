//! Events within trials, and figures over time: from the file to the plan, the schedule and the rows.

use std::collections::BTreeMap;
use std::time::Duration;
use strowger_lab::experiment::{Action, Axes, Course, Experiment, Overrides, Planned, TrialEvent, TrialPosition, plan};
use strowger_lab::row::{AxisValue, Profile};
use strowger_lab::run::{Due, Schedule, check, choose};

/// A server that is killed, and phones that come back faster by TCP.
const STORM: &str = r#"title = "A storm"

[call]
document = "register"
users = 100

[load]
unit = "registrations/s"
values = [50, 80]

[[axis]]
name = "phones"
values = ["udp", "tcp"]

[[system]]
name = "strowger"
configuration = "connections"

[[event]]
at = { smoke = "1s", quick = "2s", standard = "5s", paper = "10s" }
do = "kill"
silent = true

[[event]]
at = { smoke = "1s", quick = "3s", standard = "5s", paper = "10s" }
do = "load"
load = 500
where = { phones = ["tcp"] }

[[event]]
at = { smoke = "2s", quick = "4s", standard = "6s", paper = "20s" }
do = "start"

[profile.smoke]
window = "4s"

[[figure]]
name = "registered"
title = "Registered phones"
x = "time"
y = ["registered"]
"#;

fn storm() -> Experiment {
    match Experiment::read("storm.toml", STORM) {
        Ok((experiment, report)) => {
            assert!(report.faults().is_empty(), "{report}");
            experiment
        }
        Err(report) => panic!("{report}"),
    }
}

fn axes(phones: &str) -> Axes {
    BTreeMap::from([("phones".to_owned(), AxisValue::Text(phones.into()))])
}

fn event(at: u64, action: Action) -> TrialEvent {
    TrialEvent { at: Duration::from_secs(at), action }
}

#[test]
fn each_trial_has_the_events_of_its_profile_and_axes() {
    let (kill, experiment) = (Action::Kill { silent: true }, storm());
    let course = |profile, phones| experiment.course(profile, &axes(phones));
    let over_time = vec!["registered".to_owned()];
    let events = vec![event(2, kill), event(3, Action::Load(500.0)), event(4, Action::Start)];
    assert_eq!(course(Profile::Quick, "tcp"), Course { events, users: 100, over_time, ..Course::default() });
    assert_eq!(course(Profile::Quick, "udp").events, [event(2, kill), event(4, Action::Start)]);
    // Events of one moment keep the order of the file.
    let paper = [event(10, kill), event(10, Action::Load(500.0)), event(20, Action::Start)];
    assert_eq!(course(Profile::Paper, "tcp").events, paper);
    assert_eq!(course(Profile::Smoke, "udp").killed(), Some(Duration::from_secs(1)));
    assert!(course(Profile::Smoke, "udp").restarts() && !Course::default().restarts());
    let same = STORM
        .replace("{ smoke = \"1s\", quick = \"2s\", standard = \"5s\", paper = \"10s\" }", "\"1s\"")
        .replace("{ smoke = \"2s\", quick = \"4s\", standard = \"6s\", paper = \"20s\" }", "\"3s\"");
    let (experiment, _) = Experiment::read("storm.toml", &same).unwrap_or_else(|report| panic!("{report}"));
    let is_at_three = |profile: &Profile| experiment.events[2].at[profile] == Duration::from_secs(3);
    assert!(Profile::ALL.iter().all(is_at_three), "one time is that of all profiles");
}

/// Makes each mistake: replaced text, new text, line of the fault, a part of the message, a part of the cure.
#[test]
fn each_mistake_is_named_with_line_and_cure() {
    for (from, to, line, message, cure) in [
        ("do = \"kill\"", "do = \"kil\"", 21, "there is no do", "write kill"),
        ("do = \"kill\"\n", "", 19, "has no do", "\"kill\""),
        (
            "at = { smoke = \"1s\", quick = \"2s\", standard = \"5s\", paper = \"10s\" }\n",
            "",
            19,
            "has no at",
            "\"5s\"",
        ),
        ("silent = true", "silent = 1", 22, "no true or false", "silent = false"),
        ("silent = true", "quiet = true", 22, "there is no key quiet", "at, do"),
        ("{ smoke = \"1s\", quick = \"2s\"", "{ smoke = \"1.5s\", quick = \"2s\"", 20, "whole second", "at = \"5s\""),
        (" quick = \"2s\",", "", 20, "no time for the profile quick", "name all profiles"),
        ("quick = \"2s\"", "quik = \"2s\"", 20, "there is no key quik in at", "write quick"),
        ("load = 500\n", "", 24, "has no load", "load = 1000"),
        ("load = 500", "load = -1", 27, "no number from 0", "load = 10"),
        ("do = \"start\"", "do = \"start\"\nload = 5", 33, "do = \"start\" has no load", "remove it"),
        ("load = 500", "load = 500\nsilent = true", 28, "do = \"load\" has no silent", "remove it"),
        ("do = \"start\"", "do = \"load\"\nload = 5", 19, "nothing starts the killed server", "do = \"start\""),
        ("do = \"start\"", "do = \"kill\"", 19, "the server is killed twice", "between them"),
        ("do = \"kill\"\nsilent = true", "do = \"start\"", 19, "started while it runs", "do = \"kill\""),
        ("silent = true", "where = { phones = [\"tcp\"] }", 19, "started while it runs", "do = \"kill\""),
        ("where = { phones = [\"tcp\"] }", "where = { phones = [\"tpc\"] }", 28, "no such value", "udp, tcp"),
        ("window = \"4s\"", "window = \"2s\"", 30, "window of [profile.smoke] ends before", "a longer window"),
        ("values = [50, 80]", "finder = \"search\"", 19, "trials of a finder have no events", "remove the finder"),
        ("x = \"time\"", "x = \"time\"\nform = \"bars\"", 40, "time is no axis of the form bars", "\"lines\""),
        ("y = [\"registered\"]", "y = [\"server.pss\"]", 41, "no values for each second", "registered, attempts"),
    ] {
        let replaced = STORM.replacen(from, to, 1);
        assert_ne!(replaced, STORM, "{from}");
        let report = Experiment::read("storm.toml", &replaced).expect_err(message);
        let fits = report.faults().iter().any(|fault| {
            report.position(fault).map(|(line, _)| line) == Some(line)
                && fault.message.contains(message)
                && fault.cure.contains(cure)
        });
        assert!(fits, "line {line}: {message} ... {cure}\n{report}");
    }
}

/// Checks that the plan includes the start of a killed server, with its users, in each trial.
#[test]
fn the_plan_reckons_with_a_start_before_each_trial() {
    let planned = |text: &str| {
        let (experiment, _) = Experiment::read("storm.toml", text).unwrap_or_else(|report| panic!("{report}"));
        plan(&experiment, Profile::Quick, &[])
    };
    let registers = |text: &str| -> Vec<u32> {
        let plan = planned(text);
        let own = plan.trials.iter().filter(|trial| trial.place == TrialPosition::Trial && trial.repetition == 1);
        own.map(|trial| trial.registers).collect()
    };
    assert_eq!(registers(STORM), [100; 4]);
    let (before, after) = STORM.split_at(STORM.find("[[event]]").expect("it has events"));
    let quiet = format!("{before}{}", &after[after.find("[profile").expect("it has a profile")..]);
    assert_eq!(registers(&quiet), [100, 0, 100, 0]);
    assert!(planned(STORM).time > planned(&quiet).time);
    assert!(planned(STORM).trials.iter().all(|trial| trial.kills == (trial.place == TrialPosition::Trial)));
}

#[test]
fn a_window_of_the_command_line_is_longer_than_the_events() {
    let of = |seconds| {
        let window = Some(Duration::from_secs(seconds));
        Overrides { window, ..Overrides::default() }.apply(&mut storm(), Profile::Quick)
    };
    assert_eq!(of(5), Ok(()));
    let error = of(4).expect_err("the server starts at 4 s");
    assert_eq!(error, "an event of the experiment is at 4 s, and the window ends at 4 s: give a longer one");
}

#[test]
fn the_floor_has_no_events() {
    let experiment = storm();
    let plan = plan(&experiment, Profile::Smoke, &[]);
    let mut schedule = Schedule::new(experiment.clone(), Profile::Smoke, plan.clone());
    let order = |schedule: &Schedule| match schedule.next() {
        Due::Trial(order) => order,
        other => panic!("{other:?}"),
    };
    let floor = order(&schedule);
    assert_eq!((floor.course, floor.window), (Course::default(), Duration::from_secs(1)));
    let planned: &Planned = &plan.trials[0];
    let mut row = strowger_lab::row::Row::new(
        "storm",
        strowger_lab::row::System::new(&planned.system, ""),
        floor.load,
        Profile::Smoke,
        b"",
    );
    row.repetition = planned.repetition;
    schedule.take(&row).expect("it is due");
    let first = order(&schedule);
    assert_eq!(first.course, experiment.course(Profile::Smoke, &first.planned.axes));
    assert_eq!((first.course.users, first.window), (100, Duration::from_secs(4)));
}

#[test]
fn a_server_that_runs_elsewhere_is_not_killed() {
    let text = STORM.replace("name = \"strowger\"", "name = \"there\"\ndriver = \"external\"");
    let (mut experiment, _) = Experiment::read("storm.toml", &text).unwrap_or_else(|report| panic!("{report}"));
    let named = [("there".to_owned(), Some("127.0.0.1:5060".to_owned()))];
    let systems = choose(&mut experiment, &named, &strowger_lab::host::ProcessHost::Here)
        .unwrap_or_else(|error| panic!("{error}"));
    let error = check(&plan(&experiment, Profile::Smoke, &[]), &systems).expect_err("it would be killed").to_string();
    assert!(error.contains("system there") && error.contains("an event of the experiment kills it"), "{error}");
    experiment.events.clear();
    check(&plan(&experiment, Profile::Smoke, &[]), &systems).unwrap_or_else(|error| panic!("{error}"));
}
