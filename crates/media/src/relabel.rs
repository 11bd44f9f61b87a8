//! Headers of a relayed stream: each leg has its own SSRC, sequence numbers, timestamps and payload types.

use crate::clock::ticks;
use crate::rtp::{Header, Packet};

/// Numbering of the packets that are sent to one peer, whatever their sources.
///
/// Within a source, gaps, reordering and duplicates are preserved, so that the peer's statistics are those of the whole path. The next
/// source continues where the last one ended: with the next sequence number, a timestamp that is later by the time between both sources,
/// and the marker. Sound of this process is also a source, with headers of a [`Numbering`](crate::rtp::Numbering).
#[derive(Clone, Copy, Debug)]
pub struct Relabel {
    /// SSRC towards the peer.
    source: u32,
    /// Ticks of the payload's clock in a second.
    clock_rate: u32,
    from: Option<Offsets>,
    last: Last,
}

/// Differences between the headers towards the peer and those of the current source.
#[derive(Clone, Copy, Debug)]
struct Offsets {
    /// SSRC of the source.
    source: u32,
    sequence: u16,
    timestamp: u32,
}

/// Newest packet towards the peer.
#[derive(Clone, Copy, Debug)]
struct Last {
    sequence: u16,
    timestamp: u32,
    /// Time of the first packet with this timestamp in microseconds. `None`: nothing was sent.
    at: Option<u64>,
}

impl Relabel {
    /// Creates the numbering. `sequence` and `timestamp` are those of the first packet. Both values and the SSRC should be unpredictable to
    /// other parties (RFC 3550 section 5.1). `clock_rate`: ticks in a second.
    pub const fn new(source: u32, sequence: u16, timestamp: u32, clock_rate: u32) -> Self {
        Self { source, clock_rate, from: None, last: Last { sequence, timestamp, at: None } }
    }

    /// Returns the SSRC towards the peer.
    pub const fn source(&self) -> u32 {
        self.source
    }

    /// Returns the SSRC of the current source, and its sequence number of the packet that went to the peer with `sequence`; `None` before the
    /// first packet of a source.
    pub fn original(&self, sequence: u16) -> Option<(u32, u16)> {
        self.from.map(|from| (from.source, sequence.wrapping_sub(from.sequence)))
    }

    /// Returns the ticks of the timestamps in a second.
    pub const fn clock_rate(&self) -> u32 {
        self.clock_rate
    }

    /// Sets the ticks of later timestamps in a second, after a change of the codec. The next packet begins a source.
    pub const fn set_clock_rate(&mut self, clock_rate: u32) {
        self.clock_rate = clock_rate;
        self.from = None;
    }

    /// Makes the next packet begin a source, even if its SSRC is the same: the packet is of another peer, or of a peer
    /// that has restarted.
    pub const fn cut(&mut self) {
        self.from = None;
    }

    /// Returns the header towards the peer of a packet that is relayed at `now`, in microseconds.
    pub fn header(&mut self, now: u64, header: &Header, payload_type: u8) -> Header {
        let known = self.from.filter(|from| from.source == header.source);
        let from = known.unwrap_or_else(|| self.begin(now, header));
        let relabelled = Header {
            payload_type,
            marker: header.marker || known.is_none(),
            sequence: header.sequence.wrapping_add(from.sequence),
            timestamp: header.timestamp.wrapping_add(from.timestamp),
            source: self.source,
        };
        let is_newer = relabelled.sequence.wrapping_sub(self.last.sequence).cast_signed() > 0;
        if is_newer || self.last.at.is_none() {
            self.last.sequence = relabelled.sequence;
            // Packets of a telephone event share the timestamp of its begin.
            let is_later = relabelled.timestamp.wrapping_sub(self.last.timestamp).cast_signed() > 0;
            if is_later || self.last.at.is_none() {
                (self.last.timestamp, self.last.at) = (relabelled.timestamp, Some(now));
            }
        }
        relabelled
    }

    /// Appends a packet as it is relayed at `now`. Contributors, extension and padding are left out, because they were agreed with the
    /// other leg.
    pub fn write(&mut self, now: u64, packet: &Packet<'_>, payload_type: u8, out: &mut Vec<u8>) -> Header {
        let header = self.header(now, &packet.header, payload_type);
        header.write(out);
        out.extend_from_slice(packet.payload);
        header
    }

