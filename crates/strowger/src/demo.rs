//! `strowger demo`.

use crate::cli::DemoArguments;
use crate::output::Outcome;

pub(crate) fn run(_arguments: &DemoArguments) -> anyhow::Result<Outcome> {
    anyhow::bail!("the demo is not wired to the command line yet")
}
