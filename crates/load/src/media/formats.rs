//! Payload types of the sessions, by the descriptions of both sides.

use strowger_media::payload_type::StaticPayload;
use strowger_media::quality::SpeechEncoding;

/// Use of a payload type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// Telephone events (RFC 4733), whose timestamps do not advance.
    Events,
    /// Ticks of the timestamps in a second.
    Clock(u32),
}

/// Clock rate of a dynamic payload type that no description names.
const USUAL: u32 = 8_000;

/// Payload types that descriptions bind to a format.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Formats {
    /// Each number once, at most 128.
    bound: Vec<(u8, Format, SpeechEncoding)>,
}

impl Formats {
    /// Reads a line of a session description: an attribute `rtpmap` (RFC 8866 section 6.6) binds a payload type; of several
    /// bindings of a payload type the first one counts.
    pub(super) fn line(&mut self, line: &[u8]) {
        self.add(line.strip_prefix(b"a=rtpmap:").and_then(mapping).as_slice());
    }

    fn add(&mut self, bound: &[(u8, Format, SpeechEncoding)]) {
        for one in bound {
            if !self.bound.iter().any(|(known, ..)| *known == one.0) {
                self.bound.push(*one);
            }
        }
    }

    /// Adds the payload types of `other` that these lack.
    pub(super) fn or(mut self, other: &Self) -> Self {
        self.add(&other.bound);
        self
    }

    /// Returns the use of a payload type, 0 to 127.
    pub(super) fn of(&self, payload_type: u8) -> Format {
        if let Some((_, format, _)) = self.find(payload_type) {
            return *format;
        }
        Format::Clock(StaticPayload::of(payload_type).map_or(USUAL, |payload| payload.clock_rate))
    }

    /// Returns the encoding of a payload type, 0 to 127, as far as the quality of speech depends on it.
    pub(super) fn encoding(&self, payload_type: u8) -> SpeechEncoding {
        self.find(payload_type)
            .map_or_else(|| SpeechEncoding::of_payload_type(payload_type), |(.., encoding)| *encoding)
    }

    fn find(&self, payload_type: u8) -> Option<&(u8, Format, SpeechEncoding)> {
        self.bound.iter().find(|(known, ..)| *known == payload_type)
    }
}

/// Parses `101 telephone-event/8000` or `96 L16/44100/2`.
fn mapping(value: &[u8]) -> Option<(u8, Format, SpeechEncoding)> {
    let (number, encoding) = std::str::from_utf8(value).ok()?.trim().split_once(' ')?;
    let number = number.parse::<u8>().ok().filter(|number| *number < 128)?;
    let mut parts = encoding.trim_start().split('/');
    let (name, rate) = (parts.next()?, parts.next()?.parse::<u32>().ok().filter(|rate| *rate > 0)?);
    let is_event = name.eq_ignore_ascii_case("telephone-event");
    let format = if is_event { Format::Events } else { Format::Clock(rate) };
    Some((number, format, SpeechEncoding::named(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(description: &[u8]) -> Formats {
        let mut formats = Formats::default();
        description.split(|byte| *byte == b'\n').for_each(|line| formats.line(line));
        formats
    }

    #[test]
    fn our_description_counts_before_theirs() {
        let ours = b"v=0\r\nm=audio 6000 RTP/AVP 0 101 96\r\na=rtpmap:101 telephone-event/8000\r\na=rtpmap:96 opus/48000/2\r\n";
        let theirs =
            b"m=audio 7000 RTP/AVP 101 97\na=rtpmap:101 speex/16000\na=rtpmap:97 G726-32/8000\na=rtpmap:97 L16/1";
        let formats = read(ours).or(&read(theirs));
        let of = |payload_type| formats.of(payload_type);
        assert_eq!((of(101), of(96), of(97)), (Format::Events, Format::Clock(48_000), Format::Clock(8_000)));
        // Static types, and dynamic types without a description.
        assert_eq!((of(0), of(34), of(110)), (Format::Clock(8_000), Format::Clock(90_000), Format::Clock(8_000)));
    }

    #[test]
    fn encodings_have_their_names() {
        use SpeechEncoding::{ComfortNoise, G711, G729, Other};
        let formats =
            read(b"a=rtpmap:97 pcma/8000\na=rtpmap:98 CN/16000\na=rtpmap:99 opus/48000/2\na=rtpmap:18 G729/8000");
        let found = [97, 98, 99, 18, 0, 13, 9, 110].map(|payload_type| formats.encoding(payload_type));
        assert_eq!(found, [G711, ComfortNoise, Other, G729, G711, ComfortNoise, Other, Other]);
    }

    #[test]
    fn malformed_lines_bind_nothing() {
        for value in ["", "101", "300 x/8000", "96 x", "96 x/0", "96 x/y"] {
            let line = format!("a=rtpmap:{value}");
            assert_eq!(read(line.as_bytes()), Formats::default(), "{line}");
        }
        assert_eq!(read(b"a=rtpmap:\xff\xfe x/8000"), Formats::default());
    }
}
