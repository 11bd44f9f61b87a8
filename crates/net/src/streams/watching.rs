//! Events of connections: which have data or room, which are made.

use crate::connection::{Connection, Phase};
use crate::edge_readiness::Edge;
use crate::flags::Flags;
use crate::ready_queue::{ReadyQueue, Work};

/// Work that events of sockets ask for.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// Connections that may have data.
    pub(crate) queue: ReadyQueue,
    /// Connections with waiting bytes whose sockets may have room.
    pub(super) resumable: Vec<u32>,
    /// Connections whose attempt to connect has ended: slot and generation.
    pub(super) connected: Vec<(u32, u32)>,
}

impl Watch {
    /// Notes events of a connection. `now`: time in milliseconds.
    pub(super) fn note(&mut self, (slot, generation): (u32, u32), connection: &mut Connection, edge: Edge, now: u64) {
        if edge.read_closed {
            connection.flags.insert(Flags::READ_CLOSED);
        }
        if connection.phase == Phase::Dialling {
            if edge.writable || edge.read_closed {
                self.connected.push((slot, generation));
            }
            return;
        }
        if edge.writable && !connection.waiting.is_empty() {
            self.resumable.push(slot);
        }
        if edge.readable || edge.read_closed {
            self.queue_up((slot, generation), connection, now);
        }
    }

    /// Appends a connection to the queue, unless it is in it, rests or has no more data.
    pub(super) fn queue_up(&mut self, (slot, generation): (u32, u32), connection: &mut Connection, now: u64) {
        let flags = &mut connection.flags;
        if flags.has(Flags::PAUSED) || flags.has(Flags::READ_DONE) || !flags.insert(Flags::QUEUED) {
            return;
        }
        let work = if connection.phase == Phase::Tls { Work::Handshake } else { Work::Messages };
        self.queue.push(slot, generation, work, now);
    }
}
