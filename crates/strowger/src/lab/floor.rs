//! `strowger lab floor`: the unread relay, which the laboratory starts.

use std::net::{SocketAddr, UdpSocket};
use std::process::ExitCode;

use clap::Args;

use crate::output::{Refusal, code};

/// Pass datagrams on unread, as the floor of a run.
#[derive(Debug, Args)]
pub(crate) struct FloorArguments {
    /// Address for callers.
    #[arg(long, value_name = "IP:PORT")]
    pub listen: SocketAddr,
    /// Address of the called end.
    #[arg(long, value_name = "IP:PORT")]
    pub called: SocketAddr,
    /// One in this number of datagrams of callers gets an empty line as an answer.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub answered: u64,
}

pub(super) fn run(arguments: &FloorArguments) -> Result<ExitCode, Refusal> {
    let socket = UdpSocket::bind(arguments.listen);
    let relayed = socket.and_then(|socket| strowger_net::floor::relay(&socket, arguments.called, arguments.answered));
    match relayed {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => Err(Refusal(code::FAILED, format!("floor: {}: {error}", arguments.listen))),
    }
}
