//! Experiments: their files, faults and plans.

mod document;

use self::document::{MINE, mine};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use strowger_core::Transport;
use strowger_lab::compare::FLOOR;
use strowger_lab::experiment::{
    Axes, Bound, Experiment, FinderKind, Form, Overrides, Plan, Planned, PlannedLoad, Source, TrialPosition, plan,
};
use strowger_lab::row::{AxisValue, LoadUnit, Profile};
use strowger_load::campaign::Connections;

#[test]
fn an_experiment_is_read_into_types() {
    let experiment = mine();
    assert_eq!((experiment.name.as_str(), experiment.title.as_str()), ("mine", "Two caches"));
    assert_eq!((experiment.load.unit, experiment.load.finder), (LoadUnit::Calls, FinderKind::Fixed));
    assert_eq!(experiment.load.values, [100.0, 200.0]);
    assert_eq!((experiment.call.users, experiment.call.answer.as_deref()), (500, Some("answer")));
    let figure = &experiment.figures[0];
    assert_eq!((figure.form, &figure.x, &figure.line), (Form::Lines, &Some(Source::Load), &Some(Source::System)));
    assert_eq!(figure.only.get("cache"), Some(&AxisValue::Text("local".into())));
    let gate = &experiment.gates[0];
    assert_eq!((gate.system.as_str(), gate.against.as_deref()), ("strowger", Some("kamailio")));
    assert!(gate.bound == Bound::AtMost(0.5) && gate.bound.is_met(0.5) && !gate.bound.is_met(f64::NAN));
    assert!(Bound::AtLeast(0.9).is_met(0.9) && !Bound::AtLeast(0.9).is_met(0.8));
    assert_eq!(experiment.profiles[&Profile::Quick].window, Duration::from_secs(4));
    // The profiles that the file does not name have their defaults.
    assert_eq!(experiment.profiles[&Profile::Paper].window, Duration::from_secs(600));
}

/// Checks that a value of an axis replaces the values in `[call]` and `[load]`.
#[test]
fn transport_connections_and_sessions_follow_axis_and_profile() {
    let text = MINE
        .replace("users = 500", "users = 500\ntransport = \"tcp\"")
        .replace(
            "values = [\"local\", \"redis\"]",
            "values = [\"local\", \"redis\"]\ntransport = { local = \"udp\" }\nconnections = { redis = \"per-user\" }",
        )
        .replace("repetitions = 2", "repetitions = 2\nsessions = 7");
    let (experiment, _) = Experiment::read("mine.toml", &text).unwrap_or_else(|report| panic!("{report}"));
    let axes = |value: &str| [("cache".to_owned(), AxisValue::Text(value.into()))].into();
    assert_eq!(experiment.transport(&axes("local")), Transport::Udp);
    assert_eq!(experiment.transport(&axes("redis")), Transport::Tcp);
    assert_eq!(experiment.connections(&axes("local")), Connections::One);
    assert_eq!(experiment.connections(&axes("redis")), Connections::PerUser);
    assert_eq!(experiment.profiles[&Profile::Quick].sessions, Some(7));
    assert_eq!(experiment.profiles[&Profile::Paper].sessions, None);
}

