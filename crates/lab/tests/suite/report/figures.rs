//! Figures of the shipped experiments, held against the table of what each has to show.

use super::recorded::{cpu_of_call, rows, with_report};
use std::collections::BTreeMap;
use strowger_lab::experiment::{Experiment, PlannedLoad, SHIPPED, plan};
use strowger_lab::report::{Content, Shape, expected, missing};
use strowger_lab::row::{Check, Profile, Reason, Row, Validity};

fn shapes(name: &str, profile: Profile, systems: &[&str]) -> BTreeMap<String, Content> {
    let (experiment, _) = Experiment::shipped(name).expect("it is shipped");
    let rows = rows(&experiment, profile, systems);
    of_rows(&experiment, &rows)
}

fn of_rows(experiment: &Experiment, rows: &[Row]) -> BTreeMap<String, Content> {
    with_report(experiment, rows, |report| {
        report.shapes().into_iter().map(|shape| (shape.figure, shape.content)).collect()
    })
}

/// Asserts unit, number of series, and points of each.
#[track_caller]
fn assert_series(shapes: &BTreeMap<String, Content>, figure: &str, unit: &str, series: usize, points: usize) {
    let Content::Series { unit: found, points: lines } = &shapes[figure] else {
        panic!("figure {figure}: {:?}", shapes[figure])
    };
    assert_eq!((found.as_str(), lines.len()), (unit, series), "figure {figure}: {lines:?}");
    assert!(lines.values().all(|found| *found == points), "figure {figure}: {lines:?}");
}

#[track_caller]
fn assert_table(shapes: &BTreeMap<String, Content>, figure: &str, lines: usize, has: &[&str]) {
    let Content::Table { columns, lines: found } = &shapes[figure] else { panic!("{figure}: {:?}", shapes[figure]) };
    assert_eq!(*found, lines, "table {figure}");
    has.iter()
        .for_each(|column| assert!(columns.iter().any(|found| found == column), "{figure}: {column} of {columns:?}"));
}

#[test]
fn the_cache_study_is_whole() {
    let caches = shapes("caches", Profile::Paper, &["strowger"]);
    // Seven caches over ten loads.
    for (figure, unit) in [
        ("2", "%"),
        ("3", "%"),
        ("4", "B/s"),
        ("5", "B/s"),
        ("6", "us"),
        ("7", "us"),
        ("8", "%"),
        ("9", "%"),
        ("omitted throughput", "B/s"),
        ("omitted response time", "us"),
    ] {
        assert_series(&caches, figure, unit, 7, 10);
    }
    assert_eq!(caches["1"], Content::Drawing);
    assert_table(&caches, "table 1", 5 + 1 + 1 + 1 + 3, &["this run"]);
    assert_table(
        &caches,
        "cost",
        2 * 2 * 7 * 10,
        &["operation", "clients", "cache", "system", "load", "cache.cpu.operation"],
    );
    assert_series(&shapes("caches", Profile::Paper, &["strowger", "strowger-pair"]), "pair", "us", 2 * 2 * 3, 10);
    // Kamailio has four of the caches.
    assert_series(&shapes("caches", Profile::Paper, &["strowger", "kamailio"]), "6", "us", 7 + 4, 10);
}

#[test]
fn the_proxy_methodology_is_whole() {
    let proxy = shapes("proxy", Profile::Standard, &["strowger", "kamailio"]);
    for figure in ["1", "2", "3"] {
        assert_eq!(proxy[figure], Content::Drawing, "{figure}");
    }
    for (figure, unit, series) in
        [("8", "%", 4), ("9", "%", 4), ("10", "us", 4), ("11", "us", 4), ("12", "%", 8), ("13", "%", 8)]
    {
        let Content::Series { unit: found, points } = &proxy[figure] else { panic!("{figure}") };
        assert_eq!((found.as_str(), points.len()), (unit, series), "{figure}: {points:?}");
        // Strowger reaches the highest load by steps of 400; Kamailio carries 2,000 calls/s, and two steps lie beyond.
        for (name, count) in points {
            assert_eq!(*count, if name.starts_with("kamailio") { 7 } else { 20 }, "{figure}: {name}");
        }
    }
    // Two systems with 4 and 16 workers, and the published line.
    assert_table(
        &proxy,
        "table 1",
        5,
        &["workers", "system", "CPU utilization", "RRD and SRD", "IRA and ISA", "limit", "cause"],
    );
}

