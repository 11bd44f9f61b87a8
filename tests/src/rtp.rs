//! RTP packets of G.711, one each 20 ms.

use std::time::Duration;

use strowger_media::rtp::Header;

/// Time between two packets.
pub const PACKET_TIME: Duration = Duration::from_millis(20);

/// Timestamp ticks and octets of a packet.
pub const TICKS: u32 = 160;

/// Returns a packet whose timestamp fits its sequence number. `source`: SSRC.
pub fn packet(payload_type: u8, source: u32, sequence: u16, payload: &[u8]) -> Vec<u8> {
    let mut packet = Vec::new();
    let timestamp = u32::from(sequence) * TICKS;
    Header { payload_type, marker: false, sequence, timestamp, source }.write(&mut packet);
    packet.extend_from_slice(payload);
    packet
}
