//! RTCP: compound packets (RFC 3550 section 6).

mod read;
mod write;

pub use read::{Blocks, Chunk, Chunks, Packets, RtcpError, RtcpPacket, Sources, read};
pub use write::CompoundWriter;

/// Packet types (RFC 3550 section 12.1).
pub const SENDER_REPORT: u8 = 200;
pub const RECEIVER_REPORT: u8 = 201;
pub const DESCRIPTION: u8 = 202;
pub const GOODBYE: u8 = 203;

/// Packet types of feedback (RFC 4585 section 6.1).
pub const TRANSPORT_FEEDBACK: u8 = 205;
pub const PAYLOAD_FEEDBACK: u8 = 206;

/// Item of a description: canonical name (RFC 3550 section 6.5.1).
const CNAME: u8 = 1;

/// Limit of report blocks, chunks or sources in a packet.
pub const MOST: usize = 31;

/// Returns whether a datagram on a common port is RTCP instead of RTP (RFC 5761 section 4): the packet types 192 to 223
/// are no payload types on such a port.
pub const fn is_rtcp(datagram: &[u8]) -> bool {
    matches!(datagram, [_, 192..=223, ..])
}

/// Returns the time until the next report of a party of two, in microseconds (RFC 3550 section 6.2, appendix A.7): about five seconds on
/// average, and half of that before the first report. `random`: uniform over all values, so that the parties do not synchronise.
pub const fn report_interval(random: u32, is_first: bool) -> u64 {
    let average = if is_first { 2_500_000 } else { 5_000_000 };
    let drawn = average / 2 + ((average * random as u64) >> 32);
    // The timer reconsideration of the RFC would make the average too long by e - 3/2.
    drawn * 100_000 / 121_828
}

/// Sender's part of a sender report (RFC 3550 section 6.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SenderInfo {
    /// NTP timestamp: seconds since 1900 in the upper 32 bits, their fraction in the lower.
    pub ntp: u64,
    /// The same time in ticks of the payload's clock, as in RTP packets.
    pub timestamp: u32,
    /// Packets sent so far, modulo 2^32.
    pub packets: u32,
    /// Bytes of their payloads, modulo 2^32.
    pub octets: u32,
}

/// Report block about a received source (RFC 3550 section 6.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportBlock {
    /// SSRC.
    pub source: u32,
    /// Share lost since the last report, in 1/256; 0 if duplicates exceed the losses.
    pub fraction_lost: u8,
    /// Packets lost so far, from -8,388,608 to 8,388,607; each duplicate subtracts one.
    pub lost: i32,
    /// Highest sequence number received; cycles in the upper 16 bits.
    pub highest: u32,
    /// Interarrival jitter in ticks of the payload's clock.
    pub jitter: u32,
    /// Middle 32 bits of the NTP timestamp of the source's last sender report, or 0 if none was received.
    pub last_report: u32,
    /// Time since that report in 1/65,536 s.
    pub delay: u32,
}

/// Bounds of the packets lost in a report block.
pub(crate) const LOST: (i64, i64) = (-0x80_0000, 0x7f_ffff);