#[test]
fn the_stress_tests_are_whole() {
    let all = ["strowger", "kamailio-32", "kamailio"];
    let stress = shapes("stress", Profile::Standard, &all);
    assert_series(&stress, "chart", "%", 3, 12);
    assert_series(&stress, "cost", "us", 6, 12);
    let columns = ["letter", "system", "limit", "load", "load.scaled", "penalty", "cause of the limit"];
    assert_table(&stress, "3.1-3.11", 3 * 12 + 11, &columns);
}

#[test]
fn the_relay_is_whole() {
    let relay = shapes("relay", Profile::Standard, &["strowger", "kamailio"]);
    assert_series(&relay, "cost", "us", 2, 3);
    assert_series(&relay, "memory", "B", 2, 3);
    assert_table(&relay, "figures", 6, &["scenario", "system", "server.cpu.call", "srd.p99"]);
}

#[test]
fn connections_and_rates_are_whole() {
    let servers = ["strowger", "kamailio"];
    let lifetimes = shapes("connections", Profile::Standard, &servers);
    // Two systems at three rates each, by UDP, and by TCP and TLS with both lifetimes.
    for figure in ["response by lifetime", "cost", "queueing"] {
        assert_series(&lifetimes, figure, "us", 6, 5);
    }
    // A figure of limits.
    assert_series(&lifetimes, "establishing", "1/s", 2, 5);
    assert_series(&lifetimes, "limit", "1/s", 2, 5);
    let columns = ["lifetime", "system", "limit", "limit.low", "limit.high", "server.wait"];
    assert_table(&lifetimes, "sustainable", 30, &columns);
    // Median and 99th percentile of each lifetime over the rate.
    assert_series(&shapes("connections", Profile::Standard, &["strowger"]), "response over rate", "us", 10, 3);
    assert_series(&shapes("connections", Profile::Standard, &["echo"]), "response over rate", "us", 6, 3);
    // The rate of the abstract is in each profile that judges.
    for profile in [Profile::Quick, Profile::Standard, Profile::Paper] {
        let (experiment, _) = Experiment::shipped("connections").expect("it is shipped");
        let loads = plan(&experiment, profile, &["strowger"]).trials.into_iter().map(|trial| trial.load);
        assert!(loads.into_iter().any(|load| load == PlannedLoad::Fixed(2_500.0)), "{profile}");
    }
    let calls = shapes("connections-calls", Profile::Standard, &servers);
    assert_series(&calls, "response by lifetime", "us", 4, 2);
    assert_series(&calls, "cost", "us", 2, 2);
    assert_table(&calls, "figures", 4, &["lifetime", "system", "response.p50", "server.wait.call"]);
    // Echo by TCP, both registrars by TCP and TLS, over five numbers of connections up to 15,000.
    let idle = shapes("connections-idle", Profile::Standard, &["echo", "strowger", "kamailio"]);
    assert_series(&idle, "memory", "B", 5, 5);
    assert_series(&idle, "entry", "B", 5, 5);
    assert_series(&idle, "response", "us", 10, 5);
    assert_table(&idle, "figures", 25, &["connections", "transport", "system", "server.entry", "rrd.p99"]);
    let rates = shapes("rfc7502", Profile::Standard, &["strowger", "kamailio"]);
    assert_series(&rates, "rates", "1/s", 2, 3);
    for figure in ["session delay", "registration delay", "re-registration delay"] {
        assert_series(&rates, figure, "us", 4, 2);
    }
    assert_table(&rates, "benchmarks", 6, &["test", "system", "limit", "srd.mean", "rrd.mean"]);
    // The form of RFC 7502 section 5: labels, and a column for each device under test.
    for (part, lines) in [("5.1", 14), ("5.2", 2), ("5.3", 3)] {
        assert_table(&rates, part, lines, &["", "strowger", "kamailio"]);
    }
}

#[test]
fn the_registration_storm_is_whole() {
    let storm = shapes("registration-storm", Profile::Standard, &["strowger", "kamailio"]);
    // Two systems and three kinds of phones over 30 seconds; in five of them no server answers.
    assert_series(&storm, "registered", "1", 6, 30);
    assert_series(&storm, "failures", "1", 12, 30);
    assert_series(&storm, "retransmissions", "1", 6, 30);
    assert_series(&storm, "delay", "us", 12, 25);
    assert_series(&storm, "cpu", "%", 6, 30);
    assert_series(&storm, "return", "s", 4, 3);
    let columns = ["phones", "system", "registered.after", "failed", "timeouts", "retransmissions", "rrd.p99"];
    assert_table(&storm, "storm", 6, &columns);
}

