//! Packets and events that a session leaves for its thread.

use std::net::SocketAddr;

use super::{PortPair, SessionEvent};

/// Reason for which a received packet goes no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// Its source may not send.
    Source,
    /// It is no RTP or RTCP, or came to the wrong port.
    Unreadable,
    /// The peer, or the other side, has not agreed on its payload type.
    Format,
    /// Its direction is on hold, or the other side has no address yet.
    Hold,
    /// Its target may not be sent to before a packet has come from there.
    Unproven,
    /// The rate is too high for an echo, or for a host that has sent nothing. Or this session has sent the packet itself.
    Rate,
    /// Its sequence number is far from those before it, and the stream may not continue there.
    Jump,
}

impl DropReason {
    /// Number of reasons.
    pub const COUNT: usize = 7;
}

/// Packets and events that sessions leave for their thread. Nothing is allocated once the buffers are warm.
#[derive(Debug, Default)]
pub struct SessionOutput {
    /// Bytes of the packets, one after another.
    pub bytes: Vec<u8>,
    /// Packets to send, in order.
    pub packets: Vec<OutgoingPacket>,
    /// Events for the shard, in order.
    pub events: Vec<SessionEvent>,
    /// Received packets that went no further, by [`DropReason`].
    pub dropped: [u64; DropReason::COUNT],
    /// Samples of the last recorded packet, of 16 bits at 8,000 Hz.
    pub samples: Vec<i16>,
    /// Place of these samples in the recording; `None` if the owner has taken them.
    pub recorded: Option<u64>,
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
    /// Removes packets, events and counts, and keeps the buffers.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.packets.clear();
        self.events.clear();
        self.dropped = [0; DropReason::COUNT];
        self.recorded = None;
    }

    /// Counts a received packet that goes no further.
    pub(super) const fn count_dropped(&mut self, reason: DropReason) {
        self.dropped[reason as usize] += 1;
    }

    /// Enters a packet whose bytes were appended from `start` on.
    pub(super) fn push(&mut self, start: usize, ports: PortPair, is_rtcp_port: bool, to: SocketAddr) {
        self.packets.push(OutgoingPacket { start, end: self.bytes.len(), ports, is_rtcp_port, to });
    }
}
