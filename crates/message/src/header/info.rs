//! URIs for further information: Alert-Info, Call-Info, Error-Info, Identity-Info (RFC 3261 sections 20.4,
//! 20.9, 20.18; RFC 4474).

use super::view;
use crate::params::Params;
use crate::reader::{Field, Reader};
use crate::uri::Uri;

/// A URI with parameters: `<uri>;parameters`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Info<'a> {
    /// Location of the information: a body part (`cid:`), an HTTP resource, or a tone of the phone's own (`urn:`,
    /// `file:`).
    pub uri: Uri<'a>,
    /// Parameters after the bracket: `purpose` of a Call-Info, `alg` of an Identity-Info.
    pub params: Params<'a>,
}

view!(Info);

impl<'a> Info<'a> {
    /// Creates a URI without parameters.
    pub fn new(uri: Uri<'a>) -> Self {
        Self { uri, params: Params::default() }
    }

    /// Returns the purpose of a Call-Info: `icon`, `info`, `card`, ...
    pub fn purpose(&self) -> Option<&'a [u8]> {
        self.params.value(b"purpose")
    }

    /// Writes `<uri>` and the parameters, unfolded.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.push(b'<');
        self.uri.write(out);
        out.push(b'>');
        self.params.write(out);
    }
}

impl<'a> Field<'a> for Info<'a> {
    fn read(scan: &mut Reader<'a>) -> Option<Self> {
        let start = scan.at();
        let text = scan.bracketed()?;
        let Ok(uri) = Uri::parse(&text[1..text.len() - 1]) else {
            scan.go(start);
            return None;
        };
        Some(Self { uri, params: Params::read(scan, |_, _| true)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_in_brackets() {
        let info = Info::parse(b"<http://www.example.com/alice/photo.jpg> ;purpose=icon").unwrap();
        assert_eq!((info.uri.scheme(), info.purpose()), (&b"http"[..], Some(&b"icon"[..])));
        for text in [&b"http://x"[..], b"<>", b"<x>", b"<sip:>", b"<http://x"] {
            assert!(Info::parse(text).is_err());
        }
    }
}
