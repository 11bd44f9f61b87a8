//! Audio formats, including those with a fixed payload type (RFC 3551 section 6).

use super::attribute::RtpMap;

/// A format of audio that a side can send and receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Codec<'a> {
    /// Payload type in our own offers; an answer takes the offer's.
    pub payload: u8,
    /// Encoding name registered with IANA; compares in any case.
    pub encoding: &'a str,
    /// Ticks per second.
    pub clock_rate: u32,
    /// Channels; 1 unless an `a=rtpmap` says otherwise.
    pub channels: u32,
    /// Value of `a=fmtp` after the payload type.
    pub parameters: Option<&'a str>,
}

impl<'a> Codec<'a> {
    /// G.711 with the μ-law of North America and Japan.
    pub const PCMU: Self = Self::new(0, "PCMU", 8_000);
    /// GSM full rate, 13 kbit/s.
    pub const GSM: Self = Self::new(3, "GSM", 8_000);
    /// G.711 with the A-law of the rest of the world.
    pub const PCMA: Self = Self::new(8, "PCMA", 8_000);
    /// G.722: samples at 16 kHz, but a clock of 8 kHz by an old mistake (RFC 3551 section 4.5.2).
    pub const G722: Self = Self::new(9, "G722", 8_000);
    /// Telephone events (RFC 4733), which carry DTMF; payload type 101 by custom.
    pub const TELEPHONE_EVENT: Self = Self { parameters: Some("0-15"), ..Self::new(101, "telephone-event", 8_000) };

    /// Creates a format of one channel without parameters.
    pub const fn new(payload: u8, encoding: &'a str, clock_rate: u32) -> Self {
        Self { payload, encoding, clock_rate, channels: 1, parameters: None }
    }

    /// Tells whether the codec carries sound; false for tones and comfort noise.
    pub fn is_sound(&self) -> bool {
        !["telephone-event", "CN", "red"].iter().any(|other| self.encoding.eq_ignore_ascii_case(other))
    }

    /// Tells whether a mapping means this format.
    pub fn is(&self, map: &RtpMap<'_>) -> bool {
        map.encoding.eq_ignore_ascii_case(self.encoding.as_bytes())
            && map.clock_rate == self.clock_rate
            && map.channels() == self.channels
    }
}

impl Codec<'static> {
    /// Returns the audio format of a payload type without `a=rtpmap` (RFC 3551 table 4).
    pub fn of_payload(payload: u8) -> Option<Self> {
        Some(match payload {
            0 => Self::PCMU,
            3 => Self::GSM,
            4 => Self::new(4, "G723", 8_000),
            5 => Self::new(5, "DVI4", 8_000),
            6 => Self::new(6, "DVI4", 16_000),
            7 => Self::new(7, "LPC", 8_000),
            8 => Self::PCMA,
            9 => Self::G722,
            10 => Self { channels: 2, ..Self::new(10, "L16", 44_100) },
            11 => Self::new(11, "L16", 44_100),
            12 => Self::new(12, "QCELP", 8_000),
            13 => Self::new(13, "CN", 8_000),
            14 => Self::new(14, "MPA", 90_000),
            15 => Self::new(15, "G728", 8_000),
            16 => Self::new(16, "DVI4", 11_025),
            17 => Self::new(17, "DVI4", 22_050),
            18 => Self::new(18, "G729", 8_000),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_match_in_any_case_and_by_channels() {
        let opus = Codec { channels: 2, ..Codec::new(96, "opus", 48_000) };
        let map = |text: &'static str| RtpMap::parse(text.as_bytes()).expect("valid");
        assert!(opus.is(&map("111 OPUS/48000/2")) && !opus.is(&map("111 opus/48000")));
        assert!(Codec::PCMU.is(&map("0 pcmu/8000/1")) && !Codec::PCMU.is(&map("0 PCMU/16000")));
        assert!(opus.is_sound() && !Codec::TELEPHONE_EVENT.is_sound());
        for payload in 0..=127 {
            assert!(Codec::of_payload(payload).is_none_or(|codec| codec.payload == payload));
        }
    }
}
