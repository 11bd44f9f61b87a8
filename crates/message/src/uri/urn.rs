//! Uniform resource names (RFC 8141) and the service URNs of emergency calls (RFC 5031).

use crate::reader::{ANY_URI, Reader};
use crate::write::Write;

/// A URN: `urn:nid:nss`.
#[derive(Clone, Copy, Debug)]
pub struct Urn<'a> {
    /// The namespace, like `service` or `uuid`.
    pub nid: &'a [u8],
    /// Namespace-specific string, after the second colon.
    pub nss: &'a [u8],
}

impl<'a> Urn<'a> {
    #[inline]
    pub(crate) fn read(scan: &mut Reader<'a>) -> Option<Self> {
        let rest = scan.rest();
        let colon = memchr::memchr(b':', rest)?;
        let nid = &rest[..colon];
        // RFC 8141 section 2: letters, digits, hyphens; neither first nor last a hyphen.
        let fits = (2..=32).contains(&nid.len())
            && nid.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'-')
            && nid[0] != b'-'
            && nid[colon - 1] != b'-';
        if !fits {
            return None;
        }
        scan.skip(colon + 1);
        Some(Self { nid, nss: scan.some(ANY_URI)? })
    }

    /// Returns the service of a service URN, like `sos` or `sos.police` (RFC 5031).
    pub fn service(&self) -> Option<&'a [u8]> {
        self.nid.eq_ignore_ascii_case(b"service").then_some(self.nss)
    }

    /// Tells whether this is an emergency service: `sos` or one of its kinds (RFC 5031 section 4.2).
    pub fn is_emergency(&self) -> bool {
        self.service().is_some_and(|service| {
            service.get(..3).is_some_and(|first| first.eq_ignore_ascii_case(b"sos"))
                && matches!(service.get(3), None | Some(b'.'))
        })
    }

    /// Writes `urn:nid:nss`, both parts unchanged.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"urn:");
        out.extend_from_slice(self.nid);
        out.push(b':');
        out.extend_from_slice(self.nss);
    }
}

impl Write for Urn<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        Urn::write(self, out);
    }
}

/// Lexical equivalence (RFC 8141 section 3.1): the namespace compares in any case, the rest byte for byte except for
/// the case of the digits of escapes and the part after `?` or `#`. Service URNs (RFC 5031 section 3) and UUIDs (RFC
/// 9562 section 4) compare in any case.
impl PartialEq for Urn<'_> {
    fn eq(&self, other: &Self) -> bool {
        if !self.nid.eq_ignore_ascii_case(other.nid) {
            return false;
        }
        let (a, b) = (assigned(self.nss), assigned(other.nss));
        if self.nid.eq_ignore_ascii_case(b"service") || self.nid.eq_ignore_ascii_case(b"uuid") {
            return a.eq_ignore_ascii_case(b);
        }
        a == b
            || (a.len() == b.len()
                && (0..a.len()).all(|n| a[n] == b[n] || (in_escape(a, n) && a[n].eq_ignore_ascii_case(&b[n]))))
    }
}

/// Removes the components that RFC 8141 section 3.1 excludes from the comparison.
fn assigned(nss: &[u8]) -> &[u8] {
    &nss[..memchr::memchr2(b'?', b'#', nss).unwrap_or(nss.len())]
}

/// Tells whether this byte is one of the two after a percent sign.
fn in_escape(text: &[u8], at: usize) -> bool {
    (at >= 1 && text[at - 1] == b'%') || (at >= 2 && text[at - 2] == b'%')
}

#[cfg(test)]
mod tests {
    use crate::uri::Uri;

    fn urn(text: &str) -> Uri<'_> {
        Uri::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn services() {
        let Uri::Urn(sos) = urn("urn:service:sos.police") else { panic!() };
        assert_eq!(sos.service(), Some(&b"sos.police"[..]));
        assert!(sos.is_emergency());
        for other in ["urn:service:counseling", "urn:service:sosx", "urn:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6"] {
            let Uri::Urn(other) = urn(other) else { panic!() };
            assert!(!other.is_emergency());
        }
    }

    #[test]
    fn equivalence() {
        assert_eq!(urn("URN:Service:SOS.fire"), urn("urn:service:sos.FIRE"));
        assert_eq!(urn("urn:example:a%2cb"), urn("urn:EXAMPLE:a%2Cb"));
        assert_eq!(urn("urn:example:a?+x"), urn("urn:example:a"));
        assert_ne!(urn("urn:example:a"), urn("urn:example:A"));
        assert_ne!(urn("urn:example:a"), urn("urn:other:a"));
    }

    #[test]
    fn refused() {
        for text in ["urn:", "urn:a", "urn:a:", "urn:-ab:c", "urn:service:", "urn:service:a b"] {
            assert!(Uri::parse(text.as_bytes()).is_err(), "{text}");
        }
    }
}
