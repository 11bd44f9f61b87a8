//! `strowger lab floor`: the unread relay, which the laboratory starts.

use std::net::{Ipv4Addr, UdpSocket};
use std::process::ExitCode;

use clap::Args;

use crate::output::{Refusal, code};

/// Pass datagrams on unread, as the floor of a run.
#[derive(Debug, Args)]
pub(crate) struct FloorArguments {
    /// Port of 127.0.0.1 for callers.
    #[arg(long, value_name = "PORT")]
    pub port: u16,
    /// Port of 127.0.0.1 of the called end.
    #[arg(long, value_name = "PORT")]
    pub called: u16,
    /// One of so many datagrams of callers gets an empty line as an answer.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub answered: u64,
}

pub(super) fn run(arguments: &FloorArguments) -> Result<ExitCode, Refusal> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, arguments.port));
    let relayed = socket.and_then(|socket| strowger_net::floor::relay(&socket, arguments.called, arguments.answered));
    match relayed {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => Err(Refusal(code::FAILED, format!("floor: 127.0.0.1:{}: {error}", arguments.port))),
    }
}
