//! `strowger lab compare`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueHint};
use strowger_lab::compare::{Decision, Run, compare};
use strowger_lab::run::{Description, Machine, Recorded};

use super::{of_folder, print};
use crate::output::Refusal;

/// Compare a run with the run before it, and report the differences.
///
/// Trials of equal systems, axes and loads are paired. The ratio of two values is divided by the ratio of the floors of both runs. A
/// difference is claimed if the interval of the result excludes 1 and the difference is 3 % or more. Nothing is claimed if the floors
/// differ by more than 15 % or the machines differ.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  strowger lab compare relay-before relay-after

Exit codes: 0 nothing is claimed to be worse, 1 a figure is claimed to be worse, 2 one is no run,
4 nothing could be judged.")]
pub(crate) struct CompareArguments {
    /// Folder of the earlier run.
    #[arg(value_name = "BEFORE", value_hint = ValueHint::DirPath)]
    pub before: PathBuf,
    /// Folder of the later run.
    #[arg(value_name = "AFTER", value_hint = ValueHint::DirPath)]
    pub after: PathBuf,
}

pub(super) fn run(arguments: &CompareArguments) -> Result<ExitCode, Refusal> {
    let [before, after] = [&arguments.before, &arguments.after].map(|path| Recorded::open(path).map_err(of_folder));
    let (before, after) = (before?, after?);
    let names = [&arguments.before, &arguments.after].map(|path| path.display().to_string());
    let machines = [&before.description, &after.description].map(machine);
    let comparison = compare(
        Run { name: &names[0], machine: &machines[0], rows: &before.rows },
        Run { name: &names[1], machine: &machines[1], rows: &after.rows },
    );
    let decision = comparison.decision();
    let sentence = match decision {
        Decision::NotWorse => "No figure is claimed to be worse.",
        Decision::Worse => "A figure is worse.",
        Decision::Nothing if comparison.lines.is_empty() => {
            "Nothing could be judged: the runs have no cell in common; compare runs of one experiment and profile."
        }
        Decision::Nothing => "Nothing could be judged.",
    };
    print(&format!("{comparison}{sentence}\n"))?;
    Ok(ExitCode::from(decision.exit_code()))
}

/// Describes the machines of a run, so that two runs can be compared.
fn machine(of: &Description) -> String {
    let identity = |machine: &Machine| {
        format!("{}, {} cores, {} bytes, {}", machine.processor, machine.cores, machine.memory, machine.kernel)
    };
    let hosts = of.hosts.values().map(|host| format!("; {}: {}", host.roles.join(" "), identity(&host.machine)));
    let cores = of.server_cores.map_or_else(String::new, |cores| format!("; {cores} cores of the server"));
    format!("{}{cores}{}", identity(&of.machine), hosts.collect::<String>())
}
