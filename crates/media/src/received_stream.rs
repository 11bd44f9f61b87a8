//! Receive statistics of a stream (RFC 3550 section 6.4, appendix A).

use crate::clock::{middle, short_delay};
use crate::jitter::Jitter;
use crate::quality::{EncodingCounts, SpeechEncoding, SpeechQuality};
use crate::rtcp::{LOST, ReportBlock, SenderInfo};
use crate::rtp::Header;
use crate::sequence::{PacketOrder, Sequence};

/// Stream of packets from one peer to one port, whatever its SSRC.
///
/// A new SSRC begins a new source at once, because the owner has already decided by the address whose packets are accepted. Report
/// blocks are about the current source, figures are about all sources.
#[derive(Clone, Debug)]
pub struct ReceivedStream {
    /// Ticks of the payload's clock in a second.
    clock_rate: u32,
    /// Payload types whose packets are not timed, a bit each.
    untimed: u128,
    source: Option<Source>,
    totals: Totals,
    encodings: EncodingCounts,
    jitter: Jitter,
    last: Option<Arrival>,
    /// Microseconds.
    largest_gap: u64,
}

/// Current source.
#[derive(Clone, Copy, Debug)]
struct Source {
    /// SSRC.
    id: u32,
    sequence: Sequence,
    /// Packets, duplicates included.
    received: u32,
    /// Expected and received packets of the last report.
    reported: (u32, u32),
    /// Middle of the NTP timestamp of its last sender report, and the arrival of that.
    report: Option<(u32, u64)>,
}

impl Source {
    /// Begins a source of which this many packets came.
    const fn new(id: u32, sequence: Sequence, received: u32) -> Self {
        Self { id, sequence, received, reported: (0, 0), report: None }
    }
}

/// Last packet.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    /// Microseconds.
    at: u64,
    timestamp: u32,
    payload_type: u8,
}

/// Counts of a stream.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    packets: u64,
    /// Packets expected from ended sources.
    expected: u64,
    reordered: u64,
    duplicates: u64,
    strays: u64,
    sources: u32,
}

/// Figures of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Packets of the stream, duplicates included.
    pub packets: u64,
    /// Packets that the peer sent, from the first to the highest sequence number of each source.
    pub expected: u64,
    /// Expected packets that never came.
    pub lost: u64,
    /// Packets that came after one with a higher sequence number.
    pub reordered: u64,
    /// Packets that came before.
    pub duplicates: u64,
    /// Packets with a distant sequence number, after which the stream did not go on.
    pub strays: u64,
    /// Sources: 1, and one more for each change of the SSRC.
    pub sources: u32,
    /// Encoding of most packets that the owner has noted ([`ReceivedStream::note_encoding`]).
    pub encoding: SpeechEncoding,
    /// Interarrival jitter (RFC 3550 section 6.4.1), microseconds.
    pub jitter: u64,
    /// Largest interarrival jitter, microseconds.
    pub largest_jitter: u64,
    /// Mean interarrival jitter, microseconds; Wireshark's "Mean Jitter".
    pub mean_jitter: u64,
    /// Mean deviation of the time between two packets from that between their timestamps, microseconds; "Mean Jitter" of earlier versions of
    /// Wireshark.
    pub mean_deviation: u64,
    /// Largest time between two packets, microseconds: the maximum packet delay, Wireshark's "Max Delta". Not counted: the time before a
    /// packet with the marker, beside comfort noise, and across a pause.
    pub largest_gap: u64,
}

impl Figures {
    /// Returns the quality of speech, by the loss alone; `None` if no packet came, or the E-model has no constants for the encoding.
    pub fn quality(&self) -> Option<SpeechQuality> {
        SpeechQuality::of(self.encoding, self.lost, self.expected)
    }
}

/// Payload types of comfort noise: RFC 3389, and the number reserved for its drafts.
const COMFORT_NOISE: [u8; 2] = [13, 19];

impl ReceivedStream {
    /// Creates a stream without packets. `clock_rate`: ticks of its timestamps in a second.
    pub fn new(clock_rate: u32) -> Self {
        Self {
            clock_rate,
            untimed: 0,
            source: None,
            totals: Totals::default(),
            encodings: EncodingCounts::default(),
            jitter: Jitter::default(),
            last: None,
            largest_gap: 0,
        }
    }

    /// Excludes packets of this payload type, 0 to 127, from the jitter. Telephone events need this, because their
    /// timestamps do not advance.
    pub const fn leave_untimed(&mut self, payload_type: u8) {
        self.untimed |= 1 << (payload_type & 0x7f);
    }

    /// Includes packets of all payload types in the jitter again, after a new description.
    pub const fn time_all(&mut self) {
        self.untimed = 0;
    }

