//! From and To: an address with a tag (RFC 3261 sections 20.20, 20.39).

use super::view;
use crate::name_addr::NameAddr;
use crate::reader::{CLASS, DISPLAY, Field, Reader, TOKEN, is};
use std::ops::Deref;

/// One end of a dialog, as From or To names it. The display name is irrelevant to routing and matching, so one that
/// lacks the quotes it needs, such as `Bob, Jr. <sip:bob@example.org>`, is accepted (RFC 3261 section 16.3 step 1).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Party<'a> {
    /// Address with all parameters, a parsed tag included.
    pub addr: NameAddr<'a>,
    /// The tag, if any (RFC 3261 section 19.3). On a created party it is written after the parameters, which must not
    /// name one themselves.
    pub tag: Option<&'a [u8]>,
}

view!(Party);

impl<'a> Party<'a> {
    /// Creates a party to write, with `tag` after the address.
    pub const fn new(addr: NameAddr<'a>, tag: Option<&'a [u8]>) -> Self {
        Self { addr, tag }
    }

    /// Tells whether the display name lacks quotes that it needs; not every reader accepts it.
    pub fn lacks_quotes(&self) -> bool {
        let display = self.addr.display;
        !display.starts_with(b"\"") && display.iter().any(|b| CLASS[*b as usize] & DISPLAY == 0)
    }

    /// Writes the address in angle brackets, and the tag unless the parameters have it.
    #[inline]
    pub fn write(&self, out: &mut Vec<u8>) {
        self.addr.write(out);
        if let Some(tag) = self.tag
            && !within(tag, self.addr.params.text())
        {
            out.extend_from_slice(b";tag=");
            out.extend_from_slice(tag);
        }
    }
}

/// Tells whether `part` is a slice of `text`, not only equal to one.
#[inline]
fn within(part: &[u8], text: &[u8]) -> bool {
    text.as_ptr_range().contains(&part.as_ptr())
}

impl<'a> Deref for Party<'a> {
    type Target = NameAddr<'a>;

    fn deref(&self) -> &NameAddr<'a> {
        &self.addr
    }
}

impl<'a> Field<'a> for Party<'a> {
    #[inline(always)]
    fn read(scan: &mut Reader<'a>) -> Option<Self> {
        let start = scan.at();
        Self::read_strict(scan).or_else(|| Self::read_unquoted(scan, start))
    }
}

impl<'a> Party<'a> {
    /// Reads a party with a display name that is neither tokens nor a quoted string. The name contains no colon, so it
    /// cannot be a URI, and no character at which another reader may end it.
    #[cold]
    fn read_unquoted(scan: &mut Reader<'a>, start: usize) -> Option<Self> {
        let fault = scan.at();
        scan.go(start);
        let rest = scan.rest();
        let end = rest.iter().position(|b| b"<>:;\"\\".contains(b) || (b.is_ascii_control() && *b != b'\t'));
        let display = end.filter(|end| rest[*end] == b'<').map(|end| &rest[..end]);
        let read = display.and_then(|display| {
            scan.skip(display.len());
            let mut party = Self::read_strict(scan)?;
            party.addr.display = display.trim_ascii_end();
            Some(party)
        });
        if read.is_none() {
            scan.go(fault);
        }
        read
    }

    #[inline(always)]
    fn read_strict(scan: &mut Reader<'a>) -> Option<Self> {
        let mut tag = None;
        let addr = NameAddr::read_with(scan, |name, value, token| {
            if !is(name, b"tag") {
                return true;
            }
            // With a second tag one element could see another dialog than the next element sees.
            let first = tag.is_none();
            tag = value.filter(|v| {
                token || v.iter().all(|&b| CLASS[b as usize] & TOKEN != 0 || matches!(b, b'=' | b'/' | b':' | b'@'))
            });
            first && tag.is_some()
        })?;
        Some(Self { addr, tag })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags() {
        assert_eq!(Party::parse(b"sip:a@b ;   TAG    = 1918181833n").unwrap().tag, Some(&b"1918181833n"[..]));
        assert_eq!(Party::parse(b"<sip:a@b;tag=x>").unwrap().tag, None);
        for text in [&b"sip:a@b;tag"[..], b"sip:a@b;tag=1;tag=2", b"sip:a@b;tag=\"x\"", b"sip:a@b, sip:c@d"] {
            assert!(Party::parse(text).is_err(), "{}", text.escape_ascii());
        }
    }

    #[test]
    fn display_names_without_their_quotes() {
        for display in ["Bob, Jr.", "Bob (home)", "Jörg", "A/B", "bob@work", "(unknown)"] {
            let text = format!("{display} <sip:a@b>;tag=t");
            let party = Party::parse(text.as_bytes()).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!((party.display, party.uri_text), (display.as_bytes(), &b"sip:a@b"[..]));
            assert_eq!(party.tag, Some(&b"t"[..]));
            assert!(party.lacks_quotes());
            // The output has quotes around the display name.
            let mut out = Vec::new();
            party.write(&mut out);
            assert_eq!(String::from_utf8(out).unwrap(), format!("\"{display}\" <sip:a@b>;tag=t"));
        }
        // Another reader would find another address here.
        for text in
            ["sip:x@y <sip:a@b>", "Bob;tag=1 <sip:a@b>;tag=2", "Bob > <sip:a@b>", "Bob \"x <sip:a@b>", "Bob, <sip:a@b"]
        {
            assert!(Party::parse(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn a_tag_is_written_once() {
        let mut read = Party::parse(b"<sip:a@b>;x=1;tag=t").unwrap();
        let mut out = Vec::new();
        read.write(&mut out);
        assert_eq!(out, b"<sip:a@b>;x=1;tag=t");
        read = Party::parse(b"<sip:a@b>;x=1").unwrap();
        read.tag = Some(b"new");
        out.clear();
        read.write(&mut out);
        assert_eq!(out, b"<sip:a@b>;x=1;tag=new");
    }
}