/// Makes each mistake: replaced text, new text, line of the fault, a part of the message, a part of the cure.
#[test]
fn each_mistake_is_named_with_line_and_cure() {
    for (from, to, line, message, cure) in [
        ("title = \"Two", "titel = \"Two", 1, "there is no key titel", "write title"),
        ("[call]\ndocument", "[calls]\ndocument", 3, "there is no key calls", "write call"),
        ("answer = \"answer\"", "answer = 1", 5, "no text", "write answer"),
        ("users = 500", "users = 1.5", 6, "no whole number from 0", "write users"),
        ("users = 500", "hold = \"ten\"", 6, "no length of time", "\"10s\""),
        ("users = 500", "quota = 10", 6, "no whole number from 20", "write quota = 20"),
        ("users = 500", "mixed = { call = 0.5 }", 6, "a whole number of per cent", "mixed = { name = 5 }"),
        ("users = 500", "mixed = { a = 60, b = 40 }", 6, "no calls are left", "a sum below 100"),
        ("users = 500", "mixed = { a = 5 }\nconnect_rate = 9", 7, "users of one document", "connect_rate or mixed"),
        ("users = 500", "transport = \"tpc\"", 6, "there is no transport", "write tcp"),
        ("users = 500", "connections = \"each\"", 6, "there is no connections", "one, per-user, per-call"),
        (
            "values = [\"local\", \"redis\"]",
            "values = [\"local\", \"redis\"]\ntransport = { local = \"sctp\" }",
            15,
            "transport of local has the wrong type",
            "\"tcp\"",
        ),
        ("\"calls/s\"", "\"calls/m\"", 9, "there is no unit", "calls/s"),
        ("[100, 200]", "[100, \"x\"]", 10, "no list of numbers above 0", "[100, 200]"),
        ("values = [100, 200]", "finder = \"serach\"", 10, "there is no finder", "write search"),
        ("values = [100, 200]", "finder = \"staircase\"", 8, "a staircase has no step", "step = 100"),
        ("values = [100, 200]", "finder = \"search\"\nmost = 5", 8, "not above most", "start = 10"),
        ("values = [100, 200]", "values = [100, 200]\nbefore = 0.5", 11, "a multiple of the limit", "of_limit = true"),
        ("[\"local\", \"redis\"]", "[0.5, 2]\nof_limit = true", 8, "no finder finds the limit", "finder = \"search\""),
        ("[\"local\", \"redis\"]", "[0, 2]\nof_limit = true", 15, "a number above 0", "[0.5, 1, 2]"),
        ("window = \"4s\"", "search = 1", 28, "no true or false", "search = false"),
        ("values = [100, 200]\n", "", 8, "has no values", "or a finder"),
        ("name = \"cache\"", "name = \"load\"", 13, "every row has load already", "another name"),
        ("[\"local\", \"redis\"]", "[\"local\", \"redis\", \"local\"]", 14, "stands twice", "write it once"),
        (
            "values = [\"local\", \"redis\"]",
            "values = [\"local\", \"redis\"]\nusers = { loca = 1 }",
            15,
            "no value loca",
            "write local",
        ),
        ("mine-{cache}", "mine-{cash}", 18, "names no axis", "cache"),
        ("workers = 4", "workers = \"many\"", 23, "workers is no number", "\"best\""),
        ("name = \"kamailio\"", "name = \"strowger\"", 21, "two systems strowger", "a name of its own"),
        ("name = \"kamailio\"", "name = \"floor\"", 21, "measures the floor anyway", "remove this"),
        ("skip = { cache = [\"redis\"] }", "skip = { cache = [\"rediss\"] }", 24, "no such value", "local, redis"),
        ("skip = { cache", "skip = { cahce", 24, "names no axis \"cahce\"", "write cache"),
        ("[profile.quick]", "[profile.quik]", 26, "there is no profile quik", "quick"),
        ("window = \"4s\"", "window = \"0s\"", 28, "a window has a length", "window = \"5s\""),
        ("repetitions = 2", "repetitions = 0", 29, "whole number from 1", "repetitions = 1"),
        ("repetitions = 2", "repeats = 2", 29, "there is no key repeats", "repetitions"),
        ("title = \"CPU of a call\"\n", "", 31, "has no title", "write title"),
        ("x = \"load\"", "x = \"lod\"", 34, "there is no axis \"lod\"", "write load"),
        ("y = [\"server.cpu.call\"]", "y = [\"server.cpu.cal\"]", 35, "there is no figure", "write server.cpu.call"),
        (
            "[\"server.cpu.call\"]\n",
            "[\"server.cpu.call\", \"server.cpu\"]\n",
            35,
            "several units: us, %",
            "for each unit",
        ),
        ("line = \"system\"", "line = \"load\"", 36, "there is no axis \"load\"", "write one of system, cache"),
        ("line = \"system\"", "form = \"bed\"", 34, "a drawing has no x", "remove it"),
        ("line = \"system\"", "rows = [{ limit = 1 }]", 36, "the form lines has no rows", "remove it"),
        ("line = \"system\"", "points = [{ x = 1 }]", 36, "has no y", "points = [{ x = 1600, y = 98 }]"),
        ("x = \"load\"", "form = \"table\"\nrows = [{ limt = 1 }]", 35, "there is no figure", "write limit"),
        ("title = \"Two", "answer = \"server.cpu\"\nanswers = 1\ntitle = \"Two", 2, "no key answers", "write answer"),
        (
            "[call]\ndocument",
            "[published]\nsource = \"a\"\n[call]\ndocument",
            3,
            "[published] has no machine",
            "write machine",
        ),
        (
            "values = [\"local\", \"redis\"]",
            "values = [\"local\", \"redis\"]\ntitle = { local = \"redis\" }",
            15,
            "two values are called \"redis\"",
            "a title of its own",
        ),
        (
            "values = [\"local\", \"redis\"]",
            "values = [\"local\", \"redis\"]\nagainst = { redis = \"locl\" }",
            15,
            "against of redis",
            "another value",
        ),
        ("figure = \"server.cpu.call\"\n", "", 39, "has no figure", "write figure"),
        ("against = \"kamailio\"", "against = \"kamalio\"", 41, "there is no system", "write kamailio"),
        ("at_most = 0.5", "", 39, "has no bound", "at_most = 1.2, at_least = 0.9"),
        ("at_most = 0.5", "at_most = 0.5\nat_least = 0.4", 39, "has no bound", "write one of"),
        ("against = \"kamailio\"", "adds_at_most = 20", 39, "has no bound", "write one of"),
        (
            "against = \"kamailio\"\nwhere = { cache = \"local\" }\nat_most = 0.5",
            "adds_at_most = 20",
            41,
            "compares two values",
            "against_where",
        ),
        ("at_most = 0.5", "at_most = 0.5\neach = true", 44, "the gate compares two medians", "remove it"),
        ("at_most = 0.5", "at_most = 0.5\nrepetitions = 0", 44, "whole number from 1", "repetitions = 1"),
        ("workers = 4", "optional = 1", 23, "no true or false", "optional = false"),
        ("[[gate]]", "[goal]\n\"srd.p9\" = 1\n[[gate]]", 40, "there is no figure", "write srd.p95"),
        ("[[gate]]", "[goal]\nsrd.p95 = 1\n[[gate]]", 40, "stands in quotes", "\"srd.p95\""),
        ("[[gate]]", "[gate]", 39, "a list of tables", "[[gate]]"),
        ("workers = 4", "workers = ", 23, "this is not TOML", ""),
    ] {
        let replaced = MINE.replacen(from, to, 1);
        assert_ne!(replaced, MINE, "{from}");
        let report = Experiment::read("mine.toml", &replaced).expect_err(message);
        let fits = report.faults().iter().any(|fault| {
            report.position(fault).map(|(line, _)| line) == Some(line)
                && fault.message.contains(message)
                && fault.cure.contains(cure)
        });
        assert!(fits, "line {line}: {message} ... {cure}\n{report}");
    }
}

