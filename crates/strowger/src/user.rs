//! `strowger user`: who may register.

use crate::cli::UserArguments;
use crate::output::Outcome;

pub(crate) fn run(_arguments: &UserArguments) -> anyhow::Result<Outcome> {
    anyhow::bail!("not yet")
}
