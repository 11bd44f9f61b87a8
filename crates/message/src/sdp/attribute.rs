//! `a=`: attributes, and those that a telephone needs (RFC 8866 section 5.13 and 6).

use super::connection::Connection;
use super::media::payload;
use super::{fields, number, split_first, trim_end, write_number};
use crate::write::Write;

/// A property (`a=name`) or a value attribute (`a=name:value`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attribute<'a> {
    /// Name; compares with case (RFC 8866 section 5.13).
    pub name: &'a [u8],
    /// Raw text after the first colon; `None` for a property.
    pub value: Option<&'a [u8]>,
}

impl<'a> Attribute<'a> {
    /// Reads the value of the line; accepts any text.
    pub fn parse(value: &'a [u8]) -> Self {
        match memchr::memchr(b':', value) {
            Some(colon) => Self { name: &value[..colon], value: Some(&value[colon + 1..]) },
            None => Self { name: trim_end(value), value: None },
        }
    }
}

impl Write for Attribute<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.name);
        if let Some(value) = self.value {
            out.push(b':');
            out.extend_from_slice(value);
        }
    }
}

/// Mapping of a payload type: `a=rtpmap` (RFC 8866 section 6.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RtpMap<'a> {
    /// Payload type, 0 to 127.
    pub payload: u8,
    /// Encoding name; compares in any case.
    pub encoding: &'a [u8],
    /// Ticks per second.
    pub clock_rate: u32,
    /// Encoding parameters; for audio the number of channels.
    pub parameters: Option<&'a [u8]>,
}

impl<'a> RtpMap<'a> {
    /// Reads the value of the attribute.
    pub fn parse(value: &'a [u8]) -> Option<Self> {
        let mut fields = fields(value);
        let (number_field, map) = (fields.next()?, fields.next()?);
        if fields.next().is_some() {
            return None;
        }
        let mut parts = map.splitn(3, |&b| b == b'/');
        let encoding = parts.next().filter(|name| !name.is_empty())?;
        let clock_rate = u32::try_from(number(parts.next()?)?).ok()?;
        Some(Self { payload: payload(number_field)?, encoding, clock_rate, parameters: parts.next() })
    }

    /// Channels of an audio format; 1 unless the parameters say otherwise.
    pub fn channels(&self) -> u32 {
        self.parameters.and_then(number).and_then(|n| u32::try_from(n).ok()).unwrap_or(1)
    }
}

impl Write for RtpMap<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        write_number(u64::from(self.payload), out);
        out.push(b' ');
        out.extend_from_slice(self.encoding);
        out.push(b'/');
        write_number(u64::from(self.clock_rate), out);
        if let Some(parameters) = self.parameters {
            out.push(b'/');
            out.extend_from_slice(parameters);
        }
    }
}

/// Parameters of a format: `a=fmtp` (RFC 8866 section 6.15).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fmtp<'a> {
    /// Format of the `m=` line; for RTP, the payload type in digits.
    pub format: &'a [u8],
    /// Raw parameters; each encoding has a grammar of its own.
    pub parameters: &'a [u8],
}

impl<'a> Fmtp<'a> {
    /// Reads the value of the attribute.
    pub fn parse(value: &'a [u8]) -> Option<Self> {
        let (format, parameters) = split_first(value);
        (!parameters.is_empty()).then_some(Self { format, parameters })
    }
}

impl Write for Fmtp<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.format);
        out.push(b' ');
        out.extend_from_slice(self.parameters);
    }
}

/// Direction of media, as its author sees it (RFC 8866 section 6.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Hash)]
pub enum Direction {
    /// `sendrecv`, the default without an attribute.
    #[default]
    SendRecv,
    /// `sendonly`: the other side is on hold.
    SendOnly,
    /// `recvonly`
    RecvOnly,
    /// `inactive`: no media either way; RTCP continues.
    Inactive,
}

impl Direction {
    /// Each direction once.
    pub const ALL: [Self; 4] = [Self::SendRecv, Self::SendOnly, Self::RecvOnly, Self::Inactive];

