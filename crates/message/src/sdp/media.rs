//! `m=`: a medium and its port (RFC 8866 section 5.14).

use super::{fields, number, trim_end, write_number};
use crate::write::Write;

/// First line of a media description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Media<'a> {
    /// Media type: `audio`, `video`, `text`, `application`, `message`, `image`.
    pub kind: &'a [u8],
    /// Port; 0 if the medium is refused or given up (RFC 3264 section 6).
    pub port: u16,
    /// Number of port pairs, if more than one.
    pub count: Option<u32>,
    /// Protocol: `RTP/AVP`, `RTP/SAVPF`, `UDP/TLS/RTP/SAVPF`, `udptl` and others.
    pub protocol: &'a [u8],
    pub(super) formats: &'a [u8],
}

impl<'a> Media<'a> {
    /// Creates a line; spaces separate the `formats`.
    pub fn new(kind: &'a [u8], port: u16, protocol: &'a [u8], formats: &'a [u8]) -> Self {
        Self { kind, port, count: None, protocol, formats }
    }

    /// Reads the value of the line; at least one format is mandatory.
    pub fn parse(value: &'a [u8]) -> Option<Self> {
        let mut rest = fields(value);
        let (kind, ports, protocol, first) = (rest.next()?, rest.next()?, rest.next()?, rest.next()?);
        let mut ports = ports.splitn(2, |&b| b == b'/');
        let port = u16::try_from(number(ports.next()?)?).ok()?;
        let count = match ports.next() {
            Some(count) => Some(u32::try_from(number(count)?).ok()?),
            None => None,
        };
        // Every field is a slice of the value, so pointers give its offset.
        let start = first.as_ptr().addr() - value.as_ptr().addr();
        Some(Self { kind, port, count, protocol, formats: trim_end(&value[start..]) })
    }

    /// Formats in order of preference; payload types if the protocol is RTP.
    pub fn formats(&self) -> impl Iterator<Item = &'a [u8]> + 'a {
        fields(self.formats)
    }

    /// Formats that are RTP payload types (RFC 3550 section 5.1: seven bits).
    pub fn payloads(&self) -> impl Iterator<Item = u8> + 'a {
        self.formats().filter_map(payload)
    }

    /// Tells whether the formats are RTP payload types.
    pub fn is_rtp(&self) -> bool {
        let mut parts = self.protocol.split(|&b| b == b'/');
        parts.any(|part| part.eq_ignore_ascii_case(b"RTP"))
    }
}

impl Write for Media<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.kind);
        out.push(b' ');
        write_number(u64::from(self.port), out);
        if let Some(count) = self.count {
            out.push(b'/');
            write_number(u64::from(count), out);
        }
        out.push(b' ');
        out.extend_from_slice(self.protocol);
        for format in self.formats() {
            out.push(b' ');
            out.extend_from_slice(format);
        }
    }
}

/// Returns the payload type, 0 to 127.
pub(super) fn payload(format: &[u8]) -> Option<u8> {
    number(format).and_then(|number| u8::try_from(number).ok()).filter(|&number| number < 128)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_and_written_back() {
        let text = b"video 49170/2 UDP/TLS/RTP/SAVPF 31 99 200 x";
        let media = Media::parse(text).expect("valid");
        assert_eq!((media.port, media.count, media.is_rtp()), (49_170, Some(2), true));
        assert_eq!(media.formats().count(), 4);
        assert_eq!(media.payloads().collect::<Vec<_>>(), [31, 99]);
        let mut out = Vec::new();
        media.write(&mut out);
        assert_eq!(out, text);
        assert!(!Media::parse(b"image 5004 udptl t38").expect("valid").is_rtp());
        for bad in ["", "audio 1 RTP/AVP", "audio x RTP/AVP 0", "audio 65536 RTP/AVP 0", "audio 1/x RTP/AVP 0"] {
            assert_eq!(Media::parse(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn a_format_of_form_feeds_is_one() {
        // Only blanks separate fields, so these bytes are the mandatory format.
        let media = Media::parse(b"x 3 y \x0c\x0c \t").expect("a kind, a port, a protocol, a format");
        assert!(media.formats().eq([b"\x0c\x0c"]));
        let mut out = Vec::new();
        media.write(&mut out);
        assert_eq!(Media::parse(&out).expect("what a line writes is a line"), media);
    }
}