#[test]
fn the_overload_is_whole() {
    let overload = shapes("overload", Profile::Standard, &["strowger", "kamailio"]);
    let Content::Series { unit, points } = &overload["goodput"] else { panic!("{:?}", overload["goodput"]) };
    assert_eq!(unit, "%");
    // Two systems by four transports, over five multiples of the capacity.
    let shares: Vec<usize> =
        points.iter().filter(|(name, _)| name.ends_with("goodput.share")).map(|(_, count)| *count).collect();
    assert_eq!(shares, [5; 8], "{points:?}");
    assert_table(&overload, "capacity", 8, &["transport", "system", "limit", "limit.high"]);
    // Multiples, and the trial that confirmed each capacity.
    let columns = ["transport", "n", "system", "failed.warm_up", "recovery", "server.pss"];
    assert_table(&overload, "in progress", 8 * (5 + 1), &columns);
    assert_table(&overload, "overload", 8 * (5 + 1), &["n", "goodput.ratio", "refusal.cost", "refused.share"]);
}

/// Checks that a point over time is the median of the trials at the end of its second, and that a missing point is
/// named.
#[test]
fn values_over_time_are_medians_of_each_second() {
    let (experiment, _) = Experiment::shipped("registration-storm").expect("it is shipped");
    let mut rows = rows(&experiment, Profile::Standard, &["strowger"]);
    let (json, csv) = with_report(&experiment, &rows, |report| (report.json(), report.csv()));
    let json: serde_json::Value = serde_json::from_str(&json).expect("it is JSON");
    let registered = &json["parts"][0]["data"];
    assert_eq!(
        (registered["x"]["unit"].as_str(), registered["series"][0]["name"].as_str()),
        (Some("s"), Some("UDP, refused"))
    );
    let point = &registered["series"][0]["points"][6];
    // The seventh second is 7; four repetitions differ by 1 % each.
    for (found, wanted) in
        [(&point["x"], 7.0), (&point["y"], 7.105), (&point["interval"][0], 7.0), (&point["interval"][1], 7.21)]
    {
        assert!(found.as_f64().is_some_and(|found| (found - wanted).abs() < 1e-9), "{found} is not {wanted}");
    }
    assert!(csv.lines().next().is_some_and(|line| line.ends_with("figure,value,unit,time")), "{csv}");
    let seconds =
        csv.lines().filter(|line| line.contains(",strowger,") && line.contains(",1,true,,registered,")).count();
    assert_eq!(seconds, 3 * (30 + 1), "of each kind of phones 30 seconds and the figure");
    assert!(csv.lines().any(|line| line.ends_with(",registered,7,1,7")), "{csv}");
    let of = |rows: &[Row]| with_report(&experiment, rows, |report| report.shapes());
    let wanted = of(&rows);
    let cut: Vec<_> = (1..=20).map(|second| Some(f64::from(second))).collect();
    for row in rows.iter_mut().filter(|row| row.axes.get("phones").is_some_and(|value| value.to_string() == "tcp")) {
        row.series.set("registered", cut.clone()).expect("a figure over time");
    }
    assert_eq!(missing(&of(&rows), &wanted), ["figure registered: 10 of 30 points of TCP, reset"]);
}

#[test]
fn the_stack_is_whole() {
    let stack = shapes("stack", Profile::Standard, &[]);
    // One thread a side: rates of three works and of their echo. By TCP the one thread calls itself.
    let Content::Series { unit, points } = &stack["abstraction cost"] else {
        panic!("{:?}", stack["abstraction cost"])
    };
    let counts: Vec<usize> = points.values().copied().collect();
    assert_eq!((unit.as_str(), counts.iter().sum::<usize>()), ("1/s", 3 + 3 + 1), "{points:?}");
    assert_series(&stack, "over the echo", "%", 1, 3);
    assert_series(&stack, "parser", "1/s", 2, 1);
    let Content::Series { unit, points } = &stack["scalability"] else { panic!("{:?}", stack["scalability"]) };
    let counts: Vec<usize> = points.values().copied().collect();
    assert_eq!((unit.as_str(), counts.as_slice()), ("1/s", &[1, 7][..]), "{points:?}");
    assert_table(
        &stack,
        "cost",
        3 + 7 + 1,
        &["work", "threads", "system", "rate.achieved", "server.cpu.call", "echo.ratio"],
    );
    assert_table(&stack, "footprint", 1, &["program.size", "transaction.bytes", "dialog.bytes"]);
    let (experiment, _) = Experiment::shipped("stack").expect("it is shipped");
    let scalability = experiment.figures.iter().find(|figure| figure.name == "scalability").expect("it has one");
    let published: Vec<_> = scalability.points.iter().map(|point| (point.x.as_deref(), point.y)).collect();
    assert_eq!(published, [(Some("1"), 592.0), (Some("2"), 1_064.0), (Some("4"), 1_443.0)]);
}