/// Checks the limit of an axis of multiples: none without a finder, and one axis for each limit.
#[test]
fn multiples_have_one_limit() {
    let axis = "values = [\"local\", \"redis\"]";
    let of = |load: &str, axes: &str| {
        let text =
            MINE.replace("values = [100, 200]", load).replace(axis, axes).replace("skip = { cache = [\"redis\"] }", "");
        Experiment::read("mine.toml", &text.replace("cache = \"local\"", "cache = 2"))
    };
    let (experiment, _) = of("finder = \"search\"", "values = [0.5, 2]\nof_limit = true").expect("right");
    let axes = Axes::from([("cache".to_owned(), AxisValue::Number(2.0))]);
    assert_eq!((experiment.multiple(&axes), experiment.others(&axes)), (Some(2.0), Axes::new()));
    assert_eq!((mine().multiple(&axes), mine().others(&axes)), (None, axes));
    for (load, axes, message) in [
        (
            "values = [100]\nfinder = \"search\"",
            "values = [0.5, 2]\nof_limit = true",
            "the loads are those of the axis with of_limit",
        ),
        (
            "finder = \"search\"",
            "values = [0.5, 2]\nof_limit = true\n[[axis]]\nname = \"other\"\nvalues = [1, 2]\nof_limit = true",
            "two axes are multiples of the limit",
        ),
    ] {
        let report = of(load, axes).expect_err(message).to_string();
        assert!(report.contains(message), "{report}");
    }
}

#[test]
fn all_mistakes_of_a_file_are_named_at_once() {
    let text =
        MINE.replace("users = 500", "users = -1").replace("workers = 4", "workres = 4").replace("0.5", "\"half\"");
    let report = Experiment::read("mine.toml", &text).expect_err("three mistakes");
    assert_eq!(report.errors(), 3, "{report}");
    let shown = report.to_string();
    assert!(shown.starts_with("mine.toml:6:9: error: users of [call]"), "{shown}");
    let report = Experiment::read("mine.toml", "").expect_err("an empty file is no experiment");
    assert_eq!(report.errors(), 4, "{report}");
    let silent = &MINE[..MINE.find("[[figure]]").expect("it has one")];
    let (_, report) = Experiment::read("mine.toml", silent).expect("it can be run");
    assert_eq!((report.errors(), report.warnings()), (0, 1), "{report}");
}

