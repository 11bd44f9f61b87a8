//! `strowger lab media-floor`: the relay that does not read packets, which the laboratory starts.

use std::net::SocketAddr;
use std::process::ExitCode;

use clap::Args;
use strowger_lab::media_floor::MediaFloor;

use crate::output::{Refusal, code};

/// Relay calls with media without reading the packets, as the floor of relays.
#[derive(Debug, Args)]
pub(crate) struct MediaFloorArguments {
    /// Address for callers.
    #[arg(long, value_name = "IP:PORT")]
    pub listen: SocketAddr,
    /// Address of the called end.
    #[arg(long, value_name = "IP:PORT")]
    pub called: SocketAddr,
}

pub(super) fn run(arguments: &MediaFloorArguments) -> Result<ExitCode, Refusal> {
    // A call has two sockets.
    let _ = strowger_net::descriptors::raise();
    let floor = MediaFloor::bind(arguments.listen, arguments.called);
    match floor.and_then(MediaFloor::run) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => Err(Refusal(code::FAILED, format!("media-floor: {}: {error}", arguments.listen))),
    }
}