/// Checks that a report has everything that its plan promises, and that a missing part is reported.
#[test]
fn each_profile_of_each_experiment_shows_what_its_plan_promises() {
    for (name, _) in SHIPPED {
        let (experiment, _) = Experiment::shipped(name).expect("it is shipped");
        for profile in [Profile::Smoke, Profile::Quick, Profile::Standard] {
            for systems in [&["strowger"][..], &[]] {
                let plan = plan(&experiment, profile, systems);
                let promised = expected(&experiment, profile, &plan);
                let of = |rows: &[Row]| with_report(&experiment, rows, |report| report.shapes());
                let (wanted, found) = (of(&promised), of(&rows(&experiment, profile, systems)));
                assert_eq!(missing(&found, &wanted), Vec::<String>::new(), "{name} {profile}");
                // At least one figure has data.
                assert!(wanted.iter().any(|shape| matches!(shape.content, Content::Series { .. })), "{name} {profile}");
            }
        }
    }
}

/// Shows the same system in another version, as `--system NAME=PATH` adds it.
#[test]
fn a_system_of_the_command_line_is_shown_too() {
    let (experiment, _) = Experiment::shipped("relay").expect("it is shipped");
    let mut all = rows(&experiment, Profile::Quick, &["strowger"]);
    let mut other: Vec<Row> = all.iter().filter(|row| row.system.name == "strowger").cloned().collect();
    other.iter_mut().for_each(|row| row.system.name = "before".into());
    all.splice(0..0, other);
    let relay = of_rows(&experiment, &all);
    assert_series(&relay, "cost", "us", 2, 3);
    with_report(&experiment, &all, |report| {
        let sentence = &report.answer().sentence;
        assert!(sentence.contains("before 61 µs to 73 µs, of which strowger has 1.00;"), "{sentence}");
    });
}

/// Checks that a limit is shown only once beside several fixed loads, because it belongs to none of them.
#[test]
fn limits_are_shown_once() {
    let text = "title = \"t\"\n[call]\ndocument = \"call\"\n[load]\nvalues = [100, 200]\nfinder = \"search\"\n[[system]]\n\
        name = \"strowger\"\nconfiguration = \"c\"\n[[figure]]\nname = \"table\"\ntitle = \"t\"\nform = \"table\"\ny = [\"limit\"]\n\
        [[figure]]\nname = \"bars\"\ntitle = \"t\"\nform = \"bars\"\nx = \"system\"\ny = [\"limit\"]\n[[figure]]\n\
        name = \"both\"\ntitle = \"t\"\nform = \"table\"\ny = [\"limit\", \"srd.p95\"]\n";
    let (experiment, _) = Experiment::read("t.toml", text).expect("it is right");
    let shapes = of_rows(&experiment, &rows(&experiment, Profile::Quick, &[]));
    assert_table(&shapes, "table", 1, &["system", "limit"]);
    assert_series(&shapes, "bars", "1/s", 1, 1);
    assert_table(&shapes, "both", 2, &["load", "limit", "srd.p95"]);
}

#[test]
fn what_is_missing_is_named() {
    let (experiment, _) = Experiment::shipped("relay").expect("it is shipped");
    let all = rows(&experiment, Profile::Quick, &[]);
    let of = |rows: &[Row]| with_report(&experiment, rows, |report| report.shapes());
    let wanted = of(&all);
    let without = |keep: &dyn Fn(&Row) -> bool| -> Vec<Row> { all.iter().filter(|row| keep(row)).cloned().collect() };
    let register = |row: &Row| row.axes.get("scenario").is_none_or(|value| value.to_string() != "register");
    let found = missing(&of(&without(&register)), &wanted);
    assert!(found.contains(&"figure cost: 1 of 3 points of strowger".to_owned()), "{found:?}");
    assert!(found.contains(&"table figures: 2 of 6 lines".to_owned()), "{found:?}");
    let found = missing(&of(&without(&|row| row.system.name != "kamailio")), &wanted);
    assert!(found.contains(&"figure memory: 3 of 3 points of kamailio".to_owned()), "{found:?}");
    let other = Shape { figure: "memory".into(), content: Content::Empty };
    let empty = missing(&[other], &wanted);
    assert!(empty.contains(&"figure memory: no data".into()) && empty.contains(&"figure cost".into()), "{empty:?}");
}

