//! Closed connections of registered phones (RFC 5626 section 3.2: a flow that failed is not used).
//!
//! A binding outlives its connection. The flow of such a binding is unusable: no peer listens on the source port of the
//! connection. So each shard notes here which of its connections have closed. Open connections are not noted, because
//! another shard may handle the REGISTER after its connection has closed.

use std::sync::{Mutex, MutexGuard, PoisonError};
use strowger_core::Flow;

/// Closed connections of the process; 4 bytes for each slot. A lock is held only for one look-up.
#[derive(Debug)]
pub(crate) struct Flows {
    node: u16,
    process: u16,
    /// Generation of the connection that closed last, by shard and slot. A shard begins once in a process, so the
    /// generations of a slot only grow, from more than 0.
    shards: Box<[Mutex<Vec<u32>>]>,
}

impl Flows {
    /// Creates the table for the connections of this process on this node, with this number of shards.
    pub(crate) fn new(node: u16, process: u16, shards: usize) -> Self {
        Self { node, process, shards: (0..shards).map(|_| Mutex::default()).collect() }
    }

    /// Notes that this connection has closed. Earlier connections in the same slot have closed before.
    pub(crate) fn closed(&self, flow: Flow) {
        let Some(mut slots) = self.shard(flow) else { return };
        let slot = flow.slot as usize;
        if slots.len() <= slot {
            slots.resize(slot + 1, 0);
        }
        slots[slot] = flow.generation;
    }

    /// Tells whether the connection of a request is still open. Connections of another process, that is, of this server
    /// before its restart, count as closed.
    pub(crate) fn is_open(&self, flow: Flow) -> bool {
        let Some(slots) = self.shard(flow) else { return false };
        let ended = slots.get(flow.slot as usize).copied().unwrap_or(0);
        // The numbers of generations wrap around after two thousand million connections.
        flow.generation.wrapping_sub(ended).cast_signed() > 0
    }

    fn shard(&self, flow: Flow) -> Option<MutexGuard<'_, Vec<u32>>> {
        let own = flow.node == self.node && flow.process == self.process;
        let shard = self.shards.get(flow.shard as usize).filter(|_| own)?;
        Some(shard.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_is_open_until_its_connection_ends() {
        let flows = Flows::new(0, 7, 2);
        let flow = Flow { node: 0, process: 7, shard: 1, slot: 3, generation: 1 };
        assert!(flows.is_open(flow));
        for foreign in [Flow { node: 1, ..flow }, Flow { process: 8, ..flow }, Flow { shard: 2, ..flow }] {
            assert!(!flows.is_open(foreign), "{foreign:?}");
            flows.closed(foreign);
        }
        for other in [Flow { shard: 0, ..flow }, Flow { slot: 2, ..flow }, Flow { slot: 4, ..flow }] {
            flows.closed(other);
            assert!(flows.is_open(flow) && !flows.is_open(other), "{other:?}");
        }
        flows.closed(flow);
        assert!(!flows.is_open(flow), "also for the first look after it has ended");
        // The slot serves another connection; the generation between these two was never used.
        let next = Flow { generation: 3, ..flow };
        assert!(flows.is_open(next) && !flows.is_open(flow));
        flows.closed(next);
        assert!(!flows.is_open(next) && !flows.is_open(flow));
    }

    #[test]
    fn generations_may_start_again() {
        let flows = Flows::new(0, 7, 1);
        let flow = |generation| Flow { node: 0, process: 7, shard: 0, slot: 0, generation };
        flows.closed(flow(1 << 31));
        flows.closed(flow(u32::MAX));
        assert!(flows.is_open(flow(0)) && flows.is_open(flow(5)) && !flows.is_open(flow(u32::MAX - 1)));
    }
}