#[test]
fn no_text_makes_the_reader_panic() {
    for end in 0..MINE.len() {
        let _ = Experiment::read("f.toml", &MINE[..end]);
        let _ = Experiment::read("f.toml", &format!("{}é{}", &MINE[..end], &MINE[end + 1..]));
    }
}

fn trials(plan: &Plan) -> Vec<&Planned> {
    plan.trials.iter().filter(|trial| trial.place == TrialPosition::Trial).collect()
}

#[test]
fn a_plan_interleaves_systems_between_two_floors() {
    let plan = plan(&mine(), Profile::Quick, &[]);
    let floors = |place| plan.trials.iter().filter(|trial| trial.place == place && trial.system == FLOOR).count();
    assert!(floors(TrialPosition::FloorAtStart) == 2 && floors(TrialPosition::FloorAtEnd) == 2);
    assert_eq!(plan.trials.first().map(|trial| trial.place), Some(TrialPosition::FloorAtStart));
    assert_eq!(plan.trials.last().map(|trial| (trial.place, trial.repetition)), Some((TrialPosition::FloorAtEnd, 4)));
    let trials = trials(&plan);
    // Two repetitions; two loads with the local cache on both systems, and with Redis on one.
    assert_eq!(trials.len(), 2 * (2 * 2 + 2));
    let order = |repetition: u32, load: f64| -> Vec<&str> {
        let local = AxisValue::Text("local".into());
        let of_cell = trials.iter().filter(|trial| {
            trial.repetition == repetition && trial.load == PlannedLoad::Fixed(load) && trial.axes["cache"] == local
        });
        of_cell.map(|trial| trial.system.as_str()).collect()
    };
    for load in [100.0, 200.0] {
        let mut first = order(1, load);
        first.reverse();
        assert_eq!(first, order(2, load), "the order alternates from repetition to repetition");
    }
    assert_ne!(order(1, 100.0), order(1, 200.0), "and from cell to cell");
    let redis: Vec<&str> =
        trials.iter().filter(|trial| trial.configuration == "mine-redis").map(|t| t.system.as_str()).collect();
    assert_eq!(redis, ["strowger"; 4]);
    // Users register once for all loads of a started system.
    let registered: u32 = trials.iter().map(|trial| trial.registers).sum();
    assert_eq!(registered, 2 * 3 * 500);
    let sum: Duration = plan.trials.iter().map(|trial| trial.time).sum();
    assert_eq!(plan.time, sum);
    // A trial: 1 s around, 1 s and 4 s; of the six started systems each 0.3 s and half a second of registrations; floors 0.1 s.
    assert_eq!(plan.time, Duration::from_millis(12 * 6_000 + 6 * 800 + 4 * 6_100));
}

#[test]
fn a_plan_is_shown_by_system_with_its_time() {
    let text = plan(&mine(), Profile::Quick, &[]).to_string();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 4, "{text}");
    // Eight trials of 6 s and four starts of 0.8 s.
    assert_eq!(lines[1], "strowger          8 trials,   0 searches,    0.9 min");
    assert!(lines[0].starts_with("floor             4 trials") && lines[3].ends_with("   1.7 min"), "{text}");
}

