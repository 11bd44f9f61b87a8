//! `strowger completion`.

use clap::CommandFactory;

use crate::cli::{Cli, CompletionArguments};
use crate::output::{self, Outcome};

pub(crate) fn run(arguments: &CompletionArguments) -> anyhow::Result<Outcome> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "strowger", &mut script);
    output::print(&String::from_utf8(script)?)?;
    Ok(Outcome::Done)
}
