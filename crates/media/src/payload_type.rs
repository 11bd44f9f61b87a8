//! Payload types and packet times (RFC 3551).

/// Packet format of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamFormat {
    /// RTP payload type, 0 to 127.
    pub payload_type: u8,
    pub bytes_per_packet: u16,
    pub milliseconds_per_packet: u16,
    /// Duration of a packet in ticks of the payload's clock.
    pub ticks_per_packet: u16,
}

impl StreamFormat {
    /// Returns the format of PCMU, PCMA, G722 or G729 in packets of 20 ms, by the static payload type (RFC 3551 section 4.5).
    pub const fn of(payload_type: u8) -> Option<Self> {
        let bytes_per_packet = match payload_type {
            0 | 8 | 9 => 160,
            18 => 20,
            _ => return None,
        };
        Some(Self { payload_type, bytes_per_packet, milliseconds_per_packet: 20, ticks_per_packet: 160 })
    }
}

/// Static payload type (RFC 3551 section 6, tables 4 and 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaticPayload {
    /// Payload type, 0 to 34.
    pub number: u8,
    /// Encoding name, as in `a=rtpmap`.
    pub name: &'static str,
    /// Ticks of the timestamps in a second. For G722 this is half of its sampling rate (section 4.5.2).
    pub clock_rate: u32,
    /// Channels of sound; 0: video.
    pub channels: u8,
    /// Default packet time in milliseconds (section 4.2, table 1), or 0 if the section has none.
    pub packet_time: u16,
}

impl StaticPayload {
    /// Returns a static payload type by its number.
    pub fn of(number: u8) -> Option<&'static Self> {
        STATIC.iter().find(|payload| payload.number == number)
    }

    /// Returns the ticks of a packet of this duration in milliseconds.
    pub const fn ticks(&self, packet_time: u16) -> u32 {
        (self.clock_rate as u64 * packet_time as u64 / 1_000) as u32
    }
}

const fn row(number: u8, name: &'static str, clock_rate: u32, channels: u8, packet_time: u16) -> StaticPayload {
    StaticPayload { number, name, clock_rate, channels, packet_time }
}

/// Static payload types, by number.
pub static STATIC: [StaticPayload; 24] = [
    row(0, "PCMU", 8_000, 1, 20),
    row(3, "GSM", 8_000, 1, 20),
    row(4, "G723", 8_000, 1, 30),
    row(5, "DVI4", 8_000, 1, 20),
    row(6, "DVI4", 16_000, 1, 20),
    row(7, "LPC", 8_000, 1, 20),
    row(8, "PCMA", 8_000, 1, 20),
    row(9, "G722", 8_000, 1, 20),
    row(10, "L16", 44_100, 2, 20),
    row(11, "L16", 44_100, 1, 20),
    row(12, "QCELP", 8_000, 1, 20),
    row(13, "CN", 8_000, 1, 0),
    row(14, "MPA", 90_000, 1, 0),
    row(15, "G728", 8_000, 1, 20),
    row(16, "DVI4", 11_025, 1, 20),
    row(17, "DVI4", 22_050, 1, 20),
    row(18, "G729", 8_000, 1, 20),
    row(25, "CelB", 90_000, 0, 0),
    row(26, "JPEG", 90_000, 0, 0),
    row(28, "nv", 90_000, 0, 0),
    row(31, "H261", 90_000, 0, 0),
    row(32, "MPV", 90_000, 0, 0),
    row(33, "MP2T", 90_000, 0, 0),
    row(34, "H263", 90_000, 0, 0),
];

/// Returns true for a payload type that an offer binds to an encoding (RFC 3551 section 3).
pub const fn is_dynamic(payload_type: u8) -> bool {
    matches!(payload_type, 96..=127)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_by_number() {
        let bytes = [0, 8, 9, 18, 3, 98, 255].map(|number| StreamFormat::of(number).map(|f| f.bytes_per_packet));
        assert_eq!(bytes, [Some(160), Some(160), Some(160), Some(20), None, None, None]);
    }

    #[test]
    fn static_payload_types() {
        assert!(STATIC.is_sorted_by(|one, next| one.number < next.number));
        let found = [0, 9, 11, 34].map(|number| StaticPayload::of(number).map(|p| (p.name, p.clock_rate)));
        assert_eq!(
            found,
            [Some(("PCMU", 8_000)), Some(("G722", 8_000)), Some(("L16", 44_100)), Some(("H263", 90_000))]
        );
        assert!([1, 2, 19, 35, 96, 255].iter().all(|number| StaticPayload::of(*number).is_none()));
        // A packet of each stream format has the ticks of its duration.
        for payload in STATIC {
            if let Some(format) = StreamFormat::of(payload.number) {
                assert_eq!(payload.ticks(format.milliseconds_per_packet), u32::from(format.ticks_per_packet));
                assert_eq!(payload.packet_time, format.milliseconds_per_packet);
            }
            assert!(!is_dynamic(payload.number));
        }
        assert!(is_dynamic(96) && is_dynamic(127) && !is_dynamic(95) && !is_dynamic(128));
    }
}
