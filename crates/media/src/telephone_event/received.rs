//! Receiving of events (RFC 4733 section 2.5.2).

use super::{LONGEST, TelephoneEvent};
use crate::rtp::Header;
use crate::sequence::MAX_MISORDER;

/// Begin or end of a received event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventNotice {
    /// Event with its code and volume (-dBm0, 0 to 63).
    Began { event: u8, volume: u8 },
    /// `duration`: of all segments, in ticks of the payload's clock.
    Ended { event: u8, duration: u32 },
}

/// Events of a received stream. Each event begins and ends once, even if some of its packets are lost, duplicated or
/// late.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReceivedEvents {
    last: Option<Event>,
}

/// Latest event.
#[derive(Clone, Copy, Debug)]
struct Event {
    event: u8,
    /// SSRC.
    source: u32,
    /// Newest sequence number of its packets.
    sequence: u16,
    /// Timestamp of the current segment.
    start: u32,
    /// Timestamp of the packet in which it began. A packet may have several events.
    packet: u32,
    /// Ticks of the segments before.
    before: u32,
    /// Ticks of the current segment.
    duration: u16,
    ended: bool,
}

/// Place of an event in a packet.
#[derive(Clone, Copy)]
struct Segment<'a> {
    header: &'a Header,
    /// True if the packet has the marker, and this is its first event.
    begins: bool,
    /// False if the packet arrives after a later one.
    is_newer: bool,
    start: u32,
}

impl Event {
    /// Returns how far a packet lies behind the newest packet of this event: 0 for the newest packet itself, `None` for a newer one. The
    /// sequence number alone does not show this, because any number of other packets may lie between two events.
    fn distance(&self, header: &Header) -> Option<u16> {
        let behind = self.sequence.wrapping_sub(header.sequence);
        let is_earlier = header.timestamp.wrapping_sub(self.start).cast_signed() <= 0;
        (header.source == self.source && is_earlier && behind < MAX_MISORDER).then_some(behind)
    }

    const fn notice(&self) -> EventNotice {
        EventNotice::Ended { event: self.event, duration: self.before.saturating_add(self.duration as u32) }
    }
}

impl ReceivedEvents {
    /// Takes a packet with the payload type of events, and passes its notices to `hear`, in order. A payload may have several events, one
    /// after the other (RFC 4733 section 2.5.1.5). Bytes after the last whole event are ignored, and so are events of duration 0 (section
    /// 2.3.5).
    pub fn packet(&mut self, header: &Header, payload: &[u8], mut hear: impl FnMut(EventNotice)) {
        let behind = self.last.as_ref().and_then(|last| last.distance(header));
        if behind == Some(0) {
            return;
        }
        let mut segment =
            Segment { header, begins: header.marker, is_newer: behind.is_none(), start: header.timestamp };
        for bytes in payload.as_chunks().0 {
            let event = TelephoneEvent::read(*bytes);
            if event.duration > 0 {
                self.take(segment, &event, &mut hear);
                segment.begins = false;
                segment.start = segment.start.wrapping_add(u32::from(event.duration));
            }
        }
    }

    fn take(&mut self, segment: Segment<'_>, event: &TelephoneEvent, hear: &mut impl FnMut(EventNotice)) {
        let Segment { header, begins, is_newer, start } = segment;
        let known = self.last.as_mut().filter(|last| last.source == header.source);
        if let Some(last) = known {
            let ahead = start.wrapping_sub(last.start);
            let is_same = last.event == event.event && ahead == 0;
            let is_repeated = header.timestamp == last.packet && ahead.cast_signed() < 0;
            if is_same && last.ended || !is_same && (!is_newer || is_repeated) {
                // An end again, a late packet of an earlier event or segment, or an earlier event of a repeated packet.
                return;
            }
            let goes_on = last.event == event.event && !last.ended && !begins && is_segment(ahead);
            if is_same || goes_on {
                if goes_on {
                    last.before = last.before.saturating_add(ahead);
                    (last.start, last.duration) = (start, 0);
                }
                if is_newer {
                    last.sequence = header.sequence;
                }
                last.duration = last.duration.max(event.duration);
                last.ended = event.end;
                if event.end {
                    hear(last.notice());
                }
                return;
            }
        }
        self.finish(&mut *hear);
        self.begin(segment, event, hear);
    }

