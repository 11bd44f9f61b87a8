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

#[cfg(test)]
mod tests {
    use super::StreamFormat;

    #[test]
    fn formats_by_number() {
        let bytes = [0, 8, 9, 18, 3, 98, 255].map(|number| StreamFormat::of(number).map(|f| f.bytes_per_packet));
        assert_eq!(bytes, [Some(160), Some(160), Some(160), Some(20), None, None, None]);
    }
}
