//! One received stream: its figures, and its end.
//!
//! A stream that ends before its call leaves no gap between two packets. So the time from its last packet to the end of the call is judged
//! too: it is a delay, and the packets of that time are lost.

use super::formats::{Format, Formats};
use strowger_measure::{HeardStream, Quality};
use strowger_media::quality::{SpeechEncoding, SpeechQuality};
use strowger_media::received_stream::ReceivedStream;
use strowger_media::rtp::Header;
use strowger_media::sequence::PacketOrder;

/// Time without a packet after which a stream has ended, microseconds. Then it is forgotten unless an open call expects it. If several calls
/// share the address of their peer, the first of them that ends takes the stream.
const ENDED: u64 = 2_000_000;

/// Time without a packet after which a packet of a taken stream begins another stream, microseconds.
const REST: u64 = 200_000;

/// Distances of the sequence number, behind and ahead, within which a packet continues a taken stream.
const CONTINUES: std::ops::RangeInclusive<i16> = -5..=100;

/// Longest time between two packets that counts in the packet interval, microseconds.
const REGULAR: u64 = 1_000_000;

/// Packet interval of a stream without two consecutive packets, microseconds.
const USUAL_INTERVAL: u64 = 20_000;

/// Moment up to which a stream should have continued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Until {
    /// Microseconds.
    pub(super) at: u64,
    /// Silence before it that is no fault, microseconds.
    pub(super) allowance: u64,
}

/// Streams of a call that has ended.
#[derive(Debug, Default)]
pub(super) struct Taken {
    pub(super) streams: Vec<HeardStream>,
    /// Streams that ended before their call.
    pub(super) early: u64,
    /// Packets of streams without figures, because this process lost datagrams of their socket.
    pub(super) unjudged: u64,
    /// True if a stream came while the call expected it.
    pub(super) has_come: bool,
}

/// Received stream.
pub(super) struct Stream {
    received: ReceivedStream,
    /// Arrival of the last packet, microseconds, and its sequence number.
    last: u64,
    sequence: u16,
    /// Arrival of the last packet in the figures, microseconds.
    judged: u64,
    /// Time since which the next packet is due, microseconds; `None`: on hold, or silence is no fault.
    awaited: Option<u64>,
    /// Sum of the times between consecutive packets, microseconds, and their number.
    intervals: (u64, u64),
    /// Longest silence before a hold or at the end, microseconds, and the number of packets that were due in it.
    silence: u64,
    missing: u64,
    /// True once a packet came that is no telephone event.
    has_media: bool,
    /// True once a call has taken the figures of this stream; later packets belong to no call.
    pub(super) is_taken: bool,
    /// True if this process may have lost packets of this stream.
    is_damaged: bool,
}

impl Stream {
    /// Creates a stream without packets.
    pub(super) fn new() -> Self {
        Self {
            received: ReceivedStream::new(8_000),
            last: 0,
            sequence: 0,
            judged: 0,
            awaited: None,
            intervals: (0, 0),
            silence: 0,
            missing: 0,
            has_media: false,
            is_taken: false,
            is_damaged: false,
        }
    }

    /// Enters a packet that arrived at `now`, in microseconds. A packet that continues a taken stream is left out; another one begins a new
    /// stream, because senders may use the same SSRC in each call.
    pub(super) fn packet(&mut self, now: u64, header: &Header, formats: &Formats) {
        if self.is_taken && !self.is_continued_by(now, header.sequence) {
            *self = Self::new();
        }
        (self.last, self.sequence) = (now, header.sequence);
        if self.is_taken {
            return;
        }
        let (format, encoding) = (formats.of(header.payload_type), formats.encoding(header.payload_type));
        match format {
            Format::Events => self.received.leave_untimed(header.payload_type),
            Format::Clock(rate) => {
                self.received.set_clock_rate(rate);
                self.received.note_encoding(encoding);
                self.has_media = true;
            }
        }
        let order = self.received.packet(now, header);
        if let (PacketOrder::Next { missing }, Some(before)) = (order, self.awaited) {
            let interval = now.saturating_sub(before);
            if interval <= REGULAR {
                self.intervals = (self.intervals.0 + interval, self.intervals.1 + 1 + u64::from(missing));
            }
        }
        // Silence after digits and comfort noise is no fault.
        let may_pause = format == Format::Events || encoding == SpeechEncoding::ComfortNoise;
        self.awaited = (!may_pause).then_some(now);
        self.judged = now;
    }