/// Checks value, interval, scaled load and penalty of the stress tests, as their table has them.
#[test]
fn values_are_medians_and_penalties_are_against_the_named_row() {
    let (experiment, _) = Experiment::shipped("stress").expect("it is shipped");
    let rows = rows(&experiment, Profile::Standard, &["strowger"]);
    with_report(&experiment, &rows, |report| {
        let json: serde_json::Value = serde_json::from_str(&report.json()).expect("it is JSON");
        let part = |name: &str| {
            let mut parts = json["parts"].as_array().expect("it has parts").iter();
            parts.find(|part| part["name"] == name).expect("it is there")["data"].clone()
        };
        let cost = part("cost");
        let point = &cost["series"][0]["points"][1];
        // B is the second value: 10 % above A; the median of three repetitions is 1 % above the first.
        let median = cpu_of_call("strowger") * 1.1 * 1.01;
        let near = |value: &serde_json::Value, wanted: f64| {
            let value = value.as_f64().expect("a number");
            assert!((value - wanted).abs() < 1e-6, "{value} is not {wanted}");
        };
        near(&point["y"], median);
        near(&point["interval"][0], median / 1.01);
        near(&point["interval"][1], median / 1.01 * 1.02);
        // At the limit of 10,000 calls/s: 60 us a call on two cores are 30 %, scaled to 13,000 calls/s 39 %.
        let chart = part("chart");
        near(&chart["series"][0]["points"][0]["y"], 39.0);
        assert_eq!(chart["published"][0]["points"].as_array().map(Vec::len), Some(11));
        let label = chart["published"][0]["name"].as_str().expect("a name");
        assert!(
            label.starts_with("OpenSIPS 1.6.4 (i7-920 at 2.67 GHz") && label.contains("erratum: the tests"),
            "{label}"
        );
        let table = part("3.1-3.11");
        let line = |start: &str| -> Vec<String> {
            let mut lines = table["rows"].as_array().expect("lines").iter();
            let line = lines
                .find(|line| line[0].as_str().is_some_and(|name| name.starts_with(start)) && line[1] == "strowger");
            line.expect("it is there")
                .as_array()
                .expect("cells")
                .iter()
                .map(|cell| cell.as_str().unwrap_or("").into())
                .collect()
        };
        // E (1.4 of A's cost) against C (1.2): 16.67 %.
        assert_eq!(line("E: ")[5], "16.67 %", "{:?}", line("E: "));
        assert_eq!(line("A: ")[5], "", "A is against nothing");
        assert_eq!(line("A: ")[8], "server, thread shard-0");
        // The published line of a letter follows the measured one.
        let systems: Vec<_> =
            table["rows"].as_array().expect("lines").iter().map(|line| line[1].as_str()).take(3).collect();
        assert_eq!(systems, [Some("strowger"), Some("OpenSIPS 1.6.4, published"), Some("strowger")]);
    });
}

#[test]
fn trials_that_are_not_valid_count_only_where_none_is() {
    let (experiment, _) = Experiment::shipped("relay").expect("it is shipped");
    let mut rows = rows(&experiment, Profile::Quick, &["strowger"]);
    let spoil = |row: &mut Row| {
        row.validity = Validity::of(vec![Reason { check: Check::Stolen, sentence: "7 % were stolen".into() }]);
        row.figures.set("server.cpu.call", 9_999.0).expect("a known figure");
    };
    let scenario = |row: &Row, name: &str| row.axes.get("scenario").is_some_and(|value| value.to_string() == name);
    // An invalid trial that was made again, and a cell that never became valid.
    let mut again = rows.iter().find(|row| scenario(row, "relay")).expect("it is there").clone();
    spoil(&mut again);
    rows.push(again);
    rows.iter_mut().filter(|row| scenario(row, "register")).for_each(spoil);
    with_report(&experiment, &rows, |report| {
        let json: serde_json::Value = serde_json::from_str(&report.json()).expect("it is JSON");
        let points = json["parts"][0]["data"]["series"][0]["points"].clone();
        assert!(points[0]["y"].as_f64().is_some_and(|y| y < 70.0) && points[0]["is_invalid"].is_null(), "{points}");
        assert_eq!((points[2]["y"].as_f64(), points[2]["is_invalid"].as_bool()), (Some(9_999.0), Some(true)));
        assert!(
            report.answer().sentence.contains("1 of 3 cells without a valid trial"),
            "{}",
            report.answer().sentence
        );
    });
}
