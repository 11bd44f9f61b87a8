//! `strowger lab run`.

mod progress;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args, ValueHint};
use strowger_lab::experiment::{Experiment, Plan};
use strowger_lab::report;
use strowger_lab::row::{Digest, Row};
use strowger_lab::run::{
    self, Chosen, Description, Ending, Folder, FolderError, Laboratory, Machine, PlanVerdict, Schedule,
};
use strowger_lab::{Error, guard, process};

use self::progress::Progress;
use super::hosts::{self, HostArguments};
use super::list::length;
use super::plan::PlanArguments;
use super::{before, print, shipped};
use crate::output::{self, Refusal, code, usage};

/// Run an experiment: each trial of its plan becomes a row in the folder of the run.
///
/// The plan and its time are printed first. An invalid trial is repeated, three times at most. After Ctrl-C the rows so far are a valid
/// part of the run, which --resume continues.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  strowger lab run relay                                     all systems of the experiment
  strowger lab run relay --system strowger --profile smoke   a first look
  strowger lab run relay --without kamailio                  all but this one
  strowger lab run stress --profile standard --out stress    rows, logs and reports in the folder stress
  strowger lab run stress --profile standard --out stress --resume
  strowger lab run relay --system strowger --system baseline=/tmp/strowger
  strowger lab run stress --only letter=A,B --repetitions 7 --window 10s
  strowger lab run relay --load 1000,2500
  strowger lab run mine.toml --system external=192.0.2.1
  strowger lab run mine.toml --system external=192.0.2.1 --server root@192.0.2.1
  strowger lab run relay --caller west --caller east --answerer north

Exit codes, of several the first in this order:
  2    the command line, or a file or host that it names, cannot be used; no
       trial was begun
  130  ended by Ctrl-C; the rows are a valid part
  1    a system did not start, a row could not be written, or the connection
       to a host is gone; the rows are a valid part
  4    a trial stayed invalid
  3    a gate is missed
  0    all well
In the profile smoke no figure is judged: a gate or a busy machine changes nothing.")]
pub(crate) struct RunArguments {
    /// Name of a shipped experiment, or a file.
    #[arg(value_name = "EXPERIMENT", value_hint = ValueHint::FilePath)]
    pub experiment: String,
    /// System to measure [default: all systems of the experiment]. The option may be given several times. PATH is a program, a
    /// folder with a driver.toml, or the address of a server that runs.
    #[arg(long, value_name = "NAME[=PATH]", value_parser = system)]
    pub system: Vec<(String, Option<String>)>,
    /// System to leave out, by its name or its driver's name. The option may be given several times. An experiment without this
    /// system is unchanged.
    #[arg(long, value_name = "NAME", conflicts_with = "system")]
    pub without: Vec<String>,
    #[command(flatten)]
    pub plan: PlanArguments,
    /// Folder of the run [default: EXPERIMENT-PROFILE].
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub out: Option<PathBuf>,
    /// Go on with the run in the folder, at the first trial that it lacks.
    #[arg(long)]
    pub resume: bool,
    /// Limit the server, and the databases and caches beside it, to the first N cores of their machine, and the generator to the other
    /// cores [default: half of the cores on a machine with four or more].
    #[arg(long, value_name = "N")]
    pub server_cores: Option<u32>,
    #[command(flatten)]
    pub hosts: HostArguments,
}

fn system(text: &str) -> Result<(String, Option<String>), String> {
    let (name, path) = match text.split_once('=') {
        Some((name, path)) => (name, Some(path.to_owned())),
        None => (text, None),
    };
    let is_name = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    if name.is_empty() || !name.bytes().all(is_name) || path.as_ref().is_some_and(String::is_empty) {
        return Err("write NAME or NAME=PATH; a name has letters, digits, - _ and .".into());
    }
    Ok((name.into(), path))
}

