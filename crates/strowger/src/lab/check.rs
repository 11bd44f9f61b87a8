//! `strowger lab check`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueHint};
use strowger_lab::experiment::Experiment;

use super::plan::PlanArguments;
use super::{print, shipped};
use crate::output::{self, Refusal};

/// Check an experiment: report every fault of its file with line and cure, then its plan and time.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  strowger lab check mine.toml
  strowger lab check mine.toml --profile standard
  strowger lab check mine.toml --only cache=local,redis --repetitions 7
  strowger lab check relay --system strowger --load 1000,2500

Exit codes: 0 it can be run, 1 it cannot, 2 the file or the command line cannot be used.")]
pub(crate) struct CheckArguments {
    /// Name of a shipped experiment, or a file.
    #[arg(value_name = "EXPERIMENT", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    #[command(flatten)]
    pub plan: PlanArguments,
    /// System of the plan [default: all]; may be given several times.
    #[arg(long, value_name = "NAME")]
    pub system: Vec<String>,
}

pub(super) fn run(arguments: &CheckArguments) -> Result<ExitCode, Refusal> {
    let name = arguments.file.display().to_string();
    let mut experiment = if !arguments.file.is_file() && !name.contains(['/', '.']) {
        shipped(&name)?.0
    } else {
        let text = std::fs::read_to_string(&arguments.file)
            .map_err(|error| output::usage(format!("{name} cannot be read: {error}")))?;
        match Experiment::read(&name, &text) {
            Ok((mut experiment, warnings)) => {
                output::report(&warnings);
                experiment.fit(super::cores());
                experiment
            }
            Err(report) => {
                output::report(&report);
                return Ok(ExitCode::from(output::code::FAILED));
            }
        }
    };
    known(&experiment, &arguments.system)?;
    let only: Vec<&str> = arguments.system.iter().map(String::as_str).collect();
    let plan = arguments.plan.plan(&mut experiment, &only)?;
    print(&format!("{}\n\nPlan of the profile {}:\n{plan}", experiment.title, arguments.plan.profile))?;
    Ok(ExitCode::SUCCESS)
}

/// Refuses a system that the experiment does not have.
fn known(experiment: &Experiment, names: &[String]) -> Result<(), Refusal> {
    let known: Vec<&str> = experiment.systems.iter().map(|system| system.name.as_str()).collect();
    match names.iter().find(|name| !known.contains(&name.as_str())) {
        None => Ok(()),
        Some(name) => {
            Err(output::usage(format!("--system {name}: the systems of this experiment are {}", known.join(", "))))
        }
    }
}
