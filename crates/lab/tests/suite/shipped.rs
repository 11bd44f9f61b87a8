//! Experiments that are shipped: their times, and the figures that they have to show.

use std::collections::BTreeSet;
use std::time::Duration;
use strowger_lab::experiment::{Experiment, Form, PublishedRow, SHIPPED, SystemSpec, TrialPosition, plan};
use strowger_lab::formula::stress::PUBLISHED;
use strowger_lab::row::{AxisValue, Profile};

#[test]
fn all_are_right_and_within_their_times() {
    // Minutes of the profiles quick (ours alone) and standard (both systems).
    let budgets = [
        ("b2bua", 2, 27),
        ("b2bua-calls", 1, 5),
        ("caches", 5, 65),
        ("caches-entries", 1, 35),
        ("connections", 2, 25),
        ("connections-calls", 1, 6),
        ("connections-idle", 2, 28),
        ("overload", 3, 60),
        ("proxy", 6, 70),
        ("registration-storm", 2, 21),
        ("relay", 2, 16),
        ("rfc7502", 5, 30),
        ("stack", 4, 10),
        ("stress", 6, 120),
    ];
    assert_eq!(SHIPPED.iter().map(|(name, _)| *name).collect::<Vec<_>>(), budgets.map(|(name, ..)| name));
    // Ours in smoke and quick, all systems in quick and standard.
    let mut sums = [Duration::ZERO; 4];
    for (name, quick, standard) in budgets {
        let (mut experiment, _) = Experiment::shipped(name).expect("it is shipped");
        experiment.fit(2);
        assert_eq!(experiment.name, name);
        let found = plan(&experiment, Profile::Quick, &["strowger"]).time;
        assert!(found <= Duration::from_secs(quick * 60), "{name}: quick takes {found:?}");
        let found = plan(&experiment, Profile::Standard, &[]).time;
        assert!(found <= Duration::from_secs(standard * 60), "{name}: standard takes {found:?}");
        let is_ours = |spec: &&SystemSpec| !spec.is_optional && !spec.name.starts_with("kamailio");
        let ours: Vec<&str> = experiment.systems.iter().filter(is_ours).map(|spec| spec.name.as_str()).collect();
        let times = [
            plan(&experiment, Profile::Smoke, &["strowger"]).time,
            plan(&experiment, Profile::Quick, &ours).time,
            plan(&experiment, Profile::Quick, &[]).time,
            found,
        ];
        sums.iter_mut().zip(times).for_each(|(sum, time)| *sum += time);
    }
    // Two and three quarters of a minute, 32.5 minutes, an hour, seven and a half hours.
    for (sum, most) in sums.into_iter().zip([165, 1_950, 3_600, 27_000]) {
        assert!(sum <= Duration::from_secs(most), "{sums:?}");
    }
    assert!(Experiment::shipped("none").is_none());
}

#[test]
fn a_round_of_media_begins_with_its_floor() {
    let (experiment, _) = Experiment::shipped("b2bua").expect("it is shipped");
    let plan = plan(&experiment, Profile::Standard, &[]);
    let systems = |repetition: u32| {
        let own =
            plan.trials.iter().filter(|trial| trial.place == TrialPosition::Trial && trial.repetition == repetition);
        own.map(|trial| trial.system.as_str()).collect::<Vec<_>>()
    };
    // The order of the others alternates.
    assert_eq!(systems(1), ["media-floor", "strowger", "kamailio-rtpengine"]);
    assert_eq!(systems(2), ["media-floor", "kamailio-rtpengine", "strowger"]);
}

