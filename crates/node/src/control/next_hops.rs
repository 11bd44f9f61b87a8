//! Next hops that are set aside, for `strowger status`.

use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strowger_core::Now;
use strowger_core::proxy::TargetFailure;
use strowger_server::process_state::ProcessState;

/// Most next hops of an answer.
const MOST: usize = 50;

/// A next hop that failed, and has not answered since.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NextHopAside {
    /// Its transport, such as `udp`.
    pub transport: String,
    /// Its address.
    pub address: SocketAddr,
    /// The failure.
    pub reason: String,
    /// Time until a request may try it again.
    pub seconds_left: u64,
}

/// Lists the next hops that are set aside, ordered by address.
pub(super) fn aside(shared: &ProcessState, now: Now) -> Vec<NextHopAside> {
    let reason = |failure| match failure {
        TargetFailure::Silent => "no response",
        TargetFailure::Unsent | TargetFailure::NoTcp => "not reached",
        TargetFailure::Unavailable { .. } => "503 with Retry-After",
    };
    let list = shared.list_aside(now, MOST).into_iter().map(|target| NextHopAside {
        transport: target.transport.text().into(),
        address: target.address,
        reason: reason(target.failure).into(),
        seconds_left: target.left.div_ceil(1_000),
    });
    let mut list: Vec<_> = list.collect();
    list.sort_by_key(|hop| hop.address);
    list
}
