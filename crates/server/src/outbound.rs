//! Flows that a phone or its edge proxy keeps open (RFC 5626). This server does not ping them.
//!
//! A phone that connects to this server and supports outbound gets a Flow-Timer in the 200, and sends a keep-alive in
//! each such interval (section 4.4). If it is silent for longer, its connection is closed. An edge proxy, which has
//! `ob` in its Path, keeps the flows of its phones by itself (section 5.1).

use crate::reachability::is_web;
use std::io::Write;
use strowger_core::registrar::Upsert;
use strowger_core::{Flow, Transport};
use strowger_store::location::{ExistingBindings, Step};

/// Flag of a binding whose flow the phone or its edge proxy keeps open.
pub(crate) const KEEPS_FLOW: u32 = 1 << 24;

/// Flow-Timer in seconds (RFC 5626 section 4.4). A phone sends after 80 to 100 % of it. It is as long as a phone without
/// a Flow-Timer waits over TCP, and shorter than most routers keep the mapping of a connection.
const FLOW_TIMER: u32 = 120;

/// Longest silence of a phone that got a Flow-Timer, in milliseconds. A server must wait longer than the Flow-Timer
/// (RFC 5626 section 5.4): a quarter for late timers, 10 s for lost packets.
pub(crate) const LONGEST_SILENCE: u64 = (FLOW_TIMER + FLOW_TIMER / 4 + 10) as u64 * 1_000;

/// First hop of a phone, as its REGISTER shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FirstHop {
    /// Set if no other proxy forwarded the REGISTER.
    pub(crate) is_direct: bool,
    /// Set if the first hop keeps flows: this server for a stream, or an edge proxy with `ob` in its Path.
    pub(crate) keeps_flows: bool,
    /// Transport by which the REGISTER arrived.
    pub(crate) transport: Transport,
}

impl FirstHop {
    /// Tells whether a contact of the REGISTER is a flow (RFC 5626 section 6). The registrar ignores a reg-id without
    /// support for outbound; a reg-id without instance has no meaning either.
    pub(crate) fn is_flow(self, upsert: &Upsert) -> bool {
        self.keeps_flows && upsert.reg_id != 0 && !upsert.instance.is_empty()
    }

    /// Tells whether the phone of this contact, or its edge proxy, keeps the flow open. A browser declares outbound, but
    /// its programs have no keep-alive: RFC 7118 section 6 leaves it to the pings of the WebSocket.
    pub(crate) fn is_kept(self, upsert: &Upsert, path: &[u8]) -> bool {
        let by_phone = path.is_empty() && !is_web(self.transport);
        self.is_flow(upsert) && (!self.is_direct || by_phone)
    }
}

/// Tells whether a binding with these flags and this Path is one whose phone got a Flow-Timer.
const fn has_flow_timer(flags: u32, path: &[u8]) -> bool {
    flags & KEEPS_FLOW != 0 && path.is_empty()
}

/// Returns the end of the last binding in these steps whose phone gets a Flow-Timer, in milliseconds of
/// [`Now::mono`](strowger_core::Now); `None` if there is none.
pub(crate) fn timed_until(steps: &[Step<'_>]) -> Option<u64> {
    let end = |step: &Step<'_>| match step {
        Step::Add(binding) | Step::Replace(_, binding) => {
            has_flow_timer(binding.flags, binding.path).then_some(binding.expires_at)
        }
        Step::Remove(_) | Step::RemoveAll => None,
    };
    steps.iter().filter_map(end).max()
}

/// Returns the end of the last binding in these steps that is reached over the connection of its REGISTER, in milliseconds of
/// [`Now::mono`](strowger_core::Now); `None` if there is none.
pub(crate) fn registered_until(steps: &[Step<'_>]) -> Option<u64> {
    let end = |step: &Step<'_>| match step {
        Step::Add(binding) | Step::Replace(_, binding) => {
            (binding.flow.is_some() && binding.path.is_empty()).then_some(binding.expires_at)
        }
        Step::Remove(_) | Step::RemoveAll => None,
    };
    steps.iter().filter_map(end).max()
}

/// Tells whether the phone of one of these bindings got a Flow-Timer for this flow.
pub(crate) fn is_timed(current: &ExistingBindings<'_>, flow: Option<Flow>) -> bool {
    let own = flow.map(Flow::to_bytes);
    own.is_some()
        && current.iter().any(|binding| has_flow_timer(binding.flags(), binding.path()) && binding.flow() == own)
}

/// Writes the Flow-Timer header field (RFC 5626 section 10).
pub(crate) fn write_flow_timer(lines: &mut Vec<u8>) {
    // A Vec takes all bytes.
    let _ = write!(lines, "Flow-Timer: {FLOW_TIMER}\r\n");
}
