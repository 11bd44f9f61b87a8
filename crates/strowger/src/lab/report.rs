//! `strowger lab report`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueHint};
use strowger_lab::report::{self, Report, ReportError};
use strowger_report::printable;

use super::{of_folder, print};
use crate::output::{Refusal, code, usage};

/// Make the report of a run: one HTML page, with JSON and CSV in the same folder.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  strowger lab report relay-2026-12-01
  strowger lab report relay-2026-12-01 --out /srv/www
  strowger lab report relay-2026-12-01 --markdown > relay.md
  strowger lab report relay-2026-12-01 --whole       fails if a figure lacks a point of the plan

Exit codes: 0 done, 1 the report could not be written or is not --whole, 2 it is no run, 3 a gate is missed,
4 the run has no valid trial.")]
pub(crate) struct ReportArguments {
    /// Folder of the run.
    #[arg(value_name = "RUN", value_hint = ValueHint::DirPath)]
    pub run: PathBuf,
    /// Print the report in Markdown, and write no file.
    #[arg(long, conflicts_with = "out")]
    pub markdown: bool,
    /// Fail unless each figure and table has the lines, the unit and the points that the plan of the run promises, and the run took the time
    /// of its plan, or had to make trials again.
    #[arg(long)]
    pub whole: bool,
    /// Folder of the files [default: the folder of the run].
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub out: Option<PathBuf>,
}

pub(super) fn run(arguments: &ReportArguments) -> Result<ExitCode, Refusal> {
    let show = |report: &Report<'_>| -> Result<(String, u8), ReportError> {
        let code = exit_code(report);
        if arguments.markdown {
            return Ok((report.markdown(), code));
        }
        let folder = arguments.out.as_ref().unwrap_or(&arguments.run);
        let paths = report.save(folder)?;
        let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
        Ok((format!("{}\n{}\n", printable(&report.answer().sentence), printable(&paths.join(", "))), code))
    };
    let (text, code) = report::of_folder(&arguments.run, show).map_err(refusal)?;
    print(&text)?;
    if arguments.whole {
        let lacking = report::lacking(&arguments.run).map_err(refusal)?;
        if !lacking.is_empty() {
            let lines = printable(&lacking.join("\n")).replace('\n', "\n  ");
            return Err(Refusal(
                code::FAILED,
                format!("the report lacks what the plan of its run promises:\n  {lines}"),
            ));
        }
    }
    Ok(ExitCode::from(code))
}

/// Returns the exit code of a report: for a missed gate, or for a report without valid trials.
fn exit_code(report: &Report<'_>) -> u8 {
    if report.is_void() {
        code::INVALID
    } else if report.gates().iter().any(|gate| gate.is_met == Some(false)) {
        code::MISSED
    } else {
        code::WELL
    }
}

fn refusal(error: ReportError) -> Refusal {
    match error {
        ReportError::Folder(error) => of_folder(*error),
        ReportError::Experiment(_) => usage(error.to_string()),
        ReportError::Figure(_) | ReportError::File(_) => Refusal(code::FAILED, error.to_string()),
    }
}