    fn begin(&mut self, segment: Segment<'_>, event: &TelephoneEvent, hear: &mut impl FnMut(EventNotice)) {
        let TelephoneEvent { event, end, volume, duration } = *event;
        let Header { source, sequence, timestamp: packet, .. } = *segment.header;
        let begun = Event { event, source, sequence, start: segment.start, packet, before: 0, duration, ended: end };
        hear(EventNotice::Began { event, volume });
        if end {
            hear(begun.notice());
        }
        self.last = Some(begun);
    }

    /// Ends an event whose packets stopped. The owner calls this function if no packet was received for a while, for
    /// example three packet times.
    pub fn finish(&mut self, mut hear: impl FnMut(EventNotice)) {
        if let Some(last) = self.last.as_mut().filter(|last| !last.ended) {
            last.ended = true;
            hear(last.notice());
        }
    }

    /// Returns the code of an event that lasts.
    pub fn lasting(&self) -> Option<u8> {
        self.last.as_ref().filter(|last| !last.ended).map(|last| last.event)
    }
}

/// Returns whether a segment may begin at this distance from an earlier one. Segments between them may be lost.
const fn is_segment(ahead: u32) -> bool {
    ahead.is_multiple_of(LONGEST as u32) && ahead.cast_signed() > 0
}

#[cfg(test)]
mod tests {
    use super::super::SentEvent;
    use super::EventNotice::{Began, Ended};
    use super::*;
    use proptest::prelude::*;

    /// Packets as they arrive: sequence number, marker, timestamp, payload.
    fn heard(packets: &[(u16, bool, u32, &[u8])]) -> Vec<EventNotice> {
        let (mut events, mut notices) = (ReceivedEvents::default(), Vec::new());
        for (sequence, marker, timestamp, payload) in packets {
            let header =
                Header { payload_type: 101, marker: *marker, sequence: *sequence, timestamp: *timestamp, source: 7 };
            events.packet(&header, payload, |notice| notices.push(notice));
        }
        notices
    }

    /// RFC 4733 section 2.5.1.4: the end is sent three times, and each time the packet has all of its events.
    #[test]
    fn a_repeated_packet_with_several_events_is_heard_once() {
        let both = &[1, 0x8a, 0, 160, 2, 0x8a, 0, 80];
        let notices = heard(&[(1, true, 800, both), (2, false, 800, both), (3, false, 800, both)]);
        let ended = |event, duration| Ended { event, duration };
        let began = |event| Began { event, volume: 10 };
        assert_eq!(notices, [began(1), ended(1, 160), began(2), ended(2, 80)]);
    }

    #[test]
    fn an_event_begins_and_ends_once() {
        let end = &[5, 0x8a, 1, 64];
        let notices = heard(&[
            (1, true, 800, &[5, 10, 0, 160]),
            (2, false, 800, &[5, 10, 0, 240]),
            (2, false, 800, &[5, 10, 0, 240]),
            (4, false, 800, end),
            (3, false, 800, &[5, 10, 1, 0]),
            (5, false, 800, end),
            (6, false, 800, end),
            // Only an end of the next one came.
            (9, false, 2_000, &[6, 0x8a, 0, 160]),
        ]);
        let first = [Began { event: 5, volume: 10 }, Ended { event: 5, duration: 320 }];
        let second = [Began { event: 6, volume: 10 }, Ended { event: 6, duration: 160 }];
        assert_eq!(notices, [first, second].concat());
    }

    #[test]
    fn the_next_event_ends_one_whose_end_is_lost() {
        let notices = heard(&[
            (1, true, 800, &[5, 10, 0, 160]),
            (9, true, 2_000, &[5, 10, 0, 160]),
            // A late packet of the first one.
            (2, false, 800, &[5, 10, 0, 240]),
            (10, false, 2_000, &[5, 0x8a, 1, 64]),
        ]);
        let (began, first) = (Began { event: 5, volume: 10 }, Ended { event: 5, duration: 160 });
        assert_eq!(notices, [began, first, began, Ended { event: 5, duration: 320 }]);
    }

    #[test]
    fn events_far_apart_are_heard() {
        // Ten, twenty and thirty minutes of sound between them, then a peer that has restarted.
        let between = [30_000_u16, 60_000, 24_464, 50_000];
        let packets: Vec<(u16, bool, u32, [u8; 4])> = (between.iter().zip(0..))
            .map(|(sequence, place): (_, u32)| (*sequence, true, (place % 3) * 4_800_000, [place as u8, 0x8a, 0, 160]))
            .collect();
        let packets: Vec<(u16, bool, u32, &[u8])> = packets
            .iter()
            .map(|(sequence, marker, start, payload)| (*sequence, *marker, *start, &payload[..]))
            .collect();
        assert_eq!(heard(&packets).len(), 8);
    }

