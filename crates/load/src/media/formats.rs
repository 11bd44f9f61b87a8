//! Payload types of the sessions, by the descriptions of both sides.

use strowger_media::payload_type::StaticPayload;

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
    bound: Vec<(u8, Format)>,
}

impl Formats {
    /// Reads a line of a session description: an attribute `rtpmap` (RFC 8866 section 6.6) binds a number, of which the first counts.
    pub(super) fn line(&mut self, line: &[u8]) {
        if let Some((payload_type, format)) = line.strip_prefix(b"a=rtpmap:").and_then(mapping) {
            self.add(payload_type, format);
        }
    }

    fn add(&mut self, payload_type: u8, format: Format) {
        if !self.bound.iter().any(|(known, _)| *known == payload_type) {
            self.bound.push((payload_type, format));
        }
    }

    /// Adds the payload types of `other` that these lack.
    pub(super) fn or(mut self, other: &Self) -> Self {
        other.bound.iter().for_each(|(payload_type, format)| self.add(*payload_type, *format));
        self
    }

    /// Returns the use of a payload type, 0 to 127.
    pub(super) fn of(&self, payload_type: u8) -> Format {
        if let Some((_, format)) = self.bound.iter().find(|(known, _)| *known == payload_type) {
            return *format;
        }
        Format::Clock(StaticPayload::of(payload_type).map_or(USUAL, |payload| payload.clock_rate))
    }
}

/// Parses `101 telephone-event/8000` or `96 L16/44100/2`.
fn mapping(value: &[u8]) -> Option<(u8, Format)> {
    let (number, encoding) = std::str::from_utf8(value).ok()?.trim().split_once(' ')?;
    let number = number.parse::<u8>().ok().filter(|number| *number < 128)?;
    let mut parts = encoding.trim_start().split('/');
    let (name, rate) = (parts.next()?, parts.next()?.parse::<u32>().ok().filter(|rate| *rate > 0)?);
    let is_event = name.eq_ignore_ascii_case("telephone-event");
    Some((number, if is_event { Format::Events } else { Format::Clock(rate) }))
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
    fn malformed_lines_bind_nothing() {
        for value in ["", "101", "300 x/8000", "96 x", "96 x/0", "96 x/y"] {
            let line = format!("a=rtpmap:{value}");
            assert_eq!(read(line.as_bytes()), Formats::default(), "{line}");
        }
        assert_eq!(read(b"a=rtpmap:\xff\xfe x/8000"), Formats::default());
    }
}
