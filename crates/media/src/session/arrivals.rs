//! Datagrams at the ports of a leg.

use std::net::SocketAddr;

/// Datagrams at the ports of a leg, for the report about its stream.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Arrivals {
    /// Packets of other sources and of unknown payload types, and those that an echo does not send back.
    pub(super) dropped: u64,
    /// Packets of other sources.
    pub(super) refused: u64,
    /// Source of the last one of them.
    pub(super) refused_from: Option<SocketAddr>,
    /// Source of the last datagram at the port of RTP.
    pub(super) seen: Option<SocketAddr>,
    /// Time of the last packet of a stream that was accepted, in microseconds; RTCP is left out.
    pub(super) heard_at: Option<u64>,
}

impl Arrivals {
    /// Counts a packet of a source that may not send.
    pub(super) const fn refuse(&mut self, from: SocketAddr) {
        self.dropped += 1;
        self.refused += 1;
        self.refused_from = Some(from);
    }
}
