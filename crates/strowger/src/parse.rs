//! `strowger parse`: what the parser sees in a message.

use crate::cli::ParseArguments;
use crate::output::Outcome;

pub(crate) fn run(_arguments: &ParseArguments) -> anyhow::Result<Outcome> {
    anyhow::bail!("not yet")
}
