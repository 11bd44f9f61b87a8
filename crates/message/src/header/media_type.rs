//! Media types: Content-Type and the ranges of Accept (RFC 3261 sections 20.1, 20.15).

use super::contact::read_q;
use super::view;
use crate::params::Params;
use crate::reader::{Field, Reader, is};

/// A media type: `type/subtype;parameters`; in an Accept either part may be `*`.
#[derive(Clone, Copy, Debug)]
pub struct MediaType<'a> {
    /// Type; compares in any case, like the subtype.
    pub kind: &'a [u8],
    /// Subtype; compares in any case.
    pub subtype: &'a [u8],
    /// All parameters, `q` included: only they are written; the field `q` is not.
    pub params: Params<'a>,
    /// Preference of a range, in thousandths.
    pub q: Option<u16>,
}

view!(MediaType);

impl<'a> MediaType<'a> {
    /// Creates a type without parameters.
    pub fn new(kind: &'a [u8], subtype: &'a [u8]) -> Self {
        Self { kind, subtype, params: Params::default(), q: None }
    }

    /// Tells whether the value is this type, given in lower case like `application/sdp`.
    pub fn is(&self, text: &[u8]) -> bool {
        let (kind, subtype) = text.split_at(memchr::memchr(b'/', text).unwrap_or(text.len()));
        self.kind.eq_ignore_ascii_case(kind) && self.subtype.eq_ignore_ascii_case(subtype.get(1..).unwrap_or_default())
    }

    /// Tells whether this range includes the type `other`.
    pub fn takes(&self, other: &MediaType<'_>) -> bool {
        let fits = |range: &[u8], part: &[u8]| range == b"*" || range.eq_ignore_ascii_case(part);
        fits(self.kind, other.kind) && fits(self.subtype, other.subtype)
    }

    /// Writes `type/subtype` and the parameters, unfolded.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.kind);
        out.push(b'/');
        out.extend_from_slice(self.subtype);
        self.params.write(out);
    }
}

impl<'a> Field<'a> for MediaType<'a> {
    #[inline(always)]
    fn read(scan: &mut Reader<'a>) -> Option<Self> {
        let kind = scan.token()?;
        scan.ws();
        if !scan.take(b'/') {
            return None;
        }
        scan.ws();
        let subtype = scan.token()?;
        let mut q = None;
        let params = Params::read(scan, |name, value| {
            if is(name, b"q") {
                q = read_q(value.unwrap_or_default());
            }
            true
        })?;
        Some(Self { kind, subtype, params, q })
    }
}

impl PartialEq for MediaType<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.kind.eq_ignore_ascii_case(other.kind)
            && self.subtype.eq_ignore_ascii_case(other.subtype)
            && self.params == other.params
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_and_ranges() {
        let html = MediaType::parse(b"text / HTML ; charset=ISO-8859-4").unwrap();
        assert!(html.is(b"text/html") && !html.is(b"text/plain") && !html.is(b"text"));
        assert_eq!(html.params.value(b"Charset"), Some(&b"ISO-8859-4"[..]));
        let range = MediaType::parse(b"text/*;q=0.3").unwrap();
        assert_eq!(range.q, Some(300));
        assert!(range.takes(&html) && !range.takes(&MediaType::new(b"audio", b"x")));
        assert!(MediaType::parse(b"*/*").unwrap().takes(&html));
        for text in [&b""[..], b"text", b"text/", b"/html", b"text/html;", b"a/b c"] {
            assert!(MediaType::parse(text).is_err());
        }
    }
}