/// Checks each experiment for the figures, lines and units that it has to show.
#[test]
fn all_show_the_published_figures() {
    let names = |name: &str| -> BTreeSet<String> {
        let (experiment, _) = Experiment::shipped(name).expect("it is shipped");
        experiment.figures.iter().map(|figure| figure.name.clone()).collect()
    };
    let has = |name: &str, wanted: &[&str]| {
        let found = names(name);
        wanted.iter().for_each(|wanted| assert!(found.contains(*wanted), "{name}: {wanted} of {found:?}"));
    };
    has(
        "caches",
        &["1", "2", "3", "4", "5", "6", "7", "8", "9", "omitted throughput", "omitted response time", "table 1"],
    );
    has("caches-entries", &["entry", "figures"]);
    has("b2bua", &["cost", "delay", "maximum", "setup", "memory"]);
    has("b2bua-calls", &["cost"]);
    has("proxy", &["1", "2", "3", "8", "9", "10", "11", "12", "13", "table 1"]);
    has("stress", &["3.1-3.11", "chart", "cost"]);
    has("stack", &["abstraction cost", "over the echo", "parser", "scalability", "cost", "footprint"]);
    has(
        "connections",
        &["response over rate", "response by lifetime", "cost", "queueing", "establishing", "limit", "sustainable"],
    );
    has("connections-calls", &["response by lifetime", "cost"]);
    has("connections-idle", &["memory", "entry", "response"]);
    has("registration-storm", &["registered", "failures", "retransmissions", "delay", "cpu", "return", "storm"]);
    has("overload", &["goodput", "capacity", "overload", "in progress"]);
    has("rfc7502", &["5.1", "5.2", "5.3", "rates", "session delay", "registration delay", "re-registration delay"]);
    let (stress, _) = Experiment::shipped("stress").expect("it is shipped");
    let chart = stress.figures.iter().find(|figure| figure.name == "chart").expect("it is there");
    let points: Vec<(String, f64)> =
        chart.points.iter().map(|point| (point.x.clone().unwrap_or_default(), point.y)).collect();
    assert_eq!(points, PUBLISHED.map(|row| (row.letter.to_string(), row.scaled)));
    let table = stress.figures.iter().find(|figure| figure.name == "3.1-3.11").expect("it is there");
    let value = |row: &PublishedRow, name: &str| row.values.get(name).copied();
    for (row, published) in table.rows.iter().zip(PUBLISHED) {
        assert_eq!(row.only["letter"], AxisValue::Text(published.letter.to_string()));
        assert_eq!(value(row, "limit"), Some(published.rate));
        assert_eq!((value(row, "load"), value(row, "load.scaled")), (Some(published.load), Some(published.scaled)));
        assert_eq!(value(row, "penalty"), published.penalty.map(|(_, penalty)| penalty));
        let against = stress.axes[0].against.get(&published.letter.to_string());
        assert_eq!(against.cloned(), published.penalty.map(|(letter, _)| letter.to_string()));
    }
    assert_eq!(table.rows.len(), PUBLISHED.len());
    for letter in &stress.axes[0].values {
        assert!(stress.axes[0].titles.contains_key(&letter.to_string()), "{letter}");
        let gates = stress
            .gates
            .iter()
            .filter(|gate| gate.only.get("letter") == Some(letter) && gate.against.as_deref() == Some("kamailio"));
        assert!(gates.count() >= 1, "{letter}");
    }
    for (name, _) in SHIPPED {
        let (experiment, _) = Experiment::shipped(name).expect("it is shipped");
        // The commands of the stack make its load: they have no callers beside a server.
        let has = |form| experiment.figures.iter().any(|figure| figure.form == form);
        assert!(*name == "stack" || has(Form::Bed) && has(Form::Flow), "{name} draws its test bed and its messages");
        // Two figures of one unit at most share a vertical axis.
        for figure in experiment.figures.iter().filter(|figure| figure.form != Form::Table) {
            let units: BTreeSet<_> = figure
                .y
                .iter()
                .filter_map(|y| strowger_lab::row::definition(y))
                .map(|definition| definition.unit)
                .collect();
            assert!(units.len() <= 1, "{name} {}: {units:?}", figure.name);
        }
    }
}
