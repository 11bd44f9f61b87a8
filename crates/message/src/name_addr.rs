//! Addresses: an optional display name, a URI, parameters (RFC 3261 section 20.10, name-addr, addr-spec).

use crate::Error;
use crate::params::{Params, unquote, write_quoted};
use crate::reader::{self, BARE, CLASS, DISPLAY, Field, Reader, TOKEN, WS};
use crate::uri::Uri;
use crate::write::{self, Write};
use std::borrow::Cow;

/// An address: `"Name" <uri>;parameters`, or a bare URI, which then ends at a semicolon, comma or question mark.
#[derive(Clone, Copy, Debug)]
pub struct NameAddr<'a> {
    /// Raw display name: tokens, or a quoted string with its quotes; empty if there is none.
    pub display: &'a [u8],
    /// URI without the brackets.
    pub uri: Uri<'a>,
    /// Raw URI. Empty if the address was created, not parsed.
    pub uri_text: &'a [u8],
    /// Parameters of the header field, not of the URI: those after the bracket, or all parameters of a bare URI.
    pub params: Params<'a>,
}

impl<'a> NameAddr<'a> {
    /// Creates an address without display name and parameters.
    pub fn new(uri: Uri<'a>) -> Self {
        Self { display: b"", uri, uri_text: b"", params: Params::default() }
    }

    /// Reads a whole value, folded or not.
    ///
    /// # Errors
    /// No URI, an unbalanced quote or bracket, a display name that needs quotes, or malformed parameters.
    pub fn parse(text: &'a [u8]) -> Result<Self, Error> {
        reader::whole(text)
    }

    /// Returns the display name without quotes; empty if there is none.
    pub fn display_name(&self) -> Cow<'a, [u8]> {
        unquote(self.display)
    }

    /// Reads an address and reports its parameters to `on`, as [`Params::read_telling`] does.
    #[inline(always)]
    pub(crate) fn read_with(
        scan: &mut Reader<'a>,
        on: impl FnMut(&'a [u8], Option<&'a [u8]>, bool) -> bool,
    ) -> Option<Self> {
        let start = scan.at();
        let mut display = &b""[..];
        let mut bracket = true;
        match scan.peek()? {
            b'<' => (),
            b'"' => {
                display = scan.quoted()?;
                scan.ws();
                if scan.peek() != Some(b'<') {
                    return None;
                }
            }
            _ => {
                display = scan.span(DISPLAY);
                // Without quotes or brackets the supposed display name is the scheme of a URI.
                bracket = scan.peek() == Some(b'<');
                if bracket {
                    display = display.trim_ascii_end();
                } else {
                    display = b"";
                    scan.go(start);
                }
            }
        }
        scan.skip(bracket as usize);
        let from = scan.at();
        let mut inner = if bracket { scan.clone() } else { scan.until(bare_end(scan.clone())) };
        let uri = Uri::read(&mut inner);
        scan.go(inner.at());
        let uri = uri?;
        // A URI with a question mark needs brackets.
        let ends = if bracket { scan.peek() == Some(b'>') } else { inner.is_done() && scan.peek() != Some(b'?') };
        if !ends {
            return None;
        }
        let uri_text = scan.since(from);
        scan.skip(bracket as usize);
        let params = Params::read_telling(scan, on)?;
        Some(Self { display, uri, uri_text, params })
    }

    /// Writes the address, always with angle brackets.
    #[inline]
    pub fn write(&self, out: &mut Vec<u8>) {
        self.write_without_params(out);
        self.params.write(out);
    }

    #[inline]
    pub(crate) fn write_without_params(&self, out: &mut Vec<u8>) {
        if !self.display.is_empty() {
            write_display(self.display, out);
            out.push(b' ');
        }
        out.push(b'<');
        self.uri.write(out);
        out.push(b'>');
    }
}

/// Returns the end of an addr-spec: before white space, a semicolon, a comma or a question mark.
fn bare_end(mut scan: Reader<'_>) -> usize {
    scan.span(BARE);
    scan.at()
}

/// Writes tokens and quoted strings unchanged, anything else quoted.
fn write_display(display: &[u8], out: &mut Vec<u8>) {
    let is_quoted = display.len() > 1 && display[0] == b'"' && display[display.len() - 1] == b'"';
    if is_quoted || display.iter().all(|&b| CLASS[b as usize] & (TOKEN | WS) != 0) {
        write::unfolded(display, out);
    } else {
        write_quoted(display, out);
    }
}

impl<'a> Field<'a> for NameAddr<'a> {
    #[inline(always)]
    fn read(scan: &mut Reader<'a>) -> Option<Self> {
        Self::read_with(scan, |_, _, _| true)
    }
}

impl Write for NameAddr<'_> {
    #[inline]
    fn write(&self, out: &mut Vec<u8>) {
        NameAddr::write(self, out);
    }
}

/// Tells whether the display names and parameters are equal and the URIs are equivalent.
impl PartialEq for NameAddr<'_> {
    fn eq(&self, other: &Self) -> bool {
        (self.display == other.display || self.display_name() == other.display_name())
            && self.uri == other.uri
            && self.params == other.params
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> NameAddr<'_> {
        NameAddr::parse(text.as_bytes()).unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    #[test]
    fn forms() {
        assert_eq!(parse("<sip:a@b>").display, b"");
        assert_eq!(parse("Bob<sip:a@b>").display, b"Bob");
        assert_eq!(parse("Hi I'm Joe <sip:a@b>;tag=1").display, b"Hi I'm Joe");
        assert_eq!(parse("\"J \\\\\\\"\"   <sip:a@b>").display_name().as_ref(), b"J \\\"");
        assert_eq!(parse("\"A, <x>;\" <sip:a@b>").display_name().as_ref(), b"A, <x>;");
        let bare = parse("sip:a@b ;\r\n tag = x");
        assert_eq!(bare.params.value(b"tag"), Some(&b"x"[..]));
        assert_eq!(bare.uri_text, b"sip:a@b");
        assert!(parse("<sip:a@b;lr>").uri.sip().unwrap().params.lr());
        assert!(parse("sip:a@b;lr").uri.sip().unwrap().params.is_empty());
        assert_eq!(parse("<http://www.example.com>;tag=1").uri.scheme(), b"http");
    }

    #[test]
    fn refused() {
        for text in [
            "",
            "\"x\" sip:a@b",
            "\"x <sip:a@b>",
            "<sip:a@b",
            "< sip:a@b >",
            "Bell, Al <sip:a@b>",
            "sip:a@b?x=y",
            "<>",
            "<sip:a@b>>",
            "<sip:a@b> x",
            "Bob",
            "<<sip:a@b>>",
        ] {
            assert!(NameAddr::parse(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn written_in_normal_form() {
        let mut out = Vec::new();
        parse("\"A\r\n  B\"\t<sip:a@b> ; x = 1").write(&mut out);
        assert_eq!(String::from_utf8(out).unwrap(), "\"A B\" <sip:a@b>;x=1");
        let mut out = Vec::new();
        NameAddr { display: "Zoë".as_bytes(), ..parse("sip:a@b") }.write(&mut out);
        assert_eq!(String::from_utf8(out).unwrap(), "\"Zoë\" <sip:a@b>");
    }
}
