//! Packets and events that a session leaves for its thread.

use std::net::SocketAddr;

use super::{PortPair, SessionEvent};

/// Packets and events that sessions leave for their thread. Nothing is allocated once the buffers are warm.
#[derive(Debug, Default)]
pub struct SessionOutput {
    /// Bytes of the packets, one after another.
    pub bytes: Vec<u8>,
    /// Packets to send, in order.
    pub packets: Vec<OutgoingPacket>,
    /// Events for the shard, in order.
    pub events: Vec<SessionEvent>,
}

/// Packet that leaves from a port of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutgoingPacket {
    /// Offset of the first byte in [`SessionOutput::bytes`].
    pub start: usize,
    /// Offset behind the last byte.
    pub end: usize,
    /// Ports of the leg.
    pub ports: PortPair,
    /// Set if the packet leaves from the port of RTCP.
    pub is_rtcp_port: bool,
    /// Target.
    pub to: SocketAddr,
}

impl SessionOutput {
    /// Removes packets and events, and keeps the buffers.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.packets.clear();
        self.events.clear();
    }

    /// Enters a packet whose bytes were appended from `start` on.
    pub(super) fn push(&mut self, start: usize, ports: PortPair, is_rtcp_port: bool, to: SocketAddr) {
        self.packets.push(OutgoingPacket { start, end: self.bytes.len(), ports, is_rtcp_port, to });
    }
}
