//! State of the calls that end at this server, and its counts.

use super::Engine;
use crate::bridge::Bridges;
use crate::endpoint::Endpoints;
use crate::far_leg::FarLegs;
use crate::media_sessions::MediaSessions;

/// State of the calls of one shard that end at this server: those that it answers itself, and bridged ones.
#[derive(Debug, Default)]
pub(crate) struct Anchored {
    /// Calls that this server answers itself.
    pub(crate) endpoints: Endpoints,
    /// Calls that this server bridges.
    pub(crate) bridges: Bridges,
    /// Media sessions of both.
    pub(crate) media: MediaSessions,
    /// Far INVITEs of calls that this server makes for their callers.
    pub(crate) far_legs: FarLegs,
}

/// Counts of the state that one shard has for calls that end at this server. All but the free ports are 0 once no such call is left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnchoredCounts {
    /// Entries of the tables of bridged calls.
    pub bridges: usize,
    /// Entries of the tables of far legs.
    pub far_legs: usize,
    /// Calls of the user agent.
    pub agent_calls: usize,
    /// Requests of the user agent without a final response.
    pub agent_requests: usize,
    /// Media sessions whose end their thread has not confirmed.
    pub closing_sessions: usize,
    /// Pairs of media ports that no session uses.
    pub free_ports: usize,
}

impl AnchoredCounts {
    /// Returns the counts of an engine.
    pub fn of(engine: &Engine) -> Self {
        let agent = &engine.stack.agent;
        Self {
            bridges: engine.anchored.bridges.entries(),
            far_legs: engine.anchored.far_legs.entries(),
            agent_calls: agent.calls(),
            agent_requests: agent.requests(),
            closing_sessions: engine.anchored.media.closing(),
            free_ports: engine.anchored.media.ports.free(),
        }
    }

    /// Tells whether no call has state in the shard.
    pub const fn is_nothing(&self) -> bool {
        let calls = self.bridges + self.far_legs + self.agent_calls;
        calls + self.agent_requests + self.closing_sessions == 0
    }
}
