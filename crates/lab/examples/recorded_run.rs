//! Writes the folder of a run of an imaginary server.
//!
//! Each figure of each row is a function of system, axes, load and repetition, so that tests know each value of a report.
//! `cargo run -p strowger-lab --example recorded_run -- DIR relay standard` writes a folder, of which `strowger lab report DIR` makes a page.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use strowger_lab::compare::FLOOR;
use strowger_lab::experiment::{
    Action, Experiment, FinderKind, Overrides, Plan, Planned, PlannedLoad, TrialEvent, plan,
};
use strowger_lab::finder::{Finding, Method, Part};
use strowger_lab::report::{Material, Report};
use strowger_lab::row::{DEFINITIONS, Digest, FoundLimit, Load, Profile, Row, System, may_lack};
use strowger_lab::run::{Description, Folder, Machine, SystemUsed};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, name, profile] = arguments.as_slice() else { return Err("arguments: DIR EXPERIMENT PROFILE".into()) };
    let (experiment, text) = Experiment::shipped(name).ok_or("there is no such experiment")?;
    let rows = rows(&experiment, Profile::read(profile)?, &[]);
    write(Path::new(folder), &experiment, text, &rows)?;
    println!("{}", with_report(&experiment, &rows, |report| report.answer().sentence.clone()));
    Ok(())
}

/// Writes the folder of a run with these rows.
///
/// # Errors
/// The folder exists, or cannot be written.
pub(crate) fn write(folder: &Path, experiment: &Experiment, text: &str, rows: &[Row]) -> Result<(), Box<dyn Error>> {
    let profile = rows.first().map_or(Profile::Quick, |row| row.profile);
    let description = description(experiment, profile, rows);
    let mut run = Folder::create(folder, &description, text)?;
    for row in rows {
        std::fs::write(run.next_trial()?.join("samples.log"), row.to_line())?;
        run.append(row)?;
    }
    for system in &description.systems {
        run.keep_configuration(&system.name, "example", b"[server] # <first>\n")?;
    }
    run.finish()?;
    Ok(())
}

/// Figures that a report computes.
const COMPUTED: [&str; 7] =
    ["load", "load.scaled", "penalty", "goodput.share", "goodput.ideal", "goodput.ratio", "refusal.cost"];

/// Returns the CPU time of the server for a call, in microseconds, before the axes change it.
pub(crate) fn cpu_of_call(system: &str) -> f64 {
    match system {
        FLOOR => 50.0,
        "kamailio" => 300.0,
        "kamailio-32" => 330.0,
        _ => 60.0,
    }
}

/// Returns the limit of a system in calls a second.
pub(crate) fn limit(system: &str) -> f64 {
    600_000.0 / cpu_of_call(system)
}

/// Makes the rows of a run in the order of its plan.
pub(crate) fn rows(experiment: &Experiment, profile: Profile, systems: &[&str]) -> Vec<Row> {
    let plan: Plan = plan(experiment, profile, systems);
    plan.trials.iter().flat_map(|trial| of_trial(experiment, profile, trial)).collect()
}

fn of_trial(experiment: &Experiment, profile: Profile, trial: &Planned) -> Vec<Row> {
    match trial.load {
        PlannedLoad::Fixed(load) => vec![row(experiment, profile, trial, load)],
        PlannedLoad::Multiple(multiple) => {
            vec![row(experiment, profile, trial, (multiple * limit(&trial.system)).round())]
        }
        PlannedLoad::Search => search(experiment, profile, trial),
    }
}