    /// Sets the ticks of later timestamps in a second, after a change of the codec.
    pub const fn set_clock_rate(&mut self, clock_rate: u32) {
        if self.clock_rate != clock_rate {
            self.clock_rate = clock_rate;
            self.jitter.pause();
        }
    }

    /// Counts the encoding of a packet. Most packets determine the encoding of the stream.
    pub const fn note_encoding(&mut self, encoding: SpeechEncoding) {
        self.encodings.packet(encoding);
    }

    /// Enters a packet that arrived at `now`, in microseconds. Returns its place in the stream.
    pub fn packet(&mut self, now: u64, header: &Header) -> PacketOrder {
        let order = self.count(header);
        match order {
            PacketOrder::Jump => return order,
            // The timestamps begin again as well.
            PacketOrder::Restart => self.pause(),
            _ => (),
        }
        self.measure_gap(now, header);
        if self.untimed & 1 << (header.payload_type & 0x7f) == 0 {
            self.jitter.packet(now, header.timestamp, self.clock_rate);
        }
        order
    }

    fn count(&mut self, header: &Header) -> PacketOrder {
        self.totals.packets += 1;
        let Some(source) = self.source.as_mut().filter(|source| source.id == header.source) else {
            self.begin(Source::new(header.source, Sequence::new(header.sequence), 1));
            self.totals.sources = self.totals.sources.saturating_add(1);
            self.last = None;
            self.jitter.restart();
            return PacketOrder::Next { missing: 0 };
        };
        let before = source.sequence;
        let order = source.sequence.packet(header.sequence);
        source.received = source.received.wrapping_add(1);
        match order {
            PacketOrder::Next { .. } => (),
            PacketOrder::Late => self.totals.reordered += 1,
            PacketOrder::Duplicate => self.totals.duplicates += 1,
            PacketOrder::Jump => {
                source.received = source.received.wrapping_sub(1);
                self.totals.packets -= 1;
                self.totals.strays += 1;
            }
            PacketOrder::Restart => {
                let begun = Source { report: source.report, ..Source::new(source.id, source.sequence, 2) };
                source.sequence = before;
                self.begin(begun);
                // The packet of the jump was one of the stream.
                self.totals.packets += 1;
                self.totals.strays -= 1;
            }
        }
        order
    }

    /// Replaces the current source, whose counts stay in the totals.
    fn begin(&mut self, source: Source) {
        if let Some(ended) = self.source.replace(source) {
            self.totals.expected += u64::from(ended.sequence.expected());
        }
    }

    fn measure_gap(&mut self, now: u64, header: &Header) {
        let arrival = Arrival { at: now, timestamp: header.timestamp, payload_type: header.payload_type };
        let Some(last) = self.last.replace(arrival) else { return };
        let is_sound = |payload_type| !COMFORT_NOISE.contains(&payload_type);
        let goes_on = header.timestamp.wrapping_sub(last.timestamp).cast_signed() >= 0;
        if goes_on && !header.marker && is_sound(last.payload_type) && is_sound(header.payload_type) {
            self.largest_gap = self.largest_gap.max(now.saturating_sub(last.at));
        }
    }

    /// Leaves out the time until the next packet, for example while the call is on hold.
    pub const fn pause(&mut self) {
        self.last = None;
        self.jitter.pause();
    }

    /// Takes a sender report of the SSRC `source` that arrived at `now`, in microseconds. A report of another source is
    /// ignored.
    pub fn receive_report(&mut self, now: u64, source: u32, info: &SenderInfo) {
        if let Some(current) = self.source.as_mut().filter(|current| current.id == source) {
            current.report = Some((middle(info.ntp), now));
        }
    }

    /// Returns the report block about the current source at `now`, in microseconds, or `None` if no packet was received. Its
    /// `fraction_lost` is the fraction since the last call.
    pub fn report_block(&mut self, now: u64) -> Option<ReportBlock> {
        let source = self.source.as_mut()?;
        let expected = source.sequence.expected();
        let (expected_before, received_before) = std::mem::replace(&mut source.reported, (expected, source.received));
        let expected_since = expected.wrapping_sub(expected_before);
        let received_since = source.received.wrapping_sub(received_before);
        let lost_since = u64::from(expected_since.saturating_sub(received_since));
        let fraction = (lost_since << 8).checked_div(u64::from(expected_since)).unwrap_or(0);
        let lost = i64::from(expected) - i64::from(source.received);
        let (last_report, delay) = match source.report {
            Some((report, arrival)) => (report, short_delay(now.saturating_sub(arrival))),
            None => (0, 0),
        };
        Some(ReportBlock {
            source: source.id,
            // 256 if nothing came.
            fraction_lost: fraction.min(255) as u8,
            lost: lost.clamp(LOST.0, LOST.1) as i32,
            highest: source.sequence.highest(),
            jitter: self.jitter.estimate_ticks(self.clock_rate),
            last_report,
            delay,
        })
    }