    /// Begins a source with this packet.
    fn begin(&mut self, now: u64, header: &Header) -> Offsets {
        let Last { sequence, timestamp, at } = self.last;
        let (sequence, timestamp) = match at {
            None => (sequence, timestamp),
            Some(at) => {
                let since = ticks(now.saturating_sub(at), self.clock_rate).max(1);
                (sequence.wrapping_add(1), timestamp.wrapping_add(since))
            }
        };
        let offsets = Offsets {
            source: header.source,
            sequence: sequence.wrapping_sub(header.sequence),
            timestamp: timestamp.wrapping_sub(header.timestamp),
        };
        self.from = Some(offsets);
        offsets
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header(source: u32, sequence: u16, timestamp: u32) -> Header {
        Header { payload_type: 0, marker: false, sequence, timestamp, source }
    }

    fn figures(header: Header) -> (u16, u32, bool) {
        (header.sequence, header.timestamp, header.marker)
    }

    #[test]
    fn gaps_stay_and_sources_follow_each_other() {
        let mut relabel = Relabel::new(9, u16::MAX, 1_000, 8_000);
        let mut relay = |ms: u64, source: u32, sequence: u16, timestamp: u32| {
            let header = relabel.header(ms * 1_000, &header(source, sequence, timestamp), 8);
            assert_eq!((header.source, header.payload_type), (9, 8));
            figures(header)
        };
        assert_eq!(relay(0, 1, 500, 70_000), (u16::MAX, 1_000, true));
        // A loss, a late packet, a duplicate.
        assert_eq!(relay(40, 1, 502, 70_320), (1, 1_320, false));
        assert_eq!(relay(45, 1, 501, 70_160), (0, 1_160, false));
        assert_eq!(relay(50, 1, 502, 70_320), (1, 1_320, false));
        // Another source, 100 ms after the newest packet.
        assert_eq!(relay(140, 2, 9, 5), (2, 2_120, true));
        assert_eq!(relay(160, 2, 10, 165), (3, 2_280, false));
        // The first one again: all of it is new.
        assert_eq!(relay(160, 1, 503, 70_480), (4, 2_281, true));
    }

    #[test]
    fn a_cut_begins_a_source() {
        let mut relabel = Relabel::new(9, 0, 0, 8_000);
        let first = relabel.header(0, &header(1, 7, 100), 0);
        assert_eq!(figures(first), (0, 0, true));
        relabel.cut();
        assert_eq!(figures(relabel.header(20_000, &header(1, 40_000, 1 << 31), 0)), (1, 160, true));
        // A clock of 48,000 Hz.
        relabel.set_clock_rate(48_000);
        assert_eq!(figures(relabel.header(40_000, &header(1, 40_001, 1 << 30), 0)), (2, 1_120, true));
    }

    #[test]
    fn timestamps_go_on_after_an_event() {
        let mut relabel = Relabel::new(9, 0, 0, 8_000);
        for place in 0..10 {
            // An event of 200 ms that began at 0.
            relabel.header(u64::from(place) * 20_000, &header(1, place, 800), 101);
        }
        assert_eq!(figures(relabel.header(200_000, &header(2, 0, 0), 0)), (10, 1_600, true));
    }

    #[test]
    fn packets_are_written_without_parts_of_the_other_leg() {
        let datagram = b"\xb1\x00\0\x01\0\0\0\x02\0\0\0\x03CSRC\xbe\xde\0\x01wordsound\0\x02";
        let packet = Packet::read(datagram).expect("a packet");
        let mut out = Vec::new();
        Relabel::new(9, 5, 6, 8_000).write(0, &packet, 8, &mut out);
        assert_eq!(out, b"\x80\x88\0\x05\0\0\0\x06\0\0\0\x09sound");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Checks that all differences within a source are preserved.
        #[test]
        fn differences_stay(
            start in any::<(u32, u16, u32)>(),
            packets in prop::collection::vec((any::<u16>(), any::<u32>(), any::<bool>(), any::<u64>()), 1..50),
        ) {
            let mut relabel = Relabel::new(start.0, start.1, start.2, 8_000);
            let mut first = None;
            for (sequence, timestamp, marker, now) in packets {
                let packet = Header { marker, ..header(7, sequence, timestamp) };
                let relayed = relabel.header(now, &packet, 0);
                let (from, to) = *first.get_or_insert((packet, relayed));
                prop_assert_eq!(relayed.sequence.wrapping_sub(to.sequence), sequence.wrapping_sub(from.sequence));
                prop_assert_eq!(relayed.timestamp.wrapping_sub(to.timestamp), timestamp.wrapping_sub(from.timestamp));
                prop_assert!(relayed.marker || !marker);
            }
            prop_assert_eq!(first.map(|(_, to)| (to.sequence, to.timestamp)), Some((start.1, start.2)));
        }

        /// Checks that consecutive sources leave no gap, and that the time never decreases.
        #[test]
        fn sources_leave_no_gap(sources in prop::collection::vec((any::<u32>(), any::<u16>(), any::<u32>()), 1..50)) {
            let mut relabel = Relabel::new(1, 0, 0, 8_000);
            let mut before: Option<Header> = None;
            for (place, (source, sequence, timestamp)) in sources.into_iter().enumerate() {
                relabel.cut();
                let relayed = relabel.header(place as u64 * 20_000, &header(source, sequence, timestamp), 0);
                prop_assert!(relayed.marker);
                if let Some(before) = before {
                    prop_assert_eq!(relayed.sequence, before.sequence.wrapping_add(1));
                    prop_assert_eq!(relayed.timestamp, before.timestamp.wrapping_add(160));
                }
                before = Some(relayed);
            }
        }
    }
}