pub(super) fn run(arguments: &RunArguments) -> Result<ExitCode, Refusal> {
    let (mut experiment, text) = read(&arguments.experiment)?;
    leave_out(&mut experiment, &arguments.without)?;
    let program = std::env::current_exe().map_err(|error| failed(format!("this program has no path: {error}")))?;
    process::end_by_signals().map_err(|error| failed(format!("Ctrl-C cannot be caught: {error}")))?;
    let mut command = std::process::Command::new(&program);
    guard::start(command.args(["lab", "guard"]))
        .map_err(|error| failed(format!("the guard does not start: {error}")))?;
    let hosts = arguments.hosts.connect(&program).map_err(before)?;
    let systems = run::choose(&mut experiment, &arguments.system, &hosts.server.place).map_err(before)?;
    let hosts = arguments.hosts.towards(hosts, &systems).map_err(before)?;
    let hosts = match arguments.server_cores {
        Some(cores) => hosts.pin(cores as usize).map_err(|fault| usage(format!("--server-cores: {fault}")))?,
        None => run::divide(hosts, &systems),
    };
    let only: Vec<&str> = systems.iter().map(|chosen| chosen.spec.name.as_str()).collect();
    let plan = arguments.plan.plan(&mut experiment, &only)?;
    let profile = arguments.plan.profile;
    run::check(&plan, &systems).map_err(|error| usage(error.to_string()))?;
    run::check_hosts(&experiment, &plan, &systems, &hosts).map_err(before)?;
    let root = match &arguments.out {
        Some(out) => out.clone(),
        None => format!("{}-{profile}", experiment.name).into(),
    };
    print(&format!("{}\n\nPlan of the profile {profile}:\n{plan}\n", experiment.title))?;
    let mut described = describe(&experiment, &text, &arguments.plan, &plan, &systems);
    described.versions = run::versions(&plan, &systems, &hosts.server.place).map_err(before)?;
    described.server_cores = Some(hosts.server_cores.len() as u32).filter(|cores| *cores > 0);
    described.hosts = hosts::describe(&hosts, &arguments.hosts.roles()).map_err(before)?;
    let mut schedule = Schedule::new(experiment.clone(), profile, plan);
    let (mut folder, rows) = open(&root, arguments.resume, &described, &text, &mut schedule)?;
    for chosen in &systems {
        let own = schedule.plan().trials.iter().filter(|planned| planned.system == chosen.spec.name);
        let scenarios: Vec<&str> = own.map(|planned| planned.configuration.as_str()).collect();
        for (name, text) in chosen.folder.files_of(&scenarios) {
            folder.keep_configuration(&chosen.spec.name, name, text.as_bytes()).map_err(wrong)?;
        }
    }
    let scratch = tempfile::tempdir().map_err(|error| failed(format!("a temporary folder: {error}")))?;
    let mut laboratory = Laboratory::new(experiment, profile, systems, &program, scratch.path()).on(hosts.clone());
    laboratory.remember(&rows);
    let progress = Progress::new(schedule.plan().trials.len());
    let mut tell = |schedule: &Schedule, event: &run::Event<'_>| progress.show(schedule, event);
    let ended = run::conduct(&mut schedule, &mut folder, &mut laboratory, &process::is_ending, &mut tell);
    let kept = format!("{} rows are in {}", folder.rows(), root.display());
    drop((progress, laboratory, folder));
    let (code, reason) = match (ended, hosts.lost()) {
        (Ok(Ending::Whole), _) => return judge(&schedule, &root),
        (Ok(Ending::Interrupted) | Err(Error::Interrupted), Some(lost)) => (code::FAILED, format!("{lost}\n")),
        (Ok(Ending::Interrupted) | Err(Error::Interrupted), None) => (code::INTERRUPTED, "interrupted: ".into()),
        (Err(error), _) => (code::FAILED, format!("{error}\n")),
    };
    Err(Refusal(code, format!("{reason}{kept}, --resume goes on with them")))
}

/// Removes systems from an experiment.
fn leave_out(experiment: &mut Experiment, names: &[String]) -> Result<(), Refusal> {
    let own = experiment.systems.iter().map(|spec| spec.name.as_str());
    let known: Vec<&str> = own.chain(strowger_lab::system::SHIPPED.iter().map(|(name, _)| *name)).collect();
    if let Some(unknown) = names.iter().find(|name| !known.contains(&name.as_str())) {
        let near = strowger_config::nearest(unknown, known.iter().copied());
        let cure = near.map_or_else(|| format!("write one of {}", known.join(", ")), |near| format!("write {near}"));
        return Err(usage(format!("--without {unknown}: there is no such system: {cure}")));
    }
    experiment.systems.retain(|spec| ![&spec.name, &spec.driver].iter().any(|own| names.contains(own)));
    if experiment.systems.iter().all(|spec| spec.is_optional) {
        return Err(usage(format!("--without: {} has no other system", experiment.name)));
    }
    Ok(())
}

