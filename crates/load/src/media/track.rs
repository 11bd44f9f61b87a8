//! Content of a stream.

use super::capture::Capture;
use std::sync::Arc;
use strowger_media::payload_type::StreamFormat;

/// Content of a stream; all streams share the files.
#[derive(Clone, Debug)]
pub enum Track {
    /// Coded sound or pictures, cut into packets. The last packet of a pass is filled from the start of the file, so
    /// that every packet is full.
    Samples {
        /// Not empty.
        bytes: Arc<[u8]>,
        format: StreamFormat,
        /// Number of packets to send; `None`: without end.
        packets: Option<u64>,
    },
    /// Captured datagrams, at their times.
    Capture(Arc<Capture>),
}

impl Track {
    /// Plays a file `turns` times (negative: without end). Each turn has the number of packets that one pass needs.
    pub fn samples(bytes: Arc<[u8]>, turns: i32, format: StreamFormat) -> Self {
        let each = bytes.len().div_ceil(usize::from(format.bytes_per_packet).max(1)) as u64;
        let packets = u64::try_from(turns).ok().map(|turns| turns * each);
        Self::Samples { bytes, format, packets }
    }

    /// Returns its length, microseconds; [`u64::MAX`]: without end.
    pub(super) fn length(&self) -> u64 {
        match self {
            Self::Samples { format, packets, .. } => {
                let each = 1_000 * u64::from(format.milliseconds_per_packet.max(1));
                packets.map_or(u64::MAX, |packets| packets.saturating_mul(each))
            }
            Self::Capture(capture) => capture.packets().last().map_or(0, |packet| packet.at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_turn_has_whole_packets() {
        let format =
            StreamFormat { payload_type: 8, bytes_per_packet: 160, milliseconds_per_packet: 20, ticks_per_packet: 160 };
        let packets = |turns| match Track::samples(vec![0; 250].into(), turns, format) {
            Track::Samples { packets, .. } => packets,
            Track::Capture(_) => None,
        };
        assert_eq!((packets(2), packets(-1)), (Some(4), None));
        let length = |turns| Track::samples(vec![0; 250].into(), turns, format).length();
        assert_eq!((length(2), length(-1)), (80_000, u64::MAX));
    }
}