/// Returns the rows of a search besides its end: the steps of a staircase to two steps beyond the limit, two rates of
/// RFC 7502, or none.
fn search(experiment: &Experiment, profile: Profile, trial: &Planned) -> Vec<Row> {
    let limit = limit(&trial.system);
    let mut rows = Vec::new();
    let of = experiment.load_of(&trial.system);
    match of.finder {
        FinderKind::Staircase => {
            let mut load = of.start;
            while load <= (limit + 2.0 * of.step).min(of.most) {
                rows.push(row(experiment, profile, trial, load));
                load += of.step;
            }
        }
        FinderKind::Rfc7502 => rows.extend([1.0, 2.0].map(|times| row(experiment, profile, trial, times * of.start))),
        FinderKind::Fixed | FinderKind::Search => {}
    }
    let mut last = row(experiment, profile, trial, limit);
    last.load.value = 0.0;
    set(&mut last, &[("limit", limit), ("limit.low", limit), ("limit.high", limit * 1.05)]);
    last.limit = Some(FoundLimit {
        method: match of.finder {
            FinderKind::Staircase => Method::Staircase,
            FinderKind::Rfc7502 => Method::Rfc7502,
            FinderKind::Fixed | FinderKind::Search => Method::Search,
        },
        finding: Finding::Found,
        part: Part::Server,
        thread: Some("shard-0".into()),
        sign: "its thread shard-0 used 98 % of a core".into(),
        missed: Some("srd.p95".into()),
        trials: 20,
        marked: false,
    });
    rows.push(last);
    rows
}

fn row(experiment: &Experiment, profile: Profile, trial: &Planned, load: f64) -> Row {
    let offered = Load { value: load, unit: experiment.load.unit };
    let version = if trial.system == FLOOR { "" } else { "1.0" };
    let configuration = trial.configuration.as_bytes();
    let mut row = Row::new(&experiment.name, System::new(&trial.system, version), offered, profile, configuration);
    row.axes = trial.axes.clone();
    row.repetition = trial.repetition;
    // Later values of an axis cost more; repetitions differ by 1 %.
    let place = |axis: &strowger_lab::experiment::Axis| {
        let value = trial.axes.get(&axis.name)?;
        axis.values.iter().position(|known| known == value)
    };
    let places: usize = experiment.axes.iter().filter_map(place).sum();
    let noise = 1.0 + 0.01 * (f64::from(trial.repetition) - 1.0);
    let cost = cpu_of_call(&trial.system) * (1.0 + 0.1 * places as f64) * noise;
    let used = (cost * load / 1e6 / 2.0 * 100.0).min(100.0);
    let failed = if load > limit(&trial.system) { 5.0 } else { 0.0 };
    let delay = if failed > 0.0 { 400_000.0 } else { 1_000.0 + load };
    let database = cost * 0.2;
    // Each figure has a value, so that none that an experiment shows is without data.
    for definition in DEFINITIONS {
        if !definition.name.ends_with('/')
            && !definition.name.starts_with("limit")
            && !COMPUTED.contains(&definition.name)
        {
            set(&mut row, &[(definition.name, 10.0 + places as f64)]);
        }
    }
    set_over_time(experiment, profile, &mut row, noise);
    set(
        &mut row,
        &[
            ("attempts", load * 5.0),
            ("failed", load * 5.0 * failed / 100.0),
            ("retransmissions", 0.0),
            ("rate.achieved", load),
            ("srd.mean", delay),
            ("srd.p50", delay),
            ("srd.p95", delay * 2.0),
            ("srd.p99", delay * 3.0),
            ("rrd.mean", delay * 0.5),
            ("rrd.p50", delay * 0.5),
            ("rrd.p95", delay),
            ("response.mean", delay * 1.1),
            ("response.p50", delay),
            ("response.p99", delay * 3.0),
            ("isa", failed * 0.8),
            ("isa.any", failed),
            ("failed.any", failed),
            ("cache.entries", 1_000.0),
            ("ira", 0.0),
            ("ira.any", 0.0),
            ("server.cpu", used * 0.8),
            ("server.cpu.user", used * 0.3),
            ("server.cpu.system", used * 0.5),
            ("server.cpu.call", cost),
            ("server.thread/shard-0", used),
            ("server.entry", cost * 20.0),
            ("server.pss", 20e6),
            ("database.cpu", used * 0.2),
            ("database.cpu.call", database),
            ("cache.cpu.operation", 3.0),
            ("cache.pss", 5e6),
            ("machine.cores", 2.0),
            ("machine.cpu", used),
            ("machine.memory", 5.0 + load / 1_000.0 + places as f64),
            ("machine.network", load * 4_000.0),
        ],
    );
    let all = std::mem::take(&mut row.figures);
    let own: Vec<_> = all.iter().filter(|(name, _)| experiment.has_figure(&trial.axes, name)).collect();
    set(&mut row, &own);
    row
}

