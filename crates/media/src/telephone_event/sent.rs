//! Sending of an event (RFC 4733 section 2.5.1).

use super::{ENDS, LONGEST, TelephoneEvent};

/// Event that is being sent: packets while it lasts, then three with its end. Its owner asks for one each packet time.
///
/// ```
/// use strowger_media::rtp::Numbering;
/// use strowger_media::telephone_event::{SentEvent, digit_event};
///
/// // The digit 5 with -10 dBm0, for 40 ms of a clock of 8,000 Hz.
/// let mut numbering = Numbering::new(0xfeed, 1, 8_000);
/// let mut event = SentEvent::begin(digit_event(b'5').expect("a digit"), 10, numbering.timestamp());
/// let mut packets = Vec::new();
/// for place in 1.. {
///     numbering.skip(160);
///     if place == 2 {
///         event.end(numbering.timestamp());
///     }
///     let Some(packet) = event.next(numbering.timestamp()) else { break };
///     let header = numbering.next_at(101, packet.marker, packet.timestamp);
///     packets.push((header.sequence, header.marker, header.timestamp, packet.payload));
/// }
/// let end = [5, 0x80 | 10, 1, 64];
/// assert_eq!(packets[..2], [(1, true, 8_000, [5, 10, 0, 160]), (2, false, 8_000, end)]);
/// assert_eq!(packets[2..], [(3, false, 8_000, end), (4, false, 8_000, end)]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct SentEvent {
    event: u8,
    volume: u8,
    /// Timestamp of the begin of the current segment.
    start: u32,
    end: Option<u32>,
    begins: bool,
    ends: u8,
}

/// Marker, timestamp and payload of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventPacket {
    /// True in the first packet of the event.
    pub marker: bool,
    /// Begin of the event, or of its segment.
    pub timestamp: u32,
    pub payload: [u8; 4],
}

impl SentEvent {
    /// Begins an event. `volume`: -dBm0, 0 to 63; `timestamp`: its begin in ticks of the payload's clock.
    pub const fn begin(event: u8, volume: u8, timestamp: u32) -> Self {
        Self { event, volume, start: timestamp, end: None, begins: true, ends: ENDS }
    }

    /// Ends the event at this timestamp. Only the first call counts.
    pub const fn end(&mut self, timestamp: u32) {
        if self.end.is_none() {
            self.end = Some(timestamp);
        }
    }

    /// Returns the next packet, which is sent at this timestamp. `None`: all is sent.
    pub fn next(&mut self, timestamp: u32) -> Option<EventPacket> {
        let so_far = self.end.unwrap_or(timestamp).wrapping_sub(self.start).cast_signed();
        // Duration 0 is reserved for states (section 2.3.5).
        let so_far = so_far.max(1).cast_unsigned();
        let start = self.start;
        let duration = u16::try_from(so_far).unwrap_or(LONGEST);
        let mut end = false;
        if so_far > u32::from(LONGEST) {
            // The next packet begins the next segment.
            self.start = start.wrapping_add(u32::from(LONGEST));
        } else if self.end.is_some() {
            self.ends = self.ends.checked_sub(1)?;
            end = true;
        }
        let payload = TelephoneEvent { event: self.event, end, volume: self.volume, duration }.write();
        Some(EventPacket { marker: std::mem::take(&mut self.begins), timestamp: start, payload })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns marker, timestamp, end and duration of each packet of an event of `ticks` that is reported each `every` ticks.
    fn packets(start: u32, ticks: u32, every: u32) -> Vec<(bool, u32, bool, u16)> {
        let mut event = SentEvent::begin(7, 63, start);
        let mut now = 0;
        let next = || {
            now += every;
            if now >= ticks {
                event.end(start.wrapping_add(ticks));
            }
            event.next(start.wrapping_add(now)).map(|packet| {
                let payload = TelephoneEvent::read(packet.payload);
                assert_eq!((payload.event, payload.volume), (7, 63));
                (packet.marker, packet.timestamp, payload.end, payload.duration)
            })
        };
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn the_end_comes_three_times() {
        let start = u32::MAX - 100;
        let (first, end) = ((true, start, false, 160), (false, start, true, 400));
        assert_eq!(packets(start, 400, 160), [first, (false, start, false, 320), end, end, end]);
        // Shorter than a packet time: the end has the marker.
        assert_eq!(packets(0, 80, 160), [(true, 0, true, 80), (false, 0, true, 80), (false, 0, true, 80)]);
        assert_eq!(packets(0, 0, 160)[0], (true, 0, true, 1));
    }

    #[test]
    fn long_events_have_segments() {
        let all = packets(0, 140_000, 32_000);
        let expected = [
            (true, 0, false, 32_000),
            (false, 0, false, 64_000),
            // 96,000 ticks.
            (false, 0, false, 65_535),
            (false, 65_535, false, 62_465),
            (false, 65_535, false, 65_535),
            (false, 131_070, true, 8_930),
        ];
        assert_eq!(all[..6], expected);
        assert_eq!(all[6..], [expected[5]; 2]);
        // Exactly a segment.
        assert_eq!(
            packets(0, 65_535, 65_535),
            [(true, 0, true, 65_535), (false, 0, true, 65_535), (false, 0, true, 65_535)]
        );
    }

    #[test]
    fn a_timestamp_before_the_begin_is_the_begin() {
        let mut event = SentEvent::begin(1, 10, 1_000);
        assert_eq!(event.next(999).map(|packet| (packet.timestamp, packet.payload)), Some((1_000, [1, 10, 0, 1])));
    }
}
