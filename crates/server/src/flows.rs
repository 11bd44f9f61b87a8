//! Closed connections of registered phones (RFC 5626 section 3.2: a flow that failed is not used), and registrations and
//! keep-alives of open ones.
//!
//! A binding outlives its connection. The flow of such a binding is unusable: no peer listens on the source port of the
//! connection. So each shard notes here which of its connections have closed. Open connections are not noted, because
//! another shard may handle the REGISTER after its connection has closed.

use std::sync::{Mutex, MutexGuard, PoisonError};
use strowger_core::{Flow, Now};

/// Connections of the process, 12 bytes for each slot. A lock is held only for one look-up.
#[derive(Debug)]
pub(crate) struct Flows {
    node: u16,
    process: u16,
    /// State by shard and slot.
    shards: Box<[Mutex<Vec<SlotState>>]>,
}

/// State of a slot of a shard.
#[derive(Clone, Copy, Debug, Default)]
struct SlotState {
    /// Generation of the connection that closed last. A shard begins once in a process, so the generations of a slot
    /// only grow, from more than 0.
    ended: u32,
    /// Time of the last noted keep-alive of the peer of the open connection, in seconds of [`Now::mono`], plus 1; 0: there was none.
    kept_alive: u32,
    /// End of the last registration over the open connection, in seconds of [`Now::mono`], rounded up; 0: there was none.
    registered_until: u32,
}

impl Flows {
    /// Creates the table for the connections of this process on this node, with this number of shards.
    pub(crate) fn new(node: u16, process: u16, shards: usize) -> Self {
        Self { node, process, shards: (0..shards).map(|_| Mutex::default()).collect() }
    }

    /// Notes that this connection has closed. Earlier connections in the same slot have closed before.
    pub(crate) fn closed(&self, flow: Flow) {
        let Some(mut slots) = self.shard(flow) else { return };
        *at(&mut slots, flow) = SlotState { ended: flow.generation, ..SlotState::default() };
    }

    /// Notes that the peer of this open connection has sent a keep-alive.
    pub(crate) fn kept_alive(&self, now: Now, flow: Flow) {
        let Some(mut slots) = self.shard(flow) else { return };
        at(&mut slots, flow).kept_alive = seconds(now).saturating_add(1);
    }

    /// Tells whether the peer of this open connection has sent a keep-alive within this number of seconds.
    pub(crate) fn is_kept_alive(&self, now: Now, flow: Flow, within: u32) -> bool {
        let Some(slots) = self.shard(flow) else { return false };
        let last = slots.get(flow.slot as usize).and_then(|slot| slot.kept_alive.checked_sub(1));
        last.is_some_and(|last| seconds(now).saturating_sub(last) <= within)
    }

    /// Notes that a phone has registered over this connection until a time in milliseconds of [`Now::mono`]. The
    /// connection may have closed meanwhile.
    pub(crate) fn registered(&self, flow: Flow, until: u64) {
        let Some(mut slots) = self.shard(flow) else { return };
        let slot = at(&mut slots, flow);
        if is_later(flow.generation, slot.ended) {
            let until = u32::try_from(until.div_ceil(1_000)).unwrap_or(u32::MAX);
            slot.registered_until = slot.registered_until.max(until);
        }
    }

    /// Returns the end of the last registration over this open connection, in milliseconds of [`Now::mono`]; `None` if it
    /// has passed, or there was none.
    pub(crate) fn registered_until(&self, now: Now, flow: Flow) -> Option<u64> {
        let slots = self.shard(flow)?;
        let until = slots.get(flow.slot as usize).map_or(0, |slot| u64::from(slot.registered_until) * 1_000);
        Some(until).filter(|until| *until > now.mono)
    }

    /// Tells whether the connection of a request is still open. Connections of another process, that is, of this server
    /// before its restart, count as closed.
    pub(crate) fn is_open(&self, flow: Flow) -> bool {
        let Some(slots) = self.shard(flow) else { return false };
        let ended = slots.get(flow.slot as usize).map_or(0, |slot| slot.ended);
        is_later(flow.generation, ended)
    }

    fn shard(&self, flow: Flow) -> Option<MutexGuard<'_, Vec<SlotState>>> {
        let own = flow.node == self.node && flow.process == self.process;
        let shard = self.shards.get(flow.shard as usize).filter(|_| own)?;
        Some(shard.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Tells whether a generation follows another one. The numbers wrap around after two thousand million connections.
const fn is_later(generation: u32, ended: u32) -> bool {
    generation.wrapping_sub(ended).cast_signed() > 0
}

/// Returns the state of the slot of a flow.
fn at(slots: &mut Vec<SlotState>, flow: Flow) -> &mut SlotState {
    let slot = flow.slot as usize;
    if slots.len() <= slot {
        slots.resize(slot + 1, SlotState::default());
    }
    &mut slots[slot]
}

fn seconds(now: Now) -> u32 {
    u32::try_from(now.mono / 1_000).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_second(second: u64) -> Now {
        Now { mono: second * 1_000, wall: 0 }
    }

    #[test]
    fn a_keep_alive_is_of_one_connection_and_of_a_time() {
        let flows = Flows::new(0, 7, 1);
        let flow = Flow { node: 0, process: 7, shard: 0, slot: 3, generation: 1 };
        assert!(!flows.is_kept_alive(at_second(0), flow, 130));
        flows.kept_alive(at_second(100), flow);
        assert!(flows.is_kept_alive(at_second(230), flow, 130) && !flows.is_kept_alive(at_second(231), flow, 130));
        assert!(flows.is_open(flow) && !flows.is_kept_alive(at_second(100), Flow { slot: 2, ..flow }, 130));
        flows.closed(flow);
        let next = Flow { generation: 2, ..flow };
        assert!(flows.is_open(next) && !flows.is_kept_alive(at_second(101), next, 130));
    }

    #[test]
    fn a_registration_is_of_one_connection_and_ends() {
        let flows = Flows::new(0, 7, 1);
        let flow = Flow { node: 0, process: 7, shard: 0, slot: 3, generation: 1 };
        assert_eq!(flows.registered_until(at_second(0), flow), None);
        flows.registered(flow, 60_001);
        // Another user of the same phone, for a shorter time.
        flows.registered(flow, 30_000);
        assert_eq!(flows.registered_until(at_second(60), flow), Some(61_000));
        assert_eq!(flows.registered_until(at_second(61), flow), None);
        flows.closed(flow);
        let next = Flow { generation: 2, ..flow };
        assert_eq!(flows.registered_until(at_second(0), next), None);
        // The answer of the registrar came after the end.
        flows.registered(flow, 90_000);
        assert_eq!(flows.registered_until(at_second(0), next), None);
        flows.registered(next, 90_000);
        assert_eq!(flows.registered_until(at_second(0), next), Some(90_000));
    }

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
