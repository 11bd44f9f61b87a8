//! `strowger completion`.

use clap::CommandFactory;

use crate::cli::{Cli, CompletionArguments};
use crate::output::{self, CommandOutcome};

pub(crate) fn run(arguments: &CompletionArguments) -> anyhow::Result<CommandOutcome> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "strowger", &mut script);
    output::print(&String::from_utf8(script)?)?;
    Ok(CommandOutcome::Done)
}
