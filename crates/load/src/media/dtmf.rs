//! Digits as telephone events (RFC 4733), with the times and the payload type of SIPp 3.6.

use super::capture::Capture;
use strowger_media::rtp::Header;
use strowger_media::telephone_event::{ENDS, TelephoneEvent, digit_event};

/// Payload type of the events. SIPp has a fixed one, which a scenario has to offer.
const EVENTS: u8 = 96;

/// Payload type of the packets without content that SIPp sends before the first digit to keep the path open (RTP
/// payload format for no-op, a draft that never became an RFC).
const NOTHING: u8 = 97;

/// Milliseconds between two packets; of a digit; from one digit to the next. Then: clock ticks in each.
const PACKET: u32 = 20;
const TONE: u32 = 200;
const DIGIT: u32 = 400;
const TICKS: u32 = 8;

/// Volume: -10 dBm0.
const VOLUME: u8 = 10;

/// Builds the packets of these digits, and returns them with their number; other characters are skipped. Returns `None`
/// if there is no digit.
pub(super) fn capture(digits: &[u8], sequence: u16, source: u32) -> Option<(Capture, u16)> {
    let mut packets: Vec<(u64, Vec<u8>)> = Vec::new();
    let mut push = |milliseconds: u32, payload_type: u8, marker: bool, since: u32, body: [u8; 4]| {
        let header = Header {
            payload_type,
            marker,
            sequence: sequence.wrapping_add(packets.len() as u16),
            timestamp: since * TICKS,
            source,
        };
        let mut packet = Vec::with_capacity(16);
        header.write(&mut packet);
        packet.extend(body);
        packets.push((u64::from(milliseconds) * 1_000, packet));
    };
    (0..DIGIT / PACKET).for_each(|place| push(place * PACKET, NOTHING, false, place * PACKET, [0; 4]));
    let mut begin = 2 * DIGIT;
    for event in digits.iter().filter_map(|digit| digit_event(*digit)) {
        let mut say = |after: u32, long: u32, end: bool| {
            let event = TelephoneEvent { event, end, volume: VOLUME, duration: (long * TICKS) as u16 };
            push(begin + after, EVENTS, after == 0, begin, event.write());
        };
        (0..TONE / PACKET).for_each(|place| say(place * PACKET, place * PACKET, false));
        (0..u32::from(ENDS)).for_each(|again| say(TONE + again, TONE, true));
        begin += DIGIT;
    }
    let count = packets.len() as u16;
    (begin > 2 * DIGIT).then(|| (Capture::of(packets), count))
}

#[cfg(test)]
mod tests {
    use super::capture;

    #[test]
    fn digits_are_events() {
        let (capture, count) = capture(b"1 #d", 65_530, 7).expect("there are digits");
        assert_eq!((capture.packets().len(), count), (20 + 3 * 13, 20 + 3 * 13));
        let packet = |place: usize| (capture.packets()[place].at, capture.payload(&capture.packets()[place]).to_vec());
        let bytes = |payload_type: u8, sequence: u16, ticks: u32, body: [u8; 4]| {
            let mut bytes = vec![0x80, payload_type];
            bytes.extend(sequence.to_be_bytes());
            bytes.extend(ticks.to_be_bytes());
            bytes.extend([0, 0, 0, 7]);
            bytes.extend(body);
            bytes
        };
        assert_eq!(packet(0), (0, bytes(97, 65_530, 0, [0; 4])));
        assert_eq!(packet(19), (380_000, bytes(97, 13, 3_040, [0; 4])));
        assert_eq!(packet(20), (800_000, bytes(0x80 | 96, 14, 6_400, [1, 10, 0, 0])));
        assert_eq!(packet(21), (820_000, bytes(96, 15, 6_400, [1, 10, 0, 160])));
        assert_eq!(packet(30), (1_000_000, bytes(96, 24, 6_400, [1, 0x8a, 6, 0x40])));
        assert_eq!(packet(32), (1_002_000, bytes(96, 26, 6_400, [1, 0x8a, 6, 0x40])));
        assert_eq!(packet(33), (1_200_000, bytes(0x80 | 96, 27, 9_600, [11, 10, 0, 0])));
        assert_eq!(packet(46).1[12], 15);
    }

    #[test]
    fn other_characters_are_no_digits() {
        assert!(capture(b"", 0, 0).is_none() && capture(b"xyz", 0, 0).is_none());
    }
}