#[test]
fn a_plan_can_be_of_one_system_and_of_each_finder() {
    let one = plan(&mine(), Profile::Quick, &["kamailio"]);
    assert!(trials(&one).iter().all(|trial| trial.system == "kamailio") && trials(&one).len() == 4);
    let time = |finder: &str, expected: u32| {
        let load = format!("finder = \"{finder}\"\nstart = 100\nstep = 100\nexpected = {expected}");
        let (experiment, _) = Experiment::read("f.toml", &MINE.replace("values = [100, 200]", &load)).expect("right");
        let plan = plan(&experiment, Profile::Quick, &[]);
        assert!(trials(&plan).iter().all(|trial| trial.load == PlannedLoad::Search));
        plan.time
    };
    assert!(time("staircase", 2_000) > time("staircase", 1_000));
    // No step lies above the highest load.
    assert_eq!(time("staircase", 30_000), time("staircase", 20_000));
    // Most of its time the algorithm of the RFC sends 50,000 sessions at low rates.
    assert!(time("rfc7502", 1_000) > Duration::from_secs(6 * 20 * 50));
    // Larger steps climb sooner; smaller ones than those of the RFC are refused.
    assert!(time("rfc7502\"\nincrease = 0.5\n# \"", 1_000) < time("rfc7502", 1_000));
    let text = MINE.replace("values = [100, 200]", "finder = \"rfc7502\"\nincrease = 0.01");
    let said = Experiment::read("f.toml", &text).expect_err("too small").to_string();
    assert!(said.contains("a rate rises by 0.1 to 1 of itself"), "{said}");
    assert_eq!(time("search", 1_000), time("search", 2_000));
}

/// Reads lists, whose labels have texts or figures, and checks that unknown marks, figures and axes are faults.
#[test]
fn entries_of_a_list_are_read_and_their_faults_named() {
    let list = |entries: &str| {
        let text = format!("{MINE}\n[[figure]]\nname = \"form\"\ntitle = \"Form\"\nform = \"list\"\n{entries}\n");
        Experiment::read("f.toml", &text).map_err(|report| report.to_string())
    };
    let (experiment, _) = list(
        "entries = [{ label = \"Transport\", text = \"{transport}\" }, { label = \"CPU\", figure = \"server.cpu\" }]",
    )
    .unwrap_or_else(|report| panic!("{report}"));
    let figure = experiment.figures.last().expect("it is there");
    assert_eq!((figure.entries.len(), figure.y.as_slice()), (2, &["server.cpu".to_owned()][..]));
    for (entries, fault, cure) in [
        ("", "has no entries", "write entries = ["),
        ("entries = [{ label = \"a\", text = \"{transprot}\" }]", "there is no mark \"transprot\"", "write transport"),
        ("entries = [{ label = \"a\", figure = \"server.cpux\" }]", "server.cpux", "server.cpu"),
        ("entries = [{ label = \"a\" }]", "an entry has a text or a figure", "write figure = "),
        ("entries = [{ text = \"a\" }]", "an entry has no label", "write label = "),
        ("entries = [1]", "an entry is no table", "write entries = ["),
        ("entries = []\ny = [\"server.cpu\"]", "the form list has no y", "remove it"),
    ] {
        let said = list(entries).expect_err(entries);
        assert!(said.contains(fault) && said.contains(cure), "{entries}: {said}");
    }
    let other = format!("{MINE}\n[[figure]]\nname = \"a\"\ntitle = \"A\"\nform = \"bed\"\nentries = []\n");
    let said = Experiment::read("f.toml", &other).expect_err("no list").to_string();
    assert!(said.contains("a drawing has no entries"), "{said}");
}

#[test]
fn an_optional_system_is_measured_where_it_is_named() {
    let text = MINE.replace("workers = 4", "workers = 4\noptional = true");
    let (experiment, _) = Experiment::read("mine.toml", &text).expect("it is right");
    let systems = |names: &[&str]| -> BTreeSet<String> {
        let plan = plan(&experiment, Profile::Quick, names);
        trials(&plan).into_iter().map(|trial| trial.system.clone()).collect()
    };
    assert_eq!(systems(&[]), ["strowger".to_owned()].into());
    assert_eq!(systems(&["strowger", "kamailio"]), ["strowger".to_owned(), "kamailio".to_owned()].into());
}

