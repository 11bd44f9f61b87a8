//! `strowger lab echo`: the bare echo, which the laboratory starts as a system under test.

use std::net::SocketAddr;
use std::process::ExitCode;

use clap::Args;
use strowger_lab::echo::Echo;

use crate::output::{Refusal, code};

/// Answer each request with 200, as the floor of a server by UDP and TCP.
#[derive(Debug, Args)]
pub(crate) struct EchoArguments {
    /// Address.
    #[arg(long, value_name = "IP:PORT")]
    pub listen: SocketAddr,
}

pub(super) fn run(arguments: &EchoArguments) -> Result<ExitCode, Refusal> {
    // Without it there is room for a thousand connections.
    let _ = strowger_net::descriptors::raise();
    match Echo::bind(arguments.listen).and_then(Echo::run) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => Err(Refusal(code::FAILED, format!("echo: {}: {error}", arguments.listen))),
    }
}
