//! `strowger lab echo`: the bare echo, which the laboratory starts as a system under test.

use std::process::ExitCode;

use clap::Args;
use strowger_lab::echo::Echo;

use crate::output::{Refusal, code};

/// Answer each request with 200, as the floor of a server by UDP and TCP.
#[derive(Debug, Args)]
pub(crate) struct EchoArguments {
    /// Port of 127.0.0.1.
    #[arg(long, value_name = "PORT")]
    pub port: u16,
}

pub(super) fn run(arguments: &EchoArguments) -> Result<ExitCode, Refusal> {
    // Without it there is room for a thousand connections.
    let _ = strowger_net::descriptors::raise();
    match Echo::bind(arguments.port).and_then(Echo::run) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => Err(Refusal(code::FAILED, format!("echo: 127.0.0.1:{}: {error}", arguments.port))),
    }
}
