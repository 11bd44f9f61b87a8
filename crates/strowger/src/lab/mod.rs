//! `strowger lab`: experiments on SIP servers, their runs and reports.

mod agent;
mod capacity;
mod check;
mod compare;
mod doctor;
mod echo;
mod floor;
mod hosts;
mod list;
mod media_floor;
mod plan;
mod report;
mod run;
mod show;
mod stack;
mod verify;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use strowger_lab::Error;
use strowger_lab::experiment::{Experiment, SHIPPED};
use strowger_lab::run::FolderError;

use crate::output::{self, Refusal, code};

/// Measure SIP servers: run experiments, compare runs, write reports.
///
/// An experiment is a file that names systems, loads and figures. A run of it is a folder of rows, logs and configurations, from which
/// reports and comparisons are made.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  strowger lab capacity 192.0.2.1        how much a server carries
  strowger lab list                      the shipped experiments and their times
  strowger lab show relay > mine.toml    a copy to change
  strowger lab doctor                    whether this machine can measure
  strowger lab check mine.toml           its mistakes, or its plan and time
  strowger lab run relay                 run it; makes the folder relay-quick
  strowger lab report RUN                the page of a run
  strowger lab compare BEFORE AFTER      what became better or worse
  strowger lab verify RUN                are its files as they were written?

Exit codes:
  0    done; nothing is claimed to be worse, no gate is missed
  1    something failed, or a comparison claims a figure to be worse
  2    the command line, or a file or host that it names, cannot be used
  3    a gate is missed
  4    nothing could be judged: no valid trial
  130  ended by Ctrl-C")]
pub(crate) struct LabArguments {
    #[command(subcommand)]
    pub command: LabCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LabCommand {
    Capacity(Box<capacity::CapacityArguments>),
    List(list::ListArguments),
    Show(show::ShowArguments),
    Check(check::CheckArguments),
    Doctor(doctor::DoctorArguments),
    Run(run::RunArguments),
    /// Start, sample and end programs on this machine for a laboratory on another one.
    #[command(hide = true)]
    Agent,
    #[command(hide = true)]
    Floor(floor::FloorArguments),
    #[command(hide = true)]
    Echo(echo::EchoArguments),
    #[command(hide = true)]
    MediaFloor(media_floor::MediaFloorArguments),
    Stack(stack::StackArguments),
    /// End the programs of a laboratory that was killed.
    #[command(hide = true)]
    Guard,
    Compare(compare::CompareArguments),
    Report(report::ReportArguments),
    Verify(verify::VerifyArguments),
}

pub(crate) fn run(arguments: LabArguments) -> ExitCode {
    let result = match arguments.command {
        LabCommand::Capacity(arguments) => capacity::run(&arguments),
        LabCommand::List(arguments) => list::run(&arguments),
        LabCommand::Show(arguments) => show::run(&arguments),
        LabCommand::Check(arguments) => check::run(&arguments),
        LabCommand::Doctor(arguments) => doctor::run(&arguments),
        LabCommand::Run(arguments) => run::run(&arguments),
        LabCommand::Agent => agent::run(),
        LabCommand::Floor(arguments) => floor::run(&arguments),
        LabCommand::Echo(arguments) => echo::run(&arguments),
        LabCommand::MediaFloor(arguments) => media_floor::run(&arguments),
        LabCommand::Stack(arguments) => stack::run(&arguments),
        LabCommand::Guard => {
            strowger_lab::guard::stand(std::io::stdin().lock());
            Ok(ExitCode::SUCCESS)
        }
        LabCommand::Compare(arguments) => compare::run(&arguments),
        LabCommand::Report(arguments) => report::run(&arguments),
        LabCommand::Verify(arguments) => verify::run(&arguments),
    };
    output::exit_code(result)
}

/// Returns the refusal for an error that occurred before anything was measured.
fn before(error: Error) -> Refusal {
    match error {
        Error::Interrupted => Refusal(code::INTERRUPTED, error.to_string()),
        error => output::usage(error.to_string()),
    }
}

/// Returns the number of cores of this machine, which may bound axes.
fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Finds a shipped experiment by its name, with the values of axes that fit this machine.
fn shipped(name: &str) -> Result<(Experiment, &'static str), Refusal> {
    let found = Experiment::shipped(name).map(|(mut experiment, text)| {
        experiment.fit(cores());
        (experiment, text)
    });
    found.ok_or_else(|| {
        let names: Vec<&str> = SHIPPED.iter().map(|(name, _)| *name).collect();
        let cure = match strowger_config::nearest(name, names.iter().copied()) {
            Some(near) => format!("write {near}"),
            None => format!("the experiments are {}", names.join(", ")),
        };
        output::usage(format!("there is no experiment {name:?}: {cure}"))
    })
}

/// Prints to standard output.
fn print(text: &str) -> Result<(), Refusal> {
    match output::print(text) {
        Err(error) if !output::is_broken_pipe(&error) => Err(Refusal(code::FAILED, format!("{error:#}"))),
        _ => Ok(()),
    }
}

/// Returns the refusal for a folder: a folder without a run is an error of usage, a changed folder proves nothing.
fn of_folder(error: FolderError) -> Refusal {
    let code = match error {
        FolderError::NoRun(_) => code::USAGE,
        _ => code::FAILED,
    };
    Refusal(code, error.to_string())
}