/// Reads the experiment of a file, or the shipped one of this name, and returns it with its text.
fn read(name: &str) -> Result<(Experiment, String), Refusal> {
    if !Path::new(name).is_file() && !name.contains(['/', '.']) {
        return shipped(name).map(|(experiment, text)| (experiment, text.to_owned()));
    }
    let text = std::fs::read_to_string(name).map_err(|error| usage(format!("{name} cannot be read: {error}")))?;
    match Experiment::read(name, &text) {
        Ok((mut experiment, warnings)) => {
            output::report(&warnings);
            experiment.fit(super::cores());
            Ok((experiment, text))
        }
        Err(report) => {
            output::report(&report);
            Err(usage(format!("{name} is no experiment that can be run")))
        }
    }
}

fn describe(
    experiment: &Experiment,
    text: &str,
    arguments: &PlanArguments,
    plan: &Plan,
    systems: &[Chosen],
) -> Description {
    Description {
        format: run::FORMAT,
        program: env!("CARGO_PKG_VERSION").into(),
        experiment: experiment.name.clone(),
        file: Digest::of(text.as_bytes()),
        profile: arguments.profile,
        overrides: arguments.overrides(),
        systems: run::describe(systems),
        versions: BTreeMap::new(),
        machine: Machine::this(),
        hosts: BTreeMap::new(),
        server_cores: None,
        started: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
        planned: plan.time.as_secs(),
    }
}

/// Creates the folder of a new run, or opens the folder of a resumed run and advances the schedule to its last row. Also returns the rows
/// of the run.
fn open(
    root: &Path,
    resume: bool,
    described: &Description,
    text: &str,
    schedule: &mut Schedule,
) -> Result<(Folder, Vec<Row>), Refusal> {
    let refused = |error: FolderError| match error {
        FolderError::File(error) => wrong(error),
        other => usage(other.to_string()),
    };
    if !resume {
        return Ok((Folder::create(root, described, text).map_err(refused)?, Vec::new()));
    }
    let (folder, rows) = Folder::resume(root, described).map_err(refused)?;
    run::replay(schedule, &rows).map_err(|reason| usage(format!("{}: {reason}", root.display())))?;
    if !rows.is_empty() {
        output::say(&format!("{} rows are there; {} are left of the plan", rows.len(), length(schedule.rest())));
    }
    Ok((folder, rows))
}

/// Writes the reports, prints the invalid trials, the gates and the answer, and returns the exit code.
fn judge(schedule: &Schedule, root: &Path) -> Result<ExitCode, Refusal> {
    let mut out = String::new();
    for marked in schedule.marked() {
        let axes: String = marked.planned.axes.iter().map(|(name, value)| format!(" {name}={value}")).collect();
        out.push_str(&format!("invalid: {}{axes}, repetition {}\n", marked.planned.system, marked.planned.repetition));
        for reason in &marked.reasons {
            out.push_str(&format!("  {}: {}\n", reason.check, reason.sentence));
        }
    }
    let (text, is_missed) = report::of_folder(root, |report| {
        let paths: Vec<String> = report.save(root)?.iter().map(|path| path.display().to_string()).collect();
        let judged = || report.gates().iter().filter(|gate| gate.is_met.is_some());
        let width = judged().map(|gate| gate.gate.chars().count()).max().unwrap_or(0);
        let mut gates: String = judged().map(|gate| format!("{:width$}  {}\n", gate.gate, gate.sentence)).collect();
        gates.extend(report.unjudged().map(|count| format!("{count}: the report says why\n")));
        let time = report.time().map_or_else(String::new, |time| format!("{time}\n"));
        let text = format!("{gates}\n{}\n{time}{}\n", report.answer().sentence, paths.join(", "));
        Ok((text, report.gates().iter().any(|gate| gate.is_met == Some(false))))
    })
    .map_err(|error| failed(error.to_string()))?;
    print(&strowger_load::printable(&(out + &text)))?;
    Ok(ExitCode::from(match PlanVerdict::of(schedule.profile(), schedule.marked()) {
        PlanVerdict::Invalid => code::INVALID,
        PlanVerdict::Valid if is_missed => code::MISSED,
        PlanVerdict::Valid => code::WELL,
    }))
}

fn failed(text: impl Into<String>) -> Refusal {
    Refusal(code::FAILED, text.into())
}

fn wrong(error: Error) -> Refusal {
    failed(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_paths_of_systems() {
        let read = |text: &str| system(text).ok();
        assert_eq!(read("strowger"), Some(("strowger".into(), None)));
        assert_eq!(read("before=/tmp/a=b"), Some(("before".into(), Some("/tmp/a=b".into()))));
        assert_eq!([read(""), read("=a"), read("a="), read("a/b")], [None, None, None, None]);
    }
}
