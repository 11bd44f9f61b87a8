//! URIs: sip and sips (RFC 3261 section 19.1), tel (RFC 3966), urn (RFC 8141, RFC 5031); others opaque.

mod compare;
pub mod sip;
pub mod tel;
pub mod urn;

pub use sip::{SipUri, UriParams};
pub use tel::TelUri;
pub use urn::Urn;

use crate::reader::{ANY_URI, Reader, is};
use crate::write::Write;
use crate::{Error, Reason};

/// A URI by scheme.
#[derive(Clone, Copy, Debug)]
pub enum Uri<'a> {
    /// `sip:` or `sips:`
    Sip(SipUri<'a>),
    /// `tel:`
    Tel(TelUri<'a>),
    /// `urn:`
    Urn(Urn<'a>),
    /// Any other scheme: `mailto:`, `http:`, `cid:`, ...
    Other(OtherUri<'a>),
}

/// A URI of a scheme that is only carried.
#[derive(Clone, Copy, Debug)]
pub struct OtherUri<'a> {
    /// Raw scheme without the colon; compares in any case.
    pub scheme: &'a [u8],
    /// Text after the colon.
    pub rest: &'a [u8],
}

impl<'a> Uri<'a> {
    /// Reads a whole URI, as in a start line or between angle brackets.
    ///
    /// # Errors
    /// No scheme, or a sip, sips, tel or urn URI that violates its grammar.
    #[inline]
    pub fn parse(text: &'a [u8]) -> Result<Self, Error> {
        let mut scan = Reader::new(text);
        match Self::read(&mut scan) {
            Some(uri) if scan.is_done() => Ok(uri),
            _ => Err(Error::new(Reason::Malformed, scan.at())),
        }
    }

    /// Reads a URI; the caller checks whether the next byte may end it.
    #[inline(always)]
    pub(crate) fn read(scan: &mut Reader<'a>) -> Option<Self> {
        const SIP: u32 = u32::from_le_bytes(*b"sip:");
        const SIPS: u32 = u32::from_le_bytes(*b"sips");
        let rest = scan.rest();
        if let Some(first) = rest.first_chunk::<4>() {
            // A colon is not changed by this, and only letters become letters.
            let word = u32::from_le_bytes(*first) | 0x2020_2020;
            let secure = word == SIPS && rest.get(4) == Some(&b':');
            if secure || word == SIP && first[3] == b':' {
                scan.skip(4 + secure as usize);
                return SipUri::read(scan, secure).map(Self::Sip);
            }
        }
        scan.lend(Self::read_other)
    }

    #[inline(never)]
    fn read_other(scan: &mut Reader<'a>) -> Option<Self> {
        let rest = scan.rest();
        let scheme = rest.get(..4).unwrap_or(rest);
        if scheme.eq_ignore_ascii_case(b"tel:") {
            scan.skip(4);
            return TelUri::read(scan).map(Self::Tel);
        }
        if scheme.eq_ignore_ascii_case(b"urn:") {
            scan.skip(4);
            return Urn::read(scan).map(Self::Urn);
        }
        OtherUri::read(scan).map(Self::Other)
    }

    /// Returns the scheme: raw for [`Uri::Other`], else in lower case.
    pub const fn scheme(&self) -> &'a [u8] {
        match self {
            Self::Sip(uri) => uri.scheme(),
            Self::Tel(_) => b"tel",
            Self::Urn(_) => b"urn",
            Self::Other(uri) => uri.scheme,
        }
    }

    /// Returns the URI, if it is `sip:` or `sips:`.
    #[inline]
    pub const fn sip(&self) -> Option<&SipUri<'a>> {
        match self {
            Self::Sip(uri) => Some(uri),
            _ => None,
        }
    }

    /// Returns the user and host of a sip, sips, im (RFC 3860) or pres (RFC 3859) URI.
    #[inline]
    pub fn address(&self) -> Option<SipUri<'a>> {
        match self {
            Self::Sip(uri) => Some(*uri),
            Self::Other(uri) => uri.address(),
            Self::Tel(_) | Self::Urn(_) => None,
        }
    }

    /// Tells whether the URI requires TLS on every hop (RFC 3261 section 26.2.2).
    pub const fn is_sips(&self) -> bool {
        matches!(self, Self::Sip(SipUri { secure: true, .. }))
    }

    /// Writes the key of this address-of-record in the location service (RFC 3261 section 10.3 step 5): `user@host`,
    /// with `:port` if there is one, unescaped, without parameters, the host in lower case, and without the scheme for
    /// sip and sips, which name the same user. A tel URI becomes `tel:` and the number without visual separators. Other
    /// URIs are written unchanged, with the scheme in lower case.
    pub fn write_aor(&self, out: &mut Vec<u8>) {
        match self {
            Self::Sip(uri) => uri.write_aor(out),
            Self::Tel(uri) => uri.write_aor(out),
            Self::Urn(uri) => {
                let from = out.len();
                uri.write(out);
                out[from..].make_ascii_lowercase();
            }
            Self::Other(uri) => {
                out.extend(uri.scheme.iter().map(u8::to_ascii_lowercase));
                out.push(b':');
                out.extend_from_slice(uri.rest);
            }
        }
    }

    /// Writes a parsed URI unchanged, except for the case of the scheme and the form of addresses and ports.
    #[inline]
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Sip(uri) => uri.write(out),
            Self::Tel(uri) => uri.write(out),
            Self::Urn(uri) => uri.write(out),
            Self::Other(uri) => {
                out.extend_from_slice(uri.scheme);
                out.push(b':');
                out.extend_from_slice(uri.rest);
            }
        }
    }
}

