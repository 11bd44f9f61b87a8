//! `o=`: the author of the session (RFC 8866 section 5.2).

use super::{fields, number};
use crate::write::Write;

/// An origin. Both numbers may have any length, so they stay text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin<'a> {
    /// Login of the author; `-` on a host without logins.
    pub username: &'a [u8],
    /// Session id, digits. Unique together with username, types and address; constant while the description changes.
    pub session_id: &'a [u8],
    /// Session version, digits; see [`Origin::version`].
    pub session_version: &'a [u8],
    /// Net type, `IN`.
    pub net_type: &'a [u8],
    /// Address type, `IP4` or `IP6`.
    pub address_type: &'a [u8],
    /// Address or name of the machine that created the session. Media may come from elsewhere.
    pub address: &'a [u8],
}

impl<'a> Origin<'a> {
    /// Reads the value of the line; `None` unless it has six fields and both numbers consist of digits.
    pub fn parse(value: &'a [u8]) -> Option<Self> {
        let mut fields = fields(value);
        let origin = Self {
            username: fields.next()?,
            session_id: fields.next()?,
            session_version: fields.next()?,
            net_type: fields.next()?,
            address_type: fields.next()?,
            address: fields.next()?,
        };
        let digits = |text: &[u8]| text.iter().all(u8::is_ascii_digit);
        (fields.next().is_none() && digits(origin.session_id) && digits(origin.session_version)).then_some(origin)
    }

    /// Returns the version of the description; `None` if it exceeds the type. An offer that changes anything raises it
    /// by one (RFC 3264 section 8).
    pub fn version(&self) -> Option<u64> {
        number(self.session_version)
    }
}

impl Write for Origin<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        let fields = [self.username, self.session_id, self.session_version, self.net_type, self.address_type];
        for field in fields {
            out.extend_from_slice(field);
            out.push(b' ');
        }
        out.extend_from_slice(self.address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn six_fields_and_two_numbers() {
        let origin = Origin::parse(b"- 99999999999999999999999 2  IN IP6 ::1 ").expect("valid");
        assert_eq!((origin.version(), origin.address), (Some(2), &b"::1"[..]));
        assert!(Origin { session_version: origin.session_id, ..origin }.version().is_none());
        for bad in ["", "- 1 1 IN IP4", "- 1 1 IN IP4 h x", "- x 1 IN IP4 h", "- 1 -1 IN IP4 h"] {
            assert_eq!(Origin::parse(bad.as_bytes()), None, "{bad}");
        }
    }
}
