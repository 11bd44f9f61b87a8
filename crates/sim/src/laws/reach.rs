//! Law: a registered phone can be reached by new calls and within existing calls. A phone that has lost its connection
//! to the server is absent until it has registered again; its callers learn of the absence at once.

use crate::agent::{Agent, Called, SentOutcome};
use crate::server::LIMITED;

/// Statuses that tell a caller that a user is absent, or that an address cannot be reached.
const NOT_THERE: [u16; 3] = [480, 500, 408];

/// Checks that agents which could be reached were reached. `may_fail`: look-ups may fail too, and a failed look-up is
/// answered with 500.
pub(super) fn missed(agents: &[&Agent], may_fail: bool) -> Result<(), String> {
    for call in agents.iter().flat_map(|agent| agent.called()) {
        let is_here =
            |agent: &&Agent| is_for(&call, agent) && agent.presence().is_reachable(call.started, call.finished);
        // The phone's own 503 becomes a 480, if it accepts no connections (RFC 3263 section 4.3).
        let says = |status| agents.iter().any(|agent| is_for(&call, agent) && agent.has_answered(status));
        let is_missed = match call.outcome {
            SentOutcome::Failed(480) => !says(503),
            // The caller used the phone's address, over the connection that the phone had made.
            SentOutcome::Failed(status) => {
                let is_not_there = NOT_THERE.contains(&status) && !(may_fail && status == 500);
                call.to.contains(";transport=") && is_not_there && !says(status) && !says(503)
            }
            _ => false,
        };
        if is_missed && agents.iter().copied().any(|agent| is_here(&agent)) {
            return Err(format!("{} is registered, and was not found: {call:?}", call.user));
        }
    }
    for agent in agents {
        for bye in agent.hung_up().filter(|bye| matches!(bye.outcome, SentOutcome::Failed(430 | 480))) {
            let is_here = |other: &&&Agent| {
                other.is_party(bye.call_id, bye.remote_tag) && other.presence().is_reachable(bye.started, bye.finished)
            };
            if let Some(other) = agents.iter().find(is_here) {
                return Err(format!("{} is registered, and its call was not known: {bye:?}", other.name()));
            }
        }
    }
    Ok(())
}

/// Returns whether the call is for this agent. If two agents share a name, the address in the URI selects the agent.
fn is_for(call: &Called<'_>, agent: &Agent) -> bool {
    let is_by_address = call.to.contains(";transport=");
    agent.name() == call.user && (!is_by_address || call.to.contains(&format!("@{};", agent.address())))
}

/// Checks that callers of an absent agent got the right response within `at_once` milliseconds.
pub(super) fn waited(agents: &[&Agent], at_once: u64) -> Result<(), String> {
    // If there is a mailbox, it answers calls to bob.
    let is_answered_for =
        |call: &Called<'_>| call.user == "bob" && agents.iter().any(|agent| agent.name() == "mailbox");
    for call in agents.iter().flat_map(|agent| agent.called()).filter(|call| !is_answered_for(call)) {
        let is_called = |agent: &&&Agent| agent.name() == call.user;
        let is_lost = |agent: &&Agent| agent.presence().is_lost(call.started, call.finished);
        let mut called = agents.iter().filter(is_called).peekable();
        if called.peek().is_none() || !called.all(is_lost) || call.to.contains(";transport=") {
            continue;
        }
        let is_right = matches!(call.outcome, SentOutcome::Failed(407 | 480 | 487 | 500 | 503 | LIMITED))
            || call.outcome == SentOutcome::Forgotten;
        if !is_right || call.finished.saturating_sub(call.started) > at_once {
            return Err(format!("{} has lost its connection: {call:?}", call.user));
        }
    }
    Ok(())
}

/// Checks that a caller got a response at once if its request could not be forwarded.
pub(super) fn unsent(agents: &[&Agent]) -> Result<(), String> {
    let is_stream = |call: &Called<'_>| call.user == "void" && call.to.contains(";transport=");
    let has_waited = |call: &Called<'_>| matches!(call.outcome, SentOutcome::Failed(408) | SentOutcome::Timeout);
    match agents.iter().flat_map(|agent| agent.called()).find(|call| is_stream(call) && has_waited(call)) {
        Some(call) => Err(format!("no connection leads there, and its caller waited: {call:?}")),
        None => Ok(()),
    }
}

/// Checks that no response says that an existing user is unknown.
pub(super) fn unknown(agents: &[&Agent]) -> Result<(), String> {
    let is_unknown = |call: &Called<'_>| {
        call.outcome == SentOutcome::Failed(404)
            && agents.iter().any(|agent| agent.name() == call.user && !agent.guesses())
    };
    // A callee may send this response itself.
    let says_so = |call: &Called<'_>| agents.iter().any(|agent| agent.name() == call.user && agent.has_answered(404));
    match agents.iter().flat_map(|agent| agent.called()).find(|call| is_unknown(call) && !says_so(call)) {
        Some(call) => Err(format!("{} is a user, and was not known: {call:?}", call.user)),
        None => Ok(()),
    }
}