impl Write for Uri<'_> {
    #[inline]
    fn write(&self, out: &mut Vec<u8>) {
        Uri::write(self, out);
    }
}

impl<'a> OtherUri<'a> {
    fn read(scan: &mut Reader<'a>) -> Option<Self> {
        let rest = scan.rest();
        let colon = memchr::memchr(b':', rest)?;
        let scheme = &rest[..colon];
        let word = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.');
        if !scheme.first()?.is_ascii_alphabetic() || !scheme.iter().all(word) {
            return None;
        }
        scan.skip(colon + 1);
        let rest = scan.some(ANY_URI)?;
        Some(Self { scheme, rest })
    }

    #[cold]
    fn address(&self) -> Option<SipUri<'a>> {
        let is_address = self.is_scheme(b"im") || self.is_scheme(b"pres");
        SipUri::read(&mut Reader::new(self.rest), false).filter(|_| is_address)
    }

    /// Tells whether the URI has this scheme, which is given in lower case.
    pub fn is_scheme<const N: usize>(&self, lower: &[u8; N]) -> bool {
        is(self.scheme, lower)
    }
}

/// The scheme compares in any case, the rest byte for byte.
impl PartialEq for OtherUri<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.scheme.eq_ignore_ascii_case(other.scheme) && self.rest == other.rest
    }
}

/// Tells whether the URIs are equivalent by the rules of their scheme (RFC 3261 section 19.1.4, RFC 3966 section 4, RFC
/// 8141 section 3). The relation is not transitive, so there is no `Eq`.
impl PartialEq for Uri<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Sip(a), Self::Sip(b)) => a == b,
            (Self::Tel(a), Self::Tel(b)) => a == b,
            (Self::Urn(a), Self::Urn(b)) => a == b,
            (Self::Other(a), Self::Other(b)) => a == b,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes_in_any_case() {
        assert!(matches!(Uri::parse(b"SIP:a@b").unwrap(), Uri::Sip(SipUri { secure: false, .. })));
        assert!(Uri::parse(b"sIpS:a@b").unwrap().is_sips());
        assert!(matches!(Uri::parse(b"TEL:+1").unwrap(), Uri::Tel(_)));
        assert!(matches!(Uri::parse(b"urn:service:sos").unwrap(), Uri::Urn(_)));
        assert_eq!(Uri::parse(b"http://a.example/").unwrap().scheme(), b"http");
        assert_eq!(Uri::parse(b"soap.beep://192.0.2.103:3002").unwrap().scheme(), b"soap.beep");
        // "sipS" without a colon after it is another scheme.
        assert_eq!(Uri::parse(b"sipsy:a").unwrap().scheme(), b"sipsy");
    }

    #[test]
    fn no_uri() {
        for text in
            [&b""[..], b":", b"sip", b"sip:", b"sips:", b"a b:c", b"<sip:a@b>", b"1a:b", b"x:", b"sip:a@b c", b"x:a b"]
        {
            assert!(Uri::parse(text).is_err(), "{}", text.escape_ascii());
        }
    }

    #[test]
    fn keys_of_addresses_of_record() {
        for (uri, key) in [
            ("sip:Alice@Example.COM;transport=tcp?subject=x", "Alice@example.com"),
            ("sips:%61lice:secret@example.com", "alice@example.com"),
            ("sip:a%40b@example.com:5070", "a@b@example.com:5070"),
            ("sip:Example.com", "example.com"),
            ("tel:+1-201-555-0123;ext=1", "tel:+12015550123"),
            ("urn:service:SOS", "urn:service:sos"),
            ("IM:Bob@x", "im:Bob@x"),
        ] {
            let mut out = Vec::new();
            Uri::parse(uri.as_bytes()).unwrap().write_aor(&mut out);
            assert_eq!(String::from_utf8(out).unwrap(), key);
        }
    }
}