    #[test]
    fn zero_durations_and_rests_are_ignored() {
        let notices = heard(&[
            // SIPp's first packet of an event.
            (1, true, 800, &[5, 10, 0, 0]),
            (2, false, 800, &[5, 10, 0]),
            (3, false, 800, &[]),
            (4, false, 800, &[5, 10, 0, 160, 6]),
        ]);
        assert_eq!(notices, [Began { event: 5, volume: 10 }]);
    }

    #[test]
    fn several_events_in_a_packet() {
        let notices = heard(&[
            (1, true, 800, &[1, 0x8a, 0, 160, 2, 0x8a, 0, 80, 3, 10, 0, 40]),
            // A duplicate.
            (1, true, 800, &[1, 0x8a, 0, 160, 2, 0x8a, 0, 80, 3, 10, 0, 40]),
            (2, false, 1_040, &[3, 0x8a, 0, 200]),
            (1, true, 800, &[1, 0x8a, 0, 160, 2, 0x8a, 0, 80, 3, 10, 0, 40]),
        ]);
        let codes: Vec<_> = notices
            .iter()
            .map(|notice| match notice {
                Began { event, .. } => (*event, 0),
                Ended { event, duration } => (*event, *duration),
            })
            .collect();
        assert_eq!(codes, [(1, 0), (1, 160), (2, 0), (2, 80), (3, 0), (3, 200)]);
    }

    #[test]
    fn silence_ends_an_event() {
        let mut events = ReceivedEvents::default();
        let header = Header { payload_type: 101, marker: true, sequence: 1, timestamp: 0, source: 7 };
        events.packet(&header, &[1, 10, 0, 160], |_| ());
        assert_eq!(events.lasting(), Some(1));
        let mut notices = Vec::new();
        events.finish(|notice| notices.push(notice));
        events.finish(|notice| notices.push(notice));
        assert_eq!((notices, events.lasting()), (vec![Ended { event: 1, duration: 160 }], None));
        // Another source has its own timestamps and sequence numbers.
        events.packet(&Header { source: 8, sequence: 60_000, ..header }, &[1, 10, 0, 160], |_| ());
        assert_eq!(events.lasting(), Some(1));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Checks that digits of any length, including segments, are received as they were sent, though packets are lost or
        /// duplicated. Of each digit the first packet and one of its ends are received.
        #[test]
        fn digits_are_heard_as_sent(
            start in any::<u32>(),
            digits in prop::collection::vec((0_u8..16, 1_u32..200_000), 1..6),
            fates in prop::collection::vec(0_u8..8, 40),
        ) {
            let (mut packets, mut expected) = (Vec::new(), Vec::new());
            let (mut timestamp, mut sequence) = (start, 0_u16);
            for (event, duration) in &digits {
                expected.extend([Began { event: *event, volume: 10 }, Ended { event: *event, duration: *duration }]);
                let mut sent = SentEvent::begin(*event, 10, timestamp);
                let mut now = 0_u32;
                let begin = packets.len();
                loop {
                    now = now.saturating_add(8_000).min(*duration);
                    if now == *duration {
                        sent.end(timestamp.wrapping_add(now));
                    }
                    let Some(packet) = sent.next(timestamp.wrapping_add(now)) else { break };
                    let header = Header {
                        payload_type: 101,
                        marker: packet.marker,
                        sequence,
                        timestamp: packet.timestamp,
                        source: 7,
                    };
                    sequence = sequence.wrapping_add(1);
                    packets.push((header, packet.payload, true));
                }
                let last = packets.len() - 1;
                packets[begin].2 = false;
                packets[last].2 = false;
                timestamp = timestamp.wrapping_add(*duration + 400);
            }
            let mut arriving = Vec::new();
            for (place, (header, payload, may_fail)) in packets.iter().enumerate() {
                match fates[place % fates.len()] {
                    0 if *may_fail => (),
                    1 => arriving.extend([(*header, *payload), (*header, *payload)]),
                    _ => arriving.push((*header, *payload)),
                }
            }
            let (mut events, mut heard) = (ReceivedEvents::default(), Vec::new());
            for (header, payload) in &arriving {
                events.packet(header, payload, |notice| heard.push(notice));
            }
            prop_assert_eq!(heard, expected);
        }
    }
}
