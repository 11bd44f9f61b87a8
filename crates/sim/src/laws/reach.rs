//! Who is registered is reached, by new calls and by requests of calls that stand; and who has lost the way to its server is not there, which
//! its callers hear at once, until it has registered again.

use crate::agent::{Agent, Called, Outcome};
use crate::server::LIMITED;

/// How a caller hears that a user is not there, or that nothing leads to an address.
const NOT_THERE: [u16; 3] = [480, 500, 408];

/// How an agent that could be reached all the time was not. `may_fail`: so may look-ups, which is answered 500 too.
pub(super) fn missed(agents: &[&Agent], may_fail: bool) -> Result<(), String> {
    for call in agents.iter().flat_map(|agent| agent.called()) {
        let is_here =
            |agent: &&Agent| is_for(&call, agent) && agent.presence().is_reachable(call.started, call.finished);
        // What a phone says itself becomes that too, where it takes no connections (RFC 3263 section 4.3).
        let says = |status| agents.iter().any(|agent| is_for(&call, agent) && agent.has_answered(status));
        let is_missed = match call.outcome {
            Outcome::Failed(480) => !says(503),
            // By its address, over the connection that it lent.
            Outcome::Failed(status) => {
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
        for bye in agent.hung_up().filter(|bye| bye.outcome == Outcome::Failed(480)) {
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

/// The call is for this agent: of two with one name, an address in the URI means the one that has it.
fn is_for(call: &Called<'_>, agent: &Agent) -> bool {
    let is_by_address = call.to.contains(";transport=");
    agent.name() == call.user && (!is_by_address || call.to.contains(&format!("@{};", agent.address())))
}

/// How a caller had to wait for an agent that was not there, or heard something else. `at_once`: ms.
pub(super) fn waited(agents: &[&Agent], at_once: u64) -> Result<(), String> {
    // Who calls bob hears the mailbox, where there is one.
    let is_answered_for =
        |call: &Called<'_>| call.user == "bob" && agents.iter().any(|agent| agent.name() == "mailbox");
    for call in agents.iter().flat_map(|agent| agent.called()).filter(|call| !is_answered_for(call)) {
        let is_called = |agent: &&&Agent| agent.name() == call.user;
        let is_lost = |agent: &&Agent| agent.presence().is_lost(call.started, call.finished);
        let mut called = agents.iter().filter(is_called).peekable();
        if called.peek().is_none() || !called.all(is_lost) || call.to.contains(";transport=") {
            continue;
        }
        let is_right = matches!(call.outcome, Outcome::Failed(407 | 480 | 487 | 500 | 503 | LIMITED))
            || call.outcome == Outcome::Forgotten;
        if !is_right || call.finished.saturating_sub(call.started) > at_once {
            return Err(format!("{} has lost its connection: {call:?}", call.user));
        }
    }
    Ok(())
}

/// How a caller had to wait though what it sent could not go on.
pub(super) fn unsent(agents: &[&Agent]) -> Result<(), String> {
    let is_stream = |call: &Called<'_>| call.user == "void" && call.to.contains(";transport=");
    let has_waited = |call: &Called<'_>| matches!(call.outcome, Outcome::Failed(408) | Outcome::Timeout);
    match agents.iter().flat_map(|agent| agent.called()).find(|call| is_stream(call) && has_waited(call)) {
        Some(call) => Err(format!("no connection leads there, and its caller waited: {call:?}")),
        None => Ok(()),
    }
}

/// A user who exists is never unknown.
pub(super) fn unknown(agents: &[&Agent]) -> Result<(), String> {
    let is_unknown = |call: &Called<'_>| {
        call.outcome == Outcome::Failed(404) && agents.iter().any(|agent| agent.name() == call.user && !agent.guesses())
    };
    // A callee may say so itself.
    let says_so = |call: &Called<'_>| agents.iter().any(|agent| agent.name() == call.user && agent.has_answered(404));
    match agents.iter().flat_map(|agent| agent.called()).find(|call| is_unknown(call) && !says_so(call)) {
        Some(call) => Err(format!("{} is a user, and was not known: {call:?}", call.user)),
        None => Ok(()),
    }
}
