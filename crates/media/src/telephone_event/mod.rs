//! Telephone events (RFC 4733).

mod received;
mod sent;

pub use received::{EventNotice, ReceivedEvents};
pub use sent::{EventPacket, SentEvent};

/// Payload of an event (RFC 4733 section 2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TelephoneEvent {
    /// Event code, for example of a digit (section 3.2).
    pub event: u8,
    /// True once the event has ended.
    pub end: bool,
    /// Power of a tone in -dBm0, 0 to 63.
    pub volume: u8,
    /// Duration so far, in ticks of the payload's clock.
    pub duration: u16,
}

/// Number of packets that report the end of an event (RFC 4733 section 2.5.1.4).
pub const ENDS: u8 = 3;

/// Largest duration in a packet; a longer event has several segments (RFC 4733 section 2.5.1.3).
const LONGEST: u16 = u16::MAX;

impl TelephoneEvent {
    /// Reads an event of a payload.
    pub const fn read(bytes: [u8; 4]) -> Self {
        let [event, flags, high, low] = bytes;
        Self { event, end: flags & 0x80 != 0, volume: flags & 0x3f, duration: u16::from_be_bytes([high, low]) }
    }

    /// Returns the four bytes of the payload.
    pub const fn write(&self) -> [u8; 4] {
        let [high, low] = self.duration.to_be_bytes();
        [self.event, (self.end as u8) << 7 | self.volume & 0x3f, high, low]
    }
}

/// Returns the digit of an event code: `0` to `9`, `*`, `#`, `A` to `D`.
pub const fn event_digit(event: u8) -> Option<u8> {
    Some(match event {
        0..=9 => b'0' + event,
        10 => b'*',
        11 => b'#',
        12..=15 => b'A' + event - 12,
        _ => return None,
    })
}

/// Returns the event code of a digit: `0` to `9`, `*`, `#`, `A` to `D` in either case (RFC 4733 section 3.2).
pub const fn digit_event(digit: u8) -> Option<u8> {
    Some(match digit.to_ascii_uppercase() {
        digit @ b'0'..=b'9' => digit - b'0',
        b'*' => 10,
        b'#' => 11,
        digit @ b'A'..=b'D' => digit - b'A' + 12,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads() {
        let event = TelephoneEvent { event: 11, end: false, volume: 10, duration: 160 };
        assert_eq!(event.write(), [11, 10, 0, 160]);
        let end = TelephoneEvent { end: true, duration: 1_600, ..event };
        assert_eq!(end.write(), [11, 0x8a, 6, 0x40]);
        assert_eq!((TelephoneEvent::read(event.write()), TelephoneEvent::read(end.write())), (event, end));
        // The reserved bit is ignored.
        assert_eq!(TelephoneEvent::read([11, 0xca, 6, 0x40]), end);
    }

    #[test]
    fn digits_have_events() {
        let events: Vec<_> = b"0159*#ADad".iter().map(|digit| digit_event(*digit)).collect();
        assert_eq!(events, [0, 1, 5, 9, 10, 11, 12, 15, 12, 15].map(Some));
        assert!(b"eE-+ \0".iter().all(|other| digit_event(*other).is_none()));
        for event in 0..=u8::MAX {
            assert_eq!(event_digit(event).and_then(digit_event), (event < 16).then_some(event));
        }
    }
}