    fn is_continued_by(&self, now: u64, sequence: u16) -> bool {
        let ahead = sequence.wrapping_sub(self.sequence).cast_signed();
        now.saturating_sub(self.last) <= REST && CONTINUES.contains(&ahead)
    }

    /// Tells whether no packet has come for so long that the stream is over.
    pub(super) const fn has_ended(&self, now: u64) -> bool {
        now.saturating_sub(self.last) > ENDED
    }

    /// Tells whether a packet of the figures came after `since`, microseconds.
    pub(super) const fn came_after(&self, since: u64) -> bool {
        self.judged > since
    }

    /// Marks the stream as damaged, if it was there at `since`, microseconds.
    pub(super) const fn damage(&mut self, since: u64) {
        self.is_damaged |= self.last >= since;
    }

    /// Holds the stream: the time without packets from now on is no fault.
    pub(super) fn hold(&mut self, until: Option<Until>) {
        self.end(until);
        self.received.pause();
    }

    /// Continues after a hold at `now`, microseconds.
    pub(super) const fn resume(&mut self, now: u64) {
        self.received.pause();
        self.awaited = Some(now);
    }

    /// Judges the silence since the last packet.
    fn end(&mut self, until: Option<Until>) {
        let (Some(awaited), Some(until)) = (self.awaited.take(), until) else { return };
        let silence = until.at.saturating_sub(awaited);
        if silence > until.allowance {
            self.silence = self.silence.max(silence);
            self.missing += silence.saturating_sub(1) / self.interval();
        }
    }

    /// Returns the mean time between two sent packets, microseconds, at least 1,000.
    fn interval(&self) -> u64 {
        self.intervals.0.checked_div(self.intervals.1).unwrap_or(USUAL_INTERVAL).max(1_000)
    }

    /// Gives the figures to a call, once. `until`: the moment up to which the call expected the stream.
    pub(super) fn take(&mut self, is_audio: bool, until: Option<Until>, into: &mut Taken) {
        if std::mem::replace(&mut self.is_taken, true) {
            return;
        }
        self.end(until);
        let figures = self.received.figures();
        if self.is_damaged {
            into.unjudged += figures.packets;
            return;
        }
        let (expected, lost) = (figures.expected + self.missing, figures.lost + self.missing);
        // The delay from mouth to ear is not known at one end.
        let quality = SpeechQuality::of(figures.encoding, lost, expected).filter(|_| is_audio);
        into.early += u64::from(self.missing > 0);
        into.streams.push(HeardStream {
            packets: figures.packets,
            expected,
            lost,
            reordered: figures.reordered,
            doubled: figures.duplicates,
            max_delta: figures.largest_gap.max(self.silence),
            jitter: figures.mean_jitter,
            max_jitter: figures.largest_jitter,
            deviation: figures.mean_deviation,
            quality: quality.map(|SpeechQuality { rating, score }| Quality { rating, score }),
        });
    }
}

/// Returns the arrival of the last packet of the stream that came last, microseconds. Streams before it were replaced by it, so that their
/// end is no fault. Streams of telephone events end with their digits.
pub(super) fn latest(streams: &[&mut Stream]) -> Option<u64> {
    let candidates = streams.iter().filter(|stream| !stream.is_taken && stream.has_media);
    candidates.map(|stream| stream.judged).max()
}

/// Returns whether a stream is the one of [`latest`].
pub(super) fn is_latest(stream: &Stream, latest: Option<u64>) -> bool {
    latest == Some(stream.judged) && stream.has_media
}