#[test]
fn values_of_the_command_line_replace_those_of_a_profile() {
    let text = MINE
        .replace("values = [100, 200]", "values = [100, 200]\nfinder = \"search\"")
        .replace("values = [\"local\", \"redis\"]", "values = [\"local\", \"redis\"]\nload = { redis = 300 }")
        .replace("repetitions = 2", "repetitions = 2\nonly = { cache = [\"local\"] }");
    let planned = |overrides: &Overrides| {
        let (mut experiment, _) = Experiment::read("mine.toml", &text).expect("it is right");
        overrides.apply(&mut experiment, Profile::Quick).map(|()| plan(&experiment, Profile::Quick, &["strowger"]))
    };
    let loads = |plan: &Plan| trials(plan).into_iter().map(|trial| trial.load).collect::<Vec<_>>();
    let fixed = PlannedLoad::Fixed;
    let without = planned(&Overrides::default()).expect("nothing is replaced");
    assert_eq!(loads(&without), [fixed(100.0), fixed(200.0), PlannedLoad::Search, fixed(100.0), fixed(200.0)]);
    let only = |axis: &str, value: &str| BTreeMap::from([(axis.to_owned(), vec![value.to_owned()])]);
    let redis = planned(&Overrides { only: only("cache", "redis"), ..Overrides::default() }).expect("it is a value");
    assert_eq!(loads(&redis), [fixed(300.0), PlannedLoad::Search, fixed(300.0)]);
    assert!(trials(&redis).iter().all(|trial| trial.configuration == "mine-redis"));
    let all = Overrides {
        only: only("cache", "redis"),
        loads: vec![50.0],
        window: Some(Duration::from_secs(10)),
        repetitions: Some(3),
    };
    let plan = planned(&all).expect("they are right");
    assert_eq!(loads(&plan), [fixed(50.0); 3]);
    // A start of 300 ms and 500 registrations; 1 s around, 1 s of warm-up, and the window.
    assert!(trials(&plan).iter().all(|trial| trial.time == Duration::from_millis(300 + 500 + 1_000 + 1_000 + 10_000)));
    assert_eq!(all.to_string(), "--only cache=redis --load 50 --window 10s --repetitions 3");
    let written = serde_json::to_string(&all).expect("it can be written");
    assert_eq!(serde_json::from_str::<Overrides>(&written).ok(), Some(all));
    for (axis, value, sentence) in [
        ("cahce", "redis", "the experiment has no axis \"cahce\": write cache"),
        ("cache", "rediss", "the axis cache has no value \"rediss\": its values are local, redis"),
    ] {
        let refused = planned(&Overrides { only: only(axis, value), ..Overrides::default() });
        assert_eq!(refused.expect_err("there is none"), sentence);
    }
}

/// Checks the load of the floor. The floor is compared with cells of its own load, and so has the load of an experiment
/// with a single one.
#[test]
fn the_floor_has_the_load_of_the_cells_or_1000() {
    let load = |values: &str, unit: &str| {
        let text = MINE.replace("[100, 200]", values).replace("calls/s", unit);
        let (experiment, _) = Experiment::read("mine.toml", &text).expect("it is right");
        plan(&experiment, Profile::Quick, &[]).trials[0].load
    };
    assert_eq!(load("[2500]", "calls/s"), PlannedLoad::Fixed(2_500.0));
    for (values, unit) in [("[200]", "calls/s"), ("[2500, 5000]", "calls/s"), ("[2500]", "registrations/s")] {
        assert_eq!(load(values, unit), PlannedLoad::Fixed(1_000.0), "{values} {unit}");
    }
}

#[test]
fn configurations_and_the_time_to_connect_follow_the_axes() {
    let (idle, _) = Experiment::shipped("connections-idle").expect("it is shipped");
    let plan = plan(&idle, Profile::Standard, &["strowger"]);
    let text = |trial: &Planned, axis: &str| trial.axes[axis].to_string();
    assert_eq!(trials(&plan).len(), 40);
    for trial in trials(&plan) {
        let configuration = if text(trial, "transport") == "tls" { "connections-tls" } else { "connections" };
        assert_eq!(trial.configuration, configuration);
        // 1 s around, 300 ms to start, and 5 s of window; registrations are made at 1,000/s. At 2,000/s the users connect in turn.
        let users = idle.users(&trial.axes);
        let rest = trial.time - Duration::from_millis(6_300) - Duration::from_millis(users.into());
        assert_eq!(rest, Duration::from_millis(u64::from(users) / 2).max(Duration::from_secs(1)), "{users}");
    }
    let (lifetimes, _) = Experiment::shipped("connections").expect("it is shipped");
    let at = |lifetime: &str| Axes::from([("lifetime".to_owned(), AxisValue::Text(lifetime.into()))]);
    let connecting = |lifetime| lifetimes.connecting(&at(lifetime), 500.0);
    assert_eq!((connecting("tls-persistent"), connecting("udp")), (Duration::from_secs(2), Duration::ZERO));
    assert_eq!(connecting("tcp-transaction"), Duration::ZERO);
    let mut held = lifetimes.clone();
    held.call.connect_rate = Some(4_000);
    assert_eq!(held.connecting(&at("tcp-persistent"), 500.0), Duration::ZERO);
    let rates = ["tcp-persistent", "tcp-transaction", "udp"].map(|lifetime| held.connect_rate(&at(lifetime)));
    assert_eq!(rates, [Some(4_000.0), None, None]);
    let establishes = |lifetime| lifetimes.establishes(&at(lifetime));
    assert!(establishes("tcp-transaction") && !establishes("tcp-persistent") && !establishes("udp"));
}

