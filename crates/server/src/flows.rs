//! Which connections that a phone registered over are still open (RFC 5626 section 3.2: a flow that failed is not used).
//!
//! A binding outlives its connection, and its flow then leads nowhere: to dial where the connection came from reaches a port
//! that nobody listens on. So each shard says here which of its connections carried a REGISTER, and when one ends.

use std::sync::{Mutex, MutexGuard, PoisonError};
use strowger_core::Flow;

/// Process-wide; 4 bytes for each slot of a connection that carried a REGISTER. A lock is held for one look alone.
#[derive(Debug)]
pub struct Flows {
    process: u16,
    /// Of each shard: the generation of the connection in a slot, 0 for none. A connection's own begins at 1.
    shards: Box<[Mutex<Vec<u32>>]>,
}

impl Flows {
    /// For the connections of this process and of so many shards.
    pub fn new(process: u16, shards: usize) -> Self {
        Self { process, shards: (0..shards).map(|_| Mutex::default()).collect() }
    }

    /// A REGISTER has come by this connection, which is open.
    pub fn opened(&self, flow: Flow) {
        let Some(mut slots) = self.shard(flow) else { return };
        let slot = flow.slot as usize;
        if slots.len() <= slot {
            slots.resize(slot + 1, 0);
        }
        slots[slot] = flow.generation;
    }

    /// This connection has ended.
    pub fn closed(&self, flow: Flow) {
        if let Some(mut slots) = self.shard(flow)
            && let Some(generation) = slots.get_mut(flow.slot as usize)
            && *generation == flow.generation
        {
            *generation = 0;
        }
    }

    /// Whether a connection that was [opened](Self::opened) has not ended. Those of another process have: of this server
    /// before it was started again.
    pub fn is_open(&self, flow: Flow) -> bool {
        self.shard(flow).is_some_and(|slots| slots.get(flow.slot as usize) == Some(&flow.generation))
    }

    fn shard(&self, flow: Flow) -> Option<MutexGuard<'_, Vec<u32>>> {
        let shard = self.shards.get(flow.shard as usize).filter(|_| flow.process == self.process)?;
        Some(shard.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_is_open_until_its_connection_ends() {
        let flows = Flows::new(7, 2);
        let flow = Flow { node: 0, process: 7, shard: 1, slot: 3, generation: 1 };
        assert!(!flows.is_open(flow));
        flows.opened(flow);
        assert!(flows.is_open(flow));
        for other in [
            Flow { process: 8, ..flow },
            Flow { shard: 0, ..flow },
            Flow { shard: 2, ..flow },
            Flow { slot: 2, ..flow },
            Flow { slot: 4, ..flow },
            Flow { generation: 2, ..flow },
        ] {
            assert!(!flows.is_open(other), "{other:?}");
            flows.closed(other);
        }
        assert!(flows.is_open(flow));
        flows.closed(flow);
        assert!(!flows.is_open(flow));
        // The slot serves another connection.
        let next = Flow { generation: 2, ..flow };
        flows.opened(next);
        flows.closed(flow);
        assert!(flows.is_open(next) && !flows.is_open(flow));
    }
}
