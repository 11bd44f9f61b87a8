//! The values of Route and Record-Route: addresses of proxies (RFC 3261 sections 20.30 and 20.34).

use crate::name_addr::NameAddr;
use crate::reader::{Field, Reader};
use crate::uri::Uri;
use crate::write::Write;
use std::ops::Deref;

/// Address of one proxy on the path. Angle brackets are mandatory here. If they are missing, as in old call flows,
/// parameters after the URI are parsed as parameters of the URI: a route parameter is nearly always `lr` of the URI.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hop<'a>(pub NameAddr<'a>);

impl<'a> Deref for Hop<'a> {
    type Target = NameAddr<'a>;

    fn deref(&self) -> &NameAddr<'a> {
        &self.0
    }
}

impl<'a> Field<'a> for Hop<'a> {
    #[inline(always)]
    fn read(scan: &mut Reader<'a>) -> Option<Self> {
        let place = scan.rest();
        let start = scan.at();
        let addr = NameAddr::read(scan)?;
        // No text before a URI without brackets.
        if addr.params.is_empty() || !place.starts_with(addr.uri_text) || place.as_ptr() != addr.uri_text.as_ptr() {
            return Some(Self(addr));
        }
        let uri_text = scan.between(start, addr.params.text());
        Some(Self(match Uri::parse(uri_text) {
            Ok(uri) => NameAddr { uri, uri_text, ..NameAddr::new(uri) },
            Err(_) => addr,
        }))
    }
}

impl Write for Hop<'_> {
    #[inline]
    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Hop<'_> {
        crate::reader::whole(text.as_bytes()).unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    #[test]
    fn parameters_are_those_of_the_uri() {
        for text in ["<sip:a:5070;lr;d=x>", "sip:a:5070;lr;d=x"] {
            let hop = parse(text);
            let uri = hop.uri.sip().unwrap();
            assert!(uri.params.lr() && hop.params.is_empty(), "{text}");
            assert_eq!((uri.port, uri.params.find(b"d").flatten()), (Some(5070), Some(&b"x"[..])));
            assert_eq!(hop.uri_text, b"sip:a:5070;lr;d=x");
        }
        let hop = parse("<sip:a>;x=1");
        assert!(!hop.uri.sip().unwrap().params.lr() && hop.params.has(b"x"));
        // With white space it can only be a parameter of the header field.
        assert_eq!(parse("sip:a ;lr").uri_text, b"sip:a");
    }
}