#[test]
fn a_system_has_steps_and_a_limit_of_its_own() {
    let of = |system: &str| {
        let load = "finder = \"staircase\"\nstart = 100\nstep = 100\nexpected = 1000";
        let name = "name = \"strowger\"\n";
        let text = MINE.replace("values = [100, 200]", load).replacen(name, &format!("{name}{system}\n"), 1);
        Experiment::read("f.toml", &text).map(|(experiment, _)| experiment)
    };
    let experiment = of("step = 400\nexpected = 4000").expect("right");
    let loads = ["strowger", "kamailio"].map(|name| experiment.load_of(name));
    assert_eq!(
        loads.each_ref().map(|load| (load.start, load.step, load.expected)),
        [(100.0, 400.0, 4_000.0), (100.0, 100.0, 1_000.0)]
    );
    let time = |experiment: &Experiment, name| plan(experiment, Profile::Quick, &[name]).time;
    let plain = of("").expect("right");
    assert_eq!(time(&experiment, "kamailio"), time(&plain, "kamailio"));
    // Ten steps and two beyond, or nine and three.
    assert_eq!(time(&experiment, "strowger"), time(&plain, "strowger"));
    assert!(time(&of("expected = 4000").expect("right"), "strowger") > time(&plain, "strowger"));
    // Trials that choose the number of workers; nothing is judged in the profile smoke.
    let best = of("workers = \"best\"").expect("right");
    assert!(time(&best, "strowger") > time(&plain, "strowger"));
    let smoke = |experiment: &Experiment| plan(experiment, Profile::Smoke, &["strowger"]).time;
    assert_eq!(smoke(&best), smoke(&plain));
    let fault = of("step = 0").expect_err("it never rises").to_string();
    assert!(fault.contains("step is 0") && fault.contains("write step = 200, or remove it"), "{fault}");
}

#[test]
fn a_search_beside_fixed_loads_is_made_once() {
    let text = MINE.replace("values = [100, 200]", "values = [100, 200]\nfinder = \"search\"");
    let searches = |text: &str| {
        let (experiment, _) = Experiment::read("f.toml", text).expect("right");
        let plan = plan(&experiment, Profile::Quick, &["strowger"]);
        let searches = trials(&plan).iter().filter(|trial| trial.load == PlannedLoad::Search).count();
        (searches, trials(&plan).len())
    };
    // Two values of the axis; two repetitions of two loads each.
    assert_eq!(searches(&text), (2, 2 * 2 * 2 + 2));
    assert_eq!(searches(&text.replace("repetitions = 2", "repetitions = 2\nsearch = false")), (0, 8));
}

/// Checks that a value that needs more cores than the machine has is left out: two cores are too few for 16 threads.
#[test]
fn values_beyond_the_cores_are_left_out_of_plans() {
    let text = MINE
        .replace("[\"local\", \"redis\"]", "[1, 8, 16, \"all\"]\nper_core = 4")
        .replace("skip = { cache = [\"redis\"] }", "");
    let text = text
        .replace("cache = \"local\"", "cache = 1")
        .replace("repetitions = 2", "repetitions = 1\nonly = { cache = [16, 1] }");
    let (mut experiment, _) = Experiment::read("f.toml", &text).unwrap_or_else(|report| panic!("{report}"));
    let values = |experiment: &Experiment, profile| -> Vec<String> {
        let plan = plan(experiment, profile, &["strowger"]);
        let mut values: Vec<String> = trials(&plan).iter().map(|trial| trial.axes["cache"].to_string()).collect();
        values.dedup();
        values
    };
    assert_eq!(values(&experiment, Profile::Quick), ["16", "1"]);
    experiment.fit(2);
    assert_eq!(values(&experiment, Profile::Quick), ["1"]);
    assert_eq!(values(&experiment, Profile::Smoke), ["1", "8", "all"]);
    // The values themselves stay: a run of a larger machine is shown whole.
    assert_eq!(experiment.axes[0].values.len(), 4);
}