    /// Returns the SSRC of the current source.
    pub fn source(&self) -> Option<u32> {
        self.source.as_ref().map(|source| source.id)
    }

    /// Returns the arrival of the last packet in microseconds, or `None` if no packet has arrived since the beginning
    /// or the last pause.
    pub fn last_arrival(&self) -> Option<u64> {
        self.last.as_ref().map(|last| last.at)
    }

    /// Returns the figures so far.
    pub fn figures(&self) -> Figures {
        let Totals { packets, expected, reordered, duplicates, strays, sources } = self.totals;
        let current = self.source.as_ref().map_or(0, |source| source.sequence.expected());
        let expected = expected + u64::from(current);
        Figures {
            packets,
            expected,
            lost: expected.saturating_sub(packets - duplicates),
            reordered,
            duplicates,
            strays,
            sources,
            encoding: self.encodings.most(),
            jitter: self.jitter.estimate(),
            largest_jitter: self.jitter.largest(),
            mean_jitter: self.jitter.mean(),
            mean_deviation: self.jitter.mean_deviation(),
            largest_gap: self.largest_gap,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header(source: u32, sequence: u16) -> Header {
        let timestamp = u32::from(sequence).wrapping_mul(160);
        Header { payload_type: 0, marker: false, sequence, timestamp, source }
    }

    /// Enters packets 20 ms apart.
    fn heard(stream: &mut ReceivedStream, sequences: &[u16]) {
        for (place, sequence) in sequences.iter().enumerate() {
            stream.packet(place as u64 * 20_000, &header(7, *sequence));
        }
    }

    #[test]
    fn losses_duplicates_and_reordering() {
        let mut stream = ReceivedStream::new(8_000);
        heard(&mut stream, &[1, 2, 4, 3, 3, 7, 8]);
        let Figures { packets, expected, lost, reordered, duplicates, strays, sources, .. } = stream.figures();
        assert_eq!((packets, expected, lost, reordered, duplicates, strays, sources), (7, 8, 2, 1, 1, 0, 1));
        // To the RFC a duplicate makes up for a loss.
        let block = stream.report_block(0).expect("packets came");
        assert_eq!((block.lost, block.fraction_lost, block.highest), (1, 32, 8));
        // The next report counts from here.
        heard(&mut stream, &[9, 11, 12]);
        let block = stream.report_block(0).expect("packets came");
        assert_eq!((block.lost, block.fraction_lost), (2, 64));
        let block = stream.report_block(0).expect("packets came");
        assert_eq!((block.lost, block.fraction_lost), (2, 0));
    }

    #[test]
    fn duplicates_alone_make_the_loss_negative() {
        let mut stream = ReceivedStream::new(8_000);
        assert_eq!(stream.report_block(0), None);
        heard(&mut stream, &[1, 1, 1]);
        let block = stream.report_block(0).expect("packets came");
        assert_eq!((block.lost, block.fraction_lost), (-2, 0));
        assert_eq!((stream.figures().lost, stream.figures().duplicates), (0, 2));
    }

    #[test]
    fn a_new_source_begins_anew() {
        let mut stream = ReceivedStream::new(8_000);
        heard(&mut stream, &[1, 3]);
        stream.receive_report(0, 7, &SenderInfo { ntp: 5 << 16, timestamp: 0, packets: 0, octets: 0 });
        stream.packet(500_000, &header(9, 60_000));
        stream.packet(520_000, &header(9, 60_002));
        let block = stream.report_block(0).expect("packets came");
        assert_eq!((block.source, block.lost, block.highest, block.last_report), (9, 1, 60_002, 0));
        let figures = stream.figures();
        assert_eq!((figures.packets, figures.expected, figures.lost, figures.sources), (4, 6, 2, 2));
        // The time between the sources is no gap, nor jitter.
        assert_eq!((figures.largest_gap, figures.jitter, figures.largest_jitter), (20_000, 1_250, 1_250));
    }

    #[test]
    fn a_restart_goes_on_with_the_packet_of_its_jump() {
        let mut stream = ReceivedStream::new(8_000);
        heard(&mut stream, &[10, 11, 30_000, 12, 40_000, 40_001, 40_003]);
        let figures = stream.figures();
        assert_eq!((figures.packets, figures.expected, figures.lost), (6, 7, 1));
        assert_eq!((figures.strays, figures.sources), (1, 1));
        let block = stream.report_block(0).expect("packets came");
        assert_eq!((block.lost, block.highest), (1, 40_003));
        // Strays and the new timestamps are no deviations; the packets after a stray and after a loss have one of 20 ms.
        assert_eq!(figures.mean_deviation, 40_000 / 3);
    }

    #[test]
    fn gaps_are_those_within_speech() {
        let mut stream = ReceivedStream::new(8_000);
        let mut packet = |ms: u64, sequence: u16, marker: bool, payload_type: u8| {
            stream.packet(ms * 1_000, &Header { marker, payload_type, ..header(7, sequence) });
            stream.figures().largest_gap
        };
        assert_eq!((packet(0, 1, false, 0), packet(25, 2, false, 0)), (0, 25_000));
        // Silence; comfort noise; a packet of the past.
        assert_eq!((packet(225, 3, true, 0), packet(325, 4, false, 13)), (25_000, 25_000));
        assert_eq!((packet(425, 5, false, 0), packet(525, 4, false, 0)), (25_000, 25_000));
        assert_eq!(packet(555, 6, false, 0), 30_000);
        assert_eq!(stream.last_arrival(), Some(555_000));
        stream.pause();
        assert_eq!(stream.last_arrival(), None);
        stream.packet(60_000_000, &header(7, 7));
        assert_eq!(stream.figures().largest_gap, 30_000);
    }

    #[test]
    fn events_and_another_clock_are_no_jitter() {
        let mut stream = ReceivedStream::new(8_000);
        stream.leave_untimed(101);
        for place in 0..20 {
            let payload_type = if (5..10).contains(&place) { 101 } else { 0 };
            let timestamp = if payload_type == 101 { 800 } else { 160 * u32::from(place) };
            let header = Header { payload_type, timestamp, ..header(7, place) };
            stream.packet(u64::from(place) * 20_000, &header);
        }
        assert_eq!((stream.figures().jitter, stream.figures().packets), (0, 20));
        stream.set_clock_rate(16_000);
        for place in 20..30 {
            stream.packet(u64::from(place) * 20_000, &Header { timestamp: 320 * u32::from(place), ..header(7, place) });
        }
        assert_eq!(stream.figures().largest_jitter, 0);
    }

    #[test]
    fn reports_name_the_last_sender_report() {
        let mut stream = ReceivedStream::new(8_000);
        heard(&mut stream, &[1]);
        let info = SenderInfo { ntp: 0x0123_4567_89ab_cdef, timestamp: 0, packets: 1, octets: 160 };
        stream.receive_report(1_000_000, 8, &info);
        assert_eq!(stream.report_block(2_000_000).map(|block| (block.last_report, block.delay)), Some((0, 0)));
        stream.receive_report(1_000_000, 7, &info);
        let block = stream.report_block(1_500_000).expect("a packet came");
        assert_eq!((block.last_report, block.delay), (0x4567_89ab, 32_768));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Checks that the counts are exact though each packet may be lost, duplicated, or delayed behind up to five
        /// others.
        #[test]
        fn counts_are_exact(
            first in any::<u16>(),
            fates in prop::collection::vec((0_u8..10, 0_usize..6), 2..400),
        ) {
            let mut sent: Vec<(usize, usize)> = Vec::new();
            let (mut lost, mut duplicates) = (0, 0);
            let last = fates.len() - 1;
            for (place, (fate, delay)) in fates.iter().enumerate() {
                // The first and the last packet arrive in time, because no receiver can know of others.
                match fate {
                    0 if place != 0 && place != last => lost += 1,
                    1 => {
                        duplicates += 1;
                        sent.extend([(place, place), (place + delay, place)]);
                    }
                    2 if place != 0 && place != last => sent.push((place + delay, place)),
                    _ => sent.push((place, place)),
                }
            }
            sent.sort_by_key(|(at, _)| *at);
            let mut stream = ReceivedStream::new(8_000);
            let (mut highest, mut late, mut seen) = (None, 0, vec![false; fates.len()]);
            for (at, place) in &sent {
                let is_new = !std::mem::replace(&mut seen[*place], true);
                late += u64::from(is_new && highest.is_some_and(|highest| *place < highest));
                highest = highest.max(Some(*place));
                stream.packet(*at as u64 * 20_000, &header(7, first.wrapping_add(*place as u16)));
            }
            let figures = stream.figures();
            prop_assert_eq!(figures.lost, lost);
            prop_assert_eq!(figures.duplicates, duplicates);
            prop_assert_eq!(figures.reordered, late);
            prop_assert_eq!(figures.packets, sent.len() as u64);
            prop_assert_eq!((figures.expected, figures.strays), (fates.len() as u64, 0));
            let block = stream.report_block(0).expect("packets came");
            prop_assert_eq!(i64::from(block.lost), lost as i64 - duplicates as i64);
        }
    }
}
