//! `strowger lab verify`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueHint};
use strowger_lab::run::Recorded;
use strowger_measure::several;
use strowger_report::{printable, rfc3339};

use super::{of_folder, print};
use crate::output::Refusal;

/// Verify that each file of a run is as it was written.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  strowger lab verify relay-2026-12-01

Of a part, the files of a trial in which the laboratory was killed are refused, too, until --resume removes them.

Exit codes: 0 all bytes are as they were written, 1 a file was changed, is missing or was added, 2 it is no run.")]
pub(crate) struct VerifyArguments {
    /// Folder of the run.
    #[arg(value_name = "RUN", value_hint = ValueHint::DirPath)]
    pub run: PathBuf,
}

pub(super) fn run(arguments: &VerifyArguments) -> Result<ExitCode, Refusal> {
    let recorded = Recorded::verify(&arguments.run).map_err(of_folder)?;
    let description = &recorded.description;
    let state = if recorded.is_whole { "all trials of its plan" } else { "a part of its plan" };
    print(&printable(&format!(
        "{}: {} and {} are as they were written: {state}, experiment {}, profile {}, {} on {}.",
        arguments.run.display(),
        several(recorded.files as u64, "file"),
        several(recorded.rows.len() as u64, "row"),
        description.experiment,
        description.profile,
        rfc3339(description.started * 1_000_000),
        description.machine.host,
    )))?;
    print("\n")?;
    Ok(ExitCode::SUCCESS)
}