/// Sets a value for each second: its number, 1 % more in each repetition. A second in which the server is away gets no
/// delay.
fn set_over_time(experiment: &Experiment, profile: Profile, row: &mut Row, noise: f64) {
    if row.system.name == FLOOR {
        return;
    }
    let course = experiment.course(profile, &row.axes);
    let window = experiment.profiles.get(&profile).map_or(0, |steps| steps.window.as_secs());
    let away = |second: u64| {
        let before = |event: &&TrialEvent| event.at.as_secs() < second;
        let is_kill = course.events.iter().filter(before).rev().find(|event| !matches!(event.action, Action::Load(_)));
        is_kill.is_some_and(|event| event.action.is_kill())
    };
    for name in &course.over_time {
        let value = |second: u64| (!may_lack(name) || !away(second)).then_some(second as f64 * noise);
        row.series.set(name, (1..=window).map(value).collect()).expect("a figure over time");
    }
}

fn set(row: &mut Row, figures: &[(&str, f64)]) {
    for (name, value) in figures {
        row.figures.set(name, *value).expect("a known figure");
    }
}

/// Describes a run of these systems.
pub(crate) fn description(experiment: &Experiment, profile: Profile, rows: &[Row]) -> Description {
    let is_used = |name: &str| rows.iter().any(|row| row.system.name == name);
    let used = experiment.systems.iter().filter(|system| is_used(&system.name));
    let version = "1.0".to_owned();
    let systems = used.map(|system| SystemUsed {
        name: system.name.clone(),
        path: None,
        version: version.clone(),
        program: None,
    });
    Description {
        format: 1,
        program: "0.1.0".into(),
        experiment: experiment.name.clone(),
        file: Digest::of(b""),
        profile,
        systems: systems.collect(),
        versions: BTreeMap::from([("mariadb".to_owned(), "10.11".to_owned())]),
        hosts: BTreeMap::new(),
        server_cores: None,
        machine: Machine {
            host: "bench".into(),
            processor: "Processor <of two cores>".into(),
            cores: 2,
            memory: 8 << 30,
            kernel: "6.1".into(),
        },
        started: 1_795_000_000,
        planned: 60,
        overrides: Overrides::default(),
    }
}

/// A document of a call that registers first.
pub(crate) const DOCUMENT: &str = "<?xml version=\"1.0\"?><scenario name=\"call\">\
    <send><![CDATA[REGISTER sip:a SIP/2.0\n\n]]></send><recv response=\"200\"/>\
    <send><![CDATA[INVITE sip:a SIP/2.0\n\n]]></send><recv response=\"180\" optional=\"true\"/><recv response=\"200\"/>\
    <send><![CDATA[ACK sip:a SIP/2.0\n\n]]></send><pause milliseconds=\"100\"/>\
    <send><![CDATA[BYE sip:a SIP/2.0\n\n]]></send><recv response=\"200\"/></scenario>";

/// Passes the report of these rows to a test.
pub(crate) fn with_report<T>(experiment: &Experiment, rows: &[Row], test: impl FnOnce(&Report<'_>) -> T) -> T {
    let profile = rows.first().map_or(Profile::Quick, |row| row.profile);
    let description = description(experiment, profile, rows);
    let material = Material {
        experiment,
        rows,
        description: &description,
        is_whole: true,
        ended: Some(description.started + 66),
        document: &|name| (!name.starts_with("answer")).then(|| DOCUMENT.to_owned()),
        configurations: vec![("strowger/relay".into(), "[server] # <first>\n".into())],
    };
    test(&Report::new(material).expect("the experiment can be drawn"))
}
