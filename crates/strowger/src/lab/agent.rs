//! `strowger lab agent`: the end of a connection on a host, which the laboratory starts by `ssh`.

use std::process::{Command, ExitCode};

use strowger_lab::{guard, host, process};

use crate::output::{Refusal, code};

pub(super) fn run() -> Result<ExitCode, Refusal> {
    let failed = |what: &str, error: &dyn std::fmt::Display| Refusal(code::FAILED, format!("{what}: {error}"));
    let program = std::env::current_exe().map_err(|error| failed("this program has no path", &error))?;
    let scratch =
        tempfile::TempDir::with_prefix("strowger-agent-").map_err(|error| failed("a temporary folder", &error))?;
    process::end_by_signals().map_err(|error| failed("signals cannot be caught", &error))?;
    guard::start(Command::new(&program).args(["lab", "guard"]))
        .map_err(|error| failed("the guard does not start", &error))?;
    host::serve(&program, scratch.path(), std::io::stdin(), std::io::stdout().lock())
        .map_err(|error| failed("agent", &error))?;
    Ok(ExitCode::SUCCESS)
}
