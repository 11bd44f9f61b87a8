//! Send statistics of a stream: sender reports and round-trip time (RFC 3550 section 6.4.1).

use crate::clock::{Moment, middle, ntp_timestamp, short_delay_micros, ticks};
use crate::rtcp::{ReportBlock, SenderInfo};
use crate::rtp::Header;

/// Stream of packets to one peer.
#[derive(Clone, Debug)]
pub struct SentStream {
    /// Ticks of the payload's clock in a second.
    clock_rate: u32,
    /// SSRC.
    source: Option<u32>,
    packets: u32,
    octets: u32,
    /// Latest timestamp, and the time of its first packet in microseconds.
    last: (u32, u64),
    /// Latest sender reports: the middle bits of each NTP timestamp, and the time of sending in microseconds.
    reports: [(u32, u64); REPORTS],
    next_report: usize,
    heard: Option<ReportBlock>,
    round_trip: Option<u64>,
}

/// Number of sender reports to which an answer may come.
const REPORTS: usize = 4;

impl SentStream {
    /// Creates a stream without packets. `clock_rate`: ticks of its timestamps in a second.
    pub const fn new(clock_rate: u32) -> Self {
        Self {
            clock_rate,
            source: None,
            packets: 0,
            octets: 0,
            last: (0, 0),
            reports: [(0, 0); REPORTS],
            next_report: 0,
            heard: None,
            round_trip: None,
        }
    }

    /// Sets the ticks of later timestamps in a second, after a change of the codec.
    pub const fn set_clock_rate(&mut self, clock_rate: u32) {
        self.clock_rate = clock_rate;
    }

    /// Records a packet that is sent at `now`, in microseconds. `length`: bytes of its payload.
    pub fn packet(&mut self, now: u64, header: &Header, length: usize) {
        if self.source != Some(header.source) {
            // The counts are those of a source.
            *self = Self { source: Some(header.source), last: (header.timestamp, now), ..Self::new(self.clock_rate) };
        }
        self.packets = self.packets.wrapping_add(1);
        self.octets = self.octets.wrapping_add(length as u32);
        if header.timestamp.wrapping_sub(self.last.0).cast_signed() > 0 {
            self.last = (header.timestamp, now);
        }
    }

    /// Returns the sender's part of a sender report at this moment, or `None` if no packet was sent, so that a receiver
    /// report is due.
    pub fn sender_report(&mut self, now: Moment) -> Option<SenderInfo> {
        self.source?;
        let (timestamp, at) = self.last;
        let ntp = ntp_timestamp(now.wall);
        self.reports[self.next_report % REPORTS] = (middle(ntp), now.mono);
        self.next_report = (self.next_report + 1) % REPORTS;
        let timestamp = timestamp.wrapping_add(ticks(now.mono.saturating_sub(at), self.clock_rate));
        Some(SenderInfo { ntp, timestamp, packets: self.packets, octets: self.octets })
    }

    /// Takes a report block of the peer that arrived at `now`, in microseconds. Returns the round-trip time in microseconds, if the block
    /// answers one of the last four sender reports. A block about another source is ignored.
    pub fn receive_block(&mut self, now: u64, block: &ReportBlock) -> Option<u64> {
        if self.source != Some(block.source) {
            return None;
        }
        self.heard = Some(*block);
        if block.last_report == 0 {
            return None;
        }
        // By the monotonic clock: a correction of the wall clock is no delay.
        let (_, sent) = self.reports.iter().find(|(report, _)| *report == block.last_report)?;
        let round_trip = now.saturating_sub(*sent).saturating_sub(short_delay_micros(block.delay));
        self.round_trip = Some(round_trip);
        self.round_trip
    }

    /// Returns the last report block of the peer: its loss, jitter and highest sequence number.
    pub const fn heard(&self) -> Option<&ReportBlock> {
        self.heard.as_ref()
    }

    /// Returns the last round-trip time in microseconds.
    pub const fn round_trip(&self) -> Option<u64> {
        self.round_trip
    }

    /// Returns the number of packets sent, modulo 2^32.
    pub const fn packets(&self) -> u32 {
        self.packets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(source: u32, timestamp: u32) -> Header {
        Header { payload_type: 0, marker: false, sequence: 0, timestamp, source }
    }

    const WALL: u64 = 1_700_000_000_000_000;

    fn moment(mono: u64) -> Moment {
        Moment { mono, wall: WALL + mono }
    }

    #[test]
    fn reports_have_counts_and_both_times() {
        let mut stream = SentStream::new(8_000);
        assert_eq!(stream.sender_report(moment(0)), None);
        stream.packet(1_000_000, &header(7, u32::MAX - 159), 160);
        stream.packet(1_020_000, &header(7, 0), 160);
        // Packets of a telephone event have its begin as their timestamp.
        stream.packet(1_040_000, &header(7, 0), 4);
        let info = stream.sender_report(moment(1_050_000)).expect("packets were sent");
        let ntp = ntp_timestamp(WALL + 1_050_000);
        assert_eq!(info, SenderInfo { ntp, timestamp: 240, packets: 3, octets: 324 });
        // Another source has its own counts.
        stream.packet(2_000_000, &header(8, 99), 160);
        let info = stream.sender_report(moment(2_000_000)).expect("packets were sent");
        assert_eq!((info.timestamp, info.packets, info.octets), (99, 1, 160));
    }

    #[test]
    fn round_trips() {
        let mut stream = SentStream::new(8_000);
        stream.packet(0, &header(7, 0), 160);
        let mut reports = Vec::new();
        for time in 0..6_u64 {
            let info = stream.sender_report(moment(time * 5_000_000)).expect("packets were sent");
            reports.push((info.ntp >> 16) as u32);
        }
        let mut answer = |source: u32, last_report: u32, now: u64| {
            // Half a second.
            let delay = 32_768;
            let block = ReportBlock { source, fraction_lost: 3, lost: 1, highest: 9, jitter: 0, last_report, delay };
            stream.receive_block(now, &block)
        };
        assert_eq!(answer(7, reports[5], 25_540_000), Some(40_000));
        assert_eq!(answer(7, reports[2], 10_620_000), Some(120_000));
        // Too old, of another source, before any report came; and a delay longer than the time.
        assert_eq!((answer(7, reports[1], 0), answer(8, reports[5], 0), answer(7, 0, 0)), (None, None, None));
        assert_eq!(answer(7, reports[5], 25_100_000), Some(0));
        assert_eq!(stream.round_trip(), Some(0));
        assert_eq!(stream.heard().map(|block| block.fraction_lost), Some(3));
    }
}