impl ReportBlock {
    fn of(bytes: &[u8; 24]) -> Self {
        let word = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        Self {
            source: word(0),
            fraction_lost: bytes[4],
            // The sign of 24 bits.
            lost: (word(4) << 8).cast_signed() >> 8,
            highest: word(8),
            jitter: word(12),
            last_report: word(16),
            delay: word(20),
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        let lost = i64::from(self.lost).clamp(LOST.0, LOST.1) as u32 & 0xff_ffff;
        let second = u32::from(self.fraction_lost) << 24 | lost;
        for word in [self.source, second, self.highest, self.jitter, self.last_report, self.delay] {
            out.extend(word.to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: ReportBlock =
        ReportBlock { source: 7, fraction_lost: 51, lost: -2, highest: 0x1_0002, jitter: 14, last_report: 9, delay: 5 };
    const INFO: SenderInfo = SenderInfo { ntp: 1 << 63 | 5, timestamp: 160, packets: 2, octets: 320 };

    #[test]
    fn compound_packets() {
        let mut out = Vec::new();
        let mut writer = CompoundWriter::new(&mut out);
        writer.sender_report(1, &INFO, &[BLOCK]).description(1, b"a@b").goodbye(&[1, 2], b"ends");
        assert_eq!(out.len(), 28 + 24 + 16 + 20);
        assert_eq!(out[..8], [0x81, 200, 0, 12, 0, 0, 0, 1]);
        assert_eq!(out[28..40], [0, 0, 0, 7, 51, 0xff, 0xff, 0xfe, 0, 1, 0, 2]);
        assert_eq!(out[52..68], *b"\x81\xca\0\x03\0\0\0\x01\x01\x03a@b\0\0\0");
        assert_eq!(out[68..], *b"\x82\xcb\0\x04\0\0\0\x01\0\0\0\x02\x04ends\0\0\0");
        assert!(is_rtcp(&out) && !is_rtcp(&[0x80, 0x80 | 101]) && !is_rtcp(&[0x80]));

        let mut packets = read(&out).map(|packet| packet.expect("it is right"));
        let Some(RtcpPacket::SenderReport { source: 1, info: INFO, blocks }) = packets.next() else {
            panic!("no sender report")
        };
        assert_eq!(blocks.collect::<Vec<_>>(), [BLOCK]);
        let Some(RtcpPacket::Description(chunks)) = packets.next() else { panic!("no description") };
        assert_eq!(chunks.collect::<Vec<_>>(), [Chunk { source: 1, cname: Some(b"a@b") }]);
        let Some(RtcpPacket::Goodbye { sources, reason }) = packets.next() else { panic!("no BYE") };
        assert_eq!((sources.collect::<Vec<_>>(), reason), (vec![1, 2], &b"ends"[..]));
        assert!(packets.next().is_none());
    }

    #[test]
    fn report_intervals_are_random() {
        assert_eq!((report_interval(0, false), report_interval(u32::MAX, false)), (2_052_073, 6_156_219));
        assert_eq!((report_interval(1 << 31, false), report_interval(1 << 31, true)), (4_104_146, 2_052_073));
    }

    #[test]
    fn receiver_reports_and_unknown_packets() {
        let mut out = Vec::new();
        CompoundWriter::new(&mut out).receiver_report(1, &[]);
        // A picture loss indication (RFC 4585), extended reports (RFC 3611), and a report with an extension of a profile.
        out.extend(b"\x81\xce\0\x02\0\0\0\x01\0\0\0\x02");
        out.extend(b"\x80\xcf\0\x01\0\0\0\x01");
        out.extend(b"\x80\xc9\0\x02\0\0\0\x01more");
        let packets: Vec<_> = read(&out).map(|packet| packet.expect("it is right")).collect();
        assert!(matches!(packets[0], RtcpPacket::ReceiverReport { source: 1, .. }));
        let RtcpPacket::Other { packet_type: 206, count: 1, body } = packets[1] else { panic!("{packets:?}") };
        assert_eq!(body, b"\0\0\0\x01\0\0\0\x02");
        assert!(matches!(packets[2], RtcpPacket::Other { packet_type: 207, .. }));
        assert!(matches!(packets[3], RtcpPacket::ReceiverReport { source: 1, .. }));
        assert_eq!(packets.len(), 4);
    }

    #[test]
    fn faults_end_a_compound_packet_or_skip_one() {
        let right = b"\x80\xc9\0\x01\0\0\0\x01";
        let with = |packet: &[u8]| [packet, right].concat();
        let found = |bytes: &[u8]| read(bytes).map(|packet| packet.err()).collect::<Vec<_>>();
        use RtcpError::{Padding, Short, Truncated, Version};
        // Wrong in itself: the next one is read.
        assert_eq!(found(&with(b"\x81\xc9\0\x01\0\0\0\x02")), [Some(Short(201)), None]);
        assert_eq!(found(&with(b"\x80\xc8\0\x01\0\0\0\x02")), [Some(Short(200)), None]);
        assert_eq!(found(&with(b"\x82\xcb\0\x01\0\0\0\x02")), [Some(Short(203)), None]);
        assert_eq!(found(&with(b"\xa0\xc9\0\x01\0\0\0\x09")), [Some(Padding), None]);
        assert_eq!(found(&with(b"\xa0\xc9\0\x01\0\0\0\x00")), [Some(Padding), None]);
        // No packet begins behind.
        assert_eq!(found(&with(b"\x40\xc9\0\x01\0\0\0\x02")), [Some(Version)]);
        assert_eq!(found(b"\x80\xc9\0\x02\0\0\0\x02"), [Some(Truncated)]);
        assert_eq!(found(&with(b"\x80\xc9\0\x01\0\0\0\x02")[..11]), [None, Some(Truncated)]);
        assert!(found(b"").is_empty());
        // Padding is no part of the last packet.
        let mut padded = read(b"\xa0\xcb\0\x02\0\0\0\x00\0\0\0\x04");
        let Some(Ok(RtcpPacket::Goodbye { reason: b"", .. })) = padded.next() else { panic!("no BYE") };
    }

    #[test]
    fn descriptions_are_read_as_far_as_they_hold() {
        let chunks = |bytes: &[u8]| match read(bytes).next() {
            Some(Ok(RtcpPacket::Description(chunks))) => {
                chunks.map(|chunk| (chunk.source, chunk.cname.map(<[u8]>::to_vec))).collect::<Vec<_>>()
            }
            other => panic!("{other:?}"),
        };
        // A note before the name, then an end on a boundary and a second chunk without items.
        let two = b"\x82\xca\0\x06\0\0\0\x01\x07\x02hi\x01\x02ab\0\0\0\0\0\0\0\x02\0\0\0\0";
        assert_eq!(chunks(two), [(1, Some(b"ab".to_vec())), (2, None)]);
        // The name is longer than the packet.
        assert_eq!(chunks(b"\x81\xca\0\x02\0\0\0\x01\x01\x09ab"), [(1, None)]);
        // No end, and no second chunk.
        assert_eq!(chunks(b"\x82\xca\0\x02\0\0\0\x01\x01\x02ab"), [(1, Some(b"ab".to_vec()))]);
    }
}