    /// Returns the name of the attribute.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SendRecv => "sendrecv",
            Self::SendOnly => "sendonly",
            Self::RecvOnly => "recvonly",
            Self::Inactive => "inactive",
        }
    }

    pub(super) fn of(attribute: &Attribute<'_>) -> Option<Self> {
        if attribute.value.is_some() {
            return None;
        }
        Self::ALL.into_iter().find(|direction| attribute.name == direction.name().as_bytes())
    }

    /// Tells whether the side that wrote it sends media.
    pub const fn sends(self) -> bool {
        matches!(self, Self::SendRecv | Self::SendOnly)
    }

    /// Tells whether the side that wrote it receives media.
    pub const fn receives(self) -> bool {
        matches!(self, Self::SendRecv | Self::RecvOnly)
    }

    /// Returns the direction from its two parts.
    pub const fn from_parts(sends: bool, receives: bool) -> Self {
        match (sends, receives) {
            (true, true) => Self::SendRecv,
            (true, false) => Self::SendOnly,
            (false, true) => Self::RecvOnly,
            (false, false) => Self::Inactive,
        }
    }

    /// Returns the answer to this direction by a side that wants `wish` (RFC 3264 section 6.1): it sends only if the
    /// offerer receives, and receives only if the offerer sends.
    pub const fn answered(self, wish: Self) -> Self {
        Self::from_parts(self.receives() && wish.sends(), self.sends() && wish.receives())
    }
}

/// Destination of RTCP, if not the next port: `a=rtcp` (RFC 3605).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rtcp<'a> {
    /// Port, 1 to 65,535, maybe an odd one.
    pub port: u16,
    /// Address, if not that of the media.
    pub connection: Option<Connection<'a>>,
}

impl<'a> Rtcp<'a> {
    /// Reads the value of the attribute.
    pub fn parse(value: &'a [u8]) -> Option<Self> {
        let (port, rest) = split_first(value);
        let connection = match rest {
            [] => None,
            rest => Some(Connection::parse(rest)?),
        };
        Some(Self { port: u16::try_from(number(port)?).ok()?, connection })
    }
}

impl Write for Rtcp<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        write_number(u64::from(self.port), out);
        if let Some(connection) = self.connection {
            out.push(b' ');
            connection.write(out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_and_parameters() {
        let map = RtpMap::parse(b"111 opus/48000/2").expect("valid");
        assert_eq!((map.payload, map.clock_rate, map.channels()), (111, 48_000, 2));
        assert_eq!(RtpMap::parse(b"0 PCMU/8000").expect("valid").channels(), 1);
        for bad in ["", "0", "128 a/1", "0 /8000", "0 a", "0 a/x", "0 a/1 b"] {
            assert_eq!(RtpMap::parse(bad.as_bytes()), None, "{bad}");
        }
        let fmtp = Fmtp::parse(b"101 0-15,66; x=y").expect("valid");
        assert_eq!((fmtp.format, fmtp.parameters), (&b"101"[..], &b"0-15,66; x=y"[..]));
        assert_eq!(Fmtp::parse(b"101\t0-15 "), Fmtp::parse(b" 101 0-15"));
        assert!(Fmtp::parse(b"101").is_none() && Fmtp::parse(b"101 ").is_none() && Fmtp::parse(b"").is_none());
    }

    #[test]
    fn answers_to_directions() {
        // RFC 3264 section 6.1, with a side that wants both directions.
        for (offered, answered) in [
            (Direction::SendRecv, Direction::SendRecv),
            (Direction::SendOnly, Direction::RecvOnly),
            (Direction::RecvOnly, Direction::SendOnly),
            (Direction::Inactive, Direction::Inactive),
        ] {
            assert_eq!(offered.answered(Direction::SendRecv), answered);
            assert_eq!(offered.answered(Direction::Inactive), Direction::Inactive);
        }
        assert_eq!(Direction::SendRecv.answered(Direction::SendOnly), Direction::SendOnly);
        assert_eq!(Direction::SendOnly.answered(Direction::SendOnly), Direction::Inactive);
        assert_eq!(Direction::of(&Attribute::parse(b"sendonly:x")), None);
    }

    #[test]
    fn rtcp_with_and_without_address() {
        assert_eq!(Rtcp::parse(b"53020").expect("valid").connection, None);
        let with = Rtcp::parse(b"53020 IN IP4 192.0.2.1").expect("valid");
        assert_eq!(with.connection.expect("there").address, b"192.0.2.1");
        assert!(Rtcp::parse(b"x").is_none() && Rtcp::parse(b"1 IN").is_none() && Rtcp::parse(b"65536").is_none());
    }
}
