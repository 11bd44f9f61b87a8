//! Content of a stream.

use super::capture::Capture;
use std::sync::Arc;
use strowger_scenario::action::StreamFormat;

/// Content of a stream; all streams share the files.
#[derive(Clone, Debug)]
pub enum Track {
    /// Coded sound or pictures, cut into packets. The last packet of a turn continues at the start of the file, so that
    /// every packet is full.
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
    /// Plays a file `turns` times (negative: without end). Each turn has as many packets as one pass needs.
    pub fn samples(bytes: Arc<[u8]>, turns: i32, format: StreamFormat) -> Self {
        let each = bytes.len().div_ceil(usize::from(format.bytes_per_packet).max(1)) as u64;
        let packets = u64::try_from(turns).ok().map(|turns| turns * each);
        Self::Samples { bytes, format, packets }
    }
}

/// Header of an RTP packet (RFC 3550 section 5.1) without contributing sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) payload_type: u8,
    /// Sound begins after silence (RFC 3551 section 4.1).
    pub(super) marker: bool,
    pub(super) sequence: u16,
    pub(super) timestamp: u32,
    pub(super) source: u32,
}

impl Header {
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        // Version 2, no padding, no extension.
        out.extend([0x80, u8::from(self.marker) << 7 | self.payload_type & 0x7f]);
        out.extend(self.sequence.to_be_bytes());
        out.extend(self.timestamp.to_be_bytes());
        out.extend(self.source.to_be_bytes());
    }
}

/// Appends `length` bytes from `at` on, wrapping at the end. Returns the next offset.
pub(super) fn around(bytes: &[u8], at: usize, length: usize, out: &mut Vec<u8>) -> usize {
    let mut at = at % bytes.len().max(1);
    let mut left = length;
    while left > 0 && !bytes.is_empty() {
        let now = left.min(bytes.len() - at);
        out.extend_from_slice(&bytes[at..at + now]);
        left -= now;
        at = (at + now) % bytes.len();
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers() {
        let mut out = Vec::new();
        Header { payload_type: 8, marker: true, sequence: 0x1234, timestamp: 0x0102_0304, source: 0xa1b2_c3d4 }
            .write(&mut out);
        assert_eq!(out, [0x80, 0x88, 0x12, 0x34, 1, 2, 3, 4, 0xa1, 0xb2, 0xc3, 0xd4]);
    }

    #[test]
    fn files_go_around() {
        let mut out = Vec::new();
        let at = around(b"abcde", 3, 9, &mut out);
        assert_eq!((&out[..], at), (&b"deabcdeab"[..], 2));
        let format =
            StreamFormat { payload_type: 8, bytes_per_packet: 160, milliseconds_per_packet: 20, ticks_per_packet: 160 };
        let packets = |turns| match Track::samples(vec![0; 250].into(), turns, format) {
            Track::Samples { packets, .. } => packets,
            Track::Capture(_) => None,
        };
        assert_eq!((packets(2), packets(-1)), (Some(4), None));
    }
}
